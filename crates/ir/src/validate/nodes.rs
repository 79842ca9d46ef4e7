// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of single nodes: references, order, arity, widths, hash-consing.

use rustc_hash::FxHashMap;

use super::invalid::{ADDRESS_BITS, Invalid, MAX_BITS, OFFSET_BITS, Site};
use crate::arith;
use crate::dataflow::{Argument, Dataflow};
use crate::graph::{Effect, Id, Input, Kind, Node};

/// All references are to nodes that exist, those of nodes to earlier ones.
pub(crate) fn references(dataflow: &Dataflow, found: &mut Vec<Invalid>) {
    let graph = &dataflow.graph;
    let nodes = graph.nodes().len();
    let own = graph.ids().flat_map(|id| graph.node(id).args.iter().map(move |arg| (Site::Node(id), *arg)));
    for (site, id) in own.chain(dataflow.references()) {
        match site {
            _ if id.index() >= nodes => found.push(Invalid::UnknownNode { site, found: id, nodes }),
            Site::Node(node) if id >= node => found.push(Invalid::Order { node, found: id }),
            _ => {}
        }
    }
}

/// Each node has the arguments and the width of its operation, and no equal pure node.
pub(super) fn nodes(dataflow: &Dataflow, found: &mut Vec<Invalid>) {
    let graph = &dataflow.graph;
    let mut known: FxHashMap<&Node, Id> = FxHashMap::default();
    for id in graph.ids() {
        if let Err(invalid) = node(dataflow, id) {
            found.push(invalid);
        }
        let node = graph.node(id);
        if !matches!(node.kind, Kind::Effect(_)) {
            let first = *known.entry(node).or_insert(id);
            if first != id {
                found.push(Invalid::Duplicate { node: id, first });
            }
        }
    }
}

/// The widths that an operation takes, and the width of its result.
struct Widths {
    args: Vec<u16>,
    result: u16,
}

/// A node has the arguments and the width of its operation.
pub(crate) fn node(dataflow: &Dataflow, id: Id) -> Result<(), Invalid> {
    let graph = &dataflow.graph;
    let node = graph.node(id);
    let is_effect = matches!(node.kind, Kind::Effect(_));
    if !is_effect && !(1..=MAX_BITS).contains(&node.bits) {
        return Err(Invalid::WidthRange { node: id, found: node.bits });
    }
    let found: Vec<u16> = node.args.iter().map(|arg| graph.bits(*arg)).collect();
    let expected = widths(dataflow, id, &found)?;
    if found.len() != expected.args.len() {
        return Err(Invalid::Arity { node: id, found: found.len(), expected: expected.args.len() });
    }
    if let Some(argument) = (0..found.len()).find(|place| found[*place] != expected.args[*place]) {
        let (bits, arg, last) = (found[argument], node.args[argument], found.len() - 1);
        return Err(match node.kind {
            Kind::Effect(_) if argument == 0 => Invalid::Predicate { node: id, found: arg, bits },
            Kind::Select if argument % 2 == 0 && argument < last => Invalid::Condition { node: id, found: arg, bits },
            _ => Invalid::ArgumentWidth { node: id, argument, found: bits, expected: expected.args[argument] },
        });
    }
    if node.bits != expected.result {
        return Err(Invalid::Width { site: Site::Node(id), found: node.bits, expected: expected.result });
    }
    Ok(())
}

