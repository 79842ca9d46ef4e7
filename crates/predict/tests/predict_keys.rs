// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of packets against the interpreter: what it looks up, what it changes, what leaves.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "../../plan/tests/common/mod.rs"]
mod common;
mod predict_common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Outcome, Packet, Port, Snapshot};
use flowloom_isa::{Program, asm};
use flowloom_plan::{Scheme, Timing};
use flowloom_predict::{Arrival, Arrivals, Frame, Frames, Keyed, Known, PredictError};
use flowloom_testkit::{Clang, PacketBuilder, Rng};
use flowloom_vm::Interpreter;
use predict_common::{built, map, pipeline};

const PACKETS: usize = 500;
/// Programs with larger arrays are not asked for all entries after every packet.
const MAX_ENTRIES: u32 = 5_000;

#[derive(Clone)]
struct OwnedFrame {
    time_ns: u64,
    port: u32,
    bytes: Vec<u8>,
}

#[derive(Clone)]
struct Listed {
    frames: Vec<OwnedFrame>,
    next: usize,
}

impl Frames for Listed {
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, PredictError> {
        self.next += 1;
        let frame = self.frames.get(self.next - 1);
        Ok(frame.map(|frame| Frame {
            time_ns: frame.time_ns,
            port: frame.port,
            len_bytes: frame.bytes.len() as u32,
            bytes: &frame.bytes,
        }))
    }
}

fn generated(rng: &mut Rng, count: usize) -> Listed {
    let mut time_ns = 1_000_000_000;
    let mut one = || {
        time_ns += rng.below(300_000) as u64;
        let bytes = match rng.below(12) {
            0 => rng.bytes(14),
            1 => vec![0xff; 60],
            _ => PacketBuilder::random(rng, 3).build(),
        };
        OwnedFrame { time_ns, port: rng.below(3) as u32, bytes }
    };
    Listed { frames: (0..count).map(|_| one()).collect(), next: 0 }
}

/// A timing that names all maps of a program.
fn with_key_map(program: &Program) -> Timing {
    pipeline(9, program.maps.iter().map(|def| map(&def.name, Scheme::Schedule, 1, 2)).collect())
}

fn arrivals(program: &Arc<Program>, is_exact: bool, frames: Listed) -> (Vec<Arrival>, Vec<Known>, Known) {
    arrivals_of(program, &with_key_map(program), is_exact, frames)
}

fn arrivals_of(
    program: &Arc<Program>,
    timing: &Timing,
    is_exact: bool,
    frames: Listed,
) -> (Vec<Arrival>, Vec<Known>, Known) {
    let mut keyed = Keyed::new(program, &built(program), timing, is_exact, frames).unwrap();
    let mut all = Vec::new();
    let mut packet = Arrival::default();
    while keyed.next(&mut packet).unwrap() {
        all.push(packet.clone());
    }
    let known = (0..program.maps.len()).map(|map| keyed.known(map)).collect();
    (all, known, keyed.known_verdict())
}

/// What the interpreter does with a packet.
struct Seen {
    outcome: Outcome,
    /// The first key that it looked up in each map.
    keys: BTreeMap<usize, Vec<u8>>,
    changed: Vec<bool>,
}

fn seen(program: &Arc<Program>, frames: &Listed) -> Vec<Seen> {
    let mut interp = Interpreter::new(Arc::clone(program)).unwrap().with_trail();
    let is_small = program.maps.iter().all(|def| !def.kind.is_indexed() || def.max_entries <= MAX_ENTRIES);
    let state = |interp: &mut Interpreter| if is_small { interp.snapshot().unwrap() } else { Snapshot::default() };
    let mut before = state(&mut interp);
    let of = |state: &Snapshot, name: &str| state.maps.get(name).cloned();
    let one = |(index, frame): (usize, &OwnedFrame)| {
        let choices = Choices::seeded(frame.time_ns, 1, index as u64);
        let packet = Packet { bytes: &frame.bytes, port: Port(frame.port) };
        let outcome = interp.process(&packet, &choices).unwrap();
        let mut keys = BTreeMap::new();
        for lookup in &interp.trail().unwrap().lookups {
            keys.entry(lookup.map).or_insert_with(|| lookup.key.clone());
        }
        let after = state(&mut interp);
        let is_changed = |name: &str| of(&before, name) != of(&after, name);
        let changed = program.maps.iter().map(|def| is_changed(&def.name)).collect();
        before = after;
        Seen { outcome, keys, changed }
    };
    frames.frames.iter().enumerate().map(one).collect()
}

