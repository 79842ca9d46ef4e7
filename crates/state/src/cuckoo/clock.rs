// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cycles of the engine: when each of its steps has its effect.

use super::{Cuckoo, Location, Step};

/// The last phases of the engine's steps (`hdl/table/fl_cuckoo_engine.sv`).
const ROOT_PHASE: u8 = 4;
const NODE_PHASE: u8 = 7;
const EXCHANGE_PHASE: u8 = 4;
/// The phase in which the entry to move or to expand has been read.
const READ_PHASE: u8 = 3;

/// What operations do in a cycle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operations {
    /// An insertion or a deletion is in the cycle of its effect, if it has one.
    pub acts: bool,
    /// A deletion has its effect.
    pub deletes: bool,
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
    /// The last expansion found no free place: the first of its nodes is noted in this cycle.
    is_noting: bool,
    /// Whether the reads of the last two cycles have found the node, the last one first; none where an operation had
    /// the port.
    reads: [Option<bool>; 2],
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

    /// Whether a read of this cycle finds the entry to expand or to move next where it was found before.
    fn finds_node(&self, work: Work) -> bool {
        let engine = &self.engine;
        let node = match work {
            Work::Node => engine.nodes.get(engine.next),
            Work::Move => engine.chain.last().and_then(|node| engine.nodes.get(*node)),
            Work::Select | Work::Root | Work::Place | Work::Exchange => return true,
        };
        let Some(node) = node else { return false };
        self.at(Location::Bank { way: node.way, row: node.row }) == Some(node.slot)
    }

    /// Whether a place of the key whose places are read was written in the cycle before.
    fn is_written(&self, work: Work) -> bool {
        let engine = &self.engine;
        let slot = match work {
            Work::Node => engine.nodes.get(engine.next).map(|node| node.slot),
            Work::Root | Work::Exchange => engine.served.and_then(|entry| self.stash[usize::from(entry)]),
            Work::Select | Work::Move | Work::Place => None,
        };
        let rows = slot.map(|slot| self.hash.rows_of(self.key(slot)));
        rows.is_some_and(|rows| self.written[1].iter().zip(rows).any(|(written, row)| *written == Some(row)))
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
        let can_commit = !operations.acts && !operations.delete_pending && !was_disturbed;
        let is_noting = self.is_noting;
        let works = !self.gives_up && !is_noting;
        // What was read is old where an operation had the port, or has written one of the places since.
        let reads_source = works && matches!(work, Work::Node | Work::Move) && phase == READ_PHASE;
        let reads_places = works
            && match work {
                Work::Root => phase == ROOT_PHASE,
                Work::Node => phase == NODE_PHASE,
                Work::Exchange => phase == EXCHANGE_PHASE,
                Work::Select | Work::Move | Work::Place => false,
            };
        let waits = (reads_source || reads_places) && self.reads[1].is_none() || reads_places && table.is_written(work);
        let is_whole = self.reads[1] == Some(true);
        self.reads = [(!operations.acts).then(|| table.finds_node(work)), self.reads[0]];
        let is_last = match work {
            _ if self.gives_up => true,
            _ if is_noting => false,
            Work::Select => table.stash_len() > 0,
            Work::Root | Work::Node | Work::Exchange => reads_places,
            Work::Move => reads_source && !waits && is_whole,
            Work::Place => true,
        };
        let is_broken = reads_source && !waits && !is_whole;
        let commits = is_last && can_commit && !waits && (!is_cancelled || self.gives_up);
        let is_select = works && work == Work::Select;
        if phase == 0 {
            self.is_disturbed = false;
        }
        self.phase = phase.wrapping_add(1) & 0xf;
        if commits {
            self.phase = 0;
            self.gives_up = false;
        } else if is_noting {
            self.phase = 0;
            self.is_noting = false;
        } else if is_broken && !was_disturbed {
            self.gives_up = true;
            self.phase = 0;
        } else if (is_last || is_broken) && (was_disturbed || (is_cancelled && !self.gives_up)) {
            self.phase = 0;
        } else if is_last || waits || is_select {
            self.phase = phase;
        }
        if is_cancelled && phase == 0 && !is_noting && !commits {
            self.gives_up = true;
            self.phase = 0;
        }
        self.is_disturbed |= operations.deletes;
        commits
    }

    /// Makes the step of this cycle.
    pub fn step(&mut self, table: &mut Cuckoo) -> Step {
        let step = table.step();
        self.is_noting = step == Step::Searched && table.engine.target.is_none();
        step
    }
}
