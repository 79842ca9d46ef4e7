// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Coverage of a function by the compared packets: every row in every state, every timeout, every default action.
//!
//! A comparison that exercised nothing is no evidence. [`Reached`] sums the reference's coverage over several traces
//! and lists the hits of each point, so that a gap can be reported as a finding.

use std::collections::BTreeSet;
use std::fmt;

use flowloom_efsm::Coverage;
use flowloom_efsm::model::{Condition, Element, Function, NextState, Policy, Row};
use flowloom_wire::{FieldId, Header};

use crate::entry::Entries;

/// A coverage point of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// The element's name.
    pub element: String,
    /// Kind of the point.
    pub what: PointKind,
    /// Name of the state, where the point depends on one.
    pub state: Option<String>,
    /// Line in the source, from 1.
    pub line: u32,
    /// Text of that line; empty where there is no line.
    pub text: String,
    /// Number of packets that reached it.
    pub hits: u64,
}

/// Kinds of coverage points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointKind {
    /// The row with this index, in one state.
    Row(usize),
    /// The idle timeout of a state.
    IdleTimeout,
    /// The hard timeout of a state.
    HardTimeout,
    /// The default action, because no row matches.
    NoMatch,
    /// The default action, because a key field is absent.
    NoKey,
    /// A context was evicted for another one.
    Eviction,
    /// A context was rejected by a full table; listed only where a packet hit it, since most tables never fill.
    Rejection,
}

impl fmt::Display for PointKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PointKind::Row(i) => f.pad(&format!("row {}", i + 1)),
            PointKind::IdleTimeout => f.pad("idle timeout"),
            PointKind::HardTimeout => f.pad("hard timeout"),
            PointKind::NoMatch => f.pad("no match"),
            PointKind::NoKey => f.pad("no key"),
            PointKind::Eviction => f.pad("eviction"),
            PointKind::Rejection => f.pad("rejection"),
        }
    }
}

/// Coverage summed over runs.
#[derive(Debug, Clone)]
pub struct Reached<'f> {
    function: &'f Function,
    total: Coverage,
}

impl<'f> Reached<'f> {
    /// Coverage without hits.
    pub fn new(function: &'f Function) -> Reached<'f> {
        Reached { function, total: Coverage::empty(function) }
    }

    /// Adds the coverage of one run.
    pub fn add(&mut self, run: &Coverage) {
        for (total, run) in self.total.elements.iter_mut().zip(&run.elements) {
            for (total, run) in total.rows.iter_mut().zip(&run.rows) {
                for (&state, &hits) in run {
                    *total.entry(state).or_default() += hits;
                }
            }
            for (total, run) in
                [(&mut total.idle_expired, &run.idle_expired), (&mut total.hard_expired, &run.hard_expired)]
            {
                for (&state, &hits) in run {
                    *total.entry(state).or_default() += hits;
                }
            }
            total.no_match += run.no_match;
            total.no_key += run.no_key;
            total.created += run.created;
            total.removed += run.removed;
            total.rejected += run.rejected;
            total.evicted += run.evicted;
            total.flows_looked_up += run.flows_looked_up;
        }
    }

    /// Sum of all runs; flows looked up are summed too, not united.
    pub fn total(&self) -> &Coverage {
        &self.total
    }

    /// All coverage points in source order, with their hits. A row is left out in a state in which an earlier row
    /// shadows it, as long as it is reachable in another state.
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        let entries = Entries::of(self.function);
        for (index, (element, reached)) in self.function.elements.iter().zip(&self.total.elements).enumerate() {
            let states = element.stateful.as_ref().map(|s| s.states.as_slice());
            let state_name = |state: u16| states.and_then(|names| names.get(usize::from(state))).cloned();
            let mut push = |what, state, offset, hits| {
                let (line, _, text) = self.function.source.locate(offset);
                let text = text.trim().to_owned();
                points.push(Point { element: element.name.clone(), what, state, line, text, hits });
            };
            for (i, (row, hits)) in element.rows.iter().zip(&reached.rows).enumerate() {
                let shadowed = |state: &u16| is_shadowed(&entries, index, element, i, *state);
                // A row that is shadowed in every state is a mistake: it stays, with 0 hits.
                let is_dead = hits.keys().all(shadowed);
                for (&state, &hits) in hits.iter().filter(|&(state, _)| is_dead || !shadowed(state)) {
                    push(PointKind::Row(i), state_name(state), row.span.start, hits);
                }
            }
            for state in states_with(element, |idle_ns, _| idle_ns.is_some()) {
                let hits = reached.idle_expired.get(&state).copied().unwrap_or(0);
                push(PointKind::IdleTimeout, state_name(state), element.span.start, hits);
            }
            for state in states_with(element, |_, hard_ns| hard_ns.is_some()) {
                let hits = reached.hard_expired.get(&state).copied().unwrap_or(0);
                push(PointKind::HardTimeout, state_name(state), element.span.start, hits);
            }
            if can_miss(&entries, index, element) {
                push(PointKind::NoMatch, None, element.otherwise.span.start, reached.no_match);
            }
            if entries.can_lack_key(index, element) {
                push(PointKind::NoKey, None, element.otherwise.span.start, reached.no_key);
            }
            if element.stateful.as_ref().is_some_and(|s| s.policy != Policy::Reject) {
                push(PointKind::Eviction, None, element.span.start, reached.evicted);
            }
            if reached.rejected > 0 {
                push(PointKind::Rejection, None, element.span.start, reached.rejected);
            }
        }
        points
    }

    /// Points with fewer than `min` hits.
    pub fn gaps(&self, min: u64) -> Vec<Point> {
        self.points().into_iter().filter(|point| point.hits < min).collect()
    }

