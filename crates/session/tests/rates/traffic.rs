// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of minimum size for which each function and program does its work, and what it needs for that: entries that
//! the host has set, and packets by which a flow becomes known.

use flowloom_session::engines::Departure;
use flowloom_testkit::PacketBuilder;

/// A packet and the port at which it arrives.
pub(crate) type Frame = (u32, Vec<u8>);

/// An entry that the host has set: map, key, value.
pub(crate) type Entry = (&'static str, Vec<u8>, Vec<u8>);

/// Traffic of a function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic {
    /// The file name of the function.
    pub(crate) file: &'static str,
    /// What the packets are, if there is more than one kind for the function.
    pub(crate) what: &'static str,
    pub(crate) entries: fn() -> Vec<Entry>,
    /// The packets by which a flow becomes known; the first one begins the flow.
    pub(crate) opening: fn(u32) -> Vec<Frame>,
    /// The packets of a known flow.
    pub(crate) packet: fn(u32) -> Frame,
    /// The map with an entry for each known flow.
    pub(crate) table: Option<&'static str>,
    /// The verdict of all packets of known flows; none where a function passes some of them and drops others.
    pub(crate) verdict: Option<u8>,
}

impl std::fmt::Display for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.what {
            "" => f.write_str(self.file),
            what => write!(f, "{} ({what})", self.file),
        }
    }
}

impl Default for Traffic {
    /// Packets of UDP of the known flows, with any verdict.
    fn default() -> Traffic {
        Traffic { verdict: None, ..PLAIN }
    }
}

const LENGTH_BYTES: usize = 60;
const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 9];
const WEB: ([u8; 4], u16) = (SERVER, 80);

const DROP: u8 = 1;
const PASS: u8 = 2;
const TX: u8 = 3;
const REDIRECT: u8 = 4;

const SYN: u8 = 2;
const ACK: u8 = 16;

/// The address of a flow's client.
fn client(flow: u32) -> [u8; 4] {
    let [_, a, b, c] = flow.to_be_bytes();
    [10, a, b, c]
}

/// The port of a flow's client.
fn client_port(flow: u32) -> u16 {
    1024 + (flow % 50_000) as u16
}

fn frame(src: [u8; 4], dst: [u8; 4]) -> PacketBuilder {
    PacketBuilder::new().eth(CLIENT, ROUTER).ipv4(src, dst).pad_to(LENGTH_BYTES)
}

/// A packet of UDP from the client, to a port of the server.
fn udp_to(port: u32, flow: u32, dport: u16) -> Frame {
    (port, frame(client(flow), SERVER).udp(client_port(flow), dport).payload(&[0; 18]).build())
}

/// A packet of UDP from the client.
fn udp(flow: u32) -> Frame {
    udp_to(2, flow, 53)
}

/// A packet of TCP from the client to a port of a server.
fn tcp(port: u32, flow: u32, (dst, dport): ([u8; 4], u16), flags: u8, numbers: (u32, u32)) -> Frame {
    let packet = frame(client(flow), dst).tcp(client_port(flow), dport).tcp_flags(flags);
    (port, packet.tcp_seq(numbers.0, numbers.1).build())
}

/// An answer of the server by TCP.
fn tcp_answer(port: u32, flow: u32, flags: u8, numbers: (u32, u32)) -> Frame {
    let packet = frame(SERVER, client(flow)).tcp(80, client_port(flow)).tcp_flags(flags);
    (port, packet.tcp_seq(numbers.0, numbers.1).build())
}

/// The handshake of a connection that the client opens by a port; the server is at the other one of 1 and 2.
fn handshake(port: u32, flow: u32) -> Vec<Frame> {
    let answer = tcp_answer(3 - port, flow, SYN | ACK, (5000, 1001));
    vec![tcp(port, flow, WEB, SYN, (1000, 0)), answer, acknowledgement(port, flow)]
}

/// What the client sends in an established connection.
fn acknowledgement(port: u32, flow: u32) -> Frame {
    tcp(port, flow, WEB, ACK, (1001, 5001))
}

