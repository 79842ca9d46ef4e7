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
