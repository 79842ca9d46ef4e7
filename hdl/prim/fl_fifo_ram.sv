// SPDX-License-Identifier: Apache-2.0 OR MIT
// FIFO in one clock domain, in block RAM: for thousands of words.
//
// Latency: 4 cycles.
// Throughput: one word a cycle.
// Handshake: valid and ready on both sides. in_ready_o does not depend on out_ready_i.
// It holds Depth words in the RAM and up to four more that have been read ahead.
module fl_fifo_ram #(
    parameter int unsigned Width = 8,
    parameter int unsigned Depth = 512
) (
    input  logic             clk_i,
    input  logic             rst_i,
    input  logic             in_valid_i,
    output logic             in_ready_o,
    input  logic [Width-1:0] in_data_i,
    output logic             out_valid_o,
    input  logic             out_ready_i,
    output logic [Width-1:0] out_data_o
);

  localparam int unsigned AddressBits = (Depth > 1) ? $clog2(Depth) : 1;
  localparam int unsigned CountBits = $clog2(Depth + 1);
  localparam int unsigned Ahead = 4;
  localparam int unsigned AheadBits = $clog2(Ahead + 1);
  localparam logic [AddressBits-1:0] Last = AddressBits'(Depth - 1);

  logic [AddressBits-1:0] write_q, read_q;
  logic [CountBits-1:0]   count_q;
  logic [1:0]             reading_q;
  logic [AheadBits-1:0]   ahead, reserved;
  logic [Width-1:0]       word;
  logic                   put, fetch, ahead_ready;

  assign in_ready_o = count_q != CountBits'(Depth);
  assign put        = in_valid_i && in_ready_o;
  // Reads in flight and words read ahead have room at the output.
  assign reserved   = ahead + AheadBits'(reading_q[0]) + AheadBits'(reading_q[1]);
  assign fetch      = (count_q != '0) && (reserved < AheadBits'(Ahead));

  always_ff @(posedge clk_i) begin
    if (put) begin
      write_q <= (write_q == Last) ? '0 : write_q + 1'b1;
    end
    if (fetch) begin
      read_q <= (read_q == Last) ? '0 : read_q + 1'b1;
    end
    count_q   <= count_q + CountBits'(put) - CountBits'(fetch);
    reading_q <= {reading_q[0], fetch};
    if (rst_i) begin
      write_q   <= '0;
      read_q    <= '0;
      count_q   <= '0;
      reading_q <= '0;
    end
  end

  fl_ram #(
      .Width(Width),
      .Depth(Depth)
  ) u_words (
      .clk_i,
      .write_i(put),
      .write_address_i(write_q),
      .write_data_i(in_data_i),
      .read_address_i(read_q),
      .read_data_o(word)
  );

  fl_fifo #(
      .Width(Width),
      .Depth(Ahead)
  ) u_ahead (
      .clk_i,
      .rst_i,
      .in_valid_i(reading_q[1]),
      .in_ready_o(ahead_ready),
      .in_data_i(word),
      .out_valid_o,
      .out_ready_i,
      .out_data_o,
      .count_o(ahead)
  );

`ifndef SYNTHESIS
  // A word that was read has a place.
  a_room : assert property (@(posedge clk_i) disable iff (rst_i) reading_q[1] |-> ahead_ready);
`endif

endmodule
