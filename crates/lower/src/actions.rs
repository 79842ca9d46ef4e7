// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Effects of a row on the packet.

use flowloom_wire::FieldId;

use super::facts::Facts;
use super::fields::mask_of;
use super::lowering::{Lowering, Tail};
use super::steps::Prepared;
use super::value::{Env, Pair, Value};
use super::write::Source;
use flowloom_efsm::model::{NewValue, Row, Terminal, Wide, Width, WriteTarget};

/// Effects of a row, with their values computed.
struct Ready {
    port: Option<Value>,
    metadata: Vec<(u16, Pair)>,
    fields: Vec<(FieldId, Source)>,
    steps: Vec<Prepared>,
}

impl Ready {
    fn for_each_value(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        self.port.iter_mut().for_each(&mut *visit);
        for (_, pair) in &mut self.metadata {
            visit(&mut pair.high);
            visit(&mut pair.low);
        }
        self.fields.iter_mut().for_each(|(_, source)| source.for_each_value(visit));
        self.steps.iter_mut().for_each(|step| step.for_each_value(visit));
    }
}

impl<'a> Lowering<'a> {
    pub(super) fn emit_actions(&mut self, index: usize, row: &Row, env: &Env) {
        let actions = &row.actions;
        let port = match &actions.terminal {
            Terminal::Forward(expr) => Some(self.eval(expr, Width::W32, env)),
            _ => None,
        };
        let mut metadata = Vec::new();
        let mut fields = Vec::new();
        for write in &actions.writes {
            match write.target {
                WriteTarget::Metadata(i) => {
                    let width_bits = self.function.metadata[usize::from(i)].ty.width_bits;
                    metadata.push((i, self.new_value(&write.value, width_bits, env)));
                }
                WriteTarget::Field(field) => fields.push((field, self.source(&write.value, env))),
            }
        }
        // A value may be in the register of another metadata field that is about to change.
        let metadata = metadata
            .into_iter()
            .map(|(i, value)| (i, value.map(|half| self.outside_metadata_register(half))))
            .collect();
        let port = port.map(|value| self.outside_metadata_register(value));
        let steps = actions.steps.iter().filter_map(|step| self.prepare(&step.kind, env)).collect();
        let mut ready = Ready { port, metadata, fields, steps };
        if actions.changes_frame() && !self.enter_tail(index, row, env.element, &mut ready) {
            return;
        }
        let Ready { port, metadata, fields, steps } = ready;
        self.emit_writes(&fields);
        for (i, value) in metadata {
            if let (Value::Const(high), Value::Const(low)) = (value.high, value.low) {
                self.path.metadata.insert(i, u128::from(high) << 64 | u128::from(low));
            } else {
                self.set_pair(self.metadata[usize::from(i)], value);
                self.path.metadata.remove(&i);
            }
        }
        self.emit_steps(steps);
        let port = port.map(|value| self.operand_of(value));
        self.emit_terminal(&actions.terminal, port, actions.changes_frame());
    }

    /// Jumps to the code for the row's steps if it exists; otherwise starts it here and returns true. Steps are long
    /// and do not depend on the path, so all paths to the row share them.
    fn enter_tail(&mut self, index: usize, row: &Row, element: usize, ready: &mut Ready) -> bool {
        let (mut known, mut found) = (Vec::new(), Vec::new());
        ready.for_each_value(&mut |value| match *value {
            Value::Const(c) => known.push(Some(c)),
            Value::Reg(reg) => {
                known.push(None);
                found.push(reg);
            }
        });
        self.materialize_facts();
        let key = (element, index, known);
        let there = self.tails.get(&key).cloned();
        let is_new = there.is_none();
        let b = &mut self.builder;
        let tail = there.unwrap_or_else(|| Tail { label: b.label(), values: found.iter().map(|_| b.reg()).collect() });
        for (&to, &from) in tail.values.iter().zip(&found) {
            self.builder.copy(to, from);
        }
        if !is_new {
            self.builder.goto(tail.label);
            return false;
        }
        self.builder.place(tail.label);
        let mut values = tail.values.iter();
        ready.for_each_value(&mut |value| {
            if let Value::Reg(reg) = value
                && let Some(&own) = values.next()
            {
                *reg = own;
            }
        });
        self.tails.insert(key, tail);
        // All packets that the row can match.
        let needs: Vec<u32> = row.fields().into_iter().map(mask_of).filter(|&any| any != 0).collect();
        let masks = self.masks(element).into_iter().filter(|mask| needs.iter().all(|any| mask & any != 0));
        let held = std::mem::take(&mut self.path.held);
        self.path = Facts { masks: masks.collect(), now_may_be_known: true, held, ..Facts::default() };
        true
    }

    /// The new value of a packet field.
    pub(super) fn source(&mut self, value: &NewValue, env: &Env) -> Source {
        match value {
            NewValue::Number { value, width } => Source::Number(self.eval(value, *width, env)),
            NewValue::Wide(wide) => self.wide_source(*wide, env),
        }
    }

    fn wide_source(&mut self, wide: Wide, env: &Env) -> Source {
        let Pair { high, low } = self.pair(wide, env);
        match (high, low) {
            (Value::Const(high), Value::Const(low)) => Source::Wide(u128::from(high) << 64 | u128::from(low)),
            (high, low) => Source::Halves(high, low),
        }
    }

    /// The value, copied if it is in the register of a metadata field.
    pub(super) fn outside_metadata_register(&mut self, value: Value) -> Value {
        match value {
            Value::Reg(reg) if self.metadata.iter().any(|&(high, low)| reg == high || reg == low) => {
                Value::Reg(self.builder.dup(reg))
            }
            value => value,
        }
    }

    /// Sets a metadata field to the low bits of a constant.
    pub(super) fn set_metadata(&mut self, i: u16, value: u128) {
        let variable = usize::from(i);
        let bits = u32::from(self.function.metadata[variable].ty.width_bits);
        let value = if bits >= 128 { value } else { value & ((1 << bits) - 1) };
        self.path.metadata.insert(i, value);
    }
}
