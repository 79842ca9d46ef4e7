// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Constants: their kinds, arithmetic, and ranges of types.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::model::{BinaryOp, Type};
use crate::syntax::Literal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Constant {
    /// A number from -2^63 to 2^64 - 1.
    Number(i128),
    /// Nanoseconds.
    Time(u64),
    Ipv4(u32),
    Ipv6(u128),
    /// 48 bits.
    Mac(u64),
}

impl From<Literal> for Constant {
    fn from(literal: Literal) -> Constant {
        match literal {
            Literal::Number(n) => Constant::Number(n.into()),
            Literal::Time(ns) => Constant::Time(ns),
            Literal::Ipv4(address) => Constant::Ipv4(address),
            Literal::Ipv6(address) => Constant::Ipv6(address),
            Literal::Mac(address) => Constant::Mac(address),
        }
    }
}

impl Constant {
    pub(super) fn kind(self) -> &'static str {
        match self {
            Constant::Number(_) => "a number",
            Constant::Time(_) => "a time",
            Constant::Ipv4(_) => "an IPv4 address",
            Constant::Ipv6(_) => "an IPv6 address",
            Constant::Mac(_) => "a MAC address",
        }
    }

    /// Renders the constant in source syntax.
    pub(super) fn render(self) -> String {
        match self {
            Constant::Number(n) => n.to_string(),
            Constant::Time(ns) => render_time(ns),
            Constant::Ipv4(address) => Ipv4Addr::from_bits(address).to_string(),
            Constant::Ipv6(address) => Ipv6Addr::from_bits(address).to_string(),
            Constant::Mac(mac) => {
                let bytes: Vec<String> = mac.to_be_bytes()[2..].iter().map(|b| format!("{b:02x}")).collect();
                bytes.join(":")
            }
        }
    }

    /// Value as a number, with times in `unit_ns`. `None` for IPv6 addresses and for times that are not a multiple of
    /// the unit.
    pub(super) fn number(self, unit_ns: u64) -> Option<i128> {
        match self {
            Constant::Number(n) => Some(n),
            Constant::Time(ns) => (ns % unit_ns == 0).then(|| i128::from(ns / unit_ns)),
            Constant::Ipv4(address) => Some(address.into()),
            Constant::Mac(address) => Some(address.into()),
            Constant::Ipv6(_) => None,
        }
    }
}

