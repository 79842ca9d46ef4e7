// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Repairs a packet that misses its target row, one defect at a time.
//!
//! A packet is made for a path through the elements that ends at a row. It has to match every row on that path and no
//! earlier row of the same elements, and satisfying one condition may break another. So the walker finds where a packet
//! leaves its path, and one defect is repaired there while everything else stays:
//!
//! - the frame lacks a header that the row reads: the header is added;
//! - the packet meets a context in another state: it gets the key of one that is ready, or a new one;
//! - conditions of the row do not hold: they are solved again, with the values of that stage;
//! - an earlier row takes the packet: one of that row's conditions is solved for its negation.
//!
//! Some repairs undo others; after a few repairs most packets reach the row.

use flowloom_efsm::model::{Condition, Function, KeyPart, Terminal};
use flowloom_engine::Port;
use flowloom_random::Draw;
use flowloom_wire::Layers;
use flowloom_wire::field::{FieldId, Source};

use super::{Arc, Arrival, Goal, Stimulus};
use crate::frame::{FieldValue, Needs, Outline};
use crate::solve::{self, Requirements};
use crate::walk::{Prediction, Stage, Visit};

/// Reflexive reachability: from which elements packets can reach which.
pub(super) fn reaches(function: &Function) -> Vec<Vec<bool>> {
    let count = function.elements.len();
    let mut reaches = vec![vec![false; count]; count];
    // `goto` leads forward only.
    for from in (0..count).rev() {
        reaches[from][from] = true;
        let element = &function.elements[from];
        let rows = element.rows.iter().map(|row| &row.actions);
        for actions in rows.chain([&element.otherwise.actions]) {
            let Terminal::Goto(to) = actions.terminal else { continue };
            let beyond = reaches[usize::from(to)].clone();
            for (here, there) in reaches[from].iter_mut().zip(beyond) {
                *here |= there;
            }
        }
    }
    reaches
}

impl Stimulus {
    /// `arrival`, repaired at most `max_repairs` times until it meets the goal; `path` lists the rows before it, where
    /// there is a choice.
    pub(super) fn steer(
        &mut self,
        mut arrival: Arrival,
        path: &[(usize, usize)],
        goal: &Goal,
        max_repairs: u32,
    ) -> Arrival {
        for _ in 0..max_repairs {
            match self.repair(&arrival, path, goal) {
                Some(repaired) => arrival = repaired,
                None => break,
            }
        }
        arrival
    }

    /// One repair; `None` where the packet meets the goal or cannot be repaired.
    fn repair(&mut self, arrival: &Arrival, path: &[(usize, usize)], goal: &Goal) -> Option<Arrival> {
        let function = Arc::clone(&self.walker.function);
        let (prediction, stages) = self.walker.predict_stages(arrival);
        if goal.is_met(&prediction) {
            return self.meet_follow_up(arrival, &prediction, &stages, goal);
        }
        let leads = |from: usize| self.reaches[from][goal.element];
        let continues = |(i, visit): &(usize, &Visit)| {
            let next = prediction.visits.get(i + 1);
            visit.element != goal.element && next.is_some_and(|next| leads(next.element))
        };
        let (at, visit) = prediction.visits.iter().enumerate().find(|visit| !continues(visit))?;
        let element = visit.element;
        let target_value = match element == goal.element {
            true => Some(goal.row),
            false => self.row_to_take(visit, path, goal)?,
        };
        let mut needed: Vec<FieldId> = Vec::new();
        for before in &prediction.visits[..at] {
            needed.extend(before.row.iter().flat_map(|&row| self.walker.fields_of_row(before.element, row)));
        }
        for passed in &prediction.visits[..=at] {
            let key = function.elements[passed.element].stateful.iter().flat_map(|s| &s.key);
            needed.extend(key.flat_map(|key| key.fields()));
        }
        needed.extend(target_value.iter().flat_map(|&row| self.walker.fields_of_row(element, row)));
        let layers = Layers::parse(&function.graph, &stages[at].bytes);
        let (mut requirements, mut absent) = (Requirements::default(), Vec::new());
        if needed.iter().all(|&field| layers.is_present(field)) {
            (requirements, absent) = match self.other_key(&prediction, &stages, at, target_value, goal)? {
                Some(requirements) => (requirements, Vec::new()),
                None => self.solved(&prediction, &stages, at, target_value, &needed, arrival.port)?,
            };
        }
        self.limit_jump(&mut requirements);
        requirements.time_ns = requirements.time_ns.filter(|_| !goal.keep_time);
        Some(self.rebuild_similar(arrival, &needed, &absent, &requirements))
    }

