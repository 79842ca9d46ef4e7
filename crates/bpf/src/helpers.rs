//! Helpers by number and name: what assembler, disassembler, program check and engines agree on.

use crate::helper_names::NAMES;
use crate::insn::helper;

/// One helper of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelperInfo {
    /// Its number in the kernel's `bpf.h`.
    pub number: i32,
    /// Its name without `bpf_`.
    pub name: &'static str,
    /// How many of `r1` to `r5` it reads.
    pub args: usize,
}

const fn info(number: i32, name: &'static str, args: usize) -> HelperInfo {
    HelperInfo { number, name, args }
}

/// The first number of helpers that no kernel has: Flowloom's own.
pub const FIRST_PRIVATE: i32 = 0x4000_0000;
/// Flag of `fl_evict`: the field is in two's complement.
pub const EVICT_SIGNED: u64 = 1 << 8;
/// Flag of `fl_evict`: the entry with the largest value goes instead of that with the smallest.
pub const EVICT_HIGHEST: u64 = 1 << 9;

/// The helpers that Flowloom runs, ascending by number.
///
/// Its own are, with what they take after the map or the context:
///
/// - `fl_clone(ctx, port)`: a copy of the packet as it is leaves by the port.
/// - `fl_emit(ctx, port, bytes, len)`: a packet of these bytes leaves by the port.
/// - `fl_evict(map, offset, size | flags)`: the entry of a hash table goes that has the smallest value in the field of
///   `size` bytes at `offset`, or with [`EVICT_HIGHEST`] the largest; of several the one with the smallest key. Gives 0, or
///   -ENOENT where there is none.
pub const HELPERS: [HelperInfo; 12] = [
    info(helper::MAP_LOOKUP_ELEM, "map_lookup_elem", 2),
    info(helper::MAP_UPDATE_ELEM, "map_update_elem", 4),
    info(helper::MAP_DELETE_ELEM, "map_delete_elem", 2),
    info(helper::KTIME_GET_NS, "ktime_get_ns", 0),
    info(helper::GET_PRANDOM_U32, "get_prandom_u32", 0),
    info(helper::GET_SMP_PROCESSOR_ID, "get_smp_processor_id", 0),
    info(helper::REDIRECT, "redirect", 2),
    info(helper::XDP_ADJUST_HEAD, "xdp_adjust_head", 2),
    info(helper::REDIRECT_MAP, "redirect_map", 3),
    info(helper::FL_CLONE, "fl_clone", 2),
    info(helper::FL_EMIT, "fl_emit", 4),
    info(helper::FL_EVICT, "fl_evict", 3),
];

/// Whether the helper is one of Flowloom's own, which no kernel has.
pub fn is_private(number: i32) -> bool {
    number >= FIRST_PRIVATE
}

/// What is known of the helper with this number, if Flowloom runs it.
pub fn by_number(number: i32) -> Option<&'static HelperInfo> {
    HELPERS.iter().find(|h| h.number == number)
}

/// The name of a helper, whether Flowloom runs it or not.
pub fn name_of(number: i32) -> Option<&'static str> {
    by_number(number).map(|h| h.name).or_else(|| NAMES.get(usize::try_from(number).ok()?).copied())
}

/// The number of the helper with this name, with or without `bpf_` before it.
pub fn number_of(name: &str) -> Option<i32> {
    let name = name.strip_prefix("bpf_").unwrap_or(name);
    let ours = HELPERS.iter().find(|h| h.name == name).map(|h| h.number);
    ours.or_else(|| NAMES.iter().position(|known| *known == name).and_then(|number| i32::try_from(number).ok()))
}
