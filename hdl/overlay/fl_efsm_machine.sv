// SPDX-License-Identifier: Apache-2.0 OR MIT
// The run-time programmable machine: streams of words, elements that a function is loaded into, and its registers.
//
//             ┌────────────────────────────── bodies of packets ──────────────────────────────┐
//   words ─► fl_framer ─► fl_machine_arrival ─► fl_efsm_chain ─► fl_machine_departure ─► fl_emitter ─► words
//                              └───────────── headers ─────────────────┘
//   AXI4-Lite ─► fl_machine_control ─► configuration, banks, sweep, accesses to contexts
//
// A packet belongs to the bank that is active when it starts, with all elements, and leaves in the order of arrival.
// Ports of words and verdicts are those of generated pipelines (crates/rtl): verdict 5 is a packet for the slow path,
// which leaves as it came, 7 one that goes to all ports but its own.
//
// Latency: 2 + 26 + 14 * Elements + 3 + 17 + 7 cycles from the last word of a packet to its first word at the output,
// if the packet is not held; 1 more for each further word of the window, 3 more with several queues.
// Throughput: one word a cycle at both ends; packets of one flow, one in 7 cycles.
// Handshake: valid and ready at both ends. Registers: fl_axil.
// Source: [FlowBlaze 3.2, 4]
module fl_efsm_machine
  import fl_bus_pkg::*;
  import fl_parse_pkg::*;
  import fl_config_pkg::*;
  import fl_machine_pkg::*;
  import fl_machine_registers_pkg::*;
