// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Co-simulation of the blocks in `hdl/overlay` with what they do in software.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;
mod evidence;
mod faults;
mod packets;
mod parse;
mod rewrite;
mod vector;
