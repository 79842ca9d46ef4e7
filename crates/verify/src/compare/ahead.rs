// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the reference in a thread of its own, and the target after it.
//!
//! ```text
//!  this thread     read stretch 2 │ target: stretch 0, outcomes │ read 3 │ target: 1 …
//!  reference          stretch 0   │ stretch 1                   │ stretch 2 …
//! ```
//!
//! A stretch is as many packets as the target takes at once, or fewer before a comparison of snapshots and where
//! packets are long. The reference tells which packets it refuses, so the clock is its own: the target gets the times
//! of the packets that both run. Reading pauses while snapshots are compared, because their number of entries decides
//! where the next comparison is.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};

use flowloom_engine::{Choices, Datapath, Digest, EngineError, Outcome, Refusal, Snapshot};

use super::{CompareOptions, Found, Pair, Ran, Run};
use crate::arrival::{Arrival, Clock};

/// Packets of a stretch for a target that does not say how many.
const STRETCH_PACKETS: usize = 256;
/// Stretches that the reference is given before the first of them is compared.
const STRETCHES: usize = 3;
/// A stretch ends with the packet that reaches this number of bytes.
const STRETCH_BYTES: usize = 1 << 20;

/// Packets that run without anything but sweeps in between, with their indices.
struct Stretch<'p> {
    packets: Vec<(usize, Cow<'p, Arrival>)>,
    /// Packets that the target refused since the stretch before.
    refused: Vec<Refusal>,
    /// Where states are compared after it: the number of packets up to there.
    snapshot: Option<usize>,
}

/// What the reference did with a packet.
enum Answer {
    Refused(Refusal),
    Ran {
        /// The moment of a sweep before it.
        sweep: Option<u64>,
        choices: Choices,
        outcome: Outcome,
        /// Packets so far that took its slow path.
        slow: u64,
    },
    Failed(EngineError),
}

/// What the reference's thread is asked for.
enum Job<'p> {
    Run(Stretch<'p>),
    Snapshot,
}

/// What the reference's thread answers.
enum Reply<'p> {
    /// A stretch, and what the reference did with it; the last answer may be a failure. Where states are compared, with
    /// the digest of its own.
    Run(Stretch<'p>, Vec<Answer>, Option<Digest>),
    Snapshot(Result<Snapshot, EngineError>),
}

/// Runs stretches on the reference until there are no more.
fn reference_thread<'p>(
    reference: &mut dyn Datapath,
    options: &CompareOptions,
    jobs: &Receiver<Job<'p>>,
    replies: &Sender<Reply<'p>>,
) {
    let mut clock = Clock::new(options.sweep_ns);
    let mut answer =
        |reference: &mut dyn Datapath, position: usize, arrival: &Arrival| -> Result<Answer, EngineError> {
            let packet = arrival.packet();
            if let Some(refusal) = reference.refuses(&packet) {
                return Ok(Answer::Refused(refusal));
            }
            let (now_ns, sweep) = clock.advance(arrival.time_ns);
            let choices = Choices::seeded(now_ns, options.seed, position as u64);
            if let Some(moment_ns) = sweep {
                reference.sweep(moment_ns)?;
            }
            let outcome = reference.process(&packet, &choices)?;
            Ok(Answer::Ran { sweep, choices, outcome, slow: reference.slow_packets() })
        };
    for job in jobs {
        let stretch = match job {
            Job::Run(stretch) => stretch,
            Job::Snapshot if replies.send(Reply::Snapshot(reference.snapshot())).is_ok() => continue,
            Job::Snapshot => return,
        };
        let mut answers = Vec::with_capacity(stretch.packets.len());
        let mut has_failed = false;
        for (position, arrival) in &stretch.packets {
            let answer = answer(reference, *position, arrival).unwrap_or_else(Answer::Failed);
            has_failed = matches!(answer, Answer::Failed(_));
            answers.push(answer);
            if has_failed {
                break;
            }
        }
        let digest = stretch.snapshot.and_then(|_| reference.digest());
        // Without a receiver, the comparison has ended.
        if replies.send(Reply::Run(stretch, answers, digest)).is_err() || has_failed {
            return;
        }
    }
}

