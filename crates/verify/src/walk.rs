//! A second reading of the semantics, instrumented.
//!
//! The stimulus needs to know what a packet would do before it is sent, and to count what it exercised on the way. The
//! [`Walker`] tells both. It never judges: comparisons are made with the reference machine. But it was written from the
//! same text and shares no code with it, and tests hold the two against each other.
//!
//! A packet meets every element at most once, so [`Walker::look`] can say all that will happen without changing anything;
//! [`Walker::take`] then makes it so.

mod steps;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_efsm::layout;
use flowloom_efsm::model::{
    BinaryOp, Condition, Destination, Element, Expr, Function, KeyPart, NewValue, NextState, Policy, Relation, Row,
    Stateful, Terminal, Type, Variable, Wide, Width, WriteTarget,
};
use flowloom_engine::{Output, Port, Ports, Verdict};
use flowloom_wire::field::FieldId;
use flowloom_wire::{KeySpec, Layers, rewrite};

use crate::arrival::{Arrival, Clock};
use steps::{Foreseen, step_name};

use crate::hits::{Hit, Hits, Operator, Place, Tick, Timer};

/// The state of one flow in one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) state: u16,
    pub(crate) registers: Vec<u128>,
    pub(crate) idle: Option<Idle>,
    pub(crate) hard_ns: Option<u64>,
    /// When a packet last found it.
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

    /// What is left of it at `now_ns`, and the timers that ran out on the way.
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

    /// The deadline that comes first.
    pub(crate) fn deadline(&self) -> Option<(Timer, u64)> {
        match (self.idle, self.hard_ns) {
            (Some(idle), Some(hard)) if hard < idle.deadline_ns => Some((Timer::Hard, hard)),
            (Some(idle), _) => Some((Timer::Idle, idle.deadline_ns)),
            (None, hard) => hard.map(|deadline| (Timer::Hard, deadline)),
        }
    }
}

/// One element's memory.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    key: Option<KeySpec>,
    pub(crate) contexts: BTreeMap<Vec<u8>, Context>,
    pub(crate) globals: Vec<u128>,
    /// A packet that led to each key, as it arrived.
    pub(crate) samples: BTreeMap<Vec<u8>, Arrival>,
}

/// What a packet did in one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Visit {
    pub(crate) element: usize,
    pub(crate) state: u16,
    /// The row that was taken; `None` for `otherwise`.
    pub(crate) row: Option<usize>,
    pub(crate) key: Option<Vec<u8>>,
    /// The context to store, or `None` to remove it; outer `None` for no change.
    context: Option<Option<Context>>,
    /// The context that made room.
    evicted: Option<Vec<u8>>,
    globals: Option<Vec<u128>>,
}

/// What a packet would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) visits: Vec<Visit>,
    pub(crate) verdict: Verdict,
    pub(crate) outputs: Vec<Output>,
}

impl Look {
    /// Whether the packet took a row in some element.
    pub(crate) fn takes_a_row(&self) -> bool {
        self.visits.iter().any(|visit| visit.row.is_some())
    }
}

/// Predicts what packets do, and counts.
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

