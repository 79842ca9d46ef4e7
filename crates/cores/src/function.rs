// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of an `.efsm` function several cores can share.
//!
//! **Steps.**
//! 1. Each stateful element has *placements*: by part of its key, the packet field that the part is. A key of fields
//!    has one; a `biflow` key has a second with the directions exchanged; a key with metadata has one for each row that
//!    leads to the element, which has to write that metadata from fields.
//! 2. The partition is the set of fields that are in all placements of all elements. If an element has several
//!    placements, they have to differ by the exchange of directions only, and the partition is symmetric.
//! 3. A global register is summed if packets only add to it.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_efsm::events::{EVENTS_MAP, LOST_MAP};
use flowloom_efsm::layout::{self, CounterTable};
use flowloom_efsm::model::{
    BinaryOp, Condition, Destination, Expr, Function, KeyPart, NewValue, Row, Stateful, Terminal, Wide, Width,
    WriteTarget,
};
use flowloom_plan::{Operator, Update};
use flowloom_wire::field::FieldId;

use crate::hash::MAX_WORDS;
use crate::split::{Owner, Share, Split};
use crate::spread::{Fields, Spread};

/// By part of a key, the field that it is.
type Placement = Vec<Option<FieldId>>;

/// Decides for a function.
///
/// # Errors
/// The reasons why it runs on one core.
pub(crate) fn split(function: &Function) -> Result<Split, Vec<String>> {
    let mut reasons = Vec::new();
    let mut elements: Vec<(usize, &Stateful, Vec<Placement>)> = Vec::new();
    for (index, element) in function.elements.iter().enumerate() {
        let Some(stateful) = &element.stateful else { continue };
        let has_contexts = stateful.states.len() > 1 || !stateful.registers.is_empty() || has_timers(element);
        match placements(function, index, stateful) {
            Ok(placements) => elements.push((index, stateful, placements)),
            // An element without a key and without state of its own has only its globals.
            Err(_) if stateful.key.is_none() && !has_contexts => {}
            Err(reason) => reasons.push(format!("`{}`: {reason}", element.name)),
        }
    }
    let mut shares: BTreeMap<String, Share> = BTreeMap::new();
    match globals(function) {
        Ok(updates) => {
            shares.insert(layout::GLOBALS_MAP.to_owned(), Share::Sums(updates));
        }
        Err(of_globals) => reasons.extend(of_globals),
    }
    let spread = match partition(function, &elements) {
        Ok(None) => Spread::Any,
        Ok(Some((fields, is_symmetric))) => {
            Spread::Fields(Fields::new(&function.graph, &fields.into_iter().collect::<Vec<_>>(), is_symmetric))
        }
        Err(reason) if reasons.is_empty() => return Err(vec![reason]),
        Err(_) => Spread::Any,
    };
    if !reasons.is_empty() {
        return Err(reasons);
    }
    let counter =
        |bytes: u64| (0..bytes / 8).map(|word| Update { operator: Operator::Add, offset: Some(8 * word), bytes: 8 });
    let counters = u64::from(CounterTable::of(function).len()) * 8;
    shares.insert(layout::HITS_MAP.to_owned(), Share::Sums(counter(counters).collect()));
    shares.insert(LOST_MAP.to_owned(), Share::Sums(counter(8).collect()));
    shares.insert(EVENTS_MAP.to_owned(), Share::Records);
    shares.insert(layout::PORTS_MAP.to_owned(), Share::Constant);
    for (index, element) in function.elements.iter().enumerate() {
        let Some(stateful) = &element.stateful else { continue };
        let placed = elements.iter().find(|(of, ..)| *of == index);
        let share = match (&spread, placed) {
            (Spread::Fields(fields), Some((_, _, placements))) => {
                Share::Split(owner(function, stateful, &placements[0], fields))
            }
            // Its only context never differs from the default, so none is stored.
            _ => Share::Constant,
        };
        shares.insert(layout::seen_map(index), share.clone().without_limit());
        shares.insert(element.name.clone(), share);
    }
    let by = match &spread {
        Spread::Fields(fields) => {
            let names: Vec<String> =
                fields.fields().map(|field| function.graph.field_name(field).into_owned()).collect();
            let both = if fields.is_symmetric() { ", both directions to one core" } else { "" };
            format!("{}{both}", names.join(", "))
        }
        _ => "addresses and ports; no state ties packets together".to_owned(),
    };
    Ok(Split { spread, shares, by, inserts: BTreeMap::new() })
}

