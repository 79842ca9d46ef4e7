// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The twin of a pipeline gives the cycles of the simulated one, packet by packet.

use flowloom_engine::Snapshot;
use flowloom_plan::{Options, Plan};
use flowloom_predict::{Offered, PacketCycles, Twin};
use flowloom_rtl::control::{Control, Wait};
use flowloom_rtl::{Access, Pipeline};
use flowloom_session::Loaded;
use flowloom_session::engines::{Arrival, Departure, OutputStalls, Simulated};
use flowloom_testkit::Rng;

use crate::adversarial::{self, Maker, Trace};
use crate::distances::{self, SCHEMES, Scheme};
use crate::stream::{Case, case, start};
use crate::traffic::Traffic;

/// Packets of each function in the proof.
pub(crate) const PACKETS: usize = 4000;

/// A function as plan, as pipeline, and in simulation.
pub(crate) struct Subject {
    pub(crate) name: String,
    loaded: Loaded,
    plan: Plan,
    pub(crate) pipeline: Pipeline,
    pub(crate) simulated: Simulated,
    /// The contents of maps at the beginning.
    state: Snapshot,
}

/// The subject; none without a simulation, an error text without a pipeline.
pub(crate) fn subject(test: &str, name: &str, loaded: Loaded, case: Option<&Case>) -> Result<Option<Subject>, String> {
    let plan = loaded.plan(&Options::default()).map_err(|error| error.to_string())?;
    let pipeline = loaded.rendered(&plan).map_err(|error| error.to_string())?;
    // A model is compiled only where there is a twin to compare.
    if let Some(refusal) = Twin::refusal(&pipeline) {
        return Err(refusal.to_string());
    }
    let Some(simulated) = start(test, &pipeline, 1) else { return Ok(None) };
    let program = loaded.pipeline_program().unwrap();
    let mut twin = Twin::new(&program, &plan.dataflow, &pipeline).map_err(|error| error.to_string())?;
    let state = twin.snapshot().unwrap();
    let state = case.map_or(state.clone(), |case| case.state(state));
    Ok(Some(Subject { name: name.to_owned(), loaded, plan, pipeline, simulated, state }))
}

impl Subject {
    /// Resets the simulation and sends the packets through both. Returns the number of packets that waited, or the
    /// first difference.
    pub(crate) fn compare(
        &mut self,
        packets: &[(Vec<u8>, u32, u32)],
        stalls: OutputStalls,
        spoil: impl FnMut(&mut Pipeline),
    ) -> Result<usize, String> {
        let timed = packets
            .iter()
            .enumerate()
            .map(|(number, (bytes, port, delay))| (bytes.clone(), *port, *delay, 1000 * number as u64));
        self.compare_timed(&timed.collect::<Timed>(), stalls, spoil)
    }

    pub(crate) fn compare_timed(
        &mut self,
        packets: &[(Vec<u8>, u32, u32, u64)],
        stalls: OutputStalls,
        mut spoil: impl FnMut(&mut Pipeline),
    ) -> Result<usize, String> {
        self.simulated.reset().unwrap();
        for map in self.simulated.maps().cloned().collect::<Vec<_>>() {
            let is_ports = matches!(map.access, Access::Ports { .. });
            let ports = || (0..map.entries).map(|port| (port.to_le_bytes().to_vec(), port.to_le_bytes().to_vec()));
            match self.state.maps.get(&map.name) {
                None if is_ports => self.simulated.write(map.map, &ports().collect()).unwrap(),
                Some(entries) if !matches!(map.access, Access::Key { .. }) => {
                    self.simulated.write(map.map, entries).unwrap();
                }
                _ => {}
            }
        }
        let program = self.loaded.pipeline_program().unwrap();
        let mut pipeline = self.pipeline.clone();
        spoil(&mut pipeline);
        let mut twin = Twin::new(&program, &self.plan.dataflow, &pipeline).unwrap();
        twin.restore(&self.state).unwrap();
        let arrivals = packets.iter().map(|(bytes, port, delay, now_ns)| Arrival {
            bytes,
            port: *port,
            now_ns: *now_ns,
            delay_cycles: *delay,
        });
        let arrivals: Vec<Arrival<'_>> = arrivals.collect();
        let offered = arrivals.iter().map(|one| Offered {
            bytes: one.bytes,
            port: one.port,
            now_ns: one.now_ns,
            delay_cycles: one.delay_cycles,
        });
        let offered: Vec<Offered<'_>> = offered.collect();
        // The stalls of the simulation (`flowloom_cosim`).
        let mut seed = stalls.seed;
        let mut is_ready = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 24 >= u32::from(stalls.of_256)
        };
        let expected = self.simulated.send(&arrivals, stalls).map_err(|error| error.to_string())?;
        let found = twin.send(&offered, &mut is_ready).map_err(|error| error.to_string())?;
        if found.len() != expected.len() {
            return Err(format!("{}: {} packets, expected {}", self.name, found.len(), expected.len()));
        }
        let mut waited = 0;
        let latency = u64::from(self.pipeline.latency_cycles());
        for (number, (found, departure)) in found.iter().zip(&expected).enumerate() {
            let Departure { taken_cycle: taken, done_cycle: done, first_cycle: first, last_cycle: last, .. } =
                *departure;
            let words_out = departure.sent.as_ref().map_or(0, |(_, bytes)| bytes.len().div_ceil(64) as u32);
            let expected = PacketCycles { taken, done, first, last, words_out };
            if *found != expected {
                let len = packets[number].0.len();
                return Err(format!("{}, packet {number} of {len} bytes: {found:?}, expected {expected:?}", self.name));
            }
            waited += usize::from(words_out > 0 && first > taken + latency);
        }
        Ok(waited)
    }

    /// All shapes of traffic, with and without stalls at the output.
    pub(crate) fn compare_all(&mut self, seed: u64, count: usize) -> Result<usize, String> {
        let mut rng = Rng::new(seed);
        let mut waited = 0;
        for traffic in Traffic::ALL {
            for of_256 in [0, 100] {
                let share = if traffic == Traffic::Extremes { count / 100 } else { count / 10 };
                let packets = traffic.packets(&mut rng, share.max(2), self.simulated.max_bytes());
                let stalls = OutputStalls { of_256, seed: rng.next_u64() as u32 };
                let found = self.compare(&packets, stalls, |_| {});
                waited += found.map_err(|found| format!("{traffic:?}, {of_256} stalls of 256, {found}"))?;
            }
        }
        Ok(waited)
    }
}

