// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop on devices in memory, compared with the loop over captures of `exec`.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use flowloom_engine::{Choices, Copying, Datapath, EngineError, Outcome, Packet, Snapshot};
use flowloom_exec::{IterSource, RunOptions, Sinks};
use flowloom_testkit::{PacketBuilder, Rng};
use flowloom_trace::{CaptureWriter, CapturedPacket, Format};

use super::*;
use crate::{CaptureSink, CaptureSource, RunBatch};

/// What an engine was asked to do, in order.
#[derive(Debug, PartialEq, Eq)]
enum Call {
    Sweep(u64),
    Packet(Choices),
}

/// Every verdict by the number of the packet, clones included.
#[derive(Default)]
struct Varied {
    calls: Vec<Call>,
    packets: u64,
}

impl Datapath for Varied {
    fn name(&self) -> &str {
        "varied"
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        self.calls.push(Call::Packet(*choices));
        self.packets += 1;
        let port = packet.port;
        let output = |port, extra: u8| Output { port, bytes: [packet.bytes, &[extra]].concat() };
        let of = |verdict, outputs| Outcome { verdict, outputs, events: Vec::new() };
        Ok(match self.packets % 7 {
            0 => Outcome::without_output(Verdict::Aborted),
            1 => of(Verdict::Drop, vec![output(Port(3), 0), output(Port(4), 1)]),
            2 => of(Verdict::Pass, vec![output(Port(9), 0), output(port, 2)]),
            3 => of(Verdict::Tx, vec![output(port, 3)]),
            4 => of(Verdict::Redirect, vec![output(Port(5), 4), output(Port(6), 5)]),
            5 => Outcome::without_output(Verdict::Redirect),
            // Longer than the buffer.
            _ => Outcome::sent(Verdict::Tx, port, vec![9; 9000]),
        })
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.calls.push(Call::Sweep(now_ns));
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        Ok(Snapshot::default())
    }

