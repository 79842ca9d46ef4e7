// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What compilers make of safe programs.

use super::*;

#[test]
fn packets_are_compared_with_their_end_in_any_shape() {
    for check in [
        "r2 = r6\nr2 += 14\nif r2 > r7 goto out",
        "r2 = r6\nr2 += 13\nif r2 >= r7 goto out",
        "r2 = r6\nr2 += 14\nif r7 < r2 goto out",
        "r2 = r6\nr2 += 13\nif r7 <= r2 goto out",
        "r2 = r6\nr2 += 14\nif r2 <= r7 goto +1\ngoto out",
        "r2 = r6\nr2 += 14\nif r7 >= r2 goto +1\ngoto out",
        "r2 = r6\nr2 += 13\nif r2 < r7 goto +1\ngoto out",
        "r2 = r7\nr2 -= r6\nif r2 < 14 goto out",
        "r2 = r7\nr2 -= r6\nif r2 s<= 13 goto out",
        "r2 = r7\nr2 -= r6\nr2 += -14\nif r2 s< 0 goto out",
        "r2 = r7\nr2 -= r6\nif w2 < 14 goto out",
    ] {
        let text = format!(
            "r6 = *(u32 *)(r1 + 0)\nr7 = *(u32 *)(r1 + 4)\n{check}\nr0 = *(u16 *)(r6 + 12)\nr0 &= 1\nexit\n{OUT}"
        );
        assert_eq!(proof(&text).window(), 14, "{check}");
        // One byte further is not there.
        let further = text.replace("(r6 + 12)", "(r6 + 13)");
        assert!(matches!(refusal(&further).what, Unsafe::Access { .. }), "{check}");
    }
}

/// What was shown before is shown again, of what was read since.
#[test]
fn room_that_is_known_already() {
    let text = format!(
        "{PACKET}r8 = *(u32 *)(r9 + 0)\nr3 = r7\nr3 -= r6\nr3 -= 8\nif r3 s< 0 goto out\nr0 = *(u8 *)(r8 + 7)\nr0 &= 1\nexit\n{OUT}"
    );
    proof(&text);
    refusal(&text.replace("r8 + 7", "r8 + 34"));
}

#[test]
fn lengths_out_of_the_packet_lead_further_into_it() {
    let text = format!(
        "{PACKET}r3 = *(u8 *)(r6 + 14)
r3 &= 15
r3 <<= 2
r3 += 14
r6 += r3
r2 = r6
r2 += 8
if r2 > r7 goto out
r0 = *(u16 *)(r6 + 6)
{OUT}"
    );
    let proof = proof(&text);
    let load = proof.insns.iter().rposition(|known| known.memory.contains_key(&Memory::Packet)).unwrap();
    let bytes = proof.insns[load].memory[&Memory::Packet];
    // 14 + 4 * 0..=15 + 6, two bytes.
    assert_eq!((bytes.first, bytes.end, bytes.align), (20, 82, 2));
}

#[test]
fn numbers_are_bounded_by_masks_and_by_comparisons() {
    for bound in [
        "r3 &= 15",
        "if r3 > 15 goto out",
        "w3 &= 15",
        "r3 s>>= 59\nif r3 s< 0 goto out",
        "r3 >>= 60",
        "if r3 s> 15 goto out\nif r3 s< 0 goto out",
        "r4 = r3\nif r4 > 15 goto out",
        "*(u64 *)(r10 - 16) = r3\nif r3 > 15 goto out\nr3 = *(u64 *)(r10 - 16)",
        "r4 = r3\nr4 += 1\nif r4 > 16 goto out\nif r4 == 0 goto out",
    ] {
        let text = format!(
            "{LOOKUP}if r0 == 0 goto out\nr6 = r0\ncall ktime_get_ns\nr3 = r0\n{bound}\nr6 += r3\n\
             r0 = *(u8 *)(r6 + 0)\nr0 &= 1\nexit\n{OUT}"
        );
        proof(&text);
        refusal(&text.replace("(r6 + 0)", "(r6 + 1)"));
    }
}

