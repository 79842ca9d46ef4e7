// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the cases that `scripts/linux-verifier-cases` makes.

use std::path::Path;
use std::sync::Arc;

use flowloom_isa::{Insn, MapDef, MapKind, Member, Program, Reference, Unresolved};
use flowloom_object::KernelTypeIndex;
use serde_json::Value;

use super::Case;

/// Sizes that a self test's own loader would set; that of a ring buffer is whole pages.
const ENTRIES_BY_LOADER: u32 = 8;
const RING_BYTES: u32 = 4096;

/// Types of map values in 6.1's tables: `btf_raw_types` of its `test_verifier.c`.
const WITH_LOCK: u64 = 3;
const LOCK_AT: u32 = 4;

/// All cases in a folder, and descriptions of the functions that could not be read.
pub fn read(folder: &Path) -> (Vec<Case>, Vec<String>) {
    let (mut cases, unread) = functions(folder);
    cases.extend(tables(folder));
    (cases, unread)
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("`{name}` is no text: {value}"))
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("`{name}` is no number: {value}"))
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("`{name}` is no list: {value}"))
}

/// Cases of the self tests.
fn functions(folder: &Path) -> (Vec<Case>, Vec<String>) {
    let said = json(&folder.join("functions.json"));
    let said = said.as_object().unwrap_or_else(|| panic!("functions.json is no object"));
    let (mut cases, mut unread) = (Vec::new(), Vec::new());
    for (object, functions) in said {
        let path = folder.join(object);
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let functions = functions.as_array().unwrap_or_else(|| panic!("{object}: no list of functions"));
        let programs = match flowloom_object::read_with(&bytes, object, &types) {
            Ok(read) => read,
            Err(error) => {
                unread.extend(functions.iter().map(|function| format!("{object} {}: {error}", text(function, "name"))));
                continue;
            }
        };
        for function in functions {
            let name = text(function, "name");
            if let Some(program) = programs.programs.iter().find(|program| program.name == name) {
                let must_fail = text(function, "result") == "reject";
                cases.push(Case { name: format!("{object} {name}"), program: alone(program.clone()), must_fail });
                continue;
            }
            let refused = programs.refused.iter().find(|refused| refused.name == name);
            let why = refused.map_or("it stands in no section".to_owned(), |refused| refused.fault.to_string());
            unread.push(format!("{object} {name}: {why}"));
        }
    }
    (cases, unread)
}

fn types() -> Result<Arc<KernelTypeIndex>, String> {
    let bytes = std::fs::read("/sys/kernel/btf/vmlinux").map_err(|error| error.to_string())?;
    KernelTypeIndex::parse(&bytes).map(Arc::new).map_err(|error| error.to_string())
}

/// The program without the others of its object: a verifier does not follow tail calls.
fn alone(mut program: Program) -> Program {
    program.siblings = Arc::default();
    program.unresolved.retain(|unresolved| !matches!(unresolved.reference, Reference::Member { .. }));
    for map in &mut program.maps {
        map.members.retain(|(_, member)| matches!(member, Member::Map(_)));
        if map.max_entries == 0 && map.kind != MapKind::PerfEventArray {
            map.max_entries = if map.kind == MapKind::RingBuf { RING_BYTES } else { ENTRIES_BY_LOADER };
        }
    }
    program
}

/// Cases of the tables.
fn tables(folder: &Path) -> Vec<Case> {
    let cases = json(&folder.join("arrays.json"));
    let cases = cases.as_array().unwrap_or_else(|| panic!("arrays.json is no list"));
    cases.iter().map(table_case).collect()
}

fn table_case(case: &Value) -> Case {
    let maps: Vec<MapDef> = list(case, "maps").iter().enumerate().map(|(index, map)| table_map(index, map)).collect();
    let mut program = Program {
        name: "case".to_owned(),
        license: "GPL".to_owned(),
        insns: instructions(text(case, "insns")),
        ..Program::default()
    };
    let name = text(case, "function_of_kernel");
    if !name.is_empty() {
        program.unresolved.push(Unresolved { insn: 0, reference: Reference::Kfunc { name: name.to_owned() } });
    }
    for (index, map) in list(case, "maps").iter().enumerate() {
        if number(map, "value_type") > WITH_LOCK {
            let (map, field) = (maps[index].name.clone(), "a timer or an address of the kernel".to_owned());
            program.unresolved.push(Unresolved { insn: 0, reference: Reference::Field { map, field, offset: 0 } });
        }
        if let Ok(inner) = usize::try_from(map["inner"].as_i64().unwrap_or(-1)) {
            program.maps.push(MapDef { inner: Some(Box::new(maps[inner].clone())), ..maps[index].clone() });
        } else {
            program.maps.push(maps[index].clone());
        }
    }
    // Only these instructions refer to a map; a program with any other map reference is invalid, for the kernel and for
    // us.
    let uses: Vec<(u64, u64)> =
        list(case, "uses").iter().map(|used| (number(used, "insn"), number(used, "map"))).collect();
    for (insn, map) in uses {
        program.insns[insn as usize].imm = map as i32;
    }
    let name = format!("{} {}", text(case, "file"), text(case, "name"));
    Case { name, program, must_fail: text(case, "result") == "reject" }
}

fn table_map(index: usize, map: &Value) -> MapDef {
    let field = |name| number(map, name) as u32;
    let has_lock = number(map, "value_type") == WITH_LOCK;
    MapDef {
        name: format!("map_{index}"),
        kind: MapKind::from_number(field("kind")),
        key_bytes: field("key_bytes"),
        value_bytes: field("value_bytes"),
        max_entries: field("entries"),
        flags: field("flags"),
        spin_lock: has_lock.then_some(LOCK_AT),
        ..MapDef::default()
    }
}

fn instructions(hex: &str) -> Vec<Insn> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or_else(|| panic!("no hexadecimal digit: {byte}")) as u8;
    let bytes: Vec<u8> = hex.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    bytes.chunks_exact(8).map(|bytes| Insn::from_bytes(std::array::from_fn(|at| bytes[at]))).collect()
}
