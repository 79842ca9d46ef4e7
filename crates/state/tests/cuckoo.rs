// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cuckoo table against a map of the standard library.

use std::collections::HashMap;

use flowloom_state::{Cuckoo, Location, Parameters, Refusal, Slot, Step};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    /// An insertion, by way of the stash.
    Insert(u8, bool),
    Delete(u8),
    Store(u8, u8),
    Steps(u8),
    Sweep,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..48u8, any::<bool>()).prop_map(|(key, is_stashed)| Op::Insert(key, is_stashed)),
        3 => (0..48u8).prop_map(Op::Delete),
        2 => (0..48u8, any::<u8>()).prop_map(|(key, value)| Op::Store(key, value)),
        6 => (0..6u8).prop_map(Op::Steps),
        1 => Just(Op::Sweep),
    ]
}

/// A table with more entries than places for its keys, so that chains, exchanges and a full stash are common.
fn narrow(entries: u32, rest_cycles: u32) -> Parameters {
    let usual = Parameters::for_entries(entries, 2, 1);
    Parameters { rows: 7, stash: 3, search_nodes: 12, rest_cycles, ..usual }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_table_does_what_a_map_does(ops in proptest::collection::vec(op(), 1..300), entries in 20..31u32, rest in 0..9u32) {
        let mut table = Cuckoo::new(narrow(entries, rest)).unwrap();
        let mut model: HashMap<[u8; 2], (Slot, u8)> = HashMap::new();
        for op in ops {
            match op {
                Op::Insert(key, is_stashed) if !model.contains_key(&[key, key]) => {
                    let found =
                        if is_stashed { table.insert_in_stash(&[key, key]) } else { table.insert(&[key, key]) };
                    prop_assert_eq!(found == Err(Refusal::Full), model.len() == entries as usize);
                    if let Ok(slot) = found {
                        prop_assert_eq!(table.value(slot), &[0]);
                        model.insert([key, key], (slot, 0));
                    }
                }
                Op::Insert(..) => {}
                Op::Delete(key) => {
                    let expected = model.remove(&[key, key]).map(|(slot, _)| slot);
                    prop_assert_eq!(table.delete(&[key, key]), expected);
                }
                Op::Store(key, value) => {
                    if let Some((slot, stored)) = model.get_mut(&[key, key]) {
                        table.value_mut(*slot)[0] = value;
                        *stored = value;
                    }
                }
                Op::Steps(count) => (0..count).for_each(|_| {
                    table.step();
                    table.pass_cycles(1);
                }),
                Op::Sweep => {
                    if let Some(slot) = table.sweep(|_, value| value[0] > 200) {
                        let key = *model.iter().find(|(_, entry)| entry.0 == slot).unwrap().0;
                        prop_assert!(model.remove(&key).unwrap().1 > 200);
                    }
                }
            }
            table.check_invariants();
            prop_assert_eq!(table.len(), model.len());
            for (key, &(slot, value)) in &model {
                prop_assert_eq!(table.lookup(key), Some(slot));
                prop_assert_eq!(table.value(slot), &[value]);
            }
        }
    }
}

#[test]
fn a_freed_slot_rests() {
    let mut table = Cuckoo::new(Parameters { rest_cycles: 3, ..Parameters::for_entries(1, 1, 1) }).unwrap();
    let mut slots = Vec::new();
    for key in 0..4 {
        slots.push(table.insert(&[key]).unwrap());
        table.delete(&[key]).unwrap();
    }
    assert_eq!(table.insert(&[9]), Err(Refusal::Busy), "all slots rest");
    table.pass_cycles(2);
    assert_eq!(table.insert(&[9]), Err(Refusal::Busy), "a cycle is left");
    table.pass_cycles(1);
    assert_eq!(table.insert(&[9]), Ok(slots[0]));
}

/// The key that is being served is deleted, and another one takes its entry of the stash and its slot.
#[test]
fn a_search_is_for_one_key() {
    for key in 0..200u8 {
        let mut table = Cuckoo::new(Parameters { rows: 16, ..Parameters::for_entries(1, 1, 1) }).unwrap();
        let slot = table.insert_in_stash(&[key]).unwrap();
        assert_eq!(table.step(), Step::Selected);
        table.delete(&[key]).unwrap();
        assert_eq!(table.insert_in_stash(&[key + 1]), Ok(slot));
        while table.stash_len() > 0 {
            table.step();
        }
        table.check_invariants();
    }
}

