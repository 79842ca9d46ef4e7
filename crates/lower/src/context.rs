// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Effects of a matched row on its context: updates, timers, creation and removal.

use std::collections::BTreeSet;

use flowloom_isa::helpers::{EVICT_HIGHEST, EVICT_SIGNED};
use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, Cond};

use super::asm::{FP, Label, Op, Operand, R0, R1, R2, R3, Reg, Size, access_size};
use super::lowering::Lowering;
use super::maps::{BPF_EXIST, BPF_NOEXIST};
use super::value::{Env, Pair, Value};
use flowloom_efsm::layout::{Counter, NO_DEADLINE, RecordLayout, size_bytes};
use flowloom_efsm::model::{
    Actions, Destination, Expr, NewValue, NextState, Policy, Row, Stateful, Update, Wide, Width,
};

impl<'a> Lowering<'a> {
    pub(super) fn emit_updates(
        &mut self,
        updates: &[Update],
        env: &Env,
        stateful: &Stateful,
    ) -> Vec<(Destination, Pair)> {
        updates
            .iter()
            .map(|update| {
                let ty = match update.destination {
                    Destination::Register(i) => stateful.registers[usize::from(i)].ty,
                    Destination::Global(i) => stateful.globals[usize::from(i)].ty,
                };
                (update.destination, self.new_value(&update.value, ty.width_bits, env))
            })
            .collect()
    }

    /// The registers that the row's actions read with their old values, loaded before the updates are stored.
    pub(super) fn load_old(&mut self, row: &Row, env: &Env) -> Vec<(Destination, Pair)> {
        let read = old_read(&row.actions);
        read.into_iter().map(|destination| (destination, self.variable(env, destination))).collect()
    }

    /// A new value, truncated to `width_bits`.
    pub(super) fn new_value(&mut self, value: &NewValue, width_bits: u8, env: &Env) -> Pair {
        match value {
            NewValue::Number { value, width } => {
                let fits = self.expr_bits(value, *width, env) <= width_bits.into();
                let value = self.eval(value, *width, env);
                Pair::narrow(if fits { value } else { self.truncate(value, *width, width_bits.into()) })
            }
            NewValue::Wide(wide) => {
                let value = self.pair(*wide, env);
                if width_bits > 64 {
                    return value;
                }
                Pair::narrow(self.truncate(value.low, Width::W64, width_bits.into()))
            }
        }
    }

    pub(super) fn store_globals(&mut self, index: usize, after: &[(Destination, Pair)]) {
        for &(destination, value) in after {
            if let Destination::Global(i) = destination {
                let (address, bytes) = self.global_address(index, i);
                self.store_pair(bytes, address, 0, value);
            }
        }
    }

    /// Stores a value of 1, 2, 4, 8 or 16 bytes.
    fn store_pair(&mut self, bytes: u32, base: Reg, offset: i16, value: Pair) {
        self.store_value(access_size(bytes.min(8)), base, offset, value.low);
        if bytes > 8 {
            self.store_value(Size::Dw, base, offset + 8, value.high);
        }
    }

    /// Stores a value, as an immediate where possible.
    fn store_value(&mut self, size: Size, base: Reg, offset: i16, value: Value) {
        let source = match (value, size) {
            (Value::Const(c), Size::B | Size::H | Size::W) => Operand::Imm(c as u32 as i32),
            _ => self.operand_of(value),
        };
        self.builder.store(size, base, offset, source);
    }

    fn deadline(&mut self, timeout_ns: Option<u64>) -> Value {
        self.deadline_from(self.now, timeout_ns)
    }

    /// The deadline of a timer that is set at `start`.
    pub(super) fn deadline_from(&mut self, start: Reg, timeout_ns: Option<u64>) -> Value {
        let Some(timeout_ns) = timeout_ns else { return Value::Const(NO_DEADLINE) };
        let deadline = self.builder.dup(start);
        let timeout = self.builder.operand(timeout_ns);
        self.builder.alu64(AluOp::Add, deadline, timeout);
        Value::Reg(deadline)
    }

    /// Stores both timers of a context: deadline and period of the idle timer, deadline of the hard timer.
    pub(super) fn store_timers(
        &mut self,
        layout: &RecordLayout,
        context: Reg,
        (idle, idle_ns): (Value, Option<u64>),
        hard: Value,
    ) {
        if let Some(offsets) = layout.idle {
            self.store_value(Size::Dw, context, offsets.deadline as i16, idle);
            self.store_value(Size::Dw, context, offsets.period as i16, Value::Const(idle_ns.unwrap_or(0)));
        }
        if let Some(offset) = layout.hard_deadline {
            self.store_value(Size::Dw, context, offset as i16, hard);
        }
    }

