// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What effects access: which map, and whether they read or write it.

use std::collections::BTreeSet;

use flowloom_isa::insn::helper;
use flowloom_isa::{MapKind, helpers};

use crate::dataflow::{Argument, Dataflow, Reach};
use crate::graph::{Effect, Id, Input, Kind};
use crate::pass::{rebuilt, same};

/// The kinds of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Touch {
    /// Finds an entry by its key; the result is the address of its value.
    Lookup,
    /// Reads a value.
    Load,
    /// Writes a value.
    Store,
    /// An atomic read-modify-write of a value.
    Atomic,
    /// Inserts or overwrites an entry.
    Update,
    /// Deletes an entry.
    Delete,
    /// Evicts an entry as the map's policy says.
    Evict,
    /// Looks up the target of a redirect.
    RedirectMap,
    /// Sets the target of a redirect.
    Redirect,
    /// Reads the time or the CPU number. No effect.
    Environment,
    /// Computes from its arguments and the bytes that they point to. No effect.
    Compute,
    /// Looks up a table that only the host writes: routes, MTUs of ports, programs that tail calls lead to. No effect.
    HostTable,
    /// Draws a random number.
    Random,
    /// Takes room for a record in a ring buffer; the result is the address of the record.
    Reserve,
    /// Sends data that is not the received packet.
    Emit,
}

/// An access: its kind and its map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    /// The kind.
    pub touch: Touch,
    /// The index of the map.
    pub map: Option<u32>,
}

impl Access {
    /// Whether the access is observable outside of the packet.
    pub fn changes(self) -> bool {
        match self.touch {
            Touch::Lookup | Touch::Load | Touch::RedirectMap => false,
            Touch::Environment | Touch::Compute | Touch::HostTable => false,
            Touch::Store | Touch::Atomic | Touch::Update | Touch::Delete | Touch::Evict => true,
            Touch::Redirect | Touch::Random | Touch::Reserve | Touch::Emit => true,
        }
    }

    /// Whether it chooses where the packet is sent.
    pub fn redirects(self) -> bool {
        matches!(self.touch, Touch::Redirect | Touch::RedirectMap)
    }

    /// Whether it writes a map.
    pub fn writes(self) -> bool {
        self.changes() && self.map.is_some() && !matches!(self.touch, Touch::Reserve | Touch::Emit)
    }
}

/// Whether a helper only writes text to the kernel's trace log.
pub(crate) fn is_trace(number: i32) -> bool {
    helpers::by_number(number).is_some_and(|helper| helper.effect == helpers::Effect::Trace)
}

fn touch_of(number: i32) -> Touch {
    use helpers::Effect as Of;

    // A number that the table lacks comes from a text; nothing is known of it, so it keeps its place.
    let Some(helper) = helpers::by_number(number) else { return Touch::Emit };
    match helper.effect {
        Of::Lookup => Touch::Lookup,
        Of::Update => Touch::Update,
        Of::Delete => Touch::Delete,
        Of::Evict => Touch::Evict,
        Of::Redirect => Touch::Redirect,
        Of::RedirectMap => Touch::RedirectMap,
        Of::Random => Touch::Random,
        Of::Reserve => Touch::Reserve,
        Of::HostTable | Of::TailCall => Touch::HostTable,
        Of::Environment => Touch::Environment,
        Of::Pure => Touch::Compute,
        Of::Event | Of::Emit | Of::Release | Of::QueryRing | Of::Trace => Touch::Emit,
        // These become values, or have no dataflow.
        Of::Probe | Of::MovePacket | Of::Packet | Of::Lock | Of::Callback => Touch::Emit,
    }
}

