// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that machine code and the runtime share: the context of a packet, the counters of a run, the maps.

use std::ffi::c_void;
use std::mem::offset_of;

use flowloom_flowtable::{Announcement, Bucket, FlowTable, HintedLookupFn, LookupFn, Probe, RawTable, WordLookupFn};
use flowloom_isa::limits::STACK_BYTES;

/// The context as programs see it. Addresses of the packet are whole, although the fields of `struct xdp_md` have 4
/// bytes; the kernel rewrites such loads as well.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Context {
    /// The first byte of the packet, the byte after its last one, and the start of the metadata area.
    pub data: u64,
    pub data_end: u64,
    pub data_meta: u64,
    pub ingress: u32,
    pub queue: u32,
    pub egress: u32,
}

/// A packet as loops over packets see it, in scouts and in code.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// The first byte of the packet, and the byte after its last one.
    pub data: u64,
    pub data_end: u64,
    /// Its arrival time.
    pub now_ns: u64,
    pub ingress: u32,
    /// What the code returned, and the target of its last redirect ([`State::redirect`]).
    pub r0: u64,
    pub redirect: i64,
    /// The buffer that the packet may grow in.
    pub buffer: u64,
    pub buffer_end: u64,
}

impl Default for View {
    fn default() -> View {
        View { data: 0, data_end: 0, now_ns: 0, ingress: 0, r0: 0, redirect: BY_HELPER, buffer: 0, buffer_end: 0 }
    }
}

/// The state of a run, which every compiled function gets.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct State {
    pub context: Context,
    pub cpu: u32,
    /// The arrival time of the packet.
    pub now_ns: u64,
    /// The environment of helpers, during a run.
    pub run: *mut c_void,
    /// The iterations left of loops without a small bound.
    pub budget: i64,
    /// The slot of the last helper call, or [`NO_HELPER`].
    pub at: u32,
    /// The number of `may_goto` that fell through.
    pub rounds: u32,
    pub tail_calls: u32,
    /// In a scout: the lookups to pass before the one whose key is announced.
    pub wave: u32,
    /// In a scout: whether it has ended, in the current function or in one that it called.
    pub stopped: u32,
    /// The port of the last call of `redirect_map` that needed no helper, or [`BY_HELPER`] if a helper was called after
    /// it. Loops over packets may have it in views (`Source::redirects_in_view`).
    pub redirect: i64,
    /// Where the first lookup of the packet is expected to find its key.
    pub hint: *const Probe,
    /// Where a scout writes the key that it announces, and where resumed code finds it.
    pub announced: *mut Announced,
    /// In a loop over packets, the packet of the context, until its bounds are changed for the first time.
    pub view: *const View,
}

/// No helper has been called: the value of [`State::at`].
pub(crate) const NO_HELPER: u32 = u32::MAX;
/// The last redirect, if any, is that of the environment: the value of [`State::redirect`].
pub(crate) const BY_HELPER: i64 = -1;

/// No place where a key is expected.
pub(crate) static NO_HINT: Probe = Probe::NONE;

/// The key that a scout announced, and what resumed code goes on with. The stack of both, [`STACK_BYTES`] long, ends
/// where it begins.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Announced {
    pub key: Announcement,
    /// The number of the point at which the code can be resumed, from 1; 0 if it runs from its beginning.
    pub point: u32,
    /// The registers that are live at the point, as [`register`] places them.
    pub registers: [u64; 10],
    /// In the pipeline, the key of a second lookup.
    pub second: Announcement,
}

/// The bytes from a record to the next one, with its stack.
pub(crate) const RECORD_BYTES: usize = STACK_BYTES + size_of::<Announced>();

/// Where a record has a register. Those that are often live share a line with the key.
pub(crate) fn register(number: usize) -> i32 {
    const PLACES: [usize; 10] = [9, 5, 0, 6, 7, 8, 1, 2, 3, 4];
    (offset_of!(Announced, registers) + PLACES[number] * size_of::<u64>()) as i32
}

impl Default for State {
    fn default() -> State {
        State {
            context: Context::default(),
            cpu: 0,
            now_ns: 0,
            run: std::ptr::null_mut(),
            budget: 0,
            at: NO_HELPER,
            rounds: 0,
            tail_calls: 0,
            wave: 0,
            stopped: 0,
            redirect: BY_HELPER,
            hint: &raw const NO_HINT,
            announced: std::ptr::null_mut(),
            view: std::ptr::null(),
        }
    }
}

/// A map as machine code knows it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct MapRef {
    /// The value in cell 0.
    pub base: *mut u8,
    /// The hash table, of hash and LRU maps with one CPU; otherwise null.
    pub table: *mut FlowTable,
    /// The parts of the table, and of these the addresses and the seed of the hash, one load nearer.
    pub raw: *const RawTable,
    pub buckets: *mut Bucket,
    pub entries: *mut u8,
    pub seed: [u64; 3],
    /// The lookup, which counts as no use.
    pub lookup: Option<LookupFn>,
    pub hinted_lookup: Option<HintedLookupFn>,
    /// The lookup of keys in registers, which counts as a use; for keys of 4 to 16 bytes.
    pub word_lookup: Option<WordLookupFn>,
    /// The bytes from slot to slot.
    pub stride: usize,
    /// The number of ports of a device map with its default contents: each key below it leads to the port of its
    /// number. Otherwise 0.
    pub ports: u64,
}

