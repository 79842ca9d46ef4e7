// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Evaluates conditions and expressions.

use std::cell::RefCell;

use flowloom_efsm::model::{BinaryOp, Condition, Destination, Expr, NewValue, Relation, Type, Variable, Wide, Width};
use flowloom_wire::Layers;
use flowloom_wire::field::FieldId;

use crate::hits::{Hit, Hits, Operator, StorageClass};

/// Inputs of expressions.
pub(crate) struct Values<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) layers: &'a Layers,
    pub(super) port: u32,
    pub(super) now_ns: u64,
    pub(super) metadata: &'a [u128],
    pub(super) metadata_vars: &'a [Variable],
    pub(super) registers: &'a [u128],
    pub(super) register_vars: &'a [Variable],
    pub(super) globals: &'a [u128],
    /// Registers and global registers before the row's updates.
    pub(super) old: (&'a [u128], &'a [u128]),
    pub(super) global_vars: &'a [Variable],
    pub(super) state: u16,
    pub(super) is_full: bool,
    pub(super) hits: Option<&'a RefCell<Hits>>,
}

/// The low bits of a number.
fn cut(value: u64, width_bits: u32) -> u64 {
    value & u64::MAX.checked_shr(64 - width_bits).unwrap_or(0)
}

/// The low bits of a value.
pub(super) fn cut_wide(value: u128, width_bits: u8) -> u128 {
    value & u128::MAX.checked_shr(128 - u32::from(width_bits)).unwrap_or(0)
}

/// The low bits of a number, read as two's complement.
pub(crate) fn sign_extend(value: u64, width_bits: u32) -> i64 {
    let value = cut(value, width_bits);
    let sign = 1u64 << (width_bits - 1);
    (value ^ sign).wrapping_sub(sign) as i64
}

impl<'a> Values<'a> {
    /// Inputs of a packet without bytes and without state.
    pub(crate) fn none(layers: &'a Layers) -> Values<'a> {
        Values {
            bytes: &[],
            layers,
            port: 0,
            now_ns: 0,
            metadata: &[],
            metadata_vars: &[],
            registers: &[],
            register_vars: &[],
            globals: &[],
            old: (&[], &[]),
            global_vars: &[],
            state: 0,
            is_full: false,
            hits: None,
        }
    }
}

impl Values<'_> {
    pub(super) fn count(&self, hit: Hit) {
        if let Some(hits) = self.hits {
            hits.borrow_mut().count(hit);
        }
    }

    fn read(&self, field: FieldId) -> u128 {
        self.count(Hit::FieldRead(field));
        self.layers.read(self.bytes, self.port, field).unwrap_or(0)
    }

    fn variable(&self, place: StorageClass, values: &[u128], vars: &[Variable], i: u16) -> u64 {
        // A missing variable is metadata, where only a context is known.
        let (Some(&value), Some(variable)) = (values.get(usize::from(i)), vars.get(usize::from(i))) else { return 0 };
        let Type { width_bits, signed } = variable.ty;
        self.count(Hit::variable(place, variable.ty));
        let value = value as u64;
        if signed { sign_extend(value, u32::from(width_bits)) as u64 } else { value }
    }

    pub(crate) fn eval(&self, expr: &Expr, width: Width) -> u64 {
        let bits = width.bits();
        let value = match expr {
            Expr::Constant(c) => *c,
            Expr::Register(i) => self.variable(StorageClass::Register, self.registers, self.register_vars, *i),
            Expr::Global(i) => self.variable(StorageClass::Global, self.globals, self.global_vars, *i),
            Expr::Old(Destination::Register(i)) => {
                self.variable(StorageClass::Register, self.old.0, self.register_vars, *i)
            }
            Expr::Old(Destination::Global(i)) => self.variable(StorageClass::Global, self.old.1, self.global_vars, *i),
            Expr::Metadata(i) => self.variable(StorageClass::Metadata, self.metadata, self.metadata_vars, *i),
            Expr::Field(field) => self.read(*field) as u64,
            Expr::Now { unit_ns } => {
                self.count(Hit::Now);
                self.now_ns.checked_div(*unit_ns).unwrap_or(0)
            }
            Expr::State => {
                self.count(Hit::State);
                u64::from(self.state)
            }
            Expr::Not(inner) => {
                self.count(Hit::Operator(Operator::Not, bits));
                self.eval(inner, width) ^ u64::MAX
            }
            Expr::Binary(op, left, right) => {
                self.count(Hit::Operator((*op).into(), bits));
                let (l, r) = (self.eval(left, width), self.eval(right, width));
                let by = u32::try_from(r).unwrap_or(u32::MAX);
                match op {
                    BinaryOp::Add => l.wrapping_add(r),
                    BinaryOp::Sub => l.wrapping_sub(r),
                    BinaryOp::And => l & r,
                    BinaryOp::Or => l | r,
                    BinaryOp::Xor => l ^ r,
                    BinaryOp::ShiftLeft => {
                        if by < bits {
                            l << by
                        } else {
                            0
                        }
                    }
                    BinaryOp::ShiftRight => {
                        if by < bits {
                            l >> by
                        } else {
                            0
                        }
                    }
                }
            }
            Expr::RotateRight { left, right, rotate_bits } => {
                self.count(Hit::Operator(Operator::RotateRight, bits));
                let n = u32::from(*rotate_bits);
                let mut value = cut(self.eval(left, width), n);
                for _ in 0..self.eval(right, width) % u64::from(n.max(1)) {
                    value = value >> 1 | (value & 1) << (n - 1);
                }
                value
            }
            Expr::MinMax { max, signed, left, right } => {
                self.count(Hit::Operator(if *max { Operator::Max } else { Operator::Min }, bits));
                let (l, r) = (self.eval(left, width), self.eval(right, width));
                match (max, signed) {
                    (true, false) => l.max(r),
                    (false, false) => l.min(r),
                    (true, true) => sign_extend(l, bits).max(sign_extend(r, bits)) as u64,
                    (false, true) => sign_extend(l, bits).min(sign_extend(r, bits)) as u64,
                }
            }
            Expr::Word { of, index } => u64::from((self.wide(*of) >> (32 * u32::from(*index))) as u32),
            Expr::Hash(words) => {
                let words: Vec<u32> = words.iter().map(|word| self.eval(word, Width::W32) as u32).collect();
                u64::from(flowloom_efsm::hash::hashword(&words))
            }
            Expr::Ewma { average, sample, shift } => {
                self.count(Hit::Operator(Operator::Ewma, bits));
                let (average, sample) = (self.eval(average, width), self.eval(sample, width));
                let distance = sign_extend(sample.wrapping_sub(average), bits);
                let step = if u32::from(*shift) < bits { distance >> shift } else { 0 };
                average.wrapping_add(step as u64)
            }
        };
        cut(value, bits)
    }

