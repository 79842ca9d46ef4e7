// SPDX-License-Identifier: Apache-2.0 OR MIT
// Parser, third part: an extension header of IPv6, if there is one.
//
// Latency: 2 cycles.
// Throughput: one packet a cycle.
// Handshake: none.
// Source: [RFC 8200 4], [RFC 4302 2]
module fl_parse_extension
  import fl_parse_pkg::*;
#(
    parameter int unsigned WindowWords = 29
) (
    input  logic                         clk_i,
    input  logic [WindowWords-1:0][31:0] window_i,
    input  parse_t                       parse_i,
    output parse_t                       parse_o
);

  // It comes after the fixed header of IPv6.
  localparam int unsigned First = 10;

  logic [31:0] head_d, head_q;
  parse_t      parse_q;
  logic        is_options, is_fragment, is_authentication;
  logic        is_options_q, is_fragment_q, is_authentication_q, has_min_q, fits_q;

  always_comb begin
    head_d = '0;
    for (int unsigned at = First; at < WindowWords; at++) begin
      if (parse_i.at[5:0] == near_t'(at)) head_d |= window_i[at];
    end
    is_options = parse_i.proto == 8'd0 || parse_i.proto == 8'd43 || parse_i.proto == 8'd60;
    is_fragment = parse_i.proto == 8'd44;
    is_authentication = parse_i.proto == 8'd51;
  end

  always_ff @(posedge clk_i) begin
    head_q              <= head_d;
    parse_q             <= parse_i;
    is_options_q        <= parse_i.active && parse_i.valid[Ipv6] && is_options;
    is_fragment_q       <= parse_i.active && parse_i.valid[Ipv6] && is_fragment;
    is_authentication_q <= parse_i.active && parse_i.valid[Ipv6] && is_authentication;
    // The bytes that every header of its kind has.
    has_min_q           <= parse_i.room >= (is_authentication ? 14'd3 : 14'd2);
    // The window ends within a word.
    fits_q              <= parse_i.at <= place_t'(WindowWords - (is_authentication ? 4 : 3));
  end

  logic        is_any, is_valid, unused;
  place_t      words;
  logic [14:0] room;
  logic [16:0] left;

  assign unused = ^head_q;
  assign is_any = is_options_q || is_fragment_q || is_authentication_q;
  always_comb begin
    words = '0;
    if (is_options_q) words = {5'b0, {1'b0, head_q[23:16]} + 9'd1} << 1;
    if (is_fragment_q) words = 14'd2;
    if (is_authentication_q) words = {5'b0, {1'b0, head_q[23:16]} + 9'd2};
  end
  assign room = {1'b0, parse_q.room} - {1'b0, words};
  assign left = {1'b0, parse_q.left} - {1'b0, words, 2'b0};
  assign is_valid = is_any && has_min_q && !room[14] && !left[16] && !(is_authentication_q && head_q[23:16] == '0);

  always_ff @(posedge clk_i) begin
    parse_o        <= parse_q;
    parse_o.active <= is_any ? is_valid && !(is_fragment_q && head_q[15:3] != '0) : parse_q.active;
    parse_o.slow   <= parse_q.slow || (is_any && has_min_q && !fits_q);
    parse_o.at     <= parse_q.at + words;
    parse_o.room   <= room[13:0];
    parse_o.left   <= left[15:0];
    if (is_valid) begin
      parse_o.proto <= head_q[31:24];
    end
    // The first fragment header counts.
    if (is_valid && is_fragment_q && !parse_q.valid[Ipv6Fragment]) begin
      parse_o.valid[Ipv6Fragment] <= 1'b1;
      parse_o.fragment_at         <= parse_q.at[5:0];
    end
  end

endmodule
