//! The long proofs, with their figures on standard output. Run with `cargo test -p flowloom-verify --release --test
//! evidence -- --ignored --nocapture`.
//!
//! `FLOWLOOM_SEED` and `FLOWLOOM_COUNT` set seed and size; `FLOWLOOM_TRACES` names the directory of real captures.
#![allow(clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use common::{faulty, random};
use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_engine::Port;
use flowloom_trace::CaptureReader;
use flowloom_verify::{
    Arrival, Hit, Operator, Place, RandomFunctions, Reach, Reached, Stimulus, StimulusOptions, Tick, Timer, compare,
    mutated,
};
use flowloom_wire::FieldId;

fn functions() -> Vec<Arc<Function>> {
    let mut functions = common::repository();
    functions.push(common::many_things());
    functions
}

/// Every function of the repository on every real capture: the reference machine, the interpreter and the kernel agree on
/// every packet, and on the state at the end; frames that the kernel cannot take are counted.
#[test]
#[ignore = "minutes"]
fn evidence_captures() {
    let Some(captures) = captures("evidence_captures") else { return };
    let kernel = random::is_kernel_there("evidence_captures");
    println!("{:12} {:36} {:8} {:>9} {:>9} {:>8}", "function", "capture", "engine", "packets", "compared", "refused");
    let mut wrong = Vec::new();
    for function in functions() {
        for (name, packets) in &captures {
            for (engine, report) in random::compare_all(&function, packets, kernel) {
                let report = report.unwrap_or_else(|error| panic!("{engine} on {}: {error}", function.name));
                println!(
                    "{:12} {name:36} {engine:8} {:>9} {:>9} {:>8}",
                    function.name,
                    packets.len(),
                    report.packets_compared,
                    report.packets_refused()
                );
                wrong.extend(report.disagreement.map(|d| format!("{} on {name}, {engine}: {d}", function.name)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every function of the repository on traces made for it: every row in every state, every timeout and every default action
/// is hit at least 100 times, and the engines agree.
#[test]
#[ignore = "minutes"]
fn evidence_coverage() {
    let kernel = random::is_kernel_there("evidence_coverage");
    let seed = random::seed(1);
    let rounds = random::count(60);
    for function in functions() {
        let program = common::engines::program(&function);
        let options = common::engines::options(&function, &program);
        let mut reached = Reached::new(&function);
        let (mut packets_run, mut in_rows) = (0, 0);
        let mut compared: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        // Traces of 50,000 packets until every point has its hits; two at least.
        for round in 0..rounds {
            let mut stimulus = Stimulus::new(Arc::clone(&function), seed + round, StimulusOptions::of(&function));
            let packets = stimulus.take_packets(50_000);
            packets_run += stimulus.counts().packets;
            in_rows += stimulus.counts().in_rows;
            let (mut machine, mut other) = (Machine::new(Arc::clone(&function)), Machine::new(Arc::clone(&function)));
            assert!(compare(&mut machine, &mut other, &packets, &options).expect("the machine runs").agrees());
            reached.add(&machine.coverage());
            for (engine, report) in random::compare_all(&function, &packets, kernel) {
                let report = report.unwrap_or_else(|error| panic!("{engine} on {}: {error}", function.name));
                let refused = report.packets_refused();
                let sum = compared.entry(engine).or_default();
                *sum = (sum.0 + report.packets_compared, sum.1 + refused);
                if let Some(disagreement) = report.disagreement {
                    panic!("{} on {engine}, seed {}: {disagreement}", function.name, seed + round);
                }
            }
            if round >= 1 && reached.gaps(100).is_empty() {
                break;
            }
        }
        println!("{}: {packets_run} packets, {in_rows} of them in rows", function.name);
        for (engine, (compared, refused)) in compared {
            println!("  {engine}: {compared} compared, {refused} refused");
        }
        println!("{}", reached.render());
        let gaps = reached.gaps(100);
        assert!(gaps.is_empty(), "below 100 hits in {}: {gaps:?}", function.name);
    }
}

/// What random functions must reach 1000 times: operators, relations, matches, variables, fields, timers, ticks.
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
        for place in [Place::Register, Place::Global, Place::Metadata] {
            hits.extend([8, 16, 32, 64].map(|bits| Hit::Variable(place, bits, negated)));
        }
    }
    for timer in [Timer::Idle, Timer::Hard] {
        hits.extend([Hit::TimerSet(timer), Hit::TimerExpired(timer)]);
        hits.extend([Tick::Before, Tick::At, Tick::After].map(|tick| Hit::Tick(timer, tick)));
    }
    hits.extend(["drop", "pass", "punt", "forward", "reply"].map(Hit::Terminal));
    for field in FieldId::all() {
        hits.extend([Hit::FieldRead(field), Hit::KeyField(field)]);
        hits.extend(field.is_writable().then_some(Hit::FieldWritten(field)));
    }
    hits
}

/// 10,000 random functions with packets made for them: the engines agree; at least half of the packets match a row, and
/// every operator, comparison, variable, field, timer and boundary tick is hit at least 1000 times.
#[test]
#[ignore = "half an hour"]
fn evidence_random_functions() {
    let seed = random::seed(20_000);
    let count = random::count(10_000);
    let kernel = random::is_kernel_there("evidence_random_functions");
    // Independent functions, so one half on each of two threads.
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
            .filter(|&&h| tally.hits.get(h) < 1000)
            .map(|h| format!("{h}: {}", tally.hits.get(*h)))
            .collect();
        assert!(rare.is_empty(), "below 1000 hits: {rare:#?}");
    }
}

/// Named faults, injected one by one into each engine: all are found, each shrunk to five packets or fewer.
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

/// 100,000 mutated packets for each function of the repository, the capture of malformed packets, and mutated packets on
/// random functions: no panic, no access outside of a packet, and the engines agree.
#[test]
#[ignore = "minutes"]
fn evidence_mutated() {
    let seed = random::seed(3);
    let kernel = random::is_kernel_there("evidence_mutated");
    let mut traces: BTreeMap<String, Vec<Arrival>> = BTreeMap::new();
    let count = random::count(100_000) as usize;
    for function in functions() {
        let mut stimulus = Stimulus::new(Arc::clone(&function), seed, StimulusOptions::of(&function));
        let mutated = mutated(stimulus.take_packets(count), seed);
        traces.insert(format!("{} mutated", function.name), mutated);
    }
    let malformed =
        captures("evidence_mutated").unwrap_or_default().into_iter().filter(|(name, _)| name.contains("malformed"));
    let malformed: Vec<_> = malformed.collect();
    println!("{:12} {:36} {:8} {:>9} {:>9} {:>8}", "function", "packets", "engine", "packets", "compared", "refused");
    for function in functions() {
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
        let function = RandomFunctions::nth(Reach::Plain, seed, number);
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

/// The captures of `FLOWLOOM_TRACES`, by name.
fn captures(test: &str) -> Option<Vec<(String, Vec<Arrival>)>> {
    let Some(directory) = std::env::var_os("FLOWLOOM_TRACES").map(PathBuf::from) else {
        eprintln!("SKIP {test}: FLOWLOOM_TRACES names no directory of captures");
        return None;
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().contains(".pcap"))
        .collect();
    files.sort();
    Some(files.into_iter().map(|path| (name_of(&path), read(&path))).collect())
}

fn name_of(path: &std::path::Path) -> String {
    path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned())
}

fn read(path: &std::path::Path) -> Vec<Arrival> {
    let mut reader = CaptureReader::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
        packets.push(Arrival { time_ns: packet.time_ns, port: Port(packet.port), bytes: packet.bytes });
    }
    packets
}
