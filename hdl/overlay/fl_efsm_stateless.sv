// SPDX-License-Identifier: Apache-2.0 OR MIT
// Stateless element of the FlowBlaze machine: a match-action table.
//
// A packet addressed to another stage passes through. Without a matching row, it executes the last instruction.
//
// Latency: 3 cycles.
// Throughput: one packet a cycle.
// Handshake: none.
// Source: [FlowBlaze 3.2]
module fl_efsm_stateless
  import fl_config_pkg::*;
#(
    parameter int unsigned Words = 24,
    parameter int unsigned Conditions = 8,
    parameter int unsigned Alus = 3,
    parameter int unsigned Writes = 6,
    parameter int unsigned MatchWords = 4,
    parameter int unsigned Rows = 32,
    parameter int unsigned SideBits = 32,
    parameter logic [3:0] Stage = 4'd0
) (
    input  logic                   clk_i,
    input  logic                   rst_i,
    input  config_t                config_i,
    input  logic                   valid_i,
    input  logic [SideBits-1:0]    side_i,
    input  logic [63:0]            now_i,
    input  logic                   bank_i,
    input  logic                   ipv4_i,
    input  logic [14:0]            presence_i,
    input  logic [Words-1:0][31:0] words_i,
    input  logic [Words-1:0]       written_i,
    input  logic [3:0]             stage_i,
    input  logic [2:0]             terminal_i,
    input  logic [31:0]            port_i,
    output logic                   valid_o,
    output logic [SideBits-1:0]    side_o,
    output logic [63:0]            now_o,
    output logic                   bank_o,
    output logic                   ipv4_o,
    output logic [14:0]            presence_o,
    output logic [Words-1:0][31:0] words_o,
    output logic [Words-1:0]       written_o,
    output logic [3:0]             stage_o,
    output logic [2:0]             terminal_o,
    output logic [31:0]            port_o
);

  localparam logic [7:0] Unit = {Stage, 4'd0};
  localparam int unsigned RowBits = $clog2(Rows);

  typedef struct packed {
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
    logic                   active;
  } packet_t;

  packet_t                packet_d, packet_q[1:3];
  logic [3:1]             valid_q;
  logic                   hit, unused;
  logic [RowBits-1:0]     row;
  logic [Words-1:0][31:0] new_words;
  logic [Words-1:0]       new_written;
  logic [2:0]             new_terminal;
  logic [3:0]             new_stage;
  logic [31:0]            new_port;
  // Outputs of fl_efsm_act that only stateful elements use.
  logic [31:0]            unused_registers, unused_globals;
  logic                   unused_register, unused_global, unused_moves;
  logic [7:0]             unused_state;
  logic [3:0]             unused_timeouts;
  logic [1:0]             unused_creates;
  logic                   unused_valid;

  assign packet_d = '{
      side: side_i,
      arrival: now_i,
      bank: bank_i,
      ipv4: ipv4_i,
      presence: presence_i,
      words: words_i,
      written: written_i,
      stage: stage_i,
      terminal: terminal_i,
      port: port_i,
      active: valid_i && stage_i == Stage
  };

  fl_efsm_match #(
      .Words     (Words),
      .Registers (1),
      .Globals   (1),
      .Conditions(Conditions),
      .MatchWords(MatchWords),
      .Rows      (Rows),
      .Unit      (Unit)
  ) u_match (
      .clk_i,
      .config_i,
      .bank_i     (packet_d.bank),
      .operands_i ({160'd0, packet_d.words}),
      .presence_i (packet_d.presence),
      .full_i     (1'b0),
      .hit_o      (hit),
      .row_o      (row)
  );

  fl_efsm_act #(
      .Words    (Words),
      .Registers(1),
      .Globals  (1),
      .Alus     (Alus),
      .Writes   (Writes),
      .Rows     (Rows),
      .Unit     (Unit + 8'd2)
  ) u_act (
      .clk_i,
      .config_i,
      .bank_i           (packet_q[2].bank),
      .active_i         (packet_q[2].active),
      .row_i            (hit ? row : RowBits'(Rows - 1)),
      .operands_i       ({160'd0, packet_q[2].words}),
      .ipv4_i           (packet_q[2].ipv4),
      .refused_i        (1'b0),
      .words_o          (new_words),
      .written_o        (new_written),
      .registers_o      (unused_registers),
      .register_writes_o(unused_register),
      .globals_o        (unused_globals),
      .global_writes_o  (unused_global),
      .moves_o          (unused_moves),
      .state_o          (unused_state),
      .timeouts_o       (unused_timeouts),
      .creates_o        (unused_creates),
      .terminal_o       (new_terminal),
      .stage_o          (new_stage),
      .port_o           (new_port)
  );
  assign unused = ^{unused_registers, unused_globals, unused_register, unused_global, unused_moves, unused_state,
      unused_timeouts, unused_creates, unused_valid};

  assign valid_o    = valid_q[3];
  assign side_o     = packet_q[3].side;
  assign now_o      = packet_q[3].arrival;
  assign bank_o     = packet_q[3].bank;
  assign ipv4_o     = packet_q[3].ipv4;
  assign presence_o = packet_q[3].presence;
  assign words_o    = packet_q[3].words;
  assign written_o  = packet_q[3].written;
  assign stage_o    = packet_q[3].stage;
  assign terminal_o = packet_q[3].terminal;
  assign port_o     = packet_q[3].port;
  assign unused_valid = packet_q[3].active;

  always_ff @(posedge clk_i) begin
    valid_q     <= {valid_q[2:1], valid_i};
    packet_q[1] <= packet_d;
    packet_q[2] <= packet_q[1];
    packet_q[3] <= packet_q[2];
    if (packet_q[2].active) begin
      packet_q[3].words    <= new_words;
      packet_q[3].written  <= packet_q[2].written | new_written;
      packet_q[3].terminal <= new_terminal;
      packet_q[3].port     <= new_port;
      packet_q[3].stage    <= (new_terminal == 3'd6) ? new_stage : '1;
    end
    if (rst_i) valid_q <= '0;
  end

endmodule
