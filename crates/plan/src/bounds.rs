// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How large a plan may become. Planning is refused by name instead of running on.
//!
//! | bound | of what | what it keeps small |
//! | --- | --- | --- |
//! | [`MAX_NODES`] | nodes of the dataflow, before and after each pass | time of passes and scheduling |
//! | [`MAX_STAGES`] | pipeline stages | register rows, the report |
//! | [`MAX_CARRIED`] | values times the stage boundaries that they cross | liveness, the report's memory |
//!
//! All are counts, so that every machine refuses the same program at the same place.

use flowloom_ir::{Dataflow, Id, Kind};
use serde::Serialize;

use crate::pass::PASSES;
use crate::plan::is_wire;
use crate::refusal::Reason;
use crate::stages::Schedule;
use crate::target::Target;

/// The most nodes of the dataflow.
pub(crate) const MAX_NODES: usize = 200_000;
pub(crate) const MAX_STAGES: u32 = 2_048;
/// The most values in registers, summed over the boundaries between stages.
pub(crate) const MAX_CARRIED: u64 = 4_000_000;

/// The effect of a pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PassCount {
    /// The name.
    pub name: &'static str,
    /// The transformation, in a line.
    pub does: &'static str,
    /// Used nodes before it.
    pub nodes_before: usize,
    /// Used nodes after it.
    pub nodes_after: usize,
}

/// The dataflow after all passes, and the effect of each of them.
///
/// # Errors
/// The instruction of the first node past `MAX_NODES`, before the first pass or after any of them.
pub fn optimized(dataflow: &Dataflow, target: &Target) -> Result<(Dataflow, Vec<PassCount>), (usize, Reason)> {
    nodes_within(dataflow, MAX_NODES)?;
    let (mut dataflow, mut counts) = (dataflow.clone(), Vec::new());
    let mut nodes_before = used_nodes(&dataflow);
    for pass in PASSES {
        dataflow = pass.apply(&dataflow, target);
        nodes_within(&dataflow, MAX_NODES)?;
        let nodes_after = used_nodes(&dataflow);
        counts.push(PassCount { name: pass.name, does: pass.does, nodes_before, nodes_after });
        nodes_before = nodes_after;
    }
    Ok((dataflow, counts))
}

/// The number of used nodes without constants.
fn used_nodes(dataflow: &Dataflow) -> usize {
    let used = dataflow.used().into_iter();
    used.filter(|id| !matches!(dataflow.graph.node(*id).kind, Kind::Const(_))).count()
}

fn nodes_within(dataflow: &Dataflow, most: usize) -> Result<(), (usize, Reason)> {
    match dataflow.graph.ids().nth(most) {
        Some(id) => Err((dataflow.graph.insn(id), Reason::TooManyNodes { found: dataflow.graph.nodes().len(), most })),
        None => Ok(()),
    }
}

/// Refuses a schedule of more stages than [`MAX_STAGES`], at the first node past them.
pub(crate) fn stages_within(schedule: &Schedule, dataflow: &Dataflow) -> Result<(), (Id, Reason)> {
    if schedule.stages <= MAX_STAGES {
        return Ok(());
    }
    let is_behind = |id: &Id| schedule.spans[id.index()].ends.registered() > MAX_STAGES;
    let ids = || dataflow.graph.ids();
    let Some(id) = ids().find(is_behind).or_else(|| ids().next_back()) else { return Ok(()) };
    Err((id, Reason::TooManyStages { found: schedule.stages, most: MAX_STAGES }))
}

/// Refuses a schedule that keeps more values in registers than [`MAX_CARRIED`], at the node that brings the sum past
/// it.
pub(crate) fn carried_within(schedule: &Schedule, dataflow: &Dataflow, most: u64) -> Result<(), (Id, Reason)> {
    let graph = &dataflow.graph;
    let mut last: Vec<u32> = vec![0; graph.nodes().len()];
    for id in dataflow.ending.nodes() {
        last[id.index()] = schedule.stages;
    }
    let mut carried = Vec::with_capacity(graph.nodes().len());
    for id in graph.ids().rev() {
        let node = graph.node(id);
        let span = schedule.spans[id.index()];
        let is_wire = is_wire(node.kind);
        // Wires have no registers: their demand is passed on to their sources.
        let used = match is_wire {
            true => last[id.index()],
            false => schedule.commits.get(&id).copied().unwrap_or(0).max(span.begins.stage),
        };
        for arg in &node.args {
            last[arg.index()] = last[arg.index()].max(used);
        }
        if !is_wire {
            carried.push((id, u64::from(last[id.index()].saturating_sub(span.ends.stage))));
        }
    }
    let found: u64 = carried.iter().map(|(_, boundaries)| boundaries).sum();
    let mut sum = 0;
    for (id, boundaries) in carried.into_iter().rev() {
        sum += boundaries;
        if sum > most {
            return Err((id, Reason::TooManyRegisters { found, most }));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;
    use crate::stages::{Costs, Pins, earliest};

    /// A byte is divided by another; a third one waits for the quotient in registers.
    const WAITS: &str = "program waits
v0 8 @0 byte 0
v1 8 @1 byte 1
v2 8 @2 byte 2
v3 8 @3 div v0 v1
v4 8 @4 add v3 v2
v5 24 @5 const 0x0
v6 32 @5 concat v4 v5
v7 32 @6 const 0x0
v8 1 @6 const 0x0
verdict v6
head v7
tail v7
slow v8
";

    #[test]
    fn oversized_pipelines_are_refused_with_their_instruction() {
        let dataflow: Dataflow = WAITS.parse().unwrap_or_else(|error| panic!("{error}"));
        let nodes = dataflow.graph.nodes().len();
        assert!(nodes_within(&dataflow, nodes).is_ok());
        assert_eq!(nodes_within(&dataflow, 4), Err((4, Reason::TooManyNodes { found: nodes, most: 4 })));
        let target = Target::default();
        let schedule = earliest(&dataflow, &target, &Costs::of(&dataflow, &target, None), &Pins::default());
        let stages = u64::from(schedule.stages);
        assert!(stages > 2, "a division takes several stages");
        // Byte 2 waits for the division; bytes 0 and 1 go into its own registers.
        assert!(carried_within(&schedule, &dataflow, 2 * stages).is_ok());
        let Err((id, why)) = carried_within(&schedule, &dataflow, 1) else { panic!("not refused") };
        assert_eq!(dataflow.graph.insn(id), 2, "{why}");
    }
}
