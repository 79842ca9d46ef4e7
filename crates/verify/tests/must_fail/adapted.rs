//! Programs for other contexts with their fields and helpers replaced by those that XDP has for the same, so that they come to
//! what they are meant to show. Nothing is claimed of what becomes of them: both verifiers are asked about the result.

use flowloom_isa::Insn;
use flowloom_isa::insn::{call, class, helper, jmp, mode, size};

use super::Case;

/// `data`, `data_end`, `data_meta` of `struct __sk_buff`, and of `struct xdp_md`.
const FIELDS: [(i16, i16); 3] = [(76, 0), (80, 4), (140, 8)];
/// `skb_load_bytes` and `skb_store_bytes`: they take what those of XDP take, and flags.
const HELPERS: [(i32, i32); 2] = [(26, helper::XDP_LOAD_BYTES), (9, helper::XDP_STORE_BYTES)];

/// The case as one for XDP, where that makes it another one.
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
