// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits for a timeout or for a signal that ends the run.

use std::io;
use std::time::Duration;

/// The signals that ask a run to end.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Blocks the signals that would end the process, so that a run can end in good order. As long as it lives, only
/// [`Interrupts::wait`] sees them. Threads started later block them too.
#[derive(Debug)]
pub struct Interrupts {
    set: libc::sigset_t,
    before: libc::sigset_t,
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
    /// Blocks them in this thread.
    ///
    /// # Errors
    /// The system's.
    pub fn block() -> io::Result<Interrupts> {
        let (mut set, mut before) = (empty(), empty());
        for signal in ENDING {
            // SAFETY: a valid set and valid signal numbers.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
        // SAFETY: both sets are valid and live.
        let answer = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) };
        if answer == 0 { Ok(Interrupts { set, before }) } else { Err(io::Error::from_raw_os_error(answer)) }
    }

    /// Waits for at most `timeout`; returns whether a signal asked for the end.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        // An upper bound, which fits the type on every system.
        let timeout = timeout.min(Duration::from_secs(3600));
        let spec = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
        };
        // SAFETY: set and time are valid and live; no information about the signal is requested.
        let answer = unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &spec) };
        if answer > 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // The timeout; or another signal, e.g. after the process was stopped and continued.
            Some(libc::EAGAIN | libc::EINTR) => Ok(false),
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
            let interrupts = Interrupts::block().expect("held");
            let before = interrupts.wait(Duration::from_millis(1)).expect("waits");
            // SAFETY: sends a signal to this thread, which blocks it.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
            (before, interrupts.wait(Duration::from_secs(5)).expect("waits"))
        });
        assert_eq!(seen.join().expect("alive"), (false, true));
    }

    #[test]
    fn the_clock_advances() {
        let first = monotonic_ns();
        std::thread::sleep(Duration::from_millis(2));
        assert!(monotonic_ns() >= first + 2_000_000);
    }
}