#[test]
fn loops_end_and_have_trip_counts() {
    let text = "r0 = 0\nr1 = 0\nagain: r0 += r1\nr1 += 1\nif r1 < 10 goto again\nr0 &= 1\nexit";
    assert_eq!(proof(text).loops, [(2, Some(9))].into());
    let nested =
        "r1 = 0\nouter: r2 = 0\ninner: r2 += 1\nif r2 < 5 goto inner\nr1 += 1\nif r1 < 3 goto outer\nr0 = 0\nexit";
    assert_eq!(proof(nested).loops, [(1, Some(2)), (2, Some(4))].into());
    // A function comes back from wherever it stands, and its loop begins anew each time.
    let called = "r1 = 0\ncall f\ncall f\nr0 = 0\nexit\nf: r2 = 0\nr0 = 0\nagain: r2 += 1\nif r2 < 5 goto again\nexit";
    assert_eq!(proof(called).loops, [(7, Some(4))].into());
    // Code that is laid out backwards is no loop.
    let text = "goto last\nfirst: r0 = 1\nexit\nlast: goto first";
    assert!(proof(text).loops.is_empty());
    // How often is read from the packet, and at most.
    let text = format!(
        "{PACKET}r3 = *(u8 *)(r6 + 0)\nr3 &= 7\nr4 = 0\nagain: if r4 >= r3 goto out\nr4 += 1\ngoto again\n{OUT}"
    );
    assert_eq!(proof(&text).loops.values().copied().collect::<Vec<_>>(), [Some(7)]);
}

#[test]
fn functions_and_callbacks_see_what_they_are_given() {
    proof(&format!(
        "{PACKET}r1 = r6\nr2 = r10\nr2 += -8\n*(u64 *)(r10 - 8) = 0\ncall f\nr0 = *(u64 *)(r10 - 8)\nr0 &= 1\nexit\n{OUT}\
         f: r3 = *(u8 *)(r1 + 33)\n*(u64 *)(r2 + 0) = r3\nexit"
    ));
    let counting = "r1 = 100\nr2 = subprog[f] ll\nr3 = r10\nr3 += -8\n*(u64 *)(r10 - 8) = 0\nr4 = 0\ncall loop\n\
        r0 = *(u64 *)(r10 - 8)\nr0 &= 1\nexit\n\
        f: r3 = *(u64 *)(r2 + 0)\nr3 += r1\n*(u64 *)(r2 + 0) = r3\nr0 = 0\nexit";
    proof(counting);
    let each = "r1 = map[table] ll\nr2 = subprog[f] ll\nr3 = 0\nr4 = 0\ncall for_each_map_elem\nr0 = 0\nexit\n\
        f: r5 = *(u32 *)(r2 + 0)\n*(u32 *)(r3 + 12) = r5\nr0 = 0\nexit";
    proof(each);
}

#[test]
fn records_and_tail_calls() {
    proof(
        "r6 = r1\nr1 = map[ring] ll\nr2 = 24\nr3 = 0\ncall ringbuf_reserve\nif r0 == 0 goto out\n*(u64 *)(r0 + 16) = 1\n\
         r1 = r0\nr2 = 0\ncall ringbuf_submit\nout: r1 = r6\nr2 = map[programs] ll\nr3 = 1\ncall tail_call\nr0 = 2\nexit",
    );
}

#[test]
fn paths_that_differ_in_what_does_not_matter_are_walked_once() {
    // 40 branches in a row: 2^40 paths.
    let mut text = "r6 = 0\n".to_owned();
    for number in 0..40 {
        text += &format!("call get_prandom_u32\nif r0 > {number} goto +1\nr6 += {number}\n");
    }
    text += "r0 = r6\nr0 &= 1\nexit";
    let proof = proof(&text);
    assert!(proof.processed < 4000, "{}", proof.processed);
}

