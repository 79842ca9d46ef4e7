// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The headers that fields can name.

/// The most user-defined headers of a function.
pub const MAX_USER_HEADERS: usize = 8;

/// The protocol after an Ethernet header or a VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// A customer VLAN tag [IEEE 802.1Q].
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// MPLS, unicast [RFC 3032].
    pub const MPLS: EtherType = EtherType(0x8847);
    /// A service VLAN tag [IEEE 802.1ad].
    pub const SERVICE_VLAN: EtherType = EtherType(0x88a8);
}

/// The IP packet to which a protocol number belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The outermost.
    Outer,
    /// The one inside a tunnel.
    Inner,
}

/// A header that fields can name. Its number is its validity bit.
///
/// Names without `Inner` mean the outermost header, `Inner` the one inside a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Header {
    /// Ethernet II.
    Ethernet,
    /// The outermost VLAN tag.
    Vlan,
    /// The VLAN tag after the outermost.
    Vlan2,
    /// IPv4 with its options.
    Ipv4,
    /// IPv6, the 40 fixed bytes.
    Ipv6,
    /// TCP with its options.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP for IPv4.
    Icmp,
    /// ICMPv6.
    Icmp6,
    /// The outermost MPLS label.
    Mpls,
    /// The MPLS label after the outermost.
    Mpls2,
    /// The third MPLS label.
    Mpls3,
    /// The fourth MPLS label.
    Mpls4,
    /// The mandatory 8 bytes of a GTP-U header.
    Gtpu,
    /// IPv4 inside a tunnel.
    InnerIpv4,
    /// IPv6 inside a tunnel.
    InnerIpv6,
    /// TCP inside a tunnel.
    InnerTcp,
    /// UDP inside a tunnel.
    InnerUdp,
    /// ICMP inside a tunnel.
    InnerIcmp,
    /// ICMPv6 inside a tunnel.
    InnerIcmp6,
    /// The window scale option of TCP, 3 bytes.
    WindowScale,
    /// The window scale option of TCP inside a tunnel.
    InnerWindowScale,
    /// The fragment header of IPv6, wherever it is among the extension headers; of several the first.
    Ipv6Fragment,
    /// The fragment header of IPv6 inside a tunnel.
    InnerIpv6Fragment,
    /// The first user-defined header.
    User0,
    /// The second user-defined header.
    User1,
    /// The third user-defined header.
    User2,
    /// The fourth user-defined header.
    User3,
    /// The fifth user-defined header.
    User4,
    /// The sixth user-defined header.
    User5,
    /// The seventh user-defined header.
    User6,
    /// The eighth user-defined header.
    User7,
}

/// The headers with their names, in the order of their validity bits.
const HEADERS: [(Header, &str); 32] = [
    (Header::Ethernet, "eth"),
    (Header::Vlan, "vlan"),
    (Header::Vlan2, "vlan2"),
    (Header::Ipv4, "ipv4"),
    (Header::Ipv6, "ipv6"),
    (Header::Tcp, "tcp"),
    (Header::Udp, "udp"),
    (Header::Icmp, "icmp"),
    (Header::Icmp6, "icmp6"),
    (Header::Mpls, "mpls"),
    (Header::Mpls2, "mpls2"),
    (Header::Mpls3, "mpls3"),
    (Header::Mpls4, "mpls4"),
    (Header::Gtpu, "gtpu"),
    (Header::InnerIpv4, "inner.ipv4"),
    (Header::InnerIpv6, "inner.ipv6"),
    (Header::InnerTcp, "inner.tcp"),
    (Header::InnerUdp, "inner.udp"),
    (Header::InnerIcmp, "inner.icmp"),
    (Header::InnerIcmp6, "inner.icmp6"),
    (Header::WindowScale, "tcp.opt.wscale"),
    (Header::InnerWindowScale, "inner.tcp.opt.wscale"),
    (Header::Ipv6Fragment, "ipv6.frag"),
    (Header::InnerIpv6Fragment, "inner.ipv6.frag"),
    (Header::User0, "user0"),
    (Header::User1, "user1"),
    (Header::User2, "user2"),
    (Header::User3, "user3"),
    (Header::User4, "user4"),
    (Header::User5, "user5"),
    (Header::User6, "user6"),
    (Header::User7, "user7"),
];

impl Header {
    /// All headers, in the order of their validity bits.
    pub const ALL: [Header; HEADERS.len()] = {
        let mut all = [Header::Ethernet; HEADERS.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = HEADERS[i].0;
            i += 1;
        }
        all
    };

    /// The user-defined headers, in order of declaration.
    pub const USER: [Header; MAX_USER_HEADERS] = *Header::ALL.last_chunk().expect("they come last");

    /// Its name, the prefix of its fields. For the declared name of a user-defined header, see
    /// [`crate::Graph::header_name`].
    pub const fn name(self) -> &'static str {
        HEADERS[self as usize].1
    }

    /// Its validity bit.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The index of a user-defined header among those of its function; `None` for all others.
    pub const fn user_index(self) -> Option<usize> {
        (self as usize).checked_sub(Header::User0 as usize)
    }

    /// True if it comes after the transport header whenever both are present.
    pub const fn is_payload(self) -> bool {
        match self {
            Header::Gtpu
            | Header::InnerIpv4
            | Header::InnerIpv6
            | Header::InnerTcp
            | Header::InnerUdp
            | Header::InnerIcmp
            | Header::InnerIcmp6
            | Header::InnerWindowScale
            | Header::InnerIpv6Fragment => true,
            _ => self.user_index().is_some(),
        }
    }
}

/// The headers of an IP packet, outside or inside a tunnel.
pub(crate) struct PacketHeaders {
    pub(crate) scope: Scope,
    pub(crate) ipv4: Header,
    pub(crate) ipv6: Header,
    pub(crate) fragment: Header,
    pub(crate) tcp: Header,
    pub(crate) window_scale: Header,
    pub(crate) udp: Header,
    pub(crate) icmp: Header,
    pub(crate) icmp6: Header,
}

/// The headers of the outermost IP packet.
pub(crate) const OUTER: PacketHeaders = PacketHeaders {
    scope: Scope::Outer,
    ipv4: Header::Ipv4,
    ipv6: Header::Ipv6,
    fragment: Header::Ipv6Fragment,
    tcp: Header::Tcp,
    window_scale: Header::WindowScale,
    udp: Header::Udp,
    icmp: Header::Icmp,
    icmp6: Header::Icmp6,
};

/// The headers of the IP packet inside a tunnel.
pub(crate) const INNER: PacketHeaders = PacketHeaders {
    scope: Scope::Inner,
    ipv4: Header::InnerIpv4,
    ipv6: Header::InnerIpv6,
    fragment: Header::InnerIpv6Fragment,
    tcp: Header::InnerTcp,
    window_scale: Header::InnerWindowScale,
    udp: Header::InnerUdp,
    icmp: Header::InnerIcmp,
    icmp6: Header::InnerIcmp6,
};
