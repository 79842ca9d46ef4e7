// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices, and whether a plan fits one.
//!
//! ```text
//!  Plan ──► Resources: register bits, memories, multipliers ──fit──► Fit: what is used of a device, what lacks
//! ```
//!
//! **Counted.** Pipeline registers after pruning, one-entry maps and registers of packets that run alone, as bits; the
//! RAMs of tables and of the bodies of packets, as whole block RAMs in the shape that takes the fewest; the multipliers
//! of `fl_mul` and `fl_div_const`.
//!
//! **Not counted.** LUTs, for which there is no estimate without synthesis, and registers inside of blocks: so a plan
//! that does not fit is refused with reason, but one that fits by these figures may still be too large. Ring
//! buffers do not count.
//!
//! **Source.** The blocks of `hdl`; `tests/device.rs` compares their RAMs with those of [`Resources`].
//!
//! **UltraRAM.** Tables move there, those with the most block RAMs first, if block RAMs do not suffice.

use std::collections::BTreeSet;

use flowloom_ir::{Binary, Dataflow, Id, Kind, Touch};
use flowloom_isa::MapKind;
use serde::Serialize;

use crate::live::Liveness;
use crate::plan::Plan;

/// A device, with what it has of each resource.
///
/// # Source
/// AMD DS965 for the Alveo U50, DS890 for the VU9P, DS180 for the 690T.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Flip-flops.
    pub registers: u64,
    /// Block RAMs of 36 Kbit.
    pub block_rams: u64,
    /// UltraRAMs of 288 Kbit.
    pub ultra_rams: u64,
    /// DSP slices.
    pub dsps: u64,
}

/// The devices; the first one is the default.
pub const DEVICES: [Device; 3] = [
    Device {
        name: "xcu50",
        about: "AMD Alveo U50 (UltraScale+)",
        registers: 1_743_360,
        block_rams: 1_344,
        ultra_rams: 640,
        dsps: 5_952,
    },
    Device {
        name: "xcvu9p",
        about: "AMD Virtex UltraScale+ VU9P",
        registers: 2_364_480,
        block_rams: 2_160,
        ultra_rams: 960,
        dsps: 6_840,
    },
    Device {
        name: "xc7vx690t",
        about: "AMD Virtex-7 690T (NetFPGA SUME)",
        registers: 866_400,
        block_rams: 1_470,
        ultra_rams: 0,
        dsps: 3_600,
    },
];

impl Device {
    /// The device of a name.
    pub fn named(name: &str) -> Option<&'static Device> {
        DEVICES.iter().find(|device| device.name == name)
    }
}

/// The words of the bodies of packets in each of two banks.
const BODY_WORDS: u64 = 128;
/// Pending keys of a hash map, which have rows of their own.
const PENDING: u64 = 32;
/// Keys in the cuckoo table besides those of entries: pending keys, and keys of deleted entries.
const SPARE_KEYS: u64 = PENDING + 64;
/// Slots that rest, where the slice is one stage.
const REST_CYCLES: u64 = 16;
/// Rows of a hash map besides those of its entries.
const SPARE_ROWS: u64 = SPARE_KEYS + REST_CYCLES + PENDING;
/// The ways of the cuckoo table, each a RAM of its own.
const WAYS: u64 = 4;
/// The bits of an entry of a map of ports.
const PORT_BITS: u64 = 40;
/// The width of an operand of a multiplier.
const LIMB_BITS: u64 = 17;

/// The shapes of a block RAM, rows and bits, with one port to read and one to write.
const BLOCK_SHAPES: [(u64, u64); 7] =
    [(512, 72), (1024, 36), (2048, 18), (4096, 9), (8192, 4), (16_384, 2), (32_768, 1)];
/// The shape of an UltraRAM.
const ULTRA_SHAPE: (u64, u64) = (4096, 72);

/// The memories of single tags of the order of use (`hdl/table/fl_lru.sv`).
const ORDER_TAGS: u64 = 2;

