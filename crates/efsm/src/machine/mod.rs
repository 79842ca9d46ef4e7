//! The reference machine: the definition of what is right for a function.
//!
//! It follows `docs/book/src/language.md` word by word, on plain ordered maps with exact capacity, and is not built for
//! speed. Every other target is compared with it.

mod eval;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flowloom_engine::{
    Choices, Datapath, EngineError, MapState, Outcome, Packet, Port, Snapshot, SnapshotError, Verdict,
};
use flowloom_wire::field::FieldId;
use flowloom_wire::{KeySpec, Layers, rewrite};

use crate::coverage::Coverage;
use crate::layout::{self, Counter, NO_DEADLINE, RecordLayout};
use crate::model::{
    Actions, Destination, Element, Expr, Function, NextState, Row, Stateful, Terminal, Variable, Width, WriteTarget,
    WriteValue,
};
use eval::{Scope, low_bits};

/// The state of one flow in one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// Number of the state.
    pub state: u16,
    /// The registers, each as its low bits.
    pub registers: Vec<u64>,
    /// When the idle timer runs out; [`NO_DEADLINE`] where none runs.
    pub idle_deadline_ns: u64,
    /// The idle timer's period, 0 where none runs.
    pub idle_ns: u64,
    /// When the hard timer runs out; [`NO_DEADLINE`] where none runs.
    pub hard_deadline_ns: u64,
}

impl Context {
    /// The default context: what an absent one counts as.
    pub fn initial(stateful: &Stateful) -> Context {
        Context {
            state: 0,
            registers: stateful.registers.iter().map(|r| r.initial).collect(),
            idle_deadline_ns: NO_DEADLINE,
            idle_ns: 0,
            hard_deadline_ns: NO_DEADLINE,
        }
    }
}

#[derive(Debug, Clone)]
struct Table {
    key: Option<KeySpec>,
    layout: RecordLayout,
    contexts: BTreeMap<Vec<u8>, Context>,
    globals: Vec<u64>,
    looked_up: BTreeSet<Vec<u8>>,
    /// How many default contexts were preloaded; the machine itself never stores one.
    preloaded_defaults: usize,
}

impl Table {
    /// The timer of a context that has run out, as what is counted; the idle timer where both have.
    ///
    /// A timer that is not set has [`NO_DEADLINE`]: where rows of the element set that timer, it too runs out at the last
    /// moment that the clock can show.
    fn run_out(&self, context: &Context, now_ns: u64) -> Option<Counter> {
        if self.layout.idle.is_some() && context.idle_deadline_ns <= now_ns {
            Some(Counter::IdleExpired(context.state))
        } else if self.layout.hard_deadline.is_some() && context.hard_deadline_ns <= now_ns {
            Some(Counter::HardExpired(context.state))
        } else {
            None
        }
    }
}

/// Runs a function by its definition.
#[derive(Debug, Clone)]
pub struct Machine {
    function: Arc<Function>,
    row_fields: Vec<Vec<Vec<FieldId>>>,
    tables: Vec<Option<Table>>,
    coverage: Coverage,
}

/// Where the packet goes after an element.
enum Then {
    Element(usize),
    Leave(Verdict, Option<u32>),
}

/// What a row found: the context as it was, and whether it is stored.
struct Found {
    key: Vec<u8>,
    context: Context,
    stored: bool,
}

impl Machine {
    /// A machine without any context.
    pub fn new(function: Arc<Function>) -> Machine {
        let row_fields = function.elements.iter().map(|e| e.rows.iter().map(Row::fields).collect()).collect();
        let tables = function
            .elements
            .iter()
            .map(|element| {
                element.stateful.as_ref().map(|stateful| Table {
                    key: layout::key_spec(stateful),
                    layout: RecordLayout::of(element, stateful),
                    contexts: BTreeMap::new(),
                    globals: stateful.globals.iter().map(|g| g.initial).collect(),
                    looked_up: BTreeSet::new(),
                    preloaded_defaults: 0,
                })
            })
            .collect();
        let coverage = Coverage::empty(&function);
        Machine { function, row_fields, tables, coverage }
    }

    /// The function that runs.
    pub fn function(&self) -> &Arc<Function> {
        &self.function
    }

