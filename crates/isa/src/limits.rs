// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits that the program check, the verifier and the interpreter share.

/// The size of a stack frame in bytes.
pub const STACK_BYTES: usize = 512;
/// The greatest depth of calls, the program itself included.
pub const MAX_FRAMES: usize = 8;
/// The most maps of a program.
pub const MAX_MAPS: usize = 4096;
/// The most iterations of a call of `loop`.
pub const MAX_LOOP_ITERATIONS: u64 = 8 << 20;
/// The number of `may_goto` of a packet that fall through before they jump.
pub const MAX_MAY_GOTO: u32 = 8 << 20;
/// The most tail calls of a packet.
pub const MAX_TAIL_CALLS: u32 = 33;
/// The size of a `struct bpf_spin_lock` in bytes.
pub const LOCK_BYTES: u32 = 4;
/// The bits of an address that tell the values of a map, and the bytes of a value, apart.
pub const PLACE_BITS: u32 = 48;

/// The distance of the values of a map, as a power of two.
pub fn value_stride_bits(value_bytes: u32) -> u32 {
    (u64::from(value_bytes) * 2).next_power_of_two().max(64).trailing_zeros()
}

/// The number of values of a map that addresses can distinguish.
pub fn addressable_values(value_bytes: u32) -> u64 {
    1 << (PLACE_BITS - value_stride_bits(value_bytes))
}
