// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The prefetch instruction.
#![allow(unsafe_code, reason = "the standard library has prefetching only as an unsafe intrinsic")]

/// Loads the cache line of an address into all cache levels; does nothing where the processor has no such instruction.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE, which every x86-64 processor has, includes the instruction. It changes no memory and ignores
    // addresses that are not mapped.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
