// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pipeline in simulation: packets through its streams, and the host's accesses to its maps.

mod interrupted;
mod maps;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use flowloom_cosim::{
    CosimError, Design, End, Event, Memories, Model, Port, Simulation, Stalls, Streams, Transfer, Word,
};
use flowloom_engine::Choices;
use flowloom_rtl::{Access, MapPort, Pipeline};

pub use interrupted::{Interrupted, Interruption};
use maps::Seen;

/// Operations of the host on maps with keys.
const LOOKUP: u64 = 0;
const UPDATE: u64 = 1;
const DELETE: u64 = 2;
const READ_ROW: u64 = 3;
/// Cycles in which tables make room for another key.
const ROOM_CYCLES: u32 = 2000;
/// Cycles without an event after the last verdict, with an output that does not stall.
const SETTLE_CYCLES: u32 = 32;
/// Cycles after a reset, after which the pipeline is asked whether its maps are cleared; and how often at most.
const CLEARING_CYCLES: u32 = 1 << 10;
const MAX_CLEARING: usize = 1 << 16;
/// The monitors: verdicts of packets, and packets that are sent besides.
const DONE_MONITOR: usize = 0;
const EXTRA_MONITOR: usize = 1;
/// The bytes of an egress port; the next one says whether there is one.
const PORT_BYTES: usize = 4;
/// The bytes after the end of a packet at the input, which the pipeline must not read.
const AFTER_END: u8 = 0xa5;
/// Accesses of the host in one request.
const HOST_BATCH: usize = 1 << 12;

/// A packet at the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The ingress port.
    pub port: u32,
    /// The arrival time in nanoseconds.
    pub now_ns: u64,
    /// The idle cycles before its first word.
    pub delay_cycles: u32,
}

/// The result of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// The verdict's number in XDP; [`Departure::SLOW`] for the slow path.
    pub verdict: u8,
    /// Egress port and bytes of the packets that it sends besides itself, in order.
    pub extra: Vec<(u32, Vec<u8>)>,
    /// Egress port and bytes, unless the packet is dropped.
    pub sent: Option<(u32, Vec<u8>)>,
    /// The cycle in which its last word was taken at the input.
    pub taken_cycle: u64,
    /// The cycle of its verdict, in which it is no longer in the core.
    pub done_cycle: u64,
    /// The cycle of the first word at the output, of an extra packet or its own, or of its verdict without any.
    pub first_cycle: u64,
    /// The cycle of the last word at the output, or of its verdict without any.
    pub last_cycle: u64,
}

impl Departure {
    /// The verdict of a packet that leaves for the slow path as it came.
    pub const SLOW: u8 = 5;
    /// The verdict of a packet that leaves through all ports of a map, whose index is in place of the port.
    pub const ALL: u8 = 6;
    /// The same, except the ingress port.
    pub const OTHERS: u8 = 7;

    /// The verdict at the output of packets that are sent besides.
    const EXTRA: u8 = 0;

    /// Whether the packet leaves the pipeline.
    fn is_sent(verdict: u8) -> bool {
        verdict >= 2
    }
}

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

/// The pattern of stalls at the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputStalls {
    /// The cycles of 256 in which the output is not ready, drawn at random.
    pub of_256: u8,
    /// The seed.
    pub seed: u32,
}

