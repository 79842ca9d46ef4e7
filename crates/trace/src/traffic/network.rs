// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network traffic: long-lived flows, short conversations, bursts.
//!
//! **Goal.** Any 10 s show the profile's number of sources, pairs and 5-tuples; no millisecond has more new ones than
//! the profile's maximum; the mean length is the profile's.
//!
//! - A fraction of sources, pairs and flows is long-lived ([`Population`]). Each of these flows sends at least every
//!   [`KEEPALIVE_NS`]; its other packets are drawn by popularity. A connection lasts [`LONG_LIVED_NS`] on average, then
//!   another connection of the same pair replaces it.
//! - The rest are conversations that last a fraction of a second. [`Credit`] fixes the number of new sources, pairs and
//!   5-tuples per [`BLOCK_NS`]; their start times are random. A new source brings a new pair and flow, a new pair a new
//!   flow.
//! - Every few seconds a burst of probes fills a millisecond to the profile's maximum. The [`Governor`] enforces this
//!   limit by delaying packets, also in the first millisecond, in which every flow is new.
//! - [`Sizes`] maintains the length distribution.
//!
//! Counts therefore hold by construction; only the order and times of packets are random.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::conversation::{Conversation, Endpoint, NONE, View};
use super::frame::{ACK, FIN, Lengths, Packet, SYN, Transport};
use super::governor::{Credit, Governor};
use super::host::Host;
use super::population::{ConnectionFactory, Flow, Kind, Phase, Population, flow};
use super::profile::Model;
use super::rate::WIRE_OVERHEAD_BYTES;
use super::sizes::{Class, Sizes};
use flowloom_random::{Draw, SplitMix64, mix};

const NS_PER_S: f64 = 1e9;
/// Maximum gap between packets of a long-lived flow.
const KEEPALIVE_NS: u64 = 4_000_000_000;
/// Mean lifetime of a long-lived connection.
const LONG_LIVED_NS: u64 = 60_000_000_000;
/// Block length. The number of conversations that start per block is fixed.
const BLOCK_NS: u64 = 50_000_000;
/// Time of the first burst, and the range of gaps between bursts.
const FIRST_BURST_NS: u64 = 30_000_000;
const BURST_GAP_NS: (u64, u64) = (2_500_000_000, 4_500_000_000);
/// Length of a burst: shorter than the millisecond in which new flows are counted.
const BURST_NS: u64 = 800_000;
/// Approximate length of a conversation in seconds.
const CONVERSATION_S: f64 = 0.1;
/// Minimum delay of a refused packet.
const WAIT_NS: u64 = 50_000;
/// Maximum number of redraws.
const TRIES: usize = 12;
/// Maximum fraction of packets for conversations and keep-alives of long-lived flows.
const MAX_OVERHEAD_FRACTION: f64 = 0.7;
/// Approximate number of packets per conversation flow; a probe has one.
const PACKETS_PER_FLOW: f64 = 5.0;
/// Tag of long-lived connections among event numbers.
const IS_LONG_LIVED: u32 = 1 << 31;

/// A model scaled to a number of flows, split into long-lived and new flows.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    long_lived: [u64; 3],
    new_per_second: [f64; 3],
    new_per_ms: [usize; 3],
    /// Packets per second for conversations and keep-alives.
    pub(super) busy_packets_per_second: f64,
}

impl Scale {
    pub(super) fn new(model: &Model, flows: f64) -> Scale {
        let scale = flows / model.active[2];
        let active = model.active.map(|count| count * scale);
        let long_lived = active.map(|count| (count * model.long_lived).round().max(1.0));
        // Some long-lived flows end within 10 s and are replaced.
        let renewed = long_lived[2] * 10e9 / LONG_LIVED_NS as f64;
        // A window may contain one burst more than average.
        let bursts = model.new_per_ms.map(|count| count * scale / 2.0);
        let coming = [0, 1, 2].map(|key| active[key] - long_lived[key] - bursts[key]);
        let coming = [coming[0], coming[1], coming[2] - renewed];
        // A window shows flows that start in it and flows still running at its start; the trace starts without the
        // latter.
        let new_per_second = coming.map(|count| count / (10.0 + CONVERSATION_S / 2.0));
        let one_way_pairs = (new_per_second[1] - new_per_second[0] * (1.0 + model.bidirectional)).max(0.0);
        let probes = one_way_pairs * model.probe_fraction;
        let kept_alive = long_lived[2] * NS_PER_S / KEEPALIVE_NS as f64;
        Scale {
            long_lived: long_lived.map(|count| count as u64),
            new_per_second,
            new_per_ms: model.new_per_ms.map(|count| (count * scale).round().max(1.0) as usize),
            busy_packets_per_second: (new_per_second[2] - probes) * PACKETS_PER_FLOW + probes + kept_alive,
        }
    }

