//! When each node is computed: the dataflow laid out in stages.

use flowloom_ir::{Dataflow, Delays, FRAME_BYTES, Id, Input, Kind, Tenths};

/// A moment in the life of a packet: a stage, and how deep in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment {
    /// The stage, from 0.
    pub stage: u32,
    /// How much of it has gone by; at 0 the value lies in a register.
    pub depth: Tenths,
}

/// When a node begins and when it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// When its last argument is there, and its work begins.
    pub begins: Moment,
    /// When its value is there.
    pub ends: Moment,
}

/// The earliest moments of all nodes.
pub fn earliest(dataflow: &Dataflow, delays: &Delays) -> Vec<Span> {
    let graph = &dataflow.graph;
    let mut spans: Vec<Span> = vec![Span::default(); graph.nodes().len()];
    for id in graph.ids() {
        let node = graph.node(id);
        let ready = node.args.iter().map(|arg| spans[arg.index()].ends).max().unwrap_or_default();
        let blocks = delays.block_stages(dataflow, id);
        spans[id.index()] = match node.kind {
            Kind::Input(Input::Byte(at)) => {
                let there = Moment { stage: u32::from(at / FRAME_BYTES), depth: 0 };
                Span { begins: there, ends: there }
            }
            _ if blocks > 0 => {
                let is_call = dataflow.access(id).is_some();
                let room = if is_call { delays.key } else { 0 };
                let up = |moment: Moment| moment.stage + u32::from(moment.depth > room);
                // What a call does waits for its predicate, what it finds does not.
                let given = node.args.iter().skip(usize::from(is_call)).map(|arg| spans[arg.index()].ends).max();
                let begins = Moment { stage: given.map_or(0, up), depth: 0 };
                let mut ends = Moment { stage: begins.stage + blocks, depth: 0 };
                if is_call {
                    ends = ends.max(spans[node.args[0].index()].ends);
                }
                Span { begins, ends }
            }
            _ => {
                let delay = delays.of(graph, id);
                let begins = match ready.depth + delay <= delays.stage {
                    true => ready,
                    false => Moment { stage: ready.stage + 1, depth: 0 },
                };
                Span { begins, ends: Moment { stage: begins.stage, depth: begins.depth + delay } }
            }
        };
    }
    spans
}

pub fn depth(dataflow: &Dataflow, spans: &[Span]) -> u32 {
    let end = |m: Moment| m.stage + u32::from(m.depth > 0);
    let outputs = dataflow.ending.nodes().map(|id| end(spans[id.index()].ends)).max().unwrap_or(0);
    let effects = dataflow.graph.ids().filter(|id| dataflow.access(*id).is_some()).map(|id| end(spans[id.index()].ends));
    outputs.max(effects.max().unwrap_or(0)).max(1)
}
