// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets for the test bench of a pipeline, with the interpreter's results.
//!
//! Those of a function are generated traffic, with several packets a flow, from maps with its preloaded contexts and
//! ports alone. Those of a program come from an exploration of its code: a group for each case, which begins with the
//! contents of maps that the case needs, and if they all need entries, one from empty maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_engine::{Choices, Datapath, EngineError, MapState, Outcome, Packet, Port, Ports, Snapshot, Verdict};
use flowloom_ir::Evaluator;
use flowloom_isa::{MapKind, Program};
use flowloom_plan::Plan;
use flowloom_rtl::{Access, Change, Group, MapPort, Pipeline, Vector};
use flowloom_session::Loaded;
use flowloom_verify::explore::{ExploreOptions, explore};
use flowloom_verify::{Arrival, Stimulus, StimulusOptions};
use flowloom_vm::Interpreter;

use crate::failure::{Failure, with_causes};
use crate::output::{counted, print_note};

/// Packets of a test bench of a program at most, but for those of the cases themselves.
const EXPLORED_PACKETS: usize = 1000;
/// Packets of a case of an exploration at most, but for its own.
const CASE_PACKETS: usize = 40;
/// Entries of a state of the exploration at most, and of a map of ports from which all ports are written.
const STATE_ENTRIES: usize = 4096;
/// The seeds of a function's traffic, with a group of packets each.
const SEEDS: [u64; 2] = [0, 1];
/// The packets of each.
const TRAFFIC_PACKETS: usize = 400;
/// The ports of a broadcast through a map without contents of its own: from 1 to this number.
const BROADCAST_PORTS: u32 = 8;
/// The bytes of an egress port.
const PORT_BYTES: usize = 4;

/// The groups of packets for a pipeline of `loaded`, which is the program of `function` if there is one.
pub(crate) fn groups(
    function: Option<&Arc<Function>>,
    loaded: &Loaded,
    plan: &Plan,
    pipeline: &Pipeline,
) -> Result<Vec<Group>, Failure> {
    let program = loaded.program()?;
    let mut recorder = Recorder::new(loaded, &program, plan, pipeline)?;
    if let Some(function) = function {
        let group = |seed| {
            let options = StimulusOptions { sweep_ns: None, ..StimulusOptions::of(function) };
            let packets = Stimulus::new(Arc::clone(function), seed, options).take_packets(TRAFFIC_PACKETS);
            recorder.group(format!("traffic {seed}"), &Snapshot::default(), seed, &packets)
        };
        return SEEDS.into_iter().map(group).collect::<Result<_, _>>().map_err(|e| Failure::input(&e));
    }
    let explored = explore(&program, &ExploreOptions::default()).map_err(|e| Failure::input(&e))?;
    let all: Vec<&Arrival> = explored.cases.iter().flat_map(|case| &case.packets).collect();
    let share = EXPLORED_PACKETS.div_ceil(explored.cases.len().max(1)).min(CASE_PACKETS);
    let entries = |state: &Snapshot| state.maps.values().map(BTreeMap::len).sum::<usize>();
    let mut groups = Vec::new();
    if explored.cases.iter().all(|case| entries(&case.state) > 0) {
        // The packets of all cases, from first to last.
        let count = all.len().min(EXPLORED_PACKETS);
        let packets: Vec<Arrival> = (0..count).map(|at| all[at * all.len() / count].clone()).collect();
        let group = recorder.group("empty maps".to_owned(), &Snapshot::default(), 0, &packets);
        groups.push(group.map_err(|e| Failure::input(&e))?);
    }
    let mut skipped = 0;
    for (number, case) in explored.cases.iter().enumerate() {
        if entries(&case.state) > STATE_ENTRIES {
            skipped += 1;
            continue;
        }
        let mut packets = case.packets.clone();
        let time_ns = packets.iter().map(|packet| packet.time_ns).max().unwrap_or(0);
        // Its own packets again and those of all cases alternately, each twice in a row.
        let other = |at: usize| match at / 2 % 2 {
            0 => &case.packets[at / 4 % case.packets.len()],
            _ => all[(number * 31 + at / 4 * 7) % all.len()],
        };
        if !case.packets.is_empty() {
            packets.extend((0..share).map(|at| Arrival { time_ns, ..other(at).clone() }));
        }
        let group = recorder.group(format!("case {number}"), &case.state, case.seed, &packets);
        groups.push(group.map_err(|e| Failure::input(&e))?);
    }
    if skipped > 0 {
        print_note(&format!(
            "`vectors.txt` lacks {} of {}, which begin with more than {STATE_ENTRIES} entries: `verify` runs them",
            counted(skipped, "group"),
            explored.cases.len()
        ));
    }
    Ok(groups)
}

