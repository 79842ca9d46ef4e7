// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attaching, forwarding and detaching; programs of other loaders; offloads.

use serde_json::json;

use crate::common::lab::{Lab, MODES};
use crate::common::{PASS_ALL, UDP_FLOWS, large_with_counters, name};

/// Forwards between port 1 and port 2, and counts the packets of each host.
pub(crate) const BRIDGE: &str = "function bridge;
stateful hosts {
    key eth.src;
    full reject;
    states heard;
    reg packets: u32;
    on heard when pkt.port == 1 { packets += 1; forward(2); }
    on heard when pkt.port == 2 { packets += 1; forward(1); }
    on heard { forward(9); }
}
";

/// Address resolution and transfers through a function between two hosts, after its advice on offloads was followed.
fn a_bridge(test: &'static str, mode: &str) {
    let Some(lab) = Lab::new(test, &["ethtool"]) else { return };
    lab.put("bridge.efsm", BRIDGE);
    let said = lab.run(
        r#"
        host a 1; host b 2
        ip -n a address add 10.9.0.1/24 dev e1; ip -n a -6 address add fd00::1/64 dev e1 nodad
        ip -n b address add 10.9.0.2/24 dev e2; ip -n b -6 address add fd00::2/64 dev e2 nodad
        start bridge.efsm -i v1 -i v2 -m $1
        # What it says, to the letter.
        sed -n 's/.*run `\(.*\)`$/\1/p' err | sort | tee advice
        bash -e advice >/dev/null
        finish
        # Said and done: now there is nothing to say.
        start bridge.efsm -i v1 -i v2 -m $1
        cat err
        serve b server serve [::]:7
        a() { as a "$@"; }
        echo arp: $(a reach 10.9.0.2:7) $(ip -n a neighbour show 10.9.0.2 | grep -c 02:00:00:00:2:01 || true)
        echo nd: $(a reach [fd00::2]:7)
        echo transfer: $(a transfer 10.9.0.2:7 1000000) $(a transfer [fd00::2]:7 1000000)
        finish
        echo end: $code"#,
        &[mode],
    );
    let advice = match mode {
        "native" => {
            "ip netns exec a ethtool -K e1 gro on\nip netns exec a ethtool -K e1 tx off\n\
             ip netns exec b ethtool -K e2 gro on\nip netns exec b ethtool -K e2 tx off\n"
        }
        _ => "ip netns exec a ethtool -K e1 tx off\nip netns exec b ethtool -K e2 tx off\n",
    };
    let arp = "arp: open 0\nnd: open\ntransfer: same same\nend: 0\n";
    assert_eq!(said, format!("{advice}{arp}"), "{}", lab.read("err"));
    let report = lab.report();
    assert_eq!(report["verdicts"]["ABORTED"], 0, "{report}");
    assert!(report["verdicts"]["REDIRECT"].as_u64() > Some(100), "{report}");
    assert_eq!(report["elements"][0]["contexts_created"], 2, "{report}");
    let rows = report["elements"][0]["rows"].as_array().unwrap();
    let hits: Vec<u64> = rows.iter().map(|row| row["states"][0]["hits"].as_u64().unwrap()).collect();
    assert!(hits[0] > 20 && hits[1] > 20 && hits[2] == 0, "packets have the ports they came by: {hits:?}");
}

#[test]
fn hosts_find_each_other_through_a_function() {
    MODES.iter().for_each(|mode| a_bridge("hosts_find_each_other_through_a_function", mode));
}

#[test]
fn unbound_ports_abort_and_ports_can_be_chosen() {
    let Some(lab) = Lab::new("unbound_ports_abort_and_ports_can_be_chosen", &[]) else { return };
    lab.put("bridge.efsm", BRIDGE);
    let said = lab.run(
        r#"
        host a 1; addresses a 1; neighbours a 1
        # Port 1 is bound, port 2 is not; then it is port 40, and the last row forwards to port 9.
        start bridge.efsm -i v1 -c 3
        as a send 10.9.1.2:9 10.9.1.2:9 10.9.1.2:9 >sent
        wait $pid
        tail -n 1 out
        start bridge.efsm -i 40=v1 --duration 1s --interval 200ms
        as a send 10.9.1.2:9 >sent
        wait $pid
        grep -c report out >reports
        tail -n 1 out"#,
        &[],
    );
    let reports: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(reports[0]["verdicts"]["ABORTED"].as_u64() >= Some(3), "{said}");
    let hits = |report: &serde_json::Value, row: usize| report["elements"][0]["rows"][row]["states"][0]["hits"].clone();
    assert!(hits(&reports[0], 0).as_u64() >= Some(3) && hits(&reports[0], 2) == json!(0), "{said}");
    assert!(hits(&reports[1], 2).as_u64() >= Some(1) && hits(&reports[1], 0) == json!(0), "{said}");
    let between: u32 = lab.read("reports").trim().parse().unwrap();
    assert!((2..=5).contains(&between), "a report each 200 ms, within a second: {between}");
}

