// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control flow graph of a program, with loops unrolled and calls inlined.
//!
//! **Goal.** An acyclic graph of blocks that a packet enters at most once, with the reads and writes of each
//! instruction.
//!
//! ```text
//!   a: r1 += 1                 a, round 0: r1 += 1
//!      if r1 < 2 goto a   ►    a, round 1: r1 += 1
//!      exit                    exit
//! ```
//!
//! **Steps.** Visit the blocks in topological order, once per iteration of their loops and per call of their function.
//! On the way, label each load and store with its region (stack, packet, map) [eHDL 3.1], and remove branches with a
//! known outcome: those that unrolling decides, those that the proof decides, and bounds checks of the packet, which
//! framing replaces [eHDL 4.4]. Then merge each block with its only successor if it is that block's only predecessor.
//!
//! **Holds after.** Every edge leads to a block with a larger number; numbers are the layout order.
//!
//! **Limits.** No kernel functions, callbacks, tail calls, or unbounded loops.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use flowloom_ir::shape::{Shape, ends};
use flowloom_isa::Program;
use flowloom_isa::op::{Cond, Op, Reg, Width};
use flowloom_verifier::Proof;

use super::access::Access;
use super::refusal::{Reason, Refusal};
use super::value::{Frame, Iteration, Memory, State, Value};

/// Limit on visited instructions, loops unrolled.
const MAX_WALKED: usize = 40_000;

/// An instruction in one iteration of its loops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its first slot in the program.
    pub insn: usize,
    /// The operation.
    pub op: Op,
    /// The fused `mov`, which became its third operand.
    pub fused: Option<usize>,
    /// Its reads and writes.
    pub accesses: Vec<Access>,
    /// The number of stages that it takes.
    pub stages: u32,
}

/// A basic block.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    pub(super) steps: Vec<Step>,
    pub(super) successors: Vec<usize>,
}

/// The blocks of a program in topological order.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) blocks: Vec<Block>,
    /// Removed bounds checks.
    pub(super) checks: BTreeSet<usize>,
}

/// Unrolls a program.
pub(super) fn unrolled(program: &Program, proof: &Proof, stages: &dyn Fn(Op) -> u32) -> Result<Graph, Box<Refusal>> {
    let mut code = vec![None; program.insns.len()];
    for (at, known) in proof.insns.iter().enumerate() {
        if known.begins {
            code[at] = Op::decode(&program.insns, at).ok();
        }
    }
    let mut walk = Walk {
        program,
        proof,
        code,
        stages,
        shapes: HashMap::new(),
        waiting: BTreeMap::new(),
        blocks: Vec::new(),
        numbers: HashMap::new(),
        checks: BTreeSet::new(),
        walked: 0,
        at: 0,
    };
    let result = walk.run();
    let (at, checks) = (walk.at, walk.checks);
    result.map_err(|why| Box::new(Refusal::new(program, Some(at), why)))?;
    Ok(Graph { blocks: super::order::ordered(walk.blocks), checks })
}

struct Pending {
    at: usize,
    iterations: Vec<Iteration>,
    state: State,
}

/// A visited block with its sort key of addresses.
pub(super) struct Walked {
    pub(super) block: Block,
    pub(super) place: Vec<u32>,
}

pub(super) struct Walk<'a> {
    pub(super) program: &'a Program,
    pub(super) proof: &'a Proof,
    pub(super) stages: &'a dyn Fn(Op) -> u32,
    code: Vec<Option<Op>>,
    shapes: HashMap<usize, Rc<Function>>,
    waiting: BTreeMap<Vec<u32>, Pending>,
    blocks: Vec<Walked>,
    /// Block numbers by position.
    numbers: HashMap<Vec<u32>, usize>,
    checks: BTreeSet<usize>,
    walked: usize,
    at: usize,
}

