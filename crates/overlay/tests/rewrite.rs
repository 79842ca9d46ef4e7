// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rewrite block against the reference: writes of random fields, and their checksums.

use flowloom_overlay::Word;
use flowloom_overlay::vector::{PARSED, USER_BYTES, encode_vector, place, source_words};
use flowloom_testkit::Rng;
use flowloom_wire::field::{FieldId, Source};
use flowloom_wire::{Graph, Header, Layers, rewrite};

use crate::common::{Bench, Fault, Inputs, build, design};
use crate::packets::{captured, graphs, random};
use crate::parse::{image, user_words};

const BLOCKS: [&str; 9] = [
    "overlay/fl_config_pkg",
    "overlay/fl_parse_pkg",
    "overlay/fl_reach_pkg",
    "overlay/fl_config_word",
    "overlay/fl_rewrite_targets",
    "overlay/fl_rewrite_headers",
    "overlay/fl_rewrite_checksum",
    "overlay/fl_place_words",
    "overlay/fl_header_rewriter",
];
const TOP: &str = BLOCKS[8];

/// A value of bits, the first one the lowest.
#[derive(Default)]
struct Bits {
    bits: Vec<bool>,
}

impl Bits {
    fn push(&mut self, value: u64, width: usize) {
        self.bits.extend((0..width).map(|bit| value >> bit & 1 == 1));
    }

    fn bytes(&self) -> Vec<u8> {
        self.bits
            .chunks(8)
            .map(|byte| byte.iter().enumerate().fold(0, |sum, (at, &bit)| sum | u8::from(bit) << at))
            .collect()
    }
}

/// The first user-defined header of a packet.
fn user_of(layers: &Layers) -> Option<Header> {
    [Header::User0, Header::User1].into_iter().find(|&header| layers.has(header))
}

fn transport_of(layers: &Layers) -> Option<Header> {
    [Header::Tcp, Header::Udp, Header::Icmp, Header::Icmp6].into_iter().find(|&header| layers.has(header))
}

fn ip_of(layers: &Layers) -> Option<Header> {
    [Header::Ipv4, Header::Ipv6].into_iter().find(|&header| layers.has(header))
}

/// The headers of a packet as `headers_t`, and their places.
fn headers(packet: &[u8], layers: &Layers) -> (Vec<u8>, Vec<u8>) {
    let at = |header: Option<Header>| header.and_then(|header| layers.offset(header));
    let word = |offset: Option<usize>, index: usize| -> u64 {
        let byte = |at: usize| u64::from(packet.get(at).copied().unwrap_or(0));
        offset.map_or(0xdead_beef, |offset| (0..4).fold(0, |word, i| word << 8 | byte(offset + 4 * index + i)))
    };
    let mut bits = Bits::default();
    let mut part = |header: Option<Header>, words: usize| {
        (0..words).for_each(|index| bits.push(word(at(header), index), 32));
    };
    part(user_of(layers), 8);
    part(transport_of(layers), 5);
    part(Some(Header::Ipv6Fragment), 2);
    part(ip_of(layers), 10);
    for header in [Header::Mpls, Header::Mpls2, Header::Mpls3, Header::Mpls4, Header::Vlan, Header::Vlan2] {
        part(Some(header), 1);
    }
    for index in (0..14).rev() {
        bits.push(packet.get(index).copied().unwrap_or(0).into(), 8);
    }
    // The packed structure has its first member in the upper bits, and its arrays from index 0 in the lowest ones.
    let mut places = Bits::default();
    for header in [user_of(layers), transport_of(layers), Some(Header::Ipv6Fragment), ip_of(layers)] {
        places.push(at(header).map_or(0, |at| (at as u64 - 14) / 4), 6);
    }
    (bits.bytes(), places.bytes())
}

/// True if all headers are within a window.
fn is_near(graph: &Graph, layers: &Layers, window: usize) -> bool {
    let near = |header: Header| {
        let min = graph.min_bytes(header).map_or(0, usize::from);
        let min = if header.user_index().is_some() { min.min(USER_BYTES) } else { min };
        layers.offset(header).is_none_or(|at| at + min <= window)
    };
    Header::ALL.into_iter().filter(|header| PARSED & header.bit() != 0).all(near)
}

