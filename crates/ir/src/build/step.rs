// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transfer function of instructions.

use std::rc::Rc;

use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, Cond, EndOp, Op, Operand, Reg, Width};

use super::builder::{Builder, MAX_WALKED, Path};
use super::callback::calls_back;
use super::state::{Frame, Place, Region, State, Value, address, leak, mixed, set};
use crate::bdd::Bdd;
use crate::graph::{Binary, Compare, Id};
use crate::refusal::Reason;

impl Builder<'_> {
    pub(super) fn walk(
        &mut self,
        condition: Bdd,
        mut state: State,
        mut at: usize,
        iterations: &[(u32, u32)],
        position: &[u32],
    ) -> Result<(), Reason> {
        let shape = self.shape(state.frame().entry)?;
        self.path = condition;
        let start = at;
        loop {
            if at != start && shape.spot(at).is_some() {
                return self.arrive(condition, state, at, iterations);
            }
            self.at = at;
            self.graph.at(at);
            self.walked += 1;
            if self.walked > MAX_WALKED {
                return Err(Reason::TooLong(MAX_WALKED));
            }
            self.within_budget()?;
            let Some(op) = self.code.get(at).copied().flatten() else {
                return Err(Reason::Unseen(at));
            };
            let next = at + op.slots();
            match op {
                Op::Jump { .. } | Op::JumpLong { .. } => {
                    let to = target(at, op);
                    return self.arrive(condition, state, to, iterations);
                }
                Op::Branch { width, cond, dst, src, .. } => {
                    let to = target(at, op);
                    let edges = self.proof.insns[at].edges;
                    if to == next {
                        return self.arrive(condition, state, next, iterations);
                    }
                    let taken = match (edges.jumps, edges.falls) {
                        (true, false) => Bdd::TRUE,
                        (false, true) => Bdd::FALSE,
                        _ => self.branch(&state, width, cond, dst, src)?,
                    };
                    let not = self.conditions.not(taken);
                    let (jumps, falls) = (self.conditions.and(condition, taken), self.conditions.and(condition, not));
                    let test = self.conditions.node(&mut self.graph, taken);
                    self.edge.test = Some((test, false));
                    self.arrive(falls, state.clone(), next, iterations)?;
                    self.edge.test = Some((test, true));
                    return self.arrive(jumps, state, to, iterations);
                }
                // It iterates more often than is ever unrolled.
                Op::MayGoto { .. } => return self.arrive(condition, state, next, iterations),
                Op::CallLocal { .. } => {
                    return self.enter(condition, state, target(at, op), next, iterations, position);
                }
                Op::Exit => return self.leave(condition, state),
                Op::Call { helper } if calls_back(helper) => {
                    return self.begin_rounds(condition, state, (helper, next), iterations, position);
                }
                Op::Call { helper: helper::TAIL_CALL } => {
                    return self.tail_call(condition, state, next, iterations, position);
                }
                Op::Call { helper } => self.call(condition, &mut state, helper)?,
                Op::Load { size, signed, dst, base, off } => {
                    let base = self.value(&state, base);
                    let value = self.load(condition, &state, base, off.into(), size)?;
                    let value = match value {
                        Value::Number(id) if signed => {
                            let cut = self.graph.slice(id, 0, 8 * size.bytes() as u16);
                            Value::Number(self.graph.sign_extend(cut, 64))
                        }
                        other => other,
                    };
                    set(&mut state, dst, value);
                }
                Op::Store { size, base, off, src } => {
                    let value = match src {
                        Operand::Reg(reg) => self.value(&state, reg),
                        Operand::Imm(imm) => Value::Number(self.graph.number(imm as i64 as u64, 64)),
                    };
                    let base = self.value(&state, base);
                    self.store(condition, &mut state, base, off.into(), size, value)?;
                }
                Op::Atomic { op, size, base, off, src } => {
                    self.atomic(condition, &mut state, (op, size), (base, off.into()), src)?;
                }
                other => {
                    let (dst, value) = self.compute(&state, other)?;
                    set(&mut state, dst, value);
                }
            }
            at = next;
        }
    }

    fn enter(
        &mut self,
        condition: Bdd,
        mut state: State,
        entry: usize,
        back: usize,
        iterations: &[(u32, u32)],
        position: &[u32],
    ) -> Result<(), Reason> {
        let mut frame = Frame::new(entry, back);
        for number in 1..=5 {
            frame.registers[number] = state.frame().registers[number].clone();
        }
        frame.position = position.to_vec();
        frame.iterations = iterations.to_vec();
        state.frames.push(frame);
        self.arrive(condition, state, entry, &[])
    }

    /// Returns from the current function.
    fn leave(&mut self, condition: Bdd, mut state: State) -> Result<(), Reason> {
        let returned = self.value(&state, Reg::R0);
        if state.frames.len() == 1 {
            let id = self.as_number(returned)?;
            state.frame_mut().registers[0] = Value::Number(self.graph.slice(id, 0, 32));
            self.blocks.add_edge(self.block, None);
            self.ends.push(Path { condition, state, from: self.block, edge: self.edge, taken: None });
            return Ok(());
        }
        let Some(frame) = state.frames.pop() else { return Ok(()) };
        if frame.again.is_some() {
            return self.end_round(condition, state, returned, frame);
        }
        for number in 1..=5 {
            state.frame_mut().registers[number] = Value::Nothing;
        }
        state.frame_mut().registers[0] = returned;
        self.arrive(condition, state, frame.back, &frame.iterations)
    }

    pub(super) fn value(&mut self, state: &State, register: Reg) -> Value {
        let depth = (state.frames.len() - 1) as u8;
        match state.frame().registers.get(usize::from(register.number())) {
            Some(value) => self.simplified(value.clone()),
            None => Value::Address(Rc::new([(Bdd::TRUE, Place::of(Region::Stack(depth)))])),
        }
    }

    pub(super) fn number(&mut self, state: &State, register: Reg) -> Result<Id, Reason> {
        let value = self.value(state, register);
        self.as_number(value)
    }

    /// A value as a number; an address that is null on the current path is 0.
    pub(super) fn as_number(&mut self, value: Value) -> Result<Id, Reason> {
        match value {
            Value::Number(id) => Ok(id),
            Value::Address(places) if self.is_null_here(&places) => Ok(self.graph.number(0, 64)),
            Value::Address(_) | Value::Low(_) => Err(leak()),
            Value::Nothing => Err(mixed()),
        }
    }

    /// Whether an address is null on the current path.
    fn is_null_here(&mut self, places: &[(Bdd, Place)]) -> bool {
        self.is_null_under(self.path, places)
    }

    /// Whether an address is null wherever a condition holds.
    pub(super) fn is_null_under(&mut self, condition: Bdd, places: &[(Bdd, Place)]) -> bool {
        let null = self.is_null(places);
        let not = self.conditions.not(null);
        self.conditions.and(condition, not) == Bdd::FALSE
    }

    fn operand(&mut self, state: &State, operand: Operand) -> Result<Id, Reason> {
        match operand {
            Operand::Reg(register) => self.number(state, register),
            Operand::Imm(imm) => Ok(self.graph.number(imm as i64 as u64, 64)),
        }
    }

    /// Instructions that only write a register.
    fn compute(&mut self, state: &State, op: Op) -> Result<(Reg, Value), Reason> {
        Ok(match op {
            Op::Alu { width, op: AluOp::Mov, dst, src } => {
                let value = match src {
                    Operand::Reg(register) => self.value(state, register),
                    Operand::Imm(imm) => Value::Number(self.graph.number(imm as i64 as u64, 64)),
                };
                let value = match (value, width) {
                    (Value::Number(id), Width::W32) => Value::Number(self.low(id, 32)),
                    (Value::Address(places) | Value::Low(places), Width::W32) => match self.is_null_here(&places) {
                        true => Value::Number(self.graph.number(0, 64)),
                        false => Value::Low(places),
                    },
                    (value, _) => value,
                };
                (dst, value)
            }
            Op::Alu { width: Width::W64, op: op @ (AluOp::Add | AluOp::Sub), dst, src }
                if self.is_address(state, dst, src) =>
            {
                (dst, self.moved(state, op, dst, src)?)
            }
            Op::Alu { width: Width::W32, op: AluOp::Sub, dst, src: Operand::Reg(src) }
                if self.is_address(state, dst, Operand::Reg(src)) =>
            {
                (dst, self.low_distance(state, dst, src)?)
            }
            Op::Alu { width, op, dst, src } => {
                let (a, b) = (self.number(state, dst)?, self.operand(state, src)?);
                (dst, Value::Number(self.alu(width, op, a, b)))
            }
            Op::MovSx { width, from, dst, src } => {
                let source = self.number(state, src)?;
                let cut = self.graph.slice(source, 0, 8 * from.bytes() as u16);
                let wide = self.graph.sign_extend(cut, if width == Width::W64 { 64 } else { 32 });
                (dst, Value::Number(self.graph.fit(wide, 64)))
            }
            Op::Neg { width, dst } => {
                let source = self.number(state, dst)?;
                let zero = self.graph.number(0, 64);
                (dst, Value::Number(self.alu(width, AluOp::Sub, zero, source)))
            }
            Op::End { op, size, dst } => {
                let source = self.number(state, dst)?;
                let bytes = size.bytes() as u16;
                let cut = self.graph.slice(source, 0, 8 * bytes);
                let value = match op {
                    EndOp::Le => cut,
                    EndOp::Be | EndOp::Swap => {
                        let parts = (0..bytes).rev().map(|byte| self.graph.slice(cut, 8 * byte, 8)).collect();
                        self.graph.concat(parts)
                    }
                };
                (dst, Value::Number(self.graph.fit(value, 64)))
            }
            Op::LoadImm { dst, value } => (dst, Value::Number(self.graph.number(value, 64))),
            Op::LoadMap { dst, map } => (dst, address(Place::of(Region::Map(map as u32)))),
            Op::LoadMapValue { dst, map, off } => {
                (dst, address(Place { offset: off.into(), ..Place::of(Region::Only(map as u32)) }))
            }
            Op::LoadFunc { dst, distance } => {
                let slot = (self.at as i64 + 1 + i64::from(distance)) as u32;
                (dst, address(Place::of(Region::Function(slot))))
            }
            other => return Err(Reason::Instruction(format!("{other:?}"))),
        })
    }

    pub(super) fn low(&mut self, id: Id, bits: u16) -> Id {
        let cut = self.graph.slice(id, 0, bits);
        self.graph.fit(cut, 64)
    }

    fn alu(&mut self, width: Width, op: AluOp, a: Id, b: Id) -> Id {
        let binary = match op {
            AluOp::Add => Binary::Add,
            AluOp::Sub => Binary::Sub,
            AluOp::Mul => Binary::Mul,
            AluOp::Div => Binary::Div,
            AluOp::Sdiv => Binary::SignedDiv,
            AluOp::Or => Binary::Or,
            AluOp::And => Binary::And,
            AluOp::Lsh => Binary::ShiftLeft,
            AluOp::Rsh => Binary::ShiftRight,
            AluOp::Mod => Binary::Mod,
            AluOp::Smod => Binary::SignedMod,
            AluOp::Xor => Binary::Xor,
            AluOp::Arsh => Binary::SignedShiftRight,
            AluOp::Mov => return b,
        };
        if width == Width::W64 {
            return self.graph.binary(binary, a, b);
        }
        let (a, b) = (self.graph.slice(a, 0, 32), self.graph.slice(b, 0, 32));
        let result = self.graph.binary(binary, a, b);
        self.graph.fit(result, 64)
    }

    fn is_address(&mut self, state: &State, dst: Reg, src: Operand) -> bool {
        let mut is = |register: Reg| match self.value(state, register) {
            Value::Address(places) | Value::Low(places) => !self.is_null_here(&places),
            _ => false,
        };
        is(dst) || matches!(src, Operand::Reg(register) if is(register))
    }

    /// An address plus or minus a number; or the distance of two addresses.
    fn moved(&mut self, state: &State, op: AluOp, dst: Reg, src: Operand) -> Result<Value, Reason> {
        let left = self.value(state, dst);
        let right = match src {
            Operand::Reg(register) => self.value(state, register),
            Operand::Imm(imm) => Value::Number(self.graph.number(imm as i64 as u64, 64)),
        };
        let (places, by) = match (op, left, right) {
            (_, Value::Address(places), Value::Number(by))
            | (AluOp::Add, Value::Number(by), Value::Address(places)) => (places, by),
            (AluOp::Sub, Value::Address(a), Value::Address(b)) => return self.distance(state, &a, &b),
            (_, Value::Nothing, _) | (_, _, Value::Nothing) => return Err(mixed()),
            _ => return Err(leak()),
        };
        let sign = if op == AluOp::Sub { -1 } else { 1 };
        let mut all = Vec::new();
        for (condition, place) in places.iter() {
            all.push((*condition, self.moved_place(state, place, by, sign)?));
        }
        Ok(Value::Address(all.into()))
    }

    /// A place moved by an offset.
    ///
    /// A number stays a number.
    fn moved_place(&mut self, state: &State, place: &Place, by: Id, sign: i64) -> Result<Place, Reason> {
        let number = match place.region {
            Region::Null => Some(self.graph.number(0, 64)),
            Region::Number(id) => Some(id),
            _ => None,
        };
        if let Some(number) = number {
            let op = if sign == 1 { Binary::Add } else { Binary::Sub };
            return Ok(Place::of(Region::Number(self.graph.binary(op, number, by))));
        }
        if let Some(by) = self.graph.as_const(by) {
            return Ok(Place { offset: place.offset.wrapping_add(sign.wrapping_mul(by as i64)), ..*place });
        }
        if place.region == Region::Packet {
            let sum = self.place_sum(state, place)?.plus(&self.sum_of(by), sign);
            return Ok(self.packet_place(&sum));
        }
        let by = match sign {
            1 => by,
            _ => {
                let zero = self.graph.number(0, 64);
                self.graph.binary(Binary::Sub, zero, by)
            }
        };
        let moved = match place.moved {
            None => by,
            Some(before) => self.graph.binary(Binary::Add, before, by),
        };
        Ok(Place { moved: Some(moved), ..*place })
    }

    /// The distance of two places in the packet or in another object, 64 bits.
    fn distance(&mut self, state: &State, a: &[(Bdd, Place)], b: &[(Bdd, Place)]) -> Result<Value, Reason> {
        if let Some([a, b]) = self.offsets_in_one_object(a, b) {
            return Ok(Value::Number(self.graph.binary(Binary::Sub, a, b)));
        }
        let (a, b) = (self.packet_sum(state, a)?, self.packet_sum(state, b)?);
        Ok(Value::Number(self.widened(&a.plus(&b, -1))))
    }

    /// The same for the low halves of addresses.
    fn low_distance(&mut self, state: &State, a: Reg, b: Reg) -> Result<Value, Reason> {
        let mut places = |register: Reg| match self.value(state, register) {
            Value::Address(places) | Value::Low(places) => Ok(places),
            Value::Number(_) => Err(leak()),
            Value::Nothing => Err(mixed()),
        };
        let (a, b) = (places(a)?, places(b)?);
        match self.distance(state, &a, &b)? {
            Value::Number(distance) => Ok(Value::Number(self.low(distance, 32))),
            other => Ok(other),
        }
    }

    /// The condition under which a branch is taken.
    fn branch(&mut self, state: &State, width: Width, cond: Cond, dst: Reg, src: Operand) -> Result<Bdd, Reason> {
        let left = self.value(state, dst);
        let right = match src {
            Operand::Reg(register) => self.value(state, register),
            Operand::Imm(imm) => Value::Number(self.graph.number(imm as i64 as u64, 64)),
        };
        let bit = match (left, right) {
            (Value::Address(places), Value::Number(zero)) | (Value::Number(zero), Value::Address(places))
                if self.graph.as_const(zero) == Some(0) && matches!(cond, Cond::Eq | Cond::Ne) =>
            {
                let is_null = self.is_null(&places);
                return Ok(if cond == Cond::Eq { is_null } else { self.conditions.not(is_null) });
            }
            // Common bits of two addresses are no distance.
            (Value::Address(_), Value::Address(_)) if cond == Cond::Set => return Err(leak()),
            (Value::Address(a), Value::Address(b)) => {
                if let Some(known) = self.same_places(cond, &a, &b) {
                    return Ok(known);
                }
                if let Some(bit) = self.in_one_object(cond, &a, &b) {
                    return Ok(self.conditions.of(&self.graph, bit));
                }
                if let ([(_, end)], [(_, last)], Cond::Gt) = (&*a, &*b, cond)
                    && *last == Place::of(Region::End)
                    && self.is_parsed(state, end)
                {
                    return Ok(Bdd::FALSE);
                }
                let (a, b) = (self.packet_offset(state, &a)?, self.packet_offset(state, &b)?);
                let bit = self.holds(of_offsets(cond), a, b);
                self.note_test(self.path, bit);
                bit
            }
            (left, right) => {
                let (a, b) = (self.as_number(left)?, self.as_number(right)?);
                let bits = if width == Width::W64 { 64 } else { 32 };
                let (a, b) = (self.graph.slice(a, 0, bits), self.graph.slice(b, 0, bits));
                let bit = self.holds(cond, a, b);
                self.note_other(bit);
                bit
            }
        };
        Ok(self.conditions.of(&self.graph, bit))
    }

    /// Compares two addresses in the same object at constant offsets.
    fn same_places(&mut self, cond: Cond, a: &[(Bdd, Place)], b: &[(Bdd, Place)]) -> Option<Bdd> {
        let ([(_, a)], [(_, b)]) = (a, b) else { return None };
        let is_known = a.region == b.region && a.moved.is_none() && b.moved.is_none();
        if !is_known || matches!(a.region, Region::Packet | Region::End) {
            return None;
        }
        let holds = match cond {
            Cond::Eq => a.offset == b.offset,
            Cond::Ne => a.offset != b.offset,
            Cond::Gt => a.offset > b.offset,
            Cond::Ge => a.offset >= b.offset,
            Cond::Lt => a.offset < b.offset,
            Cond::Le => a.offset <= b.offset,
            _ => return None,
        };
        Some(if holds { Bdd::TRUE } else { Bdd::FALSE })
    }

    /// Compares two addresses in one object by their offsets.
    fn in_one_object(&mut self, cond: Cond, a: &[(Bdd, Place)], b: &[(Bdd, Place)]) -> Option<Id> {
        let [a, b] = self.offsets_in_one_object(a, b)?;
        Some(self.holds(of_offsets(cond), a, b))
    }

    /// The offsets of two addresses, 64 bits, if both are in the same object besides the packet.
    fn offsets_in_one_object(&mut self, a: &[(Bdd, Place)], b: &[(Bdd, Place)]) -> Option<[Id; 2]> {
        let ([(_, a)], [(_, b)]) = (a, b) else { return None };
        if a.region != b.region || !matches!(a.region, Region::Stack(_) | Region::Value { .. } | Region::Only(_)) {
            return None;
        }
        Some([a, b].map(|place| {
            let offset = self.graph.number(place.offset as u64, 64);
            place.moved.map_or(offset, |moved| self.graph.binary(Binary::Add, moved, offset))
        }))
    }

    /// The condition under which an address is 0: on paths where the call returned null, and the offset is 0.
    fn is_null(&mut self, places: &[(Bdd, Place)]) -> Bdd {
        let mut all = Bdd::FALSE;
        for (condition, place) in places {
            let base = match place.region {
                Region::Null => Some(self.graph.number(0, 64)),
                Region::Number(id) => Some(id),
                Region::Value { call, .. } | Region::Inner { call, .. } => Some(call),
                _ => None,
            };
            let Some(base) = base.filter(|_| place.moved.is_some() || place.offset == 0) else { continue };
            let base_is_zero = self.is_equal(base, 0);
            let offset_is_zero = match place.moved {
                Some(moved) => self.is_equal(moved, place.offset.wrapping_neg() as u64),
                None => Bdd::TRUE,
            };
            let null = self.conditions.and(base_is_zero, offset_is_zero);
            let both = self.conditions.and(*condition, null);
            all = self.conditions.or(all, both);
        }
        all
    }

    /// The condition under which a node of 64 bits has this value.
    fn is_equal(&mut self, id: Id, value: u64) -> Bdd {
        let value = self.graph.number(value, 64);
        let bit = self.compared_anywhere(Compare::Equal, id, value);
        self.conditions.of(&self.graph, bit)
    }

    pub(super) fn holds(&mut self, cond: Cond, a: Id, b: Id) -> Id {
        let (how, swapped, not) = match cond {
            Cond::Eq => (Compare::Equal, false, false),
            Cond::Ne => (Compare::Equal, false, true),
            Cond::Lt => (Compare::Below, false, false),
            Cond::Ge => (Compare::Below, false, true),
            Cond::Gt => (Compare::Below, true, false),
            Cond::Le => (Compare::Below, true, true),
            Cond::Slt => (Compare::SignedBelow, false, false),
            Cond::Sge => (Compare::SignedBelow, false, true),
            Cond::Sgt => (Compare::SignedBelow, true, false),
            Cond::Sle => (Compare::SignedBelow, true, true),
            Cond::Set => {
                if let Some(mask) = self.graph.as_const(b).filter(|mask| mask.is_power_of_two()) {
                    return self.graph.slice(a, mask.trailing_zeros() as u16, 1);
                }
                let common = self.graph.and(a, b);
                let bits = self.graph.bits(common);
                let zero = self.graph.number(0, bits);
                let none = self.graph.compare(Compare::Equal, common, zero);
                return self.graph.not(none);
            }
        };
        let bit = if swapped { self.graph.compare(how, b, a) } else { self.graph.compare(how, a, b) };
        if not { self.graph.not(bit) } else { bit }
    }
}

/// Addresses compare as unsigned numbers, offsets as signed ones.
fn of_offsets(cond: Cond) -> Cond {
    match cond {
        Cond::Gt => Cond::Sgt,
        Cond::Ge => Cond::Sge,
        Cond::Lt => Cond::Slt,
        Cond::Le => Cond::Sle,
        other => other,
    }
}

fn target(at: usize, op: Op) -> usize {
    (at as i64 + 1 + op.distance().unwrap_or(0)) as usize
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use flowloom_isa::asm;
    use flowloom_verifier::{Options, verify};

    use crate::build::build;
    use crate::refusal::Reason;

    fn refusal(condition: &str) -> Option<Reason> {
        let text = format!(
            ".program compared\n.license \"GPL\"\nr2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr0 = 2\nif r2 {condition} r3 goto out\n\
             r0 = 1\nout: exit\n"
        );
        let program = asm::program("test", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let proof = verify(&program, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        build(&program, &proof).err().map(|refusal| refusal.reason)
    }

    #[test]
    fn bits_of_addresses_are_no_distance() {
        assert_eq!(refusal(">"), None);
        assert_eq!(refusal("&"), Some(Reason::AddressAsNumber));
    }
}
