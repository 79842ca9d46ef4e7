// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results of the verbs: JSON, states, ports, hits of rows.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::{
    BIG_FLOW, PASS_ALL, PORT_KNOCKING, REWRITE, Ran, UDP_FLOWS, engines, exits, flowloom, generated, json, name, ok,
    packet, read, write,
};
use flowloom_testkit::{PacketBuilder, skip};
use flowloom_trace::{CaptureReader, CapturedPacket};
use serde_json::Value;

const FUNCTIONS: [&str; 5] = [PORT_KNOCKING, BIG_FLOW, REWRITE, UDP_FLOWS, PASS_ALL];

/// Keys of a JSON object, joined.
fn keys(value: &Value) -> String {
    let object = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    object.keys().map(String::as_str).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
}

#[test]
fn json_of_run_has_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let capture = generated(folder.path(), REWRITE, 500, 1);
    let report = json(&["run", REWRITE, "-r", name(&capture), "--json"]);
    let expected = "bytes elapsed_s elements engine events first_time_ns function last_time_ns output_bytes outputs packets \
                    packets_per_s refused verdicts";
    assert_eq!(keys(&report), expected);
    assert_eq!(keys(&report["verdicts"]), "ABORTED DROP PASS REDIRECT TX");
    assert_eq!((&report["function"], &report["engine"]), (&"rewrite".into(), &"jit".into()));
    assert_eq!(report["packets"], 500);
    let verdicts: u64 = report["verdicts"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(verdicts, 500);
    let elements = report["elements"].as_array().unwrap();
    assert_eq!(elements.len(), 3);
    for element in elements {
        let expected = "contexts_alive contexts_created contexts_evicted contexts_rejected contexts_removed contexts_timed_out \
                        flows_looked_up hard_expired idle_expired name no_key no_match rows";
        assert_eq!(keys(element), expected);
        for row in element["rows"].as_array().unwrap() {
            assert_eq!(keys(row), "line source states");
        }
    }
    let total: u64 = elements[0]["rows"].as_array().unwrap().iter().map(hits).sum();
    assert_eq!(total + elements[0]["no_match"].as_u64().unwrap(), 500, "each packet enters the first element once");
    // An object has maps and no rows.
    ok(&["build", REWRITE, "--target", "bpf", "-o", name(folder.path())]);
    let object = folder.path().join("rewrite.o");
    let report = json(&["run", name(&object), "-r", name(&capture), "--json"]);
    assert!(report["maps"]["rewrite"].as_u64().unwrap() > 0, "{report}");
    assert!(report.get("elements").is_none());
}

/// Two cores write the packets, the state and the report of one.
#[test]
fn several_cores_write_what_one_writes() {
    let folder = tempfile::tempdir().unwrap();
    let capture = generated(folder.path(), UDP_FLOWS, 3000, 2);
    let run = |workers: &str| {
        let path = |what: &str| folder.path().join(format!("{workers}.{what}"));
        let (written, state) = (path("pcapng"), path("json"));
        let mut report = json(&[
            "run",
            UDP_FLOWS,
            "-r",
            name(&capture),
            "--workers",
            workers,
            "-w",
            name(&written),
            "--state-out",
            name(&state),
            "--json",
        ]);
        let object = report.as_object_mut().unwrap();
        object.retain(|key, _| !matches!(key.as_str(), "elapsed_s" | "packets_per_s"));
        let workers = object.remove("workers");
        (report, std::fs::read(written).unwrap(), std::fs::read(state).unwrap(), workers)
    };
    let (one, several) = (run("1"), run("2"));
    assert_eq!((&one.0, &one.1, &one.2), (&several.0, &several.1, &several.2));
    assert_eq!(one.3, None);
    let workers = several.3.unwrap();
    let packets: Vec<u64> =
        workers["cores"].as_array().unwrap().iter().map(|core| core["packets"].as_u64().unwrap()).collect();
    assert_eq!((&workers["number"], packets.iter().sum::<u64>()), (&2.into(), 3000), "{workers}");
    assert!(packets.iter().all(|packets| *packets > 0) && workers["joined"].is_null(), "{workers}");
}

