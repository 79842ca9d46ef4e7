// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many states, many rows, extreme times, preloaded contexts, and programs that exceed a limit.

use std::fmt::Write as _;
use std::time::Instant;

use flowloom_efsm::{Machine, compile};
use flowloom_engine::{Datapath, Snapshot};
use flowloom_lower::{LowerError, LowerOptions, lower};
use flowloom_testkit::{PacketBuilder, Rng};

use super::agree::{Step, agree, function, random_steps, steps_of};

fn udp(host: u8, dport: u16) -> Vec<u8> {
    PacketBuilder::new().ipv4([10, 0, 0, host], [10, 0, 0, 9]).udp(7, dport).build()
}

fn step(now_ns: u64, bytes: Vec<u8>) -> Step {
    Step { bytes, port: 1, now_ns }
}

#[test]
fn three_hundred_states() {
    let names: Vec<String> = (0..300).map(|i| format!("s{i}")).collect();
    let mut text = format!("function f; stateful e {{ key ip.src; states {}; reg n: u16;\n", names.join(", "));
    for i in 0..300 {
        let next = (i + 1) % 300;
        writeln!(text, " on s{i} when udp.dport == 1 -> s{next} {{ n = state; forward(n & 0xff); }}").unwrap();
    }
    text += " on any when udp.dport == 2 stay { n += 1; forward(state & 0xff); }\n otherwise { forward(7); } }";
    let function = function(&text);
    let mut rng = Rng::from_env(300);
    let steps: Vec<Step> = (0..2000)
        .map(|i| step(i, udp(1 + rng.below(2) as u8, if rng.chance(5, 6) { 1 } else { 1 + rng.below(3) as u16 })))
        .collect();
    let coverage = agree(&function, &steps, 1000, None);
    assert!(coverage.elements[0].rows.iter().all(|row| row.values().sum::<u64>() > 0));
}

#[test]
fn hundreds_of_rows_lower_to_small_correct_code() {
    let mut rng = Rng::from_env(0x726f_7773);
    let mut text = "function f; stateful e { key ip.src; states a, b; reg n: u16; reg m: u16;\n".to_owned();
    let fields = ["l4.sport", "l4.dport", "ip.ttl", "ip.tos", "tcp.window", "icmp.id", "vlan.id", "n", "m"];
    for i in 0..100 {
        let mut conditions = Vec::new();
        for _ in 0..=rng.below(3) {
            let (field, bits) = (*rng.pick(&fields), 1 << rng.below(6));
            let relation = *rng.pick(&["==", "!="]);
            conditions.push(format!("{field} & {bits} {relation} 0"));
        }
        let states = *rng.pick(&["a", "b", "any"]);
        let next = *rng.pick(&["stay", "-> a", "-> b", "-> b (idle 5ns)"]);
        writeln!(
            text,
            " on {states} when {} {next} {{ n += {i}; m ^= n; forward({}); }}",
            conditions.join(" && "),
            i & 0xff
        )
        .unwrap();
    }
    text.push_str(" otherwise { pass; } }");
    let function = function(&text);
    let start = Instant::now();
    let program = lower(&function, &LowerOptions::default()).unwrap();
    println!("100 rows: {} instructions in {:?}", program.insns.len(), start.elapsed());
    let steps = random_steps(&mut rng, 3000, 4, &[0, 1, 5]);
    agree(&function, &steps, 50, None);
}

#[test]
fn maximum_times_are_exact() {
    let text = "function f; stateful e { key udp.dport; states a, b; reg n: u8; \
        on a when ip.ttl == 64 && udp.dport == 1 -> b { n = 1; forward(1); } \
        on a when udp.dport == 2 -> b (idle 10ns) { forward(2); } \
        on a when udp.dport == 3 -> a (hard 10ns) { forward(3); } \
        on a when udp.dport == 4 -> a (idle 10ns) { forward(4); } \
        on a stay { n += 1; forward(5); } \
        on b stay { n += 1; forward(6); } }";
    let timed = function(text);
    let untimed = function(&text.replace(" (idle 10ns)", "").replace(" (hard 10ns)", ""));
    let mut rng = Rng::from_env(0x656e_6421);
    for first in [0, u64::MAX - 30, u64::MAX - 11, u64::MAX - 10, u64::MAX] {
        for function in [&timed, &untimed] {
            let packet = |rng: &mut Rng| udp(1, 1 + rng.below(6) as u16);
            let steps = steps_of(&mut rng, 200, first, &[0, 0, 0, 1, 1, 3], packet);
            agree(function, &steps, 1 << 60, None);
        }
    }
}

