// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The leaky buckets at the holds of their own plans: what each scheme makes of popular flows, of one flow, of backbone traffic.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "../../plan/tests/common/mod.rs"]
mod common;
mod predict_common;

use common::{classical, planned};
use flowloom_plan::{Options, Scheme};
use flowloom_predict::{Flows, Pace, PredictOptions, predict};
use flowloom_testkit::Clang;
use flowloom_trace::Profile;
use predict_common::bucket::{Bucket, FORMS};

const PACKETS: u64 = 200_000;
const SCHEMES: [Scheme; 3] = [Scheme::Flush, Scheme::Schedule, Scheme::Atomic];

#[test]
fn buckets_as_planned_under_zipf() {
    let Some(clang) = Clang::find("buckets_as_planned_under_zipf") else { return };
    for form in FORMS {
        let bucket = Bucket::new(&clang, form);
        for scheme in SCHEMES {
            let outcome = bucket.simulate(scheme, PACKETS);
            let (hold, mpps) = (outcome.map().hold_cycles, outcome.zipf.throughput_mpps);
            eprintln!("{form:18} {:8} hold {hold:2} {mpps:6.1} Mpps", scheme.as_str());
        }
    }
}

#[test]
fn buckets_as_planned_on_backbone_traffic() {
    let Some(clang) = Clang::find("buckets_as_planned_on_backbone_traffic") else { return };
    let bucket = Bucket::new(&clang, FORMS[0]);
    for profile in [Profile::Caida2019, Profile::Mawi2021] {
        for scheme in SCHEMES {
            let report = bucket.traced(&bucket.timing(scheme), profile, PACKETS / 4);
            assert_eq!(report.packets_lost, 0, "{} by {}", profile.name(), scheme.as_str());
        }
    }
}

/// Also where an entry shows only behind the last stage.
#[test]
fn every_plan_is_a_pipeline_of_the_model() {
    let Some(clang) = Clang::find("every_plan_is_a_pipeline_of_the_model") else { return };
    let mut late = 0;
    for program in classical(&clang) {
        let timing = planned(program, &Options::default()).timing();
        let mut flows = Flows::zipf(1000, 1.0, timing.maps.len(), 2000, 1);
        let report = predict(&timing, &PredictOptions::new(Pace::Full), &mut flows)
            .unwrap_or_else(|error| panic!("{}: {error}", program.name));
        assert_eq!(report.packets_passed, 2000, "{}", program.name);
        late += timing.maps.iter().filter(|map| map.read_stage + map.hold_cycles > timing.stages).count();
    }
    assert!(late > 0, "the source NAT has such entries");
}
