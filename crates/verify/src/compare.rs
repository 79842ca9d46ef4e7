//! Two engines side by side, by run record.
//!
//! The reference and the target get the same packets in the same order with the same choices. Where the target chooses what
//! full tables forget, it runs each packet first, and the reference forgets the same; if that needs no room there, the
//! target chose wrongly. Outcomes are compared
//! after every packet, snapshots now and then and at the end. Where only the snapshots differ, the packet that made the
//! difference is found by bisection, so that what is reported, and what shrinking starts from, ends with the culprit.

use std::borrow::Cow;
use std::collections::BTreeMap;

use flowloom_context::ContextLayout;
use flowloom_efsm::difference::{StateDifference, state_differences};
use flowloom_engine::{Choices, Datapath, EngineError, Eviction, Outcome, Refusal, RunRecord, Snapshot};

use crate::arrival::{Arrival, Clock};
use crate::difference::{Disagreement, Kind};
use crate::undefined::Undefined;

/// How a comparison is run.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Seed of the random values that packets draw.
    pub seed: u64,
    /// Snapshots are compared after so many packets, and at the end.
    pub snapshot_every: usize,
    /// How often both engines sweep; `None` for never.
    pub sweep_ns: Option<u64>,
    /// What the records of the maps mean, by map name, for the decoding of differences.
    pub layouts: BTreeMap<String, ContextLayout>,
    /// The contents of the maps that both begin with; maps that it does not name are as they are loaded.
    pub state: Snapshot,
    /// Whether the program is somebody else's: its maps may have names that are those of Flowloom's instruments in our own.
    pub is_foreign: bool,
    /// Bytes that leave the program and depend on the kernel, as its proof says: they are not compared.
    pub undefined: Undefined,
}

impl Default for CompareOptions {
    fn default() -> CompareOptions {
        CompareOptions {
            seed: 0,
            snapshot_every: 4096,
            sweep_ns: None,
            layouts: BTreeMap::new(),
            state: Snapshot::default(),
            is_foreign: false,
            undefined: Undefined::default(),
        }
    }
}

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The engine that was compared with the reference.
    pub target: String,
    /// Packets whose outcomes were compared.
    pub packets_compared: u64,
    /// Snapshots that were compared.
    pub snapshots_compared: u64,
    /// Packets that the target cannot take, by reason: neither engine got them.
    pub refused: BTreeMap<Refusal, u64>,
    /// Packets by verdict of the reference, by the verdict's number.
    pub verdicts: [u64; 5],
    /// The first disagreement, where there is one; nothing was run after it.
    pub disagreement: Option<Disagreement>,
    /// What was run, in order.
    pub record: RunRecord,
}

impl Report {
    /// Whether the engines agreed on everything that was compared.
    pub fn agrees(&self) -> bool {
        self.disagreement.is_none()
    }

