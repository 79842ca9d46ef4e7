// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux's objects, and the settings that their own loaders or the machine provide.
#![allow(clippy::panic, missing_docs, unreachable_pub)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use flowloom_isa::{MapDef, MapKind, Program};
use flowloom_object::KernelTypeIndex;
use flowloom_vm::fib;

/// Size of maps that a loader sizes by the machine.
const SIZE_BY_LOADER: u32 = 8;

/// The folder of objects, built where it does not exist yet.
pub fn objects() -> Result<PathBuf, String> {
    if let Some(folder) = std::env::var_os("FLOWLOOM_OBJECTS") {
        return Ok(folder.into());
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = std::process::Command::new(top.join("scripts/linux-objects")).output();
    let made = made.map_err(|error| format!("scripts/linux-objects cannot be run: {error}"))?;
    if made.status.success() {
        return Ok(top.join("target/linux/objects"));
    }
    let words = String::from_utf8_lossy(&made.stderr);
    Err(format!("scripts/linux-objects: {}", words.lines().last().unwrap_or("no reason given")))
}

/// Types of the running kernel.
pub fn types() -> Result<Arc<KernelTypeIndex>, String> {
    let bytes = std::fs::read("/sys/kernel/btf/vmlinux").map_err(|error| error.to_string())?;
    KernelTypeIndex::parse(&bytes).map(Arc::new).map_err(|error| error.to_string())
}

/// The program with the map settings of its own loader: sizes, and the contents of maps of maps.
pub fn sized(program: &Program) -> Arc<Program> {
    let mut program = program.clone();
    for map in &mut program.maps {
        if map.inner.is_none() && matches!(map.kind, MapKind::ArrayOfMaps | MapKind::HashOfMaps) {
            let inner = MapDef {
                name: "inner".to_owned(),
                kind: MapKind::Array,
                key_bytes: 4,
                value_bytes: 4,
                max_entries: 2,
                ..MapDef::default()
            };
            map.inner = Some(Box::new(inner));
        }
        if map.max_entries == 0 && map.kind != MapKind::PerfEventArray {
            map.max_entries = SIZE_BY_LOADER;
        }
    }
    // A map of maps can have entries if the program has a map like its inner map.
    let inners: Vec<MapDef> = program.maps.iter().filter_map(|map| map.inner.as_deref().cloned()).collect();
    for (number, inner) in inners.into_iter().enumerate() {
        let sizes = |map: &MapDef| (map.kind, map.key_bytes, map.value_bytes, map.max_entries, map.flags);
        if !program.maps.iter().any(|map| sizes(map) == sizes(&inner)) {
            program.maps.push(MapDef { name: format!("inside_{number}"), ..inner });
        }
    }
    Arc::new(program)
}

/// Routes for programs that look up any: a route for every address, some of them blackholes.
const ROUTES: &str = r#"{
  "interfaces": [
    {"port": 0, "mac": "02:00:00:00:00:10", "addresses": ["10.0.0.1/24", "2001:db8::1/64"]},
    {"port": 1, "mac": "02:00:00:00:00:11", "addresses": ["10.0.1.1/24", "2001:db8:1::1/64"]},
    {"port": 2, "mac": "02:00:00:00:00:12", "mtu": 1280, "addresses": ["10.0.2.1/24", "2001:db8:2::1/64"]},
    {"port": 3, "mac": "02:00:00:00:00:13", "forwarding": false}
  ],
  "routes": [
    {"to": "0.0.0.0/0", "via": "10.0.1.7", "port": 1},
    {"to": "128.0.0.0/2", "via": "10.0.2.7", "port": 2},
    {"to": "192.0.0.0/4", "kind": "blackhole"},
    {"to": "64.0.0.0/8", "via": "10.0.2.9", "port": 2},
    {"to": "::/0", "via": "2001:db8:1::7", "port": 1},
    {"to": "fd00::/8", "via": "2001:db8:2::7", "port": 2},
    {"to": "3000::/4", "kind": "prohibit"}
  ],
  "neighbours": [
    {"address": "10.0.1.7", "port": 1, "mac": "02:00:00:00:07:01"},
    {"address": "10.0.2.7", "port": 2, "mac": "02:00:00:00:07:02"},
    {"address": "2001:db8:1::7", "port": 1, "mac": "02:00:00:00:07:03"},
    {"address": "2001:db8:2::7", "port": 2, "mac": "02:00:00:00:07:04"}
  ]
}"#;

pub fn table() -> fib::Table {
    fib::Table::from_json(ROUTES).unwrap_or_else(|error| panic!("{error}"))
}

/// Routes, if the program looks up any.
pub fn routes(program: &Program) -> Option<fib::Table> {
    let asks = |op| matches!(op, Ok(Op::Call { helper: helper::FIB_LOOKUP | helper::CHECK_MTU }));
    let asks = (0..program.insns.len()).any(|at| asks(Op::decode(&program.insns, at)));
    asks.then(table)
}
