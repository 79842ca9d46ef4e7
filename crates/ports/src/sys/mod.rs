// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls: sockets, rings shared with the kernel, programs on interfaces.
//!
//! ```text
//!  xsk   AF_XDP sockets and their rings     packet  AF_PACKET sockets
//!  bpf   programs and maps, links           tap     TAP interfaces
//!  interface  addresses, MTUs and flags     dpdk    the C shim of DPDK
//! ```
#![allow(unsafe_code)]

pub(crate) mod bpf;
#[cfg(feature = "dpdk")]
pub(crate) mod dpdk;
pub(crate) mod interface;
pub(crate) mod packet;
pub(crate) mod tap;
pub(crate) mod xsk;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

/// The result of a call that returns -1 on errors.
fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// A socket that does not block.
fn socket(domain: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes no addresses.
    let fd = checked(unsafe { libc::socket(domain, kind, protocol) })?;
    // SAFETY: the socket was created for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option whose value is plain data.
fn set_option<T>(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is live and has the given size.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), bytes) }).map(drop)
}

/// Gets an option into `value`, plain data for which every byte pattern is valid.
fn get_option<T>(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is live, mutable and has the given size.
    let answer =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, std::ptr::from_mut(value).cast(), &raw mut bytes) };
    checked(answer).map(drop)
}

/// The limit of memory that a process may lock.
pub(crate) fn locked_limit_bytes() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is live and mutable.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    limit.rlim_cur
}

/// Waits until one of the descriptors is readable or has an error, for at most `timeout`.
///
/// # Errors
/// The system's; a signal is not an error.
pub(crate) fn wait(fds: &[RawFd], timeout: Duration) -> io::Result<()> {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // An upper bound, which fits the type.
    let timeout = timeout.min(Duration::from_secs(60));
    let spec = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    // SAFETY: the list and the time are live; the list is mutable and has the given length.
    let answer =
        unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, &raw const spec, std::ptr::null()) };
    match checked(answer) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        other => other.map(drop),
    }
}

/// A mapping of memory: anonymous, or of a ring of a socket.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, and this is its only handle.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps zeroed memory of our own.
    fn anonymous(bytes: usize) -> io::Result<Mapping> {
        Mapping::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Maps a ring of `fd`.
    fn ring(fd: &OwnedFd, bytes: usize, offset: libc::off_t) -> io::Result<Mapping> {
        Mapping::map(bytes, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    fn map(bytes: usize, flags: libc::c_int, fd: RawFd, offset: libc::off_t) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address chosen by the kernel.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Mapping { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The text in a field of bytes, up to its terminator if it has one.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
