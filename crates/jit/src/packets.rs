// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of a batch, as the loops of machine code see them, and as frames.

use std::borrow::BorrowMut;
use std::ops::Range;

use flowloom_engine::{Fate, Frame};

use crate::pipeline::SPARE_VIEWS;
use crate::state::View;

/// The packets of a batch.
pub(crate) trait Packets<'b> {
    type Frame: BorrowMut<Frame<'b>>;

    /// The number of packets.
    fn count(&self) -> usize;

    /// The views of packets, and after them [`SPARE_VIEWS`] that belong to none, whose addresses are prefetched. They
    /// stay where they are until this is called again.
    fn views(&mut self, packets: Range<usize>, room: &mut Vec<View>) -> *mut View;

    /// The frames of all packets, which are run in place of their views.
    fn frames(&mut self) -> &mut [Self::Frame];

    /// The frame of a packet that runs or has run in a loop.
    fn frame(&mut self, packet: usize) -> &mut Frame<'b>;

    /// Ends a packet with the fate of its frame ([`Packets::frame`]).
    fn end_frame(&mut self, packet: usize);

    /// Ends a packet that ran in a loop.
    fn end(&mut self, packet: usize, fate: Fate);
}

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
    fn views(&mut self, packets: Range<usize>, room: &mut Vec<View>) -> *mut View {
        room.clear();
        room.extend(self.0[packets].iter_mut().map(|frame| {
            let frame: &mut Frame<'b> = frame.borrow_mut();
            let buffer = frame.buffer_mut().as_mut_ptr_range();
            View { buffer: buffer.start as u64, buffer_end: buffer.end as u64, ..view_of(frame) }
        }));
        room.resize(room.len() + SPARE_VIEWS, View::default());
        room.as_mut_ptr()
    }

    fn frames(&mut self) -> &mut [F] {
        self.0
    }

    fn frame(&mut self, packet: usize) -> &mut Frame<'b> {
        self.0[packet].borrow_mut()
    }

    fn end_frame(&mut self, _: usize) {}

    #[inline]
    fn end(&mut self, packet: usize, fate: Fate) {
        self.0[packet].borrow_mut().fate = fate;
    }
}
