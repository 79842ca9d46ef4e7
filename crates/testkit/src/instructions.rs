// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The instruction suite of `corpus/instructions`: cases that every eBPF engine runs.
//!
//! ```text
//! # A case on one line, and one with memory, a map and code on several; instructions end with a line or with `;`.
//! case add64: r0 = 7; r0 += 1; exit -> 0x8
//! case swap
//! memory 00 01
//! map counts array 4 8 2
//!   r0 = *(u16 *)(r1 + 0)
//!   *(u16 *)(r1 + 0) = r2
//!   exit
//! -> 0x100 memory 02 00
//! case no_such: code ff00000000000000 -> error opcode
//! case by_zero: r0 = 7; r0 /= 0; exit -> 0x0
//! kernel refuses: its verifier takes no division by a zero that it can see
//! ```
//!
//! `r1` is the address of the memory and `r2` its length, both 0 without memory. A case ends with the expected `r0`
//! and, if it is checked, the memory; or with a kind of error. A kernel is expected to behave the same and to reject
//! errors, unless a `kernel` line states otherwise and why.

use std::path::{Path, PathBuf};

/// A case of the suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionCase {
    /// File and line of its start.
    pub place: String,
    /// Unique name.
    pub name: String,
    /// The maps that the code references.
    pub maps: Vec<InstructionMap>,
    /// Contents of the memory at `r1`.
    pub memory: Vec<u8>,
    /// The program.
    pub code: InstructionCode,
    /// Expected result.
    pub expected: Expected,
    /// Expected behaviour of a kernel.
    pub kernel: KernelBehaviour,
}

/// A map of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct InstructionMap {
    pub name: String,
    /// `array` or `hash`.
    pub kind: String,
    pub key_bytes: u32,
    pub value_bytes: u32,
    pub max_entries: u32,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstructionCode {
    /// Assembly text.
    Text(String),
    /// Encoded slots, for code that the assembler cannot express.
    Slots(Vec<[u8; 8]>),
}

/// Expected result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// The program exits.
    Ends {
        /// The value of `r0`.
        r0: u64,
        /// The memory after the exit, if it is checked.
        memory: Option<Vec<u8>>,
    },
    /// The program is rejected or aborts, with this kind of error.
    Error(String),
}

/// Expected behaviour of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelBehaviour {
    /// As the case states.
    Same,
    /// It rejects a program that runs elsewhere.
    Rejects(String),
    /// It accepts a program that is an error elsewhere; the result is not defined.
    Accepts(String),
}

/// Kinds of errors, each with a substring of Flowloom's message for it.
const ERRORS: [(&str, &str); 19] = [
    ("length", "instruction slots, expected 1 to"),
    ("opcode", "is not in the instruction set"),
    ("field", "of opcode 0x"),
    ("cut off", "64-bit immediate load is cut off"),
    ("target", "jump to slot"),
    ("end", "falls off its end"),
    ("frame pointer", "found a write to `r10`"),
    ("not for packets", "expected loads from the packet between"),
    ("not here", "expected a number, or a map"),
    ("kernel function", "found a call of a kernel function"),
    ("helper", "is not supported"),
    ("map", "does not exist, expected an index below"),
    ("register", "is read before it is written"),
    ("bounds", "expected within 0 to"),
    ("unwritten", "was never written"),
    ("address", "which is no address of the program's memory"),
    ("function address", "which is no address of the program's memory"),
    ("depth", "calls are nested more than"),
    ("budget", "instructions for one packet"),
];

/// A substring of the engines' message for this kind of error.
pub fn message_fragment(kind: &str) -> Option<&'static str> {
    ERRORS.iter().find(|(known, _)| *known == kind).map(|(_, words)| *words)
}

