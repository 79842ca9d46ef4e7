// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies the rewrite rules to a fixed point.
//!
//! **Goal.** Operations that are free in hardware become wires: a mask is a slice and zeros, a sum of bytes has nine
//! bits.
//!
//! ```text
//!   v5 = concat v3 v4 0:48           v6 = eq v5' 0x0008:16     where v5' = concat v3 v4
//!   v6 = eq v5 0x0008:64
//! ```
//!
//! **Steps.** Used nodes are rebuilt in topological order from their rewritten arguments; rules apply to each node
//! before its users, and again to the result. This is repeated until no rule applies. Rules that hide patterns from
//! others, such as products that become sums, wait until then.
//!
//! **Before and after.** Effects keep their order, their instructions and their widths. Nodes are in topological order.
//!
//! **Limits.** A round that changes hardly anything is the last one. Nodes of more than 64 bits stay as they are.

use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::bits::Bits;
use super::matching::Site;
use super::term::{Env, Maker, build};
use super::text::{Expr, Op, Term};
use super::{Rule, Uses, rules};
use crate::arith;
use crate::dataflow::Dataflow;
use crate::graph::{Graph, Id, Kind, Node};
use crate::pass::remade;

/// The most sweeps over the graph; a few are usual.
const MAX_SWEEPS: usize = 50;
/// A round that changes at most one node in this many is the last.
const LITTLE: usize = 200;
/// The most successive rules on one node; the weights guarantee termination, this is a safeguard.
const MAX_DEPTH: usize = 500;

/// The dataflow after all rules, and the number of times that each was applied.
pub fn rewrite(dataflow: &Dataflow) -> (Dataflow, Vec<(&'static str, usize)>) {
    rewrite_by(rules(), dataflow)
}

/// As [`rewrite`], with other rules.
pub(super) fn rewrite_by<'r>(rules: &'r [Rule], dataflow: &Dataflow) -> (Dataflow, Vec<(&'r str, usize)>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut current = dataflow.clone();
    let mut is_last = false;
    let mut before = Before::default();
    for _ in 0..MAX_SWEEPS {
        let mut round = Round::new(rules, is_last, &current);
        let next = round.run(&current, &before);
        let normal = round.normal();
        let is_still = round.fired * LITTLE <= next.graph.nodes().len();
        for (name, count) in round.counts {
            *counts.entry(name).or_default() += count;
        }
        current = next;
        if is_still && is_last {
            break;
        }
        // Nodes in normal form by the other rules still go through the last rules.
        before = Before { normal, uses: round.uses, knew_last: is_last };
        is_last |= is_still;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    (current, counts)
}

/// The result of the previous round.
#[derive(Default)]
struct Before {
    normal: Vec<bool>,
    uses: Uses,
    /// Whether it had the last rules as well.
    knew_last: bool,
}

/// Rules by the operation of their pattern's root.
type Sorted<'r> = FxHashMap<Op, Rc<[&'r Rule]>>;

struct Round<'r> {
    graph: Graph,
    rules: Rc<Sorted<'r>>,
    /// Those among them that come last.
    last: Rc<Sorted<'r>>,
    /// By old id, the new node.
    done: Vec<Option<Id>>,
    bits: Bits,
    uses: Uses,
    counts: BTreeMap<&'r str, usize>,
    /// The number of rules applied.
    fired: usize,
    depth: usize,
}

impl<'r> Round<'r> {
    fn new(rules: &'r [Rule], is_last: bool, dataflow: &Dataflow) -> Round<'r> {
        let sorted = |is_wanted: &dyn Fn(&Rule) -> bool| -> Sorted<'r> {
            let mut sorted: FxHashMap<Op, Vec<&Rule>> = FxHashMap::default();
            for rule in rules.iter().filter(|rule| !rule.is_built_in && is_wanted(rule)) {
                if let Term::Apply { op, .. } = &rule.from {
                    sorted.entry(*op).or_default().push(rule);
                }
            }
            sorted.into_iter().map(|(op, rules)| (op, rules.into())).collect()
        };
        Round {
            graph: Graph::default(),
            rules: Rc::new(sorted(&|rule| is_last || !rule.is_last)),
            last: Rc::new(sorted(&|rule| is_last && rule.is_last)),
            done: Vec::new(),
            bits: Bits::default(),
            uses: Uses::with_room(dataflow.graph.nodes().len()),
            counts: BTreeMap::new(),
            fired: 0,
            depth: 0,
        }
    }

    fn normal(&self) -> Vec<bool> {
        let done = self.done.iter().enumerate();
        done.map(|(number, done)| done.is_some_and(|done| done.index() == number)).collect()
    }

