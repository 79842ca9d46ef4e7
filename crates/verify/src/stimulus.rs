// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generates packets that reach the rows of a function.
//!
//! Random packets would never knock four ports in order. The stimulus runs a [`Walker`] alongside, so it knows the live
//! contexts, with their states, registers and deadlines. For each packet it does one of these:
//!
//! - **aim at a row**: take the row with the fewest hits, a context it applies to (or an absent one), solve its
//!   conditions for field values, build such a packet, check whether it hits, and repair it;
//! - **approach**: where no context is in the state of that row, take a row that enters this state, or one that enters
//!   the state of that row, and so on;
//! - **move on**: where no context is ready for that row, advance the one in focus along any row it can take;
//! - **burst**: where a row needs many packets of one flow in a short time, send them back to back;
//! - **let time pass**: send a packet of a live context 1 ns before, on or 1 ns after its deadline;
//! - **be odd**: fragments, extension headers, ICMP, ARP, truncated and mutated frames;
//! - **be usual**: a packet from the pools, whatever it does.
//!
//! Keys and values come from small pools: the constants of the function, their neighbours, and a few others. The same
//! seed gives the same packets.

mod burst;
mod plan;
mod pools;
mod steer;

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_efsm::layout;
use flowloom_efsm::model::{Actions, Condition, Function, KeyPart, Terminal};
use flowloom_engine::{Outcome, Port};
use flowloom_wire::field::{FieldId, Source};
use flowloom_wire::{Graph, Layers};

use crate::arrival::Arrival;
use crate::frame::{self, FieldValue, Needs, Outline};
use crate::hits::{Hits, Timer};
use crate::solve::{self, Requirements};
use crate::walk::{Context, Prediction, Table, Walker};
use burst::Burst;
use flowloom_random::{Draw, Xorshift64Star as Rng};

/// Maximum number of contexts of a table that are examined for one packet.
const MAX_CONTEXTS_EXAMINED: usize = 48;

/// Options of packet generation.
#[derive(Debug, Clone)]
pub struct StimulusOptions {
    /// Time of the first packet.
    pub start_ns: u64,
    /// Percentage of packets that aim at a row.
    pub aimed_percent: u64,
    /// Percentage of packets that are sent at a deadline.
    pub deadline_percent: u64,
    /// Percentage of packets with an unusual frame.
    pub odd_percent: u64,
    /// Number of input ports; ports are numbered from 0.
    pub ports: u32,
    /// Sweep period of the engines: sweeps change which tables are full.
    pub sweep_ns: Option<u64>,
}

impl StimulusOptions {
    /// The defaults for `function`.
    pub fn of(function: &Function) -> StimulusOptions {
        StimulusOptions {
            start_ns: 1_000_000_000,
            aimed_percent: 72,
            deadline_percent: 10,
            odd_percent: 8,
            ports: 4,
            sweep_ns: sweep_period(function),
        }
    }
}

/// Sweep period of a function: the shortest period of its elements.
pub fn sweep_period(function: &Function) -> Option<u64> {
    function.elements.iter().filter_map(|e| e.stateful.as_ref()).map(|s| s.sweep_ns).filter(|&ns| ns > 0).min()
}

/// Predicted effects of the packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StimulusCounts {
    /// Number of packets generated.
    pub packets: u64,
    /// Number of packets that took a row in some element.
    pub in_rows: u64,
    /// Number of rows that were aimed at.
    pub aimed: u64,
    /// Number of rows that were aimed at and hit.
    pub aimed_hit: u64,
}

#[derive(Debug, Default)]
struct Path {
    /// The rows before the last one, from the last to the first.
    rows: Vec<(usize, usize)>,
    /// Conditions of the last row, with metadata replaced where its value is known.
    conditions: Vec<Condition>,
    /// Conditions of the rows before it.
    path_conditions: Vec<Condition>,
}

/// Intended effect of a packet.
#[derive(Debug, Clone)]
struct Goal {
    element: usize,
    row: usize,
    state: u16,
    /// The context to meet; `None` for any in this state.
    key: Option<Vec<u8>>,
    /// Conditions that should hold after it, too, if possible, so that the context becomes ready for another row.
    follow_up: Vec<Condition>,
    /// True if no time may pass.
    keep_time: bool,
}

