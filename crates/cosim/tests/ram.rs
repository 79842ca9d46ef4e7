// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block RAMs against an array.

use flowloom_cosim::{Design, Model};
use flowloom_random::{Draw, SplitMix64};

use crate::common::{block, block_path, build, stated_latency};

#[test]
fn a_read_returns_the_word_before_a_write_in_its_cycle() {
    let Some(model) = build("a_read_returns_the_word_before_a_write_in_its_cycle", &sized(block("prim/fl_ram"))) else {
        return;
    };
    compare(&model, "prim/fl_ram", false);
}

#[test]
fn a_forwarded_read_returns_the_word_of_a_write_in_its_cycle() {
    let files = ["prim/fl_ram_dual", "prim/fl_ram_forward"].map(block_path);
    let design = sized(Design::new("fl_ram_forward", &[&files[0], &files[1]]));
    let Some(model) = build("a_forwarded_read_returns_the_word_of_a_write_in_its_cycle", &design) else { return };
    compare(&model, "prim/fl_ram_forward", true);
}

fn sized(design: Design) -> Design {
    design.parameter("Width", 70).parameter("Depth", 12)
}

/// Compares a RAM with one port to read and one to write with an array; `forwards`: reads see the write of their cycle.
fn compare(model: &Model, name: &str, forwards: bool) {
    let input = |name| model.input(name).unwrap();
    let (write, address, data, read) =
        (input("write_i"), input("write_address_i"), input("write_data_i"), input("read_address_i"));
    let out = model.output("read_data_o").unwrap();
    let (mut rng, mut words, mut expected) = (SplitMix64::new(1), [None; 12], Vec::new());
    let mut inputs = vec![0; 5000 * model.input_bytes()];
    for cycle in inputs.chunks_mut(model.input_bytes()) {
        let (to, from, word) = (rng.below(12), rng.below(12), rng.next_u64());
        write.set(cycle, word & 1);
        address.set(cycle, to);
        data.set(cycle, word);
        read.set(cycle, from);
        let before = words[from as usize];
        if word & 1 == 1 {
            words[to as usize] = Some(word);
        }
        expected.push(if forwards { words[from as usize] } else { before });
    }
    let outputs = model.start(1).unwrap().run(&inputs).unwrap();
    let read = outputs.chunks(model.output_bytes()).skip(stated_latency(name));
    let compared = read.zip(&expected).filter_map(|(cycle, word)| word.map(|word| assert_eq!(out.get(cycle), word)));
    assert!(compared.count() > 4900);
}

#[test]
fn both_ports_read_the_word_before_a_write() {
    let design = block("prim/fl_ram_dual").parameter("Width", 40).parameter("Depth", 12);
    let Some(model) = build("both_ports_read_the_word_before_a_write", &design) else { return };
    let input = |name| model.input(name).unwrap();
    let (a_address, b_address, write, data) =
        (input("a_address_i"), input("b_address_i"), input("b_write_i"), input("b_data_i"));
    let (a_data, b_data) = (model.output("a_data_o").unwrap(), model.output("b_data_o").unwrap());
    let (mut rng, mut words, mut expected) = (SplitMix64::new(1), [None; 12], Vec::new());
    let mut inputs = vec![0; 5000 * model.input_bytes()];
    for cycle in inputs.chunks_mut(model.input_bytes()) {
        let (a, b, word) = (rng.below(12), rng.below(12), rng.next_u64() >> 24);
        a_address.set(cycle, a);
        b_address.set(cycle, b);
        write.set(cycle, word & 1);
        data.set(cycle, word);
        expected.push((words[a as usize], words[b as usize].filter(|_| word & 1 == 0)));
        if word & 1 == 1 {
            words[b as usize] = Some(word);
        }
    }
    let outputs = model.start(1).unwrap().run(&inputs).unwrap();
    let mut compared = [0, 0];
    for (cycle, &(a, b)) in outputs.chunks(model.output_bytes()).skip(stated_latency("prim/fl_ram_dual")).zip(&expected)
    {
        for (at, (port, word)) in [(&a_data, a), (&b_data, b)].into_iter().enumerate() {
            if let Some(word) = word {
                assert_eq!(port.get(cycle), word);
                compared[at] += 1;
            }
        }
    }
    assert!(compared[0] > 4900 && compared[1] > 2300, "{compared:?}");
}
