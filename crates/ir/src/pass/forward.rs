// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Store-to-load forwarding.
//!
//! **Goal.** A load never waits for a store of the same packet: the stored value is forwarded to it. Then all loads of
//! a map can come before all its stores, and the state slice between the first load and the last store holds nothing
//! but what the stored values depend on.
//!
//! ```text
//!   store if v1 v5 + 0 v7
//!   v9 = load if v2 v6 + 0        v9 = load if v2 v6 + 0
//!                                 v10 = eq v5 v6                 (omitted if both come from one lookup)
//!                                 v11 = select (and v1 v10) v7 v9
//! ```
//!
//! **Steps.** For each load, the earlier stores and atomic operations on the same map in program order: those that
//! cannot overlap or have an exclusive predicate are skipped; for the rest, a select takes the stored value if the
//! predicate holds and the addresses match. Where the distance of the two addresses is known only at run time, one
//! comparison for each distance at which they overlap selects the bytes:
//!
//! ```text
//!   store u32 v5 + v8 v7
//!   v9 = load u32 v5 + v6         v10 = eq v6 v8                 (both are multiples of 4: no other distance overlaps)
//!                                 v11 = select (and v1 v10) v7 v9
//! ```
//!
//! **After.** The value of a load is the same whether it runs before or after the stores.
//!
//! **Limits.** Insertions and deletions of entries are not forwarded: a later lookup or load waits for them
//! ([`Dataflow::waits`]), unless a byte of the two keys is known to differ or the predicates are exclusive. So do stores
//! and atomic operations by an address found before an update. A load by such an address waits where the update writes in
//! place; otherwise it has the old value. A load that depends on a change of entries also waits for the stores before the
//! change, which may have replaced what they wrote. A load past the budget of comparisons, which counts (load, write)
//! pairs, waits for all earlier stores.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_isa::MapKind;
use flowloom_isa::op::AtomicOp;

use super::{rebuilt, same};
use crate::access::{Access, Touch};
use crate::dataflow::Dataflow;
use crate::graph::{Binary, Compare, Effect, Graph, Id, Kind};
use crate::predicates::Predicates;

/// The budget of (load, earlier write of the same map) pairs that are compared.
const MAX_PAIRS: usize = 1_000_000;
/// The budget of comparisons of two offsets known only at run time.
const MAX_COMPARISONS: usize = 20_000;
/// The depth to which nodes are followed for the low bits of an offset.
const MAX_DEPTH: usize = 16;
/// The most constants that a byte of a key is one of.
const MAX_CONSTANTS: usize = 16;
/// The least number of entries of an LRU map that spares the entries of a packet when it evicts.
const MIN_ENTRIES: u32 = 64;
/// The largest flags of an update, `BPF_EXIST`, without `BPF_F_LOCK`.
const MAX_FLAGS: u64 = 2;

/// A write whose value a later load may need.
#[derive(Debug, Clone, Copy)]
struct Write {
    old: Id,
    new: Id,
    /// Its predicate, base address, offset, and size in bytes.
    predicate: Id,
    base: Id,
    offset: Id,
    bytes: u64,
    /// The value in memory after it.
    value: Id,
}

/// The budget that is left.
struct Budget {
    pairs: usize,
    comparisons: usize,
}

pub fn run(dataflow: &Dataflow) -> Dataflow {
    run_within(dataflow, Budget { pairs: MAX_PAIRS, comparisons: MAX_COMPARISONS })
}

