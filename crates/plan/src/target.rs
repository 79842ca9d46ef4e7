// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hardware that a plan is made for: clock, bus word, window, delays of operations, latencies of blocks.
//!
//! Delays are in tenths of a LUT level (one look-up table of six inputs and its routing). They are estimates until
//! synthesis reports correct them; no other place holds delays. Latencies of tables are those of the generated blocks.
//!
//! | operation | levels |
//! | --- | --- |
//! | gate of two bits | 0.4: one LUT holds a tree of five |
//! | mux of two | 0.5 |
//! | bytes at an offset known only at run time | 3: muxes of four over a window of two frames |
//! | adder, subtractor, `<` of `n` bits | 1 + `n` / 32: a carry chain |
//! | equality of `n` bits | a tree of LUTs, six inputs each |
//! | wires: slices, concatenations, constants | 0 |

use flowloom_ir::{Access, Binary, Compare, Dataflow, Effect, Graph, Id, Input, Kind, Node, Touch};
use flowloom_isa::MapKind;
use flowloom_isa::insn::helper;

/// A delay in tenths of a LUT level.
pub type Tenths = u32;

/// The latency of `hdl/table/fl_hash_map.sv` in stages, from key to value.
pub const HASH_STAGES: u32 = 6;
/// The latency of `hdl/table/fl_lpm.sv` in stages, from key to value.
pub const LPM_STAGES: u32 = 8;
/// The latency of `hdl/table/fl_array.sv` in stages, from index to value.
pub const ARRAY_STAGES: u32 = 2;

/// The hardware that a plan is made for. Hardware passes, the scheduler and the checker take it as an argument.
///
/// # Units
/// Delays are in tenths of a LUT level, latencies of blocks in stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The clock in MHz.
    pub clock_mhz: u32,
    /// The bytes of a packet that arrive in one cycle (the bus word).
    pub word_bytes: u16,
    /// The window of a pipeline in bytes where packet offsets are known only at run time; larger where constant offsets
    /// exceed it.
    pub window_bytes: u32,
    /// The budget of a stage: the most delay between two registers.
    pub stage: Tenths,
    /// A gate of two bits.
    pub gate: Tenths,
    /// A mux of two.
    pub mux: Tenths,
    /// A LUT level.
    pub level: Tenths,
    /// The fixed part of a carry chain.
    pub carry: Tenths,
    /// The length of a carry chain that takes one level, in bits.
    pub carry_bits: u32,
    /// The logic that fits into the first stage of a lookup before its table.
    pub key: Tenths,
    /// The latency of a lookup in a hash or LRU table in stages, from key to value.
    pub hash_stages: u32,
    /// The latency of a longest prefix match in stages, from key to value.
    pub lpm_stages: u32,
    /// The latency of a lookup in an array in stages, from index to value. The value of an array with one entry is in a
    /// register.
    pub array_stages: u32,
    /// The latency of an update or deletion in stages, from key and value to the result.
    pub update_stages: u32,
    /// The latency of a redirect through a map in stages, from key to verdict.
    pub redirect_stages: u32,
    /// The latency of a route lookup in stages, from the addresses to the port and the link-layer addresses: longest
    /// prefix match, then neighbour.
    pub route_stages: u32,
    /// The latency of a lookup in a table of ports or programs, in stages.
    pub port_stages: u32,
}

/// The clock of the default target.
const CLOCK_MHZ: u32 = 250;

impl Default for Target {
    fn default() -> Target {
        Target::at(CLOCK_MHZ)
    }
}

impl Target {
    /// The default target at another clock. At 250 MHz, a stage holds a 64-bit adder and two more levels; the budget of
    /// a stage scales with the clock period.
    pub fn at(clock_mhz: u32) -> Target {
        let mut target = Target {
            clock_mhz,
            word_bytes: 64,
            window_bytes: 128,
            stage: 0,
            gate: 4,
            mux: 5,
            level: 10,
            carry: 10,
            carry_bits: 32,
            key: 10,
            hash_stages: HASH_STAGES,
            lpm_stages: LPM_STAGES,
            array_stages: ARRAY_STAGES,
            update_stages: 1,
            redirect_stages: ARRAY_STAGES,
            route_stages: 8,
            port_stages: 1,
        };
        target.stage = (target.adder(64) + 2 * target.level) * CLOCK_MHZ / clock_mhz.max(1);
        target
    }

    /// An adder, a subtractor or an ordered comparison of the given width.
    pub fn adder(&self, bits: u16) -> Tenths {
        self.carry + u32::from(bits) * self.level / self.carry_bits
    }

    /// A tree of LUTs with the given number of inputs.
    fn tree(&self, inputs: u32) -> Tenths {
        if inputs <= 2 {
            return self.gate;
        }
        let (mut left, mut levels) = (inputs, 0);
        while left > 1 {
            left = left.div_ceil(6);
            levels += 1;
        }
        levels * self.level
    }

    /// A priority mux with the given number of conditions.
    fn priority_mux(&self, conditions: u32) -> Tenths {
        let levels = u32::BITS - conditions.leading_zeros();
        let order = if conditions > 1 { self.gate * (u32::BITS - (conditions - 1).leading_zeros()) } else { 0 };
        levels * self.mux + order
    }

    fn is_flag_test(&self, graph: &Graph, node: &Node) -> bool {
        let is_call = |id: &Id| matches!(graph.node(*id).kind, Kind::Effect(Effect::Call { .. }));
        node.args.iter().any(is_call) && node.args.iter().any(|arg| graph.as_const(*arg) == Some(0))
    }

