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
use crate::frame::{Needs, Outline, Wish};
use crate::solve::{self, Wants};
use crate::walk::{Look, Stage, Visit};

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
    /// `arrival`, repaired at most `mends` times until it meets the goal; `way` lists the rows before it, where there
    /// is a choice.
    pub(super) fn steer(&mut self, mut arrival: Arrival, way: &[(usize, usize)], goal: &Goal, mends: u32) -> Arrival {
        for _ in 0..mends {
            match self.mend(&arrival, way, goal) {
                Some(mended) => arrival = mended,
                None => break,
            }
        }
        arrival
    }

    /// One repair; `None` where the packet meets the goal or cannot be repaired.
    fn mend(&mut self, arrival: &Arrival, way: &[(usize, usize)], goal: &Goal) -> Option<Arrival> {
        let function = Arc::clone(&self.walker.function);
        let (look, stages) = self.walker.follow(arrival);
        if goal.is_met(&look) {
            return self.then(arrival, &look, &stages, goal);
        }
        let leads = |from: usize| self.reaches[from][goal.element];
        let goes_on = |(i, visit): &(usize, &Visit)| {
            let next = look.visits.get(i + 1);
            visit.element != goal.element && next.is_some_and(|next| leads(next.element))
        };
        let (at, visit) = look.visits.iter().enumerate().find(|visit| !goes_on(visit))?;
        let element = visit.element;
        let wanted = match element == goal.element {
            true => Some(goal.row),
            false => self.turn(visit, way, goal)?,
        };
        let mut needed: Vec<FieldId> = Vec::new();
        for before in &look.visits[..at] {
            needed.extend(before.row.iter().flat_map(|&row| self.walker.fields_of_row(before.element, row)));
        }
        for passed in &look.visits[..=at] {
            let key = function.elements[passed.element].stateful.iter().flat_map(|s| &s.key);
            needed.extend(key.flat_map(|key| key.fields()));
        }
        needed.extend(wanted.iter().flat_map(|&row| self.walker.fields_of_row(element, row)));
        let layers = Layers::parse(&function.graph, &stages[at].bytes);
        let (mut wants, mut absent) = (Wants::default(), Vec::new());
        if needed.iter().all(|&field| layers.is_present(field)) {
            (wants, absent) = match self.other_key(&look, &stages, at, wanted, goal)? {
                Some(wants) => (wants, Vec::new()),
                None => self.solved(&look, &stages, at, wanted, &needed, arrival.port)?,
            };
        }
        self.limit_jump(&mut wants);
        wants.time_ns = wants.time_ns.filter(|_| !goal.at_once);
        Some(self.redress(arrival, &needed, &absent, &wants))
    }

    /// A packet that takes the goal's row and also satisfies the goal's later conditions; `None` where they hold
    /// already, or no packet can satisfy them.
    fn then(&mut self, arrival: &Arrival, look: &Look, stages: &[Stage], goal: &Goal) -> Option<Arrival> {
        let at = look.visits.iter().position(|visit| visit.element == goal.element)?;
        let layers = Layers::parse(&self.walker.function.graph, &stages[at].bytes);
        let values = self.walker.values_at(goal.element, &stages[at], &layers, arrival.port.0);
        let missing = goal.then.iter().filter(|condition| !values.holds(condition));
        let missing: Vec<Condition> =
            missing.map(|condition| self.as_it_came(look, stages, at, condition)).filter(solve::asks_packet).collect();
        if missing.is_empty() {
            return None;
        }
        let mut wants = solve::solve(&mut self.rng, &missing, &values);
        wants.time_ns = None;
        let needed: Vec<FieldId> = look.visits[..=at]
            .iter()
            .flat_map(|visit| visit.row.iter().flat_map(|&row| self.walker.fields_of_row(visit.element, row)))
            .copied()
            .collect();
        Some(self.redress(arrival, &needed, &[], &wants))
    }

    /// The row to take in an element before the goal; `Some(None)` for its default, `None` where no row leads there.
    fn turn(&mut self, visit: &Visit, way: &[(usize, usize)], goal: &Goal) -> Option<Option<usize>> {
        let function = Arc::clone(&self.walker.function);
        let element = &function.elements[visit.element];
        if let Some(&(_, row)) = way.iter().find(|(on, _)| *on == visit.element) {
            return Some(Some(row));
        }
        let leads = |terminal: &Terminal| matches!(terminal, Terminal::Goto(to) if self.reaches[usize::from(*to)][goal.element]);
        let here = |states: &[u16]| states.is_empty() || states.contains(&visit.state);
        let rows = element.rows.iter().enumerate().filter(|(_, r)| here(&r.states) && leads(&r.actions.terminal));
        let mut turns: Vec<Option<usize>> = rows.map(|(i, _)| Some(i)).collect();
        if leads(&element.otherwise.actions.terminal) {
            turns.push(None);
        }
        self.rng.pick(&turns).copied()
    }

    /// The key of a context that the row can start from, where the packet meets another one; `None` where there is
    /// none.
    fn other_key(
        &mut self,
        look: &Look,
        stages: &[Stage],
        at: usize,
        wanted: Option<usize>,
        goal: &Goal,
    ) -> Option<Option<Wants>> {
        let function = Arc::clone(&self.walker.function);
        let visit = &look.visits[at];
        let (element, Some(row)) = (visit.element, wanted) else { return Some(None) };
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
        let mut wants = Wants::default();
        let parts = match &key {
            Some(key) => {
                let sample = self.sample(element, key)?;
                wants.fields = self.key_fields_of(element, &sample);
                self.metadata_of_key(element, key)
            }
            None => self.new_key(element, &mut wants.fields),
        };
        let parts: Vec<Condition> = parts.iter().map(|part| self.as_it_came(look, stages, at, part)).collect();
        let layers = Layers::parse(&function.graph, &stages[at].bytes);
        let values = self.walker.values_at(element, &stages[at], &layers, 0);
        wants.add(solve::solve(&mut self.rng, &parts, &values));
        Some(Some(wants))
    }

    /// Key fields of a packet, in either direction where both have the same key.
    pub(super) fn key_fields_of(&mut self, element: usize, sample: &Arrival) -> Vec<Wish> {
        let function = Arc::clone(&self.walker.function);
        let Some(key) = function.elements[element].stateful.as_ref().and_then(|s| s.key.as_ref()) else {
            return Vec::new();
        };
        let layers = Layers::parse(&function.graph, &sample.bytes);
        let turned = key.biflow && self.rng.percent(50);
        let read = |field: FieldId| {
            let from = if turned { field.partner().unwrap_or(field) } else { field };
            Some((field, layers.read(&sample.bytes, sample.port.0, from)?))
        };
        key.fields().filter_map(read).collect()
    }

    /// A key that probably no context has: values for its fields, and conditions on its metadata.
    fn new_key(&mut self, element: usize, fields: &mut Vec<Wish>) -> Vec<Condition> {
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
        look: &Look,
        stages: &[Stage],
        at: usize,
        wanted: Option<usize>,
        needed: &[FieldId],
        port: Port,
    ) -> Option<(Wants, Vec<FieldId>)> {
        let function = Arc::clone(&self.walker.function);
        let visit = &look.visits[at];
        let rows = &function.elements[visit.element].rows;
        let layers = Layers::parse(&function.graph, &stages[at].bytes);
        let broken: Vec<Condition> = {
            let values = self.walker.values_at(visit.element, &stages[at], &layers, port.0);
            let conditions = wanted.iter().flat_map(|&row| &rows[row].conditions);
            conditions.filter(|condition| !values.holds(condition)).cloned().collect()
        };
        let mut conditions: Vec<Condition> =
            broken.iter().map(|condition| self.as_it_came(look, stages, at, condition)).collect();
        if !conditions.iter().all(solve::asks_packet) {
            return None;
        }
        if conditions.is_empty() {
            let in_the_way = visit.row.filter(|&row| wanted.is_none_or(|wanted| row < wanted))?;
            let fields = self.walker.fields_of_row(visit.element, in_the_way);
            let can_be_absent = fields.iter().any(|field| !needed.contains(field));
            // Conditions that the wanted row shares must not be negated.
            let kept = wanted.map_or(&[][..], |row| &rows[row].conditions);
            let others = rows[in_the_way].conditions.iter().filter(|condition| !kept.contains(condition));
            let opposites = others.filter_map(solve::opposite);
            let opposites = opposites.map(|condition| self.as_it_came(look, stages, at, &condition));
            let opposites: Vec<Condition> = opposites.filter(solve::asks_packet).collect();
            if can_be_absent && (opposites.is_empty() || self.rng.percent(50)) {
                return Some((Wants::default(), fields.to_vec()));
            }
            conditions.push(self.rng.pick(&opposites)?.clone());
        }
        let values = self.walker.values_at(visit.element, &stages[at], &layers, port.0);
        Some((solve::solve(&mut self.rng, &conditions, &values), Vec::new()))
    }

    /// Rewrites a condition of a later element as one on the original packet: replaces metadata by the values that
    /// earlier rows have written.
    fn as_it_came(&self, look: &Look, stages: &[Stage], at: usize, condition: &Condition) -> Condition {
        let function = &self.walker.function;
        let mut condition = condition.clone();
        for (before, stage) in look.visits[..at].iter().zip(stages).rev() {
            let element = &function.elements[before.element];
            let actions = before.row.map_or(&element.otherwise.actions, |row| &element.rows[row].actions);
            solve::substitute(&mut condition, &self.walker.fixed(before.element, stage, &actions.writes));
        }
        solve::start(&mut condition, &function.metadata);
        condition
    }

    /// A packet similar to `before` with all of `needed`, not all of `absent`, and the required values.
    fn redress(&mut self, before: &Arrival, needed: &[FieldId], absent: &[FieldId], wants: &Wants) -> Arrival {
        let function = Arc::clone(&self.walker.function);
        let layers = Layers::parse(&function.graph, &before.bytes);
        let outlines = Arc::clone(&self.outlines);
        let fits = |outline: &Outline| wants.fields.iter().all(|&wish| outline.allows(&function.graph, wish));
        let (needs, too_many) = (Needs::of(needed), Needs::of(absent));
        let has = |outline: &&Outline| outline.has(&needs) && (absent.is_empty() || !outline.has(&too_many));
        // The outline most similar to the packet; ties are broken at random.
        let apart = |outline: &Outline| (outline.headers() ^ layers.valid()).count_ones();
        let found = outlines.iter().filter(has);
        let mut nearest: Vec<(u32, u64, &Outline)> = found.map(|o| (apart(o), self.rng.next_u64(), o)).collect();
        nearest.sort_unstable_by_key(|&(apart, lot, _)| (apart, lot));
        let Some((.., outline)) = nearest.into_iter().find(|(.., outline)| fits(outline)) else {
            return self.frame_of(needed, wants);
        };
        let is_length = |field: &FieldId| field.name().ends_with("len");
        let length_wanted = wants.fields.iter().any(|(field, _)| is_length(field));
        let kept = |&field: &FieldId| {
            let value = layers.read(&before.bytes, before.port.0, field)?;
            let fits = outline.allows(&function.graph, (field, value)) && !(length_wanted && is_length(&field));
            fits.then_some((field, value))
        };
        let kept: Vec<Wish> = self.mentioned.iter().filter_map(kept).collect();
        let arrival = self.dress_in(outline, kept, Some(before.port.0), wants);
        Arrival { time_ns: arrival.time_ns.max(before.time_ns), ..arrival }
    }
}
