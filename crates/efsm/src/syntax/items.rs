// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Declarations: the function's name, parameters, constants, metadata, elements and their clauses.

use crate::diagnostic::{Code, did_you_mean};
use crate::model::Span;

use super::ast::{
    Clause, ClauseKind, Constant, Element, Expire, Header, Key, Name, Param, Policy, Preload, Program, Variable,
};
use super::cursor::{Failed, Parsed, Parser};
use super::rows::STEPS;
use super::token::Kind;
use super::words;

/// Keywords that start a top-level item, and so end an unclosed element.
const ITEMS: &[&str] = &["function", "param", "const", "set", "meta", "stateful", "stateless", "header"];
/// Keywords that start a clause of an element.
const CLAUSES: &[&str] = &["key", "size", "sweep", "full", "states", "reg", "global", "expire", "preload"];
/// Keywords that start a row.
pub(super) const ROWS: &[&str] = &["on", "when", "always", "otherwise"];

impl<'s> Parser<'s, '_> {
    pub(crate) fn program(mut self) -> Program<'s> {
        let mut program = Program::default();
        while !self.is(Kind::End) {
            let before = self.peek();
            if self.item(&mut program).is_err() {
                program.has_syntax_errors = true;
                self.skip_statement(ITEMS);
            }
            if self.peek() == before {
                self.bump();
            }
        }
        program
    }

    fn item(&mut self, program: &mut Program<'s>) -> Parsed<()> {
        match self.word() {
            "function" => self.function(program)?,
            "param" => program.params.push(self.param()?),
            "const" => program.constants.push(self.constant()?),
            "set" => program.sets.push(self.named_set()?),
            "meta" => {
                self.bump();
                program.metadata.push(self.variable("metadata")?);
            }
            "header" => program.headers.push(self.declared_header()?),
            "stateful" => self.element(program, true)?,
            "stateless" => self.element(program, false)?,
            word => return Err(self.no_item(word)),
        }
        Ok(())
    }

    fn no_item(&mut self, word: &'s str) -> Failed {
        if let Some((what, instead)) = words::reserved_item(word) {
            let span = self.bump().span;
            let message = format!("`{word}`, which {what}, is not available in this version");
            self.sink.error(Code::NotAvailable, span, message, "of a later version").help(instead);
            return Failed;
        }
        let help = match word {
            _ if CLAUSES.contains(&word) || ROWS.contains(&word) => {
                format!(
                    "`{word}` is allowed only in an element: `stateful name {{ ... }}` or `stateless name {{ ... }}`"
                )
            }
            "}" => "remove an extra `}`, or find the element that is closed too early".to_owned(),
            _ => match did_you_mean(word, ITEMS.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "a function consists of `param`, `const`, `set`, `meta`, `header`, `stateful` and `stateless`"
                    .to_owned(),
            },
        };
        self.unexpected("a declaration").help(help);
        Failed
    }

    fn function(&mut self, program: &mut Program<'s>) -> Parsed<()> {
        let start = self.bump();
        let name = self.name("the name of the function")?;
        self.semicolon("the name of the function")?;
        match program.name {
            Some(first) => {
                self.sink
                    .error(Code::Duplicate, self.span_of(start.span, name.span), "a second `function`", "named again")
                    .secondary_label(first.span, "named here")
                    .help("a file holds one function; move the other to a separate file");
            }
            None => program.name = Some(name),
        }
        Ok(())
    }

    fn span_of(&self, first: Span, last: Span) -> Span {
        Span { start: first.start, end: last.end }
    }

    fn param(&mut self) -> Parsed<Param<'s>> {
        self.bump();
        let name = self.name("the name of the parameter")?;
        if !self.is(Kind::Colon) {
            return self.fail("`:` and a type", format!("as in `param {}: u16 = 1;`", name.text));
        }
        self.bump();
        let ty = self.name("a type")?;
        let default = self.eat(Kind::Equal).map(|_| self.expr()).transpose()?;
        self.semicolon("the parameter")?;
        Ok(Param { name, ty, default })
    }

    fn constant(&mut self) -> Parsed<Constant<'s>> {
        self.bump();
        let name = self.name("the name of the constant")?;
        self.expect(Kind::Equal, "`=` and a value")?;
        let value = self.expr()?;
        self.semicolon("the constant")?;
        Ok(Constant { name, value })
    }

    /// `name: type time(unit) = initial;`, after the keyword.
    fn variable(&mut self, what: &str) -> Parsed<Variable<'s>> {
        let name = self.name(&format!("the name of the {what}"))?;
        let ty = self.eat(Kind::Colon).map(|_| self.name("a type")).transpose()?;
        let unit = match self.eat_word("time") {
            Some(_) => {
                self.expect(Kind::OpenParen, "`(` and the unit of the clock, as in `time(1us)`")?;
                let unit = self.expr()?;
                self.expect(Kind::CloseParen, "`)`")?;
                Some(unit)
            }
            None => None,
        };
        let initial = self.eat(Kind::Equal).map(|_| self.expr()).transpose()?;
        self.semicolon(&format!("the {what}"))?;
        Ok(Variable { name, ty, unit, initial })
    }

    /// `header name after parent when field == value, ... { field: type; ... }`
    fn declared_header(&mut self) -> Parsed<Header<'s>> {
        self.bump();
        let name = self.name("the name of the header")?;
        if self.eat_word("after").is_none() {
            return self.fail(
                "`after` and the header before it",
                format!("as in `header {} after udp when udp.dport == 0x8888 {{ kind: u8; length: u8; }}`", name.text),
            );
        }
        let after = self.name("the name of the header before it")?;
        let mut when = Vec::new();
        if self.eat_word("when").is_some() {
            loop {
                let field = self.name("a packet field")?;
                if self.eat(Kind::EqualEqual).is_none() {
                    return self.fail(
                        "`==` and a value",
                        "a header is selected by preceding fields: `when udp.dport == 0x8888, udp.sport == 0x8888`",
                    );
                }
                when.push((field, self.expr()?));
                if self.eat(Kind::Comma).is_none() {
                    break;
                }
            }
        }
        let open = self.expect(Kind::OpenBrace, "`{` and the fields of the header")?;
        let mut header = Header { name, after, when, fields: Vec::new(), has_syntax_errors: false };
        while self.eat(Kind::CloseBrace).is_none() {
            let is_item = ITEMS.contains(&self.word()) && self.peek_at(1).kind != Kind::Colon;
            if self.is(Kind::End) || is_item {
                let here = self.peek().span;
                self.sink
                    .error(Code::Unclosed, open.span, format!("header `{}` is not closed", name.text), "opened here")
                    .secondary_label(here, "still open here")
                    .help("add `}` after the last field of the header");
                header.has_syntax_errors = true;
                break;
            }
            let before = self.peek();
            match self.declared_field() {
                Ok(field) => header.fields.push(field),
                Err(Failed) => {
                    header.has_syntax_errors = true;
                    self.skip_statement(ITEMS);
                    if self.peek() == before {
                        self.bump();
                    }
                }
            }
        }
        Ok(header)
    }

    fn declared_field(&mut self) -> Parsed<(Name<'s>, Name<'s>)> {
        let name = self.name("the name of a field, or `}`")?;
        if self.eat(Kind::Colon).is_none() {
            return self.fail("`:` and a type", format!("as in `{}: u16;`", name.text));
        }
        let ty = self.name("a type")?;
        self.semicolon("the field")?;
        Ok((name, ty))
    }

    fn element(&mut self, program: &mut Program<'s>, is_stateful: bool) -> Parsed<()> {
        self.bump();
        let name = match self.name("the name of the element") {
            Ok(name) => name,
            Err(Failed) if self.is(Kind::OpenBrace) => Name { text: "", span: self.peek().span },
            Err(Failed) => return Err(Failed),
        };
        let mut element = Element {
            name,
            is_stateful,
            clauses: Vec::new(),
            rows: Vec::new(),
            otherwise: Vec::new(),
            has_syntax_errors: false,
            has_row_errors: false,
        };
        let open = self.expect(Kind::OpenBrace, "`{`")?;
        loop {
            let before = self.peek();
            if self.eat(Kind::CloseBrace).is_some() {
                break;
            }
            if self.is(Kind::End) || (self.is(Kind::Name) && ITEMS.contains(&self.word())) {
                let here = self.peek().span;
                self.sink
                    .error(Code::Unclosed, open.span, format!("element `{}` is not closed", name.text), "opened here")
                    .secondary_label(here, "still open here")
                    .help("add `}` after the last row of the element");
                break;
            }
            let is_row = ROWS.contains(&self.word());
            let result = if is_row { self.row(&mut element) } else { self.clause(&mut element) };
            if result.is_err() {
                element.has_row_errors |= is_row;
                element.has_syntax_errors |= !is_row;
                self.skip_statement(&[CLAUSES, ROWS, ITEMS].concat());
            }
            if self.peek() == before {
                self.bump();
            }
        }
        program.elements.push(element);
        Ok(())
    }

    fn clause(&mut self, element: &mut Element<'s>) -> Parsed<()> {
        let token = self.peek();
        let word = Name { text: self.word(), span: token.span };
        if !CLAUSES.contains(&word.text) {
            let help = if STEPS.contains(&word.text) || self.peek_at(1).kind == Kind::Equal {
                "actions belong in the block of a row: `on STATE when CONDITION { ... }`".to_owned()
            } else if matches!(word.text, "state" | "register" | "registers") {
                format!("did you mean `{}`?", if word.text == "state" { "states" } else { "reg" })
            } else {
                match did_you_mean(word.text, CLAUSES.iter().chain(ROWS).copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "an element has `key`, `size`, `sweep`, `full`, `states`, `expire`, `reg`, `global`, `preload`, \
                             then rows that start with `on`, `when` or `always`, then `otherwise`"
                        .to_owned(),
                }
            };
            return self.fail("a clause or a row", help);
        }
        self.bump();
        let kind = match word.text {
            "key" => ClauseKind::Key(self.key()?),
            "size" => {
                let size = self.expr()?;
                self.semicolon("the size")?;
                ClauseKind::Size(size)
            }
            "sweep" => {
                let sweep = self.expr()?;
                self.semicolon("the sweep period")?;
                ClauseKind::Sweep(sweep)
            }
            "full" => ClauseKind::Full(self.policy()?),
            "expire" => ClauseKind::Expire(self.expire()?),
            "preload" => ClauseKind::Preload(self.preload(token.span.start)?),
            "states" => ClauseKind::States(self.states()?),
            "reg" => ClauseKind::Register(self.variable("register")?),
            _ => ClauseKind::Global(self.variable("global register")?),
        };
        element.clauses.push(Clause { word, kind });
        Ok(())
    }

    fn policy(&mut self) -> Parsed<Policy<'s>> {
        let policy = if self.eat_word("reject").is_some() {
            Policy::Reject
        } else if self.eat_word("evict").is_some() {
            if self.eat_word("oldest").is_some() {
                Policy::Oldest
            } else if self.eat_word("lowest").is_some() {
                Policy::Lowest(self.name("the name of a register")?)
            } else if self.eat_word("highest").is_some() {
                Policy::Highest(self.name("the name of a register")?)
            } else {
                return self.fail(
                    "`lowest`, `highest` or `oldest`",
                    "`full evict lowest r;` evicts the context with the smallest value of the register `r`, \
                     `full evict oldest;` the least recently used one",
                );
            }
        } else {
            return self.fail(
                "`reject` or `evict`",
                "`full reject;` keeps all contexts of a full table and counts rejected packets; `full evict oldest;`, \
                 `full evict lowest r;` and `full evict highest r;` evict a context",
            );
        };
        self.semicolon("the policy")?;
        Ok(policy)
    }

    fn states(&mut self) -> Parsed<Vec<Name<'s>>> {
        let mut states = Vec::new();
        loop {
            states.push(self.name("the name of a state")?);
            if self.is(Kind::Arrow) || self.is_word("then") {
                return self.fail(
                    "`,` or `;`",
                    "the successor of a state on expiry is declared by a clause: `expire open -> closing;`",
                );
            }
            if self.eat(Kind::Comma).is_none() {
                break;
            }
        }
        self.semicolon("the list of states")?;
        Ok(states)
    }

    /// `expire state -> successor (timers);`, after the keyword.
    fn expire(&mut self) -> Parsed<Expire<'s>> {
        let state = self.name("the name of the expiring state")?;
        if self.eat(Kind::Arrow).is_none() {
            return self.fail("`->` and the state that follows", "as in `expire open -> closing (idle 5s);`");
        }
        let to = self.name("the name of the state that follows")?;
        let timers = self.timers()?;
        self.semicolon("the successor")?;
        Ok(Expire { state, to, timers })
    }

    /// `preload values -> state { registers }`, after the keyword, which is at `start`.
    fn preload(&mut self, start: usize) -> Parsed<Preload<'s>> {
        let mut key = Vec::new();
        if self.eat(Kind::OpenParen).is_some() {
            loop {
                key.push(self.expr()?);
                if self.eat(Kind::Comma).is_none() {
                    break;
                }
            }
            self.expect(Kind::CloseParen, "`,` or `)` after the values of the key")?;
        } else {
            key.push(self.expr()?);
        }
        if self.eat(Kind::Arrow).is_none() {
            let help = match self.peek().kind {
                Kind::Comma => "write several values of a key in parentheses: `preload (10.0.0.1, 80) -> open;`",
                _ => {
                    "as in `preload 10.0.0.1 -> open { credit = 1000; }`: the values of the key, the state, the registers"
                }
            };
            return self.fail("`->` and the state of the context", help);
        }
        let state = self.name("the name of a state")?;
        let span = self.span_from(start);
        let mut registers = Vec::new();
        if self.eat(Kind::OpenBrace).is_none() {
            self.semicolon("the context")?;
            return Ok(Preload { span, key, state, registers });
        }
        while self.eat(Kind::CloseBrace).is_none() {
            let name = self.name("the name of a register, or `}`")?;
            self.expect(Kind::Equal, "`=` and a value")?;
            let value = self.expr()?;
            self.semicolon("the value of the register")?;
            registers.push((name, value));
        }
        Ok(Preload { span, key, state, registers })
    }

    fn key(&mut self) -> Parsed<Key<'s>> {
        let start = self.peek().span.start;
        let mut key = Key { span: Span::default(), biflow: false, fields: Vec::new() };
        if self.eat_word("none").is_none() {
            key.biflow = self.eat_word("biflow").is_some();
            let open = if key.biflow {
                Some(self.expect(Kind::OpenParen, "`(` and the fields of the key")?)
            } else {
                self.eat(Kind::OpenParen)
            };
            loop {
                let Some(token) = self.eat(Kind::FiveTuple).or_else(|| self.eat(Kind::Name)) else {
                    return self.fail(
                        "a packet field",
                        "as in `key ip.src;`, `key 5-tuple;`, `key biflow(5-tuple);`; `key none;` keeps one context \
                         for all packets",
                    );
                };
                key.fields.push(Name { text: self.text_of(token.span), span: token.span });
                if self.eat(Kind::Comma).is_none() {
                    break;
                }
            }
            if open.is_some() {
                self.expect(Kind::CloseParen, "`,` or `)`")?;
            }
            if open.is_some() && self.peek().kind == Kind::Comma {
                let fields: Vec<&str> = key.fields.iter().map(|field| field.text).collect();
                let (open, close) = if key.biflow { ("biflow(", ")") } else { ("", "") };
                let whole = format!("`key {open}{}, vlan.id{close};`", fields.join(", "));
                return self.fail("`;`", format!("write all parts of a key in one list, as in {whole}"));
            }
        }
        key.span = self.span_from(start);
        self.semicolon("the key")?;
        Ok(key)
    }
}
