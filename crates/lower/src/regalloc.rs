// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Register allocation and final layout: virtual code to instructions.
//!
//! Goal: the fewest instructions on every path; copies and spills are the only ones this pass adds or removes.
//!
//! ```text
//!  before:  v12 = v11          after:  (nothing: v11 and v12 share r6)
//!           v12 += 14                  r6 += 14
//!           call 1                     call 1        (r6 survives, r1-r5 would not)
//!           use v12                    use r6
//! ```
//!
//! Steps: thread jumps and remove unreachable code; remove dead pure instructions; build the interference graph from
//! liveness; coalesce copies conservatively (Briggs' and George's tests); colour optimistically with ten registers
//! (r0-r9); spill uncoloured registers to stack slots and repeat. Finally copies between equal registers are removed,
//! and labels become distances.
//!
//! Holds before: every use is reached by a definition on all feasible paths. Holds after: only physical registers, a
//! frame of at most 512 bytes.
//!
//! Limits: a spilled register is in memory on its whole live range; a reload serves uses up to the next call or label.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flowloom_isa::op as machine;
use flowloom_isa::{Insn, LineInfo};

use super::asm::{AluOp, Builder, FIRST_VIRTUAL, FP, Label, Op, Operand, R1, Reg, Size, access_size, inverse};
use super::error::LowerError;
use super::liveness::for_each_live;
use super::place::SourceLine;
use super::{place, reach};
use flowloom_efsm::model::{Lines, Source, Span};

/// Number of allocatable registers: r0 to r9.
const COLOURS: usize = 10;
/// Number of spill rounds in which a reload may serve several uses.
const MAX_ROUNDS_THAT_KEEP: usize = 2;
/// Size of the kernel's stack frame, in bytes.
pub(crate) const STACK_BYTES: u32 = flowloom_isa::limits::STACK_BYTES as u32;

/// Turns virtual code into instructions with their source lines.
pub(crate) fn finish(mut builder: Builder, source: &Source) -> Result<(Vec<Insn>, Vec<LineInfo>), LowerError> {
    let before = builder.stack_bytes;
    let mut ops = std::mem::take(&mut builder.ops);
    remove_unreachable(&mut ops);
    simplify_jumps(&mut ops);
    remove_dead(&mut ops, &builder);
    simplify_jumps(&mut ops);
    let mut spills = Spills::default();
    loop {
        match colour(&ops, &builder, &spills) {
            Ok(colours) => {
                for op in &mut ops {
                    op.map_registers(|r| if r == FP { r } else { Reg(colours[r.0 as usize]) });
                }
                ops.retain(|op| !matches!(op, Op::Copy { dst, src } if dst == src) && !matches!(op, Op::Forget { .. }));
                simplify_jumps(&mut ops);
                let is_long = ops.iter().map(reach::slots).sum::<usize>() > i16::MAX as usize;
                lay_out(&mut ops, is_long);
                simplify_jumps(&mut ops);
                reach::shorten_jumps(&mut ops, &mut builder);
                return encode(&ops, source);
            }
            Err(spilled) => {
                ops = spill(ops, &spilled, &mut spills, &mut builder);
                if builder.stack_bytes > STACK_BYTES {
                    let at = SourceLine::of(source, place::of_most_values(&ops, before));
                    return Err(LowerError::Stack { found: builder.stack_bytes, limit: STACK_BYTES, at });
                }
            }
        }
    }
}

