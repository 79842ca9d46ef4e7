// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Renders a schedule as text.

use std::fmt::Write as _;

use flowloom_isa::Program;
use flowloom_isa::op::Op;
use flowloom_verifier::MapId;

use super::{Carried, Region, Schedule, SparseReason, trim};

impl Schedule {
    /// The text of a step.
    pub fn text(&self, program: &Program, step: usize) -> String {
        let step = &self.steps[step].step;
        let mov = step.fused.and_then(|mov| Op::decode(&program.insns, mov).ok());
        trim::text(step, mov, &program.maps)
    }

    /// Renders all stages with their instructions and the state that they carry.
    pub fn render(&self, program: &Program) -> String {
        let mut text = String::new();
        let line = |text: &mut String, words: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", words.trim_end());
        };
        for (number, stage) in self.stages.iter().enumerate() {
            let first = number == 0 || self.stages[number - 1].block != stage.block;
            if first && number > 0 {
                line(&mut text, String::new());
            }
            let carried = format!("{:>3}  {}", number + 1, carries(&stage.carried));
            if stage.begins.is_empty() {
                line(&mut text, format!("{carried:32}  ..."));
            }
            for (place, step) in stage.begins.iter().enumerate() {
                let head = if place == 0 { carried.as_str() } else { "" };
                let insn = self.steps[*step].step.insn;
                let source = program.line_of(insn).filter(|line| line.line > 0);
                let source = source.map(|line| format!("{}:{}", line.file, line.line)).unwrap_or_default();
                line(&mut text, format!("{head:32}  {insn:>4}: {:40} {source}", self.text(program, *step)));
            }
        }
        text
    }

    /// Lists the stages with fewer than two instructions, one per line, with reasons.
    pub fn explain(&self, program: &Program) -> String {
        let mut text = String::new();
        for sparse in self.sparse_stages() {
            let what = |step: usize| format!("{}: {}", self.steps[step].step.insn, self.text(program, step));
            let why = match sparse.reason {
                SparseReason::OnlyInstruction => "the only instruction of its block".to_owned(),
                SparseReason::HeadOfChain => "the other instructions of its block depend on it".to_owned(),
                SparseReason::DependsOn(after) => {
                    format!("depends on `{}` ({})", what(after.step), named(program, after.region))
                }
                SparseReason::CallInProgress(call) => format!("`{}` is in progress", what(call)),
            };
            let step = sparse.step.map_or_else(|| "nothing".to_owned(), |step| format!("`{}`", what(step)));
            let _ = writeln!(text, "stage {:>3}: {step}: {why}", sparse.stage + 1);
        }
        text
    }
}

/// Name of a region, with the name of its map.
fn named(program: &Program, region: Region) -> String {
    let (of, map) = match region {
        Region::Value(MapId::Of(map)) => ("", map),
        Region::Keys(MapId::Of(map)) => ("keys of ", map),
        _ => return region.to_string(),
    };
    let name = program.maps.get(map as usize).map_or("?", |def| def.name.as_str());
    format!("{of}map `{name}`")
}

/// `r1 r2, stack 4, packet 14`.
fn carries(carried: &Carried) -> String {
    let mut parts = Vec::new();
    if !carried.registers.is_empty() {
        parts.push(carried.registers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    }
    for (name, bytes) in [("stack", carried.stack_bytes), ("packet", carried.packet_bytes)] {
        if bytes > 0 {
            parts.push(format!("{name} {bytes}"));
        }
    }
    parts.join(", ")
}
