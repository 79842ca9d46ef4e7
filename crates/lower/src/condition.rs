// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Code for conditions.

use std::borrow::Cow;

use flowloom_isa::op::{AluOp, Cond};
use flowloom_wire::field::{FieldId, IPV4_MAPPED, Source};
use flowloom_wire::graph::{Header, Slice};

use super::asm::{Label, Op, Operand, Reg, access_size};
use super::facts::{Half, Item};
use super::fields::mask_of;
use super::lowering::Lowering;
use super::value::{Env, Value, low_bits, sign_extend};
use flowloom_efsm::intervals::{self, Interval};
use flowloom_efsm::model::{Condition, Destination, Expr, Relation, Wide, Width};

/// Limit on runs of a set that are tested linearly; more of them are tested by binary search.
const MAX_RUNS_IN_LINE: usize = 8;

impl Lowering<'_> {
    /// Falls through if `condition` holds, otherwise jumps to `fails`. Returns `Some` and emits nothing if the outcome
    /// is known at compile time.
    pub(super) fn branch(&mut self, condition: &Condition, env: &Env, fails: Label) -> Option<bool> {
        match condition {
            Condition::Compare {
                left: Expr::Field(field),
                relation: relation @ (Relation::Equal | Relation::NotEqual),
                right: Expr::Constant(value),
                ..
            } if self.contradicts_path(*field, *value) => Some(*relation == Relation::NotEqual),
            Condition::Compare {
                left: Expr::Field(field),
                relation: relation @ (Relation::Equal | Relation::NotEqual),
                right: Expr::Constant(value),
                ..
            } if self.is_read_raw(*field, u128::MAX, (*value).into()) => {
                let is_negated = *relation == Relation::NotEqual;
                self.branch_raw(env.element, *field, u128::MAX, (*value).into(), is_negated, fails);
                None
            }
            Condition::Compare { left, relation, right, width, signed } => {
                let left = self.eval(left, *width, env);
                let right = self.eval(right, *width, env);
                self.compare(left, *relation, right, *width, *signed, fails)
            }
            Condition::Serial { left, right, after, negated, serial_bits } => {
                let width = if *serial_bits == 64 { Width::W64 } else { Width::W32 };
                let left = self.eval(left, width, env);
                let right = self.eval(right, width, env);
                let difference = self.own(left);
                let subtract = self.operand_in(width, right);
                self.alu(width, AluOp::Sub, difference, subtract);
                let spare = width.bits() - u32::from(*serial_bits);
                if spare > 0 {
                    self.alu(width, AluOp::Lsh, difference, Operand::Imm(spare as i32));
                }
                let op = match (after, negated) {
                    (true, false) => Cond::Sle,
                    (true, true) => Cond::Sgt,
                    (false, false) => Cond::Sge,
                    (false, true) => Cond::Slt,
                };
                let wide = width == Width::W64;
                self.builder.push(Op::Jump { wide, op, left: difference, right: Operand::Imm(0), target: fails });
                None
            }
            Condition::Masked { operand, mask, value, negated } => {
                let Some((operand, mask, value)) = self.in_family(*operand, *mask, *value) else {
                    return Some(*negated);
                };
                if let Wide::Field(field) = operand
                    && self.is_read_raw(field, mask, value)
                {
                    self.branch_raw(env.element, field, mask, value, *negated, fails);
                    return None;
                }
                let (operand, mask, value) = (&operand, &mask, &value);
                let found = self.pair(*operand, env);
                let bits = self.wide_bits(*operand, env);
                let masks = [(mask >> 64) as u64, *mask as u64];
                let all = [low_bits(u64::MAX, bits.saturating_sub(64)), low_bits(u64::MAX, bits.min(64))];
                let values = [(value >> 64) as u64, *value as u64];
                let halves: Vec<_> = (0..2)
                    .map(|i| {
                        // A mask that covers all bits needs no AND.
                        let mask = if masks[i] & all[i] == all[i] { u64::MAX } else { masks[i] };
                        (found.halves()[i], mask, Value::Const(values[i]))
                    })
                    .collect();
                self.branch_equal(&halves, *negated, fails)
            }
            Condition::Range { field, low, high, negated } => {
                let reg = self.load_field(env.element, *field);
                let holds = self.builder.label();
                let outside = if *negated { holds } else { fails };
                if *low > 0 {
                    let low = self.builder.operand(*low);
                    self.builder.jump64(Cond::Lt, reg, low, outside);
                }
                let high = self.builder.operand(*high);
                self.builder.jump64(Cond::Gt, reg, high, outside);
                if *negated {
                    self.builder.goto(fails);
                }
                self.builder.place(holds);
                None
            }
            Condition::Same { left, right, negated } => {
                let (left, right) = (self.pair(*left, env), self.pair(*right, env));
                let halves = [(left.high, u64::MAX, right.high), (left.low, u64::MAX, right.low)];
                self.branch_equal(&halves, *negated, fails)
            }
            Condition::OneOf { operand, values, width, negated } => {
                let operand = match self.eval(operand, *width, env) {
                    Value::Const(c) => return Some(values.contains(&c) != *negated),
                    Value::Reg(reg) => reg,
                };
                let holds = self.builder.label();
                let (inside, outside) = if *negated { (fails, holds) } else { (holds, fails) };
                self.one_of(operand, &runs(values), *width, inside, outside);
                self.builder.place(holds);
                None
            }
            Condition::Within { operand, values, negated } => {
                let (operand, values) = self.within_family(*operand, values);
                let found = self.pair(operand, env);
                let holds = self.builder.label();
                let (inside, outside) = if *negated { (fails, holds) } else { (holds, fails) };
                let is_inside = self.search_set(found, self.wide_bits(operand, env), &values, inside, outside);
                self.builder.place(holds);
                is_inside.map(|is_inside| is_inside != *negated)
            }
            // The row requires the field already; the tree has checked absence.
            Condition::Present { .. } => Some(true),
            Condition::Full { negated } => self.branch_full(*negated, env, fails),
        }
    }

    /// True if a field cannot have this value on the path: the field selected the parser's next node, and with this
    /// value the parser would not have reached a later header that is valid.
    fn contradicts_path(&self, field: FieldId, value: u64) -> bool {
        let Source::Header(header, slice) = field.source() else { return false };
        let nodes = self.graph.nodes();
        let Some(node) = nodes.iter().find(|node| node.header == Some(header)) else { return false };
        let [choice] = &node.next.choices[..] else { return false };
        let is_relevant = choice.edges.iter().any(|&(edge, _)| edge == value);
        if choice.selector != slice || is_relevant || node.next.otherwise.is_some() {
            return false;
        }
        let mut after = 0;
        let mut todo: Vec<usize> = node.next.successors().collect();
        let mut seen = vec![false; nodes.len()];
        while let Some(index) = todo.pop() {
            if !std::mem::replace(&mut seen[index], true) {
                after |= nodes[index].header.map_or(0, Header::bit);
                todo.extend(nodes[index].next.successors());
            }
        }
        self.path.masks.iter().all(|mask| mask & header.bit() != 0 && mask & after != 0)
    }

    /// True if a field is best compared in memory byte order: its value is not loaded yet, and it consists of whole
    /// words.
    fn is_read_raw(&self, field: FieldId, mask: u128, value: u128) -> bool {
        let bits = u32::from(field.width_bits());
        let is_whole = |&(_, slice): &(Header, Slice)| {
            slice.offset_bits.is_multiple_of(8) && slice.width_bits == field.width_bits()
        };
        let places = Lowering::places(field);
        let all = if bits >= 128 { u128::MAX } else { (1 << bits) - 1 };
        [16, 32, 64, 128].contains(&bits)
            && !places.is_empty()
            && places.iter().all(is_whole)
            && mask & all != 0
            && value & !(mask & all) == 0
            && !self.path.loaded.contains(&Item::Field(field))
    }

    /// Falls through if `field & mask == value` (if not, when `negated`), otherwise jumps to `fails`. Byte-swaps the
    /// constants instead of the field, and reads the low half only where the high half matches.
    fn branch_raw(&mut self, element: usize, field: FieldId, mask: u128, value: u128, negated: bool, fails: Label) {
        let bits = u32::from(field.width_bits()).min(64);
        let b = &mut self.builder;
        let (high, low) = *self.raw_fields.entry((element, field)).or_insert_with(|| (b.reg(), b.reg()));
        let holds = self.builder.label();
        let differs = if negated { holds } else { fails };
        let before = self.path.loaded.clone();
        for (half, reg, shift) in [(Half::High, high, 64), (Half::Low, low, 0)] {
            let all = low_bits(u64::MAX, bits);
            let (mask, value) = ((mask >> shift) as u64 & all, (value >> shift) as u64 & all);
            if mask == 0 || half == Half::High && field.width_bits() <= 64 {
                continue;
            }
            if self.path.loaded.insert(Item::Raw(field, half)) {
                let at = if half == Half::Low && field.width_bits() > 64 { 8 } else { 0 };
                self.for_each_place(&Lowering::places(field), |this, header, slice| {
                    let offset = (slice.offset_bits / 8) as i16 + at;
                    let base = this.pointers[&header];
                    this.builder.load(access_size(bits / 8), reg, base, offset);
                });
            }
            let in_memory = |value: u64| value.swap_bytes() >> (64 - bits);
            let mut compared = reg;
            if mask != all {
                compared = self.builder.dup(reg);
                let mask = self.builder.operand(in_memory(mask));
                self.builder.alu64(AluOp::And, compared, mask);
            }
            let value = in_memory(value);
            let (wide, right) = match bits {
                64 => (true, self.builder.operand(value)),
                _ => (false, Operand::Imm(value as u32 as i32)),
            };
            self.builder.push(Op::Jump { wide, op: Cond::Ne, left: compared, right, target: differs });
        }
        if field.width_bits() > 64 {
            // The low half is not loaded on all paths from here.
            let item = Item::Raw(field, Half::Low);
            if !before.contains(&item) {
                self.path.loaded.remove(&item);
            }
        }
        if negated {
            self.builder.goto(fails);
        }
        self.builder.place(holds);
    }

    /// Specializes a test of an address of either family to the family of the packet, if that is known; `None` if no
    /// address of that family can pass.
    fn in_family(&self, operand: Wide, mask: u128, value: u128) -> Option<(Wide, u128, u128)> {
        let Wide::Field(field) = operand else { return Some((operand, mask, value)) };
        let is_there = |field: FieldId| self.path.masks.iter().all(|m| m & mask_of(field) != 0);
        let Source::Address { .. } = field.source() else { return Some((operand, mask, value)) };
        match field.alternatives().iter().copied().find(|&field| is_there(field)) {
            Some(own) if own.width_bits() < 128 => {
                let low = u128::MAX >> (128 - u32::from(own.width_bits()));
                let fits = (value ^ IPV4_MAPPED) & mask & !low == 0;
                fits.then_some((Wide::Field(own), mask & low, value & low))
            }
            Some(own) => Some((Wide::Field(own), mask, value)),
            None => Some((operand, mask, value)),
        }
    }

    /// As [`Lowering::in_family`], for a set.
    fn within_family<'v>(&self, operand: Wide, values: &'v [Interval]) -> (Wide, Cow<'v, [Interval]>) {
        match self.in_family(operand, 0, 0) {
            Some((own @ Wide::Field(field), ..)) if own != operand && field.width_bits() <= 32 => {
                let mapped = (IPV4_MAPPED, IPV4_MAPPED | u128::from(u32::MAX));
                let part = intervals::intersect(values, &[mapped]);
                (
                    own,
                    part.into_iter()
                        .map(|(low, high)| (low & u128::from(u32::MAX), high & u128::from(u32::MAX)))
                        .collect(),
                )
            }
            Some((own, ..)) => (own, Cow::Borrowed(values)),
            None => (operand, Cow::Borrowed(values)),
        }
    }

    fn wide_bits(&self, wide: Wide, env: &Env) -> u32 {
        let bits = match wide {
            Wide::Constant(_) => 128,
            Wide::Field(field) => field.width_bits(),
            Wide::Register(i) => self.declared(env.element, Destination::Register(i)).map_or(64, |v| v.ty.width_bits),
            Wide::Global(i) => self.declared(env.element, Destination::Global(i)).map_or(64, |v| v.ty.width_bits),
            Wide::Old(destination) => self.declared(env.element, destination).map_or(64, |v| v.ty.width_bits),
            Wide::Metadata(i) => self.function.metadata[usize::from(i)].ty.width_bits,
        };
        bits.into()
    }

    /// Falls through if all of `left & mask == right` hold (if any does not, when `negated`), otherwise jumps to
    /// `fails`. Returns `Some` as [`Lowering::branch`] does.
    fn branch_equal(&mut self, halves: &[(Value, u64, Value)], negated: bool, fails: Label) -> Option<bool> {
        let mut open = Vec::new();
        for &(left, mask, right) in halves {
            match (left, right) {
                (Value::Const(a), Value::Const(b)) if a & mask != b => return Some(negated),
                (Value::Const(_), Value::Const(_)) => {}
                (_, Value::Const(0)) if mask == 0 => {}
                (Value::Reg(reg), other) | (other, Value::Reg(reg)) => open.push((reg, mask, other)),
            }
        }
        if open.is_empty() {
            return Some(!negated);
        }
        let holds = self.builder.label();
        let differs = if negated { holds } else { fails };
        for (reg, mask, other) in open {
            let mut compared = reg;
            if mask != u64::MAX {
                compared = self.builder.dup(reg);
                let mask = self.builder.operand(mask);
                self.builder.alu64(AluOp::And, compared, mask);
            }
            let other = self.operand_of(other);
            self.builder.jump64(Cond::Ne, compared, other, differs);
        }
        if negated {
            self.builder.goto(fails);
        }
        self.builder.place(holds);
        None
    }

    /// Jumps to `inside` if the value is in one of the ascending runs, otherwise to `outside`.
    fn one_of(&mut self, value: Reg, runs: &[(u64, u64)], width: Width, inside: Label, outside: Label) {
        let wide = width == Width::W64;
        let jump = |this: &mut Self, op: Cond, limit: u64, target: Label| {
            let right = this.operand_in(width, Value::Const(limit));
            this.builder.push(Op::Jump { wide, op, left: value, right, target });
        };
        if runs.len() > MAX_RUNS_IN_LINE {
            let (below, above) = runs.split_at(runs.len() / 2);
            let upper = self.builder.label();
            jump(self, Cond::Ge, above[0].0, upper);
            self.one_of(value, below, width, inside, outside);
            self.builder.place(upper);
            self.one_of(value, above, width, inside, outside);
            return;
        }
        for &(low, high) in runs {
            if low == high {
                jump(self, Cond::Eq, low, inside);
            } else {
                // A value below this run is in none of the later runs either.
                jump(self, Cond::Lt, low, outside);
                jump(self, Cond::Le, high, inside);
            }
        }
        self.builder.goto(outside);
    }

    fn compare(
        &mut self,
        left: Value,
        relation: Relation,
        right: Value,
        width: Width,
        signed: bool,
        fails: Label,
    ) -> Option<bool> {
        let (left, relation, right) = match (left, right) {
            (Value::Const(a), Value::Const(b)) => {
                let order = if signed {
                    (sign_extend(a, width.bits()) as i64).cmp(&(sign_extend(b, width.bits()) as i64))
                } else {
                    a.cmp(&b)
                };
                return Some(relation.holds(order));
            }
            (Value::Const(_), Value::Reg(r)) => (r, relation.swap_operands(), left),
            (Value::Reg(r), _) => (r, relation, right),
        };
        let op = match (relation, signed) {
            (Relation::Equal, _) => Cond::Ne,
            (Relation::NotEqual, _) => Cond::Eq,
            (Relation::Less, false) => Cond::Ge,
            (Relation::LessEqual, false) => Cond::Gt,
            (Relation::Greater, false) => Cond::Le,
            (Relation::GreaterEqual, false) => Cond::Lt,
            (Relation::Less, true) => Cond::Sge,
            (Relation::LessEqual, true) => Cond::Sgt,
            (Relation::Greater, true) => Cond::Sle,
            (Relation::GreaterEqual, true) => Cond::Slt,
        };
        let right = self.operand_in(width, right);
        self.builder.push(Op::Jump { wide: width == Width::W64, op, left, right, target: fails });
        None
    }
}

/// Maximal runs of consecutive values in an ascending set, as (first, last).
fn runs(values: &[u64]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &value in values {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(value) => *last = value,
            _ => runs.push((value, value)),
        }
    }
    // For a run of two, two range comparisons are no better than two equality tests.
    let split =
        |(low, high): (u64, u64)| if high - low == 1 { vec![(low, low), (high, high)] } else { vec![(low, high)] };
    runs.into_iter().flat_map(split).collect()
}