/// The samples kept for each element: keys that were met long ago are forgotten.
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

    /// What `arrival` would do now; nothing changes.
    pub(crate) fn look(&self, arrival: &Arrival) -> Look {
        let mut clock = self.clock.clone();
        let (now_ns, swept_ns) = clock.advance(arrival.time_ns);
        self.walk(arrival, now_ns, swept_ns.unwrap_or(0), None)
    }

    /// Makes it so.
    pub(crate) fn take(&mut self, arrival: &Arrival) -> Look {
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
        let look = self.walk(arrival, now_ns, 0, Some(&hits));
        self.hits = hits.into_inner();
        for visit in &look.visits {
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
        look
    }

    fn walk(&self, arrival: &Arrival, now_ns: u64, swept_ns: u64, hits: Option<&RefCell<Hits>>) -> Look {
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
            let meeting = self.meet(element, &bytes, &layers, arrival.port.0, now_ns, swept_ns, &metadata, hits);
            let actions = match meeting.visit.row {
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
                registers: &meeting.registers,
                register_vars: stateful.map_or(&[], |s| &s.registers),
                globals: &meeting.globals,
                global_vars: stateful.map_or(&[], |s| &s.globals),
                state: meeting.visit.state,
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
            let steps: Vec<Foreseen> =
                actions.steps.iter().filter_map(|step| values.foresee(step, &self.function.graph)).collect();
            let to = match &actions.terminal {
                Terminal::Forward(to) => values.eval(to, Width::W32) as u32,
                _ => arrival.port.0,
            };
            metadata = after;
            if !fields.is_empty() {
                rewrite(&mut bytes, &layers, &fields);
            }
            for (step, foreseen) in actions.steps.iter().zip(steps) {
                count(Hit::Step(step_name(&step.kind)));
                let sent = foreseen.take(&mut bytes, &layers);
                outputs.extend(sent.into_iter().filter(|output| self.ports.is_bound(output.port)));
                if step.changes_frame() {
                    layers = Layers::parse(&self.function.graph, &bytes);
                }
            }
            visits.push(meeting.visit);
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
        Look { visits, verdict, outputs }
    }

    #[allow(clippy::too_many_arguments)] // all that a packet is at this point
    fn meet(
        &self,
        index: usize,
        bytes: &[u8],
        layers: &Layers,
        port: u32,
        now_ns: u64,
        swept_ns: u64,
        metadata: &[u128],
        hits: Option<&RefCell<Hits>>,
    ) -> Meeting {
        let count = |hit| {
            if let Some(hits) = hits {
                hits.borrow_mut().count(hit);
            }
        };
        let element = &self.function.elements[index];
        let mut values = Values {
            bytes,
            layers,
            port,
            now_ns,
            metadata,
            metadata_vars: &self.function.metadata,
            registers: &[],
            register_vars: &[],
            globals: &[],
            global_vars: &[],
            state: 0,
            is_full: false,
            hits,
        };
        let mut visit =
            Visit { element: index, state: 0, row: None, key: None, context: None, evicted: None, globals: None };
        let (Some(stateful), Some(table)) = (&element.stateful, &self.tables[index]) else {
            visit.row = self.first_match(index, &values, None);
            if visit.row.is_none() {
                count(Hit::NoMatch);
            }
            return Meeting { visit, registers: Vec::new(), globals: Vec::new() };
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
            count(Hit::NoKey);
            return Meeting { visit, registers: Vec::new(), globals: Vec::new() };
        };
        for field in table.key.iter().flat_map(|spec| spec.parts()).filter_map(|part| part.field()) {
            count(Hit::KeyField(field));
        }
        // A sweep at `swept_ns` comes first; 0 is none.
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
                -1 => count(Hit::Tick(timer, Tick::Before)),
                0 => count(Hit::Tick(timer, Tick::At)),
                1 => count(Hit::Tick(timer, Tick::After)),
                _ => {}
            }
        }
        let (live, run_out) = stored.map_or((None, Vec::new()), |context| context.aged(stateful, now_ns));
        for timer in run_out {
            count(Hit::TimerExpired(timer));
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
        // Counted only where it can matter: most tables never fill.
        let others: Vec<(&Vec<u8>, Context)> = if table.contexts.len() < room {
            Vec::new()
        } else {
            table.contexts.iter().filter(|(k, _)| **k != key).filter_map(|(k, c)| Some((k, swept(c)?))).collect()
        };
        let is_full = !is_live && others.len() >= room;
        if let Some(idle) = &mut before.idle {
            idle.deadline_ns = now_ns.saturating_add(idle.period_ns);
            visit.context = Some(Some(before.clone()));
            count(Hit::IdleRearmed);
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
            count(Hit::NoMatch);
            return Meeting { visit, registers: before.registers, globals: table.globals.clone() };
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
                count(Hit::TimerSet(Timer::Idle));
            }
            if hard_ns.is_some() {
                count(Hit::TimerSet(Timer::Hard));
            }
        }
        let is_default = after.is_default(stateful);
        match (is_live, is_default) {
            (false, true) => {}
            (false, false) if is_full && stateful.policy == Policy::Reject => {
                count(Hit::Rejected);
                return Meeting { visit, registers: before.registers, globals: table.globals.clone() };
            }
            (true, true) => {
                count(Hit::Removed);
                visit.context = Some(None);
            }
            (_, false) => {
                if !is_live {
                    count(Hit::Created);
                }
                if is_full {
                    count(Hit::Evicted);
                    visit.evicted = victim(stateful, &others).cloned();
                }
                visit.context = Some(Some(after.clone()));
            }
        }
        visit.globals = Some(globals.clone());
        Meeting { visit, registers: after.registers, globals }
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

    /// The fields that row `row` of element `index` cannot do without.
    pub(crate) fn fields_of_row(&self, index: usize, row: usize) -> &[FieldId] {
        &self.row_fields[index][row]
    }

    /// The values that conditions on a context see, without any packet.
    pub(crate) fn values_of<'a>(&'a self, index: usize, context: &'a Context, no_layers: &'a Layers) -> Values<'a> {
        let stateful = self.function.elements[index].stateful.as_ref();
        Values {
            bytes: &[],
            layers: no_layers,
            port: 0,
            now_ns: self.now_ns,
            metadata: &[],
            metadata_vars: &[],
            registers: &context.registers,
            register_vars: stateful.map_or(&[], |s| &s.registers),
            globals: self.tables[index].as_ref().map_or(&[], |t| &t.globals),
            global_vars: stateful.map_or(&[], |s| &s.globals),
            state: context.state,
            is_full: false,
            hits: None,
        }
    }

    /// The default context of element `index`, or one without registers for a stateless one.
    pub(crate) fn default_context(&self, index: usize) -> Context {
        match &self.function.elements[index].stateful {
            Some(stateful) => Context::default_of(stateful),
            None => Context { state: 0, registers: Vec::new(), idle: None, hard_ns: None, touched_ns: 0 },
        }
    }
}

