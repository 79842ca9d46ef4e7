// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames with given headers and field values, random otherwise.
//!
//! A frame is laid out from an [`Outline`], then values are written into its fields by the catalogue, then lengths and
//! checksums are filled in (occasionally wrong on purpose).

mod outline;

use std::net::{Ipv4Addr, Ipv6Addr};

use flowloom_wire::checksum::Sum;
use flowloom_wire::field::{FieldId, IPV4_MAPPED, Source};
use flowloom_wire::{Graph, Header, Layers};

use crate::arrival::Arrival;
use flowloom_random::{Draw, Xorshift64Star as Rng};

pub use outline::frame_headers;
pub(crate) use outline::{Needs, Outline};

/// Headers of a frame without labels, tunnels and user-defined headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) tags: u8,
    pub(crate) network: Network,
    pub(crate) transport: Transport,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    None,
    V4,
    V6,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    None,
    Tcp,
    /// TCP with the window scale option.
    TcpScaled,
    Udp,
    Icmp,
}

/// A field and its requested value.
pub(crate) type FieldValue = (FieldId, u128);

impl Shape {
    pub(crate) fn all() -> impl Iterator<Item = Shape> {
        (0..3).flat_map(|tags| {
            [Network::None, Network::V4, Network::V6].into_iter().flat_map(move |network| {
                [Transport::None, Transport::Tcp, Transport::TcpScaled, Transport::Udp, Transport::Icmp]
                    .into_iter()
                    .filter(move |&t| network != Network::None || t == Transport::None)
                    .map(move |transport| Shape { tags, network, transport })
            })
        })
    }

    fn headers(self) -> u32 {
        let mut bits = Header::Ethernet.bit();
        if self.tags > 0 {
            bits |= Header::Vlan.bit();
        }
        if self.tags > 1 {
            bits |= Header::Vlan2.bit();
        }
        bits |= match self.network {
            Network::None => 0,
            Network::V4 => Header::Ipv4.bit(),
            Network::V6 => Header::Ipv6.bit(),
        };
        bits | match (self.transport, self.network) {
            (Transport::None, _) => 0,
            (Transport::Tcp, _) => Header::Tcp.bit(),
            (Transport::TcpScaled, _) => Header::Tcp.bit() | Header::WindowScale.bit(),
            (Transport::Udp, _) => Header::Udp.bit(),
            (Transport::Icmp, Network::V6) => Header::Icmp6.bit(),
            (Transport::Icmp, _) => Header::Icmp.bit(),
        }
    }

    /// The IP protocol number; `None` where any is possible.
    fn proto(self) -> Option<u8> {
        match (self.transport, self.network) {
            (Transport::None, _) => None,
            (Transport::Tcp | Transport::TcpScaled, _) => Some(6),
            (Transport::Udp, _) => Some(17),
            (Transport::Icmp, Network::V6) => Some(58),
            (Transport::Icmp, _) => Some(1),
        }
    }

    fn ethertype(self) -> u16 {
        match self.network {
            Network::None => 0x88b5,
            Network::V4 => 0x0800,
            Network::V6 => 0x86dd,
        }
    }

    /// True if a frame of this shape has all of `fields`.
    pub(crate) fn has(self, fields: &[FieldId]) -> bool {
        let bits = self.headers();
        fields.iter().all(|field| {
            let any_of = field.headers();
            any_of.is_empty() || any_of.iter().any(|header| bits & header.bit() != 0)
        })
    }

    pub(crate) fn allows(self, (field, value): FieldValue) -> bool {
        if !self.has(&[field]) {
            return false;
        }
        match &*field.name() {
            "ip.proto" => match self.proto() {
                Some(proto) => value == u128::from(proto),
                None => !matches!(value, 1 | 6 | 17 | 58 | 0 | 43 | 44 | 51 | 60),
            },
            "ipv4.proto" | "ipv6.next" => self.proto().is_none_or(|proto| value == u128::from(proto)),
            "ip.version" => value == if self.network == Network::V4 { 4 } else { 6 },
            "ipv4.version" => value == 4,
            "ipv6.version" => value == 6,
            "eth.type" => {
                if self.tags == 0 {
                    self.is_type(value)
                } else {
                    matches!(value, 0x8100 | 0x88a8)
                }
            }
            "vlan.type" => {
                if self.tags == 1 {
                    self.is_type(value)
                } else {
                    matches!(value, 0x8100 | 0x88a8)
                }
            }
            "vlan2.type" => self.is_type(value),
            _ => match field.source() {
                Source::Address { .. } => (value >> 32 == IPV4_MAPPED >> 32) == (self.network == Network::V4),
                _ => true,
            },
        }
    }

