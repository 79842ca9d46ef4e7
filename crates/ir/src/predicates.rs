//! Which effects never happen for the same packet.

use crate::bdd::{Bdd, Conditions};
use crate::build::Dataflow;
use crate::graph::{Binary, Graph, Id, Kind};

/// Tests in all conditions together; beyond, nothing is said.
const MAX_TESTS: usize = 30_000;

/// The conditions of a finished graph.
#[derive(Debug)]
pub struct Predicates {
    conditions: Conditions,
}

impl Predicates {
    /// Of all bits of a graph.
    pub fn new(graph: &Graph) -> Predicates {
        let mut conditions = Conditions::limited(MAX_TESTS);
        for id in graph.ids().filter(|id| graph.bits(*id) == 1) {
            let node = graph.node(id);
            let is_made_of_others = match node.kind {
                Kind::Const(_) | Kind::Not | Kind::Select => true,
                Kind::Binary(op) => matches!(op, Binary::And | Binary::Or),
                _ => false,
            };
            // In the order of the graph, so that what comes late is tested first.
            if !is_made_of_others {
                conditions.variable(id);
            }
        }
        Predicates { conditions }
    }

    fn of(&mut self, graph: &Graph, bit: Id) -> Option<Bdd> {
        let condition = if self.conditions.is_full() { return None } else { self.conditions.of(graph, bit) };
        (!self.conditions.is_full()).then_some(condition)
    }

    /// Whether it is certain that of two bits one is 0.
    pub fn exclude(&mut self, graph: &Graph, a: Id, b: Id) -> bool {
        let (Some(a), Some(b)) = (self.of(graph, a), self.of(graph, b)) else { return false };
        self.conditions.and(a, b) == Bdd::FALSE && !self.conditions.is_full()
    }

    /// Whether it is certain that one bit is 1 wherever another is.
    pub fn implies(&mut self, graph: &Graph, a: Id, b: Id) -> bool {
        let (Some(a), Some(b)) = (self.of(graph, a), self.of(graph, b)) else { return false };
        let not = self.conditions.not(b);
        self.conditions.and(a, not) == Bdd::FALSE && !self.conditions.is_full()
    }
}

impl Dataflow {
    /// The condition on which an effect happens.
    pub fn predicate(&self, id: Id) -> Option<Id> {
        let node = self.graph.node(id);
        matches!(node.kind, Kind::Effect(_)).then(|| node.args[0])
    }
}
