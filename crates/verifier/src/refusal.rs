// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Refusals: where, on which path, what was found, what was expected, and a suggestion.

use std::fmt;

use super::expected::Expected;
use flowloom_isa::LineInfo;

/// An unsafe operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of `found` and `expected` say what each field is")]
pub enum Unsafe {
    Unwritten {
        register: String,
    },
    Kind {
        register: String,
        found: String,
        expected: &'static str,
    },
    Access {
        access: &'static str,
        bytes: usize,
        found: String,
        expected: Expected,
    },
    Arithmetic {
        symbol: &'static str,
        found: String,
        expected: Expected,
    },
    Argument {
        helper: &'static str,
        argument: usize,
        found: String,
        expected: Expected,
    },
    NotReleased {
        what: &'static str,
        acquired: usize,
    },
    Locked {
        what: String,
        acquired: usize,
    },
    ReadOnly {
        helper: &'static str,
        map: String,
    },
    Lock {
        found: &'static str,
        expected: &'static str,
    },
    Endless,
    Depth {
        limit: usize,
    },
    TooLong {
        limit: u64,
    },
    TooManyPaths {
        found: usize,
        limit: usize,
    },
    ReturnsStack,
    Callback {
        found: String,
    },
    /// An argument of a global function.
    Global {
        function: String,
        argument: usize,
        name: String,
        found: String,
        expected: Expected,
    },
    /// The return value of a global function.
    Returns {
        function: String,
        found: String,
    },
}

impl Unsafe {
    /// What was found.
    pub fn found(&self) -> String {
        match self {
            Unsafe::Unwritten { register } => format!("`{register}` is read, and was not written on this path"),
            Unsafe::Kind { register, found, .. } => format!("`{register}` is {found}"),
            Unsafe::Access { access, bytes: 1, found, .. } => format!("{access} of 1 byte at {found}"),
            Unsafe::Access { access, bytes, found, .. } => format!("{access} of {bytes} bytes at {found}"),
            Unsafe::Arithmetic { symbol, found, .. } => format!("`{symbol}` on {found}"),
            Unsafe::Argument { helper, argument, found, .. } => format!("argument {argument} of `{helper}` is {found}"),
            Unsafe::NotReleased { what, acquired } => {
                format!("{what} is acquired at instruction {acquired} and not released here")
            }
            Unsafe::Locked { what, acquired } => format!("`{what}` while the lock of instruction {acquired} is held"),
            Unsafe::ReadOnly { helper, map } => format!("`{helper}` on {map}"),
            Unsafe::Lock { found, .. } => format!("a lock is {found}"),
            Unsafe::Endless => "the path returns here in an unchanged state: the loop is endless".to_owned(),
            Unsafe::Depth { limit } => format!("functions are nested more than {limit} deep"),
            Unsafe::TooLong { limit } => format!("not all paths have ended after {limit} instructions in total"),
            Unsafe::TooManyPaths { found, .. } => format!("{found} paths are pending"),
            Unsafe::ReturnsStack => "a function returns an address of its own stack, which becomes invalid".to_owned(),
            Unsafe::Callback { found } => format!("a callback returns {found}"),
            Unsafe::Global { function, argument, name, found, .. } => {
                format!("argument {argument} (`{name}`) of the global function `{function}` is {found}")
            }
            Unsafe::Returns { function, found } => format!("the global function `{function}` returns {found}"),
        }
    }

    /// What was expected.
    pub fn expected(&self) -> String {
        match self {
            Unsafe::Unwritten { .. } => "a value in it".to_owned(),
            Unsafe::Kind { expected, .. } | Unsafe::Lock { expected, .. } => (*expected).to_owned(),
            Unsafe::Access { expected, .. }
            | Unsafe::Arithmetic { expected, .. }
            | Unsafe::Argument { expected, .. }
            | Unsafe::Global { expected, .. } => expected.to_string(),
            Unsafe::NotReleased { what, .. } => format!("{what} to be released on every path"),
            Unsafe::Locked { .. } => "`spin_unlock` before".to_owned(),
            Unsafe::ReadOnly { .. } => "a map that programs may write: this one is read-only for them".to_owned(),
            Unsafe::Endless => "a state that changes in every iteration".to_owned(),
            Unsafe::Depth { limit } => format!("at most {limit}"),
            Unsafe::TooLong { .. } => "an end before that".to_owned(),
            Unsafe::TooManyPaths { limit, .. } => format!("at most {limit}"),
            Unsafe::ReturnsStack => "an address that stays valid, or a number".to_owned(),
            Unsafe::Callback { .. } => "0 or 1".to_owned(),
            Unsafe::Returns { .. } => "a number: a global function is verified by itself".to_owned(),
        }
    }

    /// The register with the unexpected value.
    pub(super) fn register(&self) -> Option<usize> {
        match self {
            Unsafe::Kind { register, .. } => register.strip_prefix('r')?.parse().ok(),
            Unsafe::Argument { argument, .. } => Some(*argument),
            _ => None,
        }
    }

