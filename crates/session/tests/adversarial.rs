// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions on traces that are meant to break their pipelines: one flow only, two in turn, new ones only, full tables,
//! keys of the same rows in all banks, packets at deadlines, frames of every length, accesses of the host under load.
//! Tables have [`ENTRIES`] entries, so that they are full soon.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_engine::Datapath;
use flowloom_isa::MapKind;
use flowloom_rtl::Pipeline;
use flowloom_session::Loaded;
use flowloom_session::engines::Simulated;
use flowloom_state::WAYS;
use flowloom_testkit::{Rng, is_selected};
use flowloom_verify::{Arrival, Stimulus, StimulusOptions};
use flowloom_vm::Interpreter;

use crate::distances::hash_of;
use crate::host::{self, Served};
use crate::own_traffic::{self, Start, Subject};
use crate::verified::shipped::{self, Variant};

/// Entries of each table.
const ENTRIES: u32 = 40;
/// Keys of the same rows: as many as the places of these rows and the stash hold.
const COLLIDING: usize = WAYS + 8;
/// The least number of them that is worth a trace: more than the places of their rows.
const MIN_COLLIDING: usize = WAYS + 2;
/// Keys that are tried for the same rows.
const MAX_TRIES: u32 = 1 << 25;
/// Packets whose flows are varied for it.
const MAX_SAMPLES: usize = 4;
/// The time between packets, unless deadlines are meant.
const STEP_NS: u64 = 100;
/// Lengths around that of the longest Ethernet frame without its checksum, and a jumbo frame.
const LONG_BYTES: [usize; 4] = [1513, 1514, 1515, 9000];

/// The shapes of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trace {
    OneFlow,
    TwoFlows,
    NewFlows,
    /// More flows than entries, again and again.
    Full,
    Collisions,
    Deadlines,
    Lengths,
}

impl Trace {
    pub(crate) const ALL: [Trace; 7] = [
        Trace::OneFlow,
        Trace::TwoFlows,
        Trace::NewFlows,
        Trace::Full,
        Trace::Collisions,
        Trace::Deadlines,
        Trace::Lengths,
    ];
}

/// The names of the functions below `functions`, as [`shipped::function`] takes them.
pub(crate) fn names() -> Vec<String> {
    let folder = functions();
    let entries = |path: &Path| {
        let mut all: Vec<PathBuf> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        all.sort();
        all
    };
    let files = entries(&folder).into_iter().filter(|path| path.is_dir()).flat_map(|path| entries(&path));
    let sources = files.filter(|path| path.extension().is_some_and(|ending| ending == "efsm"));
    let name = |path: PathBuf| path.with_extension("").strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
    sources.map(name).filter(|name| is_selected(name.rsplit('/').next().unwrap())).collect()
}

fn functions() -> PathBuf {
    crate::stream::top().join("functions")
}

/// A function with small tables, and its parameters.
pub(crate) fn with_small_tables(name: &str) -> Variant {
    let text = std::fs::read_to_string(functions().join(format!("{name}.efsm"))).unwrap();
    let mut params = shipped::ports(&text);
    // Sizes that are parameters.
    let sized = ["keys", "instances"].into_iter().filter(|name| text.contains(&format!("size {name};")));
    params.extend(sized.map(|name| (name.to_owned(), ENTRIES.to_string())));
    let given: Vec<(&str, &str)> = params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let has_size = |text: &str| text.contains("size ");
    let change = |text: String| {
        let elements = text.split("\nstateful ").enumerate().map(|(number, element)| {
            let Some((head, rest)) = element.split_once("key ").filter(|_| number > 0 && !has_size(element)) else {
                return element.to_owned();
            };
            let (key, rest) = rest.split_once(';').unwrap();
            let size = if key.trim() == "none" { String::new() } else { format!(" size {ENTRIES};") };
            format!("{head}key {key};{size}{rest}")
        });
        elements.collect::<Vec<_>>().join("\nstateful ")
    };
    let (folder, file) = name.split_once('/').unwrap();
    let name = if folder == file { folder.to_owned() } else { format!("{folder}/{file}") };
    let function = shipped::function_with(&name, &given, change);
    let params = params.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
    Variant { function, params }
}

/// Packets made from samples of a function's own traffic.
pub(crate) struct Maker {
    function: Arc<Function>,
    seed: u64,
    /// Packets of the function's own traffic, and those that have a plain IPv4 header with ports.
    samples: Vec<Arrival>,
    plain: Vec<Arrival>,
}

/// Offsets in plain packets: source address, source port.
const SOURCE: usize = 26;
const SOURCE_PORT: usize = 34;
const PLAIN_BYTES: usize = 42;

impl Maker {
    pub(crate) fn new(function: &Arc<Function>, seed: u64) -> Maker {
        let samples = shipped::made(function, seed, 4000);
        let is_plain = |packet: &&Arrival| {
            let bytes = &packet.bytes;
            bytes.len() >= PLAIN_BYTES && bytes[12..15] == [0x08, 0x00, 0x45] && matches!(bytes[23], 6 | 17)
        };
        let plain = samples.iter().filter(is_plain).cloned().collect();
        Maker { function: Arc::clone(function), seed, samples, plain }
    }

