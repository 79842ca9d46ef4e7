// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TAP interfaces: the engine is at the other end of the wire of an interface of the network stack.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

use flowloom_engine::{Fate, Frame, HEADROOM_BYTES, Port};
use flowloom_exec::Interface;

use crate::device::{Departure, Device, DeviceCounters, RunBatch};
use crate::error::{ADMIN_NEEDS, PortsError};
use crate::interfaces::Bound;
use crate::sys;

/// The packets of a batch, at most.
const BATCH: usize = 64;

#[derive(Debug)]
struct Line {
    bound: Bound,
    file: File,
    /// The bytes of a buffer.
    buffer_bytes: usize,
}

/// TAP interfaces. Those that were created are removed when it is dropped.
#[derive(Debug)]
pub struct Tap {
    name: String,
    lines: Vec<Line>,
    buffers: Vec<u8>,
    counters: DeviceCounters,
}

impl Tap {
    /// Opens TAP interfaces by port and name, and turns them on; those that do not exist are created, `%d` in a name
    /// standing for the first free number.
    ///
    /// # Errors
    /// A privilege is missing, or an interface of that name is in use or of another kind.
    pub fn open(ports: &[(Port, &str)]) -> Result<Tap, PortsError> {
        let names: Vec<&str> = ports.iter().map(|(_, name)| *name).collect();
        let device = format!("tap {}", names.join(","));
        let mut lines: Vec<Line> = Vec::new();
        for (port, requested) in ports {
            let (file, name) = sys::tap::open(requested).map_err(|source| opening(&device, requested, source))?;
            if let Some(first) = lines.iter().find(|line| line.bound.port == *port) {
                return Err(PortsError::BoundTwice { port: *port, first: first.bound.name.clone(), second: name });
            }
            let interface = Interface::find(port.0, &name)?;
            sys::interface::turn_on(&name, 0)
                .map_err(|source| PortsError::of_call(&device, "turn on the interface", ADMIN_NEEDS, source))?;
            let bound = Bound::new(&device, *port, &name, interface.index())?;
            let buffer_bytes = bound.buffer_bytes(&device)?;
            lines.push(Line { bound, file, buffer_bytes });
        }
        let most = lines.iter().map(|line| line.buffer_bytes).max().unwrap_or(0);
        Ok(Tap { name: device, lines, buffers: vec![0; BATCH * most], counters: DeviceCounters::default() })
    }
}

/// The error for a TAP interface that could not be opened.
pub(crate) fn opening(device: &str, name: &str, source: io::Error) -> PortsError {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV) => PortsError::Unsupported {
            device: device.to_owned(),
            feature: "TAP (`/dev/net/tun`)".to_owned(),
            remedy: "load the module `tun`, or create the device file".to_owned(),
            source,
        },
        Some(libc::EBUSY) => PortsError::Unsupported {
            device: device.to_owned(),
            feature: format!("a second user of `{name}`"),
            remedy: "end the process that has it open, or use another name".to_owned(),
            source,
        },
        Some(libc::EINVAL) => PortsError::Unsupported {
            device: device.to_owned(),
            feature: format!("`{name}` as a TAP interface"),
            remedy: "use the name of a TAP interface or of none".to_owned(),
            source,
        },
        _ => PortsError::of_call(device, &format!("open `{name}`"), ADMIN_NEEDS, source),
    }
}

/// The packets that were read.
fn read_batch(line: &mut Line, buffers: &mut [u8], missed: &mut u64) -> io::Result<Vec<(usize, usize)>> {
    let mut read = Vec::with_capacity(BATCH);
    for (slot, buffer) in buffers.chunks_exact_mut(line.buffer_bytes).take(BATCH).enumerate() {
        match line.file.read(&mut buffer[HEADROOM_BYTES..]) {
            // The kernel cuts what does not fit, so a full buffer may hold a cut packet.
            Ok(len) if HEADROOM_BYTES + len == buffer.len() => *missed += 1,
            Ok(len) => read.push((slot, HEADROOM_BYTES + len)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => break,
            // The interface is off.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Writes a packet to a TAP interface, which receives it; counts.
pub(crate) fn write(mut file: &File, bytes: &[u8], counters: &mut DeviceCounters) -> io::Result<()> {
    match file.write(bytes) {
        Ok(_) => {
            counters.sent += 1;
            counters.sent_bytes += bytes.len() as u64;
        }
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => counters.tx_full += 1,
            Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE) => counters.tx_refused += 1,
            _ => {
                counters.tx_refused += 1;
                return Err(error);
            }
        },
    }
    Ok(())
}

impl Device for Tap {
    fn name(&self) -> &str {
        &self.name
    }

    fn ports(&self) -> Vec<(Port, String)> {
        self.lines.iter().map(|line| (line.bound.port, line.bound.name.clone())).collect()
    }

    fn receive(&mut self, now_ns: u64, run: &mut RunBatch<'_>) -> Result<usize, PortsError> {
        let mut count = 0;
        for number in 0..self.lines.len() {
            let line = &mut self.lines[number];
            let read = read_batch(line, &mut self.buffers, &mut self.counters.rx_missed);
            let read = read.map_err(|e| self.lines[number].bound.failed(&self.name, "receive from", e))?;
            if read.is_empty() {
                continue;
            }
            let line = &self.lines[number];
            let (buffer_bytes, port) = (line.buffer_bytes, line.bound.port);
            let mut chunks = self.buffers.chunks_exact_mut(buffer_bytes);
            let mut next = 0;
            let mut frames: Vec<Frame<'_>> = read
                .iter()
                .filter_map(|(slot, end)| {
                    // Slots ascend.
                    let buffer = chunks.nth(slot - next)?;
                    next = slot + 1;
                    Some(Frame::new(buffer, HEADROOM_BYTES, *end, port, now_ns))
                })
                .collect();
            let mut failed = run(&mut frames);
            count += frames.len();
            for frame in &frames {
                let Fate::Redirect(port) = frame.fate else { continue };
                match self.lines.iter().find(|line| line.bound.port == port) {
                    None => self.counters.tx_refused += 1,
                    Some(line) => {
                        let written = write(&line.file, frame.bytes(), &mut self.counters);
                        failed = failed.and(written.map_err(|e| line.bound.failed(&self.name, "transmit through", e)));
                    }
                }
            }
            failed?;
        }
        Ok(count)
    }

    fn transmit(&mut self, departure: Departure<'_>) -> Result<(), PortsError> {
        match self.lines.iter().find(|line| line.bound.port == departure.port) {
            None => self.counters.tx_refused += 1,
            Some(line) => write(&line.file, departure.bytes, &mut self.counters)
                .map_err(|e| line.bound.failed(&self.name, "transmit through", e))?,
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), PortsError> {
        self.lines.iter().try_for_each(|line| line.bound.check())
    }

    fn wait_on(&self, fds: &mut Vec<RawFd>) {
        fds.extend(self.lines.iter().map(|line| line.file.as_raw_fd()));
    }

    fn counters(&mut self) -> DeviceCounters {
        self.counters
    }
}
