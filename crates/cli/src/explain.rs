// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom explain`: renders the pipeline of a program, stage by stage, and what machine code does ahead of lookups.

mod lookups;

use std::fmt::Display;
use std::fs;

use flowloom_ehdl::BlockExplanation;
use flowloom_isa::{Explained, LineInfo, Program};
use flowloom_plan::{DEVICES, Fault, Fit, Options, Plan, Reason, Refusal, Resources};
use flowloom_report::{Explanation, Rendering};
use flowloom_rtl::Pipeline;
use flowloom_session::{AnalysisError, Loaded, PlanError};
use flowloom_verifier::{Proof, VerifyError};
use serde::Serialize;
use serde_json::json;

use crate::args::{DeviceArgs, ExplainArgs, ScheduleName};
use crate::check::source::make_lines_relative;
use crate::failure::{Failure, with_causes};
use crate::files::Files;
use crate::output::{print, print_json, warn};
use lookups::Lookups;

pub(crate) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    Files::default().reads("the function", [&args.function.path]).writes("--html", args.html.as_ref()).check()?;
    let loaded = args.function.load()?;
    warn(loaded.warnings());
    let is_by_blocks = args.pipeline.schedule == ScheduleName::Blocks;
    // The program that runs on a CPU; that of pipelines differs in the parser.
    let mut run = loaded.program()?.as_ref().clone();
    make_lines_relative(&mut run.lines);
    let run = Loaded::of_program(run);
    if args.lookups {
        let lookups = Lookups::of(&run)?;
        return if args.json { print_json(&json!({ "machine_code": lookups.json() })) } else { print(&lookups.text()) };
    }
    // The papers' tool has no parser of its own.
    let program = if is_by_blocks { loaded.program()? } else { loaded.pipeline_program()? };
    let mut program = program.as_ref().clone();
    make_lines_relative(&mut program.lines);
    let loaded = Loaded::of_program(program);
    if is_by_blocks {
        return explain_blocks(&loaded, args);
    }
    let plan = plan(&loaded, &args.pipeline.options()?, args.json)?;
    let fit = fit(&plan, &args.device, args.json)?;
    // These options are about the plan's own way to keep maps consistent.
    let asked = [(!args.pipeline.scheme.is_empty(), "--scheme"), (args.pipeline.queues.is_some(), "--queues")];
    let rendering = match asked.iter().find(|(is_asked, _)| *is_asked) {
        Some((_, option)) => Err(format!("{option} is about the plan")),
        None => loaded.rendered(&plan).map(|pipeline| rendering(&pipeline)).map_err(|error| with_causes(&error)),
    };
    let explanation = Explanation::of(&*loaded.program()?, &plan)
        .with_device(fit)
        .with_rendering(rendering.as_ref().map_err(String::as_str));
    let lookups = Lookups::of(&run)?;
    let text = || format!("{}\n{}", explanation.text(args.verbose), lookups.text());
    show(args, &explanation, Some(&lookups), || explanation.html(), text)
}

/// The figures of a rendered pipeline.
fn rendering(pipeline: &Pipeline) -> Rendering {
    let core = &pipeline.core;
    let waits = core.control.queue.iter().flat_map(|queue| &queue.holds);
    let hold = |wait: &flowloom_rtl::control::Wait| {
        let map = core.maps.iter().find(|map| map.map == wait.map)?;
        Some((map.name.clone(), wait.cycles + 1))
    };
    Rendering {
        framer: Pipeline::FRAMER_CYCLES,
        emitter: pipeline.emitter_cycles(),
        late_results: core.latency_cycles - core.stages,
        holds: waits.filter_map(hold).collect(),
    }
}

