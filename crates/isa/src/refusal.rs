// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Refusals: why a program has no form for a target, and where.

use std::fmt;

use crate::{LineInfo, Program};

/// A reason, with advice.
pub trait Explained: fmt::Display {
    /// Advice for the user.
    fn help(&self) -> Option<&'static str>;
}

/// A refusal: the reason and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal<R> {
    /// The name of the program.
    pub program: String,
    /// The index of the instruction, if any.
    pub insn: Option<usize>,
    /// The source line, if known.
    pub line: Option<LineInfo>,
    /// The reason.
    pub reason: R,
}

impl<R> Refusal<R> {
    /// A refusal of a program, at an instruction if the reason has a place.
    pub fn new(program: &Program, insn: Option<usize>, reason: R) -> Refusal<R> {
        let line = insn.and_then(|insn| program.line_of(insn)).filter(|line| line.line > 0).cloned();
        Refusal { program: program.name.clone(), insn, line, reason }
    }

    /// The refusal with its reason converted.
    pub fn map<S>(self, convert: impl FnOnce(R) -> S) -> Refusal<S> {
        Refusal { program: self.program, insn: self.insn, line: self.line, reason: convert(self.reason) }
    }
}

impl<R: Explained> fmt::Display for Refusal<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program `{}`", self.program)?;
        if let Some(insn) = self.insn {
            write!(f, ", instruction {insn}")?;
        }
        if let Some(line) = &self.line {
            write!(f, ", {line}")?;
        }
        write!(f, ": {}", self.reason)?;
        self.reason.help().map_or(Ok(()), |help| write!(f, "; {help}"))
    }
}

impl<R: Explained + fmt::Debug> std::error::Error for Refusal<R> {}