/// Returns all cases of the suite, in file order.
///
/// # Panics
/// A file cannot be read, a line cannot be parsed, or two cases have the same name.
#[allow(clippy::panic, reason = "a broken suite must not pass")]
pub fn instruction_cases() -> Vec<InstructionCase> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/instructions");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "bpf"));
    files.sort();
    let mut cases: Vec<InstructionCase> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for case in parse(&name, &text).unwrap_or_else(|error| panic!("{error}")) {
            assert!(
                cases.iter().all(|other| other.name != case.name),
                "{}: duplicate case `{}`",
                case.place,
                case.name
            );
            cases.push(case);
        }
    }
    cases
}

fn parse(file: &str, text: &str) -> Result<Vec<InstructionCase>, String> {
    let mut cases: Vec<InstructionCase> = Vec::new();
    let mut open: Option<Draft> = None;
    for (index, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", index + 1);
        // `kfunc#1` does not start a comment.
        let line = if line.trim_start().starts_with('#') { "" } else { line.split(" #").next().unwrap_or("").trim() };
        let fail = |what: &str| Err(format!("{place}: {what}, found `{line}`"));
        if let Some(rest) = line.strip_prefix("case ") {
            if let Some(draft) = open {
                return Err(format!("{}: case `{}` has no end, expected `->`", draft.place, draft.name));
            }
            let (name, code) = rest.split_once(':').unwrap_or((rest, ""));
            let draft = Draft { place: place.clone(), name: name.trim().to_owned(), ..Draft::default() };
            let (code, end) = code.split_once("->").map_or((code, None), |(code, end)| (code, Some(end)));
            open = Some(draft.with(code)?);
            if let (Some(end), Some(draft)) = (end, open.take_if(|_| end.is_some())) {
                cases.push(draft.ends(end)?);
            }
        } else if let Some(rest) = line.strip_prefix("kernel ") {
            let Some((verb, reason)) = rest.split_once(": ") else { return fail("expected a reason after `: `") };
            let Some(last) = cases.last_mut().filter(|_| open.is_none()) else { return fail("expected a case before") };
            last.kernel = match (verb, &last.expected) {
                ("refuses", Expected::Ends { .. }) => KernelBehaviour::Rejects(reason.to_owned()),
                ("takes", Expected::Error(_)) => KernelBehaviour::Accepts(reason.to_owned()),
                _ => return fail("expected `refuses` after a result or `takes` after an error"),
            };
        } else if !line.is_empty() {
            let Some(draft) = open.take() else { return fail("expected `case`") };
            match line.strip_prefix("->") {
                Some(end) => cases.push(draft.ends(end)?),
                None => open = Some(draft.with(line)?),
            }
        }
    }
    match open {
        None => Ok(cases),
        Some(draft) => Err(format!("{}: case `{}` has no end, expected `->`", draft.place, draft.name)),
    }
}

/// A case under construction.
#[derive(Debug, Default)]
struct Draft {
    place: String,
    name: String,
    maps: Vec<InstructionMap>,
    memory: Vec<u8>,
    text: String,
    slots: Vec<[u8; 8]>,
}

impl Draft {
    fn with(mut self, line: &str) -> Result<Draft, String> {
        let line = line.trim();
        if let Some(digits) = line.strip_prefix("memory ") {
            self.memory = self.bytes(digits)?;
        } else if let Some(digits) = line.strip_prefix("code ") {
            let bytes = self.bytes(digits)?;
            let (slots, rest) = bytes.as_chunks::<8>();
            if !rest.is_empty() {
                return Err(format!("{}: {} bytes of code, expected a multiple of 8", self.place, bytes.len()));
            }
            self.slots.extend_from_slice(slots);
        } else if let Some(map) = line.strip_prefix("map ") {
            let words: Vec<&str> = map.split_whitespace().collect();
            let numbers: Vec<u32> = words.iter().skip(2).filter_map(|word| word.parse().ok()).collect();
            let (&[name, kind, ..], &[key_bytes, value_bytes, max_entries]) = (&words[..], &numbers[..]) else {
                return Err(format!("{}: expected `map NAME KIND KEY VALUE ENTRIES`, found `{line}`", self.place));
            };
            let (name, kind) = (name.to_owned(), kind.to_owned());
            self.maps.push(InstructionMap { name, kind, key_bytes, value_bytes, max_entries });
        } else {
            for instruction in line.split(';') {
                self.text.push_str(instruction.trim());
                self.text.push('\n');
            }
        }
        Ok(self)
    }

