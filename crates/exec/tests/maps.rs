// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Map kinds of foreign programs, on the interpreter and in the kernel.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Packet, Port, Verdict};
use flowloom_exec::KernelEngine;
use flowloom_isa::{BPF_F_NO_PREALLOC, MapDef, MapKind, Program, asm};
use flowloom_testkit::{Rng, require};
use flowloom_vm::Interpreter;

fn program(text: &str, maps: Vec<MapDef>) -> Arc<Program> {
    let insns = asm::assemble(text, &maps).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let (name, section, license) = ("maps".to_owned(), "xdp".to_owned(), "GPL".to_owned());
    Arc::new(Program { name, section, insns, maps, license, ..Program::default() })
}

fn map(name: &str, kind: MapKind, [key_bytes, value_bytes, max_entries]: [u32; 3], flags: u32) -> MapDef {
    MapDef { name: name.into(), kind, key_bytes, value_bytes, max_entries, flags, ..MapDef::default() }
}

/// Runs the kernel first, then the interpreter, which evicts the same entries.
struct Pair {
    kernel: KernelEngine,
    interp: Interpreter,
    evicted: BTreeMap<String, usize>,
}

impl Pair {
    fn of(program: &Arc<Program>) -> Pair {
        let kernel = KernelEngine::load(program).unwrap_or_else(|error| panic!("{error}"));
        let interp = Interpreter::new(program.clone()).unwrap_or_else(|error| panic!("{error}"));
        Pair { kernel, interp, evicted: BTreeMap::new() }
    }

    fn run(&mut self, bytes: &[u8], index: u64) -> Verdict {
        let packet = Packet { bytes, port: Port(1 + index as u32 % 3) };
        let choices = Choices::seeded(index * 1000, 7, index);
        let found = self.kernel.process(&packet, &choices).unwrap_or_else(|error| panic!("packet {index}: {error}"));
        let evicted = self.kernel.evicted();
        for eviction in &evicted {
            *self.evicted.entry(eviction.map.clone()).or_default() += 1;
        }
        self.interp.evict_next(&evicted);
        let expected = self.interp.process(&packet, &choices).unwrap_or_else(|error| panic!("packet {index}: {error}"));
        assert_eq!(self.interp.not_evicted(), [], "packet {index}: forgotten without need");
        assert_eq!(found, expected, "packet {index}: {bytes:02x?}");
        expected.verdict
    }

    fn same_state(&mut self, when: u64) {
        let expected = self.interp.snapshot().expect("state");
        assert_eq!(self.kernel.snapshot().expect("state"), expected, "after packet {when}");
    }
}

const START: &str = "
    r9 = r1
    r6 = *(u32 *)(r1 + 0)
    r2 = *(u32 *)(r1 + 4)
    r1 = r6
    r1 += 32
    if r1 > r2 goto out
";
const OUT: &str = "
out: r0 = 2
    exit
";

/// Byte 0 selects the operation on the key in the next bytes: an update with the flags in byte 1, a deletion, or a
/// lookup that adds to the value. The result of the helper is written to the packet. Keys of 32-bit fields are aligned
/// to 4 bytes only.
fn working(def: MapDef) -> Arc<Program> {
    let key = match def.key_bytes {
        // A prefix of 0 to 31 bits, or 32 to 40, of which more than 32 are invalid.
        8 => "r1 = *(u8 *)(r6 + 2)\nr1 &= 63\n*(u32 *)(r10 - 12) = r1\nr1 = *(u32 *)(r6 + 4)\n*(u32 *)(r10 - 8) = r1\n",
        12 => "r1 = *(u8 *)(r6 + 4)\n*(u32 *)(r10 - 12) = r1\n*(u32 *)(r10 - 8) = 1\n*(u32 *)(r10 - 4) = 2\n",
        _ => "r1 = *(u8 *)(r6 + 4)\n*(u32 *)(r10 - 12) = r1\n*(u32 *)(r10 - 8) = 0\n",
    };
    let text = format!(
        "{START}{key}
    r1 = *(u64 *)(r6 + 16)
    *(u64 *)(r10 - 24) = r1
    r1 = map[m] ll
    r2 = r10
    r2 += -12
    r7 = *(u8 *)(r6 + 0)
    r7 &= 3
    if r7 == 0 goto delete
    if r7 == 1 goto add
    r3 = r10
    r3 += -24
    r4 = *(u8 *)(r6 + 1)
    r4 &= 3
    call map_update_elem
    goto told
delete: call map_delete_elem
    goto told
add: call map_lookup_elem
    if r0 == 0 goto told
    r1 = *(u64 *)(r0 + 0)
    r1 += 1
    *(u64 *)(r0 + 0) = r1
    r0 = r1
told: *(u64 *)(r6 + 24) = r0
{OUT}"
    );
    program(&text, vec![def])
}

