// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loops that execute instructions.
//!
//! ```text
//!  Op ──decode──► Insn ──perform──► registers, memory, the next place
//!                   │
//!                   ├── plain     nothing else
//!                   └── followed  checks registers, counts executions, tells an observer what it wants to know
//! ```
//!
//! There is one definition of every instruction, [`perform`], which the loops inline. Where registers may be read
//! before they are written, the run notes which ones are initialised (`CHECKED`); see [`super::initialised`].

use super::calls::{self, Helper, Run};
use super::control::{Caller, Place};
use super::fault::Fault;
use super::initialised::{self, Calls};
use super::insn::{Decoded, Insn, Surroundings, with_operations};
use super::memory::{Memory, frame_pointer};
use super::observer::{Access, Allowed, At, Observer, Watch};
use super::trail::Branch;
use flowloom_isa::check::Code;
use flowloom_isa::helpers::{HELPERS, by_number};
use flowloom_isa::insn::helper;
use flowloom_isa::limits::{MAX_MAY_GOTO, STACK_BYTES};
use flowloom_isa::op::{AluOp, AtomicOp, Cond, Op, Reg, Size, Width};
use flowloom_isa::{MapDef, alu};

/// A program that can run.
pub(super) struct Executable {
    /// The checked code, by slot.
    pub(super) code: Code,
    pub(super) decoded: Decoded,
    /// The calls of `loop` that the kernel inlines, ascending.
    pub(super) inlined: Vec<usize>,
    /// Whether some register may be read before it is written.
    is_checked: bool,
}

/// Programs, ready to run.
pub(super) struct Image {
    /// The program, then its siblings; `None` for those that cannot run.
    pub(super) programs: Vec<Option<Executable>>,
    pub(super) helpers: Helpers,
    /// Whether reads of registers are checked.
    is_checked: bool,
}

impl Image {
    /// Decodes checked programs; the first one begins with this number of arguments.
    pub(super) fn new(programs: Vec<Option<Code>>, arguments: usize, maps: &[MapDef], helpers: Helpers) -> Image {
        let value_bytes: Vec<u32> = maps.iter().map(|map| map.value_bytes).collect();
        let executable = |(program, code): (usize, Code)| {
            let around = Surroundings { program, value_bytes: &value_bytes, helpers: &helpers };
            let arguments = if program == 0 { arguments } else { 1 };
            let calls = initialised::calls(&code, arguments, |number| helpers.arguments(number));
            let decoded = Decoded::of(&code, calls.as_ref().unwrap_or(&Calls::default()), &around);
            Executable { inlined: super::inline::loops(&code), decoded, is_checked: calls.is_none(), code }
        };
        let programs = programs.into_iter().enumerate().map(|(program, code)| Some(executable((program, code?))));
        let programs: Vec<Option<Executable>> = programs.collect();
        let is_checked = programs.iter().flatten().any(|program| program.is_checked);
        Image { programs, helpers, is_checked }
    }

    /// The instructions of a program; none if it cannot run.
    fn insns(&self, program: usize) -> &[Insn] {
        self.programs.get(program).and_then(Option::as_ref).map_or(&[], |program| &program.decoded.insns)
    }

    /// The slot of an instruction.
    pub(super) fn at(&self, Place { program, place }: Place) -> At {
        let executable = self.programs.get(program).and_then(Option::as_ref);
        At { program, slot: executable.map_or(0, |executable| executable.decoded.slot(place)) }
    }

    fn op(&self, at: At) -> Option<Op> {
        *self.programs.get(at.program)?.as_ref()?.code.get(at.slot)?
    }

