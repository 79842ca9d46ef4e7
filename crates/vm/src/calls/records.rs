// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records for user space: perf event arrays and ring buffers.

use super::{BAD_ADDRESS, INVALID, NO_SPACE, Run, TOO_BIG, length};
use crate::fault::Fault;
use crate::space::Space;
use flowloom_isa::MapKind;

/// -ENOENT
const NO_ENTRY: u64 = -2i64 as u64;
/// -EAGAIN
const TRY_AGAIN: u64 = -11i64 as u64;
/// -EOPNOTSUPP
const NOT_SUPPORTED: u64 = -95i64 as u64;
/// `perf_event_output`: the CPU of the buffer; all ones for the current one.
const INDEX_MASK: u64 = 0xffff_ffff;
/// `perf_event_output`: the length of packet data after the record.
const CONTEXT_LEN_MASK: u64 = 0xf_ffff << 32;
/// `ringbuf_output`, `ringbuf_submit`, `ringbuf_discard`: whether the reader is woken.
const WAKE_UP_MASK: u64 = 3;

impl<S: Space> Run<'_, S> {
    /// As `bpf_xdp_event_output`, with a reader on the buffer of every CPU.
    pub(super) fn perf_event_output(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("perf_event_output", args[0])?;
        let map =
            self.map_of("perf_event_output", args[1], "a perf event array", |kind| kind == MapKind::PerfEventArray)?;
        let (flags, len) = (args[2], length("perf_event_output", 5, args[4])?);
        let mut bytes = if len == 0 { Vec::new() } else { self.memory.read(args[3], len)?.to_vec() };
        let packet_bytes = ((flags & CONTEXT_LEN_MASK) >> 32) as usize;
        if flags & !(INDEX_MASK | CONTEXT_LEN_MASK) != 0 {
            return Ok(INVALID);
        }
        let Some(packet) = self.memory.packet().get(..packet_bytes) else { return Ok(BAD_ADDRESS) };
        bytes.extend_from_slice(packet);
        let cpu = self.choices.cpu;
        let index = if flags & INDEX_MASK == INDEX_MASK { cpu } else { (flags & INDEX_MASK) as u32 };
        let buffers = match self.memory.maps()[map].def().max_entries {
            // One for each CPU.
            0 => self.memory.cpus(),
            entries => entries,
        };
        if index >= buffers {
            return Ok(TOO_BIG);
        }
        if index >= self.memory.cpus() {
            return Ok(NO_ENTRY);
        }
        if index != cpu {
            return Ok(NOT_SUPPORTED);
        }
        Ok(if self.memory.rings_mut().write(map, cpu, bytes) { 0 } else { NO_SPACE })
    }

    fn ring(&self, helper: &'static str, found: u64) -> Result<usize, Fault> {
        self.map_of(helper, found, "a ring buffer", |kind| kind == MapKind::RingBuf)
    }

    pub(super) fn ringbuf_output(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.ring("ringbuf_output", args[0])?;
        let len = length("ringbuf_output", 3, args[2])?;
        let bytes = if len == 0 { Vec::new() } else { self.memory.read(args[1], len)?.to_vec() };
        if args[3] & !WAKE_UP_MASK != 0 {
            return Ok(INVALID);
        }
        Ok(if self.memory.rings_mut().output(map, &bytes) { 0 } else { TRY_AGAIN })
    }

    pub(super) fn ringbuf_reserve(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.ring("ringbuf_reserve", args[0])?;
        let len = length("ringbuf_reserve", 2, args[1])?;
        if args[2] != 0 {
            return Ok(0);
        }
        Ok(self.memory.rings_mut().reserve(map, len as u64).map_or(0, |number| self.memory.record_address(number)))
    }

    pub(super) fn ringbuf_release(&mut self, helper: &'static str, args: [u64; 5], submit: bool) -> Result<u64, Fault> {
        let released =
            self.memory.record_at(args[0]).is_some_and(|number| self.memory.rings_mut().release(number, submit));
        if released {
            return Ok(0);
        }
        let (found, expected) = (format!("0x{:x}", args[0]), "a record that `ringbuf_reserve` gave");
        Err(Fault::Argument { helper, argument: 1, found, expected })
    }

    pub(super) fn ringbuf_query(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.ring("ringbuf_query", args[0])?;
        Ok(self.memory.rings().query(map, args[1]))
    }
}
