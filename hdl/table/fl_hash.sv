// SPDX-License-Identifier: Apache-2.0 OR MIT
// Hash unit: the rows of a key in the four banks of a table.
//
//   key -> XOR of columns (H3) -> left, right -> 2 rounds -> register
//     -> 2 rounds -> 4 hashes -> x Rows, integer part -> 4 rows
//
// Latency: 1 cycle; the last rounds and the rows are logic after it, for the address of a RAM.
// Throughput: one key a cycle.
// Handshake: none.
// Source: crates/state/src/hash.rs, its twin in software, says why the rounds are there.
module fl_hash #(
    parameter int unsigned KeyBits = 32,
    parameter int unsigned HashBits = 10,
    parameter int unsigned Rows = 1024,
    // The bits of {right, left} that each bit of the key inverts.
    parameter logic [KeyBits-1:0][4*HashBits-1:0] Columns = '0,
    localparam int unsigned RowBits = (Rows > 1) ? $clog2(Rows) : 1
) (
    input  logic                    clk_i,
    input  logic [KeyBits-1:0]      key_i,
    output logic [3:0][RowBits-1:0] rows_o
);

  localparam int unsigned HalfBits = 2 * HashBits;
  // For keys of up to 216 bits, the sum is three LUT levels; a round is one.
  localparam int unsigned RoundsBefore = 2;
  localparam int unsigned RoundsBehind = 2;

  typedef logic [HalfBits-1:0] half_t;

  typedef struct packed {
    half_t right;
    half_t left;
  } state_t;

  function automatic state_t compress(logic [KeyBits-1:0] key);
    state_t sum = '0;
    for (int unsigned at = 0; at < KeyBits; at++) begin
      sum ^= Columns[at] & {2 * HalfBits{key[at]}};
    end
    return sum;
  endfunction

  function automatic half_t rotate(half_t half, int unsigned bits);
    return (half << bits) | (half >> (HalfBits - bits));
  endfunction

  function automatic state_t mix(state_t from, int unsigned rounds);
    state_t mixed = from;
    for (int unsigned number = 0; number < rounds; number++) begin
      mixed = '{
          left: mixed.right ^ (rotate(mixed.left, 1) & rotate(mixed.left, 8)) ^ rotate(mixed.left, 2),
          right: mixed.left
      };
    end
    return mixed;
  endfunction

  // The integer part of hash x Rows / 2^HashBits: for a power of two, a slice.
  function automatic logic [RowBits-1:0] row(logic [HashBits-1:0] hash);
    return RowBits'((64'(hash) * 64'(Rows)) >> HashBits);
  endfunction

  state_t mixed_q, hashes;

  always_ff @(posedge clk_i) begin
    mixed_q <= mix(compress(key_i), RoundsBefore);
  end
  assign hashes = mix(mixed_q, RoundsBehind);

  for (genvar way = 0; way < 4; way++) begin : gen_row
    assign rows_o[way] = row(hashes[way*HashBits+:HashBits]);
  end

  if (KeyBits == 0) begin : gen_bad_key
    $error("KeyBits is 0, expected at least 1");
  end
  if (HashBits < 8 || HashBits > 32) begin : gen_bad_hash
    $error("HashBits is %0d, expected 8 to 32", HashBits);
  end
  if (Rows == 0 || (64'(Rows) > (64'd1 << HashBits))) begin : gen_bad_rows
    $error("Rows is %0d, expected 1 to 2^HashBits", Rows);
  end

endmodule
