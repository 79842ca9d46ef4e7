// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Legacy map definitions: sections `maps` and `maps/…` of structures without types.
//!
//! | bytes | structure | fields after the first five |
//! | --- | --- | --- |
//! | 16 | that of the first samples | (no flags) |
//! | 20 | libbpf's `struct bpf_map_def` | |
//! | 28 | that of the kernel's old samples, or aya's | `inner_map_idx`, `numa_node`, or `id`, `pinning` |
//! | 36 | iproute2's `struct bpf_elf_map` | `id`, `pinning`, `inner_id`, `inner_idx` |
//!
//! The first five are type, key size, value size, number of entries and flags. The size of a definition is that of its
//! symbol or, if the symbol has none, extends to the next one. Of other sizes the five numbers are read: some loaders
//! have structures of their own (`pinning` and a namespace, 280 bytes), and a note says what is ignored.

use super::entries::complete;
use crate::container::{Container, Place, SectionKind, SymbolKind};
use crate::error::ReadFault;
use crate::{bytes_of, names};
use flowloom_isa::{MapDef, MapKind, Member};

/// The shortest, without flags.
const FIRST: usize = 16;
/// The five numbers that all later ones have.
const PLAIN: usize = 20;
/// With two more.
const WITH_INNER: usize = 28;
/// iproute2's.
const IPROUTE2: usize = 36;

/// A definition and its place.
pub(super) struct Legacy {
    pub(super) section: usize,
    pub(super) offset: u64,
    pub(super) def: MapDef,
    pub(super) notes: Vec<String>,
    /// The id under which sections put programs into it, for iproute2's.
    pub(super) id: Option<u32>,
}

/// A definition before it is resolved against the others.
struct Raw<'a> {
    name: &'a str,
    section: usize,
    offset: u64,
    words: Vec<u32>,
    /// Whether the bytes after the known fields are not zero.
    has_more: bool,
}

/// Whether symbols of this kind may name definitions; those of old compilers have no type.
fn is_definition(kind: SymbolKind) -> bool {
    matches!(kind, SymbolKind::Untyped | SymbolKind::Other)
}

impl Raw<'_> {
    fn word(&self, index: usize) -> u32 {
        self.words.get(index).copied().unwrap_or(0)
    }

    fn is_iproute2(&self) -> bool {
        self.words.len() * 4 == IPROUTE2
    }
}

/// All definitions, by section and offset. `first` is the index of the first one.
pub(super) fn read(container: &Container<'_>, first: usize) -> Result<Vec<Legacy>, ReadFault> {
    let mut raw = Vec::new();
    for (number, section) in container.sections.iter().enumerate() {
        let is_legacy = section.name == names::LEGACY_MAPS || section.name.starts_with("maps/");
        if is_legacy && section.kind == SectionKind::Bytes {
            definitions(container, number, &mut raw)?;
        }
    }
    let mut out = Vec::with_capacity(raw.len());
    for one in &raw {
        out.push(legacy(one, &raw, first)?);
    }
    Ok(out)
}

fn definitions<'a>(container: &Container<'a>, number: usize, out: &mut Vec<Raw<'a>>) -> Result<(), ReadFault> {
    let section = &container.sections[number];
    let mut places: Vec<(u64, &str, u64)> = container
        .symbols
        .iter()
        .filter(|s| s.place == Place::Section(number) && is_definition(s.kind) && !s.name.is_empty())
        .map(|s| (s.value, s.name, s.len))
        .collect();
    places.sort_unstable();
    for (index, (offset, name, len)) in places.iter().enumerate() {
        let fail =
            |why: String| Err(ReadFault::Definition { map: (*name).to_owned(), what: "its place".to_owned(), why });
        let end = places.get(index + 1).map_or(section.len, |(next, ..)| *next);
        // The symbol has the size without padding.
        let end = if *len >= FIRST as u64 { end.min(offset.saturating_add(*len)) } else { end };
        let bytes = usize::try_from(*offset).ok().zip(usize::try_from(end).ok());
        let Some(bytes) = bytes.and_then(|(from, to)| section.bytes.get(from..to)) else {
            return fail(format!("byte {offset} of section `{}`, which has {}", section.name, section.len));
        };
        let (words, rest) = bytes.as_chunks::<4>();
        if bytes.len() < FIRST || !rest.is_empty() {
            return fail(format!("it takes {}, expected 16, 20, 28 or 36", bytes_of(bytes.len() as u64)));
        }
        let mut words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let is_known = matches!(bytes.len(), FIRST | PLAIN | WITH_INNER | IPROUTE2);
        let has_more = !is_known && words[5..].iter().any(|word| *word != 0);
        if !is_known {
            words.truncate(5);
        }
        out.push(Raw { name, section: number, offset: *offset, words, has_more });
    }
    Ok(())
}

fn legacy(raw: &Raw<'_>, all: &[Raw<'_>], first: usize) -> Result<Legacy, ReadFault> {
    let mut def = plain(raw);
    let mut notes: Vec<String> = complete(&mut def).into_iter().collect();
    let fail =
        |what: &str, why: String| Err(ReadFault::Definition { map: raw.name.to_owned(), what: what.to_owned(), why });
    if def.kind.is_of_maps() {
        let inner = if raw.is_iproute2() {
            let wanted = raw.word(7);
            match all.iter().find(|other| other.is_iproute2() && other.word(5) == wanted && wanted != 0) {
                Some(inner) => Some(inner),
                None => return fail("inner_id", format!("no map of the object has number {wanted}")),
            }
        } else if raw.words.len() * 4 == WITH_INNER {
            match all.get(raw.word(5) as usize) {
                Some(inner) => Some(inner),
                None => return fail("inner_map_idx", format!("it is {}, there are {} maps", raw.word(5), all.len())),
            }
        } else {
            None
        };
        if let Some(inner) = inner {
            let mut inner = plain(inner);
            // Notes about it belong to its own definition.
            let _ = complete(&mut inner);
            if inner.kind.is_of_maps() {
                return fail("inner map", format!("`{}` is a map of maps itself", inner.name));
            }
            def.inner = Some(Box::new(inner));
        }
        if raw.is_iproute2() {
            let put = all.iter().enumerate().filter(|(_, m)| m.is_iproute2() && m.word(5) == raw.word(7));
            // A map without a place of its own is a template.
            let put = put.filter(|(_, m)| m.word(8) != u32::MAX && m.name != raw.name);
            def.members = put.map(|(index, m)| (m.word(8), Member::Map(first + index))).collect();
        }
    } else if raw.words.len() > 5 && raw.words[5..].iter().any(|word| *word != 0) && !raw.is_iproute2() {
        notes.push(format!("map `{}` has further fields (`id`, `pinning`), which are left to the loader", raw.name));
    }
    if raw.is_iproute2() && raw.word(6) != 0 {
        notes.push(format!("map `{}` asks to be pinned, which is left to the loader", raw.name));
    }
    if raw.has_more {
        notes.push(format!(
            "map `{}`: of its definition the first 20 bytes are read, the rest is specific to a loader",
            raw.name
        ));
    }
    let id = (raw.is_iproute2() && raw.word(5) != 0).then(|| raw.word(5));
    Ok(Legacy { section: raw.section, offset: raw.offset, def, notes, id })
}

fn plain(raw: &Raw<'_>) -> MapDef {
    MapDef {
        name: raw.name.to_owned(),
        kind: MapKind::from_number(raw.word(0)),
        key_bytes: raw.word(1),
        value_bytes: raw.word(2),
        max_entries: raw.word(3),
        flags: raw.word(4),
        ..MapDef::default()
    }
}
