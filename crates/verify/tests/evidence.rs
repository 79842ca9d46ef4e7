// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The long tests; they print their figures. Run with `cargo test -p flowloom-verify --release --test all
//! evidence:: -- --ignored --nocapture`.
//!
//! `FLOWLOOM_SEED` and `FLOWLOOM_COUNT` set seed and size, `FLOWLOOM_PACKETS` the length of a trace,
//! `FLOWLOOM_FUNCTION` selects one function of the repository; `FLOWLOOM_TRACES` names the directory of real captures.
#![allow(clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use crate::common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use common::{captures, faulty, random, shipped};
use flowloom_testkit::skip;
use flowloom_verify::{Arrival, Hit, Operator, Reached, Stimulus, StimulusOptions, StorageClass, Tick, Timer, mutated};
use flowloom_wire::FieldId;

/// Every function of the repository on every real capture, with input port 1 or 2 by direction: the reference machine,
/// the interpreter and the kernel agree on every packet and on the final state; frames that the kernel cannot take are
/// counted. `reached` counts rows in states, timers and defaults.
#[test]
#[ignore = "minutes"]
fn evidence_captures() {
    if captures::paths().is_none() {
        return skip("evidence_captures", "`FLOWLOOM_TRACES` names no folder of captures");
    }
    let captures: Vec<_> =
        captures::all().into_iter().map(|(name, packets)| (name, captures::directed(packets))).collect();
    let kernel = random::is_kernel_there("evidence_captures");
    for (name, packets) in &captures {
        println!("{name}: {} packets", packets.len());
    }
    println!("\n{:26} {:>9} {:>9} {:>9} {:>8}  {:>8}", "function", "packets", "interp", "kernel", "refused", "reached");
    let mut lacks = String::new();
    for shipped in shipped::shipped() {
        let mut reached = Reached::new(&shipped.variants[0].function);
        let mut compared: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut subject = shipped::Subject::new(&shipped.variants[0], kernel);
        for (_, packets) in &captures {
            let came = subject.verify(packets, &mut reached);
            add(&mut compared, &came);
        }
        let points = reached.points();
        let hit = points.iter().filter(|point| point.hits > 0).count();
        let packets: usize = captures.iter().map(|(_, packets)| packets.len()).sum();
        let (interp, in_kernel) = (compared["interp"], compared.get("kernel"));
        assert_eq!(interp, (packets as u64, 0), "{}", shipped.name);
        let text = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        println!(
            "{:26} {packets:>9} {:>9} {:>9} {:>8}  {hit:>3}/{:<4}",
            shipped.name,
            interp.0,
            text(in_kernel.map(|k| k.0)),
            text(in_kernel.map(|k| k.1)),
            points.len()
        );
        lacks.extend(shipped.no_kernel().map(|reason| format!("{} not in the kernel: {reason}\n", shipped.name)));
    }
    print!("\n{lacks}");
}

fn add(sum: &mut BTreeMap<&'static str, (u64, u64)>, came: &shipped::Compared) {
    for &(engine, compared, refused) in came {
        let sum = sum.entry(engine).or_default();
        *sum = (sum.0 + compared, sum.1 + refused);
    }
}

