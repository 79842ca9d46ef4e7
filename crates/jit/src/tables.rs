// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of maps: memory that never moves, so that machine code holds addresses of values.
//!
//! ```text
//!  hash, LRU   FlowTable: index ──► slot: key │ value on CPU 0 │ value on CPU 1 │ …
//!  array       one mapping: value of entry 0 on each CPU │ entry 1 │ …
//!  LPM         one mapping of slots, as an array
//! ```

use std::ptr::NonNull;

use flowloom_engine::SnapshotError;
use flowloom_flowtable::{Allocation, Field, FlowTable, Layout, TableError};
use flowloom_isa::MapDef;
use flowloom_vm::{Backing, Cells, Keys, Kind, Rank};
use memmap2::{MmapMut, MmapOptions};

use crate::pages;

/// The number of slots of an LPM table beyond its entries, unless they exceed [`DELETED_BYTES`]: a slot is reused after
/// the packet that deletes its entry. No packet deletes more than it may execute instructions.
const DELETED_SLOTS: u64 = flowloom_vm::DEFAULT_BUDGET;
/// The most bytes of those slots. They are mapped, and take memory as they are used.
const DELETED_BYTES: u64 = 1 << 36;
/// The number of those slots where the system does not map as many.
const FEWER_DELETED_SLOTS: u64 = 1 << 20;
/// The most bytes of one map's values, which are mapped at once.
const MAX_BYTES: u64 = 1 << 40;

/// The size from which on a mapping is asked for the pages that were written.
const SPARSE_BYTES: usize = 256 << 10;

/// Tables whose values have addresses of the machine.
#[derive(Debug)]
pub(crate) struct Tables;

/// A failure to allocate a map.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field is")]
pub enum MemoryError {
    /// A hash table.
    #[error("map `{map}`: {source}")]
    Table { map: String, source: TableError },
    /// An array.
    #[error("map `{map}` needs {bytes} bytes, which the system does not give: {source}")]
    Array { map: String, bytes: u64, source: std::io::Error },
}

impl From<MemoryError> for SnapshotError {
    fn from(error: MemoryError) -> SnapshotError {
        match error {
            MemoryError::Table { map, source } => SnapshotError::Memory { map, bytes: 0, why: source.to_string() },
            MemoryError::Array { map, bytes, source } => SnapshotError::Memory { map, bytes, why: source.to_string() },
        }
    }
}

/// The keys of a hash table.
#[derive(Debug)]
pub(crate) struct Entries(pub(crate) FlowTable);

/// The values of a map.
#[derive(Debug)]
pub(crate) struct Block {
    /// The value in cell 0.
    base: NonNull<u8>,
    cell_bytes: usize,
    /// The cells of a slot.
    cpus: u32,
    /// The bytes from slot to slot.
    stride: usize,
    slots: u64,
    /// The memory, unless it belongs to the keys.
    _memory: Option<MmapMut>,
}

// SAFETY: the block is the only way to its memory besides the keys of the same map and the engine that owns both, which
// all move together.
unsafe impl Send for Block {}

impl Block {
    fn mapped(def: &MapDef, cpus: u32, slots: u64) -> Result<Block, MemoryError> {
        let (cell_bytes, stride) = (def.value_bytes as usize, def.value_bytes as usize * cpus as usize);
        let bytes = (stride as u64).saturating_mul(slots).max(1);
        let failed = |source| MemoryError::Array { map: def.name.clone(), bytes, source };
        if bytes > MAX_BYTES {
            return Err(failed(std::io::ErrorKind::OutOfMemory.into()));
        }
        // Most of a large array is never written: no swap space is reserved for it.
        let mut memory = MmapOptions::new().len(bytes as usize).no_reserve_swap().map_anon().map_err(failed)?;
        let base = NonNull::from(&mut *memory).cast();
        Ok(Block { base, cell_bytes, cpus, stride, slots, _memory: Some(memory) })
    }

