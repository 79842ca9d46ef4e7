// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The replacement of a function that runs in the kernel.
//!
//! ```text
//!  client or SIGHUP ──► Reloader: compile, create maps, verify ──► slot ──► thread of the run: update the links
//!                          ▲ takes seconds, on the client's thread             │ at its next look
//!                          └──────────────── the new handover ◄────────────────┘
//! ```

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flowloom_control::{Greeting, Refusal, Reloaded, Transfer, transfer};
use flowloom_efsm::events::{EVENTS_MAP, LOST_MAP};
use flowloom_engine::Snapshot;
use flowloom_exec::{Description, EventMaps, ExecError, Handover, LiveOptions, Mode, Successor, advice};
use flowloom_isa::{MapDef, Program};
use flowloom_session::{FunctionFile, Loaded, SessionError};

use super::{failure, traffic};
use crate::describe::describe;
use crate::failure::Failure;
use crate::observe::refusal;
use crate::output::{quoted, render_diagnostic};
use crate::reporter::Reporter;

/// The longest wait of a client until the run takes the new function.
const PATIENCE: Duration = Duration::from_secs(30);

/// A function that is ready to replace the one that runs.
#[derive(Debug)]
pub(super) struct Swap {
    pub(super) successor: Successor,
    pub(super) loaded: Loaded,
    pub(super) defs: Vec<MapDef>,
    /// For what its own successor takes over, or why it was refused.
    pub(super) reply: Sender<Result<Handover, Refusal>>,
}

#[derive(Debug)]
enum Slot {
    Empty,
    Waiting(Box<Swap>),
    /// The run is ending.
    Closed,
}

/// The function that runs.
#[derive(Debug, Clone)]
struct Current {
    file: FunctionFile,
    description: Description,
    handover: Handover,
}

/// Replaces the function of a run in the kernel.
#[derive(Debug)]
pub(super) struct Reloader {
    pub(super) mode: Mode,
    pub(super) clock_ahead_ns: u64,
    /// True if packets and rows are counted where the function is small enough for it.
    pub(super) counts: bool,
    pub(super) json: bool,
    current: Mutex<Option<Current>>,
    slot: Mutex<Slot>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ending() -> Refusal {
    Refusal::Environment("the run is ending".to_owned())
}

impl Reloader {
    pub(super) fn new(mode: Mode, clock_ahead_ns: u64, counts: bool, json: bool) -> Reloader {
        let (current, slot) = (Mutex::new(None), Mutex::new(Slot::Empty));
        Reloader { mode, clock_ahead_ns, counts, json, current, slot }
    }

    /// The run has begun, with this function.
    pub(super) fn begin(&self, file: FunctionFile, description: Description, handover: Handover) {
        *locked(&self.current) = Some(Current { file, description, handover });
    }

    /// The function that waits for the run to take it.
    pub(super) fn take(&self) -> Option<Swap> {
        let mut slot = locked(&self.slot);
        match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Waiting(swap) => Some(*swap),
            other => {
                *slot = other;
                None
            }
        }
    }

    /// The run takes no function any longer.
    pub(super) fn end(&self) {
        *locked(&self.slot) = Slot::Closed;
    }

