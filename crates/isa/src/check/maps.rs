// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the maps of a program: what the kernel would refuse is refused here.

use std::collections::BTreeSet;

use super::{Check, Flaw};
use crate::limits::{LOCK_BYTES, MAX_MAPS, addressable_values};
use crate::map_kind::MapKind;
use crate::program::{
    BPF_F_INNER_MAP, BPF_F_MMAPABLE, BPF_F_NO_COMMON_LRU, BPF_F_NO_PREALLOC, BPF_F_NUMA_NODE, BPF_F_PRESERVE_ELEMS,
    BPF_F_RDONLY, BPF_F_RDONLY_PROG, BPF_F_WRONLY, BPF_F_WRONLY_PROG, BPF_F_ZERO_SEED, MAX_ENTRIES, MapDef, Member,
};
use flowloom_context::ContextLayout;

/// The limit of the values of all arrays of a program, each rounded up to 8 bytes as in the kernel. Only written
/// entries are allocated; this bounds the page tables.
const MAX_ARRAY_BYTES: u64 = 64 << 30;
const MAX_VALUE_BYTES: u32 = 1 << 30;
/// The most entries of a per-CPU array: values are numbered in 32 bits, for up to 1024 CPUs.
const MAX_PER_CPU_ENTRIES: u64 = (u32::MAX >> 10) as u64;
/// The largest per-CPU value [Linux include/linux/percpu.h, `PCPU_MIN_UNIT_SIZE`].
const MAX_PER_CPU_BYTES: u32 = 32 << 10;

const FLAGS: [(u32, &str); 11] = [
    (BPF_F_NO_PREALLOC, "BPF_F_NO_PREALLOC"),
    (BPF_F_NO_COMMON_LRU, "BPF_F_NO_COMMON_LRU"),
    (BPF_F_NUMA_NODE, "BPF_F_NUMA_NODE"),
    (BPF_F_RDONLY, "BPF_F_RDONLY"),
    (BPF_F_WRONLY, "BPF_F_WRONLY"),
    (BPF_F_ZERO_SEED, "BPF_F_ZERO_SEED"),
    (BPF_F_RDONLY_PROG, "BPF_F_RDONLY_PROG"),
    (BPF_F_WRONLY_PROG, "BPF_F_WRONLY_PROG"),
    (BPF_F_MMAPABLE, "BPF_F_MMAPABLE"),
    (BPF_F_PRESERVE_ELEMS, "BPF_F_PRESERVE_ELEMS"),
    (BPF_F_INNER_MAP, "BPF_F_INNER_MAP"),
];

const EXCLUSIVE: [u32; 3] =
    [BPF_F_RDONLY | BPF_F_WRONLY, BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG, BPF_F_NO_COMMON_LRU | BPF_F_NUMA_NODE];

/// The flags that a kind of map supports in Linux 6.18.
fn flags_of(kind: MapKind) -> u32 {
    const USERS: u32 = BPF_F_RDONLY | BPF_F_WRONLY;
    const ACCESS: u32 = USERS | BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG;
    match kind {
        MapKind::Hash | MapKind::HashOfMaps => BPF_F_NO_PREALLOC | BPF_F_NUMA_NODE | ACCESS | BPF_F_ZERO_SEED,
        MapKind::PerCpuHash => BPF_F_NO_PREALLOC | ACCESS | BPF_F_ZERO_SEED,
        MapKind::LruHash => BPF_F_NO_COMMON_LRU | BPF_F_NUMA_NODE | ACCESS | BPF_F_ZERO_SEED,
        MapKind::LruPerCpuHash => BPF_F_NO_COMMON_LRU | ACCESS | BPF_F_ZERO_SEED,
        MapKind::Array => BPF_F_NUMA_NODE | ACCESS | BPF_F_MMAPABLE | BPF_F_INNER_MAP,
        MapKind::PerCpuArray => ACCESS,
        MapKind::LpmTrie => BPF_F_NO_PREALLOC | BPF_F_NUMA_NODE | ACCESS,
        MapKind::PerfEventArray => BPF_F_NUMA_NODE | USERS | BPF_F_PRESERVE_ELEMS,
        MapKind::ProgArray | MapKind::ArrayOfMaps | MapKind::Devmap | MapKind::DevmapHash | MapKind::Xskmap => {
            BPF_F_NUMA_NODE | USERS
        }
        MapKind::Cpumap | MapKind::RingBuf => BPF_F_NUMA_NODE,
        MapKind::Other(_) => 0,
    }
}

