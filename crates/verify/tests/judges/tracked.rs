// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares connection tracking with the kernel's, also under attack.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::netfilter::Opinion;
use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_engine::{Choices, Datapath, Verdict};
use flowloom_testkit::Rng;
use flowloom_verify::{Arrival, sweep_period};
use flowloom_wire::field::FIVE_TUPLE;
use flowloom_wire::{FieldId, Graph, Header, KeySpec, Layers};

/// Numbers of the packets that a function passes.
pub fn passed(engine: &mut dyn Datapath, function: &Function, packets: &[Arrival]) -> BTreeSet<usize> {
    let period_ns = sweep_period(function).unwrap_or(u64::MAX);
    let (mut now_ns, mut swept_ns, mut passed) = (0, 0, BTreeSet::new());
    for (number, packet) in packets.iter().enumerate() {
        now_ns = packet.time_ns.max(now_ns);
        if now_ns - swept_ns >= period_ns {
            engine.sweep(now_ns).unwrap_or_else(|e| panic!("{e}"));
            swept_ns = now_ns;
        }
        let outcome = engine.process(&packet.packet(), &Choices::seeded(now_ns, 1, number as u64));
        if outcome.unwrap_or_else(|e| panic!("packet {number}: {e}")).verdict == Verdict::Pass {
            passed.insert(number);
        }
    }
    passed
}

pub fn passed_by_machine(function: &Arc<Function>, packets: &[Arrival]) -> BTreeSet<usize> {
    passed(&mut Machine::new(Arc::clone(function)), function, packets)
}

fn field(name: &str) -> FieldId {
    FieldId::by_name(name).unwrap_or_else(|| panic!("no field `{name}`"))
}

/// Text form of a packet.
pub fn words(packet: &Arrival) -> String {
    let layers = Layers::parse(Graph::standard(), &packet.bytes);
    let show = |name: &str, text: fn(u128) -> String| {
        layers.read(&packet.bytes, packet.port.0, field(name)).map_or("-".to_owned(), text)
    };
    let field = |name: &str| show(name, |value| value.to_string());
    let address = |name: &str| show(name, |value| std::net::Ipv6Addr::from(value).to_canonical().to_string());
    format!(
        "{} ns {}:{} > {}:{} proto {} flags {} seq {} ack {} win {} len {} wscale {}",
        packet.time_ns,
        address("ip.src"),
        field("l4.sport"),
        address("ip.dst"),
        field("l4.dport"),
        field("ip.proto"),
        field("tcp.flags"),
        field("tcp.seq"),
        field("tcp.ack"),
        field("tcp.window"),
        field("tcp.payload_len"),
        field("tcp.opt.wscale"),
    )
}

/// Result of a function compared with the kernel, and under attack.
#[derive(Debug, Default)]
pub struct Judged {
    pub packets: usize,
    pub valid: usize,
    pub invalid: usize,
    /// Packets that the kernel calls invalid and the function passes.
    pub invalid_passed: usize,
    /// Text of packets valid but dropped, of connections without invalid packets.
    pub dropped: Vec<String>,
    /// The same for other connections: packets missing from captures make both guess.
    pub dropped_of_others: Vec<String>,
    /// Text of packets valid but dropped under attack.
    pub dropped_under_attack: Vec<String>,
    pub attacks: BTreeMap<&'static str, Attacks>,
}

#[derive(Debug, Default)]
pub struct Attacks {
    pub sent: usize,
    pub passed: Vec<String>,
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Judged { packets, valid, invalid, invalid_passed, .. } = self;
        let unseen = packets - valid - invalid;
        writeln!(
            f,
            "{packets} packets; for the kernel {valid} valid, {invalid} invalid, of which {invalid_passed} pass here; {unseen} it does \
             not track"
        )?;
        writeln!(
            f,
            "valid but dropped: {}; with attacks between them: {}; in connections that have invalid packets too: {}",
            self.dropped.len(),
            self.dropped_under_attack.len(),
            self.dropped_of_others.len()
        )?;
        for (name, attacks) in &self.attacks {
            writeln!(f, "{:45} {:>7} sent, {} passed", name, attacks.sent, attacks.passed.len())?;
        }
        Ok(())
    }
}

impl Judged {
    /// Asserts that no valid packet is dropped and no attack passes.
    pub fn assert(&self) {
        let first = |list: &[String]| list.iter().take(20).cloned().collect::<Vec<_>>();
        assert!(self.dropped.is_empty(), "valid but dropped: {:#?}\n{self}", first(&self.dropped));
        assert!(self.dropped_under_attack.is_empty(), "under attack: {:#?}\n{self}", first(&self.dropped_under_attack));
        for (name, attacks) in &self.attacks {
            assert!(attacks.passed.is_empty(), "{name}: {:#?}\n{self}", first(&attacks.passed));
        }
    }
}

