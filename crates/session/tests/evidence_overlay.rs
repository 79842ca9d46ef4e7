// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long proofs about the FlowBlaze machine. Start with `make evidence`.

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_engine::Datapath;
use flowloom_testkit::is_selected;
use flowloom_verify::Reached;

use crate::adversarial;
use crate::overlay::elements::{self, LARGE, SIZE, SMALL, image_of};
use crate::overlay::{REFUSED, engines, is_equal, random_functions};
use crate::verified::{captures, random, shipped};

/// Packets of each function.
const PACKETS: usize = 100_000;
/// Packets of each capture.
const CAPTURED: usize = 20_000;
/// The functions that a machine runs, at least.
const MIN_FUNCTIONS: usize = 18;

/// The software model of the FlowBlaze machine gives the reference machine's outcomes and contexts: every shipped
/// function that a machine runs, with each of its parameter sets, on 100,000 packets of its own and up to 20,000 of
/// each capture of `FLOWLOOM_TRACES`. Prints the parameters of the machine, and the points that were not reached.
#[test]
#[ignore = "minutes"]
fn evidence_overlay_model() {
    const SEED: u64 = 1;
    println!("seed {SEED}");
    let captures = captures::some(CAPTURED);
    let mut run = 0;
    for subject in shipped::shipped().iter().filter(|subject| is_selected(&subject.name)) {
        let mut reached = Reached::new(&subject.variants[0].function);
        let mut has_run = false;
        for variant in &subject.variants {
            let function = &variant.function;
            let Some(mut engines) = engines(function) else {
                assert!(REFUSED.contains(&subject.name.as_str()), "no machine runs {}", subject.name);
                println!("{:26} refused", subject.name);
                continue;
            };
            let packets = shipped::made(function, SEED, PACKETS);
            is_equal(function, &mut engines, &packets, "its own packets");
            reached.add(&engines.0.coverage());
            for (name, packets) in &captures {
                let empty = Machine::new(Arc::clone(function)).snapshot().unwrap();
                engines.0.restore(&empty).unwrap();
                engines.1.restore(&empty).unwrap();
                is_equal(function, &mut engines, packets, name);
            }
            let (parameters, own) = (engines.1.image().parameters.name, packets.len());
            println!("{:26} {parameters:10} {own} packets, {} captures", subject.name, captures.len());
            has_run = true;
        }
        if has_run {
            run += 1;
            let gaps = subject.gaps(&reached, 1);
            let named = gaps.iter().map(|point| format!("{} line {}", point.element, point.line));
            println!("{:26} not reached: {} {}", "", gaps.len(), named.collect::<Vec<_>>().join(", "));
        }
    }
    assert!(run > 0, "no function was run");
}

/// Random functions, without the rows that no machine runs, give the reference machine's outcomes and contexts on a
/// large machine: 20,000 of them, of which about one in eleven is run, on 2,000 packets each. Prints their number.
#[test]
#[ignore = "minutes"]
fn evidence_overlay_random() {
    const SEED: u64 = 7;
    let count = random::count(20_000);
    let run = random_functions(SEED, 0..count, random::packets(2000));
    println!("seed {SEED}: {run} of {count} functions");
    assert!(run * 20 > count as usize, "{run} of {count} functions fit");
}

/// The elements of the FlowBlaze machine in simulation give the software model's header vectors and contexts: every
/// shipped function that a machine with small tables runs, on 100,000 packets of its own, without a cycle between
/// them, and as many of one flow and of two flows in turn. Prints the parameters.
#[test]
#[ignore = "minutes"]
fn evidence_overlay_elements() {
    let mut functions = 0;
    for path in adversarial::names() {
        // A function with several files is named by its folder and its file.
        let (folder, file) = path.split_once('/').unwrap();
        let name = if folder == file { folder.to_owned() } else { path.clone() };
        let sets = [&SMALL, &LARGE].into_iter();
        let fitting = sets.filter(|set| image_of(&name, set, SIZE).is_some()).min_by_key(|set| set.words);
        let Some(parameters) = fitting else {
            println!("{name:44} refused");
            continue;
        };
        let Some(packets) = elements::run("evidence_overlay_elements", &name, parameters, (PACKETS, PACKETS)) else {
            return;
        };
        println!("{name:44} {:10} {packets} packets", parameters.name);
        functions += 1;
    }
    assert!(functions >= MIN_FUNCTIONS, "{functions} functions, expected {MIN_FUNCTIONS}");
}
