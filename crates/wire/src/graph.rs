//! The parse graph as data.
//!
//! The reference parser ([`crate::Layers::parse`]), the eBPF lowering and the hardware parser all derive from [`NODES`]:
//! none of them knows a protocol by name. A parse starts at [`ETHERNET`] and follows edges until a header is invalid or
//! no edge fits; what was parsed up to there stays valid.
//!
//! ```text
//!  ethernet ─► vlan ─► vlan2 ─┬─► ipv4 ───────────────┬─► tcp
//!      └─────────┴────────────┤                       ├─► udp
//!                             └─► ipv6 ─► ext{0..3} ──┴─► icmp / icmp6
//! ```

/// A header that fields can name. Its number is its validity bit.
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
}

impl Header {
    /// All headers, in the order of their validity bits.
    pub const ALL: [Header; 9] = [
        Header::Ethernet,
        Header::Vlan,
        Header::Vlan2,
        Header::Ipv4,
        Header::Ipv6,
        Header::Tcp,
        Header::Udp,
        Header::Icmp,
        Header::Icmp6,
    ];

    /// Its name, the prefix of its fields.
    pub const fn name(self) -> &'static str {
        match self {
            Header::Ethernet => "eth",
            Header::Vlan => "vlan",
            Header::Vlan2 => "vlan2",
            Header::Ipv4 => "ipv4",
            Header::Ipv6 => "ipv6",
            Header::Tcp => "tcp",
            Header::Udp => "udp",
            Header::Icmp => "icmp",
            Header::Icmp6 => "icmp6",
        }
    }

    /// Its validity bit.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Some bits of a header, most significant first, as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Offset from the start of the header, in bits.
    pub offset_bits: u16,
    /// Width in bits, at most 128.
    pub width_bits: u8,
}

/// A slice that starts at a byte.
pub const fn bytes(offset_bytes: u16, width_bytes: u8) -> Slice {
    Slice { offset_bits: offset_bytes * 8, width_bits: width_bytes * 8 }
}

/// A slice that starts at a bit.
pub const fn bits(offset_bits: u16, width_bits: u8) -> Slice {
    Slice { offset_bits, width_bits }
}

/// What must hold for a header to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The bits have this value.
    Equal(Slice, u32),
    /// The bits have this value or a larger one.
    AtLeast(Slice, u32),
}

/// How long a header is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Always `min_bytes`.
    Fixed,
    /// `(slice + add) * times` bytes; invalid where that is less than `min_bytes`.
    Scaled {
        /// The length field.
        slice: Slice,
        /// Units that the field does not count.
        add: u8,
        /// Bytes in a unit.
        times: u8,
    },
}

/// What a header says about the number of bytes that belong to the packet after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Nothing.
    Open,
    /// `slice` bytes, this header included; invalid where that is less than the header.
    Total(Slice),
    /// `slice` bytes after this header.
    After(Slice),
    /// The header lies in the extent that an outer header gave: invalid where it does not fit, and what is left is its
    /// payload.
    Within,
}

/// One edge: this value of the selector leads to that node.
pub type Edge = (u32, usize);

/// How a parse goes on after a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// The bits that choose; `None` ends the parse.
    pub selector: Option<Slice>,
    /// Whether the selector is an IP protocol number, the value of `ip.proto` (that of the last such header).
    pub is_ip_proto: bool,
    /// Ends the parse where these bits are not zero: a later fragment has no further headers.
    pub only_if_zero: Option<Slice>,
    /// Where to.
    pub edges: &'static [Edge],
}

const END: Next = Next { selector: None, is_ip_proto: false, only_if_zero: None, edges: &[] };

/// One node of the parse graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Its name, for drawings and messages.
    pub name: &'static str,
    /// The header whose validity it sets; extension headers have none.
    pub header: Option<Header>,
    /// Bytes that must be present before anything of the header is looked at.
    pub min_bytes: u8,
    /// What must hold, in order.
    pub checks: &'static [Check],
    /// How long it is; all of it must be present.
    pub length: Length,
    /// What it says about the bytes that follow.
    pub extent: Extent,
    /// How the parse goes on.
    pub next: Next,
}

/// The node where every parse starts.
pub const ETHERNET: usize = 0;
const VLAN: usize = 1;
const VLAN2: usize = 2;
const IPV4: usize = 3;
const IPV6: usize = 4;
const TCP: usize = 5;
const UDP: usize = 6;
const ICMP: usize = 7;
const ICMP6: usize = 8;
const EXT: usize = 9;

const OPTIONS: usize = 0;
const FRAGMENT: usize = 1;
const AUTHENTICATION: usize = 2;
const EXT_KINDS: usize = 3;

/// How many IPv6 extension headers are followed.
pub const EXT_DEPTH: usize = 4;

const fn ext(depth: usize, kind: usize) -> usize {
    EXT + depth * EXT_KINDS + kind
}

const fn ipv6_edges(depth: usize) -> [Edge; 8] {
    [
        (6, TCP),
        (17, UDP),
        (58, ICMP6),
        (0, ext(depth, OPTIONS)),
        (43, ext(depth, OPTIONS)),
        (60, ext(depth, OPTIONS)),
        (44, ext(depth, FRAGMENT)),
        (51, ext(depth, AUTHENTICATION)),
    ]
}

static IPV6_EDGES: [[Edge; 8]; EXT_DEPTH] = [ipv6_edges(0), ipv6_edges(1), ipv6_edges(2), ipv6_edges(3)];
static LAST_EXT_EDGES: [Edge; 3] = [(6, TCP), (17, UDP), (58, ICMP6)];

