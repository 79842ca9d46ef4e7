// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries of maps by the engines' tables, compared with a model.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_isa::{MapDef, MapKind, Program, asm};
use flowloom_session::Loaded;
use flowloom_session::engines::{EngineName, EngineOptions};
use flowloom_testkit::Rng;
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
