// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The grammar in the book contains every keyword, and the parser accepts every sentence derived from it. The editor's
//! highlighting contains the same keywords.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use flowloom_efsm::diagnostic::Code;
use flowloom_efsm::{format, keywords};
use flowloom_testkit::Rng;

/// Right-hand side of a rule.
#[derive(Debug, Clone)]
enum Form {
    Word(String),
    Rule(String),
    Sequence(Vec<Form>),
    Choice(Vec<Form>),
    Maybe(Box<Form>),
    Repeated(Box<Form>),
}

/// Tokenizes EBNF.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let len = if let Some(quoted) = rest.strip_prefix('"') {
            quoted.find('"').unwrap() + 2
        } else {
            let end = |c: char| !c.is_ascii_alphanumeric();
            rest.find(end).unwrap_or(rest.len()).max(1)
        };
        tokens.push(rest[..len].to_owned());
        rest = rest[len..].trim_start();
    }
    tokens
}

/// Parses alternatives up to `end`.
fn choice(tokens: &mut std::iter::Peekable<std::vec::IntoIter<String>>, end: Option<&str>) -> Form {
    let mut choices = vec![Vec::new()];
    loop {
        let Some(token) = tokens.next() else {
            assert!(end.is_none(), "`{end:?}` is missing");
            break;
        };
        if Some(token.as_str()) == end {
            break;
        }
        let form = match token.as_str() {
            "|" => {
                choices.push(Vec::new());
                continue;
            }
            "[" => Form::Maybe(Box::new(choice(tokens, Some("]")))),
            "{" => Form::Repeated(Box::new(choice(tokens, Some("}")))),
            "(" => choice(tokens, Some(")")),
            word if word.starts_with('"') => Form::Word(word.trim_matches('"').to_owned()),
            rule => Form::Rule(rule.to_owned()),
        };
        choices.last_mut().unwrap().push(form);
    }
    Form::Choice(choices.into_iter().map(Form::Sequence).collect())
}

fn page() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/grammar.md")).unwrap()
}

fn rules() -> BTreeMap<String, Form> {
    let page = page();
    let text = page.split("```ebnf\n").nth(1).unwrap().split("```").next().unwrap();
    let mut rules: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match line.split_once(" = ").filter(|_| line.starts_with(|c: char| c.is_ascii_lowercase())) {
            Some((name, rest)) => rules.push((name.trim().to_owned(), rest.to_owned())),
            None => {
                if let Some(last) = rules.last_mut() {
                    last.1 += &format!(" {line}");
                }
            }
        }
    }
    let form = |text: &str| choice(&mut tokens(text).into_iter().peekable(), None);
    rules.iter().map(|(name, text)| (name.clone(), form(text))).collect()
}

fn words(form: &Form, found: &mut BTreeSet<String>) {
    match form {
        Form::Word(word) => {
            found.insert(word.clone());
        }
        Form::Rule(_) => {}
        Form::Sequence(forms) | Form::Choice(forms) => forms.iter().for_each(|form| words(form, found)),
        Form::Maybe(form) | Form::Repeated(form) => words(form, found),
    }
}

/// Keywords in the grammar.
fn named() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    rules().values().for_each(|form| words(form, &mut found));
    found.retain(|word| word.chars().any(|c| c.is_ascii_alphabetic()));
    found
}

#[test]
fn the_grammar_has_exactly_the_keywords() {
    let keywords: BTreeSet<String> = keywords().map(str::to_owned).collect();
    let named = named();
    let missing: Vec<_> = keywords.difference(&named).collect();
    let unknown: Vec<_> = named.difference(&keywords).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not in the grammar: {missing:?}; not in the parser: {unknown:?}"
    );
}

/// Derives random sentences.
struct Deriver<'a> {
    rules: &'a BTreeMap<String, Form>,
    rng: Rng,
    used: BTreeSet<&'a str>,
}

impl<'a> Deriver<'a> {
    fn deriver(&mut self, form: &'a Form, depth: u32, text: &mut Vec<String>) {
        match form {
            Form::Word(word) => text.push(word.clone()),
            Form::Sequence(forms) => forms.iter().for_each(|form| self.deriver(form, depth, text)),
            Form::Choice(forms) => {
                // At this depth the shortest alternative ends the recursion.
                let pick = if depth > 18 { self.shortest(forms) } else { self.rng.below(forms.len()) };
                self.deriver(&forms[pick], depth, text);
            }
            Form::Maybe(form) => {
                if depth < 18 && self.rng.chance(1, 2) {
                    self.deriver(form, depth, text);
                }
            }
            Form::Repeated(form) => {
                // Many repetitions at the top, few in expressions, whose length is limited.
                let count = match depth {
                    0..4 => self.rng.below(5),
                    4..18 => usize::from(self.rng.chance(1, 5)),
                    _ => 0,
                };
                for _ in 0..count {
                    self.deriver(form, depth, text);
                }
            }
            Form::Rule(name) => match name.as_str() {
                "NAME" => text.push((*self.rng.pick(&["a", "b7", "_x"])).to_owned()),
                "FIELD" => text.push((*self.rng.pick(&["ip.src", "inner.tcp.dport", "own.key"])).to_owned()),
                "NUMBER" => text.push((*self.rng.pick(&["0", "0xff", "0b101", "65_536"])).to_owned()),
                "TIME" => text.push((*self.rng.pick(&["10ns", "1m"])).to_owned()),
                "ADDRESS" => text.push((*self.rng.pick(&["10.0.0.1", "2001:db8::1", "02:00:00:00:00:01"])).to_owned()),
                "TEXT" => text.push((*self.rng.pick(&["\"a  # b\"", "\"x\""])).to_owned()),
                "WIDTH" => text.push((*self.rng.pick(&["u1", "u64"])).to_owned()),
                rule => {
                    let (name, form) =
                        self.rules.get_key_value(rule).unwrap_or_else(|| panic!("there is no rule `{rule}`"));
                    self.used.insert(name);
                    self.deriver(form, depth + 1, text);
                }
            },
        }
    }

