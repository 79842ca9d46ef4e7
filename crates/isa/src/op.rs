// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decoded instructions: the only place that knows which bit patterns are instructions [RFC 9669].
//!
//! ```text
//!  [Insn] ──decode──► Op ──encode──► [Insn]      encode(decode(x)) == x for everything that decode accepts
//! ```
//!
//! Assembler, disassembler, program check and interpreter all work on [`Op`], so opcodes, reserved fields and operand
//! kinds are interpreted once.

use std::fmt;

use crate::insn::{Insn, SRC_REG, alu, call, class, imm64, jmp, mode, size};

/// A register, `r0` to `r10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(u8);

impl Reg {
    /// The return value, and the expected value of `cmpxchg`.
    pub const R0: Reg = Reg(0);
    /// The first argument.
    pub const R1: Reg = Reg(1);
    /// The second argument.
    pub const R2: Reg = Reg(2);
    /// The frame pointer; read-only.
    pub const FP: Reg = Reg(10);

    /// The register with this number, if it exists.
    pub const fn new(number: u8) -> Option<Reg> {
        if number <= 10 { Some(Reg(number)) } else { None }
    }

    /// Its number, 0 to 10.
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// The width of an operation; 32-bit results are zero-extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// The low half, written `w1`.
    W32,
    /// The whole register, written `r1`.
    W64,
}

/// A source operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// An immediate, sign-extended to the width of the operation.
    Imm(i32),
}

/// Binary arithmetic operations: the operation bits, plus 1 for the signed ones.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum AluOp {
    Add = alu::ADD,
    Sub = alu::SUB,
    Mul = alu::MUL,
    Div = alu::DIV,
    Sdiv = alu::DIV | 1,
    Or = alu::OR,
    And = alu::AND,
    Lsh = alu::LSH,
    Rsh = alu::RSH,
    Mod = alu::MOD,
    Smod = alu::MOD | 1,
    Xor = alu::XOR,
    Mov = alu::MOV,
    Arsh = alu::ARSH,
}

impl AluOp {
    /// All operations.
    pub const ALL: [AluOp; 14] = [
        AluOp::Add,
        AluOp::Sub,
        AluOp::Mul,
        AluOp::Div,
        AluOp::Sdiv,
        AluOp::Or,
        AluOp::And,
        AluOp::Lsh,
        AluOp::Rsh,
        AluOp::Mod,
        AluOp::Smod,
        AluOp::Xor,
        AluOp::Mov,
        AluOp::Arsh,
    ];

    /// The operation bits and the offset field.
    const fn bits(self) -> (u8, i16) {
        (self as u8 & 0xf0, self as i16 & 1)
    }

    /// The notation, e.g. `+=`.
    pub const fn symbol(self) -> &'static str {
        match self {
            AluOp::Add => "+=",
            AluOp::Sub => "-=",
            AluOp::Mul => "*=",
            AluOp::Div => "/=",
            AluOp::Sdiv => "s/=",
            AluOp::Or => "|=",
            AluOp::And => "&=",
            AluOp::Lsh => "<<=",
            AluOp::Rsh => ">>=",
            AluOp::Mod => "%=",
            AluOp::Smod => "s%=",
            AluOp::Xor => "^=",
            AluOp::Mov => "=",
            AluOp::Arsh => "s>>=",
        }
    }
}

/// Conditions of branches, as their operation bits.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Cond {
    Eq = jmp::JEQ,
    Gt = jmp::JGT,
    Ge = jmp::JGE,
    /// Some common bit is set.
    Set = jmp::JSET,
    Ne = jmp::JNE,
    Sgt = jmp::JSGT,
    Sge = jmp::JSGE,
    Lt = jmp::JLT,
    Le = jmp::JLE,
    Slt = jmp::JSLT,
    Sle = jmp::JSLE,
}

impl Cond {
    /// All conditions.
    pub const ALL: [Cond; 11] = [
        Cond::Eq,
        Cond::Gt,
        Cond::Ge,
        Cond::Set,
        Cond::Ne,
        Cond::Sgt,
        Cond::Sge,
        Cond::Lt,
        Cond::Le,
        Cond::Slt,
        Cond::Sle,
    ];