    /// What was reached so far.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = self.coverage.clone();
        for (e, table) in coverage.elements.iter_mut().zip(&self.tables) {
            e.flows_looked_up = table.as_ref().map_or(0, |t| t.looked_up.len() as u64);
        }
        coverage
    }

    /// The stored contexts of element number `element`, by key; none for a stateless one.
    pub fn contexts(&self, element: usize) -> impl Iterator<Item = (&[u8], &Context)> {
        self.tables[element].iter().flat_map(|t| t.contexts.iter().map(|(k, c)| (k.as_slice(), c)))
    }

    /// The global registers of element number `element`.
    pub fn globals(&self, element: usize) -> &[u64] {
        self.tables[element].as_ref().map_or(&[], |t| &t.globals)
    }

    /// Checks what must always hold: no table above its size, no default context stored but preloaded ones, values within
    /// their types.
    ///
    /// # Panics
    /// When one of them does not hold: the machine itself is wrong, or it has set a hard timer that runs out at the very last
    /// moment of the clock, which looks like none.
    pub fn check_invariants(&self) {
        for (element, table) in self.function.elements.iter().zip(&self.tables) {
            let (Some(stateful), Some(table)) = (&element.stateful, table) else { continue };
            assert!(table.contexts.len() <= capacity(stateful), "table `{}` above its size", element.name);
            let defaults = table.contexts.values().filter(|c| **c == Context::initial(stateful)).count();
            assert!(defaults <= table.preloaded_defaults, "default context stored in `{}`", element.name);
            for context in table.contexts.values() {
                assert!(usize::from(context.state) < stateful.states.len(), "unknown state in `{}`", element.name);
                for (value, register) in context.registers.iter().zip(&stateful.registers) {
                    assert_eq!(*value, low_bits(*value, register.ty.width_bits.into()), "`{}` too wide", register.name);
                }
            }
        }
    }

    fn run_element(
        &mut self,
        index: usize,
        bytes: &mut [u8],
        layers: &Layers,
        packet: &Packet<'_>,
        choices: &Choices,
        metadata: &mut [u64],
    ) -> Then {
        let function = Arc::clone(&self.function);
        let element = &function.elements[index];
        let Some(stateful) = &element.stateful else {
            let scope = Scope { packet: bytes, ..outer(&function, layers, packet, choices, metadata) };
            let row = self.matching_row(index, element, &scope, None);
            return match row {
                None => self.otherwise(index, element, Counter::NoMatch, metadata),
                Some(row) => {
                    self.coverage.count(index, Counter::Row { row, state: 0 });
                    let effects = Effects::of(&element.rows[row].actions, &scope);
                    effects.apply(&function.metadata, bytes, layers, metadata)
                }
            };
        };

        let Some(found) = self.find_context(index, stateful, bytes, layers, packet, choices.now_ns) else {
            return self.otherwise(index, element, Counter::NoKey, metadata);
        };
        let globals = self.globals(index).to_vec();
        let before = &found.context;
        let scope = Scope {
            packet: bytes,
            stateful: Some(stateful),
            registers: &before.registers,
            globals: &globals,
            state: before.state,
            ..outer(&function, layers, packet, choices, metadata)
        };
        let Some(row) = self.matching_row(index, element, &scope, Some(before.state)) else {
            if found.stored {
                self.store(index, &found.key, found.context);
            }
            return self.otherwise(index, element, Counter::NoMatch, metadata);
        };
        self.coverage.count(index, Counter::Row { row, state: before.state });
        let row = &element.rows[row];

        let mut after = before.clone();
        let mut globals_after = globals.clone();
        for update in &row.updates {
            let value = scope.eval(&update.value, update.width);
            let (slot, ty) = match update.destination {
                Destination::Register(i) => {
                    (&mut after.registers[usize::from(i)], stateful.registers[usize::from(i)].ty)
                }
                Destination::Global(i) => (&mut globals_after[usize::from(i)], stateful.globals[usize::from(i)].ty),
            };
            *slot = low_bits(value, ty.width_bits.into());
        }
        if let NextState::To { state, idle_ns, hard_ns } = row.next {
            let deadline = |timeout: Option<u64>| timeout.map_or(NO_DEADLINE, |t| choices.now_ns.wrapping_add(t));
            after.state = state;
            after.idle_ns = idle_ns.unwrap_or(0);
            after.idle_deadline_ns = deadline(idle_ns);
            after.hard_deadline_ns = deadline(hard_ns);
        }

        let is_default = is_default(row, &after, stateful, found.stored);
        let is_full = self.tables[index].as_ref().is_some_and(|t| t.contexts.len() >= capacity(stateful));
        if !found.stored && !is_default && is_full {
            // The policy `reject`: the row's updates and its transition are dropped, its packet actions are not.
            self.coverage.count(index, Counter::Rejected);
            after = before.clone();
            globals_after = globals;
        } else if found.stored && is_default {
            self.coverage.count(index, Counter::Removed);
            self.remove(index, &found.key);
        } else if !is_default {
            if !found.stored {
                self.coverage.count(index, Counter::Created);
            }
            self.store(index, &found.key, after.clone());
        }
        if let Some(table) = &mut self.tables[index] {
            table.globals.clone_from(&globals_after);
        }

        let scope = Scope {
            packet: bytes,
            stateful: Some(stateful),
            registers: &after.registers,
            globals: &globals_after,
            state: found.context.state,
            ..outer(&function, layers, packet, choices, metadata)
        };
        Effects::of(&row.actions, &scope).apply(&function.metadata, bytes, layers, metadata)
    }

    /// Looks the context up; an expired one is removed and counts as absent, a live one has its idle timer re-armed.
    /// `None` where a key field is absent.
    fn find_context(
        &mut self,
        index: usize,
        stateful: &Stateful,
        bytes: &[u8],
        layers: &Layers,
        packet: &Packet<'_>,
        now_ns: u64,
    ) -> Option<Found> {
        let table = self.tables[index].as_mut()?;
        let key = match &table.key {
            None => vec![0; layout::SINGLE_KEY_BYTES],
            Some(spec) => spec.extract(layers, bytes, packet.port.0)?,
        };
        if !table.looked_up.contains(&key) {
            table.looked_up.insert(key.clone());
        }
        let stored = table.contexts.get(&key).cloned();
        if let Some(counter) = stored.as_ref().and_then(|context| table.run_out(context, now_ns)) {
            table.contexts.remove(&key);
            self.coverage.count(index, counter);
            return Some(Found { key, context: Context::initial(stateful), stored: false });
        }
        Some(match stored {
            None => Found { key, context: Context::initial(stateful), stored: false },
            Some(mut context) => {
                if context.idle_ns != 0 {
                    context.idle_deadline_ns = now_ns.wrapping_add(context.idle_ns);
                }
                Found { key, context, stored: true }
            }
        })
    }

    fn store(&mut self, index: usize, key: &[u8], context: Context) {
        if let Some(table) = &mut self.tables[index] {
            table.contexts.insert(key.to_vec(), context);
        }
    }

    fn remove(&mut self, index: usize, key: &[u8]) {
        if let Some(table) = &mut self.tables[index] {
            table.contexts.remove(key);
        }
    }

    fn matching_row(&self, index: usize, element: &Element, scope: &Scope<'_>, state: Option<u16>) -> Option<usize> {
        element.rows.iter().enumerate().position(|(i, row)| {
            state.is_none_or(|s| row.states.contains(&s))
                && self.row_fields[index][i].iter().all(|&f| scope.layers.is_present(f))
                && row.conditions.iter().all(|c| scope.holds(c))
        })
    }

    fn otherwise(&mut self, index: usize, element: &Element, counter: Counter, metadata: &mut [u64]) -> Then {
        self.coverage.count(index, counter);
        let function = Arc::clone(&self.function);
        let layers = Layers::parse(&[]);
        let scope = Scope {
            packet: &[],
            layers: &layers,
            port: 0,
            now_ns: 0,
            metadata_types: &function.metadata,
            metadata,
            stateful: None,
            registers: &[],
            globals: &[],
            state: 0,
        };
        Effects::of(&element.otherwise.actions, &scope).apply(&function.metadata, &mut [], &layers, metadata)
    }
}

