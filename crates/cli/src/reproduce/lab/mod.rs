// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures that are measured on this machine: rates and round-trip times of functions.
//!
//! They have no printed numbers to compare with, only statements of the paper, which are printed beside what was
//! measured. Interfaces are in namespaces of a test bed ([`flowloom_lab`]), which end with the command.

mod flow_rates;
mod live_rates;
mod round_trips;
mod setup;
mod spread;

use std::sync::atomic::AtomicBool;

use flowloom_lab::LabError;
use indicatif::ProgressBar;
use serde_json::{Value as Json, json};

use super::chart::{self, Panel};
use super::experiment::{Experiment, Method};
use crate::args::{LabArgs, LabEngine, ReproduceArgs};
use crate::failure::{Failure, with_causes};
use crate::output::{print, print_json, print_note, progress};
use crate::run::Interrupted;

/// What a figure needs besides its own parameters.
struct Lab<'a> {
    args: &'a ReproduceArgs,
    /// Set by a signal.
    stop: &'a AtomicBool,
    bar: ProgressBar,
    /// Reasons for missing values.
    notes: Vec<String>,
}

/// A measured figure.
struct Figure {
    /// Tables as text, each with its heading.
    tables: String,
    /// What was found, by claim.
    found: Vec<(&'static str, String)>,
    /// The measured values.
    values: Json,
    panels: Vec<Panel>,
    /// True if a value that is judged is out of tolerance.
    is_off: bool,
}

impl Lab<'_> {
    fn options(&self) -> &LabArgs {
        &self.args.lab
    }

    fn rounds(&self) -> u32 {
        self.options().rounds.unwrap_or(5)
    }

    /// The given list, or the default one.
    fn list<T: Copy>(given: &[T], default: &[T]) -> Vec<T> {
        if given.is_empty() { default.to_vec() } else { given.to_vec() }
    }

    /// The engines to measure, of those that the figure has.
    fn engines(&self, known: &[LabEngine]) -> Result<Vec<LabEngine>, Failure> {
        let given = &self.options().engines;
        if let Some(engine) = given.iter().find(|engine| !known.contains(engine)) {
            let names: Vec<&str> = known.iter().map(|engine| engine.name()).collect();
            return Err(Failure::Input(format!(
                "--engines {}: this figure has no such engine, expected some of {}",
                engine.name(),
                names.join(", ")
            )));
        }
        let is_built = |engine: &LabEngine| *engine != LabEngine::Dpdk || cfg!(feature = "dpdk");
        if let Some(engine) = given.iter().find(|engine| !is_built(engine)) {
            return Err(Failure::Environment(format!(
                "--engines {}: this `flowloom` was built without DPDK; install its headers and libraries \
                 (`libdpdk-dev`) and build with `cargo build --release -p flowloom-cli --features dpdk`",
                engine.name()
            )));
        }
        let mut engines: Vec<LabEngine> = Lab::list(given, known).into_iter().filter(is_built).collect();
        engines.sort_unstable();
        engines.dedup();
        Ok(engines)
    }

    /// Adds a remark, once.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.bar.suspend(|| print_note(&note));
            self.notes.push(note);
        }
    }

    /// Begins a measurement.
    fn step(&self, what: String) {
        self.bar.set_message(what);
        self.bar.inc(1);
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Failure {
        match error {
            LabError::Interrupted => Failure::Interrupted,
            error if error.is_environment() => Failure::Environment(with_causes(&error)),
            error => Failure::Input(with_causes(&error)),
        }
    }
}

/// Measures a figure, prints it and draws it.
pub(super) fn run(experiment: &Experiment, args: &ReproduceArgs) -> Result<(), Failure> {
    let interrupted = Interrupted::hold()?;
    let bar = progress("measurements", Some(0));
    let mut lab = Lab { args, stop: interrupted.flag(), bar, notes: Vec::new() };
    let figure = match experiment.method {
        Method::FlowRates => flow_rates::measure(&mut lab),
        Method::LiveRates => live_rates::measure(&mut lab),
        _ => round_trips::measure(&mut lab),
    };
    flowloom_lab::pinning_note().into_iter().for_each(|note| lab.note(note));
    lab.bar.finish_and_clear();
    let figure = figure?;
    let claims: Vec<(&str, &str, &str)> = (experiment.claims.iter())
        .map(|claim| {
            let found = figure.found.iter().find(|(name, _)| *name == claim.name);
            (claim.name.as_str(), claim.text.as_str(), found.map_or("not measured", |(_, found)| found.as_str()))
        })
        .collect();
    if args.json {
        let claims = claims.iter().map(|(name, paper, ours)| json!({ "name": name, "paper": paper, "ours": ours }));
        print_json(&json!({
            "id": experiment.id, "title": experiment.title, "source": experiment.source,
            "method": experiment.how.trim(), "processor": processor(), "rounds": lab.rounds(),
            "values": figure.values, "claims": claims.collect::<Json>(), "notes": lab.notes, "is_off": figure.is_off,
        }))?;
    } else {
        let claims = claims.iter().map(|(_, paper, ours)| format!("\npaper: {paper}\n ours: {ours}\n"));
        print(&format!(
            "{}: {}\npaper: {}\nmethod: {}\n{}, {} rounds: medians, and quartiles in brackets\n{}{}",
            experiment.id,
            experiment.title,
            experiment.source,
            experiment.how.trim(),
            processor(),
            lab.rounds(),
            figure.tables,
            claims.collect::<String>()
        ))?;
    }
    if let Some(path) = &args.output {
        chart::write(path, &format!("{}: {}", experiment.id, experiment.title), &figure.panels)?;
    }
    if figure.is_off { Err(Failure::Finding) } else { Ok(()) }
}

/// The name of the processor, and the load of the last minute: medians hide load, as long as it is not too high.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    let name = line.map_or("unknown processor", |line| line.trim_start_matches(['\t', ' ', ':']));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown").to_owned();
    format!("{name}, {cpus} cores, load average {load}")
}
