// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory shared with the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A memory mapping of a kernel object.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    writable: bool,
}

// SAFETY: the mapping belongs to the process, and this is its only handle.
unsafe impl Send for Memory {}

pub(crate) fn page_bytes() -> usize {
    // SAFETY: takes no addresses.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

impl Memory {
    /// Maps `bytes` bytes of `fd`, from `offset` on, which is a multiple of the page size.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn map(fd: BorrowedFd<'_>, offset: usize, bytes: usize, writable: bool) -> io::Result<Memory> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let offset = libc::off_t::try_from(offset).map_err(|_| super::too_long("an offset", offset))?;
        // SAFETY: a new mapping, at an address chosen by the kernel.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Memory { start, bytes, writable })
    }

    fn check(&self, at: usize, bytes: usize) -> io::Result<()> {
        if at.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        let message = format!("{bytes} bytes at {at} of a mapping of {}", self.bytes);
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }

    /// Copies the bytes at `at` to `out`. Concurrent writes of the kernel may be included or not.
    ///
    /// # Errors
    /// Out of range.
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) -> io::Result<()> {
        self.check(at, out.len())?;
        // SAFETY: within the mapping, and `out` does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(at), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies `data` to `at`.
    ///
    /// # Errors
    /// Out of range, or the mapping is read-only.
    pub(crate) fn write(&mut self, at: usize, data: &[u8]) -> io::Result<()> {
        self.check(at, data.len())?;
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // SAFETY: within the mapping, which is writable, and `data` does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.start.as_ptr().add(at), data.len()) };
        Ok(())
    }

    fn word(&self, at: usize) -> io::Result<&AtomicU64> {
        self.check(at, 8)?;
        if !at.is_multiple_of(8) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a word at {at}")));
        }
        // SAFETY: eight bytes within the page-aligned mapping, at a multiple of eight.
        Ok(unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) })
    }

    /// Loads the word at `at` with acquire ordering.
    ///
    /// # Errors
    /// Out of range, or not at a multiple of eight.
    pub(crate) fn load(&self, at: usize) -> io::Result<u64> {
        Ok(self.word(at)?.load(Ordering::Acquire))
    }

    /// Stores the word at `at` with release ordering.
    ///
    /// # Errors
    /// As for [`Memory::load`]; or the mapping is read-only.
    pub(crate) fn store(&mut self, at: usize, value: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.word(at)?.store(value, Ordering::Release);
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