/// Whether a row leads to the default context, so that nothing is stored.
///
/// A row that sets a timer never does. A stored context is removed by a row that changes it back; a preloaded one that was
/// the default one all along stays where a row changes nothing.
fn is_default(row: &Row, after: &Context, stateful: &Stateful, is_stored: bool) -> bool {
    let may_be = match row.next {
        NextState::To { idle_ns, hard_ns, .. } => idle_ns.is_none() && hard_ns.is_none(),
        NextState::Stay => !is_stored || row.updates.iter().any(|u| matches!(u.destination, Destination::Register(_))),
    };
    may_be && *after == Context::initial(stateful)
}

/// What an expression can read outside an element.
fn outer<'a>(
    function: &'a Function,
    layers: &'a Layers,
    packet: &Packet<'_>,
    choices: &Choices,
    metadata: &'a [u64],
) -> Scope<'a> {
    Scope {
        packet: &[],
        layers,
        port: packet.port.0,
        now_ns: choices.now_ns,
        metadata_types: &function.metadata,
        metadata,
        stateful: None,
        registers: &[],
        globals: &[],
        state: 0,
    }
}

/// What a row does to the packet, all values computed before anything is written.
struct Effects {
    fields: Vec<(FieldId, u128)>,
    metadata: Vec<(usize, u64)>,
    then: Then,
}