#[test]
fn an_insertion_takes_the_first_free_place() {
    let mut table = Cuckoo::new(Parameters { rows: 1, ..Parameters::for_entries(8, 1, 0) }).unwrap();
    let places: Vec<Location> = (0..6u8)
        .map(|key| {
            let slot = table.insert(&[key]).unwrap();
            table.location(slot).unwrap()
        })
        .collect();
    let bank = |way| Location::Bank { way, row: 0 };
    assert_eq!(places, [bank(0), bank(1), bank(2), bank(3), Location::Stash(0), Location::Stash(1)]);
}

/// A lookup that is under way has read what was in a place before: for two cycles it is not free.
#[test]
fn a_place_that_was_just_cleared_is_not_taken() {
    for (cycles, expected) in [(0, 0), (1, 1), (2, 1), (3, 0)] {
        let mut table =
            Cuckoo::new(Parameters { rows: 1, rest_cycles: 8, ..Parameters::for_entries(8, 1, 0) }).unwrap();
        table.insert(&[1]).unwrap();
        table.pass_cycles(8);
        table.delete(&[1]).unwrap();
        table.pass_cycles(cycles);
        let slot = table.insert(&[2]).unwrap();
        assert_eq!(table.location(slot), Some(Location::Bank { way: expected, row: 0 }), "{cycles} cycles");
    }
}

/// A chain of moves ends in a free place; insertions that find no other one go to the stash.
#[test]
fn no_insertion_takes_the_end_of_a_chain() {
    let mut met = 0;
    for seed in 1..=20 {
        let mut table = Cuckoo::new(Parameters { rows: 4, seed, ..Parameters::for_entries(24, 2, 0) }).unwrap();
        let mut keys = 0..u16::MAX;
        for key in keys.by_ref() {
            table.insert(&key.to_be_bytes()).unwrap();
            if table.stash_len() > 0 {
                break;
            }
        }
        let free = |table: &Cuckoo| {
            let taken: Vec<Location> = table.entries().filter_map(|slot| table.location(slot)).collect();
            let places = (0..4).flat_map(|way| (0..4).map(move |row| Location::Bank { way, row }));
            places.filter(|place| !taken.contains(place)).collect::<Vec<_>>()
        };
        while table.stash_len() > 0 {
            let before = free(&table);
            if matches!(table.step(), Step::Moved(_)) {
                break;
            }
            // Insertions take all places but the end of the chain.
            let mut probe = table.clone();
            for key in keys.clone().take(200) {
                if probe.is_full() || probe.stash_len() == 8 {
                    break;
                }
                probe.insert(&key.to_be_bytes()).unwrap();
            }
            met += u32::from(free(&probe).len() == 1 && before.len() > 1);
            for _ in 0..20_000 {
                assert_ne!(probe.step(), Step::GivenUp, "seed {seed}: the end of the chain was taken");
                probe.check_invariants();
                if probe.stash_len() == 0 {
                    break;
                }
            }
        }
    }
    assert!(met > 0, "no table was filled but for the end of a chain");
}

/// A search knows entries by their slots: before a slot that was freed since it began comes back, insertions go to the
/// stash.
#[test]
fn insertions_of_a_search_take_as_many_places_as_slots_were_free() {
    let rest_cycles = 3;
    let mut table = Cuckoo::new(Parameters { rows: 4, rest_cycles, ..Parameters::for_entries(24, 2, 0) }).unwrap();
    let mut keys = (0..u16::MAX).map(u16::to_be_bytes);
    while table.stash_len() == 0 {
        table.insert(&keys.next().unwrap()).unwrap();
    }
    assert_eq!((table.step(), table.step()), (Step::Selected, Step::Searched));
    let in_bank = |table: &Cuckoo, key: &[u8]| {
        let mut table = table.clone();
        let slot = table.insert(key).unwrap();
        matches!(table.location(slot), Some(Location::Bank { .. }))
    };
    // Each one is deleted again: there is as much room as before.
    let mut fits = keys.filter(|key| in_bank(&table, key)).take(8).collect::<Vec<_>>().into_iter();
    for key in fits.by_ref().take(rest_cycles as usize) {
        assert!(in_bank(&table, &key), "{key:?}");
        table.insert(&key).unwrap();
        table.delete(&key).unwrap();
    }
    let late: Vec<_> = fits.collect();
    assert!(late.len() > 2 && late.iter().all(|key| !in_bank(&table, key)));
    while table.stash_len() > 0 {
        table.step();
    }
    assert!(late.iter().any(|key| in_bank(&table, key)), "the search has ended");
}

