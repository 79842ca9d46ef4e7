// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom predict`: predicts the behaviour of a function as a pipeline, on a trace at a rate.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use flowloom_ir::Dataflow;
use flowloom_isa::Program;
use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use flowloom_plan::{MapTiming, Options as PlanOptions, Plan, Scheme, Target, Timing};

use flowloom_predict::{
    Arrivals, Captured, Flows, Keyed, Pace, PredictError, PredictOptions, ReadAhead, Report, Twin, predict as run,
    rendered_timing, shared_maps,
};
use flowloom_rtl::Pipeline;
use flowloom_session::Loaded;
use flowloom_trace::{Traffic, TrafficOptions};
use flowloom_verifier::Proof;
use serde_json::json;

use crate::args::{PredictArgs, schemes};
use crate::explain::{pipeline_proof, plan};
use crate::failure::{Failure, with_causes};
use crate::output::{print, print_json, quoted, warn};
use crate::run::open_input;

/// Default number of generated packets.
const PACKETS: u64 = 1_000_000;
/// Minimum length of a generated packet: its Ethernet header.
const MIN_SNAP_BYTES: u32 = 14;

pub(crate) fn predict(args: &PredictArgs) -> Result<(), Failure> {
    // The argument parser does not require -r if it conflicts with the selected traffic.
    if args.input.port_by.is_some() && args.input.read.is_empty() {
        return Err(Failure::Input("--port-by is for captures, and none is read; name one with -r".to_owned()));
    }
    let schemes = schemes(&args.scheme)?;
    let loaded = args.function.load()?;
    warn(loaded.warnings());
    let (program, proof) = (loaded.pipeline_program()?, pipeline_proof(&loaded, args.json)?);
    let (timing, rendered) = timing(args, &schemes, &loaded)?;
    // With times from a file, only traffic whose keys are computed needs it.
    let dataflow = loaded.dataflow().map_err(|error| Failure::Found(with_causes(&error)));
    let report = match rendered {
        Ok((plan, pipeline)) => pipeline_report(args, (&program, proof), (&plan, &pipeline), &timing)?,
        Err(reason) => {
            let report = report(args, &program, proof, dataflow, &timing)?;
            Report { model_reason: Some(reason), ..report }
        }
    };
    if !args.json {
        return print(&format!("{} on {}: {}", loaded.name(), args.traffic(), report.render()));
    }
    let mut value = json!(report);
    value["function"] = json!(loaded.name());
    value["traffic"] = json!(args.traffic());
    print_json(&value)
}

/// A plan and its rendering, or the reason why the cycles are not those of one.
type Rendered = Result<(Plan, Pipeline), String>;

/// Timing of the pipeline, from a file or from a plan.
fn timing(
    args: &PredictArgs,
    schemes: &BTreeMap<String, Scheme>,
    loaded: &Loaded,
) -> Result<(Timing, Rendered), Failure> {
    let Some(path) = &args.timing else {
        let standard = PlanOptions::default();
        let options = PlanOptions {
            target: args.clock.map_or_else(Target::default, |clock| Target::at(clock.round() as u32)),
            schemes: schemes.clone(),
            queues: args.queues.unwrap_or(standard.queues),
            length_given: args.length_given,
            ..standard
        };
        let plan = plan(loaded, &options, args.json)?;
        let asked = [(!schemes.is_empty(), "--scheme"), (args.queues.is_some(), "--queues")];
        if let Some((_, option)) = asked.iter().find(|(is_asked, _)| *is_asked) {
            return Ok((plan.timing(), Err(format!("{option} is about the plan"))));
        }
        let pipeline = match loaded.rendered(&plan) {
            Ok(pipeline) => pipeline,
            Err(error) => return Ok((plan.timing(), Err(with_causes(&error)))),
        };
        let timing = rendered_timing(&plan.timing(), &pipeline);
        if let Some(refusal) = Twin::refusal(&pipeline) {
            return Ok((timing, Err(refusal.to_string())));
        }
        if args.zipf.or(args.flows).is_some() {
            return Ok((timing, Err("numbers of flows are no packets".to_owned())));
        }
        if args.estimate {
            return Ok((timing, Err("--estimate does not run the program".to_owned())));
        }
        return Ok((timing, Ok((plan, pipeline))));
    };
    let mut timing = read_timing(path)?;
    timing.clock_mhz = args.clock.unwrap_or(timing.clock_mhz);
    for (name, scheme) in schemes {
        map_of(&mut timing, name)?.scheme = *scheme;
    }
    for map in &mut timing.maps {
        map.queues = args.queues.unwrap_or(map.queues);
    }
    Ok((timing, Err("its timing is that of a file".to_owned())))
}