/// A zero is spilled to nine slots and decides a branch out of one; eight may be overwritten. In those it does not
/// matter, and paths that differ there are walked once. The kernel's verifier takes 132 instructions.
#[test]
fn copies_of_a_number_that_matters() {
    let mut text = "r6 = r1\nr4 = 0\n".to_owned();
    (1..=9).for_each(|slot| text += &format!("*(u64 *)(r10 - {}) = r4\n", 8 * slot));
    for slot in 1..=8 {
        text += &format!("call ktime_get_ns\nif r0 == 7 goto write{slot}\ngoto next{slot}\nwrite{slot}: r3 = r0\n");
        text += &format!("r3 += 1\n*(u64 *)(r10 - {}) = r3\nnext{slot}: r0 = 0\n", 8 * slot);
    }
    text += "r3 = *(u64 *)(r10 - 72)\nif r3 == 1 goto out\nr0 = 0\n";
    (1..=8).for_each(|slot| text += &format!("r3 = *(u64 *)(r10 - {})\nr0 ^= r3\n", 8 * slot));
    let proof = proof(&format!("{text}r0 &= 1\nexit\n{OUT}"));
    assert!(proof.processed < 132 * 3 / 2, "{}", proof.processed);
}

/// A state is kept soon after a fork: short paths that meet are walked on from there once, and not each.
#[test]
fn short_paths_that_meet_are_walked_once() {
    let mut text = "r8 = *(u32 *)(r1 + 12)\nr0 = 0\n".to_owned();
    (0..5).for_each(|test| text += &format!("if r8 == {test} goto join\n"));
    text += "join: r0 = 1\n";
    text += &"r0 += 1\n".repeat(100);
    let proof = proof(&format!("{text}r0 &= 1\nexit\n"));
    assert!(proof.processed < 300, "{}", proof.processed);
}

/// A state that was compared in vain with the other values of a switch is still there when its own value comes again.
/// The kernel's verifier takes 2128 instructions.
#[test]
fn states_outlast_the_other_values_of_a_switch() {
    let mut text =
        "r8 = *(u32 *)(r1 + 12)\nr9 = *(u32 *)(r1 + 16)\nr7 = 0\nif r9 == 5 goto select\nr7 = 1\nselect: r0 = 0\n"
            .to_owned();
    (0..8).for_each(|value| text += &format!("r6 = {value}\nif r8 == {value} goto test\n"));
    text += "r6 = 8\ntest: r0 = 1\nif r7 == 3 goto out\n";
    text += &"r0 = 1\n".repeat(8);
    text += "if r8 == 99 goto tail\nr0 = 2\ntail: r0 = 1\n";
    text += &"r0 += 1\n".repeat(100);
    let proof = proof(&format!("{text}if r6 == 99 goto out\nr0 &= 1\nexit\n{OUT}"));
    assert!(proof.processed < 1500, "{}", proof.processed);
}

/// 3^1000 paths: those that fork in an iteration join where the next one begins.
#[test]
fn rounds_that_fork_are_walked_once() {
    let proof = proof(
        "r6 = 0\nround: call get_prandom_u32\nif r0 > 5 goto +1\nr7 = r0\ncall get_prandom_u32\nif r0 > 6 goto +1\nr8 = r0\n\
         r1 = 1\nr1 = 2\nr6 += 1\nif r6 < 1000 goto round\nr0 = 2\nexit",
    );
    assert!(proof.processed < 100_000, "{}", proof.processed);
    assert_eq!(proof.loops[&1], Some(999));
}

#[test]
fn a_number_and_its_own_bits() {
    proof("r1 = 6\nif r1 & r1 goto out\nr0 = r2\nexit\nout: r0 = 2\nexit");
}

/// Iterations of a caller are not counted as those of a function that it calls in a loop.
#[test]
fn iterations_of_another_call() {
    let text = "call get_prandom_u32\nr9 = r0\nr8 = 5\nr1 = r9\nr2 = r8\ncall f\nr9 = 0\nround: r8 += 2\nr1 = r9\nr2 = r8\ncall f\n\
                r9 += 1\nif r9 < 5 goto round\nr0 = r8\nr0 &= 1\nexit\n\
                f: r8 = r1\nr9 = r2\n*(u64 *)(r10 - 8) = r8\nmay_goto +0\nw9 /= 417006923\nr1 = 4\nr2 = 0\ncall redirect\n\
                w8 -= w9\nr0 = r8\nexit";
    let proof = proof(text);
    assert!(proof.processed < 1000, "{}", proof.processed);
    assert_eq!(proof.loops[&7], Some(4));
}