fn run_within(dataflow: &Dataflow, mut budget: Budget) -> Dataflow {
    let mut predicates = Predicates::new(&dataflow.graph);
    let mut writes: BTreeMap<u32, Vec<Write>> = BTreeMap::new();
    // By map, the changes of its entries so far, by their places in the old graph.
    let mut changes: BTreeMap<u32, Vec<Id>> = BTreeMap::new();
    // Loads, each with the writes that it waits for because they are not forwarded to it.
    let mut late: BTreeMap<Id, Vec<Id>> = BTreeMap::new();
    let mut forwarded = rebuilt(dataflow, |graph, id, node| {
        let (args, kind) = (node.args.clone(), node.kind);
        let new = same(graph, node);
        let Some(access @ Access { map: Some(map), .. }) = dataflow.access(id) else { return new };
        let changes = changes.entry(map).or_default();
        if matches!(access.touch, Touch::Update | Touch::Delete | Touch::Evict) {
            changes.push(id);
        }
        let (size, value) = match kind {
            Kind::Effect(Effect::Store(size)) => (size, args[3]),
            Kind::Effect(Effect::Atomic(op, size)) => (size, changed(graph, op, 8 * size.bytes() as u16, new, &args)),
            Kind::Effect(Effect::Load(size)) => {
                let writes = writes.get(&map).map_or(&[][..], Vec::as_slice);
                let replaced = overwritten(dataflow, &mut predicates, (map, id), changes, writes);
                let own = dataflow.graph.node(id).args[0];
                let mut matters = |write: &&Write| {
                    let theirs = dataflow.graph.node(write.old).args[0];
                    !predicates.exclude(&dataflow.graph, theirs, own)
                };
                let base = dataflow.graph.node(id).args[1];
                let bytes = (args[1], args[2], size.bytes() as u64);
                let mut value = Some(new);
                for write in &writes[replaced..] {
                    let Some(before) = value else { break };
                    let left = budget.pairs.checked_sub(1);
                    budget.pairs = left.unwrap_or(0);
                    value = left.and_then(|_| {
                        let other = dataflow.graph.node(write.old).args[1];
                        if !matters(&write) || are_apart(dataflow, map, changes, base, other) {
                            return Some(before);
                        }
                        seen(graph, before, bytes, write, &mut budget.comparisons)
                    });
                }
                // Past the budget, the load waits for all of them.
                let waits = if value.is_some() { &writes[..replaced] } else { writes };
                let waits: Vec<Id> = waits.iter().filter(matters).map(|write| write.new).collect();
                if !waits.is_empty() {
                    late.insert(new, waits);
                }
                return value.unwrap_or(new);
            }
            _ => return new,
        };
        let (predicate, base, offset) = (args[0], args[1], args[2]);
        let write = Write { old: id, new, predicate, base, offset, bytes: size.bytes() as u64, value };
        writes.entry(map).or_default().push(write);
        new
    });
    forwarded.waits = late;
    wait_for_entries(&mut forwarded);
    forwarded
}

/// The value in memory after an atomic operation.
fn changed(graph: &mut Graph, op: AtomicOp, bits: u16, old: Id, args: &[Id]) -> Id {
    let [old, operand, compared] = [old, args[3], args[4]].map(|id| graph.slice(id, 0, bits));
    match op {
        AtomicOp::Add { .. } => graph.binary(Binary::Add, old, operand),
        AtomicOp::Or { .. } => graph.or(old, operand),
        AtomicOp::And { .. } => graph.and(old, operand),
        AtomicOp::Xor { .. } => graph.binary(Binary::Xor, old, operand),
        AtomicOp::Xchg => operand,
        AtomicOp::CmpXchg => {
            let is_same = graph.compare(Compare::Equal, old, compared);
            graph.select(vec![is_same, operand, old])
        }
    }
}

/// The value of a load after a write, given its value without that write. `None` past the budget.
fn seen(
    graph: &mut Graph,
    without: Id,
    (base, offset, len): (Id, Id, u64),
    write: &Write,
    comparisons: &mut usize,
) -> Option<Id> {
    let (own, theirs) = (Offset::of(graph, offset), Offset::of(graph, write.offset));
    let is_constant = own.moved == theirs.moved;
    let (step, rest) = match is_constant {
        true => (0, own.constant.wrapping_sub(theirs.constant)),
        false => {
            let (own, theirs) = (low_bits(graph, offset, 0), low_bits(graph, write.offset, 0));
            let bits = own.0.min(theirs.0).min(4);
            (1u64 << bits, own.1.wrapping_sub(theirs.1))
        }
    };
    let fits = |distance: &i64| match step {
        0 => *distance as u64 == rest,
        _ => (*distance as u64).wrapping_sub(rest).is_multiple_of(step),
    };
    let distances: Vec<i64> = (1 - len as i64..write.bytes as i64).filter(fits).collect();
    if distances.is_empty() {
        return Some(without);
    }
    let is_same = match base == write.base {
        true => graph.number(1, 1),
        false => graph.compare(Compare::Equal, base, write.base),
    };
    let here = graph.and(write.predicate, is_same);
    if !is_constant {
        *comparisons = comparisons.checked_sub(distances.len())?;
    }
    let mut parts = Vec::new();
    for distance in distances {
        let bit = match is_constant {
            true => here,
            false => {
                let distance = graph.number(distance as u64, 64);
                let other = graph.binary(Binary::Add, write.offset, distance);
                let meets = graph.compare(Compare::Equal, offset, other);
                graph.and(here, meets)
            }
        };
        parts.extend([bit, overlaid(graph, (without, len), write, distance)]);
    }
    parts.push(without);
    Some(graph.select(parts))
}

