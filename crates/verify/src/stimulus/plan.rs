// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Selects the context for a row, and the steps before it where no context is ready.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_efsm::model::{Condition, Function, NextState, Row};
use flowloom_random::Draw;
use flowloom_wire::field::FieldId;
use flowloom_wire::{Graph, Layers};

use super::{Goal, MAX_REPAIRS, Stimulus, some_contexts};
use crate::arrival::Arrival;
use crate::solve;
use crate::walk::{Context, Walker};

/// Conditions for a row to take a packet in a state, by element, row and state: its own, and for each earlier row that
/// a single condition on the context decides, the negation of that condition.
pub(super) fn needs(function: &Function) -> BTreeMap<(usize, usize, u16), Vec<Condition>> {
    let mut needs = BTreeMap::new();
    for (e, element) in function.elements.iter().enumerate() {
        let key: Vec<FieldId> = element.stateful.iter().flat_map(|s| &s.key).flat_map(|key| key.fields()).collect();
        for (r, row) in element.rows.iter().enumerate() {
            let there = [row.fields(), key.clone()].concat();
            let states = if row.states.is_empty() { &[0][..] } else { &row.states };
            for &state in states {
                let here = |before: &&Row| before.states.is_empty() || before.states.contains(&state);
                let reads_no_more = |before: &&Row| before.fields().iter().all(|field| there.contains(field));
                let before = element.rows[..r].iter().filter(here).filter(reads_no_more);
                let must_not = before.filter_map(|before| {
                    let mut more = before.conditions.iter().filter(|c| !row.conditions.contains(c));
                    let only = more.next().filter(|_| more.next().is_none())?;
                    solve::opposite(only).filter(|condition| !solve::depends_on_packet_or_metadata(condition))
                });
                let all = row.conditions.iter().cloned().chain(must_not).collect();
                needs.insert((e, r, state), all);
            }
        }
    }
    needs
}

impl Stimulus {
    /// A packet that brings some context of the element closer to `row` in `state`: by a row that prepares its
    /// registers or enters the state, from a state in which a context is ready, or by a row that enters the state of
    /// such a row, and so on.
    pub(super) fn approach(&mut self, element: usize, row: usize, state: u16) -> Option<Arrival> {
        let function = Arc::clone(&self.walker.function);
        let rows = &function.elements[element].rows;
        let needs = Arc::clone(&self.needs);
        let needs = needs.get(&(element, row, state)).map_or(&[][..], |needs| needs);
        let of_context: Vec<&Condition> = needs.iter().filter(|need| !solve::depends_on_packet(need)).collect();
        let fields = self.walker.fields_of_row(element, row).to_vec();
        let mut seen = vec![state];
        let mut layer = vec![state];
        let mut is_first = true;
        while !layer.is_empty() {
            let mut steps: Vec<(usize, u16)> = Vec::new();
            for (r, row) in rows.iter().enumerate() {
                let enters = |from: &u16| match row.next {
                    NextState::To { state: to, .. } if layer.contains(&to) => {
                        !seen.contains(from) || (is_first && *from == to && !of_context.is_empty())
                    }
                    NextState::To { .. } => false,
                    NextState::Stay => is_first && *from == state && !of_context.is_empty(),
                };
                steps.extend(row.states.iter().filter(|from| enters(from)).map(|&from| (r, from)));
            }
            layer = steps.iter().map(|&(_, from)| from).filter(|from| !seen.contains(from)).collect();
            layer.sort_unstable();
            layer.dedup();
            seen.extend(&layer);
            for _ in 0..steps.len().min(3) {
                let (step, from) = steps.swap_remove(self.rng.index(steps.len()));
                let Some((key, context)) = self.ready_context(element, step, from, &fields) else { continue };
                let mut goal = Goal::new(element, step, from, key);
                if is_first {
                    goal.follow_up = of_context.iter().map(|need| solve::before(need, &rows[step].updates)).collect();
                }
                let arrival = self.repaired_packet(&goal, &context, &[], MAX_REPAIRS);
                if goal.is_met(&self.walker.predict(&arrival)) {
                    return Some(arrival);
                }
            }
            is_first = false;
        }
        None
    }

