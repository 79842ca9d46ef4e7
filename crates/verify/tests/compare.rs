// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Comparison and shrinking, on engines with deliberate differences.

use std::collections::BTreeMap;

use flowloom_engine::{
    Choices, Datapath, Digest, EngineError, Event, MapState, Outcome, Packet, Port, Ports, Refusal, Snapshot, Verdict,
};
use flowloom_verify::{
    Arrival, CompareOptions, Kind, Report, ShrinkOptions, Shrunk, compare, compare_stream, compare_stream_all, shrink,
    shrink_end,
};

/// An engine that counts packets by first byte, with an injected fault.
#[derive(Default)]
struct Counting {
    counts: BTreeMap<u8, u64>,
    fault: Fault,
}

#[derive(Default, Clone, Copy, PartialEq)]
#[allow(clippy::enum_variant_names)] // `Fault::Fault` has the name of the kind
enum Fault {
    #[default]
    None,
    /// Bit 0 of byte 3 is flipped in packets that begin with 7, after 3 such packets.
    OneBit,
    /// The count of 9 skips one after the 200th packet.
    State,
    /// The state is temporarily wrong.
    Passing,
    /// Frames shorter than 4 bytes are refused.
    Refuses,
    /// A fault that no verified program has, at packets that begin with 5.
    Fault,
    /// A record to user space differs, at packets that begin with 6.
    Event,
    /// The count of 200 is one too many, once there is one of 201.
    Distant,
}

impl Datapath for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn refuses(&self, packet: &Packet<'_>) -> Option<Refusal> {
        (self.fault == Fault::Refuses && packet.bytes.len() < 4).then_some(Refusal::TooShort { min_bytes: 4 })
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn process(&mut self, packet: &Packet<'_>, _choices: &Choices) -> Result<Outcome, EngineError> {
        let kind = packet.bytes.first().copied().unwrap_or(0);
        *self.counts.entry(kind).or_default() += 1;
        let total: u64 = self.counts.values().sum();
        let mut bytes = packet.bytes.to_vec();
        match self.fault {
            Fault::OneBit if kind == 7 && self.counts[&7] > 3 => bytes.iter_mut().skip(3).take(1).for_each(|b| *b ^= 1),
            Fault::State if kind == 9 && total > 200 => *self.counts.entry(9).or_default() += 1,
            Fault::Distant if kind == 200 && self.counts.contains_key(&201) => {
                *self.counts.entry(200).or_default() += 1;
            }
            Fault::Passing if total == 300 => *self.counts.entry(kind).or_default() += 5,
            Fault::Fault if kind == 5 => {
                return Err(EngineError::Fault { engine: "counting", insn: 3, what: "read at byte 9 of 8".into() });
            }
            _ => {}
        }
        let heard = if self.fault == Fault::Event { 1 } else { 0 };
        let record = Event { map: "heard".into(), cpu: 0, bytes: vec![kind, heard] };
        let events = if kind == 6 { vec![record] } else { Vec::new() };
        Ok(Outcome { events, ..Outcome::sent(Verdict::Pass, packet.port, bytes) })
    }

    fn sweep(&mut self, _now_ns: u64) -> Result<(), EngineError> {
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        let entries: MapState = self.counts.iter().map(|(k, n)| (vec![*k], n.to_le_bytes().to_vec())).collect();
        let noise = MapState::from([(vec![0], vec![u8::from(self.fault == Fault::None)])]);
        Ok(Snapshot {
            maps: BTreeMap::from([("counts".into(), entries), ("fl_noise".into(), noise)]),
            ..Snapshot::default()
        })
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        let entries = state.maps.get("counts").into_iter().flatten();
        self.counts = entries.map(|(key, count)| (key[0], u64::from(count[0]))).collect();
        Ok(())
    }
}

fn packets(n: u64) -> Vec<Arrival> {
    (0..n)
        .map(|i| {
            let bytes = vec![(i % 11) as u8, 1, 2, 3, 4, 5, 6, i as u8];
            Arrival { time_ns: 1_000_000_007 + 1_234_567 * i, port: Port(3), bytes }
        })
        .collect()
}

/// A stream of these packets.
fn stream(trace: &[Arrival]) -> impl FnMut(&mut Arrival) -> bool {
    let mut packets = trace.iter();
    move |arrival| packets.next().map(|packet| *arrival = packet.clone()).is_some()
}

