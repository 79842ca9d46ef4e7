// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random programs of lookups, updates and deletions on few keys.

use std::fmt::Write;

use flowloom_engine::{Port, Ports};
use flowloom_testkit::Rng;

use crate::engines::{HEAD, PACKET_BYTES, TAIL, equal, program};

const KEY_BYTES: [usize; 14] = [1, 3, 4, 5, 7, 8, 11, 13, 16, 17, 20, 24, 32, 40];
const PROGRAMS: u64 = 80;
const PACKETS: usize = 120;
/// Where a key begins, from the end of the stack.
const KEY_AT: i32 = -64;

/// A key on the stack, by stores of random widths: one of them has three bits of the packet.
fn key(text: &mut String, rng: &mut Rng, bytes: usize) {
    let mut stores = Vec::new();
    let mut at = 0;
    while at < bytes {
        let widths: Vec<usize> = [1, 2, 4, 8].into_iter().filter(|width| at + width <= bytes).collect();
        let width = *rng.pick(&widths);
        stores.push((KEY_AT + at as i32, width));
        at += width;
    }
    let field = 14 + rng.below(8);
    writeln!(text, "r1 = *(u8 *)(r6 + {field})\nr1 &= 7").expect("text");
    let chosen = *rng.pick(&[0, stores.len() - 1]);
    // A wide store of zeros below narrower ones.
    if bytes >= 8 && rng.chance(1, 2) {
        writeln!(text, "r2 = 0\n*(u64 *)(r10 - {}) = r2", -KEY_AT).expect("text");
    }
    for (number, (at, width)) in stores.into_iter().enumerate() {
        // The constant of each byte is its place, so that stores of other widths make the same key.
        let bytes = std::array::from_fn(|byte| if byte < width { (at + byte as i32 - KEY_AT) as u8 } else { 0 });
        writeln!(text, "r2 = {} ll", u64::from_le_bytes(bytes)).expect("text");
        if number == chosen {
            writeln!(text, "r2 ^= r1").expect("text");
        }
        writeln!(text, "*(u{} *)(r10 - {}) = r2", 8 * width, -at).expect("text");
    }
}

/// Loads of parts of the key, by other widths than those of the stores; `r8` collects them.
fn parts(text: &mut String, rng: &mut Rng, bytes: usize) {
    for _ in 0..rng.below(3) {
        let (width, of) =
            *rng.pick(&[(1, "u8"), (2, "u16"), (4, "u32"), (8, "u64"), (1, "s8"), (2, "s16"), (4, "s32")]);
        if width <= bytes {
            let at = KEY_AT + rng.below(bytes - width + 1) as i32;
            writeln!(text, "r2 = *({of} *)(r10 - {})\nr8 += r2", -at).expect("text");
        }
    }
    // A load at an offset that the packet tells.
    if bytes >= 8 && rng.chance(1, 8) {
        let field = 14 + rng.below(8);
        writeln!(text, "r1 = *(u8 *)(r6 + {field})\nr1 &= 7\nr2 = r10\nr2 += r1").expect("text");
        writeln!(text, "r2 = *(u8 *)(r2 - {})\nr8 ^= r2", -KEY_AT).expect("text");
    }
}

/// A loop of one block, and products by constants.
fn arithmetic(text: &mut String, rng: &mut Rng, number: usize) {
    let times = 1 + rng.below(11);
    let register = *rng.pick(&["r", "w"]);
    let factor = *rng.pick(&[0, 1, 2, 3, 5, 7, 9, 31, 33, 1024, 1025, 0x7fff_ffff, 0x4000_0000, -1, -2, i32::MIN]);
    writeln!(text, "r1 = 0\nagain{number}:\nr2 = r1\nr1 += 1\nr8 += r2\n{register}8 *= {factor}").expect("text");
    writeln!(text, "r8 ^= r1\nif r2 < {times} goto again{number}").expect("text");
}

