// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of helpers: what assembler, verifier, interpreter, dataflow, pipelines and kernel rewriting know of each.

mod names;
mod signature;

use crate::MapKind;
use crate::insn::helper;
use names::NAMES;
pub use signature::{Effect, Implicit, Parameter, Returns, Usage};

/// A helper.
#[derive(Debug, Clone, Copy)]
pub struct Helper {
    /// Its number in the kernel's `bpf.h`.
    pub number: i32,
    /// Its name without `bpf_`.
    pub name: &'static str,
    /// Its parameters, one for each register that it reads from `r1` on.
    pub parameters: &'static [Parameter],
    /// What it uses besides.
    pub implicit: Implicit,
    /// The type of its result.
    pub returns: Returns,
    /// Its effect.
    pub effect: Effect,
    /// Whether keys, values and buffers may be in the packet.
    pub takes_packet: bool,
    /// Whether it reads memory at unchecked addresses: to probe them ([`Effect::Probe`]), or to print strings.
    pub probes: bool,
    /// Whether hardware pipelines have a block for it.
    pub in_pipelines: bool,
}

const fn helper(
    number: i32,
    name: &'static str,
    parameters: &'static [Parameter],
    returns: Returns,
    effect: Effect,
) -> Helper {
    let probes = matches!(effect, Effect::Probe);
    let (implicit, takes_packet, in_pipelines) = (Implicit::Nothing, false, false);
    Helper { number, name, parameters, implicit, returns, effect, takes_packet, probes, in_pipelines }
}

impl Helper {
    const fn with_packet_memory(self) -> Helper {
        Helper { takes_packet: true, ..self }
    }

    const fn with(self, implicit: Implicit) -> Helper {
        Helper { implicit, ..self }
    }

    const fn probing(self) -> Helper {
        Helper { probes: true, ..self }
    }

    const fn in_pipelines(self) -> Helper {
        Helper { in_pipelines: true, ..self }
    }

    /// Whether it moves the packet, which invalidates packet addresses.
    pub fn moves_packet(&self) -> bool {
        self.effect == Effect::MovePacket
    }
}

/// The first number of Flowloom's own helpers, which no kernel has.
pub const FIRST_PRIVATE: i32 = 0x4000_0000;
/// Flag of `fl_evict`: the field is signed (two's complement).
pub const EVICT_SIGNED: u64 = 1 << 8;
/// Flag of `fl_evict`: evict the entry with the largest value instead of the smallest.
pub const EVICT_HIGHEST: u64 = 1 << 9;

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

use Parameter::{
    Callback, CallbackContext, ConstantLength, Context, Fixed, Key, Lock, Map, Number, Record, Text, Value,
};

const READ: Parameter = Parameter::Sized(Usage::Read);
const FILL: Parameter = Parameter::Sized(Usage::Fill);
const MAY_FILL: Parameter = Parameter::Sized(Usage::MayFill);
const READ_WRITE: Parameter = Parameter::Sized(Usage::ReadWrite);
const LEN: Parameter = Parameter::Length { zero: false };
const LEN_OR_ZERO: Parameter = Parameter::Length { zero: true };
const VALUES: Parameter = Map(MapKind::has_values, "a map with values");
const RING: Parameter = Map(ring, "a ring buffer");
/// 0, or a negative error number.
const STATUS: Returns = Returns::Number(-4095, 0);

