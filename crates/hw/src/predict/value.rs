//! What a node without an effect gives, for one packet.

use flowloom_ir::{Kind, apply};

/// The low bits of a number, all ones.
pub(super) fn mask(bits: u16) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// The number with its last bit above it again and again.
pub(super) fn signed(value: u64, bits: u16) -> i64 {
    let above = 64 - u32::from(bits.clamp(1, 64));
    ((value << above) as i64) >> above
}

/// What a node gives; arguments come with how many bits they have.
pub(super) fn value(kind: Kind, args: &[(u64, u16)], bits: u16) -> u64 {
    let (values, widths): (Vec<u64>, Vec<u16>) = args.iter().copied().unzip();
    apply(kind, &values, &widths, bits)
}
