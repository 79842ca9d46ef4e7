// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Raw sockets: the packets of any interface, through the network stack's taps. The baseline to compare with.
//!
//! The kernel shows these sockets each packet before the network stack, and the stack would process it as well. A
//! program at the ingress keeps the packets from the stack while the device is open, unless that is switched off.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use flowloom_engine::{Fate, Frame, Port};
use flowloom_exec::Interface;

use crate::device::{Departure, Device, DeviceCounters, RunBatch};
use crate::error::{BPF_NEEDS, PortsError, RAW_NEEDS};
use crate::interfaces::{Bound, bind_all, device_name};
use crate::sys::bpf::Program;
use crate::sys::packet::{self, Received, Slots};

/// The packets of a batch, at most.
const BATCH: usize = 64;

/// The options of raw sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawOptions {
    /// True if packets are kept from the network stack, as with the other devices. False: it receives them too,
    /// unchanged and whatever the verdict.
    pub keeps_from_stack: bool,
    /// The bytes of the socket buffers for each direction and interface.
    pub buffer_bytes: usize,
}

impl Default for RawOptions {
    fn default() -> RawOptions {
        RawOptions { keeps_from_stack: true, buffer_bytes: 8 << 20 }
    }
}

#[derive(Debug)]
struct Line {
    // Detached first.
    guard: Option<(OwnedFd, Program)>,
    bound: Bound,
    rx: OwnedFd,
    tx: OwnedFd,
    dropped: u64,
}

/// Interfaces through raw sockets. Dropping it returns them to the network stack.
#[derive(Debug)]
pub struct Raw {
    name: String,
    lines: Vec<Line>,
    slots: Slots,
    /// Copied departures of the same port that are not sent yet.
    waiting: Vec<(usize, Vec<u8>)>,
    counters: DeviceCounters,
}

impl Raw {
    /// Opens sockets on the interfaces.
    ///
    /// # Errors
    /// A privilege is missing, or the kernel has no TCX (Linux 6.6).
    pub fn open(interfaces: &[Interface], options: RawOptions) -> Result<Raw, PortsError> {
        let name = device_name("raw", interfaces);
        let failed = |action: &str, source| PortsError::of_call(&name, action, RAW_NEEDS, source);
        let mut lines = Vec::new();
        let mut buffer_bytes = 0;
        for bound in bind_all(&name, interfaces)? {
            buffer_bytes = buffer_bytes.max(bound.buffer_bytes(&name)?);
            let tx = packet::open_tx(bound.index, options.buffer_bytes).map_err(|e| failed("open a socket", e))?;
            let rx = packet::open_rx(bound.index, options.buffer_bytes).map_err(|e| failed("open a socket", e))?;
            let guard = options.keeps_from_stack.then(|| keep_from_stack(&name, &bound)).transpose()?;
            lines.push(Line { guard, bound, rx, tx, dropped: 0 });
        }
        let slots = Slots::new(BATCH, buffer_bytes);
        Ok(Raw { name, lines, slots, waiting: Vec::new(), counters: DeviceCounters::default() })
    }

    fn line_of(&self, port: Port) -> Option<usize> {
        self.lines.iter().position(|line| line.bound.port == port)
    }
}

fn keep_from_stack(device: &str, bound: &Bound) -> Result<(OwnedFd, Program), PortsError> {
    let attached = || {
        let program = Program::keep_from_stack()?;
        program.attach(bound.index, false).map(|link| (link, program))
    };
    attached().map_err(|source| match source.raw_os_error() {
        Some(libc::EINVAL) => PortsError::Unsupported {
            device: device.to_owned(),
            feature: "keeping packets from the network stack (TCX)".to_owned(),
            remedy: "use Linux 6.6 or newer, or --mode af_xdp".to_owned(),
            source,
        },
        _ => PortsError::of_call(device, "keep packets from the network stack", BPF_NEEDS, source),
    })
}

/// Sends packets through a line, and counts each.
fn send(device: &str, line: &Line, packets: &[&[u8]], counters: &mut DeviceCounters) -> Result<(), PortsError> {
    let (sent, error) = packet::send(&line.tx, packets);
    sent.count(counters);
    error.map_or(Ok(()), |e| Err(line.bound.failed(device, "transmit through", e)))
}

impl Device for Raw {
    fn name(&self) -> &str {
        &self.name
    }

    fn ports(&self) -> Vec<(Port, String)> {
        self.lines.iter().map(|line| (line.bound.port, line.bound.name.clone())).collect()
    }

