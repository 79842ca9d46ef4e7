// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is told of the lookups of programs, and of the scouts ahead of them.

use flowloom_jit::Lookup;

use crate::engines::{HEAD, TAIL, jit, program};

const MAPS: &str = ".map flows hash key 8 value 8 entries 300\n.map hosts hash key 8 value 8 entries 300
.map counts array key 4 value 8 entries 1";

/// A lookup in a map under the key at `r10 - 8`.
fn look_up(map: &str) -> String {
    format!("r2 = r10\nr2 += -8\nr1 = map[{map}] ll\ncall map_lookup_elem\n")
}

/// An update of `hosts` under that key, with the key as value.
const UPDATE: &str = "r2 = r10\nr2 += -8\nr3 = r10\nr3 += -8\nr4 = 0\nr1 = map[hosts] ll\ncall map_update_elem\n";

/// The lookups of a program: `code` follows the one that stores a key of the packet.
fn lookups(code: &str) -> Vec<Lookup> {
    lookups_with(code, "")
}

/// As [`lookups`], with functions after the program.
fn lookups_with(code: &str, functions: &str) -> Vec<Lookup> {
    let head = format!("{HEAD}r7 = *(u64 *)(r6 + 14)\n*(u64 *)(r10 - 8) = r7\n");
    let program = program(MAPS, &format!("{head}{code}r0 = 2\nexit\n{TAIL}{functions}"));
    let proof = flowloom_verifier::verify(&program, &flowloom_verifier::Options::default())
        .unwrap_or_else(|error| panic!("{error}"));
    jit(&program).lookups(&proof).unwrap_or_else(|error| panic!("{error}"))
}

/// Map, waves, whether the code goes on there, and the obstacle of each lookup.
fn told(code: &str) -> Vec<(String, Vec<usize>, bool, String)> {
    let obstacle = |lookup: &Lookup| lookup.obstacle.as_ref().map_or(String::new(), |found| found.kind.to_string());
    let of = |lookup: Lookup| {
        let obstacle = obstacle(&lookup);
        (lookup.map, lookup.waves, lookup.resumes, obstacle)
    };
    lookups(code).into_iter().map(of).collect()
}

fn is(map: &str, waves: &[usize], resumes: bool, obstacle: &str) -> (String, Vec<usize>, bool, String) {
    (map.to_owned(), waves.to_vec(), resumes, obstacle.to_owned())
}

#[test]
fn keys_of_the_packet_alone_are_announced_and_resumed() {
    let (flows, hosts) = (look_up("flows"), look_up("hosts"));
    assert_eq!(told(&flows), [is("flows", &[1], true, "")]);
    // A second wave takes the second one; there is no third.
    let late = "later than the keys that are announced";
    let three = format!("{flows}{hosts}{flows}");
    assert_eq!(
        told(&three),
        [is("flows", &[1], true, ""), is("hosts", &[2], false, ""), is("flows", &[], false, late)]
    );
    // Paths with and without a lookup before.
    let either = format!("if r7 == 1 goto skip\n{flows}skip:\n{hosts}");
    assert_eq!(told(&either), [is("flows", &[1], true, ""), is("hosts", &[1, 2], true, "")]);
    assert_eq!(told(""), []);
}

#[test]
fn obstacles_are_named_with_their_instructions() {
    let (flows, hosts) = (look_up("flows"), look_up("hosts"));
    // Scouts end at an update.
    let update = "a call of `map_update_elem`";
    assert_eq!(told(&format!("{UPDATE}{flows}")), [is("hosts", &[1], true, ""), is("flows", &[], false, update)]);
    let found = lookups(&format!("{UPDATE}{flows}"));
    assert_eq!(found[1].obstacle.as_ref().and_then(|obstacle| obstacle.insn), Some(found[0].insn));
    assert_eq!((found[0].helper, found[1].helper), ("map_update_elem", "map_lookup_elem"));
    // A helper with effects.
    let random = format!("call get_prandom_u32\n{flows}");
    assert_eq!(told(&random), [is("flows", &[], false, "a call of `get_prandom_u32`")]);
    // What depends on more than the packet is announced, but the code begins again.
    let value = "r2 = r10\nr2 += -16\nr1 = 0\n*(u32 *)(r10 - 16) = r1\nr1 = map[counts] ll\ncall map_lookup_elem
        if r0 == 0 goto none\nr1 = *(u64 *)(r0 + 0)\n*(u64 *)(r10 - 8) = r1\nnone:\n";
    assert_eq!(told(&format!("{value}{flows}")), [is("flows", &[1], false, "a load of a value that packets change")]);
    let store = format!("*(u8 *)(r6 + 1) = 4\n{flows}{hosts}");
    assert_eq!(
        told(&store),
        [is("flows", &[1], false, "a store to other memory than the own stack"), is("hosts", &[2], false, "")]
    );
}

#[test]
fn lookups_in_functions_that_are_called_are_told() {
    let (flows, hosts) = (look_up("flows"), look_up("hosts"));
    let inner = format!("inner:\nr1 = 7\n*(u64 *)(r10 - 8) = r1\n{flows}r0 = 1\nexit\n");
    let found = lookups_with(&format!("call inner\n{hosts}"), &inner);
    let of = |lookup: &Lookup| (lookup.map.clone(), lookup.waves.clone(), lookup.resumes);
    let found: Vec<_> = found.iter().map(of).collect();
    assert_eq!(found, [("hosts".to_owned(), vec![2], false), ("flows".to_owned(), vec![1], false)]);
}
