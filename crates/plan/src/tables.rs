// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The accesses of a program to its maps, and their keys.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Access, Dataflow, Effect, Id, Kind, Predicates, Touch};
use flowloom_isa::MapKind;
use flowloom_isa::op::AtomicOp;

/// The accesses to one map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uses {
    /// Lookups; the value is the address of the entry, or 0.
    pub lookups: Vec<Id>,
    /// Loads from values.
    pub loads: Vec<Id>,
    /// Atomic operations, which read and write.
    pub atomics: Vec<Id>,
    /// Stores to values.
    pub stores: Vec<Id>,
    /// Updates, deletions and evictions of entries.
    pub entries: Vec<Id>,
}

impl Uses {
    /// All accesses that write the map.
    pub fn writes(&self) -> impl Iterator<Item = Id> + '_ {
        self.stores.iter().chain(&self.atomics).chain(&self.entries).copied()
    }

    /// All accesses whose results depend on writes of other packets.
    pub fn reads(&self) -> impl Iterator<Item = Id> + '_ {
        let found: &[Id] = if self.entries.is_empty() { &[] } else { &self.lookups };
        found.iter().chain(&self.loads).chain(&self.atomics).copied()
    }

    /// All accesses.
    pub fn all(&self) -> impl Iterator<Item = Id> + '_ {
        self.lookups.iter().copied().chain(self.loads.iter().copied()).chain(self.writes())
    }
}

/// The accesses by map. Redirect maps are left out: only the host writes them.
pub fn uses(dataflow: &Dataflow) -> BTreeMap<u32, Uses> {
    let mut all: BTreeMap<u32, Uses> = BTreeMap::new();
    for id in dataflow.graph.ids() {
        let Some(Access { touch, map: Some(map) }) = dataflow.access(id) else { continue };
        let is_data = !matches!(touch, Touch::RedirectMap | Touch::HostTable | Touch::Reserve | Touch::Emit);
        if !is_data {
            continue;
        }
        let uses = all.entry(map).or_default();
        match touch {
            Touch::Lookup => uses.lookups.push(id),
            Touch::Load => uses.loads.push(id),
            Touch::Store => uses.stores.push(id),
            Touch::Atomic => uses.atomics.push(id),
            _ => uses.entries.push(id),
        }
    }
    all
}

/// The distinct keys by which a map is accessed; `None` if one of them is unknown.
pub(crate) fn keys(dataflow: &Dataflow, uses: &Uses) -> Option<BTreeSet<Vec<Id>>> {
    let calls = uses.lookups.iter().chain(&uses.entries);
    let mut keys: BTreeSet<Vec<Id>> =
        calls.map(|call| dataflow.key(*call).map(<[Id]>::to_vec)).collect::<Option<_>>()?;
    // A map with one entry needs no key.
    let base = |id: &Id| dataflow.graph.node(dataflow.graph.node(*id).args[1]).kind;
    let accesses = uses.loads.iter().chain(&uses.stores).chain(&uses.atomics);
    if accesses.map(base).any(|kind| matches!(kind, Kind::Input(_))) {
        keys.insert(Vec::new());
    }
    Some(keys)
}

/// By random number, the predicates of the earlier ones that the same packet may draw: they decide which of its numbers
/// it is.
///
/// Each packet brings its numbers along, as it brings its time. The first one needs no predicate; a number that is not
/// drawn is left over.
pub(crate) fn draws(dataflow: &Dataflow) -> BTreeMap<Id, Vec<Id>> {
    let graph = &dataflow.graph;
    let is_draw = |id: &Id| dataflow.access(*id).is_some_and(|access| access.touch == Touch::Random);
    let draws: Vec<Id> = graph.ids().filter(is_draw).collect();
    let mut all = BTreeMap::new();
    if draws.len() < 2 {
        return all;
    }
    let predicate = |id: Id| graph.node(id).args[0];
    let mut predicates = Predicates::new(graph);
    for (at, draw) in draws.iter().enumerate() {
        let mut may_precede = |earlier: &Id| !predicates.exclude(graph, *earlier, predicate(*draw));
        let earlier: Vec<Id> = draws[..at].iter().map(|id| predicate(*id)).filter(|id| may_precede(id)).collect();
        if !earlier.is_empty() {
            all.insert(*draw, earlier);
        }
    }
    all
}

