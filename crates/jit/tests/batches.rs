// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of one batch see each other's effects.

use flowloom_engine::Ports;

use crate::engines::{HEAD, PACKET_BYTES, TAIL, equal, program};

/// What a packet asks for, in its byte 14: a lookup whose count grows, an update, a deletion. Its key is in byte 15.
/// Byte 0 becomes the count, or the low byte of the result.
const LOOK_UP: u8 = 0;
const UPDATE: u8 = 1;
const DELETE: u8 = 2;
/// The first byte of a packet whose key is absent.
const ABSENT: u8 = 0xff;

fn code() -> String {
    format!(
        "{HEAD}
        r1 = 0
        *(u64 *)(r10 - 16) = r1
        r7 = *(u8 *)(r6 + 15)
        *(u32 *)(r10 - 16) = r7
        *(u16 *)(r10 - 12) = r7
        *(u8 *)(r10 - 9) = r7
        *(u64 *)(r10 - 8) = r1
        r2 = r10
        r2 += -16
        r1 = map[flows] ll
        r8 = *(u8 *)(r6 + 14)
        if r8 == 1 goto update
        if r8 == 2 goto delete
        call map_lookup_elem
        r7 = 255
        if r0 == 0 goto out
        r7 = *(u64 *)(r0 + 0)
        r7 += 1
        *(u64 *)(r0 + 0) = r7
        goto out
        update:
        r3 = r10
        r3 += -8
        r4 = 0
        call map_update_elem
        r7 = r0
        goto out
        delete:
        call map_delete_elem
        r7 = r0
        out:
        *(u8 *)(r6 + 0) = r7
        r0 = 3
        exit
        {TAIL}"
    )
}

/// The first bytes of packets afterwards, on a map of 3 entries.
fn results(kind: &str, packets: &[(u8, u8)]) -> Vec<u8> {
    let program = program(&format!(".map flows {kind}"), &code());
    let packet = |(what, key): &(u8, u8)| {
        let mut bytes = vec![0; PACKET_BYTES];
        (bytes[14], bytes[15]) = (*what, *key);
        bytes
    };
    let packets: Vec<Vec<u8>> = packets.iter().map(packet).collect();
    let outcomes = equal(&program, &Ports::default(), None, &packets);
    outcomes.iter().map(|outcome| outcome.outputs[0].bytes[0]).collect()
}

const KINDS: [&str; 3] =
    ["hash key 8 value 8 entries 3", "hash key 8 value 8 entries 3 flags 1", "lru_hash key 8 value 8 entries 3"];

#[test]
fn effects_within_a_batch() {
    for kind in KINDS {
        let packets = [
            (LOOK_UP, 7),
            (UPDATE, 7),
            (LOOK_UP, 7),
            (LOOK_UP, 7),
            (UPDATE, 8),
            (LOOK_UP, 8),
            (LOOK_UP, 7),
            (DELETE, 7),
            (LOOK_UP, 7),
            (DELETE, 7),
            (UPDATE, 7),
            (LOOK_UP, 7),
        ];
        assert_eq!(results(kind, &packets), [ABSENT, 0, 1, 2, 0, 1, 3, 0, ABSENT, 0xfe, 0, 1], "{kind}");
    }
}

/// All packets have the hint of an entry that moves to another slot in the meantime.
#[test]
fn an_entry_that_moves_after_its_key_was_announced() {
    for kind in KINDS {
        results(kind, &[(UPDATE, 1), (UPDATE, 2)]);
        let mut packets = vec![(UPDATE, 1), (UPDATE, 2)];
        packets.extend((0..300).map(|number| [(LOOK_UP, 1), (UPDATE, 1), (LOOK_UP, 2), (LOOK_UP, 1)][number % 4]));
        let found = results(kind, &packets);
        assert_eq!(found[2..10], [1, 0, 1, 1, 2, 0, 2, 1], "{kind}");
    }
}

#[test]
fn a_full_table_refuses_keys_and_evicts_the_least_recently_used_one() {
    let packets =
        [(UPDATE, 1), (UPDATE, 2), (UPDATE, 3), (LOOK_UP, 1), (UPDATE, 4), (LOOK_UP, 1), (LOOK_UP, 2), (LOOK_UP, 4)];
    let too_big = -7i8 as u8;
    assert_eq!(results(KINDS[0], &packets), [0, 0, 0, 1, too_big, 2, 1, ABSENT]);
    assert_eq!(results(KINDS[1], &packets), [0, 0, 0, 1, too_big, 2, 1, ABSENT]);
    assert_eq!(results(KINDS[2], &packets), [0, 0, 0, 1, 0, 2, ABSENT, 1]);
}

