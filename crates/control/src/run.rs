// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run in user space, as its control socket sees it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flowloom_efsm::Coverage;
use flowloom_efsm::layout::{HITS_MAP, is_instrument};
use flowloom_efsm::model::Function;
use flowloom_engine::{MapState, Snapshot};
use flowloom_exec::{Description, SweepClock};
use flowloom_isa::MapDef;
use flowloom_session::Loaded;
use flowloom_session::engines::InPlaceEngine;
use flowloom_vm::UpdateError;

use crate::desk::{Desk, Worker};
use crate::error::Refusal;
use crate::protocol::{Greeting, LeftOut, MapFacts, Maps, Reloaded, UpdateRule};
use crate::reload::transfer;
use crate::report::{MapLoad, Report, RowHits, TopFlows};
use crate::sample::Samples;
use crate::server::{Subject, Visitor};

/// The slots of a map that are visited between two batches.
const SLOTS_AT_ONCE: u32 = 2048;
/// The rest of the loop between two such visits, so that a dump takes no more than half of its time.
const REST: Duration = Duration::from_micros(200);
/// The age up to which the largest flows are used again: their samples are copied on the thread of the packets.
const TOP_AGE: Duration = Duration::from_millis(200);
/// The flows of a report.
const TOP_FLOWS: usize = 20;

/// The function of a run; another one after a reload.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Its source or object, as given by the user.
    pub path: String,
    /// Parameters of the source.
    pub params: Vec<(String, String)>,
    /// The program of an object with several.
    pub program: Option<String>,
    /// The function, if it is a source.
    pub function: Option<Arc<Function>>,
    /// What the names of keys and fields are.
    pub description: Description,
}

/// A function that has been loaded to replace another one.
pub struct New {
    /// What it is.
    pub facts: Facts,
    /// The function, for the first worker.
    pub loaded: Loaded,
    /// For each worker an engine in its initial state.
    pub engines: Vec<Box<dyn InPlaceEngine>>,
    /// The times of sweeps.
    pub sweep: SweepClock,
    /// Remarks.
    pub notes: Vec<String>,
}

impl std::fmt::Debug for New {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("New").field("facts", &self.facts).field("engines", &self.engines.len()).finish_non_exhaustive()
    }
}

/// Loads, verifies and compiles a function: its path, its parameters, its program, the number of engines.
pub type LoadFunction =
    Box<dyn Fn(&str, &[(String, String)], Option<&str>, usize) -> Result<New, Refusal> + Send + Sync>;

/// A run in user space.
pub struct UserRun {
    desks: Vec<Desk>,
    mode: String,
    ports: BTreeMap<u32, String>,
    load: LoadFunction,
    state: Mutex<State>,
    /// The largest flows, and when they were asked for.
    top: Mutex<Option<(Instant, TopFlows)>>,
    /// Held during a reload: they come one after the other.
    reload: Mutex<()>,
}

#[derive(Debug)]
struct State {
    facts: Facts,
    engine: String,
    reloads: u64,
}

impl std::fmt::Debug for UserRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserRun").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The answer of a worker to a request for statistics.
struct Told {
    statistics: flowloom_ports::Statistics,
    samples: Option<Samples>,
    now_ns: u64,
    refused: u64,
    /// The cores that run its packets.
    cores: usize,
    loads: Vec<u64>,
    /// The counters of rows.
    hits: Option<Vec<u8>>,
}