/// Runs the function on packets that the kernel has judged; an attack follows each valid segment with probability
/// 1/`every`.
pub fn judge(rng: &mut Rng, function: &Arc<Function>, packets: &[Arrival], opinion: &Opinion, every: usize) -> Judged {
    let valid: BTreeSet<usize> = opinion.valid.range(..packets.len()).copied().collect();
    let passed = passed_by_machine(function, packets);
    let attacked = attack(rng, packets, &valid, every);
    let passed_attacked = passed_by_machine(function, &attacked.packets);
    let is_whole = whole(packets, opinion);
    let mut judged = Judged {
        packets: packets.len(),
        valid: valid.len(),
        invalid: opinion.invalid.len(),
        invalid_passed: opinion.invalid.intersection(&passed).count(),
        ..Judged::default()
    };
    for &n in valid.difference(&passed) {
        let list = if is_whole[n] { &mut judged.dropped } else { &mut judged.dropped_of_others };
        list.push(format!("packet {n}: {}", words(&packets[n])));
    }
    for (number, given) in attacked.given.iter().enumerate() {
        let has_passed = passed_attacked.contains(&number);
        match (given, attacked.attacks.get(&number)) {
            (Some(given), _) if valid.contains(given) && is_whole[*given] && !has_passed => {
                judged.dropped_under_attack.push(format!("packet {given}: {}", words(&packets[*given])));
            }
            (None, Some(name)) => {
                let attacks = judged.attacks.entry(name).or_default();
                attacks.sent += 1;
                if has_passed {
                    attacks.passed.push(format!(
                        "behind packet {:?}: {}",
                        attacked.given[number - 1],
                        words(&attacked.packets[number])
                    ));
                }
            }
            _ => {}
        }
    }
    judged
}

/// For each packet, true if the kernel calls no packet of its connection invalid.
fn whole(packets: &[Arrival], opinion: &Opinion) -> Vec<bool> {
    let key = KeySpec::of_fields(&FIVE_TUPLE.map(field), true).unwrap_or_else(|e| panic!("{e}"));
    let of = |packet: &Arrival| key.extract(&Layers::parse(Graph::standard(), &packet.bytes), &packet.bytes, 1, &[]);
    let keys: Vec<_> = packets.iter().map(of).collect();
    let invalid: BTreeSet<_> = opinion.invalid.iter().filter_map(|&n| keys.get(n)?.as_ref()).collect();
    keys.iter().map(|key| key.as_ref().is_none_or(|key| !invalid.contains(key))).collect()
}

/// Packets interleaved with attacks: for each the number of the original packet, `None` for an attack.
pub struct Attacked {
    pub packets: Vec<Arrival>,
    pub given: Vec<Option<usize>>,
    /// Kind of attack, by its number among all packets.
    pub attacks: BTreeMap<usize, &'static str>,
}

/// State of a side of a connection, from packets of both that passed.
#[derive(Debug, Default, Clone, Copy)]
struct Side {
    has_begun: bool,
    /// Window scale, if it offered one.
    scale: Option<u8>,
    largest_window: u32,
    /// Acknowledged by the peer, and right edge of the peer's window.
    acknowledged: u32,
    edge: u32,
    is_edge_known: bool,
}

/// Both sides of a connection; the first is the one whose address and port are first in its key.
#[derive(Debug, Default, Clone, Copy)]
struct Sides([Side; 2]);

impl Sides {
    fn follow(&mut self, from: usize, segment: &Segment) {
        if segment.flags & SYN != 0 {
            if segment.flags & ACK == 0 {
                // The connection is reopened.
                self.0 = [Side::default(); 2];
            }
            self.0[from] = Side { has_begun: true, scale: segment.scale, ..self.0[from] };
        }
        let both_scale = self.0[0].scale.zip(self.0[1].scale).is_some();
        let shift = self.0[from].scale.filter(|_| both_scale && segment.flags & SYN == 0).unwrap_or(0);
        let window = u32::from(segment.window) << shift.min(14);
        self.0[from].largest_window = self.0[from].largest_window.max(window);
        if segment.flags & ACK == 0 {
            return;
        }
        let other = &mut self.0[1 - from];
        let edge = segment.ack.wrapping_add(window);
        let is_newer = |new: u32, old: u32| !other.is_edge_known || new.wrapping_sub(old) < 1 << 31;
        let (acknowledged, edge) = (
            if is_newer(segment.ack, other.acknowledged) { segment.ack } else { other.acknowledged },
            if is_newer(edge, other.edge) { edge } else { other.edge },
        );
        *other = Side { acknowledged, edge, is_edge_known: true, ..*other };
    }
}

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A TCP segment in a frame: its offset and header fields.
struct Segment {
    at: usize,
    flags: u8,
    seq: u32,
    ack: u32,
    window: u16,
    scale: Option<u8>,
    payload_bytes: usize,
}

impl Segment {
    fn read(packet: &Arrival) -> Option<Segment> {
        let layers = Layers::parse(Graph::standard(), &packet.bytes);
        let at = layers.offset(Header::Tcp)?;
        let read = |name: &str| layers.read(&packet.bytes, packet.port.0, field(name));
        Some(Segment {
            at,
            flags: packet.bytes[at + 13],
            seq: read("tcp.seq")? as u32,
            ack: read("tcp.ack")? as u32,
            window: read("tcp.window")? as u16,
            scale: read("tcp.opt.wscale").map(|scale| scale as u8),
            payload_bytes: read("tcp.payload_len")? as usize,
        })
    }
}

