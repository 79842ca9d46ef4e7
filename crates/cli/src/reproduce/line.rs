// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows measured by generated traffic at the line rate of a FlowBlaze machine: loss, throughput, latency.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use flowloom_overlay::{Hazards, LineReport, LineTest, SchedulerParameters};
use flowloom_state::RowHash;
use flowloom_trace::{Profile, Traffic, TrafficOptions};
use flowloom_wire::field::FIVE_TUPLE;
use flowloom_wire::{FieldId, Graph, KeySpec, Layers};
use serde_json::{Value as Json, json};

use super::experiment::Row;
use super::measured::Measured;
use crate::failure::Failure;

/// The traces of the paper [FlowBlaze, Table 6].
const TRACES: [Profile; 4] = [Profile::Uni1, Profile::Uni2, Profile::Mawi15, Profile::Chi15];
/// Rate of the line.
const LINE_MBPS: u32 = 40_000;
/// Width of the data path.
const WORD_BYTES: u32 = 32;
/// Words of the input FIFO: 6 KiB.
const FIFO_WORDS: u32 = 192;
/// Cycles from the read to the write of a context: 2 for the words of the shortest packet, and 3 of stall.
const HOLD_CYCLES: u32 = 5;
/// Queues of the scheduler, and their depth [FlowBlaze, Table 4].
const QUEUES: u32 = 1;
const QUEUE_DEPTH: u32 = 20;
/// Cycles through the element [FlowBlaze 5.2].
const ELEMENT_CYCLES: u32 = 8;
/// Bytes of check sequence, preamble and gap of Ethernet.
const ETHERNET_BYTES: u32 = 24;
/// Number of bytes generated per packet: the headers.
const SNAP_BYTES: u32 = 96;
/// Lengths of short packets, for rows that change their order or their flows.
const SHORT_BYTES: u32 = 100;
/// Fields of the key by flow definition: one flow, source, addresses, 5-tuple.
const KEYS: [&[&str]; 4] = [&[], &["ip.src"], &["ip.src", "ip.dst"], &FIVE_TUPLE];

/// A packet of a trace.
#[derive(Debug, Clone, Copy)]
struct Packet {
    len_bytes: u32,
    /// FK1 by flow definition.
    hashes: [u16; KEYS.len()],
}

/// Traffic and results that rows share.
#[derive(Default)]
pub(super) struct Traces {
    /// Packets by profile and number.
    packets: BTreeMap<(&'static str, u32), Vec<Packet>>,
    /// Results by profile and machine.
    results: BTreeMap<(&'static str, Machine), OneTrace>,
}

impl Traces {
    fn measure(&mut self, profile: Profile, machine: Machine) -> Result<&OneTrace, Failure> {
        let packets = match self.packets.entry((profile.name(), machine.packets)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(generate(profile, machine.packets)?),
        };
        Ok(match self.results.entry((profile.name(), machine)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(machine.measure(profile, packets)?),
        })
    }
}

/// Results of a machine on one trace.
struct OneTrace {
    values: BTreeMap<&'static str, f64>,
    /// Derivation as text, and as JSON by flow definition.
    reasons: String,
    parts: Vec<Json>,
}

/// A flow definition: the key, and the hash unit whose first hash is FK1.
struct Definition {
    spec: KeySpec,
    hash: RowHash,
}

impl Definition {
    /// The definition by these fields; `None` if there are none.
    fn of(names: &[&str]) -> Option<Definition> {
        let fields: Vec<FieldId> = names.iter().filter_map(|name| FieldId::by_name(name)).collect();
        let spec = KeySpec::of_fields(&fields, false).ok()?;
        let hash = RowHash::new(spec.key_bytes(), 1 << SchedulerParameters::HASH_BITS, 1);
        Some(Definition { spec, hash })
    }
}

/// The packets of a profile. A packet without the fields of a key has a flow of its own, as it accesses no context.
fn generate(profile: Profile, packets: u32) -> Result<Vec<Packet>, Failure> {
    let options =
        TrafficOptions { packets: Some(packets.into()), snap_bytes: Some(SNAP_BYTES), ..TrafficOptions::new(profile) };
    let definitions = KEYS.map(Definition::of);
    let mut traffic = Traffic::new(&options).map_err(|e| Failure::input(&e))?;
    let mut generated = Vec::with_capacity(packets as usize);
    while let Some(packet) = traffic.next_packet() {
        let layers = Layers::parse(Graph::standard(), packet.bytes);
        let own = generated.len() as u16;
        let hashes = definitions.each_ref().map(|definition| {
            let Some(Definition { spec, hash }) = definition else { return 0 };
            spec.extract(&layers, packet.bytes, packet.port, &[]).map_or(own, |key| hash.rows_of(&key)[0] as u16)
        });
        generated.push(Packet { len_bytes: packet.len_bytes, hashes });
    }
    Ok(generated)
}

/// Changes of a row to lengths, order and flows of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Changes {
    /// Length of all packets.
    size_bytes: Option<u32>,
    /// Number of packets within which the short ones come after the others.
    run_window: Option<u32>,
    /// Number of successive short packets with the flow of the first.
    train: Option<u32>,
}

impl Changes {
    fn apply(&self, packets: &[Packet]) -> Vec<Packet> {
        let mut packets = packets.to_vec();
        if let Some(len_bytes) = self.size_bytes {
            packets.iter_mut().for_each(|packet| packet.len_bytes = len_bytes);
        }
        let is_short = |packet: &Packet| packet.len_bytes < SHORT_BYTES;
        if let Some(window) = self.run_window {
            packets.chunks_mut(window as usize).for_each(|window| window.sort_by_key(is_short));
        }
        if let Some(train) = self.train {
            let mut short: Vec<&mut Packet> = packets.iter_mut().filter(|packet| is_short(packet)).collect();
            for train in short.chunks_mut(train as usize) {
                let hashes = train[0].hashes;
                train.iter_mut().for_each(|packet| packet.hashes = hashes);
            }
        }
        packets
    }
}

/// The machine of a row, and the packets that it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Machine {
    clock_khz: u32,
    packets: u32,
    has_gaps: bool,
    changes: Changes,
}

