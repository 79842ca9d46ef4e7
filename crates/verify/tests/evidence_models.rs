//! The policer and dynamic NAT beside models of what they are for, at length.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod models;

use models::bucket::{self, Traffic, starts_ns};
use models::nat::{self, Plan};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// The policer on every engine beside token buckets, for four hosts at a time: a packet passes exactly where a bucket with a
/// clock of microseconds passes it; counts and those of a bucket with a clock of nanoseconds are within 1 % at the end, and never
/// more than a burst apart; in floods also those of a bucket that wants whole tokens. From time 0, across wraps of the registers,
/// with silences up to three wraps.
#[test]
#[ignore = "a proof: run by `make evidence`"]
fn evidence_policer() {
    let (seed, packets) = (setting("FLOWLOOM_SEED", 1), setting("FLOWLOOM_COUNT", 200_000));
    println!(
        "{:>8} {:>6} {:>17} {:>7} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6}",
        "interval", "burst", "start ns", "traffic", "packets", "passed", "bucket", "apart", "strict", "wraps"
    );
    for (i, (interval_us, burst)) in [(1000, 100), (1000, 32), (10_000, 10), (100_000, 8)].into_iter().enumerate() {
        for traffic in [Traffic::Flood, Traffic::Mixed] {
            let start_ns = starts_ns()[i];
            let t = bucket::run("evidence_policer", seed + i as u64, interval_us, burst, start_ns, traffic, packets);
            println!(
                "{interval_us:>5} us {burst:>6} {start_ns:>17} {:>7} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6}",
                format!("{traffic:?}"),
                t.packets,
                t.passed,
                t.in_bucket,
                t.apart,
                t.strict_apart,
                t.wraps
            );
            assert!(t.passed.abs_diff(t.in_bucket) * 100 <= t.in_bucket, "{t:?}");
        }
    }
}

/// Dynamic NAT on every engine beside a list of who has which port: no port is mapped twice, answers reach who asked with right
/// checksums, a flow keeps its port, what nobody asked for stays out, and all ports are given back; 8, 256 and 32768 ports.
#[test]
#[ignore = "a proof: run by `make evidence`"]
fn evidence_nat() {
    let (seed, packets) = (setting("FLOWLOOM_SEED", 1), setting("FLOWLOOM_COUNT", 200_000));
    for (first_port, hosts, ports, gap_ms) in [(0xfff8, 5, 4, 900), (0xff00, 20, 20, 60), (0x8000, 250, 100, 1)] {
        let plan = Plan { first_port, hosts, ports, gap_ns: gap_ms * 1_000_000, packets };
        println!("{} ports: {:?}", 65_536 - u32::from(first_port), nat::run("evidence_nat", seed, plan));
    }
    // A new flow every 350 us: the ports go round in 11.5 s, and each is free again by then.
    let refused = nat::one_after_the_other("evidence_nat", 0x8000, 350_000, 100_000);
    println!("100000 flows one after the other by 32768 ports: {refused} refused");
    assert_eq!(refused, 0);
}
