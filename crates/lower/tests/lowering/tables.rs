// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long tables of rows that compare the same fields with constants: the lowered search selects the same row as a linear
//! scan.

use std::fmt::Write as _;
use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_engine::{Choices, Datapath as _, Packet, Port};
use flowloom_isa::Program;
use flowloom_lower::{LowerOptions, lower};
use flowloom_testkit::{PacketBuilder, Rng};
use flowloom_vm::Interpreter;

use super::agree::{Step, agree, function, random_steps_of, unreached};

/// A condition on the field with this index, with values close to those of the packets.
fn condition(rng: &mut Rng, field: u32) -> String {
    let (a, b) = (rng.below(4), rng.below(24));
    match field {
        0 => match rng.below(4) {
            0 => format!("ip.src in 10.{a}.0.0/16"),
            1 => format!("ip.src in 10.{a}.{b}.0/24"),
            2 => format!("ip.src in 2001:db8:{a}::/48"),
            _ => format!("ip.src == 10.{a}.{b}.{}", rng.below(3)),
        },
        1 => match rng.below(3) {
            0 => format!("l4.dport in {}..{}", a * 8, a * 8 + b),
            1 => format!("l4.dport in {{{}, {}, {}}}", b, b + 1 + a, b + 100),
            _ => format!("l4.dport == {b}"),
        },
        2 => match rng.below(3) {
            0 => format!("ip.dst == 2001:db8::{a}:{b:x}"),
            1 => format!("ip.dst in 2001:db8::{a}:0/112"),
            _ => format!("ip.dst == 10.0.{a}.{b}"),
        },
        3 => format!("tcp.sport == {b}"),
        4 => format!("!(ip.ttl == {b})"),
        5 => format!("eth.src == 02:00:00:00:0{a}:{b:02x}"),
        6 => format!("ip.ttl < {b}"),
        _ => format!("tcp.seq & 0xffff0000 == {}", a << 16),
    }
}

fn packet(rng: &mut Rng) -> PacketBuilder {
    let (a, b) = (rng.below(4) as u8, rng.below(24) as u8);
    let v6 = |rng: &mut Rng| {
        let mut address = [0_u8; 16];
        address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        match rng.chance(1, 2) {
            true => address[5] = rng.below(4) as u8,
            false => (address[13], address[15]) = (rng.below(4) as u8, rng.below(24) as u8),
        }
        if rng.chance(1, 8) {
            address = [0; 16];
            address[10..].copy_from_slice(&[0xff, 0xff, 10, rng.below(4) as u8, rng.below(24) as u8, 1]);
        }
        address
    };
    let ip = match rng.chance(2, 3) {
        true => PacketBuilder::new().ipv4([10, a, b, rng.below(3) as u8], [10, 0, rng.below(4) as u8, b]),
        false => PacketBuilder::new().ipv6(v6(rng), v6(rng)),
    };
    let (sport, dport) = (rng.below(24) as u16, rng.below(40) as u16);
    if rng.chance(1, 2) { ip.tcp(sport, dport) } else { ip.udp(sport, dport) }
}

/// A function with runs of rows, interrupted by a few rows on other fields.
fn tables(rng: &mut Rng, is_stateful: bool) -> String {
    let mut text = "function f; ".to_owned();
    text += match is_stateful {
        true => "stateful t { key ip.src; states a, b; reg n: u32;\n",
        false => "stateless t {\n",
    };
    let mut number = 0;
    for _ in 0..2 + rng.below(3) {
        let (field, second) = (rng.below(4) as u32, rng.below(8) as u32);
        for _ in 0..18 + rng.below(60) {
            number += 1;
            let mut conditions = vec![condition(rng, field)];
            if rng.chance(1, 3) {
                conditions.push(condition(rng, second));
            }
            if rng.chance(1, 40) {
                conditions.remove(0);
                conditions.push(condition(rng, 6));
            }
            if rng.chance(1, 2) {
                conditions.reverse();
            }
            let when = conditions.join(" && ");
            let port = number % 100;
            match is_stateful {
                false => writeln!(text, "when {when} {{ forward({port}); }}"),
                true => {
                    let states = *rng.pick(&["a", "b", "any"]);
                    let next = *rng.pick(&["stay", "-> b (idle 9ns)", "-> a"]);
                    writeln!(text, "on {states} when {when} {next} {{ n += {port}; forward(n & 0x3f); }}")
                }
            }
            .unwrap();
        }
    }
    text + "otherwise { pass; } }"
}

