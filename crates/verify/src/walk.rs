// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A second implementation of the semantics, instrumented.
//!
//! The stimulus needs to predict the effect of a packet before it is sent, and to count its coverage. The [`Walker`]
//! does both. It is never the reference of a comparison. It was written from the same specification and shares no code
//! with the reference machine, and tests compare the two.
//!
//! A packet visits every element at most once, so [`Walker::predict`] predicts all effects without changing state;
//! [`Walker::apply`] then applies them.

mod steps;
mod values;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_efsm::layout;
use flowloom_efsm::model::{
    Destination, Element, Expr, Function, KeyPart, NewValue, NextState, Policy, Row, Stateful, Terminal, Wide, Width,
    Write, WriteTarget,
};
use flowloom_engine::{Output, Port, Ports, Verdict};
use flowloom_wire::field::FieldId;
use flowloom_wire::{KeySpec, Layers, rewrite};

use crate::arrival::{Arrival, Clock};
use steps::{PredictedStep, step_name};
use values::cut_wide;
pub(crate) use values::{Values, reads_packet, sign_extend};

use crate::hits::{Hit, Hits, Tick, Timer};
use crate::solve;

/// The state of one flow in one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) state: u16,
    pub(crate) registers: Vec<u128>,
    pub(crate) idle: Option<Idle>,
    pub(crate) hard_ns: Option<u64>,
    /// Time of the last packet that found it.
    touched_ns: u64,
}

/// A running idle timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Idle {
    pub(crate) deadline_ns: u64,
    pub(crate) period_ns: u64,
}

impl Context {
    fn default_of(stateful: &Stateful) -> Context {
        let registers = stateful.registers.iter().map(|r| r.initial).collect();
        Context { state: 0, registers, idle: None, hard_ns: None, touched_ns: 0 }
    }

    fn is_default(&self, stateful: &Stateful) -> bool {
        *self == Context { touched_ns: self.touched_ns, ..Context::default_of(stateful) }
    }

    /// The context that remains at `now_ns`, and the timers that expired before.
    fn aged(mut self, stateful: &Stateful, now_ns: u64) -> (Option<Context>, Vec<Timer>) {
        let Some(first) = self.expired(now_ns) else { return (Some(self), Vec::new()) };
        let next = stateful.successors.get(usize::from(self.state)).copied().flatten();
        let (Some(next), Some((_, since_ns))) = (next, self.deadline()) else { return (None, vec![first]) };
        self.state = next.state;
        self.idle = next.idle_ns.map(|period_ns| Idle { deadline_ns: since_ns.saturating_add(period_ns), period_ns });
        self.hard_ns = next.hard_ns.map(|ns| since_ns.saturating_add(ns));
        match self.expired(now_ns) {
            None => (Some(self), vec![first]),
            Some(second) => (None, vec![first, second]),
        }
    }

    fn expired(&self, now_ns: u64) -> Option<Timer> {
        if self.idle.is_some_and(|idle| now_ns >= idle.deadline_ns) {
            return Some(Timer::Idle);
        }
        self.hard_ns.is_some_and(|deadline| now_ns >= deadline).then_some(Timer::Hard)
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self) -> Option<(Timer, u64)> {
        match (self.idle, self.hard_ns) {
            (Some(idle), Some(hard)) if hard < idle.deadline_ns => Some((Timer::Hard, hard)),
            (Some(idle), _) => Some((Timer::Idle, idle.deadline_ns)),
            (None, hard) => hard.map(|deadline| (Timer::Hard, deadline)),
        }
    }
}

/// State of one element.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    key: Option<KeySpec>,
    pub(crate) contexts: BTreeMap<Vec<u8>, Context>,
    pub(crate) globals: Vec<u128>,
    /// For each key, a packet that had it, as it arrived.
    pub(crate) samples: BTreeMap<Vec<u8>, Arrival>,
}

/// Effect of a packet in one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Visit {
    pub(crate) element: usize,
    pub(crate) state: u16,
    /// The row that was taken; `None` for `otherwise`.
    pub(crate) row: Option<usize>,
    pub(crate) key: Option<Vec<u8>>,
    /// The context to store, or `None` to remove it; outer `None` for no change.
    context: Option<Option<Context>>,
    evicted: Option<Vec<u8>>,
    globals: Option<Vec<u128>>,
}

