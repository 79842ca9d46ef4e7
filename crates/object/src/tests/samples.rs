// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that the tests write.

use flowloom_context::{ContextLayout, LayoutField};
use flowloom_isa::MapKind;
use flowloom_isa::insn::{Insn, alu, call, class, helper, imm64, jmp, mode, size};
use flowloom_isa::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, BPF_F_RDONLY_PROG, LineInfo, MapDef, Program};

pub(super) fn mov(dst: u8, imm: i32) -> Insn {
    Insn { code: class::ALU64 | alu::MOV, dst, imm, ..Insn::default() }
}

pub(super) fn exit() -> Insn {
    Insn { code: class::JMP | jmp::EXIT, ..Insn::default() }
}

pub(super) fn load64(dst: u8, src: u8, low: i32, high: i32) -> [Insn; 2] {
    let code = class::LD | mode::IMM | size::DW;
    [Insn { code, dst, src, imm: low, ..Insn::default() }, Insn { imm: high, ..Insn::default() }]
}

fn call_helper(number: i32) -> Insn {
    Insn { code: class::JMP | jmp::CALL, src: call::HELPER, imm: number, ..Insn::default() }
}

pub(super) fn call_local(distance: i32) -> Insn {
    Insn { code: class::JMP | jmp::CALL, src: call::LOCAL, imm: distance, ..Insn::default() }
}

fn map(name: &str, kind: MapKind, key_bytes: u32, value_bytes: u32, max_entries: u32, flags: u32) -> MapDef {
    let name = name.to_owned();
    MapDef { name, kind, key_bytes, value_bytes, max_entries, flags, ..MapDef::default() }
}

pub(super) fn data(name: &str, flags: u32, initial: &[u8]) -> MapDef {
    MapDef { initial: Some(initial.to_vec()), ..map(name, MapKind::Array, 4, initial.len() as u32, 1, flags) }
}

fn line(insn: usize, line: u32, column: u32, text: &str) -> LineInfo {
    LineInfo { insn, file: "knock.efsm".to_owned(), text: text.to_owned(), line, column }
}

fn field(name: &str, offset_bytes: u32, size_bytes: u32, signed: bool) -> LayoutField {
    LayoutField { name: name.to_owned(), offset_bytes, size_bytes, signed }
}

/// The record of a context table, with gaps.
pub(crate) fn layout() -> ContextLayout {
    ContextLayout {
        element: "knock".to_owned(),
        states: vec!["closed".to_owned(), "half-open".to_owned(), "open".to_owned()],
        fields: vec![
            field("idle_deadline", 8, 8, false),
            field("state", 0, 1, false),
            field("credit", 16, 4, true),
            field("odd name", 2, 2, false),
        ],
        deadline_offsets: vec![8],
        sweep_ns: 1_000_000_000,
        succession: None,
        preloaded: vec![(vec![7; 13], vec![1; 24])],
        locks: None,
    }
}

/// Counts a packet in a context table, accesses data sections, calls a function: one of everything.
pub(crate) fn everything() -> Program {
    let store = |base: u8, off: i16, imm: i32, width: u8| Insn {
        code: class::ST | mode::MEM | width,
        dst: base,
        off,
        imm,
        ..Insn::default()
    };
    let mut insns = Vec::new();
    // 0: a key of 13 bytes on the stack.
    insns.extend([store(10, -16, 7, size::DW), store(10, -8, 0, size::DW)]);
    insns.push(Insn { code: class::ALU64 | alu::MOV | 8, dst: 2, src: 10, ..Insn::default() });
    insns.push(Insn { code: class::ALU64 | alu::ADD, dst: 2, imm: -16, ..Insn::default() });
    // 4: look it up, and write into the record if it exists.
    insns.extend(load64(1, imm64::MAP, 1, 0));
    insns.push(call_helper(helper::MAP_LOOKUP_ELEM));
    insns.push(Insn { code: class::JMP | jmp::JEQ, dst: 0, off: 1, imm: 0, ..Insn::default() });
    insns.push(store(0, 16, -3, size::W));
    // 9: a constant from `.rodata`, a counter in `.bss`, a word in `.data`.
    insns.extend(load64(3, imm64::MAP_VALUE, 3, 4));
    insns.push(Insn { code: class::LDX | mode::MEM | size::W, dst: 6, src: 3, ..Insn::default() });
    insns.extend(load64(4, imm64::MAP_VALUE, 4, 8));
    insns.push(Insn { code: class::STX | mode::MEM | size::DW, dst: 4, src: 6, ..Insn::default() });
    insns.extend(load64(5, imm64::MAP_VALUE, 0, 0));
    insns.push(Insn { code: class::LDX | mode::MEM | size::B, dst: 7, src: 5, ..Insn::default() });
    // 18: a function that calls another.
    insns.extend([mov(1, 1), call_local(1), exit()]);
    // 21: the first function, which calls the second.
    insns.extend([call_local(1), exit()]);
    // 23: the second.
    insns.extend([mov(0, 2), exit()]);
    Program {
        name: "knock".to_owned(),
        section: "xdp".to_owned(),
        insns,
        maps: vec![
            data(".data", BPF_F_MMAPABLE, &[1, 2, 3]),
            MapDef { layout: Some(layout()), ..map("knock_ctx", MapKind::Hash, 13, 24, 100, BPF_F_NO_PREALLOC) },
            map("ports", MapKind::Devmap, 4, 4, 64, 0),
            data(".rodata.k", BPF_F_RDONLY_PROG, &[9; 12]),
            data(".bss", BPF_F_MMAPABLE, &[0; 16]),
            map("counters", MapKind::Array, 4, 8, 3, 0),
            map("blob", MapKind::Array, 4, 33, 3, 0),
        ],
        lines: vec![
            line(0, 3, 1, "element knock key (5-tuple) {"),
            line(4, 12, 9, "    in closed when tcp.dport == 7000"),
            line(9, 13, 0, "      -> half-open idle 5s"),
            line(21, 20, 5, "  otherwise drop"),
            line(23, 21, 1023, "}"),
        ],
        license: "Dual MIT/GPL".to_owned(),
        ..Program::default()
    }
}

/// Passes every packet.
pub(super) fn minimal() -> Program {
    Program {
        name: "pass".to_owned(),
        section: "xdp".to_owned(),
        insns: vec![mov(0, 2), exit()],
        license: "GPL".to_owned(),
        ..Program::default()
    }
}
