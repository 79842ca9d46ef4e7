// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Path conditions as reduced ordered binary decision diagrams (BDDs) over the branch bits [Bryant 1986].
//!
//! Two branches with a common join point:
//!
//! ```text
//!   if a goto x        edges to the join:  a, !a b, !a !b      their disjunction is true, in any order
//!   if b goto y
//! ```
//!
//! The variable order puts the last branch first: its bit usually arrives last, and the others then do not wait for it.
//! The condition after a branch is also only one test on top of the condition before it.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::{Binary, Graph, Id, Kind};

/// A BDD, by its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Bdd(u32);

impl Bdd {
    pub(crate) const FALSE: Bdd = Bdd(0);
    pub(crate) const TRUE: Bdd = Bdd(1);
}

/// The budget of operations, as a multiple of the limit of nodes.
const STEPS_A_TEST: usize = 8;

/// A BDD node: its variable, and the children where the bit is 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Test {
    variable: u32,
    low: Bdd,
    high: Bdd,
}

/// The shared BDD of a program.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    tests: Vec<Test>,
    known: FxHashMap<Test, Bdd>,
    chosen: FxHashMap<[Bdd; 3], Bdd>,
    restricted: FxHashMap<[Bdd; 2], Bdd>,
    /// By variable, the bit that is tested.
    bits: Vec<Id>,
    /// The BDDs of bits computed so far, and the reverse.
    conditions: FxHashMap<Id, Bdd>,
    nodes: FxHashMap<Bdd, Id>,
    /// The limit of nodes, if any.
    limit: Option<usize>,
}

impl Conditions {
    pub(crate) fn limited(limit: usize) -> Conditions {
        Conditions { limit: Some(limit), ..Conditions::default() }
    }

