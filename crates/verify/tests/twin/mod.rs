// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hand-written C twins of the shipped functions: compiled, and compared with the lowered functions.
#![allow(unreachable_pub, missing_docs, clippy::unwrap_used, clippy::panic)]

pub mod timed;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_engine::{Choices, Datapath, MapState, Port};
use flowloom_isa::insn::{call, class, helper, jmp};
use flowloom_isa::{Insn, MapKind, Program};
use flowloom_lower::{LowerOptions, lower};
pub use flowloom_testkit::Clang;
use flowloom_testkit::skip;
use flowloom_trace::CaptureReader;
use flowloom_verify::{Arrival, Reached, Stimulus, StimulusOptions};
use flowloom_vm::Interpreter;
use flowloom_wire::{Graph, Header, Layers};

use crate::common::{captures, shipped};

/// A function with parameter values, and the macros that give its twin the same values.
pub struct Variant {
    pub function: &'static str,
    params: &'static [(&'static str, &'static str)],
    macros: &'static [&'static str],
}

/// Instruction set versions: clang 14's default, and the newest that it knows, with 32-bit arithmetic.
pub const CPUS: [&str; 2] = ["generic", "v3"];

pub const DEFAULTS: [Variant; 6] = [
    Variant { function: "port_knocking", params: &[], macros: &[] },
    Variant { function: "big_flow", params: &[], macros: &[] },
    Variant { function: "udp_firewall", params: &[], macros: &[] },
    // A bucket of a hundred tokens is rarely empty.
    Variant { function: "policer", params: &[("burst", "3")], macros: &["BURST=3"] },
    // With few ports, two flows compete for some.
    Variant { function: "dynamic_nat", params: &[("first_port", "0xfffe")], macros: &["FIRST_PORT=0xfffe"] },
    Variant { function: "server_load_balancer", params: &[], macros: &[] },
];

/// A twin that takes a `bpf_spin_lock` of the context for each packet.
pub const LOCKED: Variant = Variant { function: "policer", params: &[("burst", "3")], macros: &["BURST=3", "LOCKED"] };

pub const CHANGED: [Variant; 3] = [
    Variant {
        function: "policer",
        params: &[("out", "2"), ("interval", "3us"), ("burst", "2")],
        macros: &["OUT=2", "INTERVAL_US=3", "BURST=2"],
    },
    Variant {
        function: "port_knocking",
        params: &[("out", "2"), ("knock1", "7"), ("knock3", "65535"), ("protected", "443"), ("admitted", "2s")],
        macros: &["OUT=2", "KNOCK1=7", "KNOCK3=65535", "PROTECTED=443", "ADMITTED_NS=2000000000ULL"],
    },
    Variant {
        function: "big_flow",
        params: &[("out", "3"), ("threshold", "1"), ("quiet", "1s"), ("mark", "184")],
        macros: &["OUT=3", "THRESHOLD=1", "QUIET_NS=1000000000ULL", "MARK=184"],
    },
];

impl Variant {
    pub fn title(&self) -> String {
        let params: Vec<String> = self.params.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        format!("{}{}", self.function, params.concat())
    }

    pub fn compile(&self) -> Arc<Function> {
        shipped::function(self.function, self.params)
    }

    /// The function lowered for one CPU, without locks.
    pub fn lowered(&self) -> Program {
        lower(&self.compile(), &LowerOptions::default()).unwrap()
    }

    /// What `flowloom build` writes: with the locks that serialize packets on several CPUs.
    pub fn built(&self) -> Program {
        lower(&self.compile(), &LowerOptions { attached: true, ..LowerOptions::default() }).unwrap()
    }

    /// The object that clang compiles from the twin, for one of [`CPUS`].
    pub fn twin_object(&self, clang: &Clang, cpu: &str) -> Vec<u8> {
        let mut more = vec![format!("-mcpu={cpu}")];
        more.extend(self.macros.iter().map(|define| format!("-D{define}")));
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let functions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions");
        let path = functions.join(format!("{0}/{0}.bpf.c", self.function));
        clang.compile_file(&path, &more).unwrap_or_else(|why| panic!("{}: {why}", self.title()))
    }

    pub fn twin(&self, clang: &Clang, cpu: &str) -> Program {
        let object = flowloom_object::read(&self.twin_object(clang, cpu), &format!("{}.bpf.c", self.function)).unwrap();
        object.program(self.function).unwrap().clone()
    }
}

/// Packets that reach every row, timeout and default action of the function at least 100 times.
pub fn stimulus(function: &Arc<Function>, seed: u64, packets: usize) -> Vec<Arrival> {
    // A twin's table cannot be swept: only its own code can interpret its entries.
    let options = StimulusOptions { sweep_ns: None, ..StimulusOptions::of(function) };
    let mut packets = Stimulus::new(Arc::clone(function), seed, options).take_packets(packets);
    packets.retain(|arrival| !is_mapped(&arrival.bytes));
    let mut machine = Machine::new(Arc::clone(function));
    let mut all = Vec::new();
    for (arrival, choices) in timed(&packets) {
        let outcome = machine.process(&arrival.packet(), &choices).unwrap();
        all.push(arrival.clone());
        // Answers are derived from the output where the function changed the packet.
        let changed = outcome.outputs.iter().filter(|output| output.bytes != arrival.bytes);
        for answer in changed.filter_map(|output| Some((output.port, answer(&output.bytes)?))) {
            let answer = Arrival { time_ns: arrival.time_ns, port: answer.0, bytes: answer.1 };
            machine.process(&answer.packet(), &choices).unwrap();
            all.push(answer);
        }
    }
    let mut reached = Reached::new(function);
    reached.add(&machine.coverage());
    assert!(reached.gaps(100).is_empty(), "seed {seed} leaves gaps in {}:\n{}", function.name, reached.render());
    all
}