    /// By program and place, what an observer wants to know.
    pub(super) fn watched(&self, observer: &dyn Observer) -> Vec<Vec<Watch>> {
        let watched = |(program, executable): (usize, &Option<Executable>)| {
            let insns = executable.as_ref().map_or(0, |executable| executable.decoded.insns.len());
            let watch = |place| {
                let at = self.at(Place { program, place });
                self.op(at).map_or(Watch::Everything, |op| observer.watch(at, op))
            };
            (0..insns).map(watch).collect()
        };
        self.programs.iter().enumerate().map(watched).collect()
    }
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
        self.place(number).is_some() || self.is_control(number)
    }

    pub(super) fn is_control(&self, number: i32) -> bool {
        self.with_control && matches!(number, helper::TAIL_CALL | helper::LOOP | helper::FOR_EACH_MAP_ELEM)
    }

    /// The place of a helper in the table.
    pub(super) fn place(&self, number: i32) -> Option<usize> {
        self.helpers.binary_search_by_key(&number, |(number, _)| *number).ok()
    }

    pub(super) fn get(&self, number: i32) -> Option<&Helper<Memory>> {
        self.place(number).map(|place| &self.helpers[place].1)
    }

    fn at(&self, place: u16) -> Option<&(i32, Helper<Memory>)> {
        self.helpers.get(usize::from(place))
    }

    /// The number of argument registers that a helper reads.
    fn arguments(&self, number: i32) -> usize {
        match self.place(number) {
            Some(place) => self.helpers[place].1.args,
            None => by_number(number).map_or(5, |helper| helper.parameters.len()),
        }
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) executed: u64,
    pub(super) calls: u64,
}

pub(super) const FP: usize = 10;

/// The registers of the interpreter.
pub(super) struct Registers {
    /// As many as a number of a register can name, so that none has to be checked.
    pub(super) values: [u64; 256],
    /// A bit mask of the initialised registers, if they are checked.
    pub(super) readable: u16,
    /// The number of `may_goto` that fell through.
    rounds: u32,
    pub(super) tail_calls: u32,
    /// The first frame of the current program.
    pub(super) first_frame: usize,
}

impl Default for Registers {
    fn default() -> Registers {
        Registers { values: [0; 256], readable: 0, rounds: 0, tail_calls: 0, first_frame: 0 }
    }
}

impl Registers {
    #[inline(always)]
    pub(super) fn get<const CHECKED: bool>(&self, reg: u8) -> Result<u64, Fault> {
        if CHECKED && self.readable >> (reg & 15) & 1 == 0 {
            return Err(unreadable(reg));
        }
        Ok(self.values[usize::from(reg)])
    }

    #[inline(always)]
    fn put<const CHECKED: bool>(&mut self, reg: u8, value: u64) {
        self.values[usize::from(reg)] = value;
        if CHECKED {
            self.readable |= 1 << (reg & 15);
        }
    }

    pub(super) fn set(&mut self, reg: Reg, value: u64) {
        self.put::<true>(reg.number(), value);
    }
}

#[cold]
fn unreadable(reg: u8) -> Fault {
    Reg::new(reg).map_or(Fault::Unchecked, Fault::Register)
}

/// A run on its way.
pub(super) struct Machine<'a, 'r> {
    pub(super) image: &'a Image,
    pub(super) run: &'a mut Run<'r, Memory>,
    pub(super) regs: &'a mut Registers,
    pub(super) callers: Vec<Caller>,
    /// The current program.
    pub(super) program: usize,
    /// The instructions left of the budget.
    left: u64,
    pub(super) calls: u64,
}

/// What follows a run.
pub(super) struct Following<'a> {
    /// By slot of the first program, the number of executions.
    pub(super) profile: Option<&'a mut Vec<u64>>,
    /// By program and place.
    pub(super) watched: &'a [Vec<Watch>],
}

impl<'a> Following<'a> {
    /// By place of a program.
    fn watched(&self, program: usize) -> &'a [Watch] {
        self.watched.get(program).map_or(&[], Vec::as_slice)
    }
}

