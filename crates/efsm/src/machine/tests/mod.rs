// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reference machine, rule by rule: small functions, crafted packets, expectations computed by hand.
#![allow(clippy::expect_used, clippy::panic, reason = "tests stop")]

mod actions;
mod contexts;
mod headers;
mod rows;
mod steps;
mod stored;
mod tables;
mod values;

use std::fmt::Write as _;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Packet, Port, Verdict};
use flowloom_testkit::PacketBuilder;

use super::Machine;
use crate::layout::NO_DEADLINE;

/// A machine with a function, and what tests ask of it.
struct Scene {
    machine: Machine,
}

/// A scene with the elements in `text`.
fn scene(text: &str) -> Scene {
    let text = format!("function f;\n{text}");
    match crate::compile("f.efsm", &text, &[]) {
        Ok((function, _)) => Scene { machine: Machine::new(Arc::new(function)) },
        Err(errors) => panic!("{:#?}", errors.list),
    }
}

impl Scene {
    /// What becomes of a packet that arrives at `now_ns` by port 1: the verdict, with the port of a redirect.
    fn at(&mut self, now_ns: u64, packet: &PacketBuilder) -> String {
        self.run(now_ns, 1, &packet.build()).0
    }

    /// The verdict and the bytes that leave.
    fn run(&mut self, now_ns: u64, port: u32, bytes: &[u8]) -> (String, Option<Vec<u8>>) {
        let choices = Choices::seeded(now_ns, 0, 0);
        let outcome =
            self.machine.process(&Packet { bytes, port: Port(port) }, &choices).expect("the machine never fails");
        self.machine.check_invariants();
        let left = outcome.outputs.first();
        let text = match (outcome.verdict, left) {
            (Verdict::Redirect, Some(output)) => format!("to {}", output.port),
            (verdict @ (Verdict::Pass | Verdict::Tx), Some(output)) => {
                assert_eq!(output.port, Port(port));
                verdict.name().to_lowercase()
            }
            (verdict, None) => verdict.name().to_lowercase(),
            (verdict, Some(_)) => panic!("{verdict} sends nothing"),
        };
        (text, left.map(|output| output.bytes.clone()))
    }

    /// What leaves, for a packet that must.
    fn bytes_at(&mut self, now_ns: u64, packet: &PacketBuilder) -> Vec<u8> {
        self.run(now_ns, 1, &packet.build()).1.expect("the packet leaves")
    }

    /// The contexts of the first element, one a line: key, state, registers, deadlines (`idle DEADLINE/PERIOD`).
    fn contexts(&self) -> String {
        let Some(stateful) = &self.machine.function().elements[0].stateful else { panic!("a stateful element") };
        let mut lines = Vec::new();
        for (key, context) in self.machine.contexts(0) {
            let mut line: String = key.iter().map(|b| format!("{b:02x}")).collect();
            write!(line, " {}", stateful.states[usize::from(context.state)]).expect("text");
            for (value, register) in context.registers.iter().zip(&stateful.registers) {
                write!(line, " {}={value}", register.name).expect("text");
            }
            if context.idle_ns != 0 {
                write!(line, " idle {}/{}", context.idle_deadline_ns, context.idle_ns).expect("text");
            }
            if context.hard_deadline_ns != NO_DEADLINE {
                write!(line, " hard {}", context.hard_deadline_ns).expect("text");
            }
            lines.push(line);
        }
        lines.join("\n")
    }
}

/// UDP over IPv4 from 10.0.0.`src` to 10.0.0.`dst`.
fn udp(src: u8, dst: u8, sport: u16, dport: u16) -> PacketBuilder {
    PacketBuilder::new().ipv4([10, 0, 0, src], [10, 0, 0, dst]).udp(sport, dport)
}

/// TCP over IPv4 between hosts 1 and 2.
fn tcp(flags: u8, seq: u32) -> PacketBuilder {
    PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(7, 8).tcp_flags(flags).tcp_seq(seq, 0)
}

/// To UDP port `dport`: what the rows of most scenes look at.
fn to(dport: u16) -> PacketBuilder {
    udp(1, 2, 7, dport)
}
