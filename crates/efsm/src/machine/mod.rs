// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reference machine: the definition of a function's semantics.
//!
//! It follows `docs/book/src/language.md` literally: rows in order, expressions as trees. Every other target is
//! compared with it. A packet costs the same however many contexts there are: see [`table`].

mod effects;
mod eval;
mod table;

use std::collections::HashSet;
use std::sync::Arc;

use flowloom_engine::{
    Choices, Datapath, Digest, EngineError, Eviction, MapState, Outcome, Outcomes, Packet, Port, Ports, Snapshot,
    SnapshotError, Verdict,
};
use flowloom_wire::KeySpec;
use flowloom_wire::field::FieldId;

use crate::context::{Aging, Context, get, put};
use crate::coverage::Coverage;
use crate::layout::{self, Counter, RecordLayout, capacity};
use crate::model::{Destination, Element, Function, KeyPart, NextState, Row, Stateful};
use effects::{Effects, Frame, Next};
use eval::{Scope, stored};
use table::{Contexts, KeyBytes, Slot};

#[derive(Debug, Clone)]
struct Table {
    key: Option<KeySpec>,
    layout: RecordLayout,
    contexts: Contexts,
    globals: Vec<u128>,
    looked_up: HashSet<KeyBytes>,
    /// The number of preloaded default contexts; the machine itself never stores one.
    preloaded_defaults: usize,
    packet: PacketState,
}

/// The values of the packet in progress; kept for their memory only.
#[derive(Debug, Clone)]
struct PacketState {
    key: Vec<u8>,
    /// The default context, which never changes.
    initial: Context,
    /// The context before and after the row's updates.
    before: Context,
    after: Context,
    globals_after: Vec<u128>,
}

impl Table {
    fn new(function: &Function, element: &Element, stateful: &Stateful) -> Table {
        let initial = Context::initial(stateful);
        let mut table = Table {
            key: layout::key_spec(function, stateful),
            layout: RecordLayout::of(element, stateful),
            contexts: Contexts::default(),
            globals: stateful.globals.iter().map(|g| g.initial).collect(),
            looked_up: HashSet::new(),
            preloaded_defaults: 0,
            packet: PacketState {
                key: Vec::new(),
                before: initial.clone(),
                after: initial.clone(),
                initial,
                globals_after: Vec::new(),
            },
        };
        for preloaded in &stateful.preloaded {
            table.preload(stateful, &preloaded.key, &Context::preloaded(stateful, preloaded));
        }
        table
    }

    fn preload(&mut self, stateful: &Stateful, key: &[u8], context: &Context) {
        self.preloaded_defaults += usize::from(context.is_initial(stateful));
        self.contexts.preload(stateful, &self.layout, key, context);
    }

    /// Looks up the context of a packet and copies it to `packet.before`; an expired one is removed and counts as
    /// absent, or is in the successor of its state; the idle timer of an existing one restarts. `Some(None)` if there
    /// is no context, `None` if a key field is absent.
    fn look_up(
        &mut self,
        stateful: &Stateful,
        frame: &Frame,
        port: Port,
        now_ns: u64,
        counts_flows: bool,
        mut count: impl FnMut(Counter),
    ) -> Option<Option<Slot>> {
        let Table { key: spec, layout, contexts, looked_up, packet: PacketState { key, initial, before, .. }, .. } =
            self;
        match spec {
            None => key.resize(layout::SINGLE_KEY_BYTES, 0),
            Some(spec) => {
                let parts = stateful.key.iter().flat_map(|key| &key.parts);
                let values: Vec<u128> = parts
                    .filter_map(|part| match part {
                        KeyPart::Field(_) => None,
                        KeyPart::Metadata(i) => Some(frame.metadata[usize::from(*i)]),
                    })
                    .collect();
                if !spec.extract_into(&frame.layers, &frame.bytes, port.0, &values, key) {
                    return None;
                }
            }
        }
        let mut slot = contexts.find(key);
        let is_first = slot.is_none_or(|slot| contexts.mark_looked_up(slot));
        if counts_flows && is_first && !looked_up.contains(&key[..]) {
            looked_up.insert(KeyBytes::from(&key[..]));
        }
        if let Some(found) = slot {
            match contexts.meet(stateful, layout, found, now_ns) {
                Aging::Live => {}
                Aging::Succeeded(counter) => count(counter),
                Aging::Expired(counters) => {
                    counters.into_iter().for_each(&mut count);
                    slot = None;
                }
            }
        }
        match slot {
            Some(slot) => before.copy_from(contexts.get(slot)),
            None => {
                before.copy_from(initial);
                before.touched_ns = if layout.touched.is_some() { now_ns } else { 0 };
            }
        }
        Some(slot)
    }
}

