//! What is asked of the system directly: bpf(2), interfaces, signals. The only place with `unsafe`.
//!
//! ```text
//!  bpf      the system call, and its attributes as they lie in memory
//!  map      one map, by raw bytes            program  types, programs, test runs, attaching
//!  object   what runs in the kernel, by ids  netlink  interfaces
//!  ethtool  offloads and queues of interfaces  signal  waiting for time and signals
//!  memory   memory shared with the kernel    cpu      which processor a thread runs on
//!  perf, ring  events that programs write    namespace  a network of our own
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

/// A name as the kernel keeps it: at most 15 bytes of what it takes.
fn object_name(name: &str) -> [u8; 16] {
    let mut out = [0; 16];
    let fit = |b: u8| if b.is_ascii_alphanumeric() || b == b'_' || b == b'.' { b } else { b'_' };
    for (place, byte) in out[..15].iter_mut().zip(name.bytes()) {
        *place = fit(byte);
    }
    out
}

fn too_long(what: &str, found: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what} of {found}: more than bpf(2) takes"))
}
