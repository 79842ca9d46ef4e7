// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The generated pipeline, simulated by Verilator.
//!
//! Packets that reach beyond the window leave for the slow path. The interpreter runs all packets beside the pipeline,
//! as a host that keeps a copy of the maps: what a packet of the slow path or a sweep changes in the copy, it changes
//! in the pipeline, once the entries there are found to be those of the copy. Outcomes and snapshots are those of the
//! pipeline, but for packets of the slow path, which are counted, the ports of a redirect to all ports, and maps
//! without a rendering.

mod simulated;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use flowloom_cosim::CosimError;
use flowloom_efsm::difference::state_differences;
use flowloom_engine::{
    Choices, Datapath, EngineError, MapState, Outcome, Output, Packet, Port, Ports, Refusal, Snapshot, Verdict,
};
use flowloom_ir::Evaluator;
use flowloom_isa::{Explained, MapKind};
use flowloom_plan::{Options, Plan};
use flowloom_random::{Draw, SplitMix64};
use flowloom_rtl::{Access, Core, MapPort, Pipeline, Rendering};
use flowloom_vm::Interpreter;

use super::kind::{Compatibility, Engine, EngineKind, EngineOptions, Reason};
use super::stream::{Arrival, Departure, OutputStalls, SendError};
use crate::error::{SessionError, with_causes};
use crate::load::Loaded;
use crate::plans::PlanError;
pub use simulated::{HostAccess, HostAnswer, Interrupted, Interruption, Operation, Simulated};

const NAME: &str = "pipeline";

pub(super) const KIND: EngineKind = EngineKind {
    name: NAME,
    about: "The generated hardware pipeline, simulated by Verilator",
    is_default: false,
    is_partial: true,
    available: verilator,
    lacks: |_| None,
    check: |loaded, program| match program.as_ref().map(|_| loaded.pipeline(&Options::default())) {
        Ok(Ok(_)) => Compatibility::yes(),
        Ok(Err(PipelineError::Plan(PlanError::Refused(refusal)))) => {
            let reason = Reason { insn: refusal.insn, what: refusal.reason.to_string(), help: refusal.reason.help() };
            let summary = refusal.to_string();
            Compatibility { runs: Some(false), summary, reasons: vec![reason], walked: None }
        }
        Ok(Err(error)) => Compatibility::no(with_causes(&error)),
        Err(reason) => Compatibility::no(reason.clone()),
    },
    load: |loaded, options| Ok(Simulation::start(loaded, options)?.into()),
    in_place: None,
    on_core: None,
    plugin: None,
};

/// Whether Verilator is installed.
pub(in crate::engines) fn verilator() -> Result<(), String> {
    let found = std::process::Command::new("verilator").arg("--version").output();
    match found {
        Ok(done) if done.status.success() => Ok(()),
        _ => Err("Verilator is not installed: install `verilator` and a C++ compiler".to_owned()),
    }
}

/// The reason why a function has no pipeline.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// There is no plan.
    #[error(transparent)]
    Plan(PlanError),
    /// The plan is not rendered.
    #[error("the plan has no rendering: {0}")]
    Rendering(flowloom_rtl::RtlError),
}

impl Loaded {
    /// Plans a pipeline and renders it as SystemVerilog.
    ///
    /// # Errors
    /// There is no plan, or it has no rendering.
    pub fn pipeline(&self, options: &Options) -> Result<Pipeline, PipelineError> {
        self.planned_pipeline(options).map(|(_, pipeline)| pipeline)
    }

    /// As [`Loaded::pipeline`], with the plan.
    fn planned_pipeline(&self, options: &Options) -> Result<(Plan, Pipeline), PipelineError> {
        let plan = self.plan(options).map_err(PipelineError::Plan)?;
        let pipeline = self.rendered(&plan)?;
        Ok((plan, pipeline))
    }

    /// Renders a plan of this function as SystemVerilog.
    ///
    /// # Errors
    /// It has no rendering.
    pub fn rendered(&self, plan: &Plan) -> Result<Pipeline, PipelineError> {
        self.rendered_as(plan, &Rendering::default())
    }

