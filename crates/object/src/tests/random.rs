// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random programs that an object can express.

use std::collections::BTreeSet;

use flowloom_testkit::Rng;

use super::samples::{call_local, data, exit, load64, mov};
use flowloom_context::locks::Locks;
use flowloom_context::{ContextLayout, LayoutField, StateSuccessor, Succession};
use flowloom_isa::insn::{Insn, alu, class, imm64, jmp, mode, size};
use flowloom_isa::{
    BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, BPF_F_RDONLY_PROG, LineInfo, MapDef, MapKind, Program, ProgramKind,
};

const TEXTS: [&str; 8] =
    ["", "x", "  in idle when a < b", "\tif (x) {", "größer ≥ 3", "\"quoted\\\"", "\u{1}\u{7f}", "}"];

fn text(rng: &mut Rng) -> String {
    let mut out = (*rng.pick(&TEXTS)).to_owned();
    if rng.chance(1, 2) {
        out.push_str(&rng.below(50).to_string());
    }
    out
}

fn layout(rng: &mut Rng, key_bytes: u32, value_bytes: u32) -> ContextLayout {
    let mut fields = Vec::new();
    let mut at = 0;
    loop {
        let size_bytes = *rng.pick(&[1, 2, 4, 8, 16]);
        at += rng.below(4) as u32;
        if at + size_bytes > value_bytes {
            break;
        }
        let name = format!("{}{}", rng.pick(&["state", "idle deadline", "r", "9r", "ü"]), fields.len());
        fields.push(LayoutField { name, offset_bytes: at, size_bytes, signed: rng.chance(1, 2) });
        at += size_bytes;
    }
    if rng.chance(1, 2) {
        fields.reverse();
    }
    let deadline_offsets = if value_bytes >= 8 { vec![rng.below(value_bytes as usize - 7) as u32] } else { Vec::new() };
    ContextLayout {
        element: text(rng),
        states: (0..rng.below(5)).map(|_| text(rng)).collect(),
        fields,
        deadline_offsets,
        sweep_ns: rng.next_u64(),
        succession: (value_bytes >= 8 && rng.chance(1, 3)).then(|| succession(rng, value_bytes)),
        preloaded: Vec::new(),
        locks: (key_bytes.is_multiple_of(4) && value_bytes.is_multiple_of(8) && rng.chance(1, 2))
            .then(|| Locks { offset_bytes: 64 * rng.below(99) as u32, cells: 1 << rng.below(9) }),
    }
}

fn succession(rng: &mut Rng, value_bytes: u32) -> Succession {
    let timeout = |rng: &mut Rng| rng.chance(1, 2).then(|| rng.next_u64());
    let offset = |rng: &mut Rng| rng.below(value_bytes as usize - 7) as u32;
    let successors = (0..rng.below(4)).map(|_| {
        rng.chance(1, 2).then(|| StateSuccessor {
            state: rng.below(4) as u16,
            idle_ns: timeout(rng),
            hard_ns: timeout(rng),
        })
    });
    Succession {
        successors: successors.collect(),
        state_offset: offset(rng),
        idle_offsets: rng.chance(1, 2).then(|| (offset(rng), offset(rng))),
        hard_offset: rng.chance(1, 2).then(|| offset(rng)),
    }
}

/// Maps that the kernel could create.
pub(super) fn loadable_maps(rng: &mut Rng) -> Vec<MapDef> {
    let mut maps = Vec::new();
    for number in 0..rng.below(6) {
        let kind = *rng.pick(&[MapKind::Hash, MapKind::Array, MapKind::Devmap]);
        let (key_bytes, value_bytes, flags) = match kind {
            MapKind::Hash => (1 + rng.below(40) as u32, 1 + rng.below(70) as u32, BPF_F_NO_PREALLOC),
            MapKind::Array => (4, 1 + rng.below(70) as u32, *rng.pick(&[0, BPF_F_MMAPABLE])),
            _ => (4, *rng.pick(&[4, 8]), 0),
        };
        let mut layout = (kind != MapKind::Devmap && rng.chance(1, 2)).then(|| layout(rng, key_bytes, value_bytes));
        if let (MapKind::Hash, Some(layout)) = (kind, &mut layout) {
            let keys: BTreeSet<Vec<u8>> = (0..rng.below(3)).map(|_| rng.bytes(key_bytes as usize)).collect();
            layout.preloaded = keys.into_iter().map(|key| (key, rng.bytes(value_bytes as usize))).collect();
        }
        let name = format!("{}{number}", rng.pick(&["table", "_t.x", "ports"]));
        let max_entries = 2 + rng.below(100) as u32;
        maps.push(MapDef { name, kind, key_bytes, value_bytes, max_entries, flags, layout, ..MapDef::default() });
    }
    for name in [".data", ".data.x", ".rodata", ".rodata.str1.1", ".bss"] {
        if rng.chance(1, 3) {
            let len = 1 + rng.below(40);
            let initial = if name == ".bss" { vec![0; len] } else { rng.bytes(len) };
            let read_only = if name.starts_with(".rodata") { BPF_F_RDONLY_PROG } else { 0 };
            let at = rng.below(maps.len() + 1);
            maps.insert(at, data(name, read_only | *rng.pick(&[0, BPF_F_MMAPABLE]), &initial));
        }
    }
    maps
}

