// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The well-known headers.

use std::borrow::Cow;

use super::{Check, Choice, Extent, Header, HeaderOption, Length, Next, Node, Scope, Slice, bits, bytes};
use crate::header::{EtherType, INNER, OUTER, PacketHeaders};

/// Number of IPv6 extension headers that are followed.
pub(super) const EXT_DEPTH: usize = 4;
/// Number of GTP-U extension headers that are followed.
pub(super) const GTPU_EXT_DEPTH: usize = 4;

const PORT_GTPU: u64 = 2152;

/// Nodes under construction; successors are built first.
struct Builder {
    nodes: Vec<Node>,
}

/// A node that was built, by its build index.
#[derive(Clone, Copy)]
struct NodeRef(usize);

/// The nodes of the standard graph in topological order.
pub(super) fn nodes() -> Vec<Node> {
    let mut builder = Builder { nodes: Vec::new() };
    let inner = builder.ip(INNER, None);
    let inner = builder.by_version("inner", inner);
    let gtpu = builder.gtpu(inner);
    let [ipv4, ipv6] = builder.ip(OUTER, Some(gtpu));
    let labelled = builder.by_version("ip", [ipv4, ipv6]);
    let mpls = builder.mpls(labelled);
    let by_ethertype = |offset_bytes: u16, tag: Option<NodeRef>| {
        let mut edges = vec![(EtherType::IPV4.0, ipv4), (EtherType::IPV6.0, ipv6)];
        edges.extend(tag.iter().flat_map(|&tag| [(EtherType::VLAN.0, tag), (EtherType::SERVICE_VLAN.0, tag)]));
        edges.push((EtherType::MPLS.0, mpls));
        next(bytes(offset_bytes, 2), edges.into_iter().map(|(value, to)| (value.into(), to)).collect())
    };
    let mut tag = None;
    for header in [Header::Vlan2, Header::Vlan] {
        tag = Some(builder.header(header, 4, Extent::Open, by_ethertype(2, tag)));
    }
    builder.header(Header::Ethernet, 14, Extent::Open, by_ethertype(12, tag));
    builder.finish()
}

#[derive(Clone, Copy)]
struct Transport {
    tcp: NodeRef,
    udp: NodeRef,
    icmp: NodeRef,
    icmp6: NodeRef,
}

fn next(selector: Slice, edges: Vec<(u64, NodeRef)>) -> Next {
    let edges = edges.into_iter().map(|(value, NodeRef(index))| (value, index)).collect();
    Next { choices: vec![Choice { selector, edges }], ..Next::default() }
}

/// A node of fixed length that sets no validity.
fn plain(name: &'static str, min_bytes: u8, extent: Extent, next: Next) -> Node {
    Node {
        name: Cow::Borrowed(name),
        header: None,
        min_bytes,
        checks: Vec::new(),
        length: Length::Fixed,
        option: None,
        extent,
        next,
    }
}

impl Builder {
    fn push(&mut self, node: Node) -> NodeRef {
        self.nodes.push(node);
        NodeRef(self.nodes.len() - 1)
    }

    /// A header of fixed length without checks.
    fn header(&mut self, header: Header, min_bytes: u8, extent: Extent, next: Next) -> NodeRef {
        self.push(Node { header: Some(header), ..plain(header.name(), min_bytes, extent, next) })
    }

    /// Peeks at the version of the IP header that follows.
    fn by_version(&mut self, name: &'static str, [ipv4, ipv6]: [NodeRef; 2]) -> NodeRef {
        let next = next(bits(0, 4), vec![(4, ipv4), (6, ipv6)]);
        self.push(Node { length: Length::Peek, ..plain(name, 1, Extent::Open, next) })
    }

    /// Up to 4 labels; the last one has its bottom-of-stack bit set.
    fn mpls(&mut self, bottom: NodeRef) -> NodeRef {
        let mut label = bottom;
        for (depth, header) in [Header::Mpls4, Header::Mpls3, Header::Mpls2, Header::Mpls].into_iter().enumerate() {
            let NodeRef(deeper) = label;
            let otherwise = (depth > 0).then_some(deeper);
            let next = Next { otherwise, ..next(bits(23, 1), vec![(1, bottom)]) };
            label = self.header(header, 4, Extent::Open, next);
        }
        label
    }

    /// GTP-U with its optional fields and extension headers [3GPP TS 29.281 5]; only G-PDUs carry an IP packet.
    fn gtpu(&mut self, inner: NodeRef) -> NodeRef {
        const G_PDU: u64 = 255;
        let always = |NodeRef(to): NodeRef| Next { otherwise: Some(to), ..Next::default() };
        let end = self.push(plain("gtpu_end", 1, Extent::Within, always(inner)));
        // The last byte of a header or extension header is the type of the next extension header.
        let kind = |this: &mut Self, extension: Option<NodeRef>| {
            let next = Next { otherwise: extension.map(|NodeRef(to)| to), ..next(bytes(0, 1), vec![(0, end)]) };
            this.push(Node { length: Length::Peek, ..plain("gtpu_kind", 1, Extent::Open, next) })
        };
        let mut first = kind(self, None);
        for _ in 0..GTPU_EXT_DEPTH {
            let length = Length::Scaled { slice: bytes(1, 1), add: 0, times: 4 };
            let extension = Node { length, ..plain("gtpu_extension", 2, Extent::Within, always(first)) };
            let extension = self.push(extension);
            first = kind(self, Some(extension));
        }
        let options = self.push(plain("gtpu_options", 4, Extent::Within, always(inner)));
        let sequence = self.push(plain("gtpu_sequence", 3, Extent::Within, always(first)));
        // Selector: the E, S and PN flags (extension header, sequence number, N-PDU number) and the message type.
        let edges = (0..8).map(|flags: u64| {
            let to = match flags {
                0 => inner,
                1..4 => options,
                _ => sequence,
            };
            (flags << 8 | G_PDU, to)
        });
        let next = next(bits(5, 11), edges.collect());
        let version_and_type = Check::Equal(bits(0, 4), 3);
        self.push(Node {
            header: Some(Header::Gtpu),
            checks: vec![version_and_type],
            ..plain("gtpu", 8, Extent::Within, next)
        })
    }