impl Effects {
    fn of(actions: &Actions, scope: &Scope<'_>) -> Effects {
        let mut fields = Vec::new();
        let mut metadata = Vec::new();
        for write in &actions.writes {
            let value = match &write.value {
                WriteValue::Number { value, width } => u128::from(scope.eval(value, *width)),
                WriteValue::Wide(value) => *value,
                WriteValue::Copy(from) => scope.field(*from),
            };
            match write.target {
                WriteTarget::Field(field) => fields.push((field, value)),
                WriteTarget::Metadata(i) => metadata.push((usize::from(i), value as u64)),
            }
        }
        let then = match &actions.terminal {
            Terminal::Drop => Then::Leave(Verdict::Drop, None),
            Terminal::Pass | Terminal::Punt => Then::Leave(Verdict::Pass, None),
            Terminal::Reply => Then::Leave(Verdict::Tx, None),
            Terminal::Forward(port) => Then::Leave(Verdict::Redirect, Some(eval_port(scope, port))),
            Terminal::Goto(element) => Then::Element(usize::from(*element)),
        };
        Effects { fields, metadata, then }
    }

    fn apply(self, types: &[Variable], bytes: &mut [u8], layers: &Layers, metadata: &mut [u64]) -> Then {
        for (i, value) in self.metadata {
            metadata[i] = low_bits(value, types[i].ty.width_bits.into());
        }
        if !self.fields.is_empty() {
            rewrite(bytes, layers, &self.fields);
        }
        self.then
    }
}

/// Ports are 32-bit numbers.
fn eval_port(scope: &Scope<'_>, port: &Expr) -> u32 {
    scope.eval(port, Width::W32) as u32
}

/// How many contexts an element may have: one where it has no key.
pub(crate) fn capacity(stateful: &Stateful) -> usize {
    if stateful.key.is_some() { stateful.size as usize } else { 1 }
}

