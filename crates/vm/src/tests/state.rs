// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps against a model; snapshots, restoration and sweeping.

use std::collections::BTreeMap;

use flowloom_engine::{MapState, Snapshot};
use flowloom_testkit::Rng;

use super::*;
use crate::maps::Known;
use flowloom_context::ContextLayout;

/// A model of the kernel's hash map, as simple as possible.
struct Model {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    max_entries: usize,
}

impl Model {
    fn update(&mut self, key: &[u8], value: &[u8], flags: u64) -> i64 {
        let there = self.entries.contains_key(key);
        match flags {
            0..=2 => {}
            _ => return -22,
        }
        if there && flags == 1 {
            return -17;
        }
        if !there && flags == 2 {
            return -2;
        }
        if !there && self.entries.len() == self.max_entries {
            return -7;
        }
        self.entries.insert(key.to_vec(), value.to_vec());
        0
    }
}

#[test]
fn hash_maps_equal_a_model() {
    let mut rng = Rng::from_env(0x57a7_0001);
    let (mut held, mut full) = (0, 0);
    for _ in 0..300 {
        let max_entries = 1 + rng.below(6);
        let mut map = Map::standard(&super::map("m", MapKind::Hash, 2, 3, max_entries as u32), 1);
        let mut model = Model { entries: BTreeMap::new(), max_entries };
        // Slots that a program references, with the value expected there until another entry is made.
        let mut holding: Vec<(u32, Vec<u8>)> = Vec::new();
        for _ in 0..200 {
            let key = vec![rng.below(9) as u8, 0];
            let value = rng.bytes(3);
            match rng.below(8) {
                0..=2 => {
                    let flags = *rng.pick(&[0, 0, 0, 1, 2, 3, 4, u64::MAX]);
                    let expected = model.update(&key, &value, flags);
                    full += u32::from(expected == -7);
                    assert_eq!(map.update(&key, &value, flags, 0), expected);
                    if expected == 0 {
                        holding.clear();
                    }
                }
                3..=4 => {
                    let expected = if model.entries.remove(&key).is_some() { 0 } else { -2 };
                    assert_eq!(map.delete(&key), expected);
                }
                5..=6 => match map.lookup(&key, 0) {
                    Some(slot) => {
                        assert_eq!(map.value(slot.into()), model.entries.get(&key).map(Vec::as_slice));
                        holding.push((slot, model.entries[&key].clone()));
                    }
                    None => assert!(!model.entries.contains_key(&key)),
                },
                _ => {
                    map.end_run();
                    holding.clear();
                }
            }
            map.check_invariants();
            for (slot, value) in &holding {
                held += 1;
                assert_eq!(map.value((*slot).into()), Some(&value[..]), "an address that is held leads to its value");
            }
            assert_eq!(map.snapshot(), Some(model.entries.clone()));
        }
    }
    assert!(held > 1000 && full > 1000, "{held} held, {full} full");
}

#[test]
fn slots_are_used_again() {
    let mut map = Map::standard(&super::map("m", MapKind::Hash, 1, 1, 4), 1);
    for round in 0..100u8 {
        map.update(&[0], &[round], 0, 0);
        map.update(&[1], &[round], 0, 0);
        map.delete(&[1]);
        map.end_run();
        map.check_invariants();
    }
    // One entry stays, one comes and goes, and a slot is kept for replacements.
    assert_eq!((map.value(2).is_some(), map.value(3)), (true, None));
}

