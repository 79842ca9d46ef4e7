//! Elements: lookup, expiry, the decision tree over the rows of a state, and what a row does.
//!
//! A path through the tree knows what it has tested and loaded ([`Facts`]); a test whose result is known is not emitted
//! again. Where two paths come to the same row knowing the same, they join.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_bpf::insn::{alu, helper, jmp};

use super::asm::{FP, Label, Op, Operand, R0, Reg, Size};
use super::parse::{mask_of, reads_now};
use super::value::{Env, Item, Value};
use super::{Lowering, constant_metadata};
use crate::layout::{Counter, NO_DEADLINE, RecordLayout, size_bytes};
use crate::model::{
    Condition, Destination, Element, Expr, NewValue, NextState, Relation, Row, Stateful, Terminal, Update, Wide, Width,
    WriteTarget,
};

/// Above this many nodes a tree forgets what it tested, so that its size stays linear.
const MAX_NODES: usize = 300;

/// What a path knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Facts {
    /// The combinations of valid headers that are still possible.
    pub(super) masks: Vec<u32>,
    /// Results of tests, by the number of the condition.
    tested: BTreeMap<usize, bool>,
    /// What its registers hold.
    pub(super) loaded: BTreeSet<Item>,
    /// The packet's time has been read.
    pub(super) now_is_known: bool,
    /// Some way to here has read it.
    pub(super) now_may_be_known: bool,
}

/// The tree of one state (or of the absent context, or of a stateless element).
struct Tree<'a> {
    element: usize,
    stateful: Option<&'a Stateful>,
    rows: Vec<(usize, &'a Row)>,
    env: Env,
    nodes: BTreeMap<(usize, Facts), Label>,
    bodies: BTreeMap<(usize, Facts), Label>,
    todo: Vec<(Label, usize, Facts)>,
    conditions: Vec<Condition>,
    no_match: Label,
}

impl<'a> Lowering<'a> {
    pub(super) fn emit_element(&mut self, index: usize) {
        let function = self.function;
        let element = &function.elements[index];
        let plan = self.plans[index].clone();
        let all_masks = self.masks.clone();
        let keyed = |this: &Self| all_masks.iter().copied().filter(|&m| this.key_is_present(index, m)).collect();
        self.path = Facts { masks: all_masks.clone(), now_may_be_known: index > 0, ..Facts::default() };
        self.builder.push(Op::Line(element.span));
        self.builder.place(plan.entry);
        if index > 0 {
            for any in self.key_masks(index) {
                let no_key = plan.no_key;
                self.require(any, |_| no_key);
            }
        }
        self.path.masks = keyed(self);
        match &element.stateful {
            // No packet has all fields of the key: what follows would read headers that are not there.
            _ if self.path.masks.is_empty() => self.builder.goto(plan.no_key),
            None => {
                let env = Env { element: index, ..Env::default() };
                self.emit_tree(index, element, None, 0, env);
            }
            Some(stateful) => self.emit_stateful(index, element, stateful),
        }
        self.builder.place(plan.no_key);
        self.path = Facts { masks: all_masks, ..Facts::default() };
        self.emit_otherwise(index, element, Counter::NoKey);
    }

    /// Goes on where a header of `any` is valid, otherwise to the label that `absent` gives for the facts there. Returns
    /// whether the path can go on at all.
    fn require(&mut self, any: u32, absent: impl FnOnce(&Facts) -> Label) -> bool {
        let (with, without): (Vec<u32>, Vec<u32>) = self.path.masks.iter().partition(|&&m| m & any != 0);
        if without.is_empty() || any == 0 {
            return true;
        }
        if with.is_empty() {
            return false;
        }
        let missing = absent(&Facts { masks: without, ..self.path.clone() });
        let present = self.builder.label();
        let valid = self.valid;
        self.builder.jump64(jmp::JSET, valid, Operand::Imm(any as i32), present);
        self.builder.goto(missing);
        self.builder.place(present);
        self.path.masks = with;
        true
    }

