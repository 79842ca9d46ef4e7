// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generating traffic needs memory for its flows, not for its packets. A single test, since it measures its process.
#![allow(clippy::unwrap_used)]

mod common;

use common::peak_kib;
use flowloom_testkit::skip;
use flowloom_trace::{Profile, Traffic, TrafficOptions};

#[test]
fn memory_is_constant() {
    if peak_kib().is_none() {
        return skip("memory_is_constant", "`/proc/self/status` does not tell `VmHWM`");
    }
    for profile in [Profile::Mawi15, Profile::Churn] {
        let options = TrafficOptions { packets: Some(u64::MAX), snap_bytes: Some(64), ..TrafficOptions::new(profile) };
        let mut traffic = Traffic::new(&options).unwrap();
        (0..200_000).for_each(|_| assert!(traffic.next_packet().is_some()));
        let before_kib = peak_kib().unwrap();
        (0..2_000_000).for_each(|_| assert!(traffic.next_packet().is_some()));
        let grown_kib = peak_kib().unwrap() - before_kib;
        // Two million packets take 128 MB even when truncated.
        assert!(grown_kib < 4096, "{} grew by {grown_kib} KiB", profile.name());
    }
}
