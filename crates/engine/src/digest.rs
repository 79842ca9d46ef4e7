// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Digests of states.

use std::hash::{DefaultHasher, Hasher};

/// A number that tells states apart, in place of their contents: equal states have equal digests, and different ones
/// different digests, but for one pair in 2^64.
///
/// The order of entries has no influence, nor have entries of arrays that are all zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest {
    sum: u64,
    /// The number of entries that it includes.
    pub entries: usize,
}

impl Digest {
    /// Includes an entry of a map.
    pub fn add(&mut self, map: &str, key: &[u8], value: &[u8]) {
        // Keyed with zeros: the same for all engines.
        let mut hasher = DefaultHasher::new();
        for part in [map.as_bytes(), key, value] {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        self.sum = self.sum.wrapping_add(hasher.finish());
        self.entries += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, &[u8], &[u8])]) -> Digest {
        let mut digest = Digest::default();
        entries.iter().for_each(|(map, key, value)| digest.add(map, key, value));
        digest
    }

    #[test]
    fn digests_depend_on_every_part_and_not_on_the_order() {
        let entries: [(&str, &[u8], &[u8]); 3] = [("a", &[1], &[2, 3]), ("a", &[2], &[2, 3]), ("b", &[1], &[2, 3])];
        let all = of(&entries);
        assert_eq!(all.entries, 3);
        assert_eq!(all, of(&[entries[2], entries[0], entries[1]]));
        for at in 0..3 {
            for changed in
                [("c", entries[at].1, entries[at].2), (entries[at].0, &[1, 2], &[3]), (entries[at].0, &[1], &[2, 4])]
            {
                let mut others = entries;
                others[at] = changed;
                assert_ne!(all, of(&others), "{others:?}");
            }
        }
    }
}