/// Egress port and bytes of packets that leave.
type Sent = Vec<(u32, Vec<u8>)>;

/// Contents of the pipeline's maps by index, as the host writes them: of arrays the entries that are not zero.
type Contents = BTreeMap<u32, Arc<MapState>>;

struct Recorder<'a> {
    interp: Interpreter,
    evaluator: Evaluator,
    program: &'a Program,
    pipeline: &'a Pipeline,
    /// Contents of the maps after the groups so far.
    contents: Contents,
    /// For maps of ports without contents of their own, ports by their numbers; none for those with more than
    /// [`STATE_ENTRIES`], of which only ports that are used are written.
    numbered: Contents,
}

impl<'a> Recorder<'a> {
    fn new(
        loaded: &Loaded,
        program: &'a Arc<Program>,
        plan: &Plan,
        pipeline: &'a Pipeline,
    ) -> Result<Recorder<'a>, Failure> {
        let dataflow = loaded.dataflow().map_err(|e| Failure::Found(with_causes(&e)))?;
        let dataflow = flowloom_plan::optimize(&dataflow, &plan.options.target);
        let evaluator = Evaluator::new(loaded.pipeline_program()?, dataflow).map_err(|e| Failure::input(&e))?;
        let mut interp = Interpreter::new(Arc::clone(program)).map_err(|e| Failure::input(&e))?;
        if pipeline.core.spreads {
            interp.bind_ports(&Ports::offline(BROADCAST_PORTS));
        }
        let maps = pipeline.core.maps.iter();
        let contents = maps.clone().map(|map| (map.map, Arc::new(reset_contents(map, program)))).collect();
        let small = maps.filter(|map| is_ports(map) && map.entries as usize <= STATE_ENTRIES);
        let numbered = small.map(|map| (map.map, Arc::new((0..map.entries).map(numbered_port).collect()))).collect();
        Ok(Recorder { interp, evaluator, program, pipeline, contents, numbered })
    }

    /// Runs packets from a state. Packets that the pipeline does not take, and those whose result in the pipeline cannot
    /// be told from the interpreter's, are left out.
    fn group(&mut self, name: String, state: &Snapshot, seed: u64, packets: &[Arrival]) -> Result<Group, EngineError> {
        self.interp.restore(state)?;
        let before = self.contents()?;
        let mut changes = self.changes(&before);
        let mut vectors: Vec<Vector> = Vec::new();
        let mut run: Vec<(&Arrival, Choices)> = Vec::new();
        let mut now_ns = 0;
        let lengths = 1..=self.pipeline.max_bytes() as usize;
        for (position, arrival) in packets.iter().filter(|packet| lengths.contains(&packet.bytes.len())).enumerate() {
            now_ns = arrival.time_ns.max(now_ns);
            let (packet, choices) = (arrival.packet(), Choices::seeded(now_ns, seed, position as u64));
            let result = match self.evaluator.is_slow(&packet) {
                true => Some((Vector::SLOW, vec![(packet.port.0, packet.bytes.to_vec())])),
                false => {
                    let outcome = self.interp.process(&packet, &choices)?;
                    run.push((arrival, choices));
                    self.result(&packet, outcome)
                }
            };
            match result {
                Some((verdict, sent)) => {
                    let (bytes, port) = (arrival.bytes.clone(), arrival.port.0);
                    vectors.push(Vector { bytes, port, now_ns, verdict, random: choices.random, sent });
                }
                None => {
                    // As if it had not run.
                    run.pop();
                    self.interp.restore(state)?;
                    for (arrival, choices) in &run {
                        self.interp.process(&arrival.packet(), choices)?;
                    }
                }
            }
        }
        self.contents = self.contents()?;
        for (map, used) in self.used_ports(&vectors)? {
            changes.extend(used.iter().map(|(key, value)| Change {
                map,
                key: key.clone(),
                value: Some(value.clone()),
            }));
            self.contents.insert(map, Arc::new(used));
        }
        let is_ports = |map: u32| self.pipeline.core.maps.iter().any(|port| port.map == map && is_ports(port));
        let entries = self.contents.iter().filter(|(map, _)| !is_ports(**map));
        let entries =
            entries.flat_map(|(map, state)| state.iter().map(|(key, value)| (*map, key.clone(), value.clone())));
        let entries = entries.collect();
        Ok(Group { name, changes, vectors, entries })
    }

    /// The verdict of the pipeline, and the packets that leave it; none if the interpreter's outcome does not tell.
    fn result(&self, packet: &Packet<'_>, outcome: Outcome) -> Option<(u8, Sent)> {
        let core = &self.pipeline.core;
        let Outcome { verdict, mut outputs, .. } = outcome;
        // To a port that does not exist, which the switch behind the pipeline knows.
        if core.redirects && verdict == Verdict::Aborted || verdict == Verdict::Redirect && outputs.is_empty() {
            return None;
        }
        let mut number = verdict.number() as u8;
        if core.spreads && verdict == Verdict::Redirect {
            let mut found = Vec::new();
            // Also maps that only broadcasts use, whose ports are not in hardware; other maps have no ports.
            for map in 0..self.program.maps.len() {
                for (but, verdict) in [(None, Vector::ALL), (Some(packet.port), Vector::OTHERS)] {
                    let ports = self.interp.ports_of(map, but);
                    let first = outputs.len().checked_sub(ports.len());
                    let own = first.map(|first| outputs[first..].iter().map(|output| output.port));
                    if !ports.is_empty() && own.is_some_and(|own| own.eq(ports.iter().copied())) {
                        found.push((map as u32, verdict, ports.len()));
                    }
                }
            }
            match found[..] {
                [] => {}
                // A redirect to one port looks the same.
                [(.., 1), ..] => return None,
                [(map, verdict, count)] => number = spread(&mut outputs, map, count, verdict),
                [(map, _, count), (other, ..)] if map == other => {
                    number = spread(&mut outputs, map, count, Vector::EITHER);
                }
                _ => return None,
            }
        }
        Some((number, outputs.into_iter().map(|output| (output.port.0, output.bytes)).collect()))
    }

    /// The contents of the interpreter's maps, without ports of large maps that have no contents of their own.
    fn contents(&mut self) -> Result<Contents, EngineError> {
        let state = self.interp.snapshot()?;
        let of = |map: &MapPort| match (state.maps.get(&map.name), self.kind(map)) {
            (None, kind) if is_ports(map) && !is_by_kind(kind) => {
                self.numbered.get(&map.map).map(Arc::clone).unwrap_or_default()
            }
            (known, _) => Arc::new(contents(map, self.program, known)),
        };
        Ok(self.pipeline.core.maps.iter().map(|map| (map.map, of(map))).collect())
    }

    /// By large map of ports without contents of its own, the ports to which packets of a group leave.
    fn used_ports(&mut self, vectors: &[Vector]) -> Result<Vec<(u32, MapState)>, EngineError> {
        let state = self.interp.snapshot()?;
        let is_large = |map: &&MapPort| {
            let is_numbered = is_ports(map) && !is_by_kind(self.kind(map)) && !state.maps.contains_key(&map.name);
            is_numbered && !self.numbered.contains_key(&map.map)
        };
        let used = |map: &MapPort| {
            let ports = vectors.iter().flat_map(|vector| &vector.sent).map(|(port, _)| *port);
            ports.filter(|port| *port < map.entries).map(numbered_port).collect()
        };
        Ok(self.pipeline.core.maps.iter().filter(is_large).map(|map| (map.map, used(map))).collect())
    }

    fn kind(&self, map: &MapPort) -> MapKind {
        self.program.maps[map.map as usize].kind
    }

    /// The host's changes from the contents that the groups so far leave to `after`.
    fn changes(&self, after: &Contents) -> Vec<Change> {
        let mut changes = Vec::new();
        let none = Arc::new(MapState::new());
        for map in &self.pipeline.core.maps {
            let [before, after] = [&self.contents, after].map(|contents| contents.get(&map.map).unwrap_or(&none));
            if Arc::ptr_eq(before, after) {
                continue;
            }
            let zeros = (!matches!(map.access, Access::Key { .. })).then(|| vec![0; map.value_bytes as usize]);
            let removed = before.keys().filter(|key| !after.contains_key(*key));
            changes.extend(removed.map(|key| Change { map: map.map, key: key.clone(), value: zeros.clone() }));
            let write =
                |key: &Vec<u8>, value: &Vec<u8>| Change { map: map.map, key: key.clone(), value: Some(value.clone()) };
            if self.program.maps[map.map as usize].kind.is_lru() {
                // An update is a use: in the order of their last uses.
                let used = self.interp.used_since(map.map as usize, 0);
                let used = used.iter().filter_map(|(_, key)| Some((key, after.get(key)?)));
                changes.extend(used.map(|(key, value)| write(key, value)));
                continue;
            }
            let written = after.iter().filter(|(key, value)| before.get(*key) != Some(value));
            changes.extend(written.map(|(key, value)| write(key, value)));
        }
        changes
    }
}