/// Runs the program from its first instruction to its last `exit` and returns `r0`; a fault comes with its instruction.
///
/// `arguments` are the initial values of `r1` and the registers after it.
pub(super) fn run(
    image: &Image,
    run: &mut Run<'_, Memory>,
    regs: &mut Registers,
    arguments: &[u64],
    budget: u64,
    counters: &mut Counters,
    following: Following<'_>,
) -> Result<u64, (At, Fault)> {
    (regs.readable, regs.rounds, regs.tail_calls, regs.first_frame) = (0, 0, 0, 0);
    for (number, &argument) in (1..=5).filter_map(Reg::new).zip(arguments) {
        regs.set(number, argument);
    }
    regs.set(Reg::FP, frame_pointer(0));
    let is_followed = following.profile.is_some() || run.observer.is_some();
    let mut machine = Machine { image, run, regs, callers: Vec::new(), program: 0, left: budget, calls: 0 };
    let result = match (image.is_checked, is_followed) {
        (false, false) => plain(&mut machine),
        (false, true) => followed::<false>(&mut machine, following),
        (true, _) => followed::<true>(&mut machine, following),
    };
    counters.executed += budget - machine.left;
    counters.calls += machine.calls;
    result.map_err(|(place, fault)| match fault {
        Fault::Budget { .. } => (image.at(place), Fault::Budget { limit: budget }),
        fault => (image.at(place), fault),
    })
}

/// A run that has stopped: the place of the instruction.
type Stopped = (Place, Fault);

/// Executes instructions.
fn plain(machine: &mut Machine<'_, '_>) -> Result<u64, Stopped> {
    let mut insns = machine.image.insns(machine.program);
    let mut next = 0;
    loop {
        let place = next;
        let Some(insn) = insns.get(place) else { return Err((machine.place(place), Fault::Unchecked)) };
        if machine.left == 0 {
            return Err((machine.place(place), Fault::Budget { limit: 0 }));
        }
        machine.left -= 1;
        next = place + 1;
        match perform::<false>(machine, *insn, &mut next) {
            Ok(Flow::On) => {}
            Ok(Flow::Anywhere) => insns = machine.image.insns(machine.program),
            Ok(Flow::End(r0)) => return machine.end(r0).map_err(|fault| (machine.place(place), fault)),
            Err(fault) => return Err((machine.place(place), fault)),
        }
    }
}

/// Executes instructions for an observer, and counts them.
fn followed<const CHECKED: bool>(machine: &mut Machine<'_, '_>, mut following: Following<'_>) -> Result<u64, Stopped> {
    let mut observer = machine.run.observer.take();
    if let Some(observer) = &mut observer {
        observer.begin();
        machine.run.memory.record_accesses();
    }
    let (mut insns, mut watched) = (machine.image.insns(0), following.watched(0));
    let mut next = 0;
    loop {
        let place = next;
        let at = Place { program: machine.program, place };
        let Some(insn) = insns.get(place).copied() else { return Err((at, Fault::Unchecked)) };
        if machine.left == 0 {
            return Err((at, Fault::Budget { limit: 0 }));
        }
        machine.left -= 1;
        if let Some(profile) = following.profile.as_deref_mut().filter(|_| at.program == 0) {
            // Siblings have no profile of their own.
            profile[machine.image.at(at).slot] += 1;
        }
        let mut told = None;
        match (watched.get(place), &mut observer) {
            (Some(Watch::Nothing), _) | (_, None) => {}
            (Some(Watch::Accesses(allowed)), Some(_)) if machine.is_allowed(insn, allowed) => {}
            (_, Some(observer)) => {
                let at = machine.image.at(at);
                let Some(op) = machine.image.op(at) else { return Err((machine.place(place), Fault::Unchecked)) };
                let access = access_of::<CHECKED>(op, machine.regs, machine.run.memory);
                let result = observer.before(at, op, access);
                result.map_err(|what| (machine.place(place), Fault::Observer { what }))?;
                told = Some((at, op));
            }
        }
        next = place + 1;
        match perform::<CHECKED>(machine, insn, &mut next) {
            Ok(Flow::On) => {}
            Ok(Flow::Anywhere) => {
                (insns, watched) = (machine.image.insns(machine.program), following.watched(machine.program));
            }
            Ok(Flow::End(r0)) => return machine.end(r0).map_err(|fault| (at, fault)),
            Err(fault) => return Err((at, fault)),
        }
        if let (Some((told, op)), Some(observer)) = (told, &mut observer) {
            let to = machine.image.at(machine.place(next));
            let accesses = machine.run.memory.take_accesses();
            let result = observer.after(told, op, to, machine.callers.len(), &accesses);
            result.map_err(|what| (at, Fault::Observer { what }))?;
        }
    }
}

