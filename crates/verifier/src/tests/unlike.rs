// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of which one path is safe for what another does not have: they meet, and are not to be taken for the same.

use super::refused::check;
use super::*;

/// What tells paths apart and is never compared: two numbers out of the context.
const APART: &str = "r8 = *(u32 *)(r1 + 12)\nr9 = *(u32 *)(r1 + 16)\n";
/// Instructions and branches enough for the state at `join` to be kept.
const KEPT: &str =
    "join: r4 = 1\nr4 = 2\nr4 = 3\nr4 = 4\nr4 = 5\nr4 = 6\nif r9 == 6 goto +1\nr4 = 5\nif r9 == 7 goto +1\nr4 = 5\n";

/// A number that is the room in the packet on the path that is walked first, and something else on the other.
#[test]
fn room_that_is_none_on_another_path() {
    let text = "r6 = *(u32 *)(r1 + 0)\nr7 = *(u32 *)(r1 + 4)\nr8 = *(u32 *)(r1 + 12)\nr9 = *(u32 *)(r1 + 16)\nr3 = 100\n\
                if r8 == 7 goto +2\nr3 = r7\nr3 -= r6\nif r9 == 5 goto join\nr4 = 0\njoin: r4 = 1\nr4 = 2\nr4 = 3\nr4 = 4\n\
                if r9 == 6 goto other\nr4 = 5\nother: if r3 s< 34 goto out\nr0 = *(u8 *)(r6 + 33)\nr0 &= 1\nexit\n";
    check(&[(&format!("{text}{OUT}"), 17, "expected one that a comparison with `data_end` has shown")]);
}

/// Zeros of fewer than 8 bytes come back from the stack as zeros, whatever was stored on another path.
#[test]
fn zeros_that_are_none_on_another_path() {
    let packet = "r6 = *(u32 *)(r1 + 0)\nr7 = *(u32 *)(r1 + 4)\nr2 = r6\nr2 += 4\nif r2 > r7 goto out\n";
    for (place, expected) in [("(u32 *)(r10 - 8)", "the packet + 1000"), ("(u64 *)(r10 - 12)", "with a number of any")]
    {
        let text = format!(
            "{APART}{packet}r3 = 1000\nif r8 == 7 goto join\nr3 = 0\n{KEPT}*{place} = r3\nr5 = *{place}\nr6 += r5\n\
             r0 = *(u8 *)(r6 + 0)\n{OUT}"
        );
        let said = refusal(&text).to_string();
        assert!(said.contains(expected), "{said}");
    }
}

/// A comparison with a register that holds 0 tells what is null; with one that holds something else it tells nothing.
#[test]
fn null_that_is_another_number_on_another_path() {
    let text = format!(
        "{APART}{LOOKUP}r3 = 1\nif r8 == 7 goto join\nr3 = 0\n{KEPT}if r0 == r3 goto out\nr0 = *(u8 *)(r0 + 0)\n{OUT}"
    );
    check(&[(&text, 22, "which may be null")]);
}

/// The stack is the same memory on both paths, and what it holds is what the register holds on one of them only.
#[test]
fn slots_that_are_of_another_lookup_on_another_path() {
    let text = format!(
        "{APART}{LOOKUP}*(u64 *)(r10 - 16) = r0\nif r8 == 7 goto other\ngoto join\nother: r2 = r10\nr2 += -4\n\
         r1 = map[table] ll\ncall map_lookup_elem\n{KEPT}if r0 == 0 goto out\nr5 = *(u64 *)(r10 - 16)\nr0 = *(u8 *)(r5 + 0)\n{OUT}"
    );
    check(&[(&text, 28, "which may be null")]);
}

/// A copy in a register or on the stack decides what its original decides, also where both were made before the paths
/// meet.
#[test]
fn copies_of_another_number_on_another_path() {
    let packet = "r6 = *(u32 *)(r1 + 0)\nr7 = *(u32 *)(r1 + 4)\nr2 = r6\nr2 += 4\nif r2 > r7 goto out\n";
    let either = "r3 = 1000\nif r8 == 7 goto copy\nr3 = 0\n";
    let spilled = "*(u64 *)(r10 - 16) = r3\n";
    let filled = "r5 = *(u64 *)(r10 - 16)\n";
    let used = "r6 += r5\nr0 = *(u8 *)(r6 + 0)\n";
    for text in [
        format!("{either}copy: {KEPT}r2 = r3\n*(u64 *)(r10 - 16) = r2\n{filled}{used}"),
        format!("{either}copy: {spilled}{KEPT}{filled}{used}"),
        format!("{either}copy: {spilled}{KEPT}{filled}r2 = r5\nr5 = r2\n{used}"),
        format!("{either}copy: r5 = r3\n{KEPT}r2 = r5\nr5 = r2\n{used}"),
        format!("{either}copy: {spilled}r3 = 0\n{KEPT}r3 += 0\nif r3 == 1 goto out\n{filled}{used}"),
    ] {
        let said = refusal(&format!("{APART}{packet}{text}{OUT}")).to_string();
        assert!(said.contains("the packet + 1000"), "{said}\n{text}");
    }
    // What is learnt of one is learnt of the other on the path that is walked first, and not on the other one.
    let small = "r3 = r9\nr3 &= 255\n";
    for (number, copy, other, fill) in [
        (small, "r5 = r3\n", "r5 = r9\n", ""),
        (small, "*(u64 *)(r10 - 16) = r3\n", "*(u64 *)(r10 - 16) = r9\n", filled),
        // The copy is compared, and its original is used.
        ("r5 = r9\n", "r3 = r5\n", "r3 = 0\n", ""),
        ("r5 = r9\n*(u64 *)(r10 - 16) = r5\nr5 = 0\n", "r3 = *(u64 *)(r10 - 16)\n", "r3 = 0\n", filled),
    ] {
        let text = format!(
            "{APART}{LOOKUP}if r0 == 0 goto out\n{number}if r8 == 7 goto other\n{copy}goto join\nother: {other}\
             {KEPT}if r3 > 3 goto out\n{fill}r0 += r5\nr0 = *(u8 *)(r0 + 0)\n{OUT}"
        );
        // Alone, the path that is walked first is safe.
        proof(&text.replace("if r8 == 7 goto other", "r4 = 1").replace(&format!("other: {other}"), ""));
        let said = refusal(&text).to_string();
        assert!(said.contains("with a number of"), "{said}\n{text}");
    }
}
