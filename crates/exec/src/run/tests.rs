// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::io::Write;
use std::sync::{Arc, Mutex};

use flowloom_engine::{Arrival, Choices, Draws, EngineError, Outcome, Output, PacketError, Ports, Snapshot, Tally};
use flowloom_trace::{CaptureReader, Format, TraceError};

use super::*;

/// A mock engine: drops frames of even length, sends the others twice to port 5 with one byte more, fails on those that
/// begin with 0xee, and records its calls.
#[derive(Default)]
struct Recorder {
    seen: Vec<(u64, Choices)>,
    sweeps: Vec<(usize, u64)>,
}

impl Datapath for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }

    fn refuses(&self, packet: &Packet<'_>) -> Option<Refusal> {
        (packet.bytes.len() < 3).then_some(Refusal::TooShort { min_bytes: 3 })
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        if packet.bytes[0] == 0xee {
            return Err(EngineError::Fault { engine: "recorder", insn: 7, what: "read".into() });
        }
        self.seen.push((packet.bytes.len() as u64, *choices));
        if packet.bytes.len().is_multiple_of(2) {
            return Ok(Outcome::without_output(Verdict::Drop));
        }
        let mut bytes = packet.bytes.to_vec();
        bytes.push(0xff);
        let outputs = vec![Output { port: Port(5), bytes }; 2];
        Ok(Outcome { verdict: Verdict::Redirect, outputs, events: Vec::new() })
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.sweeps.push((self.seen.len(), now_ns));
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        Ok(Snapshot::default())
    }

    fn restore(&mut self, _state: &Snapshot) -> Result<(), EngineError> {
        Ok(())
    }
}

