// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which effects have hardware blocks.

use std::collections::BTreeSet;

use flowloom_ir::{Argument, Dataflow, Effect, Id, Kind, Table, Touch};
use flowloom_isa::helpers;
use flowloom_isa::insn::helper;

use crate::refusal::Reason;

/// A call that the pipeline omits: it prints text, and its result is unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OmittedCall {
    /// The index of the instruction.
    pub insn: usize,
    /// The number of the helper.
    pub helper: i32,
}

/// The dataflow without calls that print text, and those calls.
pub(crate) fn without_traces(dataflow: &Dataflow) -> Result<(Dataflow, Vec<OmittedCall>), (Id, Reason)> {
    let helper_of = |id: Id| match dataflow.graph.node(id).kind {
        Kind::Effect(Effect::Call { helper, .. }) => helper,
        _ => 0,
    };
    if let Some(id) = dataflow.used_trace() {
        return Err((id, Reason::TraceResult(helpers::display_name(helper_of(id)))));
    }
    let mut omitted: Vec<OmittedCall> =
        dataflow.traces().map(|id| OmittedCall { insn: dataflow.graph.insn(id), helper: helper_of(id) }).collect();
    // A call in an unrolled loop or an inlined function is one call of the program.
    omitted.sort_by_key(|call| call.insn);
    omitted.dedup();
    Ok((dataflow.without_traces(), omitted))
}

/// The first effect without a block, and the reason.
pub(crate) fn not_served(dataflow: &Dataflow) -> Option<(Id, Reason)> {
    if let Some(kept) = dataflow.ending.kept {
        return Some((kept, Reason::CutTwice));
    }
    let (outputs, reserved) = (rings(dataflow, helper::RINGBUF_OUTPUT), rings(dataflow, helper::RINGBUF_RESERVE));
    dataflow.graph.ids().find_map(|id| {
        let ring = dataflow.access(id).and_then(|access| access.map).filter(|map| reserved.contains(map));
        if let (Some(ring), Kind::Effect(effect)) = (ring, dataflow.graph.node(id).kind) {
            let name = dataflow.maps.get(ring as usize).map_or_else(String::new, |map| map.name.clone());
            match effect {
                Effect::Call { helper: helper::RINGBUF_RESERVE, .. } if outputs.contains(&ring) => {
                    return Some((id, Reason::RingOutputs(name)));
                }
                Effect::Load(_) | Effect::Store(_) | Effect::Atomic(..) => return Some((id, Reason::OldRecord(name))),
                Effect::Call { .. } => {}
            }
        }
        let Kind::Effect(Effect::Call { helper, pattern }) = dataflow.graph.node(id).kind else { return None };
        if !is_served(helper) {
            return Some((id, Reason::Helper(helpers::display_name(helper))));
        }
        let arguments = &dataflow.patterns.get(usize::from(pattern))?.arguments;
        let maps = arguments.iter().filter_map(|argument| match argument {
            Argument::Map(map) => dataflow.maps.get(*map as usize),
            _ => None,
        });
        let maps: Vec<&Table> = maps.collect();
        if let Some(outer) = maps.iter().find(|map| map.kind.is_of_maps()) {
            return Some((id, Reason::MapOfMaps(outer.name.clone())));
        }
        let looks_up = dataflow.access(id).is_some_and(|access| access.touch == Touch::Lookup);
        if let Some(ports) = maps.iter().find(|map| looks_up && map.kind.is_redirect()) {
            return Some((id, Reason::PortLookup(ports.name.clone())));
        }
        let map = maps.first().filter(|_| helper == helper::MAP_LOOKUP_PERCPU_ELEM && !is_own_cpu(dataflow, id))?;
        Some((id, Reason::OtherCpu(map.name.clone())))
    })
}

/// Whether the last argument of a call is the number of the only CPU, of which 32 bits count.
fn is_own_cpu(dataflow: &Dataflow, call: Id) -> bool {
    let Some(cpu) = dataflow.graph.node(call).args.last().copied() else { return false };
    let is_asked = matches!(
        dataflow.graph.node(cpu).kind,
        Kind::Effect(Effect::Call { helper: helper::GET_SMP_PROCESSOR_ID, .. })
    );
    is_asked || dataflow.graph.as_const(cpu).is_some_and(|cpu| cpu as u32 == 0)
}

/// The ring buffers that a helper is called on.
fn rings(dataflow: &Dataflow, number: i32) -> BTreeSet<u32> {
    let is_call = |id: &Id| matches!(dataflow.graph.node(*id).kind, Kind::Effect(Effect::Call { helper, .. }) if helper == number);
    dataflow.graph.ids().filter(is_call).filter_map(|id| dataflow.access(id)?.map).collect()
}

fn is_served(number: i32) -> bool {
    helpers::by_number(number).is_some_and(|helper| helper.in_pipelines)
}
