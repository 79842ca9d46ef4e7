// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets through pipelines back to back: verdicts, bytes, ports and maps are the interpreter's.

use std::path::{Path, PathBuf};

use flowloom_engine::{Choices, Datapath, MapState, Outcome, Output, Packet, Port, Snapshot, Verdict};
use flowloom_isa::{MapKind, asm};
use flowloom_plan::Options;
use flowloom_rtl::{Access, Pipeline};
use flowloom_session::engines::{Arrival, Departure, OutputStalls, Simulated, cache_folder};
use flowloom_session::{FunctionFile, Loaded};
use flowloom_testkit::{Rng, skip};
use flowloom_vm::Interpreter;

use crate::programs::PROGRAMS;
use crate::traffic::Traffic;

/// A program and entries of its maps: map, index, the first bytes of the value.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) source: Source,
    pub(crate) entries: &'static [(&'static str, u32, &'static [u8])],
    /// Whether it sends packets, and whether it changes some of them.
    pub(crate) sends: bool,
    pub(crate) changes: bool,
}

/// The source of a program.
pub(crate) enum Source {
    /// A file below `functions/ebpf` and its parameters.
    File(&'static str, &'static [(&'static str, &'static str)]),
    /// A text in assembler, and words of it with their replacements.
    Text(&'static str, &'static [(&'static str, &'static str)]),
}

/// The programs whose plans are rendered as a whole.
pub(crate) static CASES: [Case; 8] = [
    Case { name: "toy", source: Source::File("toy/toy.bpf.c", &[]), entries: &[], sends: true, changes: false },
    Case { name: "xdp1", source: Source::File("xdp1/xdp1.bpf.c", &[]), entries: &[], sends: false, changes: false },
    Case { name: "xdp2", source: Source::File("xdp2/xdp2.bpf.c", &[]), entries: &[], sends: true, changes: true },
    // The ingress port 0; change MAC addresses; answer.
    Case {
        name: "rxq_info",
        source: Source::File("rxq_info/rxq_info.bpf.c", &[]),
        entries: &[("configs", 0, &[3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0])],
        sends: true,
        changes: true,
    },
    Case {
        name: "adjust_tail",
        source: Source::File("adjust_tail/adjust_tail.bpf.c", &[]),
        entries: &[("limit", 0, &[200, 0, 0, 0])],
        sends: true,
        changes: false,
    },
    // More flows than entries.
    Case {
        name: "simple_firewall",
        source: Source::File("simple_firewall/simple_firewall.bpf.c", &[("FLOWS", "80")]),
        entries: &[],
        sends: true,
        changes: false,
    },
    Case {
        name: "leaky_bucket",
        source: Source::File("leaky_bucket/leaky_bucket.bpf.c", &[("FLOWS", "300")]),
        entries: &[],
        sends: true,
        changes: false,
    },
    // Few ports and entries, which are soon taken over.
    Case {
        name: "dnat",
        source: Source::File("dnat/dnat.bpf.c", &[("FLOWS", "20"), ("QUIET_NS", "20000")]),
        entries: &[
            ("configs", 0, &[2, 0, 0, 0, 0, 4, 0, 0, 5, 0, 0, 0]),
            ("publics", 0, &[198, 51, 100, 1]),
            ("publics", 1, &[198, 51, 100, 2]),
            ("out_ports", 2, &[2, 0, 0, 0]),
        ],
        sends: true,
        changes: true,
    },
];

/// The cases of the normal test; the others take longer to compile.
const QUICK: [&str; 11] = [
    "used",
    "recent",
    "toy",
    "xdp2",
    "rxq_info",
    "simple_firewall",
    "leaky_bucket",
    "queued",
    "draws",
    "late_offset",
    "chosen_offset",
];
/// The cases with extra packets, which packets send besides themselves.
const EXTRA: [&str; 2] = ["clones", "emits"];

/// A case by name, also one of [`PROGRAMS`].
pub(crate) fn case(name: &str) -> &'static Case {
    let found = CASES.iter().chain(&PROGRAMS).find(|case| case.name == name);
    found.unwrap_or_else(|| panic!("no case `{name}`"))
}

/// The folder of the repository.
pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

impl Case {
    pub(crate) fn load(&self) -> Loaded {
        match self.source {
            Source::File(path, params) => {
                let path = top().join("functions/ebpf").join(path);
                let params = params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
                Loaded::open(&FunctionFile { path, params, ..FunctionFile::default() })
                    .unwrap_or_else(|e| panic!("{}: {e}", self.name))
            }
            Source::Text(text, params) => {
                let text = params.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
                let program = asm::program(self.name, &text).unwrap_or_else(|e| panic!("{}: {e}", self.name));
                Loaded::of_program(program)
            }
        }
    }

