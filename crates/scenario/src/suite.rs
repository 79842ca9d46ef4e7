// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A scenario file: its statements, and the settings of its scenarios.

use std::ops::Range;
use std::sync::Arc;

use flowloom_efsm::model::{Source, Span};
use flowloom_engine::{Port, Ports};

use super::cursor::{Cursor, Names};
use super::error::{PendingError, ScenarioErrors};
use super::lex::{Kind, Token, tokens};
use super::packet::is_reserved;

/// Maximum nesting depth of `repeat`.
const DEPTH: usize = 4;

/// The scenarios of one file.
#[derive(Debug, Clone)]
pub struct Suite {
    pub(super) source: Arc<Source>,
    pub(super) tokens: Vec<Token>,
    functions: Vec<String>,
    scenarios: Vec<Scenario>,
}

/// One scenario: input packets, expected outcomes, and settings.
#[derive(Debug, Clone)]
pub struct Scenario {
    name: String,
    line: u32,
    span: Span,
    pub(super) settings: Settings,
    pub(super) body: Vec<Statement>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    pub(super) params: Vec<(String, String)>,
    pub(super) names: Names,
    pub(super) ports: Option<Vec<Port>>,
    pub(super) program: Option<String>,
    pub(super) start_ns: u64,
}

/// A line with its continuation lines, and the block after it.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    pub(super) tokens: Range<usize>,
    pub(super) body: Option<Vec<Statement>>,
}

impl Scenario {
    /// Name of the scenario: the property that it shows.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Line of its start, from 1.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Parameters that the function is to be compiled with.
    pub fn params(&self) -> &[(String, String)] {
        &self.settings.params
    }

    /// The program of the object, if the scenario names one.
    pub fn program(&self) -> Option<&str> {
        self.settings.program.as_deref()
    }

    /// The bound ports.
    pub fn ports(&self) -> Ports {
        match &self.settings.ports {
            Some(ports) => Ports::bound(ports.iter().copied()),
            None => Ports::default(),
        }
    }
}

impl Suite {
    /// Parses the text of a scenario file named `name`. The parts that depend on the function are checked by
    /// [`Script::new`](super::Script::new).
    ///
    /// # Errors
    /// All errors that do not depend on the function.
    pub fn parse(name: &str, text: &str) -> Result<Suite, ScenarioErrors> {
        let source = Arc::new(Source { name: name.to_owned(), text: text.to_owned() });
        let (tokens, mut errors) = tokens(text);
        let statements = Grouper { tokens: &tokens, at: 0, errors: &mut errors }.block(0);
        let mut reader =
            Reader { source: &source, tokens: &tokens, errors, functions: Vec::new(), scenarios: Vec::new() };
        reader.read(statements);
        let Reader { mut errors, functions, scenarios, .. } = reader;
        if scenarios.is_empty() && errors.is_empty() {
            let end = Span { start: text.len(), end: text.len() };
            errors.push(PendingError::new(end, "the file has no scenario").help("begin one with `scenario \"NAME\"`"));
        }
        if errors.is_empty() {
            return Ok(Suite { source, tokens, functions, scenarios });
        }
        errors.sort_by_key(|error| error.span.start);
        Err(ScenarioErrors { name: name.to_owned(), list: errors.into_iter().map(|error| error.of(&source)).collect() })
    }

    /// The file's name, as given.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// The source files of the functions, if the file names them.
    pub fn functions(&self) -> &[String] {
        &self.functions
    }

    /// The scenarios in order; at least one.
    pub fn scenarios(&self) -> &[Scenario] {
        &self.scenarios
    }
}

/// Groups tokens into statements and blocks.
struct Grouper<'a> {
    tokens: &'a [Token],
    at: usize,
    errors: &'a mut Vec<PendingError>,
}

impl Grouper<'_> {
    fn sign(&self, at: usize) -> Option<&'static str> {
        match self.tokens.get(at).map(|token| &token.kind) {
            Some(Kind::Sign(sign)) => Some(*sign),
            _ => None,
        }
    }

    /// True if the token starts a new statement.
    fn begins(&self, at: usize) -> bool {
        let token = &self.tokens[at];
        let goes_on =
            matches!(&token.kind, Kind::Sign("->" | "/" | ",")) || token.kind == Kind::Word("with".to_owned());
        token.starts_line && !goes_on && !matches!(self.sign(at.wrapping_sub(1)), Some("," | "/" | "->"))
    }

    fn block(&mut self, depth: usize) -> Vec<Statement> {
        let mut statements = Vec::new();
        while self.at < self.tokens.len() {
            if self.sign(self.at) == Some("}") {
                if depth > 0 {
                    return statements;
                }
                self.errors.push(PendingError::new(self.tokens[self.at].span, "unmatched `}`"));
                self.at += 1;
                continue;
            }
            let start = self.at;
            while self.at < self.tokens.len()
                && (self.at == start || !self.begins(self.at))
                && !matches!(self.sign(self.at), Some("{" | "}"))
            {
                self.at += 1;
            }
            let tokens = start..self.at;
            let mut body = None;
            if self.sign(self.at) == Some("{") {
                let open = self.tokens[self.at].span;
                if depth == DEPTH {
                    self.errors.push(PendingError::new(open, format!("blocks are nested deeper than {DEPTH}")));
                    self.at = self.tokens.len();
                    return statements;
                }
                self.at += 1;
                body = Some(self.block(depth + 1));
                if self.sign(self.at) == Some("}") {
                    self.at += 1;
                } else {
                    self.errors.push(
                        PendingError::new(open, "the block is not closed")
                            .label("opened here")
                            .help("close it with `}`"),
                    );
                }
            }
            statements.push(Statement { tokens, body });
        }
        statements
    }
}

