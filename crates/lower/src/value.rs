// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Code for expressions.
//!
//! A value of width 32 is held zero-extended, so that 64-bit instructions read it correctly.

use std::collections::BTreeSet;

use flowloom_isa::op::{AluOp, Cond};
use flowloom_wire::field::{FieldId, IPV4_MAPPED, Source};
use flowloom_wire::graph::{Header, Slice};

use super::asm::{Op, Operand, Reg, Size, access_size};
use super::facts::{Half, Item};
use super::fields::mask_of;
use super::lowering::Lowering;
use flowloom_efsm::layout::size_bytes;
use flowloom_efsm::model::{BinaryOp, Destination, Expr, Stateful, Type, Variable, Wide, Width};

/// A value known at compile time or at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Const(u64),
    Reg(Reg),
}

/// A value of up to 128 bits; the high half of a value of up to 64 bits is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) high: Value,
    pub(super) low: Value,
}

impl Pair {
    pub(super) fn narrow(low: Value) -> Pair {
        Pair { high: Value::Const(0), low }
    }

    pub(super) fn constant(value: u128) -> Pair {
        Pair { high: Value::Const((value >> 64) as u64), low: Value::Const(value as u64) }
    }

    fn of((high, low): (Reg, Reg), is_wide: bool) -> Pair {
        Pair { high: if is_wide { Value::Reg(high) } else { Value::Const(0) }, low: Value::Reg(low) }
    }

    pub(super) fn halves(self) -> [Value; 2] {
        [self.high, self.low]
    }

    pub(super) fn map(self, mut to: impl FnMut(Value) -> Value) -> Pair {
        Pair { high: to(self.high), low: to(self.low) }
    }
}

/// Environment in which an expression is evaluated.
#[derive(Debug, Clone, Default)]
pub(super) struct Env {
    pub(super) element: usize,
    /// The matched state.
    pub(super) state: u16,
    /// Address of the stored context; `None` means the default context.
    pub(super) context: Option<Reg>,
    /// Updated values that replace the stored ones.
    pub(super) after: Vec<(Destination, Pair)>,
    /// Values from before the updates, for registers whose old value the row's actions read.
    pub(super) old: Vec<(Destination, Pair)>,
}

