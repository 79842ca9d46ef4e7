// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of `flowloom bpf plugin`, invoked like plugins of the public conformance suites.

#[path = "../../vm/tests/common/mod.rs"]
mod case;

use crate::common::{Ran, piped};
use flowloom_isa::{Insn, MapDef, MapKind, Program, asm};
use flowloom_testkit::{Expected, InstructionCase, instruction_cases, message_fragment};

/// Runs the plugin with `input` on stdin.
fn plugin(arguments: &[&str], input: &[u8]) -> Ran {
    let ran = Ran::from(piped(&[&["bpf", "plugin"], arguments].concat(), input));
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran
}

/// Hexadecimal bytes in the format of the public runner: two spaces after each.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}  ")).collect()
}

fn assembled(text: &str) -> Vec<Insn> {
    asm::assemble(text, &[]).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

fn code(text: &str) -> String {
    hex(&assembled(text).into_iter().flat_map(Insn::to_bytes).collect::<Vec<_>>()) + "\n"
}

fn program(insns: Vec<Insn>, maps: Vec<MapDef>) -> Program {
    let (name, section, license) = ("main".to_owned(), "xdp".to_owned(), "GPL".to_owned());
    Program { name, section, insns, maps, license, ..Program::default() }
}

#[track_caller]
fn gives(ran: &Ran, expected: &str) {
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), expected, ""), "{ran:?}");
}

#[track_caller]
fn fails(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
    let unsaid: Vec<_> = words.iter().filter(|word| !ran.stderr.contains(**word)).collect();
    assert!(unsaid.is_empty(), "unsaid {unsaid:?} in {ran:?}");
}

#[test]
fn r0_is_printed_in_hexadecimal() {
    gives(&plugin(&[], code("r0 = 5\nexit").as_bytes()), "5\n");
    gives(&plugin(&[], code("r0 = -1\nexit").as_bytes()), "ffffffffffffffff\n");
    // Any white space between bytes, or none; no final newline.
    let mut packed = code("r0 = 0x1234 ll\nexit").replace("  ", "\n\t");
    gives(&plugin(&[], packed.as_bytes()), "1234\n");
    packed.retain(|c| !c.is_whitespace());
    gives(&plugin(&[], packed.as_bytes()), "1234\n");
}

#[test]
fn memory_is_read_and_written() {
    let text = "r0 = *(u32 *)(r1 + 0)\nr0 = be32 r0\n*(u8 *)(r1 + 3) = r2\nr3 = *(u8 *)(r1 + 3)\nr0 += r3\nexit";
    for memory in ["00 00 01 00", " 00  00\t01 \n00  ", "00000100", "0 0 1 0"] {
        gives(&plugin(&[memory], code(text).as_bytes()), "104\n");
        gives(&plugin(&[memory, "--engine", "interp"], code(text).as_bytes()), "104\n");
        gives(&plugin(&["--engine=interp", memory, ""], code(text).as_bytes()), "104\n");
    }
    // Without memory, address and length are 0.
    let none = code("r0 = r1\nr0 |= r2\nexit");
    gives(&plugin(&[], none.as_bytes()), "0\n");
    gives(&plugin(&["", " "], none.as_bytes()), "0\n");
    fails(
        &plugin(&["00"], code(text).as_bytes()),
        1,
        &["instruction 0", "4-byte read at byte 0 of the memory", "1 byte"],
    );
}