impl Dataflow {
    /// The calls that only write text to the kernel's trace log; the value of each is the length of its text.
    pub fn traces(&self) -> impl Iterator<Item = Id> + '_ {
        self.graph.ids().filter(|id| match self.graph.node(*id).kind {
            Kind::Effect(Effect::Call { helper, .. }) => is_trace(helper),
            _ => false,
        })
    }

    /// The first of these calls whose value is used.
    pub fn used_trace(&self) -> Option<Id> {
        let traces: BTreeSet<Id> = self.traces().collect();
        let args = self.graph.nodes().iter().flat_map(|node| node.args.iter().copied());
        args.chain(self.ending.nodes()).filter(|id| traces.contains(id)).min()
    }

    /// The program without these calls. None of their values may be used ([`Dataflow::used_trace`]); they become 0.
    #[must_use]
    pub fn without_traces(&self) -> Dataflow {
        let traces: BTreeSet<Id> = self.traces().collect();
        if traces.is_empty() {
            return self.clone();
        }
        rebuilt(self, |graph, id, node| match traces.contains(&id) {
            true => graph.number(0, node.bits),
            false => same(graph, node),
        })
    }

    /// The access of a node, if it is an effect.
    pub fn access(&self, id: Id) -> Option<Access> {
        let node = self.graph.node(id);
        let Kind::Effect(effect) = node.kind else { return None };
        let touch = match effect {
            Effect::Load(_) => Touch::Load,
            Effect::Store(_) => Touch::Store,
            Effect::Atomic(..) => Touch::Atomic,
            Effect::Call { helper, .. } => touch_of(helper),
        };
        let map = match effect {
            // The record that is given back belongs to the ring buffer of its reservation.
            Effect::Call { helper: helper::RINGBUF_SUBMIT | helper::RINGBUF_DISCARD, .. } => self.map_at(node.args[1]),
            Effect::Call { pattern, .. } => self.map_of(pattern),
            _ => self.map_at(node.args[1]),
        };
        // A map of maps may yield any other map: with one in the program, all maps count as one.
        let kind = map.and_then(|map| self.maps.get(map as usize)).map(|map| map.kind);
        let map = match touch {
            // A record is of its ring.
            Touch::Load | Touch::Store | Touch::Atomic if kind == Some(MapKind::RingBuf) => map,
            Touch::Lookup | Touch::Load | Touch::Store | Touch::Atomic => self.any_map().or(map),
            Touch::Update | Touch::Delete | Touch::Evict => self.any_map().or(map),
            _ => map,
        };
        Some(Access { touch, map })
    }

    /// The index that stands for all maps where the program has a map of maps.
    fn any_map(&self) -> Option<u32> {
        self.maps.iter().position(|map| map.kind.is_of_maps()).map(|map| map as u32)
    }

    fn map_of(&self, pattern: u16) -> Option<u32> {
        self.patterns.get(usize::from(pattern))?.map()
    }

    /// The bytes of the key of a call, as nodes; `None` for a call without a key.
    pub fn key(&self, call: Id) -> Option<&[Id]> {
        let node = self.graph.node(call);
        let Kind::Effect(Effect::Call { pattern, .. }) = node.kind else { return None };
        let mut at = 1;
        for argument in &self.patterns.get(usize::from(pattern))?.arguments {
            match argument {
                Argument::Number => at += 1,
                Argument::Read(len) => return node.args.get(at..at + usize::from(*len)),
                _ => {}
            }
        }
        None
    }

    fn map_at(&self, address: Id) -> Option<u32> {
        let node = self.graph.node(address);
        match node.kind {
            Kind::Effect(Effect::Call { pattern, .. }) => self.map_of(pattern),
            Kind::Input(Input::Only(map)) => Some(map),
            Kind::Select => self.map_at(*node.args.last()?),
            _ => None,
        }
    }

    /// Whether a lookup updates the order of eviction (LRU maps), which makes it an effect.
    pub fn remembers_use(&self, map: u32) -> bool {
        let kind = self.maps.get(map as usize).map(|map| map.kind);
        // A map from a map of maps may be an LRU map.
        kind.is_some_and(|kind| matches!(kind, MapKind::LruHash | MapKind::LruPerCpuHash) || kind.is_of_maps())
    }

    /// Whether the order of two effects of one packet is observable.
    pub fn conflict(&self, one: Id, other: Id) -> bool {
        let (Some(one), Some(other)) = (self.access(one), self.access(other)) else { return false };
        // Of several redirects, the last one counts.
        if one.redirects() && other.redirects() {
            return true;
        }
        let notes_use =
            |access: Access| access.touch == Touch::Lookup && access.map.is_some_and(|map| self.remembers_use(map));
        one.map == other.map && (one.changes() || other.changes() || notes_use(one) && notes_use(other))
    }

    fn is_ring(&self, access: Access) -> bool {
        access.map.and_then(|map| self.maps.get(map as usize)).is_some_and(|map| map.kind == MapKind::RingBuf)
    }

    /// True if an access has no effect besides its value, so that it is dead when the value is unused.
    pub fn is_idle(&self, access: Access) -> bool {
        match access.touch {
            Touch::Lookup => access.map.is_some_and(|map| !self.remembers_use(map)),
            Touch::RedirectMap => false,
            // A record is readable only until it is submitted or discarded.
            Touch::Load if self.is_ring(access) => false,
            _ => !access.changes(),
        }
    }

    /// The nodes that the ending or an effect needs, and the predicates of speculated lookups.
    pub fn used(&self) -> BTreeSet<Id> {
        let mut is_used = vec![false; self.graph.nodes().len()];
        let mut work: Vec<Id> = self.ending.nodes().chain(self.wanted.values().copied()).collect();
        for id in self.graph.ids() {
            if self.access(id).is_some_and(|access| !self.is_idle(access)) {
                work.push(id);
            }
        }
        // The path condition of a reach is needed only if the access or comparison that it is about is used.
        let mut reaches: Vec<&Reach> = self.reaches.iter().collect();
        loop {
            while let Some(id) = work.pop() {
                if !std::mem::replace(&mut is_used[id.index()], true) {
                    work.extend(&self.graph.node(id).args);
                }
            }
            reaches.retain(|reach| {
                let is_it = is_used[reach.by.subject().index()];
                work.extend(is_it.then_some(reach.when));
                !is_it
            });
            if work.is_empty() {
                return self.graph.ids().filter(|id| is_used[id.index()]).collect();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_that_only_compute_do_not_read_the_environment() {
        for (number, touch) in [
            (helper::STRTOL, Touch::Compute),
            (helper::STRNCMP, Touch::Compute),
            (helper::SNPRINTF, Touch::Compute),
            (helper::KTIME_GET_NS, Touch::Environment),
            (helper::GET_SMP_PROCESSOR_ID, Touch::Environment),
        ] {
            assert_eq!(touch_of(number), touch, "{}", helpers::display_name(number));
        }
    }
}
