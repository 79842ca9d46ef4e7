// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop that executes instructions.
//!
//! ```text
//!  call f      ──► pushes a frame; exit returns after the call
//!  call loop   ──► pushes a frame for the callback; each exit begins the next iteration, the last returns after it
//!  tail_call   ──► another program in the same frame; its exit returns where the first one's would have returned
//! ```
//!
//! A tail call in a function of a program leaves the program's own frames below; from there on depth counts anew.

use super::calls::{self, Helper, Run};
use super::fault::Fault;
use super::memory::{
    CONTEXT_ADDRESS, Memory, frame_pointer, function_address, function_at, map_address, value_address,
};
use super::observer::{Access, At};
use super::trail::Branch;
use flowloom_isa::check::Code;
use flowloom_isa::helpers::HELPERS;
use flowloom_isa::insn::helper;
use flowloom_isa::limits::{MAX_FRAMES, MAX_LOOP_ITERATIONS, MAX_MAY_GOTO, MAX_TAIL_CALLS};
use flowloom_isa::op::{AluOp, AtomicOp, Op, Operand, Reg, Width};
use flowloom_isa::{MapKind, alu};

/// Checked code, ready to run.
pub(super) struct Image {
    /// The program, then its siblings; `None` for those that cannot run.
    pub(super) programs: Vec<Option<Code>>,
    /// By program, the calls of `loop` that the kernel inlines, ascending.
    pub(super) inlined: Vec<Vec<usize>>,
    /// The size of each map's values, for addresses inside of them.
    pub(super) value_bytes: Vec<u32>,
    pub(super) helpers: Helpers,
}

/// Helpers by number.
pub(super) struct Helpers {
    helpers: Vec<(i32, Helper<Memory>)>,
    /// Whether it includes those that change the control flow.
    with_control: bool,
}

impl Helpers {
    /// The kernel's helpers that Flowloom supports, and its own.
    pub(super) fn of_packets() -> Helpers {
        let known = HELPERS.iter().filter_map(|h| Some((h.number, calls::find(h.number)?)));
        Helpers { helpers: known.collect(), with_control: true }
    }

    /// Only these helpers, ascending by number.
    pub(super) fn only(helpers: Vec<(i32, Helper<Memory>)>) -> Helpers {
        Helpers { helpers, with_control: false }
    }

    pub(super) fn can_call(&self, number: i32) -> bool {
        self.get(number).is_some() || self.is_control(number)
    }

    fn is_control(&self, number: i32) -> bool {
        self.with_control && matches!(number, helper::TAIL_CALL | helper::LOOP | helper::FOR_EACH_MAP_ELEM)
    }

    pub(super) fn get(&self, number: i32) -> Option<&Helper<Memory>> {
        self.helpers.binary_search_by_key(&number, |(number, _)| *number).ok().map(|at| &self.helpers[at].1)
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) executed: u64,
    pub(super) calls: u64,
}

/// The caller's registers and place, restored after a call.
struct Caller {
    /// The return address.
    at: At,
    saved: [u64; 4],
    /// The readable ones among them.
    readable: u16,
    /// The first frame of its program.
    first_frame: usize,
    /// For a callback: the helper call that repeats it.
    rounds: Option<Rounds>,
}

/// A helper call with a callback.
struct Rounds {
    callback: At,
    /// The number of iterations begun.
    begun: u64,
    /// The number of keys visited: some may have been deleted before their turn.
    cursor: usize,
    over: Over,
    /// The context argument of every iteration.
    context: u64,
}

/// The range of the iterations.
enum Over {
    /// Numbers below this one.
    Numbers(u64),
    /// All entries of an array.
    Indices { map: usize, count: u32 },
    /// These keys of a map, in this order.
    Entries { map: usize, keys: Vec<Vec<u8>> },
}

/// `r6` to `r9`, the callee-saved registers.
const CALLEE_SAVED: u16 = 0b11_1100_0000;
/// `r1` to `r5`, which calls clobber.
const CALLER_SAVED: u16 = 0b11_1110;
const FP: usize = 10;
/// -EINVAL
const INVALID: u64 = -22i64 as u64;
/// -E2BIG
const TOO_BIG: i32 = -7;

