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
//! **Limits.** No kernel functions, no loops without a bound, and the other reasons of [`Why`].

mod atomic;
mod blocks;
mod call;
mod callback;
mod effect;
mod join;
mod linked;
mod memory;
mod metadata;
mod offset;
mod packet;
mod reach;
mod record;
mod settle;
mod state;
mod step;
mod tail;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flowloom_isa::op::Op;
use flowloom_isa::{MapKind, Program, helpers};
use flowloom_verifier::Proof;
use rustc_hash::FxHashMap;

use crate::bdd::{Bdd, Conditions};
use crate::graph::{Effect, Graph, Id, Input, Kind};
use crate::live::Live;
use crate::pass;
use crate::refusal::{Refusal, Why};
use crate::shape::Shape;
use crate::validate::Invalid;
use blocks::Blocks;
use linked::Linked;
use offset::{OFFSET_BITS, Span, Sum};
use reach::Reached;
use state::{Frame, Place, Region, State, Value};
use ways::{Way, Ways};

pub(crate) use effect::fits_helper;

/// The most instructions after unrolling and inlining.
const MAX_WALKED: usize = 100_000;
/// The most BDD nodes of all path conditions.
const MAX_TESTS: usize = 2_000_000;
/// The most nodes of the graph during construction.
const MAX_NODES: usize = 1_000_000;
/// The most comparisons of packet offsets known only at run time.
const MAX_COMPARISONS: usize = 200_000;

/// The budget of a construction, in counted work.
#[derive(Debug, Clone, Copy)]
struct Limits {
    nodes: usize,
    comparisons: usize,
    tests: usize,
}

const LIMITS: Limits = Limits { nodes: MAX_NODES, comparisons: MAX_COMPARISONS, tests: MAX_TESTS };

/// The form of an argument of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Argument {
    /// A number: one node.
    Number,
    /// The context: no node.
    Context,
    /// A map: no node.
    Map(u32),
    /// Memory that is read: one node of 8 bits for each byte.
    Read(u16),
    /// The same for memory that may be written; its new contents are nodes [`Kind::Changed`].
    Changed(u16),
    /// The start of the packet at the call: one node of 32 bits. The state of the packet comes after the arguments in
    /// registers.
    Head,
    /// The end of the packet: one node of 32 bits.
    Tail,
    /// The offset from which on bytes are no longer those received: one node of 32 bits.
    Kept,
    /// The base of an [`Overlay`], whose bytes follow: one node of 32 bits.
    Base,
    /// A byte of the last overlay at this offset: whether it was written, and the byte.
    Laid(i64),
    /// The byte at this offset from the packet's first byte as received, above all overlays.
    Byte(i64),
    /// The byte at this offset of a ring buffer record that the call gives back: whether the program has stored it, and
    /// the byte.
    Stored(u32),
}

impl Argument {
    /// The number of nodes that it takes.
    pub fn nodes(self) -> usize {
        match self {
            Argument::Context | Argument::Map(_) => 0,
            Argument::Number | Argument::Head | Argument::Tail | Argument::Kept => 1,
            Argument::Base | Argument::Byte(_) => 1,
            Argument::Laid(_) | Argument::Stored(_) => 2,
            Argument::Read(bytes) | Argument::Changed(bytes) => bytes.into(),
        }
    }
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The number of the helper.
    pub helper: i32,
    /// The arguments.
    pub arguments: Vec<Argument>,
}

impl Pattern {
    /// The bytes of memory that the call may write.
    pub fn changed_bytes(&self) -> usize {
        let bytes = self.arguments.iter().map(|argument| match argument {
            Argument::Changed(bytes) => usize::from(*bytes),
            _ => 0,
        });
        bytes.sum()
    }
}

/// The outputs: verdict and packet.
#[derive(Debug, Clone)]
pub struct Ending {
    /// The return value of the program: 32 bits.
    pub verdict: Id,
    /// The start of the packet, relative to its first byte as received: 32 bits, signed.
    pub head: Id,
    /// The end of the packet: 32 bits.
    pub tail: Id,
    /// Bytes from this offset on are zeros unless written: the packet was cut there and grew again. 32 bits.
    pub kept: Option<Id>,
    /// Bytes that differ from those received, by their offset from the first byte as received: 8 bits each.
    pub packet: BTreeMap<i64, Id>,
    /// Bytes at offsets known only at run time: later overlays lie above earlier ones, `packet` above all.
    pub overlays: Vec<Overlay>,
    /// Whether the program accesses bytes beyond the window, so that the packet takes the slow path: one bit. Then no
    /// effect happens, and the other outputs are meaningless. 0 until the pass `cursors` has chosen a window.
    pub slow: Id,
}

