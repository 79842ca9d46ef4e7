//! Walks every path of a program, as far as none says what another has said already.
//!
//! ```text
//!   pending paths ──► one instruction after the other ──► end
//!        ▲                     │ branch: the other way waits
//!        └─────────────────────┘ join: within a state that was found safe ──► end
//! ```
//!
//! States are kept where paths meet. A path ends where its state is within one from which all paths have ended well
//! ([`within`](super::within)); it is refused where it comes back to a state of its own with nothing changed.

use std::collections::HashMap;

use super::Options;
use super::checkpoints::Checkpoint;
use super::cycles::Timed;
use super::live::Live;
use super::marks::{Marks, Place};
use super::number::Range;
use super::origin::{Origin, Origins};
use super::proof::{Known, Proof};
use super::refusal::{Refusal, Unsafe};
use super::rounds::Begun;
use super::route::Way;
use super::state::State;
use super::text;
use super::trips::{Loop, Trips};
use super::value::{Number, Value};
use crate::op::{Op, Reg};
use crate::program::Program;

/// No checkpoint, no turn.
pub(super) const NONE: u32 = u32::MAX;
/// Paths that may wait.
const MAX_PENDING: usize = 8192;
/// How far states are kept apart, so that straight code keeps none.
const APART: (u32, u32) = (8, 2);
/// Where this many instructions follow without a branch or a join, a state is kept however near the last one is: a path that comes
/// there later would walk all of them again before it meets another state.
const LONG_RUN: usize = 64;

/// Where a path goes on.
pub(super) enum Next {
    At(usize),
    End,
}

/// One path that is being walked.
#[derive(Debug, Clone)]
pub(super) struct Path {
    pub(super) state: State,
    /// The last state of it that was kept.
    pub(super) parent: u32,
    /// What was written since.
    pub(super) written: Marks,
    /// Its last branch.
    turn: u32,
    /// How often it has come back to the loops that it is in.
    pub(super) trips: Trips,
    /// Instructions and jumps since a state of it was kept.
    pub(super) since: (u32, u32),
    /// How many rounds have begun of what the kernel bounds, not the program.
    pub(super) rounds: u64,
    /// Where the last of them began.
    pub(super) begun: Vec<Begun>,
    /// It comes to a call again that begins the next round.
    pub(super) is_again: bool,
}

