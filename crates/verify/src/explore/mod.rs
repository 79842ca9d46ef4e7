//! Packets and states for a program of which nothing is known but its code.
//!
//! Goal: run as many of its instructions as can be run, so that a comparison of engines means something. Steps, over and
//! over, until nothing is left to reach or the tries are used up:
//!
//! ```text
//!  frames of all headers ─┐
//!  captures ──────────────┴─► run ──► trail ──► a jump went one way only ──► which bytes move its operands? set them
//!                              ▲                a lookup missed          ──► put the key into the map
//!                              │                                              │
//!                              └── kept, as it took a jump's other way ◄──────┘     and blind changes in between
//! ```
//!
//! The input is everything a user can choose: the constants that are set before a program is loaded, the contents of its
//! maps, the packets with their ports and times. After it, [`Explored::cases`] holds the few cases that together reach what
//! was reached, each small; the coverage told is that of these cases, run anew. The same seed gives the same cases.
//!
//! Limits: what no input decides (the results of some helpers) cannot be chosen; sums over many bytes are met by chance.

mod case;
mod runner;
mod steer;
mod unreached;
mod vary;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use flowloom_bpf::{Program, ProgramError, fib};

use crate::arrival::Arrival;
use crate::rng::Rng;

pub use case::Case;
use runner::{Edge, Runner};
pub use unreached::{Gap, Why};
use vary::Dictionary;

/// The shortest and the longest frame that every engine takes.
const FRAME_BYTES: std::ops::RangeInclusive<usize> = flowloom_exec::MIN_FRAME_BYTES..=flowloom_exec::MAX_FRAME_BYTES;

/// A search ends early where runs take more instructions than this on the average.
const INSTRUCTIONS_PER_TRY: u64 = 2_000;

/// How a program is explored.
#[derive(Debug, Clone)]
pub struct ExploreOptions {
    /// Seed of everything random.
    pub seed: u64,
    /// How many cases are run at most, about.
    pub tries: u64,
    /// Packets to begin with, besides those that are made.
    pub packets: Vec<Arrival>,
    /// What `fib_lookup` and `check_mtu` ask; without it there is no interface.
    pub routes: Option<fib::Table>,
}

impl Default for ExploreOptions {
    fn default() -> ExploreOptions {
        ExploreOptions { seed: 0, tries: 200_000, packets: Vec::new(), routes: None }
    }
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Explored {
    /// A few cases that together reach all that was reached.
    pub cases: Vec<Case>,
    /// For each slot of the program whether these cases run it.
    pub reached: Vec<bool>,
    /// What no case reached, and why.
    pub gaps: Vec<Gap>,
    /// How many times packets were run.
    pub tries: u64,
    /// What stopped the program, and how often: none where a verifier has accepted it.
    pub faults: BTreeMap<String, u64>,
    /// Why states could not be given to the program, and how often.
    pub misfits: BTreeMap<String, u64>,
}

impl Explored {
    /// Slots that were reached, of how many.
    pub fn share(&self) -> (usize, usize) {
        (self.reached.iter().filter(|&&slot| slot).count(), self.reached.len())
    }
}

/// Looks for cases that reach as much of `program` as can be reached.
///
/// # Errors
/// The program cannot be run at all.
///
/// # Cost
/// `options.tries` runs of the interpreter, fewer where everything is reached early.
pub fn explore(program: &Arc<Program>, options: &ExploreOptions) -> Result<Explored, ProgramError> {
    let runner = Runner::new(Arc::clone(program), options.routes.clone())?;
    let dictionary = Dictionary::of(program);
    let mut search = Search {
        runner,
        rng: Rng::new(options.seed),
        dictionary,
        pool: Vec::new(),
        steered: HashMap::new(),
        added: HashSet::new(),
        tries: options.tries,
        last_found: 0,
        is_complete: false,
    };
    for packet in vary::seeds(&mut search.rng).into_iter().chain(options.packets.iter().cloned()) {
        search.attempt(Case { packets: vec![packet], ..Case::default() })?;
    }
    search.constants()?;
    let mut worked = 0;
    while !search.is_over() {
        match search.pool.get(worked).cloned() {
            Some(case) => {
                search.work(&case)?;
                worked += 1;
            }
            None => search.wander()?,
        }
    }
    search.finish()
}

/// A search as it goes on.
struct Search {
    runner: Runner,
    rng: Rng,
    dictionary: Dictionary,
    /// Every case that took a new way.
    pool: Vec<Case>,
    /// How often each edge was steered for.
    steered: HashMap<Edge, u32>,
    /// Keys that were put into maps for the sake of a lookup.
    added: HashSet<(usize, Vec<u8>)>,
    tries: u64,
    /// After how many runs the last new way was found.
    last_found: u64,
    /// Whether every slot has been run.
    is_complete: bool,
}

impl Search {
    fn is_over(&self) -> bool {
        let runs = self.runner.runs;
        // Long without news, and with nothing left to work on: chance is not going to help.
        let patience = if self.is_complete { self.tries / 20 } else { self.tries / 4 };
        let is_slow = self.runner.executed() > self.tries.saturating_mul(INSTRUCTIONS_PER_TRY);
        runs >= self.tries || runs - self.last_found > patience || is_slow || self.pool.is_empty()
    }

