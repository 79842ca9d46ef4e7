// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of the header vector, with the places of their bits in headers found once: what [`Word::extract`] defines, for
//! many packets.

use flowloom_wire::field::{FieldId, Source};
use flowloom_wire::graph::Slice;
use flowloom_wire::{Header, Layers};

use crate::word::Word;

/// The source of a word.
#[derive(Debug, Clone)]
pub(super) enum Extract {
    /// Bits of the first of these headers that is valid.
    Bits(Vec<(Header, Slice)>),
    /// A word of an address.
    Address { v4: (Header, Slice), v6: (Header, Slice), index: u8 },
    /// Bits of two fields, in the upper and the lower half.
    Halves([Vec<(Header, Slice)>; 2]),
    /// The time in a unit.
    Clock(u8),
    /// Other words.
    Other(Word),
}

impl Extract {
    pub(super) fn of(word: Word) -> Extract {
        let found = match word {
            Word::Field { field, index } => match field.source() {
                Source::Address { .. } => address(field, index),
                _ => bits(field, index).map(Extract::Bits),
            },
            Word::View(field) => bits(field, 0).map(Extract::Bits),
            Word::Ports => halves(),
            Word::Clock(unit) => Some(Extract::Clock(unit)),
            _ => None,
        };
        found.unwrap_or(Extract::Other(word))
    }

    /// The value in an arriving packet.
    #[inline]
    pub(super) fn value(&self, packet: &[u8], layers: &Layers, port: u32, clocks: &[u32; 2]) -> u32 {
        match self {
            Extract::Bits(places) => read(places, packet, layers),
            Extract::Halves([upper, lower]) => read(upper, packet, layers) << 16 | read(lower, packet, layers),
            Extract::Address { v4, v6, index } => match (layers.has(v4.0), index) {
                (true, 0) => read(std::slice::from_ref(v4), packet, layers),
                // ::ffff:a.b.c.d
                (true, 1) => 0xffff,
                (true, _) => 0,
                (false, _) => read(std::slice::from_ref(v6), packet, layers),
            },
            Extract::Clock(unit) => clocks[usize::from(*unit)],
            Extract::Other(word) => word.extract(packet, layers, port, clocks),
        }
    }
}

/// Bits of the first header that is valid; 0 if none is.
#[inline]
fn read(places: &[(Header, Slice)], packet: &[u8], layers: &Layers) -> u32 {
    let found = places.iter().find_map(|(header, slice)| Some((layers.offset(*header)?, slice)));
    let value = found.and_then(|(offset, slice)| slice.read(packet.get(offset..)?));
    value.unwrap_or(0) as u32
}

/// The places of a word of a field, in the order in which they are tried; none if it is not taken from headers.
fn bits(field: FieldId, index: u8) -> Option<Vec<(Header, Slice)>> {
    match field.source() {
        Source::Header(header, slice) => Some(vec![(header, word_of(slice, index)?)]),
        Source::Either(_) => {
            let all: Option<Vec<_>> = field.alternatives().iter().map(|either| bits(*either, index)).collect();
            all.map(|all| all.concat())
        }
        _ => None,
    }
}

/// The bits of a word of a slice, counted from the lowest.
fn word_of(slice: Slice, index: u8) -> Option<Slice> {
    let after = 32 * u16::from(index);
    let width = u16::from(slice.width_bits).checked_sub(after).filter(|width| *width > 0)?.min(32);
    let offset_bits = slice.offset_bits + u16::from(slice.width_bits) - after - width;
    Some(Slice { offset_bits, width_bits: width as u8 })
}

fn address(field: FieldId, index: u8) -> Option<Extract> {
    let [v4, v6] = field.alternatives() else { return None };
    let (Source::Header(of_v4, v4), Source::Header(of_v6, v6)) = (v4.source(), v6.source()) else { return None };
    Some(Extract::Address { v4: (of_v4, v4), v6: (of_v6, word_of(v6, index)?), index })
}

fn halves() -> Option<Extract> {
    let port = |name| bits(FieldId::by_name(name)?, 0);
    Some(Extract::Halves([port("l4.sport")?, port("l4.dport")?]))
}

#[cfg(test)]
mod tests {
    use flowloom_testkit::{PacketBuilder, Rng, mutate};
    use flowloom_wire::Graph;

    use super::*;
    use crate::vector::source_words;

    /// Each word has the value that its definition gives, in random packets with all headers.
    #[test]
    fn values_are_those_of_the_definition() {
        let mut rng = Rng::from_env(1);
        let words: Vec<(Word, Extract)> =
            source_words().iter().flatten().map(|word| (*word, Extract::of(*word))).collect();
        assert!(words.iter().filter(|(_, extract)| matches!(extract, Extract::Other(_))).count() < 10);
        let mut transports = 0;
        for _ in 0..5000 {
            let mut packet = PacketBuilder::random(&mut rng, 4).build();
            if rng.chance(1, 4) {
                mutate(&mut rng, &mut packet);
            }
            let layers = Layers::parse(Graph::standard(), &packet);
            transports += usize::from(layers.has(Header::Tcp) || layers.has(Header::Udp));
            for (word, extract) in &words {
                let expected = word.extract(&packet, &layers, 3, &[5, 6]);
                assert_eq!(extract.value(&packet, &layers, 3, &[5, 6]), expected, "{word:?} in {packet:02x?}");
            }
        }
        assert!(transports > 1000);
    }
}