#[test]
fn arrays_equal_a_model() {
    let mut rng = Rng::from_env(0x57a7_0002);
    let mut map = Map::standard(&super::map("m", MapKind::Array, 4, 3, 5), 1);
    let mut model = vec![vec![0; 3]; 5];
    for _ in 0..20_000 {
        let index = *rng.pick(&[0, 1, 2, 3, 4, 5, 6, u32::MAX]);
        let (key, value) = (index.to_le_bytes(), rng.bytes(3));
        let there = model.get_mut(index as usize);
        match rng.below(3) {
            0 => {
                let flags = rng.below(6) as u64;
                let expected = match (flags, &there) {
                    (3, _) => -22,
                    (_, None) => -7,
                    (1 | 5, _) => -17,
                    (4, _) => -22,
                    _ => 0,
                };
                if let (0, Some(place)) = (expected, there) {
                    place.clone_from(&value);
                }
                assert_eq!(map.update(&key, &value, flags, 0), expected, "flags {flags}, index {index}");
            }
            1 => assert_eq!(map.delete(&key), -22),
            _ => {
                let found = map.lookup(&key, 0).map(|slot| map.value(slot.into()).unwrap().to_vec());
                assert_eq!(found, there.cloned());
            }
        }
        map.check_invariants();
    }
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn entry(key: u32, value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (key.to_le_bytes().to_vec(), value.to_vec())
}

fn snapshot(maps: &[(&str, Entries)]) -> Snapshot {
    let maps = maps.iter().map(|(name, entries)| ((*name).to_owned(), entries.iter().cloned().collect()));
    Snapshot { maps: maps.collect(), ..Snapshot::default() }
}

/// An interpreter of a program that does nothing, with these maps.
fn with_maps(maps: Vec<MapDef>) -> Interpreter {
    let insns = assemble("r0 = 0\nexit", &[]).unwrap();
    let program = Program { section: "xdp".into(), insns, maps, ..Program::default() };
    Interpreter::new(Arc::new(program)).unwrap()
}

#[test]
fn a_devmap_stores_only_the_entries_looked_up() {
    let ports = 100_000_000;
    let mut map = Map::standard(&super::map("m", MapKind::Devmap, 4, 8, ports), 1);
    assert_eq!(map.value(0), None);
    for port in [0, ports - 1, 77, 0] {
        let cell = map.lookup(&port.to_le_bytes(), 0).unwrap();
        assert_eq!(map.value(cell.into()), Some(&u64::from(port).to_le_bytes()[..]));
        map.check_invariants();
    }
    assert_eq!(map.lookup(&ports.to_le_bytes(), 0), None);
    assert_eq!((map.value(2).is_some(), map.value(3)), (true, None));
    assert!(map.is_bound_one_to_one() && map.snapshot().is_none());
}

#[test]
fn values_that_programs_may_only_write() {
    let lookup = "*(u32 *)(r10 - 4) = 1\nr2 = r10\nr2 += -4\nr1 = map[array] ll\ncall 1\nif r0 == 0 goto end\n";
    for (access, expected) in [
        ("*(u64 *)(r0 + 0) = 5", Ok(0)),
        ("r3 = *(u64 *)(r0 + 0)", Err("read in map `array`, which programs may only write")),
        ("r3 = 1\nlock *(u64 *)(r0 + 0) += r3", Err("read in map `array`, which programs may only write")),
    ] {
        let mut program = super::program(&format!("{lookup}{access}\nend: r0 = 0\nexit"));
        program.maps[1].flags = flowloom_isa::BPF_F_WRONLY_PROG;
        let found = Interpreter::new(Arc::new(program)).unwrap().r0(&[0; 60]);
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
            (found, _) => panic!("{access}: {found:?}"),
        }
    }
}

#[test]
fn only_devmap_programs_have_an_egress_port() {
    let text = "r0 = *(u32 *)(r1 + 20)\nexit";
    let error = r0(text).expect_err("a plain program");
    assert!(error.contains("read of `egress_ifindex`, which only programs behind a devmap have"), "{error}");
    let behind = Program { kind: ProgramKind::XdpDevmap, ..super::program(text) };
    for cpus in [1, 2] {
        let mut interp = Interpreter::new(Arc::new(behind.clone())).unwrap().with_cpus(cpus);
        assert_eq!(interp.r0(&[0; 60]), Ok(0));
    }
}