/// Control flow of a function.
struct Function {
    shape: Shape,
    /// First instructions of loop heads, by their index in the block order.
    heads: HashMap<u32, usize>,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), Reason> {
        let mut frame = Frame::new(0, 0);
        frame.set_wire(Reg::R1, Value::Address(Memory::Context, Some(0)));
        let state = State { frames: vec![frame], head: Some(0), written: BTreeSet::new() };
        self.add_edge_to(&state, 0, &[])?;
        while let Some((position, arrival)) = self.waiting.pop_first() {
            self.at = arrival.at;
            self.walk(&position, arrival)?;
        }
        Ok(())
    }

    fn function(&mut self, entry: usize) -> Result<Rc<Function>, Reason> {
        if let Some(known) = self.shapes.get(&entry) {
            return Ok(Rc::clone(known));
        }
        let (code, proof) = (&self.code, self.proof);
        let is_way = |from: usize, to: usize| match code.get(from).copied().flatten() {
            Some(Op::Branch { off, .. }) if off != 0 => {
                let edges = proof.insns[from].edges;
                if to == from + 1 { edges.falls } else { edges.jumps }
            }
            _ => true,
        };
        let shape = Shape::of(code, entry, is_way).map_err(|two| Reason::TwoEntries(two.entries[0], two.entries[1]))?;
        let spots = (0..code.len()).filter_map(|at| Some((shape.spot(at)?, at)));
        let heads = spots.filter(|(spot, _)| spot.nest.last() == Some(&spot.order)).map(|(spot, at)| (spot.order, at));
        let heads = heads.collect();
        let function = Rc::new(Function { shape, heads });
        self.shapes.insert(entry, Rc::clone(&function));
        Ok(function)
    }

    /// Adds an edge to a block of the running function from a block in these loop iterations; returns the block's
    /// number.
    fn add_edge_to(&mut self, state: &State, to: usize, iterations: &[Iteration]) -> Result<Option<usize>, Reason> {
        let function = self.function(state.frame().entry)?;
        let Some(spot) = function.shape.spot(to) else {
            return Err(Reason::Other(format!("instruction {to} does not start a block")));
        };
        let mut inside: Vec<Iteration> = Vec::new();
        let mut is_within = true;
        for (depth, order) in spot.nest.iter().enumerate() {
            let known = iterations.get(depth).filter(|other| is_within && other.order == *order);
            is_within = known.is_some();
            let round = match known {
                Some(known) if spot.order == *order => known.round + 1,
                Some(known) => known.round,
                None => 0,
            };
            let head = function.heads.get(order).copied().unwrap_or(to);
            inside.push(Iteration { order: *order, head, round });
        }
        if let Some(innermost) = inside.last()
            && innermost.order == spot.order
        {
            match self.proof.loops.get(&to) {
                // The trip count is exhausted: no path takes the back edge again.
                Some(Some(most)) if u64::from(innermost.round) > *most => return Ok(None),
                Some(None) if innermost.round > 0 => {
                    self.at = to;
                    return Err(Reason::Unbounded);
                }
                _ => {}
            }
        }
        let (mut position, mut place) = (state.frame().position.clone(), state.frame().place.clone());
        for round in &inside {
            position.extend([round.order, round.round]);
            place.extend([round.head as u32, round.round]);
        }
        position.push(spot.order);
        place.push(to as u32);
        let next = self.blocks.len();
        let number = *self.numbers.entry(position.clone()).or_insert(next);
        if number == next {
            self.blocks.push(Walked { block: Block::default(), place });
        }
        match self.waiting.get_mut(&position) {
            Some(known) => known.state.join(state),
            None => {
                self.waiting.insert(position, Pending { at: to, iterations: inside, state: state.clone() });
            }
        }
        Ok(Some(number))
    }

    fn walk(&mut self, position: &[u32], arrival: Pending) -> Result<(), Reason> {
        let Pending { at: mut slot, iterations, mut state } = arrival;
        let number = self.numbers[position];
        let function = self.function(state.frame().entry)?;
        loop {
            self.at = slot;
            self.walked += 1;
            if self.walked > MAX_WALKED {
                return Err(Reason::TooLong(MAX_WALKED));
            }
            let Some(op) = self.code.get(slot).copied().flatten() else {
                return Err(Reason::Other(format!("no instruction at {slot}")));
            };
            let next = slot + op.slots();
            let target = op.distance().and_then(|distance| usize::try_from(slot as i64 + 1 + distance).ok());
            let successors: Vec<usize> = match op {
                Op::Exit => {
                    let Some((iterations, return_to)) = state.frame().return_to.clone() else {
                        self.push(number, &mut state, slot, op)?;
                        return Ok(());
                    };
                    let result = state.frame().registers[0];
                    state.frames.pop();
                    state.frame_mut().after_call(result);
                    return self.add_edge(number, &state, return_to, &iterations);
                }
                Op::CallLocal { .. } => {
                    let entry = target.unwrap_or_default();
                    let mut frame = Frame::new(state.depth() + 1, entry);
                    frame.registers[1..6].copy_from_slice(&state.frame().registers[1..6]);
                    frame.wires[1..6].copy_from_slice(&state.frame().wires[1..6]);
                    frame.position = position.to_vec();
                    frame.place = self.blocks[number].place.clone();
                    frame.return_to = Some((iterations, next));
                    state.frames.push(frame);
                    return self.add_edge(number, &state, entry, &[]);
                }
                Op::Jump { .. } | Op::JumpLong { .. } => target.into_iter().collect(),
                // The loops that it would limit have their own bound.
                Op::MayGoto { .. } => vec![next],
                Op::Branch { .. } => self.branch(number, &mut state, slot, op, [Some(next), target])?,
                _ => {
                    self.push(number, &mut state, slot, op)?;
                    vec![next]
                }
            };
            if let ([only], false) = (successors.as_slice(), ends(op))
                && function.shape.spot(*only).is_none()
            {
                slot = *only;
                continue;
            }
            for successor in successors {
                self.add_edge(number, &state, successor, &iterations)?;
            }
            return Ok(());
        }
    }

    /// Adds an edge from a block.
    fn add_edge(&mut self, from: usize, state: &State, to: usize, iterations: &[Iteration]) -> Result<(), Reason> {
        if let Some(to) = self.add_edge_to(state, to, iterations)?
            && !self.blocks[from].block.successors.contains(&to)
        {
            self.blocks[from].block.successors.push(to);
        }
        Ok(())
    }

    fn push(&mut self, number: usize, state: &mut State, at: usize, op: Op) -> Result<(), Reason> {
        if let Some(step) = self.step(state, at, op)? {
            self.blocks[number].block.steps.push(step);
        }
        Ok(())
    }

    /// Successors of a branch, out of fall-through and target; it becomes a step if both are possible.
    fn branch(
        &mut self,
        number: usize,
        state: &mut State,
        at: usize,
        op: Op,
        [falls, jumps]: [Option<usize>; 2],
    ) -> Result<Vec<usize>, Reason> {
        let Op::Branch { width, cond, dst, src, .. } = op else { return Ok(Vec::new()) };
        let known = self.proof.insns[at].edges;
        let (a, b) = (state.frame().get(dst), state.frame().value(src));
        let decided = match (known.jumps, known.falls) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ => match within_bounds(a, cond, b) {
                Some(jumps) => {
                    self.checks.insert(at);
                    Some(jumps)
                }
                None => compared(width, a, cond, b),
            },
        };
        if falls == jumps {
            return Ok(falls.into_iter().collect());
        }
        match decided {
            Some(jumps_always) => Ok(if jumps_always { jumps } else { falls }.into_iter().collect()),
            None => {
                self.push(number, state, at, op)?;
                Ok(falls.into_iter().chain(jumps).collect())
            }
        }
    }
}

