// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used, clippy::panic)]
mod faults;
mod function;
mod random;
mod semantics;
mod state;

use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, EngineError, Outcome, Packet, Port};

use super::*;
use flowloom_isa::asm::assemble;
use flowloom_isa::{BPF_F_RDONLY_PROG, MapDef, MapKind};

const CHOICES: Choices = Choices { now_ns: 1_000_000_007, random: [11, 12, 13, 14, 15, 16, 17, 18], cpu: 3 };

fn map(name: &str, kind: MapKind, key_bytes: u32, value_bytes: u32, max_entries: u32) -> MapDef {
    MapDef { name: name.into(), kind, key_bytes, value_bytes, max_entries, flags: 0, ..MapDef::default() }
}

/// A hash, an array, ports, constants and variables.
fn maps() -> Vec<MapDef> {
    let section = |name, initial: &[u8], flags| MapDef {
        flags,
        initial: Some(initial.to_vec()),
        ..map(name, MapKind::Array, 4, initial.len() as u32, 1)
    };
    vec![
        map("hash", MapKind::Hash, 4, 8, 3),
        map("array", MapKind::Array, 4, 8, 4),
        map("ports", MapKind::Devmap, 4, 4, 5),
        section(".rodata", &[1, 2, 3, 4, 5, 6, 7, 8], BPF_F_RDONLY_PROG),
        section(".data", &[9; 16], 0),
    ]
}

fn program(text: &str) -> Program {
    let maps = maps();
    let insns = assemble(text, &maps).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    Program { name: "test".into(), section: "xdp".into(), insns, maps, ..Program::default() }
}

fn interp(text: &str) -> Interpreter {
    Interpreter::new(Arc::new(program(text))).unwrap_or_else(|error| panic!("{error}\n{text}")).with_strict_stack()
}

impl Interpreter {
    /// The whole `r0` for a packet.
    fn r0(&mut self, packet: &[u8]) -> Result<u64, String> {
        self.environment.space.start(packet, 7);
        let result = self.run(&CHOICES).map(|returned| returned.r0).map_err(|error| error.to_string());
        self.environment.space.maps.iter().for_each(Map::check_invariants);
        result
    }

    fn send(&mut self, packet: &[u8]) -> Result<Outcome, EngineError> {
        self.process(&Packet { bytes: packet, port: Port(7) }, &CHOICES)
    }
}

/// Runs a text on sixty bytes that count up.
fn r0(text: &str) -> Result<u64, String> {
    let packet: Vec<u8> = (0..60).collect();
    interp(text).r0(&packet)
}