/// The bits of a prefix length, before the address.
const LENGTH_BITS: u64 = 32;
/// The banks of a list of ranges: packets read one, and a change writes the other.
const RANGE_BANKS: u64 = 2;
/// Separators in registers, of which `hdl/table/fl_lpm_ranges.sv` has so many at most.
const MAX_ROOTS: u64 = 64;
/// The ranges in a row: few, unless there are too many ranges.
const FANOUTS: [u32; 2] = [8, 16];
/// The most prefixes of a map: `2 * n + 1` ranges in rows of 16, on three levels.
pub const MAX_PREFIXES: u32 = (MAX_ROOTS as u32 * FANOUTS[1].pow(3) - 1) / 2;

/// The ranges in a row of a table of prefixes; none for more than [`MAX_PREFIXES`].
pub fn prefix_fanout(entries: u32) -> Option<u32> {
    FANOUTS.into_iter().find(|fanout| ranges(entries).div_ceil(u64::from(fanout.pow(3))) <= MAX_ROOTS)
}

/// The ranges that prefixes make at most.
fn ranges(entries: u32) -> u64 {
    2 * u64::from(entries) + 1
}

/// The bits of an index below `count`.
fn index_bits(count: u64) -> u64 {
    u64::from(u64::BITS - count.saturating_sub(1).leading_zeros())
}

/// RAMs of one shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The map whose table it is; none for the bodies of packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
    /// What it holds.
    pub holds: &'static str,
    /// The number of RAMs.
    pub count: u64,
    /// The rows of each.
    pub rows: u64,
    /// The bits of a row.
    pub row_bits: u64,
    /// Whether both ports read, so that a row of a block RAM has 36 bits at most.
    #[serde(skip)]
    reads_twice: bool,
}

impl Memory {
    /// The block RAMs.
    pub fn block_rams(&self) -> u64 {
        let shapes = BLOCK_SHAPES.iter().skip(usize::from(self.reads_twice));
        let each = shapes.map(|shape| self.tiles(*shape)).min().unwrap_or(0);
        self.count.saturating_mul(each)
    }

    /// The UltraRAMs.
    pub fn ultra_rams(&self) -> u64 {
        self.count.saturating_mul(self.tiles(ULTRA_SHAPE))
    }

    fn tiles(&self, (rows, bits): (u64, u64)) -> u64 {
        self.rows.div_ceil(rows).saturating_mul(self.row_bits.div_ceil(bits))
    }
}

/// What a plan needs of a device at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resources {
    /// Bits of pipeline registers and of one-entry maps.
    pub register_bits: u64,
    /// The memories.
    pub memories: Vec<Memory>,
    /// Multipliers.
    pub dsps: u64,
}

/// Whether an effect accesses a map.
fn is_of_map(dataflow: &Dataflow, id: Id, map: u32) -> bool {
    dataflow.access(id).is_some_and(|access| access.map == Some(map))
}

impl Resources {
    /// The resources of a plan.
    pub fn of(plan: &Plan) -> Resources {
        let dataflow = &plan.dataflow;
        let used = dataflow.used();
        let word_bits = 8 * u64::from(plan.options.target.word_bytes);
        let bodies =
            Memory { map: None, holds: "packets", count: 2, rows: BODY_WORDS, row_bits: word_bits, reads_twice: false };
        let mut resources = Resources {
            register_bits: u64::from(Liveness::of(plan).register_bits())
                + plan.replay.as_ref().map_or(0, |replay| replay.register_bits(&plan.dataflow)),
            memories: vec![bodies],
            dsps: used.iter().map(|id| multipliers(dataflow, *id)).sum(),
        };
        for map in 0..dataflow.maps.len() {
            let parts = plan.maps.iter().find(|own| own.map == map as u32).map_or(1, |own| own.parts);
            resources.add_map(plan, &used, map as u32, parts);
        }
        resources
    }

