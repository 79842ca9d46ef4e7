// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dynamic NAT: answers reach the requester, no port is mapped twice, ports are released.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::common::random;
use crate::models;

use models::nat::{Plan, one_after_the_other, run};

const MILLISECOND_NS: u64 = 1_000_000;

#[test]
fn no_port_is_mapped_twice() {
    let seed = random::seed(1);
    // Ports are scarce: 8 for about 80 flows.
    let scarce = Plan { first_port: 0xfff8, hosts: 5, ports: 4, gap_ns: 900 * MILLISECOND_NS, packets: 20_000 };
    let tally = run("no_port_is_mapped_twice", seed, scarce);
    println!("{tally:?}");
    assert_eq!(tally.most_in_use, 8);
    assert!(tally.refused > 1000 && tally.reused > 100 && tally.answers > 1000 && tally.unasked > 100, "{tally:?}");
    // Enough ports for all flows, as long as none is reused.
    let ample = Plan { first_port: 0x8000, hosts: 200, ports: 100, gap_ns: 5 * MILLISECOND_NS, packets: 20_000 };
    let tally = run("no_port_is_mapped_twice", seed, ample);
    println!("{tally:?}");
    assert!(tally.refused == 0 && tally.most_in_use > 200 && tally.answers > 1000, "{tally:?}");
}

#[test]
fn ports_are_given_back() {
    // 16 ports, a new flow every 0.7 s: when a port is reused, its flow was idle for 11.2 s.
    assert_eq!(one_after_the_other("ports_are_given_back", 0xfff0, 700 * MILLISECOND_NS, 1000), 0);
    // And every 0.6 s, for 9.6 s: half of them hit a port that is still held.
    let refused = one_after_the_other("ports_are_given_back", 0xfff0, 600 * MILLISECOND_NS, 1600);
    assert!((700..=800).contains(&refused), "{refused}");
}
