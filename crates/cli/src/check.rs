// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom check`: describes a function, the targets it runs on, and why it does not run on others.

mod implied;
mod object;
pub(crate) mod overlay;
mod paper;
pub(crate) mod source;
mod stats;
mod verified;

use std::sync::Arc;

use flowloom_isa::{Program, disasm};
use flowloom_session::engines::{Compatibility, EngineName};
use flowloom_session::{ELF_MAGIC, Loaded, SessionError, compiled, is_program};
use serde_json::{Value, json};

use crate::args::{CheckArgs, named_or_default};
use crate::failure::Failure;
use crate::output::{counted, diagnostics_json, print, print_json, print_note, table, warn};
use verified::Verified;

struct TargetResult {
    target: &'static str,
    fit: Compatibility,
}

/// Describes a function and the targets it runs on. With `--json`, errors are printed to stdout too.
pub(crate) fn check(args: &CheckArgs) -> Result<(), Failure> {
    match check_targets(args) {
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

fn check_targets(args: &CheckArgs) -> Result<(), Failure> {
    let file = args.function.file();
    let bytes = file.bytes()?;
    if bytes.starts_with(ELF_MAGIC) {
        return object::check(args, &mut flowloom_session::object(&bytes, &file)?);
    }
    if is_program(&file.path) {
        return object::check(args, &mut compiled(&file.path, &bytes, &file.params, file.kind)?.object);
    }
    let loaded = Loaded::from_bytes(&file, bytes)?;
    let program = match loaded.program() {
        // Not an error yet: the reference machine runs functions that are too large for eBPF.
        Err(SessionError::Input(reason)) => Err(reason),
        other => Ok(other?),
    };
    let mut targets = fitness(&loaded, &program, &args.target);
    if let (Ok(_), Err(SessionError::Input(reason))) = (&program, loaded.program_with_counters()) {
        // An attached program needs no run record, so its counters may fit where those of a test run do not.
        let of_run = if loaded.attached_program(true).is_ok() { "run -r" } else { "run" };
        let machine = EngineName::MACHINE.as_str();
        for TargetResult { fit, .. } in targets.iter_mut().filter(|t| t.fit.runs == Some(true) && t.target != machine) {
            let separator = if fit.summary.is_empty() { "" } else { "; " };
            fit.summary += &format!("{separator}`{of_run}` counts no rows: with counters, {reason}");
        }
    }
    let verified = program.as_ref().ok().map(|program| Verified::of(program));
    // If targets are named, only they decide.
    let is_unsafe = args.target.is_empty() && verified.as_ref().is_some_and(Verified::is_refused);
    let is_fit = targets.iter().all(|t| t.fit.runs != Some(false)) && !is_unsafe;
    let untried = targets.iter().find(|t| t.fit.runs.is_none() && !args.target.is_empty());
    let is_overlay_named = args.target.iter().any(|target| target.as_str() == "overlay");
    let of_overlay = loaded.function().filter(|_| is_overlay_named);
    if args.json {
        let mut report = as_json(&loaded, program.as_deref().ok(), &targets);
        if let Some(function) = of_overlay {
            report["overlay"] = overlay::json(function);
        }
        report["verified"] = match (&verified, &program) {
            (Some(verified), Ok(program)) => verified.json(program, args.verbose)?,
            _ => Value::Null,
        };
        print_json(&report)?;
    } else {
        if let Some(function) = loaded.function() {
            warn(loaded.warnings());
            implied::notes(function).iter().for_each(|note| print_note(note));
        }
        let mut text = String::new();
        let rows: Vec<Vec<String>> = targets
            .iter()
            .map(|t| vec![t.target.to_owned(), runs_text(t.fit.runs).to_owned(), t.fit.summary.clone()])
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
        if let Some(function) = of_overlay {
            text.push('\n');
            text.push_str(&overlay::text(function));
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
    let denied = if args.deny_warnings { loaded.warnings().len() } else { 0 };
    match untried {
        _ if denied > 0 => Err(Failure::Input(format!("{} denied by --deny-warnings", counted(denied, "warning")))),
        _ if !is_fit => Err(Failure::Finding),
        Some(TargetResult { target, fit }) => {
            Err(Failure::Environment(format!("`{target}` is not available here: {}", fit.summary)))
        }
        None => Ok(()),
    }
}

/// Checks the function against the named targets, or the default ones. `program` is its eBPF, or why there is none.
fn fitness(loaded: &Loaded, program: &Result<Arc<Program>, String>, wanted: &[EngineName]) -> Vec<TargetResult> {
    let check =
        |engine: EngineName| TargetResult { target: engine.as_str(), fit: (engine.kind().check)(loaded, program) };
    named_or_default(wanted).into_iter().map(check).collect()
}

/// Answer to the question whether a target runs a function; `None` if it was not tried.
fn runs_text(runs: Option<bool>) -> &'static str {
    runs.map_or("not tried", |runs| if runs { "yes" } else { "no" })
}

const NOTES_COLUMN: usize = 48;

/// Listing of the instructions under their source lines, with the verifier's facts about each, or with the path to the
/// rejected instruction.
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

fn as_json(loaded: &Loaded, program: Option<&Program>, targets: &[TargetResult]) -> Value {
    let targets: Vec<Value> =
        targets.iter().map(|t| json!({"target": t.target, "runs": t.fit.runs, "why": t.fit.summary})).collect();
    let mut value = json!({
        "function": loaded.name(),
        "instructions": program.map(|program| program.insns.len()),
        "targets": targets,
    });
    if let Some(function) = loaded.function() {
        for (name, part) in stats::json(function) {
            value[name] = part;
        }
        let warnings: Vec<Value> = loaded
            .warnings()
            .iter()
            .map(|w| json!({"code": w.code.as_str(), "message": w.message, "position": w.position(), "help": w.help}))
            .collect();
        value["warnings"] = json!(warnings);
        value["notes"] = json!(implied::notes(function));
    }
    value
}
