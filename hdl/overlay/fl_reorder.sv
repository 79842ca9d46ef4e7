// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reorder buffer: gives what comes with slot numbers in any order in the order of the slots.
//
// Slots are numbered modulo Slots; fewer than half of them are on their way at a time.
//
// Latency: 3 cycles, from the later one of its arrival and that of the slot before.
// Throughput: one a cycle.
// Handshake: none; there is a place for each slot.
module fl_reorder #(
    parameter int unsigned Slots = 256,
    parameter int unsigned Width = 8,
    localparam int unsigned SlotBits = $clog2(Slots)
) (
    input  logic                clk_i,
    input  logic                rst_i,
    input  logic                valid_i,
    input  logic [SlotBits-1:0] slot_i,
    input  logic [Width-1:0]    data_i,
    output logic                valid_o,
    output logic [SlotBits-1:0] slot_o,
    output logic [Width-1:0]    data_o
);

  logic [Slots-1:0]    arrived_q;
  logic [SlotBits-1:0] next_q, slot1_q, slot2_q;
  logic [2:1]          valid_q;
  logic                gives;

  assign gives = arrived_q[next_q];

  fl_ram #(
      .Width(Width),
      .Depth(Slots)
  ) u_data (
      .clk_i,
      .write_i        (valid_i),
      .write_address_i(slot_i),
      .write_data_i   (data_i),
      .read_address_i (next_q),
      .read_data_o    (data_o)
  );

  assign valid_o = valid_q[2];
  assign slot_o  = slot2_q;

  always_ff @(posedge clk_i) begin
    valid_q <= {valid_q[1], gives};
    slot1_q <= next_q;
    slot2_q <= slot1_q;
    if (valid_i) arrived_q[slot_i] <= 1'b1;
    if (gives) begin
      arrived_q[next_q] <= 1'b0;
      next_q            <= next_q + 1'b1;
    end
    if (rst_i) begin
      arrived_q <= '0;
      next_q    <= '0;
      valid_q   <= '0;
    end
  end

  if (Slots < 2 || (Slots & (Slots - 1)) != 0) begin : gen_bad_slots
    $error("Slots is %0d, expected a power of two", Slots);
  end

endmodule
