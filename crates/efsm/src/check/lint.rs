// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Warnings about a whole function: unreachable states, elements and rows.

use std::collections::{BTreeSet, HashMap};

use flowloom_wire::field::FieldId;
use flowloom_wire::graph::{ETHERNET, Graph};

use crate::diagnostic::{Code, Sink, list_names};
use crate::model::{Condition, Element, KeyPart, NextState, Row, Terminal, Variable, WriteTarget};

use super::{lifetime, overlap};

/// Result for a row of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Matches,
    /// No packet has all fields of the row.
    Impossible,
    /// This earlier row matches every packet that the row matches.
    Shadowed(usize),
}

/// Header sets of packets, restricted to the headers that the rows of an element depend on.
struct Headers {
    /// For each row, masks of header bits; a packet needs a bit of each mask.
    needs: Vec<Vec<u32>>,
    packets: BTreeSet<u32>,
}

impl Headers {
    fn of(element: &Element, all: &BTreeSet<u32>) -> Headers {
        let key = key_fields(element);
        let needs: Vec<Vec<u32>> = element
            .rows
            .iter()
            .map(|row| {
                row.fields().into_iter().chain(key.iter().copied()).map(presence_mask).filter(|&any| any != 0).collect()
            })
            .collect();
        let mentioned = needs.iter().flatten().fold(0, |all, any| all | any);
        Headers { packets: all.iter().map(|headers| headers & mentioned).collect(), needs }
    }

    /// True if some packet has all fields of a row.
    fn is_possible(&self, row: usize) -> bool {
        self.packets.iter().any(|&headers| has_all(headers, &self.needs[row]))
    }
}

fn key_fields(element: &Element) -> Vec<FieldId> {
    let key = element.stateful.as_ref().and_then(|stateful| stateful.key.as_ref());
    key.map(|key| key.fields().collect()).unwrap_or_default()
}

/// Removes unmatched alternatives that result only from distributing `&&` over `||`: those whose fields no packet has
/// together, and those subsumed by an earlier alternative of the row. Keeps at least one alternative of each row.
pub(super) fn prune(elements: &mut [Element], expanded: &BTreeSet<usize>, graph: &Graph) {
    if expanded.is_empty() {
        return;
    }
    let all = header_sets(graph);
    for element in elements {
        let headers = Headers::of(element, &all);
        let mut kept: Vec<usize> = Vec::new();
        let mut first = 0;
        for of in element.rows.chunk_by(|a, b| a.span == b.span) {
            let alternatives = first..first + of.len();
            first += of.len();
            let possible: Vec<usize> = alternatives.clone().filter(|i| headers.is_possible(*i)).collect();
            if of.len() == 1 || possible.is_empty() || !expanded.contains(&of[0].span.start) {
                kept.extend(alternatives);
                continue;
            }
            let conditions = |i: usize| &element.rows[i].conditions;
            for (place, &i) in possible.iter().enumerate() {
                let includes = |earlier: &usize| conditions(*earlier).iter().all(|c| conditions(i).contains(c));
                if !possible[..place].iter().any(includes) {
                    kept.push(i);
                }
            }
        }
        let mut kept = kept.into_iter().peekable();
        let mut i = 0;
        element.rows.retain(|_| {
            i += 1;
            kept.next_if_eq(&(i - 1)).is_some()
        });
    }
}

pub(super) fn warn(elements: &[Element], metadata: &[Variable], graph: &Graph, sink: &mut Sink) {
    let all = header_sets(graph);
    warn_unreachable_elements(elements, sink);
    for (i, element) in elements.iter().enumerate() {
        warn_unreachable_states(element, sink);
        warn_unused_successors(element, sink);
        warn_constant_key(elements, i, metadata, sink);
        let headers = Headers::of(element, &all);
        lifetime::warn(element, sink);
        let mut earlier = SubsumptionIndex::of(&element.rows);
        let verdicts: Vec<Verdict> = (0..element.rows.len())
            .map(|i| {
                let before = earlier.candidates(&element.rows[i]);
                earlier.add(i, &element.rows[i]);
                match shadowed_by(element, i, &before, &headers) {
                    _ if !headers.is_possible(i) => Verdict::Impossible,
                    Some(by) => Verdict::Shadowed(by),
                    None => Verdict::Matches,
                }
            })
            .collect();
        warn_rows(element, &verdicts, graph, sink);
        let known = (0..verdicts.len()).filter(|i| verdicts[*i] != Verdict::Matches).collect();
        overlap::warn(element, &known, graph, sink);
    }
}

