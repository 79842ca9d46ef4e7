// SPDX-License-Identifier: Apache-2.0 OR MIT
// Pending keys of a hash map: associative memory for the keys that packets in flight looked up and did not find, and
// for those on their way into or out of the cuckoo table.
//
//   allocated ──► quiet ──┬─ absent ──► given up
//                         └─ present ─► inserted into the cuckoo table ──► settled ──► copied, given up
//   adopted ────► quiet ──┬─ present ─► released: the key stays in the table
//                         └─ absent ──► disowned: has a row of its own ──► key deleted from the table, let go
//
// An entry has a row of its own for the value. A key of the table whose entry was deleted is adopted: its entry has the
// slot of the table. An entry is quiet if no packet has found it for Quiet cycles: then no packet in flight refers to
// it. Several entries are on their way at once; one whose insertion was refused tries again.
//
// Latency: 0 cycles from key to entry; an allocation is seen by the next cycle's key.
// Throughput: one key a cycle, and one absent entry given up in a cycle.
// Handshake: none for keys; an allocation needs free_o > 0. The next insertion and the next copy are offered with valid
// and taken in the same cycle.
module fl_pending #(
    parameter int unsigned KeyBits = 32,
    parameter int unsigned Entries = 16,
    parameter int unsigned SlotBits = 10,
    // Cycles after which no packet that found an entry is in flight.
    parameter int unsigned Quiet = 5,
    localparam int unsigned EntryBits = (Entries > 1) ? $clog2(Entries) : 1,
    localparam int unsigned CountBits = $clog2(Entries + 1)
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    // A key of this cycle, and the entry that has it.
    input  logic                 valid_i,
    input  logic [KeyBits-1:0]   key_i,
    output logic                 hit_o,
    output logic [EntryBits-1:0] entry_o,
    output logic                 adopted_o,
    output logic [SlotBits-1:0]  slot_o,
    // The key takes the free entry free_entry_o; it has no entry yet.
    input  logic                 allocate_i,
    input  logic                 adopt_i,
    input  logic [SlotBits-1:0]  adopt_slot_i,
    output logic [EntryBits-1:0] free_entry_o,
    output logic [CountBits-1:0] free_o,
    // Whether the own row of an entry is present; a result of a packet changes that.
    input  logic [EntryBits-1:0] row_entry_i,
    output logic                 row_present_o,
    input  logic                 mark_i,
    input  logic [EntryBits-1:0] mark_entry_i,
    input  logic                 mark_present_i,
    // The next key that goes into the cuckoo table; how an insertion ended.
    output logic                 insert_valid_o,
    output logic [EntryBits-1:0] insert_entry_o,
    output logic [KeyBits-1:0]   insert_key_o,
    input  logic                 insert_take_i,
    input  logic                 inserted_i,
    input  logic                 inserted_stored_i,
    input  logic [EntryBits-1:0] inserted_entry_i,
    input  logic [SlotBits-1:0]  inserted_slot_i,
    // The next row that is copied to its slot. Its entry is not found any more from the next cycle on, and free.
    output logic                 copy_valid_o,
    output logic [EntryBits-1:0] copy_entry_o,
    output logic                 copy_present_o,
    output logic [KeyBits-1:0]   copy_key_o,
    output logic [SlotBits-1:0]  copy_slot_o,
    input  logic                 copy_take_i,
    // The next quiet adopted entry.
    input  logic                 next_i,
    output logic                 quiet_valid_o,
    output logic [EntryBits-1:0] quiet_entry_o,
    // An adopted entry under work.
    input  logic [EntryBits-1:0] work_entry_i,
    output logic [KeyBits-1:0]   work_key_o,
    output logic [SlotBits-1:0]  work_slot_o,
    // It is quiet, and the key of this cycle is another one.
    output logic                 work_quiet_o,
    // It is given up; its row, which is absent, is used in place of the slot, and it stays until it is let go.
    input  logic                 release_i,
    input  logic                 disown_i,
    input  logic                 let_go_i
);

  // Cycles after an insertion in which lookups that did not see it may come by.
  localparam int unsigned Settle = 3;
  localparam int unsigned TimerBits = $clog2(Quiet + 1);

  // An entry that was picked in the cycle before.
  typedef struct packed {
    logic                 valid;
    logic [EntryBits-1:0] entry;
  } pick_t;

  logic [KeyBits-1:0]   keys_q[Entries];
  logic [SlotBits-1:0]  slots_q[Entries];
  logic [TimerBits-1:0] timers_q[Entries];
  // Moving: on its way into the table or out of it. Stored: its key is in the table, its value is not yet copied to the
  // slot.
  logic [Entries-1:0]   valid_q, adopted_q, present_q, moving_q, stored_q, hit, quiet;
  pick_t                absent_d, absent_q, insert_d, insert_q, copy_d, copy_q, adopted_d, adopted_pick_q;
  pick_t [Settle:1]     settle_q;
  logic                 gives_up;

  always_comb begin
    hit_o     = 1'b0;
    entry_o   = '0;
    slot_o    = '0;
    adopted_o = 1'b0;
    for (int unsigned i = 0; i < Entries; i++) begin
      hit[i]   = valid_i && valid_q[i] && keys_q[i] == key_i;
      quiet[i] = valid_q[i] && timers_q[i] == '0 && !hit[i];
      if (hit[i]) begin
        hit_o     = 1'b1;
        entry_o   = EntryBits'(i);
        slot_o    = slots_q[i];
        adopted_o = adopted_q[i];
      end
    end
  end

  always_comb begin
    free_entry_o = '0;
    free_o       = '0;
    for (int unsigned i = Entries; i > 0; i--) begin
      if (!valid_q[i-1]) begin
        free_entry_o = EntryBits'(i - 1);
      end
      free_o += CountBits'(!valid_q[i-1]);
    end
  end

  // Candidates of the next cycle; whether they are still quiet is seen then. Insertions take turns: one that is refused
  // again and again must not hold up those after it.
  pick_t insert_low, insert_next;
  assign insert_d = insert_next.valid ? insert_next : insert_low;

  always_comb begin
    absent_d = '0;
    insert_low  = '0;
    insert_next = '0;
    copy_d   = '0;
    adopted_d = '0;
    for (int unsigned i = Entries; i > 0; i--) begin
      if (valid_q[i-1] && timers_q[i-1] == '0 && !adopted_q[i-1]) begin
        if (!moving_q[i-1] && !present_q[i-1] && !(absent_q.valid && absent_q.entry == EntryBits'(i - 1))) begin
          absent_d = '{valid: 1'b1, entry: EntryBits'(i - 1)};
        end
        if (!moving_q[i-1] && present_q[i-1] && !(insert_q.valid && insert_q.entry == EntryBits'(i - 1))) begin
          insert_low = '{valid: 1'b1, entry: EntryBits'(i - 1)};
          if (EntryBits'(i - 1) > insert_q.entry) begin
            insert_next = insert_low;
          end
        end
        if (stored_q[i-1] && !(copy_q.valid && copy_q.entry == EntryBits'(i - 1))) begin
          copy_d = '{valid: 1'b1, entry: EntryBits'(i - 1)};
        end
      end
      if (valid_q[i-1] && timers_q[i-1] == '0 && adopted_q[i-1]
          && !(adopted_pick_q.valid && adopted_pick_q.entry == EntryBits'(i - 1))) begin
        adopted_d = '{valid: 1'b1, entry: EntryBits'(i - 1)};
      end
    end
  end

  assign gives_up       = absent_q.valid && quiet[absent_q.entry] && !present_q[absent_q.entry];
  assign insert_valid_o = insert_q.valid && quiet[insert_q.entry] && present_q[insert_q.entry];
  assign insert_entry_o = insert_q.entry;
  assign insert_key_o   = keys_q[insert_q.entry];
  assign copy_valid_o   = copy_q.valid && quiet[copy_q.entry];
  assign copy_entry_o   = copy_q.entry;
  assign copy_present_o = present_q[copy_q.entry];
  assign copy_key_o     = keys_q[copy_q.entry];
  assign copy_slot_o    = slots_q[copy_q.entry];
  assign row_present_o  = present_q[row_entry_i];

  assign quiet_valid_o  = adopted_pick_q.valid && quiet[adopted_pick_q.entry] && adopted_q[adopted_pick_q.entry];
  assign quiet_entry_o  = adopted_pick_q.entry;
  assign work_key_o    = keys_q[work_entry_i];
  assign work_slot_o   = slots_q[work_entry_i];
  assign work_quiet_o  = quiet[work_entry_i];

  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < Entries; i++) begin
      if (hit[i]) begin
        timers_q[i] <= TimerBits'(Quiet);
      end else if (timers_q[i] != '0) begin
        timers_q[i] <= timers_q[i] - 1'b1;
      end
    end
    if (mark_i) begin
      present_q[mark_entry_i] <= mark_present_i;
    end
    if (allocate_i) begin
      valid_q[free_entry_o]   <= 1'b1;
      keys_q[free_entry_o]    <= key_i;
      adopted_q[free_entry_o] <= adopt_i;
      present_q[free_entry_o] <= 1'b0;
      moving_q[free_entry_o]  <= 1'b0;
      stored_q[free_entry_o]  <= 1'b0;
      slots_q[free_entry_o]   <= adopt_slot_i;
      timers_q[free_entry_o]  <= TimerBits'(Quiet);
    end
    // A pick that is not taken stays while it is quiet.
    absent_q <= absent_d;
    if (insert_take_i || !insert_valid_o) begin
      insert_q <= insert_d;
    end
    if (copy_take_i || !copy_valid_o) begin
      copy_q <= copy_d;
    end
    if (gives_up) begin
      valid_q[absent_q.entry] <= 1'b0;
    end
    if (insert_take_i) begin
      moving_q[insert_q.entry] <= 1'b1;
    end
    if (inserted_i && inserted_stored_i) begin
      slots_q[inserted_entry_i] <= inserted_slot_i;
    end
    if (inserted_i && !inserted_stored_i) begin
      moving_q[inserted_entry_i] <= 1'b0;
    end
    settle_q[1] <= '{valid: inserted_i && inserted_stored_i, entry: inserted_entry_i};
    for (int unsigned i = 2; i <= Settle; i++) settle_q[i] <= settle_q[i-1];
    if (settle_q[Settle].valid) begin
      stored_q[settle_q[Settle].entry] <= 1'b1;
    end
    if (copy_take_i) begin
      valid_q[copy_q.entry]   <= 1'b0;
      present_q[copy_q.entry] <= 1'b0;
    end
    if (release_i) begin
      valid_q[work_entry_i] <= 1'b0;
    end
    if (disown_i) begin
      adopted_q[work_entry_i] <= 1'b0;
      moving_q[work_entry_i]  <= 1'b1;
    end
    if (let_go_i) begin
      moving_q[work_entry_i] <= 1'b0;
    end
    if (next_i || !quiet_valid_o) begin
      adopted_pick_q <= adopted_d;
    end
    if (rst_i) begin
      valid_q   <= '0;
      present_q <= '0;
      adopted_pick_q <= '0;
      absent_q  <= '0;
      insert_q  <= '0;
      copy_q    <= '0;
      for (int unsigned i = 1; i <= Settle; i++) settle_q[i].valid <= 1'b0;
    end
  end

  if (Entries < 2) begin : gen_bad_entries
    $error("Entries is %0d, expected at least 2", Entries);
  end

`ifndef SYNTHESIS
  a_room : assert property (@(posedge clk_i) disable iff (rst_i) allocate_i |-> valid_i && !hit_o && free_o != '0);
  a_work : assert property (@(posedge clk_i) disable iff (rst_i) release_i || disown_i |-> work_quiet_o);
  a_one : assert property (@(posedge clk_i) disable iff (rst_i) $onehot0(hit));
  a_insert : assert property (@(posedge clk_i) disable iff (rst_i) insert_take_i |-> insert_valid_o);
  a_copy : assert property (@(posedge clk_i) disable iff (rst_i) copy_take_i |-> copy_valid_o);
`endif

endmodule
