// SPDX-License-Identifier: Apache-2.0 OR MIT
// First bytes of a packet in one word: joins the words that fl_framer gives in consecutive cycles.
//
// Latency: 1 cycle from the last word of the window.
// Throughput: one word a cycle.
// Handshake: none; the first word is marked by valid_i, the others follow in the next cycles.
module fl_window_join #(
    parameter int unsigned WordBytes = 64,
    // Words of the window.
    parameter int unsigned Words = 2,
    // Bits of the packet beside its bytes.
    parameter int unsigned SideBits = 1,
    localparam int unsigned WordBits = 8 * WordBytes
) (
    input  logic                      clk_i,
    input  logic                      rst_i,
    input  logic                      valid_i,
    // With the first word.
    input  logic [15:0]               length_i,
    input  logic [SideBits-1:0]       side_i,
    input  logic [WordBits-1:0]       word_i,
    output logic                      valid_o,
    output logic [15:0]               length_o,
    output logic [SideBits-1:0]       side_o,
    // The first byte in the lowest bits; bytes after the end of the packet are 0.
    output logic [Words*WordBits-1:0] window_o
);

  localparam int unsigned IndexBits = $clog2(Words + 1);

  // The word that comes, and how many of them the packet has in the window.
  logic [IndexBits-1:0]           index, index_q, count, count_q;
  logic                           is_open, is_last;
  logic [Words-1:0][WordBits-1:0] window_q;

  always_comb begin
    count   = (length_i > 16'((Words - 1) * WordBytes)) ? IndexBits'(Words)
        : IndexBits'((length_i + 16'(WordBytes - 1)) / 16'(WordBytes));
    index   = valid_i ? '0 : index_q;
    is_open = valid_i || index_q != '0;
    is_last = is_open && index + 1'b1 == (valid_i ? count : count_q);
  end

  always_ff @(posedge clk_i) begin
    valid_o <= is_last;
    index_q <= (is_open && !is_last) ? index + 1'b1 : '0;
    if (valid_i) begin
      count_q  <= count;
      length_o <= length_i;
      side_o   <= side_i;
    end
    for (int unsigned word = 0; word < Words; word++) begin
      if (is_open && index == IndexBits'(word)) window_q[word] <= word_i;
      else if (valid_i) window_q[word] <= '0;
    end
    if (rst_i) begin
      valid_o <= 1'b0;
      index_q <= '0;
    end
  end

  assign window_o = window_q;

  if (Words == 0 || Words > 4) begin : gen_bad_words
    $error("Words is %0d, expected 1 to 4", Words);
  end

endmodule