/// Moves blocks without a fall-through predecessor to the first jump to them, which removes the jump. In a long
/// program, the targets of conditional jumps are also placed depth first, after the block that jumps, so that few jumps
/// are far.
fn lay_out(ops: &mut Vec<Op>, is_long: bool) {
    struct Block {
        ops: std::ops::Range<usize>,
        line: Option<Op>,
        /// The previous block falls through into this one.
        has_fall_through: bool,
    }
    let mut blocks: Vec<Block> = Vec::new();
    let mut of_label = HashMap::new();
    let (mut start, mut line, mut line_at_start, mut has_fall_through) = (0, None, None, true);
    let mut close = |ops: std::ops::Range<usize>, line: Option<Op>, has_fall_through: bool| {
        if !ops.is_empty() {
            blocks.push(Block { ops, line, has_fall_through });
        }
    };
    for (i, op) in ops.iter().enumerate() {
        match op {
            Op::Label(_) => {
                let has_code = ops[start..i].iter().any(|op| !matches!(op, Op::Label(_) | Op::Line(_)));
                if has_code {
                    close(start..i, line_at_start, has_fall_through);
                    (start, line_at_start, has_fall_through) = (i, line, true);
                }
            }
            Op::Line(_) => line = Some(*op),
            Op::Goto(_) | Op::Exit => {
                close(start..i + 1, line_at_start, has_fall_through);
                (start, line_at_start, has_fall_through) = (i + 1, line, false);
            }
            _ => {}
        }
    }
    close(start..ops.len(), line_at_start, has_fall_through);
    for (b, block) in blocks.iter().enumerate() {
        for op in &ops[block.ops.clone()] {
            match op {
                Op::Label(label) => drop(of_label.insert(*label, b)),
                Op::Line(_) => {}
                _ => break,
            }
        }
    }
    let mut placed = vec![false; blocks.len()];
    let mut out = Vec::with_capacity(ops.len());
    let mut waiting: Vec<usize> = (0..blocks.len()).rev().collect();
    while let Some(first) = waiting.pop() {
        let mut next = Some(first);
        while let Some(b) = next.filter(|&b| !placed[b]) {
            placed[b] = true;
            out.extend(blocks[b].line);
            let block = &ops[blocks[b].ops.clone()];
            out.extend_from_slice(block);
            for op in block.iter().filter(|_| is_long) {
                if let Op::Jump { target, .. } | Op::MayGoto(target) = op
                    && let Some(&to) = of_label.get(target)
                {
                    // Blocks connected by fall-through stay together.
                    let first = (0..=to).rev().find(|&b| !blocks[b].has_fall_through).unwrap_or(0);
                    waiting.extend((!placed[first]).then_some(first));
                }
            }
            next = match ops[blocks[b].ops.end - 1] {
                Op::Goto(target) => of_label.get(&target).copied().filter(|&to| !blocks[to].has_fall_through),
                Op::Exit => None,
                _ => Some(b + 1).filter(|&b| b < blocks.len()),
            };
        }
    }
    *ops = out;
}

