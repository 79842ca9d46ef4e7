// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prefetch instructions.
//!
//! Cranelift has no prefetch. A load of a byte, marked by its trap code, stands for one; after compilation, its opcode
//! is replaced. Both instructions have the same operand and the same length:
//!
//! ```text
//!  [REX] 0F B6 /r   movzx r32, byte [m]   ──►   [REX] 0F 18 /1   prefetcht0 [m]     the line will be read
//!                                               [REX] 0F 0D /1   prefetchw [m]      the line will be written
//! ```
//!
//! The value of the load is not used: the register that it would write keeps what it had. A prefetch ignores addresses
//! that are not mapped.

use cranelift_codegen::MachTrap;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, TrapCode, Value, types};

use crate::function::Translation;

/// The access that a line is prefetched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    /// The mark of the load.
    fn trap(self) -> TrapCode {
        match self {
            Access::Read => TrapCode::unwrap_user(2),
            Access::Write => TrapCode::unwrap_user(3),
        }
    }

    /// The second byte of the opcode.
    fn opcode(self) -> u8 {
        match self {
            Access::Read => 0x18,
            Access::Write => 0x0d,
        }
    }
}

const ESCAPE: u8 = 0x0f;
const LOAD_BYTE: u8 = 0xb6;
/// Of the bits of a REX prefix, the one that extends the register.
const REX_R: u8 = 1 << 2;
/// The register bits of the byte after the opcode, and those that make the prefetch.
const REGISTER: u8 = 0b0011_1000;
const PREFETCH: u8 = 1 << 3;

/// Replaces the loads of a function that are marked. An error is the offset of one with another encoding.
pub(crate) fn place(code: &mut [u8], traps: &[MachTrap]) -> Result<(), u32> {
    for access in [Access::Read, Access::Write] {
        for trap in traps.iter().filter(|trap| trap.code == access.trap()) {
            let found = code.get_mut(trap.offset as usize..).ok_or(trap.offset)?;
            let has_rex = found.first().is_some_and(|byte| byte & 0xf0 == 0x40);
            let (rex, rest) = found.split_at_mut(has_rex.into());
            let [ESCAPE, opcode @ LOAD_BYTE, operand, ..] = rest else { return Err(trap.offset) };
            rex.iter_mut().for_each(|rex| *rex &= !REX_R);
            *opcode = access.opcode();
            *operand = *operand & !REGISTER | PREFETCH;
        }
    }
    Ok(())
}

impl Translation<'_, '_> {
    /// Prefetches the line of an address, which may be any.
    pub(crate) fn prefetch(&mut self, access: Access, address: Value, offset: i32) {
        let marked = MemFlagsData::new().with_trap_code(Some(access.trap()));
        self.builder.ins().load(types::I8, marked, address, offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_loads_become_prefetches() {
        // movzx edx, byte [rcx]; movzx r9, byte [r15 + rax + 0x17]; movzx eax, byte [rdi + 0x100]; movzx esi, byte [rdx]
        let loads = [
            &[0x0f, 0xb6, 0x11][..],
            &[0x4d, 0x0f, 0xb6, 0x4c, 0x07, 0x17],
            &[0x48, 0x0f, 0xb6, 0x87, 0, 1, 0, 0],
            &[0x0f, 0xb6, 0x32],
        ];
        let mut code = loads.concat();
        let trap = |offset, access: Access| MachTrap { offset, code: access.trap() };
        let traps = [trap(0, Access::Read), trap(3, Access::Write), trap(9, Access::Read)];
        assert_eq!(place(&mut code, &traps), Ok(()));
        // prefetcht0 [rcx]; prefetchw [r15 + rax + 0x17]; prefetcht0 [rdi + 0x100]; the load without a mark
        let expected = [
            &[0x0f, 0x18, 0x09][..],
            &[0x49, 0x0f, 0x0d, 0x4c, 0x07, 0x17],
            &[0x48, 0x0f, 0x18, 0x8f, 0, 1, 0, 0],
            &[0x0f, 0xb6, 0x32],
        ];
        assert_eq!(code, expected.concat());
    }

    /// A pipeline that cannot be made is left out only if it is too large.
    #[test]
    fn code_with_prefetches_is_made() {
        let text = ".program p\n.license \"GPL\"\n.map flows hash key 8 value 8 entries 8\nr1 = 1\n\
            *(u64 *)(r10 - 8) = r1\nr2 = r10\nr2 += -8\nr1 = map[flows] ll\ncall map_lookup_elem\nr0 = 2\nexit\n";
        let program = flowloom_isa::asm::program("p.bpf", text).expect("is a program");
        let proof = flowloom_verifier::verify(&program, &flowloom_verifier::Options::default()).expect("is safe");
        let jit = crate::Jit::new(std::sync::Arc::new(program), &proof).expect("compiles");
        assert!(jit.ahead.is_some_and(|ahead| ahead.has_pipeline()));
    }

    #[test]
    fn other_encodings_are_refused() {
        let trap = MachTrap { offset: 1, code: Access::Read.trap() };
        for mut code in [vec![0x90, 0x8a, 0x11], vec![0x90, 0x0f, 0xb7, 0x11], vec![0x90, 0x0f], vec![]] {
            assert_eq!(place(&mut code, &[MachTrap { ..trap }]), Err(1), "{code:x?}");
        }
    }
}
