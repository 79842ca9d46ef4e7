// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers of a context.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Most functions have no more registers. They are in place, so that a packet that finds a context has them at hand.
const IN_PLACE: usize = 4;

/// The registers of a context in declared order, as their low bits: a slice that owns its values.
#[derive(Clone)]
pub struct Registers(Values);

#[derive(Clone)]
enum Values {
    InPlace(u8, [u128; IN_PLACE]),
    Boxed(Box<[u128]>),
}

impl FromIterator<u128> for Registers {
    fn from_iter<I: IntoIterator<Item = u128>>(values: I) -> Registers {
        let mut values = values.into_iter();
        let mut first = [0; IN_PLACE];
        for len in 0..IN_PLACE {
            match values.next() {
                Some(value) => first[len] = value,
                None => return Registers(Values::InPlace(len as u8, first)),
            }
        }
        match values.next() {
            None => Registers(Values::InPlace(IN_PLACE as u8, first)),
            Some(next) => Registers(Values::Boxed(first.into_iter().chain([next]).chain(values).collect())),
        }
    }
}

impl Registers {
    /// Copies other registers of the same element, which are as many.
    ///
    /// # Panics
    /// They are of another element.
    pub(crate) fn copy_from(&mut self, source: &Registers) {
        match (&mut self.0, &source.0) {
            (Values::InPlace(_, to), Values::InPlace(_, from)) => *to = *from,
            _ => self.copy_from_slice(source),
        }
    }
}

impl Deref for Registers {
    type Target = [u128];

    fn deref(&self) -> &[u128] {
        match &self.0 {
            Values::InPlace(len, values) => &values[..usize::from(*len)],
            Values::Boxed(values) => values,
        }
    }
}

impl DerefMut for Registers {
    fn deref_mut(&mut self) -> &mut [u128] {
        match &mut self.0 {
            Values::InPlace(len, values) => &mut values[..usize::from(*len)],
            Values::Boxed(values) => values,
        }
    }
}

impl PartialEq for Registers {
    fn eq(&self, other: &Registers) -> bool {
        **self == **other
    }
}

impl Eq for Registers {}

impl fmt::Debug for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_registers_is_kept() {
        for count in 0..10_u128 {
            let mut registers: Registers = (1..=count).collect();
            let expected: Vec<u128> = (1..=count).collect();
            assert_eq!((&*registers, format!("{registers:?}")), (&expected[..], format!("{expected:?}")));
            assert_eq!(registers, registers.clone());
            let other: Registers = (1..=count).map(|value| value << 100).collect();
            assert_eq!(registers == other, count == 0);
            registers.copy_from(&other);
            assert_eq!(registers, other);
            if let Some(last) = registers.last_mut() {
                *last = 7;
                assert_eq!((registers[registers.len() - 1], registers == other), (7, false));
            }
        }
    }
}
