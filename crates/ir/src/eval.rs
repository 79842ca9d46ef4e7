// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An evaluator of dataflow: the oracle that shows the dataflow equal to the program.
//!
//! A packet in which the program accesses bytes beyond the window takes the slow path: the interpreter runs it on the
//! same maps. This is decided before any effect happens, so no effect happens twice.

use std::collections::HashMap;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, EngineError, Eviction, Outcome, Packet, Ports, Snapshot, Verdict};
use flowloom_isa::insn::helper;
use flowloom_isa::op::Size;
use flowloom_isa::{Program, ProgramError};
use flowloom_vm::{Host, HostError, Interpreter, fib};

use crate::access::is_trace;
use crate::arith;
use crate::dataflow::{Argument, Dataflow, Pattern};
use crate::graph::{Effect, Graph, Id, Input, Kind};

const NAME: &str = "dataflow";

/// Runs packets through dataflow, on the maps and helpers of the interpreter.
#[derive(Debug)]
pub struct Evaluator {
    dataflow: Dataflow,
    /// The nodes in the order of evaluation.
    order: Vec<Id>,
    /// The nodes that decide whether a packet takes the slow path.
    slow: Vec<Id>,
    slow_packets: u64,
    /// Packets of the slow path leave as they came instead of being run by the host.
    keeps_slow: bool,
    host: Interpreter,
    values: Vec<u64>,
}

impl Evaluator {
    /// An evaluator of a program's dataflow, with fresh maps.
    ///
    /// # Errors
    /// As [`Interpreter::new`].
    pub fn new(program: Arc<Program>, dataflow: Dataflow) -> Result<Evaluator, ProgramError> {
        let order = dataflow.graph.ids().collect();
        Evaluator::in_order(program, dataflow, order)
    }

    /// The value of a node for the last packet.
    pub fn value(&self, id: Id) -> u64 {
        self.values[id.index()]
    }

    /// Whether an effect happened for the last packet.
    pub fn has_happened(&self, effect: Id) -> bool {
        let node = self.dataflow.graph.node(effect);
        matches!(node.kind, Kind::Effect(_)) && self.value(node.args[0]) != 0
    }

    /// The same, with another order of evaluation, such as a pipeline's schedule: equal results show that the order is
    /// right.
    ///
    /// # Errors
    /// As [`Interpreter::new`].
    pub fn in_order(program: Arc<Program>, dataflow: Dataflow, order: Vec<Id>) -> Result<Evaluator, ProgramError> {
        let host = Interpreter::new(program)?;
        let mut needed = vec![false; dataflow.graph.nodes().len()];
        needed[dataflow.ending.slow.index()] = true;
        for id in dataflow.graph.ids().rev() {
            if needed[id.index()] {
                dataflow.graph.node(id).args.iter().for_each(|arg| needed[arg.index()] = true);
            }
        }
        let slow = order.iter().copied().filter(|id| needed[id.index()]).collect();
        let values = vec![0; dataflow.graph.nodes().len()];
        Ok(Evaluator { values, dataflow, order, slow, slow_packets: 0, keeps_slow: false, host })
    }

    /// Whether a packet takes the slow path.
    pub fn is_slow(&mut self, packet: &Packet<'_>) -> bool {
        let Evaluator { dataflow, slow, values, .. } = self;
        pure(dataflow, slow, packet, values);
        values[dataflow.ending.slow.index()] != 0
    }

    /// Lets packets of the slow path leave as they came, as a pipeline without a host does: they change nothing, and
    /// their nodes have values too.
    #[must_use]
    pub fn keeping_slow(mut self) -> Evaluator {
        self.keeps_slow = true;
        self
    }

    /// Sets the routes that `fib_lookup` and `check_mtu` use.
    #[must_use]
    pub fn with_routes(mut self, routes: fib::Table) -> Evaluator {
        self.host = self.host.with_routes(routes);
        self
    }
}

impl Datapath for Evaluator {
    fn name(&self) -> &str {
        NAME
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.host.bind_ports(ports);
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        let Evaluator { dataflow, order, slow, slow_packets, keeps_slow, host, values } = self;
        pure(dataflow, slow, packet, values);
        let is_slow = values[dataflow.ending.slow.index()] != 0;
        *slow_packets += u64::from(is_slow);
        if is_slow && !*keeps_slow {
            return host.process(packet, choices);
        }
        host.process_by(packet, choices, |host| {
            let verdict = evaluate(dataflow, order, packet, host, values)?;
            if is_slow {
                return Ok(Verdict::Pass.number().into());
            }
            host.replace_packet(&leaving(dataflow, packet, values));
            Ok(verdict)
        })
    }

    fn slow_packets(&self) -> u64 {
        self.slow_packets
    }

    fn evict_next(&mut self, victims: &[Eviction]) {
        self.host.evict_next(victims);
    }