    /// The notation, e.g. `s>=`.
    pub const fn symbol(self) -> &'static str {
        match self {
            Cond::Eq => "==",
            Cond::Gt => ">",
            Cond::Ge => ">=",
            Cond::Set => "&",
            Cond::Ne => "!=",
            Cond::Sgt => "s>",
            Cond::Sge => "s>=",
            Cond::Lt => "<",
            Cond::Le => "<=",
            Cond::Slt => "s<",
            Cond::Sle => "s<=",
        }
    }
}

/// Sizes of memory accesses, as their bits in the opcode.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Size {
    /// One byte.
    B = size::B,
    /// Two bytes.
    H = size::H,
    /// Four bytes.
    W = size::W,
    /// Eight bytes.
    Dw = size::DW,
}

impl Size {
    /// All sizes.
    pub const ALL: [Size; 4] = [Size::B, Size::H, Size::W, Size::Dw];

    /// The size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Size::B => 1,
            Size::H => 2,
            Size::W => 4,
            Size::Dw => 8,
        }
    }

    const fn of(code: u8) -> Size {
        match code & 0x18 {
            size::B => Size::B,
            size::H => Size::H,
            size::W => Size::W,
            _ => Size::Dw,
        }
    }
}

/// Byte order operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndOp {
    /// Host to little endian: truncates to the width.
    Le,
    /// Host to big endian: swaps and truncates.
    Be,
    /// Swaps unconditionally, and truncates.
    Swap,
}

impl EndOp {
    /// All operations.
    pub const ALL: [EndOp; 3] = [EndOp::Le, EndOp::Be, EndOp::Swap];

    /// The notation, without the number of bits.
    pub const fn name(self) -> &'static str {
        match self {
            EndOp::Le => "le",
            EndOp::Be => "be",
            EndOp::Swap => "bswap",
        }
    }
}

/// Atomic operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// Adds; with `fetch` the old value goes to the source register.
    Add {
        /// Whether the old value is returned.
        fetch: bool,
    },
    /// Bitwise or.
    Or {
        /// Whether the old value is returned.
        fetch: bool,
    },
    /// Bitwise and.
    And {
        /// Whether the old value is returned.
        fetch: bool,
    },
    /// Bitwise exclusive or.
    Xor {
        /// Whether the old value is returned.
        fetch: bool,
    },
    /// Exchanges memory and source register.
    Xchg,
    /// Writes the source register if memory equals `r0`; the old value goes to `r0`.
    CmpXchg,
}

impl AtomicOp {
    /// All operations.
    pub const ALL: [AtomicOp; 10] = [
        AtomicOp::Add { fetch: false },
        AtomicOp::Add { fetch: true },
        AtomicOp::Or { fetch: false },
        AtomicOp::Or { fetch: true },
        AtomicOp::And { fetch: false },
        AtomicOp::And { fetch: true },
        AtomicOp::Xor { fetch: false },
        AtomicOp::Xor { fetch: true },
        AtomicOp::Xchg,
        AtomicOp::CmpXchg,
    ];

    /// Name, operator and whether the old value is returned; `None` for exchanges.
    pub const fn notation(self) -> Option<(&'static str, &'static str, bool)> {
        match self {
            AtomicOp::Add { fetch } => Some(("add", "+=", fetch)),
            AtomicOp::Or { fetch } => Some(("or", "|=", fetch)),
            AtomicOp::And { fetch } => Some(("and", "&=", fetch)),
            AtomicOp::Xor { fetch } => Some(("xor", "^=", fetch)),
            AtomicOp::Xchg | AtomicOp::CmpXchg => None,
        }
    }

    const fn imm(self) -> i32 {
        match self {
            AtomicOp::Add { fetch } => fetch as i32,
            AtomicOp::Or { fetch } => 0x40 | fetch as i32,
            AtomicOp::And { fetch } => 0x50 | fetch as i32,
            AtomicOp::Xor { fetch } => 0xa0 | fetch as i32,
            AtomicOp::Xchg => 0xe1,
            AtomicOp::CmpXchg => 0xf1,
        }
    }
}

