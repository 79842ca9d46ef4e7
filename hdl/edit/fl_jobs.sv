// SPDX-License-Identifier: Apache-2.0 OR MIT
// Jobs of results: the packets that a packet sends besides itself, in program order, then the packet itself.
//
//   results ─► FIFO ─► calls that happen, less those made ─► one job after another
//
// Latency: 1 cycle.
// Throughput: one job a cycle.
// Handshake: results are always accepted: there is a place for each packet in the core. Jobs: valid and ready.
module fl_jobs #(
    // Packets that a packet sends besides itself, at most.
    parameter int unsigned Sends = 1,
    // Bits of a result.
    parameter int unsigned Width = 1,
    // Packets in the core and results that wait.
    parameter int unsigned InFlight = 16,
    localparam int unsigned JobBits = $clog2(Sends + 1)
) (
    input  logic               clk_i,
    input  logic               rst_i,
    // The result of the oldest packet in the core, and by call whether it happens.
    input  logic               valid_i,
    input  logic [Sends-1:0]   sends_i,
    input  logic [Width-1:0]   result_i,
    // A job: the number of the call, or Sends for the packet itself, whose other jobs come before.
    output logic               valid_o,
    input  logic               ready_i,
    output logic               is_extra_o,
    output logic [JobBits-1:0] job_o,
    output logic [Width-1:0]   result_o
);

  localparam int unsigned FlightBits = $clog2(InFlight + 1);

  logic [Sends-1:0]      sends, made_q, left;
  logic                  ready, unused;
  logic [FlightBits-1:0] unused_count;

  assign left      = sends & ~made_q;
  assign is_extra_o = left != '0;
  assign unused    = ^{unused_count, ready};

  // The first one that is left.
  always_comb begin
    job_o = JobBits'(Sends);
    for (int unsigned i = 0; i < Sends; i++) begin
      if (left[Sends-1-i]) job_o = JobBits'(Sends - 1 - i);
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_o && ready_i) begin
      made_q <= is_extra_o ? made_q | (Sends'(1) << job_o) : '0;
    end
    if (rst_i) begin
      made_q <= '0;
    end
  end

  fl_fifo #(
      .Width(Sends + Width),
      .Depth(InFlight)
  ) u_results (
      .clk_i,
      .rst_i,
      .in_valid_i(valid_i),
      .in_ready_o(ready),
      .in_data_i({sends_i, result_i}),
      .out_valid_o(valid_o),
      .out_ready_i(ready_i && !is_extra_o),
      .out_data_o({sends, result_o}),
      .count_o(unused_count)
  );

  if (Sends == 0) begin : gen_bad_sends
    $error("Sends is 0, expected at least 1");
  end

`ifndef SYNTHESIS
  // Every result has a place.
  a_results : assert property (@(posedge clk_i) disable iff (rst_i) valid_i |-> ready);
`endif

endmodule
