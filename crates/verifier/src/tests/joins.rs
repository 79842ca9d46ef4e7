// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What paths cost that join soon, and what they know of addresses that are equal.

use super::*;

/// `blocks` branches in a row, each around a store that nothing reads, in the innermost of `depth` nested functions.
/// What follows is to end it.
fn branches(blocks: usize, depth: usize) -> String {
    let mut text = String::new();
    for level in 0..depth {
        text += &format!("call f{level}\nr0 = 2\nexit\nf{level}: ");
    }
    text += "r6 = r1\n";
    for block in 0..blocks {
        text += &format!(
            "call get_prandom_u32\nif r0 == {} goto next{block}\nr1 = r10\n*(u64 *)(r1 - {}) = r6\nnext{block}: ",
            block * 7 + 3,
            8 * (block % 36 + 1)
        );
    }
    text
}

/// The state before a long run of instructions is kept, however near the last one is: the last of the branches leads
/// there.
#[test]
fn long_runs_of_instructions_are_walked_once() {
    for (blocks, depth) in [(255, 0), (256, 0), (255, 7), (256, 7)] {
        let text = branches(blocks, depth) + &"r0 = 42\n".repeat(2000) + "r0 = 2\nexit";
        let processed = proof(&text).processed;
        // Each branch takes 4 instructions, and its other way about 3.
        let most = 8 * blocks as u64 + 2000 + 100;
        assert!(processed < most, "{processed} of {blocks} branches at depth {depth}, expected below {most}");
    }
}

/// An address that equals one that is not null is not null, in whatever order the two are compared; one that differs
/// may be.
#[test]
fn what_equals_an_address_that_is_not_null() {
    let two = format!("{LOOKUP}r6 = r0\n{LOOKUP}r7 = r0\nif r6 == 0 goto out\n");
    for compared in ["if r6 != r7 goto out\n", "if r7 != r6 goto out\n", "if r7 == r6 goto +1\ngoto out\n"] {
        proof(&format!("{two}{compared}r0 = *(u32 *)(r7 + 12)\n{OUT}"));
    }
    // The lower halves, or an order, tell nothing.
    for unknown in ["if w6 != w7 goto out\n", "if r6 s> r7 goto out\n"] {
        let refused = refusal(&format!("{two}{unknown}r0 = *(u32 *)(r7 + 12)\n{OUT}"));
        assert!(refused.to_string().contains("which may be null"), "{refused}\n{unknown}");
    }
    for differs in ["if r6 == r7 goto out\n", "if r6 != r7 goto +1\ngoto out\n"] {
        let refused = refusal(&format!("{two}{differs}r0 = *(u32 *)(r7 + 12)\n{OUT}"));
        assert!(refused.to_string().contains("which may be null"), "{refused}\n{differs}");
    }
    // Two that both may be null are equal where both are.
    let either = two.replace("if r6 == 0 goto out\n", "");
    let refused = refusal(&format!("{either}if r6 != r7 goto out\nr0 = *(u32 *)(r7 + 12)\n{OUT}"));
    assert!(refused.to_string().contains("which may be null"), "{refused}");
}
