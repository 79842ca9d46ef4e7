// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic offloading between models of UEs, a core and an edge; `tshark` and `scapy` check the output.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use flowloom_efsm::Machine;
use flowloom_engine::{Choices, Datapath, Outcome, Packet, Port, Ports};
use flowloom_testkit::scratch::Scratch;
use flowloom_testkit::{Gtpu, PacketBuilder, Rng, skip};
use flowloom_trace::CaptureWriter;
use flowloom_verify::Arrival;

use crate::common::shipped::function;

const RAN: u32 = 1;
const CORE: u32 = 2;
const EDGE: u32 = 3;
const NODE: [u8; 4] = [192, 0, 2, 1];
const WEB: [u8; 4] = [198, 51, 100, 80];
/// Address of the edge's server; translation keeps the last byte.
const SERVER: [u8; 4] = [10, 99, 0, 80];
const EDGE_MAC: [u8; 6] = [2, 0, 0, 0, 3, 1];
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 3, 2];
const ENB_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const GATEWAY_MAC: [u8; 6] = [2, 0, 0, 0, 2, 2];
const GATEWAY: [u8; 4] = [10, 1, 0, 2];
/// The identifier of the function's echo requests.
const MARK: u16 = 0x464c;
/// Time until a reply counts as lost, in nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Offset of the inner packet in the frame.
const INNER: usize = 14 + 20 + 8 + 8;

/// Result of a run.
#[derive(Debug, Default)]
pub struct Ended {
    pub ues: usize,
    /// UEs both of whose tunnels were learnt.
    pub learnt: usize,
    pub echoes: usize,
    pub to_edge: usize,
    pub from_edge: usize,
    pub untouched: usize,
    /// All packets that left with other bytes than they came with, for `scapy` and `tshark`.
    pub made: Vec<Vec<u8>>,
}

impl Ended {
    /// Column heads of [`Ended`]'s line.
    pub fn head() -> String {
        format!(
            "{:>5} {:>7} {:>6} {:>8} {:>10} {:>10} {:>7}",
            "UEs", "learnt", "echoes", "to edge", "from edge", "untouched", "judged"
        )
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ended { ues, learnt, echoes, to_edge, from_edge, untouched, made } = self;
        let judged = made.len();
        write!(f, "{ues:>5} {learnt:>7} {echoes:>6} {to_edge:>8} {from_edge:>10} {untouched:>10} {judged:>7}")
    }
}

/// A UE: its tunnels, and its connections by port, with whether they lead to the edge.
#[derive(Debug)]
struct Ue {
    address: [u8; 4],
    enb: [u8; 4],
    up: u32,
    down: u32,
    is_known: bool,
    /// Time of the last echo request to it.
    asked_ns: Option<u64>,
    flows: BTreeMap<u16, Flow>,
}

#[derive(Debug, Clone, Copy)]
struct Flow {
    to: [u8; 4],
    is_tcp: bool,
    at_edge: bool,
}

struct World {
    machine: Machine,
    nat: bool,
    now_ns: u64,
    packets: u64,
    ended: Ended,
}

impl World {
    fn new(nat: bool) -> World {
        World::with_service(("198.51.100.0", "24"), nat)
    }

    /// A world in which connections to this network are offloaded.
    fn with_service((service, bits): (&str, &str), nat: bool) -> World {
        let mut params = vec![("edge_mac", "02:00:00:00:03:01"), ("own_mac", "02:00:00:00:03:02")];
        params.extend([("node", "192.0.2.1"), ("service", service), ("service_bits", bits)]);
        // The models expire nothing: each lost reply costs a second.
        params.extend([("tunnel_idle", "1000000s"), ("flow_idle", "1000000s")]);
        if nat {
            params.extend([("server", "10.99.0.0"), ("server_mask", "255.255.255.0")]);
        }
        let mut machine = Machine::new(function("gtpu_offload", &params));
        machine.bind_ports(&Ports::bound([RAN, CORE, EDGE].map(Port)));
        World { machine, nat, now_ns: 0, packets: 0, ended: Ended::default() }
    }

