//! `flowloom explain`: renders the pipeline of a program, stage by stage.

use std::fs;
use std::sync::Arc;

use flowloom_ehdl::BlockExplanation;
use flowloom_isa::{LineInfo, Program};
use flowloom_plan::{Fault, Plan, Refusal, Why, check, plan};
use flowloom_report::Explanation;
use flowloom_verifier::{Options, Proof, VerifyError, verify};
use serde::Serialize;
use serde_json::json;

use crate::args::{ExplainArgs, ScheduleName};
use crate::check::source::nearer_lines;
use crate::failure::{Failure, with_causes};
use crate::files::Files;
use crate::output::{print, print_json, warn};

pub(crate) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    Files::default().reads("the function", [&args.function.path]).writes("--html", args.html.as_ref()).check()?;
    let loaded = args.function.load()?;
    warn(loaded.warnings());
    let mut program = loaded.program()?;
    nearer_lines(&mut Arc::make_mut(&mut program).lines);
    if args.pipeline.schedule == ScheduleName::Blocks {
        return explain_blocks(&program, args);
    }
    let explanation = explanation(&program, args)?;
    show(args, &explanation, || explanation.html(), || explanation.text(args.verbose))
}

/// Writes the HTML page if requested, then prints JSON or text.
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

/// Explains the block-by-block layout of the papers, which fixes the scheme of each map.
fn explain_blocks(program: &Program, args: &ExplainArgs) -> Result<(), Failure> {
    let scheme = args.pipeline.scheme.first().map(|(map, scheme)| format!("--scheme {map}={}", scheme.as_str()));
    let queues = args.pipeline.queues.map(|queues| format!("--queues {queues}"));
    if let Some(option) = scheme.or(queues) {
        return Err(Failure::Input(format!(
            "{option} goes only with --schedule dataflow: blocks keep maps consistent as the papers' tool does it"
        )));
    }
    let proof = proof(program, args.json)?;
    let explanation = BlockExplanation::of(program, &proof, &args.pipeline.options()?).map_err(|refusal| {
        let told = Refused {
            code: "blocks",
            program: &refusal.program,
            insn: Some(refusal.insn),
            line: refusal.line.as_ref(),
            help: refusal.why.help(),
            what: refusal.why.to_string(),
        };
        refused(args.json, &told, format!("it cannot be laid out: {refusal}"))
    })?;
    show(args, &explanation, || explanation.html(), || explanation.text(args.verbose))
}

fn explanation(program: &Program, args: &ExplainArgs) -> Result<Explanation, Failure> {
    let proof = proof(program, args.json)?;
    let plan = plan(program, &proof, &args.pipeline.options()?).map_err(|refusal| no_plan(&refusal, args.json))?;
    sound(program, &plan, args.json)?;
    Ok(Explanation::of(program, &plan))
}

/// Runs the checker: a plan with a fault is a finding.
pub(crate) fn sound(program: &Program, plan: &Plan, json: bool) -> Result<(), Failure> {
    let faults = check(plan);
    if faults.is_empty() {
        return Ok(());
    }
    let said: Vec<String> = faults.iter().map(|fault| faulty(program, plan, fault)).collect();
    let message = format!(
        "there is no pipeline for it: program `{}` at {} MHz\n{}",
        program.name,
        plan.options.target.clock_mhz,
        said.join("\n")
    );
    let is_clock = faults.iter().all(|fault| matches!(fault, Fault::TooDeep { .. }));
    let code = if is_clock { "too-deep" } else { "planner-fault" };
    let told = Refused { code, program: &program.name, insn: None, line: None, help: None, what: said.join("\n") };
    Err(refused(json, &told, message))
}

/// A fault of a plan: an operation that does not fit a stage by its line; any other is a fault of the planner.
fn faulty(program: &Program, plan: &Plan, fault: &Fault) -> String {
    let Fault::TooDeep { node, depth, stage } = fault else { return format!("  fault of the planner: {fault}") };
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

/// Failure for a program without a plan: a finding, with `--json` also printed as a JSON object.
pub(crate) fn no_plan(refusal: &Refusal, json: bool) -> Failure {
    let said = format!("there is no pipeline for it: {refusal}");
    if let Why::NoMap { .. } = refusal.why {
        // The user named the map, so it is a usage error.
        return Failure::Input(said);
    }
    let told = Refused {
        code: refusal.why.code(),
        program: &refusal.program,
        insn: refusal.insn,
        line: refusal.line.as_ref(),
        help: refusal.why.help(),
        what: refusal.why.to_string(),
    };
    refused(json, &told, said)
}

/// A refusal as `--json` prints it.
struct Refused<'a> {
    code: &'a str,
    program: &'a str,
    insn: Option<usize>,
    line: Option<&'a LineInfo>,
    help: Option<&'a str>,
    what: String,
}

fn refused(json: bool, refused: &Refused<'_>, said: String) -> Failure {
    if !json {
        return Failure::Found(said);
    }
    let line = refused
        .line
        .map(|line| json!({ "file": line.file, "line": line.line, "column": line.column, "text": line.text }));
    let value = json!({ "refusal": {
        "code": refused.code,
        "program": refused.program,
        "instruction": refused.insn,
        "line": line,
        "message": refused.what,
        "help": refused.help,
    }});
    print_json(&value).err().unwrap_or(Failure::Found(said))
}

/// Verifies a program. Pipelines are built from safe programs only.
pub(crate) fn proof(program: &Program, json: bool) -> Result<Proof, Failure> {
    verify(program, &Options::default()).map_err(|error| match error {
        VerifyError::Refused(refusal) => {
            let said = format!(
                "`{}` is not seen to be safe, and pipelines are made of safe programs; `flowloom check -v` shows the way there\n{}",
                program.name,
                refusal.details().trim_end()
            );
            let told = Refused {
                code: "unsafe",
                program: &program.name,
                insn: Some(refusal.insn),
                line: refusal.line.as_ref(),
                help: refusal.help.as_deref(),
                what: refusal.what.to_string(),
            };
            refused(json, &told, said)
        }
        // A well-formed program that cannot run is a finding too.
        VerifyError::Program(error) => {
            let said = format!("there is no pipeline for it: {}", with_causes(&error));
            let told = Refused {
                code: "program",
                program: &program.name,
                insn: None,
                line: None,
                help: None,
                what: with_causes(&error),
            };
            refused(json, &told, said)
        }
    })
}
