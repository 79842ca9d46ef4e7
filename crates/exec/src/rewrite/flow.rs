// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which registers and stack slots hold the context or a map: a forward dataflow analysis.
//!
//! Goal: find the loads whose address is the `xdp_md` context, and the map of every `redirect_map`.
//! The lattice of values:
//!
//! ```text
//!            Mixed                 may be the context or something else
//!    ┌─────────┼──────────┐
//!  Context   Stack      Maps       the context; an address in a frame; one of these maps
//!            └── Other ──┘         no context, no stack address, no map that an instruction refers to
//!                  │
//!              Constant            a constant
//! ```
//!
//! Steps: one state (11 registers, 64 slots of 8 bytes) before each instruction, joined at join points, to a fixed
//! point. Functions are entered with the joined arguments of their callers; their results are joined over their exits.
//! If a context is stored through an unknown address, every later load from the stack may be the context.
//!
//! Holds afterwards: a value that is not `Mixed` or `Context` is never the context in a program that the kernel's
//! verifier accepts. The verifier itself tracks the context through registers and aligned 8-byte slots only, which is
//! why this suffices.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_isa::Insn;
use flowloom_isa::insn::{SRC_REG, alu, call, class, imm64, jmp, mode, size};
use flowloom_isa::splice::jump_target;

use super::error::RewriteError;

const SLOTS: usize = 64;
const REGISTERS: usize = 11;
const FRAME: usize = 10;

/// The map that a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maps {
    /// The map with this index.
    One(usize),
    /// One of several, as a bit mask: those from [`LAST_BIT`] on share a bit, [`NO_MAP`] stands for maps that no
    /// instruction refers to.
    Some(u64),
}

const LAST_BIT: usize = 62;
const NO_MAP: u64 = 1 << 63;

impl Maps {
    fn bits(self) -> u64 {
        match self {
            Maps::One(index) => 1 << index.min(LAST_BIT),
            Maps::Some(bits) => bits,
        }
    }

    /// True if it may be the map with this index.
    pub(super) fn may_be(self, index: usize) -> bool {
        match self {
            Maps::One(one) => one == index,
            Maps::Some(bits) => bits >> index.min(LAST_BIT) & 1 != 0,
        }
    }

    /// True if it is certainly one for which [`Maps::may_be`] holds.
    pub(super) fn is_exact(self) -> bool {
        self.bits() & (NO_MAP | 1 << LAST_BIT) == 0 || matches!(self, Maps::One(_))
    }

    /// True if it may be a map that no instruction refers to: one from a map of maps.
    pub(super) fn may_be_unreferenced(self) -> bool {
        self.bits() & NO_MAP != 0
    }

    fn join(self, other: u64) -> Maps {
        Maps::Some(self.bits() | other)
    }
}

/// An abstract value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// Neither context, stack address nor map.
    Other,
    /// A constant: not an address; branches on it are decided.
    Constant(u64),
    /// The context plus an offset in bytes.
    Context(i64),
    /// An address in this function's frame, at this distance from its top; without one, an address in any frame, or
    /// something else that is not the context.
    Stack(Option<i64>),
    Maps(Maps),
    /// Possibly the context.
    Mixed,
}

impl Value {
    fn join(self, other: Value) -> Value {
        use Value::{Constant, Context, Maps, Mixed, Other, Stack};
        match (self, other) {
            (a, b) if a == b => a,
            (Constant(_), value) | (value, Constant(_)) => value.join_other(),
            (Mixed | Context(_), _) | (_, Mixed | Context(_)) => Mixed,
            (Stack(_), _) | (_, Stack(_)) => Stack(None),
            (Maps(a), Maps(b)) => Maps(a.join(b.bits())),
            (Maps(maps), Other) | (Other, Maps(maps)) => Maps(maps.join(NO_MAP)),
            (Other, Other) => Other,
        }
    }

    /// The join with a value of no interest.
    fn join_other(self) -> Value {
        if let Value::Constant(_) = self { Value::Other } else { self.join(Value::Other) }
    }

    fn may_be_context(self) -> bool {
        matches!(self, Value::Context(_) | Value::Mixed)
    }

