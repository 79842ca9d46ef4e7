// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions as the interpreter runs them: one small value each, with operands, widths and targets decided.
//!
//! ```text
//!  slot 0   r1 = 5 ll           ──► 0  Constant { r1, 5 }
//!  slot 2   if r1 > r2 goto +1  ──► 1  Gt64 { r1, r2, to: 3 }
//! ```
//!
//! A 64-bit load is one instruction, so places differ from slots; [`Decoded`] has both directions.

use std::ops::Range;

use flowloom_isa::op::{AluOp, AtomicOp, Cond, EndOp, Op, Operand, Reg, Size, Width};

use super::initialised::Calls;
use super::memory::{function_address, map_address, value_address};
use super::run::Helpers;

/// Gives a macro the names of instructions by operation: operands of 64 bits, one of them immediate, of 32 bits, one of
/// them immediate.
macro_rules! with_operations {
    ($then:ident! { $($rest:tt)* }) => {
        $then! {
            { Add Add64 Add64Imm Add32 Add32Imm } { Sub Sub64 Sub64Imm Sub32 Sub32Imm }
            { Mul Mul64 Mul64Imm Mul32 Mul32Imm } { Div Div64 Div64Imm Div32 Div32Imm }
            { Sdiv Sdiv64 Sdiv64Imm Sdiv32 Sdiv32Imm } { Or Or64 Or64Imm Or32 Or32Imm }
            { And And64 And64Imm And32 And32Imm } { Lsh Lsh64 Lsh64Imm Lsh32 Lsh32Imm }
            { Rsh Rsh64 Rsh64Imm Rsh32 Rsh32Imm } { Mod Mod64 Mod64Imm Mod32 Mod32Imm }
            { Smod Smod64 Smod64Imm Smod32 Smod32Imm } { Xor Xor64 Xor64Imm Xor32 Xor32Imm }
            { Arsh Arsh64 Arsh64Imm Arsh32 Arsh32Imm };
            { Eq Eq64 Eq64Imm Eq32 Eq32Imm } { Gt Gt64 Gt64Imm Gt32 Gt32Imm } { Ge Ge64 Ge64Imm Ge32 Ge32Imm }
            { Set Set64 Set64Imm Set32 Set32Imm } { Ne Ne64 Ne64Imm Ne32 Ne32Imm }
            { Sgt Sgt64 Sgt64Imm Sgt32 Sgt32Imm } { Sge Sge64 Sge64Imm Sge32 Sge32Imm }
            { Lt Lt64 Lt64Imm Lt32 Lt32Imm } { Le Le64 Le64Imm Le32 Le32Imm }
            { Slt Slt64 Slt64Imm Slt32 Slt32Imm } { Sle Sle64 Sle64Imm Sle32 Sle32Imm };
            $($rest)*
        }
    };
}
pub(super) use with_operations;

macro_rules! define {
    (
        $({ $alu:ident $alu64:ident $alu64_imm:ident $alu32:ident $alu32_imm:ident })*;
        $({ $cond:ident $cond64:ident $cond64_imm:ident $cond32:ident $cond32_imm:ident })*;
        $($others:tt)*
    ) => {
        /// An instruction. Registers are their numbers, `to` and `back` places.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Insn {
            $(
                $alu64 { dst: u8, src: u8 },
                $alu64_imm { dst: u8, imm: i32 },
                $alu32 { dst: u8, src: u8 },
                $alu32_imm { dst: u8, imm: i32 },
            )*
            $(
                $cond64 { dst: u8, src: u8, to: u32 },
                $cond64_imm { dst: u8, imm: i32, to: u32 },
                $cond32 { dst: u8, src: u8, to: u32 },
                $cond32_imm { dst: u8, imm: i32, to: u32 },
            )*
            $($others)*
        }

        fn arithmetic(width: Width, op: AluOp, dst: u8, src: Operand) -> Insn {
            match (op, width, src) {
                $(
                    (AluOp::$alu, Width::W64, Operand::Reg(src)) => Insn::$alu64 { dst, src: src.number() },
                    (AluOp::$alu, Width::W64, Operand::Imm(imm)) => Insn::$alu64_imm { dst, imm },
                    (AluOp::$alu, Width::W32, Operand::Reg(src)) => Insn::$alu32 { dst, src: src.number() },
                    (AluOp::$alu, Width::W32, Operand::Imm(imm)) => Insn::$alu32_imm { dst, imm },
                )*
                (AluOp::Mov, Width::W64, Operand::Reg(src)) => Insn::Move64 { dst, src: src.number() },
                (AluOp::Mov, Width::W32, Operand::Reg(src)) => Insn::Move32 { dst, src: src.number() },
                (AluOp::Mov, Width::W64, Operand::Imm(imm)) => constant(dst, imm as u64),
                (AluOp::Mov, Width::W32, Operand::Imm(imm)) => constant(dst, (imm as u32).into()),
            }
        }

        fn branch(width: Width, cond: Cond, dst: u8, src: Operand, to: u32) -> Insn {
            match (cond, width, src) {
                $(
                    (Cond::$cond, Width::W64, Operand::Reg(src)) => Insn::$cond64 { dst, src: src.number(), to },
                    (Cond::$cond, Width::W64, Operand::Imm(imm)) => Insn::$cond64_imm { dst, imm, to },
                    (Cond::$cond, Width::W32, Operand::Reg(src)) => Insn::$cond32 { dst, src: src.number(), to },
                    (Cond::$cond, Width::W32, Operand::Imm(imm)) => Insn::$cond32_imm { dst, imm, to },
                )*
            }
        }
    };
}

