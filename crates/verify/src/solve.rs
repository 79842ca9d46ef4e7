// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Solves for field values that satisfy a row's conditions.
//!
//! Most conditions compare one field, possibly after some arithmetic, with a number that is known once the context is:
//! then the arithmetic is inverted step by step. Where it cannot be inverted, the value is left to chance; the stimulus
//! checks the resulting packet anyway.

use flowloom_efsm::model::{
    BinaryOp, Condition, Destination, Expr, NewValue, Relation, Row, Update, Variable, Wide, Width, Write, WriteTarget,
};
use flowloom_wire::field::FieldId;
use flowloom_wire::{Graph, Layers};

use crate::frame::FieldValue;
use crate::walk::{Values, reads_packet, sign_extend};
use flowloom_random::{Draw, Xorshift64Star as Rng};

/// Requirements of a row on its packet.
#[derive(Debug, Default)]
pub(crate) struct Requirements {
    pub(crate) fields: Vec<FieldValue>,
    /// Time of the packet, in nanoseconds.
    pub(crate) time_ns: Option<u64>,
}

impl Requirements {
    /// Adds the requirements of another row on the path; of two values for one field the later one counts.
    pub(crate) fn add(&mut self, other: Requirements) {
        self.fields.extend(other.fields);
        self.time_ns = self.time_ns.max(other.time_ns);
    }
}

/// True if the conditions of `row` that only read the context hold.
pub(crate) fn context_holds(row: &Row, values: &Values<'_>) -> bool {
    conditions_hold(&row.conditions, values)
}

/// Weakest precondition: must hold before `updates` for the condition to hold after them.
pub(crate) fn before(condition: &Condition, updates: &[Update]) -> Condition {
    let mut before = condition.clone();
    let updated = |destination| updates.iter().find(|u| u.destination == destination).map(|u| &u.value);
    let number = |expr: &Expr| {
        let destination = match expr {
            Expr::Register(i) => Destination::Register(*i),
            Expr::Global(i) => Destination::Global(*i),
            _ => return None,
        };
        match updated(destination)? {
            NewValue::Number { value, .. } => Some(value.clone()),
            NewValue::Wide(_) => None,
        }
    };
    let wide = |operand: Wide| {
        let destination = match operand {
            Wide::Register(i) => Destination::Register(i),
            Wide::Global(i) => Destination::Global(i),
            _ => return operand,
        };
        match updated(destination) {
            Some(NewValue::Wide(value)) => *value,
            _ => operand,
        }
    };
    replace_operands(&mut before, &number, &wide);
    before
}

/// True if those of the row's conditions that only read the context and the time hold.
pub(crate) fn time_holds(row: &Row, values: &Values<'_>) -> bool {
    row.conditions.iter().all(|condition| !reads_only_time(condition) || values.holds(condition))
}

/// True if those of the conditions that only read the context hold.
pub(crate) fn conditions_hold(conditions: &[Condition], values: &Values<'_>) -> bool {
    conditions.iter().all(|condition| match condition {
        Condition::Compare { left, right, .. } | Condition::Serial { left, right, .. } => {
            reads_packet(left) || reads_packet(right) || values.holds(condition)
        }
        Condition::OneOf { operand, .. } => reads_packet(operand) || values.holds(condition),
        Condition::Same { left, right, .. } => {
            let reads = |wide: &Wide| matches!(wide, Wide::Field(_) | Wide::Metadata(_));
            reads(left) || reads(right) || values.holds(condition)
        }
        Condition::Within { operand, .. } => {
            matches!(operand, Wide::Field(_) | Wide::Metadata(_)) || values.holds(condition)
        }
        Condition::Masked { .. } | Condition::Range { .. } | Condition::Present { .. } | Condition::Full { .. } => true,
    })
}

