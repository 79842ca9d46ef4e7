// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named sets: the entries of `set name = { ... }` and of the files named by `set name = file("...")`, merged into
//! disjoint intervals. Malformed words are refused by `syntax/literal.rs`.
//!
//! A set may mix numbers and addresses of several kinds. IPv4 and IPv6 addresses are both valid for `ip.src`; an entry
//! that an operand can never equal is an error where the set is used.

use std::sync::Arc;

use flowloom_wire::field::IPV4_MAPPED;

use crate::diagnostic::{Code, did_you_mean};
use crate::files::Files;
use crate::intervals::{self, Interval};
use crate::model::{Condition, Span, Wide};
use crate::syntax::ast::{Expr as Tree, Name, Set, SetContents, SetItemKind};
use crate::syntax::read_value;

use super::Checker;
use super::constant::Constant;
use super::names::{Symbol, exceeds_index_limit};
use super::operand::{Leaf, OperandKind};

const MAX_ENTRIES: usize = 65_536;
/// Maximum number of findings reported for a file.
const MAX_FINDINGS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Ipv4,
    Ipv6,
    Mac,
}

const KINDS: [Kind; 4] = [Kind::Number, Kind::Ipv4, Kind::Ipv6, Kind::Mac];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Number => "numbers",
            Kind::Ipv4 => "IPv4 addresses",
            Kind::Ipv6 => "IPv6 addresses",
            Kind::Mac => "MAC addresses",
        }
    }

    fn bits(self) -> u32 {
        match self {
            Kind::Number => 64,
            Kind::Ipv4 => 32,
            Kind::Ipv6 => 128,
            Kind::Mac => 48,
        }
    }
}

/// Kind of an entry, and its first and last value.
type Entry = (Kind, Interval);

/// Remainder of an entry after its first value.
#[derive(Debug, Clone, Copy)]
enum EntrySuffix {
    Value,
    Prefix(Constant),
    Range(Constant),
}

/// Code, message and help of an error in an entry.
type EntryError = (Code, String, &'static str);

#[derive(Debug)]
pub(super) struct NamedSet<'s> {
    name: Name<'s>,
    /// Intervals for each of [`KINDS`]: ascending, disjoint and not adjacent.
    values: [Vec<Interval>; 4],
}

