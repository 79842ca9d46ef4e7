// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notes on a plan: calls that the pipeline omits, tables that the host fills.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Effect, Kind};
use flowloom_isa::Program;
use flowloom_isa::helpers;
use flowloom_isa::insn::helper;

use crate::numbers::counted;
use flowloom_plan::Plan;

/// The notes, a sentence each.
pub(super) fn notes(program: &Program, plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    let mut calls: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for call in &plan.omitted {
        calls.entry(call.helper).or_default().push(call.insn);
    }
    for (number, insns) in calls {
        let are = if insns.len() == 1 { "is" } else { "are" };
        let count = counted(insns.len(), "call");
        notes.push(format!(
            "{count} of {} {are} omitted in hardware: {}",
            helpers::display_name(number),
            places(program, &insns)
        ));
    }
    let graph = &plan.dataflow.graph;
    let calls_by_helper: BTreeMap<i32, Vec<usize>> =
        plan.dataflow.used().into_iter().fold(BTreeMap::new(), |mut all: BTreeMap<i32, Vec<usize>>, id| {
            if let Kind::Effect(Effect::Call { helper, .. }) = graph.node(id).kind {
                all.entry(helper).or_default().push(graph.insn(id));
            }
            all
        });
    for (number, insns) in calls_by_helper {
        let host = match number {
            helper::FIB_LOOKUP => "the host fills the table of routes and neighbours".to_owned(),
            helper::CHECK_MTU => "the host fills the table of the ports' MTUs".to_owned(),
            helper::TAIL_CALL => {
                let programs: Vec<String> =
                    (1..).zip(program.siblings.iter()).map(|(at, other)| format!("{at} `{}`", other.name)).collect();
                format!(
                    "the host fills the table of programs: 0 means none, and the caller continues, {}",
                    programs.join(", ")
                )
            }
            _ => continue,
        };
        notes.push(format!("{}: {host}; {}", helpers::display_name(number), places(program, &insns)));
    }
    notes
}

/// `prog.c lines 10, 12`, or the instructions if lines are unknown.
fn places(program: &Program, insns: &[usize]) -> String {
    let lines: Option<BTreeSet<(&str, u32)>> = insns
        .iter()
        .map(|insn| program.line_of(*insn).filter(|line| line.line > 0).map(|line| (&*line.file, line.line)))
        .collect();
    match lines.filter(|lines| !lines.is_empty()) {
        Some(lines) => {
            let lines: Vec<String> = lines
                .into_iter()
                .map(|(file, line)| format!("{}:{line}", file.rsplit('/').next().unwrap_or(file)))
                .collect();
            lines.join(", ")
        }
        None => {
            let insns: BTreeSet<usize> = insns.iter().copied().collect();
            let insns: Vec<String> = insns.into_iter().map(|insn| format!("instruction {insn}")).collect();
            insns.join(", ")
        }
    }
}