/// Outcome of a bounds check of the packet under the assumption that the checked bytes are present.
fn within_bounds(a: Value, cond: Cond, b: Value) -> Option<bool> {
    let is_packet = |value| matches!(value, Value::Address(Memory::Packet, _));
    let is_end = |value| value == Value::PacketEnd;
    if is_packet(a) && is_end(b) {
        match cond {
            Cond::Gt | Cond::Ge => Some(false),
            Cond::Lt | Cond::Le => Some(true),
            _ => None,
        }
    } else if is_end(a) && is_packet(b) {
        match cond {
            Cond::Lt | Cond::Le => Some(false),
            Cond::Gt | Cond::Ge => Some(true),
            _ => None,
        }
    } else {
        None
    }
}

/// Outcome of a branch on two constants.
fn compared(width: Width, a: Value, cond: Cond, b: Value) -> Option<bool> {
    let (Value::Number(a), Value::Number(b)) = (a, b) else { return None };
    let is_wide = width == Width::W64;
    let (a, b) = if is_wide { (a, b) } else { (a & 0xffff_ffff, b & 0xffff_ffff) };
    let (x, y) = if is_wide { (a as i64, b as i64) } else { (i64::from(a as i32), i64::from(b as i32)) };
    Some(match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Gt => a > b,
        Cond::Ge => a >= b,
        Cond::Lt => a < b,
        Cond::Le => a <= b,
        Cond::Set => a & b != 0,
        Cond::Sgt => x > y,
        Cond::Sge => x >= y,
        Cond::Slt => x < y,
        Cond::Sle => x <= y,
    })
}
