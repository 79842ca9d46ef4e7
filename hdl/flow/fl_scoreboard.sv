// SPDX-License-Identifier: Apache-2.0 OR MIT
// Scoreboard of a map: the keys of the packets that were issued in the last cycles, whose results are not visible yet.
//
//   cycle    0           1           2           3
//            A issued    B waits     B waits     B issued      Cycles = 2, A and B have one key
//
// A packet that does not use the map, or has another key, waits for nothing. With all_i, every two packets that use it
// are kept apart.
//
// Latency: 0 cycles from key to conflict; an issue is seen in the next cycle.
// Throughput: one packet a cycle.
// Handshake: none; issue_i must not be high where conflict_o is.
// Source: [eHDL 4.1] and [FlowBlaze 4.2], without overtaking (docs/adr/0022-scheduler-in-order.md).
module fl_scoreboard #(
    parameter int unsigned KeyBits = 32,
    // Cycles after its issue in which a packet's result is not visible yet.
    parameter int unsigned Cycles = 1
) (
    input  logic               clk_i,
    input  logic               rst_i,
    // The packet that is next, whether it uses the map, and its key.
    input  logic               uses_i,
    input  logic [KeyBits-1:0] key_i,
    input  logic               all_i,
    output logic               conflict_o,
    // It is issued.
    input  logic               issue_i
);

  typedef struct packed {
    logic               valid;
    logic [KeyBits-1:0] key;
  } issued_t;

  // The newest packet is in entry 1.
  issued_t [Cycles:1] issued_q;

  always_comb begin
    conflict_o = 1'b0;
    for (int unsigned age = 1; age <= Cycles; age++) begin
      conflict_o |= uses_i && issued_q[age].valid && (all_i || issued_q[age].key == key_i);
    end
  end

  always_ff @(posedge clk_i) begin
    issued_q[1] <= '{valid: issue_i && uses_i, key: key_i};
    for (int unsigned age = 2; age <= Cycles; age++) issued_q[age] <= issued_q[age-1];
    if (rst_i) begin
      for (int unsigned age = 1; age <= Cycles; age++) issued_q[age].valid <= 1'b0;
    end
  end

  if (Cycles == 0) begin : gen_bad_cycles
    $error("Cycles is 0, expected at least 1");
  end

`ifndef SYNTHESIS
  logic is_early_q;
  always_ff @(posedge clk_i) begin
    is_early_q <= issue_i && conflict_o && !rst_i;
  end
  a_early : assert property (@(posedge clk_i) disable iff (rst_i) !is_early_q);
`endif

endmodule
