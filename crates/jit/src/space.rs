// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory with addresses of the machine.
//!
//! The proof has checked every access of the program, its arguments of helpers included, so nothing is checked here.

use std::ptr::NonNull;

use flowloom_engine::{FRAME_RECORD_BYTES, HEADROOM_BYTES};
use flowloom_flowtable::FlowTable;
use flowloom_isa::{MapDef, MapKind};
use flowloom_vm::{Fault, Map, Rings, Space};

use crate::state::{Context, MapRef, NO_HELPER, State, View};
use crate::tables::{MemoryError, Tables};

/// The least length of a packet in bytes.
const ETHERNET_BYTES: i64 = 14;
/// The limit to which the kernel's test runs let a packet grow, from the beginning of the headroom.
const GROWTH_LIMIT: i64 = 4096 - 320;
const MAX_META_BYTES: i64 = 252;
/// -EINVAL
const INVALID: i64 = -22;
/// -EACCES
const NO_ACCESS: i64 = -13;

/// The buffer of the current packet, as addresses.
#[derive(Debug, Clone, Copy, Default)]
struct Buffer {
    start: u64,
    end: u64,
    /// Where the headroom begins, in the buffer or not: [`HEADROOM_BYTES`] before the packet as it arrived.
    origin: u64,
    /// The lowest byte with defined contents; those below become zeros as the packet grows over them.
    defined: u64,
    /// The end of the packet as it arrived.
    longest: u64,
}

/// All memory of an engine besides the stacks of machine code.
pub(crate) struct Native {
    /// What machine code shares; raw, because it writes it while a helper borrows the rest.
    state: NonNull<State>,
    maps: Vec<Map<Tables>>,
    /// By map; machine code holds its address.
    refs: Box<[MapRef]>,
    /// The maps that note the end of a run: LPM maps, and hash tables whose entries are evicted.
    ending: Vec<usize>,
    rings: Rings,
    cpus: u32,
    buffer: Buffer,
    /// The first fault of the run, with the slot of its instruction.
    fault: Option<(usize, Fault)>,
}

// SAFETY: the state and the references lead only to memory that this value owns.
unsafe impl Send for Native {}

impl std::fmt::Debug for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Native").field("maps", &self.maps.len()).field("cpus", &self.cpus).finish_non_exhaustive()
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: made by `Box::new` in `Native::new`; machine code does not run.
        drop(unsafe { Box::from_raw(self.state.as_ptr()) });
    }
}

impl Native {
    /// Memory with the maps of these definitions in their initial states; `evicts` tells whether programs evict entries
    /// of hash tables.
    ///
    /// # Errors
    /// There is no memory for a map.
    pub(crate) fn new(defs: &[MapDef], cpus: u32, evicts: bool) -> Result<Native, MemoryError> {
        let maps: Result<Vec<_>, _> = defs.iter().map(|def| Map::new(def, cpus)).collect();
        let state = NonNull::from(Box::leak(Box::new(State::default())));
        let refs = defs.iter().map(|_| MapRef::default()).collect();
        let ends = |map: &usize| match defs[*map].kind {
            MapKind::LpmTrie => true,
            MapKind::Hash => evicts,
            _ => false,
        };
        let ending = (0..defs.len()).filter(ends).collect();
        let rings = Rings::new(defs);
        let mut native =
            Native { state, maps: Vec::new(), refs, ending, rings, cpus, buffer: Buffer::default(), fault: None };
        native.set_maps(maps?);
        Ok(native)
    }

    pub(crate) fn state(&self) -> *mut State {
        self.state.as_ptr()
    }

    /// By map, what machine code knows of it; does not move.
    pub(crate) fn refs(&self) -> &[MapRef] {
        &self.refs
    }

    /// The hash table of a map, if it has one value an entry, and its definition.
    pub(crate) fn table(&mut self, map: usize) -> Option<(&mut FlowTable, &MapDef)> {
        // SAFETY: the table is null or that of a map of this engine, which is borrowed; the definition is no part of
        // it.
        let table = unsafe { self.refs.get(map)?.table.as_mut() }?;
        Some((table, self.maps[map].def()))
    }

    /// The memory of all entries of hash tables, in bytes.
    pub(crate) fn table_bytes(&self) -> u64 {
        let of = |reference: &MapRef| {
            // SAFETY: the table is null or that of a map of this engine.
            let len = unsafe { reference.table.as_ref() }.map_or(0, FlowTable::len);
            len as u64 * reference.stride as u64
        };
        self.refs.iter().map(of).sum()
    }

    fn context(&self) -> &Context {
        // SAFETY: the state is valid as long as `self`; machine code, its only other user, is not running here.
        unsafe { &self.state.as_ref().context }
    }

