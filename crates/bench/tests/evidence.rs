// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Comparisons of `make bench` that are proofs.
#![allow(clippy::print_stdout, reason = "what a proof prints is its record")]

use flowloom_testkit::scratch::Scratch;
use flowloom_testkit::{cargo_output, dpdk_version, skip};

/// Rates at which a forwarder between two veth pairs loses no packet, beside a plain forwarder with rings of
/// AF_PACKET in the same run: by XDP in the kernel, AF_XDP in native and skb mode, raw sockets and DPDK
/// (net_af_packet). A round in which a packet is missing ends the comparison without a rate. Rates are measured and
/// decide nothing.
#[test]
#[ignore = "a proof"]
fn evidence_lossless_rates() {
    let test = "evidence_lossless_rates";
    let Some(scratch) = Scratch::with_kernel(test) else { return };
    match dpdk_version() {
        Ok(version) => println!("DPDK {version}"),
        Err(reason) => return skip(test, &reason),
    }
    let output = scratch.path("out").display().to_string();
    let package = ["run", "-q", "--release", "-p", "flowloom-bench", "--features", "dpdk"];
    let found = cargo_output(&[&package[..], &["--", "--only", "live", "-o", &output]].concat());
    print!("{found}");
    assert!(!found.contains("without live engines"), "a comparison failed");
    for engine in ["AF_PACKET rings", "kernel XDP", "AF_XDP native", "AF_XDP skb", "raw sockets", "DPDK net_af_packet"]
    {
        assert!(found.contains(engine), "{engine} not found");
    }
}
