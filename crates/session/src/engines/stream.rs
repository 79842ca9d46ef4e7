// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets through the streams of a simulated design: words at the input, words and verdicts at the output.

use std::collections::VecDeque;

use flowloom_cosim::{CosimError, End, Event, Model, Port, Simulation, Stalls, Transfer, Word};
use flowloom_engine::Choices;

/// Cycles after a reset, after which the pipeline is asked whether its maps are cleared; and how often at most.
const CLEARING_CYCLES: u32 = 1 << 10;
pub(super) const MAX_CLEARING: usize = 1 << 16;
/// The monitors: verdicts of packets, and packets that are sent besides.
const DONE_MONITOR: usize = 0;
const EXTRA_MONITOR: usize = 1;
/// The bytes after the end of a packet at the input, which the pipeline must not read.
const AFTER_END: u8 = 0xa5;

/// A packet at the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The ingress port.
    pub port: u32,
    /// The arrival time in nanoseconds.
    pub now_ns: u64,
    /// The idle cycles before its first word.
    pub delay_cycles: u32,
}

/// The result of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// The verdict's number in XDP; [`Departure::SLOW`] for the slow path.
    pub verdict: u8,
    /// Egress port and bytes of the packets that it sends besides itself, in order.
    pub extra: Vec<(u32, Vec<u8>)>,
    /// Egress port and bytes, unless the packet is dropped.
    pub sent: Option<(u32, Vec<u8>)>,
    /// The cycle in which its last word was taken at the input.
    pub taken_cycle: u64,
    /// The cycle of its verdict, in which it is no longer in the core.
    pub done_cycle: u64,
    /// The cycle of the first word at the output, of an extra packet or its own, or of its verdict without any.
    pub first_cycle: u64,
    /// The cycle of the last word at the output, or of its verdict without any.
    pub last_cycle: u64,
}

impl Departure {
    /// The verdict of a packet that leaves for the slow path as it came.
    pub const SLOW: u8 = 5;
    /// The verdict of a packet that leaves through all ports of a map, whose index is in place of the port.
    pub const ALL: u8 = 6;
    /// The same, except the ingress port.
    pub const OTHERS: u8 = 7;

    /// The verdict at the output of packets that are sent besides.
    pub(super) const EXTRA: u8 = 0;

    /// Whether the packet leaves the pipeline.
    pub(super) fn is_sent(verdict: u8) -> bool {
        verdict >= 2
    }
}

/// The pattern of stalls at the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputStalls {
    /// The cycles of 256 in which the output is not ready, drawn at random.
    pub of_256: u8,
    /// The seed.
    pub seed: u32,
}

/// The streams of a design for packets: ports, and the bytes of a word.
#[derive(Debug)]
pub(super) struct PacketStream {
    pub(super) valid: Port,
    pub(super) in_ready: Port,
    pub(super) last: Port,
    pub(super) data: Port,
    pub(super) keep: Port,
    pub(super) port: Port,
    pub(super) time: Port,
    pub(super) restart: Port,
    /// Pipelines of programs that draw random numbers.
    pub(super) random: Option<Port>,
    pub(super) out_valid: Port,
    pub(super) out_ready: Port,
    pub(super) out_data: Port,
    pub(super) out_keep: Port,
    pub(super) out_last: Port,
    pub(super) out_port: Port,
    pub(super) out_verdict: Port,
    pub(super) done_valid: Port,
    pub(super) done_verdict: Port,
    /// Pipelines whose packets send others.
    pub(super) extra_valid: Option<Port>,
    pub(super) ready: Port,
    pub(super) reset: Port,
    pub(super) word_bytes: usize,
    /// The name of the design.
    pub(super) top: String,
    input_bytes: usize,
}

impl PacketStream {
    /// The streams of a model, with random numbers and packets that are sent besides, if its packets have them.
    pub(super) fn of(model: &Model, word_bytes: usize, draws: bool, sends: bool) -> Result<PacketStream, CosimError> {
        let (input, output) = (|name: &str| model.input(name), |name: &str| model.output(name));
        Ok(PacketStream {
            valid: input("in_valid_i")?,
            in_ready: output("in_ready_o")?,
            last: input("in_last_i")?,
            data: input("in_data_i")?,
            keep: input("in_keep_i")?,
            port: input("in_port_i")?,
            time: input("in_time_i")?,
            restart: input("restart_i")?,
            random: draws.then(|| input("in_random_i")).transpose()?,
            out_valid: output("out_valid_o")?,
            out_ready: input("out_ready_i")?,
            out_data: output("out_data_o")?,
            out_keep: output("out_keep_o")?,
            out_last: output("out_last_o")?,
            out_port: output("out_port_o")?,
            out_verdict: output("out_verdict_o")?,
            done_valid: output("done_valid_o")?,
            done_verdict: output("done_verdict_o")?,
            extra_valid: sends.then(|| output("extra_valid_o")).transpose()?,
            ready: output("ready_o")?,
            reset: input("rst_i")?,
            word_bytes,
            input_bytes: model.input_bytes(),
            top: model.top().to_owned(),
        })
    }

