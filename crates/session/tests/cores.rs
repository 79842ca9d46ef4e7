// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions on several cores: what is split, and the results of one core.

use std::collections::BTreeMap;
use std::path::Path;

use flowloom_engine::{Datapath, Draws, Frame, HEADROOM_BYTES, InPlace, Port, Tally};
use flowloom_random::{Draw, SplitMix64};
use flowloom_session::Loaded;
use flowloom_session::engines::{Cores, CoresOptions, EngineName, EngineOptions, split};
use flowloom_testkit::{PacketBuilder, golden};
use flowloom_verify::{Arrival, CompareOptions, compare};

use crate::repository;
use crate::stream::top;

/// All run on threads of their own, however few packets there are.
const THREADED: CoresOptions = CoresOptions { is_exact: true, parallel_from: 2, is_paced: false };

fn opened(path: &str) -> Loaded {
    repository::open(&top().join(path))
}

fn on_cores(loaded: &Loaded, options: &EngineOptions, cores: usize) -> Cores {
    EngineName::JIT.load_on_cores(loaded, options, cores, THREADED).unwrap_or_else(|error| panic!("{error}")).0
}

/// Packets in both directions of `flows` flows: TCP and UDP, some in VLANs, with options, in fragments, over IPv6,
/// short.
fn packets(seed: u64, flows: u64, count: usize) -> Vec<Arrival> {
    let mut rng = SplitMix64::new(seed);
    let mut packet = |number: usize| {
        let flow = rng.next_u64() % flows;
        let (mut src, mut dst) = ([10, 0, (flow >> 8) as u8, flow as u8], [10, 1, 0, (flow % 7) as u8]);
        let (mut sport, mut dport) = (1000 + (flow % 5) as u16, 80);
        let kind = rng.next_u64();
        let is_back = kind & 1 == 1;
        if is_back {
            (src, dst, sport, dport) = (dst, src, dport, sport);
        }
        let mut builder = PacketBuilder::new();
        if kind >> 8 & 15 == 0 {
            builder = builder.vlan(7);
        }
        let v6 = |v4: [u8; 4]| [0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, v4[0], v4[1], v4[2], v4[3]];
        builder = match flow % 8 {
            0 => builder.ipv6(v6(src), v6(dst)),
            _ => builder.ipv4(src, dst).ipv4_id(1, flow.is_multiple_of(2)),
        };
        if kind >> 12 & 15 == 0 && !flow.is_multiple_of(8) {
            builder = builder.ipv4_options(&[1, 1, 1, 1]);
        }
        if kind >> 16 & 63 == 0 && !flow.is_multiple_of(8) {
            builder = builder.fragment(3, false);
        }
        builder = if flow.is_multiple_of(3) { builder.tcp(sport, dport) } else { builder.udp(sport, dport) };
        let mut bytes = builder.payload(&[7; 20]).build();
        if kind >> 24 & 63 == 0 {
            bytes.truncate(14 + (kind >> 32 & 31) as usize);
        }
        Arrival { time_ns: 1_000 * number as u64, port: Port(if is_back { 2 } else { 1 }), bytes }
    };
    (0..count).map(&mut packet).collect()
}

