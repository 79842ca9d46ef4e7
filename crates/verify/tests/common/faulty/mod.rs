// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Injects faults one by one into one engine, to show that the comparison detects them.

mod adapter;
mod model;

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_engine::Datapath;
use flowloom_lower::{LowerOptions, lower};
use flowloom_verify::{Arrival, CompareOptions, ShrinkOptions, Shrunk, Stimulus, StimulusOptions, compare, shrink};

use super::engines;
use adapter::{AdapterFault, Faulty};
pub use model::ModelFault;

/// Number of packets per trace.
const PACKETS: usize = 4000;

/// Result for one fault.
pub struct Found {
    pub engine: &'static str,
    pub fault: String,
    /// The function, and the site where the fault was first detected.
    pub place: String,
    pub shrunk: Option<Shrunk>,
    /// Number of the packet of the trace that detected it, from 1.
    pub at: usize,
}

struct Case {
    function: Arc<Function>,
    packets: Vec<Arrival>,
    options: CompareOptions,
}

/// Makes an engine for a function; for model faults it is the faulty one.
fn engine(name: &str, function: &Arc<Function>) -> Option<Box<dyn Datapath>> {
    if name == "machine" {
        return Some(Box::new(Machine::new(Arc::clone(function))));
    }
    let program = lower(function, &LowerOptions { counters: false, ..LowerOptions::default() }).ok()?;
    engines::targets(&program, name == "kernel").into_iter().find(|(n, _)| *n == name)?.1.ok()
}

fn cases() -> Vec<Case> {
    [super::many_things(), super::knock(), super::big_flow(2)]
        .into_iter()
        .map(|function| {
            let packets = Stimulus::new(Arc::clone(&function), 5, StimulusOptions::of(&function)).take_packets(PACKETS);
            let program = engines::program(&function);
            // A wrong context lives for a few milliseconds: compare often enough to see it.
            let options = CompareOptions { snapshot_every: 50, ..engines::options(&function, &program) };
            Case { function, packets, options }
        })
        .collect()
}

fn try_one(case: &Case, target: &mut dyn Datapath) -> Option<(Shrunk, usize)> {
    let mut machine = Machine::new(Arc::clone(&case.function));
    let report = compare(&mut machine, target, &case.packets, &case.options).expect("engines run");
    let position = report.disagreement?.position.unwrap_or(0);
    let options = ShrinkOptions::default();
    let shrunk =
        shrink(&mut machine, target, &case.packets, &case.options, &options, &mut |_| ()).expect("engines run");
    Some((shrunk?, position + 1))
}

/// Injects every fault into the engine called `name`, each at the first site where a trace detects it.
pub fn inject_all(name: &'static str) -> Vec<Found> {
    let cases = cases();
    let result = |fault: String, found: Option<(String, (Shrunk, usize))>| {
        let Some((place, (shrunk, at))) = found else {
            return Found { engine: name, fault, place: String::new(), shrunk: None, at: 0 };
        };
        Found { engine: name, fault, place, shrunk: Some(shrunk), at }
    };
    let in_model = ModelFault::ALL.iter().map(|fault| {
        let mut places = cases.iter().flat_map(|case| (0..fault.sites(&case.function)).map(move |site| (case, site)));
        let found = places.find_map(|(case, site)| {
            let mut target = engine(name, &Arc::new(fault.apply(&case.function, site)?))?;
            Some((format!("{} {}", case.function.name, site + 1), try_one(case, target.as_mut())?))
        });
        result(fault.name.to_owned(), found)
    });
    let in_adapter = AdapterFault::ALL.into_iter().map(|fault| {
        let found = cases.iter().find_map(|case| {
            let mut inner = engine(name, &case.function)?;
            Some((case.function.name.clone(), try_one(case, &mut Faulty::new(inner.as_mut(), fault))?))
        });
        result(format!("{fault:?}"), found)
    });
    in_model.chain(in_adapter).collect()
}

/// Table of the results, and the faults that were not detected or not shrunk.
pub fn judge(all: &[Found]) -> (String, Vec<String>) {
    let mut table = format!(
        "{:8} {:24} {:14} {:>7} {:24} {:>7} {:>7}\n",
        "engine", "fault", "place", "packet", "seen as", "shrunk", "trials"
    );
    let mut bad = Vec::new();
    for found in all {
        let Some(shrunk) = &found.shrunk else {
            bad.push(format!("{} {} was not found", found.engine, found.fault));
            table.push_str(&format!("{:8} {:24} not found\n", found.engine, found.fault));
            continue;
        };
        let kind = shrunk.report.disagreement.as_ref().map_or(String::new(), |d| d.kind.to_string());
        table.push_str(&format!(
            "{:8} {:24} {:14} {:>7} {:24} {:>7} {:>7}\n",
            found.engine,
            found.fault,
            found.place,
            found.at,
            kind,
            shrunk.packets.len(),
            shrunk.trials
        ));
        if shrunk.packets.len() > 5 || shrunk.report.disagreement.is_none() {
            bad.push(format!("{} {} was shrunk to {} packets", found.engine, found.fault, shrunk.packets.len()));
        }
    }
    (table, bad)
}
