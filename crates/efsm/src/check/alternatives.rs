// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Alternatives of a row: its conditions in disjunctive normal form.
//!
//! `a && (b || !(c && d))` becomes `a && b`, `a && !c`, `a && !d`. Each alternative becomes a row of the model, in
//! source order, so that no target has to implement `||`. An alternative that reads an absent field does not match; the
//! others still may.

use flowloom_wire::Header;
use flowloom_wire::field::FieldId;

use crate::diagnostic::{Code, did_you_mean};
use crate::model::{Condition, Span};
use crate::syntax::ast::{self, Expr as Tree, ExprKind};

use super::{Checker, flags};

/// Maximum number of alternatives of a row.
const MAX_ALTERNATIVES: usize = 64;
/// Maximum number of conditions of an alternative.
const MAX_CONDITIONS: usize = 1024;

impl<'s> Checker<'s, '_> {
    /// Lowers the conditions of a row. `None` if an error was reported.
    pub(super) fn disjunctive_normal_form(&mut self, row: &ast::Row<'s>) -> Option<Vec<Vec<Condition>>> {
        self.is_expanded = false;
        let mut all = Some(vec![Vec::new()]);
        for condition in &row.conditions {
            let found = self.alternatives(condition, false);
            all = match (all, found) {
                (Some(all), Some(found)) => self.product(all, found, condition.span),
                _ => None,
            };
            if all.as_ref().is_some_and(|all| all.iter().any(|one| one.len() > MAX_CONDITIONS)) {
                self.sink
                    .error(
                        Code::TooDeep,
                        condition.span,
                        format!("the row has more than {MAX_CONDITIONS} conditions"),
                        "one condition too many",
                    )
                    .help("compare with a set, as in `l4.dport in {80, 443}`, or keep a part in a metadata field");
                return None;
            }
        }
        if self.is_expanded {
            self.expanded.insert(row.head.start);
        }
        all
    }

    fn alternatives(&mut self, tree: &Tree<'s>, negated: bool) -> Option<Vec<Vec<Condition>>> {
        match &tree.kind {
            ExprKind::Not(inner) => self.alternatives(inner, !negated),
            ExprKind::And(left, right) | ExprKind::Or(left, right) => {
                let joins = matches!(tree.kind, ExprKind::And(..)) != negated;
                let (left, right) = (self.alternatives(left, negated), self.alternatives(right, negated));
                let (mut left, right) = (left?, right?);
                if joins {
                    return self.product(left, right, tree.span);
                }
                left.extend(right);
                self.check_count(left.len(), tree.span)?;
                Some(left)
            }
            ExprKind::Name(name) if flags::alternatives(name, negated).is_some() => {
                self.is_expanded = true;
                flags::alternatives(name, negated)
            }
            _ => {
                let mut conditions = Vec::new();
                self.condition(tree, negated, &mut conditions)?;
                Some(vec![conditions])
            }
        }
    }

    /// Conjunction of two disjunctions: each alternative of `left` with each of `right`.
    fn product(
        &mut self,
        mut left: Vec<Vec<Condition>>,
        right: Vec<Vec<Condition>>,
        span: Span,
    ) -> Option<Vec<Vec<Condition>>> {
        if let [right] = right.as_slice() {
            left.iter_mut().for_each(|left| left.extend_from_slice(right));
            return Some(left);
        }
        self.check_count(left.len().saturating_mul(right.len()), span)?;
        self.is_expanded |= left.len() > 1;
        Some(left.iter().flat_map(|a| right.iter().map(|b| [a.as_slice(), b.as_slice()].concat())).collect())
    }

    fn check_count(&mut self, count: usize, span: Span) -> Option<()> {
        if count <= MAX_ALTERNATIVES {
            return Some(());
        }
        self.sink
            .error(
                Code::TooDeep,
                span,
                format!("the conditions have {count} alternatives, at most {MAX_ALTERNATIVES} are allowed"),
                "too many alternatives",
            )
            .help("compare with a set, as in `l4.dport in {80, 443}`, or write a row for each group of alternatives");
        None
    }

    /// `present(header)` or `present(field)`.
    pub(super) fn presence(&mut self, arguments: &[Tree<'s>], negated: bool, span: Span) -> Option<Condition> {
        let [Tree { kind: ExprKind::Name(name), span: at }] = arguments else {
            self.sink
                .error(Code::BadCondition, span, "`present` takes the name of one header or field", "called here")
                .help("as in `present(udp)`, `present(inner.tcp)` or `present(tcp.opt.wscale)`");
            return None;
        };
        let field = self.field_of_header(name, *at)?;
        if field.headers().is_empty() {
            self.sink
                .error(Code::BadCondition, *at, format!("`{name}` is present in every packet"), "always there")
                .help("test for a header, as in `present(udp)`");
            return None;
        }
        Some(Condition::Present { field, negated })
    }

    /// Returns the field called `name`, or a field that is present exactly when the header called `name` is.
    fn field_of_header(&mut self, name: &'s str, span: Span) -> Option<FieldId> {
        let first = name.strip_prefix("inner.").unwrap_or(name).split('.').next().unwrap_or(name);
        self.use_header(first);
        if let Some(field) = self.graph.field(name) {
            return Some(field);
        }
        let field_of_header = |field: &FieldId| {
            let full = self.graph.field_name(*field);
            full.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')).is_some_and(|rest| !rest.contains('.'))
        };
        // Only `inner.` may precede the name of a header: `tcp.opt` is part of a header.
        let is_header = !name.strip_prefix("inner.").unwrap_or(name).contains('.');
        if let Some(field) = self.graph.fields().filter(|_| is_header).find(field_of_header) {
            return Some(field);
        }
        if self.names.has_syntax_errors || self.has_syntax_errors || self.broken_headers.contains(&first) {
            return None;
        }
        let known: Vec<String> = Header::ALL.into_iter().map(|h| self.graph.header_name(h).to_owned()).collect();
        let help = match did_you_mean(name, known.iter().map(String::as_str).filter(|known| !known.is_empty())) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                "`flowloom fields` lists headers and fields: `ip`, `ipv4`, `udp`, `tcp`, `icmp`, `vlan`, ...".to_owned()
            }
        };
        self.sink
            .error(Code::UnknownHeader, span, format!("there is no header or field `{name}`"), "unknown")
            .help(help);
        None
    }
}
