// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program as the public BPF conformance suites ask for it: on a piece of memory instead of a packet.
//!
//! `r1` is the address of the memory and `r2` its length, both 0 where there is none. What the suites call as helpers
//! is not what a kernel calls so:
//!
//! ```text
//!  0 gather_bytes(a, b, c, d, e)   the low bytes of the five, the first one highest
//!  1 memfrob(at, len)              exclusive or of each byte with 42; gives 0
//!  2 no_op()                       gives 0
//!  3 sqrti(a)                      the square root, cut, by way of a floating-point number
//!  4 strcmp(at, at)                below, equal or above, as -1, 0 or 1
//!  5 unwind(a)                     gives a; where that is 0, the program ends there with 0
//! ```
//!
//! A program that has maps comes from an object and means the kernel's helpers.
//!
//! The stack is strict: what was never written cannot be read.

use std::sync::Arc;

use flowloom_engine::{Choices, EngineError, Snapshot};

use super::Interpreter;
use super::calls::{Helper, Run};
use super::fault::Fault;
use super::memory::{Memory, PLAIN_ADDRESS};
use super::run::Helpers;
use flowloom_isa::op::{AluOp, Op, Operand, Reg, Size, Width};
use flowloom_isa::{MapDef, MapKind, Program, ProgramError};

/// How many instructions a program may take, unless said otherwise: suites wait for programs that never end.
const BUDGET: u64 = 1_000_000;

/// Runs one program on memory.
///
/// ```
/// use std::sync::Arc;
/// use flowloom_isa::{Program, asm};
/// use flowloom_vm::Plugin;
///
/// let insns = asm::assemble("r0 = *(u16 *)(r1 + 0)\nr0 = be16 r0\nr0 += r2\nexit", &[])?;
/// let mut plugin = Plugin::new(Arc::new(Program { insns, ..Program::default() }))?;
/// assert_eq!(plugin.run(&[0x12, 0x30])?, 0x1232);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Plugin(Interpreter);

/// Why a program cannot run, or why it stopped.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The program is invalid.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A fault.
    #[error(transparent)]
    Stopped(#[from] EngineError),
}

impl Plugin {
    /// Checks the program.
    ///
    /// # Errors
    /// All findings, as of [`Interpreter::new`].
    pub fn new(program: Arc<Program>) -> Result<Plugin, PluginError> {
        let helpers = if program.maps.is_empty() { Helpers::only(helpers()) } else { Helpers::of_packets() };
        let interp = Interpreter::with_helpers(program, helpers, 2)?;
        Ok(Plugin(interp.with_strict_stack().with_budget(BUDGET)))
    }

    /// Sets the budget of instructions.
    #[must_use]
    pub fn with_budget(self, instructions: u64) -> Plugin {
        Plugin(self.0.with_budget(instructions))
    }

    /// Runs the program and returns `r0`.
    ///
    /// # Errors
    /// A fault, with the instruction.
    pub fn run(&mut self, memory: &[u8]) -> Result<u64, PluginError> {
        self.0.environment.space.start(&[], 0);
        self.0.environment.space.plain = memory.to_vec();
        let address = if memory.is_empty() { 0 } else { PLAIN_ADDRESS };
        match self.0.call(&[address, memory.len() as u64], &Choices::seeded(0, 0, 0)) {
            Ok(returned) => Ok(returned.r0),
            Err((_, Fault::Unwound)) => Ok(0),
            Err((at, fault)) => Err(self.0.stopped(at, &fault).into()),
        }
    }

    /// The memory after the run.
    pub fn memory(&self) -> &[u8] {
        &self.0.environment.space.plain
    }
}

fn helpers() -> Vec<(i32, Helper<Memory>)> {
    let helper = |number, args, run| (number, Helper { args, run });
    vec![
        helper(0, 5, |_, args| Ok(args.iter().fold(0, |sum, arg| sum << 8 | arg & 0xff))),
        helper(1, 2, memfrob),
        helper(2, 0, |_, _| Ok(0)),
        helper(3, 1, |_, [a, ..]| Ok((a as f64).sqrt() as u64)),
        helper(4, 2, strcmp),
        helper(5, 1, |_, [a, ..]| if a == 0 { Err(Fault::Unwound) } else { Ok(a) }),
    ]
}

/// Byte by byte: the first invalid one stops it, whatever the length.
fn memfrob(run: &mut Run<'_, Memory>, [at, len, ..]: [u64; 5]) -> Result<u64, Fault> {
    for i in 0..len {
        let address = at.wrapping_add(i);
        let byte = run.memory.load(address, Size::B)?;
        run.memory.store(address, Size::B, byte ^ 42)?;
    }
    Ok(0)
}

fn strcmp(run: &mut Run<'_, Memory>, [a, b, ..]: [u64; 5]) -> Result<u64, Fault> {
    for i in 0.. {
        let (a, b) = (run.memory.load(a.wrapping_add(i), Size::B)?, run.memory.load(b.wrapping_add(i), Size::B)?);
        if a != b || a == 0 {
            return Ok(a.cmp(&b) as i64 as u64);
        }
    }
    Ok(0)
}

/// A program on plain memory as an XDP program, for engines that run packets: memory and result are the only entries of
/// two arrays, and the program is a function that a prologue calls.
#[derive(Debug)]
pub struct OnPackets {
    /// The program.
    pub program: Program,
    /// The index of the map of the memory, if there is any.
    pub memory: Option<usize>,
    /// The index of the map of the result.
    pub result: usize,
}

impl OnPackets {
    /// Wraps a program.
    pub fn of(program: &Program, memory: &[u8]) -> OnPackets {
        let mut program = program.clone();
        let code = std::mem::take(&mut program.insns);
        let mut section = |name: &str, initial: &[u8]| {
            program.maps.push(MapDef {
                name: name.to_owned(),
                kind: MapKind::Array,
                key_bytes: 4,
                value_bytes: initial.len() as u32,
                max_entries: 1,
                initial: Some(initial.to_vec()),
                ..MapDef::default()
            });
            program.maps.len() - 1
        };
        let memory_map = (!memory.is_empty()).then(|| section(".data.memory", memory));
        let result = section(".data.result", &[0; 8]);
        let mov = |dst, imm| Op::Alu { width: Width::W64, op: AluOp::Mov, dst, src: Operand::Imm(imm) };
        let [r0, r1, r2] = [Reg::R0, Reg::R1, Reg::R2];
        let first = match memory_map {
            Some(map) => Op::LoadMapValue { dst: r1, map: map as i32, off: 0 },
            None => mov(r1, 0),
        };
        let end = [
            Op::LoadMapValue { dst: r1, map: result as i32, off: 0 },
            Op::Store { size: Size::Dw, base: r1, off: 0, src: Operand::Reg(r0) },
            mov(r0, 2),
            Op::Exit,
        ];
        let distance = end.iter().map(|op| op.slots()).sum::<usize>() as i32;
        let ops = [first, mov(r2, memory.len() as i32), Op::CallLocal { distance }];
        ops.iter().chain(&end).for_each(|op| op.encode(&mut program.insns));
        program.insns.extend(code);
        program.section = "xdp".to_owned();
        OnPackets { program, memory: memory_map, result }
    }

    /// The result of a run, from the state after it.
    pub fn r0(&self, state: &Snapshot) -> Option<u64> {
        let entries = state.maps.get(&self.program.maps[self.result].name)?;
        Some(u64::from_le_bytes(*entries.values().next()?.first_chunk()?))
    }
}
