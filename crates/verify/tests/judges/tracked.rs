//! Connection tracking beside the kernel's, and under attack.

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

/// The packets that a function lets pass, by their numbers.
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

/// A packet in words.
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

/// How a function did beside the kernel, and under attack.
#[derive(Debug, Default)]
pub struct Judged {
    pub packets: usize,
    pub valid: usize,
    pub invalid: usize,
    /// Of those that the kernel calls invalid: passed by the function.
    pub invalid_passed: usize,
    /// Valid but dropped, in words: of connections of which the kernel calls every packet valid.
    pub dropped: Vec<String>,
    /// The same of other connections: packets that captures lack make both guess.
    pub dropped_of_others: Vec<String>,
    /// Valid but dropped when there are attacks.
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
        writeln!(
            f,
            "{packets} packets; for the kernel {valid} valid, {invalid} invalid, of which {invalid_passed} pass here"
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
    /// Nothing valid is dropped, no attack passes.
    pub fn assert(&self) {
        let first = |list: &[String]| list.iter().take(20).cloned().collect::<Vec<_>>();
        assert!(self.dropped.is_empty(), "valid but dropped: {:#?}\n{self}", first(&self.dropped));
        assert!(self.dropped_under_attack.is_empty(), "under attack: {:#?}\n{self}", first(&self.dropped_under_attack));
        for (name, attacks) in &self.attacks {
            assert!(attacks.passed.is_empty(), "{name}: {:#?}\n{self}", first(&attacks.passed));
        }
    }
}

/// The function on packets that the kernel has judged; behind each valid segment with a chance of 1 to `every` stands an attack.
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

/// Of each packet, whether the kernel calls no packet of its connection invalid.
fn whole(packets: &[Arrival], opinion: &Opinion) -> Vec<bool> {
    let key = KeySpec::of_fields(&FIVE_TUPLE.map(field), true).unwrap_or_else(|e| panic!("{e}"));
    let of = |packet: &Arrival| key.extract(&Layers::parse(Graph::standard(), &packet.bytes), &packet.bytes, 1, &[]);
    let keys: Vec<_> = packets.iter().map(of).collect();
    let invalid: BTreeSet<_> = opinion.invalid.iter().filter_map(|&n| keys.get(n)?.as_ref()).collect();
    keys.iter().map(|key| key.as_ref().is_none_or(|key| !invalid.contains(key))).collect()
}

/// Packets between which attacks stand: of each, its number among the given packets, or none where it is an attack.
pub struct Attacked {
    pub packets: Vec<Arrival>,
    pub given: Vec<Option<usize>>,
    /// What kind of attack, by the number among all packets.
    pub attacks: BTreeMap<usize, &'static str>,
}

/// Puts data from far outside of the window and blind resets into connections, by somebody who knows addresses and ports but not the
/// numbers: behind each of `valid` with a chance of 1 to `every`, with the numbers of that segment moved by more than any window. Only
/// where both sides have begun with a SYN: without, there is no window to be outside of.
pub fn attack(rng: &mut Rng, packets: &[Arrival], valid: &BTreeSet<usize>, every: usize) -> Attacked {
    let mut attacked = Attacked { packets: Vec::new(), given: Vec::new(), attacks: BTreeMap::new() };
    let fields = ["ip.src", "ip.dst", "tcp.sport", "tcp.dport"].map(field);
    let key = KeySpec::of_fields(&fields, true).unwrap_or_else(|e| panic!("{e}"));
    let mut begun: BTreeMap<Vec<u8>, [bool; 2]> = BTreeMap::new();
    for (number, packet) in packets.iter().enumerate() {
        attacked.packets.push(packet.clone());
        attacked.given.push(Some(number));
        let layers = Layers::parse(Graph::standard(), &packet.bytes);
        let Some(at) = layers.offset(Header::Tcp) else { continue };
        let flags = packet.bytes[at + 13];
        let Some(connection) = key.extract(&layers, &packet.bytes, 1, &[]) else { continue };
        if !valid.contains(&number) {
            continue;
        }
        let begun = begun.entry(connection).or_default();
        if flags & 2 != 0 {
            // A SYN alone begins a connection anew.
            *begun = [true, flags & 16 != 0];
        }
        if *begun != [true; 2] || flags & 2 != 0 || !rng.chance(1, every) {
            continue;
        }
        let (name, frame) = forged(rng, packet, at);
        attacked.attacks.insert(attacked.packets.len(), name);
        attacked.packets.push(Arrival { bytes: frame, ..packet.clone() });
        attacked.given.push(None);
    }
    attacked
}

/// A segment with forged numbers in the place of one that stands at byte `at` of its frame. Checksums stay as they were: trackers do
/// not look at them.
fn forged(rng: &mut Rng, packet: &Arrival, at: usize) -> (&'static str, Vec<u8>) {
    let mut frame = packet.bytes.clone();
    let number = |frame: &[u8], at: usize| u32::from_be_bytes(std::array::from_fn(|i| frame[at + i]));
    let (seq, ack) = (number(&frame, at + 4), number(&frame, at + 8));
    // Windows reach to 2^30 at most: these lie beyond every one of the captures, in front and behind.
    let far = (1 << 30) + (rng.next_u64() as u32 >> 2);
    let mut set = |at: usize, value: u32| frame[at..at + 4].copy_from_slice(&value.to_be_bytes());
    let name = match rng.below(5) {
        0 => {
            set(at + 4, seq.wrapping_add(far));
            "data ahead of the window"
        }
        1 => {
            set(at + 4, seq.wrapping_sub(far));
            "data behind the window"
        }
        2 => {
            set(at + 8, ack.wrapping_add(far));
            "acknowledgement of what was never sent"
        }
        3 => {
            set(at + 4, seq.wrapping_add(far));
            "blind reset"
        }
        _ => {
            // In the window, but not the number that is expected.
            set(at + 4, seq.wrapping_add(7_000 + rng.below(20_000) as u32));
            "blind reset within the window"
        }
    };
    if name.starts_with("blind") {
        frame[at + 13] = 4;
    } else {
        frame[at + 13] = 0x10;
    }
    (name, frame)
}