fn read_timing(path: &Path) -> Result<Timing, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e))?;
    serde_json::from_str(&text).map_err(|e| Failure::Input(format!("`{}`: {e}", path.display())))
}

fn map_of<'t>(timing: &'t mut Timing, name: &str) -> Result<&'t mut MapTiming, Failure> {
    let known = quoted(timing.maps.iter().map(|map| &map.name));
    let known = if known.is_empty() { "none".to_owned() } else { known };
    timing.maps.iter_mut().find(|map| map.name == name).ok_or_else(|| {
        Failure::Input(format!("--scheme names `{name}`, which no packet writes; written maps: {known}"))
    })
}

/// Number of packet bytes that a program reads. `None` if it calls `bpf_xdp_load_bytes`, whose reads are not in the
/// proof.
fn snap_bytes(program: &Program, proof: &Proof) -> Option<u32> {
    let loads = Op::Call { helper: helper::XDP_LOAD_BYTES };
    let is_hidden = (0..program.insns.len()).any(|at| Op::decode(&program.insns, at).is_ok_and(|op| op == loads));
    let window = u32::try_from(proof.window()).ok().map(|window| window.max(MIN_SNAP_BYTES));
    window.filter(|_| !is_hidden)
}

/// Runs the selected traffic.
fn report(
    args: &PredictArgs,
    program: &Arc<Program>,
    proof: &Proof,
    dataflow: Result<Arc<Dataflow>, Failure>,
    timing: &Timing,
) -> Result<Report, Failure> {
    let options = PredictOptions { packets: args.input.count, ..PredictOptions::new(args.rate) };
    let failed = |e: PredictError| Failure::input(&e);
    let packets = args.input.count.unwrap_or(PACKETS);
    if let Some(flows) = args.zipf.or(args.flows) {
        if args.rate == Pace::Own {
            return Err(Failure::Input(
                "--rate own takes the times of a capture, and made packets have none: name one with -r, or give a rate"
                    .to_owned(),
            ));
        }
        let exponent = if args.zipf.is_some() { 1.0 } else { 0.0 };
        let mut traffic = Flows::zipf(flows, exponent, timing.maps.len(), packets, args.input.seed);
        // A program without a dataflow has no plan; its timing came from a file.
        let shared = dataflow.map(|dataflow| shared_maps(program, &dataflow, timing)).unwrap_or_default();
        for (map, _) in shared.iter().enumerate().filter(|(_, is_shared)| **is_shared) {
            traffic = traffic.with_shared(map, 0);
        }
        let report = run(timing, &options, &mut traffic).map_err(failed)?;
        return Ok(if args.zipf.is_some() { report.with_formulas(timing, flows.into()) } else { report });
    }
    let dataflow = dataflow?;
    let frames = frames(args, program, proof)?;
    let mut arrivals = Keyed::new(program, &dataflow, timing, !args.estimate, frames).map_err(failed)?;
    let arrivals: &mut dyn Arrivals = &mut arrivals;
    run(timing, &options, arrivals).map_err(failed)
}

/// Runs the selected frames through the twin of the rendered pipeline.
fn pipeline_report(
    args: &PredictArgs,
    (program, proof): (&Arc<Program>, &Proof),
    (plan, pipeline): (&Plan, &Pipeline),
    timing: &Timing,
) -> Result<Report, Failure> {
    let options = PredictOptions { packets: args.input.count, ..PredictOptions::new(args.rate) };
    let mut frames = frames(args, program, proof)?;
    let twin = Twin::new(program, &plan.dataflow, pipeline);
    twin.and_then(|mut twin| twin.predict(timing, &options, &mut frames)).map_err(|error| Failure::input(&error))
}

/// The frames of the selected traffic, which are read ahead.
fn frames(args: &PredictArgs, program: &Program, proof: &Proof) -> Result<ReadAhead, Failure> {
    match &args.profile {
        Some(profile) => {
            let options = TrafficOptions {
                seed: args.input.seed,
                packets: Some(args.input.count.unwrap_or(PACKETS)),
                snap_bytes: snap_bytes(program, proof),
                ..TrafficOptions::new(profile.0)
            };
            Ok(ReadAhead::new(Traffic::new(&options).map_err(|e| Failure::input(&e))?))
        }
        None if args.input.read.is_empty() => Err(Failure::Input(
            "no packets: name a capture with -r, or traffic with --zipf, --flows or --profile".to_owned(),
        )),
        None => Ok(ReadAhead::new(Captured::new(open_input(&args.input)?))),
    }
}
