// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs in user space that are watched, changed and reloaded while packets pass.

use serde_json::{Value, json};

use crate::common::UDP_FLOWS;
use crate::common::lab::{Lab, MODES};

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

/// Functions in the kernel replace each other while packets pass: none goes by uncounted, and each table that the next
/// function has too keeps its entries, also where their locks are in other places there.
fn a_kernel_run_is_reloaded(test: &'static str, mode: &str) {
    let Some(lab) = Lab::new(test, &["ethtool"]) else { return };
    // Functions in the kernel are visible to all tests.
    let [guard, longer] = [lab.unique(), lab.unique()];
    let timed = |function: &str, first: &str, last: &str| {
        format!(
            "function {function};\n{first}stateful hosts {{\n    key ipv4.src;\n    states seen;\n    reg packets: u64;\n    \
             on seen -> seen (idle 60s) {{ packets += 1; {last} }}\n    otherwise {{ pass; }}\n}}\n"
        )
    };
    let before = "stateful ports {\n    key udp.dport;\n    sweep 100ms;\n    states used;\n    reg n: u32;\n    \
                  on used -> used (idle 300ms) { n += 1; goto hosts; }\n    otherwise { goto hosts; }\n}\n";
    lab.put("guard.efsm", timed(&guard, "", "pass;"));
    lab.put("logs.efsm", timed(&guard, "", "log(\"seen\", packets); pass;"));
    lab.put("longer.efsm", timed(&longer, before, "pass;"));
    lab.put("wrong.efsm", "function guard;\nstateless all { always { fly; } }\n");
    lab.put(
        "states.efsm",
        timed(&guard, "", "pass;").replace("states seen", "states new, seen").replace("on seen", "on any"),
    );
    let said = lab.run(
        r#"
        guard=$2 longer=$3
        fl() { "$FLOWLOOM" "$@"; }
        seen() { ip -s -j link show dev v1 | sed 's/.*"rx":{"bytes":[0-9]*,"packets":\([0-9]*\),.*/\1/'; }
        # No packets but those that are sent here.
        for which in default all; do echo 1 >/proc/sys/net/ipv6/conf/$which/disable_ipv6; done
        host a 1
        ip netns exec a bash -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
        ip address add 10.9.1.2/24 dev v1; ip -n a address add 10.9.1.1/24 dev e1; neighbours a 1
        ip netns exec a ethtool -K e1 tx off gro on >/dev/null
        counted() { fl top $pid --once --json | sed 's/.*"packets":\([0-9]*\),.*/\1/'; }
        quiet() { last=-1; while [ $last != $(seen) ]; do last=$(seen); sleep 0.2; done; }
        start guard.efsm -i v1 -m $1
        quiet; first=$(($last - $(counted)))
        as a burst 10.9.1.2:9 60000 >sent & sending=$!
        wait_for '[ $(seen) -gt $last ]'
        for turn in 1 2 3; do
            fl reload $pid longer.efsm --json >longer.$turn
            fl reload $pid guard.efsm --json >guard.$turn
        done
        wait $sending
        # Both counters are read when all packets have passed.
        quiet
        echo passed: $(($last - $first - $(counted)))
        fl map dump $guard/hosts --json >dump.json
        code=0; fl reload $pid wrong.efsm 2>wrong.txt || code=$?; echo wrong: $code
        fl map lookup $guard/hosts key ipv4.src=10.9.1.1 --json >entry.json
        # The run reads its file again, and logs from then on; what it has logged is printed when it logs no longer.
        fl reload $pid logs.efsm >logs.txt
        as a send 10.9.1.2:9 >sent
        cp guard.efsm logs.efsm
        kill -HUP $pid
        wait_for 'grep -q "hosts: kept" err'
        grep -c '"text":"seen' out
        # Contexts of a table that was new expire, by its own sweeper.
        fl reload $pid longer.efsm >/dev/null
        as a send 10.9.1.2:9 10.9.1.2:10 >sent
        fl map dump $longer/ports --json >ports.json
        wait_for '[ "$(fl map dump $longer/ports --json)" = "[]" ]'
        fl reload $pid states.efsm --json >states.json
        fl top $pid --once --json >top.json
        finish
        echo end: $code $(attached v1)"#,
        &[mode, &guard, &longer],
    );
    assert_eq!(said, "passed: 0\nwrong: 2\n1\nend: 0 0\n", "{mode}: {}", lab.read("err"));
    for file in ["longer.1", "guard.1", "longer.3", "guard.3"] {
        let reloaded = lab.json(file);
        let [kept, pause] = [&reloaded["kept"], &reloaded["pause_ns"]];
        assert!(kept[0][0] == "hosts" && kept[0][1].as_u64() >= Some(1) && pause == 0, "{file}: {reloaded}");
        assert!(!reloaded["notes"].to_string().contains("lock"), "{file}: {reloaded}");
    }
    let (dump, top) = (lab.json("dump.json"), lab.json("top.json"));
    assert_eq!(dump.as_array().map(Vec::len), Some(1), "{dump}");
    let count = |entry: &Value| entry["value"]["packets"].as_u64().unwrap();
    assert!(count(&dump[0]) > 1000 && count(&lab.json("entry.json")) == count(&dump[0]), "{dump}");
    // Every packet was one of the host's, except those that resolve addresses.
    let others = top["packets"].as_u64().unwrap() - count(&dump[0]) - 3;
    assert!(others < 20, "{others}: {top}");
    assert_eq!((&top["reloads"], &top["function"]), (&json!(10), &json!(guard)), "{top}");
    assert!(lab.read("wrong.txt").contains("not reloaded, the old program runs on: "), "{}", lab.read("wrong.txt"));
    assert!(!lab.json("ports.json").as_array().unwrap().is_empty());
    let states = lab.json("states.json");
    assert_eq!(states["emptied"], json!([["hosts", "its states were seen, are new, seen"]]), "{states}");
    let report = lab.report();
    assert_eq!(
        (&report["event"], &report["function"], &report["logged"]),
        (&json!("ended"), &json!(guard), &Value::Null)
    );
}

