// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The key-value cache between models of clients and a server, on a lossy network, with one outstanding operation per
//! key.

use std::collections::BTreeMap;
use std::fmt;

use flowloom_efsm::Machine;
use flowloom_engine::{Choices, Datapath, Packet, Port, Verdict};
use flowloom_testkit::{PacketBuilder, Rng};

use crate::common::shipped::function;

const GET: u16 = 1;
const SET: u16 = 2;
const RESP: u16 = 3;
const PORT: u16 = 0x4b56;
/// More keys than the cache has room for.
const KEYS: u64 = 400;
const CACHED: &str = "256";
/// Number of outstanding operations, each on a different key.
const AT_ONCE: usize = 16;

fn frame(from_server: bool, kind: u16, key: u64, value: u64, client: u16) -> Vec<u8> {
    let body = [&kind.to_be_bytes()[..], &key.to_be_bytes(), &value.to_be_bytes()].concat();
    let (host, server) = ([10, 0, 0, 1], [10, 0, 0, 9]);
    let builder = PacketBuilder::new();
    let builder = if from_server {
        builder.ipv4(server, host).udp(PORT, client)
    } else {
        builder.ipv4(host, server).udp(client, PORT)
    };
    builder.payload(&body).build()
}

/// Type, key and value of a frame.
fn read(frame: &[u8]) -> (u16, u64, u64) {
    let body = &frame[42..60];
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| body[at + i]));
    (u16::from_be_bytes([body[0], body[1]]), word(2), word(10))
}

#[derive(Debug, Default)]
pub struct Ended {
    pub operations: u64,
    pub sets: u64,
    pub gets: u64,
    /// Requests that the cache answered itself.
    pub answered: u64,
    pub lost: u64,
    /// Answers with a value that the key no longer had.
    pub stale: u64,
}

impl Ended {
    /// Column heads of [`Ended`]'s line.
    pub fn head() -> String {
        format!(
            "{:>10} {:>8} {:>8} {:>13} {:>13} {:>6}",
            "operations", "SET", "GET", "packets lost", "by the cache", "stale"
        )
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ended { operations, sets, gets, answered, lost, stale } = self;
        write!(f, "{operations:>10} {sets:>8} {gets:>8} {lost:>13} {answered:>13} {stale:>6}")
    }
}

/// The race in four steps, each with the cache's answer to a GET after it: a SET overtakes the answer to a GET.
pub fn race() -> Vec<(&'static str, Option<u64>)> {
    let mut cache = Machine::new(function("kv_cache", &[("out1", "2"), ("out2", "1")]));
    let (key, old, new) = (7, 1, 2);
    let send = |cache: &mut Machine, port: u32, bytes: Vec<u8>| {
        let outcome = cache.process(&Packet { bytes: &bytes, port: Port(port) }, &Choices::seeded(1, 1, 1));
        outcome.unwrap_or_else(|e| panic!("{e}"))
    };
    let steps = [
        ("a GET passes; the server answers 1, which is held up", 1, frame(false, GET, key, 0, 4000)),
        ("a SET of 2 passes", 1, frame(false, SET, key, new, 4001)),
        ("the server has 2, its answer passes", 2, frame(true, RESP, key, new, 4001)),
        ("the answer to the GET arrives", 2, frame(true, RESP, key, old, 4000)),
    ];
    let mut seen = Vec::new();
    for (words, port, bytes) in steps {
        assert_eq!(send(&mut cache, port, bytes).verdict, Verdict::Redirect, "{words}");
        let asked = send(&mut cache, 1, frame(false, GET, key, 0, 4002));
        let is_answered = asked.verdict == Verdict::Tx;
        seen.push((words, is_answered.then(|| read(&asked.outputs[0].bytes).2)));
    }
    seen
}

/// An outstanding operation: it is repeated until it is answered.
#[derive(Debug)]
struct Operation {
    key: u64,
    value: Option<u64>,
    client: u16,
    /// The packet in flight, and true if it comes from the server.
    flying: Option<(bool, Vec<u8>)>,
}

