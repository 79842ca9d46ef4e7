// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arithmetic of ALUs, comparators and moving averages.

use crate::image::{Average, Comparator, Offset, Operand, Operation, Relation, Value};

/// The values that operands name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operands<'a> {
    pub(super) words: &'a [u32],
    pub(super) registers: &'a [u32],
    pub(super) globals: &'a [u32],
    pub(super) averages: &'a [u32],
    pub(super) state: u16,
}

impl Operands<'_> {
    #[inline]
    pub(super) fn get(&self, operand: Operand) -> u32 {
        match operand {
            Operand::Constant(value) => value,
            Operand::Word(at) => self.words[usize::from(at)],
            Operand::Register(at) => self.registers[usize::from(at)],
            Operand::Global(at) => self.globals[usize::from(at)],
            Operand::State => self.state.into(),
            Operand::Average(at) => self.averages[usize::from(at)],
        }
    }

    /// The value of a unit, and its carry or borrow; `carry` is that of the unit before it.
    #[inline]
    pub(super) fn compute(&self, value: Value, carry: bool) -> (u32, bool) {
        let (left, right) = (self.get(value.left), self.get(value.right));
        let shifted = |shift: fn(u32, u32) -> u32| if right < 32 { shift(left, right) } else { 0 };
        let result = match value.operation {
            Operation::Move => left,
            Operation::Not => !left,
            Operation::And => left & right,
            Operation::Or => left | right,
            Operation::Xor => left ^ right,
            Operation::Add => return left.overflowing_add(right),
            Operation::Subtract => return left.overflowing_sub(right),
            Operation::AddCarry => return left.carrying_add_u32(right, carry),
            Operation::SubtractBorrow => return left.borrowing_sub_u32(right, carry),
            Operation::ShiftLeft => shifted(|value, by| value << by),
            Operation::ShiftRight => shifted(|value, by| value >> by),
            Operation::RotateRight => left.rotate_right(right % 32),
            Operation::Min => left.min(right),
            Operation::Max => left.max(right),
            Operation::MinSigned => (left as i32).min(right as i32) as u32,
            Operation::MaxSigned => (left as i32).max(right as i32) as u32,
        };
        (result, false)
    }

    /// The shifted difference of a moving average.
    #[inline]
    pub(super) fn average(&self, average: Average) -> u32 {
        let difference = self.get(average.sample).wrapping_sub(self.get(average.average)) as i32;
        if average.shift >= 32 { 0 } else { (difference >> average.shift) as u32 }
    }

    /// The conditions, by number.
    #[inline]
    pub(super) fn conditions(&self, comparators: &[Comparator]) -> u32 {
        let (mut conditions, mut before) = (0, Compared { holds: false, is_equal: true });
        for (at, comparator) in comparators.iter().enumerate() {
            let lower = if comparator.continues { before } else { Compared { holds: false, is_equal: true } };
            before = self.compare(comparator, lower);
            conditions |= u32::from(before.holds) << at;
        }
        conditions
    }

    fn compare(&self, comparator: &Comparator, lower: Compared) -> Compared {
        let (left, right) = (self.get(comparator.left), self.get(comparator.right));
        let offset = match comparator.offset {
            Offset::None => 0,
            Offset::Plus(operand) => self.get(operand),
            Offset::Minus(operand) => self.get(operand).wrapping_neg(),
        };
        let difference = left.wrapping_sub(right).wrapping_add(offset) as i32;
        let is_equal = difference == 0 && lower.is_equal;
        let ordered = |is_less: bool| is_less || left == right && lower.holds;
        let holds = match comparator.relation {
            Relation::Equal => is_equal,
            Relation::Below => ordered(left < right),
            Relation::Less => ordered((left as i32) < right as i32),
            Relation::Before => difference < 0,
            Relation::After => difference > 0,
        };
        Compared { holds, is_equal }
    }
}

/// The outcome of a comparator, for the one that continues it.
#[derive(Debug, Clone, Copy)]
struct Compared {
    holds: bool,
    is_equal: bool,
}

/// Addition and subtraction with a carry.
trait Carrying {
    fn carrying_add_u32(self, right: u32, carry: bool) -> (u32, bool);
    fn borrowing_sub_u32(self, right: u32, borrow: bool) -> (u32, bool);
}

impl Carrying for u32 {
    fn carrying_add_u32(self, right: u32, carry: bool) -> (u32, bool) {
        let sum = u64::from(self) + u64::from(right) + u64::from(carry);
        (sum as u32, sum >> 32 != 0)
    }

    fn borrowing_sub_u32(self, right: u32, borrow: bool) -> (u32, bool) {
        let difference = u64::from(self).wrapping_sub(u64::from(right)).wrapping_sub(u64::from(borrow));
        (difference as u32, difference >> 32 != 0)
    }
}
