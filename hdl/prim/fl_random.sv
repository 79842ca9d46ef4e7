// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random words that run freely: a new set of Words words in every cycle.
//
// Word w is a xorshift generator of 32 bits with the shifts 13, 17 and 5. After a reset its state is
// 32'h9e3779b9 * (Seed + w + 1), or 1 where that is 0; each cycle it is
//
//   x ^= x << 13;  x ^= x >> 17;  x ^= x << 5;
//
// Each word has a period of 2^32 - 1 cycles and is never 0. It is no secret: who sees some words knows all.
//
// Latency: none.
// Throughput: Words words a cycle.
// Handshake: none.
// Source: G. Marsaglia, Xorshift RNGs, Journal of Statistical Software 8(14), 2003.
module fl_random #(
    parameter int unsigned Words = 1,
    parameter logic [31:0] Seed = 32'd0
) (
    input  logic                   clk_i,
    input  logic                   rst_i,
    output logic [Words-1:0][31:0] words_o
);

  logic [Words-1:0][31:0] words_q;

  function automatic logic [31:0] first(int unsigned word);
    logic [31:0] state;
    state = 32'h9e3779b9 * (Seed + 32'(word) + 32'd1);
    return (state == '0) ? 32'd1 : state;
  endfunction

  function automatic logic [31:0] next(logic [31:0] state);
    logic [31:0] x;
    x = state ^ (state << 13);
    x = x ^ (x >> 17);
    return x ^ (x << 5);
  endfunction

  always_ff @(posedge clk_i) begin
    for (int unsigned word = 0; word < Words; word++) begin
      words_q[word] <= rst_i ? first(word) : next(words_q[word]);
    end
  end

  assign words_o = words_q;

  if (Words == 0) begin : gen_bad_words
    $error("Words is 0, expected at least 1");
  end

endmodule
