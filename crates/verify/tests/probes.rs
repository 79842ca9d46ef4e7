// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps and helpers, operation by operation: interpreter and kernel return the same results, errors and contents.
//!
//! Programs in C (`probes/*.bpf.c`) execute the operations in a packet and write the results into the packet or a map.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::random::is_kernel_there;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Packet, Port, Snapshot};
use flowloom_exec::KernelEngine;
use flowloom_isa::Program;
use flowloom_testkit::{Clang, Rng, skip};
use flowloom_verify::{Arrival, CompareOptions, Report, compare};
use flowloom_vm::{Interpreter, fib};

const PACKETS: usize = 4000;

/// A probe compiled by clang, if clang and the kernel are available; `None` otherwise.
fn probe(test: &str, name: &str, macros: &[&str]) -> Option<Program> {
    if !is_kernel_there(test) {
        return None;
    }
    let clang = Clang::find(test)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probes").join(name);
    let arguments: Vec<&str> = ["-mcpu=v3", "-Wno-unused-parameter"].iter().chain(macros).copied().collect();
    let object = clang.compile_file(&source, &arguments).unwrap_or_else(|why| panic!("{macros:?}: {why}"));
    let object = flowloom_object::read(&object, name).unwrap_or_else(|error| panic!("{macros:?}: {error}"));
    Some(object.program("probe").unwrap().clone())
}

/// Asserts that both engines agree on these packets; states are compared every `snapshot_every` packets.
fn agree(title: &str, program: &Program, packets: &[Arrival], snapshot_every: usize) -> Report {
    let mut interp = Interpreter::new(Arc::new(program.clone())).unwrap_or_else(|error| panic!("{title}: {error}"));
    let mut kernel = KernelEngine::load(program).unwrap_or_else(|error| panic!("{title}: {error}"));
    let options = CompareOptions { snapshot_every, ..CompareOptions::default() };
    let report =
        compare(&mut interp, &mut kernel, packets, &options).unwrap_or_else(|error| panic!("{title}: {error}"));
    if let Some(disagreement) = &report.disagreement {
        panic!("{title}: {disagreement:#?}");
    }
    assert_eq!(report.packets_compared as usize, packets.len(), "{title}");
    report
}