    /// A packet that takes the goal's row and also satisfies the goal's later conditions; `None` where they hold
    /// already, or no packet can satisfy them.
    fn meet_follow_up(
        &mut self,
        arrival: &Arrival,
        prediction: &Prediction,
        stages: &[Stage],
        goal: &Goal,
    ) -> Option<Arrival> {
        let at = prediction.visits.iter().position(|visit| visit.element == goal.element)?;
        let layers = Layers::parse(&self.walker.function.graph, &stages[at].bytes);
        let values = self.walker.values_at(goal.element, &stages[at], &layers, arrival.port.0);
        let missing = goal.follow_up.iter().filter(|condition| !values.holds(condition));
        let missing: Vec<Condition> = missing
            .map(|condition| self.at_entry(prediction, stages, at, condition))
            .filter(solve::depends_on_packet)
            .collect();
        if missing.is_empty() {
            return None;
        }
        let mut requirements = solve::solve(&mut self.rng, &missing, &values);
        requirements.time_ns = None;
        let needed: Vec<FieldId> = prediction.visits[..=at]
            .iter()
            .flat_map(|visit| visit.row.iter().flat_map(|&row| self.walker.fields_of_row(visit.element, row)))
            .copied()
            .collect();
        Some(self.rebuild_similar(arrival, &needed, &[], &requirements))
    }

    /// The row to take in an element before the goal; `Some(None)` for its default, `None` where no row leads there.
    fn row_to_take(&mut self, visit: &Visit, path: &[(usize, usize)], goal: &Goal) -> Option<Option<usize>> {
        let function = Arc::clone(&self.walker.function);
        let element = &function.elements[visit.element];
        if let Some(&(_, row)) = path.iter().find(|(on, _)| *on == visit.element) {
            return Some(Some(row));
        }
        let leads = |terminal: &Terminal| matches!(terminal, Terminal::Goto(to) if self.reaches[usize::from(*to)][goal.element]);
        let here = |states: &[u16]| states.is_empty() || states.contains(&visit.state);
        let rows = element.rows.iter().enumerate().filter(|(_, r)| here(&r.states) && leads(&r.actions.terminal));
        let mut path_conditions: Vec<Option<usize>> = rows.map(|(i, _)| Some(i)).collect();
        if leads(&element.otherwise.actions.terminal) {
            path_conditions.push(None);
        }
        self.rng.pick(&path_conditions).copied()
    }

    /// The key of a context that the row can start from, where the packet meets another one; `None` where there is
    /// none.
    fn other_key(
        &mut self,
        prediction: &Prediction,
        stages: &[Stage],
        at: usize,
        target_value: Option<usize>,
        goal: &Goal,
    ) -> Option<Option<Requirements>> {
        let function = Arc::clone(&self.walker.function);
        let visit = &prediction.visits[at];
        let (element, Some(row)) = (visit.element, target_value) else { return Some(None) };
        if function.elements[element].stateful.as_ref().is_none_or(|s| s.key.is_none()) {
            return Some(None);
        }
        let is_goal = element == goal.element;
        let states = &function.elements[element].rows[row].states;
        let fits = if is_goal { visit.state == goal.state } else { states.contains(&visit.state) };
        let key = match &goal.key {
            Some(key) if is_goal && visit.key.as_ref() == Some(key) => return fits.then_some(None),
            Some(key) if is_goal => Some(key.clone()),
            _ if fits => return Some(None),
            _ => {
                let state = if is_goal { goal.state } else { *self.rng.pick(states)? };
                self.ready_context(element, row, state, &[])?.0
            }
        };
        let mut requirements = Requirements::default();
        let parts = match &key {
            Some(key) => {
                let sample = self.sample(element, key)?;
                requirements.fields = self.key_fields_of(element, &sample);
                self.metadata_of_key(element, key)
            }
            None => self.new_key(element, &mut requirements.fields),
        };
        let parts: Vec<Condition> = parts.iter().map(|part| self.at_entry(prediction, stages, at, part)).collect();
        let layers = Layers::parse(&function.graph, &stages[at].bytes);
        let values = self.walker.values_at(element, &stages[at], &layers, 0);
        requirements.add(solve::solve(&mut self.rng, &parts, &values));
        Some(Some(requirements))
    }