/// Replaces reads of metadata that `writes` writes by the written values.
pub(crate) fn substitute(condition: &mut Condition, writes: &[Write]) {
    let written = |i| writes.iter().find(|w| w.target == WriteTarget::Metadata(i));
    // Registers belong to the element that writes: their values are meaningless in another element.
    let number = |i| {
        let NewValue::Number { value, .. } = &written(i)?.value else { return None };
        let mut is_foreign = false;
        value.walk(&mut |e| {
            is_foreign |= matches!(e, Expr::Register(_) | Expr::Global(_) | Expr::Old(_) | Expr::State)
                || matches!(e, Expr::Word { of: Wide::Register(_) | Wide::Global(_) | Wide::Old(_), .. });
        });
        (!is_foreign).then(|| value.clone())
    };
    let wide = |i| match written(i)?.value {
        NewValue::Wide(Wide::Register(_) | Wide::Global(_) | Wide::Old(_)) | NewValue::Number { .. } => None,
        NewValue::Wide(wide) => Some(wide),
    };
    replace_metadata(condition, &number, &wide);
}

/// Replaces reads of metadata by its initial values.
pub(crate) fn start(condition: &mut Condition, metadata: &[Variable]) {
    let initial = |i: u16| metadata.get(usize::from(i)).map(|m| m.initial);
    let number = |i| initial(i).map(|value| Expr::Constant(value as u64));
    replace_metadata(condition, &number, &|i| initial(i).map(Wide::Constant));
}

/// The condition on a metadata field for a key to contain these bytes.
pub(crate) fn key_part(metadata: u16, bytes: &[u8]) -> Condition {
    let value = bytes.iter().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
    if bytes.len() > 8 {
        let (left, right) = (Wide::Metadata(metadata), Wide::Constant(value));
        return Condition::Same { left, right, negated: false };
    }
    let (left, right) = (Expr::Metadata(metadata), Expr::Constant(value as u64));
    Condition::Compare { left, relation: Relation::Equal, right, width: Width::W64, signed: false }
}

/// Replaces each subexpression for which `with` returns a replacement.
pub(crate) fn replace(expr: &mut Expr, with: &dyn Fn(&Expr) -> Option<Expr>) {
    if let Some(value) = with(expr) {
        *expr = value;
        return;
    }
    match expr {
        Expr::Not(inner) => replace(inner, with),
        Expr::Binary(_, left, right)
        | Expr::RotateRight { left, right, .. }
        | Expr::MinMax { left, right, .. }
        | Expr::Ewma { average: left, sample: right, .. } => {
            replace(left, with);
            replace(right, with);
        }
        Expr::Hash(words) => words.iter_mut().for_each(|word| replace(word, with)),
        _ => {}
    }
}

fn replace_metadata(
    condition: &mut Condition,
    number: &dyn Fn(u16) -> Option<Expr>,
    wide: &dyn Fn(u16) -> Option<Wide>,
) {
    let number = |expr: &Expr| if let Expr::Metadata(i) = expr { number(*i) } else { None };
    let wide = |operand: Wide| if let Wide::Metadata(i) = operand { wide(i).unwrap_or(operand) } else { operand };
    replace_operands(condition, &number, &wide);
}

/// Replaces the operands of the condition: subexpressions as [`replace`] does, and 128-bit values.
fn replace_operands(condition: &mut Condition, number: &dyn Fn(&Expr) -> Option<Expr>, wide: &dyn Fn(Wide) -> Wide) {
    match condition {
        Condition::Compare { left, right, .. } | Condition::Serial { left, right, .. } => {
            replace(left, number);
            replace(right, number);
        }
        Condition::OneOf { operand, .. } => replace(operand, number),
        Condition::Masked { operand, .. } | Condition::Within { operand, .. } => *operand = wide(*operand),
        Condition::Same { left, right, .. } => (*left, *right) = (wide(*left), wide(*right)),
        Condition::Range { .. } | Condition::Present { .. } | Condition::Full { .. } => {}
    }
}

/// Negation of the condition; `None` where it depends on the table.
pub(crate) fn opposite(condition: &Condition) -> Option<Condition> {
    let mut other = condition.clone();
    match &mut other {
        Condition::Compare { relation, .. } => *relation = relation.inverse(),
        Condition::Serial { negated, .. }
        | Condition::Masked { negated, .. }
        | Condition::Range { negated, .. }
        | Condition::Within { negated, .. }
        | Condition::Same { negated, .. }
        | Condition::Present { negated, .. }
        | Condition::OneOf { negated, .. } => *negated = !*negated,
        Condition::Full { .. } => return None,
    }
    Some(other)
}