impl<'s> Checker<'s, '_> {
    pub(super) fn named_sets(&mut self, sets: &[Set<'s>], files: &dyn Files) {
        for set in sets {
            let entries = match &set.contents {
                SetContents::Items(items) if items.is_empty() => {
                    self.sink
                        .error(
                            Code::Missing,
                            set.name.span,
                            format!("the set `{}` is empty", set.name.text),
                            "no entry",
                        )
                        .help("give it an entry, as in `set blocked = { 10.0.0.0/8 };`");
                    None
                }
                SetContents::Items(items) => self.source_entries(set.name, items),
                SetContents::File(path) => self.entries_of_file(*path, files),
            };
            let mut symbol = Symbol::Broken;
            if let Some(entries) = entries
                && !exceeds_index_limit(self.sets.len(), "sets", set.name.span, self.sink)
            {
                symbol = Symbol::Set(self.sets.len() as u16);
                let values = KINDS.map(|kind| {
                    intervals::merged(entries.iter().filter(|(of, _)| *of == kind).map(|(_, values)| *values).collect())
                });
                self.sets.push(NamedSet { name: set.name, values });
            }
            self.names.declare(set.name, "set", symbol, self.sink);
        }
    }

    fn source_entries(&mut self, name: Name<'s>, items: &[crate::syntax::ast::SetItem<'s>]) -> Option<Vec<Entry>> {
        if items.len() > MAX_ENTRIES {
            let (found, most) = (items.len(), MAX_ENTRIES);
            self.sink
                .error(
                    Code::OutOfRange,
                    name.span,
                    format!("the set `{}` has {found} entries, at most {most} are possible", name.text),
                    "too many entries",
                )
                .help("merge adjacent prefixes, or split the set over several functions");
            return None;
        }
        let mut entries: Option<Vec<Entry>> = Some(Vec::new());
        let mut found: Vec<(Entry, Span)> = Vec::new();
        for item in items {
            let what = "an entry of a set";
            let (first, rest) = match &item.kind {
                SetItemKind::Value(value) => (self.constant(value, what), Some(EntrySuffix::Value)),
                SetItemKind::Prefix(value, length) => (
                    self.constant(value, what),
                    self.constant(length, "the length of a prefix").map(EntrySuffix::Prefix),
                ),
                SetItemKind::Range(low, high) => {
                    (self.constant(low, what), self.constant(high, "the end of a range").map(EntrySuffix::Range))
                }
            };
            let entry = match (first, rest) {
                (Some(first), Some(rest)) => entry(first, rest),
                _ => {
                    entries = None;
                    continue;
                }
            };
            match entry {
                Ok(entry) => found.push((entry, item.span)),
                Err((code, message, help)) => {
                    self.sink.error(code, item.span, message, "this entry").help(help);
                    entries = None;
                }
            }
        }
        found.sort_by_key(|(entry, span)| (KINDS.iter().position(|kind| *kind == entry.0), entry.1, span.start));
        for pair in found.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            self.sink
                .warning(Code::Duplicate, pair[1].1, "duplicate entry in the set", "repeated here")
                .secondary_label(pair[0].1, "first here")
                .help("name each entry once");
        }
        entries.map(|_| found.into_iter().map(|(entry, _)| entry).collect())
    }

    fn entries_of_file(&mut self, path: Name<'s>, files: &dyn Files) -> Option<Vec<Entry>> {
        let text = match files.read(path.text) {
            Ok(text) => text,
            Err(reason) => {
                self.sink
                    .error(
                        Code::UnreadableFile,
                        path.span,
                        format!("the file `{}` cannot be read: {reason}", path.text),
                        "named here",
                    )
                    .help("the path is relative to the folder of the source");
                return None;
            }
        };
        let mut entries: Vec<(Entry, usize)> = Vec::new();
        let mut wrong = 0;
        for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            match entry_of_line(line) {
                Ok(entry) => entries.push((entry, number)),
                Err((code, message, help)) => {
                    wrong += 1;
                    if wrong <= MAX_FINDINGS {
                        let message = format!("`{}`, line {number}: {message}", path.text);
                        self.sink.error(code, path.span, message, "in this file").help(help);
                    }
                }
            }
        }
        if wrong > MAX_FINDINGS {
            let message = format!("`{}`: {} more invalid lines", path.text, wrong - MAX_FINDINGS);
            self.sink.error(Code::BadLiteral, path.span, message, "in this file").help(LINES);
        }
        if wrong > 0 {
            return None;
        }
        if entries.is_empty() {
            self.sink
                .error(Code::Missing, path.span, format!("the file `{}` has no entries", path.text), "an empty set")
                .help(LINES);
            return None;
        }
        if entries.len() > MAX_ENTRIES {
            let (found, most) = (entries.len(), MAX_ENTRIES);
            self.sink
                .error(
                    Code::OutOfRange,
                    path.span,
                    format!("the file `{}` has {found} entries, at most {most} are possible", path.text),
                    "too many entries",
                )
                .help("merge adjacent prefixes, or split the set over several functions");
            return None;
        }
        self.warn_repeated_lines(path, &mut entries);
        Some(entries.into_iter().map(|(entry, _)| entry).collect())
    }

    fn warn_repeated_lines(&mut self, path: Name<'s>, entries: &mut [(Entry, usize)]) {
        entries.sort_by_key(|((kind, values), line)| (KINDS.iter().position(|k| k == kind), *values, *line));
        let mut repeated: Vec<(usize, usize)> =
            entries.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| (pair[1].1, pair[0].1)).collect();
        repeated.sort_unstable();
        let lines = repeated.iter().take(MAX_FINDINGS).map(|(line, first)| format!("{line} (as {first})"));
        let lines: Vec<String> = lines.collect();
        if let Some(more) = repeated.len().checked_sub(lines.len()).filter(|_| !lines.is_empty()) {
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let message = format!("duplicate entries in `{}`: lines {}{more}", path.text, lines.join(", "));
            self.sink.warning(Code::Duplicate, path.span, message, "in this file").help("name each entry once");
        }
    }

    /// `value in name`.
    pub(super) fn in_named(
        &mut self,
        left: &Tree<'s>,
        name: Name<'s>,
        negated: bool,
        conditions: &mut Vec<Condition>,
    ) -> Option<()> {
        let operand = self.operand(left);
        let index = self.lookup_set(name);
        let (operand, index) = (operand?, index?);
        let (wide, width_bits) = match operand.kind {
            OperandKind::Wide(wide) => (wide, 128),
            OperandKind::Leaf(leaf) if !self.leaf(leaf).signed && self.leaf(leaf).unit_ns.is_none() => {
                let wide = match leaf {
                    Leaf::Field(field) => Some(Wide::Field(field)),
                    Leaf::Register(i) => Some(Wide::Register(i)),
                    Leaf::Global(i) => Some(Wide::Global(i)),
                    Leaf::Metadata(i) => Some(Wide::Metadata(i)),
                    Leaf::Now | Leaf::State | Leaf::Old(_) => None,
                };
                match wide {
                    Some(wide) => (wide, self.leaf(leaf).width_bits),
                    None => return self.report_not_testable(left.span),
                }
            }
            _ => return self.report_not_testable(left.span),
        };
        let is_either_family = width_bits == 128 && self.wide(wide).is_either_family;
        let mut values: Vec<Interval> = Vec::new();
        for (kind, of_kind) in KINDS.into_iter().zip(&self.sets[index].values) {
            let (Some(&(first, _)), Some(&(_, last))) = (of_kind.first(), of_kind.last()) else { continue };
            let mapped = match kind {
                Kind::Ipv4 if is_either_family => IPV4_MAPPED,
                Kind::Ipv6 if width_bits == 128 => 0,
                Kind::Ipv4 if width_bits == 32 => 0,
                Kind::Mac if width_bits == 48 => 0,
                Kind::Number if width_bits <= 64 && last >> width_bits == 0 => 0,
                _ => {
                    let (found, set) = (kind.name(), self.sets[index].name);
                    let value = if kind == Kind::Number && width_bits <= 64 { last } else { first };
                    let shown = render(kind, value);
                    let text = self.text(left.span).to_owned();
                    let message = format!("`{text}` cannot equal the {found} in `{}`, such as {shown}", set.text);
                    let help = match kind {
                        Kind::Ipv4 | Kind::Ipv6 => {
                            "`ip.src` and `ip.dst` take both families; a field of one family takes \
                                                    a set of this family alone"
                        }
                        _ => "the set may contain only values of the left operand",
                    };
                    self.sink
                        .error(Code::WrongKind, left.span, message, format!("{width_bits} bits"))
                        .secondary_label(set.span, "the set")
                        .help(help);
                    return None;
                }
            };
            values.extend(of_kind.iter().map(|(low, high)| (mapped | low, mapped | high)));
        }
        let values = Arc::new(intervals::merged(values));
        conditions.push(Condition::Within { operand: wide, values, negated });
        Some(())
    }

    fn report_not_testable(&mut self, span: Span) -> Option<()> {
        self.sink
            .error(
                Code::BadCondition,
                span,
                "only fields and unsigned variables without a clock can be in a named set",
                "not a packet field or variable",
            )
            .help("write the value to a metadata field in an element before this one");
        None
    }

    fn lookup_set(&mut self, name: Name<'s>) -> Option<usize> {
        match self.names.look_up(name.text) {
            Some((Symbol::Set(i), _)) => return Some(usize::from(i)),
            Some((Symbol::Broken, _)) => return None,
            Some((_, what)) => {
                self.sink
                    .error(Code::WrongKind, name.span, format!("{what} `{}` is not a set", name.text), "expected a set")
                    .help(
                        "a single value is compared with `==`; `in` takes a prefix, a range, `{80, 443}` or the \
                         name of a `set`",
                    );
                return None;
            }
            None if self.names.has_syntax_errors => return None,
            None => {}
        }
        let sets: Vec<&str> = self.sets.iter().map(|set| set.name.text).collect();
        let help = match did_you_mean(name.text, sets) {
            Some(near) => format!("did you mean `{near}`?"),
            None if name.text.contains('.') => "two fields are compared with `==`".to_owned(),
            None => format!("declare it, as in `set {} = {{ 10.0.0.0/8, 192.0.2.1 }};`", name.text),
        };
        self.sink
            .error(Code::UnknownName, name.span, format!("there is no set `{}`", name.text), "not declared")
            .help(help);
        None
    }
}

