// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop between devices and an engine.
//!
//! ```text
//!  for each device:  receive ──► batch ──► sweep if due ──► InPlace::run ──► fates
//!      port of the same device    transmitted from its buffer
//!      port of another device     copied by that device
//!      PASS                       to the host, or to a capture, or counted
//! ```
//!
//! Further outputs (clones, broadcasts) leave before the packet of their frame. For ports of the same device they wait,
//! with all packets after them, until the batch is released, so that the order stays.
//!
//! If nothing arrives for a while (`patience.rs`), the loop sleeps until a packet arrives, for a tenth of a second at
//! most, so that sweeps are late by no more than that.
//!
//! A run that fails still sends what the engine has decided, hands over its records and completes its counters: frames
//! that the engine did not run are aborted, so that the verdicts add up to the packets.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowloom_engine::{EngineError, Event, Fate, Frame, InPlace, Output, PORT_COUNT, Port, Ports, Verdict};
use flowloom_exec::{PacketClock, SweepClock, monotonic_ns};

use crate::device::{Departure, Device, DeviceCounters};
use crate::error::PortsError;
use crate::histogram::Histogram;
use crate::host::Host;
use crate::sys;

mod patience;
use patience::Patience;

/// The default time between two looks at the stop flag and at the interfaces.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The longest sleep if a device has to be polled.
const POLL_EVERY: Duration = Duration::from_micros(100);
/// Of so many batches, one is timed.
pub const TIMED_BATCHES: u64 = 16;

/// The most entries that a sweep visits between two batches: some ten microseconds.
const SWEPT_A_BATCH: u32 = 2048;

/// The options of a run.
#[derive(Debug, Clone)]
pub struct LoopOptions {
    /// The times of sweeps.
    pub sweep: SweepClock,
    /// The offset of the function's clock from the system's ([`monotonic_ns`]), wrapping; live devices only.
    pub clock_ahead_ns: u64,
    /// The number of packets to stop after; what else its batch holds is released unseen.
    pub count: Option<u64>,
    /// The ports of the engine; `None`: those of the devices, or every port if a device takes all.
    pub ports: Option<Ports>,
    /// True if the loop never sleeps: lower latency for a whole CPU.
    pub spin: bool,
    /// The time between two calls of [`Hooks::progress`], and the longest sleep.
    pub look_every: Duration,
}

impl Default for LoopOptions {
    fn default() -> LoopOptions {
        LoopOptions {
            sweep: SweepClock::new(0),
            clock_ahead_ns: 0,
            count: None,
            ports: None,
            spin: false,
            look_every: LOOK_EVERY,
        }
    }
}

/// The counters of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statistics {
    /// The packets received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The packets by verdict, in the order of [`Verdict::ALL`]; those for unbound ports are aborted.
    pub verdicts: [u64; Verdict::ALL.len()],
    /// The packets and further outputs for ports without an interface.
    pub unbound: u64,
    /// The further outputs: clones and broadcasts.
    pub extra: u64,
    /// The passed packets that were delivered to the host or written to a capture.
    pub passed: u64,
    /// The passed packets that were dropped, since there is no way to the host or it did not take them.
    pub pass_lost: u64,
    /// The sums over the devices.
    pub devices: DeviceCounters,
    /// The batches run.
    pub batches: u64,
    /// The records for user space.
    pub events: u64,
    /// The sweeps.
    pub sweeps: u64,
    /// The arrival times of the first and the last packet, on the function's clock.
    pub times_ns: Option<(u64, u64)>,
    /// The elapsed time.
    pub elapsed: Duration,
    /// The counters of each port that has an interface or has received a packet, by number.
    pub ports: Vec<PortCounters>,
    /// The times from the receipt of a batch to the fates of its packets, of one batch in [`TIMED_BATCHES`].
    pub service: Histogram,
}

/// The counters of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounters {
    /// The port.
    pub port: Port,
    /// The packets received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// The packets received by verdict, in the order of [`Verdict::ALL`].
    pub verdicts: [u64; Verdict::ALL.len()],
    /// The packets handed to the interface, clones and broadcasts too.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
}

