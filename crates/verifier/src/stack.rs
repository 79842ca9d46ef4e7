// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stack frame: bytes, and spilled values.
//!
//! A slot is 8 bytes. A value stored at the beginning of a slot is kept as an abstract value, an address only if it
//! fills the slot; other bytes are zeros, or parts of unknown numbers.

use std::rc::Rc;

use super::number::{Range, arithmetic};
use super::value::{Number, Value};
use flowloom_isa::op::{AluOp, Width};

pub(super) const SLOT_BYTES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Byte {
    /// Uninitialised.
    Unwritten,
    /// A part of some number.
    Any,
    Zero,
    /// A part of the value stored at the beginning of the slot.
    Whole,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) bytes: [Byte; SLOT_BYTES],
    /// The value of the bytes that are [`Byte::Whole`].
    pub(super) value: Value,
}

impl Slot {
    pub(super) const EMPTY: Slot = Slot { bytes: [Byte::Unwritten; SLOT_BYTES], value: Value::Unwritten };

    /// The spilled value and its length.
    pub(super) fn whole(&self) -> Option<(Value, usize)> {
        let len = self.bytes.iter().take_while(|byte| **byte == Byte::Whole).count();
        (len > 0).then_some((self.value, len))
    }

    /// Whether it holds an address, or the remains of one.
    pub(super) fn is_address(&self) -> bool {
        match self.whole() {
            Some((Value::Address(_), _)) => true,
            Some((Value::Number(number), _)) => number.was_address(),
            _ => false,
        }
    }

    /// Forgets the value: its bytes become parts of some number.
    fn break_up(&mut self) {
        for byte in &mut self.bytes {
            if *byte == Byte::Whole {
                *byte = Byte::Any;
            }
        }
        self.value = Value::Unwritten;
    }
}

/// A stack frame, copied on write.
#[derive(Debug, Clone, Default)]
pub(super) struct Stack {
    slots: Rc<Vec<Slot>>,
}

/// The result of a load from the stack.
#[derive(Debug, Clone, Copy)]
pub(super) enum Loaded {
    /// The spilled value.
    Value(Value),
    /// The low bytes of the spilled number.
    Low(Number),
    /// Bytes from the middle of the spilled number, which are the low ones of this.
    Part(Number),
    Zero,
    /// Some number; whether all of it is initialised.
    Any {
        written: bool,
    },
}

/// The slot, and the byte in it, at an offset from the end of the stack.
fn place(offset: i64) -> (usize, usize) {
    let below = (-offset) as usize;
    let slot = (below - 1) / SLOT_BYTES;
    (slot, (slot + 1) * SLOT_BYTES - below)
}

/// The slots, from the end of the stack, that an access touches.
pub(super) fn touched(offset: i64, len: usize) -> std::ops::RangeInclusive<usize> {
    let (first, _) = place(offset);
    let (last, _) = place(offset + len as i64 - 1);
    last..=first
}

impl Stack {
    /// A slot, counted from the end of the stack.
    pub(super) fn slot(&self, number: usize) -> &Slot {
        const EMPTY: &Slot = &Slot::EMPTY;
        self.slots.get(number).unwrap_or(EMPTY)
    }

    /// The number of slots up to the farthest one written.
    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    fn slot_mut(&mut self, number: usize) -> &mut Slot {
        let slots = Rc::make_mut(&mut self.slots);
        if slots.len() <= number {
            slots.resize(number + 1, Slot::EMPTY);
        }
        &mut slots[number]
    }

