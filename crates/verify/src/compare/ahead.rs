// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the reference in a thread of its own, and the targets after it.
//!
//! ```text
//!  this thread     read stretch 2 │ last target: stretch 0, outcomes │ read 3 │ last target: 1 …
//!  reference          stretch 0   │ stretch 1                        │ stretch 2 …
//!  other targets                  │ stretch 0, outcomes              │ stretch 1 …
//! ```
//!
//! A stretch ends before a comparison of snapshots, and earlier where packets are long. The reference tells which
//! packets it refuses, so the clock is its own: the targets get the times of the packets that both run. Reading pauses
//! while snapshots are compared, because their number of entries decides where the next comparison is.
//!
//! The memory of stretches is used again: a packet costs no allocation here.

use std::borrow::Cow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use flowloom_engine::{Choices, Datapath, Digest, EngineError, Outcomes, Packet, Refusal, Snapshot};

use super::{CompareOptions, Finding, Run};
use crate::arrival::{Arrival, Arrivals, Clock};
use crate::difference::Kind;

/// Packets of a stretch.
const STRETCH_PACKETS: usize = 512;
/// Stretches that the reference is given before the first of them is compared.
const STRETCHES: usize = 4;
/// A stretch ends with the packet that reaches this number of bytes.
const STRETCH_BYTES: usize = 1 << 20;

/// Packets that run without anything but sweeps in between, and what the reference did with them.
#[derive(Default)]
struct Stretch {
    arrivals: Arrivals,
    /// Packets that were refused, by an engine.
    refused: Vec<Refusal>,
    /// Where states are compared after it: the number of packets up to there.
    snapshot: Option<usize>,
    /// No stretch follows.
    is_last: bool,
    /// The packets that the reference did not refuse, in order.
    ran: Vec<Ran>,
    expected: Outcomes,
    /// Where states are compared, the digest of the reference's.
    digest: Option<Digest>,
    /// Packets so far that took the slow path of the reference.
    slow: u64,
}

/// A packet that the reference has run.
struct Ran {
    /// Its number in the stretch.
    number: usize,
    /// The moment of a sweep before it.
    sweep: Option<u64>,
    choices: Choices,
}

impl Stretch {
    /// Removes all packets; keeps the memory.
    fn clear(&mut self) {
        self.arrivals.clear();
        self.refused.clear();
        self.ran.clear();
        self.expected.clear();
        (self.snapshot, self.digest, self.is_last) = (None, None, false);
    }

    fn packet(&self, ran: &Ran) -> (Packet<'_>, Choices) {
        (self.arrivals.packet(ran.number), ran.choices)
    }
}

/// What the reference's thread is asked for.
enum Job {
    Run(Box<Stretch>),
    Snapshot,
}

/// What the reference's thread answers.
enum Reply {
    /// A stretch that has run, up to the failure if there is one.
    Run(Box<Stretch>, Option<EngineError>),
    Snapshot(Result<Snapshot, EngineError>),
}

/// The reference, as its thread has it.
struct Reference<'a> {
    engine: &'a mut dyn Datapath,
    clock: Clock,
    seed: u64,
}

impl Reference<'_> {
    /// Runs stretches until there are no more.
    fn serve(mut self, jobs: &Receiver<Job>, replies: &Sender<Reply>) {
        for job in jobs {
            let reply = match job {
                Job::Run(mut stretch) => {
                    let failure = self.run(&mut stretch).err();
                    Reply::Run(stretch, failure)
                }
                Job::Snapshot => Reply::Snapshot(self.engine.snapshot()),
            };
            // Without a receiver, the comparison has ended; after a failure, it ends.
            let has_failed = matches!(reply, Reply::Run(_, Some(_)));
            if replies.send(reply).is_err() || has_failed {
                return;
            }
        }
    }

    fn run(&mut self, stretch: &mut Stretch) -> Result<(), EngineError> {
        for number in 0..stretch.arrivals.len() {
            if let Some(refusal) = self.engine.refuses(&stretch.arrivals.packet(number)) {
                stretch.refused.push(refusal);
                continue;
            }
            let (time_ns, position) = stretch.arrivals.place(number);
            let (now_ns, sweep) = self.clock.advance(time_ns);
            let choices = Choices::seeded(now_ns, self.seed, position as u64);
            stretch.ran.push(Ran { number, sweep, choices });
        }
        let mut expected = std::mem::take(&mut stretch.expected);
        let ran = run_all(self.engine, stretch, &mut expected);
        stretch.expected = expected;
        // The targets run what it has run.
        stretch.ran.truncate(stretch.expected.len());
        ran?;
        stretch.slow = self.engine.slow_packets();
        stretch.digest = stretch.snapshot.and_then(|_| self.engine.digest());
        Ok(())
    }
}

