// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls: namespaces, processors, packet sockets.
#![allow(unsafe_code, reason = "system calls that the standard library does not have")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Moves the calling thread to a new network namespace.
pub(crate) fn leave() -> io::Result<File> {
    // SAFETY: takes no addresses; only this thread moves.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    File::open("/proc/thread-self/ns/net")
}

/// Moves the calling thread to a network namespace.
pub(crate) fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: takes no addresses; only this thread moves.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(|_| ())
}

/// The CPUs on which the main thread may run, which is never pinned; empty if the kernel does not tell.
fn allowed() -> &'static [usize] {
    static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();
    ALLOWED.get_or_init(|| {
        let main = std::process::id() as libc::pid_t;
        // SAFETY: a mask consists of bits only, and the call writes one of the given size; each number is below it.
        unsafe {
            let mut mask: libc::cpu_set_t = std::mem::zeroed();
            let answer = libc::sched_getaffinity(main, size_of::<libc::cpu_set_t>(), &raw mut mask);
            let is_known = answer == 0;
            (0..libc::CPU_SETSIZE as usize).filter(|cpu| is_known && libc::CPU_ISSET(*cpu, &mask)).collect()
        }
    })
}

/// Moves the calling thread to one of the CPUs on which it may run, by number from 0, which wraps around.
fn try_pin(number: usize) -> io::Result<()> {
    let cpus = allowed();
    let cpu = *cpus.get(number % cpus.len().max(1)).ok_or_else(|| io::Error::other("the CPUs are not known"))?;
    // SAFETY: a mask consists of bits only, and the number is below its size; 0 is the calling thread.
    unsafe {
        let mut mask: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut mask);
        checked(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const mask)).map(drop)
    }
}

/// As [`try_pin`]; a thread that stays where it is measures too, and [`pinning_note`] says so.
pub(crate) fn pin(number: usize) {
    _ = try_pin(number);
}

/// What keeps sender and function from CPUs of their own, if anything.
pub fn pinning_note() -> Option<String> {
    let pinned = std::thread::spawn(|| try_pin(0).and_then(|()| try_pin(1))).join();
    match pinned.unwrap_or_else(|_| Err(io::Error::other("the thread has failed"))) {
        Err(error) => Some(format!("threads cannot be pinned to CPUs, so that they disturb each other: {error}")),
        Ok(()) if allowed().len() < 2 => Some("one CPU only: senders and function share it".to_owned()),
        Ok(()) => None,
    }
}

/// The time that the calling thread has spent on a processor.
pub(crate) fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// A socket that sends and receives whole frames of an interface, without those that others send through it.
#[derive(Debug)]
pub(crate) struct FrameSocket(OwnedFd);

impl FrameSocket {
    /// Opens a socket on an interface of the thread's namespace; it receives IPv4.
    pub(crate) fn open(interface: u32) -> io::Result<FrameSocket> {
        let protocol = (libc::ETH_P_IP as u16).to_be();
        // SAFETY: takes no addresses; the descriptor is new and owned by nothing else.
        let socket = unsafe {
            let socket = checked(libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0))?;
            OwnedFd::from_raw_fd(socket)
        };
        let on: libc::c_int = 1;
        let patience = libc::timeval { tv_sec: 0, tv_usec: 100_000 };
        // SAFETY: plain data, for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = interface as i32;
        // SAFETY: the values live during the calls, and their sizes are given.
        unsafe {
            let fd = socket.as_raw_fd();
            let option = |level, name, value: *const libc::c_void, bytes: usize| {
                checked(libc::setsockopt(fd, level, name, value, bytes as u32))
            };
            option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, (&raw const on).cast(), size_of_val(&on))?;
            option(libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const patience).cast(), size_of_val(&patience))?;
            checked(libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32))?;
        }
        Ok(FrameSocket(socket))
    }

    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the frame lives during the call.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Receives a frame; `None` after a tenth of a second without one.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a mut [u8]>> {
        // SAFETY: the buffer is mutable and lives during the call.
        let received = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if received >= 0 {
            return Ok(Some(&mut buffer[..received as usize]));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_pinned_to_cpus_that_are_allowed() {
        let cpus = allowed();
        assert!(!cpus.is_empty());
        for number in 0..=cpus.len() {
            let pinned = std::thread::spawn(move || {
                pin(number);
                std::fs::read_to_string("/proc/thread-self/status").expect("a status")
            });
            let status = pinned.join().expect("ends");
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list");
            assert_eq!(list.trim(), cpus[number % cpus.len()].to_string(), "number {number}");
        }
        assert_eq!(pinning_note().is_some(), cpus.len() < 2);
    }
}
