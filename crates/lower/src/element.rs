// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Elements: context lookup, timers, and the `otherwise` actions.

use std::collections::BTreeSet;

use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, Cond};
use flowloom_wire::graph::Header;

use super::asm::{Label, Op, Operand, R0, Reg, Size};
use super::facts::Facts;
use super::lowering::Lowering;
use super::value::{Env, Pair};
use flowloom_efsm::layout::{Counter, NO_DEADLINE, Timers};
use flowloom_efsm::model::{Element, Expr, NewValue, Stateful, Successor, Terminal, Wide, Width, Write, WriteTarget};

/// Limit on states that are dispatched linearly; more of them by binary search.
const MAX_STATES_IN_LINE: usize = 4;

/// Limit on operations in per-entry copies of a stateless element; beyond it the remaining entries share one copy.
const MAX_COPIED_OPS: usize = 1000;

/// An expired timer of a context in `state`.
struct Expiry {
    state: u16,
    /// Label of the expiry code.
    label: Label,
    /// The earliest deadline.
    deadline: Reg,
    path: Facts,
}

/// Meet of the facts at these entries.
fn meet(entries: &[(Facts, Label)]) -> Facts {
    let all = |holds: &dyn Fn(&Facts) -> bool| entries.iter().all(|(facts, _)| holds(facts));
    let masks: BTreeSet<u32> = entries.iter().flat_map(|(facts, _)| facts.masks.iter().copied()).collect();
    let first = entries.first().map(|(facts, _)| facts.metadata.clone()).unwrap_or_default();
    Facts {
        masks: masks.into_iter().collect(),
        metadata: first.into_iter().filter(|(i, value)| all(&|facts| facts.metadata.get(i) == Some(value))).collect(),
        now_is_known: all(&|facts| facts.now_is_known),
        now_may_be_known: entries.iter().any(|(facts, _)| facts.now_may_be_known),
        ..Facts::default()
    }
}

impl<'a> Lowering<'a> {
    pub(super) fn emit_element(&mut self, index: usize) {
        let function = self.function;
        let element = &function.elements[index];
        self.builder.push(Op::Line(element.span));
        if let Some(reparse) = self.plans[index].reparse {
            let held = self.locking.at_entry(index);
            self.path = Facts { now_may_be_known: true, held, ..Facts::default() };
            self.builder.place(reparse);
            self.emit_reparse(index);
        }
        let entries = std::mem::take(&mut self.plans[index].entries);
        match &element.stateful {
            None => self.emit_copies(index, element, &entries),
            Some(stateful) => self.emit_keyed(index, element, stateful, &entries),
        }
    }

    /// A stateless element: a copy of its rows for each entry while they are small; the remaining entries share one
    /// copy.
    fn emit_copies(&mut self, index: usize, element: &Element, entries: &[(Facts, Label)]) {
        let start = self.builder.ops.len();
        let mut rest = entries;
        while let Some((entry, others)) = rest.split_first() {
            self.builder.push(Op::Line(element.span));
            let is_large = self.for_verifier || self.builder.ops.len() - start > MAX_COPIED_OPS;
            let shared = if is_large { rest } else { std::slice::from_ref(entry) };
            rest = if is_large { &[] } else { others };
            self.path = Facts { held: self.locking.at_entry(index), ..meet(shared) };
            for (_, label) in shared {
                self.builder.place(*label);
            }
            self.emit_tree(index, None, 0, Env { element: index, ..Env::default() });
        }
    }

    fn emit_keyed(&mut self, index: usize, element: &'a Element, stateful: &'a Stateful, entries: &[(Facts, Label)]) {
        let held = self.locking.at_entry(index);
        // Without a key the outcome is known per entry, so each entry gets its own code.
        let has_key = |this: &Self, facts: &Facts| {
            this.for_verifier || facts.masks.iter().any(|&mask| this.key_is_present(index, mask))
        };
        let (entries, without_key): (Vec<_>, Vec<_>) =
            entries.iter().cloned().partition(|(facts, _)| has_key(self, facts));
        for (facts, label) in without_key {
            self.path = Facts { held: held.clone(), ..facts };
            self.builder.place(label);
            self.emit_otherwise(index, element, Counter::NoKey);
        }
        if entries.is_empty() {
            return;
        }
        let facts = Facts { held, ..meet(&entries) };
        let all_masks = facts.masks.clone();
        for (masks, _) in &mut self.plans[index].key_classes {
            masks.retain(|mask| all_masks.contains(mask));
        }
        self.plans[index].key_classes.retain(|(masks, _)| !masks.is_empty());
        let plan = self.plans[index].clone();
        self.path = facts.clone();
        self.builder.place(plan.entry);
        for any in self.key_masks(index) {
            let no_key = plan.no_key;
            self.require(any, |_| no_key);
        }
        self.path.masks = all_masks.iter().copied().filter(|&mask| self.key_is_present(index, mask)).collect();
        if self.path.masks.is_empty() {
            // No packet has all fields of the key: the code below would read headers that are absent.
            self.builder.goto(plan.no_key);
        } else {
            self.dispatch(&plan.key_classes);
            self.emit_stateful(index, element, stateful);
        }
        self.builder.place(plan.no_key);
        let without = all_masks.iter().copied().filter(|&mask| !self.key_is_present(index, mask)).collect();
        self.path = Facts { masks: without, ..facts };
        self.emit_otherwise(index, element, Counter::NoKey);
        self.emit_contended();
    }

