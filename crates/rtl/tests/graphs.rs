// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random graphs of pure nodes on random packets: the core against the evaluator of the graph before any pass.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Packet, Port};
use flowloom_ir::{Binary, Compare, Dataflow, Ending, Evaluator, Graph, Id, Input, Kind};
use flowloom_isa::{Program, asm};
use flowloom_plan::{Options, plan_dataflow};
use flowloom_rtl::Core;
use flowloom_testkit::Rng;

use crate::stream::{Answer, Bench, Results, Stimulus, WORD_BYTES, packets};

/// Offsets of packet accesses stay within the window of two words.
const MAX_OFFSET: u64 = 100;
const WIDTHS: [u16; 9] = [1, 3, 8, 16, 17, 24, 32, 48, 64];
const BINARY: [Binary; 13] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::SignedDiv,
    Binary::Mod,
    Binary::SignedMod,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::ShiftLeft,
    Binary::ShiftRight,
    Binary::SignedShiftRight,
];

/// A program that the planner takes for its name and lines; the graph is not made from it.
fn program(name: &str) -> Program {
    let insns = asm::assemble("r0 = 2\nexit", &[]).unwrap();
    Program { name: name.to_owned(), section: "xdp".to_owned(), insns, license: "GPL".to_owned(), ..Program::default() }
}

/// A node of this width from those drawn before.
fn drawn(rng: &mut Rng, graph: &mut Graph, nodes: &[Id], bits: u16) -> Id {
    if rng.chance(1, 6) {
        let value = if rng.chance(1, 2) { rng.next_u64() } else { rng.below(4) as u64 };
        return graph.number(value, bits);
    }
    let node = *rng.pick(nodes);
    if graph.bits(node) < bits && rng.chance(1, 3) { graph.sign_extend(node, bits) } else { graph.fit(node, bits) }
}

/// An operation to draw operands for.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Binary(Binary),
    Compare(Compare),
    Not,
    Select,
    Concat,
    Slice,
    Bytes,
}

/// All operations, some of them twice, in random order.
fn shapes(rng: &mut Rng) -> Vec<Shape> {
    let mut all: Vec<Shape> = BINARY.map(Shape::Binary).into();
    all.extend([Compare::Equal, Compare::Below, Compare::SignedBelow].map(Shape::Compare));
    all.push(Shape::Not);
    all.extend([Shape::Select, Shape::Concat, Shape::Slice, Shape::Bytes].repeat(2));
    (1..all.len()).for_each(|end| all.swap(end, rng.below(end + 1)));
    all
}

/// Adds a node. Divisions are at most `widest` bits wide: a divider has a stage for each bit.
fn add(rng: &mut Rng, graph: &mut Graph, nodes: &[Id], shape: Shape, widest: u16) -> Id {
    let bits = match (shape, *rng.pick(&WIDTHS)) {
        (Shape::Binary(Binary::Div | Binary::SignedDiv | Binary::Mod | Binary::SignedMod), bits) => bits.min(widest),
        (Shape::Concat, bits) => bits.min(32),
        (_, bits) => bits,
    };
    let mut one = |bits: u16| drawn(rng, graph, nodes, bits);
    let (a, b, c) = (one(bits), one(bits), one(bits));
    let (first, second, byte) = (one(1), one(1), one(8));
    match shape {
        Shape::Binary(op) => graph.binary(op, a, b),
        Shape::Compare(how) => graph.compare(how, a, b),
        Shape::Not => graph.not(a),
        Shape::Select => graph.select(vec![first, a, second, b, c]),
        Shape::Concat => graph.concat(vec![a, b]),
        Shape::Slice => {
            let low = rng.below(usize::from(bits)) as u16;
            graph.slice(a, low, bits - low)
        }
        Shape::Bytes => {
            let most = graph.number(MAX_OFFSET, 8);
            let (short, zeros) = (graph.compare(Compare::Below, byte, most), graph.number(0, 8));
            let offset = graph.select(vec![short, byte, zeros]);
            let offset = graph.fit(offset, 32);
            let ahead = rng.below(20) as i32 - 10;
            graph.make(Kind::Bytes { ahead }, vec![offset], 8 * (1 + rng.below(8) as u16))
        }
    }
}

