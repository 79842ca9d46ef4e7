// SPDX-License-Identifier: Apache-2.0 OR MIT
// Update and action block of an element: executes the instruction of the matching row.
//
//   row ─► instruction ─► operands ─► ALUs ─┬─► registers, global registers
//                                           └─► write units ─► header vector
//
// ALUs and write units read the values from before the packet; a write unit takes an operand or the result of an ALU.
//
// Latency: 0 cycles.
// Throughput: one packet a cycle.
// Handshake: none.
// Source: [FlowBlaze 3.2, 4.1]
module fl_efsm_act
  import fl_config_pkg::*;
#(
    parameter int unsigned Words = 24,
    parameter int unsigned Registers = 4,
    parameter int unsigned Globals = 8,
    parameter int unsigned Alus = 5,
    parameter int unsigned Writes = 6,
    parameter int unsigned Rows = 32,
    parameter logic [7:0] Unit = 8'd0,
    localparam int unsigned Operands = Words + Registers + Globals + 4,
    localparam int unsigned RowBits = $clog2(Rows)
) (
    input  logic                       clk_i,
    input  config_t                    config_i,
    input  logic                       bank_i,
    // Enable: low for a packet that skips the element.
    input  logic                       active_i,
    input  logic [RowBits-1:0]         row_i,
    // The operands without the constant: words, flow and global registers, state, averages.
    input  logic [Operands-2:0][31:0]  operands_i,
    // An IPv4 packet: words 1 to 3 of its addresses are constant.
    input  logic                       ipv4_i,
    // There is no context, the table is full, and no other context is evicted.
    input  logic                       refused_i,
    output logic [Words-1:0][31:0]     words_o,
    // Words that were written.
    output logic [Words-1:0]           written_o,
    output logic [Registers-1:0][31:0] registers_o,
    output logic [Registers-1:0]       register_writes_o,
    output logic [Globals-1:0][31:0]   globals_o,
    output logic [Globals-1:0]         global_writes_o,
    // The transition: whether there is one, the next state, and the number of its pair of timeouts.
    output logic                       moves_o,
    output logic [7:0]                 state_o,
    output logic [3:0]                 timeouts_o,
    // Creation of a context if there is none: 0 never, 1 always, 2 unless it equals the default context.
    output logic [1:0]                 creates_o,
    // 0 drop, 1 pass, 2 punt, 3 reply, 4 flood, 5 forward, 6 goto.
    output logic [2:0]                 terminal_o,
    output logic [3:0]                 stage_o,
    output logic [31:0]                port_o
);

  localparam int unsigned OperandBits = $clog2(Operands);
  localparam int unsigned WordBits = $clog2(Words);
  localparam int unsigned AluBits = (Alus > 1) ? $clog2(Alus) : 1;

  typedef struct packed {
    // 0 none, 1 a flow register, 2 a global register.
    logic [1:0]             kind;
    logic [3:0]             index;
    logic [31:0]            constant;
    logic [OperandBits-1:0] right;
    logic [OperandBits-1:0] left;
    logic [3:0]             operation;
  } alu_t;

  typedef struct packed {
    logic [OperandBits-1:0] rejected;
    logic                   has_rejected;
    logic                   is_signed;
    // Its width, less 1.
    logic [4:0]             width;
    logic [31:0]            constant;
    logic [AluBits-1:0]     alu;
    logic [OperandBits-1:0] operand;
    logic                   is_alu;
    logic [WordBits-1:0]    word;
    logic                   valid;
  } write_t;

  typedef struct packed {
    logic [31:0]            constant;
    logic [OperandBits-1:0] port;
    logic [3:0]             stage;
    logic [2:0]             terminal;
    logic [Words/2-1:0]     swaps;
    write_t [Writes-1:0]    writes;
    alu_t [Alus-1:0]        alus;
    logic [1:0]             creates;
    logic [3:0]             timeouts;
    logic [7:0]             state;
    logic                   moves;
  } instruction_t;

  // Values of registers: their width, less 1, and whether they are signed.
  typedef struct packed {
    logic       is_signed;
    logic [4:0] width;
  } narrow_t;

  typedef struct packed {
    // Words 1 to 3 of addresses.
    logic [Words-1:0]        address_words;
    narrow_t [Globals-1:0]   globals;
    narrow_t [Registers-1:0] registers;
  } types_t;

  instruction_t            instruction;
  types_t                  types;
  logic [Alus-1:0][31:0]   results;
  logic [Alus-1:0]         carries;
  logic [Writes-1:0][31:0] written;
  logic [Registers-1:0][31:0] register_results;
  logic [Globals-1:0][31:0]   global_results;

  // The value cut to its width, and extended.
  function automatic logic [31:0] narrowed(logic [31:0] value, logic [4:0] width, logic is_signed);
    logic [31:0] own = 32'hffff_ffff >> (5'd31 - width);
    return (value & own) | ({32{is_signed && value[width]}} & ~own);
  endfunction

  fl_config_rows #(
      .Bits($bits(instruction_t)),
      .Rows(Rows),
      .Unit(Unit)
  ) u_instructions (
      .clk_i,
      .config_i,
      .bank_i,
      .row_i,
      .config_o(instruction)
  );

  fl_config_bank #(
      .Bits($bits(types_t)),
      .Unit(Unit + 8'd1)
  ) u_types (
      .clk_i,
      .config_i,
      .bank_i,
      .config_o(types)
  );

  for (genvar number = 0; number < Alus; number++) begin : gen_alu
    logic [31:0] left, right;
    logic        carry;

    fl_efsm_operand #(
        .Operands(Operands)
    ) u_left (
        .select_i(instruction.alus[number].left),
        .operands_i,
        .constant_i(instruction.alus[number].constant),
        .operand_o(left)
    );
    fl_efsm_operand #(
        .Operands(Operands)
    ) u_right (
        .select_i(instruction.alus[number].right),
        .operands_i,
        .constant_i(instruction.alus[number].constant),
        .operand_o(right)
    );
    if (number == 0) begin : gen_first
      assign carry = 1'b0;
    end else begin : gen_next
      assign carry = carries[number-1];
    end
    fl_efsm_alu u_alu (
        .operation_i(instruction.alus[number].operation),
        .left_i     (left),
        .right_i    (right),
        .carry_i    (carry),
        .result_o   (results[number]),
        .carry_o    (carries[number])
    );
  end

  for (genvar number = 0; number < Writes; number++) begin : gen_write
    logic        is_rejected, takes_alu;
    logic [31:0] operand, value;

    assign is_rejected = refused_i && instruction.writes[number].has_rejected;
    fl_efsm_operand #(
        .Operands(Operands)
    ) u_operand (
        .select_i(is_rejected ? instruction.writes[number].rejected : instruction.writes[number].operand),
        .operands_i,
        .constant_i(instruction.writes[number].constant),
        .operand_o(operand)
    );
    assign takes_alu       = instruction.writes[number].is_alu && !is_rejected;
    assign value           = takes_alu ? results[instruction.writes[number].alu] : operand;
    assign written[number] = narrowed(value, instruction.writes[number].width, instruction.writes[number].is_signed);
  end

  fl_efsm_operand #(
        .Operands(Operands)
    ) u_port (
      .select_i(instruction.port),
        .operands_i,
      .constant_i(instruction.constant),
      .operand_o(port_o)
  );

  always_comb begin
    written_o = '0;
    for (int unsigned word = 0; word < Words; word++) begin
      words_o[word] = operands_i[word];
      if (active_i && instruction.swaps[word/2]) begin
        words_o[word]   = operands_i[word^1];
        written_o[word] = 1'b1;
      end
      for (int unsigned number = 0; number < Writes; number++) begin
        if (active_i && instruction.writes[number].valid && instruction.writes[number].word == WordBits'(word)) begin
          words_o[word]   = written[number];
          written_o[word] = 1'b1;
        end
      end
      if (ipv4_i && types.address_words[word]) begin
        words_o[word]   = operands_i[word];
        written_o[word] = 1'b0;
      end
    end

    // The result for each register is chosen before it is cut to the register's width.
    for (int unsigned at = 0; at < Registers; at++) begin
      register_results[at]  = '0;
      register_writes_o[at] = 1'b0;
      for (int unsigned number = 0; number < Alus; number++) begin
        if (active_i && instruction.alus[number].kind == 2'd1 && instruction.alus[number].index == 4'(at)) begin
          register_results[at]  = results[number];
          register_writes_o[at] = 1'b1;
        end
      end
      registers_o[at] = register_writes_o[at]
          ? narrowed(register_results[at], types.registers[at].width, types.registers[at].is_signed)
          : operands_i[Words+at];
    end
    for (int unsigned at = 0; at < Globals; at++) begin
      global_results[at]  = '0;
      global_writes_o[at] = 1'b0;
      for (int unsigned number = 0; number < Alus; number++) begin
        if (active_i && instruction.alus[number].kind == 2'd2 && instruction.alus[number].index == 4'(at)) begin
          global_results[at]  = results[number];
          global_writes_o[at] = 1'b1;
        end
      end
      globals_o[at] = global_writes_o[at]
          ? narrowed(global_results[at], types.globals[at].width, types.globals[at].is_signed)
          : operands_i[Words+Registers+at];
    end
    moves_o    = instruction.moves;
    state_o    = instruction.state;
    timeouts_o = instruction.timeouts;
    creates_o  = instruction.creates;
    terminal_o = instruction.terminal;
    stage_o    = instruction.stage;
  end

  logic unused;
  assign unused = carries[Alus-1];

  if (Words % 2 != 0) begin : gen_bad_words
    $error("Words is %0d, expected an even number", Words);
  end
  if (Registers > 16 || Globals > 16) begin : gen_bad_registers
    $error("Registers is %0d and Globals %0d, expected at most 16", Registers, Globals);
  end

endmodule