/// Runs `operations` operations. With `late`, answers of the server may arrive after the next operation on their key: a
/// race that makes the cache stale.
pub fn run(rng: &mut Rng, operations: u64, late: bool) -> Ended {
    let mut cache =
        Machine::new(function("kv_cache", &[("keys", CACHED), ("keep", "50ms"), ("out1", "2"), ("out2", "1")]));
    let mut server: BTreeMap<u64, u64> = BTreeMap::new();
    let mut done: BTreeMap<u64, u64> = BTreeMap::new();
    let mut under_way: Vec<Operation> = Vec::new();
    let mut delayed: Vec<Vec<u8>> = Vec::new();
    let mut ended = Ended::default();
    let mut now_ns = 0;
    while ended.operations < operations || !under_way.is_empty() {
        if under_way.len() < AT_ONCE && ended.operations < operations {
            // A few keys are requested often.
            let most = if rng.chance(1, 2) { 20 } else { KEYS as usize };
            let key = rng.below(most) as u64;
            if under_way.iter().all(|o| o.key != key) {
                ended.operations += 1;
                let value = rng.chance(1, 4).then(|| rng.next_u64());
                if value.is_some() {
                    ended.sets += 1
                } else {
                    ended.gets += 1
                }
                under_way.push(Operation { key, value, client: 4000 + rng.below(1000) as u16, flying: None });
            }
        }
        let longest_ns = if rng.chance(1, 1000) { 60_000_000 } else { 20_000 };
        now_ns += 1 + rng.below(longest_ns) as u64;
        if rng.chance(1, 100) {
            cache.sweep(now_ns).unwrap_or_else(|e| panic!("{e}"));
        }
        let choices = Choices::seeded(now_ns, 1, ended.operations);
        let mut cross = |port: u32, bytes: &[u8]| {
            let outcome =
                cache.process(&Packet { bytes, port: Port(port) }, &choices).unwrap_or_else(|e| panic!("{e}"));
            (outcome.verdict, outcome.outputs.into_iter().next().map(|o| o.bytes).unwrap_or_default())
        };
        if late && !delayed.is_empty() && rng.chance(1, 40) {
            let bytes = delayed.swap_remove(rng.below(delayed.len()));
            cross(2, &bytes);
        }
        let at = rng.below(under_way.len().max(1));
        let Some(operation) = under_way.get_mut(at) else { continue };
        let (key, client) = (operation.key, operation.client);
        let mut answer = None;
        match operation.flying.take() {
            // A client sends, or retransmits.
            None => {
                let (kind, value) = operation.value.map_or((GET, 0), |value| (SET, value));
                let (verdict, bytes) = cross(1, &frame(false, kind, key, value, client));
                match verdict {
                    Verdict::Tx => {
                        ended.answered += 1;
                        answer = Some(bytes);
                    }
                    Verdict::Redirect => operation.flying = Some((false, bytes)),
                    other => panic!("{other} for operation {operation:?}"),
                }
            }
            Some(_) if rng.chance(1, 20) => ended.lost += 1,
            // The server answers.
            Some((false, bytes)) => {
                let (kind, key, value) = read(&bytes);
                if kind == SET {
                    server.insert(key, value);
                }
                let value = server.get(&key).copied().unwrap_or(0);
                operation.flying = Some((true, frame(true, RESP, key, value, client)));
            }
            Some((true, bytes)) => {
                if late && rng.chance(1, 10) {
                    delayed.push(bytes.clone());
                    continue;
                }
                let (verdict, bytes) = cross(2, &bytes);
                assert_eq!(verdict, Verdict::Redirect);
                if rng.chance(1, 20) {
                    ended.lost += 1;
                } else {
                    answer = Some(bytes);
                }
            }
        }
        if let Some(bytes) = answer {
            let operation = under_way.swap_remove(at);
            let (kind, answered, value) = read(&bytes);
            assert_eq!((kind, answered), (RESP, operation.key));
            let expected = operation.value.unwrap_or_else(|| done.get(&key).copied().unwrap_or(0));
            if value != expected {
                ended.stale += 1;
            }
            done.insert(key, expected);
        }
    }
    ended
}
