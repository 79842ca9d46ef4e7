// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard output of a run in user space: a thread of its own writes it, so that a reader that stalls stops no
//! packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use crate::failure::Failure;
use crate::output::print;

/// The bytes that wait for the reader, at most.
const WAITING_BYTES: usize = 1 << 20;

/// A writer of texts in order. Dropping it waits until they are written.
pub(super) struct Printer {
    queue: Option<Sender<String>>,
    waiting_bytes: Arc<AtomicUsize>,
    thread: Option<JoinHandle<Result<(), String>>>,
    /// The lines dropped since too much text waited.
    pub(super) lost_lines: u64,
}

impl Printer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start() -> Result<Printer, Failure> {
        let (queue, texts) = channel::<String>();
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&waiting_bytes);
        let write = move |text: String| {
            let written = print(&text).map_err(|failure| failure.message());
            waiting.fetch_sub(text.len(), Ordering::Relaxed);
            written
        };
        let thread = std::thread::Builder::new()
            .name("printer".to_owned())
            .spawn(move || texts.into_iter().try_for_each(write))
            .map_err(|error| {
                Failure::Environment(format!("a thread for standard output cannot be started: {error}"))
            })?;
        Ok(Printer { queue: Some(queue), waiting_bytes, thread: Some(thread), lost_lines: 0 })
    }

    /// Has a text written without waiting for that. Returns false if an earlier one could not be written.
    pub(super) fn print(&mut self, text: String) -> bool {
        let Some(queue) = &self.queue else { return false };
        if self.waiting_bytes.load(Ordering::Relaxed) + text.len() > WAITING_BYTES {
            self.lost_lines += text.lines().count() as u64;
            return true;
        }
        self.waiting_bytes.fetch_add(text.len(), Ordering::Relaxed);
        queue.send(text).is_ok()
    }

    /// Waits until everything is written. Returns the number of lines dropped.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        drop(self.queue.take());
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Err(message))) => Err(Failure::Environment(message)),
            _ => Ok(self.lost_lines),
        }
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
