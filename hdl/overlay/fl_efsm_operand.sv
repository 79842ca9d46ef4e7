// SPDX-License-Identifier: Apache-2.0 OR MIT
// Operand crossbar: one operand of a comparator, an ALU or a write unit.
//
// Operands are numbered: words of the header vector, flow registers, global registers, the state, two moving averages,
// and the constant of the instruction last.
//
// Latency: 0 cycles. Throughput: one operand a cycle. Handshake: none.
module fl_efsm_operand #(
    // All operands, with the constant.
    parameter int unsigned Operands = 40,
    localparam int unsigned OperandBits = $clog2(Operands)
) (
    input  logic [OperandBits-1:0]    select_i,
    input  logic [Operands-2:0][31:0] operands_i,
    input  logic [31:0]               constant_i,
    output logic [31:0]               operand_o
);

  assign operand_o = (select_i == OperandBits'(Operands - 1)) ? constant_i : operands_i[select_i];

endmodule
