// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of `flowloom predict`: traffic, rates and pipelines from the command line.

use crate::common::{name, ok, packet, put, refused, write};
use serde_json::{Value, json};

const TOY: &str = "functions/ebpf/toy/toy_printed.bpf";

/// Timing with the toy's only map under this scheme.
fn timing(scheme: &str) -> Value {
    let map = json!({
        "name": "stats",
        "scheme": scheme,
        "read_stage": 4,
        "write_stage": 6,
        "hold_cycles": 3,
        "queues": 4,
        "queue_depth": 32,
        "restart_stage": 4,
    });
    json!({
        "clock_mhz": 250.0,
        "stages": 9,
        "latency_cycles": 15,
        "reload_cycles": 4,
        "arbiter": "oldest",
        "maps": [map],
    })
}

fn predicted(arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(&[&["predict", TOY, "--json"], arguments].concat())).unwrap()
}

#[test]
fn traffic_and_pipelines_are_what_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "toy.json", timing("schedule").to_string());
    let file = file.to_str().unwrap();
    let on = |arguments: &[&str]| predicted(&[&["--timing", file, "-c", "20000"], arguments].concat());
    let mpps = |report: &Value| report["throughput_mpps"].as_f64().unwrap();

    let zipf = on(&["--zipf", "50k", "--rate", "line"]);
    assert_eq!((&zipf["packets_in"], &zipf["maps"][0]["known"]), (&json!(20_000), &json!("flows")));
    assert!(mpps(&zipf) > 249.0 && zipf["formulas"] == json!([]));
    let flushed = on(&["--zipf", "50k", "--rate", "line", "--scheme", "stats=flush"]);
    assert!(mpps(&flushed) < 240.0 && flushed["formulas"][0]["flush_cycles"] == 7, "{flushed}");
    let single = on(&["--flows", "1", "--rate", "line"]);
    assert!((mpps(&single) - 250.0 / 3.0).abs() < 0.1, "{single}");
    let atomic = on(&["--flows", "1", "--rate", "148.8Mpps", "--scheme", "stats=atomic"]);
    assert!(atomic["packets_lost"] == 0 && (mpps(&atomic) - 148.8).abs() < 0.1, "{atomic}");
    let slow = on(&["--flows", "1", "--rate", "100G", "--clock", "100", "--scheme", "stats=atomic"]);
    assert!(slow["clock_mhz"] == 100.0 && slow["packets_lost"].as_u64().unwrap() > 1000, "{slow}");
    let queues = on(&["--zipf", "50k", "--queues", "9"]);
    assert_eq!(queues["maps"][0]["longest_queues"].as_array().unwrap().len(), 10);

    let profile = on(&["--profile", "caida2019", "--rate", "100G", "--estimate"]);
    assert_eq!((&profile["maps"][0]["known"], &profile["packets_lost"]), (&json!("assumed"), &json!(0)));
    assert!(profile["traffic"] == "caida2019" && (mpps(&profile) - 28.7).abs() < 1.0, "{profile}");
    // The program runs on every packet unless an estimate is requested.
    let run = on(&["--profile", "caida2019", "--rate", "100G"]);
    assert_eq!(run["maps"][0]["known"], "run");
    let exact = on(&["--profile", "caida2019", "--rate", "100G", "--exact"]);
    assert_eq!(exact, run);

    let text = ok(&["predict", TOY, "--timing", file, "--zipf", "1000", "-c", "1000"]);
    for part in
        ["toy_printed on 1000 Zipf-distributed flows: 1 000 packets", "throughput", "p99.9", "map stats: schedule"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn captures_come_in_their_own_time_or_at_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let (file, capture) = (folder.path().join("toy.json"), folder.path().join("in.pcap"));
    std::fs::write(&file, timing("schedule").to_string()).unwrap();
    write(&capture, &(0..100).map(|number| packet(1_000_000 + 1000 * number, vec![0; 60])).collect::<Vec<_>>());
    let (file, capture) = (file.to_str().unwrap(), capture.to_str().unwrap());
    let at = |rate| predicted(&["--timing", file, "-r", capture, "--rate", rate]);
    // One packet per 250 cycles.
    let own = at("own");
    assert_eq!((&own["cycles"], &own["latency"]["max_cycles"]), (&json!(250 * 99 + 1), &json!(15)));
    // None is IP, so all update the same entry.
    let line = at("line");
    assert_eq!(line["cycles"], 3 * 99 + 1);
    assert_eq!(at("10Mpps")["cycles"], 25 * 99 + 1);
}

