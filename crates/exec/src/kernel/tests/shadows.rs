// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Redirect maps have the contents of the state, not of existing devices.

use std::sync::Arc;

use flowloom_engine::{Port, Ports};
use flowloom_isa::{MapKind, ProgramKind};
use flowloom_vm::Interpreter;

use super::maps::{OUT, START, assembled, def, entries, packet, run, state};
use super::*;

/// Looks up the first byte and writes 42 if the map has port 3 for it, then redirects to it with the flags in the
/// second byte.
fn looking(kind: MapKind, value_bytes: u32) -> Program {
    let lookup = if kind == MapKind::Cpumap {
        ""
    } else {
        "r1 = map[to] ll
    r2 = r10
    r2 += -4
    call map_lookup_elem
    if r0 == 0 goto go
    r1 = *(u32 *)(r0 + 0)
    if r1 != 3 goto go
    *(u8 *)(r6 + 13) = 42"
    };
    let text = format!(
        "{START}
    {lookup}
go: r1 = map[to] ll
    r2 = r7
    r3 = *(u8 *)(r6 + 1)
    call redirect_map
    exit
{OUT}"
    );
    assembled(&text, vec![def("to", kind, [4, value_bytes, 8], 0)])
}

fn to(engine: &mut KernelEngine, first: u8, flags: u8, port: u32) -> (Verdict, Vec<u32>) {
    let mut frame = packet(first);
    frame[1] = flags;
    let outcome = run(engine, &frame, port);
    (outcome.verdict, outcome.outputs.iter().map(|output| output.port.0).collect())
}

const TO: Verdict = Verdict::Redirect;

#[test]
fn devmaps_hold_all_ports_by_default() {
    require!(KernelEngine::available());
    let mut engine = loaded(&looking(MapKind::Devmap, 8));
    assert!(engine.snapshot().expect("readable").maps.is_empty());
    assert_eq!(to(&mut engine, 5, 0, 1), (TO, vec![5]));
    assert_eq!(to(&mut engine, 8, 2, 1), (Verdict::Pass, vec![1]));
    let seen = |engine: &mut KernelEngine, first| run(engine, &packet_to(first), 1).outputs[0].bytes[13];
    assert_eq!([3, 4].map(|first| seen(&mut engine, first)), [42, 13]);

    let named = state("to", &[(&[1, 0, 0, 0], &[9, 0, 0, 0, 0, 0, 0, 0]), (&[6, 0, 0, 0], &[3, 0, 0, 0, 0, 0, 0, 0])]);
    engine.restore(&named).expect("fits");
    assert_eq!(engine.snapshot().expect("readable"), named);
    assert_eq!(to(&mut engine, 1, 0, 1), (TO, vec![9]));
    assert_eq!(to(&mut engine, 6, 0, 1), (TO, vec![3]));
    assert_eq!(to(&mut engine, 3, 1, 1), (Verdict::Drop, vec![]));
    assert_eq!([6, 1].map(|first| seen(&mut engine, first)), [42, 13]);
    // To the ports in the map, not to all ports.
    assert_eq!(to(&mut engine, 0, 8, 1), (TO, vec![9, 3]));
    assert_eq!(to(&mut engine, 0, 8 | 16, 9), (TO, vec![3]));
    engine.bind_ports(&Ports::bound([Port(9)]));
    assert_eq!(to(&mut engine, 0, 8, 1), (TO, vec![9]));
    assert_eq!(to(&mut engine, 6, 0, 1), (Verdict::Aborted, vec![]), "nothing is bound to port 3");
    engine.bind_ports(&Ports::default());
    engine.restore(&Snapshot::default()).expect("fits");
    assert_eq!(to(&mut engine, 3, 0, 1), (TO, vec![3]));
    assert!(engine.snapshot().expect("readable").maps.is_empty());

    let program = state("to", &[(&[1, 0, 0, 0], &[9, 0, 0, 0, 1, 0, 0, 0])]);
    let error = engine.restore(&program).expect_err("a program behind it").to_string();
    assert!(error.contains("expected ports or CPUs without a program"), "{error}");
}

