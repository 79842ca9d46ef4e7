// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of a capture, which are counted.
//!
//! ```text
//!  capture, not written ──► views ─────────────► machine code ──► counts     programs that write no packets
//!                       └─► copies ──► views ──┘                             others
//! ```
//!
//! The pipeline makes the views of packets that are not copied itself ([`crate::feed`]).
//!
//! Several engines read one capture at once. All that a packet writes belongs to its engine, so that no line of the
//! cache goes from core to core. Copies are made in memory that is used again and stays in the cache.

use std::ops::Range;

use flowloom_engine::{Arrival, Choices, Draws, Frame, PacketError, Port, Ports, Tally};
use flowloom_flowtable::prefetch;

use crate::batch::{BATCH, Sinks};
use crate::engine::Jit;
use crate::feed::{FEED_AHEAD, Feed};
use crate::packets::{DROP, PASS, Packets, TX, Views, quick_fate};
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
struct Counted<'b, 't, P> {
    /// Those of the packets, and [`SPARE_VIEWS`]. Machine code writes them too, so all accesses are by this address.
    views: *mut View,
    /// The number of packets, and of the first views that have been made.
    count: usize,
    made: usize,
    feed: &'t Feed<'b>,
    /// The packets from the first one of the batch on, and their number, which may be greater than that of the batch.
    pick: P,
    left: usize,
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

impl<'b, P: Fn(usize) -> &'b Arrival<'b>> Counted<'b, '_, P> {
    /// A frame on the copy of a view.
    fn frame_of(view: &View) -> Frame<'b> {
        let (start, end) = ((view.data - view.buffer) as usize, (view.data_end - view.buffer) as usize);
        let bytes = (view.buffer_end - view.buffer) as usize;
        // SAFETY: the view is that of a copy, whose memory is kept while the frame is, and is otherwise used by the
        // machine code alone.
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

