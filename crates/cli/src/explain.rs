//! `flowloom explain`: the pipeline that a program becomes, stage by stage.

use std::fs;
use std::sync::Arc;

use flowloom_bpf::Program;
use flowloom_bpf::verifier::{Options, Proof, VerifyError, verify};
use flowloom_hw::{BlockExplanation, Explanation, Fault, Plan, Why, check, plan};
use serde::Serialize;

use crate::args::{ExplainArgs, ScheduleName};
use crate::check::source::nearer_lines;
use crate::failure::{Failure, with_causes};
use crate::files::Files;
use crate::load::Loaded;
use crate::output::{print, print_json, warn};

pub(crate) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    Files::default().reads("the function", [&args.function.path]).writes("--html", args.html.as_ref()).check()?;
    let loaded = Loaded::from_args(&args.function)?;
    if let Loaded::Efsm { warnings, .. } = &loaded {
        warn(warnings);
    }
    let mut program = loaded.program(false)?;
    nearer_lines(&mut Arc::make_mut(&mut program).lines);
    if args.pipeline.schedule == ScheduleName::Blocks {
        return explain_blocks(&program, args);
    }
    let explanation = explanation(&program, args)?;
    show(args, &explanation, || explanation.html(), || explanation.text(args.verbose))
}

/// Writes the page, and prints JSON or text, as was asked.
fn show(
    args: &ExplainArgs,
    explanation: &impl Serialize,
    html: impl FnOnce() -> String,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if let Some(path) = &args.html {
        fs::write(path, html()).map_err(|e| Failure::file("written", path, &e))?;
    }
    if args.json {
        let value = serde_json::to_value(explanation).map_err(|e| Failure::input(&e))?;
        return print_json(&value);
    }
    print(&text())
}

/// The papers' layout, which keeps maps as the papers' tool does.
fn explain_blocks(program: &Program, args: &ExplainArgs) -> Result<(), Failure> {
    let scheme = args.pipeline.scheme.first().map(|(map, scheme)| format!("--scheme {map}={}", scheme.as_str()));
    let queues = args.pipeline.queues.map(|queues| format!("--queues {queues}"));
    if let Some(option) = scheme.or(queues) {
        return Err(Failure::Input(format!(
            "{option} goes only with --schedule dataflow: blocks keep maps consistent as the papers' tool does it"
        )));
    }
    let proof = proof(program)?;
    let explanation = BlockExplanation::of(program, &proof, &args.pipeline.options())
        .map_err(|refusal| Failure::Found(format!("it cannot be laid out: {refusal}")))?;
    show(args, &explanation, || explanation.html(), || explanation.text(args.verbose))
}

fn explanation(program: &Program, args: &ExplainArgs) -> Result<Explanation, Failure> {
    let proof = proof(program)?;
    let plan = plan(program, &proof, &args.pipeline.options()).map_err(|refusal| {
        let said = format!("there is no pipeline for it: {refusal}");
        match refusal.why {
            // A map that is not there was typed, not found.
            Why::NoMap { .. } => Failure::Input(said),
            _ => Failure::Found(said),
        }
    })?;
    let faults = check(&plan);
    if !faults.is_empty() {
        let said: Vec<String> = faults.iter().map(|fault| faulty(program, &plan, fault)).collect();
        return Err(Failure::Found(format!(
            "there is no pipeline for it: program `{}` at {} MHz\n{}",
            program.name,
            args.pipeline.clock,
            said.join("\n")
        )));
    }
    Ok(Explanation::of(program, &proof, &plan))
}

/// What is wrong with a plan: an operation that does not fit a stage by its line, all else would be a mistake of ours.
fn faulty(program: &Program, plan: &Plan, fault: &Fault) -> String {
    let Fault::TooDeep { node, depth, stage } = fault else { return format!("  mistake of the planner: {fault}") };
    let insn = plan.dataflow.graph.ids().nth(*node).map(|id| plan.dataflow.graph.insn(id));
    let place = insn.and_then(|insn| {
        let line = program.line_of(insn).filter(|line| line.line > 0)?;
        Some(format!("instruction {insn}, {line}"))
    });
    format!(
        "  {}: takes {:.1} levels, a stage holds {:.1}; ask for a slower clock",
        place.or_else(|| insn.map(|insn| format!("instruction {insn}"))).unwrap_or_default(),
        f64::from(*depth) / 10.0,
        f64::from(*stage) / 10.0
    )
}

/// What the verifier knows of a program; pipelines are made of safe ones alone.
fn proof(program: &Program) -> Result<Proof, Failure> {
    verify(program, &Options::default()).map_err(|error| match error {
        VerifyError::Refused(refusal) => Failure::Found(format!(
            "`{}` is not seen to be safe, and pipelines are made of safe programs; `flowloom check -v` shows the way there\n{}",
            program.name,
            refusal.details().trim_end()
        )),
        // A program that is understood and cannot run is a finding too.
        VerifyError::Program(error) => Failure::Found(format!("there is no pipeline for it: {}", with_causes(&error))),
    })
}
