// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contexts: the state of one flow in one element, its timers and its record.
//!
//! The expiry of a context is defined here; `ContextLayout::age` of the crate `context` ages the bytes of records.

use crate::layout::{self, Counter, NO_DEADLINE, RecordLayout, Timers};
use crate::model::{Policy, Preloaded, Stateful, Successor};
use crate::registers::Registers;

/// The state of one flow in one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The number of the state.
    pub state: u16,
    /// The registers, as their low bits.
    pub registers: Registers,
    /// The deadline of the idle timer; [`NO_DEADLINE`] if it is not running.
    pub idle_deadline_ns: u64,
    /// The period of the idle timer, 0 if it is not running.
    pub idle_ns: u64,
    /// The deadline of the hard timer; [`NO_DEADLINE`] if it is not running.
    pub hard_deadline_ns: u64,
    /// The time of the last packet that found it, if the element evicts the oldest; otherwise 0.
    pub touched_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Aging {
    /// No timer has expired.
    Live,
    /// A timer has expired, and the context has entered the successor of its state.
    Succeeded(Counter),
    /// A timer has expired, and the context is removed, perhaps after a successor state.
    Expired(Vec<Counter>),
}

impl Context {
    /// The default context: that of an absent key.
    pub fn initial(stateful: &Stateful) -> Context {
        Context {
            state: 0,
            registers: stateful.registers.iter().map(|register| register.initial).collect(),
            idle_deadline_ns: NO_DEADLINE,
            idle_ns: 0,
            hard_deadline_ns: NO_DEADLINE,
            touched_ns: 0,
        }
    }

    /// Copies a context of the same element without allocating.
    pub(super) fn copy_from(&mut self, source: &Context) {
        let Context { state, registers, idle_deadline_ns, idle_ns, hard_deadline_ns, touched_ns } = self;
        registers.copy_from(&source.registers);
        (*state, *idle_ns, *touched_ns) = (source.state, source.idle_ns, source.touched_ns);
        (*idle_deadline_ns, *hard_deadline_ns) = (source.idle_deadline_ns, source.hard_deadline_ns);
    }

    pub(crate) fn preloaded(stateful: &Stateful, preloaded: &Preloaded) -> Context {
        Context {
            state: preloaded.state,
            registers: preloaded.registers.iter().copied().collect(),
            ..Context::initial(stateful)
        }
    }

    /// Whether it is the default one, regardless of when it was last found.
    pub(super) fn is_initial(&self, stateful: &Stateful) -> bool {
        let Context { state, registers, idle_deadline_ns, idle_ns, hard_deadline_ns, touched_ns: _ } = self;
        (*state, *idle_ns) == (0, 0)
            && (*idle_deadline_ns, *hard_deadline_ns) == (NO_DEADLINE, NO_DEADLINE)
            && registers.iter().eq(stateful.registers.iter().map(|register| &register.initial))
    }

    /// Ages the context to `now_ns`: if a timer of a state with a successor has expired, it enters the successor at the
    /// deadline, and the successor's timers run from there.
    pub(super) fn age(&mut self, stateful: &Stateful, layout: &RecordLayout, now_ns: u64) -> Aging {
        let Some((first, deadline_ns)) = self.run_out(layout, now_ns) else { return Aging::Live };
        let Some(Successor { state, idle_ns, hard_ns }) = stateful.successor(self.state) else {
            return Aging::Expired(vec![first]);
        };
        self.enter(state, idle_ns, hard_ns, deadline_ns);
        match self.run_out(layout, now_ns) {
            None => Aging::Succeeded(first),
            Some((second, _)) => Aging::Expired(vec![first, second]),
        }
    }

    /// The time from which [`Context::age`] changes it; [`NO_DEADLINE`] for never.
    pub(super) fn earliest_deadline_ns(&self, layout: &RecordLayout) -> u64 {
        let idle_ns = if layout.idle.is_some() { self.idle_deadline_ns } else { NO_DEADLINE };
        let hard_ns = if layout.hard_deadline.is_some() { self.hard_deadline_ns } else { NO_DEADLINE };
        idle_ns.min(hard_ns)
    }

    /// The expired timer as a counter (the idle timer if both have expired), and the earliest deadline.
    fn run_out(&self, layout: &RecordLayout, now_ns: u64) -> Option<(Counter, u64)> {
        let has_run_out = |deadline_ns| deadline_ns <= now_ns && deadline_ns != NO_DEADLINE;
        let idle = layout.idle.is_some() && has_run_out(self.idle_deadline_ns);
        let hard = layout.hard_deadline.is_some() && has_run_out(self.hard_deadline_ns);
        let earliest = self.idle_deadline_ns.min(self.hard_deadline_ns);
        match (idle, hard) {
            (true, _) => Some((Counter::IdleExpired(self.state), earliest)),
            (false, true) => Some((Counter::HardExpired(self.state), earliest)),
            (false, false) => None,
        }
    }