    fn add_map(&mut self, plan: &Plan, used: &BTreeSet<Id>, map: u32, parts: u32) {
        let dataflow = &plan.dataflow;
        let all: Vec<Id> = used.iter().copied().filter(|id| is_of_map(dataflow, *id, map)).collect();
        if all.is_empty() {
            return;
        }
        // Steps go through the port of the host.
        let is_step = |id: &Id| plan.replay.as_ref().is_some_and(|replay| replay.accesses.contains(id));
        let touches = all.into_iter().filter(|id| !is_step(id)).filter_map(|id| dataflow.access(id));
        let touches: Vec<Touch> = touches.map(|access| access.touch).collect();
        let count = |of: &[Touch]| touches.iter().filter(|touch| of.contains(touch)).count() as u64;
        let is_changed = count(&[Touch::Store, Touch::Atomic, Touch::Update, Touch::Delete, Touch::Evict]) > 0;
        // What packets only read has a copy for each call; what they change, such as the order of use, one table, or
        // its partial arrays.
        let is_lru = dataflow.maps[map as usize].kind.is_lru();
        let tables =
            if is_changed || is_lru { parts.into() } else { count(&[Touch::Lookup, Touch::RedirectMap]).max(1) };
        let table = &dataflow.maps[map as usize];
        let entries = u64::from(table.max_entries);
        let (key, value) = (8 * u64::from(table.key_bytes), 8 * u64::from(table.value_bytes));
        let name = &table.name;
        let mut memory = |holds, count, rows, row_bits, reads_twice| {
            self.memories.push(Memory { map: Some(name.clone()), holds, count, rows, row_bits, reads_twice });
        };
        match table.kind {
            MapKind::Array | MapKind::PerCpuArray if entries == 1 => self.register_bits += value,
            MapKind::Array | MapKind::PerCpuArray => memory("values", tables, entries.max(2), value, false),
            MapKind::Devmap | MapKind::Cpumap | MapKind::Xskmap => {
                memory("ports", tables, entries.max(2), PORT_BITS, false)
            }
            MapKind::Hash | MapKind::PerCpuHash | MapKind::LruHash | MapKind::LruPerCpuHash | MapKind::DevmapHash => {
                // There are no more keys.
                let entries = if key < 32 { entries.min(1 << key) } else { entries };
                let (rows, keys) = (entries + SPARE_ROWS, entries + SPARE_KEYS);
                let slots = keys + REST_CYCLES;
                memory("entries", tables, rows, 1 + key + value, false);
                // 95% of the places are used when it is full.
                let places = (keys * 100).div_ceil(95 * WAYS);
                memory("keys", WAYS * tables, places, 1 + index_bits(slots) + key, true);
                memory("free slots", tables, slots, index_bits(slots), false);
                if is_lru {
                    // A link has a row and the tag of the link back. A row has its older neighbour with the two tags of
                    // the links that count, its newer one, and both anew from a change of a neighbour, with a tag.
                    let link = index_bits(rows) + 1;
                    memory("order", 1, rows, link + 2, false);
                    memory("order", 1, rows, link, false);
                    memory("order", 2, rows, link + 1, false);
                    memory("tags", ORDER_TAGS, rows, 1, false);
                }
            }
            MapKind::LpmTrie => {
                let (prefixes, address) = (entries.max(2), key.saturating_sub(LENGTH_BITS));
                memory("values", tables, prefixes, value, false);
                memory("prefixes", tables, prefixes, 1 + index_bits(address + 1) + address, false);
                // Each lane of a row is a RAM of its own; the first one of a row of separators is not compared.
                let fanout = u64::from(prefix_fanout(table.max_entries).unwrap_or(FANOUTS[1]));
                let lanes = RANGE_BANKS * tables;
                let leaves = ranges(table.max_entries).div_ceil(fanout);
                let (middle, top) = (leaves.div_ceil(fanout), leaves.div_ceil(fanout).div_ceil(fanout));
                memory("ranges", fanout * lanes, leaves.max(2), 2 + address + index_bits(prefixes), true);
                memory("separators", (fanout - 1) * lanes, middle.max(2), 1 + address, false);
                memory("separators", (fanout - 1) * lanes, top.max(2), 1 + address, false);
            }
            MapKind::ProgArray
            | MapKind::PerfEventArray
            | MapKind::ArrayOfMaps
            | MapKind::HashOfMaps
            | MapKind::RingBuf
            | MapKind::Other(_) => {}
        }
    }

