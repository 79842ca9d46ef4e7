// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses dataflow from text.

use std::collections::BTreeMap;
use std::str::FromStr;

use flowloom_isa::{MapKind, helpers};

use super::render::{ATOMIC, BINARY, COMPARE, SIZES};
use crate::dataflow::{Argument, Dataflow, Ending, Laid, Overlay, Pattern, Reach, Reaching, Table};
use crate::graph::{Effect, Graph, Id, Input, Kind, Node};
use crate::validate::{Invalid, node, references};

/// A syntax error in the text, or a node that is not well-formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// What was found, and what was expected.
    pub why: String,
}

struct Words<'a> {
    line: usize,
    rest: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
}

impl<'a> Words<'a> {
    fn error(&self, found: &str, expected: &str) -> TextError {
        let found = if found.is_empty() { "the end of the line".to_owned() } else { format!("`{found}`") };
        TextError { line: self.line, why: format!("found {found}, expected {expected}") }
    }

    fn word(&mut self, expected: &str) -> Result<&'a str, TextError> {
        self.rest.next().ok_or_else(|| self.error("", expected))
    }

    fn number<T: FromStr>(&mut self, expected: &str) -> Result<T, TextError> {
        let word = self.word(expected)?;
        word.parse().map_err(|_| self.error(word, expected))
    }

    fn keyword(&mut self, keyword: &str) -> Result<(), TextError> {
        let word = self.word(&format!("`{keyword}`"))?;
        if word == keyword { Ok(()) } else { Err(self.error(word, &format!("`{keyword}`"))) }
    }

    fn id(&mut self) -> Result<Id, TextError> {
        let word = self.word("a node such as `v7`")?;
        self.as_id(word.trim_end_matches(':'))
    }

    fn as_id(&self, word: &str) -> Result<Id, TextError> {
        let number = word.strip_prefix('v').and_then(|number| number.parse().ok());
        number.map(Id).ok_or_else(|| self.error(word, "a node such as `v7`"))
    }

    fn ids(&mut self) -> Result<Vec<Id>, TextError> {
        let mut ids = Vec::new();
        while self.rest.peek().is_some() {
            ids.push(self.id()?);
        }
        Ok(ids)
    }

    fn named<T: Copy>(&mut self, names: &[(T, &str)], expected: &str) -> Result<T, TextError> {
        let word = self.word(expected)?;
        let known = names.iter().find(|(_, name)| *name == word).map(|(value, _)| *value);
        known.ok_or_else(|| self.error(word, expected))
    }

    fn end(&mut self) -> Result<(), TextError> {
        match self.rest.next() {
            None => Ok(()),
            Some(word) => Err(self.error(word, "the end of the line")),
        }
    }
}

/// The dataflow parsed so far.
#[derive(Default)]
struct Reading {
    name: Option<String>,
    graph: Graph,
    /// By node, its line.
    lines: Vec<usize>,
    patterns: Vec<Pattern>,
    maps: Vec<Table>,
    ends: [Option<Id>; 4],
    kept: Option<Id>,
    packet: BTreeMap<i64, Id>,
    overlays: Vec<Overlay>,
    waits: BTreeMap<Id, Vec<Id>>,
    wanted: BTreeMap<Id, Id>,
    reaches: Vec<Reach>,
}

impl FromStr for Dataflow {
    type Err = TextError;

    /// Parses the output of [`Dataflow`]'s `Display`.
    fn from_str(text: &str) -> Result<Dataflow, TextError> {
        let mut reading = Reading::default();
        let mut last = 0;
        for (number, line) in text.lines().enumerate() {
            last = number + 1;
            let line = line.split('#').next().unwrap_or_default();
            let mut words = Words { line: last, rest: line.split_whitespace().peekable() };
            if words.rest.peek().is_some() {
                reading.line(&mut words)?;
                words.end()?;
            }
        }
        let words = Words { line: last, rest: "".split_whitespace().peekable() };
        let missing = |what: &str| words.error("", what);
        let [Some(verdict), Some(head), Some(tail), Some(slow)] = reading.ends else {
            return Err(missing("`verdict`, `head`, `tail` and `slow`"));
        };
        let name = reading.name.ok_or_else(|| missing("`program`"))?;
        let Reading { graph, lines, patterns, maps, kept, packet, overlays, waits, wanted, reaches, .. } = reading;
        let ending = Ending { verdict, head, tail, kept, packet, overlays, slow };
        let dataflow = Dataflow { name, graph, patterns, maps, ending, waits, wanted, reaches };
        let fail = |line: usize, invalid: Invalid| Err(TextError { line, why: invalid.to_string() });
        let mut unknown = Vec::new();
        references(&dataflow, &mut unknown);
        if let Some(unknown) = unknown.pop() {
            return fail(last, unknown);
        }
        for (id, line) in dataflow.graph.ids().zip(lines) {
            if let Err(invalid) = node(&dataflow, id) {
                return fail(line, invalid);
            }
        }
        Ok(dataflow)
    }
}