    fn send(&mut self, port: u32, bytes: &[u8]) -> Outcome {
        self.now_ns += 10_000;
        self.packets += 1;
        let choices = Choices::seeded(self.now_ns, 1, self.packets);
        self.machine.process(&Packet { bytes, port: Port(port) }, &choices).unwrap_or_else(|e| panic!("{e}"))
    }
}

/// A packet in a tunnel, as sent by the eNodeB (`up`) or by the gateway.
fn tunnelled(ue: &Ue, up: bool, inner: &PacketBuilder) -> Vec<u8> {
    let builder = PacketBuilder::new();
    let builder = if up {
        builder.eth(ENB_MAC, GATEWAY_MAC).ipv4(ue.enb, GATEWAY)
    } else {
        builder.eth(GATEWAY_MAC, ENB_MAC).ipv4(GATEWAY, ue.enb)
    };
    builder.udp(2152, 2152).tunnel(&Gtpu::new(if up { ue.up } else { ue.down }), inner).build()
}

/// Address of the UE, if the frame is an echo request of the function.
fn echo(frame: &[u8]) -> Option<[u8; 4]> {
    let inner = frame.get(INNER..)?;
    let is_ours = inner.len() >= 28 && inner[9] == 1 && inner[20] == 8 && inner[24..26] == MARK.to_be_bytes();
    is_ours.then(|| std::array::from_fn(|i| inner[12 + i]))
}

/// Runs `packets` packets of `ues` UEs.
pub fn run(rng: &mut Rng, ues: u8, packets: usize, nat: bool) -> Ended {
    let mut world = World::new(nat);
    let mut all: Vec<Ue> = (0..ues)
        .map(|n| Ue {
            address: [10, 45, 0, n],
            enb: [10, 1, 0, 100 + n % 4],
            up: 0x1000 + u32::from(n),
            down: rng.next_u64() as u32 | 1,
            is_known: false,
            asked_ns: None,
            flows: BTreeMap::new(),
        })
        .collect();
    // Echo requests in flight in the core.
    let mut asked: Vec<[u8; 4]> = Vec::new();
    for _ in 0..packets {
        if !asked.is_empty() && rng.chance(1, 4) {
            let address = asked.swap_remove(rng.below(asked.len()));
            if rng.chance(4, 5) {
                let ue = all.iter_mut().find(|ue| ue.address == address).unwrap_or_else(|| panic!("an echo of nobody"));
                let reply = PacketBuilder::new().ipv4(NODE, ue.address).icmp(0, 0, MARK, 1);
                let outcome = world.send(CORE, &tunnelled(ue, false, &reply));
                // After a second it counts as lost, and a later reply is forwarded to the UE.
                let is_awaited = !ue.is_known && ue.asked_ns.is_some_and(|at| world.now_ns - at < PATIENCE_NS);
                assert_eq!(outcome.outputs.len(), usize::from(!is_awaited), "{outcome:?}");
                ue.is_known |= is_awaited;
            } else {
                // Lost; the function sends another one after the timeout.
                world.now_ns += PATIENCE_NS;
            }
            continue;
        }
        let at = rng.below(all.len());
        let ue = &mut all[at];
        match rng.below(10) {
            0..5 => uplink(rng, &mut world, ue, &mut asked),
            5..8 => from_edge(rng, &mut world, ue),
            _ => downlink(rng, &mut world, ue),
        }
    }
    world.ended.ues = all.len();
    world.ended.learnt = all.iter().filter(|ue| ue.is_known).count();
    world.ended
}