impl Goal {
    fn new(element: usize, row: usize, state: u16, key: Option<Vec<u8>>) -> Goal {
        Goal { element, row, state, key, follow_up: Vec::new(), keep_time: false }
    }

    fn is_met(&self, prediction: &Prediction) -> bool {
        let Some(visit) = prediction.visits.iter().find(|visit| visit.element == self.element) else { return false };
        let is_key = self.key.is_none() || visit.key == self.key;
        visit.row == Some(self.row) && visit.state == self.state && is_key
    }
}

/// Maximum number of repairs per packet.
const MAX_REPAIRS: u32 = 8;

/// Numbers of hits of a row and of attempts to hit it.
#[derive(Debug, Clone, Copy, Default)]
struct Attempts {
    hits: u64,
    tries: u64,
}

/// Hits after which no burst is needed.
const ENOUGH_HITS: u64 = 150;

/// An endless sequence of packets for one function.
#[derive(Debug, Clone)]
pub struct Stimulus {
    walker: Walker,
    options: StimulusOptions,
    rng: Rng,
    pools: BTreeMap<FieldId, Vec<u128>>,
    /// Header sequences of the generated frames.
    outlines: Arc<[Outline]>,
    /// Fields that the function reads or writes.
    mentioned: Vec<FieldId>,
    /// Attempts by element, row and state.
    rows: BTreeMap<(usize, usize, u16), Attempts>,
    /// Number of expired deadlines, by element, state and timer.
    expired: BTreeMap<(usize, u16, Timer), u64>,
    focus: Vec<Option<Vec<u8>>>,
    burst: Option<Burst>,
    /// Number of bursts, by element and row.
    bursts: BTreeMap<(usize, usize), u64>,
    /// Reachability between elements.
    reaches: Arc<[Vec<bool>]>,
    /// Conditions on a context for a row to take its packets, by element, row and state.
    needs: Arc<BTreeMap<(usize, usize, u16), Vec<Condition>>>,
    shortest_timer_ns: u64,
    time_ns: u64,
    counts: StimulusCounts,
}

impl Stimulus {
    /// Generates packets for `function`.
    pub fn new(function: Arc<Function>, seed: u64, options: StimulusOptions) -> Stimulus {
        let mut rng = Rng::new(seed);
        let (pools, mentioned) = pools::pools(&function, &mut rng);
        let outlines = Outline::all(&function.graph, &mentioned).into();
        let mut rows = BTreeMap::new();
        for (e, element) in function.elements.iter().enumerate() {
            for (r, row) in element.rows.iter().enumerate() {
                let states = if row.states.is_empty() { &[0][..] } else { &row.states };
                rows.extend(states.iter().map(|&s| ((e, r, s), Attempts::default())));
            }
        }
        let focus = vec![None; function.elements.len()];
        let (shortest_timer_ns, time_ns) = (shortest_timer(&function), options.start_ns);
        let (reaches, needs) = (steer::reaches(&function).into(), plan::needs(&function).into());
        let walker = Walker::new(function, options.sweep_ns);
        let counts = StimulusCounts::default();
        let expired = BTreeMap::new();
        Stimulus {
            walker,
            options,
            rng,
            pools,
            outlines,
            mentioned,
            rows,
            expired,
            focus,
            burst: None,
            bursts: BTreeMap::new(),
            reaches,
            needs,
            shortest_timer_ns,
            time_ns,
            counts,
        }
    }

    /// Coverage of the packets so far.
    pub fn hits(&self) -> &Hits {
        &self.walker.hits
    }

    /// Predicted effects of the packets so far.
    pub fn counts(&self) -> StimulusCounts {
        self.counts
    }

    /// Source lines, by number and text, of the rows that no packet has taken so far.
    pub fn unreached_rows(&self) -> Vec<(u32, String)> {
        let function = &self.walker.function;
        let mut lines = Vec::new();
        for (e, element) in function.elements.iter().enumerate() {
            for (r, row) in element.rows.iter().enumerate() {
                if self.rows.iter().all(|(&(at, of, _), attempts)| (at, of) != (e, r) || attempts.hits == 0) {
                    let (line, _, text) = function.source.locate(row.span.start);
                    lines.push((line, text.trim().to_owned()));
                }
            }
        }
        lines
    }