    /// The label at which the path enters an element. Known facts are written to their registers first, since other
    /// entries may have other values; dead stores are removed later.
    pub(super) fn element_entry(&mut self, index: usize) -> Label {
        let needed = self.needed_from[index];
        self.materialize_facts();
        let masks: BTreeSet<u32> = self.path.masks.iter().map(|mask| mask & needed).collect();
        let masks: Vec<u32> = if masks.is_empty() { self.masks(index) } else { masks.into_iter().collect() };
        let read = &self.metadata_read_from[index];
        let metadata = self.path.metadata.iter().filter(|(i, _)| read.contains(i)).map(|(&i, &value)| (i, value));
        let Facts { now_is_known, now_may_be_known, .. } = self.path;
        let facts = Facts {
            metadata: metadata.collect(),
            now_is_known,
            now_may_be_known: now_may_be_known || now_is_known,
            masks,
            ..Facts::default()
        };
        let plan = &self.plans[index];
        let existing = plan.entries.iter().find(|(known, _)| *known == facts).map(|(_, label)| *label);
        if let Some(label) = existing {
            return label;
        }
        let is_keyed = self.function.elements[index].stateful.is_some();
        let label = if is_keyed && facts.masks.iter().any(|&mask| self.key_is_present(index, mask)) {
            let class = plan.key_classes.iter().find(|(of, _)| facts.masks.iter().all(|mask| of.contains(mask)));
            class.map_or(plan.entry, |(_, label)| *label)
        } else if is_keyed && self.for_verifier {
            plan.no_key
        } else {
            self.builder.label()
        };
        self.plans[index].entries.push((facts, label));
        label
    }

    /// Writes known header, metadata and time facts to their registers.
    pub(super) fn materialize_facts(&mut self) {
        if let [mask] = self.path.masks[..] {
            self.builder.set(self.valid, mask.into());
        }
        for (i, value) in self.path.metadata.clone() {
            self.set_pair(self.metadata[usize::from(i)], Pair::constant(value));
        }
        self.ensure_now_may_be_known();
    }

    /// Sets the time register to 0, which means not yet read, if no path to here has read the time.
    fn ensure_now_may_be_known(&mut self) {
        if !self.path.now_is_known && !self.path.now_may_be_known {
            self.builder.set(self.now, 0);
        }
    }

    /// Jumps to the label of the class of the valid headers.
    fn dispatch(&mut self, classes: &[(Vec<u32>, Label)]) {
        let classes: Vec<_> = classes.iter().filter(|(masks, _)| !masks.is_empty()).cloned().collect();
        if let [(_, label)] = &classes[..] {
            self.builder.goto(*label);
            return;
        }
        let split = |bit: u32| {
            let part = |valid: bool| -> Vec<(Vec<u32>, Label)> {
                let of =
                    |masks: &[u32]| -> Vec<u32> { masks.iter().copied().filter(|m| (m & bit != 0) == valid).collect() };
                let parts = classes.iter().map(|(masks, label)| (of(masks), *label));
                parts.filter(|(masks, _)| !masks.is_empty()).collect()
            };
            (part(true), part(false))
        };
        // Split on the header that leaves the fewest classes on both sides.
        let bits = Header::ALL.into_iter().map(Header::bit);
        let splits =
            bits.map(|bit| (bit, split(bit))).filter(|(_, (with, without))| !with.is_empty() && !without.is_empty());
        let Some((bit, (with, without))) = splits.min_by_key(|(_, (with, without))| with.len() + without.len()) else {
            return;
        };
        let (valid, there) = (self.valid, self.builder.label());
        self.builder.jump64(Cond::Set, valid, Operand::Imm(bit as i32), there);
        self.dispatch(&without);
        self.builder.place(there);
        self.dispatch(&with);
    }