    /// The delay of a node from the arrival of its last argument; 0 for blocks with registers of their own
    /// ([`Target::block_stages`]).
    pub fn of(&self, graph: &Graph, id: Id) -> Tenths {
        let node = graph.node(id);
        match node.kind {
            Kind::Const(_) | Kind::Input(_) | Kind::Slice { .. } | Kind::Concat | Kind::SignExtend => 0,
            Kind::Not => 0,
            // Muxes of four, one for each two bits of the offset, over a window of two frames in words of two bytes.
            Kind::Bytes { .. } => 3 * self.level,
            Kind::Select => self.priority_mux((node.args.len() / 2) as u32),
            // Blocks have an output for a hit, or for success.
            Kind::Compare(Compare::Equal) if self.is_flag_test(graph, node) => 0,
            Kind::Compare(Compare::Equal) => {
                let bits = u32::from(graph.bits(node.args[0]));
                let is_constant = node.args.iter().any(|arg| graph.as_const(*arg).is_some());
                self.tree(if is_constant { bits } else { 2 * bits })
            }
            Kind::Compare(_) => self.adder(graph.bits(node.args[0])),
            Kind::Binary(op) => match op {
                Binary::And | Binary::Or | Binary::Xor => self.gate,
                Binary::Add | Binary::Sub => self.adder(node.bits),
                // A barrel shifter: muxes of four, one for each two bits of the distance.
                Binary::ShiftLeft | Binary::ShiftRight | Binary::SignedShiftRight => {
                    (u16::BITS - node.bits.leading_zeros()).div_ceil(2) * self.level
                }
                Binary::Mul | Binary::Div | Binary::SignedDiv | Binary::Mod | Binary::SignedMod => 0,
            },
            _ => 0,
        }
    }

    /// The time from the last argument of a node, which takes `blocks` stages as a block, to its value; for a byte of
    /// the packet, the arrival of its word.
    pub(crate) fn total(&self, graph: &Graph, id: Id, blocks: u32) -> Tenths {
        match graph.node(id).kind {
            Kind::Input(Input::Byte(at)) => u32::from(at / self.word_bytes) * self.stage,
            _ => blocks * self.stage + self.of(graph, id),
        }
    }

    /// The latency in stages of a node that is a block with registers in it; 0 for combinational logic. `cycles.rs`
    /// says in which of these cycles it reads and commits.
    pub fn block_stages(&self, dataflow: &Dataflow, id: Id) -> u32 {
        match dataflow.access(id) {
            Some(Access { touch: Touch::HostTable, .. }) => match dataflow.graph.node(id).kind {
                Kind::Effect(Effect::Call { helper: helper::FIB_LOOKUP, .. }) => self.route_stages,
                _ => self.port_stages,
            },
            Some(access) => self.access_stages(dataflow, access),
            None => self.arithmetic_stages(&dataflow.graph, id),
        }
    }

    /// The latency of a lookup in stages, by the kind of its map and the number of entries.
    pub(crate) fn lookup_stages(&self, dataflow: &Dataflow, access: Access) -> u32 {
        let table = access.map.and_then(|map| dataflow.maps.get(map as usize));
        match table.map(|table| (table.kind, table.max_entries)) {
            Some((MapKind::Array | MapKind::PerCpuArray, 1)) => 0,
            Some((MapKind::Array | MapKind::PerCpuArray, _)) => self.array_stages,
            Some((MapKind::LpmTrie, _)) => self.lpm_stages,
            _ => self.hash_stages,
        }
    }

    fn access_stages(&self, dataflow: &Dataflow, access: Access) -> u32 {
        match access.touch {
            Touch::Lookup => self.lookup_stages(dataflow, access),
            Touch::Update | Touch::Delete | Touch::Evict => self.update_stages,
            Touch::RedirectMap => self.redirect_stages,
            Touch::HostTable => self.port_stages,
            Touch::Atomic | Touch::Store | Touch::Reserve | Touch::Emit => 1,
            Touch::Load | Touch::Redirect | Touch::Environment | Touch::Compute | Touch::Random => 0,
        }
    }

    fn arithmetic_stages(&self, graph: &Graph, id: Id) -> u32 {
        let node = graph.node(id);
        let bits = u32::from(node.bits);
        match node.kind {
            // Partial products in 17x17-bit multipliers, summed one column a stage.
            Kind::Binary(Binary::Mul) => 1 + bits.div_ceil(17),
            // By a multiplication with the reciprocal.
            Kind::Binary(op @ (Binary::Div | Binary::SignedDiv | Binary::Mod | Binary::SignedMod))
                if graph.as_const(node.args[1]).is_some_and(|divisor| divisor != 0) =>
            {
                let signs = if matches!(op, Binary::SignedDiv | Binary::SignedMod) { 2 } else { 0 };
                let remainder = if matches!(op, Binary::Mod | Binary::SignedMod) { 2 + bits.div_ceil(17) } else { 0 };
                4 + signs + remainder
            }
            // As many quotient bits a stage as subtractors and muxes fit.
            Kind::Binary(Binary::Div | Binary::SignedDiv | Binary::Mod | Binary::SignedMod) => {
                let step = self.adder(node.bits) + self.mux;
                bits.div_ceil((self.stage / step).max(1)) + 1
            }
            _ => 0,
        }
    }
}