/// Renders a time in its largest whole unit.
pub(crate) fn render_time(ns: u64) -> String {
    let units =
        [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    match units.iter().find(|(_, unit)| ns != 0 && ns.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", ns / unit),
        None => format!("{ns}ns"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConstantOp {
    Binary(BinaryOp),
    Multiply,
    Min,
    Max,
}

/// Reason why two constants cannot be combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// The operator is not defined for these kinds.
    Kinds,
    /// The result is below -2^63 or above 2^64 - 1, or a time below 0.
    Overflow,
    /// A right shift of or by a negative number: its result depends on a width, which constants do not have.
    NegativeShift,
}

/// Exact value of `left op right`.
pub(super) fn combine(op: ConstantOp, left: Constant, right: Constant) -> Result<Constant, Mismatch> {
    let is_time = |c| matches!(c, Constant::Time(_));
    let gives_time = match op {
        ConstantOp::Multiply => {
            if is_time(left) && is_time(right) {
                return Err(Mismatch::Kinds);
            }
            is_time(left) || is_time(right)
        }
        ConstantOp::Binary(BinaryOp::ShiftLeft | BinaryOp::ShiftRight) => {
            if is_time(right) {
                return Err(Mismatch::Kinds);
            }
            is_time(left)
        }
        ConstantOp::Binary(_) | ConstantOp::Min | ConstantOp::Max => {
            if is_time(left) != is_time(right) {
                return Err(Mismatch::Kinds);
            }
            is_time(left)
        }
    };
    let (Some(a), Some(b)) = (left.number(1), right.number(1)) else { return Err(Mismatch::Kinds) };
    let value = match op {
        ConstantOp::Multiply => a.checked_mul(b).ok_or(Mismatch::Overflow)?,
        ConstantOp::Min => a.min(b),
        ConstantOp::Max => a.max(b),
        ConstantOp::Binary(op) => match op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::And => a & b,
            BinaryOp::Or => a | b,
            BinaryOp::Xor => a ^ b,
            BinaryOp::ShiftLeft if a == 0 => 0,
            BinaryOp::ShiftLeft if (0..64).contains(&b) => a.checked_mul(1 << b).ok_or(Mismatch::Overflow)?,
            BinaryOp::ShiftLeft => return Err(Mismatch::Overflow),
            BinaryOp::ShiftRight if a < 0 || b < 0 => return Err(Mismatch::NegativeShift),
            BinaryOp::ShiftRight => {
                if b >= 64 {
                    0
                } else {
                    a >> b
                }
            }
        },
    };
    if gives_time {
        return u64::try_from(value).map(Constant::Time).map_err(|_| Mismatch::Overflow);
    }
    if value < i128::from(i64::MIN) || value > i128::from(u64::MAX) {
        return Err(Mismatch::Overflow);
    }
    Ok(Constant::Number(value))
}

pub(super) fn type_range(width_bits: u8, signed: bool) -> (i128, i128) {
    let width_bits = width_bits.min(64);
    if signed {
        let half = 1_i128 << (width_bits.max(1) - 1);
        (-half, half - 1)
    } else {
        (0, (1_i128 << width_bits) - 1)
    }
}

pub(super) fn type_by_name(name: &str) -> Option<Type> {
    let (signed, width) = match name.split_at_checked(1)? {
        ("u", width) => (false, width),
        ("i", width) => (true, width),
        _ => return None,
    };
    let width_bits = match width {
        "8" => 8,
        "16" => 16,
        "32" => 32,
        "64" => 64,
        _ => return None,
    };
    Some(Type { width_bits, signed })
}

pub(super) fn type_name(ty: Type) -> String {
    format!("{}{}", if ty.signed { 'i' } else { 'u' }, ty.width_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_combine_exactly() {
        use Constant::{Number, Time};
        let mul = |a, b| combine(ConstantOp::Multiply, a, b);
        assert_eq!(mul(Number(7), Time(1_000)), Ok(Time(7_000)));
        assert_eq!(mul(Time(1), Time(1)), Err(Mismatch::Kinds));
        assert_eq!(mul(Number(i128::from(u64::MAX)), Number(2)), Err(Mismatch::Overflow));
        let op = |op, a, b| combine(ConstantOp::Binary(op), a, b);
        assert_eq!(op(BinaryOp::Sub, Number(0), Number(1)), Ok(Number(-1)));
        assert_eq!(op(BinaryOp::Sub, Time(0), Time(1)), Err(Mismatch::Overflow));
        assert_eq!(op(BinaryOp::ShiftLeft, Number(1), Number(63)), Ok(Number(1 << 63)));
        assert_eq!(op(BinaryOp::ShiftLeft, Number(1), Number(64)), Err(Mismatch::Overflow));
        assert_eq!(op(BinaryOp::ShiftRight, Number(-1), Number(1)), Err(Mismatch::NegativeShift));
        assert_eq!(op(BinaryOp::Add, Time(1), Number(1)), Err(Mismatch::Kinds));
        assert_eq!(op(BinaryOp::And, Constant::Ipv4(0x0a00_0001), Number(0xff)), Ok(Number(1)));
    }

    #[test]
    fn ranges_of_types() {
        assert_eq!(type_range(8, true), (-128, 127));
        assert_eq!(type_range(12, false), (0, 4095));
        assert_eq!(type_range(64, false), (0, i128::from(u64::MAX)));
        assert_eq!(type_range(64, true), (i128::from(i64::MIN), i128::from(i64::MAX)));
    }
}
