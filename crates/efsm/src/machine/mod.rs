// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reference machine: the definition of a function's semantics.
//!
//! It follows `docs/book/src/language.md` literally, on ordered maps with exact capacity, and is not optimised for
//! speed. Every other target is compared with it.

mod effects;
mod eval;
mod table;

use std::collections::BTreeSet;
use std::sync::Arc;

use flowloom_engine::{
    Choices, Datapath, EngineError, MapState, Outcome, Output, Packet, Port, Ports, Snapshot, SnapshotError, Verdict,
};
use flowloom_wire::field::FieldId;
use flowloom_wire::{KeySpec, Layers};

use crate::context::{Aging, Context, get, put};
use crate::coverage::Coverage;
use crate::layout::{self, Counter, RecordLayout, capacity};
use crate::model::{Destination, Element, Function, KeyPart, NextState, Row, Stateful};
use effects::{Effects, Frame, Next};
use eval::{Scope, stored};
use table::Contexts;

#[derive(Debug, Clone)]
struct Table {
    key: Option<KeySpec>,
    layout: RecordLayout,
    contexts: Contexts,
    globals: Vec<u128>,
    looked_up: BTreeSet<Vec<u8>>,
    /// The number of preloaded default contexts; the machine itself never stores one.
    preloaded_defaults: usize,
}

impl Table {
    fn new(function: &Function, element: &Element, stateful: &Stateful) -> Table {
        let mut table = Table {
            key: layout::key_spec(function, stateful),
            layout: RecordLayout::of(element, stateful),
            contexts: Contexts::default(),
            globals: stateful.globals.iter().map(|g| g.initial).collect(),
            looked_up: BTreeSet::new(),
            preloaded_defaults: 0,
        };
        for preloaded in &stateful.preloaded {
            table.preload(stateful, preloaded.key.clone(), Context::preloaded(stateful, preloaded));
        }
        table
    }

    fn preload(&mut self, stateful: &Stateful, key: Vec<u8>, context: Context) {
        self.preloaded_defaults += usize::from(context.is_initial(stateful));
        self.contexts.put(stateful, &key, context);
    }

    fn is_full(&self, stateful: &Stateful) -> bool {
        self.contexts.len() >= capacity(stateful)
    }
}

/// Executes a function by its definition.
#[derive(Debug, Clone)]
pub struct Machine {
    function: Arc<Function>,
    row_fields: Vec<Vec<Vec<FieldId>>>,
    tables: Vec<Option<Table>>,
    coverage: Coverage,
    ports: Ports,
}

/// The context that a packet found, and whether it is stored.
struct Lookup {
    key: Vec<u8>,
    context: Context,
    stored: bool,
}

impl Machine {
    /// A machine without any context.
    pub fn new(function: Arc<Function>) -> Machine {
        let row_fields = function.elements.iter().map(|e| e.rows.iter().map(Row::fields).collect()).collect();
        let tables =
            function.elements.iter().map(|e| e.stateful.as_ref().map(|s| Table::new(&function, e, s))).collect();
        let coverage = Coverage::empty(&function);
        Machine { function, row_fields, tables, coverage, ports: Ports::default() }
    }

    /// The function.
    pub fn function(&self) -> &Arc<Function> {
        &self.function
    }

    /// The coverage so far.
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
    pub fn globals(&self, element: usize) -> &[u128] {
        self.tables[element].as_ref().map_or(&[], |t| &t.globals)
    }

    /// Checks the invariants: no table exceeds its size, no default context is stored but preloaded ones, values are
    /// within their types.
    ///
    /// # Panics
    /// If one is violated: the machine itself is wrong, or it has set a hard timer that expires at the very last moment
    /// of the clock, which looks like none.
    pub fn check_invariants(&self) {
        for (element, table) in self.function.elements.iter().zip(&self.tables) {
            let (Some(stateful), Some(table)) = (&element.stateful, table) else { continue };
            assert!(table.contexts.len() <= capacity(stateful), "table `{}` above its size", element.name);
            table.contexts.check_invariants(stateful);
            let defaults = table.contexts.iter().filter(|(_, c)| c.is_initial(stateful)).count();
            assert!(defaults <= table.preloaded_defaults, "default context stored in `{}`", element.name);
            for (_, context) in table.contexts.iter() {
                assert!(usize::from(context.state) < stateful.states.len(), "unknown state in `{}`", element.name);
                for (value, register) in context.registers.iter().zip(&stateful.registers) {
                    assert_eq!(*value, stored(*value, register.ty), "`{}` too wide", register.name);
                }
            }
        }
    }

