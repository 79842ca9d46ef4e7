// SPDX-License-Identifier: Apache-2.0 OR MIT
// Parser, last part: a user-defined header after TCP or UDP.
//
// Values of fields of the transport header select one of two headers; the first header counts where both are selected.
// After UDP, the port of GTP-U selects none.
//
// Latency: 4 cycles.
// Throughput: one packet a cycle.
// Handshake: none.
module fl_parse_user
  import fl_parse_pkg::*;
  import fl_config_pkg::*;
#(
    parameter int unsigned WindowWords = 29
) (
    input  logic                         clk_i,
    input  config_t                      config_i,
    // One cycle after the transport header is known.
    input  logic                         bank_i,
    input  logic [4:0][31:0]             transport_i,
    input  parse_t                       parse_i,
    // One cycle later, and two cycles later.
    input  logic                         next_bank_i,
    input  logic [WindowWords-1:0][31:0] late_window_i,
    // The parse so far.
    output parse_t                       late_parse_o,
    output logic [7:0][31:0]             words_o,
    output parse_t                       parse_o
);

  localparam int unsigned UserHeaders = 2;
  // Field values that select a header.
  localparam int unsigned UserAlternatives = 4;
  localparam int unsigned Alternatives = UserHeaders * UserAlternatives;
  localparam logic [15:0] GtpuPort = 16'd2152;
  // The longest part of a header that is in the window, in halves of words.
  localparam logic [6:0] MostHalves = 7'd16;
  localparam logic [6:0] WindowHalves = 7'(2 * WindowWords - 1);

  typedef struct packed {
    logic       valid;
    logic       is_tcp;
    // The word of the transport header.
    logic [2:0] word;
  } select_t;

  // ---- Cycle 1: comparisons of the selecting fields.

  logic [Alternatives-1:0][3:0] equal_q;
  logic [Alternatives-1:0]      applies_q;
  parse_t                       parse1_q;
  logic                         is_gtpu_q;

  for (genvar i = 0; i < Alternatives; i++) begin : gen_alternative
    logic [31:0] value, mask, word, differs;
    select_t     select;

    fl_config_word #(.Unit(UserUnit), .Index(16'(4 * i))) u_value (
        .clk_i, .config_i, .bank_i, .data_o(value));
    fl_config_word #(.Unit(UserUnit), .Index(16'(4 * i + 1))) u_mask (
        .clk_i, .config_i, .bank_i, .data_o(mask));
    fl_config_word #(.Unit(UserUnit), .Index(16'(4 * i + 2)), .Width($bits(select_t))) u_select (
        .clk_i, .config_i, .bank_i, .data_o(select));

    always_comb begin
      word = '0;
      for (int unsigned at = 0; at < 5; at++) begin
        if (select.word == 3'(at)) word |= transport_i[at];
      end
    end
    assign differs = (word ^ value) & mask;

    always_ff @(posedge clk_i) begin
      for (int unsigned part = 0; part < 4; part++) begin
        equal_q[i][part] <= differs[8*part+:8] == '0;
      end
      applies_q[i] <= select.valid && parse_i.active
          && (select.is_tcp ? parse_i.valid[Tcp] : parse_i.valid[Udp]);
    end
  end

  always_ff @(posedge clk_i) begin
    parse1_q  <= parse_i;
    is_gtpu_q <= parse_i.valid[Udp] && transport_i[0][15:0] == GtpuPort;
  end

  // ---- Cycle 2: the header that is selected.

  logic [UserHeaders-1:0] selected, selected_q;
  parse_t                 parse2_q;

  always_comb begin
    selected = '0;
    for (int unsigned i = 0; i < Alternatives; i++) begin
      selected[i/UserAlternatives] |= applies_q[i] && equal_q[i] == '1 && !is_gtpu_q;
    end
  end

  always_ff @(posedge clk_i) begin
    selected_q <= {selected[1] && !selected[0], selected[0]};
    parse2_q   <= parse1_q;
  end

  // ---- Cycles 3 and 4: its words, and its length.

  // Lengths in halves of words, and the last positions that are in the window.
  logic [UserHeaders-1:0][6:0] halves_q;
  logic [UserHeaders-1:0][5:0] last_q;
  logic [6:0]                  halves;
  logic [5:0]                  last;
  logic [15:0]                 room_halves;
  logic                        has_room_q, has_left_q, fits_q;
  logic [UserHeaders-1:0]      selected3_q;
  parse_t                      parse3_q;

  for (genvar i = 0; i < UserHeaders; i++) begin : gen_length
    logic [6:0] halves_of;

    fl_config_word #(.Unit(UserUnit), .Index(16'(4 * Alternatives + i)), .Width(7)) u_length (
        .clk_i, .config_i, .bank_i(next_bank_i), .data_o(halves_of));

    always_ff @(posedge clk_i) begin
      halves_q[i] <= halves_of;
      last_q[i]   <= 6'((WindowHalves - ((halves_of < MostHalves) ? halves_of : MostHalves)) >> 1);
    end
  end

  assign late_parse_o = parse2_q;
  assign halves = selected_q[0] ? halves_q[0] : halves_q[1];
  assign last = selected_q[0] ? last_q[0] : last_q[1];
  assign room_halves = {1'b0, parse2_q.room, parse2_q.half};

  always_ff @(posedge clk_i) begin
    has_room_q  <= room_halves >= 16'(halves);
    has_left_q  <= parse2_q.left >= {8'b0, halves, 1'b0};
    fits_q      <= parse2_q.at <= place_t'(last);
    selected3_q <= selected_q;
    parse3_q    <= parse2_q;
  end

  always_ff @(posedge clk_i) begin
    parse_o              <= parse3_q;
    parse_o.slow         <= parse3_q.slow || (selected3_q != '0 && has_room_q && !fits_q);
    parse_o.user_at      <= parse3_q.at[5:0];
    parse_o.valid[User0] <= selected3_q[0] && has_room_q && has_left_q;
    parse_o.valid[User1] <= selected3_q[1] && has_room_q && has_left_q;
  end

  fl_window_words #(
      .WindowWords(WindowWords),
      .Words(8)
  ) u_words (
      .clk_i,
      .window_i(late_window_i),
      .at_i(parse2_q.at[5:0]),
      .words_o
  );

endmodule