/// The value of a load that overlaps a write and begins `distance` bytes after it.
fn overlaid(graph: &mut Graph, (without, len): (Id, u64), write: &Write, distance: i64) -> Id {
    let bits = |bytes: i64| 8 * bytes as u16;
    let len = len as i64;
    let (first, end) = ((-distance).max(0), (write.bytes as i64 - distance).min(len));
    let mut parts = Vec::new();
    if first > 0 {
        parts.push(graph.slice(without, 0, bits(first)));
    }
    parts.push(graph.slice(write.value, bits(first + distance), bits(end - first)));
    if end < len {
        parts.push(graph.slice(without, bits(end), bits(len - end)));
    }
    graph.concat(parts)
}

/// An offset into a map value: a sum of nodes, each shifted, and a constant.
struct Offset {
    moved: (u16, Vec<Id>),
    constant: u64,
}

impl Offset {
    fn of(graph: &Graph, mut id: Id) -> Offset {
        let mut constant = 0u64;
        loop {
            let node = graph.node(id);
            match (node.kind, node.args.as_slice()) {
                (Kind::Const(value), _) => {
                    return Offset { moved: (0, Vec::new()), constant: constant.wrapping_add(value) };
                }
                (Kind::Binary(Binary::Add), [a, b]) => match (graph.as_const(*a), graph.as_const(*b)) {
                    (_, Some(value)) => (id, constant) = (*a, constant.wrapping_add(value)),
                    (Some(value), _) => (id, constant) = (*b, constant.wrapping_add(value)),
                    _ => return Offset { moved: (0, vec![id]), constant },
                },
                (Kind::Concat, [low, rest @ ..]) => {
                    return match graph.as_const(*low) {
                        Some(value) => {
                            Offset { moved: (graph.bits(*low), rest.to_vec()), constant: constant.wrapping_add(value) }
                        }
                        None => Offset { moved: (0, vec![id]), constant },
                    };
                }
                _ => return Offset { moved: (0, vec![id]), constant },
            }
        }
    }
}

/// The number of low bits of a node that are known, and their value.
fn low_bits(graph: &Graph, id: Id, depth: usize) -> (u32, u64) {
    let node = graph.node(id);
    if depth >= MAX_DEPTH {
        return (0, 0);
    }
    let known = |id: Id| low_bits(graph, id, depth + 1);
    match (node.kind, node.args.as_slice()) {
        (Kind::Const(value), _) => (u32::from(node.bits), value),
        (Kind::Binary(op @ (Binary::Add | Binary::Sub)), [a, b]) => {
            let (a, b) = (known(*a), known(*b));
            let sum = if op == Binary::Add { a.1.wrapping_add(b.1) } else { a.1.wrapping_sub(b.1) };
            (a.0.min(b.0), sum)
        }
        (Kind::Binary(Binary::ShiftLeft), [a, by]) => match graph.as_const(*by) {
            Some(by) if by < u64::from(node.bits) => {
                let (count, value) = known(*a);
                (count + by as u32, value << by)
            }
            _ => (0, 0),
        },
        (Kind::Binary(Binary::Mul), [a, b]) => match (graph.as_const(*a), graph.as_const(*b)) {
            (Some(factor), _) | (_, Some(factor)) if factor > 0 => (factor.trailing_zeros(), 0),
            _ => (0, 0),
        },
        (Kind::Binary(Binary::And), [a, b]) => match (graph.as_const(*a), graph.as_const(*b)) {
            (Some(mask), _) | (_, Some(mask)) if mask > 0 => (mask.trailing_zeros(), 0),
            _ => (0, 0),
        },
        (Kind::Concat, [low, rest @ ..]) => {
            let (count, value) = known(*low);
            let is_whole = count >= u32::from(graph.bits(*low));
            match (is_whole, rest) {
                // Adjacent constants are merged, so the next part is not a constant.
                (true, [next, ..]) => {
                    let (more, above) = known(*next);
                    let below = u32::from(graph.bits(*low));
                    if below >= 64 { (64, value) } else { (below + more, value & ((1 << below) - 1) | above << below) }
                }
                _ => (count, value),
            }
        }
        (Kind::Slice { low: 0 } | Kind::SignExtend, [a]) => {
            let (count, value) = known(*a);
            (count.min(u32::from(node.bits)).min(u32::from(graph.bits(*a))), value)
        }
        _ => (0, 0),
    }
}