    /// Maximum number of flows that the model's packet rate supports.
    pub(super) fn max_flows(model: &Model) -> u64 {
        let busy = Scale::new(model, model.active[2]).busy_packets_per_second;
        (model.active[2] * MAX_OVERHEAD_FRACTION * model.packets_per_second / busy) as u64
    }
}

/// Generates the packets of a network in time order.
pub(super) struct Network {
    model: Model,
    lengths: Lengths,
    draw: SplitMix64,
    sizes: Sizes,
    population: Population,
    connection_factory: ConnectionFactory,
    governor: Governor,
    credit: Credit,
    /// Fraction of new sources with both directions in the trace.
    both_ways: f64,
    conversations: Vec<Conversation>,
    free: Vec<u32>,
    /// Timed events: conversations and long-lived connections.
    events: BinaryHeap<Reverse<(u64, u32)>>,
    /// Connections with unacknowledged data.
    ready: VecDeque<u32>,
    next_number: u32,
    /// Time of the next packet by the rate, and time at which the link is free.
    due_ns: f64,
    free_ns: u64,
    block_ns: u64,
    burst: Burst,
    burst_gap_ns: u64,
    /// Cursor and time of the next keep-alive.
    cursor: usize,
    keepalive_ns: u64,
    last_large: Option<Flow>,
    /// The last flow that carried payload.
    last: Option<Flow>,
}

/// Start of the current or next burst, and time of its next packet.
#[derive(Debug, Clone, Copy)]
struct Burst {
    begins_ns: u64,
    next_ns: u64,
}

impl Network {
    pub(super) fn new(model: Model, scale: &Scale, lengths: Lengths, seed: u64) -> Network {
        let mut draw = SplitMix64::new(mix(seed));
        let mut connection_factory = ConnectionFactory::new(model.udp, &mut draw);
        let population = Population::new(&model, scale.long_lived, &mut connection_factory, &mut draw);
        let [sources, pairs, _] = scale.new_per_second;
        let next_number = population.residents.len() as u32 + 1;
        let first_credit = [draw.unit(), draw.unit(), draw.unit()];
        Network {
            lengths,
            sizes: Sizes::new(model.small, model.large, model.full, model.mean_len_bytes),
            governor: Governor::new(scale.new_per_ms),
            credit: Credit::new(scale.new_per_second, first_credit),
            both_ways: if sources > 0.0 { model.bidirectional.min(pairs / sources - 1.0).max(0.0) } else { 0.0 },
            population,
            connection_factory,
            model,
            draw,
            conversations: Vec::new(),
            free: Vec::new(),
            events: BinaryHeap::new(),
            ready: VecDeque::new(),
            next_number,
            due_ns: 0.0,
            free_ns: 0,
            block_ns: 0,
            burst: Burst { begins_ns: FIRST_BURST_NS, next_ns: FIRST_BURST_NS },
            burst_gap_ns: BURST_NS * 4 / 5 / (scale.new_per_ms[2] as u64 + 1),
            cursor: 0,
            keepalive_ns: 0,
            last_large: None,
            last: None,
        }
    }

    /// Returns the next packet and its time.
    pub(super) fn next(&mut self) -> (u64, Packet) {
        loop {
            let is_burst = self.burst.next_ns as f64 <= self.due_ns;
            let wanted_ns = if is_burst { self.burst.next_ns } else { self.due_ns as u64 };
            let now_ns = wanted_ns.max(self.free_ns);
            while self.block_ns <= now_ns {
                self.begin_block();
            }
            let packet = if is_burst {
                self.burst_packet(now_ns)
            } else {
                self.due_ns += self.draw.exponential() * NS_PER_S / self.model.packets_per_second;
                self.regular_packet(now_ns)
            };
            if let Some(packet) = packet {
                let wire_bits = (u64::from(packet.len_bytes) + WIRE_OVERHEAD_BYTES) * 8;
                self.free_ns = now_ns + (wire_bits as f64 * NS_PER_S / self.model.link_bits_per_second).ceil() as u64;
                self.sizes.count(packet.len_bytes);
                return (now_ns, packet);
            }
        }
    }

