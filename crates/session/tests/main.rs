// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulated pipelines at full rate against the interpreter, and the instruction suite on engines.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, clippy::print_stdout)]

mod adversarial;
mod copies;
mod cores;
mod cycles;
mod distances;
mod evidence;
mod evidence_overlay;
mod explored;
mod faults;
mod frames;
mod host;
mod instructions;
mod large;
mod overlay;
mod own_traffic;
mod programs;
mod random_programs;
mod rates;
mod redirects;
mod replaced;
mod repository;
mod resets;
mod stream;
mod traffic;
mod verified;