    fn is_type(self, value: u128) -> bool {
        match self.network {
            Network::None => !matches!(value, 0x0800 | 0x86dd | 0x8100 | 0x88a8),
            _ => value == u128::from(self.ethertype()),
        }
    }
}

/// Builds a frame of `shape` with as many of the requested values as it can have.
pub(crate) fn build(rng: &mut Rng, shape: Shape, field_values: &[FieldValue]) -> Vec<u8> {
    let field_value = |name: &str| field_values.iter().find(|(field, _)| field.name() == name).map(|&(_, value)| value);
    let mut frame: Vec<u8> = (0..12).map(|i| if i % 6 == 0 { 2 } else { rng.below(4) as u8 }).collect();
    for tag in 0..shape.tags {
        let name = if tag == 0 { "eth.type" } else { "vlan.type" };
        let ethertype = field_value(name).map_or_else(|| if rng.percent(80) { 0x8100 } else { 0x88a8 }, |v| v as u16);
        frame.extend(ethertype.to_be_bytes());
        frame.extend((rng.next_u64() as u16).to_be_bytes());
    }
    let ethertype = match (shape.network, shape.tags) {
        (Network::None, 0) => field_value("eth.type"),
        (Network::None, 1) => field_value("vlan.type"),
        (Network::None, _) => field_value("vlan2.type"),
        _ => None,
    };
    frame.extend(ethertype.map_or(shape.ethertype(), |v| v as u16).to_be_bytes());
    let payload_len = payload_len(rng, frame.len(), shape, &field_value);
    let mut body = transport(rng, shape, payload_len);
    body.extend((0..payload_len).map(|_| rng.next_u64() as u8));
    let free = ["ip.proto", "ipv4.proto", "ipv6.next"].into_iter().find_map(field_value).map_or(253, |v| v as u8);
    let proto = shape.proto().unwrap_or(free);
    match shape.network {
        Network::None => {}
        Network::V4 => {
            let words = if rng.percent(10) { rng.below(4) as usize } else { 0 };
            let total = (20 + 4 * words + body.len()) as u16;
            frame.extend([0x45 + words as u8, rng.next_u64() as u8]);
            frame.extend(total.to_be_bytes());
            frame.extend((rng.next_u64() as u16).to_be_bytes());
            frame.extend([if rng.percent(50) { 0x40 } else { 0 }, 0, 1 + rng.below(255) as u8, proto, 0, 0]);
            frame.extend((rng.next_u64() as u32 & 0x0303 | 0x0a00_0000).to_be_bytes());
            frame.extend((rng.next_u64() as u32 & 0x0303 | 0x0a00_0000).to_be_bytes());
            frame.extend(std::iter::repeat_n(1, 4 * words));
        }
        Network::V6 => {
            let mut chain = Vec::new();
            let mut next = proto;
            if rng.percent(10) && field_value("ipv6.next").is_none() {
                // Destination options, a routing header without segments, or hop-by-hop padding.
                let units = rng.below(2) as u8;
                chain = vec![next, units, 1, 4];
                chain.resize(8 + 8 * usize::from(units), 0);
                next = rng.one_of([0, 60]);
            }
            frame.extend((6 << 28 | rng.next_u64() as u32 & 0x0fff_ffff).to_be_bytes());
            frame.extend(((chain.len() + body.len()) as u16).to_be_bytes());
            frame.extend([next, rng.next_u64() as u8]);
            for _ in 0..2 {
                frame.extend((0xfd00_u128 << 112 | u128::from(rng.below(4))).to_be_bytes());
            }
            frame.extend(chain);
        }
    }
    frame.extend(body);
    fill(&mut frame, field_values);
    let wants_checksum = field_values.iter().any(|(field, _)| field.name().ends_with(".checksum"));
    if !wants_checksum {
        fix_checksums(&mut frame, rng.percent(90));
        if shape.transport == Transport::Udp && rng.percent(15) {
            clear_udp_checksum(&mut frame);
        }
    }
    if frame.len() < 60 && rng.percent(20) && field_value("pkt.len").is_none() {
        frame.resize(60, 0);
    }
    frame
}