    /// The next `n` packets.
    pub fn take_packets(&mut self, n: usize) -> Vec<Arrival> {
        (0..n).map(|_| self.next_packet()).collect()
    }

    /// The next packet.
    pub fn next_packet(&mut self) -> Arrival {
        self.next_predicted().0
    }

    /// The next packet, with its predicted outcome: tests compare the reference machine with it.
    pub fn next_predicted(&mut self) -> (Arrival, Outcome) {
        if self.burst.is_none() && self.rng.percent(2) {
            self.burst = self.start_burst();
        }
        if let Some(arrival) = self.continue_burst() {
            let prediction = self.send(&arrival);
            if let Some(burst) = &mut self.burst {
                let visit = prediction.visits.iter().find(|visit| visit.element == burst.element);
                burst.key = visit.and_then(|visit| visit.key.clone());
                burst.left -= 1;
                if visit.is_some_and(|visit| visit.state != burst.state) {
                    burst.left = 0;
                }
            }
            return (arrival, Outcome { verdict: prediction.verdict, outputs: prediction.outputs, events: Vec::new() });
        }
        let step = self.step();
        self.time_ns = self.time_ns.saturating_add(step);
        let path = self.rng.below(100);
        let o = &self.options;
        let (aimed, deadline, unusual) = (
            o.aimed_percent,
            o.aimed_percent + o.deadline_percent,
            o.aimed_percent + o.deadline_percent + o.odd_percent,
        );
        let arrival = if path < aimed {
            self.aim()
        } else if path < deadline {
            self.at_deadline().unwrap_or_else(|| self.pool_arrival())
        } else if path < unusual {
            let mut arrival = self.pool_arrival();
            arrival.bytes = frame::unusual(&mut self.rng, arrival.bytes);
            arrival
        } else {
            self.pool_arrival()
        };
        let prediction = self.send(&arrival);
        let outcome = Outcome { verdict: prediction.verdict, outputs: prediction.outputs, events: Vec::new() };
        (arrival, outcome)
    }

    fn send(&mut self, arrival: &Arrival) -> Prediction {
        self.time_ns = self.time_ns.max(arrival.time_ns);
        self.count_deadline(arrival);
        let prediction = self.walker.apply(arrival);
        self.counts.packets += 1;
        self.counts.in_rows += u64::from(prediction.matches_row());
        for visit in &prediction.visits {
            if let Some(row) = visit.row {
                self.rows.entry((visit.element, row, visit.state)).or_default().hits += 1;
            }
        }
        prediction
    }

    /// Counts the contexts that expire when `arrival` meets them.
    fn count_deadline(&mut self, arrival: &Arrival) {
        let prediction = self.walker.predict(arrival);
        for visit in &prediction.visits {
            let Some(table) = &self.walker.tables[visit.element] else { continue };
            let Some(context) = visit.key.as_ref().and_then(|key| table.contexts.get(key)) else { continue };
            if let Some((timer, deadline)) = context.deadline()
                && deadline <= arrival.time_ns
            {
                *self.expired.entry((visit.element, context.state, timer)).or_default() += 1;
            }
        }
    }

    /// Time until the next packet: most often short, so that contexts stay alive for later packets.
    fn step(&mut self) -> u64 {
        let longest = self.shortest_timer_ns / 16;
        match self.rng.below(10) {
            0..5 => self.rng.below(100.min(longest + 2)),
            5..9 => self.rng.below(10_000.min(longest / 8 + 2)),
            _ => self.rng.below(longest + 2),
        }
    }

