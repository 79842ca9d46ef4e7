// SPDX-License-Identifier: Apache-2.0 OR MIT
// Four-choice cuckoo table with a stash: keys and the slots of their values.
//
//   operation -> hash -> 4 banks, stash (one snapshot) -> compare -> effect, result
//                          ^ engine: moves entries from the stash to the banks
//
// An insertion that finds one of the four places of its key free writes there, another one to the stash. A place is not
// free that was written since the snapshot, or that the engine's chain of moves ends in; in a long search, none is.
//
// Latency: 3 cycles from operation to result.
// Throughput: one operation a cycle.
// Handshake: operations are accepted when ready_o is high, which it is from the end of the clearing after a reset on.
// An operation has its effect in the cycle of its result. Insertions and deletions of one key keep a distance of 3
// cycles. A lookup less than 3 cycles after one of them does not see its effect. An insertion that is refused is
// repeated later.
// Source: crates/state/src/cuckoo.rs, its twin in software. [FlowBlaze 4.2]
module fl_cuckoo #(
    parameter int unsigned KeyBits = 32,
    parameter int unsigned HashBits = 10,
    parameter int unsigned Rows = 1024,
    // The bits of {right, left} that each bit of the key inverts (fl_hash).
    parameter logic [KeyBits-1:0][4*HashBits-1:0] Columns = '0,
    // Entries at most, those in the stash included.
    parameter int unsigned Entries = 3891,
    parameter int unsigned Stash = 8,
    parameter int unsigned SearchNodes = 256,
    // Cycles for which a freed slot rests.
    parameter int unsigned RestCycles = 8,
    localparam int unsigned Slots = Entries + RestCycles,
    localparam int unsigned SlotBits = $clog2(Slots),
    localparam int unsigned StoredBits = $clog2(Entries + 1),
    localparam int unsigned StashedBits = $clog2(Stash + 1)
) (
    input  logic                   clk_i,
    input  logic                   rst_i,
    output logic                   ready_o,
    input  logic                   valid_i,
    // 0 lookup, 1 insert, 2 delete.
    input  logic [1:0]             operation_i,
    input  logic [KeyBits-1:0]     key_i,
    output logic                   valid_o,
    // The key was found; an insertion stored it.
    output logic                   hit_o,
    output logic                   stored_o,
    // An insertion was refused: the table is full; or all places and the stash are taken, or all free slots rest.
    output logic                   full_o,
    output logic                   busy_o,
    output logic [SlotBits-1:0]    slot_o,
    output logic [StoredBits-1:0]  stored_count_o,
    output logic [StashedBits-1:0] stash_count_o,
    // The engine's step (fl_cuckoo_engine), to observe.
    output logic                   step_valid_o,
    output logic [2:0]             step_o
);

  localparam int unsigned RowBits = (Rows > 1) ? $clog2(Rows) : 1;
  localparam int unsigned StashBits = (Stash > 1) ? $clog2(Stash) : 1;
  localparam int unsigned Last = 3;  // The cycle of an operation's effect.

  typedef enum logic [1:0] {
    Lookup = 2'd0,
    Insert = 2'd1,
    Delete = 2'd2
  } operation_e;

  typedef struct packed {
    logic                valid;
    logic [SlotBits-1:0] slot;
    logic [KeyBits-1:0]  key;
  } entry_t;

  typedef struct packed {
    logic               valid;
    logic [1:0]         operation;
    logic [KeyBits-1:0] key;
  } request_t;

  // Clearing of the banks after a reset.
  logic               clearing_q;
  logic [RowBits-1:0] clear_row_q;

  // The request n cycles after it was accepted.
  request_t                request_q[1:Last];
  logic [3:0][RowBits-1:0] rows;
  logic [3:0][RowBits-1:0] rows_q[2:Last];
  logic [Stash-1:0]        stash_hit, stash_hit_q[2:Last];
  logic [SlotBits-1:0]     stash_slot, stash_slot_q[2:Last];
  entry_t [3:0]            found;
  logic [3:0]              bank_hit_q, bank_free_q;
  logic [3:0][SlotBits-1:0] bank_slot_q;
  entry_t [Stash-1:0]      stash_q;
  // The rows of the banks that were written in the cycle before.
  logic [3:0]              bank_write, wrote_q;
  logic [3:0][RowBits-1:0] bank_row, wrote_row_q;

  assign ready_o = !clearing_q;

  fl_hash #(
      .KeyBits (KeyBits),
      .HashBits(HashBits),
      .Rows    (Rows),
      .Columns (Columns)
  ) u_hash (
      .clk_i,
      .key_i,
      .rows_o(rows)
  );

  // Cycle 1: the banks are read and the stash is compared at the same time: an entry on its way is in one of them.
  always_comb begin
    stash_slot = '0;
    for (int unsigned entry = 0; entry < Stash; entry++) begin
      stash_hit[entry] = stash_q[entry].valid && stash_q[entry].key == request_q[1].key;
      stash_slot |= stash_q[entry].slot & {SlotBits{stash_hit[entry]}};
    end
  end

  // Cycle 3: the effect.
  logic                 is_hit, inserts, deletes, is_full, has_room;
  logic                 slot_valid;
  logic [SlotBits-1:0]  slot, hit_slot;
  logic [StashBits-1:0] room;
  logic [Stash-1:0]     stash_deleted;
  logic [StoredBits-1:0] stored_q;
  // The free places of the key, and the first one of them.
  logic [3:0]           free, place;
  logic                 is_open, target_valid;
  logic [1:0]           target_way;
  logic [RowBits-1:0]   target_row;

  always_comb begin
    hit_slot = stash_slot_q[Last];
    for (int unsigned way = 0; way < 4; way++) begin
      if (bank_hit_q[way]) hit_slot = bank_slot_q[way];
    end
    for (int unsigned way = 0; way < 4; way++) begin
      free[way] = is_open && bank_free_q[way] && !(wrote_q[way] && wrote_row_q[way] == rows_q[Last][way])
          && !(target_valid && target_way == 2'(way) && target_row == rows_q[Last][way]);
    end
    place    = free & (~free + 4'd1);
    room     = '0;
    has_room = 1'b0;
    for (int unsigned entry = Stash; entry > 0; entry--) begin
      if (!stash_q[entry-1].valid) begin
        room     = StashBits'(entry - 1);
        has_room = 1'b1;
      end
    end
  end

  logic is_insert, is_delete;
  assign is_hit        = (bank_hit_q != '0) || (stash_hit_q[Last] != '0);
  assign is_insert     = request_q[Last].valid && request_q[Last].operation == Insert;
  assign is_delete     = request_q[Last].valid && request_q[Last].operation == Delete;
  assign is_full       = stored_q == StoredBits'(Entries);
  assign inserts       = is_insert && !is_hit && !is_full && (free != '0 || has_room) && slot_valid;
  assign deletes       = is_delete && is_hit;
  assign stash_deleted = stash_hit_q[Last] & {Stash{deletes}};

  fl_slots #(
      .Slots     (Slots),
      .RestCycles(RestCycles)
  ) u_slots (
      .clk_i,
      .rst_i,
      .slot_valid_o  (slot_valid),
      .slot_ready_i  (inserts),
      .slot_o        (slot),
      .release_i     (deletes),
      .release_slot_i(hit_slot)
  );

  logic                     stash_write;
  logic [StashBits-1:0]     stash_index;
  entry_t                   stash_entry, bank_entry, new_entry;
  logic [3:0][RowBits-1:0]  engine_row;
  logic [3:0]               engine_write;
  entry_t [3:0]             engine_read;
  logic                     delete_pending;

  assign new_entry = '{valid: 1'b1, slot: slot, key: request_q[Last].key};

  always_comb begin
    delete_pending = 1'b0;
    for (int unsigned cycle = 1; cycle <= Last; cycle++) begin
      delete_pending |= request_q[cycle].valid && request_q[cycle].operation == Delete;
    end
  end

  fl_cuckoo_engine #(
      .KeyBits    (KeyBits),
      .HashBits   (HashBits),
      .Rows       (Rows),
      .Columns    (Columns),
      .Stash      (Stash),
      .SearchNodes(SearchNodes),
      .SlotBits   (SlotBits),
      .RestCycles (RestCycles)
  ) u_engine (
      .clk_i,
      .rst_i           (rst_i || clearing_q),
      .stash_i         (stash_q),
      .stash_deleted_i (stash_deleted),
      .op_acts_i       (is_insert || is_delete),
      .delete_pending_i(delete_pending),
      .deletes_i       (deletes),
      .stash_write_o   (stash_write),
      .stash_index_o   (stash_index),
      .stash_entry_o   (stash_entry),
      .wrote_i         (wrote_q),
      .wrote_row_i     (wrote_row_q),
      .inserts_i       (inserts),
      .open_o          (is_open),
      .target_valid_o  (target_valid),
      .target_way_o    (target_way),
      .target_row_o    (target_row),
      .bank_row_o      (engine_row),
      .bank_write_o    (engine_write),
      .bank_entry_o    (bank_entry),
      .bank_entry_i    (engine_read),
      .step_valid_o,
      .step_o
  );

  for (genvar way = 0; way < 4; way++) begin : gen_bank
    logic   is_taken, is_cleared;
    entry_t entry;

    assign is_taken        = inserts && place[way];
    assign is_cleared      = clearing_q || (deletes && bank_hit_q[way]);
    assign bank_write[way] = is_taken || is_cleared || engine_write[way];
    assign bank_row[way]   = clearing_q ? clear_row_q : is_insert || is_delete ? rows_q[Last][way] : engine_row[way];
    assign entry           = is_insert ? new_entry : is_cleared ? '0 : bank_entry;

    fl_ram_dual #(
        .Width ($bits(entry_t)),
        .Depth (Rows),
        .EarlyA(1'b1)
    ) u_ram (
        .clk_i,
        .a_address_i(rows[way]),
        .a_data_o   (found[way]),
        .b_address_i(bank_row[way]),
        .b_write_i  (bank_write[way]),
        .b_data_i   (entry),
        .b_data_o   (engine_read[way])
    );
  end

  assign valid_o        = request_q[Last].valid;
  assign hit_o          = is_hit;
  assign stored_o       = inserts;
  assign full_o         = is_insert && !is_hit && is_full;
  assign busy_o         = is_insert && !is_hit && !is_full && !inserts;
  assign slot_o         = is_hit ? hit_slot : slot;
  assign stored_count_o = stored_q;

  always_comb begin
    stash_count_o = '0;
    for (int unsigned entry = 0; entry < Stash; entry++) stash_count_o += StashedBits'(stash_q[entry].valid);
  end

  always_ff @(posedge clk_i) begin
    request_q[1] <= '{valid: valid_i && ready_o, operation: operation_i, key: key_i};
    for (int unsigned cycle = 2; cycle <= Last; cycle++) request_q[cycle] <= request_q[cycle-1];
    rows_q[2]       <= rows;
    stash_hit_q[2]  <= stash_hit;
    stash_slot_q[2] <= stash_slot;
    for (int unsigned cycle = 3; cycle <= Last; cycle++) begin
      rows_q[cycle]       <= rows_q[cycle-1];
      stash_hit_q[cycle]  <= stash_hit_q[cycle-1];
      stash_slot_q[cycle] <= stash_slot_q[cycle-1];
    end
    for (int unsigned way = 0; way < 4; way++) begin
      bank_hit_q[way]  <= found[way].valid && found[way].key == request_q[2].key;
      bank_free_q[way] <= !found[way].valid && !(wrote_q[way] && wrote_row_q[way] == rows_q[2][way]);
      bank_slot_q[way] <= found[way].slot;
    end

    for (int unsigned entry = 0; entry < Stash; entry++) begin
      if (stash_deleted[entry]) stash_q[entry].valid <= 1'b0;
    end
    if (stash_write) stash_q[stash_index] <= stash_entry;
    if (inserts && free == '0) stash_q[room] <= new_entry;
    stored_q    <= stored_q + StoredBits'(inserts) - StoredBits'(deletes);
    wrote_q     <= bank_write;
    wrote_row_q <= bank_row;

    if (clearing_q) begin
      clear_row_q <= clear_row_q + 1'b1;
      clearing_q  <= clear_row_q != RowBits'(Rows - 1);
    end
    if (rst_i) begin
      clearing_q  <= 1'b1;
      clear_row_q <= '0;
      stored_q    <= '0;
      for (int unsigned cycle = 1; cycle <= Last; cycle++) request_q[cycle].valid <= 1'b0;
      for (int unsigned entry = 0; entry < Stash; entry++) stash_q[entry].valid <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  // No insertion or deletion reads a key whose insertion or deletion has not had its effect. A lookup that does is
  // before it in the serial order.
  logic [Last:2] early;
  always_comb begin
    for (int unsigned cycle = 2; cycle <= Last; cycle++) begin
      early[cycle] = request_q[1].valid && request_q[1].operation != Lookup && request_q[cycle].valid
          && request_q[cycle].operation != Lookup && request_q[1].key == request_q[cycle].key;
    end
  end
  a_apart : assert property (@(posedge clk_i) disable iff (rst_i) early == '0);
`endif

  if (Entries == 0 || Entries > 4 * Rows + Stash) begin : gen_bad_entries
    $error("Entries is %0d, expected 1 to %0d", Entries, 4 * Rows + Stash);
  end
  if (SearchNodes < 4) begin : gen_bad_nodes
    $error("SearchNodes is %0d, expected at least 4", SearchNodes);
  end
  if (Stash == 0) begin : gen_bad_stash
    $error("Stash is 0, expected at least 1");
  end

endmodule
