// SPDX-License-Identifier: Apache-2.0 OR MIT
// Parser, fourth part: TCP, UDP, ICMP or ICMPv6.
//
// Latency: 4 cycles; the words of the header are there after 2.
// Throughput: one packet a cycle.
// Handshake: none.
// Source: [RFC 9293 3.1], [RFC 768], [RFC 792], [RFC 4443]
module fl_parse_transport
  import fl_parse_pkg::*;
#(
    parameter int unsigned WindowWords = 29
) (
    input  logic                         clk_i,
    input  logic [WindowWords-1:0][31:0] window_i,
    input  parse_t                       parse_i,
    output logic [4:0][31:0]             words_o,
    output parse_t                       parse_o
);

  localparam place_t TcpWords = 14'd5;
  localparam place_t ShortWords = 14'd2;
  // The window ends within a word.
  localparam place_t FullWords = place_t'(WindowWords - 1);

  // ---- Two cycles: the words, and which header it is.

  parse_t parse1_q, parse2_q;
  logic   is_tcp1_q, is_udp1_q, is_icmp1_q, is_icmp6_1_q;
  logic   is_tcp_q, is_udp_q, is_icmp_q, is_icmp6_q, has_tcp_q, has_short_q, fits_q;

  fl_window_words #(
      .WindowWords(WindowWords),
      .Words(5)
  ) u_words (
      .clk_i,
      .window_i,
      .at_i(parse_i.at[5:0]),
      .words_o
  );

  always_ff @(posedge clk_i) begin
    parse1_q     <= parse_i;
    is_tcp1_q    <= parse_i.active && parse_i.proto == 8'd6;
    is_udp1_q    <= parse_i.active && parse_i.proto == 8'd17;
    is_icmp1_q   <= parse_i.active && parse_i.proto == 8'd1 && parse_i.valid[Ipv4];
    is_icmp6_1_q <= parse_i.active && parse_i.proto == 8'd58 && parse_i.valid[Ipv6];
    parse2_q     <= parse1_q;
    is_tcp_q     <= is_tcp1_q;
    is_udp_q     <= is_udp1_q;
    is_icmp_q    <= is_icmp1_q;
    is_icmp6_q   <= is_icmp6_1_q;
    has_tcp_q    <= parse1_q.room >= TcpWords;
    has_short_q  <= parse1_q.room >= ShortWords;
    fits_q       <= parse1_q.at <= (is_tcp1_q ? FullWords - TcpWords : FullWords - ShortWords);
  end

  // ---- Lengths.

  logic        is_short, has_min;
  logic [3:0]  data_offset;
  place_t      words;
  logic [14:0] room;
  logic [16:0] left, udp_left;
  parse_t      parse3_d, parse3_q;
  logic        is_valid_d, is_valid3_q, is_udp3_q, is_icmp3_q, is_icmp6_3_q, is_tcp3_q, udp_valid3_q;
  logic [15:0] udp_left3_q;

  assign is_short = is_udp_q || is_icmp_q || is_icmp6_q;
  assign has_min = (is_tcp_q && has_tcp_q) || (is_short && has_short_q);
  assign data_offset = words_o[3][31:28];
  assign words = is_tcp_q ? place_t'(data_offset) : ShortWords;
  assign room = {1'b0, parse2_q.room} - {1'b0, words};
  assign left = {1'b0, parse2_q.left} - {1'b0, words, 2'b0};
  assign udp_left = {1'b0, words_o[1][31:16]} - 17'd8;
  assign is_valid_d = has_min && !room[14] && !left[16] && !(is_tcp_q && data_offset < TcpWords[3:0]);

  always_comb begin
    parse3_d = parse2_q;
    parse3_d.at = parse2_q.at + words;
    parse3_d.room = room[13:0];
    parse3_d.left = left[15:0];
    parse3_d.transport_at = parse2_q.at[5:0];
    parse3_d.slow = parse2_q.slow || (has_min && !fits_q);
  end

  always_ff @(posedge clk_i) begin
    parse3_q     <= parse3_d;
    is_valid3_q  <= is_valid_d;
    is_tcp3_q    <= is_tcp_q;
    is_udp3_q    <= is_udp_q;
    is_icmp3_q   <= is_icmp_q;
    is_icmp6_3_q <= is_icmp6_q;
    udp_left3_q  <= udp_left[15:0];
    udp_valid3_q <= !udp_left[16];
  end

  // ---- The smaller one of UDP's two lengths counts.

  logic is_udp, unused;

  assign is_udp = is_valid3_q && is_udp3_q && udp_valid3_q;
  assign unused = ^{words_o[4], words_o[2:0], words_o[3][27:0]};

  always_ff @(posedge clk_i) begin
    parse_o              <= parse3_q;
    parse_o.active       <= is_udp || (is_valid3_q && is_tcp3_q);
    parse_o.valid[Tcp]   <= is_valid3_q && is_tcp3_q;
    parse_o.valid[Udp]   <= is_udp;
    parse_o.valid[Icmp]  <= is_valid3_q && is_icmp3_q;
    parse_o.valid[Icmp6] <= is_valid3_q && is_icmp6_3_q;
    if (is_udp3_q && udp_left3_q < parse3_q.left) begin
      parse_o.left <= udp_left3_q;
    end
  end

endmodule
