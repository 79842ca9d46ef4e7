// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table beside a model: a map of the standard library, a stack of free slots, a list of uses.

use std::collections::BTreeMap;

use flowloom_flowtable::{Allocation, FlowTable, Layout, Probe, TableError};
use proptest::prelude::*;

#[derive(Debug)]
struct Model {
    allocation: Allocation,
    entries: usize,
    slots: BTreeMap<Vec<u8>, u32>,
    free: Vec<u32>,
    made: u32,
    spare: Option<u32>,
    /// Times and slots, the oldest first.
    uses: Vec<(u64, u32)>,
    clock: u64,
}

impl Model {
    fn new(allocation: Allocation, entries: usize) -> Model {
        let (slots, free, uses) = (BTreeMap::new(), Vec::new(), Vec::new());
        Model { allocation, entries, slots, free, made: 0, spare: None, uses, clock: 0 }
    }

    fn touch(&mut self, slot: u32) {
        if self.allocation == Allocation::LeastRecentlyUsed {
            self.forget(slot);
            self.clock += 1;
            self.uses.push((self.clock, slot));
        }
    }

    fn forget(&mut self, slot: u32) {
        self.uses.retain(|(_, used)| *used != slot);
    }

    fn put(&mut self, key: &[u8]) -> Option<u32> {
        let old = self.slots.get(key).copied();
        if old.is_none() && self.slots.len() == self.entries {
            return None;
        }
        let keeps_one = self.allocation == Allocation::Preallocated;
        let kept = if old.is_some() && keeps_one { self.spare.take() } else { self.free.pop() };
        let slot = kept.unwrap_or_else(|| {
            self.made += 1;
            self.made - 1
        });
        self.slots.insert(key.to_vec(), slot);
        if let Some(old) = old {
            self.forget(old);
            if keeps_one { self.spare = Some(old) } else { self.free.push(old) }
        }
        self.touch(slot);
        Some(slot)
    }

    fn remove(&mut self, key: &[u8]) -> Option<u32> {
        let slot = self.slots.remove(key)?;
        self.forget(slot);
        self.free.push(slot);
        Some(slot)
    }

    /// The slots of all entries, ascending.
    fn live(&self) -> Vec<u32> {
        let mut live: Vec<u32> = self.slots.values().copied().collect();
        live.sort_unstable();
        live
    }

    fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        for slot in self.live().into_iter().filter(|slot| !keep(*slot)) {
            let key = self.slots.iter().find(|(_, used)| **used == slot).map(|(key, _)| key.clone());
            self.remove(&key.unwrap());
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(u16),
    Remove(u16),
    Lookup(u16),
    /// Marks any slot as used, free or not.
    Touch(u32),
    Evict,
    /// Removes the entries whose slots are this modulo 8.
    Retain(u32),
    Clear,
    /// Probes keys that later steps use, whatever happens in between.
    ProbeAll,
}

fn step() -> impl Strategy<Value = Step> {
    // Of fewer keys than entries or of more: tables that are never full, and full ones.
    let key = prop_oneof![0_u16..40, 0_u16..400];
    prop_oneof![
        40 => key.clone().prop_map(Step::Put),
        20 => key.clone().prop_map(Step::Remove),
        20 => key.prop_map(Step::Lookup),
        5 => (0_u32..250).prop_map(Step::Touch),
        5 => Just(Step::Evict),
        2 => (0_u32..8).prop_map(Step::Retain),
        1 => Just(Step::Clear),
        3 => Just(Step::ProbeAll),
    ]
}

fn allocation() -> impl Strategy<Value = Allocation> {
    prop_oneof![Just(Allocation::OnDemand), Just(Allocation::Preallocated), Just(Allocation::LeastRecentlyUsed)]
}

fn key_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![Just(4_usize), Just(8), Just(13), Just(16), Just(20), Just(40), 2_usize..70, Just(512)]
}

/// A key of any length from 2 bytes: most are zeros, so keys differ in few bits.
fn key(number: u16, len: usize) -> Vec<u8> {
    let mut key = vec![0; len];
    key[len - 2..].copy_from_slice(&number.to_le_bytes());
    key
}

/// Probes of all keys, some of them with both waves.
fn probes(table: &FlowTable, key_bytes: usize) -> Vec<Probe> {
    let keys: Vec<u8> = (0..400).flat_map(|number| key(number, key_bytes)).collect();
    let mut probes = vec![Probe::default(); 400];
    table.probe_batch(&keys, &mut probes);
    for (probe, key) in probes.iter().zip(keys.chunks(key_bytes)) {
        assert_eq!(probe.hash(), table.probe(key).hash());
    }
    probes
}