    /// Loads a function and has the run take it.
    pub(super) fn reload(
        &self,
        path: Option<String>,
        params: Vec<(String, String)>,
        program: Option<String>,
    ) -> Result<(Greeting, Reloaded), Refusal> {
        let current = locked(&self.current).clone();
        let old = current.ok_or_else(|| Refusal::Environment("the run is only beginning: try again".to_owned()))?;
        let file = match path {
            Some(path) => FunctionFile { path: path.into(), params, program, kind: old.file.kind },
            None => old.file.clone(),
        };
        let loaded = Loaded::open(&file).map_err(|e| refusal(e.into()))?;
        let mut notes: Vec<String> =
            loaded.warnings().iter().map(|warning| render_diagnostic(warning).trim_end().to_owned()).collect();
        let (prepared, uncounted) = self.prepare(&loaded, &file, &old).map_err(refusal)?;
        let Prepared { successor, defs, description, transfer } = prepared;
        notes.extend(uncounted);
        if !successor.locked_differently().is_empty() {
            notes.push(format!(
                "packets lock the contexts of {} otherwise than before: of two packets on different CPUs at the moment of the \
                 reload, one may have overwritten what the other one had changed",
                quoted(successor.locked_differently())
            ));
        }
        notes.extend(advice(old.handover.interfaces(), self.mode, traffic(&loaded)).iter().map(ToString::to_string));
        if loaded.function().is_some() {
            notes.push("counters of rows begin at 0 again".to_owned());
        }
        let (name, source) = (loaded.name().to_owned(), file.path.display().to_string());
        let reloaded = Reloaded {
            function: name.clone(),
            engine: "kernel".to_owned(),
            kept: successor.kept().to_vec(),
            emptied: transfer.emptied.into_iter().map(|emptied| (emptied.map, emptied.reason)).collect(),
            removed: transfer.removed,
            left_out: Vec::new(),
            // Every packet meets the old program or the new one.
            pause_ns: 0,
            notes,
        };
        let interfaces = old.handover.interfaces().iter();
        let ports: BTreeMap<u32, String> = interfaces.map(|i| (i.port, i.name().to_owned())).collect();
        let greeting = Greeting::new(&name, &source, &self.mode.to_string(), "kernel", ports);
        let handover = self.hand(successor, loaded, defs)?;
        *locked(&self.current) = Some(Current { file, description, handover });
        Ok((greeting, reloaded))
    }

    /// Loads the function into the kernel; without counters, and with the reason, if it is too large with them.
    fn prepare(
        &self,
        loaded: &Loaded,
        file: &FunctionFile,
        old: &Current,
    ) -> Result<(Prepared, Option<String>), Failure> {
        let note = |reason: &str| format!("nothing is counted: with counters, {reason}");
        let why = match loaded.attached_program(self.counts) {
            Err(SessionError::Input(reason)) if self.counts => note(&reason),
            Err(error) => return Err(error.into()),
            Ok(program) => match self.prepare_program(loaded, &program, file, old, self.counts) {
                Err(ExecError::Refused(refused)) if self.counts => {
                    note(&format!("the kernel's verifier refuses the program ({})", refused.reason))
                }
                result => return Ok((result.map_err(|e| failure(&e))?, None)),
            },
        };
        let program = loaded.attached_program(false)?;
        let prepared = self.prepare_program(loaded, &program, file, old, false).map_err(|e| failure(&e))?;
        Ok((prepared, Some(why)))
    }

    fn prepare_program(
        &self,
        loaded: &Loaded,
        program: &Program,
        file: &FunctionFile,
        old: &Current,
        count: bool,
    ) -> Result<Prepared, ExecError> {
        let description = describe(loaded, &file.path.display().to_string(), program);
        let transfer = transfer((&program.maps, &description), (old.handover.defs(), &old.description));
        let reports = loaded.function().is_some_and(|function| Reporter::of(function, self.json).is_some());
        let options = LiveOptions {
            mode: self.mode,
            count,
            clock_ahead_ns: self.clock_ahead_ns,
            state: &Snapshot::default(),
            description: &description,
            events: reports.then_some(EventMaps { ring: EVENTS_MAP, lost: LOST_MAP }),
        };
        let successor = old.handover.prepare(program, &transfer.kept, options)?;
        Ok(Prepared { successor, defs: program.maps.clone(), description, transfer })
    }

    /// Hands the function to the thread of the run, and waits until it runs.
    fn hand(&self, successor: Successor, loaded: Loaded, defs: Vec<MapDef>) -> Result<Handover, Refusal> {
        let (reply, answer) = channel();
        match &mut *locked(&self.slot) {
            slot @ Slot::Empty => *slot = Slot::Waiting(Box::new(Swap { successor, loaded, defs, reply })),
            Slot::Waiting(_) | Slot::Closed => return Err(ending()),
        }
        match answer.recv_timeout(PATIENCE) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => Err(ending()),
            Err(RecvTimeoutError::Timeout) => match self.take() {
                Some(_) => Err(Refusal::Environment(format!(
                    "the run has not answered for {} s: it is stopped, or the reader of its standard output has stalled",
                    PATIENCE.as_secs()
                ))),
                // It has begun.
                None => answer.recv().unwrap_or_else(|_| Err(ending())),
            },
        }
    }
}

/// A function that is loaded.
struct Prepared {
    successor: Successor,
    defs: Vec<MapDef>,
    description: Description,
    transfer: Transfer,
}
