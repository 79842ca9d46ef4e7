// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unreached instructions, and the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use flowloom_isa::op::{Op, Reg};
use flowloom_isa::{MapDef, MapKind, Program};
use flowloom_verifier::{Lookup, Options, verify};
use flowloom_vm::Trail;

/// A range of consecutive instructions that no case reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// First slot.
    pub first: usize,
    /// Last slot.
    pub last: usize,
    /// Source location of the first slot: file, line and its text.
    pub line: Option<(String, u32, String)>,
    /// Reason why they were not reached.
    pub why: GapReason,
}

/// Reason why instructions were not reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GapReason {
    /// They have no predecessor: no jump, call or fall-through leads there.
    Unreachable,
    /// Their predecessors were not reached either; that gap begins at this slot.
    After(usize),
    /// A lookup in an array with a key below its size: the verifier demands the check, which never fails.
    ArrayLookup(String),
    /// A lookup in an array whose key is never below its size: it always fails.
    OutsideArray {
        /// The map.
        map: String,
        /// The key.
        key: u64,
        /// Number of entries of the map.
        entries: u32,
        /// Source location of the lookup.
        line: Option<(String, u32, String)>,
    },
    /// A jump always took the same edge.
    Jump {
        /// The jump.
        insn: usize,
        /// The last operands that it compared.
        operands: (u64, u64),
        /// True if it was always taken.
        taken: bool,
        /// Source location of the jump.
        line: Option<(String, u32, String)>,
    },
}

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GapReason::Unreachable => f.write_str("unreachable"),
            GapReason::After(slot) => write!(f, "after unreached instruction {slot}"),
            GapReason::ArrayLookup(map) => write!(f, "a lookup in array `{map}` does not fail"),
            GapReason::OutsideArray { map, key, entries, line } => {
                write!(f, "the lookup in array `{map}` always fails: key {key}, {entries} entries")?;
                place(f, line.as_ref())
            }
            GapReason::Jump { insn, operands: (left, right), taken, line } => {
                let outcome = if *taken { "is always taken" } else { "is never taken" };
                write!(f, "the branch at {insn} {outcome}, last operands {left:#x} and {right:#x}")?;
                place(f, line.as_ref())
            }
        }
    }
}

/// ` (line 7: `text`)`.
fn place(f: &mut fmt::Formatter<'_>, line: Option<&(String, u32, String)>) -> fmt::Result {
    match line {
        Some((_, number, text)) if text.trim().is_empty() => write!(f, " (line {number})"),
        Some((_, number, text)) => write!(f, " (line {number}: `{}`)", text.trim()),
        None => Ok(()),
    }
}

/// Jumps and lookup keys observed in the cases.
#[derive(Debug, Default)]
pub(super) struct Observations {
    jumps: BTreeMap<usize, ((u64, u64), BTreeSet<bool>)>,
    /// The common key of all lookups in a map, by the map's index; `None` where keys differ.
    keys: BTreeMap<usize, Option<Vec<u8>>>,
}

impl Observations {
    pub(super) fn add(&mut self, trail: &Trail) {
        for branch in &trail.branches {
            let (operands, outcomes) = self.jumps.entry(branch.insn).or_default();
            *operands = branch.operands;
            outcomes.insert(branch.taken);
        }
        for lookup in &trail.lookups {
            let key = self.keys.entry(lookup.map).or_insert_with(|| Some(lookup.key.clone()));
            if key.as_ref().is_some_and(|key| *key != lookup.key) {
                *key = None;
            }
        }
    }

    /// The common key of all lookups in an array, where it is out of bounds.
    fn outside(&self, program: &Program, map: &MapDef) -> Option<u64> {
        let key = self.keys.get(&program.map_index(&map.name)?)?.as_deref()?;
        let key = u64::from(u32::from_le_bytes(key.try_into().ok()?));
        (key >= map.max_entries.into()).then_some(key)
    }
}