fn has_timers(element: &flowloom_efsm::model::Element) -> bool {
    let starts = |row: &Row| match row.next {
        flowloom_efsm::model::NextState::Stay => false,
        flowloom_efsm::model::NextState::To { idle_ns, hard_ns, .. } => idle_ns.is_some() || hard_ns.is_some(),
    };
    element.rows.iter().any(starts)
}

/// The placements of an element's key.
fn placements(function: &Function, index: usize, stateful: &Stateful) -> Result<Vec<Placement>, String> {
    let Some(key) = &stateful.key else {
        return Err("it has one context for all packets, which need the order of arrival".to_owned());
    };
    let metadata: Vec<u16> = key.parts.iter().filter_map(|part| metadata_of(*part)).collect();
    let of = |write: &dyn Fn(u16) -> Option<FieldId>| -> Placement {
        let field = |part: &KeyPart| match part {
            KeyPart::Field(field) => Some(*field),
            KeyPart::Metadata(number) => write(*number),
        };
        key.parts.iter().map(field).collect()
    };
    let mut all: BTreeSet<Placement> = BTreeSet::new();
    if metadata.is_empty() {
        all.insert(of(&|_| None));
    } else if index == 0 {
        return Err("its key is metadata, which is 0 in the first element".to_owned());
    }
    let is_way = |terminal: &Terminal| matches!(terminal, Terminal::Goto(to) if usize::from(*to) == index);
    for element in &function.elements {
        if metadata.is_empty() {
            break;
        }
        if is_way(&element.otherwise.actions.terminal) {
            return Err(format!(
                "its key is metadata, which `otherwise` of `{}` does not take from the packet",
                element.name
            ));
        }
        for row in element.rows.iter().filter(|row| is_way(&row.actions.terminal)) {
            let written = |number: u16| {
                let write = row.actions.writes.iter().find(|write| write.target == WriteTarget::Metadata(number))?;
                // A narrower target would cut the value.
                let ty = function.metadata[usize::from(number)].ty;
                field_of(&write.value).filter(|field| field.width_bits() <= ty.width_bits)
            };
            let placement = of(&written);
            if let Some(at) = placement.iter().position(Option::is_none) {
                let name = match key.parts[at] {
                    KeyPart::Metadata(number) => function.metadata[usize::from(number)].name.as_str(),
                    KeyPart::Field(_) => "",
                };
                // Other parts may do.
                if placement.iter().all(Option::is_none) {
                    return Err(format!(
                        "its key has `{name}`, which a row of `{}` does not take from a field of the packet",
                        element.name
                    ));
                }
            }
            all.insert(placement);
        }
    }
    if key.biflow {
        // Metadata stays where it is.
        let exchanged = |placement: &Placement| -> Placement {
            let other = |(part, field): (&KeyPart, &Option<FieldId>)| match part {
                KeyPart::Field(own) => Some(own.partner().unwrap_or(*own)),
                KeyPart::Metadata(_) => *field,
            };
            key.parts.iter().zip(placement).map(other).collect()
        };
        let other: Vec<Placement> = all.iter().map(exchanged).collect();
        all.extend(other);
    }
    Ok(all.into_iter().collect())
}

fn metadata_of(part: KeyPart) -> Option<u16> {
    match part {
        KeyPart::Metadata(number) => Some(number),
        KeyPart::Field(_) => None,
    }
}