#[test]
fn each_step_keeps_every_key() {
    let mut table =
        Cuckoo::new(Parameters { rows: 64, search_nodes: 40, ..Parameters::for_entries(256, 2, 0) }).unwrap();
    let mut kinds = [0; 4];
    for key in 0..252u16 {
        table.insert_in_stash(&key.to_be_bytes()).unwrap();
        for _ in 0..20_000 {
            match table.step() {
                Step::Idle => break,
                Step::Selected | Step::Searched => kinds[0] += 1,
                Step::Moved(slot) => {
                    kinds[1] += 1;
                    assert!(matches!(table.location(slot), Some(Location::Bank { .. })));
                }
                Step::Exchanged { .. } => kinds[2] += 1,
                Step::Placed(_) => kinds[3] += 1,
                Step::GivenUp => panic!("nothing is deleted"),
            }
            (0..=key).for_each(|key| assert!(table.lookup(&key.to_be_bytes()).is_some(), "{key} is lost"));
        }
    }
    table.check_invariants();
    assert!(kinds.iter().all(|&count| count > 0), "{kinds:?}");
}

#[test]
fn the_victim_is_among_the_candidates() {
    let mut table = Cuckoo::new(Parameters { rows: 8, ..Parameters::for_entries(30, 1, 1) }).unwrap();
    for key in 0..30 {
        let slot = table.insert(&[key]).unwrap();
        table.value_mut(slot)[0] = 100 - key;
        (0..200).for_each(|_| _ = table.step());
    }
    assert_eq!(table.insert(&[200]), Err(Refusal::Full));
    let victim = table.victim(&[200], |_, value| value[0]).unwrap();
    let rows = table.hash().rows_of(&[200]);
    let candidates: Vec<Slot> = table
        .entries()
        .filter(|&slot| match table.location(slot).unwrap() {
            Location::Bank { way, row } => rows[usize::from(way)] == row,
            Location::Stash(_) => true,
        })
        .collect();
    let least = candidates.into_iter().min_by_key(|&slot| table.value(slot)[0]).unwrap();
    assert_eq!(victim, least);
    let key = table.key(victim).to_vec();
    table.delete(&key).unwrap();
    table.insert(&[200]).unwrap();
    assert!(table.is_full());
}

#[test]
fn every_expired_entry_is_swept_in_a_period() {
    let mut table = Cuckoo::new(Parameters::for_entries(500, 2, 1)).unwrap();
    for key in 0..500u16 {
        let slot = table.insert(&key.to_be_bytes()).unwrap();
        table.value_mut(slot)[0] = u8::from(key % 3 == 0);
        while table.stash_len() > 0 {
            table.step();
        }
    }
    let swept = (0..table.sweep_period()).filter(|_| table.sweep(|_, value| value[0] == 1).is_some()).count();
    assert_eq!((swept, table.len()), (167, 333));
}

#[test]
fn impossible_sizes_are_refused() {
    let usual = Parameters::for_entries(100, 4, 4);
    let refused = |parameters: Parameters| Cuckoo::new(parameters).unwrap_err().to_string();
    assert_eq!(refused(Parameters { rows: 0, ..usual.clone() }), "`rows` is 0, a table takes 1 to 268435456");
    assert_eq!(refused(Parameters { stash: 65, ..usual.clone() }), "`stash` is 65, a table takes 1 to 64");
    assert_eq!(
        refused(Parameters { search_nodes: 3, ..usual.clone() }),
        "`search_nodes` is 3, a table takes 4 to 65536"
    );
    assert_eq!(refused(Parameters { key_bytes: 0, ..usual.clone() }), "`key_bytes` is 0, a table takes 1 to 512");
    assert_eq!(refused(Parameters { rows: 2, ..usual.clone() }), "`entries` is 100, a table takes 1 to 16");
    let huge = Parameters { entries: 1 << 20, rows: 1 << 20, key_bytes: 16, value_bytes: 1 << 16, ..usual };
    assert_eq!(refused(huge), "`entries` is 1048576, a table takes 1 to 262080");
}
