// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is refused, where, and in which words.

use super::*;

/// Code, the instruction that is refused, and a part of the words.
pub(super) fn check(cases: &[(&str, usize, &str)]) {
    for (text, insn, part) in cases {
        let refusal = refusal(text);
        let said = refusal.to_string();
        assert_eq!(refusal.insn, *insn, "{said}\n{text}");
        assert!(said.contains(part), "`{said}` does not say `{part}`\n{text}");
    }
}

#[test]
fn memory() {
    check(&[
        (
            "r0 = *(u64 *)(r10 + 0)\nexit",
            0,
            "read of 8 bytes at the end of the stack, expected bytes -512 to -1 of the stack",
        ),
        ("*(u64 *)(r10 - 520) = 0\nr0 = 0\nexit", 0, "write of 8 bytes at the stack - 520"),
        ("*(u64 *)(r10 - 12) = r1\nr0 = 0\nexit", 0, "in 8 bytes, at a multiple of 8"),
        ("r2 = *(u32 *)(r1 + 0)\nr0 = *(u8 *)(r2 + 0)\nexit", 1, "one that a comparison with `data_end` has shown"),
        ("r0 = *(u8 *)(r1 + 0)\nexit", 0, "a field of `struct xdp_md`"),
        ("r0 = *(u32 *)(r1 + 20)\nexit", 0, "a field of `struct xdp_md`"),
        ("*(u32 *)(r1 + 0) = 0\nr0 = 0\nexit", 0, "the context cannot be written"),
        ("r2 = 0\nr0 = *(u8 *)(r2 + 0)\nexit", 1, "`r2` is a number, 0, expected an address"),
        ("r2 = map[table] ll\nr0 = *(u8 *)(r2 + 0)\nexit", 2, "memory that programs may access"),
    ]);
    let lookup = |rest: &str| format!("{LOOKUP}{rest}\n{OUT}");
    check(&[
        (&lookup("r0 = *(u8 *)(r0 + 0)"), 6, "which may be null, expected one that was compared with 0"),
        (&lookup("if r0 == 0 goto out\nr0 = *(u64 *)(r0 + 9)"), 7, "expected one of its 16 bytes"),
        (&lookup("if r0 != 0 goto out\nr0 = *(u64 *)(r0 + 0)"), 7, "`r0` is a number, 0"),
    ]);
}

#[test]
fn packets_after_they_were_moved() {
    let text = format!("{PACKET}r1 = r9\nr2 = -4\ncall xdp_adjust_head\nr0 = *(u8 *)(r6 + 0)\n{OUT}");
    check(&[(&text, 9, "the call at 8 moved the packet")]);
}

/// What was moved by a number out of the packet may lie behind the end before it is compared with that: both ways are
/// walked.
#[test]
fn behind_the_end() {
    let text = format!(
        "{PACKET}r3 = *(u8 *)(r6 + 0)\nr4 = r6\nr4 += r3\nif r4 > r7 goto bad\ngoto out\nbad: r0 = *(u8 *)(r6 + 99)\n{OUT}"
    );
    check(&[(&text, 11, "expected the 34 bytes that a comparison with `data_end` has shown")]);
    // Nor is the distance to the end a number of bytes that are there, before its sign is known.
    let distance = |bound: &str| {
        format!(
            "{PACKET}r3 = *(u8 *)(r6 + 0)\nr4 = r6\nr4 += r3\nr5 = r7\nr5 -= r4\n{bound}\nr0 = *(u8 *)(r4 + 9)\n{OUT}"
        )
    };
    check(&[(&distance("if r5 < 10 goto out"), 12, "expected one that a comparison with `data_end` has shown")]);
    proof(&distance("if r5 s< 10 goto out"));
    // Packets may be longer than what their headers can say.
    let long = format!("{PACKET}r5 = r7\nr5 -= r6\nif r5 <= 0xffff goto out\nr0 = *(u8 *)(r6 + 99)\n{OUT}");
    assert_eq!(proof(&long.replace("99", "33")).dead().count(), 0);
}