/// Replaces the packets through all ports of a map by one with the index of the map; returns the verdict.
fn spread(outputs: &mut Vec<flowloom_engine::Output>, map: u32, count: usize, verdict: u8) -> u8 {
    outputs.truncate(outputs.len() - count + 1);
    if let Some(own) = outputs.last_mut() {
        own.port = Port(map);
    }
    verdict
}

fn is_ports(map: &MapPort) -> bool {
    matches!(map.access, Access::Ports { .. })
}

/// Whether the ports of a map follow from its kind and keys.
fn is_by_kind(kind: MapKind) -> bool {
    matches!(kind, MapKind::Cpumap | MapKind::Xskmap)
}

/// An entry with a port, in the form of the host.
fn port_entry(key: &[u8], port: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), [&port[..PORT_BYTES], &[1]].concat())
}

/// An entry that leads to the port of its own number.
fn numbered_port(number: u32) -> (Vec<u8>, Vec<u8>) {
    port_entry(&number.to_le_bytes(), &number.to_le_bytes())
}

/// The entries of a map after a reset.
fn reset_contents(map: &MapPort, program: &Program) -> MapState {
    let initial = program.maps[map.map as usize].initial.as_ref().filter(|_| matches!(map.access, Access::Single));
    let value = initial.filter(|value| value.iter().any(|byte| *byte != 0));
    value.map(|value| (vec![0; PORT_BYTES], value.clone())).into_iter().collect()
}

