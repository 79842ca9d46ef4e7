// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of the header vector: 32-bit values that the parse block extracts, and that elements read and write.
//!
//! Names that overlap share their words: `ipv4.src` is the lowest word of `ip.src`, `tcp.is_syn` a bit of `tcp.flags`.
//! A *view* holds bits of a word as a number of its own, for arithmetic; it is read only.

use flowloom_wire::field::{FieldId, Source};
use flowloom_wire::graph::Slice;
use flowloom_wire::{Header, Layers};

/// The source of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    /// A word of a field, counted from the lowest.
    Field {
        /// The field that holds all names that overlap with it.
        field: FieldId,
        /// The index of the word.
        index: u8,
    },
    /// A field of at most 32 bits that is part of another one.
    View(FieldId),
    /// Source and destination port of the outermost transport header, one after the other.
    Ports,
    /// The sequence number after the segment: `tcp.seq` + `tcp.payload_len` + SYN + FIN.
    NextSequence,
    /// The low bits of the time in this unit, by its number.
    Clock(u8),
    /// A word of a metadata variable, counted from the lowest.
    Metadata {
        /// The number of the variable.
        variable: u16,
        /// The index of the word.
        index: u8,
    },
    /// Nothing: the word is 0.
    Unused,
}

/// Bits of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The field whose words hold them.
    pub(crate) storage: FieldId,
    /// The offset of the bits from the lowest bit of that field.
    pub(crate) offset_bits: u32,
    /// The number of bits.
    pub(crate) width_bits: u32,
}

impl Place {
    /// The place of a field.
    pub(crate) fn of(field: FieldId) -> Place {
        let width_bits = u32::from(field.width_bits());
        let (mut storage, mut offset_bits) = (field, 0);
        if let Some((whole, offset)) = enclosing(storage) {
            (storage, offset_bits) = (whole, offset);
        }
        if let Some(either) = FieldId::all().find(|either| either.alternatives().contains(&storage)) {
            storage = either;
        }
        Place { storage, offset_bits, width_bits }
    }

    /// True if the field has words of its own, from the lowest bit on.
    pub(crate) fn is_whole(&self, field: FieldId) -> bool {
        self.offset_bits == 0 && (self.storage == field || self.storage.alternatives().contains(&field))
    }

    /// The word with the lowest bit.
    pub(crate) fn word(&self) -> Word {
        Word::Field { field: self.storage, index: (self.offset_bits / 32) as u8 }
    }
}

/// The largest field of at most 32 bits in the same header that contains `field` as a part, and the offset in it.
fn enclosing(field: FieldId) -> Option<(FieldId, u32)> {
    let Source::Header(header, slice) = field.source() else { return None };
    let end = |slice: Slice| slice.offset_bits + u16::from(slice.width_bits);
    let contains = |outer: Slice| {
        outer.width_bits <= 32
            && outer.width_bits > slice.width_bits
            && outer.offset_bits <= slice.offset_bits
            && end(outer) >= end(slice)
    };
    let whole = FieldId::all().filter_map(|other| match other.source() {
        Source::Header(of, outer) if of == header && contains(outer) => Some((other, outer)),
        _ => None,
    });
    let (other, outer) = whole.max_by_key(|(_, outer)| outer.width_bits)?;
    Some((other, u32::from(end(outer) - end(slice))))
}

/// The headers any of which makes a field present, as validity bits; 0 if it always is.
pub(crate) fn presence_of(field: FieldId) -> u32 {
    field.headers().into_iter().fold(0, |set, header| set | header.bit())
}

impl Word {
    /// True for a word of an address above the lowest one, which is constant in an IPv4 packet.
    pub(crate) fn is_upper_address(self) -> bool {
        matches!(self, Word::Field { field, index } if index > 0 && matches!(field.source(), Source::Address { .. }))
    }

    /// The field of which it is a copy or a part, if it is one.
    pub fn storage(self) -> Option<FieldId> {
        match self {
            Word::Field { field, .. } => Some(field),
            Word::View(field) => Some(Place::of(field).storage),
            _ => None,
        }
    }