    /// Applies a row to a stored context: stores the updates, or removes the context if it equals the default one.
    pub(super) fn update_context(
        &mut self,
        index: usize,
        row: &Row,
        stateful: &Stateful,
        context: Reg,
        env: &Env,
        after: &[(Destination, Pair)],
    ) {
        let plan = self.plans[index].clone();
        let Some(layout) = plan.layout else { return };
        let timers = plan.timers[usize::from(env.state)];
        let (keep, done) = (self.builder.label(), self.builder.label());
        let can_be_default = match row.next {
            NextState::To { state, idle_ns, hard_ns } => state == 0 && idle_ns.or(hard_ns).is_none(),
            NextState::Stay => env.state == 0 && after.iter().any(|(d, _)| matches!(d, Destination::Register(_))),
        };
        if can_be_default {
            let env = Env { after: after.to_vec(), ..env.clone() };
            let loaded = self.path.loaded.clone();
            let maybe = self.differs_from_default(stateful, &env, keep);
            if maybe && row.next == NextState::Stay {
                let b = &mut self.builder;
                if let Some(idle) = layout.idle.filter(|_| timers.idle) {
                    let period = b.reg();
                    b.load(Size::Dw, period, context, idle.period as i16);
                    b.jump64(Cond::Ne, period, Operand::Imm(0), keep);
                }
                if let Some(offset) = layout.hard_deadline.filter(|_| timers.hard) {
                    let deadline = b.reg();
                    b.load(Size::Dw, deadline, context, offset as i16);
                    b.jump64(Cond::Ne, deadline, Operand::Imm(NO_DEADLINE as i32), keep);
                }
            }
            if maybe {
                self.preload_after(row, &env);
                self.delete_context(index);
                self.count(index, Counter::Removed);
                self.builder.goto(done);
            }
            // Loads on the path above may have been skipped.
            self.path.loaded = loaded;
            if !maybe {
                self.builder.goto(keep);
            }
        }
        self.builder.place(keep);
        if can_be_default {
            let env = Env { after: after.to_vec(), ..env.clone() };
            self.preload_after(row, &env);
        }
        for &(destination, value) in after {
            if let Destination::Register(i) = destination {
                let bytes = size_bytes(&stateful.registers[usize::from(i)]);
                self.store_pair(bytes, context, layout.registers[usize::from(i)] as i16, value);
            }
        }
        match row.next {
            NextState::Stay => self.rearm_idle(index, env.state, context),
            NextState::To { state, idle_ns, hard_ns } => {
                if state != env.state {
                    self.builder.store(Size::H, context, layout.state as i16, Operand::Imm(state.into()));
                }
                // A timer that cannot run in this state and is not set needs no store.
                let idle = layout.idle.filter(|_| timers.idle || idle_ns.is_some());
                let hard_deadline = layout.hard_deadline.filter(|_| timers.hard || hard_ns.is_some());
                let layout = RecordLayout { idle, hard_deadline, ..layout };
                let [idle, hard] = [idle_ns, hard_ns].map(|timeout| self.deadline(timeout));
                self.store_timers(&layout, context, (idle, idle_ns), hard);
            }
        }
        self.builder.place(done);
    }

    /// Loads all registers that the row's actions read, so that they are available on both paths of a branch.
    fn preload_after(&mut self, row: &Row, env: &Env) {
        for destination in variables_read(&row.actions) {
            if matches!(destination, Destination::Register(_)) {
                self.variable(env, destination);
            }
        }
    }

    /// Jumps to `differs` if a register is not at its initial value; returns false if one never is.
    fn differs_from_default(&mut self, stateful: &Stateful, env: &Env, differs: Label) -> bool {
        for (i, register) in stateful.registers.iter().enumerate() {
            let value = self.variable(env, Destination::Register(i as u16));
            for (half, initial) in value.halves().into_iter().zip(Pair::constant(register.initial).halves()) {
                match half {
                    _ if half == initial => {}
                    Value::Const(_) => return false,
                    Value::Reg(reg) => {
                        let initial = self.operand_of(initial);
                        self.builder.jump64(Cond::Ne, reg, initial, differs);
                    }
                }
            }
        }
        true
    }

