//! `flowloom check`: what a function is, where it runs, and why not.

mod paper;
mod stats;

use std::sync::Arc;

use flowloom_bpf::{Interpreter, Program, disasm};
use flowloom_exec::KernelEngine;
use serde_json::{Value, json};

use crate::args::CheckArgs;
use crate::engines::kernel_lacks;
use crate::failure::{Failure, with_causes};
use crate::load::Loaded;
use crate::output::{counted, print, print_json, table, warn};

/// Whether a function runs on a target.
struct Fitness {
    target: &'static str,
    /// `None`: not tried, for the reason in `why`.
    runs: Option<bool>,
    why: String,
}

pub(crate) fn check(args: &CheckArgs) -> Result<(), Failure> {
    let loaded = Loaded::from_args(&args.function)?;
    // A function that cannot be lowered still has a machine, and sizes.
    let program = match (loaded.program(false), loaded.function()) {
        (Ok(program), _) => Ok(program),
        (Err(Failure::Input(reason)), Some(_)) => Err(reason),
        (Err(failure), _) => return Err(failure),
    };
    let targets = fitness(&loaded, &program);
    let is_fit = targets.iter().all(|t| t.runs != Some(false));
    if args.json {
        print_json(&as_json(&loaded, program.as_deref().ok(), &targets))?;
    } else {
        if let Loaded::Efsm { warnings, .. } = &loaded {
            warn(warnings);
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
            Err(_) => "not as eBPF".to_owned(),
        };
        text.push_str(&format!("{}: {size}\n", loaded.name()));
        text.push_str(&table(&["target", "runs", "why"], &rows, &[]));
        if args.stats {
            text.push('\n');
            text.push_str(&stats(&loaded, program.as_deref().ok()));
        }
        if let (true, Ok(program)) = (args.verbose, &program) {
            text.push('\n');
            text.push_str(&listing(program)?);
        }
        print(&text)?;
    }
    if is_fit { Ok(()) } else { Err(Failure::Finding) }
}

fn fitness(loaded: &Loaded, program: &Result<Arc<Program>, String>) -> Vec<Fitness> {
    let mut targets = Vec::new();
    if loaded.function().is_some() {
        targets.push(Fitness { target: "machine", runs: Some(true), why: String::new() });
    }
    let program = match program {
        Ok(program) => program,
        Err(reason) => {
            let refused = |target| Fitness { target, runs: Some(false), why: reason.clone() };
            targets.extend(["interp", "kernel"].map(refused));
            return targets;
        }
    };
    let interp = Interpreter::new(Arc::clone(program));
    targets.push(match interp {
        Ok(_) => Fitness { target: "interp", runs: Some(true), why: String::new() },
        Err(error) => Fitness { target: "interp", runs: Some(false), why: with_causes(&error) },
    });
    let lacks = kernel_lacks(loaded);
    targets.push(match KernelEngine::available() {
        _ if lacks.is_some() => Fitness { target: "kernel", runs: Some(false), why: lacks.unwrap_or_default() },
        Err(reason) => Fitness { target: "kernel", runs: None, why: reason.to_string() },
        Ok(()) => match KernelEngine::load(program) {
            Ok(_) => Fitness { target: "kernel", runs: Some(true), why: "the verifier accepts it".to_owned() },
            Err(error) => Fitness { target: "kernel", runs: Some(false), why: with_causes(&error) },
        },
    });
    targets
}

fn stats(loaded: &Loaded, program: Option<&Program>) -> String {
    if let Some(function) = loaded.function() {
        return stats::text(function);
    }
    let rows: Vec<Vec<String>> = program
        .iter()
        .flat_map(|program| &program.maps)
        .map(|m| {
            let kind = format!("{:?}", m.kind).to_lowercase();
            vec![m.name.clone(), kind, m.key_bytes.to_string(), m.value_bytes.to_string(), m.max_entries.to_string()]
        })
        .collect();
    table(&["map", "kind", "key bytes", "value bytes", "entries"], &rows, &[2, 3, 4])
}

/// The instructions under the source lines that made them.
fn listing(program: &Program) -> Result<String, Failure> {
    let code = disasm::disassemble(&program.insns, &program.maps).map_err(|e| Failure::input(&e))?;
    let mut text = String::new();
    let mut at = 0;
    for line in code.lines() {
        if let Some(source) = program.lines.iter().find(|l| l.insn == at) {
            text.push_str(&format!("; {}:{}: {}\n", source.file, source.line, source.text));
        }
        text.push_str(&format!("{at:6}: {line}\n"));
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
    }
    value
}