const LINES: &str = "each line holds a value, a prefix or a range, as `192.0.2.1`, `10.0.0.0/8` or `80..90`; comments start \
                     with `#`";

fn render(kind: Kind, value: u128) -> String {
    match kind {
        Kind::Number => value.to_string(),
        Kind::Ipv4 => Constant::Ipv4(value as u32).render(),
        Kind::Ipv6 => Constant::Ipv6(value).render(),
        Kind::Mac => Constant::Mac(value as u64).render(),
    }
}

fn entry_of_line(line: &str) -> Result<Entry, EntryError> {
    let value = |word: &str| -> Result<Constant, EntryError> {
        match read_value(word) {
            Ok((false, literal)) => Ok(literal.into()),
            Ok((true, _)) => Err((Code::OutOfRange, format!("`{}` is below 0", word.trim()), LINES)),
            Err(bad) => {
                let mut shown: String = word.trim().chars().take(40).collect();
                if shown.len() < word.trim().len() {
                    shown.push('…');
                }
                let message =
                    if bad.message.len() > 120 { format!("`{shown}` is not a constant") } else { bad.message };
                Err((Code::BadLiteral, format!("expected a value, a prefix or a range: {message}"), LINES))
            }
        }
    };
    if let Some((low, high)) = line.split_once("..") {
        return entry(value(low)?, EntrySuffix::Range(value(high)?));
    }
    match line.split_once('/') {
        Some((address, length)) => entry(value(address)?, EntrySuffix::Prefix(value(length)?)),
        None => entry(value(line)?, EntrySuffix::Value),
    }
}