/// Warns about rows that never match: one warning if no alternative of the row matches, else one for each such
/// alternative.
fn warn_rows(element: &Element, verdicts: &[Verdict], graph: &Graph, sink: &mut Sink) {
    let mut first = 0;
    for of in element.rows.chunk_by(|a, b| a.span == b.span) {
        let alternatives = first..first + of.len();
        first += of.len();
        let is_outside = |by: usize| element.rows[by].span != of[0].span;
        let is_whole = alternatives.clone().all(|i| match verdicts[i] {
            Verdict::Matches => false,
            Verdict::Impossible => true,
            Verdict::Shadowed(by) => is_outside(by),
        });
        let subject = if is_whole { "the row" } else { overlap::subject(&element.rows, of[0].span) };
        for i in alternatives.take(if is_whole { 1 } else { usize::MAX }) {
            let row = &element.rows[i];
            match verdicts[i] {
                Verdict::Matches => {}
                Verdict::Impossible => warn_impossible(row, subject, &key_fields(element), graph, sink),
                Verdict::Shadowed(by) => {
                    let text = format!("{subject} is never reached");
                    let warning = sink.warning(Code::ShadowedRow, row.span, text, "never reached");
                    if is_outside(by) {
                        warning
                            .secondary_label(element.rows[by].span, "this earlier row matches the same packets")
                            .help("move the row up, or change one of the two");
                    } else {
                        warning.help("an earlier alternative of the row matches the same packets; remove it");
                    }
                }
            }
        }
    }
}

/// Header sets of all possible packets, as bit masks, from the parse graph.
fn header_sets(graph: &Graph) -> BTreeSet<u32> {
    let mut sets = BTreeSet::from([0]);
    let mut open = vec![(ETHERNET, 0_u32)];
    let mut seen = BTreeSet::new();
    while let Some((index, before)) = open.pop() {
        let node = &graph.nodes()[index];
        for headers in node.valid_after(before) {
            if seen.insert((index, headers)) {
                sets.insert(headers);
                open.extend(node.next.successors().map(|to| (to, headers)));
            }
        }
    }
    sets
}

/// Mask of the headers of which one makes the field present; 0 if it is always present.
fn presence_mask(field: FieldId) -> u32 {
    field.headers().into_iter().fold(0, |bits, header| bits | header.bit())
}

/// True if a packet with these headers has a bit of each mask.
fn has_all(headers: u32, needs: &[u32]) -> bool {
    needs.iter().all(|any| headers & any != 0)
}

fn warn_impossible(row: &Row, subject: &str, key: &[FieldId], graph: &Graph, sink: &mut Sink) {
    let fields: Vec<_> = row.fields().into_iter().map(|f| graph.field_name(f)).collect();
    let mut help = format!("{subject} uses {}", list_names(fields.iter().map(|name| &**name), 8));
    if !key.is_empty() {
        let key: Vec<_> = key.iter().map(|f| graph.field_name(*f)).collect();
        help.push_str(&format!(" and the key {}", list_names(key.iter().map(|name| &**name), 8)));
    }
    help.push_str(", and a row matches only packets that have all of them");
    let subject = if subject == "the row" { "this row" } else { subject };
    let text = format!("no packet has all the fields of {subject}");
    sink.warning(Code::Constant, row.span, text, "never matches").help(help);
}

/// Index of rows by one of their conditions. A row can subsume another only if it has no condition that the other
/// lacks.
struct SubsumptionIndex<'a> {
    /// Number of rows with each condition.
    counts: HashMap<&'a Condition, usize>,
    /// Rows, by their rarest condition.
    rows: HashMap<&'a Condition, Vec<usize>>,
    without_conditions: Vec<usize>,
}

