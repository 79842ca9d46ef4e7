// SPDX-License-Identifier: Apache-2.0 OR MIT
// Alignment of a word of the output: it starts `shift` bytes into a pair of words, and bytes after its end are 0.
//
//   pair ──► by 16 bytes ──► by 4 ──► by 1 ──► bytes after the end
//
// A shift takes a mux of four for each two of its bits, with a register after each step. Without HasShift the word is
// the first one of the pair.
//
// Latency: 1 cycle from the pair to the word, 4 with HasShift.
// Throughput: one word a cycle.
// Handshake: valid without ready; data moves every cycle.
module fl_align #(
    parameter int unsigned WordBytes = 64,
    parameter bit HasShift = 1'b1,
    // Bits that travel with the word.
    parameter int unsigned TagBits = 1,
    localparam int unsigned WordBits = 8 * WordBytes,
    localparam int unsigned OffsetBits = $clog2(WordBytes)
) (
    input  logic                  clk_i,
    input  logic                  rst_i,
    input  logic                  valid_i,
    input  logic [2*WordBits-1:0] pair_i,
    input  logic [OffsetBits-1:0] shift_i,
    // The bytes of the word.
    input  logic [OffsetBits:0]   bytes_i,
    input  logic [TagBits-1:0]    tag_i,
    output logic                  valid_o,
    output logic [WordBits-1:0]   data_o,
    output logic [WordBytes-1:0]  keep_o,
    output logic [TagBits-1:0]    tag_o
);

  typedef struct packed {
    logic [OffsetBits-1:0] shift;
    logic [OffsetBits:0]   bytes;
    logic [TagBits-1:0]    tag;
  } word_t;

  logic                aligned_valid_q, unused_shift;
  word_t               word, aligned_word_q;
  logic [WordBits-1:0] aligned_q;

  assign word         = '{shift: shift_i, bytes: bytes_i, tag: tag_i};
  assign unused_shift = ^aligned_word_q.shift;

  if (HasShift) begin : gen_shift
    localparam int unsigned Bits16 = WordBits + 8 * 15;
    localparam int unsigned Bits4 = WordBits + 8 * 3;

    logic [2:0]            shift_valid_q;
    word_t                 shift_word_q[3];
    logic [2*WordBits-1:0] pair_q;
    logic [Bits16-1:0]     by16_q;
    logic [Bits4-1:0]      by4_q;

    always_ff @(posedge clk_i) begin
      shift_valid_q   <= {shift_valid_q[1:0], valid_i};
      shift_word_q[0] <= word;
      shift_word_q[1] <= shift_word_q[0];
      shift_word_q[2] <= shift_word_q[1];
      pair_q          <= pair_i;
      by16_q          <= Bits16'(pair_q >> {shift_word_q[0].shift[OffsetBits-1:4], 7'b0});
      by4_q           <= Bits4'(by16_q >> {shift_word_q[1].shift[3:2], 5'b0});
      aligned_q       <= WordBits'(by4_q >> {shift_word_q[2].shift[1:0], 3'b0});
      aligned_valid_q <= shift_valid_q[2];
      aligned_word_q  <= shift_word_q[2];
      if (rst_i) begin
        shift_valid_q   <= '0;
        aligned_valid_q <= 1'b0;
      end
    end
  end else begin : gen_straight
    always_ff @(posedge clk_i) begin
      aligned_q       <= pair_i[WordBits-1:0];
      aligned_valid_q <= valid_i;
      aligned_word_q  <= word;
      if (rst_i) begin
        aligned_valid_q <= 1'b0;
      end
    end
    logic unused_pair;
    assign unused_pair = ^pair_i[2*WordBits-1:WordBits];
  end

  assign valid_o = aligned_valid_q;
  assign tag_o   = aligned_word_q.tag;

  always_comb begin
    for (int unsigned i = 0; i < WordBytes; i++) begin
      keep_o[i]      = (OffsetBits + 1)'(i) < aligned_word_q.bytes;
      data_o[8*i+:8] = keep_o[i] ? aligned_q[8*i+:8] : 8'h0;
    end
  end

  if (WordBytes != 64 && WordBytes != 32) begin : gen_bad_word
    $error("WordBytes is %0d, expected 32 or 64", WordBytes);
  end
  if (TagBits == 0) begin : gen_bad_tag
    $error("TagBits is 0, expected at least 1");
  end

endmodule
