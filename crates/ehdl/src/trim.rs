// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dead code elimination, and fusion of instructions.

use std::collections::BTreeSet;

use flowloom_isa::op::{AluOp, Op, Operand, Reg, Width};

use super::access::{Access, Region};
use super::graph::{Block, Step};

const STACK_BYTES: i64 = flowloom_isa::limits::STACK_BYTES as i64;

/// A register or a byte of the stack.
type Byte = (Region, i64);

/// The registers and stack bytes of an access.
fn bytes(access: &Access) -> impl Iterator<Item = Byte> + '_ {
    let kept = matches!(access.region, Region::Register { .. } | Region::Stack { .. });
    let (first, end) = if kept { access.bytes.unwrap_or((-STACK_BYTES, 0)) } else { (0, 0) };
    (first..end).map(|at| (access.region, at))
}

/// True if a step has an effect besides its writes to registers and stack.
fn has_effect(step: &Step) -> bool {
    matches!(step.op, Op::Branch { .. } | Op::Exit | Op::Call { .. } | Op::Atomic { .. })
        || step.accesses.iter().any(|access| access.writes && bytes(access).next().is_none())
}

/// Removes dead instructions: operands of removed bounds checks, and results of failed checks. Returns the instructions
/// of which no iteration is left.
pub(super) fn trim(blocks: &mut [Block]) -> BTreeSet<usize> {
    let mut dropped = BTreeSet::new();
    let mut live_in: Vec<BTreeSet<Byte>> = vec![BTreeSet::new(); blocks.len()];
    for number in (0..blocks.len()).rev() {
        let mut live: BTreeSet<Byte> = BTreeSet::new();
        blocks[number].successors.iter().for_each(|next| live.extend(&live_in[*next]));
        let mut kept = Vec::new();
        for step in std::mem::take(&mut blocks[number].steps).into_iter().rev() {
            let is_read = |access: &Access| bytes(access).any(|byte| live.contains(&byte));
            if !has_effect(&step) && !step.accesses.iter().any(|access| access.writes && is_read(access)) {
                dropped.insert(step.insn);
                continue;
            }
            // A write to unknown bytes may leave each byte as it was, and kills none.
            for access in step.accesses.iter().filter(|access| access.writes && access.bytes.is_some()) {
                bytes(access).for_each(|byte| {
                    live.remove(&byte);
                });
            }
            live.extend(step.accesses.iter().filter(|access| !access.writes).flat_map(bytes));
            kept.push(step);
        }
        kept.reverse();
        blocks[number].steps = kept;
        live_in[number] = live;
    }
    let left: BTreeSet<usize> = blocks.iter().flat_map(|block| &block.steps).map(|step| step.insn).collect();
    dropped.retain(|insn| !left.contains(insn));
    dropped
}

fn touches(step: &Step, region: Region) -> bool {
    step.accesses.iter().any(|access| access.region == region)
}

/// Fuses `r2 = r10; r2 += -4` into `r2 = r10 + -4`: one instruction with three operands [eHDL 3.2].
pub(super) fn fuse(blocks: &mut [Block]) {
    for block in blocks {
        let mut at = 0;
        while at < block.steps.len() {
            match partner(&block.steps, at) {
                Some(other) => {
                    let mov = block.steps.remove(at);
                    let step = &mut block.steps[other - 1];
                    let target = mov.accesses.iter().find(|access| access.writes).map(|access| access.region);
                    // The operation reads the source of the `mov` instead of its target.
                    step.accesses.retain(|access| access.writes || Some(access.region) != target);
                    step.accesses.extend(mov.accesses.into_iter().filter(|access| !access.writes));
                    step.fused = Some(mov.insn);
                }
                None => at += 1,
            }
        }
    }
}

/// The operation that the `mov` at this place can be fused with.
fn partner(steps: &[Step], at: usize) -> Option<usize> {
    let Op::Alu { op: AluOp::Mov, width, dst, src } = steps[at].op else { return None };
    let target = steps[at].accesses.iter().find(|access| access.writes)?.region;
    let source = steps[at].accesses.iter().find(|access| !access.writes).map(|access| access.region);
    let other = at + 1 + steps[at + 1..].iter().position(|step| touches(step, target))?;
    let is_free = |source| !steps[at..other].iter().any(|step| writes(step, source));
    let is_whole = |other: Width| width == Width::W64 || other == Width::W32;
    let takes = match steps[other].op {
        Op::Alu { op: AluOp::Mov, .. } => false,
        // Three operands have room for one immediate.
        Op::Alu { width, dst: to, src: by, .. } => {
            to == dst && by != Operand::Reg(dst) && is_whole(width) && !(is_imm(src) && is_imm(by))
        }
        Op::Neg { width, dst: to } => to == dst && is_whole(width),
        Op::End { dst: to, .. } => to == dst && width == Width::W64,
        _ => false,
    };
    (takes && steps[other].fused.is_none() && source.is_none_or(is_free)).then_some(other)
}

fn is_imm(operand: Operand) -> bool {
    matches!(operand, Operand::Imm(_))
}

fn writes(step: &Step, region: Region) -> bool {
    step.accesses.iter().any(|access| access.writes && access.region == region)
}

/// The text of a step, with three operands if it is fused.
pub(super) fn text(step: &Step, mov: Option<Op>, maps: &[flowloom_isa::MapDef]) -> String {
    let plain = |op| flowloom_isa::disasm::Text { op, maps }.to_string();
    let Some(Op::Alu { src, .. }) = mov else { return plain(step.op) };
    let source = |width| match src {
        Operand::Reg(reg) => name(width, reg),
        Operand::Imm(imm) => imm.to_string(),
    };
    match step.op {
        Op::Alu { width, op, dst, src: by } => {
            let by = match by {
                Operand::Reg(reg) => name(width, reg),
                Operand::Imm(imm) => imm.to_string(),
            };
            format!("{} = {} {} {by}", name(width, dst), source(width), op.symbol().trim_end_matches('='))
        }
        Op::Neg { width, dst } => format!("{} = -{}", name(width, dst), source(width)),
        // The operand follows the name of the operation.
        op => {
            plain(op).rsplit_once(' ').map_or_else(|| plain(op), |(head, _)| format!("{head} {}", source(Width::W64)))
        }
    }
}

fn name(width: Width, reg: Reg) -> String {
    let letter = if width == Width::W64 { 'r' } else { 'w' };
    format!("{letter}{}", reg.number())
}
