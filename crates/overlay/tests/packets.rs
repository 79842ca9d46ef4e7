// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets: built, with user-defined headers, cut, mutated, and captured.

use flowloom_testkit::{Extension, PacketBuilder, Rng, mutate, skip};
use flowloom_trace::{CaptureReader, traces_from_env};
use flowloom_wire::Graph;
use flowloom_wire::field::FieldId;
use flowloom_wire::graph::{Parent, UserField, UserHeader};

/// A named source of packets.
pub(crate) struct Packets {
    pub(crate) name: String,
    pub(crate) packets: Vec<Vec<u8>>,
}

/// The ports that select the user-defined headers of [`graph`], and others.
const PORTS: [u16; 8] = [34952, 19286, 2152, 7000, 7001, 53, 443, 3869];

fn field(name: &str) -> FieldId {
    FieldId::by_name(name).unwrap()
}

fn user(name: &str, after: Parent, when: &[(&str, u64)], widths: &[u8]) -> UserHeader {
    UserHeader {
        name: name.to_owned(),
        after,
        when: when.iter().map(|&(name, value)| (field(name), value)).collect(),
        fields: widths
            .iter()
            .enumerate()
            .map(|(at, &width_bits)| UserField { name: format!("f{at}"), width_bits })
            .collect(),
    }
}

/// Parse graphs: without user-defined headers, with two after UDP, and with one after TCP and UDP each.
pub(crate) fn graphs() -> Vec<Graph> {
    let after_udp = [
        user(
            "paxos",
            Parent::Udp,
            &[("udp.dport", 34952), ("udp.sport", 7000), ("udp.len", 77)],
            &[8, 8, 32, 32, 32, 64],
        ),
        user("kvs", Parent::Udp, &[("udp.dport", 19286), ("udp.sport", 34952), ("udp.dport", 7001)], &[16, 64, 32, 32]),
    ];
    let after_both = [
        user(
            "bits",
            Parent::Tcp,
            &[("tcp.dport", 443), ("tcp.is_syn", 1), ("tcp.window", 100)],
            &[3, 29, 5, 33, 7, 64, 3],
        ),
        user("long", Parent::Udp, &[("udp.dport", 53)], &[128, 64, 64, 64, 64, 16]),
    ];
    vec![Graph::standard().clone(), Graph::with(&after_udp).unwrap(), Graph::with(&after_both).unwrap()]
}

/// A packet of any kind; half of the TCP and UDP packets without tunnel have a port that selects a user-defined header.
fn built(rng: &mut Rng) -> Vec<u8> {
    if rng.chance(1, 2) {
        return PacketBuilder::random(rng, 4).build();
    }
    let mut builder = PacketBuilder::new();
    for _ in 0..rng.below(4).saturating_sub(1) {
        builder = builder.vlan(rng.next_u64() as u16);
    }
    for _ in 0..rng.below(8).saturating_sub(3) {
        builder = builder.mpls(rng.next_u64() as u32, 3, 64);
    }
    if rng.chance(1, 2) {
        builder = builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        if rng.chance(1, 3) {
            let len = 4 * rng.below(10);
            builder = builder.ipv4_options(&vec![1; len]);
        }
    } else {
        builder = builder.ipv6([0x20; 16], [0x30; 16]);
        for _ in 0..rng.below(8).saturating_sub(3) {
            let units = rng.below(3) as u8;
            let extension = match rng.below(5) {
                0 => Extension::HopByHop(units),
                1 => Extension::Destination(units),
                2 => Extension::Routing(units),
                3 => Extension::Fragment { offset_units: u16::from(rng.chance(1, 4)), more: rng.chance(1, 2) },
                _ => Extension::Authentication(units),
            };
            builder = builder.extension(extension);
        }
    }
    let (sport, dport) = (*rng.pick(&PORTS), *rng.pick(&PORTS));
    builder = match rng.below(3) {
        0 => builder.tcp(sport, dport).tcp_flags(rng.next_u64() as u8),
        _ => builder.udp(sport, dport),
    };
    let len = rng.below(120);
    let payload = rng.bytes(len);
    builder.payload(&payload).build()
}

/// Built packets, all truncations of some of them, and mutations.
pub(crate) fn random(count: usize) -> Vec<Packets> {
    let mut rng = Rng::from_env(7);
    let built: Vec<Vec<u8>> = (0..count).map(|_| built(&mut rng)).collect();
    let cut = built
        .iter()
        .take(count / 100)
        .flat_map(|packet| (0..=packet.len()).map(|len| packet[..len].to_vec()).collect::<Vec<_>>());
    let cut = cut.collect();
    let mutated = built
        .iter()
        .map(|packet| {
            let mut packet = packet.clone();
            mutate(&mut rng, &mut packet);
            packet
        })
        .collect();
    let named = |name: &str, packets| Packets { name: name.to_owned(), packets };
    vec![named("built", built), named("cut", cut), named("mutated", mutated)]
}

/// The captures that `FLOWLOOM_TRACES` names, with at most `limit` packets of each.
pub(crate) fn captured(test: &str, limit: usize) -> Vec<Packets> {
    let Some(paths) = traces_from_env().unwrap_or_else(|error| panic!("{error}")) else {
        skip(test, "`FLOWLOOM_TRACES` is not set");
        return Vec::new();
    };
    paths
        .iter()
        .map(|path| Packets {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            packets: CaptureReader::open(path).unwrap().take(limit).map(|packet| packet.unwrap().bytes).collect(),
        })
        .collect()
}
