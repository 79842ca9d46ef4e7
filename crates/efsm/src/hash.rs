// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hash function of the language: lookup3's `hashword` [Jenkins 2006], which the kernel has as `jhash2`.
//!
//! It uses 32-bit additions, XORs and rotations, no multiplication and no tables, so that hardware can compute it.

/// The initial value of the three state words, before the length is added.
const START: u32 = 0xdead_beef;

/// The hash of words, with the seed 0.
pub fn hashword(words: &[u32]) -> u32 {
    lookup3(words, start(words.len()))
}

/// The initial value of each state word for this number of words.
pub fn start(words: usize) -> u32 {
    START.wrapping_add((words as u32) << 2)
}

/// A step on the state `[a, b, c]`, by the indices of the words in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `to -= other; to ^= other <<< by; other += third`: of the mixing function.
    Mix { to: usize, other: usize, third: usize, by: u32 },
    /// `to ^= other; to -= other <<< by`: of the finalization.
    Final { to: usize, other: usize, by: u32 },
}

/// The mixing function, after each block of three words but the last.
pub const MIX: [Step; 6] = {
    const fn mix(to: usize, other: usize, third: usize, by: u32) -> Step {
        Step::Mix { to, other, third, by }
    }
    [mix(0, 2, 1, 4), mix(1, 0, 2, 6), mix(2, 1, 0, 8), mix(0, 2, 1, 16), mix(1, 0, 2, 19), mix(2, 1, 0, 4)]
};

/// The finalization, after the last block.
pub const FINAL: [Step; 7] = {
    const fn last(to: usize, other: usize, by: u32) -> Step {
        Step::Final { to, other, by }
    }
    [last(2, 1, 14), last(0, 2, 11), last(1, 0, 25), last(2, 1, 16), last(0, 2, 4), last(1, 0, 14), last(2, 1, 24)]
};

fn lookup3(words: &[u32], start: u32) -> u32 {
    let mut state = [start; 3];
    let mut blocks = words.chunks(3).peekable();
    while let Some(block) = blocks.next() {
        for (state, word) in state.iter_mut().zip(block) {
            *state = state.wrapping_add(*word);
        }
        let steps: &[Step] = if blocks.peek().is_some() { &MIX } else { &FINAL };
        for step in steps {
            match *step {
                Step::Mix { to, other, third, by } => {
                    state[to] = state[to].wrapping_sub(state[other]) ^ state[other].rotate_left(by);
                    state[other] = state[other].wrapping_add(state[third]);
                }
                Step::Final { to, other, by } => {
                    state[to] = (state[to] ^ state[other]).wrapping_sub(state[other].rotate_left(by));
                }
            }
        }
    }
    state[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_published_values() {
        // lookup3.c, `driver5`: `hashlittle` of bytes, which differs from `hashword` in that its length counts bytes.
        let bytes = |text: &[u8], seed: u32| {
            let words = text.chunks(4).map(|word| {
                let mut bytes = [0; 4];
                bytes[..word.len()].copy_from_slice(word);
                u32::from_le_bytes(bytes)
            });
            lookup3(&words.collect::<Vec<_>>(), START.wrapping_add(text.len() as u32).wrapping_add(seed))
        };
        assert_eq!(bytes(b"", 0), 0xdead_beef);
        assert_eq!(bytes(b"", 0xdead_beef), 0xbd5b_7dde);
        assert_eq!(bytes(b"Four score and seven years ago", 0), 0x1777_0551);
        assert_eq!(bytes(b"Four score and seven years ago", 1), 0xcd62_8161);
        assert_eq!(hashword(&[0x7272_6f66, 0x2079_6164]), bytes(b"forrday ", 0), "a whole number of words");
    }
}
