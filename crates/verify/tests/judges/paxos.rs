// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paxos with the functions as coordinator and acceptors, on a network that loses, duplicates and reorders messages;
//! proposers and learners are models.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_engine::{Choices, Datapath, Packet, Port, Verdict};
use flowloom_testkit::{PacketBuilder, Rng};

use crate::common::shipped::{function, function_with};

const ACCEPTORS: u8 = 3;
const MAJORITY: usize = 2;
/// Maximum number of attempts of a proposer, each with a higher round.
const ATTEMPTS: u32 = 3;
/// Number of concurrent instances.
const AT_ONCE: usize = 20;

const REQUEST: u8 = 0;
const PREPARE: u8 = 1;
const PROMISE: u8 = 2;
const ACCEPT: u8 = 3;
const ACCEPTED: u8 = 4;

#[derive(Debug, Clone, Copy, Default)]
struct Message {
    kind: u8,
    switch: u8,
    instance: u32,
    round: u32,
    vround: u32,
    value: u64,
}

impl Message {
    fn frame(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind, self.switch];
        bytes.extend([self.instance, self.round, self.vround].map(u32::to_be_bytes).concat());
        bytes.extend(self.value.to_be_bytes());
        PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 9]).udp(4000, 0x8888).payload(&bytes).build()
    }

    fn read(frame: &[u8]) -> Message {
        let body = &frame[42..64];
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| body[at + i]));
        let value = u64::from_be_bytes(std::array::from_fn(|i| body[14 + i]));
        Message { kind: body[0], switch: body[1], instance: word(2), round: word(6), vround: word(10), value }
    }
}

/// A switch that runs a function.
struct Switch(Machine);

impl Switch {
    /// Output of a message: all copies are equal, so one of them.
    fn take(&mut self, message: &Message) -> Option<Message> {
        let frame = message.frame();
        let packet = Packet { bytes: &frame, port: Port(1) };
        let outcome = self.0.process(&packet, &Choices::seeded(1, 1, 1)).unwrap_or_else(|e| panic!("{e}"));
        assert_ne!(outcome.verdict, Verdict::Aborted, "{message:?}");
        (outcome.verdict == Verdict::Redirect).then(|| Message::read(&outcome.outputs[0].bytes))
    }
}

/// A proposer other than the coordinator, in one instance.
#[derive(Debug, Default)]
struct Proposer {
    value: u64,
    round: u32,
    attempts: u32,
    promises: BTreeMap<u8, (u32, u64)>,
}

#[derive(Debug, Clone, Copy)]
enum To {
    Acceptor(u8),
    Others,
}

/// Messages in flight, each with its number.
#[derive(Debug, Default)]
struct Network {
    flying: Vec<(u64, To, Message)>,
    sent: u64,
    /// The latest message that was delivered.
    latest: u64,
}

impl Network {
    fn send(&mut self, messages: impl IntoIterator<Item = (To, Message)>) {
        for (to, message) in messages {
            self.sent += 1;
            self.flying.push((self.sent, to, message));
        }
    }

    /// Delivers a random message, possibly twice, or drops it.
    fn deliver(&mut self, rng: &mut Rng, ended: &mut Ended) -> Option<(To, Message)> {
        let at = rng.below(self.flying.len());
        let comes_again = rng.chance(1, 20);
        let (number, to, message) = if comes_again { self.flying[at] } else { self.flying.swap_remove(at) };
        ended.messages += 1;
        ended.twice += u64::from(comes_again);
        if rng.chance(1, 10) {
            ended.lost += 1;
            return None;
        }
        ended.late += u64::from(number < self.latest);
        self.latest = self.latest.max(number);
        Some((to, message))
    }
}

