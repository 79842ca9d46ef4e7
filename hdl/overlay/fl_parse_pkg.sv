// SPDX-License-Identifier: Apache-2.0 OR MIT
// Types of the parse and rewrite blocks: validity bits, header words, and the fields on the bus between them.
//
// Headers after the 14 bytes of Ethernet start at multiples of 4 bytes from there. Positions count these words. A word
// holds four bytes, the first one in its upper bits.
package fl_parse_pkg;

  // Numbers of validity bits: those of `wire::Header`.
  typedef enum logic [4:0] {
    Ethernet = 5'd0,
    Vlan = 5'd1,
    Vlan2 = 5'd2,
    Ipv4 = 5'd3,
    Ipv6 = 5'd4,
    Tcp = 5'd5,
    Udp = 5'd6,
    Icmp = 5'd7,
    Icmp6 = 5'd8,
    Mpls = 5'd9,
    Ipv6Fragment = 5'd22,
    User0 = 5'd24,
    User1 = 5'd25
  } header_e;

  // Units of the configuration bus.
  typedef enum logic [7:0] {
    UserUnit = 8'he0,
    SlotUnit,
    ClockUnit,
    WordUnit,
    PresenceUnit,
    TargetUnit,
    OwnerUnit,
    EntryUnit
  } unit_e;

  // A position in words, and a number of words.
  typedef logic [13:0] place_t;
  // A position in the window.
  typedef logic [5:0] near_t;

  // A parse in progress.
  typedef struct packed {
    // A header is expected at `at`.
    logic        active;
    // A header that is present lies beyond the window.
    logic        slow;
    logic [31:0] valid;
    place_t      at;
    // Words of the packet that are present from there on, and whether half a word follows.
    place_t      room;
    logic        half;
    // Bytes of the IP packet that are left by its lengths.
    logic [15:0] left;
    logic [7:0]  proto;
    near_t       ip_at;
    near_t       fragment_at;
    near_t       transport_at;
    near_t       user_at;
  } parse_t;

  // Positions of headers in the window.
  typedef struct packed {
    near_t ip;
    near_t fragment;
    near_t transport;
    near_t user;
  } places_t;

  // The headers of a packet. Words of a header that is not valid mean nothing.
  typedef struct packed {
    logic [111:0]     ethernet;
    logic [1:0][31:0] vlan;
    logic [3:0][31:0] mpls;
    logic [9:0][31:0] ip;
    logic [1:0][31:0] fragment;
    logic [4:0][31:0] transport;
    // The first words of the user header.
    logic [7:0][31:0] user;
  } headers_t;

  // A bit for each byte of the headers.
  typedef struct packed {
    logic [13:0]     ethernet;
    logic [1:0][3:0] vlan;
    logic [3:0][3:0] mpls;
    logic [9:0][3:0] ip;
    logic [1:0][3:0] fragment;
    logic [4:0][3:0] transport;
    logic [7:0][3:0] user;
  } bytes_t;

  // Sources of the words of the header vector, the widest ones first. The names are those of the field catalogue.
  // Those before PktLen are not on the bus of fields.
  typedef enum logic [6:0] {
    Constant,
    Ports, NextSequence, Clock0, Clock1,
    Slot0, Slot1, Slot2, Slot3, Slot4, Slot5, Slot6, Slot7,
    PktLen, PktPort, EthDst0, EthSrc0, IpSrc0, IpSrc1, IpSrc2, IpSrc3, IpDst0, IpDst1, IpDst2, IpDst3,
    Ipv6FragId, TcpSeq, TcpAck,
    MplsLabel, Mpls2Label, Mpls3Label, Mpls4Label, Ipv6FlowLabel,
    EthDst1, EthSrc1, EthType, VlanType, Vlan2Type, Ipv4Len, Ipv4Id, Ipv4Checksum, Ipv6Len, L4Sport, L4Dport,
    TcpWindow, TcpChecksum, TcpUrgent, TcpPayloadLen, UdpLen, UdpChecksum, IcmpChecksum, Icmp6Checksum, IcmpxId,
    IcmpxSeq,
    IpFrag, VlanId, Vlan2Id,
    MplsTtl, Mpls2Ttl, Mpls3Ttl, Mpls4Ttl, IpProto, IpTos, IpTtl, Ipv4Proto, Ipv6Next, TcpFlags, IcmpxType, IcmpxCode,
    Ipv4Dscp, IpVersion, Ipv4Ihl, TcpDoff,
    VlanPcp, Vlan2Pcp, MplsTc, Mpls2Tc, Mpls3Tc, Mpls4Tc, Ipv4Ecn,
    VlanDei, Vlan2Dei, MplsBos, Mpls2Bos, Mpls3Bos, Mpls4Bos, IpMf, Ipv4Df,
    TcpIsCwr, TcpIsEce, TcpIsUrg, TcpIsAck, TcpIsPsh, TcpIsRst, TcpIsSyn, TcpIsFin
  } source_e;

  localparam int unsigned Sources = 32'(TcpIsFin) + 1;

  // A word for each source.
  typedef logic [Sources-1:0][31:0] words_t;

  // Bits of a user header in a word of the header vector: those of the pair of words above `word`, counted from the
  // last one of the header's first 32 bytes, from bit `shift` on.
  typedef struct packed {
    logic       header;
    // The number of bits, less one.
    logic [4:0] most;
    logic [2:0] word;
    logic [4:0] shift;
  } slot_t;

endpackage