    /// This value as seen from another function's frame.
    fn in_other_frame(self) -> Value {
        if let Value::Stack(_) = self { Value::Stack(None) } else { self }
    }

    fn plus(self, distance: Option<i64>) -> Value {
        match (self, distance) {
            (Value::Context(at), Some(d)) => at.checked_add(d).map_or(Value::Mixed, Value::Context),
            (Value::Stack(Some(at)), Some(d)) => Value::Stack(at.checked_add(d)),
            (Value::Stack(_), _) => Value::Stack(None),
            (Value::Context(_) | Value::Mixed, _) => Value::Mixed,
            (Value::Other | Value::Constant(_) | Value::Maps(_), _) => Value::Other,
        }
    }
}

/// The state before an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    registers: [Value; REGISTERS],
    slots: [Value; SLOTS],
}

impl State {
    fn entry(arguments: [Value; 5]) -> State {
        let mut registers = [Value::Other; REGISTERS];
        registers[1..6].copy_from_slice(&arguments);
        registers[FRAME] = Value::Stack(Some(0));
        State { registers, slots: [Value::Other; SLOTS] }
    }

    /// Joins with the state of another edge; returns whether that changed anything.
    fn join(&mut self, other: &State) -> bool {
        let mut changed = false;
        let mine = self.registers.iter_mut().chain(&mut self.slots);
        for (a, b) in mine.zip(other.registers.iter().chain(&other.slots)) {
            let joined = a.join(*b);
            changed |= joined != *a;
            *a = joined;
        }
        changed
    }

    fn get(&self, register: u8) -> Value {
        self.registers.get(usize::from(register)).copied().unwrap_or(Value::Other)
    }

    fn set(&mut self, register: u8, value: Value) {
        if let Some(place) = self.registers[..FRAME].get_mut(usize::from(register)) {
            *place = value;
        }
    }

    fn arguments(&self) -> [Value; 5] {
        std::array::from_fn(|i| self.registers[1 + i].in_other_frame())
    }
}

/// The slots that `bytes` bytes at `at` touch, and whether the access is one whole slot.
fn touched(at: i64, bytes: i64) -> (std::ops::Range<usize>, bool) {
    let low = at.saturating_add(8 * SLOTS as i64);
    let high = low.saturating_add(bytes);
    if low < 0 || high > 8 * SLOTS as i64 {
        return (0..0, false);
    }
    let (low, high) = (low as usize, high as usize);
    (low / 8..high.div_ceil(8), bytes == 8 && low.is_multiple_of(8))
}

pub(super) fn access_bytes(insn: Insn) -> i64 {
    match insn.code & 0x18 {
        size::B => 1,
        size::H => 2,
        size::W => 4,
        _ => 8,
    }
}

/// The result of the analysis.
pub(super) struct Flow {
    states: Vec<Option<State>>,
}

impl Flow {
    /// Analyses `insns`.
    ///
    /// # Errors
    /// A jump leaves the program.
    pub(super) fn of(insns: &[Insn]) -> Result<Flow, RewriteError> {
        let mut spills = Spills::default();
        loop {
            let mut pass = Pass::new(insns, spills)?;
            pass.run()?;
            if pass.spills == spills {
                return Ok(Flow { states: pass.states });
            }
            // Facts from before the spill was seen may be unsound: restart with it.
            spills = pass.spills;
        }
    }

    /// The value of `register` before the instruction at `at`; [`Value::Mixed`] if it is unreachable.
    pub(super) fn before(&self, at: usize, register: u8) -> Value {
        self.states.get(at).and_then(Option::as_ref).map_or(Value::Mixed, |state| state.get(register))
    }

    /// The lowest address of a frame, from its top, that any instruction has in a register or reaches from `r10`.
    pub(super) fn stack_depth(&self, insns: &[Insn]) -> i64 {
        let registers = self.states.iter().flatten().flat_map(|state| &state.registers[..FRAME]);
        let held = registers.map(|value| if let Value::Stack(Some(at)) = value { *at } else { 0 });
        let accesses = insns.iter().zip(&self.states).filter_map(|(insn, state)| {
            let base = match insn.class() {
                class::LDX => insn.src,
                class::ST | class::STX => insn.dst,
                _ => return None,
            };
            match state.as_ref()?.get(base) {
                Value::Stack(Some(at)) => Some(at.saturating_add(insn.off.into())),
                _ => None,
            }
        });
        held.chain(accesses).min().unwrap_or(0).min(0)
    }

