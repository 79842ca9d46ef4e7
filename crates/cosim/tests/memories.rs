// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which words of a memory have changed.

use std::collections::BTreeMap;

use flowloom_cosim::{Memories, Port};
use flowloom_random::{Draw, SplitMix64};

use crate::common::{block, build};

const DEPTH: usize = 3000;

/// Cycles that write each of these words, and one more.
fn writes(words: &BTreeMap<u64, u64>, input_bytes: usize, ports: [&Port; 3]) -> Vec<u8> {
    let mut inputs = vec![0; (words.len() + 1) * input_bytes];
    for (cycle, (address, data)) in inputs.chunks_mut(input_bytes).zip(words) {
        ports.iter().zip([1, *address, *data]).for_each(|(port, value)| port.set(cycle, value));
    }
    inputs
}

#[test]
fn words_that_have_changed_are_told_once() {
    let memories = Memories { module: "fl_ram".to_owned(), signal: "words_q".to_owned() };
    for width in [7, 32, 70] {
        let design = block("prim/fl_ram").parameter("Width", width).parameter("Depth", DEPTH);
        let test = "words_that_have_changed_are_told_once";
        let Some(model) = build(test, &design.with_memories(memories.clone())) else { return };
        let input = |name| model.input(name).unwrap();
        let (write, address, data) = (input("write_i"), input("write_address_i"), input("write_data_i"));
        let mut simulation = model.start(1).unwrap();
        let mut rng = SplitMix64::new(1);
        let mut contents = BTreeMap::new();
        let mut run = |words: &BTreeMap<u64, u64>| {
            simulation.run(&writes(words, model.input_bytes(), [&write, &address, &data])).unwrap();
            let mut found = simulation.changed_words().unwrap();
            let found = found.remove(0);
            assert_eq!((found.instance.as_str(), found.words), ("TOP.fl_ram", DEPTH as u32), "{width} bits");
            found.changed
        };
        // At random values first, and compared with zeros.
        assert!(run(&BTreeMap::new()).len() > DEPTH * 9 / 10, "{width} bits");
        assert_eq!(run(&BTreeMap::new()), [], "{width} bits");
        // All are known from here on.
        let zeros: BTreeMap<u64, u64> = (0..DEPTH as u64).map(|word| (word, 0)).collect();
        run(&zeros);
        contents.extend(zeros);
        for round in 0..20 {
            let mask = u64::MAX >> (64 - width.min(64));
            let mut word = || {
                (rng.below(DEPTH as u64), if round % 4 == 3 { 1 << (width.min(60) - 1) } else { rng.next_u64() & mask })
            };
            let words: BTreeMap<u64, u64> = (0..1 + 3 * round).map(|_| word()).collect();
            let expected: Vec<u32> =
                words.iter().filter(|(word, value)| contents[word] != **value).map(|(word, _)| *word as u32).collect();
            assert_eq!(run(&words), expected, "{width} bits, round {round}");
            contents.extend(words);
        }
    }
}

/// An array is cleared after a reset, whatever its memory held before.
#[test]
fn a_reset_clears_a_whole_array() {
    let memories = Memories { module: "fl_array".to_owned(), signal: "values_q".to_owned() };
    let design = block("table/fl_array").parameter("Entries", DEPTH).parameter("ValueBits", 40);
    let Some(model) = build("a_reset_clears_a_whole_array", &design.with_memories(memories)) else { return };
    let (reset, ready) = (model.input("rst_i").unwrap(), model.output("ready_o").unwrap());
    let mut simulation = model.start(1).unwrap();
    assert!(simulation.changed_words().unwrap()[0].changed.len() > DEPTH * 9 / 10);
    let mut inputs = vec![0; model.input_bytes()];
    reset.set(&mut inputs, 1);
    simulation.run(&inputs).unwrap();
    let outputs = simulation.run(&vec![0; (DEPTH + 10) * model.input_bytes()]).unwrap();
    let busy = outputs.chunks(model.output_bytes()).take_while(|outputs| ready.get(outputs) == 0).count();
    assert_eq!(busy, DEPTH);
    let changed = simulation.changed_words().unwrap().remove(0).changed;
    assert!(changed.len() > DEPTH * 9 / 10, "words that are zeros now, {} of them", changed.len());
    // Against a simulation that begins with zeros: none is left of what it held before.
    let mut simulation = model.start(2).unwrap();
    simulation.run(&inputs).unwrap();
    simulation.run(&vec![0; (DEPTH + 10) * model.input_bytes()]).unwrap();
    assert_eq!(simulation.changed_words().unwrap()[0].changed, []);
}