/// Targets follow one run of the reference, on one core or several.
#[test]
fn targets_are_compared_together_and_on_several_cores() {
    let folder = tempfile::tempdir().unwrap();
    let capture = generated(folder.path(), UDP_FLOWS, 3000, 2);
    for workers in [1, 2] {
        let number = workers.to_string();
        let arguments = ["--targets", "interp,jit", "--workers", &number];
        let report = json(&[&["verify", UDP_FLOWS, "-r", name(&capture), "--json"][..], &arguments].concat());
        let targets = report["targets"].as_array().unwrap();
        let told: Vec<_> = targets.iter().map(|target| (&target["target"], &target["workers"])).collect();
        assert_eq!(told, [(&"interp".into(), &workers.into()), (&"jit".into(), &workers.into())]);
        for target in targets {
            assert_eq!((&target["agrees"], &target["packets_compared"]), (&true.into(), &3000.into()), "{report}");
        }
        assert!(report["coverage"].as_array().is_some_and(|points| points.iter().any(|point| point["hits"] != 0)));
    }
    let arguments = ["verify", UDP_FLOWS, "-r", name(&capture), "--targets", "jit", "--workers", "2"];
    exits(0, &arguments).stdout_has(&["jit on 2 cores"]);
    // An explored program: the interpreter on two cores beside that on one.
    let firewall = "functions/ebpf/simple_firewall/simple_firewall.bpf.c";
    let arguments = ["verify", firewall, "--packets", "300", "--targets", "interp,jit", "--workers", "2"];
    let ran = Ran::from(flowloom().args(arguments).output().unwrap());
    if ran.code == Some(3) {
        skip("an explored program on two cores", ran.stderr.lines().next().unwrap_or("no compiler"));
    } else {
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.stdout_has(&["interp on 2 cores: equal to `interp`", "jit on 2 cores: equal to `interp`"]);
    }
    // A function whose rows choose the key.
    let quota = "functions/subscriber_quota/subscriber_quota.efsm";
    let ran = exits(0, &["verify", quota, "--packets", "300", "--targets", "jit", "--workers", "2"]);
    ran.stderr_has(&["--workers 2: target `jit` runs on one core"]);
    // Its object needs one core as well: the interpreter would be compared with itself.
    ok(&["build", quota, "--target", "bpf", "-o", name(folder.path())]);
    let object = folder.path().join("subscriber_quota.o");
    for input in [&["--packets", "300"][..], &["-r", name(&capture)]] {
        let ran = exits(3, &[&["verify", name(&object), "--targets", "interp", "--workers", "2"], input].concat());
        ran.stderr_has(&["target `interp` is skipped: on one core it is the reference itself", "nothing was compared"]);
    }
}

fn hits(row: &Value) -> u64 {
    row["states"].as_array().unwrap().iter().map(|state| state["hits"].as_u64().unwrap()).sum()
}

#[test]
fn json_of_the_other_verbs_has_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("made.pcap");
    let packets = ["--packets", "300", "-w", name(&capture), "--json"];
    let made = json(&[&["trace", "gen", "--function", BIG_FLOW][..], &packets].concat());
    assert_eq!(keys(&made), "capture in_rows packets seed unreached_rows");
    let info = json(&["trace", "info", name(&capture), "--json"]);
    assert_eq!(info["packets"], 300);
    for key in ["wire_bytes", "captured_bytes", "duration_ns", "protocols", "flows"] {
        assert!(!info[key].is_null(), "`{key}` is missing: {info}");
    }
    let fields = json(&["fields", "--json"]);
    for field in fields.as_array().unwrap() {
        assert_eq!(keys(field), "meaning name partner width_bits writable");
    }
    let built = json(&["build", BIG_FLOW, "--target", "bpf", "-o", name(folder.path()), "--json"]);
    assert_eq!(keys(&built), "bytes instructions maps object section");
    assert!(Path::new(built["object"].as_str().unwrap()).is_file());
    assert_eq!(built["maps"][0]["name"], "flows");
    let checked = json(&["check", BIG_FLOW, "--json"]);
    assert_eq!(keys(&checked), "elements function instructions notes paper sum targets verified warnings");
    assert_eq!(
        keys(&checked["verified"]),
        "dead helpers_copy instructions kernel_dependent kernel_looked_at looked_at loops safe window_bytes"
    );
    assert_eq!(checked["verified"]["safe"], true);
    // An attached program also takes locks.
    assert!(checked["instructions"].as_u64() < built["instructions"].as_u64(), "{checked} {built}");
    assert_eq!(keys(&checked["targets"][0]), "runs target why");
    let explained = json(&["explain", "functions/ebpf/toy/toy_printed.bpf", "--json"]);
    let expected = "clock_mhz code device ilp_avg ilp_counts ilp_max instructions latency latency_cycles lines live machine_code maps operations parser_operations passes \
                    program pruned regions register_bits schedule stage stage_levels stages window window_bytes";
    assert_eq!(keys(&explained), expected);
    let expected = "entries hazard hold_cycles key_bytes kind name queues read_stage reason restart_stage users value_bytes write_stage";
    assert_eq!(keys(&explained["maps"][0]), expected);
    let verified = json(&["verify", BIG_FLOW, "-r", name(&capture), "--targets", "interp", "--json"]);
    assert_eq!(keys(&verified), "coverage function packets seed targets unreached");
    let target = &verified["targets"][0];
    assert_eq!((&target["target"], &target["agrees"]), (&"interp".into(), &true.into()));
    assert_eq!(target["packets_compared"], 300);
    assert_eq!(keys(&verified["coverage"][0]), "element hits line state what");
}

