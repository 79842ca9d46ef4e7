// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The header vector: words and presence bits of the shipped functions, and of random sets of words.

use std::sync::Arc;

use flowloom_overlay::image::Image;
use flowloom_overlay::vector::{PARSED, SOURCES, encode_vector, place, reach, source_words};
use flowloom_overlay::{Parameters, Word, compile};
use flowloom_testkit::Rng;
use flowloom_wire::{Graph, Layers};

use crate::common::{Bench, Fault, Inputs, build, design, top};
use crate::packets::random;
use crate::parse::image;

const BLOCKS: [&str; 5] = [
    "overlay/fl_config_pkg",
    "overlay/fl_parse_pkg",
    "overlay/fl_reach_pkg",
    "overlay/fl_config_word",
    "overlay/fl_header_vector",
];
const TOP: &str = BLOCKS[4];

/// Placed images: of the shipped functions that fit, and of random words with constants and presence bits.
fn images(rng: &mut Rng) -> Vec<(Image, Arc<Graph>)> {
    let mut images = Vec::new();
    for (path, text) in flowloom_testkit::sources(top().join("functions")) {
        let Ok((function, _)) = flowloom_efsm::compile(&path.to_string_lossy(), &text, &[]) else { continue };
        let compiled = compile(&function, &Parameters::DUAL_STACK);
        if compiled.fits() {
            images.push((place(&compiled.image, &function.graph).unwrap(), function.graph.clone()));
        }
    }
    let all: Vec<Word> = source_words().iter().flatten().copied().collect();
    while images.len() < 60 {
        let mut words: Vec<Word> = (0..24).map(|_| *rng.pick(&all)).collect();
        words.sort_unstable();
        words.dedup();
        let metadata = (0..4).map(|variable| Word::Metadata { variable, index: 0 });
        words.extend(metadata);
        let first = words.len() as u8 - 4;
        let mut image = image(words, &[1, 1]);
        image.initial_metadata = (0..4).map(|at| (first + at, rng.next_u64() as u32)).collect();
        image.presence = (0..15).map(|_| rng.next_u64() as u32 & PARSED).collect();
        if let Ok(image) = place(&image, Graph::standard()) {
            images.push((image, Arc::new(Graph::standard().clone())));
        }
    }
    images
}

pub(crate) fn words_are_those_of_the_image(test: &str, fault: Option<&Fault>) -> Option<usize> {
    let model = build(test, &design(&BLOCKS, fault).parameter("SidebandBits", 32))?;
    let mut rng = Rng::from_env(11);
    let images = images(&mut rng);
    let packets: Vec<Vec<u8>> = random(100).into_iter().flat_map(|set| set.packets).collect();
    let mut checked = 0;
    for pair in images.chunks(2) {
        let mut bench = Bench::new(&model, TOP, &["words_o", "presence_o", "bank_o", "sideband_o"]);
        for (bank, (image, graph)) in pair.iter().enumerate() {
            bench.configure(bank as u8, &encode_vector(image, graph).unwrap());
        }
        let bank = |at: usize| at % pair.len();
        let clocks = [0x1234_5678, 0x9abc_def0];
        let layers: Vec<Layers> =
            packets.iter().enumerate().map(|(at, packet)| Layers::parse(&pair[bank(at)].1, packet)).collect();
        let slot = |at: usize, slot: usize| (at as u32).wrapping_mul(0x9e37_79b9) ^ slot as u32;
        let inputs: Vec<Inputs> = packets
            .iter()
            .zip(&layers)
            .enumerate()
            .map(|(at, (packet, layers))| {
                let fields: Vec<u8> = source_words()
                    .iter()
                    .enumerate()
                    .map(|(source, word)| match word {
                        Some(word) => word.extract(packet, layers, at as u32, &clocks),
                        None => slot(at, source),
                    })
                    .flat_map(u32::to_le_bytes)
                    .collect();
                vec![
                    ("fields_i", fields),
                    ("valid_i", (layers.valid() & PARSED).to_le_bytes().to_vec()),
                    ("bank_i", vec![bank(at) as u8]),
                    ("sideband_i", (at as u32).to_le_bytes().to_vec()),
                ]
            })
            .collect();
        let writes: Vec<_> = pair.iter().map(|(image, graph)| encode_vector(image, graph).unwrap()).collect();
        bench.run(&inputs, |at, outputs| {
            let (image, _) = &pair[bank(at)];
            let layers = &layers[at];
            for (number, word) in image.words.iter().enumerate() {
                let initial = image.initial_metadata.iter().find(|(word, _)| usize::from(*word) == number);
                let is_user = word.storage().is_some_and(|field| field.name().starts_with("user"));
                let expected = match initial {
                    Some((_, value)) => *value,
                    None if is_user => {
                        let write = &writes[bank(at)].iter().find(|w| w.unit == 0xe3 && usize::from(w.index) == number);
                        let source = reach()[number / 2][write.unwrap().data as usize];
                        assert!(SOURCES[usize::from(source)].starts_with("slot"));
                        slot(at, source.into())
                    }
                    None => word.extract(&packets[at], layers, at as u32, &clocks),
                };
                assert_eq!(outputs.word("words_o", number), expected, "{}: word {number}, {word:?}", image.function);
            }
            let presence = image.presence.iter().enumerate();
            let presence =
                presence.fold(0, |bits, (bit, headers)| bits | u64::from(layers.valid() & headers != 0) << bit);
            assert_eq!(outputs.get("presence_o"), presence, "{}", image.function);
            assert_eq!((outputs.get("sideband_o"), outputs.get("bank_o")), (at as u64, bank(at) as u64));
            checked += image.words.len();
        });
    }
    Some(checked)
}

#[test]
fn words_of_shipped_and_random_functions() {
    if let Some(checked) = words_are_those_of_the_image("words_of_shipped_and_random_functions", None) {
        println!("{checked} words");
        assert!(checked > 100_000);
    }
}
