// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run --trace`: single packets with rows or lines, state and bytes.

use flowloom_testkit::PacketBuilder;
use serde_json::{Value, json};

use crate::common::{exits, packet, write};

const COUNTED: &str = "function counted;
stateful hosts {
    key ipv4.src;
    states one, many;
    reg packets: u32;
    on one when packets < 2 stay { packets += 1; pass; }
    on one when packets >= 2 -> many (idle 10s) { packets += 1; ip.tos = 4; forward(2); }
    on many stay { drop; }
}
";

fn packets() -> Vec<Vec<u8>> {
    let made = |host: u8, port: u16| PacketBuilder::new().ipv4([10, 0, 0, host], [10, 1, 0, 1]).udp(1000, port).build();
    vec![made(1, 53), made(2, 80), made(1, 53), made(1, 53), made(1, 53)]
}

#[test]
fn traces_have_rows_state_and_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("counted.efsm"), COUNTED).unwrap();
    let captured: Vec<_> = packets().into_iter().enumerate().map(|(n, bytes)| packet(1000 * n as u64, bytes)).collect();
    write(&folder.path().join("in.pcapng"), &captured);
    for engine in ["jit", "interp"] {
        let run = |more: &[&str]| {
            let (function, capture) = (path("counted.efsm"), path("in.pcapng"));
            let arguments = [&["run", &function, "-r", &capture, "--engine", engine][..], more].concat();
            exits(0, &arguments).stdout
        };
        let lines = run(&["--trace", "ip.src == 10.0.0.1", "--json"]);
        let traces: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (summary, traces) = traces.split_last().unwrap();
        assert_eq!(summary["packets"], 5, "{summary}");
        let numbers: Vec<&Value> = traces.iter().map(|trace| &trace["packet"]).collect();
        assert_eq!(numbers, [1, 3, 4, 5], "{engine}");
        for (trace, (verdict, row, before, after)) in traces.iter().zip([
            ("PASS", 6, None, Some(("one", 1))),
            ("PASS", 6, Some(("one", 1)), Some(("one", 2))),
            ("REDIRECT", 7, Some(("one", 2)), Some(("many", 3))),
            ("DROP", 8, Some(("many", 3)), Some(("many", 3))),
        ]) {
            assert_eq!((&trace["verdict"], &trace["differs"]), (&json!(verdict), &Value::Null), "{engine}: {trace}");
            let rows = trace["rows"].as_array().unwrap();
            assert!(rows.iter().any(|hit| hit["event"] == "row" && hit["line"] == row), "{engine}: {trace}");
            let host = trace["state"].as_array().unwrap().iter().find(|entry| entry["map"] == "hosts").unwrap();
            assert_eq!(host["key"], json!({"ipv4.src": "10.0.0.1"}), "{trace}");
            for (name, expected) in [("before", before), ("after", after)] {
                let found = (&host[name]["state"], &host[name]["packets"]);
                match expected {
                    Some((state, packets)) => assert_eq!(found, (&json!(state), &json!(packets)), "{name}: {trace}"),
                    None => assert!(host[name].is_null(), "{name}: {trace}"),
                }
            }
            assert!(trace["instructions"].as_array().unwrap().len() > 10, "{trace}");
        }
        let text = run(&["--trace", "4"]);
        assert_eq!(text.matches("\npacket ").count() + usize::from(text.starts_with("packet ")), 4, "{text}");
        for part in [
            "packet 4: port 1, 42 bytes, at ",
            "  hosts line 7 in state one: on one when packets >= 2 -> many",
            "  hosts ipv4.src=10.0.0.1: ",
            "    bytes 15 to 15: 00 -> 04\n",
            "  REDIRECT port 2, 42 bytes\n",
        ] {
            assert!(text.contains(part), "{engine}: `{part}` is not in:\n{text}");
        }
        let first = run(&["--trace", "1", "--trace", "udp.dport == 80"]);
        assert!(first.starts_with("packet 2: ") && first.matches("  hosts ipv4.src=").count() == 1, "{first}");
    }
    let (function, capture) = (path("counted.efsm"), path("in.pcapng"));
    exits(2, &["run", &function, "-r", &capture, "--engine", "machine", "--trace", "1"])
        .stderr_has(&["--trace needs --engine jit or interp, not machine"]);
    exits(2, &["run", &function, "-r", &capture, "--workers", "2", "--trace", "1"])
        .stderr_has(&["--trace cannot be used with --workers 2"]);
    exits(2, &["run", &function, "-r", &capture, "--trace", "udp.nothing == 1"]).stderr_has(&["udp.nothing"]);
}
