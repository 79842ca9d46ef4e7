// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random expressions and conditions.

use std::sync::Arc;

use flowloom_efsm::model::{BinaryOp, Condition, Destination, Expr, Relation, Type, Variable, Wide, Width};
use flowloom_random::{Draw, Xorshift64Star as Rng};
use flowloom_wire::field::{FieldId, Source as FieldSource};

use super::{Maker, Reach, Scope, address, mask};

/// Operand widths of an expression, as far as the width rule depends on them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Widths {
    /// Some operand is wider than 32 bits.
    is_wide: bool,
    /// It has a signed operand of 32 bits.
    has_signed: bool,
    /// It has an unsigned operand of 32 bits.
    has_unsigned: bool,
}

impl Widths {
    fn of(width_bits: u8, signed: bool) -> Widths {
        let is_word = width_bits == 32;
        Widths { is_wide: width_bits > 32, has_signed: is_word && signed, has_unsigned: is_word && !signed }
    }

    fn and(self, other: Widths) -> Widths {
        Widths {
            is_wide: self.is_wide || other.is_wide,
            has_signed: self.has_signed || other.has_signed,
            has_unsigned: self.has_unsigned || other.has_unsigned,
        }
    }

    pub(super) fn width(self, destination_bits: u8) -> Width {
        let is_mixed = self.has_signed && self.has_unsigned;
        if self.is_wide || is_mixed || destination_bits > 32 { Width::W64 } else { Width::W32 }
    }
}

pub(super) type Typed = (Expr, Widths);

impl Maker {
    pub(super) fn leaf(&mut self, scope: &Scope<'_>) -> Typed {
        let pick = |variables: &[Variable], rng: &mut Rng| {
            let i = rng.index(variables.len());
            variables.get(i).filter(|v| !v.ty.is_wide()).map(|v| (i as u16, v.ty))
        };
        let of = |ty: Type| Widths::of(ty.width_bits, ty.signed);
        for _ in 0..6 {
            match self.rng.below(11) {
                0..3 => {
                    if let Some((i, ty)) = pick(scope.registers, &mut self.rng) {
                        return (self.now_or_old(Expr::Register(i), Destination::Register(i), scope), of(ty));
                    }
                }
                3 => {
                    if let Some((i, ty)) = pick(scope.globals, &mut self.rng) {
                        return (self.now_or_old(Expr::Global(i), Destination::Global(i), scope), of(ty));
                    }
                }
                4 => {
                    if let Some((i, ty)) = pick(&self.metadata, &mut self.rng) {
                        return (Expr::Metadata(i), of(ty));
                    }
                }
                5..7 => {
                    let field = self.narrow_field();
                    return (Expr::Field(field), Widths::of(field.width_bits(), false));
                }
                7 => {
                    // A clock that is stored in a register has the register's width; in an expression it has 64 bits.
                    let width_bits = self.rng.one_of([32, 64]);
                    let unit_ns = self.rng.one_of([1, 1000, 1_000_000, 777]);
                    return (Expr::Now { unit_ns }, Widths::of(width_bits, false));
                }
                8 if scope.is_stateful => return (Expr::State, Widths::of(16, false)),
                _ => break,
            }
        }
        (Expr::Constant(self.number()), Widths::default())
    }

    /// A register in an action, or its value before the row's updates.
    pub(super) fn now_or_old(&mut self, now: Expr, destination: Destination, scope: &Scope<'_>) -> Expr {
        if scope.sees_updates && self.rng.percent(25) { Expr::Old(destination) } else { now }
    }

    pub(super) fn expr(&mut self, scope: &Scope<'_>, depth: u32) -> Typed {
        if depth == 0 || self.rng.percent(25) {
            return self.leaf(scope);
        }
        let (left, widths) = self.expr(scope, depth - 1);
        match self.rng.below(15) {
            14 => {
                let mut words: Vec<Expr> = (0..1 + self.rng.below(7)).map(|_| self.leaf(scope).0).collect();
                if self.rng.percent(50) {
                    let of = self.wide(scope);
                    words.extend((0..4).rev().map(|index| Expr::Word { of, index }));
                }
                (Expr::Hash(words), Widths::of(32, false))
            }
            0 => (Expr::Not(left.into()), widths),
            1 | 2 => {
                // The rotation width is that of the left operand's type.
                let (left, widths) = self.leaf(scope);
                let Some(rotate_bits) = self.rotation_of(&left, scope) else { return (left, widths) };
                let (right, others) = self.leaf(scope);
                (Expr::RotateRight { left: left.into(), right: right.into(), rotate_bits }, widths.and(others))
            }
            3 | 4 => {
                let (right, others) = self.expr(scope, depth - 1);
                let (max, signed) = (self.rng.percent(50), self.rng.percent(40));
                (Expr::MinMax { max, signed, left: left.into(), right: right.into() }, widths.and(others))
            }
            5 => {
                let (right, others) = self.expr(scope, depth - 1);
                let shift = self.rng.one_of([0, 1, 2, 3, 7, 31, 32, 40, 63]);
                (Expr::Ewma { average: left.into(), sample: right.into(), shift }, widths.and(others))
            }
            _ => {
                let op = self.rng.one_of([
                    BinaryOp::Add,
                    BinaryOp::Add,
                    BinaryOp::Sub,
                    BinaryOp::And,
                    BinaryOp::Or,
                    BinaryOp::Xor,
                    BinaryOp::ShiftLeft,
                    BinaryOp::ShiftRight,
                ]);
                let (right, others) = self.expr(scope, depth - 1);
                (Expr::Binary(op, left.into(), right.into()), widths.and(others))
            }
        }
    }

