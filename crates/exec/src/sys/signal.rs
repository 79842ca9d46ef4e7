//! Waiting for time to pass or for a signal that ends the run, whichever comes first.

use std::io;
use std::time::Duration;

/// Signals that ask a run to end.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Holds back the signals that would end the process, so that a run can end in good order. As long as it lives, they are
/// seen by [`Interrupts::wait`] only. Threads that are started later hold them back too.
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
    /// Holds them back in this thread.
    ///
    /// # Errors
    /// The system's.
    pub fn hold() -> io::Result<Interrupts> {
        let (mut set, mut before) = (empty(), empty());
        for signal in ENDING {
            // SAFETY: a valid set and numbers of signals.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
        // SAFETY: both sets are valid and live.
        let answer = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) };
        if answer == 0 { Ok(Interrupts { set, before }) } else { Err(io::Error::from_raw_os_error(answer)) }
    }

    /// Waits for at most `timeout`; whether a signal asked for the end.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        // Longer than this nobody waits, and shorter than the type everywhere.
        let timeout = timeout.min(Duration::from_secs(3600));
        let spec = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
        };
        // SAFETY: set and time are valid and live; nothing is asked about the signal.
        let answer = unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &spec) };
        if answer > 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // Time is up; or some other signal came, e.g. after the process was stopped and went on.
            Some(libc::EAGAIN | libc::EINTR) => Ok(false),
            _ => Err(error),
        }
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        // SAFETY: the set that the system gave. A failure would leave signals held back; nothing can be done about it.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// The clock of `bpf_ktime_get_ns`: nanoseconds since the system was started, without those it slept.
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
    fn signals_are_held_back_and_seen() {
        // In a thread of its own: what is held back is the thread's affair.
        let seen = std::thread::spawn(|| {
            let interrupts = Interrupts::hold().expect("held");
            let before = interrupts.wait(Duration::from_millis(1)).expect("waits");
            // SAFETY: sends a signal to this thread, which holds it back.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
            (before, interrupts.wait(Duration::from_secs(5)).expect("waits"))
        });
        assert_eq!(seen.join().expect("alive"), (false, true));
    }

    #[test]
    fn the_clock_goes_on() {
        let first = monotonic_ns();
        std::thread::sleep(Duration::from_millis(2));
        assert!(monotonic_ns() >= first + 2_000_000);
    }
}
