//! Mutual exclusion and implication between predicates.

use crate::bdd::{Bdd, Conditions};
use crate::build::Dataflow;
use crate::graph::{Binary, Graph, Id, Kind};

/// The most BDD nodes of all conditions together; past it, nothing is claimed.
const MAX_TESTS: usize = 30_000;

/// The conditions of a finished graph.
#[derive(Debug)]
pub struct Predicates {
    conditions: Conditions,
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
        Predicates { conditions }
    }

    fn of(&mut self, graph: &Graph, bit: Id) -> Option<Bdd> {
        let condition = if self.conditions.is_full() { return None } else { self.conditions.of(graph, bit) };
        (!self.conditions.is_full()).then_some(condition)
    }

    /// Whether two bits are proved never to be 1 together.
    pub fn exclude(&mut self, graph: &Graph, a: Id, b: Id) -> bool {
        let (Some(a), Some(b)) = (self.of(graph, a), self.of(graph, b)) else { return false };
        self.conditions.and(a, b) == Bdd::FALSE && !self.conditions.is_full()
    }

    /// Whether `a` is proved to imply `b`.
    pub fn implies(&mut self, graph: &Graph, a: Id, b: Id) -> bool {
        let (Some(a), Some(b)) = (self.of(graph, a), self.of(graph, b)) else { return false };
        let not = self.conditions.not(b);
        self.conditions.and(a, not) == Bdd::FALSE && !self.conditions.is_full()
    }
}

impl Dataflow {
    /// The predicate of an effect.
    pub fn predicate(&self, id: Id) -> Option<Id> {
        let node = self.graph.node(id);
        matches!(node.kind, Kind::Effect(_)).then(|| node.args[0])
    }
}
