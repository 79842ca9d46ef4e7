// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Storage of map values.
//!
//! Hash tables and small arrays keep their cells in one vector. A large array has its full size from the start, and
//! most of it is never written: its cells are in pages that are allocated on first write; cells of unallocated pages
//! read as zeros.
//!
//! ```text
//!  cell ──× cell bytes──► byte ──/ page bytes──► page ──► bytes, or zeros
//! ```

use super::backing::Cells;

/// The greatest size of an array without pages.
const FLAT_BYTES: u64 = 256 << 10;
/// The range of page sizes, unless entries are larger.
const PAGE_BYTES: std::ops::RangeInclusive<u64> = (16 << 10)..=(64 << 10);
/// The target number of pages of an array.
const PAGES: u64 = 1 << 16;
/// The limit of allocated pages of one array, in bytes.
pub(crate) const MAX_PAGED_BYTES: u64 = 2 << 30;

/// Cells of equal size.
#[derive(Debug, Clone)]
pub struct Values {
    cell_bytes: usize,
    store: Store,
}

#[derive(Debug, Clone)]
enum Store {
    Flat(Vec<u8>),
    Paged(Pages),
}

#[derive(Debug, Clone)]
struct Pages {
    /// The size of all cells.
    bytes: u64,
    /// The size of a page: a whole number of entries.
    page_bytes: u64,
    pages: Vec<Option<Box<[u8]>>>,
    /// The number of allocated pages.
    made: u64,
    /// A cell of an unallocated page.
    zeros: Box<[u8]>,
}

impl Values {
    /// Cells that are appended ([`Values::grow`]), or initialised with `bytes`.
    pub(super) fn flat(cell_bytes: u32, bytes: Vec<u8>) -> Values {
        Values { cell_bytes: cell_bytes as usize, store: Store::Flat(bytes) }
    }

    /// `entries` entries of `cells` cells each, all of them zeros.
    pub(super) fn zeros(cell_bytes: u32, entries: u32, cells: u32) -> Values {
        let entry_bytes = u64::from(cell_bytes) * u64::from(cells);
        let bytes = entry_bytes * u64::from(entries);
        if bytes <= FLAT_BYTES {
            return Values::flat(cell_bytes, vec![0; bytes as usize]);
        }
        let wanted = (bytes / PAGES).clamp(*PAGE_BYTES.start(), *PAGE_BYTES.end());
        let page_bytes = (wanted / entry_bytes).max(1) * entry_bytes;
        let pages = vec![None; bytes.div_ceil(page_bytes) as usize];
        let zeros = vec![0; cell_bytes as usize].into_boxed_slice();
        let store = Store::Paged(Pages { bytes, page_bytes, pages, made: 0, zeros });
        Values { cell_bytes: cell_bytes as usize, store }
    }

    /// All cells, if they are in one vector.
    #[inline]
    pub(crate) fn in_one(&self) -> Option<&[u8]> {
        match &self.store {
            Store::Flat(bytes) => Some(bytes),
            Store::Paged(_) => None,
        }
    }

    /// All cells, mutable, if they are in one vector.
    #[inline]
    pub(crate) fn in_one_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.store {
            Store::Flat(bytes) => Some(bytes),
            Store::Paged(_) => None,
        }
    }

    #[cfg(test)]
    pub(super) fn allocated(&self) -> u64 {
        match &self.store {
            Store::Flat(bytes) => bytes.len() as u64,
            Store::Paged(pages) => pages.made * pages.page_bytes,
        }
    }
}

impl Cells for Values {
    fn grow(&mut self, cells: u32) {
        let len = cells as usize * self.cell_bytes;
        if let Store::Flat(bytes) = &mut self.store
            && bytes.len() < len
        {
            bytes.resize(len, 0);
        }
    }

    #[inline]
    fn get(&self, cell: u64) -> Option<&[u8]> {
        match &self.store {
            Store::Flat(bytes) => {
                let start = usize::try_from(cell).ok()?.checked_mul(self.cell_bytes)?;
                bytes.get(start..start.checked_add(self.cell_bytes)?)
            }
            Store::Paged(pages) => pages.get(cell, self.cell_bytes),
        }
    }

    #[inline]
    fn get_mut(&mut self, cell: u64) -> Option<&mut [u8]> {
        match &mut self.store {
            Store::Flat(bytes) => {
                let start = usize::try_from(cell).ok()?.checked_mul(self.cell_bytes)?;
                bytes.get_mut(start..start.checked_add(self.cell_bytes)?)
            }
            Store::Paged(pages) => pages.get_mut(cell, self.cell_bytes),
        }
    }

    #[inline]
    fn has_room(&self, cell: u64) -> bool {
        match &self.store {
            Store::Flat(_) => true,
            Store::Paged(pages) => pages.has_room(cell, self.cell_bytes),
        }
    }

    fn is_untouched(&self, cell: u64) -> bool {
        match &self.store {
            Store::Flat(_) => false,
            Store::Paged(pages) => {
                pages.place(cell, self.cell_bytes).is_some_and(|(page, _)| pages.pages[page].is_none())
            }
        }
    }

    fn is_paged(&self) -> bool {
        matches!(self.store, Store::Paged(_))
    }

