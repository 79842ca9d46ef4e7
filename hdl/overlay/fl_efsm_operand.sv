// SPDX-License-Identifier: Apache-2.0 OR MIT
// Operand crossbar: one operand of a comparator, an ALU or a write unit.
//
// Operands are numbered: words of the header vector, flow registers, global registers, the state, two moving averages,
// and the constant of the instruction last.
//
// Latency: 0 cycles. Throughput: one operand a cycle. Handshake: none.
module fl_efsm_operand #(
    parameter int unsigned Words = 24,
    parameter int unsigned Registers = 4,
    parameter int unsigned Globals = 8,
    localparam int unsigned Operands = Words + Registers + Globals + 4,
    localparam int unsigned OperandBits = $clog2(Operands)
) (
    input  logic [OperandBits-1:0]     select_i,
    input  logic [Words-1:0][31:0]     words_i,
    input  logic [Registers-1:0][31:0] registers_i,
    input  logic [Globals-1:0][31:0]   globals_i,
    input  logic [7:0]                 state_i,
    input  logic [1:0][31:0]           averages_i,
    input  logic [31:0]                constant_i,
    output logic [31:0]                operand_o
);

  logic [2**OperandBits-1:0][31:0] all;

  always_comb begin
    all = '0;
    all[Words-1:0] = words_i;
    all[Words+:Registers] = registers_i;
    all[Words+Registers+:Globals] = globals_i;
    all[Words+Registers+Globals] = 32'(state_i);
    all[Words+Registers+Globals+1+:2] = averages_i;
    all[Words+Registers+Globals+3] = constant_i;
  end

  assign operand_o = all[select_i];

endmodule
