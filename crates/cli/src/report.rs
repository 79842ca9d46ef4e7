// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Coverage of a function by a run, element by element, as text and JSON.

use std::collections::BTreeMap;

use flowloom_efsm::model::Function;
use flowloom_efsm::{Coverage, ElementCoverage, layout};
use flowloom_engine::Snapshot;
use serde_json::{Value, json};

use crate::output::{grouped, table};

/// Fates of the contexts of a table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Contexts {
    /// Number of contexts that expired, whether a packet or a sweep detected it.
    pub(crate) timed_out: u64,
    /// Number of contexts at the end, without expired ones.
    pub(crate) alive: u64,
}

/// Way in which looked-up flows are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flows {
    /// Exact number.
    All,
    /// Number that a map of limited size recorded.
    Recorded,
    /// Not counted.
    No,
}

/// For each element a table of rows and hits, and the fates of its contexts.
pub(crate) fn elements_text(
    function: &Function,
    coverage: &Coverage,
    contexts: &BTreeMap<String, Contexts>,
    flows: Flows,
    verbose: bool,
) -> String {
    let mut text = String::new();
    for (element, reached) in function.elements.iter().zip(&coverage.elements) {
        let kind = if element.stateful.is_some() { "stateful" } else { "stateless" };
        text.push_str(&format!("\n{} ({kind})\n", element.name));
        let state_name = |state: u16| match &element.stateful {
            Some(stateful) => stateful.states[usize::from(state)].clone(),
            None => "-".to_owned(),
        };
        let mut rows = Vec::new();
        for (i, (row, hits)) in element.rows.iter().zip(&reached.rows).enumerate() {
            let (line, _, source) = function.source.locate(row.span.start);
            for (&state, &n) in hits {
                let mut cells = vec![state_name(state), format!("row {} (line {line})", i + 1), grouped(n)];
                if verbose {
                    cells.push(source.trim().to_owned());
                }
                rows.push(cells);
            }
        }
        let mut special = |what: &str, n: u64| {
            rows.push(vec!["-".to_owned(), what.to_owned(), grouped(n)]);
        };
        special("otherwise: no row matched", reached.no_match);
        if element.stateful.as_ref().is_some_and(|s| s.key.is_some()) {
            special("otherwise: no key", reached.no_key);
        }
        for (what, expired) in
            [("met after idle timeout", &reached.idle_expired), ("met after hard timeout", &reached.hard_expired)]
        {
            for (&state, &n) in expired {
                rows.push(vec![state_name(state), what.to_owned(), grouped(n)]);
            }
        }
        let header: &[&str] = if verbose { &["state", "row", "hits", "source"] } else { &["state", "row", "hits"] };
        text.push_str(&table(header, &rows, &[2]));
        if element.stateful.is_some() {
            let own = contexts.get(&element.name).copied().unwrap_or_default();
            if flows != Flows::No {
                text.push_str(&format!("flows looked up {}, ", flows_looked_up(reached, flows)));
            }
            text.push_str(&format!(
                "contexts created {}, removed {}, timed out {}, rejected {}, evicted {}, alive {}\n",
                grouped(reached.created),
                grouped(reached.removed),
                grouped(own.timed_out),
                grouped(reached.rejected),
                grouped(reached.evicted),
                grouped(own.alive),
            ));
        }
    }
    text
}

/// A table of the maps of these names with their numbers of entries; empty if there is none.
pub(crate) fn maps_text(snapshot: &Snapshot, is_shown: impl Fn(&str) -> bool) -> String {
    let maps = snapshot.maps.iter().filter(|(name, _)| is_shown(name));
    let rows: Vec<_> = maps.map(|(name, entries)| vec![name.clone(), grouped(entries.len() as u64)]).collect();
    if rows.is_empty() { String::new() } else { format!("\n{}", table(&["map", "entries"], &rows, &[1])) }
}

/// Number of looked-up flows; a lower bound if the map that records them is full.
fn flows_looked_up(reached: &ElementCoverage, flows: Flows) -> String {
    let number = grouped(reached.flows_looked_up);
    if flows == Flows::All || reached.flows_looked_up < u64::from(layout::SEEN_ENTRIES) {
        number
    } else {
        format!("at least {number}")
    }
}

/// JSON form of [`elements_text`].
pub(crate) fn elements_json(function: &Function, coverage: &Coverage, contexts: &BTreeMap<String, Contexts>) -> Value {
    let elements = function.elements.iter().zip(&coverage.elements).map(|(element, reached)| {
        let name = |state: u16| element.stateful.as_ref().map(|s| s.states[usize::from(state)].clone());
        let by_state = |counts: &BTreeMap<u16, u64>| -> Value {
            counts.iter().map(|(&s, &n)| json!({"state": name(s), "hits": n})).collect()
        };
        let rows: Vec<Value> = element
            .rows
            .iter()
            .zip(&reached.rows)
            .map(|(row, hits)| {
                let (line, _, source) = function.source.locate(row.span.start);
                json!({"line": line, "source": source.trim(), "states": by_state(hits)})
            })
            .collect();
        let own = contexts.get(&element.name);
        json!({
            "name": element.name,
            "rows": rows,
            "no_match": reached.no_match,
            "no_key": reached.no_key,
            "idle_expired": by_state(&reached.idle_expired),
            "hard_expired": by_state(&reached.hard_expired),
            "flows_looked_up": reached.flows_looked_up,
            "contexts_created": reached.created,
            "contexts_removed": reached.removed,
            "contexts_rejected": reached.rejected,
            "contexts_evicted": reached.evicted,
            "contexts_timed_out": own.map(|c| c.timed_out),
            "contexts_alive": own.map(|c| c.alive),
        })
    });
    elements.collect()
}
