// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads, explores and compares a program.

use std::path::Path;
use std::sync::Arc;

use flowloom_exec::{ExecError, KernelEngine};
use flowloom_isa::Program;
use flowloom_verify::explore::{Case, ExploreOptions, explore};
use flowloom_verify::{Arrival, CompareOptions, compare, mutated};
use flowloom_vm::{Interpreter, fib};

use super::fitted::{routes, sized, types};
use super::{Came, Row};

/// Packets of each capture: the first 300, and as many spread over the rest.
pub const PACKETS_OF_A_CAPTURE: usize = 300;
/// Number of runs of each case with mutated packets.
const CHANGED: u64 = 12;
/// Size in entries above which the state of maps is compared less often.
const LARGE: u32 = 4096;

/// The XDP programs of an object.
pub fn object(path: &Path, captures: &[(String, Vec<Arrival>)], tries: u64) -> Vec<Row> {
    let name = path.file_stem().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let row = |program: &str, section: &str, came| Row {
        object: name.clone(),
        section: section.to_owned(),
        program: program.to_owned(),
        slots: 0,
        reached: 0,
        gaps: Vec::new(),
        came,
        verified: None,
        kernel_walked: None,
    };
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let object = match flowloom_object::read_with(&bytes, &name, &types) {
        Ok(object) => object,
        Err(error) => return vec![row("", "", Came::Unread(error.to_string()))],
    };
    let unread = object.refused.iter().filter(|refused| refused.section.trim_start_matches('?').starts_with("xdp"));
    let mut rows: Vec<Row> =
        unread.map(|refused| row(&refused.name, &refused.section, Came::Unread(refused.to_string()))).collect();
    for program in object.xdp() {
        let mut one = row(&program.name, &program.section, Came::Refused(String::new()));
        one.slots = program.insns.len();
        try_program(&sized(program), captures, tries, &mut one);
        rows.push(one);
    }
    rows
}

fn try_program(program: &Arc<Program>, captures: &[(String, Vec<Arrival>)], tries: u64, row: &mut Row) {
    if let Err(error) = Interpreter::new(Arc::clone(program)) {
        let reasons: Vec<String> = error.findings.iter().map(ToString::to_string).collect();
        row.came = Came::Refused(reasons.first().cloned().unwrap_or_default());
        return;
    }
    row.verified = Some(match flowloom_verifier::verify(program, &flowloom_verifier::Options::default()) {
        Ok(proof) => Ok(proof.processed),
        Err(error) => Err(error.to_string()),
    });
    // A program is run only if the kernel's verifier accepts it.
    let loaded = KernelEngine::load(program);
    row.kernel_walked = loaded.as_ref().ok().and_then(KernelEngine::walked);
    if let Err(error) = loaded {
        row.came = match &error {
            ExecError::Refused(refused) => Came::NotInKernel(last_line(&refused.to_string())),
            ExecError::Rewrite { source, .. } => Came::Incomparable(source.to_string()),
            other => Came::Differs(format!("the kernel does not take it: {other}")),
        };
        return;
    }
    let samples = captures.iter().flat_map(|(_, packets)| packets.iter().step_by(40).cloned());
    let routes = routes(program);
    let options = ExploreOptions { seed: 1, tries, packets: samples.collect(), routes: routes.clone() };
    let explored = match explore(program, &options) {
        Ok(explored) => explored,
        Err(error) => {
            row.came = Came::Refused(error.to_string());
            return;
        }
    };
    (row.reached, row.gaps) = (explored.share().0, explored.gaps.clone());
    if let Some((fault, stopped)) = explored.faults.iter().next() {
        let times = stopped.times;
        row.came = Came::Differs(format!("the verifier accepted it, the interpreter stopped {times} times: {fault}"));
        return;
    }
    if let Some((misfit, times)) = explored.restore_errors.iter().next() {
        println!("  states did not fit, {times} times: {misfit}");
    }
    let mut packets = 0;
    for (number, case) in explored.cases.iter().enumerate() {
        let mut run = case.packets.clone();
        for round in 0..CHANGED {
            run.extend(mutated(case.packets.clone(), case.seed ^ round));
        }
        // The captures start from the first case's state.
        if number == 0 {
            run.extend(captures.iter().flat_map(|(_, packets)| packets.iter().cloned()));
        }
        match compare_case(program, case, &run, routes.as_ref()) {
            Ok(compared) => packets += compared,
            Err(what) => {
                row.came = Came::Differs(what);
                return;
            }
        }
    }
    row.came = Came::Equal { packets, cases: explored.cases.len() };
}

/// Runs packets on both engines from the state of a case; returns the number of packets compared.
fn compare_case(
    program: &Program,
    case: &Case,
    packets: &[Arrival],
    routes: Option<&fib::Table>,
) -> Result<u64, String> {
    let program = case.program(program);
    let is_large = program.maps.iter().any(|map| map.max_entries > LARGE);
    let mut kernel = KernelEngine::load(&program).map_err(|error| format!("with constants: {error}"))?;
    let interp = Interpreter::new(Arc::new(program)).map_err(|error| error.to_string())?;
    let mut interp = flowloom_proofcheck::checked(interp);
    if let Some(routes) = routes {
        kernel = kernel.with_routes(routes).map_err(|error| error.to_string())?;
        interp = interp.with_routes(routes.clone());
    }
    let options = CompareOptions {
        seed: case.seed,
        snapshot_every: if is_large { 1024 } else { 64 },
        state: case.state.clone(),
        ..CompareOptions::default()
    };
    let report = compare(&mut interp, &mut kernel, packets, &options).map_err(|error| error.to_string())?;
    match report.disagreement {
        None => Ok(report.packets_compared),
        Some(disagreement) => Err(format!("{disagreement}state at first: {}", case.state.to_json())),
    }
}

fn last_line(text: &str) -> String {
    let said = text.lines().map(str::trim).rfind(|line| !line.is_empty() && !line.starts_with("processed "));
    said.unwrap_or("no reason given").to_owned()
}