/// Compares arrivals with what was seen; how many keys were compared, how many changes.
fn compare(program: &Program, arrivals: &[Arrival], known: &[Known], verdict: Known, seen: &[Seen]) -> (usize, usize) {
    let (mut keys, mut changes) = (0, 0);
    assert_eq!(arrivals.len(), seen.len());
    for (map, known) in known.iter().enumerate() {
        let mut hashes: BTreeMap<&[u8], u64> = BTreeMap::new();
        let mut owners: BTreeMap<u64, &[u8]> = BTreeMap::new();
        for (number, (arrival, seen)) in arrivals.iter().zip(seen).enumerate() {
            let what = || format!("{}, map {map} ({known:?}), packet {number}", program.name);
            let (uses, writes) = (arrival.uses >> map & 1 == 1, arrival.writes >> map & 1 == 1);
            if let Some(key) = seen.keys.get(&map) {
                assert!(uses, "{}", what());
                let hash = arrival.keys[map];
                assert_eq!(*hashes.entry(key).or_insert(hash), hash, "{}", what());
                assert_eq!(*owners.entry(hash).or_insert(key), key, "{}", what());
                keys += 1;
            }
            assert!(writes || !seen.changed[map], "{}", what());
            changes += usize::from(seen.changed[map]);
        }
    }
    for (arrival, seen) in arrivals.iter().zip(seen) {
        let leaves = seen.outcome.outputs.first().map_or(0, |output| output.bytes.len() as u32);
        let is_sent = !seen.outcome.outputs.is_empty();
        if verdict != Known::Assumed && (is_sent || matches!(seen.outcome.verdict.number(), 0 | 1)) {
            assert_eq!(arrival.leaving_bytes, leaves, "{}", program.name);
        }
    }
    (keys, changes)
}

/// Everything about a program; how its maps are known without running it.
fn check(program: Program, rng: &mut Rng) -> (Vec<Known>, usize, usize) {
    let program = Arc::new(program);
    let frames = generated(rng, PACKETS);
    let seen = seen(&program, &frames);
    let (quick, known, verdict) = arrivals(&program, false, frames.clone());
    let (keys, changes) = compare(&program, &quick, &known, verdict, &seen);
    let (exact, all_run, verdict) = arrivals(&program, true, frames);
    compare(&program, &exact, &all_run, verdict, &seen);
    for (quick, exact) in quick.iter().zip(&exact) {
        for (map, known) in known.iter().enumerate() {
            let of = |arrival: &Arrival| (arrival.uses >> map & 1, arrival.writes >> map & 1);
            let ((uses, writes), (used, written)) = (of(quick), of(exact));
            assert!(used <= uses && written <= writes, "{}, map {map}", program.name);
            if matches!(known, Known::Packet | Known::Run) {
                assert_eq!((uses, writes), (used, written), "{}, map {map}", program.name);
            }
            assert!(used == 0 || *known == Known::Assumed || quick.keys[map] == exact.keys[map]);
        }
    }
    (known, keys, changes)
}

#[test]
fn keys_of_an_assembled_program() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/ebpf/toy/toy_printed.bpf");
    let text = std::fs::read_to_string(top).unwrap();
    let program = asm::program("toy", &text).unwrap_or_else(|errors| panic!("{errors}"));
    let (known, keys, changes) = check(program, &mut Rng::from_env(3));
    // Whether it counts depends on whether the lookup found its entry.
    assert_eq!((known, keys, changes), (vec![Known::Assumed], PACKETS, PACKETS));
}