fn engine(fault: Fault) -> Counting {
    Counting { fault, ..Counting::default() }
}

/// Compares an engine without a fault and one with it.
fn compared(fault: Fault, trace: &[Arrival], options: &CompareOptions) -> Report {
    compare(&mut engine(Fault::None), &mut engine(fault), trace, options).expect("runs")
}

fn shrunk(fault: Fault, trace: &[Arrival], options: &CompareOptions, shrinking: &ShrinkOptions) -> Option<Shrunk> {
    shrink(&mut engine(Fault::None), &mut engine(fault), trace, options, shrinking, &mut |_| ()).expect("runs")
}

#[test]
fn equal_engines_agree_and_instruments_are_not_compared() {
    let options = CompareOptions { snapshot_every: 100, keeps_record: true, ..CompareOptions::default() };
    let report = compared(Fault::None, &packets(1000), &options);
    assert!(report.agrees());
    assert_eq!((report.packets_compared, report.snapshots_compared), (1000, 10));
    assert_eq!(report.verdicts, [0, 0, 1000, 0, 0]);
    assert_eq!(report.record.entries.len(), 1000);
    // `fl_noise` differs between a correct and a refusing engine.
    let report = compared(Fault::Refuses, &packets(10), &options);
    assert!(report.agrees());
}

#[test]
fn a_single_bit_is_found_and_shrunk() {
    let options = CompareOptions::default();
    let (mut right, mut wrong) = (engine(Fault::None), engine(Fault::OneBit));
    let report = compare(&mut right, &mut wrong, &packets(1000), &options).expect("runs");
    let disagreement = report.disagreement.expect("they differ");
    assert_eq!((disagreement.kind, disagreement.position), (Kind::Bytes, Some(40)));
    assert!(disagreement.state.is_empty());
    let text = disagreement.to_string();
    assert!(text.starts_with("bytes differs at packet 41 "), "{text}");

    let mut last = usize::MAX;
    let progress = &mut |p: flowloom_verify::ShrinkProgress| last = p.packets_left;
    let shrunk = shrink(&mut right, &mut wrong, &packets(1000), &options, &ShrinkOptions::default(), progress);
    let shrunk = shrunk.expect("runs").expect("they differ");
    assert_eq!(shrunk.packets.len(), 4);
    assert_eq!(last, 4);
    assert!(!shrunk.hit_bound);
    for packet in &shrunk.packets {
        assert_eq!((packet.time_ns, packet.port), (0, Port(0)));
        assert_eq!(packet.bytes[0], 7, "what the disagreement needs stays");
        assert!(packet.bytes[1..].iter().all(|&b| b == 0), "the rest is zero: {:?}", packet.bytes);
    }
    assert_eq!(shrunk.packets[3].bytes.len(), 4, "byte 3 is the last one needed");
    assert_eq!(shrunk.packets[0].bytes.len(), 1);
}

#[test]
fn a_difference_of_state_is_bisected_to_its_packet() {
    for snapshot_every in [1, 7, 64, 100_000] {
        let options = CompareOptions { snapshot_every, ..CompareOptions::default() };
        let report = compared(Fault::State, &packets(1000), &options);
        let disagreement = report.disagreement.expect("they differ");
        // The first packet after 200 that begins with 9.
        assert_eq!((disagreement.kind, disagreement.position), (Kind::State, Some(207)), "{snapshot_every}");
        assert_eq!(disagreement.state.len(), 1);
        assert_eq!(disagreement.state[0].key, [9]);
        assert_eq!(report.packets_compared, 208);
        assert_eq!(report.verdicts[2], 208);
    }
}

/// A snapshot costs time for each entry: with more entries there are fewer, and the last one is at the end all the
/// same.
#[test]
fn snapshots_are_rarer_with_more_entries() {
    // 9 entries after 8 packets, 12 after 11, the instrument's among them.
    for (packets_per_entry, snapshots) in [(0, 125), (1, 84), (10, 10), (usize::MAX, 2)] {
        let options = CompareOptions { snapshot_every: 8, packets_per_entry, ..CompareOptions::default() };
        let report = compared(Fault::None, &packets(1000), &options);
        assert!(report.agrees());
        assert_eq!(report.snapshots_compared, snapshots, "{packets_per_entry} packets an entry");
        let report = compared(Fault::State, &packets(1000), &options);
        assert_eq!(report.disagreement.expect("they differ").position, Some(207), "{packets_per_entry}");
    }
}

