// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a comparison does not depend on the number of packets. A single test, since it measures its process.
#![allow(clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_engine::{Datapath, Port};
use flowloom_lower::{LowerOptions, lower};
use flowloom_testkit::{PacketBuilder, skip};
use flowloom_verify::{Arrival, CompareOptions, compare_stream_all};
use flowloom_vm::Interpreter;

/// The largest size of this process so far.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

/// Packets of as many flows.
fn packets(count: u32) -> impl Iterator<Item = Arrival> {
    (0..count).map(|i| {
        let [a, b, c, d] = i.to_be_bytes();
        let bytes = PacketBuilder::new().ipv4([10, b, c, d], [11, a, 0, 1]).udp(1, 2).build();
        Arrival { time_ns: u64::from(i) * 1000, port: Port(1), bytes }
    })
}

#[test]
fn memory_does_not_depend_on_the_number_of_packets() {
    if peak_kib().is_none() {
        return skip("memory_does_not_depend_on_the_number_of_packets", "`/proc/self/status` does not tell `VmHWM`");
    }
    let text = "function f; stateful e { key 5-tuple; size 64; full evict oldest; states a, b; reg n: u32;
        on a -> b (idle 1s) { n += 1; pass; } on b stay { n += 1; pass; } }";
    let (function, _) = flowloom_efsm::compile("f.efsm", text, &[]).unwrap_or_else(|e| panic!("{:#?}", e.list));
    let function = Arc::new(function);
    let program = lower(&function, &LowerOptions { counters: false, ..LowerOptions::default() }).expect("lowers");
    let mut machine = Machine::new(function).without_flow_count();
    let program = Arc::new(program);
    let [mut target, mut other] = [(); 2].map(|()| Interpreter::new(Arc::clone(&program)).expect("loads"));
    let options = CompareOptions { sweep_ns: Some(10_000_000), ..CompareOptions::default() };
    let mut run = |count| {
        let mut stream = packets(count);
        let mut next = |arrival: &mut Arrival| stream.next().map(|packet| *arrival = packet).is_some();
        let mut targets: [&mut dyn Datapath; 2] = [&mut target, &mut other];
        let reports = compare_stream_all(&mut machine, &mut targets, &mut next, &options).expect("runs");
        for report in reports {
            let report = report.expect("it refuses no packet");
            assert!(report.agrees(), "{:?}", report.disagreement);
            assert_eq!(report.packets_compared, u64::from(count));
        }
        assert_eq!(machine.coverage().elements[0].evicted, u64::from(count) - 64);
        peak_kib().unwrap_or(0)
    };
    let before_kib = run(10_000);
    let grown_kib = run(200_000) - before_kib;
    assert!(grown_kib < 2048, "{grown_kib} KiB more for 190 000 packets more");
}