    /// What is expected instead, if a timer is set that contexts in this state never have, or only in part.
    pub(super) fn expected_timer(&self, timers: Timers) -> Option<&'static str> {
        let idle = self.idle_ns != 0 || self.idle_deadline_ns != NO_DEADLINE;
        if idle && !timers.idle {
            return Some("no idle timer in a state for which no row sets one");
        }
        if self.hard_deadline_ns != NO_DEADLINE && !timers.hard {
            return Some("no hard timer in a state for which no row sets one");
        }
        (idle && self.idle_ns == 0).then_some("an idle timer with both a period and a deadline")
    }

    /// Enters a state at `at_ns`: the old timers stop, these start.
    pub(super) fn enter(&mut self, state: u16, idle_ns: Option<u64>, hard_ns: Option<u64>, at_ns: u64) {
        let deadline = |timeout: Option<u64>| timeout.map_or(NO_DEADLINE, |t| at_ns.wrapping_add(t));
        self.state = state;
        self.idle_ns = idle_ns.unwrap_or(0);
        self.idle_deadline_ns = deadline(idle_ns);
        self.hard_deadline_ns = deadline(hard_ns);
    }

    /// A packet has found it: restarts the idle timer.
    pub(super) fn touch(&mut self, layout: &RecordLayout, now_ns: u64) {
        if self.idle_ns != 0 {
            self.idle_deadline_ns = now_ns.wrapping_add(self.idle_ns);
        }
        if layout.touched.is_some() {
            self.touched_ns = now_ns;
        }
    }

    /// The eviction order: the context with the smallest value is the victim. `None` without eviction.
    pub(super) fn eviction_rank(&self, stateful: &Stateful) -> Option<i128> {
        let register = |i: u16| {
            let value = self.registers[usize::from(i)];
            let ty = stateful.registers[usize::from(i)].ty;
            let shift = 128 - u32::from(ty.width_bits);
            if ty.signed { (value << shift) as i128 >> shift } else { value as i128 }
        };
        match stateful.policy {
            Policy::Reject => None,
            Policy::EvictLowest(i) => Some(register(i)),
            Policy::EvictHighest(i) => Some(-register(i)),
            Policy::EvictOldest => Some(self.touched_ns.into()),
        }
    }

    /// The record of the context, in the layout of its element.
    pub fn encode(&self, stateful: &Stateful, layout: &RecordLayout) -> Vec<u8> {
        let mut record = Vec::new();
        self.encode_into(stateful, layout, &mut record);
        record
    }

    /// As [`Context::encode`], but reuses the memory of `record`.
    pub(super) fn encode_into(&self, stateful: &Stateful, layout: &RecordLayout, record: &mut Vec<u8>) {
        record.clear();
        record.resize(layout.len_bytes as usize, 0);
        if let Some(idle) = layout.idle {
            put(record, idle.deadline, 8, self.idle_deadline_ns.into());
            put(record, idle.period, 8, self.idle_ns.into());
        }
        if let Some(offset) = layout.hard_deadline {
            put(record, offset, 8, self.hard_deadline_ns.into());
        }
        if let Some(offset) = layout.touched {
            put(record, offset, 8, self.touched_ns.into());
        }
        for ((value, register), &offset) in self.registers.iter().zip(&stateful.registers).zip(&layout.registers) {
            put(record, offset, layout::size_bytes(register), *value);
        }
        put(record, layout.state, 2, self.state.into());
    }

    /// Decodes a record of the right size.
    pub(super) fn decode(record: &[u8], stateful: &Stateful, layout: &RecordLayout) -> Context {
        let registers = stateful.registers.iter().zip(&layout.registers);
        let number = |offset| get(record, offset, 8) as u64;
        Context {
            state: get(record, layout.state, 2) as u16,
            registers: registers.map(|(r, &offset)| get(record, offset, layout::size_bytes(r))).collect(),
            idle_deadline_ns: layout.idle.map_or(NO_DEADLINE, |idle| number(idle.deadline)),
            idle_ns: layout.idle.map_or(0, |idle| number(idle.period)),
            hard_deadline_ns: layout.hard_deadline.map_or(NO_DEADLINE, number),
            touched_ns: layout.touched.map_or(0, number),
        }
    }
}

pub(super) fn put(record: &mut [u8], offset: u32, bytes: u32, value: u128) {
    let (offset, bytes) = (offset as usize, bytes as usize);
    record[offset..offset + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

pub(super) fn get(record: &[u8], offset: u32, bytes: u32) -> u128 {
    let (offset, bytes) = (offset as usize, bytes as usize);
    let mut value = [0; 16];
    value[..bytes].copy_from_slice(&record[offset..offset + bytes]);
    u128::from_le_bytes(value)
}
