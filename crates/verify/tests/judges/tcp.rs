// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP connections as seen by a tracker between the two hosts: with or without window scaling, loss on either side of
//! it, reordered segments, selective acknowledgements, both ways of closing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowloom_engine::Port;
use flowloom_testkit::{PacketBuilder, Rng};
use flowloom_verify::Arrival;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
/// Segment size in bytes.
const SEGMENT: u32 = 1448;

/// One of two hosts.
#[derive(Debug, Clone)]
struct Side {
    address: IpAddr,
    port: u16,
    /// Its initial sequence number, and the next one that it sends.
    first: u32,
    next: u32,
    /// Acknowledged by the peer, and right edge of the peer's window.
    acknowledged: u32,
    edge: u32,
    /// Next expected sequence number, and the segments received out of order.
    expects: u32,
    early: Vec<(u32, u32)>,
    room: u32,
    scale: Option<u8>,
}

/// State of a connection under generation.
struct Connection<'a> {
    rng: &'a mut Rng,
    sides: [Side; 2],
    scaled: bool,
    time_ns: u64,
    packets: Vec<Arrival>,
}

/// Packets of `count` connections between hosts at ports 1 and 2, merged by time.
pub fn connections(rng: &mut Rng, count: u16) -> Vec<Arrival> {
    let mut all = Vec::new();
    for number in 0..count {
        let start_ns = 1_000_000_000 + 10_000_000 * u64::from(number);
        all.extend(connection(rng, number, start_ns));
    }
    all.sort_by_key(|packet| packet.time_ns);
    all
}

fn connection(rng: &mut Rng, number: u16, start_ns: u64) -> Vec<Arrival> {
    let is_v6 = rng.chance(1, 4);
    let address = |host: u8| -> IpAddr {
        if is_v6 {
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)).into()
        } else {
            Ipv4Addr::new(10, 0, 0, host).into()
        }
    };
    let mut side = |host: u8, port: u16| {
        let first = if rng.chance(1, 4) { u32::MAX - rng.below(3000) as u32 } else { rng.next_u64() as u32 };
        let scale = rng.chance(3, 4).then(|| rng.below(9) as u8);
        let most = if scale.is_some() { 400_000 } else { 65_000 };
        let room = 3 * SEGMENT + rng.below(most - 3 * SEGMENT as usize) as u32;
        Side {
            address: address(host),
            port,
            first,
            next: first,
            acknowledged: first,
            edge: first,
            expects: 0,
            early: Vec::new(),
            room,
            scale,
        }
    };
    let sides = [side(1, 20_000 + number), side(2, 80)];
    let scaled = sides[0].scale.is_some() && sides[1].scale.is_some();
    let mut connection = Connection { rng, sides, scaled, time_ns: start_ns, packets: Vec::new() };
    connection.run();
    connection.packets
}