/// The ports of streams and maps.
#[derive(Debug)]
struct Ports {
    valid: Port,
    in_ready: Port,
    last: Port,
    data: Port,
    keep: Port,
    port: Port,
    time: Port,
    restart: Port,
    /// Pipelines of programs that draw random numbers.
    random: Option<Port>,
    out_valid: Port,
    out_ready: Port,
    out_data: Port,
    out_keep: Port,
    out_last: Port,
    out_port: Port,
    out_verdict: Port,
    done_valid: Port,
    done_verdict: Port,
    /// Pipelines whose packets send others.
    extra_valid: Option<Port>,
    ready: Port,
    reset: Port,
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
    top: String,
    simulation: Simulation,
    input_bytes: usize,
    output_bytes: usize,
    ports: Ports,
    maps: Vec<(MapPort, HostPorts)>,
    /// Large arrays, by map.
    seen: BTreeMap<u32, Seen>,
    latency_cycles: u32,
    word_bytes: usize,
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
        let ports = Ports {
            valid: input("in_valid_i")?,
            in_ready: output("in_ready_o")?,
            last: input("in_last_i")?,
            data: input("in_data_i")?,
            keep: input("in_keep_i")?,
            port: input("in_port_i")?,
            time: input("in_time_i")?,
            restart: input("restart_i")?,
            random: (pipeline.core.random_words > 0).then(|| input("in_random_i")).transpose()?,
            out_valid: output("out_valid_o")?,
            out_ready: input("out_ready_i")?,
            out_data: output("out_data_o")?,
            out_keep: output("out_keep_o")?,
            out_last: output("out_last_o")?,
            out_port: output("out_port_o")?,
            out_verdict: output("out_verdict_o")?,
            done_valid: output("done_valid_o")?,
            done_verdict: output("done_verdict_o")?,
            extra_valid: (!pipeline.core.sends.is_empty()).then(|| output("extra_valid_o")).transpose()?,
            ready: output("ready_o")?,
            reset: input("rst_i")?,
        };
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
            top: pipeline.module.clone(),
            simulation: model.start(seed)?,
            input_bytes: model.input_bytes(),
            output_bytes: model.output_bytes(),
            word_bytes: pipeline.word_bytes() as usize,
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
        let mut inputs = vec![0; self.input_bytes];
        self.ports.reset.set(&mut inputs, 1);
        self.simulation.run(&inputs)?;
        // Without words, nothing but time passes, and no outputs are handed over.
        let rest = vec![0; self.input_bytes];
        let idle = CLEARING_CYCLES;
        let end = End { idle_cycles: idle, settle_cycles: idle, monitored: 0 };
        let wait = Transfer { rest: &rest, words: &[], accesses: &[], stalls: Stalls { of_256: 0, seed: 0 }, end };
        for _ in 0..MAX_CLEARING {
            self.simulation.transfer(&wait)?;
            let outputs = self.simulation.run(&rest)?;
            if self.ports.ready.get(&outputs) == 1 {
                return Ok(());
            }
        }
        Err(CosimError::Stuck { top: self.top.clone(), what: "its maps are not ready after a reset".to_owned() })
    }

    /// Lets the times of the next packets be before those of the last ones. No packet may be in the pipeline.
    ///
    /// # Errors
    /// The simulation has ended.
    pub fn restart_times(&mut self) -> Result<(), CosimError> {
        let mut inputs = vec![0; self.input_bytes];
        self.ports.restart.set(&mut inputs, 1);
        self.simulation.run(&inputs).map(drop)
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
        let (words, before) = self.words(packets, random);
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
        Ok((self.departures(packets, &events)?, self.answers(accesses, &events)?))
    }

    /// The words of packets at the input, and the number of words before each packet and after the last one.
    fn words(&self, packets: &[Arrival<'_>], random: &[Choices]) -> (Vec<Word>, Vec<usize>) {
        let mut words = Vec::new();
        let mut before = vec![0];
        for (place, packet) in packets.iter().enumerate() {
            let chunks = packet.bytes.chunks(self.word_bytes);
            let count = chunks.len();
            for (number, chunk) in chunks.enumerate() {
                let mut inputs = vec![0; self.input_bytes];
                let ports = &self.ports;
                ports.valid.set(&mut inputs, 1);
                ports.last.set(&mut inputs, u64::from(number + 1 == count));
                let mut data = vec![AFTER_END; self.word_bytes];
                data[..chunk.len()].copy_from_slice(chunk);
                ports.data.set_bytes(&mut inputs, &data);
                let keep: Vec<u8> = (0..self.word_bytes / 8).map(|byte| kept(chunk.len(), 8 * byte)).collect();
                ports.keep.set_bytes(&mut inputs, &keep);
                ports.port.set(&mut inputs, packet.port.into());
                ports.time.set(&mut inputs, packet.now_ns);
                if let (Some(port), Some(choices)) = (&ports.random, random.get(place)) {
                    let bytes: Vec<u8> = choices.random.iter().flat_map(|word| word.to_le_bytes()).collect();
                    port.set_bytes(&mut inputs, &bytes[..port.len_bytes()]);
                }
                words.push(Word { delay_cycles: if number == 0 { packet.delay_cycles } else { 0 }, inputs });
            }
            before.push(words.len());
        }
        (words, before)
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

    /// The result of each packet, from what happened in which cycle.
    fn departures(&self, packets: &[Arrival<'_>], events: &[Event]) -> Result<Vec<Departure>, SendError> {
        let ports = &self.ports;
        let mut departures: Vec<Departure> = Vec::with_capacity(packets.len());
        let taken: Vec<u64> = events.iter().filter(|event| event.is_taken()).map(|event| event.cycle).collect();
        let words = packets.iter().map(|packet| packet.bytes.len().div_ceil(self.word_bytes));
        let ends: Vec<usize> = words
            .scan(0, |sum, words| {
                *sum += words;
                Some(*sum)
            })
            .collect();
        // By output packet, its input packet and its verdict: extra packets come before the packet that sends them.
        let mut expected: VecDeque<(usize, u8)> = VecDeque::new();
        let mut extra = 0;
        for event in events {
            if event.is_monitored(EXTRA_MONITOR) {
                expected.push_back((departures.len(), Departure::EXTRA));
                extra += 1;
            }
            if !event.is_monitored(DONE_MONITOR) {
                continue;
            }
            let verdict = ports.done_verdict.get(&event.outputs) as u8;
            expected.extend(Departure::is_sent(verdict).then_some((departures.len(), verdict)));
            let end = ends.get(departures.len()).and_then(|end| taken.get(end - 1));
            let (cycle, taken_cycle) = (event.cycle, end.copied().unwrap_or(event.cycle));
            let (done_cycle, first_cycle, last_cycle) = (cycle, cycle, cycle);
            let (extra, sent) = (Vec::new(), None);
            departures.push(Departure { verdict, extra, sent, taken_cycle, done_cycle, first_cycle, last_cycle });
        }
        let (mut whole, mut is_first) = (0, true);
        for event in events.iter().filter(|event| event.is_given()) {
            let unexpected = || SendError::Unexpected { cycle: event.cycle };
            let (number, verdict) = expected.front().copied().ok_or_else(unexpected)?;
            let departure = departures.get_mut(number).ok_or_else(unexpected)?;
            let found = ports.out_verdict.get(&event.outputs) as u8;
            if found != verdict {
                return Err(SendError::Verdict { cycle: event.cycle, found, expected: verdict });
            }
            let is_extra = verdict == Departure::EXTRA;
            let port = ports.out_port.get(&event.outputs) as u32;
            if is_first && departure.sent.is_none() && departure.extra.is_empty() {
                departure.first_cycle = event.cycle;
            }
            if is_first && is_extra {
                departure.extra.push((port, Vec::new()));
            }
            let own = &mut departure.sent;
            let sent = match is_extra {
                true => departure.extra.last_mut(),
                false => Some(own.get_or_insert_with(|| (port, Vec::new()))),
            };
            let keep = ports.out_keep.bytes(&event.outputs);
            let len: usize = keep.iter().map(|byte| byte.count_ones() as usize).sum();
            let (data, after) = ports.out_data.bytes(&event.outputs).split_at(len);
            let is_prefix = keep.iter().enumerate().all(|(byte, bits)| *bits == kept(len, 8 * byte));
            if !is_prefix || after.iter().any(|byte| *byte != 0) {
                return Err(SendError::AfterEnd { cycle: event.cycle, len });
            }
            sent.into_iter().for_each(|(_, bytes)| bytes.extend(data));
            departure.last_cycle = event.cycle;
            is_first = ports.out_last.get(&event.outputs) == 1;
            if is_first {
                expected.pop_front();
                whole += 1;
            }
        }
        if departures.len() != packets.len() || !expected.is_empty() || !is_first {
            return Err(SendError::Missing { given: packets.len(), verdicts: departures.len(), extra, whole });
        }
        Ok(departures)
    }
}

/// An error of packets in simulation.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The simulation failed.
    #[error(transparent)]
    Cosim(#[from] CosimError),
    /// Packets did not come out, or not as a whole.
    #[error(
        "the pipeline was given {given} packets and gave {verdicts} verdicts; it announced {extra} extra packets, and {whole} \
         packets left as a whole"
    )]
    Missing {
        /// The packets given.
        given: usize,
        /// The verdicts.
        verdicts: usize,
        /// Packets that packets send besides themselves.
        extra: usize,
        /// Whole packets at the output, extra ones included.
        whole: usize,
    },
    /// A word with another verdict than that of its packet; 0 is an extra packet.
    #[error(
        "the pipeline gave a word with the verdict {found} in cycle {cycle}, expected {expected}; 0 is an extra packet"
    )]
    Verdict {
        /// The cycle.
        cycle: u64,
        /// The verdict at the output.
        found: u8,
        /// The verdict announced before.
        expected: u8,
    },
    /// Bytes after the end of a packet, which are 0 and not kept.
    #[error("the pipeline gave a word of {len} bytes with others after them, in cycle {cycle}")]
    AfterEnd {
        /// The cycle.
        cycle: u64,
        /// The bytes that are part of the packet.
        len: usize,
    },
    /// An access of the host is not possible, or was not made.
    #[error("an access of the host to map {map}: {why}")]
    Access {
        /// The index of the map.
        map: u32,
        /// The reason.
        why: &'static str,
    },
    /// A word without a packet, or an answer without an access.
    #[error("the pipeline gave a word or an answer that belongs to nothing it was given, in cycle {cycle}")]
    Unexpected {
        /// The cycle.
        cycle: u64,
    },
}

/// The bits of eight bytes of a word, from `first` on, of which `len` bytes are part of a packet.
fn kept(len: usize, first: usize) -> u8 {
    match len.saturating_sub(first) {
        8.. => u8::MAX,
        some => (1 << some) - 1,
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
