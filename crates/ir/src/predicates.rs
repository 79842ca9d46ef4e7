// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mutual exclusion and implication between predicates.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::bdd::{Bdd, Conditions};
use crate::dataflow::Dataflow;
use crate::graph::{Binary, Compare, Graph, Id, Kind};

/// The most BDD nodes of all conditions together; past it, only literals tell conditions apart.
const MAX_TESTS: usize = 30_000;
/// The most literals of all conditions together; past it, nothing is claimed.
const MAX_LITERALS: usize = 500_000;
/// The depth to which the gates of a condition are followed for its literals.
const MAX_DEPTH: usize = 400;

/// A bit and the value that it has.
type Literal = (Id, bool);

/// The conditions of a finished graph.
#[derive(Debug)]
pub struct Predicates {
    conditions: Conditions,
    literals: Literals,
}

impl Predicates {
    /// The conditions of all one-bit nodes of a graph.
    pub fn new(graph: &Graph) -> Predicates {
        let mut conditions = Conditions::limited(MAX_TESTS);
        for id in graph.ids().filter(|id| graph.bits(*id) == 1) {
            let node = graph.node(id);
            let is_made_of_others = match node.kind {
                Kind::Const(_) | Kind::Not | Kind::Select => true,
                Kind::Binary(op) => matches!(op, Binary::And | Binary::Or),
                _ => false,
            };
            // In the order of the graph: a bit that arrives late is tested first.
            if !is_made_of_others {
                conditions.variable(id);
            }
        }
        Predicates { conditions, literals: Literals::default() }
    }

    fn of(&mut self, graph: &Graph, bit: Id) -> Option<Bdd> {
        let condition = if self.conditions.is_full() { return None } else { self.conditions.of(graph, bit) };
        (!self.conditions.is_full()).then_some(condition)
    }

    /// Whether the budget is exhausted, so that bits that exclude each other may not be proved to.
    pub(crate) fn is_full(&self) -> bool {
        self.conditions.is_full()
    }

    /// Whether two bits are proved never to be 1 together.
    pub fn exclude(&mut self, graph: &Graph, a: Id, b: Id) -> bool {
        let excluded = match (self.of(graph, a), self.of(graph, b)) {
            (Some(a), Some(b)) => self.conditions.and(a, b) == Bdd::FALSE && !self.conditions.is_full(),
            _ => false,
        };
        excluded || self.conditions.is_full() && self.literals.exclude(graph, a, b)
    }

    /// As [`exclude`](Predicates::exclude), also where each of them implies that one value equals another constant.
    pub fn exclude_by_value(&mut self, graph: &Graph, a: Id, b: Id) -> bool {
        if self.exclude(graph, a, b) {
            return true;
        }
        let [a, b] = [a, b].map(|bit| self.literals.of(graph, (bit, true), 0));
        let constant = |(bit, value): &Literal| {
            let node = graph.node(*bit);
            match (node.kind, node.args.as_slice()) {
                (Kind::Compare(Compare::Equal), [one, other]) if *value => match graph.as_const(*one) {
                    Some(constant) => Some((*other, constant)),
                    None => Some((*one, graph.as_const(*other)?)),
                },
                _ => None,
            }
        };
        let known: FxHashMap<Id, u64> = a.iter().filter_map(constant).collect();
        b.iter().filter_map(constant).any(|(value, constant)| known.get(&value).is_some_and(|other| *other != constant))
    }

    /// Whether `a` is proved to imply `b`.
    pub fn implies(&mut self, graph: &Graph, a: Id, b: Id) -> bool {
        let (Some(a), Some(b)) = (self.of(graph, a), self.of(graph, b)) else { return false };
        let not = self.conditions.not(b);
        self.conditions.and(a, not) == Bdd::FALSE && !self.conditions.is_full()
    }
}

/// The literals that a condition implies: cheaper than its BDD, and enough for paths that part at one branch.
///
/// ```text
///   v7 = and v1 v2              implies v1, v2, v7
///   v8 = not v1                 implies not v1, v8: excludes v7
///   v9 = select v3 v7 v1        implies v1, v9
/// ```
#[derive(Debug, Default)]
struct Literals {
    known: FxHashMap<Literal, Rc<Vec<Literal>>>,
    total: usize,
}