/// Inputs of one element's conditions and writes.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    /// The frame at the entry of the element.
    pub(crate) bytes: Vec<u8>,
    pub(crate) metadata: Vec<u128>,
    /// Registers and global registers, before the packet and after it.
    registers: [Vec<u128>; 2],
    globals: [Vec<u128>; 2],
    state: u16,
    now_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prediction {
    pub(crate) visits: Vec<Visit>,
    pub(crate) verdict: Verdict,
    pub(crate) outputs: Vec<Output>,
}

impl Prediction {
    /// True if the packet took a row in some element.
    pub(crate) fn matches_row(&self) -> bool {
        self.visits.iter().any(|visit| visit.row.is_some())
    }
}

/// Predicts the effects of packets, and counts coverage.
#[derive(Debug, Clone)]
pub(crate) struct Walker {
    pub(crate) function: Arc<Function>,
    pub(crate) tables: Vec<Option<Table>>,
    pub(crate) hits: Hits,
    clock: Clock,
    pub(crate) now_ns: u64,
    row_fields: Vec<Vec<Vec<FieldId>>>,
    ports: Ports,
}

/// Maximum number of samples per element; those of keys met long ago are dropped.
const MAX_SAMPLES: usize = 64;

impl Walker {
    pub(crate) fn new(function: Arc<Function>, sweep_ns: Option<u64>) -> Walker {
        let table = |element: &Element| {
            let stateful = element.stateful.as_ref()?;
            let loaded = stateful.preloaded.iter().map(|p| {
                let registers = p.registers.clone();
                (p.key.clone(), Context { state: p.state, registers, ..Context::default_of(stateful) })
            });
            Some(Table {
                key: layout::key_spec(&function, stateful),
                contexts: loaded.collect(),
                globals: stateful.globals.iter().map(|g| g.initial).collect(),
                samples: BTreeMap::new(),
            })
        };
        let tables = function.elements.iter().map(table).collect();
        let row_fields = function.elements.iter().map(|e| e.rows.iter().map(Row::fields).collect()).collect();
        Walker {
            function,
            tables,
            hits: Hits::default(),
            clock: Clock::new(sweep_ns),
            now_ns: 0,
            row_fields,
            ports: Ports::default(),
        }
    }

    /// Predicts the effect of `arrival` without changing state.
    pub(crate) fn predict(&self, arrival: &Arrival) -> Prediction {
        let mut clock = self.clock.clone();
        let (now_ns, swept_ns) = clock.advance(arrival.time_ns);
        self.walk(arrival, now_ns, swept_ns.unwrap_or(0), None, None)
    }

    /// Like [`Walker::predict`], with the inputs of each element.
    pub(crate) fn predict_stages(&self, arrival: &Arrival) -> (Prediction, Vec<Stage>) {
        let mut clock = self.clock.clone();
        let (now_ns, swept_ns) = clock.advance(arrival.time_ns);
        let mut stages = Vec::new();
        let prediction = self.walk(arrival, now_ns, swept_ns.unwrap_or(0), None, Some(&mut stages));
        (prediction, stages)
    }

    pub(crate) fn apply(&mut self, arrival: &Arrival) -> Prediction {
        let (now_ns, sweep) = self.clock.advance(arrival.time_ns);
        self.now_ns = now_ns;
        if let Some(moment_ns) = sweep {
            for (element, table) in self.function.elements.iter().zip(&mut self.tables) {
                let (Some(stateful), Some(table)) = (&element.stateful, table) else { continue };
                let contexts = std::mem::take(&mut table.contexts).into_iter();
                table.contexts = contexts.filter_map(|(key, c)| Some((key, c.aged(stateful, moment_ns).0?))).collect();
            }
        }
        let hits = RefCell::new(std::mem::take(&mut self.hits));
        let prediction = self.walk(arrival, now_ns, 0, Some(&hits), None);
        self.hits = hits.into_inner();
        for visit in &prediction.visits {
            let Some(table) = &mut self.tables[visit.element] else { continue };
            if let Some(globals) = &visit.globals {
                table.globals.clone_from(globals);
            }
            let Some(key) = &visit.key else { continue };
            if let Some(victim) = &visit.evicted {
                table.contexts.remove(victim);
            }
            match &visit.context {
                Some(Some(context)) => drop(table.contexts.insert(key.clone(), context.clone())),
                Some(None) => drop(table.contexts.remove(key)),
                None => {}
            }
            table.samples.insert(key.clone(), arrival.clone());
            if table.samples.len() > MAX_SAMPLES.max(2 * table.contexts.len()) {
                let Table { contexts, samples, .. } = table;
                samples.retain(|k, _| contexts.contains_key(k));
            }
        }
        prediction
    }

