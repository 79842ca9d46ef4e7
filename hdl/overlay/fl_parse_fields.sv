// SPDX-License-Identifier: Apache-2.0 OR MIT
// Fields of parsed headers as words, each 0 where the packet does not have it.
//
// Latency: 2 cycles.
// Throughput: one packet a cycle.
// Handshake: none.
module fl_parse_fields
  import fl_parse_pkg::*;
  import fl_config_pkg::*;
(
    input  logic        clk_i,
    input  config_t     config_i,
    input  logic        bank_i,
    input  logic [31:0] valid_i,
    input  headers_t    headers_i,
    input  logic [7:0]  proto_i,
    // Bytes after the transport header.
    input  logic [15:0] left_i,
    input  logic [15:0] length_i,
    input  logic [31:0] port_i,
    output words_t      fields_o
);

  localparam int unsigned UserSlots = 32'(Slot7) - 32'(Slot0) + 1;

  words_t           fields_d, fields_q;
  logic [9:0][31:0] ip;
  logic [4:0][31:0] transport;
  logic             is_4, is_6, is_tcp, is_udp, has_ports;

  assign ip = headers_i.ip;
  assign transport = headers_i.transport;
  assign is_4 = valid_i[Ipv4];
  assign is_6 = valid_i[Ipv6];
  assign is_tcp = valid_i[Tcp];
  assign is_udp = valid_i[Udp];
  assign has_ports = is_tcp || is_udp;

  function automatic logic [31:0] gated(logic keep, logic [31:0] word);
    return keep ? word : '0;
  endfunction

  // Words of headers at fixed positions, and of MPLS labels.
  function automatic words_t link_fields(
      logic [31:0] valid, logic [111:0] ethernet, logic [1:0][31:0] vlan, logic [3:0][31:0] mpls);
    words_t words;
    logic   has_ethernet;
    words = '0;
    has_ethernet = valid[Ethernet];
    words[EthDst0] = gated(has_ethernet, ethernet[95:64]);
    words[EthDst1] = gated(has_ethernet, 32'(ethernet[111:96]));
    words[EthSrc0] = gated(has_ethernet, ethernet[47:16]);
    words[EthSrc1] = gated(has_ethernet, 32'(ethernet[63:48]));
    words[EthType] = gated(has_ethernet, 32'(ethernet[15:0]));
    words[VlanPcp] = gated(valid[Vlan], 32'(vlan[0][31:29]));
    words[VlanDei] = gated(valid[Vlan], 32'(vlan[0][28]));
    words[VlanId] = gated(valid[Vlan], 32'(vlan[0][27:16]));
    words[VlanType] = gated(valid[Vlan], 32'(vlan[0][15:0]));
    words[Vlan2Pcp] = gated(valid[Vlan2], 32'(vlan[1][31:29]));
    words[Vlan2Dei] = gated(valid[Vlan2], 32'(vlan[1][28]));
    words[Vlan2Id] = gated(valid[Vlan2], 32'(vlan[1][27:16]));
    words[Vlan2Type] = gated(valid[Vlan2], 32'(vlan[1][15:0]));
    for (int unsigned i = 0; i < 4; i++) begin
      words[32'(MplsLabel)+i] = gated(valid[32'(Mpls)+i], 32'(mpls[i][31:12]));
      words[32'(MplsTc)+i] = gated(valid[32'(Mpls)+i], 32'(mpls[i][11:9]));
      words[32'(MplsBos)+i] = gated(valid[32'(Mpls)+i], 32'(mpls[i][8]));
      words[32'(MplsTtl)+i] = gated(valid[32'(Mpls)+i], 32'(mpls[i][7:0]));
    end
    return words;
  endfunction

  always_comb begin
    fields_d = link_fields(valid_i, headers_i.ethernet, headers_i.vlan, headers_i.mpls);
    fields_d[PktLen] = 32'(length_i);
    fields_d[PktPort] = port_i;
    // Addresses of IPv4 have the prefix ::ffff:0:0.
    fields_d[IpSrc0] = gated(is_4, ip[3]) | gated(is_6, ip[5]);
    fields_d[IpSrc1] = gated(is_4, 32'hffff) | gated(is_6, ip[4]);
    fields_d[IpSrc2] = gated(is_6, ip[3]);
    fields_d[IpSrc3] = gated(is_6, ip[2]);
    fields_d[IpDst0] = gated(is_4, ip[4]) | gated(is_6, ip[9]);
    fields_d[IpDst1] = gated(is_4, 32'hffff) | gated(is_6, ip[8]);
    fields_d[IpDst2] = gated(is_6, ip[7]);
    fields_d[IpDst3] = gated(is_6, ip[6]);
    fields_d[IpProto] = gated(is_4 || is_6, 32'(proto_i));
    fields_d[IpTos] = gated(is_4, 32'(ip[0][23:16])) | gated(is_6, 32'(ip[0][27:20]));
    fields_d[IpTtl] = gated(is_4, 32'(ip[2][31:24])) | gated(is_6, 32'(ip[1][7:0]));
    fields_d[IpVersion] = gated(is_4 || is_6, 32'(ip[0][31:28]));
    fields_d[IpFrag] = gated(is_4, 32'(ip[1][12:0])) | gated(valid_i[Ipv6Fragment], 32'(headers_i.fragment[0][15:3]));
    fields_d[IpMf] = gated(is_4, 32'(ip[1][13])) | gated(valid_i[Ipv6Fragment], 32'(headers_i.fragment[0][0]));
    fields_d[Ipv4Ihl] = gated(is_4, 32'(ip[0][27:24]));
    fields_d[Ipv4Dscp] = gated(is_4, 32'(ip[0][23:18]));
    fields_d[Ipv4Ecn] = gated(is_4, 32'(ip[0][17:16]));
    fields_d[Ipv4Len] = gated(is_4, 32'(ip[0][15:0]));
    fields_d[Ipv4Id] = gated(is_4, 32'(ip[1][31:16]));
    fields_d[Ipv4Df] = gated(is_4, 32'(ip[1][14]));
    fields_d[Ipv4Proto] = gated(is_4, 32'(ip[2][23:16]));
    fields_d[Ipv4Checksum] = gated(is_4, 32'(ip[2][15:0]));
    fields_d[Ipv6FlowLabel] = gated(is_6, 32'(ip[0][19:0]));
    fields_d[Ipv6Len] = gated(is_6, 32'(ip[1][31:16]));
    fields_d[Ipv6Next] = gated(is_6, 32'(ip[1][15:8]));
    fields_d[Ipv6FragId] = gated(valid_i[Ipv6Fragment], headers_i.fragment[1]);
    fields_d[Ports] = gated(has_ports, transport[0]);
    fields_d[L4Sport] = gated(has_ports, 32'(transport[0][31:16]));
    fields_d[L4Dport] = gated(has_ports, 32'(transport[0][15:0]));
    fields_d[TcpSeq] = gated(is_tcp, transport[1]);
    fields_d[TcpAck] = gated(is_tcp, transport[2]);
    fields_d[TcpDoff] = gated(is_tcp, 32'(transport[3][31:28]));
    fields_d[TcpFlags] = gated(is_tcp, 32'(transport[3][23:16]));
    for (int unsigned i = 0; i < 8; i++) begin
      fields_d[32'(TcpIsCwr)+i] = gated(is_tcp, 32'(transport[3][23-i]));
    end
    fields_d[TcpWindow] = gated(is_tcp, 32'(transport[3][15:0]));
    fields_d[TcpChecksum] = gated(is_tcp, 32'(transport[4][31:16]));
    fields_d[TcpUrgent] = gated(is_tcp, 32'(transport[4][15:0]));
    fields_d[TcpPayloadLen] = gated(is_tcp, 32'(left_i));
    fields_d[UdpLen] = gated(is_udp, 32'(transport[1][31:16]));
    fields_d[UdpChecksum] = gated(is_udp, 32'(transport[1][15:0]));
    fields_d[IcmpChecksum] = gated(valid_i[Icmp], 32'(transport[0][15:0]));
    fields_d[Icmp6Checksum] = gated(valid_i[Icmp6], 32'(transport[0][15:0]));
    fields_d[IcmpxType] = gated(valid_i[Icmp] || valid_i[Icmp6], 32'(transport[0][31:24]));
    fields_d[IcmpxCode] = gated(valid_i[Icmp] || valid_i[Icmp6], 32'(transport[0][23:16]));
    fields_d[IcmpxId] = gated(valid_i[Icmp] || valid_i[Icmp6], 32'(transport[1][31:16]));
    fields_d[IcmpxSeq] = gated(valid_i[Icmp] || valid_i[Icmp6], 32'(transport[1][15:0]));
  end

  // ---- Fields of user headers: first the two words that have the bits, then the bits.

  logic [UserSlots-1:0][31:0] slots;
  // From the last word on, after a word that no field reaches.
  logic [3:0][31:0] odd_words;
  logic [4:0][31:0] even_words;

  always_comb begin
    even_words[4] = '0;
    for (int unsigned i = 0; i < 4; i++) begin
      even_words[i] = headers_i.user[7-2*i];
      odd_words[i]  = headers_i.user[6-2*i];
    end
  end

  for (genvar i = 0; i < UserSlots; i++) begin : gen_slot
    slot_t       slot, slot_q;
    logic        has_header_q;
    logic [2:0]  even_at;
    logic [31:0] even_q, odd_q, merged, value_q;
    logic [63:0] twice;

    fl_config_word #(.Unit(SlotUnit), .Index(16'(i)), .Width($bits(slot_t))) u_slot (
        .clk_i, .config_i, .bank_i, .data_o(slot));

    // Of the word and the next one, one has an even number. Bits below the shift are those of the next word.
    assign even_at = 3'(slot.word[2:1]) + 3'(slot.word[0]);
    assign merged = (even_q & {32{!slot_q.word[0]}} | odd_q & {32{slot_q.word[0]}}) & (32'hffff_ffff << slot_q.shift)
        | (odd_q & {32{!slot_q.word[0]}} | even_q & {32{slot_q.word[0]}}) & ~(32'hffff_ffff << slot_q.shift);
    assign twice = {2{merged}} >> slot_q.shift;

    always_ff @(posedge clk_i) begin
      slot_q       <= slot;
      has_header_q <= slot.header ? valid_i[User1] : valid_i[User0];
      even_q       <= even_words[even_at];
      odd_q        <= odd_words[slot.word[2:1]];
      value_q      <= gated(has_header_q, twice[31:0] & (32'hffff_ffff >> (5'd31 - slot_q.most)));
    end
    assign slots[i] = value_q;

    logic unused;
    assign unused = ^{twice[63:32], slot_q};
  end

  // ---- The sequence number after the segment.

  logic [31:0] next_q;

  always_ff @(posedge clk_i) begin
    fields_q <= fields_d;
    next_q   <= fields_q[TcpSeq] + fields_q[TcpPayloadLen] 
                + 32'(fields_q[TcpIsSyn][0]) + 32'(fields_q[TcpIsFin][0]);
  end

  words_t fields2_q;
  always_ff @(posedge clk_i) fields2_q <= fields_q;

  always_comb begin
    fields_o = fields2_q;
    fields_o[NextSequence] = next_q;
    for (int unsigned i = 0; i < UserSlots; i++) fields_o[32'(Slot0)+i] = slots[i];
  end

  logic unused;
  assign unused = ^headers_i;

endmodule