fn uplink(rng: &mut Rng, world: &mut World, ue: &mut Ue, asked: &mut Vec<[u8; 4]>) {
    let port = 4000 + rng.below(40) as u16;
    let is_new = !ue.flows.contains_key(&port);
    let to_service = rng.chance(1, 2);
    let starts_tcp = rng.chance(1, 2);
    let flow = *ue.flows.entry(port).or_insert_with(|| {
        let to = if to_service { WEB } else { [203, 0, 113, 5] };
        Flow { to, is_tcp: starts_tcp, at_edge: to_service && ue.is_known }
    });
    let inner = PacketBuilder::new().ipv4(ue.address, flow.to).ttl(61);
    let inner =
        if flow.is_tcp { inner.tcp(port, 80).tcp_flags(if is_new { 2 } else { 16 }) } else { inner.udp(port, 80) };
    let inner = inner.payload(&rng.bytes(rng_len(port)));
    let frame = tunnelled(ue, true, &inner);
    let outcome = world.send(RAN, &frame);
    let mut outputs = outcome.outputs;
    if let Some(at) = outputs.iter().position(|o| echo(&o.bytes).is_some()) {
        let request = outputs.remove(at);
        assert_eq!(request.port, Port(CORE));
        assert_eq!(request.bytes[..12], frame[..12], "an echo request on another way");
        assert_eq!(request.bytes[42 + 4..50], ue.up.to_be_bytes(), "an echo request in another tunnel");
        asked.push(ue.address);
        ue.asked_ns = Some(world.now_ns);
        world.ended.echoes += 1;
        world.ended.made.push(request.bytes);
    }
    assert_eq!(outputs.len(), 1);
    if flow.at_edge {
        let mut expected = [&EDGE_MAC[..], &OWN_MAC, &[8, 0]].concat();
        let rebuilt = if world.nat { rebuilt_for_server(ue, port, flow, &frame) } else { frame[INNER..].to_vec() };
        expected.extend(rebuilt);
        assert_eq!((outputs[0].port, &outputs[0].bytes), (Port(EDGE), &expected));
        world.ended.to_edge += 1;
        world.ended.made.push(outputs.remove(0).bytes);
    } else {
        assert_eq!((outputs[0].port, &outputs[0].bytes), (Port(CORE), &frame));
        world.ended.untouched += 1;
    }
}

fn rng_len(port: u16) -> usize {
    usize::from(port) % 97
}

/// The packet inside `frame`, rebuilt for the server.
fn rebuilt_for_server(ue: &Ue, port: u16, flow: Flow, frame: &[u8]) -> Vec<u8> {
    let inner = &frame[INNER..];
    let builder = PacketBuilder::new().ipv4(ue.address, SERVER).ttl(61);
    let (builder, head) =
        if flow.is_tcp { (builder.tcp(port, 80).tcp_flags(inner[33]), 40) } else { (builder.udp(port, 80), 28) };
    builder.payload(&inner[head..]).build()[14..].to_vec()
}

fn from_edge(rng: &mut Rng, world: &mut World, ue: &mut Ue) {
    let known: Vec<(u16, Flow)> = ue.flows.iter().map(|(&p, &f)| (p, f)).collect();
    if known.is_empty() {
        return;
    }
    let &(port, flow) = rng.pick(&known);
    let from = if world.nat { SERVER } else { WEB };
    let builder = PacketBuilder::new().eth(EDGE_MAC, OWN_MAC).ipv4(from, ue.address);
    let builder = if flow.is_tcp { builder.tcp(80, port).tcp_flags(16) } else { builder.udp(80, port) };
    let payload = rng.bytes(rng_len(port));
    let frame = builder.payload(&payload).build();
    let outcome = world.send(EDGE, &frame);
    if !flow.at_edge {
        assert!(outcome.outputs.is_empty(), "the edge reaches a connection that is not there");
        return;
    }
    assert_eq!(outcome.outputs.len(), 1);
    let (out, bytes) = (outcome.outputs[0].port, &outcome.outputs[0].bytes);
    assert_eq!((out, &bytes[..12]), (Port(RAN), &[ENB_MAC, GATEWAY_MAC].concat()[..]));
    assert_eq!((&bytes[26..30], &bytes[30..34]), (&GATEWAY[..], &ue.enb[..]));
    assert_eq!(bytes[46..50], ue.down.to_be_bytes(), "another tunnel");
    let answer = PacketBuilder::new().ipv4(flow.to, ue.address);
    let answer = if flow.is_tcp { answer.tcp(80, port).tcp_flags(16) } else { answer.udp(80, port) };
    assert_eq!(bytes[INNER..], answer.payload(&payload).build()[14..]);
    world.ended.from_edge += 1;
    world.ended.made.push(bytes.clone());
}