/// A decoded instruction. Distances count from the slot after the instruction's first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant's line says what its fields are")]
pub enum Op {
    /// `dst = dst op src`; [`AluOp::Mov`] is `dst = src`.
    Alu { width: Width, op: AluOp, dst: Reg, src: Operand },
    /// `dst = src`, the low `from` bytes of which are sign-extended to `width`.
    MovSx { width: Width, from: Size, dst: Reg, src: Reg },
    /// `dst = -dst`.
    Neg { width: Width, dst: Reg },
    /// Changes the byte order; `size` is 2, 4 or 8 bytes.
    End { op: EndOp, size: Size, dst: Reg },
    /// `dst = *(base + off)`.
    Load { size: Size, signed: bool, dst: Reg, base: Reg, off: i16 },
    /// `*(base + off) = src`.
    Store { size: Size, base: Reg, off: i16, src: Operand },
    /// An atomic read-modify-write; `size` is 4 or 8 bytes.
    Atomic { op: AtomicOp, size: Size, base: Reg, off: i16, src: Reg },
    /// Classic packet access through `r6`: not for XDP.
    LoadPacket { size: Size, index: Option<Reg>, off: i32 },
    /// A 64-bit number.
    LoadImm { dst: Reg, value: u64 },
    /// A map, by its index in the program.
    LoadMap { dst: Reg, map: i32 },
    /// An address inside of the value of a map with one entry.
    LoadMapValue { dst: Reg, map: i32, off: u32 },
    /// A platform variable.
    LoadVar { dst: Reg, id: i32 },
    /// The address of a function of the program.
    LoadFunc { dst: Reg, distance: i32 },
    /// A map, by its index in the loader's list.
    LoadMapIdx { dst: Reg, map: i32 },
    /// An address inside of the value of a map with one entry, by index in the loader's list.
    LoadMapIdxValue { dst: Reg, map: i32, off: u32 },
    /// `goto`.
    Jump { off: i16 },
    /// `gotol`.
    JumpLong { distance: i32 },
    /// `if dst cond src goto`.
    Branch { width: Width, cond: Cond, dst: Reg, src: Operand, off: i16 },
    /// `may_goto`: falls through, until the program has executed too many of them. In Linux from 6.9 on, not in the
    /// standard.
    MayGoto { off: i16 },
    /// Calls a helper by number.
    Call { helper: i32 },
    /// Calls a function of the program.
    CallLocal { distance: i32 },
    /// Calls a kernel function by BTF id.
    CallKfunc { id: i32 },
    /// Returns from the function or ends the program.
    Exit,
}

/// A bit pattern that is not an instruction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// An unknown opcode.
    #[error("opcode 0x{0:02x} is not in the instruction set")]
    Opcode(u8),
    /// A field of a known instruction has an invalid value.
    #[error("{field} of opcode 0x{code:02x} is {found}, expected {expected}")]
    Field {
        /// The opcode.
        code: u8,
        /// `dst`, `src`, `off` or `imm`; `next.` before fields of the second slot.
        field: &'static str,
        /// Its value.
        found: i64,
        /// The valid values.
        expected: &'static str,
    },
    /// A 64-bit immediate load in the last slot.
    #[error("64-bit immediate load is cut off: found the end of the program, expected a second slot")]
    CutOff,
}

/// Checks the fields of one instruction.
struct Fields(Insn);

impl Fields {
    fn bad(&self, field: &'static str, found: i64, expected: &'static str) -> DecodeError {
        DecodeError::Field { code: self.0.code, field, found, expected }
    }

    fn dst(&self) -> Result<Reg, DecodeError> {
        Reg::new(self.0.dst).ok_or_else(|| self.bad("dst", self.0.dst.into(), "a register, 0 to 10"))
    }

    fn src(&self) -> Result<Reg, DecodeError> {
        Reg::new(self.0.src).ok_or_else(|| self.bad("src", self.0.src.into(), "a register, 0 to 10"))
    }