fn exercised(def: MapDef, keys: usize, packets: u64, rng: &mut Rng) -> Pair {
    let mut pair = Pair::of(&working(def));
    for index in 0..packets {
        let mut bytes = rng.bytes(32);
        bytes[4] = rng.below(keys) as u8;
        if pair.interp.program().maps[0].kind == MapKind::LpmTrie {
            // Nested prefixes.
            bytes[5..8].fill(if rng.chance(1, 2) { 0 } else { 0xff });
            bytes[2] = *rng.pick(&[0, 3, 8, 9, 16, 24, 31, 32, 33]);
        }
        pair.run(&bytes, index);
        if index % 64 == 0 {
            pair.same_state(index);
        }
    }
    pair.same_state(packets);
    pair
}

#[test]
fn maps_match_the_kernel() {
    require!(KernelEngine::available());
    let mut rng = Rng::from_env(31);
    for (kind, sizes, flags, keys) in [
        (MapKind::Array, [4, 8, 9], 0, 12),
        (MapKind::PerCpuArray, [4, 8, 9], 0, 12),
        (MapKind::Hash, [5, 8, 9], 0, 20),
        (MapKind::Hash, [5, 8, 9], BPF_F_NO_PREALLOC, 20),
        (MapKind::PerCpuHash, [5, 8, 9], 0, 20),
        (MapKind::PerCpuHash, [5, 8, 9], BPF_F_NO_PREALLOC, 20),
        (MapKind::LpmTrie, [8, 8, 9], BPF_F_NO_PREALLOC, 4),
    ] {
        eprintln!("{kind}, flags {flags}");
        exercised(map("m", kind, sizes, flags), keys, 1500, &mut rng);
    }
}

#[test]
fn the_interpreter_follows_kernel_evictions() {
    require!(KernelEngine::available());
    let mut rng = Rng::from_env(32);
    for kind in [MapKind::LruHash, MapKind::LruPerCpuHash] {
        for (max_entries, flags, keys) in
            [(1, 0, 4), (4, 0, 9), (9, 0, 30), (14, 0, 40), (30, 0, 80), (100, 0, 250), (20, 2, 60)]
        {
            eprintln!("{kind}, {max_entries} entries, flags {flags}");
            let key_bytes = *rng.pick(&[5, 12]);
            let pair = exercised(map("m", kind, [key_bytes, 8, max_entries], flags), keys, 1200, &mut rng);
            let evicted = pair.evicted.get("m").copied().unwrap_or(0);
            assert!(evicted > 20, "only {evicted} were forgotten");
        }
    }
}

const ROUTES: &str = r#"{
  "interfaces": [
    {"port": 1, "mac": "02:00:00:00:00:01", "addresses": ["10.0.1.1/24", "2001:db8:1::1/64"]},
    {"port": 2, "mac": "02:00:00:00:00:02", "mtu": 1400, "addresses": ["10.0.2.1/24", "2001:db8:2::1/64"]},
    {"port": 3, "mac": "02:00:00:00:00:03", "forwarding": false}
  ],
  "routes": [
    {"to": "192.0.2.0/24", "via": "10.0.2.7", "port": 2},
    {"to": "192.0.2.0/24", "via": "10.0.1.9", "port": 1, "metric": 5},
    {"to": "192.0.2.128/25", "kind": "blackhole"},
    {"to": "192.0.2.64/26", "via": "10.0.2.7", "port": 2, "mtu": 900},
    {"to": "198.51.100.0/24", "kind": "unreachable"},
    {"to": "203.0.113.0/24", "kind": "prohibit"},
    {"to": "2001:db8:9::/48", "via": "2001:db8:2::7", "port": 2}
  ],
  "neighbours": [
    {"address": "10.0.2.7", "port": 2, "mac": "02:00:00:00:07:07"},
    {"address": "10.0.1.9", "port": 1, "mac": "02:00:00:00:09:09"},
    {"address": "2001:db8:2::7", "port": 2, "mac": "02:00:00:00:07:06"}
  ]
}"#;