struct Reader<'a> {
    source: &'a Arc<Source>,
    tokens: &'a [Token],
    errors: Vec<PendingError>,
    functions: Vec<String>,
    scenarios: Vec<Scenario>,
}

impl Reader<'_> {
    fn read(&mut self, statements: Vec<Statement>) {
        let mut common = Settings::default();
        for statement in statements {
            let tokens = &self.tokens[statement.tokens.clone()];
            let word = match tokens.first().map(|token| &token.kind) {
                Some(Kind::Word(word)) => word.as_str(),
                _ => "",
            };
            if word == "scenario" {
                match self.head(tokens) {
                    Ok(name) => {
                        let line = self.source.locate(tokens[0].span.start).0;
                        if self.scenarios.iter().any(|other| other.name == name) {
                            let span = tokens[1].span;
                            self.errors.push(PendingError::new(span, format!("duplicate scenario \"{name}\"")));
                        }
                        let settings = common.clone();
                        self.scenarios.push(Scenario { name, line, span: tokens[0].span, settings, body: Vec::new() });
                    }
                    Err(error) => self.errors.push(error),
                }
                continue;
            }
            let is_setting = matches!(word, "function" | "program" | "param" | "let" | "ports" | "start");
            let result = match (self.scenarios.last_mut(), is_setting) {
                (None, true) if word == "function" => {
                    functions(&self.source.text, tokens).map(|names| self.functions = names)
                }
                (None, true) => setting(&self.source.text, tokens, &mut common),
                (Some(_), true) if word == "function" => {
                    Err(PendingError::new(tokens[0].span, "`function` must precede the first scenario"))
                }
                (Some(scenario), true) if scenario.body.is_empty() => {
                    setting(&self.source.text, tokens, &mut scenario.settings)
                }
                (Some(_), true) => {
                    Err(PendingError::new(tokens[0].span, format!("`{word}` must precede the packets of its scenario")))
                }
                (None, false) => {
                    let span = tokens.first().map_or_else(Span::default, |token| token.span);
                    Err(PendingError::new(span, "no scenario has begun").help("begin one with `scenario \"NAME\"`"))
                }
                (Some(scenario), false) => {
                    scenario.body.push(statement);
                    Ok(())
                }
            };
            self.errors.extend(result.err());
        }
        let empty = self.scenarios.iter().filter(|scenario| scenario.body.is_empty());
        let errors: Vec<PendingError> = empty
            .map(|scenario| PendingError::new(scenario.span, format!("scenario \"{}\" has no packets", scenario.name)))
            .collect();
        self.errors.extend(errors);
    }

    fn head(&self, tokens: &[Token]) -> Result<String, PendingError> {
        let names = Names::new();
        let mut cursor = Cursor::new(&self.source.text, tokens, &names);
        cursor.skip();
        let text = cursor.text("the name of the scenario, in quotes")?;
        let name = String::from_utf8_lossy(text).into_owned();
        cursor.end()?;
        Ok(name)
    }
}

fn functions(text: &str, tokens: &[Token]) -> Result<Vec<String>, PendingError> {
    let names = Names::new();
    let mut cursor = Cursor::new(text, tokens, &names);
    cursor.skip();
    let what = "the file of the function, such as `conntrack.efsm`";
    let functions = cursor.list(|cursor| match cursor.peek() {
        Some(Kind::Bytes(_)) => Ok(String::from_utf8_lossy(cursor.text(what)?).into_owned()),
        _ => Ok(cursor.word(what)?.0.to_owned()),
    })?;
    cursor.end()?;
    Ok(functions)
}

/// Applies a `program`, `param`, `let`, `ports` or `start` statement.
fn setting(text: &str, tokens: &[Token], settings: &mut Settings) -> Result<(), PendingError> {
    let names = settings.names.clone();
    let mut cursor = Cursor::new(text, tokens, &names);
    let (word, _) = cursor.word("a setting")?;
    match word {
        "param" => {
            let (name, _) = cursor.word("the name of a parameter")?;
            cursor.sign("=")?;
            let (Some(first), Some(last)) = (tokens.get(3), tokens.last()) else {
                return Err(cursor.expected("a value"));
            };
            let value = match (&first.kind, tokens.len()) {
                // A name is replaced by its value as written.
                (Kind::Word(word), 4) if names.contains_key(word) => names[word].to_string(),
                _ => text[first.span.start..last.span.end].to_owned(),
            };
            settings.params.retain(|(other, _)| other != name);
            settings.params.push((name.to_owned(), value));
            Ok(())
        }
        "program" => {
            settings.program = Some(cursor.word("the name of a program")?.0.to_owned());
            cursor.end()
        }
        "let" => {
            let (name, span) = cursor.word("a name")?;
            if is_reserved(name) || name.contains(['.', '-']) {
                return Err(PendingError::new(span, format!("`{name}` cannot be a name: it is a keyword of packets"))
                    .help(format!("choose another name, such as `{}1`", name.replace(['.', '-'], "_"))));
            }
            cursor.sign("=")?;
            let value = cursor.value("a value")?;
            cursor.end()?;
            settings.names.insert(name.to_owned(), value);
            Ok(())
        }
        "ports" => {
            settings.ports = Some(cursor.list(Cursor::port)?);
            cursor.end()
        }
        _ => {
            settings.start_ns = cursor.time_ns()?;
            cursor.end()
        }
    }
}
