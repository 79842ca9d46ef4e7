// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares dynamic NAT with a list of port owners.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_engine::{Choices, Outcome, Packet, Port, Verdict};
use flowloom_testkit::{PacketBuilder, Rng};

use super::engines;
use crate::common::shipped::function;

const SECOND_NS: u64 = 1_000_000_000;
const OUTSIDE: Port = Port(1);
const INSIDE: Port = Port(2);
const PUBLIC: [u8; 4] = [203, 0, 113, 2];

/// A flow as seen by its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Flow {
    host: [u8; 4],
    host_port: u16,
    server: [u8; 4],
    server_port: u16,
    tcp: bool,
}

impl Flow {
    fn random(rng: &mut Rng, hosts: usize, ports: usize) -> Flow {
        Flow {
            host: [10, 0, 0, 1 + rng.below(hosts) as u8],
            host_port: 4000 + rng.below(ports) as u16,
            server: [192, 0, 2, 1 + rng.below(2) as u8],
            server_port: 80,
            tcp: rng.chance(1, 2),
        }
    }

    fn frame(self, from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
        let packet = PacketBuilder::new().ipv4(from.0, to.0);
        let packet = if self.tcp { packet.tcp(from.1, to.1) } else { packet.udp(from.1, to.1) };
        packet.payload(payload).build()
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub packets: u64,
    /// Packets from inside that left.
    pub out: u64,
    /// Packets from inside whose assigned port another flow still held.
    pub refused: u64,
    /// Answers forwarded to the inside.
    pub answers: u64,
    /// Unsolicited packets from outside, which are dropped.
    pub unasked: u64,
    /// Ports that were assigned to a second flow after release.
    pub reused: u64,
    /// Maximum number of ports in use at a time.
    pub most_in_use: usize,
}

/// Options of a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// First port of the pool, which has 65536 - `first_port` ports.
    pub first_port: u16,
    pub hosts: usize,
    /// Number of source ports per host.
    pub ports: usize,
    /// Longest gap between two packets.
    pub gap_ns: u64,
    pub packets: u64,
}

const QUIET_NS: u64 = 10 * SECOND_NS;

fn nat(first_port: u16) -> Arc<Function> {
    function("dynamic_nat", &[("first_port", &first_port.to_string()), ("quiet", "10s")])
}

