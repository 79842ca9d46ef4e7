// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Join points: the states of several paths become one.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::builder::{Builder, Path};
use super::dominators::FIRST;
use super::flow::Edge;
use super::state::{Byte, Frame, Place, Places, Region, SLOT_BYTES, State, Value};
use crate::bdd::Bdd;
use crate::graph::{Graph, Id, Kind};

/// A condition of more BDD nodes than these becomes a bit of its own.
const MAX_CONDITION: usize = 8;
/// Paths whose conditions differ in more BDD nodes than these are told apart by the bit that one of them was taken.
const MAX_SHARED_CONDITION: usize = 1;

/// Paths to a join point whose nearest common dominator is `before`.
struct Level {
    idom: usize,
    /// Those that are joined next.
    straight: Vec<Path>,
    /// Those that have a farther dominator in common.
    sides: Vec<Vec<Path>>,
}

impl Builder<'_> {
    /// The select between the values of several paths.
    pub(super) fn mux(&mut self, values: &[(Bdd, Id)], care: Bdd) -> Id {
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

    /// Joins all paths into one state and its condition, for the block that is walked next.
    ///
    /// Paths that diverged last are joined first, two at a time, so that the conditions of the selects consist of the
    /// branches in between only.
    pub(super) fn join(&mut self, mut arrivals: Vec<Path>) -> (Bdd, State) {
        let into: Vec<Edge> = arrivals.iter().map(|path| path.edge).collect();
        let taken = if into.len() > 1 { self.edge_bits(&into) } else { None };
        for (path, taken) in arrivals.iter_mut().zip(taken.into_iter().flatten()) {
            path.taken = Some(taken);
        }
        self.edge = Edge { from: self.flow.add(into), test: None };
        let mut levels = vec![self.level(arrivals)];
        loop {
            let last = levels.len() - 1;
            let level = &mut levels[last];
            if let Some(mut side) = level.sides.pop() {
                if side.len() > 1 {
                    levels.push(self.level(side));
                } else {
                    level.straight.append(&mut side);
                }
                continue;
            }
            let pair = level.straight.split_off(level.straight.len().saturating_sub(2));
            let (idom, is_all) = (level.idom, level.straight.is_empty());
            if is_all {
                levels.pop();
            }
            let joined = self.join_paths(pair, idom, is_all);
            match levels.last_mut() {
                Some(level) => level.straight.push(joined),
                None => {
                    self.block = joined.from;
                    return (joined.condition, joined.state);
                }
            }
        }
    }

    /// Groups paths by the child of their nearest common dominator.
    fn level(&self, paths: Vec<Path>) -> Level {
        let mut idom = paths.first().map_or(FIRST, |path| path.from);
        for path in &paths {
            idom = self.blocks.common_dominator(idom, path.from);
        }
        let mut sides: BTreeMap<usize, Vec<Path>> = BTreeMap::new();
        let mut straight = Vec::new();
        for path in paths {
            match self.blocks.child_towards(path.from, idom) {
                Some(side) => sides.entry(side).or_default().push(path),
                None => straight.push(path),
            }
        }
        Level { idom, straight, sides: sides.into_values().rev().collect() }
    }

    /// Joins one or two paths after their nearest common dominator. `is_all` if all paths from there lead to this join
    /// point.
    fn join_paths(&mut self, mut arrivals: Vec<Path>, idom: usize, is_all: bool) -> Path {
        for path in &arrivals {
            self.blocks.add_edge(path.from, Some(idom));
        }
        if arrivals.len() == 1 {
            let path = arrivals.remove(0);
            return Path { from: self.blocks.add(idom, path.condition), ..path };
        }
        let mut all = Bdd::FALSE;
        for path in &arrivals {
            all = self.conditions.or(all, path.condition);
        }
        let care = self.joined_condition(&arrivals, all, (idom, is_all));
        let from = self.blocks.add(idom, care);
        let edge = arrivals[0].edge;
        let taken = arrivals.iter().map(|path| path.taken).collect::<Option<Vec<Id>>>();
        let taken = taken.map(|taken| taken.into_iter().reduce(|one, other| self.graph.or(one, other)));
        let mut parts: Vec<(Bdd, State)> = Vec::new();
        for Path { condition, state, taken, .. } in arrivals {
            let state = self.simplified_state(state, condition);
            let condition = self.conditions.within(condition, all);
            let is_short = self.conditions.length(condition, MAX_SHARED_CONDITION) <= MAX_SHARED_CONDITION;
            let condition = match taken.filter(|_| !is_short) {
                Some(taken) => self.opaque(taken),
                None => condition,
            };
            parts.push((condition, state));
        }
        parts.sort_by_key(|(condition, _)| self.conditions.length(*condition, MAX_CONDITION));
        // Exactly one of them was taken: each condition may assume that those before it do not hold.
        let (mut rest, mut paths) = (Bdd::TRUE, Vec::new());
        let last = parts.len() - 1;
        for (place, (condition, state)) in parts.into_iter().enumerate() {
            let own = if place == last { rest } else { self.conditions.and(condition, rest) };
            let not = self.conditions.not(condition);
            rest = self.conditions.and(rest, not);
            paths.push((own, state));
        }
        Path { condition: care, state: self.joined_state(&paths), from, edge, taken: taken.flatten() }
    }

    /// A bit as a condition, whatever it is made of.
    pub(super) fn opaque(&mut self, bit: Id) -> Bdd {
        if let Some(known) = self.opaque.get(&bit) {
            return *known;
        }
        let is_made = matches!(self.graph.node(bit).kind, Kind::Select | Kind::Binary(_));
        let condition = if is_made { self.conditions.variable(bit) } else { self.conditions.of(&self.graph, bit) };
        self.opaque.insert(bit, condition);
        condition
    }

    fn joined_state(&mut self, paths: &[(Bdd, State)]) -> State {
        let mut joined = paths[0].1.clone();
        for depth in 0..joined.frames.len() {
            let frames: Vec<(Bdd, &Frame)> =
                paths.iter().map(|(condition, state)| (*condition, &state.frames[depth])).collect();
            for number in 0..joined.frames[depth].registers.len() {
                let values: Vec<(Bdd, &Value)> =
                    frames.iter().map(|(condition, frame)| (*condition, &frame.registers[number])).collect();
                joined.frames[depth].registers[number] = self.joined_value(&values);
            }
            joined.frames[depth].stack = self.joined_stack(&frames);
        }
        joined.packet = self.joined_packet(paths);
        joined.overlays = self.joined_overlays(paths);
        joined.records = self.joined_records(paths);
        let tails: Vec<(Bdd, Id)> = paths.iter().map(|(condition, state)| (*condition, state.tail)).collect();
        joined.tail = self.mux(&tails, Bdd::TRUE);
        let calls = || paths.iter().map(|(_, state)| state.tail_calls);
        let (fewest, most) = (calls().map(|(fewest, _)| fewest).min(), calls().map(|(_, most)| most).max());
        joined.tail_calls = (fewest.unwrap_or(0), most.unwrap_or(0));
        joined.kept = self.joined_kept(paths);
        joined.is_cut = paths.iter().any(|(_, state)| state.is_cut);
        let heads: Vec<(Bdd, Id)> = paths.iter().map(|(condition, state)| (*condition, state.head)).collect();
        joined.head = self.mux(&heads, Bdd::TRUE);
        joined.meta = self.joined_meta(paths, joined.head);
        joined
    }

    /// The condition of a join point whose immediate dominator is `before`.
    fn joined_condition(&mut self, paths: &[Path], all: Bdd, (idom, is_all): (usize, bool)) -> Bdd {
        let outer = self.blocks.condition(idom);
        let mut others = self.work.values().flat_map(|arrival| &arrival.paths);
        if is_all
            && !self.blocks.has_edges_out(idom)
            && !others.any(|path| self.blocks.is_dominated_by(path.from, idom))
        {
            return outer;
        }
        let local = self.conditions.within(all, outer);
        if self.conditions.length(local, MAX_CONDITION) <= MAX_CONDITION {
            return all;
        }
        // A new bit: whether one of the paths was taken, given that the dominator was reached.
        let mut own = self.graph.number(0, 1);
        for path in paths {
            let bit = self.bit(path.condition, outer);
            own = self.graph.or(own, bit);
        }
        let own = match self.graph.as_const(own) {
            Some(_) => Bdd::TRUE,
            None => self.conditions.variable(own),
        };
        self.conditions.and(outer, own)
    }

    pub(super) fn joined_value(&mut self, values: &[(Bdd, &Value)]) -> Value {
        let (_, first) = values[0];
        if values.iter().all(|(_, value)| *value == first) {
            return first.clone();
        }
        let mut held: Vec<(Bdd, &Value)> =
            values.iter().filter(|(_, value)| **value != Value::Nothing).copied().collect();
        // Beside numbers, an address that is null on its paths is the number 0.
        let zero = Value::Number(self.graph.number(0, 64));
        if held.iter().any(|(_, value)| matches!(value, Value::Number(_))) {
            for (condition, value) in &mut held {
                if let Value::Address(places) = *value
                    && self.is_null_under(*condition, places)
                {
                    *value = &zero;
                }
            }
        }
        let numbers: Option<Vec<(Bdd, Id)>> = held
            .iter()
            .map(|(condition, value)| match value {
                Value::Number(id) => Some((*condition, *id)),
                _ => None,
            })
            .collect();
        if let Some(numbers) = numbers {
            return Value::Number(self.mux(&numbers, Bdd::TRUE));
        }
        if held.iter().any(|(_, value)| matches!(value, Value::Low(_))) {
            return self.joined_low(&held);
        }
        let mut places: BTreeMap<Place, Bdd> = BTreeMap::new();
        for (condition, value) in held {
            let own: Places = match value {
                Value::Address(own) => Rc::clone(own),
                Value::Number(id) if self.graph.as_const(*id) == Some(0) => {
                    Rc::new([(Bdd::TRUE, Place::of(Region::Null))])
                }
                Value::Number(id) => Rc::new([(Bdd::TRUE, Place::of(Region::Number(*id)))]),
                Value::Nothing | Value::Low(_) => continue,
            };
            for (part, place) in own.iter() {
                let both = self.conditions.and(condition, *part);
                let all = places.entry(*place).or_insert(Bdd::FALSE);
                *all = self.conditions.or(*all, both);
            }
        }
        let known = places.into_iter().filter(|(_, condition)| *condition != Bdd::FALSE);
        let (mut all, mut packet, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (place, condition) in known {
            match place.region {
                Region::Packet => packet.push((condition, place)),
                Region::Number(id) => numbers.push((condition, id)),
                _ => all.push((condition, place)),
            }
        }
        match packet.len() {
            0 | 1 => all.extend(packet),
            _ => all.push(self.joined_place(packet)),
        }
        if !numbers.is_empty() {
            let mut own = Bdd::FALSE;
            for (condition, _) in &numbers {
                own = self.conditions.or(own, *condition);
            }
            let number = self.mux(&numbers, own);
            if all.is_empty() {
                return Value::Number(number);
            }
            all.push((own, Place::of(Region::Number(number))));
        }
        Value::Address(all.into())
    }

    /// The low halves of addresses, if all values are such.
    fn joined_low(&mut self, held: &[(Bdd, &Value)]) -> Value {
        let wholes = held.iter().map(|(condition, value)| match value {
            Value::Low(places) => Some((*condition, Value::Address(Rc::clone(places)))),
            _ => None,
        });
        let Some(wholes) = wholes.collect::<Option<Vec<(Bdd, Value)>>>() else { return Value::Nothing };
        let wholes: Vec<(Bdd, &Value)> = wholes.iter().map(|(condition, value)| (*condition, value)).collect();
        match self.joined_value(&wholes) {
            Value::Address(places) => Value::Low(places),
            other => other,
        }
    }

    fn joined_stack(&mut self, frames: &[(Bdd, &Frame)]) -> BTreeMap<i64, Byte> {
        let slots: BTreeSet<i64> =
            frames.iter().flat_map(|(_, frame)| frame.stack.keys().map(|at| at.div_euclid(SLOT_BYTES))).collect();
        let mut stack = BTreeMap::new();
        for slot in slots {
            let all = slot * SLOT_BYTES..(slot + 1) * SLOT_BYTES;
            let paths: Vec<(Bdd, Vec<Option<&Byte>>)> = frames
                .iter()
                .map(|(condition, frame)| (*condition, all.clone().map(|at| frame.stack.get(&at)).collect()))
                .collect();
            let bytes = self.joined_slot(&paths);
            stack.extend(all.zip(bytes).filter_map(|(at, byte)| Some((at, byte?))));
        }
        stack
    }

    fn joined_slot(&mut self, paths: &[(Bdd, Vec<Option<&Byte>>)]) -> Vec<Option<Byte>> {
        let (_, first) = &paths[0];
        if paths.iter().all(|(_, bytes)| bytes == first) {
            return first.iter().map(|byte| byte.cloned()).collect();
        }
        let is_bits = |byte: &Option<&Byte>| matches!(byte, None | Some(Byte::Bits(_)));
        if paths.iter().all(|(_, bytes)| bytes.iter().all(is_bits)) {
            let paths: Vec<(Bdd, Vec<Id>)> =
                paths.iter().map(|(condition, bytes)| (*condition, self.bits_of(bytes))).collect();
            return self.joined_piece(&paths).into_iter().map(|id| Some(Byte::Bits(id))).collect();
        }
        let values: Vec<(Bdd, Value)> = paths
            .iter()
            .map(|(condition, bytes)| {
                let value = match bytes.first() {
                    _ if bytes.iter().all(is_bits) => {
                        let bytes = self.bits_of(bytes);
                        Value::Number(self.graph.concat(bytes))
                    }
                    Some(Some(Byte::Of(places, 0))) if is_whole(bytes, places) => Value::Address(Rc::clone(places)),
                    _ => Value::Nothing,
                };
                (*condition, value)
            })
            .collect();
        // A slot that is not whole on some path may not be read in parts.
        let is_whole = values.iter().all(|(_, value)| *value != Value::Nothing);
        let values: Vec<(Bdd, &Value)> = values.iter().map(|(condition, value)| (*condition, value)).collect();
        match self.joined_value(&values) {
            Value::Number(id) if is_whole => {
                (0..SLOT_BYTES as u16).map(|byte| Some(Byte::Bits(self.graph.slice(id, 8 * byte, 8)))).collect()
            }
            Value::Address(places) if is_whole => {
                (0..SLOT_BYTES as u8).map(|number| Some(Byte::Of(Rc::clone(&places), number))).collect()
            }
            _ => vec![Some(Byte::Nothing); SLOT_BYTES as usize],
        }
    }

    /// Bytes that were never written are zeros in the interpreter.
    fn bits_of(&mut self, bytes: &[Option<&Byte>]) -> Vec<Id> {
        let zero = self.graph.number(0, 8);
        let bits = |byte: &Option<&Byte>| if let Some(Byte::Bits(id)) = byte { *id } else { zero };
        bytes.iter().map(bits).collect()
    }

    /// Adjacent bytes are selected as one number if they are one on every path.
    pub(super) fn joined_piece(&mut self, paths: &[(Bdd, Vec<Id>)]) -> Vec<Id> {
        let (_, first) = &paths[0];
        if paths.iter().all(|(_, bytes)| bytes == first) {
            return first.clone();
        }
        let len = first.len();
        let wholes: Vec<(Bdd, Id)> =
            paths.iter().map(|(condition, bytes)| (*condition, self.graph.concat(bytes.clone()))).collect();
        let is_one = |graph: &Graph, id: Id| {
            let node = graph.node(id);
            let rest = node.args.get(1).map(|rest| graph.as_const(*rest));
            node.kind != Kind::Concat || node.args.len() == 2 && rest == Some(Some(0))
        };
        if len == 1 || wholes.iter().all(|(_, whole)| is_one(&self.graph, *whole)) {
            let whole = self.mux(&wholes, Bdd::TRUE);
            return (0..len as u16).map(|byte| self.graph.slice(whole, 8 * byte, 8)).collect();
        }
        let half = len.div_ceil(2);
        let part = |from: usize, to: usize| -> Vec<(Bdd, Vec<Id>)> {
            paths.iter().map(|(condition, bytes)| (*condition, bytes[from..to].to_vec())).collect()
        };
        let (low, high) = (part(0, half), part(half, len));
        let mut all = self.joined_piece(&low);
        all.extend(self.joined_piece(&high));
        all
    }
}

/// Whether the eight bytes of a slot are one address.
fn is_whole(bytes: &[Option<&Byte>], address: &Places) -> bool {
    let mut numbered = (0..).zip(bytes);
    numbered.all(|(number, byte)| matches!(byte, Some(Byte::Of(places, own)) if *own == number && places == address))
}