    fn restore(&mut self, _: &Snapshot) -> Result<(), EngineError> {
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn captured(count: u64) -> Vec<CapturedPacket> {
    let mut rng = Rng::new(5);
    let mut time_ns = 1_000;
    (0..count)
        .map(|_| {
            time_ns += rng.below(400) as u64;
            let bytes = PacketBuilder::random(&mut rng, 20).build();
            let original_len_bytes = bytes.len() as u32;
            let port = 1 + rng.below(3) as u32;
            CapturedPacket { time_ns, bytes, original_len_bytes, port, ..CapturedPacket::default() }
        })
        .collect()
}

#[test]
fn captures_run_as_in_the_loop_over_captures() {
    let packets = captured(1000);
    let sweep = SweepClock::new(1000);
    let (mut expected, written) = (Varied::default(), Buffer::default());
    let mut writer = CaptureWriter::to_writer("expected", Format::PcapNg, written.clone()).expect("written");
    let sinks = Sinks { packets: Some(&mut writer), ..Sinks::default() };
    let options = RunOptions { seed: 3, count: None, sweep: sweep.clone(), ..RunOptions::default() };
    let mut input = IterSource::new(packets.iter().cloned().map(Ok));
    let summary = flowloom_exec::run(&mut expected, &mut input, sinks, options, &mut |_| ()).expect("runs");
    writer.finish().expect("written");

    let mut engine = Copying::new(Box::new(Varied::default()), 3);
    let found_written = Buffer::default();
    let mut writer = CaptureWriter::to_writer("found", Format::PcapNg, found_written.clone()).expect("written");
    let source = CaptureSource::read(&mut packets.into_iter().map(Ok), 0).expect("read");
    let mut devices: Vec<Box<dyn Device + '_>> = vec![Box::new(source), Box::new(CaptureSink::new(Some(&mut writer)))];
    let options = LoopOptions { sweep, ..LoopOptions::default() };
    let stop = AtomicBool::new(false);
    let found = run_loop(&mut devices, &mut engine, None, &options, &stop, Hooks::default()).expect("runs");
    drop(devices);
    writer.finish().expect("written");

    assert_eq!(engine.datapath_mut().calls, expected.calls);
    assert!(summary.sweeps > 100, "{summary:?}");
    assert_eq!((found.packets, found.bytes, found.verdicts), (summary.packets, summary.bytes, summary.verdicts));
    assert_eq!((found.sweeps, found.times_ns), (summary.sweeps, summary.times_ns));
    assert_eq!((found.devices.sent, found.devices.sent_bytes), (summary.outputs, summary.output_bytes));
    let (found, expected) = (found_written.0.lock().expect("no panic"), written.0.lock().expect("no panic"));
    assert!(*found == *expected, "the captures differ");
}

#[test]
fn repeated_captures_go_on_in_time() {
    let mut engine = Copying::new(Box::new(Varied::default()), 0);
    let packets: Vec<CapturedPacket> = captured(70);
    let times: Vec<u64> = packets.iter().map(|packet| packet.time_ns).collect();
    let source = CaptureSource::read(&mut packets.into_iter().map(Ok), 2).expect("read");
    let mut devices: Vec<Box<dyn Device>> = vec![Box::new(source), Box::new(CaptureSink::default())];
    let (options, stop) = (LoopOptions::default(), AtomicBool::new(false));
    let found = run_loop(&mut devices, &mut engine, None, &options, &stop, Hooks::default()).expect("runs");
    assert_eq!(found.packets, 210);
    let period = times[69] - times[0] + (times[1] - times[0]).max(1);
    let expected = (0..3).flat_map(|round| times.iter().map(move |time| time + round * period));
    let calls = engine.datapath_mut().calls.iter();
    let found: Vec<u64> = calls.map(|call| if let Call::Packet(choices) = call { choices.now_ns } else { 0 }).collect();
    assert_eq!(found, expected.collect::<Vec<u64>>());
}

/// A device whose packets, one for each number, are in memory, and which keeps what it sends.
struct Memory {
    ports: Vec<Port>,
    numbers: Vec<u8>,
    sent: Rc<RefCell<Vec<(Port, u8)>>>,
}

impl Device for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn ports(&self) -> Vec<(Port, String)> {
        self.ports.iter().map(|port| (*port, format!("m{port}"))).collect()
    }

    fn is_live(&self) -> bool {
        false
    }

    fn is_ended(&self) -> bool {
        true
    }

    fn receive(&mut self, _: u64, run: &mut RunBatch<'_>) -> Result<usize, PortsError> {
        let mut buffers: Vec<[u8; 14]> = std::mem::take(&mut self.numbers).into_iter().map(|n| [n; 14]).collect();
        let mut frames: Vec<Frame<'_>> =
            buffers.iter_mut().map(|buffer| Frame::new(buffer, 0, 14, self.ports[0], 0)).collect();
        run(&mut frames)?;
        for frame in &frames {
            match frame.fate {
                Fate::Redirect(port) => self.sent.borrow_mut().push((port, frame.bytes()[0])),
                Fate::Pass | Fate::Tx => panic!("left to the device: {frame:?}"),
                Fate::Aborted | Fate::Drop | Fate::Replaced(_) => {}
            }
        }
        Ok(frames.len())
    }

    fn transmit(&mut self, departure: Departure<'_>) -> Result<(), PortsError> {
        self.sent.borrow_mut().push((departure.port, departure.bytes[0]));
        Ok(())
    }

    fn counters(&mut self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

/// By the number of a packet.
struct Scripted;

impl InPlace for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn bind_ports(&mut self, ports: &Ports) {
        assert!(ports.is_bound(Port(2)) && !ports.is_bound(Port(4)));
    }

    fn run(&mut self, frames: &mut [Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        for (index, frame) in frames.iter_mut().enumerate() {
            let number = frame.bytes()[0];
            frame.fate = match number {
                0 => Fate::Tx,
                1 => Fate::Redirect(Port(2)),
                2 => Fate::Redirect(Port(3)),
                3 => Fate::Redirect(Port(4)),
                4 => Fate::Pass,
                5 => Fate::Redirect(Port::of_cpu(1)),
                6 => Fate::Replaced(Verdict::Redirect),
                7 => Fate::Drop,
                _ => Fate::Redirect(Port(2)),
            };
            if number >= 6 {
                for port in [2, 3, 4] {
                    extra.push((index, Output { port: Port(port), bytes: vec![number + 100] }));
                }
            }
        }
        Ok(())
    }

    fn sweep(&mut self, _: u64) -> Result<(), EngineError> {
        Ok(())
    }
}

#[derive(Default)]
struct Delivered(Vec<(Port, u8)>);

impl Host for Delivered {
    fn deliver(&mut self, port: Port, bytes: &[u8]) -> Result<(), PortsError> {
        self.0.push((port, bytes[0]));
        Ok(())
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters { sent: self.0.len() as u64, ..DeviceCounters::default() }
    }
}

#[test]
fn fates_lead_to_devices_in_order() {
    let (first, second) = (Rc::default(), Rc::default());
    let device = |ports: &[u32], numbers: &[u8], sent: &Rc<_>| -> Box<dyn Device> {
        let ports = ports.iter().copied().map(Port).collect();
        Box::new(Memory { ports, numbers: numbers.to_vec(), sent: Rc::clone(sent) })
    };
    let mut devices = vec![device(&[1, 2], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1], &first), device(&[3], &[], &second)];
    let mut host = Delivered::default();
    let (options, stop) = (LoopOptions::default(), AtomicBool::new(false));
    let found = run_loop(&mut devices, &mut Scripted, Some(&mut host), &options, &stop, Hooks::default());
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    let at = |list: &[(u32, u8)]| list.iter().map(|(port, number)| (Port(*port), *number)).collect::<Vec<_>>();
    // Clones before their packet, packets in order.
    assert_eq!(*first.borrow(), at(&[(1, 0), (2, 1), (2, 106), (2, 107), (2, 108), (2, 8), (1, 0), (2, 1)]));
    assert_eq!(*second.borrow(), at(&[(3, 2), (3, 106), (3, 107), (3, 108)]));
    assert_eq!(host.0, at(&[(1, 4), (1, 5)]));
    assert_eq!(found.verdicts, [1, 1, 1, 2, 6]);
    assert_eq!((found.packets, found.unbound, found.extra, found.passed, found.pass_lost), (11, 4, 9, 2, 0));
}

/// Copies each packet to its own device before it, has a record for it, and fails on packets from number `9` on.
#[derive(Default)]
struct Failing(Vec<Event>);

impl InPlace for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn run(&mut self, frames: &mut [Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        for (index, frame) in frames.iter_mut().enumerate() {
            let number = frame.bytes()[0];
            if number >= 9 {
                return Err(EngineError::Fault { engine: "failing", insn: 7, what: "no reason".to_owned() });
            }
            self.0.push(Event { map: "records".to_owned(), cpu: 0, bytes: vec![number] });
            extra.push((index, Output { port: Port(2), bytes: vec![number + 100] }));
            frame.fate = Fate::Redirect(Port(1));
        }
        Ok(())
    }

    fn sweep(&mut self, _: u64) -> Result<(), EngineError> {
        Ok(())
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.0);
    }
}

#[test]
fn a_run_that_fails_loses_no_counter_record_or_packet() {
    let sent: Rc<RefCell<Vec<(Port, u8)>>> = Rc::default();
    let device = |port: u32, numbers: &[u8]| -> Box<dyn Device> {
        let ports = if port == 1 { vec![Port(1), Port(2)] } else { vec![Port(port)] };
        Box::new(Memory { ports, numbers: numbers.to_vec(), sent: Rc::clone(&sent) })
    };
    let mut devices = vec![device(1, &[1, 2, 3]), device(5, &[4, 9, 5])];
    let (mut records, mut last) = (Vec::new(), None);
    let mut events = |events: &[Event]| records.extend(events.iter().map(|event| event.bytes[0]));
    let mut progress = |so_far: &Statistics| last = Some(so_far.clone());
    let hooks = Hooks { progress: Some(&mut progress), events: Some(&mut events), ..Hooks::default() };
    let (options, stop) = (LoopOptions::default(), AtomicBool::new(false));
    let mut engine = Failing::default();
    let error = run_loop(&mut devices, &mut engine, None, &options, &stop, hooks).expect_err("fails").to_string();
    assert!(error.starts_with("packet 3 or one of its batch: engine `failing`"), "{error}");
    let last = last.expect("the last counters");
    assert_eq!((last.packets, last.verdicts.iter().sum::<u64>(), last.count(Verdict::Aborted)), (6, 6, 3));
    assert_eq!((last.events, records), (4, vec![1, 2, 3, 4]));
    // Of the second batch nothing was decided.
    let numbers: Vec<u8> = sent.borrow().iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, [101, 1, 102, 2, 103, 3]);
}

