// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transfer function of instructions.

use super::expected::Expected;
use super::marks::Place;
use super::number::{Range, arithmetic};
use super::path::{Next, Path};
use super::refusal::Unsafe;
use super::state::Frame;
use super::text;
use super::value::{Address, Link, MapId, Number, Region, Room, Value};
use super::walk::Walk;
use flowloom_isa::op::{AluOp, Op, Operand, Reg, Size, Width};

/// The bound of offsets, so that sums do not overflow [Linux BPF_MAX_VAR_OFF].
const MAX_OFFSET: i64 = 1 << 29;

/// A source operand: its value, and whether it is an immediate.
#[derive(Clone, Copy)]
pub(super) struct Second {
    pub(super) value: Value,
    pub(super) register: Option<Reg>,
}

impl Walk<'_> {
    /// An operation on one number; the result for an address is a number in `of_address`.
    fn unary(
        &mut self,
        path: &mut Path,
        dst: Reg,
        src: Reg,
        of_address: Range,
        compute: impl Fn(&Range) -> Range,
    ) -> Result<(), Unsafe> {
        let value = match self.read(path, src)? {
            Value::Number(number) => Value::Number(self.made(compute(&number.range), number.origin, None)),
            _ => self.leak(path.state.at, of_address),
        };
        path.set(dst, value);
        Ok(())
    }

    pub(super) fn step(&mut self, path: &mut Path, op: Op) -> Result<Next, Unsafe> {
        let at = path.state.at;
        let next = Next::At(at + op.slots());
        match op {
            Op::Alu { width, op: AluOp::Mov, dst, src } => {
                let value = self.moved(path, width, src)?;
                path.set(dst, value);
            }
            Op::Alu { width, op, dst, src } => {
                let value = self.computed(path, width, op, dst, src)?;
                path.set(dst, value);
            }
            Op::MovSx { width, from, dst, src } => {
                self.unary(path, dst, src, Range::ANY, |range| range.sign_extended(from, width))?;
            }
            Op::Neg { width, dst } => {
                self.unary(path, dst, dst, Range::ANY, |range| arithmetic::neg(width, range))?;
            }
            Op::End { op, size, dst } => {
                let of_address = Range::of_size(size);
                self.unary(path, dst, dst, of_address, |range| arithmetic::byte_order(op, size, range))?;
            }
            Op::Load { size, signed, dst, base, off } => {
                let address = self.address(path, base)?;
                let value = self.load(path, &address, off.into(), size, signed)?;
                path.set(dst, value);
            }
            Op::Store { size, base, off, src } => {
                let mut value = self.second(path, src)?.value;
                if let Operand::Reg(register) = src {
                    value = self.linked(path, register, value);
                }
                let address = self.address(path, base)?;
                self.store(path, &address, off.into(), size, value)?;
            }
            Op::Atomic { op, size, base, off, src } => self.atomic(path, op, size, base, off.into(), src)?,
            Op::LoadImm { dst, value } => {
                let value = self.fresh(Range::constant(value));
                path.set(dst, value);
            }
            Op::LoadMap { dst, map } => {
                path.set(dst, Value::Address(Address::new(Region::Map(MapId::Of(map as u32)))));
            }
            Op::LoadMapValue { dst, map, off } => {
                let address = Address::new(Region::Value(MapId::Of(map as u32)));
                path.set(dst, Value::Address(Address { fixed: off.into(), ..address }));
            }
            Op::LoadFunc { dst, distance } => {
                let slot = (at as i64 + 1 + i64::from(distance)) as u32;
                path.set(dst, Value::Address(Address::new(Region::Function { slot })));
            }
            Op::Jump { off } => return Ok(Next::At((at as i64 + 1 + i64::from(off)) as usize)),
            Op::JumpLong { distance } => return Ok(Next::At((at as i64 + 1 + i64::from(distance)) as usize)),
            Op::Branch { width, cond, dst, src, off } => {
                return self.branch(path, width, cond, dst, src, off);
            }
            Op::MayGoto { off } => {
                let mut other = path.state.clone();
                other.at = (at as i64 + 1 + i64::from(off)) as usize;
                self.fork(path, other, at, true)?;
                self.turn(path, at, false);
                path.iterations += 1;
                if let Some(number) = self.settled_in(path) {
                    self.not_bounded(number, path);
                    return Ok(Next::End);
                }
            }
            Op::Call { helper } => return self.call(path, helper),
            Op::CallLocal { distance } => return self.call_local(path, distance),
            Op::Exit => return self.exit(path),
            // Refused before.
            Op::LoadPacket { .. }
            | Op::LoadVar { .. }
            | Op::LoadMapIdx { .. }
            | Op::LoadMapIdxValue { .. }
            | Op::CallKfunc { .. } => return Ok(Next::End),
        }
        Ok(next)
    }

    /// Reads a register, which has to be initialised.
    pub(super) fn read(&mut self, path: &Path, register: Reg) -> Result<Value, Unsafe> {
        let number = usize::from(register.number());
        let value = path.state.frame().registers[number];
        if matches!(value, Value::Unwritten) {
            return Err(Unsafe::Unwritten { register: register.to_string() });
        }
        self.used(path, Place::Register { frame: path.depth(), number });
        if value.number().is_some_and(|number| number.was_address()) {
            self.proof.insns[path.state.at].leaks = true;
        }
        Ok(value)
    }

    pub(super) fn second(&mut self, path: &Path, operand: Operand) -> Result<Second, Unsafe> {
        Ok(match operand {
            Operand::Reg(register) => Second { value: self.read(path, register)?, register: Some(register) },
            Operand::Imm(imm) => Second { value: self.fresh(Range::constant(imm as u64)), register: None },
        })
    }

    /// Reads a register that has to hold an address of memory.
    fn address(&mut self, path: &Path, register: Reg) -> Result<Address, Unsafe> {
        let value = self.read(path, register)?;
        value.address().ok_or_else(|| Unsafe::Kind {
            register: register.to_string(),
            found: self.text_of(&value),
            expected: "an address",
        })
    }

    /// An address becomes a number.
    pub(super) fn leak(&mut self, at: usize, range: Range) -> Value {
        self.proof.insns[at].leaks = true;
        self.fresh(range)
    }

    /// The value of `dst = src`.
    fn moved(&mut self, path: &mut Path, width: Width, src: Operand) -> Result<Value, Unsafe> {
        let second = self.second(path, src)?;
        let Value::Number(number) = second.value else {
            let at = path.state.at;
            return Ok(if width == Width::W64 { second.value } else { self.leak(at, Range::of_size(Size::W)) });
        };
        let Some(register) = second.register else {
            // The number is sign-extended, then truncated.
            let range = if width == Width::W64 { number.range } else { number.range.low(Size::W) };
            return Ok(Value::Number(Number { range, ..number }));
        };
        let is_whole = width == Width::W64 || number.range.umax() <= u32::MAX.into();
        if !is_whole {
            return Ok(Value::Number(self.made(number.range.low(Size::W), number.origin, None)));
        }
        let value = self.linked(path, register, second.value);
        Ok(self.copied(value))
    }

    /// A copy of a value: a number in it has its own precision.
    pub(super) fn copied(&mut self, value: Value) -> Value {
        match value {
            Value::Number(number) => Value::Number(Number { origin: self.origins.copy(number.origin), ..number }),
            value => value,
        }
    }

    /// Links a number in a register with its copy: refinements of one apply to both.
    fn linked(&mut self, path: &mut Path, register: Reg, value: Value) -> Value {
        let Value::Number(number) = value else { return value };
        if number.link.is_some() || number.range.as_constant().is_some() {
            return value;
        }
        let linked = Value::Number(Number { link: Some(Link { family: self.id(), plus: 0 }), ..number });
        // The register itself does not change by this.
        path.state.frame_mut().registers[usize::from(register.number())] = linked;
        linked
    }

    fn computed(&mut self, path: &Path, width: Width, op: AluOp, dst: Reg, src: Operand) -> Result<Value, Unsafe> {
        let at = path.state.at;
        let first = self.read(path, dst)?;
        let second = self.second(path, src)?;
        let is_sum = matches!(op, AluOp::Add | AluOp::Sub);
        match (first, second.value) {
            (Value::Number(a), Value::Number(b)) => {
                let is_self = second.register == Some(dst);
                Ok(Value::Number(self.computed_numbers(width, op, &a, &b, is_self)))
            }
            (Value::Address(address), Value::Number(number)) if is_sum && width == Width::W64 => {
                self.moved_by(&address, &number, op == AluOp::Sub).map(Value::Address)
            }
            (Value::Number(number), Value::Address(address)) if op == AluOp::Add && width == Width::W64 => {
                self.moved_by(&address, &number, false).map(Value::Address)
            }
            (Value::Address(a), Value::Address(b)) if op == AluOp::Sub && width == Width::W64 => {
                Ok(self.distance(at, &a, &b))
            }
            _ if width == Width::W32 => Ok(self.leak(at, Range::of_size(Size::W))),
            (Value::Address(address), _) | (_, Value::Address(address)) => Err(Unsafe::Arithmetic {
                symbol: op.symbol(),
                found: self.text_of(&Value::Address(address)),
                expected: Expected::Sum,
            }),
            _ => Ok(self.leak(at, Range::ANY)),
        }
    }

    fn computed_numbers(&mut self, width: Width, op: AluOp, a: &Number, b: &Number, is_self: bool) -> Number {
        let range = match op {
            AluOp::Sub | AluOp::Xor if is_self => Range::constant(0),
            _ => arithmetic::alu(op, width, &a.range, &b.range),
        };
        let mut made = self.made(range, a.origin, Some(b.origin));
        let constant = b.range.as_constant().and_then(|b| i32::try_from(b as i64).ok());
        let distance = match op {
            AluOp::Add if width == Width::W64 => constant,
            AluOp::Sub if width == Width::W64 => constant.and_then(i32::checked_neg),
            _ => None,
        };
        if let Some(distance) = distance.filter(|_| !is_self) {
            let on = |link: Link| Some(Link { plus: link.plus.checked_add(distance)?, ..link });
            made.link = a.link.and_then(on);
            let nearer = |room: Room| Some(Room { fixed: room.fixed.checked_sub(distance.into())?, ..room });
            made.room = a.room.and_then(nearer);
        }
        made
    }

    /// An address plus or minus a number.
    fn moved_by(&mut self, address: &Address, number: &Number, back: bool) -> Result<Address, Unsafe> {
        let symbol = if back { "-=" } else { "+=" };
        let refuse = |walk: &Self, expected| Unsafe::Arithmetic {
            symbol,
            found: walk.text_of(&Value::Address(*address)),
            expected,
        };
        if address.nullable {
            return Err(refuse(self, Expected::NotNullBase));
        }
        if matches!(address.to, Region::Map(_) | Region::Function { .. } | Region::PacketEnd) {
            return Err(refuse(self, Expected::MemoryBase));
        }
        let mut moved = *address;
        if let Some(constant) = number.range.as_constant() {
            self.origins.mark(number.origin);
            let distance = if back { (constant as i64).checked_neg() } else { Some(constant as i64) };
            let fixed = distance.and_then(|distance| address.fixed.checked_add(distance));
            moved.fixed =
                fixed.filter(|fixed| fixed.abs() < MAX_OFFSET).ok_or_else(|| refuse(self, Expected::NearNumber))?;
            return Ok(moved);
        }
        self.origins.mark(number.origin);
        let op = if back { AluOp::Sub } else { AluOp::Add };
        moved.var = arithmetic::alu(op, Width::W64, &address.var, &number.range);
        let is_bounded = |range: &Range| range.smin() > -MAX_OFFSET && range.smax() < MAX_OFFSET;
        if !is_bounded(&number.range) || !is_bounded(&moved.var) {
            return Err(Unsafe::Arithmetic {
                symbol,
                found: format!(
                    "{} with a number of {}",
                    text::region(self.program, self.depth, address.to),
                    number.range
                ),
                expected: Expected::BoundedNumber,
            });
        }
        if matches!(address.to, Region::Packet | Region::Metadata) {
            moved.id = self.id();
            moved.checked = 0;
        }
        Ok(moved)
    }

    /// The distance of two addresses.
    fn distance(&mut self, at: usize, a: &Address, b: &Address) -> Value {
        let is_exact = a.var.as_constant().is_some() && a.var == b.var && !a.nullable && !b.nullable;
        if a.to == b.to
            && is_exact
            && matches!(a.to, Region::Stack { .. } | Region::Value(_) | Region::Record { .. })
            && a.id == b.id
        {
            return self.fresh(Range::constant(a.fixed.wrapping_sub(b.fixed) as u64));
        }
        // The depth into the packet is a constant on each path, and a different one on most: as constants, they would
        // keep apart paths that continue alike. Both are nearer to the packet than twice the largest offset.
        let most = 4 * MAX_OFFSET;
        if a.to == b.to && matches!(a.to, Region::Packet | Region::Metadata) {
            return self.fresh(Range::signed(-most, most));
        }
        let is_room = a.to == Region::PacketEnd && b.to == Region::Packet;
        if is_room && b.fixed >= 0 && b.var.smin() >= 0 {
            // Past the checked bytes the end may have been passed.
            let range = match i64::from(b.checked) - b.fixed {
                there @ 0.. if !b.may_be_behind_end() => Range::signed(there, MAX_OFFSET),
                _ => Range::signed(-most, MAX_OFFSET),
            };
            let mut number = Number::new(range, self.origins.fresh());
            number.room = Some(Room { id: b.id, fixed: b.fixed });
            return Value::Number(number);
        }
        if matches!((a.to, b.to), (Region::PacketEnd | Region::Packet, Region::Packet | Region::PacketEnd)) {
            return self.fresh(Range::signed(-most, most));
        }
        self.leak(at, Range::ANY)
    }

    fn call_local(&mut self, path: &mut Path, distance: i32) -> Result<Next, Unsafe> {
        let at = path.state.at;
        if let Some(locked) = path.state.locked {
            return Err(Unsafe::Locked { what: "call".to_owned(), acquired: locked.insn });
        }
        let slot = (at as i64 + 1 + i64::from(distance)) as usize;
        let frame = path.depth();
        // Registers that the function does not read do not count.
        let arguments: [Value; 5] = std::array::from_fn(|i| path.state.frame().registers[i + 1]);
        for (number, value) in (1..).zip(arguments) {
            if !matches!(value, Value::Unwritten) {
                self.used(path, Place::Register { frame, number });
            }
        }
        self.global_called(path)?;
        self.enter(path, at, &arguments, false)?;
        Ok(Next::At(slot))
    }

    /// Enters a function in a new frame.
    pub(super) fn enter(
        &mut self,
        path: &mut Path,
        call: usize,
        arguments: &[Value],
        is_callback: bool,
    ) -> Result<(), Unsafe> {
        let depth = path.state.frames.len();
        if depth == super::state::MAX_FRAMES {
            return Err(Unsafe::Depth { limit: super::state::MAX_FRAMES });
        }
        let mut frame = Frame::new(depth, call);
        frame.callback = is_callback.then_some(path.state.held.len());
        frame.registers[1..=arguments.len()].copy_from_slice(arguments);
        path.state.frames.push(frame);
        path.entered();
        Ok(())
    }

    pub(super) fn exit(&mut self, path: &mut Path) -> Result<Next, Unsafe> {
        let at = path.state.at;
        let depth = path.depth();
        if depth > 0 && path.state.frame().callback.is_none() {
            return self.exit_function(path);
        }
        let returned = self.read(path, Reg::R0)?;
        if depth == 0 {
            if let Some(held) = path.state.held.first() {
                return Err(Unsafe::NotReleased { what: "a record", acquired: held.insn });
            }
            if let Some(locked) = path.state.locked {
                return Err(Unsafe::NotReleased { what: "a lock", acquired: locked.insn });
            }
            if let Some(function) = self.alone.filter(|_| matches!(returned, Value::Address(_))) {
                let function = self.program.globals[function].name.clone();
                return Err(Unsafe::Returns { function, found: self.text_of(&returned) });
            }
            if matches!(returned, Value::Address(_)) {
                self.proof.insns[at].leaks = true;
            }
            return Ok(Next::End);
        }
        self.round_ends(path, &returned)
    }

    /// Returns to the caller. `r0` may be uninitialised.
    fn exit_function(&mut self, path: &mut Path) -> Result<Next, Unsafe> {
        let depth = path.depth();
        let returned = path.state.frame().registers[0];
        self.used(path, Place::Register { frame: depth, number: 0 });
        if let Value::Address(Address { to: Region::Stack { frame }, .. }) = returned
            && usize::from(frame) == depth
        {
            return Err(Unsafe::ReturnsStack);
        }
        let call = path.state.frame().call;
        self.leave(path);
        let returned = self.global_returned(path, call, returned)?;
        path.set(Reg::R0, returned);
        self.clobber(path);
        Ok(Next::At(call + 1))
    }

    /// A call clobbers the argument registers.
    pub(super) fn clobber(&mut self, path: &mut Path) {
        for register in (1..=5).filter_map(Reg::new) {
            path.set(register, Value::Unwritten);
        }
    }
}
