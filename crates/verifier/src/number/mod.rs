// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The abstract domain of numbers: known bits and bounds.
//!
//! ```text
//!            ┌ bits        which of the 64 bits are known, and their values
//!  Range ────┼ umin..umax, smin..smax            the whole register, unsigned and signed
//!            └ umin32..umax32, smin32..smax32    its low half, unsigned and signed
//!
//!  r1 = *(u8 *)(r2 + 0)      0..=255
//!  r1 &= 60                  0..=60, multiple of 4
//!  if w1 > 20 goto ...       0..=20, multiple of 4     (on the fall-through edge)
//! ```
//!
//! All are kept at once (a reduced product), since compilers bound a number in one view and use it in another: a mask
//! constrains bits, a comparison one width and sign, an address the whole register. After every operation each part
//! refines the others (see [`range`]).
//!
//! Rules for the whole module:
//!
//! - **Sound**: every value that a register can have is in its range ([`Range::contains`]). The operations are those of
//!   `flowloom_vm`; the tests compare the two.
//! - The bounds of a [`Range`] are in order. If a comparison or a [`Range::meet`] leaves no value, the result is
//!   `None`; an empty set that goes unnoticed is harmless: its path is walked without need.
//! - Nothing allocates; a [`Range`] is 64 bytes.
//!
//! [`bits`] has the known bits, [`lane`] one width with its bounds, [`range`] the whole, [`arithmetic`] and [`compare`]
//! the transfer functions.

pub(crate) mod arithmetic;
mod bits;
mod bitwise;
pub(crate) mod compare;
mod division;
mod lane;
mod range;
mod shift;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use range::Range;
