// SPDX-License-Identifier: Apache-2.0 OR MIT
// Words of the window from a position on. Words after its end are 0.
//
// Latency: 2 cycles: groups of 8 positions, then the position in the group.
// Throughput: one window a cycle.
// Handshake: none.
module fl_window_words
  import fl_parse_pkg::*;
#(
    parameter int unsigned WindowWords = 29,
    parameter int unsigned Words = 5
) (
    input  logic                          clk_i,
    input  logic [WindowWords-1:0][31:0]  window_i,
    input  near_t                         at_i,
    output logic [Words-1:0][31:0]        words_o
);

  localparam int unsigned Groups = (WindowWords + 7) / 8;
  localparam int unsigned Span = Words + 7;

  logic [Span-1:0][31:0] span_d, span_q;
  logic [2:0]            fine_q;

  always_comb begin
    span_d = '0;
    for (int unsigned group = 0; group < Groups; group++) begin
      for (int unsigned i = 0; i < Span; i++) begin
        if (8 * group + i < WindowWords && at_i[5:3] == 3'(group)) begin
          span_d[i] |= window_i[8*group+i];
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    span_q <= span_d;
    fine_q <= at_i[2:0];
    for (int unsigned i = 0; i < Words; i++) begin
      words_o[i] <= span_q[i+32'(fine_q)];
    end
  end

  if (WindowWords > 64 || Words == 0 || Words > 8) begin : gen_bad_words
    $error("%0d words of %0d, expected 1 to 8 of at most 64", Words, WindowWords);
  end

endmodule
