// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The FlowBlaze machine: the function is an image for a hardware element that is programmed at run time. The engine
//! `overlay` is its model in software, `overlay-rtl` its simulation by Verilator.

mod hardware;
mod simulated;

use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_overlay::{Compilation, Overlay, Parameters, Refusal, compile};

pub use simulated::{MachineError, RegisterWrite, SimulatedMachine};

use super::kind::{Compatibility, Engine, EngineKind, EngineOptions, Reason, Started};
use crate::error::SessionError;
use crate::load::Loaded;

pub(super) use hardware::KIND as RTL;
pub use hardware::load_files as load_overlay_files;

pub(super) const KIND: EngineKind = EngineKind {
    name: "overlay",
    about: "The FlowBlaze machine, which is programmed at run time, in its software model",
    is_default: false,
    is_partial: true,
    available: || Ok(()),
    lacks,
    check: |loaded, _| match loaded.function() {
        Some(function) => check(function),
        None => Compatibility::no(NOT_A_SOURCE.to_owned()),
    },
    load,
    in_place: None,
    on_core: None,
    plugin: None,
};

const NOT_A_SOURCE: &str = "the FlowBlaze machine runs `.efsm` sources";

fn lacks(loaded: &Loaded) -> Option<String> {
    loaded.function().is_none().then(|| NOT_A_SOURCE.to_owned())
}

/// The compilation for the smallest machine that runs the function; for the largest one if none does.
pub fn compile_for_smallest(function: &Function) -> Compilation {
    let mut last = None;
    for parameters in Parameters::NAMED {
        let compilation = compile(function, parameters);
        if compilation.fits() {
            return compilation;
        }
        last = Some(compilation);
    }
    last.unwrap_or_else(|| compile(function, &Parameters::PAPER))
}

fn check(function: &Function) -> Compatibility {
    let compilation = compile_for_smallest(function);
    let parameters = compilation.image.parameters.name;
    if compilation.fits() {
        let mut compatibility = Compatibility::yes();
        compatibility.summary = format!("with the parameters `{parameters}`");
        return compatibility;
    }
    let refusals = compilation.refusals(function).into_iter();
    let reasons: Vec<Reason> =
        refusals.map(|found| Reason { insn: None, what: found.what, help: found.help }).collect();
    let summary = match &reasons[..] {
        [only] => only.what.clone(),
        [first, rest @ ..] => format!("{}; and {} more", first.what, rest.len()),
        [] => format!("does not fit the parameters `{parameters}`"),
    };
    Compatibility { runs: Some(false), summary, reasons, walked: None }
}

/// The compilation of a function for the smallest machine that runs it.
fn fitting(loaded: &Loaded) -> Result<(Arc<Function>, Compilation), SessionError> {
    let Some(function) = loaded.function() else { return Err(SessionError::Input(NOT_A_SOURCE.to_owned())) };
    let compilation = compile_for_smallest(function);
    if !compilation.fits() {
        let reasons: Vec<String> = compilation.refusals(function).iter().map(Refusal::to_string).collect();
        return Err(SessionError::Refused(format!(
            "`{}` does not fit the machine with the parameters `{}`: {}",
            loaded.name(),
            compilation.image.parameters.name,
            reasons.join("; ")
        )));
    }
    Ok((Arc::clone(function), compilation))
}

fn load(loaded: &Loaded, _: &EngineOptions) -> Result<Started, SessionError> {
    let (function, compilation) = fitting(loaded)?;
    let note = format!("overlay: parameters `{}`", compilation.image.parameters.name);
    let engine = Overlay::new(function, Arc::new(compilation.image));
    Ok(Started { engine: Box::new(engine), notes: vec![note] })
}

impl Engine for Overlay {}