    fn pool_arrival(&mut self) -> Arrival {
        let outlines = Arc::clone(&self.outlines);
        let outline = if self.rng.percent(60) {
            // Prefer outlines with most of the fields that the function mentions, if one exists.
            let fields: Vec<FieldId> = self.mentioned.iter().copied().filter(|_| self.rng.percent(70)).collect();
            let needs = Needs::of(&fields);
            let fitting: Vec<&Outline> = outlines.iter().filter(|o| o.has(&needs)).collect();
            self.rng.pick(&fitting).copied().or(outlines.first())
        } else {
            self.rng.pick(&outlines)
        };
        match outline {
            Some(outline) => self.build_packet(outline, &Requirements::default()),
            None => self.frame_of(&[], &Requirements::default()),
        }
    }

    /// A packet of `outline` with the required values and, for other fields, values from the pools.
    fn build_packet(&mut self, outline: &Outline, requirements: &Requirements) -> Arrival {
        let function = Arc::clone(&self.walker.function);
        let mut field_values: Vec<FieldValue> = Vec::new();
        let mut port = None;
        for i in 0..self.mentioned.len() {
            let field = self.mentioned[i];
            if self.rng.percent(85)
                && let Some(value) = self.pooled(field)
            {
                if field.source() == Source::PacketPort {
                    port = Some(value as u32);
                } else if outline.allows(&function.graph, (field, value)) {
                    field_values.push((field, value));
                }
            }
        }
        self.build_packet_with(outline, field_values, port, requirements)
    }

    /// A packet of `outline` with these values and this port, overridden by the requirements.
    fn build_packet_with(
        &mut self,
        outline: &Outline,
        mut field_values: Vec<FieldValue>,
        mut port: Option<u32>,
        requirements: &Requirements,
    ) -> Arrival {
        for &(field, value) in &requirements.fields {
            if field.source() == Source::PacketPort {
                port = Some(value as u32);
            } else {
                field_values.retain(|&(other, _)| !overlap(other, field));
                field_values.push((field, value));
            }
        }
        // Values are written in order, so the last one for a field counts.
        let function = Arc::clone(&self.walker.function);
        let bytes = outline.build(&function.graph, &mut self.rng, &field_values);
        let ports = u64::from(self.options.ports.max(1));
        let port = port.unwrap_or_else(|| self.rng.below(ports) as u32);
        let time_ns = requirements.time_ns.filter(|&t| t >= self.time_ns).unwrap_or(self.time_ns);
        Arrival { time_ns, port: Port(port), bytes }
    }

    /// A packet that has all of `fields` and the required values, of a random outline that allows it.
    fn frame_of(&mut self, fields: &[FieldId], requirements: &Requirements) -> Arrival {
        let function = Arc::clone(&self.walker.function);
        let outlines = Arc::clone(&self.outlines);
        let needs = Needs::of(fields);
        let fitting = |field_values: &[FieldValue]| -> Vec<&Outline> {
            let allows = |outline: &&Outline| {
                outline.has(&needs)
                    && field_values.iter().all(|&field_value| outline.allows(&function.graph, field_value))
            };
            outlines.iter().filter(allows).collect()
        };
        let mut found = fitting(&requirements.fields);
        if found.is_empty() {
            found = fitting(&[]);
        }
        if found.is_empty() {
            found = outlines.iter().collect();
        }
        match self.rng.pick(&found).copied() {
            Some(outline) => self.build_packet(outline, requirements),
            None => Arrival { time_ns: self.time_ns, port: Port(0), bytes: Vec::new() },
        }
    }

    fn pooled(&mut self, field: FieldId) -> Option<u128> {
        self.pools.get(&field).and_then(|pool| self.rng.pick(pool)).copied()
    }