    /// As [`Loaded::rendered`], with choices that change no result.
    ///
    /// # Errors
    /// It has no rendering.
    pub fn rendered_as(&self, plan: &Plan, rendering: &Rendering) -> Result<Pipeline, PipelineError> {
        let program = self.pipeline_program();
        let program = program.map_err(|error| PipelineError::Plan(PlanError::Analysis(error.into())))?;
        let core = Core::rendered(plan, &program, rendering).map_err(PipelineError::Rendering)?;
        Ok(Pipeline::around(core, plan.options.target.word_bytes))
    }
}

/// The folder of compiled models: below `$XDG_CACHE_HOME`, else below the home folder.
pub fn cache_folder() -> PathBuf {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || folder("HOME").map(|home| home.join(".cache"));
    folder("XDG_CACHE_HOME").or_else(home).unwrap_or_else(std::env::temp_dir).join("flowloom/cosim")
}

/// The engine: the simulated pipeline, and the interpreter for the slow path.
#[derive(Debug)]
struct Simulation {
    pipeline: Simulated,
    host: Interpreter,
    ports: Ports,
    /// Tells packets of the slow path before they run.
    evaluator: Evaluator,
    /// The outcomes of packets that ran ahead, and whether they took the slow path.
    ahead: VecDeque<(Result<Outcome, EngineError>, bool)>,
    /// The packets since the last restart that took the slow path.
    slow_packets: u64,
    /// A difference of maps that a sweep met: the outcome of the next packet.
    swept_difference: Option<EngineError>,
    /// The number of batches, which decides gaps and stalls.
    batches: u64,
}

/// The most packets that run ahead.
const MOST_AHEAD: usize = 512;

impl Simulation {
    fn start(loaded: &Loaded, options: &EngineOptions) -> Result<Simulation, SessionError> {
        let refused = |error: &dyn std::error::Error| {
            SessionError::Refused(format!("`{}` has no pipeline: {}", loaded.name(), with_causes(error)))
        };
        let (plan, pipeline) = loaded.planned_pipeline(&Options::default()).map_err(|error| refused(&error))?;
        let program = loaded.pipeline_program()?;
        let evaluator = Evaluator::new(Arc::clone(&program), plan.dataflow).map_err(|e| SessionError::input(&e))?;
        let mut host = Interpreter::new(program).map_err(|e| SessionError::input(&e))?;
        if let Some(routes) = &options.routes {
            host = host.with_routes(routes.clone());
        }
        let pipeline = Simulated::start(&pipeline, &cache_folder(), 1).map_err(|error| {
            let text = match &error {
                CosimError::File { .. } => format!(
                    "the folder of compiled models cannot be used: {}; set XDG_CACHE_HOME to a folder that can be written",
                    with_causes(&error)
                ),
                error => with_causes(error),
            };
            match error.is_missing_tool() || matches!(error, CosimError::File { .. }) {
                true => SessionError::Environment(text),
                false => SessionError::Refused(text),
            }
        })?;
        let mut own = Simulation {
            pipeline,
            host,
            ports: Ports::default(),
            evaluator,
            ahead: VecDeque::new(),
            slow_packets: 0,
            swept_difference: None,
            batches: 0,
        };
        let initial = own.host.snapshot().map_err(|error| SessionError::input(&error))?;
        own.write(&initial).map_err(|error| SessionError::input(&error))?;
        Ok(own)
    }

    /// Writes the contents of all maps of the pipeline.
    fn write(&mut self, state: &Snapshot) -> Result<(), CosimError> {
        let maps: Vec<_> = self.pipeline.maps().cloned().collect();
        let none = MapState::new();
        for map in maps {
            let known = state.maps.get(&map.name);
            let to: Option<fn(u32) -> Port> = match self.host.program().maps[map.map as usize].kind {
                MapKind::Cpumap => Some(Port::of_cpu),
                MapKind::Xskmap => Some(Port::of_socket),
                _ => None,
            };
            if let Some(to) = to {
                let port = |key: &Vec<u8>| {
                    to(u32::from_le_bytes(*key.first_chunk().unwrap_or(&[0; 4]))).0.to_le_bytes().to_vec()
                };
                let ports = known.into_iter().flat_map(|known| known.keys().map(|key| (key.clone(), port(key))));
                self.pipeline.write(map.map, &ports.collect())?;
                continue;
            }
            match (known, map.access) {
                // Without contents of its own, each key of a map of ports leads to the port of its number.
                (None, Access::Ports { .. }) => {
                    let ports = (0..map.entries).map(|port| port.to_le_bytes().to_vec());
                    self.pipeline.write(map.map, &ports.map(|port| (port.clone(), port)).collect())?;
                }
                (known, _) if self.is_lru(map.map) => {
                    let known = known.unwrap_or(&none);
                    let order = self.host.used_since(map.map as usize, 0).into_iter().map(|(_, key)| key).collect();
                    self.pipeline.use_in_order(map.map, known, order)?;
                }
                (known, _) => self.pipeline.write(map.map, known.unwrap_or(&none))?,
            }
        }
        Ok(())
    }

