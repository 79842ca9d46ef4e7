// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration of the parse and rewrite blocks: sources of the words of the header vector, presence bits, units
//! of time, and user-defined headers.
//!
//! ```text
//!  user headers ─► UNIT_USER: selecting fields, lengths        words ─► UNIT_WORD: source, constant
//!  their fields ─► UNIT_SLOT, UNIT_OWNER: bits of each word          ─► UNIT_TARGET: the word written to each field
//!  clocks       ─► UNIT_CLOCK: reciprocals                     presence ─► UNIT_PRESENCE: sets of headers
//! ```
//!
//! Every word of the memories is written, so that nothing of an earlier function is left. The numbers are those of
//! `hdl/overlay/fl_parse_pkg.sv`, which the tests compare.

mod reach;

use std::sync::LazyLock;

use flowloom_wire::field::{FieldId, Source};
use flowloom_wire::graph::{Parent, Slice, UserHeader};
use flowloom_wire::{Graph, Header};

use crate::encode::ConfigWrite;
use crate::image::Image;
use crate::word::Word;
pub use reach::{CHOICES, place, reach};

/// The memory of the selecting fields and lengths of user-defined headers.
pub const UNIT_USER: u8 = 0xe0;
/// The memory of the bits of fields of user-defined headers.
pub const UNIT_SLOT: u8 = 0xe1;
/// The memory of the reciprocals of units of time.
pub const UNIT_CLOCK: u8 = 0xe2;
/// The memory of the sources of the header vector.
pub const UNIT_WORD: u8 = 0xe3;
/// The memory of presence bits.
pub const UNIT_PRESENCE: u8 = 0xe4;
/// The memory of the rewrite block: the words that are written to fields.
pub const UNIT_TARGET: u8 = 0xe5;

/// The memory of the rewrite block: the words that own the bits of user-defined headers.
pub const UNIT_OWNER: u8 = 0xe6;
/// The memory of the stage that packets enter.
pub const UNIT_ENTRY: u8 = 0xe7;

/// The most user-defined headers.
pub const USER_HEADERS: usize = 2;
/// The most field values that select a user-defined header.
pub const USER_ALTERNATIVES: usize = 4;
/// The words of the header vector that hold fields of user-defined headers.
pub const USER_SLOTS: usize = 8;
/// The first bytes of a user-defined header, in which its fields are.
pub const USER_BYTES: usize = 32;

/// The number of the source that is a constant.
const CONSTANT: u32 = 0;
/// The number of the first word of a user-defined header.
const FIRST_SLOT: u32 = 5;
/// The index of the first constant in the memory of sources.
const CONSTANTS: u16 = 64;
/// The bit of a target that a word is written to.
const IS_TARGET: u32 = 1 << 6;

/// Sources of the words of the header vector in the order of the bus, the widest first. A field is a word of it, or a
/// view.
pub const SOURCES: [&str; 96] = [
    "constant",
    "ports",
    "next_sequence",
    "clock[0]",
    "clock[1]",
    "slot[0]",
    "slot[1]",
    "slot[2]",
    "slot[3]",
    "slot[4]",
    "slot[5]",
    "slot[6]",
    "slot[7]",
    "pkt.len",
    "pkt.port",
    "eth.dst[0]",
    "eth.src[0]",
    "ip.src[0]",
    "ip.src[1]",
    "ip.src[2]",
    "ip.src[3]",
    "ip.dst[0]",
    "ip.dst[1]",
    "ip.dst[2]",
    "ip.dst[3]",
    "ipv6.frag_id",
    "tcp.seq",
    "tcp.ack",
    "mpls.label",
    "mpls2.label",
    "mpls3.label",
    "mpls4.label",
    "ipv6.flow_label",
    "eth.dst[1]",
    "eth.src[1]",
    "eth.type",
    "vlan.type",
    "vlan2.type",
    "ipv4.len",
    "ipv4.id",
    "ipv4.checksum",
    "ipv6.len",
    "l4.sport",
    "l4.dport",
    "tcp.window",
    "tcp.checksum",
    "tcp.urgent",
    "tcp.payload_len",
    "udp.len",
    "udp.checksum",
    "icmp.checksum",
    "icmp6.checksum",
    "icmpx.id",
    "icmpx.seq",
    "ip.frag",
    "vlan.id",
    "vlan2.id",
    "mpls.ttl",
    "mpls2.ttl",
    "mpls3.ttl",
    "mpls4.ttl",
    "ip.proto",
    "ip.tos",
    "ip.ttl",
    "ipv4.proto",
    "ipv6.next",
    "tcp.flags",
    "icmpx.type",
    "icmpx.code",
    "ipv4.dscp",
    "ip.version",
    "ipv4.ihl",
    "tcp.doff",
    "vlan.pcp",
    "vlan2.pcp",
    "mpls.tc",
    "mpls2.tc",
    "mpls3.tc",
    "mpls4.tc",
    "ipv4.ecn",
    "vlan.dei",
    "vlan2.dei",
    "mpls.bos",
    "mpls2.bos",
    "mpls3.bos",
    "mpls4.bos",
    "ip.mf",
    "ipv4.df",
    "tcp.is_cwr",
    "tcp.is_ece",
    "tcp.is_urg",
    "tcp.is_ack",
    "tcp.is_psh",
    "tcp.is_rst",
    "tcp.is_syn",
    "tcp.is_fin",
];

