// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The verified program as machine code.

use std::any::Any;
use std::sync::Arc;

use flowloom_cores::CoreEngine;
use flowloom_engine::Datapath;
use flowloom_isa::Program;
use flowloom_jit::{Jit, JitError, Lookup};
use flowloom_vm::Tables;

use super::kind::{
    Compatibility, Engine, EngineKind, EngineOptions, InPlaceEngine, Reason, Started, StartedInPlace, run_on_memory,
};
use crate::error::{SessionError, with_causes};
use crate::load::{AnalysisError, Loaded, proof_of};

pub(super) const KIND: EngineKind = EngineKind {
    name: "jit",
    about: "Machine code, from the verified program",
    is_default: true,
    is_partial: true,
    available: || Ok(()),
    lacks: |_| None,
    check: |loaded, program| match program {
        Ok(program) => match loaded.proof().map(|proof| Jit::new(Arc::clone(program), proof)) {
            Ok(Ok(_)) => Compatibility::yes(),
            Ok(Err(error)) => {
                let (insn, what, help) = (error.insn(), with_causes(&error), error.help());
                let reasons = vec![Reason { insn, what: what.clone(), help }];
                Compatibility { runs: Some(false), summary: what, reasons, walked: None }
            }
            Err(error) => Compatibility::no(with_causes(&error)),
        },
        Err(reason) => Compatibility::no(reason.clone()),
    },
    load,
    in_place: Some(in_place),
    on_core: Some(on_core),
    plugin: Some(|program, memory| run_on_memory(load, &program, memory)),
};

fn load(loaded: &Loaded, options: &EngineOptions) -> Result<Started, SessionError> {
    let (jit, notes) = jit(loaded, options)?;
    Ok(Started { engine: Box::new(jit), notes })
}

fn in_place(loaded: &Loaded, options: &EngineOptions) -> Result<StartedInPlace, SessionError> {
    let (jit, notes) = jit(loaded, options)?;
    Ok(StartedInPlace { engine: Box::new(jit.with_seed(options.seed)), notes })
}

fn on_core(loaded: &Loaded, options: &EngineOptions) -> Result<(Box<dyn CoreEngine>, Vec<String>), SessionError> {
    let (jit, notes) = jit(loaded, options)?;
    Ok((Box::new(jit.with_seed(options.seed)), notes))
}

/// The compiled function, and remarks for the user.
fn jit(loaded: &Loaded, options: &EngineOptions) -> Result<(Jit, Vec<String>), SessionError> {
    let (program, note) = options.program(loaded)?;
    let jit = compiled(loaded, &program)?;
    let jit = match &options.routes {
        Some(routes) => jit.with_routes(routes.clone()),
        None => jit,
    };
    Ok((jit, note.into_iter().collect()))
}

/// Compiles the program of a function, or one with counters.
fn compiled(loaded: &Loaded, program: &Arc<Program>) -> Result<Jit, SessionError> {
    let name = loaded.name();
    let unproved = |error: AnalysisError| match error {
        AnalysisError::Session(error) => error,
        error => SessionError::Refused(format!(
            "`{name}` has no machine code: the verifier refuses it: {}",
            with_causes(&error)
        )),
    };
    let refused = |error: JitError| {
        let help = error.help().map(|help| format!("; {help}")).unwrap_or_default();
        SessionError::Refused(format!("`{name}` has no machine code: {}{help}", with_causes(&error)))
    };
    if Arc::ptr_eq(program, &loaded.program()?) {
        return Jit::new(Arc::clone(program), loaded.proof().map_err(unproved)?).map_err(refused);
    }
    let proof = std::cell::OnceCell::new();
    Jit::new(Arc::clone(program), proof_of(&proof, program).map_err(unproved)?).map_err(refused)
}

/// What scouts do ahead of the lookups of a function, as machine code.
///
/// # Errors
/// The function has no machine code.
pub fn lookups(loaded: &Loaded) -> Result<Vec<Lookup>, SessionError> {
    let jit = compiled(loaded, &loaded.program()?)?;
    let proof = loaded.proof().map_err(|error| SessionError::Refused(with_causes(&error)))?;
    jit.lookups(proof).map_err(|error| SessionError::input(&error))
}

impl Engine for Jit {
    fn tables(&mut self) -> Option<(Arc<Program>, &mut dyn Tables)> {
        Some((Arc::clone(Jit::program(self)), Jit::tables(self)))
    }
}

impl InPlaceEngine for Jit {
    fn datapath(&mut self) -> &mut dyn Datapath {
        self
    }

    fn program(&self) -> &Arc<Program> {
        Jit::program(self)
    }

    fn tables(&mut self) -> &mut dyn Tables {
        Jit::tables(self)
    }

    fn exchange_maps(&mut self, old: &mut dyn InPlaceEngine, maps: &[(usize, usize)]) -> bool {
        let Some(old) = old.as_any().downcast_mut::<Jit>() else { return false };
        Jit::exchange_maps(self, old, maps);
        true
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