fn packet_to(first: u8) -> Vec<u8> {
    let mut frame = packet(first);
    // For an absent key: PASS.
    frame[1] = 2;
    frame
}

#[test]
fn devmap_hashes_hold_the_given_state() {
    require!(KernelEngine::available());
    let mut engine = loaded(&looking(MapKind::DevmapHash, 4));
    assert_eq!(entries(&mut engine, "to"), []);
    assert_eq!(to(&mut engine, 5, 1, 1), (Verdict::Drop, vec![]));
    let named = state("to", &[(&[200, 0, 0, 0], &[3, 0, 0, 0]), (&[5, 0, 0, 0], &[200, 0, 0, 0])]);
    engine.restore(&named).expect("fits");
    assert_eq!(engine.snapshot().expect("readable"), named);
    assert_eq!(to(&mut engine, 200, 2, 1), (TO, vec![3]));
    assert_eq!(to(&mut engine, 5, 0, 1), (TO, vec![200]));
    assert_eq!(run(&mut engine, &packet_to(200), 1).outputs[0].bytes[13], 42);
    for (action, verdict) in [(0, Verdict::Aborted), (1, Verdict::Drop), (2, Verdict::Pass), (3, Verdict::Tx)] {
        assert_eq!(to(&mut engine, 6, action, 1).0, verdict);
    }
    assert_eq!(to(&mut engine, 6, 8, 1), (TO, vec![200, 3]));
    assert_eq!(to(&mut engine, 6, 8 | 16, 200), (TO, vec![3]));
    assert_eq!(to(&mut engine, 5, 4, 1), (Verdict::Aborted, vec![]));
    engine.restore(&state("to", &[(&[6, 0, 0, 0], &[1, 0, 0, 0])])).expect("fits");
    assert_eq!([5, 6, 200].map(|first| to(&mut engine, first, 1, 1).0), [Verdict::Drop, TO, Verdict::Drop]);
    engine.restore(&Snapshot::default()).expect("fits");
    assert_eq!(to(&mut engine, 6, 1, 1).0, Verdict::Drop);
}

#[test]
fn cpu_maps_redirect_to_cpus() {
    require!(KernelEngine::available());
    for value_bytes in [4, 8] {
        let mut engine = loaded(&looking(MapKind::Cpumap, value_bytes));
        assert_eq!(entries(&mut engine, "to"), []);
        assert_eq!(to(&mut engine, 1, 2, 7), (Verdict::Pass, vec![7]));
        let mut size = vec![192, 0, 0, 0];
        size.resize(value_bytes as usize, 0);
        let named = state("to", &[(&[1, 0, 0, 0], &size), (&[7, 0, 0, 0], &size)]);
        engine.restore(&named).expect("fits");
        assert_eq!(engine.snapshot().expect("readable"), named);
        assert_eq!(to(&mut engine, 1, 0, 7), (TO, vec![Port::of_cpu(1).0]));
        assert_eq!(to(&mut engine, 7, 0, 7), (TO, vec![Port::of_cpu(7).0]));
        assert_eq!([2, 8].map(|first| to(&mut engine, first, 1, 7).0), [Verdict::Drop; 2]);
        // CPU maps do not support broadcast.
        assert_eq!(to(&mut engine, 1, 8, 7), (Verdict::Aborted, vec![]));
    }
}

