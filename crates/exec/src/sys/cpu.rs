// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs: their possible number, and thread affinity.

use std::io;

/// The number of possible CPUs: an entry of a per-CPU map has as many values.
pub(crate) fn possible() -> io::Result<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    // Lists of ranges such as `0-3,8`; there are values for each number up to the last.
    let last = text.trim().rsplit([',', '-']).next().and_then(|number| number.parse::<u32>().ok());
    let last = last.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("invalid CPU list: `{text}`")))?;
    Ok(last.saturating_add(1))
}

fn set(mask: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: a mask of the size given; 0 is the calling thread.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), mask) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Pins the calling thread to one CPU until it is dropped.
pub(crate) struct Pinned {
    before: libc::cpu_set_t,
    // The mask is that of the calling thread, so this must not move to another one.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Pinned {
    /// Moves the calling thread to CPU number `cpu`.
    ///
    /// # Errors
    /// There is no such CPU, or the thread may not run there.
    pub(crate) fn to(cpu: u32) -> io::Result<Pinned> {
        let index = cpu as usize;
        if index >= 8 * size_of::<libc::cpu_set_t>() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: a mask consists of bits only; the kernel writes as many as fit.
        let (mut before, mut wanted): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { std::mem::zeroed() };
        // SAFETY: the mask is mutable and has the size given; 0 is the calling thread.
        if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut before) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the number was compared with the mask's bits.
        unsafe { libc::CPU_SET(index, &mut wanted) };
        set(&wanted)?;
        Ok(Pinned { before, _thread: std::marker::PhantomData })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The old mask is still permitted, unless the machine has changed meanwhile.
        drop(set(&self.before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_runs_on_the_pinned_cpu() {
        let count = possible().expect("the system says");
        // SAFETY: takes no addresses.
        let here = || unsafe { libc::sched_getcpu() };
        for cpu in 0..count {
            let Ok(pinned) = Pinned::to(cpu) else { continue };
            assert_eq!(here(), cpu as i32);
            drop(pinned);
        }
        assert!(Pinned::to(100_000).is_err());
    }
}