/// Whether an array can be kept as one partial array for each lookup, whose sum is its contents: packets only add to
/// it, by several keys, and read nothing. The places that they add to are the same or apart, so that no carry of one
/// reaches another. An array of one entry is a register and has no parts.
///
/// The checker decides by itself what is sound, and shares no code with the planner: to it, one entry and additions
/// whose old value is not used are sound too.
pub(crate) fn is_summed(dataflow: &Dataflow, map: u32, uses: &Uses) -> bool {
    let graph = &dataflow.graph;
    let is_array = dataflow
        .maps
        .get(map as usize)
        .is_some_and(|map| matches!(map.kind, MapKind::Array | MapKind::PerCpuArray) && map.max_entries > 1);
    if !is_array
        || uses.lookups.len() < 2
        || !uses.loads.is_empty()
        || !uses.stores.is_empty()
        || !uses.entries.is_empty()
    {
        return false;
    }
    let place = |id: Id| match graph.node(id).kind {
        Kind::Effect(Effect::Atomic(AtomicOp::Add { fetch: false }, size)) => {
            let first = graph.as_const(graph.node(id).args[2])?;
            uses.lookups.contains(&graph.node(id).args[1]).then_some((first, first + size.bytes() as u64))
        }
        _ => None,
    };
    let Some(places) = uses.atomics.iter().map(|id| place(*id)).collect::<Option<BTreeSet<_>>>() else { return false };
    let places: Vec<(u64, u64)> = places.into_iter().collect();
    !places.is_empty() && places.windows(2).all(|pair| pair[0].1 <= pair[1].0)
}

/// Whether a map gives results of changes that depend on its contents: those of arrays depend on the index alone.
fn has_answers(dataflow: &Dataflow, id: Id) -> bool {
    let map = dataflow.access(id).and_then(|access| access.map);
    let kind = map.and_then(|map| dataflow.maps.get(map as usize)).map(|map| map.kind);
    !matches!(kind, Some(MapKind::Array | MapKind::PerCpuArray))
}

/// The changes of a map whose results are used and depend on its contents.
pub(crate) fn answers(dataflow: &Dataflow, uses: &Uses) -> BTreeSet<Id> {
    let args = dataflow.graph.nodes().iter().flat_map(|node| node.args.iter().copied());
    let used: BTreeSet<Id> = args.chain(dataflow.ending.nodes()).collect();
    uses.entries.iter().copied().filter(|id| used.contains(id) && has_answers(dataflow, *id)).collect()
}

/// By write up to the last change of a map with a used result, the accesses to the map that come before it in the
/// program.
pub(crate) fn steps(dataflow: &Dataflow, uses: &Uses) -> BTreeMap<Id, Vec<Id>> {
    let Some(last) = answers(dataflow, uses).last().copied() else { return BTreeMap::new() };
    let writes = uses.writes().filter(|id| *id <= last);
    let before = |id: Id| uses.all().filter(|other| *other < id).collect();
    writes.map(|id| (id, before(id))).collect()
}

/// By change of entries whose result is used, the earlier changes of the same packet and map that may decide it: an
/// insertion takes the room that a deletion frees. Results of changes to arrays depend on the index alone.
///
/// No change has committed when results are given. So the operands of the earlier ones travel with the packet to the
/// block of the later one, which takes them into account.
pub(crate) fn pending(dataflow: &Dataflow, uses: &BTreeMap<u32, Uses>) -> BTreeMap<Id, Vec<Id>> {
    let graph = &dataflow.graph;
    let mut all = BTreeMap::new();
    let is_array = |map: u32| {
        let kind = dataflow.maps.get(map as usize).map(|map| map.kind);
        matches!(kind, Some(MapKind::Array | MapKind::PerCpuArray))
    };
    let several = uses.iter().filter(|(map, uses)| uses.entries.len() > 1 && !is_array(**map));
    let mut several = several.map(|(_, uses)| &uses.entries).peekable();
    if several.peek().is_none() {
        return all;
    }
    let args = graph.nodes().iter().flat_map(|node| node.args.iter().copied());
    let used: BTreeSet<Id> = args.chain(dataflow.ending.nodes()).collect();
    let mut predicates = Predicates::new(graph);
    for entries in several {
        for (at, later) in entries.iter().enumerate().filter(|(_, id)| used.contains(id)) {
            let predicate = |id: Id| graph.node(id).args[0];
            let mut excludes = |id: Id| predicates.exclude(graph, predicate(id), predicate(*later));
            let earlier: Vec<Id> = entries[..at].iter().copied().filter(|id| !excludes(*id)).collect();
            if !earlier.is_empty() {
                all.insert(*later, earlier);
            }
        }
    }
    all
}
