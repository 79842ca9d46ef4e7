// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long tests of the policer and dynamic NAT against models of their purpose.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::models;

use models::bucket::{self, Traffic, starts_ns};
use models::nat::{self, Plan};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// The policer on every engine against token buckets, for four hosts at a time: a packet passes exactly where a bucket
/// with a microsecond clock passes it; counts and those of a bucket with a nanosecond clock are within 1% at the end,
/// and never more than a burst apart; in floods also those of a bucket that requires whole tokens. From time 0, and
/// from shortly before the registers reach half their range, wrap, and wrap for the thousandth time; with silences of
/// up to three wraps.
#[test]
#[ignore = "a proof: run by `make evidence`"]
fn evidence_policer() {
    let (seed, packets) = (setting("FLOWLOOM_SEED", 1), setting("FLOWLOOM_COUNT", 100_000));
    println!(
        "{:>8} {:>6} {:>16} {:>7} {:>8} {:>6} {:>7} {:>7} {:>9} {:>6} {:>7} {:>6}",
        "interval",
        "burst",
        "from",
        "traffic",
        "packets",
        "wraps",
        "passed",
        "bucket",
        "deviation",
        "apart",
        "strict",
        "apart"
    );
    let deviation = |ours: u64, theirs: u64| (ours as f64 - theirs as f64) * 100.0 / theirs as f64;
    for (interval_us, burst) in [(1000, 100), (1000, 32), (10_000, 10), (100_000, 8)] {
        for (i, start_ns) in starts_ns().into_iter().enumerate() {
            for traffic in [Traffic::Flood, Traffic::Mixed] {
                let t =
                    bucket::run("evidence_policer", seed + i as u64, interval_us, burst, start_ns, traffic, packets);
                let off = deviation(t.passed, t.in_bucket);
                // Compared with it in a flood only.
                let strict = match traffic {
                    Traffic::Flood => format!("{:>7} {:>6}", t.in_strict, t.strict_apart),
                    Traffic::Mixed => format!("{:>7} {:>6}", "-", "-"),
                };
                println!(
                    "{interval_us:>5} us {burst:>6} {:>14} s {:>7} {:>8} {:>6} {:>7} {:>7} {off:>+8.3}% {:>6} {strict}",
                    format!("{:.4}", start_ns as f64 / 1e9),
                    format!("{traffic:?}").to_lowercase(),
                    t.packets,
                    t.wraps,
                    t.passed,
                    t.in_bucket,
                    t.apart,
                );
                assert!(off.abs() <= 1.0 && t.apart <= burst, "{t:?}");
                assert!(traffic == Traffic::Mixed || deviation(t.passed, t.in_strict).abs() <= 1.0, "{t:?}");
                assert!(traffic == Traffic::Flood || packets < 10_000 || t.wraps > 10, "no wraps: {t:?}");
            }
        }
    }
}

/// Dynamic NAT on every engine against a list of port owners: no port is mapped twice, answers reach the requester with
/// valid checksums, a flow keeps its port, unsolicited packets are dropped, and all ports are released; 8, 256 and
/// 32768 ports.
#[test]
#[ignore = "a proof: run by `make evidence`"]
fn evidence_nat() {
    let (seed, packets) = (setting("FLOWLOOM_SEED", 1), setting("FLOWLOOM_COUNT", 200_000));
    println!(
        "{:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>12}",
        "ports", "packets", "out", "refused", "answers", "unasked", "reused", "most in use"
    );
    for (first_port, hosts, ports, gap_ms) in [(0xfff8, 5, 4, 900), (0xff00, 20, 20, 60), (0x8000, 250, 100, 1)] {
        let plan = Plan { first_port, hosts, ports, gap_ns: gap_ms * 1_000_000, packets };
        let t = nat::run("evidence_nat", seed, plan);
        println!(
            "{:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>12}",
            65_536 - u32::from(first_port),
            t.packets,
            t.out,
            t.refused,
            t.answers,
            t.unasked,
            t.reused,
            t.most_in_use
        );
        assert!(t.out > 0 && t.answers > 0 && t.unasked > 0 && (packets < 100_000 || t.reused > 0), "{t:?}");
    }
    // A new flow every 350 us: the ports are reused after 11.5 s, and each is free again by then.
    let refused = nat::one_after_the_other("evidence_nat", 0x8000, 350_000, 100_000);
    println!("100,000 flows one after the other by 32,768 ports: {refused} refused");
    assert_eq!(refused, 0);
}