    /// Aims at the row with the fewest hits and tries; falls back to advancing a context, then to any packet that takes
    /// some row.
    fn aim(&mut self) -> Arrival {
        let mut candidates: Vec<((usize, usize, u16), u64)> =
            self.rows.iter().map(|(&k, n)| (k, n.hits + n.tries / if n.hits == 0 { 4 } else { 16 })).collect();
        candidates.sort_by_key(|&(_, n)| n);
        // Occasionally take the rarest row for which some context is ready: contexts are not ready for long.
        let ready = if self.rng.percent(40) {
            candidates.iter().map(|&(k, _)| k).take(8).find(|&(e, r, s)| self.ready_context(e, r, s, &[]).is_some())
        } else {
            None
        };
        let scope = if self.rng.percent(50) { 2 } else { candidates.len() };
        let any = self.rng.pick(&candidates[..scope.min(candidates.len())]).map(|&(k, _)| k);
        let Some((element, row, state)) = ready.or(any) else { return self.pool_arrival() };
        self.counts.aimed += 1;
        let mut last = None;
        for _ in 0..2 {
            let Some(arrival) = self.try_row(element, row, state) else { break };
            if let Some(n) = self.rows.get_mut(&(element, row, state)) {
                n.tries += 1;
            }
            let prediction = self.walker.predict(&arrival);
            if hit(&prediction, element, row, state) {
                self.counts.aimed_hit += 1;
                return arrival;
            }
            if prediction.matches_row() {
                last = Some(arrival);
            }
        }
        if self.rng.percent(60)
            && let Some(arrival) = self.approach(element, row, state)
        {
            return arrival;
        }
        for _ in 0..3 {
            let Some(arrival) = self.move_on(element, row) else { break };
            let prediction = self.walker.predict(&arrival);
            if prediction.visits.iter().any(|v| v.element == element && v.row.is_some()) {
                return arrival;
            }
            if prediction.matches_row() {
                last = Some(arrival);
            }
        }
        if let Some(arrival) = last {
            return arrival;
        }
        for _ in 0..4 {
            let arrival = self.pool_arrival();
            if self.walker.predict(&arrival).matches_row() {
                return arrival;
            }
        }
        self.pool_arrival()
    }

    /// A packet that should take `row` in `state`; `None` where no context is ready for it.
    fn try_row(&mut self, element: usize, row: usize, state: u16) -> Option<Arrival> {
        let (key, context) = self.ready_context(element, row, state, &[])?;
        Some(self.repaired_packet(&Goal::new(element, row, state, key), &context, &[], MAX_REPAIRS))
    }

    /// A packet for the goal that meets this context, repaired until it does or no repair applies.
    fn repaired_packet(&mut self, goal: &Goal, context: &Context, extra: &[FieldId], max_repairs: u32) -> Arrival {
        let (arrival, path) = self.packet_for(goal.element, goal.row, goal.key.clone(), context, extra);
        self.steer(arrival, &path.rows, goal, max_repairs)
    }

    /// A packet for `row` that meets this context, or an absent one where there is no key; it also has the `extra`
    /// fields.
    fn packet_for(
        &mut self,
        element: usize,
        row: usize,
        key: Option<Vec<u8>>,
        context: &Context,
        extra: &[FieldId],
    ) -> (Arrival, Path) {
        let function = Arc::clone(&self.walker.function);
        let no_layers = Layers::parse(Graph::standard(), &[]);
        let target = &function.elements[element].rows[row];
        let mut path = Path::default();
        let parts = key.as_ref().map_or_else(Vec::new, |key| self.metadata_of_key(element, key));
        let conditions = [&target.conditions[..], &parts].concat();
        for _ in 0..16 {
            path = self.path_to(element, &conditions);
            let values = self.walker.values_of(element, context, &no_layers);
            if solve::conditions_hold(&path.conditions, &values)
                && !path.path_conditions.iter().any(solve::is_impossible)
            {
                break;
            }
        }
        let mut requirements = Requirements::default();
        let mut fields: Vec<FieldId> = extra.to_vec();
        let sample = key.as_ref().and_then(|key| self.sample(element, key));
        fields.extend(function.elements[element].stateful.iter().flat_map(|s| &s.key).flat_map(|k| k.fields()));
        if let Some(sample) = &sample {
            requirements.fields = self.key_fields_of(element, sample);
        }
        // Metadata in the key may depend on state of an earlier element for the sample.
        if let (Some(sample), false) = (&sample, parts.is_empty())
            && self.rng.percent(50)
        {
            let layers = Layers::parse(&function.graph, &sample.bytes);
            let read = |&field: &FieldId| Some((field, layers.read(&sample.bytes, sample.port.0, field)?));
            requirements.fields.extend(self.mentioned.iter().filter_map(read));
        }
        for &(e, r) in &path.rows {
            let default = self.walker.default_context(e);
            let values = self.walker.values_of(e, &default, &no_layers);
            let found = solve::solve(&mut self.rng, &function.elements[e].rows[r].conditions, &values);
            requirements.add(found);
            fields.extend(self.walker.fields_of_row(e, r));
        }
        let values = self.walker.values_of(element, context, &no_layers);
        requirements.add(solve::solve(&mut self.rng, &path.conditions, &values));
        fields.extend(self.walker.fields_of_row(element, row));
        self.limit_jump(&mut requirements);
        // A context that would expire before that time is kept alive by a packet just before its deadline.
        if let (Some(time), Some((Timer::Idle, deadline))) = (requirements.time_ns, context.deadline())
            && deadline > self.time_ns
        {
            requirements.time_ns = Some(time.min(deadline - 1));
        }
        (self.frame_of(&fields, &requirements), path)
    }

