// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses the verifier's log: where it stopped and why.

use flowloom_isa::insn::{call, class, imm64, jmp};
use flowloom_isa::{LineInfo, Program};

use crate::error::Refused;

/// The index before `: (`, with which the verifier begins the line of an instruction.
fn instruction(line: &str) -> Option<usize> {
    let (number, rest) = line.split_once(": ")?;
    if rest.starts_with('(') { number.parse().ok() } else { None }
}

/// A source line in the log: `; text @ file:line`.
fn source_line(line: &str) -> Option<(&str, u32)> {
    let (_, place) = line.strip_prefix("; ")?.rsplit_once(" @ ")?;
    let (file, number) = place.rsplit_once(':')?;
    Some((file, number.parse().ok()?))
}

/// Lines at the end of every log that are not about the program.
fn is_statistics(line: &str) -> bool {
    ["processed ", "verification time ", "stack depth ", "insns processed "].iter().any(|start| line.starts_with(start))
}

/// Lines about registers and paths between two instructions.
fn is_state(line: &str) -> bool {
    let numbered = line.split_once(": ").is_some_and(|(number, _)| number.parse::<usize>().is_ok());
    line.is_empty() || line.starts_with(';') || line.starts_with("from ") || numbered
}

fn has_functions(program: &Program) -> bool {
    program.insns.iter().any(|insn| {
        insn.class() == class::JMP && insn.op() == jmp::CALL && insn.src == call::LOCAL
            || insn.is_wide() && insn.src == imm64::FUNC
    })
}

/// The instruction in a refusal without any instruction line, e.g. `unreachable insn 14`.
fn mentioned_instruction(line: &str) -> Option<usize> {
    let (_, rest) = line.split_once("insn ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

pub(super) fn refused(program: &Program, log: String, source: std::io::Error) -> Refused {
    // The message: one or two lines after the last instruction.
    let last_words = log.lines().rev().map(str::trim).take_while(|line| instruction(line).is_none());
    let mut reasons: Vec<&str> = last_words.filter(|line| !is_statistics(line) && !is_state(line)).collect();
    reasons.reverse();
    reasons.dedup();
    let at = log
        .lines()
        .filter_map(instruction)
        .next_back()
        .or_else(|| reasons.iter().find_map(|r| mentioned_instruction(r)));
    // Loaders reorder the functions of a program, so its indices differ from ours.
    let insn = at.filter(|at| *at < program.insns.len() && !has_functions(program));
    let named = || {
        let (file, number) = log.lines().filter_map(source_line).next_back()?;
        // The log omits directories.
        let same_file = |line: &LineInfo| line.file.rsplit('/').next() == file.rsplit('/').next();
        program.lines.iter().find(|line| line.line == number && same_file(line))
    };
    let line: Option<LineInfo> = insn.and_then(|at| program.line_of(at)).or_else(named).cloned();
    let reason = if reasons.is_empty() { source.to_string() } else { reasons.join("; ") };
    Refused { program: program.name.clone(), insn, line, reason, log, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowloom_isa::Insn;

    const LOG: &str = "0: R1=ctx() R10=fp0\n; idle 5s -> @ knock.efsm:12\n0: (b7) r0 = 2 ; R0_w=2\n\
        1: R0_w=2\n1: (79) r3 = *(u64 *)(r2 +0)\nR2 !read_ok\n\
        processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n";

    fn program(insns: Vec<Insn>) -> Program {
        let line = |insn, line| LineInfo { insn, file: "fw/knock.efsm".into(), text: "row".into(), line, column: 0 };
        Program { name: "f".into(), insns, lines: vec![line(0, 12), line(1, 14)], ..Program::default() }
    }

    fn error() -> std::io::Error {
        std::io::Error::from_raw_os_error(libc::EACCES)
    }

    #[test]
    fn log_names_instruction_line_and_reason() {
        let found = refused(&program(vec![Insn::default(); 4]), LOG.to_owned(), error());
        assert_eq!((found.insn, found.line.map(|l| l.line), found.reason.as_str()), (Some(1), Some(14), "R2 !read_ok"));
    }

    #[test]
    fn with_functions_the_log_itself_names_the_line() {
        let call = Insn { code: class::JMP | jmp::CALL, src: call::LOCAL, ..Insn::default() };
        let found = refused(&program(vec![call; 4]), LOG.to_owned(), error());
        assert_eq!((found.insn, found.line.map(|l| l.line)), (None, Some(12)));
    }

    #[test]
    fn refusals_without_instruction_lines_name_the_instruction() {
        let log = "unreachable insn 1\nprocessed 0 insns (limit 1000000) max_states_per_insn 0\n";
        let found = refused(&program(vec![Insn::default(); 4]), log.to_owned(), error());
        assert_eq!(
            (found.insn, found.line.map(|l| l.line), found.reason.as_str()),
            (Some(1), Some(14), "unreachable insn 1")
        );
    }

    #[test]
    fn empty_log_gives_the_systems_answer() {
        let found = refused(&program(vec![]), String::new(), error());
        assert_eq!((found.insn, found.reason), (None, error().to_string()));
        assert!(found.line.is_none());
    }
}
