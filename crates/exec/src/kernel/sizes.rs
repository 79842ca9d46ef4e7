// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sizes of maps in the kernel, by purpose.
//!
//! | purpose | maps |
//! | --- | --- |
//! | [`MapPurpose::Live`] | as declared |
//! | [`MapPurpose::TestRuns`] | as declared, but large ones that no instruction refers to have one entry; large arrays are memory-mapped, so that a state is read and reset at the speed of memory |
//! | [`MapPurpose::Verdict`] | at most [`KEPT_ENTRIES`] entries |
//!
//! # How the kernel's verifier depends on the number of entries
//! In Linux 6.18's verifier, only these depend on `max_entries`:
//!
//! - direct access to values, of arrays with exactly one entry: a reduced number here is never 1;
//! - a lookup in an array under a constant key below the number of entries needs no null check. A reduced number leaves
//!   fewer such lookups, so what is accepted with it is accepted as declared; what is refused is tried again with
//!   arrays at full size ([`super::load::verify_in_kernel`]);
//! - maps of maps, whose arrays must have the same number of entries: the reduced number is a function of the declared
//!   one, and both template and maps are created with it;
//! - tail calls under constant keys and lookups that are inlined, after the verdict.
//!
//! The sizes of ring buffers, and of maps of ports, programs and maps, are unchanged. What the kernel refuses for its
//! size alone is refused here with the kernel's error ([`refused`]).

use std::collections::BTreeSet;
use std::io;

use flowloom_isa::insn::imm64;
use flowloom_isa::{MapDef, MapKind, Program};

/// `BPF_F_MMAPABLE`, `BPF_F_INNER_MAP` and the flags that keep user space from reading or writing.
const MMAPABLE: u32 = flowloom_isa::BPF_F_MMAPABLE;
const NOT_MAPPED: u32 = 1 << 3 | 1 << 4 | 1 << 12;

/// The entries of a map that only the verifier uses.
pub(crate) const KEPT_ENTRIES: u32 = 1024;
/// Maps whose entries take more than this are large.
const LARGE_BYTES: u64 = 1 << 20;
/// The size of a bucket of a hash table; the kernel computes the size of all buckets in 32 bits [Linux
/// kernel/bpf/hashtab.c].
const BUCKET_BYTES: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapPurpose {
    /// Packets of interfaces.
    Live,
    TestRuns,
    /// A verdict of the verifier.
    Verdict {
        /// True if arrays have their declared size.
        arrays: bool,
    },
}

/// True if the entries are plain values that take much memory.
pub(crate) fn is_large(def: &MapDef) -> bool {
    let entry = u64::from(def.key_bytes) + u64::from(def.value_bytes).next_multiple_of(8);
    def.kind.has_values() && entry * u64::from(def.max_entries) > LARGE_BYTES
}

/// The indices of the maps that `program`, or the targets of its tail calls, may access.
fn referenced(program: &Program) -> BTreeSet<usize> {
    let siblings = program.siblings.iter().map(|sibling| &sibling.insns);
    let mut found = BTreeSet::new();
    for insns in std::iter::once(&program.insns).chain(siblings) {
        let mut at = 0;
        while let Some(insn) = insns.get(at) {
            if insn.is_wide() && matches!(insn.src, imm64::MAP | imm64::MAP_VALUE) {
                found.extend(usize::try_from(insn.imm).ok());
            }
            at += insn.slots();
        }
    }
    // A state may put any matching map into a map of maps.
    let inner: Vec<&MapDef> = program.maps.iter().filter_map(|def| def.inner.as_deref()).collect();
    let is_inside = |def: &MapDef| inner.iter().any(|inner| def.fits_inside(inner));
    found.extend(program.maps.iter().enumerate().filter(|(_, def)| is_inside(def)).map(|(index, _)| index));
    found
}