#[test]
fn a_pipeline_is_planned_where_none_is_named() {
    let planned = predicted(&["--zipf", "1000", "-c", "5000", "--rate", "line"]);
    // Counters are updated inside the table, so a packet can enter in every cycle.
    assert_eq!((&planned["cycles"], &planned["packets_lost"]), (&json!(4999 + 1), &json!(0)), "{planned}");
}

/// Packets with bytes have the cycles of the rendered pipeline: 2 of the framer from the last word on, 4 stages, 7 of the
/// emitter. Where these are not used, the report says why.
#[test]
fn cycles_are_those_of_the_rendered_pipeline() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("in.pcap");
    let lengths = (0..100).map(|number| if number == 70 { 650 } else { 60 });
    let packets = lengths.enumerate().map(|(number, len)| packet(1_000_000 + 1000 * number as u64, vec![0; len]));
    write(&capture, &packets.collect::<Vec<_>>());
    let capture = capture.to_str().unwrap();
    let own = predicted(&["-r", capture, "--rate", "own"]);
    assert_eq!((&own["model"], own.get("model_reason")), (&json!("pipeline"), None), "{own}");
    assert_eq!((&own["latency"]["p50_cycles"], &own["latency"]["max_cycles"]), (&json!(13), &json!(23)), "{own}");
    assert_eq!((&own["cycles"], &own["maps"][0]["scheme"]), (&json!(250 * 99 + 1), &json!("atomic")));
    // The long packet is stored whole before it leaves: it costs 10 cycles more at either end.
    let line = predicted(&["-r", capture, "--rate", "line"]);
    assert_eq!((&line["cycles"], &line["packets_in"]), (&json!(100 + 10 + 10), &json!(100)), "{line}");
    let text = ok(&["predict", TOY, "-r", capture]);
    assert!(text.contains("cycles      those of the rendered pipeline"), "{text}");
    let reasons = [
        (&["-r", capture, "--estimate"][..], "--estimate does not run the program"),
        (&["-r", capture, "--scheme", "stats=flush"][..], "--scheme is about the plan"),
        (&["--flows", "3", "-c", "10"][..], "numbers of flows are no packets"),
    ];
    for (arguments, reason) in reasons {
        let report = predicted(arguments);
        assert_eq!((&report["model"], &report["model_reason"]), (&json!("plan"), &json!(reason)));
    }
}

#[test]
fn what_cannot_be_predicted_is_said() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder, "toy.json", timing("schedule").to_string());
    let mut region = timing("flush");
    region["maps"][0]["restart_stage"] = json!(5);
    put(&folder, "wrong.json", region.to_string());
    let cases = [
        ("--zipf 10 --estimate --exact", "cannot be used with"),
        ("--zipf 10 --scheme x=none", "no map `x`, expected one of `stats`"),
        ("--timing @toy.json", "no packets: name a capture with -r, or traffic with --zipf, --flows or --profile"),
        ("--timing @toy.json --zipf 10 --scheme x=none", "which no packet writes; written maps: `stats`"),
        ("--timing @toy.json --zipf 10 --scheme stats=wait", "unknown scheme `wait`, expected one of `none`"),
        ("--timing @toy.json --zipf 10 --rate fast", "`line` or `own`"),
        ("--timing @toy.json --zipf 10 --flows 3", "cannot be used with"),
        ("--timing @wrong.json --zipf 10", "`restart_stage` of map `stats` is 5, expected 0 to 4"),
        ("--zipf 10 --clock nan", "expected MHz from 1 to 1000, found `nan`"),
        ("--zipf 10 --clock 0", "expected MHz from 1 to 1000, found `0`"),
        ("--zipf 10 --port-by else_1", "--port-by is for captures, and none is read"),
        (
            "--zipf 10 --scheme stats=flush --scheme stats=atomic",
            "--scheme names `stats` twice, with `flush` and `atomic`",
        ),
        ("--timing functions/port_knocking/port_knocking.efsm --zipf 10", "expected value at line 1"),
    ];
    let cases = cases.map(|(arguments, message)| (format!("predict {TOY} {arguments}"), [message]));
    let cases = cases.each_ref().map(|(line, message)| (line.as_str(), &message[..]));
    refused(&format!("{}/", name(folder.path())), &cases);
}
