// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An entry of the registry of engines, and the types of its functions.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_cores::{CoreEngine, Cores};
use flowloom_efsm::Coverage;
use flowloom_engine::{Choices, Datapath, InPlace, Packet, Port};
use flowloom_isa::Program;
use flowloom_vm::plugin::OnPackets;
use flowloom_vm::{Tables, fib};

use crate::error::{SessionError, with_causes};
use crate::load::Loaded;

/// Runs a program on plain memory and returns `r0`, or the reason why it is refused or stopped.
pub type RunOnMemory = fn(Arc<Program>, &[u8]) -> Result<u64, String>;

/// Loads a function.
pub type LoadEngine = fn(&Loaded, &EngineOptions) -> Result<Started, SessionError>;

/// Loads a function for packets that are changed in place.
pub type LoadInPlace = fn(&Loaded, &EngineOptions) -> Result<StartedInPlace, SessionError>;

/// Loads a function for one of several cores; returns remarks for the user as well.
pub type LoadOnCore = fn(&Loaded, &EngineOptions) -> Result<(Box<dyn CoreEngine>, Vec<String>), SessionError>;

/// An engine of the registry.
#[derive(Debug)]
pub struct EngineKind {
    /// The name, as in `--engine`.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// True if commands use it when no engine is named.
    pub is_default: bool,
    /// True if it has no form of some functions that others run: comparisons of several targets leave it out there.
    pub is_partial: bool,
    /// Checks that the engine can be used here; the error is the reason.
    pub available: fn() -> Result<(), String>,
    /// Describes the parts of a function that the engine cannot run in any environment.
    pub lacks: fn(&Loaded) -> Option<String>,
    /// Decides whether a function runs on the engine. The program is the function's, or the reason why it has none.
    pub check: fn(&Loaded, &Result<Arc<Program>, String>) -> Compatibility,
    /// Loads a function.
    pub load: LoadEngine,
    /// Loads a function for packets that are changed in place, if the engine runs such.
    pub in_place: Option<LoadInPlace>,
    /// Loads a function for one of several cores, if the engine can be one.
    pub on_core: Option<LoadOnCore>,
    /// Runs a program for `bpf plugin`.
    pub plugin: Option<RunOnMemory>,
}

/// Options of an engine.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// Count the hits of rows and flows, if the program is not too large with counters.
    pub counters: bool,
    /// The routing table of `fib_lookup` and `check_mtu`.
    pub routes: Option<fib::Table>,
    /// The seed of the random values of packets that are changed in place.
    pub seed: u64,
    /// Count executions per instruction, on engines that support it.
    pub profile: bool,
    /// Capacities of maps, in place of those of the program.
    pub capacities: BTreeMap<String, u32>,
    /// Compare each run with the verifier's proof, on engines that support it.
    pub compare_proof: bool,
}

impl EngineOptions {
    /// The program that an engine runs, and a remark for the user.
    pub(super) fn program(&self, loaded: &Loaded) -> Result<(Arc<Program>, Option<String>), SessionError> {
        let (mut program, note) = match self.counters {
            true => loaded.program_with_counters_if_possible()?,
            false => (loaded.program()?, None),
        };
        if !self.capacities.is_empty() {
            for map in &mut Arc::make_mut(&mut program).maps {
                map.max_entries = self.capacities.get(&map.name).copied().unwrap_or(map.max_entries);
            }
        }
        Ok((program, note))
    }
}

/// A loaded engine.
pub struct Started {
    pub engine: Box<dyn Engine>,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Started").field("engine", &self.engine.name()).field("notes", &self.notes).finish()
    }
}

impl<E: Engine + 'static> From<E> for Started {
    fn from(engine: E) -> Started {
        Started { engine: Box::new(engine), notes: Vec::new() }
    }
}

/// A loaded engine that changes packets in place.
pub struct StartedInPlace {
    pub engine: Box<dyn InPlaceEngine>,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

impl std::fmt::Debug for StartedInPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartedInPlace").field("engine", &self.engine.name()).field("notes", &self.notes).finish()
    }
}

/// An engine that changes packets in place, with access to its state.
pub trait InPlaceEngine: InPlace + Send {
    /// The engine as one of single packets, for its state.
    fn datapath(&mut self) -> &mut dyn Datapath;

