// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Callbacks: functions of the program that a helper calls repeatedly. The calls are unrolled.
//!
//! ```text
//!   call loop(3, f, c, 0)      f(0, c) ─► 0? ─► f(1, c) ─► 0? ─► f(2, c) ─► after the call, with 3
//!                                         └─► after the call, with 1
//! ```
//!
//! Iterations are unrolled like those of loops: up to the maximum, each under the condition that its index is below the
//! count.

use flowloom_isa::insn::helper;
use flowloom_isa::op::{Reg, Size};
use flowloom_isa::{MapDef, MapKind};

use super::builder::Builder;
use super::state::{Frame, Iterations, Place, Region, State, Value, address, leak, places, set};
use crate::bdd::Bdd;
use crate::dataflow::{Argument, Pattern};
use crate::graph::{Compare, Effect, Id};
use crate::refusal::Reason;

/// The most iterations of one call.
const MAX_UNROLLED: u64 = 1024;

pub(super) fn calls_back(number: i32) -> bool {
    matches!(number, helper::LOOP | helper::FOR_EACH_MAP_ELEM)
}

impl Builder<'_> {
    /// Begins the iterations of a helper call; afterwards the program continues at `back`.
    pub(super) fn begin_rounds(
        &mut self,
        path: Bdd,
        state: State,
        (number, back): (i32, usize),
        loops: &[(u32, u32)],
        position: &[u32],
    ) -> Result<(), Reason> {
        let flags = self.number_argument(&state, 4)?;
        if self.graph.as_const(flags) != Some(0) {
            return Err(Reason::Flags);
        }
        let callback = places(self.argument(&state, 2))?;
        let [(_, Place { region: Region::Function(entry), .. })] = &*callback else {
            return Err(Reason::SeveralFunctions);
        };
        let (count, map) = match number {
            helper::LOOP => (self.number_argument(&state, 1)?, None),
            _ => {
                let map = self.array(&state)?;
                let entries = self.program.maps.get(map as usize).map_or(0, |def| def.max_entries);
                (self.graph.number(entries.into(), 64), Some(map))
            }
        };
        let most = self.possible(count).and_then(|all| all.last().copied());
        let most = most.filter(|most| *most <= MAX_UNROLLED).ok_or(Reason::Iterations { most: MAX_UNROLLED })?;
        let context = self.argument(&state, 3);
        let (position, loops) = (position.to_vec(), loops.to_vec());
        let iterations = Iterations { entry: *entry as usize, begun: 0, count, most, context, map, position, loops };
        self.next_iteration(path, state, iterations, back)
    }

    /// The array that is iterated over; the entries of other maps are not always present.
    fn array(&mut self, state: &State) -> Result<u32, Reason> {
        let own = places(self.argument(state, 1))?;
        let [(_, Place { region: Region::Map(map), .. })] = &*own else {
            return Err(Reason::SeveralMaps { found: own.len(), most: 1 });
        };
        let is_array = |def: &MapDef| matches!(def.kind, MapKind::Array | MapKind::PerCpuArray);
        match self.program.maps.get(*map as usize) {
            Some(def) if is_array(def) => Ok(*map),
            Some(def) => Err(Reason::Entries(def.name.clone())),
            None => Err(leak()),
        }
    }

    /// Begins the next iteration if there is one, and continues after the call otherwise.
    fn next_iteration(
        &mut self,
        path: Bdd,
        mut state: State,
        iterations: Iterations,
        back: usize,
    ) -> Result<(), Reason> {
        let begun = self.graph.number(iterations.begun, 64);
        let is_more = self.compared_anywhere(Compare::Below, begun, iterations.count);
        let is_more =
            if iterations.begun < iterations.most { self.conditions.of(&self.graph, is_more) } else { Bdd::FALSE };
        let over = self.conditions.not(is_more);
        let (again, over) = (self.conditions.and(path, is_more), self.conditions.and(path, over));
        self.end_iterations(over, state.clone(), &iterations, back)?;
        if again == Bdd::FALSE {
            return Ok(());
        }
        let mut frame = Frame::new(iterations.entry, back);
        let iteration = Value::Number(begun);
        let arguments = match iterations.map {
            None => vec![iteration, iterations.context.clone()],
            Some(map) => {
                let number = iterations.begun as u32;
                let (key, value) = (address(Place::of(Region::Key(number))), self.entry(again, map, number));
                vec![address(Place::of(Region::Map(map))), key, value, iterations.context.clone()]
            }
        };
        frame.registers.iter_mut().skip(1).zip(arguments).for_each(|(register, value)| *register = value);
        frame.position = [&iterations.position[..], &[iterations.begun as u32]].concat();
        frame.iterations = iterations.loops.clone();
        let entry = iterations.entry;
        frame.again = Some(Iterations { begun: iterations.begun + 1, ..iterations });
        state.frames.push(frame);
        self.arrive(again, state, entry, &[])
    }

    /// The value at an index of an array.
    fn entry(&mut self, path: Bdd, map: u32, number: u32) -> Value {
        let bit = self.conditions.node(&mut self.graph, path);
        let key = number.to_le_bytes().map(|byte| self.graph.number(byte.into(), 8));
        let arguments = vec![Argument::Map(map), Argument::Read(key.len() as u16)];
        let pattern = self.pattern(Pattern { helper: helper::MAP_LOOKUP_ELEM, arguments });
        let args = [&[bit][..], &key].concat();
        let call = self.graph.effect(Effect::Call { helper: helper::MAP_LOOKUP_ELEM, pattern }, args, 64);
        address(Place::of(Region::Value { map, call }))
    }

    /// Ends an iteration: a result of 0 means that the callback is called again.
    pub(super) fn end_round(&mut self, path: Bdd, state: State, returned: Value, frame: Frame) -> Result<(), Reason> {
        let Some(iterations) = frame.again else { return Err(Reason::Unseen(self.at)) };
        let returned = self.as_number(returned)?;
        let zero = self.graph.number(0, 64);
        let is_zero = self.graph.compare(Compare::Equal, returned, zero);
        let goes_on = self.conditions.of(&self.graph, is_zero);
        let stops = self.conditions.not(goes_on);
        let (goes_on, stops) = (self.conditions.and(path, goes_on), self.conditions.and(path, stops));
        self.end_iterations(stops, state.clone(), &iterations, frame.back)?;
        self.next_iteration(goes_on, state, iterations, frame.back)
    }

    /// Continues after the call, with the number of iterations as its result.
    fn end_iterations(
        &mut self,
        path: Bdd,
        mut state: State,
        iterations: &Iterations,
        back: usize,
    ) -> Result<(), Reason> {
        for number in 1..=5 {
            state.frame_mut().registers[number] = Value::Nothing;
        }
        let begun = self.graph.number(iterations.begun, 64);
        set(&mut state, Reg::R0, Value::Number(begun));
        self.arrive(path, state, back, &iterations.loops)
    }

    /// Bytes of the key that the callback gets.
    pub(super) fn key_bytes(&mut self, number: u32, at: i64, len: usize) -> Vec<Id> {
        let key = number.to_le_bytes();
        let byte = |at: i64| usize::try_from(at).ok().and_then(|at| key.get(at)).copied().unwrap_or(0);
        (at..at + len as i64).map(|at| self.graph.number(byte(at).into(), Size::B.bytes() as u16 * 8)).collect()
    }
}