impl Reading {
    fn line(&mut self, words: &mut Words<'_>) -> Result<(), TextError> {
        let first = words.word("a line")?;
        match first {
            "program" => self.name = Some(words.word("the program's name")?.to_owned()),
            "map" => self.map(words)?,
            "call" => self.pattern(words)?,
            "verdict" => self.ends[0] = Some(words.id()?),
            "head" => self.ends[1] = Some(words.id()?),
            "tail" => self.ends[2] = Some(words.id()?),
            "kept" => self.kept = Some(words.id()?),
            "slow" => self.ends[3] = Some(words.id()?),
            "access" => {
                let (base, end) = (words.id()?, words.number("where the bytes end")?);
                words.keyword("if")?;
                self.reaches.push(Reach { when: words.id()?, by: Reaching::Access { base, end } });
            }
            "test" => {
                let test = words.id()?;
                words.keyword("if")?;
                self.reaches.push(Reach { when: words.id()?, by: Reaching::Test(test) });
            }
            "packet" => {
                let at = words.number("an offset")?;
                self.packet.insert(at, words.id()?);
            }
            "overlay" => self.overlays.push(Overlay { base: words.id()?, bytes: BTreeMap::new() }),
            "laid" => {
                let at = words.number("an offset")?;
                let laid = Laid { when: words.id()?, byte: words.id()? };
                let overlay = self.overlays.last_mut().ok_or_else(|| words.error("laid", "`overlay` before it"))?;
                overlay.bytes.insert(at, laid);
            }
            "wait" => {
                let read = words.id()?;
                self.waits.insert(read, words.ids()?);
            }
            "wanted" => {
                let lookup = words.id()?;
                let when = words.ids()?;
                let [when] = when[..] else { return Err(words.error("several", "one predicate")) };
                self.wanted.insert(lookup, when);
            }
            node => {
                let id = words.as_id(node)?;
                self.node(words, id)?;
            }
        }
        Ok(())
    }

    fn map(&mut self, words: &mut Words<'_>) -> Result<(), TextError> {
        let number: usize = words.number("the map's number")?;
        if number != self.maps.len() {
            return Err(words.error(&number.to_string(), &format!("map {}", self.maps.len())));
        }
        let name = words.word("the map's name")?.to_owned();
        let word = words.word("the map's kind")?;
        let by_name = (0..64).map(MapKind::from_number).find(|kind| kind.name() == Some(word));
        let by_number = || word.parse().ok().map(MapKind::from_number);
        let kind = by_name.or_else(by_number).ok_or_else(|| words.error(word, "a kind of map"))?;
        let mut size = |what: &str| {
            words.keyword(what)?;
            words.number(&format!("the length after `{what}`"))
        };
        let (key_bytes, value_bytes, max_entries) = (size("key")?, size("value")?, size("entries")?);
        self.maps.push(Table { name, kind, key_bytes, value_bytes, max_entries });
        Ok(())
    }