    /// What is used of a device.
    pub fn fit(&self, device: &'static Device) -> Fit {
        let mut placed: Vec<Placed> =
            self.memories.iter().map(|memory| Placed { memory: memory.clone(), is_ultra: false }).collect();
        let blocks = |placed: &[Placed]| placed.iter().map(Placed::block_rams).sum::<u64>();
        let ultras = |placed: &[Placed]| placed.iter().map(Placed::ultra_rams).sum::<u64>();
        let mut order: Vec<usize> = (0..placed.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(placed[*at].memory.block_rams()));
        for at in order {
            let is_enough = blocks(&placed) <= device.block_rams;
            if !is_enough && ultras(&placed) + placed[at].memory.ultra_rams() <= device.ultra_rams {
                placed[at].is_ultra = true;
            }
        }
        let used = |needed, available| Used { needed, available };
        Fit {
            name: device.name,
            about: device.about,
            register_bits: used(self.register_bits, device.registers),
            block_rams: used(blocks(&placed), device.block_rams),
            ultra_rams: used(ultras(&placed), device.ultra_rams),
            dsps: used(self.dsps, device.dsps),
            memories: placed,
        }
    }
}

/// The multipliers of an operation.
fn multipliers(dataflow: &Dataflow, id: Id) -> u64 {
    let node = dataflow.graph.node(id);
    let limbs = u64::from(node.bits).div_ceil(LIMB_BITS);
    // The lower half of a product; of a product with a reciprocal, all of it.
    let (lower, whole) = (limbs * (limbs + 1) / 2, limbs * limbs);
    match node.kind {
        Kind::Binary(Binary::Mul) => lower,
        Kind::Binary(op @ (Binary::Div | Binary::SignedDiv | Binary::Mod | Binary::SignedMod))
            if dataflow.graph.as_const(node.args[1]).is_some_and(|divisor| divisor != 0) =>
        {
            whole + if matches!(op, Binary::Mod | Binary::SignedMod) { lower } else { 0 }
        }
        _ => 0,
    }
}

/// A resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Used {
    /// What the plan needs.
    pub needed: u64,
    /// What the device has.
    pub available: u64,
}

/// A memory and the kind of RAM that it takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// The memory.
    #[serde(flatten)]
    pub memory: Memory,
    /// Whether it takes UltraRAMs.
    pub is_ultra: bool,
}

impl Placed {
    fn block_rams(&self) -> u64 {
        if self.is_ultra { 0 } else { self.memory.block_rams() }
    }

    fn ultra_rams(&self) -> u64 {
        if self.is_ultra { self.memory.ultra_rams() } else { 0 }
    }
}

/// What a plan uses of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// The name of the device.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Bits of registers.
    pub register_bits: Used,
    /// Block RAMs of 36 Kbit.
    pub block_rams: Used,
    /// UltraRAMs of 288 Kbit.
    pub ultra_rams: Used,
    /// DSP slices.
    pub dsps: Used,
    /// The memories.
    pub memories: Vec<Placed>,
}