    /// IPv4 and IPv6 with their successors.
    fn ip(&mut self, headers: PacketHeaders, gtpu: Option<NodeRef>) -> [NodeRef; 2] {
        let transport = self.transport(&headers, gtpu);
        let ipv6 = self.ipv6(&headers, transport);
        [self.ipv4(&headers, transport), ipv6]
    }

    fn transport(&mut self, headers: &PacketHeaders, gtpu: Option<NodeRef>) -> Transport {
        let [icmp6, icmp] =
            [headers.icmp6, headers.icmp].map(|header| self.header(header, 8, Extent::Within, Next::default()));
        // A length beyond the IP payload is valid: the first fragment of a datagram has the length of the whole
        // datagram.
        let next_after_udp = gtpu.map_or_else(Next::default, |gtpu| next(bytes(2, 2), vec![(PORT_GTPU, gtpu)]));
        let udp = self.header(headers.udp, 8, Extent::TotalWithin(bytes(4, 2)), next_after_udp);
        let tcp = self.push(Node {
            header: Some(headers.tcp),
            length: Length::Scaled { slice: bits(96, 4), add: 0, times: 4 },
            option: Some(HeaderOption { header: headers.window_scale, start_bytes: 20, kind: 3, len_bytes: 3 }),
            ..plain(headers.tcp.name(), 20, Extent::Within, Next::default())
        });
        Transport { tcp, udp, icmp, icmp6 }
    }

    fn ipv4(&mut self, headers: &PacketHeaders, transport: Transport) -> NodeRef {
        let proto = bytes(9, 1);
        let edges = vec![(6, transport.tcp), (17, transport.udp), (1, transport.icmp)];
        let extent = match headers.scope {
            Scope::Outer => Extent::Total(bytes(2, 2)),
            Scope::Inner => Extent::TotalWithin(bytes(2, 2)),
        };
        let next =
            Next { ip_proto: Some((headers.scope, proto)), only_if_zero: Some(bits(51, 13)), ..next(proto, edges) };
        self.push(Node {
            header: Some(headers.ipv4),
            checks: vec![Check::Equal(bits(0, 4), 4)],
            length: Length::Scaled { slice: bits(4, 4), add: 0, times: 4 },
            ..plain(headers.ipv4.name(), 20, extent, next)
        })
    }

    fn ipv6(&mut self, headers: &PacketHeaders, transport: Transport) -> NodeRef {
        let after = |offset_bytes: u16, extensions: Option<[NodeRef; 3]>| {
            let proto = bytes(offset_bytes, 1);
            let mut edges = vec![(6, transport.tcp), (17, transport.udp), (58, transport.icmp6)];
            if let Some([options, fragment, authentication]) = extensions {
                edges.extend([0, 43, 60].map(|kind| (kind, options)));
                edges.extend([(44, fragment), (51, authentication)]);
            }
            Next { ip_proto: Some((headers.scope, proto)), ..next(proto, edges) }
        };
        let mut extensions = None;
        for _ in 0..EXT_DEPTH {
            let length = |add: u8, times: u8| Length::Scaled { slice: bytes(1, 1), add, times };
            let next = after(0, extensions);
            let authentication =
                Node { length: length(2, 4), ..plain("ipv6_authentication", 12, Extent::Within, next.clone()) };
            let authentication = self.push(authentication);
            let fragment = Next { only_if_zero: Some(bits(16, 13)), ..next.clone() };
            let fragment = plain("ipv6_fragment", 8, Extent::Within, fragment);
            let fragment = self.push(Node { header: Some(headers.fragment), ..fragment });
            let options = Node { length: length(1, 8), ..plain("ipv6_options", 8, Extent::Within, next) };
            extensions = Some([self.push(options), fragment, authentication]);
        }
        let extent = match headers.scope {
            Scope::Outer => Extent::After(bytes(4, 2)),
            Scope::Inner => Extent::AfterWithin(bytes(4, 2)),
        };
        self.push(Node {
            header: Some(headers.ipv6),
            checks: vec![Check::Equal(bits(0, 4), 6)],
            ..plain(headers.ipv6.name(), 40, extent, after(6, extensions))
        })
    }

    /// Reverses the order, so that the node that was built last, the start node, comes first.
    fn finish(self) -> Vec<Node> {
        let last = self.nodes.len() - 1;
        let mut nodes: Vec<Node> = self.nodes.into_iter().rev().collect();
        for next in nodes.iter_mut().map(|node| &mut node.next) {
            let edges = next.choices.iter_mut().flat_map(|choice| choice.edges.iter_mut().map(|edge| &mut edge.1));
            for to in edges.chain(next.otherwise.as_mut()) {
                *to = last - *to;
            }
        }
        nodes
    }
}
