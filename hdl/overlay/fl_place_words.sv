// SPDX-License-Identifier: Apache-2.0 OR MIT
// Words of a header at their place in the window, each with a bit for each byte that is replaced. Other words are 0.
//
// Latency: 2 cycles: the position in a group of 8, then the group.
// Throughput: one header a cycle.
// Handshake: none.
module fl_place_words
  import fl_parse_pkg::*;
#(
    parameter int unsigned WindowWords = 29,
    parameter int unsigned Words = 5,
    // The last position.
    parameter int unsigned MaxAt = WindowWords - 1
) (
    input  logic                         clk_i,
    input  near_t                        at_i,
    input  logic [Words-1:0][31:0]       words_i,
    input  logic [Words-1:0][3:0]        keep_i,
    output logic [WindowWords-1:0][31:0] words_o,
    output logic [WindowWords-1:0][3:0]  keep_o
);

  localparam int unsigned Span = Words + 7;

  logic [Span-1:0][31:0] span_d, span_q;
  logic [Span-1:0][3:0]  keep_d, keep_q;
  logic [2:0]            group_q;

  assign span_d = (32 * Span)'(words_i) << {at_i[2:0], 5'b0};
  assign keep_d = (4 * Span)'(keep_i) << {at_i[2:0], 2'b0};

  always_ff @(posedge clk_i) begin
    span_q  <= span_d;
    keep_q  <= keep_d;
    group_q <= at_i[5:3];
    words_o <= '0;
    keep_o  <= '0;
    for (int unsigned group = 0; group <= MaxAt / 8; group++) begin
      for (int unsigned i = 0; i < Span; i++) begin
        if (8 * group + i < WindowWords && group_q == 3'(group)) begin
          words_o[8*group+i] <= span_q[i];
          keep_o[8*group+i]  <= keep_q[i];
        end
      end
    end
  end

  if (WindowWords > 64 || Words == 0 || Words > 10) begin : gen_bad_words
    $error("%0d words of %0d, expected 1 to 10 of at most 64", Words, WindowWords);
  end

endmodule
