// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Branches: which edges are feasible, and how the condition refines the state.

use super::number::{Range, compare};
use super::path::{Next, Path};
use super::proof::Edges;
use super::refusal::Unsafe;
use super::state::{MAX_PACKET_BYTES, State};
use super::step::Second;
use super::value::{Address, Number, Region, Value};
use super::walk::Walk;
use flowloom_isa::op::{Cond, Operand, Reg, Width};

struct Condition {
    width: Width,
    cond: Cond,
    dst: Reg,
    first: Value,
    second: Second,
}

impl Condition {
    /// Whether the result depends on the numeric value of an address: neither a null check nor a comparison within one
    /// region or with its end.
    fn depends_on_address_value(&self) -> bool {
        let is_null = |number: &Number| number.range.as_constant() == Some(0);
        match (&self.first, &self.second.value) {
            (Value::Address(_), Value::Number(number)) | (Value::Number(number), Value::Address(_)) => {
                !(self.width == Width::W64 && matches!(self.cond, Cond::Eq | Cond::Ne) && is_null(number))
            }
            (Value::Address(a), Value::Address(b)) => {
                let is_packet = |address: &Address| {
                    matches!(address.to, Region::Packet | Region::PacketEnd | Region::Metadata) && !address.nullable
                };
                let is_one = a.to == b.to && !a.nullable && !b.nullable || is_packet(a) && is_packet(b);
                !(self.width == Width::W64 && self.cond != Cond::Set && is_one)
            }
            _ => false,
        }
    }
}