    fn context_mut(&mut self) -> &mut Context {
        // SAFETY: as above.
        unsafe { &mut self.state.as_mut().context }
    }

    /// Sets the packet: `packet` within `buffer`, both as offsets. The buffer stays valid and is used by nothing else
    /// until the run has ended.
    #[inline]
    pub(crate) fn begin(&mut self, buffer: &mut [u8], packet: (usize, usize), ingress: u32) {
        let start = buffer.as_mut_ptr() as u64;
        let (data, data_end) = (start + packet.0 as u64, start + packet.1 as u64);
        self.buffer = Buffer {
            start,
            end: start + buffer.len() as u64,
            origin: data.saturating_sub(HEADROOM_BYTES as u64),
            defined: data,
            longest: data_end,
        };
        let context = self.context_mut();
        (context.data, context.data_end, context.data_meta, context.ingress) = (data, data_end, data, ingress);
        self.take_view();
    }

    /// Ends the view of the packet by the state.
    fn take_view(&mut self) -> *const View {
        // SAFETY: as in `context_mut`.
        let shown = unsafe { &mut self.state.as_mut().view };
        std::mem::replace(shown, std::ptr::null())
    }

    /// Before bounds change: the buffer of a packet in a loop of machine code, if they are those with which it came.
    fn begin_late(&mut self) {
        // SAFETY: the view is null, or one of the batch that runs.
        let Some(view) = (unsafe { self.take_view().as_ref() }) else { return };
        self.buffer = Buffer {
            start: view.buffer,
            end: view.buffer_end,
            origin: view.data.saturating_sub(HEADROOM_BYTES as u64),
            defined: view.data,
            longest: view.data_end,
        };
    }

    /// True if the bounds of a packet in a loop of machine code are those with which it came.
    pub(crate) fn is_unmoved(&self) -> bool {
        // SAFETY: as in `context`.
        unsafe { !self.state.as_ref().view.is_null() }
    }

    /// Sets the packet for code that changes no bounds.
    #[inline]
    pub(crate) fn show(&mut self, packet: &[u8], ingress: u32) {
        let data = packet.as_ptr() as u64;
        let context = self.context_mut();
        (context.data, context.data_end, context.data_meta) = (data, data + packet.len() as u64, data);
        context.ingress = ingress;
    }

    /// The packet as offsets in the buffer.
    pub(crate) fn bounds(&self) -> (usize, usize) {
        let (Context { data, data_end, .. }, start) = (self.context(), self.buffer.start);
        ((data - start) as usize, (data_end - start) as usize)
    }

    /// Notes a fault, if it is the first one of the run.
    #[cold]
    pub(crate) fn fail(&mut self, fault: Fault) {
        // SAFETY: as in `context`.
        let at = unsafe { self.state.as_ref().at };
        let at = if at == NO_HELPER { 0 } else { at };
        self.fault.get_or_insert((at as usize, fault));
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    pub(crate) fn take_fault(&mut self) -> Option<(usize, Fault)> {
        self.fault.take()
    }

    /// Makes the bytes from `at` on, up to those with defined contents, zeros.
    fn define(&mut self, at: u64) {
        if at < self.buffer.defined {
            let len = (self.buffer.defined - at) as usize;
            // SAFETY: `at` is within the buffer, below its defined bytes.
            unsafe { std::ptr::write_bytes(at as *mut u8, 0, len) };
            self.buffer.defined = at;
        }
    }

    /// The lowest address of metadata or packet.
    fn floor(&self) -> i64 {
        (self.buffer.origin + FRAME_RECORD_BYTES as u64).max(self.buffer.start) as i64
    }
}

impl Space for Native {
    type Tables = Tables;

    fn read(&self, address: u64, len: usize) -> Result<&[u8], Fault> {
        if len == 0 {
            return Ok(&[]);
        }
        // SAFETY: the proof has that the program may read these bytes, so they are in the packet, a stack, a value, a
        // key or a record.
        Ok(unsafe { std::slice::from_raw_parts(address as *const u8, len) })
    }

    fn write_any(&mut self, address: u64, len: usize) -> Result<&mut [u8], Fault> {
        if len == 0 {
            return Ok(&mut []);
        }
        // SAFETY: the proof has that the program may write these bytes.
        Ok(unsafe { std::slice::from_raw_parts_mut(address as *mut u8, len) })
    }

    fn may_fill(&mut self, _: u64, _: usize) -> Result<(), Fault> {
        Ok(())
    }

    fn is_some_object(&self, _: u64) -> bool {
        // Programs whose helpers read unchecked addresses are not compiled.
        true
    }