    /// A context in `state` whose registers let `row` match: a live one, or an absent one in the initial state;
    /// preferably one whose packets have all of `fields`, too.
    pub(super) fn ready_context(
        &mut self,
        element: usize,
        row_index: usize,
        state: u16,
        fields: &[FieldId],
    ) -> Option<(Option<Vec<u8>>, Context)> {
        let function = Arc::clone(&self.walker.function);
        let row = &function.elements[element].rows[row_index];
        let no_layers = Layers::parse(Graph::standard(), &[]);
        let default = self.walker.default_context(element);
        let needs = Arc::clone(&self.needs);
        let needs = needs.get(&(element, row_index, state)).map_or(&[][..], |needs| needs);
        let ready = |walker: &Walker, context: &Context| {
            context.state == state && solve::conditions_hold(needs, &walker.values_of(element, context, &no_layers))
        };
        let mut found: Vec<(Option<Vec<u8>>, Context)> = Vec::new();
        if let Some(table) = &self.walker.tables[element] {
            let live = |(_, c): &(&Vec<u8>, &Context)| c.deadline().is_none_or(|(_, d)| d > self.time_ns);
            let part = some_contexts(table, self.focus[element].as_ref(), &mut self.rng).filter(live);
            let fitting = part.filter(|(_, c)| ready(&self.walker, c));
            found.extend(fitting.map(|(k, c)| (Some(k.clone()), c.clone())));
            // The key may imply headers: prefer a context whose packets have the fields that the row reads.
            let fields = [self.walker.fields_of_row(element, row_index), fields].concat();
            let has_all = |key: &Option<Vec<u8>>| {
                let sample = key.as_ref().and_then(|key| table.samples.get(key));
                sample.is_some_and(|s| {
                    let layers = Layers::parse(&function.graph, &s.bytes);
                    fields.iter().all(|&f| layers.is_present(f))
                })
            };
            if found.iter().any(|(key, _)| has_all(key)) {
                found.retain(|(key, _)| has_all(key));
            }
            let is_time = |(_, context): &(Option<Vec<u8>>, Context)| {
                solve::time_holds(row, &self.walker.values_of(element, context, &no_layers))
            };
            if found.iter().any(is_time) {
                found.retain(is_time);
            }
        }
        // Prefer the one in focus, so that chains of many packets complete.
        if self.rng.percent(60)
            && let Some(focus) = &self.focus[element]
            && let Some(at) = found.iter().position(|(k, _)| k.as_ref() == Some(focus))
        {
            return Some(found.swap_remove(at));
        }
        if state == 0 && ready(&self.walker, &default) && (found.is_empty() || self.rng.percent(30)) {
            return Some((None, default));
        }
        let at = self.rng.index(found.len());
        (!found.is_empty()).then(|| found.swap_remove(at))
    }

    /// Advances the context in focus along one of the rows that it can take. It is one whose packets have the fields
    /// that `goal` reads, or a new one of such packets, so that it gets closer to the goal.
    pub(super) fn move_on(&mut self, element: usize, goal: usize) -> Option<Arrival> {
        let function = Arc::clone(&self.walker.function);
        let table = self.walker.tables[element].as_ref()?;
        let needed = self.walker.fields_of_row(element, goal).to_vec();
        let live = |c: &Context| c.deadline().is_none_or(|(_, d)| d > self.time_ns);
        let has_all = |key: &Vec<u8>| {
            table.samples.get(key).is_some_and(|s| {
                let layers = Layers::parse(&function.graph, &s.bytes);
                needed.iter().all(|&f| layers.is_present(f))
            })
        };
        let old = self.focus[element].clone();
        let old = old.filter(|key| table.contexts.get(key).is_some_and(live) && has_all(key));
        let focus = old.or_else(|| {
            let some = some_contexts(table, None, &mut self.rng);
            let part = some.filter(|(k, c)| live(c) && has_all(k));
            let keys: Vec<&Vec<u8>> = part.map(|(k, _)| k).collect();
            // Occasionally take a new one, so that the search does not get stuck.
            if self.rng.percent(15) { None } else { self.rng.pick(&keys).map(|k| (*k).clone()) }
        });
        let context = focus.as_ref().and_then(|key| table.contexts.get(key)).cloned();
        let context = context.unwrap_or_else(|| self.walker.default_context(element));
        self.focus[element].clone_from(&focus);
        let no_layers = Layers::parse(Graph::standard(), &[]);
        let mut rows: Vec<usize> = Vec::new();
        for (i, row) in function.elements[element].rows.iter().enumerate() {
            let values = self.walker.values_of(element, &context, &no_layers);
            if row.states.contains(&context.state) && solve::context_holds(row, &values) {
                rows.push(i);
            }
        }
        let &row = self.rng.pick(&rows)?;
        let extra = if self.rng.percent(70) { &needed[..] } else { &[] };
        let goal = Goal::new(element, row, context.state, focus);
        Some(self.repaired_packet(&goal, &context, extra, MAX_REPAIRS / 2))
    }
}
