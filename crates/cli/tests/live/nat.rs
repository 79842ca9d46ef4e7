// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dynamic NAT between a network and real hosts: requests are answered, at a public port that no other flow has at the
//! time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::common::lab::{Lab, MODES, shipped};
use crate::common::tshark;

const NAT: &str = "functions/dynamic_nat/dynamic_nat.efsm";

/// An outside host behind port 1. Behind port 2 a router with the public address, and two hosts behind it. Neighbour
/// tables are empty.
const TOPOLOGY: &str = r#"
host outside 1; host router 2
for n in 1 2; do
    side=$([ $n = 1 ] && echo outside || echo router)
    ip -n $side address add 203.0.113.$n/24 dev e$n
    ip -n $side -6 address add fd00::$n/64 dev e$n nodad
done
for n in 5 6; do
    ip netns add host$n
    ip link add r$n netns router type veth peer name h$n netns host$n
    ip -n router link set dev r$n up
    ip -n host$n link set dev h$n up
    ip -n router address add 10.0.$n.1/24 dev r$n
    ip -n host$n address add 10.0.$n.$n/24 dev h$n
    ip -n host$n route add default via 10.0.$n.1
done
ip netns exec router sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
serve outside tcp serve [::]:7
serve outside udp echo 203.0.113.1:7
serve host5 inside serve 10.0.5.5:22
given_back() { "$FLOWLOOM" map dump $name/mappings | grep -q "0 entries"; }
"#;

/// Host and port behind each public port.
type Mappings = BTreeMap<u16, (String, u16)>;

fn mappings(lab: &Lab, file: &str) -> Mappings {
    let dump = lab.json(file);
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or_else(|| panic!("{dump}"));
    let entries = dump.as_array().unwrap().iter().map(|entry| {
        let host = match &entry["value"]["host"] {
            serde_json::Value::String(host) => host.clone(),
            host => std::net::Ipv4Addr::from_bits(number(host) as u32).to_string(),
        };
        (number(&entry["key"]["mapped"]) as u16, (host, number(&entry["value"]["hostport"]) as u16))
    });
    entries.collect()
}

/// A packet as dissected by `tshark`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Seen {
    src: (String, u16),
    dst: (String, u16),
    /// Fields that translation keeps: protocol, identification, length, sequence number.
    rest: [String; 4],
}

/// All TCP and UDP packets over IPv4. Their checksums are good.
fn seen(test: &str, lab: &Lab, file: &str) -> Option<Vec<Seen>> {
    let wanted = ["ip.src", "ip.dst", "ip.proto", "ip.id", "ip.len", "tcp.srcport", "tcp.dstport", "tcp.seq_raw"];
    let more = ["udp.srcport", "udp.dstport", "ip.checksum.status", "tcp.checksum.status", "udp.checksum.status"];
    let rows = tshark::fields(test, &lab.folder().join(file), &[&wanted[..], &more].concat())?;
    let mut packets = Vec::new();
    for row in rows.iter().filter(|row| row[2] == "6" || row[2] == "17") {
        assert_eq!((row[10].as_str(), format!("{}{}", row[11], row[12])), ("1", "1".to_owned()), "{file}: {row:?}");
        let port = |tcp: &str, udp: &str| format!("{tcp}{udp}").parse::<u16>().unwrap();
        packets.push(Seen {
            src: (row[0].clone(), port(&row[5], &row[8])),
            dst: (row[1].clone(), port(&row[6], &row[9])),
            rest: [&row[2], &row[3], &row[4], &row[7]].map(String::clone),
        });
    }
    Some(packets)
}

fn transfers(test: &'static str, mode: &str) {
    let Some(lab) = Lab::new(test, &["ethtool", "dumpcap", "tshark"]) else { return };
    let function = lab.put_unique("nat.efsm", &shipped(NAT));
    let script = format!(
        r#"{TOPOLOGY}
        heeded nat.efsm -i v1 -i v2 -m $2
        capture outside e1 outer; capture router e2 inner
        echo arp: $(as host5 reach 203.0.113.1:7) $(ip -n router neighbour show 203.0.113.1 | grep -c 02:00:00:00:01:01)
        echo nd: $(as router reach [fd00::1]:7)
        echo tcp: $(as host5 transfer 203.0.113.1:7 400000) $(as host6 transfer 203.0.113.1:7 400000)
        as host5 flows 10.0.5.5:4000 203.0.113.1:7 20 >five &
        five=$!
        echo udp: $(as host6 flows 10.0.6.6:4000 203.0.113.1:7 20)
        wait $five
        echo udp: $(cat five)
        # Outside nobody can ask: not at the public address, and not at the hosts' own.
        ip -n outside route add 10.0.0.0/8 via 203.0.113.2
        echo in: $(as outside connect 203.0.113.2:22) $(as outside connect 10.0.5.5:22)
        "$FLOWLOOM" map dump $1/mappings --json >mappings
        captured
        finish
        echo end: $code"#
    );
    let said = lab.run(&script, &[&function, mode]);
    let expected = "arp: open 1\nnd: open\ntcp: same same\nudp: 20 answered, 0 not\nudp: 20 answered, 0 not\n\
                    in: closed closed\nend: 0\n";
    assert_eq!(said, expected, "{}", lab.read("err"));
    assert_eq!(lab.report()["verdicts"]["ABORTED"], 0, "{}", lab.report());

    let mapped = mappings(&lab, "mappings");
    let hosts: BTreeSet<_> = mapped.values().collect();
    assert_eq!((mapped.len(), hosts.len()), (43, 43), "each flow has a port of its own: {mapped:?}");
    let Some(outer) = seen(test, &lab, "outer") else { return };
    let Some(inner) = seen(test, &lab, "inner") else { return };
    // Each outside packet equals an inside packet, except for an address and a port.
    let mut expected: HashMap<Seen, i64> = HashMap::new();
    for packet in &inner {
        let mut packet = packet.clone();
        for end in [&mut packet.src, &mut packet.dst] {
            if let Some((port, _)) = mapped.iter().find(|(_, host)| *host == end) {
                *end = ("203.0.113.2".to_owned(), *port);
            }
        }
        *expected.entry(packet).or_default() += 1;
    }
    let mut unasked = 0;
    for packet in &outer {
        match expected.get_mut(packet) {
            Some(count) => *count -= 1,
            // Unsolicited packets were dropped.
            None => {
                assert_eq!(packet.dst.1, 22, "outside alone: {packet:?}");
                unasked += 1;
            }
        }
    }
    assert!(expected.values().all(|count| *count == 0), "inside alone: {expected:?}");
    assert!((2..10).contains(&unasked) && outer.len() > 300, "{unasked} of {}", outer.len());
    let private = outer.iter().find(|p| p.src.0.starts_with("10.") || p.dst.0.starts_with("10.") && p.dst.1 != 22);
    assert!(private.is_none(), "a private address outside: {private:?}");
}