#[test]
fn large_arrays_come_out_in_the_order_of_their_keys() {
    let mut map = Map::standard(&super::map("m", MapKind::PerCpuArray, 4, 2, 65_536), 2);
    for index in [1u32, 255, 256, 65_535] {
        assert_eq!(map.update(&index.to_le_bytes(), &(index as u16).to_le_bytes(), 0, 1), 0);
    }
    let state = map.snapshot().unwrap();
    assert_eq!(state.len(), 65_536);
    for index in 0..65_536u32 {
        let written = [1, 255, 256, 65_535].contains(&index);
        let value = if written { index as u16 } else { 0 }.to_le_bytes();
        assert_eq!(state[&index.to_le_bytes()[..]], [0, 0, value[0], value[1]]);
    }
}

/// Above 65,536 entries a snapshot lists those that are not zero, and reads back as the same array.
#[test]
fn arrays_of_millions_are_listed_where_they_are_not_zero() {
    for (kind, entries) in [(MapKind::Array, 33_555_984), (MapKind::PerCpuArray, 1_000_000)] {
        let mut map = Map::standard(&super::map("m", kind, 4, 4, entries), 2);
        for index in [7_u32, 65_536, entries - 1] {
            assert_eq!(map.update(&index.to_le_bytes(), &index.to_le_bytes(), 0, 1), 0);
        }
        assert_eq!(map.update(&5_u32.to_le_bytes(), &[0; 4], 0, 0), 0);
        let state = map.snapshot().unwrap();
        let mut keys: Vec<u32> = state.keys().map(|key| u32::from_le_bytes(key[..].try_into().unwrap())).collect();
        keys.sort_unstable();
        assert_eq!(keys, [7, 65_536, entries - 1]);
        let known = Known { maps: &[], programs: &[] };
        let read = map.with_contents(&state, map.snapshot_cpus(), known).unwrap();
        assert_eq!(read.snapshot().unwrap(), state);
        read.check_invariants();
        assert!(map.initial().unwrap().snapshot().unwrap().is_empty());
    }
}

#[test]
fn snapshots_name_what_can_change() {
    let mut interp = interp(
        "*(u32 *)(r10 - 4) = 3\n*(u64 *)(r10 - 16) = 258\nr1 = map[hash] ll\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -16\n\
         r4 = 0\ncall 2\nr1 = map[.data][0]+15 ll\n*(u8 *)(r1 + 0) = 1\nr0 = 0\nexit",
    );
    let first = interp.snapshot().unwrap();
    interp.r0(&[]).unwrap();
    let state = interp.snapshot().unwrap();
    let zeros = (0..4).map(|index| entry(index, &[0; 8])).collect();
    let mut data = [9; 16];
    data[15] = 1;
    let hash = vec![entry(3, &[2, 1, 0, 0, 0, 0, 0, 0])];
    assert_eq!(state, snapshot(&[("array", zeros), ("hash", hash), (".data", vec![entry(0, &data)])]));

    // A round trip; what is not listed is reset.
    interp.restore(&Snapshot::default()).unwrap();
    assert_eq!(interp.snapshot().unwrap(), first);
    interp.restore(&state).unwrap();
    assert_eq!(interp.snapshot().unwrap(), state);
    interp.restore(&snapshot(&[("array", vec![entry(2, &[5; 8])])])).unwrap();
    let after = interp.snapshot().unwrap();
    assert_eq!(after.maps["array"].values().map(|v| v[0]).collect::<Vec<_>>(), [0, 0, 5, 0]);
    assert_eq!((&after.maps["hash"], &after.maps[".data"]), (&MapState::new(), &first.maps[".data"]));
}

