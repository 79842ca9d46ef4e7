// SPDX-License-Identifier: Apache-2.0 OR MIT
// Results of the core with the packets that they belong to, in order.
//
//   a packet begins ─────────► packets ──┐
//   a result ──► verdict ──► results ────┴──► what leaves: verdict, egress port, start and end, edits
//
// A result may be an extra packet, which a packet sends besides itself. Extra packets come before the result of their
// packet, and only that one takes the packet from its queue.
//
// Latency: 1 cycle from a result to what leaves.
// Throughput: one result a cycle.
// Handshake: results are always accepted: start_o limits the packets in the core to the places for their results. With
// HasExtra, the places are outside (fl_jobs), and results have valid and ready.
module fl_results #(
    // Packets in the core and results that wait.
    parameter int unsigned InFlight = 16,
    // Results may be extra packets.
    parameter bit HasExtra = 1'b0,
    parameter int unsigned PlaceBits = 8,
    // Bits of a result for the patch.
    parameter int unsigned EditBits = 1
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    // Another packet may begin; one is about to; one has.
    output logic                 start_o,
    input  logic                 started_i,
    input  logic                 begin_i,
    input  logic [15:0]          length_i,
    input  logic [31:0]          port_i,
    input  logic [PlaceBits-1:0] place_i,
    // The result of the oldest packet in the core (fl_emitter).
    input  logic                 valid_i,
    output logic                 ready_o,
    input  logic                 is_extra_i,
    input  logic [31:0]          verdict_i,
    input  logic                 has_target_i,
    input  logic [31:0]          target_i,
    input  logic [1:0]           spread_i,
    input  logic [31:0]          head_i,
    input  logic [31:0]          tail_i,
    input  logic [EditBits-1:0]  edits_i,
    input  logic                 slow_i,
    // What leaves next: whether anything of it does, with its edits, and the packet as received.
    output logic                 valid_o,
    input  logic                 ready_i,
    output logic                 is_extra_o,
    output logic [2:0]           verdict_o,
    output logic                 sends_o,
    output logic [31:0]          port_o,
    output logic [15:0]          head_o,
    output logic [15:0]          tail_o,
    output logic [EditBits-1:0]  edits_o,
    output logic                 has_edits_o,
    output logic [15:0]          length_o,
    output logic [PlaceBits-1:0] place_o
);

  localparam int unsigned FlightBits = $clog2(InFlight + 1);
  localparam int unsigned Places = HasExtra ? 4 : InFlight;
  localparam int unsigned PlacesBits = $clog2(Places + 1);

  typedef enum logic [2:0] {
    Aborted  = 3'd0,
    Drop     = 3'd1,
    Pass     = 3'd2,
    Tx       = 3'd3,
    Redirect = 3'd4,
    Slow     = 3'd5,
    All      = 3'd6,
    Others   = 3'd7
  } verdict_e;

  typedef struct packed {
    logic [15:0]          length;
    logic [31:0]          port;
    logic [PlaceBits-1:0] place;
  } packet_t;

  typedef struct packed {
    logic                is_extra;
    logic [2:0]          verdict;
    logic [31:0]         target;
    logic [15:0]         head;
    logic [15:0]         tail;
    logic [EditBits-1:0] edits;
  } result_t;

  logic [FlightBits-1:0] flight_q;
  packet_t               packet;
  result_t               result_d, result;
  logic                  packet_valid, packet_ready, result_ready, take_packet, unused;
  logic [FlightBits-1:0] unused_packets;
  logic [PlacesBits-1:0] unused_results;

  assign start_o     = flight_q != FlightBits'(InFlight);
  assign ready_o     = result_ready;
  assign take_packet = valid_o && ready_i && !result.is_extra;
  assign unused      = ^{unused_packets, unused_results, head_i[31:16], tail_i[31:16], packet_valid, packet_ready};

  always_comb begin
    result_d = '{is_extra: is_extra_i, verdict: Aborted, target: target_i, head: head_i[15:0], tail: tail_i[15:0],
                 edits: edits_i};
    if (slow_i) begin
      result_d.verdict = Slow;
    end else if (verdict_i <= 32'(Tx) || (verdict_i == 32'(Redirect) && has_target_i)) begin
      result_d.verdict = verdict_i[2:0];
    end
    if (result_d.verdict == Redirect && spread_i[1]) begin
      result_d.verdict = spread_i[0] ? Others : All;
    end
    if (is_extra_i) begin
      result_d.verdict = Aborted;
    end
  end

  fl_fifo #(
      .Width($bits(packet_t)),
      .Depth(InFlight)
  ) u_packets (
      .clk_i,
      .rst_i,
      .in_valid_i(begin_i),
      .in_ready_o(packet_ready),
      .in_data_i({length_i, port_i, place_i}),
      .out_valid_o(packet_valid),
      .out_ready_i(take_packet),
      .out_data_o(packet),
      .count_o(unused_packets)
  );

  fl_fifo #(
      .Width($bits(result_t)),
      .Depth(Places)
  ) u_results (
      .clk_i,
      .rst_i,
      .in_valid_i(valid_i),
      .in_ready_o(result_ready),
      .in_data_i(result_d),
      .out_valid_o(valid_o),
      .out_ready_i(ready_i),
      .out_data_o(result),
      .count_o(unused_results)
  );

  assign is_extra_o  = result.is_extra;
  assign verdict_o   = result.verdict;
  assign sends_o     = result.is_extra || result.verdict inside {Pass, Tx, Redirect, Slow, All, Others};
  assign port_o      = (result.is_extra || result.verdict inside {Redirect, All, Others}) ? result.target : packet.port;
  assign head_o      = (result.verdict == Slow) ? '0 : result.head;
  assign tail_o      = (result.verdict == Slow) ? packet.length : result.tail;
  assign edits_o     = result.edits;
  assign has_edits_o = result.verdict != Slow;
  assign length_o    = packet.length;
  assign place_o     = packet.place;

  always_ff @(posedge clk_i) begin
    flight_q <= flight_q + FlightBits'(started_i) - FlightBits'(take_packet);
    if (rst_i) begin
      flight_q <= '0;
    end
  end

  if (InFlight < 2) begin : gen_bad_flight
    $error("InFlight is %0d, expected at least 2", InFlight);
  end

`ifndef SYNTHESIS
  // Every result has a place, and is one of a packet that began.
  a_packets : assert property (@(posedge clk_i) disable iff (rst_i) begin_i |-> packet_ready);
  a_results : assert property (@(posedge clk_i) disable iff (rst_i) valid_i && !HasExtra |-> result_ready);
  // A register of its own, as in fl_framer.
  logic is_extra_q;
  always_ff @(posedge clk_i) is_extra_q <= valid_i && is_extra_i && !rst_i;
  a_extra : assert property (@(posedge clk_i) disable iff (rst_i) is_extra_q |-> HasExtra);
  a_order : assert property (@(posedge clk_i) disable iff (rst_i) valid_o |-> packet_valid);
`endif

endmodule
