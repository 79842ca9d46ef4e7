// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prefetching of frames on a thread of their own while the model runs.
//!
//! ```text
//!  a thread: frames ──► batch ──channel──► the caller: frame, frame, …
//!                         ▲                  │
//!                         └──── channel ◄────┘ the memory of used batches
//! ```

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use super::error::PredictError;
use super::frames::{Frame, Frames};

/// Frames in a batch.
const BATCH: usize = 512;
/// The most batches in flight.
const BATCHES_IN_FLIGHT: usize = 4;

/// A frame of a batch; its bytes end here and begin at the end of the frame before.
#[derive(Debug, Clone, Copy)]
struct FrameMeta {
    time_ns: u64,
    port: u32,
    len_bytes: u32,
    end: usize,
}

/// A batch of frames, and the error or end after the last one.
#[derive(Debug, Default)]
struct Batch {
    frames: Vec<FrameMeta>,
    bytes: Vec<u8>,
    failed: Option<PredictError>,
}

/// Frames of another source, read on a thread of its own. Their order is preserved, and so is an error.
///
/// More frames may be read from the source than are used.
#[derive(Debug)]
pub struct ReadAhead {
    batches: Option<Receiver<Batch>>,
    used: Sender<Batch>,
    thread: Option<JoinHandle<()>>,
    batch: Batch,
    /// The number of frames of the batch used so far, and the end of the last one's bytes.
    consumed: usize,
    end: usize,
}

impl ReadAhead {
    /// Starts to read a source.
    pub fn new<F: Frames + Send + 'static>(frames: F) -> ReadAhead {
        let (send, batches) = sync_channel(BATCHES_IN_FLIGHT);
        let (used, free) = channel();
        let thread = std::thread::spawn(move || fill(frames, &send, &free));
        ReadAhead { batches: Some(batches), used, thread: Some(thread), batch: Batch::default(), consumed: 0, end: 0 }
    }
}

/// Sends batches until the frames end or the receiver is dropped.
fn fill(mut frames: impl Frames, send: &SyncSender<Batch>, free: &Receiver<Batch>) {
    loop {
        let mut batch = free.try_recv().unwrap_or_default();
        batch.frames.clear();
        batch.bytes.clear();
        let mut is_last = false;
        while batch.frames.len() < BATCH && !is_last {
            match frames.next_frame() {
                Ok(Some(Frame { time_ns, port, len_bytes, bytes })) => {
                    batch.bytes.extend_from_slice(bytes);
                    batch.frames.push(FrameMeta { time_ns, port, len_bytes, end: batch.bytes.len() });
                }
                Ok(None) => is_last = true,
                Err(error) => {
                    batch.failed = Some(error);
                    is_last = true;
                }
            }
        }
        if send.send(batch).is_err() || is_last {
            return;
        }
    }
}

impl Frames for ReadAhead {
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, PredictError> {
        while self.consumed == self.batch.frames.len() {
            if let Some(error) = self.batch.failed.take() {
                return Err(error);
            }
            let Some(Ok(next)) = self.batches.as_ref().map(Receiver::recv) else {
                // A panic of the thread is a bug of ours, not the end of the frames.
                if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                    std::panic::resume_unwind(panic);
                }
                return Ok(None);
            };
            // A thread that has ended does not need the memory.
            let _ = self.used.send(std::mem::replace(&mut self.batch, next));
            (self.consumed, self.end) = (0, 0);
        }
        let FrameMeta { time_ns, port, len_bytes, end } = self.batch.frames[self.consumed];
        let bytes = &self.batch.bytes[self.end..end];
        (self.consumed, self.end) = (self.consumed + 1, end);
        Ok(Some(Frame { time_ns, port, len_bytes, bytes }))
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // A thread that waits to send a batch sees the receiver dropped.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use flowloom_trace::TraceError;

    /// A number of frames, then an error or the end.
    struct Counted {
        next: u32,
        count: u32,
        fails: bool,
        bytes: Vec<u8>,
    }

    impl Counted {
        fn new(count: u32, fails: bool) -> Counted {
            Counted { next: 0, count, fails, bytes: Vec::new() }
        }
    }

    impl Frames for Counted {
        fn next_frame(&mut self) -> Result<Option<Frame<'_>>, PredictError> {
            if self.next == self.count {
                let file = "made".to_owned();
                return if self.fails {
                    Err(TraceError::NotACapture { file, found: String::new() }.into())
                } else {
                    Ok(None)
                };
            }
            self.next += 1;
            self.bytes = vec![self.next as u8; self.next as usize % 7];
            Ok(Some(Frame { time_ns: self.next.into(), port: 1, len_bytes: 60, bytes: &self.bytes }))
        }
    }

    #[test]
    fn frames_keep_their_order_and_precede_the_error() {
        for (count, fails) in [(0, false), (1, true), (BATCH as u32, true), (5 * BATCH as u32 + 3, false)] {
            let mut read_ahead = ReadAhead::new(Counted::new(count, fails));
            for number in 1..=count {
                let frame = read_ahead.next_frame().unwrap().unwrap();
                assert_eq!((frame.time_ns, frame.bytes.len()), (number.into(), number as usize % 7));
                assert!(frame.bytes.iter().all(|byte| *byte == number as u8));
            }
            assert_eq!(read_ahead.next_frame().is_err(), fails);
            assert!(read_ahead.next_frame().unwrap().is_none() && read_ahead.next_frame().unwrap().is_none());
        }
    }

    #[test]
    fn the_reader_may_be_dropped_early() {
        let mut read_ahead = ReadAhead::new(Counted::new(u32::MAX, false));
        assert_eq!(read_ahead.next_frame().unwrap().unwrap().time_ns, 1);
    }

    #[test]
    #[should_panic(expected = "made to")]
    fn a_panic_of_the_source_is_propagated() {
        struct Panics;
        impl Frames for Panics {
            fn next_frame(&mut self) -> Result<Option<Frame<'_>>, PredictError> {
                panic!("made to")
            }
        }
        let _ = ReadAhead::new(Panics).next_frame();
    }
}
