//! Builds the dataflow of a program.
//!
//! **Goal.** One value for each thing that the program computes, on whatever path, and one effect for each that it may have.
//!
//! ```text
//!   if r1 > 9 goto small        v4 = below 9 v3
//!   r2 = 1                      (r2 is 1 where not v4)
//!   goto join
//!   small: r2 = 7               (r2 is 7 where v4)
//!   join: r0 = r2               v5 = select v4 7 1
//! ```
//!
//! **Steps.** Blocks are walked in an order in which every block comes behind all that lead to it: the rounds of a loop one after
//! the other, a function where it is called. Each arrives with the states of the paths that lead there and their conditions;
//! they are joined, and walked once.
//!
//! Calls of helpers that call functions of the program, and tail calls, are followed like calls of functions.
//!
//! **Limits.** Functions of the kernel, loops without a bound, and what [`Why`] says besides.

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
mod settle;
mod state;
mod step;
mod tail;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flowloom_bpf::op::Op;
use flowloom_bpf::verifier::Proof;
use flowloom_bpf::{MapKind, Program, helpers};
use rustc_hash::FxHashMap;

use crate::bdd::{Bdd, Conditions};
use crate::graph::{Effect, Graph, Id, Input, Kind};
use crate::live::Live;
use crate::pass;
use crate::refusal::{Refusal, Why};
use crate::shape::Shape;
use blocks::Blocks;
use linked::Linked;
use offset::{OFFSET_BITS, Span, Sum};
use reach::Reached;
use state::{Frame, Place, Region, State, Value};
use ways::{Way, Ways};

/// Instructions of a program with all rounds of its loops.
const MAX_WALKED: usize = 40_000;
/// Tests in all conditions.
const MAX_TESTS: usize = 400_000;
/// Nodes of the graph while it is built.
const MAX_NODES: usize = 1_000_000;
/// Comparisons of packet offsets that only the run knows.
const MAX_COMPARISONS: usize = 200_000;

/// The budget of a construction, in counted work.
#[derive(Debug, Clone, Copy)]
struct Limits {
    nodes: usize,
    comparisons: usize,
    tests: usize,
}

const LIMITS: Limits = Limits { nodes: MAX_NODES, comparisons: MAX_COMPARISONS, tests: MAX_TESTS };

/// An argument of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Argument {
    /// A number: one node.
    Number,
    /// The context; no node.
    Context,
    /// A map; no node.
    Map(u32),
    /// Memory that is read: so many nodes of a byte each.
    Read(u16),
    /// The same of memory that may be changed: what lies there then are nodes [`Kind::Changed`].
    Changed(u16),
    /// Of the packet as it is then: where it begins, one node of 32 bits. What is said of the packet stands behind what the helper is
    /// given in registers.
    Head,
    /// Where it ends: one node of 32 bits.
    Tail,
    /// From where on nothing is left of what came: one node of 32 bits.
    Kept,
    /// The base of an [`Overlay`], whose bytes follow: one node of 32 bits.
    Base,
    /// A byte of the last overlay at this offset: whether it was written, and the byte.
    Laid(i64),
    /// The byte at this offset from the packet's first byte as it came, above all overlays.
    Byte(i64),
}

impl Argument {
    /// How many nodes it takes.
    pub fn nodes(self) -> usize {
        match self {
            Argument::Context | Argument::Map(_) => 0,
            Argument::Number | Argument::Head | Argument::Tail | Argument::Kept => 1,
            Argument::Base | Argument::Byte(_) => 1,
            Argument::Laid(_) => 2,
            Argument::Read(bytes) | Argument::Changed(bytes) => bytes.into(),
        }
    }
}

/// What a call is given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The helper.
    pub helper: i32,
    /// Its arguments.
    pub arguments: Vec<Argument>,
}

impl Pattern {
    /// How many bytes of memory the call may change.
    pub fn changed_bytes(&self) -> usize {
        let bytes = self.arguments.iter().map(|argument| match argument {
            Argument::Changed(bytes) => usize::from(*bytes),
            _ => 0,
        });
        bytes.sum()
    }
}

/// What becomes of the packet.
#[derive(Debug, Clone)]
pub struct Ending {
    /// What the program returns: 32 bits.
    pub verdict: Id,
    /// Where the packet begins then, from its first byte as it came: 32 bits, signed.
    pub head: Id,
    /// Where it ends: 32 bits.
    pub tail: Id,
    /// Bytes from here on are zeros where nothing was written: the packet was cut there, and grew again. 32 bits.
    pub kept: Option<Id>,
    /// Bytes that are other ones than those that came, by their offset from the first byte as it came: each 8 bits.
    pub packet: BTreeMap<i64, Id>,
    /// Bytes at offsets that only the run knows: the later ones lie above the earlier, `packet` above all.
    pub overlays: Vec<Overlay>,
    /// Whether the program looks beyond the window of a pipeline, so that the packet is for a slow path: one bit. No effect happens
    /// then, and what else the ending says is not meant. 0 until the pass `cursors` has chosen a window.
    pub slow: Id,
}

/// Where offsets that only the run knows matter: what a pipeline needs that sees the first bytes of a packet only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Where it does, or on more paths: one bit.
    pub when: Id,
    /// By what.
    pub by: Reaching,
}

/// What depends on an offset that only the run knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaching {
    /// An access to bytes of the packet, those before `end` as counted from `base`: 32 bits, signed, from the packet's first byte.
    Access {
        /// From where they are counted.
        base: Id,
        /// Where they end.
        end: i64,
    },
    /// A comparison of offsets.
    Test(Id),
}

