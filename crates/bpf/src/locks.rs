//! Locks of contexts: where several CPUs run a program at once, a packet holds that of its context from before the lookup
//! to its end.
//!
//! # Layout
//! The map [`LOCKS_MAP`] is a data section of cells, each on a cache line of its own: a u64 that is 1 while the cell is
//! held, and a u64 with the latest time that a holder had, where an element needs it. A table has one cell, or
//! [`CELLS`] of them; the cell of a key is told by [`Locks::cell_of`].

use serde::{Deserialize, Serialize};

/// The map of the locks.
pub const LOCKS_MAP: &str = ".data.fl_locks";
/// How many cells a table has that does not make do with one.
pub const CELLS: u32 = 256;
/// Length of a cell: a cache line.
pub const CELL_BYTES: u32 = 64;
/// Offset of the latest time in a cell.
pub const CELL_TIME: u32 = 8;
/// What each word of a key is multiplied with: 2^64 divided by the golden ratio.
pub const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The locks of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locks {
    /// Where its cells begin in [`LOCKS_MAP`].
    pub offset_bytes: u32,
    /// How many there are: a power of two.
    pub cells: u32,
}

impl Locks {
    /// Length of all its cells.
    pub fn len_bytes(&self) -> u32 {
        self.cells.saturating_mul(CELL_BYTES)
    }

    /// What the mixed key is shifted right by, and then masked with, to give the offset of its cell.
    pub fn shift_and_mask(&self) -> (u32, u32) {
        (64 - self.cells.ilog2() - CELL_BYTES.ilog2(), (self.cells - 1) * CELL_BYTES)
    }

    /// The number of the cell of `key`: its little-endian words of 8 bytes, the last one perhaps of fewer, are each added
    /// by exclusive or and multiplied with [`MIX`]; the uppermost bits are the number.
    pub fn cell_of(&self, key: &[u8]) -> u32 {
        if self.cells <= 1 {
            return 0;
        }
        let mixed = key.chunks(8).fold(0u64, |mixed, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            (mixed ^ u64::from_le_bytes(word)).wrapping_mul(MIX)
        });
        (mixed >> (64 - self.cells.ilog2())) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_have_cells_of_their_own() {
        let locks = Locks { offset_bytes: 0, cells: CELLS };
        assert_eq!((locks.shift_and_mask(), locks.len_bytes()), ((50, 0x3fc0), 16384));
        assert_eq!(Locks { offset_bytes: 0, cells: 1 }.cell_of(&[1; 13]), 0);
        // Addresses of one network, in the last bytes of a mapped address; and ports alone.
        for place in [15usize, 2] {
            let mut taken = [0; CELLS as usize];
            for i in 0..256u32 {
                let mut key = [0; 16];
                key[10..12].fill(0xff);
                key[place] = i as u8;
                taken[locks.cell_of(&key) as usize] += 1;
            }
            let most = taken.iter().max().copied().unwrap_or(0);
            assert!(most <= 8, "{most} keys in one of {CELLS} cells, byte {place}");
        }
    }
}
