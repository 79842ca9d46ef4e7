// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FIFOs and skid buffer under random gaps and back-pressure, against a queue.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use flowloom_cosim::Design;
use flowloom_random::{Draw, SplitMix64};

use crate::common::{Bench, block, block_path, build, stated_latency};

const CYCLES: u32 = 4000;

/// Words leave in the order of their arrival, none is lost or doubled, and the oldest one stays at the output while it
/// is stalled. `is_prompt`: it is there in the cycle after its arrival. Returns the largest number of words inside.
fn words_keep_their_order(bench: &mut Bench, depth: usize, is_prompt: bool, seed: u64) -> usize {
    let mut rng = SplitMix64::new(seed);
    let (mut model, mut most, mut left) = (VecDeque::new(), 0, 0);
    let (mut word, mut offered) = (rng.next_u64() & 0xffff_ffff, false);
    let mut stalled = false;
    bench.reset();
    for cycle in 0..CYCLES {
        // Phases in which the source, then the sink, then neither is slow.
        let (busy, open) = [(4, 15), (15, 4), (16, 16), (8, 8)][cycle as usize / 64 % 4];
        offered |= rng.below(16) < busy;
        let ready = rng.below(16) < open;
        bench.set("in_valid_i", offered.into());
        bench.set("in_data_i", word);
        bench.set("out_ready_i", ready.into());
        bench.cycle();
        let valid = bench.get("out_valid_o") == 1;
        assert!(valid || !stalled, "seed {seed}, cycle {cycle}: a stalled word has left");
        assert!(
            if is_prompt { valid != model.is_empty() } else { !valid || !model.is_empty() },
            "seed {seed}, cycle {cycle}"
        );
        if valid {
            assert_eq!(bench.get("out_data_o"), model[0], "seed {seed}, cycle {cycle}");
        }
        stalled = valid && !ready;
        let accepted = offered && bench.get("in_ready_o") == 1;
        if ready && valid {
            model.pop_front();
            left += 1;
        }
        if accepted {
            model.push_back(word);
            (word, offered) = (rng.next_u64() & 0xffff_ffff, false);
        }
        assert!(model.len() <= depth, "seed {seed}, cycle {cycle}: {} words", model.len());
        most = most.max(model.len());
    }
    assert!(left > CYCLES / 4, "{left} words");
    most
}

/// Cycles from a word's arrival to its appearance, and words that leave in 64 cycles without gaps.
fn latency_and_throughput(bench: &mut Bench) -> (usize, u32) {
    bench.set("in_valid_i", 0);
    bench.reset();
    bench.set("in_valid_i", 1);
    bench.set("out_ready_i", 1);
    let (mut latency, mut words) = (None, 0);
    for cycle in 0..64 {
        bench.cycle();
        if bench.get("out_valid_o") == 1 {
            latency.get_or_insert(cycle);
            words += 1;
        }
    }
    (latency.unwrap(), words)
}

#[test]
fn a_fifo_is_a_queue() {
    for depth in [2, 5, 16] {
        let design = block("prim/fl_fifo").parameter("Width", 32).parameter("Depth", depth);
        let Some(model) = build("a_fifo_is_a_queue", &design) else { return };
        let mut bench = Bench::new(model, depth as u32);
        assert_eq!(words_keep_their_order(&mut bench, depth, true, depth as u64), depth);
        assert_eq!(latency_and_throughput(&mut bench), (stated_latency("prim/fl_fifo"), 63));
    }
}

#[test]
fn a_skid_buffer_holds_two_words() {
    let design = block("prim/fl_skid").parameter("Width", 32);
    let Some(model) = build("a_skid_buffer_holds_two_words", &design) else { return };
    let mut bench = Bench::new(model, 1);
    assert_eq!(words_keep_their_order(&mut bench, 2, true, 1), 2);
    assert_eq!(latency_and_throughput(&mut bench), (stated_latency("prim/fl_skid"), 63));
}

#[test]
fn a_fifo_in_block_ram_is_a_queue() {
    let files = ["prim/fl_ram", "prim/fl_fifo", "prim/fl_fifo_ram"].map(block_path);
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let design = Design::new("fl_fifo_ram", &files).parameter("Width", 32).parameter("Depth", 9);
    let Some(model) = build("a_fifo_in_block_ram_is_a_queue", &design) else { return };
    let mut bench = Bench::new(model, 1);
    assert_eq!(words_keep_their_order(&mut bench, 9 + 4, false, 1), 9 + 4);
    let latency = stated_latency("prim/fl_fifo_ram");
    assert_eq!(latency_and_throughput(&mut bench), (latency, 64 - latency as u32));
}
