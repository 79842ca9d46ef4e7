// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory layout of contexts, global registers and counters, shared by the reference machine, the lowering, the
//! sweepers and `map dump`.
//!
//! # Layout
//! A context record is little endian: `idle_deadline` and `idle_ns` (only if a row or a successor of the element sets
//! an idle timer), `hard_deadline` (only if one sets a hard timer), `touched` (only if the oldest context is evicted:
//! the time of the last packet that found it), the registers from wide to narrow, `state`, `flags` (reserved, 0), zero
//! padding to a multiple of 8. A deadline that is not set is [`NO_DEADLINE`].
//!
//! The global registers of all elements are consecutive in the data section [`GLOBALS_MAP`].

use flowloom_context::{ContextLayout, LayoutField, StateSuccessor, Succession};
use flowloom_wire::KeySpec;

use crate::context::Context;
use crate::model::{Element, Function, KeyPart, NextState, Policy, Stateful, Successor, Variable};

pub use crate::events::LOST_MAP;
pub use flowloom_context::NO_DEADLINE;
pub use flowloom_context::locks::LOCKS_MAP;
pub use flowloom_engine::PORT_COUNT;

/// The map of the global registers: the data section of the object.
pub const GLOBALS_MAP: &str = ".data";
/// The map of ports to redirect to.
pub const PORTS_MAP: &str = "fl_ports";
/// The map of counters, if the function was lowered with them: a data section, so that code can address it directly.
pub const HITS_MAP: &str = ".data.fl_hits";
/// The capacity of the map behind "flows looked up".
pub const SEEN_ENTRIES: u32 = 1 << 20;
/// The size of the key of an element without a key: its only instance.
pub const SINGLE_KEY_BYTES: usize = 4;

/// Whether a map is one of Flowloom's own instruments, not part of the function's state.
pub fn is_instrument(map: &str) -> bool {
    map == HITS_MAP || map == LOCKS_MAP || map == LOST_MAP || map.starts_with("fl_")
}

/// The name of the map of the flows that element number `element` looked up.
pub fn seen_map(element: usize) -> String {
    format!("fl_seen_{element}")
}

/// The layout of a context record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordLayout {
    /// The offsets of the deadline and the period of the idle timer, if the element has one.
    pub idle: Option<IdleOffsets>,
    /// The offset of the deadline of the hard timer, if the element has one.
    pub hard_deadline: Option<u32>,
    /// The offset of the time of the last packet that found the context, if the element evicts the oldest.
    pub touched: Option<u32>,
    /// The offsets of the registers, in declared order.
    pub registers: Vec<u32>,
    /// The offset of the state, a u16.
    pub state: u32,
    /// The size of the record, a multiple of 8.
    pub len_bytes: u32,
}

/// The offsets of an idle timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleOffsets {
    /// The deadline.
    pub deadline: u32,
    /// The period, 0 while the timer is not running.
    pub period: u32,
}

impl RecordLayout {
    /// The layout of the contexts of `element`.
    pub fn of(element: &Element, stateful: &Stateful) -> RecordLayout {
        let mut at = 0;
        let mut take = |bytes: u32| {
            at += bytes;
            at - bytes
        };
        let timers = Timers::of(element, stateful);
        let idle = timers.idle.then(|| IdleOffsets { deadline: take(8), period: take(8) });
        let hard_deadline = timers.hard.then(|| take(8));
        let touched = (stateful.policy == Policy::EvictOldest).then(|| take(8));
        let mut registers = vec![0; stateful.registers.len()];
        for bytes in [16, 8, 4, 2] {
            for (offset, register) in registers.iter_mut().zip(&stateful.registers) {
                if size_bytes(register) == bytes {
                    *offset = take(bytes);
                }
            }
        }
        let state = take(2);
        take(2);
        for (offset, register) in registers.iter_mut().zip(&stateful.registers) {
            if size_bytes(register) == 1 {
                *offset = take(1);
            }
        }
        RecordLayout { idle, hard_deadline, touched, registers, state, len_bytes: at.next_multiple_of(8) }
    }

