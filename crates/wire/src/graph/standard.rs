//! The headers that everyone knows.

use std::borrow::Cow;

use super::{Check, Choice, Extent, Header, Length, Next, Node, Scope, Slice, bits, bytes};

/// How many IPv6 extension headers are followed.
pub(super) const EXT_DEPTH: usize = 4;

const ETHERTYPE_VLAN: u64 = 0x8100;
const ETHERTYPE_SERVICE_VLAN: u64 = 0x88a8;
const ETHERTYPE_IPV4: u64 = 0x0800;
const ETHERTYPE_IPV6: u64 = 0x86dd;

/// Nodes under construction: what follows a node is made before it.
struct Builder {
    nodes: Vec<Node>,
}

/// A node that was made, by the number of those made before it.
#[derive(Clone, Copy)]
struct Made(usize);

/// The nodes of the standard graph, each before all that can follow it.
pub(super) fn nodes() -> Vec<Node> {
    let mut builder = Builder { nodes: Vec::new() };
    let transport = builder.transport(TRANSPORT);
    let ipv6 = builder.ipv6(transport);
    let ipv4 = builder.ipv4(transport);
    let by_ethertype = |offset_bytes: u16, tag: Option<Made>| {
        let mut edges = vec![(ETHERTYPE_IPV4, ipv4), (ETHERTYPE_IPV6, ipv6)];
        edges.extend(tag.iter().flat_map(|&tag| [(ETHERTYPE_VLAN, tag), (ETHERTYPE_SERVICE_VLAN, tag)]));
        next(bytes(offset_bytes, 2), edges)
    };
    let mut tag = None;
    for header in [Header::Vlan2, Header::Vlan] {
        tag = Some(builder.header(header, 4, Extent::Open, by_ethertype(2, tag)));
    }
    builder.header(Header::Ethernet, 14, Extent::Open, by_ethertype(12, tag));
    builder.finish()
}

/// The headers after IP, outside or inside of a tunnel.
struct Transport {
    scope: Scope,
    tcp: Header,
    udp: Header,
    icmp: Header,
    icmp6: Header,
}

const TRANSPORT: Transport =
    Transport { scope: Scope::Outer, tcp: Header::Tcp, udp: Header::Udp, icmp: Header::Icmp, icmp6: Header::Icmp6 };

#[derive(Clone, Copy)]
struct MadeTransport {
    scope: Scope,
    tcp: Made,
    udp: Made,
    icmp: Made,
    icmp6: Made,
}

fn next(selector: Slice, edges: Vec<(u64, Made)>) -> Next {
    let edges = edges.into_iter().map(|(value, Made(made))| (value, made)).collect();
    Next { choices: vec![Choice { selector, edges }], ..Next::default() }
}

impl Builder {
    fn push(&mut self, node: Node) -> Made {
        self.nodes.push(node);
        Made(self.nodes.len() - 1)
    }

    /// A header of fixed length without checks.
    fn header(&mut self, header: Header, min_bytes: u8, extent: Extent, next: Next) -> Made {
        self.push(Node {
            name: Cow::Borrowed(header.name()),
            header: Some(header),
            min_bytes,
            checks: Vec::new(),
            length: Length::Fixed,
            extent,
            next,
        })
    }

    fn transport(&mut self, headers: Transport) -> MadeTransport {
        let Transport { scope, tcp, udp, icmp, icmp6 } = headers;
        let [icmp6, icmp] = [icmp6, icmp].map(|header| self.header(header, 8, Extent::Within, Next::default()));
        let udp = self.push(Node {
            name: Cow::Borrowed(udp.name()),
            header: Some(udp),
            min_bytes: 8,
            // More than the IP payload holds is no error: the first fragment of a datagram has the length of the whole.
            checks: vec![Check::AtLeast(bytes(4, 2), 8)],
            length: Length::Fixed,
            extent: Extent::Within,
            next: Next::default(),
        });
        let tcp = self.push(Node {
            name: Cow::Borrowed(tcp.name()),
            header: Some(tcp),
            min_bytes: 20,
            checks: Vec::new(),
            length: Length::Scaled { slice: bits(96, 4), add: 0, times: 4 },
            extent: Extent::Within,
            next: Next::default(),
        });
        MadeTransport { scope, tcp, udp, icmp, icmp6 }
    }

    fn ipv4(&mut self, transport: MadeTransport) -> Made {
        let proto = bytes(9, 1);
        let edges = vec![(6, transport.tcp), (17, transport.udp), (1, transport.icmp)];
        self.push(Node {
            name: Cow::Borrowed("ipv4"),
            header: Some(Header::Ipv4),
            min_bytes: 20,
            checks: vec![Check::Equal(bits(0, 4), 4)],
            length: Length::Scaled { slice: bits(4, 4), add: 0, times: 4 },
            extent: Extent::Total(bytes(2, 2)),
            next: Next {
                ip_proto: Some((transport.scope, proto)),
                only_if_zero: Some(bits(51, 13)),
                ..next(proto, edges)
            },
        })
    }

    fn ipv6(&mut self, transport: MadeTransport) -> Made {
        let after = |offset_bytes: u16, extensions: Option<[Made; 3]>| {
            let proto = bytes(offset_bytes, 1);
            let mut edges = vec![(6, transport.tcp), (17, transport.udp), (58, transport.icmp6)];
            if let Some([options, fragment, authentication]) = extensions {
                edges.extend([0, 43, 60].map(|kind| (kind, options)));
                edges.extend([(44, fragment), (51, authentication)]);
            }
            Next { ip_proto: Some((transport.scope, proto)), ..next(proto, edges) }
        };
        let mut extensions = None;
        for _ in 0..EXT_DEPTH {
            let node = |name: &'static str, min_bytes: u8, length: Length, next: Next| Node {
                name: Cow::Borrowed(name),
                header: None,
                min_bytes,
                checks: Vec::new(),
                length,
                extent: Extent::Within,
                next,
            };
            let length = |add: u8, times: u8| Length::Scaled { slice: bytes(1, 1), add, times };
            let next = after(0, extensions);
            let authentication = self.push(node("ipv6_authentication", 12, length(2, 4), next.clone()));
            let fragment = Next { only_if_zero: Some(bits(16, 13)), ..next.clone() };
            let fragment = self.push(node("ipv6_fragment", 8, Length::Fixed, fragment));
            let options = self.push(node("ipv6_options", 8, length(1, 8), next));
            extensions = Some([options, fragment, authentication]);
        }
        self.push(Node {
            name: Cow::Borrowed("ipv6"),
            header: Some(Header::Ipv6),
            min_bytes: 40,
            checks: vec![Check::Equal(bits(0, 4), 6)],
            length: Length::Fixed,
            extent: Extent::After(bytes(4, 2)),
            next: after(6, extensions),
        })
    }

    /// Turns the order round, so that what was made last, where every parse starts, is the first.
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