    /// Whether the limit was reached: conditions computed since then are meaningless.
    pub(crate) fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.tests.len() > limit || self.chosen.len() > STEPS_A_TEST * limit)
    }

    /// The number of nodes.
    pub(crate) fn size(&self) -> usize {
        self.tests.len()
    }

    /// The condition that a bit is 1. Bits that are not gates of other bits become variables.
    pub(crate) fn of(&mut self, graph: &Graph, bit: Id) -> Bdd {
        if let Some(known) = self.conditions.get(&bit) {
            return *known;
        }
        let node = graph.node(bit);
        let condition = match (node.kind, node.args.as_slice()) {
            (Kind::Const(value), _) => {
                if value == 0 {
                    Bdd::FALSE
                } else {
                    Bdd::TRUE
                }
            }
            (Kind::Not, [one]) => {
                let one = self.of(graph, *one);
                self.not(one)
            }
            (Kind::Binary(op @ (Binary::And | Binary::Or)), [a, b]) => {
                let (a, b) = (self.of(graph, *a), self.of(graph, *b));
                if op == Binary::And { self.and(a, b) } else { self.or(a, b) }
            }
            (Kind::Select, [pairs @ .., last]) => {
                let mut all = self.of(graph, *last);
                for pair in pairs.rchunks_exact(2) {
                    let (when, value) = (self.of(graph, pair[0]), self.of(graph, pair[1]));
                    all = self.choose(when, value, all);
                }
                all
            }
            _ => return self.variable(bit),
        };
        self.conditions.insert(bit, condition);
        condition
    }

    /// The condition that a bit is 1, as a variable whatever the bit is made of.
    pub(crate) fn variable(&mut self, bit: Id) -> Bdd {
        let variable = self.bits.len() as u32;
        self.bits.push(bit);
        let condition = self.test(variable, Bdd::FALSE, Bdd::TRUE);
        self.conditions.insert(bit, condition);
        condition
    }

    /// The number of nodes of a condition, counted up to `most` + 1.
    pub(crate) fn length(&self, condition: Bdd, most: usize) -> usize {
        let (mut seen, mut work) = (FxHashSet::default(), vec![condition]);
        while let Some(condition) = work.pop() {
            if let Some(test) = self.look(condition).filter(|_| seen.insert(condition)) {
                if seen.len() > most {
                    break;
                }
                work.extend([test.low, test.high]);
            }
        }
        seen.len()
    }

    fn test(&mut self, variable: u32, low: Bdd, high: Bdd) -> Bdd {
        if low == high {
            return low;
        }
        let test = Test { variable, low, high };
        let next = Bdd(self.tests.len() as u32 + 2);
        let tests = &mut self.tests;
        *self.known.entry(test).or_insert_with(|| {
            tests.push(test);
            next
        })
    }

    fn look(&self, condition: Bdd) -> Option<Test> {
        (condition.0 as usize).checked_sub(2).and_then(|place| self.tests.get(place)).copied()
    }

    /// The cofactors of a condition with respect to a variable.
    fn cofactors(&self, condition: Bdd, variable: u32) -> (Bdd, Bdd) {
        match self.look(condition) {
            Some(test) if test.variable == variable => (test.low, test.high),
            _ => (condition, condition),
        }
    }

    fn choose(&mut self, of: Bdd, high: Bdd, low: Bdd) -> Bdd {
        match (of, high, low) {
            (Bdd::TRUE, ..) => return high,
            (Bdd::FALSE, ..) => return low,
            (_, Bdd::TRUE, Bdd::FALSE) => return of,
            _ if high == low => return high,
            _ => {}
        }
        if let Some(known) = self.chosen.get(&[of, high, low]) {
            return *known;
        }
        if self.is_full() {
            return Bdd::FALSE;
        }
        let last = [of, high, low].into_iter().filter_map(|one| self.look(one)).map(|test| test.variable).max();
        let variable = last.unwrap_or(0);
        let [a, b, c] = [of, high, low].map(|one| self.cofactors(one, variable));
        let (l, h) = (self.choose(a.0, b.0, c.0), self.choose(a.1, b.1, c.1));
        let chosen = self.test(variable, l, h);
        self.chosen.insert([of, high, low], chosen);
        chosen
    }

    pub(crate) fn and(&mut self, a: Bdd, b: Bdd) -> Bdd {
        self.choose(a, b, Bdd::FALSE)
    }

    pub(crate) fn or(&mut self, a: Bdd, b: Bdd) -> Bdd {
        self.choose(a, Bdd::TRUE, b)
    }

    pub(crate) fn not(&mut self, a: Bdd) -> Bdd {
        self.choose(a, Bdd::FALSE, Bdd::TRUE)
    }

    /// A condition equal to this one wherever `care` holds, and usually smaller: the restrict operator [Coudert, Madre
    /// 1990].
    pub(crate) fn within(&mut self, condition: Bdd, care: Bdd) -> Bdd {
        if care == Bdd::TRUE || care == Bdd::FALSE || self.look(condition).is_none() {
            return condition;
        }
        if let Some(known) = self.restricted.get(&[condition, care]) {
            return *known;
        }
        let (Some(test), Some(cared)) = (self.look(condition), self.look(care)) else { return condition };
        let result = if cared.variable > test.variable {
            let either = self.or(cared.low, cared.high);
            self.within(condition, either)
        } else {
            let (low, high) = self.cofactors(care, test.variable);
            match (low, high) {
                (Bdd::FALSE, _) => self.within(test.high, high),
                (_, Bdd::FALSE) => self.within(test.low, low),
                _ => self.within_both((test.variable, test.low, test.high), (low, high)),
            }
        };
        self.restricted.insert([condition, care], result);
        result
    }

    /// Existential quantification over the bits that `is_quantified` names. `known` is a memo table.
    pub(crate) fn without(
        &mut self,
        condition: Bdd,
        is_quantified: &dyn Fn(Id) -> bool,
        known: &mut FxHashMap<Bdd, Bdd>,
    ) -> Bdd {
        let Some(test) = self.look(condition) else { return condition };
        if let Some(known) = known.get(&condition) {
            return *known;
        }
        let [low, high] = [test.low, test.high].map(|way| self.without(way, is_quantified, known));
        let bit = self.bits[test.variable as usize];
        let result = if is_quantified(bit) { self.or(low, high) } else { self.test(test.variable, low, high) };
        known.insert(condition, result);
        result
    }

    /// A test restricted to `care` that keeps both children, unless the other tests imply it.
    fn within_both(&mut self, (variable, low, high): (u32, Bdd, Bdd), care: (Bdd, Bdd)) -> Bdd {
        let [not_low, not_high] = [low, high].map(|way| self.not(way));
        let mut joined = |low: Bdd, high: Bdd| {
            let [low, high] = [(low, care.0), (high, care.1)].map(|(way, care)| self.and(way, care));
            self.or(low, high)
        };
        let (holds, fails) = (joined(low, high), joined(not_low, not_high));
        if self.and(holds, fails) == Bdd::FALSE {
            let either = self.or(care.0, care.1);
            return self.within(holds, either);
        }
        let (low, high) = (self.within(low, care.0), self.within(high, care.1));
        self.test(variable, low, high)
    }

    /// The condition as a one-bit node.
    pub(crate) fn node(&mut self, graph: &mut Graph, condition: Bdd) -> Id {
        let Some(test) = self.look(condition) else {
            return graph.number(u64::from(condition == Bdd::TRUE), 1);
        };
        if let Some(known) = self.nodes.get(&condition) {
            return *known;
        }
        let bit = self.bits[test.variable as usize];
        let (low, high) = (self.node(graph, test.low), self.node(graph, test.high));
        let node = match (test.low, test.high) {
            (Bdd::FALSE, _) => graph.and(bit, high),
            (_, Bdd::FALSE) => {
                let not = graph.not(bit);
                graph.and(not, low)
            }
            (Bdd::TRUE, _) => {
                let not = graph.not(bit);
                graph.or(not, high)
            }
            (_, Bdd::TRUE) => graph.or(bit, low),
            _ => graph.select(vec![bit, high, low]),
        };
        self.nodes.insert(condition, node);
        self.conditions.insert(node, condition);
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Input;

    /// Four bits of the packet.
    fn bits(graph: &mut Graph) -> Vec<Id> {
        let byte = graph.make(Kind::Input(Input::Byte(0)), Vec::new(), 8);
        (0..4).map(|low| graph.slice(byte, low, 1)).collect()
    }

    /// Two headers are checked on separate paths; the field that tells them apart decides the condition.
    #[test]
    fn tests_passed_on_both_paths_are_dropped() {
        let mut graph = Graph::default();
        let bits = bits(&mut graph);
        let mut all = Conditions::default();
        let [kind, first, second] = [bits[0], bits[1], bits[2]].map(|bit| all.of(&graph, bit));
        let not = all.not(kind);
        let (one, other) = (all.and(kind, first), all.and(not, second));
        let care = all.or(one, other);
        assert_eq!(all.within(one, care), kind);
        assert_eq!(all.within(other, care), not);
        // The last test is kept unless the others imply it.
        assert_eq!(all.within(other, Bdd::TRUE), other);
    }

    #[test]
    fn a_condition_without_a_bit_holds_wherever_it_may() {
        let mut graph = Graph::default();
        let bits = bits(&mut graph);
        let mut all = Conditions::default();
        let [a, b] = [bits[0], bits[1]].map(|bit| all.of(&graph, bit));
        let both = all.and(a, b);
        assert_eq!(all.without(both, &|bit| bit == bits[1], &mut FxHashMap::default()), a);
        assert_eq!(all.without(both, &|bit| bit == bits[0], &mut FxHashMap::default()), b);
    }

    #[test]
    fn a_join_point_has_the_condition_of_its_dominator() {
        let mut graph = Graph::default();
        let bits = bits(&mut graph);
        let mut all = Conditions::default();
        let [a, b] = [bits[1], bits[0]].map(|bit| all.of(&graph, bit));
        let (not_a, not_b) = (all.not(a), all.not(b));
        let (second, third) = (all.and(not_a, b), all.and(not_a, not_b));
        let some = all.or(a, third);
        assert_eq!(all.or(some, second), Bdd::TRUE);
        // Where `a` is known to be false, `b` decides.
        let care = all.or(second, third);
        assert_eq!(all.within(second, care), b);
        assert_eq!(all.within(a, care), Bdd::FALSE);
    }
}
