// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hand-written programs for tests.

use flowloom_isa::insn::{SRC_REG, alu, call, class, jmp, mode, size};
use flowloom_isa::{Insn, MapDef, MapKind, Program};

pub(crate) fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

pub(crate) fn mov(dst: u8, imm: i32) -> Insn {
    insn(class::ALU64 | alu::MOV, dst, 0, 0, imm)
}

pub(crate) fn copy(dst: u8, src: u8) -> Insn {
    insn(class::ALU64 | alu::MOV | SRC_REG, dst, src, 0, 0)
}

pub(crate) fn load(bytes: u8, dst: u8, src: u8, off: i16) -> Insn {
    insn(class::LDX | mode::MEM | bytes, dst, src, off, 0)
}

pub(crate) fn store(bytes: u8, dst: u8, off: i16, src: u8) -> Insn {
    insn(class::STX | mode::MEM | bytes, dst, src, off, 0)
}

pub(crate) fn call_helper(number: i32) -> Insn {
    insn(class::JMP | jmp::CALL, 0, call::HELPER, 0, number)
}

pub(crate) fn call_local(distance: i32) -> Insn {
    insn(class::JMP | jmp::CALL, 0, call::LOCAL, 0, distance)
}

pub(crate) fn exit() -> Insn {
    insn(class::JMP | jmp::EXIT, 0, 0, 0, 0)
}

pub(crate) fn goto(off: i16) -> Insn {
    insn(class::JMP | jmp::JA, 0, 0, off, 0)
}

pub(crate) fn if_zero(dst: u8, off: i16) -> Insn {
    insn(class::JMP | jmp::JEQ, dst, 0, off, 0)
}

pub(crate) fn wide(dst: u8, src: u8, imm: i32) -> [Insn; 2] {
    [insn(class::LD | mode::IMM | size::DW, dst, src, 0, imm), Insn::default()]
}

pub(crate) fn map(name: &str, kind: MapKind) -> MapDef {
    MapDef { name: name.to_owned(), kind, key_bytes: 4, value_bytes: 4, max_entries: 7, ..MapDef::default() }
}

/// Instructions in assembler, on the maps of [`program`].
pub(crate) fn asm(text: &str) -> Vec<Insn> {
    flowloom_isa::asm::assemble(text, &maps()).expect("assembles")
}

fn maps() -> Vec<MapDef> {
    vec![map("ports", MapKind::Devmap), map("other_ports", MapKind::Devmap), map("table", MapKind::Hash)]
}

pub(crate) fn program(insns: impl IntoIterator<Item = Insn>) -> Program {
    let (name, section, license) = ("f".to_owned(), "xdp".to_owned(), "GPL".to_owned());
    let insns = insns.into_iter().collect();
    Program { name, section, insns, maps: maps(), license, ..Program::default() }
}