/// They fault on most machines, or are not atomic, and the kernel refuses them wherever they are.
#[test]
fn atomic_operations_between_words() {
    check(&[
        (
            "*(u64 *)(r10 - 16) = 0\n*(u64 *)(r10 - 8) = 0\nr1 = 1\nlock *(u64 *)(r10 - 12) += r1\nr0 = 0\nexit",
            3,
            "expected a multiple of 8, which atomic operations need",
        ),
        (
            &format!(
                "{LOOKUP}if r0 == 0 goto out\nr1 = *(u8 *)(r0 + 0)\nr1 &= 6\nr0 += r1\nlock *(u32 *)(r0 + 0) += w1\n{OUT}"
            ),
            10,
            "expected a multiple of 4, which atomic operations need",
        ),
    ]);
    proof(&format!(
        "{LOOKUP}if r0 == 0 goto out\nr1 = *(u8 *)(r0 + 0)\nr1 &= 8\nr0 += r1\nlock *(u64 *)(r0 + 0) += r1\n{OUT}"
    ));
}

#[test]
fn numbers_without_bounds() {
    let text =
        format!("{LOOKUP}if r0 == 0 goto out\nr6 = r0\ncall ktime_get_ns\nr6 += r0\nr0 = *(u8 *)(r6 + 0)\n{OUT}");
    check(&[(&text, 9, "expected one that is bounded on both sides")]);
    check(&[
        ("r0 = r1\nr0 *= 2\nexit", 1, "`*=` on the context, expected a number added"),
        ("r0 += 1\nexit", 0, "`r0` is read, and was not written on this path"),
        ("call ktime_get_ns\nr0 = r1\nexit", 1, "`r1` is read"),
    ]);
}

#[test]
fn arguments() {
    check(&[
        (
            "r1 = 0\nr2 = 4\ncall xdp_adjust_head\nr0 = 0\nexit",
            2,
            "argument 1 of `xdp_adjust_head` is a number, 0, expected the context",
        ),
        (
            "r2 = r10\nr1 = map[ring] ll\ncall map_lookup_elem\nr0 = 0\nexit",
            3,
            "expected a map with values, of maps or of devices",
        ),
        ("r2 = r10\nr2 += -2\nr1 = map[table] ll\ncall map_lookup_elem\nr0 = 0\nexit", 4, "expected 4 bytes there"),
        (
            "r6 = r1\ncall ktime_get_ns\nr4 = r0\nr3 = r10\nr3 += -8\nr2 = 0\nr1 = r6\ncall xdp_load_bytes\nr0 = 0\nexit",
            7,
            "a length with a bound",
        ),
        (
            "r1 = map[ring] ll\ncall get_prandom_u32\nr2 = r0\nr3 = 0\nr1 = map[ring] ll\ncall ringbuf_reserve\nr0 = 0\nexit",
            7,
            "a constant, below 2^30",
        ),
    ]);
}

#[test]
fn what_is_acquired_is_released() {
    let reserve = "r1 = map[ring] ll\nr2 = 8\nr3 = 0\ncall ringbuf_reserve\n";
    check(&[
        (&format!("{reserve}r0 = 0\nexit"), 6, "a record is acquired at instruction 4 and not released"),
        (
            &format!("{reserve}if r0 == 0 goto +3\nr1 = r0\nr2 = 0\ncall ringbuf_submit\nr1 = r0\nr0 = 0\nexit"),
            9,
            "`r0` is read",
        ),
        (
            &format!(
                "{reserve}r6 = r0\nif r0 == 0 goto out\nr1 = r6\nr2 = 0\ncall ringbuf_submit\n*(u8 *)(r6 + 0) = 1\n{OUT}"
            ),
            10,
            "`r6` is a number, once an address in a record: the call at 9 released it",
        ),
    ]);
    let mut locked = program(&format!("{LOOKUP}if r0 == 0 goto out\nr6 = r0\nr1 = r6\ncall spin_lock\n{OUT}"));
    locked.maps[0].spin_lock = Some(0);
    assert_eq!(verified(&locked).unwrap_err().what, Unsafe::NotReleased { what: "a lock", acquired: 9 });
}

