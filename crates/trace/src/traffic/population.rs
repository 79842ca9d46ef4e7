// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The long-lived part of the traffic: hosts, pairs and connections.

use super::frame::{ACK, PSH, Transport};
use super::host::Host;
use super::profile::Model;
use flowloom_random::{Draw, SplitMix64, Weighted};

/// Fraction of two-way hosts that are servers.
const SERVER_SHARE: f64 = 0.1;
/// Fraction of sources that scan.
const SCANNER_SHARE: f64 = 0.01;
/// Fraction of connections that also ping.
const ECHO_SHARE: f64 = 0.005;
const ECHO_BYTES: u32 = 98;
/// Bytes acknowledged per packet that the trace does not show: two segments.
const UNSEEN_BYTES: u32 = 2 * 1448;

/// Service ports with their weights.
const TCP_SERVICES: [(u16, f64); 8] =
    [(443, 50.0), (80, 30.0), (22, 4.0), (25, 3.0), (993, 4.0), (8080, 4.0), (3389, 3.0), (5223, 2.0)];
const UDP_SERVICES: [(u16, f64); 4] = [(443, 60.0), (19_302, 10.0), (27_015, 10.0), (6881, 20.0)];

#[derive(Debug, Clone, Copy)]
pub(super) struct LongLivedHost {
    pub(super) host: Host,
    /// True if it has sent a packet.
    pub(super) is_seen: bool,
}

/// Two hosts with long-lived connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    /// Indices of the residents; the first is a source.
    pub(super) ends: [u32; 2],
    /// True if both directions are in the trace.
    pub(super) is_bidirectional: bool,
    /// True if a packet was seen, by direction.
    pub(super) is_seen: [bool; 2],
}

/// Traffic kind of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Full-size segments in this direction.
    Bulk(u8),
    /// Acknowledgements of data that the trace does not show.
    Acks,
    /// Short messages.
    Interactive,
    /// Pings.
    Echo,
}

/// TCP state of a connection, named by the next packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Syn,
    SynAck,
    Ack,
    Open,
    FinAck,
    LastAck,
    Closed,
}

/// Transport state shared by both ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransportState {
    pub(super) ports: [u16; 2],
    /// The next sequence number of each end.
    pub(super) seq: [u32; 2],
    pub(super) is_udp: bool,
    pub(super) has_timestamps: bool,
    /// Base of the timestamp clocks.
    pub(super) clock: u32,
}

impl TransportState {
    /// A segment in this direction that acknowledges all data of the other end.
    pub(super) fn segment(&self, from: usize, flags: u8, now_ns: u64, rtt_ns: u64) -> Transport {
        let [sport, dport] = [self.ports[from], self.ports[1 - from]];
        if self.is_udp {
            return Transport::Udp { sport, dport };
        }
        let ms = |ns: u64| (ns / 1_000_000) as u32;
        let clocks = [self.clock, self.clock.rotate_left(16)];
        let heard = if flags & ACK == 0 { 0 } else { clocks[1 - from].wrapping_add(ms(now_ns.saturating_sub(rtt_ns))) };
        let timestamps = self.has_timestamps.then(|| (clocks[from].wrapping_add(ms(now_ns)), heard));
        let ack = if flags & ACK == 0 { 0 } else { self.seq[1 - from] };
        Transport::Tcp { sport, dport, seq: self.seq[from], ack, flags, timestamps }
    }
}

/// A long-lived connection. When it ends, another one of the same pair replaces it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection {
    pub(super) ends: [Host; 2],
    pub(super) pair: u32,
    pub(super) wire: TransportState,
    pub(super) kind: Kind,
    pub(super) phase: Phase,
    pub(super) is_bidirectional: bool,
    /// True if it is queued to acknowledge data.
    pub(super) is_ready: bool,
    /// True if a packet was seen, by direction.
    pub(super) is_seen: [bool; 2],
}

