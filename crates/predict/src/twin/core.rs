// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The core: stages, the queue with its scoreboards, hash maps.

use std::collections::VecDeque;
use std::rc::Rc;

use flowloom_rtl::control::Control;
use flowloom_state::{MapClock, MapParameters};

use super::facts::Facts;
use crate::error::PredictError;

/// Entries of a hash map at most: the model holds their keys.
const MOST_ENTRIES: u32 = 1 << 22;
/// Maps that packets wait for, at most.
const MOST_HOLDS: usize = 64;

/// The packets in the stages, and what they wait for.
#[derive(Debug)]
pub(super) struct Core {
    control: Control,
    /// By stage.
    at: VecDeque<Option<Rc<Facts>>>,
    queue: VecDeque<Rc<Facts>>,
    /// A packet reached the queue in the last cycle; those in it whose late results have come.
    has_arrived: bool,
    ripe: u32,
    /// By hold, the keys of the packets issued in the last cycles, the newest first.
    issued: Vec<VecDeque<Option<Rc<[u8]>>>>,
    maps: Vec<MapClock>,
    /// By hold, its table, if that may be nearly full.
    tight: Vec<Option<usize>>,
    /// By hold, the cycles in which a packet waited for it; by table, those without room; the most packets in the
    /// queue.
    waited: Vec<u64>,
    full: Vec<u64>,
    longest: u64,
}

/// What a core does in a cycle.
#[derive(Debug)]
pub(super) struct Step {
    /// Whether the packet at the entrance enters.
    pub(super) accepts: bool,
    /// Whether another packet may be taken from the framer.
    pub(super) has_room: bool,
    /// Whether the packet that waits is issued.
    go: bool,
    /// The holds for which it waits, a bit each.
    conflicts: u64,
}

impl Core {
    /// An empty core.
    pub(super) fn new(control: Control) -> Result<Core, PredictError> {
        let maps = control.tables.iter().map(|table| {
            let parameters = MapParameters {
                entries: table.entries,
                key_bytes: table.key_bytes,
                delay_cycles: table.delay_cycles,
                ahead: table.ahead,
                hash_seed: table.hash_seed,
            };
            let refused = |found| PredictError::Entries { map: table.map, found, most: MOST_ENTRIES };
            if table.entries > MOST_ENTRIES {
                return Err(refused(table.entries));
            }
            MapClock::new(parameters).map_err(PredictError::Table)
        });
        let maps = maps.collect::<Result<_, PredictError>>()?;
        let holds = || control.queue.iter().flat_map(|queue| &queue.holds);
        if holds().count() > MOST_HOLDS {
            return Err(PredictError::Maps { found: holds().count(), most: MOST_HOLDS });
        }
        let tight = holds().map(|wait| {
            let own = |table: &flowloom_rtl::control::Table| table.map == wait.map;
            control.tables.iter().position(own).filter(|_| wait.has_tight)
        });
        Ok(Core {
            at: vec![None; control.stages as usize + 1].into(),
            queue: VecDeque::new(),
            has_arrived: false,
            ripe: 0,
            issued: holds().map(|wait| vec![None; wait.cycles as usize].into()).collect(),
            maps,
            tight: tight.collect(),
            waited: vec![0; holds().count()],
            full: vec![0; control.tables.len()],
            longest: 0,
            control,
        })
    }

    /// A map that packets wait for: the cycles of the hold, and those in which packets waited.
    pub(super) fn hold(&self, map: Option<u32>) -> Option<(u32, u64)> {
        let mut holds = self.control.queue.iter().flat_map(|queue| &queue.holds).zip(&self.waited);
        holds.find(|(wait, _)| Some(wait.map) == map).map(|(wait, waited)| (wait.cycles, *waited))
    }

    /// The cycles in which a hash map had no room for new keys.
    pub(super) fn table(&self, map: Option<u32>) -> Option<u64> {
        let mut tables = self.control.tables.iter().zip(&self.full);
        tables.find(|(table, _)| Some(table.map) == map).map(|(_, full)| *full)
    }

    /// The most packets that have been in the queue.
    pub(super) fn longest_queue(&self) -> u64 {
        self.longest
    }

