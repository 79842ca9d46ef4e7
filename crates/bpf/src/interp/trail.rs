//! What decided the way that a packet took: for those who look for packets and states that lead elsewhere.

/// At most so many branches and so many lookups of a packet are written down; a loop that runs longer repeats itself.
const MOST: usize = 4096;

/// The decisions behind one packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail {
    /// Conditional jumps, in the order in which they were run.
    pub branches: Vec<Branch>,
    /// Lookups in maps by key, in the order in which they were asked for.
    pub lookups: Vec<Lookup>,
}

/// A conditional jump that was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// The slot of the instruction.
    pub insn: usize,
    /// What it compared: 32-bit jumps compare the lower halves, and only those are here.
    pub operands: (u64, u64),
    /// Whether it jumped.
    pub taken: bool,
}

/// A lookup in a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The map's index in [`crate::Program::maps`].
    pub map: usize,
    /// The key that was asked for.
    pub key: Vec<u8>,
    /// Whether there was an entry.
    pub found: bool,
}

impl Trail {
    pub(super) fn clear(&mut self) {
        self.branches.clear();
        self.lookups.clear();
    }

    pub(super) fn branch(&mut self, branch: Branch) {
        if self.branches.len() < MOST {
            self.branches.push(branch);
        }
    }

    pub(super) fn lookup(&mut self, map: usize, key: &[u8], found: bool) {
        if self.lookups.len() < MOST {
            self.lookups.push(Lookup { map, key: key.to_vec(), found });
        }
    }
}
