// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Slots from text, in the notation of `llvm-objdump` and `bpftool`.
//!
//! ```text
//! ; counts packets by protocol
//!         r2 = *(u32 *)(r1 + 4)        ; xdp_md.data_end
//!         r1 = *(u32 *)(r1 + 0)
//!         r3 = r1
//!         r3 += 14
//!         if r3 > r2 goto out          ; a label, or a distance such as +3
//!         r1 = map[counters] ll        ; by name, or by index: map[0]
//!         call map_lookup_elem         ; or: call 1
//! out:    r0 = 2
//!         exit
//! ```
//!
//! Comments run from `;` or `//` to the end of the line. Every line is judged, so all errors come at once.

mod lex;
mod parse;
mod program;

use std::collections::HashMap;

use crate::insn::Insn;
use crate::program::MapDef;
use lex::Token;
use parse::{Line, Parsed, Target};
pub use program::program;

/// An error in the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: found {found}, expected {expected}")]
pub struct AsmError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What was found, in backticks, or `the end of the line`.
    pub found: String,
    /// What was expected.
    pub expected: String,
}

/// All errors of a text in their order; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(AsmError::to_string).collect::<Vec<_>>().join("\n"))]
pub struct AsmErrors(pub Vec<AsmError>);

/// Assembles a text; `map[NAME]` is looked up in `maps`.
///
/// # Errors
/// One entry for every line that cannot be read, label that does not exist, or distance that does not fit.
pub fn assemble(text: &str, maps: &[MapDef]) -> Result<Vec<Insn>, AsmErrors> {
    assemble_lines(text, maps).map(|assembled| assembled.insns)
}

/// The slots, and their lines.
struct Assembled {
    insns: Vec<Insn>,
    /// By instruction, its slot and its line, from 1.
    lines: Vec<(usize, usize)>,
}

fn assemble_lines(text: &str, maps: &[MapDef]) -> Result<Assembled, AsmErrors> {
    let mut errors = Vec::new();
    let mut labels: HashMap<String, usize> = HashMap::new();
    let mut parsed: Vec<(usize, usize, Parsed)> = Vec::new();
    let mut slot = 0;
    for (index, line) in text.lines().enumerate() {
        let mut tokens = lex::tokens(line);
        let width = line.chars().count();
        while let [(column, Token::Word(name)), (_, Token::Sign(":")), ..] = tokens.as_slice() {
            if labels.insert(name.clone(), slot).is_some() {
                let (column, found) = (*column, format!("`{name}` once more"));
                errors.push(AsmError { line: index + 1, column, found, expected: "a label that is new".into() });
            }
            tokens.drain(..2);
        }
        if tokens.is_empty() {
            continue;
        }
        match Line::new(index + 1, width, &tokens, maps).parse() {
            Ok(one) => {
                let slots = one.op.slots();
                parsed.push((index + 1, slot, one));
                slot += slots;
            }
            Err(error) => errors.push(error),
        }
    }
    // Slots after a line with an error are miscounted, but then the errors are reported instead.
    let mut out = Vec::with_capacity(slot);
    let lines = parsed.iter().map(|(line, at, _)| (*at, *line)).collect();
    for (line, at, one) in parsed {
        let op = match one.target {
            None => Ok(one.op),
            Some((column, Target::Distance(distance))) => {
                parse::set_distance(one.op, distance).map_err(|expected| (column, format!("`{distance:+}`"), expected))
            }
            Some((column, Target::Label(name))) => match labels.get(&name) {
                None => Err((column, format!("`{name}`"), parse::unknown_target(one.op))),
                Some(&to) => {
                    let distance = to as i64 - at as i64 - 1;
                    let found = || format!("`{name}`, {distance:+} slots away");
                    parse::set_distance(one.op, distance).map_err(|expected| (column, found(), expected))
                }
            },
        };
        match op {
            Ok(op) => op.encode(&mut out),
            Err((column, found, expected)) => {
                errors.push(AsmError { line, column, found, expected: expected.to_owned() });
            }
        }
    }
    if errors.is_empty() {
        Ok(Assembled { insns: out, lines })
    } else {
        errors.sort_by_key(|e| (e.line, e.column));
        Err(AsmErrors(errors))
    }
}

#[cfg(test)]
mod tests;