/// Words to write: those of up to `count` fields.
fn words_to_write(rng: &mut Rng, graph: &Graph) -> Vec<Word> {
    let fields: Vec<FieldId> = source_words()
        .iter()
        .filter_map(|word| match word {
            Some(Word::Field { field, index: 0 }) if field.is_writable() => Some(*field),
            _ => None,
        })
        .collect();
    let mut words = user_words(graph);
    for _ in 0..100 {
        let field = *rng.pick(&fields);
        let count = field.width_bits().div_ceil(32);
        if words.len() + usize::from(count) <= 24 && !words.contains(&Word::Field { field, index: 0 }) {
            words.extend((0..count).map(|index| Word::Field { field, index }));
        }
    }
    words
}

/// A value that is often at the edge of one's complement arithmetic.
fn value(rng: &mut Rng, old: u32) -> u32 {
    match rng.below(6) {
        0 => 0,
        1 => u32::MAX,
        2 => old,
        3 => !old,
        _ => rng.next_u64() as u32,
    }
}

/// Counts of what was rewritten.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) packets: usize,
    pub(crate) changed: usize,
    pub(crate) udp_without: usize,
    pub(crate) zero_sent: usize,
}

pub(crate) fn rewrites_as_the_reference(
    test: &str,
    window: usize,
    count: usize,
    fault: Option<&Fault>,
) -> Option<Counts> {
    let design = design(&BLOCKS, fault).parameter("WindowBytes", window).parameter("SidebandBits", 32);
    let model = build(test, &design)?;
    let mut rng = Rng::from_env(5);
    let mut sets = random(count);
    if fault.is_none() {
        sets.extend(captured(test, count));
    }
    let mut counts = Counts::default();
    for (round, graph) in graphs().iter().cycle().take(9).enumerate() {
        let mut bench = Bench::new(&model, TOP, &["data_o", "mask_o", "sideband_o"]);
        let placed = (0..100).find_map(|_| place(&image(words_to_write(&mut rng, graph), &[]), graph).ok()).unwrap();
        bench.configure(0, &encode_vector(&image(Vec::new(), &[]), graph).unwrap());
        bench.configure(1, &encode_vector(&placed, graph).unwrap());
        for set in &sets {
            let mut expected = Vec::new();
            let mut inputs: Vec<Inputs> = Vec::new();
            for packet in &set.packets {
                let layers = Layers::parse(graph, packet);
                if !is_near(graph, &layers, window) {
                    continue;
                }
                let mut packet = packet.clone();
                damage_checksums(&mut rng, &mut packet, &layers);
                let mut words: [u32; 32] = std::array::from_fn(|_| rng.next_u64() as u32);
                let mut written = 0_u32;
                let mut writes: Vec<(FieldId, u128)> = Vec::new();
                for word in &placed.words {
                    let Word::Field { field, index: 0 } = *word else { continue };
                    if !rng.chance(1, 3) {
                        continue;
                    }
                    let parts = field.width_bits().div_ceil(32);
                    let old = layers.read(&packet, 0, field).unwrap_or(0);
                    let mut whole = 0;
                    for index in 0..parts {
                        let at = placed.words.iter().position(|w| *w == Word::Field { field, index }).unwrap();
                        words[at] = value(&mut rng, (old >> (32 * u32::from(index))) as u32);
                        whole |= u128::from(words[at]) << (32 * u32::from(index));
                        written |= 1 << at;
                    }
                    writes.push((field, whole));
                }
                if rng.chance(1, 3) {
                    carry_twice(&mut rng, &packet, &layers, &mut writes);
                    for &(field, whole) in &writes {
                        let word = Word::Field { field, index: 0 };
                        words[placed.words.iter().position(|w| *w == word).unwrap()] = whole as u32;
                    }
                }
                let bank = u8::from(!rng.chance(1, 16));
                let mut after = packet.clone();
                if bank == 1 {
                    rewrite(&mut after, &layers, &writes);
                }
                counts.changed += usize::from(after != packet);
                if let Some(at) = layers.offset(Header::Udp) {
                    counts.udp_without += usize::from(packet[at + 6..at + 8] == [0, 0]);
                    counts.zero_sent += usize::from(after[at + 6..at + 8] == [255, 255]);
                }
                let (headers, places) = headers(&packet, &layers);
                inputs.push(vec![
                    ("words_i", words.into_iter().flat_map(u32::to_le_bytes).collect()),
                    ("written_i", written.to_le_bytes().to_vec()),
                    ("valid_i", (layers.valid() & PARSED).to_le_bytes().to_vec()),
                    ("headers_i", headers),
                    ("places_i", places),
                    ("bank_i", vec![bank]),
                    ("sideband_i", (inputs.len() as u32).to_le_bytes().to_vec()),
                ]);
                expected.push((packet, after, writes, layers));
            }
            bench.run(&inputs, |at, outputs| {
                let (packet, after, writes, layers) = &expected[at];
                let (data, mask) = (outputs.bytes("data_o"), outputs.bytes("mask_o"));
                let mut found = packet.clone();
                for byte in 0..window {
                    if mask[byte / 8] >> (byte % 8) & 1 == 1 {
                        assert!(byte < packet.len(), "byte {byte} of {packet:02x?}");
                        found[byte] = data[byte];
                    }
                }
                let name = || format!("round {round}, `{}` {at}: {packet:02x?}, {writes:x?}, {layers:?}", set.name);
                assert_eq!(found, *after, "{}", name());
                assert_eq!(outputs.get("sideband_o"), at as u64);
            });
            counts.packets += inputs.len();
        }
    }
    Some(counts)
}

