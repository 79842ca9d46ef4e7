// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events: exactly the bytes that programs write.

use flowloom_engine::Event;
use flowloom_isa::MapKind;

use super::maps::{OUT, START, assembled, def, packet, run};
use super::*;

fn event(map: &str, cpu: u32, bytes: &[u8]) -> Event {
    Event { map: map.to_owned(), cpu, bytes: bytes.to_vec() }
}

#[test]
fn perf_events_have_the_given_length() {
    require!(KernelEngine::available());
    // Stack bytes as counted by the first byte of the packet, at most 64, and packet bytes as counted by the second.
    let text = format!(
        "{START}
    r1 = 0x1122334455667788 ll
    *(u64 *)(r10 - 72) = r1
    *(u64 *)(r10 - 64) = r1
    *(u64 *)(r10 - 56) = r1
    *(u64 *)(r10 - 48) = r1
    *(u64 *)(r10 - 40) = r1
    *(u64 *)(r10 - 32) = r1
    *(u64 *)(r10 - 24) = r1
    *(u64 *)(r10 - 16) = r1
    r8 = *(u8 *)(r6 + 1)
    if r7 > 64 goto out
    if r7 == 0 goto out
    r3 = r8
    r3 <<= 32
    r1 = 0xffffffff ll
    r3 |= r1
    r1 = r9
    r2 = map[log] ll
    r4 = r10
    r4 += -72
    r5 = r7
    call perf_event_output
    r6 = r0
    r1 = r9
    r2 = map[other] ll
    r3 = 0
    r4 = r10
    r4 += -72
    r5 = 3
    call perf_event_output
    if r6 != 0 goto gone
{OUT}
gone: r0 = 1
    exit"
    );
    let maps = ["other", "log"].map(|name| def(name, MapKind::PerfEventArray, [4, 4, 2], 0));
    let mut engine = loaded(&assembled(&text, maps.to_vec()));
    let given: Vec<u8> = 0x1122_3344_5566_7788_u64.to_ne_bytes().repeat(8);
    for length in 1..=64 {
        for packet_bytes in [0, 1, 7, 60] {
            let mut frame = packet(length);
            frame[1] = packet_bytes;
            let outcome = run(&mut engine, &frame, 1);
            let bytes = [&given[..length.into()], &frame[..packet_bytes.into()]].concat();
            // Sorted by map, not by time.
            let expected = [event("other", 0, &given[..3]), event("log", 0, &bytes)];
            assert_eq!(
                (outcome.verdict, &outcome.events[..]),
                (Verdict::Pass, &expected[..]),
                "{length} {packet_bytes}"
            );
        }
    }
    // More packet bytes than there are: nothing is written, and the next event is not mistaken for it.
    let mut frame = packet(5);
    frame[1] = 65;
    let outcome = run(&mut engine, &frame, 1);
    assert_eq!((outcome.verdict, outcome.events), (Verdict::Drop, vec![event("other", 0, &given[..3])]));
    assert_eq!(run(&mut engine, &packet(0), 1).events, []);
    assert!(engine.snapshot().expect("readable").maps.is_empty());
}

#[test]
fn perf_events_of_another_cpu_reach_its_buffer() {
    require!(KernelEngine::available());
    let text = format!(
        "{START}
    r1 = r9
    r2 = map[log] ll
    r3 = r7
    r4 = r10
    r4 += -4
    r5 = 4
    call perf_event_output
    r0 <<= 32
    r0 s>>= 32
    r0 = -r0
    *(u32 *)(r6 + 1) = r0
{OUT}"
    );
    let program = assembled(&text, vec![def("log", MapKind::PerfEventArray, [4, 4, 0], 0)]);
    let told = |engine: &mut KernelEngine, first: u8, cpu: u32| {
        let choices = Choices { cpu, ..Choices::seeded(0, 0, 0) };
        let outcome = engine.process(&Packet { bytes: &packet(first), port: Port(1) }, &choices).expect("runs");
        (outcome.outputs[0].bytes[1], outcome.events.iter().map(|event| event.cpu).collect::<Vec<_>>())
    };
    let mut engine = loaded(&program);
    assert_eq!(told(&mut engine, 0, 0), (0, vec![0]));
    let possible = cpu::possible().expect("the system says");
    require!((possible >= 2).then_some(()).ok_or("there is one CPU"));
    // The map has an entry for every possible CPU, but only one CPU is in use.
    assert_eq!(told(&mut engine, 1, 0), (2, vec![]), "ENOENT");
    assert_eq!(told(&mut engine, possible as u8, 0), (7, vec![]), "E2BIG");
    let mut two = loaded(&program).with_cpus(2).expect("there are two");
    assert_eq!(told(&mut two, 1, 1), (0, vec![1]));
    assert_eq!(told(&mut two, 1, 0), (95, vec![]), "EOPNOTSUPP: the buffer of another CPU");
}

#[test]
fn ring_buffers_are_read_in_order() {
    require!(KernelEngine::available());
    // Reserves 3 bytes and discards them where the first byte is odd; then writes 5 bytes.
    let text = format!(
        "{START}
    r1 = map[ring] ll
    r2 = 3
    r3 = 0
    call ringbuf_reserve
    if r0 == 0 goto gone
    *(u8 *)(r0 + 0) = 7
    *(u16 *)(r0 + 1) = r7
    r1 = r0
    r2 = 0
    r7 &= 1
    if r7 != 0 goto away
    call ringbuf_submit
    goto next
away: call 133
next: r1 = map[ring] ll
    r2 = r10
    r2 += -4
    r3 = 4
    r4 = 0
    call ringbuf_output
{OUT}
gone: r0 = 1
    exit"
    );
    let mut engine = loaded(&assembled(&text, vec![def("ring", MapKind::RingBuf, [0, 0, 4096], 0)]));
    // Wrap around the buffer several times.
    for round in 0..1000_u32 {
        let first = round as u8;
        let mut expected = vec![event("ring", 0, &[7, first, 0]), event("ring", 0, &[first, 0, 0, 0])];
        if first & 1 != 0 {
            expected.remove(0);
        }
        assert_eq!(run(&mut engine, &packet(first), 1).events, expected, "round {round}");
    }
    assert!(engine.snapshot().expect("readable").maps.is_empty());
}

#[test]
fn too_many_events_are_an_error() {
    require!(KernelEngine::available());
    let text = format!(
        "{START}
    r8 = 0
    r7 += 200
again: r1 = r9
    r2 = map[log] ll
    r3 = 0
    r4 = r10
    r4 += -4
    r5 = 4
    call perf_event_output
    r8 += 1
    if r8 < r7 goto again
{OUT}"
    );
    let mut engine = loaded(&assembled(&text, vec![def("log", MapKind::PerfEventArray, [4, 4, 1], 0)]));
    assert_eq!(run(&mut engine, &packet(56), 1).events.len(), 256);
    let bytes = packet(57);
    let many = Packet { bytes: &bytes, port: Port(1) };
    let error = engine.process(&many, &Choices::seeded(0, 0, 0)).expect_err("too many").to_string();
    assert!(error.ends_with("257 events of one packet, expected at most 256"), "{error}");
}
