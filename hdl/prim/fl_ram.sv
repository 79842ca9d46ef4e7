// SPDX-License-Identifier: Apache-2.0 OR MIT
// Block RAM with one port to write and one to read, with a registered output.
//
// Latency: 2 cycles from address to data.
// Throughput: one read and one write a cycle.
// Handshake: none.
// A read in the cycle of a write to the same address returns the old word.
module fl_ram #(
    parameter int unsigned Width = 8,
    parameter int unsigned Depth = 16,
    localparam int unsigned AddressBits = (Depth > 1) ? $clog2(Depth) : 1
) (
    input  logic                   clk_i,
    input  logic                   write_i,
    input  logic [AddressBits-1:0] write_address_i,
    input  logic [Width-1:0]       write_data_i,
    input  logic [AddressBits-1:0] read_address_i,
    output logic [Width-1:0]       read_data_o
);

  (* ram_style = "block" *)
  logic [Width-1:0] words_q[Depth];
  logic [Width-1:0] word_q, out_q;

  assign read_data_o = out_q;

  always_ff @(posedge clk_i) begin
    if (write_i) begin
      words_q[write_address_i] <= write_data_i;
    end
    word_q <= words_q[read_address_i];
    out_q  <= word_q;
  end

  if (Width == 0) begin : gen_bad_width
    $error("Width is 0, expected at least 1");
  end
  if (Depth < 2) begin : gen_bad_depth
    $error("Depth is %0d, expected at least 2", Depth);
  end

endmodule