/// Writes the HTML page if requested, then prints JSON or text.
fn show(
    args: &ExplainArgs,
    explanation: &impl Serialize,
    lookups: Option<&Lookups>,
    html: impl FnOnce() -> String,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if let Some(path) = &args.html {
        fs::write(path, html()).map_err(|e| Failure::file("written", path, &e))?;
    }
    if args.json {
        let mut value = serde_json::to_value(explanation).map_err(|e| Failure::input(&e))?;
        if let Some(lookups) = lookups {
            value["machine_code"] = lookups.json();
        }
        return print_json(&value);
    }
    print(&text())
}

/// Explains the block-by-block layout of the papers, which fixes the scheme of each map.
fn explain_blocks(loaded: &Loaded, args: &ExplainArgs) -> Result<(), Failure> {
    let scheme = args.pipeline.scheme.first().map(|(map, scheme)| format!("--scheme {map}={}", scheme.as_str()));
    let queues = args.pipeline.queues.map(|queues| format!("--queues {queues}"));
    if let Some(option) = scheme.or(queues) {
        return Err(Failure::Input(format!(
            "{option} requires --schedule dataflow: blocks use the schemes of the papers' tool"
        )));
    }
    if let Some(device) = &args.device.device {
        return Err(Failure::Input(format!(
            "--device {device} requires --schedule dataflow: the resources of blocks are not known"
        )));
    }
    let (program, proof) = (loaded.program()?, proof(loaded, args.json)?);
    let explanation = BlockExplanation::of(&program, proof, &args.pipeline.options()?).map_err(|refusal| {
        let message = format!("it cannot be laid out: {refusal}");
        refused(args.json, &Refused::of("blocks", &refusal), message)
    })?;
    show(args, &explanation, None, || explanation.html(), || explanation.text(args.verbose))
}

/// The checked plan of a program.
pub(crate) fn plan(loaded: &Loaded, options: &Options, json: bool) -> Result<Plan, Failure> {
    loaded.plan(options).map_err(|error| plan_failure(loaded, error, json))
}

/// What a plan uses of the device; none if any will do. A plan that does not fit is a finding.
pub(crate) fn fit(plan: &Plan, args: &DeviceArgs, json: bool) -> Result<Option<Fit>, Failure> {
    let Some(device) = args.device() else { return Ok(None) };
    let fit = Resources::of(plan).fit(device);
    let lacking = fit.lacking();
    if lacking.is_empty() {
        return Ok(Some(fit));
    }
    let program = &plan.dataflow.name;
    let others: Vec<&str> = DEVICES
        .iter()
        .filter(|other| Resources::of(plan).fit(other).lacking().is_empty())
        .map(|other| other.name)
        .collect();
    let help = match others.is_empty() {
        true => "it fits no known device; --device none plans without limits".to_owned(),
        false => format!("it fits {}; --device none plans without limits", others.join(" and ")),
    };
    let what = lacking.join("\n");
    let message = format!(
        "no pipeline: program `{program}` does not fit {} ({})\n  {}\n  {help}",
        fit.name,
        fit.about,
        lacking.join("\n  ")
    );
    let details = Refused { code: "does-not-fit", program, insn: None, line: None, help: Some(&help), what };
    Err(refused(json, &details, message))
}

/// Failure for a program without a checked plan.
pub(crate) fn plan_failure(loaded: &Loaded, error: PlanError, json: bool) -> Failure {
    match error {
        PlanError::Analysis(error) => proof_failure(loaded.name(), error, json),
        PlanError::Refused(refusal) => no_plan(&refusal, json),
        PlanError::Faulty { plan, faults } => match loaded.pipeline_program() {
            Ok(program) => faulty(&program, &plan, &faults, json),
            Err(error) => error.into(),
        },
    }
}

/// Failure for a plan in which the checker finds faults: a finding.
fn faulty(program: &Program, plan: &Plan, faults: &[Fault], json: bool) -> Failure {
    let lines: Vec<String> = faults.iter().map(|fault| fault_text(program, plan, fault)).collect();
    let message = format!(
        "no pipeline: program `{}` at {} MHz\n{}",
        program.name,
        plan.options.target.clock_mhz,
        lines.join("\n")
    );
    let is_clock = faults.iter().all(|fault| matches!(fault, Fault::TooDeep { .. }));
    let code = if is_clock { "too-deep" } else { "planner-fault" };
    let details = Refused { code, program: &program.name, insn: None, line: None, help: None, what: lines.join("\n") };
    refused(json, &details, message)
}