    /// Falls through if the table is full for the packet's key (if not, when `negated`), otherwise jumps to `fails`.
    /// Returns `Some` as [`Lowering::branch`] does.
    ///
    /// Only an insertion can tell, so this code inserts an absent context if there is room; it is removed again unless
    /// a row creates it.
    pub(super) fn branch_full(&mut self, negated: bool, env: &Env, fails: Label) -> Option<bool> {
        let known = if env.context.is_some() { Some(false) } else { self.path.full };
        if let Some(full) = known {
            return Some(full != negated);
        }
        let Some(stateful) = &self.function.elements[env.element].stateful else { return Some(negated) };
        self.build_record(env.element, stateful, &[], 0, None, None);
        self.insert_context(env.element, BPF_NOEXIST);
        let op = if negated { Cond::Ne } else { Cond::Eq };
        self.builder.jump64(op, R0, Operand::Imm(0), fails);
        None
    }

    /// Applies a row to an absent context: creates it, unless it stays at its default or the table is full. Returns the
    /// registers as the packet actions see them.
    pub(super) fn create_context(
        &mut self,
        index: usize,
        row: &Row,
        stateful: &Stateful,
        env: &Env,
        after: Vec<(Destination, Pair)>,
    ) -> Vec<(Destination, Pair)> {
        let (state, idle_ns, hard_ns) = match row.next {
            NextState::Stay => (0, None, None),
            NextState::To { state, idle_ns, hard_ns } => (state, idle_ns, hard_ns),
        };
        let Some(layout) = self.plans[index].layout.clone() else { return after };
        let done = self.builder.label();
        let is_stored = self.path.full == Some(false);
        if state == 0 && idle_ns.or(hard_ns).is_none() {
            let create = self.builder.label();
            let env = Env { after: after.clone(), ..env.clone() };
            if self.differs_from_default(stateful, &env, create) {
                if is_stored {
                    self.delete_context(index);
                }
                self.store_globals(index, &after);
                let is_dynamic = |value: &Pair| value.halves().iter().any(|half| matches!(half, Value::Reg(_)));
                if !after.iter().any(|(d, v)| matches!(d, Destination::Register(_)) && is_dynamic(v)) {
                    // No register can differ: the context stays absent.
                    return after;
                }
                self.builder.goto(done);
            } else {
                self.builder.goto(create);
            }
            self.builder.place(create);
        }

        // Registers that the actions read get copies, since after a rejected insertion the actions read the old values.
        let read = variables_read(&row.actions);
        let seen: Vec<(Destination, Pair)> = after.iter().copied().filter(|(d, _)| read.contains(d)).collect();
        let before: Vec<Pair> = seen.iter().map(|&(d, _)| self.variable(env, d)).collect();
        self.build_record(index, stateful, &after, state, idle_ns, hard_ns);
        let (created, actions) = (self.builder.label(), self.builder.label());
        let visible: Vec<(Reg, Reg)> = seen.iter().map(|_| (self.builder.reg(), self.builder.reg())).collect();
        if is_stored {
            self.insert_context(index, BPF_EXIST);
        } else {
            self.insert_or_evict(index, stateful, &layout, created);
            self.count(index, Counter::Rejected);
            for (&halves, &value) in visible.iter().zip(&before) {
                self.set_pair(halves, value);
            }
            self.builder.goto(actions);
        }
        self.builder.place(created);
        self.count(index, Counter::Created);
        self.store_globals(index, &after);
        self.builder.place(done);
        for (&halves, &(_, value)) in visible.iter().zip(&seen) {
            self.set_pair(halves, value);
        }
        self.builder.place(actions);
        let pair = |(high, low)| Pair { high: Value::Reg(high), low: Value::Reg(low) };
        seen.iter().zip(visible).map(|(&(d, _), halves)| (d, pair(halves))).collect()
    }

    /// Inserts the record; jumps to `created` on success, and falls through if there is no room.
    fn insert_or_evict(&mut self, index: usize, stateful: &Stateful, layout: &RecordLayout, created: Label) {
        let insert = |this: &mut Self| {
            this.insert_context(index, BPF_NOEXIST);
            let result = this.builder.dup(R0);
            this.builder.jump64(Cond::Eq, result, Operand::Imm(0), created);
        };
        if self.path.full != Some(true) {
            insert(self);
        }
        let register = |i: u16| {
            let ty = stateful.registers[usize::from(i)].ty;
            let signed = if ty.signed { EVICT_SIGNED } else { 0 };
            (layout.registers[usize::from(i)], (u64::from(ty.width_bits) / 8) | signed)
        };
        let (offset, flags) = match stateful.policy {
            Policy::Reject => return,
            Policy::EvictLowest(i) => register(i),
            Policy::EvictHighest(i) => {
                let (offset, flags) = register(i);
                (offset, flags | EVICT_HIGHEST)
            }
            Policy::EvictOldest => (layout.touched.unwrap_or(0), 8),
        };
        let Some(map) = self.plans[index].map else { return };
        let none = self.builder.label();
        self.builder.push(Op::Map { dst: R1, map });
        self.builder.set(R2, offset.into());
        self.builder.set(R3, flags);
        self.builder.call(helper::FL_EVICT, 3);
        self.builder.jump64(Cond::Ne, R0, Operand::Imm(0), none);
        self.count(index, Counter::Evicted);
        insert(self);
        self.builder.place(none);
    }

