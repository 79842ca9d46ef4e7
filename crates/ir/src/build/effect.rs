// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Helper calls that become effects: their signatures, and how arguments are gathered.

use std::collections::BTreeMap;

use flowloom_isa::MapDef;
use flowloom_isa::helpers::{self, Parameter, Usage};
use flowloom_isa::insn::helper;
use flowloom_isa::op::Size;

use super::builder::{Builder, MAX_BYTES, MAX_CHOICES};
use super::state::{Place, Places, Region, State, Value, address, leak, mixed, places};
use crate::access::is_trace;
use crate::bdd::Bdd;
use crate::dataflow::{Argument, Pattern};
use crate::graph::{Effect, Id, Kind};
use crate::refusal::Reason;
use crate::sources::{Source, sources};

/// The arguments of an effect while they are gathered.
struct Given {
    pattern: Pattern,
    args: Vec<Id>,
    /// The memory that it may write, with lengths in bytes.
    changed: Vec<(Places, usize)>,
}

impl Given {
    fn give(&mut self, argument: Argument, nodes: &[Id]) {
        self.pattern.arguments.push(argument);
        self.args.extend(nodes);
    }

    /// Adds the bounds of the packet.
    fn give_ends(&mut self, state: &State) {
        self.give(Argument::Head, &[state.head]);
        self.give(Argument::Tail, &[state.tail]);
        state.kept.into_iter().for_each(|kept| self.give(Argument::Kept, &[kept]));
    }

    fn give_packet(&mut self, state: &State) {
        self.give_ends(state);
        for overlay in &state.overlays {
            self.give(Argument::Base, &[overlay.base]);
            overlay.bytes.iter().for_each(|(at, laid)| self.give(Argument::Laid(*at), &[laid.when, laid.byte]));
        }
        state.packet.iter().for_each(|(at, byte)| self.give(Argument::Byte(*at), &[*byte]));
    }

    /// The bytes of memory given so far.
    fn bytes(&self) -> usize {
        let bytes = self.pattern.arguments.iter().map(|argument| match argument {
            Argument::Read(bytes) | Argument::Changed(bytes) => usize::from(*bytes),
            Argument::Stored(_) => 1,
            _ => 0,
        });
        bytes.sum()
    }
}

/// A memory argument whose length is still to come: its place, and whether it may be written.
struct Waiting {
    value: Value,
    place: usize,
    changes: bool,
}

