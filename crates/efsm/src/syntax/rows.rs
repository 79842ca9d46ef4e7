// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows, `otherwise` and the statements in their blocks.

use crate::diagnostic::{Code, did_you_mean};
use crate::model::{BinaryOp, Level, Span};

use super::ast::{
    Block, Element, Expr, Name, Next, Otherwise, Row, Statement, States, Step, Template, Terminal, Timer,
};
use super::cursor::{Failed, Parsed, Parser};
use super::items::ROWS;
use super::token::{Kind, Token};
use super::words;

const TERMINALS: &[&str] = &["drop", "pass", "punt", "forward", "reply", "flood", "goto"];
const FORGET: &str = "forget";
const REPORTS: &[&str] = &["log", "alert"];
pub(super) const STEPS: &[&str] = &["push", "pop", "encap", "decap", "clone", "emit"];

impl<'s> Parser<'s, '_> {
    /// Parses a row or `otherwise`, starting at its keyword.
    pub(super) fn row(&mut self, element: &mut Element<'s>) -> Parsed<()> {
        let first = self.bump();
        let word = Name { text: self.text_of(first.span), span: first.span };
        if word.text == "otherwise" {
            let block = self.block()?;
            element.otherwise.push(Otherwise { word, block });
            return Ok(());
        }
        if let Some(last) = element.otherwise.last() {
            let otherwise = last.word.span;
            self.sink
                .error(Code::UnexpectedToken, word.span, "a row after `otherwise`", "this row")
                .secondary_label(otherwise, "`otherwise` is the last of an element")
                .help("move `otherwise` after all rows");
        }
        let mut states = States::Absent;
        let mut conditions = Vec::new();
        match word.text {
            "on" => {
                states = self.row_states()?;
                if self.eat_word("when").is_some() {
                    conditions = self.conditions()?;
                }
            }
            "when" => conditions = self.conditions()?,
            _ => {}
        }
        let next = self.next_state()?;
        let head = self.span_from(first.span.start);
        if !self.is(Kind::OpenBrace) {
            let help = match self.peek().kind {
                Kind::Name if self.is_word("when") => "conditions come before `stay` or `->`",
                Kind::Name if matches!(self.word(), "if" | "where" | "with") => "conditions start with `when`",
                Kind::AndAnd => "conditions start with `when`",
                Kind::Equal => "a comparison for equality is written `==`",
                _ => "a row is `on STATES [when CONDITIONS] [stay | -> STATE (timers)] { ... }`",
            };
            return self.fail("`{` and the actions of the row", help);
        }
        let block = self.block()?;
        element.rows.push(Row { head, states, conditions, next, block });
        Ok(())
    }

    fn row_states(&mut self) -> Parsed<States<'s>> {
        if self.eat_word("any").is_some() {
            return Ok(States::Any);
        }
        let mut states = vec![self.name("the name of a state, or `any`")?];
        while self.eat(Kind::Comma).is_some() {
            states.push(self.name("the name of a state")?);
        }
        Ok(States::Listed(states))
    }

    fn next_state(&mut self) -> Parsed<Next<'s>> {
        if self.eat_word("stay").is_some() {
            if self.is(Kind::OpenParen) {
                return self
                    .fail("`{`", "`stay` keeps the timers as they are; to set new ones write `-> STATE (idle 1s)`");
            }
            return Ok(Next::Stay);
        }
        let Some(arrow) = self.eat(Kind::Arrow) else { return Ok(Next::Absent) };
        let state = self.name("the name of the next state")?;
        let timers = self.timers()?;
        Ok(Next::To { state, span: self.span_from(arrow.span.start), timers })
    }

    /// Parses an optional `(idle T, hard T)`.
    pub(super) fn timers(&mut self) -> Parsed<Vec<Timer<'s>>> {
        let mut timers = Vec::new();
        if self.eat(Kind::OpenParen).is_some() {
            loop {
                if !(self.is_word("idle") || self.is_word("hard")) {
                    return self.fail(
                        "`idle` or `hard`",
                        "`idle 10s` runs out 10 s after the last packet of the flow, `hard 10s` 10 s from now",
                    );
                }
                let token = self.bump();
                let word = Name { text: self.text_of(token.span), span: token.span };
                timers.push(Timer { word, value: self.expr()? });
                if self.eat(Kind::Comma).is_none() {
                    break;
                }
            }
            self.expect(Kind::CloseParen, "`,` or `)` after the timer")?;
        }
        Ok(timers)
    }

    /// Parses `{ statements }`. Fails only if the `{` is missing.
    fn block(&mut self) -> Parsed<Block<'s>> {
        let open = self.expect(Kind::OpenBrace, "`{`")?;
        let mut block = Block { span: open.span, statements: Vec::new(), has_syntax_errors: false };
        loop {
            if self.eat(Kind::CloseBrace).is_some() {
                break;
            }
            let starts_row = self.is(Kind::Name) && (ROWS.contains(&self.word()) || is_element(self.word()));
            if self.is(Kind::End) || starts_row {
                let here = self.peek().span;
                self.sink
                    .error(Code::Unclosed, open.span, "the block is not closed", "opened here")
                    .secondary_label(here, "still open here")
                    .help("add `}` after the last action");
                block.has_syntax_errors = true;
                break;
            }
            let before = self.peek();
            if self.statement(&mut block).is_err() {
                block.has_syntax_errors = true;
                self.skip_statement(&["on", "when", "always", "otherwise", "stateful", "stateless"]);
            }
            if self.peek() == before {
                self.bump();
            }
        }
        block.span = self.span_from(open.span.start);
        Ok(block)
    }

    fn statement(&mut self, block: &mut Block<'s>) -> Parsed<()> {
        let start = self.peek();
        if start.kind != Kind::Name {
            if self.eat(Kind::Semicolon).is_some() {
                return Ok(());
            }
            return self.fail(
                "an action",
                "actions are `field = value;`, `register += value;`, `forget`, `push`, `pop`, `encap`, `decap`, \
                 `clone`, `emit`, `log`, `alert` and, last, one of `drop`, `pass`, `punt`, `forward`, `reply`, \
                 `flood`, `goto`",
            );
        }
        let word = self.word();
        if let Some(op) = assignment(self.peek_at(1).kind) {
            let target = self.name("a destination")?;
            self.bump();
            let value = self.expr()?;
            let span = self.span_from(start.span.start);
            self.semicolon("the assignment")?;
            block.statements.push(Statement::Assign { target, op, value, span });
            return Ok(());
        }
        if STEPS.contains(&word) || REPORTS.contains(&word) && self.peek_at(1).kind == Kind::OpenParen {
            let kind = self.step()?;
            let span = self.span_from(start.span.start);
            self.semicolon(&format!("`{word}`"))?;
            block.statements.push(Statement::Step { span, kind });
            return Ok(());
        }
        if word == FORGET && self.peek_at(1).kind == Kind::Semicolon {
            let span = self.bump().span;
            self.semicolon("`forget`")?;
            block.statements.push(Statement::Forget { span });
            return Ok(());
        }
        if TERMINALS.contains(&word) {
            let kind = self.terminal()?;
            let span = self.span_from(start.span.start);
            self.semicolon(&format!("`{word}`"))?;
            block.statements.push(Statement::Terminal { span, kind });
            return Ok(());
        }
        self.report_unknown_action(start);
        Err(Failed)
    }

    fn step(&mut self) -> Parsed<Step<'s>> {
        let word = self.bump();
        Ok(match self.text_of(word.span) {
            "push" => Step::Push(self.template()?),
            "pop" => Step::Pop(self.header("`vlan` or `mpls`", "write `pop vlan;` or `pop mpls;`")?),
            "encap" => Step::Encap(self.templates()?),
            "decap" => Step::Decap,
            "log" => self.report(Level::Log)?,
            "alert" => self.report(Level::Alert)?,
            "clone" => Step::Clone(self.step_port()?),
            _ => {
                let port = self.step_port()?;
                Step::Emit(port, self.templates()?)
            }
        })
    }

    /// `("text", value, ...)`
    fn report(&mut self, level: Level) -> Parsed<Step<'s>> {
        let word = level.name();
        self.expect(Kind::OpenParen, "`(` and a text")?;
        let Some(quoted) = self.eat(Kind::Text) else {
            return self.fail("a text in quotes", format!("as in `{word}(\"port scan\", ip.src);`"));
        };
        let span = Span { start: quoted.span.start + 1, end: quoted.span.end - 1 };
        let text = Name { text: self.text_of(span), span };
        let mut values = Vec::new();
        while self.eat(Kind::Comma).is_some() {
            values.push(self.expr()?);
        }
        self.expect(Kind::CloseParen, "`,` or `)` after the text and its values")?;
        Ok(Step::Log(level, text, values))
    }

    fn header(&mut self, expected: &str, help: &str) -> Parsed<Name<'s>> {
        if !self.is(Kind::Name) {
            return self.fail(expected, help);
        }
        self.name(expected)
    }

    /// `(port)`
    fn step_port(&mut self) -> Parsed<Expr<'s>> {
        if self.eat(Kind::OpenParen).is_none() {
            return self.fail(
                "`(` and the port",
                "as in `clone(2);` or `emit(2) eth(dst = ..., src = ...) / ipv4(src = ..., dst = ...) / \
                 icmp(type = 8);`",
            );
        }
        let port = self.expr()?;
        self.expect(Kind::CloseParen, "`)` after the port")?;
        Ok(port)
    }

    /// `header(...) / header(...)`
    fn templates(&mut self) -> Parsed<Vec<Template<'s>>> {
        let mut templates = vec![self.template()?];
        while self.eat(Kind::Slash).is_some() {
            templates.push(self.template()?);
        }
        Ok(templates)
    }

    fn template(&mut self) -> Parsed<Template<'s>> {
        let help = "separate headers by `/`, as in `ipv4(src = a, dst = b) / udp(sport = 1, dport = 2)`";
        let header = self.header("the name of a header", help)?;
        let mut values = Vec::new();
        if self.eat(Kind::OpenParen).is_none() {
            return Ok(Template { header, values });
        }
        while self.eat(Kind::CloseParen).is_none() {
            if self.peek_at(1).kind != Kind::Equal || !self.is(Kind::Name) {
                return self.fail("the name of a field and `=`", "set fields by name: `vlan(id = 5, pcp = 0)`");
            }
            let field = self.name("the name of a field")?;
            self.bump();
            values.push((field, self.expr()?));
            if self.eat(Kind::Comma).is_none() {
                self.expect(Kind::CloseParen, "`,` or `)` after the value")?;
                break;
            }
        }
        Ok(Template { header, values })
    }

    fn terminal(&mut self) -> Parsed<Terminal<'s>> {
        let word = self.bump();
        Ok(match self.text_of(word.span) {
            "drop" => Terminal::Drop,
            "pass" => Terminal::Pass,
            "punt" => Terminal::Punt,
            "reply" => Terminal::Reply,
            "flood" => Terminal::Flood,
            "forward" => Terminal::Forward(match self.eat(Kind::OpenParen) {
                Some(_) if self.eat(Kind::CloseParen).is_some() => None,
                Some(_) => {
                    let port = self.expr()?;
                    self.expect(Kind::CloseParen, "`)` after the port")?;
                    Some(port)
                }
                None => None,
            }),
            _ => Terminal::Goto(self.name("the name of an element")?),
        })
    }

    fn report_unknown_action(&mut self, start: Token) {
        let word = self.word();
        if let Some((what, instead)) = words::reserved_statement(word) {
            self.sink
                .error(
                    Code::NotAvailable,
                    start.span,
                    format!("`{word}`, which {what}, is not available in this version"),
                    "of a later version",
                )
                .help(instead);
            return;
        }
        if self.peek_at(1).kind == Kind::EqualEqual {
            self.bump();
            self.unexpected("`=`").help("`==` compares; a value follows `=`");
            return;
        }
        let help = match word {
            "if" | "else" => {
                "write a row with `when` for each case; rows are tried from top to bottom".to_owned()
            }
            "accept" | "allow" | "permit" => "did you mean `pass`?".to_owned(),
            "deny" | "reject" | "discard" => "did you mean `drop`?".to_owned(),
            "output" | "send" | "redirect" => "did you mean `forward`?".to_owned(),
            "broadcast" => "did you mean `flood`?".to_owned(),
            "copy" | "mirror" => "did you mean `clone`?".to_owned(),
            "delete" | "remove" | "reset" => "did you mean `forget`?".to_owned(),
            "encapsulate" => "did you mean `encap`?".to_owned(),
            "decapsulate" => "did you mean `decap`?".to_owned(),
            "print" | "report" | "warn" | "notify" => "did you mean `log(\"text\", value)`?".to_owned(),
            _ => match did_you_mean(word, TERMINALS.iter().chain(STEPS).chain(REPORTS).copied().chain([FORGET])) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    "actions are `destination = value;`, `forget`, `push`, `pop`, `encap`, `decap`, `clone`, `emit`, `log`, `alert` \
                     and, last, one of `drop`, `pass`, `punt`, `forward`, `reply`, `flood`, `goto`"
                        .to_owned()
                }
            },
        };
        self.unexpected("an action").help(help);
    }
}

fn is_element(word: &str) -> bool {
    matches!(word, "stateful" | "stateless")
}

/// Operator of an assignment. `Some(None)` for `=`, `None` for other tokens.
fn assignment(kind: Kind) -> Option<Option<BinaryOp>> {
    Some(match kind {
        Kind::Equal => None,
        Kind::AddEqual => Some(BinaryOp::Add),
        Kind::SubEqual => Some(BinaryOp::Sub),
        Kind::AndEqual => Some(BinaryOp::And),
        Kind::OrEqual => Some(BinaryOp::Or),
        Kind::XorEqual => Some(BinaryOp::Xor),
        Kind::ShiftLeftEqual => Some(BinaryOp::ShiftLeft),
        Kind::ShiftRightEqual => Some(BinaryOp::ShiftRight),
        _ => return None,
    })
}
