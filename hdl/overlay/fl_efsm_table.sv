// SPDX-License-Identifier: Apache-2.0 OR MIT
// EFSM table: ternary memory, whose first row that matches is found.
//
//   key ─► pieces of 5 bits ─► 32 words of one bit for each row ─► AND ─► the first row
//
// A piece is looked up in distributed RAM: the word of its value has the bit of each row that admits this value. So a
// row can compare a piece with any set of values, of which ternary bits are a special case. The word of value v of
// piece p has the index p * 32 + v; for more than 32 rows, rows 32 and up have the indices from 2^15 on.
//
// Latency: 0 cycles from key to row; a write is visible in the next cycle.
// Throughput: one key a cycle.
// Handshake: none.
// Source: [FlowBlaze 4.4]; the memory in the form of a look-up table for each piece is from the papers on ternary
// memories in FPGAs that it cites.
module fl_efsm_table
  import fl_config_pkg::*;
#(
    parameter int unsigned KeyBits = 160,
    parameter int unsigned Rows = 32,
    parameter logic [7:0] Unit = 8'd0,
    localparam int unsigned RowBits = (Rows > 1) ? $clog2(Rows) : 1
) (
    input  logic               clk_i,
    input  config_t            config_i,
    input  logic               bank_i,
    input  logic [KeyBits-1:0] key_i,
    output logic               hit_o,
    output logic [RowBits-1:0] row_o
);

  localparam int unsigned PieceBits = 5;
  localparam int unsigned Pieces = (KeyBits + PieceBits - 1) / PieceBits;
  localparam int unsigned Groups = (Rows + 31) / 32;

  logic [Pieces*PieceBits-1:0] key;
  logic [Pieces-1:0][Rows-1:0] admitted;
  logic [Rows-1:0]             matching;
  logic                        unused;

  assign key    = (Pieces * PieceBits)'(key_i);
  assign unused = ^config_i;

  for (genvar piece = 0; piece < Pieces; piece++) begin : gen_piece
    for (genvar group = 0; group < Groups; group++) begin : gen_group
      localparam int unsigned Width = (32 * (group + 1) <= Rows) ? 32 : Rows - 32 * group;
      (* ram_style = "distributed" *)
      logic [Width-1:0] words_q[2**(PieceBits+1)];
      logic             is_written;

      assign is_written = config_i.valid && config_i.unit == Unit && config_i.index[15] == 1'(group)
          && config_i.index[14:PieceBits] == (15 - PieceBits)'(piece);
      always_ff @(posedge clk_i) begin
        if (is_written) words_q[{config_i.bank, config_i.index[PieceBits-1:0]}] <= config_i.data[Width-1:0];
      end
      assign admitted[piece][32*group+:Width] = words_q[{bank_i, key[PieceBits*piece+:PieceBits]}];
    end
  end

  always_comb begin
    matching = '1;
    for (int unsigned piece = 0; piece < Pieces; piece++) matching &= admitted[piece];
    hit_o = matching != '0;
    row_o = '0;
    for (int unsigned row = Rows; row > 0; row--) begin
      if (matching[row-1]) row_o = RowBits'(row - 1);
    end
  end

  if (Rows == 0 || Rows > 64) begin : gen_bad_rows
    $error("Rows is %0d, expected 1 to 64", Rows);
  end

endmodule
