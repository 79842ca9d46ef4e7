// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom map`: reads and changes the tables of functions that run on interfaces.
//!
//! Maps in the kernel are found by their ids, so no BPF file system is needed and maps of any loader work. Names come
//! from the description that `flowloom run -i` attaches; for programs of other loaders from BTF, or from the source
//! that `-f` names. Maps of runs in user space are reached through the control socket of their process.

mod entry;
mod tables;
mod words;

use std::path::PathBuf;

use flowloom_exec::{Description, Running, RunningError, SWEEPER, Table, monotonic_ns, running};
use flowloom_isa::{MapKind, Program};
use serde_json::{Value, json};

use crate::args::{FunctionArgs, MapArgs, MapListArgs, MapVerb};
use crate::describe::describe;
use crate::failure::{Failure, with_causes};
use crate::output::{counted, grouped, print, print_json, print_note, quoted, table};
pub(crate) use entry::{EntryLayout, TableFacts};
use tables::{AnyTable, UserRun};
use words::{Words, flags, target};

/// Way in which the command line names a map.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Id(u32),
    Name(String),
    Pinned(PathBuf),
    /// Name of a function and of one of its maps.
    Function(String, Option<String>),
}

/// A map and the layout of its entries.
struct Found {
    table: AnyTable,
    shape: EntryLayout,
    function: Option<String>,
}

pub(crate) fn map(verb: &MapVerb) -> Result<(), Failure> {
    match verb {
        MapVerb::List(args) => list(args),
        MapVerb::Dump(args) => {
            let (mut words, found) = find(args)?;
            words.end("dump")?;
            dump(&found, args)
        }
        MapVerb::Lookup(args) => {
            let (mut words, found) = find(args)?;
            let key = key(&mut words, &found)?;
            words.end("lookup")?;
            lookup(&found, &key, args)
        }
        MapVerb::Update(args) => {
            let (mut words, found) = find(args)?;
            let key = key(&mut words, &found)?;
            update(&found, &key, &mut words)
        }
        MapVerb::Delete(args) => {
            let (mut words, found) = find(args)?;
            let key = key(&mut words, &found)?;
            words.end("delete")?;
            match found.table.delete(&key)? {
                true => Ok(()),
                false => Err(not_found(&found, &key)),
            }
        }
    }
}

fn failure(error: &RunningError) -> Failure {
    let text = with_causes(error);
    if error.is_environment() { Failure::Environment(text) } else { Failure::Input(text) }
}

/// A missing entry is a finding (exit code 1), as with `grep`.
fn not_found(found: &Found, key: &[u8]) -> Failure {
    print_note(&format!("`{}` has no entry {}", found.table.name(), found.shape.key_words(key)));
    Failure::Finding
}

fn key(words: &mut Words<'_>, found: &Found) -> Result<Vec<u8>, Failure> {
    // A table with a single context needs no key.
    if !found.shape.is_keyless || words.is_at("key") {
        words.expect("key")?;
    }
    words.key(&found.shape, found.table.name(), found.table.key_bytes())
}

