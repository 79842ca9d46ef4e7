// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Coverage-guided generation of packets and states for a program, from its code alone.
//!
//! Goal: execute as many of its instructions as possible, so that a comparison of engines is evidence. Steps, repeated
//! until everything is reached or the tries are used up:
//!
//! ```text
//!  frames of all headers ─┐
//!  captures ──────────────┴─► run ──► trail ──► a jump took one edge only ─► which bytes move its operands? set them
//!                              ▲                a lookup missed          ──► put the key into the map
//!                              │                                              │
//!                              └── kept, as it took the jump's other edge ◄───┘     and blind changes in between
//! ```
//!
//! The input is everything a user can choose: the constants that are set before a program is loaded, the contents of
//! its maps, the packets with their ports and times. Afterwards [`Explored::cases`] holds a small set of small cases
//! with the same coverage; the coverage reported is that of a new run of these cases. The same seed gives the same
//! cases.
//!
//! Limits: results that no input determines (of some helpers) cannot be chosen; checksums over many bytes are met only
//! by chance.

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
pub use unreached::{Gap, GapReason};
use vary::Dictionary;

/// Range of frame lengths that every engine takes.
const FRAME_BYTES: std::ops::RangeInclusive<usize> = flowloom_exec::MIN_FRAME_BYTES..=flowloom_exec::MAX_FRAME_BYTES;

/// Instruction budget that does not depend on the number of tries: a few seconds.
const MIN_INSTRUCTIONS: u64 = 1 << 27;

const TRIES_PER_REPORT: u64 = 64;

/// Instruction budget per try: a search whose runs take more on average ends early.
const INSTRUCTIONS_PER_TRY: u64 = 2_000;

/// Options of a search.
#[derive(Debug, Clone)]
pub struct ExploreOptions {
    /// Seed of everything random.
    pub seed: u64,
    /// Maximum number of cases that are run.
    pub tries: u64,
    /// Initial packets, in addition to the generated ones.
    pub packets: Vec<Arrival>,
    /// Routes and interfaces for `fib_lookup` and `check_mtu`; without them there is no interface.
    pub routes: Option<fib::Table>,
}

impl Default for ExploreOptions {
    fn default() -> ExploreOptions {
        ExploreOptions { seed: 0, tries: 200_000, packets: Vec::new(), routes: None }
    }
}

/// Result of a search.
#[derive(Debug, Clone)]
pub struct Explored {
    /// A small set of cases with the coverage of all cases that were run.
    pub cases: Vec<Case>,
    /// For each slot of the program, true if these cases run it.
    pub reached: Vec<bool>,
    /// Instructions that no case reached, with the reasons.
    pub gaps: Vec<Gap>,
    /// Number of runs.
    pub tries: u64,
    /// Faults that stopped the program; none where a verifier has accepted it.
    pub faults: BTreeMap<String, FaultingCases>,
    /// Number of states that could not be restored, by reason.
    pub restore_errors: BTreeMap<String, u64>,
}

/// Cases that a fault stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultingCases {
    /// Number of cases.
    pub times: u64,
    /// The first of them.
    pub case: Case,
}

/// Progress of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExploreProgress {
    /// Number of cases that have been run.
    pub tries: u64,
    /// Number of slots of the program that they reach.
    pub reached: usize,
    /// Number of slots of the program.
    pub slots: usize,
}

impl Explored {
    /// Number of slots reached, and number of slots.
    pub fn share(&self) -> (usize, usize) {
        (self.reached.iter().filter(|&&slot| slot).count(), self.reached.len())
    }
}

/// Searches for cases that reach as much of `program` as possible.
///
/// # Errors
/// The program cannot be run at all.
///
/// # Cost
/// `options.tries` runs of the interpreter, fewer where everything is reached early.
pub fn explore(program: &Arc<Program>, options: &ExploreOptions) -> Result<Explored, ProgramError> {
    explore_with_progress(program, options, &mut |_| {})
}

/// Like [`explore`]; calls `progress` periodically.
///
/// # Errors
/// The program cannot be run at all.
pub fn explore_with_progress(
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
        if search.is_budget_exhausted() {
            break;
        }
        search.attempt(Case { packets: vec![packet], ..Case::default() })?;
    }
    search.constants()?;
    let mut next_case = 0;
    while !search.is_over() {
        match search.pool.get(next_case).map(|kept| kept.case.clone()) {
            Some(case) => {
                search.apply_directed_changes(&case)?;
                next_case += 1;
            }
            None => search.mutate_randomly()?,
        }
    }
    search.finish()
}