    pub(crate) fn pipeline(&self, loaded: &Loaded) -> Pipeline {
        loaded.pipeline(&Options::default()).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// The initial state, with the entries of the case.
    pub(crate) fn state(&self, mut state: Snapshot) -> Snapshot {
        for (map, index, bytes) in self.entries {
            // A map of ports has no contents before; an array has all entries.
            let entries = state.maps.entry((*map).to_owned()).or_default();
            let value = entries.entry(index.to_le_bytes().to_vec()).or_insert_with(|| vec![0; bytes.len()]);
            value[..bytes.len()].copy_from_slice(bytes);
        }
        state
    }
}

/// The pipeline in simulation; none, with the reason printed, where Verilator is not installed.
pub(crate) fn start(test: &str, pipeline: &Pipeline, seed: u32) -> Option<Simulated> {
    // The models of the engine, so that no pipeline is compiled twice.
    match Simulated::start(pipeline, &cache_folder(), seed) {
        Ok(simulated) => Some(simulated),
        Err(error) if error.is_missing_tool() => {
            skip(test, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What was compared.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) packets: usize,
    pub(crate) sent: usize,
    pub(crate) slow: usize,
    pub(crate) changed: usize,
    /// Packets that leave through all ports of a map.
    pub(crate) spread: usize,
    /// Extra packets, and those of them that dropped packets send.
    pub(crate) extra: usize,
    pub(crate) of_dropped: usize,
}

impl std::ops::AddAssign for Compared {
    fn add_assign(&mut self, other: Compared) {
        self.packets += other.packets;
        self.sent += other.sent;
        self.slow += other.slow;
        self.changed += other.changed;
        self.spread += other.spread;
        self.extra += other.extra;
        self.of_dropped += other.of_dropped;
    }
}

/// Compares a packet that leaves through all ports of a map, whose index is in place of the port, except `but`.
fn spread(interp: &Interpreter, outcome: &Outcome, found: Option<Output>, but: Option<Port>) -> Result<(), String> {
    let Some(Output { port: Port(map), bytes }) = found else { return Err("no packet for all ports".to_owned()) };
    let (maps, kind) = (&interp.program().maps, MapKind::Devmap);
    if maps.get(map as usize).is_none_or(|map| map.kind != kind) {
        return Err(format!("found all ports of map {map}, expected a map of ports"));
    }
    let ports = interp.ports_of(map as usize, but);
    let expected: Vec<Port> = outcome.outputs.iter().map(|output| output.port).collect();
    if ports != expected {
        return Err(format!("found {ports:?}, expected {}, {expected:?}", outcome.verdict));
    }
    match outcome.outputs.iter().find(|output| output.bytes != bytes) {
        None => Ok(()),
        Some(output) => Err(format!("found {bytes:02x?} for all ports, expected {:02x?}", output.bytes)),
    }
}

/// Sends packets through a pipeline and runs them in the interpreter; the first difference.
pub(crate) fn compare(
    case: &Case,
    simulated: &mut Simulated,
    interp: &mut Interpreter,
    packets: &[(Vec<u8>, u32, u32)],
    stalls: OutputStalls,
) -> Result<Compared, String> {
    simulated.reset().map_err(|e| e.to_string())?;
    compare_after_reset(case, simulated, interp, packets, stalls).map(|(compared, _)| compared)
}

/// The time of a packet.
fn now_ns(number: usize) -> u64 {
    1000 * number as u64
}

/// Packets at the input.
pub(crate) fn arrivals(packets: &[(Vec<u8>, u32, u32)]) -> Vec<Arrival<'_>> {
    let packets = packets.iter().zip(0..);
    packets
        .map(|((bytes, port, delay), number)| Arrival {
            bytes,
            port: *port,
            now_ns: now_ns(number),
            delay_cycles: *delay,
        })
        .collect()
}

/// As [`compare`], with a pipeline that was reset; also what it gave.
pub(crate) fn compare_after_reset(
    case: &Case,
    simulated: &mut Simulated,
    interp: &mut Interpreter,
    packets: &[(Vec<u8>, u32, u32)],
    stalls: OutputStalls,
) -> Result<(Compared, Vec<Departure>), String> {
    interp.restore(&Snapshot::default()).map_err(|e| e.to_string())?;
    let state = case.state(interp.snapshot().map_err(|e| e.to_string())?);
    interp.restore(&state).map_err(|e| e.to_string())?;
    let maps: Vec<_> = simulated.maps().cloned().collect();
    for map in &maps {
        // Maps of ports have no contents in a state unless they were given some: each key is its own port.
        let ports =
            || (0..map.entries).map(|port| port.to_le_bytes().to_vec()).map(|port| (port.clone(), port)).collect();
        let entries = state.maps.get(&map.name).cloned().unwrap_or_else(ports);
        simulated.write(map.map, &entries).map_err(|e| e.to_string())?;
    }
    let arrivals = arrivals(packets);
    let choices = |number: usize| Choices::seeded(now_ns(number), 0, number as u64);
    let drawn: Vec<Choices> = (0..packets.len()).map(choices).collect();
    let departures = simulated.send_drawing(&arrivals, &drawn, stalls).map_err(|e| e.to_string())?;
    let mut compared = Compared::default();
    for (number, (departure, (bytes, port, _))) in departures.iter().zip(packets).enumerate() {
        let place = format!("{}, packet {number} of {} bytes", case.name, bytes.len());
        let found = departure.sent.clone().map(|(port, bytes)| Output { port: Port(port), bytes });
        compared.packets += 1;
        compared.sent += usize::from(found.is_some());
        if departure.verdict == Departure::SLOW {
            // It leaves as it came, and changes nothing.
            compared.slow += 1;
            let expected = Some(Output { port: Port(*port), bytes: bytes.clone() });
            if found != expected || !departure.extra.is_empty() {
                return Err(format!("{place} takes the slow path: found {found:02x?}, expected {expected:02x?}"));
            }
            continue;
        }
        let packet = Packet { bytes, port: Port(*port) };
        let outcome = interp.process(&packet, &choices(number)).map_err(|e| e.to_string())?;
        if let Departure::ALL | Departure::OTHERS = departure.verdict {
            let but = (departure.verdict == Departure::OTHERS).then_some(Port(*port));
            spread(interp, &outcome, found, but).map_err(|differs| format!("{place}: {differs}"))?;
            compared.spread += 1;
            continue;
        }
        let verdict = Verdict::from_number(departure.verdict.into());
        let extra = departure.extra.iter().map(|(port, bytes)| Output { port: Port(*port), bytes: bytes.clone() });
        let outputs: Vec<Output> = extra.chain(found.clone()).collect();
        if verdict != outcome.verdict || outputs != outcome.outputs {
            return Err(format!(
                "{place}: found {verdict}, {outputs:02x?}, expected {}, {:02x?}",
                outcome.verdict, outcome.outputs
            ));
        }
        compared.extra += departure.extra.len();
        compared.of_dropped += if found.is_none() { departure.extra.len() } else { 0 };
        compared.changed += usize::from(found.is_some_and(|found| found.bytes != *bytes));
    }
    let expected = interp.snapshot().map_err(|e| e.to_string())?;
    for map in maps.iter().filter(|map| !matches!(map.access, Access::Ports { .. })) {
        let found = simulated.read(map.map).map_err(|e| e.to_string())?;
        let mut expected = expected.maps[&map.name].clone();
        expected.values_mut().for_each(|value| value.truncate(map.value_bytes as usize));
        if found != expected {
            let differs = |(key, value): &(&Vec<u8>, &Vec<u8>), other: &MapState| other.get(*key) != Some(value);
            let one = found.iter().find(|entry| differs(entry, &expected));
            let other = expected.iter().find(|entry| differs(entry, &found));
            return Err(format!(
                "{}: map `{}`: {} entries, expected {}: found {one:02x?}, expected {other:02x?}",
                case.name,
                map.name,
                found.len(),
                expected.len()
            ));
        }
    }
    Ok((compared, departures))
}

/// All shapes of traffic, with and without stalls at the output.
pub(crate) fn compare_all(
    case: &Case,
    loaded: &Loaded,
    simulated: &mut Simulated,
    seed: u64,
    count: usize,
) -> Result<Compared, String> {
    let mut interp = Interpreter::new(loaded.program().unwrap()).unwrap();
    let mut rng = Rng::new(seed);
    let mut all = Compared::default();
    for traffic in Traffic::ALL {
        for of_256 in [0, 100] {
            let share = if traffic == Traffic::Extremes { count / 100 } else { count / 10 };
            let packets = traffic.packets(&mut rng, share.max(2), simulated.max_bytes());
            let stalls = OutputStalls { of_256, seed: rng.next_u64() as u32 };
            let compared = compare(case, simulated, &mut interp, &packets, stalls);
            all += compared.map_err(|found| format!("{traffic:?}, {of_256} stalls of 256: {found}"))?;
        }
    }
    Ok(all)
}

#[test]
fn pipelines_at_full_rate_are_equal_to_the_interpreter() {
    are_equal("pipelines_at_full_rate_are_equal_to_the_interpreter", &QUICK);
}

#[test]
fn extra_packets_are_equal_to_the_interpreter() {
    are_equal("extra_packets_are_equal_to_the_interpreter", &EXTRA);
}

fn are_equal(test: &str, names: &[&str]) {
    let seed = Rng::from_env(1).next_u64();
    for case in names.iter().map(|name| case(name)) {
        let loaded = case.load();
        let pipeline = case.pipeline(&loaded);
        let Some(mut simulated) = start(test, &pipeline, seed as u32) else { return };
        let compared =
            compare_all(case, &loaded, &mut simulated, seed, 10_000).unwrap_or_else(|found| panic!("{found}"));
        println!("{}: {compared:?}", case.name);
        let found = (compared.sent > 0, compared.changed > 0);
        assert_eq!(found, (case.sends, case.changes), "{}: {compared:?}", case.name);
        let has_extra = compared.extra > compared.packets / 2 && compared.of_dropped > compared.packets / 10;
        assert_eq!(has_extra, EXTRA.contains(&case.name), "{}: {compared:?}", case.name);
        assert!(case.name != "clones" || compared.slow > 100, "{compared:?}");
    }
}
