// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The places of the locks of tables.
//!
//! A program that replaces another one on the same tables has to lock their contexts by the same cells: on other CPUs,
//! packets of the old program may hold them. The new program has cells of its own, at other offsets perhaps, so its
//! instructions are changed to use the old ones.
//!
//! ```text
//!   before                                  after
//!   r6 = .data.fl_locks[16384] ll           r6 = fl_locks0[0] ll        if the table is taken over
//!   r7 = .data.fl_locks[0] ll               r7 = .data.fl_locks[0] ll   if it is a new one
//! ```
//!
//! Holds before and after: an instruction names the first cell of a table, not one inside.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_context::locks::{LOCKS_MAP, Locks};
use flowloom_isa::insn::imm64;
use flowloom_isa::{MapDef, Program};

use crate::sys::RawMap;

/// The locks of a table in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LockPlace {
    /// The number of the map of cells.
    pub(super) map: usize,
    /// The cells.
    pub(super) locks: Locks,
}

impl LockPlace {
    /// The locks of table number `map` in a program as it was lowered, if packets lock its contexts.
    pub(super) fn of(program: &Program, map: usize) -> Option<LockPlace> {
        let locks = program.maps.get(map)?.layout.as_ref()?.locks?;
        Some(LockPlace { map: program.map_index(LOCKS_MAP)?, locks })
    }
}

/// The locks of a table of a running program.
#[derive(Debug, Clone)]
pub(super) struct HeldLocks {
    pub(super) map: Arc<RawMap>,
    pub(super) def: MapDef,
    pub(super) locks: Locks,
}

/// A program whose tables keep the locks of the running program.
#[derive(Debug)]
pub(super) struct Relocated {
    pub(super) program: Program,
    /// The further maps of the program, by their numbers: maps of cells that are taken over.
    pub(super) taken: BTreeMap<usize, Arc<RawMap>>,
    /// The locks of its tables, by number.
    pub(super) places: BTreeMap<usize, LockPlace>,
    /// The tables that packets of both programs lock, but not by the same cells.
    pub(super) differing: Vec<String>,
}

/// The program, where the tables in `kept`, by number, keep these locks of tables of the old program, by number there.
///
/// Packets lock tables in the order of their numbers, which excludes deadlocks. Of tables whose orders differ between the
/// programs, only those keep their locks that have the same order in both.
pub(super) fn relocated(program: &Program, kept: &BTreeMap<usize, (usize, &HeldLocks)>) -> Relocated {
    let mut program = program.clone();
    let places = (0..program.maps.len()).filter_map(|map| Some((map, LockPlace::of(&program, map)?)));
    let mut places: BTreeMap<usize, LockPlace> = places.collect();
    let mut taken: BTreeMap<usize, Arc<RawMap>> = BTreeMap::new();
    let mut differing = Vec::new();
    // Places by number of map and offset, and what becomes of them.
    let mut moved: BTreeMap<(i32, i32), (i32, i32)> = BTreeMap::new();
    let mut last_old = None;
    for (table, (old, held)) in kept {
        let Some(place) = places.get_mut(table) else { continue };
        if held.locks.cells != place.locks.cells || last_old.is_some_and(|last| *old < last) {
            differing.push(program.maps[*table].name.clone());
            continue;
        }
        last_old = Some(*old);
        let known = taken.iter().find(|(_, map)| Arc::ptr_eq(map, &held.map)).map(|(number, _)| *number);
        let map = known.unwrap_or_else(|| {
            let number = program.maps.len();
            // Not a data section: its contents are not those that the program begins with.
            let name = format!("fl_locks{}", taken.len());
            program.maps.push(MapDef { name, initial: None, ..held.def.clone() });
            taken.insert(number, Arc::clone(&held.map));
            number
        });
        let before = (place.map as i32, place.locks.offset_bytes as i32);
        moved.insert(before, (map as i32, held.locks.offset_bytes as i32));
        *place = LockPlace { map, locks: held.locks };
    }
    let mut at = 0;
    while at < program.insns.len() {
        let slots = program.insns[at].slots();
        if let [first, second, ..] = &mut program.insns[at..]
            && first.is_wide()
            && first.src == imm64::MAP_VALUE
            && let Some(new) = moved.get(&(first.imm, second.imm))
        {
            (first.imm, second.imm) = *new;
        }
        at += slots;
    }
    Relocated { program, taken, places, differing }
}
