// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrival times of values and the critical path of a dataflow, by the delays and latencies of a [`Target`].

use flowloom_ir::{Dataflow, Graph, Id};

use crate::target::{Target, Tenths};

/// Arrival times of the nodes of a growing graph, in tenths of a level from the arrival of the first byte; stage
/// boundaries are not accounted for.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    times: Vec<Tenths>,
    /// The latency in stages of nodes that are blocks.
    blocks: Vec<u32>,
}

impl Arrivals {
    /// Sets the latency of a node in stages. All other nodes added so far are combinational logic.
    pub(crate) fn set_block(&mut self, graph: &Graph, id: Id, stages: u32) {
        self.blocks.resize(graph.nodes().len().max(self.blocks.len()), 0);
        self.blocks[id.index()] = stages;
    }

    pub(crate) fn of(&mut self, graph: &Graph, target: &Target, id: Id) -> Tenths {
        for next in self.times.len()..=id.index() {
            let id = Id::new(next);
            let node = graph.node(id);
            let ready = node.args.iter().map(|arg| self.times[arg.index()]).max().unwrap_or(0);
            let blocks = self.blocks.get(next).copied().unwrap_or(0);
            self.times.push(ready + target.total(graph, id, blocks));
        }
        self.times[id.index()]
    }
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
        let node = graph.node(id);
        let is_idle = dataflow.access(id).is_some_and(|access| dataflow.is_idle(access));
        let ready = node.args.iter().skip(usize::from(is_idle)).map(|arg| times[arg.index()]).max().unwrap_or(0);
        times.push(ready + target.total(graph, id, target.block_stages(dataflow, id)));
    }
    times
}