    /// Checks that these reserved fields are zero.
    fn reserved(&self, fields: &[&'static str]) -> Result<(), DecodeError> {
        for &field in fields {
            let found = match field {
                "dst" => self.0.dst.into(),
                "src" => self.0.src.into(),
                "off" => self.0.off.into(),
                _ => i64::from(self.0.imm),
            };
            if found != 0 {
                return Err(self.bad(field, found, "0 (reserved)"));
            }
        }
        Ok(())
    }

    /// The source operand, as the source bit says; the unused field is zero.
    fn operand(&self) -> Result<Operand, DecodeError> {
        if self.0.code & SRC_REG != 0 {
            self.reserved(&["imm"])?;
            Ok(Operand::Reg(self.src()?))
        } else {
            self.reserved(&["src"])?;
            Ok(Operand::Imm(self.0.imm))
        }
    }

    fn alu(&self) -> Result<Op, DecodeError> {
        let insn = self.0;
        let width = if insn.class() == class::ALU64 { Width::W64 } else { Width::W32 };
        let op = match insn.op() {
            alu::NEG => {
                if insn.code & SRC_REG != 0 {
                    return Err(DecodeError::Opcode(insn.code));
                }
                self.reserved(&["src", "off", "imm"])?;
                return Ok(Op::Neg { width, dst: self.dst()? });
            }
            alu::END => return self.end(width),
            alu::MOV if insn.off != 0 && insn.code & SRC_REG != 0 => {
                let from = match (insn.off, width) {
                    (8, _) => Size::B,
                    (16, _) => Size::H,
                    (32, Width::W64) => Size::W,
                    (off, Width::W64) => return Err(self.bad("off", off.into(), "0, 8, 16 or 32")),
                    (off, Width::W32) => return Err(self.bad("off", off.into(), "0, 8 or 16")),
                };
                self.reserved(&["imm"])?;
                return Ok(Op::MovSx { width, from, dst: self.dst()?, src: self.src()? });
            }
            alu::DIV | alu::MOD if insn.off != 0 => {
                if insn.off != 1 {
                    return Err(self.bad("off", insn.off.into(), "0 (unsigned) or 1 (signed)"));
                }
                if insn.op() == alu::DIV { AluOp::Sdiv } else { AluOp::Smod }
            }
            bits => {
                let op = AluOp::ALL.into_iter().find(|op| op.bits() == (bits, 0));
                self.reserved(&["off"])?;
                op.ok_or(DecodeError::Opcode(insn.code))?
            }
        };
        Ok(Op::Alu { width, op, dst: self.dst()?, src: self.operand()? })
    }

    fn end(&self, width: Width) -> Result<Op, DecodeError> {
        let op = match (width, self.0.code & SRC_REG) {
            (Width::W32, 0) => EndOp::Le,
            (Width::W32, _) => EndOp::Be,
            (Width::W64, 0) => EndOp::Swap,
            (Width::W64, _) => return Err(DecodeError::Opcode(self.0.code)),
        };
        let size = match self.0.imm {
            16 => Size::H,
            32 => Size::W,
            64 => Size::Dw,
            other => return Err(self.bad("imm", other.into(), "16, 32 or 64")),
        };
        self.reserved(&["src", "off"])?;
        Ok(Op::End { op, size, dst: self.dst()? })
    }

    fn load_store(&self) -> Result<Op, DecodeError> {
        let insn = self.0;
        let size = Size::of(insn.code);
        let unknown = Err(DecodeError::Opcode(insn.code));
        match (insn.class(), insn.code & 0xe0) {
            (class::LDX, m @ (mode::MEM | mode::MEMSX)) => {
                if m == mode::MEMSX && size == Size::Dw {
                    return unknown;
                }
                self.reserved(&["imm"])?;
                Ok(Op::Load { size, signed: m == mode::MEMSX, dst: self.dst()?, base: self.src()?, off: insn.off })
            }
            (class::ST, mode::MEM) => {
                self.reserved(&["src"])?;
                Ok(Op::Store { size, base: self.dst()?, off: insn.off, src: Operand::Imm(insn.imm) })
            }
            (class::STX, mode::MEM) => {
                self.reserved(&["imm"])?;
                Ok(Op::Store { size, base: self.dst()?, off: insn.off, src: Operand::Reg(self.src()?) })
            }
            (class::STX, mode::ATOMIC) => {
                if !matches!(size, Size::W | Size::Dw) {
                    return unknown;
                }
                let op = AtomicOp::ALL.into_iter().find(|op| op.imm() == insn.imm).ok_or_else(|| {
                    self.bad(
                        "imm",
                        insn.imm.into(),
                        "an atomic operation: 0x00, 0x40, 0x50, 0xa0, these plus 1, 0xe1 or 0xf1",
                    )
                })?;
                Ok(Op::Atomic { op, size, base: self.dst()?, off: insn.off, src: self.src()? })
            }
            (class::LD, m @ (mode::ABS | mode::IND)) => {
                if size == Size::Dw {
                    return unknown;
                }
                self.reserved(&["dst", "off"])?;
                let index = if m == mode::IND {
                    Some(self.src()?)
                } else {
                    self.reserved(&["src"])?;
                    None
                };
                Ok(Op::LoadPacket { size, index, off: insn.imm })
            }
            _ => unknown,
        }
    }

    fn wide(&self, next: Insn) -> Result<Op, DecodeError> {
        let insn = self.0;
        self.reserved(&["off"])?;
        for (field, found) in [
            ("next.opcode", next.code.into()),
            ("next.dst", next.dst.into()),
            ("next.src", next.src.into()),
            ("next.off", next.off.into()),
        ] {
            if found != 0 {
                return Err(self.bad(field, found, "0 (second slot of a 64-bit immediate load)"));
            }
        }
        let (dst, imm, off) = (self.dst()?, insn.imm, next.imm as u32);
        let op = match insn.src {
            imm64::NUMBER => {
                return Ok(Op::LoadImm { dst, value: u64::from(off) << 32 | u64::from(imm as u32) });
            }
            imm64::MAP_VALUE => return Ok(Op::LoadMapValue { dst, map: imm, off }),
            imm64::MAP_IDX_VALUE => return Ok(Op::LoadMapIdxValue { dst, map: imm, off }),
            imm64::MAP => Op::LoadMap { dst, map: imm },
            imm64::VAR => Op::LoadVar { dst, id: imm },
            imm64::FUNC => Op::LoadFunc { dst, distance: imm },
            imm64::MAP_IDX => Op::LoadMapIdx { dst, map: imm },
            other => return Err(self.bad("src", other.into(), "0 to 6")),
        };
        if next.imm == 0 { Ok(op) } else { Err(self.bad("next.imm", next.imm.into(), "0 (reserved)")) }
    }

    fn jump(&self) -> Result<Op, DecodeError> {
        let insn = self.0;
        let is64 = insn.class() == class::JMP;
        match insn.op() {
            jmp::JA => {
                if insn.code & SRC_REG != 0 {
                    return Err(DecodeError::Opcode(insn.code));
                }
                self.reserved(&["dst", "src"])?;
                if is64 {
                    self.reserved(&["imm"])?;
                    Ok(Op::Jump { off: insn.off })
                } else {
                    self.reserved(&["off"])?;
                    Ok(Op::JumpLong { distance: insn.imm })
                }
            }
            jmp::JCOND if is64 && insn.code & SRC_REG == 0 => {
                self.reserved(&["dst", "src", "imm"])?;
                Ok(Op::MayGoto { off: insn.off })
            }
            jmp::CALL if is64 && insn.code & SRC_REG == 0 => {
                self.reserved(&["dst", "off"])?;
                match insn.src {
                    call::HELPER => Ok(Op::Call { helper: insn.imm }),
                    call::LOCAL => Ok(Op::CallLocal { distance: insn.imm }),
                    call::KFUNC => Ok(Op::CallKfunc { id: insn.imm }),
                    other => Err(self.bad("src", other.into(), "0 (helper), 1 (function) or 2 (kernel function)")),
                }
            }
            jmp::EXIT if is64 && insn.code & SRC_REG == 0 => {
                self.reserved(&["dst", "src", "off", "imm"])?;
                Ok(Op::Exit)
            }
            bits => {
                let cond = Cond::ALL.into_iter().find(|cond| *cond as u8 == bits);
                let cond = cond.ok_or(DecodeError::Opcode(insn.code))?;
                let width = if is64 { Width::W64 } else { Width::W32 };
                Ok(Op::Branch { width, cond, dst: self.dst()?, src: self.operand()?, off: insn.off })
            }
        }
    }
}

impl Op {
    /// Decodes the instruction in slot `at`.
    ///
    /// # Errors
    /// The slot does not exist, its opcode is unknown, or a field has an invalid value.
    pub fn decode(insns: &[Insn], at: usize) -> Result<Op, DecodeError> {
        let insn = *insns.get(at).ok_or(DecodeError::CutOff)?;
        let fields = Fields(insn);
        match insn.class() {
            class::ALU | class::ALU64 => fields.alu(),
            class::JMP | class::JMP32 => fields.jump(),
            _ if insn.is_wide() => fields.wide(*insns.get(at + 1).ok_or(DecodeError::CutOff)?),
            _ => fields.load_store(),
        }
    }

