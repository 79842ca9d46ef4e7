//! Runs the dataflow of a program: what shows that it is the program.

use std::sync::Arc;

use flowloom_bpf::interp::{Host, HostError};
use flowloom_bpf::op::Size;
use flowloom_bpf::{Interpreter, Program, ProgramError, fib};
use flowloom_engine::{Choices, Datapath, EngineError, Eviction, Outcome, Packet, Ports, Snapshot};

use crate::arith;
use crate::build::{Argument, Dataflow, Pattern};
use crate::graph::{Effect, Id, Input, Kind};

/// The name of this engine.
const NAME: &str = "dataflow";

/// Runs packets through dataflow, on the maps and helpers of the interpreter.
#[derive(Debug)]
pub struct Evaluator {
    dataflow: Dataflow,
    /// The nodes in the order in which they are evaluated.
    order: Vec<Id>,
    host: Interpreter,
    values: Vec<u64>,
}

impl Evaluator {
    /// The dataflow of a program, on its maps.
    ///
    /// # Errors
    /// As [`Interpreter::new`].
    pub fn new(program: Arc<Program>, dataflow: Dataflow) -> Result<Evaluator, ProgramError> {
        let order = dataflow.graph.ids().collect();
        Evaluator::in_order(program, dataflow, order)
    }

    /// The same, with nodes in another order, as a pipeline has it: what it gives shows that the order is right.
    ///
    /// # Errors
    /// As [`Interpreter::new`].
    pub fn in_order(program: Arc<Program>, dataflow: Dataflow, order: Vec<Id>) -> Result<Evaluator, ProgramError> {
        let host = Interpreter::new(program)?;
        Ok(Evaluator { values: vec![0; dataflow.graph.nodes().len()], dataflow, order, host })
    }

    /// The same with what `fib_lookup` and `check_mtu` ask.
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
        let Evaluator { dataflow, order, host, values } = self;
        host.process_by(packet, choices, |host| {
            let verdict = evaluate(dataflow, order, packet, host, values)?;
            host.replace_packet(&leaving(dataflow, packet, values));
            Ok(verdict)
        })
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
        self.host.restore(state)
    }
}

/// Evaluates every node, in this order; what the program returns.
fn evaluate(
    dataflow: &Dataflow,
    order: &[Id],
    packet: &Packet<'_>,
    host: &mut Host<'_, '_>,
    values: &mut [u64],
) -> Result<u64, HostError> {
    let graph = &dataflow.graph;
    let (mut args, mut widths) = (Vec::new(), Vec::new());
    for id in order {
        let (number, node) = (id.index(), graph.node(*id));
        args.clear();
        args.extend(node.args.iter().map(|arg| values[arg.index()]));
        values[number] = match node.kind {
            Kind::Input(input) => match input {
                Input::Byte(at) => packet.bytes.get(usize::from(at)).copied().unwrap_or(0).into(),
                Input::Length => packet.bytes.len() as u64,
                Input::Port => packet.port.0.into(),
                Input::Only(map) => host.value(map as usize),
            },
            Kind::Bytes { ahead } => bytes_at(packet, i64::from(args[0] as i32) + i64::from(ahead), node.bits / 8),
            Kind::Effect(_) if args[0] == 0 => 0,
            Kind::Effect(effect) => {
                host.at(graph.insn(*id));
                take_effect(effect, &dataflow.patterns, &args, host)?
            }
            kind => {
                widths.clear();
                widths.extend(node.args.iter().map(|arg| graph.bits(*arg)));
                arith::apply(kind, &args, &widths, node.bits)
            }
        };
    }
    Ok(values[dataflow.ending.verdict.index()])
}

/// So many bytes of the packet from there on, the least first.
fn bytes_at(packet: &Packet<'_>, at: i64, count: u16) -> u64 {
    let byte = |at: i64| usize::try_from(at).ok().and_then(|at| packet.bytes.get(at)).copied().unwrap_or(0);
    (0..i64::from(count)).rev().fold(0, |value, number| value << 8 | u64::from(byte(at + number)))
}

fn take_effect(effect: Effect, patterns: &[Pattern], args: &[u64], host: &mut Host<'_, '_>) -> Result<u64, HostError> {
    Ok(match effect {
        Effect::Load(_) if args[1] == 0 => 0,
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

/// The packet as it leaves.
fn leaving(dataflow: &Dataflow, packet: &Packet<'_>, values: &[u64]) -> Vec<u8> {
    let ending = &dataflow.ending;
    let headroom = Host::headroom() as i64;
    let (head, tail) = (values[ending.head.index()] as i32, values[ending.tail.index()] as i32);
    let mut bytes = vec![0; headroom as usize];
    bytes.extend_from_slice(packet.bytes);
    bytes.resize((headroom + i64::from(tail)).max(0) as usize, 0);
    let mut put = |at: i64, byte: Id| {
        let place = usize::try_from(at + headroom).ok();
        if let Some(place) = place.and_then(|place| bytes.get_mut(place)) {
            *place = values[byte.index()] as u8;
        }
    };
    for overlay in &ending.overlays {
        let base = i64::from(values[overlay.base.index()] as i32);
        for (at, laid) in overlay.bytes.iter().filter(|(_, laid)| values[laid.when.index()] != 0) {
            put(base + at, laid.byte);
        }
    }
    ending.packet.iter().for_each(|(at, byte)| put(*at, *byte));
    bytes.split_off((headroom + i64::from(head)).clamp(0, bytes.len() as i64) as usize)
}
