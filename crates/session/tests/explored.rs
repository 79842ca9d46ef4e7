// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs in C on the packets and states that an exploration of their code finds, at volume.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Port};
use flowloom_isa::Program;
use flowloom_plan::Options;
use flowloom_session::engines::{Engine, EngineName, EngineOptions, Started};
use flowloom_session::{FunctionFile, Loaded, SessionError, with_causes};
use flowloom_testkit::{Rng, mutate, skip};
use flowloom_verify::explore::{Case, ExploreOptions, Explored, Gap, explore};
use flowloom_verify::{Arrival, CompareOptions, compare};
use flowloom_vm::{Interpreter, Lookup};

use crate::stream::top;

/// Programs with a branch for a full map, and a size with which a state of the exploration fills it.
const SIZES: [(&str, &str, &str); 3] =
    [("dnat", "FLOWS", "300"), ("leaky_bucket", "FLOWS", "300"), ("leaky_bucket_gcra", "FLOWS", "300")];

/// The map of dnat with its ports, the place of their number in the value, and the map of the ports that are taken.
const PORTS: (&str, std::ops::Range<usize>, &str) = ("configs", 8..12, "origins");

/// What was compared.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) packets: u64,
    /// Those of them that took the slow path.
    pub(crate) slow: u64,
    /// Packets that are longer than the pipeline takes.
    pub(crate) refused: u64,
    /// The states that the packets met first.
    pub(crate) states: usize,
    /// The slots of the program that are reached, and all.
    pub(crate) share: (usize, usize),
    /// Instructions that are not reached, and the reasons.
    pub(crate) gaps: Vec<Gap>,
}

/// What became of a program.
pub(crate) enum Ran {
    Equal(Compared),
    /// It has no pipeline, for this reason.
    Without(String),
    Differs(String),
    /// There is no simulation here; the reason is printed.
    Skipped,
}

/// The sources of the programs in C.
pub(crate) fn programs() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(top().join("functions/ebpf")).unwrap().map(|entry| entry.unwrap().path());
    let files = folders.filter(|path| path.is_dir()).flat_map(|path| std::fs::read_dir(path).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = files.filter(|path| path.to_string_lossy().ends_with(".bpf.c")).collect();
    found.sort();
    found
}

/// Runs `count` packets in interpreter and pipeline: from each state of the exploration first its own packets, then
/// those of all states in random order, each several times in a row, some of them changed.
pub(crate) fn is_equal(test: &str, path: PathBuf, seed: u64, count: usize) -> Ran {
    let name = path.display().to_string();
    let is_sized = |(program, ..): &&(&str, &str, &str)| name.ends_with(&format!("/{program}.bpf.c"));
    let params = SIZES.iter().filter(is_sized).map(|(_, size, value)| ((*size).to_owned(), (*value).to_owned()));
    let file = FunctionFile { path, params: params.collect(), ..FunctionFile::default() };
    let loaded = Loaded::open(&file).unwrap_or_else(|e| panic!("{name}: {e}"));
    if let Err(reason) = loaded.pipeline(&Options::default()) {
        return Ran::Without(with_causes(&reason));
    }
    let program = loaded.program().unwrap();
    let mut explored = explore(&program, &ExploreOptions { seed, ..ExploreOptions::default() }).unwrap();
    if name.ends_with("/dnat.bpf.c") {
        add_one_port(&program, &mut explored);
    }
    assert!(explored.faults.is_empty(), "{name}: {:?}", explored.faults.keys());
    let mut compared = Compared {
        states: explored.cases.len(),
        share: explored.share(),
        gaps: explored.gaps.clone(),
        ..Compared::default()
    };
    let mut rng = Rng::new(seed);
    let share = count.div_ceil(explored.cases.len());
    // Constants are part of a pipeline.
    let mut pipelines: BTreeMap<_, Vec<&Case>> = BTreeMap::new();
    explored.cases.iter().for_each(|case| pipelines.entry(&case.constants).or_default().push(case));
    for cases in pipelines.values() {
        let Some((mut interp, mut pipeline)) = engines(test, cases[0].program(&program)) else { return Ran::Skipped };
        for case in cases {
            let packets = packets(&mut rng, case, &explored.cases, share);
            let (state, seed) = (case.state.clone(), case.seed);
            let options = CompareOptions { seed, state, is_foreign: true, ..CompareOptions::default() };
            let report = compare(interp.as_mut(), pipeline.as_mut(), &packets, &options).unwrap();
            if let Some(disagreement) = report.disagreement {
                return Ran::Differs(disagreement.to_string());
            }
            compared.packets += report.packets_compared;
            compared.slow += report.packets_slow;
            compared.refused += report.packets_refused();
        }
    }
    Ran::Equal(compared)
}

