// SPDX-License-Identifier: Apache-2.0 OR MIT
// Pending keys of a hash map: associative memory for the keys that packets in flight looked up and did not find, and for
// those on their way into or out of the cuckoo table.
//
// An entry has a row of its own for the value, or, while it is `adopted`, the slot of the cuckoo table. It is quiet if no
// packet has found it for Quiet cycles: then no packet in flight refers to it.
//
// Latency: 0 cycles from key to entry; an allocation is seen by the next cycle's key.
// Throughput: one key a cycle.
// Handshake: none; an allocation needs free_o > 0.
module fl_pending #(
    parameter int unsigned KeyBits = 32,
    parameter int unsigned Entries = 16,
    parameter int unsigned SlotBits = 10,
    // Cycles after which no packet that found an entry is in flight.
    parameter int unsigned Quiet = 8,
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
    // The next quiet entry, in turn.
    input  logic                 next_i,
    output logic                 quiet_valid_o,
    output logic [EntryBits-1:0] quiet_entry_o,
    // An entry under work.
    input  logic [EntryBits-1:0] work_entry_i,
    output logic [KeyBits-1:0]   work_key_o,
    output logic                 work_adopted_o,
    output logic [SlotBits-1:0]  work_slot_o,
    // It is quiet, and the key of this cycle is another one.
    output logic                 work_quiet_o,
    // It is not found any more; it is free again; its row is used in place of the slot.
    input  logic                 remove_i,
    input  logic                 release_i,
    input  logic                 disown_i
);

  localparam int unsigned TimerBits = $clog2(Quiet + 1);

  logic [KeyBits-1:0]   keys_q[Entries];
  logic [SlotBits-1:0]  slots_q[Entries];
  logic [TimerBits-1:0] timers_q[Entries];
  logic [Entries-1:0]   used_q, valid_q, adopted_q, hit, quiet;
  logic [EntryBits-1:0] turn_q;

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
      if (!used_q[i-1]) begin
        free_entry_o = EntryBits'(i - 1);
      end
      free_o += CountBits'(!used_q[i-1]);
    end
  end

  // The entry of the turn is offered if it is quiet; otherwise the turn passes.
  assign quiet_valid_o  = quiet[turn_q];
  assign quiet_entry_o  = turn_q;
  assign work_key_o     = keys_q[work_entry_i];
  assign work_adopted_o = adopted_q[work_entry_i];
  assign work_slot_o    = slots_q[work_entry_i];
  assign work_quiet_o   = quiet[work_entry_i];

  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < Entries; i++) begin
      if (hit[i]) begin
        timers_q[i] <= TimerBits'(Quiet);
      end else if (timers_q[i] != '0) begin
        timers_q[i] <= timers_q[i] - 1'b1;
      end
    end
    if (allocate_i) begin
      used_q[free_entry_o]    <= 1'b1;
      valid_q[free_entry_o]   <= 1'b1;
      keys_q[free_entry_o]    <= key_i;
      adopted_q[free_entry_o] <= adopt_i;
      slots_q[free_entry_o]   <= adopt_slot_i;
      timers_q[free_entry_o]  <= TimerBits'(Quiet);
    end
    if (remove_i) begin
      valid_q[work_entry_i] <= 1'b0;
    end
    if (release_i) begin
      used_q[work_entry_i] <= 1'b0;
    end
    if (disown_i) begin
      adopted_q[work_entry_i] <= 1'b0;
    end
    if (next_i || !quiet_valid_o) begin
      turn_q <= (turn_q == EntryBits'(Entries - 1)) ? '0 : turn_q + 1'b1;
    end
    if (rst_i) begin
      used_q  <= '0;
      valid_q <= '0;
      turn_q  <= '0;
    end
  end

  if (Entries < 2) begin : gen_bad_entries
    $error("Entries is %0d, expected at least 2", Entries);
  end

`ifndef SYNTHESIS
  a_room : assert property (@(posedge clk_i) disable iff (rst_i) allocate_i |-> valid_i && !hit_o && free_o != '0);
  a_work : assert property (@(posedge clk_i) disable iff (rst_i) remove_i || disown_i |-> work_quiet_o);
  a_one : assert property (@(posedge clk_i) disable iff (rst_i) $onehot0(hit));
`endif

endmodule