/// Headers that the parse block finds.
pub const PARSED: u32 = Header::Ethernet.bit()
    | Header::Vlan.bit()
    | Header::Vlan2.bit()
    | Header::Ipv4.bit()
    | Header::Ipv6.bit()
    | Header::Tcp.bit()
    | Header::Udp.bit()
    | Header::Icmp.bit()
    | Header::Icmp6.bit()
    | Header::Mpls.bit()
    | Header::Mpls2.bit()
    | Header::Mpls3.bit()
    | Header::Mpls4.bit()
    | Header::Ipv6Fragment.bit()
    | Header::User0.bit()
    | Header::User1.bit();

/// The reason why the parse and rewrite blocks cannot be configured for a function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VectorError {
    /// There are more user-defined headers than the parser finds.
    #[error("{found} headers are declared, the parser finds at most {limit}")]
    UserHeaders {
        /// The number of headers.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// A user-defined header comes after a header other than UDP or TCP.
    #[error("header `{header}` does not follow UDP or TCP; the parser finds others only in software")]
    Parent {
        /// The header.
        header: String,
    },
    /// A user-defined header is selected by more values than the parser compares.
    #[error("header `{header}` is selected by {found} values, the parser compares at most {limit}")]
    Alternatives {
        /// The header.
        header: String,
        /// The number of values.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// A selecting field is not within a word of the transport header.
    #[error("header `{header}` is selected by `{field}`, which is not within 32 bits of the header before it")]
    Selector {
        /// The header.
        header: String,
        /// The field.
        field: String,
    },
    /// A field of a user-defined header ends after the bytes that the parser keeps.
    #[error("field `{field}` ends {found_bits} bits after the start of its header, the parser keeps {limit_bits}")]
    FieldEnd {
        /// The field.
        field: String,
        /// The end of the field.
        found_bits: usize,
        /// The limit.
        limit_bits: usize,
    },
    /// The function uses more words of user-defined headers than the parser extracts.
    #[error("{found} words of user-defined headers are used, the parser extracts at most {limit}")]
    Slots {
        /// The number of words.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// The parser has no source for a word.
    #[error("the parser does not extract `{word}`")]
    Word {
        /// The word.
        word: String,
    },
    /// A word is where the header vector cannot hold it.
    #[error("word {number} of the header vector cannot hold `{word}`; place the words before")]
    Reach {
        /// The word.
        word: String,
        /// Its number.
        number: usize,
    },
    /// There is no place for all words.
    #[error("the {found} words do not fit into the {limit} of the header vector")]
    Place {
        /// The number of words.
        found: usize,
        /// The words of the machine.
        limit: usize,
    },
    /// A presence bit depends on a header that the parser does not find.
    #[error("the parser does not find header `{header}`")]
    Presence {
        /// The header.
        header: String,
    },
    /// A unit of time is out of range.
    #[error("the unit of clock {clock} is {found_ns} ns, expected 1 to 2^63")]
    Clock {
        /// The clock.
        clock: usize,
        /// The unit in nanoseconds.
        found_ns: u64,
    },
}

/// The words of the header vector that sources are, by the source's number; none for constants and for fields of
/// user-defined headers.
pub fn source_words() -> &'static [Option<Word>] {
    static WORDS: LazyLock<Vec<Option<Word>>> = LazyLock::new(|| SOURCES.iter().map(|name| named(name)).collect());
    &WORDS
}

/// The word that a source is.
fn named(name: &str) -> Option<Word> {
    let (name, index) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
        Some((name, index)) => (name, index.parse().ok()?),
        None => (name, 0),
    };
    match name {
        "ports" => return Some(Word::Ports),
        "next_sequence" => return Some(Word::NextSequence),
        "clock" => return Some(Word::Clock(index)),
        _ => {}
    }
    let field = FieldId::by_name(name)?;
    Some(if crate::word::Place::of(field).is_whole(field) { Word::Field { field, index } } else { Word::View(field) })
}

