// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of a capture, which are counted.
//!
//! ```text
//!  capture, not written ──► views ─────────────► machine code ──► counts     programs that write no packets
//!                       └─► copies ──► views ──┘                             others
//! ```
//!
//! Several engines read one capture at once. All that a packet writes belongs to its engine, so that no line of the
//! cache goes from core to core. Copies are made in memory that is used again and stays in the cache.

use std::ops::Range;

use flowloom_engine::{Arrival, Choices, Draws, Fate, Frame, PacketError, Port, Tally};
use flowloom_flowtable::prefetch;

use crate::batch::{BATCH, Sinks};
use crate::engine::Jit;
use crate::packets::Packets;
use crate::pipeline::SPARE_VIEWS;
use crate::state::View;

/// The packets whose bytes are prefetched ahead of their views.
const AHEAD: usize = 32;
/// The bytes for the copies of a batch, if its first packet is short.
const COPIES_BYTES: usize = 256 << 10;
/// The bytes of a line of the cache.
const LINE_BYTES: usize = 64;

/// Memory for copies, from a line of the cache on.
#[derive(Debug, Default)]
pub(crate) struct Room(Vec<u8>);

impl Room {
    /// A part that begins at a line, of this many bytes.
    fn part(&mut self, bytes: usize) -> &mut [u8] {
        if self.0.len() < bytes + LINE_BYTES {
            self.0.resize(bytes + LINE_BYTES, 0);
        }
        let unaligned = self.0.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES);
        &mut self.0[unaligned..unaligned + bytes]
    }
}

/// The packets of a batch.
struct Counted<'b, 't> {
    /// Those of the packets, and [`SPARE_VIEWS`]. Machine code writes them too, so all accesses are by this address.
    views: *mut View,
    /// The number of packets.
    count: usize,
    tally: &'t mut Tally,
    /// The bytes before and after a copy.
    around: (usize, usize),
    /// True if the views are those of copies.
    is_copied: bool,
    /// For packets that need a frame and are no copies.
    room: &'t mut Room,
    /// The frames of all packets, or that of one.
    frames: Vec<Frame<'b>>,
}

/// Copies bytes to the beginning of others.
#[inline(always)]
fn copy(from: &[u8], to: &mut [u8]) {
    const HALF: usize = LINE_BYTES / 2;
    match (from.first_chunk::<HALF>(), from.last_chunk::<HALF>(), to.get_mut(..from.len())) {
        // Without a call, in halves that may overlap.
        (Some(first), Some(last), Some(to)) if from.len() <= LINE_BYTES => {
            to[..HALF].copy_from_slice(first);
            to[from.len() - HALF..].copy_from_slice(last);
        }
        _ => to[..from.len()].copy_from_slice(from),
    }
}

impl<'b> Counted<'b, '_> {
    /// A frame on the copy of a view.
    fn frame_of(view: &View) -> Frame<'b> {
        let (start, end) = ((view.data - view.buffer) as usize, (view.data_end - view.buffer) as usize);
        let bytes = (view.buffer_end - view.buffer) as usize;
        // SAFETY: the view is that of a copy, whose memory is kept while the frame is, and is otherwise used by the machine
        // code alone.
        let buffer = unsafe { std::slice::from_raw_parts_mut(view.buffer as *mut u8, bytes) };
        Frame::new(buffer, start, end, Port(view.ingress), view.now_ns)
    }

    /// The view of a packet.
    #[inline]
    fn view(&self, packet: usize) -> View {
        assert!(packet < self.count, "packet {packet} of {}", self.count);
        // SAFETY: there are as many views, and no machine code runs.
        unsafe { *self.views.add(packet) }
    }

    /// Copies packets, and makes their views those of the copies.
    fn copy(&mut self, packets: Range<usize>) {
        let (headroom, tailroom) = self.around;
        let len = |view: &View| (view.data_end - view.data) as usize;
        let room = |view: &View| (headroom + len(view) + tailroom).next_multiple_of(LINE_BYTES);
        let all = packets.clone().map(|packet| room(&self.view(packet))).sum();
        let mut rest = self.room.part(all);
        for packet in packets {
            // SAFETY: as in `view`, which has checked the number.
            let view = unsafe { &mut *self.views.add(packet) };
            let (own, after) = std::mem::take(&mut rest).split_at_mut(room(view));
            rest = after;
            // SAFETY: the view is that of a packet of the capture, which nothing writes meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts(view.data as *const u8, len(view)) };
            // The code may have run.
            let (r0, redirect) = (view.r0, view.redirect);
            *view = View { r0, redirect, ..placed(own, headroom, bytes, view.now_ns, view.ingress) };
        }
    }
}

