// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program check before a run, and decoding.
//!
//! After it: every slot of the code decodes, jumps and calls lead to instructions of the same function or to the
//! beginning of one, no function falls off its end, `r10` is never written, every map and helper referred to exists,
//! every map can be created. Not checked: whatever depends on values, which becomes a fault at run time.

mod help;
mod maps;

use std::collections::BTreeSet;

use crate::helpers;
use crate::map_kind::MapKind;
use crate::op::{DecodeError, Op, Reg};
use crate::program::{MapDef, Program};
use crate::unresolved::Reference;

/// The longest program that the kernel accepts, in slots.
const MAX_SLOTS: usize = 1_000_000;

/// A program that cannot run, with all findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramError {
    /// Its section.
    pub section: String,
    /// The findings, by instruction; never empty.
    pub findings: Vec<Finding>,
}

impl std::fmt::Display for ProgramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, finding) in self.findings.iter().enumerate() {
            write!(f, "{}section `{}`, {finding}", if i == 0 { "" } else { "\n" }, self.section)?;
        }
        Ok(())
    }
}

impl std::error::Error for ProgramError {}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The slot, if it concerns one.
    pub insn: Option<usize>,
    /// `file:line` of the instruction's source, if known.
    pub source: Option<String>,
    /// The flaw.
    pub flaw: Flaw,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.insn, &self.source) {
            (Some(insn), Some(source)) => write!(f, "instruction {insn} ({source}): {}", self.flaw),
            (Some(insn), None) => write!(f, "instruction {insn}: {}", self.flaw),
            _ => write!(f, "{}", self.flaw),
        }
    }
}

/// Flaws of programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// The program is empty or too long.
    #[error("found {found} instruction slots, expected 1 to {MAX_SLOTS}")]
    Length {
        /// The number of slots.
        found: usize,
    },
    /// The slot is not an instruction.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// An instruction of the standard that has no meaning here.
    #[error("found {found}, expected {expected}")]
    Unsupported {
        /// The instruction, in words.
        found: &'static str,
        /// What was expected.
        expected: &'static str,
    },
    /// A jump or call out of the program or into the middle of a 64-bit load.
    #[error("jump to slot {target}, expected the first slot of an instruction below {slots}")]
    Target {
        /// The target.
        target: i64,
        /// The length of the program.
        slots: usize,
    },
    /// A jump into another function.
    #[error("jump to slot {target}, expected one within the function, {start} to {last}")]
    OtherFunction {
        /// The target.
        target: usize,
        /// The first slot of the function.
        start: usize,
        /// Its last slot.
        last: usize,
    },
    /// A function ends without `exit` or `goto`.
    #[error("the function beginning at slot {start} falls off its end here, expected `exit` or `goto`")]
    FallsOff {
        /// The first slot of the function.
        start: usize,
    },
    /// A write to the frame pointer.
    #[error("found a write to `r10`, expected one to `r0` to `r9`")]
    WritesFramePointer,
    /// A map index out of range.
    #[error("map {found} does not exist, expected an index below {maps}")]
    NoSuchMap {
        /// The index.
        found: i32,
        /// The number of maps.
        maps: usize,
    },
    /// An address in a map value without such an address.
    #[error("address of byte {off} in map `{map}`, expected {expected}")]
    NoSuchValue {
        /// The name of the map.
        map: String,
        /// The offset.
        off: u32,
        /// What was expected.
        expected: String,
    },
    /// An unsupported helper.
    #[error("helper {number}{name} is not supported")]
    Helper {
        /// Its number.
        number: i32,
        /// Its name in parentheses, if it has one.
        name: String,
    },
    /// An unresolved reference.
    #[error("{0}, which is not supported")]
    Unresolved(Reference),
    /// A map that cannot be created.
    #[error("map `{map}`: {what} is {found}, expected {expected}")]
    Map {
        /// Its name.
        map: String,
        /// The property.
        what: &'static str,
        /// Its value.
        found: String,
        /// What was expected.
        expected: String,
    },
}

/// Decoded code by slot: an instruction, or `None` for the second half of the one before it.
pub type Code = Vec<Option<Op>>;

/// Checks and decodes a program that may call the helpers of packet programs ([`helpers::HELPERS`]).
///
/// # Errors
/// All findings.
pub fn decoded(program: &Program) -> Result<Code, ProgramError> {
    check(program, &|number| helpers::by_number(number).is_some())
}

/// Checks and decodes a program that may call the helpers that `can_call` accepts.
///
/// # Errors
/// All findings.
pub fn check(program: &Program, can_call: &dyn Fn(i32) -> bool) -> Result<Code, ProgramError> {
    let mut check = Check { program, can_call, findings: Vec::new() };
    for unresolved in &program.unresolved {
        check.finding(unresolved.insn, Flaw::Unresolved(unresolved.reference.clone()));
    }
    check.maps();
    let code = check.code();
    check.findings.sort_by_key(|finding| finding.insn);
    match check.findings.is_empty() {
        true => Ok(code),
        false => Err(ProgramError { section: program.section.clone(), findings: check.findings }),
    }
}

struct Check<'p> {
    program: &'p Program,
    can_call: &'p dyn Fn(i32) -> bool,
    findings: Vec<Finding>,
}

impl<'p> Check<'p> {
    fn finding(&mut self, insn: impl Into<Option<usize>>, flaw: impl Into<Flaw>) {
        let insn = insn.into();
        let line = insn.and_then(|insn| self.program.line_of(insn));
        let source = line.map(|line| format!("{}:{}", line.file, line.line));
        self.findings.push(Finding { insn, source, flaw: flaw.into() });
    }

