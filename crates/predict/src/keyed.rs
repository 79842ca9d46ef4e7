// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From frames to arrivals: the keys with which each packet accesses each map.

use std::sync::Arc;

use flowloom_engine::Verdict;
use flowloom_ir::{Dataflow, Id};
use flowloom_isa::Program;

use super::arrival::{Arrival, Arrivals};
use super::columns::{Columns, LANES, WORDS};
use super::error::PredictError;
use super::frames::Frames;
use super::known::{Facts, Known};
use super::run::Run;
use flowloom_plan::Timing;

/// The packets of a program.
pub struct Keyed<F> {
    frames: F,
    facts: Facts,
    known: Vec<Known>,
    known_verdict: Known,
    evaluation: Evaluation,
    /// The current batch, and the number of its packets returned so far.
    batch: Vec<Arrival>,
    returned: usize,
    /// An error that is reported after the packets before it.
    failed: Option<PredictError>,
    is_ended: bool,
}

enum Evaluation {
    Columns(Box<Columns>),
    Run(Box<Run>),
}

impl<F: Frames> Keyed<F> {
    /// The accesses of these frames to the maps of a timing.
    ///
    /// If keys depend on the packet alone, only their cones are evaluated, and conditions that depend on map contents
    /// are assumed to hold; [`Known`] tells this for each map. With `is_exact`, or if a key depends on map contents,
    /// the whole program runs on each packet.
    ///
    /// # Errors
    /// The program has to run and cannot.
    pub fn new(
        program: &Arc<Program>,
        dataflow: &Dataflow,
        timing: &Timing,
        is_exact: bool,
        frames: F,
    ) -> Result<Keyed<F>, PredictError> {
        let facts = Facts::of(program, dataflow, timing);
        let maps = timing.maps.len();
        let is_certain = facts.maps.iter().all(|uses| matches!(uses.known, Known::Packet | Known::Unasked))
            && facts.verdict.is_some();
        let (evaluation, known, known_verdict) = if facts.needs_run() || (is_exact && !is_certain) {
            let known =
                facts.maps.iter().map(|uses| if uses.known == Known::Unasked { uses.known } else { Known::Run });
            (Evaluation::Run(Box::new(Run::new(program, dataflow.clone())?)), known.collect(), Known::Run)
        } else {
            let known = facts.maps.iter().map(|uses| uses.known).collect();
            let verdict = if facts.verdict.is_some() { Known::Packet } else { Known::Assumed };
            (Evaluation::Columns(Box::new(Columns::of(&facts.graph, &evaluated_nodes(&facts)))), known, verdict)
        };
        let empty = Arrival { keys: vec![0; maps], ..Arrival::default() };
        Ok(Keyed {
            frames,
            facts,
            known,
            known_verdict,
            evaluation,
            batch: vec![empty; LANES],
            returned: LANES,
            failed: None,
            is_ended: false,
        })
    }

    fn fill(&mut self) -> Result<(), PredictError> {
        self.returned = 0;
        match &mut self.evaluation {
            Evaluation::Columns(columns) => {
                let mut count = 0;
                while count < LANES && !self.is_ended {
                    let next = self.frames.next_frame().unwrap_or_else(|error| {
                        self.failed = Some(error);
                        None
                    });
                    let Some(frame) = next else {
                        self.is_ended = true;
                        break;
                    };
                    let packet = &mut self.batch[count];
                    (packet.time_ns, packet.len_bytes) = (frame.time_ns, frame.len_bytes);
                    columns.put(count, frame.bytes, frame.len_bytes, frame.port);
                    count += 1;
                }
                columns.run();
                self.batch.truncate(count);
                read(columns, &self.facts, &mut self.batch);
            }
            Evaluation::Run(run) => {
                self.batch.truncate(1);
                match self.frames.next_frame()? {
                    Some(frame) => run.packet(&self.facts, &frame, &mut self.batch[0])?,
                    None => {
                        self.is_ended = true;
                        self.batch.clear();
                    }
                }
            }
        }
        Ok(())
    }
}

