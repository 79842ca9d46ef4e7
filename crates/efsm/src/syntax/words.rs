//! Words with a meaning of their own.

/// Words that no declaration may take as its name.
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
    "slow",
    "header",
    "then",
    "if",
    "else",
];

/// Words that stand behind `:` as types.
pub(crate) const TYPES: &[&str] =
    &["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "ip", "ipv4", "ipv6", "mac", "time", "port"];

/// What a word of a later version does, and what to write until then; `None` for a word that is none.
pub(crate) fn future_statement(word: &str) -> Option<(&'static str, &'static str)> {
    Some(match word {
        "slow" => ("hands the packet to the slow path", "use `punt`, which hands it to the host"),
        _ => return None,
    })
}

/// What a top-level word of a later version does, and what to write until then.
pub(crate) fn future_item(word: &str) -> Option<(&'static str, &'static str)> {
    Some(match word {
        "import" | "include" | "use" => ("reads another file", "write the function in one file"),
        _ => return None,
    })
}

/// Protocols that are not built in, by the first part of a field's name, with a header that reads them.
pub(crate) const FOREIGN_FIELDS: &[(&str, &str)] = &[
    ("arp", "header arp after eth when eth.type == 0x0806 { ... }"),
    ("vxlan", "header vxlan after udp when udp.dport == 4789 { ... }"),
    ("gre", "header gre after ip when ip.proto == 47 { ... }"),
    ("sctp", "header sctp after ip when ip.proto == 132 { ... }"),
    ("dns", "header dns after udp when udp.dport == 53, udp.sport == 53 { ... }"),
];