#[test]
fn transfers_pass_through_nat_with_right_checksums() {
    MODES.iter().for_each(|mode| transfers("transfers_pass_through_nat_with_right_checksums", mode));
}

#[test]
fn ports_are_given_back_after_their_timeout() {
    let test = "ports_are_given_back_after_their_timeout";
    let Some(lab) = Lab::new(test, &["ethtool"]) else { return };
    let function = lab.put_unique("nat.efsm", &shipped(NAT));
    let script = format!(
        r#"{TOPOLOGY}
        # Four ports: the second host gets none until the first one's are given back.
        heeded nat.efsm -i v1 -i v2 --param first_port=0xfffc --param quiet=5s
        echo five: $(as host5 flows 10.0.5.5:4000 203.0.113.1:7 4)
        echo six: $(as host6 flows 10.0.6.6:4000 203.0.113.1:7 3)
        echo five: $(as host5 flows 10.0.5.5:4000 203.0.113.1:7 4)
        started=$(date +%s%3N)
        "$FLOWLOOM" map dump $1/mappings --json >before
        wait_for given_back
        # Not before the last packet was 5 s ago, which was sent at most 1.2 s before `flows` ended.
        [ $(($(date +%s%3N) - started)) -ge 3500 ]
        echo six: $(as host6 flows 10.0.6.6:4000 203.0.113.1:7 4)
        echo five: $(as host5 flows 10.0.5.5:5000 203.0.113.1:7 2)
        "$FLOWLOOM" map dump $1/mappings --json >after
        finish
        echo end: $code"#
    );
    let said = lab.run(&script, &[&function]);
    let expected = "five: 4 answered, 0 not\nsix: 0 answered, 3 not\nfive: 4 answered, 0 not\nsix: 4 answered, 0 not\n\
                    five: 0 answered, 2 not\nend: 0\n";
    assert_eq!(said, expected, "{}", lab.read("err"));
    for (file, host) in [("before", "10.0.5.5"), ("after", "10.0.6.6")] {
        let mapped = mappings(&lab, file);
        assert!(mapped.keys().copied().eq(0xfffc..=0xffff), "{mapped:?}");
        let ports: BTreeSet<u16> = mapped.values().map(|(_, port)| *port).collect();
        assert!(mapped.values().all(|(h, _)| h == host) && ports.into_iter().eq(4000..4004), "{mapped:?}");
    }
}

#[test]
fn no_port_is_mapped_twice() {
    let test = "no_port_is_mapped_twice";
    let Some(lab) = Lab::new(test, &["ethtool"]) else { return };
    let function = lab.put_unique("nat.efsm", &shipped(NAT));
    let script = format!(
        r#"{TOPOLOGY}
        # More flows than ports, from two hosts at once: each answer comes to who asked, or `flows` fails.
        heeded nat.efsm -i v1 -i v2 --param first_port=0xfff0
        as host5 flows 10.0.5.5:4000 203.0.113.1:7 30 >five &
        five=$!
        as host6 flows 10.0.6.6:4000 203.0.113.1:7 30 >six
        wait $five
        cat five six
        "$FLOWLOOM" map dump $1/mappings --json >mappings
        finish"#
    );
    let said = lab.run(&script, &[&function]);
    let counts: Vec<usize> = said.split([' ', '\n']).filter_map(|word| word.parse().ok()).collect();
    assert_eq!(counts.len(), 4, "{said}");
    assert_eq!((counts[0] + counts[2], counts[1] + counts[3]), (16, 44), "{said}");
    let mapped = mappings(&lab, "mappings");
    assert!(mapped.keys().copied().eq(0xfff0..=0xffff), "{mapped:?}");
    assert_eq!(mapped.values().collect::<BTreeSet<_>>().len(), 16, "{mapped:?}");
}