/// Packets from the core pass.
fn downlink(rng: &mut Rng, world: &mut World, ue: &Ue) {
    let inner = PacketBuilder::new().ipv4([203, 0, 113, 5], ue.address).udp(80, 4000).payload(&rng.bytes(30));
    let frame = tunnelled(ue, false, &inner);
    let outcome = world.send(CORE, &frame);
    assert_eq!(outcome.outputs.len(), 1);
    assert_eq!((outcome.outputs[0].port, &outcome.outputs[0].bytes), (Port(RAN), &frame));
    world.ended.untouched += 1;
}

/// Sends a capture up and down through the function: every packet leaves bit for bit; only echo requests are added.
pub fn passes_untouched(packets: &[Arrival]) -> Ended {
    let mut ended = Ended::default();
    for (port, other) in [(RAN, CORE), (CORE, RAN)] {
        let mut world = World::new(false);
        for (number, packet) in packets.iter().enumerate() {
            let mut outputs = world.send(port, &packet.bytes).outputs;
            let is_same = |o: &flowloom_engine::Output| o.port == Port(other) && o.bytes == packet.bytes;
            let at =
                outputs.iter().position(is_same).unwrap_or_else(|| panic!("packet {number} has changed: {outputs:?}"));
            outputs.remove(at);
            ended.untouched += 1;
            for request in outputs {
                assert!(port == RAN && echo(&request.bytes).is_some(), "packet {number}: {request:?}");
                assert_eq!(request.bytes[46..50], packet.bytes[46..50], "packet {number}: another tunnel");
                ended.echoes += 1;
                ended.made.push(request.bytes);
            }
        }
    }
    ended
}

/// Key of a connection: the UE, both ports, and the protocol.
type Connection = ([u8; 4], Vec<u8>, u8);

/// Parsed frame with a tunnel: untagged, not fragmented, IPv4 inside.
struct Tunnel<'f> {
    frame: &'f [u8],
    teid: [u8; 4],
    /// The inner packet with TCP or UDP, and the offset of that header in it.
    inner: &'f [u8],
    l4: usize,
}

