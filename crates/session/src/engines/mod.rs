// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registry of engines. A new engine is a file here and an entry in [`ENGINES`].

mod dataflow;
mod interp;
mod jit;
mod kernel;
mod kind;
mod machine;
mod overlay;
mod pipeline;
mod stream;

use std::collections::BTreeMap;

pub use flowloom_cores::{Cores, CoresOptions, Counters, Split};
pub use flowloom_jit::{Lookup, Obstacle, ObstacleKind};
pub use jit::lookups;
pub use kernel::{kernel_error, kernel_lacks};
pub use kind::{
    Compatibility, Engine, EngineKind, EngineOptions, InPlaceEngine, LoadEngine, LoadInPlace, LoadOnCore, Reason,
    RunOnMemory, Started, StartedInPlace,
};
pub use overlay::{MachineError, RegisterWrite, SimulatedMachine, compile_for_smallest, load_overlay_files};
pub use pipeline::{
    HostAccess, HostAnswer, Interrupted, Interruption, Operation, PipelineError, Simulated, cache_folder,
};
pub use stream::{Arrival, Departure, OutputStalls, SendError};

use crate::error::{SessionError, with_causes};
use crate::load::Loaded;

/// All engines. The first one that runs a function is the reference for the others.
pub const ENGINES: [&EngineKind; 8] = [
    &machine::KIND,
    &interp::KIND,
    &jit::KIND,
    &kernel::KIND,
    &dataflow::KIND,
    &pipeline::KIND,
    &overlay::KIND,
    &overlay::RTL,
];

/// An engine by its index in [`ENGINES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineName(u8);

impl EngineName {
    /// The reference machine of the language.
    pub const MACHINE: EngineName = EngineName(0);
    /// The interpreter.
    pub const INTERP: EngineName = EngineName(1);

    /// Machine code.
    pub const JIT: EngineName = EngineName(2);
    /// The kernel.
    pub const KERNEL: EngineName = EngineName(3);

    /// All engines.
    pub fn all() -> impl Iterator<Item = EngineName> {
        (0..ENGINES.len() as u8).map(EngineName)
    }

    /// The engine with this name.
    pub fn by_name(name: &str) -> Option<EngineName> {
        EngineName::all().find(|engine| engine.kind().name == name)
    }

    /// Its entry in the registry.
    pub fn kind(self) -> &'static EngineKind {
        ENGINES[usize::from(self.0)]
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        self.kind().name
    }

    /// The reference engine: the machine for a source, the interpreter for an object.
    pub fn reference(loaded: &Loaded) -> EngineName {
        if loaded.function().is_some() { EngineName::MACHINE } else { EngineName::INTERP }
    }

    /// Loads a function.
    ///
    /// # Errors
    /// The engine refuses the function or cannot be used here.
    pub fn load(self, loaded: &Loaded, options: &EngineOptions) -> Result<Started, SessionError> {
        (self.kind().load)(loaded, options)
    }

    /// Loads a function on several cores, each with an engine of its own.
    ///
    /// # Errors
    /// The engine does not run on several cores, or refuses the function; or the function runs on one core: all reasons
    /// ([`SessionError::OneCore`]).
    pub fn load_on_cores(
        self,
        loaded: &Loaded,
        options: &EngineOptions,
        cores: usize,
        how: CoresOptions,
    ) -> Result<(Cores, Vec<String>), SessionError> {
        let Some(load) = self.kind().on_core else {
            let able = EngineName::all().filter(|engine| engine.kind().on_core.is_some());
            let able: Vec<&str> = able.map(EngineName::as_str).collect();
            return Err(SessionError::Input(format!(
                "engine `{}` does not run on several cores; use {}",
                self.as_str(),
                able.join(" or ")
            )));
        };
        let split = split(loaded).map_err(SessionError::OneCore)?;
        let (mut options, mut capacities) = (options.clone(), BTreeMap::new());
        if !how.is_exact {
            let program = loaded.program()?;
            // Each core has all indices of an array.
            let tables = || program.maps.iter().filter(|map| !map.kind.is_indexed());
            let given = options.capacities.clone();
            let capacity = |name: &str| {
                let own = tables().find(|map| map.name == name)?.max_entries;
                Some((name.to_owned(), given.get(name).copied().unwrap_or(own)))
            };
            capacities.extend(split.limited().filter_map(capacity));
            let shares = capacities.iter().map(|(name, entries)| (name.clone(), entries.div_ceil(cores as u32)));
            options.capacities.extend(shares);
        }
        let mut notes = vec![format!("{cores} cores, packets are spread by {}", split.by())];
        let mut engines = Vec::new();
        for core in 0..cores {
            let (engine, of_engine) = load(loaded, &options)?;
            if core == 0 {
                notes.extend(of_engine);
            }
            engines.push(engine);
            // No two cores draw the same values.
            options.seed = options.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        let cores = Cores::new(engines, split, how).map_err(|error| SessionError::input(&error))?;
        Ok((cores.with_capacities(&capacities), notes))
    }

    /// Loads a function for packets that are changed in place.
    ///
    /// # Errors
    /// The engine runs no such packets, or refuses the function.
    pub fn load_in_place(self, loaded: &Loaded, options: &EngineOptions) -> Result<StartedInPlace, SessionError> {
        let Some(load) = self.kind().in_place else {
            let able = EngineName::all().filter(|engine| engine.kind().in_place.is_some());
            let able: Vec<&str> = able.map(EngineName::as_str).collect();
            return Err(SessionError::Input(format!(
                "engine `{}` does not run packets of devices; use {}",
                self.as_str(),
                able.join(" or ")
            )));
        };
        load(loaded, options)
    }
}

/// What several cores can share of a function.
///
/// # Errors
/// The reasons why it runs on one core.
pub fn split(loaded: &Loaded) -> Result<Split, Vec<String>> {
    match loaded.function() {
        Some(function) => Split::of_function(function),
        None => match loaded.dataflow() {
            Ok(dataflow) => Split::of_dataflow(&dataflow),
            Err(error) => Err(vec![format!("it is not known what packets share: {}", with_causes(&error))]),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_found_by_their_names() {
        let named = [
            ("machine", EngineName::MACHINE),
            ("interp", EngineName::INTERP),
            ("jit", EngineName::JIT),
            ("kernel", EngineName::KERNEL),
        ];
        for (name, engine) in named {
            assert_eq!((EngineName::by_name(name), engine.as_str()), (Some(engine), name));
        }
        assert_eq!(EngineName::all().filter_map(|engine| EngineName::by_name(engine.as_str())).count(), ENGINES.len());
        assert_eq!(EngineName::by_name("none"), None);
    }

    #[test]
    fn engines_without_packets_in_place_say_which_have_them() {
        let loaded = Loaded::of_program(flowloom_isa::Program::default());
        let error = EngineName::KERNEL.load_in_place(&loaded, &EngineOptions::default()).expect_err("no such engine");
        assert_eq!(error.to_string(), "engine `kernel` does not run packets of devices; use interp or jit");
    }
}
