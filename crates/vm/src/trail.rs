// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decisions that determined a packet's path: for the search for packets and states that lead elsewhere.

/// The most branches, and the most lookups, recorded for a packet; a loop that runs longer repeats itself.
const MAX_LENGTH: usize = 4096;

/// The decisions of a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail {
    /// Conditional jumps in the order of execution.
    pub branches: Vec<Branch>,
    /// Lookups in maps by key, in the order of execution.
    pub lookups: Vec<Lookup>,
    /// Maps and keys of updates and deletions, in the order of execution.
    pub changes: Vec<(usize, Vec<u8>)>,
}

/// An executed conditional jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// The slot of the instruction.
    pub insn: usize,
    /// The operands; for 32-bit jumps the low halves.
    pub operands: (u64, u64),
    /// Whether it was taken.
    pub taken: bool,
}

/// A lookup in a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The index of the map in [`flowloom_isa::Program::maps`].
    pub map: usize,
    /// The key.
    pub key: Vec<u8>,
    /// Whether an entry was found.
    pub found: bool,
}

impl Trail {
    pub(super) fn clear(&mut self) {
        self.branches.clear();
        self.lookups.clear();
        self.changes.clear();
    }

    pub(super) fn branch(&mut self, branch: Branch) {
        if self.branches.len() < MAX_LENGTH {
            self.branches.push(branch);
        }
    }

    pub(super) fn change(&mut self, map: usize, key: &[u8]) {
        if self.changes.len() < MAX_LENGTH {
            self.changes.push((map, key.to_vec()));
        }
    }

    pub(super) fn lookup(&mut self, map: usize, key: &[u8], found: bool) {
        if self.lookups.len() < MAX_LENGTH {
            self.lookups.push(Lookup { map, key: key.to_vec(), found });
        }
    }
}
