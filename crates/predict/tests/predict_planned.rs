// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The leaky buckets at the holds of their own plans: what each scheme makes of popular flows and of one flow.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "../../plan/tests/common/mod.rs"]
mod common;
mod predict_common;

use common::{classical, planned};
use flowloom_plan::{Options, Scheme};
use flowloom_predict::{Flows, Pace, PredictOptions, predict};
use flowloom_testkit::Clang;
use predict_common::bucket::{Bucket, FORMS};

const PACKETS: u64 = 200_000;

#[test]
fn buckets_as_planned_under_zipf() {
    let Some(clang) = Clang::find("buckets_as_planned_under_zipf") else { return };
    for form in FORMS {
        let bucket = Bucket::new(&clang, form);
        for scheme in [Scheme::Flush, Scheme::Schedule, Scheme::Atomic] {
            let outcome = bucket.simulate(scheme, PACKETS);
            let (hold, mpps) = (outcome.map().hold_cycles, outcome.zipf.throughput_mpps);
            eprintln!("{form:18} {:8} hold {hold:2} {mpps:6.1} Mpps", scheme.as_str());
        }
    }
}

#[test]
fn every_plan_is_a_pipeline_of_the_model() {
    let Some(clang) = Clang::find("every_plan_is_a_pipeline_of_the_model") else { return };
    for program in classical(&clang) {
        let timing = planned(program, &Options::default()).timing();
        let mut flows = Flows::zipf(1000, 1.0, timing.maps.len(), 2000, 1);
        let report = predict(&timing, &PredictOptions::new(Pace::Full), &mut flows)
            .unwrap_or_else(|error| panic!("{}: {error}", program.name));
        assert_eq!(report.packets_passed, 2000, "{}", program.name);
    }
}