/// Executes a function by its definition.
#[derive(Debug, Clone)]
pub struct Machine {
    function: Arc<Function>,
    row_fields: Vec<Vec<Vec<FieldId>>>,
    tables: Vec<Option<Table>>,
    coverage: Coverage,
    /// Whether the keys that packets look up are kept, to count flows.
    counts_flows: bool,
    ports: Ports,
    /// The packet in progress; kept for its memory only.
    frame: Frame,
    /// Evictions that the next packet has to perform, instead of the machine's own victims.
    victims: Option<Vec<Eviction>>,
    /// Evictions of that list that the last packet did not perform, because it needed no room.
    not_evicted: Vec<Eviction>,
}

impl Machine {
    /// A machine without any context.
    pub fn new(function: Arc<Function>) -> Machine {
        let row_fields = function.elements.iter().map(|e| e.rows.iter().map(Row::fields).collect()).collect();
        let tables =
            function.elements.iter().map(|e| e.stateful.as_ref().map(|s| Table::new(&function, e, s))).collect();
        let coverage = Coverage::empty(&function);
        Machine {
            function,
            row_fields,
            tables,
            coverage,
            counts_flows: true,
            ports: Ports::default(),
            frame: Frame::default(),
            victims: None,
            not_evicted: Vec::new(),
        }
    }

    /// This machine without a count of the flows that packets look up: [`Machine::coverage`] has 0 flows.
    ///
    /// # Cost
    /// The memory no longer depends on the number of packets; the count needs every key that ever was looked up.
    #[must_use]
    pub fn without_flow_count(mut self) -> Machine {
        self.counts_flows = false;
        self
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
        self.tables[element].iter().flat_map(|table| table.contexts.iter())
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
            table.contexts.check_invariants(stateful, &table.layout);
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

    /// Visits the entries of all maps, unordered: the name of the map, key and value.
    fn visit_entries(&self, mut visit: impl FnMut(&str, &[u8], &[u8])) {
        let (offsets, mut data) = layout::globals(&self.function);
        let mut record = Vec::new();
        for (i, (element, table)) in self.function.elements.iter().zip(&self.tables).enumerate() {
            let (Some(stateful), Some(table)) = (&element.stateful, table) else { continue };
            for (key, context) in table.contexts.unordered() {
                context.encode_into(stateful, &table.layout, &mut record);
                visit(&element.name, key, &record);
            }
            for ((value, global), &offset) in table.globals.iter().zip(&stateful.globals).zip(&offsets[i]) {
                put(&mut data, offset, layout::size_bytes(global), *value);
            }
        }
        if !data.is_empty() {
            visit(layout::GLOBALS_MAP, &[0; 4], &data);
        }
    }

    fn run_element(&mut self, index: usize, frame: &mut Frame, packet: &Packet<'_>, choices: &Choices) -> Next {
        let Machine { function, row_fields, tables, coverage, counts_flows, ports, victims, .. } = self;
        let element = &function.elements[index];
        let rows = ElementRows { rows: &element.rows, fields: &row_fields[index] };
        let (Some(stateful), Some(table)) = (&element.stateful, &mut tables[index]) else {
            let scope = outer(function, frame, packet, choices);
            let Some(row) = rows.matching(&scope, None) else {
                coverage.count(index, Counter::NoMatch);
                return otherwise(function, element, frame, ports);
            };
            coverage.count(index, Counter::Row { row, state: 0 });
            let effects = Effects::of(&element.rows[row].actions, &scope, &function.graph);
            return effects.apply(function, frame, ports);
        };

        let count = |counter| coverage.count(index, counter);
        let Some(slot) = table.look_up(stateful, frame, packet.port, choices.now_ns, *counts_flows, count) else {
            coverage.count(index, Counter::NoKey);
            return otherwise(function, element, frame, ports);
        };
        let Table { layout, contexts, globals, packet: PacketState { key, before, after, globals_after, .. }, .. } =
            table;
        let is_full = slot.is_none() && contexts.len() >= capacity(stateful);
        let scope = Scope {
            stateful: Some(stateful),
            registers: &before.registers,
            globals,
            old: (&before.registers, globals),
            state: before.state,
            is_full,
            ..outer(function, frame, packet, choices)
        };
        let Some(row) = rows.matching(&scope, Some(before.state)) else {
            coverage.count(index, Counter::NoMatch);
            return otherwise(function, element, frame, ports);
        };
        coverage.count(index, Counter::Row { row, state: before.state });
        let row = &element.rows[row];

        after.copy_from(before);
        globals_after.clone_from(globals);
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

        match (slot, is_default(row, after, stateful, slot.is_some())) {
            (None, true) => {}
            (None, false) => {
                let victim = match victims {
                    _ if !is_full => None,
                    Some(victims) => take_victim(victims, &element.name, |key| contexts.find(key)),
                    None => contexts.victim(stateful),
                };
                if let Some(victim) = victim {
                    contexts.remove(victim);
                    coverage.count(index, Counter::Evicted);
                }
                if is_full && victim.is_none() {
                    // The policy `reject`: the row's updates and its transition are dropped, its packet actions are
                    // not.
                    coverage.count(index, Counter::Rejected);
                    after.copy_from(before);
                    globals_after.clone_from(globals);
                } else {
                    coverage.count(index, Counter::Created);
                    contexts.insert(stateful, layout, key, after);
                }
            }
            (Some(slot), true) => {
                coverage.count(index, Counter::Removed);
                contexts.remove(slot);
            }
            (Some(slot), false) => contexts.set(stateful, layout, slot, after),
        }

        let scope = Scope {
            stateful: Some(stateful),
            registers: &after.registers,
            globals: globals_after,
            old: (&before.registers, globals),
            state: before.state,
            is_full,
            ..outer(function, frame, packet, choices)
        };
        let effects = Effects::of(&row.actions, &scope, &function.graph);
        std::mem::swap(globals, globals_after);
        effects.apply(function, frame, ports)
    }
}

/// Takes a stored context of this table out of the given evictions. One that is not stored remains: it is not evicted.
fn take_victim(victims: &mut Vec<Eviction>, map: &str, find: impl Fn(&[u8]) -> Option<Slot>) -> Option<Slot> {
    let at = victims.iter().position(|victim| victim.map == map)?;
    let slot = find(&victims[at].key)?;
    victims.remove(at);
    Some(slot)
}

/// The rows of an element, with the fields that each one reads.
struct ElementRows<'a> {
    rows: &'a [Row],
    fields: &'a [Vec<FieldId>],
}