    fn walk(
        &self,
        arrival: &Arrival,
        now_ns: u64,
        swept_ns: u64,
        hits: Option<&RefCell<Hits>>,
        mut stages: Option<&mut Vec<Stage>>,
    ) -> Prediction {
        let count = |hit| {
            if let Some(hits) = hits {
                hits.borrow_mut().count(hit);
            }
        };
        let mut bytes = arrival.bytes.clone();
        let mut layers = Layers::parse(&self.function.graph, &bytes);
        let mut metadata: Vec<u128> = self.function.metadata.iter().map(|m| m.initial).collect();
        let mut visits = Vec::new();
        let mut element = 0;
        let mut outputs = Vec::new();
        let verdict = loop {
            let visited =
                self.visit_element(element, &bytes, &layers, arrival.port.0, now_ns, swept_ns, &metadata, hits);
            let globals_before: &[u128] = self.tables[element].as_ref().map_or(&[], |table| &table.globals);
            if let Some(stages) = &mut stages {
                stages.push(Stage {
                    bytes: bytes.clone(),
                    metadata: metadata.clone(),
                    registers: [visited.before.clone(), visited.registers.clone()],
                    globals: [globals_before.to_vec(), visited.globals.clone()],
                    state: visited.visit.state,
                    now_ns,
                });
            }
            let actions = match visited.visit.row {
                Some(row) => {
                    count(Hit::Row);
                    &self.function.elements[element].rows[row].actions
                }
                None => &self.function.elements[element].otherwise.actions,
            };
            let stateful = self.function.elements[element].stateful.as_ref();
            let values = Values {
                bytes: &bytes,
                layers: &layers,
                port: arrival.port.0,
                now_ns,
                metadata: &metadata,
                metadata_vars: &self.function.metadata,
                registers: &visited.registers,
                register_vars: stateful.map_or(&[], |s| &s.registers),
                globals: &visited.globals,
                old: (&visited.before, globals_before),
                global_vars: stateful.map_or(&[], |s| &s.globals),
                state: visited.visit.state,
                is_full: false,
                hits,
            };
            let mut fields = Vec::new();
            let mut after = metadata.clone();
            for write in &actions.writes {
                let value = values.new_value(&write.value);
                match write.target {
                    WriteTarget::Metadata(i) => {
                        let ty = self.function.metadata[usize::from(i)].ty;
                        after[usize::from(i)] = cut_wide(value, ty.width_bits);
                    }
                    WriteTarget::Field(field) => {
                        count(Hit::FieldWritten(field));
                        fields.push((field, value));
                    }
                }
            }
            let steps: Vec<PredictedStep> =
                actions.steps.iter().filter_map(|step| values.predict_step(step, &self.function.graph)).collect();
            let to = match &actions.terminal {
                Terminal::Forward(to) => values.eval(to, Width::W32) as u32,
                _ => arrival.port.0,
            };
            metadata = after;
            if !fields.is_empty() {
                rewrite(&mut bytes, &layers, &fields);
            }
            for (step, predicted) in actions.steps.iter().zip(steps) {
                count(Hit::Step(step_name(&step.kind)));
                let sent = predicted.apply(&mut bytes, &layers);
                outputs.extend(sent.into_iter().filter(|output| self.ports.is_bound(output.port)));
                if step.changes_frame() {
                    layers = Layers::parse(&self.function.graph, &bytes);
                }
            }
            visits.push(visited.visit);
            let (name, verdict, ports) = match &actions.terminal {
                Terminal::Goto(next) => {
                    count(Hit::Goto);
                    element = usize::from(*next);
                    continue;
                }
                Terminal::Drop => ("drop", Verdict::Drop, Vec::new()),
                Terminal::Pass => ("pass", Verdict::Pass, vec![arrival.port]),
                Terminal::Punt => ("punt", Verdict::Pass, vec![arrival.port]),
                Terminal::Reply => ("reply", Verdict::Tx, vec![arrival.port]),
                Terminal::Forward(_) if self.ports.is_bound(Port(to)) => ("forward", Verdict::Redirect, vec![Port(to)]),
                Terminal::Forward(_) => ("forward", Verdict::Aborted, Vec::new()),
                Terminal::Flood => ("flood", Verdict::Redirect, self.ports.flooded(arrival.port)),
            };
            count(Hit::Terminal(name));
            outputs.extend(ports.into_iter().map(|port| Output { port, bytes: bytes.clone() }));
            break verdict;
        };
        Prediction { visits, verdict, outputs }
    }

