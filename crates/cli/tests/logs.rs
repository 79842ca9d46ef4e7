// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logs of functions: printed by `run` on every engine, compared by `verify`, expected by scenarios.

use std::path::{Path, PathBuf};

use crate::common::{exits, kernel, name, ok, packet, put, run, write};
use flowloom_testkit::PacketBuilder;
use serde_json::Value;

const SCAN: &str = r#"function scan;

param limit: u32 = 3;

stateful scanner {
    key ip.src;
    states calm, loud;
    reg ports: u32;
    reg last: u16;
    reg slack: i8 = -1;

    on calm when tcp.is_syn && tcp.dport != last && ports < limit { ports += 1; last = tcp.dport; pass; }
    on calm when tcp.is_syn && tcp.dport != last -> loud (hard 10s) {
        slack -= 1;
        alert("port scan", ip.src, ipv4.dst, eth.src, tcp.dport, ports, slack, old(slack));
        log("and more");
        drop;
    }
    otherwise { pass; }
}
"#;

/// A function and a capture in which 10.0.0.1 probes eight ports, two seconds apart, and 10.0.0.2 two.
fn files(folder: &Path) -> (PathBuf, PathBuf) {
    let (function, capture) = (folder.join("scan.efsm"), folder.join("in.pcap"));
    std::fs::write(&function, SCAN).unwrap();
    let packets = (0..10_u16).map(|number| {
        let source = if number % 5 == 4 { 2 } else { 1 };
        let builder = PacketBuilder::new()
            .eth([2, 0, 0, 0, 0, source], [2, 0, 0, 0, 0, 9])
            .ipv4([10, 0, 0, source], [10, 0, 0, 9])
            .tcp(4000, 80 + number)
            .tcp_flags(2)
            .pad_to(60);
        packet(2_000_000_000 * u64::from(number) + 5, builder.build())
    });
    write(&capture, &packets.collect::<Vec<_>>());
    (function, capture)
}

#[test]
fn every_engine_logs_the_same_lines() {
    let folder = tempfile::tempdir().unwrap();
    let (function, capture) = files(folder.path());
    let mut engines = vec!["machine", "interp"];
    if kernel("every_engine_logs_the_same_lines") {
        engines.push("kernel");
    }
    for engine in &engines {
        let said = ok(&["run", name(&function), "-r", name(&capture), "--engine", engine]);
        let lines: Vec<&str> = said.lines().take(2).collect();
        let place = name(&function);
        let alert = format!(
            "6.000000005 alert {place}:15 port scan ip.src=10.0.0.1 ipv4.dst=10.0.0.9 eth.src=02:00:00:00:00:01 \
             tcp.dport=83 ports=3 slack=-2 old(slack)=-1"
        );
        assert_eq!(lines, [alert, format!("6.000000005 log {place}:16 and more")], "{engine}: {said}");
        // The timer expired and reset the registers; the remaining ports do not suffice for a second alert.
        assert_eq!(said.matches(" alert ").count(), 1, "{engine}: {said}");

        let said = ok(&["run", name(&function), "-r", name(&capture), "--engine", engine, "--json"]);
        // Every line is a JSON value, including the summary.
        let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), &lines[2]["packets"]), (3, &10.into()), "{said}");
        assert_eq!(lines[0]["event"], "log", "{said}");
        assert_eq!(lines[0]["level"], "alert", "{said}");
        assert_eq!(lines[0]["time_ns"], 6_000_000_005_u64, "{said}");
        assert_eq!(lines[0]["text"], "port scan", "{said}");
        assert_eq!(lines[0]["values"]["ip.src"], "10.0.0.1", "{said}");
        assert_eq!(lines[0]["values"]["slack"], -2, "{said}");
        assert_eq!((&lines[1]["level"], &lines[1]["values"]), (&"log".into(), &serde_json::json!({})), "{said}");
    }
    let targets = if engines.len() == 3 { "interp,kernel" } else { "interp" };
    exits(0, &["verify", name(&function), "-r", name(&capture), "--targets", targets]);
}

/// The reference machine is not subject to the limits of eBPF: here the stack size, which the words of a hash exceed.
#[test]
fn the_machine_runs_what_no_program_holds() {
    let folder = tempfile::tempdir().unwrap();
    let (_, capture) = files(folder.path());
    let addresses = ["ip.src"; 24].join(", ");
    let source = format!(
        "function large; stateful s {{ key ip.src; states a; reg n: u32;
          on a -> a (idle 3s) {{ n = hash({addresses}); pass; }} otherwise {{ drop; }} }}"
    );
    let function = put(&folder, "large.efsm", source);
    exits(2, &["run", name(&function), "-r", name(&capture), "--engine", "interp"]);
    let state = folder.path().join("state.json");
    let said = ok(&["run", name(&function), "-r", name(&capture), "--engine", "machine", "--state-out", name(&state)]);
    assert!(said.contains("timed out 2") && said.contains("alive 2"), "{said}");
    ok(&["run", name(&function), "-r", name(&capture), "--engine", "machine", "--state-in", name(&state)]);
}

#[test]
fn a_capture_on_standard_output_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let (function, capture) = files(folder.path());
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_flowloom"))
        .args(["run", name(&function), "-r", name(&capture), "-w", "-"])
        .output()
        .unwrap();
    assert!(ran.status.success() && ran.stdout.starts_with(&[0x4d, 0x3c, 0xb2, 0xa1]), "{ran:?}");
    assert!(String::from_utf8(ran.stderr).unwrap().contains("alert"));
}

#[test]
fn scenarios_expect_logs() {
    let folder = tempfile::tempdir().unwrap();
    let (function, _) = files(folder.path());
    let scenario = |alert: &str| {
        let text = format!(
            "function \"scan.efsm\"\nscenario \"a scan\"\nrepeat 3 as i {{ tcp 10.0.0.1:4000 > 10.0.0.9:80 + i syn -> pass }}\n\
             tcp 10.0.0.1:4000 > 10.0.0.9:99 syn -> drop {alert}\n"
        );
        put(&folder, "scan.scenario", text);
        run(&["test", name(&function)])
    };
    let right = scenario("-> alert \"port scan\" with ports = 3, slack = -2 -> log \"and more\"");
    assert_eq!(right.code, Some(0), "{right:?}");
    let silent = scenario("");
    assert!(silent.code == Some(1) && silent.stdout.contains("unexpected "), "{silent:?}");
}