/// Report of a run without the fields that depend on the engine and the clock.
fn essence(mut report: Value) -> Value {
    for key in ["engine", "elapsed_s", "packets_per_s"] {
        report.as_object_mut().unwrap().remove(key);
    }
    report
}

#[test]
fn every_engine_reports_what_the_machine_reports() {
    let engines = engines("every_engine_reports_what_the_machine_reports");
    let folder = tempfile::tempdir().unwrap();
    for function in FUNCTIONS {
        let mut packets = read(&generated(folder.path(), function, 4000, 5));
        // On all packets, and on those that the kernel's test runs take.
        for (engine, shortest_bytes) in [("interp", 0), ("kernel", 14)] {
            if !engines.contains(&engine) {
                continue;
            }
            let capture = folder.path().join("packets.pcapng");
            packets.retain(|p| p.bytes.len() >= shortest_bytes);
            write(&capture, &packets);
            let report = |engine: &str| {
                let state = folder.path().join(format!("{engine}.json"));
                let left = folder.path().join(format!("{engine}.pcapng"));
                let arguments = ["-r", name(&capture), "-w", name(&left), "--state-out", name(&state), "--json"];
                let report = json(&[&["run", function, "--engine", engine][..], &arguments].concat());
                let state: Value = serde_json::from_str(&std::fs::read_to_string(state).unwrap()).unwrap();
                (essence(report), state, std::fs::read(left).unwrap())
            };
            let (expected, found) = (report("machine"), report(engine));
            assert_eq!(expected.0, found.0, "{function} on {engine}");
            assert_eq!(expected.1, found.1, "{function} on {engine}: states");
            assert!(expected.2 == found.2, "{function} on {engine}: other packets left");
        }
    }
}

#[test]
fn rows_are_printed_with_their_hits_and_source() {
    let folder = tempfile::tempdir().unwrap();
    let capture = generated(folder.path(), PORT_KNOCKING, 3000, 2);
    let report = json(&["run", PORT_KNOCKING, "-r", name(&capture), "--json"]);
    let text = ok(&["run", PORT_KNOCKING, "-r", name(&capture), "-v"]);
    let mut rows = 0;
    for (i, row) in report["elements"][1]["rows"].as_array().unwrap().iter().enumerate() {
        for state in row["states"].as_array().unwrap() {
            let (place, source) = (format!("row {} (line {})", i + 1, row["line"]), row["source"].as_str().unwrap());
            let (state, n) = (state["state"].as_str().unwrap(), state["hits"].as_u64().unwrap());
            assert!(n > 0, "the traffic reaches every row: {row}");
            let line = text.lines().find(|line| line.starts_with(state) && line.contains(&place)).unwrap();
            let expected = format!("{place}{n}{source}").replace(' ', "");
            assert!(line.ends_with(source) && line.replace(' ', "").contains(&expected), "{line}");
            rows += 1;
        }
    }
    assert_eq!(rows, 8);
    assert!(text.starts_with("port_knocking on jit: 3 000 packets, "), "{text}");
}

/// Positions at which to split a trace: in its middle half, at the shortest gaps, so that contexts are alive, and where
/// no later packet has an earlier time, because a run's clock starts at its first packet.
fn cuts(packets: &[CapturedPacket]) -> Vec<usize> {
    let mut latest: Vec<u64> = packets.iter().map(|p| p.time_ns).collect();
    (1..latest.len()).for_each(|i| latest[i] = latest[i].max(latest[i - 1]));
    let mut earliest_ns = u64::MAX;
    let mut cuts: Vec<(u64, usize)> = Vec::new();
    for i in (1..packets.len()).rev() {
        earliest_ns = earliest_ns.min(packets[i].time_ns);
        if latest[i - 1] <= earliest_ns && (packets.len() / 4..packets.len() * 3 / 4).contains(&i) {
            cuts.push((earliest_ns - latest[i - 1], i));
        }
    }
    cuts.sort_unstable();
    cuts.into_iter().map(|(_, i)| i).collect()
}