/// True if the condition compares constants, and does not hold.
pub(crate) fn is_impossible(condition: &Condition) -> bool {
    let has_operands =
        !matches!(condition, Condition::Range { .. } | Condition::Present { .. } | Condition::Full { .. });
    let mut is_constant = has_operands && condition.wides().iter().all(|wide| matches!(wide, Wide::Constant(_)));
    for expr in condition.exprs() {
        expr.walk(&mut |e| {
            is_constant &= !matches!(
                e,
                Expr::Register(_)
                    | Expr::Global(_)
                    | Expr::Old(_)
                    | Expr::Metadata(_)
                    | Expr::Field(_)
                    | Expr::Now { .. }
                    | Expr::Word { .. }
                    | Expr::State
            );
        });
    }
    is_constant && !Values::none(&Layers::parse(Graph::standard(), &[])).holds(condition)
}

/// True if the condition depends on more than the context.
pub(crate) fn depends_on_packet_or_metadata(condition: &Condition) -> bool {
    depends_on_packet(condition) || condition.wides().iter().any(|wide| matches!(wide, Wide::Metadata(_)))
}

/// True if a packet can satisfy the condition, whatever the context is.
pub(crate) fn depends_on_packet(condition: &Condition) -> bool {
    matches!(condition, Condition::Range { .. } | Condition::Present { .. })
        || condition.exprs().into_iter().any(reads_packet)
        || condition.wides().iter().any(|wide| matches!(wide, Wide::Field(_)))
}

/// Values for fields, and a time, that satisfy the conditions as far as they can be solved one by one.
pub(crate) fn solve(rng: &mut Rng, conditions: &[Condition], values: &Values<'_>) -> Requirements {
    let mut requirements = Requirements::default();
    for condition in conditions {
        // A jump in time expires other contexts: avoid it where the time already satisfies the condition.
        if reads_only_time(condition) && values.holds(condition) && rng.percent(97) {
            continue;
        }
        match condition {
            Condition::Compare { left, relation, right, width, signed } => {
                let (unknown, known, relation) = match (reads_packet(left), reads_packet(right)) {
                    (true, false) => (left, right, *relation),
                    (false, true) => (right, left, mirrored(*relation)),
                    (true, true) => {
                        both_unknown(rng, left, right, *relation, *width, values, &mut requirements);
                        continue;
                    }
                    (false, false) => continue,
                };
                let known = values.eval(known, *width);
                let target = target(rng, relation, known, *width, *signed);
                invert(rng, unknown, target, *width, values, &mut requirements);
            }
            Condition::Serial { left, right, after, negated, serial_bits } => {
                let width = if *serial_bits > 32 { Width::W64 } else { Width::W32 };
                let (unknown, known, flip) = match (reads_packet(left), reads_packet(right)) {
                    (true, _) => (left, right, false),
                    (false, true) => (right, left, true),
                    (false, false) => continue,
                };
                let known = values.eval(known, width);
                let step = match (after ^ flip) ^ negated {
                    _ if *negated && rng.percent(40) => 0,
                    true => 1 + rng.below(3),
                    false => (1 + rng.below(3)).wrapping_neg(),
                };
                invert(rng, unknown, known.wrapping_add(step), width, values, &mut requirements);
            }
            Condition::Masked { operand: Wide::Field(field), mask, value, negated } => {
                let free = rng.next_u128() & !mask;
                let mut field_value = value | free;
                if *negated && *mask != 0 {
                    let bits: Vec<u32> = (0..128).filter(|bit| mask >> bit & 1 == 1).collect();
                    field_value ^= 1 << rng.pick(&bits).copied().unwrap_or(0);
                }
                requirements.fields.push((*field, field_value & width_mask(*field)));
            }
            Condition::Range { field, low, high, negated } => {
                let inside = low.wrapping_add(rng.below(high.wrapping_sub(*low).saturating_add(1)));
                let field_value = match negated {
                    true => rng.one_of([low.wrapping_sub(1), high.wrapping_add(1)]),
                    false => rng.one_of([*low, *high, inside]),
                };
                requirements.fields.push((*field, u128::from(field_value) & width_mask(*field)));
            }
            Condition::Same { left: Wide::Field(left), right: Wide::Field(right), negated } => {
                let one = address(rng);
                requirements.fields.push((*left, one));
                requirements.fields.push((*right, if *negated { one ^ 1 } else { one }));
            }
            Condition::Same { left, right, negated } => {
                let (field, other) = match (left, right) {
                    (Wide::Field(field), other) | (other, Wide::Field(field)) => (*field, *other),
                    _ => continue,
                };
                let value = values.wide(other);
                requirements.fields.push((field, if *negated { value ^ 1 } else { value } & width_mask(field)));
            }
            Condition::OneOf { operand, values: set, width, negated } if reads_packet(operand) => {
                let Some(&one) = rng.pick(set) else { continue };
                // For a negated set, a value next to an element that is not in the set, which may be dense.
                let outside = (1..=8).map(|by| one.wrapping_add(by)).find(|value| set.binary_search(value).is_err());
                let target = if *negated { outside.unwrap_or_else(|| rng.next_u64()) } else { one };
                invert(rng, operand, target, *width, values, &mut requirements);
            }
            Condition::Within { operand: Wide::Field(field), values: set, negated } => {
                let Some(&(low, high)) = rng.pick(set) else { continue };
                let inside = low + rng.next_u128() % (high - low).saturating_add(1);
                // For a negated set, a value just outside an interval.
                let field_value = match negated {
                    true => rng.one_of([low.wrapping_sub(1), high.wrapping_add(1)]),
                    false => rng.one_of([low, high, inside]),
                };
                requirements.fields.push((*field, field_value & width_mask(*field)));
            }
            Condition::Masked { .. }
            | Condition::OneOf { .. }
            | Condition::Within { .. }
            | Condition::Present { .. }
            | Condition::Full { .. } => {}
        }
    }
    requirements
}