    /// The layout in the form stored in objects.
    pub fn describe(&self, element: &Element, stateful: &Stateful) -> ContextLayout {
        let number = |name: &str, offset_bytes, size_bytes| LayoutField {
            name: name.to_owned(),
            offset_bytes,
            size_bytes,
            signed: false,
        };
        let mut fields = Vec::new();
        let mut deadline_offsets = Vec::new();
        if let Some(idle) = self.idle {
            fields.push(number("idle_deadline", idle.deadline, 8));
            fields.push(number("idle_ns", idle.period, 8));
            deadline_offsets.push(idle.deadline);
        }
        if let Some(offset) = self.hard_deadline {
            fields.push(number("hard_deadline", offset, 8));
            deadline_offsets.push(offset);
        }
        fields.extend(self.touched.map(|offset| number("touched", offset, 8)));
        for (register, &offset_bytes) in stateful.registers.iter().zip(&self.registers) {
            fields.push(LayoutField {
                name: register.name.clone(),
                offset_bytes,
                size_bytes: size_bytes(register),
                signed: register.ty.signed,
            });
        }
        fields.push(number("state", self.state, 2));
        fields.push(number("flags", self.state + 2, 2));
        fields.sort_by_key(|field| field.offset_bytes);
        ContextLayout {
            element: element.name.clone(),
            states: stateful.states.clone(),
            fields,
            deadline_offsets,
            sweep_ns: stateful.sweep_ns,
            succession: self.succession(stateful),
            preloaded: self.preloaded(stateful),
            locks: None,
        }
    }

    fn succession(&self, stateful: &Stateful) -> Option<Succession> {
        if stateful.successors.iter().all(Option::is_none) {
            return None;
        }
        let successor =
            |next: Successor| StateSuccessor { state: next.state, idle_ns: next.idle_ns, hard_ns: next.hard_ns };
        Some(Succession {
            state_offset: self.state,
            idle_offsets: self.idle.map(|idle| (idle.deadline, idle.period)),
            hard_offset: self.hard_deadline,
            successors: stateful.successors.iter().map(|next| next.map(successor)).collect(),
        })
    }

    /// The keys and records of preloaded contexts.
    fn preloaded(&self, stateful: &Stateful) -> Vec<(Vec<u8>, Vec<u8>)> {
        let contexts = stateful.preloaded.iter();
        contexts
            .map(|context| (context.key.clone(), Context::preloaded(stateful, context).encode(stateful, self)))
            .collect()
    }
}

/// The timers that contexts can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timers {
    pub idle: bool,
    pub hard: bool,
}

impl Timers {
    /// The timers of contexts in any state of an element.
    fn of(element: &Element, stateful: &Stateful) -> Timers {
        timers(element, stateful)
            .into_iter()
            .fold(Timers::default(), |all, state| Timers { idle: all.idle || state.idle, hard: all.hard || state.hard })
    }
}

/// By state, the timers that a context in it can have: those set by some row or successor that leads to it.
pub fn timers(element: &Element, stateful: &Stateful) -> Vec<Timers> {
    let rows = element.rows.iter().filter_map(|row| match row.next {
        NextState::To { state, idle_ns, hard_ns } => Some((state, idle_ns, hard_ns)),
        NextState::Stay => None,
    });
    let successors = stateful.successors.iter().flatten().map(|next| (next.state, next.idle_ns, next.hard_ns));
    let mut timers = vec![Timers::default(); stateful.states.len()];
    for (state, idle_ns, hard_ns) in rows.chain(successors) {
        let timers = &mut timers[usize::from(state)];
        timers.idle |= idle_ns.is_some();
        timers.hard |= hard_ns.is_some();
    }
    timers
}

/// The capacity of an element's table in contexts: 1 without a key.
pub fn capacity(stateful: &Stateful) -> usize {
    if stateful.key.is_some() { stateful.size as usize } else { 1 }
}

/// The size of a variable in memory.
pub fn size_bytes(variable: &Variable) -> u32 {
    u32::from(variable.ty.width_bits) / 8
}

