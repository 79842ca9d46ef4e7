// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine `overlay-rtl`: the machine in SystemVerilog, simulated by Verilator, programmed through its registers.
//!
//! The software model runs all packets beside the machine, as a host that keeps a copy of the contexts. A packet with a
//! header beyond the window leaves for the slow path: what it changes in the copy is changed in the machine, whose entries
//! must be those of the copy before. Outcomes and snapshots are those of the machine, but for packets of the slow path,
//! which are counted, and the ports of a flood.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use flowloom_engine::{
    Choices, Datapath, EngineError, Outcome, Output, Packet, Port, Ports, Refusal, Snapshot, Verdict,
};
use flowloom_overlay::image::{Policy, Step};
use flowloom_overlay::{
    ConfigWrite, Driver, DriverError, Image, KeyedContexts, Overlay, Parameters, StoredContext, configure, rtl,
};
use flowloom_random::{Draw, SplitMix64};

use super::simulated::{MachineError, SimulatedMachine};
use super::{NOT_A_SOURCE, check, fitting, lacks};
use crate::engines::kind::{Compatibility, Engine, EngineKind, EngineOptions, Started};
use crate::engines::pipeline::{cache_folder, verilator};
use crate::engines::stream::{Arrival, Departure, OutputStalls};
use crate::error::{SessionError, with_causes};
use crate::load::Loaded;

const NAME: &str = "overlay-rtl";

pub(in crate::engines) const KIND: EngineKind = EngineKind {
    name: NAME,
    about: "The FlowBlaze machine in SystemVerilog, simulated by Verilator",
    is_default: false,
    is_partial: true,
    available: verilator,
    lacks,
    check: |loaded, _| match loaded.function() {
        Some(function) => {
            let compatibility = check(function);
            match fitting(loaded).ok().and_then(|(_, compilation)| lacking(&compilation.image)) {
                Some(lack) if compatibility.runs == Some(true) => Compatibility::no(lack.to_owned()),
                _ => compatibility,
            }
        }
        None => Compatibility::no(NOT_A_SOURCE.to_owned()),
    },
    load,
    in_place: None,
    on_core: None,
    plugin: None,
};

/// The most packets that run ahead.
const MOST_AHEAD: usize = 512;
/// Time from a sweep to the end of a timer in which the sweep is not left out.
const MARGIN_NS: u64 = 1000;
/// The bank that a function is loaded into.
const BANK: u8 = 0;

/// What of an image the hardware does not run.
fn lacking(image: &Image) -> Option<&'static str> {
    let mut actions = image.stages.iter().flatten().flat_map(|stage| &stage.rows).map(|row| &row.action);
    if actions.any(|action| action.steps.iter().any(is_structural)) {
        return Some("it pushes or pops headers, or clones packets, which the machine in SystemVerilog does not do");
    }
    let mut contexts = image.stages.iter().flatten().filter_map(|stage| stage.context.as_ref());
    contexts
        .any(|context| context.policy != Policy::Reject)
        .then_some("it evicts contexts, and the machine in SystemVerilog does not report which")
}

fn is_structural(step: &Step) -> bool {
    matches!(step, Step::PushVlan(_) | Step::PushMpls(_) | Step::PopVlan | Step::PopMpls | Step::Clone(_))
}

/// The machine with as many places as the function needs: a larger table takes longer to clear and to sweep.
fn sized(image: &Image) -> Image {
    let contexts = image.stages.iter().flatten().filter_map(|stage| stage.context.as_ref());
    let size = contexts.map(|context| context.size).max().unwrap_or(1);
    // Rows are a power of two.
    let elements = image.stages.iter().skip(1).step_by(2).rposition(Option::is_some).map_or(1, |last| last as u32 + 1);
    let needed = (u64::from(size) * 100).div_ceil(95).max(256).next_power_of_two() as u32;
    let contexts = needed.min(image.parameters.contexts.next_power_of_two());
    Image { parameters: Parameters { contexts, elements, ..image.parameters.clone() }, ..image.clone() }
}

fn load(loaded: &Loaded, _: &EngineOptions) -> Result<Started, SessionError> {
    load_files(loaded, &rtl::files_of(rtl::MACHINE), |_| ())
}

