// SPDX-License-Identifier: Apache-2.0 OR MIT
// Free list of the slots of a table, in the order of their release.
//
// Latency: 1 cycle from a taken slot to the next one; a released slot is taken again after RestCycles, at least 5.
// Throughput: one slot taken and one released a cycle.
// Handshake: valid and ready for taking. A release is always accepted.
// Source: crates/state/src/cuckoo/slots.rs.
module fl_slots #(
    parameter int unsigned Slots = 1024,
    parameter int unsigned RestCycles = 8,
    localparam int unsigned SlotBits = (Slots > 1) ? $clog2(Slots) : 1
) (
    input  logic                clk_i,
    input  logic                rst_i,
    output logic                slot_valid_o,
    input  logic                slot_ready_i,
    output logic [SlotBits-1:0] slot_o,
    input  logic                release_i,
    input  logic [SlotBits-1:0] release_slot_i
);

  localparam int unsigned CountBits = $clog2(Slots + 1);

  // Slots that were never taken come first.
  logic [CountBits-1:0]  fresh_q;
  logic                  is_fresh, take;
  // A released slot is visible to takers when its pulse has passed.
  logic [RestCycles-2:0] resting_q;
  logic [CountBits-1:0]  rested_q;
  logic                  head_valid, released_ready;
  logic [SlotBits-1:0]   head;

  assign is_fresh     = fresh_q != CountBits'(Slots);
  assign slot_valid_o = is_fresh || (head_valid && rested_q != '0);
  assign slot_o       = is_fresh ? SlotBits'(fresh_q) : head;
  assign take         = slot_valid_o && slot_ready_i;

  always_ff @(posedge clk_i) begin
    if (take && is_fresh) begin
      fresh_q <= fresh_q + 1'b1;
    end
    resting_q <= {resting_q[RestCycles-3:0], release_i};
    rested_q  <= rested_q + CountBits'(resting_q[RestCycles-2]) - CountBits'(take && !is_fresh);
    if (rst_i) begin
      fresh_q   <= '0;
      resting_q <= '0;
      rested_q  <= '0;
    end
  end

  fl_fifo_ram #(
      .Width(SlotBits),
      .Depth(Slots)
  ) u_released (
      .clk_i,
      .rst_i,
      .in_valid_i(release_i),
      .in_ready_o(released_ready),
      .in_data_i(release_slot_i),
      .out_valid_o(head_valid),
      .out_ready_i(slot_ready_i && !is_fresh && rested_q != '0),
      .out_data_o(head)
  );

`ifndef SYNTHESIS
  a_room : assert property (@(posedge clk_i) disable iff (rst_i) release_i |-> released_ready);
`endif

  if (RestCycles < 5) begin : gen_bad_rest
    $error("RestCycles is %0d, expected at least 5", RestCycles);
  end
  if (Slots < 2) begin : gen_bad_slots
    $error("Slots is %0d, expected at least 2", Slots);
  end

endmodule
