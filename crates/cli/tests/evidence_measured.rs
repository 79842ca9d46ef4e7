// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures that `flowloom reproduce` measures, as they came out on this machine: `make evidence` records them.

use flowloom_testkit::{cargo, cargo_output, dpdk_version, skip};

use crate::common::{Ran, clang, kernel, run};

/// Prints a measured figure, which has these texts. Whether rates are within a tolerance decides nothing.
fn check(ran: &Ran, texts: &[&str]) {
    assert!(matches!(ran.code, Some(0 | 1)), "{ran:?}");
    print!("{}", ran.stdout);
    texts.iter().for_each(|text| assert!(ran.stdout.contains(text), "{text} not found in {}", ran.stdout));
    assert!(!ran.stdout.contains("ours: not measured"), "{}", ran.stdout);
}

/// Measures a figure.
fn shown(test: &str, id: &str, texts: &[&str]) {
    if kernel(test) && clang(test) {
        check(&run(&["reproduce", id]), texts);
    }
}

/// Measures a figure by a command that has DPDK.
fn shown_with_dpdk(test: &str, id: &str, texts: &[&str]) {
    if !kernel(test) || !clang(test) {
        return;
    }
    match dpdk_version() {
        Ok(version) => println!("DPDK {version}"),
        Err(reason) => return skip(test, &reason),
    }
    let package = ["--release", "-p", "flowloom-cli", "--features", "dpdk"];
    cargo_output(&[&["build"], &package[..]].concat());
    check(&Ran::from(cargo(&[&["run", "-q"], &package[..], &["--", "reproduce", id]].concat())), texts);
}

/// FB5G's experiment: load balancer, policer and offloading function, packets of 64, 512 and 1,024 bytes, 1,000 to a
/// million flows, from memory and between veth pairs over AF_XDP and raw sockets. Every packet from memory is
/// forwarded. Rates are measured and decide nothing: `least/most` is the lowest of a row in proportion to the greatest,
/// `!` below 0.80.
#[test]
#[ignore = "a proof"]
fn evidence_flow_rates() {
    let texts = ["memory, by flows", "af_xdp, by flows", "raw, by flows", "least/most", "1 000 000"];
    shown("evidence_flow_rates", "dp-fig", &texts);
}

/// FlowBlaze's Figure 7 on this machine: forwarding rates of a bare engine, of hand-written C and of the function, with
/// 64 bytes and 4 flows, on 1 and 2 cores, by XDP in the kernel, AF_XDP, raw sockets, TAP and DPDK (net_af_packet). In
/// user space 2 cores share their CPUs with the sender. Rates are measured and decide nothing.
#[test]
#[ignore = "a proof"]
fn evidence_live_rates() {
    let texts = ["kernel", "af_xdp", "raw", "tap", "dpdk", "udp_firewall", "big_flow"];
    shown_with_dpdk("evidence_live_rates", "fb-fig7", &texts);
}

/// FlowBlaze's Figure 9 on this machine: round-trip times of 64, 512 and 1,518 bytes through a bare engine,
/// hand-written C and the function, by XDP in the kernel, AF_XDP, raw sockets, TAP and DPDK (net_af_packet), beside a
/// cable. Times are measured and decide nothing.
#[test]
#[ignore = "a proof"]
fn evidence_round_trips() {
    let texts = ["cable", "kernel", "af_xdp", "raw", "tap", "dpdk", "1518"];
    shown_with_dpdk("evidence_round_trips", "fb-fig9", &texts);
}
