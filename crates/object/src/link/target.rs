// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target of an instruction, from its relocation or its distance.

use super::Linker;
use crate::container::{Place, Relocation, SectionKind, Symbol};
use crate::error::ReadFault;
use crate::externs::Extern;
use crate::maps::Found;
use flowloom_isa::Reference;
use flowloom_isa::insn::{Insn, call, class, imm64, jmp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    None,
    Map(usize),
    Value(usize, u32),
    Function(usize),
    /// A missing weak symbol, for which the object is prepared.
    Zero,
    Unresolved(Reference),
}

impl Linker<'_> {
    pub(super) fn relocation(&self, number: usize, at: usize) -> Option<Relocation> {
        let function = &self.functions[number];
        self.container.relocations.get(&(function.section, (function.start + at as u64) * 8)).copied()
    }

    /// The target of the instruction at slot `at` of a function.
    pub(super) fn target(&self, number: usize, at: usize, insn: Insn) -> Result<Target, ReadFault> {
        let is_call = insn.code == class::JMP | jmp::CALL;
        let Some(relocation) = self.relocation(number, at) else {
            if is_call && insn.src == call::LOCAL {
                let function = &self.functions[number];
                let slot = function.start as i64 + at as i64 + 1 + i64::from(insn.imm);
                return self.function_at(number, at, function.section, slot.checked_mul(8));
            }
            return Ok(Target::None);
        };
        let Some(symbol) = self.container.symbols.get(relocation.symbol) else { return Ok(Target::None) };
        let fault = |why: String| Err(self.fault(number, at, why));
        let section = match symbol.place {
            Place::Section(section) => section,
            Place::Extern => return Ok(self.foreign(symbol, is_call)),
            Place::Absolute => {
                return fault(format!("symbol `{}` is absolute, expected one in a section", symbol.name));
            }
            Place::Common => {
                return fault(format!("symbol `{}` is a common symbol (compile with -fno-common)", symbol.name));
            }
        };
        // The instruction determines what is relocated, as in libbpf: old compilers number relocation types
        // differently. An explicit addend (RELA) counts bytes and replaces the field.
        let value = symbol.value as i64;
        let field = i64::from(insn.imm);
        if is_call && insn.src == call::LOCAL {
            let addend = relocation.addend.or_else(|| (field + 1).checked_mul(8));
            return self.function_at(number, at, section, addend.and_then(|addend| value.checked_add(addend)));
        }
        if insn.is_wide() {
            let Some(offset) = value.checked_add(relocation.addend.unwrap_or(field)) else {
                return fault(format!("symbol `{}` lies at {value:#x}", symbol.name));
            };
            return self.place(number, at, insn, section, offset, symbol);
        }
        fault(format!(
            "relocation against `{}` at an instruction of code {:#04x}, source {}; expected a 64-bit load or the call of a \
             function",
            symbol.name, insn.code, insn.src
        ))
    }

    /// The meaning of a 64-bit load of a place in the object.
    fn place(
        &self,
        number: usize,
        at: usize,
        insn: Insn,
        section: usize,
        offset: i64,
        symbol: &Symbol<'_>,
    ) -> Result<Target, ReadFault> {
        let fault = |why: String| Err(self.fault(number, at, why));
        if self.container.sections[section].kind == SectionKind::Code {
            return match insn.src {
                imm64::NUMBER | imm64::FUNC => self.function_at(number, at, section, Some(offset)),
                other => fault(format!("load of a function's address with source field {other}")),
            };
        }
        let found = u64::try_from(offset).ok().and_then(|offset| self.maps.at(section, offset));
        let name = self.container.sections[section].name;
        match (found, insn.src) {
            (Some(Found::Map(index)), imm64::NUMBER | imm64::MAP) => Ok(Target::Map(index)),
            (Some(Found::Data(index, len)), imm64::NUMBER | imm64::MAP_VALUE) => {
                match u32::try_from(offset).ok().filter(|offset| *offset < len) {
                    Some(offset) => Ok(Target::Value(index, offset)),
                    None => fault(format!("byte {offset} of section `{name}`, which has {len}")),
                }
            }
            (Some(_), other) => fault(format!("load of `{}` with source field {other}", symbol.name)),
            (None, _) => {
                fault(format!("no map or data at byte {offset} of section `{name}` (symbol `{}`)", symbol.name))
            }
        }
    }

    /// The target of an undefined symbol: a weak one may be missing.
    fn foreign(&self, symbol: &Symbol<'_>, is_call: bool) -> Target {
        let kind = self.externs.get(symbol.name.as_bytes()).copied();
        match kind {
            Some(Extern::Kconfig) if symbol.weak => match self.maps.settings {
                Some(map) => Target::Value(map, 0),
                None => Target::Unresolved(Extern::reference(kind, symbol.name)),
            },
            Some(Extern::Ksym | Extern::Kfunc) if symbol.weak && !is_call => Target::Zero,
            _ => Target::Unresolved(Extern::reference(kind, symbol.name)),
        }
    }

    fn function_at(&self, number: usize, at: usize, section: usize, offset: Option<i64>) -> Result<Target, ReadFault> {
        let found = offset
            .and_then(|o| u64::try_from(o).ok())
            .filter(|o| o.is_multiple_of(8))
            .and_then(|o| self.by_place.get(&(section, o / 8)));
        found.map(|callee| Target::Function(*callee)).ok_or_else(|| {
            let name = self.container.sections[section].name;
            let place = offset.map_or("nowhere".to_owned(), |o| format!("byte {o}"));
            self.fault(number, at, format!("no function begins at {place} of section `{name}`"))
        })
    }
}
