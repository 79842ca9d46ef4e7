// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries of maps by the engines' tables, compared with a model.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_engine::{Fate, Frame, HEADROOM_BYTES, Port};
use flowloom_isa::{MapDef, MapKind, Program, asm};
use flowloom_session::engines::{CoresOptions, EngineName, EngineOptions, InPlaceEngine};
use flowloom_session::{FunctionFile, Loaded};
use flowloom_testkit::{PacketBuilder, Rng};
use flowloom_vm::{Tables, UpdateError};

const ENTRIES: u32 = 300;

fn loaded() -> Loaded {
    let def = |name: &str, kind, key_bytes| MapDef {
        name: name.to_owned(),
        kind,
        key_bytes,
        value_bytes: 8,
        max_entries: ENTRIES,
        ..MapDef::default()
    };
    let maps = vec![
        def("hash", MapKind::Hash, 4),
        def("lru", MapKind::LruHash, 4),
        def("array", MapKind::Array, 4),
        MapDef { flags: flowloom_isa::BPF_F_NO_PREALLOC, ..def("lpm", MapKind::LpmTrie, 8) },
        def("ports", MapKind::Devmap, 4),
    ];
    let maps = maps.into_iter().map(|map| if map.name == "ports" { MapDef { value_bytes: 4, ..map } } else { map });
    let insns = asm::assemble("r0 = 1\nexit", &[]).unwrap();
    Loaded::of_program(Program { section: "xdp".to_owned(), insns, maps: maps.collect(), ..Program::default() })
}

fn all(tables: &dyn Tables, map: usize, at_once: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut from = Some(0);
    while let Some(slot) = from {
        from = tables.visit(map, slot, at_once, &mut |key, value| found.push((key.to_vec(), value.to_vec())));
    }
    found.sort();
    found
}

#[test]
fn entries_are_those_of_a_model() {
    let seed = 11;
    for engine in [EngineName::JIT, EngineName::INTERP] {
        let loaded = loaded();
        let mut started = engine.load_in_place(&loaded, &EngineOptions::default()).unwrap();
        let tables = started.engine.tables();
        let mut rng = Rng::new(seed);
        for (map, name) in ["hash", "lru", "array", "lpm"].into_iter().enumerate() {
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            if name == "array" {
                model.extend((0..ENTRIES).map(|index| (index.to_le_bytes().to_vec(), vec![0; 8])));
            }
            for step in 0..3000 {
                let key = match name {
                    // An address with all bits: no prefix of another key.
                    "lpm" => [32_u32.to_le_bytes(), (rng.below(400) as u32).to_be_bytes()].concat(),
                    _ => (rng.below(400) as u32).to_le_bytes().to_vec(),
                };
                let value = (step as u64).to_le_bytes().to_vec();
                let context = format!("seed {seed}, {engine:?}, {name}, step {step}");
                match rng.below(4) {
                    0 if name != "array" => {
                        let expected = model.remove(&key).is_some();
                        assert_eq!(tables.delete(map, &key).is_ok(), expected, "{context}");
                    }
                    rule => {
                        let flags = if rule == 3 { 0 } else { rule as u64 };
                        let result = tables.update(map, &key, &value, flags);
                        let is_known = model.contains_key(&key);
                        let is_full = model.len() == ENTRIES as usize && name != "lru";
                        let expected = match flags {
                            1 if is_known => Err("exists"),
                            2 if !is_known && name != "array" => Err("missing"),
                            _ if name == "array" && !is_known => Err("index"),
                            _ if !is_known && is_full => Err("full"),
                            _ => Ok(()),
                        };
                        let found = result.map_err(|error| match error {
                            UpdateError::Exists { .. } => "exists",
                            UpdateError::Missing { .. } => "missing",
                            UpdateError::Index { .. } => "index",
                            UpdateError::Full { .. } => "full",
                            other => panic!("{context}: {other}"),
                        });
                        assert_eq!(found, expected, "{context}");
                        if expected.is_ok() {
                            model.insert(key.clone(), value);
                        }
                        if model.len() > ENTRIES as usize {
                            // The least recently used one made room.
                            model.retain(|key, _| tables.lookup(map, key).is_some());
                            assert_eq!(model.len(), ENTRIES as usize, "{context}");
                        }
                    }
                }
                assert_eq!(tables.lookup(map, &key), model.get(&key).cloned(), "{context}");
                assert_eq!(tables.entries(map), model.len() as u64, "{context}");
            }
            for at_once in [1, 7, 64, u32::MAX] {
                let expected: Vec<_> = model.clone().into_iter().collect();
                assert_eq!(all(tables, map, at_once), expected, "{engine:?}, {name}, {at_once} at once");
            }
        }
        assert!(!tables.is_readable(4) && tables.is_readable(0));
        let error = tables.delete(2, &[0; 4]).unwrap_err().to_string();
        assert!(error.contains("entries of map `array`") && error.contains("cannot be deleted"), "{error}");
        assert_eq!(
            tables.update(0, &[0; 3], &[0; 8], 0).unwrap_err().to_string(),
            "key is 3 bytes, map `hash` expects 4"
        );
    }
}

