// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exploration of programs from their code alone.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use flowloom_isa::{BPF_F_RDONLY_PROG, MapDef, MapKind, Program, asm};
use flowloom_testkit::Rng;
use flowloom_verify::explore::{ExploreOptions, Explored, GapReason, explore};

fn map(name: &str, kind: MapKind, key_bytes: u32, value_bytes: u32) -> MapDef {
    MapDef { name: name.into(), kind, key_bytes, value_bytes, max_entries: 4, ..MapDef::default() }
}

fn program(text: &str) -> Arc<Program> {
    let constants = MapDef {
        flags: BPF_F_RDONLY_PROG,
        initial: Some(vec![0; 8]),
        max_entries: 1,
        ..map(".rodata", MapKind::Array, 4, 8)
    };
    let maps = vec![map("hash", MapKind::Hash, 4, 8), map("array", MapKind::Array, 4, 8), constants];
    let insns = asm::assemble(text, &maps).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    Arc::new(Program { section: "xdp".into(), insns, maps, ..Program::default() })
}

/// Explores a program after the bounds check of 64 bytes: `r6` is the context, `r7` the packet.
fn behind(text: &str) -> Explored {
    let text = format!(
        "r6 = r1\nr7 = *(u32 *)(r1 + 0)\nr2 = *(u32 *)(r1 + 4)\nr3 = r7\nr3 += 64\nif r3 > r2 goto out\n{text}\n\
         out: r0 = 2\nexit"
    );
    let options = ExploreOptions { seed: Rng::new(7).next_u64(), ..ExploreOptions::default() };
    let explored = explore(&program(&text), &options).unwrap();
    assert_eq!(explored.faults, [].into(), "{text}");
    assert_eq!(explored.restore_errors, [].into(), "{text}");
    explored
}