/// The slot of a value's address.
fn slot_of(table: &FlowTable, address: *mut u8) -> Option<u32> {
    let raw = table.raw();
    let at = (address as usize).checked_sub(raw.entries as usize + raw.value_at_bytes as usize)?;
    assert_eq!(at % raw.stride_bytes as usize, 0);
    Some((at / raw.stride_bytes as usize) as u32)
}

proptest! {
    #[test]
    fn the_table_does_what_the_model_does(
        allocation in allocation(),
        key_bytes in key_bytes(),
        value_bytes in 0_u32..70,
        entries in 0_u32..200,
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 0..600),
    ) {
        let layout = Layout { key_bytes: key_bytes as u32, value_bytes, entries, allocation };
        let mut table = FlowTable::with_seed(layout, seed).unwrap();
        let mut model = Model::new(allocation, entries as usize);
        let mut probes = probes(&table, key_bytes);
        let (lookup, probed_lookup) = (table.lookup_fn(), table.probed_lookup_fn());
        for step in steps {
            match step {
                Step::Put(number) => {
                    let key = key(number, key_bytes);
                    let (probe, value) = (probes[usize::from(number)], vec![number as u8; value_bytes as usize]);
                    prop_assert_eq!(table.put_value(probe, &key, &value), model.put(&key));
                }
                Step::Remove(number) => {
                    let key = key(number, key_bytes);
                    prop_assert_eq!(table.remove(probes[usize::from(number)], &key), model.remove(&key));
                }
                Step::Lookup(number) => {
                    let key = key(number, key_bytes);
                    let probe = probes[usize::from(number)];
                    let slot = table.lookup(probe, &key);
                    prop_assert_eq!(slot, model.slots.get(&key).copied());
                    prop_assert_eq!(slot, table.lookup(table.probe(&key), &key));
                    // SAFETY: the functions are those of this table, and the key has its bytes.
                    #[allow(unsafe_code, reason = "the lookups of compiled code")]
                    let addresses = unsafe {
                        [lookup(table.raw(), key.as_ptr()), probed_lookup(table.raw(), key.as_ptr(), &probe)]
                    };
                    for address in addresses {
                        prop_assert_eq!(slot_of(&table, address), slot);
                        prop_assert_eq!(slot.map_or(std::ptr::null_mut(), |slot| table.value_address(slot)), address);
                    }
                    if let Some(slot) = slot {
                        prop_assert_eq!(table.key(slot), &key);
                        prop_assert_eq!(table.value(slot).as_ptr() as usize % 8, 0);
                        prop_assert!(table.value(slot).iter().all(|byte| *byte == number as u8));
                        let value = table.value(slot).to_vec();
                        prop_assert_eq!(table.lookup_value(probe, &key).map(|value| value.to_vec()), Some(value));
                        table.touch(slot);
                        model.touch(slot);
                    }
                }
                Step::Touch(slot) => {
                    table.touch(slot);
                    if model.live().contains(&slot) {
                        model.touch(slot);
                    }
                }
                Step::Evict => {
                    let oldest = model.uses.first().map(|(_, slot)| *slot);
                    prop_assert_eq!(table.oldest(), oldest);
                    prop_assert_eq!(table.evict_oldest(), oldest);
                    if let Some(oldest) = oldest {
                        model.retain(|slot| slot != oldest);
                    }
                }
                Step::Retain(rest) => {
                    let mut visited = Vec::new();
                    let mut cursor = Some(0);
                    while let Some(from) = cursor {
                        cursor = table.sweep(from, rest * 9 + 1, |slot, key, value| {
                            assert!(value.iter().all(|byte| *byte == key[key_bytes - 2]));
                            visited.push(slot);
                            slot % 8 != rest
                        });
                    }
                    prop_assert_eq!(visited, model.live());
                    model.retain(|slot| slot % 8 != rest);
                }
                Step::Clear => {
                    table.clear();
                    model = Model { clock: model.clock, ..Model::new(allocation, entries as usize) };
                }
                Step::ProbeAll => probes = self::probes(&table, key_bytes),
            }
            prop_assert_eq!(table.len(), model.slots.len());
        }
        table.check_invariants();
        prop_assert!(table.slots().eq(model.live()));
        for time in [0, model.clock / 2] {
            let since = model.uses.iter().rev().copied().take_while(|(used, _)| *used > time);
            prop_assert!(table.used_since(time).eq(since));
        }
        table.retain(|_, _, _| false);
        table.check_invariants();
        prop_assert!(table.is_empty());
    }
}

