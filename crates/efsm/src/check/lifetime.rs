//! Warnings about contexts that are never removed.

use crate::diagnostic::{Code, Sink, list_names};
use crate::model::{Condition, Destination, Element, Expr, KeyPart, NewValue, NextState, Policy, Row, Stateful, Wide};

/// Warns where a table fills up for good: it has more keys than room, and no context in it ever expires or comes back to its
/// default. A policy that is written out, or a row for the full table, says that this is meant.
pub(super) fn warn(element: &Element, sink: &mut Sink) {
    let Some(stateful) = &element.stateful else { return };
    let is_meant = stateful.policy_span != element.span
        || element.rows.iter().any(|row| row.conditions.iter().any(|c| matches!(c, Condition::Full { .. })));
    let Some(key) = stateful.key.as_ref().filter(|_| stateful.policy == Policy::Reject && !is_meant) else { return };
    let bits: u32 = key
        .parts
        .iter()
        .map(|part| match part {
            KeyPart::Field(field) => u32::from(field.width_bits()),
            KeyPart::Metadata(_) => 0,
        })
        .sum();
    let has_few_keys = bits < 32 && 1 << bits <= u64::from(stateful.size);
    let has_metadata = key.parts.iter().any(|part| matches!(part, KeyPart::Metadata(_)));
    if has_few_keys || has_metadata || !element.rows.iter().any(|row| stores(row, stateful)) {
        return;
    }
    if element.rows.iter().any(|row| expires(row) || may_remove(row, element, stateful)) {
        return;
    }
    let back = element.rows.iter().find(|row| matches!(row.next, NextState::To { state: 0, .. }));
    let help = "give a transition a timer, as in `-> s (idle 60s)`, bring a context back with `forget`, let the table evict: \
                `full evict oldest`, or write `full reject` where it is meant to fill up";
    let draft = sink.warning(
        Code::NeverRemoved,
        element.span,
        format!("contexts of `{}` are never removed, and the table fills up", element.name),
        format!("{} contexts at most", stateful.size),
    );
    match back {
        Some(row) => {
            let kept: Vec<&str> = written(element)
                .filter(|register| !is_reset(row, *register, stateful))
                .map(|register| stateful.registers[usize::from(register)].name.as_str())
                .collect();
            let names = list_names(kept, 8);
            draft.also(row.span, format!("leaves {names} at a value other than its initial one")).help(help)
        }
        None => draft.help(help),
    };
}

/// Whether a row may store a context where there was none.
fn stores(row: &Row, stateful: &Stateful) -> bool {
    if !row.states.contains(&0) {
        return false;
    }
    let leaves = matches!(row.next, NextState::To { state, .. } if state != 0);
    let sets = |i: u16| !is_reset(row, i, stateful);
    leaves || row.updates.iter().any(|u| matches!(u.destination, Destination::Register(i) if sets(i)))
}

fn expires(row: &Row) -> bool {
    matches!(row.next, NextState::To { idle_ns, hard_ns, .. } if idle_ns.or(hard_ns).is_some())
}

/// The registers that some row writes.
fn written(element: &Element) -> impl Iterator<Item = u16> {
    let updates = element.rows.iter().flat_map(|row| &row.updates);
    let registers = updates.filter_map(|update| match update.destination {
        Destination::Register(i) => Some(i),
        Destination::Global(_) => None,
    });
    registers.collect::<std::collections::BTreeSet<u16>>().into_iter()
}

/// Whether a context may be in its default after the row: it is in the initial state, and each register that any row
/// writes may have its initial value.
fn may_remove(row: &Row, element: &Element, stateful: &Stateful) -> bool {
    let is_initial = match row.next {
        NextState::To { state, .. } => state == 0,
        NextState::Stay => row.states.contains(&0) && !row.updates.is_empty(),
    };
    let may_be_initial = |register: u16| {
        let update = row.updates.iter().find(|update| update.destination == Destination::Register(register));
        update.map_or(tests(row, register), |update| {
            may_be(&update.value, stateful.registers[usize::from(register)].initial)
        })
    };
    is_initial && written(element).all(may_be_initial)
}

/// Whether the row sets the register to its initial value, or to anything but a constant.
fn is_reset(row: &Row, register: u16, stateful: &Stateful) -> bool {
    let update = row.updates.iter().find(|update| update.destination == Destination::Register(register));
    update.is_some_and(|update| match &update.value {
        NewValue::Number { value: Expr::Constant(_), .. } | NewValue::Wide(Wide::Constant(_)) => {
            may_be(&update.value, stateful.registers[usize::from(register)].initial)
        }
        _ => false,
    })
}

/// Whether a condition of the row is about the register, so that it may have its initial value there.
fn tests(row: &Row, register: u16) -> bool {
    let mut found = row.wides().contains(&Wide::Register(register));
    for expr in row.conditions.iter().flat_map(|condition| condition.exprs()) {
        expr.walk(&mut |e| found |= *e == Expr::Register(register));
    }
    found
}

/// Whether a new value may be `initial`. What only grows is not taken to come round.
fn may_be(value: &NewValue, initial: u128) -> bool {
    match value {
        NewValue::Number { value: Expr::Constant(c), .. } => u128::from(*c) == initial,
        NewValue::Wide(Wide::Constant(c)) => *c == initial,
        NewValue::Number { value: Expr::Binary(crate::model::BinaryOp::Add, left, right), .. } => {
            let is_growth = |a: &Expr, b: &Expr| {
                matches!(a, Expr::Register(_)) && matches!(b, Expr::Constant(c) if (*c as i64) > 0)
            };
            !is_growth(left, right) && !is_growth(right, left)
        }
        _ => true,
    }
}
