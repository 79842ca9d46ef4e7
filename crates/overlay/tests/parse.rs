// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parse block against the reference parser.

use flowloom_overlay::image::Image;
use flowloom_overlay::vector::{PARSED, SOURCES, UNIT_WORD, USER_BYTES, encode_vector, place, reach, source_words};
use flowloom_overlay::{ConfigWrite, Parameters, Word};
use flowloom_wire::field::Source;
use flowloom_wire::{Graph, Header, Layers};

use crate::common::{Bench, Fault, Inputs, build, design};
use crate::packets::{captured, graphs, random};

/// The files of the parse block.
const BLOCKS: [&str; 11] = [
    "overlay/fl_config_pkg",
    "overlay/fl_parse_pkg",
    "overlay/fl_config_word",
    "overlay/fl_window_words",
    "overlay/fl_parse_link",
    "overlay/fl_parse_ip",
    "overlay/fl_parse_extension",
    "overlay/fl_parse_transport",
    "overlay/fl_parse_user",
    "overlay/fl_parse_fields",
    "overlay/fl_clock_units",
];
const TOP: &str = "overlay/fl_header_parser";
const CLOCKS_NS: [[u64; 2]; 2] = [[1000, 1 << 20], [7, 1_000_000_007]];

/// An image with these words of the header vector.
pub(crate) fn image(words: Vec<Word>, clocks_ns: &[u64]) -> Image {
    Image {
        function: "test".to_owned(),
        parameters: Parameters::DUAL_STACK,
        clocks_ns: clocks_ns.to_vec(),
        words,
        initial_metadata: Vec::new(),
        presence: Vec::new(),
        stages: Vec::new(),
        entry: 0,
    }
}

/// Words of user-defined headers: all words of fields that the parser keeps, from both headers, at most 8.
pub(crate) fn user_words(graph: &Graph) -> Vec<Word> {
    let mut words = Vec::new();
    for (header, limit) in [(Header::User0, 5), (Header::User1, 8)] {
        for (field, user) in graph.user_fields(header) {
            let end = match field.source() {
                Source::Header(_, slice) => usize::from(slice.offset_bits) + usize::from(slice.width_bits),
                _ => 0,
            };
            let count = user.width_bits.div_ceil(32);
            if end <= 8 * USER_BYTES && words.len() + usize::from(count) <= limit {
                words.extend((0..count).map(|index| Word::Field { field, index }));
            }
        }
    }
    words
}

/// The source of each word of a placed image that holds a field of a user-defined header.
fn slots(image: &Image, writes: &[ConfigWrite]) -> Vec<(usize, Word)> {
    let is_user = |word: &Word| word.storage().is_some_and(|field| field.name().starts_with("user"));
    let words = writes.iter().filter(|write| write.unit == UNIT_WORD && usize::from(write.index) < image.words.len());
    let sources = words.map(|write| reach()[usize::from(write.index) / 2][write.data as usize].into());
    sources.zip(image.words.iter().copied()).filter(|(_, word)| is_user(word)).collect()
}

/// True if the packet has a transport header in the window, or no header beyond it, so that it must not be slow.
fn must_be_fast(graph: &Graph, layers: &Layers, len: usize, window: usize) -> bool {
    let transport = [Header::Tcp, Header::Udp, Header::Icmp, Header::Icmp6].into_iter().find(|&h| layers.has(h));
    let near = |header: Header| {
        layers.offset(header).is_none_or(|at| at + usize::from(graph.min_bytes(header).unwrap()).min(32) <= window)
    };
    let users = graph.user_headers().is_empty() || layers.has(Header::User0) || layers.has(Header::User1);
    len <= window || transport.is_some_and(|header| near(header) && users && near(Header::User0) && near(Header::User1))
}

pub(crate) struct Counts {
    pub(crate) packets: usize,
    pub(crate) slow: usize,
    pub(crate) user: usize,
}

