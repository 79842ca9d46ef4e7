// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What decides in which cycle a packet leaves a pipeline: stages, queue, holds, tables. A model of the cycles reads it
//! (crate `predict`).
//!
//! Keys, conditions and outputs are nodes of the plan's dataflow, whose values for a packet an evaluator gives.

use flowloom_ir::{Id, Touch};
use flowloom_plan::Plan;

use crate::map::{self, Block, Map, key};
use crate::may::May;
use crate::node::redirects;
use crate::scheduler::{Scheduler, may_use};
use crate::slice::ahead;

/// The timing of a core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The stages.
    pub stages: u32,
    /// The words of a packet that the core reads.
    pub words: u32,
    /// Whether the start of the packet may move.
    pub moves: bool,
    /// Whether packets that access maps by several keys run alone, so that those after them come again from the queue.
    pub runs_alone: bool,
    /// Where packets wait for one another.
    pub queue: Option<Queue>,
    /// The hash maps that packets change.
    pub tables: Vec<Table>,
    /// The outputs that decide whether a packet leaves, and with which length.
    pub outputs: Outputs,
}

/// The place where packets wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// The stage that packets enter from it. If it is 0, they wait in the framer.
    pub stage: u32,
    /// The packets that it holds; 0 in the framer.
    pub depth: u32,
    /// Whether a packet waits one more cycle for results of blocks that began before it.
    pub is_late: bool,
    /// What packets wait for.
    pub holds: Vec<Wait>,
}

/// A map that packets wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The index of the map in the program.
    pub map: u32,
    /// The cycles after a packet in which no other packet of the key leaves the queue.
    pub cycles: u32,
    /// The bytes of the key; without them all packets that use the map are kept apart.
    pub key: Option<Vec<Id>>,
    /// Where a packet uses the map.
    pub uses: May,
    /// Whether all packets that use the map are kept apart while it is nearly full.
    pub has_tight: bool,
}

/// A hash map that packets change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The index of the map in the program.
    pub map: u32,
    /// The stage in which it is looked up.
    pub asked: u32,
    /// The bytes of the key.
    pub key: Vec<Id>,
    /// Where a packet looks it up.
    pub uses: May,
    /// Whether it evicts the entry with the least recent use when it is full.
    pub is_lru: bool,
    /// The entries at most.
    pub entries: u32,
    /// The size of a key in bytes.
    pub key_bytes: u32,
    /// The cycles from the value to the result.
    pub delay_cycles: u32,
    /// The packets that may enter after the table has no room.
    pub ahead: u32,
    /// The seed of its hash functions.
    pub hash_seed: u64,
    /// The insertions and deletions, in order.
    pub changes: Vec<Entry>,
}

/// An insertion or a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The condition under which it is tried.
    pub when: Id,
    /// The flags of an update, `BPF_ANY` to `BPF_EXIST`; none for a deletion.
    pub flags: Option<u64>,
}

/// The outputs of a core, as nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs {
    /// The verdict.
    pub verdict: Id,
    /// The offsets of the first byte and of the end.
    pub head: Id,
    /// The end.
    pub tail: Id,
    /// Whether the packet leaves for the slow path as it came.
    pub slow: Id,
    /// The redirects, in order.
    pub redirects: Vec<Redirect>,
}

/// A redirect: whether the packet has a target after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirect {
    /// There is one where the node is not 0, and otherwise the one before counts.
    Port(Id),
    /// Where it happens, there is one if the node is the verdict of a redirect.
    Map {
        /// Where it happens.
        when: Id,
        /// The verdict.
        verdict: Id,
    },
    /// Where it happens, there is one.
    All(Id),
}

impl Control {
    pub(crate) fn of(plan: &Plan, maps: &[Map], words: u32, scheduler: Option<&Scheduler>, hash_seed: u64) -> Control {
        let queue = scheduler.map(|scheduler| Queue {
            stage: scheduler.stage,
            depth: scheduler.depth(),
            is_late: scheduler.cycles() > 0,
            holds: scheduler.holds.iter().map(|hold| hold.wait()).collect(),
        });
        let changed = maps.iter().filter(|own| own.block == Block::Hash && own.changes(&plan.dataflow));
        let ending = &plan.dataflow.ending;
        Control {
            stages: plan.schedule.stages,
            words,
            moves: plan.window.moves,
            runs_alone: plan.replay.is_some(),
            queue,
            tables: changed.map(|own| table(plan, own, scheduler, hash_seed)).collect(),
            outputs: Outputs {
                verdict: ending.verdict,
                head: ending.head,
                tail: ending.tail,
                slow: ending.slow,
                redirects: redirects(&plan.dataflow).into_iter().map(|id| redirect(plan, maps, id)).collect(),
            },
        }
    }
}

fn table(plan: &Plan, own: &Map, scheduler: Option<&Scheduler>, hash_seed: u64) -> Table {
    let dataflow = &plan.dataflow;
    let touch = |id: &Id| dataflow.access(*id).map(|access| access.touch);
    let changes = own.accesses.values().flatten().filter(|id| matches!(touch(id), Some(Touch::Update | Touch::Delete)));
    let asked = own.asked();
    Table {
        map: own.map,
        asked,
        key: own.tables.first().map(|table| key(dataflow, table.calls[0])).unwrap_or_default(),
        uses: may_use(plan, own, asked),
        is_lru: own.is_lru,
        entries: own.entries,
        key_bytes: own.key_bits / 8,
        delay_cycles: own.delay(),
        ahead: ahead(asked, scheduler),
        hash_seed,
        changes: changes
            .map(|id| Entry {
                when: dataflow.graph.node(*id).args[0],
                flags: if touch(id) == Some(Touch::Update) { map::flags(dataflow, *id) } else { None },
            })
            .collect(),
    }
}

fn redirect(plan: &Plan, maps: &[Map], id: Id) -> Redirect {
    let when = plan.dataflow.graph.node(id).args[0];
    if map::spread(&plan.dataflow, id).is_some() {
        return Redirect::All(when);
    }
    match maps.iter().any(|own| own.table(id).is_some()) {
        true => Redirect::Map { when, verdict: id },
        false => Redirect::Port(id),
    }
}
