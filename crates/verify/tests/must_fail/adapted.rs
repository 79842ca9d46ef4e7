// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs for other contexts with their fields and helpers replaced by the XDP equivalents, so that they exercise
//! what they were written for. There is no expected result: both verifiers judge the adapted program.

use flowloom_isa::Insn;
use flowloom_isa::insn::{call, class, helper, jmp, mode, size};

use super::Case;

/// Offsets of `data`, `data_end`, `data_meta` in `struct __sk_buff` and in `struct xdp_md`.
const FIELDS: [(i16, i16); 3] = [(76, 0), (80, 4), (140, 8)];
/// `skb_load_bytes` and `skb_store_bytes`: the arguments of XDP's, and flags.
const HELPERS: [(i32, i32); 2] = [(26, helper::XDP_LOAD_BYTES), (9, helper::XDP_STORE_BYTES)];

/// The case adapted to XDP, if that changes it.
pub fn to_xdp(case: &Case) -> Option<Case> {
    let mut program = case.program.clone();
    for insn in &mut program.insns {
        *insn = replaced(*insn);
    }
    (program != case.program).then(|| Case { name: format!("{} (fields of XDP)", case.name), program, ..*case })
}

fn replaced(insn: Insn) -> Insn {
    let (fields, helpers) = (FIELDS.iter(), HELPERS.iter());
    if insn.code == class::LDX | mode::MEM | size::W {
        let found = fields.clone().find(|(from, _)| *from == insn.off);
        return found.map_or(insn, |(_, off)| Insn { off: *off, ..insn });
    }
    if insn.class() == class::JMP && insn.op() == jmp::CALL && insn.src == call::HELPER {
        let found = helpers.clone().find(|(from, _)| *from == insn.imm);
        return found.map_or(insn, |(_, imm)| Insn { imm: *imm, ..insn });
    }
    insn
}
