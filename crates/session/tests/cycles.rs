// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The twin of a pipeline gives the cycles of the simulated one, packet by packet.

use flowloom_engine::Snapshot;
use flowloom_plan::{Options, Plan};
use flowloom_predict::{Offered, PacketCycles, Twin};
use flowloom_rtl::{Access, Pipeline};
use flowloom_session::Loaded;
use flowloom_session::engines::{Arrival, Departure, OutputStalls, Simulated};
use flowloom_testkit::Rng;

use crate::rates;
use crate::stream::{Case, case, start, top};
use crate::traffic::Traffic;

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
    let Some(simulated) = start(test, &pipeline, 1) else { return Ok(None) };
    let program = loaded.pipeline_program().unwrap();
    let mut twin = Twin::new(&program, &plan.dataflow, &pipeline, 0).map_err(|error| error.to_string())?;
    let state = twin.snapshot().unwrap();
    let state = case.map_or(state.clone(), |case| case.state(state));
    Ok(Some(Subject { name: name.to_owned(), loaded, plan, pipeline, simulated, state }))
}

impl Subject {
    /// Resets the simulation and sends the packets through both. Returns the number of packets that waited, or the first
    /// difference.
    pub(crate) fn compare(
        &mut self,
        packets: &[(Vec<u8>, u32, u32)],
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
        let cycles = self.simulated.cycles_since_reset();
        let mut twin = Twin::new(&program, &self.plan.dataflow, &pipeline, cycles).unwrap();
        twin.restore(&self.state).unwrap();
        let now_ns = |number: usize| 1000 * number as u64;
        let arrivals = packets.iter().enumerate().map(|(number, (bytes, port, delay))| Arrival {
            bytes,
            port: *port,
            now_ns: now_ns(number),
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
        let found = twin.send(&offered, &mut is_ready).unwrap();
        if found.len() != expected.len() {
            return Err(format!("{}: {} packets, expected {}", self.name, found.len(), expected.len()));
        }
        let mut waited = 0;
        let latency = u64::from(self.pipeline.latency_cycles());
        for (number, (found, departure)) in found.iter().zip(&expected).enumerate() {
            let Departure { taken_cycle: taken, done_cycle: done, first_cycle: first, last_cycle: last, .. } = *departure;
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
    agree("cycles_without_tables_that_change_are_those_of_the_pipeline", &["toy", "xdp1", "xdp2", "rxq_info", "adjust_tail"], 4000);
}

#[test]
fn cycles_with_a_queue_are_those_of_the_pipeline() {
    agree("cycles_with_a_queue_are_those_of_the_pipeline", &["sums", "queued", "squares", "known", "window"], 4000);
}

#[test]
fn cycles_with_hash_maps_are_those_of_the_pipeline() {
    agree("cycles_with_hash_maps_are_those_of_the_pipeline", &["simple_firewall", "leaky_bucket"], 4000);
}
