// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A function or program with one set of parameters, loaded into the engines.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use flowloom_efsm::Coverage;
use flowloom_efsm::model::Function;
use flowloom_scenario::{Played, Scenario, Script, Suite, Tables, play};
use flowloom_session::engines::{Engine, EngineName, EngineOptions};
use flowloom_session::{ELF_MAGIC, compiled, is_program, pick_program, source};

use super::Cell;
use super::lines::Lines;
use crate::failure::Failure;

/// Reason why the reference machine does not run programs.
const NO_MACHINE: &str = "the reference machine runs `.efsm` sources; these are compared with the interpreter";

/// A function or program loaded into the engines, which are reused by all its scenarios.
pub(super) struct Loaded {
    function: flowloom_session::Loaded,
    /// Maps of a program, for its scenarios.
    tables: Option<Arc<Tables>>,
    /// Engines that run it, and the reasons of those that do not.
    engines: BTreeMap<EngineName, Result<Box<dyn Engine>, String>>,
}

/// Result of a scenario on the reference engine.
pub(super) struct Reference {
    /// `None` if the reference engine is not available.
    played: Option<Played>,
    /// Coverage by the reference machine.
    pub(super) coverage: Option<Coverage>,
}

/// Choice of parameters and of the program name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    params: Vec<(String, String)>,
    program: Option<String>,
}

impl Choice {
    pub(super) fn of(scenario: &Scenario) -> Choice {
        Choice { params: scenario.params().to_vec(), program: scenario.program().map(str::to_owned) }
    }
}

impl Loaded {
    /// Compiles the contents of `path` and loads it into the available ones of `engines`.
    pub(super) fn new(path: &Path, bytes: &[u8], choice: &Choice, engines: &[EngineName]) -> Result<Loaded, Failure> {
        let is_function = !is_program(path) && !bytes.starts_with(ELF_MAGIC);
        let (function, tables) = if is_function {
            let (function, _) = source(path, bytes.to_vec(), &choice.params)?;
            (flowloom_session::Loaded::of_function(function), None)
        } else {
            let compiled = compiled(path, bytes, &choice.params, None)?;
            let program = pick_program(&compiled.object, choice.program.as_deref())?.clone();
            let tables = Tables::new(&program, &compiled.shapes);
            (flowloom_session::Loaded::of_program(program), Some(Arc::new(tables)))
        };
        // Count executed lines of programs.
        let options = EngineOptions { profile: !is_function, compare_proof: true, ..EngineOptions::default() };
        let load = |engine: EngineName| {
            (engine.kind().available)()?;
            if let Some(lacks) = (engine.kind().lacks)(&function) {
                return Err(lacks);
            }
            engine.load(&function, &options).map(|started| started.engine).map_err(|error| error.to_string())
        };
        let reference = EngineName::reference(&function);
        let wanted = EngineName::all().filter(|engine| *engine == reference || engines.contains(engine));
        let engines = wanted.map(|engine| (engine, load(engine))).collect();
        Ok(Loaded { function, tables, engines })
    }

    pub(super) fn name(&self) -> &str {
        self.function.name()
    }

    /// The function, if it is written in our language.
    pub(super) fn function(&self) -> Option<&Arc<Function>> {
        self.function.function()
    }

    pub(super) fn script(&self, suite: &Suite, scenario: &Scenario) -> Result<Script, Failure> {
        let script = match (self.function.function(), &self.tables) {
            (Some(function), _) => Script::new(suite, scenario, function),
            (None, Some(tables)) => Script::of_program(suite, scenario, tables),
            (None, None) => return Err(Failure::Input(format!("`{}` has no tables", self.name()))),
        };
        script.map_err(|errors| Failure::Source(Box::new(errors)))
    }

    /// Plays the script on the reference engine: the reference machine, for programs the interpreter.
    pub(super) fn reference(&mut self, script: &Script) -> Result<Reference, Failure> {
        let name = EngineName::reference(&self.function);
        let Some(Ok(engine)) = self.engines.get_mut(&name) else {
            return Ok(Reference { played: None, coverage: None });
        };
        let played = play(script, engine.as_mut(), None).map_err(|e| Failure::input(&e))?;
        Ok(Reference { played: Some(played), coverage: engine.coverage() })
    }

    /// Plays the script on `engine` and compares it with the reference.
    pub(super) fn cell(&mut self, engine: EngineName, script: &Script, reference: &Reference) -> Result<Cell, Failure> {
        if engine == EngineName::reference(&self.function)
            && let Some(played) = &reference.played
        {
            return Ok(cell(played.clone()));
        }
        match self.engines.get_mut(&engine) {
            _ if engine == EngineName::MACHINE => Ok(Cell::NotRun(NO_MACHINE.to_owned())),
            None => Ok(Cell::NotRun(String::new())),
            Some(Err(reason)) => Ok(Cell::NotRun(reason.clone())),
            Some(Ok(loaded)) => {
                play(script, loaded.as_mut(), reference.played.as_ref()).map(cell).map_err(|e| Failure::input(&e))
            }
        }
    }

    /// Adds the program lines that all scenarios so far executed.
    pub(super) fn reached(&self, lines: &mut Lines) {
        let interp = self.engines.get(&EngineName::INTERP).and_then(|engine| engine.as_ref().ok());
        if let (None, Ok(program), Some(hits)) =
            (self.function(), self.function.program(), interp.and_then(|engine| engine.profile()))
        {
            lines.add(&program, hits);
        }
    }
}

fn cell(played: Played) -> Cell {
    match played.refused {
        Some((line, refusal)) => Cell::NotRun(format!("the packet of line {line} is {refusal}")),
        None if played.mismatches.is_empty() => Cell::Passed,
        None => Cell::Failed(played.mismatches),
    }
}