fn arrivals(packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<Arrival> {
    (0..).zip(packets).map(|(i, bytes)| Arrival { time_ns: 1000 * i, port: Port(1), bytes }).collect()
}

#[test]
fn maps_answer_as_the_kernels_do() {
    let test = "maps_answer_as_the_kernels_do";
    let kinds = [
        ("HASH", "0", "5", "1", "0"),
        ("HASH", "BPF_F_NO_PREALLOC", "5", "1", "0"),
        ("HASH", "0", "5", "1", "1"),
        ("HASH", "BPF_F_NO_PREALLOC", "5", "1", "1"),
        ("ARRAY", "0", "5", "0", "0"),
        ("ARRAY", "0", "5", "0", "1"),
        ("PERCPU_HASH", "0", "5", "1", "0"),
        ("PERCPU_HASH", "BPF_F_NO_PREALLOC", "5", "1", "0"),
        ("PERCPU_ARRAY", "0", "5", "0", "0"),
        // Never full: the kernel chooses the victims of an LRU table.
        ("LRU_HASH", "0", "400", "1", "0"),
        ("LRU_PERCPU_HASH", "0", "400", "1", "0"),
        ("LPM_TRIE", "BPF_F_NO_PREALLOC", "5", "2", "0"),
        ("LPM_TRIE", "BPF_F_NO_PREALLOC", "64", "2", "0"),
    ];
    let mut rng = Rng::from_env(0x3a95);
    for (kind, flags, entries, key, lock) in kinds {
        let macros = [
            format!("-DKIND=BPF_MAP_TYPE_{kind}"),
            format!("-DFLAGS={flags}"),
            format!("-DENTRIES={entries}"),
            format!("-DKEY={key}"),
            format!("-DLOCK={lock}"),
        ];
        let macros: Vec<&str> = macros.iter().map(String::as_str).collect();
        let Some(program) = probe(test, "maps.bpf.c", &macros) else { return };
        let packets = (0..PACKETS).map(|_| rng.bytes(14 + 8 * 12));
        agree(&macros.join(" "), &program, &arrivals(packets), 200);
    }
}

/// A string for helpers that parse strings.
fn text(rng: &mut Rng) -> Vec<u8> {
    const PIECES: [&[u8]; 22] = [
        b" ",
        b"\t",
        b"-",
        b"+",
        b"0",
        b"0x",
        b"0X",
        b"1",
        b"7",
        b"8",
        b"9",
        b"f",
        b"g",
        b"1f",
        b"\0",
        b"9223372036854775807",
        b"9223372036854775808",
        b"18446744073709551615",
        b"99999999999999999999",
        b"-",
        b"0x1f",
        b"\x0b",
    ];
    let mut text: Vec<u8> = (0..1 + rng.below(6)).flat_map(|_| *rng.pick(&PIECES)).copied().collect();
    if rng.chance(1, 3) {
        text = rng.bytes(48);
    }
    let filler = if rng.chance(1, 2) { 0 } else { b'3' };
    text.resize(48, filler);
    text
}

/// Addresses that fault: user space, the null page, and the top of the kernel's range.
const NO_ADDRESSES: [u64; 7] = [0, 1, 8, 4096, 0x7fff_ffff_e000, 0x7fff_ffff_f000, !0xfff];
/// Non-canonical addresses for 48 bits. With 57 bits, Linux tries them [arch/x86/mm/maccess.c], and fails otherwise.
const NO_ADDRESSES_OF_48_BITS: [u64; 3] = [0x8000_0000_0000, 0x7fff << 48, 0xffff_7fff_ffff_f000];

/// Numbers that are no valid addresses here.
fn no_addresses() -> Vec<u64> {
    let sizes = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let more = if sizes.contains("48 bits virtual") { &NO_ADDRESSES_OF_48_BITS[..] } else { &[] };
    [&NO_ADDRESSES[..], more].concat()
}

/// Iteration counts for `loop`.
const ROUNDS: [u64; 10] = [0, 1, 5, 300, 8 << 20, (8 << 20) + 1, 1 << 32, (1 << 32) + 5, u32::MAX as u64, u64::MAX];

/// A valid or almost valid format string, and the kinds of its values.
fn format(rng: &mut Rng) -> (Vec<u8>, u8) {
    const NUMBERS: [&str; 14] = ["d", "i", "u", "x", "X", "ld", "lli", "lu", "llx", "lX", "c", "px", "p", "pK"];
    const TEXTS: [&str; 8] = ["s", "s", "pks", "pus", "pI4", "pi4", "pI6", "pi6"];
    const BEFORE: [&[u8]; 4] = [b"ab ", b"%%", b"\t|", b"=x"];
    const AFTER: [&[u8]; 5] = [b" ", b",", b"|", b"", b"%%"];
    let (mut text, mut kinds, mut is_full) = (Vec::new(), 0, false);
    for value in 0..1 + rng.below(3) {
        if rng.chance(1, 3) {
            text.extend_from_slice(BEFORE[rng.below(BEFORE.len())]);
        }
        text.push(b'%');
        let flags = *rng.pick(&["", "", "", "0", "-", "+", " ", "-0", "+0"]);
        let width = *rng.pick(&["", "", "", "1", "4", "9", "20", "70000"]);
        let (kind, what) = match rng.below(4) {
            0 => (rng.below(2) * 3, *rng.pick(&NUMBERS)),
            // Without room the kernel writes beyond its buffer at `%pB`.
            1 if is_full => (0, *rng.pick(&["ps", "pS"])),
            1 => (0, *rng.pick(&["ps", "pS", "pB"])),
            _ => (1 + rng.below(2), *rng.pick(&TEXTS)),
        };
        text.extend_from_slice(flags.as_bytes());
        // The number of digits of a hashed pointer is random.
        if what != "p" && what != "pK" {
            text.extend_from_slice(width.as_bytes());
        }
        text.extend_from_slice(what.as_bytes());
        kinds |= (kind as u8) << (2 * value);
        is_full |= kind == 1;
        let after: &[u8] = match rng.below(40) {
            0 => b"z",
            1 => b"4k",
            2 => b"\x01",
            3 => b"\x80",
            4 => b"%",
            5 => b"%l",
            6 => b".",
            _ => AFTER[rng.below(AFTER.len())],
        };
        text.extend_from_slice(after);
        // Later conversions would get the values of others, or padding.
        if after.starts_with(b"%") && after != b"%%" || width == "70000" {
            break;
        }
    }
    text.resize(48, if rng.chance(1, 20) { b' ' } else { 0 });
    (text, kinds)
}

#[test]
fn helpers_answer_as_the_kernels_do() {
    let test = "helpers_answer_as_the_kernels_do";
    let Some(program) = probe(test, "helpers.bpf.c", &[]) else { return };
    let mut rng = Rng::from_env(0x4e19);
    for what in 0..30 {
        let packets: Vec<Vec<u8>> = (0..PACKETS / 10)
            .map(|_| {
                let mut text = text(&mut rng);
                let mut flags = rng.below(256) as u8;
                let mut answer: [u8; 8] = if rng.chance(1, 2) { [0; 8] } else { rng.bytes(8).try_into().unwrap() };
                let a = *rng
                    .pick(&[0, 1, 4, -4, 8, -8, 14, -14, 60, -60, 100, -216, 216, -217, -256, 252, -252, 3000, 3500]);
                let a: i16 = if rng.chance(1, 3) { rng.below(1 << 16) as u16 as i16 } else { a };
                let b = *rng.pick(&[0, 1, 8, 10, 16, 14, 60, 100, 0xffff, 0x10000, -1, i32::MIN, i32::MAX]);
                let mut b = if rng.chance(1, 3) { rng.below(1 << 20) as i32 } else { b };
                match what {
                    20 => answer = rng.pick(&no_addresses()).to_le_bytes(),
                    // The last iteration that starts is 255.
                    21 | 22 => answer = rng.pick(&ROUNDS).to_le_bytes(),
                    24 => (text, flags) = format(&mut rng),
                    _ => {}
                }
                if what == 22 {
                    b = *rng.pick(&[0, 0, 0, 1]);
                }
                if what == 24 {
                    // A valid kernel address would be printed as a symbol there.
                    b &= 0xf_ffff;
                }
                let mut packet = vec![0x5a; 14];
                packet.extend([what, flags]);
                packet.extend(a.to_le_bytes());
                packet.extend(b.to_le_bytes());
                packet.extend(answer);
                packet.extend(text);
                let more = rng.below(200);
                packet.extend(rng.bytes(more));
                packet
            })
            .collect();
        agree(&format!("helper {what}"), &program, &arrivals(packets), 1);
    }
}

#[test]
fn records_are_those_of_the_kernel_to_their_last_byte() {
    let test = "records_are_those_of_the_kernel_to_their_last_byte";
    let Some(program) = probe(test, "rings.bpf.c", &[]) else { return };
    let mut rng = Rng::from_env(0x7176);
    for round in 0..5 {
        let packets: Vec<Vec<u8>> = (0..PACKETS / 10)
            .map(|_| {
                let mut packet = vec![0x5a; 14];
                let mut flags = rng.below(256) as u8;
                let mut length = rng.below(1 << 16) as u16;
                // The last rounds are about buffers that fill up; the kernel engine logs at most 256 events of a
                // packet.
                let what = if round > 2 { 5 } else { rng.below(5) as u8 };
                if what == 5 && rng.chance(1, 2) {
                    (flags, length) = (flags | 128, length | 4096);
                }
                packet.extend([what, flags]);
                packet.extend(length.to_le_bytes());
                packet.extend(rng.bytes(4 + 20));
                packet
            })
            .take(if round > 2 { 60 } else { PACKETS })
            .collect();
        agree(&format!("round {round}"), &program, &arrivals(packets), 3);
    }
}

#[test]
fn tail_calls_in_functions_add_up() {
    let test = "tail_calls_in_functions_add_up";
    let Some(program) = probe(test, "tails.bpf.c", &[]) else { return };
    let packets = (0..40).flat_map(|most| (0..4).map(move |way| (most, way)));
    let packets = packets.map(|(most, way)| [vec![0; 14], vec![most, way], vec![0; 4]].concat());
    agree("tail calls", &program, &arrivals(packets), 1);
}

/// Interfaces with and without addresses, routes of every kind.
const ROUTES: &str = r#"{
  "interfaces": [
    {"port": 1, "mac": "02:00:00:00:00:01", "addresses": ["10.0.1.1/24", "10.0.9.1/24", "2001:db8:1::1/64"]},
    {"port": 2, "mac": "02:00:00:00:00:02", "mtu": 1400, "addresses": ["10.0.2.1/24", "10.7.0.1/16", "2001:db8:2::1/64"]},
    {"port": 3, "mac": "02:00:00:00:00:03"},
    {"port": 4, "mac": "02:00:00:00:00:04", "forwarding": false}
  ],
  "routes": [
    {"to": "192.0.2.0/24", "via": "10.7.0.7", "port": 2},
    {"to": "192.0.3.0/24", "port": 2},
    {"to": "192.0.4.0/24", "port": 3},
    {"to": "198.51.100.0/24", "kind": "blackhole"},
    {"to": "2001:db8:9::/48", "via": "2001:db8:2::7", "port": 2},
    {"to": "2001:db8:a::/48", "port": 3}
  ],
  "neighbours": [
    {"address": "10.7.0.7", "port": 2, "mac": "02:00:00:00:07:07"},
    {"address": "2001:db8:2::7", "port": 2, "mac": "02:00:00:00:07:06"}
  ]
}"#;

