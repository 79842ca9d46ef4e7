// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policer is a token bucket for each host: the same long-term rate, never more than a burst apart.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::common::random;
use crate::models;

use models::bucket::{Tally, Traffic, run, starts_ns};

#[test]
fn never_apart_by_more_than_a_burst() {
    let seed = random::seed(1);
    let mut total = Tally::default();
    for (i, (interval_us, burst)) in [(1000, 100), (1000, 1), (500, 3), (100_000, 7)].into_iter().enumerate() {
        let start_ns = starts_ns()[i];
        let tally = run("never_apart", seed + i as u64, interval_us, burst, start_ns, Traffic::Mixed, 15_000);
        println!("interval {interval_us} us, burst {burst}: {tally:?}");
        total.wraps += tally.wraps;
        total.passed += tally.passed;
        assert!(tally.passed.abs_diff(tally.in_bucket) * 100 <= tally.in_bucket, "{tally:?}");
    }
    assert!(total.wraps > 100, "{total:?}");
}

#[test]
fn a_flood_passes_at_the_rate_of_the_tokens() {
    let seed = random::seed(1);
    for (i, start_ns) in starts_ns().into_iter().enumerate() {
        let tally = run("a_flood_passes", seed + i as u64, 1000, 10, start_ns, Traffic::Flood, 20_000);
        println!("start {start_ns}: {tally:?}");
        assert!(tally.passed.abs_diff(tally.in_strict) * 100 <= tally.in_strict, "{tally:?}");
        assert!(tally.passed.abs_diff(tally.in_bucket) * 100 <= tally.in_bucket, "{tally:?}");
        assert!(tally.passed * 3 < tally.packets * 2, "no flood: {tally:?}");
    }
}

#[test]
fn a_token_may_come_every_microsecond() {
    // Its clock has the same resolution, so only the bucket with the same clock predicts each packet.
    let tally = run("a_token_may_come", random::seed(1), 1, 1000, 0, Traffic::Mixed, 20_000);
    assert!(tally.passed < tally.packets && tally.passed > tally.packets / 10, "{tally:?}");
}
