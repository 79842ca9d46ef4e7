// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages of anonymous mappings that were ever used: the others are zeros, which need not be read.
//!
//! # Source
//! [Linux Documentation/admin-guide/mm/pagemap.rst]

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bits of a word of the page map: the page is in memory, or in the swap space.
const USED: u64 = 0b11 << 62;
/// The type of the page size among the values that the kernel gives a process.
const AT_PAGESZ: u64 = 6;
/// The words of the page map that are read at once.
const WORDS: usize = 1 << 13;

/// The size of a page.
fn page_bytes() -> Option<u64> {
    let bytes = std::fs::read("/proc/self/auxv").ok()?;
    let words: Vec<u64> =
        bytes.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?))).collect();
    words.chunks_exact(2).find(|pair| pair[0] == AT_PAGESZ).map(|pair| pair[1]).filter(|size| size.is_power_of_two())
}

/// The ranges of bytes, from the start of a mapping on, whose pages were used; ascending. `None` if the system does not
/// tell.
pub(crate) fn touched(start: u64, bytes: usize) -> Option<Vec<Range<u64>>> {
    let page_bytes = page_bytes()?;
    let map = File::open("/proc/self/pagemap").ok()?;
    let (first, end) = (start / page_bytes, (start + bytes as u64).div_ceil(page_bytes));
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut words = vec![0; WORDS * 8];
    for chunk in (first..end).step_by(WORDS) {
        let count = (end - chunk).min(WORDS as u64) as usize;
        map.read_exact_at(&mut words[..count * 8], chunk * 8).ok()?;
        for (page, word) in (chunk..).zip(words[..count * 8].chunks_exact(8)) {
            if u64::from_ne_bytes(*word.first_chunk()?) & USED == 0 {
                continue;
            }
            let from = (page * page_bytes).max(start) - start;
            let to = ((page + 1) * page_bytes - start).min(bytes as u64);
            match found.last_mut() {
                Some(last) if last.end == from => last.end = to,
                _ => found.push(from..to),
            }
        }
    }
    Some(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use memmap2::MmapOptions;

    #[test]
    fn only_pages_that_were_written_are_found() {
        let bytes = 1 << 30;
        let mut memory = MmapOptions::new().len(bytes).no_reserve_swap().map_anon().unwrap();
        let start = memory.as_ptr() as u64;
        let found = touched(start, bytes).unwrap();
        assert!(found.is_empty(), "{found:?}");
        let places = [0, 5_000_000, bytes - 1];
        for place in places {
            memory[place] = 1;
        }
        let found = touched(start, bytes).unwrap();
        let covers = |place: usize| found.iter().any(|range| range.contains(&(place as u64)));
        assert!(places.iter().all(|place| covers(*place)), "{found:?}");
        // Huge pages may be larger than what was written.
        let all: u64 = found.iter().map(|range| range.end - range.start).sum();
        assert!(all <= 3 << 21 && !covers(500_000_000), "{found:?}");
    }
}