/// Runs the packets of a stretch, with the sweeps between them. After an error, the packets before have outcomes.
fn run_all(engine: &mut dyn Datapath, stretch: &Stretch, outcomes: &mut Outcomes) -> Result<(), EngineError> {
    let packets: Vec<(Packet<'_>, Choices)> = stretch.ran.iter().map(|ran| stretch.packet(ran)).collect();
    let mut first = 0;
    while let Some(ran) = stretch.ran.get(first) {
        if let Some(moment_ns) = ran.sweep {
            engine.sweep(moment_ns)?;
        }
        let after = stretch.ran[first + 1..].iter().take_while(|ran| ran.sweep.is_none());
        let end = first + 1 + after.count();
        let result = engine.process_all(&packets[first..end], outcomes);
        if result.is_err() {
            outcomes.abandon();
            return result;
        }
        first = end;
    }
    Ok(())
}

/// Cuts a stream of packets into stretches.
struct Reader<'p> {
    packets: &'p mut dyn FnMut(&mut Arrival) -> bool,
    /// The next packet that the target does not refuse, if there is one, and its position.
    next: Arrival,
    next_at: Option<usize>,
    /// Number of packets read, refused ones included.
    count: usize,
    refused: Vec<Refusal>,
}

impl<'p> Reader<'p> {
    fn new(packets: &'p mut dyn FnMut(&mut Arrival) -> bool) -> Reader<'p> {
        Reader { packets, next: Arrival::default(), next_at: None, count: 0, refused: Vec::new() }
    }

    /// Reads the next packet that the target does not refuse.
    fn read(&mut self, refuses: &dyn Fn(&Packet<'_>) -> Option<Refusal>) {
        self.next_at = None;
        while self.next_at.is_none() && (self.packets)(&mut self.next) {
            match refuses(&self.next.packet()) {
                Some(refusal) => self.refused.push(refusal),
                None => self.next_at = Some(self.count),
            }
            self.count += 1;
        }
    }

    /// Reads the next stretch, which ends before the packet of this index.
    fn fill(&mut self, stretch: &mut Stretch, snapshot_at: usize, refuses: &dyn Fn(&Packet<'_>) -> Option<Refusal>) {
        stretch.refused.append(&mut self.refused);
        while stretch.arrivals.len() < STRETCH_PACKETS
            && stretch.arrivals.len_bytes() < STRETCH_BYTES
            && let Some(position) = self.next_at.filter(|position| *position < snapshot_at)
        {
            stretch.arrivals.push(&self.next, position);
            self.read(refuses);
        }
        stretch.snapshot = match self.next_at {
            Some(position) => (position >= snapshot_at).then_some(position),
            None => {
                // There is no later stretch.
                stretch.refused.append(&mut self.refused);
                stretch.is_last = true;
                Some(self.count)
            }
        };
    }
}

/// A target, and what was found so far.
pub(super) struct Follower<'a> {
    target: &'a mut dyn Datapath,
    /// Name of the target.
    pub(super) name: String,
    pub(super) run: Run<'static>,
    /// It refuses a packet that the other targets get, so that it has to be compared alone.
    pub(super) is_alone: bool,
    /// It has to see the state of the reference.
    waits: bool,
    found: Outcomes,
}

/// What a follower is asked for.
#[derive(Clone)]
enum Follow {
    Stretch(Arc<Stretch>),
    /// The state of the reference after this number of packets.
    States(Arc<Snapshot>, usize),
}

/// How a follower goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Runs,
    /// With the state of the reference.
    Waits,
    /// It needs no more packets.
    Ends,
}

impl<'a> Follower<'a> {
    pub(super) fn new(target: &'a mut dyn Datapath) -> Follower<'a> {
        let (name, run, found) = (target.name().to_owned(), Run::default(), Outcomes::default());
        Follower { target, name, run, is_alone: false, waits: false, found }
    }

    /// Does what it is asked for.
    fn answer(&mut self, options: &CompareOptions, follow: &Follow) -> Result<Answer, EngineError> {
        if !self.has_ended() {
            match follow {
                Follow::Stretch(stretch) => self.stretch(options, stretch)?,
                Follow::States(expected, packets) if self.waits => {
                    let found = self.target.snapshot()?;
                    options.judge_states(&mut self.run, Cow::Borrowed(expected), found, *packets);
                    self.waits = false;
                }
                Follow::States(..) => {}
            }
        }
        Ok(match self.waits {
            _ if self.has_ended() => Answer::Ends,
            true => Answer::Waits,
            false => Answer::Runs,
        })
    }

    fn has_ended(&self) -> bool {
        self.is_alone || self.run.finding.is_some()
    }

    /// Runs a stretch, and compares the outcomes and the digests of the states.
    fn stretch(&mut self, options: &CompareOptions, stretch: &Stretch) -> Result<(), EngineError> {
        let mut packets = (0..stretch.arrivals.len()).map(|number| stretch.arrivals.packet(number));
        if packets.any(|packet| self.target.refuses(&packet).is_some()) {
            self.is_alone = true;
            return Ok(());
        }
        for refusal in &stretch.refused {
            *self.run.refused.entry(*refusal).or_default() += 1;
        }
        self.found.clear();
        let failure = run_all(self.target, stretch, &mut self.found).err();
        let slow = stretch.slow + self.target.slow_packets();
        let finding = self.first_finding(options, stretch, failure)?;
        self.run.slow = slow;
        let compared = finding.as_ref().map_or(stretch.ran.len(), |(at, _)| at + 1);
        self.count(options, stretch, compared);
        if finding.is_some() || stretch.snapshot.is_some() {
            let last = compared.checked_sub(1).map(|last| stretch.ran[last].number);
            self.run.last = last.map(|last| Cow::Owned(stretch.arrivals.arrival(last))).or(self.run.last.take());
        }
        self.run.finding = finding.map(|(_, finding)| finding);
        if let Some(packets) = stretch.snapshot {
            let found = stretch.digest.and_then(|_| self.target.digest());
            self.waits = stretch.is_last || !options.judge_digests(&mut self.run, stretch.digest, found, packets);
        }
        Ok(())
    }

    /// The first packet of a stretch on which the outcomes differ. `failure` is that of the target.
    fn first_finding(
        &self,
        options: &CompareOptions,
        stretch: &Stretch,
        failure: Option<EngineError>,
    ) -> Result<Option<(usize, Finding)>, EngineError> {
        let finding = |at: usize, kind, found, fault| {
            let Ran { number, choices, .. } = &stretch.ran[at];
            let (position, now_ns) = (Some(stretch.arrivals.place(*number).1), choices.now_ns);
            let expected = stretch.expected.get(at);
            (at, Finding { kind, position, now_ns, expected, found, fault, state: Vec::new() })
        };
        let mut from = 0;
        while let Some(at) = stretch.expected.first_difference(&self.found, from) {
            let both = stretch.expected.get(at).zip(self.found.get(at));
            if let Some((expected, found)) = both
                && let Some(kind) = options.undefined.outcome_kind(&expected, &found)
            {
                return Ok(Some(finding(at, kind, Some(found), None)));
            }
            from = at + 1;
        }
        match failure {
            Some(fault @ EngineError::Fault { .. }) if self.found.len() < stretch.ran.len() => {
                Ok(Some(finding(self.found.len(), Kind::Fault, None, Some(fault.to_string()))))
            }
            Some(other) => Err(other),
            None => Ok(None),
        }
    }

    /// Counts the first packets of a stretch as compared.
    fn count(&mut self, options: &CompareOptions, stretch: &Stretch, compared: usize) {
        let run = &mut self.run;
        run.compared += compared as u64;
        for (verdict, ran) in stretch.expected.verdicts().zip(&stretch.ran).take(compared) {
            let position = stretch.arrivals.place(ran.number).1;
            run.verdicts[verdict.number() as usize] += 1;
            run.last_at = Some((position, ran.choices.now_ns));
            if options.keeps_record {
                run.record.entries.push((position as u64, ran.choices, verdict));
            }
        }
    }
}

/// A target in a thread of its own.
struct Other {
    jobs: Sender<Follow>,
    answers: Receiver<Result<Answer, EngineError>>,
}

/// All targets of a comparison.
struct Followers<'f, 'a> {
    others: Vec<Other>,
    own: &'f mut Follower<'a>,
    options: &'f CompareOptions,
}

impl Followers<'_, '_> {
    /// Asks all of them.
    ///
    /// # Errors
    /// The first one of an engine.
    fn ask(&mut self, follow: Follow) -> Result<Vec<Answer>, EngineError> {
        for other in &self.others {
            // If the thread has ended, it gives no answer below.
            drop(other.jobs.send(follow.clone()));
        }
        let own = self.own.answer(self.options, &follow);
        drop(follow);
        let others = self.others.iter().map(|other| other.answers.recv().unwrap_or(Ok(Answer::Ends)));
        others.chain([own]).collect()
    }
}

/// Runs all engines from the state that they have; states are compared before packet `snapshot_at` first. Returns what
/// was found of each target.
///
/// A single target is asked which packets it refuses. One of several that refuses a packet is compared alone.
pub(super) fn run_ahead<'a>(
    reference: &mut dyn Datapath,
    mut targets: Vec<Follower<'a>>,
    options: &CompareOptions,
    packets: &mut dyn FnMut(&mut Arrival) -> bool,
    snapshot_at: usize,
) -> Result<Vec<Follower<'a>>, EngineError> {
    let Some(mut own) = targets.pop() else { return Ok(Vec::new()) };
    let is_single = targets.is_empty();
    let (to_reference, jobs) = channel();
    let (to_targets, replies) = channel();
    let reference = Reference { engine: reference, clock: Clock::new(options.sweep_ns), seed: options.seed };
    std::thread::scope(|scope| {
        scope.spawn(move || reference.serve(&jobs, &to_targets));
        let (mut others, mut threads) = (Vec::new(), Vec::new());
        for mut target in targets {
            let (jobs, jobs_of_target) = channel::<Follow>();
            let (to_answers, answers) = channel();
            others.push(Other { jobs, answers });
            threads.push(scope.spawn(move || {
                for follow in jobs_of_target {
                    let answer = target.answer(options, &follow);
                    // Before the answer: the memory of the stretch is used again after it.
                    drop(follow);
                    if to_answers.send(answer).is_err() {
                        break;
                    }
                }
                target
            }));
        }
        let followers = Followers { others, own: &mut own, options };
        // This ends the channels, and with them the threads.
        lead((to_reference, replies), followers, &mut Reader::new(packets), is_single, snapshot_at)?;
        let others = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let mut all: Vec<Follower<'a>> = others.collect();
        all.push(own);
        Ok(all)
    })
}