    /// The instruction that acquired what has to be released.
    pub(super) fn acquired(&self) -> Option<usize> {
        match self {
            Unsafe::NotReleased { acquired, .. } | Unsafe::Locked { acquired, .. } => Some(*acquired),
            _ => None,
        }
    }
}

impl fmt::Display for Unsafe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, expected {}", self.found(), self.expected())
    }
}

/// A branch on a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The instruction.
    pub insn: usize,
    /// Its text.
    pub text: String,
    /// Whether it jumps; for a helper with a callback, whether another iteration begins.
    pub taken: bool,
    /// Its source line, if known.
    pub line: Option<LineInfo>,
    /// The source line where the path continues, if known.
    pub to: Option<LineInfo>,
}

/// Branches that repeat on a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leg {
    /// In their order.
    pub turns: Vec<Turn>,
    /// The number of repetitions.
    pub times: usize,
}

/// An earlier instruction that is related to the refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    /// What happened there.
    pub what: &'static str,
    /// The instruction.
    pub insn: usize,
    /// The source line, if known.
    pub line: Option<LineInfo>,
}

/// A program that is unsafe, or cannot be proved safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The name of the program.
    pub program: String,
    /// Its section.
    pub section: String,
    /// The instruction.
    pub insn: usize,
    /// Its text.
    pub text: String,
    /// Its source line, if known.
    pub line: Option<LineInfo>,
    /// The unsafe operation.
    pub what: Unsafe,
    /// A suggestion.
    pub help: Option<String>,
    /// Related earlier instructions: calls that lead there, the acquisition of a resource.
    pub before: Vec<Before>,
    /// The last branches of the path.
    pub path: Vec<Leg>,
    /// The number of branches before those.
    pub earlier: usize,
    /// The contents of the registers, by name.
    pub registers: Vec<(String, String)>,
}

impl Turn {
    /// The direction of the branch, in a word.
    pub fn direction(&self) -> &'static str {
        match (self.text.as_str(), self.taken) {
            ("call tail_call", _) => "ends the function",
            (text, true) if text.starts_with("call") => "calls back",
            (text, false) if text.starts_with("call") => "is done",
            (_, true) => "jumps",
            (_, false) => "falls through",
        }
    }

    /// Whether the source line is the text of the instruction: that of a program in assembler, perhaps with a label as
    /// target.
    fn is_quoted(&self) -> bool {
        let end = self.text.find("goto ").map_or(self.text.len(), |goto| goto + "goto".len());
        self.line.as_ref().is_some_and(|line| line.text.contains(&self.text[..end]))
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = &self.line {
            write!(f, "{line}: ")?;
        }
        write!(f, "instruction {} ", self.insn)?;
        if !self.is_quoted() {
            write!(f, "`{}` ", self.text)?;
        }
        f.write_str(self.direction())?;
        match (&self.to, &self.line) {
            (Some(to), Some(line)) if to.file == line.file => write!(f, ", on to line {}", to.line),
            (Some(to), _) => write!(f, ", on to {}:{}", to.file, to.line),
            (None, _) => Ok(()),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program `{}`, section `{}`, {}: {}", self.program, self.section, self.place(), self.what)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// The instruction and its source line.
    fn place(&self) -> String {
        let line = self.line.as_ref().map_or_else(String::new, |line| format!(", {line}"));
        format!("instruction {} `{}`{line}", self.insn, self.text)
    }

    /// The place, what was found and expected, the suggestion, the path and the registers, a line each.
    pub fn details(&self) -> String {
        let (found, expected) = (self.what.found(), self.what.expected());
        let mut text = format!("where: section `{}`, {}\n", self.section, self.place());
        text += &format!("found: {found}\nexpected: {expected}\n");
        if let Some(help) = &self.help {
            text += &format!("help: {help}\n");
        }
        for before in &self.before {
            let line = before.line.as_ref().map_or_else(String::new, |line| format!(", {line}"));
            text += &format!("{} instruction {}{line}\n", before.what, before.insn);
        }
        text += "path:\n";
        match (self.earlier, self.path.is_empty()) {
            (0, true) => text += "  straight from the start\n",
            (0, false) => {}
            (1, _) => text += "  after one earlier branch\n",
            (earlier, _) => text += &format!("  after {earlier} earlier branches\n"),
        }
        for leg in &self.path {
            let indent = if leg.times > 1 { "    " } else { "  " };
            if leg.times > 1 {
                text += &format!("  {} times in a row:\n", leg.times);
            }
            leg.turns.iter().for_each(|turn| text += &format!("{indent}{turn}\n"));
        }
        text += "registers:\n";
        for (register, held) in &self.registers {
            // It always has the same contents.
            if register != "r10" {
                text += &format!("  {register}: {held}\n");
            }
        }
        text
    }
}