/// Cuts a stream of packets into stretches.
struct Reader<'p, I: Iterator<Item = Cow<'p, Arrival>>> {
    packets: std::iter::Enumerate<I>,
    /// The next packet that the target does not refuse.
    next: Option<(usize, Cow<'p, Arrival>)>,
    /// Number of packets read, refused ones included.
    count: usize,
    refused: Vec<Refusal>,
}

impl<'p, I: Iterator<Item = Cow<'p, Arrival>>> Reader<'p, I> {
    fn new(packets: I, target: &dyn Datapath) -> Reader<'p, I> {
        let mut reader = Reader { packets: packets.enumerate(), next: None, count: 0, refused: Vec::new() };
        reader.take(target);
        reader
    }

    /// Takes the next packet and reads the one after it.
    fn take(&mut self, target: &dyn Datapath) -> Option<(usize, Cow<'p, Arrival>)> {
        let next = loop {
            let Some((position, arrival)) = self.packets.next() else { break None };
            self.count = position + 1;
            match target.refuses(&arrival.packet()) {
                Some(refusal) => self.refused.push(refusal),
                None => break Some((position, arrival)),
            }
        };
        std::mem::replace(&mut self.next, next)
    }

    /// The next stretch, which ends before the packet of this index.
    fn stretch(&mut self, target: &dyn Datapath, snapshot_at: usize) -> Stretch<'p> {
        let (mut packets, mut bytes) = (Vec::new(), 0);
        let mut refused = std::mem::take(&mut self.refused);
        let most = if target.most_ahead() > 0 { target.most_ahead() } else { STRETCH_PACKETS };
        while packets.len() < most
            && bytes < STRETCH_BYTES
            && self.next.as_ref().is_some_and(|(position, _)| *position < snapshot_at)
            && let Some((position, arrival)) = self.take(target)
        {
            bytes += arrival.bytes.len();
            packets.push((position, arrival));
        }
        let snapshot = match &self.next {
            Some((position, _)) => (*position >= snapshot_at).then_some(*position),
            None => {
                // There is no later stretch.
                refused.append(&mut self.refused);
                Some(self.count)
            }
        };
        Stretch { packets, refused, snapshot }
    }
}

impl Pair<'_> {
    /// Runs both engines from the state that they have; states are compared before packet `snapshot_at` first.
    pub(super) fn run_ahead<'p>(
        &mut self,
        packets: impl Iterator<Item = Cow<'p, Arrival>>,
        mut snapshot_at: usize,
    ) -> Result<Run<'p>, EngineError> {
        let Pair { reference, target, options } = self;
        let (reference, target, options) = (&mut **reference, &mut **target, *options);
        let mut reader = Reader::new(packets, target);
        let mut run = Run::default();
        let (to_reference, jobs) = channel();
        let (to_target, replies) = channel();
        std::thread::scope(|scope| -> Result<(), EngineError> {
            scope.spawn(move || reference_thread(reference, options, &jobs, &to_target));
            // Moved here, so that the thread ends with this closure.
            let to_reference = to_reference;
            let (mut given, mut reads_on) = (0, true);
            loop {
                while given < STRETCHES && reads_on {
                    let stretch = reader.stretch(target, snapshot_at);
                    reads_on = stretch.snapshot.is_none();
                    // If the thread has ended, its last answer says why.
                    drop(to_reference.send(Job::Run(stretch)));
                    given += 1;
                }
                // A panic of the thread ends the scope with it.
                let Ok(Reply::Run(stretch, answers, digest)) = replies.recv() else { return Ok(()) };
                given -= 1;
                for refusal in stretch.refused {
                    *run.refused.entry(refusal).or_default() += 1;
                }
                if follow(target, options, &mut run, stretch.packets, answers)? {
                    return Ok(());
                }
                let Some(packets) = stretch.snapshot else { continue };
                let is_last = reader.next.is_none();
                if is_last || !options.judge_digests(&mut run, digest, target.digest(), packets) {
                    drop(to_reference.send(Job::Snapshot));
                    let found = target.snapshot()?;
                    let Ok(Reply::Snapshot(expected)) = replies.recv() else { return Ok(()) };
                    if options.judge_states(&mut run, expected?, found, packets) || is_last {
                        return Ok(());
                    }
                }
                snapshot_at = packets.saturating_add(options.snapshot_distance(run.entries));
                reads_on = true;
            }
        })?;
        Ok(run)
    }
}

/// Runs a stretch on the target and compares the outcomes; returns true for a disagreement.
fn follow<'p>(
    target: &mut dyn Datapath,
    options: &CompareOptions,
    run: &mut Run<'p>,
    packets: Vec<(usize, Cow<'p, Arrival>)>,
    answers: Vec<Answer>,
) -> Result<bool, EngineError> {
    let (mut ran, mut failure) = (VecDeque::with_capacity(answers.len()), None);
    for ((position, arrival), answer) in packets.into_iter().zip(answers) {
        match answer {
            Answer::Refused(refusal) => *run.refused.entry(refusal).or_default() += 1,
            Answer::Ran { sweep, choices, outcome, slow } => {
                ran.push_back((sweep, Ran { position, arrival, choices, expected: outcome, slow }));
            }
            Answer::Failed(error) => failure = Some(error),
        }
    }
    let mut announced: usize = 0;
    while let Some((sweep, mut ran_one)) = ran.pop_front() {
        if let Some(moment_ns) = sweep {
            target.sweep(moment_ns)?;
        }
        let packet = ran_one.arrival.packet();
        if announced == 0 && target.most_ahead() > 0 {
            let mut batch = vec![(packet, ran_one.choices)];
            let after = ran.iter().take_while(|(sweep, _)| sweep.is_none());
            batch.extend(after.map(|(_, ran)| (ran.arrival.packet(), ran.choices)));
            announced = batch.len();
            target.announce(&batch)?;
        }
        announced = announced.saturating_sub(1);
        let found = target.process(&packet, &ran_one.choices);
        ran_one.slow += target.slow_packets();
        if options.judge(run, ran_one, Found::Own(found))? {
            return Ok(true);
        }
    }
    failure.map_or(Ok(false), Err)
}
