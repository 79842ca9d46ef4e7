// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets sent by the classical rewriting programs, checked by `tshark`: every checksum of outer and inner headers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::common::tshark::{BAD, CHECKSUMS, GOOD, fields};
use crate::common::{self, name, ok, packet, read, write};
use flowloom_engine::Snapshot;
use flowloom_testkit::{PacketBuilder, Rng};
use flowloom_trace::CapturedPacket;

const PACKETS: usize = 2000;
const SERVICE: [u8; 4] = [10, 9, 0, 1];
const SERVICE6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const HOP: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// TCP and UDP over IPv4 and IPv6 to the service, with up to 1400 bytes of payload.
fn traffic(rng: &mut Rng) -> Vec<CapturedPacket> {
    let mut next = |i: usize| {
        let builder = if rng.chance(1, 4) {
            let mut host = SERVICE6;
            host[15] = 2 + rng.below(200) as u8;
            PacketBuilder::new().ipv6(host, SERVICE6)
        } else {
            let host = Ipv4Addr::from_bits(0x0a01_0000 + rng.below(5000) as u32).octets();
            PacketBuilder::new().ipv4(host, SERVICE).ipv4_id(rng.below(0x1_0000) as u16, rng.chance(3, 4))
        };
        let sport = 1024 + rng.below(60000) as u16;
        let builder = if rng.chance(1, 2) { builder.tcp(sport, 80) } else { builder.udp(sport, 80) };
        let len = rng.below(1400);
        let payload: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
        packet(1_000_000 * i as u64, builder.ttl(2 + rng.below(250) as u8).payload(&payload).build())
    };
    (0..PACKETS).map(&mut next).collect()
}

fn mapped(addr: [u8; 4]) -> Vec<u8> {
    [&[0; 10][..], &[0xff; 2], &addr].concat()
}

