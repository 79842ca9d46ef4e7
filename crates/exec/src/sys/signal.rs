// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits: for a timeout, for a signal that ends or reloads the run, and for packets on their way.

use std::io;
use std::time::Duration;

/// The signals that a run heeds.
const HEEDED: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// The longest time that a packet takes, where the kernel does not tell when it has left a program.
const LONGEST_PACKET: Duration = Duration::from_millis(100);

/// Blocks the signals that would end the process, so that a run can end in good order. As long as it lives, only
/// [`Interrupts::wait`] sees them. Threads started later block them too.
#[derive(Debug)]
pub struct Interrupts {
    set: libc::sigset_t,
    before: libc::sigset_t,
    reloads: bool,
}

/// Why a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The time has passed.
    Timeout,
    /// A signal asks the run to end.
    End,
    /// SIGHUP asks the run to read its function again.
    Reload,
}

fn empty() -> libc::sigset_t {
    // SAFETY: the set is plain data, and the call makes it a valid empty one.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        set
    }
}

impl Interrupts {
    /// Blocks them in this thread. SIGHUP ends a run as the others do, unless it `reloads`.
    ///
    /// # Errors
    /// The system's.
    pub fn block(reloads: bool) -> io::Result<Interrupts> {
        let (mut set, mut before) = (empty(), empty());
        for signal in HEEDED {
            // SAFETY: a valid set and valid signal numbers.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
        // SAFETY: both sets are valid and live.
        let answer = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) };
        if answer == 0 { Ok(Interrupts { set, before, reloads }) } else { Err(io::Error::from_raw_os_error(answer)) }
    }

    /// Waits for a signal, for at most `timeout`.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&self, timeout: Duration) -> io::Result<Wake> {
        // An upper bound, which fits the type on every system.
        let timeout = timeout.min(Duration::from_secs(3600));
        let spec = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
        };
        // SAFETY: set and time are valid and live; no information about the signal is requested.
        let answer = unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &spec) };
        if answer > 0 {
            return Ok(if answer == libc::SIGHUP && self.reloads { Wake::Reload } else { Wake::End });
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // The timeout; or another signal, e.g. after the process was stopped and continued.
            Some(libc::EAGAIN | libc::EINTR) => Ok(Wake::Timeout),
            _ => Err(error),
        }
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        // SAFETY: the set from the system. A failure would leave signals blocked; nothing can be done about it.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Waits until all packets that are in a program of the kernel have left it.
pub(crate) fn grace_period() {
    // `MEMBARRIER_CMD_GLOBAL` waits for a grace period of RCU, which programs run under.
    const GLOBAL: libc::c_int = 1;
    // SAFETY: takes no addresses.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
    if done != 0 {
        // Not on kernels with CPUs without a tick, nor where a filter of system calls forbids it.
        std::thread::sleep(LONGEST_PACKET);
    }
}

/// The clock of `bpf_ktime_get_ns`: nanoseconds since boot, without suspended time.
///
/// # Panics
/// Never: every Linux has this clock.
pub fn monotonic_ns() -> u64 {
    let mut spec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is live and mutable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut spec) };
    (spec.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(spec.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_blocked_and_reported() {
        // In a thread of its own, since blocked signals are per thread.
        let seen = std::thread::spawn(|| {
            let mut interrupts = Interrupts::block(true).expect("held");
            let mut waits = |signal: Option<libc::c_int>, reloads| {
                interrupts.reloads = reloads;
                // SAFETY: sends a signal to this thread, which blocks it.
                signal.map(|signal| unsafe { libc::pthread_kill(libc::pthread_self(), signal) });
                let longest = Duration::from_millis(if signal.is_some() { 5000 } else { 1 });
                interrupts.wait(longest).expect("waits")
            };
            let hup = Some(libc::SIGHUP);
            [waits(None, true), waits(Some(libc::SIGTERM), true), waits(hup, true), waits(hup, false)]
        });
        assert_eq!(seen.join().expect("alive"), [Wake::Timeout, Wake::End, Wake::Reload, Wake::End]);
    }

    #[test]
    fn the_clock_advances() {
        let first = monotonic_ns();
        std::thread::sleep(Duration::from_millis(2));
        assert!(monotonic_ns() >= first + 2_000_000);
    }
}
