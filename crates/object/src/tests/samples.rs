// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that the tests write.

use flowloom_context::{ContextLayout, LayoutField};
use flowloom_isa::asm::assemble;
use flowloom_isa::insn::{Insn, alu, call, class, jmp, mode, size};
use flowloom_isa::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, BPF_F_RDONLY_PROG, LineInfo, MapDef, MapKind, Program};

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
    // Slot 0: a key of 13 bytes on the stack. 4: looks it up, and writes into the record if it exists. 9: a constant
    // from `.rodata`, a counter in `.bss`, a word in `.data`. 18: a function that calls another. 21: the first
    // function, which calls the second. 23: the second.
    let insns = assemble(
        "*(u64 *)(r10 - 16) = 7
         *(u64 *)(r10 - 8) = 0
         r2 = r10
         r2 += -16
         r1 = map[1] ll
         call map_lookup_elem
         if r0 == 0 goto +1
         *(u32 *)(r0 + 16) = -3
         r3 = map[3][0]+4 ll
         r6 = *(u32 *)(r3 + 0)
         r4 = map[4][0]+8 ll
         *(u64 *)(r4 + 0) = r6
         r5 = map[0][0]+0 ll
         r7 = *(u8 *)(r5 + 0)
         r1 = 1
         call pc+1
         exit
         call pc+1
         exit
         r0 = 2
         exit",
        &[],
    );
    Program {
        name: "knock".to_owned(),
        section: "xdp".to_owned(),
        insns: insns.unwrap(),
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
