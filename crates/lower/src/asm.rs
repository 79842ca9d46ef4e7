// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions over virtual registers, and their builder.
//!
//! Two-address form as in eBPF, with labels instead of distances and an unlimited number of registers.
//! [`super::regalloc`] turns it into machine instructions.

pub(crate) use flowloom_isa::op::{AluOp, Cond, Size};

use flowloom_efsm::model::Span;

/// A register: a physical one below 11, otherwise virtual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reg(pub(crate) u32);

/// Number of the first virtual register.
pub(crate) const FIRST_VIRTUAL: u32 = 11;
/// Result of calls.
pub(crate) const R0: Reg = Reg(0);
/// First argument; the XDP context at entry.
pub(crate) const R1: Reg = Reg(1);
/// Second argument.
pub(crate) const R2: Reg = Reg(2);
/// Third argument.
pub(crate) const R3: Reg = Reg(3);
/// Fourth argument.
pub(crate) const R4: Reg = Reg(4);
/// Frame pointer, read-only.
pub(crate) const FP: Reg = Reg(10);

/// A code label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Label(pub(crate) u32);

/// A register or an immediate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    Reg(Reg),
    Imm(i32),
}

/// Whether one access can have this many bytes.
pub(crate) fn is_access(bytes: u32) -> bool {
    Size::ALL.into_iter().any(|size| size.bytes() == bytes as usize)
}

/// The size of an access of 1, 2, 4 or 8 bytes.
///
/// # Panics
/// No access has this many bytes.
pub(crate) fn access_size(bytes: u32) -> Size {
    let found = Size::ALL.into_iter().find(|size| size.bytes() == bytes as usize);
    found.unwrap_or_else(|| unreachable!("an access of {bytes} bytes"))
}

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// `dst = src`, 64 bits; the register allocator coalesces it where possible.
    Copy { dst: Reg, src: Reg },
    /// `dst = dst op src`; a move of an immediate or a 32-bit move defines `dst` without reading it.
    Alu { wide: bool, op: AluOp, dst: Reg, src: Operand },
    /// Converts `dst` from big endian.
    FromBe { dst: Reg, bits: i32 },
    /// Kills the value of `reg`; emits no instruction.
    Forget { reg: Reg },
    /// `dst = value`, 64 bits.
    Imm64 { dst: Reg, value: u64 },
    /// `dst` = address of the map.
    Map { dst: Reg, map: u32 },
    /// `dst` = address in the only value of the map.
    MapValue { dst: Reg, map: u32, offset: u32 },
    /// `dst = *(base + offset)`.
    Load { size: Size, dst: Reg, base: Reg, offset: i16 },
    /// `*(base + offset) = src`.
    Store { size: Size, base: Reg, offset: i16, src: Operand },
    /// `*(base + offset) += src`, atomic; 4 or 8 bytes.
    AtomicAdd { size: Size, base: Reg, offset: i16, src: Reg },
    /// `if *(base + offset) == r0 { *(base + offset) = src }`, atomic; r0 = the old value. 8 bytes.
    CompareExchange { base: Reg, offset: i16, src: Reg },
    /// Swaps `*(base + offset)` and `src`, atomic; 8 bytes.
    Exchange { base: Reg, offset: i16, src: Reg },
    /// Jumps to `target` if the relation holds.
    Jump { wide: bool, op: Cond, left: Reg, right: Operand, target: Label },
    /// Jumps to `target`.
    Goto(Label),
    /// Jumps to the label once the kernel's iteration budget is used up, otherwise falls through.
    MayGoto(Label),
    /// A jump target.
    Label(Label),
    /// Calls a helper with `arguments` in r1..; the result is in r0, r1 to r5 are clobbered.
    Call { helper: i32, arguments: u32 },
    /// Returns r0 to the caller.
    Exit,
    /// Source span of the operations that follow.
    Line(Span),
}

impl Op {
    /// The register that the instruction defines.
    pub(crate) fn def(&self) -> Option<Reg> {
        match *self {
            Op::Copy { dst, .. }
            | Op::Alu { dst, .. }
            | Op::FromBe { dst, .. }
            | Op::Imm64 { dst, .. }
            | Op::Map { dst, .. }
            | Op::MapValue { dst, .. }
            | Op::Load { dst, .. }
            | Op::Forget { reg: dst } => Some(dst),
            Op::CompareExchange { .. } => Some(R0),
            Op::Exchange { src, .. } => Some(src),
            _ => None,
        }
    }