    fn emit_stateful(&mut self, index: usize, element: &'a Element, stateful: &'a Stateful) {
        let plan = self.plans[index].clone();
        let (Some(map), Some(layout)) = (plan.map, plan.layout.clone()) else { return };
        if element.rows.iter().flat_map(|r| &r.conditions).flat_map(Condition::exprs).any(reads_now) {
            self.ensure_now();
        }
        self.emit_key(index);
        self.mark_seen(index);
        self.map_arguments(map, plan.key_slot);
        let (absent, expired) = (self.builder.label(), self.builder.label());
        self.builder.call(helper::MAP_LOOKUP_ELEM, 2);
        let context = self.builder.dup(R0);
        self.builder.jump64(jmp::JEQ, context, Operand::Imm(0), absent);
        let mut absent_path = self.path.clone();

        let deadlines: Vec<u32> = layout.idle.map(|i| i.deadline).into_iter().chain(layout.hard_deadline).collect();
        if !deadlines.is_empty() {
            self.ensure_now();
        }
        for &offset in &deadlines {
            let deadline = self.builder.reg();
            self.builder.load(Size::B8, deadline, context, offset as i16);
            let now = self.now;
            self.builder.jump64(jmp::JGE, now, Operand::Reg(deadline), expired);
        }
        let live = self.path.clone();

        let states: Vec<u16> = (0..stateful.states.len() as u16).collect();
        let last = states.len() - 1;
        let state_reg = self.builder.reg();
        if last > 0 {
            self.builder.load(Size::B2, state_reg, context, layout.state as i16);
        }
        for &state in &states {
            let next = self.builder.label();
            if usize::from(state) < last {
                self.builder.jump64(jmp::JNE, state_reg, Operand::Imm(state.into()), next);
            }
            self.path = live.clone();
            let env = Env { element: index, state, context: Some(context), after: Vec::new() };
            self.emit_tree(index, element, Some(stateful), state, env);
            self.builder.place(next);
        }

        if !deadlines.is_empty() {
            self.builder.place(expired);
            self.builder.push(Op::Line(element.span));
            self.path = live;
            self.count_expiry(index, &states, context, &layout);
            self.delete_context(index);
            self.builder.goto(absent);
            absent_path.now_may_be_known = true;
        }
        self.builder.place(absent);
        self.path = absent_path;
        self.emit_tree(index, element, Some(stateful), 0, Env { element: index, ..Env::default() });
    }

    fn count_expiry(&mut self, index: usize, states: &[u16], context: Reg, layout: &RecordLayout) {
        if self.counters.is_none() {
            return;
        }
        let state_reg = self.builder.reg();
        self.builder.load(Size::B2, state_reg, context, layout.state as i16);
        let done = self.builder.label();
        for &state in states {
            let (next, hard) = (self.builder.label(), self.builder.label());
            self.builder.jump64(jmp::JNE, state_reg, Operand::Imm(state.into()), next);
            if let Some(idle) = layout.idle {
                let deadline = self.builder.reg();
                self.builder.load(Size::B8, deadline, context, idle.deadline as i16);
                let now = self.now;
                self.builder.jump64(jmp::JLT, now, Operand::Reg(deadline), hard);
                self.count(index, Counter::IdleExpired(state));
                self.builder.goto(done);
            }
            self.builder.place(hard);
            self.count(index, Counter::HardExpired(state));
            self.builder.goto(done);
            self.builder.place(next);
        }
        self.builder.place(done);
    }

    fn emit_otherwise(&mut self, index: usize, element: &Element, counter: Counter) {
        self.builder.push(Op::Line(element.otherwise.span));
        self.count(index, counter);
        let actions = &element.otherwise.actions;
        for (i, value) in constant_metadata(&actions.writes) {
            let bits = self.function.metadata[usize::from(i)].ty.width_bits.into();
            let reg = self.metadata[usize::from(i)];
            self.builder.set(reg, super::value::low_bits(value, bits));
        }
        let port = match &actions.terminal {
            Terminal::Forward(expr) => {
                let env = Env { element: index, ..Env::default() };
                let value = self.eval(expr, Width::W32, &env);
                Some(self.operand_of(value))
            }
            _ => None,
        };
        self.emit_terminal(&actions.terminal, port);
    }

    fn emit_tree(&mut self, index: usize, element: &'a Element, stateful: Option<&'a Stateful>, state: u16, env: Env) {
        let rows = element.rows.iter().enumerate();
        let rows = rows.filter(|(_, row)| stateful.is_none() || row.states.contains(&state)).collect();
        let mut tree = Tree {
            element: index,
            stateful,
            rows,
            env,
            nodes: BTreeMap::new(),
            bodies: BTreeMap::new(),
            todo: Vec::new(),
            conditions: Vec::new(),
            no_match: self.builder.label(),
        };
        let start = self.builder.label();
        tree.todo.push((start, 0, self.path.clone()));
        let before = self.path.clone();
        while let Some((label, at, facts)) = tree.todo.pop() {
            self.builder.place(label);
            let facts = tree.relevant(at, facts);
            match tree.nodes.get(&(at, facts.clone())) {
                Some(&same) => self.builder.goto(same),
                None => {
                    tree.nodes.insert((at, facts.clone()), label);
                    self.path = facts;
                    self.emit_node_from(&mut tree, at);
                }
            }
        }
        self.builder.place(tree.no_match);
        self.path = before;
        if let (Some(context), Some(layout)) = (tree.env.context, self.plans[index].layout.clone()) {
            self.rearm_idle(context, &layout);
        }
        self.emit_otherwise(index, element, Counter::NoMatch);
    }

