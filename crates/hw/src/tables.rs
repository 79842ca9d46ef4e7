//! The accesses of a program to its maps, and their keys.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Access, Dataflow, Effect, Id, Kind, Touch};
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
pub(crate) fn uses(dataflow: &Dataflow) -> BTreeMap<u32, Uses> {
    let mut all: BTreeMap<u32, Uses> = BTreeMap::new();
    for id in dataflow.graph.ids() {
        let Some(Access { touch, map: Some(map) }) = dataflow.access(id) else { continue };
        let is_data = !matches!(touch, Touch::RedirectMap | Touch::Table | Touch::Reserves | Touch::Emits);
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

/// Whether the writes of packets to a map commute: they only add to it, and no packet uses the values.
pub(crate) fn commutes(dataflow: &Dataflow, uses: &Uses) -> bool {
    let graph = &dataflow.graph;
    if !uses.entries.is_empty() {
        return false;
    }
    let mut users: Vec<Vec<Id>> = vec![Vec::new(); graph.nodes().len()];
    for id in graph.ids() {
        for arg in &graph.node(id).args {
            if users[arg.index()].last() != Some(&id) {
                users[arg.index()].push(id);
            }
        }
    }
    let is_sum = |id: Id| {
        let Kind::Effect(Effect::Atomic(op, _)) = graph.node(id).kind else { return false };
        matches!(op, AtomicOp::Add { .. } | AtomicOp::Or { .. } | AtomicOp::And { .. } | AtomicOp::Xor { .. })
            && users[id.index()].is_empty()
    };
    if !uses.atomics.iter().all(|id| is_sum(*id)) {
        return false;
    }
    // `*value += x`, and the value has no other use.
    let ending: BTreeSet<Id> = dataflow.ending.nodes().collect();
    uses.loads.iter().all(|load| {
        let mut work = vec![*load];
        let mut seen = BTreeSet::new();
        while let Some(id) = work.pop() {
            if ending.contains(&id) {
                return false;
            }
            for user in users[id.index()].iter().copied() {
                let node = graph.node(user);
                let fine = match node.kind {
                    Kind::Effect(Effect::Store(_)) => {
                        node.args[3] == id && !node.args[..3].contains(&id) && uses.stores.contains(&user)
                    }
                    Kind::Binary(flowloom_ir::Binary::Add) => node.args[0] != node.args[1],
                    Kind::Slice { .. } | Kind::Concat => true,
                    _ => false,
                };
                if !fine {
                    return false;
                }
                if !matches!(node.kind, Kind::Effect(_)) && seen.insert(user) {
                    work.push(user);
                }
            }
        }
        true
    }) && uses.stores.iter().all(|store| {
        // The stored value has to be the old value plus something: an overwrite does not commute.
        let node = graph.node(*store);
        let mut work = vec![node.args[3]];
        let mut found = false;
        while let Some(id) = work.pop() {
            found |= uses.loads.contains(&id) && graph.node(id).args[1..] == node.args[1..3];
            if !uses.loads.contains(&id) {
                work.extend(&graph.node(id).args);
            }
        }
        found
    })
}
