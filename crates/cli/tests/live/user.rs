// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Engines in user space on interfaces: AF_XDP, raw sockets and TAP interfaces.

use serde_json::json;

use crate::attach::BRIDGE;
use crate::common::lab::Lab;
use crate::common::{PASS_ALL, UDP_FLOWS};

/// The modes with interfaces of the network stack.
const MODES: [&str; 2] = ["af_xdp", "raw"];
/// Prints what of a run is left, programs and companions of `v1`, and whether the interface receives packets.
const LEFT: &str = r#"
left() { echo $(attached v1) $(ip -brief link | grep -c flpass || true) $(as a reach 10.9.1.2:7); }
"#;

/// Datagrams through a function between two hosts, each once in each direction, and a transfer.
#[test]
fn packets_are_forwarded_once() {
    let Some(lab) = Lab::new("packets_are_forwarded_once", &["ethtool"]) else { return };
    lab.put("bridge.efsm", BRIDGE);
    for (mode, engine) in [("af_xdp", "jit"), ("raw", "jit"), ("af_xdp", "interp")] {
        let said = lab.run(
            r#"
            host a 1; host b 2
            ip -n a address add 10.9.0.1/24 dev e1
            ip -n b address add 10.9.0.2/24 dev e2
            heeded bridge.efsm -i v1 -i v2 --mode $1 --engine $2
            serve b server serve 10.9.0.2:7
            serve b echo echo 10.9.0.2:8
            echo flows: $(as a flows 10.9.0.1:4000 10.9.0.2:8 40)
            echo transfer: $(as a transfer 10.9.0.2:7 300000)
            finish
            echo end: $code $(attached v1) $(attached v2)"#,
            &[mode, engine],
        );
        let expected = "flows: 40 answered, 0 not\ntransfer: same\nend: 0 0 0\n";
        assert_eq!(said, expected, "{mode} {engine}: {}", lab.read("err"));
        let report = lab.report();
        assert_eq!((&report["engine"], &report["mode"]), (&json!(engine), &json!(mode)), "{report}");
        assert_eq!(report["verdicts"]["ABORTED"], 0, "{report}");
        // Three rounds of 40 datagrams and their answers, and the transfer.
        assert!(report["verdicts"]["REDIRECT"].as_u64() > Some(240), "{report}");
        let rows = report["elements"][0]["rows"].as_array().unwrap();
        let hits: Vec<u64> = rows.iter().map(|row| row["states"][0]["hits"].as_u64().unwrap()).collect();
        assert!(hits[0] > 120 && hits[1] > 120 && hits[2] == 0, "packets have the ports they came by: {hits:?}");
    }
}

/// Passed packets reach the network stack, a signal ends the run, the state has the flows, and nothing is left.
#[test]
fn passed_packets_reach_the_stack() {
    let Some(lab) = Lab::new("passed_packets_reach_the_stack", &["ethtool"]) else { return };
    for (mode, signal) in [("af_xdp", "INT"), ("raw", "TERM")] {
        let said = lab.run(
            &format!(
                r#"{LEFT}
            host a 1; addresses a 1
            heeded $TOP/$1 -i v1 --mode $2 --state-out state.json
            serve - echo echo 10.9.1.2:8
            serve - server serve 10.9.1.2:7
            echo flows: $(as a flows 10.9.1.1:4000 10.9.1.2:8 20)
            echo reach: $(as a reach 10.9.1.2:7)
            finish $3
            echo end: $code
            left
            # Its state is the beginning of the next run.
            start $TOP/$1 -i v1 --mode $2 --state-in state.json --duration 300ms
            wait $pid
            left"#
            ),
            &[UDP_FLOWS, mode, signal],
        );
        let expected = "flows: 20 answered, 0 not\nreach: open\nend: 0\n0 0 open\n0 0 open\n";
        assert_eq!(said, expected, "{mode}: {}", lab.read("err"));
        let state = lab.json("state.json");
        // From the hosts' side only: the network stack sends its answers itself.
        let flows = state["conversations"].as_array().map(Vec::len);
        assert!(flows >= Some(20), "{mode}: {state}");
        let report = lab.report();
        assert_eq!((&report["event"], &report["pass_lost"]), (&json!("ended"), &json!(0)), "{mode}: {report}");
        assert!(report["elements"][0]["contexts_alive"].as_u64() >= Some(20), "{mode}: {report}");
    }
}