/// The access of a load, store or atomic operation to a known region.
fn access_of<const CHECKED: bool>(op: Op, regs: &Registers, memory: &Memory) -> Option<Access> {
    let (base, off, size, (reads, writes)) = match op {
        Op::Load { size, base, off, .. } => (base, off, size, (true, false)),
        Op::Store { size, base, off, .. } => (base, off, size, (false, true)),
        Op::Atomic { size, base, off, .. } => (base, off, size, (true, true)),
        _ => return None,
    };
    let address = regs.get::<CHECKED>(base.number()).ok()?.wrapping_add(off as u64);
    let (region, first) = memory.located(address)?;
    Some(Access { region, first, len: size.bytes(), reads, writes })
}

impl Machine<'_, '_> {
    fn place(&self, place: usize) -> Place {
        Place { program: self.program, place }
    }

    /// Whether the access of an instruction is one of those that need no observer.
    #[inline]
    fn is_allowed(&self, insn: Insn, allowed: &[Allowed]) -> bool {
        let (base, off, len) = match insn {
            Insn::Load8 { base, off, .. } | Insn::Store8 { base, off, .. } => (base, off, 1),
            Insn::Load16 { base, off, .. } | Insn::Store16 { base, off, .. } => (base, off, 2),
            Insn::Load32 { base, off, .. } | Insn::Store32 { base, off, .. } => (base, off, 4),
            Insn::Load64 { base, off, .. } | Insn::Store64 { base, off, .. } => (base, off, 8),
            Insn::LoadSigned { size, base, off, .. }
            | Insn::StoreImm { size, base, off, .. }
            | Insn::Atomic { size, base, off, .. } => (base, off, size.bytes() as i64),
            _ => return false,
        };
        let address = self.regs.values[usize::from(base)].wrapping_add(off as u64);
        let Some((region, first)) = self.run.memory.located(address) else { return false };
        allowed.iter().any(|allowed| allowed.has(region, first, len))
    }

    /// Checks that the program has released everything at its end.
    fn end(&self, r0: u64) -> Result<u64, Fault> {
        let memory = &*self.run.memory;
        match self.run.locked {
            Some(map) => Err(Fault::Lock { map: memory.maps[map].def().name.clone(), what: "it is held at the end" }),
            None if memory.rings.is_any_reserved() => {
                Err(Fault::Unreleased { what: "a record that was reserved, but neither submitted nor discarded" })
            }
            None => Ok(r0),
        }
    }

    /// Notes a conditional jump; returns whether it is taken.
    #[cold]
    fn note_branch(&mut self, next: usize, operands: (u64, u64), taken: bool) {
        let insn = self.image.at(self.place(next - 1)).slot;
        if let Some(trail) = self.run.trail.as_mut().filter(|_| self.program == 0) {
            trail.branch(Branch { insn, operands, taken });
        }
    }
}

/// Where the run continues.
enum Flow {
    /// In the same program.
    On,
    /// In the current program, which may be another one.
    Anywhere,
    /// Nowhere: the result.
    End(u64),
}