/// Every function of the repository on traces generated for it: every row in every state, every timeout and every
/// default action is hit at least 100 times, except unreachable ones, which are listed with the reason; and the engines
/// agree.
#[test]
#[ignore = "minutes"]
fn evidence_coverage() {
    let kernel = random::is_kernel_there("evidence_coverage");
    let seed = random::seed(1);
    let rounds = random::count(60);
    let mut missing = Vec::new();
    for shipped in shipped::shipped() {
        let started = Instant::now();
        let mut reached = Reached::new(&shipped.variants[0].function);
        let mut compared: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut packets_run = 0;
        let mut subjects: Vec<_> =
            shipped.variants.iter().map(|variant| (variant, shipped::Subject::new(variant, kernel))).collect();
        // Traces of 50,000 packets until every point has its hits; at least two.
        for round in 0..rounds {
            for (variant, subject) in &mut subjects {
                let packets = shipped::made(&variant.function, seed + round, random::packets(50_000));
                packets_run += packets.len();
                add(&mut compared, &subject.verify(&packets, &mut reached));
            }
            if round >= 1 && shipped.gaps(&reached, 100).is_empty() {
                break;
            }
        }
        let params: Vec<&str> = shipped.variants.iter().map(|v| v.params.as_str()).filter(|p| !p.is_empty()).collect();
        let seconds = started.elapsed().as_secs();
        println!("{} [{}]: {packets_run} packets, {seconds} s", shipped.name, params.join(" | "));
        for (engine, (compared, refused)) in compared {
            println!("  {engine}: {compared} compared, {refused} refused");
        }
        if let Some(reason) = shipped.no_kernel() {
            println!("  kernel: - {reason}");
        }
        println!("{}{}", reached.render(), shipped.excuses(&reached));
        let gaps = shipped.gaps(&reached, 100);
        missing.extend(
            gaps.iter().map(|p| format!("{}: {} {} {:?} {}", shipped.name, p.element, p.what, p.state, p.hits)),
        );
    }
    assert!(missing.is_empty(), "below 100 hits: {missing:#?}");
}

/// Items that random functions must reach 1000 times: operators, relations, matches, variables, fields, timers, ticks.
fn expected() -> Vec<Hit> {
    let mut hits = vec![Hit::Now, Hit::State, Hit::IdleRearmed, Hit::Created, Hit::Removed, Hit::Rejected, Hit::Goto];
    hits.extend([Hit::Row, Hit::NoMatch, Hit::NoKey]);
    for width_bits in [32, 64] {
        hits.extend(Operator::ALL.map(|op| Hit::Operator(op, width_bits)));
        for relation in ["==", "!=", "<", "<=", ">", ">="] {
            hits.extend([false, true].map(|signed| Hit::Compare { relation, signed, width_bits }));
        }
    }
    for negated in [false, true] {
        hits.extend([Hit::Masked(negated), Hit::Range(negated), Hit::SameField(negated)]);
        hits.extend([8, 16, 32, 64].map(|serial_bits| Hit::Serial { after: negated, serial_bits }));
        for place in [StorageClass::Register, StorageClass::Global, StorageClass::Metadata] {
            hits.extend([8, 16, 32, 64].map(|bits| Hit::Variable(place, bits, negated)));
        }
    }
    for timer in [Timer::Idle, Timer::Hard] {
        hits.extend([Hit::TimerSet(timer), Hit::TimerExpired(timer)]);
        hits.extend([Tick::Before, Tick::At, Tick::After].map(|tick| Hit::Tick(timer, tick)));
    }
    hits.extend(["drop", "pass", "punt", "forward", "reply"].map(Hit::Terminal));
    // Generated segments inside tunnels have no options; `lowering/options.efsm` of the compiler's tests covers them.
    for field in FieldId::all().filter(|field| field.name() != "inner.tcp.opt.wscale") {
        hits.extend([Hit::FieldRead(field), Hit::KeyField(field)]);
        hits.extend(field.is_writable().then_some(Hit::FieldWritten(field)));
    }
    hits
}

/// 10,000 random functions with packets generated for them: the engines agree; at least half of the packets match a
/// row, and every operator, comparison, variable, field, timer and boundary tick is hit at least 1000 times, fields
/// inside tunnels at least 250 times. Fields of the fragment header of IPv6 are counted, but no number is required: the
/// generator makes such packets only by chance.
#[test]
#[ignore = "half an hour"]
fn evidence_random_functions() {
    let seed = random::seed(20_000);
    let count = random::count(10_000);
    let kernel = random::is_kernel_there("evidence_random_functions");
    // The functions are independent: two threads run one half each.
    let halves = [0..count / 2, count / 2..count];
    let mut tally = random::Tally::default();
    std::thread::scope(|scope| {
        let running = halves.map(|half| scope.spawn(move || random::run(seed, half, 120, kernel)));
        for thread in running {
            tally.add(thread.join().expect("a half runs"));
        }
    });
    println!(
        "{} functions of seed {seed}, {} packets, {} in rows",
        tally.functions, tally.counts.packets, tally.counts.in_rows
    );
    for (engine, compared) in &tally.compared {
        println!("{engine}: {compared} packets compared, {} refused", tally.refused.get(engine).unwrap_or(&0));
    }
    for (engine, functions) in &tally.too_large {
        println!("{engine}: {functions} functions refused as too large");
    }
    let expected = expected();
    println!("{}", tally.hits.render(&expected));
    assert!(tally.disagreements.is_empty(), "{}", tally.disagreements.join("\n"));
    assert!(tally.counts.in_rows * 2 >= tally.counts.packets, "{:?}", tally.counts);
    if count >= 10_000 {
        let rare: Vec<String> = expected
            .iter()
            .map(|&h| (h.to_string(), tally.hits.get(h)))
            .filter(|(h, _)| !["ipv6.frag", "ipv6.mf"].iter().any(|field| h.contains(field)))
            .filter(|(h, hits)| *hits < if h.contains(" inner.") { 250 } else { 1000 })
            .map(|(h, hits)| format!("{h}: {hits}"))
            .collect();
        assert!(rare.is_empty(), "below 1000 hits, of what is inside of tunnels below 250: {rare:#?}");
    }
}

