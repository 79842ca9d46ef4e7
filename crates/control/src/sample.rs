// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples of packets, for the flows with the most packets.
//!
//! Packets are sampled at random distances whose mean is the gap. The gap follows the rate, so that some thousand
//! packets a second are sampled, all of them at low rates; a sample stands for as many packets as the gap at its time,
//! which keeps estimates free of bias. The last [`KEPT`] samples are kept. The share of a flow with n samples has a
//! standard error of about 1 / sqrt(n) of itself: 10% for 100 samples.

use std::collections::{HashMap, VecDeque};

use flowloom_engine::{Frame, Port};
use flowloom_wire::{FieldId, Graph, KeySpec, Layers};

use crate::report::{FlowShare, TopFlows};

/// The number of samples that are kept.
const KEPT: usize = 1 << 14;
/// The age of the oldest sample that counts.
const WINDOW_NS: u64 = 10_000_000_000;
/// The number of samples between two adaptations of the gap.
const ADAPT_EVERY: u32 = 512;
/// The shortest and the longest time of these samples: 2,560 to 10,240 samples a second.
const ADAPT_NS: (u64, u64) = (50_000_000, 200_000_000);
/// The longest gap.
const MAX_GAP: u32 = 1 << 16;
/// The fields of keys, best first; a packet is counted by the first key that it has.
const KEYS: [&[&str]; 3] = [
    &["ip.src", "ip.dst", "ip.proto", "l4.sport", "l4.dport"],
    &["ip.src", "ip.dst", "ip.proto"],
    &["eth.src", "eth.dst"],
];

/// The index of a kind of key, and the key.
type Key = (u8, Box<[u8]>);

#[derive(Debug, Clone)]
struct Sample {
    time_ns: u64,
    port: Port,
    /// The packets that it stands for.
    weight: u32,
    len_bytes: u32,
    key: Key,
}

/// The samples of a packet loop.
#[derive(Debug, Clone)]
pub struct Samples {
    kept: VecDeque<Sample>,
    specs: Vec<KeySpec>,
    random: u64,
    gap: u32,
    /// The packets before the next sample.
    skip: u32,
    /// Samples since the last adaptation, and its time.
    since: (u32, u64),
}

impl Samples {
    /// No samples yet.
    pub fn new(seed: u64) -> Samples {
        let field = |name: &&str| FieldId::by_name(name);
        let specs = KEYS.iter().filter_map(|names| {
            let fields: Option<Vec<FieldId>> = names.iter().map(field).collect();
            KeySpec::of_fields(&fields?, false).ok()
        });
        Samples { kept: VecDeque::new(), specs: specs.collect(), random: seed | 1, gap: 1, skip: 0, since: (0, 0) }
    }

    /// Takes samples of a batch, before it runs.
    ///
    /// # Cost
    /// A comparison for a batch without a sample.
    #[inline]
    pub fn take(&mut self, frames: &[Frame<'_>]) {
        let mut at = self.skip as usize;
        while let Some(frame) = frames.get(at) {
            at += 1 + self.sample(frame) as usize;
        }
        self.skip = (at - frames.len()) as u32;
    }

    /// Samples a packet; returns the packets to skip.
    #[cold]
    fn sample(&mut self, frame: &Frame<'_>) -> u32 {
        let bytes = frame.bytes();
        let layers = Layers::parse(Graph::standard(), bytes);
        let key = |spec: &KeySpec| spec.extract(&layers, bytes, frame.port.0, &[]);
        let found = self.specs.iter().enumerate().find_map(|(kind, spec)| Some((kind as u8, key(spec)?)));
        let key = found.map_or((u8::MAX, Box::default()), |(kind, key)| (kind, key.into_boxed_slice()));
        let (time_ns, weight) = (frame.time_ns, self.gap);
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Sample { time_ns, port: frame.port, weight, len_bytes: bytes.len() as u32, key });
        self.since.0 += 1;
        if self.since.0 == ADAPT_EVERY {
            let elapsed = time_ns.saturating_sub(self.since.1);
            if elapsed < ADAPT_NS.0 {
                self.gap = (self.gap * 2).min(MAX_GAP);
            } else if elapsed > ADAPT_NS.1 {
                self.gap = (self.gap / 2).max(1);
            }
            self.since = (0, time_ns);
        }
        // Uniform from 0 to twice the gap less one packet: the mean distance is the gap.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % u64::from(2 * self.gap - 1)) as u32
    }

