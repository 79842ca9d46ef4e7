// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parser for the text of rules.

use super::text::{Atom, Expr, Fact, Item, Op, Order, Sign, Term, When};
use crate::graph::{Binary, Compare};

/// A syntax error in a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule `{rule}`: expected {expected}, found `{found}`")]
pub struct RuleError {
    /// The name of the rule, or its line if it has none.
    pub rule: String,
    /// What was expected.
    pub expected: &'static str,
    /// What was found.
    pub found: String,
}

const FACTS: [(&str, Fact, usize); 14] = [
    ("zeros", Fact::Zeros, 2),
    ("ones", Fact::Ones, 2),
    ("same", Fact::Same, 2),
    ("differ", Fact::Differ, 0),
    ("unsigned", Fact::Unsigned, 1),
    ("signed", Fact::Signed, 1),
    ("low", Fact::Low, 1),
    ("power", Fact::Power, 1),
    ("two-bits", Fact::TwoBits, 2),
    ("run", Fact::Run, 2),
    ("once", Fact::Once, 0),
    ("used", Fact::Used, 1),
    ("unused", Fact::Unused, 1),
    ("division", Fact::Division, 0),
];

const OPS: [(&str, Op); 22] = [
    ("add", Op::Binary(Binary::Add)),
    ("sub", Op::Binary(Binary::Sub)),
    ("mul", Op::Binary(Binary::Mul)),
    ("div", Op::Binary(Binary::Div)),
    ("sdiv", Op::Binary(Binary::SignedDiv)),
    ("mod", Op::Binary(Binary::Mod)),
    ("smod", Op::Binary(Binary::SignedMod)),
    ("and", Op::Binary(Binary::And)),
    ("or", Op::Binary(Binary::Or)),
    ("xor", Op::Binary(Binary::Xor)),
    ("shl", Op::Binary(Binary::ShiftLeft)),
    ("shr", Op::Binary(Binary::ShiftRight)),
    ("sar", Op::Binary(Binary::SignedShiftRight)),
    ("eq", Op::Compare(Compare::Equal)),
    ("below", Op::Compare(Compare::Below)),
    ("slt", Op::Compare(Compare::SignedBelow)),
    ("not", Op::Not),
    ("select", Op::Select),
    ("slice", Op::Slice),
    ("concat", Op::Concat),
    ("sext", Op::SignExtend),
    ("zext", Op::Extend),
];

/// Parses a rule: name, pattern, replacement and conditions.
pub(super) fn rule(text: &str) -> Result<(String, Term, Term, Vec<When>), RuleError> {
    let unnamed =
        |found: &str| RuleError { rule: text.to_owned(), expected: "`name: from => to`", found: found.into() };
    let (name, rest) = text.split_once(": ").ok_or_else(|| unnamed(text))?;
    let (from, rest) = rest.split_once("=>").ok_or_else(|| unnamed(rest))?;
    let (to, when) = rest.split_once(" where ").unwrap_or((rest, ""));
    let reader = |text: &str| Reader { rule: name.to_owned(), words: words(text), at: 0 };
    let (from, to) = (reader(from).whole()?, reader(to).whole()?);
    let when = when.split(',').map(str::trim).filter(|one| !one.is_empty());
    let when = when.map(|one| reader("").condition(one)).collect::<Result<_, _>>()?;
    Ok((name.trim().to_owned(), from, to, when))
}

fn words(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let spaced = text.replace("]*", " ] ").replace('[', " [ ").replace('(', " ( ").replace(')', " ) ");
    all.extend(spaced.split_whitespace().map(str::to_owned));
    all
}

struct Reader {
    rule: String,
    words: Vec<String>,
    at: usize,
}

impl Reader {
    fn wrong<T>(&self, expected: &'static str, found: &str) -> Result<T, RuleError> {
        Err(RuleError { rule: self.rule.clone(), expected, found: found.to_owned() })
    }

    fn next(&mut self) -> String {
        self.at += 1;
        self.words.get(self.at - 1).cloned().unwrap_or_else(|| "the end".to_owned())
    }

    fn peek(&self) -> &str {
        self.words.get(self.at).map_or("the end", String::as_str)
    }

    fn whole(mut self) -> Result<Term, RuleError> {
        let term = self.term()?;
        if self.at == self.words.len() { Ok(term) } else { self.wrong("nothing more", self.peek()) }
    }