impl Machine {
    fn of(row: &Row) -> Result<Machine, Failure> {
        let given = |name: &str| row.number(name).filter(|number| *number > 0);
        let changes =
            Changes { size_bytes: given("size_bytes"), run_window: given("run_window"), train: given("train") };
        let (clock_khz, packets) = (row.needed("clock_khz")?, row.needed("packets")?);
        Ok(Machine { clock_khz, packets, has_gaps: given("gaps").is_some(), changes })
    }

    /// Runs packets for each flow definition.
    fn run(&self, packets: &[Packet]) -> Result<[LineReport; KEYS.len()], Failure> {
        let packets = self.changes.apply(packets);
        let mut reports = KEYS.map(|_| LineReport::default());
        for (key, report) in reports.iter_mut().enumerate() {
            let hazards = if KEYS[key].is_empty() {
                Hazards::Stall { hold_cycles: HOLD_CYCLES }
            } else {
                Hazards::Schedule(SchedulerParameters {
                    queues: QUEUES,
                    queue_depth: QUEUE_DEPTH,
                    hold_cycles: HOLD_CYCLES,
                    hash_bits: SchedulerParameters::HASH_BITS,
                })
            };
            let (overhead_bytes, unit_bytes) = if self.has_gaps { (ETHERNET_BYTES, 1) } else { (0, WORD_BYTES) };
            let test = LineTest {
                clock_khz: self.clock_khz,
                line_mbps: LINE_MBPS,
                overhead_bytes,
                unit_bytes,
                word_bytes: WORD_BYTES,
                fifo_words: FIFO_WORDS,
                hazards,
            };
            let packets = packets.iter().map(|packet| (packet.len_bytes, packet.hashes[key]));
            *report = test.run(packets).map_err(|e| Failure::input(&e))?;
        }
        Ok(reports)
    }

