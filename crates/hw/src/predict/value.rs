//! What a node without an effect gives, for one packet. The meaning is that of `flowloom_ir`, whose evaluator keeps its own
//! to itself; tests compare both with the interpreter.

use flowloom_ir::{Binary, Compare, Kind};

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
    let number = |place: usize| args.get(place).map_or(0, |(value, _)| *value);
    let width = args.first().map_or(0, |(_, bits)| *bits);
    let value = match kind {
        Kind::Const(value) => value,
        Kind::Slice { low } => number(0) >> low,
        Kind::Concat => {
            let mut at = 0;
            args.iter().fold(0, |all, (part, bits)| {
                let all = all | part << at;
                at += bits;
                all
            })
        }
        Kind::SignExtend => signed(number(0), width) as u64,
        Kind::Not => !number(0),
        Kind::Select => {
            let pairs = args.len().saturating_sub(1) / 2;
            let taken = (0..pairs).find(|pair| number(2 * pair) != 0);
            number(taken.map_or(2 * pairs, |pair| 2 * pair + 1))
        }
        Kind::Compare(how) => u64::from(compare(how, number(0), number(1), width)),
        Kind::Binary(op) => binary(op, number(0), number(1), bits),
        Kind::Input(_) | Kind::Effect(_) => 0,
    };
    value & mask(bits)
}

fn compare(how: Compare, a: u64, b: u64, bits: u16) -> bool {
    match how {
        Compare::Equal => a == b,
        Compare::Below => a < b,
        Compare::SignedBelow => signed(a, bits) < signed(b, bits),
    }
}

fn binary(op: Binary, a: u64, b: u64, bits: u16) -> u64 {
    let distance = b % u64::from(bits.max(1));
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div => a.checked_div(b).unwrap_or(0),
        Binary::Mod => a.checked_rem(b).unwrap_or(a),
        Binary::SignedDiv if b == 0 => 0,
        Binary::SignedDiv => signed(a, bits).wrapping_div(signed(b, bits)) as u64,
        Binary::SignedMod if b == 0 => a,
        Binary::SignedMod => signed(a, bits).wrapping_rem(signed(b, bits)) as u64,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::ShiftLeft => a << distance,
        Binary::ShiftRight => a >> distance,
        Binary::SignedShiftRight => (signed(a, bits) >> distance) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_that_of_the_instructions() {
        let min = 1 << 31;
        let cases: [(Binary, u64, u64, u64); 17] = [
            (Binary::Add, 0xffff_ffff, 2, 1),
            (Binary::Sub, 1, 2, 0xffff_ffff),
            (Binary::Mul, 0x1_0001, 0x1_0001, 0x0002_0001),
            (Binary::Div, 7, 2, 3),
            (Binary::Div, 7, 0, 0),
            (Binary::SignedDiv, 0xffff_fff9, 2, 0xffff_fffd),
            (Binary::SignedDiv, 7, 0, 0),
            (Binary::SignedDiv, min, 0xffff_ffff, min),
            (Binary::Mod, 7, 4, 3),
            (Binary::Mod, 7, 0, 7),
            (Binary::SignedMod, 0xffff_fff9, 4, 0xffff_fffd),
            (Binary::SignedMod, 0xffff_fff9, 0, 0xffff_fff9),
            (Binary::SignedMod, min, 0xffff_ffff, 0),
            (Binary::ShiftLeft, 3, 33, 6),
            (Binary::ShiftRight, 0x8000_0000, 31, 1),
            (Binary::SignedShiftRight, 0x8000_0000, 31, 0xffff_ffff),
            (Binary::Xor, 5, 6, 3),
        ];
        for (op, a, b, expected) in cases {
            assert_eq!(value(Kind::Binary(op), &[(a, 32), (b, 32)], 32), expected, "{op:?} {a} {b}");
        }
        let below = |how| value(Kind::Compare(how), &[(0x80, 8), (1, 8)], 1);
        assert_eq!([below(Compare::Below), below(Compare::SignedBelow), below(Compare::Equal)], [0, 1, 0]);
        assert_eq!(value(Kind::SignExtend, &[(0x80, 8)], 16), 0xff80);
    }
}
