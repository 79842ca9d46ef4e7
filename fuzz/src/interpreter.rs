// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: runs the interpreter on arbitrary instructions.
//!
//! ```text
//!  bytes: packet length │ packet │ instructions, 8 bytes each
//! ```

use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, PORT_COUNT, Packet, Port, Ports};
use flowloom_isa::{BPF_F_NO_PREALLOC, Insn, MapDef, MapKind, Member, Program, Sibling, asm, disasm};
use flowloom_vm::{Interpreter, Plugin};

/// Instruction limit per run, so that every input ends soon.
const BUDGET: u64 = 20_000;

/// A map of every kind; the program array holds the program itself.
pub(crate) fn maps() -> Vec<MapDef> {
    let map = |name: &str, kind, key_bytes, value_bytes, max_entries| {
        let name = name.to_owned();
        MapDef { name, kind, key_bytes, value_bytes, max_entries, ..MapDef::default() }
    };
    let data = MapDef { initial: Some(vec![7; 16]), ..map(".data", MapKind::Array, 4, 16, 1) };
    let inner = || Some(Box::new(map("array", MapKind::Array, 4, 8, 4)));
    vec![
        map("hash", MapKind::Hash, 4, 8, 3),
        map("array", MapKind::Array, 4, 8, 4),
        map("ports", MapKind::Devmap, 4, 4, 5),
        data,
        map("hash_by_cpu", MapKind::PerCpuHash, 4, 8, 3),
        map("array_by_cpu", MapKind::PerCpuArray, 4, 8, 4),
        map("lru", MapKind::LruHash, 4, 8, 3),
        MapDef { flags: BPF_F_NO_PREALLOC, ..map("prefixes", MapKind::LpmTrie, 8, 8, 3) },
        map("ports_by_key", MapKind::DevmapHash, 4, 4, 5),
        map("cpus", MapKind::Cpumap, 4, 4, 5),
        map("events", MapKind::PerfEventArray, 4, 4, 16),
        map("ring", MapKind::RingBuf, 0, 0, 4096),
        MapDef { members: vec![(1, Member::Program(0))], ..map("programs", MapKind::ProgArray, 4, 4, 3) },
        MapDef { inner: inner(), members: vec![(1, Member::Map(1))], ..map("maps", MapKind::ArrayOfMaps, 4, 4, 3) },
        MapDef {
            inner: inner(),
            members: vec![(1, Member::Map(1))],
            ..map("maps_by_key", MapKind::HashOfMaps, 4, 4, 3)
        },
    ]
}

/// Splits an input into a packet and instructions.
pub(crate) fn parts(bytes: &[u8]) -> Option<(&[u8], Vec<Insn>)> {
    let (&len, rest) = bytes.split_first()?;
    let (packet, code) = rest.split_at(rest.len().min(len.into()));
    Some((packet, code.as_chunks::<8>().0.iter().map(|slot| Insn::from_bytes(*slot)).collect()))
}

/// A program that can tail-call itself.
pub(crate) fn program(insns: Vec<Insn>, maps: Vec<MapDef>) -> Program {
    let (name, section, license) = ("fuzzed".to_owned(), "xdp".to_owned(), "GPL".to_owned());
    let siblings = Arc::new([Sibling { insns: insns.clone(), ..Sibling::default() }]);
    Program { name, section, insns, maps, license, siblings, ..Program::default() }
}

/// Validates the instructions, runs them twice on the packet, and once with its bytes as memory. Every run ends with a
/// verdict or a fault. A saved state can be restored unchanged. Returns true if the instructions are a valid program.
pub fn interpreter(bytes: &[u8]) -> bool {
    let Some((packet, insns)) = parts(bytes) else { return false };
    let maps = maps();
    if let Ok(text) = disasm::disassemble(&insns, &maps) {
        let again = asm::assemble(&text, &maps).expect("what is disassembled is assembled");
        assert_eq!(again, insns, "{text}");
    }
    let program = program(insns, maps);
    let interp = Interpreter::new(Arc::new(program.clone()));
    let is_program = interp.is_ok();
    if let Ok(interp) = interp {
        let mut interp = interp.with_budget(BUDGET).with_profile();
        interp.bind_ports(&Ports::bound((0..PORT_COUNT).map(Port)));
        for index in 0..2 {
            let _ = interp.process(&Packet { bytes: packet, port: Port(3) }, &Choices::seeded(5, 7, index));
        }
        let state = interp.snapshot().expect("state");
        interp.restore(&state).expect("its own state fits");
        assert_eq!(interp.snapshot().expect("state"), state);
        let hits: u64 = interp.profile().unwrap_or_default().iter().sum();
        assert_eq!(hits, interp.executed());
    }
    let program = Program { maps: Vec::new(), siblings: Arc::new([]), ..program };
    if let Ok(plugin) = Plugin::new(Arc::new(program)) {
        let _ = plugin.with_budget(BUDGET).run(packet);
    }
    is_program
}
