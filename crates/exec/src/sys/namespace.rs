// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network namespace of our own, for route lookups on a given table.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

fn enter(file: &File) -> io::Result<()> {
    // SAFETY: takes no addresses; only the calling thread moves.
    if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Runs `job` in a thread of its own, which ends with it.
fn in_thread<T: Send>(job: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let joined = std::thread::scope(|scope| scope.spawn(job).join());
    joined.map_err(|_| io::Error::other("the thread in the other namespace failed"))?
}

/// Runs `job` in the network namespace of `file`.
///
/// # Errors
/// Missing privileges, or the error of `job`.
pub(crate) fn within<T: Send>(file: &File, job: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    in_thread(|| {
        enter(file)?;
        job()
    })
}

/// A namespace that lives as long as this.
#[derive(Debug)]
pub(crate) struct Namespace {
    file: File,
}

/// Puts the calling thread into another namespace until it is dropped.
pub(crate) struct Entered {
    before: File,
    // The thread that entered has to return.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Namespace {
    /// Creates one and runs `populate` in it.
    ///
    /// # Errors
    /// Missing privileges, or the error of `populate`.
    pub(crate) fn new(populate: impl FnOnce() -> io::Result<()> + Send) -> io::Result<Namespace> {
        in_thread(|| {
            // SAFETY: takes no addresses; the namespace is that of this thread alone.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
                return Err(io::Error::last_os_error());
            }
            populate()?;
            File::open(OWN).map(|file| Namespace { file })
        })
    }

    /// Moves the calling thread into it.
    ///
    /// # Errors
    /// Missing privileges.
    pub(crate) fn enter(&self) -> io::Result<Entered> {
        let before = File::open(OWN)?;
        enter(&self.file)?;
        Ok(Entered { before, _thread: std::marker::PhantomData })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // It came from there, and may return with the same privileges.
        drop(enter(&self.before));
    }
}