impl Walk<'_> {
    pub(super) fn branch(
        &mut self,
        path: &mut Path,
        width: Width,
        cond: Cond,
        dst: Reg,
        src: Operand,
        off: i16,
    ) -> Result<Next, Unsafe> {
        let at = path.state.at;
        let target = (at as i64 + 1 + i64::from(off)) as usize;
        let first = self.read(path, dst)?;
        let second = self.second(path, src)?;
        let condition = Condition { width, cond, dst, first, second };
        self.proof.insns[at].leaks |= condition.depends_on_address_value();
        let decided = self.decided(&condition);
        if let Some(holds) = decided {
            // The condition was known already, but it depends on the numbers from which it was known.
            self.learn(&mut path.state, &condition, holds);
            return Ok(self.one_way(path, holds, target));
        }
        let mut taken = path.state.clone();
        let jumps = self.learn(&mut taken, &condition, true);
        let falls = self.learn(&mut path.state, &condition, false);
        if jumps && falls {
            self.proof.insns[at].edges = Edges { jumps: true, falls: true };
            taken.at = target;
            self.fork(path, taken, at, true)?;
            self.turn(path, at, false);
            return Ok(Next::At(at + 1));
        }
        // One edge is infeasible because of these numbers, so they are marked precise.
        for value in [first, second.value] {
            if let Value::Number(number) = value {
                self.origins.mark(number.origin);
            }
        }
        if !jumps && !falls {
            return Ok(Next::End);
        }
        if jumps {
            path.state = taken;
        }
        Ok(self.one_way(path, jumps, target))
    }

    /// The branch takes only this edge on this path.
    fn one_way(&mut self, path: &mut Path, jumps: bool, target: usize) -> Next {
        let at = path.state.at;
        let edges = &mut self.proof.insns[at].edges;
        edges.jumps |= jumps;
        edges.falls |= !jumps;
        self.turn(path, at, jumps);
        Next::At(if jumps { target } else { at + 1 })
    }

    /// Whether the branch always takes the same edge here.
    fn decided(&mut self, condition: &Condition) -> Option<bool> {
        let Condition { width, cond, dst, first, second } = condition;
        let (width, cond, dst) = (*width, *cond, *dst);
        match (first, &second.value) {
            (Value::Number(number), Value::Number(_)) if second.register == Some(dst) => match cond {
                Cond::Eq | Cond::Ge | Cond::Le | Cond::Sge | Cond::Sle => Some(true),
                Cond::Ne | Cond::Gt | Cond::Lt | Cond::Sgt | Cond::Slt => Some(false),
                // A common bit is known to be set.
                Cond::Set => {
                    let decided = compare::decide(Cond::Ne, width, &number.range, &Range::constant(0))?;
                    self.origins.mark(number.origin);
                    Some(decided)
                }
            },
            (Value::Number(a), Value::Number(b)) => {
                let decided = compare::decide(cond, width, &a.range, &b.range)?;
                self.origins.mark(a.origin);
                self.origins.mark(b.origin);
                Some(decided)
            }
            (Value::Address(address), Value::Number(number)) | (Value::Number(number), Value::Address(address))
                if width == Width::W64 && number.range.as_constant() == Some(0) && !address.nullable =>
            {
                self.origins.mark(number.origin);
                match cond {
                    Cond::Eq => Some(false),
                    Cond::Ne => Some(true),
                    _ => None,
                }
            }
            (Value::Address(a), Value::Address(b)) if width == Width::W64 => checked_before(cond, a, b),
            _ => None,
        }
    }

    /// Refines the state by the condition or its negation; `false` if that is contradictory.
    fn learn(&mut self, state: &mut State, condition: &Condition, holds: bool) -> bool {
        let Condition { width, cond, dst, first, second } = condition;
        let (width, cond, dst) = (*width, *cond, *dst);
        match (first, &second.value) {
            (Value::Number(_), Value::Number(_)) if second.register == Some(dst) => true,
            (Value::Number(a), Value::Number(b)) => {
                let Some((left, right)) = compare::refine(cond, width, holds, &a.range, &b.range) else { return false };
                self.learn_number(state, dst, a, left, b)
                    && second.register.is_none_or(|register| self.learn_number(state, register, b, right, a))
            }
            (Value::Address(address), Value::Number(number)) | (Value::Number(number), Value::Address(address))
                if width == Width::W64 && address.nullable && number.range.as_constant() == Some(0) =>
            {
                let is_null = match cond {
                    Cond::Eq => holds,
                    Cond::Ne => !holds,
                    _ => return true,
                };
                // With another constant it would tell nothing, so the constant is precise.
                self.origins.mark(number.origin);
                self.learn_null(state, address, is_null);
                true
            }
            (Value::Address(a), Value::Address(b)) if width == Width::W64 => {
                if let Some((address, bytes)) = checked(cond, holds, a, b) {
                    let same = |other: &Address| other.to == address.to && other.id == address.id && !other.nullable;
                    state.change_addresses(same, |other| other.checked = other.checked.max(bytes));
                }
                let is_equal = matches!((cond, holds), (Cond::Eq, true) | (Cond::Ne, false));
                if is_equal && a.nullable != b.nullable {
                    // An operand equal to a non-null address is not null.
                    self.learn_null(state, if a.nullable { a } else { b }, false);
                }
                true
            }
            _ => true,
        }
    }

    /// Refines a number in a register, and all registers linked to it.
    fn learn_number(
        &mut self,
        state: &mut State,
        register: Reg,
        before: &Number,
        range: Range,
        other: &Number,
    ) -> bool {
        // A packet range that was sufficient before stays valid for addresses computed since.
        if range == before.range && before.room.is_none() {
            return true;
        }
        let origin = self.origins.made_from(before.origin, Some(other.origin));
        let mut after = Number { range, origin, ..*before };
        let origins = &mut self.origins;
        let mut without = None;
        if let Some(link) = before.link {
            state.change_family(link.family, |number| {
                let plus = number.link.map_or(0, |other| i64::from(other.plus) - i64::from(link.plus));
                let moved = super::number::arithmetic::alu(
                    flowloom_isa::op::AluOp::Add,
                    Width::W64,
                    &range,
                    &Range::constant(plus as u64),
                );
                match number.range.meet(&moved) {
                    Some(known) if known != number.range => {
                        number.range = known;
                        number.origin = origins.made_from(number.origin, Some(origin));
                    }
                    Some(_) => {}
                    None => without = Some(number.origin),
                }
            });
        }
        if let Some(origin) = without {
            // The contradiction also follows from the linked number.
            origins.mark(origin);
        }
        if range.as_constant().is_some() {
            after.link = None;
        }
        state.frame_mut().registers[usize::from(register.number())] = Value::Number(after);
        if let Some(room) = after.room {
            let bytes = room.fixed.saturating_add(range.smin().max(0));
            if range.smin() >= 0 && (0..=MAX_PACKET_BYTES as i64).contains(&bytes) {
                let same = |address: &Address| address.to == Region::Packet && address.id == room.id;
                state.change_addresses(same, |address| address.checked = address.checked.max(bytes as u32));
                // The packet range is derived from these numbers.
                self.origins.mark(origin);
            }
        }
        without.is_none()
    }

    /// Refines an address to null or non-null, and all addresses from the same call.
    fn learn_null(&mut self, state: &mut State, address: &Address, is_null: bool) {
        let id = address.id;
        if !is_null {
            state.change_addresses(|other| other.id == id && other.nullable, |other| other.nullable = false);
            return;
        }
        let is_same = |value: &Value| matches!(value, Value::Address(other) if other.id == id && other.nullable);
        let origins = &mut self.origins;
        state.change(is_same, |value| *value = Value::Number(Number::new(Range::constant(0), origins.fresh())));
        state.held.retain(|held| held.reference != id);
    }
}