/// The number of the earlier writes of a map, in program order, that a load waits for because a change of entries
/// between them and the load may have replaced what they wrote.
fn overwritten(
    dataflow: &Dataflow,
    predicates: &mut Predicates,
    (map, load): (u32, Id),
    changes: &[Id],
    writes: &[Write],
) -> usize {
    let Some(first) = writes.first() else { return 0 };
    let is_apart = |entry: Id, change: Id| differ(dataflow, map, entry, change);
    let last = (0..changes.len()).rev().find(|at| {
        let exclude = |one: Id, other: Id| predicates.exclude(&dataflow.graph, one, other);
        changes[*at] > first.old && depends_on(dataflow, load, (changes, *at), is_apart, exclude)
    });
    last.map_or(0, |at| writes.partition_point(|write| write.old < changes[at]))
}

/// Whether two addresses in a map are those of different entries: both are given by lookups whose keys are distinct
/// constants. In a map of prefixes, such keys may have one entry. In a hash table, an address found before a change of
/// entries may lead to the entry of another key, which has taken the slot.
fn are_apart(dataflow: &Dataflow, map: u32, changes: &[Id], a: Id, b: Id) -> bool {
    let is_between = |change: &Id| a.min(b) < *change && *change < a.max(b);
    let is_exact = dataflow.maps.get(map as usize).is_some_and(|map| match map.kind {
        MapKind::Array | MapKind::PerCpuArray => true,
        MapKind::Hash | MapKind::PerCpuHash | MapKind::LruHash | MapKind::LruPerCpuHash => {
            !changes.iter().any(is_between)
        }
        _ => false,
    });
    is_exact && keys_differ(&dataflow.graph, a, b)
}

/// Whether two lookups have keys that are distinct constants, or CPU numbers, of which 32 bits count.
fn keys_differ(graph: &Graph, a: Id, b: Id) -> bool {
    let (x, y) = (graph.node(a), graph.node(b));
    let is_call = |kind: Kind| matches!(kind, Kind::Effect(Effect::Call { .. }));
    let differ = |(p, q): (&Id, &Id)| match (graph.as_const(*p), graph.as_const(*q)) {
        (Some(p), Some(q)) => p as u32 != q as u32,
        _ => false,
    };
    is_call(x.kind) && x.kind == y.kind && x.args.iter().zip(&y.args).skip(1).any(differ)
}

/// Adds the accesses that must not overtake an earlier effect of the same packet although no value connects them.
///
/// Loads have the values of earlier stores by now; what remains are insertions and deletions of entries.
fn wait_for_entries(dataflow: &mut Dataflow) {
    let mut predicates = Predicates::new(&dataflow.graph);
    let mut entries: BTreeMap<u32, Vec<Id>> = BTreeMap::new();
    let mut waits = std::mem::take(&mut dataflow.waits);
    let overtaken = overtaken(dataflow, &mut predicates);
    for id in dataflow.graph.ids() {
        let Some(Access { touch, map: Some(map) }) = dataflow.access(id) else { continue };
        let before = entries.entry(map).or_default();
        if matches!(touch, Touch::Update | Touch::Delete | Touch::Evict) {
            before.push(id);
            continue;
        }
        let graph = &dataflow.graph;
        let mut matters = |at: &usize| {
            let is_apart = |entry: Id, other: Id| !overtaken.contains(&other) && differ(dataflow, map, entry, other);
            depends_on(dataflow, id, (before, *at), is_apart, |one, other| predicates.exclude(graph, one, other))
        };
        let found: Vec<usize> = (0..before.len()).filter(&mut matters).collect();
        if !found.is_empty() {
            waits.entry(id).or_default().extend(found.into_iter().map(|at| before[at]));
        }
    }
    dataflow.waits = waits;
}