/// Programs whose scouts find the first key: `before` leads to it, `after` has the result in `r0`.
fn resumed(before: &str, after: &str) -> Vec<u8> {
    let maps = ".map flows hash key 8 value 8 entries 300\n.map counts array key 4 value 8 entries 1";
    let code = format!(
        "{HEAD}
        r1 = 0
        *(u64 *)(r10 - 8) = r1
        r7 = *(u8 *)(r6 + 15)
        r8 = *(u8 *)(r6 + 14)
        {before}
        *(u8 *)(r10 - 8) = r7
        again:
        r2 = r10
        r2 += -8
        r1 = map[flows] ll
        call map_lookup_elem
        {after}
        out:
        *(u8 *)(r6 + 0) = r7
        r0 = 3
        exit
        {TAIL}"
    );
    // Each key comes twice, the second time among packets of the same group.
    let packet = |number: usize| {
        let mut bytes = vec![0; PACKET_BYTES];
        (bytes[14], bytes[15]) = (number as u8, (number / 2) as u8);
        bytes
    };
    let packets: Vec<Vec<u8>> = (0..300).map(packet).collect();
    let outcomes = equal(&program(maps, &code), &Ports::default(), None, &packets);
    outcomes.iter().map(|outcome| outcome.outputs[0].bytes[0]).collect()
}

/// Adds the key with the value that is at `r10 - 16`.
const ADD: &str = "
    r2 = r10
    r2 += -8
    r3 = r10
    r3 += -16
    r4 = 0
    r1 = map[flows] ll
    call map_update_elem";

#[test]
fn registers_and_the_stack_last_until_the_code_goes_on() {
    let before = "r9 = r8\nr9 *= 3\n*(u64 *)(r10 - 16) = r9";
    let after = format!(
        "r7 += r9
        if r0 == 0 goto add
        r1 = *(u64 *)(r0 + 0)
        r7 += r1
        goto out
        add:{ADD}
        r1 = *(u64 *)(r10 - 16)
        r7 += r1"
    );
    let found = resumed(before, &after);
    let expected = |number: usize| {
        let first = number / 2 * 2;
        let value = if number == first { number % 256 } else { first % 256 };
        (number / 2 % 256 + 3 * (number % 256) + 3 * value) as u8
    };
    assert_eq!(found, (0..300).map(expected).collect::<Vec<u8>>());
}

/// The register that an earlier packet's count leads to is that of its own time.
#[test]
fn a_key_that_depends_on_earlier_packets_is_found_anew() {
    let before = "
        r2 = r10
        r2 += -8
        r1 = map[counts] ll
        call map_lookup_elem
        if r0 == 0 goto short
        r7 = *(u64 *)(r0 + 0)
        r1 = r7
        r1 += 1
        *(u64 *)(r0 + 0) = r1
        *(u64 *)(r10 - 16) = r7";
    assert_eq!(resumed(before, "if r0 != 0 goto out"), (0..300).map(|number| number as u8).collect::<Vec<u8>>());
}

/// A packet that is changed before its lookup is changed once.
#[test]
fn a_packet_is_changed_once() {
    let before = "
        r1 = *(u8 *)(r6 + 1)
        r1 += 1
        *(u8 *)(r6 + 1) = r1
        r7 = *(u8 *)(r6 + 1)";
    assert_eq!(resumed(before, "if r0 != 0 goto out"), [1; 300]);
}

/// A lookup is reached a second time with another key than the scout's.
#[test]
fn a_loop_comes_back_to_the_lookup() {
    let after = format!(
        "if r0 == 0 goto add
        r1 = *(u64 *)(r0 + 0)
        r7 += r1
        r7 &= 127
        goto out
        add:{ADD}
        r7 += 100
        r9 += 1
        if r9 > 2 goto out
        *(u8 *)(r10 - 8) = r7
        goto again"
    );
    resumed("r9 = 0\n*(u64 *)(r10 - 16) = r8", &after);
}

/// Bytes that a packet left on the stack of its scout are zeros for the one that has it next.
#[test]
fn a_stack_begins_with_zeros() {
    let before = "
        if r8 > 100 goto read
        r1 = 77
        *(u64 *)(r10 - 24) = r1
        read:";
    let found = resumed(before, "r7 = *(u64 *)(r10 - 24)");
    assert!(found.iter().enumerate().all(|(number, byte)| *byte == if number % 256 > 100 { 0 } else { 77 }));
}

