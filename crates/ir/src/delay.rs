//! How long operations take: the table that stages are made by.
//!
//! Delays are in tenths of a level of look-up tables with six inputs. They are guesses until synthesis has spoken, and stand here
//! alone, so that reports of synthesis correct one table.
//!
//! | operation | levels |
//! | --- | --- |
//! | gate of two bits | 0.4: a table holds a tree of five |
//! | choice of two | 0.5 |
//! | bytes at an offset that only the run knows | 3: choices of four over a window of two frames |
//! | sum, difference, order of `n` bits | 1 + `n` / 32: a carry chain |
//! | equality of `n` bits | a tree of tables, six inputs each |
//! | wires: slices, joins, constants | 0 |

use flowloom_bpf::insn::helper;

use crate::access::{Access, Touch};
use crate::build::Dataflow;
use crate::graph::{Binary, Compare, Effect, Graph, Id, Input, Kind, Node};

/// Tenths of a level.
pub type Tenths = u32;

/// The delays and latencies that a schedule obeys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delays {
    /// What fits between two registers.
    pub stage: Tenths,
    /// A gate of two bits.
    pub gate: Tenths,
    /// A choice of two.
    pub choice: Tenths,
    /// A level of look-up tables.
    pub level: Tenths,
    /// A carry chain besides its bits.
    pub carry: Tenths,
    /// How many bits of it take a level.
    pub carry_bits: u32,
    /// What the first stage of a lookup has room for in front of its table.
    pub key: Tenths,
    /// Stages of a lookup, from its key to its value.
    pub lookup_stages: u32,
    /// Stages of an update or a deletion, from key and value to its answer.
    pub update_stages: u32,
    /// Stages of a redirect through a map, from its key to the verdict.
    pub redirect_stages: u32,
    /// Stages of a route's lookup, from the addresses to the port and the link-layer addresses: the longest prefix, then the
    /// neighbour.
    pub route_stages: u32,
    /// Stages of a lookup in a table of ports or programs.
    pub port_stages: u32,
}

/// The clock that the first delays are for.
pub const CLOCK_MHZ: u32 = 250;

impl Default for Delays {
    fn default() -> Delays {
        Delays::first(CLOCK_MHZ)
    }
}

impl Delays {
    /// The first delays: a stage at 250 MHz holds a sum of 64 bits and two levels behind it. A slower clock gives stages more room
    /// in proportion, a faster one less.
    pub fn first(clock_mhz: u32) -> Delays {
        let mut delays = Delays {
            stage: 0,
            gate: 4,
            choice: 5,
            level: 10,
            carry: 10,
            carry_bits: 32,
            key: 10,
            lookup_stages: 4,
            update_stages: 2,
            redirect_stages: 2,
            route_stages: 8,
            port_stages: 1,
        };
        delays.stage = (delays.sum(64) + 2 * delays.level) * CLOCK_MHZ / clock_mhz.max(1);
        delays
    }

    /// A sum, a difference or an order of so many bits.
    pub fn sum(&self, bits: u16) -> Tenths {
        self.carry + u32::from(bits) * self.level / self.carry_bits
    }

    /// A tree of look-up tables over so many bits.
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

    /// A choice of so many by as many conditions, the first that holds.
    fn choices(&self, conditions: u32) -> Tenths {
        let levels = u32::BITS - conditions.leading_zeros();
        let order = if conditions > 1 { self.gate * (u32::BITS - (conditions - 1).leading_zeros()) } else { 0 };
        levels * self.choice + order
    }

    fn is_answer(&self, graph: &Graph, node: &Node) -> bool {
        let is_call = |id: &Id| matches!(graph.node(*id).kind, Kind::Effect(Effect::Call { .. }));
        node.args.iter().any(is_call) && node.args.iter().any(|arg| graph.as_const(*arg) == Some(0))
    }

    /// What a node adds to the time at which its last argument is there, where it is not a block of its own.
    pub fn of(&self, graph: &Graph, id: Id) -> Tenths {
        let node = graph.node(id);
        match node.kind {
            Kind::Const(_) | Kind::Input(_) | Kind::Slice { .. } | Kind::Concat | Kind::SignExtend => 0,
            Kind::Not => 0,
            // Choices of four, one for each two bits of the place in a window of two frames, words of two bytes.
            Kind::Bytes { .. } => 3 * self.level,
            Kind::Select => self.choices((node.args.len() / 2) as u32),
            // Blocks say whether they have found something, or whether all went well.
            Kind::Compare(Compare::Equal) if self.is_answer(graph, node) => 0,
            Kind::Compare(Compare::Equal) => {
                let bits = u32::from(graph.bits(node.args[0]));
                let is_constant = node.args.iter().any(|arg| graph.as_const(*arg).is_some());
                self.tree(if is_constant { bits } else { 2 * bits })
            }
            Kind::Compare(_) => self.sum(graph.bits(node.args[0])),
            Kind::Binary(op) => match op {
                Binary::And | Binary::Or | Binary::Xor => self.gate,
                Binary::Add | Binary::Sub => self.sum(node.bits),
                // Choices of four, one for each two bits of the distance.
                Binary::ShiftLeft | Binary::ShiftRight | Binary::SignedShiftRight => {
                    (u16::BITS - node.bits.leading_zeros()).div_ceil(2) * self.level
                }
                Binary::Mul | Binary::Div | Binary::SignedDiv | Binary::Mod | Binary::SignedMod => 0,
            },
            _ => 0,
        }
    }

