//! The registry of engines. A new engine is a file here and an entry in [`ENGINES`].

mod dataflow;
mod interp;
mod kernel;
mod machine;

use std::sync::Arc;

use flowloom_efsm::Coverage;
use flowloom_engine::Datapath;
use flowloom_isa::Program;
use flowloom_vm::fib;

pub use kernel::{kernel_error, kernel_lacks};

use crate::error::SessionError;
use crate::load::Loaded;

/// All engines. The first one that runs a function is the reference for the others.
pub const ENGINES: [&EngineKind; 4] = [&machine::KIND, &interp::KIND, &kernel::KIND, &dataflow::KIND];

/// Runs a program on plain memory and returns `r0`, or the reason why it is refused or stopped.
pub type RunOnMemory = fn(Arc<Program>, &[u8]) -> Result<u64, String>;

/// An engine of the registry.
#[derive(Debug)]
pub struct EngineKind {
    /// The name, as in `--engine`.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// True if commands use it when no engine is named.
    pub is_default: bool,
    /// Checks that the engine can be used here; the error is the reason.
    pub available: fn() -> Result<(), String>,
    /// Describes the parts of a function that the engine cannot run in any environment.
    pub lacks: fn(&Loaded) -> Option<String>,
    /// Decides whether a function runs on the engine. The program is the function's, or the reason why it has none.
    pub check: fn(&Loaded, &Result<Arc<Program>, String>) -> Compatibility,
    /// Loads a function.
    pub load: fn(&Loaded, &EngineOptions) -> Result<Started, SessionError>,
    /// Runs a program for `bpf plugin`.
    pub plugin: Option<RunOnMemory>,
}

/// An engine by its index in [`ENGINES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineName(u8);

impl EngineName {
    /// The reference machine of the language.
    pub const MACHINE: EngineName = EngineName(0);
    /// The interpreter.
    pub const INTERP: EngineName = EngineName(1);

    /// The kernel.
    pub const KERNEL: EngineName = EngineName(2);

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
}

/// Options of an engine.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// Count the hits of rows and flows, if the program is not too large with counters.
    pub counters: bool,
    /// The routing table of `fib_lookup` and `check_mtu`.
    pub routes: Option<fib::Table>,
    /// Count executions per instruction, on engines that support it.
    pub profile: bool,
    /// Compare each run with the verifier's proof, on engines that support it.
    pub compare_proof: bool,
}

/// A loaded engine.
pub struct Started {
    /// The engine.
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

/// A datapath and its counters.
pub trait Engine: Datapath {
    /// Coverage of a source, if the engine stores it outside of its snapshot.
    fn coverage(&self) -> Option<Coverage> {
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
    fn yes() -> Compatibility {
        Compatibility { runs: Some(true), ..Compatibility::default() }
    }

    fn no(summary: String) -> Compatibility {
        let reasons = vec![Reason { insn: None, what: summary.clone(), help: None }];
        Compatibility { runs: Some(false), summary, reasons, walked: None }
    }
}

fn always_available() -> Result<(), String> {
    Ok(())
}

fn supports_all(_: &Loaded) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_found_by_their_names() {
        let named = [("machine", EngineName::MACHINE), ("interp", EngineName::INTERP), ("kernel", EngineName::KERNEL)];
        for (name, engine) in named {
            assert_eq!((EngineName::by_name(name), engine.as_str()), (Some(engine), name));
        }
        assert_eq!(EngineName::all().filter_map(|engine| EngineName::by_name(engine.as_str())).count(), ENGINES.len());
        assert_eq!(EngineName::by_name("none"), None);
    }
}