    /// The fields whose writes would make the word outdated, other than its own.
    pub(crate) fn depends_on(self) -> Vec<FieldId> {
        let named = |names: &[&str]| names.iter().filter_map(|name| FieldId::by_name(name)).collect();
        match self {
            Word::View(field) => vec![Place::of(field).storage],
            Word::Ports => named(&["l4.sport", "l4.dport"]),
            Word::NextSequence => named(&["tcp.seq", "tcp.flags"]),
            _ => Vec::new(),
        }
    }

    /// Its name in listings.
    pub fn name(self, function: &flowloom_efsm::model::Function) -> String {
        let indexed = |name: &str, words: usize, index: u8| match words {
            1 => name.to_owned(),
            _ => format!("{name}[{index}]"),
        };
        match self {
            Word::Field { field, index } => {
                let words = usize::from(field.width_bits()).div_ceil(32);
                indexed(&function.graph.field_name(field), words, index)
            }
            Word::View(field) => function.graph.field_name(field).into_owned(),
            Word::Ports => "l4.sport, l4.dport".to_owned(),
            Word::NextSequence => "tcp.seq after the segment".to_owned(),
            Word::Clock(unit) => format!("now in unit {unit}"),
            Word::Unused => "nothing".to_owned(),
            Word::Metadata { variable, index } => {
                let variable = &function.metadata[usize::from(variable)];
                indexed(&format!("meta {}", variable.name), usize::from(variable.ty.width_bits).div_ceil(32), index)
            }
        }
    }

    /// Its value in an arriving packet; 0 if what it is taken from is absent.
    pub fn extract(self, packet: &[u8], layers: &Layers, port: u32, clocks: &[u32; 2]) -> u32 {
        let read = |field| layers.read(packet, port, field).unwrap_or(0);
        let named = |name| FieldId::by_name(name).map_or(0, read) as u32;
        match self {
            Word::Field { field, index } => (read(field) >> (32 * u32::from(index))) as u32,
            Word::View(field) => read(field) as u32,
            Word::Ports => named("l4.sport") << 16 | named("l4.dport"),
            Word::NextSequence if layers.has(Header::Tcp) => ["tcp.seq", "tcp.payload_len", "tcp.is_syn", "tcp.is_fin"]
                .into_iter()
                .fold(0, |sum: u32, name| sum.wrapping_add(named(name))),
            Word::NextSequence | Word::Metadata { .. } | Word::Unused => 0,
            Word::Clock(unit) => clocks[usize::from(unit)],
        }
    }
}

/// The number of words of a value.
pub(crate) fn words_of(width_bits: u8) -> u8 {
    width_bits.div_ceil(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> (String, u32) {
        let place = Place::of(FieldId::by_name(name).expect("a field"));
        (place.storage.name().into_owned(), place.offset_bits)
    }

    #[test]
    fn names_that_overlap_share_a_word() {
        for (name, storage, offset_bits) in [
            ("ipv4.src", "ip.src", 0),
            ("ipv6.src", "ip.src", 0),
            ("ip.src", "ip.src", 0),
            ("tcp.is_syn", "tcp.flags", 1),
            ("tcp.is_fin", "tcp.flags", 0),
            ("ipv4.ecn", "ip.tos", 0),
            ("ipv4.dscp", "ip.tos", 2),
            ("udp.dport", "l4.dport", 0),
            ("icmp6.type", "icmpx.type", 0),
            ("eth.type", "eth.type", 0),
            ("inner.ipv4.dst", "inner.ip.dst", 0),
        ] {
            assert_eq!(place(name), (storage.to_owned(), offset_bits), "{name}");
        }
    }

    #[test]
    fn fields_with_own_words_do_not_overlap() {
        let bits = |field: FieldId| match field.source() {
            Source::Header(header, slice) => Some((header, slice)),
            _ => None,
        };
        let storages: Vec<FieldId> = FieldId::all().filter(|&field| Place::of(field).is_whole(field)).collect();
        for (at, &one) in storages.iter().enumerate() {
            for &other in &storages[..at] {
                let (Some((header, a)), Some((of, b))) = (bits(one), bits(other)) else { continue };
                let end = |slice: Slice| slice.offset_bits + u16::from(slice.width_bits);
                let apart = header != of || end(a) <= b.offset_bits || end(b) <= a.offset_bits;
                assert!(apart, "{one:?} and {other:?}");
            }
        }
    }
}