/// A choice by bytes of the packet between two or three blocks, which join; `r8` collects the results. Some have equal
/// blocks, loads or stores in one block only, or a block that lies before the branch to it.
fn choice(text: &mut String, rng: &mut Rng, number: usize) {
    let [a, b, c] = std::array::from_fn(|_| 14 + rng.below(8));
    let width = *rng.pick(&["u8", "u16", "u32"]);
    writeln!(
        text,
        "r1 = *(u8 *)(r6 + {a})\nr2 = *(u8 *)(r6 + {b})\nr3 = *(u8 *)(r6 + {c})\nr4 = 1\nr5 = 2\n\
         *(u64 *)(r10 - 24) = r4"
    )
    .expect("text");
    let [loads, stores] = [rng.chance(1, 2), rng.chance(1, 2)];
    let is_uneven = rng.chance(1, 4);
    let block = |rng: &mut Rng| {
        let mut block = String::new();
        let has_both = !is_uneven || rng.chance(1, 2);
        if loads && has_both {
            writeln!(block, "r4 = *({width} *)(r6 + {a})\nr5 = *({width} *)(r6 + {b})").expect("text");
        }
        for _ in 0..rng.below(4) {
            let operation = *rng.pick(&[
                "r4 = r1",
                "w4 = w2",
                "r5 = r2",
                "w5 = w1",
                "r4 += r5",
                "w5 -= w4",
                "r4 = 7",
                "r5 ^= 3",
                "r5 = be16 r5",
                "r4 = -r4",
                "r4 = (s8)r4",
                "r4 <<= 3",
                "r5 /= 3",
            ]);
            writeln!(block, "{operation}").expect("text");
        }
        if stores && has_both {
            writeln!(block, "*(u32 *)(r10 - 24) = r{}", 4 + rng.below(2)).expect("text");
        }
        block
    };
    let first = block(rng);
    let second = block(rng);
    let third = if rng.chance(1, 2) { first.clone() } else { block(rng) };
    let [one, other] = std::array::from_fn(|_| *rng.pick(&[">=", "s<", "==", "!=", "&"]));
    writeln!(
        text,
        "if r1 {one} r2 goto else{number}\n{first}goto join{number}\nback{number}:\n{second}goto join{number}\n\
         else{number}:\nif w2 {other} w3 goto back{number}\n{third}join{number}:\n\
         r8 *= 7\nr8 += r4\nr8 ^= r5\nr4 = *(u64 *)(r10 - 24)\nr8 += r4"
    )
    .expect("text");
}

/// An operation; `r8` collects its result.
fn operation(text: &mut String, rng: &mut Rng, number: usize, key_bytes: usize) {
    if rng.chance(1, 2) {
        choice(text, rng, number);
    }
    key(text, rng, key_bytes);
    parts(text, rng, key_bytes);
    if rng.chance(1, 3) {
        arithmetic(text, rng, number);
    }
    writeln!(text, "r2 = r10\nr2 += {KEY_AT}\nr1 = map[flows] ll\nr8 *= 31").expect("text");
    match rng.below(4) {
        0 | 1 => writeln!(
            text,
            "call map_lookup_elem\nif r0 == 0 goto next{number}\nr1 = *(u64 *)(r0 + 0)\nr8 += r1\nr1 += 1\n\
             *(u64 *)(r0 + 0) = r1\nnext{number}:"
        ),
        2 => {
            let flags = match rng.below(3) {
                0 => format!("r4 = *(u8 *)(r6 + {})\nr4 &= 7", 14 + rng.below(8)),
                _ => format!("r4 = {}", rng.below(3)),
            };
            writeln!(
                text,
                "*(u64 *)(r10 - 16) = r8\n*(u64 *)(r10 - 8) = r8\nr3 = r10\nr3 += -16\n{flags}\n\
                 call map_update_elem\nr8 += r0"
            )
        }
        _ => writeln!(text, "call map_delete_elem\nr8 += r0"),
    }
    .expect("text");
    // Some packets leave out the next operation.
    if rng.chance(1, 3) {
        writeln!(text, "r1 = *(u8 *)(r6 + {})\nif r1 s> {} goto at{}", 14 + rng.below(8), rng.below(256), number + 2)
            .expect("text");
    }
}

#[test]
fn random_programs_are_equal_to_the_interpreter() {
    for seed in 0..PROGRAMS {
        let rng = &mut Rng::new(seed);
        let kind = *rng.pick(&["hash", "hash", "hash", "lru_hash", "percpu_hash", "lru_percpu_hash"]);
        let flags = if kind == "hash" { rng.below(2) } else { 0 };
        let key_bytes = *rng.pick(&KEY_BYTES);
        let map = format!(".map flows {kind} key {key_bytes} value 16 entries {} flags {flags}", 1 + rng.below(10));
        let mut text = HEAD.to_owned() + "r8 = 1\n";
        let operations = 1 + rng.below(5);
        for number in 0..operations {
            writeln!(text, "at{number}:").expect("text");
            operation(&mut text, rng, number, key_bytes);
        }
        // The result goes to the packet, or to an array of a program that writes no packets.
        let end = match rng.chance(1, 2) {
            true => "*(u64 *)(r6 + 0) = r8\nr0 = 3\nexit",
            false => {
                "r1 = 0\n*(u32 *)(r10 - 8) = r1\nr2 = r10\nr2 += -8\nr1 = map[sums] ll\ncall map_lookup_elem\n\
                 if r0 == 0 goto short\nr1 = *(u64 *)(r0 + 0)\nr1 *= 3\nr1 ^= r8\n*(u64 *)(r0 + 0) = r1\nr0 = r8\n\
                 r0 &= 3\nexit"
            }
        };
        writeln!(text, "at{operations}:\nat{}:\n{end}\n{TAIL}", operations + 1).expect("text");
        let map = format!("{map}\n.map sums array key 4 value 8 entries 1");
        let mut program = program(&map, &text);
        if kind == "hash" && rng.chance(1, 3) {
            program.maps[0].spin_lock = Some(8);
        }
        let packets: Vec<Vec<u8>> = (0..PACKETS).map(|_| rng.bytes(PACKET_BYTES)).collect();
        equal(&program, &Ports::bound([Port(1)]), None, &packets);
    }
}