/// Only as many packets of a stream are read again as its disagreement needs.
#[test]
fn the_end_of_a_stream_is_shrunk() {
    let mut trace = packets(80_000);
    trace[79_990].bytes[0] = 200;
    for (distant, fault, reads, left) in [
        (0, Fault::OneBit, vec![], 4),
        (79_000, Fault::Distant, vec![4096], 2),
        (70_000, Fault::Distant, vec![4096, 65_536], 2),
        (7, Fault::Distant, vec![4096, 65_536, 79_991], 2),
    ] {
        let mut trace = trace.clone();
        if fault == Fault::Distant {
            trace[distant].bytes[0] = 201;
            trace.truncate(79_991);
        }
        let (mut right, mut wrong) = (engine(Fault::None), engine(fault));
        let options = CompareOptions { snapshot_every: 1 << 14, ..CompareOptions::default() };
        let report = compare_stream(&mut right, &mut wrong, &mut stream(&trace), &options).expect("runs");
        let count = report.disagreement.expect("they differ").position.expect("a packet") + 1;
        let mut read = Vec::new();
        let mut end = |n: usize| {
            read.push(n);
            Ok::<_, EngineError>(trace[count - n..count].to_vec())
        };
        let how = ShrinkOptions::default();
        let shrunk = shrink_end(&mut right, &mut wrong, count, &mut end, &options, &how, &mut |_| ()).expect("runs");
        assert_eq!(shrunk.expect("they differ").packets.len(), left);
        let reads = if fault == Fault::OneBit { vec![count] } else { reads };
        assert_eq!(read, reads, "{distant}");
    }
}

#[test]
fn a_difference_that_passes_is_seen_where_snapshots_are_taken() {
    // Wrong by 5 from packet 300 on, until the end: bisection finds the exact packet.
    let options = CompareOptions { snapshot_every: 250, ..CompareOptions::default() };
    let report = compared(Fault::Passing, &packets(600), &options);
    assert_eq!(report.disagreement.expect("they differ").position, Some(299));
}

#[test]
fn both_begin_with_the_state_that_is_given() {
    let counts = MapState::from([(vec![7], vec![2]), (vec![200], vec![9])]);
    let state = Snapshot { maps: BTreeMap::from([("counts".into(), counts)]), ..Snapshot::default() };
    let options = CompareOptions { state, ..CompareOptions::default() };
    let report = compared(Fault::OneBit, &packets(1000), &options);
    // Two packets that begin with 7 precede the first one, so that the second here is the fourth in total.
    assert_eq!(report.disagreement.expect("they differ").position, Some(18));
    let shrunk = shrunk(Fault::OneBit, &packets(1000), &options, &ShrinkOptions::default());
    assert_eq!(shrunk.expect("they differ").packets.len(), 2);
}

#[test]
fn records_for_user_space_are_compared() {
    let report = compared(Fault::Event, &packets(50), &CompareOptions::default());
    let disagreement = report.disagreement.expect("they differ");
    assert_eq!((disagreement.kind, disagreement.position), (Kind::Events, Some(6)));
    let text = disagreement.to_string();
    assert!(text.contains("2 bytes through `heard` on CPU 0"), "{text}");
}

/// Bytes of each packet, record, key and value of [`Long`].
const LONG: usize = 1514;

/// An engine of long packets, records, keys and values. The byte `wrong` is another one in the part of that kind; for
/// [`Kind::State`], in the value, and from [`LONG`] on in the key.
struct Long {
    wrong: Option<(Kind, usize)>,
}

impl Long {
    fn part(&self, kind: Kind, first: usize) -> Vec<u8> {
        let mut bytes = vec![7; LONG];
        if let Some((wrong, at)) = self.wrong
            && wrong == kind
            && let Some(byte) = at.checked_sub(first).and_then(|at| bytes.get_mut(at))
        {
            *byte ^= 1;
        }
        bytes
    }
}