/// Copies a packet to a buffer, and returns the view of the copy.
#[inline(always)]
fn placed(buffer: &mut [u8], headroom: usize, bytes: &[u8], now_ns: u64, ingress: u32) -> View {
    let place = &mut buffer[headroom..];
    copy(bytes, place);
    let data = place.as_mut_ptr() as u64;
    let buffer = buffer.as_mut_ptr_range();
    let (buffer, buffer_end) = (buffer.start as u64, buffer.end as u64);
    View { data, data_end: data + bytes.len() as u64, now_ns, ingress, buffer, buffer_end, ..View::default() }
}

impl<'b> Packets<'b> for Counted<'b, '_> {
    type Frame = Frame<'b>;

    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn views(&mut self, packets: Range<usize>, _: &mut Vec<View>) -> *mut View {
        debug_assert!(packets.end <= self.count);
        self.views.wrapping_add(packets.start)
    }

    fn frames(&mut self) -> &mut [Frame<'b>] {
        if !self.is_copied {
            self.copy(0..self.count);
            self.is_copied = true;
        }
        self.frames = (0..self.count).map(|packet| Self::frame_of(&self.view(packet))).collect();
        &mut self.frames
    }

    fn frame(&mut self, packet: usize) -> &mut Frame<'b> {
        // The frame before may be on the room that this copy takes.
        self.frames.clear();
        if !self.is_copied {
            self.copy(packet..packet + 1);
        }
        self.frames.push(Self::frame_of(&self.view(packet)));
        &mut self.frames[0]
    }

    fn end_frame(&mut self, _: usize) {
        self.frames.drain(..).for_each(|frame| self.tally.count_frame(&frame));
    }

    #[inline]
    fn end(&mut self, packet: usize, fate: Fate) {
        let View { data, data_end, .. } = self.view(packet);
        self.tally.count_fate(fate, data_end - data);
    }
}

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
        let (mut room, mut views) = (std::mem::take(&mut self.copies), std::mem::take(&mut self.counted));
        let mut extra = Vec::new();
        let around = self.room_around();
        (0..AHEAD.min(count)).for_each(|number| prefetch(pick(number).1.bytes.as_ptr()));
        let (is_seeded, is_copied) = (self.draws, self.writes);
        let (mut first, mut result) = (0, Ok(()));
        while first < count {
            let most = BATCH.min(count - first);
            views.clear();
            let packet = |number: usize| {
                // The processor finds the descriptors by itself: they lie one after the other.
                prefetch(pick((number + AHEAD).min(count - 1)).1.bytes.as_ptr());
                pick(number).1
            };
            if is_copied {
                let bytes =
                    |packet: &Arrival<'_>| (around.0 + packet.bytes.len() + around.1).next_multiple_of(LINE_BYTES);
                // Also long packets with much room around them come in batches that are worth a loop.
                let mut rest = room.part(COPIES_BYTES.max(BATCH / 2 * bytes(pick(first).1)));
                for number in first..first + most {
                    let packet = packet(number);
                    let Some((own, after)) = std::mem::take(&mut rest).split_at_mut_checked(bytes(packet)) else {
                        break;
                    };
                    rest = after;
                    views.push(placed(own, around.0, packet.bytes, packet.now_ns, packet.port.0));
                }
            } else {
                views.extend((first..first + most).map(|number| {
                    let Arrival { bytes, now_ns, port } = *packet(number);
                    let bytes = bytes.as_ptr_range();
                    let (data, data_end) = (bytes.start as u64, bytes.end as u64);
                    View { data, data_end, now_ns, ingress: port.0, ..View::default() }
                }));
            }
            let ran = views.len();
            views.resize(ran + SPARE_VIEWS, View::default());
            let choose = |number: usize, now_ns: u64, choices: &mut Choices| match is_seeded {
                true => *choices = draws.choices(pick(first + number).0, now_ns),
                false => choices.now_ns = now_ns,
            };
            let mut sinks = Sinks { extra: &mut extra, events: None, ran: 0 };
            let (room, views, tally) = (&mut room, views.as_mut_ptr(), &mut *tally);
            let mut packets = Counted { views, count: ran, tally, around, is_copied, room, frames: Vec::new() };
            let ended = self.run_batch(&mut packets, choose, !is_seeded, &mut sinks);
            if let Err(source) = ended {
                result = Err(PacketError { packet: pick(first + sinks.ran).0, source });
                break;
            }
            // Those that ran as frames.
            packets.end_frame(0);
            extra.drain(..).for_each(|(_, output)| tally.sent(&output));
            tally.events += self.events.drain(..).len() as u64;
            first += ran;
        }
        (self.copies, self.counted) = (room, views);
        result
    }
}
