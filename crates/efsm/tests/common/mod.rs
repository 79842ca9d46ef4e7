// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Helpers shared by the tests of the front end.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part")]

use std::collections::BTreeSet;
use std::path::Path;

use flowloom_efsm::model::{
    Condition, Destination, Expr, Function, NewValue, NextState, Policy, Terminal, Wide, Width, WriteTarget,
};
use flowloom_testkit::sources;
use flowloom_wire::field::FieldId;
use miette::{GraphicalReportHandler, GraphicalTheme};

/// Sources in `functions/` and `corpus/`, by file name.
pub(crate) fn shipped() -> Vec<(String, String)> {
    let files: Vec<_> = ["../../corpus", "../../functions"].into_iter().flat_map(sources).collect();
    assert!(files.len() >= 5, "{files:?}");
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files.into_iter().map(|(path, text)| (name(&path), text)).collect()
}

/// Parameters written `NAME=VALUE`.
pub(crate) fn given(params: &[&str]) -> Vec<(String, String)> {
    let split = |param: &&str| param.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    params.iter().map(|param| split(param).unwrap()).collect()
}

pub(crate) fn field(name: &str) -> FieldId {
    FieldId::by_name(name).unwrap()
}

/// Renders as for a terminal without colours.
pub(crate) fn render(diagnostic: &dyn miette::Diagnostic) -> String {
    let mut text = String::new();
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor());
    handler.with_width(110).with_links(false).render_report(&mut text, diagnostic).unwrap();
    // Strip trailing blanks, which the renderer emits.
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn are_distinct<T: Ord>(items: impl Iterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    items.into_iter().all(|item| seen.insert(item))
}

fn fits(value: u128, width_bits: u8) -> bool {
    width_bits == 128 || value >> width_bits == 0
}