/// The field that a value is.
fn field_of(value: &NewValue) -> Option<FieldId> {
    match value {
        NewValue::Number { value: Expr::Field(field), width } => {
            let bits = match width {
                Width::W32 => 32,
                Width::W64 => 64,
            };
            (field.width_bits() <= bits).then_some(*field)
        }
        NewValue::Wide(Wide::Field(field)) => Some(*field),
        NewValue::Number { .. } | NewValue::Wide(_) => None,
    }
}

/// The fields by which packets are spread, and whether that is symmetric; `None` if no element has contexts.
fn partition(
    function: &Function,
    elements: &[(usize, &Stateful, Vec<Placement>)],
) -> Result<Option<(BTreeSet<FieldId>, bool)>, String> {
    let Some((last, ..)) = elements.last() else { return Ok(None) };
    let placements = || elements.iter().flat_map(|(_, _, placements)| placements);
    let is_symmetric = elements.iter().any(|(_, _, placements)| placements.len() > 1);
    let mut fields: BTreeSet<FieldId> = elements[0].2[0].iter().flatten().copied().collect();
    fields.retain(|field| placements().all(|placement| placement.contains(&Some(*field))));
    // A later element reads its key after the writes of earlier ones.
    let mut changed: Vec<FieldId> = Vec::new();
    for element in &function.elements[..*last] {
        for row in &element.rows {
            if row.actions.changes_frame() {
                return Err(format!(
                    "`{}` changes the headers of packets before `{}` reads its key",
                    element.name, function.elements[*last].name
                ));
            }
            changed.extend(row.actions.fields_written());
        }
    }
    fields.retain(|field| !changed.iter().any(|written| overlap(*field, *written)));
    if is_symmetric {
        let all = fields.clone();
        fields.retain(|field| field.partner().is_none_or(|partner| all.contains(&partner)));
    }
    let names =
        || elements.iter().map(|(index, ..)| format!("`{}`", function.elements[*index].name)).collect::<Vec<_>>();
    if fields.is_empty() {
        return Err(format!(
            "the keys of {} have no field in common that packets could be spread by",
            names().join(", ")
        ));
    }
    if fields.len() > MAX_WORDS / 2 {
        return Err(format!("the keys have {} fields, at most {} are hashed", fields.len(), MAX_WORDS / 2));
    }
    for (index, _, placements) in elements {
        let place = |field: &FieldId| placements[0].iter().position(|part| part == &Some(*field));
        let is_exchange = |placement: &Placement| {
            let at = |field: &FieldId| place(field).and_then(|at| placement[at]);
            let is_same = fields.iter().all(|field| at(field) == Some(*field));
            is_same || fields.iter().all(|field| at(field) == Some(field.partner().unwrap_or(*field)))
        };
        if !placements.iter().all(is_exchange) {
            return Err(format!(
                "rows take the key of `{}` from different fields, of which none says what its context is",
                function.elements[*index].name
            ));
        }
    }
    Ok(Some((fields, is_symmetric)))
}

/// Whether a write of one field may change the other.
fn overlap(one: FieldId, other: FieldId) -> bool {
    let all = |field: FieldId| {
        let mut all = vec![field];
        let mut at = 0;
        while at < all.len() {
            all.extend(all[at].alternatives());
            at += 1;
        }
        all
    };
    let others = all(other);
    all(one).iter().any(|field| others.contains(field))
}

/// The owner of the contexts of an element.
fn owner(function: &Function, stateful: &Stateful, placement: &Placement, fields: &Fields) -> Owner {
    let spec = layout::key_spec(function, stateful);
    let parts = spec.iter().flat_map(|spec| spec.parts().iter().zip(spec.offsets_bytes()));
    let place = |(field, (part, at)): (&Option<FieldId>, (&flowloom_wire::KeyPart, &usize))| {
        Some((field.filter(|field| fields.fields().any(|own| own == *field))?, *at, part.key_bytes()))
    };
    Owner::Fields(placement.iter().zip(parts).filter_map(place).collect())
}

