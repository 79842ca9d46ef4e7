// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dataflow form of the program, evaluated after all passes: the input of pipeline generation.

use flowloom_ir::Evaluator;
use flowloom_isa::Explained;
use flowloom_plan::Target;

use super::kind::{Compatibility, Engine, EngineKind, EngineOptions, Reason, Started, run_on_memory};
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
    on_core: None,
    plugin: Some(|program, memory| run_on_memory(load, &program, memory)),
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

impl Engine for Evaluator {}