    /// The program that it runs, with its maps.
    fn program(&self) -> &Arc<Program>;

    /// Its maps, entry by entry.
    fn tables(&mut self) -> &mut dyn Tables;

    /// Takes the contents of maps from `old`, which gets those of this engine: pairs of own and old map, which have
    /// equal kinds, sizes, capacities and flags. Returns false, and changes nothing, if the engines store maps
    /// differently.
    ///
    /// # Cost
    /// Independent of the number of entries.
    fn exchange_maps(&mut self, old: &mut dyn InPlaceEngine, maps: &[(usize, usize)]) -> bool;

    /// For [`InPlaceEngine::exchange_maps`].
    fn as_any(&mut self) -> &mut dyn Any;

    /// The packets that the engine cannot run, which are aborted.
    fn refused(&self) -> u64 {
        0
    }

    /// The cores, if there are several.
    fn cores(&self) -> Option<&Cores> {
        None
    }
}

impl Engine for Cores {
    fn cores(&self) -> Option<&Cores> {
        Some(self)
    }
}

impl InPlaceEngine for Cores {
    fn datapath(&mut self) -> &mut dyn Datapath {
        self
    }

    fn program(&self) -> &Arc<Program> {
        Cores::program(self)
    }

    fn tables(&mut self) -> &mut dyn Tables {
        self
    }

    fn exchange_maps(&mut self, old: &mut dyn InPlaceEngine, maps: &[(usize, usize)]) -> bool {
        match old.as_any().downcast_mut::<Cores>() {
            Some(old) => Cores::exchange_maps(self, old, maps),
            None => false,
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn refused(&self) -> u64 {
        Cores::refused(self)
    }

    fn cores(&self) -> Option<&Cores> {
        Some(self)
    }
}

/// A datapath and its counters.
pub trait Engine: Datapath {
    /// Coverage of a source, if the engine stores it outside of its snapshot.
    fn coverage(&self) -> Option<Coverage> {
        None
    }

    /// The program that it runs and its maps, entry by entry, if it has such access.
    fn tables(&mut self) -> Option<(Arc<Program>, &mut dyn Tables)> {
        None
    }

    /// The cores, if there are several.
    fn cores(&self) -> Option<&Cores> {
        None
    }

    /// Executions by slot, with [`EngineOptions::profile`].
    fn profile(&self) -> Option<&[u64]> {
        None
    }
}

/// Verdict on a function and an engine.
#[derive(Debug, Clone, Default)]
pub struct Compatibility {
    /// `None` if it cannot be tested here.
    pub runs: Option<bool>,
    /// The reason in one line; a remark if it runs.
    pub summary: String,
    /// The individual reasons.
    pub reasons: Vec<Reason>,
    /// The number of instructions that the kernel's verifier walked.
    pub walked: Option<u64>,
}

/// A reason why a program does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The instruction.
    pub insn: Option<usize>,
    /// The reason.
    pub what: String,
    /// Suggested fix.
    pub help: Option<&'static str>,
}

impl Compatibility {
    pub(super) fn yes() -> Compatibility {
        Compatibility { runs: Some(true), ..Compatibility::default() }
    }

    pub(super) fn no(summary: String) -> Compatibility {
        let reasons = vec![Reason { insn: None, what: summary.clone(), help: None }];
        Compatibility { runs: Some(false), summary, reasons, walked: None }
    }
}

/// Runs a program on plain memory, provided as a map, on an engine that runs packets; returns `r0`, or the reason why
/// it is refused or stopped.
pub(super) fn run_on_memory(load: LoadEngine, program: &Program, memory: &[u8]) -> Result<u64, String> {
    let wrapped = OnPackets::of(program, memory);
    let loaded = Loaded::of_program(wrapped.program.clone());
    let mut started = load(&loaded, &EngineOptions::default()).map_err(|error| error.to_string())?;
    let packet = Packet { bytes: &[0; 64], port: Port(0) };
    started.engine.process(&packet, &Choices::seeded(0, 0, 0)).map_err(|error| with_causes(&error))?;
    let snapshot = started.engine.snapshot().map_err(|error| with_causes(&error))?;
    wrapped.r0(&snapshot).ok_or_else(|| "the program stored no result".to_owned())
}
