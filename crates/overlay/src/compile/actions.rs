// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Actions of rows: one operation for each destination.

use flowloom_efsm::model::{
    BinaryOp, Destination as ModelDestination, Element, Expr, HeaderTemplate, NewValue, NextState, Row, StepKind,
    Terminal as ModelTerminal, Wide, Width, WriteTarget,
};
use flowloom_efsm::steps;
use flowloom_wire::Header;

use super::operands::{NewValues, Registers};
use super::{Compiler, Lack};
use crate::image::{
    Action, Alu, Average, Creates, Destination, Entry, Narrow, Next, Operand, Operation, Step, Terminal, Value, Write,
    WriteSource,
};
use crate::parameters::STATELESS_ALUS;
use crate::word::{Place, Word, words_of};

/// A value of a packet action: its operation, the value where updates are dropped, and the values that it can have.
type ActionValue = (Value, Option<Operand>, Narrow);

impl Compiler<'_> {
    /// The instruction of a row.
    pub(super) fn action(
        &mut self,
        element: &Element,
        row: &Row,
        registers: &mut Registers,
        placed: &[usize],
    ) -> Action {
        let name = Some(element.name.clone());
        let mut alus: Vec<Alu> = Vec::new();
        for update in &row.updates {
            let width_bits = registers.ty(update.destination).width_bits;
            match self.values(&update.value, width_bits, registers) {
                Ok(values) => {
                    for (index, value) in values.into_iter().enumerate() {
                        let destination = registers.word(update.destination, index as u8);
                        alus.push(Alu { destination: Some(destination), value });
                    }
                }
                Err(lack) => self.problem(element, update.span, lack),
            }
        }
        let new: NewValues = alus.iter().filter_map(|alu| Some((alu.destination?, alu.value))).collect();
        let mut writes = Vec::new();
        for write in &row.actions.writes {
            match self.writes(&write.target, &write.value, registers, &new, &mut alus) {
                Ok(found) => writes.extend(found),
                Err(lack) => self.problem(element, write.span, lack),
            }
        }
        let swaps = take_swaps(&mut writes, &self.words.list);
        let mut steps = Vec::new();
        for step in &row.actions.steps {
            match self.step(&step.kind, registers, &new) {
                Ok(found) => steps.push(found),
                Err(lack) => self.problem(element, step.span, lack),
            }
        }
        let terminal = match self.terminal(&row.actions.terminal, registers, &new, placed) {
            Ok(Terminal::Goto(_)) if steps.iter().any(|step| !matches!(step, Step::Clone(_))) => {
                let what = "pushes or pops a header, and continues in another element";
                self.problem(element, row.span, Lack::with_help(what, "push and pop where the packet leaves"));
                Terminal::Drop
            }
            Ok(terminal) => terminal,
            Err(lack) => {
                self.problem(element, row.span, lack);
                Terminal::Drop
            }
        };
        let next = match row.next {
            NextState::Stay => None,
            NextState::To { state, idle_ns, hard_ns } => Some(Next { state, idle_ns, hard_ns }),
        };
        let span = Some(row.span);
        let (parameter, available) = match element.stateful {
            Some(_) => ("alus", self.parameters.alus),
            None => ("stateless_alus", STATELESS_ALUS),
        };
        self.use_of(parameter, "ALUs", name.clone(), span, alus.len() as u32, available);
        self.use_of("writes", "write units", name.clone(), span, writes.len() as u32, self.parameters.writes);
        self.use_of("steps", "edits and copies", name, span, steps.len() as u32, self.parameters.steps);
        let action = Action { next, alus, writes, swaps, steps, terminal };
        self.check_rejection(element, row, &action);
        action
    }

    /// Rejects an update of a global register in a row that creates a context only for some register values: a full
    /// table drops such an update, and global registers are written before that is known.
    fn check_rejection(&mut self, element: &Element, row: &Row, action: &Action) {
        let is_global = |destination: &Option<Destination>| matches!(destination, Some(Destination::Global(_)));
        let writes_global = action.alus.iter().any(|alu| is_global(&alu.destination));
        if writes_global && action.creates() == Creates::UnlessDefault {
            let what = "updates a global register, and may or may not create a context";
            self.problem(element, row.span, Lack::with_help(what, "let the row enter a state, or set a timer"));
        }
    }

    /// The action of packets that no row matches.
    pub(super) fn otherwise(&mut self, element: &Element, placed: &[usize]) -> Action {
        let otherwise = &element.otherwise;
        let registers = Registers::default();
        let mut writes = Vec::new();
        for write in &otherwise.actions.writes {
            match self.writes(&write.target, &write.value, &registers, &NewValues::new(), &mut Vec::new()) {
                Ok(found) => writes.extend(found),
                Err(lack) => self.problem(element, otherwise.span, lack),
            }
        }
        let terminal = match self.terminal(&otherwise.actions.terminal, &registers, &NewValues::new(), placed) {
            Ok(terminal) => terminal,
            Err(lack) => {
                self.problem(element, otherwise.span, lack);
                Terminal::Drop
            }
        };
        for step in &otherwise.actions.steps {
            self.problem(element, step.span, Lack::new("has a step where no row matches"));
        }
        Action { next: None, alus: Vec::new(), writes, swaps: Vec::new(), steps: Vec::new(), terminal }
    }

    /// The operations of the words of a new value.
    fn values(&mut self, value: &NewValue, width_bits: u8, registers: &mut Registers) -> Result<Vec<Value>, Lack> {
        (0..words_of(width_bits))
            .map(|index| match value {
                NewValue::Wide(wide) => Ok(moved(self.wide(*wide, index, registers)?)),
                NewValue::Number { value, width } => self.operation(value, *width, index, registers),
            })
            .collect()
    }

    /// The operation of word number `index` of an expression.
    fn operation(&mut self, expr: &Expr, width: Width, index: u8, registers: &mut Registers) -> Result<Value, Lack> {
        if let Some(operand) = self.atom(expr, index, registers)? {
            return Ok(moved(operand));
        }
        let narrow_only = |what: &str| match width {
            Width::W32 => Ok(()),
            Width::W64 => Err(Lack::with_help(format!("{what} 64 bits"), "use values of 32 bits")),
        };
        let (operation, left, right) = match expr {
            Expr::Not(inner) => {
                let left = self.operand(inner, index, registers)?;
                return Ok(Value { operation: Operation::Not, left, right: Operand::Constant(0) });
            }
            Expr::Binary(op, left, right) => {
                let operation = match (op, index) {
                    (BinaryOp::Add, 0) => Operation::Add,
                    (BinaryOp::Add, _) => Operation::AddCarry,
                    (BinaryOp::Sub, 0) => Operation::Subtract,
                    (BinaryOp::Sub, _) => Operation::SubtractBorrow,
                    (BinaryOp::And, _) => Operation::And,
                    (BinaryOp::Or, _) => Operation::Or,
                    (BinaryOp::Xor, _) => Operation::Xor,
                    (BinaryOp::ShiftLeft, _) => {
                        narrow_only("shifts")?;
                        Operation::ShiftLeft
                    }
                    (BinaryOp::ShiftRight, _) => {
                        narrow_only("shifts")?;
                        Operation::ShiftRight
                    }
                };
                (operation, left, right)
            }
            Expr::RotateRight { left, right, rotate_bits: 32 } => (Operation::RotateRight, left, right),
            Expr::RotateRight { rotate_bits, .. } => {
                return Err(Lack::with_help(format!("rotates {rotate_bits} bits"), "rotate a value of 32 bits"));
            }
            Expr::MinMax { max, signed, left, right } => {
                narrow_only("compares")?;
                let operation = match (max, signed) {
                    (false, false) => Operation::Min,
                    (true, false) => Operation::Max,
                    (false, true) => Operation::MinSigned,
                    (true, true) => Operation::MaxSigned,
                };
                (operation, left, right)
            }
            Expr::Ewma { average, sample, shift } => {
                narrow_only("averages")?;
                let (left, sample) = (self.operand(average, 0, registers)?, self.operand(sample, 0, registers)?);
                if matches!(left, Operand::Constant(_)) || matches!(sample, Operand::Constant(_)) {
                    return Err(Lack::with_help("averages a constant", "keep the value in metadata"));
                }
                let average = Average { average: left, sample, shift: *shift };
                let at = registers.averages.iter().position(|known| *known == average).unwrap_or_else(|| {
                    registers.averages.push(average);
                    registers.averages.len() - 1
                });
                return Ok(Value { operation: Operation::Add, left, right: Operand::Average(at as u8) });
            }
            Expr::Hash(_) => return Err(Lack::new("computes a hash")),
            _ => return Err(Lack::new("is not an operation of the machine")),
        };
        let (left, right) = (self.operand(left, index, registers)?, self.operand(right, index, registers)?);
        if let (Operand::Constant(a), Operand::Constant(b)) = (left, right)
            && a != b
        {
            return Err(Lack::new("has two constants in one operation"));
        }
        Ok(Value { operation, left, right })
    }

    /// The operation of word number `index` of a value of a packet action, in which registers have their new values.
    fn action_value(
        &mut self,
        value: &NewValue,
        index: u8,
        registers: &mut Registers,
        new: &NewValues,
    ) -> Result<ActionValue, Lack> {
        let whole = match value {
            NewValue::Wide(Wide::Register(at)) => Some(ModelDestination::Register(*at)),
            NewValue::Wide(Wide::Global(at)) => Some(ModelDestination::Global(*at)),
            NewValue::Number { value: Expr::Register(at), .. } => Some(ModelDestination::Register(*at)),
            NewValue::Number { value: Expr::Global(at), .. } => Some(ModelDestination::Global(*at)),
            _ => None,
        };
        if let Some(register) = whole {
            let ty = registers.ty(register);
            if index < words_of(ty.width_bits) {
                let word = registers.word(register, index);
                let width = (u32::from(ty.width_bits) - 32 * u32::from(index)).min(32) as u8;
                let narrow = Narrow { width_bits: width, is_signed: ty.signed && width < 32 };
                let old = match word {
                    Destination::Register(at) => Operand::Register(at),
                    Destination::Global(at) => Operand::Global(at),
                };
                return Ok(match new.get(&word) {
                    Some(value) => (*value, Some(old), narrow),
                    None => (moved(old), None, narrow),
                });
            }
        }
        let mut reads_new = false;
        let mut visit = |expr: &Expr| {
            let word = match expr {
                Expr::Register(at) => ModelDestination::Register(*at),
                Expr::Global(at) => ModelDestination::Global(*at),
                Expr::Word { of: Wide::Register(at), .. } => ModelDestination::Register(*at),
                Expr::Word { of: Wide::Global(at), .. } => ModelDestination::Global(*at),
                _ => return,
            };
            reads_new |= new.contains_key(&registers.word(word, 0));
        };
        if let NewValue::Number { value, .. } = value {
            value.walk(&mut |expr| visit(expr));
        }
        if reads_new {
            return Err(Lack::with_help(
                "computes with a register that the row has just updated",
                "use `old`, or compute it in a later element",
            ));
        }
        let value = match value {
            NewValue::Wide(wide) => moved(self.wide(*wide, index, registers)?),
            NewValue::Number { value, width } => self.operation(value, *width, index, registers)?,
        };
        Ok((value, None, Narrow::WORD))
    }

    /// The write units of a write.
    fn writes(
        &mut self,
        target: &WriteTarget,
        value: &NewValue,
        registers: &Registers,
        new: &NewValues,
        alus: &mut Vec<Alu>,
    ) -> Result<Vec<Write>, Lack> {
        // Moving averages are for registers.
        let mut registers = registers.clone();
        let averages = registers.averages.len();
        let (width_bits, is_signed) = match target {
            WriteTarget::Field(field) => (field.width_bits(), false),
            WriteTarget::Metadata(at) => {
                let ty = self.function.metadata[usize::from(*at)].ty;
                (ty.width_bits, ty.signed)
            }
        };
        let mut writes = Vec::new();
        for index in 0..words_of(width_bits) {
            let word = match target {
                WriteTarget::Field(field) => {
                    let place = Place::of(*field);
                    if !place.is_whole(*field) {
                        return Err(Lack::with_help(
                            format!("writes a part of `{}`", self.function.graph.field_name(place.storage)),
                            "write the whole field",
                        ));
                    }
                    self.words.written.push((self.words.element, place.storage));
                    Word::Field { field: place.storage, index }
                }
                WriteTarget::Metadata(variable) => Word::Metadata { variable: *variable, index },
            };
            let (value, if_rejected, values) = self.action_value(value, index, &mut registers, new)?;
            let width = (u32::from(width_bits) - 32 * u32::from(index)).min(32) as u8;
            let own = Narrow { width_bits: width, is_signed: is_signed && width < 32 };
            if values.is_signed && values.width_bits < width && width < 32 {
                let what = format!("extends a signed value of {} bits to {width}", values.width_bits);
                return Err(Lack::with_help(what, "declare the register with the width of the destination"));
            }
            let narrow = if values.width_bits < width { values } else { own };
            let lower = writes.last().and_then(|write: &Write| match write.source {
                WriteSource::Alu(at) => Some(at),
                WriteSource::Operand(_) => None,
            });
            let source = match value {
                Value { operation: Operation::Move, left, .. } => WriteSource::Operand(left),
                _ => WriteSource::Alu(alu_of(value, lower, alus)),
            };
            writes.push(Write { word: self.words.number(word), narrow, source, if_rejected });
        }
        match registers.averages.len() == averages {
            true => Ok(writes),
            false => Err(Lack::with_help("computes a moving average outside of a register", "keep it in a register")),
        }
    }

    /// An operand of a packet action.
    fn action_operand(&mut self, expr: &Expr, registers: &Registers, new: &NewValues) -> Result<Operand, Lack> {
        let value = NewValue::Number { value: expr.clone(), width: Width::W32 };
        match self.action_value(&value, 0, &mut registers.clone(), new)? {
            (Value { operation: Operation::Move, left, .. }, None, _) => Ok(left),
            _ => Err(Lack::with_help(
                "computes a value where it is used",
                "compute it in an earlier element, and keep it in metadata",
            )),
        }
    }

    fn step(&mut self, step: &StepKind, registers: &Registers, new: &NewValues) -> Result<Step, Lack> {
        let unsupported = |what: &str| Err(Lack::new(what));
        match step {
            StepKind::Push(template) => {
                let entry = self.entry(template, registers, new)?;
                Ok(if template.header == Header::Vlan { Step::PushVlan(entry) } else { Step::PushMpls(entry) })
            }
            StepKind::Pop(Header::Vlan) => Ok(Step::PopVlan),
            StepKind::Pop(_) => Ok(Step::PopMpls),
            StepKind::Clone(port) => Ok(Step::Clone(self.action_operand(port, registers, new)?)),
            StepKind::Encapsulate(_) => unsupported("encapsulates the packet"),
            StepKind::Decapsulate => unsupported("decapsulates the packet"),
            StepKind::Emit { .. } => unsupported("sends a packet of its own"),
            StepKind::Log(_) => unsupported("writes a log"),
        }
    }

    /// The four bytes of a pushed header.
    fn entry(&mut self, template: &HeaderTemplate, registers: &Registers, new: &NewValues) -> Result<Entry, Lack> {
        let mut constant = u32::from(steps::DEFAULT_LABEL_TTL);
        let mut variable: Option<(Operand, u8, u8)> = None;
        for (field, value) in &template.values {
            let Some(slot) = steps::pushed_slot(*field) else { continue };
            let NewValue::Number { value, .. } = value else { return Err(Lack::new("pushes an address")) };
            let shift = 32 - u32::from(slot.offset_bits) - u32::from(slot.width_bits);
            let mask = (u32::MAX >> (32 - u32::from(slot.width_bits))) << shift;
            match self.action_operand(value, registers, new)? {
                Operand::Constant(value) => constant = constant & !mask | value << shift & mask,
                operand => {
                    if variable.replace((operand, slot.width_bits, shift as u8)).is_some() {
                        return Err(Lack::new("pushes a header with two values that are not constant"));
                    }
                    constant &= !mask;
                }
            }
        }
        let (operand, width_bits, shift) = variable.unwrap_or((Operand::Constant(0), 1, 0));
        // A constant operand of width 1 adds nothing.
        Ok(Entry { constant, operand, width_bits, shift })
    }

    fn terminal(
        &mut self,
        terminal: &ModelTerminal,
        registers: &Registers,
        new: &NewValues,
        placed: &[usize],
    ) -> Result<Terminal, Lack> {
        Ok(match terminal {
            ModelTerminal::Drop => Terminal::Drop,
            ModelTerminal::Pass => Terminal::Pass,
            ModelTerminal::Punt => Terminal::Punt,
            ModelTerminal::Reply => Terminal::Reply,
            ModelTerminal::Flood => Terminal::Flood,
            ModelTerminal::Forward(port) => Terminal::Forward(self.action_operand(port, registers, new)?),
            ModelTerminal::Goto(element) => Terminal::Goto(placed[usize::from(*element)] as u8),
        })
    }
}