struct Meeting {
    visit: Visit,
    registers: Vec<u128>,
    globals: Vec<u128>,
}

/// The context that a full table gives up; of several the first by key.
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

/// All that expressions can read.
pub(crate) struct Values<'a> {
    bytes: &'a [u8],
    layers: &'a Layers,
    port: u32,
    now_ns: u64,
    metadata: &'a [u128],
    metadata_vars: &'a [Variable],
    registers: &'a [u128],
    register_vars: &'a [Variable],
    globals: &'a [u128],
    global_vars: &'a [Variable],
    state: u16,
    is_full: bool,
    hits: Option<&'a RefCell<Hits>>,
}

/// The low bits of a number.
fn cut(value: u64, width_bits: u32) -> u64 {
    value & u64::MAX.checked_shr(64 - width_bits).unwrap_or(0)
}

/// The low bits of a value.
fn cut_wide(value: u128, width_bits: u8) -> u128 {
    value & u128::MAX.checked_shr(128 - u32::from(width_bits)).unwrap_or(0)
}

/// The low bits of a number, read as two's complement.
pub(crate) fn sign_extend(value: u64, width_bits: u32) -> i64 {
    let value = cut(value, width_bits);
    let sign = 1u64 << (width_bits - 1);
    (value ^ sign).wrapping_sub(sign) as i64
}