    /// A long jump in time expires most contexts: allow it rarely, and never beyond a minute.
    fn limit_jump(&mut self, requirements: &mut Requirements) {
        let jump = requirements.time_ns.map_or(0, |t| t.saturating_sub(self.time_ns));
        if jump > 60_000_000_000 || (jump > self.shortest_timer_ns && self.rng.percent(90)) {
            requirements.time_ns = None;
        }
    }

    /// A random path from the first element to `element`, and the conditions that remain of `conditions` after
    /// substituting the metadata that is written on the path.
    fn path_to(&mut self, element: usize, conditions: &[Condition]) -> Path {
        let function = Arc::clone(&self.walker.function);
        let mut path = Path { conditions: conditions.to_vec(), ..Path::default() };
        let mut at = element;
        while at > 0 {
            let leads = |actions: &Actions| matches!(actions.terminal, Terminal::Goto(to) if usize::from(to) == at);
            let mut from: Vec<(usize, Option<usize>)> = Vec::new();
            for (e, before) in function.elements[..at].iter().enumerate() {
                let rows = before.rows.iter().enumerate().filter(|(_, row)| leads(&row.actions));
                from.extend(rows.map(|(r, _)| (e, Some(r))));
                if leads(&before.otherwise.actions) {
                    from.push((e, None));
                }
            }
            let Some(&(e, r)) = self.rng.pick(&from) else { break };
            let before = &function.elements[e];
            let actions = r.map_or(&before.otherwise.actions, |r| &before.rows[r].actions);
            for condition in path.conditions.iter_mut().chain(&mut path.path_conditions) {
                solve::substitute(condition, &actions.writes);
            }
            path.path_conditions.extend(r.iter().flat_map(|&r| before.rows[r].conditions.clone()));
            path.rows.extend(r.map(|r| (e, r)));
            at = e;
        }
        // Metadata that no row has written has its initial value.
        for condition in path.conditions.iter_mut().chain(&mut path.path_conditions) {
            solve::start(condition, &function.metadata);
        }
        path
    }

    /// Conditions on metadata for the key of `element` to be this one.
    fn metadata_of_key(&self, element: usize, key: &[u8]) -> Vec<Condition> {
        let function = &self.walker.function;
        let Some(stateful) = &function.elements[element].stateful else { return Vec::new() };
        let (Some(declared), Some(spec)) = (&stateful.key, layout::key_spec(function, stateful)) else {
            return Vec::new();
        };
        let parts = declared.parts.iter().zip(spec.parts()).zip(spec.offsets_bytes());
        let of = |((declared, part), &at): ((&KeyPart, &flowloom_wire::KeyPart), &usize)| match declared {
            KeyPart::Metadata(i) => Some(solve::key_part(*i, key.get(at..at + part.key_bytes())?)),
            KeyPart::Field(_) => None,
        };
        parts.filter_map(of).collect()
    }

    fn sample(&self, element: usize, key: &[u8]) -> Option<Arrival> {
        self.walker.tables[element].as_ref()?.samples.get(key).cloned()
    }

