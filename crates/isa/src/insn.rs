// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The instruction set as data [RFC 9669].
#![allow(missing_docs, reason = "constants bear the standard's names")]

/// An instruction slot of 64 bits. A 64-bit immediate load takes two slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Insn {
    /// Class, operation and source bit.
    pub code: u8,
    /// The destination register.
    pub dst: u8,
    /// The source register, or the type of a 64-bit immediate.
    pub src: u8,
    /// The jump distance in slots, or the memory offset in bytes.
    pub off: i16,
    /// The immediate.
    pub imm: i32,
}

/// Instruction classes, the low three bits of [`Insn::code`] [RFC 9669 3].
pub mod class {
    pub const LD: u8 = 0;
    pub const LDX: u8 = 1;
    pub const ST: u8 = 2;
    pub const STX: u8 = 3;
    pub const ALU: u8 = 4;
    pub const JMP: u8 = 5;
    pub const JMP32: u8 = 6;
    pub const ALU64: u8 = 7;
}

/// Arithmetic operations, the high four bits of [`Insn::code`] [RFC 9669 4.1].
pub mod alu {
    pub const ADD: u8 = 0x00;
    pub const SUB: u8 = 0x10;
    pub const MUL: u8 = 0x20;
    pub const DIV: u8 = 0x30;
    pub const OR: u8 = 0x40;
    pub const AND: u8 = 0x50;
    pub const LSH: u8 = 0x60;
    pub const RSH: u8 = 0x70;
    pub const NEG: u8 = 0x80;
    pub const MOD: u8 = 0x90;
    pub const XOR: u8 = 0xa0;
    pub const MOV: u8 = 0xb0;
    pub const ARSH: u8 = 0xc0;
    pub const END: u8 = 0xd0;
}

/// Jump operations, the high four bits of [`Insn::code`] [RFC 9669 4.3].
pub mod jmp {
    pub const JA: u8 = 0x00;
    pub const JEQ: u8 = 0x10;
    pub const JGT: u8 = 0x20;
    pub const JGE: u8 = 0x30;
    pub const JSET: u8 = 0x40;
    pub const JNE: u8 = 0x50;
    pub const JSGT: u8 = 0x60;
    pub const JSGE: u8 = 0x70;
    pub const CALL: u8 = 0x80;
    pub const EXIT: u8 = 0x90;
    pub const JLT: u8 = 0xa0;
    pub const JLE: u8 = 0xb0;
    pub const JSLT: u8 = 0xc0;
    pub const JSLE: u8 = 0xd0;
    /// `may_goto` of Linux, not part of the standard.
    pub const JCOND: u8 = 0xe0;
}

/// Access sizes, bits 3 and 4 of a load or store [RFC 9669 5].
pub mod size {
    pub const W: u8 = 0x00;
    pub const H: u8 = 0x08;
    pub const B: u8 = 0x10;
    pub const DW: u8 = 0x18;
}

/// Access modes, the high three bits of a load or store [RFC 9669 5].
pub mod mode {
    pub const IMM: u8 = 0x00;
    /// Classic packet access at a fixed offset; not for XDP.
    pub const ABS: u8 = 0x20;
    /// Classic packet access at a register's offset; not for XDP.
    pub const IND: u8 = 0x40;
    pub const MEM: u8 = 0x60;
    pub const MEMSX: u8 = 0x80;
    pub const ATOMIC: u8 = 0xc0;
}

/// Atomic operations that return the old value, besides those of [`alu`] plus 1: the immediate [RFC 9669 5.3].
pub mod atomic {
    pub const XCHG: i32 = 0xe1;
    /// Compares with r0, and returns the old value there.
    pub const CMPXCHG: i32 = 0xf1;
}

/// The source bit: the operand is a register.
pub const SRC_REG: u8 = 0x08;

/// The source field of a 64-bit immediate load [RFC 9669 5.4].
pub mod imm64 {
    /// A number.
    pub const NUMBER: u8 = 0;
    /// A map; in a [`crate::Program`] the immediate is the index into its maps.
    pub const MAP: u8 = 1;
    /// An address inside of the value of a map with one entry: index in this slot, byte offset in the next.
    pub const MAP_VALUE: u8 = 2;
    /// A platform variable, by number.
    pub const VAR: u8 = 3;
    /// The address of a function of the program (a callback): distance in slots.
    pub const FUNC: u8 = 4;
    /// A map, by index into a list given to the loader.
    pub const MAP_IDX: u8 = 5;
    /// As [`MAP_VALUE`], with the map as in [`MAP_IDX`].
    pub const MAP_IDX_VALUE: u8 = 6;
}

