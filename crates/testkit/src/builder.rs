// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::net::IpAddr;

use flowloom_wire::checksum::Sum;

use crate::gtpu::Gtpu;

/// An IPv6 extension header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extension {
    /// Hop-by-hop options (0): the number of 8-byte units after the first, filled with padding options.
    HopByHop(u8),
    /// Destination options (60), with the same parameter.
    Destination(u8),
    /// A routing header (43) with the same parameter, and no segments left, so that the pseudo header uses `ipv6.dst`.
    Routing(u8),
    /// A fragment header (44). Its body starts at byte `offset_units` * 8 of the later headers and the payload; if
    /// `more`, without the last bytes, down to a multiple of 8.
    Fragment {
        /// Offset in units of 8 bytes.
        offset_units: u16,
        /// More fragments follow.
        more: bool,
    },
    /// An authentication header (51): the number of 4-byte words after its first 12 bytes.
    Authentication(u8),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Network {
    None,
    Raw(u16),
    V4 { src: [u8; 4], dst: [u8; 4], options: Vec<u8>, id: u16, dont_fragment: bool, fragment: Option<(u16, bool)> },
    V6 { src: [u8; 16], dst: [u8; 16], flow_label: u32, extensions: Vec<Extension> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Transport {
    None,
    Raw(u8),
    Tcp { sport: u16, dport: u16, seq: u32, ack: u32, flags: u8, window: u16, urgent: u16, options: Vec<u8> },
    Udp { sport: u16, dport: u16, without_checksum: bool },
    Icmp { kind: u8, code: u8, rest: [u8; 4] },
}

/// Builds packets with valid lengths and checksums.
///
/// Defaults: addresses `02:00:00:00:00:01` to `02:00:00:00:00:02`, TTL 64, window 65535, TCP flags ACK. The last call
/// of a setter wins; a setter of an absent header has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketBuilder {
    eth_src: [u8; 6],
    eth_dst: [u8; 6],
    tags: Vec<(u16, u16)>,
    labels: Vec<(u32, u8, u8)>,
    network: Network,
    tos: u8,
    ttl: u8,
    transport: Transport,
    payload: Vec<u8>,
    checksum_error: u16,
    ip_checksum_error: u16,
    pad_to_bytes: usize,
    truncate_to_bytes: usize,
}

impl Default for PacketBuilder {
    fn default() -> Self {
        PacketBuilder::new()
    }
}

impl PacketBuilder {
    /// An Ethernet header only.
    pub fn new() -> PacketBuilder {
        PacketBuilder {
            eth_src: [2, 0, 0, 0, 0, 1],
            eth_dst: [2, 0, 0, 0, 0, 2],
            tags: Vec::new(),
            labels: Vec::new(),
            network: Network::None,
            tos: 0,
            ttl: 64,
            transport: Transport::None,
            payload: Vec::new(),
            checksum_error: 0,
            ip_checksum_error: 0,
            pad_to_bytes: 0,
            truncate_to_bytes: usize::MAX,
        }
    }

    /// MAC addresses.
    #[must_use]
    pub fn eth(mut self, src: [u8; 6], dst: [u8; 6]) -> Self {
        (self.eth_src, self.eth_dst) = (src, dst);
        self
    }

    /// Adds an inner VLAN tag: priority and identifier in 16 bits.
    #[must_use]
    pub fn vlan(self, tci: u16) -> Self {
        self.tag(0x8100, tci)
    }

    /// Adds an inner tag with this EtherType (0x88a8 for a service tag).
    #[must_use]
    pub fn tag(mut self, ethertype: u16, tci: u16) -> Self {
        self.tags.push((ethertype, tci));
        self
    }

    /// Adds an inner MPLS label with its traffic class and TTL; the last label has the bottom-of-stack bit.
    #[must_use]
    pub fn mpls(mut self, label: u32, tc: u8, ttl: u8) -> Self {
        self.labels.push((label & 0xf_ffff, tc & 7, ttl));
        self
    }

    /// No IP: the payload follows this EtherType.
    #[must_use]
    pub fn ethertype(mut self, ethertype: u16) -> Self {
        self.network = Network::Raw(ethertype);
        self
    }

    /// IPv4.
    #[must_use]
    pub fn ipv4(mut self, src: [u8; 4], dst: [u8; 4]) -> Self {
        self.network = Network::V4 { src, dst, options: Vec::new(), id: 0, dont_fragment: false, fragment: None };
        self
    }

    /// IPv4 options, at most 40 bytes, zero-padded to a multiple of 4.
    #[must_use]
    pub fn ipv4_options(mut self, bytes: &[u8]) -> Self {
        if let Network::V4 { options, .. } = &mut self.network {
            *options = padded(bytes);
        }
        self
    }

    /// IPv4 identification and the don't-fragment bit.
    #[must_use]
    pub fn ipv4_id(mut self, new_id: u16, new_dont_fragment: bool) -> Self {
        if let Network::V4 { id, dont_fragment, .. } = &mut self.network {
            (*id, *dont_fragment) = (new_id, new_dont_fragment);
        }
        self
    }

    /// A fragment: by the IPv4 header, or by another IPv6 fragment header. See [`Extension::Fragment`].
    #[must_use]
    pub fn fragment(mut self, offset_units: u16, more: bool) -> Self {
        match &mut self.network {
            Network::V4 { fragment, .. } => *fragment = Some((offset_units & 0x1fff, more)),
            Network::V6 { extensions, .. } => extensions.push(Extension::Fragment { offset_units, more }),
            Network::None | Network::Raw(_) => {}
        }
        self
    }

    /// IPv6.
    #[must_use]
    pub fn ipv6(mut self, src: [u8; 16], dst: [u8; 16]) -> Self {
        self.network = Network::V6 { src, dst, flow_label: 0, extensions: Vec::new() };
        self
    }

    /// IPv6 flow label, 20 bits.
    #[must_use]
    pub fn flow_label(mut self, label: u32) -> Self {
        if let Network::V6 { flow_label, .. } = &mut self.network {
            *flow_label = label & 0xf_ffff;
        }
        self
    }

    /// Adds an inner IPv6 extension header.
    #[must_use]
    pub fn extension(mut self, extension: Extension) -> Self {
        if let Network::V6 { extensions, .. } = &mut self.network {
            extensions.push(extension);
        }
        self
    }

    /// IPv4 or IPv6, by the address family.
    ///
    /// # Panics
    /// The address families differ.
    #[must_use]
    #[allow(clippy::panic, reason = "a mistake in a test")]
    pub fn ip(self, src: IpAddr, dst: IpAddr) -> Self {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.ipv4(src.octets(), dst.octets()),
            (IpAddr::V6(src), IpAddr::V6(dst)) => self.ipv6(src.octets(), dst.octets()),
            _ => panic!("addresses {src} and {dst} are of different families"),
        }
    }

    /// Type of service or traffic class.
    #[must_use]
    pub fn tos(mut self, tos: u8) -> Self {
        self.tos = tos;
        self
    }

    /// Time to live or hop limit.
    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// TCP.
    #[must_use]
    pub fn tcp(mut self, sport: u16, dport: u16) -> Self {
        self.transport = Transport::Tcp {
            sport,
            dport,
            seq: 0,
            ack: 0,
            flags: 0x10,
            window: 0xffff,
            urgent: 0,
            options: Vec::new(),
        };
        self
    }

    /// TCP sequence and acknowledgement numbers.
    #[must_use]
    pub fn tcp_seq(mut self, new_seq: u32, new_ack: u32) -> Self {
        if let Transport::Tcp { seq, ack, .. } = &mut self.transport {
            (*seq, *ack) = (new_seq, new_ack);
        }
        self
    }

    /// TCP flags, CWR to FIN.
    #[must_use]
    pub fn tcp_flags(mut self, new_flags: u8) -> Self {
        if let Transport::Tcp { flags, .. } = &mut self.transport {
            *flags = new_flags;
        }
        self
    }

    /// TCP window and urgent pointer.
    #[must_use]
    pub fn tcp_window(mut self, new_window: u16, new_urgent: u16) -> Self {
        if let Transport::Tcp { window, urgent, .. } = &mut self.transport {
            (*window, *urgent) = (new_window, new_urgent);
        }
        self
    }

    /// TCP options, at most 40 bytes, zero-padded to a multiple of 4.
    #[must_use]
    pub fn tcp_options(mut self, bytes: &[u8]) -> Self {
        if let Transport::Tcp { options, .. } = &mut self.transport {
            *options = padded(bytes);
        }
        self
    }

    /// UDP.
    #[must_use]
    pub fn udp(mut self, sport: u16, dport: u16) -> Self {
        self.transport = Transport::Udp { sport, dport, without_checksum: false };
        self
    }

    /// UDP with checksum 0, which means none.
    #[must_use]
    pub fn udp_without_checksum(mut self) -> Self {
        if let Transport::Udp { without_checksum, .. } = &mut self.transport {
            *without_checksum = true;
        }
        self
    }

    /// ICMP over IPv4, ICMPv6 over IPv6; `id` and `seq` as in an echo message (type 8 or 128).
    #[must_use]
    pub fn icmp(mut self, kind: u8, code: u8, id: u16, seq: u16) -> Self {
        let ([a, b], [c, d]) = (id.to_be_bytes(), seq.to_be_bytes());
        self.transport = Transport::Icmp { kind, code, rest: [a, b, c, d] };
        self
    }

    /// Another IP protocol; the payload follows the IP header.
    #[must_use]
    pub fn proto(mut self, proto: u8) -> Self {
        self.transport = Transport::Raw(proto);
        self
    }

    /// The payload.
    #[must_use]
    pub fn payload(mut self, bytes: &[u8]) -> Self {
        self.payload = bytes.to_vec();
        self
    }

    /// A custom header: prepends these bytes to the current payload.
    #[must_use]
    pub fn layer(mut self, bytes: &[u8]) -> Self {
        self.payload.splice(..0, bytes.iter().copied());
        self
    }

    /// A tunnel: the payload is a GTP-U header and the IP packet of `inner`. Use after [`PacketBuilder::udp`] to port
    /// 2152.
    #[must_use]
    pub fn tunnel(mut self, gtpu: &Gtpu, inner: &PacketBuilder) -> Self {
        let (_, packet) = inner.network();
        self.payload = [gtpu.bytes(packet.len()), packet].concat();
        self
    }

    /// Flips these bits in the checksums of the transport header and of IPv4; 0 leaves a checksum valid.
    #[must_use]
    pub fn wrong_checksums(mut self, transport: u16, ipv4: u16) -> Self {
        (self.checksum_error, self.ip_checksum_error) = (transport, ipv4);
        self
    }

    /// Appends zeros after the IP packet up to this size, as Ethernet pads short frames to 60 bytes.
    #[must_use]
    pub fn pad_to(mut self, len_bytes: usize) -> Self {
        self.pad_to_bytes = len_bytes;
        self
    }

    /// Truncates the packet to at most this size, as a capture does: lengths and checksums remain those of the whole.
    #[must_use]
    pub fn truncated(mut self, len_bytes: usize) -> Self {
        self.truncate_to_bytes = len_bytes;
        self
    }

    /// Serializes the packet.
    ///
    /// # Panics
    /// IP or TCP options, extension headers or payload exceed the length fields.
    pub fn build(&self) -> Vec<u8> {
        let mut packet = [self.eth_dst, self.eth_src].concat();
        for &(ethertype, tci) in &self.tags {
            packet.extend(ethertype.to_be_bytes());
            packet.extend(tci.to_be_bytes());
        }
        let (ethertype, network) = self.network();
        packet.extend(if self.labels.is_empty() { ethertype } else { 0x8847 }.to_be_bytes());
        for (i, &(label, tc, ttl)) in self.labels.iter().enumerate() {
            let is_last = i + 1 == self.labels.len();
            packet.extend((label << 12 | u32::from(tc) << 9 | u32::from(is_last) << 8 | u32::from(ttl)).to_be_bytes());
        }
        packet.extend(network);
        if packet.len() < self.pad_to_bytes {
            packet.resize(self.pad_to_bytes, 0);
        }
        packet.truncate(self.truncate_to_bytes);
        packet
    }

    /// The EtherType, and the packet without Ethernet header, tags and labels.
    fn network(&self) -> (u16, Vec<u8>) {
        match &self.network {
            Network::None => (0, self.payload.clone()),
            Network::Raw(ethertype) => (*ethertype, self.payload.clone()),
            Network::V4 { src, dst, options, id, dont_fragment, fragment } => {
                let (proto, whole) = self.transport(IpAddr::from(*src), IpAddr::from(*dst));
                let (offset_units, more) = fragment.unwrap_or((0, false));
                let body = fragment_of(whole, offset_units, more);
                let header_len = 20 + options.len();
                assert!(header_len <= 60, "{} bytes of IPv4 options, expected at most 40", options.len());
                let flags = u16::from(*dont_fragment) << 14 | u16::from(more) << 13 | offset_units;
                let mut packet = vec![0x40 | (header_len / 4) as u8, self.tos];
                packet.extend(length_field(header_len + body.len()));
                packet.extend(id.to_be_bytes());
                packet.extend(flags.to_be_bytes());
                packet.extend([self.ttl, proto, 0, 0]);
                packet.extend(src);
                packet.extend(dst);
                packet.extend(options);
                let checksum = Sum::new().bytes(&packet).checksum() ^ self.ip_checksum_error;
                packet[10..12].copy_from_slice(&checksum.to_be_bytes());
                packet.extend(body);
                (0x0800, packet)
            }
            Network::V6 { src, dst, flow_label, extensions } => {
                let (mut next, mut body) = self.transport(IpAddr::from(*src), IpAddr::from(*dst));
                for extension in extensions.iter().rev() {
                    (next, body) = extension.wrap(next, body);
                }
                let mut packet = (6 << 28 | u32::from(self.tos) << 20 | flow_label).to_be_bytes().to_vec();
                packet.extend(length_field(body.len()));
                packet.extend([next, self.ttl]);
                packet.extend(src);
                packet.extend(dst);
                packet.extend(body);
                (0x86dd, packet)
            }
        }
    }

    /// The IP protocol number, and the transport header with payload.
    fn transport(&self, src: IpAddr, dst: IpAddr) -> (u8, Vec<u8>) {
        let (proto, mut bytes, checksum_at) = match &self.transport {
            Transport::None => return (59, self.payload.clone()),
            Transport::Raw(proto) => return (*proto, self.payload.clone()),
            Transport::Tcp { sport, dport, seq, ack, flags, window, urgent, options } => {
                let header_len = 20 + options.len();
                assert!(header_len <= 60, "{} bytes of TCP options, expected at most 40", options.len());
                let mut header = [sport.to_be_bytes(), dport.to_be_bytes()].concat();
                header.extend(seq.to_be_bytes());
                header.extend(ack.to_be_bytes());
                header.extend([(header_len / 4) as u8 * 16, *flags]);
                header.extend(window.to_be_bytes());
                header.extend([0, 0]);
                header.extend(urgent.to_be_bytes());
                header.extend(options);
                (6, header, 16)
            }
            Transport::Udp { sport, dport, .. } => {
                let len = length_field(8 + self.payload.len());
                (17, [sport.to_be_bytes(), dport.to_be_bytes(), len, [0, 0]].concat(), 6)
            }
            Transport::Icmp { kind, code, rest } => {
                let proto = if src.is_ipv4() { 1 } else { 58 };
                (proto, [&[*kind, *code, 0, 0], &rest[..]].concat(), 2)
            }
        };
        bytes.extend(&self.payload);
        let sum = match proto {
            1 => Sum::new(),
            _ => Sum::new().pseudo_header(src, dst, proto, bytes.len() as u32),
        };
        let mut checksum = sum.bytes(&bytes).checksum();
        if proto == 17 && checksum == 0 {
            checksum = 0xffff;
        }
        checksum ^= self.checksum_error;
        if matches!(self.transport, Transport::Udp { without_checksum: true, .. }) {
            checksum = 0;
        }
        bytes[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
        (proto, bytes)
    }
}

impl Extension {
    /// Prepends this header to a body of type `next`. Returns this header's type and the new body.
    fn wrap(&self, next: u8, body: Vec<u8>) -> (u8, Vec<u8>) {
        let options = |units: u8| {
            // PadN over all of it.
            let len = 6 + 8 * usize::from(units);
            let mut header = vec![next, units];
            let mut left = len;
            while left > 0 {
                let one = left.min(257);
                match one {
                    1 => header.push(0),
                    _ => {
                        header.extend([1, (one - 2) as u8]);
                        header.resize(header.len() + one - 2, 0);
                    }
                }
                left -= one;
            }
            header
        };
        match *self {
            Extension::HopByHop(units) => (0, [options(units), body].concat()),
            Extension::Destination(units) => (60, [options(units), body].concat()),
            Extension::Routing(units) => {
                // Type 253 is for experiments [RFC 3692]; with 0 segments left, a node skips the header.
                let mut header = vec![next, units, 253, 0];
                header.resize(8 + 8 * usize::from(units), 0);
                (43, [header, body].concat())
            }
            Extension::Fragment { offset_units, more } => {
                let [a, b] = ((offset_units & 0x1fff) << 3 | u16::from(more)).to_be_bytes();
                let body = fragment_of(body, offset_units & 0x1fff, more);
                (44, [vec![next, 0, a, b, 0, 0, 0, 1], body].concat())
            }
            Extension::Authentication(words) => {
                assert!(words < 255, "an authentication header has at most 254 further words");
                let mut header = vec![next, words + 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1];
                header.resize(12 + 4 * usize::from(words), 0xaa);
                (51, [header, body].concat())
            }
        }
    }
}

/// The fragment of `whole` at this offset.
fn fragment_of(mut whole: Vec<u8>, offset_units: u16, more: bool) -> Vec<u8> {
    let start = usize::from(offset_units) * 8;
    let mut body = whole.split_off(start.min(whole.len()));
    if more {
        body.truncate(body.len().saturating_sub(1) / 8 * 8);
    }
    body
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub(crate) fn length_field(len: usize) -> [u8; 2] {
    assert!(len <= 0xffff, "{len} bytes do not fit a length field of 16 bits");
    (len as u16).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_packet() {
        // A DNS query; the words of the UDP checksum add up to acff.
        let packet =
            PacketBuilder::new().vlan(0x2005).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(0x3039, 53).payload(b"hi");
        let expected = [
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0x20, 5, 8, 0, 0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0x66, 0xcd,
            10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0, 53, 0, 10, 0x53, 0, b'h', b'i',
        ];
        assert_eq!(packet.build(), expected);
        assert_eq!(packet.clone().truncated(20).build(), expected[..20]);
        assert_eq!(packet.clone().pad_to(60).build().len(), 60);
        assert_eq!(packet.clone().wrong_checksums(0x0100, 1).build()[28..30], [0x66, 0xcc]);
        assert_eq!(packet.clone().wrong_checksums(0x0100, 1).build()[44..46], [0x52, 0]);
        assert_eq!(packet.udp_without_checksum().build()[44..46], [0, 0]);
    }

    #[test]
    fn labels_tunnels_and_raw_layers() {
        let inner = PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(b"xy");
        let plain = inner.build();
        let labelled = inner.clone().mpls(5, 1, 64).mpls(0xf_ffff, 0, 9).build();
        assert_eq!(labelled[12..22], [0x88, 0x47, 0, 0, 0x52, 64, 0xff, 0xff, 0xf1, 9]);
        assert_eq!(labelled[22..], plain[14..]);
        let outer = PacketBuilder::new().ipv4([1, 0, 0, 1], [1, 0, 0, 2]).udp(2152, 2152);
        let tunnel = outer.clone().tunnel(&Gtpu::new(0x0102_0304), &inner).build();
        assert_eq!(tunnel[42..50], [0x30, 255, 0, 30, 1, 2, 3, 4]);
        assert_eq!(tunnel[50..], plain[14..]);
        let options = Gtpu { sequence: Some(7), extensions: vec![(0x85, 1), (0xc0, 2)], ..Gtpu::new(1) };
        let tunnel = outer.tunnel(&options, &inner).build();
        let rest = [0, 7, 0, 0x85, 1, 0x85, 0x85, 0xc0, 2, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0];
        assert_eq!(tunnel[42..66], [&[0x36, 255, 0, 46, 0, 0, 0, 1][..], &rest].concat());
        assert_eq!(tunnel[66..], plain[14..]);
        assert_eq!(inner.layer(&[1, 2]).build()[42..], [1, 2, b'x', b'y']);
    }

    #[test]
    fn fragments_reassemble_to_the_packet() {
        let payload: Vec<u8> = (0..27).collect();
        let v4 = PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(&payload);
        let v6 = PacketBuilder::new().ipv6([1; 16], [2; 16]).udp(1, 2).payload(&payload);
        for (builder, header_len) in [(v4, 34), (v6, 54)] {
            let whole = builder.build().split_off(header_len);
            // 35 bytes: 32 and a last fragment of 3.
            let extra = if header_len == 54 { 8 } else { 0 };
            let first = builder.clone().fragment(0, true).build().split_off(header_len + extra);
            let last = builder.fragment(4, false).build().split_off(header_len + extra);
            assert_eq!((first.len(), last.len()), (32, 3));
            assert_eq!([first, last].concat(), whole);
        }
    }

    #[test]
    fn extension_headers_have_the_declared_length() {
        for units in [0, 1, 31, 32, 33, 255] {
            let at = |extension: Extension| PacketBuilder::new().ipv6([1; 16], [2; 16]).extension(extension).build();
            for packet in
                [at(Extension::HopByHop(units)), at(Extension::Destination(units)), at(Extension::Routing(units))]
            {
                assert_eq!(packet.len(), 54 + 8 + 8 * usize::from(units));
                assert_eq!(packet[54..56], [59, units]);
            }
        }
    }
}