/// Whether an access depends on an earlier change of the entries of its map, given by its place among all changes before the
/// access.
///
/// A lookup depends on changes of its key. An access to a value by an address found before the change depends on it in
/// two cases:
///
/// - The update writes the value in place, as in arrays and per-CPU maps, or takes the slot that an earlier change has
///   freed. Then the address leads to the new value.
/// - A store or atomic operation follows an update that takes a new slot, as in hash maps. Then the address leads to the
///   old value, and the write is lost. A load may still be made before the update.
///
/// `is_apart` tells whether the keys of an entry and of a change differ, `exclude` whether two predicates are mutually
/// exclusive.
pub(crate) fn depends_on(
    dataflow: &Dataflow,
    id: Id,
    (changes, at): (&[Id], usize),
    is_apart: impl Fn(Id, Id) -> bool,
    mut exclude: impl FnMut(Id, Id) -> bool,
) -> bool {
    let Some(Access { touch, map: Some(map) }) = dataflow.access(id) else { return false };
    let graph = &dataflow.graph;
    let when = |id: Id| graph.node(id).args[0];
    let change = changes[at];
    let entry = match touch {
        Touch::Lookup => id,
        Touch::Load => graph.node(id).args[1],
        Touch::Store | Touch::Atomic => found_by(graph, graph.node(id).args[1]),
        _ => return false,
    };
    if touch == Touch::Lookup || entry > change {
        let reads = matches!(touch, Touch::Lookup | Touch::Load);
        return reads && !is_apart(entry, change) && !exclude(when(change), when(id));
    }
    // A deleted value stays until an update takes its slot.
    if dataflow.access(change).is_none_or(|access| access.touch != Touch::Update) {
        return false;
    }
    let mut frees = |earlier: Id| {
        earlier > entry
            && !differ(dataflow, map, entry, earlier)
            && !exclude(when(earlier), when(id))
            && !exclude(when(earlier), when(change))
    };
    let is_reused = changes[..at].iter().any(|earlier| frees(*earlier));
    let is_safe =
        differ(dataflow, map, entry, change) || touch == Touch::Load && takes_new_slot(dataflow, map, entry, change);
    (is_reused || !is_safe) && !exclude(when(change), when(id))
}

/// The earliest lookup that may have given an address.
fn found_by(graph: &Graph, base: Id) -> Id {
    let (mut seen, mut work, mut first) = (BTreeSet::new(), vec![base], base);
    while let Some(id) = work.pop() {
        if !seen.insert(id) {
            continue;
        }
        match (graph.node(id).kind, graph.node(id).args.as_slice()) {
            (Kind::Select, [pairs @ .., last]) => {
                work.push(*last);
                work.extend(pairs.chunks_exact(2).map(|pair| pair[1]));
            }
            (Kind::Const(_), _) => {}
            _ => first = first.min(id),
        }
    }
    first
}

/// Whether an update leaves the old value of an entry, looked up before, in its slot.
fn takes_new_slot(dataflow: &Dataflow, map: u32, lookup: Id, update: Id) -> bool {
    // `BPF_F_LOCK` writes in place.
    let flags = dataflow.graph.node(update).args.last().and_then(|flags| dataflow.graph.as_const(*flags));
    let is_plain = flags.is_some_and(|flags| flags <= MAX_FLAGS);
    let is_same = || dataflow.key(lookup).is_some_and(|key| dataflow.key(update) == Some(key));
    let takes = dataflow.maps.get(map as usize).is_some_and(|map| match map.kind {
        MapKind::Hash => true,
        // A small map may evict the entry that was looked up for one of another key.
        MapKind::LruHash => map.max_entries >= MIN_ENTRIES || is_same(),
        _ => false,
    });
    is_plain && takes
}

/// The changes of entries that decide the result of a later one, which is given before they commit: of the last free
/// entry of a hash table, for example.
fn overtaken(dataflow: &Dataflow, predicates: &mut Predicates) -> BTreeSet<Id> {
    let graph = &dataflow.graph;
    let args = graph.nodes().iter().flat_map(|node| node.args.iter().copied());
    let used: BTreeSet<Id> = args.chain(dataflow.ending.nodes()).collect();
    let mut entries: BTreeMap<u32, Vec<Id>> = BTreeMap::new();
    let mut overtaken = BTreeSet::new();
    for id in graph.ids() {
        let Some(Access { touch, map: Some(map) }) = dataflow.access(id) else { continue };
        if !matches!(touch, Touch::Update | Touch::Delete | Touch::Evict) {
            continue;
        }
        let before = entries.entry(map).or_default();
        if used.contains(&id) {
            let own = graph.node(id).args[0];
            overtaken
                .extend(before.iter().filter(|other| !predicates.exclude(graph, graph.node(**other).args[0], own)));
        }
        before.push(id);
    }
    overtaken
}

