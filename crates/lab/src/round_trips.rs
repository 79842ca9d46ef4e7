// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Round-trip times: a sender waits for the answer to each packet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use flowloom_exec::Interface;

use crate::bed::{Bed, joined};
use crate::error::LabError;
use crate::packets::Packets;
use crate::station::{Station, receiver};
use crate::sys::{self, FrameSocket};

/// The packets before the first that counts.
const WARM_UP: u32 = 50;
/// The patience for an answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;

/// Measured round trips.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundTrips {
    /// The times in nanoseconds, ascending.
    pub ns: Vec<u64>,
    /// The packets without an answer.
    pub lost: u32,
}

impl RoundTrips {
    /// The time below which this share of the round trips is, in microseconds; NaN if there are none.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let last = self.ns.len().saturating_sub(1);
        self.ns.get((last as f64 * share).round() as usize).map_or(f64::NAN, |ns| *ns as f64 / 1000.0)
    }
}

/// A socket on an interface of the generator, in the calling thread.
fn socket(bed: &Bed, name: &str) -> Result<FrameSocket, LabError> {
    bed.enter_there()?;
    sys::pin(0);
    let found = Interface::find(0, name)?;
    FrameSocket::open(found.index()).map_err(|e| LabError::of_call("open a packet socket", e))
}

/// Returns each packet to its sender: swaps addresses and ports.
fn echo(bed: &Bed, stop: &AtomicBool) -> Result<(), LabError> {
    let socket = socket(bed, "far2")?;
    let failed = |e| LabError::of_call("return a packet", e);
    let mut buffer = vec![0; 2048];
    while !stop.load(Ordering::Relaxed) {
        let Some(packet) = socket.receive(&mut buffer).map_err(failed)? else { continue };
        if packet.len() < HEADERS {
            continue;
        }
        for (at, bytes) in [(0, 6), (26, 4), (34, 2)] {
            let (first, second) = packet[at..].split_at_mut(bytes);
            first.swap_with_slice(&mut second[..bytes]);
        }
        socket.send(packet).map_err(failed)?;
    }
    Ok(())
}

/// Sends packets of one flow, one after the other, each when the one before was answered.
fn ask(bed: &Bed, bytes: usize, packets: u32, stop: &AtomicBool) -> Result<RoundTrips, LabError> {
    let socket = socket(bed, "far1")?;
    let failed = |e| LabError::of_call("send a packet", e);
    let mut packet = Packets::Udp.template(bytes);
    Packets::Udp.write(&mut packet, 1);
    let mut buffer = vec![0; 2048];
    let mut found = RoundTrips { ns: Vec::with_capacity(packets as usize), lost: 0 };
    for number in 0..packets + WARM_UP {
        if stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        let mark = (number + 1).to_be_bytes();
        packet[HEADERS..HEADERS + 4].copy_from_slice(&mark);
        let start = Instant::now();
        socket.send(&packet).map_err(failed)?;
        let answered = loop {
            let is_answer = |found: &[u8]| found.get(HEADERS..HEADERS + 4) == Some(&mark);
            match socket.receive(&mut buffer).map_err(failed)? {
                Some(answer) if is_answer(answer) => break Some(start.elapsed()),
                _ if start.elapsed() > PATIENCE => break None,
                _ => {}
            }
        };
        if number < WARM_UP {
            continue;
        }
        match answered {
            Some(time) => found.ns.push(time.as_nanos() as u64),
            None => found.lost += 1,
        }
    }
    found.ns.sort_unstable();
    Ok(found)
}

/// Measures round trips of packets of this length from `far1` through a function to `far2` and back.
///
/// # Errors
/// The function or the generator cannot run, or nothing is answered.
pub fn round_trips(
    bed: &Bed,
    station: &Station<'_>,
    bytes: usize,
    packets: u32,
    stop: &AtomicBool,
) -> Result<RoundTrips, LabError> {
    let (is_over, no_more) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        let function = scope.spawn(|| station.run(bed, &is_over, move || _ = ready.send(())));
        // An error ends the thread, and so the channel.
        let found = is_ready.recv().is_ok().then(|| {
            let far = joined(scope.spawn(|| receiver(bed, true)).join())?;
            let echo = scope.spawn(|| echo(bed, &no_more));
            let found = joined(scope.spawn(|| ask(bed, bytes, packets, stop)).join());
            no_more.store(true, Ordering::Relaxed);
            let echoed = joined(echo.join());
            drop(far);
            found.and_then(|found| echoed.map(|()| found))
        });
        is_over.store(true, Ordering::Relaxed);
        joined(function.join())?;
        let found = found.unwrap_or(Err(LabError::Interrupted))?;
        if found.ns.is_empty() {
            return Err(LabError::Nothing { name: "round trips".to_owned(), sent: packets.into() });
        }
        Ok(found)
    })
}
