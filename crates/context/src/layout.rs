// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layout of context tables: for sweepers, loaders, `map dump` and `explain`.

use serde::{Deserialize, Serialize};

use crate::locks::Locks;

/// The deadline of a timer that is not running: later than any time of the clock.
pub const NO_DEADLINE: u64 = u64::MAX;

/// The layout of the records of a context table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ContextLayout {
    /// The element that the contexts belong to.
    pub element: String,
    /// The names of its states, by number.
    pub states: Vec<String>,
    /// All fields of a record.
    pub fields: Vec<LayoutField>,
    /// The offsets of the deadlines (u64, little endian): a record has expired at `now` if any of them but
    /// [`NO_DEADLINE`] is <= `now`.
    pub deadline_offsets: Vec<u32>,
    /// The period of the sweep that removes expired records, in nanoseconds.
    pub sweep_ns: u64,
    /// The successors of states, if not all expired records are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succession: Option<Succession>,
    /// The keys and records that exist from the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preloaded: Vec<(Vec<u8>, Vec<u8>)>,
    /// The locks of the table: a writer holds the lock of the record's key. `None` if only one CPU writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locks: Option<Locks>,
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutField {
    /// `state`, `idle_deadline`, `hard_deadline`, `idle_ns`, or the name of a register.
    pub name: String,
    /// The offset in the value, in bytes.
    pub offset_bytes: u32,
    /// The size: 1, 2, 4, 8 or 16 bytes; little endian.
    pub size_bytes: u32,
    /// Whether it is signed (two's complement).
    pub signed: bool,
}

/// How expired records enter a successor state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Succession {
    /// The offset of the state, a u16.
    pub state_offset: u32,
    /// The offsets of the deadline and the period of the idle timer, if records have one.
    pub idle_offsets: Option<(u32, u32)>,
    /// The offset of the deadline of the hard timer, if records have one.
    pub hard_offset: Option<u32>,
    /// By state, its successor; an expired record in a state without a successor is removed.
    pub successors: Vec<Option<StateSuccessor>>,
}

/// The state that a record enters at a deadline; its own timers run from that deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateSuccessor {
    /// The state.
    pub state: u16,
    /// Its idle timeout.
    pub idle_ns: Option<u64>,
    /// Its hard timeout.
    pub hard_ns: Option<u64>,
}

/// The outcome of aging a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aged {
    /// No timer has expired.
    Live,
    /// A timer has expired, and the record is in the successor state.
    Succeeded,
    /// A timer has expired, and the record has to be removed.
    Expired,
}

impl ContextLayout {
    /// Ages `record` to `now_ns`: if it has expired in a state with a successor it enters that one, whose timers run
    /// from the deadline; if those have expired as well it has to be removed.
    pub fn age(&self, record: &mut [u8], now_ns: u64) -> Aged {
        let Some(deadline_ns) = self.run_out(record, now_ns) else { return Aged::Live };
        let Some(succession) = &self.succession else { return Aged::Expired };
        let state = field::<2>(record, succession.state_offset).map(u16::from_le_bytes);
        let successor = state.and_then(|state| succession.successors.get(usize::from(state)).copied().flatten());
        let Some(successor) = successor else { return Aged::Expired };
        put(record, succession.state_offset, successor.state.to_le_bytes());
        let deadline = |timeout: Option<u64>| timeout.map_or(NO_DEADLINE, |t| deadline_ns.wrapping_add(t));
        if let Some((deadline_offset, period_offset)) = succession.idle_offsets {
            put(record, deadline_offset, deadline(successor.idle_ns).to_le_bytes());
            put(record, period_offset, successor.idle_ns.unwrap_or(0).to_le_bytes());
        }
        if let Some(offset) = succession.hard_offset {
            put(record, offset, deadline(successor.hard_ns).to_le_bytes());
        }
        if self.run_out(record, now_ns).is_some() { Aged::Expired } else { Aged::Succeeded }
    }

