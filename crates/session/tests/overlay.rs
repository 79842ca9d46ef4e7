// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The FlowBlaze machine against the reference machine: its software model on packets of functions and captures, its
//! elements in simulation against the software model.

pub(crate) mod elements;
pub(crate) mod machine;

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::model::{Function, Policy, Span};
use flowloom_overlay::{Overlay, Parameters, compile};
use flowloom_session::engines::compile_for_smallest;
use flowloom_testkit::Rng;
use flowloom_verify::{Arrival, CompareOptions, ShrinkOptions, compare, shrink, sweep_period};

use crate::verified::random::{self, Reach};
use crate::verified::shipped;

/// The packets of a test.
const QUICK_PACKETS: usize = 10_000;
/// Functions that no machine runs: they send packets of their own, or compute with more than one operation.
pub(crate) const REFUSED: [&str; 2] = ["conntrack", "gtpu_offload"];

/// The reference machine and the software model of a function; `None` if no machine runs it.
pub(crate) fn engines(function: &Arc<Function>) -> Option<(Machine, Overlay)> {
    let compilation = compile_for_smallest(function);
    compilation.fits().then(|| {
        let overlay = Overlay::new(Arc::clone(function), Arc::new(compilation.image));
        (Machine::new(Arc::clone(function)), overlay)
    })
}

/// Compares both on packets, from empty tables on.
pub(crate) fn is_equal(function: &Arc<Function>, engines: &mut (Machine, Overlay), packets: &[Arrival], of: &str) {
    let (machine, overlay) = engines;
    let options = CompareOptions { sweep_ns: sweep_period(function), ..CompareOptions::default() };
    let report = compare(machine, overlay, packets, &options).unwrap();
    let Some(disagreement) = report.disagreement else { return };
    let shrunk = shrink(machine, overlay, packets, &options, &ShrinkOptions::default(), &mut |_| ()).unwrap();
    let line = |p: &Arrival| format!("{} ns, port {}: {:02x?}\n", p.time_ns, p.port, p.bytes);
    let smallest: String = shrunk.iter().flat_map(|shrunk| &shrunk.packets).map(line).collect();
    panic!("{} on {of}: {disagreement}\n{smallest}", function.name);
}

#[test]
fn the_model_is_equal_to_the_machine() {
    let seed = Rng::from_env(1).next_u64();
    for name in ["policer", "dynamic_nat", "conntrack_paper"] {
        let function = shipped::function(name, &[]);
        let mut engines = engines(&function).unwrap_or_else(|| panic!("no machine runs {name}"));
        let packets = shipped::made(&function, seed, QUICK_PACKETS);
        is_equal(&function, &mut engines, &packets, "its own packets");
    }
}

/// A machine that is larger than any function, so that only what no machine does is refused.
const ROOMY: Parameters = Parameters {
    name: "roomy",
    elements: 12,
    registers: 16,
    conditions: 32,
    metadata_bits: 2048,
    globals: 16,
    alus: 32,
    queue_depth: 20,
    queues: 1,
    key_bits: 512,
    rows: 4096,
    contexts: 4096,
    words: 64,
    match_words: 32,
    writes: 32,
    steps: 32,
};

/// A random function without what no machine does: rows that are refused, timers with successors, and contexts that are
/// evicted by their age.
fn simplified(function: &Function) -> Function {
    let mut function = function.clone();
    for stateful in function.elements.iter_mut().filter_map(|element| element.stateful.as_mut()) {
        stateful.size = stateful.size.min(ROOMY.max_size());
        stateful.successors.fill(None);
        if stateful.policy == Policy::EvictOldest {
            stateful.policy = Policy::Reject;
        }
    }
    let problems = compile(&function, &ROOMY).problems;
    for element in &mut function.elements {
        let is_refused =
            |span: Span| problems.iter().any(|problem| (span.start..span.end).contains(&problem.span.start));
        element.rows.retain(|row| !is_refused(row.span));
    }
    function
}

/// Runs random functions of a range on their own packets; returns how many of them the machine runs.
pub(crate) fn random_functions(seed: u64, numbers: std::ops::Range<u64>, packets: usize) -> usize {
    let mut run = 0;
    for number in numbers {
        let reach = [Reach::Plain, Reach::Common, Reach::Software][number as usize % 3];
        let function = Arc::new(simplified(&random::function(reach, seed, number)));
        let compilation = compile(&function, &ROOMY);
        if compilation.fits() && function.elements.iter().any(|element| !element.rows.is_empty()) {
            let overlay = Overlay::new(Arc::clone(&function), Arc::new(compilation.image));
            let mut engines = (Machine::new(Arc::clone(&function)), overlay);
            let own = shipped::made(&function, seed ^ number, packets);
            is_equal(&function, &mut engines, &own, &format!("packets of function {number}, seed {seed}"));
            run += 1;
        }
    }
    run
}

#[test]
fn random_functions_are_equal() {
    let seed = Rng::from_env(1).next_u64();
    let count = random::count(400);
    let run = random_functions(seed, 0..count, random::packets(300));
    println!("{run} of {count} functions");
    assert!(run * 20 > count as usize, "{run} of {count} functions fit");
}

/// The machine evicts one of the contexts in the places of a key, and the reference machine follows.
#[test]
fn evictions_of_the_model_are_followed() {
    let seed = Rng::from_env(1).next_u64();
    for policy in ["lowest", "highest"] {
        let text = format!(
            "function counts;\nstateful hosts {{\n    key ip.src, l4.sport;\n    size 20;\n    \
             full evict {policy} packets;\n    states seen;\n    reg name: u16;\n    reg packets: u32;\n    \
             on seen stay {{ packets += 1; name = l4.sport; pass; }}\n}}\n"
        );
        let function = shipped::compiled("counts.efsm", &text, &[]);
        let mut engines = engines(&function).unwrap();
        // Few places, so that each has an entry, and the least of all is rarely among those of a key.
        let small = Parameters { contexts: 24, ..Parameters::PAPER };
        engines.1 = Overlay::new(Arc::clone(&function), Arc::new(compile(&function, &small).image));
        is_equal(&function, &mut engines, &shipped::made(&function, seed, QUICK_PACKETS), policy);
        assert!(engines.0.coverage().elements[0].evicted > 1000, "{policy}: few evictions");
    }
}

#[test]
fn functions_that_no_machine_runs_say_why() {
    for name in REFUSED {
        let compilation = compile_for_smallest(&shipped::function(name, &[]));
        assert!(!compilation.problems.is_empty(), "{name}");
    }
}
