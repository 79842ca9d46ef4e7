// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Construction of dataflow from a verified program.
//!
//! **Goal.** One SSA value for each result on any path, and one predicated effect for each effect.
//!
//! ```text
//!   if r1 > 9 goto small        v4 = below 9 v3
//!   r2 = 1                      (r2 is 1 if not v4)
//!   goto join
//!   small: r2 = 7               (r2 is 7 if v4)
//!   join: r0 = r2               v5 = select v4 7 1
//! ```
//!
//! **Steps.** Blocks are walked in topological order, loops unrolled, calls inlined. The states of all paths that
//! arrive at a block are joined under their path conditions, and the block is walked once.
//!
//! Helpers that call functions of the program, and tail calls, are followed like function calls.
//!
//! **Limits.** No kernel functions, no loops without a bound, and the other reasons of [`Reason`].

mod atomic;
mod builder;
mod call;
mod callback;
mod dominators;
mod effect;
mod flow;
mod headers;
mod join;
mod linked;
mod memory;
mod metadata;
mod offset;
mod packet;
mod reach;
mod record;
mod simplify;
mod state;
mod step;
mod tail;

use std::collections::BTreeMap;
use std::rc::Rc;

use flowloom_isa::op::Op;
use flowloom_isa::{Program, helpers};
use flowloom_verifier::Proof;
use rustc_hash::FxHashMap;

use crate::bdd::{Bdd, Conditions};
use crate::dataflow::{Dataflow, Ending, Table};
use crate::graph::{Effect, Graph, Id, Input, Kind};
use crate::live::Live;
use crate::pass;
use crate::refusal::{Reason, Refusal};
use crate::shape::Shape;
use crate::validate::Invalid;
use builder::{Arrival, Builder, LIMITS, Limits, Path, Reached};
use dominators::Blocks;
use flow::{Edge, Flow};
use headers::Headers;
use linked::Linked;
use offset::OFFSET_BITS;
use state::{Frame, Place, Region, State, Value};

/// Builds the dataflow of a verified program.
///
/// # Errors
/// The reason why there is none, with its place.
///
/// # Panics
/// In builds with debug assertions, if the dataflow is not well-formed ([`Dataflow::validate`]).
pub fn build(program: &Program, proof: &Proof) -> Result<Dataflow, Box<Refusal>> {
    build_within(program, proof, LIMITS)
}

fn build_within(program: &Program, proof: &Proof, limits: Limits) -> Result<Dataflow, Box<Refusal>> {
    let linked = Linked::of(program, proof).map_err(|why| Box::new(Refusal::new(program, Some(0), why)))?;
    let mut builder = Builder {
        program,
        live: Live::of(&linked.code, &linked.proof),
        code: &linked.code,
        proof: &linked.proof,
        linked: &linked,
        graph: Graph::default(),
        conditions: Conditions::default(),
        shapes: FxHashMap::default(),
        patterns: Vec::new(),
        work: BTreeMap::new(),
        ends: Vec::new(),
        blocks: Blocks::new(),
        flow: Flow::default(),
        edge: Edge { from: 0, test: None },
        opaque: FxHashMap::default(),
        parsed_headers: Headers::default(),
        block: dominators::FIRST,
        value_sets: FxHashMap::default(),
        sums: FxHashMap::default(),
        spans: FxHashMap::default(),
        zeros: FxHashMap::default(),
        comparisons_left: 0,
        reached: Reached::default(),
        depth: 0,
        path: Bdd::TRUE,
        walked: 0,
        first_tail_call: None,
        at: 0,
        limits,
    };
    let result = builder.run();
    if cfg!(debug_assertions)
        && let Ok(dataflow) = &result
    {
        let list: Vec<String> = dataflow.validate().iter().map(Invalid::to_string).collect();
        assert!(
            list.is_empty(),
            "the construction of program `{}` is not well-formed: {}",
            program.name,
            list.join("; ")
        );
    }
    let at = builder.at;
    let tail_call = builder.first_tail_call;
    result.map_err(|why| {
        // Without the targets of tail calls it would be far shorter.
        let (at, why) = match (tail_call, why) {
            (Some(at), Reason::TooLong(_) | Reason::TooManyPaths(_) | Reason::TailCalls(_)) => {
                (at, Reason::TailCallSequences { programs: linked.entries.len() })
            }
            (_, why) => (at, why),
        };
        Box::new(linked.refusal(program, at, why))
    })
}