/// Injects data from outside the window and blind resets by an off-path attacker that knows addresses and ports but no
/// sequence numbers: after each of `valid` with probability 1/`every`, with the numbers of that segment shifted. Only
/// where both sides sent a SYN: otherwise the window is unknown.
pub fn attack(rng: &mut Rng, packets: &[Arrival], valid: &BTreeSet<usize>, every: usize) -> Attacked {
    let mut attacked = Attacked { packets: Vec::new(), given: Vec::new(), attacks: BTreeMap::new() };
    let key =
        |names: [&str; 4], biflow| KeySpec::of_fields(&names.map(field), biflow).unwrap_or_else(|e| panic!("{e}"));
    let connection = key(["ip.src", "ip.dst", "tcp.sport", "tcp.dport"], true);
    let direction = key(["ip.src", "ip.dst", "tcp.sport", "tcp.dport"], false);
    let mut all: BTreeMap<Vec<u8>, Sides> = BTreeMap::new();
    for (number, packet) in packets.iter().enumerate() {
        attacked.packets.push(packet.clone());
        attacked.given.push(Some(number));
        let Some(segment) = Segment::read(packet).filter(|_| valid.contains(&number)) else { continue };
        let layers = Layers::parse(Graph::standard(), &packet.bytes);
        let of = |key: &KeySpec| key.extract(&layers, &packet.bytes, 1, &[]);
        let Some((connection, direction)) = of(&connection).zip(of(&direction)) else { continue };
        let from = usize::from(connection != direction);
        let sides = all.entry(connection).or_default();
        sides.follow(from, &segment);
        if !sides.0.iter().all(|side| side.has_begun) || segment.flags & SYN != 0 || !rng.chance(1, every) {
            continue;
        }
        let Some((name, frame)) = forged(rng, packet, &segment, sides, from) else { continue };
        attacked.attacks.insert(attacked.packets.len(), name);
        attacked.packets.push(Arrival { bytes: frame, ..packet.clone() });
        attacked.given.push(None);
    }
    attacked
}

/// A forged segment in place of `segment`: data from outside the window with 1 to 1000 bytes, resets with none. The TCP
/// checksum is not updated: trackers ignore it.
fn forged(
    rng: &mut Rng,
    packet: &Arrival,
    segment: &Segment,
    sides: &Sides,
    from: usize,
) -> Option<(&'static str, Vec<u8>)> {
    let (sender, receiver) = (sides.0[from], sides.0[1 - from]);
    let Segment { at, seq, ack, payload_bytes, .. } = *segment;
    // Windows are at most 2^30: these numbers are outside every window, on either side.
    let far = (1 << 30) + (rng.next_u64() as u32 >> 2);
    // These are outside the window of this connection: trackers tolerate one more window, and 66,000 bytes.
    let window = receiver.largest_window;
    let near = window.wrapping_mul(2).wrapping_add(140_000 + rng.below(window as usize + 1) as u32);
    let is_near_possible = sender.is_edge_known && window < 1 << 26;
    let data_bytes = if payload_bytes == 0 { 1 + rng.below(1000) } else { payload_bytes };
    let (name, seq, ack, flags, payload_bytes) = match rng.below(7) {
        0 => ("data far ahead of the window", seq.wrapping_add(far), ack, ACK, data_bytes),
        1 => ("data far behind the window", seq.wrapping_sub(far), ack, ACK, data_bytes),
        2 if is_near_possible => ("data ahead of the window", sender.edge.wrapping_add(near), ack, ACK, data_bytes),
        3 if is_near_possible => {
            ("data behind the window", sender.acknowledged.wrapping_sub(near), ack, ACK, data_bytes)
        }
        4 => ("acknowledgement of what was never sent", seq, ack.wrapping_add(far), ACK, payload_bytes),
        5 => ("blind reset", seq.wrapping_add(far), ack, RST, 0),
        // In the window, but not the expected number.
        6 => ("blind reset within the window", seq.wrapping_add(7_000 + rng.below(20_000) as u32), ack, RST, 0),
        _ => return None,
    };
    let mut frame = with_payload(&packet.bytes, at, payload_bytes)?;
    frame[at + 4..at + 8].copy_from_slice(&seq.to_be_bytes());
    frame[at + 8..at + 12].copy_from_slice(&ack.to_be_bytes());
    frame[at + 13] = flags;
    Some((name, frame))
}

/// Replaces the payload of a frame with a TCP header at `at` by `bytes` bytes; `None` where it would be too long.
fn with_payload(frame: &[u8], at: usize, bytes: usize) -> Option<Vec<u8>> {
    let start = at + 4 * usize::from(frame[at + 12] >> 4);
    let mut frame = frame.to_vec();
    frame.resize(start + bytes, 0);
    let (field, len) = if frame[14] >> 4 == 4 { (16, frame.len() - 14) } else { (18, frame.len() - 54) };
    frame[field..field + 2].copy_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
    Some(frame)
}