    fn regular_packet(&mut self, now_ns: u64) -> Option<Packet> {
        while let Some(&Reverse((at_ns, event))) = self.events.peek() {
            if at_ns > now_ns {
                break;
            }
            self.events.pop();
            let packet = if event & IS_LONG_LIVED == 0 {
                self.advance_conversation(event as usize, now_ns)
            } else {
                self.advance_handshake((event & !IS_LONG_LIVED) as usize, now_ns)
            };
            if packet.is_some() {
                return packet;
            }
            // The packet would exceed the limit of new flows.
            let wait_ns = WAIT_NS + self.draw.below(WAIT_NS);
            self.events.push(Reverse((now_ns + wait_ns, event)));
        }
        if self.keepalive_ns <= now_ns
            && let Some(packet) = self.keepalive(now_ns)
        {
            return Some(packet);
        }
        let class = self.sizes.class(&mut self.draw);
        for _ in 0..TRIES {
            let flow = self.pick(class)?;
            if let Some(packet) = self.send_data(flow, class, now_ns) {
                return Some(packet);
            }
        }
        // A flow that sent payload is not new, so it is admitted.
        let flow = self.last?;
        self.send_data(flow, class, now_ns)
    }

    /// Picks a flow that can send a packet of this class.
    fn pick(&mut self, class: Class) -> Option<Flow> {
        let Network { population, draw, .. } = self;
        let found = match class {
            Class::Large => match self.last_large {
                Some(flow) if draw.chance(self.model.burst_continuation) => Some(flow),
                _ => population.large.draw(draw),
            },
            Class::Middle => population.talk.draw(draw),
            Class::Small => {
                let shown = draw.chance(population.shown_acks);
                let ready = if shown { self.ready.pop_front() } else { None };
                match ready {
                    Some(connection) => {
                        let connection = connection as usize;
                        population.connections[connection].is_ready = false;
                        let from = usize::from(population.connections[connection].kind == Kind::Bulk(0));
                        Some(flow(connection, from))
                    }
                    None => population.acks.draw(draw).or_else(|| population.talk.draw(draw)),
                }
            }
        };
        let Network { population, draw, .. } = self;
        let found = found.or_else(|| population.talk.draw(draw)).or_else(|| population.large.draw(draw));
        found.or_else(|| population.flows.first().copied())
    }

    /// A steady-state packet of a long-lived flow; `None` if the connection is not open or the flow is not admitted.
    fn send_data(&mut self, flow: Flow, class: Class, now_ns: u64) -> Option<Packet> {
        let (index, from) = ((flow >> 1) as usize, (flow & 1) as usize);
        if self.population.connections[index].phase != Phase::Open || !self.admit(index, from, now_ns) {
            return None;
        }
        let desired_bytes = self.sizes.draw(class, &mut self.draw);
        let rtt_ns = self.model.rtt_ns.1;
        let connection = &mut self.population.connections[index];
        let (transport, desired_bytes) = connection.steady_state_packet(from, desired_bytes, now_ns, rtt_ns);
        if matches!(connection.kind, Kind::Bulk(data) if usize::from(data) == from) {
            self.last_large = Some(flow);
            if connection.is_bidirectional && !connection.wire.is_udp && !connection.is_ready {
                connection.is_ready = true;
                self.ready.push_back(index as u32);
            }
        }
        if desired_bytes.is_some() {
            self.last = Some(flow);
        }
        Some(self.long_lived_packet(index, from, transport, desired_bytes))
    }

