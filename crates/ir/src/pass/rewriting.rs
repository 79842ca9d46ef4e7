// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wires.
//!
//! **Goal.** Operations that cost nothing in hardware become slices and concatenations: shifts and masks by constants,
//! byte swaps, comparisons that test one bit.
//!
//! ```text
//!   v5 = shl v4 8                    v5 = concat 0x00 (slice 0 of v4)
//!   v6 = or v5 v3                    v6 = concat v3 v4              (v3 has 8 bits, zeros above)
//!   v7 = below v6 1                  v7 = eq v6 0
//! ```
//!
//! **Steps.** Rewrite rules ([`crate::rules`]), each proved with an SMT solver, are applied to a fixed point.
//!
//! **Limits.** A rule matches a node and its arguments, two or three levels deep; facts about all bits of a node belong
//! to known bits.

use crate::dataflow::Dataflow;
use crate::rules::rewrite;

pub fn run(dataflow: &Dataflow) -> Dataflow {
    rewrite(dataflow).0
}