    /// The address of the value in cell 0.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The address of a cell.
    pub(crate) fn address(&self, cell: u64) -> *mut u8 {
        let (slot, cpu) = (cell / u64::from(self.cpus), cell % u64::from(self.cpus));
        let at = slot as usize * self.stride + cpu as usize * self.cell_bytes;
        self.base.as_ptr().wrapping_add(at)
    }

    /// The bytes from slot to slot.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// The bytes of the mapping, if it is large enough that its pages are worth looking at.
    fn sparse_bytes(&self) -> Option<usize> {
        let bytes = self._memory.as_ref()?.len();
        (bytes >= SPARSE_BYTES).then_some(bytes)
    }

    fn bytes(&self, at: *mut u8, len: usize) -> &[u8] {
        // SAFETY: callers pass a range within a slot below `slots`, which is mapped; machine code does not run now.
        unsafe { std::slice::from_raw_parts(at, len) }
    }
}

impl Cells for Block {
    fn grow(&mut self, _: u32) {}

    fn get(&self, cell: u64) -> Option<&[u8]> {
        self.has_room(cell).then(|| self.bytes(self.address(cell), self.cell_bytes))
    }

    fn get_mut(&mut self, cell: u64) -> Option<&mut [u8]> {
        // SAFETY: the cell is within the mapping; machine code does not run now.
        self.has_room(cell).then(|| unsafe { std::slice::from_raw_parts_mut(self.address(cell), self.cell_bytes) })
    }

    fn has_room(&self, cell: u64) -> bool {
        cell / u64::from(self.cpus) < self.slots
    }

    fn is_untouched(&self, _: u64) -> bool {
        false
    }

    fn is_paged(&self) -> bool {
        self.sparse_bytes().is_some()
    }

    fn entries(&self, _: u32) -> Box<dyn Iterator<Item = (u32, &[u8])> + '_> {
        let len = self.cell_bytes * self.cpus as usize;
        let entry = move |slot: u64| (slot as u32, self.bytes(self.address(slot * u64::from(self.cpus)), len));
        let (stride, slots) = (self.stride.max(1) as u64, self.slots);
        match self.sparse_bytes().and_then(|bytes| pages::touched(self.base() as u64, bytes)) {
            None => Box::new((0..slots).map(entry)),
            Some(touched) => {
                let mut next = 0;
                let slots = touched.into_iter().flat_map(move |range| {
                    // An entry may begin in the pages before.
                    let first = (range.start / stride).max(next);
                    next = range.end.div_ceil(stride).min(slots).max(first);
                    first..next
                });
                Box::new(slots.map(entry))
            }
        }
    }

    fn slot(&self, slot: u32, cpus: u32) -> &[u8] {
        if u64::from(slot) >= self.slots {
            return &[];
        }
        let at = self.address(u64::from(slot) * u64::from(self.cpus));
        self.bytes(at, self.cell_bytes * cpus.min(self.cpus) as usize)
    }

    fn slot_mut(&mut self, slot: u32, cpus: u32) -> &mut [u8] {
        if u64::from(slot) >= self.slots {
            return &mut [];
        }
        let at = self.address(u64::from(slot) * u64::from(self.cpus));
        // SAFETY: the slot is within the mapping; machine code does not run now.
        unsafe { std::slice::from_raw_parts_mut(at, self.cell_bytes * cpus.min(self.cpus) as usize) }
    }

    fn len(&self) -> u64 {
        self.slots * (self.cell_bytes as u64 * u64::from(self.cpus))
    }
}

impl Backing for Tables {
    type Keys = Entries;
    type Cells = Block;
    type Error = MemoryError;

    fn array(def: &MapDef, cpus: u32) -> Result<Block, MemoryError> {
        let block = Block::mapped(def, cpus, def.max_entries.into())?;
        if let Some(initial) = &def.initial {
            let len = initial.len().min(block.stride * block.slots as usize);
            // SAFETY: the mapping has this many bytes, and nothing else refers to it yet.
            unsafe { std::slice::from_raw_parts_mut(block.base(), len) }.copy_from_slice(&initial[..len]);
        }
        Ok(block)
    }