impl ElementRows<'_> {
    /// The first row that matches.
    fn matching(&self, scope: &Scope<'_>, state: Option<u16>) -> Option<usize> {
        self.rows.iter().zip(self.fields).position(|(row, fields)| {
            state.is_none_or(|s| row.states.contains(&s))
                && fields.iter().all(|&field| scope.layers.is_present(field))
                && row.conditions.iter().all(|condition| scope.holds(condition))
        })
    }
}

/// Runs the actions of an element for a packet that no row matched.
fn otherwise(function: &Function, element: &Element, frame: &mut Frame, ports: &Ports) -> Next {
    // They read constants only, so an empty packet suffices.
    let empty = Frame::default();
    let nothing = Packet { bytes: &[], port: Port(0) };
    let scope = outer(function, &empty, &nothing, &Choices::seeded(0, 0, 0));
    let effects = Effects::of(&element.otherwise.actions, &scope, &function.graph);
    effects.apply(function, frame, ports)
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
        let mut outcomes = Outcomes::default();
        self.process_all(&[(*packet, *choices)], &mut outcomes)?;
        Ok(outcomes.get(0).unwrap_or_else(|| Outcome::without_output(Verdict::Aborted)))
    }

    fn process_all(&mut self, packets: &[(Packet<'_>, Choices)], outcomes: &mut Outcomes) -> Result<(), EngineError> {
        let mut frame = std::mem::take(&mut self.frame);
        for (packet, choices) in packets {
            frame.begin(&self.function, packet.bytes);
            let mut element = 0;
            let then = loop {
                match self.run_element(element, &mut frame, packet, choices) {
                    Next::Element(next) => element = next,
                    then => break then,
                }
            };
            frame.outputs.drain(..).for_each(|output| outcomes.send(output.port, &output.bytes));
            frame.events.drain(..).for_each(|event| outcomes.log(event));
            let verdict = match then {
                Next::Leave(Verdict::Redirect, Some(port)) if !self.ports.is_bound(Port(port)) => Verdict::Aborted,
                Next::Leave(verdict @ (Verdict::Drop | Verdict::Aborted), _) => verdict,
                Next::Leave(verdict, port) => {
                    outcomes.send(port.map_or(packet.port, Port), &frame.bytes);
                    verdict
                }
                Next::Flood | Next::Element(_) => {
                    let ports = self.ports.flooded(packet.port);
                    ports.into_iter().for_each(|port| outcomes.send(port, &frame.bytes));
                    Verdict::Redirect
                }
            };
            outcomes.end(verdict);
            self.not_evicted = self.victims.take().unwrap_or_default();
        }
        self.frame = frame;
        Ok(())
    }

    fn evict_next(&mut self, victims: &[Eviction]) {
        self.victims = Some(victims.to_vec());
    }

    fn not_evicted(&mut self) -> Vec<Eviction> {
        std::mem::take(&mut self.not_evicted)
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
        for (element, _) in self.function.elements.iter().zip(&self.tables).filter(|(_, table)| table.is_some()) {
            snapshot.maps.insert(element.name.clone(), MapState::new());
        }
        self.visit_entries(|map, key, value| {
            if !snapshot.maps.contains_key(map) {
                snapshot.maps.insert(map.to_owned(), MapState::new());
            }
            if let Some(entries) = snapshot.maps.get_mut(map) {
                entries.insert(key.to_vec(), value.to_vec());
            }
        });
        Ok(snapshot)
    }

    fn digest(&mut self) -> Option<Digest> {
        let mut digest = Digest::default();
        self.visit_entries(|map, key, value| {
            // Global registers are in an array.
            if map != layout::GLOBALS_MAP || value.iter().any(|byte| *byte != 0) {
                digest.add(map, key, value);
            }
        });
        Some(digest)
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
                table.preload(stateful, key, &context);
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