#[test]
fn preloaded_contexts_are_stored_unchanged() {
    let function = function(
        "function f; stateful e { key udp.dport; size 4; states a, b; reg n: u16 = 7; global g: u32; \
        on a when ip.ttl == 64 && n == 7 stay { forward(1); } \
        on a when n == 8 stay { n = 7; forward(2); } \
        on a when n == 9 -> a { n = 7; g += 1; forward(3); } \
        on b when n == 7 stay { n = 8; forward(4); } \
        on b -> a (idle 5ns) { forward(5); } \
        on a -> b (hard 9ns) { forward(6); } }",
    );
    // Fields: idle deadline, idle period, hard deadline, register, state.
    let record = |idle: u64, period: u64, hard: u64, n: u16, state: u16| {
        let mut bytes: Vec<u8> = [idle, period, hard].iter().flat_map(|v| v.to_le_bytes()).collect();
        bytes.extend([n.to_le_bytes(), state.to_le_bytes(), [0; 2], [0; 2]].concat());
        bytes
    };
    const NONE: u64 = u64::MAX;
    let records = [
        record(NONE, 0, NONE, 7, 0),
        record(NONE, 0, NONE, 8, 0),
        record(5, 5, NONE, 8, 0),
        record(NONE, 4, NONE, 8, 0),
        record(NONE, 0, NONE, 9, 0),
        record(3, 3, NONE, 9, 0),
        record(NONE, 0, 6, 7, 1),
        record(NONE, 0, NONE, 7, 1),
    ];
    // State a has an idle timer, b a hard one. A context that no row can produce is rejected.
    for (odd, expected) in [
        (record(9, 0, NONE, 8, 0), "an idle timer with both a period and a deadline"),
        (record(NONE, 0, 7, 8, 0), "no hard timer in a state"),
        (record(NONE, 4, 6, 7, 1), "no idle timer in a state"),
        (record(5, 4, 6, 7, 1), "no idle timer in a state"),
    ] {
        let start =
            Snapshot { maps: [("e".to_owned(), [(vec![0, 1, 0, 0], odd)].into())].into(), ..Snapshot::default() };
        let error = Machine::new(function.clone()).restore(&start).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut rng = Rng::from_env(0x7072_656c);
    for _ in 0..60 {
        let mut start = Snapshot::default();
        let contexts = start.maps.entry("e".to_owned()).or_default();
        for port in 1..=rng.below(5) as u8 {
            contexts.insert(vec![0, port, 0, 0], rng.pick(&records).clone());
        }
        start.maps.entry(".data".to_owned()).or_default().insert(vec![0; 4], vec![9, 0, 0, 0, 0, 0, 0, 0]);
        let packet = |rng: &mut Rng| udp(1, 1 + rng.below(5) as u16);
        let steps = steps_of(&mut rng, 60, 0, &[0, 0, 1, 2, 4], packet);
        agree(&function, &steps, 10, Some(&start));
    }
}

fn refusal(text: &str) -> LowerError {
    lower(&function(text), &LowerOptions::default()).unwrap_err()
}

#[test]
fn exceeded_limits_name_the_table_and_row() {
    let keys = "ip.src, ip.dst, ipv6.src, ipv6.dst, eth.src, eth.dst";
    let mut text = "function f;\n".to_owned();
    for i in 0..400 {
        let registers: String = (0..70 + i32::from(i == 7)).map(|r| format!("reg r{r}; ")).collect();
        writeln!(text, "stateful e{i} {{ key {keys}; states a; {registers} on a stay {{ r0 += 1; pass; }} }}").unwrap();
    }
    let error = refusal(&text);
    assert!(matches!(&error, LowerError::Stack { found, limit: 512, at } if *found > 512 && at.line == 9), "{error}");
    assert!(error.to_string().contains(":9 (`stateful e7 {"), "{error}");

    let text = |states: usize| {
        let states: Vec<String> = (0..states).map(|i| format!("s{i}")).collect();
        format!(
            "function f;\nstateful e {{\nkey ip.src; states {}; reg n;\non any when n == 9 stay {{ pass; }}\n\
             on any when n < 5 stay {{ n += l4.dport; ip.ttl -= 1; pass; }}\n}}",
            states.join(", ")
        )
    };
    let start = Instant::now();
    let error = refusal(&text(16_000));
    println!("refused in {:?}: {error}", start.elapsed());
    assert!(
        matches!(&error, LowerError::TooLong { found, limit: 400_000, at } if *found > 400_000 && at.line == 5),
        "{error}"
    );

    let rows: String = (0..200).map(|i| format!("on any when n == {i} stay {{ pass; }} ")).collect();
    let text = text(4000).replace("on any when n == 9", &format!("{rows}on any when n == 9"));
    let text = text.replace("stateful e", "stateless first { always { goto e; } }\nstateful e");
    let error = lower(&function(&text), &LowerOptions { counters: true, ..LowerOptions::default() }).unwrap_err();
    assert!(matches!(&error, LowerError::Counters { found, at, .. } if *found > 1 << 19 && at.line == 3), "{error}");
}

#[test]
fn rows_with_too_many_values_are_reported() {
    let registers: String = (0..56).map(|i| format!("reg r{i}: u64;\n")).collect();
    let turned: String = (0..56).map(|i| format!("r{i} = r{} + r{}; ", (i + 1) % 56, (i + 2) % 56)).collect();
    let text = format!(
        "function f;\nstateful s {{\nkey ip.src;\nstates a;\n{registers}on a when l4.dport == 1 stay {{ r1 += 1; pass; }}\n\
         on a stay {{ {turned} pass; }}\n}}\n"
    );
    let error = refusal(&text);
    assert!(matches!(&error, LowerError::Stack { found, at, .. } if *found > 512 && at.line == 62), "{error}");
}

#[test]
fn too_long_emitted_packets_are_reported() {
    let fields = |name: char| -> String { (0..31).map(|i| format!("{name}{i}: u64; ")).collect() };
    let [a, b] = ['a', 'b'].map(fields);
    let text = format!(
        "function f;\nheader one after udp when udp.dport == 7 {{ {a}}}\nheader two after one {{ {b}}}\n\
         stateful s {{\nkey ip.src;\nstates a;\non a when udp.dport == 8 {{\npass;\n}}\non a when udp.dport == 9 {{\npass;\n}}\n}}\n"
    );
    let emit = "emit(1) eth(dst = 02:00:00:00:00:01, src = 02:00:00:00:00:02) / ipv4(src = 10.0.0.1, dst = 10.0.0.2) / \
                udp(sport = 7, dport = 7) / one() / two();\npass";
    let error = refusal(&text.replacen("pass", emit, 1));
    assert!(matches!(&error, LowerError::Stack { found, at, .. } if *found > 512 && at.line == 8), "{error}");
    assert!(error.to_string().contains("(`emit(1) eth("), "{error}");
}

#[test]
fn frame_growth_includes_preceding_elements() {
    // A pushed header that is popped again does not count.
    let growing = |tags: usize| {
        let push = "push vlan(id = 1); ".repeat(tags);
        let text = format!(
            "function f;\nstateless a {{\nwhen vlan.id == 1 {{ {push} goto next; }}\nalways {{ pass; }} }} \
             stateless b {{ always {{ push mpls(label = 1); pop mpls; push vlan(id = 2); pop vlan; pass; }} }}"
        );
        lower(&function(&text), &LowerOptions::default())
    };
    assert!(growing(52).is_ok());
    let error = growing(53).unwrap_err();
    assert!(matches!(&error, LowerError::Headroom { found: 220, limit: 216, at } if at.line == 3), "{error}");
}

#[test]
fn elements_cannot_have_names_of_instruments() {
    for name in ["fl_ports", "fl_seen_0", "fl_mine"] {
        let text =
            format!("function f; stateful {name} {{ key ip.src; states a; reg n; on a stay {{ n += 1; pass; }} }}");
        let errors = compile("f", &text, &[]).unwrap_err();
        assert!(errors.list.len() == 1 && errors.list[0].to_string().contains(name), "{errors}");
    }
}

#[test]
fn writes_update_every_checksum() {
    let function = function(
        "function f; stateless e { when ip.src != ip.dst { ip.src = ip.dst; ip.ttl -= 1; udp.sport = 0xfedc; pass; } \
         when icmp.id == 0xffff { icmp.id = 0; pass; } }",
    );
    // Valid and invalid checksums: all 65536 values, so that every carry of the sum occurs.
    let packets = [
        (udp(1, 9), vec![24, 40]),
        (PacketBuilder::new().ipv6([0xfe; 16], [0x57; 16]).udp(1, 2).payload(&[3; 5]).build(), vec![60]),
        // From one zero to the other: for checksum 0xffff, all other summed words are zero.
        (PacketBuilder::new().ipv4([1; 4], [2; 4]).icmp(8, 0, 0xffff, 7).build(), vec![36]),
    ];
    for (bytes, checksums) in packets {
        let steps: Vec<Step> = (0..=u16::MAX)
            .map(|sum| {
                let mut bytes = bytes.clone();
                for &at in &checksums {
                    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
                }
                step(0, bytes)
            })
            .collect();
        agree(&function, &steps, 1, None);
    }
}