#[test]
fn keys_of_the_classical_programs() {
    let Some(clang) = Clang::find("keys_of_the_classical_programs") else { return };
    let mut rng = Rng::from_env(4);
    let mut found = BTreeMap::new();
    for file in common::files().into_iter().filter(|path| path.to_string_lossy().ends_with(".bpf.c")) {
        let object = clang.compile_file(&file, &["-Wno-sign-compare"]).unwrap();
        let object = flowloom_object::read(&object, &file.to_string_lossy()).unwrap();
        for program in object.programs.into_iter().filter(|program| program.kind.is_xdp()) {
            let names: Vec<String> = program.maps.iter().map(|def| def.name.clone()).collect();
            let name = program.name.clone();
            let (known, keys, changes) = check(program, &mut rng);
            eprintln!("{name}: {:?}, {keys} keys, {changes} changes", names.iter().zip(&known).collect::<Vec<_>>());
            found.insert(name, (known, keys, changes));
        }
    }
    assert!(found.len() >= 13, "{}", found.len());
    // Where an entry is missing it is made: whether it is, depends on the map.
    assert_eq!(found["leaky_bucket"].0, [Known::Assumed]);
    assert_eq!(found["rxq_info"].0[0], Known::Packet);
    assert!(found["dnat"].0.iter().all(|known| *known == Known::Run));
    assert!(found.values().all(|(_, keys, _)| *keys > 0), "{found:?}");
    assert!(found.values().filter(|(.., changes)| *changes > 0).count() >= 8, "{found:?}");
}

/// Two lookups in a map with other keys, the first of which happens for some packets only; a key that the clock says; a
/// lookup with what another one has found.
const SEVERAL: &str = "
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#define MAP(name, key_type, count) struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, count); \
        __type(key, key_type); __type(value, __u64); } name SEC(\".maps\")
MAP(either, __u32, 64);
MAP(by_time, __u64, 64);
MAP(by_count, __u64, 64);
SEC(\"xdp\") int several(struct xdp_md *ctx)
{
        unsigned char *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        __u64 now = bpf_ktime_get_ns() >> 20, random = bpf_get_prandom_u32() & 3, one = 1, *found, *count;
        __u32 first, second;
        if (data + 34 > end)
                return XDP_DROP;
        first = data[33] & 3;
        second = data[29] & 3;
        if (data[12] == 8) {
                found = bpf_map_lookup_elem(&either, &first);
                if (found)
                        *found += 1;
        }
        found = bpf_map_lookup_elem(&either, &second);
        if (!found)
                bpf_map_update_elem(&either, &second, &one, BPF_ANY);
        now += random;
        count = bpf_map_lookup_elem(&by_time, &now);
        if (!count)
                bpf_map_update_elem(&by_time, &now, &one, BPF_ANY);
        if (found && bpf_map_lookup_elem(&by_count, found))
                return XDP_PASS;
        return XDP_TX;
}";

#[test]
fn keys_of_several_lookups() {
    let Some(clang) = Clang::find("keys_of_several_lookups") else { return };
    let object = flowloom_object::read(&clang.compile(SEVERAL, &["-mcpu=v3"]).unwrap(), "several").unwrap();
    let program = object.xdp().next().unwrap().clone();
    let mut rng = Rng::from_env(5);
    let (known, keys, changes) = check(program.clone(), &mut rng);
    assert_eq!(known, [Known::Run; 3]);
    assert!(keys > PACKETS && changes > PACKETS / 4, "{keys} {changes}");
    // What is not asked for does not make the program run.
    let program = Arc::new(program);
    let mut timing = with_key_map(&program);
    timing.maps[1].scheme = Scheme::Atomic;
    timing.maps[2].scheme = Scheme::None;
    let frames = generated(&mut rng, PACKETS);
    let seen = seen(&program, &frames);
    let (quick, known, _) = arrivals_of(&program, &timing, false, frames);
    assert_eq!(known, [Known::Assumed, Known::Unasked, Known::Unasked]);
    let mut hashes: BTreeMap<&[u8], u64> = BTreeMap::new();
    for (arrival, seen) in quick.iter().zip(&seen) {
        let Some(key) = seen.keys.get(&0) else { continue };
        assert_eq!(*hashes.entry(key).or_insert(arrival.keys[0]), arrival.keys[0]);
        assert_eq!(arrival.uses, 1);
    }
    assert_eq!(hashes.len(), 4);
}
