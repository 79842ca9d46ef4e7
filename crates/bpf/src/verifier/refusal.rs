//! Why a program is refused: where, on which path, what was found there and what was expected.

use std::fmt;

use crate::program::LineInfo;

/// What is wrong with an instruction on some path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message says what each field is")]
pub enum Unsafe {
    #[error("`{register}` is read, and was not written on this path")]
    Unwritten { register: String },
    #[error("`{register}` is {found}, expected {expected}")]
    Kind { register: String, found: String, expected: &'static str },
    #[error("{access} of {bytes} bytes at {found}, expected {expected}")]
    Access { access: &'static str, bytes: usize, found: String, expected: String },
    #[error("`{symbol}` on {found}, expected {expected}")]
    Arithmetic { symbol: &'static str, found: String, expected: &'static str },
    #[error("argument {argument} of `{helper}` is {found}, expected {expected}")]
    Argument { helper: &'static str, argument: usize, found: String, expected: String },
    #[error("{what} is taken at instruction {taken} and not given back here")]
    NotGivenBack { what: &'static str, taken: usize },
    #[error("`{what}` while the lock of instruction {taken} is held, expected `spin_unlock` before")]
    Locked { what: String, taken: usize },
    #[error("`{helper}` on {map}, which programs may {expected} only")]
    Sealed { helper: &'static str, map: String, expected: &'static str },
    #[error("a lock is {found}, expected {expected}")]
    Lock { found: &'static str, expected: &'static str },
    #[error("the path comes here again with everything as it was: it goes round for ever")]
    Endless,
    #[error("functions are nested more than {limit} deep")]
    Depth { limit: usize },
    #[error("after {limit} instructions on all paths together there is no end yet")]
    TooLong { limit: u64 },
    #[error("{found} paths wait to be looked at, expected at most {limit}")]
    TooManyPaths { found: usize, limit: usize },
    #[error("a function gives its caller the address of its own stack, which is gone when it returns")]
    ReturnsStack,
    #[error("a callback returns {found}, expected 0 or 1")]
    Callback { found: String },
}

impl Unsafe {
    /// What would help.
    pub fn help(&self) -> Option<&'static str> {
        Some(match self {
            Unsafe::Unwritten { .. } => "give it a value on every path; calls leave nothing in `r1` to `r5`",
            Unsafe::Access { expected, .. } if expected.contains("data_end") => {
                "compare the address behind the last byte with `data_end` first, and leave where it is larger"
            }
            Unsafe::Access { found, .. } if found.contains("may be null") => "compare it with 0 first",
            Unsafe::Access { .. } | Unsafe::Argument { .. } => {
                "bound the offset or the length before: by a comparison, or by `&` with a constant"
            }
            Unsafe::NotGivenBack { .. } => "submit or discard the record, or unlock, on every path",
            Unsafe::Endless | Unsafe::TooLong { .. } => "bound the loop by a constant, or use `bpf_loop`",
            Unsafe::TooManyPaths { .. } => "split the function, or let fewer branches depend on each other",
            Unsafe::Arithmetic { .. } => "add numbers to addresses, and take them away; nothing else",
            Unsafe::Kind { .. }
            | Unsafe::Locked { .. }
            | Unsafe::Lock { .. }
            | Unsafe::Sealed { .. }
            | Unsafe::Depth { .. }
            | Unsafe::ReturnsStack
            | Unsafe::Callback { .. } => return None,
        })
    }
}

/// One branch of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The branch.
    pub insn: usize,
    /// Whether it jumps.
    pub taken: bool,
    /// The source line, where it is known.
    pub line: Option<LineInfo>,
}

/// A program that is not safe, or not seen to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The program.
    pub program: String,
    /// The section it stands in.
    pub section: String,
    /// The instruction.
    pub insn: usize,
    /// The instruction as text.
    pub text: String,
    /// The source line, where it is known.
    pub line: Option<LineInfo>,
    /// What is wrong.
    pub what: Unsafe,
    /// The last branches of the path that leads there.
    pub path: Vec<Turn>,
    /// How many branches came before those.
    pub earlier: usize,
    /// What the registers hold there, by name.
    pub registers: Vec<(String, String)>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program `{}`, section `{}`, instruction {} `{}`", self.program, self.section, self.insn, self.text)?;
        if let Some(line) = &self.line {
            write!(f, " ({}:{}: `{}`)", line.file, line.line, line.text.trim())?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// The path, the registers and what would help, a line each.
    pub fn details(&self) -> String {
        let mut text = String::new();
        if self.earlier > 0 {
            text += &format!("  after {} earlier branches\n", self.earlier);
        }
        for turn in &self.path {
            let way = if turn.taken { "jumps" } else { "falls through" };
            text += &format!("  instruction {} {way}", turn.insn);
            if let Some(line) = &turn.line {
                text += &format!(" ({}:{}: `{}`)", line.file, line.line, line.text.trim());
            }
            text.push('\n');
        }
        for (register, held) in &self.registers {
            text += &format!("  {register} is {held}\n");
        }
        if let Some(help) = self.what.help() {
            text += &format!("  help: {help}\n");
        }
        text
    }
}
