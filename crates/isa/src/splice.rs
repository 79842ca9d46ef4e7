// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replaces instructions by other code: jumps, calls, callbacks, source lines and unresolved references move along.
//!
//! Goal: the rest of the program keeps its meaning. A jump whose 16 bits no longer reach goes by way of one with 32.
//!
//! ```text
//!   before                          after, where the target is too far away
//!   if r1 == 0 goto +30000          if r1 == 0 goto +1
//!                                   goto +1
//!                                   gotol +40000
//! ```
//!
//! Steps: lay the program out; where jumps do not reach, give them more room, and lay it out again, until all reach.

use crate::insn::{call, class, imm64, jmp};
use crate::{GlobalFunction, Insn, LineInfo, Program, Unresolved};

/// A program whose instructions cannot be replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpliceError {
    /// A jump or call out of the program.
    #[error("instruction {insn} jumps to {target}, the program has {slots} slots")]
    JumpOutside {
        /// The jump.
        insn: usize,
        /// Its target.
        target: i64,
        /// The length of the program.
        slots: usize,
    },
    /// A jump whose distance would be too large.
    #[error("instruction {insn} would have to jump {distance} slots, its offset holds {limit}")]
    JumpTooFar {
        /// The jump, by its index before the replacement.
        insn: usize,
        /// The distance.
        distance: i64,
        /// The greatest distance.
        limit: i64,
    },
}

/// The target of the jump, call or function address at `at`.
///
/// # Errors
/// It leads out of the program.
pub fn jump_target(at: usize, insn: Insn, slots: usize) -> Result<usize, SpliceError> {
    let target = (at as i64).saturating_add(1).saturating_add(distance(insn));
    usize::try_from(target).ok().filter(|t| *t < slots).ok_or(SpliceError::JumpOutside { insn: at, target, slots })
}

/// The distance of a jump, call or function address from the slot after it.
pub fn distance(insn: Insn) -> i64 {
    if far(insn) { i64::from(insn.imm) } else { i64::from(insn.off) }
}

/// Whether the distance is in the 32-bit immediate.
fn far(insn: Insn) -> bool {
    insn.is_wide() || insn.op() == jmp::CALL || insn.code == class::JMP32 | jmp::JA
}

/// Whether the instruction carries a distance.
fn relocatable(insn: Insn) -> bool {
    match insn.class() {
        class::LD => insn.is_wide() && insn.src == imm64::FUNC,
        class::JMP => match insn.op() {
            jmp::EXIT => false,
            jmp::CALL => insn.src == call::LOCAL,
            _ => true,
        },
        class::JMP32 => true,
        _ => false,
    }
}

/// Slots of a jump that goes by way of another.
fn widened_slots(insn: Insn) -> usize {
    if insn.code == class::JMP | jmp::JA { 1 } else { 3 }
}

/// The start of each slot in the new program, and the end.
fn layout(insns: &[Insn], replacements: &[Option<Vec<Insn>>], widened: &[bool]) -> Vec<usize> {
    let mut moved = Vec::with_capacity(insns.len() + 1);
    let mut length = 0;
    for ((insn, replacement), widened) in insns.iter().zip(replacements).zip(widened) {
        moved.push(length);
        let own = if *widened { widened_slots(*insn) } else { 1 };
        length += replacement.as_ref().map_or(own, Vec::len);
    }
    moved.push(length);
    moved
}

/// The program with some of its instructions replaced, by their slots; for each slot of it, the slot of the old program
/// that it stands for.
///
/// # Errors
/// A jump leaves the program, or would have to lead farther than 32 bits say.
pub fn spliced(program: &Program, replacements: Vec<Option<Vec<Insn>>>) -> Result<(Program, Vec<usize>), SpliceError> {
    let insns = &program.insns;
    let mut jumps = Vec::new();
    let mut at = 0;
    while let Some(insn) = insns.get(at) {
        if replacements[at].is_none() && relocatable(*insn) {
            jumps.push((at, jump_target(at, *insn, insns.len())?));
        }
        at += insn.slots();
    }
    let mut widened = vec![false; insns.len()];
    let moved = loop {
        let moved = layout(insns, &replacements, &widened);
        let mut grows = false;
        for &(at, target) in jumps.iter().filter(|(at, _)| !far(insns[*at])) {
            let reaches = i16::try_from(moved[target] as i64 - moved[at] as i64 - 1).is_ok();
            if !reaches && !widened[at] {
                widened[at] = true;
                grows = true;
            }
        }
        if !grows {
            break moved;
        }
    };

    let mut targets = vec![None; insns.len()];
    jumps.into_iter().for_each(|(at, target)| targets[at] = Some(target));
    let mut out = Vec::with_capacity(insns.len());
    let mut origin = Vec::with_capacity(insns.len());
    for (at, replacement) in replacements.into_iter().enumerate() {
        let insn = insns[at];
        match (replacement, targets[at]) {
            (Some(code), _) => out.extend(code),
            (None, Some(target)) => relocated(at, insn, &moved, target, widened[at], &mut out)?,
            (None, None) => out.push(insn),
        }
        origin.resize(out.len(), at);
    }
    let lines =
        program.lines.iter().map(|line| LineInfo { insn: moved[line.insn.min(insns.len())], ..line.clone() }).collect();
    let slot = |at: usize| moved[at.min(insns.len())];
    let unresolved = program
        .unresolved
        .iter()
        .map(|unresolved| Unresolved { insn: slot(unresolved.insn), ..unresolved.clone() })
        .collect();
    let globals = program.globals.iter().map(|global| GlobalFunction { slot: slot(global.slot), ..global.clone() });
    Ok((Program { insns: out, lines, unresolved, globals: globals.collect(), ..program.clone() }, origin))
}

fn relocated(
    at: usize,
    insn: Insn,
    moved: &[usize],
    target: usize,
    widened: bool,
    out: &mut Vec<Insn>,
) -> Result<(), SpliceError> {
    let distance = moved[target] as i64 - moved[at] as i64 - 1;
    let imm = |distance: i64| {
        let limit = i32::MAX.into();
        i32::try_from(distance).map_err(|_| SpliceError::JumpTooFar { insn: at, distance, limit })
    };
    if far(insn) {
        out.push(Insn { imm: imm(distance)?, ..insn });
    } else if widened {
        let slots = widened_slots(insn);
        if slots == 3 {
            out.push(Insn { off: 1, ..insn });
            out.push(Insn { code: class::JMP | jmp::JA, off: 1, ..Insn::default() });
        }
        let imm = imm(distance + 1 - slots as i64)?;
        out.push(Insn { code: class::JMP32 | jmp::JA, imm, ..Insn::default() });
    } else {
        // The layout saw to it that this fits.
        out.push(Insn { off: distance as i16, ..insn });
    }
    Ok(())
}
