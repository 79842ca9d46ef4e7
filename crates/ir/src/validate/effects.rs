// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of effects: addresses and waits.

use std::collections::BTreeSet;

use flowloom_isa::MapKind;
use flowloom_isa::insn::helper;

use super::invalid::Invalid;
use crate::access::Touch;
use crate::dataflow::Dataflow;
use crate::graph::{Effect, Id, Input, Kind};

/// The base of each access is the address of a value of one map, and each read waits for earlier writes of that map.
pub(super) fn effects(dataflow: &Dataflow, found: &mut Vec<Invalid>) {
    for id in dataflow.graph.ids() {
        if let Kind::Effect(effect) = dataflow.graph.node(id).kind
            && let Err(invalid) = address(dataflow, id, effect)
        {
            found.push(invalid);
        }
    }
    for (read, writes) in &dataflow.waits {
        found.extend(waits(dataflow, *read, writes));
    }
}

/// Checks the base address of an effect that has one, and the extent of an access at a constant offset.
fn address(dataflow: &Dataflow, node: Id, effect: Effect) -> Result<(), Invalid> {
    let args = &dataflow.graph.node(node).args;
    let size = match effect {
        Effect::Load(size) | Effect::Store(size) | Effect::Atomic(_, size) => Some(size),
        Effect::Call { helper: helper::RINGBUF_SUBMIT | helper::RINGBUF_DISCARD, .. } => None,
        Effect::Call { .. } => return Ok(()),
    };
    let Some(map) = pointed(dataflow, args[1]) else { return Err(Invalid::Base { node, found: args[1] }) };
    let (Target::Value(map), Some(size)) = (map, size) else { return Ok(()) };
    let table = super::patterns::table(dataflow, super::Site::Node(node), map)?;
    let Some(offset) = dataflow.graph.as_const(args[2]) else { return Ok(()) };
    let end = offset.saturating_add(size.bytes() as u64);
    // The size of a record is that of its reservation.
    if end > table.value_bytes.into() && table.kind != MapKind::RingBuf {
        return Err(Invalid::Extent { node, map, end, bytes: table.value_bytes });
    }
    Ok(())
}

/// The map that an address points into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// A value of a map.
    Value(u32),
    /// A value of a map that was found in a map of maps.
    Inner,
}

/// The map that an address points into; `None` for other values, and for addresses of several maps.
fn pointed(dataflow: &Dataflow, address: Id) -> Option<Target> {
    let (mut work, mut seen, mut target) = (vec![address], BTreeSet::new(), None);
    while let Some(id) = work.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = dataflow.graph.node(id);
        let own = match node.kind {
            Kind::Input(Input::Only(map)) => Target::Value(map),
            Kind::Effect(Effect::Call {
                helper: helper::MAP_LOOKUP_ELEM | helper::MAP_LOOKUP_PERCPU_ELEM | helper::RINGBUF_RESERVE,
                pattern,
            }) => dataflow.patterns[usize::from(pattern)].map().map_or(Target::Inner, Target::Value),
            Kind::Select => {
                work.extend(node.args.chunks(2).map(|pair| pair[pair.len() - 1]));
                continue;
            }
            _ => return None,
        };
        if target.is_some_and(|other| other != own) {
            return None;
        }
        target = Some(own);
    }
    target
}

/// Checks the waits of an access.
fn waits(dataflow: &Dataflow, read: Id, writes: &[Id]) -> Vec<Invalid> {
    let can_wait = |touch: Touch| matches!(touch, Touch::Lookup | Touch::Load | Touch::Store | Touch::Atomic);
    let own = dataflow.access(read).filter(|access| can_wait(access.touch));
    let Some(own) = own else { return vec![Invalid::WaitingNode { read }] };
    let wrong = writes.iter().filter_map(|found| {
        let is_write = dataflow.access(*found).is_some_and(|access| access.writes() && access.map == own.map);
        match (is_write, *found < read) {
            (false, _) => Some(Invalid::AwaitedNode { read, found: *found }),
            (_, false) => Some(Invalid::WaitOrder { read, found: *found }),
            _ => None,
        }
    });
    wrong.collect()
}