/// Maps move from engine to engine with their entries, also between batches of a running program.
#[test]
fn exchanged_maps_keep_their_entries() {
    let loaded = loaded();
    for engine in [EngineName::JIT, EngineName::INTERP] {
        let started = || engine.load_in_place(&loaded, &EngineOptions::default()).unwrap().engine;
        let (mut old, mut new) = (started(), started());
        for index in 0..ENTRIES {
            old.tables().update(0, &index.to_le_bytes(), &[1; 8], 0).unwrap();
            old.tables().update(2, &index.to_le_bytes(), &[2; 8], 0).unwrap();
        }
        assert!(new.exchange_maps(old.as_mut(), &[(0, 0), (2, 2)]));
        assert_eq!((new.tables().entries(0), old.tables().entries(0)), (ENTRIES.into(), 0));
        assert_eq!(new.tables().lookup(0, &7_u32.to_le_bytes()), Some(vec![1; 8]));
        assert_eq!(new.tables().lookup(2, &7_u32.to_le_bytes()), Some(vec![2; 8]));
        assert_eq!(old.tables().lookup(2, &7_u32.to_le_bytes()), Some(vec![0; 8]));
        assert!(new.tables().delete(0, &7_u32.to_le_bytes()).is_ok());
        assert_eq!(Arc::clone(new.program()).maps.len(), 5);
    }
    let load = |engine: EngineName| engine.load_in_place(&loaded, &EngineOptions::default()).unwrap().engine;
    let (mut jit, mut interp) = (load(EngineName::JIT), load(EngineName::INTERP));
    assert!(!jit.exchange_maps(interp.as_mut(), &[(0, 0)]), "their tables differ");
}

/// Counts packets by source address, and in all; the fourth packet of a host is dropped.
fn counting(key: &str) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("count.efsm");
    let text = format!(
        "function count;
stateful hosts {{
    key {key};
    size 1024;
    states seen;
    reg packets: u32;
    global all: u64;
    global octets: u64 = 7;
    on seen when packets == 3 stay {{ packets += 1; all += 1; drop; }}
    on seen stay {{ packets += 1; all += 1; octets += pkt.len; forward(2); }}
}}
"
    );
    std::fs::write(&path, text).unwrap();
    Loaded::open(&FunctionFile { path, ..FunctionFile::default() }).unwrap()
}

fn cores(loaded: &Loaded, engine: EngineName, cores: usize) -> Box<dyn InPlaceEngine> {
    let options = EngineOptions::default();
    Box::new(
        engine
            .load_on_cores(loaded, &options, cores, CoresOptions { is_exact: false, parallel_from: 8, is_paced: false })
            .unwrap()
            .0,
    )
}

/// Runs a packet of each host; returns the fates.
fn run(engine: &mut dyn InPlaceEngine, hosts: &[u8]) -> Vec<Fate> {
    let packet = |host: &u8| {
        let udp = PacketBuilder::new().ipv4([10, 0, 0, *host], [10, 1, 0, 1 + host % 3]).udp(1000, 53).build();
        [vec![0; HEADROOM_BYTES], udp].concat()
    };
    let mut buffers: Vec<Vec<u8>> = hosts.iter().map(packet).collect();
    let ends: Vec<usize> = buffers.iter().map(Vec::len).collect();
    let frames = buffers.iter_mut().zip(ends);
    let mut frames: Vec<Frame<'_>> =
        frames.map(|(buffer, end)| Frame::new(buffer, HEADROOM_BYTES, end, Port(1), 0)).collect();
    engine.run(&mut frames, &mut Vec::new()).unwrap();
    frames.iter().map(|frame| frame.fate).collect()
}

/// Keys and values of a map.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// All entries of all maps that can be read, by lookups and by visits.
fn entries(engine: &mut dyn InPlaceEngine) -> Vec<(String, Entries)> {
    let tables = engine.tables();
    let names: Vec<String> = tables.defs().iter().map(|def| def.name.clone()).collect();
    let readable = names.into_iter().enumerate().filter(|(map, _)| tables.is_readable(*map));
    let entries = readable.map(|(map, name)| {
        let found = all(tables, map, 5);
        assert!(found.len() as u64 == tables.entries(map), "{name}");
        assert!(found.iter().all(|(key, value)| tables.lookup(map, key).as_ref() == Some(value)), "{name}");
        (name, found)
    });
    entries.collect()
}

