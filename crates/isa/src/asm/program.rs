// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Assembles whole programs: directives for maps, then instructions.

use super::{AsmError, AsmErrors, assemble_lines};
use crate::map_kind::MapKind;
use crate::program::{LineInfo, MapDef, Program};

/// Assembles the text of `file`, which begins with directives, each on a line of its own:
///
/// ```text
/// .program NAME                                    ; the function's name
/// .license "GPL"
/// .map NAME KIND key 4 value 8 entries 4 flags 0   ; the kind as bpftool calls it; `flags` may be missing
/// ```
///
/// ```
/// let program = flowloom_isa::asm::program("two.bpf", ".program two\n.license \"GPL\"\nr0 = 2\nexit")?;
/// assert_eq!((program.name.as_str(), program.insns.len()), ("two", 2));
/// # Ok::<(), flowloom_isa::asm::AsmErrors>(())
/// ```
///
/// # Errors
/// One entry for every line that cannot be read; and where there is no name.
pub fn program(file: &str, text: &str) -> Result<Program, AsmErrors> {
    let mut program = Program { section: "xdp".to_owned(), ..Program::default() };
    let mut errors = Vec::new();
    // Directives become empty lines, which keeps the places of errors.
    let mut code = String::with_capacity(text.len());
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with('.') {
            let mut words = Words { line, number: index + 1, at: 0 };
            errors.extend(directive(&mut words, &mut program).err());
        } else {
            code.push_str(line);
        }
        code.push('\n');
    }
    if program.name.is_empty() && errors.is_empty() {
        let (found, expected) = ("a text without a name".to_owned(), "a line `.program NAME`".to_owned());
        errors.push(AsmError { line: 1, column: 1, found, expected });
    }
    match assemble_lines(&code, &program.maps) {
        Ok(assembled) => {
            program.insns = assembled.insns;
            let line = |(insn, line): &(usize, usize)| LineInfo {
                insn: *insn,
                file: file.to_owned(),
                text: text.lines().nth(line - 1).unwrap_or("").trim().to_owned(),
                line: *line as u32,
                column: 0,
            };
            program.lines = assembled.lines.iter().map(line).collect();
        }
        Err(AsmErrors(list)) => errors.extend(list),
    }
    if errors.is_empty() {
        return Ok(program);
    }
    errors.sort_by_key(|e| (e.line, e.column));
    Err(AsmErrors(errors))
}

fn directive(words: &mut Words<'_>, program: &mut Program) -> Result<(), AsmError> {
    let (column, word) = words.word("a directive")?;
    match word {
        ".program" => {
            let (column, name) = words.word("a name")?;
            if !program.name.is_empty() {
                return Err(words.error(column, format!("`{name}`"), "one name only"));
            }
            program.name = name.to_owned();
        }
        ".license" => {
            let (column, rest) = words.rest();
            let quoted = rest.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            program.license =
                quoted.ok_or_else(|| words.error(column, format!("`{rest}`"), "a text in quotes"))?.to_owned();
        }
        ".map" => {
            let map = map(words)?;
            if program.map_index(&map.name).is_some() {
                return Err(words.error(column, format!("`{}` once more", map.name), "a map that is new"));
            }
            program.maps.push(map);
        }
        _ => return Err(words.error(column, format!("`{word}`"), "`.program`, `.license` or `.map`")),
    }
    words.end()
}

fn map(words: &mut Words<'_>) -> Result<MapDef, AsmError> {
    let (_, name) = words.word("the name of a map")?;
    let (column, kind) = words.word("the kind of the map")?;
    // Maps of maps and of programs need more than a line can express.
    let is_plain = |kind: &MapKind| !kind.is_of_maps() && *kind != MapKind::ProgArray;
    let plain = MapKind::ALL.into_iter().filter(is_plain);
    let found = plain.clone().find(|known| known.name() == Some(kind));
    let known =
        || plain.clone().filter_map(MapKind::name).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let kind = found.ok_or_else(|| words.error(column, format!("`{kind}`"), &format!("one of {}", known())))?;
    let (mut key, mut value, mut entries, mut flags) = (None, None, None, None);
    while let Some((column, word)) = words.next() {
        let place = match word {
            "key" => &mut key,
            "value" => &mut value,
            "entries" => &mut entries,
            "flags" => &mut flags,
            _ => return Err(words.error(column, format!("`{word}`"), "`key`, `value`, `entries` or `flags`")),
        };
        let (column, number) = words.word("a number")?;
        let number = number.parse::<u32>();
        *place = Some(number.map_err(|_| words.error(column, "another word".to_owned(), "a number below 2^32"))?);
    }
    let (Some(key_bytes), Some(value_bytes), Some(max_entries)) = (key, value, entries) else {
        let column = words.at + 1;
        return Err(words.error(
            column,
            "the end of the line".to_owned(),
            "`key`, `value` and `entries`, each with a number",
        ));
    };
    let flags = flags.unwrap_or(0);
    Ok(MapDef { name: name.to_owned(), kind, key_bytes, value_bytes, max_entries, flags, ..MapDef::default() })
}

