// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pending keys of a hash map, the twin of `hdl/table/fl_pending.sv`.

use std::rc::Rc;

/// Pending keys.
pub(super) const ENTRIES: u32 = 32;
/// Cycles after an insertion in which lookups that did not see it may come by.
const SETTLE: usize = 3;

/// The pending keys; a bit of each set is one of them.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    quiet_cycles: u64,
    now: u64,
    keys: Vec<Rc<[u8]>>,
    slots: [u32; ENTRIES as usize],
    /// The cycles from which on an entry is quiet, and those that are not yet.
    until: [u64; ENTRIES as usize],
    busy: u32,
    valid: u32,
    adopted: u32,
    present: u32,
    moving: u32,
    stored: u32,
    absent_pick: Option<u8>,
    insert_pick: Option<u8>,
    copy_pick: Option<u8>,
    adopted_pick: Option<u8>,
    /// By age.
    settling: [Option<u8>; SETTLE],
}

/// What pending keys offer in a cycle.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// The next key that goes into the cuckoo table.
    pub(super) insert: Option<u8>,
    /// The next row that is copied.
    pub(super) copy: Option<u8>,
    /// The next quiet adopted entry.
    pub(super) quiet: Option<u8>,
}

/// What happens to pending keys in a cycle.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) hit: Option<u8>,
    /// The key that takes the free entry, and the slot of an adopted one.
    pub(super) allocated: Option<Rc<[u8]>>,
    pub(super) adopted: Option<u32>,
    pub(super) mark: Option<(u8, bool)>,
    pub(super) insert_take: bool,
    /// How an insertion ended: the entry, and its slot if it was stored.
    pub(super) inserted: Option<(u8, Option<u32>)>,
    pub(super) copy_take: bool,
    pub(super) next: bool,
    pub(super) work: u8,
    pub(super) release: bool,
    pub(super) disown: bool,
    pub(super) let_go: bool,
}

fn bit(entry: u8) -> u32 {
    1 << entry
}

fn first(set: u32) -> Option<u8> {
    (set != 0).then(|| set.trailing_zeros() as u8)
}

/// The next entry of a set after another one; after the last one comes the first one.
fn next(set: u32, after: Option<u8>) -> Option<u8> {
    first(set & (u32::MAX << 1 << after.unwrap_or(0))).or(first(set))
}

/// The set without an entry.
fn without(set: u32, entry: Option<u8>) -> u32 {
    entry.map_or(set, |entry| set & !bit(entry))
}