impl Tunnel<'_> {
    /// An independent parser, written from the RFCs and 3GPP TS 29.281.
    fn read(frame: &[u8]) -> Option<Tunnel<'_>> {
        // No options in the outer header; in the inner packet no fragments but the first.
        let udp = 14 + 20;
        let is_udp = frame.get(12..15)? == [8, 0, 0x45] && frame[23] == 17 && frame[20] & 0x3f == 0 && frame[21] == 0;
        if !is_udp || frame.get(udp + 2..udp + 4)? != 2152_u16.to_be_bytes() {
            return None;
        }
        let gtp = frame.get(udp + 8..)?;
        let flags = *gtp.first()?;
        if flags & 0xf4 != 0x30 || *gtp.get(1)? != 255 {
            return None;
        }
        let inner = gtp.get(if flags & 7 == 0 { 8 } else { 12 }..)?;
        let l4 = 4 * usize::from(inner.first()? & 15);
        let is_first = inner[0] >> 4 == 4 && inner.get(6)? & 0x1f == 0 && inner[7] == 0;
        let has_ports = [6, 17].contains(inner.get(9)?) && inner.len() >= l4 + 8;
        let teid = gtp[4..8].try_into().ok()?;
        (is_first && has_ports).then_some(Tunnel { frame, teid, inner, l4 })
    }

    fn address(&self, at: usize) -> [u8; 4] {
        std::array::from_fn(|i| self.inner[at + i])
    }

    fn src(&self) -> [u8; 4] {
        self.address(12)
    }

    fn dst(&self) -> [u8; 4] {
        self.address(16)
    }

    /// True if the packet goes from a UE, which has a private address, to a public address.
    fn is_up(&self) -> bool {
        let is_private = |a: [u8; 4]| std::net::Ipv4Addr::from(a).is_private();
        is_private(self.src()) && !is_private(self.dst())
    }

    /// The inner packet with both ends exchanged, which keeps its checksums valid.
    fn turned(&self) -> Vec<u8> {
        let mut packet = self.inner.to_vec();
        packet[12..16].copy_from_slice(&self.dst());
        packet[16..20].copy_from_slice(&self.src());
        let l4 = self.l4;
        packet[l4..l4 + 2].copy_from_slice(&self.inner[l4 + 2..l4 + 4]);
        packet[l4 + 2..l4 + 4].copy_from_slice(&self.inner[l4..l4 + 2]);
        packet
    }
}