/// Whether a lookup and a change of an entry have keys that differ in a byte, in a map that matches whole keys.
///
/// An LRU map that is full evicts an entry of its choice for a new one: any but those that this packet has looked up.
pub(crate) fn differ(dataflow: &Dataflow, map: u32, lookup: Id, change: Id) -> bool {
    let is_exact = dataflow.maps.get(map as usize).is_some_and(|map| match map.kind {
        MapKind::Hash | MapKind::PerCpuHash | MapKind::Array | MapKind::PerCpuArray => true,
        MapKind::LruHash | MapKind::LruPerCpuHash => map.max_entries >= MIN_ENTRIES,
        _ => false,
    });
    let names_entry = |id: Id| {
        let touch = dataflow.access(id).map(|access| access.touch);
        matches!(touch, Some(Touch::Lookup | Touch::Update | Touch::Delete))
    };
    if !is_exact || !names_entry(lookup) || !names_entry(change) {
        return false;
    }
    let (Some(own), Some(other)) = (dataflow.key(lookup), dataflow.key(change)) else { return false };
    let apart = |(a, b): (&Id, &Id)| {
        let graph = &dataflow.graph;
        let (Some(a), Some(b)) = (constants(graph, *a, 0), constants(graph, *b, 0)) else { return false };
        a.iter().all(|value| !b.contains(value))
    };
    own.len() == other.len() && own.iter().zip(other).any(apart)
}