#[test]
fn a_killed_process_leaves_nothing_attached() {
    let Some(lab) = Lab::new("a_killed_process_leaves_nothing_attached", &[]) else { return };
    for (mode, signal, code) in
        [("native", "KILL", 137), ("skb", "KILL", 137), ("native", "INT", 0), ("skb", "TERM", 0)]
    {
        let said = lab.run(
            r#"
            host a 1
            ls /sys/fs/bpf >before
            start $TOP/$1 -i v1 -m $2
            echo $(attached v1)
            finish $3
            wait_for '[ $(attached v1) = 0 ]'
            echo $code
            ls /sys/fs/bpf >after
            cmp before after
            ip link set dev v1 mtu 1400
            start $TOP/$1 -i v1 -m $2
            finish"#,
            &[PASS_ALL, mode, signal],
        );
        assert_eq!(said, format!("1\n{code}\n"), "{mode} {signal}");
    }
}

#[test]
fn programs_of_others_are_left_alone() {
    let Some(lab) = Lab::new("programs_of_others_are_left_alone", &["bpftool"]) else { return };
    crate::common::ok(&["build", PASS_ALL, "--target", "bpf", "-o", name(lab.folder())]);
    for (word, mode) in [("xdp", "native"), ("xdpgeneric", "skb")] {
        let said = lab.run(
            r#"
            host a 1
            ip link set dev v1 $2 object pass_all.o section xdp
            code=0
            "$FLOWLOOM" run $TOP/$1 -i v1 -m $3 2>refused || code=$?
            echo $code $(attached v1)
            # The command that it says removes the other program.
            eval "$(sed -n 's/.*remove it: `\(.*\)`$/\1/p' refused)"
            echo $(attached v1)
            start $TOP/$1 -i v1 -m $3
            code=0
            "$FLOWLOOM" run $TOP/$1 -i v1 -m $3 2>again || code=$?
            echo $code $(attached v1)
            eval "$(sed -n 's/.*or run `\(.*\)`$/\1/p' again)" >/dev/null
            code=0
            wait $pid || code=$?
            echo $code $(attached v1)
            cat err"#,
            &[PASS_ALL, word, mode],
        );
        let gone = "flowloom: interface `v1` has disappeared, or its program was detached\n";
        assert_eq!(said, format!("3 1\n0\n3 1\n3 0\n{gone}"), "{word}: {}{}", lab.read("refused"), lab.read("again"));
        let refused = lab.read("refused");
        let start = "flowloom: interface `v1` already runs the XDP program `pass_all` (id ";
        assert!(refused.starts_with(start) && refused.contains(mode), "{refused}");
        assert!(lab.read("again").contains(", link "), "{}", lab.read("again"));
    }
}