/// The widths that the operation of a node takes, given those of its arguments.
fn widths(dataflow: &Dataflow, id: Id, found: &[u16]) -> Result<Widths, Invalid> {
    let node = dataflow.graph.node(id);
    let bits = node.bits;
    // Without arguments the arity is wrong, which is reported whatever the width is.
    let first = found.first().copied().unwrap_or(bits);
    let of = |args: Vec<u16>, result: u16| Ok(Widths { args, result });
    match node.kind {
        Kind::Const(value) if arith::cut(value, bits) != value => Err(Invalid::Constant { node: id, value, bits }),
        Kind::Const(_) => of(Vec::new(), bits),
        Kind::Input(Input::Byte(_)) => of(Vec::new(), 8),
        Kind::Input(Input::Length) => of(Vec::new(), 16),
        Kind::Input(Input::Port) => of(Vec::new(), 32),
        Kind::Input(Input::Only(map)) => match super::patterns::table(dataflow, Site::Node(id), map)?.max_entries {
            1 => of(Vec::new(), ADDRESS_BITS),
            found => Err(Invalid::SeveralEntries { node: id, map, found }),
        },
        Kind::Slice { low } => match u32::from(low) + u32::from(bits) {
            end if end > first.into() && found.len() == 1 => Err(Invalid::Slice { node: id, low, end, bits: first }),
            _ => of(vec![first], bits),
        },
        Kind::Concat if found.is_empty() => Err(Invalid::EmptyConcat { node: id }),
        Kind::Concat => of(found.to_vec(), found.iter().fold(0, |all, part| all.saturating_add(*part))),
        // An argument that is wider than the node is reported as one of the node's width.
        Kind::SignExtend => of(vec![first.min(bits)], bits),
        Kind::Binary(_) => of(vec![bits; 2], bits),
        Kind::Compare(_) => of(vec![first; 2], 1),
        Kind::Not => of(vec![bits], bits),
        Kind::Select if found.len() < 3 || found.len().is_multiple_of(2) => {
            Err(Invalid::Select { node: id, found: found.len() })
        }
        Kind::Select => {
            let last = found.len() - 1;
            let is_condition = |place: usize| place.is_multiple_of(2) && place != last;
            of((0..=last).map(|place| if is_condition(place) { 1 } else { bits }).collect(), bits)
        }
        Kind::Bytes { .. } if !bits.is_multiple_of(8) => Err(Invalid::PartialByte { node: id, found: bits }),
        Kind::Bytes { .. } => of(vec![OFFSET_BITS], bits),
        Kind::Changed { at } => {
            if let [call] = node.args.as_slice() {
                written_byte(dataflow, id, *call, at)?;
            }
            of(vec![ADDRESS_BITS], 8)
        }
        Kind::Effect(effect) => {
            let (args, result) = effect_widths(dataflow, id, effect)?;
            of([vec![1], args].concat(), result)
        }
    }
}

/// The widths of the arguments of an effect after its predicate, and of its result.
fn effect_widths(dataflow: &Dataflow, id: Id, effect: Effect) -> Result<(Vec<u16>, u16), Invalid> {
    let address = [ADDRESS_BITS; 2];
    Ok(match effect {
        Effect::Load(size) => (address.to_vec(), 8 * size.bytes() as u16),
        Effect::Store(size) => ([&address[..], &[8 * size.bytes() as u16]].concat(), 0),
        Effect::Atomic(..) => (vec![ADDRESS_BITS; 4], 64),
        Effect::Call { helper, pattern } => {
            let patterns = dataflow.patterns.len();
            let own = dataflow.patterns.get(usize::from(pattern));
            let own = own.ok_or(Invalid::UnknownPattern { node: id, found: pattern, patterns })?;
            if own.helper != helper {
                return Err(Invalid::PatternHelper { node: id, found: helper, expected: own.helper });
            }
            (own.arguments.iter().flat_map(argument_widths).collect(), 64)
        }
    })
}

/// The widths of the nodes of an argument.
fn argument_widths(argument: &Argument) -> Vec<u16> {
    match argument {
        Argument::Context | Argument::Map(_) => Vec::new(),
        Argument::Number => vec![64],
        Argument::Read(bytes) | Argument::Changed(bytes) => vec![8; usize::from(*bytes)],
        Argument::Head | Argument::Tail | Argument::Kept | Argument::Base => vec![OFFSET_BITS],
        Argument::Laid(_) | Argument::Stored(_) => vec![1, 8],
        Argument::Byte(_) => vec![8],
    }
}

/// The byte of memory is one that the call may write.
fn written_byte(dataflow: &Dataflow, node: Id, call: Id, at: u16) -> Result<(), Invalid> {
    let Kind::Effect(Effect::Call { pattern, .. }) = dataflow.graph.node(call).kind else {
        return Err(Invalid::NotACall { node, found: call });
    };
    // A call without a pattern is reported itself.
    match dataflow.patterns.get(usize::from(pattern)).map(|pattern| pattern.changed_bytes()) {
        Some(bytes) if usize::from(at) >= bytes => Err(Invalid::ChangedByte { node, found: at, bytes }),
        _ => Ok(()),
    }
}
