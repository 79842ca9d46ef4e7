//! A network name space of our own, for questions about routes that a table answers.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The name space that the calling thread is in.
const OWN: &str = "/proc/thread-self/ns/net";

fn enter(file: &File) -> io::Result<()> {
    // SAFETY: takes no addresses; only the calling thread moves.
    if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A name space that lives as long as this.
#[derive(Debug)]
pub(crate) struct Namespace {
    file: File,
}

/// The calling thread is in another name space, until this is dropped.
pub(crate) struct Entered {
    before: File,
    // The thread that went there is the one that comes back.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Namespace {
    /// Makes one and runs `furnish` in it.
    ///
    /// # Errors
    /// The process may not, or what `furnish` says.
    pub(crate) fn new(furnish: impl FnOnce() -> io::Result<()> + Send) -> io::Result<Namespace> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: takes no addresses; the name space is that of this thread alone, which ends with the job.
                if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
                    return Err(io::Error::last_os_error());
                }
                furnish()?;
                File::open(OWN).map(|file| Namespace { file })
            });
            thread.join().map_err(|_| io::Error::other("the thread in the other name space has failed"))?
        })
    }

    /// Takes the calling thread there.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn enter(&self) -> io::Result<Entered> {
        let before = File::open(OWN)?;
        enter(&self.file)?;
        Ok(Entered { before, _thread: std::marker::PhantomData })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // It came from there, and may go back with the right that let it leave.
        drop(enter(&self.before));
    }
}
