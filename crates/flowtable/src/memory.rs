// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of tables: anonymous mappings, zeros at first, resident as they are used.
#![allow(unsafe_code, reason = "parts of a mapping are addressed by pointers")]

use memmap2::{MmapMut, MmapOptions};

use crate::error::TableError;

/// The size of a huge page in bytes. Smaller tables fit the caches and their address translation.
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// The alignment of parts in bytes: a cache line.
const LINE_BYTES: u64 = 64;

/// One mapping, which begins at a huge page if it is as large as one.
#[derive(Debug)]
pub(crate) struct Memory {
    mapping: MmapMut,
    /// Where the first part begins.
    start: usize,
    bytes: u64,
}

/// The sizes of parts, one after the other, each aligned to a cache line.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    bytes: u64,
}

impl Parts {
    /// Adds a part of `count` times `each_bytes` bytes; returns where it begins.
    pub(crate) fn add(&mut self, count: u64, each_bytes: u64) -> u64 {
        let start = self.bytes.next_multiple_of(LINE_BYTES);
        // A size beyond the address space is refused when it is mapped.
        self.bytes = count.saturating_mul(each_bytes).saturating_add(start).min(u64::MAX / 4);
        start
    }

    /// Maps all parts; huge pages are asked for if they fill one.
    pub(crate) fn map(&self) -> Result<Memory, TableError> {
        let is_huge = self.bytes >= HUGE_PAGE_BYTES;
        // The tail of the last huge page is mapped too, otherwise it would be of small pages.
        let bytes = if is_huge { self.bytes.next_multiple_of(HUGE_PAGE_BYTES) } else { self.bytes.max(1) };
        let failed = |source| TableError::Memory { bytes, source };
        let mapped = usize::try_from(if is_huge { bytes + HUGE_PAGE_BYTES } else { bytes });
        let mapped = mapped.map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
        // Most of a table may never be used: no swap space is reserved for it.
        let mapping = MmapOptions::new().len(mapped).no_reserve_swap().map_anon().map_err(failed)?;
        let start = if is_huge { mapping.as_ptr().align_offset(HUGE_PAGE_BYTES as usize) } else { 0 };
        #[cfg(target_os = "linux")]
        if is_huge {
            // A kernel without huge pages refuses; small pages serve as well, with more misses of the TLB.
            let _ = mapping.advise_range(memmap2::Advice::HugePage, start, bytes as usize);
        }
        Ok(Memory { mapping, start, bytes })
    }
}

impl Memory {
    /// The address of a part, aligned to a cache line. It may be written: the mapping is private and nothing else
    /// refers to its bytes.
    pub(crate) fn part<T>(&mut self, start: u64) -> *mut T {
        assert!(start <= self.bytes && align_of::<T>() as u64 <= LINE_BYTES);
        // SAFETY: the offset is within the mapping.
        unsafe { self.mapping.as_mut_ptr().add(self.start + start as usize).cast() }
    }

    /// The mapped bytes, resident or not.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}
