// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Coverage: the rows, defaults and timers that a run reached.

use std::collections::BTreeMap;

use flowloom_engine::Snapshot;

use crate::layout::{Counter, CounterTable, HITS_MAP, seen_map};
use crate::model::Function;

/// The coverage of a function, by element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// By element, in order.
    pub elements: Vec<ElementCoverage>,
}

/// The coverage of an element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElementCoverage {
    /// The name of the element.
    pub name: String,
    /// By row, the hits by state (0 in a stateless element); every possible pair is listed.
    pub rows: Vec<BTreeMap<u16, u64>>,
    /// Packets that no row matched.
    pub no_match: u64,
    /// Packets without a key field.
    pub no_key: u64,
    /// By state, the packets that found a context in it whose idle timer had expired.
    pub idle_expired: BTreeMap<u16, u64>,
    /// By state, the packets that found a context in it whose hard timer had expired.
    pub hard_expired: BTreeMap<u16, u64>,
    /// Contexts created.
    pub created: u64,
    /// Contexts removed because they returned to their default.
    pub removed: u64,
    /// Contexts not created because the table was full.
    pub rejected: u64,
    /// Contexts evicted.
    pub evicted: u64,
    /// Distinct keys looked up.
    pub flows_looked_up: u64,
}

impl Coverage {
    /// Nothing reached.
    pub fn empty(function: &Function) -> Coverage {
        let elements = function
            .elements
            .iter()
            .map(|element| ElementCoverage {
                name: element.name.clone(),
                rows: element
                    .rows
                    .iter()
                    .map(|row| {
                        let states = if row.states.is_empty() { &[0][..] } else { &row.states };
                        states.iter().map(|&s| (s, 0)).collect()
                    })
                    .collect(),
                ..ElementCoverage::default()
            })
            .collect();
        Coverage { elements }
    }

    pub(crate) fn count(&mut self, element: usize, counter: Counter) {
        let e = &mut self.elements[element];
        *match counter {
            Counter::Row { row, state } => e.rows[row].entry(state).or_default(),
            Counter::NoMatch => &mut e.no_match,
            Counter::NoKey => &mut e.no_key,
            Counter::IdleExpired(state) => e.idle_expired.entry(state).or_default(),
            Counter::HardExpired(state) => e.hard_expired.entry(state).or_default(),
            Counter::Created => &mut e.created,
            Counter::Removed => &mut e.removed,
            Counter::Rejected => &mut e.rejected,
            Counter::Evicted => &mut e.evicted,
        } += 1;
    }

    /// Reads the counters of a function that was lowered with them; `None` if it was lowered without.
    pub fn from_snapshot(function: &Function, snapshot: &Snapshot) -> Option<Coverage> {
        let hits = snapshot.maps.get(HITS_MAP)?.values().next()?;
        let table = CounterTable::of(function);
        let read = |element, counter| {
            let at = table.index(element, counter) as usize * 8;
            Some(u64::from_le_bytes(hits.get(at..at + 8)?.try_into().ok()?))
        };
        let mut coverage = Coverage::empty(function);
        for (i, e) in coverage.elements.iter_mut().enumerate() {
            for (row, states) in e.rows.iter_mut().enumerate() {
                for (&state, n) in states {
                    *n = read(i, Counter::Row { row, state })?;
                }
            }
            e.no_match = read(i, Counter::NoMatch)?;
            e.no_key = read(i, Counter::NoKey)?;
            e.created = read(i, Counter::Created)?;
            e.removed = read(i, Counter::Removed)?;
            e.rejected = read(i, Counter::Rejected)?;
            e.evicted = read(i, Counter::Evicted)?;
            let states = function.elements[i].stateful.as_ref().map_or(0, |s| s.states.len() as u16);
            for state in 0..states {
                let nonzero = |n: u64| (n > 0).then_some((state, n));
                e.idle_expired.extend(nonzero(read(i, Counter::IdleExpired(state))?));
                e.hard_expired.extend(nonzero(read(i, Counter::HardExpired(state))?));
            }
            e.flows_looked_up = snapshot.maps.get(&seen_map(i)).map_or(0, |seen| seen.len() as u64);
        }
        Some(coverage)
    }
}