/// Checks the invariants of the model: every index is in range, every constant fits, nothing is written twice.
///
/// # Panics
/// An invariant is violated.
pub(crate) fn check_model(function: &Function) {
    let text = &function.source.text;
    for (index, element) in function.elements.iter().enumerate() {
        let s = element.stateful.as_ref();
        let states = s.map_or(0, |s| s.states.len());
        let (registers, globals) = (s.map_or(0, |s| s.registers.len()), s.map_or(0, |s| s.globals.len()));
        let place = format!("element `{}` of {text}", element.name);
        assert!(element.name.len() <= 15 && !element.name.is_empty(), "{place}");
        if let Some(s) = s {
            assert!(s.size > 0 && s.sweep_ns > 0 && !s.states.is_empty(), "{place}");
            let spec = flowloom_efsm::layout::key_spec(function, s);
            assert_eq!(spec.is_none(), s.key.is_none(), "{place}");
            assert_eq!(s.successors.len(), states, "{place}");
            for next in s.successors.iter().flatten() {
                assert!(s.successors[usize::from(next.state)].is_none() && next.state != 0, "{place}");
            }
            if let Policy::EvictLowest(i) | Policy::EvictHighest(i) = s.policy {
                assert!(!s.registers[usize::from(i)].ty.is_wide(), "{place}");
            }
            assert!(are_distinct(s.preloaded.iter().map(|context| context.key.as_slice())), "{place}");
            assert!(s.preloaded.len() <= s.size as usize, "{place}");
            for context in &s.preloaded {
                assert_eq!(Some(context.key.len()), spec.as_ref().map(|spec| spec.key_bytes()), "{place}");
                assert!(usize::from(context.state) < states && context.registers.len() == registers, "{place}");
                let mut values = context.registers.iter().zip(&s.registers);
                assert!(values.all(|(value, r)| fits(*value, r.ty.width_bits)), "{place}");
            }
            for v in s.registers.iter().chain(&s.globals) {
                assert!(fits(v.initial, v.ty.width_bits), "{place}: `{}`", v.name);
            }
        }
        let bits_of = |wide: Wide| match wide {
            Wide::Constant(_) => 128,
            Wide::Field(field) => field.width_bits(),
            Wide::Register(i) | Wide::Old(Destination::Register(i)) => {
                s.unwrap().registers[usize::from(i)].ty.width_bits
            }
            Wide::Global(i) | Wide::Old(Destination::Global(i)) => s.unwrap().globals[usize::from(i)].ty.width_bits,
            Wide::Metadata(i) => function.metadata[usize::from(i)].ty.width_bits,
        };
        let check = |expr: &Expr, width: Width| {
            expr.walk(&mut |e| match e {
                Expr::Register(i) => {
                    assert!(usize::from(*i) < registers, "{place}");
                    let bits = s.unwrap().registers[usize::from(*i)].ty.width_bits;
                    assert!(u32::from(bits) <= width.bits(), "{place}: {expr:?} in {width:?}");
                }
                Expr::Global(i) => assert!(usize::from(*i) < globals, "{place}"),
                Expr::Metadata(i) => assert!(usize::from(*i) < function.metadata.len(), "{place}"),
                Expr::Field(f) => {
                    assert!(u32::from(f.width_bits()) <= width.bits(), "{place}: {expr:?} in {width:?}")
                }
                Expr::Now { unit_ns } => assert!(*unit_ns > 0, "{place}"),
                Expr::State => assert!(s.is_some(), "{place}"),
                Expr::Constant(c) if width == Width::W32 => {
                    assert!(*c >> 32 == 0 || (*c as i64) >= i64::from(i32::MIN) && (*c as i64) < 0, "{place}: {c:#x}");
                }
                Expr::RotateRight { rotate_bits, .. } => assert!(u32::from(*rotate_bits) <= width.bits(), "{place}"),
                _ => {}
            });
        };
        // Checks that a value has the width of its target.
        let check_value = |value: &NewValue, width_bits: u8| match value {
            NewValue::Number { value: number, width } => {
                assert!(width_bits <= 64, "{place}: {value:?}");
                check(number, *width);
            }
            NewValue::Wide(wide) => assert_eq!((bits_of(*wide), width_bits), (128, 128), "{place}: {value:?}"),
        };
        for row in &element.rows {
            assert!(row.states.is_sorted() && row.states.iter().all(|&i| usize::from(i) < states), "{place}");
            assert_eq!(row.states.is_empty(), s.is_none(), "{place}");
            for condition in &row.conditions {
                match condition {
                    Condition::Compare { left, right, width, .. } => {
                        check(left, *width);
                        check(right, *width);
                    }
                    Condition::Serial { left, right, serial_bits, .. } => {
                        assert!(matches!(serial_bits, 8 | 16 | 32 | 64), "{place}");
                        let width = if *serial_bits == 64 { Width::W64 } else { Width::W32 };
                        check(left, width);
                        check(right, width);
                    }
                    Condition::Masked { operand, mask, value, .. } => {
                        assert!(fits(*mask, bits_of(*operand)), "{place}: {condition:?}");
                        assert_eq!(value & !mask, 0, "{place}: {condition:?}");
                    }
                    Condition::Range { field, low, high, .. } => {
                        let bits = u32::from(field.width_bits());
                        assert!(low <= high && (bits == 64 || high >> bits == 0), "{place}: {condition:?}");
                    }
                    Condition::Same { left, right, .. } => {
                        assert_eq!((bits_of(*left), bits_of(*right)), (128, 128), "{place}");
                    }
                    Condition::OneOf { operand, values, width, .. } => {
                        check(operand, *width);
                        assert!(values.is_sorted(), "{place}");
                        assert!(*width == Width::W64 || values.iter().all(|v| v >> 32 == 0), "{place}");
                    }
                    Condition::Within { operand, values, .. } => {
                        assert!(!values.is_empty() && values.iter().all(|(low, high)| low <= high), "{place}");
                        assert!(values.is_sorted_by(|a, b| a.1 < b.0 && b.0 - a.1 > 1), "{place}");
                        assert!(fits(values[values.len() - 1].1, bits_of(*operand)), "{place}");
                    }
                    Condition::Present { field, .. } => assert!(!field.headers().is_empty(), "{place}"),
                    Condition::Full { .. } => assert!(element.stateful.is_some(), "{place}"),
                }
            }
            if let NextState::To { state, idle_ns, hard_ns } = row.next {
                assert!(usize::from(state) < states, "{place}");
                assert!([idle_ns, hard_ns].into_iter().flatten().all(|t| t > 0 && t < 1 << 62), "{place}");
            }
            assert!(are_distinct(row.updates.iter().map(|update| update.destination)), "{place}");
            for update in &row.updates {
                let target = match update.destination {
                    Destination::Register(i) => Wide::Register(i),
                    Destination::Global(i) => Wide::Global(i),
                };
                check_value(&update.value, bits_of(target));
            }
        }
        let actions = element.rows.iter().map(|r| &r.actions).chain([&element.otherwise.actions]);
        for actions in actions {
            assert!(are_distinct(actions.writes.iter().map(|write| write.target)), "{place}");
            for write in &actions.writes {
                let target = match write.target {
                    WriteTarget::Field(field) => {
                        assert!(field.is_writable(), "{place}");
                        Wide::Field(field)
                    }
                    WriteTarget::Metadata(i) => Wide::Metadata(i),
                };
                check_value(&write.value, bits_of(target));
            }
            if let Terminal::Goto(to) = actions.terminal {
                assert!(usize::from(to) > index && usize::from(to) < function.elements.len(), "{place}");
            }
        }
        for write in &element.otherwise.actions.writes {
            assert!(matches!(write.target, WriteTarget::Metadata(_)), "{place}");
            let value = &write.value;
            assert!(
                matches!(value, NewValue::Number { value: Expr::Constant(_), .. } | NewValue::Wide(Wide::Constant(_))),
                "{place}"
            );
        }
        assert!(element.otherwise.actions.steps.is_empty(), "{place}");
    }
}

/// Debug form of a function without its source text and spans.
pub(crate) fn without_spans(function: &Function) -> String {
    let source = flowloom_efsm::model::Source { name: String::new(), text: String::new() };
    let bare = Function { source: std::sync::Arc::new(source), ..function.clone() };
    let mut text = format!("{bare:?}");
    for word in ["start: ", "end: "] {
        let parts: Vec<&str> = text.split(word).collect();
        let rest = parts[1..].iter().map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
        text = std::iter::once(parts[0]).chain(rest).collect::<Vec<_>>().join(word);
    }
    text
}
