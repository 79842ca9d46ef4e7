// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SYN flood mitigation in front of a server: a flood is blocked, and normal clients can connect.

use serde_json::json;

use crate::common::lab::{Lab, MODES, shipped};

const SYN_FLOOD: &str = "functions/syn_flood/syn_flood.efsm";

/// Number of spoofed source addresses.
const ADDRESSES: u64 = 20;
const EACH: u64 = 400;
/// SYNs that the function admits per address: the first one, then the threshold.
const LET_IN: u64 = 101;

fn a_flood(test: &'static str, mode: &str) {
    let Some(lab) = Lab::new(test, &["ethtool"]) else { return };
    let function = lab.put_unique("flood.efsm", &shipped(SYN_FLOOD));
    let script = format!(
        r#"
        host attacker 1; addresses attacker 1
        host client 2; addresses client 2
        serve - server serve [::]:22
        segments() {{ awk '/^Tcp: [0-9]/ {{ print $11 }}' /proc/net/snmp; }}
        # Without the function all of them come in.
        before=$(segments)
        echo flood: $(as attacker flood 10.9.1.2:22 198.51.100.1 {ADDRESSES} {EACH})
        echo $(($(segments) - before)) >unguarded
        # Windows are long: a slow machine sends as much within one.
        heeded flood.efsm -i v1 -i v2 -m $2 --param window=1m
        echo arp: $(as client reach 10.9.2.2:22) nd: $(as client reach [fd00:2::2]:22)
        before=$(segments)
        as client transfer 10.9.2.2:22 3000000 >transferred &
        transfer=$!
        echo flood: $(as attacker flood 10.9.1.2:22 198.51.100.1 {ADDRESSES} {EACH})
        wait $transfer
        echo transfer: $(cat transferred)
        echo $(($(segments) - before)) >guarded
        echo new: $(as client reach 10.9.2.2:22) $(as client reach [fd00:2::2]:22) $(as attacker reach 10.9.1.2:22)
        # The attacker itself may no longer open connections either, once it has flooded.
        echo flood: $(as attacker flood 10.9.1.2:22 10.9.1.1 1 {EACH})
        echo own: $(as attacker connect 10.9.1.2:22) $(as client reach 10.9.2.2:22)
        "$FLOWLOOM" map dump $1 --json >hosts
        finish
        echo end: $code"#
    );
    let said = lab.run(&script, &[&function, mode]);
    let expected = "flood: sent\narp: open nd: open\nflood: sent\ntransfer: same\nnew: open open open\nflood: sent\n\
                    own: closed open\nend: 0\n";
    assert_eq!(said, expected, "{}", lab.read("err"));
    let segments = |file: &str| lab.read(file).trim().parse::<u64>().unwrap();
    assert!(segments("unguarded") >= ADDRESSES * EACH, "{}", segments("unguarded"));
    assert!(segments("guarded") >= ADDRESSES * LET_IN, "{}", segments("guarded"));

    let hosts = lab.json("hosts");
    let state = |host: &str| -> String {
        let entries = hosts.as_array().unwrap();
        let entry = entries.iter().find(|entry| entry["key"]["ip.src"] == host).unwrap_or_else(|| panic!("no {host}"));
        entry["value"]["state"].as_str().unwrap().to_owned()
    };
    for host in 1..=ADDRESSES {
        assert_eq!(state(&format!("198.51.100.{host}")), "blocked", "{hosts}");
    }
    assert_eq!([state("10.9.1.1"), state("10.9.2.1"), state("fd00:2::1")], ["blocked", "counted", "counted"]);

    let report = lab.report();
    assert_eq!(report["verdicts"]["ABORTED"], 0, "{report}");
    let rows =
        report["elements"].as_array().unwrap().iter().find(|element| element["name"] == "hosts").unwrap()["rows"]
            .as_array()
            .unwrap()
            .clone();
    let hits: Vec<u64> = rows
        .iter()
        .map(|row| row["states"].as_array().unwrap().iter().map(|state| state["hits"].as_u64().unwrap()).sum())
        .collect();
    // Each flooding address is admitted 101 times, detected once, and then blocked. The attacker's own address opened a
    // connection before, and tries one at the end, whose SYN may be repeated.
    let found_out = ADDRESSES + 1;
    let held_off = ADDRESSES * (EACH - LET_IN - 1) + (EACH + 1 - LET_IN - 1);
    assert_eq!([hits[0], hits[2]], [found_out + 2, found_out], "{report}");
    assert!((held_off + 1..=held_off + 3).contains(&hits[3]), "{held_off}: {report}");
    assert_eq!(report["verdicts"]["DROP"], json!(hits[2] + hits[3]), "{report}");
}

#[test]
fn a_flood_is_held_off_and_clients_get_through() {
    MODES.iter().for_each(|mode| a_flood("a_flood_is_held_off_and_clients_get_through", mode));
}
