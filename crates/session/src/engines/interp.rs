// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interpreter: it defines the semantics of eBPF.

use std::sync::Arc;

use flowloom_engine::Copying;
use flowloom_isa::Finding;
use flowloom_vm::{Interpreter, Plugin};

use super::kind::{Compatibility, Engine, EngineKind, EngineOptions, Reason, Started, StartedInPlace};
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
    plugin: Some(|program, memory| {
        Plugin::new(program).and_then(|mut plugin| plugin.run(memory)).map_err(|error| with_causes(&error))
    }),
};

fn load(loaded: &Loaded, options: &EngineOptions) -> Result<Started, SessionError> {
    let (program, note) =
        if options.counters { loaded.program_with_counters_if_possible()? } else { (loaded.program()?, None) };
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
    Ok(Started { engine: Box::new(interp), notes: note.into_iter().collect() })
}

/// Runs the packets of a batch one by one, each on a copy.
fn in_place(loaded: &Loaded, options: &EngineOptions) -> Result<StartedInPlace, SessionError> {
    let Started { engine, notes } = load(loaded, options)?;
    Ok(StartedInPlace { engine: Box::new(Copying::new(engine, options.seed)), notes })
}

impl Engine for Interpreter {
    fn profile(&self) -> Option<&[u64]> {
        Interpreter::profile(self)
    }
}
