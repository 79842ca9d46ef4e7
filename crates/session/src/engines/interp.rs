// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interpreter: it defines the semantics of eBPF.

use std::any::Any;
use std::sync::Arc;

use flowloom_cores::CoreEngine;
use flowloom_engine::{Copying, Datapath};
use flowloom_isa::{Finding, Program};
use flowloom_vm::{Interpreter, Plugin, Tables};

use super::kind::{Compatibility, Engine, EngineKind, EngineOptions, InPlaceEngine, Reason, Started, StartedInPlace};
use crate::error::{SessionError, with_causes};
use crate::load::Loaded;

pub(super) const KIND: EngineKind = EngineKind {
    name: "interp",
    about: "The eBPF interpreter",
    is_default: true,
    is_partial: false,
    available: || Ok(()),
    lacks: |_| None,
    check: |_, program| match program.as_ref().map(|program| Interpreter::new(Arc::clone(program))) {
        Ok(Ok(_)) => Compatibility::yes(),
        Ok(Err(error)) => {
            let reason = |finding: Finding| Reason {
                insn: finding.insn,
                what: finding.flaw.to_string(),
                help: finding.flaw.help(),
            };
            let summary = with_causes(&error);
            let reasons = error.findings.into_iter().map(reason).collect();
            Compatibility { runs: Some(false), summary, reasons, walked: None }
        }
        Err(reason) => Compatibility::no(reason.clone()),
    },
    load,
    in_place: Some(in_place),
    on_core: Some(on_core),
    plugin: Some(|program, memory| {
        Plugin::new(program).and_then(|mut plugin| plugin.run(memory)).map_err(|error| with_causes(&error))
    }),
};

fn load(loaded: &Loaded, options: &EngineOptions) -> Result<Started, SessionError> {
    let (interp, notes) = interpreter(loaded, options)?;
    Ok(Started { engine: Box::new(interp), notes })
}

fn on_core(loaded: &Loaded, options: &EngineOptions) -> Result<(Box<dyn CoreEngine>, Vec<String>), SessionError> {
    let (interp, notes) = interpreter(loaded, options)?;
    Ok((Box::new(Copying::new(Box::new(interp), options.seed)), notes))
}

/// The interpreter with a function, and remarks for the user.
fn interpreter(loaded: &Loaded, options: &EngineOptions) -> Result<(Interpreter, Vec<String>), SessionError> {
    let (program, note) = options.program(loaded)?;
    let mut interp = Interpreter::new(program).map_err(|e| SessionError::input(&e))?;
    if options.compare_proof {
        interp = flowloom_proofcheck::checked(interp);
    }
    if loaded.function().is_some() {
        // Lowered programs read no stack bytes that they did not write.
        interp = interp.with_strict_stack();
    }
    if options.profile {
        interp = interp.with_profile();
    }
    if let Some(routes) = &options.routes {
        interp = interp.with_routes(routes.clone());
    }
    Ok((interp, note.into_iter().collect()))
}

/// Runs the packets of a batch one by one, each on a copy.
fn in_place(loaded: &Loaded, options: &EngineOptions) -> Result<StartedInPlace, SessionError> {
    let (interp, notes) = interpreter(loaded, options)?;
    Ok(StartedInPlace { engine: Box::new(Copying::new(Box::new(interp), options.seed)), notes })
}

impl InPlaceEngine for Copying<Interpreter> {
    fn datapath(&mut self) -> &mut dyn Datapath {
        self.datapath_mut()
    }

    fn program(&self) -> &Arc<Program> {
        self.datapath_ref().program()
    }

    fn tables(&mut self) -> &mut dyn Tables {
        self.datapath_mut().tables()
    }

    fn exchange_maps(&mut self, old: &mut dyn InPlaceEngine, maps: &[(usize, usize)]) -> bool {
        let Some(old) = old.as_any().downcast_mut::<Copying<Interpreter>>() else { return false };
        self.datapath_mut().exchange_maps(old.datapath_mut(), maps);
        true
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn refused(&self) -> u64 {
        Copying::refused(self)
    }
}

impl Engine for Interpreter {
    fn tables(&mut self) -> Option<(Arc<Program>, &mut dyn Tables)> {
        Some((Arc::clone(self.program()), Interpreter::tables(self)))
    }

    fn profile(&self) -> Option<&[u64]> {
        Interpreter::profile(self)
    }
}