impl Connection {
    /// The end that opened it. Of one-way bulk transfers the trace shows the server's direction.
    pub(super) fn client(&self) -> usize {
        if self.kind == Kind::Bulk(0) && !self.is_bidirectional { 1 } else { 0 }
    }

    /// The next packet of an open connection in this direction, and its desired length if it carries payload.
    pub(super) fn steady_state_packet(
        &mut self,
        from: usize,
        desired_bytes: u32,
        now_ns: u64,
        rtt_ns: u64,
    ) -> (Transport, Option<u32>) {
        match self.kind {
            Kind::Echo => {
                if from == 0 {
                    self.wire.seq[0] = self.wire.seq[0].wrapping_add(1);
                }
                let (id, seq) = (self.wire.ports[0], self.wire.seq[0] as u16);
                (Transport::Echo { is_reply: from == 1, id, seq }, Some(ECHO_BYTES))
            }
            Kind::Acks => {
                self.wire.seq[1] = self.wire.seq[1].wrapping_add(UNSEEN_BYTES);
                (self.wire.segment(from, ACK, now_ns, rtt_ns), None)
            }
            Kind::Bulk(data) if usize::from(data) != from => {
                let desired_bytes = self.wire.is_udp.then_some(desired_bytes);
                (self.wire.segment(from, ACK, now_ns, rtt_ns), desired_bytes)
            }
            Kind::Bulk(_) => (self.wire.segment(from, ACK, now_ns, rtt_ns), Some(desired_bytes)),
            Kind::Interactive => (self.wire.segment(from, PSH | ACK, now_ns, rtt_ns), Some(desired_bytes)),
        }
    }
}

/// A connection and a direction, packed into one number.
pub(super) type Flow = u32;

pub(super) fn flow(connection: usize, from: usize) -> Flow {
    (connection as u32) << 1 | from as u32
}

/// Flows, drawn by popularity.
#[derive(Debug, Default)]
pub(super) struct Pool {
    flows: Vec<Flow>,
    popularity: Weighted,
}

impl Pool {
    fn new(mut flows: Vec<Flow>, zipf_exponent: f64, draw: &mut SplitMix64) -> Pool {
        draw.shuffle(&mut flows);
        Pool { popularity: Weighted::by_rank(flows.len(), zipf_exponent), flows }
    }

    pub(super) fn draw(&self, draw: &mut SplitMix64) -> Option<Flow> {
        if self.popularity.is_empty() { None } else { self.flows.get(self.popularity.draw(draw)).copied() }
    }
}

/// Draws ports and initial numbers of connections.
#[derive(Debug)]
pub(super) struct ConnectionFactory {
    tcp: Weighted,
    udp: Weighted,
    udp_share: f64,
    client_port: u32,
}

impl ConnectionFactory {
    pub(super) fn new(udp_share: f64, draw: &mut SplitMix64) -> ConnectionFactory {
        let weights = |services: &[(u16, f64)]| Weighted::new(&services.iter().map(|s| s.1).collect::<Vec<_>>());
        let client_port = draw.next_u64() as u32;
        ConnectionFactory { tcp: weights(&TCP_SERVICES), udp: weights(&UDP_SERVICES), udp_share, client_port }
    }

    /// The next client port in Linux's ephemeral range.
    pub(super) fn client_port(&mut self) -> u16 {
        self.client_port = self.client_port.wrapping_add(1);
        (32_768 + self.client_port % 28_232) as u16
    }

    /// Draws a new connection; UDP only if `may_be_udp`.
    pub(super) fn open(&mut self, client: usize, may_be_udp: bool, draw: &mut SplitMix64) -> TransportState {
        let is_udp = may_be_udp && draw.chance(self.udp_share);
        let service = if is_udp { UDP_SERVICES[self.udp.draw(draw)].0 } else { TCP_SERVICES[self.tcp.draw(draw)].0 };
        let mut ports = [service; 2];
        ports[client] = self.client_port();
        let bits = draw.next_u64();
        let seq = [bits as u32, (bits >> 32) as u32];
        TransportState { ports, seq, is_udp, has_timestamps: !is_udp && bits >> 20 & 1 == 1, clock: (bits >> 7) as u32 }
    }
}

