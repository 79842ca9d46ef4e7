// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flow keys.

use flowloom_wire::field::{FIVE_TUPLE, FieldId, INNER_FIVE_TUPLE};

use crate::diagnostic::Code;
use crate::model::{Key, KeyPart, Span};
use crate::syntax::ast::{self, Name};

use super::Checker;
use super::names::Symbol;

impl<'s> Checker<'s, '_> {
    /// Checks the key of an element. `None` if it has no key or an error was reported.
    pub(super) fn key(&mut self, tree: &ast::Key<'s>) -> Option<Key> {
        if tree.fields.is_empty() {
            return None;
        }
        let mut parts: Vec<(KeyPart, Span)> = Vec::new();
        let mut is_ok = true;
        for name in &tree.fields {
            let Some(found) = self.key_parts(*name) else {
                is_ok = false;
                continue;
            };
            for part in found {
                if let Some((_, first)) = parts.iter().find(|(other, _)| *other == part) {
                    let shown = self.part_name(part);
                    self.sink
                        .error(Code::BadKey, name.span, format!("`{shown}` is repeated in the key"), "repeated here")
                        .secondary_label(*first, "first here")
                        .help("name each part once");
                    is_ok = false;
                } else {
                    parts.push((part, name.span));
                }
            }
        }
        if !is_ok {
            return None;
        }
        if tree.biflow {
            let fields: Vec<(FieldId, Span)> = parts
                .iter()
                .filter_map(|(part, span)| match part {
                    KeyPart::Field(field) => Some((*field, *span)),
                    KeyPart::Metadata(_) => None,
                })
                .collect();
            self.check_partners(tree, &fields)?;
        }
        Some(Key { biflow: tree.biflow, parts: parts.into_iter().map(|(part, _)| part).collect() })
    }

    fn key_parts(&mut self, name: Name<'s>) -> Option<Vec<KeyPart>> {
        let tuple = match name.text {
            "5-tuple" => Some(FIVE_TUPLE),
            "inner.5-tuple" => Some(INNER_FIVE_TUPLE),
            _ => None,
        };
        if let Some(names) = tuple {
            return Some(names.iter().filter_map(|n| FieldId::by_name(n)).map(KeyPart::Field).collect());
        }
        if name.text.contains('.') {
            return self.field(name).map(|field| vec![KeyPart::Field(field)]);
        }
        match self.names.look_up(name.text) {
            Some((Symbol::Metadata(i), _)) => return Some(vec![KeyPart::Metadata(i)]),
            Some((Symbol::Broken, _)) => {}
            Some((_, what)) => {
                self.sink
                    .error(
                        Code::BadKey,
                        name.span,
                        format!("{what} `{}` cannot be in a key", name.text),
                        "not a packet field or metadata",
                    )
                    .help("a key consists of packet fields and metadata, as in `key ip.src;`");
            }
            None => {
                let help = match name.text {
                    "any" | "all" | "global" => "one context for all packets is written `key none;`",
                    "flow" | "tuple" | "five_tuple" => "the five fields of a connection are written `key 5-tuple;`",
                    _ => {
                        "a key consists of packet fields, as in `key ip.src;`, and metadata; `flowloom fields` lists the fields"
                    }
                };
                self.sink
                    .error(
                        Code::BadKey,
                        name.span,
                        format!("there is no packet field `{}`", name.text),
                        "not a packet field",
                    )
                    .help(help);
            }
        }
        None
    }

    fn check_partners(&mut self, tree: &ast::Key<'s>, fields: &[(FieldId, Span)]) -> Option<()> {
        let has = |field: FieldId| fields.iter().any(|(other, _)| *other == field);
        let mut is_ok = true;
        for (field, span) in fields {
            if let Some(partner) = field.partner()
                && !has(partner)
            {
                let (name, missing) = (field.name(), partner.name());
                self.sink
                    .error(
                        Code::BadKey,
                        *span,
                        format!("a `biflow` key with `{name}` needs `{missing}` too"),
                        "the other direction is missing",
                    )
                    .help(format!("add `{missing}`, or leave out `biflow`"));
                is_ok = false;
            }
        }
        if is_ok && !fields.iter().any(|(field, _)| field.partner().is_some()) {
            self.sink
                .error(
                    Code::BadKey,
                    tree.span,
                    "a `biflow` key without any field that has a direction",
                    "both directions have the same key",
                )
                .help("add a pair such as `ip.src, ip.dst`, or leave out `biflow`");
            is_ok = false;
        }
        is_ok.then_some(())
    }
}
