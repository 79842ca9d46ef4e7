//! A function or program with one choice of parameters, in the engines.

use std::path::Path;
use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_efsm::{Coverage, LowerOptions, Machine, kernel_lacks, lower};
use flowloom_engine::Datapath;
use flowloom_exec::{KernelEngine, Reason};
use flowloom_isa::Program;
use flowloom_verify::scenario::{Played, Scenario, Script, Suite, Tables, play};
use flowloom_vm::Interpreter;

use super::Cell;
use super::lines::Lines;
use crate::args::EngineName;
use crate::compile::{compiled, is_program};
use crate::failure::{Failure, with_causes};
use crate::load::{ELF_MAGIC, pick, source};

/// Why the reference machine does not run programs.
const NO_MACHINE: &str = "the reference machine runs `.efsm` sources; these are held to the interpreter";

/// What scenarios are about.
enum Subject {
    Function(Arc<Function>),
    Program(Arc<Program>, Arc<Tables>),
}

/// A subject in the engines; each lasts for all scenarios that use it.
pub(super) struct Loaded {
    subject: Subject,
    interp: Result<Box<Interpreter>, String>,
    kernel: Result<Box<KernelEngine>, String>,
}

/// What the engine that the others are held to did with a scenario.
pub(super) struct Reference {
    /// `None` where there is no such engine.
    played: Option<Played>,
    /// What the reference machine reached.
    pub(super) coverage: Option<Coverage>,
}

/// What the engines are made of: a function's or program's parameters, and the program's name.
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
    /// Compiles what `bytes` of `path` hold and loads it into `engines`, the kernel where it is available.
    pub(super) fn new(
        path: &Path,
        bytes: &[u8],
        choice: &Choice,
        engines: &[EngineName],
        kernel: &Result<(), Reason>,
    ) -> Result<Loaded, Failure> {
        let is_function = !is_program(path) && !bytes.starts_with(ELF_MAGIC);
        let (subject, program, lacks) = if is_function {
            let (function, _) = source(path, bytes.to_vec(), &choice.params)?;
            let lacks: Vec<String> = kernel_lacks(&function).iter().map(|lack| lack.render(&function)).collect();
            let program = lower(&function, &LowerOptions::default()).map(Arc::new).map_err(|e| with_causes(&e));
            (Subject::Function(function), program, lacks)
        } else {
            let compiled = compiled(path, bytes, &choice.params, None)?;
            let program = Arc::new(pick(&compiled.object, choice.program.as_deref())?.clone());
            let tables = Arc::new(Tables::new(&program, &compiled.shapes));
            (Subject::Program(Arc::clone(&program), tables), Ok(program), Vec::new())
        };
        let interp = program.as_ref().map_err(Clone::clone).and_then(|program| {
            let interp = Interpreter::new(Arc::clone(program)).map_err(|e| with_causes(&e))?;
            Ok(Box::new(if is_function { interp.with_strict_stack() } else { interp.with_profile() }))
        });
        let kernel = match (&program, kernel) {
            _ if !engines.contains(&EngineName::Kernel) => Err(String::new()),
            (Err(error), _) => Err(error.clone()),
            _ if !lacks.is_empty() => Err(lacks.join("; ")),
            (_, Err(missing)) => Err(missing.to_string()),
            (Ok(program), Ok(())) => KernelEngine::load(program).map(Box::new).map_err(|e| with_causes(&e)),
        };
        Ok(Loaded { subject, interp, kernel })
    }

    /// The function's or program's name.
    pub(super) fn name(&self) -> &str {
        match &self.subject {
            Subject::Function(function) => &function.name,
            Subject::Program(program, _) => &program.name,
        }
    }

    /// The function, where it is one in our language.
    pub(super) fn function(&self) -> Option<&Arc<Function>> {
        match &self.subject {
            Subject::Function(function) => Some(function),
            Subject::Program(..) => None,
        }
    }

    /// The scenario, made ready.
    pub(super) fn script(&self, suite: &Suite, scenario: &Scenario) -> Result<Script, Failure> {
        let script = match &self.subject {
            Subject::Function(function) => Script::new(suite, scenario, function),
            Subject::Program(_, tables) => Script::of_program(suite, scenario, tables),
        };
        script.map_err(|errors| Failure::Source(Box::new(errors)))
    }

    /// Plays the script on what the engines are held to: the reference machine, for programs the interpreter.
    pub(super) fn reference(&mut self, script: &Script) -> Result<Reference, Failure> {
        match &self.subject {
            Subject::Function(function) => {
                let mut machine = Machine::new(Arc::clone(function));
                let played = play(script, &mut machine, None).map_err(|e| Failure::input(&e))?;
                Ok(Reference { played: Some(played), coverage: Some(machine.coverage()) })
            }
            Subject::Program(..) => {
                let played = match &mut self.interp {
                    Ok(interp) => Some(play(script, interp.as_mut(), None).map_err(|e| Failure::input(&e))?),
                    Err(_) => None,
                };
                Ok(Reference { played, coverage: None })
            }
        }
    }

    /// What `engine` does with the script.
    pub(super) fn cell(&mut self, engine: EngineName, script: &Script, reference: &Reference) -> Result<Cell, Failure> {
        let is_program = matches!(self.subject, Subject::Program(..));
        let datapath: &mut dyn Datapath = match (engine, &reference.played) {
            (EngineName::Machine, _) if is_program => return Ok(Cell::NotRun(NO_MACHINE.to_owned())),
            (EngineName::Machine, Some(played)) => return Ok(cell(played.clone())),
            (EngineName::Interp, Some(played)) if is_program => return Ok(cell(played.clone())),
            (EngineName::Machine, None) => return Ok(Cell::NotRun(NO_MACHINE.to_owned())),
            (EngineName::Interp, _) => match &mut self.interp {
                Ok(interp) => interp.as_mut(),
                Err(reason) => return Ok(Cell::NotRun(reason.clone())),
            },
            (EngineName::Kernel, _) => match &mut self.kernel {
                Ok(kernel) => kernel.as_mut(),
                Err(reason) => return Ok(Cell::NotRun(reason.clone())),
            },
        };
        play(script, datapath, reference.played.as_ref()).map(cell).map_err(|e| Failure::input(&e))
    }

    /// Adds the lines of a program that all scenarios so far ran.
    pub(super) fn reached(&self, lines: &mut Lines) {
        if let (Subject::Program(program, _), Ok(interp)) = (&self.subject, &self.interp)
            && let Some(hits) = interp.profile()
        {
            lines.add(program, hits);
        }
    }
}

fn cell(played: Played) -> Cell {
    match played.refused {
        Some((line, refusal)) => Cell::NotRun(format!("the packet of line {line} is {refusal}")),
        None if played.mismatches.is_empty() => Cell::Right,
        None => Cell::Wrong(played.mismatches),
    }
}