    fn pattern(&mut self, words: &mut Words<'_>) -> Result<(), TextError> {
        let number: usize = words.number("the call's number")?;
        if number != self.patterns.len() {
            return Err(words.error(&number.to_string(), &format!("call {}", self.patterns.len())));
        }
        let word = words.word("a helper")?;
        let helper = helpers::number_of(word).or_else(|| word.parse().ok());
        let helper = helper.ok_or_else(|| words.error(word, "a helper"))?;
        let mut arguments = Vec::new();
        while words.rest.peek().is_some() {
            let word = words.word("an argument")?;
            let has_number = matches!(word, "map" | "read" | "changed" | "laid" | "byte" | "stored");
            let number = if has_number { words.word("a number")?.trim_end_matches(',') } else { "0" };
            let bad = |words: &Words<'_>| words.error(number, "a number");
            arguments.push(match word.trim_end_matches(',') {
                "number" => Argument::Number,
                "context" => Argument::Context,
                "map" => Argument::Map(number.parse().map_err(|_| bad(words))?),
                "read" => Argument::Read(number.parse().map_err(|_| bad(words))?),
                "changed" => Argument::Changed(number.parse().map_err(|_| bad(words))?),
                "head" => Argument::Head,
                "tail" => Argument::Tail,
                "kept" => Argument::Kept,
                "base" => Argument::Base,
                "laid" => Argument::Laid(number.parse().map_err(|_| bad(words))?),
                "byte" => Argument::Byte(number.parse().map_err(|_| bad(words))?),
                "stored" => Argument::Stored(number.parse().map_err(|_| bad(words))?),
                other => return Err(words.error(other, "an argument of a call")),
            });
        }
        self.patterns.push(Pattern { helper, arguments });
        Ok(())
    }

    fn node(&mut self, words: &mut Words<'_>, id: Id) -> Result<(), TextError> {
        let next = self.graph.nodes().len();
        if id.index() != next {
            return Err(words.error(&id.to_string(), &format!("v{next}, each node in its order")));
        }
        let bits: u16 = words.number("how many bits it has")?;
        if bits > 64 {
            return Err(words.error(&bits.to_string(), "at most 64 bits"));
        }
        let word = words.word("an instruction such as `@12`")?;
        let insn = word.strip_prefix('@').and_then(|number| number.parse().ok());
        let insn: usize = insn.ok_or_else(|| words.error(word, "an instruction such as `@12`"))?;
        let (kind, args) = self.what(words)?;
        if let Some(arg) = args.iter().find(|arg| arg.index() >= next) {
            return Err(words.error(&arg.to_string(), &format!("a node before v{next}")));
        }
        self.graph.at(insn);
        self.lines.push(words.line);
        self.graph.raw(Node { kind, args, bits });
        Ok(())
    }

    fn what(&self, words: &mut Words<'_>) -> Result<(Kind, Vec<Id>), TextError> {
        let word = words.word("what the node is")?;
        let binary = BINARY.iter().find(|(_, name)| *name == word).map(|(op, _)| Kind::Binary(*op));
        let compare = COMPARE.iter().find(|(_, name)| *name == word).map(|(how, _)| Kind::Compare(*how));
        if let Some(kind) = binary.or(compare) {
            return Ok((kind, words.ids()?));
        }
        let kind = match word {
            "const" => {
                let word = words.word("a number such as `0x1f`")?;
                let value = word.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
                Kind::Const(value.ok_or_else(|| words.error(word, "a number such as `0x1f`"))?)
            }
            "byte" => Kind::Input(Input::Byte(words.number("an offset")?)),
            "length" => Kind::Input(Input::Length),
            "port" => Kind::Input(Input::Port),
            "only" => Kind::Input(Input::Only(words.number("a map's number")?)),
            "slice" => Kind::Slice { low: words.number("the first bit")? },
            "concat" => Kind::Concat,
            "sign_extend" => Kind::SignExtend,
            "not" => Kind::Not,
            "select" => Kind::Select,
            "changed" => Kind::Changed { at: words.number("the place of a byte")? },
            "bytes" => Kind::Bytes { ahead: words.number("an offset")? },
            "call" => {
                let pattern: u16 = words.number("the call's number")?;
                let known = self.patterns.get(usize::from(pattern));
                let helper =
                    known.ok_or_else(|| words.error(&pattern.to_string(), "the number of a call above"))?.helper;
                Kind::Effect(Effect::Call { helper, pattern })
            }
            "load" => Kind::Effect(Effect::Load(words.named(&SIZES, "a size")?)),
            "store" => Kind::Effect(Effect::Store(words.named(&SIZES, "a size")?)),
            "atomic" => {
                let op = words.named(&ATOMIC, "an atomic operation")?;
                Kind::Effect(Effect::Atomic(op, words.named(&SIZES, "a size")?))
            }
            other => return Err(words.error(other, "what the node is")),
        };
        if matches!(kind, Kind::Effect(_)) {
            words.keyword("if")?;
        }
        Ok((kind, words.ids()?))
    }
}