fn payload_len(rng: &mut Rng, before: usize, shape: Shape, field_value: &dyn Fn(&str) -> Option<u128>) -> usize {
    let headers = match shape.network {
        Network::None => 0,
        Network::V4 => 20,
        Network::V6 => 40,
    } + match shape.transport {
        Transport::None => 0,
        Transport::Tcp => 20,
        Transport::TcpScaled => 24,
        Transport::Udp | Transport::Icmp => 8,
    };
    let wanted = match (
        field_value("pkt.len"),
        field_value("ipv4.len"),
        field_value("ipv6.len"),
        field_value("tcp.payload_len"),
        field_value("udp.len"),
    ) {
        (Some(v), ..) => v.saturating_sub((before + headers) as u128),
        (_, Some(v), ..) => v.saturating_sub(headers as u128),
        (_, _, Some(v), ..) => v.saturating_sub((headers as u128).saturating_sub(40)),
        (_, _, _, Some(v), _) => v,
        (.., Some(v)) => v.saturating_sub(8),
        _ => u128::from(if rng.percent(90) { rng.below(12) } else { rng.below(600) }),
    };
    wanted.min(1400) as usize
}

fn transport(rng: &mut Rng, shape: Shape, payload_len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    match shape.transport {
        Transport::None => {}
        Transport::Tcp | Transport::TcpScaled => {
            let is_scaled = shape.transport == Transport::TcpScaled;
            let words = match is_scaled {
                true => 1,
                false if rng.percent(10) => 1 + rng.below(3) as usize,
                false => 0,
            };
            bytes.extend((1024 + rng.below(4) as u16).to_be_bytes());
            bytes.extend((80 + rng.below(3) as u16).to_be_bytes());
            bytes.extend(rng.next_u64().to_be_bytes());
            bytes.extend([0x50 + 0x10 * words as u8, rng.next_u64() as u8]);
            bytes.extend((rng.next_u64() as u16).to_be_bytes());
            bytes.extend([0, 0]);
            bytes.extend((rng.below(3) as u16).to_be_bytes());
            if is_scaled {
                let scale = rng.below(16) as u8;
                bytes.extend(if rng.percent(50) { [3, 3, scale, 0] } else { [1, 3, 3, scale] });
            } else {
                bytes.extend(std::iter::repeat_n(1, 4 * words));
            }
        }
        Transport::Udp => {
            bytes.extend((1024 + rng.below(4) as u16).to_be_bytes());
            bytes.extend((53 + rng.below(3) as u16).to_be_bytes());
            bytes.extend((8 + payload_len as u16).to_be_bytes());
            bytes.extend([0; 2]);
        }
        Transport::Icmp => {
            bytes.extend([rng.one_of([0, 8, 128, 129]), 0, 0, 0]);
            bytes.extend((rng.next_u64() as u32 & 0x0007_0007).to_be_bytes());
        }
    }
    bytes
}

/// Writes the values into their fields. Fields that determine the layout are already set from the shape.
pub(crate) fn fill(frame: &mut [u8], field_values: &[FieldValue]) {
    let layers = Layers::parse(Graph::standard(), frame);
    let keep = ["eth.type", "vlan.type", "vlan2.type", "ip.proto", "ipv4.proto", "ipv6.next", "ipv4.ihl", "tcp.doff"];
    for &(field, value) in field_values {
        let Some(concrete) = layers.resolve(field) else { continue };
        if keep.contains(&&*concrete.name()) || concrete.name().ends_with(".len") {
            continue;
        }
        if let Source::Header(header, slice) = concrete.source()
            && let Some(bytes) = layers.offset(header).and_then(|offset| frame.get_mut(offset..))
        {
            slice.write(bytes, value);
        }
    }
}

