// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs cases and records their coverage.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, EngineError};
use flowloom_isa::{Program, ProgramError};
use flowloom_vm::Trail;
use flowloom_vm::{Interpreter, fib};

use super::FaultingCases;
use super::case::Case;
use crate::arrival::Clock;

/// A conditional jump and whether it was taken.
pub(super) type Edge = (usize, bool);

/// Runs cases on the interpreter and accumulates their coverage.
pub(super) struct Runner {
    pub(super) program: Arc<Program>,
    interp: Interpreter,
    pub(super) routes: Option<fib::Table>,
    /// The constants that `interp` was made with.
    constants: BTreeMap<String, Vec<u8>>,
    pub(super) edges: HashSet<Edge>,
    /// The edges of the last case.
    last: HashSet<Edge>,
    slots: Vec<bool>,
    pub(super) runs: u64,
    /// Instructions executed by earlier interpreters.
    executed: u64,
    /// Maps whose contents can be set, with the length of their values.
    pub(super) value_bytes: BTreeMap<String, usize>,
    /// Number of CPUs of the per-CPU maps.
    per_cpu: BTreeMap<String, u32>,
    /// Faults that stopped programs; a verifier may not have checked them.
    pub(super) faults: BTreeMap<String, FaultingCases>,
    /// Number of states that could not be restored, by reason.
    pub(super) restore_errors: BTreeMap<String, u64>,
}

fn engine(program: Arc<Program>, routes: Option<&fib::Table>) -> Result<Interpreter, ProgramError> {
    let interp = Interpreter::new(program)?.with_profile().with_trail();
    Ok(match routes {
        Some(routes) => interp.with_routes(routes.clone()),
        None => interp,
    })
}

impl Runner {
    pub(super) fn new(program: Arc<Program>, routes: Option<fib::Table>) -> Result<Runner, ProgramError> {
        let interp = engine(Arc::clone(&program), routes.as_ref())?;
        let mut runner = Runner {
            slots: vec![false; program.insns.len()],
            interp,
            program,
            routes,
            constants: BTreeMap::new(),
            edges: HashSet::new(),
            last: HashSet::new(),
            runs: 0,
            executed: 0,
            value_bytes: BTreeMap::new(),
            per_cpu: BTreeMap::new(),
            faults: BTreeMap::new(),
            restore_errors: BTreeMap::new(),
        };
        if let Ok(first) = runner.interp.snapshot() {
            for def in &runner.program.maps {
                if first.maps.contains_key(&def.name) {
                    let cpus = first.per_cpu.get(&def.name).copied().unwrap_or(1).max(1);
                    runner.value_bytes.insert(def.name.clone(), def.value_bytes as usize * cpus as usize);
                }
            }
            runner.per_cpu = first.per_cpu;
        }
        Ok(runner)
    }

    /// Runs a case from its state. Returns true if it took a new edge; `None` where it could not be run to its end.
    /// Calls `see` with the trail of every packet.
    pub(super) fn run(
        &mut self,
        case: &Case,
        mut see: impl FnMut(usize, &Trail),
    ) -> Result<Option<bool>, ProgramError> {
        self.runs += 1;
        if case.constants != self.constants {
            self.collect();
            self.executed += self.interp.executed();
            let program = Arc::new(case.program(&self.program));
            self.interp = engine(program, self.routes.as_ref())?;
            self.constants = case.constants.clone();
        }
        if let Err(error) = self.interp.restore(&case.state) {
            *self.restore_errors.entry(error.to_string()).or_default() += 1;
            return Ok(None);
        }
        self.last.clear();
        let mut is_new = false;
        let mut clock = Clock::new(None);
        for (position, arrival) in case.packets.iter().enumerate() {
            let (now_ns, _) = clock.advance(arrival.time_ns);
            let choices = Choices::seeded(now_ns, case.seed, position as u64);
            let result = self.interp.process(&arrival.packet(), &choices);
            if let Err(error) = result {
                let text = match error {
                    EngineError::Fault { insn, what, .. } => format!("instruction {insn}: {what}"),
                    other => other.to_string(),
                };
                let first = || FaultingCases { times: 0, case: case.clone() };
                self.faults.entry(text).or_insert_with(first).times += 1;
                return Ok(None);
            }
            let Some(trail) = self.interp.trail() else { continue };
            for branch in &trail.branches {
                let edge = (branch.insn, branch.taken);
                if self.last.insert(edge) {
                    is_new |= self.edges.insert(edge);
                }
            }
            see(position, trail);
        }
        Ok(Some(is_new))
    }

    pub(super) fn last_edges(&self) -> &HashSet<Edge> {
        &self.last
    }

    /// Sets in the state of a case the number of CPUs of per-CPU maps.
    pub(super) fn set_per_cpu(&self, case: &mut Case) {
        for (name, cpus) in &self.per_cpu {
            if case.state.maps.contains_key(name) {
                case.state.per_cpu.insert(name.clone(), *cpus);
            }
        }
    }

    /// Number of instructions that all cases executed.
    pub(super) fn executed(&self) -> u64 {
        self.executed + self.interp.executed()
    }

    /// Adds the slots that the current interpreter ran.
    fn collect(&mut self) {
        for (slot, &times) in self.slots.iter_mut().zip(self.interp.profile().unwrap_or_default()) {
            *slot |= times > 0;
        }
    }

    /// For each slot, true if it was run; the second slot of a 64-bit load counts with the first.
    pub(super) fn slots(&mut self) -> &[bool] {
        self.collect();
        for at in 1..self.slots.len() {
            if self.program.insns[at - 1].is_wide() {
                self.slots[at] = self.slots[at - 1];
            }
        }
        &self.slots
    }
}