    fn code(&mut self) -> Code {
        let insns = &self.program.insns;
        if insns.is_empty() || insns.len() > MAX_SLOTS {
            self.finding(None, Flaw::Length { found: insns.len() });
            return Vec::new();
        }
        let mut code: Code = vec![None; insns.len()];
        let mut undecoded = BTreeSet::new();
        let mut at = 0;
        while at < insns.len() {
            match Op::decode(insns, at) {
                Ok(op) => {
                    code[at] = Some(op);
                    at += op.slots();
                }
                Err(error) => {
                    self.finding(at, error);
                    undecoded.insert(at);
                    // The second half of an invalid load is not another finding.
                    let is_pair = insns[at].is_wide() && insns.get(at + 1).is_some_and(|next| next.code == 0);
                    at += if is_pair { 2 } else { 1 };
                }
            }
        }
        let starts = self.functions(&code, &undecoded);
        let unresolved: BTreeSet<usize> = self.program.unresolved.iter().map(|unresolved| unresolved.insn).collect();
        for (at, op) in code.iter().enumerate() {
            if let Some(op) = op {
                // The findings of an instruction with an unresolved reference are complete.
                if !unresolved.contains(&at) {
                    self.instruction(at, *op);
                }
                self.jump(at, *op, &code, &undecoded, &starts);
            }
        }
        self.ends(&code, &undecoded, &starts);
        code
    }

    /// The target of a jump or call, if an instruction begins there.
    fn target(&self, at: usize, op: Op, code: &Code, undecoded: &BTreeSet<usize>) -> Option<Result<usize, i64>> {
        let target = at as i64 + 1 + op.distance()?;
        let begins = |t: &usize| code.get(*t).is_some_and(Option::is_some) || undecoded.contains(t);
        Some(usize::try_from(target).ok().filter(begins).ok_or(target))
    }

    /// The starts of functions: the entry, and the targets of calls and of function addresses.
    fn functions(&self, code: &Code, undecoded: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut starts = BTreeSet::from([0]);
        for (at, op) in code.iter().enumerate() {
            if let Some(op @ (Op::CallLocal { .. } | Op::LoadFunc { .. })) = op
                && let Some(Ok(target)) = self.target(at, *op, code, undecoded)
            {
                starts.insert(target);
            }
        }
        starts
    }

    fn jump(&mut self, at: usize, op: Op, code: &Code, undecoded: &BTreeSet<usize>, starts: &BTreeSet<usize>) {
        let target = match self.target(at, op, code, undecoded) {
            None => return,
            Some(Ok(target)) => target,
            Some(Err(target)) => return self.finding(at, Flaw::Target { target, slots: code.len() }),
        };
        if matches!(op, Op::CallLocal { .. } | Op::LoadFunc { .. }) {
            return;
        }
        let start = starts.range(..=at).next_back().copied().unwrap_or(0);
        let end = starts.range(at + 1..).next().copied().unwrap_or(code.len());
        if !(start..end).contains(&target) {
            self.finding(at, Flaw::OtherFunction { target, start, last: end - 1 });
        }
    }

    fn ends(&mut self, code: &Code, undecoded: &BTreeSet<usize>, starts: &BTreeSet<usize>) {
        for &start in starts {
            let end = starts.range(start + 1..).next().copied().unwrap_or(code.len());
            let last = (start..end).rev().find(|at| code[*at].is_some() || undecoded.contains(at));
            let Some(last) = last else { continue };
            match code[last] {
                None | Some(Op::Exit | Op::Jump { .. } | Op::JumpLong { .. }) => {}
                Some(_) => self.finding(last, Flaw::FallsOff { start }),
            }
        }
    }

    fn instruction(&mut self, at: usize, op: Op) {
        const ONE_OF_OURS: &str = "a number, or a map, an address in its value or a function of this program";
        if op.writes() == Some(Reg::FP) {
            self.finding(at, Flaw::WritesFramePointer);
        }
        let mut unsupported = |found, expected| self.finding(at, Flaw::Unsupported { found, expected });
        match op {
            Op::LoadPacket { .. } => {
                unsupported("classic packet access", "loads from the packet between `data` and `data_end`")
            }
            Op::LoadVar { .. } => unsupported("a variable of the platform", ONE_OF_OURS),
            Op::LoadMapIdx { .. } | Op::LoadMapIdxValue { .. } => {
                unsupported("a map by its place in a loader's list", ONE_OF_OURS);
            }
            Op::CallKfunc { .. } => {
                unsupported("a call of a kernel function", "a helper or a function of this program")
            }
            Op::Call { helper } if !(self.can_call)(helper) => {
                let name = helpers::name_of(helper).map(|name| format!(" (`{name}`)")).unwrap_or_default();
                self.finding(at, Flaw::Helper { number: helper, name });
            }
            Op::LoadMap { map, .. } => _ = self.map(at, map),
            Op::LoadMapValue { map, off, .. } => {
                let Some(def) = self.map(at, map) else { return };
                let expected = if def.kind != MapKind::Array || def.max_entries != 1 {
                    "an array with one entry".to_owned()
                } else if off >= def.value_bytes {
                    format!("a byte below {}", def.value_bytes)
                } else {
                    return;
                };
                self.finding(at, Flaw::NoSuchValue { map: def.name.clone(), off, expected });
            }
            _ => {}
        }
    }

    fn map(&mut self, at: usize, index: i32) -> Option<&'p MapDef> {
        let maps = &self.program.maps;
        let found = usize::try_from(index).ok().and_then(|index| maps.get(index));
        if found.is_none() {
            self.finding(at, Flaw::NoSuchMap { found: index, maps: maps.len() });
        }
        found
    }
}

#[cfg(test)]
mod tests;
