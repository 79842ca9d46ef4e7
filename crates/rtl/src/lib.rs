// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans of hardware pipelines as SystemVerilog.
//!
//! ```text
//!  Plan ──needs──► the stages in which each value is used ──render──► the core: a module with one section a stage
//! ```
//!
//! The **core** holds the program: the operations of each stage, pipeline registers, and the maps. A packet enters with
//! its first word, its length and its port, and leaves `stages` cycles later as a verdict and the bytes that change.
//! Its later words follow in the cycles after the first; the part before the core provides that they have no gaps, and
//! that bytes after the end of the packet are 0. The core never stalls.
//!
//! ```text
//!             cycle  0        1        2        3
//!   word_i           A word 0 A word 1 B word 0 C word 0      A has two words
//!   stage 0          A        -        B        C
//!   stage 1                   A        -        B             reads word 1 of A as it arrives
//! ```
//!
//! What has no rendering yet is an [`RtlError`] that names it; nothing is left out silently.
#![forbid(unsafe_code)]

mod bench;
pub mod control;
mod core;
mod document;
mod entry;
mod error;
mod header;
mod map;
mod may;
mod needs;
mod node;
mod patch;
mod port;
pub mod registers;
mod replay;
mod scheduler;
mod sends;
mod shell;
mod slice;
mod top;

pub use crate::core::{Core, Rendering};
pub use crate::port::{Access, MapPort};
pub use bench::{Change, Expiring, Facts, Group, Vector};
pub use entry::{Entry, EntryField, Order};
pub use error::RtlError;
pub use may::May;
pub use patch::{Edits, Span};
pub use sends::Sends;
pub use shell::{MapBlock, Shell};
pub use top::{BODY_WORDS, File, MAX_WORDS, Pipeline};
