//! Scenarios: packets in and out in words, with times, ports, parameters and what is left behind.
//!
//! ```text
//!  text ─► Suite ─► Script (for one function) ─► play on the machine ─► Played
//!                                              └► play on an engine, beside the machine's
//! ```
//!
//! A file is read in two steps, since its packets may have headers, and its expectations elements, that only the function
//! knows; maps and their types, where it is a program. Everything is in `docs/book/src/scenarios.md`.
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
