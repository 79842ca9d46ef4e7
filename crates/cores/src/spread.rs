// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The core of a packet.

use std::sync::Arc;

use flowloom_engine::Port;
use flowloom_wire::Layers;
use flowloom_wire::field::{FieldId, Source};

use crate::hash::{core_of, word};
use crate::slice::KeySlice;

/// The rule by which packets are spread.
#[derive(Debug, Clone)]
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
}

/// The end of the ports of TCP and UDP after an IPv4 header without options.
const PORTS_END: usize = 38;

fn any(packet: &[u8]) -> Option<u64> {
    let bytes: &[u8; PORTS_END] = packet.first_chunk()?;
    let [addresses, ports] = [number_at(bytes, 26, 8), number_at(bytes, 34, 4)];
    Some(word(0, addresses).wrapping_add(word(1, ports)))
}

#[inline]
fn number_at(bytes: &[u8; PORTS_END], at: usize, len: usize) -> u64 {
    crate::hash::number(&bytes[at..at + len])
}

/// Fields of the packet that are in the keys of all elements.
///
/// The hash is symmetric if both directions of a flow may share a context.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    graph: Arc<flowloom_wire::Graph>,
    /// By word, the field and the one that takes its place in the other direction.
    words: Vec<(FieldId, usize)>,
    is_symmetric: bool,
    /// By word, where it is in most packets.
    usual: Option<Vec<Usual>>,
}

/// A field of an untagged IPv4 packet without options that is no later fragment, with TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usual {
    /// An address, and whether it is read as one of 128 bits.
    Address(usize, bool),
    Protocol,
    Port(usize),
    Ingress,
}

impl Usual {
    fn of(field: FieldId) -> Option<Usual> {
        Some(match &*field.name() {
            "ip.src" => Usual::Address(26, true),
            "ip.dst" => Usual::Address(30, true),
            "ipv4.src" => Usual::Address(26, false),
            "ipv4.dst" => Usual::Address(30, false),
            "ip.proto" => Usual::Protocol,
            "l4.sport" | "tcp.sport" | "udp.sport" => Usual::Port(34),
            "l4.dport" | "tcp.dport" | "udp.dport" => Usual::Port(36),
            _ if field.source() == Source::PacketPort => Usual::Ingress,
            _ => return None,
        })
    }

    #[inline]
    fn read(self, packet: &[u8; PORTS_END], port: Port) -> u64 {
        let big_endian = |at: usize| u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
        match self {
            Usual::Address(at, is_wide) => (u64::from(is_wide) * (0xffff << 32)) | u64::from(big_endian(at)),
            Usual::Protocol => packet[23].into(),
            Usual::Port(at) => u16::from_be_bytes([packet[at], packet[at + 1]]).into(),
            Usual::Ingress => port.0.into(),
        }
    }
}

/// A value as one word.
fn folded(value: u128) -> u64 {
    value as u64 ^ ((value >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Fields {
    /// `fields` are those of the key, `is_symmetric` whether both directions of a flow go to one core; then the fields
    /// include the partners of all. At most [`crate::hash::MAX_WORDS`].
    pub(crate) fn new(graph: &Arc<flowloom_wire::Graph>, fields: &[FieldId], is_symmetric: bool) -> Fields {
        let partner = |at: usize| {
            let partner = fields[at].partner().filter(|_| is_symmetric);
            partner.and_then(|partner| fields.iter().position(|field| *field == partner)).unwrap_or(at)
        };
        let words = (0..fields.len()).map(|at| (fields[at], partner(at))).collect();
        // Headers of the user may lie before the IP header.
        let is_standard = graph.user_headers().is_empty();
        let usual = fields.iter().map(|field| Usual::of(*field)).collect::<Option<_>>().filter(|_| is_standard);
        Fields { graph: Arc::clone(graph), words, is_symmetric, usual }
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = FieldId> + '_ {
        self.words.iter().map(|(field, _)| *field)
    }

    pub(crate) fn is_symmetric(&self) -> bool {
        self.is_symmetric
    }

    /// The hash of the values of all fields.
    #[inline]
    fn hash_of(&self, mut value: impl FnMut(usize) -> Option<u64>) -> Option<u64> {
        let mut hash = 0_u64;
        for (at, (_, partner)) in self.words.iter().enumerate() {
            let value = value(at)?;
            hash = hash.wrapping_add(word(at, value));
            if self.is_symmetric {
                hash = hash.wrapping_add(word(*partner, value));
            }
        }
        Some(hash)
    }

    /// The hash of a packet; `None` if it lacks a field.
    #[inline]
    pub(crate) fn hash(&self, packet: &[u8], port: Port) -> Option<u64> {
        if let (Some(usual), Some(bytes)) = (&self.usual, packet.first_chunk::<PORTS_END>()) {
            let is_ipv4 = bytes[12] == 0x08 && bytes[13] == 0 && bytes[14] == 0x45;
            let is_whole = bytes[20] & 0x1f == 0 && bytes[21] == 0;
            if is_ipv4 && is_whole && (bytes[23] == 6 || bytes[23] == 17) {
                // If the packet lacks a field all the same, it touches no state, and any core will do.
                return self.hash_of(|at| Some(usual[at].read(bytes, port)));
            }
        }
        let layers = Layers::parse(&self.graph, packet);
        self.hash_of(|at| layers.read(packet, port.0, self.words[at].0).map(folded))
    }

    /// The hash of a context, by the values of the fields in its key.
    pub(crate) fn hash_of_key(&self, value: impl Fn(FieldId) -> u128) -> u64 {
        self.hash_of(|at| Some(folded(value(self.words[at].0)))).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use flowloom_wire::Graph;

    fn udp(src: u8, dst: u8, sport: u16, dport: u16) -> Vec<u8> {
        let mut packet = vec![0; 12];
        packet.extend([0x08, 0x00, 0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, src, 10, 0, 0, dst]);
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
        ];
        for names in names {
            let ids: Vec<FieldId> = names.iter().map(|name| FieldId::by_name(name).unwrap()).collect();
            let fields = Fields::new(&graph, &ids, false);
            assert!(fields.usual.is_some(), "{names:?}");
            for packet in [udp(1, 2, 7, 8), udp(2, 1, 8, 7), udp(1, 1, 7, 7)] {
                let usual = fields.hash(&packet, Port(3));
                assert_eq!(usual, fields.hash(&tagged(packet.clone()), Port(3)), "{names:?}");
                let layers = Layers::parse(&graph, &packet);
                let key = fields.hash_of_key(|field| layers.read(&packet, 3, field).unwrap());
                assert_eq!(usual, Some(key), "{names:?}");
            }
        }
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
