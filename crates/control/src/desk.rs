// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks for the thread of a packet loop, which it takes between two batches.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use flowloom_exec::SweepClock;
use flowloom_ports::Statistics;
use flowloom_session::Loaded;

use crate::error::Refusal;
use crate::watched::Watched;

/// The longest time until a task is done.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a task finds on the thread of the packets.
pub struct Worker<'w> {
    /// The counters so far.
    pub statistics: &'w Statistics,
    /// The engine.
    pub watched: &'w mut Watched,
    /// The times of sweeps.
    pub sweep: &'w mut SweepClock,
    /// The time of the function's clock.
    pub now_ns: u64,
    /// Called when the function has been replaced; the first worker gets it.
    pub replaced: &'w mut dyn FnMut(Option<Loaded>),
}

impl std::fmt::Debug for Worker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("now_ns", &self.now_ns).finish_non_exhaustive()
    }
}

type Task = Box<dyn FnOnce(&mut Worker<'_>) + Send>;

/// The side of other threads.
pub struct Desk {
    tasks: Sender<Task>,
    wanted: Arc<AtomicBool>,
    waker: UnixStream,
}

/// The side of the packet loop.
pub struct Inbox {
    tasks: Receiver<Task>,
    wanted: Arc<AtomicBool>,
    wakes: UnixStream,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// Both sides.
///
/// # Errors
/// No file descriptors are left.
pub fn desk() -> std::io::Result<(Desk, Inbox)> {
    let (sender, tasks) = channel();
    let (waker, wakes) = UnixStream::pair()?;
    waker.set_nonblocking(true)?;
    wakes.set_nonblocking(true)?;
    let wanted = Arc::new(AtomicBool::new(false));
    Ok((Desk { tasks: sender, wanted: Arc::clone(&wanted), waker }, Inbox { tasks, wanted, wakes }))
}

impl Desk {
    /// Runs `task` on the thread of the packets and returns its result.
    ///
    /// # Errors
    /// The run has ended, or its thread does not answer.
    pub fn ask<R: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Worker<'_>) -> R + Send + 'static,
    ) -> Result<R, Refusal> {
        let (sender, result) = channel();
        let ended = || Refusal::Environment("the run is ending".to_owned());
        // The result of a task that is no longer awaited is dropped.
        let task: Task = Box::new(move |worker| drop(sender.send(task(worker))));
        self.tasks.send(task).map_err(|_| ended())?;
        self.wanted.store(true, Ordering::SeqCst);
        // A full pipe has woken it already.
        let _ = (&self.waker).write(&[0]);
        result.recv_timeout(PATIENCE).map_err(|error| match error {
            std::sync::mpsc::RecvTimeoutError::Disconnected => ended(),
            std::sync::mpsc::RecvTimeoutError::Timeout => Refusal::Environment(format!(
                "the packet loop has not answered for {} s: it is stopped, or a device blocks it",
                PATIENCE.as_secs()
            )),
        })
    }
}

impl Inbox {
    /// Set while a task waits; the loop clears it and then calls [`Inbox::work`].
    pub fn wanted(&self) -> &AtomicBool {
        &self.wanted
    }

    /// Readable while a task waits.
    pub fn wakes(&self) -> RawFd {
        self.wakes.as_raw_fd()
    }

    /// Runs the tasks that wait.
    pub fn work(&self, worker: &mut Worker<'_>) {
        let mut bytes = [0; 64];
        while matches!((&self.wakes).read(&mut bytes), Ok(1..)) {}
        while let Ok(task) = self.tasks.try_recv() {
            task(worker);
        }
    }
}