#[test]
fn wrong_ports_are_refused() {
    let device = |port: u32| -> Box<dyn Device> {
        Box::new(Memory { ports: vec![Port(port)], numbers: Vec::new(), sent: Rc::default() })
    };
    let run = |mut devices: Vec<Box<dyn Device>>| {
        let (options, stop) = (LoopOptions::default(), AtomicBool::new(false));
        let found = run_loop(&mut devices, &mut Scripted, None, &options, &stop, Hooks::default());
        found.expect_err("wrong ports").to_string()
    };
    assert_eq!(run(vec![device(256)]), "port 256 of memory is not below 256");
    assert_eq!(run(vec![device(7), device(7)]), "port 7 is bound twice, to m7 and to m7; each port has one interface");
}

#[test]
fn a_run_stops_after_a_count() {
    let mut engine = Copying::new(Box::new(Varied::default()), 0);
    let source = CaptureSource::read(&mut captured(100).into_iter().map(Ok), 1000).expect("read");
    let mut devices: Vec<Box<dyn Device>> = vec![Box::new(source), Box::new(CaptureSink::default())];
    let options = LoopOptions { count: Some(150), ..LoopOptions::default() };
    let stop = AtomicBool::new(false);
    let found = run_loop(&mut devices, &mut engine, None, &options, &stop, Hooks::default()).expect("runs");
    assert_eq!((found.packets, engine.datapath_mut().packets), (150, 150));
}

/// A live device without packets that ends the run after a time.
struct Idle<'a> {
    stop: &'a AtomicBool,
    end: Instant,
}

