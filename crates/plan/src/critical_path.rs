// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrival times of values and the critical path of a dataflow, by the delays and latencies of a [`Target`].

use flowloom_ir::{Dataflow, Graph, Id, Touch};

use crate::target::{Target, Tenths};

/// Arrival times of the nodes of a growing graph, in tenths of a level from the arrival of the first byte; stage
/// boundaries are not accounted for.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    times: Vec<Tenths>,
    /// The latency in stages of nodes that are blocks, and whether they do not wait for their predicate.
    blocks: Vec<(u32, bool)>,
}

impl From<Vec<Tenths>> for Arrivals {
    /// The arrival times of a finished graph that grows on.
    fn from(times: Vec<Tenths>) -> Arrivals {
        Arrivals { times, blocks: Vec::new() }
    }
}

impl Arrivals {
    /// Sets the latency of a node that was made for a node of a dataflow. All other nodes added so far are
    /// combinational logic.
    pub(crate) fn set_block(&mut self, graph: &Graph, new: Id, (dataflow, old): (&Dataflow, Id), target: &Target) {
        self.blocks.resize(graph.nodes().len().max(self.blocks.len()), (0, false));
        self.blocks[new.index()] = (target.block_stages(dataflow, old), is_early(dataflow, old));
    }

    pub(crate) fn of(&mut self, graph: &Graph, target: &Target, id: Id) -> Tenths {
        for next in self.times.len()..=id.index() {
            let id = Id::new(next);
            let node = graph.node(id);
            let (blocks, is_early) = self.blocks.get(next).copied().unwrap_or_default();
            let awaited = node.args.iter().skip(usize::from(is_early));
            let ready = awaited.map(|arg| self.times[arg.index()]).max().unwrap_or(0);
            self.times.push(ready + target.total(graph, id, blocks));
        }
        self.times[id.index()]
    }
}

/// Whether the value of a node does not wait for its predicate: it is used only where that holds.
fn is_early(dataflow: &Dataflow, id: Id) -> bool {
    dataflow
        .access(id)
        .is_some_and(|access| matches!(access.touch, Touch::Random | Touch::RedirectMap) || dataflow.is_idle(access))
}

/// The arguments that the value of a node waits for.
pub(crate) fn awaited(dataflow: &Dataflow, id: Id) -> &[Id] {
    &dataflow.graph.node(id).args[usize::from(is_early(dataflow, id))..]
}

/// The length of the critical path. Lookups do not wait for their predicates.
pub(crate) fn depth(dataflow: &Dataflow, target: &Target) -> Tenths {
    times(dataflow, target).into_iter().max().unwrap_or(0)
}

/// The arrival time of each node, as in [`depth`].
pub(crate) fn times(dataflow: &Dataflow, target: &Target) -> Vec<Tenths> {
    let graph = &dataflow.graph;
    let mut times: Vec<Tenths> = Vec::with_capacity(graph.nodes().len());
    for id in graph.ids() {
        let ready = awaited(dataflow, id).iter().map(|arg| times[arg.index()]).max().unwrap_or(0);
        times.push(ready + target.total(graph, id, target.block_stages(dataflow, id)));
    }
    times
}
