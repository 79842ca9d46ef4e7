// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One flow over two queues, received by two CPUs concurrently.

use serde_json::Value;

use crate::common::lab::Lab;

/// Counts packets to port 9 from one host in contexts that are created and removed, and in one that expires. Drops
/// them.
const COUNTED: &str = "function counted;
meta flush;
stateful flow {
    key ip.src;
    states ready;
    reg n: u64;
    on ready when udp.dport == 9 && n == 7 stay { n = 0; flush = 8; goto total; }
    on ready when udp.dport == 9 stay { n += 1; goto timed; }
    otherwise { pass; }
}
stateful total {
    key none;
    states s;
    reg sum: u64;
    on s stay { sum += flush; goto timed; }
}
stateful timed {
    key ip.src;
    sweep 1ms;
    states fresh, live, late;
    reg m: u64;
    expire live -> late;
    on any -> live (idle 20us) { m += 1; drop; }
}
";

#[test]
fn one_flow_over_two_queues_loses_no_update() {
    let Some(lab) = Lab::new("one_flow_over_two_queues_loses_no_update", &["taskset", "ethtool"]) else { return };
    let function = lab.put_unique("counted.efsm", COUNTED);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        flowloom_testkit::skip("one_flow_over_two_queues_loses_no_update", "one processor, two are needed");
        return;
    }
    let said = lab.run(
        r#"
        ip netns add a
        ip link add v1 address 02:00:00:00:01:02 numtxqueues 2 numrxqueues 2 type veth \
            peer name e1 address 02:00:00:00:01:01 numtxqueues 2 numrxqueues 2 netns a
        ip link set dev v1 up; ip -n a link set dev lo up; ip -n a link set dev e1 up
        addresses a 1; neighbours a 1
        start counted.efsm -i v1
        for cpu in 0 1; do
            ip netns exec a taskset -c $cpu bash -c "$(declare -f peer); peer burst 10.9.1.2:9 40000" >sent.$cpu &
            senders="${senders-} $!"
        done
        wait $senders
        grep -c sent sent.0 sent.1 >both
        # What the queues still hold.
        sleep 0.5
        for table in flow total timed; do "$FLOWLOOM" map dump $1/$table --json >$table; done
        # The one context of a table without a key is named by no key.
        "$FLOWLOOM" map update $1/total value sum=7
        "$FLOWLOOM" map lookup $1/total key none >one
        "$FLOWLOOM" map lookup $1/total key sum=7 2>refused || echo $? >>refused
        ethtool -S v1 >queues
        finish
        echo $code"#,
        &[&function],
    );
    assert_eq!(said, "0\n");
    let sum = |table: &str, register: &str| -> u64 {
        let entries = lab.json(table);
        let value = |entry: &Value| entry["value"][register].as_u64().unwrap_or_else(|| panic!("{table}: {entry}"));
        entries.as_array().unwrap().iter().map(value).sum()
    };
    assert!(lab.read("one").starts_with("none: sum=7 state=s"), "{}", lab.read("one"));
    let refused = lab.read("refused");
    let advice = "`total` has one context and no key: omit the key, or write `key none`\n2\n";
    assert!(refused.ends_with(advice), "{refused}");
    let report = lab.report();
    let dropped = report["verdicts"]["DROP"].as_u64().unwrap();
    println!("{dropped} packets; {}", lab.read("queues"));
    assert!(dropped > 10_000, "{report}");
    assert_eq!(sum("flow", "n") + sum("total", "sum"), dropped, "{report}");
    assert_eq!(sum("timed", "m"), dropped, "{report}");
    for queue in ["rx_queue_0_xdp_packets", "rx_queue_1_xdp_packets"] {
        let queues = lab.read("queues");
        let count = queues.lines().find_map(|line| line.trim().strip_prefix(queue)?.strip_prefix(": ")?.parse().ok());
        assert!(count > Some(1000_u64), "{queue}: {queues}");
    }
}
