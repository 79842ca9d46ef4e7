// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stages: operations and effects, each with its position in the stage and in the source.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Id, Kind};
use flowloom_isa::Program;
use serde::Serialize;

use super::code::{self, SourceLine};
use super::numbers::levels;
use super::words;
use flowloom_plan::Plan;

/// A stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    /// The number.
    pub stage: u32,
    /// The operations that begin in it, in program order.
    pub operations: Vec<Operation>,
    /// The effects that commit at its end.
    pub effects: Vec<Commit>,
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Operation {
    /// The node, `v7` in other operations.
    pub node: usize,
    /// The kind: `comparison`, `gate`, `lookup` and so on.
    pub kind: &'static str,
    /// Its symbol: `==`, `+`, `?`.
    pub symbol: &'static str,
    /// The operation.
    pub does: String,
    /// The width of its value; 0 if it has none.
    pub bits: u16,
    /// The stage in which it begins.
    pub begins_stage: u32,
    /// The level of that stage at which it begins.
    pub from_level: f64,
    /// The stage in which its value is ready.
    pub ends_stage: u32,
    /// The level of that stage at which it is ready.
    pub to_level: f64,
    /// The operations whose values it uses.
    pub uses: Vec<usize>,
    /// The map that it accesses.
    pub map: Option<String>,
    /// The instruction that it was made for.
    pub instruction: usize,
    /// The text of the instruction.
    pub text: String,
    /// Its source line: an index into [`lines`](super::Explanation::lines).
    pub line: Option<usize>,
}

/// An effect: a write to a map, or data that is sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Commit {
    pub node: usize,
    /// The operation.
    pub does: String,
    /// The map that it writes.
    pub map: Option<String>,
    /// The predicate; none if the effect always happens.
    pub predicate: Option<String>,
    /// The stage at whose end it commits.
    pub commit_stage: u32,
}

pub(super) struct Describer<'a> {
    pub(super) plan: &'a Plan,
    program: &'a Program,
    texts: BTreeMap<usize, String>,
    places: BTreeMap<(&'a str, u32), usize>,
}

impl<'a> Describer<'a> {
    pub(super) fn new(program: &'a Program, plan: &'a Plan, lines: &[SourceLine]) -> Describer<'a> {
        let mut places = BTreeMap::new();
        for line in program.lines.iter().filter(|line| line.line > 0) {
            let place = lines.iter().position(|own| own.file == line.file && own.line == line.line);
            places.extend(place.map(|place| ((line.file.as_str(), line.line), place)));
        }
        Describer { plan, program, texts: code::texts(program), places }
    }

    pub(super) fn line_of(&self, insn: usize) -> Option<usize> {
        let line = self.program.line_of(insn)?;
        self.places.get(&(line.file.as_str(), line.line)).copied()
    }

    pub(super) fn map_name(&self, map: u32) -> String {
        self.plan.dataflow.maps.get(map as usize).map_or_else(String::new, |map| map.name.clone())
    }

    pub(super) fn map_of(&self, id: Id) -> Option<String> {
        let map = self.plan.dataflow.access(id).and_then(|access| access.map);
        map.map(|map| self.map_name(map))
    }

    pub(super) fn kind(&self, id: Id) -> &'static str {
        words::kind(&self.plan.dataflow, id)
    }

    pub(super) fn does(&self, id: Id) -> String {
        words::does(&self.plan.dataflow, id)
    }

    /// The operations that a node uses, through wires.
    fn uses(&self, id: Id) -> Vec<usize> {
        let graph = &self.plan.dataflow.graph;
        let mut work = graph.node(id).args.clone();
        let mut found = BTreeSet::new();
        while let Some(arg) = work.pop() {
            match self.plan.is_operation(arg) {
                true => _ = found.insert(arg.index()),
                false => work.extend(&graph.node(arg).args),
            }
        }
        found.into_iter().collect()
    }

    fn operation(&self, id: Id) -> Operation {
        let graph = &self.plan.dataflow.graph;
        let span = self.plan.schedule.spans[id.index()];
        let instruction = graph.insn(id);
        Operation {
            node: id.index(),
            kind: self.kind(id),
            symbol: words::symbol(&self.plan.dataflow, id),
            does: self.does(id),
            bits: graph.bits(id),
            begins_stage: span.begins.stage,
            from_level: levels(span.begins.depth),
            ends_stage: span.ends.stage,
            to_level: levels(span.ends.depth),
            uses: self.uses(id),
            map: self.map_of(id),
            instruction,
            text: self.texts.get(&instruction).cloned().unwrap_or_default(),
            line: self.line_of(instruction),
        }
    }

    pub(super) fn effect(&self, id: Id, commit_stage: u32) -> Commit {
        let dataflow = &self.plan.dataflow;
        let predicate = dataflow.predicate(id).filter(|predicate| dataflow.graph.as_const(*predicate) != Some(1));
        Commit {
            node: id.index(),
            does: self.does(id),
            map: self.map_of(id),
            predicate: predicate.map(|predicate| words::operand(dataflow, predicate)),
            commit_stage,
        }
    }

    pub(super) fn stages(&self) -> Vec<Stage> {
        let plan = self.plan;
        let mut stages: Vec<Stage> = (0..plan.schedule.stages)
            .map(|stage| Stage { stage, operations: Vec::new(), effects: Vec::new() })
            .collect();
        for id in plan.dataflow.graph.ids() {
            let begins = plan.schedule.spans[id.index()].begins.stage;
            if let Some(stage) = stages.get_mut(begins as usize).filter(|_| plan.is_operation(id)) {
                stage.operations.push(self.operation(id));
            }
            let is_effect = matches!(plan.dataflow.graph.node(id).kind, Kind::Effect(_));
            let commit = plan.schedule.commits.get(&id).filter(|_| is_effect).copied();
            if let Some((commit, stage)) = commit.and_then(|commit| Some((commit, stages.get_mut(commit as usize)?))) {
                stage.effects.push(self.effect(id, commit));
            }
        }
        stages
    }
}
