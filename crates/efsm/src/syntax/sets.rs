// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named sets: `set blocked = { 10.0.0.0/8, 80..90 };` and `set blocked = file("blocked.txt");`.

use super::ast::{Name, Set, SetContents, SetItem, SetItemKind};
use super::cursor::{Failed, Parsed, Parser};
use super::token::Kind;

impl<'s> Parser<'s, '_> {
    /// Parses a named set, starting at its keyword.
    pub(super) fn named_set(&mut self) -> Parsed<Set<'s>> {
        self.bump();
        let name = self.name("the name of the set")?;
        self.expect(Kind::Equal, "`=` and the contents of the set")?;
        let contents = if self.is(Kind::OpenBrace) {
            SetContents::Items(self.set_items()?)
        } else if self.eat_word("file").is_some() {
            SetContents::File(self.file_name()?)
        } else {
            return self.fail(
                "`{` or `file`",
                "as in `set blocked = { 10.0.0.0/8, 192.0.2.1 };` or `set blocked = file(\"blocked.txt\");`",
            );
        };
        self.semicolon("the set")?;
        Ok(Set { name, contents })
    }

    /// `("path")`; the span includes the quotes.
    fn file_name(&mut self) -> Parsed<Name<'s>> {
        self.expect(Kind::OpenParen, "`(` and the name of the file, as in `file(\"blocked.txt\")`")?;
        let Some(token) = self.eat(Kind::Text) else {
            return self.fail("the name of the file in quotes", "as in `file(\"blocked.txt\")`");
        };
        self.expect(Kind::CloseParen, "`)`")?;
        Ok(Name { text: self.text_of(token.span).trim_matches('"'), span: token.span })
    }

    fn set_items(&mut self) -> Parsed<Vec<SetItem<'s>>> {
        let open = self.bump();
        let mut items = Vec::new();
        while self.eat(Kind::CloseBrace).is_none() {
            match self.set_item() {
                Ok(item) => items.push(item),
                Err(Failed) => {
                    self.skip_set();
                    return Err(Failed);
                }
            }
            if self.eat(Kind::Comma).is_none() && !self.is(Kind::CloseBrace) {
                self.unexpected("`,` or `}` after an entry of the set")
                    .secondary_label(open.span, "opened here")
                    .help("the entries of a set are separated by commas: `{ 10.0.0.0/8, 192.0.2.1, 80..90 }`");
                self.skip_set();
                return Err(Failed);
            }
        }
        Ok(items)
    }

    fn set_item(&mut self) -> Parsed<SetItem<'s>> {
        let first = self.set_value()?;
        let start = first.span.start;
        let kind = if self.eat(Kind::Slash).is_some() {
            SetItemKind::Prefix(first, self.set_value()?)
        } else if self.eat(Kind::DotDot).is_some() {
            SetItemKind::Range(first, self.set_value()?)
        } else {
            SetItemKind::Value(first)
        };
        Ok(SetItem { span: self.span_from(start), kind })
    }
}