/// Visits that change the table while later keys are already prefetched: a key that is there is removed, others are
/// put. Of few entries, so that all is done one by one, and of many.
#[test]
fn visits_ahead_do_what_visits_one_by_one_do() {
    let many = [0, 1, 63, 64, 65, 128, 129, 100_000].map(|visits| (20_000, visits));
    let cases = [(50, 1000)].into_iter().chain(many);
    let kinds = [Allocation::OnDemand, Allocation::LeastRecentlyUsed];
    for ((entries, visits), allocation) in cases.flat_map(|case| kinds.map(|kind| (case, kind))) {
        let layout = Layout { key_bytes: 13, value_bytes: 60, entries, allocation };
        let mut table = FlowTable::new(layout).unwrap();
        let mut model = Model::new(allocation, entries as usize);
        let mut state = 1_u32;
        let keys = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            key(((state >> 16) % (entries * 5 / 2)) as u16, 13)
        });
        let keys: Vec<Vec<u8>> = keys.take(visits).collect();
        let mut visited = 0;
        table.visit_ahead(&keys, |table, probe, key| {
            assert_eq!(key, &keys[visited]);
            visited += 1;
            match model.remove(key) {
                Some(slot) => assert_eq!(table.remove(probe, key), Some(slot)),
                None => assert_eq!(table.put(probe, key), model.put(key)),
            }
        });
        assert_eq!((visited, table.len()), (visits, model.slots.len()));
        table.check_invariants();
    }
}

#[test]
fn a_full_table_has_exactly_its_entries() {
    for entries in [1, 15, 16, 1000, 100_000] {
        let layout = Layout { key_bytes: 4, value_bytes: 4, entries, allocation: Allocation::Preallocated };
        let mut table = FlowTable::new(layout).unwrap();
        let put = |number: u32, table: &mut FlowTable| {
            let key = number.to_le_bytes();
            table.put(table.probe(&key), &key)
        };
        assert!((0..entries).all(|number| put(number, &mut table).is_some()), "{entries}");
        assert!(table.is_full() && put(entries, &mut table).is_none(), "{entries}");
        assert!(put(entries - 1, &mut table).is_some(), "an entry of a full table is replaced");
        table.check_invariants();
    }
}

#[test]
fn probes_of_another_table_are_only_hints() {
    let layout = Layout { key_bytes: 4, value_bytes: 4, entries: 100_000, allocation: Allocation::LeastRecentlyUsed };
    let mut large = FlowTable::new(layout).unwrap();
    let mut small = FlowTable::new(Layout { entries: 1, ..layout }).unwrap();
    for number in 0_u32..1000 {
        let key = number.to_le_bytes();
        large.put(large.probe(&key), &key).unwrap();
        let mut probe = large.probe(&key);
        large.prefetch_entry(&mut probe);
        small.prefetch_rest(&mut probe);
        assert_eq!(small.lookup(probe, &key), None);
        assert_eq!(large.lookup(probe, &key), Some(number));
    }
    small.put(small.probe(&[0; 4]), &[0; 4]).unwrap();
    small.check_invariants();
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    let layout = Layout { key_bytes: 4, value_bytes: 4, entries: u32::MAX, allocation: Allocation::OnDemand };
    let refused = |layout| FlowTable::new(layout).unwrap_err();
    assert!(matches!(refused(layout), TableError::Entries { entries: u32::MAX, .. }));
    for key_bytes in [0, 513] {
        assert!(matches!(refused(Layout { key_bytes, entries: 1, ..layout }), TableError::Key { .. }));
    }
    for entries in [1 << 20, (1 << 28) - 4] {
        let huge = Layout { value_bytes: u32::MAX - 100, entries, ..layout };
        assert!(matches!(refused(huge), TableError::Memory { .. }), "{entries}");
    }
}

#[test]
fn entries_of_a_line_do_not_straddle_lines() {
    for (key_bytes, value_bytes, stride) in
        [(16, 16, 32), (16, 48, 64), (13, 8, 32), (13, 24, 40), (13, 40, 64), (20, 64, 88)]
    {
        let layout = Layout { key_bytes, value_bytes, entries: 10, allocation: Allocation::OnDemand };
        let table = FlowTable::new(layout).unwrap();
        assert_eq!(table.raw().stride_bytes, stride, "{key_bytes} + {value_bytes}");
        assert_eq!(table.raw().entries as usize % 64, 0);
    }
}
