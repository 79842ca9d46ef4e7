// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults: each stops with its instruction and message.

use super::*;

#[test]
fn accesses_outside() {
    const CONTEXT: &str = " of the context, expected a 4-byte read of a field of `struct xdp_md`";
    const PACKET: &str = " of the packet, expected within 0 to 60 bytes";
    const STACK: &str = " of the stack, expected within 0 to 512 bytes";
    const VALUE: &str = " of a value of map `array`, expected within 0 to 8 bytes";
    const NOWHERE: &str = ", which is no address of the program's memory";
    const READ_ONLY: &str = ", which programs may only read";
    let packet = "r1 = *(u32 *)(r1 + 0)\n";
    let value = "*(u32 *)(r10 - 4) = 1\nr2 = r10\nr2 += -4\nr1 = map[array] ll\ncall 1\n";
    for (start, text, insn, what, place) in [
        (packet, "r0 = *(u8 *)(r1 + 60)", 1, "1-byte read at byte 60", PACKET),
        (packet, "r0 = *(u64 *)(r1 + 53)", 1, "8-byte read at byte 53", PACKET),
        (packet, "r0 = *(u8 *)(r1 - 1)", 1, "1-byte read at byte -1", PACKET),
        (packet, "*(u16 *)(r1 + 59) = 0", 1, "2-byte write at byte 59", PACKET),
        (
            packet,
            "r2 = 1\nlock *(u32 *)(r1 + 0) += w2",
            2,
            "atomic operation in the packet, expected one on the stack or in a map's value",
            "",
        ),
        ("", "r0 = *(u8 *)(r10 + 0)", 0, "1-byte read at byte 512", STACK),
        ("", "*(u64 *)(r10 - 520) = 0", 0, "8-byte write at byte -8", STACK),
        ("", "*(u64 *)(r10 - 4) = 0", 0, "8-byte write at byte 508", STACK),
        (
            "",
            "*(u32 *)(r10 - 8) = 0\nr0 = *(u64 *)(r10 - 8)",
            1,
            "8-byte read at byte 504 of the stack, of which byte 508 was never written",
            "",
        ),
        (
            "",
            "r2 = 1\nlock *(u64 *)(r10 - 8) += r2",
            1,
            "8-byte read at byte 504 of the stack, of which byte 504 was never written",
            "",
        ),
        (
            "",
            "call f\nr0 = *(u64 *)(r0 - 8)\nexit\nf: *(u64 *)(r10 - 8) = 1\nr0 = r10",
            1,
            "8-byte read at 0x20000000281f8",
            NOWHERE,
        ),
        // The second call does not find values of the first one on the stack.
        (
            "",
            "r1 = 0\ncall f\nr1 = 1\ncall f\nexit\nf: if r1 != 0 goto g\n*(u64 *)(r10 - 8) = 1\nr0 = 0\nexit\ng: r0 = *(u64 *)(r10 - 8)",
            9,
            "8-byte read at byte 504 of the stack, of which byte 504 was never written",
            "",
        ),
        ("", "r0 = *(u8 *)(r1 + 0)", 0, "1-byte read at byte 0", CONTEXT),
        ("", "r0 = *(u32 *)(r1 + 24)", 0, "4-byte read at byte 24", CONTEXT),
        ("", "r0 = *(u32 *)(r1 + 2)", 0, "4-byte read at byte 2", CONTEXT),
        ("", "r0 = *(s32 *)(r1 + 12)", 0, "4-byte read at byte 12", CONTEXT),
        ("", "*(u32 *)(r1 + 12) = 1", 0, "4-byte write at byte 12", CONTEXT),
        ("", "r2 = 1\nlock *(u32 *)(r1 + 12) += w2", 1, "4-byte atomic operation at byte 12", CONTEXT),
        (value, "r0 = *(u8 *)(r0 + 8)", 6, "1-byte read at byte 8", VALUE),
        (value, "*(u64 *)(r0 - 1) = 0", 6, "8-byte write at byte -1", VALUE),
        (value, "r0 += 512\nr0 = *(u8 *)(r0 + 0)", 7, "1-byte read at byte 0", VALUE),
        ("", "r1 = map[.rodata][0]+0 ll\n*(u8 *)(r1 + 0) = 1", 2, "write in map `.rodata`", READ_ONLY),
        (
            "",
            "r1 = map[.rodata][0]+0 ll\nr2 = 1\nlock *(u64 *)(r1 + 0) += r2",
            3,
            "atomic operation in map `.rodata`",
            READ_ONLY,
        ),
        (
            "",
            "r1 = map[.data][0]+12 ll\nr0 = *(u64 *)(r1 + 0)",
            2,
            "8-byte read at byte 12 of a value of map `.data`, expected within 0 to 16 bytes",
            "",
        ),
        ("", "r1 = 0\nr0 = *(u64 *)(r1 + 0)", 1, "8-byte read at 0x0", NOWHERE),
        ("", "w1 = w1\nr0 = *(u32 *)(r1 + 0)", 1, "4-byte read at 0x0", NOWHERE),
        ("", "r1 = map[hash] ll\nr0 = *(u8 *)(r1 + 0)", 2, "1-byte read at 0x4000000000000", NOWHERE),
        ("", "r1 = -1\nr0 = *(u8 *)(r1 + 0)", 1, "1-byte read at 0xffffffffffffffff", NOWHERE),
    ] {
        let found = r0(&format!("{start}{text}\nexit"));
        let expected = format!("engine `interp` stopped at instruction {insn}: {what}{place}");
        assert_eq!(found, Err(expected), "{start}{text}");
    }
}