/// Matches an instruction; the arms of arithmetic and branches are made from the list of operations.
macro_rules! dispatch {
    (
        $({ $alu:ident $alu64:ident $alu64_imm:ident $alu32:ident $alu32_imm:ident })*;
        $({ $cond:ident $cond64:ident $cond64_imm:ident $cond32:ident $cond32_imm:ident })*;
        ($machine:ident, $insn:ident, $next:ident) { $($others:tt)* }
    ) => {
        match $insn {
            $(
                Insn::$alu64 { dst, src } => {
                    let (a, b) = ($machine.regs.get::<CHECKED>(dst)?, $machine.regs.get::<CHECKED>(src)?);
                    $machine.regs.put::<CHECKED>(dst, alu::alu64(AluOp::$alu, a, b));
                }
                Insn::$alu64_imm { dst, imm } => {
                    let a = $machine.regs.get::<CHECKED>(dst)?;
                    $machine.regs.put::<CHECKED>(dst, alu::alu64(AluOp::$alu, a, imm as u64));
                }
                Insn::$alu32 { dst, src } => {
                    let (a, b) = ($machine.regs.get::<CHECKED>(dst)?, $machine.regs.get::<CHECKED>(src)?);
                    $machine.regs.put::<CHECKED>(dst, alu::alu32(AluOp::$alu, a as u32, b as u32).into());
                }
                Insn::$alu32_imm { dst, imm } => {
                    let a = $machine.regs.get::<CHECKED>(dst)?;
                    $machine.regs.put::<CHECKED>(dst, alu::alu32(AluOp::$alu, a as u32, imm as u32).into());
                }
            )*
            $(
                Insn::$cond64 { dst, src, to } => {
                    let (a, b) = ($machine.regs.get::<CHECKED>(dst)?, $machine.regs.get::<CHECKED>(src)?);
                    branch($machine, (a, b), alu::holds64(Cond::$cond, a, b), to, $next);
                }
                Insn::$cond64_imm { dst, imm, to } => {
                    let (a, b) = ($machine.regs.get::<CHECKED>(dst)?, imm as u64);
                    branch($machine, (a, b), alu::holds64(Cond::$cond, a, b), to, $next);
                }
                Insn::$cond32 { dst, src, to } => {
                    let (a, b) = ($machine.regs.get::<CHECKED>(dst)?, $machine.regs.get::<CHECKED>(src)?);
                    let (a, b) = (a as u32, b as u32);
                    branch($machine, (a.into(), b.into()), alu::holds32(Cond::$cond, a, b), to, $next);
                }
                Insn::$cond32_imm { dst, imm, to } => {
                    let (a, b) = ($machine.regs.get::<CHECKED>(dst)? as u32, imm as u32);
                    branch($machine, (a.into(), b.into()), alu::holds32(Cond::$cond, a, b), to, $next);
                }
            )*
            $($others)*
        }
    };
}

#[inline(always)]
fn branch(machine: &mut Machine<'_, '_>, operands: (u64, u64), taken: bool, to: u32, next: &mut usize) {
    if machine.run.trail.is_some() {
        machine.note_branch(*next, operands, taken);
    }
    if taken {
        *next = to as usize;
    }
}

