// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenarios: input packets and expected outcomes as text, with times, ports, parameters and final state.
//!
//! ```text
//!  text ─► Suite ─► Script (for one function) ─► play on the machine ─► Played
//!                                              └► play on an engine, compared with the machine
//! ```
//!
//! A file is read in two steps, since only the function defines its own headers and elements, and only the program its
//! maps and their types. The language is described in `docs/book/src/scenarios.md`.
#![forbid(unsafe_code)]

mod cursor;
mod error;
mod lex;
mod packet;
mod play;
mod reports;
mod script;
mod state;
mod suite;
mod table;

pub use error::{ScenarioError, ScenarioErrors};
pub use play::{Mismatch, Played, play};
pub use script::Script;
pub use suite::{Scenario, Suite};
pub use table::Tables;