/// The client's first packet of a connection.
fn opening(flow: u32) -> Frame {
    tcp(2, flow, WEB, SYN, (1000, 0))
}

/// A message of the cache's protocol: 1 to ask, 3 for an answer.
fn message(port: u32, flow: u32, kind: u16, (src, dst): ([u8; 4], [u8; 4]), (sport, dport): (u16, u16)) -> Frame {
    let mut payload = kind.to_be_bytes().to_vec();
    payload.extend(u64::from(flow).to_be_bytes());
    payload.extend([0, 0, 0, 1, 0, 0, 0, 2]);
    (port, frame(src, dst).udp(sport, dport).payload(&payload).build())
}

/// A message of Paxos: 0 a request, 1 to prepare, 3 to accept.
fn paxos(flow: u32, kind: u8) -> Frame {
    let mut payload = vec![kind, 0];
    payload.extend(flow.to_be_bytes());
    payload.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    payload.extend(u64::from(flow).to_be_bytes());
    (2, frame(client(flow), SERVER).udp(client_port(flow), 0x8888).payload(&payload).build())
}

fn no_entries() -> Vec<Entry> {
    Vec::new()
}

fn entry(map: &'static str, key: &[u8], value: &[u8]) -> Entry {
    (map, key.to_vec(), value.to_vec())
}

/// The address of IPv4 in IPv6.
fn mapped(address: [u8; 4]) -> Vec<u8> {
    [&[0; 10][..], &[0xff; 2], &address].concat()
}

/// The destination of the packets as a service of UDP, as `tunnel` and `katran` have it.
fn service_key() -> Vec<u8> {
    [&mapped(SERVER)[..], &[53, 0, 0, 0, 17, 0, 0, 0]].concat()
}

/// A public address with its ports.
fn nat() -> Vec<Entry> {
    vec![
        entry("configs", &[0; 4], &[1, 0, 0, 0, 0, 4, 0, 0, 0x60, 0xea, 0, 0]),
        entry("publics", &[0; 4], &[198, 51, 100, 1]),
        entry("out_ports", &[2, 0, 0, 0], &[2, 0, 0, 0]),
    ]
}

/// From 198.51.100.1 to 198.51.100.2, next hop 02:00:00:00:00:99.
fn tunnel() -> Vec<Entry> {
    let ends = [mapped([198, 51, 100, 1]), mapped([198, 51, 100, 2])].concat();
    vec![entry("services", &service_key(), &[&ends[..], &[2, 0, 0, 0, 0, 0x99, 0, 0]].concat())]
}

/// One real server at all places of the ring of service 0.
fn katran() -> Vec<Entry> {
    const RING_SIZE: u32 = 65537;
    let config = [mapped([198, 51, 100, 1]), mapped([0; 4]), vec![2, 0, 0, 0, 0, 0x99, 0, 0]].concat();
    let mut entries = vec![
        entry("services", &service_key(), &[0; 8]),
        entry("reals", &1u32.to_le_bytes(), &mapped([198, 51, 100, 2])),
        entry("configs", &[0; 4], &config),
    ];
    entries.extend((0..RING_SIZE).map(|place| entry("rings", &place.to_le_bytes(), &1u32.to_le_bytes())));
    entries
}

/// The router's addresses, a prefix for the destination, and its gateway at port 1.
fn routes() -> Vec<Entry> {
    let gateway = [198, 51, 100, 1];
    vec![
        entry("port_macs", &2u32.to_le_bytes(), &ROUTER),
        entry("port_macs", &1u32.to_le_bytes(), &[2, 0, 0, 0, 0, 0x11]),
        entry("routes", &[24, 0, 0, 0, 192, 0, 2, 0], &[&[1, 0, 0, 0], &gateway[..]].concat()),
        entry("neighbours", &gateway, &[1, 0, 0, 0, 2, 0, 0, 0, 0, 0x99, 0, 0]),
    ]
}

