//! The bytes of contexts, global registers and counters: one table from which the reference machine, the lowering, the
//! sweepers and `map dump` read.
//!
//! # Layout
//! A context record is little endian: `idle_deadline` and `idle_ns` (only where a row or a successor of the element sets an
//! idle timer), `hard_deadline` (only where one sets a hard timer), `touched` (only where the oldest context is evicted: when a
//! packet last found it), the registers from wide to narrow, `state`, `flags` (reserved, 0), zeros up to a multiple of 8. A
//! deadline that is not set is [`NO_DEADLINE`].
//!
//! The global registers of all elements stand one after the other in the data section [`GLOBALS_MAP`].

use flowloom_bpf::{ContextLayout, LayoutField, StateSuccessor, Succession};
use flowloom_wire::KeySpec;

use crate::machine::Context;
use crate::model::{Element, Function, KeyPart, NextState, Policy, Stateful, Successor, Variable};

pub use crate::events::LOST_MAP;
pub use flowloom_bpf::NO_DEADLINE;
pub use flowloom_bpf::locks::LOCKS_MAP;
pub use flowloom_engine::PORT_COUNT;

/// The map of the global registers: the object's data section.
pub const GLOBALS_MAP: &str = ".data";
/// The map of ports to redirect to.
pub const PORTS_MAP: &str = "fl_ports";
/// The map of counters, where the lowering was asked for them: a data section, so that code can address it directly.
pub const HITS_MAP: &str = ".data.fl_hits";
/// How many flows the map behind "flows looked up" remembers.
pub const SEEN_ENTRIES: u32 = 1 << 20;
/// Length of the key of an element without a key: its one instance.
pub const SINGLE_KEY_BYTES: usize = 4;

/// Whether a map is an instrument of Flowloom's own, no part of the function's state.
pub fn is_instrument(map: &str) -> bool {
    map == HITS_MAP || map == LOCKS_MAP || map == LOST_MAP || map.starts_with("fl_")
}

/// The name of the map that remembers which flows element number `element` looked up.
pub fn seen_map(element: usize) -> String {
    format!("fl_seen_{element}")
}

/// Where a record keeps what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordLayout {
    /// Offset of the deadline and of the period of the idle timer, where the element has one.
    pub idle: Option<IdleOffsets>,
    /// Offset of the deadline of the hard timer, where the element has one.
    pub hard_deadline: Option<u32>,
    /// Offset of the time at which a packet last found the context, where the element evicts the oldest.
    pub touched: Option<u32>,
    /// Offset of each register, in declared order.
    pub registers: Vec<u32>,
    /// Offset of the state, two bytes.
    pub state: u32,
    /// Length of the record, a multiple of 8.
    pub len_bytes: u32,
}

/// Offsets of what an idle timer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleOffsets {
    /// The deadline.
    pub deadline: u32,
    /// The period, 0 while the timer does not run.
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

    /// The layout as objects carry it.
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

    /// The keys and records of the contexts that are there from the start.
    fn preloaded(&self, stateful: &Stateful) -> Vec<(Vec<u8>, Vec<u8>)> {
        let contexts = stateful.preloaded.iter();
        contexts
            .map(|context| (context.key.clone(), Context::preloaded(stateful, context).encode(stateful, self)))
            .collect()
    }
}

/// Which timers contexts can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Timers {
    pub(crate) idle: bool,
    pub(crate) hard: bool,
}

impl Timers {
    /// Those of contexts in any state of an element.
    fn of(element: &Element, stateful: &Stateful) -> Timers {
        timers(element, stateful)
            .into_iter()
            .fold(Timers::default(), |all, state| Timers { idle: all.idle || state.idle, hard: all.hard || state.hard })
    }
}

/// For each state, which timers a context in it can have: those that some row or successor sets on the way into it.
pub(crate) fn timers(element: &Element, stateful: &Stateful) -> Vec<Timers> {
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

/// Bytes that a variable takes in memory.
pub fn size_bytes(variable: &Variable) -> u32 {
    u32::from(variable.ty.width_bits) / 8
}

/// Offsets of every element's global registers in [`GLOBALS_MAP`], and the initial contents of the map.
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

/// The key that picks a context of `stateful`, an element of `function`; `None` for the single instance of an element without a key.
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

/// What is counted about an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// A row was taken in a state (0 in a stateless element).
    Row {
        /// The row's index.
        row: usize,
        /// The state's number.
        state: u16,
    },
    /// No row matched.
    NoMatch,
    /// A key field was absent.
    NoKey,
    /// A packet met a context whose idle timer had run out, in this state.
    IdleExpired(u16),
    /// A packet met a context whose hard timer had run out (and no idle timer), in this state.
    HardExpired(u16),
    /// A context was created.
    Created,
    /// A context went back to its default and was removed.
    Removed,
    /// A context could not be created, the table being full.
    Rejected,
    /// A context made room for another.
    Evicted,
}

/// Numbers the counters of a function: the only value of [`HITS_MAP`] is an array of u64 in this order.
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
                // Far above what a program can be; the lowering says so before it counts.
                len = (counters.rows + 2).saturating_mul(states).saturating_add(6).saturating_add(len);
                counters
            })
            .collect();
        CounterTable { elements, len }
    }

    /// How many counters there are.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is none; only for a function without elements.
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