/// The number of an ALU with this result. An operation with a carry comes directly after that of the lower word, whose
/// ALU is `lower`.
fn alu_of(value: Value, lower: Option<u8>, alus: &mut Vec<Alu>) -> u8 {
    let takes_carry = matches!(value.operation, Operation::AddCarry | Operation::SubtractBorrow);
    let at = match lower.filter(|_| takes_carry).map(usize::from) {
        Some(lower) if alus.get(lower + 1).is_some_and(|next| next.value == value) => lower + 1,
        Some(lower) => {
            alus.push(Alu { destination: None, value: alus[lower].value });
            alus.push(Alu { destination: None, value });
            alus.len() - 1
        }
        None => alus.iter().position(|alu| alu.value == value).unwrap_or_else(|| {
            alus.push(Alu { destination: None, value });
            alus.len() - 1
        }),
    };
    at as u8
}

/// Removes the writes that exchange adjacent words, and returns them as swaps.
fn take_swaps(writes: &mut Vec<Write>, words: &[Word]) -> Vec<(u8, u8)> {
    // Words of fields of one width: a value of another one would have to be cut.
    let are_alike = |a: u8, b: u8| match (words.get(usize::from(a)), words.get(usize::from(b))) {
        (Some(Word::Field { field: a, index: i }), Some(Word::Field { field: b, index: j })) => {
            i == j && a.width_bits() == b.width_bits()
        }
        _ => false,
    };
    let moves = |writes: &[Write], to: u8, from: u8| {
        let source = WriteSource::Operand(Operand::Word(from));
        writes.iter().any(|write| write.word == to && write.source == source && write.if_rejected.is_none())
    };
    let pairs: Vec<(u8, u8)> = writes
        .iter()
        .map(|write| (write.word & !1, write.word | 1))
        .filter(|&(a, b)| are_alike(a, b) && moves(writes, a, b) && moves(writes, b, a))
        .collect();
    let mut swaps = Vec::new();
    for (a, b) in pairs {
        if !swaps.contains(&(a, b)) {
            writes.retain(|write| write.word != a && write.word != b);
            swaps.push((a, b));
        }
    }
    swaps
}

fn moved(operand: Operand) -> Value {
    Value { operation: Operation::Move, left: operand, right: Operand::Constant(0) }
}