/// The flows that go by.
fn bypassed() -> Vec<Entry> {
    let flows = (0..super::KNOWN_FLOWS).map(|flow| {
        let ports = [client_port(flow).to_be_bytes(), 53u16.to_be_bytes()].concat();
        let key = [&client(flow)[..], &SERVER, &ports, &[0; 4], &17u32.to_le_bytes()].concat();
        entry("flows4", &key, &[0; 16])
    });
    flows.chain([entry("peers", &2u32.to_le_bytes(), &1u32.to_le_bytes())]).collect()
}

/// Packets are answered.
fn answers() -> Vec<Entry> {
    vec![entry("configs", &[0; 4], &[3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0])]
}

/// Packets of UDP from the client, without anything before.
const PLAIN: Traffic = Traffic {
    file: "",
    what: "",
    entries: no_entries,
    opening: |flow| vec![udp(flow)],
    packet: udp,
    table: None,
    verdict: Some(PASS),
};

/// Packets of UDP from the client, which arrive at port 1 and leave by another one.
const FROM_PORT_1: Traffic = Traffic {
    opening: |flow| vec![udp_to(1, flow, 53)],
    packet: |flow| udp_to(1, flow, 53),
    verdict: Some(REDIRECT),
    ..PLAIN
};

/// First packets of connections of TCP, by known hosts.
const OPENINGS: Traffic =
    Traffic { opening: |flow| vec![opening(flow)], packet: opening, table: Some("hosts"), ..PLAIN };

/// Acknowledgements in established connections of TCP.
const CONNECTION: Traffic =
    Traffic { opening: |flow| handshake(2, flow), packet: |flow| acknowledgement(2, flow), ..PLAIN };

/// Connections through the connection tracking of the paper, with packets that the second machine takes too.
const PAPER: Traffic = Traffic { table: Some("opening"), ..CONNECTION };