impl Datapath for Long {
    fn name(&self) -> &str {
        "long"
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn process(&mut self, packet: &Packet<'_>, _choices: &Choices) -> Result<Outcome, EngineError> {
        let events = vec![Event { map: "heard".into(), cpu: 0, bytes: self.part(Kind::Events, 0) }];
        Ok(Outcome { events, ..Outcome::sent(Verdict::Pass, packet.port, self.part(Kind::Bytes, 0)) })
    }

    fn sweep(&mut self, _now_ns: u64) -> Result<(), EngineError> {
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        let entries = MapState::from([(self.part(Kind::State, LONG), self.part(Kind::State, 0))]);
        Ok(Snapshot { maps: BTreeMap::from([("table".into(), entries)]), ..Snapshot::default() })
    }

    fn restore(&mut self, _: &Snapshot) -> Result<(), EngineError> {
        Ok(())
    }
}

#[test]
fn every_byte_of_packets_records_keys_and_values_is_compared() {
    let options = CompareOptions::default();
    let bytes = (0..LONG).flat_map(|at| [(Kind::Bytes, at), (Kind::Events, at)]);
    for wrong in bytes.chain((0..2 * LONG).map(|at| (Kind::State, at))) {
        let (mut right, mut target) = (Long { wrong: None }, Long { wrong: Some(wrong) });
        let report = compare(&mut right, &mut target, &packets(1), &options).expect("runs");
        assert_eq!(report.disagreement.map(|found| found.kind), Some(wrong.0), "byte {}", wrong.1);
    }
}

#[test]
fn refused_frames_are_counted_and_given_to_neither() {
    let mut trace = packets(20);
    trace[3].bytes.truncate(2);
    trace[9].bytes.clear();
    let options = CompareOptions { keeps_record: true, ..CompareOptions::default() };
    let report = compared(Fault::Refuses, &trace, &options);
    assert!(report.agrees());
    assert_eq!(report.packets_compared, 18);
    assert_eq!(report.packets_refused(), 2);
    assert_eq!(report.refused.get(&Refusal::TooShort { min_bytes: 4 }), Some(&2));
    let indices: Vec<u64> = report.record.entries.iter().map(|e| e.0).collect();
    assert_eq!(indices.len(), 18);
    assert!(!indices.contains(&3) && !indices.contains(&9));
}

#[test]
fn a_fault_of_the_target_is_a_disagreement() {
    let report = compared(Fault::Fault, &packets(20), &CompareOptions::default());
    let disagreement = report.disagreement.expect("it stopped");
    assert_eq!((disagreement.kind, disagreement.position), (Kind::Fault, Some(5)));
    assert!(disagreement.fault.expect("text").contains("read at byte 9"));
}

#[test]
fn shrinking_what_agrees_gives_nothing_and_the_bound_holds() {
    let options = CompareOptions::default();
    let shrinking = ShrinkOptions { max_packets: 3, ..ShrinkOptions::default() };
    assert!(shrunk(Fault::None, &packets(9), &options, &shrinking).is_none());
    let bounded = shrunk(Fault::OneBit, &packets(99), &options, &shrinking).expect("they differ");
    assert!(bounded.hit_bound);
    assert!(bounded.report.disagreement.is_some(), "what is left shows the disagreement all the same");
}

/// An engine that runs packets ahead, and counts them.
#[derive(Default)]
struct Ahead {
    inner: Counting,
    done: std::collections::VecDeque<Outcome>,
    longest: usize,
    slow: u64,
}

impl Datapath for Ahead {
    fn name(&self) -> &str {
        "ahead"
    }