/// True for an IPv6 packet with an IPv4-mapped address, which no network carries [RFC 4291 2.5.5.2] and which the twins
/// do not treat as an IPv4 address.
fn is_mapped(frame: &[u8]) -> bool {
    let layers = Layers::parse(Graph::standard(), frame);
    let Some(ip) = layers.offset(Header::Ipv6) else { return false };
    [8, 24].iter().any(|at| frame[ip + at..ip + at + 12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
}

/// The answer to an IPv4 packet with ports.
fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let layers = Layers::parse(Graph::standard(), frame);
    let ip = layers.offset(Header::Ipv4)?;
    let ports = layers.offset(Header::Udp).or(layers.offset(Header::Tcp))?;
    let mut bytes = frame.to_vec();
    bytes[ip + 12..ip + 20].rotate_left(4);
    bytes[ports..ports + 4].rotate_left(2);
    Some(bytes)
}

/// The packets of each capture in the folder that `FLOWLOOM_TRACES` names; none where it is not set.
pub fn captured(test: &str) -> Vec<(String, Vec<Arrival>)> {
    let Some(paths) = captures::paths() else {
        skip(test, "`FLOWLOOM_TRACES` is not set, so captures are left out");
        return Vec::new();
    };
    // Some captures are damaged on purpose: use the packets before the damage.
    let read = |path: &PathBuf| {
        let packets = CaptureReader::open(path).unwrap().map_while(Result::ok).map(captures::arrival);
        let packets = packets.map(|packet| Arrival { port: side(&packet.bytes), ..packet });
        (captures::name_of(path), packets.collect())
    };
    paths.iter().map(read).collect()
}

/// Input port by source: hosts with the smaller addresses are in one network, those with the larger ones in the other.
fn side(frame: &[u8]) -> Port {
    let at = if frame.get(12..14) == Some(&[0x86, 0xdd]) { 22..38 } else { 26..30 };
    let to = at.end..2 * at.end - at.start;
    Port(1 + u32::from(frame.get(at) < frame.get(to)))
}

/// Each packet with its choices; times are monotonic.
fn timed(packets: &[Arrival]) -> impl Iterator<Item = (&Arrival, Choices)> {
    let mut now_ns = 0;
    packets.iter().enumerate().map(move |(i, arrival)| {
        now_ns = now_ns.max(arrival.time_ns);
        (arrival, Choices::seeded(now_ns, 0, i as u64))
    })
}

/// Cost of running some packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    pub instructions: u64,
    pub calls: u64,
    /// Calls of map lookup, update or delete.
    pub map_calls: u64,
}

/// Costs of the lowered function and its twin.
#[derive(Debug, Clone, Copy, Default)]
pub struct Costs {
    pub packets: u64,
    pub lowered: Cost,
    pub twin: Cost,
}

impl Costs {
    /// Ratio of instructions, lowered function to twin.
    pub fn ratio(&self) -> f64 {
        self.lowered.instructions as f64 / self.twin.instructions as f64
    }
}

/// Runs both on the same packets.
///
/// # Panics
/// They disagree: in a verdict, an output, or the number of contexts.
pub fn side_by_side(title: &str, lowered: Program, twin: Program, packets: &[Arrival]) -> Costs {
    let [mut lowered, mut twin] =
        [lowered, twin].map(|program| Interpreter::new(Arc::new(program)).unwrap().with_profile());
    for (i, (arrival, choices)) in timed(packets).enumerate() {
        let expected = lowered.process(&arrival.packet(), &choices).unwrap();
        let found = twin.process(&arrival.packet(), &choices).unwrap();
        assert_eq!(found, expected, "{title}: the twin parts at packet {i}, {arrival:02x?}");
        if i % 4096 == 0 {
            assert_eq!(contexts(&mut twin), contexts(&mut lowered), "{title}: contexts after packet {i}");
        }
    }
    assert_eq!(contexts(&mut twin), contexts(&mut lowered), "{title}: contexts at the end");
    Costs { packets: packets.len() as u64, lowered: cost(&lowered), twin: cost(&twin) }
}

fn cost(engine: &Interpreter) -> Cost {
    let insns = &engine.program().insns;
    let is_map_call = |insn: &Insn| {
        insn.class() == class::JMP
            && insn.op() == jmp::CALL
            && insn.src == call::HELPER
            && [helper::MAP_LOOKUP_ELEM, helper::MAP_UPDATE_ELEM, helper::MAP_DELETE_ELEM].contains(&insn.imm)
    };
    let hits = engine.profile().unwrap();
    let map_calls = insns.iter().zip(hits).filter(|(insn, _)| is_map_call(insn)).map(|(_, hits)| hits).sum();
    Cost { instructions: engine.executed(), calls: engine.calls(), map_calls }
}

/// Number of contexts in each table of an engine.
fn contexts(engine: &mut Interpreter) -> Vec<usize> {
    let snapshot = engine.snapshot().unwrap();
    let maps = &engine.program().maps;
    let tables = maps.iter().filter(|map| map.kind == MapKind::Hash);
    let mut sizes: Vec<usize> = tables.map(|map| snapshot.maps.get(&map.name).map_or(0, MapState::len)).collect();
    sizes.sort_unstable();
    sizes
}