/// Looks up a route with the 64 bytes after the first 16 of the packet and the flags in byte 0; the result replaces the
/// 64 bytes. Then checks the length in bytes 4 to 7 against the MTU of the port in byte 1.
fn asking() -> Arc<Program> {
    let copy = |to: &str, from: &str, offset: i32| -> String {
        let word = |i: i32| {
            let (to_at, from_at) = if to == "r10" { (i - 64, i + offset) } else { (i + offset, i - 64) };
            format!("r1 = *(u64 *)({from} + {from_at})\n*(u64 *)({to} + {to_at}) = r1\n").replace("+ -", "- ")
        };
        (0..8).map(|i| word(8 * i)).collect()
    };
    let (take, give) = (copy("r10", "r6", 16), copy("r6", "r10", 16));
    let text = format!(
        "
    r9 = r1
    r6 = *(u32 *)(r1 + 0)
    r2 = *(u32 *)(r1 + 4)
    r1 = r6
    r1 += 80
    if r1 > r2 goto out
{take}
    r1 = r9
    r2 = r10
    r2 += -64
    r3 = 64
    r4 = *(u8 *)(r6 + 0)
    call fib_lookup
    *(u64 *)(r6 + 8) = r0
{give}
    r1 = *(u32 *)(r6 + 4)
    *(u32 *)(r10 - 8) = r1
    r1 = r9
    r2 = *(u8 *)(r6 + 1)
    r3 = r10
    r3 += -8
    r4 = 0
    r5 = 0
    call check_mtu
    *(u16 *)(r6 + 2) = r0
    r1 = *(u32 *)(r10 - 8)
    *(u32 *)(r6 + 4) = r1
{OUT}"
    );
    program(&text, Vec::new())
}

#[test]
fn route_lookups_match_the_table() {
    require!(KernelEngine::available());
    let table = flowloom_vm::fib::Table::from_json(ROUTES).expect("a table");
    let mut pair = Pair::of(&asking());
    let mut bare = Pair::of(&asking());
    pair.kernel = require!(pair.kernel.with_routes(&table));
    pair.interp = pair.interp.with_routes(table);
    let mut rng = Rng::from_env(33);
    let targets = [
        "192.0.2.1",
        "192.0.2.70",
        "192.0.2.200",
        "198.51.100.1",
        "203.0.113.9",
        "8.8.8.8",
        "10.0.2.1",
        "10.0.2.9",
        "10.0.2.7",
        "10.0.1.9",
        "2001:db8:9::5",
        "2001:db8:2::7",
        "2001:db8:2::8",
        "2001:db8:1::1",
        "2001:db8:ff::1",
    ];
    let mut answers = BTreeMap::new();
    for index in 0..4000 {
        let target: std::net::IpAddr = rng.pick(&targets).parse().expect("an address");
        let mut bytes = vec![0; 80];
        // Flags: none, without neighbour, with a source; existing and other ports.
        bytes[0] = *rng.pick(&[0, 0, 0, 4, 16, 64]);
        bytes[1] = *rng.pick(&[0, 1, 2, 3, 4, 9]);
        let length = *rng.pick(&[0_u32, 100, 900, 1400, 1401, 1500, 1501]);
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes[16] = if target.is_ipv6() { 10 } else { 2 };
        if rng.chance(1, 40) {
            bytes[16] = 7;
        }
        bytes[22..24].copy_from_slice(&(*rng.pick(&[60_u16, 900, 901, 1400, 1401, 1501])).to_le_bytes());
        bytes[24..28].copy_from_slice(&rng.pick(&[1_u32, 1, 1, 2, 3, 9]).to_le_bytes());
        match target {
            std::net::IpAddr::V4(v4) => bytes[48..52].copy_from_slice(&v4.octets()),
            std::net::IpAddr::V6(v6) => bytes[48..64].copy_from_slice(&v6.octets()),
        }
        pair.run(&bytes, index);
        let packet = Packet { bytes: &bytes, port: Port(1) };
        let outcome = pair.interp.process(&packet, &Choices::seeded(0, 0, 0)).expect("runs");
        *answers.entry(outcome.outputs[0].bytes[8]).or_insert(0) += 1;
        if index < 200 {
            bare.run(&bytes, index);
        }
    }
    eprintln!("answers: {answers:?}");
    assert!(answers.len() >= 9 && answers.values().all(|count| *count > 10), "{answers:?}");
}
