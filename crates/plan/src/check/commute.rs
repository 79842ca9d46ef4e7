// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checker's own rule for updates that commute: a forward interpretation of the dataflow, where the planner's
//! [`crate::commute`] matches backwards from stores.

use flowloom_ir::{Binary, Dataflow, Effect, Graph, Id, Kind, Touch};
use flowloom_isa::op::{AtomicOp, Size};

/// What a node has of a map's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Nothing: it does not depend on it.
    Nothing,
    /// Its low `bits` bits are a loaded word, or the word `by` something that does not depend on the map.
    Word {
        /// The load.
        load: Id,
        bits: u16,
        by: Option<Binary>,
    },
    /// Anything else that depends on it.
    Mixed,
}

/// A word that an update changes: the operator, the offset if constant, and the size.
type Changed = (Binary, Option<u64>, Size);

/// Whether the updates of a map give the same values in any order of packets, whose order is observed nowhere else.
pub(crate) fn updates_commute(dataflow: &Dataflow, map: u32) -> bool {
    let graph = &dataflow.graph;
    let mut origins: Vec<Origin> = Vec::with_capacity(graph.nodes().len());
    let mut changed: Vec<Changed> = Vec::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let is_free = |args: &[Id]| args.iter().all(|arg| origins[arg.index()] == Origin::Nothing);
        let touch = dataflow.access(id).filter(|access| access.map == Some(map)).map(|access| access.touch);
        let own = match (node.kind, touch) {
            (Kind::Effect(Effect::Store(size)), Some(_)) => {
                let Some(by) = added(graph, id, origins[node.args[3].index()]).filter(|_| is_free(&node.args[..3]))
                else {
                    return false;
                };
                changed.push((by, graph.as_const(node.args[2]), size));
                Origin::Nothing
            }
            (Kind::Effect(_), _) if !is_free(&node.args) => return false,
            (Kind::Effect(Effect::Load(_)), Some(_)) => Origin::Word { load: id, bits: node.bits, by: None },
            (Kind::Effect(Effect::Atomic(op, size)), Some(_)) => {
                let by = match op {
                    AtomicOp::Add { .. } => Binary::Add,
                    AtomicOp::Or { .. } => Binary::Or,
                    AtomicOp::And { .. } => Binary::And,
                    AtomicOp::Xor { .. } => Binary::Xor,
                    AtomicOp::Xchg | AtomicOp::CmpXchg => return false,
                };
                changed.push((by, graph.as_const(node.args[2]), size));
                Origin::Mixed
            }
            (_, Some(Touch::Update | Touch::Delete | Touch::Evict)) => return false,
            (_, Some(Touch::Lookup)) if dataflow.remembers_use(map) => return false,
            (Kind::Effect(_), _) => Origin::Nothing,
            _ => pure(graph, id, &origins),
        };
        origins.push(own);
    }
    let has_unused_result = dataflow.ending.nodes().all(|id| origins[id.index()] == Origin::Nothing);
    has_unused_result && (0..changed.len()).all(|a| (a..changed.len()).all(|b| commute(&changed[a], &changed[b])))
}

fn commute(a: &Changed, b: &Changed) -> bool {
    let end = |at: u64, size: Size| at + size.bytes() as u64;
    let overlap = match (a.1, b.1) {
        (Some(x), Some(y)) => x < end(y, b.2) && y < end(x, a.2),
        _ => true,
    };
    // A carry crosses the border of a word that lies inside of another.
    let is_one_word = a.1.is_some() && (a.1, a.2) == (b.1, b.2);
    !overlap || a.0 == b.0 && (a.0 != Binary::Add || is_one_word)
}

/// The operator by which a store adds to the word that it overwrites, given what the stored value holds.
fn added(graph: &Graph, store: Id, value: Origin) -> Option<Binary> {
    let Origin::Word { load, bits, by } = value else { return None };
    let (load, store) = (graph.node(load), graph.node(store));
    let (Kind::Effect(Effect::Load(from)), Kind::Effect(Effect::Store(to))) = (load.kind, store.kind) else {
        return None;
    };
    let is_same_word = from == to && load.args[1] == store.args[1] && load.args[2] == store.args[2];
    // A load that does not happen gives 0.
    let happens = load.args[0] == store.args[0] || graph.as_const(load.args[0]) == Some(1);
    by.filter(|_| is_same_word && happens && usize::from(bits) >= 8 * to.bytes())
}

fn pure(graph: &Graph, id: Id, origins: &[Origin]) -> Origin {
    let node = graph.node(id);
    let of = |arg: &Id| origins[arg.index()];
    if node.args.iter().all(|arg| of(arg) == Origin::Nothing) {
        return Origin::Nothing;
    }
    match (node.kind, node.args.as_slice()) {
        (Kind::Slice { low: 0 } | Kind::SignExtend | Kind::Concat, [first, ..]) => match of(first) {
            Origin::Word { load, bits, by } => Origin::Word { load, bits: bits.min(node.bits), by },
            _ => Origin::Mixed,
        },
        (Kind::Binary(op), [a, b]) => {
            let op = match (op, of(a), of(b)) {
                (Binary::Sub, Origin::Word { .. }, Origin::Nothing) => Binary::Add,
                (Binary::Add | Binary::And | Binary::Or | Binary::Xor, ..) => op,
                _ => return Origin::Mixed,
            };
            match (of(a), of(b)) {
                (Origin::Word { load, bits, by }, Origin::Nothing)
                | (Origin::Nothing, Origin::Word { load, bits, by })
                    if by.is_none_or(|by| by == op) =>
                {
                    Origin::Word { load, bits, by: Some(op) }
                }
                _ => Origin::Mixed,
            }
        }
        _ => Origin::Mixed,
    }
}
