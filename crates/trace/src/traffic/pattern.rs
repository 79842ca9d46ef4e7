// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Synthetic patterns: uniform, Zipf-distributed, single, round-robin and churning flows.

use flowloom_random::{Draw, SplitMix64, mix};

use super::frame::{ACK, FIN, Lengths, PSH, Packet, SYN, Transport};
use super::host::Host;
use super::rate::{Pace, Rate};
use super::zipf::Zipf;

/// Number of distinct destination hosts.
const SERVERS: u64 = 1000;
/// Number of distinct source addresses.
const SOURCES: u64 = 1 << 24;
const SERVICES: [u16; 4] = [443, 80, 8080, 5201];
const NS_PER_MINUTE: u128 = 60_000_000_000;
/// No flow; real flow numbers are smaller.
const NEVER: u64 = u64::MAX;

/// Selects the flow of the next packet.
#[derive(Debug, Clone)]
pub(super) enum Choice {
    Uniform,
    Zipf(Zipf),
    RoundRobin,
}

/// Parameters of a pattern.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) choice: Choice,
    /// Concurrent flows.
    pub(super) flows: u64,
    /// New flows per minute, each replacing the oldest.
    pub(super) new_per_minute: u64,
    pub(super) rate: Rate,
    pub(super) is_tcp: bool,
    /// Fraction of flows, from 0 to 1.
    pub(super) ipv6: f64,
    pub(super) lengths: Lengths,
}

pub(super) struct Pattern {
    shape: Shape,
    draw: SplitMix64,
    key: u64,
    pace: Pace,
    turn: u64,
    /// Number of replacement flows started.
    started: u64,
    /// TCP: per slot, the flow that sent last and its next sequence number.
    slots: Vec<(u64, u32)>,
}

impl Pattern {
    pub(super) fn new(shape: Shape, seed: u64) -> Pattern {
        let mut draw = SplitMix64::new(mix(seed));
        Pattern {
            key: draw.next_u64(),
            pace: Pace::new(shape.rate),
            draw,
            turn: 0,
            started: 0,
            slots: if shape.is_tcp { vec![(NEVER, 0); shape.flows as usize] } else { Vec::new() },
            shape,
        }
    }

    /// Returns the next packet and its time.
    pub(super) fn next(&mut self) -> (u64, Packet) {
        let now_ns = self.pace.now_ns();
        let packet = self.packet(now_ns);
        self.pace.step(u64::from(packet.len_bytes));
        (now_ns, packet)
    }

    fn packet(&mut self, now_ns: u64) -> Packet {
        let flows = self.shape.flows;
        // Flow n has slot n modulo the number of concurrent flows.
        if u128::from(now_ns) * u128::from(self.shape.new_per_minute) / NS_PER_MINUTE > u128::from(self.started) {
            let (place, oldest) = ((self.started % flows) as usize, self.started);
            if self.slots.get(place).is_some_and(|(slots, _)| *slots == oldest) {
                // The FIN of the old flow comes first, then the SYN of its successor.
                return self.end(place);
            }
            self.started += 1;
            return self.next_packet_of(place);
        }
        let place = match &self.shape.choice {
            Choice::Uniform => self.draw.below(flows),
            Choice::Zipf(zipf) => zipf.draw(&mut self.draw) - 1,
            Choice::RoundRobin => {
                let turn = self.turn;
                self.turn = (turn + 1) % flows;
                turn
            }
        };
        self.next_packet_of(place as usize)
    }

    /// The current flow of a slot.
    fn at(&self, place: usize) -> u64 {
        let (flows, place) = (self.shape.flows, place as u64);
        place + (flows + self.started - 1 - place) / flows * flows
    }

    /// The next packet of the flow in a slot: a SYN opens a TCP connection.
    fn next_packet_of(&mut self, place: usize) -> Packet {
        let number = self.at(place);
        let (flags, seq) = match self.slots.get_mut(place) {
            None => (0, 0),
            Some((slots, seq)) if *slots == number => (PSH | ACK, *seq),
            Some(slots) => {
                let seq = mix(self.key ^ number) as u32;
                *slots = (number, seq);
                (SYN, seq)
            }
        };
        self.finished(number, place, flags, seq)
    }

    /// The FIN of the flow in a slot.
    fn end(&mut self, place: usize) -> Packet {
        let (number, seq) = self.slots[place];
        let packet = self.finished(number, place, FIN | ACK, seq);
        self.slots[place].0 = NEVER;
        packet
    }

    fn finished(&mut self, number: u64, place: usize, flags: u8, seq: u32) -> Packet {
        let bits = mix(self.key ^ number ^ 0x5eed);
        let is_ipv6 = ((bits >> 11) as f64) < self.shape.ipv6 * (1u64 << 53) as f64;
        let src = Host::new((number % SOURCES) as u32, false, is_ipv6);
        let dst = Host::new((number % SERVERS) as u32, true, is_ipv6);
        let sport = 1024 + (number / SOURCES % 64_512) as u16;
        let dport = SERVICES[(bits & 3) as usize];
        let transport = if self.shape.is_tcp {
            // Only one direction is generated, so the acknowledgement number is constant.
            let ack = if flags & ACK == 0 { 0 } else { (bits >> 32) as u32 };
            Transport::Tcp { sport, dport, seq, ack, flags, timestamps: None }
        } else {
            Transport::Udp { sport, dport }
        };
        let desired_bytes = (flags & (SYN | FIN) == 0).then_some(0);
        let packet = self.shape.lengths.packet([src, dst], transport, desired_bytes);
        if let Some((_, seq)) = self.slots.get_mut(place) {
            *seq = seq.wrapping_add(packet.payload_bytes + u32::from(flags & (SYN | FIN) != 0));
        }
        packet
    }
}
