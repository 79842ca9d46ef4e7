// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Co-simulation of the blocks in `hdl/` with models in software.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;
mod cuckoo;
mod evidence;
mod faults;
mod fifo;
mod finding;
mod hash;
mod hash_map;
mod lpm;
mod lru;
mod memories;
mod model;
mod ram;
mod replay;
mod slots;
