// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls, returns, and helpers that change the control flow.
//!
//! ```text
//!  call f      ──► pushes a frame; exit returns after the call
//!  call loop   ──► pushes a frame for the callback; each exit begins the next iteration, the last returns after it
//!  tail_call   ──► another program in the same frame; its exit returns where the first one's would have returned
//! ```
//!
//! A tail call in a function of a program leaves the program's own frames below; from there on depth counts anew.

use super::fault::Fault;
use super::initialised::{CALLEE_SAVED, CALLER_SAVED};
use super::memory::{CONTEXT_ADDRESS, frame_pointer, function_at, map_address, value_address};
use super::run::{FP, Machine};
use flowloom_isa::MapKind;
use flowloom_isa::insn::helper;
use flowloom_isa::limits::{MAX_FRAMES, MAX_LOOP_ITERATIONS, MAX_TAIL_CALLS};
use flowloom_isa::op::Reg;

/// The place of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) program: usize,
    pub(super) place: usize,
}

/// The caller's registers and place, restored after a call.
pub(super) struct Caller {
    /// The return address.
    back: Place,
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
    callback: Place,
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

/// -EINVAL
const INVALID: u64 = -22i64 as u64;
/// -E2BIG
const TOO_BIG: i32 = -7;

impl Machine<'_, '_> {
    /// A helper that is called while a lock is held is a fault.
    #[inline]
    pub(super) fn check_lock(&self, number: i32) -> Result<(), Fault> {
        match self.run.locked.filter(|_| number != helper::SPIN_UNLOCK) {
            None => Ok(()),
            Some(map) => {
                let helper = flowloom_isa::helpers::name_of(number).unwrap_or_default();
                Err(Fault::Locked { helper, map: self.run.memory.maps[map].def().name.clone() })
            }
        }
    }

    /// The effect of a helper call on registers: the result, and clobbered arguments.
    #[inline]
    pub(super) fn give(&mut self, result: u64) {
        self.regs.readable &= !CALLER_SAVED;
        self.regs.set(Reg::R0, result);
    }

    fn argument<const CHECKED: bool>(&self, number: u8) -> Result<u64, Fault> {
        self.regs.get::<CHECKED>(number)
    }

    /// Calls a function of the program, which returns to `back`.
    pub(super) fn call_local(&mut self, back: usize) -> Result<(), Fault> {
        let readable = self.regs.readable & CALLER_SAVED;
        self.enter(Place { program: self.program, place: back }, None)?;
        // A function gets its arguments and its own stack, and nothing else.
        self.regs.readable |= readable;
        Ok(())
    }

    /// Enters a function; it returns to `back`.
    fn enter(&mut self, back: Place, rounds: Option<Rounds>) -> Result<(), Fault> {
        let regs = &mut *self.regs;
        if self.callers.len() + 1 - regs.first_frame >= MAX_FRAMES {
            return Err(Fault::Depth { limit: MAX_FRAMES });
        }
        let mut saved = [0; 4];
        saved.copy_from_slice(&regs.values[6..FP]);
        let (readable, first_frame) = (regs.readable & CALLEE_SAVED, regs.first_frame);
        self.callers.push(Caller { back, saved, readable, first_frame, rounds });
        regs.readable = 0;
        self.run.memory.enter(self.callers.len());
        regs.set(Reg::FP, frame_pointer(self.callers.len()));
        Ok(())
    }

    /// Returns from a function; the place where its caller continues, or `None` at the end of the program.
    pub(super) fn exit<const CHECKED: bool>(&mut self) -> Result<Option<usize>, Fault> {
        let Some(mut caller) = self.callers.pop() else { return Ok(None) };
        let rounds = caller.rounds.take();
        let returned = if rounds.is_some() { self.regs.get::<CHECKED>(0)? } else { 0 };
        self.regs.values[6..FP].copy_from_slice(&caller.saved);
        self.regs.readable = self.regs.readable & 1 | caller.readable;
        self.regs.first_frame = caller.first_frame;
        self.run.memory.leave(self.callers.len());
        self.regs.set(Reg::FP, frame_pointer(self.callers.len()));
        let next = match rounds {
            None => caller.back,
            Some(rounds) => self.round(caller.back, rounds, returned != 0)?,
        };
        Ok(Some(self.go(next)))
    }

    fn go(&mut self, to: Place) -> usize {
        self.program = to.program;
        to.place
    }

    /// Calls a helper that changes the control flow; the place where the program continues. `back` is the place after
    /// the call.
    pub(super) fn control<const CHECKED: bool>(&mut self, number: i32, back: usize) -> Result<usize, Fault> {
        self.calls += 1;
        self.check_lock(number)?;
        let back = Place { program: self.program, place: back };
        let next = match number {
            helper::TAIL_CALL => self.tail_call::<CHECKED>(back),
            helper::LOOP => self.begin_loop::<CHECKED>(back),
            _ => self.begin_for_each::<CHECKED>(back),
        };
        next.map(|next| self.go(next))
    }