    fn long_lived_packet(
        &mut self,
        index: usize,
        from: usize,
        transport: Transport,
        desired_bytes: Option<u32>,
    ) -> Packet {
        let connection = &mut self.population.connections[index];
        let ends = [connection.ends[from], connection.ends[1 - from]];
        let packet = self.lengths.packet(ends, transport, desired_bytes);
        if let Transport::Tcp { flags, .. } = transport {
            let covered = packet.payload_bytes + u32::from(flags & (SYN | FIN) != 0);
            connection.wire.seq[from] = connection.wire.seq[from].wrapping_add(covered);
        }
        packet
    }

    /// True if a long-lived flow may send now. Accounts for what is new about it.
    fn admit(&mut self, index: usize, from: usize, now_ns: u64) -> bool {
        let connection = &self.population.connections[index];
        if connection.is_seen[from] {
            return true;
        }
        let pair = &self.population.pairs[connection.pair as usize];
        let source = pair.ends[from] as usize;
        let is_flow = connection.kind != Kind::Echo;
        let novelty = [!self.population.residents[source].is_seen, !pair.is_seen[from], is_flow];
        if !self.governor.admit(novelty, now_ns) {
            return false;
        }
        let pair = connection.pair as usize;
        self.population.residents[source].is_seen = true;
        self.population.pairs[pair].is_seen[from] = true;
        self.population.connections[index].is_seen[from] = true;
        true
    }

    /// Sends a keep-alive of the next flow, round-robin, and occasionally ends its connection.
    fn keepalive(&mut self, now_ns: u64) -> Option<Packet> {
        let flow = *self.population.flows.get(self.cursor)?;
        let (index, from) = ((flow >> 1) as usize, (flow & 1) as usize);
        let connection = self.population.connections[index];
        let is_over = connection.kind != Kind::Echo
            && from == 0
            && connection.phase == Phase::Open
            && self.draw.chance(KEEPALIVE_NS as f64 / LONG_LIVED_NS as f64);
        let packet = if connection.phase != Phase::Open {
            // An opening or closing connection sends soon.
            None
        } else if is_over && !connection.wire.is_udp {
            // If the limit of new flows is reached, the cursor stays.
            Some(self.close(index, now_ns)?)
        } else {
            if is_over {
                self.reopen(index);
            }
            let class = match connection.kind {
                Kind::Bulk(data) if usize::from(data) == from => Class::Large,
                Kind::Bulk(_) | Kind::Acks => Class::Small,
                Kind::Interactive | Kind::Echo => Class::Middle,
            };
            Some(self.send_data(flow, class, now_ns)?)
        };
        self.cursor = (self.cursor + 1) % self.population.flows.len();
        self.keepalive_ns += KEEPALIVE_NS / self.population.flows.len() as u64;
        packet
    }

    /// Ends a long-lived TCP connection; a successor follows.
    fn close(&mut self, index: usize, now_ns: u64) -> Option<Packet> {
        if !self.admit(index, 0, now_ns) {
            return None;
        }
        let is_bidirectional = self.population.connections[index].is_bidirectional;
        let phase = if is_bidirectional { Phase::FinAck } else { Phase::Closed };
        Some(self.step(index, 0, FIN | ACK, phase, now_ns))
    }

    /// Sends a control packet that moves a connection to `phase`, and schedules the next step.
    fn step(&mut self, index: usize, from: usize, flags: u8, phase: Phase, now_ns: u64) -> Packet {
        let rtt_ns = self.model.rtt_ns.1;
        let transport = self.population.connections[index].wire.segment(from, flags, now_ns, rtt_ns);
        self.population.connections[index].phase = phase;
        if phase != Phase::Open {
            let wait_ns = self.model.rtt_ns.0 + self.draw.below(rtt_ns);
            self.events.push(Reverse((now_ns + wait_ns, index as u32 | IS_LONG_LIVED)));
        }
        self.long_lived_packet(index, from, transport, None)
    }

    /// Sends the next packet of an opening or closing connection; `None` if the limit of new flows is reached.
    fn advance_handshake(&mut self, index: usize, now_ns: u64) -> Option<Packet> {
        if self.population.connections[index].phase == Phase::Closed {
            self.reopen(index);
        }
        let connection = self.population.connections[index];
        let (from, flags, phase) = match (connection.phase, connection.is_bidirectional) {
            (Phase::FinAck, _) => (1, FIN | ACK, Phase::LastAck),
            (Phase::LastAck, _) => (0, ACK, Phase::Closed),
            (Phase::Syn, true) => (0, SYN, Phase::SynAck),
            (Phase::SynAck, _) => (1, SYN | ACK, Phase::Ack),
            (Phase::Syn, false) if connection.client() == 0 => (0, SYN, Phase::Open),
            (Phase::Syn, false) => (0, SYN | ACK, Phase::Open),
            (Phase::Ack | Phase::Open | Phase::Closed, _) => (0, ACK, Phase::Open),
        };
        if !self.admit(index, from, now_ns) {
            return None;
        }
        Some(self.step(index, from, flags, phase, now_ns))
    }

