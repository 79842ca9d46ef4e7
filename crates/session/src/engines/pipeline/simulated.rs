// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pipeline in simulation: packets through its streams, and the host's accesses to its maps.

mod interrupted;
mod maps;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use flowloom_cosim::{CosimError, Design, End, Event, Memories, Model, Port, Simulation, Stalls, Streams, Transfer};
use flowloom_engine::Choices;
use flowloom_rtl::{Access, MapPort, Pipeline};

pub use interrupted::{Interrupted, Interruption};
use maps::Seen;

use crate::engines::stream::{Arrival, Departure, OutputStalls, PacketStream, SendError};

/// Operations of the host on maps with keys.
const LOOKUP: u64 = 0;
const UPDATE: u64 = 1;
const DELETE: u64 = 2;
const READ_ROW: u64 = 3;
/// Cycles in which tables make room for another key.
const ROOM_CYCLES: u32 = 2000;
/// Cycles without an event after the last verdict, with an output that does not stall.
const SETTLE_CYCLES: u32 = 32;
/// The bytes of an egress port; the next one says whether there is one.
const PORT_BYTES: usize = 4;
/// Accesses of the host in one request.
const HOST_BATCH: usize = 1 << 12;

/// An access of the host while packets are in the pipeline. Accesses are made in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAccess {
    /// The packets that are taken at the input before it is tried.
    pub after_packets: usize,
    /// The cycles after these packets, and after the access before it.
    pub delay_cycles: u32,
    /// The map.
    pub map: u32,
    /// The key; for arrays the index in four bytes, little endian.
    pub key: Vec<u8>,
    /// The operation.
    pub operation: Operation,
}

/// The operations of the host on an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Looks it up.
    Lookup,
    /// Writes its value, in a map with keys also where there is no entry.
    Update(Vec<u8>),
    /// Deletes it, which arrays refuse.
    Delete,
    /// Reads the row of a map with keys whose number is in place of the key.
    ReadRow,
}

/// The answer to an access of the host. The access takes effect between two packets, in the order in which packets
/// reach the map: it is after all packets with a verdict before `made_cycle`, and before all packets that are taken at
/// the input from this cycle on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAnswer {
    /// The cycle in which it was made.
    pub made_cycle: u64,
    /// The cycle of the answer.
    pub answered_cycle: u64,
    /// The value before it, if there was an entry.
    pub before: Option<Vec<u8>>,
    /// Whether an update was refused by a full map.
    pub refused: bool,
}

/// The ports of the host for a map.
#[derive(Debug)]
struct HostPorts {
    valid: Port,
    ready: Port,
    value: Port,
    answer_valid: Port,
    answer: Port,
    /// Maps without keys: a write, and the index.
    write: Option<Port>,
    index: Option<Port>,
    /// Maps with keys.
    keyed: Option<KeyedPorts>,
}

/// The ports of the host for a map with keys.
#[derive(Debug)]
struct KeyedPorts {
    operation: Port,
    key: Port,
    present: Port,
    full: Port,
    answer_key: Port,
    count: Port,
    rows: u32,
}

/// A pipeline in simulation.
#[derive(Debug)]
pub struct Simulated {
    simulation: Simulation,
    input_bytes: usize,
    output_bytes: usize,
    ports: PacketStream,
    maps: Vec<(MapPort, HostPorts)>,
    /// Large arrays, by map.
    seen: BTreeMap<u32, Seen>,
    latency_cycles: u32,
    max_bytes: usize,
}

impl Simulated {
    /// Compiles a pipeline, or finds it in `cache`, and starts it. Registers have random values of the seed at first.
    ///
    /// # Errors
    /// Those of [`Model::build`].
    pub fn start(pipeline: &Pipeline, cache: &Path, seed: u32) -> Result<Simulated, CosimError> {
        let model = Model::build(&design(pipeline, cache)?, cache)?;
        let (input, output) = (|name: &str| model.input(name), |name: &str| model.output(name));
        let ports = PacketStream::of(
            &model,
            pipeline.word_bytes() as usize,
            pipeline.core.random_words > 0,
            !pipeline.core.sends.is_empty(),
        )?;
        let maps = pipeline.core.maps.iter().map(|map| {
            let name = |suffix: &str| format!("map{}_{suffix}", map.map);
            let is_keyed = matches!(map.access, Access::Key { .. });
            let is_indexed = matches!(map.access, Access::Index { .. } | Access::Ports { .. });
            let keyed = match map.access {
                Access::Key { rows, .. } => Some(KeyedPorts {
                    operation: input(&name("operation_i"))?,
                    key: input(&name("key_i"))?,
                    present: output(&name("present_o"))?,
                    full: output(&name("full_o"))?,
                    answer_key: output(&name("key_o"))?,
                    count: output(&name("count_o"))?,
                    rows,
                }),
                _ => None,
            };
            let ports = HostPorts {
                valid: input(&name("valid_i"))?,
                ready: output(&name("ready_o"))?,
                write: if is_keyed { None } else { Some(input(&name("write_i"))?) },
                index: if is_indexed { Some(input(&name("index_i"))?) } else { None },
                value: input(&name("value_i"))?,
                answer_valid: output(&name("valid_o"))?,
                answer: output(&name("value_o"))?,
                keyed,
            };
            Ok((map.clone(), ports))
        });
        let mut simulated = Simulated {
            maps: maps.collect::<Result<_, CosimError>>()?,
            simulation: model.start(seed)?,
            input_bytes: model.input_bytes(),
            output_bytes: model.output_bytes(),
            max_bytes: pipeline.max_bytes() as usize,
            ports,
            seen: BTreeMap::new(),
            latency_cycles: pipeline.core.latency_cycles,
        };
        simulated.reset()?;
        simulated.find_memories()?;
        Ok(simulated)
    }