/// A function that counts its calls in the only element of the array `counts`.
const COUNT: &str = "count:
    r1 = 0
    *(u32 *)(r10 - 4) = r1
    r2 = r10
    r2 += -4
    r1 = map[counts] ll
    call map_lookup_elem
    if r0 == 0 goto none
    r1 = *(u64 *)(r0 + 0)
    r1 += 1
    *(u64 *)(r0 + 0) = r1
    none:
    r0 = 0
    exit";

/// A callback whose address the code has before the key that its scout finds.
#[test]
fn callbacks_of_resumed_code_have_effects() {
    let maps = ".map flows hash key 8 value 8 entries 300\n.map counts array key 4 value 8 entries 1";
    let code = format!(
        "{HEAD}
        r1 = 0
        *(u64 *)(r10 - 8) = r1
        r7 = *(u8 *)(r6 + 15)
        *(u8 *)(r10 - 8) = r7
        r8 = subprog[count] ll
        r2 = r10
        r2 += -8
        r1 = map[flows] ll
        call map_lookup_elem
        r1 = 3
        r2 = r8
        r3 = 0
        r4 = 0
        call loop
        r0 = 3
        exit
        {TAIL}
        {COUNT}"
    );
    let packets: Vec<Vec<u8>> = (0..100).map(|number| vec![number; PACKET_BYTES]).collect();
    equal(&program(maps, &code), &Ports::default(), None, &packets);
}

/// Some packets of a group end before they have a key, or at a lookup without a hash table; those after them have keys
/// of their own.
#[test]
fn packets_without_a_key_are_between_others() {
    let code = format!(
        "{HEAD}
        r0 = 2
        r7 = *(u8 *)(r6 + 14)
        if r7 == 0 goto out
        *(u32 *)(r10 - 4) = r7
        r2 = r10
        r2 += -4
        r1 = map[flows] ll
        call map_lookup_elem
        if r0 == 0 goto add
        r1 = *(u64 *)(r0 + 0)
        r1 += 1
        *(u64 *)(r0 + 0) = r1
        *(u8 *)(r6 + 0) = r1
        r0 = 3
        exit
        add:
        r1 = 0
        *(u64 *)(r10 - 16) = r1
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r1 = map[flows] ll
        r4 = 0
        call map_update_elem
        r0 = 3
        out:
        exit
        {TAIL}"
    );
    let program = program(".map flows hash key 4 value 8 entries 300", &code);
    let packet = |number: usize| {
        let mut bytes = vec![0; PACKET_BYTES];
        // All numbers of packets without a key before one with a key, in groups of all forms.
        bytes[14] = if number % 7 < number / 50 % 7 { 0 } else { (number % 11) as u8 };
        bytes
    };
    let packets: Vec<Vec<u8>> = (0..700).map(packet).collect();
    equal(&program, &Ports::default(), None, &packets);
}

/// A function with effects, which the program calls where it has no lookup, runs once for each packet.
#[test]
fn scouts_call_no_functions() {
    let maps = ".map flows hash key 8 value 8 entries 300\n.map counts array key 4 value 8 entries 1";
    let code = format!(
        "{HEAD}
        r1 = 0
        *(u64 *)(r10 - 8) = r1
        r7 = *(u8 *)(r6 + 15)
        *(u8 *)(r10 - 8) = r7
        r8 = *(u8 *)(r6 + 14)
        r8 &= 1
        if r8 == 0 goto find
        call count
        r0 = 2
        exit
        find:
        r2 = r10
        r2 += -8
        r1 = map[flows] ll
        call map_lookup_elem
        r0 = 3
        exit
        {TAIL}
        {COUNT}"
    );
    let packets: Vec<Vec<u8>> = (0..200).map(|number| vec![number; PACKET_BYTES]).collect();
    equal(&program(maps, &code), &Ports::default(), None, &packets);
}