/// The target of an instruction, before the slots are known.
#[derive(Clone, Copy)]
enum Leads {
    Nowhere,
    /// The item of this index in the function.
    Item(usize),
    Function(usize),
}

fn item(rng: &mut Rng, maps: &[MapDef], items: usize, functions: usize) -> (Vec<Insn>, Leads) {
    let any = rng.next_u64();
    let (dst, src, off, imm) = (any as u8 & 15, (any >> 8) as u8 & 15, (any >> 16) as i16, (any >> 32) as i32);
    let dst = dst.min(10);
    match rng.below(9) {
        0 => (vec![mov(dst, imm)], Leads::Nowhere),
        1 => (vec![Insn { code: class::ALU | alu::XOR | 8, dst, src, ..Insn::default() }], Leads::Nowhere),
        2 => (vec![Insn { code: class::LDX | mode::MEM | size::H, dst, src, off, imm: 0 }], Leads::Nowhere),
        3 => (load64(dst, imm64::NUMBER, imm, off.into()).to_vec(), Leads::Nowhere),
        4 if !maps.is_empty() => {
            let index = rng.below(maps.len());
            let load = match &maps[index].initial {
                None => load64(dst, imm64::MAP, index as i32, 0),
                Some(bytes) => load64(dst, imm64::MAP_VALUE, index as i32, rng.below(bytes.len()) as i32),
            };
            (load.to_vec(), Leads::Nowhere)
        }
        5 => {
            let code = *rng.pick(&[class::JMP | jmp::JEQ, class::JMP | jmp::JA, class::JMP32 | jmp::JSLE | 8]);
            (vec![Insn { code, dst, src, imm, ..Insn::default() }], Leads::Item(rng.below(items)))
        }
        // A far jump has its distance as its immediate.
        6 => (vec![Insn { code: class::JMP32 | jmp::JA, ..Insn::default() }], Leads::Item(rng.below(items))),
        7 if functions > 1 => {
            let callee = Leads::Function(1 + rng.below(functions - 1));
            if rng.chance(1, 3) {
                (load64(dst, imm64::FUNC, 0, 0).to_vec(), callee)
            } else {
                (vec![call_local(0)], callee)
            }
        }
        _ => (vec![Insn { code: class::JMP | jmp::CALL, imm: off.into(), ..Insn::default() }], Leads::Nowhere),
    }
}

/// A program of any shape that an object can express; not necessarily one that the kernel would run.
pub(super) fn program(rng: &mut Rng) -> Program {
    let mut maps = loadable_maps(rng);
    for map in &mut maps {
        if map.initial.is_none() && rng.chance(1, 4) {
            (map.max_entries, map.flags) = (rng.next_u64() as u32, rng.next_u64() as u32);
        }
    }
    let functions = 1 + rng.below(4);
    let mut bodies = Vec::new();
    for number in 0..functions {
        let items = 2 + rng.below(12);
        let mut body: Vec<_> = (0..items).map(|_| item(rng, &maps, items, functions)).collect();
        if number + 1 < functions {
            body[0] = (vec![call_local(0)], Leads::Function(number + 1));
        }
        body[items - 1] = (vec![exit()], Leads::Nowhere);
        bodies.push(body);
    }
    let mut next = 0;
    let mut places: Vec<Vec<usize>> = Vec::new();
    for body in &bodies {
        let mut here = Vec::new();
        for (insns, _) in body {
            here.push(next);
            next += insns.len();
        }
        places.push(here);
    }
    let mut insns = Vec::new();
    for (body, places_here) in bodies.iter().zip(&places) {
        for (item, leads) in body {
            let here = insns.len() as i64;
            let mut item = item.clone();
            let far = |target: usize| target as i64 - here - 1;
            match *leads {
                Leads::Nowhere => {}
                Leads::Function(number) => item[0].imm = far(places[number][0]) as i32,
                Leads::Item(number) if item[0].code == class::JMP32 | jmp::JA => {
                    item[0].imm = far(places_here[number]) as i32;
                }
                Leads::Item(number) => item[0].off = far(places_here[number]) as i16,
            }
            insns.extend(item);
        }
    }
    let starts: Vec<usize> = places.iter().map(|p| p[0]).collect();
    let mut lines = Vec::new();
    if rng.chance(3, 4) {
        for insn in places.iter().flatten().copied() {
            if starts.contains(&insn) || rng.chance(1, 3) {
                let any = rng.next_u64();
                let (line, column) = (any as u32 & 0x3f_ffff, (any >> 32) as u32 & 0x3ff);
                lines.push(LineInfo { insn, file: text(rng), text: text(rng), line, column });
            }
        }
    }
    let section = *rng.pick(&["xdp", "xdp.frags", "xdp/eth0", "xdp/devmap", "prog", "tc", "classifier"]);
    Program {
        name: format!("{}{}", rng.pick(&["prog", "größe ", "p.q", "9"]), rng.below(10)),
        section: section.to_owned(),
        kind: ProgramKind::of_section(section).unwrap_or_default(),
        insns,
        maps,
        lines,
        license: (*rng.pick(&["", "GPL", "Apache-2.0 OR MIT"])).to_owned(),
        ..Program::default()
    }
}
