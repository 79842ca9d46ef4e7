// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of an eBPF program several cores can share: decided for each map, from the dataflow.
//!
//! | a map that packets | is |
//! | --- | --- |
//! | do not write | the same on all cores |
//! | only add to, and do not read | summed |
//! | find by a key that they bring along | split by that key |
//! | access otherwise | a reason for one core |

use std::collections::BTreeMap;

use flowloom_ir::{Dataflow, Graph, Id, Input, Kind, Predicates, Table, Touch};
use flowloom_isa::MapKind;
use flowloom_plan::{Uses, sums, uses};

use crate::slice::{KeySlice, permutation};
use crate::split::{Owner, Share, Split};
use crate::spread::Spread;

/// Decides for a program.
///
/// # Errors
/// The reasons why it runs on one core.
pub(crate) fn split(dataflow: &Dataflow) -> Result<Split, Vec<String>> {
    let all = uses(dataflow);
    let sums = sums(dataflow);
    let mut shares: BTreeMap<String, Share> = BTreeMap::new();
    let mut by_key: Vec<(u32, &Table, &Uses)> = Vec::new();
    let mut reasons = Vec::new();
    for (number, map) in (0..).zip(&dataflow.maps) {
        let is_written = all.get(&number).is_some_and(|uses| uses.writes().next().is_some());
        let share = match (map.kind, sums.get(&number), all.get(&number)) {
            (MapKind::RingBuf | MapKind::PerfEventArray, ..) => Share::Records,
            (kind, ..) if kind.is_of_maps() && is_written => {
                reasons.push(format!("map `{}` leads to other maps, which packets write", map.name));
                continue;
            }
            (_, _, Some(_)) if !is_written => Share::Constant,
            (_, Some(Some(updates)), _) => Share::Sums(updates.clone()),
            (kind, _, Some(uses)) if kind.is_lru() && updates(dataflow, uses) > 0 => {
                reasons.push(format!(
                    "map `{}` evicts the entry that was used least recently by packets of all cores",
                    map.name
                ));
                continue;
            }
            (kind, _, Some(uses)) if has_exact_keys(kind) => {
                by_key.push((number, map, uses));
                continue;
            }
            (_, _, Some(_)) => {
                reasons.push(format!("packets write map `{}`, in which other keys find the same entry", map.name));
                continue;
            }
            (_, _, None) => Share::Constant,
        };
        shares.insert(map.name.clone(), share);
    }
    if !reasons.is_empty() {
        return Err(reasons);
    }
    if by_key.is_empty() {
        let by = "addresses and ports; no state ties packets together".to_owned();
        return Ok(Split { spread: Spread::Any, shares, by, inserts: BTreeMap::new() });
    }
    let keys = keys(dataflow, &by_key)?;
    let names: Vec<String> = by_key.iter().map(|(_, map, _)| format!("`{}`", map.name)).collect();
    let common = Common::of(dataflow, &keys).map_err(|reason| vec![format!("{}: {reason}", names.join(", "))])?;
    let Common { nodes, places, swap } = common;
    let is_apart = |at: usize| places.iter().any(|place| place[at] != place[at - 1] + 1);
    let when = enabling(dataflow, &by_key);
    let slice = KeySlice::new(&dataflow.graph, (&nodes, &when), swap, is_apart)
        .map_err(|reason| vec![format!("{}: {reason}", names.join(", "))])?;
    for ((_, map, _), place) in by_key.iter().zip(places) {
        shares.insert(map.name.clone(), Share::Split(Owner::Key(place)));
    }
    let both = if slice.is_symmetric() { ", both directions to one core" } else { "" };
    let slow = if slice.is_fast() { "" } else { "; found by evaluation, packet by packet" };
    let by = format!("the key of {}{both}{slow}", names.join(", "));
    let inserts = by_key.iter().map(|(_, map, uses)| (map.name.clone(), updates(dataflow, uses))).collect();
    Ok(Split { spread: Spread::Key(slice), shares, by, inserts })
}

/// Conditions on the packet alone, one of which holds for each packet that accesses the maps; none if they are not known.
fn enabling(dataflow: &Dataflow, maps: &[(u32, &Table, &Uses)]) -> Vec<Id> {
    let graph = &dataflow.graph;
    let calls = maps.iter().flat_map(|(_, _, uses)| uses.lookups.iter().chain(&uses.entries));
    let mut all: Vec<Id> = calls.filter_map(|call| dataflow.predicate(*call)).collect();
    all.sort_unstable();
    all.dedup();
    let is_pure = pure(graph);
    let (own, others): (Vec<Id>, Vec<Id>) = all.into_iter().partition(|bit| is_pure[bit.index()]);
    // What depends on an earlier access has that one's condition.
    let mut predicates = Predicates::new(graph);
    let mut is_covered = |bit: &Id| own.iter().any(|own| predicates.implies(graph, *bit, *own));
    if others.iter().all(&mut is_covered) { own } else { Vec::new() }
}

