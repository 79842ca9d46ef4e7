// SPDX-License-Identifier: Apache-2.0 OR MIT
// Key extractor of an element: the words of a flow key, in the direction that both sides of a connection share.
//
//   header vector ─► words of the key ─┬─► comparison of the sides ─┐
//                                      └─► as they are, or mirrored ┴─► key
//
// The sides of a connection are words of the key.
//
// Latency: 0 cycles. Throughput: one key a cycle. Handshake: none.
// Source: [FlowBlaze 3.2]
module fl_efsm_key
  import fl_config_pkg::*;
#(
    parameter int unsigned Words = 24,
    parameter int unsigned KeyWords = 4,
    parameter logic [7:0] Unit = 8'd0
) (
    input  logic                      clk_i,
    input  config_t                   config_i,
    input  logic                      bank_i,
    input  logic [Words-1:0][31:0]    words_i,
    input  logic [14:0]               presence_i,
    // All fields of the key are present.
    output logic                      present_o,
    output logic [KeyWords-1:0][31:0] key_o
);

  localparam int unsigned WordBits = $clog2(Words);
  localparam int unsigned IndexBits = (KeyWords > 1) ? $clog2(KeyWords) : 1;
  // Pairs of words in the comparison of the sides: addresses and ports.
  localparam int unsigned Sides = KeyWords / 2 + 1;

  typedef struct packed {
    logic                 rotates;
    // The word of the key that takes its place.
    logic [IndexBits-1:0] mirrored;
    logic [WordBits-1:0]  word;
    logic                 valid;
  } key_word_t;

  // Halves: 0 the whole word, 1 the upper, 2 the lower half.
  typedef struct packed {
    logic [1:0]           right_half;
    logic [IndexBits-1:0] right;
    logic [1:0]           left_half;
    logic [IndexBits-1:0] left;
    logic                 valid;
  } side_t;

  typedef struct packed {
    logic [14:0]              presence;
    // The most significant pair is the last one.
    side_t [Sides-1:0]        sides;
    key_word_t [KeyWords-1:0] words;
  } key_t;

  key_t                      of_bank;
  logic [KeyWords-1:0][31:0] selected;
  logic [Sides-1:0][31:0]    left, right;
  logic                      is_mirrored;

  fl_config_bank #(
      .Bits($bits(key_t)),
      .Unit(Unit)
  ) u_config (
      .clk_i,
      .config_i,
      .bank_i,
      .config_o(of_bank)
  );

  function automatic logic [31:0] half(logic [31:0] word, logic [1:0] which);
    unique case (which)
      2'd0:    return word;
      2'd1:    return 32'(word[31:16]);
      default: return 32'(word[15:0]);
    endcase
  endfunction

  always_comb begin
    for (int unsigned at = 0; at < KeyWords; at++) begin
      selected[at] = of_bank.words[at].valid ? words_i[of_bank.words[at].word] : '0;
    end
    for (int unsigned at = 0; at < Sides; at++) begin
      left[at]  = of_bank.sides[at].valid ? half(selected[of_bank.sides[at].left], of_bank.sides[at].left_half) : '0;
      right[at] = of_bank.sides[at].valid ? half(selected[of_bank.sides[at].right], of_bank.sides[at].right_half) : '0;
    end
    is_mirrored = left > right;
    present_o   = (presence_i & of_bank.presence) == of_bank.presence;
    for (int unsigned at = 0; at < KeyWords; at++) begin
      automatic logic [31:0] mirrored = selected[of_bank.words[at].mirrored];
      if (of_bank.words[at].rotates) mirrored = {mirrored[15:0], mirrored[31:16]};
      key_o[at] = is_mirrored ? mirrored : selected[at];
    end
  end

endmodule
