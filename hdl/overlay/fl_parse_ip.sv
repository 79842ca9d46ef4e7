// SPDX-License-Identifier: Apache-2.0 OR MIT
// Parser, second part: IPv4 and the fixed header of IPv6.
//
// Latency: 2 cycles.
// Throughput: one packet a cycle.
// Handshake: none.
// Source: [RFC 791], [RFC 8200 3]
module fl_parse_ip
  import fl_parse_pkg::*;
#(
    parameter int unsigned WindowWords = 29
) (
    input  logic                         clk_i,
    input  logic [WindowWords-1:0][31:0] window_i,
    input  parse_t                       parse_i,
    input  logic                         may_be_4_i,
    input  logic                         may_be_6_i,
    output parse_t                       parse_o
);

  // Positions of the header: after two tags and four labels at most.
  localparam int unsigned Positions = 7;
  localparam place_t Words4 = 14'd5;
  localparam place_t Words6 = 14'd10;

  logic [2:0][31:0] head_d, head_q;
  parse_t           parse_q;
  logic             may_be_4_q, may_be_6_q, fits_6_q;

  always_comb begin
    head_d = '0;
    for (int unsigned i = 0; i < 3; i++) begin
      for (int unsigned at = 0; at < Positions; at++) begin
        if (parse_i.at[2:0] == 3'(at)) head_d[i] |= window_i[at+i];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    head_q       <= head_d;
    parse_q      <= parse_i;
    parse_q.room <= parse_i.room - parse_i.at;
    may_be_4_q   <= may_be_4_i;
    may_be_6_q   <= may_be_6_i;
    fits_6_q     <= parse_i.at <= place_t'(WindowWords - 1) - Words6;
  end

  logic        is_4, is_6, valid_4, valid_6, later_fragment, unused;
  logic [3:0]  words_4;
  place_t      words;
  logic [14:0] room;
  // The payload of IPv4 by its lengths.
  logic [16:0] payload_4;

  assign unused = ^head_q;
  assign is_4 = parse_q.active && may_be_4_q && head_q[0][31:28] == 4'd4;
  assign is_6 = parse_q.active && may_be_6_q && head_q[0][31:28] == 4'd6;
  assign words_4 = head_q[0][27:24];
  assign words = is_6 ? Words6 : place_t'(words_4);
  assign room = {1'b0, parse_q.room} - {1'b0, words};
  assign payload_4 = {1'b0, head_q[0][15:0]} - {11'b0, words_4, 2'b0};
  assign valid_4 = is_4 && words_4 >= Words4[3:0] && !room[14] && !payload_4[16];
  assign valid_6 = is_6 && !room[14];
  assign later_fragment = valid_4 && head_q[1][12:0] != '0;

  always_ff @(posedge clk_i) begin
    parse_o             <= parse_q;
    parse_o.active      <= (valid_4 || valid_6) && !later_fragment;
    parse_o.slow        <= valid_6 && !fits_6_q;
    parse_o.valid[Ipv4] <= valid_4;
    parse_o.valid[Ipv6] <= valid_6;
    parse_o.at          <= parse_q.at + words;
    parse_o.room        <= room[13:0];
    parse_o.left        <= is_6 ? head_q[1][31:16] : payload_4[15:0];
    parse_o.proto       <= is_6 ? head_q[1][15:8] : head_q[2][23:16];
  end

  if (WindowWords < Positions + 5) begin : gen_bad_window
    $error("WindowWords is %0d, expected at least %0d", WindowWords, Positions + 5);
  end

endmodule