#[test]
fn state_that_does_not_fit_changes_nothing() {
    let mut interp = interp("r0 = 0\nexit");
    let good = [("array", vec![entry(1, &[7; 8])])];
    interp.restore(&snapshot(&good)).unwrap();
    let before = interp.snapshot().unwrap();
    for (name, entries, expected) in [
        ("hash", vec![entry(1, &[1; 7])], "value is 7 bytes, map `hash` expects 8"),
        ("hash", vec![(vec![1; 3], vec![1; 8])], "key is 3 bytes, map `hash` expects 4"),
        ("hash", (0..4).map(|k| entry(k, &[1; 8])).collect(), "state has 4 entries, map `hash` holds 3"),
        (
            "array",
            vec![entry(4, &[1; 8])],
            "state of map `array`: expected an index, little endian, below the number of entries, found `04000000`",
        ),
        (".data", vec![entry(0, &[1; 8])], "value is 8 bytes, map `.data` expects 16"),
        ("none", vec![], "state has unknown map `none`; the function has `hash`, `array`, `ports`, `.data`"),
        (
            "ports",
            vec![entry(5, &[1; 4])],
            "state of map `ports`: expected an index, little endian, below the number of entries, found `05000000`",
        ),
        (
            ".rodata",
            vec![entry(0, &[1; 8])],
            "state has unknown map `.rodata`; the function has `hash`, `array`, `ports`, `.data`",
        ),
    ] {
        let error = interp.restore(&snapshot(&[(name, entries)])).expect_err(expected);
        assert_eq!(error.to_string(), expected);
        assert_eq!(interp.snapshot().unwrap(), before);
    }
}

#[test]
fn contexts_from_the_start() {
    let preloaded = vec![(vec![1, 0, 0, 0], vec![5; 20]), (vec![2, 0, 0, 0], vec![6; 20])];
    let layout = ContextLayout { preloaded: preloaded.clone(), ..ContextLayout::default() };
    let map = MapDef { layout: Some(layout), ..super::map("ctx", MapKind::Hash, 4, 20, 8) };
    let mut interp = with_maps(vec![map]);
    let state = |entries: Entries| snapshot(&[("ctx", entries)]);
    let initial = state(preloaded);
    assert_eq!(interp.snapshot().unwrap(), initial);
    for other in [state(vec![(vec![3, 0, 0, 0], vec![7; 20])]), state(vec![])] {
        interp.restore(&other).unwrap();
        assert_eq!(interp.snapshot().unwrap(), other);
    }
    interp.restore(&Snapshot::default()).unwrap();
    assert_eq!(interp.snapshot().unwrap(), initial);
}

#[test]
fn a_sweep_removes_expired_entries() {
    let layout = ContextLayout { deadline_offsets: vec![0, 8], ..ContextLayout::default() };
    let map = MapDef { layout: Some(layout), ..super::map("ctx", MapKind::Hash, 4, 20, 8) };
    let plain = MapDef { layout: None, name: "plain".into(), ..map.clone() };
    let mut interp = with_maps(vec![map, plain]);
    let record = |idle: u64, hard: u64| [&idle.to_le_bytes()[..], &hard.to_le_bytes(), &[1; 4]].concat();
    let entries: Entries = [(100, u64::MAX), (u64::MAX, 100), (101, 101), (u64::MAX, u64::MAX), (256, 99)]
        .into_iter()
        .zip(0..)
        .map(|((idle, hard), key)| entry(key, &record(idle, hard)))
        .collect();
    interp.restore(&snapshot(&[("ctx", entries.clone()), ("plain", entries.clone())])).unwrap();
    for (now, left) in [(98, vec![0, 1, 2, 3, 4]), (99, vec![0, 1, 2, 3]), (100, vec![2, 3]), (u64::MAX, vec![3])] {
        interp.sweep(now).unwrap();
        interp.environment.space.maps.iter().for_each(Map::check_invariants);
        let state = interp.snapshot().unwrap();
        assert_eq!(state.maps["ctx"].keys().map(|key| key[0]).collect::<Vec<_>>(), left, "at {now}");
        assert_eq!(state.maps["plain"], entries.iter().cloned().collect::<MapState>());
    }
}