/// The words of a directive up to a comment.
struct Words<'t> {
    line: &'t str,
    number: usize,
    at: usize,
}

impl<'t> Words<'t> {
    fn skip(&mut self) {
        let rest = &self.line[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// The rest of the line without a comment, and its column.
    fn rest(&mut self) -> (usize, &'t str) {
        self.skip();
        let rest = &self.line[self.at..];
        let from = self.at;
        let is_comment = |at: &usize| rest[..*at].matches('"').count().is_multiple_of(2);
        let end = rest.match_indices(';').map(|(at, _)| at).find(is_comment).unwrap_or(rest.len());
        self.at = self.line.len();
        (self.line[..from].chars().count() + 1, rest[..end].trim_end())
    }

    fn next(&mut self) -> Option<(usize, &'t str)> {
        self.skip();
        let (line, rest) = (self.line, &self.line[self.at..]);
        if rest.is_empty() || rest.starts_with(';') || rest.starts_with("//") {
            return None;
        }
        let len = rest.find(|c: char| c.is_whitespace() || c == ';').unwrap_or(rest.len());
        let column = line[..self.at].chars().count() + 1;
        self.at += len;
        Some((column, &rest[..len]))
    }

    fn word(&mut self, what: &str) -> Result<(usize, &'t str), AsmError> {
        let column = self.line.chars().count() + 1;
        self.next().ok_or_else(|| self.error(column, "the end of the line".to_owned(), what))
    }

    fn end(&mut self) -> Result<(), AsmError> {
        match self.next() {
            None => Ok(()),
            Some((column, word)) => Err(self.error(column, format!("`{word}`"), "the end of the line")),
        }
    }

    fn error(&self, column: usize, found: String, expected: &str) -> AsmError {
        AsmError { line: self.number, column, found, expected: expected.to_owned() }
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn directives_make_maps_and_names() {
        let text = ".program p\n.license \"Dual MIT/GPL\" ; both\n.map m hash entries 9 key 3 value 5 flags 1 ; a map\n\
                    r1 = map[m] ll\nr0 = 2\nexit\n";
        let made = program("a.bpf", text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((made.name.as_str(), made.license.as_str(), made.insns.len()), ("p", "Dual MIT/GPL", 4));
        let map = &made.maps[0];
        assert_eq!((made.lines[1].insn, made.lines[1].line, made.lines[1].text.as_str()), (2, 5, "r0 = 2"));
        assert_eq!((map.kind, map.key_bytes, map.value_bytes, map.max_entries, map.flags), (MapKind::Hash, 3, 5, 9, 1));
    }

    #[test]
    fn every_line_that_is_wrong_is_named() {
        let text = ".map m heap key 1\n.map n array key 4\n.licence \"x\"\nr0 = q\n.map o array key x\n.program a b\n.license x\n";
        let said = program("a.bpf", text).map_or_else(|e| e.to_string(), |_| String::new());
        let expected = [
            "line 1, column 8: found `heap`, expected one of `hash`, `array`, `perf_event_array`",
            "line 2, column 19: found the end of the line, expected `key`, `value` and `entries`, each with a number",
            "line 3, column 1: found `.licence`, expected `.program`, `.license` or `.map`",
            "line 4, column 6",
            "line 5, column 18: found another word, expected a number below 2^32",
            "line 6, column 12: found `b`, expected the end of the line",
            "line 7, column 10: found `x`, expected a text in quotes",
        ];
        for (line, expected) in said.lines().zip(expected) {
            assert!(line.starts_with(expected), "{line} | {expected}");
        }
        assert_eq!(said.lines().count(), expected.len(), "{said}");
        let said = program("a.bpf", "exit").map_or_else(|e| e.to_string(), |_| String::new());
        assert!(said.contains("`.program NAME`"), "{said}");
    }
}