#[test]
fn what_is_split_of_each_function_is_known() {
    let mut text = String::new();
    for (name, path) in repository::all() {
        let decided = match split(&repository::open(&path)) {
            Ok(split) => format!("by {}", split.by()),
            Err(reasons) => format!("one core: {}", reasons.join("; ")),
        };
        text.push_str(&format!("{name}\n    {decided}\n"));
    }
    golden(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cores.txt"), &text);
}

#[test]
fn several_cores_give_the_results_of_one() {
    let seed = 11;
    for path in [
        "functions/ebpf/simple_firewall/simple_firewall.bpf.c",
        "functions/ebpf/suricata/suricata.bpf.c",
        "functions/big_flow/big_flow.efsm",
        "functions/udp_firewall/udp_firewall.efsm",
    ] {
        let loaded = opened(path);
        let options = EngineOptions::default();
        let mut one = EngineName::INTERP.load(&loaded, &options).unwrap().engine;
        for cores in [2, 3] {
            let mut several = on_cores(&loaded, &options, cores);
            let how = CompareOptions { snapshot_every: 700, layouts: loaded.layouts(), ..CompareOptions::default() };
            let report = compare(one.as_mut(), &mut several, &packets(seed, 200, 3000), &how).unwrap();
            assert!(report.agrees(), "{path} on {cores} cores, seed {seed}: {:?}", report.disagreement);
            assert_eq!(several.joined(), None, "{path}");
            let shares = several.packets();
            assert!(shares.iter().all(|packets| *packets > 300), "{path}: {shares:?}");
        }
    }
}

#[test]
fn one_core_runs_all_packets_once_a_table_may_be_full() {
    let seed = 12;
    let loaded = opened("functions/ebpf/simple_firewall/simple_firewall.bpf.c");
    let options = EngineOptions { capacities: BTreeMap::from([("flows".to_owned(), 40)]), ..EngineOptions::default() };
    let mut one = EngineName::INTERP.load(&loaded, &options).unwrap().engine;
    let mut several = on_cores(&loaded, &options, 2);
    let report = compare(one.as_mut(), &mut several, &packets(seed, 200, 2000), &CompareOptions::default()).unwrap();
    assert!(report.agrees(), "seed {seed}: {:?}", report.disagreement);
    assert!(several.joined().is_some_and(|reason| reason.contains("`flows` may be full")), "{:?}", several.joined());
    // A new state is split again.
    several.restore(&flowloom_engine::Snapshot::default()).unwrap();
    assert_eq!(several.joined(), None);
}

#[test]
fn a_state_is_divided_and_merged() {
    let loaded = opened("functions/udp_firewall/udp_firewall.efsm");
    let options = EngineOptions { counters: true, ..EngineOptions::default() };
    let mut one = EngineName::INTERP.load(&loaded, &options).unwrap().engine;
    for (number, arrival) in packets(13, 100, 1000).iter().enumerate() {
        let choices = flowloom_engine::Choices::seeded(arrival.time_ns, 0, number as u64);
        one.process(&arrival.packet(), &choices).unwrap();
    }
    let state = one.snapshot().unwrap();
    assert!(state.maps["flows"].len() > 50);
    let mut several = on_cores(&loaded, &options, 3);
    several.restore(&state).unwrap();
    assert_eq!(several.snapshot().unwrap(), state);
    // The rest of the run, from the same state on both.
    let how = CompareOptions { state, layouts: loaded.layouts(), ..CompareOptions::default() };
    let report = compare(one.as_mut(), &mut several, &packets(14, 150, 1000), &how).unwrap();
    assert!(report.agrees(), "{:?}", report.disagreement);
}

#[test]
fn frames_are_changed_in_place_in_their_order() {
    for path in ["functions/big_flow/big_flow.efsm", "functions/ebpf/simple_firewall/simple_firewall.bpf.c"] {
        let loaded = opened(path);
        let options = EngineOptions { counters: true, ..EngineOptions::default() };
        let arrivals = packets(15, 50, 5000);
        let ran = |engine: &mut dyn InPlace, batch: usize| {
            let mut buffers: Vec<Vec<u8>> =
                arrivals.iter().map(|arrival| [&[0; HEADROOM_BYTES][..], &arrival.bytes, &[0; 64]].concat()).collect();
            let mut frames: Vec<Frame<'_>> = buffers
                .iter_mut()
                .zip(&arrivals)
                .map(|(buffer, arrival)| {
                    let end = buffer.len() - 64;
                    Frame::new(buffer, HEADROOM_BYTES, end, arrival.port, arrival.time_ns)
                })
                .collect();
            let mut extra = Vec::new();
            for frames in frames.chunks_mut(batch) {
                engine.run(frames, &mut extra).unwrap();
            }
            let found = |frame: &Frame<'_>| (frame.fate, frame.bytes().to_vec());
            (frames.iter().map(found).collect::<Vec<_>>(), extra)
        };
        // All at once; in batches of interfaces, so many that some run on several threads and some on one.
        for (how, batch) in [(THREADED, arrivals.len()), (CoresOptions::live(), 64)] {
            let mut one = EngineName::JIT.load_in_place(&loaded, &options).unwrap().engine;
            let mut several = EngineName::JIT.load_on_cores(&loaded, &options, 2, how).unwrap().0;
            let expected = ran(&mut *one, batch);
            assert_eq!(ran(&mut several, batch), expected, "{path}, {how:?}");
            assert_eq!(several.snapshot().unwrap(), one.datapath().snapshot().unwrap(), "{path}, {how:?}");
            assert!(several.packets().iter().all(|packets| *packets > 1000), "{path}, {how:?}");
            // 78 batches are paced: some run on one thread, and some on two.
            let threaded = several.threaded_batches();
            assert_eq!((1..78).contains(&threaded), how.is_paced, "{path}, {how:?}: {threaded}");
        }
    }
}

#[test]
fn announced_packets_leave_as_on_one_core_on_one_thread_and_on_two() {
    let loaded = opened("functions/ebpf/simple_firewall/simple_firewall.bpf.c");
    let options = EngineOptions::default();
    let mut one = EngineName::JIT.load(&loaded, &options).unwrap().engine;
    let mut several = EngineName::JIT.load_on_cores(&loaded, &options, 2, CoresOptions::default()).unwrap().0;
    let seed = 18;
    let arrivals = packets(seed, 50, 40 * 128);
    for (batch, arrivals) in arrivals.chunks(128).enumerate() {
        let choice = |arrival: &Arrival| flowloom_engine::Choices::seeded(arrival.time_ns, 0, 0);
        let batch_packets: Vec<_> = arrivals.iter().map(|arrival| (arrival.packet(), choice(arrival))).collect();
        several.announce(&batch_packets).unwrap();
        for (packet, choices) in &batch_packets {
            let expected = one.process(packet, choices).unwrap();
            assert_eq!(
                Datapath::process(&mut several, packet, choices).unwrap(),
                expected,
                "batch {batch}, seed {seed}"
            );
        }
    }
    assert_eq!(several.snapshot().unwrap(), one.snapshot().unwrap(), "seed {seed}");
    assert!((1..40).contains(&several.threaded_batches()), "{}", several.threaded_batches());
}

/// What packets count, in calls of different lengths, and the state after them.
fn counted(engine: &mut dyn Datapath, arrivals: &[Arrival]) -> (Tally, flowloom_engine::Snapshot) {
    let mut packets = Vec::new();
    for Arrival { time_ns, port, bytes } in arrivals {
        packets.push(flowloom_engine::Arrival { bytes, now_ns: *time_ns, port: *port });
    }
    let (mut tally, mut first) = (Tally::default(), 0);
    for len in [1, 2, 700, 5, 0, 20_000, usize::MAX] {
        let end = packets.len().min(first + len.min(packets.len()));
        let draws = Draws { seed: 3, first: first as u64 };
        engine.tally(&packets[first..end], draws, &mut tally).unwrap();
        first = end;
    }
    assert_eq!((first, tally.packets()), (packets.len(), packets.len() as u64));
    (tally, engine.snapshot().unwrap())
}

#[test]
fn counts_of_several_cores_are_those_of_one() {
    let seed = 16;
    let arrivals = packets(seed, 200, 40_000);
    for path in [
        "functions/ebpf/simple_firewall/simple_firewall.bpf.c",
        "functions/ebpf/suricata/suricata.bpf.c",
        // Packets become longer; random numbers are drawn.
        "functions/ebpf/dnat/dnat.bpf.c",
        "functions/big_flow/big_flow.efsm",
        "functions/udp_firewall/udp_firewall.efsm",
    ] {
        let loaded = opened(path);
        let options = EngineOptions { counters: true, ..EngineOptions::default() };
        let expected = counted(EngineName::INTERP.load(&loaded, &options).unwrap().engine.as_mut(), &arrivals);
        let mut one = EngineName::JIT.load(&loaded, &options).unwrap().engine;
        assert!(one.tallies(), "{path}");
        assert_eq!(counted(one.as_mut(), &arrivals), expected, "{path}, seed {seed}");
        for cores in [2, 3] {
            let Ok((mut several, _)) = EngineName::JIT.load_on_cores(&loaded, &options, cores, THREADED) else {
                assert!(path.contains("dnat"), "{path}");
                continue;
            };
            assert_eq!(counted(&mut several, &arrivals), expected, "{path} on {cores} cores, seed {seed}");
            assert_eq!(several.joined(), None, "{path}");
            let shares = several.packets();
            assert_eq!(shares.iter().sum::<u64>(), 40_000, "{path}");
            assert!(shares.iter().all(|packets| *packets > 8_000), "{path}: {shares:?}");
        }
    }
}

#[test]
fn counts_are_those_of_one_core_where_a_table_becomes_full() {
    let seed = 17;
    let arrivals = packets(seed, 3_000, 40_000);
    let loaded = opened("functions/ebpf/simple_firewall/simple_firewall.bpf.c");
    for (entries, is_joined) in [(40, true), (700, true), (1_400, true), (30_000, false)] {
        let capacities = BTreeMap::from([("flows".to_owned(), entries)]);
        let options = EngineOptions { capacities, ..EngineOptions::default() };
        let expected = counted(EngineName::INTERP.load(&loaded, &options).unwrap().engine.as_mut(), &arrivals);
        let mut several = on_cores(&loaded, &options, 2);
        assert_eq!(counted(&mut several, &arrivals), expected, "{entries} entries, seed {seed}");
        assert_eq!(several.joined().is_some(), is_joined, "{entries} entries");
        assert_eq!(several.packets().iter().sum::<u64>(), 40_000);
        // Both cores have run packets before.
        assert!(entries < 100 || several.packets()[1] > 100, "{:?}", several.packets());
    }
}