    /// Replaces a closed connection by a new one.
    fn reopen(&mut self, index: usize) {
        let Network { population, connection_factory, draw, .. } = self;
        let connection = &mut population.connections[index];
        let is_udp = connection.wire.is_udp;
        let client = connection.client();
        let service = connection.wire.ports[1 - client];
        connection.wire = connection_factory.open(client, false, draw);
        connection.wire.ports[1 - client] = service;
        connection.wire.is_udp = is_udp;
        connection.is_seen = [false; 2];
        connection.phase = if is_udp { Phase::Open } else { Phase::Syn };
    }

    /// Draws the conversations that start in the next block, and their start times.
    fn begin_block(&mut self) {
        let begins_ns = self.block_ns;
        self.block_ns += BLOCK_NS;
        self.credit.earn(BLOCK_NS as f64 / NS_PER_S);
        loop {
            let both = self.draw.chance(self.both_ways);
            let also_both = self.draw.chance(self.model.bidirectional);
            let (cost, conversation) = if self.credit.covers([1, 1, 1]) {
                if both { ([1, 2, 2], self.new_source(true)) } else { ([1, 1, 1], self.new_source(false)) }
            } else if self.credit.covers([0, 1, 1]) {
                ([0, 1, 1], self.scan())
            } else if self.credit.covers([0, 0, 2]) && also_both && !self.population.bidirectional_pairs.is_empty() {
                ([0, 0, 2], self.new_connection(true))
            } else if self.credit.covers([0, 0, 1]) {
                ([0, 0, 1], self.new_connection(false))
            } else {
                return;
            };
            self.credit.pay(cost);
            let at_ns = begins_ns + self.draw.below(BLOCK_NS);
            let place = match self.free.pop() {
                Some(place) => place,
                None => {
                    self.conversations.push(conversation);
                    self.conversations.len() as u32 - 1
                }
            };
            self.conversations[place as usize] = conversation;
            self.events.push(Reverse((at_ns, place)));
        }
    }

    /// The next packet of a conversation; `None` if the limit of new flows is reached.
    fn advance_conversation(&mut self, place: usize, now_ns: u64) -> Option<Packet> {
        let mut conversation = self.conversations[place];
        let from = conversation.sender()?;
        let packet = self.conversation_packet(&mut conversation, from, now_ns)?;
        match conversation.advance(packet.payload_bytes, &mut self.draw) {
            Some(wait_ns) => self.events.push(Reverse((now_ns + wait_ns, place as u32))),
            None => self.free.push(place as u32),
        }
        self.conversations[place] = conversation;
        Some(packet)
    }

    /// Builds the next packet of a conversation, in this direction; `None` if the limit of new flows is reached.
    fn conversation_packet(&mut self, conversation: &mut Conversation, from: usize, now_ns: u64) -> Option<Packet> {
        let ends = [conversation.ends[from], conversation.ends[1 - from]];
        if !conversation.is_seen[from] {
            let mut source = self.population.residents.get_mut(ends[0].resident as usize).map(|host| &mut host.is_seen);
            let mut pair =
                self.population.pairs.get_mut(conversation.pair as usize).map(|pair| &mut pair.is_seen[from]);
            let is_new = |is_seen: &Option<&mut bool>| is_seen.as_ref().is_none_or(|is_seen| !**is_seen);
            if !self.governor.admit([is_new(&source), is_new(&pair), true], now_ns) {
                return None;
            }
            source.iter_mut().chain(&mut pair).for_each(|is_seen| **is_seen = true);
            conversation.is_seen[from] = true;
        }
        let (transport, desired_bytes) = conversation.packet(now_ns, &self.sizes, &mut self.draw);
        Some(self.lengths.packet(ends.map(|end| end.host), transport, desired_bytes))
    }