/// Changes a written field so that the new checksum is almost 0xffff: then the folded sum carries again.
fn carry_twice(rng: &mut Rng, packet: &[u8], layers: &Layers, writes: &mut [(FieldId, u128)]) {
    let mut after = packet.to_vec();
    rewrite(&mut after, layers, writes);
    let checksum = ["tcp.checksum", "udp.checksum", "icmp.checksum", "icmp6.checksum"]
        .iter()
        .find_map(|name| layers.read(&after, 0, FieldId::by_name(name)?));
    let field = |name: &str| FieldId::by_name(name).is_some_and(|field| layers.is_present(field));
    let names = ["l4.sport", "l4.dport", "tcp.window", "tcp.urgent", "icmpx.id", "icmpx.seq"];
    let Some(checksum) = checksum else { return };
    let covered = names.iter().filter(|name| field(name)).filter_map(|name| FieldId::by_name(name));
    for covered in covered {
        if let Some((_, value)) = writes.iter_mut().find(|(field, _)| *field == covered) {
            let wanted = 0xffff - rng.below(24) as u128;
            *value = ((*value & 0xffff) + checksum + 0xffff - wanted) % 0xffff;
            return;
        }
    }
}

/// Sets checksums to values at the edge of one's complement arithmetic, now and then.
fn damage_checksums(rng: &mut Rng, packet: &mut [u8], layers: &Layers) {
    for (header, offset) in
        [(Header::Ipv4, 10), (Header::Tcp, 16), (Header::Udp, 6), (Header::Icmp, 2), (Header::Icmp6, 2)]
    {
        let Some(at) = layers.offset(header) else { continue };
        if rng.chance(1, 4) {
            packet[at + offset..at + offset + 2].fill(if rng.chance(1, 2) { 0 } else { 0xff });
        }
    }
    // Fields of ones, whose complement is 0.
    for name in ["ip.src", "ip.dst", "l4.sport", "l4.dport", "ip.tos", "icmpx.id"] {
        let Some(field) = FieldId::by_name(name).and_then(|field| layers.resolve(field)) else { continue };
        if let Source::Header(header, slice) = field.source()
            && rng.chance(1, 6)
            && let Some(bytes) = layers.offset(header).and_then(|at| packet.get_mut(at..))
        {
            slice.write(bytes, if rng.chance(1, 2) { u128::MAX } else { 0 });
        }
    }
}

#[test]
fn fields_in_a_window_of_128_bytes() {
    let Some(counts) = rewrites_as_the_reference("fields_in_a_window_of_128_bytes", 128, 1000, None) else { return };
    let Counts { packets, changed, udp_without, zero_sent } = counts;
    println!("{packets} packets, {changed} changed, {udp_without} UDP without checksum, {zero_sent} with 0xffff");
    assert!(changed > packets / 2 && udp_without > 100 && zero_sent > 100);
}
