// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One state from the states of several cores, and the other way round.

use std::collections::BTreeMap;

use flowloom_efsm::layout::SEEN_ENTRIES;
use flowloom_engine::{MapState, Snapshot};
use flowloom_plan::{Operator, Update};

use crate::hash::core_of;
use crate::split::{Owner, Share, Split};
use crate::spread::Spread;

impl Split {
    /// The core that has the entry with this key.
    pub(crate) fn core_of_key(&self, owner: &Owner, key: &[u8], cores: usize) -> usize {
        let hash = match (owner, &self.spread) {
            (Owner::Fields(places), Spread::Fields(fields)) => fields.hash_of_key(|field| {
                let place = places.iter().find(|(own, ..)| *own == field);
                let bytes = place.and_then(|(_, at, len)| key.get(*at..at + len)).unwrap_or_default();
                bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
            }),
            (Owner::Key(places), Spread::Key(slice)) => {
                slice.hash_of_key(|at| places.get(at).and_then(|place| key.get(*place)).copied().unwrap_or_default())
            }
            _ => 0,
        };
        core_of(hash, cores)
    }

    /// The states of the cores for one state.
    pub(crate) fn divided(&self, state: &Snapshot, cores: usize) -> Vec<Snapshot> {
        let mut divided: Vec<Snapshot> =
            (0..cores).map(|_| Snapshot { maps: BTreeMap::new(), per_cpu: state.per_cpu.clone() }).collect();
        for (name, entries) in &state.maps {
            let owner = self.shares.get(name).and_then(Share::owner);
            let mut parts = vec![MapState::new(); cores];
            for (key, value) in entries {
                match owner {
                    Some(owner) => {
                        parts[self.core_of_key(owner, key, cores)].insert(key.clone(), value.clone());
                    }
                    None => parts.iter_mut().for_each(|part| {
                        part.insert(key.clone(), value.clone());
                    }),
                }
            }
            for (core, part) in divided.iter_mut().zip(parts) {
                core.maps.insert(name.clone(), part);
            }
        }
        divided
    }

    /// The state of all cores together; `base` is the state that they all began with, of maps that are summed,
    /// `initial` that of a core without packets.
    ///
    /// # Errors
    /// A core has an entry that is another's: map, key, and the numbers of both.
    pub(crate) fn merged(
        &self,
        states: Vec<Snapshot>,
        base: &Snapshot,
        initial: &Snapshot,
    ) -> Result<Snapshot, String> {
        let cores = states.len();
        let (mut merged, mut unlisted) = (Snapshot::default(), Vec::new());
        for (core, state) in states.into_iter().enumerate() {
            merged.per_cpu.extend(state.per_cpu);
            for (name, entries) in state.maps {
                let whole = merged.maps.entry(name.clone()).or_default();
                match self.shares.get(&name) {
                    Some(Share::Sums(updates)) => {
                        let keys = add(whole, entries, base.maps.get(&name), updates);
                        unlisted.extend(keys.into_iter().map(|key| (name.clone(), key)));
                    }
                    Some(share @ (Share::Split(owner) | Share::SplitWithoutLimit(owner))) => {
                        // Arrays have all entries on each core.
                        let initial = initial.maps.get(&name);
                        let is_untouched = |key: &[u8], value: &[u8]| {
                            initial.and_then(|all| all.get(key)).is_some_and(|own| own == value)
                        };
                        for (key, value) in entries {
                            let own = self.core_of_key(owner, &key, cores);
                            if own == core {
                                whole.insert(key, value);
                            } else if matches!(share, Share::Split(_)) && !is_untouched(&key, &value) {
                                return Err(format!(
                                    "core {core} has the entry {key:02x?} of `{name}`, which is core {own}'s"
                                ));
                            }
                        }
                        if matches!(share, Share::SplitWithoutLimit(_)) {
                            while whole.len() > SEEN_ENTRIES as usize {
                                whole.pop_last();
                            }
                        }
                    }
                    Some(Share::Constant | Share::Records) | None => {
                        for (key, value) in entries {
                            whole.entry(key).or_insert(value);
                        }
                    }
                }
            }
        }
        for (name, key) in unlisted {
            if let Some(whole) = merged.maps.get_mut(&name)
                && whole.get(&key).is_some_and(|value| value.iter().all(|byte| *byte == 0))
            {
                whole.remove(&key);
            }
        }
        Ok(merged)
    }
}

