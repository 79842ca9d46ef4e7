// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads and stores that cover a slice of a header.

use flowloom_wire::graph::Slice;

use super::asm::{Size, access_size};

/// An access that covers a slice: offset from the header and size, then shift and mask of the big-endian value.
pub(super) struct Window {
    pub(super) offset: i16,
    pub(super) size: Size,
    pub(super) size_bits: u32,
    pub(super) shift: u32,
    pub(super) width_bits: u32,
}

impl Window {
    /// The smallest window inside the first `limit_bytes` of the header.
    pub(super) fn of(slice: Slice, limit_bytes: u32) -> Option<Window> {
        let (start, width) = (u32::from(slice.offset_bits), u32::from(slice.width_bits));
        [1u32, 2, 4, 8].into_iter().find_map(|bytes| {
            let first = (start + width).div_ceil(8).saturating_sub(bytes).min(start / 8);
            let fits = first + bytes <= limit_bytes && (first + bytes) * 8 >= start + width;
            fits.then(|| Window {
                offset: first as i16,
                size: access_size(bytes),
                size_bits: bytes * 8,
                shift: (first + bytes) * 8 - start - width,
                width_bits: width,
            })
        })
    }
}

/// Splits the slice into parts, most significant first, that one window each covers; a single part if possible.
pub(super) fn windows(slice: Slice, limit_bytes: u32) -> Vec<Window> {
    let mut windows = Vec::new();
    let (mut start, end) = (slice.offset_bits, slice.offset_bits + u16::from(slice.width_bits));
    while start < end {
        let bytes = (start / 8 + 1..=end / 8).rev().map(|byte| byte * 8);
        let found = [end].into_iter().chain(bytes).find_map(|until| {
            let part = Slice { offset_bits: start, width_bits: u8::try_from(until - start).ok()? };
            Some((Window::of(part, limit_bytes)?, until))
        });
        let Some((window, until)) = found else { break };
        windows.push(window);
        start = until;
    }
    windows
}
