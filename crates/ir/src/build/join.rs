//! Where paths meet.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::Builder;
use super::state::{Byte, Frame, Place, Places, Region, State, Value};
use crate::bdd::Bdd;
use crate::graph::{Id, Input, Kind};

impl Builder<'_> {
    /// The values of several paths as one.
    pub(super) fn pick(&mut self, values: &[(Bdd, Id)], care: Bdd) -> Id {
        let mut groups: Vec<(Bdd, Id)> = Vec::new();
        for (condition, value) in values {
            match groups.iter_mut().find(|(_, known)| known == value) {
                Some((all, _)) => *all = self.conditions.or(*all, *condition),
                None => groups.push((*condition, *value)),
            }
        }
        let last = groups.pop().map(|(_, value)| value);
        let mut parts = Vec::new();
        let mut rest = care;
        for (condition, value) in groups {
            let bit = self.bit(condition, rest);
            let not = self.conditions.not(condition);
            rest = self.conditions.and(rest, not);
            parts.extend([bit, value]);
        }
        parts.extend(last);
        self.graph.select(parts)
    }

    /// All paths as one, and its condition.
    pub(super) fn join(&mut self, mut paths: Vec<(Bdd, State)>) -> (Bdd, State) {
        let mut care = Bdd::FALSE;
        for (condition, _) in &paths {
            care = self.conditions.or(care, *condition);
        }
        if paths.len() == 1 {
            let (_, state) = paths.remove(0);
            return (care, state);
        }
        let mut joined = paths[0].1.clone();
        for depth in 0..joined.frames.len() {
            let frames: Vec<(Bdd, &Frame)> =
                paths.iter().map(|(condition, state)| (*condition, &state.frames[depth])).collect();
            for number in 0..joined.frames[depth].registers.len() {
                let values: Vec<(Bdd, &Value)> =
                    frames.iter().map(|(condition, frame)| (*condition, &frame.registers[number])).collect();
                joined.frames[depth].registers[number] = self.one_value(&values, care);
            }
            joined.frames[depth].stack = self.one_stack(&frames, care);
        }
        joined.packet = self.one_packet(&paths, care);
        let tails: Vec<(Bdd, Id)> = paths.iter().map(|(condition, state)| (*condition, state.tail)).collect();
        joined.tail = self.pick(&tails, care);
        joined.is_cut = paths.iter().any(|(_, state)| state.is_cut);
        let mut heads: BTreeMap<i64, Bdd> = BTreeMap::new();
        for (condition, state) in &paths {
            for (part, head) in state.head.iter() {
                let both = self.conditions.and(*condition, *part);
                let all = heads.entry(*head).or_insert(Bdd::FALSE);
                *all = self.conditions.or(*all, both);
            }
        }
        joined.head = heads.into_iter().map(|(head, condition)| (condition, head)).collect();
        (care, joined)
    }

    pub(super) fn one_value(&mut self, values: &[(Bdd, &Value)], care: Bdd) -> Value {
        let (_, first) = values[0];
        if values.iter().all(|(_, value)| *value == first) {
            return first.clone();
        }
        let held: Vec<&(Bdd, &Value)> = values.iter().filter(|(_, value)| **value != Value::Nothing).collect();
        let numbers: Option<Vec<(Bdd, Id)>> = held
            .iter()
            .map(|(condition, value)| match value {
                Value::Number(id) => Some((*condition, *id)),
                _ => None,
            })
            .collect();
        if let Some(numbers) = numbers {
            return Value::Number(self.pick(&numbers, care));
        }
        let mut places: BTreeMap<Place, Bdd> = BTreeMap::new();
        for (condition, value) in held {
            let own: Places = match value {
                Value::Address(own) => Rc::clone(own),
                Value::Number(id) if self.graph.as_const(*id) == Some(0) => {
                    Rc::new([(Bdd::TRUE, Place::of(Region::Null))])
                }
                _ => return Value::Nothing,
            };
            for (part, place) in own.iter() {
                let both = self.conditions.and(*condition, *part);
                let all = places.entry(*place).or_insert(Bdd::FALSE);
                *all = self.conditions.or(*all, both);
            }
        }
        let known = places.into_iter().filter(|(_, condition)| *condition != Bdd::FALSE);
        Value::Address(known.map(|(place, condition)| (condition, place)).collect())
    }

    fn one_stack(&mut self, frames: &[(Bdd, &Frame)], care: Bdd) -> BTreeMap<i64, Byte> {
        let all: BTreeSet<i64> = frames.iter().flat_map(|(_, frame)| frame.stack.keys().copied()).collect();
        let mut stack = BTreeMap::new();
        for at in all {
            let here: Vec<(Bdd, Option<&Byte>)> =
                frames.iter().map(|(condition, frame)| (*condition, frame.stack.get(&at))).collect();
            if let Some(byte) = self.one_byte(&here, care) {
                stack.insert(at, byte);
            }
        }
        stack
    }

    fn one_byte(&mut self, bytes: &[(Bdd, Option<&Byte>)], care: Bdd) -> Option<Byte> {
        let first = bytes[0].1;
        if bytes.iter().all(|(_, byte)| *byte == first) {
            return first.cloned();
        }
        // What was never written is zeros in the interpreter.
        let zero = self.graph.number(0, 8);
        let bits: Option<Vec<(Bdd, Id)>> = bytes
            .iter()
            .map(|(condition, byte)| match byte {
                Some(Byte::Bits(id)) => Some((*condition, *id)),
                None => Some((*condition, zero)),
                Some(Byte::Of(..)) => None,
            })
            .collect();
        if let Some(bits) = bits {
            return Some(Byte::Bits(self.pick(&bits, care)));
        }
        let mut number = None;
        let mut values = Vec::new();
        for (condition, byte) in bytes {
            match byte {
                Some(Byte::Of(places, own)) if number.is_none_or(|number| number == *own) => {
                    number = Some(*own);
                    values.push((*condition, Value::Address(Rc::clone(places))));
                }
                Some(Byte::Bits(id)) if self.graph.as_const(*id) == Some(0) => {
                    values.push((*condition, Value::Address(Rc::new([(Bdd::TRUE, Place::of(Region::Null))]))));
                }
                _ => return None,
            }
        }
        let values: Vec<(Bdd, &Value)> = values.iter().map(|(condition, value)| (*condition, value)).collect();
        match self.one_value(&values, care) {
            Value::Address(places) => Some(Byte::Of(places, number.unwrap_or(0))),
            _ => None,
        }
    }

    fn one_packet(&mut self, paths: &[(Bdd, State)], care: Bdd) -> BTreeMap<i64, Id> {
        let all: BTreeSet<i64> = paths.iter().flat_map(|(_, state)| state.packet.keys().copied()).collect();
        let mut packet = BTreeMap::new();
        for at in all {
            let values: Vec<(Bdd, Id)> = paths
                .iter()
                .map(|(condition, state)| {
                    let byte = state.packet.get(&at).copied();
                    (*condition, byte.unwrap_or_else(|| self.original(at)))
                })
                .collect();
            packet.insert(at, self.pick(&values, care));
        }
        packet
    }

    /// A byte of the packet as it came; before it lie zeros.
    pub(super) fn original(&mut self, at: i64) -> Id {
        match u16::try_from(at) {
            Ok(at) => self.graph.make(Kind::Input(Input::Byte(at)), Vec::new(), 8),
            Err(_) => self.graph.number(0, 8),
        }
    }
}