/// A case that took a new edge.
struct PoolEntry {
    case: Case,
    /// All edges that it took.
    edges: HashSet<Edge>,
}

struct Search<'p> {
    runner: Runner,
    rng: Rng,
    dictionary: Dictionary,
    /// Every case that took a new edge.
    pool: Vec<PoolEntry>,
    /// Number of attempts to steer towards each edge.
    steered: HashMap<Edge, u32>,
    /// Keys that were inserted into maps because a lookup missed.
    added: HashSet<(usize, Vec<u8>)>,
    tries: u64,
    /// Number of runs when the last new edge was found.
    last_found: u64,
    /// True if every slot has been run.
    is_complete: bool,
    progress: &'p mut dyn FnMut(ExploreProgress),
}

impl Search<'_> {
    fn instruction_budget(&self) -> u64 {
        self.tries.saturating_mul(INSTRUCTIONS_PER_TRY)
    }

    fn is_budget_exhausted(&self) -> bool {
        let is_too_slow = self.runner.executed() > self.instruction_budget().max(MIN_INSTRUCTIONS);
        self.runner.runs >= self.tries || is_too_slow
    }

    fn is_over(&self) -> bool {
        let runs = self.runner.runs;
        // No new edge for long, and no case left to work on: more random changes are unlikely to help.
        let max_idle_runs = if self.is_complete { self.tries / 20 } else { self.tries / 4 };
        let is_slow = self.runner.executed() > self.instruction_budget();
        self.is_budget_exhausted() || runs - self.last_found > max_idle_runs || is_slow || self.pool.is_empty()
    }

    /// Runs a case; where the budget is used up, returns `None`, as for a case that could not be run to its end.
    fn run(&mut self, case: &Case, see: impl FnMut(usize, &Trail)) -> Result<Option<bool>, ProgramError> {
        if self.is_budget_exhausted() {
            return Ok(None);
        }
        let ran = self.runner.run(case, see)?;
        if self.runner.runs.is_multiple_of(TRIES_PER_REPORT) {
            let slots = self.runner.slots();
            let (reached, slots) = (slots.iter().filter(|&&slot| slot).count(), slots.len());
            (self.progress)(ExploreProgress { tries: self.runner.runs, reached, slots });
        }
        Ok(ran)
    }

    /// Runs a case and keeps it if it took a new edge.
    fn attempt(&mut self, mut case: Case) -> Result<bool, ProgramError> {
        for packet in &mut case.packets {
            let len = packet.bytes.len().clamp(*FRAME_BYTES.start(), *FRAME_BYTES.end());
            packet.bytes.resize(len, 0);
        }
        self.runner.set_per_cpu(&mut case);
        let ran = self.run(&case, |_, _| ())?;
        let is_new = ran == Some(true);
        // The first case is always kept: a program without a jump has no edges.
        if is_new || ran.is_some() && self.pool.is_empty() {
            self.keep(case);
        }
        Ok(is_new)
    }

    /// Keeps a case that was just run and took a new edge.
    fn keep(&mut self, mut case: Case) {
        self.runner.set_per_cpu(&mut case);
        self.last_found = self.runner.runs;
        self.is_complete = self.runner.slots().iter().all(|&slot| slot);
        self.pool.push(PoolEntry { case, edges: self.runner.last_edges().clone() });
    }

    /// Greedy set cover over the kept cases, largest gain first, and its coverage.
    fn finish(mut self) -> Result<Explored, ProgramError> {
        let mut of = std::mem::take(&mut self.pool);
        let mut cases = Vec::new();
        let mut covered = HashSet::new();
        loop {
            let gain = |edges: &HashSet<Edge>| edges.difference(&covered).count();
            // Of equal gains the earlier, and so simpler, case.
            let best = (0..of.len()).rev().max_by_key(|&i| gain(&of[i].edges));
            let Some(best) = best.filter(|&i| gain(&of[i].edges) > 0 || cases.is_empty()) else { break };
            let PoolEntry { case, edges } = of.swap_remove(best);
            covered.extend(edges);
            cases.push(case);
        }
        let mut again = Runner::new(Arc::clone(&self.runner.program), self.runner.routes.clone())?;
        let mut observations = unreached::Observations::default();
        for case in &cases {
            again.run(case, |_, trail| observations.add(trail))?;
        }
        let reached = again.slots().to_vec();
        Ok(Explored {
            gaps: unreached::gaps(&self.runner.program, &reached, &observations),
            reached,
            cases,
            tries: self.runner.runs,
            faults: self.runner.faults,
            restore_errors: self.runner.restore_errors,
        })
    }
}
