// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machine code in batches beside machine code packet by packet and the interpreter.
#![allow(clippy::panic, reason = "tests")]

mod batches;
mod bounds;
mod counted;
mod engines;
mod evictions;
mod lookups;
mod random;
mod redirects;