#[test]
fn routes_and_lengths_are_judged_as_in_the_kernel() {
    let test = "routes_and_lengths_are_judged_as_in_the_kernel";
    let Some(program) = probe(test, "routes.bpf.c", &[]) else { return };
    let table = fib::Table::from_json(ROUTES).unwrap();
    let mut interp = Interpreter::new(Arc::new(program.clone())).unwrap().with_routes(table.clone());
    let mut kernel = match KernelEngine::load(&program).unwrap().with_routes(&table) {
        Ok(kernel) => kernel,
        Err(error) => return skip(test, &error.to_string()),
    };
    let mut rng = Rng::from_env(0xf1b);
    let targets = [
        "192.0.2.1",
        "192.0.3.1",
        "192.0.4.1",
        "198.51.100.1",
        "10.0.1.1",
        "10.0.2.7",
        "10.7.0.7",
        "10.0.2.255",
        "8.8.8.8",
        "127.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
        "2001:db8:9::1",
        "2001:db8:a::1",
        "2001:db8:1::1",
        "2001:db8:2::1",
        "2001:db8:2::7",
        "2001:db8:ff::1",
        "fe80::9",
        "ff02::1",
        "::1",
        "::",
    ];
    let packets = (0..PACKETS).map(|_| {
        let target: IpAddr = rng.pick(&targets).parse().unwrap();
        let mut lookup = rng.bytes(64);
        lookup[0] = if target.is_ipv6() { 10 } else { 2 };
        lookup[6..8].copy_from_slice(&rng.pick(&[60_u16, 1400, 1401, 1501]).to_le_bytes());
        lookup[8..12].copy_from_slice(&rng.pick(&[1_u32, 1, 1, 2, 3, 4, 9]).to_le_bytes());
        // Flow information of IPv6, type of service of IPv4.
        lookup[12..16].fill(0);
        let sources = ["10.0.1.5", "2001:db8:1::5", "fe80::5", "::1", "ff02::5"];
        let source: IpAddr = rng.pick(if target.is_ipv6() { &sources[1..] } else { &sources[..1] }).parse().unwrap();
        for (at, address) in [(16, source), (32, target)] {
            match address {
                IpAddr::V4(v4) => lookup[at..at + 4].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => lookup[at..at + 16].copy_from_slice(&v6.octets()),
            }
        }
        if rng.chance(3, 4) && target.is_ipv6() {
            lookup[16..32].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
        }
        let table = *rng.pick(&[0_u32, 77, 253, 254, 255, 256]);
        lookup[48..52].copy_from_slice(&table.to_le_bytes());
        // Not the flag for packets from this host: its result differs.
        let flags = (rng.below(64) as u8) & !2;
        let mut packet = vec![0x5a; 14];
        packet.extend([flags, *rng.pick(&[0, 1, 2, 3, 9]), 0, 0]);
        packet.extend(rng.pick(&[0_u32, 100, 1400, 1500, 1501, 0x7fff_ffff, 0xffff_fff0, 0x8000_0000]).to_le_bytes());
        packet.extend(rng.pick(&[0_i32, 1, -1, 15, i32::MIN, i32::MAX]).to_le_bytes());
        packet.extend([0; 8]);
        packet.extend(lookup);
        packet
    });
    let packets = arrivals(packets);
    let report = compare(&mut interp, &mut kernel, &packets, &CompareOptions::default()).unwrap();
    assert!(report.agrees(), "{:#?}", report.disagreement);
    assert_eq!(report.packets_compared as usize, packets.len());
}

