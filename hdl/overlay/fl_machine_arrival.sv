// SPDX-License-Identifier: Apache-2.0 OR MIT
// Packets on their way to the elements: window, parser, header vector, and a buffer for packets in the parser while the
// elements have no room.
//
//   first words ─► fl_window_join ─► fl_header_parser ─┬─► fl_header_vector ─► buffer ─► elements
//                                                      └─► notes: headers for the rewriter
//
// A packet with a header beyond the window is slow: it skips all elements.
//
// Latency: 26 cycles from the last word of the window to the elements.
// Throughput: one packet a cycle where packets have one word in the window.
// Handshake: start_o allows another packet to be started; it is accepted when it begins. At the output, valid and
// ready (room_i).
module fl_machine_arrival
  import fl_parse_pkg::*;
  import fl_config_pkg::*;
  import fl_machine_pkg::*;
#(
    parameter int unsigned WordBytes = 64,
    parameter int unsigned Words = 24,
    // Packets that have started and have not reached the elements.
    parameter int unsigned Depth = 32,
    localparam int unsigned WordBits = 8 * WordBytes
) (
    input  logic                   clk_i,
    input  logic                   rst_i,
    input  config_t                config_i,
    // A packet from fl_framer: started, then begun with its first word.
    output logic                   start_o,
    input  logic                   started_i,
    input  logic                   begin_i,
    input  logic [15:0]            length_i,
    input  logic [31:0]            port_i,
    input  logic [63:0]            time_i,
    input  logic [WordBits-1:0]    word_i,
    input  logic                   bank_i,
    input  tag_t                  tag_i,
    // What the rewriter needs.
    output logic                   note_valid_o,
    output tag_t                  note_tag_o,
    output note_t                  note_o,
    // To the elements.
    output logic                   valid_o,
    input  logic                   room_i,
    output side_t                  side_o,
    output logic [63:0]            time_o,
    output logic                   bank_o,
    output logic                   ipv4_o,
    output logic [14:0]            presence_o,
    output logic [Words-1:0][31:0] words_o,
    output logic [3:0]             stage_o
);

  localparam int unsigned WindowWords = WindowBytes / WordBytes;
  localparam int unsigned ParserCycles = 22;
  localparam int unsigned VectorCycles = 2;
  localparam int unsigned CountBits = $clog2(Depth + 1);

  typedef struct packed {
    logic [31:0] port;
    logic [63:0] arrival;
    logic        bank;
    tag_t       tag;
  } arriving_t;

  typedef struct packed {
    logic [15:0] length;
    logic [63:0] arrival;
    tag_t       tag;
  } parsing_t;

  typedef struct packed {
    logic [63:0] arrival;
    logic        is_ipv4;
    side_t       side;
  } vector_t;

  typedef struct packed {
    vector_t                beside;
    logic                   bank;
    logic [14:0]            presence;
    logic [Words-1:0][31:0] words;
  } waiting_t;

  // ---- The window, the parser.

  arriving_t                arriving;
  parsing_t                 parsing_d, parsing;
  logic                     joined;
  logic [15:0]              joined_length;
  logic [8*WindowBytes-1:0] window;
  logic                     slow, parsed_bank;
  logic [31:0]              valid;
  words_t                   fields;
  headers_t                 headers;
  places_t                  places;
  logic [ParserCycles+VectorCycles:1] valid_q;

  fl_window_join #(
      .WordBytes(WordBytes),
      .Words    (WindowWords),
      .SideBits ($bits(arriving_t))
  ) u_join (
      .clk_i,
      .rst_i,
      .valid_i (begin_i),
      .length_i,
      .side_i  ({port_i, time_i, bank_i, tag_i}),
      .word_i,
      .valid_o (joined),
      .length_o(joined_length),
      .side_o  (arriving),
      .window_o(window)
  );

  assign parsing_d = '{length: joined_length, arrival: arriving.arrival, tag: arriving.tag};

  fl_header_parser #(
      .WindowBytes (WindowBytes),
      .SidebandBits($bits(parsing_t))
  ) u_parser (
      .clk_i,
      .config_i,
      .window_i  (window),
      .length_i  (joined_length),
      .port_i    (arriving.port),
      .time_i    (arriving.arrival),
      .bank_i    (arriving.bank),
      .sideband_i(parsing_d),
      .slow_o    (slow),
      .valid_o   (valid),
      .fields_o  (fields),
      .headers_o (headers),
      .places_o  (places),
      .bank_o    (parsed_bank),
      .sideband_o(parsing)
  );

  assign note_valid_o = valid_q[ParserCycles];
  assign note_tag_o  = parsing.tag;
  assign note_o       = '{length: parsing.length, valid: valid, headers: headers, places: places};

  // ---- The header vector.

  vector_t                vector_d, beside;
  logic                   vector_bank;
  logic [14:0]            presence;
  logic [Words-1:0][31:0] words;

  assign vector_d = '{arrival: parsing.arrival, is_ipv4: valid[Ipv4], side: '{slow: slow, tag: parsing.tag}};

  fl_header_vector #(
      .Words       (Words),
      .SidebandBits($bits(vector_t))
  ) u_vector (
      .clk_i,
      .config_i,
      .fields_i  (fields),
      .valid_i   (valid),
      .bank_i    (parsed_bank),
      .sideband_i(vector_d),
      .words_o   (words),
      .presence_o(presence),
      .bank_o    (vector_bank),
      .sideband_o(beside)
  );

  // ---- Packets wait for room.

  waiting_t             waiting;
  logic                 has_place, leaves;
  logic [CountBits-1:0] started_q, unused_count;
  logic [3:0]           entry;

  fl_fifo #(
      .Width($bits(waiting_t)),
      .Depth(Depth)
  ) u_waiting (
      .clk_i,
      .rst_i,
      .in_valid_i (valid_q[ParserCycles+VectorCycles]),
      .in_ready_o (has_place),
      .in_data_i  ({beside, vector_bank, presence, words}),
      .out_valid_o(valid_o),
      .out_ready_i(room_i),
      .out_data_o (waiting),
      .count_o    (unused_count)
  );

  fl_config_word #(
      .Unit (EntryUnit),
      .Width(4)
  ) u_entry (
      .clk_i,
      .config_i,
      .bank_i(waiting.bank),
      .data_o(entry)
  );

  assign leaves     = valid_o && room_i;
  assign start_o    = started_q != CountBits'(Depth);
  assign side_o     = waiting.beside.side;
  assign time_o     = waiting.beside.arrival;
  assign bank_o     = waiting.bank;
  assign ipv4_o     = waiting.beside.is_ipv4;
  assign presence_o = waiting.presence;
  assign words_o    = waiting.words;
  assign stage_o    = waiting.beside.side.slow ? NoStage : entry;

  always_ff @(posedge clk_i) begin
    valid_q   <= {valid_q[ParserCycles+VectorCycles-1:1], joined};
    started_q <= started_q + CountBits'(started_i) - CountBits'(leaves);
    if (rst_i) begin
      valid_q   <= '0;
      started_q <= '0;
    end
  end

  logic unused;
  assign unused = ^{unused_count, has_place};

  if (WordBytes != 64 && WordBytes != 32) begin : gen_bad_word
    $error("WordBytes is %0d, expected 32 or 64", WordBytes);
  end

`ifndef SYNTHESIS
  a_place : assert property (@(posedge clk_i) disable iff (rst_i) valid_q[ParserCycles+VectorCycles] |-> has_place);
`endif

endmodule