/// True if the time is all that the condition reads of the packet.
fn reads_only_time(condition: &Condition) -> bool {
    let (mut time, mut other) = (false, false);
    for expr in condition.exprs() {
        expr.walk(&mut |e| {
            time |= matches!(e, Expr::Now { .. });
            other |= matches!(e, Expr::Field(_) | Expr::Metadata(_));
        });
    }
    time && !other
}

/// One of a few addresses of either family.
pub(crate) fn address(rng: &mut Rng) -> u128 {
    let host = u128::from(rng.below(4));
    if rng.percent(60) { 0xffff_0a00_0000 | host } else { 0xfd00_u128 << 112 | host }
}

fn width_mask(field: FieldId) -> u128 {
    u128::MAX >> (128 - u32::from(field.width_bits()))
}

fn mirrored(relation: Relation) -> Relation {
    match relation {
        Relation::Less => Relation::Greater,
        Relation::LessEqual => Relation::GreaterEqual,
        Relation::Greater => Relation::Less,
        Relation::GreaterEqual => Relation::LessEqual,
        same => same,
    }
}

/// A number in `relation` to `known`, most often close to it.
fn target(rng: &mut Rng, relation: Relation, known: u64, width: Width, signed: bool) -> u64 {
    let near = 1 + if rng.percent(70) { 0 } else { rng.below(1000) };
    let (least, most) = match (width, signed) {
        (Width::W32, false) => (0, u64::from(u32::MAX)),
        (Width::W64, false) => (0, u64::MAX),
        (Width::W32, true) => (i32::MIN as u64, i32::MAX as u64),
        (Width::W64, true) => (i64::MIN as u64, i64::MAX as u64),
    };
    let bits = width.bits();
    let value = if signed { sign_extend(known, bits) as u64 } else { known };
    let below = |by: u64| {
        if signed {
            (value as i64).saturating_sub(by as i64).max(least as i64) as u64
        } else {
            value.saturating_sub(by)
        }
    };
    let above = |by: u64| {
        if signed {
            (value as i64).saturating_add(by as i64).min(most as i64) as u64
        } else {
            value.saturating_add(by).min(most)
        }
    };
    match relation {
        Relation::Equal => value,
        Relation::NotEqual => {
            if rng.percent(50) {
                above(near)
            } else {
                below(near)
            }
        }
        Relation::Less => below(near),
        Relation::LessEqual => {
            if rng.percent(50) {
                value
            } else {
                below(near)
            }
        }
        Relation::Greater => above(near),
        Relation::GreaterEqual => {
            if rng.percent(50) {
                value
            } else {
                above(near)
            }
        }
    }
}

