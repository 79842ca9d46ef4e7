// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The leaky buckets as planned, and what every scheme has to do with them.

use std::sync::Arc;

use flowloom_ir::Dataflow;
use flowloom_isa::Program;
use flowloom_plan::{MapTiming, Options, Scheme, Timing, plan};
use flowloom_predict::formula::{self, Formulas};
use flowloom_predict::{Flows, Frames, Keyed, Pace, Report};
use flowloom_testkit::Clang;
use flowloom_trace::{Profile, Rate, Traffic, TrafficOptions};
use flowloom_verifier::{Options as Proving, verify};

use super::{FULL_LINK, built, run};

/// The form with a window in time, and that with one time.
pub(crate) const FORMS: [&str; 2] = ["leaky_bucket", "leaky_bucket_gcra"];
pub(crate) const FLOWS: u32 = 50_000;
const MAP: &str = "buckets";
/// 100 Gb/s of frames of 64 bytes.
const LINE: Pace = Pace::At(Rate::Packets(148_800_000));

pub(crate) struct Bucket {
    pub(crate) program: Arc<Program>,
    pub(crate) dataflow: Dataflow,
}

/// What a scheme does.
pub(crate) struct Outcome {
    pub(crate) timing: Timing,
    /// Zipf's law, a packet a cycle; one flow, likewise; Zipf's law at line rate.
    pub(crate) zipf: Report,
    pub(crate) single: Report,
    pub(crate) line: Report,
    pub(crate) formulas: Formulas,
}

impl Outcome {
    pub(crate) fn map(&self) -> &MapTiming {
        self.timing.maps.iter().find(|map| map.name == MAP).unwrap()
    }
}

impl Bucket {
    pub(crate) fn new(clang: &Clang, form: &str) -> Bucket {
        let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../../functions/ebpf/leaky_bucket");
        let object = clang.compile_file(format!("{top}/{form}.bpf.c").as_ref(), &["-mcpu=v3"]).unwrap();
        let program = flowloom_object::read(&object, form).unwrap().xdp().next().unwrap().clone();
        Bucket { dataflow: built(&program), program: Arc::new(program) }
    }

    /// The plan with this scheme, with at most 8 queues.
    pub(crate) fn timing(&self, scheme: Scheme) -> Timing {
        let proof = verify(&self.program, &Proving::default()).unwrap();
        let options = Options { schemes: [(MAP.to_owned(), scheme)].into(), queues: 8, ..Options::default() };
        let plan = plan(&self.program, &proof, &options).unwrap_or_else(|refusal| panic!("{refusal}"));
        let timing = plan.timing();
        let own = timing.maps.iter().find(|map| map.name == MAP).unwrap();
        assert!(own.scheme == scheme && own.queues <= 8, "{own:?}");
        timing
    }

    /// Everything that the schemes are there for, at the plan's own hold.
    pub(crate) fn simulate(&self, scheme: Scheme, packets: u64) -> Outcome {
        simulate(self.timing(scheme), packets)
    }

    /// What a pipeline does with traffic like that of a trace, at 100 Gb/s.
    pub(crate) fn traced(&self, timing: &Timing, profile: Profile, packets: u64) -> Report {
        let options = TrafficOptions { packets: Some(packets), snap_bytes: Some(128), ..TrafficOptions::new(profile) };
        run(timing, FULL_LINK, self.keyed(timing, Traffic::new(&options).unwrap()))
    }

    /// The packets of these frames.
    pub(crate) fn keyed<F: Frames>(&self, timing: &Timing, frames: F) -> Keyed<F> {
        Keyed::new(&self.program, &self.dataflow, timing, false, frames).unwrap()
    }
}

/// Runs a bucket's pipeline on all that its scheme is judged by.
pub(crate) fn simulate(timing: Timing, packets: u64) -> Outcome {
    let zipf = || Flows::zipf(FLOWS, 1.0, timing.maps.len(), packets, 1);
    let own = timing.maps.iter().find(|map| map.name == MAP).unwrap();
    let formulas = Formulas::of(&timing, own, FLOWS.into());
    let (full, line) = (run(&timing, Pace::Full, zipf()), run(&timing, LINE, zipf()));
    let single = run(&timing, Pace::Full, Flows::single(timing.maps.len(), packets / 10));
    let outcome = Outcome { zipf: full, single, line, formulas, timing };
    let (map, near) = (outcome.map(), |found: f64, expected: f64| (found / expected - 1.0).abs());
    let (mpps, alone) = (outcome.zipf.throughput_mpps, outcome.single.throughput_mpps);
    let hold = f64::from(map.hold_cycles);
    match map.scheme {
        Scheme::Flush => {
            // T / (1 + (K - 1) F), each flush at its mean cost.
            let cycles = f64::from(outcome.timing.flush_cycles(map));
            let lost = cycles - formula::mean_distance(FLOWS.into(), map.hold_cycles) + 1.0;
            let expected = 250.0 / (1.0 + (lost - 1.0) * formula::conflict(FLOWS.into(), map.hold_cycles));
            assert!(near(expected, outcome.formulas.conflict_mpps) < 1e-9);
            assert!(near(mpps, expected) < 0.1, "{mpps}, expected {expected}");
            assert!(outcome.formulas.printed_mpps < outcome.formulas.harmonic_mpps);
            assert!(near(alone, 250.0 / cycles) < 0.01, "{alone}");
        }
        Scheme::Schedule => {
            assert!(mpps >= 240.0 && map.queues <= 8, "{mpps} with {} queues", map.queues);
            assert!(near(alone, 250.0 / hold) < 0.01, "{alone} at a hold of {hold}");
        }
        Scheme::None | Scheme::Atomic => assert_eq!((mpps, alone), (250.0, 250.0)),
    }
    if map.scheme != Scheme::Flush {
        assert_eq!(outcome.line.packets_lost, 0, "at 148.8 Mpps");
    }
    outcome
}
