// SPDX-License-Identifier: Apache-2.0 OR MIT
// Registers of the run-time programmable machine: configuration, banks, sweep, and transactions on contexts.
//
//   ADDRESS, DATA ─► config_o                 a word of the configuration for each write of DATA
//   COMMAND ─► Ask ─► Answer ─► STATUS        an access to the context of KEY, among the packets of STAGE
//          └─► Read ─► STATUS, KEY, CONTEXT   Next: place after place from CURSOR on, to an entry of BANK
//
// Registers cannot be written while a transaction is busy, except those that no transaction reads.
//
// Latency: registers respond in the next cycle. A transaction waits for its turn among the packets.
// Throughput: one request a cycle; one transaction at a time.
// Handshake: requests are always accepted. At the elements, valid until ready or an answer.
module fl_machine_control
  import fl_bus_pkg::*;
  import fl_config_pkg::*;
  import fl_machine_registers_pkg::*;
#(
    // The number of its block; a block has 2 to the power of BlockBits bytes.
    parameter int unsigned Block = 1,
    parameter int unsigned BlockBits = 9,
    parameter int unsigned Registers = 4,
    parameter int unsigned Globals = 8,
    parameter int unsigned KeyWords = 4,
    parameter int unsigned TableRows = 4096,
    // The values of the registers with sizes, in their order.
    parameter logic [Sizes-1:0][31:0] SizeValues = '0,
    localparam int unsigned KeyBits = 32 * KeyWords,
    localparam int unsigned ContextBits = 128 + 4 + 8 + 32 * Registers,
    localparam int unsigned RowBits = $clog2(TableRows),
    localparam int unsigned CountBits = $clog2(4 * TableRows + 9)
) (
    input  logic                     clk_i,
    input  logic                     rst_i,
    input  request_t                 request_i,
    output answer_t                  answer_o,
    // Tables are cleared after a reset.
    input  logic                     ready_i,
    output config_t                  config_o,
    // The bank of packets that arrive, and the packets of each bank in the machine.
    output logic                     active_o,
    input  logic [1:0][31:0]         packets_i,
    // By number, whether a port is bound.
    output logic [255:0]             bound_o,
    // Accesses to contexts (fl_efsm_chain).
    output logic [3:0]               stage_o,
    output logic                     bank_o,
    output logic                     access_valid_o,
    input  logic                     access_ready_i,
    output logic [1:0]               access_operation_o,
    output logic [KeyBits-1:0]       access_key_o,
    output logic [ContextBits-1:0]   access_context_o,
    input  logic                     access_done_i,
    input  logic                     access_found_i,
    input  logic                     access_refused_i,
    input  logic [ContextBits-1:0]   access_context_i,
    output logic                     read_valid_o,
    output logic [RowBits+3:0]       read_place_o,
    input  logic                     read_valid_i,
    input  logic                     read_found_i,
    input  logic [KeyBits:0]         read_key_i,
    input  logic [ContextBits-1:0]   read_context_i,
    input  logic [Globals-1:0][31:0] globals_i,
    // The sweep.
    output logic [63:0]              now_o,
    output logic                     now_changed_o,
    output sweep_t                   sweep_o,
    input  logic [31:0]              swept_i,
    input  logic [CountBits-1:0]     stored_i
);

  localparam int unsigned OffsetBits = BlockBits - 2;
  // Registers, state and pair of timeouts, both deadlines.
  localparam int unsigned ContextWords = Registers + 5;
  localparam logic [3:0] LastWay = 4'd11;

  typedef logic [7:0] errno_t;

  typedef enum logic [1:0] {
    Idle,
    Ask,
    Answer,
    Read
  } state_e;

  // As fl_efsm_element stores it.
  typedef struct packed {
    logic [63:0]                hard_deadline;
    logic [63:0]                idle_deadline;
    logic [3:0]                 timeouts;
    logic [7:0]                 state;
    logic [Registers-1:0][31:0] registers;
  } context_t;

  typedef logic [ContextWords-1:0][31:0] context_words_t;

  function automatic context_words_t words_of(context_t from);
    return {from.hard_deadline, from.idle_deadline, 20'd0, from.timeouts, from.state, from.registers};
  endfunction

  function automatic context_t context_of(context_words_t from);
    return '{
        hard_deadline: {from[Registers+4], from[Registers+3]},
        idle_deadline: {from[Registers+2], from[Registers+1]},
        timeouts: from[Registers][11:8],
        state: from[Registers][7:0],
        registers: from[Registers-1:0]
    };
  endfunction

  // ---- The registers.

  state_e                    state_q;
  logic [1:0]                operation_q;
  errno_t                    error_q;
  logic                      active_q, bank_q;
  logic [3:0]                stage_q, way_q;
  logic [RowBits-1:0]        row_q;
  logic [23:0]               address_q;
  logic [7:0][31:0]          bound_q;
  logic [1:0][31:0]          now_q;
  logic [31:0]               now_low_q;
  sweep_t                    sweep_q;
  logic [KeyWords-1:0][31:0] key_q;
  context_words_t            context_q;

  logic                  mine, changes, writes, busy, is_size, is_key, is_context, is_global, is_bound;
  logic [OffsetBits-1:0] offset;
  logic [3:0]            size_at, key_at, global_at;
  logic [4:0]            context_at;
  logic [2:0]            bound_at;
  logic [31:0]           now;
  answer_t               answer;

  // The number of a word from a register on, and whether it is one of `count`.
  function automatic logic is_from(logic [OffsetBits-1:0] at, logic [31:0] first, int unsigned count);
    return 32'(at) >= first / 4 && 32'(at) - first / 4 < count;
  endfunction

  assign mine       = request_i.valid && request_i.address[29:OffsetBits] == (30 - OffsetBits)'(Block);
  assign offset     = request_i.address[OffsetBits-1:0];
  assign busy       = state_q != Idle;
  assign is_size    = is_from(offset, MachineSizes, Sizes);
  assign is_key     = is_from(offset, MachineKey, KeyWords);
  assign is_context = is_from(offset, MachineContext, ContextWords);
  assign is_global  = is_from(offset, MachineGlobals, Globals);
  assign is_bound   = is_from(offset, MachinePorts, 8);
  assign size_at    = offset[3:0] - 4'(MachineSizes / 4);
  assign key_at     = offset[3:0] - 4'(MachineKey / 4);
  assign context_at = offset[4:0] - 5'(MachineContext / 4);
  assign global_at  = offset[3:0] - 4'(MachineGlobals / 4);
  assign bound_at   = offset[2:0] - 3'(MachinePorts / 4);

  logic [15:0][31:0] sizes;
  assign sizes = 512'(SizeValues);

  // The value of a register, and whether it takes writes, now.
  logic [31:0] value;
  logic        is_known, is_written;
  always_comb begin
    value      = '0;
    is_known   = 1'b1;
    is_written = !busy;
    unique case (offset)
      OffsetBits'(MachineStatus / 4): begin
        value      = {16'd0, error_q, 6'd0, ready_i, busy};
        is_written = 1'b0;
      end
      OffsetBits'(MachineCommand / 4): begin
        value      = 32'(operation_q);
        is_written = !busy && (!request_i.strobe[0] || request_i.data[7:0] <= 8'(OperationNext));
      end
      OffsetBits'(MachineStage / 4):  value = 32'(stage_q);
      OffsetBits'(MachineBank / 4):   value = 32'(bank_q);
      OffsetBits'(MachineCursor / 4): value = 32'({way_q, row_q});
      OffsetBits'(MachineStored / 4): begin
        value      = 32'(stored_i);
        is_written = 1'b0;
      end
      OffsetBits'(MachineActive / 4): begin
        value      = 32'(active_q);
        is_written = 1'b1;
      end
      OffsetBits'(MachinePackets0 / 4): begin
        value      = packets_i[0];
        is_written = 1'b0;
      end
      OffsetBits'(MachinePackets1 / 4): begin
        value      = packets_i[1];
        is_written = 1'b0;
      end
      OffsetBits'(MachineAddress / 4): value = 32'(address_q);
      OffsetBits'(MachineData / 4):    value = '0;
      OffsetBits'(MachineSweep / 4): begin
        value      = 32'(sweep_q);
        is_written = 1'b1;
      end
      OffsetBits'(MachineSwept / 4): begin
        value      = swept_i;
        is_written = 1'b0;
      end
      OffsetBits'(MachineNowLow / 4): begin
        value      = now_q[0];
        is_written = 1'b1;
      end
      OffsetBits'(MachineNowHigh / 4): begin
        value      = now_q[1];
        is_written = 1'b1;
      end
      default: begin
        is_known = is_size || is_key || is_context || is_global || is_bound;
        if (is_size) begin
          value      = sizes[size_at];
          is_written = 1'b0;
        end else if (is_global) begin
          value      = globals_i[global_at];
          is_written = 1'b0;
        end else if (is_bound) begin
          value      = bound_q[bound_at];
        end else if (is_key) begin
          value      = key_q[key_at];
        end else if (is_context) begin
          value      = context_q[context_at];
        end
      end
    endcase
  end

  // A write of no byte changes nothing, and has no error: adapters that split wide writes make such ones.
  assign changes = request_i.write && request_i.strobe != '0;
  always_comb begin
    answer = '{hit: mine, response: Okay, data: value};
    if (!is_known) answer.response = Decerr;
    else if (changes && !is_written) answer.response = Slverr;
    else if (busy && (is_key || is_context) && !request_i.write) answer.response = Slverr;
    if (answer.response != Okay) answer.data = '0;
  end
  assign writes = mine && changes && answer.response == Okay;
  assign now    = written(value, request_i.data, request_i.strobe);

  // ---- Transactions.

  logic is_end;

  assign stage_o            = stage_q;
  assign bank_o             = bank_q;
  assign access_valid_o     = state_q == Ask;
  assign access_operation_o = operation_q;
  assign access_key_o       = key_q;
  assign access_context_o   = context_of(context_q);
  assign read_valid_o       = state_q == Read;
  assign read_place_o       = {way_q, row_q};
  assign is_end             = way_q > LastWay;
  assign active_o           = active_q;
  assign bound_o            = bound_q;
  assign now_o              = now_q;
  assign sweep_o            = sweep_q;

  always_ff @(posedge clk_i) begin
    answer_o       <= mine ? answer : '0;
    config_o       <= '0;
    now_changed_o  <= 1'b0;

    unique case (state_q)
      Idle: begin
      end
      Ask: if (access_ready_i) state_q <= Answer;
      Answer: begin
        if (access_done_i) begin
          state_q <= Idle;
          error_q <= '0;
          if (operation_q == 2'(OperationUpdate)) begin
            if (access_refused_i) error_q <= errno_t'(ErrorFull);
          end else if (!access_found_i) begin
            error_q <= errno_t'(ErrorNoEntry);
          end
          if (operation_q == 2'(OperationLookup) && access_found_i) context_q <= words_of(access_context_i);
        end
      end
      default: begin  // Read
        if (is_end) begin
          state_q <= Idle;
          error_q <= errno_t'(ErrorNoEntry);
        end else if (read_valid_i) begin
          if (row_q == RowBits'(TableRows - 1) || way_q >= 4'd4) begin
            row_q <= '0;
            way_q <= way_q + 1'b1;
          end else begin
            row_q <= row_q + 1'b1;
          end
          if (read_found_i && read_key_i[KeyBits] == bank_q) begin
            state_q   <= Idle;
            error_q   <= '0;
            key_q     <= read_key_i[KeyBits-1:0];
            context_q <= words_of(read_context_i);
          end
        end
      end
    endcase

    if (writes) begin
      unique case (offset)
        OffsetBits'(MachineCommand / 4): begin
          operation_q <= now[1:0];
          if (request_i.strobe[0]) state_q <= (now[1:0] == 2'(OperationNext)) ? Read : Ask;
        end
        OffsetBits'(MachineStage / 4):   stage_q <= now[3:0];
        OffsetBits'(MachineBank / 4):    bank_q <= now[0];
        OffsetBits'(MachineCursor / 4):  {way_q, row_q} <= now[RowBits+3:0];
        OffsetBits'(MachineActive / 4):  active_q <= now[0];
        OffsetBits'(MachineAddress / 4): address_q <= now[23:0];
        OffsetBits'(MachineData / 4): begin
          config_o  <= '{valid: 1'b1, bank: bank_q, unit: address_q[23:16], index: address_q[15:0], data: now};
          address_q <= {address_q[23:16], address_q[15:0] + 16'd1};
        end
        OffsetBits'(MachineSweep / 4):  sweep_q <= now[$bits(sweep_t)-1:0];
        OffsetBits'(MachineNowLow / 4): now_low_q <= now;
        OffsetBits'(MachineNowHigh / 4): begin
          // Both words at once.
          now_q         <= {now, now_low_q};
          now_changed_o <= 1'b1;
        end
        default: begin
          if (is_bound) bound_q[bound_at] <= now;
          if (is_key) key_q[key_at] <= now;
          if (is_context) context_q[context_at] <= now;
        end
      endcase
    end
    if (rst_i) begin
      state_q       <= Idle;
      operation_q   <= '0;
      error_q       <= '0;
      active_q      <= 1'b0;
      bank_q        <= 1'b0;
      stage_q       <= 4'd1;
      {way_q, row_q} <= '0;
      address_q     <= '0;
      bound_q       <= '1;
      now_q         <= '0;
      now_low_q     <= '0;
      sweep_q       <= '0;
      key_q         <= '0;
      context_q     <= '0;
    end
  end

  if (Block == 0) begin : gen_bad_number
    $error("Block is 0, expected at least 1: block 0 is the shell's");
  end
  if (KeyWords > 16 || Registers > 16 || Globals > 16) begin : gen_bad_sizes
    $error("KeyWords is %0d, Registers %0d, Globals %0d, expected at most 16", KeyWords, Registers, Globals);
  end
  if (32'(MachineGlobals) + 64 > 2 ** BlockBits) begin : gen_bad_block
    $error("BlockBits is %0d, expected room for %0d bytes", BlockBits, 32'(MachineGlobals) + 64);
  end

endmodule
