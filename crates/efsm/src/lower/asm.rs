//! Instructions over virtual registers, and the builder that the lowering speaks to.
//!
//! Two-address form as in eBPF; labels instead of distances; any number of registers. [`super::regalloc`] turns it into
//! instructions of the machine.

use flowloom_isa::insn::{alu, class, jmp};

use crate::model::Span;

/// A register: below 11 one of the machine's, otherwise virtual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reg(pub(crate) u32);

/// Number of the first virtual register.
pub(crate) const FIRST_VIRTUAL: u32 = 11;
/// The result of calls.
pub(crate) const R0: Reg = Reg(0);
/// The first argument, and the context at the start.
pub(crate) const R1: Reg = Reg(1);
/// The second argument.
pub(crate) const R2: Reg = Reg(2);
/// The third argument.
pub(crate) const R3: Reg = Reg(3);
/// The fourth argument.
pub(crate) const R4: Reg = Reg(4);
/// The frame pointer, read only.
pub(crate) const FP: Reg = Reg(10);

/// A place in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Label(pub(crate) u32);

/// A register or a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    Reg(Reg),
    Imm(i32),
}

/// Access sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    B1,
    B2,
    B4,
    B8,
}

impl Size {
    pub(crate) fn of(bytes: u32) -> Option<Size> {
        match bytes {
            1 => Some(Size::B1),
            2 => Some(Size::B2),
            4 => Some(Size::B4),
            8 => Some(Size::B8),
            _ => None,
        }
    }

    pub(crate) fn bytes(self) -> i16 {
        match self {
            Size::B1 => 1,
            Size::B2 => 2,
            Size::B4 => 4,
            Size::B8 => 8,
        }
    }
}

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// `dst = src`, 64 bits: what the register allocator removes where it can.
    Copy { dst: Reg, src: Reg },
    /// `dst = dst op src`; a move of an immediate or a 32-bit move defines `dst` without reading it.
    Alu { wide: bool, op: u8, dst: Reg, src: Operand },
    /// `dst` from big endian.
    FromBe { dst: Reg, bits: i32 },
    /// What `reg` holds means nothing any more: no instruction.
    Forget { reg: Reg },
    /// `dst = value`, 64 bits.
    Imm64 { dst: Reg, value: u64 },
    /// `dst` = the map.
    Map { dst: Reg, map: u32 },
    /// `dst` = the address in the map's only value.
    MapValue { dst: Reg, map: u32, offset: u32 },
    /// `dst = *(base + offset)`.
    Load { size: Size, dst: Reg, base: Reg, offset: i16 },
    /// `*(base + offset) = src`.
    Store { size: Size, base: Reg, offset: i16, src: Operand },
    /// `*(base + offset) += src`, atomically; 4 or 8 bytes.
    AtomicAdd { size: Size, base: Reg, offset: i16, src: Reg },
    /// `*(base + offset) = src` where r0 was there, in one; what was there goes to r0. 8 bytes.
    CompareExchange { base: Reg, offset: i16, src: Reg },
    /// `*(base + offset)` and `src` change places, in one; 8 bytes.
    Exchange { base: Reg, offset: i16, src: Reg },
    /// To `target` where the relation holds.
    Jump { wide: bool, op: u8, left: Reg, right: Operand, target: Label },
    /// To `target`.
    Goto(Label),
    /// To there where the program has come by here too often, otherwise on.
    MayGoto(Label),
    /// A place to jump to.
    Label(Label),
    /// A helper with `arguments` in r1..; the result is in r0, r1 to r5 are lost.
    Call { helper: i32, arguments: u32 },
    /// Back to the caller with r0.
    Exit,
    /// What follows comes from here.
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

    /// Whether the instruction only defines its register.
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
                if op != alu::MOV {
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
    /// Registers that may not be r1: they are set on some ways only, and on the others r1 is still the context. Whoever
    /// follows the context through the program without following what the branches know could not tell the two apart.
    pub(crate) never_context: Vec<Reg>,
    /// The registers that keep the context: those above may not take their places either, or their slots.
    pub(crate) contexts: Vec<Reg>,
    /// Bytes of stack handed out.
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

    /// How many registers there are, the machine's included.
    pub(crate) fn reg_count(&self) -> u32 {
        self.next_reg
    }

    /// A new label, not yet placed.
    pub(crate) fn label(&mut self) -> Label {
        self.next_label += 1;
        Label(self.next_label - 1)
    }

    /// Room on the stack, 8-byte aligned; its offset from the frame pointer. Where `stack_bytes` has become more than the
    /// frame, the offset means nothing and the program is given up.
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
            Ok(imm) => self.push(Op::Alu { wide: true, op: alu::MOV, dst, src: Operand::Imm(imm) }),
            Err(_) if value <= u64::from(u32::MAX) => {
                self.push(Op::Alu { wide: false, op: alu::MOV, dst, src: Operand::Imm(value as u32 as i32) });
            }
            Err(_) => self.push(Op::Imm64 { dst, value }),
        }
    }

    /// `dst = dst op src`, 64 bits.
    pub(crate) fn alu64(&mut self, op: u8, dst: Reg, src: Operand) {
        self.push(Op::Alu { wide: true, op, dst, src });
    }

    /// `dst = dst op src`, 32 bits, upper half zero.
    pub(crate) fn alu32(&mut self, op: u8, dst: Reg, src: Operand) {
        self.push(Op::Alu { wide: false, op, dst, src });
    }

    pub(crate) fn load(&mut self, size: Size, dst: Reg, base: Reg, offset: i16) {
        self.push(Op::Load { size, dst, base, offset });
    }

    pub(crate) fn store(&mut self, size: Size, base: Reg, offset: i16, src: Operand) {
        self.push(Op::Store { size, base, offset, src });
    }

    pub(crate) fn jump64(&mut self, op: u8, left: Reg, right: Operand, target: Label) {
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

    /// An operand for `value`: an immediate where `value`, sign-extended from 32 bits, is it; otherwise a register.
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

/// The class byte of an arithmetic instruction.
pub(crate) const fn alu_class(wide: bool) -> u8 {
    if wide { class::ALU64 } else { class::ALU }
}

/// The class byte of a conditional jump.
pub(crate) const fn jump_class(wide: bool) -> u8 {
    if wide { class::JMP } else { class::JMP32 }
}

/// The jump that holds where `op` does not; `None` for `JSET`, which has none.
pub(crate) const fn inverse(op: u8) -> Option<u8> {
    Some(match op {
        jmp::JEQ => jmp::JNE,
        jmp::JNE => jmp::JEQ,
        jmp::JGT => jmp::JLE,
        jmp::JLE => jmp::JGT,
        jmp::JGE => jmp::JLT,
        jmp::JLT => jmp::JGE,
        jmp::JSGT => jmp::JSLE,
        jmp::JSLE => jmp::JSGT,
        jmp::JSGE => jmp::JSLT,
        jmp::JSLT => jmp::JSGE,
        _ => return None,
    })
}