impl Builder<'_> {
    fn run(&mut self) -> Result<Dataflow, Reason> {
        let length = self.graph.make(Kind::Input(Input::Length), Vec::new(), 16);
        let tail = self.graph.fit(length, OFFSET_BITS);
        let mut frame = Frame::new(0, 0);
        frame.registers[1] = Value::Address(Rc::new([(Bdd::TRUE, Place::of(Region::Context))]));
        let head = self.graph.number(0, OFFSET_BITS);
        let state = State {
            frames: vec![frame],
            packet: BTreeMap::new(),
            overlays: Vec::new(),
            records: BTreeMap::new(),
            head,
            tail,
            meta: head,
            is_cut: false,
            kept: None,
            tail_calls: (0, 0),
        };
        self.arrive(Bdd::TRUE, state, 0, &[])?;
        while let Some((position, arrival)) = self.work.pop_first() {
            self.at = arrival.at;
            let (condition, state) = self.join(arrival.paths);
            self.walk(condition, state, arrival.at, &arrival.iterations, &position)?;
            self.within_budget()?;
        }
        self.end()
    }

    /// Refuses a program whose dataflow exceeds the budget. Work is counted, so that every machine refuses at the same
    /// place.
    fn within_budget(&self) -> Result<(), Reason> {
        let Limits { nodes, comparisons, tests } = self.limits;
        if self.conditions.size() > tests {
            return Err(Reason::TooManyPaths(tests));
        }
        if self.graph.nodes().len() > nodes {
            return Err(Reason::Budget { unit: "nodes", most: nodes });
        }
        if self.zeros.len() > comparisons {
            return Err(Reason::Budget { unit: "comparisons of packet offsets", most: comparisons });
        }
        Ok(())
    }

    /// The loop structure of the function that begins there.
    fn shape(&mut self, entry: usize) -> Result<Rc<Shape>, Reason> {
        if let Some(known) = self.shapes.get(&entry) {
            return Ok(Rc::clone(known));
        }
        let (code, proof) = (self.code, self.proof);
        let is_feasible = |from: usize, to: usize| match code.get(from).copied().flatten() {
            Some(Op::Branch { off, .. }) if off != 0 => {
                let edges = proof.insns[from].edges;
                if to == from + 1 { edges.falls } else { edges.jumps }
            }
            _ => true,
        };
        let shape = Shape::of(code, entry, is_feasible);
        let shape = Rc::new(shape.map_err(|two| Reason::TwoEntries(two.entries[0], two.entries[1]))?);
        self.shapes.insert(entry, Rc::clone(&shape));
        Ok(shape)
    }

    /// Records a path into a block of the current function from a block in these iterations of loops.
    fn arrive(&mut self, condition: Bdd, mut state: State, to: usize, iterations: &[(u32, u32)]) -> Result<(), Reason> {
        if condition == Bdd::FALSE {
            return Ok(());
        }
        if let Some(needed) = self.live.before(to) {
            state.frame_mut().keep(needed);
        }
        let shape = self.shape(state.frame().entry)?;
        let Some(spot) = shape.spot(to) else {
            return Err(Reason::Unseen(to));
        };
        let mut inside: Vec<(u32, u32)> = Vec::new();
        let mut is_within = true;
        for (depth, head) in spot.nest.iter().enumerate() {
            let known = iterations.get(depth).filter(|(other, _)| is_within && other == head);
            is_within = known.is_some();
            let iteration = match known {
                Some((_, iteration)) if spot.order == *head => iteration + 1,
                Some((_, iteration)) => *iteration,
                None => 0,
            };
            inside.push((*head, iteration));
        }
        if let Some((head, iteration)) = inside.last()
            && *head == spot.order
        {
            match self.proof.loops.get(&to) {
                // No path takes another iteration.
                Some(Some(most)) if u64::from(*iteration) > *most => return Ok(()),
                Some(None) if *iteration > 0 => return Err(Reason::Unbounded),
                _ => {}
            }
        }
        let mut position = state.frame().position.clone();
        inside.iter().for_each(|(head, iteration)| position.extend([*head, *iteration]));
        position.push(spot.order);
        let arrival = Arrival { at: to, iterations: inside, paths: Vec::new() };
        let path = Path { condition, state, from: self.block, edge: self.edge, taken: None };
        self.work.entry(position).or_insert(arrival).paths.push(path);
        Ok(())
    }

    /// A bit equal to a condition wherever another condition holds.
    fn bit(&mut self, condition: Bdd, care: Bdd) -> Id {
        let condition = self.conditions.within(condition, care);
        self.conditions.node(&mut self.graph, condition)
    }

    fn end(&mut self) -> Result<Dataflow, Reason> {
        let ends = std::mem::take(&mut self.ends);
        if ends.is_empty() {
            return Err(Reason::NoEnd);
        }
        let (_, state) = self.join(ends);
        let Value::Number(verdict) = state.frame().registers[0] else { return Err(state::leak()) };
        let packet = self.without_metadata(&state);
        let State { head, tail, overlays, kept, .. } = state;
        let slow = self.graph.number(0, 1);
        let ending = Ending { verdict, head, tail, kept, packet, overlays, slow };
        let reaches = self.reaches();
        let maps = self.program.maps.iter().map(|def| Table {
            name: def.name.clone(),
            kind: def.kind,
            key_bytes: def.key_bytes,
            value_bytes: def.value_bytes,
            max_entries: def.max_entries,
        });
        let maps = maps.collect();
        let (graph, patterns) = (std::mem::take(&mut self.graph), std::mem::take(&mut self.patterns));
        let name = self.program.name.clone();
        let dataflow =
            Dataflow { name, graph, patterns, maps, ending, waits: BTreeMap::new(), wanted: BTreeMap::new(), reaches };
        let dataflow = pass::dead_code(&dataflow);
        self.check_traces(&dataflow)?;
        Ok(dataflow)
    }

    /// The value of a trace call without arguments may not be used.
    fn check_traces(&mut self, dataflow: &Dataflow) -> Result<(), Reason> {
        let Some(used) = dataflow.used_trace() else { return Ok(()) };
        let Kind::Effect(Effect::Call { helper, pattern }) = dataflow.graph.node(used).kind else { return Ok(()) };
        let is_told = dataflow.patterns.get(usize::from(pattern)).is_none_or(|known| !known.arguments.is_empty());
        if is_told {
            return Ok(());
        }
        self.at = dataflow.graph.insn(used);
        let name = helpers::display_name(helper);
        Err(Reason::TraceResult(name))
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Evaluator;
    use flowloom_engine::{Choices, Datapath, Packet, Port, Verdict};
    use flowloom_isa::asm;
    use flowloom_verifier::{Options, verify};
    use flowloom_vm::Interpreter;

    /// Writes at an offset taken from the packet, and reads at another.
    const OFFSETS: &str = "
.program offsets
.license \"GPL\"
        r6 = *(u32 *)(r1 + 0)
        r2 = *(u32 *)(r1 + 4)
        r3 = r6
        r3 += 64
        r0 = 1
        if r3 > r2 goto out
        r4 = *(u8 *)(r6 + 0)
        r4 &= 15
        r4 += r6
        r3 = r4
        r3 += 21
        if r3 > r2 goto out
        r5 = *(u8 *)(r6 + 1)
        r5 &= 15
        r5 += r6
        r3 = r5
        r3 += 21
        if r3 > r2 goto out
        *(u8 *)(r4 + 20) = 7
        r0 = *(u8 *)(r5 + 20)
        r0 &= 1
out:    exit
";

    /// The join point leaves an entry or 0, which then moves by a byte of the packet.
    const MISSING_ENTRY: &str = "
.program missing
.license \"GPL\"
.map values hash key 4 value 64 entries 1
        r6 = *(u32 *)(r1 + 0)
        r2 = *(u32 *)(r1 + 4)
        r3 = r6
        r3 += 1
        r0 = 1
        if r3 > r2 goto out
        r9 = *(u8 *)(r6 + 0)
        r9 &= 1
        *(u32 *)(r10 - 4) = 0
        r1 = map[values] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        r8 = 0
        if r0 == 0 goto joined
        r8 = 1
joined: r0 += r9
        if r0 == 0 goto null
        r0 = 2
        r0 += r8
        goto out
null:   r0 = 1
out:    exit
";

    fn proved(text: &str) -> (Program, Proof) {
        let program = asm::program("test", text).unwrap_or_else(|errors| panic!("{errors}"));
        let proof = verify(&program, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        (program, proof)
    }

    #[test]
    fn a_missing_entry_moved_by_zero_is_null() {
        let (program, proof) = proved(MISSING_ENTRY);
        let dataflow = build(&program, &proof).unwrap_or_else(|refusal| panic!("{refusal}"));
        let program = Arc::new(program);
        let evaluator = Evaluator::new(Arc::clone(&program), dataflow).unwrap();
        let engines: [Box<dyn Datapath>; 2] = [Box::new(evaluator), Box::new(Interpreter::new(program).unwrap())];
        for mut engine in engines {
            let mut verdict = |byte: u8| {
                let packet = Packet { bytes: &[byte; 64], port: Port(0) };
                engine.process(&packet, &Choices::seeded(0, 1, 0)).unwrap().verdict
            };
            let verdicts = [verdict(0), verdict(1)];
            assert_eq!(verdicts, [Verdict::Drop, Verdict::Pass], "{}", engine.name());
        }
    }

    /// Each budget is refused by its name, at an instruction.
    #[test]
    fn every_budget_of_the_construction_is_kept() {
        let (program, proof) = proved(OFFSETS);
        assert!(build_within(&program, &proof, LIMITS).is_ok());
        let cases = [
            (Limits { nodes: 20, ..LIMITS }, "more than 20 nodes"),
            (Limits { comparisons: 0, ..LIMITS }, "more than 0 comparisons of packet offsets"),
            (Limits { tests: 0, ..LIMITS }, "more than 0 tests"),
        ];
        for (limits, said) in cases {
            let Err(refusal) = build_within(&program, &proof, limits) else { panic!("{said}: not refused") };
            assert_eq!(refusal.reason.code(), "budget", "{refusal}");
            assert!(refusal.to_string().contains(said) && refusal.line.is_some(), "{refusal}");
        }
    }
}