    /// Rebuilds a dataflow. Nodes in normal form whose arguments and uses are unchanged go through new rules only.
    fn run(&mut self, old: &Dataflow, before: &Before) -> Dataflow {
        let uses = Uses::in_dataflow(old);
        let mut now: Vec<Option<Id>> = vec![None; old.graph.nodes().len()];
        let mut is_as_before = vec![false; old.graph.nodes().len()];
        let mut fired = 0;
        for (number, node) in old.graph.nodes().iter().enumerate() {
            let id = Id(number as u32);
            let Some(used) = uses.of(id) else { continue };
            self.graph.at(old.graph.insn(id));
            let made =
                |arg: &Id| now[arg.index()].expect("an argument of a used node is used, and earlier than the node");
            let args: Vec<Id> = node.args.iter().map(made).collect();
            let was_normal = before.normal.get(number).copied().unwrap_or(false);
            let is_normal = was_normal || matches!(node.kind, Kind::Effect(_)) && !before.normal.is_empty();
            let is_known = is_normal && before.uses.of(id) == Some(used);
            let is_still = is_known && node.args.iter().all(|arg| is_as_before[arg.index()]);
            let new = match node.kind {
                Kind::Effect(effect) => self.graph.effect(effect, args, node.bits),
                kind if is_still => {
                    let same = self.graph.interned(Node { kind, args, bits: node.bits });
                    if before.knew_last {
                        self.set_normal_form(same, same);
                        same
                    } else {
                        let rules = Rc::clone(&self.last);
                        self.normalized_by(&rules, same)
                    }
                }
                kind => self.make(kind, args, node.bits),
            };
            is_as_before[number] = is_still && self.fired == fired;
            fired = self.fired;
            self.uses.add(new, used);
            now[number] = Some(new);
        }
        // The outputs count as used.
        remade(old, std::mem::take(&mut self.graph), |id| now[id.index()])
    }

    fn normalized(&mut self, id: Id) -> Id {
        let rules = Rc::clone(&self.rules);
        self.normalized_by(&rules, id)
    }

    fn normalized_by(&mut self, rules: &Sorted<'r>, id: Id) -> Id {
        if let Some(Some(done)) = self.done.get(id.index()) {
            return *done;
        }
        let node = self.graph.node(id);
        let is_small = node.bits <= 64 && node.args.iter().all(|arg| self.graph.bits(*arg) <= 64);
        let rules = op_of(node.kind).filter(|_| is_small).and_then(|op| rules.get(&op).cloned());
        let mut normal = id;
        self.depth += 1;
        for rule in rules.iter().flat_map(|rules| rules.iter().copied()) {
            if self.depth > MAX_DEPTH {
                break;
            }
            let mut site = Site { graph: &self.graph, bits: &mut self.bits, uses: &self.uses };
            let Some(found) = site.find(rule, id) else { continue };
            let bits = self.graph.bits(id);
            // The graph's own simplification may return the same node.
            if let Ok(Some(new)) = build(self, &rule.to, &found, Some(bits))
                && new != id
            {
                *self.counts.entry(&rule.name).or_default() += 1;
                self.fired += 1;
                normal = new;
                break;
            }
        }
        self.depth -= 1;
        self.set_normal_form(id, normal);
        normal
    }

    fn set_normal_form(&mut self, id: Id, normal: Id) {
        self.done.resize(self.graph.nodes().len().max(self.done.len()), None);
        self.done[id.index()] = Some(normal);
    }
}

impl Maker for Round<'_> {
    type Value = Id;

    fn bits(&self, value: &Id) -> u16 {
        self.graph.bits(*value)
    }

    fn number(&mut self, expr: &Expr, env: &Env<'_, Id>, bits: u16) -> Option<Id> {
        Some(self.graph.number(arith::cut(env.eval(expr)?, bits), bits))
    }

    fn make(&mut self, kind: Kind, args: Vec<Id>, bits: u16) -> Id {
        let raw = self.graph.make(kind, args, bits);
        self.normalized(raw)
    }
}

/// The operation of a node as patterns name it.
fn op_of(kind: Kind) -> Option<Op> {
    match kind {
        Kind::Binary(op) => Some(Op::Binary(op)),
        Kind::Compare(how) => Some(Op::Compare(how)),
        Kind::Not => Some(Op::Not),
        Kind::Select => Some(Op::Select),
        Kind::Slice { .. } => Some(Op::Slice),
        Kind::SignExtend => Some(Op::SignExtend),
        _ => None,
    }
}