/// The constants of which a node is one; `None` if it may be another value.
fn constants(graph: &Graph, id: Id, depth: usize) -> Option<Vec<u64>> {
    let node = graph.node(id);
    if depth >= MAX_DEPTH {
        return None;
    }
    match (node.kind, node.args.as_slice()) {
        (Kind::Const(value), _) => Some(vec![value]),
        (Kind::Select, [pairs @ .., last]) => {
            let mut all = constants(graph, *last, depth + 1)?;
            for pair in pairs.chunks_exact(2) {
                all.extend(constants(graph, pair[1], depth + 1)?);
                if all.len() > MAX_CONSTANTS {
                    return None;
                }
            }
            Some(all)
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    /// A byte is stored and another loaded in one value, at offsets from the packet.
    const BYTES: &str = "program bytes
map 0 values array key 4 value 256 entries 1
call 0 map_lookup_elem map 0, read 4
v0 1 @0 const 0x1
v1 8 @0 const 0x0
v2 64 @0 call 0 if v0: v1 v1 v1 v1
v3 8 @1 byte 0
v4 56 @1 const 0x0
v5 64 @1 concat v3 v4
v6 8 @2 byte 1
v7 64 @2 concat v6 v4
v8 0 @3 store b if v0: v2 v5 v3
v9 8 @4 load b if v0: v2 v7
v10 24 @5 const 0x0
v11 32 @5 concat v9 v10
v12 32 @5 const 0x0
v13 1 @5 const 0x0
verdict v11
head v12
tail v12
slow v13
";

    #[test]
    fn a_load_past_the_budget_waits() {
        let dataflow: Dataflow = BYTES.parse().unwrap_or_else(|error| panic!("{error}"));
        let waits = |pairs, comparisons| {
            let forwarded = run_within(&dataflow, Budget { pairs, comparisons });
            let compares = |node: &&crate::graph::Node| matches!(node.kind, Kind::Compare(Compare::Equal));
            (forwarded.waits.len(), forwarded.graph.nodes().iter().filter(compares).count())
        };
        assert_eq!(waits(1, 1), (0, 1), "one comparison tells");
        assert_eq!(waits(0, 1), (1, 0), "no pair is left");
        assert_eq!(waits(1, 0), (1, 0), "no comparison is left");
    }

    #[test]
    fn a_load_past_the_budget_waits_for_all_stores() {
        let mut text = BYTES.to_owned();
        for number in (9..=13).rev() {
            text = text.replace(&format!("v{number}"), &format!("v{}", number + 1));
        }
        let text = text.replace("v10 8 @4 load", "v9 0 @3 store b if v0: v2 v7 v6\nv10 8 @4 load");
        let dataflow: Dataflow = text.parse().unwrap_or_else(|error| panic!("{error}"));
        let waiting = |pairs| run_within(&dataflow, Budget { pairs, comparisons: 9 }).waits.into_values().next();
        assert_eq!(waiting(2), None, "both are forwarded");
        for pairs in [0, 1] {
            assert_eq!(
                waiting(pairs).map(|writes| writes.len()),
                Some(2),
                "the first one counts, where the second does"
            );
        }
    }

    /// A byte of an entry is stored, and another one loaded, by an address found before an update of the entry.
    const OLD: &str = "program old
map 0 values KIND key 1 value 1 entries 64
call 0 map_lookup_elem map 0, read 1
call 1 map_update_elem map 0, read 1, read 1, number
v0 1 @0 const 0x1
v1 8 @0 byte 0
v2 64 @0 const 0x0
v3 64 @1 call 0 if v0: v1
v4 8 @2 byte 1
v5 64 @3 call 1 if v0: v1 v4 v2
v6 8 @4 load b if v0: v3 v2
v7 0 @5 store b if v0: v3 v2 v4
v8 24 @6 const 0x0
v9 32 @6 concat v6 v8
v10 32 @6 const 0x0
v11 1 @6 const 0x0
verdict v9
head v10
tail v10
slow v11
";

    #[test]
    fn accesses_by_an_old_address_wait_for_an_update() {
        for (kind, waiting) in [("hash", &[7][..]), ("lru_hash", &[7]), ("percpu_hash", &[6, 7]), ("array", &[6, 7])] {
            let text = OLD.replace("KIND", kind);
            let dataflow: Dataflow = text.parse().unwrap_or_else(|error| panic!("{kind}: {error}"));
            let mut forwarded = run(&dataflow);
            let waits: Vec<usize> = forwarded.waits.keys().map(|id| id.index()).collect();
            assert_eq!(waits, waiting, "{kind}");
            assert_eq!(crate::missing_waits(&forwarded), [], "{kind}");
            forwarded.waits.clear();
            assert_eq!(crate::missing_waits(&forwarded).len(), waiting.len(), "{kind}");
        }
    }

    /// A byte of one entry is stored, and a byte of an entry of another key is loaded; the entries may change between the
    /// two lookups.
    const APART: &str = "program apart
map 0 values KIND key 5 value 1 entries 64
call 0 map_lookup_elem map 0, read 5
call 1 map_update_elem map 0, read 5, read 1, number
v0 1 @0 const 0x1
v1 8 @0 const 0x1
v2 8 @0 const 0x2
v3 64 @0 const 0x0
v4 8 @0 byte 0
v5 64 @1 call 0 if v0: v1 v1 v1 v1 v1
v6 64 @2 call 1 if v0: v1 v1 v1 v1 v2 v4 v3
v7 64 @3 call 0 if v0: v1 v1 v1 v1 v2
v8 0 @4 store b if v0: v5 v3 v4
v9 8 @5 load b if v0: v7 v3
v10 24 @6 const 0x0
v11 32 @6 concat v9 v10
v12 32 @6 const 0x0
v13 1 @6 const 0x0
verdict v11
head v12
tail v12
slow v13
";

    #[test]
    fn entries_of_different_keys_may_be_one() {
        let unchanged = "v6 64 @2 const 0x7";
        let cases = [
            ("array", "", false),
            ("hash", unchanged, false),
            ("hash", "", true),
            ("lru_hash", "", true),
            ("lpm_trie", unchanged, true),
        ];
        for (kind, line, may_be_one) in cases {
            let mut text = APART.replace("KIND", kind);
            if kind == "array" {
                text = text.replace("key 5", "key 4").replace("read 5", "read 4").replace("v1 v1 v1 v1", "v1 v1 v1");
            }
            if !line.is_empty() {
                let change = text.lines().find(|line| line.starts_with("v6 ")).unwrap_or_default().to_owned();
                text =
                    text.replace(&change, line).replace("call 1 map_update_elem map 0, read 5, read 1, number\n", "");
            }
            let dataflow: Dataflow = text.parse().unwrap_or_else(|error| panic!("{kind}: {error}"));
            let forwarded = run(&dataflow);
            let compares = |node: &crate::graph::Node| matches!(node.kind, Kind::Compare(Compare::Equal));
            assert_eq!(forwarded.graph.nodes().iter().any(compares), may_be_one, "{kind}, `{line}`");
        }
    }
}