/// A split run, whose second part starts from the first part's state, gives the result of a single run.
#[test]
fn a_run_goes_on_from_a_state() {
    let engines = engines("a_run_goes_on_from_a_state");
    let folder = tempfile::tempdir().unwrap();
    let path = |file: &str| folder.path().join(file);
    for (engine, function) in engines.into_iter().flat_map(|engine| FUNCTIONS.map(|function| (engine, function))) {
        let packets = read(&generated(folder.path(), function, 3000, 9));
        let go = |packets: &[CapturedPacket], state_in: Option<&str>| {
            let (given, left) = (path("given.pcapng"), path("left.pcapng"));
            let (begin, state) = (path("in.json"), path("out.json"));
            write(&given, packets);
            let mut arguments = vec!["run", function, "--engine", engine, "-r", name(&given), "-w", name(&left)];
            arguments.extend(["--state-out", name(&state)]);
            if let Some(state) = state_in {
                std::fs::write(&begin, state).unwrap();
                arguments.extend(["--state-in", name(&begin)]);
            }
            ok(&arguments);
            let left = read(&left).into_iter().map(|p| (p.time_ns, p.port, p.verdict, p.bytes)).collect::<Vec<_>>();
            (left, std::fs::read_to_string(state).unwrap())
        };
        let (expected, end) = go(&packets, None);
        let mut handed_over = 0;
        // Each run loads the function anew, which is slow on the kernel.
        let tries = if engine == "kernel" { 1 } else { 2 };
        for cut in cuts(&packets).into_iter().take(tries) {
            let (mut found, middle) = go(&packets[..cut], None);
            let (rest, found_end) = go(&packets[cut..], Some(&middle));
            found.extend(rest);
            assert!(found == expected, "{function} on {engine}, cut at {cut}: other packets left");
            assert_eq!(found_end, end, "{function} on {engine}, cut at {cut}: another state at the end");
            handed_over += usize::from(middle.contains("\"key\""));
        }
        assert!(handed_over > 0 || function == PASS_ALL, "{function}: no state was handed over");
    }
}

fn udp(src: [u8; 4], dst: [u8; 4], vlan: Option<u16>, time_ns: u64) -> CapturedPacket {
    let builder = PacketBuilder::new().ipv4(src, dst).udp(1, 2);
    packet(time_ns, vlan.into_iter().fold(builder, PacketBuilder::vlan).build())
}

#[test]
fn ports_are_taken_from_fields_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |file: &str| folder.path().join(file);
    // Replies to every packet, so the output port is the input port.
    std::fs::write(path("back.efsm"), "function back;\nstateless back { always { reply; } }\n").unwrap();
    let inside = [udp([10, 1, 2, 3], [8, 8, 8, 8], None, 1), udp([10, 0, 0, 1], [8, 8, 8, 8], Some(7), 4)];
    let outside = [udp([8, 8, 8, 8], [10, 1, 2, 3], None, 2), udp([9, 9, 9, 9], [10, 0, 0, 1], Some(9), 3)];
    write(&path("inside.pcap"), &inside);
    write(&path("outside.pcap"), &outside);
    let ports = |options: &[&str]| -> Vec<u32> {
        let (function, left) = (path("back.efsm"), path("left.pcapng"));
        let (inside, outside) = (path("inside.pcap"), path("outside.pcap"));
        let mut arguments = vec!["run", name(&function), "-r", name(&inside), "-r", name(&outside), "-w", name(&left)];
        arguments.extend(options);
        ok(&arguments);
        let packets: Vec<_> = CaptureReader::open(&left).unwrap().map(Result::unwrap).collect();
        assert!(packets.iter().all(|p| p.verdict == Some(3)), "XDP_TX is 3");
        packets.iter().map(|p| p.port).collect()
    };
    assert_eq!(ports(&[]), [1, 2, 2, 1], "position of the file");
    assert_eq!(ports(&["--port-by", "ip.src in 10.0.0.0/8 -> 5, else 6"]), [5, 6, 6, 5]);
    assert_eq!(ports(&["--port-by", "vlan.id == 7 -> 3, vlan.id > 0 -> 4, else 0"]), [0, 0, 4, 3]);
    assert_eq!(ports(&["--port-by", "else 255"]), [255; 4]);
    // Commas and braces of sets and calls belong to a condition.
    assert_eq!(ports(&["--port-by", "l4.dport in {80, 443} -> 2, ip.src in 10.0.0.0/8 -> 1, else 3"]), [1, 3, 3, 1]);
    assert_eq!(ports(&["-c", "3"]), [1, 2, 2]);
}

#[test]
fn parameters_change_what_a_function_does() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("flow.pcap");
    let packets: Vec<_> = (0..10).map(|i| udp([10, 0, 0, 1], [10, 0, 0, 2], None, 1000 + i)).collect();
    write(&capture, &packets);
    let marked = |threshold: &str| {
        let left = folder.path().join("left.pcap");
        let threshold = format!("threshold={threshold}");
        ok(&["run", BIG_FLOW, "--param", &threshold, "--param", "mark=8", "-r", name(&capture), "-w", name(&left)]);
        read(&left).iter().filter(|p| p.bytes[15] == 8).count()
    };
    assert_eq!([marked("0"), marked("4"), marked("10"), marked("100")], [10, 6, 0, 0]);
}