#[test]
fn a_run_in_the_kernel_is_reloaded() {
    MODES.iter().for_each(|mode| a_kernel_run_is_reloaded("a_run_in_the_kernel_is_reloaded", mode));
}

/// Traces of a live run show the state before and after each packet, and go on with the program of a reload.
#[test]
fn single_packets_of_a_live_run_are_traced() {
    let Some(lab) = Lab::new("single_packets_of_a_live_run_are_traced", &["ethtool"]) else { return };
    lab.put("guard.efsm", FIRST);
    lab.put("drops.efsm", FIRST.replace("packets += 1; pass;", "packets += 10; drop;"));
    for (mode, engine) in [("af_xdp", "jit"), ("raw", "interp")] {
        lab.run(
            r#"
            host a 1; addresses a 1; neighbours a 1
            heeded guard.efsm -i v1 --mode $1 --engine $2 --trace 'udp.dport == 9'
            as a send 10.9.1.2:9 10.9.1.2:10 10.9.1.2:9 >sent
            wait_for '[ $(grep -c "event.:.trace" out) = 2 ]'
            "$FLOWLOOM" reload $pid drops.efsm >/dev/null
            as a send 10.9.1.2:10 10.9.1.2:9 >sent
            wait_for '[ $(grep -c "event.:.trace" out) = 3 ]'
            finish
            cp out few
            # No more than a hundred in a second.
            start guard.efsm -i v1 --mode $1 --engine $2 --trace 'udp.dport == 9' -q
            as a burst 10.9.1.2:9 1000 >sent
            wait_for '[ $(grep -c "event.:.trace" out) -ge 100 ] || ! as a burst 10.9.1.2:9 300 >sent' 20
            finish
            cp err many"#,
            &[mode, engine],
        );
        let traces = |text: &str| -> Vec<Value> {
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines.filter(|line| line["event"] == "trace").collect()
        };
        let few = traces(&lab.read("few"));
        let packets = |value: &Value| value["packets"].as_u64();
        let mut last = None;
        for (trace, (verdict, added)) in few.iter().zip([("PASS", 1), ("PASS", 1), ("DROP", 10)]) {
            assert_eq!((&trace["verdict"], &trace["differs"]), (&json!(verdict), &Value::Null), "{mode}: {trace}");
            let host = trace["state"].as_array().unwrap().iter().find(|entry| entry["map"] == "hosts").unwrap();
            assert_eq!(host["key"], json!({"ipv4.src": "10.9.1.1"}), "{trace}");
            let [before, after] = [packets(&host["before"]), packets(&host["after"])];
            assert_eq!(after, Some(before.unwrap_or(0) + added), "{mode}: {trace}");
            // The packet to port 10 between two traces is one of the host's as well.
            assert!(last.is_none_or(|last| before > Some(last)), "{mode}: {trace}");
            last = after;
            assert!(trace["rows"].as_array().unwrap().iter().any(|row| row["event"] == "row"), "{mode}: {trace}");
        }
        assert_eq!(few.len(), 3, "{few:?}");
        let traced = traces(&lab.read("out"));
        assert!((100..=900).contains(&traced.len()), "{mode}: {} traces", traced.len());
        assert!(lab.read("many").contains("at most 100 are traced in a second"), "{}", lab.read("many"));
        assert!(traced.iter().all(|trace| trace["differs"].is_null()), "{mode}: {traced:?}");
    }
    let refused = lab.run(
        r#"
        host a 1
        code=0; "$FLOWLOOM" run guard.efsm -i v1 --trace 1 2>refused || code=$?; echo $code"#,
        &[],
    );
    assert_eq!(refused, "2\n");
    let text = lab.read("refused");
    assert!(text.contains("--trace cannot be used with --mode native; use --mode af_xdp"), "{text}");
}
