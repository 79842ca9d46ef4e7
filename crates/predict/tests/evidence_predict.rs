// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The long proof of the cycle model: `make evidence` runs and records it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod predict_common;

use std::path::Path;
use std::time::Instant;

use flowloom_plan::{Scheme, Timing};
use flowloom_predict::{Arrivals, Captured, Flows, Pace, ReadAhead};
use flowloom_testkit::Clang;
use flowloom_trace::{CaptureReader, CaptureWriter, MergedReader, Profile, Traffic, TrafficOptions};
use predict_common::bucket::{Bucket, FORMS, Outcome, simulate};
use predict_common::{FULL_LINK, of_ehdl, run};

/// Packets of a simulation, and of a measurement of speed.
const PACKETS: u64 = 2_000_000;
const RUNS: usize = 5;
/// The clock of /proc.
const TICKS_PER_S: f64 = 100.0;

/// The leaky buckets under Zipf's law over 50,000 flows, at the holds of their own plans: flushes beside the paper's
/// formula as printed, with the harmonic number, and of one packet and those behind it (within 10%); at least 240 of
/// 250 Mpps by scheduler with at most 8 queues; 250 in one stage; one flow alone; nothing lost at 148.8 Mpps; traffic
/// like CAIDA's and MAWI's at 100 Gb/s beside table 2 of the paper. How fast the model is, with frames made or read
/// from a file, is measured and decides nothing.
#[test]
#[ignore = "a proof"]
fn evidence_predict() {
    let Some(clang) = Clang::find("evidence_predict") else { return };
    let buckets = FORMS.map(|form| (form, Bucket::new(&clang, form)));
    println!("50,000 Zipf-distributed flows, {PACKETS} packets of 60 bytes, Mpps at 250 MHz");
    println!("K: cycles of a flush; L: the hold; formulas: as printed, harmonic, of one packet and later ones\n");
    println!(
        "pipeline            scheme    K   L  printed  harmonic  one packet  simulated  one flow  lost at 148.8 Mpps"
    );
    row("the paper's", &simulate(of_ehdl(), PACKETS));
    for (form, bucket) in &buckets {
        for scheme in [Scheme::Flush, Scheme::Schedule, Scheme::Atomic] {
            row(form, &bucket.simulate(scheme, PACKETS));
        }
    }
    println!(
        "\ngenerated traffic at 100 Gb/s, {PACKETS} packets; the paper has no loss, 350,000 and 124,000 flushes a second"
    );
    println!("traffic    pipeline      scheme    Mpps  lost  flushes/s");
    let bucket = &buckets[0].1;
    for (profile, paper) in [(Profile::Caida2019, 350_000.0), (Profile::Mawi2021, 124_000.0)] {
        let plans = [Scheme::Flush, Scheme::Schedule, Scheme::Atomic].map(|scheme| ("our plan", bucket.timing(scheme)));
        for (what, timing) in [("the paper's", of_ehdl())].into_iter().chain(plans) {
            let report = bucket.traced(&timing, profile, PACKETS);
            let (own, name) = (&report.maps[0], profile.name());
            let (mpps, flushes) = (report.throughput_mpps, own.flushes_per_s);
            println!("{name:9}  {what:12}  {:8} {mpps:5.1} {:5} {flushes:10.0}", own.scheme, report.packets_lost);
            assert_eq!(report.packets_lost, 0);
            assert!(own.scheme != "flush" || (paper / 5.0..paper * 1.5).contains(&flushes), "{flushes}");
        }
    }
    println!("fewer flushes than in the paper: flow popularity and packet spacing are assumed");
    speed(bucket);
}

fn row(what: &str, outcome: &Outcome) {
    let (map, formulas) = (outcome.map(), &outcome.formulas);
    let is_flushed = map.scheme == Scheme::Flush;
    let of = |mpps: f64| if is_flushed { format!("{mpps:.1}") } else { "-".to_owned() };
    let cycles = if is_flushed { outcome.timing.flush_cycles(map).to_string() } else { "-".to_owned() };
    println!(
        "{what:18}  {:8} {cycles:>2}  {:2}  {:>7}  {:>8}  {:>10}  {:9.1}  {:8.1}  {}",
        map.scheme.as_str(),
        map.hold_cycles,
        of(formulas.printed_mpps),
        of(formulas.harmonic_mpps),
        of(formulas.conflict_mpps),
        outcome.zipf.throughput_mpps,
        outcome.single.throughput_mpps,
        outcome.line.packets_lost
    );
}

/// Seconds that all threads of this process have had.
fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS_PER_S
}

/// Million packets a second: by the wall, and by all processors' time.
fn measure<A: Arrivals>(what: &str, timing: &Timing, pace: Pace, mut arrivals: impl FnMut() -> A) {
    let (mut by_wall, mut by_cpu) = (Vec::new(), Vec::new());
    // The first one warms up.
    for number in 0..=RUNS {
        let arrivals = arrivals();
        let (start, before) = (Instant::now(), cpu_s());
        let report = run(timing, pace, arrivals);
        let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_s() - before);
        assert_eq!(report.packets_in, PACKETS);
        if number > 0 {
            by_wall.push(PACKETS as f64 / wall / 1e6);
            by_cpu.push(PACKETS as f64 / cpu / 1e6);
        }
    }
    by_wall.sort_by(f64::total_cmp);
    by_cpu.sort_by(f64::total_cmp);
    println!(
        "{what:44} {:5.2} ({:5.2} to {:5.2})  {:5.2}",
        by_wall[RUNS / 2],
        by_wall[0],
        by_wall[RUNS - 1],
        by_cpu[RUNS / 2]
    );
}

/// The whole way of packets, made or read, through keys and model to the report, with the bucket by its scheduler.
fn speed(bucket: &Bucket) {
    let timing = bucket.timing(Scheme::Schedule);
    let options =
        TrafficOptions { packets: Some(PACKETS), snap_bytes: Some(128), ..TrafficOptions::new(Profile::Caida2019) };
    let traffic = || Traffic::new(&options).unwrap();
    let file = std::env::temp_dir().join(format!("flowloom-speed-{}.pcap", std::process::id()));
    let mut writer = CaptureWriter::create(&file).unwrap();
    let mut generated = traffic();
    while let Some(packet) = generated.next_packet() {
        writer.write(packet.time_ns, packet.port, packet.len_bytes, None, packet.bytes).unwrap();
    }
    writer.finish().unwrap();
    let capture = |file: &Path| Captured::new(MergedReader::new(vec![CaptureReader::open(file).unwrap()]));
    println!("\nspeed in million packets per second, median of {RUNS} runs of {PACKETS} packets");
    println!("{:44} wall clock             processor time", "");
    let zipf = || Flows::zipf(50_000, 1.0, 1, PACKETS, 1);
    measure("the model: Zipf-distributed flows, a packet a cycle", &timing, Pace::Full, zipf);
    measure("a capture, one thread", &timing, FULL_LINK, || bucket.keyed(&timing, capture(&file)));
    measure("a capture, as `predict` reads it", &timing, FULL_LINK, || {
        bucket.keyed(&timing, ReadAhead::new(capture(&file)))
    });
    measure("generated traffic, one thread", &timing, FULL_LINK, || bucket.keyed(&timing, traffic()));
    measure("generated traffic, as `predict` generates it", &timing, FULL_LINK, || {
        bucket.keyed(&timing, ReadAhead::new(traffic()))
    });
    std::fs::remove_file(&file).unwrap();
}