#[test]
fn the_last_redirect_counts() {
    require!(KernelEngine::available());
    // Through the hash, by port number, and through the hash again with a possibly absent key.
    let text = format!(
        "{START}
    r1 = 4
    r2 = 0
    call redirect
    r1 = map[to] ll
    r2 = r7
    r3 = 1
    call redirect_map
    r0 = 4
    exit
{OUT}"
    );
    let mut engine = loaded(&assembled(&text, vec![def("to", MapKind::DevmapHash, [4, 4, 8], 0)]));
    engine.restore(&state("to", &[(&[1, 0, 0, 0], &[3, 0, 0, 0])])).expect("fits");
    assert_eq!(run(&mut engine, &packet(1), 1).outputs[0].port, Port(3));
    assert_eq!(run(&mut engine, &packet(2), 1), Outcome::without_output(Verdict::Aborted));
}

/// Test runs do not accept devmap programs, and plain XDP programs may not read the egress port.
#[test]
fn devmap_programs_have_no_egress_port() {
    require!(KernelEngine::available());
    let mut program = assembled("r0 = *(u32 *)(r1 + 20)\nr0 += 1\nexit", Vec::new());
    program.kind = ProgramKind::XdpDevmap;
    let mut interp = Interpreter::new(Arc::new(program.clone())).expect("runs");
    let outcome = run(&mut loaded(&program), &packet(1), 4);
    assert_eq!(outcome.verdict, Verdict::Drop);
    assert_eq!(run(&mut interp, &packet(1), 4), outcome);
}

/// Compilers merge two calls into one: the map comes from either branch.
#[test]
fn redirects_use_the_selected_map() {
    require!(KernelEngine::available());
    let text = format!(
        "{START}
    r1 = map[one] ll
    r8 = *(u8 *)(r6 + 1)
    if r8 == 0 goto go
    r1 = map[other] ll
    if r8 == 1 goto go
    r1 = map[cpus] ll
go: r2 = r7
    r3 = 1
    call redirect_map
    exit
{OUT}"
    );
    let maps = vec![
        def("one", MapKind::Devmap, [4, 4, 8], 0),
        def("other", MapKind::DevmapHash, [4, 8, 8], 0),
        def("cpus", MapKind::Cpumap, [4, 4, 4], 0),
    ];
    let program = assembled(&text, maps);
    let mut kernel = loaded(&program);
    let mut interp = Interpreter::new(Arc::new(program)).expect("runs");
    let mut state = state("one", &[(&[3, 0, 0, 0], &[5, 0, 0, 0])]);
    state.maps.extend(super::maps::state("other", &[(&[3, 0, 0, 0], &[6, 0, 0, 0, 0, 0, 0, 0])]).maps);
    state.maps.extend(super::maps::state("cpus", &[(&[3, 0, 0, 0], &[64, 0, 0, 0])]).maps);
    kernel.restore(&state).expect("fits");
    interp.restore(&state).expect("fits");
    let mut reached = Vec::new();
    for chosen in 0..3 {
        for key in [2, 3] {
            let mut frame = packet(key);
            frame[1] = chosen;
            let outcome = run(&mut kernel, &frame, 0);
            assert_eq!(run(&mut interp, &frame, 0), outcome, "map {chosen}, key {key}");
            reached.extend(outcome.outputs.iter().map(|output| output.port));
        }
    }
    assert_eq!(reached, [Port(5), Port(6), Port::of_cpu(3)]);
}

/// The helper refuses a truncated route lookup before reading it.
#[test]
fn short_fib_lookup_parameters_are_rejected() {
    require!(KernelEngine::available());
    let text = format!(
        "{START}
    *(u64 *)(r10 - 16) = 0
    r1 = r9
    r2 = r10
    r2 += -16
    r3 = 8
    r4 = 0
    call fib_lookup
    r1 = 1
    if r0 == -22 goto end
    r1 = 3
end: r0 = r1
    exit
{OUT}"
    );
    let program = assembled(&text, Vec::new());
    let expected = run(&mut Interpreter::new(Arc::new(program.clone())).expect("runs"), &packet(1), 0);
    assert_eq!(expected.verdict, Verdict::Drop);
    assert_eq!(run(&mut loaded(&program), &packet(1), 0), expected);
}
