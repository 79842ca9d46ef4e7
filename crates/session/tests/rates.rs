// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rates of pipelines: packets of minimum size, one word each, offered in every cycle.
//!
//! Rates are in millions of packets a second at 250 MHz, from the cycles between the first word taken and the last one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use flowloom_engine::Choices;
use flowloom_isa::asm;
use flowloom_plan::Options;
use flowloom_rtl::Access;
use flowloom_session::engines::{Arrival, OutputStalls, PipelineError, Simulated};
use flowloom_session::{FunctionFile, Loaded};
use flowloom_testkit::{Rng, is_selected};

use crate::programs::SQUARES;
use crate::stream::{case, start, top};
use crate::traffic::Traffic;

/// The clock.
pub(crate) const CLOCK_MHZ: f64 = 250.0;
/// 100 Gbit/s in packets of 60 bytes, with check sum, preamble and gap, in millions a second.
pub(crate) const LINE_MPPS: f64 = 148.8;
/// The flows of traffic whose flows are known.
const KNOWN_FLOWS: u32 = 200;

/// What flows packets belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flows {
    /// Known ones, drawn evenly.
    Known,
    /// A single known one.
    One,
    /// Two known ones in turn.
    Two,
    /// Each packet its own.
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

/// A UDP packet of 60 bytes of a flow.
fn frame(flow: u32) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    bytes[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 0, 192, 0, 2, 9]);
    bytes[27..30].copy_from_slice(&flow.to_be_bytes()[1..]);
    bytes[34..38].copy_from_slice(&[0x10, 0, 0, 53]);
    bytes[34..36].copy_from_slice(&(1024 + (flow % 50_000) as u16).to_be_bytes());
    bytes[38..42].copy_from_slice(&[0, 26, 0, 0]);
    let sum: u32 = bytes[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    bytes[24..26].copy_from_slice(&(!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes());
    bytes
}

/// The rate at which a pipeline takes packets of these flows, and gives them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    pub(crate) taken_mpps: f64,
    /// The words that leave for a packet on average, extra packets included; 0 if all are dropped.
    pub(crate) words_out: f64,
}

/// What the host has set before: map, key, value. The source NAT has a public address and its ports, the tunnel the
/// service to which the packets go. Other maps of ports lead to the port of each number.
type Entries = &'static [(&'static str, &'static [u8], &'static [u8])];

const NAT: Entries = &[
    ("configs", &[0; 4], &[1, 0, 0, 0, 0, 4, 0, 0, 0x60, 0xea, 0, 0]),
    ("publics", &[0; 4], &[198, 51, 100, 1]),
    ("out_ports", &[2, 0, 0, 0], &[2, 0, 0, 0]),
];

const TUNNEL: Entries = &[(
    "services",
    // ::ffff:192.0.2.9, UDP to port 53
    &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 9, 53, 0, 0, 0, 17, 0, 0, 0],
    // From 198.51.100.1 to 198.51.100.2, next hop 02:00:00:00:00:99
    &[
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51,
        100, 2, 2, 0, 0, 0, 0, 0x99, 0, 0,
    ],
)];

/// The port at which packets arrive, and what the host has set.
fn setting(name: &str) -> (u32, Entries) {
    match name {
        "dnat.bpf.c" => (1, NAT),
        "tunnel.bpf.c" => (2, TUNNEL),
        _ => (2, &[]),
    }
}

