// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long comparisons of the dataflow of programs with the interpreter: run by `make evidence ONLY=dataflow-random` and
//! the like. Each program is compared as built, after a round trip through text, and after every pass.
//!
//! `FLOWLOOM_OBJECT` selects objects by a part of their name, `FLOWLOOM_FUNCTION` one function; `FLOWLOOM_COUNT` sets the
//! number of random programs, `FLOWLOOM_SEED` their seed.
#![allow(clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use crate::common;
use crate::dataflow_corpus;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use flowloom_isa::Program;
use flowloom_testkit::{Clang, Rng, skip};
use flowloom_verify::Arrival;

use common::captures;
use common::shipped::shipped;
use dataflow_corpus::programs::{case, classical, explored, lowered};
use dataflow_corpus::{Agreed, Subject, after_every_pass, agree, linux, packets, random};

/// Default number of random programs.
const RANDOM: u64 = 200_000;
/// Packets of each capture: the first 100, and as many spread over the rest.
const OF_A_CAPTURE: usize = 100;
/// Number of cases that an exploration of one of Linux's programs tries.
const TRIES: u64 = 10_000;
/// Minimum percentage of the verified Linux programs that have a dataflow.
const MIN_PERCENT: usize = 80;
/// Minimum per 1000 random programs that have one; mutants may use addresses as numbers.
const MIN_SOUND: usize = 999;
const MIN_MUTANTS: usize = 900;
/// Number of cases that an exploration of a classical program tries, and the percentage of slots to reach.
const CLASSICAL: (u64, usize) = (20_000, 80);
/// Size above which a map is large, and the number of cases to run where a program has a large map.
const LARGE_BYTES: u64 = 1 << 24;
const CASES_OF_LARGE: usize = 6;
/// Number of packets of each kind for a lowered function.
const PACKETS: usize = 300;

/// Packets of the captures; none, after a printed skip, where there are no captures.
fn captured(test: &str) -> Vec<Arrival> {
    let captures = captures::some(OF_A_CAPTURE);
    let captured: Vec<Arrival> = captures.iter().flat_map(|(_, packets)| packets.iter().cloned()).collect();
    if captured.is_empty() {
        skip(test, "`FLOWLOOM_TRACES` names no captures");
    }
    println!("{} packets of {} captures", captured.len(), captures.len());
    captured
}

/// Results for the programs of one proof.
#[derive(Default)]
struct Tally {
    programs: usize,
    agreed: Vec<Agreed>,
    /// Refused programs, by reason.
    refused: BTreeMap<String, Vec<String>>,
    /// Programs that differ from the interpreter.
    differ: Vec<String>,
}

impl Tally {
    fn print(&self, what: &str, started: Instant) {
        let packets: u64 = self.agreed.iter().map(|agreed| agreed.packets).sum();
        let nodes: usize = self.agreed.iter().map(|agreed| agreed.nodes).sum();
        let largest = self.agreed.iter().map(|agreed| agreed.nodes).max().unwrap_or(0);
        let (built, all, seconds) = (self.agreed.len(), self.programs, started.elapsed().as_secs());
        println!(
            "{what}: {all} programs, {built} have a dataflow ({:.1}%) and do in every form what the interpreter does, on {packets} packets; {nodes} \
             nodes, the largest {largest}; {seconds} s",
            100.0 * built as f64 / all.max(1) as f64
        );
        for (why, names) in &self.refused {
            println!("  {} refused: {why}: {}", names.len(), names.join(", "));
        }
        assert!(self.differ.is_empty(), "{what}: {} differ: {}", self.differ.len(), self.differ.join(", "));
    }
}

