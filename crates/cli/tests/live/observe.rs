// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs in user space that are watched, changed and reloaded while packets pass.

use serde_json::{Value, json};

use crate::common::UDP_FLOWS;
use crate::common::lab::Lab;

/// Counts the packets of each source, and passes them; and a version that drops those for one port.
const FIRST: &str = "function guard;
stateful hosts {
    key ipv4.src;
    states seen;
    reg packets: u64;
    on seen stay { packets += 1; pass; }
    otherwise { pass; }
}
";

#[test]
fn a_run_is_watched_changed_and_reloaded() {
    let Some(lab) = Lab::new("a_run_is_watched_changed_and_reloaded", &["ethtool"]) else { return };
    lab.put("guard.efsm", FIRST);
    let second = FIRST
        .replace("    on seen stay", "    on seen when udp.dport == 9 stay { packets += 1; drop; }\n    on seen stay");
    lab.put("second.efsm", &second);
    lab.put("wrong.efsm", "function guard;\nstateless all { always { fly; } }\n");
    for mode in ["af_xdp", "raw"] {
        let said = lab.run(
            r#"
            fl() { "$FLOWLOOM" "$@"; }
            received() { ip netns exec a true; awk '/^Udp: [0-9]/ {print $3}' /proc/net/snmp; }
            ip link set dev lo up
            host a 1; addresses a 1; neighbours a 1
            heeded guard.efsm -i v1 --mode $1 --metrics 0
            as a send 10.9.1.2:9 10.9.1.2:9 10.9.1.2:9 10.9.1.2:9 10.9.1.2:9 >sent
            wait_for 'fl map lookup guard/hosts key ipv4.src=10.9.1.1 2>/dev/null | grep -q "packets=[5-9]"'
            fl top --once --json --interval 200ms >top.json
            fl top guard --once --interval 100ms >top.txt
            fl map list --json >list.json
            fl map dump guard --json >dump.json
            fl map dump $pid/hosts >dump.txt
            fl map update guard key ipv4.src=10.0.0.7 value packets=41
            code=0; fl map update guard key ipv4.src=10.0.0.7 value packets=42 noexist 2>exists || code=$?; echo noexist: $code
            fl map lookup guard key ipv4.src=10.0.0.7 --json >entry.json
            fl map delete guard key ipv4.src=10.0.0.7
            code=0; fl map delete guard key ipv4.src=10.0.0.7 2>absent || code=$?; echo delete: $code
            url=$(sed -n 's|.*"metrics":"http://127.0.0.1:\([0-9]*\)/metrics".*|\1|p' out)
            exec 7<>/dev/tcp/127.0.0.1/$url
            printf 'GET /metrics HTTP/1.0\r\n\r\n' >&7
            cat <&7 >metrics.txt
            exec 7<&- 7>&-
            code=0; fl reload guard wrong.efsm 2>wrong.txt || code=$?; echo wrong: $code
            fl reload guard second.efsm --json >reloaded.json
            before=$(received)
            as a send 10.9.1.2:9 10.9.1.2:9 10.9.1.2:9 >sent
            wait_for 'fl top --once --json --interval 50ms | grep -q "\"DROP\":3"'
            echo received: $(($(received) - before))
            # The run reads its file again.
            cp second.efsm before.efsm; sed 's/udp.dport == 9/udp.dport == 10/' before.efsm >second.efsm
            kill -HUP $pid
            wait_for 'grep -q "hosts: kept" err'
            fl top --once --json --interval 50ms >again.json
            fl map dump guard --json >kept.json
            finish
            echo end: $code $(ls /run/flowloom/control | wc -l)
            # A process that is killed leaves its socket, which is told apart.
            start guard.efsm -i v1 --mode $1
            kill -9 $pid; wait $pid || true
            code=0; fl top 2>stale.txt || code=$?; echo killed: $code
            start guard.efsm -i v1 --mode $1
            fl top --once --interval 50ms 2>>stale.txt | grep -c guard
            finish"#,
            &[mode],
        );
        let expected = "noexist: 1\ndelete: 1\nwrong: 2\nreceived: 0\nend: 0 0\nkilled: 2\n1\n";
        assert_eq!(said, expected, "{mode}: {}", lab.read("err"));
        let top = lab.json("top.json");
        assert_eq!((&top["function"], &top["mode"]), (&json!("guard"), &json!(mode)), "{top}");
        let packets = top["packets"].as_u64().unwrap();
        assert!(packets >= 5 && top["verdicts"]["PASS"] == packets && top["ports"][0]["received"] == packets, "{top}");
        let flows = top["top"]["flows"].as_array().unwrap();
        assert!(flows.iter().any(|flow| flow["flow"].as_str().unwrap().ends_with("> 10.9.1.2:9")), "{top}");
        let hit =
            |top: &Value| top["rows"].as_array().unwrap().iter().map(|row| row["hits"].as_u64().unwrap()).sum::<u64>();
        assert!(hit(&top) >= packets, "{top}");
        for word in ["guard (guard.efsm, pid ", "PASS", "hosts", "largest flows of ", "times in batches: 50% "] {
            assert!(lab.read("top.txt").contains(word), "`{word}` is not in:\n{}", lab.read("top.txt"));
        }
        let list = lab.json("list.json");
        let run = list.as_array().unwrap().iter().find(|run| run["function"] == "guard").unwrap();
        assert!(run["maps"].as_array().unwrap().contains(&json!({"id": null, "name": "hosts"})), "{run}");
        let host = |dump: &Value| {
            let entries = dump.as_array().unwrap().clone();
            let own = entries.into_iter().find(|entry| entry["key"]["ipv4.src"] == "10.9.1.1");
            own.unwrap_or_else(|| panic!("{dump}"))["value"]["packets"].as_u64().unwrap()
        };
        let dump = lab.json("dump.json");
        assert!(host(&dump) >= 5, "{dump}");
        assert!(lab.read("dump.txt").contains("hosts of guard (pid "), "{}", lab.read("dump.txt"));
        assert_eq!(lab.json("entry.json")["value"]["packets"], 41);
        let metrics = lab.read("metrics.txt");
        assert!(metrics.contains("\nflowloom_port_received_packets_total{port=\"1\",interface=\"v1\"} "), "{metrics}");
        let wrong = lab.read("wrong.txt");
        assert!(wrong.contains("not reloaded, the old program runs on: ") && wrong.contains("fly"), "{wrong}");
        let reloaded = lab.json("reloaded.json");
        assert_eq!((&reloaded["kept"][0][0], &reloaded["emptied"]), (&json!("hosts"), &json!([])), "{reloaded}");
        assert_eq!(lab.json("again.json")["reloads"], 2);
        assert!(host(&lab.json("kept.json")) >= host(&dump) + 3, "{}", lab.read("kept.json"));
        assert!(lab.read("stale.txt").contains(".sock` is stale: "), "{}", lab.read("stale.txt"));
        lab.put("guard.efsm", FIRST);
        lab.put("second.efsm", &second);
    }
}