    /// The earliest deadline, if it has passed.
    fn run_out(&self, record: &[u8], now_ns: u64) -> Option<u64> {
        let deadlines =
            self.deadline_offsets.iter().filter_map(|&offset| field(record, offset).map(u64::from_le_bytes));
        deadlines.min().filter(|&earliest| earliest <= now_ns && earliest != NO_DEADLINE)
    }
}

fn field<const N: usize>(record: &[u8], offset: u32) -> Option<[u8; N]> {
    record.get(offset as usize..)?.first_chunk().copied()
}

fn put<const N: usize>(record: &mut [u8], offset: u32, bytes: [u8; N]) {
    if let Some(place) = record.get_mut(offset as usize..).and_then(|rest| rest.first_chunk_mut()) {
        *place = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record: idle deadline, idle period, hard deadline, state.
    fn record(idle: u64, period: u64, hard: u64, state: u16) -> Vec<u8> {
        [&idle.to_le_bytes()[..], &period.to_le_bytes(), &hard.to_le_bytes(), &state.to_le_bytes()].concat()
    }

    fn layout(successors: Option<Vec<Option<StateSuccessor>>>) -> ContextLayout {
        let succession = successors.map(|successors| Succession {
            state_offset: 24,
            idle_offsets: Some((0, 8)),
            hard_offset: Some(16),
            successors,
        });
        ContextLayout { deadline_offsets: vec![0, 16], succession, ..ContextLayout::default() }
    }

    fn aged(layout: &ContextLayout, mut record: Vec<u8>, now_ns: u64) -> (Aged, Vec<u8>) {
        let aged = layout.age(&mut record, now_ns);
        (aged, record)
    }

    const NONE: u64 = NO_DEADLINE;

    #[test]
    fn records_without_successors_expire_at_any_deadline() {
        let layout = layout(None);
        for (idle, hard, now, expected) in [
            (5, NONE, 4, Aged::Live),
            (5, NONE, 5, Aged::Expired),
            (NONE, 5, 6, Aged::Expired),
            (7, 5, 5, Aged::Expired),
            (NONE, NONE, u64::MAX, Aged::Live),
            (u64::MAX - 1, NONE, u64::MAX, Aged::Expired),
        ] {
            assert_eq!(aged(&layout, record(idle, 1, hard, 0), now).0, expected, "{idle} {hard} {now}");
        }
    }

    #[test]
    fn a_successor_counts_from_the_deadline() {
        let next = |idle_ns, hard_ns| Some(StateSuccessor { state: 2, idle_ns, hard_ns });
        let layout = layout(Some(vec![None, next(Some(10), None), None, next(None, Some(4)), next(None, None)]));
        assert_eq!(aged(&layout, record(20, 5, 30, 1), 25), (Aged::Succeeded, record(30, 10, NONE, 2)));
        assert_eq!(aged(&layout, record(40, 5, 20, 1), 29), (Aged::Succeeded, record(30, 10, NONE, 2)));
        assert_eq!(aged(&layout, record(20, 5, 30, 1), 30).0, Aged::Expired);
        assert_eq!(aged(&layout, record(20, 5, 30, 3), 23), (Aged::Succeeded, record(NONE, 0, 24, 2)));
        assert_eq!(aged(&layout, record(20, 5, 30, 4), u64::MAX), (Aged::Succeeded, record(NONE, 0, NONE, 2)));
        assert_eq!(aged(&layout, record(20, 5, 30, 2), 20).0, Aged::Expired);
        // A state out of range.
        assert_eq!(aged(&layout, record(20, 5, 30, 9), 20).0, Aged::Expired);
    }

    #[test]
    fn a_record_that_is_too_short_is_unchanged() {
        let layout = layout(Some(vec![Some(StateSuccessor { state: 0, idle_ns: Some(1), hard_ns: None })]));
        for len in 0..8 {
            assert_eq!(aged(&layout, vec![0; len], 9), (Aged::Live, vec![0; len]));
        }
        // A record that is too short for its state.
        assert_eq!(aged(&layout, vec![0; 20], 9).0, Aged::Expired);
    }
}