impl UserRun {
    /// A run whose workers have these desks.
    pub fn new(
        desks: Vec<Desk>,
        facts: Facts,
        (mode, engine): (&str, &str),
        ports: BTreeMap<u32, String>,
        load: LoadFunction,
    ) -> UserRun {
        let state = Mutex::new(State { facts, engine: engine.to_owned(), reloads: 0 });
        UserRun { desks, mode: mode.to_owned(), ports, load, state, top: Mutex::new(None), reload: Mutex::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all workers, one after the other.
    fn ask_all<R: Send + 'static>(
        &self,
        task: impl Fn(&mut Worker<'_>) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, Refusal> {
        self.desks.iter().map(|desk| desk.ask(task.clone())).collect()
    }

    fn defs(&self) -> Result<Vec<MapDef>, Refusal> {
        let Some(desk) = self.desks.first() else { return Ok(Vec::new()) };
        desk.ask(|worker| worker.watched.engine().tables().defs().to_vec())
    }

    /// The index of a map, its definition, and whether its entries can be read.
    fn find(&self, name: &str) -> Result<(usize, MapDef), Refusal> {
        let defs = self.defs()?;
        let found = defs.iter().position(|def| def.name == name);
        let Some(index) = found else {
            let names: Vec<String> = defs.iter().map(|def| format!("`{}`", def.name)).collect();
            let function = self.state().facts.name.clone();
            return Err(Refusal::Input(format!("`{function}` has no map `{name}`; it has {}", names.join(", "))));
        };
        Ok((index, defs[index].clone()))
    }

    /// As [`UserRun::find`], for a map whose entries can be read.
    fn readable(&self, name: &str) -> Result<(usize, MapDef), Refusal> {
        let (index, def) = self.find(name)?;
        let is_readable = match self.desks.first() {
            Some(desk) => desk.ask(move |worker| worker.watched.engine().tables().is_readable(index))?,
            None => false,
        };
        if is_readable {
            return Ok((index, def));
        }
        let kind = def.kind.name().unwrap_or("unknown");
        Err(Refusal::Input(format!(
            "map `{name}` ({kind}) has no entries of its own in user space: records are read at once, and ports are those \
             of `-i`"
        )))
    }
}

fn update_refusal(error: &UpdateError) -> Refusal {
    Refusal::Input(error.to_string())
}

fn check_size(def: &MapDef, part: &str, found: usize, expected: u32) -> Result<(), Refusal> {
    if found == expected as usize {
        return Ok(());
    }
    Err(Refusal::Input(format!("{part} is {found} bytes, map `{}` expects {expected}", def.name)))
}

impl Subject for UserRun {
    fn greeting(&self) -> Greeting {
        let state = self.state();
        let State { facts, engine, .. } = &*state;
        Greeting::new(&facts.name, &facts.path, &self.mode, engine, self.ports.clone())
    }

    fn statistics(&self, with_flows: bool) -> Result<Report, Refusal> {
        let known = || self.top.lock().unwrap_or_else(PoisonError::into_inner);
        let top = known().clone().filter(|(asked, _)| asked.elapsed() < TOP_AGE);
        let (asked, copies) = (Instant::now(), with_flows && top.is_none());
        let told = self.ask_all(move |worker| {
            let tables = worker.watched.engine().tables();
            let count = tables.defs().len();
            let loads = (0..count).map(|map| tables.entries(map)).collect();
            let hits = tables.defs().iter().position(|def| def.name == HITS_MAP);
            let hits = hits.and_then(|map| tables.lookup(map, &[0; 4]));
            Told {
                statistics: worker.statistics.clone(),
                samples: copies.then(|| worker.watched.samples().clone()),
                now_ns: worker.now_ns,
                refused: worker.watched.refused(),
                cores: worker.watched.engine().cores().map_or(1, |cores| cores.packets().len()),
                loads,
                hits,
            }
        })?;
        let defs = self.defs()?;
        let state = self.state();
        let now_ns = told.iter().map(|worker| worker.now_ns).max().unwrap_or(0);
        let mut report = Report {
            function: state.facts.name.clone(),
            source: state.facts.path.clone(),
            mode: self.mode.clone(),
            engine: state.engine.clone(),
            pid: std::process::id(),
            workers: told.iter().map(|worker| worker.cores as u32).sum(),
            now_ns,
            reloads: state.reloads,
            ..Report::default()
        };
        let mut hits: Option<Vec<u8>> = None;
        let mut loads = vec![0; defs.len()];
        let (mut statistics, mut samples, mut refused) = (Vec::new(), Vec::new(), 0);
        for worker in told {
            loads.iter_mut().zip(&worker.loads).for_each(|(sum, own)| *sum += own);
            hits = match (hits, worker.hits) {
                (Some(sum), Some(own)) => Some(add_counters(sum, &own)),
                (sum, own) => sum.or(own),
            };
            refused += worker.refused;
            statistics.push(worker.statistics);
            samples.extend(worker.samples);
        }
        report.count(&statistics, &self.ports);
        report.counters.insert("not_run".to_owned(), refused);
        let workers = statistics.len() as u64;
        let shown = defs.iter().zip(loads).filter(|(def, _)| !is_instrument(&def.name));
        report.maps = shown
            .map(|(def, entries)| MapLoad {
                name: def.name.clone(),
                kind: def.kind.name().unwrap_or("unknown").to_owned(),
                entries,
                max_entries: u64::from(def.max_entries) * workers,
            })
            .collect();
        if let (Some(function), Some(hits)) = (&state.facts.function, hits) {
            let mut snapshot = Snapshot::default();
            snapshot.maps.insert(HITS_MAP.to_owned(), MapState::from([(vec![0; 4], hits)]));
            if let Some(coverage) = Coverage::from_snapshot(function, &snapshot) {
                report.rows = RowHits::of(function, &coverage);
            }
        }
        drop(state);
        if copies {
            let flows = Samples::top(&samples, now_ns, TOP_FLOWS);
            *known() = Some((asked, flows.clone()));
            report.top = Some(flows);
        } else if with_flows {
            report.top = top.map(|(_, flows)| flows);
        }
        Ok(report)
    }

    fn maps(&self) -> Result<Maps, Refusal> {
        let told = self.ask_all(|worker| {
            let tables = worker.watched.engine().tables();
            let defs = tables.defs().to_vec();
            let each = (0..defs.len()).map(|map| (tables.entries(map), tables.is_readable(map)));
            each.zip(defs.clone()).collect::<Vec<_>>()
        })?;
        let mut maps: Vec<MapFacts> = Vec::new();
        for worker in told {
            for (number, ((entries, readable), def)) in worker.into_iter().enumerate() {
                match maps.get_mut(number) {
                    Some(map) => (map.entries, map.tables) = (map.entries + entries, map.tables + 1),
                    None => maps.push(MapFacts {
                        name: def.name.clone(),
                        kind: def.kind.number(),
                        key_bytes: def.key_bytes,
                        value_bytes: def.value_bytes,
                        max_entries: def.max_entries,
                        tables: 1,
                        entries,
                        readable,
                    }),
                }
            }
        }
        Ok(Maps { description: self.state().facts.description.clone(), maps })
    }

    fn dump(&self, map: &str, visitor: &mut Visitor<'_>) -> Result<(), Refusal> {
        let (index, _) = self.readable(map)?;
        for desk in &self.desks {
            let mut from = Some(0);
            while let Some(slot) = from {
                let (entries, next) = desk.ask(move |worker| {
                    let mut entries = Vec::new();
                    let mut take = |key: &[u8], value: &[u8]| entries.push((key.to_vec(), value.to_vec()));
                    let next = worker.watched.engine().tables().visit(index, slot, SLOTS_AT_ONCE, &mut take);
                    (entries, next)
                })?;
                if !visitor(entries) {
                    return Ok(());
                }
                from = next;
                if from.is_some() {
                    std::thread::sleep(REST);
                }
            }
        }
        Ok(())
    }

    fn lookup(&self, map: &str, key: Vec<u8>) -> Result<Option<Vec<u8>>, Refusal> {
        let (index, def) = self.readable(map)?;
        check_size(&def, "key", key.len(), def.key_bytes)?;
        let found = self.ask_all(move |worker| worker.watched.engine().tables().lookup(index, &key))?;
        Ok(found.into_iter().flatten().next())
    }

    fn update(&self, map: &str, key: Vec<u8>, value: Vec<u8>, rule: UpdateRule) -> Result<bool, Refusal> {
        let (index, def) = self.readable(map)?;
        check_size(&def, "key", key.len(), def.key_bytes)?;
        check_size(&def, "value", value.len(), def.value_bytes)?;
        let flags = match rule {
            UpdateRule::Any => 0,
            UpdateRule::NoExist => 1,
            UpdateRule::Exist => 2,
        };
        let holder = match self.desks.as_slice() {
            [_] => Some(0),
            _ => {
                let key = key.clone();
                let held =
                    self.ask_all(move |worker| worker.watched.engine().tables().lookup(index, &key).is_some())?;
                held.iter().position(|held| *held)
            }
        };
        let Some(desk) = holder.and_then(|holder| self.desks.get(holder)) else {
            return Err(Refusal::Input(format!(
                "no table of map `{map}` has this entry, and its packets decide which of the {} workers has it: an entry \
                 of several workers can be changed, not created",
                self.desks.len()
            )));
        };
        let result = desk.ask(move |worker| worker.watched.engine().tables().update(index, &key, &value, flags))?;
        match result {
            Ok(()) => Ok(true),
            Err(UpdateError::Missing { .. } | UpdateError::Exists { .. }) => Ok(false),
            Err(error) => Err(update_refusal(&error)),
        }
    }

    fn delete(&self, map: &str, key: Vec<u8>) -> Result<bool, Refusal> {
        let (index, def) = self.readable(map)?;
        check_size(&def, "key", key.len(), def.key_bytes)?;
        let results = self.ask_all(move |worker| worker.watched.engine().tables().delete(index, &key))?;
        let mut changed = false;
        for result in results {
            match result {
                Ok(()) => changed = true,
                Err(UpdateError::Missing { .. }) => {}
                Err(error) => return Err(update_refusal(&error)),
            }
        }
        Ok(changed)
    }

    fn reload(
        &self,
        path: Option<String>,
        params: Vec<(String, String)>,
        program: Option<String>,
    ) -> Result<Reloaded, Refusal> {
        let _one = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.state().facts.clone();
        let (path, params, program) = match path {
            Some(path) => (path, params, program),
            None => (old.path.clone(), old.params.clone(), old.program.clone()),
        };
        // The old program runs on meanwhile.
        let New { facts, loaded, engines, sweep, mut notes } =
            (self.load)(&path, &params, program.as_deref(), self.desks.len())?;
        if engines.len() != self.desks.len() {
            return Err(Refusal::Environment("the function was not loaded for every worker".to_owned()));
        }
        let mut reloaded = Reloaded {
            function: facts.name.clone(),
            engine: String::new(),
            kept: Vec::new(),
            emptied: Vec::new(),
            removed: Vec::new(),
            left_out: Vec::new(),
            pause_ns: 0,
            notes: Vec::new(),
        };
        let mut loaded = Some(loaded);
        for (desk, engine) in self.desks.iter().zip(engines) {
            let loaded = loaded.take();
            let (new, before, sweep) = (facts.clone(), old.description.clone(), sweep.clone());
            let swapped = desk.ask(move |worker| swap(worker, (engine, loaded), (&new, &before), sweep))??;
            reloaded.engine.clone_from(&swapped.engine);
            reloaded.pause_ns = reloaded.pause_ns.max(swapped.pause_ns);
            reloaded.emptied = swapped.emptied;
            reloaded.removed = swapped.removed;
            notes.extend(swapped.note.filter(|note| !notes.contains(note)));
            for (name, entries) in swapped.kept {
                match reloaded.kept.iter_mut().find(|(kept, _)| *kept == name) {
                    Some((_, sum)) => *sum += entries,
                    None => reloaded.kept.push((name, entries)),
                }
            }
            for new in swapped.left_out {
                match reloaded.left_out.iter_mut().find(|sum| sum.map == new.map) {
                    Some(sum) => (sum.entries, sum.of) = (sum.entries + new.entries, sum.of + new.of),
                    None => reloaded.left_out.push(new),
                }
            }
            // Dropped here: a large table is not released on the thread of the packets.
            drop(swapped.old);
        }
        if facts.function.is_some() {
            notes.push("counters of rows begin at 0 again".to_owned());
        }
        reloaded.notes = notes;
        let mut state = self.state();
        (state.facts, state.reloads) = (facts, state.reloads + 1);
        state.engine.clone_from(&reloaded.engine);
        Ok(reloaded)
    }
}

/// The result of a replacement.
struct Swapped {
    old: Box<dyn InPlaceEngine>,
    engine: String,
    kept: Vec<(String, u64)>,
    emptied: Vec<(String, String)>,
    removed: Vec<String>,
    left_out: Vec<LeftOut>,
    note: Option<String>,
    pause_ns: u64,
}

/// Replaces the engine of a worker, between two batches.
fn swap(
    worker: &mut Worker<'_>,
    (mut engine, loaded): (Box<dyn InPlaceEngine>, Option<Loaded>),
    (facts, before): (&Facts, &Description),
    sweep: SweepClock,
) -> Result<Swapped, Refusal> {
    let start = Instant::now();
    let new = &facts.description;
    let tracer = worker.watched.next_tracer(engine.as_ref(), facts.function.clone());
    let tracer = tracer.map_err(|error| Refusal::Input(format!("the program cannot be traced: {error}")))?;
    let old = worker.watched.engine();
    let (defs, old_defs) = (engine.tables().defs().to_vec(), old.tables().defs().to_vec());
    let transfer = transfer((&defs, new), (&old_defs, before));
    let (mut note, mut left_out) = (None, Vec::new());
    if !engine.exchange_maps(old, &transfer.kept) {
        note = Some(format!("entries were copied from engine {} to {}", old.name(), engine.name()));
        for (index, from) in &transfer.kept {
            let copied = copy(engine.as_mut(), *index, old, *from);
            if let Some(error) = copied.error {
                let (map, reason) = (defs[*index].name.clone(), error.to_string());
                left_out.push(LeftOut { map, entries: copied.all - copied.taken, of: copied.all, reason });
            }
        }
    }
    let kept = transfer.kept.iter();
    let kept = kept.map(|(index, _)| (defs[*index].name.clone(), engine.tables().entries(*index))).collect();
    let name = engine.name().to_owned();
    let mut old = worker.watched.replace(engine);
    if let Some(tracer) = tracer {
        worker.watched.follow(tracer, new);
    }
    *worker.sweep = sweep;
    (worker.replaced)(loaded, [old.as_mut(), worker.watched.engine()]);
    Ok(Swapped {
        old,
        engine: name,
        kept,
        emptied: transfer.emptied.into_iter().map(|emptied| (emptied.map, emptied.reason)).collect(),
        removed: transfer.removed,
        left_out,
        note,
        pause_ns: start.elapsed().as_nanos() as u64,
    })
}

/// What has become of the entries of a map that were copied.
#[derive(Debug, Default)]
struct Copied {
    /// All entries of the old map, and those that the new one has taken.
    all: u64,
    taken: u64,
    /// The first reason why an entry was left out.
    error: Option<UpdateError>,
}

/// Copies the entries of a map. An entry that is refused, such as one of a core whose share is full, stops no other.
fn copy(to: &mut dyn InPlaceEngine, index: usize, old: &mut dyn InPlaceEngine, from: usize) -> Copied {
    let mut copied = Copied::default();
    let mut slot = Some(0);
    while let Some(at) = slot {
        let tables = to.tables();
        slot = old.tables().visit(from, at, SLOTS_AT_ONCE, &mut |key, value| {
            copied.all += 1;
            match tables.update(index, key, value, 0) {
                Ok(()) => copied.taken += 1,
                Err(error) => {
                    copied.error.get_or_insert(error);
                }
            }
        });
    }
    copied
}

/// The sums of counters of 8 bytes.
fn add_counters(mut sum: Vec<u8>, other: &[u8]) -> Vec<u8> {
    for (own, other) in sum.chunks_exact_mut(8).zip(other.chunks_exact(8)) {
        let read = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let value = read(own).wrapping_add(read(other));
        own.copy_from_slice(&value.to_le_bytes());
    }
    sum
}