/// Reads stretches, has the reference run them and the targets follow, until all is compared.
fn lead(
    (to_reference, replies): (Sender<Job>, Receiver<Reply>),
    mut followers: Followers<'_, '_>,
    reader: &mut Reader<'_>,
    is_single: bool,
    mut snapshot_at: usize,
) -> Result<(), EngineError> {
    let refuses = |target: &dyn Datapath, packet: &Packet<'_>| target.refuses(packet).filter(|_| is_single);
    reader.read(&|packet| refuses(followers.own.target, packet));
    let (mut given, mut reads_on, mut spare) = (0, true, Vec::<Stretch>::new());
    loop {
        while given < STRETCHES && reads_on {
            let mut stretch = spare.pop().unwrap_or_default();
            reader.fill(&mut stretch, snapshot_at, &|packet| refuses(followers.own.target, packet));
            reads_on = stretch.snapshot.is_none();
            // If the thread has ended, its last answer says why.
            drop(to_reference.send(Job::Run(Box::new(stretch))));
            given += 1;
        }
        // A panic of the thread ends the scope with it.
        let Ok(Reply::Run(stretch, failure)) = replies.recv() else { return Ok(()) };
        given -= 1;
        let stretch = Arc::new(*stretch);
        let mut answers = followers.ask(Follow::Stretch(Arc::clone(&stretch)))?;
        if answers.iter().all(|answer| *answer == Answer::Ends) {
            return Ok(());
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        if let Some(packets) = stretch.snapshot {
            let mut entries = stretch.digest.map_or(0, |digest| digest.entries);
            if answers.contains(&Answer::Waits) {
                drop(to_reference.send(Job::Snapshot));
                let Ok(Reply::Snapshot(expected)) = replies.recv() else { return Ok(()) };
                let expected = Arc::new(expected?);
                entries = expected.entries();
                answers = followers.ask(Follow::States(expected, packets))?;
            }
            if stretch.is_last || answers.iter().all(|answer| *answer == Answer::Ends) {
                return Ok(());
            }
            snapshot_at = packets.saturating_add(followers.options.snapshot_distance(entries));
            reads_on = true;
        }
        spare.extend(Arc::into_inner(stretch).map(|mut stretch| {
            stretch.clear();
            stretch
        }));
    }
}