/// A capture whose UEs are known before it begins, with all their new connections offloaded: those that begin in it
/// leave for the edge without their tunnel and otherwise unchanged, answers of the edge return in the tunnel that the
/// capture has for the UE, and all other packets of the capture pass bit for bit.
pub fn offloads(packets: &[Arrival]) -> Ended {
    let mut world = World::with_service(("0.0.0.0", "0"), false);
    let tunnels: Vec<Option<Tunnel<'_>>> = packets.iter().map(|packet| Tunnel::read(&packet.bytes)).collect();
    let downs = || tunnels.iter().flatten().filter(|t| !t.is_up());
    let mut replies: BTreeMap<[u8; 4], Vec<u8>> = BTreeMap::new();
    for tunnel in tunnels.iter().flatten().filter(|t| t.is_up()) {
        let ue = tunnel.src();
        if replies.contains_key(&ue) {
            continue;
        }
        // A packet before the capture, to another destination.
        let mut outer = PacketBuilder::new().eth(eth(tunnel.frame, 6), eth(tunnel.frame, 0));
        outer = outer.ipv4(ip(tunnel.frame, 26), ip(tunnel.frame, 30)).udp(2152, 2152);
        let first = PacketBuilder::new().ipv4(ue, NODE).udp(9, 9);
        let first = outer.tunnel(&Gtpu::new(u32::from_be_bytes(tunnel.teid)), &first).build();
        let outputs = world.send(RAN, &first).outputs;
        assert_eq!((outputs.len(), echo(&outputs[0].bytes)), (2, Some(ue)), "{outputs:?}");
        assert_eq!(outputs[0].bytes[46..50], tunnel.teid, "an echo request in another tunnel");
        world.ended.made.push(outputs[0].bytes.clone());
        world.ended.echoes += 1;
        // The answer uses the tunnel of the capture's packets to this UE; without any, a tunnel of its own.
        let down = downs().find(|down| down.dst() == ue);
        let reply = PacketBuilder::new().ipv4(NODE, ue).icmp(0, 0, MARK, 1);
        let (like, teid) = match down {
            Some(down) => ((eth(down.frame, 6), eth(down.frame, 0), ip(down.frame, 26), ip(down.frame, 30)), down.teid),
            None => {
                let frame = tunnel.frame;
                ((eth(frame, 0), eth(frame, 6), ip(frame, 30), ip(frame, 26)), [0xfe, ue[1], ue[2], ue[3]])
            }
        };
        let reply = PacketBuilder::new()
            .eth(like.0, like.1)
            .ipv4(like.2, like.3)
            .udp(2152, 2152)
            .tunnel(&Gtpu::new(u32::from_be_bytes(teid)), &reply)
            .build();
        assert!(world.send(CORE, &reply).outputs.is_empty(), "the UE sees the reply");
        world.ended.learnt += 1;
        replies.insert(ue, reply);
    }
    world.ended.ues = replies.len();
    // By connection, the peer's address, if it is offloaded.
    let mut flows: BTreeMap<Connection, Option<[u8; 4]>> = BTreeMap::new();
    for (number, (packet, tunnel)) in packets.iter().zip(&tunnels).enumerate() {
        let up = tunnel.as_ref().filter(|t| t.is_up());
        let is_offloaded = up.is_some_and(|t| {
            let ports = t.inner[t.l4..t.l4 + 4].to_vec();
            let begins = t.inner[9] == 17 || t.inner.get(t.l4 + 13).is_some_and(|flags| flags & 0x12 == 2);
            let meant = *flows.entry((t.src(), ports, t.inner[9])).or_insert_with(|| begins.then(|| t.dst()));
            meant == Some(t.dst())
        });
        let (port, other) = if up.is_some() { (RAN, CORE) } else { (CORE, RAN) };
        let outputs = world.send(port, &packet.bytes).outputs;
        assert_eq!(outputs.len(), 1, "packet {number}: {outputs:?}");
        let (out, bytes) = (outputs[0].port, &outputs[0].bytes);
        let Some(tunnel) = up.filter(|_| is_offloaded) else {
            assert_eq!((out, bytes), (Port(other), &packet.bytes), "packet {number} has changed");
            world.ended.untouched += 1;
            continue;
        };
        let expected = [&EDGE_MAC[..], &OWN_MAC, &[8, 0], tunnel.inner].concat();
        assert_eq!((out, bytes), (Port(EDGE), &expected), "packet {number}");
        world.ended.to_edge += 1;
        world.ended.made.push(expected);
        // Answer of the edge.
        let turned = tunnel.turned();
        let outputs = world.send(EDGE, &[&OWN_MAC[..], &EDGE_MAC, &[8, 0], &turned].concat()).outputs;
        assert_eq!(outputs.len(), 1, "an answer to packet {number}: {outputs:?}");
        let (out, bytes, way) = (outputs[0].port, &outputs[0].bytes, &replies[&tunnel.src()]);
        assert_eq!((out, &bytes[..12]), (Port(RAN), &way[..12]), "an answer to packet {number}");
        assert_eq!(bytes[26..34], way[26..34], "an answer to packet {number} between other hosts");
        assert_eq!(bytes[46..50], way[46..50], "an answer to packet {number} in another tunnel");
        assert_eq!(bytes[INNER..], turned, "an answer to packet {number}");
        world.ended.from_edge += 1;
        world.ended.made.push(bytes.clone());
    }
    world.ended
}

fn eth(frame: &[u8], at: usize) -> [u8; 6] {
    std::array::from_fn(|i| frame[at + i])
}

fn ip(frame: &[u8], at: usize) -> [u8; 4] {
    std::array::from_fn(|i| frame[at + i])
}

/// Rebuilds each packet layer by layer with computed lengths, protocols and checksums (zero checksums excepted), and
/// compares.
const REBUILD: &str = r"
import sys
from scapy.all import rdpcap, Ether, IP, UDP, TCP, ICMP, Raw
from scapy.contrib.gtp import GTP_U_Header
count = 0
for number, given in enumerate(rdpcap(sys.argv[1])):
    whole = bytes(given)
    packet = Ether(whole)
    depth = 0
    while packet.getlayer(IP, depth + 1) is not None:
        depth += 1
        ip = packet.getlayer(IP, depth)
        del ip.len, ip.chksum
    for kind in (UDP, TCP, ICMP):
        n = 1
        while packet.getlayer(kind, n) is not None:
            layer = packet.getlayer(kind, n)
            if kind is UDP:
                del layer.len
            if not (kind is UDP and layer.chksum == 0):
                del layer.chksum
            n += 1
    if packet.haslayer(GTP_U_Header):
        del packet[GTP_U_Header].length
    if bytes(packet) != whole:
        sys.exit('frame %d:\n%s\nis not\n%s' % (number, whole.hex(), bytes(packet).hex()))
    count += 1