/// The verification of one program.
pub(super) struct Walk<'p> {
    pub(super) program: &'p Program,
    pub(super) code: &'p [Option<Op>],
    pub(super) origins: Origins,
    pub(super) proof: Proof,
    /// Instructions that several lead to.
    joins: Vec<bool>,
    /// Instructions on a cycle of the code: only these can be heads of loops.
    repeated: Vec<bool>,
    /// Joins before long runs of instructions.
    long: Vec<bool>,
    /// Registers that may be read.
    pub(super) live: Live,
    ids: u32,
    pub(super) checkpoints: Vec<Checkpoint>,
    pub(super) kept: HashMap<usize, Vec<u32>>,
    pending: Vec<Path>,
    /// Loops of which paths have stopped counting the rounds.
    pub(super) timed: Timed,
    turns: Vec<(u32, u32)>,
    pub(super) options: Options,
    /// The global function that is walked by itself, if one is.
    pub(super) alone: Option<usize>,
    /// For each global function, whether it may move the packet.
    pub(super) moving: Vec<bool>,
    /// How deep the function runs that is looked at, for what is said of it.
    pub(super) depth: usize,
    /// Instructions and jumps, calls and exits included, since a state was kept, on any path: a path that begins at a fork keeps
    /// its state soon, as in the kernel's verifier.
    pub(super) since: (u32, u32),
    /// States are kept no nearer to each other than this, in instructions and in jumps.
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
            repeated: super::cycles::repeated(code),
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

    /// Keeps a state at every join, so that small programs meet more of them.
    #[cfg(test)]
    pub(super) fn keeping_all(mut self) -> Walk<'p> {
        self.apart = (0, 0);
        self
    }

    /// Whether a long run of instructions follows a join.
    pub(super) fn is_before_long_run(&self, join: usize) -> bool {
        self.long.get(join).copied().unwrap_or(false)
    }

    /// Walks all paths.
    pub(super) fn run(self) -> Result<Proof, Box<Refusal>> {
        self.run_from(State::first())
    }

    /// Walks all paths from a state.
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
        super::cycles::keep_loops(&mut self.proof, self.code, &self.timed);
        Ok(self.proof)
    }

    /// Walks one instruction.
    fn one(&mut self, path: &mut Path) -> Result<Next, Unsafe> {
        let at = path.state.at;
        let is_again = std::mem::take(&mut path.is_again);
        if !is_again && self.joins.get(at).copied().unwrap_or(false) && self.meet(path)? {
            return Ok(Next::End);
        }
        if self.proof.looked_at == self.options.limit {
            return Err(Unsafe::TooLong { limit: self.options.limit });
        }
        self.proof.looked_at += 1;
        self.depth = path.depth();
        path.since.0 += 1;
        self.since.0 += 1;
        self.proof.insns[at].reached = true;
        // The check before has seen that every jump leads to an instruction.
        let Some(op) = self.code.get(at).copied().flatten() else { return Ok(Next::End) };
        path.since.1 += u32::from(is_jump(op));
        self.since.1 += u32::from(is_jump(op));
        self.step(path, op)
    }

    /// Counts how often loops are gone round.
    fn follow(&mut self, path: &mut Path, at: usize, next: usize) {
        let is_set = |of: &[bool]| of.get(next).copied().unwrap_or(false);
        if !is_set(&self.joins) || !is_set(&self.repeated) {
            return;
        }
        if path.is_again {
            // The call that begins the next round: its own loop, if it is in one, goes on.
            return;
        }
        let to = Loop { depth: path.depth(), head: next };
        if let Some(trips) = path.trips.follow(at, self.code.get(at).copied().flatten(), to) {
            self.gone_round(path.parent, to, trips);
        }
    }

    /// The path has ended: so often it has gone round the loops that it was in.
    fn ended(&mut self, path: &Path) {
        for (which, trips) in path.trips.iter() {
            self.gone_round(path.parent, which, trips);
        }
    }

    /// The running function ends. Called again, its loops and its rounds are counted anew.
    pub(super) fn leave(&mut self, path: &mut Path) {
        path.state.frames.pop();
        let depth = path.depth();
        path.begun.retain(|begun| begun.depth <= depth);
        for (which, trips) in path.trips.leave(depth) {
            self.gone_round(path.parent, which, trips);
        }
    }

    /// Another way out of a branch, to be walked later.
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

    /// The path takes one way out of a branch.
    pub(super) fn turn(&mut self, path: &mut Path, insn: usize, taken: bool) {
        self.turns.push((path.turn, (insn as u32) << 1 | u32::from(taken)));
        path.turn = self.turns.len() as u32 - 1;
    }

    /// A new name for what values have in common.
    pub(super) fn id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    /// A number that comes from nowhere.
    pub(super) fn fresh(&mut self, range: Range) -> Value {
        Value::Number(Number::new(range, self.origins.fresh()))
    }

    /// A number made from others.
    pub(super) fn made(&mut self, range: Range, one: Origin, other: Option<Origin>) -> Number {
        Number::new(range, self.origins.made_from(one, other))
    }

    /// A value as people read it.
    pub(super) fn said(&self, value: &Value) -> String {
        text::value(self.program, self.depth, value)
    }

    pub(super) fn refusal(&self, path: &Path, what: Unsafe) -> Refusal {
        let (mut steps, mut turn) = (Vec::new(), path.turn);
        while let Some((before, this)) = self.turns.get(turn as usize) {
            steps.push(((this >> 1) as usize, this & 1 != 0));
            turn = *before;
        }
        steps.reverse();
        Way { program: self.program, code: self.code, state: &path.state, steps: &steps }.refusal(what)
    }
}

impl Path {
    /// A path that has gone nowhere yet.
    pub(super) fn starting(state: State) -> Path {
        Path {
            state,
            parent: NONE,
            written: Marks::default(),
            turn: NONE,
            trips: Trips::default(),
            since: (0, 0),
            rounds: 0,
            begun: Vec::new(),
            is_again: false,
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.state.depth()
    }

    /// A register of the running function gets a value.
    pub(super) fn set(&mut self, register: Reg, value: Value) {
        let number = usize::from(register.number());
        self.written.add(Place::Register { frame: self.depth(), number });
        self.state.frame_mut().registers[number] = value;
    }

    /// A whole slot is written.
    pub(super) fn overwritten(&mut self, place: Place) {
        self.written.add(place);
    }

    /// A function begins in the running frame.
    pub(super) fn entered(&mut self) {
        let frame = self.depth();
        self.written.add_frame(frame);
    }
}

/// Whether an instruction is one of the classes for jumps.
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

/// Where states are compared and kept: branches, what jumps lead to, and what lies behind calls.
fn joins(code: &[Option<Op>]) -> Vec<bool> {
    let mut joins = vec![false; code.len()];
    for (at, op) in code.iter().enumerate() {
        let Some(op) = op else { continue };
        let is_call = matches!(op, Op::Call { .. } | Op::CallLocal { .. });
        // As the kernel does: a path that ends at a branch saves both its ways.
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

/// The joins that at least [`LONG_RUN`] instructions follow, up to the next join or the end of the path.
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
