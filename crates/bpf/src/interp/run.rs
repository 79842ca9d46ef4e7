//! The loop that runs instructions.

use super::alu;
use super::calls::{Helper, Run};
use super::check::Code;
use super::fault::Fault;
use super::memory::{MAX_FRAMES, frame_pointer, function_address, map_address, value_address};
use super::trail::Branch;
use crate::op::{AluOp, AtomicOp, Op, Operand, Reg, Size, Width};

/// Checked code, ready to run.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) code: Code,
    /// The length of each map's values, for addresses inside them.
    pub(super) value_bytes: Vec<u32>,
}

/// What a run did, besides its effects.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) executed: u64,
    pub(super) calls: u64,
}

/// The registers that a function finds again after a call.
struct Caller {
    /// Where it goes on.
    at: usize,
    saved: [u64; 4],
    /// Which of them were readable.
    readable: u16,
}

/// `r6` to `r9`.
const SAVED: u16 = 0b11_1100_0000;
/// `r1` to `r5`, which calls spoil.
const SPOILT: u16 = 0b11_1110;
const FP: usize = 10;
/// So many `may_goto` go on, then they jump, as in the kernel.
const MOST_ROUNDS: u32 = 8 << 20;

struct Registers {
    values: [u64; 16],
    /// A bit for each register that has been written.
    readable: u16,
    /// How often `may_goto` has gone on.
    rounds: u32,
}

impl Registers {
    #[inline]
    fn get(&self, reg: Reg) -> Result<u64, Fault> {
        if self.readable >> reg.number() & 1 == 0 {
            return Err(Fault::Register(reg));
        }
        Ok(self.values[usize::from(reg.number() & 15)])
    }

    #[inline]
    fn set(&mut self, reg: Reg, value: u64) {
        self.values[usize::from(reg.number() & 15)] = value;
        self.readable |= 1 << reg.number();
    }

    #[inline]
    fn operand(&self, src: Operand) -> Result<u64, Fault> {
        match src {
            Operand::Reg(reg) => self.get(reg),
            Operand::Imm(imm) => Ok(imm as u64),
        }
    }
}

fn target(at: usize, distance: i64) -> usize {
    (at as i64 + 1 + distance) as usize
}

/// Runs the program from its first instruction to its last `exit` and gives `r0`; a fault comes with its instruction.
///
/// `arguments` are what `r1` and the registers after it begin with; `visit` is told every instruction before it runs.
pub(super) fn run(
    image: &Image,
    run: &mut Run<'_>,
    arguments: &[u64],
    helpers: &[(i32, Helper)],
    budget: u64,
    counters: &mut Counters,
    mut visit: impl FnMut(usize),
) -> Result<u64, (usize, Fault)> {
    let mut regs = Registers { values: [0; 16], readable: 0, rounds: 0 };
    for (number, &argument) in (1..=5).filter_map(Reg::new).zip(arguments) {
        regs.set(number, argument);
    }
    regs.set(Reg::FP, frame_pointer(0));
    let mut callers: Vec<Caller> = Vec::new();
    let mut at = 0;
    let mut executed = 0;
    let result = loop {
        let Some(Some(op)) = image.code.get(at) else { break Err(Fault::Unchecked) };
        if executed == budget {
            break Err(Fault::Budget { limit: budget });
        }
        executed += 1;
        visit(at);
        match step(image, run, helpers, &mut regs, &mut callers, at, *op, &mut counters.calls) {
            Ok(Next::At(next)) => at = next,
            Ok(Next::End(r0)) => break Ok(r0),
            Err(fault) => break Err(fault),
        }
    };
    counters.executed += executed;
    result.map_err(|fault| (at, fault))
}

enum Next {
    At(usize),
    End(u64),
}