fn numbers(list: &[u32]) -> Vec<u8> {
    list.iter().flat_map(|n| n.to_le_bytes()).collect()
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A program, its parameters, and the minimum number of packets that it sends rewritten.
struct Case {
    program: &'static str,
    params: &'static [&'static str],
    maps: Vec<(&'static str, Entries)>,
    least: usize,
}

fn programs() -> Vec<Case> {
    let router = vec![
        ("routes", vec![([numbers(&[0]), vec![0; 4]].concat(), [numbers(&[2]), vec![10, 3, 0, 1]].concat())]),
        ("neighbours", vec![(vec![10, 3, 0, 1], [numbers(&[2]), HOP.to_vec(), vec![0; 2]].concat())]),
        ("port_macs", vec![(numbers(&[1]), vec![2, 0, 0, 0, 0, 2]), (numbers(&[2]), vec![2, 0, 0, 0, 0, 0x22])]),
    ];
    let service = |addr: Vec<u8>, proto| [addr, numbers(&[80, proto])].concat();
    let tunnel = |from: Vec<u8>, to: Vec<u8>| [from, to, HOP.to_vec(), vec![0; 2]].concat();
    let tunnels = |proto: u32| {
        [
            (service(mapped(SERVICE), proto), tunnel(mapped([192, 0, 2, 1]), mapped([192, 0, 2, 2]))),
            (service(SERVICE6.to_vec(), proto), tunnel(SERVICE6.to_vec(), SERVICE6.to_vec())),
        ]
    };
    let tunnel = vec![("services", tunnels(6).into_iter().chain(tunnels(17)).collect())];
    let dnat = vec![
        ("configs", vec![(numbers(&[0]), numbers(&[1, 1024, 60000]))]),
        ("publics", vec![(numbers(&[0]), vec![198, 51, 100, 1])]),
    ];
    let virtual_service = |addr: Vec<u8>, proto, number, flags| (service(addr, proto), numbers(&[number, flags]));
    let katran = vec![
        (
            "services",
            vec![
                virtual_service(mapped(SERVICE), 6, 0, 0),
                virtual_service(mapped(SERVICE), 17, 1, 1),
                virtual_service(SERVICE6.to_vec(), 6, 1, 0),
                virtual_service(SERVICE6.to_vec(), 17, 1, 1),
            ],
        ),
        ("rings", (0..26).map(|place| (numbers(&[place]), numbers(&[1 + place / 13]))).collect()),
        ("reals", vec![(numbers(&[1]), mapped([192, 0, 2, 3])), (numbers(&[2]), SERVICE6.to_vec())]),
        (
            "configs",
            vec![(numbers(&[0]), [mapped([172, 16, 0, 0]), SERVICE6.to_vec(), HOP.to_vec(), vec![0; 2]].concat())],
        ),
    ];
    vec![
        Case { program: "router", params: &[], maps: router, least: PACKETS / 2 },
        Case { program: "tunnel", params: &[], maps: tunnel, least: PACKETS },
        Case { program: "dnat", params: &[], maps: dnat, least: PACKETS / 2 },
        Case { program: "adjust_tail", params: &[], maps: Vec::new(), least: PACKETS / 4 },
        Case { program: "katran", params: &["RING_SIZE=13", "MAX_SERVICES=4"], maps: katran, least: PACKETS },
    ]
}

#[test]
fn tshark_finds_every_checksum_right() {
    let test = "tshark_finds_every_checksum_right";
    if !common::clang(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.pcap");
    write(&input, &traffic(&mut Rng::from_env(0x6368_6b73)));
    for Case { program, params, maps, least } in programs() {
        let maps = maps.into_iter().map(|(map, entries)| (map.to_owned(), entries.into_iter().collect()));
        let state = Snapshot { maps: maps.collect(), per_cpu: BTreeMap::new() };
        let (state_in, output) = (folder.path().join("state.json"), folder.path().join(format!("{program}.pcapng")));
        std::fs::write(&state_in, state.to_json()).unwrap();
        let source = format!("functions/ebpf/{program}/{program}.bpf.c");
        let mut arguments = vec!["run", &source, "--engine", "interp", "-r", name(&input), "-w", name(&output)];
        arguments.extend(params.iter().flat_map(|param| ["--param", param]));
        if !state.maps.is_empty() {
            arguments.extend(["--state-in", name(&state_in)]);
        }
        ok(&arguments);
        let sent = read(&output);
        let came = read(&input);
        let is_new = |packet: &&CapturedPacket| !came.iter().any(|other| other.bytes == packet.bytes);
        let rewritten: Vec<CapturedPacket> = sent.iter().filter(is_new).cloned().collect();
        assert!(rewritten.len() >= least, "{program} sent {} of {} packets rewritten", rewritten.len(), sent.len());
        write(&output, &rewritten);
        let Some(rows) = fields(test, &output, &CHECKSUMS) else { return };
        let mut good = [0; CHECKSUMS.len()];
        for (row, packet) in rows.iter().zip(&rewritten) {
            for (kind, statuses) in row.iter().enumerate() {
                // A quoted prefix of a packet lacks bytes that the transport checksum covers.
                if program == "adjust_tail" && matches!(CHECKSUMS[kind], "tcp.checksum.status" | "udp.checksum.status")
                {
                    continue;
                }
                for status in statuses.split(',').filter(|status| !status.is_empty()) {
                    // IP in UDP over IPv6 has no checksum, as RFC 6935 allows for tunnels.
                    let is_gue = packet.bytes.get(20) == Some(&17) && packet.bytes.get(12) == Some(&0x86);
                    assert!(
                        !BAD.contains(&status) || is_gue,
                        "{program}: {} is {status}: {:02x?}",
                        CHECKSUMS[kind],
                        packet.bytes
                    );
                    good[kind] += usize::from(status == GOOD);
                }
            }
        }
        eprintln!("{program}: {} rewritten, good {good:?}", rewritten.len());
        assert!(good.iter().sum::<usize>() >= least, "{program}: {good:?}");
    }
}
