// SPDX-License-Identifier: Apache-2.0 OR MIT
// Block RAM with one port to write and one to read, whose reads see the write of the same cycle.
//
//   cycle  0                   1
//          address             word, or what was written to this address in cycle 0
//
// Latency: 1 cycle from address to data.
// Throughput: one read and one write a cycle.
// Handshake: none.
// A read in the cycle of a write to the same address returns the new word.
module fl_ram_forward #(
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

  logic                   write_q;
  logic [AddressBits-1:0] write_address_q, read_address_q;
  logic [Width-1:0]       write_data_q, word, unused_word;

  fl_ram_dual #(
      .Width (Width),
      .Depth (Depth),
      .EarlyA(1'b1)
  ) u_ram (
      .clk_i,
      .a_address_i(read_address_i),
      .a_data_o   (word),
      .b_address_i(write_address_i),
      .b_write_i  (write_i),
      .b_data_i   (write_data_i),
      .b_data_o   (unused_word)
  );

  assign read_data_o = (write_q && write_address_q == read_address_q) ? write_data_q : word;

  always_ff @(posedge clk_i) begin
    write_q         <= write_i;
    write_address_q <= write_address_i;
    write_data_q    <= write_data_i;
    read_address_q  <= read_address_i;
  end

endmodule
