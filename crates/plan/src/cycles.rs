// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cycles of table blocks: when each block reads state that packets write, and when it commits.
//!
//! Cycles count from the stage in which the access begins (reads; of changes of entries, the first one with all
//! operands in registers) or commits (writes); `L` and `U` are the latencies of a lookup and of an update
//! ([`Target::hash_stages`] or [`Target::lpm_stages`], [`Target::update_stages`]).
//!
//! | block | reads in cycles | commits, visible to later packets after |
//! | --- | --- | --- |
//! | lookup in a hash, LRU or LPM map | 0 to `L` - 1, entries | the recency of an LRU map, 1 |
//! | lookup in an array | none: the address follows from the index | - |
//! | load from a value | 0 | - |
//! | store to a value | - | 1 |
//! | atomic operation on a value | 0 | 1 |
//! | update, delete, evict | 0 to `U` - 1, presence and room | `U` |
//! | redirect through a map; routes, MTUs, tail calls | none: only the host writes | - |
//! | reservation in a ring buffer | 0, the position | 1 |
//! | records, copies and sent data; commit of a record | - | 1 |
//! | redirect target, random number, time, CPU number | none: they travel with the packet | - |
//! | bytes and length of the packet | none: each packet has its own registers | after the last stage |
//!
//! A table has one port for packets. In a map that they write, their accesses are by one key; a packet that needs others
//! runs alone (`replay`). A map that they only read has a copy for each lookup, which `device` counts, and passes share
//! lookups to save copies.
//!
//! A lookup may read its table in any of its cycles: four places, the stash and the pending keys, then the row. So no
//! change of entries may commit between the first and the last of them, and both ends count: a scheduler or a restart
//! guards the first one, and a change waits for the last one. Values are read by loads, not by the lookup.
//!
//! A change commits at the end of its commit stage. It is visible to a later packet that reads in a later cycle than
//! that; an atomic map forwards it to the packet in the next cycle.

use flowloom_ir::{Dataflow, Id, Touch};
use flowloom_isa::MapKind;

use crate::target::Target;

/// The cycles in which a block accesses state that packets write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cycles {
    /// The last cycle of a read, from the stage in which the access begins; the first one is 0.
    pub(crate) last_read: Option<u32>,
    /// The cycles from the commit stage to the first one in which a later packet reads what was written.
    pub(crate) visible: Option<u32>,
}

/// The cycles of an access; none of a node that is no access.
pub(crate) fn cycles(dataflow: &Dataflow, target: &Target, id: Id) -> Option<Cycles> {
    let access = dataflow.access(id)?;
    let kind = access.map.and_then(|map| dataflow.maps.get(map as usize)).map(|map| map.kind);
    let notes_use = access.map.is_some_and(|map| dataflow.remembers_use(map));
    let (last_read, visible) = match access.touch {
        Touch::Lookup if matches!(kind, Some(MapKind::Array | MapKind::PerCpuArray)) => (None, None),
        Touch::Lookup => (Some(target.lookup_stages(dataflow, access).saturating_sub(1)), notes_use.then_some(1)),
        Touch::Load => (Some(0), None),
        Touch::Store | Touch::Emit => (None, Some(1)),
        Touch::Atomic | Touch::Reserve => (Some(0), Some(1)),
        Touch::Update | Touch::Delete | Touch::Evict => (Some(target.update_stages - 1), Some(target.update_stages)),
        Touch::RedirectMap | Touch::HostTable | Touch::Redirect => (None, None),
        Touch::Random | Touch::Environment | Touch::Compute => (None, None),
    };
    Some(Cycles { last_read, visible })
}