/// Both `left` and `right` read the packet: fixes the right one's field and solves for the left one.
fn both_unknown(
    rng: &mut Rng,
    left: &Expr,
    right: &Expr,
    relation: Relation,
    width: Width,
    values: &Values<'_>,
    requirements: &mut Requirements,
) {
    if let Expr::Field(field) = right {
        let value = rng.below(8) + if rng.percent(50) { 1000 } else { 0 };
        let value = u128::from(value) & width_mask(*field);
        requirements.fields.push((*field, value));
        let target_value = target(rng, relation, value as u64, width, false);
        invert(rng, left, target_value, width, values, requirements);
    } else if let (Expr::Now { unit_ns }, true) = (left, relation == Relation::NotEqual) {
        requirements.time_ns = unit_ns.checked_mul(1);
    }
}

/// Inverts the arithmetic of `expr` down to one field or `now`, and sets it so that `expr` equals `target`.
fn invert(rng: &mut Rng, expr: &Expr, target: u64, width: Width, values: &Values<'_>, requirements: &mut Requirements) {
    match expr {
        Expr::Field(field) => requirements.fields.push((*field, u128::from(target) & width_mask(*field))),
        Expr::Now { unit_ns } => {
            // Only times in the future are possible.
            requirements.time_ns = target.checked_mul(*unit_ns).map(|t| t.saturating_add(rng.below(*unit_ns)));
        }
        Expr::Not(inner) => invert(rng, inner, !target, width, values, requirements),
        Expr::Binary(op, left, right) => {
            let (unknown, known, left_is_unknown) = match (reads_packet(left), reads_packet(right)) {
                (true, false) => (left, right, true),
                (false, true) => (right, left, false),
                (true, true) => {
                    // Fix the right operand if it is a plain field.
                    let Expr::Field(field) = **right else { return };
                    let value = rng.below(16);
                    requirements.fields.push((field, u128::from(value) & width_mask(field)));
                    let before = match op {
                        BinaryOp::Add => target.wrapping_sub(value),
                        BinaryOp::Sub => target.wrapping_add(value),
                        BinaryOp::Xor => target ^ value,
                        _ => return,
                    };
                    return invert(rng, left, before, width, values, requirements);
                }
                (false, false) => return,
            };
            let known = values.eval(known, width);
            let shift = known as u32 % width.bits();
            let before = match (op, left_is_unknown) {
                (BinaryOp::Add, _) => target.wrapping_sub(known),
                (BinaryOp::Sub, true) => target.wrapping_add(known),
                (BinaryOp::Sub, false) => known.wrapping_sub(target),
                (BinaryOp::Xor, _) => target ^ known,
                (BinaryOp::And, _) => target & known | rng.next_u64() & !known,
                (BinaryOp::Or, _) => target & !known,
                (BinaryOp::ShiftLeft, true) => target >> shift,
                (BinaryOp::ShiftRight, true) => target << shift | rng.below(1 << shift.min(16)),
                _ => return,
            };
            invert(rng, unknown, before, width, values, requirements);
        }
        Expr::RotateRight { left, right, rotate_bits } if reads_packet(left) && !reads_packet(right) => {
            let n = u64::from(*rotate_bits);
            let by = values.eval(right, width) % n;
            let whole = target & u64::MAX >> (64 - n);
            let before = if by == 0 { whole } else { (whole << by | whole >> (n - by)) & u64::MAX >> (64 - n) };
            invert(rng, left, before, width, values, requirements);
        }
        Expr::MinMax { left, right, .. } => {
            let inner = if reads_packet(left) { left } else { right };
            invert(rng, inner, target, width, values, requirements);
        }
        _ => {}
    }
}