/// An access or comparison that depends on an offset known only at run time; a pipeline sees the first bytes of a
/// packet only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// A bit that is implied by its path condition.
    pub when: Id,
    /// The access or comparison.
    pub by: Reaching,
}

/// The kinds of dependence on an offset known only at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaching {
    /// An access to bytes of the packet before `end`, counted from `base`: 32 bits, signed, from the packet's first
    /// byte.
    Access {
        /// The base offset.
        base: Id,
        /// The end of the access.
        end: i64,
    },
    /// A comparison of offsets.
    Test(Id),
}

impl Reaching {
    /// The node concerned.
    pub fn subject(self) -> Id {
        match self {
            Reaching::Access { base, .. } => base,
            Reaching::Test(test) => test,
        }
    }

    /// The same for another node.
    #[must_use]
    pub fn about(self, subject: Id) -> Reaching {
        match self {
            Reaching::Access { end, .. } => Reaching::Access { base: subject, end },
            Reaching::Test(_) => Reaching::Test(subject),
        }
    }
}

/// Bytes of the packet that were written at one base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// The base, from the packet's first byte as received: 32 bits, signed.
    pub base: Id,
    /// The bytes, by their offset from the base.
    pub bytes: BTreeMap<i64, Laid>,
}

/// A byte that may have been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Laid {
    /// Whether it was written: one bit.
    pub when: Id,
    /// The value: 8 bits.
    pub byte: Id,
}

impl Ending {
    /// The nodes that the ending uses.
    pub fn nodes(&self) -> impl Iterator<Item = Id> + '_ {
        let laid = |overlay: &Overlay| {
            let bytes: Vec<Id> = overlay.bytes.values().flat_map(|laid| [laid.when, laid.byte]).collect();
            bytes.into_iter().chain([overlay.base])
        };
        let packet = self.packet.values().copied().chain(self.overlays.iter().flat_map(laid));
        [self.verdict, self.head, self.tail, self.slow].into_iter().chain(self.kept).chain(packet)
    }

    /// The ending with its nodes replaced.
    pub fn map(&self, mut to: impl FnMut(Id) -> Id) -> Ending {
        let packet = self.packet.iter().map(|(at, byte)| (*at, to(*byte))).collect();
        let overlays = self.overlays.iter().map(|overlay| Overlay {
            base: to(overlay.base),
            bytes: overlay
                .bytes
                .iter()
                .map(|(at, laid)| (*at, Laid { when: to(laid.when), byte: to(laid.byte) }))
                .collect(),
        });
        let overlays = overlays.collect();
        let [verdict, head, tail, slow] = [self.verdict, self.head, self.tail, self.slow].map(&mut to);
        Ending { verdict, head, tail, kept: self.kept.map(to), packet, overlays, slow }
    }
}

/// The definition of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: MapKind,
    /// The key size in bytes.
    pub key_bytes: u32,
    /// The value size in bytes.
    pub value_bytes: u32,
    /// The capacity in entries.
    pub max_entries: u32,
}

/// A program as dataflow.
#[derive(Debug, Clone)]
pub struct Dataflow {
    /// The name of the program.
    pub name: String,
    /// The values and effects.
    pub graph: Graph,
    /// The argument patterns of calls, by index.
    pub patterns: Vec<Pattern>,
    /// The maps of the program, by index.
    pub maps: Vec<Table>,
    /// The outputs.
    pub ending: Ending,
    /// Reads of maps that must not overtake these earlier effects of the same packet although no value connects them.
    pub waits: BTreeMap<Id, Vec<Id>>,
    /// Accesses and comparisons at offsets known only at run time; empty after the pass `cursors`.
    pub reaches: Vec<Reach>,
}

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
    let linked = Linked::of(program, proof).map_err(|why| Box::new(Refusal::new(program, 0, why)))?;
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
        ways: Ways::default(),
        way: Way { from: 0, test: None },
        whole: FxHashMap::default(),
        block: blocks::FIRST,
        few: FxHashMap::default(),
        sums: FxHashMap::default(),
        spans: FxHashMap::default(),
        zeros: FxHashMap::default(),
        inside: 0,
        reached: Reached::default(),
        deep: 0,
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
            (Some(at), Why::TooLong(_) | Why::TooManyPaths(_) | Why::TailCalls(_)) => {
                (at, Why::TailCallSequences { programs: linked.entries.len() })
            }
            (_, why) => (at, why),
        };
        Box::new(linked.refusal(program, at, why))
    })
}