/// The trip count of a loop that `may_goto` ends is unknown; those of loops inside and around it are known.
#[test]
fn rounds_that_only_time_ends() {
    let around = "r6 = 0\nouter: r7 = 0\ninner: may_goto done\nr7 += 1\ngoto inner\ndone: r6 += 1\nif r6 < 4 goto outer\nr0 = 2\nexit";
    assert_eq!(proof(around).loops, [(1, Some(3)), (2, None)].into());
    let timed = "r6 = 0\nr7 = 0\nagain: may_goto out\nr6 = 0\ninner: r6 += 1\nif r6 < 5 goto inner\nr7 += 1\ngoto again\n\
                 out: r0 = r7\nr0 &= 1\nexit";
    assert_eq!(proof(timed).loops, [(2, None), (4, Some(4))].into());
    // All its iterations are walked: the program ends it first.
    let counted = "r6 = 0\nagain: may_goto out\nr6 += 1\nif r6 < 5 goto again\nout: r0 = 2\nexit";
    assert_eq!(proof(counted).loops, [(1, Some(4))].into());
}

/// The iterations of a callback end with the helper: called again in a loop, it begins others.
#[test]
fn rounds_of_another_loop() {
    let text = "r7 = 0\nouter: r6 = 0\nagain: r1 = 2\nr2 = subprog[f] ll\nr3 = 0\nr4 = 0\ncall loop\n\
                r6 += 1\nif r6 < 3 goto again\nr7 += 1\nif r7 < 4 goto outer\nr0 = 2\nexit\nf: r0 = 0\nexit";
    assert_eq!(proof(text).loops, [(1, Some(3)), (2, Some(2))].into());
}

/// The loop of a function that calls itself in it goes on where it was.
#[test]
fn rounds_of_a_function_in_itself() {
    let text = "r1 = 0\ncall f\nr0 = 2\nexit\n\
                f: r6 = r1\nr7 = 0\nagain: r7 += 1\nif r7 != 3 goto on\nif r6 > 0 goto on\nr1 = 1\ncall f\non: if r7 < 6 goto again\nr0 = 0\nexit";
    assert_eq!(proof(text).loops, [(6, Some(5))].into());
}