/// The helpers that Flowloom runs, ascending by number, with the semantics of the kernel's. What only makes sense on a
/// CPU is defined as follows:
///
/// - `get_smp_processor_id` gives the CPU of the run record, `get_numa_node_id` 0.
/// - `ktime_get_boot_ns`, `ktime_get_coarse_ns` and `ktime_get_tai_ns` give the packet's arrival time as `ktime_get_ns`
///   does; `jiffies64` counts it in units of 4 ms.
/// - `probe_read_kernel` and `probe_read_kernel_str` read what the program has addresses of; of all else, kernel
///   addresses fail with -EFAULT, and others (those near NULL, those of processes) with -ERANGE.
/// - `trace_printk` and `trace_vprintk` return the length of the text, which is discarded.
///
/// Flowloom's own helpers:
///
/// - `fl_clone(ctx, port)`: sends a copy of the packet in its current state through the port.
/// - `fl_emit(ctx, port, bytes, len)`: sends a packet of these bytes through the port.
/// - `fl_evict(map, offset, size | flags)`: evicts the entry of a hash table with the smallest value in the field of
///   `size` bytes at `offset`, or with [`EVICT_HIGHEST`] the largest; of several the one with the smallest key. Returns
///   0, or -ENOENT if the table is empty.
/// - `fl_parse(ctx, question)`: answers a [`Question`](flowloom_wire::Question) about the headers of the packet in its
///   current state by [`Program::headers`](crate::Program::headers); 0 for a number that is no question.
pub const HELPERS: [Helper; 46] = [
    helper(
        helper::MAP_LOOKUP_ELEM,
        "map_lookup_elem",
        &[Map(looked_up, "a map with values, of maps or of devices"), Key],
        Returns::ValueOrNull,
        Effect::Lookup,
    )
    .with_packet_memory()
    .in_pipelines(),
    helper(helper::MAP_UPDATE_ELEM, "map_update_elem", &[VALUES, Key, Value, Number], STATUS, Effect::Update)
        .with_packet_memory()
        .in_pipelines(),
    helper(helper::MAP_DELETE_ELEM, "map_delete_elem", &[VALUES, Key], STATUS, Effect::Delete)
        .with_packet_memory()
        .in_pipelines(),
    helper(helper::KTIME_GET_NS, "ktime_get_ns", &[], Returns::AnyNumber, Effect::Environment).in_pipelines(),
    helper(helper::TRACE_PRINTK, "trace_printk", &[READ, LEN], Returns::AnyNumber, Effect::Trace)
        .with(Implicit::Registers)
        .probing(),
    helper(helper::GET_PRANDOM_U32, "get_prandom_u32", &[], Returns::AnyNumber, Effect::Random).in_pipelines(),
    helper(
        helper::GET_SMP_PROCESSOR_ID,
        "get_smp_processor_id",
        &[],
        Returns::Number(0, u32::MAX as i64),
        Effect::Environment,
    )
    .in_pipelines(),
    helper(
        helper::TAIL_CALL,
        "tail_call",
        &[Context, Map(|kind| matches!(kind, MapKind::ProgArray), "a map of programs"), Number],
        Returns::Nothing,
        Effect::TailCall,
    )
    .in_pipelines(),
    helper(helper::REDIRECT, "redirect", &[Number, Number], Returns::Number(0, 4), Effect::Redirect).in_pipelines(),
    helper(
        helper::PERF_EVENT_OUTPUT,
        "perf_event_output",
        &[
            Context,
            Map(|kind| matches!(kind, MapKind::PerfEventArray), "a perf event array"),
            Number,
            READ,
            LEN_OR_ZERO,
        ],
        STATUS,
        Effect::Event,
    )
    .with(Implicit::Packet)
    .in_pipelines(),
    helper(
        helper::CSUM_DIFF,
        "csum_diff",
        &[READ, LEN_OR_ZERO, READ, LEN_OR_ZERO, Number],
        Returns::AnyNumber,
        Effect::Pure,
    )
    .with_packet_memory(),
    helper(helper::GET_NUMA_NODE_ID, "get_numa_node_id", &[], Returns::AnyNumber, Effect::Environment).in_pipelines(),
    helper(helper::XDP_ADJUST_HEAD, "xdp_adjust_head", &[Context, Number], STATUS, Effect::MovePacket),
    helper(
        helper::REDIRECT_MAP,
        "redirect_map",
        &[Map(MapKind::is_redirect, "a map of devices, CPUs or sockets"), Number, Number],
        Returns::Number(0, 4),
        Effect::RedirectMap,
    )
    .in_pipelines(),
    helper(helper::XDP_ADJUST_META, "xdp_adjust_meta", &[Context, Number], STATUS, Effect::MovePacket),
    helper(helper::XDP_ADJUST_TAIL, "xdp_adjust_tail", &[Context, Number], STATUS, Effect::MovePacket),
    helper(
        helper::FIB_LOOKUP,
        "fib_lookup",
        &[Context, READ_WRITE, LEN, Number],
        Returns::AnyNumber,
        Effect::HostTable,
    )
    .in_pipelines(),
    helper(helper::SPIN_LOCK, "spin_lock", &[Lock], Returns::Nothing, Effect::Lock),
    helper(helper::SPIN_UNLOCK, "spin_unlock", &[Lock], Returns::Nothing, Effect::Lock),
    helper(
        helper::STRTOL,
        "strtol",
        &[READ, LEN, Number, Fixed { bytes: 8, usage: Usage::MayFill }],
        Returns::AnyNumber,
        Effect::Pure,
    ),
    helper(
        helper::STRTOUL,
        "strtoul",
        &[READ, LEN, Number, Fixed { bytes: 8, usage: Usage::MayFill }],
        Returns::AnyNumber,
        Effect::Pure,
    ),
    helper(helper::PROBE_READ_KERNEL, "probe_read_kernel", &[FILL, LEN_OR_ZERO, Parameter::Any], STATUS, Effect::Probe),
    helper(
        helper::PROBE_READ_KERNEL_STR,
        "probe_read_kernel_str",
        &[MAY_FILL, LEN_OR_ZERO, Parameter::Any],
        Returns::AnyNumber,
        Effect::Probe,
    ),
    helper(helper::JIFFIES64, "jiffies64", &[], Returns::AnyNumber, Effect::Environment).in_pipelines(),
    helper(helper::KTIME_GET_BOOT_NS, "ktime_get_boot_ns", &[], Returns::AnyNumber, Effect::Environment).in_pipelines(),
    helper(helper::RINGBUF_OUTPUT, "ringbuf_output", &[RING, READ, LEN_OR_ZERO, Number], STATUS, Effect::Event)
        .in_pipelines(),
    helper(
        helper::RINGBUF_RESERVE,
        "ringbuf_reserve",
        &[RING, ConstantLength, Number],
        Returns::RecordOrNull,
        Effect::Reserve,
    )
    .in_pipelines(),
    helper(helper::RINGBUF_SUBMIT, "ringbuf_submit", &[Record, Number], Returns::Nothing, Effect::Release)
        .in_pipelines(),
    helper(helper::RINGBUF_DISCARD, "ringbuf_discard", &[Record, Number], Returns::Nothing, Effect::Release)
        .in_pipelines(),
    helper(helper::RINGBUF_QUERY, "ringbuf_query", &[RING, Number], Returns::AnyNumber, Effect::QueryRing),
    helper(helper::KTIME_GET_COARSE_NS, "ktime_get_coarse_ns", &[], Returns::AnyNumber, Effect::Environment)
        .in_pipelines(),
    helper(
        helper::CHECK_MTU,
        "check_mtu",
        &[Context, Number, Fixed { bytes: 4, usage: Usage::ReadWrite }, Number, Number],
        Returns::AnyNumber,
        Effect::HostTable,
    )
    .with(Implicit::Bounds)
    .in_pipelines(),
    helper(
        helper::FOR_EACH_MAP_ELEM,
        "for_each_map_elem",
        &[Map(walked, "a hash or an array"), Callback, CallbackContext, Number],
        Returns::AnyNumber,
        Effect::Callback,
    ),
    helper(
        helper::SNPRINTF,
        "snprintf",
        &[MAY_FILL, LEN_OR_ZERO, Text, READ, LEN_OR_ZERO],
        Returns::AnyNumber,
        Effect::Pure,
    )
    .probing(),
    helper(helper::TRACE_VPRINTK, "trace_vprintk", &[READ, LEN, READ, LEN_OR_ZERO], Returns::AnyNumber, Effect::Trace)
        .probing(),
    helper(helper::LOOP, "loop", &[Number, Callback, CallbackContext, Number], Returns::AnyNumber, Effect::Callback),
    helper(helper::STRNCMP, "strncmp", &[READ, LEN, Text], Returns::AnyNumber, Effect::Pure),
    helper(
        helper::XDP_GET_BUFF_LEN,
        "xdp_get_buff_len",
        &[Context],
        Returns::Number(0, u32::MAX as i64),
        Effect::Packet,
    ),
    helper(helper::XDP_LOAD_BYTES, "xdp_load_bytes", &[Context, Number, MAY_FILL, LEN], STATUS, Effect::Packet),
    helper(helper::XDP_STORE_BYTES, "xdp_store_bytes", &[Context, Number, READ, LEN], STATUS, Effect::Packet),
    helper(
        helper::MAP_LOOKUP_PERCPU_ELEM,
        "map_lookup_percpu_elem",
        &[Map(MapKind::is_per_cpu, "a map with a value for each CPU"), Key, Number],
        Returns::ValueOrNull,
        Effect::Lookup,
    )
    .with_packet_memory()
    .in_pipelines(),
    helper(helper::KTIME_GET_TAI_NS, "ktime_get_tai_ns", &[], Returns::AnyNumber, Effect::Environment).in_pipelines(),
    helper(helper::FL_CLONE, "fl_clone", &[Context, Number], Returns::Number(0, 0), Effect::Emit)
        .with(Implicit::Packet)
        .in_pipelines(),
    helper(helper::FL_EMIT, "fl_emit", &[Context, Number, READ, LEN_OR_ZERO], STATUS, Effect::Emit)
        .with_packet_memory()
        .in_pipelines(),
    helper(
        helper::FL_EVICT,
        "fl_evict",
        &[Map(|kind| matches!(kind, MapKind::Hash), "a hash"), Number, Number],
        STATUS,
        Effect::Evict,
    )
    .in_pipelines(),
    helper(helper::FL_PARSE, "fl_parse", &[Context, Number], Returns::Number(0, u32::MAX as i64), Effect::Packet),
];