    fn emit_stateful(&mut self, index: usize, element: &'a Element, stateful: &'a Stateful) {
        let plan = self.plans[index].clone();
        let (Some(map), Some(layout)) = (plan.map, plan.layout.clone()) else { return };
        let masks = self.path.masks.clone();
        let keyed = self.builder.label();
        for (masks, label) in &plan.key_classes {
            self.path.masks.clone_from(masks);
            self.builder.place(*label);
            self.emit_key(index);
            self.builder.goto(keyed);
        }
        self.path.masks = masks;
        self.builder.place(keyed);
        self.mark_seen(index);
        self.acquire(index);
        self.map_arguments(map, plan.key_slot);
        self.builder.call(helper::MAP_LOOKUP_ELEM, 2);
        let context = self.builder.dup(R0);
        let absent = self.builder.label();
        self.builder.jump64(Cond::Eq, context, Operand::Imm(0), absent);
        let found = self.path.clone();

        let count = stateful.states.len();
        let labels: Vec<Label> = (0..count).map(|_| self.builder.label()).collect();
        let state_reg = self.builder.reg();
        if count > 1 {
            self.builder.load(Size::H, state_reg, context, layout.state as i16);
        }
        self.dispatch_state(state_reg, 0, &labels);
        let live: Vec<Label> = (0..count).map(|_| self.builder.label()).collect();
        let mut expiries = Vec::new();
        for (state, &label) in labels.iter().enumerate() {
            let state = state as u16;
            self.path.clone_from(&found);
            self.builder.push(Op::Line(element.span));
            self.builder.place(label);
            expiries.extend(self.emit_deadline(index, state, context));
            self.builder.place(live[usize::from(state)]);
            if let Some(offset) = layout.touched {
                self.ensure_now();
                let now = Operand::Reg(self.now);
                self.builder.store(Size::Dw, context, offset as i16, now);
            }
            let env = Env { element: index, state, context: Some(context), ..Env::default() };
            self.emit_tree(index, Some(stateful), state, env);
        }

        self.builder.push(Op::Line(element.span));
        let removed = self.builder.label();
        let any_expires = !expiries.is_empty();
        for expiry in expiries {
            self.emit_expiry(index, stateful, context, expiry, &live, removed);
        }
        if any_expires {
            self.builder.place(removed);
            self.delete_context(index);
        }
        self.builder.place(absent);
        self.path = Facts { now_may_be_known: found.now_may_be_known || any_expires, ..found };
        self.emit_tree(index, Some(stateful), 0, Env { element: index, ..Env::default() });
    }

    /// Jumps to the label of the state; the first label is that of state number `first`.
    fn dispatch_state(&mut self, state: Reg, first: usize, labels: &[Label]) {
        if labels.len() > MAX_STATES_IN_LINE {
            let (below, above) = labels.split_at(labels.len() / 2);
            let upper = self.builder.label();
            let middle = Operand::Imm((first + below.len()) as i32);
            self.builder.jump64(Cond::Ge, state, middle, upper);
            self.dispatch_state(state, first, below);
            self.builder.place(upper);
            self.dispatch_state(state, first + below.len(), above);
            return;
        }
        let Some((&last, others)) = labels.split_last() else { return };
        for (i, &label) in others.iter().enumerate() {
            self.builder.jump64(Cond::Eq, state, Operand::Imm((first + i) as i32), label);
        }
        self.builder.goto(last);
    }

    /// Compares the deadlines of a context in `state` with the time, if it can have timers.
    fn emit_deadline(&mut self, index: usize, state: u16, context: Reg) -> Option<Expiry> {
        let plan = &self.plans[index];
        let (timers, layout) = (plan.timers[usize::from(state)], plan.layout.clone()?);
        let idle = layout.idle.filter(|_| timers.idle).map(|idle| idle.deadline);
        let hard = layout.hard_deadline.filter(|_| timers.hard);
        let mut offsets = idle.into_iter().chain(hard);
        let first = offsets.next()?;
        self.ensure_now();
        let b = &mut self.builder;
        let (deadline, label) = (b.reg(), b.label());
        b.load(Size::Dw, deadline, context, first as i16);
        for offset in offsets {
            let (other, earlier) = (b.reg(), b.label());
            b.load(Size::Dw, other, context, offset as i16);
            b.jump64(Cond::Le, deadline, Operand::Reg(other), earlier);
            b.copy(deadline, other);
            b.place(earlier);
        }
        b.jump64(Cond::Ge, self.now, Operand::Reg(deadline), label);
        Some(Expiry { state, label, deadline, path: self.path.clone() })
    }

