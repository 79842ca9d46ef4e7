// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions and source lines with their stages.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use flowloom_isa::{Program, disasm};
use serde::Serialize;

use super::operations::Stage;
use flowloom_plan::Plan;

/// A source line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceLine {
    /// The file, as named by the compiler.
    pub file: String,
    /// The line number, from 1.
    pub line: u32,
    pub text: String,
    /// Its instructions, by their first slot.
    pub instructions: Vec<usize>,
    /// The stages of its operations.
    pub stages: Vec<u32>,
}

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Instruction {
    /// Its first slot.
    pub instruction: usize,
    pub text: String,
    /// Its source line: an index into [`lines`](super::Explanation::lines).
    pub line: Option<usize>,
    /// What it becomes: `operations`, `wires`, or `nothing`.
    pub becomes: &'static str,
    /// Its operations, by their nodes.
    pub operations: Vec<usize>,
    /// The stages in which they begin.
    pub stages: Vec<u32>,
}

/// The texts of the instructions, by their first slot.
pub(super) fn texts(program: &Program) -> BTreeMap<usize, String> {
    let mut at = 0;
    let mut texts = BTreeMap::new();
    while at < program.insns.len() {
        let op = Op::decode(&program.insns, at);
        if let Ok(op) = op {
            texts.insert(at, disasm::Text { op, maps: &program.maps }.to_string());
        }
        at += op.map_or(1, |op| op.slots());
    }
    texts
}

/// The source lines of a program, by file in the order of their first use, then by number.
pub(super) fn lines(program: &Program) -> Vec<SourceLine> {
    let known = || program.lines.iter().filter(|line| line.line > 0);
    let mut files: Vec<&str> = Vec::new();
    for line in known() {
        if !files.contains(&line.file.as_str()) {
            files.push(&line.file);
        }
    }
    let mut found: BTreeMap<(usize, u32), &str> = BTreeMap::new();
    for line in known() {
        let file = files.iter().position(|file| *file == line.file).unwrap_or(0);
        found.entry((file, line.line)).or_insert(&line.text);
    }
    let line = |((file, line), text): ((usize, u32), &str)| SourceLine {
        file: files[file].to_owned(),
        line,
        text: text.trim_end().to_owned(),
        instructions: Vec::new(),
        stages: Vec::new(),
    };
    found.into_iter().map(line).collect()
}

/// The number of operations that were made at calls of `fl_parse`.
pub(super) fn parser_operations(program: &Program, stages: &[Stage]) -> usize {
    let parses = |at: usize| matches!(Op::decode(&program.insns, at), Ok(Op::Call { helper: helper::FL_PARSE }));
    stages.iter().flat_map(|stage| &stage.operations).filter(|operation| parses(operation.instruction)).count()
}

/// The instructions with their operations and stages.
pub(super) fn instructions(program: &Program, plan: &Plan, lines: &[SourceLine], stages: &[Stage]) -> Vec<Instruction> {
    let wired: BTreeSet<usize> = plan.dataflow.used().into_iter().map(|id| plan.dataflow.graph.insn(id)).collect();
    let mut nodes: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
    for operation in stages.iter().flat_map(|stage| &stage.operations) {
        nodes.entry(operation.instruction).or_default().push((operation.node, operation.begins_stage));
    }
    let place = |insn: usize| {
        let line = program.line_of(insn)?;
        lines.iter().position(|own| own.file == line.file && own.line == line.line)
    };
    let instruction = |(at, text): (usize, String)| {
        let own = nodes.remove(&at).unwrap_or_default();
        let stages: BTreeSet<u32> = own.iter().map(|(_, stage)| *stage).collect();
        let becomes = match (own.is_empty(), wired.contains(&at)) {
            (false, _) => "operations",
            (true, true) => "wires",
            (true, false) => "nothing",
        };
        Instruction {
            instruction: at,
            text,
            line: place(at),
            becomes,
            operations: own.iter().map(|(node, _)| *node).collect(),
            stages: stages.into_iter().collect(),
        }
    };
    texts(program).into_iter().map(instruction).collect()
}

/// The lines with their instructions and stages.
pub(super) fn placed(mut lines: Vec<SourceLine>, code: &[Instruction]) -> Vec<SourceLine> {
    for instruction in code {
        let Some(line) = instruction.line.and_then(|line| lines.get_mut(line)) else { continue };
        line.instructions.push(instruction.instruction);
        line.stages.extend(&instruction.stages);
    }
    for line in &mut lines {
        line.stages.sort_unstable();
        line.stages.dedup();
    }
    lines
}
