// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks of contexts: if several CPUs run a program concurrently, a packet holds the lock of its context from before
//! the lookup to the end of the program.
//!
//! # Layout
//! The map [`LOCKS_MAP`] is a data section of cells, each on a cache line of its own: a u64 that is 1 while the cell is
//! held, and a u64 with the latest time that a holder had, if the element needs it. A table has one cell, or [`CELLS`]
//! of them; [`Locks::cell_of`] maps a key to its cell.

use serde::{Deserialize, Serialize};

/// The name of the map of locks.
pub const LOCKS_MAP: &str = ".data.fl_locks";
/// The number of cells of a table that has more than one.
pub const CELLS: u32 = 256;
/// The size of a cell in bytes: a cache line.
pub const CELL_BYTES: u32 = 64;
/// The offset of the latest time in a cell.
pub const CELL_TIME: u32 = 8;
/// The multiplier for each word of a key: 2^64 divided by the golden ratio.
pub const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The locks of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locks {
    /// The offset of its cells in [`LOCKS_MAP`].
    pub offset_bytes: u32,
    /// The number of cells: a power of two.
    pub cells: u32,
}

impl Locks {
    /// The size of all its cells in bytes.
    pub fn len_bytes(&self) -> u32 {
        self.cells.saturating_mul(CELL_BYTES)
    }

    /// The right shift and the mask that turn the mixed key into the offset of its cell.
    pub fn shift_and_mask(&self) -> (u32, u32) {
        (64 - self.cells.ilog2() - CELL_BYTES.ilog2(), (self.cells - 1) * CELL_BYTES)
    }

    /// The index of the cell of `key`: its little-endian words of 8 bytes, the last one perhaps shorter, are combined
    /// by XOR and multiplication with [`MIX`]; the high bits are the index.
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
