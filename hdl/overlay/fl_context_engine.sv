// SPDX-License-Identifier: Apache-2.0 OR MIT
// Engine of the flow context table: moves entries from the stash to the banks, removes expired ones, reads entries for
// the host.
//
//   stash entry ─► rows ─► read ─┬─ a free place: it takes it
//                                └─ none: it replaces another entry, which is moved to the stash
//   sweep: row after row ─► read ─► expired entries are removed
//
// It changes an entry only while no packet of its key is in flight, and none is granted in that cycle (lock_hash_o). A
// word that was written since it was read is read again.
//
// Latency: a placement takes 6 cycles, an exchange 10, a swept row 5 and 4 more for each expired entry.
// Throughput: one of them at a time, the stash first, every eighth turn the sweep.
// Handshake: none; write-backs (writes_i) have priority on port b of the banks.
// Source: [FlowBlaze 4.2]
module fl_context_engine #(
    parameter int unsigned KeyBits = 129,
    parameter int unsigned ContextBits = 264,
    parameter int unsigned Rows = 4096,
    parameter int unsigned HashBits = 12,
    parameter logic [KeyBits-1:0][4*HashBits-1:0] Columns = '0,
    parameter int unsigned Stash = 8,
    parameter int unsigned FlowBits = 16,
    parameter int unsigned Hold = 7,
    localparam int unsigned RowBits = $clog2(Rows),
    localparam int unsigned StashBits = $clog2(Stash),
    localparam int unsigned EntryBits = 1 + KeyBits + ContextBits
) (
    input  logic                            clk_i,
    input  logic                            rst_i,
    input  logic [Stash-1:0][EntryBits-1:0] stash_i,
    // Banks, rows and stash entries that a write-back writes in this cycle.
    input  logic [3:0]                      writes_i,
    input  logic [3:0][RowBits-1:0]         write_rows_i,
    input  logic [Stash-1:0]                stash_writes_i,
    // The banks and rows that were written in the cycle before.
    input  logic [3:0]                      wrote_i,
    input  logic [3:0][RowBits-1:0]         wrote_row_i,
    input  logic [Hold-1:1]                 flight_valid_i,
    input  logic [Hold-1:1][FlowBits-1:0]   flight_hash_i,
    output logic [1:0]                      lock_valid_o,
    output logic [1:0][FlowBits-1:0]        lock_hash_o,
    // Port b of the banks; what is read comes two cycles later.
    output logic [3:0][RowBits-1:0]         bank_row_o,
    output logic [3:0]                      bank_write_o,
    output logic [EntryBits-1:0]            bank_entry_o,
    input  logic [3:0][EntryBits-1:0]       bank_entry_i,
    output logic                            stash_write_o,
    output logic [Stash-1:0]                stash_o,
    output logic [EntryBits-1:0]            stash_entry_o,
    // An entry is removed.
    output logic                            removes_o,
    output logic                            removed_bank_o,
    input  logic [63:0]                     now_i,
    input  logic                            sweep_i,
    input  logic                            clear_i,
    input  logic                            clear_bank_i,
    output logic [31:0]                     swept_o,
    input  logic                            read_valid_i,
    output logic                            read_ready_o,
    input  logic [RowBits+3:0]              read_place_i,
    output logic                            read_valid_o,
    output logic                            read_found_o,
    output logic [KeyBits-1:0]              read_key_o,
    output logic [ContextBits-1:0]          read_context_o,
    input  logic                            still_i
);

  typedef struct packed {
    logic                   valid;
    logic [KeyBits-1:0]     key;
    logic [ContextBits-1:0] context_;
  } entry_t;

  typedef enum logic [2:0] {
    Idle,
    Hash,   // of the entry that is served
    Read,   // the banks, each one when no write-back uses it
    Decide,
    HashOther,
    Change
  } state_e;

  typedef enum logic [1:0] {
    Place,
    Sweep,
    Show
  } job_e;

  localparam logic [StashBits-1:0] LastStash = StashBits'(Stash - 1);
  // A context begins with its deadlines.
  localparam int unsigned HardAt = ContextBits - 64;
  localparam int unsigned IdleAt = ContextBits - 128;

  state_e                  state_q;
  job_e                    job_q;
  logic [2:0]              phase_q, turns_q;
  logic [StashBits-1:0]    served_q, next_q;
  logic [1:0]              target_q, replaced_way;
  logic [15:0]             random_q;
  logic [RowBits:0]        sweep_q;
  logic [3:0]              ways_q;
  logic [31:0]             swept_q;
  logic [KeyBits-1:0]      hash_key_q;
  logic [3:0][RowBits-1:0] rows, rows_q;
  entry_t [3:0]            read_q;
  entry_t                  other_q;
  logic                    exchanges_q, is_stale_q;
  // Banks that are to be read, and those that were read one and two cycles ago.
  logic [3:0]              pending_q, issue;
  logic [3:0]              issued_q[1:2];
  logic [FlowBits-1:0]     flow, flow_q;

  fl_hash #(
      .KeyBits (KeyBits),
      .HashBits(HashBits),
      .Rows    (Rows),
      .Columns (Columns)
  ) u_hash (
      .clk_i,
      .key_i (hash_key_q),
      .rows_o(rows)
  );
  assign flow = {rows[1][FlowBits/2-1:0], rows[0][FlowBits/2-1:0]};

  function automatic logic expired(entry_t entry, logic [63:0] now, logic clear, logic clear_bank);
    logic [63:0] idle_deadline = entry.context_[IdleAt+:64];
    logic [63:0] hard_deadline = entry.context_[HardAt+:64];
    return entry.valid && ((idle_deadline <= now && idle_deadline != '1)
        || (hard_deadline <= now && hard_deadline != '1)
        || (clear && entry.key[KeyBits-1] == clear_bank));
  endfunction

  function automatic logic in_flight(logic [FlowBits-1:0] of, logic [Hold-1:1] valid,
                                     logic [Hold-1:1][FlowBits-1:0] hashes);
    in_flight = 1'b0;
    for (int unsigned age = 1; age < Hold; age++) in_flight |= valid[age] && hashes[age] == of;
  endfunction

  // The entry that is replaced where no place is free. With a fixed order, exchanges could go in a circle.
  assign replaced_way = {random_q[8], random_q[0]};

  function automatic logic [1:0] first(logic [3:0] ways);
    for (int unsigned way = 0; way < 4; way++) begin
      if (ways[way]) return 2'(way);
    end
    return '0;
  endfunction

  // The entry of the stash that is served next, round robin.
  logic [StashBits-1:0] selected;
  logic                 has_selected;
  entry_t [Stash-1:0]   stash;
  entry_t               served;
  assign stash  = stash_i;
  assign served = stash[served_q];
  always_comb begin
    selected     = '0;
    has_selected = 1'b0;
    for (int unsigned step = Stash; step > 0; step--) begin
      automatic logic [StashBits-1:0] at = StashBits'((32'(next_q) + step - 1) % Stash);
      if (stash[at].valid) begin
        selected     = at;
        has_selected = 1'b1;
      end
    end
  end

  // What a step has read is stale if a word of the banks was written in the cycle of its read or later, or if a packet
  // has written the entry of the stash since the step began.
  logic [3:0] free;
  logic       is_stale, sweeps_stash, can_change, commits, is_busy, changes, uses_stash;
  logic [1:0] changed_way;
  entry_t     swept;
  always_comb begin
    sweeps_stash = sweep_q[RowBits];
    uses_stash   = job_q == Sweep && sweeps_stash;
    changed_way  = (job_q == Place) ? target_q : first(ways_q);
    for (int unsigned way = 0; way < 4; way++) free[way] = !read_q[way].valid;
    swept    = sweeps_stash ? stash[sweep_q[StashBits-1:0]] : read_q[first(ways_q)];
    is_stale = is_stale_q;
    if (!uses_stash && !(state_q inside {Idle, Hash})) begin
      for (int unsigned way = 0; way < 4; way++) begin
        is_stale |= writes_i[way] && write_rows_i[way] == rows_q[way];
        is_stale |= wrote_i[way] && wrote_row_i[way] == rows_q[way];
      end
    end
    if (job_q == Place) is_stale |= stash_writes_i[served_q];
    if (uses_stash) is_stale |= stash_writes_i[sweep_q[StashBits-1:0]];
    is_busy    = in_flight(flow_q, flight_valid_i, flight_hash_i)
        || (exchanges_q && in_flight(flow, flight_valid_i, flight_hash_i));
    // Entries of the stash have one bus for writes, and packets come first.
    can_change = state_q == Change && !still_i && !is_stale && !is_busy && (uses_stash || !writes_i[changed_way])
        && stash_writes_i == '0;
    issue      = (state_q == Read) ? pending_q & ~writes_i : '0;
    changes    = (job_q == Place) ? served.valid : swept.valid;
    commits    = can_change && changes;
  end

  assign lock_valid_o = {commits && exchanges_q, commits};
  assign lock_hash_o  = {flow, flow_q};
  assign removes_o    = commits && job_q == Sweep;
  assign removed_bank_o = swept.key[KeyBits-1];

  always_comb begin
    bank_row_o    = rows_q;
    bank_write_o  = '0;
    bank_entry_o  = served;
    stash_write_o = 1'b0;
    stash_o       = '0;
    stash_entry_o = '0;
    if (commits && job_q == Place) begin
      bank_write_o[target_q]  = 1'b1;
      stash_write_o           = 1'b1;
      stash_o[served_q]       = 1'b1;
      stash_entry_o           = exchanges_q ? other_q : '0;
    end
    if (commits && job_q == Sweep) begin
      bank_entry_o = '0;
      if (sweeps_stash) begin
        stash_write_o                      = 1'b1;
        stash_o[sweep_q[StashBits-1:0]]    = 1'b1;
      end else begin
        bank_write_o[first(ways_q)] = 1'b1;
      end
    end
  end

  // The entry returned to the host.
  logic   shows_stash;
  entry_t shown;
  assign shows_stash    = read_place_i[RowBits+:4] >= 4'd4;
  assign shown          = shows_stash ? stash[StashBits'(read_place_i[RowBits+:4] - 4'd4)]
      : read_q[read_place_i[RowBits+:2]];
  assign read_valid_o   = state_q == Decide && job_q == Show;
  assign read_ready_o   = read_valid_o;
  assign read_found_o   = shown.valid;
  assign read_key_o     = shown.key;
  assign read_context_o = shown.context_;
  assign swept_o        = swept_q;

  // The expired entries among those that were read.
  logic [3:0] expired_ways;
  always_comb begin
    for (int unsigned way = 0; way < 4; way++) expired_ways[way] = expired(read_q[way], now_i, clear_i, clear_bank_i);
  end

  always_ff @(posedge clk_i) begin
    phase_q    <= phase_q + 1'b1;
    is_stale_q <= is_stale;
    unique case (state_q)
      Idle: begin
        phase_q     <= '0;
        exchanges_q <= 1'b0;
        is_stale_q  <= 1'b0;
        turns_q     <= turns_q + 1'b1;
        pending_q   <= '1;
        issued_q[1] <= '0;
        issued_q[2] <= '0;
        if (read_valid_i && turns_q[0]) begin
          job_q   <= Show;
          rows_q  <= {4{read_place_i[RowBits-1:0]}};
          state_q <= Read;
        end else if (has_selected && turns_q != '0) begin
          job_q      <= Place;
          served_q   <= selected;
          is_stale_q <= stash_writes_i[selected];
          hash_key_q <= stash[selected].key;
          state_q    <= Hash;
        end else if (sweep_i || clear_i) begin
          job_q  <= Sweep;
          rows_q <= {4{sweep_q[RowBits-1:0]}};
          if (sweep_q[RowBits]) begin
            ways_q  <= 4'd1;
            state_q <= Decide;
          end else begin
            state_q <= Read;
          end
        end
      end
      Hash: begin
        if (phase_q == 3'd0) begin
          state_q <= Hash;
        end else begin
          phase_q    <= '0;
          rows_q     <= rows;
          flow_q     <= flow;
          state_q    <= Read;
        end
      end
      Read: begin
        phase_q     <= '0;
        pending_q   <= pending_q & ~issue;
        issued_q[1] <= issue;
        issued_q[2] <= issued_q[1];
        ways_q      <= '1;
        for (int unsigned way = 0; way < 4; way++) begin
          if (issued_q[2][way]) read_q[way] <= bank_entry_i[way];
        end
        if (pending_q == '0 && issued_q[1] == '0) state_q <= Decide;
      end
      Decide: begin
        phase_q <= '0;
        unique case (job_q)
          Show: state_q <= Idle;
          Place: begin
            if (is_stale || !served.valid) begin
              state_q <= Idle;
            end else if (free != '0) begin
              target_q <= first(free);
              state_q  <= Change;
            end else begin
              target_q    <= replaced_way;
              other_q     <= read_q[replaced_way];
              hash_key_q  <= read_q[replaced_way].key;
              exchanges_q <= 1'b1;
              state_q     <= HashOther;
            end
          end
          default: begin  // Sweep
            if (sweeps_stash ? expired(swept, now_i, clear_i, clear_bank_i) : (expired_ways & ways_q) != '0) begin
              // Where there are several, the first one.
              if (!sweeps_stash) begin
                ways_q     <= 4'd1 << first(expired_ways & ways_q);
                hash_key_q <= read_q[first(expired_ways & ways_q)].key;
              end else begin
                hash_key_q <= swept.key;
              end
              state_q <= HashOther;
            end else begin
              sweep_q <= (sweep_q == {1'b1, RowBits'(Stash - 1)}) ? '0
                  : (sweep_q == {1'b0, RowBits'(Rows - 1)}) ? {1'b1, RowBits'(0)} : sweep_q + 1'b1;
              swept_q <= swept_q + 1'b1;
              state_q <= Idle;
            end
          end
        endcase
      end
      HashOther: begin
        if (phase_q == 3'd1) begin
          if (job_q == Sweep) flow_q <= flow;
          phase_q <= '0;
          state_q <= Change;
        end
      end
      default: begin  // Change
        // After a change or without one, the next job; a row with further expired entries is read again.
        if (commits || is_stale || !changes || phase_q == 3'd7) begin
          state_q <= Idle;
          if (job_q == Place) begin
            next_q <= (served_q == LastStash) ? '0 : served_q + 1'b1;
            if (exchanges_q) random_q <= {1'b0, random_q[15:1]} ^ (random_q[0] ? 16'hb400 : 16'h0);
          end
        end
      end
    endcase
    if (rst_i) begin
      state_q  <= Idle;
      turns_q  <= '0;
      next_q   <= '0;
      random_q <= 16'd1;
      sweep_q  <= '0;
      swept_q  <= '0;
    end
  end

  logic unused;
  assign unused = other_q.valid;

endmodule