#[test]
fn registers_that_were_never_written() {
    for (text, insn, reg) in [
        ("exit", 0, "r0"),
        ("r0 = r2\nexit", 0, "r2"),
        ("r0 += 1\nexit", 0, "r0"),
        ("w3 += w3\nexit", 0, "r3"),
        ("r4 = -r4\nexit", 0, "r4"),
        ("r4 = be16 r4\nexit", 0, "r4"),
        ("r0 = (s8)r5\nexit", 0, "r5"),
        ("r0 = *(u8 *)(r6 + 0)\nexit", 0, "r6"),
        ("*(u8 *)(r10 - 1) = r7\nexit", 0, "r7"),
        ("*(u8 *)(r7 - 1) = 0\nexit", 0, "r7"),
        ("if r8 == 0 goto +0\nexit", 0, "r8"),
        ("if r1 == r9 goto +0\nexit", 0, "r9"),
        ("lock *(u64 *)(r10 - 8) += r2\nexit", 0, "r2"),
        ("r2 = 1\nr0 = cmpxchg_64(r10 - 8, r0, r2)\nexit", 1, "r0"),
        ("call 5\nr0 = r1\nexit", 1, "r1"),
        ("call 1\nexit", 0, "r2"),
        ("r6 = 1\ncall f\nexit\nf: r0 = r6\nexit", 3, "r6"),
        ("r1 = 1\ncall f\nr0 = r1\nexit\nf: r0 = r1\nexit", 2, "r1"),
        ("call f\nexit\nf: exit", 1, "r0"),
    ] {
        let expected = format!("engine `interp` stopped at instruction {insn}: `{reg}` is read before it is written");
        assert_eq!(r0(text), Err(expected), "{text}");
    }
    // Helpers read as many registers as they have arguments, and always clobber r1-r5.
    for spoilt in 1..=5 {
        let text = format!("r{spoilt} = 1\ncall 8\nr0 = r{spoilt}\nexit");
        assert!(r0(&text).is_err(), "{text}");
    }
    assert_eq!(r0("r6 = 4\ncall 8\nr0 = r6\nexit"), Ok(4));
}