#[derive(Debug, Default)]
struct Instance {
    proposers: [Proposer; 2],
    /// By round and value, the acceptors that accepted it.
    accepted: BTreeMap<(u32, u64), BTreeSet<u8>>,
    chosen: BTreeSet<u64>,
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct Ended {
    pub instances: u32,
    pub messages: u64,
    pub lost: u64,
    /// Messages delivered twice; messages delivered after a later one.
    pub twice: u64,
    pub late: u64,
    /// Instances with a value; with more than one.
    pub decided: u32,
    pub split: u32,
    /// Instances that decided on a value that was not the coordinator's.
    pub others: u32,
}

impl Ended {
    /// Column heads of [`Ended`]'s line.
    pub fn head() -> String {
        format!(
            "{:>9} {:>9} {:>6} {:>6} {:>6} {:>9} {:>15} {:>10}",
            "instances", "messages", "lost", "twice", "late", "decided", "others' values", "two values"
        )
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ended { instances, messages, decided, split, others, .. } = self;
        let share = |count: u64| format!("{:.1}%", count as f64 * 100.0 / *messages as f64);
        let [lost, twice, late] = [self.lost, self.twice, self.late].map(share);
        write!(f, "{instances:>9} {messages:>9} {lost:>6} {twice:>6} {late:>6} {decided:>9} {others:>15} {split:>10}")
    }
}

/// Runs `instances` instances; without the comparison of rounds if `compares` is false.
pub fn run(rng: &mut Rng, instances: u32, compares: bool) -> Ended {
    let mut coordinator = Switch(Machine::new(function("paxos_coordinator", &[])));
    let mut acceptors: Vec<Switch> =
        (0..ACCEPTORS).map(|id| Switch(Machine::new(acceptor(id, instances, compares)))).collect();
    let mut ended = Ended { instances, ..Ended::default() };
    let mut first = 1;
    while first <= instances {
        let count = AT_ONCE.min((instances - first + 1) as usize) as u32;
        batch(rng, first..first + count, &mut coordinator, &mut acceptors, &mut ended);
        first += count;
    }
    ended
}

fn acceptor(id: u8, instances: u32, compares: bool) -> Arc<Function> {
    let (id, instances) = (id.to_string(), instances.to_string());
    function_with("paxos_acceptor", &[("id", &id), ("instances", &instances)], |text| {
        let without = text.replace(" && paxos.round >= round", "");
        assert_ne!(without, text, "the comparison of rounds is elsewhere");
        if compares { text } else { without }
    })
}

fn batch(
    rng: &mut Rng,
    numbers: std::ops::Range<u32>,
    coordinator: &mut Switch,
    acceptors: &mut [Switch],
    ended: &mut Ended,
) {
    let mut network = Network::default();
    let mut instances: BTreeMap<u32, Instance> = BTreeMap::new();
    for number in numbers {
        // Clients' values; the coordinator assigns each the next instance.
        let request = Message { kind: REQUEST, value: u64::from(number) * 10, ..Message::default() };
        let proposal = coordinator.take(&request).unwrap_or_else(|| panic!("the coordinator is silent"));
        assert_eq!((proposal.kind, proposal.instance, proposal.round), (ACCEPT, number, 1));
        // Some senders fail while sending.
        let dies = rng.chance(1, 3);
        network.send((0..ACCEPTORS).filter(|_| !dies || rng.chance(1, 3)).map(|a| (To::Acceptor(a), proposal)));
        let proposer = |n: u64| Proposer { value: u64::from(number) * 10 + 1 + n, ..Proposer::default() };
        instances.insert(number, Instance { proposers: [proposer(0), proposer(1)], ..Instance::default() });
    }
    loop {
        // A proposer times out: whenever no message is in flight, and occasionally earlier.
        if network.flying.is_empty() || rng.chance(1, 12) {
            let open: Vec<u32> = instances
                .iter()
                .filter(|(_, i)| i.proposers.iter().any(|p| p.attempts < ATTEMPTS))
                .map(|(&number, _)| number)
                .collect();
            if open.is_empty() && network.flying.is_empty() {
                break;
            }
            if !open.is_empty() {
                let number = *rng.pick(&open);
                let which = rng.below(2);
                let Some(instance) = instances.get_mut(&number) else { continue };
                let proposer = &mut instance.proposers[which];
                if proposer.attempts < ATTEMPTS {
                    proposer.attempts += 1;
                    // Disjoint rounds: 2, 4, 6 and 3, 5, 7.
                    proposer.round = 2 * proposer.attempts + which as u32;
                    proposer.promises.clear();
                    let prepare =
                        Message { kind: PREPARE, instance: number, round: proposer.round, ..Message::default() };
                    network.send((0..ACCEPTORS).map(|a| (To::Acceptor(a), prepare)));
                }
            }
        }
        if network.flying.is_empty() {
            continue;
        }
        let Some((to, message)) = network.deliver(rng, ended) else { continue };
        match to {
            To::Acceptor(a) => {
                let answer = acceptors[usize::from(a)].take(&message);
                network.send(answer.map(|answer| (To::Others, answer)));
            }
            To::Others => {
                let Some(instance) = instances.get_mut(&message.instance) else {
                    panic!("an answer to nobody: {message:?}")
                };
                network.send(
                    instance.hear(&message).into_iter().flat_map(|m| (0..ACCEPTORS).map(move |a| (To::Acceptor(a), m))),
                );
            }
        }
    }
    for (number, instance) in instances {
        ended.decided += u32::from(!instance.chosen.is_empty());
        ended.split += u32::from(instance.chosen.len() > 1);
        ended.others += u32::from(instance.chosen.len() == 1 && !instance.chosen.contains(&(u64::from(number) * 10)));
    }
}

impl Instance {
    /// Delivers an acceptor's answer to proposers and learners; returns the proposer's next message.
    fn hear(&mut self, message: &Message) -> Option<Message> {
        match message.kind {
            PROMISE => {
                let proposer = self.proposers.iter_mut().find(|p| p.round == message.round)?;
                let before = proposer.promises.len();
                proposer.promises.insert(message.switch, (message.vround, message.value));
                // The value of the highest round that the majority has accepted, else its own.
                let is_new = before + 1 == MAJORITY && proposer.promises.len() == MAJORITY;
                is_new.then(|| {
                    let highest = proposer.promises.values().max_by_key(|(vround, _)| *vround);
                    let value = highest.filter(|(vround, _)| *vround > 0).map_or(proposer.value, |&(_, value)| value);
                    Message {
                        kind: ACCEPT,
                        instance: message.instance,
                        round: proposer.round,
                        value,
                        ..Message::default()
                    }
                })
            }
            ACCEPTED => {
                let by = self.accepted.entry((message.round, message.value)).or_default();
                by.insert(message.switch);
                if by.len() >= MAJORITY {
                    self.chosen.insert(message.value);
                }
                None
            }
            _ => panic!("an acceptor sends {message:?}"),
        }
    }
}