/// Faults injected one by one into each engine: all are detected, each shrunk to five packets or fewer.
#[test]
#[ignore = "a minute"]
fn evidence_faults() {
    let kernel = random::is_kernel_there("evidence_faults");
    let mut all = Vec::new();
    for engine in ["machine", "interp", "kernel"] {
        if engine != "kernel" || kernel {
            all.extend(faulty::inject_all(engine));
        }
    }
    let (table, bad) = faulty::judge(&all);
    println!("{table}");
    assert!(bad.is_empty(), "{bad:#?}");
}

/// 100,000 mutated packets for each function of the repository, the capture of malformed packets, and mutated packets
/// on random functions: no panic, no access outside a packet, and the engines agree.
#[test]
#[ignore = "minutes"]
fn evidence_mutated() {
    let seed = random::seed(3);
    let kernel = random::is_kernel_there("evidence_mutated");
    let mut traces: BTreeMap<String, Vec<Arrival>> = BTreeMap::new();
    let count = random::count(100_000) as usize;
    let functions: Vec<_> = shipped::shipped().iter().map(|s| Arc::clone(&s.variants[0].function)).collect();
    for function in &functions {
        let mutated = mutated(shipped::made(function, seed, count), seed);
        traces.insert(format!("{} mutated", function.name), mutated);
    }
    if captures::paths().is_none() {
        skip("evidence_mutated", "`FLOWLOOM_TRACES` names no folder of captures");
    }
    let malformed: Vec<_> = captures::all().into_iter().filter(|(name, _)| name.contains("malformed")).collect();
    println!("{:12} {:36} {:8} {:>9} {:>9} {:>8}", "function", "packets", "engine", "packets", "compared", "refused");
    for function in functions {
        let own = traces.get(&format!("{} mutated", function.name)).map(|p| ("mutated".to_owned(), p.clone()));
        for (name, packets) in own.into_iter().chain(malformed.clone()) {
            for (engine, report) in random::compare_all(&function, &packets, kernel) {
                let report = report.unwrap_or_else(|error| panic!("{engine} on {}: {error}", function.name));
                println!(
                    "{:12} {name:36} {engine:8} {:>9} {:>9} {:>8}",
                    function.name,
                    packets.len(),
                    report.packets_compared,
                    report.packets_refused()
                );
                assert!(report.agrees(), "{} on {name}, {engine}: {:?}", function.name, report.disagreement);
            }
        }
    }
    // Mutated packets on functions that read every field.
    let functions = random::count(100_000) / 100;
    for number in 0..functions {
        let function = random::function(random::Reach::Plain, seed, number);
        let mut stimulus = Stimulus::new(Arc::clone(&function), seed, StimulusOptions::of(&function));
        let packets = mutated(stimulus.take_packets(100), number);
        for (engine, report) in random::compare_all(&function, &packets, kernel) {
            match report {
                Ok(report) => assert!(report.agrees(), "{number} on {engine}: {:?}", report.disagreement),
                Err(error) => assert!(random::is_too_large(&error), "{number} on {engine}: {error}"),
            }
        }
    }
    println!("{functions} random functions, 100 mutated packets each: equal");
}
