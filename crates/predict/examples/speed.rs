// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How fast `predict` is: `cargo run --release -p flowloom-predict --example speed [OBJECT MAP]`.
//!
//! Packets a second, the median of some runs with the fastest and the slowest one. Without an object keys are numbers of
//! flows; with one they come out of frames, by its program and this map.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use flowloom_isa::Program;
use flowloom_plan::{Arbiter, MapTiming, Scheme, Timing};
use flowloom_predict::{Arrivals, Flows, Frame, Frames, Keyed, Pace, PredictError, PredictOptions, predict};
use flowloom_trace::{Profile, Rate, Traffic, TrafficOptions};
use flowloom_verifier::{Options, verify};

const PACKETS: u64 = 1_000_000;
const FRAMES: u64 = 20_000;
const RUNS: usize = 5;
const LINE: Pace = Pace::At(Rate::Bits(100_000_000_000));

/// The same frames again and again: making them is not what is measured.
#[derive(Clone)]
struct Again {
    frames: Arc<Vec<(u32, u32, Vec<u8>)>>,
    next: usize,
    left: u64,
}

impl Again {
    fn of(profile: Profile) -> Result<Again, PredictError> {
        let options = TrafficOptions { packets: Some(FRAMES), snap_bytes: Some(128), ..TrafficOptions::new(profile) };
        let mut traffic = Traffic::new(&options)?;
        let mut frames = Vec::new();
        while let Some(packet) = traffic.next_packet() {
            frames.push((packet.port, packet.len_bytes, packet.bytes.to_vec()));
        }
        Ok(Again { frames: Arc::new(frames), next: 0, left: PACKETS })
    }
}

impl Frames for Again {
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, PredictError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.next = if self.next + 1 >= self.frames.len() { 0 } else { self.next + 1 };
        let frame = self.frames.get(self.next);
        Ok(frame.map(|(port, len_bytes, bytes)| Frame { time_ns: 0, port: *port, len_bytes: *len_bytes, bytes }))
    }
}

fn timing(map: &str, scheme: Scheme) -> Timing {
    let map = MapTiming {
        name: map.to_owned(),
        scheme,
        read_stage: 4,
        write_stage: 11,
        hold_cycles: 8,
        queues: 8,
        queue_depth: 32,
        restart_stage: 4,
    };
    let (reload_cycles, arbiter) = (Timing::RELOAD_CYCLES, Arbiter::Oldest);
    Timing { clock_mhz: 250.0, stages: 12, latency_cycles: 22, reload_cycles, arbiter, maps: vec![map] }
}

fn measure<A: Arrivals>(
    what: &str,
    timing: &Timing,
    pace: Pace,
    mut arrivals: impl FnMut() -> Result<A, PredictError>,
) -> Result<(), PredictError> {
    let mut rates = Vec::new();
    // The first one warms up.
    for _ in 0..=RUNS {
        let mut arrivals = arrivals()?;
        let start = Instant::now();
        predict(timing, &PredictOptions::new(pace), &mut arrivals)?;
        rates.push(PACKETS as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
    rates.remove(0);
    rates.sort_by(f64::total_cmp);
    println!("{what:40} {:6.2} M/s  ({:.2} to {:.2})", rates[RUNS / 2], rates[0], rates[RUNS - 1]);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    if let (Some(path), Some(map)) = (args.next(), args.next()) {
        let object = flowloom_object::read(&std::fs::read(&path)?, &path)?;
        let program: Arc<Program> = Arc::new(object.xdp().next().ok_or("no XDP program")?.clone());
        let dataflow = flowloom_ir::build(&program, &verify(&program, &Options::default())?)?;
        for profile in [Profile::Caida2019, Profile::Zipf] {
            let frames = Again::of(profile)?;
            for scheme in Scheme::ALL {
                let (timing, what) =
                    (timing(&map, scheme), format!("{} at 100 Gb/s, {}", profile.name(), scheme.as_str()));
                measure(&what, &timing, LINE, || Keyed::new(&program, &dataflow, &timing, false, frames.clone()))?;
            }
        }
        return Ok(());
    }
    for (name, pace) in [("a packet a cycle", Pace::Full), ("100 Gb/s", LINE)] {
        for scheme in Scheme::ALL {
            let flows = Flows::zipf(50_000, 1.0, 1, PACKETS, 1);
            measure(&format!("zipf, {name}, {}", scheme.as_str()), &timing("map", scheme), pace, || Ok(flows.clone()))?;
        }
    }
    Ok(())
}