    /// Emits the expiry of a timer: a transition to the successor state as of the deadline, otherwise a jump to
    /// `removed`.
    fn emit_expiry(
        &mut self,
        index: usize,
        stateful: &Stateful,
        context: Reg,
        expiry: Expiry,
        live: &[Label],
        removed: Label,
    ) {
        let Expiry { state, label, deadline, path } = expiry;
        let (now, plan) = (self.now, self.plans[index].clone());
        let Some(layout) = plan.layout else { return };
        self.path = path;
        self.builder.place(label);
        // At the last tick of the clock, `now` equals the value of an unset deadline, which never expires.
        self.builder.jump64(Cond::Eq, deadline, Operand::Imm(NO_DEADLINE as i32), live[usize::from(state)]);
        self.count_expiry(index, state, context, plan.timers[usize::from(state)]);
        let Some(Successor { state: next, idle_ns, hard_ns }) = stateful.successors[usize::from(state)] else {
            self.builder.goto(removed);
            return;
        };
        let [idle, hard] = [idle_ns, hard_ns].map(|timeout| self.deadline_from(deadline, timeout));
        for (value, counter) in [(idle, Counter::IdleExpired(next)), (hard, Counter::HardExpired(next))] {
            let super::value::Value::Reg(value) = value else { continue };
            let runs = self.builder.label();
            self.builder.jump64(Cond::Lt, now, Operand::Reg(value), runs);
            self.builder.jump64(Cond::Eq, value, Operand::Imm(NO_DEADLINE as i32), runs);
            self.count(index, counter);
            self.builder.goto(removed);
            self.builder.place(runs);
        }
        self.builder.store(Size::H, context, layout.state as i16, Operand::Imm(next.into()));
        self.store_timers(&layout, context, (idle, idle_ns), hard);
        self.builder.goto(live[usize::from(next)]);
    }

    /// Counts the expired timer; the idle one if both have expired.
    fn count_expiry(&mut self, index: usize, state: u16, context: Reg, timers: Timers) {
        let idle = self.plans[index].layout.as_ref().and_then(|layout| layout.idle);
        match idle.filter(|_| timers.idle && timers.hard && self.counters.is_some()) {
            Some(idle) => {
                let (hard, done) = (self.builder.label(), self.builder.label());
                let deadline = self.builder.reg();
                self.builder.load(Size::Dw, deadline, context, idle.deadline as i16);
                self.builder.jump64(Cond::Lt, self.now, Operand::Reg(deadline), hard);
                self.builder.jump64(Cond::Eq, deadline, Operand::Imm(NO_DEADLINE as i32), hard);
                self.count(index, Counter::IdleExpired(state));
                self.builder.goto(done);
                self.builder.place(hard);
                self.count(index, Counter::HardExpired(state));
                self.builder.place(done);
            }
            None if timers.idle => self.count(index, Counter::IdleExpired(state)),
            None => self.count(index, Counter::HardExpired(state)),
        }
    }

    /// Re-arms the idle timer of a stored context in `state`: its deadline becomes now plus its period.
    pub(super) fn rearm_idle(&mut self, index: usize, state: u16, context: Reg) {
        let plan = &self.plans[index];
        let idle = plan.layout.as_ref().and_then(|layout| layout.idle);
        let Some(idle) = idle.filter(|_| plan.timers[usize::from(state)].idle) else { return };
        self.ensure_now();
        let b = &mut self.builder;
        let (deadline, none) = (b.reg(), b.label());
        b.load(Size::Dw, deadline, context, idle.period as i16);
        b.jump64(Cond::Eq, deadline, Operand::Imm(0), none);
        b.alu64(AluOp::Add, deadline, Operand::Reg(self.now));
        b.store(Size::Dw, context, idle.deadline as i16, Operand::Reg(deadline));
        b.place(none);
    }

    pub(super) fn emit_otherwise(&mut self, index: usize, element: &Element, counter: Counter) {
        self.builder.push(Op::Line(element.otherwise.span));
        self.count(index, counter);
        let actions = &element.otherwise.actions;
        for (i, value) in constant_metadata(&actions.writes) {
            self.set_metadata(i, value);
        }
        let port = match &actions.terminal {
            Terminal::Forward(expr) => {
                let env = Env { element: index, ..Env::default() };
                let value = self.eval(expr, Width::W32, &env);
                Some(self.operand_of(value))
            }
            _ => None,
        };
        self.emit_terminal(&actions.terminal, port, false);
    }
}

/// Constant metadata writes of the `otherwise` block.
fn constant_metadata(writes: &[Write]) -> Vec<(u16, u128)> {
    let constant = |value: &NewValue| match value {
        NewValue::Number { value: Expr::Constant(c), .. } => Some(u128::from(*c)),
        NewValue::Wide(Wide::Constant(c)) => Some(*c),
        _ => None,
    };
    let writes = writes.iter().filter_map(|write| match write.target {
        WriteTarget::Metadata(i) => Some((i, constant(&write.value)?)),
        WriteTarget::Field(_) => None,
    });
    writes.collect()
}
