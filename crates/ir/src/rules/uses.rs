// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The uses of nodes and of their bits.

use crate::dataflow::Dataflow;
use crate::graph::{Id, Kind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) count: u32,
    /// No user takes bits from this one on.
    pub(super) top: u16,
    /// No user takes bits below this one.
    pub(super) bottom: u16,
}

/// The uses of nodes; nothing is recorded about unused ones.
#[derive(Debug, Default)]
pub(super) struct Uses {
    all: Vec<Option<Use>>,
}

impl Uses {
    pub(super) fn with_room(nodes: usize) -> Uses {
        Uses { all: Vec::with_capacity(nodes) }
    }

    pub(super) fn of(&self, id: Id) -> Option<Use> {
        self.all.get(id.index()).copied().flatten()
    }

    /// Adds one use, or several.
    pub(super) fn add(&mut self, id: Id, used: Use) {
        if self.all.len() <= id.index() {
            self.all.resize(id.index() + 1, None);
        }
        self.all[id.index()] = Some(match self.all[id.index()] {
            None => used,
            Some(own) => {
                Use { count: own.count + used.count, top: own.top.max(used.top), bottom: own.bottom.min(used.bottom) }
            }
        });
    }

    /// The uses of nodes by effects and outputs, and by the nodes that these use.
    pub(super) fn in_dataflow(dataflow: &Dataflow) -> Uses {
        let graph = &dataflow.graph;
        let mut uses = Uses::default();
        let whole = |id: Id| Use { count: 1, top: graph.bits(id), bottom: 0 };
        for id in dataflow.ending.nodes().chain(dataflow.wanted.values().copied()) {
            uses.add(id, whole(id));
        }
        for (number, node) in graph.nodes().iter().enumerate().rev() {
            let id = Id(number as u32);
            if matches!(node.kind, Kind::Effect(_)) {
                uses.add(id, Use { count: 0, ..whole(id) });
            }
            if uses.of(id).is_none() {
                continue;
            }
            for arg in &node.args {
                let used = match node.kind {
                    Kind::Slice { low } => Use { count: 1, top: low + node.bits, bottom: low },
                    _ => whole(*arg),
                };
                uses.add(*arg, used);
            }
        }
        uses
    }
}