impl Reaching {
    /// The node that it is about.
    pub fn subject(self) -> Id {
        match self {
            Reaching::Access { base, .. } => base,
            Reaching::Test(test) => test,
        }
    }

    /// The same about another node.
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
    /// From where they are counted, from the packet's first byte as it came: 32 bits, signed.
    pub base: Id,
    /// The bytes, by their offset from there.
    pub bytes: BTreeMap<i64, Laid>,
}

/// A byte that may have been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Laid {
    /// Whether it was: one bit.
    pub when: Id,
    /// What was written: 8 bits.
    pub byte: Id,
}

impl Ending {
    /// The nodes that it names.
    pub fn nodes(&self) -> impl Iterator<Item = Id> + '_ {
        let laid = |overlay: &Overlay| {
            let bytes: Vec<Id> = overlay.bytes.values().flat_map(|laid| [laid.when, laid.byte]).collect();
            bytes.into_iter().chain([overlay.base])
        };
        let packet = self.packet.values().copied().chain(self.overlays.iter().flat_map(laid));
        [self.verdict, self.head, self.tail, self.slow].into_iter().chain(self.kept).chain(packet)
    }

    /// The same of other nodes.
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

/// What has to be known of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: MapKind,
    /// Length of a key.
    pub key_bytes: u32,
    /// Length of a value.
    pub value_bytes: u32,
    /// How many entries it holds.
    pub max_entries: u32,
}

/// A program as dataflow.
#[derive(Debug, Clone)]
pub struct Dataflow {
    /// The program's name.
    pub name: String,
    /// Its values and effects.
    pub graph: Graph,
    /// What its calls are given, by their number.
    pub patterns: Vec<Pattern>,
    /// The program's maps, by their number.
    pub maps: Vec<Table>,
    /// What becomes of the packet.
    pub ending: Ending,
    /// Reads of maps that must not come before these effects of the same packet, although they use nothing of them.
    pub waits: BTreeMap<Id, Vec<Id>>,
    /// What depends on offsets that only the run knows, until `cursors` has seen to it.
    pub reaches: Vec<Reach>,
}

/// Builds the dataflow of a program that was proved safe.
///
/// # Errors
/// What stands in the way, with its place.
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
    let at = builder.at;
    let tail_call = builder.first_tail_call;
    result.map_err(|why| {
        // Without the programs behind tail calls it would be far shorter.
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

/// One way to a block, or to the end.
struct Path {
    condition: Bdd,
    state: State,
    /// The block that it comes from.
    from: usize,
    /// How it leaves that.
    way: Way,
    /// Where it meets others: the bit that it was gone, given that one of them was.
    gone: Option<Id>,
}

struct Builder<'a> {
    program: &'a Program,
    /// It, and those that tail calls lead to.
    linked: &'a Linked,
    code: &'a [Option<Op>],
    live: Live,
    proof: &'a Proof,
    graph: Graph,
    conditions: Conditions,
    shapes: FxHashMap<usize, Rc<Shape>>,
    patterns: Vec<Pattern>,
    work: BTreeMap<Vec<u32>, Arrival>,
    /// How paths have ended: what they return is in `r0`.
    ends: Vec<Path>,
    blocks: Blocks,
    ways: Ways,
    /// The block of those that is walked, and the test at its end.
    way: Way,
    /// Bits that conditions take as they are.
    whole: FxHashMap<Id, Bdd>,
    /// The block that is walked.
    block: usize,
    /// What numbers nodes may be, of those that were asked for.
    few: FxHashMap<Id, Option<BTreeSet<u64>>>,
    /// What nodes are as offsets, where they lie, and which offsets are 0: of those that were asked for.
    sums: FxHashMap<Id, Sum>,
    spans: FxHashMap<Id, Span>,
    zeros: FxHashMap<Sum, Id>,
    /// Comparisons inside of selections that are left for the comparison at hand.
    inside: usize,
    reached: Reached,
    /// How many nodes are looked at, each for the one before.
    deep: usize,
    /// The condition of the block that is walked.
    path: Bdd,
    walked: usize,
    /// The first tail call.
    first_tail_call: Option<usize>,
    /// The instruction that is looked at.
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

    /// Refuses a program whose dataflow outgrows the budget. Counts work, so that all machines refuse at the same place.
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

    /// The blocks of the function that begins there.
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

    /// A path leads to a block of the running function, out of a block in these rounds of loops.
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
                // No path goes round once more.
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

    /// A bit that holds where a condition does, as far as it has to be known where another one does.
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
        let dataflow = pass::without_dead(&dataflow);
        self.check_traces(&dataflow)?;
        Ok(dataflow)
    }

    /// The value of a call that prints what has no form here may not be used.
    fn check_traces(&mut self, dataflow: &Dataflow) -> Result<(), Why> {
        let Some(used) = dataflow.used_trace() else { return Ok(()) };
        let Kind::Effect(Effect::Call { helper, pattern }) = dataflow.graph.node(used).kind else { return Ok(()) };
        let is_told = dataflow.patterns.get(usize::from(pattern)).is_none_or(|known| !known.arguments.is_empty());
        if is_told {
            return Ok(());
        }
        self.at = dataflow.graph.insn(used);
        let name = helpers::name_of(helper).map_or_else(|| format!("helper {helper}"), str::to_owned);
        Err(Why::TraceResult(name))
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;
    use flowloom_bpf::asm;
    use flowloom_bpf::verifier::{Options, verify};

    /// Writes at an offset that the packet has, and reads at another.
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
