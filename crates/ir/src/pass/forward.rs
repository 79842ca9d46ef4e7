//! State slices.
//!
//! **Goal.** A load never waits for a store of the same packet: what was stored is taken from where it came from. Then all loads
//! of a map can come before all its stores, and between them lies nothing but what one depends on the other for: the slice of the
//! map's state.
//!
//! ```text
//!   store if v1 v5 + 0 v7
//!   v9 = load if v2 v6 + 0        v9 = load if v2 v6 + 0
//!                                 v10 = eq v5 v6                 (nothing where both are one lookup's)
//!                                 v11 = select (and v1 v10) v7 v9
//! ```
//!
//! **Steps.** For each load, the stores and atomic operations before it in the same map, the first one first: those of other bytes
//! or on other paths do not matter; of the rest the value is selected where predicate and address meet.
//!
//! **After.** The value is the same whether the load runs before or behind the store.
//!
//! **Limits.** Addresses that only the run knows inside of a value, exchanges that compare, and entries that come or go stay as
//! they are: the load has to wait for them ([`Dataflow::waits`]).

use flowloom_bpf::op::AtomicOp;

use super::{rebuilt, same};
use crate::access::{Access, Touch};
use crate::build::Dataflow;
use crate::graph::{Binary, Compare, Effect, Graph, Id, Kind};
use crate::predicates::Predicates;

/// A write that loads behind it may have to know.
#[derive(Debug, Clone, Copy)]
struct Write {
    old: Id,
    map: u32,
    /// Its predicate, its address, what is added to it, how many bytes.
    predicate: Id,
    base: Id,
    offset: u64,
    bytes: u64,
    /// What lies there then.
    value: Id,
}

pub(super) fn run(dataflow: &Dataflow) -> Dataflow {
    let mut predicates = Predicates::new(&dataflow.graph);
    let mut writes: Vec<Write> = Vec::new();
    let mut forwarded = rebuilt(dataflow, |graph, id, node| {
        let args = node.args.clone();
        let kind = node.kind;
        let new = same(graph, node);
        let Some(Access { touch, map: Some(map) }) = dataflow.access(id) else { return new };
        match (kind, touch) {
            (Kind::Effect(Effect::Store(size)), _) => {
                if let Some(offset) = graph.as_const(args[2]) {
                    let (bytes, value) = (size.bytes() as u64, args[3]);
                    writes.push(Write { old: id, map, predicate: args[0], base: args[1], offset, bytes, value });
                }
                new
            }
            (Kind::Effect(Effect::Atomic(op, size)), _) => {
                if let (Some(offset), Some(value)) = (graph.as_const(args[2]), changed(graph, op, new, &args)) {
                    let bytes = size.bytes() as u64;
                    let value = graph.slice(value, 0, 8 * bytes as u16);
                    writes.push(Write { old: id, map, predicate: args[0], base: args[1], offset, bytes, value });
                }
                new
            }
            (Kind::Effect(Effect::Load(size)), _) => {
                let Some(offset) = graph.as_const(args[2]) else { return new };
                let own = dataflow.graph.node(id).args[0];
                let mut value = new;
                for write in writes.iter().filter(|write| write.map == map) {
                    let theirs = dataflow.graph.node(write.old).args[0];
                    if !predicates.exclude(&dataflow.graph, theirs, own) {
                        value = seen(graph, value, (args[1], offset, size.bytes() as u64), write);
                    }
                }
                value
            }
            _ => new,
        }
    });
    let mut predicates = Predicates::new(&forwarded.graph);
    let effects: Vec<Id> = forwarded.graph.ids().filter(|id| forwarded.access(*id).is_some()).collect();
    let waits = effects.iter().enumerate().map(|(place, id)| {
        let before = &effects[..place];
        (*id, must_wait(&forwarded, &mut predicates, (*id, before)))
    });
    let waits = waits.filter(|(_, writes)| !writes.is_empty()).collect();
    forwarded.waits = waits;
    forwarded
}

