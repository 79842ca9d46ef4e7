// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The leaky bucket on traffic like that of the paper's traces, beside its table 2.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod predict_common;

use flowloom_plan::{MapTiming, Scheme};
use flowloom_predict::{Arrival, Arrivals, Captured, Known, Pace, PredictError, PredictOptions, predict, shared_maps};
use flowloom_testkit::Clang;
use flowloom_trace::{CaptureReader, CaptureWriter, MergedReader, Profile, Traffic, TrafficOptions};
use predict_common::bucket::{Bucket, FORMS};
use predict_common::{FULL_LINK, built, leaky_bucket, map, of_ehdl, pipeline, run};

const PACKETS: u64 = 200_000;

fn traffic(profile: Profile) -> Traffic {
    let options = TrafficOptions { packets: Some(PACKETS), snap_bytes: Some(96), ..TrafficOptions::new(profile) };
    Traffic::new(&options).unwrap()
}

/// Packets that all have the same key.
struct OneFlow<A>(A);

impl<A: Arrivals> Arrivals for OneFlow<A> {
    fn next(&mut self, packet: &mut Arrival) -> Result<bool, PredictError> {
        let is_there = self.0.next(packet)?;
        (packet.uses, packet.writes) = (u64::MAX, u64::MAX);
        packet.keys.fill(7);
        Ok(is_there)
    }
}

#[test]
fn table_2_of_ehdl() {
    let Some(clang) = Clang::find("table_2_of_ehdl") else { return };
    let bucket = Bucket::new(&clang, FORMS[0]);
    // Of the paper: lost packets, flushes a second, Mpps at 100 Gb/s of packets of this mean length.
    let printed = [(Profile::Caida2019, 350_000.0, 29.0, 411.0), (Profile::Mawi2021, 124_000.0, 21.0, 573.0)];
    let mut rates = Vec::new();
    for (profile, flushes, mpps, len) in printed {
        let report = bucket.traced(&of_ehdl(), profile, PACKETS);
        let offered: f64 = 1e5 / ((len + 24.0) * 8.0);
        eprintln!(
            "{}: {} lost, {:.0} flushes a second (the paper: 0, {flushes}), {:.1} Mpps",
            profile.name(),
            report.packets_lost,
            report.maps[0].flushes_per_s,
            report.throughput_mpps
        );
        assert_eq!((report.packets_lost, report.maps[0].known), (0, Known::Assumed));
        assert!((report.throughput_mpps / offered - 1.0).abs() < 0.02, "{}", report.throughput_mpps);
        assert!((offered - mpps).abs() < 0.5, "{offered}");
        // As rare as in the paper: how popular flows are, and how they come, is of our own making.
        assert!((flushes / 5.0..flushes * 1.5).contains(&report.maps[0].flushes_per_s));
        rates.push(report.maps[0].flushes_per_s);
        let planned = [Scheme::Flush, Scheme::Schedule, Scheme::Atomic].map(|scheme| bucket.timing(scheme));
        let held_for_8 = [Scheme::Schedule, Scheme::Atomic].map(|scheme| leaky_bucket(scheme, 8));
        for timing in planned.into_iter().chain(held_for_8) {
            let report = bucket.traced(&timing, profile, PACKETS);
            assert_eq!(report.packets_lost, 0, "{} by {timing:?}", profile.name());
        }
    }
    assert!(rates[0] > 2.0 * rates[1], "{rates:?}");
}

#[test]
fn all_in_one_flow_is_slower() {
    let Some(clang) = Clang::find("all_in_one_flow_is_slower") else { return };
    let bucket = Bucket::new(&clang, FORMS[0]);
    let timing = of_ehdl();
    let report = run(&timing, Pace::Full, OneFlow(bucket.keyed(&timing, traffic(Profile::Caida2019))));
    eprintln!("one flow: {:.1} Mpps (the paper: 12)", report.throughput_mpps);
    // From one write to the next. In the paper's pipeline every word of a packet has a stage, so that long packets keep
    // their distance when they start again; here windows wait in the elastic buffer, and follow each other.
    assert!((report.throughput_mpps - 250.0 / 39.0).abs() < 0.05, "{}", report.throughput_mpps);
}

#[test]
fn captures_equal_the_generated_traffic() {
    let Some(clang) = Clang::find("captures_equal_the_generated_traffic") else { return };
    let bucket = Bucket::new(&clang, FORMS[0]);
    let file = std::env::temp_dir().join(format!("flowloom-predict-{}.pcapng", std::process::id()));
    let mut writer = CaptureWriter::create(&file).unwrap();
    let mut generated = traffic(Profile::Mawi2021);
    for _ in 0..20_000 {
        let Some(packet) = generated.next_packet() else { break };
        writer.write(packet.time_ns, packet.port, packet.len_bytes, None, packet.bytes).unwrap();
    }
    writer.finish().unwrap();
    let (timing, options) =
        (leaky_bucket(Scheme::Flush, 8), PredictOptions { packets: Some(20_000), ..PredictOptions::new(FULL_LINK) });
    let reader = MergedReader::new(vec![CaptureReader::open(&file).unwrap()]);
    let found = predict(&timing, &options, &mut bucket.keyed(&timing, Captured::new(reader))).unwrap();
    std::fs::remove_file(&file).unwrap();
    let packets = || bucket.keyed(&timing, traffic(Profile::Mawi2021));
    let expected = predict(&timing, &options, &mut packets()).unwrap();
    assert_eq!(found.packets_in, 20_000);
    assert_eq!(found, expected);
    // In its own time it is a hundred times slower, and nothing meets.
    let own = predict(&timing, &PredictOptions { pace: Pace::Own, ..options }, &mut packets()).unwrap();
    assert!(own.offered_mpps < 0.2 && own.latency.p99_cycles == 20, "{own:?}");
}

#[test]
fn maps_shared_by_all_packets_are_reported() {
    let Some(clang) = Clang::find("maps_shared_by_all_packets_are_reported") else { return };
    let bucket = Bucket::new(&clang, FORMS[0]);
    assert_eq!(shared_maps(&bucket.program, &bucket.dataflow, &leaky_bucket(Scheme::Flush, 8)), [false]);
    let source = "
        #include <linux/bpf.h>
        #include <bpf/bpf_helpers.h>
        __u64 packets;
        struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 4); __type(key, __u32); __type(value, __u64); } turns SEC(\".maps\");
        SEC(\"xdp\") int count(struct xdp_md *ctx)
        {
                __u32 key = 3;
                (void)ctx;
                __u64 *turn = bpf_map_lookup_elem(&turns, &key);
                packets += 1;
                if (turn)
                        *turn = *turn * 5 + packets;
                return XDP_PASS;
        }";
    let object = flowloom_object::read(&clang.compile(source, &[]).unwrap(), "count").unwrap();
    let program = object.xdp().next().unwrap();
    let maps: Vec<MapTiming> = program.maps.iter().map(|def| map(&def.name, Scheme::Schedule, 2, 3)).collect();
    assert_eq!(shared_maps(program, &built(program), &pipeline(9, maps)), vec![true; 2]);
}