    fn packet(&self) -> &[u8] {
        let Context { data, data_end, .. } = *self.context();
        // SAFETY: the packet is within the buffer.
        unsafe { std::slice::from_raw_parts(data as *const u8, (data_end - data) as usize) }
    }

    fn packet_mut(&mut self) -> &mut [u8] {
        let Context { data, data_end, .. } = *self.context();
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(data as *mut u8, (data_end - data) as usize) }
    }

    fn adjust_head(&mut self, distance: i32) -> bool {
        self.begin_late();
        let Context { data, data_end, data_meta, .. } = *self.context();
        let start = data as i64 + i64::from(distance);
        let meta_bytes = data - data_meta;
        if start < self.floor() + meta_bytes as i64 || start > data_end as i64 - ETHERNET_BYTES {
            return false;
        }
        let start = start as u64;
        let meta = start - meta_bytes;
        self.define(meta);
        // SAFETY: both ranges are within the buffer.
        unsafe { std::ptr::copy(data_meta as *const u8, meta as *mut u8, meta_bytes as usize) };
        let context = self.context_mut();
        (context.data, context.data_meta) = (start, meta);
        true
    }

    fn adjust_tail(&mut self, distance: i32) -> bool {
        self.begin_late();
        let Context { data, data_end, .. } = *self.context();
        let end = data_end as i64 + i64::from(distance);
        let limit = (self.buffer.origin as i64 + GROWTH_LIMIT).max(self.buffer.longest as i64);
        if end > limit.min(self.buffer.end as i64) || end < data as i64 + ETHERNET_BYTES {
            return false;
        }
        let grown = (end - data_end as i64).max(0);
        // SAFETY: the new end is within the buffer.
        unsafe { std::ptr::write_bytes(data_end as *mut u8, 0, grown as usize) };
        self.context_mut().data_end = end as u64;
        true
    }

    fn adjust_meta(&mut self, distance: i32) -> i64 {
        self.begin_late();
        let Context { data, data_meta, .. } = *self.context();
        let meta = data_meta as i64 + i64::from(distance);
        let len = data as i64 - meta;
        if meta < self.floor() || len < 0 {
            return INVALID;
        }
        if len % 4 != 0 || len > MAX_META_BYTES {
            return NO_ACCESS;
        }
        self.define(meta as u64);
        self.context_mut().data_meta = meta as u64;
        0
    }

    fn ingress(&self) -> u32 {
        self.context().ingress
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn maps(&self) -> &[Map<Tables>] {
        &self.maps
    }

    fn maps_mut(&mut self) -> &mut [Map<Tables>] {
        &mut self.maps
    }

    fn set_maps(&mut self, maps: Vec<Map<Tables>>) {
        self.maps = maps;
        self.maps_moved();
    }

    fn maps_moved(&mut self) {
        for (map, reference) in self.maps.iter_mut().zip(&mut self.refs) {
            let (base, stride) = (map.cells().base(), map.cells().stride());
            let ports = if map.is_bound_one_to_one() { map.def().max_entries.into() } else { 0 };
            *reference = MapRef { base, stride, ports, ..MapRef::default() };
            // Another engine's code may have marked nothing.
            if let Some(keys) = map.keys_mut() {
                keys.0.forget_least();
            }
            // With several CPUs, a slot has several cells.
            if let Some(keys) = map.keys_mut().filter(|_| self.cpus == 1) {
                let raw = keys.0.raw();
                reference.raw = raw;
                (reference.buckets, reference.entries, reference.seed) = (raw.buckets, raw.entries, raw.seed);
                reference.lookup = Some(keys.0.lookup_fn());
                reference.hinted_lookup = Some(keys.0.hinted_lookup_fn());
                reference.word_lookup = keys.0.word_lookup_fn();
                reference.table = &raw mut keys.0;
            }
        }
    }

    fn end_run(&mut self) {
        for map in &self.ending {
            self.maps[*map].end_run();
        }
    }

    fn value_address(&self, map: usize, cell: u32) -> u64 {
        self.maps[map].cells().address(cell.into()) as u64
    }

    fn lock_at(&self, _: u64) -> Option<usize> {
        None
    }

    fn rings(&self) -> &Rings {
        &self.rings
    }

    fn rings_mut(&mut self) -> &mut Rings {
        &mut self.rings
    }

    fn record_address(&self, number: usize) -> u64 {
        self.rings.record(number).map_or(0, |record| record.as_ptr() as u64)
    }

    fn record_at(&self, address: u64) -> Option<usize> {
        self.rings.reserved().find(|(_, record)| record.as_ptr() as u64 == address).map(|(number, _)| number)
    }
}