#[test]
fn what_cannot_be_attached_says_why() {
    let Some(lab) = Lab::new("what_cannot_be_attached_says_why", &[]) else { return };
    let cases: [(&str, i32, &[&str]); 9] = [
        ("-i nowhere0", 2, &["no interface `nowhere0`", "`ip link` lists them"]),
        ("-i v1 -i v1", 2, &["interface `v1` has a port already"]),
        ("-i 2=v1 -i v2", 2, &["port 2 is `v1` already"]),
        ("-i 300=v1", 2, &["ports are below 256"]),
        ("-i v1 -r x.pcap", 2, &["cannot be used with"]),
        ("-i v1 --duration 10", 2, &["expected a time such as"]),
        // Reported before the first packet, not at the end.
        ("-i v1 --duration 1s --state-out nowhere/state", 2, &["`nowhere/state` cannot be written", "No such file"]),
        ("-i v1 -i v3", 3, &["`v3` refuses the program in mode native", "ip link set dev e3 mtu 1500", "-m skb"]),
        ("-i lo", 3, &["`lo` refuses the program in mode native", "-m skb"]),
    ];
    for (arguments, code, words) in cases {
        let said = lab.run(
            r#"
            host a 1; host b 2; host c 3
            ip -n c link set dev e3 mtu 9000
            code=0
            "$FLOWLOOM" run $TOP/$1 $2 2>said || code=$?
            echo $code $(attached v1)"#,
            &[PASS_ALL, arguments],
        );
        let why = lab.read("said");
        assert_eq!(said, format!("{code} 0\n"), "{arguments}: {why}");
        for word in words {
            assert!(why.contains(word), "{arguments}: `{word}` is not in:\n{why}");
        }
    }
}

#[test]
fn an_interface_that_goes_away_ends_the_run() {
    let Some(lab) = Lab::new("an_interface_that_goes_away_ends_the_run", &[]) else { return };
    let said = lab.run(
        r#"
        host a 1; host b 2
        start $TOP/$1 -i v1 -i v2
        ip link delete v2
        code=0
        wait $pid || code=$?
        echo $code $(attached v1) $(tail -n 1 err)"#,
        &[PASS_ALL],
    );
    assert_eq!(said, "3 0 flowloom: interface `v2` has disappeared, or its program was detached\n");
    assert_eq!(lab.report()["event"], "ended");
}

#[test]
fn state_and_summary_outlive_whoever_reads_the_reports() {
    let Some(lab) = Lab::new("state_and_summary_outlive_whoever_reads_the_reports", &[]) else { return };
    let said = lab.run(
        r#"
        host a 1; host b 2
        code=0
        timeout 60 "$FLOWLOOM" run $TOP/$1 -i v1 --interval 50ms --state-out kept.json 2>said | head -n 1 >begun || code=$?
        echo ${PIPESTATUS[0]} $(attached v1) $(ls -A | grep -c ^kept)
        code=0
        "$FLOWLOOM" run $TOP/$1 -i v1 --duration 100ms --interval 50ms --state-out full.json >/dev/full 2>said || code=$?
        echo $code $(attached v1) $(ls -A | grep -c ^full)
        code=0
        "$FLOWLOOM" run $TOP/$1 -i v1 -q --duration 100ms --state-out /dev/full >out 2>said || code=$?
        echo $code $(grep -c '^verdict' out) $(grep -c 'cannot be written' said)"#,
        &[UDP_FLOWS],
    );
    assert_eq!(said, "0 0 1\n3 0 1\n2 1 1\n");
}

/// XDP sees received packets only: on one interface, a function that needs both directions misses one of them.
#[test]
fn both_directions_on_one_interface_are_remarked_on() {
    let Some(lab) = Lab::new("both_directions_on_one_interface_are_remarked_on", &[]) else { return };
    let element = "states a; reg n: u32; on a -> a (idle 1s) { n += 1; pass; } otherwise { pass; } }";
    lab.put("both.efsm", format!("function both; stateful talks {{ key biflow(5-tuple); {element}"));
    lab.put("one.efsm", format!("function one; stateful sources {{ key ip.src; {element}"));
    let said = lab.run(
        r#"
        host a 1; host b 2
        for arguments in "both.efsm -i v1" "both.efsm -i v1 -i v2" "one.efsm -i v1"; do
            start $arguments
            finish
            grep "\`talks\` has one context for both directions of a flow, and XDP sees only packets that arrive" err | wc -l
        done"#,
        &[],
    );
    assert_eq!(said, "1\n0\n0\n");
}

#[test]
fn a_function_that_is_too_large_with_counters_is_attached_without() {
    let Some(lab) = Lab::new("a_function_that_is_too_large_with_counters_is_attached_without", &[]) else { return };
    lab.put("large.efsm", large_with_counters());
    let said = lab.run(
        r#"
        host a 1
        start large.efsm -i v1
        echo $(attached v1) $(grep -c "nothing is counted: with counters, " err)
        finish
        echo $code"#,
        &[],
    );
    assert_eq!(said, "1 1\n0\n");
}
