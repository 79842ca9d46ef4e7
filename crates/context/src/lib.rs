// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Context tables: the layout of their records, the aging of records, and the locks by which CPUs exclude each other.
//!
//! Lowering writes a layout beside each table, objects carry it, the interpreter and sweepers age records by it, and
//! `map dump` names the fields of records.
//!
//! `efsm/src/context.rs` defines when a context expires; [`ContextLayout::age`] does the same to the bytes of a record.
#![forbid(unsafe_code)]

mod layout;
pub mod locks;

pub use layout::{Aged, ContextLayout, LayoutField, NO_DEADLINE, StateSuccessor, Succession};
