// SPDX-License-Identifier: Apache-2.0 OR MIT
// Incremental checksums: HC' = ~(~HC + sum(~m) + sum(m')) over the written halves of words.
//
// The sum is a plain number until it is folded: it is 0 only if each term is, as in `wire::rewrite`.
//
// Latency: 6 cycles.
// Throughput: one packet a cycle.
// Handshake: none.
// Source: [RFC 1624 3]
module fl_rewrite_checksum
  import fl_parse_pkg::*;
(
    input  logic        clk_i,
    input  logic [31:0] valid_i,
    input  headers_t    old_i,
    input  headers_t    new_i,
    input  headers_t    mask_i,
    // The checksums of IPv4 and of the transport header, and whether they are replaced.
    output logic        writes_ip_o,
    output logic [15:0] ip_o,
    output logic        writes_transport_o,
    output logic [15:0] transport_o
);

  localparam int unsigned IpHalves = 20;
  localparam int unsigned TransportHalves = 10;
  localparam int unsigned UserHalves = 16;
  // 46 terms of 17 bits, and a checksum.
  localparam int unsigned SumBits = 23;

  typedef logic [SumBits-1:0] sum_t;

  typedef struct packed {
    logic        is_4;
    logic        is_udp;
    // It covers the addresses.
    logic        has_pseudo_header;
    logic        has_transport;
    logic [15:0] ip;
    logic [15:0] transport;
  } old_t;

  // ---- Cycle 1: the difference of each half word.

  logic [IpHalves-1:0][16:0]        ip_q;
  logic [TransportHalves-1:0][16:0] transport_q;
  logic [UserHalves-1:0][16:0]      user_q;
  logic                             ip_touched_q, addresses_touched_q, transport_touched_q, user_touched_q;
  old_t                             old_d, old1_q, old2_q, old3_q;
  logic                             is_6, is_6_q;
  logic [IpHalves-1:0]              ip_touched;

  function automatic logic [16:0] difference(logic [15:0] old, logic [15:0] changed, logic [15:0] mask);
    return (mask != '0) ? {1'b0, ~old} + {1'b0, changed} : '0;
  endfunction

  assign is_6 = valid_i[Ipv6];
  assign old_d = '{is_4: valid_i[Ipv4], is_udp: valid_i[Udp], has_pseudo_header: !valid_i[Icmp],
                   has_transport: valid_i[Tcp] || valid_i[Udp] || valid_i[Icmp] || valid_i[Icmp6],
                   ip: old_i.ip[2][15:0],
                   transport: valid_i[Tcp] ? old_i.transport[4][31:16] :
                              valid_i[Udp] ? old_i.transport[1][15:0] : old_i.transport[0][15:0]};

  always_comb begin
    for (int unsigned i = 0; i < IpHalves; i++) begin
      ip_touched[i] = mask_i.ip[i/2][16*(1-i%2)+:16] != '0;
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < IpHalves; i++) begin
      ip_q[i] <= difference(old_i.ip[i/2][16*(1-i%2)+:16], new_i.ip[i/2][16*(1-i%2)+:16],
                            mask_i.ip[i/2][16*(1-i%2)+:16]);
    end
    for (int unsigned i = 0; i < TransportHalves; i++) begin
      transport_q[i] <= difference(old_i.transport[i/2][16*(1-i%2)+:16], new_i.transport[i/2][16*(1-i%2)+:16],
                                   mask_i.transport[i/2][16*(1-i%2)+:16]);
    end
    for (int unsigned i = 0; i < UserHalves; i++) begin
      user_q[i] <= difference(old_i.user[i/2][16*(1-i%2)+:16], new_i.user[i/2][16*(1-i%2)+:16],
                              mask_i.user[i/2][16*(1-i%2)+:16]);
    end
    ip_touched_q        <= ip_touched[9:0] != '0;
    addresses_touched_q <= is_6 ? ip_touched[19:4] != '0 : ip_touched[9:6] != '0;
    transport_touched_q <= mask_i.transport != '0;
    user_touched_q      <= mask_i.user != '0;
    is_6_q              <= is_6;
    old1_q              <= old_d;
  end

  // ---- Cycles 2 to 4: sums. In the header of IPv4, words 0, 2, 4 and the addresses (6 to 9) can be written; the
  // addresses of IPv6 are words 4 to 19.

  function automatic sum_t sum4(logic [16:0] a, logic [16:0] b, logic [16:0] c, logic [16:0] d);
    return (sum_t'(a) + sum_t'(b)) + (sum_t'(c) + sum_t'(d));
  endfunction

  sum_t       head_q, transports_q[3], addresses_q[4], users_q[4];
  sum_t       ip_sum3_q, transport3_q, pseudo3_q, user3_q, ip4_q, transport4_q;
  logic       writes_ip2_q, writes_transport2_q;
  logic [5:3] writes_ip_q, writes_transport_q;
  logic [5:4] is_udp_q;

  always_ff @(posedge clk_i) begin
    head_q         <= sum4(ip_q[0], ip_q[2], is_6_q ? '0 : ip_q[4], '0);
    addresses_q[0] <= sum4(ip_q[6], ip_q[7], ip_q[8], ip_q[9]);
    addresses_q[1] <= sum4(ip_q[10], ip_q[11], ip_q[12], ip_q[13]);
    addresses_q[2] <= sum4(ip_q[14], ip_q[15], ip_q[16], ip_q[17]);
    addresses_q[3] <= sum4(ip_q[18], ip_q[19], is_6_q ? ip_q[4] : '0, ip_q[5]);
    for (int unsigned i = 0; i < 2; i++) begin
      transports_q[i] <= sum4(transport_q[4*i], transport_q[4*i+1], transport_q[4*i+2], transport_q[4*i+3]);
    end
    transports_q[2] <= sum4(transport_q[8], transport_q[9], '0, '0);
    for (int unsigned i = 0; i < 4; i++) begin
      users_q[i] <= sum4(user_q[4*i], user_q[4*i+1], user_q[4*i+2], user_q[4*i+3]);
    end
    writes_ip2_q        <= old1_q.is_4 && ip_touched_q;
    writes_transport2_q <= old1_q.has_transport && !(old1_q.is_udp && old1_q.transport == '0)
        && (transport_touched_q || user_touched_q || (addresses_touched_q && old1_q.has_pseudo_header));
    old2_q              <= old1_q;

    ip_sum3_q    <= head_q + addresses_q[0];
    transport3_q <= transports_q[0] + transports_q[1] + transports_q[2];
    pseudo3_q    <= old2_q.has_pseudo_header ? (addresses_q[0] + addresses_q[1]) + (addresses_q[2] + addresses_q[3])
                    : '0;
    user3_q      <= (users_q[0] + users_q[1]) + (users_q[2] + users_q[3]);
    old3_q       <= old2_q;

    ip4_q        <= ip_sum3_q + {7'h0, ~old3_q.ip};
    transport4_q <= (transport3_q + pseudo3_q) + (user3_q + {7'h0, ~old3_q.transport});

    writes_ip_q        <= {writes_ip_q[4:3], writes_ip2_q};
    writes_transport_q <= {writes_transport_q[4:3], writes_transport2_q};
    is_udp_q           <= {is_udp_q[4], old3_q.is_udp};
  end

  // ---- Cycles 5 and 6: the sum is folded twice.

  logic [16:0] ip5_q, transport5_q;
  logic [15:0] ip, transport;

  assign ip = ~(ip5_q[15:0] + 16'(ip5_q[16]));
  assign transport = ~(transport5_q[15:0] + 16'(transport5_q[16]));

  always_ff @(posedge clk_i) begin
    ip5_q              <= 17'(ip4_q[15:0]) + 17'(ip4_q[SumBits-1:16]);
    transport5_q       <= 17'(transport4_q[15:0]) + 17'(transport4_q[SumBits-1:16]);
    ip_o               <= ip;
    transport_o        <= (is_udp_q[5] && transport == '0) ? '1 : transport;
    writes_ip_o        <= writes_ip_q[5];
    writes_transport_o <= writes_transport_q[5];
  end

  logic unused;
  assign unused = ^{old_i, new_i, mask_i, valid_i, old3_q, ip_q};

endmodule
