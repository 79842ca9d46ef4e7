//! Which effects never happen for the same packet.

use std::collections::HashMap;

use crate::bdd::{Bdd, Conditions};
use crate::build::Dataflow;
use crate::graph::{Graph, Id, Kind};

/// Tests in all conditions together; beyond, nothing is said.
const MAX_TESTS: usize = 200_000;

/// The conditions of a finished graph.
#[derive(Debug, Default)]
pub struct Predicates {
    conditions: Conditions,
    known: HashMap<Id, Bdd>,
}

impl Predicates {
    fn of(&mut self, graph: &Graph, bit: Id) -> Option<Bdd> {
        if self.conditions.size() > MAX_TESTS {
            return None;
        }
        if let Some(known) = self.known.get(&bit) {
            return Some(*known);
        }
        let condition = self.conditions.of(graph, bit);
        self.known.insert(bit, condition);
        Some(condition)
    }

    /// Whether it is certain that of two bits one is 0.
    pub fn exclude(&mut self, graph: &Graph, a: Id, b: Id) -> bool {
        let (Some(a), Some(b)) = (self.of(graph, a), self.of(graph, b)) else { return false };
        self.conditions.and(a, b) == Bdd::FALSE
    }

    /// Whether it is certain that one bit is 1 wherever another is.
    pub fn implies(&mut self, graph: &Graph, a: Id, b: Id) -> bool {
        let (Some(a), Some(b)) = (self.of(graph, a), self.of(graph, b)) else { return false };
        let not = self.conditions.not(b);
        self.conditions.and(a, not) == Bdd::FALSE
    }
}

impl Dataflow {
    /// The condition on which an effect happens.
    pub fn predicate(&self, id: Id) -> Option<Id> {
        let node = self.graph.node(id);
        matches!(node.kind, Kind::Effect(_)).then(|| node.args[0])
    }
}