    /// Resets the design and waits until its tables are cleared. Packets in it are lost.
    ///
    /// # Errors
    /// The simulation has ended.
    pub(super) fn reset(&self, simulation: &mut Simulation) -> Result<(), CosimError> {
        let mut inputs = vec![0; self.input_bytes];
        self.reset.set(&mut inputs, 1);
        simulation.run(&inputs)?;
        // Without words, nothing but time passes, and no outputs are handed over.
        let rest = vec![0; self.input_bytes];
        let idle = CLEARING_CYCLES;
        let end = End { idle_cycles: idle, settle_cycles: idle, monitored: 0 };
        let wait = Transfer { rest: &rest, words: &[], accesses: &[], stalls: Stalls { of_256: 0, seed: 0 }, end };
        for _ in 0..MAX_CLEARING {
            simulation.transfer(&wait)?;
            let outputs = simulation.run(&rest)?;
            if self.ready.get(&outputs) == 1 {
                return Ok(());
            }
        }
        Err(CosimError::Stuck { top: self.top.clone(), what: "its maps are not ready after a reset".to_owned() })
    }

    /// Lets the times of the next packets be before those of the last ones. No packet may be in the pipeline.
    ///
    /// # Errors
    /// The simulation has ended.
    pub(super) fn restart_times(&self, simulation: &mut Simulation) -> Result<(), CosimError> {
        let mut inputs = vec![0; self.input_bytes];
        self.restart.set(&mut inputs, 1);
        simulation.run(&inputs).map(drop)
    }