/// A block that waits to be walked.
struct Arrival {
    at: usize,
    rounds: Vec<(u32, u32)>,
    paths: Vec<Path>,
}

/// A path into a block, or to the exit.
struct Path {
    condition: Bdd,
    state: State,
    /// The block that it comes from.
    from: usize,
    /// The edge that it takes.
    way: Way,
    /// The bit that this path was taken, given that one of those at the join point was.
    gone: Option<Id>,
}

struct Builder<'a> {
    program: &'a Program,
    /// The program with the targets of its tail calls.
    linked: &'a Linked,
    code: &'a [Option<Op>],
    live: Live,
    proof: &'a Proof,
    graph: Graph,
    conditions: Conditions,
    shapes: FxHashMap<usize, Rc<Shape>>,
    patterns: Vec<Pattern>,
    work: BTreeMap<Vec<u32>, Arrival>,
    /// The paths that have ended; the result of each is in `r0`.
    ends: Vec<Path>,
    blocks: Blocks,
    ways: Ways,
    /// The edges of the current block.
    way: Way,
    /// Bits that are BDD variables whatever they are made of.
    whole: FxHashMap<Id, Bdd>,
    /// The current block.
    block: usize,
    /// A memo table of the possible values of nodes.
    few: FxHashMap<Id, Option<BTreeSet<u64>>>,
    /// Memo tables of nodes as sums, of their ranges, and of which sums are 0.
    sums: FxHashMap<Id, Sum>,
    spans: FxHashMap<Id, Span>,
    zeros: FxHashMap<Sum, Id>,
    /// The budget of comparisons inside of selects for the current comparison.
    inside: usize,
    reached: Reached,
    /// The current depth of recursion over nodes.
    deep: usize,
    /// The condition of the current block.
    path: Bdd,
    walked: usize,
    /// The first tail call.
    first_tail_call: Option<usize>,
    /// The current instruction.
    at: usize,
    limits: Limits,
}