with_operations! {
    define! {
        Move64 { dst: u8, src: u8 },
        Move32 { dst: u8, src: u8 },
        /// A number, the address of a map, of a value or of a function, in two halves.
        Constant { dst: u8, low: u32, high: u32 },
        MoveSx { width: Width, from: Size, dst: u8, src: u8 },
        Neg { width: Width, dst: u8 },
        End { op: EndOp, size: Size, dst: u8 },
        Load8 { dst: u8, base: u8, off: i16 },
        Load16 { dst: u8, base: u8, off: i16 },
        Load32 { dst: u8, base: u8, off: i16 },
        Load64 { dst: u8, base: u8, off: i16 },
        LoadSigned { size: Size, dst: u8, base: u8, off: i16 },
        /// Loads and stores at a fixed byte of the current frame.
        LoadFrame8 { dst: u8, at: u16 },
        LoadFrame16 { dst: u8, at: u16 },
        LoadFrame32 { dst: u8, at: u16 },
        LoadFrame64 { dst: u8, at: u16 },
        StoreFrame8 { src: u8, at: u16 },
        StoreFrame16 { src: u8, at: u16 },
        StoreFrame32 { src: u8, at: u16 },
        StoreFrame64 { src: u8, at: u16 },
        Store8 { base: u8, src: u8, off: i16 },
        Store16 { base: u8, src: u8, off: i16 },
        Store32 { base: u8, src: u8, off: i16 },
        Store64 { base: u8, src: u8, off: i16 },
        StoreImm { size: Size, base: u8, off: i16, imm: i32 },
        Atomic { op: AtomicOp, size: Size, base: u8, off: i16, src: u8 },
        Jump { to: u32 },
        MayGoto { to: u32 },
        /// A helper by its place in the table; bit n of `given`: whether it gets the register.
        Call { helper: u16, given: u8 },
        /// A helper that changes the control flow, by its number.
        CallControl { helper: u8 },
        CallLocal { to: u32 },
        Exit,
        /// What the check of programs does not let through.
        Invalid,
    }
}

fn constant(dst: u8, value: u64) -> Insn {
    Insn::Constant { dst, low: value as u32, high: (value >> 32) as u32 }
}

/// A program as the interpreter runs it.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub(super) insns: Vec<Insn>,
    /// By place, the slot.
    slots: Vec<u32>,
    /// By slot, the place; none for the second slot of an instruction.
    places: Vec<u32>,
}

/// Parts of the environment that instructions refer to.
pub(super) struct Surroundings<'a> {
    /// The number of the program.
    pub(super) program: usize,
    /// The size of each map's values, for addresses inside of them.
    pub(super) value_bytes: &'a [u32],
    pub(super) helpers: &'a Helpers,
}

impl Decoded {
    /// Decodes checked code.
    pub(super) fn of(code: &[Option<Op>], calls: &Calls, around: &Surroundings<'_>) -> Decoded {
        let mut places = vec![u32::MAX; code.len()];
        let mut slots = Vec::new();
        for (slot, _) in code.iter().enumerate().filter(|(_, op)| op.is_some()) {
            places[slot] = slots.len() as u32;
            slots.push(slot as u32);
        }
        let insns = slots.iter().map(|slot| {
            let slot = *slot as usize;
            code[slot].map_or(Insn::Invalid, |op| insn(op, slot, &places, calls, around))
        });
        Decoded { insns: insns.collect(), slots, places }
    }

    /// The slot of a place.
    pub(super) fn slot(&self, place: usize) -> usize {
        self.slots.get(place).map_or(self.places.len(), |slot| *slot as usize)
    }

    /// The place of a slot.
    pub(super) fn place(&self, slot: usize) -> usize {
        self.places.get(slot).map_or(self.insns.len(), |place| *place as usize)
    }
}