struct Registers {
    values: [u64; 16],
    /// A bit mask of the initialised registers.
    readable: u16,
    /// The number of `may_goto` that fell through.
    rounds: u32,
    tail_calls: u32,
    /// The first frame of the current program.
    first_frame: usize,
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

fn target(at: At, distance: i64) -> At {
    At { slot: (at.slot as i64 + 1 + distance) as usize, ..at }
}

/// Runs the program from its first instruction to its last `exit` and returns `r0`; a fault comes with its instruction.
///
/// `arguments` are the initial values of `r1` and the registers after it; `visit` is called with every instruction
/// before it runs.
pub(super) fn run(
    image: &Image,
    run: &mut Run<'_, Memory>,
    arguments: &[u64],
    budget: u64,
    counters: &mut Counters,
    mut visit: impl FnMut(At),
) -> Result<u64, (At, Fault)> {
    let mut regs = Registers { values: [0; 16], readable: 0, rounds: 0, tail_calls: 0, first_frame: 0 };
    for (number, &argument) in (1..=5).filter_map(Reg::new).zip(arguments) {
        regs.set(number, argument);
    }
    regs.set(Reg::FP, frame_pointer(0));
    let mut callers: Vec<Caller> = Vec::new();
    let mut at = At { program: 0, slot: 0 };
    let mut executed = 0;
    if let Some(observer) = &mut run.observer {
        observer.begin();
        run.memory.record_accesses();
    }
    let result = loop {
        let code = image.programs.get(at.program).and_then(Option::as_ref);
        let Some(Some(op)) = code.and_then(|code| code.get(at.slot)) else { break Err(Fault::Unchecked) };
        if executed == budget {
            break Err(Fault::Budget { limit: budget });
        }
        executed += 1;
        visit(at);
        if let Some(observer) = &mut run.observer {
            let access = access_of(*op, &regs, run.memory);
            if let Err(what) = observer.before(at, *op, access) {
                break Err(Fault::Observer { what });
            }
        }
        match step(image, run, &mut regs, &mut callers, at, *op, &mut counters.calls) {
            Ok(Next::At(next)) => {
                if let Some(observer) = &mut run.observer {
                    let accesses = run.memory.take_accesses();
                    if let Err(what) = observer.after(at, *op, next, callers.len(), &accesses) {
                        break Err(Fault::Observer { what });
                    }
                }
                at = next;
            }
            Ok(Next::End(r0)) => break end(run, r0),
            Err(fault) => break Err(fault),
        }
    };
    counters.executed += executed;
    result.map_err(|fault| (at, fault))
}

/// The access of a load, store or atomic operation to a known region.
fn access_of(op: Op, regs: &Registers, memory: &Memory) -> Option<Access> {
    let (base, off, size, (reads, writes)) = match op {
        Op::Load { size, base, off, .. } => (base, off, size, (true, false)),
        Op::Store { size, base, off, .. } => (base, off, size, (false, true)),
        Op::Atomic { size, base, off, .. } => (base, off, size, (true, true)),
        _ => return None,
    };
    let address = regs.get(base).ok()?.wrapping_add(off as u64);
    let (region, first) = memory.located(address)?;
    Some(Access { region, first, len: size.bytes(), reads, writes })
}

/// Checks that the program has released everything at its end.
fn end(run: &Run<'_, Memory>, r0: u64) -> Result<u64, Fault> {
    match run.locked {
        Some(map) => Err(Fault::Lock { map: run.memory.maps[map].def().name.clone(), what: "it is held at the end" }),
        None if run.memory.rings.is_any_reserved() => {
            Err(Fault::Unreleased { what: "a record that was reserved, but neither submitted nor discarded" })
        }
        None => Ok(r0),
    }
}

enum Next {
    At(At),
    End(u64),
}

#[inline(always)]
fn step(
    image: &Image,
    run: &mut Run<'_, Memory>,
    regs: &mut Registers,
    callers: &mut Vec<Caller>,
    at: At,
    op: Op,
    calls: &mut u64,
) -> Result<Next, Fault> {
    let after = |slots: usize| At { slot: at.slot + slots, ..at };
    match op {
        Op::Alu { width, op: AluOp::Mov, dst, src } => {
            let value = regs.operand(src)?;
            regs.set(dst, if width == Width::W64 { value } else { value as u32 as u64 });
        }
        Op::Alu { width, op, dst, src } => {
            let value = alu::alu(width, op, regs.get(dst)?, regs.operand(src)?);
            regs.set(dst, value);
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
        Op::Atomic { op: what, size, base, off, src } => {
            let (address, value) = (regs.get(base)?.wrapping_add(off as u64), regs.get(src)?);
            let r0 = if what == AtomicOp::CmpXchg { regs.get(Reg::R0)? } else { 0 };
            let old = run.memory.change(address, size, |old| alu::atomic(what, size, old, value, r0))?;
            if let Some(fetched) = op.writes() {
                regs.set(fetched, old);
            }
        }
        Op::LoadImm { dst, value } => {
            regs.set(dst, value);
            return Ok(Next::At(after(2)));
        }
        Op::LoadMap { dst, map } => {
            regs.set(dst, map_address(map as usize));
            return Ok(Next::At(after(2)));
        }
        Op::LoadMapValue { dst, map, off } => {
            let size = image.value_bytes.get(map as usize).ok_or(Fault::Unchecked)?;
            regs.set(dst, value_address(map as usize, *size, 0, off));
            return Ok(Next::At(after(2)));
        }
        Op::LoadFunc { dst, distance } => {
            regs.set(dst, function_address(at.program, target(at, distance.into()).slot));
            return Ok(Next::At(after(2)));
        }
        Op::Jump { off } => return Ok(Next::At(target(at, off.into()))),
        Op::JumpLong { distance } => return Ok(Next::At(target(at, distance.into()))),
        Op::Branch { width, cond, dst, src, off } => {
            let (a, b) = (regs.get(dst)?, regs.operand(src)?);
            let (holds, operands) = match width {
                Width::W64 => (alu::holds64(cond, a, b), (a, b)),
                Width::W32 => (alu::holds32(cond, a as u32, b as u32), (a as u32 as u64, b as u32 as u64)),
            };
            if let Some(trail) = run.trail.as_mut().filter(|_| at.program == 0) {
                trail.branch(Branch { insn: at.slot, operands, taken: holds });
            }
            if holds {
                return Ok(Next::At(target(at, off.into())));
            }
        }
        Op::MayGoto { off } => {
            if regs.rounds == MAX_MAY_GOTO {
                return Ok(Next::At(target(at, off.into())));
            }
            regs.rounds += 1;
        }
        Op::Call { helper } => {
            *calls += 1;
            return call(image, run, regs, callers, at, helper).map(Next::At);
        }
        Op::CallLocal { distance } => {
            let readable = regs.readable & CALLER_SAVED;
            enter(run, regs, callers, after(1), None)?;
            // A function gets its arguments and its own stack, and nothing else.
            regs.readable |= readable;
            return Ok(Next::At(target(at, distance.into())));
        }
        Op::Exit => {
            let Some(mut caller) = callers.pop() else { return regs.get(Reg::R0).map(Next::End) };
            let rounds = caller.rounds.take();
            let returned = if rounds.is_some() { regs.get(Reg::R0)? } else { 0 };
            regs.values[6..FP].copy_from_slice(&caller.saved);
            regs.readable = regs.readable & 1 | caller.readable;
            regs.first_frame = caller.first_frame;
            run.memory.leave(callers.len());
            regs.set(Reg::FP, frame_pointer(callers.len()));
            return match rounds {
                None => Ok(Next::At(caller.at)),
                Some(rounds) => round(run, regs, callers, caller.at, rounds, returned != 0).map(Next::At),
            };
        }
        Op::LoadPacket { .. }
        | Op::LoadVar { .. }
        | Op::LoadMapIdx { .. }
        | Op::LoadMapIdxValue { .. }
        | Op::CallKfunc { .. } => return Err(Fault::Unchecked),
    }
    Ok(Next::At(after(1)))
}

/// Enters a function; it returns to `back`.
fn enter(
    run: &mut Run<'_, Memory>,
    regs: &mut Registers,
    callers: &mut Vec<Caller>,
    back: At,
    rounds: Option<Rounds>,
) -> Result<(), Fault> {
    if callers.len() + 1 - regs.first_frame >= MAX_FRAMES {
        return Err(Fault::Depth { limit: MAX_FRAMES });
    }
    let mut saved = [0; 4];
    saved.copy_from_slice(&regs.values[6..FP]);
    let (readable, first_frame) = (regs.readable & CALLEE_SAVED, regs.first_frame);
    callers.push(Caller { at: back, saved, readable, first_frame, rounds });
    regs.readable = 0;
    run.memory.enter(callers.len());
    regs.set(Reg::FP, frame_pointer(callers.len()));
    Ok(())
}

/// Calls a helper; returns where the program continues.
fn call(
    image: &Image,
    run: &mut Run<'_, Memory>,
    regs: &mut Registers,
    callers: &mut Vec<Caller>,
    at: At,
    number: i32,
) -> Result<At, Fault> {
    let back = At { slot: at.slot + 1, ..at };
    if let Some(map) = run.locked.filter(|_| number != helper::SPIN_UNLOCK) {
        let helper = flowloom_isa::helpers::name_of(number).unwrap_or_default();
        return Err(Fault::Locked { helper, map: run.memory.maps[map].def().name.clone() });
    }
    if image.helpers.is_control(number) {
        return match number {
            helper::TAIL_CALL => tail_call(image, run, regs, callers.len(), back),
            helper::LOOP => begin_loop(image, run, regs, callers, at),
            _ => begin_for_each(run, regs, callers, back),
        };
    }
    let helper = image.helpers.get(number).ok_or(Fault::Unchecked)?;
    let mut args = [0; 5];
    for (arg, number) in args.iter_mut().zip(1..) {
        let register = Reg::new(number).ok_or(Fault::Unchecked)?;
        *arg = match usize::from(number) <= helper.args {
            true => regs.get(register)?,
            false => regs.get(register).unwrap_or(0),
        };
    }
    let result = (helper.run)(run, args)?;
    give(regs, result);
    Ok(back)
}

/// The effect of a helper call on registers: the result, and clobbered arguments.
fn give(regs: &mut Registers, result: u64) {
    regs.readable &= !CALLER_SAVED;
    regs.set(Reg::R0, result);
}

fn argument(regs: &Registers, number: u8) -> Result<u64, Fault> {
    regs.get(Reg::new(number).ok_or(Fault::Unchecked)?)
}

/// Continues in another program, or after the call if there is none, without a result.
fn tail_call(
    image: &Image,
    run: &mut Run<'_, Memory>,
    regs: &mut Registers,
    frame: usize,
    back: At,
) -> Result<At, Fault> {
    run.context("tail_call", argument(regs, 1)?)?;
    let map = run.map_of("tail_call", argument(regs, 2)?, "a map of programs", |kind| kind == MapKind::ProgArray)?;
    let index = argument(regs, 3)? as u32;
    let sibling = run.memory.maps[map].member(&index.to_le_bytes());
    let program = sibling.map(|sibling| sibling as usize + 1);
    let code = program.and_then(|program| image.programs.get(program)?.as_ref());
    let (Some(program), Some(_), true) = (program, code, regs.tail_calls < MAX_TAIL_CALLS) else {
        regs.readable &= !(CALLER_SAVED | 1);
        return Ok(back);
    };
    regs.tail_calls += 1;
    regs.first_frame = frame;
    regs.readable = 0;
    regs.set(Reg::R1, CONTEXT_ADDRESS);
    regs.set(Reg::FP, frame_pointer(frame));
    run.memory.enter(frame);
    Ok(At { program, slot: 0 })
}

fn callback(regs: &Registers, helper: &'static str) -> Result<At, Fault> {
    let address = argument(regs, 2)?;
    let found = || format!("0x{address:x}");
    let (program, slot) = function_at(address).ok_or_else(|| Fault::Argument {
        helper,
        argument: 2,
        found: found(),
        expected: "the address of a function of the program",
    })?;
    Ok(At { program, slot })
}

/// `loop(rounds, callback, context, flags)`, as the helper, which truncates the trip count to 32 bits, or as the
/// inlined instructions, which compare all 64 and return the error as a 32-bit number [Linux kernel/bpf/verifier.c:
/// inline_bpf_loop].
fn begin_loop(
    image: &Image,
    run: &mut Run<'_, Memory>,
    regs: &mut Registers,
    callers: &mut Vec<Caller>,
    at: At,
) -> Result<At, Fault> {
    let back = At { slot: at.slot + 1, ..at };
    let is_inlined = image.inlined.get(at.program).is_some_and(|slots| slots.binary_search(&at.slot).is_ok());
    let (count, too_big) = match argument(regs, 1)? {
        count if is_inlined => (count, TOO_BIG as u32 as u64),
        count => (count as u32 as u64, TOO_BIG as u64),
    };
    let flags = argument(regs, 4)?;
    let (callback, context) = (callback(regs, "loop")?, argument(regs, 3)?);
    let refused = match (flags, count) {
        (0, ..=MAX_LOOP_ITERATIONS) => None,
        (0, _) => Some(too_big),
        _ => Some(INVALID),
    };
    if let Some(error) = refused {
        give(regs, error);
        return Ok(back);
    }
    let rounds = Rounds { callback, begun: 0, cursor: 0, over: Over::Numbers(count), context };
    round(run, regs, callers, back, rounds, false)
}

/// `for_each_map_elem(map, callback, context, flags)`: entries of a hash table are visited by ascending key, as bytes.
fn begin_for_each(
    run: &mut Run<'_, Memory>,
    regs: &mut Registers,
    callers: &mut Vec<Caller>,
    back: At,
) -> Result<At, Fault> {
    let fits = |kind: MapKind| kind.has_values() && kind != MapKind::LpmTrie;
    let map = run.map_of("for_each_map_elem", argument(regs, 1)?, "a hash or an array", fits)?;
    let (callback, context) = (callback(regs, "for_each_map_elem")?, argument(regs, 3)?);
    if argument(regs, 4)? != 0 {
        give(regs, INVALID);
        return Ok(back);
    }
    let over = match run.memory.maps[map].indices() {
        Some(count) => Over::Indices { map, count },
        None => Over::Entries { map, keys: run.memory.maps[map].keys() },
    };
    round(run, regs, callers, back, Rounds { callback, begun: 0, cursor: 0, over, context }, false)
}

/// Begins the next iteration, or returns after the call with their number.
fn round(
    run: &mut Run<'_, Memory>,
    regs: &mut Registers,
    callers: &mut Vec<Caller>,
    back: At,
    mut rounds: Rounds,
    stop: bool,
) -> Result<At, Fault> {
    let frame = callers.len() + 1;
    let (callback, context, number) = (rounds.callback, rounds.context, rounds.begun);
    let args = match &rounds.over {
        _ if stop => None,
        Over::Numbers(count) => (number < *count).then_some([number, context, 0, 0]),
        Over::Indices { map, count } => match u32::try_from(rounds.cursor) {
            Ok(index) if index < *count => {
                rounds.cursor += 1;
                let key = index.to_le_bytes().to_vec();
                let value_bytes = run.memory.maps[*map].def().value_bytes;
                let cell = run.memory.maps[*map].lookup(&key, run.choices.cpu).ok_or(Fault::Unchecked)?;
                let key = run.memory.show_key(frame, key);
                Some([map_address(*map), key, value_address(*map, value_bytes, cell, 0), context])
            }
            _ => None,
        },
        Over::Entries { map, keys } => loop {
            let Some(key) = keys.get(rounds.cursor) else { break None };
            rounds.cursor += 1;
            let value_bytes = run.memory.maps[*map].def().value_bytes;
            // A callback may have deleted it in the meantime.
            let Some(cell) = run.memory.maps[*map].lookup(key, run.choices.cpu) else { continue };
            let key = run.memory.show_key(frame, key.clone());
            break Some([map_address(*map), key, value_address(*map, value_bytes, cell, 0), context]);
        },
    };
    let Some(args) = args else {
        give(regs, rounds.begun);
        return Ok(back);
    };
    rounds.begun += 1;
    let count = if matches!(rounds.over, Over::Numbers(_)) { 2 } else { 4 };
    enter(run, regs, callers, back, Some(rounds))?;
    for (number, value) in (1..).zip(args).take(count) {
        regs.set(Reg::new(number).ok_or(Fault::Unchecked)?, value);
    }
    Ok(callback)
}
