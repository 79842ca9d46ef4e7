// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The locks of a function: the elements that have one, and the locks held on entry to each element.

use flowloom_context::locks::{CELLS, LOCKS_MAP, Locks};
use flowloom_isa::{BPF_F_MMAPABLE, MapDef, MapKind};
use flowloom_wire::field::FieldId;

use super::asm::{Builder, Label, Reg};
use super::fields::mask_of;
use super::maps::plain_map;
use flowloom_efsm::layout;
use flowloom_efsm::model::{
    Condition, Destination, Element, Function, Key, NextState, Policy, Row, Stateful, Terminal,
};

/// Whether a lock is held on all paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hold {
    Always,
    /// Held on some paths to here; on the others the register with the cell's address is 0.
    Maybe,
}

/// The held locks, by element.
pub(super) type HeldLocks = Vec<(usize, Hold)>;

#[derive(Debug, Clone)]
pub(super) struct ElementLock {
    pub(super) locks: Locks,
    /// Address of the cell that the packet holds.
    pub(super) address: Reg,
}

/// A lock attempt that found the lock held.
pub(super) struct Contended {
    pub(super) label: Label,
    pub(super) retry: Label,
    pub(super) address: Reg,
    /// Locks that the packet holds while it waits.
    pub(super) held: HeldLocks,
}

#[derive(Default)]
pub(super) struct Locking {
    /// Indexed by element; empty if the program is not attached.
    pub(super) elements: Vec<Option<ElementLock>>,
    /// Locks held on entry to each element.
    entry: Vec<HeldLocks>,
    pub(super) contended: Vec<Contended>,
    pub(super) map: u32,
}

impl Locking {
    /// The locks of a function that is attached.
    pub(super) fn of(function: &Function, builder: &mut Builder) -> Locking {
        let mut len_bytes = 0;
        let elements: Vec<_> = function
            .elements
            .iter()
            .map(|element| {
                let stateful = element.stateful.as_ref().filter(|stateful| is_written(element, stateful))?;
                let cells = if has_one_cell(element, stateful) { 1 } else { CELLS };
                let locks = Locks { offset_bytes: len_bytes, cells };
                len_bytes += locks.len_bytes();
                Some(ElementLock { locks, address: builder.reg() })
            })
            .collect();
        let is_locked = |element: usize| elements[element].is_some();
        let entry = entries(function, &is_locked);
        Locking { elements, entry, contended: Vec::new(), map: 0 }
    }

    /// The map of all cells, if there are any; `map` is its number.
    pub(super) fn map(&mut self, map: u32) -> Option<MapDef> {
        let bytes: u32 = self.elements.iter().flatten().map(|lock| lock.locks.len_bytes()).sum();
        self.map = map;
        let def = plain_map(LOCKS_MAP, MapKind::Array, 4, bytes, 1, BPF_F_MMAPABLE);
        (bytes > 0).then(|| MapDef { initial: Some(vec![0; bytes as usize]), ..def })
    }

    /// The locks of an element, for the sweeper of its table.
    pub(super) fn locks(&self, element: usize) -> Option<Locks> {
        self.elements.get(element)?.as_ref().map(|lock| lock.locks)
    }

    pub(super) fn at_entry(&self, element: usize) -> HeldLocks {
        self.entry.get(element).cloned().unwrap_or_default()
    }
}

/// True if packets write the table of an element.
fn is_written(element: &Element, stateful: &Stateful) -> bool {
    let moves = |row: &Row| match row.next {
        NextState::Stay => false,
        NextState::To { state, .. } => row.states.iter().any(|&from| from != state),
    };
    let names_full = |row: &Row| row.conditions.iter().any(|c| matches!(c, Condition::Full { .. }));
    layout::timers(element, stateful).iter().any(|timers| timers.idle || timers.hard)
        || stateful.policy == Policy::EvictOldest
        || element.rows.iter().any(|row| !row.updates.is_empty() || moves(row) || names_full(row))
}

/// True if all contexts of an element share state: its only instance, a global register that rows write, or the test
/// for a full table, for which a row tentatively stores a context.
fn has_one_cell(element: &Element, stateful: &Stateful) -> bool {
    let shares = |row: &Row| {
        row.updates.iter().any(|update| matches!(update.destination, Destination::Global(_)))
            || row.conditions.iter().any(|c| matches!(c, Condition::Full { .. }))
    };
    stateful.key.is_none() || element.rows.iter().any(shares)
}

/// Locks held on entry to each element.
fn entries(function: &Function, is_locked: &dyn Fn(usize) -> bool) -> Vec<HeldLocks> {
    let mut incoming: Vec<Vec<HeldLocks>> = vec![Vec::new(); function.elements.len()];
    if let Some(first) = incoming.first_mut() {
        first.push(HeldLocks::new());
    }
    let mut entries = Vec::with_capacity(incoming.len());
    for (index, element) in function.elements.iter().enumerate() {
        let before = joined(&incoming[index]);
        let mut inside = before.clone();
        if is_locked(index) {
            inside.push((index, Hold::Always));
        }
        let to = |terminal: &Terminal| match terminal {
            Terminal::Goto(next) => Some(usize::from(*next)),
            _ => None,
        };
        for next in element.rows.iter().filter_map(|row| to(&row.actions.terminal)) {
            incoming[next].push(inside.clone());
        }
        if let Some(next) = to(&element.otherwise.actions.terminal) {
            incoming[next].push(inside);
            // A packet without the key leaves before the lookup.
            let key = element.stateful.as_ref().and_then(|s| s.key.as_ref());
            if key.is_some_and(|key: &Key| key.fields().any(|field: FieldId| mask_of(field) != 0)) {
                incoming[next].push(before.clone());
            }
        }
        entries.push(before);
    }
    entries
}

/// Join of the held locks of these paths.
fn joined(incoming: &[HeldLocks]) -> HeldLocks {
    let mut elements: Vec<usize> = incoming.iter().flatten().map(|&(element, _)| element).collect();
    elements.sort_unstable();
    elements.dedup();
    let on_all = |element| incoming.iter().all(|locks| locks.contains(&(element, Hold::Always)));
    elements.into_iter().map(|e| (e, if on_all(e) { Hold::Always } else { Hold::Maybe })).collect()
}
