// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random functions of random conditions, transitions, updates, writes and actions that the front end accepts, on
//! random packets.

use std::fmt::Write as _;

use flowloom_efsm::compile;
use flowloom_efsm::diagnostic::Code;
use flowloom_testkit::Rng;

use super::agree::{agree, function, random_steps, unreached};

const FUNCTIONS: usize = 100;
const GAPS_NS: [u64; 8] = [0, 0, 0, 1, 2, 3, 5, 9];

const REGISTERS: [(&str, &str, i64); 9] = [
    ("a8", "u8", 250),
    ("b8", "i8", -3),
    ("a16", "u16", 0),
    ("b16", "i16", -32768),
    ("a32", "u32", 0xffff_fff0),
    ("b32", "i32", -5),
    ("a64", "u64", 3),
    ("b64", "i64", -1),
    ("clock", "u32 time(1ns)", 0),
];
const GLOBALS: [(&str, &str, i64); 3] = [("g16", "u16", 9), ("g64", "i64", -7), ("g8", "u8", 0)];
const METADATA: [(&str, &str); 5] = [("m", "u64"), ("mb", "u8"), ("mc", "i16"), ("md", "u32"), ("me", "u64")];
/// Fields that can be present together; a row uses one list.
const FIELDS: [&[&str]; 7] = [
    &["ip.ttl", "ip.tos", "ip.proto", "ip.version", "eth.src", "eth.dst", "eth.type", "pkt.len", "pkt.port"],
    &["tcp.seq", "tcp.ack", "tcp.window", "tcp.flags", "l4.sport", "l4.dport", "ip.ttl", "tcp.payload_len", "ip.tos"],
    &["udp.sport", "udp.dport", "l4.sport", "l4.dport", "ip.ttl", "ip.tos", "pkt.len", "eth.src"],
    &["ipv4.src", "ipv4.id", "ipv4.dscp", "ipv4.frag", "l4.sport", "ip.ttl", "ip.tos"],
    &["ipv6.flow_label", "ipv6.tc", "l4.dport", "ip.ttl", "ip.proto", "ip.tos"],
    &["vlan.id", "vlan.pcp", "ip.ttl", "ip.tos", "l4.sport"],
    &["icmp.id", "icmp.type", "icmp6.seq", "vlan2.id", "ip.ttl", "tcp.seq", "udp.dport"],
];
const WRITABLE: [&[&str]; 7] = [
    &["ip.ttl", "ip.tos", "eth.src", "eth.dst"],
    &["tcp.seq", "tcp.ack", "tcp.window", "tcp.flags", "tcp.urgent", "l4.sport", "l4.dport", "ip.ttl"],
    &["udp.sport", "udp.dport", "l4.sport", "l4.dport", "ip.ttl", "ip.tos", "eth.src"],
    &["ipv4.src", "ipv4.dst", "ipv4.id", "ipv4.dscp", "ipv4.ecn", "ipv4.ttl", "l4.sport"],
    &["ipv6.flow_label", "ipv6.tc", "ipv6.hop_limit", "l4.dport", "eth.dst"],
    &["vlan.id", "vlan.pcp", "vlan.dei", "ip.ttl", "l4.sport"],
    &["icmp.id", "icmp6.seq", "vlan2.id", "ip.tos"],
];
const FLAGS: [&str; 7] = ["ipv4.mf", "tcp.is_syn", "vlan.dei", "ipv4.mf", "tcp.is_ack", "vlan.dei", "tcp.is_syn"];
const ADDRESSES: [&str; 6] = ["ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "ip.src", "ip.dst"];
const KEYS: [&str; 10] = [
    "none",
    "ip.src",
    "5-tuple",
    "biflow(5-tuple)",
    "biflow(l4.sport, l4.dport, ip.src, ip.dst)",
    "l4.dport",
    "pkt.port",
    "ip.proto, vlan.id",
    "ip.tos",
    "eth.src, ip.version",
];

/// Names that a row may use.
#[derive(Debug, Clone, Copy)]
struct RowOptions {
    stateful: bool,
    list: usize,
}

fn atom(rng: &mut Rng, options: RowOptions) -> String {
    match rng.below(if options.stateful { 10 } else { 6 }) {
        0 => rng.pick(&METADATA).0.to_owned(),
        1..=3 => rng.pick(FIELDS[options.list]).to_string(),
        4 => {
            let any = rng.next_u64() >> rng.below(64);
            rng.pick(&[
                0,
                1,
                2,
                7,
                8,
                31,
                32,
                63,
                64,
                127,
                128,
                255,
                1000,
                65535,
                0x7fff_ffff,
                0xffff_ffff,
                u64::MAX,
                any,
            ])
            .to_string()
        }
        5 => "now".to_owned(),
        6 => rng.pick(&GLOBALS).0.to_owned(),
        7 if rng.chance(1, 4) => "state".to_owned(),
        _ => rng.pick(&REGISTERS).0.to_owned(),
    }
}

fn expr(rng: &mut Rng, depth: usize, options: RowOptions) -> String {
    if depth == 0 || rng.chance(1, 3) {
        return atom(rng, options);
    }
    let left = expr(rng, depth - 1, options);
    match rng.below(9) {
        0 => format!("(~{left})"),
        1 => format!("(-{left})"),
        2 => format!("min({left}, {})", expr(rng, depth - 1, options)),
        3 => format!("max({left}, {})", expr(rng, depth - 1, options)),
        4 => format!("ror({}, {left})", atom(rng, options)),
        5 => format!("ewma({left}, {}, {})", expr(rng, depth - 1, options), rng.below(64)),
        _ => {
            let op = *rng.pick(&["+", "-", "&", "|", "^", "<<", ">>", "+", "-"]);
            format!("({left} {op} {})", expr(rng, depth - 1, options))
        }
    }
}

fn condition(rng: &mut Rng, options: RowOptions) -> String {
    let not = if rng.chance(1, 3) { "!" } else { "" };
    let field = *rng.pick(FIELDS[options.list]);
    match rng.below(14) {
        0 => {
            let (low, high) = (rng.below(128), 128 + rng.below(2000));
            format!("{not}({field} in {low}..{high})")
        }
        1 | 10..=12 => format!("{field} & {} {} {}", 1 << rng.below(8), rng.pick(&["==", "!="]), 0),
        2 => format!(
            "{not}({} in {})",
            rng.pick(&ADDRESSES),
            rng.pick(&["10.0.0.0/30", "2001:db8::/127", "10.0.0.2/32"])
        ),
        3 => format!("{} {} {}", rng.pick(&ADDRESSES), rng.pick(&["==", "!="]), rng.pick(&ADDRESSES)),
        4 => format!("{not}{}", FLAGS[options.list]),
        5 => {
            let order = rng.pick(&["before", "after"]);
            format!("{not}({} {order} {})", expr(rng, 1, options), expr(rng, 1, options))
        }
        _ => {
            let relation = rng.pick(&["==", "!=", "<", "<=", ">", ">="]);
            let depth = rng.below(3);
            format!("{} {relation} {}", expr(rng, depth, options), atom(rng, options))
        }
    }
}

/// A random subset of a list.
fn some(rng: &mut Rng, names: &[&'static str], most: usize) -> Vec<&'static str> {
    let mut picked = Vec::new();
    for _ in 0..rng.below(most + 1) {
        let name = *rng.pick(names);
        if !picked.contains(&name) {
            picked.push(name);
        }
    }
    picked
}

fn row(rng: &mut Rng, stateful: bool, is_last: bool, later: &[String]) -> String {
    let mut text = String::new();
    let options = RowOptions { stateful, list: *rng.pick(&[0, 0, 1, 1, 2, 2, 3, 4, 5, 6]) };
    let least = if is_last { 0 } else { 1 };
    let conditions: Vec<String> = (0..least + rng.below(2)).map(|_| condition(rng, options)).collect();
    if stateful {
        text.push_str(&format!("on {}", rng.pick(&["a", "b", "c", "a, b", "b, c", "any", "any", "a"])));
        if !conditions.is_empty() {
            text.push_str(&format!(" when {}", conditions.join(" && ")));
        }
        let timers = *rng.pick(&["", "", " (idle 5ns)", " (hard 7ns)", " (idle 4ns, hard 9ns)"]);
        match rng.below(3) {
            0 => text.push_str(" stay"),
            _ => text.push_str(&format!(" -> {}{timers}", rng.pick(&["a", "b", "c", "a"]))),
        }
    } else if conditions.is_empty() {
        text.push_str("always");
    } else {
        text.push_str(&format!("when {}", conditions.join(" && ")));
    }
    text.push_str(" {");
    if stateful {
        let names: Vec<&str> = REGISTERS.iter().chain(&GLOBALS).map(|r| r.0).collect();
        for name in some(rng, &names, 4) {
            let initial = REGISTERS.iter().chain(&GLOBALS).find(|r| r.0 == name).map_or(0, |r| r.2);
            let value = if rng.chance(1, 4) { initial.to_string() } else { expr(rng, 2, options) };
            text.push_str(&format!(" {name} {} {value};", rng.pick(&["=", "=", "+=", "^="])));
        }
    }
    let names: Vec<&str> = METADATA.iter().map(|m| m.0).collect();
    for name in some(rng, &names, 3) {
        text.push_str(&format!(" {name} = {};", expr(rng, 2, options)));
    }
    let writes = if rng.chance(1, 2) { 3 } else { 0 };
    for name in some(rng, WRITABLE[options.list], writes) {
        text.push_str(&format!(" {name} {} {};", rng.pick(&["=", "=", "+=", "-="]), expr(rng, 1, options)));
    }
    if rng.chance(1, 6) {
        text.push_str(" ip.src = ip.dst; ip.dst = ip.src;");
    } else if rng.chance(1, 6) {
        text.push_str(rng.pick::<&str>(&[" ip.dst = 192.0.2.1;", " ip.src = 2001:db8::ffff;", " ipv6.dst = ip.src;"]));
    }
    let goto = |rng: &mut Rng| rng.pick(later).clone();
    match rng.below(8) {
        0 => text.push_str(" drop; }"),
        1 => text.push_str(" pass; }"),
        2 => text.push_str(" reply; }"),
        3 | 4 if !later.is_empty() => text.push_str(&format!(" goto {}; }}", goto(rng))),
        5 => text.push_str(&format!(" forward({}); }}", expr(rng, 1, options))),
        _ => text.push_str(&format!(" forward({} & 0x1ff); }}", expr(rng, 1, options))),
    }
    text
}

/// A function of one to three elements, and the number of generated rows that the front end refused.
fn random_function(rng: &mut Rng) -> (String, usize) {
    let count = 1 + rng.below(3);
    let names: Vec<String> = (0..count).map(|i| format!("e{i}")).collect();
    let mut text = "function f;\n".to_owned();
    for (name, ty) in METADATA {
        writeln!(text, "meta {name}: {ty};").unwrap();
    }
    let mut refused = 0;
    for (i, name) in names.iter().enumerate() {
        let stateful = rng.chance(2, 3);
        let later = &names[i + 1..];
        let rest: String = later.iter().map(|n| format!("stateless {n} {{ always {{ pass; }} }}")).collect();
        if stateful {
            let size = *rng.pick(&["size 2; ", "size 40; ", ""]);
            let key = *rng.pick(&KEYS);
            let size = if key == "none" { "" } else { size };
            writeln!(text, "stateful {name} {{\n key {key}; {size}states a, b, c;").unwrap();
            let variables = REGISTERS.iter().map(|r| ("reg", r)).chain(GLOBALS.iter().map(|g| ("global", g)));
            for (what, (name, ty, initial)) in variables {
                let (ty, unit) = ty.split_once(' ').map_or((*ty, ""), |(ty, unit)| (ty, unit));
                writeln!(text, " {what} {name}: {ty} {unit} = {initial};").unwrap();
            }
        } else {
            writeln!(text, "stateless {name} {{").unwrap();
        }
        let mut rows = 0;
        let wanted = 2 + rng.below(9);
        while rows < wanted {
            let row = row(rng, stateful, rows + 1 == wanted, later);
            match compile("row", &format!("{text}{row}\n}}{rest}"), &[]) {
                Ok((_, warnings)) if warnings.iter().any(|w| matches!(w.code, Code::Constant | Code::ShadowedRow)) => {
                    refused += 1
                }
                Ok(_) => {
                    writeln!(text, " {row}").unwrap();
                    rows += 1;
                }
                Err(_) => refused += 1,
            }
        }
        match later.first() {
            Some(next) if rng.chance(1, 2) => {
                writeln!(text, " otherwise {{ mb = {}; goto {next}; }}\n}}", rng.below(256))
            }
            _ => writeln!(
                text,
                " otherwise {{ mc = -1; {}; }}\n}}",
                rng.pick(&["pass", "drop", "forward(3)", "forward(0)"])
            ),
        }
        .unwrap();
    }
    (text, refused)
}

#[test]
fn random_functions_agree() {
    let mut rng = Rng::from_env(0x7261_6e64);
    let (mut rows, mut reached, mut refused, mut created, mut rejected, mut expired) = (0, 0, 0, 0, 0, 0);
    for _ in 0..FUNCTIONS {
        let (text, dropped) = random_function(&mut rng);
        refused += dropped;
        let function = function(&text);
        let steps = random_steps(&mut rng, 200, 2, &GAPS_NS);
        let coverage = agree(&function, &steps, 6, None);
        let all: usize = function.elements.iter().map(|e| e.rows.len()).sum();
        rows += all;
        reached += all - unreached(&function, &coverage).len();
        for e in &coverage.elements {
            created += e.created;
            rejected += e.rejected;
            expired += e.idle_expired.values().chain(e.hard_expired.values()).sum::<u64>();
        }
    }
    println!(
        "{FUNCTIONS} functions, {rows} rows ({refused} more refused), {reached} reached, {created} contexts created, \
         {rejected} rejected, {expired} expired"
    );
    assert!(
        reached * 4 > rows && created > 1000 && rejected > 100 && expired > 100,
        "{reached} {created} {rejected} {expired}"
    );
}
