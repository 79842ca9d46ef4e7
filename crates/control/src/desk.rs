// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks for the thread of a packet loop, which it takes between two batches.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use flowloom_exec::SweepClock;
use flowloom_ports::Statistics;
use flowloom_session::Loaded;
use flowloom_session::engines::InPlaceEngine;

use crate::error::Refusal;
use crate::watched::Watched;

/// The longest time until a task begins.
const PATIENCE: Duration = Duration::from_secs(30);

/// Gets the new function, and the old and the new engine.
pub type Replaced<'w> = dyn FnMut(Option<Loaded>, [&mut dyn InPlaceEngine; 2]) + 'w;

/// The arguments of a task, on the thread that runs the packets.
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
    pub replaced: &'w mut Replaced<'w>,
}

impl std::fmt::Debug for Worker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("now_ns", &self.now_ns).finish_non_exhaustive()
    }
}

/// States of a task: the packet loop starts it, or the client times out first.
const WAITING: u8 = 0;
const RUNNING: u8 = 1;
const ABANDONED: u8 = 2;

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
    /// The run has ended, or its thread does not answer; the task is not run then.
    pub fn ask<R: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Worker<'_>) -> R + Send + 'static,
    ) -> Result<R, Refusal> {
        self.ask_within(PATIENCE, task)
    }

    /// As [`Desk::ask`], with another limit for the wait until the task begins.
    ///
    /// # Errors
    /// Those of [`Desk::ask`].
    pub fn ask_within<R: Send + 'static>(
        &self,
        patience: Duration,
        task: impl FnOnce(&mut Worker<'_>) -> R + Send + 'static,
    ) -> Result<R, Refusal> {
        let (sender, result) = channel();
        let ended = || Refusal::Environment("the run is ending".to_owned());
        let fate = Arc::new(AtomicU8::new(WAITING));
        let becomes =
            |fate: &AtomicU8, new| fate.compare_exchange(WAITING, new, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let own = Arc::clone(&fate);
        let task: Task = Box::new(move |worker| {
            if becomes(&own, RUNNING) {
                // The client waits, unless its thread is gone.
                drop(sender.send(task(worker)));
            }
        });
        self.tasks.send(task).map_err(|_| ended())?;
        // First the byte: after the flag the loop reads what has arrived, and a byte that came later would wake it for
        // nothing, without the flag, again and again. A full pipe has woken it already.
        let _ = (&self.waker).write(&[0]);
        self.wanted.store(true, Ordering::SeqCst);
        match result.recv_timeout(patience) {
            Ok(result) => Ok(result),
            Err(RecvTimeoutError::Timeout) if becomes(&fate, ABANDONED) => Err(Refusal::Environment(format!(
                "the packet loop has not answered for {} s: it is stopped, or a device blocks it",
                patience.as_secs_f64()
            ))),
            // It has begun.
            Err(RecvTimeoutError::Timeout) => result.recv().map_err(|_| ended()),
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
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
