// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The core of a packet.

use std::sync::Arc;

use flowloom_engine::{Arrival, Port};
use flowloom_wire::Layers;
use flowloom_wire::field::{FieldId, Source};

use crate::hash::{Factors, core_of};
use crate::slice::KeySlice;
use crate::usual::{FORMATS, Format, Origin, UsualFormats};

/// The rule by which packets are spread.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Spread {
    /// By fields of the packet.
    Fields(Fields),
    /// By the key of maps, as the program computes it.
    Key(KeySlice),
    /// No state ties packets together: by addresses and ports, so that a flow keeps its order.
    Any,
}

impl Spread {
    /// The core of a packet; 0 for packets without a key, which touch no state that is split.
    #[inline]
    pub(crate) fn core(&self, packet: &[u8], port: Port, cores: usize, scratch: &mut Vec<u64>) -> usize {
        let hash = match self {
            Spread::Fields(fields) => fields.hash(packet, port),
            Spread::Key(slice) => Some(slice.hash(packet, port, scratch)),
            Spread::Any => any(packet),
        };
        hash.map_or(0, |hash| core_of(hash, cores))
    }

    /// Calls `found` with the number of each packet and its core, as [`Spread::core`] gives it, at less cost.
    #[inline]
    pub(crate) fn each(
        &self,
        packets: &[Arrival<'_>],
        cores: usize,
        scratch: &mut Vec<u64>,
        mut found: impl FnMut(usize, usize),
    ) {
        let mut found = |number, hash: Option<u64>| found(number, hash.map_or(0, |hash| core_of(hash, cores)));
        match self {
            Spread::Fields(fields) => packets.iter().enumerate().for_each(|(number, packet)| {
                let usual = fields.usual.hash_of(packet);
                found(number, usual.or_else(|| fields.parsed(packet.bytes, packet.port)));
            }),
            Spread::Key(slice) => packets.iter().enumerate().for_each(|(number, packet)| {
                let usual = slice.usual.hash_of(packet);
                found(number, usual.or_else(|| Some(slice.evaluated(packet.bytes, packet.port, scratch))));
            }),
            Spread::Any => packets.iter().enumerate().for_each(|(number, packet)| found(number, any(packet.bytes))),
        }
    }
}

/// Where addresses begin in an IPv4 header after Ethernet.
const ADDRESSES_AT: usize = 26;
/// Where the ports of TCP and UDP begin after an IPv4 header without options.
const PORTS_AT: usize = 34;

fn any(packet: &[u8]) -> Option<u64> {
    let addresses = u64::from_le_bytes(*packet.get(ADDRESSES_AT..)?.first_chunk()?);
    let ports = u32::from_le_bytes(*packet.get(PORTS_AT..)?.first_chunk()?);
    Some(addresses.wrapping_mul(ADDRESSES_KEY).wrapping_add(u64::from(ports).wrapping_mul(PORTS_KEY)))
}

/// What addresses and ports are combined with: digits of pi.
const ADDRESSES_KEY: u64 = 0x243f_6a88_85a3_08d3;
const PORTS_KEY: u64 = 0x1319_8a2e_0370_7345;

/// Fields of the packet that are in the keys of all elements.
///
/// The hash is symmetric if both directions of a flow may share a context.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    graph: Arc<flowloom_wire::Graph>,
    words: Vec<Word>,
    is_symmetric: bool,
    factors: Factors,
    pub(crate) usual: UsualFormats,
}

/// Rules are equal if they give all packets the same core.
impl PartialEq for Fields {
    fn eq(&self, other: &Fields) -> bool {
        let headers = |fields: &Fields| fields.graph.user_headers().len();
        (&self.words, &self.factors, &self.usual) == (&other.words, &other.factors, &other.usual)
            && (Arc::ptr_eq(&self.graph, &other.graph) || headers(self) + headers(other) == 0)
    }
}

/// The low or the high 64 bits of a field: the number of the ingress port, of others the little-endian number of the
/// bytes in network order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    field: FieldId,
    is_high: bool,
}

impl Word {
    fn of(self, value: u128) -> u64 {
        let part = if self.is_high { value >> 64 } else { value } as u64;
        if self.field.source() == Source::PacketPort { part } else { part.swap_bytes() }
    }