    /// Continues in another program, or after the call if there is none, without a result.
    fn tail_call<const CHECKED: bool>(&mut self, back: Place) -> Result<Place, Fault> {
        self.run.context("tail_call", self.argument::<CHECKED>(1)?)?;
        let map = self.argument::<CHECKED>(2)?;
        let map = self.run.map_of("tail_call", map, "a map of programs", |kind| kind == MapKind::ProgArray)?;
        let index = self.argument::<CHECKED>(3)? as u32;
        let sibling = self.run.memory.maps[map].member(&index.to_le_bytes());
        let program = sibling.map(|sibling| sibling as usize + 1);
        let executable = program.and_then(|program| self.image.programs.get(program)?.as_ref());
        let (Some(program), Some(_), true) = (program, executable, self.regs.tail_calls < MAX_TAIL_CALLS) else {
            self.regs.readable &= !(CALLER_SAVED | 1);
            return Ok(back);
        };
        let frame = self.callers.len();
        self.regs.tail_calls += 1;
        self.regs.first_frame = frame;
        self.regs.readable = 0;
        self.regs.set(Reg::R1, CONTEXT_ADDRESS);
        self.regs.set(Reg::FP, frame_pointer(frame));
        self.run.memory.enter(frame);
        Ok(Place { program, place: 0 })
    }

    fn callback<const CHECKED: bool>(&self, helper: &'static str) -> Result<Place, Fault> {
        let address = self.argument::<CHECKED>(2)?;
        let found = || format!("0x{address:x}");
        let (program, slot) = function_at(address).ok_or_else(|| Fault::Argument {
            helper,
            argument: 2,
            found: found(),
            expected: "the address of a function of the program",
        })?;
        let executable = self.image.programs.get(program).and_then(Option::as_ref);
        let place = executable.ok_or(Fault::Unchecked)?.decoded.place(slot);
        Ok(Place { program, place })
    }

    /// `loop(rounds, callback, context, flags)`, as the helper, which truncates the trip count to 32 bits, or as the
    /// inlined instructions, which compare all 64 and return the error as a 32-bit number [Linux kernel/bpf/verifier.c:
    /// inline_bpf_loop].
    fn begin_loop<const CHECKED: bool>(&mut self, back: Place) -> Result<Place, Fault> {
        let executable = self.image.programs.get(back.program).and_then(Option::as_ref);
        let call = self.image.at(Place { place: back.place - 1, ..back }).slot;
        let is_inlined = executable.is_some_and(|executable| executable.inlined.binary_search(&call).is_ok());
        let (count, too_big) = match self.argument::<CHECKED>(1)? {
            count if is_inlined => (count, TOO_BIG as u32 as u64),
            count => (count as u32 as u64, TOO_BIG as u64),
        };
        let flags = self.argument::<CHECKED>(4)?;
        let (callback, context) = (self.callback::<CHECKED>("loop")?, self.argument::<CHECKED>(3)?);
        let refused = match (flags, count) {
            (0, ..=MAX_LOOP_ITERATIONS) => None,
            (0, _) => Some(too_big),
            _ => Some(INVALID),
        };
        if let Some(error) = refused {
            self.give(error);
            return Ok(back);
        }
        let rounds = Rounds { callback, begun: 0, cursor: 0, over: Over::Numbers(count), context };
        self.round(back, rounds, false)
    }

    /// `for_each_map_elem(map, callback, context, flags)`: entries of a hash table are visited by ascending key, as
    /// bytes.
    fn begin_for_each<const CHECKED: bool>(&mut self, back: Place) -> Result<Place, Fault> {
        let fits = |kind: MapKind| kind.has_values() && kind != MapKind::LpmTrie;
        let map = self.argument::<CHECKED>(1)?;
        let map = self.run.map_of("for_each_map_elem", map, "a hash or an array", fits)?;
        let (callback, context) = (self.callback::<CHECKED>("for_each_map_elem")?, self.argument::<CHECKED>(3)?);
        if self.argument::<CHECKED>(4)? != 0 {
            self.give(INVALID);
            return Ok(back);
        }
        let over = match self.run.memory.maps[map].indices() {
            Some(count) => Over::Indices { map, count },
            None => Over::Entries { map, keys: self.run.memory.maps[map].keys() },
        };
        self.round(back, Rounds { callback, begun: 0, cursor: 0, over, context }, false)
    }

    /// Begins the next iteration, or returns after the call with their number.
    fn round(&mut self, back: Place, mut rounds: Rounds, stop: bool) -> Result<Place, Fault> {
        let frame = self.callers.len() + 1;
        let (callback, context, number) = (rounds.callback, rounds.context, rounds.begun);
        let run = &mut *self.run;
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
            self.give(rounds.begun);
            return Ok(back);
        };
        rounds.begun += 1;
        let count = if matches!(rounds.over, Over::Numbers(_)) { 2 } else { 4 };
        self.enter(back, Some(rounds))?;
        for (number, value) in (1..).zip(args).take(count) {
            self.regs.set(Reg::new(number).ok_or(Fault::Unchecked)?, value);
        }
        Ok(callback)
    }
}