    /// The stages of a node that is a block with registers in it; none where it is mere logic.
    pub fn block_stages(&self, dataflow: &Dataflow, id: Id) -> u32 {
        match dataflow.access(id) {
            Some(Access { touch: Touch::Table, .. }) => match dataflow.graph.node(id).kind {
                Kind::Effect(Effect::Call { helper: helper::FIB_LOOKUP, .. }) => self.route_stages,
                _ => self.port_stages,
            },
            Some(access) => self.access_stages(access),
            None => self.arithmetic_stages(&dataflow.graph, id),
        }
    }

    fn access_stages(&self, access: Access) -> u32 {
        match access.touch {
            Touch::Lookup => self.lookup_stages,
            Touch::Update | Touch::Delete | Touch::Evict => self.update_stages,
            Touch::RedirectMap => self.redirect_stages,
            Touch::Table => self.port_stages,
            Touch::Atomic | Touch::Store | Touch::Emits => 1,
            Touch::Load | Touch::Redirect | Touch::Asks | Touch::Draws => 0,
        }
    }

    fn arithmetic_stages(&self, graph: &Graph, id: Id) -> u32 {
        let node = graph.node(id);
        let bits = u32::from(node.bits);
        match node.kind {
            // Partial products in multipliers of 17 by 17 bits, a column a stage.
            Kind::Binary(Binary::Mul) => 1 + bits.div_ceil(17),
            // As many bits of the quotient in a stage as differences and choices fit.
            Kind::Binary(Binary::Div | Binary::SignedDiv | Binary::Mod | Binary::SignedMod) => {
                let step = self.sum(node.bits) + self.choice;
                bits.div_ceil((self.stage / step).max(1)) + 1
            }
            _ => 0,
        }
    }
}

/// Bytes of a packet that come in a cycle.
pub const FRAME_BYTES: u16 = 64;

/// When the nodes of a graph that grows are there, in tenths of a level from the first byte on, registers left out of account.
#[derive(Debug, Default)]
pub struct Arrivals {
    times: Vec<Tenths>,
}

impl Arrivals {
    /// When a node is there; `blocks` are the stages of those that are blocks.
    pub fn of(&mut self, graph: &Graph, delays: &Delays, id: Id, blocks: impl Fn(Id) -> u32) -> Tenths {
        for next in self.times.len()..=id.index() {
            let id = Id(next as u32);
            let node = graph.node(id);
            let ready = node.args.iter().map(|arg| self.times[arg.index()]).max().unwrap_or(0);
            let own = match node.kind {
                Kind::Input(Input::Byte(at)) => u32::from(at / FRAME_BYTES) * delays.stage,
                _ => blocks(id) * delays.stage + delays.of(graph, id),
            };
            self.times.push(ready + own);
        }
        self.times[id.index()]
    }
}

/// When the last node that matters is there, lookups not waiting for their predicates.
pub(crate) fn depth(dataflow: &Dataflow, delays: &Delays) -> Tenths {
    times(dataflow, delays).into_iter().max().unwrap_or(0)
}

/// When each node is there, by the same.
pub(crate) fn times(dataflow: &Dataflow, delays: &Delays) -> Vec<Tenths> {
    let graph = &dataflow.graph;
    let mut times: Vec<Tenths> = Vec::with_capacity(graph.nodes().len());
    for id in graph.ids() {
        let node = graph.node(id);
        let is_idle = dataflow.access(id).is_some_and(|access| dataflow.is_idle(access));
        let ready = node.args.iter().skip(usize::from(is_idle)).map(|arg| times[arg.index()]).max().unwrap_or(0);
        let own = match node.kind {
            Kind::Input(Input::Byte(at)) => u32::from(at / FRAME_BYTES) * delays.stage,
            _ => delays.block_stages(dataflow, id) * delays.stage + delays.of(graph, id),
        };
        times.push(ready + own);
    }
    times
}