    fn entries(&self, cpus: u32) -> Box<dyn Iterator<Item = (u32, &[u8])> + '_> {
        let entry_bytes = (self.cell_bytes * cpus as usize).max(1);
        match &self.store {
            Store::Flat(bytes) => {
                Box::new(bytes.chunks_exact(entry_bytes).enumerate().map(|(slot, entry)| (slot as u32, entry)))
            }
            Store::Paged(pages) => {
                let made = pages.pages.iter().enumerate().filter_map(|(page, bytes)| Some((page, bytes.as_deref()?)));
                let (page_bytes, all) = (pages.page_bytes, pages.bytes);
                Box::new(made.flat_map(move |(page, bytes)| {
                    let first = page as u64 * page_bytes;
                    let end = (all - first).min(page_bytes) as usize;
                    let slot = first / entry_bytes as u64;
                    let entries = bytes[..end].chunks_exact(entry_bytes).enumerate();
                    entries.map(move |(at, entry)| ((slot + at as u64) as u32, entry))
                }))
            }
        }
    }

    fn slot(&self, slot: u32, cpus: u32) -> &[u8] {
        let len = self.cell_bytes * cpus as usize;
        match &self.store {
            Store::Flat(bytes) => bytes.get(slot as usize * len..(slot as usize + 1) * len).unwrap_or_default(),
            Store::Paged(_) => &[],
        }
    }

    fn slot_mut(&mut self, slot: u32, cpus: u32) -> &mut [u8] {
        let len = self.cell_bytes * cpus as usize;
        match &mut self.store {
            Store::Flat(bytes) => bytes.get_mut(slot as usize * len..(slot as usize + 1) * len).unwrap_or_default(),
            Store::Paged(_) => &mut [],
        }
    }

    fn len(&self) -> u64 {
        match &self.store {
            Store::Flat(bytes) => bytes.len() as u64,
            Store::Paged(pages) => pages.bytes,
        }
    }
}

impl Pages {
    /// The page of a cell, and the byte in it.
    fn place(&self, cell: u64, cell_bytes: usize) -> Option<(usize, usize)> {
        let start = cell.checked_mul(cell_bytes as u64).filter(|start| *start < self.bytes)?;
        Some(((start / self.page_bytes) as usize, (start % self.page_bytes) as usize))
    }

    fn get(&self, cell: u64, cell_bytes: usize) -> Option<&[u8]> {
        let (page, at) = self.place(cell, cell_bytes)?;
        match &self.pages[page] {
            Some(bytes) => bytes.get(at..at + cell_bytes),
            None => Some(&self.zeros),
        }
    }

    fn has_room(&self, cell: u64, cell_bytes: usize) -> bool {
        let Some((page, _)) = self.place(cell, cell_bytes) else { return false };
        self.pages[page].is_some() || (self.made + 1) * self.page_bytes <= MAX_PAGED_BYTES
    }

    fn get_mut(&mut self, cell: u64, cell_bytes: usize) -> Option<&mut [u8]> {
        let (page, at) = self.place(cell, cell_bytes)?;
        if self.pages[page].is_none() {
            if (self.made + 1) * self.page_bytes > MAX_PAGED_BYTES {
                return None;
            }
            self.pages[page] = Some(vec![0; self.page_bytes as usize].into_boxed_slice());
            self.made += 1;
        }
        self.pages[page].as_mut()?.get_mut(at..at + cell_bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_allocated_by_the_first_write() {
        // The largest array of Katran, with 4 cells an entry.
        let mut values = Values::zeros(4, 33_555_984, 4);
        let last = 33_555_984 * 4 - 1;
        assert_eq!((values.allocated(), values.get(last)), (0, Some(&[0; 4][..])));
        assert_eq!(values.get(last + 1), None);
        assert_eq!(values.get_mut(last + 1), None);
        values.get_mut(last).unwrap().copy_from_slice(&[1, 2, 3, 4]);
        values.get_mut(5).unwrap().copy_from_slice(&[5; 4]);
        assert!(values.allocated() <= 2 << 16, "{}", values.allocated());
        assert_eq!((values.get(last), values.get(4)), (Some(&[1, 2, 3, 4][..]), Some(&[0; 4][..])));
        let set = |(slot, entry): (u32, &[u8])| entry.iter().any(|byte| *byte != 0).then(|| (slot, entry.to_vec()));
        let found: Vec<(u32, Vec<u8>)> = values.entries(4).filter_map(set).collect();
        let entry = |at: usize, value: [u8; 4]| {
            let mut entry = vec![0; 16];
            entry[at * 4..][..4].copy_from_slice(&value);
            entry
        };
        assert_eq!(found, [(1, entry(1, [5; 4])), (33_555_983, entry(3, [1, 2, 3, 4]))]);
    }

    #[test]
    fn memory_of_one_array_is_limited() {
        // A page for each entry: three entries exceed the limit.
        let mut values = Values::zeros(1 << 30, 3, 1);
        assert!(values.get_mut(0).is_some() && values.get_mut(2).is_some());
        assert!(!values.has_room(1) && values.get_mut(1).is_none());
        assert!(values.has_room(2) && values.get(1).is_some());
    }
}