fn list(args: &MapListArgs) -> Result<(), Failure> {
    let users = UserRun::all()?;
    let functions = in_kernel(!users.is_empty())?;
    let wanted: Vec<&Running> = functions.iter().filter(|f| args.all || f.description.is_some()).collect();
    if args.json {
        let maps = |function: &Running| -> Vec<Value> {
            function.maps.iter().map(|(id, name)| json!({"id": id, "name": name})).collect()
        };
        let in_user_space = users.iter().map(|run| {
            let greeting = &run.found.greeting;
            let maps: Vec<Value> = run.maps.iter().map(|map| json!({"id": null, "name": map.name})).collect();
            json!({
                "function": greeting.function,
                "source": greeting.source,
                "pid": greeting.pid,
                "ports": greeting.ports,
                "programs": [],
                "maps": maps,
            })
        });
        let value: Vec<Value> = wanted
            .iter()
            .map(|function| {
                let description = function.description.as_ref();
                json!({
                    "function": function.name,
                    "source": description.map(|d| &d.source),
                    "pid": description.map(|d| d.pid),
                    "ports": description.map(|d| &d.ports),
                    "programs": function.programs,
                    "maps": maps(function),
                })
            })
            .chain(in_user_space)
            .collect();
        return print_json(&json!(value));
    }
    if wanted.is_empty() && users.is_empty() {
        let more = if args.all { "" } else { "; --all includes maps of other tools" };
        print_note(&format!("no function runs on interfaces{more}"));
        return Ok(());
    }
    let mut rows = Vec::new();
    for function in wanted {
        let ports = function.description.as_ref().map_or_else(String::new, |description| {
            description.ports.iter().map(|(port, name)| format!("{port}={name}")).collect::<Vec<_>>().join(" ")
        });
        for (id, name) in &function.maps {
            rows.push(vec![function.name.clone(), ports.clone(), name.clone(), id.to_string()]);
        }
    }
    for run in &users {
        let greeting = &run.found.greeting;
        let ports: Vec<String> = greeting.ports.iter().map(|(port, name)| format!("{port}={name}")).collect();
        for map in &run.maps {
            let place = format!("pid {}", greeting.pid);
            rows.push(vec![greeting.function.clone(), ports.join(" "), map.name.clone(), place]);
        }
    }
    print(&table(&["function", "ports", "map", "id"], &rows, &[3]))
}

/// The functions in the kernel. Without the right to see them there are none, if others are `there`.
fn in_kernel(there: bool) -> Result<Vec<Running>, Failure> {
    match running() {
        Err(RunningError::NotPermitted { .. }) if there => Ok(Vec::new()),
        functions => functions.map_err(|e| failure(&e)),
    }
}

/// Finds the map that the first words name, and the layout of its entries. Returns the other words too.
fn find(args: &MapArgs) -> Result<(Words<'_>, Found), Failure> {
    let mut words = Words::new(&args.words);
    let target = target(&mut words)?;
    let users = match &target {
        Target::Id(_) | Target::Pinned(_) => Vec::new(),
        Target::Name(_) | Target::Function(..) => UserRun::all()?,
    };
    let is_meant = |run: &UserRun| match &target {
        Target::Name(name) => run.maps.iter().any(|map| map.name == *name),
        Target::Function(function, _) => run.is_named(function),
        _ => false,
    };
    let mut meant: Vec<UserRun> = users.into_iter().filter(is_meant).collect();
    let functions = in_kernel(!meant.is_empty())?;
    let in_kernel = match &target {
        Target::Name(name) if !meant.is_empty() => !Table::by_name(name).unwrap_or_default().is_empty(),
        Target::Function(function, _) => functions.iter().any(|running| running.name == *function),
        _ => true,
    };
    if let Some(run) = meant.pop() {
        if !meant.is_empty() || in_kernel {
            let mut pids: Vec<String> = meant.iter().map(|run| run.found.greeting.pid.to_string()).collect();
            pids.push(run.found.greeting.pid.to_string());
            let kernel = if in_kernel { "; those in the kernel have ids: `id N`" } else { "" };
            return Err(Failure::Input(format!(
                "several runs have this map: give PID/MAP with one of {}{kernel}",
                pids.join(", ")
            )));
        }
        let found = of_user(run, &target, args)?;
        return Ok((words, found));
    }
    let table = match target {
        Target::Id(id) => Table::by_id(id).map_err(|e| failure(&e))?,
        Target::Pinned(path) => Table::pinned(&path).map_err(|e| failure(&e))?,
        Target::Name(name) => only(Table::by_name(&name).map_err(|e| failure(&e))?, &name)?,
        Target::Function(function, map) => of_function(&functions, &function, map.as_deref())?,
    };
    // The program that sweeps a table has it too, but no description.
    let owns = |f: &&Running| f.maps.iter().any(|(id, _)| *id == table.id());
    let owner = functions.iter().filter(owns).max_by_key(|f| f.description.is_some());
    let named = args.function.as_deref().map(|path| described(path, &args.params)).transpose()?;
    let description = named.as_ref().or(owner.and_then(|owner| owner.description.as_ref()));
    let now_ns = monotonic_ns().wrapping_add(description.map_or(0, |description| description.clock_ahead_ns));
    let table = AnyTable::Kernel(table);
    let shape = EntryLayout::of(&table.facts(), description, now_ns).map_err(Failure::Input)?;
    Ok((words, Found { table, shape, function: owner.map(|owner| owner.name.clone()) }))
}

