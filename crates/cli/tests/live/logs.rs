// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logs of a function on interfaces: printed while it runs, and counted if lost.

use serde_json::Value;

use crate::common::lab::Lab;

const LOUD: &str = r#"function loud;

stateful hosts {
    key ipv4.src;
    states all;
    reg n: u32;
    reg delta: i16;

    on all when udp.dport == 9 { n += 1; delta -= 1; alert("nine", ipv4.src, udp.dport, n, delta, eth.dst); drop; }
    on all when udp.dport == 10 {
        n += 1;
        log("a", ip.src, ip.dst);
        log("b", ip.src, ip.dst, n);
        log("c", ip.src, ip.dst, n, delta);
        log("d", ip.src, ip.dst, n, delta, now, state, pkt.len, pkt.port);
        drop;
    }
    otherwise { pass; }
}
"#;

#[test]
fn logs_are_printed_while_it_runs() {
    let Some(lab) = Lab::new("logs_are_printed_while_it_runs", &[]) else { return };
    lab.put("loud.efsm", LOUD);
    for mode in ["native", "skb", "af_xdp", "raw"] {
        let said = lab.run(
            r#"
            host a 1; addresses a 1; neighbours a 1
            start loud.efsm -i v1 -m $1 -q
            as a send 10.9.1.2:9 10.9.1.2:9 >sent
            # While it runs, not at its end.
            wait_for '[ $(grep -c alert out) -ge 2 ]'
            kill -0 $pid && echo runs
            finish
            grep alert out
            tail -n 1 out"#,
            &[mode],
        );
        let mut lines = said.lines();
        assert_eq!(lines.next(), Some("runs"), "{mode}: {said}");
        let mut json = || -> Value { serde_json::from_str(lines.next().unwrap()).unwrap() };
        for n in 1..=2 {
            let line = json();
            let values = &line["values"];
            assert_eq!(line["text"], "nine", "{mode}: {said}");
            assert_eq!(line["place"], "loud.efsm:9", "{mode}: {said}");
            assert_eq!((&values["n"], &values["delta"]), (&n.into(), &(-n).into()), "{mode}: {said}");
            assert_eq!(values["ipv4.src"], "10.9.1.1", "{mode}: {said}");
            assert_eq!(values["eth.dst"], "02:00:00:00:01:02", "{mode}: {said}");
            assert!(line["time_ns"].as_u64() > Some(0), "{mode}: {said}");
        }
        let last = json();
        assert_eq!((&last["logged"], &last["logs_lost"]), (&2.into(), &0.into()), "{mode}: {said}");
    }
}

#[test]
fn lost_logs_are_counted() {
    let Some(lab) = Lab::new("lost_logs_are_counted", &[]) else { return };
    lab.put("loud.efsm", LOUD);
    // A stopped reader consumes nothing; about 3,000 packets fill the buffer.
    let said = lab.run(
        r#"
        host a 1; addresses a 1; neighbours a 1
        start loud.efsm -i v1 -q
        kill -STOP $pid
        ip netns exec a bash -c 'for i in $(seq 5000); do echo >/dev/udp/10.9.1.2/10; done'
        kill -CONT $pid
        finish
        tail -n 1 out
        cat err"#,
        &[],
    );
    let last: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    let (logged, lost) = (last["logged"].as_u64().unwrap(), last["logs_lost"].as_u64().unwrap());
    // Each received packet logs four times.
    let came = last["verdicts"]["DROP"].as_u64().unwrap();
    assert!(came > 4000 && lost > 0 && logged > 5000 && logged + lost == 4 * came, "{said}");
    assert!(said.contains("log lines were lost"), "{said}");
}