/// Unreached slots, merged into consecutive ranges, each with its reason.
pub(super) fn gaps(program: &Program, reached: &[bool], observations: &Observations) -> Vec<Gap> {
    let predecessors = predecessors(program);
    let line = |slot: usize| program.line_of(slot).map(|line| (line.file.clone(), line.line, line.text.clone()));
    let mut gaps: Vec<Gap> = Vec::new();
    let mut proof = None;
    let mut slot = 0;
    while slot < reached.len() {
        if reached[slot] {
            slot += 1;
            continue;
        }
        let first = slot;
        let mut why = GapReason::Unreachable;
        if let Some(sources) = predecessors.get(&first) {
            let jump = sources.iter().find(|&&from| reached[from]);
            why = match jump {
                Some(&insn) => match observations.jumps.get(&insn) {
                    Some((operands, outcomes)) => {
                        let taken = outcomes.contains(&true);
                        match checked_array(program, insn) {
                            // Null in every run: either the verifier has proved the key, or it happened to be constant.
                            Some((call, map)) if operands.0 == 0 => {
                                let proof = proof.get_or_insert_with(|| verify(program, &Options::default()).ok());
                                let lookup = proof.as_ref().and_then(|proof| Some(proof.insns.get(call)?.lookup));
                                let proved = match lookup {
                                    Some(Lookup::Outside(key)) => Some(key),
                                    _ => None,
                                };
                                match proved.or_else(|| observations.outside(program, map)) {
                                    Some(key) => GapReason::OutsideArray {
                                        map: map.name.clone(),
                                        key,
                                        entries: map.max_entries,
                                        line: line(call),
                                    },
                                    _ => GapReason::Jump { insn, operands: *operands, taken, line: line(insn) },
                                }
                            }
                            Some((_, map)) => GapReason::ArrayLookup(map.name.clone()),
                            None => GapReason::Jump { insn, operands: *operands, taken, line: line(insn) },
                        }
                    }
                    None => GapReason::After(insn),
                },
                None => sources.first().map_or(GapReason::Unreachable, |&from| GapReason::After(from)),
            };
        }
        slot += 1;
        // A range continues while no reached instruction leads into it and some instruction does.
        let continues_gap = |slot: usize| match predecessors.get(&slot) {
            Some(sources) => !sources.iter().any(|&from| reached[from]),
            None => program.insns[slot - 1].is_wide(),
        };
        while slot < reached.len() && !reached[slot] && continues_gap(slot) {
            slot += 1;
        }
        gaps.push(Gap { first, last: slot - 1, line: line(first), why });
    }
    gaps
}

fn predecessors(program: &Program) -> BTreeMap<usize, Vec<usize>> {
    let mut predecessors: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut at = 0;
    while let Some(insn) = program.insns.get(at) {
        let after = at + insn.slots();
        let mut add = |to: i64| {
            if let Ok(to) = usize::try_from(to) {
                predecessors.entry(to).or_default().push(at);
            }
        };
        let to = |distance: i64| at as i64 + 1 + distance;
        match Op::decode(&program.insns, at) {
            Ok(Op::Jump { off }) => add(to(off.into())),
            Ok(Op::JumpLong { distance }) => add(to(distance.into())),
            Ok(Op::Branch { off, .. } | Op::MayGoto { off }) => {
                add(after as i64);
                add(to(off.into()));
            }
            Ok(Op::CallLocal { distance } | Op::LoadFunc { distance, .. }) => {
                add(after as i64);
                add(to(distance.into()));
            }
            Ok(Op::Exit) => {}
            _ => add(after as i64),
        }
        at = after;
    }
    predecessors
}

/// The call and the array of the lookup whose result the jump at `insn` checks, if any.
fn checked_array(program: &Program, insn: usize) -> Option<(usize, &MapDef)> {
    let Ok(Op::Branch { dst, .. }) = Op::decode(&program.insns, insn) else { return None };
    if dst != Reg::R0 {
        return None;
    }
    // Scan backwards to the call, and from there to the load of its map.
    let mut at = insn;
    let mut lookup = None;
    for _ in 0..24 {
        at = at.checked_sub(1)?;
        match Op::decode(&program.insns, at) {
            Ok(Op::Call { helper: flowloom_isa::insn::helper::MAP_LOOKUP_ELEM }) if lookup.is_none() => {
                lookup = Some(at)
            }
            Ok(Op::Call { .. } | Op::Exit) => return None,
            Ok(Op::LoadMap { map, dst: Reg::R1 }) if lookup.is_some() => {
                let def = program.maps.get(usize::try_from(map).ok()?)?;
                let is_array = matches!(def.kind, MapKind::Array | MapKind::PerCpuArray);
                return lookup.filter(|_| is_array).map(|call| (call, def));
            }
            _ => {}
        }
    }
    None
}