impl Connection<'_> {
    fn run(&mut self) {
        self.handshake();
        for _ in 0..1 + self.rng.below(4) {
            let sender = self.rng.below(2);
            let most = if self.rng.chance(1, 3) { 600_000 } else { 9000 };
            let bytes = 1 + self.rng.below(most) as u32;
            self.transfer(sender, bytes);
        }
        match self.rng.below(4) {
            0 => self.reset(),
            1 => self.end_together(),
            _ => self.end(),
        }
    }

    /// The advertised window of a side, and its scaled value in bytes.
    fn window(&self, side: usize, in_syn: bool) -> (u16, u32) {
        let scale = if self.scaled && !in_syn { u32::from(self.sides[side].scale.unwrap_or(0)) } else { 0 };
        let told = (self.sides[side].room >> scale).min(65_535);
        (told as u16, told << scale)
    }

    /// A segment that passes the tracker.
    fn segment(&mut self, from: usize, seq: u32, flags: u8, payload_bytes: u32, options: &[u8]) {
        self.time_ns += 5_000 + self.rng.below(40_000) as u64;
        let (sender, receiver) = (&self.sides[from], &self.sides[1 - from]);
        let ack = if flags & ACK != 0 { sender.expects } else { 0 };
        let (window, _) = self.window(from, flags & SYN != 0);
        let builder = PacketBuilder::new()
            .ip(sender.address, receiver.address)
            .tcp(sender.port, receiver.port)
            .tcp_seq(seq, ack)
            .tcp_flags(flags)
            .tcp_window(window, 0)
            .tcp_options(options)
            .payload(&vec![0; payload_bytes as usize]);
        self.packets.push(Arrival { time_ns: self.time_ns, port: Port(1 + from as u32), bytes: builder.build() });
    }

    fn syn_options(&self, side: usize) -> Vec<u8> {
        let mut options = vec![2, 4, 5, 0xa8, 4, 2, 1, 1];
        if let Some(scale) = self.sides[side].scale {
            options.extend([1, 3, 3, scale]);
        }
        options
    }

    fn handshake(&mut self) {
        let options = [self.syn_options(0), self.syn_options(1)];
        for _ in 0..1 + self.rng.below(2) {
            self.segment(0, self.sides[0].first, SYN, 0, &options[0]);
        }
        self.sides[1].expects = self.sides[0].first.wrapping_add(1);
        // The peer offers window scaling only if this side does.
        let options = if self.sides[0].scale.is_some() { options[1].clone() } else { options[1][..8].to_vec() };
        for _ in 0..1 + self.rng.below(2) {
            self.segment(1, self.sides[1].first, SYN | ACK, 0, &options);
        }
        self.sides[0].expects = self.sides[1].first.wrapping_add(1);
        for side in 0..2 {
            let (_, room) = self.window(1 - side, true);
            let one = &mut self.sides[side];
            one.next = one.first.wrapping_add(1);
            one.acknowledged = one.next;
            one.edge = one.next.wrapping_add(room);
        }
        self.segment(0, self.sides[0].next, ACK, 0, &[]);
        let (_, room) = self.window(0, false);
        self.sides[1].edge = self.sides[1].acknowledged.wrapping_add(room);
    }

    /// Sends `bytes` bytes and retransmits lost segments until all are acknowledged.
    fn transfer(&mut self, from: usize, bytes: u32) {
        let end = self.sides[from].next.wrapping_add(bytes);
        let mut at = self.sides[from].next;
        while self.sides[from].acknowledged != end {
            // A burst, with some segments reordered and some lost before or after the tracker.
            let mut burst = Vec::new();
            for _ in 0..1 + self.rng.below(24) {
                let room = self.sides[from].edge.wrapping_sub(at);
                let left = end.wrapping_sub(at).min(SEGMENT).min(room);
                if left == 0 || room > 1 << 30 {
                    break;
                }
                burst.push((at, left));
                at = at.wrapping_add(left);
            }
            for i in 1..burst.len() {
                if self.rng.chance(1, 10) {
                    burst.swap(i - 1, i);
                }
            }
            for (seq, len) in burst {
                if self.rng.chance(1, 40) {
                    continue;
                }
                self.segment(from, seq, ACK | PSH, len, &[]);
                let after = seq.wrapping_add(len);
                if after.wrapping_sub(self.sides[from].next) < 1 << 30 {
                    self.sides[from].next = after;
                }
                if self.rng.chance(39, 40) {
                    self.receive(1 - from, seq, len);
                    self.acknowledge(1 - from);
                }
            }
            // Retransmission starts at the first unacknowledged byte.
            if self.sides[from].acknowledged != at && (at == end || self.rng.chance(1, 4)) || self.stuck(from, at) {
                at = self.sides[from].acknowledged;
                self.time_ns += 50_000_000;
            }
        }
        self.sides[from].next = end;
    }

    fn stuck(&self, from: usize, at: u32) -> bool {
        self.sides[from].edge == at
    }

    fn receive(&mut self, side: usize, seq: u32, len: u32) {
        let one = &mut self.sides[side];
        one.early.push((seq, seq.wrapping_add(len)));
        while let Some(i) = one.early.iter().position(|&(start, end)| {
            one.expects.wrapping_sub(start) < 1 << 30 && end.wrapping_sub(one.expects).wrapping_sub(1) < 1 << 30
        }) {
            one.expects = one.early.swap_remove(i).1;
        }
        let expects = one.expects;
        one.early.retain(|&(_, end)| end.wrapping_sub(expects).wrapping_sub(1) < 1 << 30);
        one.room = (one.room + SEGMENT).saturating_sub(self.rng.below(3000) as u32).max(4000);
    }

    fn acknowledge(&mut self, side: usize) {
        let mut options = Vec::new();
        if let Some(&(start, end)) = self.sides[side].early.last() {
            options = vec![1, 1, 5, 10];
            options.extend(start.to_be_bytes());
            options.extend(end.to_be_bytes());
        }
        self.segment(side, self.sides[side].next, ACK, 0, &options);
        if self.rng.chance(19, 20) {
            let (_, room) = self.window(side, false);
            let expects = self.sides[side].expects;
            let sender = &mut self.sides[1 - side];
            if expects.wrapping_sub(sender.acknowledged) < 1 << 30 {
                sender.acknowledged = expects;
                let edge = expects.wrapping_add(room);
                if edge.wrapping_sub(sender.edge) < 1 << 30 {
                    sender.edge = edge;
                }
            }
        }
    }

    fn fin(&mut self, from: usize) {
        self.segment(from, self.sides[from].next, FIN | ACK, 0, &[]);
    }

    fn ack(&mut self, from: usize) {
        self.segment(from, self.sides[from].next, ACK, 0, &[]);
    }

    fn end(&mut self) {
        let first = self.rng.below(2);
        for _ in 0..1 + self.rng.below(2) {
            self.fin(first);
        }
        self.sides[first].next = self.sides[first].next.wrapping_add(1);
        self.sides[1 - first].expects = self.sides[first].next;
        if self.rng.chance(1, 2) {
            self.ack(1 - first);
            if self.rng.chance(1, 2) {
                self.transfer(1 - first, 3000);
            }
        }
        for _ in 0..1 + self.rng.below(2) {
            self.fin(1 - first);
        }
        self.sides[1 - first].next = self.sides[1 - first].next.wrapping_add(1);
        self.sides[first].expects = self.sides[1 - first].next;
        self.ack(first);
    }

    fn end_together(&mut self) {
        self.fin(0);
        self.fin(1);
        for side in 0..2 {
            self.sides[side].next = self.sides[side].next.wrapping_add(1);
        }
        for side in 0..2 {
            self.sides[side].expects = self.sides[1 - side].next;
            self.ack(side);
        }
    }

    fn reset(&mut self) {
        let from = self.rng.below(2);
        let flags = if self.rng.chance(1, 2) { RST | ACK } else { RST };
        self.segment(from, self.sides[from].next, flags, 0, &[]);
    }
}