    pub(super) fn set_pair(&mut self, (high, low): (Reg, Reg), value: Pair) {
        for (reg, half) in [high, low].into_iter().zip(value.halves()) {
            match half {
                Value::Const(c) => self.builder.set(reg, c),
                Value::Reg(r) => self.builder.copy(reg, r),
            }
        }
    }

    /// Builds the record of a new context in its stack slot.
    fn build_record(
        &mut self,
        index: usize,
        stateful: &Stateful,
        after: &[(Destination, Pair)],
        state: u16,
        idle_ns: Option<u64>,
        hard_ns: Option<u64>,
    ) {
        let plan = self.plans[index].clone();
        let Some(layout) = plan.layout else { return };
        let mut fields: Vec<(u32, u32, Value)> = vec![(layout.state, 2, Value::Const(state.into()))];
        if let Some(idle) = layout.idle {
            let deadline = self.deadline(idle_ns);
            fields.push((idle.deadline, 8, deadline));
            fields.push((idle.period, 8, Value::Const(idle_ns.unwrap_or(0))));
        }
        if let Some(offset) = layout.hard_deadline {
            let deadline = self.deadline(hard_ns);
            fields.push((offset, 8, deadline));
        }
        if let Some(offset) = layout.touched {
            self.ensure_now();
            fields.push((offset, 8, Value::Reg(self.now)));
        }
        for (i, register) in stateful.registers.iter().enumerate() {
            let updated = after.iter().find(|(d, _)| *d == Destination::Register(i as u16));
            let value = updated.map_or(Pair::constant(register.initial), |&(_, value)| value);
            let bytes = size_bytes(register);
            fields.push((layout.registers[i], bytes.min(8), value.low));
            if bytes > 8 {
                fields.push((layout.registers[i] + 8, 8, value.high));
            }
        }
        let mut image = vec![0u8; layout.len_bytes as usize];
        let mut is_dynamic = vec![false; image.len()];
        for &(offset, bytes, value) in &fields {
            let range = offset as usize..(offset + bytes) as usize;
            match value {
                Value::Const(c) => image[range].copy_from_slice(&c.to_le_bytes()[..bytes as usize]),
                Value::Reg(reg) => {
                    is_dynamic[range].fill(true);
                    self.builder.store(access_size(bytes), FP, plan.record_slot + offset as i16, Operand::Reg(reg));
                }
            }
        }
        // Stores the constant bytes, with the widest aligned stores that fit between the others.
        let mut at = 0;
        while at < image.len() {
            if is_dynamic[at] {
                at += 1;
                continue;
            }
            let fits = |s: usize| at % s == 0 && at + s <= image.len() && !is_dynamic[at..at + s].contains(&true);
            let bytes = [8, 4, 2].into_iter().find(|&s| fits(s)).unwrap_or(1);
            let mut value = [0; 8];
            value[..bytes].copy_from_slice(&image[at..at + bytes]);
            let value = Value::Const(u64::from_le_bytes(value));
            self.store_value(access_size(bytes as u32), FP, plan.record_slot + at as i16, value);
            at += bytes;
        }
    }
}

/// Registers and global registers that actions read.
fn variables_read(actions: &Actions) -> BTreeSet<Destination> {
    let mut read = BTreeSet::new();
    for expr in actions.exprs() {
        expr.walk(&mut |e| match e {
            Expr::Register(i) => drop(read.insert(Destination::Register(*i))),
            Expr::Global(i) => drop(read.insert(Destination::Global(*i))),
            _ => {}
        });
    }
    for wide in actions.wides() {
        match wide {
            Wide::Register(i) => drop(read.insert(Destination::Register(i))),
            Wide::Global(i) => drop(read.insert(Destination::Global(i))),
            Wide::Constant(_) | Wide::Field(_) | Wide::Old(_) | Wide::Metadata(_) => {}
        }
    }
    read
}

/// Registers that actions read with their values from before the updates.
fn old_read(actions: &Actions) -> BTreeSet<Destination> {
    let mut read = BTreeSet::new();
    for expr in actions.exprs() {
        expr.walk(&mut |e| {
            if let Expr::Old(destination) = e {
                read.insert(*destination);
            }
        });
    }
    read.extend(actions.wides().into_iter().filter_map(|wide| match wide {
        Wide::Old(destination) => Some(destination),
        _ => None,
    }));
    read
}