impl Literals {
    fn exclude(&mut self, graph: &Graph, a: Id, b: Id) -> bool {
        let (a, b) = (self.of(graph, (a, true), 0), self.of(graph, (b, true), 0));
        a.iter().any(|(bit, value)| b.binary_search(&(*bit, !value)).is_ok())
    }

    /// The literals that hold wherever this one does, sorted.
    fn of(&mut self, graph: &Graph, literal: Literal, depth: usize) -> Rc<Vec<Literal>> {
        if let Some(known) = self.known.get(&literal) {
            return known.clone();
        }
        let (bit, value) = literal;
        let node = graph.node(bit);
        let mut all = match (node.kind, node.args.as_slice()) {
            _ if depth >= MAX_DEPTH || self.total >= MAX_LITERALS => Vec::new(),
            (Kind::Not, [one]) => self.of(graph, (*one, !value), depth + 1).to_vec(),
            (Kind::Binary(op @ (Binary::And | Binary::Or)), [a, b]) => {
                let (a, b) = (self.of(graph, (*a, value), depth + 1), self.of(graph, (*b, value), depth + 1));
                if (op == Binary::And) == value { either(&a, &b) } else { both(&a, &b) }
            }
            (Kind::Select, [pairs @ .., last]) => {
                let mut all = self.of(graph, (*last, value), depth + 1).to_vec();
                for pair in pairs.rchunks_exact(2) {
                    let mut condition = |chosen: bool| self.of(graph, (pair[0], chosen), depth + 1);
                    let (high, low) = (condition(true), condition(false));
                    let chosen = self.of(graph, (pair[1], value), depth + 1);
                    all = both(&either(&high, &chosen), &either(&low, &all));
                }
                all
            }
            _ => Vec::new(),
        };
        if let Err(place) = all.binary_search(&literal) {
            all.insert(place, literal);
        }
        self.total += all.len();
        let all = Rc::new(all);
        self.known.insert(literal, all.clone());
        all
    }
}

/// The union of two sorted sets.
fn either(a: &[Literal], b: &[Literal]) -> Vec<Literal> {
    let mut all = [a, b].concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// The intersection of two sorted sets.
fn both(a: &[Literal], b: &[Literal]) -> Vec<Literal> {
    a.iter().filter(|literal| b.binary_search(literal).is_ok()).copied().collect()
}

impl Dataflow {
    /// The predicate of an effect.
    pub fn predicate(&self, id: Id) -> Option<Id> {
        let node = self.graph.node(id);
        matches!(node.kind, Kind::Effect(_)).then(|| node.args[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Input;

    /// Two paths that part at a bit, behind a condition whose BDD is exponential in this order of its bits.
    #[test]
    fn paths_that_part_at_a_branch_are_exclusive_past_the_budget() {
        let mut graph = Graph::default();
        let bytes: Vec<Id> = (0..5).map(|at| graph.make(Kind::Input(Input::Byte(at)), Vec::new(), 8)).collect();
        let bits: Vec<Id> = (0..40).map(|at| graph.slice(bytes[at / 8], at as u16 % 8, 1)).collect();
        let mut before = graph.number(0, 1);
        for (a, b) in bits[..19].iter().zip(&bits[19..38]) {
            let pair = graph.and(*a, *b);
            before = graph.or(before, pair);
        }
        let (branch, other) = (bits[38], bits[39]);
        let not = graph.not(branch);
        let taken = graph.and(before, branch);
        let narrower = graph.and(taken, other);
        let selected = graph.select(vec![other, taken, narrower]);
        let passed = graph.and(before, not);
        let mut predicates = Predicates::new(&graph);
        assert!(predicates.exclude(&graph, selected, passed));
        assert!(predicates.conditions.is_full(), "the budget is too large for this test");
        assert!(!predicates.exclude(&graph, selected, taken));
        assert!(!predicates.exclude(&graph, before, passed));
        let either = graph.or(taken, other);
        assert!(!predicates.exclude(&graph, either, passed), "a disjunction implies neither of its terms");
        let neither = graph.not(either);
        assert!(predicates.exclude(&graph, neither, selected), "its complement excludes both");
    }
}