/// The writes that configure the parse and rewrite blocks for a placed image ([`place`]) of a function with this parse
/// graph.
///
/// # Errors
/// The function needs more than the blocks have.
pub fn encode_vector(image: &Image, graph: &Graph) -> Result<Vec<ConfigWrite>, VectorError> {
    let mut writes = Vec::new();
    users(graph, &mut writes)?;
    clocks(&image.clocks_ns, &mut writes)?;
    words(image, graph, &mut writes)?;
    for index in 0..crate::parameters::PRESENCE_BITS as usize {
        let headers = image.presence.get(index).copied().unwrap_or(0);
        if let Some(header) = Header::ALL.into_iter().find(|header| headers & !PARSED & header.bit() != 0) {
            return Err(VectorError::Presence { header: graph.header_name(header).to_owned() });
        }
        writes.push(ConfigWrite { unit: UNIT_PRESENCE, index: index as u16, data: headers });
    }
    writes.push(ConfigWrite { unit: UNIT_ENTRY, index: 0, data: image.entry.into() });
    Ok(writes)
}

/// User-defined headers: for each value that selects one the value, its mask, and the place of the field; the lengths.
fn users(graph: &Graph, writes: &mut Vec<ConfigWrite>) -> Result<(), VectorError> {
    let users = graph.user_headers();
    if users.len() > USER_HEADERS {
        return Err(VectorError::UserHeaders { found: users.len(), limit: USER_HEADERS });
    }
    let mut write = |index: usize, data: u32| writes.push(ConfigWrite { unit: UNIT_USER, index: index as u16, data });
    for number in 0..USER_HEADERS {
        let user = users.get(number);
        let selects = user.map_or(Ok(Vec::new()), |user| selects(graph, user))?;
        for alternative in 0..USER_ALTERNATIVES {
            let words = selects.get(alternative).copied().unwrap_or([0; 3]);
            for (at, word) in words.into_iter().enumerate() {
                write(4 * (USER_ALTERNATIVES * number + alternative) + at, word);
            }
        }
        let bits: usize = user.map_or(0, |user| user.fields.iter().map(|field| usize::from(field.width_bits)).sum());
        write(4 * USER_ALTERNATIVES * USER_HEADERS + number, bits as u32 / 16);
    }
    Ok(())
}

/// Value, mask and place of each field value that selects a header.
fn selects(graph: &Graph, user: &UserHeader) -> Result<Vec<[u32; 3]>, VectorError> {
    const IS_USED: u32 = 1 << 4;
    const IS_TCP: u32 = 1 << 3;
    let header = || user.name.clone();
    let of_parent = match user.after {
        Parent::Udp => 0,
        Parent::Tcp => IS_TCP,
        _ => return Err(VectorError::Parent { header: header() }),
    };
    let (found, limit) = (user.when.len(), USER_ALTERNATIVES);
    if found > limit {
        return Err(VectorError::Alternatives { header: header(), found, limit });
    }
    let select = |&(field, value): &(FieldId, u64)| {
        let name = || graph.field_name(field).into_owned();
        let Source::Header(_, slice) = field.source() else {
            return Err(VectorError::Selector { header: header(), field: name() });
        };
        let (offset, width) = (u32::from(slice.offset_bits), u32::from(slice.width_bits));
        if offset % 32 + width > 32 || offset / 32 >= 5 {
            return Err(VectorError::Selector { header: header(), field: name() });
        }
        let shift = 32 - offset % 32 - width;
        let mask = (u32::MAX >> (32 - width)) << shift;
        Ok([(value as u32) << shift & mask, mask, IS_USED | of_parent | (offset / 32)])
    };
    user.when.iter().map(select).collect()
}

