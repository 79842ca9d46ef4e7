//! Engines by name.

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_engine::Datapath;
use flowloom_exec::{ExecError, KernelEngine, Reason};
use flowloom_vm::{Interpreter, fib};

use crate::args::EngineName;
use crate::failure::{Failure, with_causes};
use crate::load::Loaded;
use crate::output::remark;

/// An engine with the function loaded.
pub(crate) enum Engine {
    Machine(Box<Machine>),
    Interp(Box<Interpreter>),
    Kernel(Box<KernelEngine>),
}

impl Engine {
    /// Loads the function into the engine, with counters of what is reached where it is one of ours.
    pub(crate) fn load(
        name: EngineName,
        loaded: &Loaded,
        counters: bool,
        routes: Option<fib::Table>,
    ) -> Result<Engine, Failure> {
        match name {
            EngineName::Machine => match loaded.function() {
                Some(function) => Ok(Engine::Machine(Box::new(Machine::new(Arc::clone(function))))),
                None => Err(Failure::Input(
                    "the reference machine runs `.efsm` sources; run objects with --engine interp or kernel".to_owned(),
                )),
            },
            EngineName::Interp => {
                let program = if counters { loaded.program_with_counters()? } else { loaded.program(false)? };
                let interp = Interpreter::new(program).map_err(|e| Failure::input(&e))?;
                // What the lowering makes reads nothing of the stack that it did not write.
                let is_source = loaded.function().is_some();
                let interp = if is_source { interp.with_strict_stack() } else { interp };
                Ok(Engine::Interp(Box::new(match routes {
                    Some(routes) => interp.with_routes(routes),
                    None => interp,
                })))
            }
            EngineName::Kernel => {
                let engine = kernel(loaded, counters)?;
                let engine = match routes {
                    // In a network name space of their own; what keeps it from being made is this system's.
                    Some(routes) => engine.with_routes(&routes).map_err(|e| Failure::Environment(with_causes(&e)))?,
                    None => engine,
                };
                Ok(Engine::Kernel(Box::new(engine)))
            }
        }
    }

    pub(crate) fn datapath(&mut self) -> &mut dyn Datapath {
        match self {
            Engine::Machine(machine) => machine.as_mut(),
            Engine::Interp(interpreter) => interpreter.as_mut(),
            Engine::Kernel(kernel) => kernel.as_mut(),
        }
    }
}

/// What of the function no kernel can do, each with its place and the reason.
pub(crate) fn kernel_lacks(loaded: &Loaded) -> Option<String> {
    let function = loaded.function()?;
    let lacks: Vec<String> = flowloom_efsm::kernel_lacks(function).iter().map(|lack| lack.render(function)).collect();
    (!lacks.is_empty()).then(|| lacks.join("; "))
}

/// Loads the function into the kernel. Counters make a program larger: a function whose program the verifier takes only
/// without them runs without, and that is said.
fn kernel(loaded: &Loaded, counters: bool) -> Result<KernelEngine, Failure> {
    if let Some(lacks) = kernel_lacks(loaded) {
        return Err(Failure::Input(format!("no kernel can run this: {lacks}")));
    }
    // Asked first: without the right to load, the reason would be some step of loading.
    KernelEngine::available().map_err(|reason| kernel_failure(&ExecError::Unavailable(reason)))?;
    let program = if counters { loaded.program_with_counters()? } else { loaded.program(false)? };
    let refused = match KernelEngine::load(&program) {
        Err(ExecError::Refused(refused)) if counters && loaded.function().is_some() => refused,
        result => return result.map_err(|e| kernel_failure(&e)),
    };
    let engine = KernelEngine::load(&*loaded.program(false)?).map_err(|e| kernel_failure(&e))?;
    remark(&format!(
        "hits of rows and flows are not counted: with counters, the kernel's verifier refuses the program ({})",
        refused.reason
    ));
    Ok(engine)
}

/// Why the kernel does not take a function. As for `check`, that is a finding.
pub(crate) fn kernel_failure(error: &ExecError) -> Failure {
    match error {
        ExecError::Unavailable(_) => Failure::Environment(with_causes(error)),
        _ => Failure::Found(with_causes(error)),
    }
}

/// The engines that `names` asks for, each with the reason where it cannot run here. `available` asks for all.
pub(crate) fn targets(names: &[String]) -> Result<Vec<(EngineName, Option<Reason>)>, Failure> {
    let mut wanted: Vec<(EngineName, bool)> = Vec::new();
    for name in names {
        match name.as_str() {
            "available" => wanted.extend([(EngineName::Interp, false), (EngineName::Kernel, false)]),
            "interp" => wanted.push((EngineName::Interp, true)),
            "kernel" => wanted.push((EngineName::Kernel, true)),
            "machine" => {
                return Err(Failure::Input(
                    "the reference machine is what targets are compared with; name `interp`, `kernel` or `available`"
                        .to_owned(),
                ));
            }
            other => {
                return Err(Failure::Input(format!("no target `{other}`; there are `interp`, `kernel`, `available`")));
            }
        }
    }
    let mut found: Vec<(EngineName, Option<Reason>)> = Vec::new();
    for (name, is_required) in wanted {
        if found.iter().any(|(other, _)| *other == name) {
            continue;
        }
        let reason = if name == EngineName::Kernel { KernelEngine::available().err() } else { None };
        match reason {
            Some(reason) if is_required => {
                return Err(Failure::Environment(format!("target `kernel` cannot run here: {reason}")));
            }
            reason => found.push((name, reason)),
        }
    }
    Ok(found)
}
