//! Maps and helpers, order by order: interpreter and kernel give the same answers, errors and contents.
//!
//! Programs in C (`probes/*.bpf.c`) do what a packet says and write what they are answered into the packet or a map.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use flowloom_bpf::{Interpreter, Program, elf};
use flowloom_engine::Port;
use flowloom_exec::KernelEngine;
use flowloom_testkit::{Clang, Rng, skip};
use flowloom_verify::{Arrival, CompareOptions, Report, compare};

const PACKETS: usize = 4000;

/// What clang and the kernel make of a probe; `None` where one of them is not there.
fn probe(test: &str, name: &str, macros: &[&str]) -> Option<Program> {
    if let Err(reason) = KernelEngine::available() {
        skip(test, &reason.to_string());
        return None;
    }
    let clang = Clang::find(test)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probes").join(name);
    let arguments: Vec<&str> = ["-mcpu=v3", "-Wno-unused-parameter"].iter().chain(macros).copied().collect();
    let object = clang.compile_file(&source, &arguments).unwrap_or_else(|why| panic!("{macros:?}: {why}"));
    let object = elf::read(&object, name).unwrap_or_else(|error| panic!("{macros:?}: {error}"));
    Some(object.program("probe").unwrap().clone())
}

fn agree(title: &str, program: &Program, packets: &[Arrival]) -> Report {
    let mut interp = Interpreter::new(Arc::new(program.clone())).unwrap_or_else(|error| panic!("{title}: {error}"));
    let mut kernel = KernelEngine::load(program).unwrap_or_else(|error| panic!("{title}: {error}"));
    let options = CompareOptions { snapshot_every: 200, ..CompareOptions::default() };
    let report =
        compare(&mut interp, &mut kernel, packets, &options).unwrap_or_else(|error| panic!("{title}: {error}"));
    if let Some(disagreement) = &report.disagreement {
        panic!("{title}: {disagreement:#?}");
    }
    assert_eq!(report.packets_compared as usize, packets.len(), "{title}");
    report
}

fn arrivals(packets: impl Iterator<Item = Vec<u8>>) -> Vec<Arrival> {
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
        // Never full: what an LRU table forgets is its own choice.
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
        agree(&macros.join(" "), &program, &arrivals(packets.collect::<Vec<_>>().into_iter()));
    }
}

/// A text that has something for helpers that read texts.
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

#[test]
fn helpers_answer_as_the_kernels_do() {
    let test = "helpers_answer_as_the_kernels_do";
    let Some(program) = probe(test, "helpers.bpf.c", &[]) else { return };
    let mut rng = Rng::from_env(0x4e19);
    for what in 0..20 {
        let packets: Vec<Vec<u8>> = (0..PACKETS / 10)
            .map(|_| {
                let a = *rng
                    .pick(&[0, 1, 4, -4, 8, -8, 14, -14, 60, -60, 100, -216, 216, -217, -256, 252, -252, 3000, 3500]);
                let a: i16 = if rng.chance(1, 3) { rng.below(1 << 16) as u16 as i16 } else { a };
                let b = *rng.pick(&[0, 1, 8, 10, 16, 14, 60, 100, 0xffff, 0x10000, -1, i32::MIN, i32::MAX]);
                let b = if rng.chance(1, 3) { rng.below(1 << 20) as i32 } else { b };
                let mut packet = vec![0x5a; 14];
                packet.extend([what, rng.below(256) as u8]);
                packet.extend(a.to_le_bytes());
                packet.extend(b.to_le_bytes());
                packet.extend(if rng.chance(1, 2) { [0; 8] } else { rng.bytes(8).try_into().unwrap() });
                packet.extend(text(&mut rng));
                let more = rng.below(200);
                packet.extend(rng.bytes(more));
                packet
            })
            .collect();
        agree(&format!("helper {what}"), &program, &arrivals(packets.into_iter()));
    }
}
