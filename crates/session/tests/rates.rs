// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rates of pipelines: packets of minimum size, one word each, offered in every cycle.
//!
//! Rates are in millions of packets a second at 250 MHz, from the cycles between the first word taken and the last one.

mod traffic;

use std::collections::BTreeMap;

use flowloom_engine::Choices;
use flowloom_isa::asm;
use flowloom_plan::Options;
use flowloom_rtl::Access;
use flowloom_session::Loaded;
use flowloom_session::engines::{Arrival, Departure, OutputStalls, PipelineError, Simulated};
use flowloom_testkit::Rng;

use crate::programs::SQUARES;
use crate::repository::open;
use crate::stream::{case, start, top};
use crate::traffic::Traffic as Shape;

pub(crate) use traffic::{TRAFFIC, Traffic};

/// The clock.
pub(crate) const CLOCK_MHZ: f64 = 250.0;
/// 100 Gbit/s in packets of 60 bytes, with check sum, preamble and gap, in millions a second.
pub(crate) const LINE_MPPS: f64 = 148.8;
/// The flows of traffic whose flows are known.
const KNOWN_FLOWS: u32 = 200;
/// The cycles between packets that are not to wait for each other.
const APART_CYCLES: u32 = 100;

/// What flows packets belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flows {
    /// Known ones, drawn evenly.
    Known,
    /// A single known one.
    One,
    /// Two known ones in turn.
    Two,
    /// Each packet begins its own.
    New,
}

impl Flows {
    const ALL: [Flows; 4] = [Flows::Known, Flows::One, Flows::Two, Flows::New];

    /// The flow of a packet.
    fn of(self, rng: &mut Rng, number: u32) -> u32 {
        match self {
            Flows::Known => rng.below(KNOWN_FLOWS as usize) as u32,
            Flows::One => 0,
            Flows::Two => number % 2,
            Flows::New => KNOWN_FLOWS + number,
        }
    }
}

/// The rate at which a pipeline takes packets of these flows, and gives them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    pub(crate) taken_mpps: f64,
    /// The words that leave for a packet on average, extra packets included; 0 if all are dropped.
    pub(crate) words_out: f64,
}

fn rate(simulated: &mut Simulated, rng: &mut Rng, flows: Flows, count: u32, traffic: &Traffic) -> Rate {
    simulated.reset().unwrap();
    set_entries(simulated, traffic);
    let (mut time_ns, seed) = (1_000_000_000, rng.next_u64());
    let mut send = |simulated: &mut Simulated, frames: &[(u32, Vec<u8>)], delay_cycles: u32| -> Vec<Departure> {
        let times: Vec<u64> = (1..=frames.len() as u64).map(|number| time_ns + 4 * number).collect();
        time_ns = times.last().copied().unwrap_or(time_ns);
        let arrival = |((port, bytes), now_ns)| Arrival { bytes, port, now_ns, delay_cycles };
        let frames = frames.iter().map(|(port, bytes)| (*port, &bytes[..]));
        let arrivals: Vec<Arrival<'_>> = frames.zip(times).map(arrival).collect();
        let draws: Vec<Choices> = (0..).zip(&arrivals).map(|(n, one)| Choices::seeded(one.now_ns, seed, n)).collect();
        simulated.send_drawing(&arrivals, &draws, OutputStalls::default()).unwrap_or_else(|e| panic!("{e}"))
    };
    // Flows become known, without haste.
    let opening: Vec<_> = (0..KNOWN_FLOWS).flat_map(traffic.opening).collect();
    send(simulated, &opening, APART_CYCLES);
    if let Some(table) = traffic.table {
        let map = simulated.maps().find(|map| map.name == table).map(|map| map.map);
        let known = simulated.read(map.unwrap_or_else(|| panic!("{}: no map `{table}`", traffic.file))).unwrap().len();
        assert_eq!(known, KNOWN_FLOWS as usize, "{}: known flows in `{table}`", traffic.file);
    }
    let packet = |flow: u32| match flows {
        Flows::New => (traffic.opening)(flow).swap_remove(0),
        _ => (traffic.packet)(flow),
    };
    let frames: Vec<_> = (0..count).map(|number| packet(flows.of(rng, number))).collect();
    let departures = send(simulated, &frames, 0);
    if let (Flows::Known, Some(verdict)) = (flows, traffic.verdict) {
        let other = departures.iter().position(|one| one.verdict != verdict);
        let found = other.map(|packet| departures[packet].verdict);
        assert_eq!(found.unwrap_or(verdict), verdict, "{traffic}: the verdict of packet {other:?} of known flows");
    }
    let first = departures.first().unwrap().taken_cycle;
    let last = departures.last().unwrap().taken_cycle;
    let words = departures.iter().flat_map(|one| one.extra.iter().chain(&one.sent));
    let words = words.map(|(_, bytes)| bytes.len().div_ceil(64) as u64);
    Rate {
        taken_mpps: CLOCK_MHZ * f64::from(count - 1) / (last - first) as f64,
        words_out: words.sum::<u64>() as f64 / f64::from(count),
    }
}

