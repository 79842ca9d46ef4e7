// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Liveness of registers over virtual code.
//!
//! Most registers of a large program are local to one basic block. Only registers that some block reads before it
//! writes them can be live across blocks. The dataflow equations are solved for these alone, as bit vectors; within a
//! block the live registers are a sparse set [Briggs, Torczon 1993].

use std::collections::HashMap;

use super::asm::{FIRST_VIRTUAL, Op, Reg};

/// A sparse set of registers with constant-time updates.
#[derive(Debug)]
pub(super) struct LiveSet {
    members: Vec<Reg>,
    /// For each member, its index in `members`.
    place: Vec<usize>,
}

impl LiveSet {
    fn new(regs: usize) -> LiveSet {
        LiveSet { members: Vec::new(), place: vec![0; regs] }
    }

    pub(super) fn contains(&self, reg: Reg) -> bool {
        self.members.get(self.place[reg.0 as usize]) == Some(&reg)
    }

    /// The members, unordered.
    pub(super) fn iter(&self) -> impl Iterator<Item = Reg> + '_ {
        self.members.iter().copied()
    }

    fn insert(&mut self, reg: Reg) {
        if !self.contains(reg) {
            self.place[reg.0 as usize] = self.members.len();
            self.members.push(reg);
        }
    }

    fn remove(&mut self, reg: Reg) {
        if self.contains(reg) {
            let at = self.place[reg.0 as usize];
            self.members.swap_remove(at);
            if let Some(moved) = self.members.get(at) {
                self.place[moved.0 as usize] = at;
            }
        }
    }

    /// Transfer function: from live-out to live-in of `op`.
    fn step(&mut self, op: &Op) {
        if let Op::Call { .. } = op {
            (0..6).for_each(|r| self.remove(Reg(r)));
        }
        if let Some(def) = op.def() {
            self.remove(def);
        }
        op.uses(|r| self.insert(r));
    }
}

/// Basic blocks.
struct Blocks {
    ranges: Vec<std::ops::Range<usize>>,
    successors: Vec<Vec<usize>>,
}

impl Blocks {
    fn of(ops: &[Op]) -> Blocks {
        let mut starts = vec![0];
        for (i, op) in ops.iter().enumerate() {
            match op {
                Op::Label(_) if i != 0 => starts.push(i),
                Op::Jump { .. } | Op::Goto(_) | Op::MayGoto(_) | Op::Exit => starts.push(i + 1),
                _ => {}
            }
        }
        starts.push(ops.len());
        starts.sort_unstable();
        starts.dedup();
        let ranges: Vec<_> = starts.windows(2).filter(|w| w[0] < w[1]).map(|w| w[0]..w[1]).collect();
        let mut block_of = HashMap::new();
        for (b, range) in ranges.iter().enumerate() {
            for op in &ops[range.clone()] {
                match op {
                    Op::Label(label) => {
                        block_of.insert(*label, b);
                    }
                    Op::Line(_) => {}
                    _ => break,
                }
            }
        }
        let successors = ranges
            .iter()
            .enumerate()
            .map(|(b, range)| match &ops[range.end - 1] {
                Op::Goto(target) => vec![block_of[target]],
                Op::Jump { target, .. } | Op::MayGoto(target) => vec![block_of[target], b + 1],
                Op::Exit => Vec::new(),
                _ => vec![b + 1],
            })
            .map(|next| next.into_iter().filter(|&n| n < ranges.len()).collect())
            .collect();
        Blocks { ranges, successors }
    }
}

/// Registers that some block reads before it writes them, and the physical registers.
fn registers_across_blocks(ops: &[Op], blocks: &Blocks, regs: usize) -> Vec<Reg> {
    let mut is_across: Vec<bool> = (0..regs).map(|r| r < FIRST_VIRTUAL as usize).collect();
    let mut written_in = vec![usize::MAX; regs];
    for (b, range) in blocks.ranges.iter().enumerate() {
        for op in &ops[range.clone()] {
            op.uses(|r| is_across[r.0 as usize] |= written_in[r.0 as usize] != b);
            if let Some(def) = op.def() {
                written_in[def.0 as usize] = b;
            }
        }
    }
    (0..regs as u32).map(Reg).filter(|r| is_across[r.0 as usize]).collect()
}

/// Liveness: for each instruction, calls `visit(index, op, live_after)` in reverse order.
pub(super) fn for_each_live(ops: &[Op], regs: usize, mut visit: impl FnMut(usize, &Op, &LiveSet)) {
    let blocks = Blocks::of(ops);
    let count = blocks.ranges.len();
    let across = registers_across_blocks(ops, &blocks, regs);
    let mut bit_of = vec![usize::MAX; regs];
    for (bit, reg) in across.iter().enumerate() {
        bit_of[reg.0 as usize] = bit;
    }
    let words = across.len().div_ceil(64);
    // live_in = reads | live_out & keeps
    let mut reads = vec![0_u64; count * words];
    let mut keeps = vec![u64::MAX; count * words];
    for (b, range) in blocks.ranges.iter().enumerate() {
        let (reads, keeps) = (&mut reads[b * words..][..words], &mut keeps[b * words..][..words]);
        let mut write = |reads: &mut [u64], reg: Reg| {
            if let (bit, true) = (bit_of[reg.0 as usize], bit_of[reg.0 as usize] != usize::MAX) {
                reads[bit / 64] &= !(1 << (bit % 64));
                keeps[bit / 64] &= !(1 << (bit % 64));
            }
        };
        for op in ops[range.clone()].iter().rev() {
            if let Op::Call { .. } = op {
                (0..6).for_each(|r| write(reads, Reg(r)));
            }
            if let Some(def) = op.def() {
                write(reads, def);
            }
            op.uses(|r| {
                if let (bit, true) = (bit_of[r.0 as usize], bit_of[r.0 as usize] != usize::MAX) {
                    reads[bit / 64] |= 1 << (bit % 64);
                }
            });
        }
    }
    let mut predecessors = vec![Vec::new(); count];
    for (b, next) in blocks.successors.iter().enumerate() {
        next.iter().for_each(|&n| predecessors[n].push(b));
    }
    let mut live_in = reads.clone();
    let live_out = |b: usize, live_in: &[u64], out: &mut [u64]| {
        out.fill(0);
        for &next in &blocks.successors[b] {
            out.iter_mut().zip(&live_in[next * words..][..words]).for_each(|(out, live)| *out |= live);
        }
    };
    let mut out = vec![0; words];
    let mut todo: Vec<usize> = (0..count).collect();
    let mut is_waiting = vec![true; count];
    while let Some(b) = todo.pop() {
        is_waiting[b] = false;
        live_out(b, &live_in, &mut out);
        let mut has_changed = false;
        for w in 0..words {
            let live = reads[b * words + w] | out[w] & keeps[b * words + w];
            has_changed |= live != live_in[b * words + w];
            live_in[b * words + w] = live;
        }
        if has_changed {
            for &p in &predecessors[b] {
                if !std::mem::replace(&mut is_waiting[p], true) {
                    todo.push(p);
                }
            }
        }
    }
    let mut live = LiveSet::new(regs);
    for b in (0..count).rev() {
        live_out(b, &live_in, &mut out);
        live.members.clear();
        for (w, &word) in out.iter().enumerate() {
            let mut word = word;
            while word != 0 {
                live.insert(across[w * 64 + word.trailing_zeros() as usize]);
                word &= word - 1;
            }
        }
        for i in blocks.ranges[b].clone().rev() {
            visit(i, &ops[i], &live);
            live.step(&ops[i]);
        }
    }
}