    /// The values of a trace, from the reports by flow definition.
    fn values(&self, reports: &[LineReport; KEYS.len()]) -> BTreeMap<&'static str, f64> {
        let dropped = reports.each_ref().map(|report| 100.0 * report.drop_rate());
        let throughput = dropped.map(|dropped| 100.0 - dropped);
        let latency = reports
            .each_ref()
            .map(|report| f64::from(report.wait_99_cycles() + ELEMENT_CYCLES) * 1e6 / f64::from(self.clock_khz));
        let gains = [1, 2, 3].map(|key| 100.0 * (throughput[key] / throughput[0] - 1.0));
        let saved = [1, 2, 3].map(|key| 100.0 * (1.0 - latency[key] / latency[0]));
        let least = |values: [f64; 3]| values.into_iter().fold(f64::INFINITY, f64::min);
        let most = |values: [f64; 3]| values.into_iter().fold(f64::NEG_INFINITY, f64::max);
        BTreeMap::from([
            ("dropped_one_flow", dropped[0]),
            ("dropped_src", dropped[1]),
            ("dropped_pair", dropped[2]),
            ("dropped_tuple", dropped[3]),
            ("throughput_global", throughput[0]),
            ("throughput_src", throughput[1]),
            ("throughput_pair", throughput[2]),
            ("throughput_tuple", throughput[3]),
            ("latency_global", latency[0]),
            ("latency_src", latency[1]),
            ("latency_pair", latency[2]),
            ("latency_tuple", latency[3]),
            ("gain_least", least(gains)),
            ("gain_most", most(gains)),
            ("saved_least", least(saved)),
            ("saved_most", most(saved)),
        ])
    }

    /// Measures a trace.
    fn measure(&self, profile: Profile, packets: &[Packet]) -> Result<OneTrace, Failure> {
        let reports = self.run(packets)?;
        let (mut reasons, mut parts) = (String::new(), Vec::new());
        for (key, report) in KEYS.iter().zip(&reports) {
            let key = if key.is_empty() { "no scheduler".to_owned() } else { key.join(" ") };
            reasons.push_str(&format!(
                "  {}, {key}: {} of {} packets dropped, {} cycles held, 99% wait at most {} cycles\n",
                profile.name(),
                report.dropped,
                report.packets,
                report.held_cycles,
                report.wait_99_cycles()
            ));
            parts.push(json!({
                "traffic": profile.name(), "key": key, "packets": report.packets, "dropped": report.dropped,
                "held_cycles": report.held_cycles, "wait_99_cycles": report.wait_99_cycles(),
            }));
        }
        Ok(OneTrace { values: self.values(&reports), reasons, parts })
    }
}

/// Measures the row's trace; without one, the least or the most of all four, value by value.
pub(super) fn measure(row: &Row, traces: &mut Traces) -> Result<Measured, Failure> {
    let machine = Machine::of(row)?;
    let is_most = row.given.get("is_most").is_some_and(|number| *number != 0.0);
    let profiles = if row.traffic.is_some() { vec![row.profile()?] } else { TRACES.to_vec() };
    let (mut measured, mut parts) = (Measured::default(), Vec::new());
    for profile in profiles {
        let OneTrace { values, reasons, parts: of_trace } = traces.measure(profile, machine)?;
        for (name, value) in values {
            let known = measured.values.entry(name).or_insert(*value);
            *known = if is_most { known.max(*value) } else { known.min(*value) };
        }
        measured.reasons.push_str(reasons);
        parts.extend(of_trace.iter().cloned());
    }
    measured.parts = json!({
        "clock_khz": machine.clock_khz, "hold_cycles": HOLD_CYCLES, "fifo_words": FIFO_WORDS, "queues": QUEUES,
        "queue_depth": QUEUE_DEPTH, "runs": parts,
    });
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets 0, 1, ... of these lengths, each of its own flow.
    fn packets(lengths: &[u32]) -> Vec<Packet> {
        let packet = |(number, len_bytes): (usize, &u32)| Packet { len_bytes: *len_bytes, hashes: [number as u16; 4] };
        lengths.iter().enumerate().map(packet).collect()
    }

    fn changed(changes: &Changes, lengths: &[u32]) -> Vec<(u32, u16)> {
        changes.apply(&packets(lengths)).iter().map(|packet| (packet.len_bytes, packet.hashes[3])).collect()
    }

    #[test]
    fn short_packets_come_last_in_a_window_and_in_trains() {
        let changes = Changes { size_bytes: None, run_window: Some(3), train: Some(2) };
        let found = changed(&changes, &[60, 1514, 99, 60, 100, 1000]);
        assert_eq!(found, [(1514, 1), (60, 0), (99, 0), (100, 4), (1000, 5), (60, 3)]);
        let changes = Changes { size_bytes: Some(60), run_window: None, train: Some(3) };
        assert_eq!(changed(&changes, &[1514, 60, 700, 60]), [(60, 0), (60, 0), (60, 0), (60, 3)]);
    }

    #[test]
    fn keys_of_a_flow_are_equal_in_all_its_packets() {
        let packets = generate(Profile::Uni1, 2000).unwrap_or_default();
        assert_eq!(packets.len(), 2000);
        let distinct = |key: usize| {
            let mut hashes: Vec<u16> = packets.iter().map(|packet| packet.hashes[key]).collect();
            hashes.sort_unstable();
            hashes.dedup();
            hashes.len()
        };
        let [src, pair, tuple] = [1, 2, 3].map(distinct);
        assert!(100 < src && src < pair && pair < tuple && tuple < 1500, "{src} {pair} {tuple}");
        assert!(packets.iter().all(|packet| packet.len_bytes >= 60));
    }
}