/// Two lookups whose keys depend on the packet: the scout announces both. The second key is built where the first one
/// was (`place` 8) or elsewhere; then the code needs the first key again, or something else that it stored before.
#[test]
fn a_scout_goes_on_to_a_second_key() {
    let maps = ".map flows hash key 8 value 8 entries 300\n.map hosts hash key 8 value 8 entries 300";
    for (place, late) in [(8, false), (8, true), (24, false), (24, true)] {
        // The store of one byte leaves the rest of the key in memory.
        let built = if late { "r3 = *(u64 *)(r10 - 32)" } else { "r3 = 7" };
        let code = format!(
            "{HEAD}
            r1 = 0
            *(u64 *)(r10 - 8) = r1
            *(u64 *)(r10 - 24) = r1
            r7 = *(u8 *)(r6 + 15)
            *(u64 *)(r10 - 32) = r7
            *(u8 *)(r10 - 8) = r7
            r2 = r10
            r2 += -8
            r1 = map[flows] ll
            call map_lookup_elem
            r9 = 0
            if r0 == 0 goto add
            r9 = r0
            r8 = *(u8 *)(r6 + 14)
            r8 &= 15
            *(u8 *)(r10 - {place}) = r8
            r2 = r10
            r2 += -{place}
            r1 = map[hosts] ll
            call map_lookup_elem
            if r0 == 0 goto host
            r1 = *(u64 *)(r0 + 0)
            r1 += 1
            *(u64 *)(r0 + 0) = r1
            r2 = *(u64 *)(r9 + 0)
            r2 += r1
            *(u64 *)(r9 + 0) = r2
            {built}
            r2 += r3
            *(u8 *)(r6 + 0) = r2
            r0 = 3
            exit
            host:
            r1 = map[hosts] ll
            r2 = r10
            r2 += -{place}
            goto put
            add:
            r1 = map[flows] ll
            r2 = r10
            r2 += -8
            put:
            r3 = 0
            *(u64 *)(r10 - 16) = r3
            r3 = r10
            r3 += -16
            r4 = 0
            call map_update_elem
            r0 = 2
            exit
            {TAIL}"
        );
        let packet = |number: usize| {
            let mut bytes = vec![0; PACKET_BYTES];
            (bytes[14], bytes[15]) = ((number / 3) as u8, (number % 50) as u8);
            bytes
        };
        let packets: Vec<Vec<u8>> = (0..700).map(packet).collect();
        equal(&program(maps, &code), &Ports::default(), None, &packets);
    }
}

/// A function that reads the stack of its caller: bytes that the scout would change on the way to a second key.
#[test]
fn a_scout_leaves_the_stack_that_functions_read() {
    let maps = ".map flows hash key 8 value 8 entries 300\n.map hosts hash key 8 value 8 entries 300";
    let code = format!(
        "{HEAD}
        r1 = 0
        *(u64 *)(r10 - 8) = r1
        r7 = *(u8 *)(r6 + 15)
        *(u8 *)(r10 - 8) = r7
        r1 = 5
        *(u64 *)(r10 - 16) = r1
        r2 = r10
        r2 += -8
        r1 = map[flows] ll
        call map_lookup_elem
        if r0 == 0 goto miss
        r8 = *(u8 *)(r6 + 14)
        *(u64 *)(r10 - 16) = r8
        r2 = r10
        r2 += -16
        r1 = map[hosts] ll
        call map_lookup_elem
        r0 = 2
        exit
        miss:
        r1 = r10
        r1 += -16
        call read
        *(u8 *)(r6 + 0) = r0
        r0 = 3
        exit
        {TAIL}
        read:
        r0 = *(u64 *)(r1 + 0)
        exit"
    );
    let packets: Vec<Vec<u8>> = (0..200).map(|number| vec![number; PACKET_BYTES]).collect();
    let outcomes = equal(&program(maps, &code), &Ports::default(), None, &packets);
    assert!(outcomes.iter().all(|outcome| outcome.outputs[0].bytes[0] == 5));
}

/// The key of an array is at one of two places, so that it is stored before the lookup; the code reads one of them.
#[test]
fn a_scout_leaves_the_stack_at_lookups_in_arrays() {
    let maps = ".map flows hash key 8 value 8 entries 300\n.map hosts hash key 8 value 8 entries 300\n\
                .map counts array key 4 value 8 entries 4";
    let code = format!(
        "{HEAD}
        r1 = 0
        *(u64 *)(r10 - 8) = r1
        *(u64 *)(r10 - 40) = r1
        r7 = *(u8 *)(r6 + 15)
        *(u8 *)(r10 - 8) = r7
        r1 = 5
        *(u32 *)(r10 - 24) = r1
        *(u32 *)(r10 - 16) = r1
        r2 = r10
        r2 += -8
        r1 = map[flows] ll
        call map_lookup_elem
        if r0 == 0 goto miss
        r8 = *(u8 *)(r6 + 14)
        *(u32 *)(r10 - 24) = r8
        *(u32 *)(r10 - 16) = r8
        r2 = r10
        r2 += -24
        if r7 > 100 goto other
        r2 = r10
        r2 += -16
        other:
        r1 = map[counts] ll
        call map_lookup_elem
        *(u8 *)(r10 - 40) = r7
        r2 = r10
        r2 += -40
        r1 = map[hosts] ll
        call map_lookup_elem
        r0 = 2
        exit
        miss:
        r1 = *(u32 *)(r10 - 24)
        *(u8 *)(r6 + 0) = r1
        r0 = 3
        exit
        {TAIL}"
    );
    let packets: Vec<Vec<u8>> = (0..200).map(|number| vec![number; PACKET_BYTES]).collect();
    let outcomes = equal(&program(maps, &code), &Ports::default(), None, &packets);
    assert!(outcomes.iter().all(|outcome| outcome.outputs[0].bytes[0] == 5));
}

