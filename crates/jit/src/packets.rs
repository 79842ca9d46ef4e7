// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of a batch, as the loops of machine code see them, and as frames.

use std::borrow::BorrowMut;
use std::ops::Range;

use flowloom_engine::{Fate, Frame, Port, Ports};

use crate::feed::Feed;
use crate::pipeline::SPARE_VIEWS;
use crate::state::View;

/// Where the views of packets are, and the feed of those that have not been made, or null.
pub(crate) type Views<'b> = (*mut View, *const Feed<'b>);

/// The packets of a batch.
pub(crate) trait Packets<'b> {
    type Frame: BorrowMut<Frame<'b>>;

    /// The number of packets.
    fn count(&self) -> usize;

    /// The views of packets, and after them [`SPARE_VIEWS`] of later packets or of none, whose addresses are
    /// prefetched. They stay where they are until this is called again. With a feed, the code makes the views itself,
    /// but for the first [`crate::feed::FEED_AHEAD`].
    fn views(&mut self, packets: Range<usize>, can_be_fed: bool, room: &mut Vec<View>) -> Views<'b>;

    /// The frames of all packets, which are run in place of their views.
    fn frames(&mut self) -> &mut [Self::Frame];

    /// The frame of a packet that runs or has run in a loop.
    fn frame(&mut self, packet: usize) -> &mut Frame<'b>;

    /// Ends a packet with the fate of its frame ([`Packets::frame`]).
    fn end_frame(&mut self, packet: usize);

    /// Ends packets that ran in a loop, from number `first` on, up to one whose fate needs the environment. Returns
    /// their number.
    fn end_quick(&mut self, first: usize, views: &[View], ports: &Ports) -> usize;
}

/// The fate of a packet that needs no environment.
#[inline(always)]
pub(crate) fn quick_fate(ports: &Ports, r0: u64, redirect: i64) -> Option<Fate> {
    match (r0 as u32, u32::try_from(redirect)) {
        (DROP, _) => Some(Fate::Drop),
        (PASS, _) => Some(Fate::Pass),
        (TX, _) => Some(Fate::Tx),
        (REDIRECT, Ok(port)) if ports.is_bound(Port(port)) => Some(Fate::Redirect(Port(port))),
        _ => None,
    }
}

/// The numbers of verdicts whose fates need no environment.
pub(crate) const DROP: u32 = 1;
pub(crate) const PASS: u32 = 2;
pub(crate) const TX: u32 = 3;
const REDIRECT: u32 = 4;

/// A packet as machine code sees it.
#[inline]
pub(crate) fn view_of(frame: &Frame<'_>) -> View {
    let bytes = frame.bytes().as_ptr_range();
    let (data, data_end) = (bytes.start as u64, bytes.end as u64);
    View { data, data_end, now_ns: frame.time_ns, ingress: frame.port.0, ..View::default() }
}

/// Frames, which keep the fates of their packets.
pub(crate) struct Frames<'f, F>(pub(crate) &'f mut [F]);

impl<'b, F: BorrowMut<Frame<'b>>> Packets<'b> for Frames<'_, F> {
    type Frame = F;

    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn views(&mut self, packets: Range<usize>, _: bool, room: &mut Vec<View>) -> Views<'b> {
        room.clear();
        room.extend(self.0[packets].iter_mut().map(|frame| {
            let frame: &mut Frame<'b> = frame.borrow_mut();
            let buffer = frame.buffer_mut().as_mut_ptr_range();
            View { buffer: buffer.start as u64, buffer_end: buffer.end as u64, ..view_of(frame) }
        }));
        room.resize(room.len() + SPARE_VIEWS, View::default());
        (room.as_mut_ptr(), std::ptr::null())
    }

    fn frames(&mut self) -> &mut [F] {
        self.0
    }

    fn frame(&mut self, packet: usize) -> &mut Frame<'b> {
        self.0[packet].borrow_mut()
    }

    fn end_frame(&mut self, _: usize) {}

    #[inline]
    fn end_quick(&mut self, first: usize, views: &[View], ports: &Ports) -> usize {
        let frames = self.0[first..].iter_mut();
        let ends = frames.zip(views).map_while(|(frame, view)| {
            frame.borrow_mut().fate = quick_fate(ports, view.r0, view.redirect)?;
            Some(())
        });
        ends.count()
    }
}
