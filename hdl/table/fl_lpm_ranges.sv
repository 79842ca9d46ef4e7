// SPDX-License-Identifier: Apache-2.0 OR MIT
// Search for the range that contains a key: a sorted list of ranges, each with a result, under three levels of
// separators.
//
//   key ──► roots (registers) ──► top ──► middle ──► leaves ──► result
//              cycle 0          2 cycles  2 cycles  2 cycles
//
// The list is in two banks. Searches read one of them; a new list is written into the other one, first range first.
// When it is complete, all searches that begin from then on read it, so that each search sees the list as a whole.
//
// Latency: 6 cycles from key to result.
// Throughput: one search a cycle. Writing a list takes a cycle a range, and 3 * Fanout cycles more at most.
// Handshake: none. A list is begun at the earliest 6 cycles after the end of the one before (swapped_o).
// Source: [Ranges]
module fl_lpm_ranges #(
    parameter int unsigned Width = 32,
    parameter int unsigned ResultBits = 13,
    parameter int unsigned Ranges = 9,
    parameter int unsigned Fanout = 8,
    localparam int unsigned CountBits = $clog2(Ranges + 1)
) (
    input  logic                  clk_i,
    input  logic                  rst_i,
    input  logic [Width-1:0]      key_i,
    // Six cycles later.
    output logic [ResultBits-1:0] result_o,
    // The next range of the new list; after the last one, the end of the list.
    input  logic                  put_i,
    input  logic [Width-1:0]      put_start_i,
    input  logic [ResultBits-1:0] put_result_i,
    input  logic                  end_i,
    // The new list is complete. From the cycle after one with go_i on, searches begin in it.
    output logic                  complete_o,
    input  logic                  go_i,
    output logic                  swapped_o,
    // The ranges of the list, and one of them two cycles later.
    output logic [CountBits-1:0]  count_o,
    input  logic [CountBits-1:0]  index_i,
    output logic [Width-1:0]      start_o,
    output logic [ResultBits-1:0] own_o
);

  localparam int unsigned LaneBits = $clog2(Fanout);
  localparam int unsigned LeafRows = (Ranges + Fanout - 1) / Fanout;
  localparam int unsigned MiddleRows = (LeafRows + Fanout - 1) / Fanout;
  localparam int unsigned Roots = (MiddleRows + Fanout - 1) / Fanout;
  localparam int unsigned LeafBits = (LeafRows > 1) ? $clog2(LeafRows) : 1;
  localparam int unsigned MiddleBits = (MiddleRows > 1) ? $clog2(MiddleRows) : 1;
  localparam int unsigned RootBits = (Roots > 1) ? $clog2(Roots) : 1;
  localparam int unsigned Found = 6;  // The cycle of the result.
  // The index of a range, with a digit for each level, or the number of all.
  localparam int unsigned IndexBits = RootBits + 3 * LaneBits + 1;

  typedef struct packed {
    logic                  exists;
    logic [Width-1:0]      start;
    logic [ResultBits-1:0] result;
  } leaf_t;

  typedef enum logic [2:0] {
    Put,
    PadLeaf,
    PadMiddle,
    PadTop,
    Swap
  } state_e;

  // ---- The new list. What is missing in the last row of a level is marked as absent.

  state_e               state_q;
  // The next range to write, or, while a level is padded, its next place.
  logic [IndexBits-1:0] next_q;
  logic [CountBits-1:0] new_count_q, count_q;
  logic                 bank_q, starts_leaf, starts_middle, starts_top;
  logic                 leaf_write, middle_write, top_write, exists;
  logic [IndexBits-1:0] leaf_place, middle_place, top_place;

  assign exists        = state_q == Put;
  assign starts_leaf   = next_q[LaneBits-1:0] == '0;
  assign starts_middle = next_q[2*LaneBits-1:0] == '0;
  assign starts_top    = next_q[3*LaneBits-1:0] == '0;
  assign leaf_place    = next_q;
  assign middle_place  = (state_q == PadMiddle) ? next_q : next_q >> LaneBits;
  assign top_place     = (state_q == PadTop) ? next_q : next_q >> 2 * LaneBits;
  assign leaf_write    = put_i || (state_q == PadLeaf && !starts_leaf);
  assign middle_write  = (put_i && starts_leaf) || (state_q == PadMiddle && !starts_leaf);
  assign top_write     = (put_i && starts_middle) || (state_q == PadTop && !starts_leaf);
  assign complete_o    = state_q == Swap;
  assign swapped_o     = complete_o && go_i;
  assign count_o       = count_q;

  // ---- The search.

  logic [Width-1:0]      roots_q[Roots], new_roots_q[Roots];
  logic [RootBits:0]     root_count_q;
  logic [RootBits-1:0]   root;
  logic [Width-1:0]      keys_q[1:Found];
  logic                  banks_q[1:Found];
  logic [RootBits-1:0]   root_q[1:2];
  logic [MiddleBits-1:0] middle_row, middle_row_q[3:4];
  logic [LeafBits-1:0]   leaf_row;
  logic [LaneBits-1:0]   top_lane, middle_lane;

  always_comb begin
    root = '0;
    for (int unsigned i = 1; i < Roots; i++) begin
      if ((RootBits + 1)'(i) < root_count_q && roots_q[i] <= key_i) begin
        root = RootBits'(i);
      end
    end
  end

  fl_lpm_level #(
      .Width (Width),
      .Rows  (Roots),
      .Fanout(Fanout)
  ) u_top (
      .clk_i,
      .row_i         (root),
      .bank_i        (banks_q[2]),
      .key_i         (keys_q[2]),
      .lane_o        (top_lane),
      .write_i       (top_write),
      .write_bank_i  (!bank_q),
      .write_row_i   (RootBits'(top_place >> LaneBits)),
      .write_lane_i  (top_place[LaneBits-1:0]),
      .write_exists_i(exists),
      .write_start_i (put_start_i)
  );
  assign middle_row = MiddleBits'({root_q[2], top_lane});

  fl_lpm_level #(
      .Width (Width),
      .Rows  (MiddleRows),
      .Fanout(Fanout)
  ) u_middle (
      .clk_i,
      .row_i         (middle_row),
      .bank_i        (banks_q[4]),
      .key_i         (keys_q[4]),
      .lane_o        (middle_lane),
      .write_i       (middle_write),
      .write_bank_i  (!bank_q),
      .write_row_i   (MiddleBits'(middle_place >> LaneBits)),
      .write_lane_i  (middle_place[LaneBits-1:0]),
      .write_exists_i(exists),
      .write_start_i (put_start_i)
  );
  assign leaf_row = LeafBits'({middle_row_q[4], middle_lane});

  // ---- The leaves, whose second port reads the list and writes the new one.

  leaf_t               leaves[Fanout], own_leaves[Fanout];
  logic [LaneBits-1:0] own_lane_q[1:2];
  leaf_t               own;
  logic                unused;
  assign unused = ^{own.exists, leaves[0].exists, leaves[0].start, roots_q[0]};

  for (genvar lane = 0; lane < Fanout; lane++) begin : gen_leaf
    leaf_t read[2], read_own[2];

    for (genvar bank = 0; bank < 2; bank++) begin : gen_bank
      logic is_new;
      assign is_new = bank_q != (bank == 1);

      fl_ram_dual #(
          .Width($bits(leaf_t)),
          .Depth((LeafRows < 2) ? 2 : LeafRows)
      ) u_ram (
          .clk_i,
          .a_address_i(leaf_row),
          .a_data_o   (read[bank]),
          .b_address_i(is_new ? LeafBits'(leaf_place >> LaneBits) : LeafBits'(index_i >> LaneBits)),
          .b_write_i  (leaf_write && is_new && leaf_place[LaneBits-1:0] == LaneBits'(lane)),
          .b_data_i   ({exists, put_start_i, put_result_i}),
          .b_data_o   (read_own[bank])
      );
    end
    assign leaves[lane]     = read[banks_q[Found]];
    assign own_leaves[lane] = read_own[bank_q];
  end
  assign own     = own_leaves[own_lane_q[2]];
  assign start_o = own.start;
  assign own_o   = own.result;

  always_comb begin
    result_o = leaves[0].result;
    for (int unsigned lane = 1; lane < Fanout; lane++) begin
      if (leaves[lane].exists && leaves[lane].start <= keys_q[Found]) begin
        result_o = leaves[lane].result;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    keys_q[1]  <= key_i;
    banks_q[1] <= bank_q;
    for (int unsigned cycle = 2; cycle <= Found; cycle++) begin
      keys_q[cycle]  <= keys_q[cycle-1];
      banks_q[cycle] <= banks_q[cycle-1];
    end
    root_q[1]       <= root;
    root_q[2]       <= root_q[1];
    middle_row_q[3] <= middle_row;
    middle_row_q[4] <= middle_row_q[3];
    own_lane_q[1]   <= LaneBits'(index_i);
    own_lane_q[2]   <= own_lane_q[1];
  end

  always_ff @(posedge clk_i) begin
    if (put_i) begin
      next_q      <= next_q + 1'b1;
      new_count_q <= new_count_q + 1'b1;
      if (starts_top) begin
        new_roots_q[RootBits'(next_q >> 3 * LaneBits)] <= put_start_i;
      end
    end
    unique case (state_q)
      Put: begin
        if (end_i) state_q <= PadLeaf;
      end
      PadLeaf, PadMiddle, PadTop: begin
        if (!starts_leaf) begin
          next_q <= next_q + 1'b1;
        end else begin
          next_q  <= next_q >> LaneBits;
          state_q <= (state_q == PadLeaf) ? PadMiddle : (state_q == PadMiddle) ? PadTop : Swap;
        end
      end
      default: begin
        if (go_i) begin
          bank_q       <= !bank_q;
          roots_q      <= new_roots_q;
          root_count_q <= next_q[RootBits:0];
          count_q      <= new_count_q;
          new_count_q  <= '0;
          next_q       <= '0;
          state_q      <= Put;
        end
      end
    endcase
    if (rst_i) begin
      bank_q       <= 1'b0;
      root_count_q <= '0;
      count_q      <= '0;
      new_count_q  <= '0;
      next_q       <= '0;
      state_q      <= Put;
    end
  end

  if (Roots > 64) begin : gen_bad_ranges
    $error("Ranges is %0d, expected at most %0d with Fanout %0d", Ranges, 64 * Fanout * Fanout * Fanout, Fanout);
  end

`ifndef SYNTHESIS
  a_room : assert property (@(posedge clk_i) disable iff (rst_i) put_i |-> exists && new_count_q < CountBits'(Ranges));
  a_end : assert property (@(posedge clk_i) disable iff (rst_i) end_i |-> exists && new_count_q != '0);
`endif

endmodule