/// Updates the IPv4 header checksum, and the transport checksum if `transport` is true.
pub(crate) fn fix_checksums(frame: &mut [u8], transport: bool) {
    let layers = Layers::parse(Graph::standard(), frame);
    if let (Some(at), Some(len)) = (layers.offset(Header::Ipv4), layers.len(Header::Ipv4)) {
        frame[at + 10..at + 12].fill(0);
        let sum = Sum::new().bytes(&frame[at..at + len]).checksum();
        frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    }
    if !transport {
        return;
    }
    for (header, offset, proto) in
        [(Header::Tcp, 16, 6), (Header::Udp, 6, 17), (Header::Icmp, 2, 1), (Header::Icmp6, 2, 58)]
    {
        let (Some(at), Some(len), Some(payload)) =
            (layers.offset(header), layers.len(header), layers.payload_len(header))
        else {
            continue;
        };
        let end = (at + len + payload).min(frame.len());
        frame[at + offset..at + offset + 2].fill(0);
        let sum = match (header, layers.offset(Header::Ipv4), layers.offset(Header::Ipv6)) {
            (Header::Icmp, ..) => Sum::new(),
            (_, Some(ip), _) => Sum::new().pseudo_header(
                Ipv4Addr::from(four(frame, ip + 12)).into(),
                Ipv4Addr::from(four(frame, ip + 16)).into(),
                proto,
                (end - at) as u32,
            ),
            (_, _, Some(ip)) => Sum::new().pseudo_header(
                Ipv6Addr::from(sixteen(frame, ip + 8)).into(),
                Ipv6Addr::from(sixteen(frame, ip + 24)).into(),
                proto,
                (end - at) as u32,
            ),
            _ => continue,
        };
        let sum = match sum.bytes(&frame[at..end]).checksum() {
            0 if header == Header::Udp => 0xffff,
            sum => sum,
        };
        frame[at + offset..at + offset + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

fn clear_udp_checksum(frame: &mut [u8]) {
    if let Some(at) = Layers::parse(Graph::standard(), frame).offset(Header::Udp) {
        frame[at + 6..at + 8].fill(0);
    }
}

fn four(frame: &[u8], at: usize) -> [u8; 4] {
    std::array::from_fn(|i| frame[at + i])
}

fn sixteen(frame: &[u8], at: usize) -> [u8; 16] {
    std::array::from_fn(|i| frame[at + i])
}

/// An unusual packet: fragments, chains of extension headers, rare protocols, truncated and corrupted frames.
pub(crate) fn unusual(rng: &mut Rng, usual: Vec<u8>) -> Vec<u8> {
    let mut frame = usual;
    let layers = Layers::parse(Graph::standard(), &frame);
    match rng.below(8) {
        0 => {
            // A fragment: the first, a middle one or the last.
            if let Some(at) = layers.offset(Header::Ipv4) {
                let bits = rng.one_of([0x2000u16, 0x2001, 0x0001, 0x1fff, 0x2010]);
                frame[at + 6..at + 8].copy_from_slice(&bits.to_be_bytes());
                fix_checksums(&mut frame, false);
            }
        }
        1 | 2 => {
            // A chain of extension headers, up to one more than the parser follows.
            if let Some(at) = layers.offset(Header::Ipv6) {
                for _ in 0..1 + rng.below(5) {
                    let kind = rng.one_of([0u8, 43, 44, 51, 60]);
                    let mut header = vec![frame[at + 6], 0, 0, 0, 0, 0, 0, 0];
                    match kind {
                        44 => {
                            header[2] = if rng.percent(60) { 0 } else { rng.next_u64() as u8 };
                            header[3] = rng.one_of([0, 1, 8]);
                        }
                        51 => {
                            header[1] = rng.one_of([1, 2, 4]);
                            header.resize((usize::from(header[1]) + 2) * 4, 0);
                        }
                        _ => {
                            header[1] = rng.below(3) as u8;
                            header.resize(8 * (usize::from(header[1]) + 1), 0);
                        }
                    }
                    let len = u16::from_be_bytes([frame[at + 4], frame[at + 5]]).saturating_add(header.len() as u16);
                    frame[at + 4..at + 6].copy_from_slice(&len.to_be_bytes());
                    frame[at + 6] = kind;
                    frame.splice(at + 40..at + 40, header);
                }
            }
        }
        3 => {
            let mut arp = vec![0xff; 6];
            arp.extend([2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
            arp.resize(42, 0);
            frame = arp;
        }
        4 => frame.truncate(rng.index(frame.len() + 1)),
        5 => mutate(rng, &mut frame),
        6 => {
            frame.truncate(rng.index(frame.len() + 1).max(14));
            mutate(rng, &mut frame);
        }
        _ => {
            let len = rng.below(120) as usize;
            frame = (0..len).map(|_| rng.next_u64() as u8).collect();
        }
    }
    frame
}

/// Mutates a few bytes of every packet or truncates it; times and ports stay. The same seed gives the same packets.
pub fn mutated(packets: Vec<Arrival>, seed: u64) -> Vec<Arrival> {
    let mut rng = Rng::new(seed);
    let change = |mut packet: Arrival| {
        mutate(&mut rng, &mut packet.bytes);
        if rng.percent(20) {
            packet.bytes.truncate(rng.index(packet.bytes.len() + 1));
        }
        packet
    };
    packets.into_iter().map(change).collect()
}

/// Changes a few bytes or bits, most often in the headers.
pub(crate) fn mutate(rng: &mut Rng, frame: &mut Vec<u8>) {
    for _ in 0..1 + rng.below(4) {
        if frame.is_empty() {
            return;
        }
        let reach = if rng.percent(80) { frame.len().min(80) } else { frame.len() };
        let at = rng.index(reach);
        match rng.below(5) {
            0 => frame[at] ^= 1 << rng.below(8),
            1 => frame[at] = rng.next_u64() as u8,
            2 => frame[at] = rng.one_of([0, 1, 0x7f, 0x80, 0xff, 0x45, 0x60]),
            3 => frame.insert(at, rng.next_u64() as u8),
            _ => drop(frame.remove(at)),
        }
    }
}
