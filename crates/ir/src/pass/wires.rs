//! Slices and wires.
//!
//! **Goal.** What costs nothing in hardware costs nothing in the graph: shifts and masks by constants, byte swaps, comparisons that ask for
//! one bit.
//!
//! ```text
//!   v5 = shl v4 8                    v5 = concat 0x00 (slice 0 of v4)
//!   v6 = or v5 v3                    v6 = concat v3 v4              (v3 has 8 bits, zeros above)
//!   v7 = below v6 1                  v7 = eq v6 0
//! ```
//!
//! **Steps.** The rewrite rules ([`crate::rules`]), each of which is proved with an SMT solver, until none applies.
//!
//! **Limits.** A rule sees a node and what it is made of, two or three levels deep; what holds for all bits of all nodes is for known bits.

use crate::build::Dataflow;
use crate::rules::rewrite;

pub(super) fn run(dataflow: &Dataflow) -> Dataflow {
    rewrite(dataflow).0
}