/// After a reload the summary is that of the function that runs.
#[test]
fn the_summary_is_that_of_the_last_function() {
    let Some(lab) = Lab::new("the_summary_is_that_of_the_last_function", &[]) else { return };
    lab.put("guard.efsm", FIRST);
    lab.put("other.efsm", FIRST.replace("function guard;", "function other;"));
    let said = lab.run(
        r#"
        host a 1; addresses a 1; neighbours a 1
        start guard.efsm -i v1 --mode raw
        as a send 10.9.1.2:9 10.9.1.2:9 >sent
        wait_for '"$FLOWLOOM" map lookup $pid/hosts key ipv4.src=10.9.1.1 >/dev/null 2>&1'
        "$FLOWLOOM" reload $pid other.efsm >reloaded.txt
        finish
        echo $code"#,
        &[],
    );
    assert_eq!(said, "0\n", "{}", lab.read("err"));
    let report = lab.report();
    assert_eq!((&report["event"], &report["function"]), (&json!("ended"), &json!("other")), "{report}");
}

/// Without a run, and with several, the commands say what to do.
#[test]
fn runs_are_named_when_there_are_none_or_several() {
    let Some(lab) = Lab::new("runs_are_named_when_there_are_none_or_several", &[]) else { return };
    let said = lab.run(
        r#"
        code=0; "$FLOWLOOM" top --once 2>none.txt || code=$?; echo $code
        start $TOP/$1 -i flt0 --mode tap; first=$pid
        start $TOP/$1 -i flt1 --mode tap
        code=0; "$FLOWLOOM" top --once 2>several.txt || code=$?; echo $code
        "$FLOWLOOM" top $first --once --interval 50ms | grep -c "pid $first"
        finish; pid=$first; finish"#,
        &[UDP_FLOWS],
    );
    assert_eq!(said, "2\n2\n1\n");
    assert!(lab.read("none.txt").contains("no function runs on interfaces"), "{}", lab.read("none.txt"));
    assert!(lab.read("several.txt").contains("give the process id of one of"), "{}", lab.read("several.txt"));
}