    /// The number of slots of the instruction: 1 or 2.
    pub const fn slots(self) -> usize {
        if self.wide_dst().is_some() { 2 } else { 1 }
    }

    /// The register that an instruction of two slots writes.
    const fn wide_dst(self) -> Option<Reg> {
        match self {
            Op::LoadImm { dst, .. }
            | Op::LoadMap { dst, .. }
            | Op::LoadMapValue { dst, .. }
            | Op::LoadVar { dst, .. }
            | Op::LoadFunc { dst, .. }
            | Op::LoadMapIdx { dst, .. }
            | Op::LoadMapIdxValue { dst, .. } => Some(dst),
            _ => None,
        }
    }

    /// The distance of a jump or a local call from the next instruction, in slots.
    pub const fn distance(self) -> Option<i64> {
        match self {
            Op::Jump { off } | Op::Branch { off, .. } | Op::MayGoto { off } => Some(off as i64),
            Op::JumpLong { distance } | Op::CallLocal { distance } => Some(distance as i64),
            // Counted from the second slot, as in the kernel.
            Op::LoadFunc { distance, .. } => Some(distance as i64),
            _ => None,
        }
    }

    /// The instructions that may run next in the same function, by their slots; calls return.
    pub fn successors(self, at: usize) -> impl Iterator<Item = usize> {
        let (falls, jumps) = match self {
            Op::Exit => (false, false),
            Op::Jump { .. } | Op::JumpLong { .. } => (false, true),
            Op::Branch { .. } | Op::MayGoto { .. } => (true, true),
            _ => (true, false),
        };
        let target = self.distance().filter(|_| jumps).map(|distance| at as i64 + 1 + distance);
        let target = target.and_then(|target| usize::try_from(target).ok());
        falls.then_some(at + self.slots()).into_iter().chain(target)
    }