impl Statistics {
    /// The packets with this verdict.
    pub fn count(&self, verdict: Verdict) -> u64 {
        self.verdicts[verdict.number() as usize]
    }

    /// The rate in packets a second; 0 if no time has passed.
    pub fn packets_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.packets as f64 / seconds } else { 0.0 }
    }
}

/// Called with the counters so far.
pub type Progress<'a> = dyn FnMut(&Statistics) + 'a;
/// Called with the records for user space, in order.
pub type EventReader<'a> = dyn FnMut(&[Event]) + 'a;

/// Called on the thread of the loop, between two batches, when another thread wants it.
#[allow(missing_debug_implementations, reason = "closures")]
pub struct Visits<'a> {
    /// Set by the other thread; the loop clears it.
    pub wanted: &'a AtomicBool,
    /// Becomes readable when `wanted` is set, so that a sleeping loop wakes up.
    pub wakes: RawFd,
    /// Gets the counters so far. It may replace the times of sweeps, for a function that was replaced.
    pub visit: &'a mut dyn FnMut(&Statistics, &mut SweepClock),
}

/// Called during a run.
#[derive(Default)]
#[allow(missing_debug_implementations, reason = "closures")]
pub struct Hooks<'a> {
    /// Each [`LoopOptions::look_every`], and once more if the run fails.
    pub progress: Option<&'a mut Progress<'a>>,
    /// As soon as the batch is done.
    pub events: Option<&'a mut EventReader<'a>>,
    /// When another thread wants it.
    pub visits: Option<Visits<'a>>,
}

/// A packet that leaves through the device of its batch after that is released.
struct Waiting {
    port: Port,
    verdict: Verdict,
    time_ns: u64,
    bytes: Vec<u8>,
}

/// The devices other than the one of a batch.
struct Others<'a, 'd> {
    before: &'a mut [Box<dyn Device + 'd>],
    after: &'a mut [Box<dyn Device + 'd>],
}

impl<'d> Others<'_, 'd> {
    /// The number of the device of the batch.
    fn own(&self) -> usize {
        self.before.len()
    }

    /// Device number `number`; `None` for that of the batch.
    fn get(&mut self, number: usize) -> Option<&mut (dyn Device + 'd)> {
        let own = self.own();
        match number.checked_sub(own + 1) {
            None => self.before.get_mut(number).map(|device| &mut **device),
            Some(number) => self.after.get_mut(number).map(|device| &mut **device),
        }
    }
}

/// What a batch needs besides the devices.
struct Batches<'a> {
    engine: &'a mut dyn InPlace,
    /// The device of each port.
    routes: &'a [Option<usize>],
    /// The device that takes all other ports and passed packets.
    taker: Option<usize>,
    host: Option<&'a mut (dyn Host + 'a)>,
    sweep: SweepClock,
    /// The time of the sweep that is on its way.
    sweeping: Option<u64>,
    /// True if sweeps go on in steps between batches: on live devices. On captures they are exact.
    sweeps_in_steps: bool,
    clock: PacketClock,
    count: Option<u64>,
    extra: Vec<(usize, Output)>,
    waiting: Vec<Waiting>,
    events: Vec<Event>,
    statistics: Statistics,
    /// By number of the port, the index of its counters.
    counted: Vec<u32>,
}

/// No counters yet: the value of [`Batches::counted`].
const NOT_COUNTED: u32 = u32::MAX;

