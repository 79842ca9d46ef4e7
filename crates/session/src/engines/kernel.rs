// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel, through test runs.

use flowloom_exec::rewrite::RewriteError;
use flowloom_exec::{ExecError, KernelEngine};
use flowloom_isa::{Program, Unresolved};
use flowloom_lower::SourceLine;

use super::kind::{Compatibility, Engine, EngineKind, EngineOptions, Reason, Started};
use crate::error::{SessionError, with_causes};
use crate::load::Loaded;

pub(super) const KIND: EngineKind = EngineKind {
    name: "kernel",
    about: "The kernel, in test runs",
    is_default: true,
    is_partial: false,
    available: || KernelEngine::available().map_err(|reason| reason.to_string()),
    lacks: kernel_lacks,
    check: |loaded, program| match (kernel_lacks(loaded), program) {
        (Some(lacks), Err(reason)) => Compatibility::no(format!("{lacks}; {reason}")),
        (Some(lacks), Ok(_)) => Compatibility::no(lacks),
        (None, Err(reason)) => Compatibility::no(reason.clone()),
        (None, Ok(program)) => check(loaded, program),
    },
    load,
    in_place: None,
    on_core: None,
    plugin: None,
};

/// The parts of a function that no kernel can run, with location and reason.
pub fn kernel_lacks(loaded: &Loaded) -> Option<String> {
    let function = loaded.function()?;
    let lacks: Vec<String> =
        flowloom_lower::unsupported_by_kernel(function).iter().map(|lack| lack.render(function)).collect();
    (!lacks.is_empty()).then(|| lacks.join("; "))
}

/// Loads the function. Counters make a program larger: a function that the kernel's verifier accepts only without them
/// is loaded without them, with a note.
fn load(loaded: &Loaded, options: &EngineOptions) -> Result<Started, SessionError> {
    if let Some(lacks) = kernel_lacks(loaded) {
        return Err(SessionError::Input(format!("not supported by any kernel: {lacks}")));
    }
    // Checked first: without the privilege to load, a later step would fail with a misleading reason.
    KernelEngine::available().map_err(|reason| kernel_error(&ExecError::Unavailable(reason)))?;
    let (program, note) =
        if options.counters { loaded.program_with_counters_if_possible()? } else { (loaded.program()?, None) };
    let mut notes: Vec<String> = note.into_iter().collect();
    let engine = match KernelEngine::load(&program) {
        Err(ExecError::Refused(refused)) if options.counters && loaded.function().is_some() => {
            notes.push(format!(
                "row and flow hits are not counted: with counters, the kernel's verifier refuses the program ({})",
                refused.reason
            ));
            KernelEngine::load(&*loaded.program()?)
        }
        result => result,
    };
    let mut engine = engine.map_err(|e| kernel_error(&e))?;
    if let Some(routes) = &options.routes {
        // The routes are in their own network namespace; only the environment can prevent its creation.
        engine = engine.with_routes(routes).map_err(|e| SessionError::Environment(with_causes(&e)))?;
    }
    Ok(Started { engine: Box::new(engine), notes })
}

/// The error of a function that the kernel does not run.
pub fn kernel_error(error: &ExecError) -> SessionError {
    match error {
        ExecError::Unavailable(_) => SessionError::Environment(with_causes(error)),
        _ => SessionError::Refused(with_causes(error)),
    }
}

fn check(loaded: &Loaded, program: &Program) -> Compatibility {
    if !program.unresolved.is_empty() {
        // The kernel's message would only be that something is unknown.
        let reason = |unresolved: &Unresolved| Reason {
            insn: Some(unresolved.insn),
            what: format!("{}, which is not supported", unresolved.reference),
            help: Some(unresolved.reference.help()),
        };
        let reasons: Vec<Reason> = program.unresolved.iter().map(reason).collect();
        let summary = reasons.iter().map(|reason| reason.what.as_str()).collect::<Vec<_>>().join("; ");
        return Compatibility { runs: Some(false), summary, reasons, walked: None };
    }
    if let Err(reason) = KernelEngine::available() {
        return Compatibility { runs: None, ..Compatibility::no(reason.to_string()) };
    }
    match KernelEngine::accepts(program) {
        Ok(walked) => Compatibility { summary: "the verifier accepts it".to_owned(), walked, ..Compatibility::yes() },
        Err(error) => {
            let (insn, what) = reason(program, &error);
            let reasons = vec![Reason { insn, what, help: None }];
            Compatibility { runs: Some(false), summary: with_place(loaded, &error), reasons, walked: None }
        }
    }
}

/// The instruction of a refusal, if it belongs to this program, and the reason without its location.
fn reason(program: &Program, error: &ExecError) -> (Option<usize>, String) {
    match error {
        ExecError::Refused(refused) if refused.program != program.name => {
            let line = refused.line.as_ref().map_or_else(String::new, |line| format!(" at {line}"));
            let what = format!("the kernel's verifier refuses program `{}`{line}", refused.program);
            (None, format!("{what}: {}", refused.reason))
        }
        ExecError::Refused(refused) => {
            let at = refused.insn.or_else(|| {
                let line = refused.line.as_ref()?;
                program.lines.iter().find(|known| *known == line).map(|line| line.insn)
            });
            (at, format!("the kernel's verifier refuses it: {}", refused.reason))
        }
        ExecError::Rewrite { program: of, source, .. } if *of == program.name && source.insn().is_some() => {
            (source.insn(), without_place(source))
        }
        ExecError::Private { line: Some(line), helper, .. } => {
            (Some(line.insn), format!("the kernel has no helper `{helper}`"))
        }
        error => (None, with_causes(error)),
    }
}

/// The reason without the instruction, which is printed before it.
fn without_place(error: &RewriteError) -> String {
    let text = error.to_string();
    let Some(rest) = error.insn().and_then(|insn| text.strip_prefix(&format!("instruction {insn}"))) else {
        return text;
    };
    rest.strip_prefix(": ").map_or_else(|| format!("it{rest}"), str::to_owned)
}

/// The reason of a refusal, with the location of the element if it is about a table.
fn with_place(loaded: &Loaded, error: &ExecError) -> String {
    let reason = with_causes(error);
    let (ExecError::Load { action, .. }, Some(function)) = (error, loaded.function()) else { return reason };
    let element = function.elements.iter().find(|element| action.ends_with(&format!("map `{}`", element.name)));
    match element {
        Some(element) => format!("{reason}; the table of {}", SourceLine::of(&function.source, element.span)),
        None => reason,
    }
}

impl Engine for KernelEngine {}