impl Pending {
    pub(super) fn new(quiet_cycles: u32) -> Pending {
        Pending {
            quiet_cycles: quiet_cycles.into(),
            now: 0,
            keys: vec![Rc::from([]); ENTRIES as usize],
            slots: [0; ENTRIES as usize],
            until: [0; ENTRIES as usize],
            busy: 0,
            valid: 0,
            adopted: 0,
            present: 0,
            moving: 0,
            stored: 0,
            absent_pick: None,
            insert_pick: None,
            copy_pick: None,
            adopted_pick: None,
            settling: [None; SETTLE],
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        let picks = [self.absent_pick, self.insert_pick, self.copy_pick, self.adopted_pick];
        self.valid == 0 && picks.iter().chain(&self.settling).all(Option::is_none)
    }

    /// Cycles pass without a key.
    pub(super) fn skip(&mut self, cycles: u64) {
        self.now += cycles;
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<u8> {
        let mut left = self.valid;
        while let Some(entry) = first(left) {
            if *self.keys[usize::from(entry)] == *key {
                return Some(entry);
            }
            left &= left - 1;
        }
        None
    }

    pub(super) fn free_count(&self) -> u32 {
        self.valid.count_zeros()
    }

    pub(super) fn free_entry(&self) -> u8 {
        first(!self.valid).unwrap_or(0)
    }

    pub(super) fn key(&self, entry: u8) -> Rc<[u8]> {
        Rc::clone(&self.keys[usize::from(entry)])
    }

    pub(super) fn slot(&self, entry: u8) -> u32 {
        self.slots[usize::from(entry)]
    }

    /// The slot of an adopted entry.
    pub(super) fn adopted_slot(&self, entry: u8) -> Option<u32> {
        (self.adopted & bit(entry) != 0).then(|| self.slot(entry))
    }

    pub(super) fn is_present(&self, entry: u8) -> bool {
        self.present & bit(entry) != 0
    }

    fn quiet(&self, hit: Option<u8>) -> u32 {
        without(self.valid & !self.busy, hit)
    }

    pub(super) fn is_quiet(&self, entry: u8, hit: Option<u8>) -> bool {
        self.quiet(hit) & bit(entry) != 0
    }

    pub(super) fn view(&self, hit: Option<u8>) -> View {
        let quiet = self.quiet(hit);
        let among = |pick: Option<u8>, set: u32| pick.filter(|entry| set & bit(*entry) != 0);
        View {
            insert: among(self.insert_pick, quiet & self.present),
            copy: among(self.copy_pick, quiet),
            quiet: among(self.adopted_pick, quiet & self.adopted),
        }
    }

    /// The end of a cycle.
    pub(super) fn end(&mut self, input: Input) {
        let view = self.view(input.hit);
        let quiet = self.quiet(input.hit);
        let free = self.free_entry();
        // The picks of the next cycle.
        let waits = self.valid & !self.busy & !self.adopted;
        let absent = first(without(waits & !self.moving & !self.present, self.absent_pick));
        let insert = next(without(waits & !self.moving & self.present, self.insert_pick), self.insert_pick);
        let copy = first(without(waits & self.stored, self.copy_pick));
        let adopted = first(without(self.valid & !self.busy & self.adopted, self.adopted_pick));
        let gives_up = self.absent_pick.filter(|entry| quiet & !self.present & bit(*entry) != 0);
        let (inserting, copying) = (self.insert_pick, self.copy_pick);
        if input.next || view.quiet.is_none() {
            self.adopted_pick = adopted;
        }
        if let Some(entry) = input.hit {
            self.wait(entry);
        }
        if let Some((entry, is_present)) = input.mark {
            self.present = if is_present { self.present | bit(entry) } else { self.present & !bit(entry) };
        }
        if let Some(key) = input.allocated {
            let own = bit(free);
            self.valid |= own;
            self.keys[usize::from(free)] = key;
            self.adopted = if input.adopted.is_some() { self.adopted | own } else { self.adopted & !own };
            (self.present, self.moving, self.stored) = (self.present & !own, self.moving & !own, self.stored & !own);
            self.slots[usize::from(free)] = input.adopted.unwrap_or(0);
            self.wait(free);
        }
        self.absent_pick = absent;
        if input.insert_take || view.insert.is_none() {
            self.insert_pick = insert;
        }
        if input.copy_take || view.copy.is_none() {
            self.copy_pick = copy;
        }
        self.valid = without(self.valid, gives_up);
        if let Some(entry) = inserting.filter(|_| input.insert_take) {
            self.moving |= bit(entry);
        }
        let settled = self.settling[SETTLE - 1];
        self.settling.rotate_right(1);
        self.settling[0] = None;
        match input.inserted {
            Some((entry, Some(slot))) => {
                self.slots[usize::from(entry)] = slot;
                self.settling[0] = Some(entry);
            }
            Some((entry, None)) => self.moving &= !bit(entry),
            None => {}
        }
        self.stored |= settled.map_or(0, bit);
        if let Some(entry) = copying.filter(|_| input.copy_take) {
            self.valid &= !bit(entry);
            self.present &= !bit(entry);
        }
        if input.release {
            self.valid &= !bit(input.work);
        }
        if input.disown {
            self.adopted &= !bit(input.work);
            self.moving |= bit(input.work);
        }
        if input.let_go {
            self.moving &= !bit(input.work);
        }
        self.now += 1;
        let mut left = self.busy;
        while let Some(entry) = first(left) {
            if self.until[usize::from(entry)] <= self.now {
                self.busy &= !bit(entry);
            }
            left &= left - 1;
        }
    }

    /// An entry is not quiet for some cycles, from the next one on.
    fn wait(&mut self, entry: u8) {
        self.until[usize::from(entry)] = self.now + 1 + self.quiet_cycles;
        self.busy |= bit(entry);
    }
}
