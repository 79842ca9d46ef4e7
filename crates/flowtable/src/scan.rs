// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The comparison of all words of a bucket with one, at once.
#![allow(unsafe_code, reason = "intrinsics of the processor")]

use crate::raw::{Bucket, WORDS};

/// A way to compare words.
pub(crate) trait Scan {
    /// A bit for each word that equals `wanted` in the bits that are not `ignored`. Those of `wanted` are zeros.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn equal(bucket: &Bucket, wanted: u32, ignored: u32) -> u32;
}

/// The instructions that all processors of the target have.
pub(crate) enum Baseline {}

/// AVX-512: all words at once.
#[cfg(target_arch = "x86_64")]
pub(crate) enum Avx512 {}

/// [`Scan::equal`] with the instructions that all processors of the target have.
#[inline(always)]
pub(crate) fn equal(bucket: &Bucket, wanted: u32, ignored: u32) -> u32 {
    // SAFETY: the processor has the baseline of its architecture.
    unsafe { Baseline::equal(bucket, wanted, ignored) }
}

const ALL: u32 = (1 << WORDS) - 1;

impl Scan for Baseline {
    #[inline(always)]
    unsafe fn equal(bucket: &Bucket, wanted: u32, ignored: u32) -> u32 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE2 belongs to every x86-64 processor.
        unsafe {
            use std::arch::x86_64::{
                __m128i, _mm_andnot_si128, _mm_cmpeq_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32,
                _mm_set1_epi32,
            };
            let quarters: &[__m128i; 4] = bytemuck::cast_ref(bucket);
            let (wanted, ignored) = (_mm_set1_epi32(wanted as i32), _mm_set1_epi32(ignored as i32));
            let [a, b, c, d] = quarters.map(|words| _mm_cmpeq_epi32(_mm_andnot_si128(ignored, words), wanted));
            let bytes = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
            _mm_movemask_epi8(bytes) as u32 & ALL
        }
        #[cfg(not(target_arch = "x86_64"))]
        portable(bucket, wanted, ignored)
    }
}

#[cfg(target_arch = "x86_64")]
impl Scan for Avx512 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn equal(bucket: &Bucket, wanted: u32, ignored: u32) -> u32 {
        use std::arch::x86_64::{_mm512_load_si512, _mm512_set1_epi32, _mm512_testn_epi32_mask, _mm512_xor_si512};
        // SAFETY: a bucket is 64 bytes, aligned to as many.
        let words = unsafe { _mm512_load_si512(std::ptr::from_ref(bucket).cast()) };
        let differing = _mm512_xor_si512(words, _mm512_set1_epi32(wanted as i32));
        u32::from(_mm512_testn_epi32_mask(differing, _mm512_set1_epi32(!ignored as i32))) & ALL
    }
}

/// Whether the processor has the instructions of [`Avx512`], and those of its generation for integers.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn has_avx512() -> bool {
    use std::arch::is_x86_feature_detected;
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2")
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn portable(bucket: &Bucket, wanted: u32, ignored: u32) -> u32 {
    let mut found = 0;
    for (i, word) in bucket.words.iter().enumerate() {
        found |= u32::from(word & !ignored == wanted) << i;
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_ways_to_scan_agree(
            words in prop::array::uniform15(0_u32..4),
            spilled in 0_u16..3,
            shift in 0_u32..32,
            wanted in 0_u32..4,
            ignored in any::<u32>(),
        ) {
            let bucket = Bucket { words: words.map(|word| word.rotate_left(shift)), spilled, reach: 0 };
            let wanted = wanted.rotate_left(shift);
            for (wanted, ignored) in [(wanted, 0), (wanted & !ignored, ignored), (0, 0), (0, ignored)] {
                prop_assert_eq!(equal(&bucket, wanted, ignored), portable(&bucket, wanted, ignored));
                #[cfg(target_arch = "x86_64")]
                if has_avx512() {
                    // SAFETY: the processor has the instructions.
                    let found = unsafe { Avx512::equal(&bucket, wanted, ignored) };
                    prop_assert_eq!(found, portable(&bucket, wanted, ignored));
                }
            }
        }
    }
}
