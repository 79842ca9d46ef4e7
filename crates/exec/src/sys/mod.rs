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

pub(crate) use map::RawMap;
pub use signal::{Interrupts, monotonic_ns};

/// A name as the kernel stores it: at most 15 valid bytes.
fn object_name(name: &str) -> [u8; 16] {
    let mut out = [0; 16];
    let fit = |b: u8| if b.is_ascii_alphanumeric() || b == b'_' || b == b'.' { b } else { b'_' };
    for (place, byte) in out[..15].iter_mut().zip(name.bytes()) {
        *place = fit(byte);
    }
    out
}

fn too_long(what: &str, found: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what} of {found}: too large for bpf(2)"))
}