impl Batches<'_> {
    /// Runs a batch of the device that is not in `others`.
    fn run(&mut self, others: &mut Others<'_, '_>, frames: &mut [Frame<'_>]) -> Result<(), PortsError> {
        let packet = self.statistics.packets;
        let failed = |source| PortsError::Engine { packet, source };
        let wanted = self.count.map_or(u64::MAX, |count| count - packet).min(frames.len() as u64);
        let (frames, beyond) = frames.split_at_mut(wanted as usize);
        beyond.iter_mut().for_each(|frame| frame.fate = Fate::Drop);
        if frames.is_empty() {
            return Ok(());
        }
        let received = self.statistics.batches.is_multiple_of(TIMED_BATCHES).then(Instant::now);
        let count = frames.len() as u64;
        for frame in frames.iter_mut() {
            frame.time_ns = self.clock.at(frame.time_ns);
            let bytes = frame.len_bytes() as u64;
            self.statistics.bytes += bytes;
            let own = self.port(frame.port);
            own.received += 1;
            own.received_bytes += bytes;
        }
        if let (Some(first), Some(last)) = (frames.first(), frames.last()) {
            let start = self.statistics.times_ns.map_or(first.time_ns, |(start, _)| start);
            self.statistics.times_ns = Some((start, last.time_ns));
        }
        self.statistics.batches += 1;
        self.statistics.packets += frames.len() as u64;
        // A sweep comes before the first packet whose time reaches it.
        let mut rest = frames;
        while !rest.is_empty() {
            if let Err(error) = self.sweep_to(rest[0].time_ns, SWEPT_A_BATCH) {
                self.abort(rest);
                return Err(failed(error));
            }
            let mut after = self.sweep.clone();
            let until = rest.iter().position(|frame| after.due(frame.time_ns).is_some()).unwrap_or(rest.len());
            let (now, later) = rest.split_at_mut(until);
            self.extra.clear();
            if let Err(error) = self.engine.run(now, &mut self.extra) {
                self.abort(now);
                self.abort(later);
                return Err(failed(error));
            }
            if let Err(error) = self.dispatch(others, now) {
                self.abort(later);
                return Err(error);
            }
            rest = later;
        }
        if let Some(received) = received {
            self.statistics.service.add(received.elapsed().as_nanos() as u64, count);
        }
        Ok(())
    }

    /// Aborts frames that the engine did not run.
    fn abort(&mut self, frames: &mut [Frame<'_>]) {
        frames.iter_mut().for_each(|frame| frame.fate = Fate::Aborted);
        for frame in frames {
            self.count(frame.port, Verdict::Aborted);
        }
    }

    /// The counters of a port.
    #[inline]
    fn port(&mut self, port: Port) -> &mut PortCounters {
        let known = self.counted.get(port.0 as usize).copied().unwrap_or(NOT_COUNTED);
        let index = if known == NOT_COUNTED { self.begin_port(port) } else { known };
        &mut self.statistics.ports[index as usize]
    }

    #[cold]
    fn begin_port(&mut self, port: Port) -> u32 {
        let ports = &mut self.statistics.ports;
        if let Some(index) = ports.iter().position(|counters| counters.port == port) {
            return index as u32;
        }
        let index = ports.len() as u32;
        ports.push(PortCounters { port, ..PortCounters::default() });
        if let Some(place) = self.counted.get_mut(port.0 as usize) {
            *place = index;
        }
        index
    }

    /// Counts a packet that is handed to the interface of a port.
    #[inline]
    fn leaves(&mut self, port: Port, bytes: usize) {
        let counters = self.port(port);
        counters.sent += 1;
        counters.sent_bytes += bytes as u64;
    }

    /// The device of a port.
    fn route(&self, port: Port) -> Option<usize> {
        self.routes.get(port.0 as usize).copied().flatten().or(self.taker)
    }

    /// Decides what happens to each frame; afterwards only frames for ports of the device of the batch are `Redirect`.
    fn dispatch(&mut self, others: &mut Others<'_, '_>, frames: &mut [Frame<'_>]) -> Result<(), PortsError> {
        let extra = std::mem::take(&mut self.extra);
        self.statistics.extra += extra.len() as u64;
        let mut further = extra.into_iter().peekable();
        // After a failure the other frames still leave.
        let mut failed = Ok(());
        for (index, frame) in frames.iter_mut().enumerate() {
            let (verdict, time_ns) = (frame.fate.verdict(), frame.time_ns);
            while let Some((_, Output { port, bytes })) = further.next_if(|(of, _)| *of <= index) {
                let Some(number) = self.route(port) else {
                    self.statistics.unbound += 1;
                    continue;
                };
                self.leaves(port, bytes.len());
                match others.get(number) {
                    Some(device) => {
                        failed = failed.and(device.transmit(Departure { port, verdict, time_ns, bytes: &bytes }));
                    }
                    None => self.waiting.push(Waiting { port, verdict, time_ns, bytes }),
                }
            }
            let port = match frame.fate {
                Fate::Tx => frame.port,
                Fate::Redirect(port) if port.cpu().is_none() => port,
                // A CPU map hands packets to the network stack.
                Fate::Pass | Fate::Redirect(_) => {
                    self.count(frame.port, verdict);
                    failed = failed.and(self.pass(others, frame, verdict));
                    continue;
                }
                Fate::Aborted | Fate::Drop | Fate::Replaced(_) => {
                    self.count(frame.port, verdict);
                    continue;
                }
            };
            let Some(number) = self.route(port) else {
                self.statistics.unbound += 1;
                self.count(frame.port, Verdict::Aborted);
                frame.fate = Fate::Aborted;
                continue;
            };
            self.count(frame.port, verdict);
            self.leaves(port, frame.len_bytes());
            frame.fate = match others.get(number) {
                Some(device) => {
                    failed = failed.and(device.transmit(Departure { port, verdict, time_ns, bytes: frame.bytes() }));
                    Fate::Replaced(verdict)
                }
                None if self.waiting.is_empty() => Fate::Redirect(port),
                None => {
                    self.waiting.push(Waiting { port, verdict, time_ns, bytes: frame.bytes().to_vec() });
                    Fate::Replaced(verdict)
                }
            };
        }
        failed
    }

    fn count(&mut self, ingress: Port, verdict: Verdict) {
        self.statistics.verdicts[verdict.number() as usize] += 1;
        self.port(ingress).verdicts[verdict.number() as usize] += 1;
    }

    /// Passes a frame to the host.
    fn pass(&mut self, others: &mut Others<'_, '_>, frame: &mut Frame<'_>, verdict: Verdict) -> Result<(), PortsError> {
        frame.fate = Fate::Replaced(verdict);
        // A device that takes all only receives what others have received.
        match (&mut self.host, self.taker.and_then(|number| others.get(number))) {
            (Some(host), _) => host.deliver(frame.port, frame.bytes())?,
            (None, Some(device)) => {
                let (port, time_ns) = (frame.port, frame.time_ns);
                device.transmit(Departure { port, verdict, time_ns, bytes: frame.bytes() })?;
                self.statistics.passed += 1;
            }
            (None, None) => self.statistics.pass_lost += 1,
        }
        Ok(())
    }

    /// Sweeps if that is due while no packets arrive.
    fn sweep_idle(&mut self, options: &LoopOptions) -> Result<(), PortsError> {
        let now_ns = self.clock.at(monotonic_ns().wrapping_add(options.clock_ahead_ns));
        let packet = self.statistics.packets;
        self.sweep_to(now_ns, u32::MAX).map_err(|source| PortsError::Engine { packet, source })
    }

    /// Begins a sweep if one is due, and goes on with it: it ends within half of its period, if it need not visit more
    /// than `most` entries in this step. An earlier one that has not ended by then ends now. Without a bound, while no
    /// packet waits, it ends at once.
    fn sweep_to(&mut self, now_ns: u64, most: u32) -> Result<(), EngineError> {
        if let Some(moment_ns) = self.sweep.due(now_ns) {
            if let Some(earlier_ns) = self.sweeping.replace(moment_ns) {
                self.engine.sweep_step(earlier_ns, 1.0, u32::MAX)?;
            }
            self.statistics.sweeps += 1;
        }
        let Some(moment_ns) = self.sweeping else { return Ok(()) };
        let (share, most) = if self.sweeps_in_steps && most < u32::MAX {
            let since_ns = now_ns.saturating_sub(moment_ns);
            ((2.0 * since_ns as f64 / self.sweep.period_ns().max(1) as f64).min(1.0), most)
        } else {
            (1.0, u32::MAX)
        };
        if self.engine.sweep_step(moment_ns, share, most)? {
            self.sweeping = None;
        }
        Ok(())
    }

    /// Gives the records for user space to their reader.
    fn hand_over_events(&mut self, hooks: &mut Hooks<'_>) {
        self.engine.take_events(&mut self.events);
        if self.events.is_empty() {
            return;
        }
        self.statistics.events += self.events.len() as u64;
        if let Some(reader) = &mut hooks.events {
            reader(&self.events);
        }
        self.events.clear();
    }

    /// Counts what the host has taken.
    fn count_passed(&mut self) {
        if let Some(host) = &self.host {
            let counters = host.counters();
            self.statistics.passed = counters.sent;
            self.statistics.pass_lost = counters.tx_full + counters.tx_refused;
        }
    }
}

/// The device of each port.
fn routes(devices: &[Box<dyn Device + '_>]) -> Result<Vec<Option<usize>>, PortsError> {
    let mut routes = vec![None; PORT_COUNT as usize];
    let mut names: BTreeMap<Port, String> = BTreeMap::new();
    for (number, device) in devices.iter().enumerate() {
        for (port, interface) in device.ports() {
            let Some(route) = routes.get_mut(port.0 as usize) else {
                return Err(PortsError::PortNumber { port, device: device.name().to_owned() });
            };
            if let Some(first) = names.insert(port, interface.clone()) {
                return Err(PortsError::BoundTwice { port, first, second: interface });
            }
            *route = Some(number);
        }
    }
    Ok(routes)
}

/// Moves packets between the devices and the engine until `stop` is set, all sources have ended or the count of packets
/// is reached. Returns the counters.
///
/// Passed packets go to `host`; without one, to a device that takes all; without one, they are dropped and counted in
/// [`Statistics::pass_lost`].
///
/// # Errors
/// An interface has disappeared; a device or the engine failed. What was received before has been run, what the engine
/// has decided was sent if the devices still can, and the hooks have had the last records and counters.
///
/// # Cost
/// Constant memory besides the engine's state.
pub fn run_loop<'a>(
    devices: &mut [Box<dyn Device + 'a>],
    engine: &mut dyn InPlace,
    host: Option<&mut (dyn Host + '_)>,
    options: &LoopOptions,
    stop: &AtomicBool,
    mut hooks: Hooks<'_>,
) -> Result<Statistics, PortsError> {
    let routes = routes(devices)?;
    let taker = devices.iter().position(|device| device.takes_all());
    let ports = options.ports.clone().unwrap_or_else(|| match taker {
        Some(_) => Ports::default(),
        None => Ports::bound((0..PORT_COUNT).map(Port).filter(|port| routes[port.0 as usize].is_some())),
    });
    engine.bind_ports(&ports);
    let mut batches = Batches {
        engine,
        routes: &routes,
        taker,
        host: host.map(|host| host as _),
        sweep: options.sweep.clone(),
        sweeping: None,
        sweeps_in_steps: false,
        clock: PacketClock::default(),
        count: options.count,
        extra: Vec::new(),
        waiting: Vec::new(),
        events: Vec::new(),
        statistics: Statistics::default(),
        counted: vec![NOT_COUNTED; PORT_COUNT as usize],
    };
    for port in (0..PORT_COUNT).map(Port).filter(|port| routes[port.0 as usize].is_some()) {
        batches.begin_port(port);
    }
    let start = Instant::now();
    let ended = rounds(&mut batches, devices, options, stop, &mut hooks, start);
    if ended.is_err() {
        // The error of the run counts, not one of these.
        devices.iter_mut().for_each(|device| drop(device.flush()));
        if let Some(host) = &mut batches.host {
            drop(host.flush());
        }
        batches.hand_over_events(&mut hooks);
    }
    finish(&mut batches, devices, start);
    match ended {
        Ok(()) => Ok(batches.statistics),
        Err(error) => {
            if let Some(progress) = &mut hooks.progress {
                progress(&batches.statistics);
            }
            Err(error)
        }
    }
}

/// The rounds of a run, until it ends.
fn rounds<'a>(
    batches: &mut Batches<'_>,
    devices: &mut [Box<dyn Device + 'a>],
    options: &LoopOptions,
    stop: &AtomicBool,
    hooks: &mut Hooks<'_>,
    start: Instant,
) -> Result<(), PortsError> {
    let is_live = devices.iter().any(|device| device.is_live());
    batches.sweeps_in_steps = is_live;
    let is_polled = devices.iter().any(|device| device.is_polled());
    let mut fds: Vec<RawFd> = Vec::new();
    devices.iter().for_each(|device| device.wait_on(&mut fds));
    fds.extend(hooks.visits.as_ref().map(|visits| visits.wakes));
    let mut looked = start;
    let mut patience = Patience::new(is_polled.then_some(POLL_EVERY));
    // The beginning of the current round.
    let mut looks_at = start;
    while !stop.load(Ordering::Relaxed) && options.count.is_none_or(|count| batches.statistics.packets < count) {
        let mut received = 0;
        for number in 0..devices.len() {
            let now_ns = if is_live { monotonic_ns().wrapping_add(options.clock_ahead_ns) } else { 0 };
            let (before, rest) = devices.split_at_mut(number);
            let Some((device, after)) = rest.split_first_mut() else { break };
            let mut others = Others { before, after };
            let ran = device.receive(now_ns, &mut |frames| {
                if is_live {
                    frames.iter_mut().for_each(|frame| frame.time_ns = now_ns);
                }
                batches.run(&mut others, frames)
            });
            let mut sent = Ok(());
            for Waiting { port, verdict, time_ns, bytes } in batches.waiting.drain(..) {
                sent = sent.and(device.transmit(Departure { port, verdict, time_ns, bytes: &bytes }));
            }
            received += ran?;
            sent?;
        }
        for device in &mut *devices {
            device.flush()?;
        }
        if let Some(host) = &mut batches.host {
            host.flush()?;
        }
        batches.hand_over_events(hooks);
        if let Some(visits) = &mut hooks.visits
            && visits.wanted.load(Ordering::Relaxed)
        {
            visits.wanted.store(false, Ordering::SeqCst);
            finish(batches, devices, start);
            (visits.visit)(&batches.statistics, &mut batches.sweep);
        }
        if received == 0 && devices.iter().all(|device| device.is_ended()) {
            break;
        }
        let now = Instant::now();
        if now - looked >= options.look_every {
            looked = now;
            for device in &mut *devices {
                device.check()?;
            }
            if let Some(progress) = &mut hooks.progress {
                finish(batches, devices, start);
                progress(&batches.statistics);
            }
        }
        if received > 0 || !is_live {
            patience.found(looks_at);
            looks_at = now;
            continue;
        }
        batches.sweep_idle(options)?;
        looks_at = now;
        if options.spin {
            continue;
        }
        if patience.sleeps(now) {
            // Nothing tells when a full ring of a driver has room again.
            let is_polled = is_polled || devices.iter().any(|device| device.has_unsent());
            let longest = if is_polled { POLL_EVERY } else { options.look_every };
            sys::wait(&fds, longest).map_err(|source| PortsError::System {
                device: "packet loop".to_owned(),
                action: "wait for packets".to_owned(),
                source,
            })?;
            looks_at = Instant::now();
        } else {
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Brings the counters up to date.
fn finish(batches: &mut Batches<'_>, devices: &mut [Box<dyn Device + '_>], start: Instant) {
    batches.count_passed();
    let counters = devices.iter_mut().map(|device| device.counters());
    batches.statistics.devices = counters.fold(DeviceCounters::default(), DeviceCounters::plus);
    batches.statistics.elapsed = start.elapsed();
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests;