impl Values<'_> {
    fn count(&self, hit: Hit) {
        if let Some(hits) = self.hits {
            hits.borrow_mut().count(hit);
        }
    }

    fn read(&self, field: FieldId) -> u128 {
        self.count(Hit::FieldRead(field));
        self.layers.read(self.bytes, self.port, field).unwrap_or(0)
    }

    fn variable(&self, place: Place, values: &[u128], vars: &[Variable], i: u16) -> u64 {
        // A missing one is metadata where only a context is known.
        let (Some(&value), Some(variable)) = (values.get(usize::from(i)), vars.get(usize::from(i))) else { return 0 };
        let Type { width_bits, signed } = variable.ty;
        self.count(Hit::variable(place, variable.ty));
        let value = value as u64;
        if signed { sign_extend(value, u32::from(width_bits)) as u64 } else { value }
    }

    pub(crate) fn eval(&self, expr: &Expr, width: Width) -> u64 {
        let bits = width.bits();
        let value = match expr {
            Expr::Constant(c) => *c,
            Expr::Register(i) => self.variable(Place::Register, self.registers, self.register_vars, *i),
            Expr::Global(i) => self.variable(Place::Global, self.globals, self.global_vars, *i),
            Expr::Metadata(i) => self.variable(Place::Metadata, self.metadata, self.metadata_vars, *i),
            Expr::Field(field) => self.read(*field) as u64,
            Expr::Now { unit_ns } => {
                self.count(Hit::Now);
                self.now_ns.checked_div(*unit_ns).unwrap_or(0)
            }
            Expr::State => {
                self.count(Hit::State);
                u64::from(self.state)
            }
            Expr::Not(inner) => {
                self.count(Hit::Operator(Operator::Not, bits));
                self.eval(inner, width) ^ u64::MAX
            }
            Expr::Binary(op, left, right) => {
                self.count(Hit::Operator((*op).into(), bits));
                let (l, r) = (self.eval(left, width), self.eval(right, width));
                let by = u32::try_from(r).unwrap_or(u32::MAX);
                match op {
                    BinaryOp::Add => l.wrapping_add(r),
                    BinaryOp::Sub => l.wrapping_sub(r),
                    BinaryOp::And => l & r,
                    BinaryOp::Or => l | r,
                    BinaryOp::Xor => l ^ r,
                    BinaryOp::ShiftLeft => {
                        if by < bits {
                            l << by
                        } else {
                            0
                        }
                    }
                    BinaryOp::ShiftRight => {
                        if by < bits {
                            l >> by
                        } else {
                            0
                        }
                    }
                }
            }
            Expr::RotateRight { left, right, rotate_bits } => {
                self.count(Hit::Operator(Operator::RotateRight, bits));
                let n = u32::from(*rotate_bits);
                let mut value = cut(self.eval(left, width), n);
                for _ in 0..self.eval(right, width) % u64::from(n.max(1)) {
                    value = value >> 1 | (value & 1) << (n - 1);
                }
                value
            }
            Expr::Extreme { max, signed, left, right } => {
                self.count(Hit::Operator(if *max { Operator::Max } else { Operator::Min }, bits));
                let (l, r) = (self.eval(left, width), self.eval(right, width));
                match (max, signed) {
                    (true, false) => l.max(r),
                    (false, false) => l.min(r),
                    (true, true) => sign_extend(l, bits).max(sign_extend(r, bits)) as u64,
                    (false, true) => sign_extend(l, bits).min(sign_extend(r, bits)) as u64,
                }
            }
            Expr::Ewma { average, sample, shift } => {
                self.count(Hit::Operator(Operator::Ewma, bits));
                let (average, sample) = (self.eval(average, width), self.eval(sample, width));
                let distance = sign_extend(sample.wrapping_sub(average), bits);
                let step = if u32::from(*shift) < bits { distance >> shift } else { 0 };
                average.wrapping_add(step as u64)
            }
        };
        cut(value, bits)
    }

    pub(crate) fn wide(&self, wide: Wide) -> u128 {
        match wide {
            Wide::Constant(value) => value,
            Wide::Field(field) => self.read(field),
            Wide::Register(i) => self.wide_variable(Place::Register, self.registers, i),
            Wide::Global(i) => self.wide_variable(Place::Global, self.globals, i),
            Wide::Metadata(i) => self.wide_variable(Place::Metadata, self.metadata, i),
        }
    }

    fn wide_variable(&self, place: Place, values: &[u128], i: u16) -> u128 {
        self.count(Hit::Variable(place, 128, false));
        values.get(usize::from(i)).copied().unwrap_or(0)
    }

    fn new_value(&self, value: &NewValue) -> u128 {
        match value {
            NewValue::Number { value, width } => self.eval(value, *width).into(),
            NewValue::Wide(wide) => self.wide(*wide),
        }
    }

    pub(crate) fn holds(&self, condition: &Condition) -> bool {
        match condition {
            Condition::Compare { left, relation, right, width, signed } => {
                self.count(Hit::compare(*relation, *signed, *width));
                let (l, r) = (self.eval(left, *width), self.eval(right, *width));
                let bits = width.bits();
                let (l, r) = if *signed {
                    (i128::from(sign_extend(l, bits)), i128::from(sign_extend(r, bits)))
                } else {
                    (i128::from(l), i128::from(r))
                };
                match relation {
                    Relation::Equal => l == r,
                    Relation::NotEqual => l != r,
                    Relation::Less => l < r,
                    Relation::LessEqual => l <= r,
                    Relation::Greater => l > r,
                    Relation::GreaterEqual => l >= r,
                }
            }
            Condition::Serial { left, right, after, negated, serial_bits } => {
                self.count(Hit::Serial { after: *after, serial_bits: *serial_bits });
                let width = if *serial_bits > 32 { Width::W64 } else { Width::W32 };
                let apart = self.eval(left, width).wrapping_sub(self.eval(right, width));
                let sign = sign_extend(apart, u32::from(*serial_bits)).signum();
                (sign == if *after { 1 } else { -1 }) ^ negated
            }
            Condition::Masked { operand, mask, value, negated } => {
                self.count(Hit::Masked(*negated));
                ((self.wide(*operand) ^ value) & mask == 0) ^ negated
            }
            Condition::Range { field, low, high, negated } => {
                self.count(Hit::Range(*negated));
                let value = self.read(*field) as u64;
                (value >= *low && value <= *high) ^ negated
            }
            Condition::Same { left, right, negated } => {
                self.count(Hit::SameField(*negated));
                (self.wide(*left) == self.wide(*right)) ^ negated
            }
            Condition::OneOf { operand, values, width, negated } => {
                self.count(Hit::OneOf(*negated));
                let value = self.eval(operand, *width);
                values.contains(&value) ^ negated
            }
            Condition::Full { negated } => {
                self.count(Hit::Full(*negated));
                self.is_full ^ negated
            }
        }
    }
}

/// Whether an expression reads the packet, its time or metadata: what a context alone does not tell.
pub(crate) fn reads_packet(expr: &Expr) -> bool {
    let mut reads = false;
    expr.walk(&mut |e| reads |= matches!(e, Expr::Field(_) | Expr::Metadata(_) | Expr::Now { .. }));
    reads
}