impl Datapath for Machine {
    fn name(&self) -> &str {
        "machine"
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        let mut bytes = packet.bytes.to_vec();
        let layers = Layers::parse(&bytes);
        let mut metadata: Vec<u64> = self.function.metadata.iter().map(|m| m.initial).collect();
        let mut element = 0;
        loop {
            match self.run_element(element, &mut bytes, &layers, packet, choices, &mut metadata) {
                Then::Element(next) => element = next,
                Then::Leave(Verdict::Redirect, Some(port)) if port >= layout::PORT_COUNT => {
                    return Ok(Outcome::gone(Verdict::Aborted));
                }
                Then::Leave(verdict @ (Verdict::Drop | Verdict::Aborted), _) => return Ok(Outcome::gone(verdict)),
                Then::Leave(verdict, port) => {
                    return Ok(Outcome::sent(verdict, port.map_or(packet.port, Port), bytes));
                }
            }
        }
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        for table in self.tables.iter_mut().flatten() {
            let mut contexts = std::mem::take(&mut table.contexts);
            contexts.retain(|_, context| table.run_out(context, now_ns).is_none());
            table.contexts = contexts;
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        let mut snapshot = Snapshot::default();
        let (offsets, mut data) = layout::globals(&self.function);
        for (i, (element, table)) in self.function.elements.iter().zip(&self.tables).enumerate() {
            let (Some(stateful), Some(table)) = (&element.stateful, table) else { continue };
            let entries = table.contexts.iter().map(|(k, c)| (k.clone(), encode(c, stateful, &table.layout))).collect();
            snapshot.maps.insert(element.name.clone(), entries);
            for ((value, global), &offset) in table.globals.iter().zip(&stateful.globals).zip(&offsets[i]) {
                put(&mut data, offset, layout::size_bytes(global), *value);
            }
        }
        if !data.is_empty() {
            snapshot.maps.insert(layout::GLOBALS_MAP.to_owned(), MapState::from([(vec![0; 4], data)]));
        }
        Ok(snapshot)
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        let mut fresh = Machine::new(Arc::clone(&self.function));
        let known = fresh.snapshot()?;
        if let Some(map) =
            state.maps.keys().find(|name| !known.maps.contains_key(*name) && !layout::is_instrument(name))
        {
            let known = known.maps.keys().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ");
            return Err(SnapshotError::UnknownMap { map: map.clone(), known }.into());
        }
        let (offsets, initial) = layout::globals(&self.function);
        let globals = state.maps.get(layout::GLOBALS_MAP).and_then(|m| m.values().next()).unwrap_or(&initial);
        check_size(layout::GLOBALS_MAP, "value", globals.len(), initial.len())?;
        for (i, (element, table)) in self.function.elements.iter().zip(&mut fresh.tables).enumerate() {
            let (Some(stateful), Some(table)) = (&element.stateful, table) else { continue };
            for ((value, global), &offset) in table.globals.iter_mut().zip(&stateful.globals).zip(&offsets[i]) {
                *value = get(globals, offset, layout::size_bytes(global));
            }
            let Some(entries) = state.maps.get(&element.name) else { continue };
            if entries.len() > capacity(stateful) {
                let (found, expected) = (entries.len(), capacity(stateful));
                return Err(SnapshotError::TooMany { map: element.name.clone(), found, expected }.into());
            }
            let key_bytes = table.key.as_ref().map_or(layout::SINGLE_KEY_BYTES, KeySpec::key_bytes);
            for (key, value) in entries {
                check_size(&element.name, "key", key.len(), key_bytes)?;
                check_size(&element.name, "value", value.len(), table.layout.len_bytes as usize)?;
                let context = decode(value, stateful, &table.layout);
                if encode(&context, stateful, &table.layout) != *value {
                    return Err(SnapshotError::Form {
                        map: element.name.clone(),
                        expected: "zeros in the flags and at the end of a record",
                        found: value.iter().map(|b| format!("{b:02x}")).collect(),
                    }
                    .into());
                }
                table.preloaded_defaults += usize::from(context == Context::initial(stateful));
                if usize::from(context.state) >= stateful.states.len() {
                    return Err(SnapshotError::Form {
                        map: element.name.clone(),
                        expected: "the number of one of the element's states",
                        found: context.state.to_string(),
                    }
                    .into());
                }
                table.contexts.insert(key.clone(), context);
            }
        }
        (self.tables, self.coverage) = (fresh.tables, fresh.coverage);
        Ok(())
    }
}

fn check_size(map: &str, part: &'static str, found: usize, expected: usize) -> Result<(), SnapshotError> {
    if found == expected { Ok(()) } else { Err(SnapshotError::Size { map: map.to_owned(), part, found, expected }) }
}

fn put(record: &mut [u8], offset: u32, bytes: u32, value: u64) {
    let (offset, bytes) = (offset as usize, bytes as usize);
    record[offset..offset + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

fn get(record: &[u8], offset: u32, bytes: u32) -> u64 {
    let (offset, bytes) = (offset as usize, bytes as usize);
    let mut value = [0; 8];
    value[..bytes].copy_from_slice(&record[offset..offset + bytes]);
    u64::from_le_bytes(value)
}

fn encode(context: &Context, stateful: &Stateful, layout: &RecordLayout) -> Vec<u8> {
    let mut record = vec![0; layout.len_bytes as usize];
    if let Some(idle) = layout.idle {
        put(&mut record, idle.deadline, 8, context.idle_deadline_ns);
        put(&mut record, idle.period, 8, context.idle_ns);
    }
    if let Some(offset) = layout.hard_deadline {
        put(&mut record, offset, 8, context.hard_deadline_ns);
    }
    for ((value, register), &offset) in context.registers.iter().zip(&stateful.registers).zip(&layout.registers) {
        put(&mut record, offset, layout::size_bytes(register), *value);
    }
    put(&mut record, layout.state, 2, context.state.into());
    record
}

fn decode(record: &[u8], stateful: &Stateful, layout: &RecordLayout) -> Context {
    let registers = stateful.registers.iter().zip(&layout.registers);
    Context {
        state: get(record, layout.state, 2) as u16,
        registers: registers.map(|(r, &offset)| get(record, offset, layout::size_bytes(r))).collect(),
        idle_deadline_ns: layout.idle.map_or(NO_DEADLINE, |idle| get(record, idle.deadline, 8)),
        idle_ns: layout.idle.map_or(0, |idle| get(record, idle.period, 8)),
        hard_deadline_ns: layout.hard_deadline.map_or(NO_DEADLINE, |offset| get(record, offset, 8)),
    }
}

#[cfg(test)]
mod tests;
