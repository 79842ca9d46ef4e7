// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Perf buffers, one for each CPU, into which programs write events: perf_event_open(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::memory::{Memory, page_bytes};

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_BPF_OUTPUT: u64 = 10;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_RECORD_SAMPLE: u32 = 9;
/// Offsets in the page before the buffer: the positions of producer and consumer.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const HEADER_BYTES: usize = 8;
/// The pages of a buffer, a power of two: the events of one packet have to fit.
const PAGES: usize = 128;

/// The beginning of `struct perf_event_attr`, of the size of its first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    bytes: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
    config_more: u64,
}

/// The buffer of a CPU.
#[derive(Debug)]
pub(crate) struct PerfBuffer {
    // Closing it removes it from the map that holds it.
    fd: OwnedFd,
    memory: Memory,
    data_bytes: usize,
}

impl PerfBuffer {
    /// Opens the buffer of `cpu`.
    ///
    /// # Errors
    /// There is no such CPU, or missing privileges.
    pub(crate) fn open(cpu: u32) -> io::Result<PerfBuffer> {
        let attributes = Attributes {
            kind: PERF_TYPE_SOFTWARE,
            bytes: size_of::<Attributes>() as u32,
            config: PERF_COUNT_SW_BPF_OUTPUT,
            sample_period: 1,
            sample_type: PERF_SAMPLE_RAW,
            wakeup_events: 1,
            ..Attributes::default()
        };
        let (any_process, no_group): (libc::pid_t, libc::c_int) = (-1, -1);
        // SAFETY: the attributes are live and contain their size.
        let fd = unsafe {
            let attributes = &raw const attributes;
            let flags = PERF_FLAG_FD_CLOEXEC;
            libc::syscall(libc::SYS_perf_event_open, attributes, any_process, cpu as libc::c_int, no_group, flags)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has created this descriptor for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let data_bytes = PAGES * page_bytes();
        let memory = Memory::map(fd.as_fd(), 0, page_bytes() + data_bytes, true)?;
        // SAFETY: takes no address.
        if unsafe { libc::ioctl(fd.as_raw_fd(), PERF_EVENT_IOC_ENABLE, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(PerfBuffer { fd, memory, data_bytes })
    }

    /// The file descriptor number for a map.
    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Copies from a position, modulo the size of the buffer.
    fn read(&self, position: u64, out: &mut [u8]) -> io::Result<()> {
        let at = (position % self.data_bytes as u64) as usize;
        let (first, rest) = out.split_at_mut(out.len().min(self.data_bytes - at));
        self.memory.read(page_bytes() + at, first)?;
        self.memory.read(page_bytes(), rest)
    }

    /// Calls `each` with every new event, as padded by the kernel.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Vec<u8>)) -> io::Result<()> {
        let head = self.memory.load(DATA_HEAD)?;
        let mut tail = self.memory.load(DATA_TAIL)?;
        while tail < head {
            let mut header = [0; HEADER_BYTES];
            self.read(tail, &mut header)?;
            let [k0, k1, k2, k3, _, _, b0, b1] = header;
            let bytes = usize::from(u16::from_ne_bytes([b0, b1]));
            if bytes < HEADER_BYTES || bytes as u64 > head - tail {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a record of {bytes} bytes")));
            }
            if u32::from_ne_bytes([k0, k1, k2, k3]) == PERF_RECORD_SAMPLE {
                let mut sample = vec![0; bytes - HEADER_BYTES];
                self.read(tail + HEADER_BYTES as u64, &mut sample)?;
                // It begins with its size.
                let length = sample.first_chunk().map_or(0, |b| u32::from_ne_bytes(*b) as usize);
                let raw = sample.get(4..).and_then(|rest| rest.get(..length));
                each(raw.unwrap_or_default().to_vec());
            }
            tail += bytes as u64;
        }
        self.memory.store(DATA_TAIL, tail)
    }
}
