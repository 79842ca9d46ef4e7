// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Source locations for error messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::asm::{FP, Op};
use super::maps::key_bytes;
use flowloom_efsm::events;
use flowloom_efsm::layout::RecordLayout;
use flowloom_efsm::model::{Element, Function, Source, Span, StepKind};
use flowloom_efsm::steps;

/// A source line as messages name it: ``fw.efsm:12 (`on any -> known { pass; }`)``.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// The name of the source.
    pub file: String,
    /// Line number, from 1.
    pub line: u32,
    /// Excerpt of the line.
    pub text: String,
}

impl SourceLine {
    /// The line at which a span begins.
    pub fn of(source: &Source, span: Span) -> SourceLine {
        let (line, column, text) = source.locate(span.start);
        SourceLine { file: source.name.clone(), line, text: excerpt(text, column as usize - 1) }
    }
}

/// Limit on the characters of a source line in a message.
const MAX_SHOWN: usize = 160;

/// A line without surrounding blanks; of a long line, an excerpt around byte `at`.
pub(crate) fn excerpt(line: &str, at: usize) -> String {
    let trimmed = line.trim();
    if trimmed.len() <= MAX_SHOWN {
        return trimmed.to_owned();
    }
    let start = (0..=at.min(line.len())).rev().find(|&i| line.is_char_boundary(i)).unwrap_or(0);
    let (from, before) = if start < MAX_SHOWN / 2 { (0, "") } else { (start, "… ") };
    let shown: String = line[from..].chars().take(MAX_SHOWN).collect();
    let after = if from + shown.len() < line.trim_end().len() { " …" } else { "" };
    format!("{before}{}{after}", shown.trim())
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourceLine { file, line, text } = self;
        write!(f, "{file}:{line} (`{text}`)")
    }
}

/// The element whose key and record take most of the stack, or the step whose emitted packet does.
pub(super) fn of_largest_frame(function: &Function) -> Span {
    let stateful = function.elements.iter().filter_map(|element| {
        let stateful = element.stateful.as_ref()?;
        Some((key_bytes(function, stateful) + RecordLayout::of(element, stateful).len_bytes, element.span))
    });
    let all_steps = function.elements.iter().flat_map(|e| &e.rows).flat_map(|row| &row.actions.steps);
    let emitted = all_steps.filter(|step| matches!(step.kind, StepKind::Emit { .. })).map(|step| {
        let stack = steps::stack(&function.graph, &step.kind).ok().flatten();
        (stack.map_or(0, |stack| stack.template().len() as u32), step.span)
    });
    let reported = events::statements(function).map(|(log, span)| (log.len_bytes(), span));
    largest(stateful.chain(emitted).chain(reported))
}

/// The element with most counters.
pub(super) fn of_most_counters(function: &Function) -> Span {
    let counters = |element: &Element| {
        let states = element.stateful.as_ref().map_or(1, |stateful| stateful.states.len());
        (element.rows.len() + 2) * states
    };
    largest(function.elements.iter().map(|element| (counters(element), element.span)))
}

/// The row with most instructions if it has a large part of them, otherwise the element.
pub(super) fn of_long_program(function: &Function, ops: &[Op]) -> Span {
    let counts = instructions(ops);
    let all: u32 = counts.values().sum();
    let row = of_most_instructions(ops);
    if counts.get(&(row.start, row.end)).is_some_and(|&count| count > all / 4) {
        return row;
    }
    largest(function.elements.iter().map(|element| {
        let spans: BTreeSet<(usize, usize)> =
            element.rows.iter().map(|row| row.span).chain([element.span]).map(|span| (span.start, span.end)).collect();
        (spans.iter().filter_map(|span| counts.get(span)).sum::<u32>(), element.span)
    }))
}

/// The row or element with most instructions.
pub(super) fn of_most_instructions(ops: &[Op]) -> Span {
    largest(instructions(ops).into_iter().map(|((start, end), count)| (count, Span { start, end })))
}

/// Number of instructions per source span, by its start and end.
fn instructions(ops: &[Op]) -> BTreeMap<(usize, usize), u32> {
    let mut counts: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    for (span, op) in with_spans(ops) {
        if !matches!(op, Op::Label(_) | Op::Forget { .. }) {
            *counts.entry((span.start, span.end)).or_default() += 1;
        }
    }
    counts
}

/// The row or element that keeps most values on the stack beyond its first `bytes`.
pub(super) fn of_most_values(ops: &[Op], bytes: u32) -> Span {
    let mut slots: BTreeMap<(usize, usize), BTreeSet<i16>> = BTreeMap::new();
    for (span, op) in with_spans(ops) {
        if let Op::Load { base, offset: at, .. } | Op::Store { base, offset: at, .. } = op
            && *base == FP
            && i64::from(*at) < -i64::from(bytes)
        {
            slots.entry((span.start, span.end)).or_default().insert(*at);
        }
    }
    largest(slots.into_iter().map(|((start, end), slots)| (slots.len(), Span { start, end })))
}

/// Operations with their source spans; operations before the first span are skipped.
fn with_spans(ops: &[Op]) -> impl Iterator<Item = (Span, &Op)> {
    let mut span = None;
    ops.iter().filter_map(move |op| match op {
        Op::Line(s) => {
            span = Some(*s);
            None
        }
        op => Some((span?, op)),
    })
}

/// The first of the largest; the start of the source if there is none.
fn largest<T: Ord>(sized: impl Iterator<Item = (T, Span)>) -> Span {
    sized.reduce(|most, other| if other.0 > most.0 { other } else { most }).map_or_else(Span::default, |(_, span)| span)
}
