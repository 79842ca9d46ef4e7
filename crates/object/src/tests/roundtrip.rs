// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `read(write(p)) == p`, and the refusals of `write`.

use flowloom_testkit::Rng;

use super::random;
use super::samples::{call_local, data, everything, exit, load64, minimal, mov};
use crate::{CodeError, WriteError, read, write};
use flowloom_isa::insn::{Insn, class, imm64, jmp};
use flowloom_isa::{LineInfo, MapDef, Program};

fn back(program: &Program) -> Program {
    let bytes = write(program).unwrap_or_else(|e| panic!("{e}\n{program:#?}"));
    let mut object = read(&bytes, "round.o").unwrap_or_else(|e| panic!("{e}\n{program:#?}"));
    assert_eq!(object.name, "round.o");
    assert_eq!(object.programs.len(), 1);
    object.programs.remove(0)
}

#[test]
fn everything_comes_back() {
    assert_eq!(back(&everything()), everything());
    assert_eq!(back(&minimal()), minimal());
}

#[test]
fn random_programs_come_back() {
    let mut rng = Rng::from_env(1);
    let (mut called, mut lined, mut layouts) = (0, 0, 0);
    for _ in 0..2000 {
        let program = random::program(&mut rng);
        assert_eq!(back(&program), program);
        called += usize::from(super::super::code::split(&program.insns).unwrap().len() > 1);
        lined += usize::from(!program.lines.is_empty());
        layouts += program.maps.iter().filter(|m| m.layout.is_some()).count();
    }
    assert!(called > 500 && lined > 500 && layouts > 500, "{called} with calls, {lined} with lines, {layouts} layouts");
}

#[test]
fn lines_are_repeated_where_functions_begin_and_wide_columns_are_dropped() {
    let line =
        |insn, line, column| LineInfo { insn, file: "f.efsm".to_owned(), text: format!("line {line}"), line, column };
    let mut program = minimal();
    program.insns = vec![mov(1, 0), call_local(1), exit(), mov(0, 2), exit()];
    program.lines = vec![line(1, 7, 1024)];
    let lines = back(&program).lines;
    assert_eq!(lines, [line(0, 7, 0), line(1, 7, 0), line(3, 7, 0)]);
    // The result is in normal form.
    program.lines = lines;
    assert_eq!(back(&program), program);
}

fn refused(change: impl FnOnce(&mut Program)) -> WriteError {
    let mut program = everything();
    change(&mut program);
    write(&program).map(|bytes| bytes.len()).expect_err("this cannot be written")
}

#[test]
fn programs_that_objects_cannot_express_are_refused() {
    let code = |change: fn(&mut Vec<Insn>)| match refused(|p| change(&mut p.insns)) {
        WriteError::Code { source, .. } => source,
        other => panic!("{other}"),
    };
    assert_eq!(code(Vec::clear), CodeError::Empty);
    assert_eq!(code(|i| i[0].dst = 16), CodeError::Register { at: 0, found: 16 });
    assert_eq!(code(|i| i.push(load64(0, 0, 1, 1)[0])), CodeError::HalfLoad { at: 25 });
    assert_eq!(code(|i| i[7].off = 15), CodeError::Jump { at: 7, target: 23, start: 0, end: 20 });
    assert_eq!(code(|i| i[7].off = 2), CodeError::Jump { at: 7, target: 10, start: 0, end: 20 });
    assert_eq!(code(|i| i[19].imm = -20), CodeError::Call { at: 19, target: 0, last: 24 });
    let alone = |i: &mut Vec<Insn>| (i[19], i[21]) = (mov(0, 0), call_local(-1));
    assert_eq!(code(alone), CodeError::Unreached { at: 21 });
    assert_eq!(code(|i| i[20] = mov(0, 0)), CodeError::RunsOn { at: 20 });

    let cases: Vec<(&str, WriteError)> = vec![
        ("zero bytes", refused(|p| p.name = "a\0".to_owned())),
        ("another meaning", refused(|p| p.section = ".maps".to_owned())),
        ("another meaning", refused(|p| p.section = ".rodata.x".to_owned())),
        ("zero byte", refused(|p| p.license = "a\0b".to_owned())),
        ("no digit first", refused(|p| p.maps[1].name = "1st".to_owned())),
        ("has the name of another", refused(|p| p.maps[1].name = "knock".to_owned())),
        ("has the name of another", refused(|p| p.maps[5].name = "ports".to_owned())),
        ("no initial contents", refused(|p| p.maps[1].name = ".data.x".to_owned())),
        ("length of a key is 0", refused(|p| p.maps[1].key_bytes = 0)),
        ("length of a value is 0", refused(|p| p.maps[2].value_bytes = 0)),
        ("beyond the end", refused(|p| p.maps[1].value_bytes = 19)),
        ("over the field before", refused(|p| overlap(&mut p.maps[1]))),
        ("kind of a data section", refused(|p| p.maps[0].max_entries = 2)),
        ("length of the initial", refused(|p| p.maps[0].value_bytes = 4)),
        ("flags of a data section", refused(|p| p.maps[3].flags = 0)),
        ("expected zeros", refused(|p| p.maps[4] = data(".bss", 0, &[0, 1]))),
        ("the program has 7", refused(|p| p.insns[4].imm = 7)),
        ("the program has 7", refused(|p| p.insns[4].imm = -1)),
        ("not a data section", refused(|p| p.insns[9].imm = 1)),
        ("is a data section", refused(|p| p.insns[4].imm = 0)),
        ("more than an offset", refused(|p| p.insns[5].imm = 1)),
        ("more than an offset", refused(|p| p.insns[10].off = 1)),
        ("source field 3", refused(|p| p.insns[4].src = 3)),
        ("ascending", refused(|p| p.lines[1].insn = 0)),
        ("a first slot", refused(|p| p.lines[1].insn = 5)),
        ("a first slot", refused(|p| p.lines[4].insn = 25)),
        ("line number", refused(|p| p.lines[1].line = 1 << 22)),
        ("zero byte in the text", refused(|p| p.lines[1].text = "a\0".to_owned())),
    ];
    for (part, error) in cases {
        assert!(error.to_string().contains(part), "`{error}` does not say `{part}`");
    }
}

fn overlap(map: &mut MapDef) {
    map.layout.as_mut().unwrap().fields[3].offset_bytes = 7;
}

#[test]
fn a_function_address_comes_back() {
    let mut program = minimal();
    let address = load64(2, imm64::FUNC, 2, 0);
    program.insns = [address[0], address[1], mov(0, 2), exit(), mov(0, 1), exit()].to_vec();
    program.insns[0].imm = 3;
    assert_eq!(back(&program), program);
    let far = Insn { code: class::JMP32 | jmp::JA, imm: -1, ..Insn::default() };
    program.insns[3] = far;
    assert_eq!(back(&program), program);
}
