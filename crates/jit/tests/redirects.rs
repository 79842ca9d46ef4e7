// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last redirect counts, whether a helper was called for it or not.

use std::collections::BTreeMap;

use flowloom_engine::{Port, Ports, Snapshot, Verdict};

use crate::engines::{HEAD, PACKET_BYTES, TAIL, equal, program};

/// Calls, the verdict, and the ports that the packet leaves by.
type Case = (&'static [(u8, u8)], u8, &'static [u32]);

/// Bytes 14 to 19 of a packet are three calls, each a kind and a port; byte 20 is the verdict, 0 that of the last call.
const NOTHING: u8 = 0;
const MAP: u8 = 1;
const PLAIN: u8 = 2;
const BROADCAST: u8 = 3;

fn code() -> String {
    let call = |number: usize| {
        let (kind, port) = (14 + 2 * number, 15 + 2 * number);
        format!(
            "r7 = *(u8 *)(r6 + {kind})
            r2 = *(u8 *)(r6 + {port})
            r1 = map[ports] ll
            r3 = 1
            if r7 == 1 goto map{number}
            r3 = 8
            if r7 == 3 goto map{number}
            if r7 != 2 goto next{number}
            r1 = r2
            r2 = 0
            call redirect
            r8 = r0
            goto next{number}
            map{number}:
            call redirect_map
            r8 = r0
            next{number}:
            "
        )
    };
    let calls: String = (0..3).map(call).collect();
    format!("{HEAD}r8 = 1\n{calls}r0 = *(u8 *)(r6 + 20)\nif r0 != 0 goto out\nr0 = r8\nout:\nexit\n{TAIL}")
}

fn packet(calls: &[(u8, u8)], verdict: u8) -> Vec<u8> {
    let mut bytes = vec![0; PACKET_BYTES];
    for (place, (kind, port)) in bytes[14..20].chunks_mut(2).zip(calls) {
        place.copy_from_slice(&[*kind, *port]);
    }
    bytes[20] = verdict;
    bytes
}

#[test]
fn the_last_call_counts() {
    let program = program(".map ports devmap key 4 value 4 entries 8", &code());
    let redirect = Verdict::Redirect.number() as u8;
    let cases: &[Case] = &[
        (&[(MAP, 3)], 0, &[3]),
        (&[(MAP, 3), (PLAIN, 4)], 0, &[4]),
        (&[(PLAIN, 4), (MAP, 3)], 0, &[3]),
        (&[(MAP, 3), (PLAIN, 4), (MAP, 5)], 0, &[5]),
        // An absent key takes the target away.
        (&[(MAP, 3), (MAP, 8)], redirect, &[]),
        (&[(PLAIN, 3), (MAP, 8)], redirect, &[]),
        (&[(MAP, 8), (MAP, 3)], redirect, &[3]),
        (&[(MAP, 8)], 0, &[]),
        // The target of an earlier packet does not count.
        (&[], redirect, &[]),
        (&[(PLAIN, 9)], 0, &[]),
        (&[], redirect, &[]),
        (&[(MAP, 6)], 0, &[]),
        (&[], redirect, &[]),
        (&[(BROADCAST, 0)], 0, &[1, 2, 3, 4, 5]),
        (&[], redirect, &[]),
        (&[(BROADCAST, 0), (MAP, 2)], 0, &[2]),
        (&[(MAP, 2), (BROADCAST, 0)], 0, &[1, 2, 3, 4, 5]),
        (&[(MAP, 2), (NOTHING, 0)], Verdict::Pass.number() as u8, &[1]),
    ];
    let ports = Ports::bound((1..=5).map(Port));
    let packets: Vec<Vec<u8>> = cases.iter().map(|(calls, verdict, _)| packet(calls, *verdict)).collect();
    let outcomes = equal(&program, &ports, None, &packets);
    for (outcome, (calls, verdict, expected)) in outcomes.iter().zip(cases) {
        let found: Vec<u32> = outcome.outputs.iter().map(|output| output.port.0).collect();
        assert_eq!(found, *expected, "{calls:?} {verdict}");
    }
}

#[test]
fn a_map_with_given_contents_is_looked_up() {
    let program = program(".map ports devmap key 4 value 4 entries 8", &code());
    let entry = |key: u32, port: u32| (key.to_le_bytes().to_vec(), port.to_le_bytes().to_vec());
    let contents = BTreeMap::from([entry(3, 5), entry(5, 2)]);
    let state = Snapshot { maps: BTreeMap::from([("ports".to_owned(), contents)]), ..Snapshot::default() };
    let packets = [[(MAP, 3)], [(MAP, 4)], [(MAP, 5)]].map(|calls| packet(&calls, 0));
    let outcomes = equal(&program, &Ports::bound((1..=5).map(Port)), Some(&state), &packets);
    let ports: Vec<Vec<u32>> =
        outcomes.iter().map(|outcome| outcome.outputs.iter().map(|output| output.port.0).collect()).collect();
    assert_eq!(ports, [vec![5], vec![], vec![2]]);
}
