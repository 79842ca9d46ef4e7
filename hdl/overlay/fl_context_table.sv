// SPDX-License-Identifier: Apache-2.0 OR MIT
// Flow context table: four-choice cuckoo table with a stash, whose entries hold key and context together.
//
//   rows ─► 4 banks, stash (one snapshot) ─► compare ─► select ─► context
//              ▲                                            │ 4 cycles later
//              ├─ write-back ◄──────────────────────────────┘
//              └─ engine (fl_context_engine): moves, expiry, accesses of the host
//
// A new entry takes a place of its key that is free, otherwise a place of the stash. The scheduler keeps packets with
// one key apart, so that a packet finds its entry where it was when it is written back; the engine changes no entry of
// a key in flight.
//
// Latency: 2 cycles from lookup to context; the write-back comes 4 cycles after that.
// Throughput: one lookup and one write-back a cycle.
// Handshake: none.
// Source: [FlowBlaze 4.2]
module fl_context_table #(
    // An entry: {bank, key, context}.
    parameter int unsigned KeyBits = 129,
    parameter int unsigned ContextBits = 264,
    parameter int unsigned Rows = 4096,
    parameter int unsigned HashBits = 12,
    parameter logic [KeyBits-1:0][4*HashBits-1:0] Columns = '0,
    parameter int unsigned Stash = 8,
    parameter int unsigned FlowBits = 16,
    // Cycles from the grant of a packet to the first grant that sees its write-back.
    parameter int unsigned Hold = 7,
    localparam int unsigned RowBits = $clog2(Rows),
    localparam int unsigned StashBits = $clog2(Stash),
    localparam int unsigned CountBits = $clog2(4 * Rows + Stash + 1)
) (
    input  logic                         clk_i,
    input  logic                         rst_i,
    output logic                         ready_o,
    // A lookup; its context comes two cycles later.
    input  logic                         valid_i,
    input  logic [3:0][RowBits-1:0]      rows_i,
    input  logic [KeyBits-1:0]           key_i,
    output logic                         found_o,
    output logic [ContextBits-1:0]       context_o,
    // Eviction candidates: occupancy of each place of the key, and the entry's first register.
    output logic [3:0]                   taken_o,
    output logic [3:0][31:0]             candidates_o,
    // The write-back, 4 cycles after the context: the entry is stored, or removed if there was one. With evict_i it
    // takes the place of a candidate.
    input  logic                         write_i,
    input  logic                         keep_i,
    input  logic                         evict_i,
    input  logic [1:0]                   victim_i,
    input  logic [ContextBits-1:0]       context_i,
    // Packets in flight, and keys that the engine changes in this cycle.
    input  logic [Hold-1:1]               flight_valid_i,
    input  logic [Hold-1:1][FlowBits-1:0] flight_hash_i,
    output logic [1:0]                    lock_valid_o,
    output logic [1:0][FlowBits-1:0]      lock_hash_o,
    // Entries of each bank of the configuration, and free places of the stash.
    output logic [1:0][CountBits-1:0]    stored_o,
    output logic [StashBits:0]           room_o,
    // Sweep, while sweep_i or clear_i is high: removes expired contexts, and all contexts of clear_bank_i with clear_i.
    input  logic [63:0]                  now_i,
    input  logic                         sweep_i,
    input  logic                         clear_i,
    input  logic                         clear_bank_i,
    // Rows that the engine has swept since the reset, modulo 2^32.
    output logic [31:0]                  swept_o,
    // A read of the host: the entry at {way, row}; ways from 4 on are the stash.
    input  logic                         read_valid_i,
    output logic                         read_ready_o,
    input  logic [RowBits+3:0]           read_place_i,
    output logic                         read_valid_o,
    output logic                         read_found_o,
    output logic [KeyBits-1:0]           read_key_o,
    output logic [ContextBits-1:0]       read_context_o,
    // The engine changes no entry in this cycle.
    input  logic                         still_i
);

  typedef struct packed {
    logic                   valid;
    logic [KeyBits-1:0]     key;
    logic [ContextBits-1:0] context_;
  } entry_t;

  // Where an entry is: in a bank, in the stash, or nowhere.
  typedef struct packed {
    logic [3:0]           banks;
    logic [Stash-1:0]     stash;
  } place_t;

  // A packet on its way: cycle 1 is the one after the lookup, 6 the one of its write-back.
  localparam int unsigned Select = 2;
  localparam int unsigned Last = 6;

  logic                        clearing_q;
  logic [RowBits-1:0]          clear_row_q;
  logic [Last:1]               valid_q;
  logic [3:0][RowBits-1:0]     rows_q[1:Last];
  logic [KeyBits-1:0]          key_q[1:Last];
  logic [Stash-1:0]            stash_hit, stash_hit_q[1:Select];
  entry_t [3:0]                read;
  entry_t [3:0]                found_q;
  logic [3:0]                  bank_hit_q, free_q[Select:Last];
  // Places that were not written when they were read, or in the cycle after.
  logic [3:0]                  stable_q;
  place_t                      place_q[Select+1:Last];
  entry_t                      stash_found, stash_found_q;
  entry_t [Stash-1:0]          stash_q;
  logic [1:0][CountBits-1:0]   stored_q;
  // The rows of the banks that were written in the cycle before.
  logic [3:0]                  bank_write, wrote_q;
  logic [3:0][RowBits-1:0]     bank_row, wrote_row_q;

  assign ready_o = !clearing_q;

  // Cycle 0: the banks are read and the stash is compared at the same time.
  always_comb begin
    for (int unsigned at = 0; at < Stash; at++) stash_hit[at] = stash_q[at].valid && stash_q[at].key == key_i;
  end

  // Cycle 1: the words of the banks are compared.
  always_comb begin
    stash_found = '0;
    for (int unsigned at = 0; at < Stash; at++) stash_found |= stash_q[at] & {$bits(entry_t) {stash_hit_q[1][at]}};
  end

  function automatic logic [3:0] written(logic [3:0] write, logic [3:0][RowBits-1:0] at,
                                         logic [3:0][RowBits-1:0] rows);
    for (int unsigned way = 0; way < 4; way++) written[way] = write[way] && at[way] == rows[way];
  endfunction

  // Cycle 2: the entry of the key.
  always_comb begin
    found_o   = valid_q[Select] && (bank_hit_q != '0 || stash_hit_q[Select] != '0);
    context_o = stash_found_q.context_;
    for (int unsigned way = 0; way < 4; way++) begin
      context_o |= found_q[way].context_ & {ContextBits{bank_hit_q[way]}};
      taken_o[way]      = found_q[way].valid && found_q[way].key[KeyBits-1] == key_q[Select][KeyBits-1]
          && stable_q[way] && !(bank_write[way] && bank_row[way] == rows_q[Select][way]);
      candidates_o[way] = found_q[way].context_[31:0];
    end
  end

  // Cycle 6: the write-back.
  logic             stores, removes, has_place, is_free, is_new;
  logic [3:0]       free, first_free, target_banks;
  logic [Stash-1:0] stash_free, first_stash_free, target_stash;
  entry_t           new_entry;
  // The bank of the configuration that an entry belongs to: the highest bit of its key.
  logic             own_bank, engine_bank;

  always_comb begin
    free             = free_q[Last];
    first_free       = free & (~free + 4'd1);
    for (int unsigned at = 0; at < Stash; at++) stash_free[at] = !stash_q[at].valid;
    first_stash_free = stash_free & (~stash_free + Stash'(1));
    has_place        = place_q[Last].banks != '0 || place_q[Last].stash != '0;
    is_free          = free != '0;
    stores           = valid_q[Last] && write_i && keep_i;
    removes          = valid_q[Last] && write_i && !keep_i && has_place;
    is_new           = stores && !has_place && !evict_i;
    target_banks     = evict_i && !has_place ? 4'(1) << victim_i
        : has_place ? place_q[Last].banks : first_free;
    target_stash     = (evict_i && !has_place) ? '0 : has_place ? place_q[Last].stash : is_free ? '0 : first_stash_free;
    own_bank         = key_q[Last][KeyBits-1];
    new_entry        = '{valid: 1'b1, key: key_q[Last], context_: context_i};
  end

  logic                     engine_stash_write, engine_removes;
  logic [Stash-1:0]         engine_stash;
  entry_t                   engine_stash_entry, engine_entry;
  logic [3:0]               engine_write;
  logic [3:0][RowBits-1:0]  engine_row;
  entry_t [3:0]             engine_read;

  fl_context_engine #(
      .KeyBits    (KeyBits),
      .ContextBits(ContextBits),
      .Rows       (Rows),
      .HashBits   (HashBits),
      .Columns    (Columns),
      .Stash      (Stash),
      .FlowBits   (FlowBits),
      .Hold       (Hold)
  ) u_engine (
      .clk_i,
      .rst_i         (rst_i || clearing_q),
      .stash_i       (stash_q),
      .wrote_i       (wrote_q),
      .wrote_row_i   (wrote_row_q),
      .writes_i      (target_banks & {4{stores || removes}}),
      .write_rows_i  (rows_q[Last]),
      .stash_writes_i(target_stash & {Stash{stores || removes}}),
      .flight_valid_i,
      .flight_hash_i,
      .lock_valid_o,
      .lock_hash_o,
      .bank_row_o    (engine_row),
      .bank_write_o  (engine_write),
      .bank_entry_o  (engine_entry),
      .bank_entry_i  (engine_read),
      .stash_write_o (engine_stash_write),
      .stash_o       (engine_stash),
      .stash_entry_o (engine_stash_entry),
      .removes_o     (engine_removes),
      .removed_bank_o(engine_bank),
      .now_i,
      .sweep_i,
      .clear_i,
      .clear_bank_i,
      .swept_o,
      .read_valid_i,
      .read_ready_o,
      .read_place_i,
      .read_valid_o,
      .read_found_o,
      .read_key_o,
      .read_context_o,
      .still_i
  );

  // The engine writes no entry of the stash in a cycle in which a packet does.
  logic             packet_writes_stash;
  logic [Stash-1:0] stash_write;
  entry_t           stash_entry;

  assign packet_writes_stash = (stores || removes) && target_stash != '0;
  assign stash_write         = packet_writes_stash ? target_stash : engine_stash & {Stash{engine_stash_write}};
  assign stash_entry         = packet_writes_stash ? (stores ? new_entry : '0) : engine_stash_entry;

  for (genvar way = 0; way < 4; way++) begin : gen_bank
    logic   acts;
    entry_t entry;

    assign acts            = (stores || removes) && target_banks[way];
    assign bank_write[way] = clearing_q || acts || engine_write[way];
    assign bank_row[way]   = clearing_q ? clear_row_q : acts ? rows_q[Last][way] : engine_row[way];
    assign entry           = clearing_q ? '0 : acts ? (stores ? new_entry : '0) : engine_entry;

    fl_ram_dual #(
        .Width ($bits(entry_t)),
        .Depth (Rows),
        .EarlyA(1'b1)
    ) u_ram (
        .clk_i,
        .a_address_i(rows_i[way]),
        .a_data_o   (read[way]),
        .b_address_i(bank_row[way]),
        .b_write_i  (bank_write[way]),
        .b_data_i   (entry),
        .b_data_o   (engine_read[way])
    );
  end

  assign stored_o = stored_q;
  always_comb begin
    room_o = '0;
    for (int unsigned at = 0; at < Stash; at++) room_o += (StashBits + 1)'(stash_free[at]);
  end

  always_ff @(posedge clk_i) begin
    valid_q[1]     <= valid_i;
    rows_q[1]      <= rows_i;
    key_q[1]       <= key_i;
    stash_hit_q[1] <= stash_hit & {Stash{valid_i}};
    for (int unsigned cycle = 2; cycle <= Last; cycle++) begin
      valid_q[cycle] <= valid_q[cycle-1];
      rows_q[cycle]  <= rows_q[cycle-1];
      key_q[cycle]   <= key_q[cycle-1];
    end
    stash_hit_q[Select] <= stash_hit_q[1];
    stash_found_q       <= stash_found;
    found_q             <= read;
    for (int unsigned way = 0; way < 4; way++) begin
      bank_hit_q[way] <= read[way].valid && read[way].key == key_q[1];
      stable_q[way] <= !(wrote_q[way] && wrote_row_q[way] == rows_q[1][way])
          && !(bank_write[way] && bank_row[way] == rows_q[1][way]);
      // A place counts as occupied if it was written when it was read, or later.
      free_q[Select][way] <= !read[way].valid && !(wrote_q[way] && wrote_row_q[way] == rows_q[1][way])
          && !(bank_write[way] && bank_row[way] == rows_q[1][way]);
    end
    for (int unsigned cycle = Select + 1; cycle <= Last; cycle++) begin
      free_q[cycle] <= free_q[cycle-1] & ~written(bank_write, bank_row, rows_q[cycle-1]);
    end
    place_q[Select+1] <= '{banks: bank_hit_q, stash: stash_hit_q[Select]};
    for (int unsigned cycle = Select + 2; cycle <= Last; cycle++) place_q[cycle] <= place_q[cycle-1];

    wrote_q     <= bank_write;
    wrote_row_q <= bank_row;
    for (int unsigned at = 0; at < Stash; at++) begin
      if (stash_write[at]) stash_q[at] <= stash_entry;
    end
    for (int unsigned bank = 0; bank < 2; bank++) begin
      stored_q[bank] <= stored_q[bank] + CountBits'(is_new && own_bank == 1'(bank))
          - CountBits'(removes && own_bank == 1'(bank)) - CountBits'(engine_removes && engine_bank == 1'(bank));
    end

    if (clearing_q) begin
      clear_row_q <= clear_row_q + 1'b1;
      clearing_q  <= clear_row_q != RowBits'(Rows - 1);
    end
    if (rst_i) begin
      clearing_q  <= 1'b1;
      clear_row_q <= '0;
      stored_q    <= '0;
      valid_q     <= '0;
      for (int unsigned at = 0; at < Stash; at++) stash_q[at].valid <= 1'b0;
    end
  end

  logic unused;
  assign unused = ^{stash_found_q.valid, stash_found_q.key};

`ifndef SYNTHESIS
  logic [Stash+3:0] hits;
  assign hits = {bank_hit_q, stash_hit_q[Select]} & {(Stash + 4) {valid_q[Select]}};
  a_room : assert property (@(posedge clk_i) disable iff (rst_i) is_new |-> is_free || stash_free != '0);
  a_one : assert property (@(posedge clk_i) disable iff (rst_i) $onehot0(hits));
`endif

endmodule