/// What is counted is not written: programs that change packets run on copies, by whatever they change them.
#[test]
fn packets_are_written_by_stores_and_by_a_helper() {
    let by_helper = "r1 = 5\n*(u64 *)(r10 - 8) = r1\nr1 = r9\nr2 = 20\nr3 = r10\nr3 += -8\nr4 = 8\n\
        call xdp_store_bytes\nr0 = 3\nexit";
    for code in ["r1 = 5\n*(u64 *)(r6 + 20) = r1\nr0 = 3\nexit", by_helper] {
        let program = program("", &format!("{HEAD}{code}\n{TAIL}"));
        let packets: Vec<Vec<u8>> = (0..70).map(|number| vec![number; PACKET_BYTES]).collect();
        let outcomes = equal(&program, &Ports::default(), None, &packets);
        assert!(outcomes.iter().all(|outcome| outcome.outputs[0].bytes[20..28] == 5_u64.to_le_bytes()));
    }
}

/// A scout announces keys of a table whose lookup is no point to go on from, beside those of one that is.
#[test]
fn keys_of_tables_of_very_different_sizes() {
    let maps = ".map config array key 4 value 8 entries 1\n.map large hash key 8 value 8 entries 1000000 flags 1\n\
        .map small hash key 8 value 8 entries 8";
    let code = format!(
        "{HEAD}
        r1 = 0
        *(u64 *)(r10 - 8) = r1
        *(u32 *)(r10 - 12) = r1
        r7 = *(u16 *)(r6 + 15)
        r8 = *(u8 *)(r6 + 14)
        if r8 == 1 goto direct
        r2 = r10
        r2 += -12
        r1 = map[config] ll
        call map_lookup_elem
        if r0 == 0 goto short
        r1 = *(u64 *)(r0 + 0)
        r7 += r1
        *(u64 *)(r10 - 8) = r7
        r2 = r10
        r2 += -8
        r1 = map[large] ll
        call map_lookup_elem
        if r0 == 0 goto out
        r7 = 3
        goto out
        direct:
        *(u64 *)(r10 - 8) = r7
        r2 = r10
        r2 += -8
        r1 = map[small] ll
        call map_lookup_elem
        if r0 == 0 goto out
        r7 = 4
        out:
        *(u8 *)(r6 + 0) = r7
        r0 = 3
        exit
        {TAIL}"
    );
    let packets: Vec<Vec<u8>> = (0..3000_u32)
        .map(|number| {
            let mut bytes = vec![0; PACKET_BYTES];
            bytes[14] = (number % 5 < 2).into();
            bytes[15..17].copy_from_slice(&(number as u16).wrapping_mul(40_503).to_le_bytes());
            bytes
        })
        .collect();
    equal(&program(maps, &code), &Ports::default(), None, &packets);
}

/// The branch that asks whether a lookup has found its key may itself be one that becomes a select.
#[test]
fn a_result_is_chosen_by_whether_the_key_is_there() {
    for after in [
        "if r0 == 0 goto miss\nr7 = 1\ngoto join\nmiss:\nr7 = 2\njoin:",
        "if r0 != 0 goto hit\nr7 = 1\ngoto join\nhit:\nr7 = 2\njoin:",
        "r7 = 1\nif r0 == 0 goto join\nr7 = 0\njoin:",
        "r7 = 1\nif r0 != 0 goto join\nr7 = 0\njoin:",
        "if r0 == 0 goto join\nr7 = *(u64 *)(r0 + 0)\njoin:",
    ] {
        // The second time that a key comes, it is there.
        let update = "r2 = r10\nr2 += -8\nr3 = r2\nr4 = 0\nr1 = map[flows] ll\ncall map_update_elem";
        resumed("", &format!("{after}\n{update}"));
    }
}