    /// Where it is in packets of a format; `None` if they lack the field.
    fn origin(self, format: &Format) -> Option<Origin> {
        let is_ipv4 = format.bytes.contains(&(12, 0x08));
        let (is_tcp, is_udp) = (format.has_protocol(TCP), format.has_protocol(UDP));
        let (addresses, ports) = if is_ipv4 { (26, 34) } else { (22, 54) };
        let address = |number: i32| match (is_ipv4, self.is_high) {
            // `::ffff:a.b.c.d`
            (true, false) => {
                Origin::Packet { at: addresses + 4 * number - 4, mask: u64::MAX << 32, constant: 0xffff << 16 }
            }
            (true, true) => Origin::constant(0),
            (false, is_high) => Origin::Packet {
                at: addresses + 16 * number + if is_high { 0 } else { 8 },
                mask: u64::MAX,
                constant: 0,
            },
        };
        // A field that ends before this byte, in the most significant bytes of the word.
        let low = |end: i32, bytes: u32| {
            Some(Origin::Packet { at: end - 8, mask: u64::MAX << (64 - 8 * bytes), constant: 0 })
        };
        match &*self.field.name() {
            "ip.src" => Some(address(0)),
            "ip.dst" => Some(address(1)),
            "ipv6.src" if !is_ipv4 => Some(address(0)),
            "ipv6.dst" if !is_ipv4 => Some(address(1)),
            _ if self.is_high => None,
            "ipv4.src" if is_ipv4 => low(30, 4),
            "ipv4.dst" if is_ipv4 => low(34, 4),
            "ip.proto" => Some(Origin::constant(u64::from(if is_tcp { TCP } else { UDP }).swap_bytes())),
            "l4.sport" => low(ports + 2, 2),
            "l4.dport" => low(ports + 4, 2),
            "tcp.sport" if is_tcp => low(ports + 2, 2),
            "tcp.dport" if is_tcp => low(ports + 4, 2),
            "udp.sport" if is_udp => low(ports + 2, 2),
            "udp.dport" if is_udp => low(ports + 4, 2),
            "eth.dst" => low(6, 6),
            "eth.src" => low(12, 6),
            _ if self.field.source() == Source::PacketPort => Some(Origin::Port),
            _ => None,
        }
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;

impl Fields {
    /// `fields` are those of the key, `is_symmetric` whether both directions of a flow go to one core; then the fields
    /// include the partners of all. At most half of [`crate::hash::MAX_WORDS`].
    pub(crate) fn new(graph: &Arc<flowloom_wire::Graph>, fields: &[FieldId], is_symmetric: bool) -> Fields {
        let both = |field: &FieldId| [true, false].map(|is_high| Word { field: *field, is_high });
        let is_there = |word: &Word| !word.is_high || word.field.width_bits() > 64;
        let words: Vec<Word> = fields.iter().flat_map(both).filter(is_there).collect();
        let partner = |(at, word): (usize, &Word)| {
            let partner = word.field.partner().filter(|_| is_symmetric).map(|field| Word { field, ..*word });
            partner.and_then(|partner| words.iter().position(|word| *word == partner)).unwrap_or(at)
        };
        let partners: Vec<usize> = words.iter().enumerate().map(partner).collect();
        let factors = Factors::new(&partners);
        let mut usual = UsualFormats::default();
        // Headers of the user may lie before the IP header.
        if graph.user_headers().is_empty() {
            for format in &FORMATS {
                let origins: Option<Vec<Origin>> = words.iter().map(|word| word.origin(format)).collect();
                if let Some(origins) = origins {
                    usual.add(format, &origins, &factors);
                }
            }
        }
        Fields { graph: Arc::clone(graph), words, is_symmetric, factors, usual }
    }

    /// The fields, each once.
    pub(crate) fn fields(&self) -> impl Iterator<Item = FieldId> + '_ {
        self.words.iter().filter(|word| !word.is_high).map(|word| word.field)
    }

    pub(crate) fn is_symmetric(&self) -> bool {
        self.is_symmetric
    }

    /// The hash of a packet; `None` if it lacks a field. If a packet of a usual format lacks a field all the same, it
    /// touches no state, and any core will do.
    #[inline]
    pub(crate) fn hash(&self, packet: &[u8], port: Port) -> Option<u64> {
        self.usual.hash(packet, port).or_else(|| self.parsed(packet, port))
    }

    /// The hash of a packet of any format.
    #[cold]
    fn parsed(&self, packet: &[u8], port: Port) -> Option<u64> {
        let layers = Layers::parse(&self.graph, packet);
        let value = |word: &Word| layers.read(packet, port.0, word.field).map(|value| word.of(value));
        let values: Vec<u64> = self.words.iter().map(value).collect::<Option<_>>()?;
        Some(self.factors.hash(|word| values[word]))
    }

    /// The hash of a context, by the values of the fields in its key.
    pub(crate) fn hash_of_key(&self, value: impl Fn(FieldId) -> u128) -> u64 {
        self.factors.hash(|word| self.words[word].of(value(self.words[word].field)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use flowloom_wire::Graph;

    fn udp(src: u8, dst: u8, sport: u16, dport: u16) -> Vec<u8> {
        let mut packet: Vec<u8> = (1..=12).collect();
        packet.extend([0x08, 0x00, 0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, src, 10, 0, 0, dst]);
        packet.extend([sport.to_be_bytes(), dport.to_be_bytes(), [0, 8], [0, 0]].concat());
        packet
    }

    fn udp6(src: u8, dst: u8, sport: u16, dport: u16) -> Vec<u8> {
        let mut packet: Vec<u8> = (1..=12).collect();
        packet.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]);
        for last in [src, dst] {
            packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, last, 0, 0, 0, 9, 0, 0, 0, last]);
        }
        packet.extend([sport.to_be_bytes(), dport.to_be_bytes(), [0, 8], [0, 0]].concat());
        packet
    }

