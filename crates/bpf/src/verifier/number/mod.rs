//! The numbers of the verifier: what is known of a register without running the program.
//!
//! ```text
//!            ┌ bits        which of the 64 bits are known, and what they are
//!  Range ────┼ umin..umax, smin..smax            the whole register, unsigned and signed
//!            └ umin32..umax32, smin32..smax32    its low half, unsigned and signed
//!
//!  r1 = *(u8 *)(r2 + 0)      0..=255
//!  r1 &= 60                  0..=60, multiple of 4
//!  if w1 > 20 goto ...       0..=20, multiple of 4     (where it does not jump)
//! ```
//!
//! One value says all of it at once, since compilers bound a number in one reading and use it in another: a mask speaks of
//! bits, a comparison of one width and sign, an address of the whole register. After every operation, what one part knows is
//! carried over to the others ([`range`] says how).
//!
//! Rules that hold for everything here:
//!
//! - **Sound**: a value that a register can have is a member ([`Range::contains`]) of what is said about it. What the
//!   operations do is what [`crate::interp`] does; the tests compare the two.
//! - A [`Range`] always has bounds in order. Where a comparison or a [`Range::meet`] leaves nothing, the answer is `None`;
//!   values without members that go unnoticed are harmless: that path is only walked without need.
//! - Nothing allocates; a [`Range`] is 64 bytes.
//!
//! [`bits`] has the known bits, [`lane`] one width with its bounds, [`range`] the whole, [`arithmetic`] and [`compare`] what
//! instructions do with it.

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