#[test]
fn helpers_with_wrong_arguments() {
    for (text, what) in [
        ("r1 = 1\nr2 = r10\ncall 1\nexit", "argument 1 of `map_lookup_elem` is 0x1, expected a map"),
        (
            "r1 = map[hash] ll\nr1 += 1\nr2 = r10\ncall 3\nexit",
            "argument 1 of `map_delete_elem` is 0x4000000000001, expected a map",
        ),
        (
            "r1 = map[hash] ll\nr1 += 0x7fffff00\nr2 = r10\ncall 3\nexit",
            "argument 1 of `map_delete_elem` is 0x400007fffff00, expected a map",
        ),
        (
            "r1 = map[hash] ll\nr2 = r10\nr2 += -4\ncall 1\nexit",
            "4-byte read at byte 508 of the stack, of which byte 508 was never written",
        ),
        (
            "r1 = map[hash] ll\nr2 = r10\nr2 += -2\ncall 1\nexit",
            "4-byte read at byte 510 of the stack, expected within 0 to 512 bytes",
        ),
        (
            "r2 = r1\nr1 = map[hash] ll\ncall 1\nexit",
            "4-byte read at byte 0 of the context, expected a 4-byte read of a field of `struct xdp_md`",
        ),
        (
            "r1 = map[hash] ll\nr2 = 0\nr3 = 0\ncall 51\nexit",
            "`redirect_map` on map `hash`, expected a map of devices, CPUs or sockets",
        ),
        (
            "*(u64 *)(r10 - 8) = 0\nr2 = r10\nr2 += -8\nr3 = r2\nr4 = 0\nr1 = map[ports] ll\ncall 2\nexit",
            "`map_update_elem` on map `ports`, expected one with values",
        ),
        (
            "*(u64 *)(r10 - 8) = 0\nr2 = r10\nr2 += -8\nr3 = r2\nr4 = 0\nr1 = map[.rodata] ll\ncall 2\nexit",
            "write in map `.rodata`, which programs may only read",
        ),
        (
            "*(u64 *)(r10 - 8) = 0\nr2 = r10\nr2 += -8\nr1 = map[ports] ll\ncall 1\n*(u8 *)(r0 + 0) = 1\nexit",
            "write in map `ports`, which programs may only read",
        ),
    ] {
        let found = r0(text).expect_err(text);
        let (_, found) = found.split_once(": ").unwrap();
        assert_eq!(found, what, "{text}");
    }
}

#[test]
fn too_deep_and_too_long() {
    let deep = "call f\nr0 = 0\nexit\nf: call f\nexit";
    assert_eq!(r0(deep), Err("engine `interp` stopped at instruction 3: calls are nested more than 8 deep".into()));
    let mut long = interp("r0 = 0\nexit").with_budget(2);
    assert_eq!(long.r0(&[]), Ok(0));
    let mut long = interp("a: r0 = 0\nr0 = 1\ngoto a").with_budget(100);
    let fault = "engine `interp` stopped at instruction 1: more than 100 instructions for one packet";
    assert_eq!(long.r0(&[]), Err(fault.into()));
    assert_eq!(long.executed(), 100);
}

#[test]
fn a_fault_names_the_source_line() {
    let mut program = program("r0 = 0\nr0 = *(u8 *)(r0 + 0)\nexit");
    let (file, text) = ("knock.efsm".to_owned(), "row".to_owned());
    program.lines.push(flowloom_isa::LineInfo { insn: 1, file, text, line: 12, column: 1 });
    let fault = Interpreter::new(Arc::new(program)).unwrap().r0(&[]).expect_err("address 0");
    assert!(fault.ends_with("no address of the program's memory (knock.efsm:12)"), "{fault}");
}

#[test]
fn a_fault_leaves_the_engine_usable() {
    let mut interp = interp("r1 = *(u32 *)(r1 + 0)\nr0 = *(u8 *)(r1 + 0)\nexit");
    assert!(interp.r0(&[]).is_err());
    assert_eq!(interp.r0(&[2]), Ok(2));
}

#[test]
fn what_a_packet_sends_is_bounded() {
    for (helper, more) in [("fl_clone", ""), ("fl_emit", "r3 = r10\nr4 = 0\n")] {
        let text = format!("r6 = r1\nagain: r1 = r6\nr2 = 1\n{more}call {helper}\ngoto again\nexit");
        let error = r0(&text).unwrap_err();
        assert!(error.contains(&format!("`{helper}` sends more than 16777216 bytes besides one packet")), "{error}");
    }
}
