// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of the crate in one binary, which is compiled and linked once.

mod common;
mod dataflow_corpus;
mod judges;
mod models;
mod must_fail;
mod scoreboard;
mod twin;

mod agree;
mod compare;
mod dataflow;
mod evidence;
mod evidence_dataflow;
mod evidence_functions;
mod evidence_models;
mod evidence_must_fail;
mod evidence_plans;
mod evidence_ratio;
mod evidence_scoreboard;
mod evidence_steps;
mod explore;
mod faults;
mod judged;
mod lowered_in_kernel;
mod nat;
mod plans;
mod policer;
mod probes;
mod steps;
mod stimulus;
mod twins;
mod victims;