print(count)
";

/// True if the tools accept the frames that the function generated; prints `SKIP` where they are not installed.
pub fn judge(test: &str, frames: &[Vec<u8>]) {
    let scratch = Scratch::new();
    let path = scratch.path("made.pcap");
    let mut writer = CaptureWriter::create(&path).unwrap_or_else(|e| panic!("{e}"));
    for (number, frame) in frames.iter().enumerate() {
        writer.write(number as u64 * 1000, 1, frame.len() as u32, None, frame).unwrap_or_else(|e| panic!("{e}"));
    }
    writer.finish().unwrap_or_else(|e| panic!("{e}"));
    with_scapy(test, &path, frames.len());
    with_tshark(test, &path, frames.len());
}

fn with_scapy(test: &str, path: &Path, frames: usize) {
    let has_scapy = |python: &&str| {
        let import = Command::new(python).args(["-c", "import scapy.contrib.gtp"]).stderr(Stdio::null()).status();
        import.is_ok_and(|status| status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has_scapy) else {
        skip(test, "`scapy` is not installed");
        return;
    };
    let output = Command::new(python).args(["-c", REBUILD]).arg(path).output().unwrap_or_else(|e| panic!("{e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.trim() == frames.to_string(), "scapy: {out}{err}");
    eprintln!("scapy builds the same {frames} frames");
}

fn with_tshark(test: &str, path: &Path, frames: usize) {
    let checks = ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE"];
    let fields =
        ["ip.checksum.status", "tcp.checksum.status", "udp.checksum.status", "icmp.checksum.status", "_ws.malformed"];
    // Enable only the protocols that are present: random bytes match many protocols.
    let Ok(known) = Command::new("tshark").args(["-G", "protocols"]).stderr(Stdio::null()).output() else {
        skip(test, "`tshark` is not installed");
        return;
    };
    let known = String::from_utf8_lossy(&known.stdout);
    let made = ["frame", "eth", "ethertype", "ip", "udp", "tcp", "icmp", "gtp", "data", "_ws.malformed"];
    let others = known.lines().filter_map(|line| line.split('\t').nth(2)).filter(|name| !made.contains(name));
    let mut command = Command::new("tshark");
    command.arg("-n").args(others.flat_map(|name| ["--disable-protocol", name]));
    command.arg("-r").arg(path).args(["-T", "fields"]);
    command.args(checks.iter().flat_map(|check| ["-o", check])).args(fields.iter().flat_map(|field| ["-e", field]));
    let Ok(output) = command.stderr(Stdio::null()).output() else {
        skip(test, "`tshark` is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count(), frames, "tshark reads other frames");
    let mut good = 0;
    for (number, line) in text.lines().enumerate() {
        let columns: Vec<&str> = line.split('\t').collect();
        assert!(columns.get(4).is_none_or(|m| m.is_empty()), "tshark calls frame {number} malformed: {line}");
        for status in columns[..4].iter().flat_map(|column| column.split(',')).filter(|s| !s.is_empty()) {
            // 1 is good, 2 unchecked, 3 absent.
            assert!(["1", "Good", "3", "Not present", "2", "Unverified"].contains(&status), "frame {number}: {line}");
            good += usize::from(status == "1" || status == "Good");
        }
    }
    assert!(good >= frames, "tshark has checked too few checksums: {good}");
    eprintln!("tshark finds {good} checksums right in {frames} frames");
}