/// The last instructions of each of these programs can only be reached by directed changes.
#[test]
fn reaches_what_chance_would_not() {
    for (what, text) in [
        ("a number in network order", "r1 = *(u32 *)(r7 + 30)\nif r1 != 0x12345678 goto out\nr0 = 1\nexit"),
        ("a swapped number", "r1 = *(u16 *)(r7 + 36)\nr1 = be16 r1\nif r1 != 4011 goto out\nr0 = 1\nexit"),
        (
            "a 64-bit number by its difference",
            "r1 = *(u64 *)(r7 + 40)\nr2 = 0x123456789abcdef0 ll\nr1 -= r2\nif r1 != 5 goto out\nr0 = 1\nexit",
        ),
        (
            "a masked and shifted byte",
            "r1 = *(u8 *)(r7 + 33)\nr1 &= 0x3c\nr1 <<= 3\nif r1 != 0x160 goto out\nr0 = 1\nexit",
        ),
        ("one field as another", "r1 = *(u32 *)(r7 + 26)\nr2 = *(u32 *)(r7 + 50)\nif r1 != r2 goto out\nr0 = 1\nexit"),
        (
            "numbers one after the other",
            "r1 = *(u16 *)(r7 + 20)\nif r1 != 0xbeef goto out\nr1 = *(u16 *)(r7 + 22)\nif r1 != 0xcafe goto out\n\
             r1 = *(u16 *)(r7 + 24)\nif r1 != 0xf00d goto out\nr1 = *(u32 *)(r7 + 26)\nif r1 != 0x1badb002 goto out\n\
             r0 = 1\nexit",
        ),
        ("a setting", "r1 = map[.rodata][0]+4 ll\nr1 = *(u32 *)(r1 + 0)\nif r1 != 7001 goto out\nr0 = 1\nexit"),
        (
            "an entry of a table, with a value that the packet agrees with",
            "r1 = *(u32 *)(r7 + 26)\n*(u32 *)(r10 - 4) = r1\nr2 = r10\nr2 += -4\nr1 = map[hash] ll\n\
             call map_lookup_elem\nif r0 == 0 goto out\nr1 = *(u32 *)(r0 + 4)\nr2 = *(u32 *)(r7 + 30)\n\
             if r1 != r2 goto out\nr2 = *(u16 *)(r0 + 0)\nif r2 != 0x1234 goto out\nr0 = 1\nexit",
        ),
        (
            "a full table",
            "r1 = *(u32 *)(r7 + 26)\n*(u32 *)(r10 - 4) = r1\n*(u64 *)(r10 - 16) = 1\nr2 = r10\nr2 += -4\nr3 = r10\n\
             r3 += -16\nr4 = 1\nr1 = map[hash] ll\ncall map_update_elem\nif r0 != -7 goto out\nr0 = 1\nexit",
        ),
        (
            "what the packet before left behind, long ago",
            "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[array] ll\ncall map_lookup_elem\nif r0 == 0 goto gone\n\
             r8 = r0\ncall ktime_get_ns\nr1 = *(u64 *)(r8 + 0)\n*(u64 *)(r8 + 0) = r0\nif r1 == 0 goto out\nr0 -= r1\n\
             if r0 < 100000000 goto out\nr0 = 1\nexit\ngone: goto out",
        ),
        (
            "an entry of one protocol, and another protocol behind it",
            "r8 = *(u8 *)(r7 + 23)\nif r8 == 6 goto ask\nif r8 != 17 goto out\nask: *(u32 *)(r10 - 4) = r8\nr2 = r10\n\
             r2 += -4\nr1 = map[hash] ll\ncall map_lookup_elem\nif r0 == 0 goto out\nr1 = *(u64 *)(r0 + 0)\n\
             r2 = 0x123456789abcdef0 ll\nif r1 != r2 goto out\nr1 = r8\nr1 >>= 4\n*(u32 *)(r10 - 4) = r1\nr2 = r10\n\
             r2 += -4\nr1 = map[array] ll\ncall map_lookup_elem\nif r0 == 0 goto out\nr1 = *(u32 *)(r0 + 0)\n\
             if r1 != 0x77665544 goto out\nif r8 == 6 goto out\nr0 = 1\nexit",
        ),
        ("a port", "r1 = *(u32 *)(r6 + 12)\nif r1 != 3 goto out\nr0 = 1\nexit"),
        ("a length", "r1 = *(u32 *)(r6 + 4)\nr1 -= r7\nif r1 < 1000 goto out\nr0 = 1\nexit"),
    ] {
        let explored = behind(text);
        let unreached: Vec<_> =
            explored.gaps.iter().filter(|gap| !matches!(gap.why, GapReason::ArrayLookup(_))).collect();
        assert!(unreached.is_empty(), "{what}: {unreached:?} after {} tries", explored.tries);
        assert!(explored.cases.len() <= 8, "{what}: {} cases", explored.cases.len());
    }
}

#[test]
fn says_why_not() {
    let text = "*(u32 *)(r10 - 4) = 1\nr2 = r10\nr2 += -4\nr1 = map[array] ll\ncall map_lookup_elem\nif r0 == 0 goto gone\n\
                r1 = *(u64 *)(r0 + 0)\nr1 &= 7\nif r1 > 7 goto never\ngoto out\ngone: r0 = 0\nexit\nnever: r0 = 3\n\
                if r0 == 3 goto out\nr0 = 1\nexit\nr0 = 9\nexit";
    let explored = behind(text);
    let reasons: Vec<String> = explored.gaps.iter().map(|gap| gap.why.to_string()).collect();
    let [lookup, jump, dead] = &reasons[..] else { panic!("{reasons:?}") };
    assert_eq!(lookup, "a lookup in array `array` does not fail");
    assert!(jump.starts_with("the branch at 15 is never taken, last operands 0x"), "{jump}");
    assert_eq!(dead, "unreachable");
    assert_eq!(explored.share().1 - explored.share().0, 2 + 4 + 2);
}

#[test]
fn the_same_seed_finds_the_same() {
    let text = "r1 = *(u32 *)(r7 + 30)\nif r1 != 0x12345678 goto out\nr0 = 1\nexit";
    let (one, other) = (behind(text), behind(text));
    assert_eq!((one.cases, one.tries), (other.cases, other.tries));
}
