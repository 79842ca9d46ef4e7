// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the twins.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod cuckoo;
mod evidence;
mod new_flows;
mod stash;
