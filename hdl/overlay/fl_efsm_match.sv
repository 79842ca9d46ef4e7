// SPDX-License-Identifier: Apache-2.0 OR MIT
// Enabling conditions and EFSM table of an element: from header and context to the row.
//
//   cycle 1: operands ─► comparators ─► conditions ─┐
//   cycle 2:   {words, presence, full, conditions, state} ─► EFSM table ─► row
//
// Latency: 2 cycles.
// Throughput: one packet a cycle.
// Handshake: none.
// Source: [FlowBlaze 3.2, 4.1]
module fl_efsm_match
  import fl_config_pkg::*;
#(
    parameter int unsigned Words = 24,
    parameter int unsigned Registers = 4,
    parameter int unsigned Globals = 8,
    parameter int unsigned Conditions = 8,
    parameter int unsigned MatchWords = 4,
    parameter int unsigned Rows = 32,
    // The first memory of the element.
    parameter logic [7:0] Unit = 8'd0,
    localparam int unsigned Operands = Words + Registers + Globals + 4,
    localparam int unsigned WordBits = $clog2(Words),
    localparam int unsigned RowBits = $clog2(Rows)
) (
    input  logic                       clk_i,
    input  config_t                    config_i,
    input  logic                       bank_i,
    // The operands without the constant: words, flow and global registers, state, averages.
    input  logic [Operands-2:0][31:0]  operands_i,
    input  logic [14:0]                presence_i,
    input  logic                       full_i,
    // Two cycles later.
    output logic                       hit_o,
    output logic [RowBits-1:0]         row_o
);

  localparam int unsigned OperandBits = $clog2(Operands);
  localparam int unsigned KeyBits = 32 * MatchWords + 16 + Conditions + 8;

  typedef struct packed {
    logic [31:0]            constant;
    logic [OperandBits-1:0] offset;
    // 0 none, 1 added, 2 subtracted.
    logic [1:0]             offset_kind;
    logic [OperandBits-1:0] right;
    logic [OperandBits-1:0] left;
    logic                   continues;
    logic [2:0]             relation;
  } comparator_t;

  typedef struct packed {
    logic [MatchWords-1:0][WordBits-1:0] words;
    comparator_t [Conditions-1:0]        comparators;
  } match_t;

  match_t                        of_bank;
  logic [Conditions-1:0]         holds, equal;
  logic [MatchWords-1:0][31:0]   match_words;
  logic [KeyBits-1:0]            key_q;
  logic                          bank_q, hit;
  logic [7:0]                    state;
  logic [RowBits-1:0]            row;

  fl_config_bank #(
      .Bits($bits(match_t)),
      .Unit(Unit)
  ) u_config (
      .clk_i,
      .config_i,
      .bank_i,
      .config_o(of_bank)
  );

  for (genvar number = 0; number < Conditions; number++) begin : gen_comparator
    logic [31:0] left, right, offset, chosen;
    logic [1:0]  offset_kind;
    logic        lower_holds, lower_equal;

    fl_efsm_operand #(
        .Operands(Operands)
    ) u_left (
        .select_i(of_bank.comparators[number].left),
        .operands_i,
        .constant_i(of_bank.comparators[number].constant),
        .operand_o(left)
    );
    fl_efsm_operand #(
        .Operands(Operands)
    ) u_right (
        .select_i(of_bank.comparators[number].right),
        .operands_i,
        .constant_i(of_bank.comparators[number].constant),
        .operand_o(right)
    );
    fl_efsm_operand #(
        .Operands(Operands)
    ) u_offset (
        .select_i(of_bank.comparators[number].offset),
        .operands_i,
        .constant_i(of_bank.comparators[number].constant),
        .operand_o(chosen)
    );
    assign offset_kind = of_bank.comparators[number].offset_kind;
    assign offset      = (offset_kind == 2'd0) ? '0 : chosen ^ {32{offset_kind[1]}};

    if (number == 0) begin : gen_first
      assign lower_holds = 1'b0;
      assign lower_equal = 1'b1;
    end else begin : gen_next
      assign lower_holds = of_bank.comparators[number].continues && holds[number-1];
      assign lower_equal = !of_bank.comparators[number].continues || equal[number-1];
    end

    fl_efsm_comparator u_comparator (
        .relation_i   (of_bank.comparators[number].relation),
        .left_i       (left),
        .right_i      (right),
        .offset_i     (offset),
        .subtracts_i  (of_bank.comparators[number].offset_kind[1]),
        .lower_holds_i(lower_holds),
        .lower_equal_i(lower_equal),
        .holds_o      (holds[number]),
        .is_equal_o   (equal[number])
    );
  end

  assign state = operands_i[Words+Registers+Globals][7:0];
  always_comb begin
    for (int unsigned at = 0; at < MatchWords; at++) match_words[at] = operands_i[OperandBits'(of_bank.words[at])];
  end

  fl_efsm_table #(
      .KeyBits(KeyBits),
      .Rows   (Rows),
      .Unit   (Unit + 8'd1)
  ) u_table (
      .clk_i,
      .config_i,
      .bank_i(bank_q),
      .key_i (key_q),
      .hit_o (hit),
      .row_o (row)
  );

  always_ff @(posedge clk_i) begin
    key_q  <= {match_words, full_i, presence_i, holds, state};
    bank_q <= bank_i;
    hit_o  <= hit;
    row_o  <= row;
  end

  logic unused;
  assign unused = ^{equal[Conditions-1], of_bank.comparators[0].continues};

endmodule