/// Flags by name; those without one as a number.
fn names(flags: u32) -> String {
    let named: u32 = FLAGS.iter().map(|(flag, _)| flag).sum();
    let known = FLAGS.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, name)| (*name).to_owned());
    let rest = (flags & !named != 0).then(|| format!("{:#x}", flags & !named));
    let all: Vec<String> = known.chain(rest).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

impl Check<'_> {
    pub(super) fn maps(&mut self) {
        let program = self.program;
        let mut names = BTreeSet::new();
        let mut array_bytes = 0;
        for (index, def) in program.maps.iter().enumerate() {
            let before = self.findings.len();
            self.map_definition(def);
            if !names.insert(&def.name) {
                self.map_flaw(def, "name", "that of another map", "a name of its own");
            }
            if index >= MAX_MAPS {
                self.map_flaw(def, "index", index, format!("below {MAX_MAPS}"));
                return;
            }
            if def.kind.has_values() && def.kind.is_indexed() && self.findings.len() == before {
                array_bytes += u64::from(def.value_bytes).next_multiple_of(8) * u64::from(def.max_entries);
            }
            if array_bytes > MAX_ARRAY_BYTES {
                let found = format!("with the arrays before it {array_bytes} bytes");
                self.map_flaw(def, "size", found, format!("at most {MAX_ARRAY_BYTES} bytes"));
                return;
            }
        }
    }

    fn map_flaw(&mut self, def: &MapDef, what: &'static str, found: impl ToString, expected: impl Into<String>) {
        let (found, expected) = (found.to_string(), expected.into());
        // The first instruction that refers to the map: its source is what has to change.
        let at = self.program.map_index(&def.name).and_then(|index| self.program.first_use(index));
        self.finding(at, Flaw::Map { map: def.name.clone(), what, found, expected });
    }

    fn map_definition(&mut self, def: &MapDef) {
        if !def.kind.is_known() {
            let known: Vec<String> = MapKind::ALL.iter().map(MapKind::to_string).collect();
            self.map_flaw(def, "kind", def.kind, known.join(", "));
            return;
        }
        self.sizes(def);
        self.flags(def);
        if let Some(lock) = def.spin_lock
            && (!lock.is_multiple_of(4) || lock.checked_add(LOCK_BYTES).is_none_or(|end| end > def.value_bytes))
        {
            self.map_flaw(def, "offset of a lock", lock, format!("4 bytes within the value of {}", def.value_bytes));
        }
        if def.kind.is_of_maps() && def.inner.is_none() {
            self.map_flaw(def, "definition of the maps inside", "none", "one: their kind and sizes");
        }
        if let Some(inner) = &def.inner
            && (inner.kind == MapKind::ProgArray || inner.kind.is_of_maps())
        {
            self.map_flaw(def, "kind of the maps inside", inner.kind, "one that holds neither maps nor programs");
        }
        self.members(def);
        if let Some(initial) = &def.initial {
            if def.kind != MapKind::Array || def.max_entries != 1 {
                let found = format!("{:?} with {} entries", def.kind, def.max_entries);
                self.map_flaw(def, "data section", found, "an array with one entry");
            } else if initial.len() != def.value_bytes as usize {
                self.map_flaw(def, "initial contents in bytes", initial.len(), def.value_bytes.to_string());
            }
        }
        if let Some(layout) = &def.layout {
            self.layout(def, layout);
        }
    }

    fn flags(&mut self, def: &MapDef) {
        let known = flags_of(def.kind);
        if def.flags & !known != 0 {
            self.map_flaw(def, "flags", names(def.flags & !known), format!("only {}", names(known)));
        }
        if def.kind == MapKind::LpmTrie && def.flags & BPF_F_NO_PREALLOC == 0 {
            self.map_flaw(def, "flags", names(def.flags), "BPF_F_NO_PREALLOC among them");
        }
        for both in EXCLUSIVE {
            if def.flags & known & both == both {
                self.map_flaw(def, "flags", names(both), "one of them");
            }
        }
    }

    /// Checks key size, value size and capacity.
    fn sizes(&mut self, def: &MapDef) {
        use MapKind::{
            ArrayOfMaps, Cpumap, Devmap, DevmapHash, HashOfMaps, LpmTrie, PerfEventArray, ProgArray, RingBuf, Xskmap,
        };
        if def.kind == RingBuf {
            if (def.key_bytes, def.value_bytes) != (0, 0) {
                let found = format!("{} and {}", def.key_bytes, def.value_bytes);
                self.map_flaw(def, "length of keys and values in bytes", found, "0 and 0");
            }
            if !def.max_entries.is_power_of_two() || !def.max_entries.is_multiple_of(4096) {
                self.map_flaw(def, "size in bytes", def.max_entries, "a power of two, whole pages of 4096");
            }
            return;
        }
        let key_of_4 = def.kind.is_indexed() || def.kind == DevmapHash;
        if key_of_4 && def.key_bytes != 4 {
            self.map_flaw(def, "key length in bytes", def.key_bytes, "4");
        }
        // The kernel's limits: a key has to fit on the stack, a value into one allocation.
        let keys = if def.kind == LpmTrie { 5..=260 } else { 1..=512 };
        if !key_of_4 && !keys.contains(&def.key_bytes) {
            let expected = format!("{} to {}", keys.start(), keys.end());
            self.map_flaw(def, "key length in bytes", def.key_bytes, expected);
        }
        let values: &[u32] = match def.kind {
            Devmap | DevmapHash | Cpumap => &[4, 8],
            ProgArray | PerfEventArray | ArrayOfMaps | HashOfMaps | Xskmap => &[4],
            _ => &[],
        };
        if !values.is_empty() && !values.contains(&def.value_bytes) {
            let expected: Vec<String> = values.iter().map(u32::to_string).collect();
            self.map_flaw(def, "value length in bytes", def.value_bytes, expected.join(" or "));
        }
        if def.value_bytes == 0 || def.value_bytes > MAX_VALUE_BYTES {
            self.map_flaw(def, "value length in bytes", def.value_bytes, format!("1 to {MAX_VALUE_BYTES}"));
            return;
        }
        if def.kind.is_per_cpu() && def.value_bytes > MAX_PER_CPU_BYTES {
            let expected = format!("1 to {MAX_PER_CPU_BYTES} for each CPU");
            self.map_flaw(def, "value length in bytes", def.value_bytes, expected);
        }
        // Half of the addresses are for deleted entries that are still referenced.
        let most = (addressable_values(def.value_bytes) / 2).min(MAX_ENTRIES.into());
        let most = if def.kind == MapKind::PerCpuArray { most.min(MAX_PER_CPU_ENTRIES) } else { most };
        // Without a number, a perf event array has a buffer for each CPU.
        let fewest = u64::from(def.kind != PerfEventArray);
        if u64::from(def.max_entries) < fewest || u64::from(def.max_entries) > most {
            self.map_flaw(def, "number of entries", def.max_entries, format!("{fewest} to {most}"));
        }
    }

    /// Checks the initial contents of a map of maps or of programs.
    fn members(&mut self, def: &MapDef) {
        let program = self.program;
        for (key, member) in &def.members {
            let exists = match *member {
                Member::Map(index) => {
                    let fits = |map: &MapDef| def.inner.as_ref().is_some_and(|inner| map.fits_inside(inner));
                    def.kind.is_of_maps() && program.maps.get(index).is_some_and(fits)
                }
                Member::Program(index) => def.kind == MapKind::ProgArray && index < program.siblings.len(),
            };
            if !exists || def.key_bytes != 4 {
                let expected = "a map of the kind, sizes and flags inside (an array also of the number of entries), or a \
                                program of the object";
                self.map_flaw(def, "member", format!("{member:?} under key {key}"), expected);
            } else if def.kind.is_indexed() && *key >= def.max_entries {
                self.map_flaw(def, "key of a member", key, format!("below {}", def.max_entries));
            }
        }
    }

    fn layout(&mut self, def: &MapDef, layout: &ContextLayout) {
        for &offset in &layout.deadline_offsets {
            if u64::from(offset) + 8 > def.value_bytes.into() {
                let expected = format!("8 bytes within the value of {}", def.value_bytes);
                self.map_flaw(def, "offset of a deadline", offset, expected);
            }
        }
        let preloaded = &layout.preloaded;
        if preloaded.is_empty() {
            return;
        }
        if def.kind != MapKind::Hash {
            self.map_flaw(def, "table of contexts from the start", format!("{:?}", def.kind), "a hash");
        }
        if preloaded.len() > def.max_entries as usize {
            self.map_flaw(
                def,
                "number of contexts from the start",
                preloaded.len(),
                format!("at most {}", def.max_entries),
            );
        }
        for (key, value) in preloaded {
            for (what, found, expected) in [
                ("key length in bytes of a context from the start", key.len(), def.key_bytes),
                ("value length in bytes of a context from the start", value.len(), def.value_bytes),
            ] {
                if found != expected as usize {
                    self.map_flaw(def, what, found, expected.to_string());
                }
            }
        }
        let keys: BTreeSet<&Vec<u8>> = preloaded.iter().map(|(key, _)| key).collect();
        if keys.len() < preloaded.len() {
            self.map_flaw(def, "key of a context from the start", "that of another", "a key of its own");
        }
    }
}
