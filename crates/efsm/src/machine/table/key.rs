// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys that are stored in place.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// The longest key in place. The key of a connection has 40 bytes.
const IN_PLACE_BYTES: usize = 46;

/// The bytes of a key; equal to and ordered as their slice. Short ones are in place, so that a lookup that finds the
/// entry of a hash table has its key at hand.
#[derive(Debug, Clone)]
pub(in crate::machine) enum KeyBytes {
    InPlace(u8, [u8; IN_PLACE_BYTES]),
    Boxed(Box<[u8]>),
}

impl From<&[u8]> for KeyBytes {
    fn from(key: &[u8]) -> KeyBytes {
        let mut bytes = [0; IN_PLACE_BYTES];
        match bytes.get_mut(..key.len()) {
            Some(place) => {
                place.copy_from_slice(key);
                KeyBytes::InPlace(key.len() as u8, bytes)
            }
            None => KeyBytes::Boxed(key.into()),
        }
    }
}

impl AsRef<[u8]> for KeyBytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            KeyBytes::InPlace(len, bytes) => &bytes[..usize::from(*len)],
            KeyBytes::Boxed(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for KeyBytes {
    fn borrow(&self) -> &[u8] {
        self.as_ref()
    }
}

impl PartialEq for KeyBytes {
    fn eq(&self, other: &KeyBytes) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for KeyBytes {}

impl PartialOrd for KeyBytes {
    fn partial_cmp(&self, other: &KeyBytes) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyBytes {
    fn cmp(&self, other: &KeyBytes) -> Ordering {
        self.as_ref().cmp(other.as_ref())
    }
}

impl Hash for KeyBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn keys_equal_and_are_ordered_as_their_slices() {
        // Lengths on both sides of the limit, with zeros at the end that must not be lost.
        let slices: Vec<Vec<u8>> =
            [0, 1, 4, 40, 45, 46, 47, 80].into_iter().flat_map(|len| [vec![0; len], vec![7; len]]).collect();
        let table: HashMap<KeyBytes, usize> =
            slices.iter().enumerate().map(|(i, slice)| (KeyBytes::from(&slice[..]), i)).collect();
        for a in &slices {
            assert_eq!(slices.get(table[&a[..]]), Some(a));
            for b in &slices {
                let (left, right) = (KeyBytes::from(&a[..]), KeyBytes::from(&b[..]));
                assert_eq!((left.cmp(&right), left == right), (a.cmp(b), a == b), "{a:?} {b:?}");
            }
        }
    }
}