/// Reciprocals and shifts of the units of time.
fn clocks(clocks_ns: &[u64], writes: &mut Vec<ConfigWrite>) -> Result<(), VectorError> {
    for clock in 0..crate::parameters::CLOCKS {
        let unit_ns = clocks_ns.get(clock).copied().unwrap_or(1);
        let (reciprocal, shift) = reciprocal(unit_ns).ok_or(VectorError::Clock { clock, found_ns: unit_ns })?;
        let rest = (reciprocal >> 64) as u32 | shift << 1;
        for (at, data) in [reciprocal as u32, (reciprocal >> 32) as u32, rest].into_iter().enumerate() {
            writes.push(ConfigWrite { unit: UNIT_CLOCK, index: (4 * clock + at) as u16, data });
        }
    }
    Ok(())
}

/// The 65 bits m and the shift l of a divisor, such that every n of 64 bits has the quotient n * m >> (64 + l); `None`
/// for the divisor 0 and those above 2^63.
fn reciprocal(divisor: u64) -> Option<(u128, u32)> {
    let shift = divisor.checked_sub(1)?.checked_ilog2().map_or(0, |log| log + 1);
    (shift < 64).then_some(())?;
    Some(((1_u128 << (64 + shift)) / u128::from(divisor) + 1, shift))
}

/// The sources of the header vector, the bits of fields of user-defined headers, and the words written to fields.
fn words(image: &Image, graph: &Graph, writes: &mut Vec<ConfigWrite>) -> Result<(), VectorError> {
    let sources = reach::placed_sources(image, graph)?;
    let mut targets = [0; SOURCES.len()];
    let mut slots = [None; USER_SLOTS];
    for (number, (&word, &source)) in image.words.iter().zip(&sources).enumerate() {
        let select = reach()[number / 2].iter().position(|known| u32::from(*known) == source).unwrap_or(0);
        writes.push(ConfigWrite { unit: UNIT_WORD, index: number as u16, data: select as u32 });
        let Word::Field { field, index } = word else { continue };
        if field.is_writable() {
            targets[source as usize] = IS_TARGET | number as u32;
        }
        if let Some((header, slice)) = user_slice(word) {
            slots[(source - FIRST_SLOT) as usize] = Some(slot(graph, field, header, slice, index)?);
        }
    }
    for number in 0..image.parameters.words as u16 {
        if usize::from(number) >= image.words.len() {
            writes.push(ConfigWrite { unit: UNIT_WORD, index: number, data: CONSTANT });
        }
        let initial = image.initial_metadata.iter().find(|(word, _)| u16::from(*word) == number);
        let data = initial.map_or(0, |(_, value)| *value);
        writes.push(ConfigWrite { unit: UNIT_WORD, index: CONSTANTS + number, data });
    }
    let owners = owners(&slots);
    let slots = slots.map(|slot| slot.map_or(0, Slot::data));
    for (unit, words) in [(UNIT_SLOT, &slots[..]), (UNIT_TARGET, &targets[..]), (UNIT_OWNER, &owners[..])] {
        let indexed = words.iter().enumerate();
        writes.extend(indexed.map(|(index, &data)| ConfigWrite { unit, index: index as u16, data }));
    }
    Ok(())
}

/// The bits of a field of a user-defined header.
fn user_slice(word: Word) -> Option<(usize, Slice)> {
    let Word::Field { field, .. } = word else { return None };
    match field.source() {
        Source::Header(header, slice) => Some((header.user_index()?, slice)),
        _ => None,
    }
}

/// Bits of a user-defined header that a word of the header vector holds.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The number of the header.
    header: usize,
    /// 1 to 32.
    width_bits: u32,
    /// The number of bits after them in the first [`USER_BYTES`] bytes of the header.
    shift_bits: u32,
}