impl<'a> SubsumptionIndex<'a> {
    fn of(rows: &'a [Row]) -> SubsumptionIndex<'a> {
        let mut counts = HashMap::new();
        rows.iter().flat_map(|row| &row.conditions).for_each(|c| *counts.entry(c).or_default() += 1);
        SubsumptionIndex { counts, rows: HashMap::new(), without_conditions: Vec::new() }
    }

    fn add(&mut self, i: usize, row: &'a Row) {
        match row.conditions.iter().min_by_key(|c| self.counts[c]) {
            Some(rarest) => self.rows.entry(rarest).or_default().push(i),
            None => self.without_conditions.push(i),
        }
    }

    /// Earlier rows that may subsume `row`, in order.
    fn candidates(&self, row: &Row) -> Vec<usize> {
        let with = row.conditions.iter().filter_map(|c| self.rows.get(c)).flatten();
        let mut rows: Vec<usize> = with.chain(&self.without_conditions).copied().collect();
        rows.sort_unstable();
        rows
    }
}

/// The last of the rows in `before` that together subsume row `i`; a different row may do so in each state.
fn shadowed_by(element: &Element, i: usize, before: &[usize], Headers { needs, packets }: &Headers) -> Option<usize> {
    let row = &element.rows[i];
    let covers = |j: &usize, state: Option<u16>| {
        let earlier = &element.rows[*j];
        state.is_none_or(|s| earlier.states.contains(&s))
            && earlier.conditions.iter().all(|c| row.conditions.contains(c))
            && packets.iter().all(|&headers| !has_all(headers, &needs[i]) || has_all(headers, &needs[*j]))
    };
    if row.states.is_empty() {
        return before.iter().copied().find(|j| covers(j, None));
    }
    let mut last = 0;
    for &state in &row.states {
        last = last.max(before.iter().copied().find(|j| covers(j, Some(state)))?);
    }
    Some(last)
}

fn warn_unreachable_states(element: &Element, sink: &mut Sink) {
    let Some(stateful) = &element.stateful else { return };
    let mut reached: BTreeSet<u16> = stateful.preloaded.iter().map(|context| context.state).chain([0]).collect();
    let mut open: Vec<u16> = reached.iter().copied().collect();
    while let Some(state) = open.pop() {
        let successor = stateful.successors[usize::from(state)].map(|successor| successor.state);
        open.extend(successor.filter(|next| reached.insert(*next)));
        for row in element.rows.iter().filter(|row| row.states.contains(&state)) {
            if let NextState::To { state: next, .. } = row.next
                && reached.insert(next)
            {
                open.push(next);
            }
        }
    }
    let unreached: Vec<&str> = (0..stateful.states.len() as u16)
        .filter(|state| !reached.contains(state))
        .map(|state| stateful.states[usize::from(state)].as_str())
        .collect();
    if !unreached.is_empty() {
        let names = list_names(unreached.iter().copied(), 12);
        sink.warning(
            Code::UnreachableState,
            element.span,
            format!("no row leads to {names}"),
            format!("starts in `{}`", stateful.states[0]),
        )
        .help("add a row with `-> STATE`, or remove the state; only a snapshot may still contain it");
    }
}

/// Warns of a state that has a successor but is never entered with a timer.
fn warn_unused_successors(element: &Element, sink: &mut Sink) {
    let Some(stateful) = &element.stateful else { return };
    for (state, name) in stateful.states.iter().enumerate() {
        let enters = |row: &Row| match row.next {
            NextState::To { state: to, idle_ns, hard_ns } => {
                usize::from(to) == state && (idle_ns.is_some() || hard_ns.is_some())
            }
            NextState::Stay => false,
        };
        if stateful.successors[state].is_some() && !element.rows.iter().any(enters) {
            sink.warning(
                Code::Unused,
                element.span,
                format!("the successor of state `{name}` has no effect"),
                format!("no row enters `{name}` with a timer"),
            )
            .help(format!("add a timer, as in `-> {name} (idle 10s)`, or remove the `expire`"));
        }
    }
}

/// Warns of metadata in a key that is 0 for every packet.
fn warn_constant_key(elements: &[Element], index: usize, metadata: &[Variable], sink: &mut Sink) {
    let Some(key) = elements[index].stateful.as_ref().and_then(|s| s.key.as_ref()) else { return };
    let before = elements[..index].iter();
    let blocks = before.flat_map(|e| e.rows.iter().map(|r| &r.actions).chain([&e.otherwise.actions]));
    let written: BTreeSet<WriteTarget> = blocks.flat_map(|a| a.writes.iter().map(|w| w.target)).collect();
    for part in &key.parts {
        if let KeyPart::Metadata(i) = *part
            && !written.contains(&WriteTarget::Metadata(i))
        {
            let name = &metadata[usize::from(i)].name;
            sink.warning(
                Code::Constant,
                elements[index].span,
                format!("metadata `{name}` in the key is 0 for every packet"),
                format!("no element before this writes `{name}`"),
            )
            .help("write it in an element before, or leave it out of the key");
        }
    }
}

fn warn_unreachable_elements(elements: &[Element], sink: &mut Sink) {
    let mut reached = BTreeSet::from([0_usize]);
    for (i, element) in elements.iter().enumerate() {
        if !reached.contains(&i) {
            sink.warning(
                Code::UnreachableElement,
                element.span,
                format!("element `{}` is unreachable", element.name),
                "never reached",
            )
            .help(format!("end a row of an element before it with `goto {};`", element.name));
            continue;
        }
        let blocks = element.rows.iter().map(|r| &r.actions).chain([&element.otherwise.actions]);
        for actions in blocks {
            if let Terminal::Goto(to) = actions.terminal {
                reached.insert(usize::from(to));
            }
        }
    }
}