/// A fault of a plan: an operation that does not fit a stage by its line; any other is a fault of the planner.
fn fault_text(program: &Program, plan: &Plan, fault: &Fault) -> String {
    let Fault::TooDeep { node, depth, stage } = fault else { return format!("  planner bug: {fault}") };
    let insn = plan.dataflow.graph.ids().nth(*node).map(|id| plan.dataflow.graph.insn(id));
    let place = insn.and_then(|insn| {
        let line = program.line_of(insn).filter(|line| line.line > 0)?;
        Some(format!("instruction {insn}, {line}"))
    });
    format!(
        "  {}: takes {:.1} levels, expected at most {:.1}; choose a slower clock",
        place.or_else(|| insn.map(|insn| format!("instruction {insn}"))).unwrap_or_default(),
        f64::from(*depth) / 10.0,
        f64::from(*stage) / 10.0
    )
}

/// Failure for a program without a plan: a finding, with `--json` also printed as a JSON object.
pub(crate) fn no_plan(refusal: &Refusal, json: bool) -> Failure {
    let message = format!("no pipeline: {refusal}");
    if let Reason::NoMap { .. } = refusal.reason {
        // The user named the map, so it is a usage error.
        return Failure::Input(message);
    }
    refused(json, &Refused::of(refusal.reason.code(), refusal), message)
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

impl<'a> Refused<'a> {
    fn of<R: Explained + Display>(code: &'a str, refusal: &'a flowloom_isa::Refusal<R>) -> Refused<'a> {
        let (program, line, help) = (&refusal.program, refusal.line.as_ref(), refusal.reason.help());
        Refused { code, program, insn: refusal.insn, line, help, what: refusal.reason.to_string() }
    }
}

fn refused(json: bool, refused: &Refused<'_>, message: String) -> Failure {
    if !json {
        return Failure::Found(message);
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
    print_json(&value).err().unwrap_or(Failure::Found(message))
}

/// Verifies a program. Pipelines are built from safe programs only.
pub(crate) fn proof(loaded: &Loaded, json: bool) -> Result<&Proof, Failure> {
    loaded.proof().map_err(|error| proof_failure(loaded.name(), error, json))
}

/// The same for the program of pipelines.
pub(crate) fn pipeline_proof(loaded: &Loaded, json: bool) -> Result<&Proof, Failure> {
    loaded.pipeline_proof().map_err(|error| proof_failure(loaded.name(), error, json))
}

fn proof_failure(program: &str, error: AnalysisError, json: bool) -> Failure {
    let error = match error {
        AnalysisError::Session(error) => return error.into(),
        AnalysisError::NoDataflow(refusal) => return no_plan(&refusal.map(Reason::Dataflow), json),
        AnalysisError::Verifier(error) => error,
    };
    match error {
        VerifyError::Refused(refusal) => {
            let message = format!(
                "`{}` is rejected by the verifier, which a pipeline must pass; `flowloom check -v` shows the path\n{}",
                program,
                refusal.details().trim_end()
            );
            let details = Refused {
                code: "unsafe",
                program,
                insn: Some(refusal.insn),
                line: refusal.line.as_ref(),
                help: refusal.help.as_deref(),
                what: refusal.what.to_string(),
            };
            refused(json, &details, message)
        }
        // A well-formed program that cannot run is a finding too.
        VerifyError::Program(error) => {
            let message = format!("no pipeline: {}", with_causes(&error));
            let details =
                Refused { code: "program", program, insn: None, line: None, help: None, what: with_causes(&error) };
            refused(json, &details, message)
        }
    }
}
