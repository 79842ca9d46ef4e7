// SPDX-License-Identifier: Apache-2.0 OR MIT
// Rows of a table whose entry was evicted, and that are not cleared yet: packets see them as absent.
//
// A row is cleared by an access that comes where no packet reads or writes (clear_take_i), unless a packet has written
// it again in between.
//
// Depth: a row waits for at most 6 cycles: one until it is offered, two until a cycle without another access, three to
// the end of its own access. Packets of a full map are two cycles apart at least (fl_hash_map), so every second cycle
// is free, unless it has an access of the host that was on its way before the eviction; later ones wait for busy_o.
// Three rows wait at a time, and a fourth one comes in the cycle in which the first is given up. In longer slices
// packets are farther apart, and fewer rows wait.
//
// Latency: 0 cycles from row to evicted_o, also in the cycle in which the row is added; a row is offered for clearing
// in the next cycle.
// Throughput: one row added, one looked up and one written a cycle.
// Handshake: no more than Depth rows wait to be cleared.
module fl_evicted #(
    parameter int unsigned RowBits = 4,
    parameter int unsigned Depth = 4
) (
    input  logic               clk_i,
    input  logic               rst_i,
    input  logic               add_i,
    input  logic [RowBits-1:0] add_row_i,
    input  logic [RowBits-1:0] row_i,
    output logic               evicted_o,
    // The row is written, by a packet or because it is cleared.
    input  logic               written_i,
    input  logic [RowBits-1:0] written_row_i,
    // The next row to be cleared; its access begins.
    output logic               clear_valid_o,
    output logic [RowBits-1:0] clear_row_o,
    input  logic               clear_take_i,
    // Some rows are not cleared yet.
    output logic               busy_o
);

  localparam int unsigned PlaceBits = (Depth > 1) ? $clog2(Depth) : 1;

  logic [Depth-1:0]     valid_q, taken_q;
  logic [RowBits-1:0]   rows_q[Depth];
  logic [PlaceBits-1:0] free_place, clear_place;
  logic                 adds;

  always_comb begin
    evicted_o     = add_i && add_row_i == row_i;
    clear_valid_o = 1'b0;
    clear_place   = '0;
    free_place    = '0;
    for (int unsigned i = 0; i < Depth; i++) begin
      evicted_o |= valid_q[i] && rows_q[i] == row_i;
      if (valid_q[i] && !taken_q[i]) begin
        clear_valid_o = 1'b1;
        clear_place   = PlaceBits'(i);
      end
      if (!valid_q[i]) begin
        free_place = PlaceBits'(i);
      end
    end
  end

  assign clear_row_o = rows_q[clear_place];
  assign busy_o      = valid_q != '0;
  // A packet after the one that evicts may write the row at once.
  assign adds        = add_i && !(written_i && written_row_i == add_row_i);

  always_ff @(posedge clk_i) begin
    if (clear_take_i) begin
      taken_q[clear_place] <= 1'b1;
    end
    for (int unsigned i = 0; i < Depth; i++) begin
      if (written_i && rows_q[i] == written_row_i) valid_q[i] <= 1'b0;
    end
    if (adds) begin
      valid_q[free_place] <= 1'b1;
      taken_q[free_place] <= 1'b0;
      rows_q[free_place]  <= add_row_i;
    end
    if (rst_i) begin
      valid_q <= '0;
    end
  end

  if (Depth < 2) begin : gen_bad_depth
    $error("Depth is %0d, expected at least 2", Depth);
  end

`ifndef SYNTHESIS
  a_room : assert property (@(posedge clk_i) disable iff (rst_i) adds |-> valid_q != '1);
`endif

endmodule
