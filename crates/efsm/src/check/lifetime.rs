// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Warnings about contexts that are never removed.

use flowloom_wire::field::FieldId;

use crate::diagnostic::{Code, Sink, list_names};
use crate::intervals;
use crate::model::{
    BinaryOp, Condition, Destination, Element, Expr, Key, KeyPart, NewValue, NextState, Policy, Row, Stateful, Wide,
};

use super::overlap;

/// Counters of at most this width, in bits, are assumed to wrap to their initial value.
const WRAPPING_COUNTER_BITS: u8 = 16;

/// Warns of a table that fills up permanently: it has more keys than entries, and no context expires or returns to its
/// default. An explicit policy or a row with `full` shows that this is intended.
pub(super) fn warn(element: &Element, sink: &mut Sink) {
    let Some(stateful) = &element.stateful else { return };
    let is_meant = stateful.policy_span != element.span
        || element.rows.iter().any(|row| row.conditions.iter().any(|c| matches!(c, Condition::Full { .. })));
    let Some(key) = stateful.key.as_ref().filter(|_| stateful.policy == Policy::Reject && !is_meant) else { return };
    let has_metadata = key.parts.iter().any(|part| matches!(part, KeyPart::Metadata(_)));
    let storing: Vec<&Row> = element.rows.iter().filter(|row| stores(row, stateful)).collect();
    let keys = storing.iter().fold(0_u128, |keys, row| keys.saturating_add(key_count_bound(row, key)));
    if has_metadata || keys <= u128::from(stateful.size) {
        return;
    }
    let resets: Vec<Vec<bool>> = written(element).map(|register| may_be_initial(register, element, stateful)).collect();
    if element.rows.iter().any(|row| expires(row) || may_remove(row, element, stateful, &resets)) {
        return;
    }
    let back = element.rows.iter().find(|row| matches!(row.next, NextState::To { state: 0, .. }));
    let help = "give a transition a timer, as in `-> s (idle 60s)`, remove contexts with `forget`, let the table evict: \
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
                .zip(&resets)
                .filter(|(register, may)| !may_reset(row, *register, may, stateful))
                .map(|(register, _)| stateful.registers[usize::from(register)].name.as_str())
                .collect();
            let names = list_names(kept, 8);
            draft.secondary_label(row.span, format!("leaves {names} at a value other than its initial one")).help(help)
        }
        None => draft.help(help),
    };
}

/// True if a row may store a context where there was none.
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

/// Registers that some row writes.
fn written(element: &Element) -> impl Iterator<Item = u16> {
    let updates = element.rows.iter().flat_map(|row| &row.updates);
    let registers = updates.filter_map(|update| match update.destination {
        Destination::Register(i) => Some(i),
        Destination::Global(_) => None,
    });
    registers.collect::<std::collections::BTreeSet<u16>>().into_iter()
}

/// Upper bound of the number of distinct keys of the packets that match a row.
fn key_count_bound(row: &Row, key: &Key) -> u128 {
    let conditions: Vec<_> = row.conditions.iter().filter_map(intervals::of).collect();
    let fields = key.parts.iter().filter_map(|part| match part {
        KeyPart::Field(field) => Some(*field),
        KeyPart::Metadata(_) => None,
    });
    let protocols = FieldId::by_name("ip.proto");
    let values = |field: FieldId| {
        let of_field = conditions.iter().filter(|(of, _)| *of == field);
        let sizes =
            of_field.map(|(_, intervals)| intervals.iter().map(|(low, high)| (high - low).saturating_add(1)).sum());
        let all = 1_u128.checked_shl(field.width_bits().into()).unwrap_or(u128::MAX);
        let bound = sizes.fold(all, u128::min);
        // A port field implies the protocol.
        let others = key.parts.iter().filter_map(|part| match part {
            KeyPart::Field(other) if Some(field) == protocols => overlap::protocols_of(*other),
            _ => None,
        });
        others.map(|own| own.len() as u128).fold(bound, u128::min)
    };
    fields.map(values).fold(1, u128::saturating_mul)
}

/// For each state, true if a register may have its initial value there. Computed as a fixpoint: the initial state
/// starts with it, rows that write the register may set it, other rows propagate it.
fn may_be_initial(register: u16, element: &Element, stateful: &Stateful) -> Vec<bool> {
    let mut may = vec![false; stateful.states.len()];
    may[0] = true;
    loop {
        let before = may.clone();
        for row in &element.rows {
            let update = row.updates.iter().find(|update| update.destination == Destination::Register(register));
            let is_reset = update.is_some_and(|update| may_equal_initial(&update.value, register, stateful));
            for &from in &row.states {
                let to = match row.next {
                    NextState::To { state, .. } => state,
                    NextState::Stay => from,
                };
                may[usize::from(to)] |= is_reset || update.is_none() && may[usize::from(from)];
            }
        }
        if may == before {
            return may;
        }
    }
}

/// True if a context may be in its default after the row: in the initial state, with each register that any row writes
/// at its initial value.
fn may_remove(row: &Row, element: &Element, stateful: &Stateful, resets: &[Vec<bool>]) -> bool {
    let is_initial = match row.next {
        NextState::To { state, .. } => state == 0,
        NextState::Stay => row.states.contains(&0) && !row.updates.is_empty(),
    };
    // A packet without a context does not remove one; only a return to the initial state does.
    let leads_back = row.states.iter().any(|&state| state != 0) || !row.updates.is_empty();
    is_initial
        && leads_back
        && written(element).zip(resets).all(|(register, may)| may_reset(row, register, may, stateful))
}

/// True if a register may have its initial value after the row. `may` holds the answer for each state before it.
fn may_reset(row: &Row, register: u16, may: &[bool], stateful: &Stateful) -> bool {
    match row.updates.iter().find(|update| update.destination == Destination::Register(register)) {
        Some(update) => may_equal_initial(&update.value, register, stateful),
        None => row.states.iter().any(|&from| may[usize::from(from)]),
    }
}

/// True if the row sets the register to a constant equal to its initial value.
fn is_reset(row: &Row, register: u16, stateful: &Stateful) -> bool {
    let update = row.updates.iter().find(|update| update.destination == Destination::Register(register));
    update.is_some_and(|update| match &update.value {
        NewValue::Number { value: Expr::Constant(_), .. } | NewValue::Wide(Wide::Constant(_)) => {
            may_equal_initial(&update.value, register, stateful)
        }
        _ => false,
    })
}

/// True if a new value of a register may equal its initial one. A wide register that only grows is assumed not to wrap.
fn may_equal_initial(value: &NewValue, register: u16, stateful: &Stateful) -> bool {
    let initial = stateful.registers[usize::from(register)].initial;
    match value {
        NewValue::Number { value: Expr::Constant(c), .. } => u128::from(*c) == initial,
        NewValue::Wide(Wide::Constant(c)) => *c == initial,
        NewValue::Number { value: Expr::Binary(BinaryOp::Add, left, right), .. } => {
            let wraps_soon = stateful.registers[usize::from(register)].ty.width_bits <= WRAPPING_COUNTER_BITS;
            let is_growth = |a: &Expr, b: &Expr| {
                matches!(a, Expr::Register(_)) && matches!(b, Expr::Constant(c) if (*c as i64) > 0)
            };
            wraps_soon || !is_growth(left, right) && !is_growth(right, left)
        }
        _ => true,
    }
}