    /// The text of a key.
    fn text(&self, kind: u8, key: &[u8]) -> String {
        let Some(spec) = self.specs.get(usize::from(kind)) else { return "not Ethernet".to_owned() };
        let mut values = spec.parts().iter().zip(spec.offsets_bytes()).map(|(part, at)| {
            let bytes = key.get(*at..at + part.key_bytes()).unwrap_or_default();
            bytes.iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte))
        });
        let mut next = || values.next().unwrap_or(0);
        let address = |bits: u128| {
            let address = std::net::Ipv6Addr::from_bits(bits);
            address.to_ipv4_mapped().map_or_else(|| address.to_string(), |v4| v4.to_string())
        };
        let with_port = |bits: u128, port: u128| match std::net::Ipv6Addr::from_bits(bits).to_ipv4_mapped() {
            Some(_) => format!("{}:{port}", address(bits)),
            None => format!("[{}]:{port}", address(bits)),
        };
        let mac = |bits: u128| {
            let bytes = &bits.to_be_bytes()[10..];
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
        };
        let (from, to) = (next(), next());
        match kind {
            0 => {
                let (protocol, sport, dport) = (next(), next(), next());
                format!("{} {} > {}", protocol_name(protocol), with_port(from, sport), with_port(to, dport))
            }
            1 => format!("{} {} > {}", protocol_name(next()), address(from), address(to)),
            _ => format!("{} > {}", mac(from), mac(to)),
        }
    }

    /// The `most` flows with the most packets of the last ten seconds, of the samples of all `workers`.
    pub fn top(workers: &[Samples], now_ns: u64, most: usize) -> TopFlows {
        let mut flows: HashMap<(Port, &Key), (u64, u64, u64)> = HashMap::new();
        let recent = |sample: &&Sample| sample.time_ns.saturating_add(WINDOW_NS) > now_ns;
        let mut oldest_ns = now_ns;
        let (mut samples, mut packets) = (0, 0);
        for worker in workers {
            for sample in worker.kept.iter().filter(recent) {
                let weight = u64::from(sample.weight);
                let flow = flows.entry((sample.port, &sample.key)).or_default();
                *flow = (flow.0 + 1, flow.1 + weight, flow.2 + weight * u64::from(sample.len_bytes));
                (samples, packets) = (samples + 1, packets + weight);
                oldest_ns = oldest_ns.min(sample.time_ns);
            }
        }
        let mut sorted: Vec<_> = flows.into_iter().collect();
        sorted.sort_by(|a, b| b.1.1.cmp(&a.1.1).then_with(|| a.0.cmp(&b.0)));
        let distinct = sorted.len() as u64;
        let flow = |((port, (kind, key)), (samples, estimate, bytes)): ((Port, &Key), (u64, u64, u64))| {
            let share = estimate as f64 / packets as f64;
            let flow = workers.first().map(|worker| worker.text(*kind, key)).unwrap_or_default();
            FlowShare { flow, port: port.0, samples, share, packets: estimate, bytes }
        };
        TopFlows {
            method: "samples of packets".to_owned(),
            samples,
            packets,
            span_s: (now_ns - oldest_ns) as f64 / 1e9,
            distinct,
            flows: sorted.into_iter().take(most).map(flow).collect(),
        }
    }
}

fn protocol_name(number: u128) -> String {
    match number {
        1 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        58 => "ICMPv6".to_owned(),
        132 => "SCTP".to_owned(),
        other => format!("protocol {other}"),
    }
}

#[cfg(test)]
mod tests {
    use flowloom_testkit::{PacketBuilder, Rng};

    use super::*;

    fn packet(flow: u16) -> Vec<u8> {
        PacketBuilder::new().ipv4([10, 0, 0, flow as u8], [10, 1, 0, 1]).udp(1000 + flow, 53).build()
    }

    /// Shares of flows are near the truth at every rate, and few packets are sampled at a high one.
    #[test]
    fn shares_are_near_the_truth() {
        for gap_ns in [1_000_000, 10_000, 100] {
            let mut rng = Rng::new(7);
            let mut samples = Samples::new(3);
            let mut buffers: Vec<Vec<u8>> = (0..10_u16).map(packet).collect();
            let (mut time_ns, mut truth) = (1_000_000_000, [0_u64; 10]);
            for _ in 0..4000 {
                let mut frames = Vec::new();
                let mut rest = &mut buffers[..];
                // Flow f is in a batch with probability 1 / (f + 1).
                let mut number = 0;
                while let Some((first, after)) = rest.split_first_mut() {
                    let len = first.len();
                    if rng.below(number + 1) == 0 {
                        truth[number] += 1;
                        time_ns += gap_ns;
                        frames.push(Frame::new(first, 0, len, Port(1), time_ns));
                    }
                    (rest, number) = (after, number + 1);
                }
                samples.take(&frames);
            }
            let window = truth.iter().sum::<u64>().min(WINDOW_NS / gap_ns) as f64;
            let top = Samples::top(&[samples], time_ns, 10);
            assert!(top.packets as f64 > 0.8 * window && (top.packets as f64) < 1.2 * window, "{gap_ns}: {top:?}");
            assert!(top.samples <= KEPT as u64, "{top:?}");
            let all = truth.iter().sum::<u64>() as f64;
            assert_eq!(top.distinct, 10);
            assert_eq!(top.flows[0].flow, "UDP 10.0.0.0:1000 > 10.1.0.1:53", "{top:?}");
            for (flow, truth) in top.flows.iter().zip(truth) {
                let expected = truth as f64 / all;
                let error = (flow.share - expected).abs() / expected;
                assert!(error < 5.0 / (flow.samples as f64).sqrt(), "{gap_ns}: {flow:?}, expected {expected}");
            }
        }
    }
}
