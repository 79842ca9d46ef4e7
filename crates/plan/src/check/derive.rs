// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The facts that the checker derives from the dataflow, independently of the planner.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Dataflow, Id, Input, Kind, Touch, largest};
use flowloom_isa::MapKind;

use crate::tables::Uses;

/// The greatest length in bytes that the shell compares by counting words as they arrive.
const COUNTED_BYTES: u64 = 512;

/// The accesses to a map that packets may write, each list in the order of the program.
#[derive(Debug, Clone, Default)]
pub(super) struct Accesses {
    pub(super) lookups: Vec<Id>,
    pub(super) loads: Vec<Id>,
    pub(super) atomics: Vec<Id>,
    pub(super) stores: Vec<Id>,
    /// Updates, deletions and evictions.
    pub(super) changes: Vec<Id>,
    /// Whether the result of a change depends on the contents of the map.
    pub(super) has_answers: bool,
}

impl Accesses {
    /// All accesses, in the order of the program.
    pub(super) fn all(&self) -> impl Iterator<Item = Id> {
        let lists = [&self.lookups, &self.loads, &self.atomics, &self.stores, &self.changes];
        let all: BTreeSet<Id> = lists.into_iter().flatten().copied().collect();
        all.into_iter()
    }

    /// All writes, in the order of the program.
    pub(super) fn writes(&self) -> impl Iterator<Item = Id> {
        let all: BTreeSet<Id> = [&self.atomics, &self.stores, &self.changes].into_iter().flatten().copied().collect();
        all.into_iter()
    }

    /// Keeps some of the accesses.
    pub(super) fn retain(&mut self, is_kept: impl Fn(Id) -> bool) {
        for list in [&mut self.lookups, &mut self.loads, &mut self.atomics, &mut self.stores, &mut self.changes] {
            list.retain(|id| is_kept(*id));
        }
    }

    /// Whether a plan claims exactly these accesses.
    pub(super) fn are_all_of(&self, claimed: &Uses) -> bool {
        self.lookups == claimed.lookups
            && self.loads == claimed.loads
            && self.atomics == claimed.atomics
            && self.stores == claimed.stores
            && self.changes == claimed.entries
    }

    /// The distinct keys of the entries that are accessed; `None` if one of them is not known.
    pub(super) fn keys(&self, dataflow: &Dataflow) -> Option<BTreeSet<Vec<Id>>> {
        let mut keys = BTreeSet::new();
        for id in self.all() {
            let node = dataflow.graph.node(id);
            let is_value = self.loads.contains(&id) || self.atomics.contains(&id) || self.stores.contains(&id);
            // A value belongs to a lookup of the same map, whose key counts, or to the only entry of a map.
            if !is_value {
                keys.insert(dataflow.key(id)?.to_vec());
            } else if is_only(dataflow, node.args[1]) {
                keys.insert(Vec::new());
            }
        }
        Some(keys)
    }
}

/// Whether an address may be that of the only entry of a map.
fn is_only(dataflow: &Dataflow, address: Id) -> bool {
    let node = dataflow.graph.node(address);
    match node.kind {
        Kind::Input(Input::Only(_)) => true,
        Kind::Select => node.args.iter().any(|arg| is_only(dataflow, *arg)),
        _ => false,
    }
}

/// The accesses by map. Tables that only the host writes, and ring buffers, are left out.
pub(super) fn accesses(dataflow: &Dataflow) -> BTreeMap<u32, Accesses> {
    let mut all: BTreeMap<u32, Accesses> = BTreeMap::new();
    for id in dataflow.graph.ids() {
        let Some((touch, map)) = dataflow.access(id).and_then(|access| Some((access.touch, access.map?))) else {
            continue;
        };
        let list: fn(&mut Accesses) -> &mut Vec<Id> = match touch {
            Touch::Lookup => |own| &mut own.lookups,
            Touch::Load => |own| &mut own.loads,
            Touch::Store => |own| &mut own.stores,
            Touch::Atomic => |own| &mut own.atomics,
            Touch::Update | Touch::Delete | Touch::Evict => |own| &mut own.changes,
            _ => continue,
        };
        let kind = dataflow.maps.get(map as usize).map(|map| map.kind);
        let own = all.entry(map).or_default();
        own.has_answers = !matches!(kind, Some(MapKind::Array | MapKind::PerCpuArray));
        list(own).push(id);
    }
    all
}

/// Whether any node or output uses the value of a node.
pub(super) fn is_used(dataflow: &Dataflow, id: Id) -> bool {
    let is_arg = |other: Id| dataflow.graph.node(other).args.contains(&id);
    dataflow.graph.ids().any(is_arg) || dataflow.ending.nodes().any(|output| output == id)
}

/// The words of the packet that nodes need.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Reads of the packet with the last byte that they may read.
    pub(super) bytes: Vec<(Id, u32)>,
    /// The last byte at a constant offset that is written.
    pub(super) written: Option<u32>,
    /// Tests of the length with the byte whose presence decides them.
    pub(super) tests: Vec<(Id, u32)>,
    /// Whether anything needs the exact length.
    pub(super) exact_length: bool,
}

impl Words {
    pub(super) fn of(dataflow: &Dataflow) -> Words {
        let graph = &dataflow.graph;
        let (used, most) = (dataflow.used(), largest(dataflow));
        let mut words = Words::default();
        // By node, how many low bits of the length it leaves out, if it is the length above them.
        let mut lengths: BTreeMap<Id, u16> = BTreeMap::new();
        for id in &used {
            let node = graph.node(*id);
            match node.kind {
                Kind::Input(Input::Byte(at)) => words.bytes.push((*id, at.into())),
                Kind::Input(Input::Length) => drop(lengths.insert(*id, 0)),
                Kind::Bytes { ahead } => {
                    let last = most[node.args[0].index()] as i64 + i64::from(ahead) + i64::from(node.bits / 8) - 1;
                    words.bytes.push((*id, u32::try_from(last.max(0)).unwrap_or(u32::MAX)));
                }
                _ => {}
            }
            let of_length: Vec<(usize, u16)> =
                node.args.iter().enumerate().filter_map(|(at, arg)| Some((at, *lengths.get(arg)?))).collect();
            match (node.kind, of_length.as_slice()) {
                (_, []) => {}
                // The upper bits stay: the value saturates where the length does.
                (Kind::Slice { low: more }, [(_, low)]) if more + node.bits == graph.bits(node.args[0]) => {
                    lengths.insert(*id, low + more);
                }
                (Kind::SignExtend, [(_, low)]) | (Kind::Concat, [(0, low)]) => drop(lengths.insert(*id, *low)),
                (Kind::Compare(_), [(at, low)]) => {
                    // All lengths from this one on give the same answer.
                    let least = (u128::from(most[node.args[1 - at].index()]) + 1) << low;
                    match u64::try_from(least).ok().filter(|least| *least <= COUNTED_BYTES) {
                        Some(least) => words.tests.push((*id, least.saturating_sub(1) as u32)),
                        None => words.exact_length = true,
                    }
                }
                _ => words.exact_length = true,
            }
        }
        // The end of a packet that keeps its length is where it was.
        let ending = &dataflow.ending;
        words.exact_length |= ending.nodes().any(|id| id != ending.tail && lengths.contains_key(&id));
        words.written = ending.packet.keys().filter_map(|at| u32::try_from(*at).ok()).max();
        words
    }
}
