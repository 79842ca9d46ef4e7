// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every function of the repository and every small function of the lowering's tests, in the kernel: the verifier
//! accepts the program with counters and with locks, and it agrees with the machine; small functions also run without
//! both, as `agree` runs the others.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use crate::common::random::is_kernel_there;

use std::sync::Arc;

use flowloom_efsm::{Machine, compile, layout};
use flowloom_engine::{Choices, Datapath, Packet, Port, Snapshot};
use flowloom_exec::{ExecError, KernelEngine};
use flowloom_isa::Program;
use flowloom_isa::insn::class;
use flowloom_lower::{LowerError, LowerOptions, lower, unsupported_by_kernel};
use flowloom_testkit::{PacketBuilder, Rng, mutate, sources};

fn state(engine: &mut dyn Datapath) -> Snapshot {
    let mut snapshot = engine.snapshot().unwrap();
    snapshot.maps.retain(|name, _| !layout::is_instrument(name));
    snapshot
}

/// Stack depth in bytes: the deepest store of the program.
fn stack_bytes(program: &Program) -> i16 {
    let stores = program.insns.iter().filter(|i| matches!(i.class(), class::ST | class::STX) && i.dst == 10);
    stores.map(|i| -i.off).max().unwrap_or(0)
}

#[test]
fn the_kernel_takes_every_lowered_function_and_runs_it_as_the_machine() {
    if !is_kernel_there("the_kernel_takes_every_lowered_function_and_runs_it_as_the_machine") {
        return;
    }
    let mut rng = Rng::from_env(0x6b65_726e);
    let folders = ["../../functions", "../../corpus", "../lower/tests/lowering"];
    let files: Vec<_> = folders.into_iter().flat_map(sources).collect();
    assert!(files.len() >= 14, "{files:?}");
    let mut refused = Vec::new();
    for (path, text) in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        for out in [None, Some("2")] {
            let params: Vec<(String, String)> = out.iter().map(|p| ("out".to_owned(), (*p).to_owned())).collect();
            // Functions without the parameter were covered without it.
            let Ok((function, _)) = compile(name, &text, &params) else { continue };
            let function = Arc::new(function);
            // `agree` and the scenarios run shipped functions without counters and locks.
            let is_shipped = path.starts_with(folders[0]);
            let forms = [(true, false), (false, true), (false, false)].into_iter();
            for (counters, attached) in forms.take(if is_shipped { 2 } else { 3 }) {
                let program = match lower(&function, &LowerOptions { counters, attached, ..LowerOptions::default() }) {
                    // Reported below, for the program that is not attached.
                    Err(LowerError::Kernel { .. }) if attached && !unsupported_by_kernel(&function).is_empty() => {
                        continue;
                    }
                    lowered => lowered.unwrap(),
                };
                let what = format!(
                    "{name}{}{}{}: {} slots, {} bytes of stack",
                    if out.is_some() { " to a port" } else { "" },
                    if counters { " with counters" } else { "" },
                    if attached { " with locks" } else { "" },
                    program.insns.len(),
                    stack_bytes(&program),
                );
                let unsupported = unsupported_by_kernel(&function);
                let mut kernel = match KernelEngine::load(&program) {
                    Ok(_) if !unsupported.is_empty() => {
                        panic!("{what}: the kernel accepted an unsupported feature: {unsupported:?}")
                    }
                    Ok(kernel) => kernel,
                    Err(error @ ExecError::Private { .. }) if !unsupported.is_empty() => {
                        println!("{error}; {}", unsupported[0].render(&function));
                        let attached = LowerOptions { attached: true, ..LowerOptions::default() };
                        assert!(matches!(lower(&function, &attached), Err(LowerError::Kernel { .. })), "{what}");
                        continue;
                    }
                    Err(error) => {
                        refused.push(format!("{what}: {error}"));
                        continue;
                    }
                };
                let mut machine = Machine::new(Arc::clone(&function));
                let mut now_ns = 1 << 40;
                let mut run = 0;
                for i in 0..300 {
                    now_ns += *rng.pick(&[0, 0, 1, 2, 5, 1 << 30]);
                    let mut bytes = PacketBuilder::random(&mut rng, 3).build();
                    if rng.chance(1, 8) {
                        mutate(&mut rng, &mut bytes);
                    }
                    let packet = Packet { bytes: &bytes, port: Port(1 + rng.below(4) as u32) };
                    if kernel.refuses(&packet).is_some() {
                        continue;
                    }
                    run += 1;
                    let choices = Choices::seeded(now_ns, 1, i);
                    let expected = machine.process(&packet, &choices).unwrap();
                    assert_eq!(kernel.process(&packet, &choices).unwrap(), expected, "{what}, packet {i}: {packet:x?}");
                }
                assert!(state(&mut kernel) == state(&mut machine), "{what}: state differs");
                println!("{what}, {run} packets alike");
            }
        }
    }
    assert!(refused.is_empty(), "refused:\n{}", refused.join("\n"));
}

#[test]
fn the_kernel_takes_sets_of_thousands_of_prefixes() {
    if !is_kernel_there("the_kernel_takes_sets_of_thousands_of_prefixes") {
        return;
    }
    let mut rng = Rng::from_env(0x5e75);
    let v4 = |rng: &mut Rng| std::net::Ipv4Addr::from_bits(rng.next_u64() as u32 & 0xffff_ff00);
    let mut list: String = (0..10_000).map(|_| format!("{}/24\n", v4(&mut rng))).collect();
    for _ in 0..2_000 {
        let address = u128::from(rng.next_u64() >> 3 | 1 << 61) << 64 & u128::MAX << 80;
        list += &format!("{}/48\n", std::net::Ipv6Addr::from_bits(address));
    }
    let files = std::collections::BTreeMap::from([("list".to_owned(), list.clone())]);
    let text =
        "function f; set listed = file(\"list\"); stateless e { when ip.src in listed { drop; } otherwise { pass; } }";
    let function = Arc::new(flowloom_efsm::compile_with("f", text, &[], &files).unwrap().0);
    let networks: Vec<&str> = list.lines().filter_map(|line| line.split('/').next()).collect();
    for counters in [false, true] {
        let program = lower(&function, &LowerOptions { counters, ..LowerOptions::default() }).unwrap();
        println!("{} slots", program.insns.len());
        let mut kernel = KernelEngine::load(&program).unwrap();
        let mut machine = Machine::new(Arc::clone(&function));
        for i in 0..500 {
            let network: std::net::IpAddr = rng.pick(&networks).parse().unwrap();
            let builder = match network {
                std::net::IpAddr::V4(network) => {
                    let src = (network.to_bits() | 7) ^ *rng.pick(&[0, 1 << 8, 1 << 20]);
                    PacketBuilder::new().ipv4(src.to_be_bytes(), [10, 0, 0, 1])
                }
                std::net::IpAddr::V6(network) => {
                    let src = (network.to_bits() | 7) ^ *rng.pick(&[0, 1 << 80, 1 << 100]);
                    PacketBuilder::new().ipv6(src.to_be_bytes(), [1; 16])
                }
            };
            let bytes = builder.udp(5, 6).build();
            let packet = Packet { bytes: &bytes, port: Port(1) };
            let choices = Choices::seeded(i, 1, i);
            let expected = machine.process(&packet, &choices).unwrap();
            assert_eq!(kernel.process(&packet, &choices).unwrap(), expected, "{network}");
        }
    }
}
