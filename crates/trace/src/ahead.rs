// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures that a thread reads ahead, while others run the packets.
//!
//! ```text
//!              empty buffers ◄───────────────────┐
//!  captures ──► thread: read, find packets ──► full buffers ──► next_batch
//! ```

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use crate::batch::{Batch, PacketBuffer};
use crate::error::TraceError;
use crate::merge::MergedReader;

/// The buffers: one that is run, and those that are read meanwhile.
const BUFFERS: usize = 3;
/// The most packets of a buffer: those without bytes would fit in without end.
const PACKETS: usize = 1 << 15;

/// The packets of captures, read ahead in batches. Ends after an error.
///
/// The thread is never waited for: once nothing asks for packets any more, it ends with the batch that it reads.
///
/// Memory: four windows of 512 KiB, or of twice the longest packet, and 40 bytes a packet.
#[derive(Debug)]
pub struct ReadAhead {
    full: Receiver<Result<PacketBuffer, TraceError>>,
    empty: Sender<PacketBuffer>,
    current: PacketBuffer,
    /// The packets of the current buffer that have been returned.
    taken: usize,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// Starts to read.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn new(mut reader: MergedReader) -> Result<ReadAhead, TraceError> {
        let (empty, to_fill) = channel::<PacketBuffer>();
        let (filled, full) = channel();
        let read = move || {
            // Ends with the packets, or with its user.
            for mut buffer in to_fill {
                let result = reader.read_batch(PACKETS, &mut buffer);
                let is_last = result.is_err() || buffer.batch().is_empty();
                if filled.send(result.map(|()| buffer)).is_err() || is_last {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("reader".to_owned()).spawn(read);
        let thread = Some(thread.map_err(|source| TraceError::Thread { source })?);
        for _ in 1..BUFFERS {
            _ = empty.send(PacketBuffer::default());
        }
        Ok(ReadAhead { full, empty, current: PacketBuffer::default(), taken: 0, thread })
    }

    /// The next packets, at least one and at most `most`; none at the end.
    ///
    /// # Errors
    /// As [`MergedReader::next_packet`], after the packets before.
    ///
    /// # Panics
    /// The captures' [`crate::PortBy`] has panicked.
    pub fn next_batch(&mut self, most: usize) -> Result<Batch<'_>, TraceError> {
        if self.taken == self.current.batch().len() {
            // Without packets, the thread may have ended.
            _ = self.empty.send(std::mem::take(&mut self.current));
            self.taken = 0;
            match self.full.recv() {
                Ok(next) => self.current = next?,
                // The thread has sent its last batch, or has panicked.
                Err(_) => {
                    if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                        resume_unwind(panic);
                    }
                }
            }
        }
        let first = self.taken;
        self.taken = self.current.batch().len().min(first.saturating_add(most));
        Ok(self.current.batch().slice(first, self.taken))
    }

    /// Takes back the last `packets` packets of the last batch: they begin the next one.
    ///
    /// # Panics
    /// The batch had fewer.
    pub fn take_back(&mut self, packets: usize) {
        assert!(packets <= self.taken, "{packets} packets of {}", self.taken);
        self.taken -= packets;
    }
}