    fn ends(self, end: &str) -> Result<InstructionCase, String> {
        let end = end.trim();
        let expected = match end.strip_prefix("error ") {
            Some(kind) if message_fragment(kind).is_some() => Expected::Error(kind.to_owned()),
            Some(kind) => return Err(format!("{}: unknown kind of errors `{kind}`", self.place)),
            None => {
                let (r0, memory) = end.split_once(" memory ").map_or((end, None), |(r0, memory)| (r0, Some(memory)));
                let digits = r0.trim().strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
                let r0 = digits.ok_or_else(|| format!("{}: expected `-> 0x...`, found `{end}`", self.place))?;
                Expected::Ends { r0, memory: memory.map(|digits| self.bytes(digits)).transpose()? }
            }
        };
        let code = match (self.text.trim().is_empty(), self.slots.is_empty()) {
            (_, true) => InstructionCode::Text(self.text),
            (true, false) => InstructionCode::Slots(self.slots),
            (false, false) => return Err(format!("{}: both text and slots in one case", self.place)),
        };
        let Draft { place, name, maps, memory, .. } = self;
        Ok(InstructionCase { place, name, maps, memory, code, expected, kernel: KernelBehaviour::Same })
    }

    fn bytes(&self, digits: &str) -> Result<Vec<u8>, String> {
        let fail = || format!("{}: expected bytes in hexadecimal, found `{digits}`", self.place);
        let digits: Option<Vec<u8>> =
            digits.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        let digits = digits.ok_or_else(fail)?;
        let (pairs, rest) = digits.as_chunks::<2>();
        if rest.is_empty() { Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect()) } else { Err(fail()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read() {
        let text = "# one\ncase a: r0 = 1; exit -> 0x1\ncase b # two\nmemory 0a 0b\nmap m array 4 8 2\n  r0 = 2\n  exit\n\
                    -> 0x2 memory 0a0c\nkernel refuses: no reason\ncase c: code ff00000000000000 -> error opcode\n";
        let cases = parse("f", text).expect("it is right");
        let (texts, ends): (Vec<_>, Vec<_>) = cases.iter().map(|c| (c.code.clone(), c.expected.clone())).unzip();
        assert_eq!(texts[0], InstructionCode::Text("r0 = 1\nexit\n".to_owned()));
        assert_eq!(texts[2], InstructionCode::Slots(vec![[0xff, 0, 0, 0, 0, 0, 0, 0]]));
        assert_eq!(ends[0], Expected::Ends { r0: 1, memory: None });
        assert_eq!(ends[1], Expected::Ends { r0: 2, memory: Some(vec![10, 12]) });
        assert_eq!(ends[2], Expected::Error("opcode".to_owned()));
        assert_eq!((cases[1].place.as_str(), cases[1].name.as_str(), cases[1].memory.len()), ("f:3", "b", 2));
        assert_eq!((cases[1].maps[0].value_bytes, cases[1].maps[0].kind.as_str()), (8, "array"));
        assert_eq!(cases[1].kernel, KernelBehaviour::Rejects("no reason".to_owned()));
    }

    #[test]
    fn malformed_cases_are_rejected() {
        for wrong in [
            "exit",
            "case a\nexit",
            "case a\ncase b: exit -> 0x0",
            "case a: exit -> 5",
            "case a: exit -> error what",
            "case a: exit\ncode 00 -> 0x0",
            "case a\nmemory 0\nexit\n-> 0x0",
            "case a\nmap m array 4 8\nexit\n-> 0x0",
            "case a: exit -> 0x0\nkernel takes: it",
            "case a: exit -> 0x0\nkernel refuses",
            "kernel refuses: it",
        ] {
            assert!(parse("f", wrong).is_err(), "{wrong}");
        }
    }
}
