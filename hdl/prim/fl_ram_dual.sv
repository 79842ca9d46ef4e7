// SPDX-License-Identifier: Apache-2.0 OR MIT
// Block RAM with two ports: a reads, b reads or writes. Outputs are registered, that of port a only without EarlyA.
//
// Latency: 2 cycles from address to data; 1 at port a with EarlyA.
// Throughput: one access a cycle at each port.
// Handshake: none.
// A read in the cycle of a write to the same address returns the old word. Port b's data after a write is undefined.
module fl_ram_dual #(
    parameter int unsigned Width = 8,
    parameter int unsigned Depth = 16,
    parameter bit EarlyA = 1'b0,
    localparam int unsigned AddressBits = (Depth > 1) ? $clog2(Depth) : 1
) (
    input  logic                   clk_i,
    input  logic [AddressBits-1:0] a_address_i,
    output logic [Width-1:0]       a_data_o,
    input  logic [AddressBits-1:0] b_address_i,
    input  logic                   b_write_i,
    input  logic [Width-1:0]       b_data_i,
    output logic [Width-1:0]       b_data_o
);

  (* ram_style = "block" *)
  logic [Width-1:0] words_q[Depth];
  logic [Width-1:0] a_word_q, b_word_q, b_out_q;

  assign b_data_o = b_out_q;

  always_ff @(posedge clk_i) begin
    a_word_q <= words_q[a_address_i];
  end

  if (EarlyA) begin : gen_early
    assign a_data_o = a_word_q;
  end else begin : gen_late
    logic [Width-1:0] a_out_q;
    always_ff @(posedge clk_i) begin
      a_out_q <= a_word_q;
    end
    assign a_data_o = a_out_q;
  end

  always_ff @(posedge clk_i) begin
    if (b_write_i) begin
      words_q[b_address_i] <= b_data_i;
    end
    b_word_q <= words_q[b_address_i];
    b_out_q  <= b_word_q;
  end

  if (Width == 0) begin : gen_bad_width
    $error("Width is 0, expected at least 1");
  end
  if (Depth < 2) begin : gen_bad_depth
    $error("Depth is %0d, expected at least 2", Depth);
  end

endmodule
