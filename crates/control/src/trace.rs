// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single packets with their path, and the state before and after.
//!
//! ```text
//!  packet ──► interpreter with the entries known so far ──► keys that it asks for ──► entries of the engine ──┐
//!                  ▲──────────────────────── until none is new ◄──────────────────────────────────────────────┘
//!  packet ──► engine ──► verdict, outputs; the entries again
//! ```
//!
//! Engines that are fast tell nothing of their path. So an interpreter runs the packet first, on copies of the entries
//! that it needs, which it finds out run by run. Then the engine runs it, and both are compared: the path is that of
//! the engine unless the trace says that they differ, as after an eviction, or where a function visits whole tables.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use flowloom_efsm::Coverage;
use flowloom_efsm::layout::{HITS_MAP, is_instrument};
use flowloom_efsm::model::Function;
use flowloom_engine::{Choices, Datapath, EngineError, MapState, Outcome, Output, Packet, Ports, Snapshot};
use flowloom_isa::op::Op;
use flowloom_isa::{MapKind, Program, ProgramError};
use flowloom_vm::{Access, At, Interpreter, Observer, Tables, fib};

use crate::report::RowHits;

/// The most runs that look for entries: a packet that follows a longer chain of them has an unknown rest.
const MAX_RUNS: usize = 64;
/// The most instructions of a path that are kept.
const MAX_PATH: usize = 1 << 16;

/// The path of a run.
#[derive(Debug, Default)]
struct Path(Arc<Mutex<Vec<At>>>);

impl Observer for Path {
    fn begin(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn before(&mut self, at: At, _: Op, _: Option<Access>) -> Result<(), String> {
        let mut path = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if path.len() < MAX_PATH {
            path.push(at);
        }
        Ok(())
    }

    fn after(&mut self, _: At, _: Op, _: At, _: usize, _: &[Access]) -> Result<(), String> {
        Ok(())
    }
}

/// An entry that a packet asked for, wrote or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// The index of the map.
    pub map: usize,
    /// The key.
    pub key: Vec<u8>,
    /// The value before the packet; `None` without an entry.
    pub before: Option<Vec<u8>>,
    /// The value after it.
    pub after: Option<Vec<u8>>,
}

/// The trace of a packet.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The slots of the instructions that ran, in order, with the number of their program: 0, or that of a tail call's
    /// target.
    pub path: Vec<(usize, usize)>,
    /// The rows that were hit, with the counters of contexts; empty for an object.
    pub rows: Vec<RowHits>,
    /// The entries, except counters and constants; those that were not found too.
    pub touched: Vec<Touched>,
    /// Why the path may be another than that of the engine.
    pub differs: Option<String>,
}

/// A packet before the engine runs it.
#[derive(Debug)]
pub struct Begun {
    known: Entries,
    path: Vec<(usize, usize)>,
    rows: Vec<RowHits>,
    /// The outcome and the entries of the interpreter.
    outcome: Result<Outcome, String>,
    after: Entries,
    is_complete: bool,
}

type Entries = BTreeMap<(usize, Vec<u8>), Option<Vec<u8>>>;

/// Traces packets of a program.
#[derive(Debug)]
pub struct Tracer {
    interp: Interpreter,
    path: Arc<Mutex<Vec<At>>>,
    program: Arc<Program>,
    function: Option<Arc<Function>>,
}