/// Packets of a function's own traffic with the times of their arrival, back to back or with gaps.
type Timed = Vec<(Vec<u8>, u32, u32, u64)>;

/// A function with small tables on traces that fill them, collide in them, and meet deadlines: the packets that waited,
/// or the first difference. As for [`subject`], none without a simulation, an error text without a pipeline.
pub(crate) fn attack(test: &str, name: &str, seed: u64) -> Result<Option<Result<usize, String>>, String> {
    let variant = adversarial::with_small_tables(name);
    let loaded = Loaded::of_function(std::sync::Arc::clone(&variant.function));
    let Some(mut subject) = subject(test, name, loaded, None)? else { return Ok(None) };
    let maker = Maker::new(&variant.function, seed);
    let mut rng = Rng::new(seed);
    let mut waited = 0;
    for trace in Trace::ALL {
        let own = Loaded::of_function(std::sync::Arc::clone(&variant.function));
        let packets = maker.packets(trace, &mut rng, &own, &subject.pipeline);
        let max_bytes = subject.simulated.max_bytes();
        let gaps = rng.below(3);
        let timed = packets.into_iter().filter(|packet| !packet.bytes.is_empty()).map(|mut packet| {
            packet.bytes.truncate(max_bytes);
            let delay = if gaps > 0 && rng.chance(1, 3) { rng.below(12 * gaps) as u32 } else { 0 };
            (packet.bytes, packet.port.0, delay, packet.time_ns)
        });
        let timed: Timed = timed.collect();
        let stalls = OutputStalls { of_256: if rng.chance(1, 3) { 100 } else { 0 }, seed: rng.next_u64() as u32 };
        match subject.compare_timed(&timed, stalls, |_| {}) {
            Ok(found) => waited += found,
            Err(found) => return Ok(Some(Err(format!("{trace:?}, gaps {gaps}, {stalls:?}: {found}")))),
        }
    }
    Ok(Some(Ok(waited)))
}

fn agree(test: &str, names: &[&str], count: usize) {
    let seed = Rng::from_env(1).next_u64();
    let mut wrong = Vec::new();
    for name in names {
        let case = case(name);
        let Some(mut subject) = subject(test, name, case.load(), Some(case)).unwrap() else { return };
        match subject.compare_all(seed, count) {
            Ok(waited) => println!("{name}: {waited} packets waited"),
            Err(found) => wrong.push(found),
        }
    }
    assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
}

#[test]
fn cycles_without_tables_that_change_are_those_of_the_pipeline() {
    let names = ["toy", "xdp2", "rxq_info"];
    agree("cycles_without_tables_that_change_are_those_of_the_pipeline", &names, 4000);
}

#[test]
fn cycles_with_a_queue_are_those_of_the_pipeline() {
    agree("cycles_with_a_queue_are_those_of_the_pipeline", &["sums", "queued", "squares", "known"], 4000);
}

#[test]
fn cycles_with_hash_maps_are_those_of_the_pipeline() {
    agree("cycles_with_hash_maps_are_those_of_the_pipeline", &["simple_firewall", "leaky_bucket"], 4000);
}