#[test]
fn passed_packets_leave_through_another_interface() {
    let Some(lab) = Lab::new("passed_packets_leave_through_another_interface", &["ethtool"]) else { return };
    let said = lab.run(
        r#"
        host a 1; host b 2
        ip -n a address add 10.9.0.1/24 dev e1
        ip -n b address add 10.9.0.2/24 dev e2
        ip -n a neighbour replace 10.9.0.2 lladdr 02:00:00:00:02:01 dev e1 nud permanent
        heeded $TOP/$1 -i v1 --mode af_xdp --pass-to v2 -c 5
        before=$(ip netns exec b awk '/^Udp: [0-9]/ {print $3}' /proc/net/snmp)
        as a send 10.9.0.2:9 10.9.0.2:9 10.9.0.2:9 10.9.0.2:9 10.9.0.2:9 >sent
        code=0
        wait $pid || code=$?
        echo $code $(($(ip netns exec b awk '/^Udp: [0-9]/ {print $3}' /proc/net/snmp) - before))"#,
        &[PASS_ALL],
    );
    // Packets for unknown ports; the others that count resolve addresses.
    let report = lab.report();
    assert!(said.starts_with("0 ") && said != "0 0\n", "{said}: {report}");
    assert_eq!((&report["packets"], &report["passed"]), (&json!(5), &json!(5)), "{report}");
}

/// The network stack sends packets to the function through an interface that exists as long as the run.
#[test]
fn a_tap_interface_lives_as_long_as_the_run() {
    let Some(lab) = Lab::new("a_tap_interface_lives_as_long_as_the_run", &[]) else { return };
    let said = lab.run(
        r#"
        start $TOP/$1 -i 3=flt0 --mode tap
        ip address add 10.9.5.1/24 dev flt0
        ip neighbour replace 10.9.5.2 lladdr 02:00:00:00:05:02 dev flt0 nud permanent
        peer send 10.9.5.2:9 10.9.5.2:9 10.9.5.2:9 >sent
        wait_for 'tail -n 1 out | grep -q "\"packets\":[1-9]"'
        finish
        echo $code $(ip link show flt0 2>&1 | grep -c "does not exist")
        cat err"#,
        &[UDP_FLOWS],
    );
    assert!(said.starts_with("0 1\n"), "{said}");
    assert!(said.contains("packets that the function passes are LOST: mode tap"), "{said}");
    let report = lab.report();
    assert!(report["verdicts"]["PASS"].as_u64() >= Some(3), "{report}");
    assert_eq!(report["pass_lost"], report["verdicts"]["PASS"], "{report}");
    // Each datagram has a port of its own.
    assert_eq!(report["elements"][0]["contexts_created"], 3, "{report}");
    assert!(said.contains("lost: no receiver"), "{said}");
}

const SHORT: &str = "function short;
stateful hosts {
    key ipv4.src;
    sweep 100ms;
    states seen, known;
    on seen -> known (idle 300ms) { drop; }
    on known stay { drop; }
}
";

