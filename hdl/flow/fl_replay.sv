// SPDX-License-Identifier: Apache-2.0 OR MIT
// Queue whose words come again: a word that was taken stays until it is committed.
//
//   committed │ taken, in the stages after the queue │ waiting
//             ▲ rewind_i: these come again           ▲ next
//
// Its memory is read asynchronously, as LUT RAM is: for at most a few hundred words.
//
// Latency: 1 cycle.
// Throughput: one word a cycle.
// Handshake: valid and ready at the output; at the input the caller sees to it that there is room (count_o). commit_i
// lets the oldest word go that was taken. A word that is taken in the cycle of rewind_i comes again too.
// Source: the elastic buffer before a flush region. [eHDL 4.2]
module fl_replay #(
    parameter int unsigned Width = 8,
    parameter int unsigned Depth = 16,
    localparam int unsigned CountBits = $clog2(Depth + 1)
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    input  logic                 in_valid_i,
    input  logic [Width-1:0]     in_data_i,
    output logic                 out_valid_o,
    input  logic                 out_ready_i,
    output logic [Width-1:0]     out_data_o,
    input  logic                 commit_i,
    input  logic                 rewind_i,
    // Words that are not committed.
    output logic [CountBits-1:0] count_o
);

  localparam int unsigned AddressBits = $clog2(Depth);
  localparam logic [AddressBits-1:0] Last = AddressBits'(Depth - 1);

  function automatic logic [AddressBits-1:0] after(logic [AddressBits-1:0] address);
    return (address == Last) ? '0 : address + 1'b1;
  endfunction

  logic [Width-1:0]       words_q[Depth];
  logic [AddressBits-1:0] write_q, read_q, oldest_q;
  // Words that wait, and words that are not committed.
  logic [CountBits-1:0]   waiting_q, count_q;
  logic                   take;

  assign out_valid_o = waiting_q != '0;
  assign out_data_o  = words_q[read_q];
  assign count_o     = count_q;
  assign take        = out_valid_o && out_ready_i;

  always_ff @(posedge clk_i) begin
    if (in_valid_i) begin
      words_q[write_q] <= in_data_i;
      write_q          <= after(write_q);
    end
    if (commit_i) begin
      oldest_q <= after(oldest_q);
    end
    if (rewind_i) begin
      read_q    <= oldest_q;
      waiting_q <= count_q + CountBits'(in_valid_i);
    end else begin
      if (take) begin
        read_q <= after(read_q);
      end
      waiting_q <= waiting_q + CountBits'(in_valid_i) - CountBits'(take);
    end
    count_q <= count_q + CountBits'(in_valid_i) - CountBits'(commit_i);
    if (rst_i) begin
      write_q   <= '0;
      read_q    <= '0;
      oldest_q  <= '0;
      waiting_q <= '0;
      count_q   <= '0;
    end
  end

  if (Width == 0) begin : gen_bad_width
    $error("Width is 0, expected at least 1");
  end
  if (Depth < 2) begin : gen_bad_depth
    $error("Depth is %0d, expected at least 2", Depth);
  end

`ifndef SYNTHESIS
  a_room : assert property (@(posedge clk_i) disable iff (rst_i) in_valid_i |-> count_q != CountBits'(Depth));
  a_commit : assert property (@(posedge clk_i) disable iff (rst_i) commit_i |-> count_q != waiting_q && !rewind_i);
`endif

endmodule
