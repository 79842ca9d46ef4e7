// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The prefetch instructions.
#![allow(unsafe_code, reason = "the standard library has prefetching only as unsafe intrinsics")]

/// Loads the cache line of an address into all cache levels; does nothing where the processor has no such instruction.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
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

/// Loads the line of an address, and takes it from the caches of other cores, for a store.
#[inline(always)]
pub fn prefetch_to_write<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction changes no memory and ignores addresses that are not mapped. Processors in 64-bit mode that
    // lack it do nothing [Intel SDM, PREFETCHW].
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
