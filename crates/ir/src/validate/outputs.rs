// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of outputs and of reaches.

use super::invalid::{Invalid, OFFSET_BITS, Site};
use crate::dataflow::{Dataflow, Reach, Reaching};
use crate::graph::{Id, Input, Kind};

/// Outputs have their widths, and what decides between window and slow path depends on no effect, except offsets of
/// accesses.
pub(super) fn outputs(dataflow: &Dataflow, found: &mut Vec<Invalid>) {
    let ending = &dataflow.ending;
    let mut width = |site: Site, id: Id, expected: u16| {
        let bits = dataflow.graph.bits(id);
        if bits != expected {
            found.push(Invalid::Width { site, found: bits, expected });
        }
    };
    for (name, id) in [("verdict", ending.verdict), ("head", ending.head), ("tail", ending.tail)] {
        width(Site::Output(name), id, OFFSET_BITS);
    }
    width(Site::Output("slow"), ending.slow, 1);
    ending.kept.iter().for_each(|kept| width(Site::Output("kept"), *kept, OFFSET_BITS));
    ending.packet.iter().for_each(|(at, byte)| width(Site::Packet(*at), *byte, 8));
    for (number, overlay) in ending.overlays.iter().enumerate() {
        let site = Site::Overlay(number);
        width(site, overlay.base, OFFSET_BITS);
        for laid in overlay.bytes.values() {
            width(site, laid.when, 1);
            width(site, laid.byte, 8);
        }
    }
    for (number, reach) in dataflow.reaches.iter().enumerate() {
        let site = Site::Reach(number);
        width(site, reach.when, 1);
        match reach.by {
            Reaching::Access { base, .. } => width(site, base, OFFSET_BITS),
            Reaching::Test(test) => width(site, test, 1),
        }
    }
    reaches(dataflow, found);
}

fn reaches(dataflow: &Dataflow, found: &mut Vec<Invalid>) {
    let graph = &dataflow.graph;
    for (number, reach) in dataflow.reaches.iter().enumerate() {
        if let Reaching::Test(test) = reach.by
            && !matches!(graph.node(test).kind, Kind::Compare(_) | Kind::Const(_))
        {
            found.push(Invalid::ReachKind { site: Site::Reach(number), found: test });
        }
    }
    let slow = dataflow.ending.slow;
    if graph.as_const(slow) != Some(0) && !dataflow.reaches.is_empty() {
        found.push(Invalid::StaleReach { site: Site::Reach(0), slow });
    }
    // By node, an effect that it depends on.
    let mut effects: Vec<Option<Id>> = Vec::with_capacity(graph.nodes().len());
    for id in graph.ids() {
        let node = graph.node(id);
        let is_effect = matches!(node.kind, Kind::Effect(_) | Kind::Input(Input::Only(_)));
        effects.push(if is_effect { Some(id) } else { node.args.iter().find_map(|arg| effects[arg.index()]) });
    }
    let decides = |reach: &Reach| match reach.by {
        Reaching::Access { .. } => vec![reach.when],
        Reaching::Test(test) => vec![reach.when, test],
    };
    let all = dataflow.reaches.iter().enumerate();
    let all = all.flat_map(|(number, reach)| decides(reach).into_iter().map(move |id| (Site::Reach(number), id)));
    for (site, id) in all.chain([(Site::Output("slow"), slow)]) {
        if let Some(effect) = effects[id.index()] {
            found.push(Invalid::EarlyEffect { site, effect });
        }
    }
}
