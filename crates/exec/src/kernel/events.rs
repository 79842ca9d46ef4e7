// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records for user space, read after each packet.
//!
//! The kernel pads an event in a perf event array so that it fills whole words together with its length, and reports
//! the padded length only. So the rewritten program logs the length of each event in the record ([`crate::rewrite`]);
//! the result here are exactly the bytes that the program gave, and the packet bytes that it requested with them.
//!
//! Events are sorted by map, in the order of the program's maps, and within each map as they were written.

use std::collections::VecDeque;
use std::io;

use flowloom_engine::{EngineError, Event};
use flowloom_isa::{MapKind, Program};

use super::errors::system;
use super::load::Maps;
use crate::rewrite::Record;
use crate::rewrite::plan::{EVENT_BYTES, EVENTS_LOGGED, Plan};
use crate::sys::memory::Memory;
use crate::sys::perf::PerfBuffer;
use crate::sys::ring::Ring;

/// The shift of the number of packet bytes in the flags of `perf_event_output`.
const PACKET_SHIFT: u32 = 32;
const PACKET_MASK: u64 = 0xf_ffff;

#[derive(Debug)]
enum Source {
    /// A buffer for each CPU.
    Perf(Vec<PerfBuffer>),
    Ring(Ring),
}

/// The maps with events.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Index and name of each map.
    sources: Vec<(usize, String, Source)>,
}

/// The padded length of an event in a perf buffer: with its length field it fills words of eight bytes.
fn rounded(bytes: usize) -> usize {
    (bytes + 4).next_multiple_of(8) - 4
}

impl Events {
    /// Opens the buffers of the maps of `program`, for a number of CPUs.
    ///
    /// # Errors
    /// Missing privileges, or no memory for a buffer.
    pub(super) fn open(program: &Program, created: &Maps, cpus: u32) -> io::Result<Events> {
        let mut sources = Vec::new();
        for (index, (def, raw)) in program.maps.iter().zip(&created.raw).enumerate() {
            let source = match def.kind {
                MapKind::PerfEventArray => {
                    let slots = if def.max_entries == 0 { cpus } else { def.max_entries };
                    let mut buffers = Vec::new();
                    for cpu in 0..cpus.min(slots) {
                        let buffer = PerfBuffer::open(cpu)?;
                        raw.store_fd(&cpu.to_ne_bytes(), buffer.number())?;
                        buffers.push(buffer);
                    }
                    Source::Perf(buffers)
                }
                MapKind::RingBuf => Source::Ring(Ring::of(raw, def.max_entries)?),
                _ => continue,
            };
            sources.push((index, def.name.clone(), source));
        }
        Ok(Events { sources })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The events of the last packet.
    pub(super) fn take(
        &mut self,
        plan: &Plan,
        record: Option<&Record>,
        memory: Option<&Memory>,
    ) -> Result<Vec<Event>, EngineError> {
        let mut logged = logged(plan, record, memory).map_err(|e| system("read the log of events", e))?;
        let mut events = Vec::new();
        for (index, name, source) in &mut self.sources {
            let fails = |e| system(format!("read the events of map `{name}`"), e);
            let mut put = |cpu: u32, bytes: Vec<u8>| events.push(Event { map: name.clone(), cpu, bytes });
            match source {
                Source::Ring(ring) => ring.drain(|bytes| put(0, bytes)).map_err(fails)?,
                Source::Perf(buffers) => {
                    // A packet runs on one CPU, so one buffer has all its events.
                    for (cpu, buffer) in (0..).zip(buffers) {
                        let mut wrong = None;
                        let each = |mut bytes: Vec<u8>| {
                            let at = logged.iter().position(|(map, _)| map == index);
                            let length = at.and_then(|at| logged.remove(at)).map(|(_, length)| length);
                            match length {
                                Some(length) if rounded(length) == bytes.len() => {
                                    bytes.truncate(length);
                                    put(cpu, bytes);
                                }
                                _ => wrong = Some((bytes.len(), length)),
                            }
                        };
                        buffer.drain(each).map_err(fails)?;
                        if let Some((found, length)) = wrong {
                            let logged = length.map_or_else(|| "nothing".to_owned(), |length| length.to_string());
                            let message = format!("an event of {found} bytes, expected {logged} as logged");
                            return Err(fails(io::Error::new(io::ErrorKind::InvalidData, message)));
                        }
                    }
                }
            }
        }
        Ok(events)
    }
}

/// The map and length of each event that the program logged, in order.
fn logged(plan: &Plan, record: Option<&Record>, memory: Option<&Memory>) -> io::Result<VecDeque<(usize, usize)>> {
    let mut found = VecDeque::new();
    let (Some(log), Some(record), Some(memory)) = (plan.events, record, memory) else { return Ok(found) };
    if record.events() > EVENTS_LOGGED {
        let message = format!("{} events of one packet, expected at most {EVENTS_LOGGED}", record.events());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    for number in 0..record.events() {
        let mut entry = [0; EVENT_BYTES as usize];
        memory.read((log + number * EVENT_BYTES) as usize, &mut entry)?;
        let [l0, l1, l2, l3, m0, m1, m2, m3, flags @ ..] = entry;
        let packet_bytes = u64::from_ne_bytes(flags) >> PACKET_SHIFT & PACKET_MASK;
        let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize + packet_bytes as usize;
        found.push_back((u32::from_ne_bytes([m0, m1, m2, m3]) as usize, length));
    }
    Ok(found)
}