    /// All packets that the target could not take.
    pub fn packets_refused(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// Runs `packets` on both engines, from the state that the options name.
///
/// # Errors
/// An engine could not do its work. A target that does what no verified program does (an access outside of its memory)
/// is a disagreement instead.
pub fn compare(
    reference: &mut dyn Datapath,
    target: &mut dyn Datapath,
    packets: &[Arrival],
    options: &CompareOptions,
) -> Result<Report, EngineError> {
    let mut pair = Pair { reference, target, options };
    let name = pair.target.name().to_owned();
    let run = pair.run(packets, Snapshots::Every(options.snapshot_every.max(1)))?;
    let mut report = Report {
        target: name,
        packets_compared: run.compared,
        snapshots_compared: run.snapshots,
        refused: run.refused,
        verdicts: run.verdicts,
        disagreement: None,
        record: run.record,
    };
    let Some(mut finding) = run.finding else { return Ok(report) };
    if finding.kind == Kind::State
        && let Some(position) = finding.position
    {
        let culprit = pair.bisect(packets, run.last_equal, position + 1)?;
        // Run again up to the culprit only, for the states and outcomes right after it.
        if let Some(found) = pair.run(&packets[..culprit], Snapshots::AtEnd)?.finding {
            finding = found;
            report.record.entries.retain(|&(index, _, _)| index < culprit as u64);
            report.packets_compared = report.record.entries.len() as u64;
            report.verdicts = [0; 5];
            for (_, _, verdict) in &report.record.entries {
                report.verdicts[verdict.number() as usize] += 1;
            }
        }
    }
    let packet = finding.position.and_then(|at| packets.get(at)).cloned();
    report.disagreement = Some(pair.describe(finding, packet)?);
    Ok(report)
}

/// Runs packets that come one by one on both engines and keeps none of them: the report has no record, and where only the
/// states differ, the packet is the one after which that was seen. [`compare`] on the packets up to there finds the culprit.
///
/// # Errors
/// As for [`compare`].
pub fn compare_stream(
    reference: &mut dyn Datapath,
    target: &mut dyn Datapath,
    packets: &mut dyn Iterator<Item = Arrival>,
    options: &CompareOptions,
) -> Result<Report, EngineError> {
    let mut pair = Pair { reference, target, options };
    let name = pair.target.name().to_owned();
    let every = Snapshots::Every(options.snapshot_every.max(1));
    let run = pair.run_over(packets.map(Cow::Owned), every, false)?;
    let disagreement = run.finding.map(|finding| pair.describe(finding, run.last)).transpose()?;
    Ok(Report {
        target: name,
        packets_compared: run.compared,
        snapshots_compared: run.snapshots,
        refused: run.refused,
        verdicts: run.verdicts,
        disagreement,
        record: run.record,
    })
}

/// When snapshots are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Snapshots {
    /// After so many packets and at the end.
    Every(usize),
    /// At the end.
    AtEnd,
}

/// A run of both engines.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) compared: u64,
    pub(crate) snapshots: u64,
    pub(crate) refused: BTreeMap<Refusal, u64>,
    pub(crate) verdicts: [u64; 5],
    pub(crate) record: RunRecord,
    /// After so many packets the snapshots were equal.
    pub(crate) last_equal: usize,
    pub(crate) finding: Option<Finding>,
    /// The packet that was run last.
    last: Option<Arrival>,
}

/// A disagreement in its raw form.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    /// The packet after which it was seen; `None` before the first.
    pub(crate) position: Option<usize>,
    now_ns: u64,
    expected: Option<Outcome>,
    found: Option<Outcome>,
    fault: Option<String>,
    state: Vec<StateDifference>,
}

/// What is wrong with choosing these.
fn needless(evictions: &[Eviction]) -> String {
    let entries = evictions.iter().map(|eviction| format!("key {:02x?} of map `{}`", eviction.key, eviction.map));
    format!("forgot what it needed no room for: {}", entries.collect::<Vec<_>>().join(", "))
}

/// Two engines that are run in step.
pub(crate) struct Pair<'a> {
    pub(crate) reference: &'a mut dyn Datapath,
    pub(crate) target: &'a mut dyn Datapath,
    pub(crate) options: &'a CompareOptions,
}