/// All long-lived hosts, pairs and connections.
#[derive(Debug, Default)]
pub(super) struct Population {
    pub(super) residents: Vec<LongLivedHost>,
    pub(super) pairs: Vec<Pair>,
    pub(super) connections: Vec<Connection>,
    /// Flows in keep-alive order.
    pub(super) flows: Vec<Flow>,
    /// Pairs whose source scans.
    pub(super) scanners: Vec<u32>,
    pub(super) bidirectional_pairs: Vec<u32>,
    pub(super) large: Pool,
    pub(super) acks: Pool,
    pub(super) talk: Pool,
    /// Fraction of acknowledgements whose data the trace shows.
    pub(super) shown_acks: f64,
}

impl Population {
    /// Draws the given numbers of long-lived sources, pairs and flows.
    pub(super) fn new(
        model: &Model,
        counts: [u64; 3],
        connection_factory: &mut ConnectionFactory,
        draw: &mut SplitMix64,
    ) -> Population {
        let mut population = Population::default();
        // Hosts of a pair have the same address family.
        let ipv6 = counts.map(|count| (count as f64 * model.ipv6).round() as u64);
        for (counts, is_ipv6) in [([0, 1, 2].map(|key| counts[key] - ipv6[key]), false), (ipv6, true)] {
            population.generate(model, counts, is_ipv6, connection_factory, draw);
        }
        population.build_pools(model, draw);
        population
    }

    fn generate(
        &mut self,
        model: &Model,
        counts: [u64; 3],
        is_ipv6: bool,
        connection_factory: &mut ConnectionFactory,
        draw: &mut SplitMix64,
    ) {
        let [sources, pairs, flows] = counts.map(|count| count as usize);
        let (pairs, flows) = (pairs.max(sources), flows.max(pairs));
        if sources == 0 {
            return;
        }
        let first = self.residents.len();
        // Sources are on both sides if both directions are in the trace.
        let is_outside = |i: usize| model.bidirectional > 0.0 && i % 2 == 1;
        self.residents.extend((first..first + sources).map(|i| resident(i, is_outside(i), is_ipv6)));

        // Equal numbers of servers on both sides.
        let servers = (((sources as f64 * SERVER_SHARE) as usize).max(2) & !1).min(sources);
        let clients = sources - servers;
        let wanted = (model.bidirectional * pairs as f64 / 2.0) as usize;
        let bidirectional_pairs = wanted.min(clients).min(pairs - sources + servers);
        let popular = Weighted::by_rank(servers / 2, 1.0);
        let mut is_source = vec![false; sources];
        let first_pair = self.pairs.len();
        for i in 0..bidirectional_pairs {
            // Servers come first, even in number. Each gets one client before popularity decides. Parity selects the
            // side, so the ends of a pair have different parity.
            let client = servers + i;
            let rank = if i < servers { i / 2 } else { popular.draw(draw) };
            let server = 2 * rank + 1 - client % 2;
            is_source[client] = true;
            is_source[server] = true;
            let ends = [first + client, first + server].map(|end| end as u32);
            self.bidirectional_pairs.push(self.pairs.len() as u32);
            self.pairs.push(Pair { ends, is_bidirectional: true, is_seen: [false; 2] });
        }
        // Remaining sources get a destination that does not reply; further pairs get a random source.
        let silent: Vec<usize> = (0..sources).filter(|i| !is_source[*i]).collect();
        let scanners = ((sources as f64 * SCANNER_SHARE) as usize).clamp(1, sources);
        for i in 2 * bidirectional_pairs..pairs {
            let source = match silent.get(i - 2 * bidirectional_pairs) {
                Some(source) => *source,
                None if draw.chance(model.probe_fraction) => draw.index(scanners),
                None => draw.index(sources),
            };
            let sink = resident(self.residents.len(), !is_outside(first + source), is_ipv6);
            let ends = [(first + source) as u32, self.residents.len() as u32];
            if source < scanners {
                self.scanners.push(self.pairs.len() as u32);
            }
            self.residents.push(sink);
            self.pairs.push(Pair { ends, is_bidirectional: false, is_seen: [false; 2] });
        }

        // Each pair has one connection; the others are assigned at random.
        for pair in first_pair..self.pairs.len() {
            self.connect(pair, self.pairs[pair].is_bidirectional, connection_factory, draw);
        }
        let first_couple = self.bidirectional_pairs.len() - bidirectional_pairs;
        let mut left = flows - pairs;
        while left > 0 {
            let both = bidirectional_pairs > 0 && left > 1 && draw.chance(model.bidirectional);
            let pair = if both {
                self.bidirectional_pairs[first_couple + draw.index(bidirectional_pairs)] as usize
            } else {
                first_pair + draw.index(self.pairs.len() - first_pair)
            };
            self.connect(pair, both, connection_factory, draw);
            left -= 1 + usize::from(both);
        }
    }