fn entry(first: Constant, rest: EntrySuffix) -> Result<Entry, EntryError> {
    let of = |constant: Constant| -> Result<(Kind, u128), EntryError> {
        match constant {
            Constant::Number(n) => match u64::try_from(n) {
                Ok(n) => Ok((Kind::Number, n.into())),
                Err(_) => Err((Code::OutOfRange, format!("{n} is below 0 or above 2^64 - 1"), LINES)),
            },
            Constant::Ipv4(address) => Ok((Kind::Ipv4, address.into())),
            Constant::Ipv6(address) => Ok((Kind::Ipv6, address)),
            Constant::Mac(address) => Ok((Kind::Mac, address.into())),
            Constant::Time(_) => Err((
                Code::WrongKind,
                format!("a set holds numbers and addresses, found a time ({})", constant.render()),
                "compare times with `==`, `before` and `after`",
            )),
        }
    };
    let (kind, low) = of(first)?;
    match rest {
        EntrySuffix::Value => Ok((kind, (low, low))),
        EntrySuffix::Range(last) => {
            let (other, high) = of(last)?;
            let range = format!("the range {}..{}", first.render(), last.render());
            if other != kind {
                return Err((Code::WrongKind, format!("{range} is of two kinds"), "both ends must be of one kind"));
            }
            if high < low {
                let help = "write the smaller value first; both ends are included";
                return Err((Code::OutOfRange, format!("{range} is empty"), help));
            }
            Ok((kind, (low, high)))
        }
        EntrySuffix::Prefix(_) if kind == Kind::Number => Err((
            Code::WrongKind,
            format!("{} is a number and has no prefix", first.render()),
            "prefixes are for addresses; numbers take `low..high`",
        )),
        EntrySuffix::Prefix(length) => {
            let bits = kind.bits();
            let Some(length) = length.number(1).filter(|length| (0..=i128::from(bits)).contains(length)) else {
                let message = format!("a prefix of {} bits, expected 0 to {bits}", length.render());
                return Err((Code::OutOfRange, message, "write the length after the address, as in `10.0.0.0/8`"));
            };
            let host = (u128::MAX >> (128 - bits)).checked_shr(length as u32).unwrap_or(0);
            if low & host != 0 {
                let network = render(kind, low & !host);
                let message = format!(
                    "{} has host bits set outside the prefix of {length} bits, expected {network}/{length}",
                    first.render()
                );
                return Err((Code::OutOfRange, message, "the host bits of a prefix must be 0"));
            }
            Ok((kind, (low, low | host)))
        }
    }
}