const fn ext_next(depth: usize, only_if_zero: Option<Slice>) -> Next {
    Next {
        selector: Some(bytes(0, 1)),
        is_ip_proto: true,
        only_if_zero,
        edges: if depth + 1 < EXT_DEPTH { &IPV6_EDGES[depth + 1] } else { &LAST_EXT_EDGES },
    }
}

const fn ext_node(depth: usize, kind: usize) -> Node {
    match kind {
        OPTIONS => Node {
            name: "ipv6_options",
            header: None,
            min_bytes: 8,
            checks: &[],
            length: Length::Scaled { slice: bytes(1, 1), add: 1, times: 8 },
            extent: Extent::Within,
            next: ext_next(depth, None),
        },
        FRAGMENT => Node {
            name: "ipv6_fragment",
            header: None,
            min_bytes: 8,
            checks: &[],
            length: Length::Fixed,
            extent: Extent::Within,
            next: ext_next(depth, Some(bits(16, 13))),
        },
        _ => Node {
            name: "ipv6_authentication",
            header: None,
            min_bytes: 12,
            checks: &[],
            length: Length::Scaled { slice: bytes(1, 1), add: 2, times: 4 },
            extent: Extent::Within,
            next: ext_next(depth, None),
        },
    }
}

const ETHERTYPE_VLAN: u32 = 0x8100;
const ETHERTYPE_SERVICE_VLAN: u32 = 0x88a8;
const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86dd;

const fn by_ethertype(offset_bytes: u16, edges: &'static [Edge]) -> Next {
    Next { selector: Some(bytes(offset_bytes, 2)), is_ip_proto: false, only_if_zero: None, edges }
}

/// All nodes; edges are indices into this table.
pub static NODES: [Node; EXT + EXT_DEPTH * EXT_KINDS] = [
    Node {
        name: "ethernet",
        header: Some(Header::Ethernet),
        min_bytes: 14,
        checks: &[],
        length: Length::Fixed,
        extent: Extent::Open,
        next: by_ethertype(
            12,
            &[(ETHERTYPE_IPV4, IPV4), (ETHERTYPE_IPV6, IPV6), (ETHERTYPE_VLAN, VLAN), (ETHERTYPE_SERVICE_VLAN, VLAN)],
        ),
    },
    Node {
        name: "vlan",
        header: Some(Header::Vlan),
        min_bytes: 4,
        checks: &[],
        length: Length::Fixed,
        extent: Extent::Open,
        next: by_ethertype(
            2,
            &[(ETHERTYPE_IPV4, IPV4), (ETHERTYPE_IPV6, IPV6), (ETHERTYPE_VLAN, VLAN2), (ETHERTYPE_SERVICE_VLAN, VLAN2)],
        ),
    },
    Node {
        name: "vlan2",
        header: Some(Header::Vlan2),
        min_bytes: 4,
        checks: &[],
        length: Length::Fixed,
        extent: Extent::Open,
        next: by_ethertype(2, &[(ETHERTYPE_IPV4, IPV4), (ETHERTYPE_IPV6, IPV6)]),
    },
    Node {
        name: "ipv4",
        header: Some(Header::Ipv4),
        min_bytes: 20,
        checks: &[Check::Equal(bits(0, 4), 4)],
        length: Length::Scaled { slice: bits(4, 4), add: 0, times: 4 },
        extent: Extent::Total(bytes(2, 2)),
        next: Next {
            selector: Some(bytes(9, 1)),
            is_ip_proto: true,
            only_if_zero: Some(bits(51, 13)),
            edges: &[(6, TCP), (17, UDP), (1, ICMP)],
        },
    },
    Node {
        name: "ipv6",
        header: Some(Header::Ipv6),
        min_bytes: 40,
        checks: &[Check::Equal(bits(0, 4), 6)],
        length: Length::Fixed,
        extent: Extent::After(bytes(4, 2)),
        next: Next { selector: Some(bytes(6, 1)), is_ip_proto: true, only_if_zero: None, edges: &IPV6_EDGES[0] },
    },
    Node {
        name: "tcp",
        header: Some(Header::Tcp),
        min_bytes: 20,
        checks: &[],
        length: Length::Scaled { slice: bits(96, 4), add: 0, times: 4 },
        extent: Extent::Within,
        next: END,
    },
    Node {
        name: "udp",
        header: Some(Header::Udp),
        min_bytes: 8,
        // More than the IP payload holds is no error: the first fragment of a datagram has the length of the whole.
        checks: &[Check::AtLeast(bytes(4, 2), 8)],
        length: Length::Fixed,
        extent: Extent::Within,
        next: END,
    },
    Node {
        name: "icmp",
        header: Some(Header::Icmp),
        min_bytes: 8,
        checks: &[],
        length: Length::Fixed,
        extent: Extent::Within,
        next: END,
    },
    Node {
        name: "icmp6",
        header: Some(Header::Icmp6),
        min_bytes: 8,
        checks: &[],
        length: Length::Fixed,
        extent: Extent::Within,
        next: END,
    },
    ext_node(0, OPTIONS),
    ext_node(0, FRAGMENT),
    ext_node(0, AUTHENTICATION),
    ext_node(1, OPTIONS),
    ext_node(1, FRAGMENT),
    ext_node(1, AUTHENTICATION),
    ext_node(2, OPTIONS),
    ext_node(2, FRAGMENT),
    ext_node(2, AUTHENTICATION),
    ext_node(3, OPTIONS),
    ext_node(3, FRAGMENT),
    ext_node(3, AUTHENTICATION),
];