impl Device for Idle<'_> {
    fn name(&self) -> &str {
        "idle"
    }

    fn ports(&self) -> Vec<(Port, String)> {
        Vec::new()
    }

    fn receive(&mut self, _: u64, _: &mut RunBatch<'_>) -> Result<usize, PortsError> {
        self.stop.store(Instant::now() >= self.end, Ordering::Relaxed);
        Ok(0)
    }

    fn transmit(&mut self, _: Departure<'_>) -> Result<(), PortsError> {
        Ok(())
    }

    fn counters(&mut self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

#[test]
fn sweeps_go_on_without_packets() {
    for spin in [false, true] {
        let mut engine = Copying::new(Box::new(Varied::default()), 0);
        let stop = AtomicBool::new(false);
        let end = Instant::now() + Duration::from_millis(350);
        let mut devices: Vec<Box<dyn Device + '_>> = vec![Box::new(Idle { stop: &stop, end })];
        // A clock that is far ahead of the system's.
        let (sweep, clock_ahead_ns) = (SweepClock::new(50_000_000), 1 << 60);
        let options = LoopOptions { sweep, spin, clock_ahead_ns, ..LoopOptions::default() };
        let found = run_loop(&mut devices, &mut engine, None, &options, &stop, Hooks::default()).expect("runs");
        let calls = &engine.datapath_mut().calls;
        assert!(found.sweeps >= 3 && calls.len() as u64 == found.sweeps, "{found:?}");
        assert!(calls.iter().all(|call| matches!(call, Call::Sweep(at) if *at > 1 << 60)), "{calls:?}");
    }
}

/// A live device with a packet in each round, which ends the run after a time.
struct Busy<'a>(Idle<'a>);

impl Device for Busy<'_> {
    fn name(&self) -> &str {
        "busy"
    }

    fn ports(&self) -> Vec<(Port, String)> {
        vec![(Port(1), "busy".to_owned())]
    }

    fn receive(&mut self, now_ns: u64, run: &mut RunBatch<'_>) -> Result<usize, PortsError> {
        self.0.receive(now_ns, run)?;
        let mut buffer = [0; 14];
        run(&mut [Frame::new(&mut buffer, 0, 14, Port(1), 0)])?;
        Ok(1)
    }

    fn transmit(&mut self, _: Departure<'_>) -> Result<(), PortsError> {
        Ok(())
    }

    fn counters(&mut self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

/// The steps of sweeps: time of the sweep, share, and most entries. A sweep ends when all of it is asked for.
#[derive(Default)]
struct Stepped(Vec<(u64, f64, u32)>);

impl InPlace for Stepped {
    fn name(&self) -> &str {
        "stepped"
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn run(&mut self, frames: &mut [Frame<'_>], _: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        frames.iter_mut().for_each(|frame| frame.fate = Fate::Drop);
        Ok(())
    }

    fn sweep(&mut self, _: u64) -> Result<(), EngineError> {
        panic!("all at once")
    }

    fn sweep_step(&mut self, now_ns: u64, share: f64, most: u32) -> Result<bool, EngineError> {
        self.0.push((now_ns, share, most));
        Ok(share >= 1.0)
    }
}

/// A sweep is spread over the batches of half of its period, and ends before the next one.
#[test]
fn sweeps_of_live_runs_go_on_in_steps() {
    const PERIOD_NS: u64 = 20_000_000;
    let (mut engine, stop) = (Stepped::default(), AtomicBool::new(false));
    let end = Instant::now() + Duration::from_millis(150);
    let mut devices: Vec<Box<dyn Device + '_>> = vec![Box::new(Busy(Idle { stop: &stop, end }))];
    let options = LoopOptions { sweep: SweepClock::new(PERIOD_NS), ..LoopOptions::default() };
    let found = run_loop(&mut devices, &mut engine, None, &options, &stop, Hooks::default()).expect("runs");
    let sweeps: Vec<&[(u64, f64, u32)]> = engine.0.chunk_by(|(a, ..), (b, ..)| a == b).collect();
    assert!(sweeps.len() as u64 == found.sweeps && sweeps.len() >= 2, "{found:?}");
    assert!(sweeps.iter().any(|steps| steps.len() > 2), "{sweeps:?}");
    for (number, steps) in sweeps.iter().enumerate() {
        assert_eq!(steps[0].0 % PERIOD_NS, 0);
        assert!(steps.is_sorted_by(|(_, a, _), (_, b, _)| a <= b), "{steps:?}");
        assert!(number + 1 == sweeps.len() || steps.last().is_some_and(|(_, share, _)| *share == 1.0), "{steps:?}");
        // More at once only where an earlier sweep is late.
        assert!(steps.iter().all(|(_, share, most)| *most <= SWEPT_A_BATCH || *share == 1.0), "{steps:?}");
    }
}
