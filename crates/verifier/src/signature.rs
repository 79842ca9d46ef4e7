//! The signatures of helpers.

use flowloom_isa::MapKind;
use flowloom_isa::insn::helper;

/// The type of an argument.
#[derive(Debug, Clone, Copy)]
pub(super) enum Want {
    /// A number.
    Number,
    /// A number or an address: the arguments of `%d` and `%s`.
    Anything,
    /// The context.
    Context,
    /// A map of a suitable kind, described in words.
    Map(fn(MapKind) -> bool, &'static str),
    /// A key of the map, read.
    Key,
    /// A value of the map, read.
    Value,
    /// Memory of a fixed size.
    Fixed { bytes: usize, usage: Usage },
    /// Memory whose size is the next argument; null is allowed if that may be 0.
    Sized { usage: Usage },
    /// The size of the memory of the argument before.
    Length { zero: bool },
    /// A constant size: that of the record that is returned.
    ConstantLength,
    /// A reserved record, which is released.
    Record,
    /// A lock in a map value.
    Lock,
    /// A function of the program.
    Callback,
    /// The context of the callback: any value.
    ForCallback,
    /// A constant, terminated string.
    Text,
}

/// How a helper uses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    Reads,
    /// Writes all of it, always.
    Fills,
    /// Writes some of it, or nothing on failure; the rest is unchanged.
    MayFill,
    /// Reads it, and writes its results to parts of it.
    Answers,
}

/// The type of the result.
#[derive(Debug, Clone, Copy)]
pub(super) enum Gives {
    /// A number in this range.
    Number(i64, i64),
    /// Any number.
    AnyNumber,
    /// The address of a map value, or null; from a map of maps, the address of a map.
    ValueOrNull,
    /// The address of a record, or null.
    RecordOrNull,
    /// Nothing that can be read.
    Nothing,
}

/// The signature of a helper.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signature {
    pub(super) number: i32,
    pub(super) wants: &'static [Want],
    pub(super) gives: Gives,
    /// Whether keys, values and buffers may be in the packet.
    pub(super) packet: bool,
    /// Whether it moves the packet, which invalidates packet addresses.
    pub(super) moves: bool,
    /// Whether it reads memory at unchecked addresses: to probe them, or to print strings.
    pub(super) probes: bool,
}

const READ: Want = Want::Sized { usage: Usage::Reads };
const FILL: Want = Want::Sized { usage: Usage::Fills };
const MAY_FILL: Want = Want::Sized { usage: Usage::MayFill };
const ANSWER: Want = Want::Sized { usage: Usage::Answers };
const SOME: Want = Want::Length { zero: false };
const ANY: Want = Want::Length { zero: true };
/// 0, or a negative error number.
const STATUS: Gives = Gives::Number(-4095, 0);

const fn plain(number: i32, wants: &'static [Want], gives: Gives) -> Signature {
    Signature { number, wants, gives, packet: false, moves: false, probes: false }
}

const fn packets(number: i32, wants: &'static [Want], gives: Gives) -> Signature {
    Signature { packet: true, ..plain(number, wants, gives) }
}

const fn moves(number: i32, wants: &'static [Want]) -> Signature {
    Signature { moves: true, ..plain(number, wants, STATUS) }
}

const fn probes(number: i32, wants: &'static [Want], gives: Gives) -> Signature {
    Signature { probes: true, ..plain(number, wants, gives) }
}

const fn looked_up(kind: MapKind) -> bool {
    matches!(
        kind,
        MapKind::Hash
            | MapKind::Array
            | MapKind::PerCpuHash
            | MapKind::PerCpuArray
            | MapKind::LruHash
            | MapKind::LruPerCpuHash
            | MapKind::LpmTrie
            | MapKind::ArrayOfMaps
            | MapKind::HashOfMaps
            | MapKind::Devmap
            | MapKind::DevmapHash
            | MapKind::Xskmap
    )
}

fn walked(kind: MapKind) -> bool {
    kind.has_values() && kind != MapKind::LpmTrie
}

fn ring(kind: MapKind) -> bool {
    kind == MapKind::RingBuf
}

const VALUES: Want = Want::Map(MapKind::has_values, "a map with values");
const RING: Want = Want::Map(ring, "a ring buffer");

use Want::{Anything, Callback, Context, ForCallback, Key, Number};

