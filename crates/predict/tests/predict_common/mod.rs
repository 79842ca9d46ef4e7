// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(dead_code, reason = "each test file uses some of it")]
//! Pipelines and packets for tests.

pub(crate) mod bucket;

use flowloom_ir::{Dataflow, build};
use flowloom_isa::Program;
use flowloom_plan::{Arbiter, MapTiming, Scheme, Timing};
use flowloom_predict::{Arrival, Arrivals, Pace, PredictError, PredictOptions, Report, predict};
use flowloom_trace::Rate;
use flowloom_verifier::{Options, verify};

/// 100 Gb/s of packets of any lengths.
pub(crate) const FULL_LINK: Pace = Pace::At(Rate::Bits(100_000_000_000));

pub(crate) struct Listed(std::vec::IntoIter<Arrival>);

impl Listed {
    pub(crate) fn new(packets: Vec<Arrival>) -> Listed {
        Listed(packets.into_iter())
    }
}

impl Arrivals for Listed {
    fn next(&mut self, packet: &mut Arrival) -> Result<bool, PredictError> {
        let next = self.0.next();
        let is_there = next.is_some();
        *packet = next.unwrap_or_default();
        Ok(is_there)
    }
}

/// The dataflow of a program that is safe.
pub(crate) fn built(program: &Program) -> Dataflow {
    let proof = verify(program, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    build(program, &proof).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// A packet of 60 bytes that uses and changes every map by this key, as many ns after the first one.
pub(crate) fn packet(time_ns: u64, key: u64, maps: usize) -> Arrival {
    let all = u64::MAX;
    Arrival { time_ns, len_bytes: 60, leaving_bytes: 60, uses: all, writes: all, keys: vec![key; maps] }
}

/// A map that is read in stage 4 and written so that the hold is this; it starts again where it is read.
pub(crate) fn map(name: &str, scheme: Scheme, read_stage: u32, hold_cycles: u32) -> MapTiming {
    MapTiming {
        name: name.to_owned(),
        scheme,
        read_stage,
        write_stage: read_stage + hold_cycles - 1,
        hold_cycles,
        queues: 8,
        queue_depth: 32,
        restart_stage: read_stage,
    }
}

/// A pipeline at 250 MHz of which 8 cycles of latency lie outside of the stages.
pub(crate) fn pipeline(stages: u32, maps: Vec<MapTiming>) -> Timing {
    Timing {
        clock_mhz: 250.0,
        stages,
        latency_cycles: stages + 8,
        reload_cycles: Timing::RELOAD_CYCLES,
        arbiter: Arbiter::Oldest,
        maps,
    }
}

/// eHDL's own leaky bucket: K is 39, L is 5.
pub(crate) fn of_ehdl() -> Timing {
    pipeline(40, vec![MapTiming { restart_stage: 0, ..map("buckets", Scheme::Flush, 30, 5) }])
}

/// Report of a pipeline on packets at a fixed interval.
pub(crate) fn run(timing: &Timing, pace: Pace, mut arrivals: impl Arrivals) -> Report {
    predict(timing, &PredictOptions::new(pace), &mut arrivals).unwrap()
}

/// What it does with these packets, one a cycle.
pub(crate) fn run_all(timing: &Timing, packets: Vec<Arrival>) -> Report {
    run(timing, Pace::Full, Listed::new(packets))
}

/// One like the leaky bucket's: 12 stages, a read in the fourth.
pub(crate) fn leaky_bucket(scheme: Scheme, hold_cycles: u32) -> Timing {
    pipeline((4 + hold_cycles).max(12), vec![map("buckets", scheme, 4, hold_cycles)])
}
