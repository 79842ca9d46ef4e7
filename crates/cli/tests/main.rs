// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of the crate in one binary, which is compiled and linked once. `live` is another, since its tests start it
//! as their peers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, clippy::print_stdout)]

mod common;
mod public;

mod arrows;
mod book;
mod bpf_plugin;
mod check;
mod coverage;
mod evidence;
mod evidence_axi;
mod evidence_hardware;
mod evidence_live;
mod evidence_measured;
mod evidence_mutants;
mod evidence_public;
mod explain;
mod explain_page;
mod fmt;
mod functions;
mod hardware;
mod judges;
mod large_maps;
mod logs;
mod measured;
mod new;
mod objects;
mod predict;
mod programs;
mod reproduce;
mod results;
mod rewriting_programs;
mod stats;
mod streams;
mod traced;
mod traffic;
mod unsupported;
mod usage;
mod verifier;
mod verifier_cases;
mod verify_objects;