impl Tracer {
    /// Traces packets of `program`, which is that of `function` if it has a source.
    ///
    /// # Errors
    /// The interpreter does not run the program.
    pub fn new(
        program: Arc<Program>,
        function: Option<Arc<Function>>,
        routes: Option<fib::Table>,
    ) -> Result<Tracer, ProgramError> {
        let path = Path::default();
        let kept = Arc::clone(&path.0);
        let mut interp = Interpreter::new(Arc::clone(&program))?.with_trail().with_observer(Box::new(path));
        if let Some(routes) = routes {
            interp = interp.with_routes(routes);
        }
        Ok(Tracer { interp, path: kept, program, function })
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Sets the ports, as for the engine.
    pub fn bind_ports(&mut self, ports: &Ports) {
        self.interp.bind_ports(ports);
    }

    /// Finds the path of a packet that the engine is about to run, on the entries in `tables`.
    ///
    /// # Errors
    /// The entries do not fit the program, which is a fault of Flowloom.
    pub fn begin(&mut self, tables: &dyn Tables, packet: &Packet<'_>, choices: &Choices) -> Result<Begun, EngineError> {
        let mut known = Entries::new();
        // Instructions access variables without a lookup.
        for (map, def) in self.program.maps.iter().enumerate() {
            if def.kind == MapKind::Array && def.max_entries == 1 && tables.is_readable(map) {
                known.insert((map, vec![0; 4]), tables.lookup(map, &[0; 4]));
            }
        }
        let mut outcome = Err("it was not run".to_owned());
        let mut is_complete = false;
        for _ in 0..MAX_RUNS {
            self.interp.restore(&self.snapshot(&known))?;
            outcome = self.interp.process(packet, choices).map_err(|error| error.to_string());
            let trail = self.interp.trail().into_iter();
            let asked: Vec<(usize, Vec<u8>)> = trail
                .flat_map(|trail| {
                    let lookups = trail.lookups.iter().map(|lookup| (lookup.map, lookup.key.clone()));
                    lookups.chain(trail.changes.iter().cloned())
                })
                .filter(|key| !known.contains_key(key) && tables.is_readable(key.0))
                .collect();
            if asked.is_empty() {
                is_complete = true;
                break;
            }
            for (map, key) in asked {
                let value = tables.lookup(map, &key);
                known.insert((map, key), value);
            }
        }
        let own = self.interp.tables();
        let after: Entries = known.keys().map(|(map, key)| ((*map, key.clone()), own.lookup(*map, key))).collect();
        let path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        let path = path.iter().map(|at| (at.program, at.slot)).collect();
        let rows = self.rows(&known, &after);
        Ok(Begun { known, path, rows, outcome, after, is_complete })
    }

    /// The state with these entries.
    fn snapshot(&self, known: &Entries) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for ((map, key), value) in known {
            let def = &self.program.maps[*map];
            let entries = snapshot.maps.entry(def.name.clone()).or_default();
            if let Some(value) = value {
                entries.insert(key.clone(), value.clone());
            }
            if def.kind.is_per_cpu() {
                snapshot.per_cpu.insert(def.name.clone(), 1);
            }
        }
        snapshot
    }

    /// The rows whose counters differ.
    fn rows(&self, before: &Entries, after: &Entries) -> Vec<RowHits> {
        let Some(function) = &self.function else { return Vec::new() };
        let hits = |entries: &Entries| -> Option<Vec<RowHits>> {
            let map = self.program.maps.iter().position(|def| def.name == HITS_MAP)?;
            let value = entries.get(&(map, vec![0; 4]))?.clone()?;
            let mut snapshot = Snapshot::default();
            snapshot.maps.insert(HITS_MAP.to_owned(), MapState::from([(vec![0; 4], value)]));
            Some(RowHits::of(function, &Coverage::from_snapshot(function, &snapshot)?))
        };
        let (before, after) = (hits(before).unwrap_or_default(), hits(after).unwrap_or_default());
        let same = |a: &RowHits, b: &RowHits| {
            (&a.element, &a.event, a.line, &a.state, &a.text) == (&b.element, &b.event, b.line, &b.state, &b.text)
        };
        let new = after.into_iter().filter_map(|mut row| {
            let old = before.iter().find(|old| same(old, &row)).map_or(0, |old| old.hits);
            row.hits -= old;
            (row.hits > 0).then_some(row)
        });
        new.collect()
    }

    /// The trace of a packet that the engine has run; `outcome` is the engine's, if it is known.
    pub fn end(
        &self,
        begun: Begun,
        tables: &dyn Tables,
        outcome: Option<(flowloom_engine::Verdict, &[Output])>,
    ) -> Trace {
        let Begun { known, path, rows, outcome: own, after, is_complete } = begun;
        let mut differs = match (&own, outcome) {
            (Err(why), _) => Some(format!("the path is unknown from where the interpreter stopped: {why}")),
            (Ok(own), Some((verdict, outputs))) if own.verdict != verdict || own.outputs != outputs => {
                Some(format!("the engine's verdict is {verdict}, that of the path {}, or packets differ", own.verdict))
            }
            _ if !is_complete => Some(format!("the packet asks for a chain of more than {MAX_RUNS} entries")),
            _ => None,
        };
        let is_shown = |map: usize| !is_instrument(&self.program.maps[map].name);
        let mut touched = Vec::new();
        for ((map, key), before) in known {
            if !is_shown(map) {
                continue;
            }
            let now = tables.lookup(map, &key);
            let expected = after.get(&(map, key.clone())).cloned().flatten();
            if now != expected {
                let name = &self.program.maps[map].name;
                differs.get_or_insert(format!("an entry of `{name}` is another one than after the path"));
            }
            touched.push(Touched { map, key, before, after: now });
        }
        Trace { path, rows, touched, differs }
    }
}