/// Whether the helper is one of Flowloom's own, which no kernel has.
pub fn is_private(number: i32) -> bool {
    number >= FIRST_PRIVATE
}

/// The helper with this number, if Flowloom supports it.
pub fn by_number(number: i32) -> Option<&'static Helper> {
    HELPERS.binary_search_by_key(&number, |h| h.number).ok().map(|at| &HELPERS[at])
}

/// The name of a helper, supported or not.
pub fn name_of(number: i32) -> Option<&'static str> {
    let foreign = || NAMES.get(usize::try_from(number).ok()?).copied().filter(|_| number != 0);
    by_number(number).map(|h| h.name).or_else(foreign)
}

/// The name of a helper for messages: `helper 300` for a number without a name.
pub fn display_name(number: i32) -> String {
    name_of(number).map_or_else(|| format!("helper {number}"), str::to_owned)
}

/// The number of the helper with this name, with or without the prefix `bpf_`.
pub fn number_of(name: &str) -> Option<i32> {
    let name = name.strip_prefix("bpf_").unwrap_or(name);
    let ours = HELPERS.iter().find(|h| h.name == name).map(|h| h.number);
    ours.or_else(|| NAMES.iter().skip(1).position(|known| *known == name).map(|at| at as i32 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_to_each_other() {
        for (number, name) in (0..).zip(NAMES).skip(1) {
            assert_eq!((number_of(name), name_of(number)), (Some(number), Some(name)));
        }
        for info in HELPERS {
            assert_eq!(number_of(&format!("bpf_{}", info.name)), Some(info.number));
            assert!(is_private(info.number) || NAMES[info.number as usize] == info.name);
        }
        assert!(HELPERS.is_sorted_by_key(|info| info.number), "looked up by halves");
        assert_eq!((name_of(0), name_of(-1), name_of(212), number_of("unspec")), (None, None, None, None));
    }
}
