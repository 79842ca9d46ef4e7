//! Speculation.
//!
//! **Goal.** Lookups and loads that need not wait for the branches in front of them: the largest single gain in depth.
//!
//! ```text
//!   v9 = call map_lookup_elem if v6 (…)      v9 = call map_lookup_elem if 1 (…)
//!   v10 = load if v8 v9 + 0                  v10 = load if 1 v9 + 0
//! ```
//!
//! **Steps.** What leaves no trace is done always: its predicate becomes 1. A load from what was not found gives 0.
//!
//! **Before.** Values of such nodes are looked at only where their predicate holds: on all other paths nothing was loaded there.
//!
//! **Limits.** In a map that forgets what was not used lately a lookup leaves a trace, and waits for its predicate. So does a
//! load at an offset that only the run knows, since it may lead out of the value.

use super::{rebuilt, same};
use crate::access::Touch;
use crate::build::Dataflow;

pub(super) fn run(dataflow: &Dataflow) -> Dataflow {
    rebuilt(dataflow, |graph, id, mut node| {
        if let Some(access) = dataflow.access(id)
            && dataflow.is_idle(access)
            && (access.touch != Touch::Load || graph.as_const(node.args[2]).is_some())
        {
            node.args[0] = graph.number(1, 1);
        }
        same(graph, node)
    })
}
