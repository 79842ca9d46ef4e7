//! How a program uses its maps: who reads, who writes, by which keys.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_bpf::op::AtomicOp;
use flowloom_ir::{Access, Argument, Dataflow, Effect, Id, Kind, Touch};

/// The uses of one map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uses {
    /// Lookups, whose values say where an entry lies and whether it is there.
    pub lookups: Vec<Id>,
    /// Loads from values.
    pub loads: Vec<Id>,
    /// Atomic operations: they read and write.
    pub atomics: Vec<Id>,
    /// Stores to values.
    pub stores: Vec<Id>,
    /// Updates, deletions, evictions: entries come and go.
    pub entries: Vec<Id>,
}

impl Uses {
    /// Everything that changes the map.
    pub fn writes(&self) -> impl Iterator<Item = Id> + '_ {
        self.stores.iter().chain(&self.atomics).chain(&self.entries).copied()
    }

    /// Everything whose answer depends on what others have written.
    pub fn reads(&self) -> impl Iterator<Item = Id> + '_ {
        let found: &[Id] = if self.entries.is_empty() { &[] } else { &self.lookups };
        found.iter().chain(&self.loads).chain(&self.atomics).copied()
    }

    /// Everything.
    pub fn all(&self) -> impl Iterator<Item = Id> + '_ {
        self.lookups.iter().copied().chain(self.loads.iter().copied()).chain(self.writes())
    }
}

/// The maps that a program touches, by their number. Maps that only tell where packets go are read by the host's leave alone
/// and do not stand here.
pub(crate) fn uses(dataflow: &Dataflow) -> BTreeMap<u32, Uses> {
    let mut all: BTreeMap<u32, Uses> = BTreeMap::new();
    for id in dataflow.graph.ids() {
        let Some(Access { touch, map: Some(map) }) = dataflow.access(id) else { continue };
        let is_data = !matches!(touch, Touch::RedirectMap | Touch::Table | Touch::Emits);
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

/// The nodes of the key that a call is given; none for what has no key.
pub(crate) fn key(dataflow: &Dataflow, call: Id) -> Option<Vec<Id>> {
    let node = dataflow.graph.node(call);
    let Kind::Effect(Effect::Call { pattern, .. }) = node.kind else { return None };
    let mut at = 1;
    for argument in &dataflow.patterns.get(usize::from(pattern))?.arguments {
        match argument {
            Argument::Number => at += 1,
            Argument::Read(len) => return node.args.get(at..at + usize::from(*len)).map(<[Id]>::to_vec),
            _ => {}
        }
    }
    None
}

/// The keys by which a map is looked up and changed; `None` where one of them is not told.
pub(crate) fn keys(dataflow: &Dataflow, uses: &Uses) -> Option<BTreeSet<Vec<Id>>> {
    let calls = uses.lookups.iter().chain(&uses.entries);
    let mut keys: BTreeSet<Vec<Id>> = calls.map(|call| key(dataflow, *call)).collect::<Option<_>>()?;
    // The only value of a map needs no key.
    let base = |id: &Id| dataflow.graph.node(dataflow.graph.node(*id).args[1]).kind;
    let accesses = uses.loads.iter().chain(&uses.stores).chain(&uses.atomics);
    if accesses.map(base).any(|kind| matches!(kind, Kind::Input(_))) {
        keys.insert(Vec::new());
    }
    Some(keys)
}

/// Whether what packets do to a map comes to the same in whatever order they do it: they add to it, and nobody looks.
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
    // `*value += x`, and nothing else is done with the value.
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
        // What is stored is a sum with what lay there: else it is a number of its own, and the last one counts.
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