/// Adds a case for dnat in which it has one port, which is taken: the search for the next port starts again from the
/// first one. The exploration finds such a state only by chance, as it needs the same number in two maps.
fn add_one_port(program: &Arc<Program>, explored: &mut Explored) {
    let (configs, number, taken) = PORTS;
    let mut new = Vec::new();
    for case in &explored.cases {
        let mut case = case.clone();
        let Some(config) = case.state.maps.get_mut(configs).and_then(|entries| entries.values_mut().next()) else {
            continue;
        };
        config[number.clone()].copy_from_slice(&1u32.to_le_bytes());
        let origin = case.state.maps.get(taken).and_then(|entries| entries.values().next()).cloned();
        let Some(origin) = origin else { continue };
        case.state.maps.insert(taken.to_owned(), BTreeMap::new());
        let with_constants = Arc::new(case.program(program));
        let new_interp = || Interpreter::new(Arc::clone(&with_constants)).unwrap().with_trail();
        let mut interp = new_interp();
        // The second pass begins with the entries that the first one missed.
        for _ in 0..2 {
            let mut missed = Vec::new();
            run_packets(&mut interp, &case, &mut |lookup| {
                if !lookup.found && program.maps[lookup.map].name == taken {
                    missed.push((lookup.key.clone(), origin.clone()));
                }
            });
            case.state.maps.entry(taken.to_owned()).or_default().extend(missed);
        }
        let mut interp = new_interp().with_profile();
        run_packets(&mut interp, &case, &mut |_| ());
        let runs: Vec<bool> = interp.profile().unwrap().iter().map(|&runs| runs > 0).collect();
        if runs.iter().zip(&explored.reached).any(|(runs, reached)| *runs && !reached) {
            explored.reached.iter_mut().zip(&runs).for_each(|(reached, runs)| *reached |= runs);
            new.push(case);
        }
    }
    explored.gaps.retain(|gap| !(gap.first..=gap.last).any(|slot| explored.reached[slot]));
    explored.cases.extend(new);
}

/// Runs the packets of a case from its state, and has each lookup visited.
fn run_packets(interp: &mut Interpreter, case: &Case, visit: &mut dyn FnMut(&Lookup)) {
    interp.restore(&case.state).unwrap();
    for (position, arrival) in case.packets.iter().enumerate() {
        let choices = Choices::seeded(arrival.time_ns, case.seed, position as u64);
        interp.process(&arrival.packet(), &choices).unwrap();
        interp.trail().unwrap().lookups.iter().for_each(&mut *visit);
    }
}

/// Interpreter and pipeline of a program; none, with the reason printed, where Verilator is not installed.
pub(crate) fn engines(test: &str, program: Program) -> Option<(Box<dyn Engine>, Box<dyn Engine>)> {
    let loaded = Loaded::of_program(program);
    let load = |name: EngineName| name.load(&loaded, &EngineOptions::default()).map(|Started { engine, .. }| engine);
    let pipeline = match load(EngineName::by_name("pipeline").unwrap()) {
        Ok(pipeline) => pipeline,
        Err(SessionError::Environment(reason)) => {
            skip(test, &reason);
            return None;
        }
        Err(error) => panic!("{}", with_causes(&error)),
    };
    Some((load(EngineName::INTERP).unwrap(), pipeline))
}

/// Packets for the state of a case.
fn packets(rng: &mut Rng, case: &Case, all: &[Case], count: usize) -> Vec<Arrival> {
    let mut packets = case.packets.clone();
    let known: Vec<&Arrival> = all.iter().flat_map(|case| &case.packets).collect();
    let mut time_ns = packets.iter().map(|packet| packet.time_ns).max().unwrap_or(0);
    while packets.len() < count {
        let mut packet = (*rng.pick(&known)).clone();
        if rng.chance(1, 4) {
            mutate(rng, &mut packet.bytes);
        }
        if rng.chance(1, 16) {
            packet.port = Port(rng.below(4) as u32);
        }
        for _ in 0..1 + rng.below(4) {
            // A millisecond now and then lets buckets fill.
            time_ns += if rng.chance(1, 64) { rng.below(1_000_000) as u64 } else { rng.below(20) as u64 };
            packets.push(Arrival { time_ns, ..packet.clone() });
        }
    }
    packets
}