    pub(super) fn reached(&self, at: usize) -> bool {
        self.states.get(at).is_some_and(Option::is_some)
    }
}

/// Facts about stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Spills {
    /// A context was stored in some frame.
    context: bool,
    /// A context, a stack address or a map was stored through an unknown address.
    wild: bool,
}

struct Pass<'a> {
    insns: &'a [Insn],
    states: Vec<Option<State>>,
    work: BTreeSet<usize>,
    /// By first instruction, the functions with their results and callers.
    functions: BTreeMap<usize, Function>,
    spills: Spills,
}

#[derive(Default)]
struct Function {
    returns: Option<Value>,
    callers: BTreeSet<usize>,
}

impl<'a> Pass<'a> {
    fn new(insns: &'a [Insn], spills: Spills) -> Result<Pass<'a>, RewriteError> {
        let mut functions = BTreeMap::from([(0, Function::default())]);
        let mut callbacks = Vec::new();
        let mut at = 0;
        while let Some(insn) = insns.get(at) {
            if insn.class() == class::JMP && insn.op() == jmp::CALL && insn.src == call::LOCAL {
                functions.entry(jump_target(at, *insn, insns.len())?).or_default();
            } else if insn.is_wide() && insn.src == imm64::FUNC {
                let entry = jump_target(at, *insn, insns.len())?;
                functions.entry(entry).or_default();
                callbacks.push(entry);
            }
            at += insn.slots();
        }
        let mut pass = Pass { insns, states: vec![None; insns.len()], work: BTreeSet::new(), functions, spills };
        pass.reach(0, &State::entry([Value::Context(0), Value::Other, Value::Other, Value::Other, Value::Other]));
        for entry in callbacks {
            // A helper calls it, with addresses in its caller's frame but never with the context.
            pass.reach(entry, &State::entry([Value::Stack(None); 5]));
        }
        Ok(pass)
    }

    fn reach(&mut self, at: usize, state: &State) {
        match self.states.get_mut(at) {
            // Falling off the end is refused by the verifier.
            None => {}
            Some(place @ None) => {
                *place = Some(state.clone());
                self.work.insert(at);
            }
            Some(Some(known)) => {
                let changed = known.join(state);
                self.work.extend(changed.then_some(at));
            }
        }
    }

    fn run(&mut self) -> Result<(), RewriteError> {
        while let Some(at) = self.work.pop_first() {
            let Some(state) = self.states[at].clone() else { continue };
            self.step(at, state)?;
        }
        Ok(())
    }

    fn step(&mut self, at: usize, mut state: State) -> Result<(), RewriteError> {
        let insn = self.insns[at];
        let next = at + insn.slots();
        match insn.class() {
            class::JMP | class::JMP32 => return self.jump(at, insn, state),
            class::LD if insn.is_wide() => {
                let map = usize::try_from(insn.imm).ok().filter(|_| insn.src == imm64::MAP);
                state.set(insn.dst, map.map_or(Value::Other, |index| Value::Maps(Maps::One(index))));
            }
            class::LD => state.set(0, Value::Other),
            class::LDX => {
                let value = self.loaded(&state, insn);
                state.set(insn.dst, value);
            }
            class::ST => self.store(&mut state, insn, Value::Other),
            class::STX if insn.code & 0xe0 == mode::ATOMIC => {
                self.store(&mut state, insn, Value::Other);
                // Fetching operations return the old value in the source register or r0.
                state.set(insn.src, Value::Other);
                if insn.imm & 0xf1 == 0xf1 {
                    state.set(0, Value::Other);
                }
            }
            class::STX => {
                let value = if access_bytes(insn) == 8 { state.get(insn.src) } else { Value::Other };
                self.store(&mut state, insn, value);
            }
            class::ALU64 => {
                let value = computed(&state, insn);
                state.set(insn.dst, value);
            }
            class::ALU if insn.op() == alu::MOV && insn.code & SRC_REG == 0 => {
                state.set(insn.dst, Value::Constant(u64::from(insn.imm as u32)));
            }
            _ => state.set(insn.dst, Value::Other),
        }
        self.reach(next, &state);
        Ok(())
    }

    fn jump(&mut self, at: usize, insn: Insn, mut state: State) -> Result<(), RewriteError> {
        let wide_class = insn.class() == class::JMP;
        match insn.op() {
            jmp::CALL if wide_class => {
                let mut returned = Value::Other;
                if insn.src == call::LOCAL {
                    let entry = jump_target(at, insn, self.insns.len())?;
                    self.reach(entry, &State::entry(state.arguments()));
                    let function = self.functions.entry(entry).or_default();
                    function.callers.insert(at);
                    match function.returns {
                        Some(value) => returned = value.in_other_frame(),
                        // Nothing after the call is reached until the function returns.
                        None => return Ok(()),
                    }
                }
                for register in 1..=5 {
                    state.set(register, Value::Other);
                }
                state.set(0, returned);
                self.reach(at + 1, &state);
            }
            jmp::EXIT if wide_class => {
                if let Some((_, function)) = self.functions.range_mut(..=at).next_back() {
                    let value = state.get(0);
                    let joined = function.returns.map_or(value, |known| known.join(value));
                    if function.returns != Some(joined) {
                        function.returns = Some(joined);
                        self.work.extend(function.callers.iter().copied());
                    }
                }
            }
            jmp::JA => self.reach(jump_target(at, insn, self.insns.len())?, &state),
            _ => {
                self.reach(jump_target(at, insn, self.insns.len())?, &state);
                self.reach(at + 1, &state);
            }
        }
        Ok(())
    }

    fn loaded(&self, state: &State, insn: Insn) -> Value {
        if access_bytes(insn) != 8 || insn.code & 0xe0 != mode::MEM {
            return Value::Other;
        }
        match (state.get(insn.src), self.spills) {
            (Value::Stack(Some(_)), Spills { wild: true, context: true }) => Value::Mixed,
            (Value::Stack(Some(at)), Spills { wild, .. }) => {
                let value = match touched(at.saturating_add(i64::from(insn.off)), 8) {
                    (slots, true) => state.slots[slots.start],
                    _ => Value::Other,
                };
                if wild { value.join(Value::Stack(None)) } else { value }
            }
            (Value::Stack(None), Spills { context: true, .. }) => Value::Mixed,
            // Possibly an address in a frame.
            (Value::Stack(None), _) => Value::Stack(None),
            // Pointers are only stored in frames.
            _ => Value::Other,
        }
    }

    fn store(&mut self, state: &mut State, insn: Insn, value: Value) {
        // Helpers and other frames write to slots, too: a constant in one may change.
        let value = if let Value::Constant(_) = value { Value::Other } else { value };
        self.spills.context |= value.may_be_context();
        if let Value::Stack(Some(at)) = state.get(insn.dst) {
            let (slots, whole) = touched(at.saturating_add(i64::from(insn.off)), access_bytes(insn));
            for slot in slots {
                state.slots[slot] = if whole { value } else { Value::Other };
            }
        } else {
            self.spills.wild |= value.may_be_context() || matches!(value, Value::Stack(_) | Value::Maps(_));
        }
    }
}

fn computed(state: &State, insn: Insn) -> Value {
    let register = insn.code & SRC_REG != 0;
    let constant = i64::from(insn.imm);
    let (dst, src) = (state.get(insn.dst), state.get(insn.src));
    match insn.op() {
        alu::MOV if register && insn.off == 0 => src,
        alu::MOV if !register => Value::Constant(constant as u64),
        alu::ADD if !register => dst.plus(Some(constant)),
        alu::SUB if !register => dst.plus(Some(-constant)),
        alu::ADD => dst.plus(None).join(src.plus(None)),
        alu::SUB => dst.plus(None),
        _ => Value::Other,
    }
}
