// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Redirects through maps of CPUs, of sockets and of ports, and to all ports of a map: in the pipeline, and in the
//! engine `pipeline`, against the interpreter.

use std::collections::BTreeMap;

use flowloom_engine::{Choices, Packet, Port, Ports, Snapshot, Verdict};
use flowloom_isa::asm;
use flowloom_session::Loaded;
use flowloom_session::engines::{EngineName, EngineOptions};
use flowloom_testkit::{Rng, skip};

use crate::stream::{case, compare_all, start};

/// Redirects by three bits of the packet, with the key of another byte; the last redirect of a packet counts.
const MIXED: &str = r#".program mixed
.license "GPL"
.map cpus cpumap key 4 value 4 entries 6
.map sockets xskmap key 4 value 4 entries 3
.map ports devmap key 4 value 4 entries 5
        r2 = *(u32 *)(r1 + 4)           ; xdp_md.data_end
        r1 = *(u32 *)(r1 + 0)           ; xdp_md.data
        r0 = 1                          ; XDP_DROP
        r3 = r1
        r3 += 14
        if r3 > r2 goto out
        r6 = *(u8 *)(r1 + 13)
        r6 &= 7
        r7 = *(u8 *)(r1 + 12)
        r7 &= 7
        *(u8 *)(r1 + 6) = r7
        if r6 > 1 goto next
        r1 = map[cpus] ll
        r2 = r7
        r3 = 2                          ; XDP_PASS for an absent CPU
        call redirect_map
        if r6 == 1 goto next
        exit
next:   if r6 > 3 goto all
        r1 = map[sockets] ll
        r2 = r7
        r3 = r7
        r3 <<= 32                       ; keys are 32 bits
        r2 |= r3
        r3 = 1                          ; XDP_DROP for an absent socket
        call redirect_map
        if r6 == 3 goto all
        exit
all:    if r6 == 6 goto others
        if r6 == 7 goto port
        r1 = map[ports] ll
        r2 = 0
        r3 = 8                          ; BPF_F_BROADCAST
        call redirect_map
        if r6 == 5 goto port
        exit
others: r1 = map[ports] ll
        r2 = 0
        r3 = 24                         ; BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS
        call redirect_map
        exit
port:   r1 = map[ports] ll
        r2 = r7
        r3 = r7
        r3 <<= 40
        r2 |= r3
        r3 = 3                          ; XDP_TX for an absent port
        call redirect_map
out:    exit
"#;

/// Entries of all three maps, or none: then maps of ports lead to the port of the key's number, the others nowhere.
fn states() -> [Snapshot; 2] {
    let entries = |all: &[(u32, u32)]| {
        all.iter().map(|(key, value)| (key.to_le_bytes().to_vec(), value.to_le_bytes().to_vec())).collect()
    };
    let maps = [
        ("cpus", entries(&[(0, 16), (2, 64), (5, 8)])),
        ("sockets", entries(&[(1, 1), (2, 1)])),
        // Port 9 is not bound.
        ("ports", entries(&[(0, 4), (1, 1), (3, 9), (4, 2)])),
    ];
    let maps = maps.map(|(name, entries)| (name.to_owned(), entries));
    [Snapshot { maps: maps.into(), ..Snapshot::default() }, Snapshot::default()]
}

/// The kind of an outcome, to count.
fn kind(outcome: &flowloom_engine::Outcome) -> String {
    let verdict = outcome.verdict;
    match &outcome.outputs[..] {
        [one] if one.port.cpu().is_some() => "CPU".to_owned(),
        [one] if one.port.socket().is_some() => "socket".to_owned(),
        [_] | [] => format!("{verdict} {}", outcome.outputs.len()),
        [_, _, ..] => "several ports".to_owned(),
    }
}

#[test]
fn redirects_to_cpus_sockets_and_all_ports_are_those_of_the_interpreter() {
    const TEST: &str = "redirects_to_cpus_sockets_and_all_ports_are_those_of_the_interpreter";
    let loaded = Loaded::of_program(asm::program("mixed", MIXED).unwrap());
    let engine = |name: &str| EngineName::by_name(name).unwrap();
    if let Err(reason) = (engine("pipeline").kind().available)() {
        return skip(TEST, &reason);
    }
    let load = |name: &str| engine(name).load(&loaded, &EngineOptions::default()).unwrap().engine;
    let (mut pipeline, mut interp) = (load("pipeline"), load("interp"));
    let mut rng = Rng::from_env(1);
    let seed = rng.next_u64();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for (number, state) in states().iter().enumerate() {
        for ports in [Ports::default(), Ports::bound([1, 2, 4].map(Port)), Ports::bound([])] {
            for engine in [&mut pipeline, &mut interp] {
                engine.bind_ports(&ports);
                engine.restore(state).unwrap();
            }
            let packet = |_| {
                let len = 10 + rng.below(120);
                (rng.bytes(len), Port(rng.below(5) as u32))
            };
            let packets: Vec<(Vec<u8>, Port)> = (0..300).map(packet).collect();
            let choices = |at: usize| Choices::seeded(1000 * at as u64, 0, seed);
            let all = packets.iter().enumerate();
            let all: Vec<(Packet<'_>, Choices)> =
                all.map(|(at, (bytes, port))| (Packet { bytes, port: *port }, choices(at))).collect();
            for chunk in all.chunks(100) {
                pipeline.announce(chunk).unwrap();
                for (packet, choices) in chunk {
                    let one = pipeline.process(packet, choices).unwrap();
                    let other = interp.process(packet, choices).unwrap();
                    assert_eq!(one, other, "seed {seed}, state {number}, {ports:?}, {packet:02x?}");
                    *found.entry(kind(&other)).or_default() += 1;
                }
            }
            assert_eq!(pipeline.snapshot().unwrap(), interp.snapshot().unwrap(), "seed {seed}");
        }
    }
    let redirect = Verdict::Redirect;
    let one = format!("{redirect} 1");
    for kind in ["CPU", "socket", "several ports", one.as_str(), "DROP 0", "PASS 1", "TX 1"] {
        assert!(found.get(kind).is_some_and(|count| *count > 10), "{kind}: {found:?}");
    }
}

#[test]
fn broadcasts_and_lookups_of_host_entries_at_full_rate() {
    let seed = Rng::from_env(1).next_u64();
    for (name, has_spread) in [("broadcasts", true), ("known", false)] {
        let case = case(name);
        let loaded = case.load();
        let test = "broadcasts_and_lookups_of_host_entries_at_full_rate";
        let Some(mut simulated) = start(test, &case.pipeline(&loaded), seed as u32) else { return };
        let compared = compare_all(case, &loaded, &mut simulated, seed, 4000).unwrap_or_else(|found| panic!("{found}"));
        let found = (compared.sent > 0, compared.changed > 0, compared.spread > 100);
        assert_eq!(found, (case.sends, case.changes, has_spread), "{name}: {compared:?}");
    }
}