#[test]
fn redirects_to_sockets_are_the_kernels() {
    let test = "redirects_to_sockets_are_the_kernels";
    let Some(program) = probe(test, "sockets.bpf.c", &[]) else { return };
    let mut rng = Rng::new(15);
    let packets = arrivals((0..PACKETS).map(|_| rng.bytes(64)));
    // No socket is bound: the action is in the flags.
    agree(test, &program, &packets, 64);
    let state = r#"{"sockets": [{"key": ["0x01","0x00","0x00","0x00"], "value": ["0x07","0x00","0x00","0x00"]}]}"#;
    let options = CompareOptions { state: Snapshot::from_json(state).unwrap(), ..CompareOptions::default() };
    let mut interp = Interpreter::new(Arc::new(program.clone())).unwrap();
    let mut kernel = KernelEngine::load(&program).unwrap();
    let report = compare(&mut interp, &mut kernel, &packets, &options).unwrap();
    assert!(report.disagreement.is_none(), "{:#?}", report.disagreement);
    // The socket for the key, with the bytes that the program wrote.
    interp.restore(&options.state).unwrap();
    let outcome = interp.process(&Packet { bytes: &[1, 2, 0, 0], port: Port(1) }, &Choices::seeded(0, 1, 0)).unwrap();
    let [sent] = outcome.outputs.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((sent.port, sent.port.to_string(), sent.bytes[2]), (Port::of_socket(1), "socket1".to_owned(), 7));
}
