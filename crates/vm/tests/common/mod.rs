// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cases of the instruction suite as programs; tests of other crates take this file too.

use flowloom_isa::{Insn, MapDef, MapKind, Program, asm};
use flowloom_testkit::{InstructionCase, InstructionCode};

pub(crate) fn program(case: &InstructionCase) -> Program {
    let maps: Vec<MapDef> = case
        .maps
        .iter()
        .map(|map| MapDef {
            name: map.name.clone(),
            kind: if map.kind == "hash" { MapKind::Hash } else { MapKind::Array },
            key_bytes: map.key_bytes,
            value_bytes: map.value_bytes,
            max_entries: map.max_entries,
            ..MapDef::default()
        })
        .collect();
    let insns = match &case.code {
        InstructionCode::Text(text) => {
            asm::assemble(text, &maps).unwrap_or_else(|errors| panic!("{}: {errors}\n{text}", case.place))
        }
        InstructionCode::Slots(slots) => slots.iter().map(|slot| Insn::from_bytes(*slot)).collect(),
    };
    let (name, section, license) = ("main".to_owned(), "xdp".to_owned(), "GPL".to_owned());
    Program { name, section, insns, maps, license, ..Program::default() }
}