    /// The words of packets at the input, and the number of words before each packet and after the last one.
    pub(super) fn words(&self, packets: &[Arrival<'_>], random: &[Choices]) -> (Vec<Word>, Vec<usize>) {
        let mut words = Vec::new();
        let mut before = vec![0];
        for (place, packet) in packets.iter().enumerate() {
            let chunks = packet.bytes.chunks(self.word_bytes);
            let count = chunks.len();
            for (number, chunk) in chunks.enumerate() {
                let mut inputs = vec![0; self.input_bytes];
                let ports = self;
                ports.valid.set(&mut inputs, 1);
                ports.last.set(&mut inputs, u64::from(number + 1 == count));
                let mut data = vec![AFTER_END; self.word_bytes];
                data[..chunk.len()].copy_from_slice(chunk);
                ports.data.set_bytes(&mut inputs, &data);
                let keep: Vec<u8> = (0..self.word_bytes / 8).map(|byte| kept(chunk.len(), 8 * byte)).collect();
                ports.keep.set_bytes(&mut inputs, &keep);
                ports.port.set(&mut inputs, packet.port.into());
                ports.time.set(&mut inputs, packet.now_ns);
                if let (Some(port), Some(choices)) = (&ports.random, random.get(place)) {
                    let bytes: Vec<u8> = choices.random.iter().flat_map(|word| word.to_le_bytes()).collect();
                    port.set_bytes(&mut inputs, &bytes[..port.len_bytes()]);
                }
                words.push(Word { delay_cycles: if number == 0 { packet.delay_cycles } else { 0 }, inputs });
            }
            before.push(words.len());
        }
        (words, before)
    }

    /// The result of each packet, from what happened in which cycle.
    pub(super) fn departures(&self, packets: &[Arrival<'_>], events: &[Event]) -> Result<Vec<Departure>, SendError> {
        let ports = self;
        let mut departures: Vec<Departure> = Vec::with_capacity(packets.len());
        let taken: Vec<u64> = events.iter().filter(|event| event.is_taken()).map(|event| event.cycle).collect();
        let words = packets.iter().map(|packet| packet.bytes.len().div_ceil(self.word_bytes));
        let ends: Vec<usize> = words
            .scan(0, |sum, words| {
                *sum += words;
                Some(*sum)
            })
            .collect();
        // By output packet, its input packet and its verdict: extra packets come before the packet that sends them.
        let mut expected: VecDeque<(usize, u8)> = VecDeque::new();
        let mut extra = 0;
        for event in events {
            if event.is_monitored(EXTRA_MONITOR) {
                expected.push_back((departures.len(), Departure::EXTRA));
                extra += 1;
            }
            if !event.is_monitored(DONE_MONITOR) {
                continue;
            }
            let verdict = ports.done_verdict.get(&event.outputs) as u8;
            expected.extend(Departure::is_sent(verdict).then_some((departures.len(), verdict)));
            let end = ends.get(departures.len()).and_then(|end| taken.get(end - 1));
            let (cycle, taken_cycle) = (event.cycle, end.copied().unwrap_or(event.cycle));
            let (done_cycle, first_cycle, last_cycle) = (cycle, cycle, cycle);
            let (extra, sent) = (Vec::new(), None);
            departures.push(Departure { verdict, extra, sent, taken_cycle, done_cycle, first_cycle, last_cycle });
        }
        let (mut whole, mut is_first) = (0, true);
        for event in events.iter().filter(|event| event.is_given()) {
            let unexpected = || SendError::Unexpected { cycle: event.cycle };
            let (number, verdict) = expected.front().copied().ok_or_else(unexpected)?;
            let departure = departures.get_mut(number).ok_or_else(unexpected)?;
            let found = ports.out_verdict.get(&event.outputs) as u8;
            if found != verdict {
                return Err(SendError::Verdict { cycle: event.cycle, found, expected: verdict });
            }
            let is_extra = verdict == Departure::EXTRA;
            let port = ports.out_port.get(&event.outputs) as u32;
            if is_first && departure.sent.is_none() && departure.extra.is_empty() {
                departure.first_cycle = event.cycle;
            }
            if is_first && is_extra {
                departure.extra.push((port, Vec::new()));
            }
            let own = &mut departure.sent;
            let sent = match is_extra {
                true => departure.extra.last_mut(),
                false => Some(own.get_or_insert_with(|| (port, Vec::new()))),
            };
            let keep = ports.out_keep.bytes(&event.outputs);
            let len: usize = keep.iter().map(|byte| byte.count_ones() as usize).sum();
            let (data, after) = ports.out_data.bytes(&event.outputs).split_at(len);
            let is_prefix = keep.iter().enumerate().all(|(byte, bits)| *bits == kept(len, 8 * byte));
            if !is_prefix || after.iter().any(|byte| *byte != 0) {
                return Err(SendError::AfterEnd { cycle: event.cycle, len });
            }
            sent.into_iter().for_each(|(_, bytes)| bytes.extend(data));
            departure.last_cycle = event.cycle;
            is_first = ports.out_last.get(&event.outputs) == 1;
            if is_first {
                expected.pop_front();
                whole += 1;
            }
        }
        if departures.len() != packets.len() || !expected.is_empty() || !is_first {
            return Err(SendError::Missing { given: packets.len(), verdicts: departures.len(), extra, whole });
        }
        Ok(departures)
    }
}

/// An error of packets in simulation.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The simulation failed.
    #[error(transparent)]
    Cosim(#[from] CosimError),
    /// Packets did not come out, or not as a whole.
    #[error(
        "the pipeline was given {given} packets and gave {verdicts} verdicts; it announced {extra} extra packets, and {whole} \
         packets left as a whole"
    )]
    Missing {
        /// The packets given.
        given: usize,
        /// The verdicts.
        verdicts: usize,
        /// Packets that packets send besides themselves.
        extra: usize,
        /// Whole packets at the output, extra ones included.
        whole: usize,
    },
    /// A word with another verdict than that of its packet; 0 is an extra packet.
    #[error(
        "the pipeline gave a word with the verdict {found} in cycle {cycle}, expected {expected}; 0 is an extra packet"
    )]
    Verdict {
        /// The cycle.
        cycle: u64,
        /// The verdict at the output.
        found: u8,
        /// The verdict announced before.
        expected: u8,
    },
    /// Bytes after the end of a packet, which are 0 and not kept.
    #[error("the pipeline gave a word of {len} bytes with others after them, in cycle {cycle}")]
    AfterEnd {
        /// The cycle.
        cycle: u64,
        /// The bytes that are part of the packet.
        len: usize,
    },
    /// An access of the host is not possible, or was not made.
    #[error("an access of the host to map {map}: {why}")]
    Access {
        /// The index of the map.
        map: u32,
        /// The reason.
        why: &'static str,
    },
    /// A word without a packet, or an answer without an access.
    #[error("the pipeline gave a word or an answer that belongs to nothing it was given, in cycle {cycle}")]
    Unexpected {
        /// The cycle.
        cycle: u64,
    },
}

/// The bits of eight bytes of a word, from `first` on, of which `len` bytes are part of a packet.
fn kept(len: usize, first: usize) -> u8 {
    match len.saturating_sub(first) {
        8.. => u8::MAX,
        some => (1 << some) - 1,
    }
}