    #[allow(clippy::too_many_arguments)] // the whole state of a packet at this point
    fn visit_element(
        &self,
        index: usize,
        bytes: &[u8],
        layers: &Layers,
        port: u32,
        now_ns: u64,
        swept_ns: u64,
        metadata: &[u128],
        hits: Option<&RefCell<Hits>>,
    ) -> VisitResult {
        let element = &self.function.elements[index];
        let metadata_vars = &self.function.metadata;
        let mut values = Values { bytes, port, now_ns, metadata, metadata_vars, hits, ..Values::none(layers) };
        let mut visit =
            Visit { element: index, state: 0, row: None, key: None, context: None, evicted: None, globals: None };
        let (Some(stateful), Some(table)) = (&element.stateful, &self.tables[index]) else {
            visit.row = self.first_match(index, &values, None);
            if visit.row.is_none() {
                values.count(Hit::NoMatch);
            }
            return VisitResult::unchanged(visit, Vec::new(), Vec::new());
        };
        let key = match &table.key {
            None => Some(vec![0; 4]),
            Some(spec) => {
                let parts = stateful.key.iter().flat_map(|key| &key.parts);
                let values: Vec<u128> = parts
                    .filter_map(|part| match part {
                        KeyPart::Metadata(i) => Some(metadata[usize::from(*i)]),
                        KeyPart::Field(_) => None,
                    })
                    .collect();
                spec.extract(layers, bytes, port, &values)
            }
        };
        let Some(key) = key else {
            values.count(Hit::NoKey);
            return VisitResult::unchanged(visit, Vec::new(), Vec::new());
        };
        for field in table.key.iter().flat_map(|spec| spec.parts()).filter_map(|part| part.field()) {
            values.count(Hit::KeyField(field));
        }
        // A sweep at `swept_ns` comes first; 0 means none.
        let swept = |context: &Context| match swept_ns {
            0 => Some(context.clone()),
            _ => context.clone().aged(stateful, swept_ns).0,
        };
        let stored = table.contexts.get(&key).and_then(swept);
        for (timer, deadline) in stored.iter().flat_map(|c| {
            [c.idle.map(|idle| (Timer::Idle, idle.deadline_ns)), c.hard_ns.map(|d| (Timer::Hard, d))]
                .into_iter()
                .flatten()
        }) {
            match now_ns as i128 - deadline as i128 {
                -1 => values.count(Hit::Tick(timer, Tick::Before)),
                0 => values.count(Hit::Tick(timer, Tick::At)),
                1 => values.count(Hit::Tick(timer, Tick::After)),
                _ => {}
            }
        }
        let (live, expired) = stored.map_or((None, Vec::new()), |context| context.aged(stateful, now_ns));
        for timer in expired {
            values.count(Hit::TimerExpired(timer));
            visit.context = Some(live.clone());
        }
        let is_live = live.is_some();
        let mut before = live.unwrap_or_else(|| Context::default_of(stateful));
        if stateful.policy == Policy::EvictOldest {
            before.touched_ns = now_ns;
            if is_live {
                visit.context = Some(Some(before.clone()));
            }
        }
        let room = if stateful.key.is_some() { stateful.size as usize } else { 1 };
        // Count other contexts only in a full table: most tables never fill.
        let others: Vec<(&Vec<u8>, Context)> = if table.contexts.len() < room {
            Vec::new()
        } else {
            table.contexts.iter().filter(|(k, _)| **k != key).filter_map(|(k, c)| Some((k, swept(c)?))).collect()
        };
        let is_full = !is_live && others.len() >= room;
        if let Some(idle) = &mut before.idle {
            idle.deadline_ns = now_ns.saturating_add(idle.period_ns);
            visit.context = Some(Some(before.clone()));
            values.count(Hit::IdleRearmed);
        }
        visit.key = Some(key);
        visit.state = before.state;
        values.registers = &before.registers;
        values.register_vars = &stateful.registers;
        values.globals = &table.globals;
        values.global_vars = &stateful.globals;
        values.state = before.state;
        values.is_full = is_full;
        visit.row = self.first_match(index, &values, Some(before.state));
        let Some(row) = visit.row else {
            values.count(Hit::NoMatch);
            return VisitResult::unchanged(visit, before.registers, table.globals.clone());
        };
        let row = &element.rows[row];
        let mut after = before.clone();
        let mut globals = table.globals.clone();
        for update in &row.updates {
            let value = values.new_value(&update.value);
            match update.destination {
                Destination::Register(i) => {
                    let i = usize::from(i);
                    after.registers[i] = cut_wide(value, stateful.registers[i].ty.width_bits);
                }
                Destination::Global(i) => {
                    let i = usize::from(i);
                    globals[i] = cut_wide(value, stateful.globals[i].ty.width_bits);
                }
            }
        }
        if let NextState::To { state, idle_ns, hard_ns } = row.next {
            after.state = state;
            after.idle = idle_ns.map(|period_ns| Idle { deadline_ns: now_ns.saturating_add(period_ns), period_ns });
            after.hard_ns = hard_ns.map(|ns| now_ns.saturating_add(ns));
            if idle_ns.is_some() {
                values.count(Hit::TimerSet(Timer::Idle));
            }
            if hard_ns.is_some() {
                values.count(Hit::TimerSet(Timer::Hard));
            }
        }
        let is_default = after.is_default(stateful);
        match (is_live, is_default) {
            (false, true) => {}
            (false, false) if is_full && stateful.policy == Policy::Reject => {
                values.count(Hit::Rejected);
                return VisitResult::unchanged(visit, before.registers, table.globals.clone());
            }
            (true, true) => {
                values.count(Hit::Removed);
                visit.context = Some(None);
            }
            (_, false) => {
                if !is_live {
                    values.count(Hit::Created);
                }
                if is_full {
                    values.count(Hit::Evicted);
                    visit.evicted = victim(stateful, &others).cloned();
                }
                visit.context = Some(Some(after.clone()));
            }
        }
        visit.globals = Some(globals.clone());
        VisitResult { visit, before: before.registers, registers: after.registers, globals }
    }