    /// A packet that meets a live context 1 ns before, on or 1 ns after its deadline; prefers the least-tested
    /// deadline.
    fn at_deadline(&mut self) -> Option<Arrival> {
        let mut least: Option<(u64, usize, Vec<u8>, u64)> = None;
        for (element, table) in self.walker.tables.iter().enumerate() {
            let Some(table) = table else { continue };
            let some: Vec<_> = some_contexts(table, self.focus[element].as_ref(), &mut self.rng).collect();
            for (key, context) in some {
                let Some((timer, deadline)) = context.deadline() else { continue };
                if deadline <= self.time_ns || !table.samples.contains_key(key) {
                    continue;
                }
                let seen = self.expired.get(&(element, context.state, timer)).copied().unwrap_or(0);
                let seen = seen * 4 + self.rng.below(4);
                if least.as_ref().is_none_or(|(n, ..)| seen < *n) {
                    least = Some((seen, element, key.clone(), deadline));
                }
            }
        }
        let (seen, element, key, deadline) = least?;
        // Each wait for a deadline expires other contexts, too: rarely repeat it once it is well covered.
        if seen > 8 * ENOUGH_HITS && self.rng.percent(90) {
            return None;
        }
        let time_ns = (deadline - 1).saturating_add(self.rng.below(3)).max(self.time_ns);
        let context = self.walker.tables[element].as_ref()?.contexts.get(&key).cloned()?;
        let mut arrival = self.sample(element, &key)?;
        arrival.time_ns = time_ns;
        // By then state of an earlier element that led the sample to this key may have expired.
        for _ in 0..4 {
            let prediction = self.walker.predict(&arrival);
            if prediction.visits.iter().any(|visit| visit.element == element && visit.key.as_ref() == Some(&key)) {
                break;
            }
            let row = self.rng.index(self.walker.function.elements[element].rows.len());
            arrival = self.packet_for(element, row, Some(key.clone()), &context, &[]).0;
            arrival.time_ns = time_ns;
        }
        Some(arrival)
    }
}

/// At most [`MAX_CONTEXTS_EXAMINED`] contexts of a table, starting at a random key, and the one in focus. Sampling
/// bounds the cost however large the table grows.
fn some_contexts<'t>(
    table: &'t Table,
    focus: Option<&Vec<u8>>,
    rng: &mut Rng,
) -> impl Iterator<Item = (&'t Vec<u8>, &'t Context)> {
    let start = match table.contexts.last_key_value() {
        // Keys share long prefixes: a known prefix with a random tail falls between them.
        Some((last, _)) if table.contexts.len() > MAX_CONTEXTS_EXAMINED => {
            let head = rng.index(last.len());
            last.iter().enumerate().map(|(i, &b)| if i < head { b } else { rng.below(256) as u8 }).collect()
        }
        _ => Vec::new(),
    };
    let focus = focus.and_then(|key| table.contexts.get_key_value(key)).filter(|(key, _)| **key < start);
    let (after, before) = (table.contexts.range(start.clone()..), table.contexts.range(..start));
    focus.into_iter().chain(after.chain(before).take(MAX_CONTEXTS_EXAMINED))
}

impl StimulusCounts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: StimulusCounts) {
        self.packets += other.packets;
        self.in_rows += other.in_rows;
        self.aimed += other.aimed;
        self.aimed_hit += other.aimed_hit;
    }
}

fn hit(prediction: &Prediction, element: usize, row: usize, state: u16) -> bool {
    prediction.visits.iter().any(|v| v.element == element && v.row == Some(row) && v.state == state)
}

/// True if two names can denote bits of the same field.
fn overlap(a: FieldId, b: FieldId) -> bool {
    let concrete = |f: FieldId| if f.alternatives().is_empty() { vec![f] } else { f.alternatives().to_vec() };
    a == b || concrete(a).iter().any(|x| concrete(b).contains(x))
}

fn shortest_timer(function: &Function) -> u64 {
    let timers = function.elements.iter().flat_map(|e| &e.rows).flat_map(|row| match row.next {
        flowloom_efsm::model::NextState::To { idle_ns, hard_ns, .. } => [idle_ns, hard_ns],
        flowloom_efsm::model::NextState::Stay => [None, None],
    });
    timers.flatten().min().unwrap_or(1_000_000_000)
}
