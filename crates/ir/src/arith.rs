// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The semantics of pure nodes.

use crate::graph::{Binary, Compare, Kind};

/// The low `bits` bits of a value.
pub(crate) fn cut(value: u64, bits: u16) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

/// A value of `bits` bits sign-extended to 64.
pub(crate) fn sign_extended(value: u64, bits: u16) -> u64 {
    if bits >= 64 || bits == 0 || value >> (bits - 1) & 1 == 0 { value } else { value | u64::MAX << bits }
}

/// Evaluates a pure node. `args` are the values of its arguments, `widths` their widths in bits, `bits` its own.
///
/// # Panics
/// If the operation does not take that number of arguments, or is an input, a packet access or an effect.
pub fn apply(kind: Kind, args: &[u64], widths: &[u16], bits: u16) -> u64 {
    let value = match (kind, args) {
        (Kind::Const(value), []) => value,
        (Kind::Slice { low }, [one]) => one >> low,
        (Kind::Concat, parts @ [_, ..]) => {
            let (mut value, mut at) = (0, 0);
            for (part, width) in parts.iter().zip(widths) {
                value |= part << at;
                at += width;
            }
            value
        }
        (Kind::SignExtend, [one]) => sign_extended(*one, widths[0]),
        (Kind::Binary(op), [a, b]) => binary(op, *a, *b, bits),
        (Kind::Compare(how), [a, b]) => u64::from(compare(how, *a, *b, widths[0])),
        (Kind::Not, [one]) => !one,
        (Kind::Select, [pairs @ .., last]) if pairs.len().is_multiple_of(2) => {
            pairs.chunks_exact(2).find(|pair| pair[0] != 0).map_or(*last, |pair| pair[1])
        }
        (kind, args) => unreachable!("{kind:?} of {} arguments is not an operation of a pure node", args.len()),
    };
    cut(value, bits)
}

fn compare(how: Compare, a: u64, b: u64, bits: u16) -> bool {
    match how {
        Compare::Equal => a == b,
        Compare::Below => a < b,
        Compare::SignedBelow => (sign_extended(a, bits) as i64) < sign_extended(b, bits) as i64,
    }
}

fn binary(op: Binary, a: u64, b: u64, bits: u16) -> u64 {
    let distance = (b % u64::from(bits.max(1))) as u32;
    let (sa, sb) = (sign_extended(a, bits) as i64, sign_extended(b, bits) as i64);
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div => a.checked_div(b).unwrap_or(0),
        Binary::SignedDiv if b == 0 => 0,
        Binary::SignedDiv => sa.wrapping_div(sb) as u64,
        Binary::Mod => a.checked_rem(b).unwrap_or(a),
        Binary::SignedMod if b == 0 => a,
        Binary::SignedMod => sa.wrapping_rem(sb) as u64,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::ShiftLeft => a << distance,
        Binary::ShiftRight => a >> distance,
        Binary::SignedShiftRight => (sa >> distance) as u64,
    }
}
