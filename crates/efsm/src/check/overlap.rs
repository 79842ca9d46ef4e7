// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Warnings about field values: rows with unsatisfiable conditions, rows subsumed by an earlier row, and rows whose
//! values of one field are subsumed by the union of earlier rows.
//!
//! Limits: rows subsumed only by a union over two or more fields are not found; at most [`MAX_PAIRS`] pairs of rows
//! are compared.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flowloom_wire::field::FieldId;
use flowloom_wire::graph::{Graph, Header};

use super::feasible::find_conflict;
use crate::diagnostic::{Code, Sink};
use crate::intervals::{self, Interval, intersect};
use crate::model::{Condition, Element, Row, Span};

/// Maximum number of earlier rows in a message.
const MAX_SHOWN: usize = 3;

/// Maximum number of pairs of rows tested for subsumption.
const MAX_PAIRS: usize = 1 << 22;

/// Warns about the rows of an element, except those in `known`, which were reported.
pub(super) fn warn(element: &Element, known: &BTreeSet<usize>, graph: &Graph, sink: &mut Sink) {
    let mut numbers = HashMap::new();
    let mut covered = CoveredValues::default();
    let mut pairs = 0;
    let mut earlier: Vec<(usize, MatchSet)> = Vec::new();
    for (i, row) in element.rows.iter().enumerate() {
        let values = values(row);
        let subject = subject(&element.rows, row.span);
        let excluded = values.iter().find(|(_, values)| values.is_empty()).map(|(field, _)| *field);
        if let Some(field) = excluded {
            let name = graph.field_name(field);
            // A single condition that never holds was reported.
            let mut each = row.conditions.iter().filter_map(intervals::of).filter(|(of, _)| *of == field);
            if !known.contains(&i) && each.all(|(_, values)| !values.is_empty()) {
                sink.warning(
                    Code::Constant,
                    row.span,
                    format!("{subject} never matches: its conditions on `{name}` exclude each other"),
                    "never matches",
                )
                .help(format!("no value of `{name}` fulfils all of them; alternatives are joined by `||`"));
            }
            continue;
        }
        if let Some((name, protocol)) = protocol_conflict(row, &values, graph) {
            if !known.contains(&i) {
                sink.warning(
                    Code::Constant,
                    row.span,
                    format!("{subject} never matches: no packet with `{name}` has this `ip.proto`"),
                    "never matches",
                )
                .help(format!("`{name}` is present where `ip.proto` is {protocol}; change one of the two conditions"));
            }
            continue;
        }
        if let Some(what) = find_conflict(row, graph) {
            if !known.contains(&i) {
                sink.warning(
                    Code::Constant,
                    row.span,
                    format!("{subject} never matches: {what} exclude each other"),
                    "never matches",
                )
                .help("no packet has the headers and values that the row requires; alternatives are joined by `||`");
            }
            continue;
        }
        let others: BTreeMap<FieldId, Vec<usize>> = values
            .keys()
            .map(|field| {
                let of_others = row.conditions.iter().filter(|c| intervals::of(c).is_none_or(|(of, _)| of != *field));
                let number = |condition| {
                    let count = numbers.len();
                    *numbers.entry(condition).or_insert(count)
                };
                let others: BTreeSet<usize> = of_others.map(number).collect();
                (*field, others.into_iter().collect())
            })
            .collect();
        if !known.contains(&i) {
            let shadowed = values.iter().find_map(|(field, values)| {
                Some((field, covered.covering_rows(*field, &others[field], &row.states, values)?))
            });
            if let Some((field, rows)) = shadowed {
                let name = graph.field_name(*field);
                let mut draft =
                    sink.warning(Code::ShadowedRow, row.span, format!("{subject} is never reached"), "never reached");
                for earlier in rows.iter().take(MAX_SHOWN) {
                    draft = draft.secondary_label(element.rows[*earlier].span, format!("matches values of `{name}`"));
                }
                draft.help(format!(
                    "earlier rows match all values of `{name}` that the row matches; move it up, or change one of them"
                ));
                continue;
            }
            let matched = MatchSet::of(row, &values);
            pairs += earlier.len();
            let by = earlier.iter().filter(|_| pairs <= MAX_PAIRS).find(|(_, earlier)| earlier.covers(&matched));
            if let Some((by, _)) = by {
                sink.warning(Code::ShadowedRow, row.span, format!("{subject} is never reached"), "never reached")
                    .secondary_label(element.rows[*by].span, "this earlier row matches the same packets")
                    .help("move the row up, or change one of the two");
                continue;
            }
            earlier.push((i, matched));
        }
        // A row whose actions need more fields than its conditions may leave packets to later rows.
        let tested: BTreeSet<FieldId> = row.conditions.iter().flat_map(Condition::fields).collect();
        if row.fields().iter().all(|field| tested.contains(field)) {
            for (field, values) in values {
                covered.add(i, field, &others[&field], &row.states, &values);
            }
        }
    }
}