    fn term(&mut self) -> Result<Term, RuleError> {
        let word = self.next();
        if word == "(" {
            return self.apply(None);
        }
        if let Some(name) = word.strip_suffix('@') {
            let open = self.next();
            return if open == "(" { self.apply(Some(name.to_owned())) } else { self.wrong("`(`", &open) };
        }
        let (value, width) = match word.split_once(':') {
            Some((value, width)) => (value, Some(self.expr(width)?)),
            None => (word.as_str(), None),
        };
        let value = self.expr(value)?;
        Ok(match value {
            Expr { first: Atom::Name(name), rest } if rest.is_empty() && name.starts_with(char::is_lowercase) => {
                Term::Any { name, width }
            }
            value => Term::Number { value, width },
        })
    }

    fn apply(&mut self, name: Option<String>) -> Result<Term, RuleError> {
        let word = self.next();
        let Some((_, op)) = OPS.iter().find(|(known, _)| *known == word) else {
            return self.wrong("an operation", &word);
        };
        let count = match op {
            Op::Slice => 2,
            Op::SignExtend | Op::Extend => 1,
            _ => 0,
        };
        let mut numbers = Vec::new();
        for _ in 0..count {
            let word = self.next();
            numbers.push(self.expr(&word)?);
        }
        let mut args = Vec::new();
        loop {
            match self.peek() {
                ")" => break,
                "the end" => return self.wrong("`)`", "the end"),
                "[" => {
                    self.at += 1;
                    args.push(Item::Pairs(self.term()?, self.term()?));
                    let close = self.next();
                    if close != "]" {
                        return self.wrong("`]*`", &close);
                    }
                }
                _ => args.push(Item::One(self.term()?)),
            }
        }
        self.at += 1;
        Ok(Term::Apply { name, op: *op, numbers, args })
    }

    fn expr(&self, text: &str) -> Result<Expr, RuleError> {
        let mut rest = text;
        let first = self.atom(&mut rest)?;
        let mut more = Vec::new();
        while !rest.is_empty() {
            const SIGNS: [(&str, Sign); 9] = [
                ("<<", Sign::Left),
                (">>", Sign::Right),
                ("+", Sign::Add),
                ("-", Sign::Sub),
                ("*", Sign::Mul),
                ("%", Sign::Mod),
                ("&", Sign::And),
                ("|", Sign::Or),
                ("^", Sign::Xor),
            ];
            let Some((sign, after)) = SIGNS.iter().find_map(|(text, sign)| Some((*sign, rest.strip_prefix(text)?)))
            else {
                return self.wrong("a sign", rest);
            };
            rest = after;
            more.push((sign, self.atom(&mut rest)?));
        }
        Ok(Expr { first, rest: more })
    }

    fn atom(&self, rest: &mut &str) -> Result<Atom, RuleError> {
        let is_negative = rest.starts_with('-');
        let text = rest.trim_start_matches('-');
        let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
        let (word, after) = text.split_at(end);
        *rest = after;
        match word.parse::<u64>() {
            Ok(value) if is_negative => Ok(Atom::Literal(value.wrapping_neg())),
            Ok(value) => Ok(Atom::Literal(value)),
            Err(_) if word.starts_with(char::is_alphabetic) && !is_negative => Ok(Atom::Name(word.to_owned())),
            Err(_) => self.wrong("a number or a name", text),
        }
    }

    fn condition(&self, text: &str) -> Result<When, RuleError> {
        let all: Vec<&str> = text.split_whitespace().collect();
        let (names, what) = match all.iter().position(|word| *word == "=") {
            Some(at) => (&all[..at], &all[at + 1..]),
            None => (&all[..0], &all[..]),
        };
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        if let Some((_, fact, count)) = FACTS.iter().find(|(known, ..)| what.first() == Some(known)) {
            if names.len() != *count {
                return self.wrong("as many names as the fact gives", text);
            }
            let of = what[1..].iter().map(|word| self.expr(word)).collect::<Result<_, _>>()?;
            return Ok(When::Known(names, *fact, of));
        }
        match (names.as_slice(), what) {
            ([name], [value]) => Ok(When::Let(name.clone(), self.expr(value)?)),
            ([], [left, order, right]) => {
                let order = match *order {
                    "<" => Order::Less,
                    "<=" => Order::LessEqual,
                    ">" => Order::Greater,
                    ">=" => Order::GreaterEqual,
                    "==" => Order::Equal,
                    "!=" => Order::Different,
                    other => return self.wrong("a comparison", other),
                };
                Ok(When::Is(self.expr(left)?, order, self.expr(right)?))
            }
            _ => self.wrong("a condition", text),
        }
    }
}