    /// The register that the instruction itself writes; calls write `r0` and clobber `r1` to `r5` besides.
    pub const fn writes(self) -> Option<Reg> {
        match self {
            Op::Alu { dst, .. }
            | Op::MovSx { dst, .. }
            | Op::Neg { dst, .. }
            | Op::End { dst, .. }
            | Op::Load { dst, .. } => Some(dst),
            Op::Atomic { op: AtomicOp::CmpXchg, .. } | Op::LoadPacket { .. } => Some(Reg::R0),
            Op::Atomic { op, src, .. } if op.imm() & 1 != 0 => Some(src),
            Op::Call { .. } | Op::CallLocal { .. } | Op::CallKfunc { .. } => Some(Reg::R0),
            _ => self.wide_dst(),
        }
    }

    /// Appends the one or two slots of the instruction.
    ///
    /// Sizes that no instruction has (`End` of a byte, `Atomic` of two bytes) are encoded to slots that [`Op::decode`]
    /// refuses.
    pub fn encode(self, out: &mut Vec<Insn>) {
        let one = |code, dst: Reg, src, off, imm| Insn { code, dst: dst.0, src, off, imm };
        let with = |code: u8, dst: Reg, src, off| match src {
            Operand::Reg(reg) => one(code | SRC_REG, dst, reg.0, off, 0),
            Operand::Imm(imm) => one(code, dst, 0, off, imm),
        };
        let alu_class = |width| if width == Width::W64 { class::ALU64 } else { class::ALU };
        let wide = |out: &mut Vec<Insn>, dst, src, imm, next: u32| {
            out.push(one(class::LD | mode::IMM | size::DW, dst, src, 0, imm));
            out.push(Insn { imm: next as i32, ..Insn::default() });
        };
        let zero = Reg::R0;
        let insn = match self {
            Op::Alu { width, op, dst, src } => {
                let (bits, off) = op.bits();
                with(alu_class(width) | bits, dst, src, off)
            }
            Op::MovSx { width, from, dst, src } => {
                one(alu_class(width) | alu::MOV | SRC_REG, dst, src.0, 8 * from.bytes() as i16, 0)
            }
            Op::Neg { width, dst } => one(alu_class(width) | alu::NEG, dst, 0, 0, 0),
            Op::End { op, size, dst } => {
                let code = match op {
                    EndOp::Le => class::ALU,
                    EndOp::Be => class::ALU | SRC_REG,
                    EndOp::Swap => class::ALU64,
                };
                one(code | alu::END, dst, 0, 0, 8 * size.bytes() as i32)
            }
            Op::Load { size, signed, dst, base, off } => {
                let mode = if signed { mode::MEMSX } else { mode::MEM };
                one(class::LDX | mode | size as u8, dst, base.0, off, 0)
            }
            Op::Store { size, base, off, src: Operand::Imm(imm) } => {
                one(class::ST | mode::MEM | size as u8, base, 0, off, imm)
            }
            Op::Store { size, base, off, src: Operand::Reg(src) } => {
                one(class::STX | mode::MEM | size as u8, base, src.0, off, 0)
            }
            Op::Atomic { op, size, base, off, src } => {
                one(class::STX | mode::ATOMIC | size as u8, base, src.0, off, op.imm())
            }
            Op::LoadPacket { size, index: None, off } => one(class::LD | mode::ABS | size as u8, zero, 0, 0, off),
            Op::LoadPacket { size, index: Some(index), off } => {
                one(class::LD | mode::IND | size as u8, zero, index.0, 0, off)
            }
            Op::LoadImm { dst, value } => return wide(out, dst, imm64::NUMBER, value as i32, (value >> 32) as u32),
            Op::LoadMap { dst, map } => return wide(out, dst, imm64::MAP, map, 0),
            Op::LoadMapValue { dst, map, off } => return wide(out, dst, imm64::MAP_VALUE, map, off),
            Op::LoadVar { dst, id } => return wide(out, dst, imm64::VAR, id, 0),
            Op::LoadFunc { dst, distance } => return wide(out, dst, imm64::FUNC, distance, 0),
            Op::LoadMapIdx { dst, map } => return wide(out, dst, imm64::MAP_IDX, map, 0),
            Op::LoadMapIdxValue { dst, map, off } => return wide(out, dst, imm64::MAP_IDX_VALUE, map, off),
            Op::Jump { off } => one(class::JMP | jmp::JA, zero, 0, off, 0),
            Op::JumpLong { distance } => one(class::JMP32 | jmp::JA, zero, 0, 0, distance),
            Op::Branch { width, cond, dst, src, off } => {
                let class = if width == Width::W64 { class::JMP } else { class::JMP32 };
                with(class | cond as u8, dst, src, off)
            }
            Op::MayGoto { off } => one(class::JMP | jmp::JCOND, zero, 0, off, 0),
            Op::Call { helper } => one(class::JMP | jmp::CALL, zero, call::HELPER, 0, helper),
            Op::CallLocal { distance } => one(class::JMP | jmp::CALL, zero, call::LOCAL, 0, distance),
            Op::CallKfunc { id } => one(class::JMP | jmp::CALL, zero, call::KFUNC, 0, id),
            Op::Exit => one(class::JMP | jmp::EXIT, zero, 0, 0, 0),
        };
        out.push(insn);
    }
}