    /// Rotation width of a leaf: the width of its type, if that is 8, 16, 32 or 64 bits.
    fn rotation_of(&self, leaf: &Expr, scope: &Scope<'_>) -> Option<u8> {
        let width_bits = match leaf {
            Expr::Register(i) | Expr::Old(Destination::Register(i)) => {
                scope.registers.get(usize::from(*i))?.ty.width_bits
            }
            Expr::Global(i) | Expr::Old(Destination::Global(i)) => scope.globals.get(usize::from(*i))?.ty.width_bits,
            Expr::Metadata(i) => self.metadata.get(usize::from(*i))?.ty.width_bits,
            Expr::Field(field) => field.width_bits(),
            _ => return None,
        };
        matches!(width_bits, 8 | 16 | 32 | 64).then_some(width_bits)
    }

    pub(super) fn condition(&mut self, scope: &Scope<'_>) -> Condition {
        if self.chance_of(Reach::Common, 18) {
            return self.common_condition(scope);
        }
        match self.rng.below(12) {
            0 | 1 => {
                let field = self.field_where(|_| true);
                let width = u32::from(field.width_bits());
                let all = u128::MAX >> (128 - width);
                let mask = match self.rng.below(4) {
                    0 => all,
                    1 | 2 => all & !(all >> self.rng.below(u64::from(width) + 1).min(127)),
                    _ => self.rng.next_u128() & self.rng.next_u128() & all,
                };
                let value = match field.source() {
                    FieldSource::Address { .. } => address(&mut self.rng),
                    _ => self.rng.next_u128(),
                };
                Condition::Masked {
                    operand: Wide::Field(field),
                    mask,
                    value: value & mask,
                    negated: self.rng.percent(40),
                }
            }
            2 | 3 => {
                let field = self.narrow_field();
                let all = u64::MAX >> (64 - u32::from(field.width_bits()));
                let (a, b) = (self.number() & all, self.rng.next_u64() & all);
                Condition::Range { field, low: a.min(b), high: a.max(b), negated: self.rng.percent(40) }
            }
            4 => {
                let pair = self.rng.one_of([
                    ["ip.src", "ip.dst"],
                    ["ipv6.src", "ipv6.dst"],
                    ["ip.dst", "ipv6.dst"],
                    ["ip.src", "ip.dst"],
                ]);
                let [Some(left), Some(right)] = pair.map(FieldId::by_name) else { return self.condition(scope) };
                if ![left, right].iter().all(|f| self.together.contains(f)) && self.rng.percent(90) {
                    return self.condition(scope);
                }
                Condition::Same { left: Wide::Field(left), right: Wide::Field(right), negated: self.rng.percent(50) }
            }
            5 | 6 => {
                let (left, _) = self.expr(scope, 1);
                let (right, _) = self.leaf(scope);
                let serial_bits = self.rng.one_of([8, 16, 32, 32, 64]);
                Condition::Serial {
                    left,
                    right,
                    after: self.rng.percent(50),
                    negated: self.rng.percent(40),
                    serial_bits,
                }
            }
            _ => {
                let (left, widths) = self.expr(scope, 2);
                let (right, others) = if self.rng.percent(60) {
                    (Expr::Constant(self.number()), Widths::default())
                } else {
                    self.expr(scope, 1)
                };
                let relation = self.rng.one_of([
                    Relation::Equal,
                    Relation::NotEqual,
                    Relation::Less,
                    Relation::LessEqual,
                    Relation::Greater,
                    Relation::GreaterEqual,
                ]);
                let width = widths.and(others).width(8);
                Condition::Compare { left, relation, right, width, signed: self.rng.percent(40) }
            }
        }
    }

    fn common_condition(&mut self, scope: &Scope<'_>) -> Condition {
        let negated = self.rng.percent(40);
        match self.rng.below(7) {
            6 => {
                let operand = self.wide(scope);
                let mut values: Vec<(u128, u128)> = (0..1 + self.rng.below(12))
                    .map(|_| {
                        let mask = u128::MAX << self.rng.one_of([0, 0, 8, 24, 64, 96]);
                        let low = address(&mut self.rng) & mask;
                        (low, low | !mask)
                    })
                    .collect();
                values.sort_unstable();
                let mut apart: Vec<(u128, u128)> = Vec::new();
                for (low, high) in values {
                    match apart.last_mut() {
                        Some((_, last)) if low <= last.saturating_add(1) => *last = high.max(*last),
                        _ => apart.push((low, high)),
                    }
                }
                Condition::Within { operand, values: Arc::new(apart), negated }
            }
            0 if scope.is_stateful => Condition::Full { negated },
            5 => {
                let names =
                    ["ip.version", "ipv6.src", "udp.dport", "tcp.seq", "vlan.id", "mpls.label", "inner.ip.version"];
                match FieldId::by_name(self.rng.one_of(names)) {
                    Some(field) => Condition::Present { field, negated },
                    None => Condition::Full { negated },
                }
            }
            0 | 1 => {
                let (operand, widths) = self.expr(scope, 1);
                let width = widths.width(8);
                let mut values: Vec<u64> =
                    (0..1 + self.rng.below(5)).map(|_| self.number() & mask(width.bits() as u8)).collect();
                values.sort_unstable();
                values.dedup();
                Condition::OneOf { operand, values, width, negated }
            }
            2 => Condition::Same { left: self.wide(scope), right: self.wide(scope), negated },
            _ => {
                let operand = self.wide(scope);
                let mask = u128::MAX << self.rng.one_of([0, 0, 8, 24, 64, 96]);
                Condition::Masked { operand, mask, value: address(&mut self.rng) & mask, negated }
            }
        }
    }
}
