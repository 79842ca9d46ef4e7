// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The maps that keep their entries when another program replaces the one that runs.
//!
//! A map keeps its entries if a map of the old program has its name, kind, sizes, capacity and flags, and the same
//! layout: parts of keys, states, fields. Where no layout is known, as for the maps of an object, equal sizes have to
//! suffice; except for data sections, whose variables may have moved.

use flowloom_efsm::layout::is_instrument;
use flowloom_exec::{Description, MapDescription};
use flowloom_isa::{BPF_F_RDONLY_PROG, MapDef, MapKind};

/// A map that begins with its initial contents, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emptied {
    /// The map.
    pub map: String,
    /// The reason.
    pub reason: String,
}

/// What becomes of the maps of two programs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transfer {
    /// Pairs of new and old map, by index, whose entries are kept.
    pub kept: Vec<(usize, usize)>,
    /// The maps of the new program that begin with their initial contents.
    pub emptied: Vec<Emptied>,
    /// The maps of the old program that the new one does not have.
    pub removed: Vec<String>,
}

/// Compares the maps of two programs. Constants and counters of rows are neither kept nor listed.
pub fn transfer(new: (&[MapDef], &Description), old: (&[MapDef], &Description)) -> Transfer {
    let is_shown = |def: &MapDef| !is_constant(def) && !is_instrument(&def.name) && !is_buffer(def);
    let mut transfer = Transfer::default();
    for (index, def) in new.0.iter().enumerate().filter(|(_, def)| is_shown(def)) {
        let before = old.0.iter().enumerate().find(|(_, before)| before.name == def.name && is_shown(before));
        match before.map(|(at, before)| (at, difference((def, new.1), (before, old.1)))) {
            Some((at, None)) => transfer.kept.push((index, at)),
            Some((_, Some(reason))) => transfer.emptied.push(Emptied { map: def.name.clone(), reason }),
            None => {
                let reason = "the old program has no map of this name".to_owned();
                transfer.emptied.push(Emptied { map: def.name.clone(), reason });
            }
        }
    }
    let is_gone = |def: &&MapDef| is_shown(def) && !new.0.iter().any(|new| new.name == def.name);
    transfer.removed = old.0.iter().filter(is_gone).map(|def| def.name.clone()).collect();
    transfer
}

fn is_constant(def: &MapDef) -> bool {
    def.flags & BPF_F_RDONLY_PROG != 0 && def.initial.is_some()
}

fn is_buffer(def: &MapDef) -> bool {
    matches!(def.kind, MapKind::RingBuf | MapKind::PerfEventArray)
}

/// Why a map cannot keep its entries.
fn difference(new: (&MapDef, &Description), old: (&MapDef, &Description)) -> Option<String> {
    let ((def, description), (before, described)) = (new, old);
    let kind = |def: &MapDef| def.kind.name().unwrap_or("unknown");
    if def.kind != before.kind {
        return Some(format!("its kind was {}, is {}", kind(before), kind(def)));
    }
    let numbers = [
        ("size of keys", before.key_bytes, def.key_bytes),
        ("size of values", before.value_bytes, def.value_bytes),
        ("capacity", before.max_entries, def.max_entries),
        ("flags", before.flags, def.flags),
    ];
    if let Some((what, was, is)) = numbers.into_iter().find(|(_, was, is)| was != is) {
        return Some(format!("its {what} was {was}, is {is}"));
    }
    if def.spin_lock != before.spin_lock {
        return Some("its lock is in another place".to_owned());
    }
    if matches!(def.kind, MapKind::ProgArray | MapKind::ArrayOfMaps | MapKind::HashOfMaps) {
        return Some("its entries refer to programs or maps of the old program".to_owned());
    }
    match (description.map(&def.name), described.map(&before.name)) {
        (Some(is), Some(was)) => layouts_differ(is, was),
        (None, None) if def.initial.is_some() => {
            Some("it is a data section, whose variables may have moved".to_owned())
        }
        (None, None) => None,
        _ => Some("the layout of its entries is known of one program only".to_owned()),
    }
}