    /// True if the instruction has no effect but to define its register.
    pub(crate) fn is_pure(&self) -> bool {
        self.def().is_some() && !matches!(self, Op::CompareExchange { .. } | Op::Exchange { .. })
    }

    /// Calls `visit` with each register that the instruction reads.
    pub(crate) fn uses(&self, mut visit: impl FnMut(Reg)) {
        let operand = |o: Operand, visit: &mut dyn FnMut(Reg)| {
            if let Operand::Reg(r) = o {
                visit(r);
            }
        };
        match *self {
            Op::Copy { src, .. } => visit(src),
            Op::Alu { op, dst, src, .. } => {
                if op != AluOp::Mov {
                    visit(dst);
                }
                operand(src, &mut visit);
            }
            Op::FromBe { dst, .. } => visit(dst),
            Op::Load { base, .. } => visit(base),
            Op::Store { base, src, .. } => {
                visit(base);
                operand(src, &mut visit);
            }
            Op::CompareExchange { base, src, .. } => {
                visit(R0);
                visit(base);
                visit(src);
            }
            Op::AtomicAdd { base, src, .. } | Op::Exchange { base, src, .. } => {
                visit(base);
                visit(src);
            }
            Op::Jump { left, right, .. } => {
                visit(left);
                operand(right, &mut visit);
            }
            Op::Call { arguments, .. } => (1..=arguments).for_each(|r| visit(Reg(r))),
            Op::Exit => visit(R0),
            Op::Imm64 { .. }
            | Op::Map { .. }
            | Op::MapValue { .. }
            | Op::Forget { .. }
            | Op::Goto(_)
            | Op::MayGoto(_)
            | Op::Label(_)
            | Op::Line(_) => {}
        }
    }

    /// Replaces each register.
    pub(crate) fn map_registers(&mut self, mut to: impl FnMut(Reg) -> Reg) {
        let operand = |o: &mut Operand, to: &mut dyn FnMut(Reg) -> Reg| {
            if let Operand::Reg(r) = o {
                *r = to(*r);
            }
        };
        match self {
            Op::Copy { dst, src } => {
                *src = to(*src);
                *dst = to(*dst);
            }
            Op::Alu { dst, src, .. } => {
                operand(src, &mut to);
                *dst = to(*dst);
            }
            Op::FromBe { dst, .. }
            | Op::Imm64 { dst, .. }
            | Op::Map { dst, .. }
            | Op::MapValue { dst, .. }
            | Op::Forget { reg: dst } => {
                *dst = to(*dst);
            }
            Op::Load { dst, base, .. } => {
                *base = to(*base);
                *dst = to(*dst);
            }
            Op::Store { base, src, .. } => {
                *base = to(*base);
                operand(src, &mut to);
            }
            Op::AtomicAdd { base, src, .. }
            | Op::CompareExchange { base, src, .. }
            | Op::Exchange { base, src, .. } => {
                *base = to(*base);
                *src = to(*src);
            }
            Op::Jump { left, right, .. } => {
                *left = to(*left);
                operand(right, &mut to);
            }
            Op::Goto(_) | Op::MayGoto(_) | Op::Label(_) | Op::Call { .. } | Op::Exit | Op::Line(_) => {}
        }
    }
}

/// Code under construction.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    pub(crate) ops: Vec<Op>,
    next_reg: u32,
    next_label: u32,
    /// Registers that may not be r1. They are set on some paths only; on the others r1 still holds the XDP context, and
    /// an analysis that ignores branch conditions could not tell the two apart.
    pub(crate) never_context: Vec<Reg>,
    /// Registers that hold the XDP context; the registers above may not share their places or spill slots.
    pub(crate) contexts: Vec<Reg>,
    /// Allocated bytes of stack.
    pub(crate) stack_bytes: u32,
}

impl Builder {
    pub(crate) fn new() -> Builder {
        Builder { next_reg: FIRST_VIRTUAL, ..Builder::default() }
    }

    /// A new virtual register.
    pub(crate) fn reg(&mut self) -> Reg {
        self.next_reg += 1;
        Reg(self.next_reg - 1)
    }