/// Executes an instruction. `next` is the place after it, and becomes the place of the next one.
#[inline(always)]
fn perform<const CHECKED: bool>(machine: &mut Machine<'_, '_>, insn: Insn, next: &mut usize) -> Result<Flow, Fault> {
    with_operations! {
        dispatch! {
            (machine, insn, next) {
                Insn::Move64 { dst, src } => {
                    let value = machine.regs.get::<CHECKED>(src)?;
                    machine.regs.put::<CHECKED>(dst, value);
                }
                Insn::Move32 { dst, src } => {
                    let value = machine.regs.get::<CHECKED>(src)?;
                    machine.regs.put::<CHECKED>(dst, u64::from(value as u32));
                }
                Insn::Constant { dst, low, high } => {
                    machine.regs.put::<CHECKED>(dst, u64::from(high) << 32 | u64::from(low));
                }
                Insn::MoveSx { width, from, dst, src } => {
                    let value = alu::sign_extend(from, machine.regs.get::<CHECKED>(src)?);
                    machine.regs.put::<CHECKED>(dst, narrowed(width, value));
                }
                Insn::Neg { width, dst } => {
                    let value = machine.regs.get::<CHECKED>(dst)?.wrapping_neg();
                    machine.regs.put::<CHECKED>(dst, narrowed(width, value));
                }
                Insn::End { op, size, dst } => {
                    let value = alu::byte_order(op, size, machine.regs.get::<CHECKED>(dst)?);
                    machine.regs.put::<CHECKED>(dst, value);
                }
                Insn::Load8 { dst, base, off } => load::<CHECKED, 1>(machine, dst, base, off, Size::B)?,
                Insn::Load16 { dst, base, off } => load::<CHECKED, 2>(machine, dst, base, off, Size::H)?,
                Insn::Load32 { dst, base, off } => load::<CHECKED, 4>(machine, dst, base, off, Size::W)?,
                Insn::Load64 { dst, base, off } => load::<CHECKED, 8>(machine, dst, base, off, Size::Dw)?,
                Insn::LoadSigned { size, dst, base, off } => {
                    let address = machine.regs.get::<CHECKED>(base)?.wrapping_add(off as u64);
                    let value = machine.run.memory.load_signed(address, size)?;
                    machine.regs.put::<CHECKED>(dst, alu::sign_extend(size, value));
                }
                Insn::LoadFrame8 { dst, at } => load_frame::<CHECKED, 1>(machine, dst, at, Size::B)?,
                Insn::LoadFrame16 { dst, at } => load_frame::<CHECKED, 2>(machine, dst, at, Size::H)?,
                Insn::LoadFrame32 { dst, at } => load_frame::<CHECKED, 4>(machine, dst, at, Size::W)?,
                Insn::LoadFrame64 { dst, at } => load_frame::<CHECKED, 8>(machine, dst, at, Size::Dw)?,
                Insn::StoreFrame8 { src, at } => store_frame::<CHECKED, 1>(machine, src, at)?,
                Insn::StoreFrame16 { src, at } => store_frame::<CHECKED, 2>(machine, src, at)?,
                Insn::StoreFrame32 { src, at } => store_frame::<CHECKED, 4>(machine, src, at)?,
                Insn::StoreFrame64 { src, at } => store_frame::<CHECKED, 8>(machine, src, at)?,
                Insn::Store8 { base, src, off } => store::<CHECKED, 1>(machine, base, src, off, Size::B)?,
                Insn::Store16 { base, src, off } => store::<CHECKED, 2>(machine, base, src, off, Size::H)?,
                Insn::Store32 { base, src, off } => store::<CHECKED, 4>(machine, base, src, off, Size::W)?,
                Insn::Store64 { base, src, off } => store::<CHECKED, 8>(machine, base, src, off, Size::Dw)?,
                Insn::StoreImm { size, base, off, imm } => {
                    let address = machine.regs.get::<CHECKED>(base)?.wrapping_add(off as u64);
                    machine.run.memory.store(address, size, imm as u64)?;
                }
                Insn::Atomic { op, size, base, off, src } => atomic::<CHECKED>(machine, op, size, (base, off), src)?,
                Insn::Jump { to } => *next = to as usize,
                Insn::MayGoto { to } => match machine.regs.rounds {
                    MAX_MAY_GOTO => *next = to as usize,
                    _ => machine.regs.rounds += 1,
                },
                Insn::Call { helper, given } => call::<CHECKED>(machine, helper, given)?,
                Insn::CallControl { helper } => {
                    *next = machine.control::<CHECKED>(helper.into(), *next)?;
                    return Ok(Flow::Anywhere);
                }
                Insn::CallLocal { to } => {
                    machine.call_local(*next)?;
                    *next = to as usize;
                }
                Insn::Exit => match machine.exit::<CHECKED>()? {
                    Some(place) => {
                        *next = place;
                        return Ok(Flow::Anywhere);
                    }
                    None => return machine.regs.get::<CHECKED>(0).map(Flow::End),
                },
                Insn::Invalid => return Err(Fault::Unchecked),
            }
        }
    }
    Ok(Flow::On)
}

fn narrowed(width: Width, value: u64) -> u64 {
    if width == Width::W64 { value } else { u64::from(value as u32) }
}

fn number<const N: usize>(bytes: [u8; N]) -> u64 {
    let mut word = [0; 8];
    word[..N].copy_from_slice(&bytes);
    u64::from_le_bytes(word)
}