    fn connect(
        &mut self,
        pair: usize,
        is_bidirectional: bool,
        connection_factory: &mut ConnectionFactory,
        draw: &mut SplitMix64,
    ) {
        let kind = match draw.below(100) {
            0..45 if is_bidirectional => Kind::Bulk(1),
            45..55 if is_bidirectional => Kind::Bulk(0),
            0..35 if !is_bidirectional => Kind::Bulk(0),
            35..70 if !is_bidirectional => Kind::Acks,
            _ => Kind::Interactive,
        };
        let ends = self.pairs[pair].ends.map(|end| self.residents[end as usize].host);
        let client = usize::from(kind == Kind::Bulk(0) && !is_bidirectional);
        let wire = connection_factory.open(client, kind != Kind::Acks, draw);
        let connection = Connection {
            ends,
            pair: pair as u32,
            wire,
            kind,
            phase: Phase::Open,
            is_bidirectional,
            is_ready: false,
            is_seen: [false; 2],
        };
        self.connections.push(connection);
        if draw.chance(ECHO_SHARE) {
            self.connections.push(Connection {
                kind: Kind::Echo,
                is_bidirectional: self.pairs[pair].is_bidirectional,
                ..connection
            });
        }
    }

    /// Groups the flows by traffic kind.
    fn build_pools(&mut self, model: &Model, draw: &mut SplitMix64) {
        let (mut large, mut acks, mut talk) = (Vec::new(), Vec::new(), Vec::new());
        let (mut shown, mut hidden) = (0.0, 0.0);
        for (i, connection) in self.connections.iter().enumerate() {
            let directions = if connection.is_bidirectional { 0..2 } else { 0..1 };
            self.flows.extend(directions.clone().map(|from| flow(i, from)));
            match connection.kind {
                Kind::Bulk(data) => {
                    large.push(flow(i, usize::from(data)));
                    shown += f64::from(u8::from(connection.is_bidirectional && !connection.wire.is_udp));
                }
                Kind::Acks => {
                    acks.push(flow(i, 0));
                    hidden += 1.0;
                }
                Kind::Interactive | Kind::Echo => talk.extend(directions.map(|from| flow(i, from))),
            }
        }
        draw.shuffle(&mut self.flows);
        self.large = Pool::new(large, model.zipf_exponent, draw);
        self.acks = Pool::new(acks, model.zipf_exponent, draw);
        self.talk = Pool::new(talk, model.zipf_exponent, draw);
        self.shown_acks = if shown + hidden > 0.0 { shown / (shown + hidden) } else { 0.0 };
    }
}

fn resident(number: usize, is_outside: bool, is_ipv6: bool) -> LongLivedHost {
    LongLivedHost { host: Host::new(number as u32 + 1, is_outside, is_ipv6), is_seen: false }
}
