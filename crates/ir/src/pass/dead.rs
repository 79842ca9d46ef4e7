// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dead code elimination.
//!
//! **Goal.** No node that neither the ending nor an effect needs, and no lookup whose result is unused.
//!
//! ```text
//!   v1 = add v0 1                     (removed: v1 has no users)
//!   v2 = call map_lookup_elem …       (removed, except in LRU maps)
//! ```
//!
//! **Steps.** Marks nodes backwards from the ending and from side effects.
//!
//! **Limits.** An unused random number is drawn nevertheless, because the next one depends on it.

use super::{rebuilt, same};
use crate::dataflow::Dataflow;

pub fn run(dataflow: &Dataflow) -> Dataflow {
    rebuilt(dataflow, |graph, _, node| same(graph, node))
}