    fn shortest(&self, forms: &[Form]) -> usize {
        let is_short = |form: &Form| match form {
            Form::Sequence(forms) => !forms.iter().any(|form| match form {
                Form::Rule(rule) => self.rules.contains_key(rule) && rule != "constant" && rule != "sum",
                Form::Choice(_) => true,
                _ => false,
            }),
            _ => false,
        };
        forms.iter().position(is_short).unwrap_or(0)
    }
}

#[test]
fn the_parser_accepts_sentences_of_the_grammar() {
    let rules = rules();
    let mut deriver = Deriver { rules: &rules, rng: Rng::from_env(0x9a33), used: BTreeSet::new() };
    let (mut seen, mut too_long) = (BTreeSet::new(), 0);
    for _ in 0..1500 {
        let mut text = Vec::new();
        deriver.deriver(&rules["file"], 0, &mut text);
        // The grammar does not exclude a second `function`.
        let rest = text.windows(3).enumerate().filter(|(_, w)| w[0] == "function" && w[2] == ";").map(|(i, _)| i);
        let skip: Vec<usize> = rest.flat_map(|i| i..i + 3).collect();
        let words = text.iter().enumerate().filter(|(i, _)| !skip.contains(i)).map(|(_, word)| word.as_str());
        let words: Vec<&str> = ["function", "f", ";"].into_iter().chain(words).collect();
        seen.extend(words.iter().map(|word| (*word).to_owned()));
        let text = words.join(" ");
        if let Err(errors) = format("sentence", &text) {
            let first = &errors.list[0];
            if first.code == Code::TooDeep {
                // A value exceeds its operator limit, which the page documents.
                too_long += 1;
                continue;
            }
            panic!("{} at {:?}\n{text}", first.message, first.position());
        }
    }
    assert!(too_long < 150, "{too_long} sentences beyond the limit");
    let missing: Vec<_> = named().into_iter().filter(|word| !seen.contains(word)).collect();
    assert!(missing.is_empty(), "never drawn: {missing:?}");
    let unused: Vec<_> = rules.keys().filter(|rule| *rule != "file" && !deriver.used.contains(rule.as_str())).collect();
    assert!(unused.is_empty(), "never used: {unused:?}");
}

/// Collects the words in the patterns of a TextMate grammar.
fn pattern_words(value: &serde_json::Value, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                match value.as_str().filter(|_| matches!(key.as_str(), "match" | "begin" | "end")) {
                    Some(pattern) => {
                        // `\b` is not part of a word.
                        let plain = pattern.replace("\\b", " ");
                        let parts = plain.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')));
                        found.extend(parts.map(str::to_owned));
                    }
                    None => pattern_words(value, found),
                }
            }
        }
        serde_json::Value::Array(list) => list.iter().for_each(|value| pattern_words(value, found)),
        _ => {}
    }
}

#[test]
fn the_editor_knows_every_keyword() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../editors/vscode");
    let read = |file: &str| -> serde_json::Value {
        let text = std::fs::read_to_string(folder.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"))
    };
    let package = read("package.json");
    let language = &package["contributes"]["languages"][0];
    assert_eq!(language["extensions"][0], ".efsm");
    let grammar = &package["contributes"]["grammars"][0];
    assert_eq!(grammar["language"], language["id"]);
    assert_eq!(read(language["configuration"].as_str().unwrap())["comments"]["lineComment"], "#");
    let grammar_file = read(grammar["path"].as_str().unwrap());
    assert_eq!(grammar_file["scopeName"], grammar["scopeName"]);
    let mut known = BTreeSet::new();
    pattern_words(&grammar_file, &mut known);
    let missing: Vec<_> = keywords()
        .filter(|word| !known.contains(*word))
        // A common pattern matches these.
        .filter(|word| !matches!(*word, "5-tuple" | "inner.5-tuple"))
        .collect();
    assert!(missing.is_empty(), "not highlighted: {missing:?}");
    let all = serde_json::to_string(&grammar_file).unwrap();
    assert!(all.contains("5-tuple"));
    // Every included pattern exists.
    for include in all.split("\"include\":\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(grammar_file["repository"][include].is_object(), "there is no `{include}`");
    }
}
