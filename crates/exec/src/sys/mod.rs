// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls: bpf(2), interfaces, signals. The only module with `unsafe`.
//!
//! ```text
//!  bpf      the system call and its attributes  program  types, programs, test runs, attaching
//!  map      a map, as raw bytes                 netlink  interfaces
//!  object   objects in the kernel, by id        signal   waiting for time and signals
//!  ethtool  offloads and queues of interfaces   cpu      CPU affinity
//!  memory   memory shared with the kernel       namespace  a network namespace of our own
//!  perf, ring  records that programs write
//! ```
#![allow(unsafe_code)]

mod bpf;
pub(crate) mod cpu;
pub(crate) mod ethtool;
mod map;
pub(crate) mod memory;
pub(crate) mod namespace;
pub(crate) mod netlink;
pub(crate) mod object;
pub(crate) mod perf;
pub(crate) mod program;
pub(crate) mod ring;
mod signal;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

pub(crate) use map::RawMap;
pub(crate) use signal::grace_period;
pub use signal::{Interrupts, Wake, monotonic_ns};

/// A name as the kernel stores it: at most 15 valid bytes.
fn object_name(name: &str) -> [u8; 16] {
    let mut out = [0; 16];
    let fit = |b: u8| if b.is_ascii_alphanumeric() || b == b'_' || b == b'.' { b } else { b'_' };
    for (place, byte) in out[..15].iter_mut().zip(name.bytes()) {
        *place = fit(byte);
    }
    out
}

/// The text in a field of bytes, up to its terminator if it has one.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn socket(domain: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes no addresses.
    let fd = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the socket was created for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn too_long(what: &str, found: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what} of {found}: too large for bpf(2)"))
}