fn layouts_differ(is: &MapDescription, was: &MapDescription) -> Option<String> {
    if is.key != was.key || is.pairs != was.pairs {
        let names = |map: &MapDescription| {
            let names: Vec<&str> = map.key.iter().map(|part| part.name.as_str()).collect();
            if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
        };
        return Some(format!("its key was {}, is {}", names(was), names(is)));
    }
    let states = |map: &MapDescription| map.layout.as_ref().map(|layout| layout.states.clone()).unwrap_or_default();
    if states(is) != states(was) {
        return Some(format!("its states were {}, are {}", states(was).join(", "), states(is).join(", ")));
    }
    let fields = |map: &MapDescription| map.layout.as_ref().map(|layout| layout.fields.clone()).unwrap_or_default();
    let (new, old) = (fields(is), fields(was));
    if new != old {
        let changed = new.iter().find(|field| !old.contains(field)).or(old.iter().find(|field| !new.contains(field)));
        let name = changed.map_or("its order", |field| field.name.as_str());
        return Some(format!("the fields of its values differ: `{name}`"));
    }
    let deadlines = |map: &MapDescription| map.layout.as_ref().map(|layout| layout.deadline_offsets.clone());
    (deadlines(is) != deadlines(was)).then(|| "its timers are in other places".to_owned())
}

#[cfg(test)]
mod tests {
    use flowloom_context::{ContextLayout, LayoutField};

    use super::*;

    fn def(name: &str, kind: MapKind) -> MapDef {
        MapDef { name: name.to_owned(), kind, key_bytes: 4, value_bytes: 8, max_entries: 100, ..MapDef::default() }
    }

    fn described(name: &str, states: &[&str]) -> Description {
        let fields = vec![LayoutField { name: "n".to_owned(), offset_bytes: 0, size_bytes: 8, signed: false }];
        let states = states.iter().map(|state| (*state).to_owned()).collect();
        let layout = Some(ContextLayout { states, fields, ..ContextLayout::default() });
        let map = MapDescription { name: name.to_owned(), layout, ..MapDescription::default() };
        Description::new("f", "f", vec![map])
    }

    #[test]
    fn only_maps_with_the_same_layout_keep_their_entries() {
        let plain = Description::default();
        let old = [
            def("same", MapKind::Hash),
            def("larger", MapKind::Hash),
            def("gone", MapKind::Array),
            def("kind", MapKind::Hash),
            def("table", MapKind::Hash),
            MapDef { initial: Some(vec![0; 8]), ..def(".bss", MapKind::Array) },
            def("programs", MapKind::ProgArray),
        ];
        let new = [
            def("new", MapKind::Hash),
            def("kind", MapKind::LruHash),
            MapDef { max_entries: 200, ..def("larger", MapKind::Hash) },
            def("same", MapKind::Hash),
            def("table", MapKind::Hash),
            MapDef { initial: Some(vec![0; 8]), ..def(".bss", MapKind::Array) },
            def("programs", MapKind::ProgArray),
        ];
        let found = transfer((&new, &plain), (&old, &plain));
        assert_eq!((&found.kept, &found.removed), (&vec![(3, 0), (4, 4)], &vec!["gone".to_owned()]));
        let reasons: Vec<(&str, &str)> = found.emptied.iter().map(|e| (e.map.as_str(), e.reason.as_str())).collect();
        assert_eq!(
            reasons,
            [
                ("new", "the old program has no map of this name"),
                ("kind", "its kind was hash, is lru_hash"),
                ("larger", "its capacity was 100, is 200"),
                (".bss", "it is a data section, whose variables may have moved"),
                ("programs", "its entries refer to programs or maps of the old program"),
            ]
        );
        let kept = |new: &Description, old: &Description| {
            let maps = [def("table", MapKind::Hash)];
            transfer((&maps, new), (&maps, old)).emptied.pop().map(|emptied| emptied.reason)
        };
        let two = described("table", &["a", "b"]);
        assert_eq!(kept(&two, &two), None);
        assert_eq!(kept(&described("table", &["b", "a"]), &two).as_deref(), Some("its states were a, b, are b, a"));
        assert_eq!(kept(&two, &plain).as_deref(), Some("the layout of its entries is known of one program only"));
    }
}