/// Runs all of them, one thread per processor.
fn each(count: usize, one: impl Fn(usize) -> (String, Subject) + Sync) -> Tally {
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            let started = Instant::now();
            let (name, subject) = one(number);
            let agreed = catch_unwind(AssertUnwindSafe(|| agree(&subject, &after_every_pass)));
            let seconds = started.elapsed().as_secs_f64();
            let Ok(mut tally) = tally.lock() else { return };
            tally.programs += 1;
            match agreed {
                Err(_) => {
                    println!("  {name}: DIFFERS");
                    tally.differ.push(name);
                }
                Ok(Ok(agreed)) => {
                    if std::env::var_os("FLOWLOOM_COUNT").is_none() && seconds > 20.0 {
                        println!("  {name}: {} nodes, {} packets, {seconds:.0} s", agreed.nodes, agreed.packets);
                    }
                    tally.agreed.push(agreed);
                }
                Ok(Err(refusal)) => {
                    println!("  {name}: {refusal}");
                    tally.refused.entry(refusal.reason.to_string()).or_default().push(name);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    tally.into_inner().unwrap_or_else(|_| panic!("a program was not run to its end"))
}

/// The dataflow of each classical program, as clang compiles it for two versions of the instruction set, has the same
/// effects as the interpreter, as built, after a round trip through text, and after every pass: verdict, bytes, maps and
/// events, on generated and short packets, on cases found by exploration and on captures.
#[test]
#[ignore = "minutes"]
fn evidence_dataflow_classical() {
    let test = "evidence_dataflow_classical";
    let captured = captured(test);
    let (Some(clang), false) = (Clang::find(test), captured.is_empty()) else { return };
    let mut rng = Rng::from_env(1);
    let started = Instant::now();
    // Also for newer instructions.
    let programs: Vec<Program> = ["-mcpu=v2", "-mcpu=v3"].iter().flat_map(|cpu| classical(&clang, cpu)).collect();
    let rngs: Vec<Rng> = programs.iter().map(|_| rng.fork()).collect();
    let tally = each(programs.len(), |number| {
        let (program, mut rng) = (programs[number].clone(), rngs[number].clone());
        let (mut cases, _) = explored(&program, &mut rng, CLASSICAL.0, CLASSICAL.1);
        // With large maps, each case takes a second per form.
        let is_large =
            program.maps.iter().any(|map| u64::from(map.max_entries) * u64::from(map.value_bytes) > LARGE_BYTES);
        if is_large {
            let step = cases.len().div_ceil(CASES_OF_LARGE);
            cases = cases.into_iter().step_by(step).collect();
        }
        let mut more = case(captured.clone(), &mut rng);
        more.packets.extend(packets::made(&mut rng, PACKETS));
        more.packets.extend(packets::short(&mut rng, 122));
        cases.push(more);
        (program.name.clone(), Subject { program, cases, sweep_ns: None, routes: None })
    });
    tally.print("classical programs", started);
    assert!(tally.refused.is_empty(), "a classical program has no dataflow");
}

/// The dataflow of each lowered function, with all its parameter sets, has the same effects as the interpreter, as
/// built, after a round trip through text, and after every pass: verdict, bytes, maps and events, on generated packets
/// and on captures.
#[test]
#[ignore = "minutes"]
fn evidence_dataflow_functions() {
    let (captured, seed) = (captured("evidence_dataflow_functions"), Rng::from_env(1));
    if captured.is_empty() {
        return;
    }
    let (started, functions) = (Instant::now(), shipped());
    let variants: Vec<_> = functions.iter().flat_map(|function| &function.variants).collect();
    let tally = each(variants.len(), |number| {
        let (variant, mut rng) = (variants[number], seed.clone());
        let mut subject = lowered(variant, &mut rng, PACKETS);
        subject.cases.push(case(captured.clone(), &mut rng));
        (format!("{} ({})", variant.function.name, variant.params), subject)
    });
    tally.print("lowered functions", started);
    assert!(tally.refused.is_empty(), "a lowered function has no dataflow");
}

/// The dataflow of each of Linux's programs that verify has the same effects as the interpreter, as built, after a round
/// trip through text, and after every pass: verdict, bytes, maps and events, on cases found by exploration and on
/// captures. At least 80% have a dataflow; the reasons why others have none are printed.
#[test]
#[ignore = "half an hour"]
fn evidence_dataflow_linux() {
    let test = "evidence_dataflow_linux";
    let (captured, seed) = (captured(test), Rng::from_env(1));
    let started = Instant::now();
    let found = match linux::found() {
        Ok(found) => found,
        Err(reason) => return skip(test, &reason),
    };
    if captured.is_empty() {
        return;
    }
    let all = &found.verified;
    println!(
        "Linux: {} objects, {} programs verify, {} are not read, not run or not verified",
        found.objects,
        all.len(),
        found.others
    );
    let tally = each(all.len(), |number| {
        let subject = linux::subject(&all[number], &captured, &mut seed.clone(), TRIES);
        (format!("{} {}", all[number].object, all[number].program.name), subject)
    });
    tally.print("Linux's programs", started);
    let (built, all) = (tally.agreed.len(), tally.programs);
    assert!(built * 100 >= all * MIN_PERCENT, "{built} of {all} have a dataflow, expected {MIN_PERCENT}%");
}

/// The dataflow of 200,000 random programs, and of 50,000 in which an instruction has been changed, has the same effects as
/// the interpreter, as built, after a round trip through text, and after every pass: verdict, bytes, maps and events, on
/// generated, corrupted and short packets.
#[test]
#[ignore = "half an hour"]
fn evidence_dataflow_random() {
    let seed = Rng::from_env(1).next_u64();
    let count = std::env::var("FLOWLOOM_COUNT").ok();
    let count = count.map_or(RANDOM, |n| n.parse().unwrap_or_else(|_| panic!("FLOWLOOM_COUNT is no number: `{n}`")));
    for (kind, what, count, least) in [
        (random::Kind::Sound, "random programs", count, MIN_SOUND),
        (random::Kind::Mutant, "random programs in which something has gone wrong", count / 4, MIN_MUTANTS),
    ] {
        let started = Instant::now();
        let tally = each(count as usize, |number| {
            let subject = random::subject(kind, seed, number as u64);
            (subject.program.name.clone(), subject)
        });
        tally.print(what, started);
        let (built, all) = (tally.agreed.len(), tally.programs);
        assert!(built * 1000 >= all * least, "{what}: {built} of {all} have a dataflow, expected {least} of 1000");
    }
}
