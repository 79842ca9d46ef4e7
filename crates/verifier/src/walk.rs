// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The walk over all paths of a program, with pruning.
//!
//! ```text
//!   pending paths ──► one instruction after the other ──► end
//!        ▲                     │ branch: the other edge is pushed
//!        └─────────────────────┘ join point: within a verified state ──► pruned
//! ```
//!
//! States are saved at join points. A path is pruned if its state is within one from which all paths were verified
//! ([`within`](super::within)); it is refused if it returns to a state of its own unchanged.

use std::collections::HashMap;

use super::checkpoints::Checkpoint;
use super::live::Live;
use super::loops::Timed;
use super::number::Range;
use super::options::Options;
use super::origin::{Origin, Origins};
use super::path::{Next, Path};
use super::proof::{Known, Proof};
use super::refusal::{Refusal, Unsafe};
use super::route::Route;
use super::state::State;
use super::text;
use super::trips::{BackEdges, Loop};
use super::value::{Number, Value};
use flowloom_isa::Program;
use flowloom_isa::op::Op;

/// The most pending paths.
const MAX_PENDING: usize = 8192;
/// The least distance of checkpoints, so that straight code has none.
const APART: (u32, u32) = (8, 2);
/// Before this many instructions without a branch or join point a state is saved however near the last one is: a later
/// path would walk all of them before it meets another state.
const LONG_RUN: usize = 64;

/// The verification of a program.
pub(super) struct Walk<'p> {
    pub(super) program: &'p Program,
    pub(super) code: &'p [Option<Op>],
    pub(super) origins: Origins,
    pub(super) proof: Proof,
    joins: Vec<bool>,
    /// Instructions on a cycle of the control flow graph: the candidates for loop headers.
    repeated: Vec<bool>,
    back_edges: BackEdges,
    /// Join points before long runs of instructions.
    long: Vec<bool>,
    /// Static liveness.
    pub(super) live: Live,
    ids: u32,
    pub(super) checkpoints: Vec<Checkpoint>,
    pub(super) kept: HashMap<usize, Vec<u32>>,
    pending: Vec<Path>,
    /// Loops of which paths have stopped counting iterations.
    pub(super) timed: Timed,
    turns: Vec<(u32, u32)>,
    pub(super) options: Options,
    /// The global function that is walked separately, if any.
    pub(super) alone: Option<usize>,
    /// For each global function, whether it may move the packet.
    pub(super) moving: Vec<bool>,
    /// The depth of the current frame, for messages.
    pub(super) depth: usize,
    /// Instructions and jumps, calls and exits included, since the last checkpoint of any path: a path that begins at a
    /// branch saves its state soon, as in the kernel's verifier.
    pub(super) since: (u32, u32),
    /// The least distance of checkpoints in instructions and jumps.
    pub(super) apart: (u32, u32),
}