/// Contexts expire by the clock while no packets arrive.
#[test]
fn contexts_are_swept_without_packets() {
    let Some(lab) = Lab::new("contexts_are_swept_without_packets", &[]) else { return };
    lab.put("short.efsm", SHORT);
    for mode in MODES {
        let said = lab.run(
            r#"
            host a 1; addresses a 1; neighbours a 1
            start short.efsm -i v1 --mode $1 --interval 200ms --state-out swept.json
            as a send 10.9.1.2:9 >sent
            sleep 1
            finish
            echo $code $(grep -c report out)"#,
            &[mode],
        );
        let reports: u32 =
            said.trim().strip_prefix("0 ").and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{said}"));
        assert!((2..=20).contains(&reports), "{said}");
        let report = lab.report();
        let element = &report["elements"][0];
        assert_eq!(
            (&element["contexts_created"], &element["contexts_timed_out"]),
            (&json!(1), &json!(1)),
            "{mode}: {report}"
        );
        // Without a sweep it would still be in the table.
        assert_eq!(lab.json("swept.json")["hosts"], json!([]), "{mode}: {report}");
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let Some(lab) = Lab::new("what_cannot_be_opened_says_why", &["setpriv", "prlimit"]) else { return };
    let as_nobody = "setpriv --bounding-set=-all --inh-caps=-all";
    let unlocked =
        "prlimit --memlock=65536 setpriv --bounding-set=-ipc_lock,-sys_admin --inh-caps=-ipc_lock,-sys_admin";
    let cases: [(&str, &str, i32, &[&str]); 6] = [
        ("", "-i nowhere0 --mode raw", 2, &["no interface `nowhere0`", "`ip link` lists them"]),
        ("", "-i v1 --mode raw --pass-to nowhere0", 2, &["no interface `nowhere0`"]),
        ("", "-i v2 --mode af_xdp", 3, &["`v2` already runs the XDP program", "remove it"]),
        (as_nobody, "-i v1 --mode af_xdp", 3, &["af_xdp v1: could not", "this needs CAP_", "run as root"]),
        (unlocked, "-i v1 --mode af_xdp", 3, &["could not lock", "the limit is 65536 bytes", "ulimit -l unlimited"]),
        (as_nobody, "-i v1 --mode raw", 3, &["raw v1: could not", "this needs CAP_NET_RAW", "run as root"]),
    ];
    for (prefix, arguments, code, words) in cases {
        let said = lab.run(
            r#"
            host a 1; host b 2
            "$FLOWLOOM" build $TOP/$1 --target bpf -o . >/dev/null
            ip link set dev v2 xdp object pass_all.o section xdp
            code=0
            $2 "$FLOWLOOM" run $TOP/$1 $3 --state-out kept.json 2>said || code=$?
            echo $code $(attached v1) $(ls -A | grep -c kept || true)"#,
            &[PASS_ALL, prefix, arguments],
        );
        let why = lab.read("said");
        assert_eq!(said, format!("{code} 0 0\n"), "{arguments}: {why}");
        for word in words {
            assert!(why.contains(word), "{arguments}: `{word}` is not in:\n{why}");
        }
    }
}

/// Raw sockets see what an XDP program passes.
#[test]
fn programs_before_raw_sockets_are_named() {
    let Some(lab) = Lab::new("programs_before_raw_sockets_are_named", &[]) else { return };
    let said = lab.run(
        r#"
        host a 1
        "$FLOWLOOM" build $TOP/$1 --target bpf -o . >/dev/null
        ip link set dev v1 xdp object pass_all.o section xdp
        start $TOP/$1 -i v1 --mode raw --duration 200ms
        wait $pid
        cat err"#,
        &[PASS_ALL],
    );
    assert!(
        said.contains("interface `v1` runs the XDP program `pass_all` (id ") && said.contains("sees packets first"),
        "{said}"
    );
}

#[test]
fn an_interface_that_goes_away_ends_a_run_in_user_space() {
    let Some(lab) = Lab::new("an_interface_that_goes_away_ends_a_run_in_user_space", &[]) else { return };
    for mode in MODES {
        let said = lab.run(
            r#"
            host a 1; host b 2
            start $TOP/$1 -i v1 -i v2 --mode $2 --state-out kept.json
            ip link delete v2
            code=0
            wait $pid || code=$?
            echo $code $(attached v1) $(ls kept.json) $(tail -n 1 err)"#,
            &[UDP_FLOWS, mode],
        );
        assert!(said.starts_with("3 0 kept.json ") && said.contains("interface `v2` of port 2 was removed"), "{said}");
        assert_eq!(lab.report()["event"], "ended");
    }
}

/// The summary for people names mode, engine and losses.
#[test]
fn the_summary_is_readable() {
    let Some(lab) = Lab::new("the_summary_is_readable", &[]) else { return };
    let said = lab.run(
        r#"
        host a 1; addresses a 1; neighbours a 1
        "$FLOWLOOM" run $TOP/$1 -i v1 --mode af_xdp --busy-poll --duration 500ms --interval 200ms 2>err"#,
        &[PASS_ALL],
    );
    for word in [
        "pass_all runs on v1 (port 1), af_xdp (native, by copy), engine jit; Ctrl-C ends it\n",
        " s  ",
        "pass_all on v1 by jit: ",
        "verdict",
        "sent 0, passed on ",
    ] {
        assert!(said.contains(word), "`{word}` is not in:\n{said}");
    }
    let unavailable = lab.run(
        r#"code=0; "$FLOWLOOM" run $TOP/$1 -i net_null0 --mode dpdk --no-huge-pages --duration 100ms >out 2>err || code=$?; echo $code"#,
        &[PASS_ALL],
    );
    let err = lab.read("err");
    // Built with DPDK, it runs.
    assert!(unavailable == "0\n" || unavailable == "3\n" && err.contains("--features dpdk"), "{unavailable}: {err}");
}

/// Clones leave besides the packet, which no function in the kernel can do.
#[test]
fn clones_leave_through_their_port() {
    let Some(lab) = Lab::new("clones_leave_through_their_port", &[]) else { return };
    lab.put("mirror.efsm", "function mirror;\nstateless all { always { clone(2); pass; } }\n");
    for mode in MODES {
        let said = lab.run(
            r#"
            host a 1; host b 2; addresses a 1; neighbours a 1
            received() { ip netns exec b cat /sys/class/net/e2/statistics/rx_packets; }
            start mirror.efsm -i v1 -i v2 --mode $1
            before=$(received)
            as a send 10.9.1.2:9 10.9.1.2:9 10.9.1.2:9 >sent
            wait_for '[ $(received) -ge $((before + 3)) ]'
            finish
            echo $code"#,
            &[mode],
        );
        assert_eq!(said, "0\n", "{mode}");
        let report = lab.report();
        assert!(report["packets"].as_u64() >= Some(3), "{mode}: {report}");
        assert_eq!(report["further_outputs"], report["packets"], "{mode}: {report}");
        assert_eq!(report["sent"], report["packets"], "{mode}: {report}");
    }
}

/// The run after a killed one says what it found, once; a run that ends leaves no record.
#[test]
fn a_killed_run_is_named_by_the_next_one() {
    let Some(lab) = Lab::new("a_killed_run_is_named_by_the_next_one", &[]) else { return };
    for (mode, device) in [("native", "v1"), ("af_xdp", "v1")] {
        let said = lab.run(
            r#"
            host a 1; addresses a 1
            again() { start $TOP/$1 -i $3 --mode $2; }
            again "$@"
            first=$pid
            finish KILL
            again "$@"
            echo $code $(ls /run/flowloom/*.json 2>/dev/null | wc -l) $(grep "an earlier run was killed" err | grep -c "pid $first, begun [0-9]* s ago")
            grep -c "found nothing of it\|waited .* until" err
            finish
            again "$@"
            grep -c killed err || true
            finish
            echo $code $(ls /run/flowloom/*.json 2>/dev/null | wc -l)"#,
            &[UDP_FLOWS, mode, device],
        );
        assert_eq!(said, "137 1 1\n1\n0\n0 0\n", "{mode}: {}", lab.read("err"));
    }
}

/// Log lines of a reader that does not read are dropped and counted, packets go on, and the run leaves its interface.
#[test]
fn a_stalled_reader_stops_no_packets() {
    let Some(lab) = Lab::new("a_stalled_reader_stops_no_packets", &[]) else { return };
    lab.put(
        "logs.efsm",
        "function logs;\nstateless all { always { log(\"a text that is long enough to fill a pipe soon\", pkt.len, eth.src); \
         drop; } }\n",
    );
    let said = lab.run(
        r#"
        host a 1; addresses a 1; neighbours a 1
        mkfifo pipe
        "$FLOWLOOM" run logs.efsm -i v1 --mode af_xdp --json >pipe 2>err &
        pid=$!
        exec 3<pipe
        read -r -u 3 line
        [[ $line == *started* ]]
        # Fast senders overrun the queue of the interface: some more are sent.
        ran() { "$FLOWLOOM" top $pid --once --json --interval 50ms | sed -n 's/.*"DROP":\([0-9]*\).*/\1/p'; }
        wait_for 'as a burst 10.9.1.2:9 4000 >sent; [[ $(ran) -gt 20000 ]]'
        kill -INT $pid
        wait_for '[[ $(attached v1) == 0 ]]'
        cat <&3 >out
        code=0; wait $pid || code=$?
        echo $code"#,
        &[],
    );
    let report = lab.report();
    let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
    assert_eq!(said, "0\n");
    assert!(number("packets") > 20_000, "{report}");
    assert!(number("logs_lost") > 0, "{report}");
    assert_eq!(number("logged") + number("logs_lost"), number("packets"), "{report}");
    assert_eq!(lab.read("out").matches("\"event\":\"log\"").count() as u64, number("logged"), "{report}");
}
