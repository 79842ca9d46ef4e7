// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of `flowloom trace gen --profile`, `trace info --profile` and `trace profiles` as commands.

use crate::common::{self, BIG_FLOW, exits, json, name, ok, run};

#[test]
fn a_profile_is_made_and_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("uni1.pcapng");
    let capture = name(&path);
    let made = json(&["trace", "gen", "--profile", "uni1", "-s", "128", "--seed", "5", "-w", capture, "--json"]);
    assert_eq!((&made["profile"], &made["seed"]), (&"uni1".into(), &5.into()));
    let info = json(&["trace", "info", capture, "--profile", "uni1", "--json"]);
    assert_eq!((&made["packets"], &made["wire_bytes"]), (&info["packets"], &info["wire_bytes"]));
    let paper = &info["paper"];
    assert_eq!((&paper["profile"], &paper["source"]), (&"uni1".into(), &"FlowBlaze table 6".into()));
    assert_eq!(paper["covers_window"], true);
    let figures = paper["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 1 + 3 + 3 + 3);
    for figure in figures {
        assert_eq!(figure["is_near"], true, "{figure}");
    }
    let active = &figures[3];
    assert_eq!((&active["figure"], &active["paper"]), (&"active in 10 s, 5-tuple".into(), &4000.0.into()));
    assert_eq!(active["measured"].as_f64(), info["flows"][2]["max_active_in_10s"].as_f64());

    let text = ok(&["trace", "info", capture, "--profile", "uni1"]);
    for expected in ["`uni1` beside FlowBlaze table 6", "697.0 B", "within 15%", "points"] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    assert!(!text.contains("OUTSIDE") && !text.contains("shorter than"), "{text}");
    // Compared with another profile's row it differs, which is not a failure.
    let text = ok(&["trace", "info", capture, "--profile", "chi15"]);
    assert!(text.contains("OUTSIDE 5%"), "{text}");
    assert!(!ok(&["trace", "info", capture]).contains("paper"));
}

#[test]
fn options_of_profiles_do_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let capture = name(&path);
    let line = ok(&["trace", "gen", "--profile", "zipf", "--flows", "1k", "-c", "20k", "--rate", "40G", "-w", capture]);
    assert!(line.contains("20 000 packets of `zipf` (seed 1), 60.0 bytes on average, 0.000336 s"), "{line}");
    let words = "--profile churn --new-flows 6M --duration 20ms --rate 1Mpps --size 200 --protocol tcp --ipv6 50";
    let arguments: Vec<&str> = ["trace", "gen", "-w", capture, "--json"].into_iter().chain(words.split(' ')).collect();
    let made = json(&arguments);
    assert_eq!((&made["packets"], &made["mean_len_bytes"]), (&20_000.into(), &200.0.into()));
    let info = json(&["trace", "info", capture, "--json"]);
    let packets = |name: &str| {
        let all = info["protocols"].as_array().unwrap();
        all.iter().find(|protocol| protocol["name"] == name).unwrap()["packets"].as_u64().unwrap()
    };
    assert_eq!(packets("tcp"), 20_000);
    assert!((9_000..11_000).contains(&packets("ipv6")), "{info}");
    let text = ok(&["trace", "info", capture, "--profile", "uni2"]);
    assert!(text.contains("the capture is shorter than the 10 s"), "{text}");
}

#[test]
fn both_forms_stand_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a.pcap"), folder.path().join("b.pcap"));
    ok(&["trace", "gen", BIG_FLOW, "-c", "0.5k", "-w", name(&a)]);
    ok(&["trace", "gen", "--function", BIG_FLOW, "--packets", "500", "-w", name(&b)]);
    let (a, b) = (std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
    assert!(a == b && a.len() > 500 * 60);
}

#[test]
fn profiles_are_listed() {
    let text = ok(&["trace", "profiles"]);
    let all = json(&["trace", "profiles", "--json"]);
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 11);
    for profile in all {
        let name = profile["name"].as_str().unwrap();
        assert!(text.contains(&format!("\n{name} ")) && text.contains(profile["summary"].as_str().unwrap()), "{text}");
        // Each profile can be generated, and each with a row can be compared.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap.xz");
        let capture = common::name(&path);
        ok(&["trace", "gen", "--profile", name, "-c", "500", "-w", capture]);
        let compared = run(&["trace", "info", capture, "--profile", name]);
        assert_eq!(compared.code, Some(if profile["paper"].is_null() { 2 } else { 0 }), "{compared:?}");
    }
    assert!(text.contains("12 000 / 130 000 / 152 000"), "{text}");
}

/// Long traffic reaches thresholds in the thousands; unreached rows are listed.
#[test]
fn rows_that_no_packet_takes_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let source = "function many;\nstateful sources {\n    key ip.src;\n    states a;\n    reg n: u32;\n    \
                  on a when n < 3000 -> a (idle 10s) { n += 1; pass; }\n    \
                  on a when n >= 3000 -> a (idle 10s) { drop; }\n    otherwise { pass; }\n}\n";
    std::fs::write(path("many.efsm"), source).unwrap();
    let made = |count: &str| run(&["trace", "gen", &path("many.efsm"), "-c", count, "-w", &path("many.pcap")]);
    let short = made("4000");
    assert!(short.stdout.contains("no packet reaches 1 of its 2 rows:\n  7: on a when n >= 3000"), "{short:?}");
    let long = made("200k");
    assert!(!long.stdout.contains("no packet reaches"), "{long:?}");
    exits(0, &["verify", &path("many.efsm"), "--packets", "4000", "--targets", "interp"])
        .stdout_has(&["\n1 of these ", " was not reached: nothing was compared there"]);
}

#[test]
fn ports_that_rows_depend_on_are_not_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (pcap, pcapng) = (folder.path().join("made.pcap"), folder.path().join("made.pcapng"));
    let made = |path: &std::path::Path| {
        let function = "functions/udp_firewall/udp_firewall.efsm";
        run(&["trace", "gen", function, "-c", "100", "-w", path.to_str().unwrap()])
    };
    let refused = made(&pcap);
    assert!(refused.code == Some(2) && refused.stderr.contains("is pcap, which keeps no ports"), "{refused:?}");
    assert!(!pcap.exists());
    assert_eq!(made(&pcapng).code, Some(0));
}
