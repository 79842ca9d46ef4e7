// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The allocator of the benchmark: large allocations are on huge pages, so that peers have them, too.
#![allow(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The system's allocator, whose large allocations begin at a huge page and ask for huge pages.
pub(crate) struct HugePages;

fn aligned(layout: Layout) -> Layout {
    let is_large = layout.size() >= HUGE_PAGE_BYTES;
    if is_large { layout.align_to(HUGE_PAGE_BYTES).unwrap_or(layout) } else { layout }
}

fn advise(at: *mut u8, layout: Layout) -> *mut u8 {
    if layout.size() >= HUGE_PAGE_BYTES && !at.is_null() {
        // SAFETY: the range has just been allocated; the advice changes no contents.
        unsafe { libc::madvise(at.cast(), layout.size(), libc::MADV_HUGEPAGE) };
    }
    at
}

// SAFETY: all is done by the system's allocator, with a layout that depends on the given one only. The provided
// `realloc` allocates, copies and frees.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        advise(unsafe { System.alloc(aligned(layout)) }, layout)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's; `alloc` used the same layout.
        unsafe { System.dealloc(at, aligned(layout)) }
    }
}