/// A graph of all operations on the first two words of the packet. Nodes without a use are outputs: 8 bits of each.
fn random(rng: &mut Rng, name: &str, widest: u16) -> Dataflow {
    let mut graph = Graph::default();
    let length = graph.make(Kind::Input(Input::Length), Vec::new(), 16);
    let port = graph.make(Kind::Input(Input::Port), Vec::new(), 32);
    let mut nodes = vec![length, port];
    for _ in 0..6 {
        nodes.push(graph.byte(rng.below(2 * WORD_BYTES) as i64));
    }
    for shape in shapes(rng) {
        let node = add(rng, &mut graph, &nodes, shape, widest);
        nodes.push(node);
    }
    let used: BTreeSet<Id> = graph.nodes().iter().flat_map(|node| node.args.iter().copied()).collect();
    let unused: Vec<Id> = nodes.iter().filter(|node| !used.contains(node)).copied().collect();
    let mut packet = BTreeMap::new();
    for node in &unused {
        let low = rng.below(usize::from(graph.bits(*node).saturating_sub(8)) + 1) as u16;
        let high = graph.slice(*node, low, graph.bits(*node) - low);
        packet.insert(rng.below(2 * WORD_BYTES) as i64, graph.fit(high, 8));
    }
    let (verdict, tail) = (graph.fit(unused[0], 32), graph.fit(length, 32));
    dataflow(name, graph, verdict, tail, packet)
}

/// The dataflow of a graph without maps.
pub(crate) fn dataflow(name: &str, mut graph: Graph, verdict: Id, tail: Id, packet: BTreeMap<i64, Id>) -> Dataflow {
    let (head, slow) = (graph.number(0, 32), graph.number(0, 1));
    Dataflow {
        name: name.to_owned(),
        graph,
        patterns: Vec::new(),
        maps: Vec::new(),
        ending: Ending { verdict, head, tail, kept: None, packet, overlays: Vec::new(), slow },
        waits: BTreeMap::new(),
        wanted: BTreeMap::new(),
        reaches: Vec::new(),
    }
}

/// A graph and its evaluator.
pub(crate) struct Subject {
    name: String,
    dataflow: Dataflow,
    evaluator: Evaluator,
}

impl Subject {
    /// The outputs that the core must have for a packet.
    fn expected(&mut self, packet: &Stimulus, edits: &[i64]) -> Answer {
        let packet = Packet { bytes: &packet.bytes, port: Port(packet.port) };
        self.evaluator.process(&packet, &Choices::seeded(0, 0, 0)).unwrap();
        let ending = &self.dataflow.ending;
        let value = |id: Id| self.evaluator.value(id);
        Answer {
            verdict: value(ending.verdict) as u32,
            target: None,
            is_slow: false,
            head: value(ending.head) as i32,
            tail: value(ending.tail) as i32,
            edits: edits.iter().map(|at| value(ending.packet[at]) as u8).collect(),
        }
    }
}

pub(crate) fn subject(seed: u64, number: usize, widest: u16) -> (Subject, Core) {
    let name = format!("graph{number}_of_{seed}");
    let mut rng = Rng::new(seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (program, dataflow) = (program(&name), random(&mut rng, &name, widest));
    let plan =
        plan_dataflow(&program, &dataflow, &Options::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(flowloom_plan::check(&plan), [], "{name}");
    let core = Core::of(&plan, &program).unwrap_or_else(|error| panic!("{name}: {error}"));
    let evaluator = Evaluator::new(Arc::new(program), dataflow.clone()).unwrap();
    (Subject { name, dataflow, evaluator }, core)
}

/// Compares the results of a core with the evaluator.
pub(crate) fn difference(
    subject: &mut Subject,
    core: &Core,
    packets: &[Stimulus],
    results: &Results,
) -> Result<(), String> {
    for (place, (packet, found)) in packets.iter().zip(&results.answers).enumerate() {
        let expected = subject.expected(packet, &core.edits.constant);
        if *found != expected {
            return Err(format!("packet {place}: found {found:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

/// Random graphs and packets.
pub(crate) struct Draw {
    pub(crate) seed: u64,
    pub(crate) graphs: Range<usize>,
    /// The widest division in bits.
    pub(crate) widest: u16,
    pub(crate) packets: usize,
}

/// Compares graphs with their cores. Returns the latencies of the cores in cycles; `None` without Verilator.
pub(crate) fn compare(test: &str, draw: Draw) -> Option<Vec<u32>> {
    let drawn = draw.graphs.map(|number| subject(draw.seed, number, draw.widest));
    let (mut subjects, cores): (Vec<Subject>, Vec<Core>) = drawn.unzip();
    let packets = packets(&mut Rng::new(draw.seed), draw.packets);
    let results = Bench::new(test, &cores, &[])?.run(&packets, draw.seed);
    for ((subject, core), results) in subjects.iter_mut().zip(&cores).zip(results) {
        let compared = results.and_then(|results| difference(subject, core, &packets, &results));
        compared.unwrap_or_else(|error| panic!("{}: {error}", subject.name));
    }
    Some(cores.iter().map(|core| core.latency_cycles).collect())
}

#[test]
fn random_graphs_run_as_cores() {
    let seed = Rng::from_env(1).next_u64() >> 32;
    compare("random_graphs_run_as_cores", Draw { seed, graphs: 0..5, widest: 16, packets: 2000 });
}
