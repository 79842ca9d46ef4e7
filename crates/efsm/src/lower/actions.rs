//! What a row does to the packet.

use super::Lowering;
use super::asm::Reg;
use super::value::{Env, Pair, Value};
use super::write::Source;
use crate::model::{NewValue, Row, Terminal, Wide, Width, WriteTarget};

impl<'a> Lowering<'a> {
    pub(super) fn emit_actions(&mut self, row: &Row, env: &Env) {
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
                WriteTarget::Field(field) => {
                    let value = match &write.value {
                        NewValue::Number { value, width } => Source::Number(self.eval(value, *width, env)),
                        NewValue::Wide(wide) => self.wide_source(*wide, env),
                    };
                    fields.push((field, value));
                }
            }
        }
        // A value may be the register of another metadata field that is about to change.
        let staged: Vec<(u16, Pair)> =
            metadata.into_iter().map(|(i, value)| (i, value.map(|half| self.beside_metadata(half)))).collect();
        let port = port.map(|value| self.beside_metadata(value));
        self.emit_writes(&fields);
        for (i, value) in staged {
            self.set_pair(self.metadata[usize::from(i)], value);
        }
        let port = port.map(|value| self.operand_of(value));
        self.emit_terminal(&actions.terminal, port);
    }

    fn wide_source(&mut self, wide: Wide, env: &Env) -> Source {
        let Pair { high, low } = self.pair(wide, env);
        match (high, low) {
            (Value::Const(high), Value::Const(low)) => Source::Wide(u128::from(high) << 64 | u128::from(low)),
            (high, low) => Source::Halves((self.read(high), self.read(low))),
        }
    }

    /// A register with the value, not to be changed.
    fn read(&mut self, value: Value) -> Reg {
        match value {
            Value::Const(c) => {
                let reg = self.builder.reg();
                self.builder.set(reg, c);
                reg
            }
            Value::Reg(reg) => reg,
        }
    }

    /// The value, in a register that is none of a metadata field.
    fn beside_metadata(&mut self, value: Value) -> Value {
        match value {
            Value::Reg(reg) if self.metadata.iter().any(|&(high, low)| reg == high || reg == low) => {
                Value::Reg(self.builder.dup(reg))
            }
            value => value,
        }
    }

    /// Sets a metadata field to a constant, of which it takes the low bits.
    pub(super) fn set_metadata(&mut self, i: u16, value: u128) {
        let i = usize::from(i);
        let bits = u32::from(self.function.metadata[i].ty.width_bits);
        let value = if bits >= 128 { value } else { value & ((1 << bits) - 1) };
        self.set_pair(self.metadata[i], Pair::constant(value));
    }
}