/// By element, the offsets of its global registers in [`GLOBALS_MAP`]; and the initial contents of the map.
pub fn globals(function: &Function) -> (Vec<Vec<u32>>, Vec<u8>) {
    let mut data = Vec::new();
    let offsets = function
        .elements
        .iter()
        .map(|element| {
            let globals = element.stateful.as_ref().map_or(&[][..], |s| &s.globals);
            globals
                .iter()
                .map(|global| {
                    let bytes = size_bytes(global) as usize;
                    data.resize(data.len().next_multiple_of(bytes), 0);
                    let offset = data.len() as u32;
                    data.extend_from_slice(&global.initial.to_le_bytes()[..bytes]);
                    offset
                })
                .collect()
        })
        .collect();
    data.resize(data.len().next_multiple_of(8), 0);
    (offsets, data)
}

/// The key specification of `stateful`, an element of `function`; `None` for the only instance of an element without a
/// key.
///
/// # Panics
/// Never for a checked model: the front end has made the same key.
#[allow(clippy::expect_used)]
pub fn key_spec(function: &Function, stateful: &Stateful) -> Option<KeySpec> {
    let key = stateful.key.as_ref()?;
    let parts: Vec<_> = key
        .parts
        .iter()
        .map(|part| match part {
            KeyPart::Field(field) => flowloom_wire::KeyPart::Field(*field),
            KeyPart::Metadata(i) => {
                flowloom_wire::KeyPart::Value { width_bits: function.metadata[usize::from(*i)].ty.width_bits }
            }
        })
        .collect();
    Some(KeySpec::new(&parts, key.biflow).expect("the front end checked the key"))
}

/// Counters of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// A row matched in a state (0 in a stateless element).
    Row {
        /// The index of the row.
        row: usize,
        /// The number of the state.
        state: u16,
    },
    /// No row matched.
    NoMatch,
    /// A key field was absent.
    NoKey,
    /// A packet found a context in this state whose idle timer had expired.
    IdleExpired(u16),
    /// A packet found a context in this state whose hard timer had expired, and no idle timer.
    HardExpired(u16),
    /// A context was created.
    Created,
    /// A context returned to its default and was removed.
    Removed,
    /// A context could not be created, because the table was full.
    Rejected,
    /// A context was evicted.
    Evicted,
}

/// The indices of a function's counters: the value of [`HITS_MAP`] is an array of u64 in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterTable {
    elements: Vec<ElementCounters>,
    len: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ElementCounters {
    base: u32,
    states: u32,
    rows: u32,
}

impl CounterTable {
    /// The table of `function`.
    pub fn of(function: &Function) -> CounterTable {
        let mut len: u32 = 0;
        let elements = function
            .elements
            .iter()
            .map(|element| {
                let states = element.stateful.as_ref().map_or(1, |s| s.states.len() as u32);
                let counters = ElementCounters { base: len, states, rows: element.rows.len() as u32 };
                // Far above the possible size of a program; the lowering refuses it before it counts.
                len = (counters.rows + 2).saturating_mul(states).saturating_add(6).saturating_add(len);
                counters
            })
            .collect();
        CounterTable { elements, len }
    }

    /// The number of counters.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none; only for a function without elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The index of a counter of element number `element`.
    pub fn index(&self, element: usize, counter: Counter) -> u32 {
        let e = &self.elements[element];
        let tail = e.base + (e.rows + 2) * e.states;
        match counter {
            Counter::Row { row, state } => e.base + row as u32 * e.states + u32::from(state),
            Counter::IdleExpired(state) => e.base + e.rows * e.states + u32::from(state),
            Counter::HardExpired(state) => e.base + (e.rows + 1) * e.states + u32::from(state),
            Counter::NoMatch => tail,
            Counter::NoKey => tail + 1,
            Counter::Created => tail + 2,
            Counter::Removed => tail + 3,
            Counter::Rejected => tail + 4,
            Counter::Evicted => tail + 5,
        }
    }
}