    /// Resets the pipeline and waits until its maps are cleared. Packets in it are lost.
    ///
    /// # Errors
    /// The simulation has ended.
    pub fn reset(&mut self) -> Result<(), CosimError> {
        self.ports.reset(&mut self.simulation)
    }

    /// Lets the times of the next packets be before those of the last ones. No packet may be in the pipeline.
    ///
    /// # Errors
    /// The simulation has ended.
    pub fn restart_times(&mut self) -> Result<(), CosimError> {
        self.ports.restart_times(&mut self.simulation)
    }

    /// The longest packet; longer ones are discarded.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// The maps that the pipeline holds.
    pub fn maps(&self) -> impl Iterator<Item = &MapPort> {
        self.maps.iter().map(|(map, _)| map)
    }

    /// Sends packets back to back, but for their delays, and returns the result of each. All of them have left in the
    /// end.
    ///
    /// # Errors
    /// The simulation has ended, or a packet did not come out.
    pub fn send(&mut self, packets: &[Arrival<'_>], stalls: OutputStalls) -> Result<Vec<Departure>, SendError> {
        self.send_and_access(packets, &[], stalls).map(|(departures, _)| departures)
    }

    /// As [`Simulated::send`], with the random numbers that each packet draws; without any, they are 0.
    ///
    /// # Errors
    /// As for [`Simulated::send`].
    pub fn send_drawing(
        &mut self,
        packets: &[Arrival<'_>],
        random: &[Choices],
        stalls: OutputStalls,
    ) -> Result<Vec<Departure>, SendError> {
        self.transfer(packets, random, &[], stalls).map(|(departures, _)| departures)
    }

    /// As [`Simulated::send`], with accesses of the host while the packets are on their way.
    ///
    /// # Errors
    /// As for [`Simulated::send`]; an access was not made, or is not possible on its map.
    pub fn send_and_access(
        &mut self,
        packets: &[Arrival<'_>],
        accesses: &[HostAccess],
        stalls: OutputStalls,
    ) -> Result<(Vec<Departure>, Vec<HostAnswer>), SendError> {
        self.transfer(packets, &[], accesses, stalls)
    }

    fn transfer(
        &mut self,
        packets: &[Arrival<'_>],
        random: &[Choices],
        accesses: &[HostAccess],
        stalls: OutputStalls,
    ) -> Result<(Vec<Departure>, Vec<HostAnswer>), SendError> {
        let (words, before) = self.ports.words(packets, random);
        let made: Vec<flowloom_cosim::Access> =
            accesses.iter().map(|access| self.host_access(access, &before)).collect::<Result<_, SendError>>()?;
        // Longer than any packet takes without an event, with stalls, and while tables make room for new keys.
        let slowed = |cycles: u32| cycles * 256 / (256 - u32::from(stalls.of_256));
        let end = End {
            idle_cycles: slowed(self.latency_cycles + ROOM_CYCLES),
            settle_cycles: slowed(SETTLE_CYCLES),
            monitored: packets.len() as u32,
        };
        let stalls = Stalls { of_256: stalls.of_256, seed: stalls.seed };
        let rest = vec![0; self.input_bytes];
        let transfer = Transfer { rest: &rest, words: &words, accesses: &made, stalls, end };
        let events = self.simulation.transfer(&transfer)?;
        Ok((self.ports.departures(packets, &events)?, self.answers(accesses, &events)?))
    }

    /// The inputs of an access of the host; `before` are the words before each packet.
    fn host_access(&self, access: &HostAccess, before: &[usize]) -> Result<flowloom_cosim::Access, SendError> {
        let refused = |why: &'static str| SendError::Access { map: access.map, why };
        let found = self.maps.iter().find(|(own, _)| own.map == access.map);
        let (map, ports) = found.ok_or_else(|| refused("the pipeline does not hold the map"))?;
        let mut inputs = vec![0; self.input_bytes];
        ports.valid.set(&mut inputs, 1);
        let row = access.key.first_chunk().map_or(0, |row| u64::from(u32::from_le_bytes(*row)));
        let operation = match (&access.operation, &ports.keyed, &ports.write) {
            (Operation::Lookup, ..) => LOOKUP,
            (Operation::Update(value), keyed, write) => {
                write.iter().for_each(|port| port.set(&mut inputs, 1));
                let len = if keyed.is_some() { ports.value.len_bytes() } else { map.value_bytes as usize };
                if value.len() != len {
                    return Err(refused("the value has another length than those of the map"));
                }
                ports.value.set_bytes(&mut inputs, value);
                UPDATE
            }
            (Operation::Delete, Some(_), _) => DELETE,
            (Operation::ReadRow, Some(_), _) => READ_ROW,
            (Operation::ReadRow, None, _) => return Err(refused("rows are read of maps with keys only")),
            (Operation::Delete, None, _) => return Err(refused("entries of arrays cannot be deleted")),
        };
        if let Some(keyed) = &ports.keyed {
            keyed.operation.set(&mut inputs, operation);
            keyed.key.set_bytes(&mut inputs, &access.key);
        }
        if row >= u64::from(map.entries) && ports.index.is_some() {
            return Err(refused("the index is beyond the array"));
        }
        ports.index.iter().for_each(|port| port.set(&mut inputs, row));
        let after = before.get(access.after_packets).or(before.last()).copied().unwrap_or(0);
        Ok(flowloom_cosim::Access {
            after_words: after as u32,
            delay_cycles: access.delay_cycles,
            inputs,
            ready: ports.ready.clone(),
            answered: ports.answer_valid.clone(),
        })
    }

    /// The answer to each access of the host, from what happened in which cycle. Those of a map come in its order.
    fn answers(&self, accesses: &[HostAccess], events: &[Event]) -> Result<Vec<HostAnswer>, SendError> {
        let made: Vec<u64> = events.iter().filter(|event| event.is_made()).map(|event| event.cycle).collect();
        let mut answers: Vec<Option<HostAnswer>> = vec![None; accesses.len()];
        for event in events.iter().filter(|event| event.is_answered()) {
            for (map, ports) in self.maps.iter().filter(|(_, ports)| ports.answer_valid.get(&event.outputs) == 1) {
                let own = |number: &usize| accesses[*number].map == map.map && answers[*number].is_none();
                let next = (0..accesses.len()).find(own).filter(|next| made.get(*next).is_some());
                let Some(next) = next else { return Err(SendError::Unexpected { cycle: event.cycle }) };
                let value = ports.answer.bytes(&event.outputs);
                let is_there = match (&ports.keyed, map.access) {
                    (Some(keyed), _) => keyed.present.get(&event.outputs) == 1,
                    (None, Access::Ports { .. }) => value[PORT_BYTES] == 1,
                    (None, _) => true,
                };
                let is_update = matches!(accesses[next].operation, Operation::Update(_));
                let is_full = ports.keyed.as_ref().is_some_and(|keyed| keyed.full.get(&event.outputs) == 1);
                answers[next] = Some(HostAnswer {
                    made_cycle: made[next],
                    answered_cycle: event.cycle,
                    before: is_there.then(|| value.to_vec()),
                    refused: is_update && is_full,
                });
            }
        }
        let missing = answers.iter().position(Option::is_none);
        match missing.and_then(|missing| accesses.get(missing)) {
            Some(access) => Err(SendError::Access { map: access.map, why: "it was not made, or has no answer" }),
            None => Ok(answers.into_iter().flatten().collect()),
        }
    }
}

/// The low bits of a number of this width.
fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits.clamp(1, 64))
}

/// The design of a pipeline; its files are written into the cache.
fn design(pipeline: &Pipeline, cache: &Path) -> Result<Design, CosimError> {
    let mut hasher = DefaultHasher::new();
    pipeline.files.iter().for_each(|file| (&file.name, &file.text).hash(&mut hasher));
    let folder = cache.join("sources").join(format!("{}-{:016x}", pipeline.module, hasher.finish()));
    let error = |path: &Path| {
        let path = path.to_owned();
        move |source| CosimError::File { path, source }
    };
    std::fs::create_dir_all(&folder).map_err(error(&folder))?;
    let mut files: Vec<PathBuf> = Vec::new();
    for file in &pipeline.files {
        let path = folder.join(&file.name);
        // Renamed when complete: another process may read the file.
        let own = format!("{}.{}.{:?}", file.name, std::process::id(), std::thread::current().id());
        let written = folder.join(own);
        std::fs::write(&written, &file.text).map_err(error(&written))?;
        std::fs::rename(&written, &path).map_err(error(&path))?;
        files.push(path);
    }
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let extra = (!pipeline.core.sends.is_empty()).then(|| "extra".to_owned());
    let monitors = ["done".to_owned()].into_iter().chain(extra).collect();
    let streams = Streams { input: "in".to_owned(), output: "out".to_owned(), monitors };
    let arrays = Memories { module: "fl_array".to_owned(), signal: "values_q".to_owned() };
    Ok(Design::new(&pipeline.module, &files).with_streams(streams).with_memories(arrays))
}
