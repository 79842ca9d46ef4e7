// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine that places entries of the stash in the table, one step at a time.

use super::{Cuckoo, Location, Slot, Step};
use crate::hash::WAYS;

/// State of the engine between two steps.
#[derive(Debug, Clone, Default)]
pub(super) struct Engine {
    /// The entry of the stash that is served.
    pub(super) served: Option<u8>,
    /// True if the served entry was deleted since the last step.
    pub(super) cancelled: bool,
    /// Nodes of the search, in the order of their discovery.
    pub(super) nodes: Vec<Node>,
    /// Insertions since the search began.
    pub(super) insertions: u32,
    /// The node to expand next.
    pub(super) next: usize,
    /// The chain of moves that is left: the nodes from a candidate of the served key to the entry that moves next.
    pub(super) chain: Vec<usize>,
    /// The free place into which the next entry of the chain moves; none during a search.
    pub(super) target: Option<Location>,
    /// The place whose entry was copied last, if it still holds the entry.
    stale: Option<Location>,
    /// The entry of the stash that is served next, if it is occupied.
    turn: u8,
    /// Exchanges so far: they take the four candidates in turn, since the same one would bring the first entry back.
    exchanges: u32,
}

/// An entry that could move.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) way: u8,
    pub(super) row: u32,
    /// Its entry when it was found.
    pub(super) slot: Slot,
    /// The node whose entry would move to this place; none for places of the served key.
    parent: Option<usize>,
}

impl Engine {
    /// The place of an older copy of an entry that has moved.
    pub(super) fn stale(&self) -> Option<Location> {
        self.stale
    }

    /// An entry of the stash is deleted.
    pub(super) fn deleted(&mut self, entry: u8) {
        self.cancelled |= self.served == Some(entry);
    }

    /// Starts the search for a stashed entry.
    fn restart(&mut self) {
        self.nodes.clear();
        self.insertions = 0;
        self.chain.clear();
        self.next = 0;
        self.target = None;
    }

    fn location(&self, node: usize) -> Location {
        Location::Bank { way: self.nodes[node].way, row: self.nodes[node].row }
    }
}

impl Cuckoo {
    /// Performs one step of the engine.
    pub fn step(&mut self) -> Step {
        if std::mem::take(&mut self.engine.cancelled) {
            self.engine.served = None;
            return self.give_up();
        }
        let Some(entry) = self.engine.served else { return self.select() };
        // A deletion would have cancelled the service.
        let slot = self.stash[usize::from(entry)].expect("the entry that is served is in the stash");
        match self.engine.target {
            Some(target) => self.advance(entry, slot, target),
            None => self.search(entry, slot),
        }
    }

    /// Selects the next entry of the stash, round robin.
    fn select(&mut self) -> Step {
        let count = self.stash.len();
        let mut turns = (0..count).map(|turn| (turn + usize::from(self.engine.turn)) % count);
        self.engine.served = turns.find(|&entry| self.stash[entry].is_some()).map(|entry| entry as u8);
        if self.engine.served.is_some() { Step::Selected } else { Step::Idle }
    }

    /// Ends a chain of moves early: clears the copy that it has left.
    fn give_up(&mut self) -> Step {
        if let Some(stale) = self.engine.stale.take() {
            self.write(stale, None);
        }
        self.engine.restart();
        Step::GivenUp
    }

    /// Reads the places of the served key, or of the next entry that could move for it.
    fn search(&mut self, entry: u8, slot: Slot) -> Step {
        if self.engine.nodes.is_empty() {
            let free = self.expand(slot, None);
            if let Some(free) = free {
                return self.place(entry, slot, free);
            }
            return Step::Searched;
        }
        let Some(&node) = self.engine.nodes.get(self.engine.next) else { return self.exchange(entry, slot) };
        let index = self.engine.next;
        self.engine.next += 1;
        if self.at(Location::Bank { way: node.way, row: node.row }) != Some(node.slot) {
            return self.give_up();
        }
        if let Some(free) = self.expand(node.slot, Some(index)) {
            let mut at = Some(index);
            while let Some(node) = at {
                self.engine.chain.push(node);
                at = self.engine.nodes[node].parent;
            }
            self.engine.chain.reverse();
            self.engine.target = Some(free);
        }
        Step::Searched
    }

    /// Reads the other places of an entry. Returns a free one; otherwise the entries there become nodes.
    fn expand(&mut self, slot: Slot, parent: Option<usize>) -> Option<Location> {
        let rows = self.hash.rows_of(self.slots.key(slot));
        let own = parent.map(|node| usize::from(self.engine.nodes[node].way));
        let others = || (0..WAYS).filter(move |&way| Some(way) != own);
        if let Some(way) = others().find(|&way| self.banks[way][rows[way] as usize].is_none()) {
            return Some(Location::Bank { way: way as u8, row: rows[way] });
        }
        for way in others() {
            let room = self.engine.nodes.len() < self.parameters.search_nodes as usize;
            if let Some(slot) = self.banks[way][rows[way] as usize].filter(|_| room) {
                self.engine.nodes.push(Node { way: way as u8, row: rows[way], slot, parent });
            }
        }
        None
    }

    /// Performs the next move of the chain, or places the served entry at its end.
    fn advance(&mut self, entry: u8, slot: Slot, target: Location) -> Step {
        let Some(node) = self.engine.chain.pop() else { return self.place(entry, slot, target) };
        let source = self.engine.location(node);
        let moved = self.engine.nodes[node].slot;
        if self.at(source) != Some(moved) {
            return self.give_up();
        }
        self.write(target, Some(moved));
        self.slots.set_location(moved, target);
        self.engine.stale = Some(source);
        self.engine.target = Some(source);
        Step::Moved(moved)
    }

    /// Moves the served entry from the stash to its place.
    fn place(&mut self, entry: u8, slot: Slot, target: Location) -> Step {
        self.write(target, Some(slot));
        self.slots.set_location(slot, target);
        self.stash[usize::from(entry)] = None;
        self.engine.stale = None;
        self.end_service(entry);
        Step::Placed(slot)
    }

    /// Exchanges the served entry and one of its candidates.
    fn exchange(&mut self, entry: u8, slot: Slot) -> Step {
        let way = self.engine.exchanges as usize % WAYS;
        self.engine.exchanges = self.engine.exchanges.wrapping_add(1);
        let row = self.hash.rows_of(self.slots.key(slot))[way];
        let place = Location::Bank { way: way as u8, row };
        let Some(stashed) = self.at(place) else { return self.place(entry, slot, place) };
        self.write(place, Some(slot));
        self.slots.set_location(slot, place);
        self.stash[usize::from(entry)] = Some(stashed);
        self.slots.set_location(stashed, Location::Stash(entry));
        self.end_service(entry);
        Step::Exchanged { placed: slot, stashed }
    }

    /// The next step serves the next entry of the stash.
    fn end_service(&mut self, entry: u8) {
        self.engine.restart();
        self.engine.served = None;
        self.engine.turn = entry.wrapping_add(1);
    }
}
