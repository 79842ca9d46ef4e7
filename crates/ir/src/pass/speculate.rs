// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Speculation.
//!
//! **Goal.** Lookups and loads do not wait for the branches before them: the largest single reduction of depth.
//!
//! ```text
//!   v9 = call map_lookup_elem if v6 (…)      v9 = call map_lookup_elem if 1 (…)
//!   v10 = load if v8 v9 + 0                  v10 = load if 1 v9 + 0
//! ```
//!
//! **Steps.** The predicate of each effect without side effects becomes 1. A load through a failed lookup gives 0.
//!
//! **Before.** The value of such a node is used only under its predicate: no other path loads it.
//!
//! **Limits.** In an LRU map a lookup has a side effect, so it keeps its predicate. So does a load at an offset known
//! only at run time, because it may lie outside of the value.

use super::{rebuilt, same};
use crate::access::Touch;
use crate::dataflow::Dataflow;

pub fn run(dataflow: &Dataflow) -> Dataflow {
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
