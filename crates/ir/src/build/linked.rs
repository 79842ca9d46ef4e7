// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program and the targets of its tail calls, linked into one sequence of instructions.
//!
//! ```text
//!   0 ‥ 19    the program; `call tail_call` at 12 continues after itself, at 20 or at 31
//!   20 ‥ 30   the first program of its object
//!   31 ‥ 44   the second one
//! ```
//!
//! The contents of a program array are known only at run time: any of the programs, or none. Each target is inlined at
//! the call, in the frame of the caller.
//!
//! A program that replaces the outermost frame does not return, so all paths that enter it by as many tail calls meet
//! there: chains of tail calls grow by their length, not by the number of sequences. In the frame of a function each
//! sequence is followed by itself.

use flowloom_isa::insn::helper;
use flowloom_isa::limits::MAX_TAIL_CALLS;
use flowloom_isa::op::Op;
use flowloom_isa::{Insn, Program, Sibling};
use flowloom_verifier::{Options, Proof, verify};

use super::builder::{Builder, MAX_CHOICES};
use super::state::{Frame, Place, Region, State, Value, address, leak, mixed, places};
use crate::bdd::Bdd;
use crate::dataflow::{Argument, Pattern};
use crate::graph::{Compare, Effect, Id};
use crate::refusal::{Reason, Refusal};

/// The first part of the position of a program that replaces the outermost frame: after all blocks of the program that
/// the packet entered.
const AFTER_ALL: u32 = u32::MAX;

pub(super) struct Linked {
    pub(super) code: Vec<Option<Op>>,
    pub(super) proof: Proof,
    /// The entry of each sibling.
    pub(super) entries: Vec<usize>,
}

impl Linked {
    /// Links a program with its siblings if it makes tail calls.
    pub(super) fn of(program: &Program, proof: &Proof) -> Result<Linked, Reason> {
        let code = decoded(&program.insns, proof);
        let mut linked = Linked { code, proof: proof.clone(), entries: Vec::new() };
        let calls = |op: &Option<Op>| matches!(op, Some(Op::Call { helper: helper::TAIL_CALL }));
        if !linked.code.iter().any(calls) {
            return Ok(linked);
        }
        for sibling in program.siblings.iter() {
            let own = as_program(program, sibling);
            let proof = verify(&own, &Options::default()).map_err(|_| Reason::Sibling(sibling.name.clone()))?;
            let first = linked.code.len();
            linked.entries.push(first);
            linked.code.extend(decoded(&own.insns, &proof));
            linked.proof.insns.extend(proof.insns);
            linked.proof.loops.extend(proof.loops.into_iter().map(|(at, most)| (first + at, most)));
        }
        Ok(linked)
    }

    /// A refusal at an instruction of one of the programs.
    pub(super) fn refusal(&self, program: &Program, at: usize, why: Reason) -> Refusal {
        let before = self.entries.iter().rposition(|entry| *entry <= at);
        match before.and_then(|number| program.siblings.get(number).map(|sibling| (self.entries[number], sibling))) {
            Some((first, sibling)) => Refusal::new(&as_program(program, sibling), Some(at - first), why),
            None => Refusal::new(program, Some(at), why),
        }
    }
}

/// A sibling as a program of its own, on the same maps.
fn as_program(program: &Program, sibling: &Sibling) -> Program {
    Program {
        name: sibling.name.clone(),
        section: sibling.section.clone(),
        insns: sibling.insns.clone(),
        lines: sibling.lines.clone(),
        maps: program.maps.clone(),
        siblings: program.siblings.clone(),
        ..Program::default()
    }
}

fn decoded(insns: &[Insn], proof: &Proof) -> Vec<Option<Op>> {
    let mut code = vec![None; insns.len()];
    for (at, _) in proof.insns.iter().enumerate().filter(|(_, known)| known.begins) {
        code[at] = Op::decode(insns, at).ok();
    }
    code
}

impl Builder<'_> {
    /// The number of the program that a tail call leads to, or 0. Where paths give it different tables, each is looked
    /// up under the condition of its paths.
    fn looked_up(&mut self, path: Bdd, state: &State) -> Result<Id, Reason> {
        let tables = places(self.argument(state, 2))?;
        if tables.len() > MAX_CHOICES {
            return Err(Reason::SeveralMaps { found: tables.len(), most: MAX_CHOICES });
        }
        let mut found: Vec<(Bdd, Id)> = Vec::new();
        for (condition, place) in tables.iter() {
            let Region::Map(map) = place.region else { return Err(leak()) };
            let here = self.conditions.and(path, *condition);
            if here == Bdd::FALSE {
                continue;
            }
            // The index is simplified under the condition of these paths.
            let outer = std::mem::replace(&mut self.path, here);
            let index = self.number_argument(state, 3);
            self.path = outer;
            let bit = self.conditions.node(&mut self.graph, here);
            let arguments = vec![Argument::Map(map), Argument::Number];
            let pattern = self.pattern(Pattern { helper: helper::TAIL_CALL, arguments });
            let call = self.graph.effect(Effect::Call { helper: helper::TAIL_CALL, pattern }, vec![bit, index?], 64);
            found.push((*condition, call));
        }
        if found.is_empty() {
            return Err(mixed());
        }
        Ok(self.mux(&found, path))
    }

    /// Continues in another program, or after the call if there is none.
    pub(super) fn tail_call(
        &mut self,
        path: Bdd,
        mut state: State,
        back: usize,
        iterations: &[(u32, u32)],
        position: &[u32],
    ) -> Result<(), Reason> {
        self.first_tail_call.get_or_insert(self.at);
        let call = self.looked_up(path, &state)?;
        let (fewest, most) = state.tail_calls;
        if fewest < MAX_TAIL_CALLS && most >= MAX_TAIL_CALLS {
            return Err(Reason::TailCalls(MAX_TAIL_CALLS));
        }
        let entries = if most < MAX_TAIL_CALLS { self.linked.entries.as_slice() } else { &[] };
        let mut rest = path;
        for (number, entry) in (1..).zip(entries) {
            let one = self.graph.number(number.into(), 64);
            let is_it = self.graph.compare(Compare::Equal, call, one);
            let is_it = self.conditions.of(&self.graph, is_it);
            let (here, not) = (self.conditions.and(rest, is_it), self.conditions.not(is_it));
            rest = self.conditions.and(rest, not);
            let mut other = state.clone();
            let caller = other.frame().clone();
            let mut frame = Frame::new(*entry, caller.back);
            (frame.again, frame.iterations) = (caller.again, caller.iterations);
            frame.position = match state.frames.len() {
                1 => vec![AFTER_ALL, most + 1, number],
                _ => [position, &[number]].concat(),
            };
            frame.registers[1] = address(Place::of(Region::Context));
            *other.frame_mut() = frame;
            other.tail_calls = (fewest + 1, most + 1);
            self.arrive(here, other, *entry, &[])?;
        }
        for number in 0..=5 {
            state.frame_mut().registers[number] = Value::Nothing;
        }
        self.arrive(rest, state, back, iterations)
    }
}