    /// Renders the points as a table.
    pub fn render(&self) -> String {
        let points = self.points();
        let width = |header: &str, texts: &mut dyn Iterator<Item = usize>| texts.fold(header.len(), usize::max);
        let element = width("element", &mut points.iter().map(|p| p.element.len()));
        let state = width("state", &mut points.iter().map(|p| p.state.as_ref().map_or(0, String::len)));
        let mut text = format!("{:element$}  {:12}  {:state$}  {:>10}  source\n", "element", "what", "state", "hits");
        for p in &points {
            let place = if p.text.is_empty() { String::new() } else { format!("{}: {}", p.line, p.text) };
            let line = format!(
                "{:element$}  {:12}  {:state$}  {:>10}  {place}",
                p.element,
                p.what,
                p.state.as_deref().unwrap_or("-"),
                p.hits
            );
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// States that a row or a timeout enters with such a timer.
fn states_with(element: &Element, timer: fn(Option<u64>, Option<u64>) -> bool) -> BTreeSet<u16> {
    let rows = element.rows.iter().filter_map(|row| match row.next {
        NextState::To { state, idle_ns, hard_ns } => Some((state, idle_ns, hard_ns)),
        NextState::Stay => None,
    });
    let successors = element.stateful.iter().flat_map(|s| s.successors.iter().flatten());
    rows.chain(successors.map(|next| (next.state, next.idle_ns, next.hard_ns)))
        .filter(|&(_, idle_ns, hard_ns)| timer(idle_ns, hard_ns))
        .map(|(state, ..)| state)
        .collect()
}

/// True if an earlier row shadows this row in this state: its requirements are a subset of this row's.
fn is_shadowed(entries: &Entries, index: usize, element: &Element, row: usize, state: u16) -> bool {
    let (before, row) = (&element.rows[..row], &element.rows[row]);
    // A field is present if one of its headers is.
    let present_fields: Vec<Vec<Header>> = row.fields().into_iter().map(|field| field.headers()).collect();
    let is_present = |field: FieldId| {
        let headers = field.headers();
        headers.is_empty()
            || present_fields.iter().any(|any_of| !any_of.is_empty() && any_of.iter().all(|h| headers.contains(h)))
    };
    let mut row_fields = before.iter().filter(|before| before.states.is_empty() || before.states.contains(&state));
    row_fields.any(|before| {
        before.conditions.iter().all(|condition| row.conditions.contains(condition))
            && before.fields().into_iter().all(|field| is_present(field) || entries.always_has(index, element, field))
    })
}

/// True if a packet with a key can match no row: not where in every state some row always matches, or two rows differ
/// in one comparison only, which is negated in one of them.
fn can_miss(entries: &Entries, index: usize, element: &Element) -> bool {
    let reads_only_present_fields =
        |row: &&Row| row.fields().into_iter().all(|field| entries.always_has(index, element, field));
    let states = element.stateful.as_ref().map_or(1, |s| s.states.len() as u16);
    (0..states).any(|state| {
        let row_fields = element.rows.iter().filter(|row| row.states.is_empty() || row.states.contains(&state));
        let rows: Vec<&Row> = row_fields.filter(reads_only_present_fields).collect();
        let single: Vec<&Condition> =
            rows.iter().filter_map(|row| if let [one] = &row.conditions[..] { Some(one) } else { None }).collect();
        let always = rows.iter().any(|row| row.conditions.is_empty());
        !always && !single.iter().any(|one| single.iter().any(|other| are_opposite(one, other)))
    })
}

/// True if exactly one of two comparisons holds.
fn are_opposite(one: &Condition, other: &Condition) -> bool {
    let (
        Condition::Compare { left, relation, right, width, signed },
        Condition::Compare { left: l, relation: other, right: r, width: w, signed: s },
    ) = (one, other)
    else {
        return false;
    };
    (left, right, width, signed) == (l, r, w, s) && *other == relation.inverse()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flowloom_efsm::compile;

    /// Reachable pairs of row number (from 1) and state.
    fn rows(rows: &str) -> Vec<(usize, String)> {
        let text =
            format!("function f; stateful e {{ key ip.src; states a, b; reg n: u32; {rows} otherwise {{ drop; }} }}");
        let (function, _) = compile("test.efsm", &text, &[]).unwrap();
        let points = Reached::new(&function).points().into_iter();
        let row = |point: Point| if let PointKind::Row(i) = point.what { Some((i + 1, point.state?)) } else { None };
        points.filter_map(row).collect()
    }

    #[test]
    fn a_row_after_one_that_matches_all_its_packets_is_unreachable() {
        let at = |i, state: &str| (i, state.to_owned());
        let last = "on any when tcp.is_syn && ip.ttl > 1 { n += 2; pass; }";
        let after = |first: &str| rows(&format!("{first} {last}"));
        assert_eq!(after("on a { n += 1; pass; }"), [at(1, "a"), at(2, "b")]);
        assert_eq!(after("on a when ip.ttl > 1 { n += 1; pass; }"), [at(1, "a"), at(2, "b")]);
        // The earlier row may require more: in a condition, or in the fields it reads.
        assert_eq!(after("on a when ip.ttl > 2 { n += 1; pass; }"), [at(1, "a"), at(2, "a"), at(2, "b")]);
        assert_eq!(after("on a { n += 1; tcp.window = 5; pass; }"), [at(1, "a"), at(2, "b")]);
        assert_eq!(after("on a { n += 1; udp.dport = 5; pass; }"), [at(1, "a"), at(2, "a"), at(2, "b")]);
        // A row that is shadowed in every state is a mistake, and a gap.
        assert_eq!(after("on any { n += 1; pass; }"), [at(1, "a"), at(1, "b"), at(2, "a"), at(2, "b")]);
    }
}
