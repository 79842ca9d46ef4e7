// SPDX-License-Identifier: Apache-2.0 OR MIT
// Headers with the new values of written fields, and the bits that are written. Only the bits of a field are replaced.
//
// Latency: 2 cycles.
// Throughput: one packet a cycle.
// Handshake: none.
module fl_rewrite_headers
  import fl_parse_pkg::*;
  import fl_config_pkg::*;
(
    input  logic               clk_i,
    input  config_t            config_i,
    input  logic               bank_i,
    input  logic [31:0]        valid_i,
    input  headers_t           headers_i,
    input  words_t             values_i,
    input  logic [Sources-1:0] written_i,
    output headers_t           headers_o,
    output headers_t           mask_o
);

  localparam int unsigned UserSlots = 32'(Slot7) - 32'(Slot0) + 1;

  headers_t           values, bits, values_q, bits_q, old_q, new_d, mask_d;
  logic [31:0]        valid;
  logic               is_4, is_6, has_ports, is_tcp, is_icmp, is_valid;

  assign valid = valid_i;
  assign is_4 = valid[Ipv4];
  assign is_6 = valid[Ipv6];
  assign is_tcp = valid[Tcp];
  assign has_ports = valid[Tcp] || valid[Udp];
  assign is_icmp = valid[Icmp] || valid[Icmp6];

  // The mask of a field in a word: all of its bits, if it is written in a valid header.
  function automatic logic [31:0] place(logic keep, logic written, int unsigned width, int unsigned shift);
    return (keep && written) ? ((32'hffff_ffff >> (32 - width)) << shift) : '0;
  endfunction

  // ---- Values and masks at their places in the headers.

  always_comb begin
    values = '0;
    values.ethernet = {values_i[EthDst1][15:0], values_i[EthDst0], values_i[EthSrc1][15:0], values_i[EthSrc0], 16'h0};
    for (int unsigned i = 0; i < 2; i++) begin
      values.vlan[i] = {values_i[32'(VlanPcp)+i][2:0], values_i[32'(VlanDei)+i][0], values_i[32'(VlanId)+i][11:0],
                        16'h0};
    end
    for (int unsigned i = 0; i < 4; i++) begin
      values.mpls[i] = {values_i[32'(MplsLabel)+i][19:0], values_i[32'(MplsTc)+i][2:0], 1'b0,
                        values_i[32'(MplsTtl)+i][7:0]};
    end
    values.ip[0] = is_4 ? {8'h0, values_i[IpTos][7:0], 16'h0}
                        : {4'h0, values_i[IpTos][7:0], values_i[Ipv6FlowLabel][19:0]};
    values.ip[1] = is_4 ? {values_i[Ipv4Id][15:0], 16'h0} : {24'h0, values_i[IpTtl][7:0]};
    values.ip[2] = is_4 ? {values_i[IpTtl][7:0], 24'h0} : values_i[IpSrc3];
    values.ip[3] = is_4 ? values_i[IpSrc0] : values_i[IpSrc2];
    values.ip[4] = is_4 ? values_i[IpDst0] : values_i[IpSrc1];
    values.ip[5] = values_i[IpSrc0];
    values.ip[6] = values_i[IpDst3];
    values.ip[7] = values_i[IpDst2];
    values.ip[8] = values_i[IpDst1];
    values.ip[9] = values_i[IpDst0];
    values.fragment[1] = values_i[Ipv6FragId];
    values.transport[0] = has_ports ? {values_i[L4Sport][15:0], values_i[L4Dport][15:0]}
                                    : {values_i[IcmpxType][7:0], values_i[IcmpxCode][7:0], 16'h0};
    values.transport[1] = is_tcp ? values_i[TcpSeq] : {values_i[IcmpxId][15:0], values_i[IcmpxSeq][15:0]};
    values.transport[2] = values_i[TcpAck];
    values.transport[3] = {8'h0, values_i[TcpFlags][7:0], values_i[TcpWindow][15:0]};
    values.transport[4] = {16'h0, values_i[TcpUrgent][15:0]};
  end

  always_comb begin
    is_valid = 1'b0;
    bits = '0;
    bits.ethernet[111:64] = {{16{written_i[EthDst1]}}, {32{written_i[EthDst0]}}};
    bits.ethernet[63:16] = {{16{written_i[EthSrc1]}}, {32{written_i[EthSrc0]}}};
    if (!valid[Ethernet]) bits.ethernet = '0;
    for (int unsigned i = 0; i < 2; i++) begin
      is_valid = valid[32'(Vlan)+i];
      bits.vlan[i] = place(is_valid, written_i[32'(VlanPcp)+i], 3, 29)
          | place(is_valid, written_i[32'(VlanDei)+i], 1, 28) | place(is_valid, written_i[32'(VlanId)+i], 12, 16);
    end
    for (int unsigned i = 0; i < 4; i++) begin
      is_valid = valid[32'(Mpls)+i];
      bits.mpls[i] = place(is_valid, written_i[32'(MplsLabel)+i], 20, 12)
          | place(is_valid, written_i[32'(MplsTc)+i], 3, 9) | place(is_valid, written_i[32'(MplsTtl)+i], 8, 0);
    end
    bits.ip[0] = place(is_4, written_i[IpTos], 8, 16) | place(is_6, written_i[IpTos], 8, 20)
        | place(is_6, written_i[Ipv6FlowLabel], 20, 0);
    bits.ip[1] = place(is_4, written_i[Ipv4Id], 16, 16) | place(is_6, written_i[IpTtl], 8, 0);
    bits.ip[2] = place(is_4, written_i[IpTtl], 8, 24) | place(is_6, written_i[IpSrc3], 32, 0);
    bits.ip[3] = place(is_4, written_i[IpSrc0], 32, 0) | place(is_6, written_i[IpSrc2], 32, 0);
    bits.ip[4] = place(is_4, written_i[IpDst0], 32, 0) | place(is_6, written_i[IpSrc1], 32, 0);
    bits.ip[5] = place(is_6, written_i[IpSrc0], 32, 0);
    bits.ip[6] = place(is_6, written_i[IpDst3], 32, 0);
    bits.ip[7] = place(is_6, written_i[IpDst2], 32, 0);
    bits.ip[8] = place(is_6, written_i[IpDst1], 32, 0);
    bits.ip[9] = place(is_6, written_i[IpDst0], 32, 0);
    bits.fragment[1] = place(valid[Ipv6Fragment], written_i[Ipv6FragId], 32, 0);
    bits.transport[0] = place(has_ports, written_i[L4Sport], 16, 16) | place(has_ports, written_i[L4Dport], 16, 0)
        | place(is_icmp, written_i[IcmpxType], 8, 24) | place(is_icmp, written_i[IcmpxCode], 8, 16);
    bits.transport[1] = place(is_tcp, written_i[TcpSeq], 32, 0) | place(is_icmp, written_i[IcmpxId], 16, 16)
        | place(is_icmp, written_i[IcmpxSeq], 16, 0);
    bits.transport[2] = place(is_tcp, written_i[TcpAck], 32, 0);
    bits.transport[3] = place(is_tcp, written_i[TcpFlags], 8, 16) | place(is_tcp, written_i[TcpWindow], 16, 0);
    bits.transport[4] = place(is_tcp, written_i[TcpUrgent], 16, 0);
  end

  // ---- Fields of user headers. Each value is rotated to its place in a word, and each bit of the header takes the one
  // of the slot that owns it.

  typedef struct packed {
    logic       is_owned;
    logic [2:0] slot;
  } owner_t;

  localparam int unsigned UserBytes = 32;

  logic [UserSlots-1:0][31:0] rotated_q;
  logic [UserSlots-1:0]       takes_q;
  owner_t [7:0]               owners_q[UserBytes];
  logic [7:0][31:0]           user, user_bits;

  for (genvar i = 0; i < UserSlots; i++) begin : gen_slot
    slot_t       slot;
    logic [63:0] twice;

    fl_config_word #(.Unit(SlotUnit), .Index(16'(i)), .Width($bits(slot_t))) u_slot (
        .clk_i, .config_i, .bank_i, .data_o(slot));

    assign twice = {2{values_i[32'(Slot0)+i]}} << slot.shift;

    always_ff @(posedge clk_i) begin
      rotated_q[i] <= twice[63:32];
      takes_q[i]   <= (valid[User0] || valid[User1]) && written_i[32'(Slot0)+i];
    end

    logic unused;
    assign unused = ^{twice[31:0], slot};
  end

  for (genvar i = 0; i < UserBytes; i++) begin : gen_owner
    owner_t [7:0] owners;

    fl_config_word #(.Unit(OwnerUnit), .Index(16'(2 * i)), .Entries(2)) u_owners (
        .clk_i, .config_i, .bank_i({valid[User1], bank_i}), .data_o(owners));

    always_ff @(posedge clk_i) owners_q[i] <= owners;
  end

  always_comb begin
    for (int unsigned i = 0; i < UserBytes; i++) begin
      for (int unsigned k = 0; k < 8; k++) begin
        user[i/4][8*(3-i%4)+k]      = rotated_q[owners_q[i][k].slot][8*(3-i%4)+k];
        user_bits[i/4][8*(3-i%4)+k] = owners_q[i][k].is_owned && takes_q[owners_q[i][k].slot];
      end
    end
  end

  always_comb begin
    mask_d = bits_q;
    new_d = values_q;
    new_d.user = user;
    mask_d.user = user_bits;
    new_d = (old_q & ~mask_d) | (new_d & mask_d);
  end

  always_ff @(posedge clk_i) begin
    values_q  <= values;
    bits_q    <= bits;
    old_q     <= headers_i;
    headers_o <= new_d;
    mask_o    <= mask_d;
  end

  logic unused;
  assign unused = ^{values_i, written_i, valid, values_q.user, bits_q.user};

endmodule