    /// The spilled values, mutable.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let slots = Rc::make_mut(&mut self.slots);
        slots.iter_mut().filter(|slot| slot.bytes[0] == Byte::Whole).map(|slot| &mut slot.value)
    }

    /// Whether any slot holds a value that satisfies `wanted`.
    pub(super) fn any(&self, wanted: impl Fn(&Value) -> bool) -> bool {
        self.slots.iter().any(|slot| slot.bytes[0] == Byte::Whole && wanted(&slot.value))
    }

    pub(super) fn store(&mut self, offset: i64, len: usize, value: Value) {
        let (number, first) = place(offset);
        let is_zero = matches!(value, Value::Number(number) if number.range.as_constant() == Some(0));
        let slot = self.slot_mut(number);
        if first != 0 || len != SLOT_BYTES {
            slot.break_up();
        }
        let keep = first == 0 && !matches!(value, Value::Unwritten);
        let fits = match value {
            Value::Address(_) => len == SLOT_BYTES,
            _ => true,
        };
        // A number shorter than the slot is kept with its length.
        let byte = match (keep && fits, is_zero) {
            (true, _) => Byte::Whole,
            (false, true) => Byte::Zero,
            (false, false) => Byte::Any,
        };
        slot.bytes[first..first + len].fill(byte);
        if byte == Byte::Whole {
            slot.value = value;
        }
    }

    /// Stores some number, or zeros.
    pub(super) fn fill(&mut self, offset: i64, len: usize, byte: Byte) {
        for at in 0..len as i64 {
            let (number, first) = place(offset + at);
            let slot = self.slot_mut(number);
            slot.break_up();
            slot.bytes[first] = byte;
        }
    }

    /// Stores at a variable offset: some of these bytes may be written.
    pub(super) fn smear(&mut self, first: i64, end: i64) {
        for offset in first..end {
            let (number, at) = place(offset);
            let slot = self.slot_mut(number);
            slot.break_up();
            if slot.bytes[at] == Byte::Zero {
                slot.bytes[at] = Byte::Any;
            }
        }
    }

    pub(super) fn load(&self, offset: i64, len: usize) -> Loaded {
        let (number, first) = place(offset);
        if first + len > SLOT_BYTES {
            let bytes = (offset..offset + len as i64).map(place);
            let mut bytes = bytes.map(|(number, at)| self.slot(number).bytes[at]);
            return match bytes.clone().all(|byte| byte == Byte::Zero) {
                true => Loaded::Zero,
                false => Loaded::Any { written: bytes.all(|byte| byte != Byte::Unwritten) },
            };
        }
        let slot = self.slot(number);
        let bytes = &slot.bytes[first..first + len];
        match slot.whole() {
            Some((value, whole)) if first == 0 && len == whole => return Loaded::Value(value),
            Some((Value::Number(number), whole)) if first == 0 && len < whole => return Loaded::Low(number),
            Some((Value::Number(number), whole)) if first + len <= whole => {
                let distance = Range::constant(8 * first as u64);
                let range = arithmetic::alu(AluOp::Rsh, Width::W64, &number.range, &distance);
                return Loaded::Part(Number { range, link: None, room: None, ..number });
            }
            _ => {}
        }
        match bytes {
            _ if bytes.iter().all(|byte| *byte == Byte::Zero) => Loaded::Zero,
            _ => Loaded::Any { written: bytes.iter().all(|byte| *byte != Byte::Unwritten) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Origins;
    use crate::value::{Address, Region};

    fn number(value: u64) -> Value {
        Value::Number(Number::new(Range::constant(value), Origins::default().fresh()))
    }

    fn constant(loaded: Loaded) -> Option<u64> {
        match loaded {
            Loaded::Value(value) => value.number()?.range.as_constant(),
            Loaded::Low(number) | Loaded::Part(number) => number.range.as_constant(),
            Loaded::Zero => Some(0),
            Loaded::Any { .. } => None,
        }
    }

    #[test]
    fn what_is_stored_whole_comes_back() {
        let mut stack = Stack::default();
        stack.store(-16, 8, number(7));
        stack.store(-8, 8, Value::Address(Address::new(Region::Packet)));
        assert_eq!(constant(stack.load(-16, 8)), Some(7));
        assert_eq!(constant(stack.load(-16, 4)), Some(7));
        let mut other = Stack::default();
        other.store(-8, 8, number(0x0706_0504_0302_0100));
        assert_eq!(constant(other.load(-6, 2)), Some(0x0706_0504_0302));
        assert_eq!(constant(stack.load(-12, 4)), Some(0));
        assert_eq!(constant(stack.load(-15, 1)), Some(0));
        assert!(matches!(stack.load(-8, 8), Loaded::Value(Value::Address(_))));
        assert!(matches!(stack.load(-8, 4), Loaded::Any { written: true }));
        assert!(matches!(stack.load(-24, 1), Loaded::Any { written: false }));
        assert_eq!((touched(-16, 8), touched(-12, 8), touched(-1, 1)), (1..=1, 0..=1, 0..=0));
    }

    #[test]
    fn a_part_that_is_overwritten_takes_the_rest_along() {
        let mut stack = Stack::default();
        stack.store(-8, 8, Value::Address(Address::new(Region::Context)));
        stack.store(-8, 1, number(3));
        assert_eq!(constant(stack.load(-8, 1)), Some(3));
        assert!(matches!(stack.load(-8, 8), Loaded::Any { written: true }));
        stack.store(-4, 4, number(0));
        assert_eq!(constant(stack.load(-2, 2)), Some(0));
        // The store has overwritten a part of the number at its beginning.
        assert_eq!(constant(stack.load(-8, 1)), None);
    }

    #[test]
    fn zeros_stay_until_something_may_have_been_written() {
        let mut stack = Stack::default();
        stack.fill(-32, 32, Byte::Zero);
        assert_eq!(constant(stack.load(-24, 8)), Some(0));
        let before = stack.clone();
        stack.smear(-28, -20);
        assert!(matches!(stack.load(-24, 4), Loaded::Any { written: true }));
        assert_eq!((constant(stack.load(-20, 4)), constant(before.load(-24, 4))), (Some(0), Some(0)));
        assert_eq!(constant(stack.load(-32, 4)), Some(0));
        stack.smear(-40, -36);
        assert!(matches!(stack.load(-40, 4), Loaded::Any { written: false }));
    }
}