/// Entries that user space changes between batches are those that the packets find, on the core that needs them.
#[test]
fn tables_of_cores_are_those_of_one_engine() {
    for kind in [EngineName::JIT, EngineName::INTERP] {
        let loaded = counting("ipv4.src");
        let mut one = kind.load_in_place(&loaded, &EngineOptions::default()).unwrap().engine;
        let mut several = cores(&loaded, kind, 3);
        let hosts: Vec<u8> = (0..120).map(|number| number % 40).collect();
        for round in 0..4_u8 {
            assert_eq!(run(one.as_mut(), &hosts), run(several.as_mut(), &hosts), "{kind:?}, round {round}");
            assert_eq!(entries(one.as_mut()), entries(several.as_mut()), "{kind:?}, round {round}");
            let tables = several.tables();
            let map = |name: &str| tables.defs().iter().position(|def| def.name == name).unwrap();
            let (table, globals) = (map("hosts"), map(".data"));
            let (key, context) = all(tables, table, 64).remove(usize::from(round));
            let (_, sums) = all(tables, globals, 64).remove(0);
            for engine in [one.as_mut(), several.as_mut()] {
                let tables = engine.tables();
                // A host that begins again, one that is new, and sums that were set.
                tables.delete(table, &key).unwrap();
                let error = tables.delete(table, &key).unwrap_err();
                assert!(matches!(error, UpdateError::Missing { .. }), "{error}");
                tables.update(table, &[10, 0, 0, 200 + round], &context, 1).unwrap();
                let error = tables.update(table, &[10, 0, 0, 200 + round], &context, 1).unwrap_err();
                assert!(matches!(error, UpdateError::Exists { .. }), "{error}");
                let changed: Vec<u8> = sums.iter().map(|byte| byte.wrapping_add(round)).collect();
                tables.update(globals, &[0; 4], &changed, 0).unwrap();
            }
            assert_eq!(entries(one.as_mut()), entries(several.as_mut()), "{kind:?}, round {round}");
            assert_eq!(run(one.as_mut(), &[200 + round; 9]), run(several.as_mut(), &[200 + round; 9]));
        }
        let maps = one.datapath().snapshot().unwrap().maps;
        assert_eq!(maps, several.datapath().snapshot().unwrap().maps);
    }
}

/// A share that is full says so; the whole table has room elsewhere.
#[test]
fn a_full_share_is_told_apart_from_a_full_table() {
    let loaded = counting("ipv4.src");
    let mut several = cores(&loaded, EngineName::JIT, 2);
    let tables = several.tables();
    let map = tables.defs().iter().position(|def| def.name == "hosts").unwrap();
    let room = u64::from(tables.defs()[map].max_entries);
    assert_eq!(room, 1024);
    let value = vec![0; tables.defs()[map].value_bytes as usize];
    let refused = (0..2000_u16).find_map(|host| {
        let key = [[10, 0], host.to_be_bytes()].concat();
        tables.update(map, &key, &value, 0).err()
    });
    let refused = refused.unwrap().to_string();
    assert!(refused.starts_with("core ") && refused.contains("most it may have is 512"), "{refused}");
    assert!((512..1024).contains(&tables.entries(map)), "{}", tables.entries(map));
}

/// Cores that divide their tables alike exchange them; others copy, so that an entry is on the core of its key.
#[test]
fn maps_move_between_cores_that_divide_them_alike() {
    let hosts: Vec<u8> = (0..80).map(|number| number % 40).collect();
    let (by_source, also_by_source) = (counting("ipv4.src"), counting("ipv4.src"));
    let mut old = cores(&by_source, EngineName::JIT, 2);
    run(old.as_mut(), &hosts);
    let before = entries(old.as_mut());
    let pairs: Vec<(usize, usize)> = (0..old.tables().defs().len()).map(|map| (map, map)).collect();
    let mut new = cores(&also_by_source, EngineName::JIT, 2);
    assert!(new.exchange_maps(old.as_mut(), &pairs));
    assert_eq!(entries(new.as_mut()), before);
    assert!(entries(old.as_mut()).iter().find(|(name, _)| name == "hosts").unwrap().1.is_empty());
    // The fourth packet of each.
    let last = run(new.as_mut(), &hosts);
    assert_eq!(last.iter().filter(|fate| **fate == Fate::Drop).count(), 40, "{last:?}");

    let after = entries(new.as_mut());
    for (loaded, count) in [(counting("ipv4.dst"), 2), (counting("ipv4.src"), 3)] {
        let mut other = cores(&loaded, EngineName::JIT, count);
        assert!(!other.exchange_maps(new.as_mut(), &pairs));
        assert_eq!(entries(new.as_mut()), after);
    }
    let mut one = EngineName::JIT.load_in_place(&by_source, &EngineOptions::default()).unwrap().engine;
    assert!(!one.exchange_maps(new.as_mut(), &pairs) && !new.exchange_maps(one.as_mut(), &pairs));
}
