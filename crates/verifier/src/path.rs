// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A path that is being walked, and where it continues.

use super::marks::{Marks, Place};
use super::state::State;
use super::trips::Trips;
use super::value::Value;
use flowloom_isa::op::Reg;

/// No checkpoint, no branch.
pub(super) const NONE: u32 = u32::MAX;

/// Where a path continues.
pub(super) enum Next {
    At(usize),
    End,
}

/// A path that is being walked.
#[derive(Debug, Clone)]
pub(super) struct Path {
    pub(super) state: State,
    /// Its last checkpoint.
    pub(super) parent: u32,
    /// The places written since.
    pub(super) written: Marks,
    /// Its last branch.
    pub(super) turn: u32,
    /// The trip counts of the loops that it is in.
    pub(super) trips: Trips,
    /// Instructions and jumps since its last checkpoint.
    pub(super) since: (u32, u32),
    /// The iterations begun of loops that the kernel bounds, not the program.
    pub(super) iterations: u64,
    /// The beginning of the latest ones.
    pub(super) begun: Vec<Begun>,
    /// Whether it returns to a call that begins the next iteration.
    pub(super) is_again: bool,
}

/// The beginning of an iteration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    /// The call, or the `may_goto`.
    pub(super) at: usize,
    /// The checkpoint.
    pub(super) state: u32,
    /// The frame depth.
    pub(super) depth: usize,
}

impl Path {
    /// A path at its start.
    pub(super) fn starting(state: State) -> Path {
        Path {
            state,
            parent: NONE,
            written: Marks::default(),
            turn: NONE,
            trips: Trips::default(),
            since: (0, 0),
            iterations: 0,
            begun: Vec::new(),
            is_again: false,
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.state.depth()
    }

    /// Writes a register of the current frame.
    pub(super) fn set(&mut self, register: Reg, value: Value) {
        let number = usize::from(register.number());
        self.written.add(Place::Register { frame: self.depth(), number });
        self.state.frame_mut().registers[number] = value;
    }

    /// Records a write of a whole register or slot.
    pub(super) fn overwritten(&mut self, place: Place) {
        self.written.add(place);
    }

    /// A function begins in the current frame.
    pub(super) fn entered(&mut self) {
        let frame = self.depth();
        self.written.add_frame(frame);
    }
}