    /// Key fields of a packet, in either direction where both have the same key.
    pub(super) fn key_fields_of(&mut self, element: usize, sample: &Arrival) -> Vec<FieldValue> {
        let function = Arc::clone(&self.walker.function);
        let Some(key) = function.elements[element].stateful.as_ref().and_then(|s| s.key.as_ref()) else {
            return Vec::new();
        };
        let layers = Layers::parse(&function.graph, &sample.bytes);
        let is_reversed = key.biflow && self.rng.percent(50);
        let read = |field: FieldId| {
            let from = if is_reversed { field.partner().unwrap_or(field) } else { field };
            Some((field, layers.read(&sample.bytes, sample.port.0, from)?))
        };
        key.fields().filter_map(read).collect()
    }

    /// A key that probably no context has: values for its fields, and conditions on its metadata.
    fn new_key(&mut self, element: usize, fields: &mut Vec<FieldValue>) -> Vec<Condition> {
        let function = Arc::clone(&self.walker.function);
        let parts = function.elements[element].stateful.iter().flat_map(|s| &s.key).flat_map(|key| &key.parts);
        let mut metadata = Vec::new();
        for part in parts {
            match part {
                KeyPart::Field(field) => {
                    let value = match field.source() {
                        Source::Address { .. } => match self.rng.percent(60) {
                            true => 0xffff_0a00_0000 | u128::from(self.rng.below(1 << 24)),
                            false => 0xfd00_u128 << 112 | u128::from(self.rng.next_u64()),
                        },
                        Source::PacketPort => continue,
                        _ => self.rng.next_u128() & u128::MAX >> (128 - u32::from(field.width_bits())),
                    };
                    fields.push((*field, value));
                }
                KeyPart::Metadata(i) => {
                    let bytes = function.metadata.get(usize::from(*i)).map_or(0, |m| usize::from(m.ty.width_bits / 8));
                    let random = match bytes {
                        16.. => (0xffff_0a00_0000 | u128::from(self.rng.below(1 << 24))).to_be_bytes(),
                        _ => self.rng.next_u128().to_be_bytes(),
                    };
                    metadata.push(solve::key_part(*i, random.get(16 - bytes.min(16)..).unwrap_or(&random)));
                }
            }
        }
        metadata
    }