impl Default for MapRef {
    fn default() -> MapRef {
        MapRef {
            base: std::ptr::null_mut(),
            table: std::ptr::null_mut(),
            raw: std::ptr::null(),
            buckets: std::ptr::null_mut(),
            entries: std::ptr::null_mut(),
            seed: [0; 3],
            lookup: None,
            hinted_lookup: None,
            word_lookup: None,
            stride: 0,
            ports: 0,
        }
    }
}

/// A field of the context: offset and bytes in [`State`], by its offset in `struct xdp_md`.
pub(crate) fn field(at: i64) -> Option<(i32, u8)> {
    let (offset, bytes) = match at {
        0 => (offset_of!(Context, data), 8),
        4 => (offset_of!(Context, data_end), 8),
        8 => (offset_of!(Context, data_meta), 8),
        12 => (offset_of!(Context, ingress), 4),
        16 => (offset_of!(Context, queue), 4),
        20 => (offset_of!(Context, egress), 4),
        _ => return None,
    };
    Some(((offset_of!(State, context) + offset) as i32, bytes))
}

pub(crate) const DATA: i32 = (offset_of!(State, context) + offset_of!(Context, data)) as i32;
pub(crate) const DATA_END: i32 = (offset_of!(State, context) + offset_of!(Context, data_end)) as i32;
pub(crate) const DATA_META: i32 = (offset_of!(State, context) + offset_of!(Context, data_meta)) as i32;
pub(crate) const INGRESS: i32 = (offset_of!(State, context) + offset_of!(Context, ingress)) as i32;
pub(crate) const VIEW_DATA: i32 = offset_of!(View, data) as i32;
pub(crate) const VIEW_DATA_END: i32 = offset_of!(View, data_end) as i32;
pub(crate) const VIEW_NOW: i32 = offset_of!(View, now_ns) as i32;
pub(crate) const VIEW_INGRESS: i32 = offset_of!(View, ingress) as i32;
pub(crate) const VIEW_R0: i32 = offset_of!(View, r0) as i32;
pub(crate) const VIEW_REDIRECT: i32 = offset_of!(View, redirect) as i32;

/// The fields of 8 bytes of a view, each with that of the state that has the same number. Scouts see no metadata.
pub(crate) const VIEWED: [(i32, i32); 4] = [
    (offset_of!(View, data) as i32, DATA),
    (offset_of!(View, data_end) as i32, DATA_END),
    (offset_of!(View, data) as i32, DATA_META),
    (offset_of!(View, now_ns) as i32, NOW_NS),
];

pub(crate) const CPU: i32 = offset_of!(State, cpu) as i32;
pub(crate) const NOW_NS: i32 = offset_of!(State, now_ns) as i32;
pub(crate) const ANNOUNCED: i32 = offset_of!(State, announced) as i32;
pub(crate) const BUDGET: i32 = offset_of!(State, budget) as i32;
pub(crate) const AT: i32 = offset_of!(State, at) as i32;
pub(crate) const WAVE: i32 = offset_of!(State, wave) as i32;
pub(crate) const STOPPED: i32 = offset_of!(State, stopped) as i32;
pub(crate) const ROUNDS: i32 = offset_of!(State, rounds) as i32;
pub(crate) const TAIL_CALLS: i32 = offset_of!(State, tail_calls) as i32;
pub(crate) const SHOWN: i32 = offset_of!(State, view) as i32;

pub(crate) const REDIRECT: i32 = offset_of!(State, redirect) as i32;

pub(crate) const KEY_TABLE: i32 = (offset_of!(Announced, key) + offset_of!(Announcement, table)) as i32;
pub(crate) const SECOND: i32 = offset_of!(Announced, second) as i32;
pub(crate) const PROBE: i32 = (offset_of!(Announced, key) + offset_of!(Announcement, probe)) as i32;
pub(crate) const HASH: i32 = PROBE + Probe::HASH_OFFSET as i32;
pub(crate) const POINT: i32 = offset_of!(Announced, point) as i32;
pub(crate) const PLACE: i32 = PROBE + Probe::PLACE_OFFSET as i32;
pub(crate) const WORD: i32 = PROBE + Probe::WORD_OFFSET as i32;

pub(crate) const MARKS: i32 = offset_of!(RawTable, marks) as i32;

pub(crate) const PORTS: i32 = offset_of!(MapRef, ports) as i32;
pub(crate) const BASE: i32 = offset_of!(MapRef, base) as i32;
pub(crate) const TABLE: i32 = offset_of!(MapRef, table) as i32;
pub(crate) const RAW: i32 = offset_of!(MapRef, raw) as i32;
pub(crate) const MAP_BUCKETS: i32 = offset_of!(MapRef, buckets) as i32;
pub(crate) const MAP_ENTRIES: i32 = offset_of!(MapRef, entries) as i32;
pub(crate) const SEED: i32 = offset_of!(MapRef, seed) as i32;
pub(crate) const HINT: i32 = offset_of!(State, hint) as i32;
pub(crate) const HINTED_LOOKUP: i32 = offset_of!(MapRef, hinted_lookup) as i32;
pub(crate) const WORD_LOOKUP: i32 = offset_of!(MapRef, word_lookup) as i32;
pub(crate) const LOOKUP: i32 = offset_of!(MapRef, lookup) as i32;