impl Builder<'_> {
    /// Calls a helper that is an effect.
    ///
    /// Where paths give it different maps or records, it is called once for each, under the condition of its paths:
    ///
    /// ```text
    ///   r1 = a or b, by v4                    v9  = call map_lookup_elem if v4     (a, …)
    ///   call map_lookup_elem        becomes   v10 = call map_lookup_elem if not v4 (b, …)
    ///                                         r0  = v9 or v10, by v4
    /// ```
    pub(super) fn effect(&mut self, path: Bdd, state: &mut State, number: i32) -> Result<Value, Reason> {
        let sources = sources(number).ok_or_else(|| Reason::Helper(helpers::display_name(number)))?;
        let sources = sources.as_slice();
        if is_trace(number) {
            return self.trace(path, state, (number, sources));
        }
        let is_chosen = |source: &Source| matches!(source, Source::Register(Parameter::Map(..) | Parameter::Record));
        let chooses = sources.iter().position(is_chosen);
        let choices = match chooses.map(|place| self.argument(state, place as u8 + 1)) {
            Some(Value::Address(choices)) if choices.len() > 1 => choices,
            _ => return self.effect_within((path, path), state, (number, sources), None),
        };
        if choices.len() > MAX_CHOICES {
            return Err(Reason::SeveralMaps { found: choices.len(), most: MAX_CHOICES });
        }
        let mut answers: Vec<(Bdd, Value)> = Vec::new();
        let mut rest = path;
        for (condition, place) in choices.iter() {
            let here = self.conditions.and(rest, *condition);
            if here == Bdd::FALSE {
                continue;
            }
            let not = self.conditions.not(*condition);
            rest = self.conditions.and(rest, not);
            // The other arguments are simplified under the condition of these paths.
            let outer = std::mem::replace(&mut self.path, here);
            let answer = self.effect_within((path, here), state, (number, sources), Some(*place));
            self.path = outer;
            answers.push((*condition, answer?));
        }
        if answers.is_empty() {
            return Err(mixed());
        }
        let answers: Vec<(Bdd, &Value)> = answers.iter().map(|(condition, value)| (*condition, value)).collect();
        Ok(self.joined_value(&answers))
    }

    /// Writes text to the kernel's trace log. If an argument has no form in dataflow (an address, a text known only at
    /// run time), the call keeps no arguments, and its value may not be used.
    fn trace(&mut self, path: Bdd, state: &mut State, (number, sources): (i32, &[Source])) -> Result<Value, Reason> {
        match self.effect_within((path, path), state, (number, sources), None) {
            Err(Reason::AddressAsNumber | Reason::Mixed | Reason::Length { .. } | Reason::ManyBytes { .. }) => {}
            answer => return answer,
        }
        let bit = self.conditions.node(&mut self.graph, path);
        let pattern = self.pattern(Pattern { helper: number, arguments: Vec::new() });
        Ok(Value::Number(self.graph.effect(Effect::Call { helper: number, pattern }, vec![bit], 64)))
    }

    /// One call on the paths `here` out of those of `path`; `choice` is the map or record among those that paths choose
    /// from.
    fn effect_within(
        &mut self,
        (path, here): (Bdd, Bdd),
        state: &mut State,
        (number, sources): (i32, &[Source]),
        choice: Option<Place>,
    ) -> Result<Value, Reason> {
        let bit = self.conditions.node(&mut self.graph, here);
        let pattern = Pattern { helper: number, arguments: Vec::new() };
        let mut given = Given { pattern, args: vec![bit], changed: Vec::new() };
        let mut map: Option<(u32, MapDef)> = None;
        let mut waiting: Option<Waiting> = None;
        let mut record: Option<Id> = None;
        for (register, source) in (1..).zip(sources) {
            let value = match choice {
                Some(place) if matches!(source, Source::Register(Parameter::Map(..) | Parameter::Record)) => {
                    address(place)
                }
                _ => self.argument(state, register),
            };
            let parameter = match source {
                Source::Register(parameter) => parameter,
                Source::Optional => {
                    let number = match value {
                        Value::Nothing => self.graph.number(0, 64),
                        _ => self.number_argument(state, register)?,
                    };
                    given.give(Argument::Number, &[number]);
                    continue;
                }
                Source::Bounds => {
                    given.give_ends(state);
                    continue;
                }
                Source::Packet => {
                    given.give_packet(state);
                    continue;
                }
            };
            match parameter {
                Parameter::Number | Parameter::ConstantLength => {
                    given.give(Argument::Number, &[self.number_argument(state, register)?])
                }
                Parameter::Context => given.give(Argument::Context, &[]),
                Parameter::Map(..) => map = Some(self.map(value, &mut given)?),
                Parameter::Key | Parameter::Value => {
                    let (_, def) = map.as_ref().expect("the map of a key or a value is an earlier argument");
                    let is_key = matches!(parameter, Parameter::Key);
                    let len = if is_key { def.key_bytes } else { def.value_bytes } as usize;
                    given.pattern.arguments.push(Argument::Read(len as u16));
                    self.memory(here, state, value, len, &mut given)?;
                }
                Parameter::Record => {
                    let own = places(value)?;
                    let [(_, Place { region: Region::Value { call, .. }, offset: 0, moved: None })] = &*own else {
                        return Err(Reason::SeveralRecords);
                    };
                    given.give(Argument::Number, &[*call]);
                    record = Some(*call);
                }
                Parameter::Sized(usage) => {
                    let changes = *usage != Usage::Read;
                    waiting = Some(Waiting { value, place: given.pattern.arguments.len(), changes });
                    given.pattern.arguments.push(Argument::Read(0));
                }
                Parameter::Fixed { bytes: len, .. } => {
                    given.pattern.arguments.push(Argument::Changed(*len as u16));
                    given.changed.push((places(value.clone())?, *len));
                    self.memory(here, state, value, *len, &mut given)?;
                }
                Parameter::Text => {
                    let bytes = self.text(&places(value)?)?;
                    given.give(Argument::Read(bytes.len() as u16), &bytes);
                }
                Parameter::Length { .. } => {
                    let length = self.number_argument(state, register)?;
                    let constant = self.graph.as_const(length);
                    let len = constant.ok_or(Reason::Length { most: MAX_BYTES })? as usize;
                    if let Some(Waiting { value, place, changes }) = waiting.take() {
                        if changes && len > 0 {
                            given.changed.push((places(value.clone())?, len));
                        }
                        let argument = if changes { Argument::Changed } else { Argument::Read };
                        given.pattern.arguments[place] = argument(len as u16);
                        self.memory(here, state, value, len, &mut given)?;
                    }
                    given.give(Argument::Number, &[length]);
                }
                // Helpers with these have no dataflow.
                Parameter::Any | Parameter::Lock | Parameter::Callback | Parameter::CallbackContext => {
                    return Err(Reason::Helper(helpers::display_name(number)));
                }
            }
        }
        if let Some(record) = record {
            for (argument, nodes) in self.record_arguments(state, record) {
                given.give(argument, &nodes);
            }
            if here == path {
                state.records.remove(&record);
            }
        }
        let found = given.bytes();
        if found > MAX_BYTES {
            return Err(Reason::ManyBytes { found, most: MAX_BYTES });
        }
        let pattern = self.pattern(given.pattern);
        let call = self.graph.effect(Effect::Call { helper: number, pattern }, given.args, 64);
        self.keep_changed((path, here), state, call, &given.changed)?;
        if number == helper::RINGBUF_RESERVE {
            state.records.insert(call, BTreeMap::new());
        }
        Ok(match (number, map) {
            (helper::MAP_LOOKUP_ELEM, Some((map, def))) if def.kind.is_of_maps() => {
                address(Place::of(Region::Inner { map, call }))
            }
            (helper::MAP_LOOKUP_ELEM | helper::MAP_LOOKUP_PERCPU_ELEM | helper::RINGBUF_RESERVE, Some((map, _))) => {
                address(Place::of(Region::Value { map, call }))
            }
            _ => Value::Number(call),
        })
    }

    /// A map, by its index or as the result of a lookup in a map of maps.
    fn map(&mut self, value: Value, given: &mut Given) -> Result<(u32, MapDef), Reason> {
        let own = places(value)?;
        let [(_, place)] = &*own else {
            return Err(Reason::SeveralMaps { found: own.len(), most: 1 });
        };
        let def = |map: u32| self.program.maps.get(map as usize);
        let (map, def) = match place.region {
            Region::Map(map) => {
                given.give(Argument::Map(map), &[]);
                (map, def(map).cloned())
            }
            Region::Inner { map, call } => {
                given.give(Argument::Number, &[call]);
                (map, def(map).and_then(|def| def.inner.as_deref().cloned()))
            }
            _ => return Err(leak()),
        };
        def.map(|def| (map, def)).ok_or_else(leak)
    }

    /// Bytes of memory that a call reads.
    fn memory(&mut self, path: Bdd, state: &State, value: Value, len: usize, given: &mut Given) -> Result<(), Reason> {
        if len > MAX_BYTES {
            return Err(Reason::ManyBytes { found: len, most: MAX_BYTES });
        }
        if len > 0 {
            let bytes = self.load_bytes(path, state, &places(value)?, 0, len)?;
            given.args.extend(bytes);
        }
        Ok(())
    }

    /// A terminated string in constant data.
    fn text(&mut self, places: &[(Bdd, Place)]) -> Result<Vec<Id>, Reason> {
        let [(_, Place { region: Region::Only(map), offset, moved: None })] = places else { return Err(Reason::Text) };
        let mut bytes = Vec::new();
        loop {
            let byte = self.constant(*map, offset + bytes.len() as i64, Size::B).ok_or(Reason::Text)?;
            bytes.push(self.graph.number(byte, 8));
            if byte == 0 {
                return Ok(bytes);
            }
        }
    }

    /// Replaces memory that a call may write by what the call left there.
    fn keep_changed(
        &mut self,
        (path, here): (Bdd, Bdd),
        state: &mut State,
        call: Id,
        changed: &[(Places, usize)],
    ) -> Result<(), Reason> {
        let mut at = 0;
        for (places, len) in changed {
            let bytes: Vec<Id> =
                (at..at + len).map(|at| self.graph.make(Kind::Changed { at: at as u16 }, vec![call], 8)).collect();
            at += len;
            self.store_bytes_within(path, here, state, places, &bytes)?;
        }
        Ok(())
    }

    pub(super) fn pattern(&mut self, pattern: Pattern) -> u16 {
        let known = self.patterns.iter().position(|known| *known == pattern);
        let place = known.unwrap_or_else(|| {
            self.patterns.push(pattern);
            self.patterns.len() - 1
        });
        place as u16
    }
}
