// SPDX-License-Identifier: Apache-2.0 OR MIT
// Configuration in rows, of which each packet reads one, in two banks: distributed RAM.
//
// Word w of row r has the index r * 2^LaneBits + w.
//
// Latency: 0 cycles from bank and row to the configuration; a write is visible in the next cycle.
// Throughput: one word written a cycle.
// Handshake: none.
module fl_config_rows
  import fl_config_pkg::*;
#(
    parameter int unsigned Bits = 32,
    parameter int unsigned Rows = 32,
    parameter logic [7:0] Unit = 8'd0,
    localparam int unsigned Words = (Bits + 31) / 32,
    localparam int unsigned LaneBits = (Words > 1) ? $clog2(Words) : 1,
    localparam int unsigned RowBits = (Rows > 1) ? $clog2(Rows) : 1
) (
    input  logic               clk_i,
    input  config_t            config_i,
    input  logic               bank_i,
    input  logic [RowBits-1:0] row_i,
    output logic [Bits-1:0]    config_o
);

  logic [32*Words-1:0] row;
  logic                unused;
  assign config_o = row[Bits-1:0];
  assign unused   = ^{row, config_i};

  for (genvar lane = 0; lane < Words; lane++) begin : gen_lane
    localparam int unsigned Width = (lane + 1 < Words) ? 32 : Bits - 32 * (Words - 1);
    (* ram_style = "distributed" *)
    logic [Width-1:0] words_q[2**(RowBits+1)];
    logic             is_written;

    assign is_written = config_i.valid && config_i.unit == Unit && config_i.index[LaneBits-1:0] == LaneBits'(lane);
    always_ff @(posedge clk_i) begin
      if (is_written) begin
        words_q[{config_i.bank, config_i.index[LaneBits+:RowBits]}] <= config_i.data[Width-1:0];
      end
    end
    assign row[32*lane+:32] = 32'(words_q[{bank_i, row_i}]);
  end

  if (LaneBits + RowBits > 16) begin : gen_bad_rows
    $error("Rows is %0d with %0d words, expected at most 65536 words", Rows, Words);
  end

endmodule