/// A map of a run in user space. Without a map name, its only map with contexts.
fn of_user(run: UserRun, target: &Target, args: &MapArgs) -> Result<Found, Failure> {
    let function = run.found.greeting.function.clone();
    let has_contexts = |name: &str| {
        let layout = run.description.map(name).and_then(|map| map.layout.as_ref());
        layout.is_some_and(|layout| !layout.states.is_empty())
    };
    let names = quoted(run.maps.iter().map(|map| &map.name));
    let map = match target {
        Target::Name(map) | Target::Function(_, Some(map)) => map.clone(),
        _ => {
            let with: Vec<&str> =
                run.maps.iter().map(|map| map.name.as_str()).filter(|name| has_contexts(name)).collect();
            match with.as_slice() {
                [only] => (*only).to_owned(),
                _ => return Err(Failure::Input(format!("choose a map of `{function}`: {function}/MAP with {names}"))),
            }
        }
    };
    let Some((table, own)) = run.table(&map) else {
        return Err(Failure::Input(format!("`{function}` has no map `{map}`; it has {names}")));
    };
    let named = args.function.as_deref().map(|path| described(path, &args.params)).transpose()?;
    let now_ns = monotonic_ns().wrapping_add(own.clock_ahead_ns);
    let table = AnyTable::User(table);
    let shape =
        EntryLayout::of(&table.facts(), Some(named.as_ref().unwrap_or(&own)), now_ns).map_err(Failure::Input)?;
    Ok(Found { table, shape, function: Some(function) })
}

fn only(mut tables: Vec<Table>, name: &str) -> Result<Table, Failure> {
    match (tables.pop(), tables.len()) {
        (Some(table), 0) => Ok(table),
        (None, _) => Err(Failure::Input(format!("no map `{name}`; `flowloom map list` and `bpftool map` list them"))),
        (Some(last), _) => {
            let ids: Vec<String> = tables.iter().chain([&last]).map(|table| table.id().to_string()).collect();
            Err(Failure::Input(format!(
                "several maps `{name}`, with the ids {}: give `id N`, or FUNCTION/{name}",
                ids.join(", ")
            )))
        }
    }
}

/// Finds a map of a running function. Without a map name, its only map with contexts.
fn of_function(functions: &[Running], wanted: &str, map: Option<&str>) -> Result<Table, Failure> {
    // The kernel truncates names to 15 bytes.
    let fits =
        |f: &&Running| f.name == wanted || f.description.is_none() && f.name.len() == 15 && wanted.starts_with(&f.name);
    let matching: Vec<&Running> = functions.iter().filter(fits).collect();
    let function = match matching.as_slice() {
        [function] => *function,
        [] => {
            let names = quoted(functions.iter().map(|f| &f.name).filter(|name| *name != SWEEPER));
            let there = if names.is_empty() { "none runs".to_owned() } else { format!("there run {names}") };
            return Err(Failure::Input(format!("no function `{wanted}` runs on interfaces; {there}")));
        }
        several => {
            let ids: Vec<String> =
                several.iter().flat_map(|f| &f.maps).map(|(id, name)| format!("{name} {id}")).collect();
            return Err(Failure::Input(format!(
                "`{wanted}` runs {} times; give the id of the map: {}",
                several.len(),
                ids.join(", ")
            )));
        }
    };
    let names = || quoted(function.maps.iter().map(|(_, name)| name));
    let has_contexts = |name: &str| {
        function.description.as_ref().is_some_and(|description| {
            description.map(name).and_then(|map| map.layout.as_ref()).is_some_and(|layout| !layout.states.is_empty())
        })
    };
    let chosen: Vec<u32> = match map {
        Some(map) => function.maps.iter().filter(|(_, name)| name == map).map(|(id, _)| *id).collect(),
        None => function.maps.iter().filter(|(_, name)| has_contexts(name)).map(|(id, _)| *id).collect(),
    };
    match (chosen.as_slice(), map) {
        ([id], _) => Table::by_id(*id).map_err(|e| failure(&e)),
        (_, Some(map)) => Err(Failure::Input(format!("`{wanted}` has no map `{map}`; it has {}", names()))),
        (_, None) => Err(Failure::Input(format!("choose a map of `{wanted}`: {wanted}/MAP with {}", names()))),
    }
}

