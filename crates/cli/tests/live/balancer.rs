// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The load balancer between clients and real servers: connections are distributed round-robin and stay on their
//! server.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::lab::{Lab, MODES, shipped};
use crate::common::tshark;

const BALANCER: &str = "functions/server_load_balancer/server_load_balancer.efsm";

/// Clients behind port 1. A router behind port 2 has the service's addresses, with the servers behind it. Neighbour
/// tables are empty.
const TOPOLOGY: &str = r#"
host clients 1; host router 2
for n in 100 101; do ip -n clients address add 1.0.0.$n/24 dev e1; done
ip -n clients -6 address add 2001:db8:1::100/64 dev e1 nodad
ip -n router address add 1.0.0.1/24 dev e2
ip -n router -6 address add 2001:db8:1::1/64 dev e2 nodad
for n in 2 3; do
    ip netns add server$n
    ip link add r$n netns router type veth peer name s$n netns server$n
    ip -n router link set dev r$n up
    ip -n server$n link set dev s$n up
    ip -n server$n link set dev lo up
    ip -n router -6 address add fe80::1/64 dev r$n nodad
    ip -n router route add 10.0.0.$n/32 dev r$n
    ip -n router -6 route add 2001:db8:10::$n/128 dev r$n
    ip -n server$n address add 10.0.0.$n/32 dev s$n
    ip -n server$n -6 address add 2001:db8:10::$n/128 dev s$n nodad
    ip -n server$n -4 route add default via inet6 fe80::1 dev s$n
    ip -n server$n -6 route add default dev s$n via fe80::1
    serve server$n server$n greet [::]:80 $n
done
ip netns exec router sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding'
"#;

/// Remote addresses of each client's connections, seen by `tshark` on one side of the balancer.
type Ends = BTreeMap<String, BTreeSet<String>>;

/// Remote addresses by client, and packet counts by direction. All checksums are good.
fn ends(test: &str, lab: &Lab, file: &str) -> Option<(Ends, [usize; 2])> {
    let wanted = ["ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "tcp.srcport", "tcp.dstport"];
    let wanted = [&wanted[..], &["ip.checksum.status", "tcp.checksum.status"]].concat();
    let (mut ends, mut packets) = (Ends::new(), [0; 2]);
    for row in tshark::fields(test, &lab.folder().join(file), &wanted)? {
        let [v4_src, v4_dst, v6_src, v6_dst, sport, dport, ip_sum, tcp_sum] = row.as_slice() else { panic!("{row:?}") };
        let (src, dst) = (format!("{v4_src}{v6_src}"), format!("{v4_dst}{v6_dst}"));
        let (client, server) = match (sport.as_str(), dport.as_str()) {
            (_, "80") => (format!("{src} {sport}"), dst),
            ("80", _) => (format!("{dst} {dport}"), src),
            _ => continue,
        };
        assert_eq!(tcp_sum, tshark::GOOD, "{file}: {row:?}");
        assert!(v4_src.is_empty() || ip_sum == tshark::GOOD, "{file}: {row:?}");
        packets[usize::from(sport == "80")] += 1;
        ends.entry(client).or_default().insert(server);
    }
    Some((ends, packets))
}

fn servers_take_turns(test: &'static str, mode: &str) {
    let Some(lab) = Lab::new(test, &["ethtool", "dumpcap", "tshark"]) else { return };
    let function = lab.put_unique("balancer.efsm", &shipped(BALANCER));
    let script = format!(
        r#"{TOPOLOGY}
        heeded balancer.efsm -i v1 -i v2 -m $2
        capture clients e1 outer; capture router e2 inner
        echo arp: $(as clients turns 1.0.0.100:0 1.0.0.1:80 1)
        echo nd: $(as clients turns [2001:db8:1::100]:0 [2001:db8:1::1]:80 1)
        echo neighbours: $(ip -n clients neighbour | grep -c 02:00:00:00:02:01)
        echo first: $(as clients turns 1.0.0.100:0 1.0.0.1:80 9)
        echo second: $(as clients turns 1.0.0.101:0 1.0.0.1:80 6)
        echo third: $(as clients turns [2001:db8:1::100]:0 [2001:db8:1::1]:80 5)
        echo other: $(as clients connect 1.0.0.1:81)
        captured
        "$FLOWLOOM" map dump $1/bind --json >bindings
        finish
        echo end: $code"#
    );
    let said = lab.run(&script, &[&function, mode]);
    let expected = "arp: 3\nnd: 2\nneighbours: 2\nfirst: 3 2 3 2 3 2 3 2 3\nsecond: 2 3 2 3 2 3\nthird: 2 3 2 3 2\n\
                    other: closed\nend: 0\n";
    assert_eq!(said, expected, "{}", lab.read("err"));
    let report = lab.report();
    assert_eq!(report["verdicts"]["ABORTED"], 0, "{report}");
    assert_eq!(lab.json("bindings").as_array().map(Vec::len), Some(22), "one for each connection");

    let Some((outer, outer_packets)) = ends(test, &lab, "outer") else { return };
    let Some((inner, inner_packets)) = ends(test, &lab, "inner") else { return };
    assert_eq!(outer.len(), 22, "{outer:?}");
    assert_eq!(outer.keys().collect::<Vec<_>>(), inner.keys().collect::<Vec<_>>());
    assert_eq!(outer_packets, inner_packets, "nothing is lost or doubled");
    assert!(outer_packets.iter().all(|packets| *packets > 150), "{outer_packets:?}");
    for (client, servers) in &outer {
        let service = if client.contains(':') { "2001:db8:1::1" } else { "1.0.0.1" };
        assert!(servers.iter().eq([service]), "{client} sees {servers:?}");
    }
    let mut share: BTreeMap<&str, usize> = BTreeMap::new();
    for (client, servers) in &inner {
        assert_eq!(servers.len(), 1, "{client} is at {servers:?}");
        *share.entry(servers.first().unwrap()).or_default() += 1;
    }
    let (v4, v6) = (["10.0.0.2", "10.0.0.3"], ["2001:db8:10::2", "2001:db8:10::3"]);
    assert!(share.keys().eq(&[v4, v6].concat()), "{share:?}");
    assert_eq!([share[v4[0]] + share[v6[0]], share[v4[1]] + share[v6[1]]], [11, 11], "{share:?}");
}

#[test]
fn servers_take_turns_and_keep_their_connections() {
    MODES.iter().for_each(|mode| servers_take_turns("servers_take_turns_and_keep_their_connections", mode));
}
