// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headers that the function declares, from declaration to parse graph.

use std::sync::Arc;

use flowloom_wire::graph::{GraphError, MAX_USER_HEADERS, Parent, UserField, UserHeader};
use flowloom_wire::{FieldId, Graph};

use crate::diagnostic::{Code, did_you_mean, list_names};
use crate::syntax::ast::{Header as Tree, Name};
use crate::syntax::words;

use super::Checker;
use super::names::check_name;

#[derive(Debug)]
pub(super) struct DeclaredHeader<'s> {
    name: Name<'s>,
    is_used: bool,
}

/// Headers of the standard graph that a declared header can follow.
const PARENTS: [(&str, Parent); 4] =
    [("eth", Parent::Ethernet), ("ip", Parent::Ip), ("udp", Parent::Udp), ("tcp", Parent::Tcp)];

impl<'s> Checker<'s, '_> {
    /// Adds the valid headers to the graph.
    pub(super) fn headers(&mut self, trees: &[Tree<'s>]) {
        for tree in trees {
            let name = tree.name.text;
            let is_there = self.declared_headers.iter().any(|own| own.name.text == name);
            if self.declared_header(tree).is_none() && !is_there {
                self.broken_headers.push(name);
            }
        }
    }

    fn declared_header(&mut self, tree: &Tree<'s>) -> Option<()> {
        let name = tree.name;
        check_name(name, "header", self.sink);
        if let Some(first) = self.declared_headers.iter().find(|own| own.name.text == name.text) {
            let first = first.name.span;
            self.sink
                .error(Code::Duplicate, name.span, format!("duplicate header `{}`", name.text), "this one")
                .secondary_label(first, "and this one")
                .help("give one of them another name; list all selector values of a header in one `when`");
            return None;
        }
        let after = self.parent(tree.after);
        let when: Vec<Option<(FieldId, u64)>> = tree
            .when
            .iter()
            .map(|(field, value)| {
                let constant = self.constant(value, "the selector value of a header");
                let field = self.field(*field)?;
                Some((field, self.selector_value(field, constant?, value.span)?))
            })
            .collect();
        let fields: Vec<Option<UserField>> = tree
            .fields
            .iter()
            .map(|(name, ty)| {
                if name.text.contains('.') {
                    check_name(*name, "field", self.sink);
                    return None;
                }
                Some(UserField { name: name.text.to_owned(), width_bits: self.field_width(*ty)? })
            })
            .collect();
        let header = UserHeader {
            name: name.text.to_owned(),
            after: after?,
            when: when.into_iter().collect::<Option<_>>()?,
            fields: fields.into_iter().collect::<Option<_>>()?,
        };
        if tree.has_syntax_errors || header.name.contains('.') || words::RESERVED.contains(&name.text) {
            return None;
        }
        let mut users = self.graph.user_headers().to_vec();
        users.push(header);
        match Graph::with(&users) {
            Ok(graph) => {
                self.graph = Arc::new(graph);
                self.declared_headers.push(DeclaredHeader { name, is_used: false });
                Some(())
            }
            Err(error) => {
                self.report_header(tree, &users[users.len() - 1], &error);
                None
            }
        }
    }

    fn parent(&mut self, name: Name<'s>) -> Option<Parent> {
        if let Some((_, parent)) = PARENTS.iter().find(|(known, _)| *known == name.text) {
            return Some(*parent);
        }
        if let Some(index) = self.declared_headers.iter().position(|own| own.name.text == name.text) {
            self.declared_headers[index].is_used = true;
            return Some(Parent::User(index));
        }
        if self.broken_headers.contains(&name.text) {
            return None;
        }
        let names: Vec<&str> = PARENTS
            .iter()
            .map(|(known, _)| *known)
            .chain(self.declared_headers.iter().map(|own| own.name.text))
            .collect();
        let help = match name.text {
            "ipv4" | "ipv6" => "write `ip`, which stands for either family".to_owned(),
            "l4" => "write `udp` or `tcp`".to_owned(),
            "vlan" | "vlan2" => "write `eth`, which has the EtherType with or without tags".to_owned(),
            text => match did_you_mean(text, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it can follow {}, each declared before it", list_names(names, 12)),
            },
        };
        self.sink
            .error(
                Code::UnknownHeader,
                name.span,
                format!("a declared header cannot follow `{}`", name.text),
                "not possible here",
            )
            .help(help);
        None
    }

    /// Checks a value that selects a header.
    fn selector_value(
        &mut self,
        field: FieldId,
        constant: super::constant::Constant,
        span: crate::model::Span,
    ) -> Option<u64> {
        if field.width_bits() <= 64 {
            return self.field_constant(field, constant, span);
        }
        let name = self.field_name(field);
        self.sink
            .error(Code::WidthMismatch, span, format!("`{name}` cannot select a header"), "128 bits")
            .help("a selector field has at most 64 bits, such as a port");
        None
    }

    fn field_width(&mut self, ty: Name<'s>) -> Option<u8> {
        let bits = ty.text.strip_prefix('u').filter(|digits| !digits.starts_with('0')).and_then(|d| d.parse().ok());
        let width = match ty.text {
            "ipv4" => Some(32),
            "mac" => Some(48),
            "ipv6" => Some(128),
            _ => bits.filter(|bits| (1..=64).contains(bits)),
        };
        if width.is_none() {
            let help = match ty.text {
                "ip" => "an address of a packet is of one family: `ipv4` or `ipv6`".to_owned(),
                "u128" => {
                    "128 bits are those of an address: `ipv6`; a longer field is split, as `a: u64; b: u64;`".to_owned()
                }
                text if text.starts_with('i') => {
                    "fields are unsigned; a variable that takes the value may be signed".to_owned()
                }
                _ => "types of fields are `u1` to `u64`, `ipv4`, `mac` and `ipv6`".to_owned(),
            };
            self.sink
                .error(Code::UnknownType, ty.span, format!("`{}` is not a field type", ty.text), "unknown type")
                .help(help);
        }
        width
    }

    fn report_header(&mut self, tree: &Tree<'s>, header: &UserHeader, error: &GraphError) {
        let of_field =
            |name: &str| tree.fields.iter().filter(|(field, _)| field.text == name).map(|(f, _)| f.span).next_back();
        let of_when = |field: &str, value: Option<u64>| {
            let is = |(id, expected): &(FieldId, u64)| {
                self.field_name(*id) == field && value.is_none_or(|value| value == *expected)
            };
            let index = header.when.iter().rposition(is)?;
            tree.when.get(index).map(|(name, value)| crate::model::Span { start: name.span.start, end: value.span.end })
        };
        let selector_help = match header.after {
            Parent::Ethernet => "write `when eth.type == VALUE`, the EtherType".to_owned(),
            Parent::Ip => "write `when ip.proto == VALUE`, the protocol number".to_owned(),
            Parent::Udp => "write `when udp.dport == VALUE, udp.sport == VALUE`, one of them or both".to_owned(),
            Parent::Tcp => "write `when tcp.dport == VALUE, tcp.sport == VALUE`, one of them or both".to_owned(),
            Parent::User(_) => {
                format!("write `when {0}.FIELD == VALUE`, with a field of `{0}`, or no `when`", tree.after.text)
            }
        };
        let (code, place, label, help) = match error {
            GraphError::TooMany { .. } => {
                (Code::OutOfRange, None, "one too many", format!("a function has at most {MAX_USER_HEADERS}"))
            }
            GraphError::Name { .. } => (
                Code::ReservedName,
                None,
                "taken",
                "choose another name; `flowloom fields` lists the existing ones".to_owned(),
            ),
            GraphError::Duplicate { field, .. } => {
                (Code::Duplicate, of_field(field), "repeated here", "give one of them another name".to_owned())
            }
            GraphError::Length { found_bits, .. } => {
                let missing = (16 - found_bits % 16) % 16;
                let help = match missing {
                    _ if *found_bits == 0 => "declare its fields, as in `kind: u8; length: u8;`".to_owned(),
                    0 => "a longer header is split in two, the second one `after` the first".to_owned(),
                    _ => format!("add a padding field of {missing} bits, as `pad: u{missing};`"),
                };
                (Code::BadHeaders, None, "this header", help)
            }
            GraphError::Width { field, .. } => (
                Code::BadHeaders,
                of_field(field),
                "this field",
                "types of fields are `u1` to `u64`, `ipv4`, `mac` and `ipv6`".to_owned(),
            ),
            GraphError::Unaligned { field, .. } => (
                Code::BadHeaders,
                of_field(field),
                "this field",
                "complete the byte before it with a padding field".to_owned(),
            ),
            GraphError::Parent { .. } => {
                (Code::BadHeaders, Some(tree.after.span), "not declared", "declare it before".to_owned())
            }
            GraphError::NoSelector { .. } => {
                (Code::BadHeaders, Some(tree.after.span), "`when` is missing", selector_help)
            }
            GraphError::Selector { field, .. } => {
                (Code::BadHeaders, of_when(field, None), "not a selector of this parent", selector_help)
            }
            GraphError::Value { field, value, .. } => {
                (Code::OutOfRange, of_when(field, Some(*value)), "out of range", selector_help)
            }
            GraphError::DuplicateSelector { field, value, .. } => (
                Code::BadHeaders,
                of_when(field, Some(*value)),
                "selector already in use",
                "a value selects one header; choose another value".to_owned(),
            ),
            GraphError::DuplicateSuccessor { .. } => (
                Code::BadHeaders,
                Some(tree.after.span),
                "already in use",
                "select each of them with `when`".to_owned(),
            ),
        };
        self.sink.error(code, place.unwrap_or(tree.name.span), error.to_string(), label).help(help);
    }

    /// Marks a header as used if the function declares it.
    pub(super) fn use_header(&mut self, name: &str) {
        if let Some(own) = self.declared_headers.iter_mut().find(|own| own.name.text == name) {
            own.is_used = true;
        }
    }

    pub(super) fn warn_unused_headers(&mut self) {
        for own in self.declared_headers.iter().filter(|own| !own.is_used) {
            let name = own.name;
            self.sink
                .warning(Code::Unused, name.span, format!("header `{}` is never used", name.text), "declared here")
                .help("remove the declaration, or use its fields");
        }
    }
}
