// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cycles of the engine: when each of its steps has its effect.

use super::{Cuckoo, Location, Slot, Step};
use crate::hash::WAYS;

/// The last phases of the engine's steps (`hdl/table/fl_cuckoo_engine.sv`).
const ROOT_PHASE: u8 = 6;
const NODE_PHASE: u8 = 9;
const EXCHANGE_PHASE: u8 = 6;
/// The phase in which the entry to move or to expand has been read.
const READ_PHASE: u8 = 3;

/// What operations do in a cycle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operations {
    /// One has an effect.
    pub writes: bool,
    /// A deletion has, of the entry with this slot.
    pub deletes: Option<Slot>,
    /// A deletion is between its lookup and its effect, both included.
    pub delete_pending: bool,
}

/// What the engine does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Select,
    Root,
    Node,
    Move,
    Place,
    Exchange,
}

/// The engine of a table, cycle by cycle.
#[derive(Debug, Clone, Default)]
pub struct EngineClock {
    phase: u8,
    /// A deletion has met the step.
    is_disturbed: bool,
    /// The step is replaced by the end of its chain.
    gives_up: bool,
    /// Cycles that are left to note the nodes of the last expansion.
    noting: u32,
    /// Whether the reads of the last two cycles have found the node, the last one first.
    reads: [bool; 2],
}

impl Cuckoo {
    /// The next step of the engine, unless it is cancelled.
    fn work(&self) -> Work {
        let engine = &self.engine;
        match (engine.served, engine.target) {
            (None, _) => Work::Select,
            (Some(_), Some(_)) if engine.chain.is_empty() => Work::Place,
            (Some(_), Some(_)) => Work::Move,
            (Some(_), None) if engine.nodes.is_empty() => Work::Root,
            (Some(_), None) if engine.next < engine.nodes.len() => Work::Node,
            (Some(_), None) => Work::Exchange,
        }
    }

    /// Whether a read of this cycle finds the entry to expand or to move next where it was found before. A deletion
    /// takes the port of the bank, and the read has the deleted entry.
    fn finds_node(&self, work: Work, deleted: Option<Slot>) -> bool {
        let engine = &self.engine;
        let node = match work {
            Work::Node => engine.nodes.get(engine.next),
            Work::Move => engine.chain.last().and_then(|node| engine.nodes.get(*node)),
            Work::Select | Work::Root | Work::Place | Work::Exchange => return true,
        };
        let Some(node) = node else { return false };
        let way = usize::from(node.way);
        let taken =
            deleted.filter(|slot| self.banks[way][self.hash.rows_of(self.key(*slot))[way] as usize] == Some(*slot));
        taken.or(self.at(Location::Bank { way: node.way, row: node.row })) == Some(node.slot)
    }
}

impl EngineClock {
    /// True if nothing happens before the next insertion.
    pub fn is_idle(&self, table: &Cuckoo) -> bool {
        table.stash_len() == 0 && table.engine.served.is_none() && !table.engine.cancelled && !self.gives_up
    }

    /// Decides about a cycle, before the operations have their effects: whether the engine makes a step in it, which
    /// excludes an operation that writes. The caller makes the step by [`EngineClock::step`].
    pub fn decide(&mut self, table: &Cuckoo, operations: Operations) -> bool {
        let work = table.work();
        let is_cancelled = table.engine.cancelled;
        let was_disturbed = self.is_disturbed;
        let phase = self.phase;
        let can_commit = !operations.writes && !operations.delete_pending && !was_disturbed;
        let is_noting = self.noting > 0;
        let is_whole = self.reads[1];
        self.reads = [table.finds_node(work, operations.deletes), self.reads[0]];
        let is_last = match work {
            _ if self.gives_up => true,
            _ if is_noting => false,
            Work::Select => table.stash_len() > 0,
            Work::Root => phase == ROOT_PHASE,
            Work::Node => phase == NODE_PHASE,
            Work::Move => phase == READ_PHASE && is_whole,
            Work::Place => true,
            Work::Exchange => phase == EXCHANGE_PHASE,
        };
        let reads = !self.gives_up && !is_noting && matches!(work, Work::Node | Work::Move);
        let is_broken = reads && phase == READ_PHASE && !is_whole;
        let commits = is_last && can_commit && (!is_cancelled || self.gives_up);
        let is_select = !self.gives_up && !is_noting && work == Work::Select;
        if phase == 0 {
            self.is_disturbed = false;
        }
        self.phase = phase.wrapping_add(1) & 0xf;
        if commits {
            self.phase = 0;
            self.gives_up = false;
        } else if is_noting {
            self.phase = 0;
            self.noting -= 1;
        } else if is_broken && !was_disturbed {
            self.gives_up = true;
            self.phase = 0;
        } else if (is_last || is_broken) && (was_disturbed || (is_cancelled && !self.gives_up)) {
            self.phase = 0;
        } else if is_last || is_select {
            self.phase = phase;
        }
        if is_cancelled && phase == 0 && !is_noting && !commits {
            self.gives_up = true;
            self.phase = 0;
        }
        self.is_disturbed |= operations.deletes.is_some();
        commits
    }

    /// Makes the step of this cycle.
    pub fn step(&mut self, table: &mut Cuckoo) -> Step {
        let (was, before) = (table.work(), table.engine.nodes.len());
        let step = table.step();
        if step == Step::Searched && table.engine.target.is_none() {
            let found = if was == Work::Root { WAYS } else { WAYS - 1 };
            let room = table.parameters.search_nodes as usize - before;
            self.noting = found.min(room) as u32 + 1;
        }
        step
    }
}
