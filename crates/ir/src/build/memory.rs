// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads and stores: bytes of stack, packet and reserved records are values, map values are accessed by effects.

use std::collections::BTreeSet;
use std::rc::Rc;

use flowloom_isa::BPF_F_RDONLY_PROG;
use flowloom_isa::op::Size;
use flowloom_verifier::Memory;

use super::builder::Builder;
use super::state::{Byte, Place, Places, Region, State, Value, bits_of, leak, mixed, places};
use crate::bdd::Bdd;
use crate::graph::{Binary, Compare, Effect, Id, Input, Kind, Node};
use crate::refusal::Reason;

/// The most offsets of one stack access.
const MAX_OFFSETS: usize = 64;

impl Builder<'_> {
    pub(super) fn load(
        &mut self,
        path: Bdd,
        state: &State,
        base: Value,
        off: i64,
        size: Size,
    ) -> Result<Value, Reason> {
        let places = places(base)?;
        if let [(_, place)] = &*places
            && place.region == Region::Context
        {
            return self.load_context(state, place.offset + off);
        }
        if size == Size::Dw
            && let Some(spilled) = self.load_spilled(state, &places, off)
        {
            return Ok(spilled);
        }
        let bytes = self.load_bytes(path, state, &places, off, size.bytes())?;
        let value = self.graph.concat(bytes);
        Ok(Value::Number(self.graph.fit(value, 64)))
    }

    fn load_context(&mut self, state: &State, at: i64) -> Result<Value, Reason> {
        Ok(match at {
            0 => {
                let head = self.sum_of(state.head);
                Value::Address(Rc::new([(Bdd::TRUE, self.packet_place(&head))]))
            }
            4 => Value::Address(Rc::new([(Bdd::TRUE, Place::of(Region::End))])),
            12 => {
                let port = self.graph.make(Kind::Input(Input::Port), Vec::new(), 32);
                Value::Number(self.graph.fit(port, 64))
            }
            8 => {
                let meta = self.sum_of(state.meta);
                Value::Address(Rc::new([(Bdd::TRUE, self.packet_place(&meta))]))
            }
            // There is one receive queue, and no program runs on an entry of a device map.
            16 | 20 => Value::Number(self.graph.number(0, 64)),
            _ => return Err(Reason::Context(at)),
        })
    }

    /// Loads a spilled address from the stack.
    fn load_spilled(&mut self, state: &State, places: &[(Bdd, Place)], off: i64) -> Option<Value> {
        let [(_, Place { region: Region::Stack(frame), offset, moved: None })] = places else { return None };
        let stack = &state.frames.get(usize::from(*frame))?.stack;
        let at = offset + off;
        let Byte::Of(first, 0) = stack.get(&at)? else { return None };
        let is_whole = (0..8).all(|k| stack.get(&(at + i64::from(k))) == Some(&Byte::Of(Rc::clone(first), k)));
        is_whole.then(|| self.simplified(Value::Address(Rc::clone(first))))
    }

    /// Loads bytes at an address, each place under its path condition.
    pub(super) fn load_bytes(
        &mut self,
        path: Bdd,
        state: &State,
        places: &[(Bdd, Place)],
        off: i64,
        len: usize,
    ) -> Result<Vec<Id>, Reason> {
        let mut found: Vec<(Bdd, Vec<Id>)> = Vec::new();
        let mut care = Bdd::FALSE;
        for (condition, place) in places {
            if place.region == Region::Null {
                continue;
            }
            let here = self.conditions.and(path, *condition);
            if here == Bdd::FALSE {
                continue;
            }
            let bytes = self.bytes_at(here, state, place, off, len)?;
            care = self.conditions.or(care, here);
            found.push((here, bytes));
        }
        if found.is_empty() {
            return Err(mixed());
        }
        Ok((0..len)
            .map(|number| {
                let values: Vec<(Bdd, Id)> = found.iter().map(|(here, bytes)| (*here, bytes[number])).collect();
                self.mux(&values, care)
            })
            .collect())
    }

    fn bytes_at(&mut self, path: Bdd, state: &State, place: &Place, off: i64, len: usize) -> Result<Vec<Id>, Reason> {
        match place.region {
            Region::Packet => {
                let (base, after) = self.placed(path, place.moved);
                let at = place.offset.wrapping_add(off) + after;
                self.note_access(path, base, at + len as i64);
                Ok(self.packet_bytes(state, base, at, len))
            }
            Region::Stack(frame) => {
                let offsets = self.stack_offsets(state, frame, place, off, len)?;
                let mut parts: Vec<Vec<Id>> = vec![Vec::new(); len];
                for (bit, at) in offsets {
                    for (number, part) in parts.iter_mut().enumerate() {
                        let byte = self.stack_byte(state, frame, at + number as i64);
                        let byte = byte.map_err(|why| of_slot(why, place))?;
                        part.extend(bit.into_iter().chain([byte]));
                    }
                }
                Ok(self.selected(parts))
            }
            Region::Value { call, .. } if state.records.contains_key(&call) => {
                let offsets = self.offsets(Memory::Record, place, off, len)?;
                let mut parts: Vec<Vec<Id>> = vec![Vec::new(); len];
                for (bit, at) in offsets {
                    for (number, part) in parts.iter_mut().enumerate() {
                        let byte = self.record_byte(path, state, call, at + number as i64);
                        part.extend(bit.into_iter().chain([byte]));
                    }
                }
                Ok(self.selected(parts))
            }
            Region::Value { .. } | Region::Only(_) => {
                let mut bytes = Vec::new();
                while bytes.len() < len {
                    let size = widest(len - bytes.len());
                    let value = self.load_value(path, place, off + bytes.len() as i64, size)?;
                    bytes.extend((0..size.bytes() as u16).map(|byte| self.graph.slice(value, 8 * byte, 8)));
                }
                Ok(bytes)
            }
            Region::Key(number) if place.moved.is_none() => Ok(self.key_bytes(number, place.offset + off, len)),
            _ => Err(leak()),
        }
    }

    /// The select of each byte between those at all offsets.
    fn selected(&mut self, parts: Vec<Vec<Id>>) -> Vec<Id> {
        let select = |mut part: Vec<Id>| {
            // The last one is the default.
            if part.len() > 1 {
                let last = part.len() - 2;
                part.remove(last);
            }
            self.graph.select(part)
        };
        parts.into_iter().map(select).collect()
    }

    fn stack_byte(&mut self, state: &State, frame: u8, at: i64) -> Result<Id, Reason> {
        match state.frames.get(usize::from(frame)).and_then(|frame| frame.stack.get(&at)) {
            Some(Byte::Bits(id)) => Ok(*id),
            Some(Byte::Of(places, number)) => match self.simplified(Value::Address(Rc::clone(places))) {
                Value::Number(id) => Ok(self.graph.slice(id, 8 * u16::from(*number), 8)),
                _ => Err(leak()),
            },
            Some(Byte::Nothing) => Err(mixed()),
            None => Ok(self.graph.number(0, 8)),
        }
    }

    /// The possible offsets of a stack address, each with its condition.
    fn stack_offsets(
        &mut self,
        state: &State,
        frame: u8,
        place: &Place,
        off: i64,
        len: usize,
    ) -> Result<Vec<(Option<Id>, i64)>, Reason> {
        let up = (state.frames.len() - 1) as u8 - frame;
        self.offsets(Memory::Stack { up }, place, off, len)
    }

    /// The possible offsets of an address in private memory, each with its condition.
    fn offsets(
        &mut self,
        memory: Memory,
        place: &Place,
        off: i64,
        len: usize,
    ) -> Result<Vec<(Option<Id>, i64)>, Reason> {
        let start = place.offset.wrapping_add(off);
        let Some(moved) = place.moved else { return Ok(vec![(None, start)]) };
        let bytes = self.proof.insns[self.at].memory.get(&memory);
        let is_proved = |at: i64| {
            bytes.is_none_or(|bytes| {
                bytes.first <= at && at + len as i64 <= bytes.end && (at % i64::from(bytes.align) == 0)
            })
        };
        let all: Vec<i64> = match (self.possible(moved), bytes) {
            (Some(values), _) => values.into_iter().map(|value| start.wrapping_add(value as i64)).collect(),
            (None, Some(bytes)) => {
                let step = bytes.align.max(1) as usize;
                (bytes.first..=bytes.end - len as i64).step_by(step).collect()
            }
            (None, None) => Vec::new(),
        };
        let all: Vec<i64> = all.into_iter().filter(|at| is_proved(*at)).collect();
        if all.is_empty() || all.len() > MAX_OFFSETS {
            let found = (!all.is_empty()).then_some(all.len());
            return Err(Reason::ManyOffsets { found, most: MAX_OFFSETS });
        }
        let pairs = all.into_iter().map(|at| {
            let value = self.graph.number(at.wrapping_sub(start) as u64, 64);
            (Some(self.compared_anywhere(Compare::Equal, moved, value)), at)
        });
        Ok(pairs.collect())
    }

    /// The possible values of a node, if they are few.
    pub(super) fn possible(&mut self, id: Id) -> Option<BTreeSet<u64>> {
        if let Some(known) = self.value_sets.get(&id) {
            return known.clone();
        }
        let found = self.values_of(id);
        self.value_sets.insert(id, found.clone());
        found
    }

    fn values_of(&mut self, id: Id) -> Option<BTreeSet<u64>> {
        let node = self.graph.node(id).clone();
        let limited = |set: BTreeSet<u64>| (set.len() <= MAX_OFFSETS).then_some(set);
        let by_bits = || (node.bits <= 6).then(|| (0..1u64 << node.bits).collect());
        match node.kind {
            Kind::Const(value) => Some(BTreeSet::from([value])),
            Kind::Select => {
                let (last, pairs) = node.args.split_last()?;
                let mut all = self.possible(*last)?;
                for pair in pairs.chunks_exact(2) {
                    all.extend(self.possible(pair[1])?);
                }
                limited(all)
            }
            Kind::Binary(Binary::And) => {
                let mask = node.args.iter().find_map(|arg| self.graph.as_const(*arg))?;
                if mask.count_ones() > 6 {
                    return None;
                }
                let bits: Vec<u32> = (0..64).filter(|bit| mask >> bit & 1 == 1).collect();
                let spread = |number: u64| bits.iter().enumerate().map(|(k, bit)| (number >> k & 1) << bit).sum();
                Some((0..1u64 << bits.len()).map(spread).collect())
            }
            Kind::Slice { low } => match self.possible(node.args[0]) {
                Some(values) => {
                    Some(values.into_iter().map(|value| crate::arith::cut(value >> low, node.bits)).collect())
                }
                None => by_bits(),
            },
            Kind::Concat | Kind::SignExtend | Kind::Binary(_) | Kind::Not | Kind::Compare(_) => {
                self.combined(&node).or_else(by_bits)
            }
            _ => by_bits(),
        }
    }

    /// The possible values of a node from those of its arguments.
    fn combined(&mut self, node: &Node) -> Option<BTreeSet<u64>> {
        let widths: Vec<u16> = node.args.iter().map(|arg| self.graph.bits(*arg)).collect();
        let mut all: Vec<Vec<u64>> = vec![Vec::new()];
        for arg in &node.args {
            let values = self.possible(*arg)?;
            all = all.iter().flat_map(|some| values.iter().map(|v| [&some[..], &[*v]].concat())).collect();
            if all.len() > 4 * MAX_OFFSETS {
                return None;
            }
        }
        let set: BTreeSet<u64> =
            all.iter().map(|args| crate::arith::apply(node.kind, args, &widths, node.bits)).collect();
        (set.len() <= MAX_OFFSETS).then_some(set)
    }

    /// The base address of a map value (64 bits) and the offset.
    pub(super) fn value_address(&mut self, place: &Place, off: i64) -> Result<[Id; 2], Reason> {
        let base = match place.region {
            Region::Value { call, .. } => call,
            Region::Only(map) => self.graph.make(Kind::Input(Input::Only(map)), Vec::new(), 64),
            _ => return Err(leak()),
        };
        let offset = self.graph.number(place.offset.wrapping_add(off) as u64, 64);
        let offset = match place.moved {
            None => offset,
            Some(moved) => self.graph.binary(Binary::Add, moved, offset),
        };
        Ok([base, offset])
    }

    fn load_value(&mut self, path: Bdd, place: &Place, off: i64, size: Size) -> Result<Id, Reason> {
        if let (Region::Only(map), None) = (place.region, place.moved)
            && let Some(value) = self.constant(map, place.offset + off, size)
        {
            return Ok(self.graph.number(value, bits_of(size)));
        }
        let bit = self.conditions.node(&mut self.graph, path);
        let [base, offset] = self.value_address(place, off)?;
        Ok(self.graph.effect(Effect::Load(size), vec![bit, base, offset], bits_of(size)))
    }

    /// A load from constant data.
    pub(super) fn constant(&self, map: u32, offset: i64, size: Size) -> Option<u64> {
        let def = self.program.maps.get(map as usize)?;
        let initial = def.initial.as_ref().filter(|_| def.flags & BPF_F_RDONLY_PROG != 0)?;
        let offset = usize::try_from(offset).ok()?;
        let bytes = initial.get(offset..offset.checked_add(size.bytes())?)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    pub(super) fn store(
        &mut self,
        path: Bdd,
        state: &mut State,
        base: Value,
        off: i64,
        size: Size,
        value: Value,
    ) -> Result<(), Reason> {
        let places = places(base)?;
        let id = match value {
            Value::Number(id) => id,
            Value::Address(spilled) if size == Size::Dw => return self.spill(state, &places, off, &spilled),
            Value::Address(_) | Value::Low(_) => return Err(leak()),
            Value::Nothing => return Err(mixed()),
        };
        let bytes: Vec<Id> = (0..size.bytes() as u16).map(|byte| self.graph.slice(id, 8 * byte, 8)).collect();
        self.store_bytes(path, state, &places, off, &bytes, Some(size))
    }

    /// Stores bytes; in a map value by one access of this size, or by as many as are needed.
    pub(super) fn store_bytes(
        &mut self,
        path: Bdd,
        state: &mut State,
        places: &[(Bdd, Place)],
        off: i64,
        bytes: &[Id],
        size: Option<Size>,
    ) -> Result<(), Reason> {
        for (condition, place) in places {
            let here = self.conditions.and(path, *condition);
            if here == Bdd::FALSE {
                continue;
            }
            match (place.region, size) {
                (Region::Null, _) => {}
                (Region::Packet, _) => {
                    let own = self.bit(here, path);
                    let (base, after) = self.placed(here, place.moved);
                    let at = place.offset.wrapping_add(off) + after;
                    self.note_access(here, base, at + bytes.len() as i64);
                    self.write_packet(state, base, at, bytes, own);
                }
                (Region::Stack(frame), _) => {
                    let own = self.bit(here, path);
                    for (bit, at) in self.stack_offsets(state, frame, place, off, bytes.len())? {
                        let bit = match bit {
                            Some(bit) => self.graph.and(own, bit),
                            None => own,
                        };
                        for (number, byte) in bytes.iter().enumerate() {
                            let stored = self.store_byte(state, frame, at + number as i64, bit, *byte);
                            stored.map_err(|why| of_slot(why, place))?;
                        }
                    }
                }
                (Region::Value { call, .. }, _) if state.records.contains_key(&call) => {
                    let own = self.bit(here, path);
                    for (bit, at) in self.offsets(Memory::Record, place, off, bytes.len())? {
                        let bit = match bit {
                            Some(bit) => self.graph.and(own, bit),
                            None => own,
                        };
                        for (number, byte) in bytes.iter().enumerate() {
                            self.store_record_byte(state, call, at + number as i64, bit, *byte);
                        }
                    }
                }
                (Region::Value { .. } | Region::Only(_), size) => {
                    let bit = self.conditions.node(&mut self.graph, here);
                    let mut at = 0;
                    while at < bytes.len() {
                        let size = size.unwrap_or_else(|| widest(bytes.len() - at));
                        let [base, offset] = self.value_address(place, off + at as i64)?;
                        let value = self.graph.concat(bytes[at..at + size.bytes()].to_vec());
                        self.graph.effect(Effect::Store(size), vec![bit, base, offset, value], 0);
                        at += size.bytes();
                    }
                }
                _ => return Err(leak()),
            }
        }
        Ok(())
    }

    fn store_byte(&mut self, state: &mut State, frame: u8, at: i64, bit: Id, byte: Id) -> Result<(), Reason> {
        let is_sure = self.graph.as_const(bit) == Some(1);
        let byte = match is_sure {
            true => byte,
            false => {
                let before = self.stack_byte(state, frame, at)?;
                self.graph.select(vec![bit, byte, before])
            }
        };
        if let Some(frame) = state.frames.get_mut(usize::from(frame)) {
            frame.stack.insert(at, Byte::Bits(byte));
        }
        Ok(())
    }

    fn spill(&mut self, state: &mut State, places: &[(Bdd, Place)], off: i64, spilled: &Places) -> Result<(), Reason> {
        let [(_, Place { region: Region::Stack(frame), offset, moved: None })] = places else {
            let is_stack = |(_, place): &(Bdd, Place)| matches!(place.region, Region::Stack(_));
            return Err(if places.iter().all(is_stack) { Reason::SpillOffset } else { leak() });
        };
        let Some(frame) = state.frames.get_mut(usize::from(*frame)) else { return Err(leak()) };
        for number in 0..8 {
            frame.stack.insert(offset + off + i64::from(number), Byte::Of(Rc::clone(spilled), number));
        }
        Ok(())
    }
}

/// The refusal of a stack access: a variable offset may hit a slot that holds an address.
fn of_slot(why: Reason, place: &Place) -> Reason {
    match why {
        Reason::AddressAsNumber if place.moved.is_some() => Reason::SpillOffset,
        other => other,
    }
}

/// The widest access of at most so many bytes.
fn widest(bytes: usize) -> Size {
    let sizes = [Size::Dw, Size::W, Size::H, Size::B];
    sizes.into_iter().find(|size| size.bytes() <= bytes).unwrap_or(Size::B)
}
