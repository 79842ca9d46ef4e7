// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows measured by laying out programs block by block.

use std::collections::BTreeMap;
use std::path::Path;

use flowloom_ehdl::{Carried, Schedule, SparseReason, Stage, schedule};
use flowloom_isa::op::Op;
use flowloom_isa::{Program, disasm};
use flowloom_plan::Target;
use serde_json::{Value as Json, json};

use super::experiment::Row;
use super::measured::Measured;
use super::program::program;
use crate::explain::proof;
use crate::failure::Failure;
use crate::output::counted;

/// Lays out the program of a row.
pub(super) fn measure(row: &Row, functions: &Path) -> Result<Measured, Failure> {
    let loaded = program(row, functions)?;
    let (program, proof) = (&*loaded.program()?, proof(&loaded, false)?);
    let schedule = schedule(program, proof, &Target::default()).map_err(|e| Failure::input(&e))?;
    let instructions = proof.insns.iter().filter(|known| known.begins).count();
    let values = BTreeMap::from([
        ("instructions", instructions as f64),
        ("steps", schedule.steps.len() as f64),
        ("blocks", schedule.blocks as f64),
        ("stages", schedule.stages.len() as f64),
        ("max_ilp", schedule.max_ilp() as f64),
        ("average_ilp", schedule.average_ilp()),
        ("busy_ilp", schedule.busy_ilp()),
    ]);
    let sparse = SparseCounts::of(&schedule);
    let fullest = fullest(&schedule);
    let parts = json!({
        "instructions": instructions,
        "bounds_checks": schedule.checks.len(),
        "dropped": schedule.dropped.len(),
        "fused": schedule.steps.iter().filter(|step| step.step.fused.is_some()).count(),
        "laid_out": schedule.steps.len(),
        "blocks": schedule.blocks,
        "stages": schedule.stages.len(),
        "stages_by_instructions": by_instructions(&schedule),
        "alone": {
            "only_one_of_block": sparse.only, "first": sparse.first, "follows": sparse.follows, "waits_for_call": sparse.waits,
        },
        "state": state(&schedule),
        "fullest_stage": {
            "stage": fullest + 1,
            "instructions": schedule.stages.get(fullest).map_or(&[][..], |stage| &stage.begins).iter()
                .map(|step| schedule.text(program, *step)).collect::<Vec<_>>(),
        },
        "alone_by_stage": schedule.explain(program).lines().collect::<Vec<_>>(),
    });
    Ok(Measured {
        values,
        reasons: reasons(program, &schedule, instructions, &sparse, fullest),
        parts,
        ..Measured::default()
    })
}

/// Bytes that stages carry, pruned and unpruned: of the largest stage, and the sum of all.
fn state(schedule: &Schedule) -> Json {
    let of = |bytes: &dyn Fn(&Stage) -> u64| {
        let all = schedule.stages.iter().map(bytes);
        json!({ "largest_bytes": all.clone().max(), "all_bytes": all.sum::<u64>() })
    };
    let packet = schedule.unpruned().packet_bytes;
    // Both prune registers and stack, and keep the packet's frames.
    let sum = |state: &Carried| 8 * state.registers.len() as u64 + state.stack_bytes as u64 + packet as u64;
    let unpruned = schedule.unpruned();
    let unpruned = (8 * unpruned.registers + unpruned.stack_bytes + packet) as u64;
    json!({
        "along_pipeline": of(&|stage| sum(&stage.carried)),
        "along_paths": of(&|stage| sum(&stage.needed)),
        "unpruned": of(&|_| unpruned),
    })
}

/// Number of stages with fewer than two instructions, by reason.
#[derive(Debug, Default)]
struct SparseCounts {
    only: usize,
    first: usize,
    follows: usize,
    waits: usize,
}

impl SparseCounts {
    fn of(schedule: &Schedule) -> SparseCounts {
        let mut counts = SparseCounts::default();
        for sparse in schedule.sparse_stages() {
            *match sparse.reason {
                SparseReason::OnlyInstruction => &mut counts.only,
                SparseReason::HeadOfChain => &mut counts.first,
                SparseReason::DependsOn(_) => &mut counts.follows,
                SparseReason::CallInProgress(_) => &mut counts.waits,
            } += 1;
        }
        counts
    }
}

/// Index of the stage with the most instructions.
fn fullest(schedule: &Schedule) -> usize {
    let most = schedule.max_ilp();
    schedule.stages.iter().position(|stage| stage.begins.len() == most).unwrap_or(0)
}

/// Number of stages with 0, 1, 2, ... instructions.
fn by_instructions(schedule: &Schedule) -> Vec<usize> {
    let mut counts = vec![0; schedule.max_ilp() + 1];
    schedule.stages.iter().for_each(|stage| counts[stage.begins.len()] += 1);
    counts
}

/// Derivation of the values.
fn reasons(
    program: &Program,
    schedule: &Schedule,
    instructions: usize,
    sparse: &SparseCounts,
    fullest: usize,
) -> String {
    let mut text = format!(
        "  {}; {} removed, and {} dead afterwards; {} when unrolled, inlined and fused: {}, {}\n",
        counted(instructions, "instruction"),
        counted(schedule.checks.len(), "bounds check"),
        schedule.dropped.len(),
        schedule.steps.len(),
        counted(schedule.blocks, "block"),
        counted(schedule.stages.len(), "stage"),
    );
    let counts = by_instructions(schedule);
    let counts: Vec<String> = counts.iter().enumerate().map(|(many, stages)| format!("{many}: {stages}")).collect();
    text.push_str(&format!("  stages by instructions: {}\n", counts.join(", ")));
    text.push_str(&format!(
        "  stages with fewer than two: {} the only one of a block, {} first of a chain, {} follow another, {} wait for a call\n",
        sparse.only, sparse.first, sparse.follows, sparse.waits
    ));
    if let Some(stage) = schedule.stages.get(fullest) {
        text.push_str(&format!("  fullest, stage {}:\n", fullest + 1));
        for step in &stage.begins {
            text.push_str(&format!("    {}: {}\n", schedule.steps[*step].step.insn, schedule.text(program, *step)));
        }
    }
    let checks = schedule.checks.iter().filter_map(|at| {
        let op = Op::decode(&program.insns, *at).ok()?;
        Some(format!("    {at}: {}\n", disasm::Text { op, maps: &program.maps }))
    });
    text.push_str("  bounds checks removed:\n");
    text.extend(checks);
    text.push_str("  alone:\n");
    schedule.explain(program).lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    text
}