    fn run_element(&mut self, index: usize, frame: &mut Frame, packet: &Packet<'_>, choices: &Choices) -> Next {
        let function = Arc::clone(&self.function);
        let element = &function.elements[index];
        let Some(stateful) = &element.stateful else {
            let scope = outer(&function, frame, packet, choices);
            let row = self.matching_row(index, element, &scope, None);
            return match row {
                None => self.otherwise(index, element, Counter::NoMatch, frame),
                Some(row) => {
                    self.coverage.count(index, Counter::Row { row, state: 0 });
                    let effects = Effects::of(&element.rows[row].actions, &scope, &function.graph);
                    effects.apply(&function, frame, &self.ports)
                }
            };
        };

        let Some(found) = self.find_context(index, stateful, frame, packet, choices.now_ns) else {
            return self.otherwise(index, element, Counter::NoKey, frame);
        };
        let globals = self.globals(index).to_vec();
        let before = &found.context;
        let is_full = !found.stored && self.tables[index].as_ref().is_some_and(|t| t.is_full(stateful));
        let scope = Scope {
            stateful: Some(stateful),
            registers: &before.registers,
            globals: &globals,
            old: (&before.registers, &globals),
            state: before.state,
            is_full,
            ..outer(&function, frame, packet, choices)
        };
        let Some(row) = self.matching_row(index, element, &scope, Some(before.state)) else {
            if found.stored {
                self.store(index, stateful, &found.key, found.context);
            }
            return self.otherwise(index, element, Counter::NoMatch, frame);
        };
        self.coverage.count(index, Counter::Row { row, state: before.state });
        let row = &element.rows[row];

        let mut after = before.clone();
        let mut globals_after = globals.clone();
        for update in &row.updates {
            let value = scope.new_value(&update.value);
            let (slot, ty) = match update.destination {
                Destination::Register(i) => {
                    (&mut after.registers[usize::from(i)], stateful.registers[usize::from(i)].ty)
                }
                Destination::Global(i) => (&mut globals_after[usize::from(i)], stateful.globals[usize::from(i)].ty),
            };
            *slot = stored(value, ty);
        }
        if let NextState::To { state, idle_ns, hard_ns } = row.next {
            after.enter(state, idle_ns, hard_ns, choices.now_ns);
        }

        let is_default = is_default(row, &after, stateful, found.stored);
        let creates = !found.stored && !is_default;
        if creates && is_full && !self.make_room(index, stateful) {
            // The policy `reject`: the row's updates and its transition are dropped, its packet actions are not.
            self.coverage.count(index, Counter::Rejected);
            after = before.clone();
            globals_after.clone_from(&globals);
        } else if found.stored && is_default {
            self.coverage.count(index, Counter::Removed);
            self.remove(index, stateful, &found.key);
        } else if !is_default {
            if !found.stored {
                self.coverage.count(index, Counter::Created);
            }
            self.store(index, stateful, &found.key, after.clone());
        }
        if let Some(table) = &mut self.tables[index] {
            table.globals.clone_from(&globals_after);
        }

        let scope = Scope {
            stateful: Some(stateful),
            registers: &after.registers,
            globals: &globals_after,
            old: (&found.context.registers, &globals),
            state: found.context.state,
            is_full,
            ..outer(&function, frame, packet, choices)
        };
        Effects::of(&row.actions, &scope, &function.graph).apply(&function, frame, &self.ports)
    }

