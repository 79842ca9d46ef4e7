// SPDX-License-Identifier: Apache-2.0 OR MIT
// Stored bodies of packets: words are written one by one, and read in pairs of neighbours.
//
//   place ──► even row ──► even bank ──┐
//         └─► odd row ───► odd bank ───┴─► in order ──► words that were not received are 0
//
// Of two neighbouring words one is at an even place and one at an odd one, so a pair takes one read of each bank.
//
// Latency: 3 cycles from the place to the pair. A word that is written in the cycle of its read is not seen.
// Throughput: one pair read and one word written a cycle.
// Handshake: none; data moves every cycle.
module fl_body #(
    parameter int unsigned WordBytes = 64,
    // Words of both banks: a power of two.
    parameter int unsigned BodyWords = 256,
    localparam int unsigned WordBits = 8 * WordBytes,
    localparam int unsigned PlaceBits = $clog2(BodyWords),
    localparam int unsigned CountBits = $clog2(BodyWords + 1),
    // Indices of words, signed: 0 is the one with the packet's first byte as received.
    localparam int unsigned IndexBits = 16 - $clog2(WordBytes)
) (
    input  logic                  clk_i,
    input  logic                  write_i,
    input  logic [PlaceBits-1:0]  write_place_i,
    input  logic [WordBits-1:0]   write_data_i,
    // The place of the first word of the pair, its index in the packet, and the words of the packet as received.
    input  logic [PlaceBits-1:0]  place_i,
    input  logic [IndexBits-1:0]  index_i,
    input  logic [CountBits-1:0]  stored_i,
    // Three cycles later.
    output logic [2*WordBits-1:0] pair_o
);

  localparam int unsigned Rows = BodyWords / 2;

  logic [PlaceBits-2:0]  odd_row, even_row;
  logic [WordBits-1:0]   even, odd;
  logic [2:1]            is_odd_q, has_low_q, has_high_q;
  logic [IndexBits-1:0]  next_index;
  logic [2*WordBits-1:0] pair_d;

  assign odd_row    = place_i[PlaceBits-1:1];
  assign even_row   = odd_row + (PlaceBits - 1)'(place_i[0]);
  assign next_index = index_i + 1'b1;

  fl_ram #(
      .Width(WordBits),
      .Depth(Rows)
  ) u_even (
      .clk_i,
      .write_i(write_i && !write_place_i[0]),
      .write_address_i(write_place_i[PlaceBits-1:1]),
      .write_data_i,
      .read_address_i(even_row),
      .read_data_o(even)
  );

  fl_ram #(
      .Width(WordBits),
      .Depth(Rows)
  ) u_odd (
      .clk_i,
      .write_i(write_i && write_place_i[0]),
      .write_address_i(write_place_i[PlaceBits-1:1]),
      .write_data_i,
      .read_address_i(odd_row),
      .read_data_o(odd)
  );

  // Whether a word is one of those received.
  function automatic logic is_stored(logic [IndexBits-1:0] index, logic [CountBits-1:0] stored);
    return !index[IndexBits-1] && 16'(index) < 16'(stored);
  endfunction

  always_ff @(posedge clk_i) begin
    is_odd_q   <= {is_odd_q[1], place_i[0]};
    has_low_q  <= {has_low_q[1], is_stored(index_i, stored_i)};
    has_high_q <= {has_high_q[1], is_stored(next_index, stored_i)};
    pair_o     <= pair_d;
  end

  always_comb begin
    pair_d[WordBits-1:0]          = is_odd_q[2] ? odd : even;
    pair_d[2*WordBits-1:WordBits] = is_odd_q[2] ? even : odd;
    if (!has_low_q[2]) begin
      pair_d[WordBits-1:0] = '0;
    end
    if (!has_high_q[2]) begin
      pair_d[2*WordBits-1:WordBits] = '0;
    end
  end

  if (BodyWords < 4 || (BodyWords & (BodyWords - 1)) != 0) begin : gen_bad_body
    $error("BodyWords is %0d, expected a power of two from 4 on", BodyWords);
  end
  if (WordBytes != 64 && WordBytes != 32) begin : gen_bad_word
    $error("WordBytes is %0d, expected 32 or 64", WordBytes);
  end

endmodule
