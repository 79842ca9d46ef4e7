// SPDX-License-Identifier: Apache-2.0 OR MIT
// A configuration word in two banks, or several such words, one of which is read.
//
// Latency: 0 cycles from the bank to the data; a write counts from the next cycle on.
// Throughput: one read and one write a cycle.
// Handshake: none.
module fl_config_word
  import fl_config_pkg::*;
#(
    parameter logic [7:0]  Unit = 8'h0,
    parameter logic [15:0] Index = 16'h0,
    parameter int unsigned Width = 32,
    // Words from Index on: a power of two.
    parameter int unsigned Entries = 1,
    localparam int unsigned AddressBits = $clog2(2 * Entries)
) (
    input  logic                   clk_i,
    input  config_t                config_i,
    // The bank in the lowest bit, the word above it.
    input  logic [AddressBits-1:0] bank_i,
    output logic [Width-1:0]       data_o
);

  (* ram_style = "distributed" *)
  logic [Width-1:0] words_q[2*Entries];
  logic        writes;
  logic [15:0] entry;

  assign entry  = config_i.index - Index;
  assign writes = config_i.valid && config_i.unit == Unit && entry < 16'(Entries);
  assign data_o = words_q[bank_i];

  always_ff @(posedge clk_i) begin
    if (writes) begin
      words_q[AddressBits'({entry, config_i.bank})] <= config_i.data[Width-1:0];
    end
  end

  if (Width < 32) begin : gen_rest
    logic unused;
    assign unused = ^config_i.data[31:Width];
  end

  if (Width == 0 || Width > 32) begin : gen_bad_width
    $error("Width is %0d, expected 1 to 32", Width);
  end

endmodule