/// By node, whether it depends on the packet alone.
fn pure(graph: &Graph) -> Vec<bool> {
    let mut is_pure = vec![true; graph.nodes().len()];
    for id in graph.ids() {
        let node = graph.node(id);
        let own = !matches!(node.kind, Kind::Effect(_) | Kind::Changed { .. } | Kind::Input(Input::Only(_)));
        is_pure[id.index()] = own && node.args.iter().all(|arg| is_pure[arg.index()]);
    }
    is_pure
}

/// The most entries that a packet inserts.
fn updates(dataflow: &Dataflow, uses: &Uses) -> usize {
    let is_update = |id: &&Id| dataflow.access(**id).is_some_and(|access| access.touch == Touch::Update);
    uses.entries.iter().filter(is_update).count()
}

/// Whether an entry is found by its own key only.
fn has_exact_keys(kind: MapKind) -> bool {
    use MapKind::{Array, Hash, LruHash, LruPerCpuHash, PerCpuArray, PerCpuHash};
    matches!(kind, Hash | PerCpuHash | LruHash | LruPerCpuHash | Array | PerCpuArray)
}

/// By map, the keys of all its accesses.
fn keys(dataflow: &Dataflow, maps: &[(u32, &Table, &Uses)]) -> Result<Vec<Vec<Vec<Id>>>, Vec<String>> {
    let graph = &dataflow.graph;
    let (mut keys, mut reasons) = (Vec::new(), Vec::new());
    for (_, map, uses) in maps {
        let base = |id: &Id| graph.node(graph.node(*id).args[1]).kind;
        let values = uses.loads.iter().chain(&uses.stores).chain(&uses.atomics);
        if values.map(base).any(|kind| matches!(kind, Kind::Input(Input::Only(_)))) {
            reasons.push(format!("map `{}` has one entry for all packets, which need the order of arrival", map.name));
            continue;
        }
        let calls = uses.lookups.iter().chain(&uses.entries);
        let own: Option<Vec<Vec<Id>>> = calls.map(|call| dataflow.key(*call).map(<[Id]>::to_vec)).collect();
        match own {
            Some(own) if !own.is_empty() => keys.push(own),
            _ => reasons.push(format!("map `{}` is accessed without a known key", map.name)),
        }
    }
    if reasons.is_empty() { Ok(keys) } else { Err(reasons) }
}

/// The bytes of the packet that are in the keys of all accesses.
struct Common {
    nodes: Vec<Id>,
    /// By map, the place of each in its key.
    places: Vec<Vec<usize>>,
    /// The permutation between the keys of different accesses.
    swap: Option<Vec<usize>>,
}

impl Common {
    fn of(dataflow: &Dataflow, keys: &[Vec<Vec<Id>>]) -> Result<Common, String> {
        let graph = &dataflow.graph;
        let is_pure = pure(graph);
        let mut nodes: Vec<Id> = Vec::new();
        for id in &keys[0][0] {
            let is_known = is_pure[id.index()] && graph.as_const(*id).is_none() && !nodes.contains(id);
            if is_known && keys.iter().flatten().all(|key| key.contains(id)) {
                nodes.push(*id);
            }
        }
        if nodes.is_empty() {
            return Err("the keys have no byte in common that depends on the packet alone".to_owned());
        }
        let mut places = Vec::new();
        let mut swap: Option<Vec<usize>> = None;
        for own in keys {
            let place = |id: &Id| own[0].iter().position(|of| of == id);
            let place: Vec<usize> = nodes.iter().filter_map(place).collect();
            for key in own {
                let found: Vec<Id> = place.iter().map(|at| key[*at]).collect();
                if found == nodes {
                    continue;
                }
                let found = permutation(&nodes, &found)
                    .filter(|found| swap.as_ref().is_none_or(|swap| swap == found))
                    .ok_or("the keys of its accesses are different parts of the packet")?;
                swap = Some(found);
            }
            places.push(place);
        }
        Ok(Common { nodes, places, swap })
    }
}