struct MatchSet {
    states: BTreeSet<u16>,
    /// Fields that it reads; a packet without one of them does not match.
    fields: BTreeSet<FieldId>,
    values: BTreeMap<FieldId, Vec<Interval>>,
    /// Conditions other than comparisons of a field with constants.
    others: Vec<Condition>,
}

impl MatchSet {
    fn of(row: &Row, values: &BTreeMap<FieldId, Vec<Interval>>) -> MatchSet {
        MatchSet {
            states: row.states.iter().copied().collect(),
            fields: row.fields().into_iter().collect(),
            values: values.clone(),
            others: row.conditions.iter().filter(|c| intervals::of(c).is_none()).cloned().collect(),
        }
    }

    /// True if this row matches every packet that the other one matches.
    fn covers(&self, other: &MatchSet) -> bool {
        let includes = |(field, own): (&FieldId, &Vec<Interval>)| {
            other.values.get(field).is_some_and(|values| intersect(own, values) == *values)
        };
        self.values.iter().all(includes)
            && self.others.iter().all(|condition| other.others.contains(condition))
            && self.states.is_superset(&other.states)
            && self.fields.is_subset(&other.fields)
    }
}

/// Subject of a message about a row of the model: an alternative if the source row has several.
pub(super) fn subject(rows: &[Row], span: Span) -> &'static str {
    if rows.iter().filter(|row| row.span == span).take(2).count() > 1 { "an alternative of the row" } else { "the row" }
}

/// Values of each field compared with constants for which all such conditions of the row hold.
fn values(row: &Row) -> BTreeMap<FieldId, Vec<Interval>> {
    let mut values: BTreeMap<FieldId, Vec<Interval>> = BTreeMap::new();
    for (field, intervals) in row.conditions.iter().filter_map(intervals::of) {
        values.entry(field).and_modify(|values| *values = intersect(values, &intervals)).or_insert(intervals);
    }
    values
}

/// A field of the row and the protocols that it requires, if the row's values of `ip.proto` exclude all of them.
fn protocol_conflict(row: &Row, values: &BTreeMap<FieldId, Vec<Interval>>, graph: &Graph) -> Option<(String, String)> {
    let protocols = values.get(&FieldId::by_name("ip.proto")?)?;
    row.fields().into_iter().find_map(|field| {
        let own = protocols_of(field)?;
        let is_excluded = own.iter().all(|own| !protocols.iter().any(|(low, high)| (low..=high).contains(&own)));
        let shown: Vec<String> = own.iter().map(u128::to_string).collect();
        is_excluded.then(|| (graph.field_name(field).to_string(), shown.join(" or ")))
    })
}

/// Protocol numbers of the packets that have a field. `None` if unknown.
pub(super) fn protocols_of(field: FieldId) -> Option<Vec<u128>> {
    let headers = field.headers();
    let own: Vec<u128> = headers.iter().filter_map(|header| protocol(*header)).collect();
    (!own.is_empty() && own.len() == headers.len()).then_some(own)
}

/// Protocol number of an outer transport header.
pub(super) fn protocol(header: Header) -> Option<u128> {
    Some(match header {
        Header::Tcp => 6,
        Header::Udp => 17,
        Header::Icmp => 1,
        Header::Icmp6 => 58,
        _ => return None,
    })
}

/// Field, other conditions and states of a row.
type Key = (FieldId, Vec<usize>, Vec<u16>);

/// Values of fields that earlier rows match.
#[derive(Default)]
struct CoveredValues {
    /// Intervals: first value to last value.
    values: HashMap<Key, BTreeMap<u128, u128>>,
    rows: HashMap<Key, Vec<(usize, Vec<Interval>)>>,
}

impl CoveredValues {
    fn add(&mut self, row: usize, field: FieldId, others: &[usize], states: &[u16], values: &[Interval]) {
        let key = (field, others.to_vec(), states.to_vec());
        let covered = self.values.entry(key.clone()).or_default();
        for &(mut low, mut high) in values {
            // Merge with overlapping and adjacent intervals.
            while let Some((&first, &last)) = covered.range(..=high.saturating_add(1)).next_back()
                && last.saturating_add(1) >= low
            {
                covered.remove(&first);
                (low, high) = (low.min(first), high.max(last));
            }
            covered.insert(low, high);
        }
        self.rows.entry(key).or_default().push((row, values.to_vec()));
    }

    /// Rows that together match all of these values under the conditions `others`. `None` if there are none.
    fn covering_rows(
        &self,
        field: FieldId,
        others: &[usize],
        states: &[u16],
        values: &[Interval],
    ) -> Option<Vec<usize>> {
        let keys = [(field, others.to_vec(), states.to_vec()), (field, Vec::new(), states.to_vec())];
        keys.iter().find_map(|key| {
            let covered = self.values.get(key)?;
            let is_covered =
                |(low, high): &Interval| covered.range(..=*low).next_back().is_some_and(|(_, last)| last >= high);
            if !values.iter().all(is_covered) {
                return None;
            }
            let rows = self.rows.get(key)?.iter().filter(|(_, of)| !intersect(of, values).is_empty());
            Some(rows.map(|(row, _)| *row).collect())
        })
    }
}