    fn table(def: &MapDef, cpus: u32, kind: Kind) -> Result<(Entries, Block), MemoryError> {
        let allocation = match kind {
            Kind::OnDemand => Allocation::OnDemand,
            Kind::Preallocated => Allocation::Preallocated,
            Kind::Lru => Allocation::LeastRecentlyUsed,
        };
        let layout = Layout {
            key_bytes: def.key_bytes,
            value_bytes: def.value_bytes * cpus,
            entries: def.max_entries,
            allocation,
        };
        let failed = |source| MemoryError::Table { map: def.name.clone(), source };
        let no_memory = || failed(TableError::Memory { bytes: 0, source: std::io::ErrorKind::OutOfMemory.into() });
        let table = FlowTable::new(layout).map_err(failed)?;
        let raw = table.raw();
        let first = raw.entries.wrapping_add(raw.value_at_bytes as usize);
        let (base, stride) = (NonNull::new(first).ok_or_else(no_memory)?, raw.stride_bytes as usize);
        let (cell_bytes, slots) = (def.value_bytes as usize, u64::from(def.max_entries) + 1);
        Ok((Entries(table), Block { base, cell_bytes, cpus, stride, slots, _memory: None }))
    }

    fn cells(def: &MapDef, cpus: u32) -> Result<Block, MemoryError> {
        let stride = u64::from(def.value_bytes) * u64::from(cpus);
        let deleted = DELETED_SLOTS.min(DELETED_BYTES / stride.max(1));
        let mapped = |deleted: u64| Block::mapped(def, cpus, u64::from(def.max_entries) + deleted);
        // Systems that account for all mapped memory give fewer.
        mapped(deleted).or_else(|_| mapped(deleted.min(FEWER_DELETED_SLOTS)))
    }
}

impl Keys for Entries {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn slot(&self, key: &[u8]) -> Option<u32> {
        let slot = self.0.lookup(self.0.probe(key), key)?;
        // The caller may change the value.
        self.0.mark(slot);
        Some(slot)
    }

    fn touch(&mut self, key: &[u8]) {
        self.used(key);
    }

    fn used(&mut self, key: &[u8]) -> Option<u32> {
        let slot = self.slot(key)?;
        self.0.touch(slot);
        Some(slot)
    }

    fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], u32)> + '_> {
        Box::new(self.0.slots().map(|slot| (self.0.key(slot), slot)))
    }

    fn visit(&self, from: u32, most: u32, visitor: &mut dyn FnMut(&[u8], u32)) -> Option<u32> {
        let end = from.saturating_add(most);
        let mut slots = self.0.slots_from(from);
        loop {
            match slots.next()? {
                slot if slot >= end => return Some(end),
                slot => visitor(self.0.key(slot), slot),
            }
        }
    }

    fn oldest(&self) -> Option<Box<[u8]>> {
        self.0.oldest().map(|slot| self.0.key(slot).into())
    }

    fn put(&mut self, key: &[u8]) -> u32 {
        // The map makes room first, so there is a slot.
        self.0.put(self.0.probe(key), key).unwrap_or(u32::MAX)
    }

    fn remove(&mut self, key: &[u8]) -> Option<u32> {
        self.0.remove(self.0.probe(key), key)
    }

    fn retain(&mut self, keep: &mut dyn FnMut(u32) -> bool) {
        self.0.retain(|slot, _, _| keep(slot));
    }

    fn retain_some(&mut self, from: u32, most: u32, keep: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        self.0.sweep(from, most, |slot, _, _| keep(slot))
    }

    fn least(&mut self, rank: &Rank, _: &dyn Fn(u32) -> i128) -> Option<Box<[u8]>> {
        let Rank { ref field, is_signed, is_highest } = *rank;
        let field = Field { offset: field.start as u32, bytes: field.len() as u32, is_signed, is_highest };
        self.0.least(field).map(|slot| self.0.key(slot).into())
    }

    fn end_run(&mut self) {
        self.0.end_run();
    }

    fn check_invariants(&self) {
        self.0.check_invariants();
    }
}
