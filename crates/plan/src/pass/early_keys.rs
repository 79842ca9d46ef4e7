// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys that are ready before it is known whether they are needed.
//!
//! **Goal.** A lookup starts before the branches that lead to it are decided. Its result is used only where its
//! predicate holds, so its key has to be right only there.
//!
//! ```text
//!   v5 = and v4 v1                v4 arrives late            v5 = v1
//!   v6 = select v5 v2 v3                                     v6 = select v1 v2 v3
//!   v8 = call map_lookup_elem if v7 (key v6)                 where v7 and v1 imply v4
//! ```
//!
//! **Steps.** The conditions of selects in a key are followed back through gates to single bits. From the latest bit
//! on, each is replaced by a constant if the condition stays the same wherever the predicate holds.
//!
//! **Before.** Predicates are still the path conditions: speculation comes later. Path conditions that are too complex
//! to be compared stay as they are ([`Predicates`]).

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::pass::{rebuilt, same};
use flowloom_ir::{Access, Dataflow, Graph, Id, Kind, Predicates, Touch};

use super::shannon::is_gate;
use crate::critical_path::{Arrivals, times};
use crate::target::{Target, Tenths};

/// The most nodes of a condition.
const MAX_NODES: usize = 200;
/// The most bits of a condition that are tried.
const MAX_TRIES: usize = 24;

/// The bits of a condition that a constant replaces.
type Known = BTreeMap<Id, bool>;

/// By lookup and condition of a select in its key, the bits that need not be known.
type Plan = BTreeMap<(Id, Id), Known>;

pub(super) fn run(dataflow: &Dataflow, target: &Target) -> Dataflow {
    let plan = Search::new(dataflow, target).plan();
    let mut new: Vec<Option<Id>> = vec![None; dataflow.graph.nodes().len()];
    rebuilt(dataflow, |graph, id, mut node| {
        if plan.range((id, Id::new(0))..).next().is_some_and(|((of, _), _)| *of == id) {
            let mut keys = Keys { dataflow, plan: &plan, new: &new, lookup: id, made: BTreeMap::new() };
            for (place, arg) in dataflow.graph.node(id).args.iter().enumerate().skip(1) {
                node.args[place] = keys.key(graph, *arg);
            }
        }
        let made = same(graph, node);
        new[id.index()] = Some(made);
        made
    })
}

/// The accesses that read a table without waiting for their predicates. Where packets insert or delete entries, lookups
/// keep the key of these changes: a table has one port.
fn early(dataflow: &Dataflow) -> Vec<Id> {
    let accesses: Vec<(Id, Access)> = dataflow.graph.ids().filter_map(|id| Some((id, dataflow.access(id)?))).collect();
    let changes = |access: &Access| matches!(access.touch, Touch::Update | Touch::Delete | Touch::Evict);
    let changed: BTreeSet<u32> =
        accesses.iter().filter(|(_, access)| changes(access)).filter_map(|(_, access)| access.map).collect();
    let is_early = |(_, access): &(Id, Access)| match access.touch {
        Touch::Lookup => dataflow.is_idle(*access) && access.map.is_none_or(|map| !changed.contains(&map)),
        Touch::RedirectMap | Touch::HostTable => true,
        _ => false,
    };
    accesses.into_iter().filter(is_early).map(|(id, _)| id).collect()
}

/// Whether the bits of a node are bits of its arguments.
fn is_chosen(kind: Kind) -> bool {
    matches!(kind, Kind::Select | Kind::Slice { .. } | Kind::Concat | Kind::SignExtend)
}

struct Search<'a> {
    dataflow: &'a Dataflow,
    target: &'a Target,
    /// The graph of the dataflow, and the shorter conditions.
    graph: Graph,
    arrivals: Arrivals,
    predicates: Predicates,
}

