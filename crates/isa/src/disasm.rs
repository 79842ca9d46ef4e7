// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The disassembler: text in the notation of `llvm-objdump` and `bpftool`.
//!
//! Its output assembles to the same slots with [`crate::asm::assemble`].

use std::fmt;

use crate::helpers;
use crate::insn::Insn;
use crate::op::{AluOp, AtomicOp, DecodeError, Op, Operand, Reg, Size, Width};
use crate::program::MapDef;

/// A slot that cannot be disassembled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("instruction {insn}: {source}")]
pub struct DisasmError {
    /// The index of the slot.
    pub insn: usize,
    /// The reason.
    pub source: DecodeError,
}

/// Renders a program, one instruction a line.
///
/// # Errors
/// A slot is not an instruction of RFC 9669.
pub fn disassemble(insns: &[Insn], maps: &[MapDef]) -> Result<String, DisasmError> {
    use fmt::Write as _;
    let mut text = String::new();
    let mut at = 0;
    while at < insns.len() {
        let op = Op::decode(insns, at).map_err(|source| DisasmError { insn: at, source })?;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", Text { op, maps });
        at += op.slots();
    }
    Ok(text)
}

/// An instruction for display; maps appear by name if `maps` has them.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// The instruction.
    pub op: Op,
    /// The maps of its program.
    pub maps: &'a [MapDef],
}

/// Whether a map can be written by its name: the assembler reads digits as an index.
fn is_plain_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_' || b == b'.')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.')
}

impl Text<'_> {
    fn map(&self, index: i32) -> String {
        let name = usize::try_from(index).ok().and_then(|i| {
            let name = &self.maps.get(i)?.name;
            let first = self.maps.iter().position(|m| m.name == *name)?;
            (first == i && is_plain_name(name)).then_some(name)
        });
        name.cloned().unwrap_or_else(|| index.to_string())
    }
}

fn reg(width: Width, reg: Reg) -> String {
    let letter = if width == Width::W64 { 'r' } else { 'w' };
    format!("{letter}{}", reg.number())
}

fn operand(width: Width, src: Operand) -> String {
    match src {
        Operand::Reg(src) => reg(width, src),
        Operand::Imm(imm) => imm.to_string(),
    }
}

/// `+ 4` or `- 4`.
fn offset(off: impl Into<i64>) -> String {
    let off = off.into();
    format!("{} {}", if off < 0 { '-' } else { '+' }, off.unsigned_abs())
}

/// The suffix of `map[...]` for an address inside of a map value.
fn inside(off: u32) -> String {
    format!("[0]+{off}")
}

fn bits(size: Size) -> usize {
    8 * size.bytes()
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            Op::Alu { width, op: AluOp::Mov, dst, src } => {
                write!(f, "{} = {}", reg(width, dst), operand(width, src))
            }
            Op::Alu { width, op, dst, src } => {
                write!(f, "{} {} {}", reg(width, dst), op.symbol(), operand(width, src))
            }
            Op::MovSx { width, from, dst, src } => {
                write!(f, "{} = (s{}){}", reg(width, dst), bits(from), reg(width, src))
            }
            Op::Neg { width, dst } => write!(f, "{0} = -{0}", reg(width, dst)),
            Op::End { op, size, dst } => {
                write!(f, "{dst} = {}{} {dst}", op.name(), bits(size))
            }
            Op::Load { size, signed, dst, base, off } => {
                let letter = if signed { 's' } else { 'u' };
                write!(f, "{dst} = *({letter}{} *)({base} {})", bits(size), offset(off))
            }
            Op::Store { size, base, off, src } => {
                write!(f, "*(u{} *)({base} {}) = {}", bits(size), offset(off), operand(Width::W64, src))
            }
            Op::Atomic { op, size, base, off, src } => self.atomic(f, op, size, base, off, src),
            Op::LoadPacket { size, index: None, off } => write!(f, "r0 = *(u{} *)skb[{off}]", bits(size)),
            Op::LoadPacket { size, index: Some(index), off } => {
                write!(f, "r0 = *(u{} *)skb[{index} {}]", bits(size), offset(off))
            }
            Op::LoadImm { dst, value } => write!(f, "{dst} = 0x{value:x} ll"),
            Op::LoadMap { dst, map } => write!(f, "{dst} = map[{}] ll", self.map(map)),
            Op::LoadMapValue { dst, map, off } => write!(f, "{dst} = map[{}]{} ll", self.map(map), inside(off)),
            Op::LoadVar { dst, id } => write!(f, "{dst} = var[{id}] ll"),
            Op::LoadFunc { dst, distance } => write!(f, "{dst} = subprog[{distance:+}] ll"),
            Op::LoadMapIdx { dst, map } => write!(f, "{dst} = map_idx[{map}] ll"),
            Op::LoadMapIdxValue { dst, map, off } => write!(f, "{dst} = map_idx[{map}]{} ll", inside(off)),
            Op::Jump { off } => write!(f, "goto {off:+}"),
            Op::JumpLong { distance } => write!(f, "gotol {distance:+}"),
            Op::Branch { width, cond, dst, src, off } => {
                write!(f, "if {} {} {} goto {off:+}", reg(width, dst), cond.symbol(), operand(width, src))
            }
            Op::MayGoto { off } => write!(f, "may_goto {off:+}"),
            Op::Call { helper } => match helpers::name_of(helper) {
                Some(name) => write!(f, "call {name}"),
                None => write!(f, "call {helper}"),
            },
            Op::CallLocal { distance } => write!(f, "call pc{distance:+}"),
            Op::CallKfunc { id } => write!(f, "call kfunc#{id}"),
            Op::Exit => f.write_str("exit"),
        }
    }
}

impl Text<'_> {
    fn atomic(
        &self,
        f: &mut fmt::Formatter<'_>,
        op: AtomicOp,
        size: Size,
        base: Reg,
        off: i16,
        src: Reg,
    ) -> fmt::Result {
        let width = if size == Size::Dw { Width::W64 } else { Width::W32 };
        let (at, src, bits) = (format!("{base} {}", offset(off)), reg(width, src), bits(size));
        let xchg = if width == Width::W64 { "xchg_64" } else { "xchg32_32" };
        match op.notation() {
            Some((name, _, true)) => write!(f, "{src} = atomic_fetch_{name}((u{bits} *)({at}), {src})"),
            Some((_, symbol, false)) => write!(f, "lock *(u{bits} *)({at}) {symbol} {src}"),
            None if op == AtomicOp::Xchg => write!(f, "{src} = {xchg}({at}, {src})"),
            None => {
                let old = reg(width, Reg::R0);
                write!(f, "{old} = cmp{xchg}({at}, {old}, {src})")
            }
        }
    }
}