    pub(crate) fn wide(&self, wide: Wide) -> u128 {
        match wide {
            Wide::Constant(value) => value,
            Wide::Field(field) => self.read(field),
            Wide::Register(i) => self.wide_variable(StorageClass::Register, self.registers, i),
            Wide::Global(i) => self.wide_variable(StorageClass::Global, self.globals, i),
            Wide::Old(Destination::Register(i)) => self.wide_variable(StorageClass::Register, self.old.0, i),
            Wide::Old(Destination::Global(i)) => self.wide_variable(StorageClass::Global, self.old.1, i),
            Wide::Metadata(i) => self.wide_variable(StorageClass::Metadata, self.metadata, i),
        }
    }

    fn wide_variable(&self, place: StorageClass, values: &[u128], i: u16) -> u128 {
        self.count(Hit::Variable(place, 128, false));
        values.get(usize::from(i)).copied().unwrap_or(0)
    }

    pub(super) fn new_value(&self, value: &NewValue) -> u128 {
        match value {
            NewValue::Number { value, width } => self.eval(value, *width).into(),
            NewValue::Wide(wide) => self.wide(*wide),
        }
    }

    pub(crate) fn holds(&self, condition: &Condition) -> bool {
        match condition {
            Condition::Compare { left, relation, right, width, signed } => {
                self.count(Hit::compare(*relation, *signed, *width));
                let (l, r) = (self.eval(left, *width), self.eval(right, *width));
                let bits = width.bits();
                let (l, r) = if *signed {
                    (i128::from(sign_extend(l, bits)), i128::from(sign_extend(r, bits)))
                } else {
                    (i128::from(l), i128::from(r))
                };
                match relation {
                    Relation::Equal => l == r,
                    Relation::NotEqual => l != r,
                    Relation::Less => l < r,
                    Relation::LessEqual => l <= r,
                    Relation::Greater => l > r,
                    Relation::GreaterEqual => l >= r,
                }
            }
            Condition::Serial { left, right, after, negated, serial_bits } => {
                self.count(Hit::Serial { after: *after, serial_bits: *serial_bits });
                let width = if *serial_bits > 32 { Width::W64 } else { Width::W32 };
                let apart = self.eval(left, width).wrapping_sub(self.eval(right, width));
                let sign = sign_extend(apart, u32::from(*serial_bits)).signum();
                (sign == if *after { 1 } else { -1 }) ^ negated
            }
            Condition::Masked { operand, mask, value, negated } => {
                self.count(Hit::Masked(*negated));
                ((self.wide(*operand) ^ value) & mask == 0) ^ negated
            }
            Condition::Range { field, low, high, negated } => {
                self.count(Hit::Range(*negated));
                let value = self.read(*field) as u64;
                (value >= *low && value <= *high) ^ negated
            }
            Condition::Same { left, right, negated } => {
                self.count(Hit::SameField(*negated));
                (self.wide(*left) == self.wide(*right)) ^ negated
            }
            Condition::OneOf { operand, values, width, negated } => {
                self.count(Hit::OneOf(*negated));
                let value = self.eval(operand, *width);
                values.contains(&value) ^ negated
            }
            Condition::Within { operand, values, negated } => {
                self.count(Hit::Within(*negated));
                let value = self.wide(*operand);
                values.iter().any(|(low, high)| (low..=high).contains(&&value)) ^ negated
            }
            Condition::Present { field, negated } => {
                self.count(Hit::Present(*negated));
                self.layers.is_present(*field) ^ negated
            }
            Condition::Full { negated } => {
                self.count(Hit::Full(*negated));
                self.is_full ^ negated
            }
        }
    }
}

/// True if an expression reads the packet, its time or metadata: inputs that a context does not determine.
pub(crate) fn reads_packet(expr: &Expr) -> bool {
    let mut reads = false;
    expr.walk(&mut |e| {
        reads |= matches!(e, Expr::Field(_) | Expr::Metadata(_) | Expr::Now { .. })
            || matches!(e, Expr::Word { of: Wide::Field(_) | Wide::Metadata(_), .. });
    });
    reads
}