    fn not_evicted(&mut self) -> Vec<Eviction> {
        self.host.not_evicted()
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.host.sweep(now_ns)
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        self.host.snapshot()
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.slow_packets = 0;
        self.host.restore(state)
    }
}

/// Evaluates the pure nodes that depend on no effect, in the given order.
fn pure(dataflow: &Dataflow, order: &[Id], packet: &Packet<'_>, values: &mut [u64]) {
    let mut scratch = Scratch::default();
    for id in order {
        if let Some(value) = scratch.value(&dataflow.graph, *id, packet, values) {
            values[id.index()] = value;
        }
    }
}

/// Scratch space for the arguments of a node.
#[derive(Default)]
struct Scratch {
    args: Vec<u64>,
    widths: Vec<u16>,
}

impl Scratch {
    /// The value of a pure node; `None` for an effect or a byte that a call may have written.
    fn value(&mut self, graph: &Graph, id: Id, packet: &Packet<'_>, values: &[u64]) -> Option<u64> {
        let Scratch { args, widths } = self;
        let node = graph.node(id);
        args.clear();
        args.extend(node.args.iter().map(|arg| values[arg.index()]));
        Some(match node.kind {
            Kind::Input(Input::Byte(at)) => packet.bytes.get(usize::from(at)).copied().unwrap_or(0).into(),
            Kind::Input(Input::Length) => packet.bytes.len() as u64,
            Kind::Input(Input::Port) => packet.port.0.into(),
            Kind::Bytes { ahead } => bytes_at(packet, i64::from(args[0] as i32) + i64::from(ahead), node.bits / 8),
            Kind::Input(Input::Only(_)) | Kind::Effect(_) | Kind::Changed { .. } => return None,
            kind => {
                widths.clear();
                widths.extend(node.args.iter().map(|arg| graph.bits(*arg)));
                arith::apply(kind, args, widths, node.bits)
            }
        })
    }
}

/// Evaluates all nodes in the given order; returns the verdict of the program.
fn evaluate(
    dataflow: &Dataflow,
    order: &[Id],
    packet: &Packet<'_>,
    host: &mut Host<'_, '_>,
    values: &mut [u64],
) -> Result<u64, HostError> {
    let graph = &dataflow.graph;
    let mut scratch = Scratch::default();
    // Memory after each call that may write it.
    let mut changed: HashMap<Id, Vec<u8>> = HashMap::new();
    for id in order {
        let value = match scratch.value(graph, *id, packet, values) {
            Some(value) => value,
            None => match graph.node(*id).kind {
                Kind::Input(Input::Only(map)) => host.value(map as usize),
                Kind::Effect(effect) if scratch.args[0] != 0 => {
                    host.at(graph.insn(*id));
                    let left = &mut Vec::new();
                    let answer = take_effect(effect, &dataflow.patterns, &scratch.args, (packet, host), left)?;
                    if !left.is_empty() {
                        changed.insert(*id, std::mem::take(left));
                    }
                    answer
                }
                Kind::Changed { at } => {
                    let left = changed.get(&graph.node(*id).args[0]).and_then(|bytes| bytes.get(usize::from(at)));
                    left.copied().unwrap_or(0).into()
                }
                _ => 0,
            },
        };
        values[id.index()] = value;
    }
    Ok(values[dataflow.ending.verdict.index()])
}

/// `count` bytes of the packet from offset `at` on, the least significant first.
fn bytes_at(packet: &Packet<'_>, at: i64, count: u16) -> u64 {
    let byte = |at: i64| usize::try_from(at).ok().and_then(|at| packet.bytes.get(at)).copied().unwrap_or(0);
    (0..i64::from(count)).rev().fold(0, |value, number| value << 8 | u64::from(byte(at + number)))
}