/// Removes unreachable code, cycles included.
fn remove_unreachable(ops: &mut Vec<Op>) {
    let mut position = HashMap::new();
    for (i, op) in ops.iter().enumerate() {
        if let Op::Label(label) = op {
            position.insert(*label, i);
        }
    }
    let mut reached = vec![false; ops.len()];
    let mut todo = vec![0];
    while let Some(mut at) = todo.pop() {
        while at < ops.len() && !reached[at] {
            reached[at] = true;
            match ops[at] {
                Op::Exit => break,
                Op::Goto(target) => at = position[&target],
                Op::Jump { target, .. } | Op::MayGoto(target) => {
                    todo.push(position[&target]);
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }
    let mut i = 0;
    ops.retain(|op| {
        i += 1;
        reached[i - 1] || matches!(op, Op::Label(_) | Op::Line(_))
    });
}

/// Threads jumps; removes unreachable code and jumps to the next instruction.
fn simplify_jumps(ops: &mut Vec<Op>) {
    loop {
        let before = ops.len();
        let mut position = HashMap::new();
        for (i, op) in ops.iter().enumerate() {
            if let Op::Label(label) = op {
                position.insert(*label, i);
            }
        }
        let first_real = |mut i: usize| {
            while matches!(ops.get(i), Some(Op::Label(_) | Op::Line(_))) {
                i += 1;
            }
            i
        };
        let thread = |mut label: Label| {
            for _ in 0..ops.len() {
                match ops.get(first_real(position[&label])) {
                    Some(Op::Goto(next)) if *next != label => label = *next,
                    _ => break,
                }
            }
            label
        };
        let mut threaded = ops.clone();
        for op in &mut threaded {
            match op {
                Op::Goto(target) | Op::MayGoto(target) | Op::Jump { target, .. } => *target = thread(*target),
                _ => {}
            }
        }
        // `if c goto A; goto B; A:` is `if !c goto B; A:`.
        for i in 0..threaded.len() {
            if let Op::Jump { wide, op, left, right, target } = threaded[i]
                && let Some(Op::Goto(other)) = threaded.get(i + 1).copied()
                && let Some(op) = inverse(op)
                && first_real(i + 2) == first_real(position[&target])
            {
                threaded[i] = Op::Jump { wide, op, left, right, target: other };
                threaded[i + 1] = Op::Goto(target);
            }
        }
        let used: BTreeSet<Label> = threaded
            .iter()
            .filter_map(|op| match op {
                Op::Goto(target) | Op::MayGoto(target) | Op::Jump { target, .. } => Some(*target),
                _ => None,
            })
            .collect();
        let mut kept = Vec::with_capacity(threaded.len());
        let mut reachable = true;
        let mut pending_line = None;
        for (i, op) in threaded.iter().enumerate() {
            match op {
                Op::Label(label) if !used.contains(label) => continue,
                Op::Label(_) => reachable = true,
                Op::Line(_) if !reachable => {
                    pending_line = Some(*op);
                    continue;
                }
                _ if !reachable => continue,
                Op::Goto(target) | Op::Jump { target, .. } if first_real(i + 1) == first_real(position[target]) => {
                    continue;
                }
                Op::Goto(_) | Op::Exit => reachable = false,
                _ => {}
            }
            kept.push(*op);
            if let (Op::Label(_), Some(line)) = (op, pending_line.take()) {
                kept.push(line);
            }
        }
        *ops = kept;
        if ops.len() == before {
            return;
        }
    }
}

fn remove_dead(ops: &mut Vec<Op>, builder: &Builder) {
    loop {
        let mut dead = vec![false; ops.len()];
        for_each_live(ops, builder.reg_count() as usize, |i, op, live| {
            dead[i] = op.is_pure() && op.def().is_some_and(|d| !live.contains(d));
        });
        let before = ops.len();
        let mut i = 0;
        ops.retain(|_| {
            i += 1;
            !dead[i - 1]
        });
        if ops.len() == before {
            return;
        }
    }
}

/// The interference graph with coalesced nodes.
struct Graph {
    neighbours: Vec<BTreeSet<usize>>,
    alias: Vec<usize>,
    present: Vec<bool>,
}

impl Graph {
    fn find(&self, mut r: usize) -> usize {
        while self.alias[r] != r {
            r = self.alias[r];
        }
        r
    }

    fn add_edge(&mut self, a: usize, b: usize) {
        if a != b {
            self.neighbours[a].insert(b);
            self.neighbours[b].insert(a);
        }
    }

    fn degree(&self, r: usize) -> usize {
        if r < COLOURS { usize::MAX } else { self.neighbours[r].len() }
    }

    /// True if merging `a` and `b` keeps the graph as colourable as before.
    fn can_merge(&self, a: usize, b: usize) -> bool {
        if a < COLOURS {
            // George: each neighbour of b already interferes with a or is of insignificant degree.
            self.neighbours[b]
                .iter()
                .all(|&n| n < COLOURS || self.degree(n) < COLOURS || self.neighbours[a].contains(&n))
        } else {
            // Briggs: fewer than COLOURS neighbours of significant degree.
            let others = self.neighbours[b].iter().filter(|n| !self.neighbours[a].contains(n));
            let union = self.neighbours[a].iter().chain(others);
            union.filter(|&&n| self.degree(n) >= COLOURS).take(COLOURS).count() < COLOURS
        }
    }

    fn merge(&mut self, a: usize, b: usize) {
        self.alias[b] = a;
        self.present[b] = false;
        for n in std::mem::take(&mut self.neighbours[b]) {
            self.neighbours[n].remove(&b);
            self.add_edge(a, n);
        }
    }
}

/// A register to spill.
struct Spilled {
    reg: Reg,
    /// Registers of a group do not interfere or hold the same value: they share a slot.
    group: usize,
}

/// A physical register for every register, or the registers to spill.
fn colour(ops: &[Op], builder: &Builder, spills: &Spills) -> Result<Vec<u32>, Vec<Spilled>> {
    let regs = builder.reg_count() as usize;
    let mut graph =
        Graph { neighbours: vec![BTreeSet::new(); regs], alias: (0..regs).collect(), present: vec![false; regs] };
    let mut cost = vec![0u32; regs];
    let mut copies = Vec::new();
    for_each_live(ops, regs, |_, op, live| {
        if let Op::Call { .. } = op {
            for r in 0..6 {
                for l in live.iter().map(|l| l.0 as usize).filter(|&l| l >= 6 && l != FP.0 as usize) {
                    graph.add_edge(r, l);
                }
            }
        }
        if let Some(def) = op.def() {
            let except = match op {
                Op::Copy { src, .. } => Some(src.0 as usize),
                _ => None,
            };
            for l in live.iter().map(|l| l.0 as usize).filter(|&l| Some(l) != except && l != FP.0 as usize) {
                graph.add_edge(def.0 as usize, l);
            }
            cost[def.0 as usize] += 1;
            graph.present[def.0 as usize] = true;
        }
        op.uses(|r| {
            cost[r.0 as usize] += 1;
            graph.present[r.0 as usize] = true;
        });
        if let Op::Copy { dst, src } = op
            && *src != FP
        {
            copies.push((dst.0 as usize, src.0 as usize));
        }
    });
    // Registers made by spilling have short live ranges: spilling them again would not help.
    for reg in &spills.short {
        cost[reg.0 as usize] = u32::MAX;
    }
    for a in 0..COLOURS {
        for b in 0..a {
            graph.add_edge(a, b);
        }
    }
    for r in &builder.never_context {
        for context in std::iter::once(&R1).chain(&builder.contexts) {
            graph.add_edge(context.0 as usize, r.0 as usize);
        }
    }
    copies.reverse();
    loop {
        let mut merged = false;
        for &(dst, src) in &copies {
            let (mut a, mut b) = (graph.find(dst), graph.find(src));
            if b < a {
                std::mem::swap(&mut a, &mut b);
            }
            if a != b && b >= FIRST_VIRTUAL as usize && !graph.neighbours[a].contains(&b) && graph.can_merge(a, b) {
                graph.merge(a, b);
                cost[a] = cost[a].saturating_add(cost[b]);
                merged = true;
            }
        }
        if !merged {
            break;
        }
    }

    // Simplify: remove nodes of insignificant degree, otherwise the one with the least cost per edge, optimistically.
    let mut degrees: Vec<usize> = graph.neighbours.iter().map(BTreeSet::len).collect();
    let mut left: BTreeSet<usize> = (FIRST_VIRTUAL as usize..regs).filter(|&r| graph.present[r]).collect();
    let mut stack = Vec::with_capacity(left.len());
    let mut easy_ones: BTreeSet<usize> = left.iter().copied().filter(|&r| degrees[r] < COLOURS).collect();
    while !left.is_empty() {
        let easy = easy_ones.pop_first();
        let cheapest = || left.iter().copied().min_by_key(|&r| (u64::from(cost[r]) << 20) / degrees[r].max(1) as u64);
        let Some(r) = easy.or_else(cheapest) else { break };
        left.remove(&r);
        stack.push(r);
        for &n in &graph.neighbours[r] {
            degrees[n] -= 1;
            if degrees[n] == COLOURS - 1 && left.contains(&n) {
                easy_ones.insert(n);
            }
        }
    }
    // Copy partners of each register, in the order of the copies.
    let mut partners: HashMap<usize, Vec<usize>> = HashMap::new();
    for &(dst, src) in &copies {
        let (dst, src) = (graph.find(dst), graph.find(src));
        if dst != src {
            partners.entry(dst).or_default().push(src);
            partners.entry(src).or_default().push(dst);
        }
    }
    let mut colours: Vec<Option<u32>> = (0..regs).map(|r| (r < COLOURS).then_some(r as u32)).collect();
    let mut failed = Vec::new();
    while let Some(r) = stack.pop() {
        let taken: Vec<u32> = graph.neighbours[r].iter().filter_map(|&n| colours[n]).collect();
        let hint = partners
            .get(&r)
            .and_then(|partners| partners.iter().find_map(|&other| colours[other].filter(|c| !taken.contains(c))));
        colours[r] = hint.or_else(|| (0..COLOURS as u32).find(|c| !taken.contains(c)));
        if colours[r].is_none() {
            failed.push(r);
        }
    }
    if !failed.is_empty() {
        let mut groups: BTreeMap<usize, usize> = BTreeMap::new();
        for reg in failed {
            let taken: BTreeSet<usize> = graph.neighbours[reg].iter().filter_map(|n| groups.get(n).copied()).collect();
            let group = (0..).find(|g| !taken.contains(g)).unwrap_or(taken.len());
            groups.insert(reg, group);
        }
        let spilled = (0..regs).filter_map(|r| {
            let group = *groups.get(&graph.find(r))?;
            Some(Spilled { reg: Reg(r as u32), group })
        });
        return Err(spilled.collect());
    }
    Ok((0..regs).map(|r| colours[graph.find(r)].unwrap_or(0)).collect())
}

#[derive(Default)]
struct Spills {
    rounds: usize,
    /// Slot of each register that is loaded from one, and stored to it after each definition.
    slots: HashMap<Reg, i16>,
    /// Registers with a single use.
    short: Vec<Reg>,
}

/// Assigns each group of spilled registers a slot: a store after each definition and a load before a use. In the first
/// rounds the reload also serves later uses, up to the next call or label. Such a register may be spilled in turn, and
/// is then loaded for each use.
fn spill(ops: Vec<Op>, spilled: &[Spilled], spills: &mut Spills, builder: &mut Builder) -> Vec<Op> {
    spills.rounds += 1;
    let keeps = spills.rounds <= MAX_ROUNDS_THAT_KEEP;
    let mut group_slots: BTreeMap<usize, i16> = BTreeMap::new();
    let mut slots: HashMap<Reg, i16> = HashMap::new();
    for s in spilled {
        let slot = match spills.slots.get(&s.reg) {
            Some(&slot) => slot,
            None => *group_slots.entry(s.group).or_insert_with(|| builder.stack(8)),
        };
        slots.insert(s.reg, slot);
    }
    let mut out = Vec::with_capacity(ops.len() * 2);
    // Registers that hold the value of a slot.
    let mut kept: HashMap<i16, Reg> = HashMap::new();
    for mut op in ops {
        match op {
            Op::Forget { reg } if slots.contains_key(&reg) => continue,
            // The value is already in the slot, or comes from it.
            Op::Load { size: Size::Dw, dst: reg, base: FP, offset }
            | Op::Store { size: Size::Dw, base: FP, offset, src: Operand::Reg(reg) }
                if slots.get(&reg) == Some(&offset) =>
            {
                continue;
            }
            Op::Label(_) | Op::Call { .. } => kept.clear(),
            _ => {}
        }
        // A constant is stored as an immediate.
        if let Op::Alu { wide, op: AluOp::Mov, dst, src: Operand::Imm(imm) } = op
            && let Some(&offset) = slots.get(&dst)
            && (wide || imm >= 0)
        {
            kept.remove(&offset);
            out.push(Op::Store { size: Size::Dw, base: FP, offset, src: Operand::Imm(imm) });
            continue;
        }
        let mut fresh: HashMap<Reg, Reg> = HashMap::new();
        let mut loads = Vec::new();
        op.uses(|r| {
            if let Some(&slot) = slots.get(&r)
                && !loads.iter().any(|&(l, _)| l == r)
            {
                loads.push((r, slot));
            }
        });
        for &(r, slot) in &loads {
            let temporary = kept.get(&slot).copied().unwrap_or_else(|| {
                let temporary = builder.reg();
                if builder.contexts.contains(&r) {
                    builder.contexts.push(temporary);
                }
                match keeps && !spills.slots.contains_key(&r) {
                    true => drop((kept.insert(slot, temporary), spills.slots.insert(temporary, slot))),
                    false => spills.short.push(temporary),
                }
                out.push(Op::Load { size: Size::Dw, dst: temporary, base: FP, offset: slot });
                temporary
            });
            fresh.insert(r, temporary);
        }
        let store = op.def().and_then(|def| slots.get(&def).map(|&slot| (def, slot)));
        if let Some((def, slot)) = store {
            let temporary = *fresh.entry(def).or_insert_with(|| {
                let temporary = builder.reg();
                if builder.contexts.contains(&def) {
                    builder.contexts.push(temporary);
                }
                match keeps && !spills.slots.contains_key(&def) {
                    true => drop(spills.slots.insert(temporary, slot)),
                    false => spills.short.push(temporary),
                }
                temporary
            });
            match spills.slots.contains_key(&temporary) {
                true => kept.insert(slot, temporary),
                false => kept.remove(&slot),
            };
        }
        op.map_registers(|r| fresh.get(&r).copied().unwrap_or(r));
        out.push(op);
        if let Some((def, slot)) = store {
            out.push(Op::Store { size: Size::Dw, base: FP, offset: slot, src: Operand::Reg(fresh[&def]) });
        }
    }
    out
}

/// The machine's register, after allocation.
fn physical(reg: Reg) -> machine::Reg {
    let number = u8::try_from(reg.0).ok().and_then(machine::Reg::new);
    number.unwrap_or_else(|| unreachable!("{reg:?} has no machine register"))
}

fn source_operand(operand: Operand) -> machine::Operand {
    match operand {
        Operand::Reg(reg) => machine::Operand::Reg(physical(reg)),
        Operand::Imm(imm) => machine::Operand::Imm(imm),
    }
}

fn atomic(op: machine::AtomicOp, size: Size, base: Reg, off: i16, src: Reg) -> machine::Op {
    machine::Op::Atomic { op, size, base: physical(base), off, src: physical(src) }
}

/// Replaces labels by distances and encodes operations.
fn encode(ops: &[Op], source: &Source) -> Result<(Vec<Insn>, Vec<LineInfo>), LowerError> {
    let mut places = HashMap::new();
    let mut at = 0usize;
    for op in ops {
        if let Op::Label(label) = op {
            places.insert(*label, at);
        }
        at += reach::slots(op);
    }
    let mut insns: Vec<Insn> = Vec::with_capacity(at);
    let mut lines: Vec<LineInfo> = Vec::new();
    let mut span: Option<Span> = None;
    let source_lines = Lines::of(source);
    for op in ops {
        let here = insns.len();
        let distance = |target: &Label| {
            let distance = places[target] as i64 - here as i64 - 1;
            i16::try_from(distance).map_err(|_| {
                let at_most = SourceLine::of(source, place::of_most_instructions(ops));
                LowerError::TooFar { found: at, limit: i16::MAX as usize, at: at_most }
            })
        };
        let width = |wide| if wide { machine::Width::W64 } else { machine::Width::W32 };
        let op = match *op {
            Op::Label(_) | Op::Forget { .. } => continue,
            Op::Line(s) => {
                span = Some(s);
                continue;
            }
            Op::Copy { dst, src } => {
                let src = machine::Operand::Reg(physical(src));
                machine::Op::Alu { width: width(true), op: AluOp::Mov, dst: physical(dst), src }
            }
            Op::Alu { wide, op, dst, src } => {
                machine::Op::Alu { width: width(wide), op, dst: physical(dst), src: source_operand(src) }
            }
            Op::FromBe { dst, bits } => {
                let size = access_size(bits as u32 / 8);
                machine::Op::End { op: machine::EndOp::Be, size, dst: physical(dst) }
            }
            Op::Imm64 { dst, value } => machine::Op::LoadImm { dst: physical(dst), value },
            Op::Map { dst, map } => machine::Op::LoadMap { dst: physical(dst), map: map as i32 },
            Op::MapValue { dst, map, offset } => {
                machine::Op::LoadMapValue { dst: physical(dst), map: map as i32, off: offset }
            }
            Op::Load { size, dst, base, offset } => {
                machine::Op::Load { size, signed: false, dst: physical(dst), base: physical(base), off: offset }
            }
            Op::Store { size, base, offset, src } => {
                machine::Op::Store { size, base: physical(base), off: offset, src: source_operand(src) }
            }
            Op::AtomicAdd { size, base, offset, src } => {
                atomic(machine::AtomicOp::Add { fetch: false }, size, base, offset, src)
            }
            Op::CompareExchange { base, offset, src } => {
                atomic(machine::AtomicOp::CmpXchg, Size::Dw, base, offset, src)
            }
            Op::Exchange { base, offset, src } => atomic(machine::AtomicOp::Xchg, Size::Dw, base, offset, src),
            Op::Jump { wide, op, left, right, target } => {
                let (dst, src) = (physical(left), source_operand(right));
                machine::Op::Branch { width: width(wide), cond: op, dst, src, off: distance(&target)? }
            }
            Op::Goto(target) => machine::Op::Jump { off: distance(&target)? },
            Op::MayGoto(target) => machine::Op::MayGoto { off: distance(&target)? },
            Op::Call { helper, .. } => machine::Op::Call { helper },
            Op::Exit => machine::Op::Exit,
        };
        op.encode(&mut insns);
        if let Some(span) = span {
            let (line, column, text) = source_lines.locate(span.start);
            if lines.last().is_none_or(|last| (last.line, last.column) != (line, column)) {
                lines.push(LineInfo {
                    insn: here,
                    file: source.name.clone(),
                    text: place::excerpt(text, column as usize - 1),
                    line,
                    column,
                });
            }
        }
    }
    Ok((insns, lines))
}

#[cfg(test)]
mod tests;