/// The key that one iteration of a callback gets is gone in the next.
#[test]
fn keys_after_their_iteration() {
    let text = "r1 = map[table] ll\nr2 = subprog[f] ll\nr3 = r10\nr3 += -8\n*(u64 *)(r10 - 8) = r10\nr4 = 0\n\
                call for_each_map_elem\nr0 = *(u64 *)(r10 - 8)\nr0 = *(u8 *)(r0 - 1)\nexit\n\
                f: *(u64 *)(r4 + 0) = r2\nr0 = 0\nexit";
    check(&[(text, 10, "`r0` is a number, once an address in a key: its callback ended at 14, expected an address")]);
}

#[test]
fn loops_without_end() {
    check(&[
        ("r0 = 0\nagain: r0 = 0\ngoto again\nexit", 1, "the loop is endless"),
        ("again: call get_prandom_u32\nif r0 != 7 goto again\nr0 = 0\nexit", 0, "the loop is endless"),
    ]);
    // The bound of an inner loop does not bound the outer one.
    const CALLED: &str = "r1 = 2\nr2 = subprog[f] ll\nr3 = 0\nr4 = 0\ncall loop\n";
    for text in [
        "r0 = 0\nagain: may_goto out\ngoto again\nout: goto again\nexit",
        "r6 = 0\nagain: r6 += 1\ninner: may_goto out\ngoto inner\nout: goto again\nexit",
        "again: call f\ngoto again\nexit\nf: r0 = 0\nmay_goto +1\ngoto -2\nexit",
        &format!("again: {CALLED}goto again\nexit\nf: r0 = 0\nexit"),
        &format!("r6 = 0\nagain: r6 += 1\n{CALLED}goto again\nexit\nf: r0 = 0\nexit"),
        &format!(
            "again: {CALLED}r1 = 0\nr1 = 0\nr1 = 0\nif r1 == 1 goto +0\nif r1 == 1 goto +0\ngoto again\nexit\nf: r0 = 0\nexit"
        ),
    ] {
        let found = refusal(text).what;
        assert!(matches!(found, Unsafe::Endless | Unsafe::TooManyPaths { .. }), "{found}\n{text}");
    }
    let counting = refusal("r0 = 0\nagain: r0 += 1\nr1 = r0\nif r1 != 0 goto again\nexit");
    assert_eq!(counting.what, Unsafe::TooLong { limit: 1_000_000 });
}

/// No bytes at all are wanted, of something that has none.
#[test]
fn no_bytes_of_what_has_none() {
    let call = |of: &str| {
        format!(
            "r1 = {of}\nr2 = 0\nr3 = r10\nr3 += -8\nr4 = 4\nr5 = 0\n*(u64 *)(r3 + 0) = 0\ncall csum_diff\nr0 = 2\nexit"
        )
    };
    let found = |of: &str| verified(&program(&call(of))).err().map(|refusal| refusal.to_string());
    for of in ["0", "r10"] {
        assert_eq!(found(of), None);
    }
    for of in ["r1", "7"] {
        assert!(found(of).is_some_and(|what| what.contains("argument 1 of `csum_diff` is")), "{of}");
    }
}

#[test]
fn calls_too_deep_and_bad_answers() {
    check(&[
        ("call f\nexit\nf: call f\nexit", 2, "functions are nested more than 8 deep"),
        ("call f\nr0 = *(u8 *)(r0 + 0)\nexit\nf: r0 = r10\nexit", 4, "a function returns an address of its own stack"),
        (
            "r1 = 4\nr2 = subprog[f] ll\nr3 = 0\nr4 = 0\ncall loop\nr0 = 0\nexit\nf: r0 = 2\nexit",
            9,
            "a callback returns a number, 2, expected 0 or 1",
        ),
        (
            "r1 = 4\nr2 = subprog[f] ll\nr3 = r10\nr4 = 0\ncall loop\nr0 = 0\nexit\nf: r2 += r1\n*(u8 *)(r2 - 2) = 0\nr0 = 0\nexit",
            9,
            "write of 1 byte at the caller's stack",
        ),
    ]);
}

