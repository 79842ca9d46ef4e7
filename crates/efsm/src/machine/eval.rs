// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Evaluation of expressions and conditions (see "Arithmetic" in [`crate::model`]).

use flowloom_wire::Layers;
use flowloom_wire::field::FieldId;

use crate::hash::hashword;
use crate::intervals;
use crate::model::{BinaryOp, Condition, Destination, Expr, NewValue, Stateful, Type, Variable, Wide, Width};

/// The values that expressions can read.
pub(crate) struct Scope<'a> {
    pub(crate) packet: &'a [u8],
    pub(crate) layers: &'a Layers,
    pub(crate) port: u32,
    pub(crate) now_ns: u64,
    pub(crate) metadata_types: &'a [Variable],
    pub(crate) metadata: &'a [u128],
    pub(crate) stateful: Option<&'a Stateful>,
    pub(crate) registers: &'a [u128],
    pub(crate) globals: &'a [u128],
    /// Registers and global registers before the row's updates.
    pub(crate) old: (&'a [u128], &'a [u128]),
    pub(crate) state: u16,
    /// Whether the key has no context and the table is full.
    pub(crate) is_full: bool,
}

pub(crate) fn low_bits(value: u64, width_bits: u32) -> u64 {
    if width_bits >= 64 { value } else { value & ((1 << width_bits) - 1) }
}

/// `value` truncated to a variable of type `ty`.
pub(crate) fn stored(value: u128, ty: Type) -> u128 {
    if ty.width_bits >= 128 { value } else { value & ((1 << ty.width_bits) - 1) }
}

/// The low `width_bits` of `value` as two's complement.
fn signed(value: u64, width_bits: u32) -> i64 {
    let shift = 64 - width_bits.min(64);
    ((value << shift) as i64) >> shift
}

/// A stored value of type `ty`, extended to 64 bits by its signedness.
fn extend(value: u64, ty: Type) -> u64 {
    if ty.signed { signed(value, ty.width_bits.into()) as u64 } else { low_bits(value, ty.width_bits.into()) }
}

impl Scope<'_> {
    /// A field of any width; 0 if it is absent, which no matched row reads.
    pub(crate) fn field(&self, field: FieldId) -> u128 {
        self.layers.read(self.packet, self.port, field).unwrap_or(0)
    }

    /// A value that is only moved and compared.
    pub(crate) fn wide(&self, wide: Wide) -> u128 {
        match wide {
            Wide::Constant(value) => value,
            Wide::Field(field) => self.field(field),
            Wide::Register(i) => self.registers[usize::from(i)],
            Wide::Global(i) => self.globals[usize::from(i)],
            Wide::Old(Destination::Register(i)) => self.old.0[usize::from(i)],
            Wide::Old(Destination::Global(i)) => self.old.1[usize::from(i)],
            Wide::Metadata(i) => self.metadata[usize::from(i)],
        }
    }

    /// A value to be written; the target takes its low bits.
    pub(crate) fn new_value(&self, value: &NewValue) -> u128 {
        match value {
            NewValue::Number { value, width } => u128::from(self.eval(value, *width)),
            NewValue::Wide(wide) => self.wide(*wide),
        }
    }

    pub(crate) fn eval(&self, expr: &Expr, width: Width) -> u64 {
        let bits = width.bits();
        let sub = |e: &Expr| self.eval(e, width);
        let variable = |values: &[u128], types: &[Variable], i: u16| {
            let i = usize::from(i);
            extend(values[i] as u64, types[i].ty)
        };
        let (registers, globals) = self.stateful.map_or((&[][..], &[][..]), |s| (&s.registers, &s.globals));
        let value = match expr {
            Expr::Constant(value) => *value,
            Expr::Register(i) => variable(self.registers, registers, *i),
            Expr::Global(i) => variable(self.globals, globals, *i),
            Expr::Old(Destination::Register(i)) => variable(self.old.0, registers, *i),
            Expr::Old(Destination::Global(i)) => variable(self.old.1, globals, *i),
            Expr::Metadata(i) => variable(self.metadata, self.metadata_types, *i),
            Expr::Field(field) => self.field(*field) as u64,
            Expr::Now { unit_ns } => self.now_ns / unit_ns,
            Expr::State => self.state.into(),
            Expr::Not(inner) => !sub(inner),
            Expr::Binary(op, left, right) => {
                let (left, right) = (sub(left), sub(right));
                match op {
                    BinaryOp::Add => left.wrapping_add(right),
                    BinaryOp::Sub => left.wrapping_sub(right),
                    BinaryOp::And => left & right,
                    BinaryOp::Or => left | right,
                    BinaryOp::Xor => left ^ right,
                    BinaryOp::ShiftLeft | BinaryOp::ShiftRight if right >= u64::from(bits) => 0,
                    BinaryOp::ShiftLeft => left << right,
                    BinaryOp::ShiftRight => left >> right,
                }
            }
            Expr::RotateRight { left, right, rotate_bits } => {
                let n = u32::from(*rotate_bits);
                let value = low_bits(sub(left), n);
                match (sub(right) % u64::from(n)) as u32 {
                    0 => value,
                    by => low_bits(value >> by | value << (n - by), n),
                }
            }
            Expr::MinMax { max, signed: is_signed, left, right } => {
                let (left, right) = (sub(left), sub(right));
                let left_is_less = if *is_signed { signed(left, bits) < signed(right, bits) } else { left < right };
                if left_is_less == *max { right } else { left }
            }
            Expr::Word { of, index } => u64::from((self.wide(*of) >> (32 * u32::from(*index))) as u32),
            Expr::Hash(words) => {
                let words: Vec<u32> = words.iter().map(|word| self.eval(word, Width::W32) as u32).collect();
                hashword(&words).into()
            }
            Expr::Ewma { average, sample, shift } => {
                let average = sub(average);
                let difference = signed(sub(sample).wrapping_sub(average), bits);
                let step = if u32::from(*shift) >= bits { 0 } else { difference >> shift };
                average.wrapping_add(step as u64)
            }
        };
        low_bits(value, bits)
    }

    pub(crate) fn holds(&self, condition: &Condition) -> bool {
        match condition {
            Condition::Compare { left, relation, right, width, signed: is_signed } => {
                let (left, right) = (self.eval(left, *width), self.eval(right, *width));
                let order = if *is_signed {
                    signed(left, width.bits()).cmp(&signed(right, width.bits()))
                } else {
                    left.cmp(&right)
                };
                relation.holds(order)
            }
            Condition::Serial { left, right, after, negated, serial_bits } => {
                let width = if *serial_bits == 64 { Width::W64 } else { Width::W32 };
                let difference = self.eval(left, width).wrapping_sub(self.eval(right, width));
                let difference = signed(difference, u32::from(*serial_bits));
                (if *after { difference > 0 } else { difference < 0 }) != *negated
            }
            Condition::Masked { operand, mask, value, negated } => (self.wide(*operand) & mask == *value) != *negated,
            Condition::Range { field, low, high, negated } => {
                (*low..=*high).contains(&(self.field(*field) as u64)) != *negated
            }
            Condition::OneOf { operand, values, width, negated } => {
                values.contains(&self.eval(operand, *width)) != *negated
            }
            Condition::Within { operand, values, negated } => {
                intervals::contain(values, self.wide(*operand)) != *negated
            }
            Condition::Same { left, right, negated } => (self.wide(*left) == self.wide(*right)) != *negated,
            Condition::Present { field, negated } => self.layers.is_present(*field) != *negated,
            Condition::Full { negated } => self.is_full != *negated,
        }
    }
}