#[test]
fn random_tables_equal_the_machine() {
    let mut rng = Rng::from_env(0x7461_626c);
    let (mut reached, mut all) = (0, 0);
    for i in 0..24 {
        let function = function(&tables(&mut rng, i % 3 == 2));
        let steps = random_steps_of(&mut rng, 600, &[0, 1, 5], packet);
        let coverage = agree(&function, &steps, 50, None);
        all += function.elements[0].rows.len();
        reached += function.elements[0].rows.len() - unreached(&function, &coverage).len();
    }
    println!("{reached} of {all} rows reached");
    assert!(reached > all / 6, "{reached} of {all}");
}

/// Asserts that fewer than 80 instructions are executed for each packet.
fn assert_fast(program: Program, steps: &[Step]) {
    let mut engine = Interpreter::new(Arc::new(program)).unwrap();
    let executed = |step: &Step| {
        let before = engine.executed();
        let packet = Packet { bytes: &step.bytes, port: Port(step.port) };
        engine.process(&packet, &Choices::seeded(step.now_ns, 1, 0)).unwrap();
        engine.executed() - before
    };
    let most = steps.iter().map(executed).max().unwrap();
    assert!(most < 80, "{most} instructions for a packet");
}

/// A stateless function with a row for each condition; row `i` forwards to port `i % 200`.
fn stateless(conditions: impl Iterator<Item = String>) -> Arc<Function> {
    let rows = conditions.zip(0..).map(|(when, i)| format!("when {when} {{ forward({}); }}\n", i % 200));
    function(&format!("function f; stateless t {{\n{}otherwise {{ pass; }} }}", rows.collect::<String>()))
}

#[test]
fn thousands_of_rows_are_searched() {
    let function = stateless((0..4000_u32).map(|i| {
        let [_, a, b, c] = (i * 5).to_be_bytes();
        format!("ip.src == 10.{a}.{b}.{c}")
    }));
    let mut steps: Vec<Step> = Vec::new();
    for i in (0..20_000_u32).step_by(7).chain([19_995, 19_996, 20_000, 0x00ff_ffff]) {
        let [_, a, b, c] = i.to_be_bytes();
        let bytes = PacketBuilder::new().ipv4([10, a, b, c], [10, 0, 0, 9]).udp(7, 9).build();
        steps.push(Step { bytes, port: 1, now_ns: i.into() });
    }
    agree(&function, &steps, 1 << 40, None);
    // With counters, the program is longer than the range of a jump.
    let [without, with] =
        [false, true].map(|counters| lower(&function, &LowerOptions { counters, ..Default::default() }).unwrap());
    println!("4000 rows: {} instructions, {} with counters", without.insns.len(), with.insns.len());
    assert!(with.insns.len() > 1 << 15, "{}", with.insns.len());
    assert_fast(without, &steps);
}

/// Rows with three conditions and unordered values: the actions of a row are far from the search that selects it.
#[test]
fn jumps_of_long_programs_are_in_range() {
    let mut rng = Rng::from_env(0x6661_7200);
    let function = stateless((0..2500).map(|_| {
        let [a, b, c, d, ..] = rng.below(1 << 32).to_le_bytes();
        let port = rng.below(1 << 16);
        format!("ip.src == 10.{a}.{b}.{c} && ip.dst in 10.{d}.0.0/16 && l4.dport == {port}")
    }));
    let program = lower(&function, &LowerOptions::default()).unwrap();
    assert!(program.insns.len() > 1 << 16, "{}", program.insns.len());
}

/// A set is searched like its single values.
#[test]
fn sets_are_searched() {
    let function = stateless((0..100_u32).map(|i| {
        let ports: Vec<String> = (0..40).map(|k| ((i + 101 * k) % 65_536).to_string()).collect();
        format!("tcp.dport in {{{}}}", ports.join(", "))
    }));
    let program = lower(&function, &LowerOptions::default()).unwrap();
    let step = |i: u32| {
        let bytes = PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 9]).tcp(7, (i % 4200) as u16).build();
        Step { bytes, port: 1, now_ns: i.into() }
    };
    let steps: Vec<Step> = (0..600).map(|i| step(i * 7)).collect();
    agree(&function, &steps, 1 << 40, None);
    assert_fast(program, &steps);
}