/// Every step of the path, what the registers hold and what would help.
#[test]
fn a_refusal_explains_itself() {
    let text = format!("{PACKET}r3 = *(u8 *)(r6 + 12)\nif r3 != 8 goto out\nr0 = *(u16 *)(r6 + 34)\n{OUT}");
    let details = refusal(&text).details();
    for part in [
        "found: read of 2 bytes at the packet + 34 (of which 34 bytes are known to be there)\n",
        "expected: the 34 bytes that a comparison with `data_end` has shown to be there\n",
        "help: compare `data` + 36 or more with `data_end` first, and leave if it is larger\n",
        "  f.bpf:11 `if r2 > r7 goto out`: instruction 5 falls through, on to line 12\n",
        "  f.bpf:13 `if r3 != 8 goto out`: instruction 7 falls through, on to line 14\n",
        "  r3: a number, 8\n",
        "  r6: the packet (of which 34 bytes are known to be there)\n",
    ] {
        assert!(details.contains(part), "`{part}` is missing:\n{details}");
    }
}

/// A branch is told with its instruction, unless its line is that.
#[test]
fn branches_of_one_line_are_told_apart() {
    let turn = |insn, text: &str, line: &str| {
        let line = flowloom_isa::LineInfo { insn, file: "f".to_owned(), text: line.to_owned(), line: 14, column: 0 };
        Turn { insn, text: text.to_owned(), taken: false, to: Some(line.clone()), line: Some(line) }.to_string()
    };
    for (insn, text) in [(5, "if r3 > r2 goto +8"), (7, "if w4 != 8 goto +6"), (9, "may_goto +2")] {
        let told = turn(insn, text, "\tif (a && b)");
        assert_eq!(told, format!("f:14 `if (a && b)`: instruction {insn} `{text}` falls through, on to line 14"));
    }
    for (text, line, way) in [
        ("if r3 > r2 goto +8", "if r3 > r2 goto out ; none", "falls through"),
        ("may_goto +2", "again: may_goto out", "falls through"),
        ("call loop", "call loop", "is done"),
    ] {
        assert_eq!(turn(5, text, line), format!("f:14 `{line}`: instruction 5 {way}, on to line 14"));
    }
}

/// Iterations are printed once, and calls, and where the packet was moved.
#[test]
fn a_path_is_told_briefly() {
    let counting = refusal("r0 = 0\nagain: r0 += 1\nr1 = r0\nif r1 != 0 goto again\nexit");
    let [leg] = counting.path.as_slice() else { panic!("{:?}", counting.path) };
    assert!(leg.times > 300_000 && leg.turns.len() == 1 && counting.earlier == 0, "{}", counting.details());
    let text = "r6 = *(u32 *)(r1 + 0)\nr7 = r1\nr2 = 4\ncall xdp_adjust_head\nr1 = r6\ncall f\nexit\nf: r0 = *(u8 *)(r1 + 0)\nexit";
    let before = refusal(text).before;
    let told: Vec<_> = before.iter().map(|before| (before.what, before.insn)).collect();
    assert_eq!(told, [("the packet was moved at", 3), ("called at", 5)]);
}

