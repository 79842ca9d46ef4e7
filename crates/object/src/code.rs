// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of a program: their boundaries, and that only calls lead from one into another.

use std::ops::Range;

use flowloom_isa::insn::{Insn, call, class, imm64, jmp};

/// Why a program cannot be split into functions. All places are slots.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message says what each field is")]
pub enum CodeError {
    /// No instructions.
    #[error("there are no instructions")]
    Empty,
    /// More than the kernel verifies.
    #[error("{found} slots, at most {limit} are possible")]
    TooLong { found: usize, limit: usize },
    /// A register number that does not fit into four bits.
    #[error("instruction {at}: register {found}, the format has room for 0 to 15")]
    Register { at: usize, found: u8 },
    /// The first half of a 64-bit immediate load at the end.
    #[error("instruction {at}: the second half of the 64-bit load is missing")]
    HalfLoad { at: usize },
    /// A jump to another function or into the middle of an instruction.
    #[error("instruction {at}: jump to {target}, which is outside of its function (slots {start} to {end})")]
    Jump { at: usize, target: i64, start: usize, end: usize },
    /// A call of a place that is not the start of a function.
    #[error("instruction {at}: call of {target}, expected the start of a function in slots 1 to {last}")]
    Call { at: usize, target: i64, last: usize },
    /// A function without caller.
    #[error("function at slot {at} is never called")]
    Unreached { at: usize },
    /// A function that falls through into the next.
    #[error("instruction {at}: the function ends here, without exit or jump")]
    RunsOn { at: usize },
}

/// The target of a local call, or of the load of a function's address.
pub(super) fn callee(insn: Insn, at: usize) -> Option<i64> {
    let is_call = insn.code == class::JMP | jmp::CALL && insn.src == call::LOCAL;
    let is_address = insn.is_wide() && insn.src == imm64::FUNC;
    (is_call || is_address).then(|| at as i64 + 1 + i64::from(insn.imm))
}

pub(super) fn jump_target(insn: Insn, at: usize) -> Option<i64> {
    let distance = match (insn.class(), insn.op()) {
        (class::JMP | class::JMP32, jmp::CALL | jmp::EXIT | 0xf0) => return None,
        (class::JMP32, jmp::JA) => i64::from(insn.imm),
        (class::JMP | class::JMP32, _) => i64::from(insn.off),
        _ => return None,
    };
    Some(at as i64 + 1 + distance)
}

/// The instructions of `insns` with their slots, 64-bit loads once.
pub(super) fn instructions(insns: &[Insn]) -> impl Iterator<Item = (usize, Insn)> + '_ {
    let mut next = 0;
    std::iter::from_fn(move || {
        let at = next;
        let insn = *insns.get(at)?;
        next = at + insn.slots();
        Some((at, insn))
    })
}

/// Splits a program into functions: the first is the entry, the others are its callees in their order.
///
/// # Errors
/// The first error, see [`CodeError`].
pub(super) fn split(insns: &[Insn]) -> Result<Vec<Range<usize>>, CodeError> {
    let len = insns.len();
    if len == 0 {
        return Err(CodeError::Empty);
    }
    if len > super::MAX_SLOTS {
        return Err(CodeError::TooLong { found: len, limit: super::MAX_SLOTS });
    }
    if let Some((at, insn)) = insns.iter().enumerate().find(|(_, i)| i.dst > 15 || i.src > 15) {
        return Err(CodeError::Register { at, found: insn.dst.max(insn.src) });
    }
    let mut first = vec![false; len];
    for (at, insn) in instructions(insns) {
        first[at] = true;
        if insn.is_wide() && at + 1 >= len {
            return Err(CodeError::HalfLoad { at });
        }
    }
    let mut starts = vec![false; len];
    starts[0] = true;
    for (at, insn) in instructions(insns) {
        let Some(target) = callee(insn, at) else { continue };
        let index = usize::try_from(target).ok().filter(|t| *t > 0 && first.get(*t) == Some(&true));
        let index = index.ok_or(CodeError::Call { at, target, last: len - 1 })?;
        starts[index] = true;
    }
    let starts: Vec<usize> = (0..len).filter(|i| starts[*i]).collect();
    let ends = starts[1..].iter().copied().chain([len]);
    let functions: Vec<Range<usize>> = starts.iter().zip(ends).map(|(start, end)| *start..end).collect();
    check_borders(insns, &functions, &first)?;
    check_reached(insns, &functions)?;
    Ok(functions)
}

/// Checks that every jump stays in its function, and that no function falls through into the next.
fn check_borders(insns: &[Insn], functions: &[Range<usize>], first: &[bool]) -> Result<(), CodeError> {
    for (number, function) in functions.iter().enumerate() {
        let mut last = (function.start, insns[function.start]);
        for (at, insn) in instructions(&insns[function.clone()]) {
            let at = at + function.start;
            last = (at, insn);
            let Some(target) = jump_target(insn, at) else { continue };
            let inside = usize::try_from(target).is_ok_and(|t| function.contains(&t) && first[t]);
            if !inside {
                return Err(CodeError::Jump { at, target, start: function.start, end: function.end - 1 });
            }
        }
        let (at, insn) = last;
        let ends = matches!((insn.class(), insn.op()), (class::JMP, jmp::EXIT) | (class::JMP | class::JMP32, jmp::JA));
        if !ends && number + 1 < functions.len() {
            return Err(CodeError::RunsOn { at });
        }
    }
    Ok(())
}

/// Checks that every function is reachable: others would be lost in an object.
fn check_reached(insns: &[Insn], functions: &[Range<usize>]) -> Result<(), CodeError> {
    let number_of = |slot: usize| functions.partition_point(|f| f.start <= slot) - 1;
    let mut reached = vec![false; functions.len()];
    reached[0] = true;
    let mut todo = vec![0];
    while let Some(number) = todo.pop() {
        let function = &functions[number];
        for (at, insn) in instructions(&insns[function.clone()]) {
            let Some(target) = callee(insn, at + function.start).and_then(|t| usize::try_from(t).ok()) else {
                continue;
            };
            let next = number_of(target);
            if !reached[next] {
                reached[next] = true;
                todo.push(next);
            }
        }
    }
    match reached.iter().position(|r| !r) {
        Some(number) => Err(CodeError::Unreached { at: functions[number].start }),
        None => Ok(()),
    }
}
