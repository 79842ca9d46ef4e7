// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Iterations of callbacks, and loops that only `may_goto` ends.
//!
//! Their trip count is unknown, so the values that an iteration changes are widened until one begins within the state
//! of an earlier one:
//!
//! ```text
//!   iteration 1   sum = 0             saved
//!   iteration 2   sum = 0..=255       not within: sum changed and is not precise: widened to any
//!   iteration 3   sum = any           within: no iteration is different from here on
//! ```

use super::number::Range;
use super::path::{Begun, Next, Path};
use super::refusal::Unsafe;
use super::state::State;
use super::value::{Address, Cause, MapId, Number, Region, Value};
use super::walk::Walk;
use flowloom_isa::limits::MAX_LOOP_ITERATIONS;
use flowloom_isa::op::Reg;

/// The most earlier iterations that one is compared with.
const ITERATIONS_COMPARED: usize = 4;

impl Path {
    /// The helper call comes to the next iteration.
    pub(super) fn begin_next_iteration(&mut self) {
        self.iterations += 1;
        self.is_again = true;
    }

    /// The latest iterations of the current instruction, the earliest first.
    fn begun_here(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let here = (self.state.at, self.depth());
        let begun = self.begun.iter().enumerate().filter(move |(_, begun)| (begun.at, begun.depth) == here);
        begun.map(|(place, begun)| (place, begun.state))
    }
}

impl Walk<'_> {
    /// A call of `loop` or `for_each_map_elem`: the callback runs, or there are no more iterations.
    pub(super) fn rounds_begin(
        &mut self,
        path: &mut Path,
        callback: usize,
        map: Option<MapId>,
    ) -> Result<Next, Unsafe> {
        let at = path.state.at;
        let register = |number: usize| path.state.frame().registers[number];
        let (count, context) = (register(1), register(3));
        let mut after = path.clone();
        self.clobber(&mut after);
        let iterations = self.fresh(Range::ANY);
        after.set(Reg::R0, iterations);
        // These iterations are over: another call begins new ones.
        after.begun.retain(|begun| (begun.at, begun.depth) != (at, path.depth()));
        let mut state = after.state.clone();
        state.at = at + 1;
        self.fork(&after, state, at, false)?;
        self.turn(path, at, true);
        if self.settled_in(path).is_some() {
            return Ok(Next::End);
        }
        let arguments = match map {
            None => {
                let most =
                    count.number().map_or(MAX_LOOP_ITERATIONS, |count| count.range.umax().min(MAX_LOOP_ITERATIONS));
                if let Value::Number(count) = count {
                    self.origins.mark(count.origin);
                }
                if most == 0 {
                    return Ok(Next::End);
                }
                vec![self.fresh(Range::unsigned(0, most - 1)), context]
            }
            Some(map) => {
                let value = Address { id: self.id(), ..Address::new(Region::Value(map)) };
                let key = Region::Key { map, frame: path.state.frames.len() as u8 };
                let addresses = [Address::new(Region::Map(map)), Address::new(key), value];
                addresses.map(Value::Address).into_iter().chain([context]).collect()
            }
        };
        self.enter(path, at, &arguments, true)?;
        Ok(Next::At(callback))
    }

    /// The end of an iteration: the helper begins the next one, or returns.
    pub(super) fn round_ends(&mut self, path: &mut Path, returned: &Value) -> Result<Next, Unsafe> {
        if returned.number().is_none_or(|number| number.range.umax() > 1) {
            return Err(Unsafe::Callback { found: self.text_of(returned) });
        }
        if let Value::Number(number) = returned {
            self.origins.mark(number.origin);
        }
        let before = path.state.frame().callback.unwrap_or(0);
        if let Some(held) = path.state.held.get(before) {
            return Err(Unsafe::NotReleased { what: "a record", acquired: held.insn });
        }
        // No lock was held at its beginning: helpers are not called with one.
        if let Some(locked) = path.state.locked {
            return Err(Unsafe::NotReleased { what: "a lock", acquired: locked.insn });
        }
        let call = path.state.frame().call;
        // The key that the callback got is no longer valid.
        let (at, depth) = (path.state.at, path.depth());
        let is_key = |to| matches!(to, Region::Key { frame, .. } if usize::from(frame) == depth);
        path.state.invalidate(&mut self.origins, Cause::CallbackEnded, at, is_key);
        // The argument registers are unchanged: only the helper has seen them since.
        self.leave(path);
        path.begin_next_iteration();
        Ok(Next::At(call))
    }

    /// The earlier iteration that this one is within; if there is none, widens the values that changed.
    pub(super) fn settled_in(&mut self, path: &mut Path) -> Option<u32> {
        let earlier: Vec<u32> = path.begun_here().map(|(_, state)| state).collect();
        let same = earlier.iter().copied().find(|number| self.begins_within(*number, &path.state));
        if let Some(number) = same {
            self.returns_to(number, path);
            return Some(number);
        }
        if let Some(last) = earlier.last().and_then(|number| self.kept_state(*number)) {
            self.widen(&last, &mut path.state);
        }
        self.keep_iteration(path);
        None
    }

    /// Saves the state at the beginning of an iteration.
    fn keep_iteration(&mut self, path: &mut Path) {
        self.keep(path, true);
        let mut here = path.begun_here();
        let oldest = here.next().map(|(place, _)| place);
        if here.count() + 1 >= ITERATIONS_COMPARED {
            oldest.map(|place| path.begun.remove(place));
        }
        path.begun.push(Begun { at: path.state.at, state: path.parent, depth: path.depth() });
    }

    /// Widens numbers that an iteration changed and that are not precise so far.
    fn widen(&mut self, before: &State, now: &mut State) {
        let frames = before.frames.iter().zip(&mut now.frames);
        for (before, now) in frames {
            for (before, now) in before.registers.iter().zip(&mut now.registers) {
                self.widen_value(before, now);
            }
            let changed: Vec<usize> = (0..now.stack.depth())
                .filter(|number| match (before.stack.slot(*number).whole(), now.stack.slot(*number).whole()) {
                    (Some((Value::Number(a), x)), Some((Value::Number(b), y))) => x == y && a.range != b.range,
                    _ => false,
                })
                .collect();
            for number in changed {
                let (old, mut new) = (before.stack.slot(number).value, now.stack.slot(number).value);
                let len = now.stack.slot(number).whole().map_or(8, |(_, len)| len);
                self.widen_value(&old, &mut new);
                if let Value::Number(number) = &mut new {
                    number.range = number.range.meet(&of_len(len)).unwrap_or(of_len(len));
                }
                now.stack.store(-8 * (number as i64 + 1), len, new);
            }
        }
    }

    fn widen_value(&mut self, before: &Value, now: &mut Value) {
        if let (Value::Number(old), Value::Number(new)) = (before, &now)
            && old.range != new.range
            && !self.origins.any_copy_matters(new.origin)
        {
            *now = Value::Number(Number::new(Range::ANY, self.origins.fresh()));
        }
    }
}

/// Any number of `len` bytes.
fn of_len(len: usize) -> Range {
    if len >= 8 { Range::ANY } else { Range::unsigned(0, (1 << (8 * len)) - 1) }
}