    /// Values that satisfy the conditions of the wanted row; where they hold already, values or absent fields that keep
    /// an earlier row from taking the packet. `None` where a packet cannot do that.
    fn solved(
        &mut self,
        prediction: &Prediction,
        stages: &[Stage],
        at: usize,
        target_value: Option<usize>,
        needed: &[FieldId],
        port: Port,
    ) -> Option<(Requirements, Vec<FieldId>)> {
        let function = Arc::clone(&self.walker.function);
        let visit = &prediction.visits[at];
        let rows = &function.elements[visit.element].rows;
        let layers = Layers::parse(&function.graph, &stages[at].bytes);
        let broken: Vec<Condition> = {
            let values = self.walker.values_at(visit.element, &stages[at], &layers, port.0);
            let conditions = target_value.iter().flat_map(|&row| &rows[row].conditions);
            conditions.filter(|condition| !values.holds(condition)).cloned().collect()
        };
        let mut conditions: Vec<Condition> =
            broken.iter().map(|condition| self.at_entry(prediction, stages, at, condition)).collect();
        if !conditions.iter().all(solve::depends_on_packet) {
            return None;
        }
        if conditions.is_empty() {
            let shadowing_row = visit.row.filter(|&row| target_value.is_none_or(|target_value| row < target_value))?;
            let fields = self.walker.fields_of_row(visit.element, shadowing_row);
            let can_be_absent = fields.iter().any(|field| !needed.contains(field));
            // Conditions that the wanted row shares must not be negated.
            let kept = target_value.map_or(&[][..], |row| &rows[row].conditions);
            let others = rows[shadowing_row].conditions.iter().filter(|condition| !kept.contains(condition));
            let opposites = others.filter_map(solve::opposite);
            let opposites = opposites.map(|condition| self.at_entry(prediction, stages, at, &condition));
            let opposites: Vec<Condition> = opposites.filter(solve::depends_on_packet).collect();
            if can_be_absent && (opposites.is_empty() || self.rng.percent(50)) {
                return Some((Requirements::default(), fields.to_vec()));
            }
            conditions.push(self.rng.pick(&opposites)?.clone());
        }
        let values = self.walker.values_at(visit.element, &stages[at], &layers, port.0);
        Some((solve::solve(&mut self.rng, &conditions, &values), Vec::new()))
    }

    /// Rewrites a condition of a later element as one on the original packet: replaces metadata by the values that
    /// earlier rows have written.
    fn at_entry(&self, prediction: &Prediction, stages: &[Stage], at: usize, condition: &Condition) -> Condition {
        let function = &self.walker.function;
        let mut condition = condition.clone();
        for (before, stage) in prediction.visits[..at].iter().zip(stages).rev() {
            let element = &function.elements[before.element];
            let actions = before.row.map_or(&element.otherwise.actions, |row| &element.rows[row].actions);
            solve::substitute(&mut condition, &self.walker.fixed(before.element, stage, &actions.writes));
        }
        solve::start(&mut condition, &function.metadata);
        condition
    }

    /// A packet similar to `before` with all of `needed`, not all of `absent`, and the required values.
    fn rebuild_similar(
        &mut self,
        before: &Arrival,
        needed: &[FieldId],
        absent: &[FieldId],
        requirements: &Requirements,
    ) -> Arrival {
        let function = Arc::clone(&self.walker.function);
        let layers = Layers::parse(&function.graph, &before.bytes);
        let outlines = Arc::clone(&self.outlines);
        let fits = |outline: &Outline| {
            requirements.fields.iter().all(|&field_value| outline.allows(&function.graph, field_value))
        };
        let (needs, too_many) = (Needs::of(needed), Needs::of(absent));
        let has = |outline: &&Outline| outline.has(&needs) && (absent.is_empty() || !outline.has(&too_many));
        // The outline most similar to the packet; ties are broken at random.
        let distance = |outline: &Outline| (outline.headers() ^ layers.valid()).count_ones();
        let found = outlines.iter().filter(has);
        let mut nearest: Vec<(u32, u64, &Outline)> = found.map(|o| (distance(o), self.rng.next_u64(), o)).collect();
        nearest.sort_unstable_by_key(|&(distance, lot, _)| (distance, lot));
        let Some((.., outline)) = nearest.into_iter().find(|(.., outline)| fits(outline)) else {
            return self.frame_of(needed, requirements);
        };
        let is_length = |field: &FieldId| field.name().ends_with("len");
        let length_wanted = requirements.fields.iter().any(|(field, _)| is_length(field));
        let kept = |&field: &FieldId| {
            let value = layers.read(&before.bytes, before.port.0, field)?;
            let fits = outline.allows(&function.graph, (field, value)) && !(length_wanted && is_length(&field));
            fits.then_some((field, value))
        };
        let kept: Vec<FieldValue> = self.mentioned.iter().filter_map(kept).collect();
        let arrival = self.build_packet_with(outline, kept, Some(before.port.0), requirements);
        Arrival { time_ns: arrival.time_ns.max(before.time_ns), ..arrival }
    }
}