/// By number, ascending.
pub(super) const SIGNATURES: [Signature; 45] = [
    packets(
        helper::MAP_LOOKUP_ELEM,
        &[Want::Map(looked_up, "a map with values, of maps or of devices"), Key],
        Gives::ValueOrNull,
    ),
    packets(helper::MAP_UPDATE_ELEM, &[VALUES, Key, Want::Value, Number], STATUS),
    packets(helper::MAP_DELETE_ELEM, &[VALUES, Key], STATUS),
    plain(helper::KTIME_GET_NS, &[], Gives::AnyNumber),
    probes(helper::TRACE_PRINTK, &[READ, SOME], Gives::AnyNumber),
    plain(helper::GET_PRANDOM_U32, &[], Gives::AnyNumber),
    plain(helper::GET_SMP_PROCESSOR_ID, &[], Gives::Number(0, u32::MAX as i64)),
    plain(
        helper::TAIL_CALL,
        &[Context, Want::Map(|kind| matches!(kind, MapKind::ProgArray), "a map of programs"), Number],
        Gives::Nothing,
    ),
    plain(helper::REDIRECT, &[Number, Number], Gives::Number(0, 4)),
    plain(
        helper::PERF_EVENT_OUTPUT,
        &[Context, Want::Map(|kind| matches!(kind, MapKind::PerfEventArray), "a perf event array"), Number, READ, ANY],
        STATUS,
    ),
    packets(helper::CSUM_DIFF, &[READ, ANY, READ, ANY, Number], Gives::AnyNumber),
    plain(helper::GET_NUMA_NODE_ID, &[], Gives::AnyNumber),
    moves(helper::XDP_ADJUST_HEAD, &[Context, Number]),
    plain(
        helper::REDIRECT_MAP,
        &[Want::Map(MapKind::is_redirect, "a map of devices, CPUs or sockets"), Number, Number],
        Gives::Number(0, 4),
    ),
    moves(helper::XDP_ADJUST_META, &[Context, Number]),
    moves(helper::XDP_ADJUST_TAIL, &[Context, Number]),
    plain(helper::FIB_LOOKUP, &[Context, ANSWER, SOME, Number], Gives::AnyNumber),
    plain(helper::SPIN_LOCK, &[Want::Lock], Gives::Nothing),
    plain(helper::SPIN_UNLOCK, &[Want::Lock], Gives::Nothing),
    plain(helper::STRTOL, &[READ, SOME, Number, Want::Fixed { bytes: 8, usage: Usage::MayFill }], Gives::AnyNumber),
    plain(helper::STRTOUL, &[READ, SOME, Number, Want::Fixed { bytes: 8, usage: Usage::MayFill }], Gives::AnyNumber),
    probes(helper::PROBE_READ_KERNEL, &[FILL, ANY, Anything], STATUS),
    probes(helper::PROBE_READ_KERNEL_STR, &[MAY_FILL, ANY, Anything], Gives::AnyNumber),
    plain(helper::JIFFIES64, &[], Gives::AnyNumber),
    plain(helper::KTIME_GET_BOOT_NS, &[], Gives::AnyNumber),
    plain(helper::RINGBUF_OUTPUT, &[RING, READ, ANY, Number], STATUS),
    plain(helper::RINGBUF_RESERVE, &[RING, Want::ConstantLength, Number], Gives::RecordOrNull),
    plain(helper::RINGBUF_SUBMIT, &[Want::Record, Number], Gives::Nothing),
    plain(helper::RINGBUF_DISCARD, &[Want::Record, Number], Gives::Nothing),
    plain(helper::RINGBUF_QUERY, &[RING, Number], Gives::AnyNumber),
    plain(helper::KTIME_GET_COARSE_NS, &[], Gives::AnyNumber),
    plain(
        helper::CHECK_MTU,
        &[Context, Number, Want::Fixed { bytes: 4, usage: Usage::Answers }, Number, Number],
        Gives::AnyNumber,
    ),
    plain(
        helper::FOR_EACH_MAP_ELEM,
        &[Want::Map(walked, "a hash or an array"), Callback, ForCallback, Number],
        Gives::AnyNumber,
    ),
    probes(helper::SNPRINTF, &[MAY_FILL, ANY, Want::Text, READ, ANY], Gives::AnyNumber),
    probes(helper::TRACE_VPRINTK, &[READ, SOME, READ, ANY], Gives::AnyNumber),
    plain(helper::LOOP, &[Number, Callback, ForCallback, Number], Gives::AnyNumber),
    plain(helper::STRNCMP, &[READ, SOME, Want::Text], Gives::AnyNumber),
    plain(helper::XDP_GET_BUFF_LEN, &[Context], Gives::Number(0, u32::MAX as i64)),
    plain(helper::XDP_LOAD_BYTES, &[Context, Number, MAY_FILL, SOME], STATUS),
    plain(helper::XDP_STORE_BYTES, &[Context, Number, READ, SOME], STATUS),
    packets(
        helper::MAP_LOOKUP_PERCPU_ELEM,
        &[Want::Map(MapKind::is_per_cpu, "a map with a value for each CPU"), Key, Number],
        Gives::ValueOrNull,
    ),
    plain(helper::KTIME_GET_TAI_NS, &[], Gives::AnyNumber),
    plain(helper::FL_CLONE, &[Context, Number], Gives::Number(0, 0)),
    packets(helper::FL_EMIT, &[Context, Number, READ, ANY], STATUS),
    plain(helper::FL_EVICT, &[Want::Map(|kind| matches!(kind, MapKind::Hash), "a hash"), Number, Number], STATUS),
];

/// The signature of a helper.
pub(super) fn of(number: i32) -> Option<&'static Signature> {
    SIGNATURES.binary_search_by_key(&number, |signature| signature.number).ok().map(|at| &SIGNATURES[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowloom_isa::helpers::HELPERS;

    #[test]
    fn every_helper_has_a_signature() {
        let numbers: Vec<i32> = SIGNATURES.iter().map(|signature| signature.number).collect();
        assert_eq!(numbers, HELPERS.map(|helper| helper.number));
        for (signature, helper) in SIGNATURES.iter().zip(HELPERS) {
            // It reads as many registers as its format has arguments.
            assert_eq!(signature.wants.len(), helper.args, "{}", helper.name);
        }
    }
}