    /// Looks up the context; an expired one is removed and counts as absent, or is in the successor of its state; the
    /// idle timer of an existing one restarts. `None` if a key field is absent.
    fn find_context(
        &mut self,
        index: usize,
        stateful: &Stateful,
        frame: &Frame,
        packet: &Packet<'_>,
        now_ns: u64,
    ) -> Option<Lookup> {
        let table = self.tables[index].as_mut()?;
        let key = match &table.key {
            None => vec![0; layout::SINGLE_KEY_BYTES],
            Some(spec) => {
                let parts = stateful.key.iter().flat_map(|key| &key.parts);
                let values: Vec<u128> = parts
                    .filter_map(|part| match part {
                        KeyPart::Field(_) => None,
                        KeyPart::Metadata(i) => Some(frame.metadata[usize::from(*i)]),
                    })
                    .collect();
                spec.extract(&frame.layers, &frame.bytes, packet.port.0, &values)?
            }
        };
        if !table.looked_up.contains(&key) {
            table.looked_up.insert(key.clone());
        }
        let absent = |touched_ns| Context { touched_ns, ..Context::initial(stateful) };
        let touched_ns = if table.layout.touched.is_some() { now_ns } else { 0 };
        let Some(mut context) = table.contexts.get(&key).cloned() else {
            return Some(Lookup { key, context: absent(touched_ns), stored: false });
        };
        match context.age(stateful, &table.layout, now_ns) {
            Aging::Live => {}
            Aging::Succeeded(counter) => self.coverage.count(index, counter),
            Aging::Expired(counters) => {
                table.contexts.remove(stateful, &key);
                counters.into_iter().for_each(|counter| self.coverage.count(index, counter));
                return Some(Lookup { key, context: absent(touched_ns), stored: false });
            }
        }
        context.touch(&table.layout, now_ns);
        Some(Lookup { key, context, stored: true })
    }

    /// Evicts a context of a full table, if the policy says so; returns whether there is room now.
    fn make_room(&mut self, index: usize, stateful: &Stateful) -> bool {
        let Some(table) = &mut self.tables[index] else { return false };
        let Some(victim) = table.contexts.victim().cloned() else { return false };
        table.contexts.remove(stateful, &victim);
        self.coverage.count(index, Counter::Evicted);
        true
    }

    fn store(&mut self, index: usize, stateful: &Stateful, key: &[u8], context: Context) {
        if let Some(table) = &mut self.tables[index] {
            table.contexts.put(stateful, key, context);
        }
    }

    fn remove(&mut self, index: usize, stateful: &Stateful, key: &[u8]) {
        if let Some(table) = &mut self.tables[index] {
            table.contexts.remove(stateful, key);
        }
    }

    fn matching_row(&self, index: usize, element: &Element, scope: &Scope<'_>, state: Option<u16>) -> Option<usize> {
        element.rows.iter().enumerate().position(|(i, row)| {
            state.is_none_or(|s| row.states.contains(&s))
                && self.row_fields[index][i].iter().all(|&f| scope.layers.is_present(f))
                && row.conditions.iter().all(|c| scope.holds(c))
        })
    }

    fn otherwise(&mut self, index: usize, element: &Element, counter: Counter, frame: &mut Frame) -> Next {
        self.coverage.count(index, counter);
        let function = Arc::clone(&self.function);
        // It only reads constants, so an empty packet suffices.
        let empty = Frame {
            bytes: Vec::new(),
            layers: Layers::parse(&function.graph, &[]),
            metadata: Vec::new(),
            outputs: Vec::new(),
            events: Vec::new(),
        };
        let nothing = Packet { bytes: &[], port: Port(0) };
        let choices = Choices::seeded(0, 0, 0);
        let scope = outer(&function, &empty, &nothing, &choices);
        let effects = Effects::of(&element.otherwise.actions, &scope, &function.graph);
        effects.apply(&function, frame, &self.ports)
    }
}

/// Whether a row leads to the default context, so that nothing is stored.
///
/// A row that sets a timer never does. A stored context is removed by a row that changes it back; a preloaded one that
/// was the default one all along stays if a row changes nothing.
fn is_default(row: &Row, after: &Context, stateful: &Stateful, is_stored: bool) -> bool {
    let may_be = match row.next {
        NextState::To { idle_ns, hard_ns, .. } => idle_ns.is_none() && hard_ns.is_none(),
        NextState::Stay => !is_stored || row.updates.iter().any(|u| matches!(u.destination, Destination::Register(_))),
    };
    may_be && after.is_initial(stateful)
}

