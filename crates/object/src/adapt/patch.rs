// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Patches values into instructions.

use super::replacement::Replacement;
use flowloom_isa::insn::{Insn, SRC_REG, class, jmp, mode, size};

/// The helper that no kernel has, which takes the place of unresolved references, as in libbpf.
const POISON: i32 = 0x0bad_2310;

/// Replaces the instruction at `at` by one that no engine runs.
pub(crate) fn poison(insns: &mut [Insn], at: usize) {
    let Some(insn) = insns.get(at).copied() else { return };
    insns[at] = Insn { code: class::JMP | jmp::CALL, imm: POISON, ..Insn::default() };
    // The second half of a load becomes an instruction of its own, which has no effect.
    if insn.is_wide()
        && let Some(second) = insns.get_mut(at + 1)
    {
        *second = Insn { code: class::JMP | jmp::JA, ..Insn::default() };
    }
}

/// Patches a value into the instruction at `at`.
///
/// # Errors
/// `Err(Some(…))` if the instruction is not what a compiler emits for such an access, `Err(None)` if it cannot access
/// the kernel's field.
pub(crate) fn put(insns: &mut [Insn], at: usize, replacement: &Replacement) -> Result<(), Option<String>> {
    let Some(insn) = insns.get(at).copied() else { return Err(Some("there is no such instruction".to_owned())) };
    let check = |found: u64| match replacement.before {
        Some(before) if before != found => {
            Err(Some(format!("adaptation of an instruction with {found}, expected {before}")))
        }
        _ => Ok(()),
    };
    match insn.class() {
        class::ALU | class::ALU64 if insn.code & SRC_REG == 0 => {
            // The value is 32 bits wide in the instruction, whatever it is.
            match replacement.before {
                Some(before) if before as u32 != insn.imm as u32 => check(u64::from(insn.imm as u32))?,
                _ => {}
            }
            if u32::try_from(replacement.after).is_err() && i32::try_from(replacement.after as i64).is_err() {
                return Err(None);
            }
            insns[at].imm = replacement.after as u32 as i32;
        }
        class::LDX | class::ST | class::STX => {
            check(insn.off as u16 as u64)?;
            insns[at].off = i16::try_from(replacement.after).map_err(|_| None)?;
            if let Some((before, after)) = replacement.bytes
                && before != after
            {
                if !replacement.can_resize {
                    return Err(None);
                }
                let code = match after {
                    1 => size::B,
                    2 => size::H,
                    4 => size::W,
                    8 => size::DW,
                    _ => return Err(None),
                };
                insns[at].code = insn.code & !0x18 | code;
            }
        }
        class::LD if insn.is_wide() && insn.src == 0 && insn.code & 0xe0 == mode::IMM => {
            let Some(second) = insns.get(at + 1).copied() else {
                return Err(Some("the second half of the 64-bit load is missing".to_owned()));
            };
            check(u64::from(second.imm as u32) << 32 | u64::from(insn.imm as u32))?;
            insns[at].imm = replacement.after as u32 as i32;
            insns[at + 1].imm = (replacement.after >> 32) as u32 as i32;
        }
        _ => return Err(Some(format!("adaptation of an instruction of code {:#04x}, which has no number", insn.code))),
    }
    Ok(())
}