/// The instruction that invalidated an address, and what helps.
#[test]
fn invalid_addresses_have_a_reason() {
    let record =
        "r1 = map[ring] ll\nr2 = 8\nr3 = 0\ncall ringbuf_reserve\nif r0 == 0 goto out\nr6 = r0\nr1 = r0\nr2 = 0\n";
    let released = |insn| ("the record was released at", insn);
    let once = "submit or discard a record once";
    let cases = [
        (format!("{record}call ringbuf_submit\n*(u64 *)(r6 + 0) = 1\n{OUT}"), 10, released(9), once),
        (format!("{record}call ringbuf_discard\nr0 = *(u64 *)(r6 + 0)\n{OUT}"), 10, released(9), once),
        (format!("{record}call ringbuf_submit\nr1 = r6\nr2 = 0\ncall ringbuf_submit\n{OUT}"), 12, released(9), once),
        (
            format!("{record}r6 += 4\n*(u64 *)(r10 - 8) = r6\ncall ringbuf_submit\nr6 = *(u64 *)(r10 - 8)\nr7 = r6\nr0 = 0\nlock *(u32 *)(r7 + 0) += w0\n{OUT}"),
            15,
            released(11),
            once,
        ),
        (
            format!("{record}call ringbuf_submit\nr3 = 4\nr2 = r6\nr4 = 0\nr1 = map[ring] ll\ncall ringbuf_output\n{OUT}"),
            15,
            released(9),
            once,
        ),
        (
            format!("{PACKET}r1 = r9\nr2 = -4\ncall xdp_adjust_head\nr2 = r6\nr1 = map[table] ll\ncall map_lookup_elem\n{OUT}"),
            12,
            ("the packet was moved at", 8),
            "read `data` and `data_end` again",
        ),
        (
            "r1 = map[table] ll\nr2 = subprog[f] ll\nr3 = r10\nr3 += -8\n*(u64 *)(r10 - 8) = r10\nr4 = 0\ncall for_each_map_elem\n\
             r2 = *(u64 *)(r10 - 8)\nr0 = *(u32 *)(r2 - 4)\nr0 = 0\nexit\n\
             f: *(u64 *)(r4 + 0) = r2\nr0 = 0\nexit"
                .to_owned(),
            10,
            ("the callback of the key ended at", 15),
            "copy the key while the callback runs",
        ),
    ];
    for (text, insn, before, help) in cases {
        let refusal = refusal(&text);
        let details = refusal.details();
        let told: Vec<_> = refusal.before.iter().map(|before| (before.what, before.insn)).collect();
        assert_eq!((refusal.insn, told.as_slice()), (insn, [before].as_slice()), "{details}\n{text}");
        assert!(refusal.help.is_some_and(|said| said.contains(help)), "{details}\n{text}");
    }
}