/// Adds what a core has done to the values of a map; returns the keys of values that the core does not list, which are
/// zeros of a large array.
fn add(whole: &mut MapState, mut entries: MapState, base: Option<&MapState>, updates: &[Update]) -> Vec<Vec<u8>> {
    let mut unlisted = Vec::new();
    for (key, value) in base.into_iter().flatten() {
        entries.entry(key.clone()).or_insert_with(|| {
            unlisted.push(key.clone());
            vec![0; value.len()]
        });
    }
    for (key, value) in entries {
        let zeros = vec![0; value.len()];
        let base = base.and_then(|base| base.get(&key)).unwrap_or(&zeros);
        let whole = whole.entry(key).or_insert_with(|| base.clone());
        add_value(whole, &value, base, updates);
    }
    unlisted
}

/// Adds what a core has done to a value: it was `base`, and is `own`.
pub(crate) fn add_value(whole: &mut [u8], own: &[u8], base: &[u8], updates: &[Update]) {
    // Updates of bits may overlap; each byte is combined once.
    let mut is_done = vec![false; own.len()];
    for update in updates {
        // An update at an unknown offset is one of bits, which may be any of the value.
        let range = match update.offset {
            Some(at) => at as usize..(at + update.bytes) as usize,
            None => 0..own.len(),
        };
        if range.end > own.len() {
            continue;
        }
        // Sums that overlap are those of the same word, since others do not commute.
        let parts: Vec<_> = match update.operator {
            Operator::Add => vec![range],
            Operator::Or | Operator::And | Operator::Xor => range.map(|at| at..at + 1).collect(),
        };
        for part in parts.into_iter().filter(|part| part.start < part.end) {
            if !is_done[part.start] {
                is_done[part.clone()].fill(true);
                combine(&mut whole[part.clone()], &own[part.clone()], &base[part], update.operator);
            }
        }
    }
}

/// Combines a word of the whole with that of a core, little endian.
fn combine(whole: &mut [u8], own: &[u8], base: &[u8], operator: Operator) {
    let mut carry = 0_i16;
    for (at, whole) in whole.iter_mut().enumerate() {
        let (own, base) = (own[at], base[at]);
        *whole = match operator {
            Operator::Or => *whole | own,
            Operator::And => *whole & own,
            Operator::Xor => *whole ^ own ^ base,
            Operator::Add => {
                let sum = i16::from(*whole) + i16::from(own) - i16::from(base) + carry;
                carry = sum.div_euclid(256);
                sum.rem_euclid(256) as u8
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_cores_are_combined_exactly() {
        let combined = |operator, base: u32, own: [u32; 2]| {
            let mut whole = base.to_le_bytes();
            own.iter().for_each(|own| combine(&mut whole, &own.to_le_bytes(), &base.to_le_bytes(), operator));
            u32::from_le_bytes(whole)
        };
        for (base, a, b) in [(0_u32, 1, 2), (250, 300, 7), (u32::MAX, 5, u32::MAX - 3), (1 << 31, 1 << 31, 3)] {
            let own = [base.wrapping_add(a), base.wrapping_sub(b)];
            assert_eq!(combined(Operator::Add, base, own), base.wrapping_add(a).wrapping_sub(b), "{base} {a} {b}");
            assert_eq!(combined(Operator::Or, base, [base | a, base | b]), base | a | b);
            assert_eq!(combined(Operator::And, base, [base & a, base & b]), base & a & b);
            assert_eq!(combined(Operator::Xor, base, [base ^ a, base ^ b]), base ^ a ^ b);
        }
    }

    /// The state that two cores make of one value.
    fn merged(base: &[u8], own: [Option<&[u8]>; 2], updates: &[Update]) -> MapState {
        let state =
            |value: Option<&[u8]>| value.map(|value| (vec![7], value.to_vec())).into_iter().collect::<MapState>();
        let (mut whole, base) = (MapState::new(), state(Some(base)));
        own.into_iter().for_each(|own| _ = add(&mut whole, state(own), Some(&base), updates));
        whole
    }

    #[test]
    fn updates_that_overlap_are_combined_once() {
        let update = |offset, bytes| Update { operator: Operator::Xor, offset, bytes };
        for updates in [[update(Some(0), 8), update(Some(4), 4)], [update(Some(4), 4), update(None, 4)]] {
            let whole = merged(&[1; 8], [Some(&[1, 1, 1, 1, 3, 1, 1, 1]), Some(&[1, 1, 1, 1, 5, 1, 1, 0])], &updates);
            assert_eq!(whole[&vec![7]], [1, 1, 1, 1, 7, 1, 1, 0]);
        }
    }

    #[test]
    fn a_value_that_a_core_does_not_list_is_zero() {
        let updates = [Update { operator: Operator::Add, offset: Some(0), bytes: 1 }];
        assert_eq!(merged(&[5], [None, Some(&[8])], &updates)[&vec![7]], [3]);
        assert_eq!(merged(&[5], [Some(&[8]), None], &updates)[&vec![7]], [3]);
    }
}