impl Pair<'_> {
    pub(crate) fn reset(&mut self) -> Result<(), EngineError> {
        self.reference.restore(&self.options.state)?;
        self.target.restore(&self.options.state)
    }

    /// Runs both from their first state and stops at the first disagreement.
    pub(crate) fn run(&mut self, packets: &[Arrival], snapshots: Snapshots) -> Result<Run, EngineError> {
        self.run_over(packets.iter().map(Cow::Borrowed), snapshots, true)
    }

    /// Like [`Pair::run`], on packets that come one by one; `record`: whether what was run is recorded.
    fn run_over<'p>(
        &mut self,
        packets: impl Iterator<Item = Cow<'p, Arrival>>,
        snapshots: Snapshots,
        record: bool,
    ) -> Result<Run, EngineError> {
        self.reset()?;
        let mut run = Run::default();
        let mut packets = packets.enumerate().peekable();
        let mut count = 0;
        let mut clock = Clock::new(self.options.sweep_ns);
        let mut last = (None, 0);
        while let Some((position, arrival)) = packets.next() {
            count = position + 1;
            let packet = arrival.packet();
            if let Some(refusal) = self.target.refuses(&packet).or_else(|| self.reference.refuses(&packet)) {
                *run.refused.entry(refusal).or_default() += 1;
                continue;
            }
            let (now_ns, sweep) = clock.advance(arrival.time_ns);
            if let Some(moment_ns) = sweep {
                self.reference.sweep(moment_ns)?;
                self.target.sweep(moment_ns)?;
            }
            let choices = Choices::seeded(now_ns, self.options.seed, position as u64);
            // Who chooses what full tables forget runs first; the other one follows.
            let mut ran_first = None;
            if self.target.chooses_victims() {
                ran_first = Some(self.target.process(&packet, &choices));
                self.reference.evict_next(&self.target.evicted());
            }
            let expected = self.reference.process(&packet, &choices)?;
            let illegal = self.reference.not_evicted();
            if record {
                run.record.entries.push((position as u64, choices, expected.verdict));
            }
            run.compared += 1;
            run.verdicts[expected.verdict.number() as usize] += 1;
            last = (Some(position), now_ns);
            let found = ran_first.unwrap_or_else(|| self.target.process(&packet, &choices));
            let (kind, found, fault) = match found {
                Ok(found) if !illegal.is_empty() => (Some(Kind::Fault), Some(found), Some(needless(&illegal))),
                Ok(found) => (self.options.undefined.outcome_kind(&expected, &found), Some(found), None),
                Err(fault @ EngineError::Fault { .. }) => (Some(Kind::Fault), None, Some(fault.to_string())),
                Err(other) => return Err(other),
            };
            if let Some(kind) = kind {
                let state = Vec::new();
                run.finding = Some(Finding {
                    kind,
                    position: Some(position),
                    now_ns,
                    expected: Some(expected),
                    found,
                    fault,
                    state,
                });
                run.last = Some(arrival.into_owned());
                return Ok(run);
            }
            if let Snapshots::Every(n) = snapshots
                && (position + 1) % n == 0
                && packets.peek().is_some()
                && self.compare_states(&mut run, last, position + 1)?
            {
                run.last = Some(arrival.into_owned());
                return Ok(run);
            }
            if packets.peek().is_none() {
                run.last = Some(arrival.into_owned());
            }
        }
        self.compare_states(&mut run, last, count)?;
        Ok(run)
    }

    fn compare_states(
        &mut self,
        run: &mut Run,
        (position, now_ns): (Option<usize>, u64),
        packets: usize,
    ) -> Result<bool, EngineError> {
        run.snapshots += 1;
        let state = self.state_differences()?;
        if state.is_empty() {
            run.last_equal = packets;
            return Ok(false);
        }
        run.finding =
            Some(Finding { kind: Kind::State, position, now_ns, expected: None, found: None, fault: None, state });
        Ok(true)
    }

    fn state_differences(&mut self) -> Result<Vec<StateDifference>, EngineError> {
        let mut expected = self.reference.snapshot()?;
        let mut found = self.target.snapshot()?;
        self.options.undefined.mask(&mut expected);
        self.options.undefined.mask(&mut found);
        Ok(state_differences(&expected, &found, &self.options.layouts, self.options.is_foreign))
    }

    /// How many packets it takes until the states differ, when they are equal after `equal` packets and differ after
    /// `differ`: the last of them is the culprit.
    ///
    /// # Cost
    /// Runs the packets from the start, once for each bit of `differ - equal`.
    fn bisect(&mut self, packets: &[Arrival], mut equal: usize, mut differ: usize) -> Result<usize, EngineError> {
        while differ - equal > 1 {
            let middle = equal + (differ - equal) / 2;
            if self.run(&packets[..middle], Snapshots::AtEnd)?.finding.is_some() {
                differ = middle;
            } else {
                equal = middle;
            }
        }
        Ok(differ)
    }

    fn describe(&mut self, mut finding: Finding, packet: Option<Arrival>) -> Result<Disagreement, EngineError> {
        if finding.kind != Kind::State && finding.kind != Kind::Fault {
            finding.state = self.state_differences()?;
        }
        Ok(Disagreement {
            kind: finding.kind,
            position: finding.position,
            now_ns: finding.now_ns,
            packet,
            expected: finding.expected,
            found: finding.found,
            fault: finding.fault,
            state: finding.state,
        })
    }
}