    /// Makes the views of the packets before this one.
    #[inline]
    fn make(&mut self, end: usize, prefetches: bool) {
        for number in self.made..end {
            if prefetches {
                // The processor finds the descriptors by itself: they lie one after the other.
                prefetch((self.pick)((number + AHEAD).min(self.left - 1)).bytes.as_ptr());
            }
            let Arrival { bytes, now_ns, port } = *(self.pick)(number);
            let bytes = bytes.as_ptr_range();
            let (data, data_end) = (bytes.start as u64, bytes.end as u64);
            // SAFETY: there are as many views, and no machine code runs.
            unsafe {
                *self.views.add(number) = View { data, data_end, now_ns, ingress: port.0, ..View::default() };
            }
        }
        self.made = self.made.max(end);
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

impl<'b, P: Fn(usize) -> &'b Arrival<'b>> Packets<'b> for Counted<'b, '_, P> {
    type Frame = Frame<'b>;

    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn views(&mut self, packets: Range<usize>, can_be_fed: bool, _: &mut Vec<View>) -> Views<'b> {
        assert!(packets == (0..self.count), "{packets:?} of {}", self.count);
        if can_be_fed && !self.is_copied && Feed::is_readable() {
            // Their bytes were prefetched by the feed of the batch before, those of the first batch before the loop.
            self.make(FEED_AHEAD.min(self.count), false);
            return (self.views, self.feed);
        }
        self.make(self.count, true);
        (self.views, std::ptr::null())
    }

    fn frames(&mut self) -> &mut [Frame<'b>] {
        self.make(self.count, true);
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
    fn end_quick(&mut self, _: usize, views: &[View], ports: &Ports) -> usize {
        // The usual fates are counted in registers: a packet would wait for the count of the one before to be stored.
        let (mut passed, mut sent, mut bytes, mut others) = (0, 0, 0, 0);
        let mut ended = 0;
        for view in views {
            let len_bytes = view.data_end - view.data;
            let verdict = view.r0 as u32;
            if matches!(verdict, DROP | PASS | TX) {
                passed += u64::from(verdict == PASS);
                sent += u64::from(verdict == TX);
                bytes += if verdict == DROP { 0 } else { len_bytes };
            } else if let Some(fate) = quick_fate(ports, view.r0, view.redirect) {
                self.tally.count_fate(fate, len_bytes);
                others += 1;
            } else {
                break;
            }
            ended += 1;
        }
        let mut verdicts = [0; 5];
        verdicts[PASS as usize] = passed;
        verdicts[TX as usize] = sent;
        verdicts[DROP as usize] = ended as u64 - others - passed - sent;
        self.tally.merge(&Tally { verdicts, outputs: passed + sent, output_bytes: bytes, events: 0 });
        ended
    }
}

impl Jit {
    /// Runs packets of a capture, all or those with these numbers: each with its number, by which its random values are
    /// drawn. Counts what becomes of them.
    ///
    /// # Errors
    /// Those of [`flowloom_engine::Datapath::tally`], with the number of the packet.
    ///
    /// # Panics
    /// There is no packet with one of the numbers.
    pub fn run_copies(
        &mut self,
        packets: &[Arrival<'_>],
        numbers: Option<&[u32]>,
        draws: Draws,
        tally: &mut Tally,
    ) -> Result<(), PacketError> {
        let count = numbers.map_or(packets.len(), <[u32]>::len);
        let greatest = numbers.and_then(|numbers| numbers.iter().max());
        if let Some(greatest) = greatest {
            assert!((*greatest as usize) < packets.len(), "packet {greatest} of {}", packets.len());
        }
        let number_of = |at: usize| numbers.map_or(at, |numbers| numbers[at] as usize);
        let pick = |at: usize| &packets[number_of(at)];
        let (mut room, mut views) = (std::mem::take(&mut self.copies), std::mem::take(&mut self.counted));
        let mut extra = Vec::new();
        let around = self.room_around();
        (0..AHEAD.min(count)).for_each(|at| prefetch(pick(at).bytes.as_ptr()));
        let (is_seeded, is_copied) = (self.draws, self.writes);
        let (mut first, mut result) = (0, Ok(()));
        while first < count {
            let mut most = BATCH.min(count - first);
            if is_copied {
                most = copy_all(first..count, pick, around, &mut room, &mut views);
            } else if views.len() < BATCH + SPARE_VIEWS {
                views.resize(BATCH + SPARE_VIEWS, View::default());
            }
            let choose = |number: usize, now_ns: u64, choices: &mut Choices| match is_seeded {
                true => *choices = draws.choices(number_of(first + number), now_ns),
                false => choices.now_ns = now_ns,
            };
            let mut sinks = Sinks { extra: &mut extra, events: None, ran: 0 };
            // SAFETY: all numbers are those of packets.
            let feed = &unsafe { Feed::new(packets, numbers, first, most) };
            let of_batch = |number: usize| pick(first + number);
            let (made, room, views, tally) =
                (if is_copied { most } else { 0 }, &mut room, views.as_mut_ptr(), &mut *tally);
            let frames = Vec::new();
            let (pick, left) = (of_batch, count - first);
            let mut counted =
                Counted { views, count: most, made, feed, pick, left, tally, around, is_copied, room, frames };
            let ended = self.run_batch(&mut counted, choose, !is_seeded, &mut sinks);
            if let Err(source) = ended {
                result = Err(PacketError { packet: number_of(first + sinks.ran), source });
                break;
            }
            // Those that ran as frames.
            counted.end_frame(0);
            extra.drain(..).for_each(|(_, output)| tally.sent(&output));
            tally.events += self.events.drain(..).len() as u64;
            first += most;
        }
        (self.copies, self.counted) = (room, views);
        result
    }
}

/// Copies the first packets, a batch or as many as there is room for, and makes the views of the copies; returns their
/// number.
fn copy_all<'a>(
    packets: Range<usize>,
    pick: impl Fn(usize) -> &'a Arrival<'a>,
    (headroom, tailroom): (usize, usize),
    room: &mut Room,
    views: &mut Vec<View>,
) -> usize {
    views.clear();
    let bytes = |packet: &Arrival<'_>| (headroom + packet.bytes.len() + tailroom).next_multiple_of(LINE_BYTES);
    // Also long packets with much room around them come in batches that are worth a loop.
    let mut rest = room.part(COPIES_BYTES.max(BATCH / 2 * bytes(pick(packets.start))));
    for number in packets.clone().take(BATCH) {
        prefetch(pick((number + AHEAD).min(packets.end - 1)).bytes.as_ptr());
        let packet = pick(number);
        let Some((own, after)) = std::mem::take(&mut rest).split_at_mut_checked(bytes(packet)) else { break };
        rest = after;
        views.push(placed(own, headroom, packet.bytes, packet.now_ns, packet.port.0));
    }
    let count = views.len();
    views.resize(count + SPARE_VIEWS, View::default());
    count
}
