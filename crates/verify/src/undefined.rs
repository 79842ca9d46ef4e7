// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that may differ between correct engines: stack that the program never wrote, addresses of the kernel.
//!
//! The proof of a program names the records, values and packets that such bytes reach, and their positions. They are
//! excluded from comparisons and reported as a defect of the program: a difference in them says nothing about an
//! engine.

use std::collections::BTreeMap;

use flowloom_engine::{Outcome, Snapshot};
use flowloom_isa::Program;
use flowloom_verifier::{MapId, Options, Sink, verify};

use crate::difference::{Kind, outcome_kind};

/// Excluded bytes; each pair is a half-open range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Undefined {
    /// Ranges in values, by map.
    values: BTreeMap<String, Vec<(usize, usize)>>,
    /// Ranges in records, by map that sent them.
    events: BTreeMap<String, Vec<(usize, usize)>>,
    /// Explanations, with the instruction.
    causes: Vec<(usize, String)>,
}

impl Undefined {
    /// The excluded bytes according to the proof of a program; none where it has no proof.
    pub fn of(program: &Program) -> Undefined {
        let Ok(proof) = verify(program, &Options::default()) else { return Undefined::default() };
        let mut undefined = Undefined { causes: proof.kernel_dependent_text(program), ..Undefined::default() };
        let name = |map: MapId| match map {
            MapId::Of(index) => program.maps.get(index as usize).map(|def| def.name.clone()),
            MapId::In(_) => None,
        };
        for (_, to, _, (first, end)) in proof.kernel_dependent() {
            let (list, map) = match to {
                Sink::Value(map) => (&mut undefined.values, name(map)),
                Sink::Event(map) => (&mut undefined.events, name(map)),
                // A key decides the result of a lookup, and packet bytes have no fixed position: nothing can be
                // excluded.
                Sink::Key(_) | Sink::Packet => continue,
            };
            if let (Some(map), Ok(first), Ok(end)) = (map, usize::try_from(first), usize::try_from(end)) {
                list.entry(map).or_default().push((first, end));
            }
        }
        undefined
    }

    /// Explanation for each place where such bytes leave the program, with its instruction.
    pub fn causes(&self) -> &[(usize, String)] {
        &self.causes
    }

    /// First difference between two outcomes, in bytes that are defined.
    pub(crate) fn outcome_kind(&self, expected: &Outcome, found: &Outcome) -> Option<Kind> {
        let kind = outcome_kind(expected, found);
        if kind != Some(Kind::Events) || self.events.is_empty() {
            return kind;
        }
        let masked = |outcome: &Outcome| {
            let mut events = outcome.events.clone();
            for event in &mut events {
                clear(&mut event.bytes, self.events.get(&event.map));
            }
            events
        };
        (masked(expected) != masked(found)).then_some(Kind::Events)
    }

    /// True if values of maps have bytes that are not compared.
    pub(crate) fn has_values(&self) -> bool {
        !self.values.is_empty()
    }

    /// Clears the bytes of a state that are not compared.
    pub(crate) fn mask(&self, state: &mut Snapshot) {
        for (map, bytes) in &self.values {
            for value in state.maps.get_mut(map).into_iter().flat_map(|entries| entries.values_mut()) {
                clear(value, Some(bytes));
            }
        }
    }
}

fn clear(bytes: &mut [u8], pairs: Option<&Vec<(usize, usize)>>) {
    for (first, end) in pairs.into_iter().flatten() {
        let end = (*end).min(bytes.len());
        if let Some(part) = bytes.get_mut(*first..end) {
            part.fill(0);
        }
    }
}