/// The byte of a frame at this distance from its end, if an access of this size is inside of it.
fn frame_byte(base: Reg, off: i16, size: Size) -> Option<u16> {
    const FRAME: Range<i64> = 0..flowloom_isa::limits::STACK_BYTES as i64;
    let at = FRAME.end + i64::from(off);
    let is_inside = FRAME.contains(&at) && at + size.bytes() as i64 <= FRAME.end;
    (base == Reg::FP && is_inside).then_some(at as u16)
}

fn insn(op: Op, slot: usize, places: &[u32], calls: &Calls, around: &Surroundings<'_>) -> Insn {
    let to = |distance: i64| {
        let target = usize::try_from(slot as i64 + 1 + distance).ok();
        target.and_then(|target| places.get(target)).copied().unwrap_or(u32::MAX)
    };
    match op {
        Op::Alu { width, op, dst, src } => arithmetic(width, op, dst.number(), src),
        Op::MovSx { width, from, dst, src } => Insn::MoveSx { width, from, dst: dst.number(), src: src.number() },
        Op::Neg { width, dst } => Insn::Neg { width, dst: dst.number() },
        Op::End { op, size, dst } => Insn::End { op, size, dst: dst.number() },
        Op::Load { size, signed, dst, base, off } => {
            let (at, dst, base) = (frame_byte(base, off, size), dst.number(), base.number());
            match (signed, size, at) {
                (true, ..) => Insn::LoadSigned { size, dst, base, off },
                (_, Size::B, Some(at)) => Insn::LoadFrame8 { dst, at },
                (_, Size::H, Some(at)) => Insn::LoadFrame16 { dst, at },
                (_, Size::W, Some(at)) => Insn::LoadFrame32 { dst, at },
                (_, Size::Dw, Some(at)) => Insn::LoadFrame64 { dst, at },
                (_, Size::B, None) => Insn::Load8 { dst, base, off },
                (_, Size::H, None) => Insn::Load16 { dst, base, off },
                (_, Size::W, None) => Insn::Load32 { dst, base, off },
                (_, Size::Dw, None) => Insn::Load64 { dst, base, off },
            }
        }
        Op::Store { size, base, off, src: Operand::Imm(imm) } => Insn::StoreImm { size, base: base.number(), off, imm },
        Op::Store { size, base, off, src: Operand::Reg(src) } => {
            let (at, base, src) = (frame_byte(base, off, size), base.number(), src.number());
            match (size, at) {
                (Size::B, Some(at)) => Insn::StoreFrame8 { src, at },
                (Size::H, Some(at)) => Insn::StoreFrame16 { src, at },
                (Size::W, Some(at)) => Insn::StoreFrame32 { src, at },
                (Size::Dw, Some(at)) => Insn::StoreFrame64 { src, at },
                (Size::B, None) => Insn::Store8 { base, src, off },
                (Size::H, None) => Insn::Store16 { base, src, off },
                (Size::W, None) => Insn::Store32 { base, src, off },
                (Size::Dw, None) => Insn::Store64 { base, src, off },
            }
        }
        Op::Atomic { op, size, base, off, src } => {
            Insn::Atomic { op, size, base: base.number(), off, src: src.number() }
        }
        Op::LoadImm { dst, value } => constant(dst.number(), value),
        Op::LoadMap { dst, map } => constant(dst.number(), map_address(map as usize)),
        Op::LoadMapValue { dst, map, off } => match around.value_bytes.get(map as usize) {
            Some(size) => constant(dst.number(), value_address(map as usize, *size, 0, off)),
            None => Insn::Invalid,
        },
        Op::LoadFunc { dst, distance } => {
            let target = (slot as i64 + 1 + i64::from(distance)) as usize;
            constant(dst.number(), function_address(around.program, target))
        }
        Op::Jump { off } => Insn::Jump { to: to(off.into()) },
        Op::JumpLong { distance } => Insn::Jump { to: to(distance.into()) },
        Op::Branch { width, cond, dst, src, off } => branch(width, cond, dst.number(), src, to(off.into())),
        Op::MayGoto { off } => Insn::MayGoto { to: to(off.into()) },
        Op::Call { helper } if around.helpers.is_control(helper) => Insn::CallControl { helper: helper as u8 },
        Op::Call { helper } => match around.helpers.place(helper) {
            Some(place) => Insn::Call { helper: place as u16, given: calls.given(slot) },
            None => Insn::Invalid,
        },
        Op::CallLocal { distance } => Insn::CallLocal { to: to(distance.into()) },
        Op::Exit => Insn::Exit,
        Op::LoadPacket { .. }
        | Op::LoadVar { .. }
        | Op::LoadMapIdx { .. }
        | Op::LoadMapIdxValue { .. }
        | Op::CallKfunc { .. } => Insn::Invalid,
    }
}
