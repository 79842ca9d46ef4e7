// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of a capture: they run on copies, and are counted.
//!
//! ```text
//!  capture, not written ──copy──► a batch of frames, reused, in the cache ──► machine code ──► counts
//! ```
//!
//! Several engines read one capture at once. All that a packet writes belongs to its engine, so that no line of the
//! cache goes from core to core.

use flowloom_engine::{Arrival, Choices, Draws, Frame, PacketError, Tally};
use flowloom_flowtable::prefetch;

use crate::batch::{BATCH, Sinks};
use crate::engine::Jit;

/// The packets whose bytes are prefetched ahead of the copies.
const AHEAD: usize = 32;

impl Jit {
    /// Runs `count` packets, `pick(0)` to `pick(count - 1)`: each with its number, by which its random values are
    /// drawn. Counts what becomes of them.
    ///
    /// # Errors
    /// Those of [`flowloom_engine::Datapath::tally`], with the number that `pick` gave to the packet.
    pub fn run_copies<'a>(
        &mut self,
        count: usize,
        pick: impl Fn(usize) -> (usize, &'a Arrival<'a>),
        draws: Draws,
        tally: &mut Tally,
    ) -> Result<(), PacketError> {
        let mut buffer = std::mem::take(&mut self.copies);
        let mut extra = Vec::new();
        let (headroom, tailroom) = self.room_around();
        let room = |len: usize| (headroom + len + tailroom).next_multiple_of(LINE_BYTES);
        (0..AHEAD.min(count)).for_each(|number| prefetch(pick(number).1.bytes.as_ptr()));
        let mut result = Ok(());
        let is_seeded = self.draws;
        for first in (0..count).step_by(BATCH) {
            let end = (first + BATCH).min(count);
            let all: usize = (first..end).map(|number| room(pick(number).1.bytes.len())).sum();
            if buffer.len() < all + LINE_BYTES {
                buffer.resize(all + LINE_BYTES, 0);
            }
            let unaligned = buffer.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES);
            let mut rest = &mut buffer[unaligned..];
            let mut frames = Vec::with_capacity(end - first);
            for number in first..end {
                if number + AHEAD < count {
                    prefetch(pick(number + AHEAD).1.bytes.as_ptr());
                }
                if number + 2 * AHEAD < count {
                    prefetch(pick(number + 2 * AHEAD).1);
                }
                let Arrival { bytes, now_ns, port } = *pick(number).1;
                let (own, after) = std::mem::take(&mut rest).split_at_mut(room(bytes.len()));
                rest = after;
                own[headroom..headroom + bytes.len()].copy_from_slice(bytes);
                frames.push(Frame::new(own, headroom, headroom + bytes.len(), port, now_ns));
            }
            let choose = |number: usize, now_ns: u64, choices: &mut Choices| match is_seeded {
                true => *choices = draws.choices(pick(first + number).0, now_ns),
                false => choices.now_ns = now_ns,
            };
            let mut sinks = Sinks { extra: &mut extra, events: None, ran: 0 };
            let ran = self.run_batch(&mut frames, choose, !is_seeded, &mut sinks);
            if let Err(source) = ran {
                result = Err(PacketError { packet: pick(first + sinks.ran).0, source });
                break;
            }
            frames.iter().for_each(|frame| tally.count_frame(frame));
            extra.drain(..).for_each(|(_, output)| tally.sent(&output));
            tally.events += self.events.drain(..).len() as u64;
        }
        self.copies = buffer;
        result
    }
}

/// The bytes of a line of the cache.
const LINE_BYTES: usize = 64;
