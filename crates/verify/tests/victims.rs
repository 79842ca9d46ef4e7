// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Engines that choose the eviction victims of full tables: the reference follows, and reports needless evictions.
#![allow(clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, EngineError, Eviction, Outcome, Packet, Port, Ports, Snapshot};
use flowloom_isa::{MapDef, MapKind, Program, asm};
use flowloom_verify::{Arrival, CompareOptions, Kind, compare};
use flowloom_vm::Interpreter;

const ENTRIES: usize = 2;

/// An interpreter whose table evicts its largest key.
struct Chooser {
    inner: Interpreter,
    /// At this packet it reports an eviction although there is room.
    needless_at: usize,
    packets: usize,
    last: Vec<Eviction>,
}

impl Datapath for Chooser {
    fn name(&self) -> &str {
        "chooser"
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.inner.bind_ports(ports);
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        let before = self.inner.snapshot()?.maps["seen"].clone();
        let is_new = !before.contains_key(&packet.bytes[..1]);
        let needs = is_new && before.len() == ENTRIES;
        let victim = before.keys().last().filter(|_| needs || self.packets == self.needless_at);
        let eviction = |key: &Vec<u8>| Eviction { map: "seen".into(), key: key.clone(), free_entries: 0 };
        self.last = victim.map(eviction).into_iter().collect();
        self.packets += 1;
        self.inner.evict_next(&self.last);
        self.inner.process(packet, choices)
    }

    fn chooses_victims(&self) -> bool {
        true
    }

    fn evicted(&mut self) -> Vec<Eviction> {
        std::mem::take(&mut self.last)
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.inner.sweep(now_ns)
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        self.inner.snapshot()
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.packets = 0;
        self.inner.restore(state)
    }
}

/// Stores the first byte of each packet in a table with two entries.
fn interpreter() -> Interpreter {
    let map = MapDef {
        name: "seen".into(),
        kind: MapKind::LruHash,
        key_bytes: 1,
        value_bytes: 1,
        max_entries: ENTRIES as u32,
        ..MapDef::default()
    };
    let text = "
    r2 = *(u32 *)(r1 + 0)
    r3 = *(u32 *)(r1 + 4)
    r4 = r2
    r4 += 14
    if r4 > r3 goto out
    r5 = *(u8 *)(r2 + 0)
    *(u8 *)(r10 - 1) = r5
    r1 = map[seen] ll
    r2 = r10
    r2 += -1
    r3 = r2
    r4 = 0
    call map_update_elem
out: r0 = 2
    exit";
    let maps = vec![map];
    let insns = asm::assemble(text, &maps).unwrap_or_else(|errors| panic!("{errors}"));
    let program = Program { name: "seen".into(), section: "xdp".into(), insns, maps, ..Program::default() };
    Interpreter::new(Arc::new(program)).unwrap_or_else(|error| panic!("{error}"))
}

fn packets(firsts: &[u8]) -> Vec<Arrival> {
    let frame = |first: &u8| [&[*first][..], &[0; 20]].concat();
    let arrival = |(first, time_ns)| Arrival { time_ns, port: Port(1), bytes: frame(first) };
    firsts.iter().zip(1..).map(arrival).collect()
}

fn compared(firsts: &[u8], needless_at: usize) -> flowloom_verify::Report {
    let mut target = Chooser { inner: interpreter(), needless_at, packets: 0, last: Vec::new() };
    let options = CompareOptions { snapshot_every: 1, ..CompareOptions::default() };
    compare(&mut interpreter(), &mut target, &packets(firsts), &options).expect("runs")
}

#[test]
fn the_reference_forgets_what_the_target_chose() {
    // On its own the reference would evict 1 for 3; the target evicts 2.
    let report = compared(&[1, 2, 3, 1, 4, 5, 1], usize::MAX);
    assert!(report.agrees(), "{:?}", report.disagreement);
    assert_eq!(report.packets_compared, 7);
    let mut alone = interpreter();
    for arrival in packets(&[1, 2, 3]) {
        alone.process(&arrival.packet(), &Choices::seeded(0, 0, 0)).expect("runs");
    }
    let left: Vec<Vec<u8>> = alone.snapshot().expect("state").maps["seen"].keys().cloned().collect();
    assert_eq!(left, [[2], [3]]);
}

#[test]
fn forgetting_without_need_is_found() {
    let report = compared(&[1, 2, 3], 1);
    let disagreement = report.disagreement.expect("there was room for 2");
    assert_eq!((disagreement.kind, disagreement.position), (Kind::Fault, Some(1)));
    let fault = disagreement.fault.expect("said");
    assert_eq!(fault, "evicted entries although there was room: key [01] of map `seen`");
}
