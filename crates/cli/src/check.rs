//! `flowloom check`: what a function is, where it runs, and why not.

mod implied;
mod object;
mod paper;
pub(crate) mod source;
mod stats;
mod verified;

use std::sync::Arc;

use flowloom_efsm::Place;
use flowloom_exec::{ExecError, KernelEngine};
use flowloom_isa::{Program, disasm};
use flowloom_vm::Interpreter;
use serde_json::{Value, json};

use crate::args::{CheckArgs, EngineName};
use crate::compile::{compiled, is_program};
use crate::engines::kernel_lacks;
use crate::failure::{Failure, with_causes};
use crate::load::{self, Loaded};
use crate::output::{counted, diagnostics_json, print, print_json, remark, table, warn};
use verified::Verified;

/// Whether a function runs on a target.
struct Fitness {
    target: &'static str,
    /// `None`: not tried, for the reason in `why`.
    runs: Option<bool>,
    why: String,
}

/// What a function is and where it runs. With `--json`, what is wrong with it goes to stdout too.
pub(crate) fn check(args: &CheckArgs) -> Result<(), Failure> {
    match judge(args) {
        Err(Failure::Source(diagnostics)) if args.json => {
            print_json(&json!({"function": null, "errors": diagnostics_json(diagnostics.as_ref())}))?;
            Err(Failure::Source(diagnostics))
        }
        Err(Failure::Input(message)) if args.json => {
            print_json(
                &json!({"function": null, "errors": [{"code": null, "message": message, "position": null, "help": null}]}),
            )?;
            Err(Failure::Input(message))
        }
        result => result,
    }
}

fn judge(args: &CheckArgs) -> Result<(), Failure> {
    let bytes = load::bytes(&args.function)?;
    if bytes.starts_with(load::ELF_MAGIC) {
        return object::check(args, &mut load::object(&bytes, &args.function)?);
    }
    if is_program(&args.function.path) {
        return object::check(
            args,
            &mut compiled(&args.function.path, &bytes, &args.function.params, args.function.kind())?.object,
        );
    }
    let loaded = Loaded::from_source(bytes, &args.function)?;
    let program = match loaded.program(false) {
        // The reference machine runs what is too large for eBPF.
        Err(Failure::Input(reason)) => Err(reason),
        other => Ok(other?),
    };
    let mut targets = fitness(&loaded, &program, &args.target);
    if let (Ok(_), Err(Failure::Input(reason))) = (&program, loaded.program(true)) {
        // An attached program needs no run record, so its counters may fit where those of a test run do not.
        let of_run = if loaded.attached_program(true).is_ok() { "run -r" } else { "run" };
        for target in targets.iter_mut().filter(|t| t.runs == Some(true) && t.target != EngineName::Machine.as_str()) {
            let separator = if target.why.is_empty() { "" } else { "; " };
            target.why += &format!("{separator}`{of_run}` counts no rows: with counters, {reason}");
        }
    }
    let verified = program.as_ref().ok().map(|program| Verified::of(program));
    // Where targets are named, they decide alone.
    let is_unsafe = args.target.is_empty() && verified.as_ref().is_some_and(Verified::is_refused);
    let is_fit = targets.iter().all(|t| t.runs != Some(false)) && !is_unsafe;
    let untried = targets.iter().find(|t| t.runs.is_none() && !args.target.is_empty());
    if args.json {
        let mut report = as_json(&loaded, program.as_deref().ok(), &targets);
        report["verified"] = match (&verified, &program) {
            (Some(verified), Ok(program)) => verified.json(program, args.verbose)?,
            _ => Value::Null,
        };
        print_json(&report)?;
    } else {
        if let Loaded::Efsm { function, warnings } = &loaded {
            warn(warnings);
            implied::notes(function).iter().for_each(|note| remark(note));
        }
        let mut text = String::new();
        let rows: Vec<Vec<String>> = targets
            .iter()
            .map(|t| {
                let runs = match t.runs {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "not tried",
                };
                vec![t.target.to_owned(), runs.to_owned(), t.why.clone()]
            })
            .collect();
        let size = match &program {
            Ok(program) => counted(program.insns.len(), "eBPF instruction"),
            Err(_) => "no eBPF program".to_owned(),
        };
        text.push_str(&format!("{}: {size}\n", loaded.name()));
        text.push_str(&table(&["target", "runs", "why"], &rows, &[]));
        if let (Some(verified), Ok(program)) = (&verified, &program) {
            text.push_str(&verified.text(program, ""));
        }
        if let (true, Some(function)) = (args.stats, loaded.function()) {
            text.push('\n');
            text.push_str(&stats::text(function));
        }
        if let (true, Ok(program), Some(verified)) = (args.verbose, &program, &verified) {
            text.push('\n');
            text.push_str(&listing(program, verified)?);
        }
        print(&text)?;
    }
    let denied = match &loaded {
        Loaded::Efsm { warnings, .. } if args.deny_warnings => warnings.len(),
        _ => 0,
    };
    match untried {
        _ if denied > 0 => Err(Failure::Input(format!("{} denied by --deny-warnings", counted(denied, "warning")))),
        _ if !is_fit => Err(Failure::Finding),
        Some(target) => Err(Failure::Environment(format!("`{}` cannot be tried here: {}", target.target, target.why))),
        None => Ok(()),
    }
}