    /// The packets of a trace; none if the function has no such traffic.
    pub(crate) fn packets(&self, trace: Trace, rng: &mut Rng, loaded: &Loaded, pipeline: &Pipeline) -> Vec<Arrival> {
        let mut packets = match trace {
            Trace::OneFlow => (0..16).flat_map(|_| vec![rng.pick(&self.samples).clone(); 40]).collect::<Vec<_>>(),
            Trace::TwoFlows => (0..16)
                .flat_map(|_| {
                    let pair = [rng.pick(&self.samples).clone(), rng.pick(&self.samples).clone()];
                    (0..40).map(move |number| pair[number % 2].clone())
                })
                .collect(),
            Trace::NewFlows => self.flows(rng, 4 * ENTRIES, 1),
            Trace::Full => self.flows(rng, 2 * ENTRIES, 6),
            Trace::Collisions => self.colliding(rng, loaded, pipeline),
            Trace::Deadlines => {
                let options =
                    StimulusOptions { aimed_percent: 45, deadline_percent: 50, ..StimulusOptions::of(&self.function) };
                return Stimulus::new(Arc::clone(&self.function), self.seed, options).take_packets(2000);
            }
            Trace::Lengths => self.lengths(rng),
        };
        let mut now_ns = 1_000_000_000;
        for packet in &mut packets {
            now_ns += STEP_NS;
            packet.time_ns = now_ns;
        }
        packets
    }

    /// Packets of many flows, `rounds` times, from several samples.
    fn flows(&self, rng: &mut Rng, flows: u32, rounds: u32) -> Vec<Arrival> {
        if self.plain.is_empty() {
            return Vec::new();
        }
        let samples: Vec<Arrival> = (0..6).map(|_| rng.pick(&self.plain).clone()).collect();
        let all = samples.iter().flat_map(|sample| {
            (0..rounds).flat_map(move |_| (0..flows).map(move |number| flow(sample, u64::from(number) << 16 | 7)))
        });
        all.collect()
    }

    /// Frames of every length up to the least one, and of the greatest ones.
    fn lengths(&self, rng: &mut Rng) -> Vec<Arrival> {
        let lengths = (1..64).chain(LONG_BYTES).flat_map(|len| [len, 60, len]);
        let all = (0..6).flat_map(|_| lengths.clone());
        let mut sized = |len: usize| {
            let mut packet = rng.pick(&self.samples).clone();
            packet.bytes.resize(len, 0x5a);
            packet
        };
        all.map(&mut sized).collect()
    }

    /// Packets with keys of the same rows in all banks, in turn and at random. The keys are those of one sample only:
    /// the stash has no room for those of another one, and new keys then wait until entries are deleted.
    fn colliding(&self, rng: &mut Rng, loaded: &Loaded, pipeline: &Pipeline) -> Vec<Arrival> {
        let mut all = Vec::new();
        for _ in 0..MAX_SAMPLES {
            let Some(sample) = (!self.plain.is_empty()).then(|| rng.pick(&self.plain)) else { break };
            let Some(flows) = colliding_flows(sample, loaded, pipeline) else { continue };
            for _ in 0..24 {
                all.extend(flows.iter().map(|number| flow(sample, *number)));
                all.extend((0..COLLIDING).map(|_| flow(sample, *rng.pick(&flows))));
            }
            break;
        }
        all
    }
}

/// The bits of the number of a flow.
const FLOW_BITS: u32 = 44;

/// A sample in another flow: the bits of a number invert those of the source address, but for its highest ones, and of
/// the source port.
fn flow(sample: &Arrival, number: u64) -> Arrival {
    let mut packet = sample.clone();
    let [.., high, a, b, c, d, e] = number.to_be_bytes();
    for (at, byte) in (SOURCE..SOURCE + 4).zip([high, a, b, c]).chain((SOURCE_PORT..SOURCE_PORT + 2).zip([d, e])) {
        packet.bytes[at] ^= byte;
    }
    packet
}

