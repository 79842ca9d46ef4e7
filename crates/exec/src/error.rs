// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors between a program and its first packet, and of the packet loop.

use flowloom_engine::EngineError;
use flowloom_isa::LineInfo;
use flowloom_object::WriteError;
use flowloom_trace::TraceError;

use crate::kernel::reason::Reason;
use crate::live::error::LiveError;
use crate::rewrite::error::RewriteError;

const LOG_LINES_SHOWN: usize = 40;

/// An error of this crate.
#[allow(missing_docs, reason = "the messages say what each field is")]
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The kernel cannot be used here.
    #[error("engine `kernel` is not available: {0}")]
    Unavailable(#[from] Reason),
    /// The program cannot be rewritten for recorded choices.
    #[error("program `{program}` cannot run in the kernel: {source}{}", place(line.as_deref()))]
    Rewrite { program: String, line: Option<Box<LineInfo>>, source: RewriteError },
    /// The program calls a helper that only Flowloom's own engines have.
    #[error("program `{program}` cannot run in the kernel, which has no helper `{helper}`{}", place(line.as_deref()))]
    Private { program: String, helper: &'static str, line: Option<Box<LineInfo>> },
    /// The program cannot be written as an object.
    #[error("program `{program}` cannot be written as an object: {source}")]
    Object { program: String, source: Box<WriteError> },
    /// Records for user space could not be written.
    #[error("records of the function cannot be written: {0}")]
    Events(std::io::Error),
    /// The kernel's verifier refuses the program.
    #[error(transparent)]
    Refused(Box<Refused>),
    /// The kernel's verifier accepts the program, but not its rewritten form: a bug of Flowloom.
    #[error("the kernel accepts the program, but not its rewritten form: {0}")]
    RefusedRewritten(#[source] Box<Refused>),
    /// The program, its maps or its types could not be loaded.
    #[error("program `{program}`: the kernel could not {action}: {source}{}", suggestion(action, source))]
    Load { program: String, action: String, source: std::io::Error },
    /// The loaded program differs from the intended one.
    #[error("program `{program}` in the kernel: {what} is {found}, expected {expected}")]
    Loaded { program: String, what: String, found: String, expected: String },
    /// The function cannot run on interfaces.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The initial state does not fit, or cannot be set.
    #[error(transparent)]
    State(EngineError),
    /// Input or output failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The engine failed on a packet, a sweep or its state; packets are numbered from 0 in the input.
    #[error("packet {packet}: {source}")]
    Engine { packet: u64, source: EngineError },
}

/// A program that the kernel's verifier refused.
#[derive(Debug, thiserror::Error)]
#[error("the kernel's verifier refuses program `{program}`{}{}: {reason}\n{}", at(*insn), place(line.as_ref()), tail(log))]
pub struct Refused {
    /// The name of the program.
    pub program: String,
    /// The instruction at which the verifier stopped, by its index in the given program.
    pub insn: Option<usize>,
    /// The source line of that instruction.
    pub line: Option<LineInfo>,
    /// The verifier's message.
    pub reason: String,
    /// Its log; lines that begin with `;` are source lines.
    pub log: String,
    /// The system's error.
    #[source]
    pub source: std::io::Error,
}

/// A suggestion if the kernel refuses to create a map: its error is a bare number.
fn suggestion(action: &str, source: &std::io::Error) -> &'static str {
    match source.raw_os_error().filter(|_| action.starts_with("create map")) {
        Some(libc::EPERM) => "; this needs CAP_BPF, and CAP_NET_ADMIN for maps of devices and CPUs",
        Some(libc::E2BIG) => "; the map is too large: use fewer entries, or shorter keys and values",
        Some(libc::ENOMEM) => "; out of memory: use fewer entries, or `BPF_F_NO_PREALLOC` for a hash",
        Some(libc::EINVAL) => "; the kernel rejects this combination of kind, sizes, entries and flags",
        _ => "",
    }
}

fn at(insn: Option<usize>) -> String {
    insn.map_or_else(String::new, |insn| format!(" at instruction {insn}"))
}

fn place(line: Option<&LineInfo>) -> String {
    line.map_or_else(String::new, |line| format!(" ({}:{}: `{}`)", line.file, line.line, line.text.trim()))
}

/// The end of a log, which has the reason.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let hidden = lines.len().saturating_sub(LOG_LINES_SHOWN);
    let shown = lines[hidden..].join("\n");
    if hidden == 0 { shown } else { format!("[{hidden} lines before]\n{shown}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_creation_errors_have_a_suggestion() {
        let load = |action: &str, number| ExecError::Load {
            program: "p".to_owned(),
            action: action.to_owned(),
            source: std::io::Error::from_raw_os_error(number),
        };
        for (number, help) in
            [(1, "CAP_BPF"), (7, "fewer entries, or shorter"), (12, "fewer entries"), (22, "rejects this combination")]
        {
            let message = load("create map `m`", number).to_string();
            assert!(message.contains("could not create map `m`: ") && message.contains(help), "{message}");
        }
        assert!(!load("load it", 7).to_string().contains(';'));
    }
}