/// The indices of the large maps that only user space can write, because no instruction refers to them.
pub(crate) fn unreferenced(program: &Program) -> BTreeSet<usize> {
    let referenced = referenced(program);
    let is_plain = |def: &MapDef| !def.kind.is_per_cpu() && def.layout.is_none() && def.initial.is_none();
    let unreferenced =
        program.maps.iter().enumerate().filter(|(index, def)| !referenced.contains(index) && is_plain(def));
    unreferenced.filter(|(_, def)| is_large(def)).map(|(index, _)| index).collect()
}

pub(crate) fn definition_for(def: &MapDef, purpose: MapPurpose, has_maps_in_maps: bool, is_unnamed: bool) -> MapDef {
    let mut def = def.clone();
    match purpose {
        MapPurpose::Live => {}
        MapPurpose::TestRuns if is_unnamed => def.max_entries = 1,
        MapPurpose::TestRuns => {
            let is_plain = def.kind == MapKind::Array && def.flags & NOT_MAPPED == 0 && def.spin_lock.is_none();
            if is_plain && is_large(&def) && !has_maps_in_maps {
                def.flags |= MMAPABLE;
            }
        }
        MapPurpose::Verdict { arrays } => {
            let is_array = matches!(def.kind, MapKind::Array | MapKind::PerCpuArray);
            if def.kind.has_values() && !(arrays && is_array) {
                def.max_entries = def.max_entries.min(KEPT_ENTRIES);
            }
        }
    }
    def
}

/// The kernel's error for the declared size of a map, if it is certain without trying.
pub(crate) fn refused(def: &MapDef, memory_bytes: Option<u64>) -> Option<io::Error> {
    let entries = u64::from(def.max_entries);
    match def.kind {
        MapKind::Hash | MapKind::PerCpuHash | MapKind::LruHash | MapKind::LruPerCpuHash
            if entries.next_power_of_two() > u64::from(u32::MAX) / BUCKET_BYTES =>
        {
            Some(io::Error::from_raw_os_error(libc::E2BIG))
        }
        MapKind::Array
            if memory_bytes.is_some_and(|most| u64::from(def.value_bytes).next_multiple_of(8) * entries > most) =>
        {
            Some(io::Error::from_raw_os_error(libc::ENOMEM))
        }
        _ => None,
    }
}

pub(crate) fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(kind: MapKind, max_entries: u32) -> MapDef {
        MapDef { name: "m".into(), kind, key_bytes: 4, value_bytes: 4, max_entries, ..MapDef::default() }
    }

    #[test]
    fn verdict_maps_are_small_but_have_two_entries() {
        let verdict = MapPurpose::Verdict { arrays: false };
        let entries = |def: &MapDef, purpose| definition_for(def, purpose, false, false).max_entries;
        let rings = map(MapKind::Array, 33_555_984);
        assert_eq!(entries(&rings, verdict), KEPT_ENTRIES);
        assert_eq!(entries(&rings, MapPurpose::Verdict { arrays: true }), 33_555_984);
        assert_eq!(entries(&map(MapKind::Array, 2), verdict), 2);
        assert_eq!(entries(&map(MapKind::LruHash, 8_000_000), MapPurpose::Verdict { arrays: true }), KEPT_ENTRIES);
        assert_eq!(entries(&map(MapKind::Devmap, 4096), verdict), 4096);
    }

    #[test]
    fn kernel_limits_are_kept() {
        let error = |def: &MapDef| refused(def, Some(1 << 30)).and_then(|error| error.raw_os_error());
        assert_eq!(error(&map(MapKind::Hash, 1 << 27)), None);
        assert_eq!(error(&map(MapKind::Hash, (1 << 27) + 1)), Some(libc::E2BIG));
        assert_eq!(error(&map(MapKind::Array, 1 << 27)), None);
        assert_eq!(error(&map(MapKind::Array, (1 << 27) + 1)), Some(libc::ENOMEM));
    }
}
