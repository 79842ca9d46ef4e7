// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of entries that definitions leave to user space.

use flowloom_isa::{MapDef, MapKind};

/// The number of entries of a map whose definition leaves it to user space, which often sets it to the number of CPUs.
/// One number for all machines makes the function the same everywhere.
const DEFAULT_ENTRIES: u32 = 1024;

/// The same for a CPU map: no kernel is built for fewer CPUs than this, and none accepts more entries than it has CPUs.
const DEFAULT_CPUS: u32 = 64;

/// The same for a ring buffer, in bytes.
const DEFAULT_RING_BYTES: u32 = 256 << 10;

/// The size of a page, the unit of ring buffers in the kernel.
const PAGE_BYTES: u32 = 4096;

/// Completes a definition as loaders do, with numbers that do not depend on the machine; returns a note about them.
pub(super) fn complete(def: &mut MapDef) -> Option<String> {
    let default = match def.kind {
        MapKind::Other(_) => return None,
        MapKind::RingBuf => DEFAULT_RING_BYTES,
        MapKind::Cpumap => DEFAULT_CPUS,
        _ => DEFAULT_ENTRIES,
    };
    if def.max_entries == 0 {
        def.max_entries = default;
        return Some(format!("map `{}` leaves its number of entries to user space: {default} are taken", def.name));
    }
    if def.kind == MapKind::RingBuf {
        // A power of two of whole pages; what exceeds 32 bits is refused later.
        let pages = def.max_entries.div_ceil(PAGE_BYTES).checked_next_power_of_two();
        if let Some(bytes) = pages.and_then(|pages| pages.checked_mul(PAGE_BYTES)) {
            def.max_entries = bytes;
        }
    }
    None
}