/// The updates of the globals, if all of them may be summed.
fn globals(function: &Function) -> Result<Vec<Update>, Vec<String>> {
    let (offsets, _) = layout::globals(function);
    let (mut updates, mut reasons) = (Vec::new(), Vec::new());
    for (element, offsets) in function.elements.iter().zip(offsets) {
        let globals = element.stateful.as_ref().map_or(&[][..], |stateful| &stateful.globals);
        for (number, (global, offset)) in (0..).zip(globals.iter().zip(offsets)) {
            let writes = || element.rows.iter().flat_map(|row| &row.updates);
            let own = || writes().filter(|update| update.destination == Destination::Global(number));
            if own().next().is_none() {
                continue;
            }
            let operators: Option<Vec<Operator>> = own().map(|update| operator(&update.value, number)).collect();
            let is_read = element.rows.iter().any(|row| reads(row, number));
            let name = format!("global `{}` of `{}`", global.name, element.name);
            match operators.as_deref() {
                _ if is_read => {
                    reasons.push(format!("{name} decides what happens to packets: they need the order of arrival"))
                }
                Some([first, rest @ ..]) if rest.iter().all(|operator| operator == first) => {
                    let bytes = u64::from(layout::size_bytes(global));
                    updates.push(Update { operator: *first, offset: Some(offset.into()), bytes });
                }
                _ => reasons.push(format!("{name} is not only added to: its value depends on the order of packets")),
            }
        }
    }
    if reasons.is_empty() { Ok(updates) } else { Err(reasons) }
}

/// The operator by which an update changes global `number`, if it is `global op x`, where `x` reads no global.
fn operator(value: &NewValue, number: u16) -> Option<Operator> {
    let NewValue::Number { value: Expr::Binary(op, left, right), .. } = value else { return None };
    let is_own = |expr: &Expr| *expr == Expr::Global(number);
    let is_free = |expr: &Expr| {
        let mut is_free = true;
        expr.walk(&mut |part| is_free &= !is_global(part, None));
        is_free
    };
    let operator = match op {
        BinaryOp::Add | BinaryOp::Sub => Operator::Add,
        BinaryOp::And => Operator::And,
        BinaryOp::Or => Operator::Or,
        BinaryOp::Xor => Operator::Xor,
        BinaryOp::ShiftLeft | BinaryOp::ShiftRight => return None,
    };
    let is_update = is_own(left) && is_free(right) || *op != BinaryOp::Sub && is_own(right) && is_free(left);
    is_update.then_some(operator)
}

/// Whether an expression is a global register: `number`, or any.
fn is_global(expr: &Expr, number: Option<u16>) -> bool {
    let is = |found: u16| number.is_none_or(|number| number == found);
    match expr {
        Expr::Global(found) | Expr::Old(Destination::Global(found)) => is(*found),
        Expr::Word { of, .. } => is_wide_global(*of, number),
        _ => false,
    }
}

fn is_wide_global(wide: Wide, number: Option<u16>) -> bool {
    match wide {
        Wide::Global(found) | Wide::Old(Destination::Global(found)) => number.is_none_or(|number| number == found),
        _ => false,
    }
}

/// Whether a row reads global `number` other than to update it.
fn reads(row: &Row, number: u16) -> bool {
    let in_expr = |expr: &Expr| {
        let mut found = false;
        expr.walk(&mut |part| found |= is_global(part, Some(number)));
        found
    };
    let in_value = |value: &NewValue| match value {
        NewValue::Number { value, .. } => in_expr(value),
        NewValue::Wide(wide) => is_wide_global(*wide, Some(number)),
    };
    let in_condition = |condition: &Condition| {
        condition.exprs().into_iter().any(in_expr)
            || condition.wides().into_iter().any(|wide| is_wide_global(wide, Some(number)))
    };
    let others = row.updates.iter().filter(|update| update.destination != Destination::Global(number));
    row.conditions.iter().any(in_condition)
        || others.map(|update| &update.value).any(in_value)
        || row.actions.exprs().into_iter().any(in_expr)
        || row.actions.wides().into_iter().any(|wide| is_wide_global(wide, Some(number)))
}