impl<F: Frames> Arrivals for Keyed<F> {
    fn next(&mut self, packet: &mut Arrival) -> Result<bool, PredictError> {
        if self.returned >= self.batch.len() {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.is_ended {
                return Ok(false);
            }
            self.fill()?;
            if self.batch.is_empty() {
                return self.failed.take().map_or(Ok(false), Err);
            }
        }
        std::mem::swap(packet, &mut self.batch[self.returned]);
        self.returned += 1;
        Ok(true)
    }

    fn known(&self, map: usize) -> Known {
        self.known.get(map).copied().unwrap_or(Known::Unasked)
    }

    fn known_verdict(&self) -> Known {
        self.known_verdict
    }
}

/// The nodes whose columns are read.
fn evaluated_nodes(facts: &Facts) -> Vec<Id> {
    let mut evaluated_nodes = Vec::new();
    for uses in &facts.maps {
        evaluated_nodes.extend(uses.accesses.iter().flat_map(|access| access.key.iter().chain([&access.condition])));
        evaluated_nodes.extend(uses.changes.iter().map(|change| change.condition));
    }
    evaluated_nodes.extend(facts.verdict);
    evaluated_nodes.extend(facts.ends.into_iter().flat_map(|(head, tail)| [head, tail]));
    evaluated_nodes
}

/// Hashes a key part by part.
pub(super) fn hashed(hash: u64, part: u64) -> u64 {
    flowloom_random::mix(hash ^ part)
}

/// The length of a packet on departure.
pub(super) fn leaving_bytes(verdict: Option<u64>, ends: Option<(u64, u64)>, len_bytes: u32) -> u32 {
    let is_dropped = |number: u64| matches!(Verdict::from_number(number as u32), Verdict::Aborted | Verdict::Drop);
    if verdict.is_some_and(is_dropped) {
        return 0;
    }
    ends.map_or(len_bytes, |(head, tail)| (tail as u32 as i32).wrapping_sub(head as u32 as i32).max(1) as u32)
}

/// Reads the columns into packets.
fn read(columns: &Columns, facts: &Facts, batch: &mut [Arrival]) {
    for packet in batch.iter_mut() {
        (packet.uses, packet.writes) = (0, 0);
        packet.keys.resize(facts.maps.len(), 0);
    }
    for (map, uses) in facts.maps.iter().enumerate() {
        let (mut used, mut written) = ([0; WORDS], [0; WORDS]);
        // The first access that happens determines the key.
        for access in uses.accesses.iter().rev() {
            let happens = columns.conditions(access.condition);
            let mut hashes = [0; LANES];
            for part in &access.key {
                hashes.iter_mut().zip(columns.numbers(*part)).for_each(|(hash, part)| *hash = hashed(*hash, *part));
            }
            for (lane, packet) in batch.iter_mut().enumerate() {
                if is_set(&happens, lane) {
                    packet.keys[map] = hashes[lane];
                }
            }
            used = std::array::from_fn(|word| used[word] | happens[word]);
        }
        for change in &uses.changes {
            let happens = columns.conditions(change.condition);
            written = std::array::from_fn(|word| written[word] | happens[word]);
        }
        for (lane, packet) in batch.iter_mut().enumerate() {
            packet.uses |= u64::from(is_set(&used, lane)) << map;
            packet.writes |= u64::from(is_set(&written, lane)) << map;
        }
    }
    let verdicts = facts.verdict.map(|id| columns.numbers(id));
    let ends = facts.ends.map(|(head, tail)| (columns.numbers(head), columns.numbers(tail)));
    for (lane, packet) in batch.iter_mut().enumerate() {
        let verdict = verdicts.map(|all| all[lane]);
        let ends = ends.map(|(heads, tails)| (heads[lane], tails[lane]));
        packet.leaving_bytes = leaving_bytes(verdict, ends, packet.len_bytes);
    }
}

fn is_set(bits: &[u64; WORDS], lane: usize) -> bool {
    bits[lane / 64] >> (lane % 64) & 1 == 1
}
