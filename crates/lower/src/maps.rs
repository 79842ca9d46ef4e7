// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Definitions of maps, and flags of map updates.

use flowloom_isa::{MapDef, MapKind};

use flowloom_efsm::layout;
use flowloom_efsm::model::{Function, Stateful};

pub(super) const BPF_ANY: i32 = 0;
pub(super) const BPF_NOEXIST: i32 = 1;
pub(super) const BPF_EXIST: i32 = 2;

pub(super) fn plain_map(
    name: &str,
    kind: MapKind,
    key_bytes: u32,
    value_bytes: u32,
    max_entries: u32,
    flags: u32,
) -> MapDef {
    MapDef { name: name.to_owned(), kind, key_bytes, value_bytes, max_entries, flags, ..MapDef::default() }
}

pub(super) fn key_bytes(function: &Function, stateful: &Stateful) -> u32 {
    layout::key_spec(function, stateful).map_or(layout::SINGLE_KEY_BYTES, |spec| spec.key_bytes()) as u32
}