/// Runs NAT on every engine against a list of port owners and returns the counts.
///
/// # Panics
/// Engines disagree; a port is assigned to a flow while another one holds it; a packet leaves, or is forwarded to the
/// inside, other than the list says, or with a wrong checksum; a flow that had a port is assigned another one, or is
/// refused; or a context is left at the end.
pub fn run(test: &str, seed: u64, plan: Plan) -> Tally {
    let title = format!("seed {seed}, {plan:?}");
    let nat = nat(plan.first_port);
    let mut engines = engines(&nat, test);
    let mut rng = Rng::new(seed);
    let mut tally = Tally { packets: plan.packets, ..Tally::default() };
    // By port, its owner and the end of its lease.
    let mut held: BTreeMap<u16, (Flow, u64)> = BTreeMap::new();
    // By flow, the port of its last packet that passed, and the time of its last packet.
    let mut given: BTreeMap<Flow, (Option<u16>, u64)> = BTreeMap::new();
    let mut now_ns = seed;
    for number in 0..plan.packets {
        now_ns += rng.below(plan.gap_ns as usize) as u64 * u64::from(rng.chance(3, 4));
        if rng.chance(1, 500) {
            now_ns += QUIET_NS + rng.below(3) as u64 - 1;
        }
        if rng.chance(1, 200) {
            engines.iter_mut().for_each(|engine| engine.sweep(now_ns).unwrap());
        }
        held.retain(|_, (_, end_ns)| now_ns < *end_ns);
        given.retain(|_, (_, sent_ns)| now_ns < *sent_ns + QUIET_NS);
        let payload = rng.bytes(number as usize % 9);
        let end_ns = now_ns + QUIET_NS;
        let choices = Choices::seeded(now_ns, 0, number);
        let mut process = |bytes: &[u8], port: Port| -> Outcome {
            let packet = Packet { bytes, port };
            let outcomes: Vec<Outcome> =
                engines.iter_mut().map(|engine| engine.process(&packet, &choices).unwrap()).collect();
            assert!(outcomes.iter().all(|o| *o == outcomes[0]), "{title}: packet {number}: {outcomes:?}");
            outcomes[0].clone()
        };
        if rng.chance(1, 2) {
            let flow = match given.keys().nth(rng.below(given.len())) {
                Some(flow) if rng.chance(2, 3) => *flow,
                _ => Flow::random(&mut rng, plan.hosts, plan.ports),
            };
            let server = (flow.server, flow.server_port);
            let outcome = process(&flow.frame((flow.host, flow.host_port), server, &payload), INSIDE);
            let had = given.get(&flow).and_then(|(port, _)| *port);
            let got = outcome.outputs.first().map(|output| u16::from_be_bytes([output.bytes[34], output.bytes[35]]));
            match got {
                Some(port) => {
                    let expected = flow.frame((PUBLIC, port), server, &payload);
                    assert_eq!(
                        outcome,
                        Outcome::sent(Verdict::Redirect, OUTSIDE, expected),
                        "{title}: packet {number}"
                    );
                    assert!(port >= plan.first_port, "{title}: packet {number}: port {port}");
                    assert!(had.is_none_or(|had| had == port), "{title}: packet {number}: {had:?}, then {port}");
                    match held.insert(port, (flow, end_ns)) {
                        Some((other, _)) => assert!(
                            (other.host, other.host_port) == (flow.host, flow.host_port),
                            "{title}: packet {number}: port {port} of {other:?} went to {flow:?}"
                        ),
                        None => tally.reused += u64::from(tally.out >= 65536 - u64::from(plan.first_port)),
                    }
                    tally.out += 1;
                }
                None => {
                    assert_eq!(outcome, Outcome::without_output(Verdict::Drop), "{title}: packet {number}");
                    // A flow never loses its port, and gets one while all are free.
                    assert!(had.is_none() && !held.is_empty(), "{title}: packet {number}: {flow:?} had {had:?}");
                    tally.refused += 1;
                }
            }
            given.insert(flow, (got, now_ns));
        } else {
            // Most often to a port in use, sometimes to any.
            let (port, has) = match held.iter().nth(rng.below(held.len())) {
                Some((port, (flow, _))) if rng.chance(3, 4) => (*port, Some(*flow)),
                _ => {
                    let port = plan.first_port.saturating_sub(3).saturating_add(rng.below(40) as u16);
                    (port, held.get(&port).map(|(flow, _)| *flow))
                }
            };
            let flow = has.unwrap_or_else(|| Flow::random(&mut rng, plan.hosts, plan.ports));
            let server = (flow.server, flow.server_port);
            let outcome = process(&flow.frame(server, (PUBLIC, port), &payload), OUTSIDE);
            match has {
                Some(_) => {
                    let expected = flow.frame(server, (flow.host, flow.host_port), &payload);
                    assert_eq!(outcome, Outcome::sent(Verdict::Redirect, INSIDE, expected), "{title}: packet {number}");
                    held.insert(port, (flow, end_ns));
                    tally.answers += 1;
                }
                None => {
                    assert_eq!(outcome, Outcome::without_output(Verdict::Drop), "{title}: packet {number}");
                    tally.unasked += 1;
                }
            }
        }
        tally.most_in_use = tally.most_in_use.max(held.len());
    }
    // All ports are released.
    for engine in &mut engines {
        engine.sweep(now_ns + QUIET_NS).unwrap();
        let left = engine.snapshot().unwrap();
        for name in ["ports", "mappings"] {
            assert_eq!(left.maps[name].len(), 0, "{title}: {name} of {} at the end", engine.name());
        }
    }
    tally
}

/// Sends a new flow of one packet every `gap_ns`; returns the number of refused flows.
pub fn one_after_the_other(test: &str, first_port: u16, gap_ns: u64, flows: u32) -> u64 {
    let nat = nat(first_port);
    let mut engines = engines(&nat, test);
    let mut refused = 0;
    for i in 0..flows {
        let host = [10, 0, (i >> 14) as u8, (i >> 6) as u8];
        let frame = PacketBuilder::new().ipv4(host, [192, 0, 2, 1]).udp(4000 + (i & 63) as u16, 53).build();
        let packet = Packet { bytes: &frame, port: INSIDE };
        let now_ns = u64::from(i) * gap_ns;
        // Idle flows occupy the tables until they are swept.
        if now_ns / SECOND_NS != now_ns.saturating_sub(gap_ns) / SECOND_NS {
            engines.iter_mut().for_each(|engine| engine.sweep(now_ns).unwrap());
        }
        let choices = Choices::seeded(now_ns, 0, i.into());
        let verdicts: Vec<Verdict> =
            engines.iter_mut().map(|engine| engine.process(&packet, &choices).unwrap().verdict).collect();
        assert!(verdicts.iter().all(|v| *v == verdicts[0]), "flow {i}: {verdicts:?}");
        refused += u64::from(verdicts[0] != Verdict::Redirect);
    }
    refused
}
