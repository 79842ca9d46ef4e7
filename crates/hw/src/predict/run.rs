//! Runs a program on each packet, to see which keys it uses and which entries it changes.

use std::sync::Arc;

use flowloom_bpf::interp::{Host, HostError};
use flowloom_bpf::op::Size;
use flowloom_bpf::{Interpreter, Program};
use flowloom_engine::{Choices, Packet, Port};
use flowloom_ir::{Argument, Dataflow, Effect, Graph, Id, Input, Kind, Pattern};

use super::PredictError;
use super::arrival::Arrival;
use super::frames::Frame;
use super::keyed::{hashed, leaving_bytes};
use super::known::Facts;
use super::value::value;

/// Longer packets are no frames that a pipeline takes.
const MOST_BYTES: usize = 1 << 16;

/// A program as dataflow, on the maps and helpers of the interpreter.
pub(super) struct Run {
    dataflow: Dataflow,
    host: Interpreter,
    values: Vec<u64>,
    /// For each node whether its effect happened.
    happened: Vec<bool>,
    bytes: Vec<u8>,
    index: u64,
    now_ns: u64,
}

impl Run {
    pub(super) fn new(program: &Arc<Program>, dataflow: Dataflow) -> Result<Run, PredictError> {
        let host = Interpreter::new(Arc::clone(program))?;
        let nodes = dataflow.graph.nodes().len();
        let (values, happened) = (vec![0; nodes], vec![false; nodes]);
        Ok(Run { dataflow, host, values, happened, bytes: Vec::new(), index: 0, now_ns: 0 })
    }

    /// Runs a packet, and says what it used and changed.
    pub(super) fn packet(
        &mut self,
        facts: &Facts,
        frame: &Frame<'_>,
        arrival: &mut Arrival,
    ) -> Result<(), PredictError> {
        (arrival.time_ns, arrival.len_bytes) = (frame.time_ns, frame.len_bytes);
        self.bytes.clear();
        self.bytes.extend_from_slice(frame.bytes);
        self.bytes.resize((frame.len_bytes as usize).clamp(frame.bytes.len(), MOST_BYTES), 0);
        // As a run does: time does not go back.
        self.now_ns = self.now_ns.max(frame.time_ns);
        let choices = Choices::seeded(self.now_ns, 1, self.index);
        self.index += 1;
        let Run { dataflow, host, values, happened, bytes, .. } = self;
        let packet = Packet { bytes, port: Port(frame.port) };
        host.process_by(&packet, &choices, |host| {
            evaluate(dataflow, &packet, host, values, happened)?;
            Ok(values[dataflow.ending.verdict.index()])
        })?;
        let of = |id: Id| values[id.index()];
        let ending = &dataflow.ending;
        let ends = (of(ending.head), of(ending.tail));
        arrival.leaving_bytes = leaving_bytes(Some(of(ending.verdict)), Some(ends), frame.len_bytes);
        (arrival.uses, arrival.writes) = (0, 0);
        arrival.keys.resize(facts.maps.len(), 0);
        for (map, uses) in facts.maps.iter().enumerate() {
            if let Some(access) = uses.accesses.iter().find(|access| happened[access.effect]) {
                arrival.uses |= 1 << map;
                arrival.keys[map] =
                    access.parts.iter().fold(0, |hash, part| hashed(hash, whole(values, &dataflow.graph, part)));
            }
            let is_changed = uses.changes.iter().any(|change| happened[change.effect]);
            arrival.writes |= u64::from(is_changed) << map;
        }
        Ok(())
    }
}

/// Bytes or a number of a key, as one number.
fn whole(values: &[u64], graph: &Graph, ids: &[Id]) -> u64 {
    let mut at = 0;
    ids.iter().fold(0, |value, id| {
        let value = value | values[id.index()] << at;
        at += graph.bits(*id);
        value
    })
}

/// Evaluates every node, in their order, as `flowloom_ir::Evaluator` does; which effects happened.
fn evaluate(
    dataflow: &Dataflow,
    packet: &Packet<'_>,
    host: &mut Host<'_, '_>,
    values: &mut [u64],
    happened: &mut [bool],
) -> Result<(), HostError> {
    let graph = &dataflow.graph;
    let mut args = Vec::new();
    for (number, node) in graph.nodes().iter().enumerate() {
        args.clear();
        args.extend(node.args.iter().map(|arg| (values[arg.index()], graph.bits(*arg))));
        values[number] = match node.kind {
            Kind::Input(Input::Byte(at)) => packet.bytes.get(usize::from(at)).copied().unwrap_or(0).into(),
            Kind::Input(Input::Length) => packet.bytes.len() as u64,
            Kind::Input(Input::Port) => packet.port.0.into(),
            Kind::Input(Input::Only(map)) => host.value(map as usize),
            Kind::Effect(effect) => {
                let given: Vec<u64> = args.iter().map(|(value, _)| *value).collect();
                happened[number] = given[0] != 0;
                if happened[number] { take_effect(effect, &dataflow.patterns, &given, host)? } else { 0 }
            }
            kind => value(kind, &args, node.bits),
        };
    }
    Ok(())
}

fn take_effect(effect: Effect, patterns: &[Pattern], args: &[u64], host: &mut Host<'_, '_>) -> Result<u64, HostError> {
    Ok(match effect {
        Effect::Load(size) => host.load(args[1].wrapping_add(args[2]), size)?,
        Effect::Store(size) => {
            host.store(args[1].wrapping_add(args[2]), size, args[3])?;
            0
        }
        Effect::Atomic(op, size) => host.atomic(args[1].wrapping_add(args[2]), (op, size), args[3], args[4])?,
        Effect::Call { helper, pattern } => {
            let mut given = [0; 5];
            let mut rest = args[1..].iter().copied();
            let (mut memory, _) = host.scratch();
            for (place, argument) in patterns[usize::from(pattern)].arguments.iter().enumerate() {
                given[place] = match argument {
                    Argument::Number => rest.next().unwrap_or(0),
                    Argument::Context => host.context(),
                    Argument::Map(map) => host.map(*map as usize),
                    Argument::Read(len) => {
                        let start = memory;
                        for _ in 0..*len {
                            host.store(memory, Size::B, rest.next().unwrap_or(0))?;
                            memory += 1;
                        }
                        start
                    }
                };
            }
            host.call(helper, given)?
        }
    })
}
