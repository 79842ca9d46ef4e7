//! Bytes that differ from engine to engine although each is right: stack that the program never wrote, addresses of the kernel.
//!
//! The proof of a program names the records, values and packets that such bytes reach, and where in them they lie. They are left out
//! of comparisons, and named beside the result as what the program does wrong: a difference in them says nothing about an engine.

use std::collections::BTreeMap;

use flowloom_engine::{Outcome, Snapshot};
use flowloom_isa::Program;
use flowloom_verifier::{MapId, Options, Sink, verify};

use crate::difference::{Kind, outcome_kind};

/// Which bytes are left out, from the first to the one before the last of each pair.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Undefined {
    /// By map, of its values.
    values: BTreeMap<String, Vec<(usize, usize)>>,
    /// By map, of the records that went through it.
    events: BTreeMap<String, Vec<(usize, usize)>>,
    /// In words, with the instruction.
    causes: Vec<(usize, String)>,
}

impl Undefined {
    /// What the proof of a program says; nothing, where it has none.
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
                // A key decides what is found, and bytes of a packet lie anywhere: nothing can be left out.
                Sink::Key(_) | Sink::Packet => continue,
            };
            if let (Some(map), Ok(first), Ok(end)) = (map, usize::try_from(first), usize::try_from(end)) {
                list.entry(map).or_default().push((first, end));
            }
        }
        undefined
    }

    /// In words, each place where such bytes leave the program, with its instruction.
    pub fn causes(&self) -> &[(usize, String)] {
        &self.causes
    }

    /// What differs first between two outcomes, in bytes that are defined.
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