/// Two paths enter a function whose loop ends early from its second iteration on, and one of them is followed by more
/// iterations of the caller's loop. What follows a repeated iteration follows paths that join later, too.
#[test]
fn iterations_after_iterations() {
    let functions = "f: r9 = r1\nr8 = r2\ncall get_prandom_u32\nr0 = 0\nr7 = 0\nhead: may_goto fin\nif r7 == 0 goto no\n\
        call get_prandom_u32\nif r0 & 1 goto ok\nno: r0 = 0\nr7 = 1\nr6 = 1\nr6 = 1\nr6 = 1\nr6 = 1\nr6 = 1\nr6 = 1\n\
        if r6 != 1 goto c\nr6 = 1\nc: *(u64 *)(r9 + 0) = 0\nr9 = r8\ngoto head\nfin: r0 = 1\nexit\nok: r0 = 0\nexit";
    let text = format!(
        "call get_prandom_u32\nr6 = 3\nr9 = r10\nr9 += -16\nr8 = r10\nr8 += -8\nif r0 & 1 goto a\ngoto outer\n\
         a: r6 = 2\nr9 = r8\nouter: r1 = r9\nr2 = r8\ncall f\nr9 = r8\nif r0 != 0 goto out\nr6 += 1\n\
         if r6 < 5 goto outer\nout: r0 = 2\nexit\n{functions}"
    );
    assert_eq!(proof(&text).loops[&10], Some(2));
    let callback = "call get_prandom_u32\nr6 = 3\nr9 = r10\nr9 += -16\nr8 = r10\nr8 += -8\nif r0 & 1 goto a\ngoto outer\n\
        a: r6 = 2\nr9 = r8\nouter: *(u64 *)(r10 - 24) = r9\n*(u64 *)(r10 - 32) = r8\n*(u64 *)(r10 - 40) = 0\n\
        *(u64 *)(r10 - 48) = 0\nr1 = 5\nr2 = subprog[cb] ll\nr3 = r10\nr3 += -48\nr4 = 0\ncall loop\nr9 = r8\n\
        r0 = *(u64 *)(r10 - 40)\nif r0 == 0 goto out\nr6 += 1\nif r6 < 5 goto outer\nout: r0 = 2\nexit\n\
        cb: r6 = r2\nr7 = *(u64 *)(r6 + 0)\nif r7 == 0 goto no\ncall get_prandom_u32\nif r0 & 1 goto ok\n\
        no: *(u64 *)(r6 + 0) = 1\nr1 = 1\nr1 = 1\nr1 = 1\nr1 = 1\nr1 = 1\nr1 = 1\nif r1 != 1 goto c\nr1 = 1\n\
        c: r1 = *(u64 *)(r6 + 24)\n*(u64 *)(r1 + 0) = 0\nr1 = *(u64 *)(r6 + 16)\n*(u64 *)(r6 + 24) = r1\nr0 = 0\nexit\n\
        ok: *(u64 *)(r6 + 8) = 1\nr0 = 1\nexit";
    assert_eq!(proof(callback).loops[&10], Some(2));
}

/// Where metadata begins says nothing before it was compared with the packet's first byte.
#[test]
fn metadata_may_be_out_of_place() {
    let text = "r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 8)\nif r3 > r2 goto none\nr0 = 2\nexit\nnone: r0 = 1\nexit";
    assert_eq!(proof(text).insns[2].edges, Edges { jumps: true, falls: true });
}

/// Of an array every value is there: a key that is known, and small enough, gives no null.
#[test]
fn arrays_have_all_their_values() {
    let lookup = |key: &str, rest: &str| {
        format!("{key}\nr2 = r10\nr2 += -8\nr1 = map[numbers] ll\ncall map_lookup_elem\n{rest}r0 = 2\nexit")
    };
    let array = |text: &str| {
        let text = format!(".program f\n.map numbers array key 4 value 8 entries 4\n{text}");
        verify(&asm::program("f.bpf", &text).unwrap(), &Options::default())
    };
    let read = "r1 = *(u64 *)(r0 + 0)\n";
    let some = "call get_prandom_u32\nr0 &= 3\n*(u32 *)(r10 - 8) = r0";
    for (key, is_there) in [
        ("*(u32 *)(r10 - 8) = 3", true),
        ("*(u64 *)(r10 - 8) = 0", true),
        ("*(u64 *)(r10 - 8) = 3", true),
        ("*(u32 *)(r10 - 8) = 4", false),
        (some, false),
    ] {
        assert_eq!(array(&lookup(key, read)).is_ok(), is_there, "{key}");
    }
    // The comparison that compilers leave in is decided.
    let checked = array(&lookup("*(u32 *)(r10 - 8) = 3", &format!("if r0 == 0 goto +1\n{read}"))).unwrap();
    assert_eq!(checked.insns[6].edges, Edges { jumps: false, falls: true });
    // Two keys, one of which is too large: the first way does not speak for the other.
    let either = "call get_prandom_u32\n*(u32 *)(r10 - 8) = 3\nif r0 == 1 goto +1\ngoto join\n*(u32 *)(r10 - 8) = 9\ngoto join\njoin: r0 = 0\n\
                  r1 = 1\nr1 = 2\nr1 = 3\nr1 = 4\nr1 = 5\nr1 = 6\nr1 = 7\nr1 = 8";
    assert!(array(&lookup(either, read)).is_err());
}