    /// Runs packets, none of which takes the slow path, behind one another.
    fn fast(&mut self, packets: &[(Packet<'_>, Choices)]) -> Result<(), EngineError> {
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
        let arrivals = packets.iter().map(|(packet, choices)| Arrival {
            bytes: packet.bytes,
            port: packet.port.0,
            now_ns: choices.now_ns,
            delay_cycles: if has_gaps && rng.percent(33) { rng.below(12) as u32 } else { 0 },
        });
        let arrivals: Vec<Arrival<'_>> = arrivals.collect();
        let drawn: Vec<Choices> = packets.iter().map(|(_, choices)| *choices).collect();
        let departures = self.pipeline.send_drawing(&arrivals, &drawn, stalls).map_err(|error| failed(&error))?;
        if departures.len() != packets.len() {
            let (given, verdicts) = (packets.len(), departures.len());
            return Err(failed(&SendError::Missing { given, verdicts, extra: 0, whole: verdicts }));
        }
        for ((packet, choices), departure) in packets.iter().zip(departures) {
            // What a host knows of the state: which entries to sweep, and what packets of the slow path change.
            self.host.process(packet, choices)?;
            let outcome = self.outcome(packet, departure);
            self.ahead.push_back((outcome, false));
        }
        Ok(())
    }

    /// The outcome of a packet that did not take the slow path.
    fn outcome(&mut self, packet: &Packet<'_>, mut departure: Departure) -> Result<Outcome, EngineError> {
        let extra = std::mem::take(&mut departure.extra).into_iter();
        let extra = extra.map(|(port, bytes)| Output { port: Port(port), bytes });
        // As in the kernel, those for unbound ports are lost.
        let extra: Vec<Output> = extra.filter(|output| self.ports.is_bound(output.port)).collect();
        let mut outcome = self.own_outcome(packet, departure)?;
        outcome.outputs.splice(..0, extra);
        Ok(outcome)
    }

    /// The outcome without the packets that it sends besides itself.
    fn own_outcome(&mut self, packet: &Packet<'_>, departure: Departure) -> Result<Outcome, EngineError> {
        if departure.verdict == Departure::SLOW {
            return Err(misled("the packet left for the slow path, where the plan does not send it"));
        }
        if let Departure::ALL | Departure::OTHERS = departure.verdict {
            return self.spread(packet, departure);
        }
        let verdict = Verdict::from_number(departure.verdict.into());
        let outputs = departure.sent.map(|(port, bytes)| Output { port: Port(port), bytes });
        Ok(match outputs {
            // An unbound port: the packet is lost.
            Some(output)
                if verdict == Verdict::Redirect && output.port.is_wire() && !self.ports.is_bound(output.port) =>
            {
                Outcome::without_output(Verdict::Aborted)
            }
            Some(output) => Outcome::sent(verdict, output.port, output.bytes),
            None => Outcome::without_output(verdict),
        })
    }

    /// The outcome of a packet that leaves through all ports of a map, which the switch behind the pipeline knows.
    fn spread(&mut self, packet: &Packet<'_>, departure: Departure) -> Result<Outcome, EngineError> {
        let Some((map, bytes)) = departure.sent else {
            return Err(failed(&SendError::Missing { given: 1, verdicts: 1, extra: 0, whole: 0 }));
        };
        let but = (departure.verdict == Departure::OTHERS).then_some(packet.port);
        let ports = self.host.ports_of(map as usize, but);
        let outputs = ports.into_iter().map(|port| Output { port, bytes: bytes.clone() }).collect();
        Ok(Outcome { verdict: Verdict::Redirect, outputs, events: Vec::new() })
    }

    /// Runs a packet of the slow path: it leaves the pipeline as it came, and the host runs it.
    fn slow(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        let arrival = Arrival { bytes: packet.bytes, port: packet.port.0, now_ns: choices.now_ns, delay_cycles: 0 };
        let departures = self.pipeline.send(&[arrival], OutputStalls::default()).map_err(|error| failed(&error))?;
        let left = departures.into_iter().next();
        let left = left.filter(|left| left.verdict == Departure::SLOW && left.extra.is_empty());
        if left.and_then(|departure| departure.sent).is_none_or(|sent| sent != (packet.port.0, packet.bytes.to_vec())) {
            return Err(misled("the packet did not leave for the slow path as it came, where the plan sends it"));
        }
        let before = self.host.snapshot()?;
        let times = self.last_uses();
        let outcome = self.host.process(packet, choices)?;
        match self.follow(&before, &times)? {
            Some(difference) => Err(difference),
            None => Ok(outcome),
        }
    }

    /// Whether a full map evicts the entry with the least recent use.
    fn is_lru(&self, map: u32) -> bool {
        self.host.program().maps[map as usize].kind.is_lru()
    }

    /// By map, the time of the last use of an entry in the host.
    fn last_uses(&self) -> Vec<u64> {
        let last = |map| self.host.used_since(map, 0).last().map_or(0, |(time, _)| *time);
        (0..self.host.program().maps.len()).map(last).collect()
    }

    /// Makes the changes of the host's maps in the pipeline's, and the uses of LRU maps since `times`. Returns the
    /// first difference between the entries that this changes in the pipeline and those that the host had before: once
    /// they are written, no snapshot shows it.
    fn follow(&mut self, before: &Snapshot, times: &[u64]) -> Result<Option<EngineError>, EngineError> {
        let after = self.host.snapshot()?;
        let none = MapState::new();
        let mut difference = None;
        let maps: Vec<_> = self.pipeline.maps().cloned().collect();
        for map in maps.into_iter().filter(|map| !matches!(map.access, Access::Ports { .. })) {
            let [before, after] = [before, &after].map(|state| state.maps.get(&map.name).unwrap_or(&none));
            let found = self.changed_entries(&map, before, after).map_err(|error| failed(&error))?;
            difference = difference.or_else(|| self.difference(&map, before, found));
            self.pipeline.change(map.map, before, after).map_err(|error| failed(&error))?;
            if self.is_lru(map.map) {
                let used = self.host.used_since(map.map as usize, times[map.map as usize]);
                let used = used.into_iter().map(|(_, key)| key).collect();
                self.pipeline.use_in_order(map.map, after, used).map_err(|error| failed(&error))?;
            }
        }
        Ok(difference)
    }

    /// The entries of the pipeline that a change from one state to another one writes, by key.
    fn changed_entries(
        &mut self,
        map: &MapPort,
        before: &MapState,
        after: &MapState,
    ) -> Result<BTreeMap<Vec<u8>, Option<Vec<u8>>>, CosimError> {
        let all: BTreeSet<&Vec<u8>> = before.keys().chain(after.keys()).collect();
        let mut changed: Vec<&Vec<u8>> = all.into_iter().filter(|key| before.get(*key) != after.get(*key)).collect();
        if !self.is_lru(map.map) {
            return self.pipeline.read_entries(map.map, &changed);
        }
        // Entries that the host does not have are deleted, too.
        let found = self.pipeline.read(map.map)?;
        changed.extend(found.keys().filter(|key| !after.contains_key(*key)));
        Ok(changed.into_iter().map(|key| (key.clone(), found.get(key).cloned())).collect())
    }

    /// The first of these entries that the host does not have in the same way, as a fault.
    fn difference(
        &self,
        map: &MapPort,
        before: &MapState,
        found: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    ) -> Option<EngineError> {
        let size = map.value_bytes as usize;
        // A large array has no entries that are all zeros.
        let zeros = (!matches!(map.access, Access::Key { .. })).then(|| vec![0; size]);
        let own = |key: &Vec<u8>| before.get(key).map(|value| value[..size].to_vec()).or_else(|| zeros.clone());
        let expected = found.keys().filter_map(|key| Some((key.clone(), own(key)?))).collect();
        let found = found.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        let [expected, found] = [expected, found].map(|state: MapState| {
            let maps = [(map.name.clone(), state)].into();
            Snapshot { maps, ..Snapshot::default() }
        });
        let layouts = &self.host.program().maps[map.map as usize].layout;
        let layouts = layouts.iter().map(|layout| (map.name.clone(), layout.clone())).collect();
        let differences = state_differences(&expected, &found, &layouts, true);
        differences
            .first()
            .map(|difference| misled(&format!("its maps differ before the host changes them: {difference}")))
    }
}

/// An error of the simulation.
fn failed(error: &dyn std::error::Error) -> EngineError {
    let source = std::io::Error::other(with_causes(error));
    EngineError::System { engine: NAME, action: "simulate the pipeline".to_owned(), source }
}

/// A packet that took another way than the plan says: a finding about the pipeline.
fn misled(what: &str) -> EngineError {
    EngineError::Fault { engine: NAME, insn: 0, what: what.to_owned() }
}

impl Datapath for Simulation {
    fn name(&self) -> &str {
        NAME
    }

    fn refuses(&self, packet: &Packet<'_>) -> Option<Refusal> {
        let max_bytes = self.pipeline.max_bytes();
        match packet.bytes.len() {
            // It would have no word.
            0 => Some(Refusal::TooShort { min_bytes: 1 }),
            len => (len > max_bytes).then_some(Refusal::TooLong { max_bytes }),
        }
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.ports = ports.clone();
        self.host.bind_ports(ports);
    }

    fn most_ahead(&self) -> usize {
        MOST_AHEAD
    }

    fn announce(&mut self, packets: &[(Packet<'_>, Choices)]) -> Result<(), EngineError> {
        self.ahead.clear();
        let mut rest = packets;
        if let Some(difference) = self.swept_difference.take() {
            self.ahead.push_back((Err(difference), false));
            return Ok(());
        }
        while !rest.is_empty() {
            let fast = rest.iter().take_while(|(packet, _)| !self.evaluator.is_slow(packet)).count();
            let (fast, after) = rest.split_at(fast);
            if !fast.is_empty() {
                self.fast(fast)?;
            }
            rest = after;
            if let Some(((packet, choices), after)) = after.split_first() {
                let outcome = self.slow(packet, choices);
                self.ahead.push_back((outcome, true));
                rest = after;
            }
        }
        Ok(())
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        if self.ahead.is_empty() {
            self.announce(&[(*packet, *choices)])?;
        }
        let missing = || failed(&SendError::Missing { given: 1, verdicts: 0, extra: 0, whole: 0 });
        let (outcome, is_slow) = self.ahead.pop_front().ok_or_else(missing)?;
        self.slow_packets += u64::from(is_slow);
        outcome
    }

    fn slow_packets(&self) -> u64 {
        self.slow_packets
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        let before = self.host.snapshot()?;
        let times = self.last_uses();
        self.host.sweep(now_ns)?;
        let difference = self.follow(&before, &times)?;
        self.swept_difference = self.swept_difference.take().or(difference);
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        if let Some(difference) = self.swept_difference.take() {
            return Err(difference);
        }
        let mut state = self.host.snapshot()?;
        let maps: Vec<_> = self.pipeline.maps().cloned().collect();
        for map in maps.into_iter().filter(|map| !matches!(map.access, Access::Ports { .. })) {
            let values = self.pipeline.read(map.map).map_err(|error| failed(&error))?;
            let size = map.value_bytes as usize;
            let cpus = state.per_cpu.get(&map.name).copied().unwrap_or(1) as usize;
            let all = state.maps.entry(map.name).or_default();
            all.retain(|key, _| values.contains_key(key));
            for (key, value) in values {
                // A pipeline is one CPU, the first one.
                all.entry(key).or_insert_with(|| vec![0; size * cpus]).splice(..size, value);
            }
        }
        Ok(state)
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.ahead.clear();
        (self.batches, self.slow_packets, self.swept_difference) = (0, 0, None);
        self.host.restore(state)?;
        self.pipeline.restart_times().map_err(|error| failed(&error))?;
        let all = self.host.snapshot()?;
        self.write(&all).map_err(|error| failed(&error))
    }
}

impl Engine for Simulation {}
