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

use flowloom_isa::{Program, ProgramError};
use flowloom_vm::Trail;
use flowloom_vm::fib;

use crate::arrival::Arrival;
use flowloom_random::Xorshift64Star as Rng;

pub use case::Case;
use runner::{Edge, Runner};
pub use unreached::{Gap, Why};
use vary::Dictionary;

/// The shortest and the longest frame that every engine takes.
const FRAME_BYTES: std::ops::RangeInclusive<usize> = flowloom_exec::MIN_FRAME_BYTES..=flowloom_exec::MAX_FRAME_BYTES;

/// So many may be taken however few tries there are: a few seconds.
const LEAST_INSTRUCTIONS: u64 = 1 << 27;

/// Progress is told after so many cases.
const TRIES_PER_TELLING: u64 = 64;

/// A search ends early where runs take more instructions than this on the average.
const INSTRUCTIONS_PER_TRY: u64 = 2_000;

/// How a program is explored.
#[derive(Debug, Clone)]
pub struct ExploreOptions {
    /// Seed of everything random.
    pub seed: u64,
    /// How many cases are run at most.
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
    /// What stopped the program: nothing where a verifier has accepted it.
    pub faults: BTreeMap<String, Stopped>,
    /// Why states could not be given to the program, and how often.
    pub misfits: BTreeMap<String, u64>,
}

/// What stopped the program in some cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// In how many cases.
    pub times: u64,
    /// The first of them.
    pub case: Case,
}

/// How far a search has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExploreProgress {
    /// How many cases have been run.
    pub tries: u64,
    /// How many slots of the program they reach.
    pub reached: usize,
    /// Slots of the program.
    pub slots: usize,
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
    explore_telling(program, options, &mut |_| {})
}

/// Like [`explore`]; `progress` is told now and then how far it has come.
///
/// # Errors
/// The program cannot be run at all.
pub fn explore_telling(
    program: &Arc<Program>,
    options: &ExploreOptions,
    progress: &mut dyn FnMut(ExploreProgress),
) -> Result<Explored, ProgramError> {
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
        progress,
    };
    for packet in vary::seeds(&mut search.rng).into_iter().chain(options.packets.iter().cloned()) {
        if search.is_spent() {
            break;
        }
        search.attempt(Case { packets: vec![packet], ..Case::default() })?;
    }
    search.constants()?;
    let mut worked = 0;
    while !search.is_over() {
        match search.pool.get(worked).map(|kept| kept.case.clone()) {
            Some(case) => {
                search.work(&case)?;
                worked += 1;
            }
            None => search.wander()?,
        }
    }
    search.finish()
}

/// A case that took a new way.
struct Kept {
    case: Case,
    /// All ways that it took.
    edges: HashSet<Edge>,
}

/// A search as it goes on.
struct Search<'p> {
    runner: Runner,
    rng: Rng,
    dictionary: Dictionary,
    /// Every case that took a new way.
    pool: Vec<Kept>,
    /// How often each edge was steered for.
    steered: HashMap<Edge, u32>,
    /// Keys that were put into maps for the sake of a lookup.
    added: HashSet<(usize, Vec<u8>)>,
    tries: u64,
    /// After how many runs the last new way was found.
    last_found: u64,
    /// Whether every slot has been run.
    is_complete: bool,
    progress: &'p mut dyn FnMut(ExploreProgress),
}

impl Search<'_> {
    /// So many instructions are worth it.
    fn most_executed(&self) -> u64 {
        self.tries.saturating_mul(INSTRUCTIONS_PER_TRY)
    }

    /// Whether no more cases may be run.
    fn is_spent(&self) -> bool {
        let is_too_slow = self.runner.executed() > self.most_executed().max(LEAST_INSTRUCTIONS);
        self.runner.runs >= self.tries || is_too_slow
    }

    fn is_over(&self) -> bool {
        let runs = self.runner.runs;
        // Long without news, and with nothing left to work on: chance is not going to help.
        let patience = if self.is_complete { self.tries / 20 } else { self.tries / 4 };
        let is_slow = self.runner.executed() > self.most_executed();
        self.is_spent() || runs - self.last_found > patience || is_slow || self.pool.is_empty()
    }

    /// Runs a case, unless none may be run any more: that is as if it could not be run to its end.
    fn run(&mut self, case: &Case, see: impl FnMut(usize, &Trail)) -> Result<Option<bool>, ProgramError> {
        if self.is_spent() {
            return Ok(None);
        }
        let ran = self.runner.run(case, see)?;
        if self.runner.runs.is_multiple_of(TRIES_PER_TELLING) {
            let slots = self.runner.slots();
            let (reached, slots) = (slots.iter().filter(|&&slot| slot).count(), slots.len());
            (self.progress)(ExploreProgress { tries: self.runner.runs, reached, slots });
        }
        Ok(ran)
    }

    /// Runs a case and keeps it where it took a new way.
    fn attempt(&mut self, mut case: Case) -> Result<bool, ProgramError> {
        for packet in &mut case.packets {
            let len = packet.bytes.len().clamp(*FRAME_BYTES.start(), *FRAME_BYTES.end());
            packet.bytes.resize(len, 0);
        }
        self.runner.tell_cpus(&mut case);
        let ran = self.run(&case, |_, _| ())?;
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
        self.pool.push(Kept { case, edges: self.runner.last_edges().clone() });
    }

    /// The cases that are needed, fewest first, and what they reach.
    fn finish(mut self) -> Result<Explored, ProgramError> {
        let mut of = std::mem::take(&mut self.pool);
        let mut cases = Vec::new();
        let mut covered = HashSet::new();
        loop {
            let gain = |edges: &HashSet<Edge>| edges.difference(&covered).count();
            // Of equal gains the earlier, and so the simpler.
            let best = (0..of.len()).rev().max_by_key(|&i| gain(&of[i].edges));
            let Some(best) = best.filter(|&i| gain(&of[i].edges) > 0 || cases.is_empty()) else { break };
            let Kept { case, edges } = of.swap_remove(best);
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
