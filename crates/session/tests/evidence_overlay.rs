// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long proofs about the FlowBlaze machine. Start with `make evidence`.

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_engine::Datapath;
use flowloom_overlay::rtl::{self, File};
use flowloom_session::engines::compile_for_smallest;
use flowloom_testkit::is_selected;
use flowloom_verify::Reached;

use crate::adversarial;
use crate::overlay::elements::{self, LARGE, SIZE, SMALL, image_of};
use crate::overlay::{REFUSED, engines, is_equal, machine, random_functions};
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
                let reason = compile_for_smallest(function).refusals(function).first().map(ToString::to_string);
                println!("{:26} refused: {}", subject.name, reason.unwrap_or_default());
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
        // Cases of the corpus may need more than any machine has, a function more with some of its parameters.
        let is_shipped = adversarial::names().iter().any(|path| path.ends_with(&format!("/{}", subject.name)));
        let may_be_refused = !is_shipped || REFUSED.contains(&subject.name.as_str());
        assert!(has_run || may_be_refused, "no machine runs {}", subject.name);
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

/// The FlowBlaze machine in simulation, programmed through its registers, gives the reference machine's packets, verdicts
/// and contexts: every shipped function that fits the paper's parameters, on 100,000 packets of its own.
#[test]
#[ignore = "minutes"]
fn evidence_overlay_machine() {
    assert!(machines("paper") >= 7, "few functions fit the paper's parameters");
}

/// The same of the functions that need the larger parameters, those for IPv4 and IPv6 alike.
#[test]
#[ignore = "minutes"]
fn evidence_overlay_machine_dual() {
    assert!(machines("dual_stack") >= 9, "few functions fit the larger parameters");
}

/// Runs the functions whose smallest parameters are these; returns their number.
fn machines(parameters: &str) -> usize {
    let mut functions = 0;
    for path in adversarial::names() {
        let (folder, file) = path.split_once('/').unwrap();
        let name = if folder == file { folder.to_owned() } else { path.clone() };
        match machine::parameters_of(&name) {
            Ok(found) if found == parameters && is_selected(&name) => {
                let Some(packets) = machine::run("evidence_overlay_machine", &name, PACKETS) else { return 0 };
                println!("{name:44} {packets} packets");
                functions += 1;
            }
            Ok(_) => {}
            Err(reason) => println!("{name:44} refused: {reason}"),
        }
    }
    functions
}

/// A fault of the machine: its name, the module, a text and its replacement.
const FAULTS: [(&str, &str, &str, &str); 6] = [
    (
        "the scheduler forgets a key",
        "fl_flow_scheduler",
        "for (int unsigned age = 1; age < Hold; age++) begin\n        conflict",
        "for (int unsigned age = 2; age < Hold; age++) begin\n        conflict",
    ),
    (
        "the sweep is one tick early",
        "fl_context_engine",
        "(idle_deadline <= now && idle_deadline != '1)",
        "(idle_deadline <= now + 64'd1 && idle_deadline != '1)",
    ),
    (
        "a context expires one tick late",
        "fl_efsm_element",
        "(found_context.idle_deadline <= at && ",
        "(found_context.idle_deadline < at && ",
    ),
    (
        "two columns of conditions are swapped",
        "fl_efsm_match",
        "presence_i, holds, state}",
        "presence_i, holds[Conditions-1:2], holds[0], holds[1], state}",
    ),
    (
        "an ALU reads a new value",
        "fl_efsm_act",
        ".left_i     (left),",
        ".left_i     ((number > 0 && instruction.alus[0].kind == 2'd1 && instruction.alus[number].left\n            \
         == OperandBits'(Words) + OperandBits'(instruction.alus[0].index)) ? results[0] : left),",
    ),
    (
        "a write-back takes the place of the packet before",
        "fl_context_table",
        "target_banks     = evict_i && !has_place ? 4'(1) << victim_i\n        : has_place ? place_q[Last].banks : first_free;",
        "target_banks     = evict_i && !has_place ? 4'(1) << victim_i\n        : has_place ? place_q[Last-1].banks : first_free;",
    ),
];

/// Faults planted in the machine in SystemVerilog are found by packets of few flows without a cycle between them, and by
/// contexts at the edges of their timers. Prints how each one shows.
#[test]
#[ignore = "minutes"]
fn evidence_overlay_machine_faults() {
    let files = rtl::files_of(rtl::MACHINE);
    machine::probe(&files, |_| ()).unwrap();
    for (name, module, text, replacement) in FAULTS.iter().filter(|(name, ..)| is_selected(name)) {
        let faulty: Vec<(&str, String)> = files
            .iter()
            .map(|file| {
                let is_faulty = file.module == *module;
                assert!(!is_faulty || file.text.contains(text), "`{text}` is not in {module}");
                (file.module, if is_faulty { file.text.replace(text, replacement) } else { file.text.to_owned() })
            })
            .collect();
        let faulty: Vec<File<'_>> = faulty.iter().map(|(module, text)| File { module, text }).collect();
        let found = machine::probe(&faulty, |_| ()).expect_err(name);
        let first: String = found.lines().next().unwrap_or_default().chars().take(160).collect();
        println!("{name}: {first}");
    }
}