impl<'p> Walk<'p> {
    pub(super) fn new(program: &'p Program, code: &'p [Option<Op>], options: Options) -> Walk<'p> {
        let known = |op: &Option<Op>| Known { begins: op.is_some(), ..Known::default() };
        let proof = Proof { insns: code.iter().map(known).collect(), ..Proof::default() };
        let joins = joins(code);
        Walk {
            program,
            code,
            origins: Origins::default(),
            proof,
            long: before_long_runs(code, &joins),
            joins,
            repeated: super::loops::repeated(code),
            back_edges: BackEdges::of(code, |_, _| true),
            live: Live::of(code),
            ids: 0,
            checkpoints: Vec::new(),
            kept: HashMap::new(),
            pending: Vec::new(),
            timed: Timed::new(),
            turns: Vec::new(),
            options,
            alone: None,
            moving: super::globals::moving(program, code),
            depth: 0,
            since: (0, 0),
            apart: APART,
        }
    }

    /// Saves a state at every join point, so that small programs have more of them.
    #[cfg(test)]
    pub(super) fn keeping_all(mut self) -> Walk<'p> {
        self.apart = (0, 0);
        self
    }

    /// Whether a long run of instructions follows a join point.
    pub(super) fn is_before_long_run(&self, join: usize) -> bool {
        self.long.get(join).copied().unwrap_or(false)
    }

    pub(super) fn run(self) -> Result<Proof, Box<Refusal>> {
        self.run_from(State::first())
    }

    pub(super) fn run_from(mut self, state: State) -> Result<Proof, Box<Refusal>> {
        self.pending.push(Path::starting(state));
        while let Some(mut path) = self.pending.pop() {
            loop {
                let at = path.state.at;
                match self.one(&mut path) {
                    Ok(Next::At(next)) => {
                        self.follow(&mut path, at, next);
                        path.state.at = next;
                    }
                    Ok(Next::End) => break,
                    Err(what) => return Err(Box::new(self.refusal(&path, what))),
                }
            }
            self.ended(&path);
            self.close(path.parent);
        }
        self.proof.states = self.checkpoints.len();
        super::loops::keep_loops(&mut self.proof, self.code, &self.back_edges, &self.timed);
        Ok(self.proof)
    }

    /// Walks one instruction.
    fn one(&mut self, path: &mut Path) -> Result<Next, Unsafe> {
        let at = path.state.at;
        let is_again = std::mem::take(&mut path.is_again);
        if !is_again && self.joins.get(at).copied().unwrap_or(false) && self.meet(path)? {
            return Ok(Next::End);
        }
        if self.proof.processed == self.options.limit {
            return Err(Unsafe::TooLong { limit: self.options.limit });
        }
        self.proof.processed += 1;
        self.depth = path.depth();
        path.since.0 += 1;
        self.since.0 += 1;
        self.proof.insns[at].reached = true;
        // Every jump target was checked to be an instruction.
        let Some(op) = self.code.get(at).copied().flatten() else { return Ok(Next::End) };
        path.since.1 += u32::from(is_jump(op));
        self.since.1 += u32::from(is_jump(op));
        self.step(path, op)
    }

    /// Updates the trip counts.
    fn follow(&mut self, path: &mut Path, at: usize, next: usize) {
        let is_set = |of: &[bool]| of.get(next).copied().unwrap_or(false);
        if !is_set(&self.joins) || !is_set(&self.repeated) {
            return;
        }
        if path.is_again {
            // At the call that begins the next iteration, the loop around the call continues.
            return;
        }
        let to = Loop { depth: path.depth(), head: next };
        let is_back_edge = self.back_edges.are_taken(self.code, at, next);
        if let Some(trips) = path.trips.follow(is_back_edge, to) {
            self.record_trips(path.parent, to, trips);
        }
    }

    /// The path ends: records its trip counts.
    fn ended(&mut self, path: &Path) {
        for (which, trips) in path.trips.iter() {
            self.record_trips(path.parent, which, trips);
        }
    }

    /// The current function returns. Called again, its loops and iterations count anew.
    pub(super) fn leave(&mut self, path: &mut Path) {
        path.state.frames.pop();
        let depth = path.depth();
        path.begun.retain(|begun| begun.depth <= depth);
        for (which, trips) in path.trips.leave(depth) {
            self.record_trips(path.parent, which, trips);
        }
    }

    /// Pushes the other edge of a branch.
    pub(super) fn fork(&mut self, path: &Path, state: State, insn: usize, taken: bool) -> Result<(), Unsafe> {
        if self.pending.len() == MAX_PENDING {
            return Err(Unsafe::TooManyPaths { found: MAX_PENDING + 1, limit: MAX_PENDING });
        }
        let mut other = Path { state, ..path.clone() };
        let next = other.state.at;
        self.follow(&mut other, insn, next);
        self.turn(&mut other, insn, taken);
        self.opened(path.parent);
        self.pending.push(other);
        Ok(())
    }

    /// The path takes an edge of a branch.
    pub(super) fn turn(&mut self, path: &mut Path, insn: usize, taken: bool) {
        self.turns.push((path.turn, (insn as u32) << 1 | u32::from(taken)));
        path.turn = self.turns.len() as u32 - 1;
    }

    pub(super) fn id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    /// A number without relations, and with an origin of its own.
    pub(super) fn fresh(&mut self, range: Range) -> Value {
        Value::Number(Number::new(range, self.origins.fresh()))
    }

    /// A number computed from others.
    pub(super) fn made(&mut self, range: Range, one: Origin, other: Option<Origin>) -> Number {
        Number::new(range, self.origins.made_from(one, other))
    }

    pub(super) fn text_of(&self, value: &Value) -> String {
        text::value(self.program, self.depth, value)
    }

    pub(super) fn refusal(&self, path: &Path, what: Unsafe) -> Refusal {
        let (mut steps, mut turn) = (Vec::new(), path.turn);
        while let Some((before, this)) = self.turns.get(turn as usize) {
            steps.push(((this >> 1) as usize, this & 1 != 0));
            turn = *before;
        }
        steps.reverse();
        Route { program: self.program, code: self.code, state: &path.state, steps: &steps }.refusal(what)
    }
}

/// Whether an instruction belongs to the jump classes.
fn is_jump(op: Op) -> bool {
    use Op::{Branch, Call, CallKfunc, CallLocal, Exit, Jump, JumpLong, MayGoto};
    matches!(
        op,
        Branch { .. }
            | Jump { .. }
            | JumpLong { .. }
            | MayGoto { .. }
            | Call { .. }
            | CallLocal { .. }
            | CallKfunc { .. }
            | Exit
    )
}

/// Where states are compared and saved: branches, jump targets, and returns from calls.
fn joins(code: &[Option<Op>]) -> Vec<bool> {
    let mut joins = vec![false; code.len()];
    for (at, op) in code.iter().enumerate() {
        let Some(op) = op else { continue };
        let is_call = matches!(op, Op::Call { .. } | Op::CallLocal { .. });
        // As in the kernel: a path pruned at a branch saves both its edges.
        joins[at] |= matches!(op, Op::Branch { .. });
        let target = op.distance().map(|distance| at as i64 + 1 + distance);
        let marked = target.into_iter().chain(is_call.then_some(at as i64 + 1));
        for target in marked {
            if let Some(join) = usize::try_from(target).ok().and_then(|target| joins.get_mut(target)) {
                *join = true;
            }
        }
    }
    joins
}

/// The join points followed by at least [`LONG_RUN`] instructions up to the next join point or the end of the path.
fn before_long_runs(code: &[Option<Op>], joins: &[bool]) -> Vec<bool> {
    let mut long = vec![false; code.len()];
    let mut run = 0;
    for (at, op) in code.iter().enumerate().rev() {
        let Some(op) = op else { continue };
        run = if matches!(op, Op::Exit) { 1 } else { run + 1 };
        if joins[at] {
            long[at] = run >= LONG_RUN;
            run = 0;
        }
    }
    long
}