pub(crate) fn parses_as_the_reference(
    test: &str,
    window: usize,
    count: usize,
    fault: Option<&Fault>,
) -> Option<Counts> {
    let blocks: Vec<&str> = BLOCKS.into_iter().chain([TOP]).collect();
    let design = design(&blocks, fault).parameter("WindowBytes", window).parameter("SidebandBits", 32);
    let model = build(test, &design)?;
    let mut sets = random(count);
    if fault.is_none() {
        sets.extend(captured(test, count));
    }
    let mut counts = Counts { packets: 0, slow: 0, user: 0 };
    for (number, graph) in graphs().iter().enumerate() {
        let mut bench = Bench::new(&model, TOP, &["fields_o", "valid_o", "slow_o", "bank_o", "sideband_o"]);
        let own = place(&image(user_words(graph), &CLOCKS_NS[0]), graph).unwrap();
        let writes = encode_vector(&own, graph).unwrap();
        let slots = slots(&own, &writes);
        bench.configure(0, &writes);
        // The other bank has other units, and no user headers.
        let other = encode_vector(&image(Vec::new(), &CLOCKS_NS[1]), Graph::standard()).unwrap();
        bench.configure(1, &other);
        for set in &sets {
            let time = |at: usize| match at % 5 {
                0 => u64::MAX - at as u64,
                _ => (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (at % 61),
            };
            let bank = |at: usize| at.is_multiple_of(7);
            let inputs: Vec<Inputs> = set
                .packets
                .iter()
                .enumerate()
                .map(|(at, packet)| {
                    vec![
                        ("window_i", packet[..packet.len().min(window)].to_vec()),
                        ("length_i", (packet.len() as u16).to_le_bytes().to_vec()),
                        ("port_i", (at as u32 ^ 0x8000_0001).to_le_bytes().to_vec()),
                        ("time_i", time(at).to_le_bytes().to_vec()),
                        ("bank_i", vec![u8::from(bank(at))]),
                        ("sideband_i", (at as u32).to_le_bytes().to_vec()),
                    ]
                })
                .collect();
            let mut slow = 0;
            bench.run(&inputs, |at, outputs| {
                let packet = &set.packets[at];
                let name = || format!("graph {number}, `{}` {at}: {packet:02x?}", set.name);
                let used = if bank(at) { Graph::standard() } else { graph };
                let layers = Layers::parse(used, packet);
                assert_eq!(outputs.get("sideband_o"), at as u64, "{}", name());
                assert_eq!(outputs.get("bank_o"), u64::from(bank(at)), "{}", name());
                if outputs.get("slow_o") == 1 {
                    assert!(!must_be_fast(used, &layers, packet.len(), window), "slow: {}", name());
                    assert_eq!(outputs.get("valid_o"), 0, "{}", name());
                    slow += 1;
                    return;
                }
                assert_eq!(outputs.get("valid_o") as u32, layers.valid() & PARSED, "valid: {}", name());
                counts.user += usize::from(layers.has(Header::User0) || layers.has(Header::User1));
                let units = CLOCKS_NS[usize::from(bank(at))];
                let clocks = units.map(|unit| (time(at) / unit) as u32);
                for (source, word) in source_words().iter().enumerate() {
                    let Some(word) = word else { continue };
                    let expected = word.extract(packet, &layers, at as u32 ^ 0x8000_0001, &clocks);
                    let found = outputs.word("fields_o", source);
                    assert_eq!(found, expected, "`{}`: {}", SOURCES[source], name());
                }
                for (source, word) in slots.iter().filter(|_| !bank(at)) {
                    let expected = word.extract(packet, &layers, 0, &clocks);
                    assert_eq!(outputs.word("fields_o", *source), expected, "source {source}: {}", name());
                }
            });
            if fault.is_none() {
                println!("graph {number}: {}: {} packets, {slow} slow", set.name, set.packets.len());
            }
            counts.packets += set.packets.len();
            counts.slow += slow;
        }
    }
    Some(counts)
}

#[test]
fn a_window_of_128_bytes() {
    let test = "a_window_of_128_bytes";
    let Some(counts) = parses_as_the_reference(test, 128, 5000, None) else { return };
    println!("{} packets, {} slow, {} with a user header", counts.packets, counts.slow, counts.user);
    assert!(counts.user > 1000 && counts.slow > 100 && counts.slow < counts.packets / 5);
}
