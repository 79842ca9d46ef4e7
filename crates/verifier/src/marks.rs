// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Liveness of registers and slots along paths: only places that are read before they are written again distinguish two
//! states.
//!
//! ```text
//!   checkpoint P ──writes r1, reads r2──► checkpoint Q ──reads r1 and r3──► end
//!   live at Q: r1 r3          live at P: r2 r3
//! ```
//!
//! A place read after a checkpoint is live there, and at the checkpoints before it back to the write. Liveness is
//! complete once every path from a checkpoint is verified.

use super::state::MAX_FRAMES;

/// A set of registers and slots, by frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Marks {
    registers: [u16; MAX_FRAMES],
    slots: [u64; MAX_FRAMES],
}

/// A register or a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Register { frame: usize, number: usize },
    Slot { frame: usize, number: usize },
}

impl Marks {
    fn bit(place: Place) -> (usize, u64) {
        match place {
            Place::Register { frame, number } | Place::Slot { frame, number } => (frame, 1 << (number & 63)),
        }
    }

    pub(super) fn has(&self, place: Place) -> bool {
        let (frame, bit) = Marks::bit(place);
        match place {
            Place::Register { .. } => self.registers[frame] & bit as u16 != 0,
            Place::Slot { .. } => self.slots[frame] & bit != 0,
        }
    }

    pub(super) fn add(&mut self, place: Place) {
        let (frame, bit) = Marks::bit(place);
        match place {
            Place::Register { .. } => self.registers[frame] |= bit as u16,
            Place::Slot { .. } => self.slots[frame] |= bit,
        }
    }

    /// Adds a whole frame, at the entry of a function.
    pub(super) fn add_frame(&mut self, frame: usize) {
        self.registers[frame] = u16::MAX;
        self.slots[frame] = u64::MAX;
    }

    /// Adds these registers of a frame, and all its slots.
    pub(super) fn add_live(&mut self, frame: usize, registers: u16) {
        self.registers[frame] |= registers;
        self.slots[frame] = u64::MAX;
    }

    /// The places of the set, by frame, registers first.
    pub(super) fn places(&self) -> Places {
        Places { marks: *self, frame: 0 }
    }
}

/// An iterator over a set, which removes each place: this runs at every join point.
pub(super) struct Places {
    marks: Marks,
    frame: usize,
}

impl Iterator for Places {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        while self.frame < MAX_FRAMES {
            let frame = self.frame;
            let (registers, slots) = (&mut self.marks.registers[frame], &mut self.marks.slots[frame]);
            if *registers != 0 {
                let number = registers.trailing_zeros() as usize;
                *registers &= *registers - 1;
                return Some(Place::Register { frame, number });
            }
            if *slots != 0 {
                let number = slots.trailing_zeros() as usize;
                *slots &= *slots - 1;
                return Some(Place::Slot { frame, number });
            }
            self.frame += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back() {
        let mut marks = Marks::default();
        let places = [
            Place::Register { frame: 0, number: 10 },
            Place::Register { frame: 7, number: 0 },
            Place::Slot { frame: 7, number: 63 },
        ];
        places.iter().for_each(|place| marks.add(*place));
        assert_eq!(marks.places().collect::<Vec<_>>(), places);
        assert!(!marks.has(Place::Slot { frame: 0, number: 10 }));
        marks.add_frame(0);
        assert!(marks.has(Place::Slot { frame: 0, number: 10 }));
    }
}
