//! Dead code.
//!
//! **Goal.** No node that neither the ending nor an effect needs, and no lookup whose answer nobody uses.
//!
//! ```text
//!   v1 = add v0 1                     (nothing: nobody uses v1)
//!   v2 = call map_lookup_elem …       (nothing, unless the map remembers what was used last)
//! ```
//!
//! **Steps.** From the ending and from what changes something, back along the arguments.
//!
//! **Limits.** A random number is drawn even where nobody looks at it: the next one would be another.

use super::{rebuilt, same};
use crate::build::Dataflow;

pub(super) fn run(dataflow: &Dataflow) -> Dataflow {
    rebuilt(dataflow, |graph, _, node| same(graph, node))
}
