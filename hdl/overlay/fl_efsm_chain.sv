// SPDX-License-Identifier: Apache-2.0 OR MIT
// Elements of the FlowBlaze machine: a stateless one before each stateful one, and one after the last.
//
//   header vector ─► stateless 0 ─► stateful 1 ─► stateless 2 ─► ... ─► stateless 2E ─► header vector
//
// A packet carries the number of the next stage that executes it; 15 means that its terminal action is set. Accesses of
// the host are sent to the stateful element of host_stage_i.
//
// Latency: 3 + 11 for each stateful element, if the packet is not held.
// Throughput: one packet a cycle.
// Handshake: packets are always accepted: room_o is low where fewer than Ahead more fit.
// Source: [FlowBlaze 3.2]
module fl_efsm_chain
  import fl_config_pkg::*;
#(
    parameter int unsigned Elements = 1,
    parameter int unsigned Words = 24,
    parameter int unsigned Registers = 4,
    parameter int unsigned Globals = 8,
    parameter int unsigned Conditions = 8,
    parameter int unsigned Alus = 5,
    parameter int unsigned Writes = 6,
    parameter int unsigned MatchWords = 4,
    parameter int unsigned Rows = 32,
    parameter int unsigned KeyWords = 4,
    parameter int unsigned TableRows = 4096,
    parameter int unsigned HashBits = 12,
    parameter logic [32*KeyWords:0][4*HashBits-1:0] Columns = '0,
    parameter int unsigned Queues = 1,
    parameter int unsigned QueueDepth = 32,
    parameter int unsigned SideBits = 32,
    localparam int unsigned KeyBits = 32 * KeyWords,
    localparam int unsigned ContextBits = 128 + 4 + 8 + 32 * Registers,
    localparam int unsigned PlaceBits = $clog2(TableRows) + 4,
    localparam int unsigned CountBits = $clog2(4 * TableRows + 9)
) (
    input  logic                   clk_i,
    input  logic                   rst_i,
    output logic                   ready_o,
    // A write of a configuration word.
    input  logic                   config_valid_i,
    input  logic                   config_bank_i,
    input  logic [7:0]             config_unit_i,
    input  logic [15:0]            config_index_i,
    input  logic [31:0]            config_data_i,
    input  logic                   in_valid_i,
    output logic                   room_o,
    input  logic [SideBits-1:0]    in_side_i,
    input  logic [63:0]            in_now_i,
    input  logic                   in_bank_i,
    input  logic                   in_ipv4_i,
    input  logic [14:0]            in_presence_i,
    input  logic [Words-1:0][31:0] in_words_i,
    input  logic [3:0]             in_stage_i,
    output logic                   out_valid_o,
    output logic [SideBits-1:0]    out_side_o,
    output logic                   out_bank_o,
    output logic [63:0]            out_now_o,
    output logic [Words-1:0][31:0] out_words_o,
    output logic [Words-1:0]       out_written_o,
    output logic [2:0]             out_terminal_o,
    output logic [31:0]            out_port_o,
    // Accesses of the host (fl_efsm_element).
    input  logic [3:0]             host_stage_i,
    input  logic                   host_valid_i,
    output logic                   host_ready_o,
    input  logic [1:0]             host_operation_i,
    input  logic                   host_bank_i,
    input  logic [KeyBits-1:0]     host_key_i,
    input  logic [ContextBits-1:0] host_context_i,
    output logic                   host_done_o,
    output logic                   host_found_o,
    output logic                   host_refused_o,
    output logic [ContextBits-1:0] host_context_o,
    input  logic [63:0]            sweep_now_i,
    input  logic                   sweep_i,
    input  logic                   clear_i,
    input  logic                   clear_bank_i,
    output logic [31:0]            swept_o,
    output logic [CountBits-1:0]   stored_o,
    input  logic                   read_valid_i,
    output logic                   read_ready_o,
    input  logic [PlaceBits-1:0]   read_place_i,
    output logic                   read_valid_o,
    output logic                   read_found_o,
    output logic [KeyBits:0]       read_key_o,
    output logic [ContextBits-1:0] read_context_o,
    input  logic                   still_i,
    output logic [Globals-1:0][31:0] globals_o
);

  localparam int unsigned Last = 2 * Elements + 1;
  localparam int unsigned Ahead = 11;

  typedef struct packed {
    logic                   valid;
    logic [SideBits-1:0]    side;
    logic [63:0]            arrival;
    logic                   bank;
    logic                   ipv4;
    logic [14:0]            presence;
    logic [Words-1:0][31:0] words;
    logic [Words-1:0]       written;
    logic [3:0]             stage;
    logic [2:0]             terminal;
    logic [31:0]            port;
  } packet_t;

  // Outputs of an element to the host.
  typedef struct packed {
    logic                     ready;
    logic                     host_ready;
    logic                     done;
    logic                     found;
    logic                     refused;
    logic [ContextBits-1:0]   context_;
    logic [31:0]              swept;
    logic [1:0][CountBits-1:0] stored;
    logic                     read_ready;
    logic                     read_valid;
    logic                     read_found;
    logic [KeyBits:0]         read_key;
    logic [ContextBits-1:0]   read_context;
    logic [Globals-1:0][31:0] globals;
  } answer_t;

  config_t                config_q;
  packet_t [Last:0]       packets;
  logic [Elements:0]      rooms;
  answer_t [Elements-1:0] answers;
  answer_t                answer;
  logic                   unused;

  assign packets[0] = '{
      valid: in_valid_i,
      side: in_side_i,
      arrival: in_now_i,
      bank: in_bank_i,
      ipv4: in_ipv4_i,
      presence: in_presence_i,
      words: in_words_i,
      written: '0,
      stage: in_stage_i,
      terminal: '0,
      port: '0
  };
  assign rooms[Elements] = 1'b1;
  assign room_o          = rooms[0];

  for (genvar number = 0; number <= Elements; number++) begin : gen_stateless
    packet_t to;

    fl_efsm_stateless #(
        .Words     (Words),
        .Conditions(Conditions),
        .Writes    (Writes),
        .MatchWords(MatchWords),
        .Rows      (Rows),
        .SideBits  (SideBits),
        .Stage     (4'(2 * number))
    ) u_element (
        .clk_i,
        .rst_i,
        .config_i  (config_q),
        .valid_i   (packets[2*number].valid),
        .side_i    (packets[2*number].side),
        .now_i     (packets[2*number].arrival),
        .bank_i    (packets[2*number].bank),
        .ipv4_i    (packets[2*number].ipv4),
        .presence_i(packets[2*number].presence),
        .words_i   (packets[2*number].words),
        .written_i (packets[2*number].written),
        .stage_i   (packets[2*number].stage),
        .terminal_i(packets[2*number].terminal),
        .port_i    (packets[2*number].port),
        .valid_o   (to.valid),
        .side_o    (to.side),
        .now_o     (to.arrival),
        .bank_o    (to.bank),
        .ipv4_o    (to.ipv4),
        .presence_o(to.presence),
        .words_o   (to.words),
        .written_o (to.written),
        .stage_o   (to.stage),
        .terminal_o(to.terminal),
        .port_o    (to.port)
    );
    assign packets[2*number+1] = to;
  end

  for (genvar number = 0; number < Elements; number++) begin : gen_stateful
    localparam logic [3:0] Stage = 4'(2 * number + 1);
    packet_t to;
    answer_t own;
    logic    is_named;

    assign is_named = host_stage_i == Stage;

    fl_efsm_element #(
        .Words     (Words),
        .Registers (Registers),
        .Globals   (Globals),
        .Conditions(Conditions),
        .Alus      (Alus),
        .Writes    (Writes),
        .MatchWords(MatchWords),
        .Rows      (Rows),
        .KeyWords  (KeyWords),
        .TableRows (TableRows),
        .HashBits  (HashBits),
        .Columns   (Columns),
        .Queues    (Queues),
        .QueueDepth(QueueDepth),
        .SideBits  (SideBits),
        .Ahead     (Ahead),
        .Stage     (Stage)
    ) u_element (
        .clk_i,
        .rst_i,
        .ready_o         (own.ready),
        .config_i        (config_q),
        .valid_i         (packets[2*number+1].valid),
        .room_o          (rooms[number]),
        .side_i          (packets[2*number+1].side),
        .now_i           (packets[2*number+1].arrival),
        .bank_i          (packets[2*number+1].bank),
        .ipv4_i          (packets[2*number+1].ipv4),
        .presence_i      (packets[2*number+1].presence),
        .words_i         (packets[2*number+1].words),
        .written_i       (packets[2*number+1].written),
        .stage_i         (packets[2*number+1].stage),
        .terminal_i      (packets[2*number+1].terminal),
        .port_i          (packets[2*number+1].port),
        .valid_o         (to.valid),
        .room_i          (rooms[number+1]),
        .side_o          (to.side),
        .now_o           (to.arrival),
        .bank_o          (to.bank),
        .ipv4_o          (to.ipv4),
        .presence_o      (to.presence),
        .words_o         (to.words),
        .written_o       (to.written),
        .stage_o         (to.stage),
        .terminal_o      (to.terminal),
        .port_o          (to.port),
        .host_valid_i    (host_valid_i && is_named),
        .host_ready_o    (own.host_ready),
        .host_operation_i,
        .host_bank_i,
        .host_key_i,
        .host_context_i,
        .host_done_o     (own.done),
        .host_found_o    (own.found),
        .host_refused_o  (own.refused),
        .host_context_o  (own.context_),
        .sweep_now_i,
        .sweep_i,
        .clear_i,
        .clear_bank_i,
        .swept_o         (own.swept),
        .stored_o        (own.stored),
        .read_valid_i    (read_valid_i && is_named),
        .read_ready_o    (own.read_ready),
        .read_place_i,
        .read_valid_o    (own.read_valid),
        .read_found_o    (own.read_found),
        .read_key_o      (own.read_key),
        .read_context_o  (own.read_context),
        .still_i,
        .global_bank_i   (host_bank_i),
        .globals_o       (own.globals)
    );
    assign packets[2*number+2] = to;
    assign answers[number]     = own;
  end

  always_comb begin
    answer = answers[0];
    for (int unsigned number = 0; number < Elements; number++) begin
      if (host_stage_i == 4'(2 * number + 1)) answer = answers[number];
    end
    ready_o = 1'b1;
    for (int unsigned number = 0; number < Elements; number++) ready_o &= answers[number].ready;
  end

  assign host_ready_o   = answer.host_ready;
  assign host_done_o    = answer.done;
  assign host_found_o   = answer.found;
  assign host_refused_o = answer.refused;
  assign host_context_o = answer.context_;
  assign swept_o        = answer.swept;
  assign stored_o       = answer.stored[host_bank_i];
  assign read_ready_o   = answer.read_ready;
  assign read_valid_o   = answer.read_valid;
  assign read_found_o   = answer.read_found;
  assign read_key_o     = answer.read_key;
  assign read_context_o = answer.read_context;
  assign globals_o      = answer.globals;

  assign out_valid_o    = packets[Last].valid;
  assign out_side_o     = packets[Last].side;
  assign out_bank_o     = packets[Last].bank;
  assign out_now_o      = packets[Last].arrival;
  assign out_words_o    = packets[Last].words;
  assign out_written_o  = packets[Last].written;
  assign out_terminal_o = packets[Last].terminal;
  assign out_port_o     = packets[Last].port;
  assign unused         = ^{packets[Last].arrival, packets[Last].ipv4, packets[Last].presence, packets[Last].stage,
      answer.ready};

  always_ff @(posedge clk_i) begin
    config_q <= '{
        valid: config_valid_i,
        bank: config_bank_i,
        unit: config_unit_i,
        index: config_index_i,
        data: config_data_i
    };
    if (rst_i) config_q.valid <= 1'b0;
  end

  if (Elements == 0 || Elements > 6) begin : gen_bad_elements
    $error("Elements is %0d, expected 1 to 6", Elements);
  end

endmodule