fn low_bytes<const N: usize>(value: u64) -> [u8; N] {
    let word = value.to_le_bytes();
    std::array::from_fn(|at| word[at])
}

#[inline(always)]
fn load<const CHECKED: bool, const N: usize>(
    machine: &mut Machine<'_, '_>,
    dst: u8,
    base: u8,
    off: i16,
    size: Size,
) -> Result<(), Fault> {
    let address = machine.regs.get::<CHECKED>(base)?.wrapping_add(off as u64);
    let value = match machine.run.memory.near::<N>(address) {
        Some(bytes) => number(bytes),
        None => machine.run.memory.load(address, size)?,
    };
    machine.regs.put::<CHECKED>(dst, value);
    Ok(())
}

#[inline(always)]
fn load_frame<const CHECKED: bool, const N: usize>(
    machine: &mut Machine<'_, '_>,
    dst: u8,
    at: u16,
    size: Size,
) -> Result<(), Fault> {
    let value = match machine.run.memory.in_frame::<N>(at) {
        Some(bytes) => number(bytes),
        None => {
            let end = machine.regs.values[FP];
            machine.run.memory.load(end.wrapping_add(u64::from(at)).wrapping_sub(STACK_BYTES as u64), size)?
        }
    };
    machine.regs.put::<CHECKED>(dst, value);
    Ok(())
}

#[inline(always)]
fn store_frame<const CHECKED: bool, const N: usize>(
    machine: &mut Machine<'_, '_>,
    src: u8,
    at: u16,
) -> Result<(), Fault> {
    let value = machine.regs.get::<CHECKED>(src)?;
    machine.run.memory.put_in_frame::<N>(at, low_bytes(value)).ok_or(Fault::Unchecked)
}

#[inline(always)]
fn store<const CHECKED: bool, const N: usize>(
    machine: &mut Machine<'_, '_>,
    base: u8,
    src: u8,
    off: i16,
    size: Size,
) -> Result<(), Fault> {
    let value = machine.regs.get::<CHECKED>(src)?;
    let address = machine.regs.get::<CHECKED>(base)?.wrapping_add(off as u64);
    match machine.run.memory.near_mut::<N>(address) {
        Some(bytes) => *bytes = low_bytes(value),
        None => machine.run.memory.store(address, size, value)?,
    }
    Ok(())
}

fn atomic<const CHECKED: bool>(
    machine: &mut Machine<'_, '_>,
    op: AtomicOp,
    size: Size,
    (base, off): (u8, i16),
    src: u8,
) -> Result<(), Fault> {
    let address = machine.regs.get::<CHECKED>(base)?.wrapping_add(off as u64);
    let value = machine.regs.get::<CHECKED>(src)?;
    let r0 = if op == AtomicOp::CmpXchg { machine.regs.get::<CHECKED>(0)? } else { 0 };
    let old = machine.run.memory.change(address, size, |old| alu::atomic(op, size, old, value, r0))?;
    let source = Reg::new(src).ok_or(Fault::Unchecked)?;
    if let Some(fetched) = (Op::Atomic { op, size, base: source, off, src: source }).writes() {
        machine.regs.put::<CHECKED>(fetched.number(), old);
    }
    Ok(())
}

/// Calls a helper.
fn call<const CHECKED: bool>(machine: &mut Machine<'_, '_>, helper: u16, given: u8) -> Result<(), Fault> {
    machine.calls += 1;
    let (number, helper) = machine.image.helpers.at(helper).ok_or(Fault::Unchecked)?;
    machine.check_lock(*number)?;
    let given = if CHECKED { machine.regs.readable as u8 } else { given };
    let mut args = [0; 5];
    for (arg, register) in args.iter_mut().zip(1u8..) {
        if given >> register & 1 != 0 {
            *arg = machine.regs.values[usize::from(register)];
        } else if CHECKED && usize::from(register) <= helper.args {
            return Err(unreadable(register));
        }
    }
    let result = (helper.run)(machine.run, args)?;
    machine.give(result);
    Ok(())
}
