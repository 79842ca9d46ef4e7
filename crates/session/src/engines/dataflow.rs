// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dataflow form of the program, evaluated after all passes: the input of pipeline generation.

use std::sync::Arc;

use flowloom_engine::{Choices, Packet, Port};
use flowloom_ir::Evaluator;
use flowloom_isa::{Explained, Program};
use flowloom_plan::Target;
use flowloom_vm::plugin::OnPackets;

use super::kind::{Compatibility, Engine, EngineKind, EngineOptions, Reason, Started};
use crate::error::{SessionError, with_causes};
use crate::load::{AnalysisError, Loaded};

pub(super) const KIND: EngineKind = EngineKind {
    name: "dataflow",
    about: "The dataflow of a pipeline, evaluated on the interpreter's maps",
    is_default: false,
    is_partial: true,
    available: || Ok(()),
    lacks: |_| None,
    check: |loaded, program| match program.as_ref().map(|_| loaded.dataflow()) {
        Ok(Ok(_)) => Compatibility::yes(),
        Ok(Err(error)) => refused(&error),
        Err(reason) => Compatibility::no(reason.clone()),
    },
    load,
    in_place: None,
    plugin: Some(plugin),
};

fn load(loaded: &Loaded, options: &EngineOptions) -> Result<Started, SessionError> {
    let dataflow = loaded.dataflow().map_err(|error| match error {
        AnalysisError::Session(error) => error,
        error => SessionError::Refused(format!("`{}` has no dataflow: {}", loaded.name(), with_causes(&error))),
    })?;
    let dataflow = flowloom_plan::optimize(&dataflow, &Target::default());
    let mut evaluator = Evaluator::new(loaded.pipeline_program()?, dataflow).map_err(|e| SessionError::input(&e))?;
    if let Some(routes) = &options.routes {
        evaluator = evaluator.with_routes(routes.clone());
    }
    Ok(evaluator.into())
}

fn refused(error: &AnalysisError) -> Compatibility {
    let summary = with_causes(error);
    match error {
        AnalysisError::NoDataflow(refusal) => {
            let reason = Reason { insn: refusal.insn, what: refusal.reason.to_string(), help: refusal.reason.help() };
            Compatibility { runs: Some(false), summary, reasons: vec![reason], walked: None }
        }
        _ => Compatibility::no(summary),
    }
}

/// Runs a program on plain memory, provided as a map, and returns `r0`.
fn plugin(program: Arc<Program>, memory: &[u8]) -> Result<u64, String> {
    let wrapped = OnPackets::of(&program, memory);
    let loaded = Loaded::of_program(wrapped.program.clone());
    let mut started = load(&loaded, &EngineOptions::default()).map_err(|error| error.to_string())?;
    let packet = Packet { bytes: &[0; 64], port: Port(0) };
    started.engine.process(&packet, &Choices::seeded(0, 0, 0)).map_err(|error| with_causes(&error))?;
    let snapshot = started.engine.snapshot().map_err(|error| with_causes(&error))?;
    wrapped.r0(&snapshot).ok_or_else(|| "the program stored no result".to_owned())
}

impl Engine for Evaluator {}