/// The scope of expressions outside of elements.
fn outer<'a>(function: &'a Function, frame: &'a Frame, packet: &Packet<'_>, choices: &Choices) -> Scope<'a> {
    Scope {
        packet: &frame.bytes,
        layers: &frame.layers,
        port: packet.port.0,
        now_ns: choices.now_ns,
        metadata_types: &function.metadata,
        metadata: &frame.metadata,
        stateful: None,
        registers: &[],
        globals: &[],
        old: (&[], &[]),
        state: 0,
        is_full: false,
    }
}

impl Datapath for Machine {
    fn name(&self) -> &str {
        "machine"
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.ports = ports.clone();
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        let bytes = packet.bytes.to_vec();
        let layers = Layers::parse(&self.function.graph, &bytes);
        let metadata = self.function.metadata.iter().map(|m| m.initial).collect();
        let mut frame = Frame { bytes, layers, metadata, outputs: Vec::new(), events: Vec::new() };
        let mut element = 0;
        let then = loop {
            match self.run_element(element, &mut frame, packet, choices) {
                Next::Element(next) => element = next,
                then => break then,
            }
        };
        let Frame { bytes, mut outputs, events, .. } = frame;
        let (verdict, ports) = match then {
            Next::Leave(Verdict::Redirect, Some(port)) if !self.ports.is_bound(Port(port)) => {
                (Verdict::Aborted, Vec::new())
            }
            Next::Leave(verdict @ (Verdict::Drop | Verdict::Aborted), _) => (verdict, Vec::new()),
            Next::Leave(verdict, port) => (verdict, vec![port.map_or(packet.port, Port)]),
            Next::Flood | Next::Element(_) => (Verdict::Redirect, self.ports.flooded(packet.port)),
        };
        outputs.extend(ports.into_iter().map(|port| Output { port, bytes: bytes.clone() }));
        Ok(Outcome { verdict, outputs, events })
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        for (element, table) in self.function.elements.iter().zip(&mut self.tables) {
            let (Some(stateful), Some(table)) = (&element.stateful, table) else { continue };
            table.contexts.sweep(stateful, &table.layout, now_ns);
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        let mut snapshot = Snapshot::default();
        let (offsets, mut data) = layout::globals(&self.function);
        for (i, (element, table)) in self.function.elements.iter().zip(&self.tables).enumerate() {
            let (Some(stateful), Some(table)) = (&element.stateful, table) else { continue };
            let entries = table.contexts.iter().map(|(k, c)| (k.clone(), c.encode(stateful, &table.layout))).collect();
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
        fresh.ports = self.ports.clone();
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
            table.contexts.clear();
            table.preloaded_defaults = 0;
            if entries.len() > capacity(stateful) {
                let (found, expected) = (entries.len(), capacity(stateful));
                return Err(SnapshotError::TooMany { map: element.name.clone(), found, expected }.into());
            }
            let key_bytes = table.key.as_ref().map_or(layout::SINGLE_KEY_BYTES, KeySpec::key_bytes);
            let timers = layout::timers(element, stateful);
            for (key, value) in entries {
                check_size(&element.name, "key", key.len(), key_bytes)?;
                check_size(&element.name, "value", value.len(), table.layout.len_bytes as usize)?;
                let context = Context::decode(value, stateful, &table.layout);
                let form = |expected, found| {
                    let map = element.name.clone();
                    Err(SnapshotError::Form { map, expected, found }.into())
                };
                if context.encode(stateful, &table.layout) != *value {
                    let found = value.iter().map(|b| format!("{b:02x}")).collect();
                    return form("zero flags and zero padding in a record", found);
                }
                let Some(state) = stateful.states.get(usize::from(context.state)) else {
                    return form("the number of one of the element's states", context.state.to_string());
                };
                if let Some(expected) = context.expected_timer(timers[usize::from(context.state)]) {
                    return form(expected, format!("state `{state}`: {context:?}"));
                }
                table.preload(stateful, key.clone(), context);
            }
        }
        (self.tables, self.coverage) = (fresh.tables, fresh.coverage);
        Ok(())
    }
}

fn check_size(map: &str, part: &'static str, found: usize, expected: usize) -> Result<(), SnapshotError> {
    if found == expected { Ok(()) } else { Err(SnapshotError::Size { map: map.to_owned(), part, found, expected }) }
}

#[cfg(test)]
mod tests;