    fn refuses(&self, packet: &Packet<'_>) -> Option<Refusal> {
        self.inner.refuses(packet)
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn most_ahead(&self) -> usize {
        5
    }

    fn announce(&mut self, packets: &[(Packet<'_>, Choices)]) -> Result<(), EngineError> {
        assert!(self.done.is_empty(), "packets were announced before the others ran");
        self.longest = self.longest.max(packets.len());
        for (packet, choices) in packets {
            self.done.push_back(self.inner.process(packet, choices)?);
        }
        Ok(())
    }

    fn slow_packets(&self) -> u64 {
        self.slow
    }

    fn process(&mut self, packet: &Packet<'_>, _: &Choices) -> Result<Outcome, EngineError> {
        self.slow += u64::from(is_slow(packet.bytes));
        Ok(self.done.pop_front().expect("it was announced"))
    }

    fn sweep(&mut self, _now_ns: u64) -> Result<(), EngineError> {
        assert!(self.done.is_empty(), "a sweep is between two announcements");
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        assert!(self.done.is_empty(), "a snapshot is between two announcements");
        self.inner.snapshot()
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.done.clear();
        self.slow = 0;
        self.inner.restore(state)
    }
}

/// Packets are announced up to the next snapshot or sweep, also where a refused one stands at the border.
#[test]
fn packets_are_announced_up_to_the_next_snapshot() {
    let mut trace = packets(200);
    trace[8].bytes.truncate(2);
    trace[16].bytes.clear();
    for sweep_ns in [None, Some(10_000_000)] {
        let options = CompareOptions { snapshot_every: 8, sweep_ns, ..CompareOptions::default() };
        let mut target = Ahead { inner: engine(Fault::Refuses), ..Ahead::default() };
        let report = compare(&mut engine(Fault::Refuses), &mut target, &trace, &options).expect("runs");
        assert!(report.agrees(), "{report:?}");
        assert_eq!((report.packets_compared, target.longest), (198, 5), "sweeps: {sweep_ns:?}");
    }
}

/// Packets that another engine ran for the target are counted apart.
#[test]
fn packets_of_a_slow_path_are_counted() {
    let run = |trace: &[Arrival], fault: Fault| {
        let mut target = Ahead { inner: engine(fault), ..Ahead::default() };
        compare(&mut engine(Fault::None), &mut target, trace, &CompareOptions::default()).expect("runs")
    };
    let trace = packets(400);
    let slow = |trace: &[Arrival]| trace.iter().filter(|packet| is_slow(&packet.bytes)).count() as u64;
    let report = run(&trace, Fault::None);
    assert!(slow(&trace) > 20 && report.agrees(), "{report:?}");
    assert_eq!((report.packets_compared, report.packets_slow), (400, slow(&trace)));
    assert_eq!(report.packets_own(), 400 - slow(&trace));
    // As far as they ran.
    let report = run(&trace, Fault::State);
    let culprit = report.disagreement.as_ref().and_then(|found| found.position).expect("a count differs");
    assert_eq!((report.packets_compared, report.packets_slow), (culprit as u64 + 1, slow(&trace[..=culprit])));
}

fn is_slow(bytes: &[u8]) -> bool {
    bytes.first() == Some(&3)
}

/// The packet with a difference is named although later ones have run.
#[test]
fn a_difference_is_found_among_packets_that_ran_ahead() {
    let mut target = Ahead { inner: engine(Fault::OneBit), ..Ahead::default() };
    let report =
        compare(&mut engine(Fault::None), &mut target, &packets(200), &CompareOptions::default()).expect("runs");
    let found = report.disagreement.expect("a bit differs");
    let alone = compared(Fault::OneBit, &packets(200), &CompareOptions::default()).disagreement.expect("a bit differs");
    assert_eq!((found.kind, found.position), (alone.kind, alone.position));
    assert!(found.state.is_empty(), "it would be that of later packets");
}

/// Several targets follow one run of the reference, and each is judged as if it were alone: wherever it differs, the
/// others go on.
#[test]
fn several_targets_are_compared_in_one_run() {
    let mut trace = packets(3000);
    trace[2999].bytes.truncate(3);
    let options = CompareOptions { snapshot_every: 700, keeps_record: true, ..CompareOptions::default() };
    let faults = [Fault::None, Fault::OneBit, Fault::State, Fault::Fault, Fault::Event, Fault::None, Fault::Passing];
    for last in [Fault::None, Fault::OneBit, Fault::Refuses] {
        let faults: Vec<Fault> = faults.into_iter().chain([last]).collect();
        let mut reference = engine(Fault::None);
        let mut engines: Vec<Counting> = faults.iter().map(|fault| engine(*fault)).collect();
        let mut targets: Vec<&mut dyn Datapath> = engines.iter_mut().map(|e| e as &mut dyn Datapath).collect();
        let reports = compare_stream_all(&mut reference, &mut targets, &mut stream(&trace), &options).expect("runs");
        assert_eq!(reports.len(), faults.len());
        for (fault, report) in faults.into_iter().zip(reports) {
            if fault == Fault::Refuses {
                assert_eq!(report, None, "it has to be compared alone");
                continue;
            }
            let (mut reference, mut target) = (engine(Fault::None), engine(fault));
            let alone = compare_stream(&mut reference, &mut target, &mut stream(&trace), &options).expect("runs");
            assert_eq!(alone.agrees(), fault == Fault::None);
            assert_eq!(report, Some(alone));
        }
    }
    // If all differ, no more packets are read.
    let (mut read, mut more) = (0, stream(&trace));
    let mut next = |arrival: &mut Arrival| {
        read += 1;
        more(arrival)
    };
    let mut engines = [Fault::OneBit, Fault::Fault].map(engine);
    let mut targets: Vec<&mut dyn Datapath> = engines.iter_mut().map(|e| e as &mut dyn Datapath).collect();
    let options = CompareOptions::default();
    let reports = compare_stream_all(&mut engine(Fault::None), &mut targets, &mut next, &options).expect("runs");
    let positions = reports.iter().map(|report| report.as_ref()?.disagreement.as_ref()?.position);
    assert_eq!(positions.collect::<Vec<_>>(), [Some(40), Some(5)]);
    assert!(read < trace.len(), "{read}");
}

/// A failure of the reference ends the comparison, unless all targets differ before.
#[test]
fn a_failure_of_the_reference_ends_the_run_of_all_targets() {
    let trace = packets(40);
    let run = |faults: [Fault; 2]| {
        let mut engines = faults.map(engine);
        let mut targets: Vec<&mut dyn Datapath> = engines.iter_mut().map(|e| e as &mut dyn Datapath).collect();
        let options = CompareOptions::default();
        compare_stream_all(&mut engine(Fault::Fault), &mut targets, &mut stream(&trace), &options)
    };
    assert!(matches!(run([Fault::None, Fault::None]), Err(EngineError::Fault { insn: 3, .. })));
    assert!(matches!(run([Fault::None, Fault::Fault]), Err(EngineError::Fault { insn: 3, .. })));
}

/// Packets ahead are bounded by their bytes, too.
#[test]
fn long_packets_are_announced_in_smaller_numbers() {
    let mut trace = packets(12);
    trace.iter_mut().for_each(|arrival| arrival.bytes.resize(700_000, 1));
    let mut target = Ahead::default();
    let report = compare(&mut engine(Fault::None), &mut target, &trace, &CompareOptions::default()).expect("runs");
    assert!(report.agrees(), "{report:?}");
    assert_eq!((report.packets_compared, target.longest), (12, 2));
}

/// An engine with digests, which counts its snapshots.
#[derive(Default)]
struct Digested<D> {
    engine: D,
    snapshots: usize,
}

impl<D: Datapath> Datapath for Digested<D> {
    fn name(&self) -> &str {
        "digested"
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn most_ahead(&self) -> usize {
        self.engine.most_ahead()
    }

    fn announce(&mut self, packets: &[(Packet<'_>, Choices)]) -> Result<(), EngineError> {
        self.engine.announce(packets)
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        self.engine.process(packet, choices)
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.engine.sweep(now_ns)
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        self.snapshots += 1;
        self.engine.snapshot()
    }

    fn digest(&mut self) -> Option<Digest> {
        let mut digest = Digest::default();
        let state = self.engine.snapshot().ok()?;
        state.maps["counts"].iter().for_each(|(key, value)| digest.add("counts", key, value));
        Some(digest)
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.engine.restore(state)
    }
}

/// On the way, states are compared by digests; whole ones follow where those differ, and at the end.
#[test]
fn states_on_the_way_are_compared_by_digests() {
    fn run<D: Datapath>(engine: D) -> (Report, usize) {
        let options = CompareOptions { snapshot_every: 100, ..CompareOptions::default() };
        let mut reference = Digested::<Counting>::default();
        let mut target = Digested { engine, snapshots: 0 };
        let report = compare(&mut reference, &mut target, &packets(1000), &options).expect("runs");
        (report, target.snapshots)
    }
    let ahead = |fault| Ahead { inner: engine(fault), ..Ahead::default() };
    for (report, snapshots) in [run(engine(Fault::None)), run(ahead(Fault::None))] {
        assert!(report.agrees(), "{report:?}");
        assert_eq!((report.snapshots_compared, snapshots), (10, 1));
    }
    let options = CompareOptions { snapshot_every: 100, ..CompareOptions::default() };
    let expected = compared(Fault::State, &packets(1000), &options).disagreement.expect("a count differs");
    for (report, _) in [run(engine(Fault::State)), run(ahead(Fault::State))] {
        let found = report.disagreement.expect("a count differs");
        assert_eq!((found.kind, found.position), (expected.kind, expected.position));
        assert_eq!(found.state, expected.state);
    }
}
