// SPDX-License-Identifier: Apache-2.0 OR MIT
// Parser, first part: Ethernet, VLAN tags and MPLS labels.
//
// Latency: 2 cycles.
// Throughput: one packet a cycle.
// Handshake: none.
// Source: [IEEE 802.1Q], [RFC 3032]
module fl_parse_link
  import fl_parse_pkg::*;
(
    input  logic             clk_i,
    input  logic [15:0]      type_i,
    // The first six words after the addresses and the EtherType.
    input  logic [5:0][31:0] words_i,
    input  logic [15:0]      length_i,
    output parse_t           parse_o,
    // Versions of IP that may follow.
    output logic             may_be_4_o,
    output logic             may_be_6_o
);

  localparam int unsigned EthernetBytes = 14;
  localparam int unsigned MostTags = 2;
  localparam int unsigned MostLabels = 4;
  localparam int unsigned Most = MostTags + MostLabels;

  typedef struct packed {
    logic is_tag;
    logic is_mpls;
    logic is_4;
    logic is_6;
  } kind_t;

  function automatic kind_t kind_of(logic [15:0] ethertype);
    return '{is_tag: ethertype == 16'h8100 || ethertype == 16'h88a8, is_mpls: ethertype == 16'h8847,
             is_4: ethertype == 16'h0800, is_6: ethertype == 16'h86dd};
  endfunction

  // ---- The kinds of the three possible EtherTypes; which words are present.

  kind_t                kind_q[MostTags+1];
  // The packet has this number of words after Ethernet.
  logic [Most:0]        has_q;
  logic [MostTags+MostLabels-1:0] bottom_q;
  logic [15:0]          after_ethernet;
  place_t               room_q;
  logic                 half_q, unused;

  assign after_ethernet = length_i - 16'(EthernetBytes);

  always_ff @(posedge clk_i) begin
    kind_q[0] <= kind_of(type_i);
    kind_q[1] <= kind_of(words_i[0][15:0]);
    kind_q[2] <= kind_of(words_i[1][15:0]);
    for (int unsigned i = 0; i <= Most; i++) begin
      has_q[i] <= length_i >= 16'(EthernetBytes + 4 * i);
    end
    for (int unsigned i = 0; i < Most; i++) begin
      bottom_q[i] <= words_i[i][8];
    end
    room_q <= after_ethernet[15:2];
    half_q <= after_ethernet[1];
  end

  // ---- Tags, then labels.

  logic [31:0]           valid;
  logic                  active;
  logic [2:0]            tags, words;
  kind_t                 kind;
  logic [MostLabels-1:0] labels;
  logic                  is_bottom;

  assign unused = ^{words_i, after_ethernet[0], kind.is_tag};

  always_comb begin
    valid = '0;
    valid[Ethernet] = has_q[0];
    valid[Vlan] = has_q[1] && kind_q[0].is_tag;
    valid[Vlan2] = has_q[2] && kind_q[0].is_tag && kind_q[1].is_tag;
    kind = valid[Vlan2] ? kind_q[2] : valid[Vlan] ? kind_q[1] : kind_q[0];
    tags = 3'(valid[Vlan]) + 3'(valid[Vlan2]);
    labels = '0;
    is_bottom = 1'b0;
    for (int unsigned i = 0; i < MostLabels; i++) begin
      labels[i] = kind.is_mpls && has_q[tags+3'(i)+3'd1] && !is_bottom && (i == 0 || labels[(i == 0) ? 0 : i-1]);
      is_bottom |= labels[i] && bottom_q[tags+3'(i)];
      valid[32'(Mpls)+i] = labels[i];
    end
    words = tags + 3'(labels[0]) + 3'(labels[1]) + 3'(labels[2]) + 3'(labels[3]);
    active = has_q[0] && (kind.is_mpls ? is_bottom : kind.is_4 || kind.is_6);
  end

  always_ff @(posedge clk_i) begin
    parse_o        <= '0;
    parse_o.active <= active;
    parse_o.valid  <= valid;
    parse_o.at     <= place_t'(words);
    parse_o.ip_at  <= near_t'(words);
    // Not yet without the words of tags and labels.
    parse_o.room   <= room_q;
    parse_o.half   <= half_q;
    may_be_4_o     <= kind.is_mpls || kind.is_4;
    may_be_6_o     <= kind.is_mpls || kind.is_6;
  end

endmodule