    fn emit_node_from(&mut self, tree: &mut Tree<'a>, mut at: usize) {
        'rows: while let Some(&(row_index, row)) = tree.rows.get(at) {
            self.builder.push(Op::Line(row.span));
            for field in row.fields() {
                let mut missing = None;
                let label = self.builder.label();
                let can_match = self.require(mask_of(field), |facts| {
                    missing = Some(facts.clone());
                    label
                });
                if !can_match {
                    at += 1;
                    continue 'rows;
                }
                if let Some(facts) = missing {
                    tree.todo.push((label, at + 1, facts));
                }
            }
            for condition in &row.conditions {
                let (number, polarity) = tree.number(condition);
                match self.path.tested.get(&number) {
                    Some(&truth) if truth == polarity => continue,
                    Some(_) => {
                        at += 1;
                        continue 'rows;
                    }
                    None => {}
                }
                let fails = self.builder.label();
                match self.branch(condition, &tree.env, fails) {
                    Some(true) => {}
                    Some(false) => {
                        at += 1;
                        continue 'rows;
                    }
                    None => {
                        let mut facts = self.path.clone();
                        facts.tested.insert(number, !polarity);
                        tree.todo.push((fails, at + 1, facts));
                        self.path.tested.insert(number, polarity);
                    }
                }
            }
            self.path.tested.clear();
            let items = row_items(row);
            self.path.loaded.retain(|item| items.contains(item));
            if let Some(&same) = tree.bodies.get(&(row_index, self.path.clone())) {
                self.builder.goto(same);
            } else {
                let body = self.builder.label();
                self.builder.place(body);
                tree.bodies.insert((row_index, self.path.clone()), body);
                self.emit_body(tree, row_index, row);
            }
            return;
        }
        self.builder.goto(tree.no_match);
    }

    /// What a matched row does: counters, updates, context, packet actions.
    fn emit_body(&mut self, tree: &Tree<'a>, row_index: usize, row: &'a Row) {
        let index = tree.element;
        let mut env = tree.env.clone();
        self.count(index, Counter::Row { row: row_index, state: env.state });
        if let Some(stateful) = tree.stateful {
            // Time first: a call would push what is computed out of its registers.
            let sets_timer =
                matches!(row.next, NextState::To { idle_ns, hard_ns, .. } if idle_ns.or(hard_ns).is_some());
            if sets_timer || row.exprs().into_iter().any(reads_now) {
                self.ensure_now();
            }
            let after = self.emit_updates(&row.updates, &env, stateful);
            match env.context {
                Some(context) => {
                    self.update_context(index, row, stateful, context, &env, &after);
                    self.store_globals(index, &after);
                    env.after = after;
                }
                None => env.after = self.create_context(index, row, stateful, &env, after),
            }
        }
        self.emit_actions(row, &env);
    }

    fn emit_updates(&mut self, updates: &[Update], env: &Env, stateful: &Stateful) -> Vec<(Destination, Value)> {
        updates
            .iter()
            .map(|update| {
                let NewValue::Number { value, width } = &update.value else {
                    return (update.destination, Value::Const(0));
                };
                let value = self.eval(value, *width, env);
                let ty = match update.destination {
                    Destination::Register(i) => stateful.registers[usize::from(i)].ty,
                    Destination::Global(i) => stateful.globals[usize::from(i)].ty,
                };
                (update.destination, self.truncate(value, *width, ty.width_bits.into()))
            })
            .collect()
    }

    fn store_globals(&mut self, index: usize, after: &[(Destination, Value)]) {
        for &(destination, value) in after {
            if let Destination::Global(i) = destination {
                let (address, size) = self.global_address(index, i);
                self.store_value(size, address, 0, value);
            }
        }
    }

    /// Stores a value, as an immediate where it is one.
    fn store_value(&mut self, size: Size, base: Reg, offset: i16, value: Value) {
        let source = match (value, size) {
            (Value::Const(c), Size::B1 | Size::B2 | Size::B4) => Operand::Imm(c as u32 as i32),
            _ => self.operand_of(value),
        };
        self.builder.store(size, base, offset, source);
    }

    /// Re-arms the idle timer of a stored context: its deadline moves to now and its period.
    fn rearm_idle(&mut self, context: Reg, layout: &RecordLayout) {
        let Some(idle) = layout.idle else { return };
        self.ensure_now();
        let b = &mut self.builder;
        let (deadline, none) = (b.reg(), b.label());
        b.load(Size::B8, deadline, context, idle.period as i16);
        b.jump64(jmp::JEQ, deadline, Operand::Imm(0), none);
        b.alu64(alu::ADD, deadline, Operand::Reg(self.now));
        b.store(Size::B8, context, idle.deadline as i16, Operand::Reg(deadline));
        b.place(none);
    }

    fn deadline(&mut self, timeout_ns: Option<u64>) -> Value {
        let Some(timeout_ns) = timeout_ns else { return Value::Const(NO_DEADLINE) };
        let deadline = self.builder.dup(self.now);
        let timeout = self.builder.operand(timeout_ns);
        self.builder.alu64(alu::ADD, deadline, timeout);
        Value::Reg(deadline)
    }

    /// The effect of a row on a stored context: stored, or removed where it is back at its default.
    fn update_context(
        &mut self,
        index: usize,
        row: &Row,
        stateful: &Stateful,
        context: Reg,
        env: &Env,
        after: &[(Destination, Value)],
    ) {
        let Some(layout) = self.plans[index].layout.clone() else { return };
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
                if let Some(idle) = layout.idle {
                    let period = self.builder.reg();
                    self.builder.load(Size::B8, period, context, idle.period as i16);
                    self.builder.jump64(jmp::JNE, period, Operand::Imm(0), keep);
                    let deadline = self.builder.reg();
                    self.builder.load(Size::B8, deadline, context, idle.deadline as i16);
                    self.builder.jump64(jmp::JNE, deadline, Operand::Imm(-1), keep);
                }
                if let Some(offset) = layout.hard_deadline {
                    let deadline = self.builder.reg();
                    self.builder.load(Size::B8, deadline, context, offset as i16);
                    self.builder.jump64(jmp::JNE, deadline, Operand::Imm(-1), keep);
                }
            }
            if maybe {
                self.preload_after(row, &env);
                self.delete_context(index);
                self.count(index, Counter::Removed);
                self.builder.goto(done);
            }
            // What was loaded on the way may have been skipped.
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
                let size = Size::of(size_bytes(&stateful.registers[usize::from(i)])).unwrap_or(Size::B8);
                self.store_value(size, context, layout.registers[usize::from(i)] as i16, value);
            }
        }
        match row.next {
            NextState::Stay => self.rearm_idle(context, &layout),
            NextState::To { state, idle_ns, hard_ns } => {
                if state != env.state {
                    self.builder.store(Size::B2, context, layout.state as i16, Operand::Imm(state.into()));
                }
                if let Some(idle) = layout.idle {
                    let deadline = self.deadline(idle_ns);
                    self.store_value(Size::B8, context, idle.deadline as i16, deadline);
                    self.store_value(Size::B8, context, idle.period as i16, Value::Const(idle_ns.unwrap_or(0)));
                }
                if let Some(offset) = layout.hard_deadline {
                    let deadline = self.deadline(hard_ns);
                    self.store_value(Size::B8, context, offset as i16, deadline);
                }
            }
        }
        self.builder.place(done);
    }

    /// Loads every register that the row's actions read, so that both ways of a branch have them.
    fn preload_after(&mut self, row: &Row, env: &Env) {
        for expr in row.actions.exprs() {
            let mut reads = Vec::new();
            expr.walk(&mut |e| {
                if let Expr::Register(i) = e {
                    reads.push(Destination::Register(*i));
                }
            });
            for destination in reads {
                self.variable(env, destination);
            }
        }
    }

    /// Jumps to `differs` where a register is not at its initial value; returns false where one never is.
    fn differs_from_default(&mut self, stateful: &Stateful, env: &Env, differs: Label) -> bool {
        for (i, register) in stateful.registers.iter().enumerate() {
            let (value, _) = self.variable(env, Destination::Register(i as u16));
            match value {
                Value::Const(c) if c != register.initial as u64 => return false,
                Value::Const(_) => {}
                Value::Reg(reg) => {
                    let initial = self.builder.operand(register.initial as u64);
                    self.builder.jump64(jmp::JNE, reg, initial, differs);
                }
            }
        }
        true
    }

    /// The effect of a row on an absent context: created, unless it stays the default one or the table is full. Returns
    /// the registers as the packet actions see them.
    fn create_context(
        &mut self,
        index: usize,
        row: &Row,
        stateful: &Stateful,
        env: &Env,
        after: Vec<(Destination, Value)>,
    ) -> Vec<(Destination, Value)> {
        let (state, idle_ns, hard_ns) = match row.next {
            NextState::Stay => (0, None, None),
            NextState::To { state, idle_ns, hard_ns } => (state, idle_ns, hard_ns),
        };
        let done = self.builder.label();
        if state == 0 && idle_ns.or(hard_ns).is_none() {
            let create = self.builder.label();
            let env = Env { after: after.clone(), ..env.clone() };
            if self.differs_from_default(stateful, &env, create) {
                if !after.iter().any(|(d, v)| matches!((d, v), (Destination::Register(_), Value::Reg(_)))) {
                    // Nothing at all can differ: the context stays absent.
                    self.builder.place(create);
                    self.store_globals(index, &after);
                    return after;
                }
                self.store_globals(index, &after);
                self.builder.goto(done);
            } else {
                self.builder.goto(create);
            }
            self.builder.place(create);
        }

        // What the actions read lives in registers of its own, since a rejected row reads the values from before.
        let mut read = BTreeSet::new();
        for expr in row.actions.exprs() {
            expr.walk(&mut |e| match e {
                Expr::Register(i) => drop(read.insert(Destination::Register(*i))),
                Expr::Global(i) => drop(read.insert(Destination::Global(*i))),
                _ => {}
            });
        }
        let seen: Vec<(Destination, Value)> = after.iter().copied().filter(|(d, _)| read.contains(d)).collect();
        let before: Vec<Value> = seen.iter().map(|&(d, _)| self.variable(env, d).0).collect();
        self.build_record(index, stateful, &after, state, idle_ns, hard_ns);
        self.insert_context(index);
        let (created, actions) = (self.builder.label(), self.builder.label());
        let result = self.builder.dup(R0);
        self.builder.jump64(jmp::JEQ, result, Operand::Imm(0), created);
        self.count(index, Counter::Rejected);
        let visible: Vec<Reg> = seen.iter().map(|_| self.builder.reg()).collect();
        for (&reg, &value) in visible.iter().zip(&before) {
            self.set_value(reg, value);
        }
        self.builder.goto(actions);
        self.builder.place(created);
        self.count(index, Counter::Created);
        self.store_globals(index, &after);
        self.builder.place(done);
        for (&reg, &(_, value)) in visible.iter().zip(&seen) {
            self.set_value(reg, value);
        }
        self.builder.place(actions);
        seen.iter().zip(visible).map(|(&(d, _), reg)| (d, Value::Reg(reg))).collect()
    }

    fn set_value(&mut self, reg: Reg, value: Value) {
        match value {
            Value::Const(c) => self.builder.set(reg, c),
            Value::Reg(r) => self.builder.copy(reg, r),
        }
    }

    /// The record of a new context, in its slot on the stack.
    fn build_record(
        &mut self,
        index: usize,
        stateful: &Stateful,
        after: &[(Destination, Value)],
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
        for (i, register) in stateful.registers.iter().enumerate() {
            let updated = after.iter().find(|(d, _)| *d == Destination::Register(i as u16));
            let value = updated.map_or(Value::Const(register.initial as u64), |&(_, value)| value);
            fields.push((layout.registers[i], size_bytes(register), value));
        }
        let mut image = vec![0u8; layout.len_bytes as usize];
        let mut is_dynamic = vec![false; image.len()];
        for &(offset, bytes, value) in &fields {
            let range = offset as usize..(offset + bytes) as usize;
            match value {
                Value::Const(c) => image[range].copy_from_slice(&c.to_le_bytes()[..bytes as usize]),
                Value::Reg(reg) => {
                    is_dynamic[range].fill(true);
                    let size = Size::of(bytes).unwrap_or(Size::B8);
                    self.builder.store(size, FP, plan.record_slot + offset as i16, Operand::Reg(reg));
                }
            }
        }
        // The constant bytes, in the largest stores that fit between the others.
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
            let size = Size::of(bytes as u32).unwrap_or(Size::B1);
            self.store_value(size, FP, plan.record_slot + at as i16, value);
            at += bytes;
        }
    }

    fn emit_actions(&mut self, row: &Row, env: &Env) {
        let actions = &row.actions;
        let port = match &actions.terminal {
            Terminal::Forward(expr) => Some(self.eval(expr, Width::W32, env)),
            _ => None,
        };
        let mut metadata = Vec::new();
        let mut fields = Vec::new();
        for write in &actions.writes {
            match (write.target, &write.value) {
                (WriteTarget::Metadata(i), NewValue::Number { value, width }) => {
                    let bits = self.function.metadata[usize::from(i)].ty.width_bits.into();
                    let value = self.eval(value, *width, env);
                    metadata.push((i, self.truncate(value, *width, bits)));
                }
                (WriteTarget::Field(field), NewValue::Number { value, width }) => {
                    let value = self.eval(value, *width, env);
                    fields.push((field, super::write::Source::Number(value)));
                }
                (WriteTarget::Field(field), NewValue::Wide(Wide::Constant(value))) => {
                    fields.push((field, super::write::Source::Wide(*value)));
                }
                (WriteTarget::Field(field), NewValue::Wide(Wide::Field(from))) => {
                    let halves = self.load_wide(env.element, *from);
                    fields.push((field, super::write::Source::Halves(halves)));
                }
                (_, NewValue::Wide(_)) => {}
            }
        }
        // A value may be the register of another metadata field that is about to change.
        let staged: Vec<(u16, Value)> = metadata
            .into_iter()
            .map(|(i, value)| match value {
                Value::Reg(reg) if self.metadata.contains(&reg) => (i, Value::Reg(self.builder.dup(reg))),
                value => (i, value),
            })
            .collect();
        let port = port.map(|value| match value {
            Value::Reg(reg) if self.metadata.contains(&reg) => Value::Reg(self.builder.dup(reg)),
            value => value,
        });
        self.emit_writes(&fields);
        for (i, value) in staged {
            let reg = self.metadata[usize::from(i)];
            self.set_value(reg, value);
        }
        let port = port.map(|value| self.operand_of(value));
        self.emit_terminal(&actions.terminal, port);
    }
}