    /// Runs a case and keeps it where it took a new way.
    fn attempt(&mut self, mut case: Case) -> Result<bool, ProgramError> {
        for packet in &mut case.packets {
            let len = packet.bytes.len().clamp(*FRAME_BYTES.start(), *FRAME_BYTES.end());
            packet.bytes.resize(len, 0);
        }
        self.runner.tell_cpus(&mut case);
        let ran = self.runner.run(&case, |_, _| ())?;
        let is_new = ran == Some(true);
        // The first case is kept whatever way it took: a program without a jump takes no new one.
        if is_new || ran.is_some() && self.pool.is_empty() {
            self.keep(case);
        }
        Ok(is_new)
    }

    /// Keeps a case that was run just now and took a new way.
    fn keep(&mut self, mut case: Case) {
        self.runner.tell_cpus(&mut case);
        self.last_found = self.runner.runs;
        self.is_complete = self.runner.slots().iter().all(|&slot| slot);
        self.pool.push(case);
    }

    /// The cases that are needed, fewest first, and what they reach.
    fn finish(mut self) -> Result<Explored, ProgramError> {
        let mut of: Vec<(Case, HashSet<Edge>)> = Vec::new();
        for case in std::mem::take(&mut self.pool) {
            if self.runner.run(&case, |_, _| ())?.is_some() {
                of.push((case, self.runner.last_edges().clone()));
            }
        }
        let mut cases = Vec::new();
        let mut covered = HashSet::new();
        loop {
            let gain = |edges: &HashSet<Edge>| edges.difference(&covered).count();
            // Of equal gains the earlier, and so the simpler.
            let best = (0..of.len()).rev().max_by_key(|&i| gain(&of[i].1));
            let Some(best) = best.filter(|&i| gain(&of[i].1) > 0 || cases.is_empty()) else { break };
            let (case, edges) = of.swap_remove(best);
            covered.extend(edges);
            cases.push(case);
        }
        let mut again = Runner::new(Arc::clone(&self.runner.program), self.runner.routes.clone())?;
        let mut seen = unreached::Seen::default();
        for case in &cases {
            again.run(case, |_, trail| seen.add(trail))?;
        }
        let reached = again.slots().to_vec();
        Ok(Explored {
            gaps: unreached::gaps(&self.runner.program, &reached, &seen),
            reached,
            cases,
            tries: self.runner.runs,
            faults: self.runner.faults,
            misfits: self.runner.misfits,
        })
    }
}
