// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kinds of maps.

use std::fmt;

/// Kinds of maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum MapKind {
    /// Hash table.
    Hash,
    /// Array of fixed size; all entries always exist.
    #[default]
    Array,
    /// Programs, for tail calls.
    ProgArray,
    /// Buffers of `perf_event_output`, by CPU.
    PerfEventArray,
    /// Hash table with a value for each CPU.
    PerCpuHash,
    /// Array with a value for each CPU.
    PerCpuArray,
    /// Hash table that evicts the least recently used entry when full.
    LruHash,
    /// The same, with a value for each CPU.
    LruPerCpuHash,
    /// Longest-prefix match.
    LpmTrie,
    /// Array of maps.
    ArrayOfMaps,
    /// Hash table of maps.
    HashOfMaps,
    /// Ports for redirects, by index.
    Devmap,
    /// Ports for redirects, by any 4-byte key.
    DevmapHash,
    /// CPUs for redirects, by index.
    Cpumap,
    /// AF_XDP sockets for redirects, by queue.
    Xskmap,
    /// Ring buffer of records for user space.
    RingBuf,
    /// A kind that Flowloom does not run, with its number in the kernel.
    Other(u32),
}

/// The kernel's kinds by number, with the names in bpftool [Linux uapi/bpf.h].
const NAMES: [&str; 34] = [
    "unspec",
    "hash",
    "array",
    "prog_array",
    "perf_event_array",
    "percpu_hash",
    "percpu_array",
    "stack_trace",
    "cgroup_array",
    "lru_hash",
    "lru_percpu_hash",
    "lpm_trie",
    "array_of_maps",
    "hash_of_maps",
    "devmap",
    "sockmap",
    "cpumap",
    "xskmap",
    "sockhash",
    "cgroup_storage",
    "reuseport_sockarray",
    "percpu_cgroup_storage",
    "queue",
    "stack",
    "sk_storage",
    "devmap_hash",
    "struct_ops",
    "ringbuf",
    "inode_storage",
    "task_storage",
    "bloom_filter",
    "user_ringbuf",
    "cgrp_storage",
    "arena",
];

impl MapKind {
    /// The kinds that Flowloom runs.
    pub const ALL: [MapKind; 16] = [
        MapKind::Hash,
        MapKind::Array,
        MapKind::ProgArray,
        MapKind::PerfEventArray,
        MapKind::PerCpuHash,
        MapKind::PerCpuArray,
        MapKind::LruHash,
        MapKind::LruPerCpuHash,
        MapKind::LpmTrie,
        MapKind::ArrayOfMaps,
        MapKind::HashOfMaps,
        MapKind::Devmap,
        MapKind::DevmapHash,
        MapKind::Cpumap,
        MapKind::Xskmap,
        MapKind::RingBuf,
    ];

    /// The number in the kernel's `enum bpf_map_type`.
    pub const fn number(self) -> u32 {
        match self {
            MapKind::Hash => 1,
            MapKind::Array => 2,
            MapKind::ProgArray => 3,
            MapKind::PerfEventArray => 4,
            MapKind::PerCpuHash => 5,
            MapKind::PerCpuArray => 6,
            MapKind::LruHash => 9,
            MapKind::LruPerCpuHash => 10,
            MapKind::LpmTrie => 11,
            MapKind::ArrayOfMaps => 12,
            MapKind::HashOfMaps => 13,
            MapKind::Devmap => 14,
            MapKind::Cpumap => 16,
            MapKind::Xskmap => 17,
            MapKind::DevmapHash => 25,
            MapKind::RingBuf => 27,
            MapKind::Other(number) => number,
        }
    }

    /// The kind with this number.
    pub fn from_number(number: u32) -> MapKind {
        MapKind::ALL.into_iter().find(|kind| kind.number() == number).unwrap_or(MapKind::Other(number))
    }

    /// The name in bpftool, if it has one.
    pub fn name(self) -> Option<&'static str> {
        NAMES.get(self.number() as usize).copied()
    }

    /// Whether Flowloom runs it.
    pub fn is_known(self) -> bool {
        !matches!(self, MapKind::Other(_))
    }

    /// Whether each entry has a value for each CPU.
    pub fn is_per_cpu(self) -> bool {
        matches!(self, MapKind::PerCpuHash | MapKind::PerCpuArray | MapKind::LruPerCpuHash)
    }

    /// Whether a full table evicts entries (LRU).
    pub fn is_lru(self) -> bool {
        matches!(self, MapKind::LruHash | MapKind::LruPerCpuHash)
    }

    /// Whether keys are indices below the number of entries.
    pub fn is_indexed(self) -> bool {
        use MapKind::{Array, ArrayOfMaps, Cpumap, Devmap, PerCpuArray, PerfEventArray, ProgArray, Xskmap};
        matches!(self, Array | PerCpuArray | ProgArray | PerfEventArray | ArrayOfMaps | Devmap | Cpumap | Xskmap)
    }

    /// Whether entries are targets of redirects.
    pub fn is_redirect(self) -> bool {
        matches!(self, MapKind::Devmap | MapKind::DevmapHash | MapKind::Cpumap | MapKind::Xskmap)
    }

    /// Whether entries are maps.
    pub fn is_of_maps(self) -> bool {
        matches!(self, MapKind::ArrayOfMaps | MapKind::HashOfMaps)
    }

    /// Whether programs access values through pointers from lookups.
    pub fn has_values(self) -> bool {
        use MapKind::{Array, Hash, LpmTrie, LruHash, LruPerCpuHash, PerCpuArray, PerCpuHash};
        matches!(self, Hash | Array | PerCpuHash | PerCpuArray | LruHash | LruPerCpuHash | LpmTrie)
    }
}

impl fmt::Display for MapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "kind {}", self.number()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_and_names_are_the_kernels() {
        for kind in MapKind::ALL {
            assert_eq!(MapKind::from_number(kind.number()), kind);
        }
        assert_eq!(MapKind::from_number(15), MapKind::Other(15));
        let names = [MapKind::LpmTrie, MapKind::DevmapHash, MapKind::Other(15), MapKind::Other(99)];
        assert_eq!(names.map(|kind| kind.to_string()), ["lpm_trie", "devmap_hash", "sockmap", "kind 99"]);
    }
}