    /// A new host on the other side of the network than `other`.
    fn new_host(&mut self, other: Host) -> Endpoint {
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        Endpoint { host: Host::new(number, !other.is_outside(), other.is_ipv6()), resident: NONE }
    }

    fn resident(&self, place: u32) -> Endpoint {
        Endpoint { host: self.population.residents[place as usize].host, resident: place }
    }

    fn rtt_ns(&mut self) -> u64 {
        let (least, most) = self.model.rtt_ns;
        least + self.draw.below(most - least)
    }

    fn conversation(&mut self, ends: [Endpoint; 2], pair: u32, view: View) -> Conversation {
        let client = usize::from(view == View::ServerOnly);
        let wire = self.connection_factory.open(client, true, &mut self.draw);
        let rtt_ns = self.rtt_ns();
        Conversation::new(ends, pair, wire, view, rtt_ns, &mut self.draw)
    }

    fn unidirectional_view(&mut self) -> View {
        if self.draw.chance(0.5) { View::ClientOnly } else { View::ServerOnly }
    }

    /// A new source and a long-lived host. If both directions are in the trace, either may be the client.
    fn new_source(&mut self, both: bool) -> Conversation {
        let pair = self.population.pairs[self.draw.index(self.population.pairs.len())];
        if !both {
            // The other end need not be a source.
            let known = self.resident(pair.ends[1]);
            let ends = [self.new_host(known.host), known];
            let view = self.unidirectional_view();
            return self.conversation(ends, NONE, view);
        }
        let known = self.resident(pair.ends[0]);
        let new_host = self.new_host(known.host);
        let ends = if self.draw.chance(0.5) { [new_host, known] } else { [known, new_host] };
        self.conversation(ends, NONE, View::Both)
    }

    /// A known source and a new destination.
    fn scan(&mut self) -> Conversation {
        let is_probe = self.draw.chance(self.model.probe_fraction);
        let pairs = &self.population.pairs;
        let scanners = &self.population.scanners;
        let pair = if is_probe && !scanners.is_empty() {
            pairs[scanners[self.draw.index(scanners.len())] as usize]
        } else {
            pairs[self.draw.index(pairs.len())]
        };
        let known = self.resident(pair.ends[0]);
        let ends = [known, self.new_host(known.host)];
        let view = if is_probe { View::Probe } else { self.unidirectional_view() };
        self.conversation(ends, NONE, view)
    }

    /// A new connection of a long-lived pair.
    fn new_connection(&mut self, both: bool) -> Conversation {
        let Population { pairs, bidirectional_pairs, .. } = &self.population;
        let place = if both {
            bidirectional_pairs[self.draw.index(bidirectional_pairs.len())]
        } else {
            self.draw.index(pairs.len()) as u32
        };
        let ends = self.population.pairs[place as usize].ends.map(|end| self.resident(end));
        let view = if both { View::Both } else { self.unidirectional_view() };
        self.conversation(ends, place, view)
    }

    /// The next packet of a burst, new in as many keys as have room; `None` if the burst is over or no draw is
    /// admitted.
    fn burst_packet(&mut self, now_ns: u64) -> Option<Packet> {
        let quota = self.governor.quota(now_ns);
        if quota == [0; 3] || now_ns >= self.burst.begins_ns + BURST_NS {
            let (least, most) = BURST_GAP_NS;
            let begins_ns = now_ns + least + self.draw.below(most - least);
            self.burst = Burst { begins_ns, next_ns: begins_ns };
            return None;
        }
        self.burst.next_ns += self.burst_gap_ns;
        (0..TRIES).find_map(|_| {
            // A new source counts for all three keys.
            let (cost, conversation) = if quota[0] > 0 && quota[1] > 0 {
                ([1, 1, 1], self.new_source(false))
            } else if quota[1] > 0 {
                ([0, 1, 1], self.scan())
            } else {
                ([0, 0, 1], self.new_connection(false))
            };
            // A probe has only this packet.
            let packet = self.conversation_packet(&mut conversation.into_probe(), 0, now_ns)?;
            self.credit.pay(cost);
            Some(packet)
        })
    }
}

#[cfg(test)]
mod tests;
