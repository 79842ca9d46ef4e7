// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keyed state on a CPU: exact hash tables with stable slots, which overlap the cache misses of a batch of packets.
//!
//! ```text
//!  key ──hash──► home bucket: a cache line of 15 words, tag and slot ──► slot: key and value, side by side
//!                │ wave 1: probe_ahead                                  │ wave 2: prefetch_entry
//!                │                                                      │ wave 3: prefetch_rest
//!                └──────────────── lookup: compares word and key ───────┘
//! ```
//!
//! - A [`FlowTable`] holds exactly as many entries as it was made for, whatever their keys.
//! - An entry does not move while it lives, so the address of a value stays valid: it is a function of the slot. Slots
//!   are reused as the kernel's allocators on one CPU reuse elements: the slot freed last is the first to be reused.
//! - A [`Probe`] is a hint: results never depend on it, so a batch may probe keys that earlier packets of the batch
//!   insert or delete.
//! - [`FlowTable::visit_ahead`] runs the waves of many keys so that they alternate, which is the fastest way.
//! - Memory is mapped once, at its full size, and becomes resident as slots are used. Large tables ask for huge pages.
//! - [`FlowTable::sweep`] visits entries in the order of memory, a number of slots at a time.
//! - [`FlowTable::least`] finds the entry with the least number in a field of the values, which other code may change.
//! - [`RawTable`] is the table as compiled code sees it: base addresses, masks and the seed of the hash.
//!
//! # Cost
//! A lookup reads two cache lines where the entry does not straddle lines: 5.3 bytes of index for each entry of the
//! capacity, and the entry. Entries of 24, 48 and 56 bytes take 32 and 64, so that they do not. A bit for each slot says
//! whether it is used. The stack of free slots has 4 bytes for each, the list of last uses 16; they become resident as
//! slots are freed and used.

mod ahead;
mod compiled;
mod error;
mod hash;
mod index;
mod least;
mod live;
mod memory;
mod prefetch;
mod raw;
mod recency;
mod scan;
mod slots;
mod sweep;
mod table;

pub use ahead::{prefetch_entries, prefetch_homes};
pub use compiled::{Announcement, HintedLookupFn, LookupFn, ProbedLookupFn, WordLookupFn, prefetch_ahead};
pub use error::TableError;
pub use hash::hashed_pairs;
pub use least::Field;
pub use prefetch::{prefetch, prefetch_to_write};
pub use raw::{Bucket, Probe, RawTable};
pub use table::{Allocation, FlowTable, Layout, Slot};