/// Where the function runs: on the targets that are `wanted`, or on all. `program` is its eBPF, or why there is none.
fn fitness(loaded: &Loaded, program: &Result<Arc<Program>, String>, wanted: &[EngineName]) -> Vec<Fitness> {
    let asked = EngineName::ALL.into_iter().filter(|engine| wanted.is_empty() || wanted.contains(engine));
    let targets = asked.map(|engine| {
        let (runs, why) = match (engine, program) {
            (EngineName::Machine, _) => (Some(true), String::new()),
            (EngineName::Interp, Ok(program)) => match Interpreter::new(Arc::clone(program)) {
                Ok(_) => (Some(true), String::new()),
                Err(error) => (Some(false), with_causes(&error)),
            },
            (EngineName::Kernel, Ok(program)) => kernel(loaded, program),
            (EngineName::Kernel, Err(reason)) => {
                (Some(false), kernel_lacks(loaded).map_or_else(|| reason.clone(), |lacks| format!("{lacks}; {reason}")))
            }
            (EngineName::Interp, Err(reason)) => (Some(false), reason.clone()),
        };
        Fitness { target: engine.as_str(), runs, why }
    });
    targets.collect()
}

fn kernel(loaded: &Loaded, program: &Program) -> (Option<bool>, String) {
    if let Some(lacks) = kernel_lacks(loaded) {
        return (Some(false), lacks);
    }
    match KernelEngine::available() {
        Err(reason) => (None, reason.to_string()),
        Ok(()) => match KernelEngine::accepts(program) {
            Ok(_) => (Some(true), "the verifier accepts it".to_owned()),
            Err(error) => (Some(false), with_place(loaded, &error)),
        },
    }
}

/// A refusal of the kernel; where it is about a table, with the place of its element.
fn with_place(loaded: &Loaded, error: &ExecError) -> String {
    let reason = with_causes(error);
    let (ExecError::Load { action, .. }, Some(function)) = (error, loaded.function()) else { return reason };
    let element = function.elements.iter().find(|element| action.ends_with(&format!("map `{}`", element.name)));
    match element {
        Some(element) => format!("{reason}; the table of {}", Place::of(&function.source, element.span)),
        None => reason,
    }
}

/// Where notes about instructions begin.
const NOTES_COLUMN: usize = 48;

/// The instructions under the source lines that made them, with what the verifier found out of each, or with the path to the
/// one that it refuses.
fn listing(program: &Program, verified: &Verified) -> Result<String, Failure> {
    let code = disasm::disassemble(&program.insns, &program.maps).map_err(|e| Failure::input(&e))?;
    let mut text = String::new();
    let mut at = 0;
    let mut last = None;
    for line in code.lines() {
        let source = program.lines.iter().find(|l| l.insn == at && l.line > 0);
        if let Some(source) = source.filter(|source| last != Some((&source.file, source.line))) {
            text.push_str(&format!("; {}:{}: {}\n", source.file, source.line, source.text));
            last = Some((&source.file, source.line));
        }
        let mark = if verified.refuses(at) { '>' } else { ' ' };
        let line = format!("{mark}{at:5}: {line}");
        match verified.notes(program, at).join("; ") {
            notes if notes.is_empty() => text.push_str(&format!("{line}\n")),
            notes => text.push_str(&format!("{line:NOTES_COLUMN$} ; {notes}\n")),
        }
        at += program.insns.get(at).map_or(1, |insn| insn.slots());
    }
    Ok(text)
}

fn as_json(loaded: &Loaded, program: Option<&Program>, targets: &[Fitness]) -> Value {
    let targets: Vec<Value> =
        targets.iter().map(|t| json!({"target": t.target, "runs": t.runs, "why": t.why})).collect();
    let mut value = json!({
        "function": loaded.name(),
        "instructions": program.map(|program| program.insns.len()),
        "targets": targets,
    });
    if let Loaded::Efsm { function, warnings } = loaded {
        for (name, part) in stats::json(function) {
            value[name] = part;
        }
        let warnings: Vec<Value> = warnings
            .iter()
            .map(|w| json!({"code": w.code.as_str(), "message": w.message, "position": w.position(), "help": w.help}))
            .collect();
        value["warnings"] = json!(warnings);
        value["notes"] = json!(implied::notes(function));
    }
    value
}