pub(super) fn low_bits(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

pub(super) fn sign_extend(value: u64, bits: u32) -> u64 {
    let shift = 64 - bits.min(64);
    (((value << shift) as i64) >> shift) as u64
}

impl Lowering<'_> {
    fn stateful(&self, element: usize) -> Option<&Stateful> {
        self.function.elements[element].stateful.as_ref()
    }

    /// An operand for `value`; the register must not be changed.
    pub(super) fn operand_of(&mut self, value: Value) -> Operand {
        match value {
            Value::Const(c) => self.builder.operand(c),
            Value::Reg(r) => Operand::Reg(r),
        }
    }

    /// A new register with `value`, which may be changed.
    pub(super) fn own(&mut self, value: Value) -> Reg {
        let reg = self.builder.reg();
        match value {
            Value::Const(c) => self.builder.set(reg, c),
            Value::Reg(r) => self.builder.copy(reg, r),
        }
        reg
    }

    pub(super) fn truncate(&mut self, value: Value, width: Width, bits: u32) -> Value {
        match value {
            Value::Const(c) => Value::Const(low_bits(c, bits)),
            Value::Reg(_) if bits >= width.bits() => value,
            Value::Reg(r) => {
                let low = self.builder.reg();
                if bits == 32 {
                    self.builder.alu32(AluOp::Mov, low, Operand::Reg(r));
                } else {
                    self.builder.copy(low, r);
                    let mask = self.builder.operand(low_bits(u64::MAX, bits));
                    self.builder.alu64(AluOp::And, low, mask);
                }
                Value::Reg(low)
            }
        }
    }

    fn extend(&mut self, value: Value, ty: Type, width: Width) -> Value {
        let (bits, target) = (u32::from(ty.width_bits), width.bits());
        match value {
            Value::Const(c) => {
                let c = if ty.signed { sign_extend(c, bits) } else { low_bits(c, bits) };
                Value::Const(low_bits(c, target))
            }
            Value::Reg(r) if bits > target => {
                let low = self.builder.reg();
                self.builder.alu32(AluOp::Mov, low, Operand::Reg(r));
                Value::Reg(low)
            }
            Value::Reg(r) if ty.signed && bits < target => {
                let wide = self.builder.dup(r);
                let shift = Operand::Imm((target - bits) as i32);
                for op in [AluOp::Lsh, AluOp::Arsh] {
                    self.alu(width, op, wide, shift);
                }
                Value::Reg(wide)
            }
            Value::Reg(_) => value,
        }
    }

    pub(super) fn alu(&mut self, width: Width, op: AluOp, dst: Reg, src: Operand) {
        match width {
            Width::W64 => self.builder.alu64(op, dst, src),
            Width::W32 => {
                // In 32-bit arithmetic any constant is an immediate.
                self.builder.alu32(op, dst, src);
            }
        }
    }

    /// An operand for arithmetic in `width`.
    pub(super) fn operand_in(&mut self, width: Width, value: Value) -> Operand {
        match (width, value) {
            (Width::W32, Value::Const(c)) => Operand::Imm(c as u32 as i32),
            _ => self.operand_of(value),
        }
    }

    pub(super) fn declared(&self, element: usize, destination: Destination) -> Option<&Variable> {
        let stateful = self.stateful(element)?;
        match destination {
            Destination::Register(i) => stateful.registers.get(usize::from(i)),
            Destination::Global(i) => stateful.globals.get(usize::from(i)),
        }
    }

    /// The raw value of a register or global register, zero-extended.
    pub(super) fn variable(&mut self, env: &Env, destination: Destination) -> Pair {
        if let Some((_, value)) = env.after.iter().find(|(d, _)| *d == destination) {
            return *value;
        }
        let declared = self.declared(env.element, destination);
        let (initial, is_wide) = declared.map_or((0, false), |variable| (variable.initial, variable.ty.is_wide()));
        let halves = match (destination, env.context) {
            (Destination::Register(_), None) => return Pair::constant(initial),
            (Destination::Register(i), Some(context)) => self.load_register(env.element, i, context),
            (Destination::Global(i), _) => self.load_global(env.element, i),
        };
        Pair::of(halves, is_wide)
    }

    /// The raw value of a register or global register before the row's updates, zero-extended.
    pub(super) fn old_variable(&mut self, env: &Env, destination: Destination) -> Pair {
        match env.old.iter().find(|(d, _)| *d == destination) {
            Some((_, value)) => *value,
            None => self.variable(env, destination),
        }
    }

    /// As [`Lowering::old_variable`], extended to `width`.
    fn old_number(&mut self, env: &Env, destination: Destination, width: Width) -> Value {
        let ty = self.declared(env.element, destination).map_or(Type { width_bits: 64, signed: false }, |v| v.ty);
        let value = self.old_variable(env, destination).low;
        self.extend(value, ty, width)
    }

    /// As [`Lowering::variable`], extended to `width`.
    fn number(&mut self, env: &Env, destination: Destination, width: Width) -> Value {
        let ty = self.declared(env.element, destination).map_or(Type { width_bits: 64, signed: false }, |v| v.ty);
        let value = self.variable(env, destination).low;
        self.extend(value, ty, width)
    }

    fn load_register(&mut self, element: usize, i: u16, context: Reg) -> (Reg, Reg) {
        let b = &mut self.builder;
        let halves = *self.registers.entry((element, i)).or_insert_with(|| (b.reg(), b.reg()));
        if self.path.loaded.insert(Item::Register(i))
            && let (Some(layout), Some(stateful)) = (&self.plans[element].layout, self.stateful(element))
        {
            let bytes = size_bytes(&stateful.registers[usize::from(i)]);
            let offset = layout.registers[usize::from(i)] as i16;
            self.load_variable(bytes, halves, context, offset);
        }
        halves
    }

    fn load_global(&mut self, element: usize, i: u16) -> (Reg, Reg) {
        let b = &mut self.builder;
        let halves = *self.globals.entry((element, i)).or_insert_with(|| (b.reg(), b.reg()));
        if self.path.loaded.insert(Item::Global(i)) {
            let (address, bytes) = self.global_address(element, i);
            self.load_variable(bytes, halves, address, 0);
        }
        halves
    }

    fn load_variable(&mut self, bytes: u32, (high, low): (Reg, Reg), base: Reg, offset: i16) {
        self.builder.load(access_size(bytes.min(8)), low, base, offset);
        if bytes > 8 {
            self.builder.load(Size::Dw, high, base, offset + 8);
        }
    }

    /// Address of a global register, and its size in bytes.
    pub(super) fn global_address(&mut self, element: usize, i: u16) -> (Reg, u32) {
        let offset = self.plans[element].globals[usize::from(i)];
        let bytes = self.declared(element, Destination::Global(i)).map_or(8, size_bytes);
        let address = self.builder.reg();
        let map = self.globals_map.unwrap_or(0);
        self.builder.push(Op::MapValue { dst: address, map, offset });
        (address, bytes)
    }

    /// A value that is moved or compared as a whole.
    pub(super) fn pair(&mut self, wide: Wide, env: &Env) -> Pair {
        match wide {
            Wide::Constant(value) => Pair::constant(value),
            Wide::Field(field) if field.width_bits() > 64 => Pair::of(self.load_wide(env.element, field), true),
            Wide::Field(field) => Pair::narrow(Value::Reg(self.load_field(env.element, field))),
            Wide::Register(i) => self.variable(env, Destination::Register(i)),
            Wide::Global(i) => self.variable(env, Destination::Global(i)),
            Wide::Old(destination) => self.old_variable(env, destination),
            Wide::Metadata(i) => self.metadata_pair(i),
        }
    }

    /// A metadata field, zero-extended.
    pub(super) fn metadata_pair(&self, i: u16) -> Pair {
        if let Some(&value) = self.path.metadata.get(&i) {
            return Pair::constant(value);
        }
        let i = usize::from(i);
        Pair::of(self.metadata[i], self.function.metadata[i].ty.is_wide())
    }

    /// Locations of a field, one for each header that has it.
    pub(super) fn places(field: FieldId) -> Vec<(Header, Slice)> {
        match field.source() {
            Source::Header(header, slice) => vec![(header, slice)],
            Source::Either(_) | Source::Address { .. } => {
                field.alternatives().iter().flat_map(|&field| Lowering::places(field)).collect()
            }
            Source::IpProto(_) | Source::TcpPayloadLen(_) | Source::PacketLen | Source::PacketPort => Vec::new(),
        }
    }

    /// Emits `body` once for each location that is possible on this path, guarded by the validity of its header.
    /// Locations with the same slice and pointer are merged.
    pub(super) fn for_each_place(
        &mut self,
        places: &[(Header, Slice)],
        mut body: impl FnMut(&mut Self, Header, Slice),
    ) {
        let mut groups: Vec<(u32, Header, Slice)> = Vec::new();
        for &(header, slice) in places {
            if !self.path.masks.iter().any(|m| m & header.bit() != 0) {
                continue;
            }
            match groups.iter_mut().find(|(_, h, s)| *s == slice && self.pointers[h] == self.pointers[&header]) {
                Some((mask, ..)) => *mask |= header.bit(),
                None => groups.push((header.bit(), header, slice)),
            }
        }
        let join = self.builder.label();
        let masks = self.path.masks.clone();
        let count = groups.len();
        for (i, (mask, header, slice)) in groups.into_iter().enumerate() {
            let next = self.builder.label();
            if i + 1 < count {
                let here = self.builder.label();
                let valid = self.valid;
                self.builder.jump64(Cond::Set, valid, Operand::Imm(mask as i32), here);
                self.builder.goto(next);
                self.builder.place(here);
            }
            self.path.masks = masks.iter().copied().filter(|m| m & mask != 0).collect();
            body(self, header, slice);
            self.builder.goto(join);
            self.builder.place(next);
        }
        self.path.masks = masks;
        self.builder.place(join);
    }

    /// A field of at most 64 bits, as a number in the field's register.
    pub(super) fn load_field(&mut self, element: usize, field: FieldId) -> Reg {
        match field.source() {
            Source::IpProto(scope) => return self.ip_proto[&scope],
            Source::TcpPayloadLen(header) => return self.payload_len[&header],
            Source::PacketLen => return self.packet_len,
            Source::PacketPort => return self.port,
            _ => {}
        }
        let (reg, _) = self.field_registers(element, field);
        if self.path.loaded.insert(Item::Field(field)) {
            self.for_each_place(&Lowering::places(field), |this, header, slice| {
                let base = this.pointers[&header];
                this.load_slice(reg, base, slice, this.min_bytes(header));
            });
        }
        reg
    }

    fn field_registers(&mut self, element: usize, field: FieldId) -> (Reg, Reg) {
        let b = &mut self.builder;
        *self.fields.entry((element, field)).or_insert_with(|| (b.reg(), b.reg()))
    }

    /// A field wider than 64 bits, as high and low half.
    fn load_wide(&mut self, element: usize, field: FieldId) -> (Reg, Reg) {
        let (high, low) = self.field_registers(element, field);
        if self.path.loaded.insert(Item::Field(field)) {
            self.for_each_place(&Lowering::places(field), |this, header, slice| {
                let base = this.pointers[&header];
                let offset = (slice.offset_bits / 8) as i16;
                let b = &mut this.builder;
                if slice.width_bits == 128 {
                    for (reg, at) in [(high, offset), (low, offset + 8)] {
                        b.load(Size::Dw, reg, base, at);
                        b.push(Op::FromBe { dst: reg, bits: 64 });
                    }
                } else {
                    b.set(high, 0);
                    b.load(Size::W, low, base, offset);
                    b.push(Op::FromBe { dst: low, bits: 32 });
                    let mapped = b.operand(IPV4_MAPPED as u64);
                    b.alu64(AluOp::Or, low, mapped);
                }
            });
        }
        (high, low)
    }

    /// Largest width in bits of the value of an expression computed in `width`.
    pub(super) fn expr_bits(&self, expr: &Expr, width: Width, env: &Env) -> u32 {
        let of = |ty: Type| if ty.signed { 64 } else { u32::from(ty.width_bits) };
        let declared = |destination| self.declared(env.element, destination).map_or(64, |v| of(v.ty));
        let bits = match expr {
            Expr::Constant(c) => 64 - c.leading_zeros(),
            Expr::State => 16,
            Expr::Word { .. } | Expr::Hash(_) => 32,
            Expr::Register(i) => declared(Destination::Register(*i)),
            Expr::Global(i) => declared(Destination::Global(*i)),
            Expr::Old(destination) => declared(*destination),
            Expr::Metadata(i) => of(self.function.metadata[usize::from(*i)].ty),
            Expr::Field(field) => field.width_bits().into(),
            Expr::Binary(BinaryOp::And, left, right) => {
                self.expr_bits(left, width, env).min(self.expr_bits(right, width, env))
            }
            Expr::Binary(BinaryOp::Or | BinaryOp::Xor, left, right) => {
                self.expr_bits(left, width, env).max(self.expr_bits(right, width, env))
            }
            _ => 64,
        };
        bits.min(width.bits())
    }

    pub(super) fn eval(&mut self, expr: &Expr, width: Width, env: &Env) -> Value {
        let bits = width.bits();
        let unsigned = |width_bits| Type { width_bits, signed: false };
        match expr {
            Expr::Constant(c) => Value::Const(low_bits(*c, bits)),
            Expr::State => Value::Const(env.state.into()),
            Expr::Register(i) => self.number(env, Destination::Register(*i), width),
            Expr::Global(i) => self.number(env, Destination::Global(*i), width),
            Expr::Old(destination) => self.old_number(env, *destination, width),
            Expr::Metadata(i) => {
                let ty = self.function.metadata[usize::from(*i)].ty;
                let value = self.metadata_pair(*i).low;
                self.extend(value, ty, width)
            }
            Expr::Field(field) => {
                let value = Value::Reg(self.load_field(env.element, *field));
                self.extend(value, unsigned(field.width_bits().min(64)), width)
            }
            Expr::Now { unit_ns } => {
                let now = self.clock(env.element, *unit_ns);
                self.extend(Value::Reg(now), unsigned(64), width)
            }
            Expr::Not(inner) => match self.eval(inner, width, env) {
                Value::Const(c) => Value::Const(low_bits(!c, bits)),
                value => {
                    let reg = self.own(value);
                    self.alu(width, AluOp::Xor, reg, Operand::Imm(-1));
                    Value::Reg(reg)
                }
            },
            Expr::Binary(op, left, right) => {
                let left = self.eval(left, width, env);
                let right = self.eval(right, width, env);
                self.binary(*op, left, right, width)
            }
            Expr::RotateRight { left, right, rotate_bits } => {
                let value = self.eval(left, width, env);
                let amount = self.eval(right, width, env);
                self.rotate(value, amount, width, (*rotate_bits).into())
            }
            Expr::MinMax { max, signed, left, right } => {
                let left = self.eval(left, width, env);
                let right = self.eval(right, width, env);
                let result = self.own(left);
                let right = self.operand_in(width, right);
                let keep = self.builder.label();
                let op = match (max, signed) {
                    (true, false) => Cond::Ge,
                    (false, false) => Cond::Le,
                    (true, true) => Cond::Sge,
                    (false, true) => Cond::Sle,
                };
                self.builder.push(Op::Jump { wide: width == Width::W64, op, left: result, right, target: keep });
                self.alu(width, AluOp::Mov, result, right);
                self.builder.place(keep);
                Value::Reg(result)
            }
            Expr::Word { of, index } => {
                let pair = self.pair(*of, env);
                let half = if *index < 2 { pair.low } else { pair.high };
                let value = match half {
                    _ if *index > 3 => Value::Const(0),
                    Value::Const(c) => Value::Const(c >> (32 * u32::from(index % 2))),
                    reg if index % 2 == 0 => reg,
                    reg => {
                        let word = self.own(reg);
                        self.builder.alu64(AluOp::Rsh, word, Operand::Imm(32));
                        Value::Reg(word)
                    }
                };
                self.truncate(value, Width::W64, 32)
            }
            Expr::Hash(words) => self.hash(words, env),
            Expr::Ewma { average, sample, shift } => {
                let average = self.eval(average, width, env);
                let sample = self.eval(sample, width, env);
                if u32::from(*shift) >= bits {
                    return average;
                }
                let step = self.own(sample);
                let subtract = self.operand_in(width, average);
                self.alu(width, AluOp::Sub, step, subtract);
                if *shift > 0 {
                    self.alu(width, AluOp::Arsh, step, Operand::Imm((*shift).into()));
                }
                self.alu(width, AluOp::Add, step, subtract);
                Value::Reg(step)
            }
        }
    }

    /// The packet's time in units of `unit_ns`.
    fn clock(&mut self, element: usize, unit_ns: u64) -> Reg {
        self.ensure_now();
        if unit_ns == 1 {
            return self.now;
        }
        let (b, now) = (&mut self.builder, self.now);
        let clock = *self.clocks.entry((element, unit_ns)).or_insert_with(|| b.reg());
        if self.path.loaded.insert(Item::Clock(unit_ns)) {
            b.copy(clock, now);
            let unit = b.operand(unit_ns);
            b.alu64(AluOp::Div, clock, unit);
        }
        clock
    }

    fn binary(&mut self, op: BinaryOp, left: Value, right: Value, width: Width) -> Value {
        let bits = width.bits();
        if let (Value::Const(a), Value::Const(b)) = (left, right) {
            let is_over = b >= u64::from(bits);
            return Value::Const(low_bits(
                match op {
                    BinaryOp::Add => a.wrapping_add(b),
                    BinaryOp::Sub => a.wrapping_sub(b),
                    BinaryOp::And => a & b,
                    BinaryOp::Or => a | b,
                    BinaryOp::Xor => a ^ b,
                    BinaryOp::ShiftLeft | BinaryOp::ShiftRight if is_over => 0,
                    BinaryOp::ShiftLeft => a << b,
                    BinaryOp::ShiftRight => a >> b,
                },
                bits,
            ));
        }
        let code = match op {
            BinaryOp::Add => AluOp::Add,
            BinaryOp::Sub => AluOp::Sub,
            BinaryOp::And => AluOp::And,
            BinaryOp::Or => AluOp::Or,
            BinaryOp::Xor => AluOp::Xor,
            BinaryOp::ShiftLeft => AluOp::Lsh,
            BinaryOp::ShiftRight => AluOp::Rsh,
        };
        let is_shift = matches!(op, BinaryOp::ShiftLeft | BinaryOp::ShiftRight);
        match right {
            Value::Const(by) if is_shift && by >= u64::from(bits) => Value::Const(0),
            // eBPF masks the amount; a shift by the width or more must yield 0.
            Value::Reg(by) if is_shift => {
                let result = self.own(left);
                let (fits, done) = (self.builder.label(), self.builder.label());
                let wide = width == Width::W64;
                let limit = Operand::Imm(bits as i32);
                self.builder.push(Op::Jump { wide, op: Cond::Lt, left: by, right: limit, target: fits });
                self.builder.set(result, 0);
                self.builder.goto(done);
                self.builder.place(fits);
                self.alu(width, code, result, Operand::Reg(by));
                self.builder.place(done);
                Value::Reg(result)
            }
            _ => {
                let result = self.own(left);
                let right = self.operand_in(width, right);
                self.alu(width, code, result, right);
                Value::Reg(result)
            }
        }
    }

    fn rotate(&mut self, value: Value, amount: Value, width: Width, n: u32) -> Value {
        let value = match self.truncate(value, width, n) {
            // A 32-bit value is rotated with 64-bit instructions.
            Value::Const(c) => Value::Const(low_bits(c, n)),
            reg => reg,
        };
        let by = self.own(amount);
        let b = &mut self.builder;
        b.alu64(AluOp::And, by, Operand::Imm(n as i32 - 1));
        let right = self.own(value);
        self.builder.alu64(AluOp::Rsh, right, Operand::Reg(by));
        let left = self.own(value);
        let b = &mut self.builder;
        // If `by` is 0, n - by is n: modulo n, both halves are the same value.
        b.alu64(AluOp::Xor, by, Operand::Imm(-1));
        b.alu64(AluOp::Add, by, Operand::Imm(1));
        b.alu64(AluOp::And, by, Operand::Imm(n as i32 - 1));
        b.alu64(AluOp::Lsh, left, Operand::Reg(by));
        b.alu64(AluOp::Or, left, Operand::Reg(right));
        let rotated = self.truncate(Value::Reg(left), Width::W64, n);
        self.truncate(rotated, Width::W64, width.bits())
    }

    pub(super) fn loadable(fields: impl IntoIterator<Item = FieldId>) -> BTreeSet<Item> {
        let with_own = |field: FieldId| std::iter::once(field).chain(field.alternatives().iter().copied());
        let fields = fields.into_iter().flat_map(with_own).filter(|&f| mask_of(f) != 0);
        fields.flat_map(|f| [Item::Field(f), Item::Raw(f, Half::High), Item::Raw(f, Half::Low)]).collect()
    }
}