impl Fit {
    /// The resources by name.
    pub fn resources(&self) -> [(&'static str, Used); 4] {
        [
            ("register bits", self.register_bits),
            ("block RAMs", self.block_rams),
            ("UltraRAMs", self.ultra_rams),
            ("DSPs", self.dsps),
        ]
    }

    /// What the device has too little of, with what would help: one line a resource. Empty if the plan fits.
    pub fn lacking(&self) -> Vec<String> {
        let lacks = self.resources().into_iter().filter(|(_, used)| used.needed > used.available);
        lacks.map(|(name, used)| self.lack(name, used)).collect()
    }

    fn lack(&self, name: &str, used: Used) -> String {
        let Used { needed, available } = used;
        let largest = self.memories.iter().filter(|placed| !placed.is_ultra).max_by_key(|one| one.memory.block_rams());
        let why = match largest.map(|placed| &placed.memory) {
            Some(memory) if name == "block RAMs" => {
                let (kept, ultra) = (memory.block_rams(), memory.ultra_rams());
                let place = match &memory.map {
                    Some(map) => format!("the {} of map `{map}`", memory.holds),
                    None => "the bodies of packets".to_owned(),
                };
                let rows = format!("{} rows of {} bits", memory.rows, memory.row_bits);
                let left = self.ultra_rams.available - self.ultra_rams.needed;
                format!(
                    ": {place} ({rows}) take {kept}, or {ultra} UltraRAMs, of which {left} are free; \
                     lower its max_entries, or choose a larger device"
                )
            }
            _ if name == "register bits" => {
                "; a slower clock has fewer stages, and so fewer registers (--clock of `explain`)".to_owned()
            }
            _ => "; choose a larger device".to_owned(),
        };
        format!("{needed} {name} are needed, {} has {available}{why}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(rows: u64, row_bits: u64, reads_twice: bool) -> Memory {
        Memory { map: None, holds: "packets", count: 1, rows, row_bits, reads_twice }
    }

    #[test]
    fn memories_take_the_shape_with_the_fewest_rams() {
        for (rows, row_bits, blocks, ultras) in [
            (1, 1, 1, 1),
            (512, 72, 1, 1),
            (513, 72, 2, 1),
            (512, 73, 2, 2),
            (1024, 36, 1, 1),
            (32_768, 1, 1, 8),
            (4096, 9, 1, 1),
            (4097, 9, 2, 2),
            (4096, 40, 5, 1),
            (128, 512, 8, 8),
        ] {
            let memory = memory(rows, row_bits, false);
            assert_eq!((memory.block_rams(), memory.ultra_rams()), (blocks, ultras), "{rows} rows of {row_bits} bits");
        }
        // Both ports read: 36 bits at most.
        assert_eq!(memory(512, 72, true).block_rams(), 2);
    }

    #[test]
    fn tables_move_to_ultra_rams_only_if_block_rams_do_not_suffice() {
        let large = Memory { map: Some("flows".to_owned()), ..memory(1 << 18, 97, false) };
        let mut resources = Resources { register_bits: 1, memories: vec![memory(512, 72, false), large], dsps: 0 };
        let fit = resources.fit(&DEVICES[0]);
        assert_eq!(fit.memories.iter().map(|placed| placed.is_ultra).collect::<Vec<_>>(), [false, false]);
        // 64 times 4,096 rows, 11 times 9 bits.
        assert_eq!(fit.block_rams.needed, 1 + 64 * 11);
        resources.memories[1].rows *= 2;
        let fit = resources.fit(&DEVICES[0]);
        assert_eq!(fit.memories.iter().map(|placed| placed.is_ultra).collect::<Vec<_>>(), [false, true]);
        assert_eq!((fit.block_rams.needed, fit.ultra_rams.needed, fit.lacking()), (1, 256, Vec::new()));
        // A device without UltraRAMs.
        resources.memories[1].rows *= 2;
        let lacking = resources.fit(&DEVICES[2]).lacking();
        assert_eq!(lacking.len(), 1, "{lacking:?}");
        resources.register_bits = DEVICES[0].registers + 1;
        resources.dsps = DEVICES[0].dsps + 1;
        assert_eq!(resources.fit(&DEVICES[0]).lacking().len(), 2);
    }
}