fn captured(time_ns: u64, len: usize) -> Result<CapturedPacket, TraceError> {
    let original_len_bytes = len as u32 + 100;
    Ok(CapturedPacket { time_ns, bytes: vec![1; len], original_len_bytes, port: 2, ..CapturedPacket::default() })
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().map_err(|_| std::io::ErrorKind::Other)?.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn packets_are_counted_timed_and_written() {
    let mut engine = Recorder::default();
    let mut input = IterSource::new([captured(50, 4), captured(20, 5), captured(70, 2), captured(60, 7)]);
    let shared = Shared::default();
    let mut writer = CaptureWriter::to_writer("out", Format::PcapNg, shared.clone()).expect("header");
    let options = RunOptions { seed: 9, ..RunOptions::default() };
    let summary = run(
        &mut engine,
        &mut input,
        Sinks { packets: Some(&mut writer), events: None, reader: None },
        options,
        &mut |_| (),
    )
    .expect("runs");
    writer.finish().expect("finishes");

    assert_eq!((summary.packets, summary.bytes, summary.run()), (4, 18, 3));
    assert_eq!((summary.count(Verdict::Drop), summary.count(Verdict::Redirect)), (1, 2));
    assert_eq!(summary.refused, BTreeMap::from([(Refusal::TooShort { min_bytes: 3 }, 1)]));
    assert_eq!((summary.outputs, summary.output_bytes), (4, 28));
    assert_eq!(summary.times_ns, Some((50, 70)));
    // Time never goes back; random values depend on the number in the input, refused packets included.
    let expected = [(4, 50, 0), (5, 50, 1), (7, 70, 3)].map(|(len, now, index)| (len, Choices::seeded(now, 9, index)));
    assert_eq!(engine.seen, expected);

    let written = shared.0.lock().expect("not poisoned").clone();
    let read: Vec<CapturedPacket> = CaptureReader::from_reader("out", std::io::Cursor::new(written))
        .expect("header")
        .map(|packet| packet.expect("packet"))
        .collect();
    let seen: Vec<_> =
        read.iter().map(|p| (p.time_ns, p.port, p.bytes.len(), p.original_len_bytes, p.verdict)).collect();
    // The time of the capture; the original length changed by the added byte.
    let (first, second) = ((20, 5, 6, 106, Some(4)), (60, 5, 8, 108, Some(4)));
    assert_eq!(seen, [first, first, second, second]);
}

#[test]
fn count_stops_the_run() {
    let mut engine = Recorder::default();
    let mut input = IterSource::new((0..10).map(|time| captured(time, 4)));
    let options = RunOptions { count: Some(3), ..RunOptions::default() };
    let summary = run(&mut engine, &mut input, Sinks::default(), options, &mut |_| ()).expect("runs");
    assert_eq!((summary.packets, engine.seen.len()), (3, 3));
    assert_eq!(input.into_rest().count(), 7, "nothing is read that is not run");
}

#[test]
fn failures_name_the_packet() {
    let mut broken = captured(1, 4);
    if let Ok(packet) = &mut broken {
        packet.bytes[0] = 0xee;
    }
    let mut input = IterSource::new([captured(0, 4), broken]);
    let error = run(&mut Recorder::default(), &mut input, Sinks::default(), RunOptions::default(), &mut |_| ());
    assert_eq!(
        error.expect_err("fails on the second").to_string(),
        "packet 1: engine `recorder` stopped at instruction 7: read"
    );
}

#[test]
fn sweeps_come_before_the_packet_that_reaches_the_next_multiple() {
    let mut engine = Recorder::default();
    let times = [3, 9, 10, 19, 20, 55, 59, 55, 60];
    let mut input = IterSource::new(times.into_iter().map(|time| captured(time, 4)));
    let options = RunOptions { sweep: SweepClock::new(10), ..RunOptions::default() };
    let summary = run(&mut engine, &mut input, Sinks::default(), options, &mut |_| ()).expect("runs");
    // (packets run before, time)
    assert_eq!(engine.sweeps, [(2, 10), (4, 20), (5, 50), (8, 60)]);
    assert_eq!(summary.sweeps, 4);
}

#[test]
fn smallest_period_of_tables_with_deadlines_counts() {
    let layout = |sweep_ns, deadlines: &[u32]| ContextLayout {
        sweep_ns,
        deadline_offsets: deadlines.to_vec(),
        ..ContextLayout::default()
    };
    let layouts = [layout(5, &[]), layout(30, &[8]), layout(20, &[8, 16]), layout(0, &[8])];
    assert_eq!(SweepClock::of(&layouts), SweepClock::new(20));
    let mut never = SweepClock::of(&layouts[..1]);
    assert_eq!(never.due(u64::MAX), None);
    let mut end = SweepClock::new(u64::MAX / 2);
    // Past the last multiple that fits, the clock stays there: another sweep there changes nothing.
    assert_eq!(
        [u64::MAX - 2, u64::MAX - 1, u64::MAX].map(|now| end.due(now)),
        [Some(u64::MAX / 2), Some(u64::MAX - 1), Some(u64::MAX - 1),]
    );
}

#[test]
fn length_on_the_wire_never_falls_below_the_bytes() {
    let mut packet = captured(0, 10).expect("made");
    assert_eq!(original_len(&packet, 6), 106);
    packet.original_len_bytes = 4;
    assert_eq!(original_len(&packet, 12), 12);
    packet.original_len_bytes = u32::MAX;
    assert_eq!(original_len(&packet, 12), u32::MAX);
}

/// An engine that runs packets ahead, and keeps the lengths of those that were announced.
struct RunsAhead {
    recorder: Recorder,
    announced: Vec<Vec<usize>>,
}

impl Datapath for RunsAhead {
    fn name(&self) -> &str {
        "runs ahead"
    }

    fn refuses(&self, packet: &Packet<'_>) -> Option<Refusal> {
        self.recorder.refuses(packet)
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn most_ahead(&self) -> usize {
        3
    }

    fn announce(&mut self, packets: &[(Packet<'_>, Choices)]) -> Result<(), EngineError> {
        self.announced.push(packets.iter().map(|(packet, _)| packet.bytes.len()).collect());
        Ok(())
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        self.recorder.process(packet, choices)
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.recorder.sweep(now_ns)
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        self.recorder.snapshot()
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.recorder.restore(state)
    }
}

#[test]
fn packets_are_read_ahead_up_to_a_sweep_and_to_the_end() {
    let packet = |number: usize| {
        let (time_ns, bytes) = (if number < 5 { 1 } else { 11 }, vec![1; 61 + 2 * number]);
        CapturedPacket { time_ns, port: 1, original_len_bytes: bytes.len() as u32, bytes, ..CapturedPacket::default() }
    };
    let mut asked = 0;
    // Packets after the end are none of the input, and none after an error.
    for ends_with_error in [false, true] {
        let mut input = IterSource::new(std::iter::from_fn(|| {
            asked += 1;
            match asked {
                1..=7 => Some(Ok(packet(asked))),
                8 if ends_with_error => Some(Err(CaptureReader::open(std::path::Path::new("/no such file"))
                    .map(drop)
                    .expect_err("is missing"))),
                8 => None,
                _ => Some(Ok(packet(asked))),
            }
        }));
        let mut engine = RunsAhead { recorder: Recorder::default(), announced: Vec::new() };
        let options = RunOptions { sweep: SweepClock::new(10), ..RunOptions::default() };
        let result = run(&mut engine, &mut input, Sinks::default(), options, &mut |_| ());
        assert_eq!((result.is_err(), engine.recorder.seen.len(), asked), (ends_with_error, 7, 8));
        let announced: Vec<usize> = engine.announced.iter().map(Vec::len).collect();
        assert_eq!((announced, engine.recorder.sweeps.len()), (vec![3, 1, 3], 1));
        asked = 0;
    }
}

#[test]
fn counted_packets_end_with_the_input() {
    let mut asked = 0;
    let packets = std::iter::from_fn(|| {
        asked += 1;
        (asked != 4).then(|| captured(asked, 4))
    });
    let mut engine = Counts::default();
    let mut input = IterSource::new(packets);
    run(&mut engine, &mut input, Sinks::default(), RunOptions::default(), &mut |_| ()).expect("runs");
    assert_eq!((engine.recorder.seen.len(), asked), (3, 4));
}

/// A sweep before each packet: progress is reported as the time goes by, not once a batch.
#[test]
fn progress_is_reported_between_sweeps() {
    struct Slow(Counts);
    impl Datapath for Slow {
        fn name(&self) -> &str {
            "slow"
        }
        fn bind_ports(&mut self, _: &Ports) {}
        fn tallies(&self) -> bool {
            true
        }
        fn tally(&mut self, packets: &[Arrival<'_>], draws: Draws, tally: &mut Tally) -> Result<(), PacketError> {
            self.0.tally(packets, draws, tally)
        }
        fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
            self.0.process(packet, choices)
        }
        fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
            std::thread::sleep(PROGRESS_EVERY);
            self.0.sweep(now_ns)
        }
        fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
            self.0.snapshot()
        }
        fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
            self.0.restore(state)
        }
    }
    let mut input = IterSource::new((1..=3).map(|number| captured(10 * number, 4)));
    let options = RunOptions { sweep: SweepClock::new(10), ..RunOptions::default() };
    let mut seen = Vec::new();
    let mut progress = |so_far: &RunSummary| seen.push((so_far.packets, so_far.sweeps));
    let mut engine = Slow(Counts::default());
    run(&mut engine, &mut input, Sinks::default(), options, &mut progress).expect("runs");
    assert_eq!(seen, [(0, 1), (1, 2), (2, 3)]);
}

/// An engine that counts packets, and keeps the number of packets of each call.
#[derive(Default)]
struct Counts {
    recorder: Recorder,
    calls: Vec<usize>,
}

impl Datapath for Counts {
    fn name(&self) -> &str {
        "counts"
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn tallies(&self) -> bool {
        true
    }

    fn tally(&mut self, packets: &[Arrival<'_>], draws: Draws, tally: &mut Tally) -> Result<(), PacketError> {
        self.calls.push(packets.len());
        self.recorder.tally(packets, draws, tally)
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        self.recorder.process(packet, choices)
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.recorder.sweep(now_ns)
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        self.recorder.snapshot()
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.recorder.restore(state)
    }
}

#[test]
fn counted_packets_have_the_summary_of_those_that_run_one_by_one() {
    let times = [10, 3, 9, 19, 20, 55, 59, 55, 60, 61];
    let mut fails = captured(70, 5).expect("made");
    fails.bytes[0] = 0xee;
    let missing = || CaptureReader::open(std::path::Path::new("/no such file")).map(drop).expect_err("is missing");
    for (ending, count) in [(0, None), (1, None), (2, None), (0, Some(7)), (0, Some(0))] {
        let input = || {
            let end = match ending {
                0 => vec![],
                // The first failure ends the run; packets after it do not count.
                1 => vec![Ok(fails.clone()), captured(71, 4)],
                _ => vec![Err(missing()), captured(71, 4)],
            };
            IterSource::new((0..).zip(times).map(|(number, time)| captured(time, 4 + number % 3)).chain(end))
        };
        let options = RunOptions { seed: 4, sweep: SweepClock::new(10), count, ..RunOptions::default() };
        let (mut one, mut counts) = (Recorder::default(), Counts::default());
        let ran = run(&mut one, &mut input(), Sinks::default(), options.clone(), &mut |_| ());
        let counted = run(&mut counts, &mut input(), Sinks::default(), options, &mut |_| ());
        let form = |result: Result<RunSummary, ExecError>| {
            result.map(|summary| RunSummary { elapsed: Duration::ZERO, ..summary }).map_err(|error| error.to_string())
        };
        assert_eq!(form(counted), form(ran), "{ending} {count:?}");
        assert_eq!((counts.recorder.seen, counts.recorder.sweeps), (one.seen, one.sweeps), "{ending} {count:?}");
        if ending == 0 && count.is_none() {
            assert_eq!(counts.calls, [4, 1, 3, 2]);
        }
    }
}

/// The first batch is short, so that a slow function is seen to go on.
#[test]
fn the_first_packets_are_counted_soon() {
    let mut engine = Counts::default();
    let mut input = IterSource::new((0..300).map(|number| captured(number, 4)));
    run(&mut engine, &mut input, Sinks::default(), RunOptions::default(), &mut |_| ()).expect("runs");
    assert_eq!(engine.calls[0], 256);
    assert_eq!(engine.calls.iter().sum::<usize>(), 300);
}

#[test]
fn packets_with_outputs_to_write_are_not_counted_in_batches() {
    let mut engine = Counts::default();
    let mut writer = CaptureWriter::to_writer("out", Format::PcapNg, Shared::default()).expect("header");
    let sinks = Sinks { packets: Some(&mut writer), events: None, reader: None };
    run(&mut engine, &mut IterSource::new([captured(1, 5)]), sinks, RunOptions::default(), &mut |_| ()).expect("runs");
    let options = RunOptions { reads_ahead: false, ..RunOptions::default() };
    run(&mut engine, &mut IterSource::new([captured(1, 5)]), Sinks::default(), options, &mut |_| ()).expect("runs");
    assert_eq!((engine.calls.len(), engine.recorder.seen.len()), (0, 2));
}