/// A packet address and the end that it is compared with, the condition normalised to have the address first.
fn against_end(cond: Cond, a: &Address, b: &Address) -> Option<(Cond, Address)> {
    let is_end = |address: &Address, end: &Address| match address.to {
        Region::Packet => end.to == Region::PacketEnd,
        // The metadata area ends where the packet begins.
        Region::Metadata => end.to == Region::Packet && end.id == 0 && end.offset() == Some(0),
        _ => false,
    };
    let turned = match cond {
        Cond::Gt => Cond::Lt,
        Cond::Lt => Cond::Gt,
        Cond::Ge => Cond::Le,
        Cond::Le => Cond::Ge,
        other => other,
    };
    let (cond, address) = match (is_end(a, b), is_end(b, a)) {
        (true, _) => (cond, *a),
        (_, true) => (turned, *b),
        _ => return None,
    };
    let most = address.fixed.checked_add(address.var.smax())?;
    let is_sane = address.fixed >= 0 && address.var.smin() >= 0 && most <= MAX_PACKET_BYTES as i64;
    is_sane.then_some((cond, address))
}

/// The packet range that a comparison with the end proves, in bytes.
fn checked(cond: Cond, holds: bool, a: &Address, b: &Address) -> Option<(Address, u32)> {
    let (cond, address) = against_end(cond, a, b)?;
    let more = match (cond, holds) {
        (Cond::Gt, false) | (Cond::Le, true) | (Cond::Eq, true) | (Cond::Ne, false) => 0,
        (Cond::Ge, false) | (Cond::Lt, true) => 1,
        _ => return None,
    };
    let bytes = u32::try_from(address.fixed + more).ok()?;
    Some((address, bytes.min(MAX_PACKET_BYTES as u32)))
}

/// Whether an earlier comparison implies the result of this one.
fn checked_before(cond: Cond, a: &Address, b: &Address) -> Option<bool> {
    let (cond, address) = against_end(cond, a, b)?;
    let known = i64::from(address.checked);
    if address.may_be_behind_end() {
        return None;
    }
    // Drivers without metadata support let it begin after its end [Linux xdp_set_data_meta_invalid].
    if address.to == Region::Metadata && known == 0 {
        return None;
    }
    match cond {
        Cond::Gt if address.fixed <= known => Some(false),
        Cond::Le if address.fixed <= known => Some(true),
        Cond::Ge if address.fixed < known => Some(false),
        Cond::Lt if address.fixed < known => Some(true),
        _ => None,
    }
}