/// The entries of a map in the form of the host, of those in a snapshot.
fn contents(map: &MapPort, program: &Program, known: Option<&MapState>) -> MapState {
    let kind = program.maps[map.map as usize].kind;
    let size = map.value_bytes as usize;
    let number = |key: &[u8]| u32::from_le_bytes(*key.first_chunk().unwrap_or(&[0; PORT_BYTES]));
    match (map.access, known, kind) {
        (Access::Ports { .. }, known, kind) if is_by_kind(kind) => {
            let to = if kind == MapKind::Cpumap { Port::of_cpu } else { Port::of_socket };
            let keys = known.into_iter().flat_map(MapState::keys);
            keys.map(|key| port_entry(key, &to(number(key)).0.to_le_bytes())).collect()
        }
        (Access::Ports { .. }, Some(known), _) => known.iter().map(|(key, value)| port_entry(key, value)).collect(),
        (_, None, _) => reset_contents(map, program),
        // A pipeline is one CPU, the first one.
        (Access::Key { .. }, Some(known), _) => {
            known.iter().map(|(key, value)| (key.clone(), value[..size].to_vec())).collect()
        }
        (_, Some(known), _) => {
            let values = known.iter().map(|(key, value)| (key.clone(), value[..size].to_vec()));
            values.filter(|(_, value)| value.iter().any(|byte| *byte != 0)).collect()
        }
    }
}
