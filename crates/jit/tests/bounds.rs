// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that nothing has written, calls that change nothing, and limits.

use std::sync::Arc;

use flowloom_engine::{Datapath, EngineError, Packet, Port, Ports, Verdict};
use flowloom_jit::Jit;
use flowloom_vm::Interpreter;

use crate::engines::{HEAD, PACKET_BYTES, TAIL, choices, equal, jit, program};

fn packets(count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number; PACKET_BYTES]).collect()
}

/// The fault of an engine on a packet.
fn fault(engine: &mut Jit) -> String {
    let bytes = [0; PACKET_BYTES];
    let packet = Packet { bytes: &bytes, port: Port(1) };
    match engine.process(&packet, &choices()) {
        Err(EngineError::Fault { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_function_reads_zeros_where_its_caller_wrote_nothing() {
    // The first packets leave other bytes on the stack of the machine.
    let code = format!(
        "{HEAD}
        r1 = *(u8 *)(r6 + 0)
        if r1 > 3 goto read
        r1 *= 0x01010101
        *(u64 *)(r10 - 8) = r1
        *(u64 *)(r10 - 16) = r1
        r0 = 1
        exit
        read:
        r1 = r10
        r1 += -8
        call f
        r0 &= 3
        exit
        {TAIL}
        f:
        r0 = *(u64 *)(r1 + 0)
        exit
        "
    );
    let outcomes = equal(&program("", &code), &Ports::default(), None, &packets(8));
    assert!(outcomes[4..].iter().all(|outcome| outcome.verdict == Verdict::Aborted), "{outcomes:?}");
}

#[test]
fn a_redirect_with_unknown_flags_leaves_the_target() {
    for second in ["r1 = 2\nr2 = 1\ncall redirect", "r1 = map[ports] ll\nr2 = 5\nr3 = 0x20\ncall redirect_map"] {
        let code =
            format!("{HEAD}r1 = map[ports] ll\nr2 = 3\nr3 = 0\ncall redirect_map\n{second}\nr0 = 4\nexit\n{TAIL}");
        let program = program(".map ports devmap key 4 value 4 entries 8", &code);
        let outcomes = equal(&program, &Ports::default(), None, &packets(2));
        assert_eq!(outcomes[0].outputs[0].port, Port(3), "{second}");
    }
}

#[test]
fn a_packet_ends_when_its_iterations_are_spent() {
    // The callee ends before it has made its result: the callback must not use it.
    let code = "r1 = 100000
        r2 = subprog[callback] ll
        r3 = 0
        r4 = 0
        call loop
        r0 = 2
        exit
        callback:
        call f
        if r0 != 0 goto out
        r1 = map[used] ll
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        call map_lookup_elem
        if r0 == 0 goto out
        *(u64 *)(r0 + 0) = 1
        out:
        r0 = 0
        exit
        f:
        r1 = 0
        again:
        r1 += 1
        if r1 < 5000 goto again
        r0 = 1
        exit
        ";
    let mut engine = jit(&program(".map used array key 4 value 8 entries 1", code));
    let what = fault(&mut engine);
    assert!(what.contains("more than 67108864"), "{what}");
    let state = engine.snapshot().expect("has a state");
    assert_eq!(state.maps["used"].values().next(), Some(&vec![0; 8]));
}

#[test]
fn a_packet_replaces_a_prefix_as_often_as_it_likes() {
    // Each time in another slot, since the program may still hold the address of the old value.
    let program = program(
        ".map routes lpm_trie key 8 value 8 entries 4 flags 1",
        "*(u64 *)(r10 - 16) = 7
        r1 = 1100000
        r2 = subprog[callback] ll
        r3 = r10
        r3 += -16
        r4 = 0
        call loop
        r0 = 2
        exit
        callback:
        *(u32 *)(r10 - 8) = 8
        *(u32 *)(r10 - 4) = 10
        r3 = r2
        r1 = map[routes] ll
        r2 = r10
        r2 += -8
        r4 = 0
        call map_update_elem
        r0 = 0
        exit
        ",
    );
    let outcomes = equal(&program, &Ports::default(), None, &packets(1));
    assert_eq!(outcomes[0].verdict, Verdict::Pass);
}

#[test]
fn a_map_that_programs_only_read_is_restored() {
    let code = format!("{HEAD}r0 = 2\nexit\n{TAIL}");
    let program = program(".map known hash key 4 value 4 entries 4 flags 128", &code);
    let mut interpreter = Interpreter::new(Arc::new(program.clone())).expect("is a program");
    let state = interpreter.snapshot().expect("has a state");
    equal(&program, &Ports::default(), Some(&state), &packets(1));
}

/// A function that is given the address of its callback has no instruction that names it.
#[test]
fn a_callback_changes_the_stack_of_a_function_that_is_given_it() {
    let code = format!(
        "{HEAD}
        r1 = subprog[count] ll
        call repeat
        *(u8 *)(r6 + 0) = r0
        r0 = 3
        exit
        {TAIL}
        repeat:
        r2 = r1
        r1 = 5
        *(u64 *)(r10 - 8) = r1
        r1 = 10
        r3 = r10
        r3 += -8
        r4 = 0
        call loop
        r0 = *(u64 *)(r10 - 8)
        exit
        count:
        r3 = *(u64 *)(r2 + 0)
        r3 += 1
        *(u64 *)(r2 + 0) = r3
        r0 = 0
        exit
        "
    );
    let outcomes = equal(&program("", &code), &Ports::default(), None, &packets(3));
    assert!(outcomes.iter().all(|outcome| outcome.outputs[0].bytes[0] == 15), "{outcomes:?}");
}