/// What an atomic operation leaves.
fn changed(graph: &mut Graph, op: AtomicOp, old: Id, args: &[Id]) -> Option<Id> {
    let operand = args[3];
    Some(match op {
        AtomicOp::Add { .. } => graph.binary(Binary::Add, old, operand),
        AtomicOp::Or { .. } => graph.or(old, operand),
        AtomicOp::And { .. } => graph.and(old, operand),
        AtomicOp::Xor { .. } => graph.binary(Binary::Xor, old, operand),
        AtomicOp::Xchg => operand,
        AtomicOp::CmpXchg => return None,
    })
}

/// What a load gives, given what it would without a write before it.
fn seen(graph: &mut Graph, without: Id, (base, offset, len): (Id, u64, u64), write: &Write) -> Id {
    let (first, end) = (offset.max(write.offset), (offset + len).min(write.offset + write.bytes));
    if first >= end || never_meet(graph, base, write.base) {
        return without;
    }
    let is_same = match base == write.base {
        true => graph.number(1, 1),
        false => graph.compare(Compare::Equal, base, write.base),
    };
    let here = graph.and(write.predicate, is_same);
    let bits = |bytes: u64| 8 * bytes as u16;
    let old = graph.slice(without, bits(first - offset), bits(end - first));
    let new = graph.slice(write.value, bits(first - write.offset), bits(end - first));
    let mut parts = vec![graph.select(vec![here, new, old])];
    if first > offset {
        parts.insert(0, graph.slice(without, 0, bits(first - offset)));
    }
    if end < offset + len {
        parts.push(graph.slice(without, bits(end - offset), bits(offset + len - end)));
    }
    graph.concat(parts)
}

/// Lookups of two keys that are different numbers.
fn never_meet(graph: &Graph, a: Id, b: Id) -> bool {
    let (x, y) = (graph.node(a), graph.node(b));
    let is_call = |kind: Kind| matches!(kind, Kind::Effect(Effect::Call { .. }));
    let differ = |(p, q): (&Id, &Id)| match (graph.as_const(*p), graph.as_const(*q)) {
        (Some(p), Some(q)) => p != q,
        _ => false,
    };
    is_call(x.kind) && x.kind == y.kind && x.args.iter().zip(&y.args).skip(1).any(differ)
}

/// What must come before a node although it does not use it: effects of the same packet whose traces it would miss.
///
/// Loads know what stores before them have left; what remains are entries that come or go, and addresses that only the run
/// knows.
fn must_wait(dataflow: &Dataflow, predicates: &mut Predicates, (id, before): (Id, &[Id])) -> Vec<Id> {
    let Some(Access { touch, map: Some(map) }) = dataflow.access(id) else { return Vec::new() };
    if !matches!(touch, Touch::Lookup | Touch::Load) {
        return Vec::new();
    }
    let own = dataflow.graph.node(id);
    let waits = |other: &Id, predicates: &mut Predicates| {
        let theirs = dataflow.access(*other).filter(|access| access.map == Some(map) && access.writes());
        let Some(theirs) = theirs else { return false };
        let node = dataflow.graph.node(*other);
        let is_known = |id: Id| dataflow.graph.as_const(id).is_some();
        let matters = match (theirs.touch, touch) {
            (Touch::Store | Touch::Atomic, Touch::Lookup) => false,
            (Touch::Store, _) => !is_known(node.args[2]) || !is_known(own.args[2]),
            (Touch::Atomic, _) => {
                let is_swap = matches!(node.kind, Kind::Effect(Effect::Atomic(AtomicOp::CmpXchg, _)));
                is_swap || !is_known(node.args[2]) || !is_known(own.args[2])
            }
            // What a load reads was found before.
            (_, Touch::Load) => !own.args[1..].iter().any(|base| base < other),
            _ => true,
        };
        matters && !predicates.exclude(&dataflow.graph, node.args[0], own.args[0])
    };
    before.iter().copied().filter(|other| waits(other, predicates)).collect()
}