impl Builder<'_> {
    fn run(&mut self) -> Result<Dataflow, Why> {
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
            self.walk(condition, state, arrival.at, &arrival.rounds, &position)?;
            self.within_budget()?;
        }
        self.end()
    }

    /// Refuses a program whose dataflow exceeds the budget. Work is counted, so that every machine refuses at the same
    /// place.
    fn within_budget(&self) -> Result<(), Why> {
        let Limits { nodes, comparisons, tests } = self.limits;
        if self.conditions.size() > tests {
            return Err(Why::TooManyPaths(tests));
        }
        if self.graph.nodes().len() > nodes {
            return Err(Why::Budget { unit: "nodes", most: nodes });
        }
        if self.zeros.len() > comparisons {
            return Err(Why::Budget { unit: "comparisons of packet offsets", most: comparisons });
        }
        Ok(())
    }

    /// The loop structure of the function that begins there.
    fn shape(&mut self, entry: usize) -> Result<Rc<Shape>, Why> {
        if let Some(known) = self.shapes.get(&entry) {
            return Ok(Rc::clone(known));
        }
        let (code, proof) = (self.code, self.proof);
        let is_way = |from: usize, to: usize| match code.get(from).copied().flatten() {
            Some(Op::Branch { off, .. }) if off != 0 => {
                let ways = proof.insns[from].ways;
                if to == from + 1 { ways.falls } else { ways.jumps }
            }
            _ => true,
        };
        let shape = Shape::of(code, entry, is_way);
        let shape = Rc::new(shape.map_err(|two| Why::TwoEntries(two.entries[0], two.entries[1]))?);
        self.shapes.insert(entry, Rc::clone(&shape));
        Ok(shape)
    }

    /// Records a path into a block of the current function from a block in these iterations of loops.
    fn arrive(&mut self, condition: Bdd, mut state: State, to: usize, rounds: &[(u32, u32)]) -> Result<(), Why> {
        if condition == Bdd::FALSE {
            return Ok(());
        }
        if let Some(needed) = self.live.before(to) {
            state.frame_mut().keep(needed);
        }
        let shape = self.shape(state.frame().entry)?;
        let Some(spot) = shape.spot(to) else {
            return Err(Why::Unseen(to));
        };
        let mut inside: Vec<(u32, u32)> = Vec::new();
        let mut is_within = true;
        for (depth, head) in spot.nest.iter().enumerate() {
            let known = rounds.get(depth).filter(|(other, _)| is_within && other == head);
            is_within = known.is_some();
            let round = match known {
                Some((_, round)) if spot.order == *head => round + 1,
                Some((_, round)) => *round,
                None => 0,
            };
            inside.push((*head, round));
        }
        if let Some((head, round)) = inside.last()
            && *head == spot.order
        {
            match self.proof.loops.get(&to) {
                // No path takes another iteration.
                Some(Some(most)) if u64::from(*round) > *most => return Ok(()),
                Some(None) if *round > 0 => return Err(Why::Unbounded),
                _ => {}
            }
        }
        let mut position = state.frame().position.clone();
        inside.iter().for_each(|(head, round)| position.extend([*head, *round]));
        position.push(spot.order);
        let arrival = Arrival { at: to, rounds: inside, paths: Vec::new() };
        let path = Path { condition, state, from: self.block, way: self.way, gone: None };
        self.work.entry(position).or_insert(arrival).paths.push(path);
        Ok(())
    }

    /// A bit equal to a condition wherever another condition holds.
    fn bit(&mut self, condition: Bdd, care: Bdd) -> Id {
        let condition = self.conditions.within(condition, care);
        self.conditions.node(&mut self.graph, condition)
    }

    fn end(&mut self) -> Result<Dataflow, Why> {
        let ends = std::mem::take(&mut self.ends);
        if ends.is_empty() {
            return Err(Why::NoEnd);
        }
        let (_, state) = self.join(ends);
        let Value::Number(verdict) = state.frame().registers[0] else { return Err(step::leak()) };
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
        let dataflow = Dataflow { name, graph, patterns, maps, ending, waits: BTreeMap::new(), reaches };
        let dataflow = pass::dead_code(&dataflow);
        self.check_traces(&dataflow)?;
        Ok(dataflow)
    }

    /// The value of a trace call without arguments may not be used.
    fn check_traces(&mut self, dataflow: &Dataflow) -> Result<(), Why> {
        let Some(used) = dataflow.used_trace() else { return Ok(()) };
        let Kind::Effect(Effect::Call { helper, pattern }) = dataflow.graph.node(used).kind else { return Ok(()) };
        let is_told = dataflow.patterns.get(usize::from(pattern)).is_none_or(|known| !known.arguments.is_empty());
        if is_told {
            return Ok(());
        }
        self.at = dataflow.graph.insn(used);
        let name = helpers::display_name(helper);
        Err(Why::TraceResult(name))
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;
    use flowloom_isa::asm;
    use flowloom_verifier::{Options, verify};

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

    /// Each budget is refused by its name, at an instruction.
    #[test]
    fn every_budget_of_the_construction_is_kept() {
        let program = asm::program("offsets", OFFSETS).unwrap_or_else(|errors| panic!("{errors}"));
        let proof = verify(&program, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        assert!(build_within(&program, &proof, LIMITS).is_ok());
        let cases = [
            (Limits { nodes: 20, ..LIMITS }, "more than 20 nodes"),
            (Limits { comparisons: 0, ..LIMITS }, "more than 0 comparisons of packet offsets"),
            (Limits { tests: 0, ..LIMITS }, "more than 0 tests"),
        ];
        for (limits, said) in cases {
            let Err(refusal) = build_within(&program, &proof, limits) else { panic!("{said}: not refused") };
            assert_eq!(refusal.why.code(), "budget", "{refusal}");
            assert!(refusal.to_string().contains(said) && refusal.line.is_some(), "{refusal}");
        }
    }
}