pub(crate) static TRAFFIC: [Traffic; 37] = [
    Traffic { file: "adjust_tail.bpf.c", ..PLAIN },
    Traffic { file: "big_flow.efsm", table: Some("flows"), ..PLAIN },
    Traffic { file: "conntrack.efsm", what: "TCP", table: Some("connection"), ..CONNECTION },
    Traffic { file: "conntrack.efsm", what: "UDP", table: Some("conversation"), ..PLAIN },
    Traffic { file: "conntrack_paper.efsm", ..PAPER },
    Traffic { file: "conntrack_paper_advancing.efsm", ..PAPER },
    Traffic { file: "conntrack_paper_fixed.efsm", ..PAPER },
    Traffic {
        file: "conntrack_paper_trusted.efsm",
        opening: |flow| handshake(1, flow),
        packet: |flow| acknowledgement(1, flow),
        ..PAPER
    },
    Traffic { file: "dnat.bpf.c", entries: nat, ..FROM_PORT_1 },
    Traffic { file: "dynamic_nat.efsm", table: Some("mappings"), verdict: Some(REDIRECT), ..PLAIN },
    Traffic { file: "flowlet.efsm", what: "from the uplink", verdict: Some(REDIRECT), ..PLAIN },
    Traffic {
        file: "flowlet.efsm",
        what: "from the host",
        opening: |flow| vec![from_host(flow)],
        packet: from_host,
        table: Some("paths"),
        verdict: Some(REDIRECT),
        ..PLAIN
    },
    Traffic { file: "gtpu_offload.efsm", what: "without a tunnel", verdict: Some(REDIRECT), ..PLAIN },
    Traffic { file: "katran.bpf.c", entries: katran, table: Some("flows"), verdict: Some(TX), ..PLAIN },
    Traffic {
        file: "kv_cache.efsm",
        opening: |flow| vec![message(2, flow, 3, (SERVER, client(flow)), (0x4b56, client_port(flow)))],
        packet: |flow| message(1, flow, 1, (client(flow), SERVER), (client_port(flow), 0x4b56)),
        table: Some("cache"),
        verdict: Some(TX),
        ..PLAIN
    },
    Traffic { file: "leaky_bucket.bpf.c", table: Some("buckets"), verdict: None, ..PLAIN },
    Traffic { file: "leaky_bucket_gcra.bpf.c", table: Some("buckets"), verdict: None, ..PLAIN },
    Traffic {
        file: "optimistic_ack.efsm",
        opening: |flow| vec![tcp_answer(1, flow, SYN | ACK, (5000, 1001)), acknowledgement(2, flow)],
        table: Some("connections"),
        ..CONNECTION
    },
    Traffic {
        file: "paxos_acceptor.efsm",
        opening: |flow| vec![paxos(flow, 1)],
        packet: |flow| paxos(flow, 3),
        table: Some("acceptor"),
        verdict: Some(Departure::OTHERS),
        ..PLAIN
    },
    Traffic {
        file: "paxos_coordinator.efsm",
        opening: |flow| vec![paxos(flow, 0)],
        packet: |flow| paxos(flow, 0),
        verdict: Some(Departure::OTHERS),
        ..PLAIN
    },
    Traffic { file: "policer.efsm", table: Some("buckets"), ..PLAIN },
    Traffic {
        file: "port_knocking.efsm",
        opening: |flow| [5123, 6234, 7345, 8456].map(|port| udp_to(2, flow, port)).to_vec(),
        packet: |flow| udp_to(2, flow, 22),
        table: Some("knock"),
        ..PLAIN
    },
    Traffic { file: "router.bpf.c", entries: routes, verdict: Some(REDIRECT), ..PLAIN },
    Traffic { file: "rxq_info.bpf.c", entries: answers, verdict: Some(TX), ..PLAIN },
    Traffic {
        file: "server_load_balancer.efsm",
        opening: |flow| vec![tcp(1, flow, SERVICE, SYN, (1000, 0))],
        packet: |flow| tcp(1, flow, SERVICE, ACK, (1001, 5001)),
        table: Some("bind"),
        verdict: Some(REDIRECT),
        ..PLAIN
    },
    Traffic { file: "simple_firewall.bpf.c", what: "from inside", table: Some("flows"), ..FROM_PORT_1 },
    Traffic {
        file: "simple_firewall.bpf.c",
        what: "from outside",
        packet: |flow| (2, frame(SERVER, client(flow)).udp(53, client_port(flow)).payload(&[0; 18]).build()),
        table: Some("flows"),
        ..FROM_PORT_1
    },
    Traffic {
        file: "subscriber_quota.efsm",
        opening: |flow| vec![from_subscriber(flow)],
        packet: from_subscriber,
        table: Some("credits"),
        verdict: Some(REDIRECT),
        ..PLAIN
    },
    Traffic {
        file: "super_spreader.efsm",
        what: "data",
        packet: |flow| acknowledgement(2, flow),
        verdict: Some(REDIRECT),
        ..OPENINGS
    },
    Traffic { file: "super_spreader.efsm", what: "openings", verdict: Some(REDIRECT), ..OPENINGS },
    Traffic { file: "suricata.bpf.c", entries: bypassed, table: Some("flows4"), verdict: Some(REDIRECT), ..PLAIN },
    Traffic { file: "syn_flood.efsm", ..OPENINGS },
    Traffic { file: "toy.bpf.c", verdict: Some(TX), ..PLAIN },
    Traffic { file: "tunnel.bpf.c", entries: tunnel, verdict: Some(TX), ..PLAIN },
    Traffic { file: "udp_firewall.efsm", table: Some("flows"), verdict: Some(REDIRECT), ..PLAIN },
    Traffic { file: "xdp1.bpf.c", verdict: Some(DROP), ..PLAIN },
    Traffic { file: "xdp2.bpf.c", verdict: Some(TX), ..PLAIN },
];

/// The service of the load balancer.
const SERVICE: ([u8; 4], u16) = ([1, 0, 0, 1], 80);

/// A packet of a flow from a host of the leaf to another leaf.
fn from_host(flow: u32) -> Frame {
    (3, frame(client(flow), [10, 0, 2, 9]).udp(client_port(flow), 53).payload(&[0; 18]).build())
}

fn from_subscriber(flow: u32) -> Frame {
    let [.., high, low] = flow.to_be_bytes();
    (2, frame([10, 45, high, low], SERVER).udp(client_port(flow), 53).payload(&[0; 18]).build())
}