impl<'a> Search<'a> {
    fn new(dataflow: &'a Dataflow, target: &'a Target) -> Search<'a> {
        Search {
            dataflow,
            target,
            graph: dataflow.graph.clone(),
            arrivals: Arrivals::from(times(dataflow, target)),
            predicates: Predicates::new(&dataflow.graph),
        }
    }

    fn plan(mut self) -> Plan {
        let mut plan = Plan::new();
        for id in early(self.dataflow) {
            let node = self.dataflow.graph.node(id);
            for condition in self.conditions(&node.args[1..]) {
                let known = self.without_late_bits(node.args[0], condition);
                if !known.is_empty() {
                    plan.insert((id, condition), known);
                }
            }
        }
        plan
    }

    fn time(&mut self, id: Id) -> Tenths {
        self.arrivals.of(&self.graph, self.target, id)
    }

    /// The conditions of the selects between which a key is chosen.
    fn conditions(&self, key: &[Id]) -> BTreeSet<Id> {
        let (mut seen, mut conditions, mut work) = (BTreeSet::new(), BTreeSet::new(), key.to_vec());
        while let Some(id) = work.pop() {
            let node = self.dataflow.graph.node(id);
            if !is_chosen(node.kind) || !seen.insert(id) {
                continue;
            }
            if node.kind == Kind::Select {
                let last = node.args.len() - 1;
                conditions.extend(node.args[..last].iter().step_by(2));
                work.extend(
                    node.args.iter().enumerate().filter(|(at, _)| *at == last || at % 2 == 1).map(|(_, id)| *id),
                );
            } else {
                work.extend(&node.args);
            }
        }
        conditions
    }

    /// The late bits of a condition that do not matter where the predicate holds.
    fn without_late_bits(&mut self, predicate: Id, condition: Id) -> Known {
        let mut known = Known::new();
        let mut bits = self.bits(condition);
        bits.sort_by_key(|bit| std::cmp::Reverse((self.arrivals.of(&self.graph, self.target, *bit), *bit)));
        let (mut shorter, mut before) = (condition, self.time(condition));
        for bit in bits.into_iter().take(MAX_TRIES) {
            let replaced = [false, true].into_iter().find_map(|value| {
                known.insert(bit, value);
                let other = self.cofactor(condition, &known);
                let time = self.time(other);
                (time < before && self.is_same(predicate, condition, other)).then_some((other, time))
            });
            match replaced {
                Some((other, time)) => (shorter, before) = (other, time),
                None => {
                    known.remove(&bit);
                    // The next bit is no later than this one, which stays.
                    break;
                }
            }
        }
        if shorter == condition { Known::new() } else { known }
    }

    /// The bits that a condition is made of.
    fn bits(&self, condition: Id) -> Vec<Id> {
        let (mut inside, mut bits, mut work) = (BTreeSet::new(), BTreeSet::new(), vec![condition]);
        while let Some(id) = work.pop() {
            if inside.len() > MAX_NODES {
                return Vec::new();
            }
            if !is_gate(&self.graph, id) {
                bits.insert(id);
            } else if inside.insert(id) {
                work.extend(self.graph.node(id).args.iter().filter(|arg| self.graph.as_const(**arg).is_none()));
            }
        }
        bits.into_iter().collect()
    }

    fn cofactor(&mut self, condition: Id, known: &Known) -> Id {
        let mut made: BTreeMap<Id, Id> = BTreeMap::new();
        cofactor(&mut self.graph, &mut made, condition, known)
    }

    /// Whether two conditions are the same wherever a predicate holds.
    fn is_same(&mut self, predicate: Id, one: Id, other: Id) -> bool {
        let both = [one, other].map(|bit| self.graph.and(predicate, bit));
        self.predicates.implies(&self.graph, both[0], other) && self.predicates.implies(&self.graph, both[1], one)
    }
}

/// A condition with some of its bits known; `made` has the nodes done so far.
fn cofactor(graph: &mut Graph, made: &mut BTreeMap<Id, Id>, id: Id, known: &Known) -> Id {
    if let Some(done) = made.get(&id) {
        return *done;
    }
    let new = match known.get(&id) {
        Some(value) => graph.number(u64::from(*value), 1),
        None if is_gate(graph, id) => {
            let node = graph.node(id).clone();
            let args = node.args.iter().map(|arg| cofactor(graph, made, *arg, known)).collect();
            graph.make(node.kind, args, 1)
        }
        None => id,
    };
    made.insert(id, new);
    new
}

/// The keys of a lookup in the new graph.
struct Keys<'a> {
    dataflow: &'a Dataflow,
    plan: &'a Plan,
    new: &'a [Option<Id>],
    lookup: Id,
    /// The new parts of its key and their conditions, by their old nodes.
    made: BTreeMap<Id, Id>,
}

impl Keys<'_> {
    /// A part of the key, given by its old node.
    fn key(&mut self, graph: &mut Graph, id: Id) -> Id {
        if let Some(made) = self.made.get(&id) {
            return *made;
        }
        let new = match is_chosen(self.dataflow.graph.node(id).kind) {
            true => self.chosen(graph, id),
            false => self.kept(id),
        };
        self.made.insert(id, new);
        new
    }

    /// A node whose bits are bits of its arguments.
    fn chosen(&mut self, graph: &mut Graph, id: Id) -> Id {
        let node = self.dataflow.graph.node(id);
        let last = node.args.len() - 1;
        let is_condition = |place: usize| node.kind == Kind::Select && place != last && place.is_multiple_of(2);
        let mut args = Vec::with_capacity(node.args.len());
        for (place, arg) in node.args.iter().enumerate() {
            args.push(if is_condition(place) { self.condition(graph, *arg) } else { self.key(graph, *arg) });
        }
        graph.make(node.kind, args, node.bits)
    }

    fn condition(&mut self, graph: &mut Graph, id: Id) -> Id {
        let Some(known) = self.plan.get(&(self.lookup, id)) else { return self.kept(id) };
        if let Some(made) = self.made.get(&id) {
            return *made;
        }
        let known = known.iter().map(|(bit, value)| (self.kept(*bit), *value)).collect();
        let new = cofactor(graph, &mut BTreeMap::new(), self.kept(id), &known);
        self.made.insert(id, new);
        new
    }

    /// The new node in place of an old one that stays as it is.
    fn kept(&self, id: Id) -> Id {
        self.new[id.index()].expect("an argument of a used node is used, and earlier than the node")
    }
}