/// Numbers of flows whose keys have the same rows in all banks of a hash map that the sample inserts into.
fn colliding_flows(sample: &Arrival, loaded: &Loaded, pipeline: &Pipeline) -> Option<Vec<u64>> {
    let program = loaded.pipeline_program().unwrap();
    let mut interp = Interpreter::new(Arc::clone(&program)).unwrap();
    // The key that a flow inserts, by map.
    let mut keys = |number: u64| -> BTreeMap<String, Vec<u8>> {
        interp.restore(&Default::default()).unwrap();
        let choices = flowloom_engine::Choices::seeded(1_000_000_000, 0, 0);
        interp.process(&flow(sample, number).packet(), &choices).unwrap();
        let state = interp.snapshot().unwrap();
        let hashes = program.maps.iter().filter(|map| matches!(map.kind, MapKind::Hash | MapKind::PerCpuHash));
        let entry = |map: &flowloom_isa::MapDef| {
            let mut entries = state.maps.get(&map.name)?.keys();
            let first = entries.next()?.clone();
            entries.next().is_none().then_some((map.name.clone(), first))
        };
        hashes.filter_map(entry).collect()
    };
    let base = keys(0);
    let (map, base) = base.into_iter().next()?;
    // The bits of the key that each bit of the number inverts.
    let mut bits = Vec::new();
    for bit in 0..FLOW_BITS {
        // Flows that insert nothing are left out.
        let Some(own) = keys(1 << bit).remove(&map) else { continue };
        let flipped: Vec<u8> = own.iter().zip(&base).map(|(own, base)| own ^ base).collect();
        if flipped.iter().any(|byte| *byte != 0) {
            bits.push((bit, flipped));
        }
    }
    let hash = hash_of(pipeline, base.len() as u32);
    let rows = hash.rows_of(&base);
    let (mut key, mut number, mut found) = (base.clone(), 0_u64, vec![0_u64]);
    // In the order of a Gray code, each number is one bit from the one before.
    for step in 1..MAX_TRIES {
        let Some((bit, flipped)) = bits.get(step.trailing_zeros() as usize) else { break };
        number ^= 1 << bit;
        key.iter_mut().zip(flipped).for_each(|(key, flipped)| *key ^= flipped);
        if hash.rows_of(&key) == rows {
            // Keys of both directions may be another pair of addresses.
            if keys(number).get(&map) == Some(&key) {
                found.push(number);
            }
            if found.len() == COLLIDING {
                break;
            }
        }
    }
    (found.len() >= MIN_COLLIDING).then_some(found)
}

/// What was compared of a function.
#[derive(Debug, Default)]
pub(crate) struct Attacked {
    /// Packets by trace.
    pub(crate) packets: BTreeMap<Trace, u64>,
    pub(crate) seconds: BTreeMap<Trace, u64>,
    pub(crate) refused: u64,
    pub(crate) served: Served,
    pub(crate) host_seconds: u64,
}

/// Runs all traces and accesses of the host; the first difference.
pub(crate) fn attack(
    subject: &mut Subject,
    pipeline: &Pipeline,
    simulated: &mut Simulated,
    seed: u64,
) -> Result<Attacked, String> {
    let function = Arc::clone(&subject.function);
    let loaded = Loaded::of_function(Arc::clone(&function));
    let maker = Maker::new(&function, seed);
    let mut rng = Rng::new(seed);
    let mut attacked = Attacked::default();
    for trace in Trace::ALL {
        let started = std::time::Instant::now();
        let packets = maker.packets(trace, &mut rng, &loaded, pipeline);
        let report = subject.compare(&packets, None).map_err(|found| format!("{trace:?}: {found}"))?;
        attacked.packets.insert(trace, report.packets_compared);
        attacked.seconds.insert(trace, started.elapsed().as_secs());
        attacked.refused += report.packets_refused();
    }
    let mut interp = Interpreter::new(loaded.pipeline_program().unwrap()).unwrap();
    let started = std::time::Instant::now();
    let mut packets = shipped::made(&function, seed, 6 * host::PACKETS);
    packets.retain(|packet| !packet.bytes.is_empty());
    packets.iter_mut().for_each(|packet| packet.bytes.truncate(simulated.max_bytes()));
    attacked.served = host::serve(&function.name, &mut interp, simulated, &packets, &mut rng)?;
    attacked.host_seconds = started.elapsed().as_secs();
    Ok(attacked)
}

/// A function with small tables: engines, pipeline and its simulation; none with a reason to skip or without a
/// rendering.
pub(crate) fn start(test: &str, name: &str) -> Result<(Box<Subject>, Pipeline, Simulated), Option<String>> {
    let variant = with_small_tables(name);
    let subject = match own_traffic::start(test, &variant) {
        Start::Subject(subject) => subject,
        Start::Without(reason) => return Err(Some(reason)),
        Start::Skipped => return Err(None),
    };
    let loaded = Loaded::of_function(Arc::clone(&variant.function));
    let pipeline = loaded.pipeline(&Default::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let cache = flowloom_session::engines::cache_folder();
    let simulated = Simulated::start(&pipeline, &cache, 1).unwrap_or_else(|error| panic!("{name}: {error}"));
    Ok((subject, pipeline, simulated))
}

#[test]
fn traces_have_what_they_promise() {
    let variant = with_small_tables("policer/policer");
    assert_eq!(variant.function.elements[1].stateful.as_ref().unwrap().size, ENTRIES);
    let loaded = Loaded::of_function(Arc::clone(&variant.function));
    let pipeline = loaded.pipeline(&Default::default()).unwrap();
    let maker = Maker::new(&variant.function, 1);
    let mut rng = Rng::new(1);
    let packets = maker.packets(Trace::Full, &mut rng, &loaded, &pipeline);
    let sources: std::collections::BTreeSet<&[u8]> =
        packets.iter().map(|packet| &packet.bytes[SOURCE..SOURCE + 4]).collect();
    assert!(sources.len() > ENTRIES as usize, "{}", sources.len());
    for trace in Trace::ALL {
        assert!(!maker.packets(trace, &mut rng, &loaded, &pipeline).is_empty(), "{trace:?}");
    }
}
