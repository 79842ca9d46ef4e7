// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One-bit conditions that correspond to no single bit of a header.
//!
//! `icmpx.is_echo_request` is `icmp.type == 8 || icmp6.type == 128`: one alternative for each family, of which a packet
//! can match only one. Its negation matches the other messages of both families.

use flowloom_wire::field::FieldId;

use crate::model::{Condition, Expr, Relation, Width};

/// Names after `icmp.`, `icmp6.` and `icmpx.`, with the message type in ICMP and in ICMPv6.
const MESSAGES: [(&str, u64, u64); 2] = [("is_echo_request", 8, 128), ("is_echo_reply", 0, 129)];

/// Alternatives of the flag called `name`. `None` if there is no such flag.
pub(super) fn alternatives(name: &str, negated: bool) -> Option<Vec<Vec<Condition>>> {
    let (scope, rest) = match name.strip_prefix("inner.") {
        Some(rest) => ("inner.", rest),
        None => ("", name),
    };
    let (header, flag) = rest.split_once('.')?;
    let (_, v4, v6) = *MESSAGES.iter().find(|(known, ..)| *known == flag)?;
    let types: &[(&str, u64)] = match header {
        "icmp" => &[("icmp.type", v4)],
        "icmp6" => &[("icmp6.type", v6)],
        "icmpx" => &[("icmp.type", v4), ("icmp6.type", v6)],
        _ => return None,
    };
    let relation = if negated { Relation::NotEqual } else { Relation::Equal };
    let is_type = |&(field, value): &(&str, u64)| {
        let field = FieldId::by_name(&format!("{scope}{field}"))?;
        let (left, right) = (Expr::Field(field), Expr::Constant(value));
        Some(vec![Condition::Compare { left, relation, right, width: Width::W32, signed: false }])
    };
    types.iter().map(is_type).collect()
}