    fn receive(&mut self, now_ns: u64, run: &mut RunBatch<'_>) -> Result<usize, PortsError> {
        let mut count = 0;
        for number in 0..self.lines.len() {
            let line = &self.lines[number];
            let port = line.bound.port;
            if let Err(error) = self.slots.receive(&line.rx) {
                match error.raw_os_error() {
                    // The link is down, and may come up again.
                    Some(libc::ENETDOWN) => line.bound.check()?,
                    _ => return Err(line.bound.failed(&self.name, "receive from", error)),
                }
            }
            if self.slots.received.is_empty() {
                continue;
            }
            let (mut buffers, received) = self.slots.buffers_mut();
            let mut next = 0;
            let mut frames: Vec<Frame<'_>> = received
                .iter()
                .filter_map(|Received { slot, start, end }| {
                    // Slots ascend.
                    let buffer = buffers.nth(slot - next)?;
                    next = slot + 1;
                    Some(Frame::new(buffer, *start, *end, port, now_ns))
                })
                .collect();
            let ran = run(&mut frames);
            let sent: Vec<(Port, usize, usize, usize)> = frames
                .iter()
                .enumerate()
                .filter_map(|(at, frame)| match frame.fate {
                    Fate::Redirect(port) => Some((port, at, frame.start(), frame.end())),
                    _ => None,
                })
                .collect();
            count += frames.len();
            drop(frames);
            let mut failed = ran;
            for (egress, line) in self.lines.iter().enumerate() {
                let packets: Vec<&[u8]> = sent
                    .iter()
                    .filter(|(port, ..)| *port == line.bound.port)
                    .map(|&(_, at, start, end)| {
                        self.slots.bytes(Received { slot: self.slots.received[at].slot, start, end })
                    })
                    .collect();
                if !packets.is_empty() {
                    failed = failed.and(send(&self.name, &self.lines[egress], &packets, &mut self.counters));
                }
            }
            failed?;
        }
        Ok(count)
    }

    fn transmit(&mut self, departure: Departure<'_>) -> Result<(), PortsError> {
        match self.line_of(departure.port) {
            None => self.counters.tx_refused += 1,
            Some(line) => self.waiting.push((line, departure.bytes.to_vec())),
        }
        if self.waiting.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), PortsError> {
        // Whatever fails, no packet is sent twice, and other lines get theirs.
        let waiting = std::mem::take(&mut self.waiting);
        let mut failed = Ok(());
        for (number, line) in self.lines.iter().enumerate() {
            let packets: Vec<&[u8]> =
                waiting.iter().filter(|(of, _)| *of == number).map(|(_, bytes)| bytes.as_slice()).collect();
            if !packets.is_empty() {
                failed = failed.and(send(&self.name, line, &packets, &mut self.counters));
            }
        }
        failed
    }

    fn check(&mut self) -> Result<(), PortsError> {
        self.lines.iter().try_for_each(|line| {
            line.bound.check()?;
            line.guard.as_ref().map_or(Ok(()), |(link, _)| {
                line.bound.check_link(link)?;
                line.bound.check_first(link)
            })
        })
    }

    fn wait_on(&self, fds: &mut Vec<RawFd>) {
        fds.extend(self.lines.iter().map(|line| line.rx.as_raw_fd()));
    }

    fn counters(&mut self) -> DeviceCounters {
        for line in &mut self.lines {
            // The kernel's counter restarts at each call.
            line.dropped += packet::rx_dropped(&line.rx);
        }
        let dropped: u64 = self.lines.iter().map(|line| line.dropped).sum();
        DeviceCounters { rx_missed: dropped + self.slots.missed, ..self.counters }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use flowloom_testkit::require;

    use super::*;
    use crate::Tap;

    #[test]
    fn a_program_before_the_guard_ends_the_run() {
        let run = || {
            // SAFETY: takes no addresses; only this thread moves.
            #[allow(unsafe_code, reason = "a namespace of the test")]
            let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            require!(if moved == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) });
            let tap = require!(Tap::open(&[(Port(1), "flguard0")]));
            let interface = Interface::find(1, "flguard0").unwrap();
            let open = || Raw::open(std::slice::from_ref(&interface), RawOptions::default());
            let mut raw = require!(open());
            raw.check().unwrap();
            let other = open().unwrap();
            raw.check().unwrap();
            let program = Program::to_stack(interface.index()).unwrap();
            let link = program.attach(interface.index(), false).unwrap();
            let error = raw.check().unwrap_err();
            assert!(matches!(&error, PortsError::Overtaken { program, .. } if program == "fl_to_stack"), "{error}");
            drop((link, other, tap));
        };
        std::thread::spawn(run).join().unwrap();
    }
}