impl<'a> Tree<'a> {
    /// The facts that matter from row `at` on.
    fn relevant(&mut self, at: usize, mut facts: Facts) -> Facts {
        if self.nodes.len() > MAX_NODES {
            facts.tested.clear();
            facts.loaded.clear();
            return facts;
        }
        let rows: Vec<&Row> = self.rows.iter().skip(at).map(|(_, row)| *row).collect();
        let mut numbers = BTreeSet::new();
        let mut items = BTreeSet::new();
        for row in rows {
            numbers.extend(row.conditions.iter().map(|c| self.number(c).0));
            items.extend(row_items(row));
        }
        facts.tested.retain(|number, _| numbers.contains(number));
        facts.loaded.retain(|item| items.contains(item));
        facts
    }

    /// The number of a condition up to negation, and whether it is not negated.
    fn number(&mut self, condition: &Condition) -> (usize, bool) {
        let (base, polarity) = positive(condition);
        let number = self.conditions.iter().position(|c| *c == base).unwrap_or_else(|| {
            self.conditions.push(base);
            self.conditions.len() - 1
        });
        (number, polarity)
    }
}

/// The condition without negation, and whether it had none.
fn positive(condition: &Condition) -> (Condition, bool) {
    let mut base = condition.clone();
    let polarity = match &mut base {
        Condition::Compare { relation, .. } => {
            let (positive, polarity) = match relation {
                Relation::NotEqual => (Relation::Equal, false),
                Relation::GreaterEqual => (Relation::Less, false),
                Relation::Greater => (Relation::LessEqual, false),
                _ => (*relation, true),
            };
            *relation = positive;
            polarity
        }
        Condition::Serial { negated, .. }
        | Condition::Masked { negated, .. }
        | Condition::Range { negated, .. }
        | Condition::OneOf { negated, .. }
        | Condition::Same { negated, .. }
        | Condition::Full { negated } => !std::mem::replace(negated, false),
    };
    (base, polarity)
}

/// Everything that a row may load.
fn row_items(row: &Row) -> BTreeSet<Item> {
    let mut items = Lowering::loadable(row.fields());
    for expr in row.exprs() {
        expr.walk(&mut |e| match e {
            Expr::Register(i) => drop(items.insert(Item::Register(*i))),
            Expr::Global(i) => drop(items.insert(Item::Global(*i))),
            _ => {}
        });
    }
    items
}
