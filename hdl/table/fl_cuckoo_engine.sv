// SPDX-License-Identifier: Apache-2.0 OR MIT
// Engine of the cuckoo table: places the entries of the stash in the banks, one step at a time.
//
// Latency: a step takes 1 cycle (select, place, give up), 4 (move), 5 (root, exchange) or 8 (node), and one more after
// a root or node that found no free place.
// Throughput: one step at a time.
// Handshake: none. A step has its effect in the cycle of step_valid_o. Insertions and deletions (op_acts_i) have port b
// of the banks in the cycle of their effect: no step has its effect in it, and a word read in it is read again. A step
// waits too while a place that it has read is written (wrote_i), while a deletion is between its lookup and its effect
// (delete_pending_i), and a deletion makes the step that it meets start again. No insertion takes the free place that a
// chain of moves ends in (target_o), nor any while open_o is low: a search knows entries by their slots, and as many
// insertions as a freed slot rests cycles bring back no slot that was freed since the search began.
// Source: crates/state/src/cuckoo/engine.rs, its twin in software, explains the search.
module fl_cuckoo_engine #(
    parameter int unsigned KeyBits = 32,
    parameter int unsigned HashBits = 10,
    parameter int unsigned Rows = 1024,
    parameter logic [KeyBits-1:0][4*HashBits-1:0] Columns = '0,
    parameter int unsigned Stash = 8,
    parameter int unsigned SearchNodes = 256,
    parameter int unsigned SlotBits = 10,
    parameter int unsigned RestCycles = 8,
    localparam int unsigned RowBits = (Rows > 1) ? $clog2(Rows) : 1,
    localparam int unsigned EntryBits = 1 + SlotBits + KeyBits,
    localparam int unsigned StashBits = (Stash > 1) ? $clog2(Stash) : 1
) (
    input  logic                           clk_i,
    input  logic                           rst_i,
    // Stashed entries {valid, slot, key}; those that a deletion removes in this cycle.
    input  logic [Stash-1:0][EntryBits-1:0] stash_i,
    input  logic [Stash-1:0]               stash_deleted_i,
    // An insertion or a deletion has its effect in this cycle, if it has one.
    input  logic                           op_acts_i,
    input  logic                           delete_pending_i,
    input  logic                           deletes_i,
    // Writes an entry of the stash.
    output logic                           stash_write_o,
    output logic [StashBits-1:0]           stash_index_o,
    output logic [EntryBits-1:0]           stash_entry_o,
    // The banks and rows that were written in the cycle before.
    input  logic [3:0]                     wrote_i,
    input  logic [3:0][RowBits-1:0]        wrote_row_i,
    // An insertion stores its key; whether it may do so in a free place.
    input  logic                           inserts_i,
    output logic                           open_o,
    // The place into which the next entry of a chain moves.
    output logic                           target_valid_o,
    output logic [1:0]                     target_way_o,
    output logic [RowBits-1:0]             target_row_o,
    // Port b of the banks.
    output logic [3:0][RowBits-1:0]        bank_row_o,
    output logic [3:0]                     bank_write_o,
    output logic [EntryBits-1:0]           bank_entry_o,
    input  logic [3:0][EntryBits-1:0]      bank_entry_i,
    // A step has its effect: 1 selected, 2 searched, 3 moved, 4 exchanged, 5 placed, 6 given up.
    output logic                           step_valid_o,
    output logic [2:0]                     step_o
);

  localparam int unsigned NodeBits = $clog2(SearchNodes);
  localparam int unsigned CountBits = $clog2(SearchNodes + 1);
  localparam int unsigned OpenBits = $clog2(RestCycles + 1);

  typedef enum logic [2:0] {
    Select,
    Root,
    Node,
    Move,
    Place,
    Exchange,
    GiveUp,
    Push
  } state_e;

  typedef enum logic [2:0] {
    None,
    Selected,
    Searched,
    Moved,
    Exchanged,
    Placed,
    GivenUp
  } step_e;

  typedef struct packed {
    logic                valid;
    logic [SlotBits-1:0] slot;
    logic [KeyBits-1:0]  key;
  } entry_t;

  typedef struct packed {
    logic [1:0]         way;
    logic [RowBits-1:0] row;
  } place_t;

  typedef struct packed {
    place_t              place;
    logic [SlotBits-1:0] slot;
    logic                has_parent;
    logic [NodeBits-1:0] parent;
  } node_t;

  state_e               state_q;
  logic [3:0]           phase_q;
  logic                 disturbed_q, cancelled_q;
  logic [StashBits-1:0] served_q, turn_q;
  logic                 is_serving_q;
  logic [1:0]           way_q;
  node_t                nodes_q[SearchNodes];
  logic [CountBits-1:0] count_q, next_q;
  node_t                node_q;
  logic [NodeBits-1:0]  chain_q;
  place_t               target_q, stale_q;
  logic                 has_target_q, has_stale_q;
  // A search has nodes; the insertions into free places that are left to it.
  logic                 has_nodes_q, is_closed_q;
  logic [OpenBits-1:0]  open_q;
  // Operations had the banks in the last two cycles, the last one in entry 1.
  logic [2:1]           acted_q;

  // Children of the last expansion that are not pushed yet.
  logic [3:0]              push_q;
  logic [3:0][RowBits-1:0] push_row_q;
  logic [3:0][SlotBits-1:0] push_slot_q;
  logic                    push_has_parent_q;
  logic [NodeBits-1:0]     push_parent_q;

  logic [KeyBits-1:0]      hash_key_q;
  logic [3:0][RowBits-1:0] rows, rows_q;
  entry_t                  served, source;
  entry_t [3:0]            entries;
  logic                    can_commit, begins;

  assign served  = stash_i[served_q];
  assign entries = bank_entry_i;
  assign source  = entries[node_q.place.way];
  // A step that a deletion has met starts again.
  assign can_commit = !op_acts_i && !delete_pending_i && !disturbed_q;

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

  // The first of the ways in a set.
  function automatic logic [1:0] first(logic [3:0] ways);
    for (int unsigned way = 0; way < 4; way++) begin
      if (ways[way]) return 2'(way);
    end
    return '0;
  endfunction

  // The entry of the stash to serve, round robin.
  logic [StashBits-1:0] selected;
  logic                 is_selected;
  always_comb begin
    selected    = '0;
    is_selected = 1'b0;
    for (int unsigned step = Stash; step > 0; step--) begin
      automatic int unsigned entry = (32'(turn_q) + step - 1) % Stash;
      if (stash_i[entry][EntryBits-1]) begin
        selected    = StashBits'(entry);
        is_selected = 1'b1;
      end
    end
  end

  // Places of an expansion: all ways of a stashed key, those other than its own of a node.
  logic [3:0] ways, free, taken;
  always_comb begin
    ways = '1;
    if (state_q == Node) ways[node_q.place.way] = 1'b0;
    for (int unsigned way = 0; way < 4; way++) begin
      free[way]  = ways[way] && !entries[way].valid;
      taken[way] = ways[way] && entries[way].valid;
    end
  end

  // What a step does in its last phase.
  logic   last, is_source, is_broken, reads_source, reads_places, is_written, waits;
  logic   writes_bank, clears_stash, swaps;
  place_t write_place;
  entry_t write_entry;
  step_e  step;

  // The place of the node that is read: its entry is still the one that was found there, or the chain is broken.
  assign is_source = source.valid && source.slot == node_q.slot;
  assign reads_source = (state_q == Node || state_q == Move) && phase_q == 4'd3;
  assign is_broken    = reads_source && !waits && !is_source;

  // What was read is old: an operation had the port, or has written one of the places since.
  assign reads_places = (state_q == Root || state_q == Exchange) ? phase_q == 4'd4 : state_q == Node && phase_q == 4'd7;
  always_comb begin
    is_written = 1'b0;
    for (int unsigned way = 0; way < 4; way++) is_written |= wrote_i[way] && wrote_row_i[way] == rows_q[way];
  end
  assign waits = ((reads_source || reads_places) && acted_q[2]) || (reads_places && is_written);

  always_comb begin
    last         = 1'b0;
    writes_bank  = 1'b0;
    clears_stash = 1'b0;
    swaps        = 1'b0;
    write_place  = target_q;
    write_entry  = served;
    step         = None;
    unique case (state_q)
      Select: begin
        last = is_selected;
        step = Selected;
      end
      Root: begin
        last         = phase_q == 4'd4;
        writes_bank  = free != '0;
        clears_stash = free != '0;
        write_place  = '{way: first(free), row: rows_q[first(free)]};
        step         = (free != '0) ? Placed : Searched;
      end
      Node: begin
        last = phase_q == 4'd7;
        step = Searched;
      end
      Move: begin
        last        = (phase_q == 4'd3) && !waits && is_source;
        writes_bank = 1'b1;
        write_entry = source;
        step        = Moved;
      end
      Place: begin
        last         = 1'b1;
        writes_bank  = 1'b1;
        clears_stash = 1'b1;
        step         = Placed;
      end
      Exchange: begin
        last         = phase_q == 4'd4;
        writes_bank  = 1'b1;
        clears_stash = 1'b1;
        swaps        = entries[way_q].valid;
        write_place  = '{way: way_q, row: rows_q[way_q]};
        step         = swaps ? Exchanged : Placed;
      end
      GiveUp: begin
        last        = 1'b1;
        writes_bank = has_stale_q;
        write_place = stale_q;
        write_entry = '0;
        step        = GivenUp;
      end
      default: begin  // Push
        last = 1'b0;
      end
    endcase
  end

  logic commits;
  assign commits       = last && can_commit && !waits && !(cancelled_q && state_q != GiveUp);
  assign step_valid_o  = commits;
  assign step_o        = step;
  assign stash_write_o = commits && clears_stash;
  assign stash_index_o = served_q;
  assign stash_entry_o = swaps ? entries[way_q] : '0;
  assign bank_entry_o  = write_entry;

  assign open_o         = !is_closed_q;
  assign target_valid_o = has_target_q;
  assign target_way_o   = target_q.way;
  assign target_row_o   = target_q.row;

  always_comb begin
    bank_row_o   = rows;
    bank_write_o = '0;
    if (commits && writes_bank) begin
      bank_row_o[write_place.way]   = write_place.row;
      bank_write_o[write_place.way] = 1'b1;
    end else if ((state_q == Node || state_q == Move) && phase_q < 4'd4) begin
      bank_row_o[node_q.place.way] = node_q.place.row;
    end
  end

  assign begins = phase_q == '0;

  // A child of the last expansion becomes a node in each cycle, while the first one is expanded already.
  logic pushes;
  assign pushes = push_q != '0 && count_q != CountBits'(SearchNodes);

  always_ff @(posedge clk_i) begin
    phase_q <= phase_q + 1'b1;
    rows_q  <= rows;
    acted_q <= {acted_q[1], op_acts_i};
    is_closed_q <= has_nodes_q && (open_q == '0 || (inserts_i && open_q == OpenBits'(1)));
    if (!has_nodes_q) begin
      open_q <= OpenBits'(RestCycles);
    end else if (inserts_i && open_q != '0) begin
      open_q <= open_q - 1'b1;
    end
    if (pushes) begin
      nodes_q[NodeBits'(count_q)] <= '{
          place: '{way: first(push_q), row: push_row_q[first(push_q)]},
          slot: push_slot_q[first(push_q)],
          has_parent: push_has_parent_q,
          parent: push_parent_q
      };
      count_q               <= count_q + 1'b1;
      push_q[first(push_q)] <= 1'b0;
    end
    if (begins) begin
      disturbed_q <= 1'b0;
      node_q      <= nodes_q[(state_q == Move) ? chain_q : NodeBits'(next_q)];
    end
    // The key to hash: that of the stash, or that of the node when it has been read.
    if (state_q == Root || state_q == Exchange) begin
      hash_key_q <= served.key;
    end else if (state_q == Node && phase_q == 4'd3) begin
      hash_key_q <= source.key;
    end
    if (commits) begin
      phase_q <= '0;
      unique case (state_q)
        Select: begin
          served_q     <= selected;
          is_serving_q <= 1'b1;
          state_q      <= Root;
        end
        Root, Node: begin
          if (state_q == Node) next_q <= next_q + 1'b1;
          if (free != '0 && state_q == Node) begin
            target_q     <= '{way: first(free), row: rows_q[first(free)]};
            has_target_q <= 1'b1;
            chain_q      <= NodeBits'(next_q);
            state_q      <= Move;
          end else begin
            has_nodes_q       <= 1'b1;
            push_q            <= taken;
            push_row_q        <= rows_q;
            for (int unsigned way = 0; way < 4; way++) push_slot_q[way] <= entries[way].slot;
            push_has_parent_q <= state_q == Node;
            push_parent_q     <= NodeBits'(next_q);
            state_q           <= Push;
          end
        end
        Move: begin
          target_q    <= node_q.place;
          stale_q     <= node_q.place;
          has_stale_q <= 1'b1;
          chain_q     <= node_q.parent;
          state_q     <= node_q.has_parent ? Move : Place;
        end
        Exchange: way_q <= way_q + 1'b1;
        GiveUp: begin
          has_stale_q <= 1'b0;
          state_q     <= (is_serving_q && !cancelled_q) ? Root : Select;
          is_serving_q <= is_serving_q && !cancelled_q;
          cancelled_q <= 1'b0;
        end
        default: ;
      endcase
      if (step == Placed || step == Exchanged) begin
        is_serving_q <= 1'b0;
        has_stale_q  <= 1'b0;
        turn_q       <= (served_q == StashBits'(Stash - 1)) ? '0 : served_q + 1'b1;
        state_q      <= Select;
      end
      if (step == Placed || step == Exchanged || step == GivenUp) begin
        count_q      <= '0;
        next_q       <= '0;
        push_q       <= '0;
        has_nodes_q  <= 1'b0;
        is_closed_q  <= 1'b0;
        has_target_q <= 1'b0;
      end
    end else if (state_q == Push) begin
      phase_q <= '0;
      state_q <= (pushes || next_q != count_q) ? Node : Exchange;
    end else if (is_broken && !disturbed_q) begin
      state_q <= GiveUp;
      phase_q <= '0;
    end else if ((last || is_broken) && (disturbed_q || (cancelled_q && state_q != GiveUp))) begin
      phase_q <= '0;
    end else if (last || waits || state_q == Select) begin
      phase_q <= phase_q;
    end
    // The served entry was deleted.
    if (is_serving_q && stash_deleted_i[served_q]) cancelled_q <= 1'b1;
    if (cancelled_q && begins && state_q != Push && state_q != GiveUp) begin
      state_q <= GiveUp;
      phase_q <= '0;
    end
    if (deletes_i) disturbed_q <= 1'b1;
    if (rst_i) begin
      state_q      <= Select;
      phase_q      <= '0;
      disturbed_q  <= 1'b0;
      cancelled_q  <= 1'b0;
      is_serving_q <= 1'b0;
      served_q     <= '0;
      turn_q       <= '0;
      way_q        <= '0;
      count_q      <= '0;
      next_q       <= '0;
      has_nodes_q  <= 1'b0;
      is_closed_q  <= 1'b0;
      has_target_q <= 1'b0;
      has_stale_q  <= 1'b0;
      push_q       <= '0;
      acted_q      <= '0;
    end
  end

endmodule