#[test]
fn helpers_of_the_suites() {
    let gather = "r1 = 1\nr2 = 2\nr3 = 3\nr4 = 4\nr5 = 0x105\ncall 0\nexit";
    gives(&plugin(&[], code(gather).as_bytes()), "102030405\n");
    let frob = "r6 = r1\ncall 1\nr0 = *(u64 *)(r6 + 0)\nr0 = be64 r0\nexit";
    gives(&plugin(&["0102030405060708"], code(frob).as_bytes()), "2b28292e2f2c2d22\n");
    fails(&plugin(&["01"], code("r2 = -1\ncall 1\nexit").as_bytes()), 1, &["read at byte 1 of the memory"]);
    gives(&plugin(&[], code("call 2\nexit").as_bytes()), "0\n");
    gives(&plugin(&[], code("r1 = 65537\ncall 3\nexit").as_bytes()), "100\n");
    let strcmp = "r2 = r1\nr2 += 4\ncall 4\nexit";
    for (memory, expected) in
        [("61620000 61620000", "0"), ("61620000 61630000", "ffffffffffffffff"), ("62000000 61000000", "1")]
    {
        gives(&plugin(&[memory], code(strcmp).as_bytes()), &format!("{expected}\n"));
    }
    fails(&plugin(&["61616161 61616161"], code(strcmp).as_bytes()), 1, &["read at byte 8 of the memory"]);
    // A result of 0 unwinds the program, at any call depth.
    gives(&plugin(&[], code("r1 = -1\ncall 5\nr0 = 2\nexit").as_bytes()), "2\n");
    gives(&plugin(&[], code("r1 = 0\ncall 5\nr0 = 2\nexit").as_bytes()), "0\n");
    gives(&plugin(&[], code("r1 = 0\ncall f\nr0 = 2\nexit\nf: call 5\nr0 = 3\nexit").as_bytes()), "0\n");
    fails(&plugin(&[], code("call 6\nexit").as_bytes()), 1, &["helper 6", "is not supported"]);
}

#[test]
fn objects_are_taken_raw_and_in_hexadecimal() {
    let plain = flowloom_object::write(&program(assembled("r0 = r2\nr0 += 1\nexit"), Vec::new())).unwrap();
    for input in [plain.clone(), hex(&plain).into_bytes()] {
        gives(&plugin(&["00 00", "--elf"], &input), "3\n");
        gives(&plugin(&["--elf"], &input), "1\n");
    }
    // An object with maps uses the kernel's helpers.
    let (name, kind) = ("counts".to_owned(), MapKind::Array);
    let maps = vec![MapDef { name, kind, key_bytes: 4, value_bytes: 8, max_entries: 2, ..MapDef::default() }];
    let text = "*(u32 *)(r10 - 4) = 1\nr2 = r10\nr2 += -4\nr1 = map[counts] ll\ncall map_lookup_elem\n\
                if r0 == 0 goto out\nr1 = 7\nlock *(u64 *)(r0 + 0) += r1\nr0 = *(u64 *)(r0 + 0)\nout: exit";
    let insns = asm::assemble(text, &maps).unwrap_or_else(|errors| panic!("{errors}"));
    gives(&plugin(&["--elf"], &flowloom_object::write(&program(insns, maps)).unwrap()), "7\n");
    fails(&plugin(&[], &plain), 2, &["is an object", "--elf"]);
    fails(&plugin(&["--elf"], b"7f 45 4c"), 1, &["standard input"]);
    fails(&plugin(&["--elf"], &plain[..100]), 1, &["standard input"]);
}

#[test]
fn wrong_programs_and_wrong_use_fail() {
    for (text, words) in [
        ("exit", &["instruction 0", "`r0` is read before it is written"][..]),
        ("r0 = *(u64 *)(r10 - 8)\nexit", &["stack", "never written"]),
        ("goto -1", &["more than 1000000 instructions"]),
        ("r0 = 0", &["falls off its end"]),
    ] {
        fails(&plugin(&[], code(text).as_bytes()), 1, words);
    }
    fails(&plugin(&[], b""), 1, &["found 0 instruction slots"]);
    fails(&plugin(&[], b"ff 00 00 00 00 00 00 00"), 1, &["opcode 0xff"]);
    fails(&plugin(&[], b"95 00 00 00 00 00 00"), 2, &["7 bytes", "multiple of 8"]);
    fails(&plugin(&[], b"95 00 0x 00 00 00 00"), 2, &["the program: found `0x` after 2 bytes"]);
    fails(&plugin(&[], b"95 \xff"), 2, &["not ASCII", "offset 3"]);
    for word in ["zz", "0x00", "123", "é"] {
        fails(&plugin(&[word], code("exit").as_bytes()), 2, &[&format!("the memory: found `{word}`")]);
    }
    gives(&plugin(&["fF"], code("r0 = *(u8 *)(r1 + 0)\nexit").as_bytes()), "ff\n");
    fails(&plugin(&["--engine", "llvm"], code("exit").as_bytes()), 2, &["unknown plugin engine `llvm`", "`interp`"]);
    fails(&plugin(&["--engine"], code("exit").as_bytes()), 2, &["--engine has no value"]);
}