fn take_effect(
    effect: Effect,
    patterns: &[Pattern],
    args: &[u64],
    (packet, host): (&Packet<'_>, &mut Host<'_, '_>),
    left: &mut Vec<u8>,
) -> Result<u64, HostError> {
    Ok(match effect {
        Effect::Load(_) if args[1] == 0 => 0,
        Effect::Load(size) => host.load(args[1].wrapping_add(args[2]), size)?,
        Effect::Store(size) => {
            host.store(args[1].wrapping_add(args[2]), size, args[3])?;
            0
        }
        Effect::Atomic(op, size) => host.atomic(args[1].wrapping_add(args[2]), (op, size), args[3], args[4])?,
        Effect::Call { helper, pattern } => {
            call(helper, &patterns[usize::from(pattern)], &args[1..], (packet, host), left)?
        }
    })
}

fn call(
    helper: i32,
    pattern: &Pattern,
    args: &[u64],
    (packet, host): (&Packet<'_>, &mut Host<'_, '_>),
    left: &mut Vec<u8>,
) -> Result<u64, HostError> {
    // It prints arguments that the dataflow does not keep, and its value is not used.
    if pattern.arguments.is_empty() && is_trace(helper) {
        return Ok(0);
    }
    let mut given = [0; 5];
    let mut registers = given.iter_mut();
    let mut give = |value: u64| registers.next().into_iter().for_each(|register| *register = value);
    let mut rest = args.iter().copied();
    let mut next = || rest.next().expect("a call has the arguments of its pattern");
    let (mut memory, _) = host.scratch();
    let mut shown: Option<Frame> = None;
    let mut changed: Vec<(u64, u64)> = Vec::new();
    let record = args.first().copied().unwrap_or(0);
    for argument in &pattern.arguments {
        match argument {
            Argument::Number => give(next()),
            Argument::Context => give(host.context()),
            Argument::Map(map) => give(host.map(*map as usize)),
            Argument::Read(len) | Argument::Changed(len) => {
                give(memory);
                if matches!(argument, Argument::Changed(_)) {
                    changed.push((memory, u64::from(*len)));
                }
                for _ in 0..*len {
                    host.store(memory, Size::B, next())?;
                    memory += 1;
                }
            }
            Argument::Stored(at) => {
                let (when, byte) = (next(), next());
                if when != 0 {
                    host.store(record + u64::from(*at), Size::B, byte)?;
                }
            }
            Argument::Head
            | Argument::Tail
            | Argument::Kept
            | Argument::Base
            | Argument::Laid(_)
            | Argument::Byte(_) => {
                let frame = shown.get_or_insert_with(|| Frame::of(packet));
                match argument {
                    Argument::Head => frame.head = next() as i32,
                    Argument::Tail => frame.end_at(next() as i32),
                    Argument::Kept => frame.blank(next() as i32),
                    Argument::Base => frame.base = next() as i32,
                    Argument::Laid(at) => {
                        let (when, byte) = (next(), next());
                        if when != 0 {
                            frame.put(i64::from(frame.base) + at, byte);
                        }
                    }
                    Argument::Byte(at) => frame.put(*at, next()),
                    _ => {}
                }
            }
        }
    }
    if let Some(frame) = shown {
        host.replace_packet(&frame.bytes());
    }
    // The graph decides where the program continues; the call only looks up the program.
    if helper == helper::TAIL_CALL {
        return Ok(host.program(given[0], given[1] as u32));
    }
    let answer = host.call(helper, given)?;
    for (first, len) in changed {
        for at in 0..len {
            left.push(host.load(first + at, Size::B)? as u8);
        }
    }
    Ok(answer)
}

/// A packet that is being written.
struct Frame {
    /// The bytes, after the headroom.
    bytes: Vec<u8>,
    head: i32,
    base: i32,
}

impl Frame {
    fn of(packet: &Packet<'_>) -> Frame {
        Frame { bytes: [&vec![0; Host::headroom()], packet.bytes].concat(), head: 0, base: 0 }
    }

    fn end_at(&mut self, tail: i32) {
        self.bytes.resize((Host::headroom() as i64 + i64::from(tail)).max(0) as usize, 0);
    }

    /// Clears the bytes from an offset on.
    fn blank(&mut self, from: i32) {
        let from = (Host::headroom() as i64 + i64::from(from)).max(0) as usize;
        self.bytes.iter_mut().skip(from).for_each(|byte| *byte = 0);
    }

    fn put(&mut self, at: i64, byte: u64) {
        let place = usize::try_from(at + Host::headroom() as i64).ok();
        if let Some(place) = place.and_then(|place| self.bytes.get_mut(place)) {
            *place = byte as u8;
        }
    }

    /// The bytes from the first one on.
    fn bytes(mut self) -> Vec<u8> {
        let first = (Host::headroom() as i64 + i64::from(self.head)).clamp(0, self.bytes.len() as i64);
        self.bytes.split_off(first as usize)
    }
}

/// The packet as it leaves.
fn leaving(dataflow: &Dataflow, packet: &Packet<'_>, values: &[u64]) -> Vec<u8> {
    let ending = &dataflow.ending;
    let value = |id: Id| values[id.index()];
    let mut frame = Frame::of(packet);
    frame.head = value(ending.head) as i32;
    frame.end_at(value(ending.tail) as i32);
    ending.kept.iter().for_each(|kept| frame.blank(value(*kept) as i32));
    for overlay in &ending.overlays {
        let base = i64::from(value(overlay.base) as i32);
        for (at, laid) in overlay.bytes.iter().filter(|(_, laid)| value(laid.when) != 0) {
            frame.put(base + at, value(laid.byte));
        }
    }
    ending.packet.iter().for_each(|(at, byte)| frame.put(*at, value(*byte)));
    frame.bytes()
}