fn rate(simulated: &mut Simulated, rng: &mut Rng, flows: Flows, count: u32, (port, entries): (u32, Entries)) -> Rate {
    let (mut time_ns, seed) = (1_000_000_000, rng.next_u64());
    let mut send = |simulated: &mut Simulated, numbers: Vec<u32>, delay_cycles: u32| {
        let packets: Vec<(Vec<u8>, u64)> = numbers
            .iter()
            .map(|flow| {
                time_ns += 4;
                (frame(*flow), time_ns)
            })
            .collect();
        let arrivals: Vec<Arrival<'_>> =
            packets.iter().map(|(bytes, now_ns)| Arrival { bytes, port, now_ns: *now_ns, delay_cycles }).collect();
        let draws: Vec<Choices> = numbers.iter().map(|flow| Choices::seeded(time_ns, seed, u64::from(*flow))).collect();
        simulated.send_drawing(&arrivals, &draws, OutputStalls::default()).unwrap_or_else(|e| panic!("{e}"))
    };
    simulated.reset().unwrap();
    for map in simulated.maps().cloned().collect::<Vec<_>>() {
        let own = entries.iter().filter(|(name, ..)| *name == map.name);
        let mut own: BTreeMap<_, _> = own.map(|(_, key, value)| (key.to_vec(), value.to_vec())).collect();
        if own.is_empty() && matches!(map.access, Access::Ports { .. }) {
            own.extend((0..map.entries).map(|port| (port.to_le_bytes().to_vec(), port.to_le_bytes().to_vec())));
        }
        if !own.is_empty() {
            simulated.write(map.map, &own).unwrap();
        }
    }
    // Flows become known, without haste.
    send(simulated, (0..KNOWN_FLOWS).collect(), 100);
    let numbers = (0..count).map(|number| flows.of(rng, number)).collect();
    let departures = send(simulated, numbers, 0);
    let first = departures.first().unwrap().taken_cycle;
    let last = departures.last().unwrap().taken_cycle;
    let words = departures.iter().flat_map(|one| one.extra.iter().chain(&one.sent));
    let words = words.map(|(_, bytes)| bytes.len().div_ceil(64) as u64);
    Rate {
        taken_mpps: CLOCK_MHZ * f64::from(count - 1) / (last - first) as f64,
        words_out: words.sum::<u64>() as f64 / f64::from(count),
    }
}

/// All rates of a function, in the order of [`Flows::ALL`]; none without a simulation, which says why.
pub(crate) fn rates(test: &str, name: &str, loaded: &Loaded, count: u32) -> Result<Option<[Rate; 4]>, PipelineError> {
    let pipeline = loaded.pipeline(&Options::default())?;
    let seed = Rng::from_env(1).next_u64();
    let Some(mut simulated) = start(test, &pipeline, seed as u32) else { return Ok(None) };
    let mut rng = Rng::new(seed);
    let rates = Flows::ALL.map(|flows| rate(&mut simulated, &mut rng, flows, count, setting(name)));
    let [known, one, two, new] = rates.map(|rate| rate.taken_mpps);
    let words = rates[0].words_out;
    println!(
        "{name}: known flows {known:.1} of {words:.2} words, one {one:.1}, two in turn {two:.1}, new ones {new:.1} Mpps"
    );
    Ok(Some(rates))
}

/// Every function and program of the repository, or the one that `FLOWLOOM_FUNCTION` selects.
pub(crate) fn all() -> Vec<(String, PathBuf)> {
    let folder = |path: PathBuf| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let functions = folder(top().join("functions")).chain(folder(top().join("functions/ebpf")));
    let files = functions.filter(|path| path.is_dir()).flat_map(folder);
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_ebpf = path.parent().unwrap().parent().unwrap().ends_with("ebpf");
        name.ends_with(".efsm") || (is_ebpf && name.ends_with(".bpf.c"))
    };
    let mut all: Vec<(String, PathBuf)> =
        files.filter(is_one).map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path)).collect();
    all.sort();
    all.retain(|(name, _)| is_selected(name.split('.').next().unwrap()));
    all
}

pub(crate) fn open(path: &std::path::Path) -> Loaded {
    Loaded::open(&FunctionFile { path: path.to_owned(), ..FunctionFile::default() })
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn a_packet_enters_and_leaves_in_every_cycle() {
    let case = case("xdp2");
    let loaded = case.load();
    let pipeline = case.pipeline(&loaded);
    let Some(mut simulated) = start("a_packet_enters_and_leaves_in_every_cycle", &pipeline, 1) else { return };
    let mut rng = Rng::from_env(1);
    let packets = Traffic::OneFlow.packets(&mut rng, 1000, simulated.max_bytes());
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
    let Some(rates) = rates("a_counter_takes_a_packet_in_every_cycle", "toy", &toy, 2000).unwrap() else { return };
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
        let Some([known, ..]) = rates(test, &name, &loaded, 2000).unwrap() else { return };
        let least = if entries > KNOWN_FLOWS { CLOCK_MHZ } else { CLOCK_MHZ / f64::from(apart) };
        assert!(known.taken_mpps > 0.99 * least, "{name}: {known:?}");
        assert!(entries > KNOWN_FLOWS || known.taken_mpps < 1.01 * least, "{name}: {known:?}");
    }
}
