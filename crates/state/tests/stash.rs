// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Occupancy of the stash under generated traffic.

use flowloom_state::{Occupancy, StashTest};
use flowloom_trace::{FiveTuples, Profile, Traffic, TrafficOptions};

/// Inserts the new 5-tuples of a profile's traffic into a table of 200,000 entries. Returns the number of packets too.
pub(crate) fn run(profile: Profile, duration_ns: u64, moves: u32, stash_entries: u32) -> (u64, Occupancy) {
    let options = TrafficOptions { duration_ns: Some(duration_ns), ..TrafficOptions::new(profile) };
    let mut tuples = FiveTuples::of(Traffic::new(&options).unwrap());
    let test = StashTest { table_entries: 200_000, stash_entries, moves };
    let found = test.run(tuples.key_bytes(), &mut tuples).unwrap();
    (tuples.packets(), found)
}

#[test]
fn eight_entries_suffice() {
    let (packets, found) = run(Profile::Chi15, 100_000_000, 450, 8);
    assert!(found.inserted > 5_000 && found.refused == 0 && found.max() > 2, "{found:?}");
    assert!(packets > 10_000 && found.empty_share > 0.5, "{packets} packets, {found:?}");
}

#[test]
fn two_entries_do_not_suffice() {
    assert!(run(Profile::Chi15, 100_000_000, 450, 2).1.refused > 0);
}