/// The word after an unknown option is its value, unless it may be the memory.
#[test]
fn unknown_options_are_ignored_with_a_warning() {
    let cases: [(&[&str], &str, &[&str]); 4] = [
        (&["00", "--jit", "--cpu", "v4", "--elf-maybe"], "1\n", &["`--jit`", "`--cpu v4`", "`--elf-maybe`"]),
        (&["00", "--jit", "--debug=1", "-x", "", "01"], "1\n", &["`--jit`", "`--debug=1`", "`-x`", "`01`"]),
        (&["--jit", "2a ff"], "2\n", &["`--jit`"]),
        (&["--cpu", "v4", "2aff", "--level", "3"], "2\n", &["`--cpu v4`", "`--level 3`"]),
    ];
    for (arguments, expected, options) in cases {
        let ran = plugin(arguments, code("r0 = r2\nexit").as_bytes());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "{ran:?}");
        let expected = options.iter().map(|option| format!("flowloom: ignored unknown option {option}\n"));
        assert_eq!(ran.stderr, expected.collect::<String>());
    }
}

/// Program in hexadecimal bytes, for stdin.
fn slots(program: &Program) -> Vec<u8> {
    hex(&program.insns.iter().flat_map(|insn| insn.to_bytes()).collect::<Vec<_>>()).into_bytes()
}

fn judge(case: &InstructionCase, ran: &Ran) -> Result<(), String> {
    let fits = match &case.expected {
        Expected::Ends { r0, .. } => {
            (ran.code, ran.stdout.as_str(), ran.stderr.as_str()) == (Some(0), &format!("{r0:x}\n"), "")
        }
        Expected::Error(kind) => {
            (ran.code, ran.stdout.as_str()) == (Some(1), "") && ran.stderr.contains(message_fragment(kind).unwrap())
        }
    };
    if fits {
        Ok(())
    } else {
        Err(format!("{} `{}`: found {ran:?}, expected {:?}", case.place, case.name, case.expected))
    }
}

#[test]
fn the_suite_goes_through() {
    let mut wrong = Vec::new();
    // As bytes and as an object, each with and without memory; results and errors.
    let mut came = std::collections::BTreeMap::new();
    for case in instruction_cases() {
        let program = case::program(&case);
        let memory = hex(&case.memory);
        let arguments = if case.memory.is_empty() { vec![] } else { vec![memory.as_str()] };
        let is_right = matches!(case.expected, Expected::Ends { .. });
        let mut run = |arguments: &[&str], input: &[u8]| {
            wrong.extend(judge(&case, &plugin(arguments, input)).err());
            let is_elf = arguments.contains(&"--elf");
            *came.entry((is_elf, case.memory.is_empty(), is_right)).or_insert(0) += 1;
        };
        if program.maps.is_empty() {
            run(&arguments, &slots(&program));
        }
        // Skip programs that no object can represent.
        if let Ok(object) = flowloom_object::write(&program) {
            run(&[&arguments[..], &["--elf"]].concat(), &object);
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(came.len() == 8 && came.values().all(|count| *count >= 5), "{came:?}");
}
