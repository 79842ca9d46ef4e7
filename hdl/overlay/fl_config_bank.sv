// SPDX-License-Identifier: Apache-2.0 OR MIT
// Configuration of a block that is the same for all packets of a function, in two banks.
//
// Latency: 0 cycles from bank to configuration; a write is visible in the next cycle.
// Throughput: one word written a cycle.
// Handshake: none.
module fl_config_bank
  import fl_config_pkg::*;
#(
    parameter int unsigned Bits = 32,
    parameter logic [7:0] Unit = 8'd0
) (
    input  logic            clk_i,
    input  config_t         config_i,
    input  logic            bank_i,
    output logic [Bits-1:0] config_o
);

  localparam int unsigned Words = (Bits + 31) / 32;

  logic [Words-1:0][31:0] first_q, second_q;

  always_ff @(posedge clk_i) begin
    for (int unsigned word = 0; word < Words; word++) begin
      if (config_i.valid && config_i.unit == Unit && config_i.index == 16'(word)) begin
        if (config_i.bank) second_q[word] <= config_i.data;
        else first_q[word] <= config_i.data;
      end
    end
  end

  // The last word may have bits to spare.
  logic [32*Words-1:0] selected;
  logic                unused;
  assign selected = bank_i ? second_q : first_q;
  assign config_o = selected[Bits-1:0];
  assign unused   = ^selected;

  if (Bits == 0 || Words > 65536) begin : gen_bad_bits
    $error("Bits is %0d, expected 1 to %0d", Bits, 32 * 65536);
  end

endmodule
