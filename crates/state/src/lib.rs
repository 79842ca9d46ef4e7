// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keyed state: exact software twins of the hardware tables.
//!
//! - [`Cuckoo`] is the four-choice cuckoo table with a stash: insertion takes one step, and an engine moves entries
//!   from the stash to the table, one write a step. Values stay in stable slots.
//! - [`RowHash`] is the hash unit: one linear hash for each bank.
//! - [`EngineClock`] and [`MapClock`] are the engine and a whole hash map of a pipeline, cycle by cycle.
//! - [`Lpm`] is longest prefix match as a search in a sorted list of address ranges.
//! - [`Recency`] is the order of use of the rows of an LRU table.
//! - [`RandomWalk`] is the usual search for a free place, to compare with.
//! - [`FourLeft`] is 4-left hashing, to compare with.
//! - [`LoadTest`] measures insertions by load, [`FillTest`] the load at the first insertion that finds no place,
//!   [`StashTest`] the occupancy of the stash by arrivals.
//!
//! A twin performs the same operations in the same order as the hardware and holds the same contents after each step.
//! What a step costs in cycles, and when a lookup reads, is the matter of the block that contains the table.
//!
//! ```
//! use flowloom_state::{Cuckoo, Parameters};
//!
//! let mut table = Cuckoo::new(Parameters::for_entries(1000, 4, 8))?;
//! let slot = table.insert(&[10, 0, 0, 1])?;
//! table.value_mut(slot)[0] = 7;
//! while table.stash_len() > 0 {
//!     table.step();
//! }
//! assert_eq!(table.lookup(&[10, 0, 0, 1]), Some(slot));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod cuckoo;
mod error;
mod hash;
mod hash_map;
mod insertion;
mod left;
mod lpm;
mod lru;
mod occupancy;
mod random_walk;

pub use cuckoo::{Cuckoo, EngineClock, Location, Operations, Parameters, Slot, Step};
pub use error::{ParameterError, Refusal};
pub use hash::{RowHash, WAYS};
pub use hash_map::{Change, MapAccess, MapClock, MapParameters};
pub use insertion::{InsertionCost, LoadCosts, LoadTest, Quantiles};
pub use left::{FillTest, FourLeft};
pub use lpm::{Lpm, Prefix};
pub use lru::Recency;
pub use occupancy::{Occupancy, StashTest};
pub use random_walk::RandomWalk;