    fn first_match(&self, index: usize, values: &Values<'_>, state: Option<u16>) -> Option<usize> {
        let rows = &self.function.elements[index].rows;
        (0..rows.len()).find(|&i| self.matches(index, i, values, state))
    }

    fn matches(&self, index: usize, row: usize, values: &Values<'_>, state: Option<u16>) -> bool {
        let present = self.row_fields[index][row].iter().all(|&f| values.layers.is_present(f));
        let row = &self.function.elements[index].rows[row];
        state.is_none_or(|s| row.states.contains(&s)) && present && row.conditions.iter().all(|c| values.holds(c))
    }

    pub(crate) fn fields_of_row(&self, index: usize, row: usize) -> &[FieldId] {
        &self.row_fields[index][row]
    }

    /// Inputs of conditions on a context, without any packet.
    pub(crate) fn values_of<'a>(&'a self, index: usize, context: &'a Context, no_layers: &'a Layers) -> Values<'a> {
        let stateful = self.function.elements[index].stateful.as_ref();
        Values {
            now_ns: self.now_ns,
            registers: &context.registers,
            register_vars: stateful.map_or(&[], |s| &s.registers),
            globals: self.tables[index].as_ref().map_or(&[], |t| &t.globals),
            global_vars: stateful.map_or(&[], |s| &s.globals),
            state: context.state,
            ..Values::none(no_layers)
        }
    }

    /// Inputs of conditions of element `index` for a packet; `layers` are those of the stage's bytes.
    pub(crate) fn values_at<'a>(&'a self, index: usize, stage: &'a Stage, layers: &'a Layers, port: u32) -> Values<'a> {
        self.values_in(index, stage, layers, port, 0)
    }

    fn values_in<'a>(&'a self, index: usize, stage: &'a Stage, layers: &'a Layers, port: u32, at: usize) -> Values<'a> {
        let stateful = self.function.elements[index].stateful.as_ref();
        Values {
            bytes: &stage.bytes,
            port,
            now_ns: stage.now_ns,
            metadata: &stage.metadata,
            metadata_vars: &self.function.metadata,
            registers: &stage.registers[at],
            register_vars: stateful.map_or(&[], |s| &s.registers),
            globals: &stage.globals[at],
            old: (&stage.registers[0], &stage.globals[0]),
            global_vars: stateful.map_or(&[], |s| &s.globals),
            state: stage.state,
            ..Values::none(layers)
        }
    }

    /// The writes of element `index` in a form that later elements can evaluate: registers are replaced by their
    /// values.
    pub(crate) fn fixed(&self, index: usize, stage: &Stage, writes: &[Write]) -> Vec<Write> {
        let no_layers = Layers::parse(&self.function.graph, &[]);
        let values = self.values_in(index, stage, &no_layers, 0, 1);
        let number = |e: &Expr| {
            let is_foreign = matches!(e, Expr::Register(_) | Expr::Global(_) | Expr::Old(_) | Expr::State)
                || matches!(e, Expr::Word { of: Wide::Register(_) | Wide::Global(_) | Wide::Old(_), .. });
            is_foreign.then(|| Expr::Constant(values.eval(e, Width::W64)))
        };
        let fixed = |value: &NewValue| match value {
            NewValue::Number { value, width } => {
                let mut value = value.clone();
                solve::replace(&mut value, &number);
                NewValue::Number { value, width: *width }
            }
            NewValue::Wide(wide @ (Wide::Register(_) | Wide::Global(_) | Wide::Old(_))) => {
                NewValue::Wide(Wide::Constant(values.wide(*wide)))
            }
            NewValue::Wide(wide) => NewValue::Wide(*wide),
        };
        writes.iter().map(|write| Write { value: fixed(&write.value), ..write.clone() }).collect()
    }

    /// The default context of element `index`; one without registers for a stateless element.
    pub(crate) fn default_context(&self, index: usize) -> Context {
        match &self.function.elements[index].stateful {
            Some(stateful) => Context::default_of(stateful),
            None => Context { state: 0, registers: Vec::new(), idle: None, hard_ns: None, touched_ns: 0 },
        }
    }
}

struct VisitResult {
    visit: Visit,
    /// Registers before the packet.
    before: Vec<u128>,
    registers: Vec<u128>,
    globals: Vec<u128>,
}

impl VisitResult {
    /// The result of a visit that changes no register.
    fn unchanged(visit: Visit, registers: Vec<u128>, globals: Vec<u128>) -> VisitResult {
        VisitResult { visit, before: registers.clone(), registers, globals }
    }
}

/// The context that a full table evicts; ties are broken by the least key.
fn victim<'a>(stateful: &Stateful, contexts: &[(&'a Vec<u8>, Context)]) -> Option<&'a Vec<u8>> {
    let number = |context: &Context, i: u16| {
        let ty = stateful.registers[usize::from(i)].ty;
        let value = context.registers[usize::from(i)] as u64;
        if ty.signed { i128::from(sign_extend(value, ty.width_bits.into())) } else { i128::from(value) }
    };
    let rank = |context: &Context| match stateful.policy {
        Policy::Reject | Policy::EvictOldest => i128::from(context.touched_ns),
        Policy::EvictLowest(i) => number(context, i),
        Policy::EvictHighest(i) => -number(context, i),
    };
    contexts.iter().min_by_key(|(_, context)| rank(context)).map(|(key, _)| *key)
}