    fn tagged(mut packet: Vec<u8>) -> Vec<u8> {
        packet.splice(12..12, [0x81, 0, 0, 5]);
        packet
    }

    #[test]
    fn usual_packets_have_the_hash_that_the_parser_gives() {
        let graph = Arc::new(Graph::standard().clone());
        let names = [
            &["ip.src", "ip.dst", "ip.proto", "l4.sport", "l4.dport"][..],
            &["ipv4.dst", "udp.sport"],
            &["pkt.port", "ipv4.src"],
            &["eth.src"],
            &["eth.dst", "ip.proto"],
        ];
        for (names, is_symmetric) in names.iter().flat_map(|names| [(names, true), (names, false)]) {
            let ids: Vec<FieldId> = names.iter().map(|name| FieldId::by_name(name).unwrap()).collect();
            let fields = Fields::new(&graph, &ids, is_symmetric);
            assert!(!fields.usual.is_empty(), "{names:?}");
            let six = [udp6(1, 2, 7, 8), udp6(2, 1, 8, 7)];
            for packet in [udp(1, 2, 7, 8), udp(2, 1, 8, 7), udp(1, 1, 7, 7)].into_iter().chain(six) {
                let usual = fields.hash(&packet, Port(3));
                let is_usual = fields.usual.hash(&packet, Port(3)).is_some();
                assert_eq!(is_usual, usual.is_some(), "{names:?}");
                assert_eq!(usual, fields.parsed(&packet, Port(3)), "{names:?}");
                assert_eq!(usual, fields.hash(&tagged(packet.clone()), Port(3)), "{names:?}");
                let Some(usual) = usual else { continue };
                let layers = Layers::parse(&graph, &packet);
                let key = fields.hash_of_key(|field| layers.read(&packet, 3, field).unwrap());
                assert_eq!(usual, key, "{names:?}");
            }
        }
    }

    #[test]
    fn rules_are_equal_if_all_packets_have_one_core() {
        let graph = Arc::new(Graph::standard().clone());
        let fields = |names: &[&str], is_symmetric| {
            let ids: Vec<FieldId> = names.iter().map(|name| FieldId::by_name(name).unwrap()).collect();
            Fields::new(&Arc::new(graph.as_ref().clone()), &ids, is_symmetric)
        };
        assert_eq!(fields(&["ip.src", "ip.dst"], true), fields(&["ip.src", "ip.dst"], true));
        assert_ne!(fields(&["ip.src", "ip.dst"], true), fields(&["ip.src", "ip.dst"], false));
        assert_ne!(fields(&["ip.src", "ip.dst"], true), fields(&["ip.src"], true));
        assert_ne!(fields(&["l4.sport"], false), fields(&["l4.dport"], false));
    }

    #[test]
    fn both_directions_have_one_hash_if_it_is_symmetric() {
        let graph = Arc::new(Graph::standard().clone());
        let ids = ["ip.src", "l4.dport", "ip.dst", "ip.proto", "l4.sport"].map(|name| FieldId::by_name(name).unwrap());
        for is_symmetric in [true, false] {
            let fields = Fields::new(&graph, &ids, is_symmetric);
            let [there, back, other] =
                [udp(1, 2, 7, 8), udp(2, 1, 8, 7), udp(1, 2, 7, 9)].map(|packet| fields.hash(&packet, Port(1)));
            assert_eq!(there == back, is_symmetric);
            assert_ne!(there, other);
            assert_eq!(fields.hash(&[0; 60], Port(1)), None);
        }
    }
}