    /// Number of registers, physical ones included.
    pub(crate) fn reg_count(&self) -> u32 {
        self.next_reg
    }

    /// A new label, not yet placed.
    pub(crate) fn label(&mut self) -> Label {
        self.next_label += 1;
        Label(self.next_label - 1)
    }

    /// Allocates stack, 8-byte aligned, and returns its offset from the frame pointer. The offset is invalid once
    /// `stack_bytes` exceeds the frame; the program is then rejected.
    pub(crate) fn stack(&mut self, bytes: u32) -> i16 {
        self.stack_bytes = self.stack_bytes.saturating_add(bytes.next_multiple_of(8));
        i16::try_from(self.stack_bytes).map_or(0, |offset| -offset)
    }

    pub(crate) fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    pub(crate) fn place(&mut self, label: Label) {
        self.push(Op::Label(label));
    }

    pub(crate) fn goto(&mut self, label: Label) {
        self.push(Op::Goto(label));
    }

    pub(crate) fn copy(&mut self, dst: Reg, src: Reg) {
        self.push(Op::Copy { dst, src });
    }

    /// A new register with the value of `src`.
    pub(crate) fn dup(&mut self, src: Reg) -> Reg {
        let dst = self.reg();
        self.copy(dst, src);
        dst
    }

    /// `dst = value`.
    pub(crate) fn set(&mut self, dst: Reg, value: u64) {
        match i32::try_from(value as i64) {
            Ok(imm) => self.push(Op::Alu { wide: true, op: AluOp::Mov, dst, src: Operand::Imm(imm) }),
            Err(_) if value <= u64::from(u32::MAX) => {
                self.push(Op::Alu { wide: false, op: AluOp::Mov, dst, src: Operand::Imm(value as u32 as i32) });
            }
            Err(_) => self.push(Op::Imm64 { dst, value }),
        }
    }

    /// `dst = dst op src`, 64 bits.
    pub(crate) fn alu64(&mut self, op: AluOp, dst: Reg, src: Operand) {
        self.push(Op::Alu { wide: true, op, dst, src });
    }

    /// `dst = dst op src`, 32 bits, upper half zero.
    pub(crate) fn alu32(&mut self, op: AluOp, dst: Reg, src: Operand) {
        self.push(Op::Alu { wide: false, op, dst, src });
    }

    pub(crate) fn load(&mut self, size: Size, dst: Reg, base: Reg, offset: i16) {
        self.push(Op::Load { size, dst, base, offset });
    }

    pub(crate) fn store(&mut self, size: Size, base: Reg, offset: i16, src: Operand) {
        self.push(Op::Store { size, base, offset, src });
    }

    pub(crate) fn jump64(&mut self, op: Cond, left: Reg, right: Operand, target: Label) {
        self.push(Op::Jump { wide: true, op, left, right, target });
    }

    pub(crate) fn call(&mut self, helper: i32, arguments: u32) {
        self.push(Op::Call { helper, arguments });
    }

    /// `return value`.
    pub(crate) fn exit_with(&mut self, value: u32) {
        self.set(R0, value.into());
        self.push(Op::Exit);
    }

    /// An operand for `value`: an immediate if it fits in 32 sign-extended bits, otherwise a register.
    pub(crate) fn operand(&mut self, value: u64) -> Operand {
        match i32::try_from(value as i64) {
            Ok(imm) => Operand::Imm(imm),
            Err(_) => {
                let reg = self.reg();
                self.set(reg, value);
                Operand::Reg(reg)
            }
        }
    }
}

/// The negated jump; `None` for [`Cond::Set`], which has none.
pub(crate) const fn inverse(op: Cond) -> Option<Cond> {
    Some(match op {
        Cond::Eq => Cond::Ne,
        Cond::Ne => Cond::Eq,
        Cond::Gt => Cond::Le,
        Cond::Le => Cond::Gt,
        Cond::Ge => Cond::Lt,
        Cond::Lt => Cond::Ge,
        Cond::Sgt => Cond::Sle,
        Cond::Sle => Cond::Sgt,
        Cond::Sge => Cond::Slt,
        Cond::Slt => Cond::Sge,
        Cond::Set => return None,
    })
}