#(
    parameter int unsigned WordBytes = 64,
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
    parameter int unsigned QueueDepth = 20,
    parameter int unsigned MaxWords = 144,
    parameter int unsigned BodyWords = 256,
    parameter int unsigned AddressBits = 12,
    localparam int unsigned WordBits = 8 * WordBytes
) (
    input  logic                   clk_i,
    input  logic                   rst_i,
    // High from when tables are cleared after a reset: no packet enters before.
    output logic                   ready_o,
    input  logic                   in_valid_i,
    output logic                   in_ready_o,
    input  logic                   in_last_i,
    input  logic [WordBits-1:0]    in_data_i,
    input  logic [WordBytes-1:0]   in_keep_i,
    input  logic [31:0]            in_port_i,
    // The time in nanoseconds.
    input  logic [63:0]            in_time_i,
    // Times before it do not count from the next packet on: for a clock that was set back.
    input  logic                   restart_i,
    output logic                   out_valid_o,
    input  logic                   out_ready_i,
    output logic                   out_last_o,
    output logic [WordBits-1:0]    out_data_o,
    output logic [WordBytes-1:0]   out_keep_o,
    output logic [2:0]             out_verdict_o,
    output logic [31:0]            out_port_o,
    // The verdict of each packet; a packet that is too long or has no byte is discarded without one.
    output logic                   done_valid_o,
    output logic [2:0]             done_verdict_o,
    output logic                   discarded_o,
    // Registers.
    input  logic                   aw_valid_i,
    output logic                   aw_ready_o,
    input  logic [AddressBits-1:0] aw_address_i,
    input  logic                   w_valid_i,
    output logic                   w_ready_o,
    input  logic [31:0]            w_data_i,
    input  logic [3:0]             w_strobe_i,
    output logic                   b_valid_o,
    input  logic                   b_ready_i,
    output logic [1:0]             b_response_o,
    input  logic                   ar_valid_i,
    output logic                   ar_ready_o,
    input  logic [AddressBits-1:0] ar_address_i,
    output logic                   r_valid_o,
    input  logic                   r_ready_i,
    output logic [31:0]            r_data_o,
    output logic [1:0]             r_response_o
);

  localparam int unsigned PlaceBits = $clog2(BodyWords);
  localparam int unsigned CountBits = $clog2(BodyWords + 1);
  localparam int unsigned IndexBits = 16 - $clog2(WordBytes);
  localparam int unsigned BlockBits = 9;
  localparam int unsigned KeyBits = 32 * KeyWords;
  localparam int unsigned ContextBits = 128 + 4 + 8 + 32 * Registers;
  localparam int unsigned ReadBits = $clog2(TableRows) + 4;
  localparam int unsigned StoredBits = $clog2(4 * TableRows + 9);

  // ---- Packets arrive.

  logic                 write, free, start, room, started, begins, framer_ready;
  logic [PlaceBits-1:0] write_place, place;
  logic [CountBits-1:0] free_words;
  logic [WordBits-1:0]  write_data, word;
  logic [15:0]          length;
  logic [31:0]          port;
  logic [63:0]          arrival;
  tag_t                tag_q;
  logic                 active;
  config_t              config_word;

  assign in_ready_o = framer_ready && ready_o;

  fl_framer #(
      .WordBytes  (WordBytes),
      .WindowWords(WindowBytes / WordBytes),
      .MaxWords   (MaxWords),
      .BodyWords  (BodyWords)
  ) u_framer (
      .clk_i,
      .rst_i,
      .in_valid_i   (in_valid_i && ready_o),
      .in_ready_o   (framer_ready),
      .in_last_i,
      .in_data_i,
      .in_keep_i,
      .in_port_i,
      .in_time_i,
      .restart_i,
      .write_o      (write),
      .write_place_o(write_place),
      .write_data_o (write_data),
      .free_i       (free),
      .free_words_i (free_words),
      .start_i      (start && room),
      .started_o    (started),
      .accept_i     (1'b1),
      .valid_o      (begins),
      .length_o     (length),
      .port_o       (port),
      .time_o       (arrival),
      .place_o      (place),
      .word_o       (word),
      .discarded_o
  );

  logic                   note_valid, in_valid, in_room, in_bank, in_ipv4;
  tag_t                  note_tag;
  note_t                  note;
  side_t                  in_side;
  logic [63:0]            in_time;
  logic [14:0]            in_presence;
  logic [Words-1:0][31:0] in_words;
  logic [3:0]             in_stage;

  fl_machine_arrival #(
      .WordBytes(WordBytes),
      .Words    (Words)
  ) u_arrival (
      .clk_i,
      .rst_i,
      .config_i    (config_word),
      .start_o     (room),
      .started_i   (started),
      .begin_i     (begins),
      .length_i    (length),
      .port_i      (port),
      .time_i      (arrival),
      .word_i      (word),
      .bank_i      (active),
      .tag_i      (tag_q),
      .note_valid_o(note_valid),
      .note_tag_o (note_tag),
      .note_o      (note),
      .valid_o     (in_valid),
      .room_i      (in_room),
      .side_o      (in_side),
      .time_o      (in_time),
      .bank_o      (in_bank),
      .ipv4_o      (in_ipv4),
      .presence_o  (in_presence),
      .words_o     (in_words),
      .stage_o     (in_stage)
  );

  // ---- The elements.

  logic                    out_valid, out_bank;
  side_t                   out_side;
  logic [63:0]             out_time;
  logic [Words-1:0][31:0]  out_words;
  logic [Words-1:0]        out_written;
  logic [2:0]              out_terminal;
  logic [31:0]             out_port;
  logic [3:0]              stage;
  logic                    bank, access_valid, access_ready, access_done, access_found, access_refused;
  logic [1:0]              access_operation;
  logic [KeyBits-1:0]      access_key;
  logic [ContextBits-1:0]  access_context, found_context, read_context;
  logic                    read_valid, read_ready, read_done, read_found;
  logic [ReadBits-1:0]     read_place;
  logic [KeyBits:0]        read_key;
  logic [Globals-1:0][31:0] globals;
  sweep_t                  sweep;
  logic [31:0]             swept;
  logic [StoredBits-1:0]   stored;
  logic [63:0]             sweep_time;

  fl_efsm_chain #(
      .Elements  (Elements),
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
      .SideBits  ($bits(side_t))
  ) u_chain (
      .clk_i,
      .rst_i,
      .ready_o,
      .config_valid_i  (config_word.valid),
      .config_bank_i   (config_word.bank),
      .config_unit_i   (config_word.unit),
      .config_index_i  (config_word.index),
      .config_data_i   (config_word.data),
      .in_valid_i      (in_valid && in_room),
      .room_o          (in_room),
      .in_side_i       (in_side),
      .in_now_i        (in_time),
      .in_bank_i       (in_bank),
      .in_ipv4_i       (in_ipv4),
      .in_presence_i   (in_presence),
      .in_words_i      (in_words),
      .in_stage_i      (in_stage),
      .out_valid_o     (out_valid),
      .out_side_o      (out_side),
      .out_bank_o      (out_bank),
      .out_now_o       (out_time),
      .out_words_o     (out_words),
      .out_written_o   (out_written),
      .out_terminal_o  (out_terminal),
      .out_port_o      (out_port),
      .host_stage_i    (stage),
      .host_valid_i    (access_valid),
      .host_ready_o    (access_ready),
      .host_operation_i(access_operation),
      .host_bank_i     (bank),
      .host_key_i      (access_key),
      .host_context_i  (access_context),
      .host_done_o     (access_done),
      .host_found_o    (access_found),
      .host_refused_o  (access_refused),
      .host_context_o  (found_context),
      .sweep_now_i     (sweep_time),
      .sweep_i         (sweep.sweeps),
      .clear_i         (sweep.clears),
      .clear_bank_i    (sweep.cleared_bank),
      .swept_o         (swept),
      .stored_o        (stored),
      .read_valid_i    (read_valid),
      .read_ready_o    (read_ready),
      .read_place_i    (read_place),
      .read_valid_o    (read_done),
      .read_found_o    (read_found),
      .read_key_o      (read_key),
      .read_context_o  (read_context),
      .still_i         (sweep.is_still),
      .globals_o       (globals)
  );

  // ---- Packets leave.

  logic                   retired_valid, left_valid, left_bank, result_valid, result_slow, has_target;
  logic [63:0]            retired_time;
  tag_t                  result_tag, patch_tag;
  logic [31:0]            verdict, target;
  logic [1:0]             spread;
  logic [15:0]            tail;
  logic                   patch_valid, result_ready, unused_extra;
  logic [IndexBits-1:0]   patch_index;
  logic [2*WordBytes-1:0] patch_mask;
  logic [2*WordBits-1:0]  patch_data;
  logic [255:0]           bound;

  fl_machine_departure #(
      .WordBytes(WordBytes),
      .Words    (Words),
      .Reorders (Queues > 1)
  ) u_departure (
      .clk_i,
      .rst_i,
      .config_i           (config_word),
      .bound_i            (bound),
      .note_valid_i       (note_valid),
      .note_tag_i        (note_tag),
      .note_i             (note),
      .valid_i            (out_valid),
      .side_i             (out_side),
      .bank_i             (out_bank),
      .time_i             (out_time),
      .words_i            (out_words),
      .written_i          (out_written),
      .terminal_i         (out_terminal),
      .port_i             (out_port),
      .retired_valid_o    (retired_valid),
      .retired_time_o     (retired_time),
      .done_valid_o       (left_valid),
      .done_bank_o        (left_bank),
      .result_valid_o     (result_valid),
      .result_tag_o      (result_tag),
      .result_slow_o      (result_slow),
      .result_verdict_o   (verdict),
      .result_has_target_o(has_target),
      .result_target_o    (target),
      .result_spread_o    (spread),
      .result_tail_o      (tail),
      .patch_valid_i      (patch_valid),
      .patch_index_i      (patch_index),
      .patch_tag_i       (patch_tag),
      .patch_mask_o       (patch_mask),
      .patch_data_o       (patch_data)
  );

  fl_emitter #(
      .WordBytes(WordBytes),
      .BodyWords(BodyWords),
      .InFlight (InFlight),
      .HasShift (1'b0),
      .EditBits ($bits(tag_t))
  ) u_emitter (
      .clk_i,
      .rst_i,
      .write_i       (write),
      .write_place_i (write_place),
      .write_data_i  (write_data),
      .free_o        (free),
      .free_words_o  (free_words),
      .start_o       (start),
      .started_i     (started),
      .begin_i       (begins),
      .length_i      (length),
      .port_i        (port),
      .place_i       (place),
      .valid_i       (result_valid),
      .ready_o       (result_ready),
      .is_extra_i    (1'b0),
      .verdict_i     (verdict),
      .has_target_i  (has_target),
      .target_i      (target),
      .spread_i      (spread),
      .head_i        (32'd0),
      .tail_i        (32'(tail)),
      .edits_i       (result_tag),
      .slow_i        (result_slow),
      .patch_valid_o (patch_valid),
      .patch_index_o (patch_index),
      .patch_edits_o (patch_tag),
      .patch_mask_i  (patch_mask),
      .patch_data_i  (patch_data),
      .extra_valid_o (unused_extra),
      .done_valid_o,
      .done_verdict_o,
      .out_valid_o,
      .out_ready_i,
      .out_last_o,
      .out_data_o,
      .out_keep_o,
      .out_verdict_o,
      .out_port_o
  );

  // ---- Registers.

  function automatic logic [Sizes-1:0][31:0] sizes();
    sizes[0] = Elements;
    sizes[1] = Words;
    sizes[2] = Registers;
    sizes[3] = Globals;
    sizes[4] = Conditions;
    sizes[5] = Alus;
    sizes[6] = Writes;
    sizes[7] = MatchWords;
    sizes[8] = Rows;
    sizes[9] = KeyWords;
    sizes[10] = TableRows;
    sizes[11] = Queues;
    sizes[12] = QueueDepth;
  endfunction

  request_t         request;
  answer_t          shell_answer, control_answer, answer;
  logic [1:0][31:0] packets_q;
  logic [63:0]      host_time;
  logic             time_changed;

  assign answer = shell_answer | control_answer;

  fl_axil #(
      .AddressBits(AddressBits)
  ) u_axil (
      .clk_i,
      .rst_i,
      .aw_valid_i,
      .aw_ready_o,
      .aw_address_i,
      .w_valid_i,
      .w_ready_o,
      .w_data_i,
      .w_strobe_i,
      .b_valid_o,
      .b_ready_i,
      .b_response_o,
      .ar_valid_i,
      .ar_ready_o,
      .ar_address_i,
      .r_valid_o,
      .r_ready_i,
      .r_data_o,
      .r_response_o,
      .request_o(request),
      .answer_i (answer)
  );

  fl_shell_registers #(
      .WordBytes(WordBytes),
      .BlockBits(BlockBits),
      .Maps     (0)
  ) u_shell (
      .clk_i,
      .rst_i,
      .request_i     (request),
      .answer_o      (shell_answer),
      .ready_i       (ready_o),
      .in_valid_i,
      .in_ready_i    (in_ready_o),
      .in_last_i,
      .in_keep_i,
      .out_valid_i   (out_valid_o),
      .out_ready_i,
      .out_last_i    (out_last_o),
      .out_keep_i    (out_keep_o),
      .extra_valid_i (1'b0),
      .done_valid_i  (done_valid_o),
      .done_verdict_i(done_verdict_o),
      .discarded_i   (discarded_o)
  );

  fl_machine_control #(
      .Block     (1),
      .BlockBits (BlockBits),
      .Registers (Registers),
      .Globals   (Globals),
      .KeyWords  (KeyWords),
      .TableRows (TableRows),
      .SizeValues(sizes())
  ) u_control (
      .clk_i,
      .rst_i,
      .request_i         (request),
      .answer_o          (control_answer),
      .ready_i           (ready_o),
      .config_o          (config_word),
      .active_o          (active),
      .packets_i         (packets_q),
      .bound_o           (bound),
      .stage_o           (stage),
      .bank_o            (bank),
      .access_valid_o    (access_valid),
      .access_ready_i    (access_ready),
      .access_operation_o(access_operation),
      .access_key_o      (access_key),
      .access_context_o  (access_context),
      .access_done_i     (access_done),
      .access_found_i    (access_found),
      .access_refused_i  (access_refused),
      .access_context_i  (found_context),
      .read_valid_o      (read_valid),
      .read_place_o      (read_place),
      .read_valid_i      (read_done),
      .read_found_i      (read_found),
      .read_key_i        (read_key),
      .read_context_i    (read_context),
      .globals_i         (globals),
      .now_o             (host_time),
      .now_changed_o     (time_changed),
      .sweep_o           (sweep),
      .swept_i           (swept),
      .stored_i          (stored)
  );

  // ---- The time of sweep and host: that of the last packet that has left the elements with all before it. The host's
  // time counts once the machine has been empty for some cycles, so that no earlier packet is in the framer.

  localparam logic [3:0] EmptyCycles = 4'd8;

  logic [63:0] retired_time_q;
  logic [3:0]  empty_q;
  logic        is_empty;

  assign is_empty = packets_q == '0 && !begins;

  always_ff @(posedge clk_i) begin
    if (begins) tag_q <= tag_q + 1'b1;
    for (int unsigned of = 0; of < 2; of++) begin
      packets_q[of] <= packets_q[of] + 32'(begins && active == 1'(of)) - 32'(left_valid && left_bank == 1'(of));
    end
    if (retired_valid) retired_time_q <= retired_time;
    empty_q <= (!is_empty || time_changed) ? '0 : (empty_q == EmptyCycles) ? empty_q : empty_q + 1'b1;
    sweep_time <= (empty_q == EmptyCycles && host_time > retired_time_q) ? host_time : retired_time_q;
    if (rst_i || restart_i) begin
      retired_time_q <= '0;
      sweep_time     <= '0;
      empty_q        <= '0;
    end
    if (rst_i) begin
      tag_q    <= '0;
      packets_q <= '0;
    end
  end

  logic unused;
  assign unused = ^{unused_extra, result_ready, read_ready};

endmodule