/// The place of word number `index` of a field in the first bytes of its header.
fn slot(graph: &Graph, field: FieldId, header: usize, slice: Slice, index: u8) -> Result<Slot, VectorError> {
    let end = usize::from(slice.offset_bits) + usize::from(slice.width_bits);
    if end > 8 * USER_BYTES || header >= USER_HEADERS {
        let field = graph.field_name(field).into_owned();
        return Err(VectorError::FieldEnd { field, found_bits: end, limit_bits: 8 * USER_BYTES });
    }
    let low = 32 * u32::from(index);
    let width_bits = (u32::from(slice.width_bits) - low).min(32);
    Ok(Slot { header, width_bits, shift_bits: (8 * USER_BYTES - end) as u32 + low })
}

impl Slot {
    /// Its configuration word.
    fn data(self) -> u32 {
        (self.header as u32) << 13 | (self.width_bits - 1) << 8 | self.shift_bits
    }
}

/// By byte and user-defined header, the slots that own the bits of the byte, the lowest bit first: 4 bits for each.
fn owners(slots: &[Option<Slot>; USER_SLOTS]) -> [u32; USER_BYTES * USER_HEADERS] {
    const IS_OWNED: u32 = 8;
    let mut owners = [0; USER_BYTES * USER_HEADERS];
    for (number, slot) in slots.iter().enumerate() {
        let Some(Slot { header, width_bits, shift_bits }) = *slot else { continue };
        for bit in shift_bits..shift_bits + width_bits {
            let byte = USER_BYTES - 1 - bit as usize / 8;
            owners[USER_HEADERS * byte + header] |= (IS_OWNED | number as u32) << (4 * (bit % 8));
        }
    }
    owners
}

/// The name of a word in messages.
fn word_name(graph: &Graph, word: Word) -> String {
    match word.storage() {
        Some(field) => graph.field_name(field).into_owned(),
        None => format!("{word:?}"),
    }
}

/// The name of a source in the package of the parse block.
#[cfg(test)]
fn type_name(name: &str) -> String {
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    parts.map(|part| part[..1].to_uppercase() + &part[1..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{Place, words_of};

    #[test]
    fn sources_are_all_words_of_parsed_headers() {
        let mut expected = vec![Word::Ports, Word::NextSequence, Word::Clock(0), Word::Clock(1)];
        for field in FieldId::all().filter(|field| field.headers().iter().all(|header| PARSED & header.bit() != 0)) {
            if field.name().starts_with("inner.") {
                continue;
            }
            let place = Place::of(field);
            match place.is_whole(field) {
                true if place.storage == field => {
                    expected.extend((0..words_of(field.width_bits())).map(|index| Word::Field { field, index }));
                }
                true => {}
                false => expected.push(Word::View(field)),
            }
        }
        let mut found: Vec<Word> = source_words().iter().flatten().copied().collect();
        assert_eq!(SOURCES.len() - found.len(), 1 + USER_SLOTS, "a name is not in the catalogue");
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn sources_are_in_the_order_of_the_package() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hdl/overlay/fl_parse_pkg.sv");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let start = text.find("logic [6:0] {").map_or(0, |at| at + 13);
        let end = text.find("} source_e").unwrap_or(start);
        let found: Vec<&str> = text[start..end].split(',').map(str::trim).collect();
        assert_eq!(found, SOURCES.iter().map(|name| type_name(name)).collect::<Vec<_>>());
    }

    #[test]
    fn reciprocals_divide() {
        for divisor in [1, 2, 3, 7, 1000, 1 << 20, 1_000_000_007, (1 << 63) - 1, 1 << 63] {
            let (m, l) = reciprocal(divisor).unwrap_or_default();
            assert!(m >> 65 == 0 && l < 65, "{divisor}");
            for n in [0, 1, divisor - 1, divisor, divisor.wrapping_mul(5), u64::MAX - 1, u64::MAX] {
                // n * m as 64 + 65 bits.
                let low = u128::from(n) * (m & u128::from(u64::MAX));
                let high = u128::from(n) * (m >> 64) + (low >> 64);
                assert_eq!((high >> l) as u64, n / divisor, "{n} / {divisor}");
            }
        }
        assert_eq!((reciprocal(0), reciprocal((1 << 63) + 1)), (None, None));
    }
}