/// The source field of a call: a helper by number, or a function of the program by distance.
pub mod call {
    pub const HELPER: u8 = 0;
    pub const LOCAL: u8 = 1;
    /// A kernel function, by BTF id.
    pub const KFUNC: u8 = 2;
}

/// Helper numbers, as in the kernel's `bpf.h`.
pub mod helper {
    pub const MAP_LOOKUP_ELEM: i32 = 1;
    pub const MAP_UPDATE_ELEM: i32 = 2;
    pub const MAP_DELETE_ELEM: i32 = 3;
    pub const KTIME_GET_NS: i32 = 5;
    pub const TRACE_PRINTK: i32 = 6;
    pub const GET_PRANDOM_U32: i32 = 7;
    pub const GET_SMP_PROCESSOR_ID: i32 = 8;
    pub const TAIL_CALL: i32 = 12;
    pub const REDIRECT: i32 = 23;
    pub const PERF_EVENT_OUTPUT: i32 = 25;
    pub const CSUM_DIFF: i32 = 28;
    pub const GET_NUMA_NODE_ID: i32 = 42;
    pub const XDP_ADJUST_HEAD: i32 = 44;
    pub const REDIRECT_MAP: i32 = 51;
    pub const XDP_ADJUST_META: i32 = 54;
    pub const XDP_ADJUST_TAIL: i32 = 65;
    pub const FIB_LOOKUP: i32 = 69;
    pub const SPIN_LOCK: i32 = 93;
    pub const SPIN_UNLOCK: i32 = 94;
    pub const STRTOL: i32 = 105;
    pub const STRTOUL: i32 = 106;
    pub const PROBE_READ_KERNEL: i32 = 113;
    pub const PROBE_READ_KERNEL_STR: i32 = 115;
    pub const JIFFIES64: i32 = 118;
    pub const KTIME_GET_BOOT_NS: i32 = 125;
    pub const RINGBUF_OUTPUT: i32 = 130;
    pub const RINGBUF_RESERVE: i32 = 131;
    pub const RINGBUF_SUBMIT: i32 = 132;
    pub const RINGBUF_DISCARD: i32 = 133;
    pub const RINGBUF_QUERY: i32 = 134;
    pub const KTIME_GET_COARSE_NS: i32 = 160;
    pub const CHECK_MTU: i32 = 163;
    pub const FOR_EACH_MAP_ELEM: i32 = 164;
    pub const SNPRINTF: i32 = 165;
    pub const TRACE_VPRINTK: i32 = 177;
    pub const LOOP: i32 = 181;
    pub const STRNCMP: i32 = 182;
    pub const XDP_GET_BUFF_LEN: i32 = 188;
    pub const XDP_LOAD_BYTES: i32 = 189;
    pub const XDP_STORE_BYTES: i32 = 190;
    pub const MAP_LOOKUP_PERCPU_ELEM: i32 = 195;
    pub const KTIME_GET_TAI_NS: i32 = 208;
    pub const FL_CLONE: i32 = 0x4000_0000;
    pub const FL_EMIT: i32 = 0x4000_0001;
    pub const FL_EVICT: i32 = 0x4000_0002;
    pub const FL_PARSE: i32 = 0x4000_0003;
}

impl Insn {
    /// The class of the instruction.
    pub const fn class(self) -> u8 {
        self.code & 0x07
    }

    /// The operation of an arithmetic or jump instruction.
    pub const fn op(self) -> u8 {
        self.code & 0xf0
    }

    /// Whether this is the first slot of a 64-bit immediate load.
    pub const fn is_wide(self) -> bool {
        self.code == class::LD | mode::IMM | size::DW
    }

    /// The number of slots of the instruction: 1 or 2.
    pub const fn slots(self) -> usize {
        if self.is_wide() { 2 } else { 1 }
    }

    /// The eight bytes of the slot, little endian.
    pub fn to_bytes(self) -> [u8; 8] {
        let [o0, o1] = self.off.to_le_bytes();
        let [i0, i1, i2, i3] = self.imm.to_le_bytes();
        [self.code, self.src << 4 | self.dst & 0x0f, o0, o1, i0, i1, i2, i3]
    }

    /// The slot in eight little-endian bytes.
    pub fn from_bytes(b: [u8; 8]) -> Insn {
        Insn {
            code: b[0],
            dst: b[1] & 0x0f,
            src: b[1] >> 4,
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }
}