#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the state of the loop, in registers where the compiler sees fit")]
fn step(
    image: &Image,
    run: &mut Run<'_>,
    helpers: &[(i32, Helper)],
    regs: &mut Registers,
    callers: &mut Vec<Caller>,
    at: usize,
    op: Op,
    calls: &mut u64,
) -> Result<Next, Fault> {
    match op {
        Op::Alu { width, op: AluOp::Mov, dst, src } => {
            let value = regs.operand(src)?;
            regs.set(dst, if width == Width::W64 { value } else { value as u32 as u64 });
        }
        Op::Alu { width: Width::W64, op, dst, src } => {
            let value = alu::alu64(op, regs.get(dst)?, regs.operand(src)?);
            regs.set(dst, value);
        }
        Op::Alu { width: Width::W32, op, dst, src } => {
            let value = alu::alu32(op, regs.get(dst)? as u32, regs.operand(src)? as u32);
            regs.set(dst, value.into());
        }
        Op::MovSx { width, from, dst, src } => {
            let value = alu::sign_extend(from, regs.get(src)?);
            regs.set(dst, if width == Width::W64 { value } else { value as u32 as u64 });
        }
        Op::Neg { width, dst } => {
            let value = regs.get(dst)?.wrapping_neg();
            regs.set(dst, if width == Width::W64 { value } else { value as u32 as u64 });
        }
        Op::End { op, size, dst } => {
            let value = alu::byte_order(op, size, regs.get(dst)?);
            regs.set(dst, value);
        }
        Op::Load { size, signed, dst, base, off } => {
            let address = regs.get(base)?.wrapping_add(off as u64);
            let value = match signed {
                false => run.memory.load(address, size)?,
                true => alu::sign_extend(size, run.memory.load_signed(address, size)?),
            };
            regs.set(dst, value);
        }
        Op::Store { size, base, off, src } => {
            let value = regs.operand(src)?;
            run.memory.store(regs.get(base)?.wrapping_add(off as u64), size, value)?;
        }
        Op::Atomic { op, size, base, off, src } => atomic(run, regs, op, size, base, off, src)?,
        Op::LoadImm { dst, value } => {
            regs.set(dst, value);
            return Ok(Next::At(at + 2));
        }
        Op::LoadMap { dst, map } => {
            regs.set(dst, map_address(map as usize));
            return Ok(Next::At(at + 2));
        }
        Op::LoadMapValue { dst, map, off } => {
            let size = image.value_bytes.get(map as usize).ok_or(Fault::Unchecked)?;
            regs.set(dst, value_address(map as usize, *size, 0, off));
            return Ok(Next::At(at + 2));
        }
        Op::LoadFunc { dst, distance } => {
            regs.set(dst, function_address(target(at, distance.into())));
            return Ok(Next::At(at + 2));
        }
        Op::Jump { off } => return Ok(Next::At(target(at, off.into()))),
        Op::JumpLong { distance } => return Ok(Next::At(target(at, distance.into()))),
        Op::Branch { width, cond, dst, src, off } => {
            let (a, b) = (regs.get(dst)?, regs.operand(src)?);
            let (holds, operands) = match width {
                Width::W64 => (alu::holds64(cond, a, b), (a, b)),
                Width::W32 => (alu::holds32(cond, a as u32, b as u32), (a as u32 as u64, b as u32 as u64)),
            };
            if let Some(trail) = &mut run.trail {
                trail.branch(Branch { insn: at, operands, taken: holds });
            }
            if holds {
                return Ok(Next::At(target(at, off.into())));
            }
        }
        Op::MayGoto { off } => {
            if regs.rounds == MOST_ROUNDS {
                return Ok(Next::At(target(at, off.into())));
            }
            regs.rounds += 1;
        }
        Op::Call { helper } => {
            *calls += 1;
            call(run, regs, helpers, helper)?;
        }
        Op::CallLocal { distance } => {
            if callers.len() + 1 >= MAX_FRAMES {
                return Err(Fault::Depth { limit: MAX_FRAMES });
            }
            let mut saved = [0; 4];
            saved.copy_from_slice(&regs.values[6..FP]);
            callers.push(Caller { at: at + 1, saved, readable: regs.readable & SAVED });
            // A function finds its arguments and its own stack, and nothing else.
            regs.readable &= SPOILT;
            run.memory.enter(callers.len());
            regs.set(Reg::FP, frame_pointer(callers.len()));
            return Ok(Next::At(target(at, distance.into())));
        }
        Op::Exit => {
            let Some(caller) = callers.pop() else { return regs.get(Reg::R0).map(Next::End) };
            regs.values[6..FP].copy_from_slice(&caller.saved);
            regs.readable = regs.readable & 1 | caller.readable;
            run.memory.leave(callers.len());
            regs.set(Reg::FP, frame_pointer(callers.len()));
            return Ok(Next::At(caller.at));
        }
        Op::LoadPacket { .. }
        | Op::LoadVar { .. }
        | Op::LoadMapIdx { .. }
        | Op::LoadMapIdxValue { .. }
        | Op::CallKfunc { .. } => return Err(Fault::Unchecked),
    }
    Ok(Next::At(at + 1))
}

fn call(run: &mut Run<'_>, regs: &mut Registers, helpers: &[(i32, Helper)], number: i32) -> Result<(), Fault> {
    let Some((_, helper)) = helpers.iter().find(|h| h.0 == number) else { return Err(Fault::Unchecked) };
    let mut args = [0; 5];
    for (arg, number) in args.iter_mut().zip(1..).take(helper.info.args) {
        *arg = regs.get(Reg::new(number).ok_or(Fault::Unchecked)?)?;
    }
    let result = (helper.run)(run, args)?;
    regs.readable &= !SPOILT;
    regs.set(Reg::R0, result);
    Ok(())
}

fn atomic(
    run: &mut Run<'_>,
    regs: &mut Registers,
    op: AtomicOp,
    size: Size,
    base: Reg,
    off: i16,
    src: Reg,
) -> Result<(), Fault> {
    let (address, value) = (regs.get(base)?.wrapping_add(off as u64), regs.get(src)?);
    let compare = op == AtomicOp::CmpXchg;
    let r0 = if compare { regs.get(Reg::R0)? } else { 0 };
    let old = run.memory.change(address, size, |old| alu::atomic(op, size, old, value, r0))?;
    match op {
        AtomicOp::CmpXchg => regs.set(Reg::R0, old),
        AtomicOp::Xchg => regs.set(src, old),
        AtomicOp::Add { fetch } | AtomicOp::Or { fetch } | AtomicOp::And { fetch } | AtomicOp::Xor { fetch } => {
            if fetch {
                regs.set(src, old);
            }
        }
    }
    Ok(())
}
