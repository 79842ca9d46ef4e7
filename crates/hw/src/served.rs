//! Which effects hardware has blocks for.

use flowloom_bpf::helpers;
use flowloom_bpf::insn::helper;
use flowloom_ir::{Argument, Dataflow, Effect, Id, Kind};

use crate::refusal::Why;

/// The first effect that no block has, and what it is.
pub(crate) fn not_served(dataflow: &Dataflow) -> Option<(Id, Why)> {
    if let Some(kept) = dataflow.ending.kept {
        return Some((kept, Why::CutTwice));
    }
    dataflow.graph.ids().find_map(|id| {
        let Kind::Effect(Effect::Call { helper, pattern }) = dataflow.graph.node(id).kind else { return None };
        if !is_served(helper) {
            let name = helpers::name_of(helper).map_or_else(|| format!("helper {helper}"), str::to_owned);
            return Some((id, Why::Helper(name)));
        }
        let arguments = &dataflow.patterns.get(usize::from(pattern))?.arguments;
        let maps = arguments.iter().filter_map(|argument| match argument {
            Argument::Map(map) => dataflow.maps.get(*map as usize),
            _ => None,
        });
        let outer = maps.into_iter().find(|map| map.kind.is_of_maps())?;
        Some((id, Why::MapOfMaps(outer.name.clone())))
    })
}

fn is_served(number: i32) -> bool {
    matches!(
        number,
        helper::MAP_LOOKUP_ELEM
            | helper::MAP_LOOKUP_PERCPU_ELEM
            | helper::MAP_UPDATE_ELEM
            | helper::MAP_DELETE_ELEM
            | helper::KTIME_GET_NS
            | helper::KTIME_GET_BOOT_NS
            | helper::KTIME_GET_COARSE_NS
            | helper::KTIME_GET_TAI_NS
            | helper::JIFFIES64
            | helper::GET_PRANDOM_U32
            | helper::GET_SMP_PROCESSOR_ID
            | helper::GET_NUMA_NODE_ID
            | helper::REDIRECT
            | helper::REDIRECT_MAP
            | helper::RINGBUF_OUTPUT
            | helper::PERF_EVENT_OUTPUT
            | helper::FL_CLONE
            | helper::FL_EMIT
            | helper::FL_EVICT
    )
}