/// Describes the maps of the source or object that `-f` names.
fn described(path: &std::path::Path, params: &[(String, String)]) -> Result<Description, Failure> {
    let args = FunctionArgs { path: path.to_owned(), params: params.to_vec(), program: None, kind: None };
    let loaded = args.load()?;
    let program: std::sync::Arc<Program> = loaded.attached_program(false)?;
    Ok(describe(&loaded, &path.display().to_string(), &program))
}

fn dump(found: &Found, args: &MapArgs) -> Result<(), Failure> {
    let mut entries: Vec<_> = found.table.entries()?.into_iter().collect();
    // Arrays and device maps always have all entries; empty entries of device maps are skipped.
    if found.table.kind() == Some(MapKind::Devmap) {
        entries.retain(|(_, value)| value.iter().any(|b| *b != 0));
    }
    let shape = &found.shape;
    if shape.is_indexed {
        entries.sort_by_key(|(key, _)| entry::index(key));
    }
    match (args.json, args.raw) {
        (true, raw) => {
            let list: Vec<Value> =
                entries.iter().map(|(k, v)| if raw { entry::raw_json(k, v) } else { shape.json(k, v) }).collect();
            print(&format!("{}\n", Value::Array(list)))
        }
        (false, true) => {
            let mut text: String = entries.iter().map(|(k, v)| entry::raw_text(k, v)).collect();
            let plural = if entries.len() == 1 { "" } else { "s" };
            text.push_str(&format!("Found {} element{plural}\n", entries.len()));
            print(&text)
        }
        (false, false) => {
            let of = found.function.as_ref().map_or_else(String::new, |name| format!(" of {name}"));
            let size = grouped(found.table.max_entries());
            let many = counted(entries.len(), "entry");
            let place = match &found.table {
                AnyTable::User(table) => format!("pid {}", table.pid),
                table => format!("id {}", table.id().unwrap_or_default()),
            };
            let mut text = format!("{}{of} ({place}): {many} of {size}\n", found.table.name());
            for (key, value) in &entries {
                text.push_str(&format!("{}\n", shape.text(key, value)));
            }
            print(&text)
        }
    }
}

fn lookup(found: &Found, key: &[u8], args: &MapArgs) -> Result<(), Failure> {
    let value = found.table.lookup(key)?;
    let Some(value) = value else { return Err(not_found(found, key)) };
    match (args.json, args.raw) {
        (true, true) => print(&format!("{}\n", entry::raw_json(key, &value))),
        (true, false) => print(&format!("{}\n", found.shape.json(key, &value))),
        (false, true) => print(&entry::raw_text(key, &value)),
        (false, false) => print(&format!("{}\n", found.shape.text(key, &value))),
    }
}

fn update(found: &Found, key: &[u8], words: &mut Words<'_>) -> Result<(), Failure> {
    words.expect("value")?;
    let old = found.table.lookup(key)?;
    let value = words.value(&found.shape, found.table.name(), found.table.value_bytes(), old)?;
    let mode = flags(words)?;
    words.end("update")?;
    if found.table.update(key, &value, mode)? {
        return Ok(());
    }
    let what = if mode == flowloom_exec::UpdateMode::Exist { "has no entry" } else { "already has the entry:" };
    print_note(&format!("`{}` {what} {}", found.table.name(), found.shape.key_words(key)));
    Err(Failure::Finding)
}