/// Loads a function into a machine of these files; `change` is applied to the configuration. For tests that plant faults.
///
/// # Errors
/// The function does not fit, or the simulation does not start.
pub fn load_files(
    loaded: &Loaded,
    files: &[rtl::File<'_>],
    change: impl Fn(&mut Vec<ConfigWrite>),
) -> Result<Started, SessionError> {
    let (function, compilation) = fitting(loaded)?;
    if let Some(lack) = lacking(&compilation.image) {
        return Err(SessionError::Refused(format!("`{}` does not run on {NAME}: {lack}", loaded.name())));
    }
    let refused = |error: &dyn std::error::Error| {
        SessionError::Refused(format!("`{}` does not run on {NAME}: {}", loaded.name(), with_causes(error)))
    };
    let (image, mut writes) =
        configure(&sized(&compilation.image), &function.graph).map_err(|error| refused(&error))?;
    change(&mut writes);
    let note = format!("{NAME}: parameters `{}`, {} contexts", image.parameters.name, image.parameters.contexts);
    let mut machine =
        SimulatedMachine::start_files(files, &image.parameters, &cache_folder(), 1).map_err(|error| match &error {
            DriverError::Bus(MachineError::Cosim(cause)) if cause.is_missing_tool() => {
                SessionError::Environment(with_causes(cause))
            }
            error => refused(error),
        })?;
    machine.load(BANK, &writes).map_err(|error| refused(&error))?;
    let model = Overlay::new(function, Arc::new(image));
    let mut engine =
        Hardware { machine, model, ports: Ports::default(), ahead: VecDeque::new(), slow_packets: 0, batches: 0 };
    engine.write_all().map_err(|error| refused(&error))?;
    Ok(Started { engine: Box::new(engine), notes: vec![note] })
}

/// The engine.
struct Hardware {
    machine: Driver<SimulatedMachine>,
    /// The copy.
    model: Overlay,
    ports: Ports,
    /// The outcomes of packets that ran ahead, and whether they took the slow path.
    ahead: VecDeque<(Result<Outcome, EngineError>, bool)>,
    /// The packets since the last restart that took the slow path.
    slow_packets: u64,
    /// The number of batches, which decides gaps and stalls.
    batches: u64,
}

impl Hardware {
    /// Writes contexts and global registers of the model to the machine, in place of those there.
    fn write_all(&mut self) -> Result<(), DriverError<MachineError>> {
        self.machine.clear(BANK)?;
        for (stage, contexts) in self.model.contexts() {
            for (key, context) in &contexts {
                self.machine.update(stage, BANK, key, context)?;
            }
        }
        for (stage, globals) in self.model.globals() {
            self.machine.set_globals(stage, BANK, globals)?;
        }
        Ok(())
    }

    /// Changes contexts and global registers of the machine as the copy changed. Entries that are changed are those of the
    /// copy before; otherwise the error says which one is not.
    fn follow(
        &mut self,
        before: &[(u8, KeyedContexts)],
        now_ns: u64,
    ) -> Result<Option<EngineError>, DriverError<MachineError>> {
        let mut difference = None;
        for ((stage, before), (_, after)) in before.iter().zip(self.model.contexts()) {
            let keys: BTreeSet<&Vec<u32>> = before.keys().chain(after.keys()).collect();
            for key in keys.into_iter().filter(|key| before.get(*key) != after.get(*key)) {
                let found = self.machine.lookup(*stage, BANK, key)?;
                // A lookup does not find a context that has expired.
                let is_live = |context: &&StoredContext| {
                    let is_over = |deadline_ns: u64| deadline_ns != u64::MAX && deadline_ns <= now_ns;
                    !is_over(context.idle_deadline_ns) && !is_over(context.hard_deadline_ns)
                };
                let expected = before.get(key).filter(is_live);
                if found.as_ref() != expected {
                    let what =
                        format!("the context of {key:08x?} in stage {stage} is {found:?}, expected {expected:?}");
                    difference = difference.or_else(|| Some(misled(&what)));
                }
                match after.get(key) {
                    Some(context) => self.machine.update(*stage, BANK, key, context).map(drop)?,
                    None => self.machine.delete(*stage, BANK, key).map(drop)?,
                }
            }
        }
        for (stage, globals) in self.model.globals() {
            self.machine.set_globals(stage, BANK, globals)?;
        }
        Ok(difference)
    }

    /// Runs packets close behind one another, up to the first one that may take the slow path: packets after it see what it
    /// changes. Returns how many were run.
    fn run(&mut self, packets: &[(Packet<'_>, Choices)]) -> Result<usize, EngineError> {
        self.batches += 1;
        // From the seed of the run, and the same again after a restart.
        let drawn = packets.first().map_or(0, |(_, choices)| u64::from(choices.random[0]));
        let seed = drawn as u32;
        let mut rng = SplitMix64::new(drawn << 32 | self.batches);
        // Every second batch at full rate, the others with gaps, with an output that stalls, or both.
        let (has_gaps, stalls) = match rng.below(6) {
            0 => (true, OutputStalls::default()),
            1 => (false, OutputStalls { of_256: 100, seed }),
            2 => (true, OutputStalls { of_256: 100, seed }),
            _ => (false, OutputStalls::default()),
        };
        let slow = packets.iter().position(|(packet, _)| self.model.may_be_slow(packet));
        let count = slow.map_or(packets.len(), |at| at.max(1));
        let packets = &packets[..count];
        let arrivals: Vec<Arrival<'_>> = packets
            .iter()
            .map(|(packet, choices)| Arrival {
                bytes: packet.bytes,
                port: packet.port.0,
                now_ns: choices.now_ns,
                delay_cycles: if has_gaps && rng.percent(33) { rng.below(12) as u32 } else { 0 },
            })
            .collect();
        let departures = self.machine.bus().send(&arrivals, stalls).map_err(|error| failed(&error))?;
        for ((packet, choices), departure) in packets.iter().zip(departures) {
            let is_slow = departure.verdict == Departure::SLOW;
            let outcome = if is_slow {
                self.slow(packet, choices, departure)
            } else {
                self.model.process(packet, choices)?;
                self.outcome(packet, departure)
            };
            self.ahead.push_back((outcome, is_slow));
        }
        Ok(count)
    }

    fn outcome(&self, packet: &Packet<'_>, departure: Departure) -> Result<Outcome, EngineError> {
        let is_flood = departure.verdict == Departure::OTHERS;
        let verdict = if is_flood { Verdict::Redirect } else { Verdict::from_number(departure.verdict.into()) };
        let outputs = match departure.sent {
            Some((_, bytes)) if is_flood => {
                let ports = self.ports.flooded(packet.port).into_iter();
                ports.map(|port| Output { port, bytes: bytes.clone() }).collect()
            }
            Some((port, bytes)) => vec![Output { port: Port(port), bytes }],
            None => Vec::new(),
        };
        Ok(Outcome { verdict, outputs, events: Vec::new() })
    }

    /// Runs a packet of the slow path, which left as it came.
    fn slow(&mut self, packet: &Packet<'_>, choices: &Choices, left: Departure) -> Result<Outcome, EngineError> {
        if !self.model.may_be_slow(packet) {
            return Err(misled("the packet left for the slow path, but its headers are within the window"));
        }
        if left.sent.is_none_or(|sent| sent != (packet.port.0, packet.bytes.to_vec())) {
            return Err(misled("the packet did not leave for the slow path as it came"));
        }
        let before = self.model.contexts();
        let outcome = self.model.process(packet, choices)?;
        self.machine.set_time(choices.now_ns).map_err(|error| failed(&error))?;
        match self.follow(&before, choices.now_ns).map_err(|error| failed(&error))? {
            Some(difference) => Err(difference),
            None => Ok(outcome),
        }
    }
}

/// An error of the simulation.
fn failed(error: &dyn std::error::Error) -> EngineError {
    let source = std::io::Error::other(with_causes(error));
    EngineError::System { engine: NAME, action: "simulate the machine".to_owned(), source }
}

/// A packet that took another path than expected: a finding about the machine.
fn misled(what: &str) -> EngineError {
    EngineError::Fault { engine: NAME, insn: 0, what: what.to_owned() }
}

impl Datapath for Hardware {
    fn name(&self) -> &str {
        NAME
    }

    fn refuses(&self, packet: &Packet<'_>) -> Option<Refusal> {
        const MAX_BYTES: usize = 144 * 64;
        match packet.bytes.len() {
            // It would have no word.
            0 => Some(Refusal::TooShort { min_bytes: 1 }),
            len => (len > MAX_BYTES).then_some(Refusal::TooLong { max_bytes: MAX_BYTES }),
        }
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.ports = ports.clone();
        self.model.bind_ports(ports);
        // An error of the simulation shows at the next packet, too.
        _ = self.machine.bind_ports(|port| ports.is_bound(Port(port)));
    }

    fn most_ahead(&self) -> usize {
        MOST_AHEAD
    }

    fn announce(&mut self, packets: &[(Packet<'_>, Choices)]) -> Result<(), EngineError> {
        self.ahead.clear();
        let mut rest = packets;
        while !rest.is_empty() {
            let taken = self.run(rest)?;
            rest = &rest[taken..];
        }
        Ok(())
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        if self.ahead.is_empty() {
            self.announce(&[(*packet, *choices)])?;
        }
        let (outcome, is_slow) = self.ahead.pop_front().ok_or_else(|| misled("the packet did not leave"))?;
        self.slow_packets += u64::from(is_slow);
        outcome
    }

    fn slow_packets(&self) -> u64 {
        self.slow_packets
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        // Simulated sweeps take long: those in which nothing expires, or is about to, are left out.
        if !self.model.has_expired(now_ns.saturating_add(MARGIN_NS)) {
            return Ok(());
        }
        self.model.sweep(now_ns)?;
        self.machine.sweep(now_ns).map_err(|error| failed(&error))
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        let mut found = self.model.clone();
        for (stage, _) in self.model.globals() {
            let read = |machine: &mut Driver<SimulatedMachine>| {
                let contexts = machine.contexts(stage, BANK)?;
                Ok::<_, DriverError<MachineError>>((contexts, machine.globals(stage, BANK)?))
            };
            let (contexts, globals) = read(&mut self.machine).map_err(|error| failed(&error))?;
            found.replace(stage, &contexts, &globals);
        }
        found.snapshot()
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.ahead.clear();
        (self.batches, self.slow_packets) = (0, 0);
        self.model.restore(state)?;
        self.machine.bus().restart_times().map_err(|error| failed(&error))?;
        self.write_all().map_err(|error| failed(&error))
    }
}

impl Engine for Hardware {}