/// Writes the entries of the traffic. Other maps of ports lead to the port of each number.
fn set_entries(simulated: &mut Simulated, traffic: &Traffic) {
    let mut entries: BTreeMap<&str, BTreeMap<Vec<u8>, Vec<u8>>> = BTreeMap::new();
    for (map, key, value) in (traffic.entries)() {
        entries.entry(map).or_default().insert(key, value);
    }
    for map in simulated.maps().cloned().collect::<Vec<_>>() {
        let ports =
            || (0..map.entries).map(|port| (port.to_le_bytes().to_vec(), port.to_le_bytes().to_vec())).collect();
        let is_ports = matches!(map.access, Access::Ports { .. });
        if let Some(own) = entries.remove(&map.name[..]).or_else(|| is_ports.then(ports)) {
            simulated.write(map.map, &own).unwrap_or_else(|e| panic!("{}: map `{}`: {e}", traffic.file, map.name));
        }
    }
    assert!(entries.is_empty(), "{}: no maps {:?}", traffic.file, entries.keys());
}

/// All rates of a function, in the order of [`Flows::ALL`]; none without a simulation, which says why.
pub(crate) fn rates(
    test: &str,
    traffic: &Traffic,
    loaded: &Loaded,
    count: u32,
) -> Result<Option<[Rate; 4]>, PipelineError> {
    let pipeline = loaded.pipeline(&Options::default())?;
    let seed = Rng::from_env(1).next_u64();
    let Some(mut simulated) = start(test, &pipeline, seed as u32) else { return Ok(None) };
    let mut rng = Rng::new(seed);
    let rates = Flows::ALL.map(|flows| rate(&mut simulated, &mut rng, flows, count, traffic));
    let [known, one, two, new] = rates.map(|rate| rate.taken_mpps);
    let words = rates[0].words_out;
    println!(
        "{traffic}: known flows {known:.1} of {words:.2} words, one {one:.1}, two in turn {two:.1}, new ones {new:.1} \
         Mpps"
    );
    Ok(Some(rates))
}

#[test]
fn a_packet_enters_and_leaves_in_every_cycle() {
    let case = case("xdp2");
    let loaded = case.load();
    let pipeline = case.pipeline(&loaded);
    let Some(mut simulated) = start("a_packet_enters_and_leaves_in_every_cycle", &pipeline, 1) else { return };
    let mut rng = Rng::from_env(1);
    let packets = Shape::OneFlow.packets(&mut rng, 1000, simulated.max_bytes());
    let arrivals: Vec<Arrival<'_>> =
        packets.iter().map(|(bytes, port, _)| Arrival { bytes, port: *port, now_ns: 0, delay_cycles: 0 }).collect();
    let departures = simulated.send(&arrivals, OutputStalls::default()).unwrap();
    let latency = pipeline.latency_cycles();
    for (number, departure) in departures.iter().enumerate() {
        assert!(departure.sent.is_some(), "packet {number} is dropped");
        assert_eq!(departure.taken_cycle, number as u64, "packet {number}: taken");
        assert_eq!(departure.first_cycle, departure.taken_cycle + u64::from(latency), "packet {number}: given");
    }
}

/// The map of flows is asked behind the counter of packets, which lies around the stage in which its key is known.
#[test]
fn packets_of_flowlet_wait_for_packets_of_their_flow_only() {
    let flowlet = open(&top().join("functions/flowlet/flowlet.efsm"));
    let exceptions = flowlet.pipeline(&Options::default()).unwrap().core.exceptions;
    assert!(exceptions.contains("packets with one key in a map are 2 cycles apart"), "{exceptions}");
    assert!(!exceptions.contains("known late"), "{exceptions}");
}

#[test]
fn a_counter_takes_a_packet_in_every_cycle() {
    let toy = open(&top().join("functions/ebpf/toy/toy.bpf.c"));
    let Some(rates) = rates("a_counter_takes_a_packet_in_every_cycle", &Traffic::default(), &toy, 2000).unwrap() else {
        return;
    };
    for rate in rates {
        assert!(rate.taken_mpps > 0.99 * CLOCK_MHZ, "{rate:?}");
    }
}

/// An LRU map takes a packet a cycle until it is nearly full; then packets are as far apart as its slice takes, at
/// least 2 cycles.
#[test]
fn a_full_lru_map_keeps_packets_apart() {
    let test = "a_full_lru_map_keeps_packets_apart";
    for (step, entries) in [("r2 <<= 1", 400), ("r2 <<= 1", KNOWN_FLOWS), ("r2 *= r2", KNOWN_FLOWS)] {
        let map = format!("lru_hash key 4 value 8 entries {entries}");
        let text = SQUARES.replace("hash key 4 value 8 entries 60 flags 1", &map).replace("r2 *= r2", step);
        let loaded = Loaded::of_program(asm::program("squares", &text).unwrap_or_else(|errors| panic!("{errors}")));
        let apart = loaded.pipeline(&Options::default()).unwrap().core.hold_cycles;
        let name = format!("{step}, {entries} entries, {apart} cycles apart");
        println!("{name}");
        let Some([known, ..]) = rates(test, &Traffic::default(), &loaded, 2000).unwrap() else { return };
        let least = if entries > KNOWN_FLOWS { CLOCK_MHZ } else { CLOCK_MHZ / f64::from(apart) };
        assert!(known.taken_mpps > 0.99 * least, "{name}: {known:?}");
        assert!(entries > KNOWN_FLOWS || known.taken_mpps < 1.01 * least, "{name}: {known:?}");
    }
}