/// Packets that insert, change and delete entries of a scheme, of few keys and of many, in phases of both.
fn scheme_packets(scheme: &Scheme, rng: &mut Rng, count: usize) -> Vec<(Vec<u8>, u32, u32)> {
    let mut phase = (1, 1, 1);
    let packets = (0..count).map(|number| {
        if number % 100 == 0 {
            let keys = *rng.pick(&[1, 2, 8, 30, 60, 200, 5000]);
            phase = (keys, rng.below(101), *rng.pick(&[1, 1, 4, 40]));
        }
        let (keys, deletes, gap) = phase;
        let mut bytes = scheme.packet(rng.below(100) < deletes, rng.next_u64() as u8, rng.below(keys) as u32);
        if rng.chance(1, 16) {
            bytes.resize(bytes.len() + rng.below(400), 0);
        }
        (bytes, 1, rng.below(gap) as u32)
    });
    packets.collect()
}

/// A scheme on its packets, with and without stalls at the output: none without a simulation, otherwise whether it has a
/// twin, or the first difference.
pub(crate) fn compare_scheme(test: &str, scheme: &Scheme, seed: u64) -> Option<Result<bool, String>> {
    let mut subject = match subject(test, scheme.name, scheme.load(), None) {
        Ok(Some(subject)) => subject,
        Ok(None) => return None,
        // The order of use and packets that run alone are not in the twin, which says so.
        Err(refusal) => {
            let is_known = match scheme.name {
                distances::ALONE => refusal.contains("run alone"),
                name => name.contains("LRU") && refusal.contains("evicts the entry"),
            };
            return Some(if is_known { Ok(false) } else { Err(format!("{}: {refusal}", scheme.name)) });
        }
    };
    let mut rng = Rng::new(seed);
    let mut all = [0, 0, 0, 100].into_iter().map(|of_256| {
        let packets = scheme_packets(scheme, &mut rng, 3000);
        let stalls = OutputStalls { of_256, seed: rng.next_u64() as u32 };
        subject.compare(&packets, stalls, |_| {})
    });
    Some(all.try_for_each(|found| found.map(drop)).map(|()| true))
}

/// Schemes that other tests compile, too, and two without a twin.
#[test]
fn cycles_of_schemes_are_those_of_the_pipeline() {
    let seed = Rng::from_env(1).next_u64();
    let mut wrong = Vec::new();
    let names = [
        "array in one stage",
        "hash map in one stage",
        "hash map in several stages",
        "results that decide about changes",
        "hash map by one of two keys",
        "partial arrays",
        distances::ALONE,
        distances::FULL_LRU[1],
    ];
    for name in names {
        let test = "cycles_of_schemes_are_those_of_the_pipeline";
        let Some(compared) = compare_scheme(test, distances::scheme(name), seed) else { return };
        wrong.extend(compared.err());
    }
    assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
}

/// A change of what the twin is told, which must be seen: program, name, change.
type Fault = (&'static str, &'static str, fn(&mut Control));

const FAULTS: [Fault; 8] = [
    ("xdp2", "the start of packets moves", |control| control.moves = !control.moves),
    ("xdp2", "a stage more", |control| control.stages += 1),
    ("sums", "a hold that is a cycle shorter", |control| hold(control).cycles -= 1),
    ("sums", "a hold without a key", |control| hold(control).key = None),
    ("queued", "results of blocks before the queue", |control| {
        control.queue.iter_mut().for_each(|queue| queue.is_late = !queue.is_late);
    }),
    ("hash map in several stages", "a map that is never nearly full", |control| hold(control).has_tight = false),
    ("hash map in several stages", "a packet more after a map has no room", |control| control.tables[0].ahead += 1),
    ("hash map in one stage", "packets that insert nothing", |control| control.tables[0].changes.clear()),
];

fn hold(control: &mut Control) -> &mut Wait {
    &mut control.queue.as_mut().unwrap().holds[0]
}

#[test]
fn changes_of_the_description_are_found() {
    let seed = Rng::from_env(1).next_u64();
    let mut missed = Vec::new();
    for (name, what, change) in FAULTS {
        let test = "changes_of_the_description_are_found";
        let scheme = SCHEMES.iter().find(|scheme| scheme.name == name);
        let own = if scheme.is_none() { Some(case(name)) } else { None };
        let loaded = scheme.map_or_else(|| case(name).load(), Scheme::load);
        let Some(mut subject) = subject(test, name, loaded, own).unwrap() else { return };
        let mut rng = Rng::new(seed);
        let traffic = Traffic::ALL.iter().filter(|traffic| **traffic != Traffic::Extremes);
        let is_found = traffic.into_iter().any(|traffic| {
            let packets = match scheme {
                Some(scheme) => scheme_packets(scheme, &mut rng, 2000),
                None => traffic.packets(&mut rng, 600, subject.simulated.max_bytes()),
            };
            let spoil = |pipeline: &mut Pipeline| change(&mut pipeline.core.control);
            subject.compare(&packets, OutputStalls::default(), spoil).is_err()
        });
        if !is_found {
            missed.push(format!("{name}: {what}"));
        }
    }
    assert!(missed.is_empty(), "seed {seed}: not found: {missed:?}");
}
