// SPDX-License-Identifier: Apache-2.0 OR MIT
// Skid buffer: cuts the paths of valid, data and ready between two stages.
//
// Latency: 1 cycle.
// Throughput: one word a cycle.
// Handshake: valid and ready on both sides. No output depends on an input in the same cycle.
module fl_skid #(
    parameter int unsigned Width = 8
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

  // The word at the output, and the one that arrived in the cycle in which the output stalled.
  logic             out_valid_q, skid_valid_q;
  logic [Width-1:0] out_data_q, skid_data_q;

  assign in_ready_o  = !skid_valid_q;
  assign out_valid_o = out_valid_q;
  assign out_data_o  = out_data_q;

  always_ff @(posedge clk_i) begin
    if (out_ready_i || !out_valid_q) begin
      out_valid_q <= skid_valid_q || in_valid_i;
      out_data_q  <= skid_valid_q ? skid_data_q : in_data_i;
      skid_valid_q <= 1'b0;
    end else if (in_valid_i && in_ready_o) begin
      skid_valid_q <= 1'b1;
      skid_data_q  <= in_data_i;
    end
    if (rst_i) begin
      out_valid_q  <= 1'b0;
      skid_valid_q <= 1'b0;
    end
  end

  if (Width == 0) begin : gen_bad_width
    $error("Width is 0, expected at least 1");
  end

endmodule