    pub(super) fn is_idle(&self) -> bool {
        self.at.iter().all(Option::is_none)
            && self.queue.is_empty()
            && !self.has_arrived
            && self.issued.iter().flatten().all(Option::is_none)
            && self.maps.iter().all(MapClock::is_idle)
    }

    pub(super) fn skip(&mut self, cycles: u64) {
        self.maps.iter_mut().for_each(|map| map.skip(cycles));
    }

    /// Decides about a cycle; `entering` is the packet at the entrance.
    pub(super) fn decide(&self, entering: Option<&Rc<Facts>>) -> Step {
        let stage = self.control.queue.as_ref().map(|queue| queue.stage);
        let is_behind = |asked: u32| stage.is_some_and(|stage| asked >= stage);
        let tables = || self.control.tables.iter().zip(&self.maps);
        let mut has_room = tables().filter(|(table, _)| !is_behind(table.asked)).all(|(_, map)| map.has_room());
        let Some(queue) = &self.control.queue else { return Step { accepts: true, has_room, go: false, conflicts: 0 } };
        let waiting = if queue.stage == 0 { entering } else { self.queue.front() };
        let is_ripe = !queue.is_late || self.ripe > 0;
        let is_open = tables().filter(|(table, _)| is_behind(table.asked)).all(|(_, map)| map.has_room());
        let conflicts = |facts: &Facts, number: usize| {
            let Some(key) = &facts.holds[number] else { return false };
            let all =
                queue.holds[number].key.is_none() || self.tight[number].is_some_and(|map| self.maps[map].is_tight());
            self.issued[number].iter().flatten().any(|issued| all || issued == key)
        };
        let conflicts = waiting.map_or(0, |facts| {
            (0..queue.holds.len()).fold(0, |all, number| all | u64::from(conflicts(facts, number)) << number)
        });
        let go = is_ripe && is_open && waiting.is_some() && conflicts == 0;
        if queue.stage > 0 {
            has_room &= (self.queue.len() as u32) < queue.depth - queue.stage - 1;
        }
        Step { accepts: queue.stage > 0 || go, has_room, go, conflicts }
    }

    /// A cycle. Returns the packet with its result.
    pub(super) fn cycle(&mut self, entering: Option<Rc<Facts>>, step: &Step) -> Option<Rc<Facts>> {
        let stage = self.control.queue.as_ref().map(|queue| queue.stage as usize);
        let mut issued = None;
        self.longest = self.longest.max(self.queue.len() as u64);
        for (number, waited) in self.waited.iter_mut().enumerate() {
            *waited += step.conflicts >> number & 1;
        }
        for (full, map) in self.full.iter_mut().zip(&self.maps) {
            *full += u64::from(!map.has_room());
        }
        self.at[0] = entering.filter(|_| step.accepts);
        match stage {
            Some(0) => issued = self.at[0].clone(),
            Some(stage) if step.go => {
                issued = self.queue.pop_front();
                self.at[stage] = issued.clone();
            }
            _ => {}
        }
        for ((table, map), number) in self.control.tables.iter().zip(&mut self.maps).zip(0..) {
            let facts = self.at[table.asked as usize].as_ref();
            let access: Option<_> = facts.and_then(|facts| facts.tables.get::<usize>(number).cloned().flatten());
            map.cycle(access);
        }
        for (number, keys) in self.issued.iter_mut().enumerate() {
            keys.pop_back();
            keys.push_front(issued.as_ref().and_then(|facts| facts.holds[number].clone()));
        }
        let result = self.at.pop_back().flatten();
        self.at.push_front(None);
        if let Some(stage) = stage.filter(|stage| *stage > 0) {
            self.ripe += u32::from(self.has_arrived);
            self.ripe -= u32::from(issued.is_some() && self.control.queue.as_ref().is_some_and(|queue| queue.is_late));
            let arrived = self.at[stage].take();
            self.has_arrived = arrived.is_some() && self.control.queue.as_ref().is_some_and(|queue| queue.is_late);
            self.queue.extend(arrived);
        }
        result
    }
}
