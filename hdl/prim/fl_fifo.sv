// SPDX-License-Identifier: Apache-2.0 OR MIT
// FIFO in one clock domain. Its memory is read asynchronously, as LUT RAM is: for at most a few hundred words.
//
// Latency: 1 cycle.
// Throughput: one word a cycle.
// Handshake: valid and ready on both sides. in_ready_o does not depend on out_ready_i: a full FIFO accepts a word in
// the cycle after one has left.
module fl_fifo #(
    parameter int unsigned Width = 8,
    parameter int unsigned Depth = 16,
    localparam int unsigned CountBits = $clog2(Depth + 1)
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    input  logic                 in_valid_i,
    output logic                 in_ready_o,
    input  logic [Width-1:0]     in_data_i,
    output logic                 out_valid_o,
    input  logic                 out_ready_i,
    output logic [Width-1:0]     out_data_o,
    // Words in the FIFO.
    output logic [CountBits-1:0] count_o
);

  localparam int unsigned AddressBits = (Depth > 1) ? $clog2(Depth) : 1;
  localparam logic [AddressBits-1:0] Last = AddressBits'(Depth - 1);

  logic [Width-1:0]       words_q[Depth];
  logic [AddressBits-1:0] write_q, read_q;
  logic [CountBits-1:0]   count_q;
  logic                   put, take;

  assign in_ready_o  = count_q != CountBits'(Depth);
  assign out_valid_o = count_q != '0;
  assign out_data_o  = words_q[read_q];
  assign count_o     = count_q;
  assign put         = in_valid_i && in_ready_o;
  assign take        = out_valid_o && out_ready_i;

  always_ff @(posedge clk_i) begin
    if (put) begin
      words_q[write_q] <= in_data_i;
      write_q          <= (write_q == Last) ? '0 : write_q + 1'b1;
    end
    if (take) begin
      read_q <= (read_q == Last) ? '0 : read_q + 1'b1;
    end
    count_q <= count_q + CountBits'(put) - CountBits'(take);
    if (rst_i) begin
      write_q <= '0;
      read_q  <= '0;
      count_q <= '0;
    end
  end

  if (Width == 0) begin : gen_bad_width
    $error("Width is 0, expected at least 1");
  end
  if (Depth < 2) begin : gen_bad_depth
    $error("Depth is %0d, expected at least 2", Depth);
  end

endmodule
