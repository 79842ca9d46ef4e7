// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keywords and reserved words.

/// Names that no declaration may use.
pub(crate) const RESERVED: &[&str] = &[
    "function",
    "param",
    "const",
    "meta",
    "stateful",
    "stateless",
    "key",
    "size",
    "sweep",
    "full",
    "states",
    "reg",
    "global",
    "on",
    "any",
    "when",
    "always",
    "otherwise",
    "stay",
    "idle",
    "hard",
    "drop",
    "pass",
    "punt",
    "forward",
    "reply",
    "goto",
    "next",
    "in",
    "before",
    "after",
    "now",
    "state",
    "min",
    "max",
    "ror",
    "ewma",
    "biflow",
    "none",
    "reject",
    "evict",
    "expire",
    "preload",
    "time",
    "port",
    "ip",
    "ipv4",
    "ipv6",
    "mac",
    "u8",
    "u16",
    "u32",
    "u64",
    "i8",
    "i16",
    "i32",
    "i64",
    "flood",
    "clone",
    "push",
    "pop",
    "encap",
    "decap",
    "emit",
    "header",
    "slow",
    "then",
    "if",
    "else",
];

/// Type names, which follow `:`.
pub(crate) const TYPES: &[&str] =
    &["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "ip", "ipv4", "ipv6", "mac", "time", "port"];

/// Reserved words without a meaning yet.
pub(crate) const UNUSED: &[&str] = &["slow", "then", "if", "else"];

/// Keywords in one context only; names elsewhere.
pub(crate) const CONTEXTUAL: &[&str] = &[
    "lowest",
    "highest",
    "oldest",
    "vlan",
    "mpls",
    "forget",
    "log",
    "alert",
    "present",
    "set",
    "file",
    "hash",
    "old",
    "5-tuple",
    "inner.5-tuple",
];

/// All keywords: those of declarations, clauses, rows, conditions, actions and types.
pub fn keywords() -> impl Iterator<Item = &'static str> {
    RESERVED.iter().filter(|word| !UNUSED.contains(word)).chain(CONTEXTUAL).copied()
}

/// Purpose and replacement of a word reserved for a later version. `None` for other words.
pub(crate) fn reserved_statement(word: &str) -> Option<(&'static str, &'static str)> {
    Some(match word {
        "slow" => ("hands the packet to the slow path", "use `punt`, which hands it to the host"),
        _ => return None,
    })
}

/// Purpose and replacement of a top-level word reserved for a later version.
pub(crate) fn reserved_item(word: &str) -> Option<(&'static str, &'static str)> {
    Some(match word {
        "import" | "include" | "use" => ("reads another file", "write the function in one file"),
        _ => return None,
    })
}

/// Protocols that are not built in: prefix of the field names, and a header declaration that parses them.
pub(crate) const KNOWN_PROTOCOLS: &[(&str, &str)] = &[
    ("arp", "header arp after eth when eth.type == 0x0806 { ... }"),
    ("vxlan", "header vxlan after udp when udp.dport == 4789 { ... }"),
    ("gre", "header gre after ip when ip.proto == 47 { ... }"),
    ("sctp", "header sctp after ip when ip.proto == 132 { ... }"),
    ("dns", "header dns after udp when udp.dport == 53, udp.sport == 53 { ... }"),
];

#[cfg(test)]
mod tests {
    use super::{TYPES, keywords};

    #[test]
    fn every_word_of_the_parser_is_a_keyword() {
        let parser =
            [include_str!("items.rs"), include_str!("rows.rs"), include_str!("exprs.rs"), include_str!("sets.rs")]
                .concat();
        let mut accepted: Vec<&str> = TYPES.to_vec();
        for start in ["is_word(\"", "eat_word(\"", "self.word() == \""] {
            accepted.extend(parser.split(start).skip(1).filter_map(|rest| rest.split('"').next()));
        }
        for list in ["const ITEMS", "const CLAUSES", "const ROWS", "const TERMINALS", "const STEPS", "const REPORTS"] {
            let found = parser.split(list).nth(1).and_then(|rest| rest.split(';').next());
            let words = found.into_iter().flat_map(|list| list.split('"').skip(1).step_by(2));
            accepted.extend(words);
        }
        assert!(accepted.len() > 60, "{accepted:?}");
        // `then` is matched only to suggest a replacement.
        let unknown: Vec<_> =
            accepted.into_iter().filter(|word| *word != "then" && !keywords().any(|k| k == *word)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
