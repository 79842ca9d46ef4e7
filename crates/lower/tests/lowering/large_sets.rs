// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of thousands of prefixes from a file: small programs, few instructions per packet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use flowloom_efsm::{Machine, compile_with};
use flowloom_engine::{Choices, Datapath, Packet, Port};
use flowloom_lower::{LowerOptions, lower};
use flowloom_testkit::{PacketBuilder, Rng};
use flowloom_vm::Interpreter;

/// Random prefixes, as lines of a file.
fn prefixes(rng: &mut Rng, v4: usize, v6: usize) -> String {
    let mut text = "# made at random\n\n".to_owned();
    for _ in 0..v4 {
        let length = 16 + rng.below(17) as u32;
        let address = rng.next_u64() as u32 & u32::MAX << (32 - length);
        writeln!(text, "{}/{length}", Ipv4Addr::from_bits(address)).unwrap();
    }
    for _ in 0..v6 {
        let length = 32 + 8 * rng.below(13) as u32;
        let bits = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        let address = (bits >> 3 | 1 << 125) & u128::MAX << (128 - length);
        writeln!(text, "{}/{length}  # a network", Ipv6Addr::from_bits(address)).unwrap();
    }
    text
}

#[test]
fn thousands_of_prefixes_are_searched() {
    let mut rng = Rng::from_env(0x5e70);
    for (v4, v6, most) in [(10_000, 0, 80), (0, 2_000, 96), (10_000, 2_000, 112)] {
        let list = prefixes(&mut rng, v4, v6);
        let files = BTreeMap::from([("blocked.txt".to_owned(), list.clone())]);
        for rows in ["when ip.src in blocked { drop; }", "when !(ip.src in blocked) && ip.ttl > 0 { forward(1); }"] {
            let text = format!(
                "function f; set blocked = file(\"blocked.txt\"); stateless e {{ {rows} otherwise {{ pass; }} }}"
            );
            let start = Instant::now();
            let (function, warnings) = compile_with("f", &text, &[], &files).unwrap();
            let checked = start.elapsed();
            assert!(warnings.iter().all(|w| w.message.contains("duplicate")), "{warnings:?}");
            let function = Arc::new(function);
            let program = lower(&function, &LowerOptions::default()).unwrap();
            println!(
                "{v4} and {v6} prefixes: {} instructions, checked in {checked:?}, lowered in {:?}",
                program.insns.len(),
                start.elapsed() - checked
            );
            assert!(program.insns.len() < 60_000);
            let mut interp = Interpreter::new(Arc::new(program)).unwrap().with_strict_stack();
            let mut machine = Machine::new(function);
            let networks: Vec<&str> = list.lines().filter_map(|line| line.split('/').next()).skip(2).collect();
            let mut results = BTreeSet::new();
            for i in 0..2000 {
                let src = *rng.pick(&networks);
                let change = |rng: &mut Rng| *rng.pick(&[0_u32, 0, 0, 1, 0xff, 1 << 20]);
                let builder = match (src.parse::<Ipv4Addr>(), src.parse::<Ipv6Addr>()) {
                    (Ok(address), _) => {
                        let src = (address.to_bits() ^ change(&mut rng)).wrapping_sub(u32::from(rng.chance(1, 4)));
                        PacketBuilder::new().ipv4(src.to_be_bytes(), [10, 0, 0, 9])
                    }
                    (_, Ok(address)) => {
                        let src = address.to_bits() ^ u128::from(change(&mut rng)) << *rng.pick(&[0, 48, 64, 96]);
                        let src = src.wrapping_sub(u128::from(rng.chance(1, 4)));
                        PacketBuilder::new().ipv6(src.to_be_bytes(), [1; 16])
                    }
                    _ => continue,
                };
                let bytes = builder.udp(7, 9).build();
                let packet = Packet { bytes: &bytes, port: Port(1) };
                let choices = Choices::seeded(i, 1, i);
                let before = interp.executed();
                let expected = machine.process(&packet, &choices).unwrap();
                assert_eq!(interp.process(&packet, &choices).unwrap(), expected, "{src}: {bytes:x?}");
                let executed = interp.executed() - before;
                assert!(executed <= most, "{executed} instructions for {src}");
                results.insert(format!("{:?}", expected.verdict));
            }
            assert!(results.len() > 1, "all packets have one fate");
        }
    }
}
