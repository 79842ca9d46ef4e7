// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long jumps.
//!
//! An eBPF jump passes over 32,767 instructions at most. A longer one takes islands: jumps placed between two blocks of
//! which the first does not fall through. Unlike the long jump of version 4 of the instruction set (`gotol`), they work
//! on every kernel, and a conditional jump needs no second jump next to it.
//!
//! ```text
//!  before:  if r1 == 7 goto far      after:      if r1 == 7 goto island
//!           ...                                  ...
//!           exit                                 exit
//!                                        island: goto far
//!           ... 40,000 instructions              ...
//!      far: ...                             far: ...
//! ```
//!
//! Limit: a jump stays too long, and the program is rejected, if no block ends within reach or too many long jumps pass
//! over the same code.

use std::collections::HashMap;

use super::asm::{Builder, Label, Op};

/// Longest jump, in instructions.
const MAX_DISTANCE: i64 = i16::MAX as i64;
/// Largest distance to an island, in instructions. The rest is for islands inserted in between.
const STRIDE: i64 = 28_000;
/// Limit on rounds; each may push other jumps out of reach.
const MAX_ROUNDS: usize = 32;
/// Islands may be at most one part in this number of the program: if more jumps pass over the same code, islands only
/// push each other out of reach.
const MAX_ISLANDS: usize = 4;

/// Number of instructions of an operation.
pub(super) fn slots(op: &Op) -> usize {
    match op {
        Op::Label(_) | Op::Line(_) | Op::Forget { .. } => 0,
        Op::Imm64 { .. } | Op::Map { .. } | Op::MapValue { .. } => 2,
        _ => 1,
    }
}

fn target_of(op: &mut Op) -> Option<&mut Label> {
    match op {
        Op::Goto(target) | Op::MayGoto(target) | Op::Jump { target, .. } => Some(target),
        _ => None,
    }
}

/// Inserts islands for every jump that is too long.
pub(super) fn shorten_jumps(ops: &mut Vec<Op>, builder: &mut Builder) {
    let most = ops.len() + 2 * (ops.len() / MAX_ISLANDS);
    for _ in 0..MAX_ROUNDS {
        if ops.len() > most {
            return;
        }
        let mut at = 0_i64;
        let mut places = Vec::with_capacity(ops.len());
        let mut labels = HashMap::new();
        // Possible places of islands: instruction offset, and index of the operation to insert before.
        let mut island_sites: Vec<(i64, usize)> = Vec::new();
        for (i, op) in ops.iter().enumerate() {
            places.push(at);
            if let Op::Label(label) = op {
                labels.insert(*label, at);
            }
            at += slots(op) as i64;
            if matches!(op, Op::Goto(_) | Op::Exit) {
                island_sites.push((at, i + 1));
            }
        }
        let mut islands: HashMap<(usize, Label), Label> = HashMap::new();
        let mut inserted: Vec<(usize, Label, Label)> = Vec::new();
        for (i, op) in ops.iter_mut().enumerate() {
            let Some(target) = target_of(op) else { continue };
            let (here, there) = (places[i] + 1, labels[target]);
            if (there - here).abs() <= MAX_DISTANCE {
                continue;
            }
            // The farthest place within the stride, in the direction of the target.
            let shore = if there > here {
                island_sites[..island_sites.partition_point(|&(at, _)| at <= here + STRIDE)]
                    .last()
                    .filter(|(at, _)| *at > here)
            } else {
                island_sites
                    .get(island_sites.partition_point(|&(at, _)| at < here - STRIDE))
                    .filter(|(at, _)| *at < here)
            };
            let Some(&(_, before)) = shore else { continue };
            let island = *islands.entry((before, *target)).or_insert_with(|| {
                let island = builder.label();
                inserted.push((before, island, *target));
                island
            });
            *target = island;
        }
        if inserted.is_empty() {
            return;
        }
        inserted.sort_by_key(|&(before, ..)| before);
        let mut longer = Vec::with_capacity(ops.len() + 2 * inserted.len());
        let mut waiting = inserted.into_iter().peekable();
        for i in 0..=ops.len() {
            while let Some((_, island, target)) = waiting.next_if(|&(before, ..)| before == i) {
                longer.extend([Op::Label(island), Op::Goto(target)]);
            }
            longer.extend(ops.get(i).copied());
        }
        *ops = longer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asm::{Operand, R0};
    use flowloom_isa::op::Cond;

    fn distances(ops: &[Op]) -> Vec<i64> {
        let mut at = 0;
        let mut labels = HashMap::new();
        for op in ops {
            if let Op::Label(label) = op {
                labels.insert(*label, at);
            }
            at += slots(op) as i64;
        }
        let mut at = 0;
        let mut distances = Vec::new();
        for mut op in ops.iter().copied() {
            at += slots(&op) as i64;
            distances.extend(target_of(&mut op).map(|target| (labels[target] - at).abs()));
        }
        distances
    }

    #[test]
    fn forward_and_backward_jumps_reach_their_target() {
        let mut builder = Builder::new();
        let labels: Vec<Label> = (0..30_000).map(|_| builder.label()).collect();
        let mut ops = Vec::new();
        for (i, &label) in labels.iter().enumerate() {
            let is_far = i % 50 == 0;
            let target = labels[(i + if is_far { labels.len() / 2 } else { 1 }) % labels.len()];
            ops.push(Op::Label(label));
            ops.push(Op::Jump { wide: true, op: Cond::Eq, left: R0, right: Operand::Imm(7), target });
            ops.extend([Op::Imm64 { dst: R0, value: 2 }, Op::Exit]);
        }
        let own = ops.clone();
        assert!(distances(&ops).iter().any(|&d| d > MAX_DISTANCE));
        shorten_jumps(&mut ops, &mut builder);
        assert!(distances(&ops).iter().all(|&d| d <= MAX_DISTANCE));
        // Through the islands, each jump still leads to its original target.
        let mut islands = HashMap::new();
        for pair in ops.windows(2) {
            if let [Op::Label(island), Op::Goto(target)] = pair {
                islands.insert(*island, *target);
            }
        }
        let kept = ops
            .iter()
            .copied()
            .filter(|op| !matches!(op, Op::Goto(_)) && !matches!(op, Op::Label(l) if islands.contains_key(l)));
        let kept: Vec<Op> = kept
            .map(|mut op| {
                if let Some(target) = target_of(&mut op) {
                    while let Some(next) = islands.get(target) {
                        *target = *next;
                    }
                }
                op
            })
            .collect();
        assert_eq!(kept, own);
    }
}