/// For each way of being unsafe, what would help there.
#[test]
fn help_is_about_what_was_found() {
    let lookup = |rest: &str| format!("{LOOKUP}{rest}\n{OUT}");
    let value = |rest: &str| lookup(&format!("if r0 == 0 goto out\n{rest}"));
    let cases = [
        ("r0 = *(u64 *)(r10 + 0)\nexit".to_owned(), "begin 8 bytes before that"),
        ("*(u64 *)(r10 - 520) = 0\nr0 = 0\nexit".to_owned(), "a function has 512 bytes of stack"),
        ("*(u32 *)(r1 + 0) = 0\nr0 = 0\nexit".to_owned(), "write to the packet at `data`"),
        ("r0 = *(u32 *)(r1 + 20)\nexit".to_owned(), "section `xdp/devmap`"),
        ("r2 = *(u32 *)(r1 + 0)\nr0 = *(u8 *)(r2 - 1)\nexit".to_owned(), "may not access bytes before `data`"),
        ("r2 = *(u32 *)(r1 + 8)\nr0 = *(u8 *)(r2 + 3)\nexit".to_owned(), "compare `data_meta` + 4 or more with `data` first"),
        (lookup("r0 = *(u8 *)(r0 + 0)"), "there may be no such key"),
        (value("r0 = *(u64 *)(r0 + 9)"), "keep the offset within 0 to 8 (here it is 9)"),
        (
            value("r6 = r0\ncall ktime_get_ns\nr0 &= 31\nr6 += r0\nr0 = *(u32 *)(r6 + 0)"),
            "keep the offset within 0 to 12 (here it is 0 to 31): by a comparison",
        ),
        (lookup("if r0 != 0 goto out\nr0 = *(u64 *)(r0 + 0)"), "the address is null on this path"),
        ("call ktime_get_ns\nr0 = r1\nexit".to_owned(), "calls clobber `r1` to `r5`"),
        ("r2 = r10\nr2 += -2\nr1 = map[table] ll\ncall map_lookup_elem\nr0 = 0\nexit".to_owned(), "have 4 bytes"),
        (
            "r1 = map[ring] ll\nr2 = 8\nr3 = 0\ncall ringbuf_reserve\nr0 = 0\nexit".to_owned(),
            "`bpf_ringbuf_discard` on",
        ),
        (
            "r1 = map[ring] ll\nr2 = 8\nr3 = 0\ncall ringbuf_reserve\n*(u8 *)(r0 + 0) = 1\nexit".to_owned(),
            "no room for a record",
        ),
        ("r0 = r1\nr0 *= 2\nexit".to_owned(), "only add numbers to addresses"),
        (
            "r6 = r1\ncall get_prandom_u32\nif r0 == 0 goto +2\nr6 = r10\nr6 += -8\nr0 = *(u32 *)(r6 + 0)\nr0 = 2\nexit"
                .to_owned(),
            "with an instruction of its own",
        ),
        (value("r6 = r0\ncall ktime_get_ns\nr6 += r0\nr0 = *(u8 *)(r6 + 0)"), "on both sides"),
    ];
    for (text, part) in cases {
        let refusal = refusal(&text);
        let help = refusal.help.clone().unwrap_or_default();
        assert!(help.contains(part), "`{help}` does not say `{part}`\n{refusal}\n{text}");
    }
}

/// Maps that programs may not change, or not read; places besides a lock.
#[test]
fn help_is_about_the_map() {
    use flowloom_isa::{BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG};
    let help = |change: &dyn Fn(&mut flowloom_isa::MapDef), access: &str| {
        let mut program = program(&format!("{LOOKUP}if r0 == 0 goto out\nr1 = 1\n{access}\n{OUT}"));
        change(&mut program.maps[0]);
        verified(&program).expect_err(access).help.unwrap()
    };
    let sealed = "do that in user space, or create the map without that flag";
    assert_eq!(help(&|map| map.flags = BPF_F_RDONLY_PROG, "*(u32 *)(r0 + 0) = 1"), sealed);
    assert_eq!(help(&|map| map.flags = BPF_F_WRONLY_PROG, "r1 = *(u32 *)(r0 + 0)"), sealed);
    assert_eq!(help(&|map| map.flags = BPF_F_WRONLY_PROG, "lock *(u32 *)(r0 + 0) += w1"), sealed);
    assert_eq!(
        help(&|map| (map.kind, map.value_bytes) = (MapKind::DevmapHash, 8), "*(u32 *)(r0 + 0) = 1"),
        "do that in user space"
    );
    let lock = help(&|map| map.spin_lock = Some(4), "r1 = *(u32 *)(r0 + 4)");
    assert!(lock.starts_with("skip its bytes"), "{lock}");
}

#[test]
fn a_callback_ends_without_a_lock() {
    let text = "*(u32 *)(r10 - 4) = 1\nr1 = 9\nr2 = subprog[f] ll\nr3 = 0\nr4 = 0\ncall loop\nr0 = 2\nexit\n\
                f: *(u32 *)(r10 - 4) = 1\nr2 = r10\nr2 += -4\nr1 = map[table] ll\ncall map_lookup_elem\nif r0 == 0 goto over\nr1 = r0\n\
                call spin_lock\nover: r0 = 0\nexit";
    let mut locked = program(text);
    locked.maps[0].spin_lock = Some(0);
    assert_eq!(verified(&locked).unwrap_err().what, Unsafe::NotReleased { what: "a lock", acquired: 17 });
}
