// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Renders a model as text, for reports about generated functions.
//!
//! The notation follows the language. Properties of a model that the language cannot express have a notation of their
//! own: the clock's unit (`now/1000`), the sign of a comparison (`<s`), the width of a 64-bit expression (`:64`).

use std::sync::Arc;

use flowloom_efsm::model::{
    Actions, BinaryOp, Condition, Destination, Element, Expr, Function, KeyPart, NewValue, NextState, Policy, Row,
    Source, Span, Stateful, Terminal, Type, Variable, Wide, Width, WriteTarget,
};

use flowloom_verify::relation_text;

/// Renders `function`, makes the text its source and points its rows to their lines.
pub fn attach_source(function: &mut Function) {
    let mut text = format!("function {};\n", function.name);
    for m in &function.metadata {
        text.push_str(&format!("meta {};\n", variable(m)));
    }
    let copy = function.clone();
    for element in &mut function.elements {
        element.span = line(&mut text, &head(element));
        if let Some(stateful) = &element.stateful {
            text.push_str(&clauses(&copy.metadata, stateful));
        }
        let names = Names { function: &copy, stateful: element.stateful.clone() };
        for row in &mut element.rows {
            row.span = line(&mut text, &format!("    {}", names.row(row)));
        }
        let otherwise = format!("    otherwise {}", names.actions(&element.otherwise.actions, &[]));
        element.otherwise.span = line(&mut text, &otherwise);
        text.push_str("}\n");
    }
    let name = function.source.name.clone();
    function.source = Arc::new(Source { name, text });
}

fn line(text: &mut String, line: &str) -> Span {
    let indent = line.len() - line.trim_start().len();
    let start = text.len() + indent;
    text.push_str(line);
    let end = text.len();
    text.push('\n');
    Span { start, end }
}

fn head(element: &Element) -> String {
    format!("{} {} {{", if element.stateful.is_some() { "stateful" } else { "stateless" }, element.name)
}

fn ty(ty: Type) -> String {
    format!("{}{}", if ty.signed { 'i' } else { 'u' }, ty.width_bits)
}

fn variable(v: &Variable) -> String {
    let initial = if v.initial == 0 { String::new() } else { format!(" = {:#x}", v.initial) };
    format!("{}: {}{initial}", v.name, ty(v.ty))
}

fn clauses(metadata: &[Variable], stateful: &Stateful) -> String {
    let key = stateful.key.as_ref().map_or("none".to_owned(), |key| {
        let parts: Vec<_> = key
            .parts
            .iter()
            .map(|part| match part {
                KeyPart::Field(field) => field.name(),
                KeyPart::Metadata(i) => metadata[usize::from(*i)].name.clone().into(),
            })
            .collect();
        format!("{}({})", if key.biflow { "biflow" } else { "" }, parts.join(", "))
    });
    let mut text = format!(
        "    key {key}; size {}; sweep {}ns; states {};\n",
        stateful.size,
        stateful.sweep_ns,
        stateful.states.join(", ")
    );
    let registers = stateful.registers.iter().map(|r| format!("    reg {};\n", variable(r)));
    let globals = stateful.globals.iter().map(|g| format!("    global {};\n", variable(g)));
    text.extend(registers.chain(globals));
    let register = |i: u16| &stateful.registers[usize::from(i)].name;
    let policy = match stateful.policy {
        Policy::Reject => "reject".to_owned(),
        Policy::EvictLowest(i) => format!("evict lowest {}", register(i)),
        Policy::EvictHighest(i) => format!("evict highest {}", register(i)),
        Policy::EvictOldest => "evict oldest".to_owned(),
    };
    text.push_str(&format!("    full {policy};\n"));
    for (state, next) in stateful.states.iter().zip(&stateful.successors) {
        if let Some(next) = next {
            let to = &stateful.states[usize::from(next.state)];
            text.push_str(&format!("    expire {state} -> {to}{};\n", timers(next.idle_ns, next.hard_ns)));
        }
    }
    for context in &stateful.preloaded {
        let state = &stateful.states[usize::from(context.state)];
        let registers: Vec<String> =
            stateful.registers.iter().zip(&context.registers).map(|(r, v)| format!("{} = {v:#x};", r.name)).collect();
        text.push_str(&format!("    preload {:02x?} -> {state} {{ {} }}\n", context.key, registers.join(" ")));
    }
    text
}

fn timers(idle_ns: Option<u64>, hard_ns: Option<u64>) -> String {
    let timers: Vec<String> = [("idle", idle_ns), ("hard", hard_ns)]
        .into_iter()
        .filter_map(|(name, ns)| ns.map(|ns| format!("{name} {ns}ns")))
        .collect();
    if timers.is_empty() { String::new() } else { format!(" ({})", timers.join(", ")) }
}

struct Names<'f> {
    function: &'f Function,
    stateful: Option<Stateful>,
}

impl Names<'_> {
    fn named(variables: Option<&Vec<Variable>>, i: u16) -> String {
        variables.and_then(|v| v.get(usize::from(i))).map_or_else(|| format!("?{i}"), |v| v.name.clone())
    }

    fn register(&self, i: u16) -> String {
        Self::named(self.stateful.as_ref().map(|s| &s.registers), i)
    }

    fn global(&self, i: u16) -> String {
        Self::named(self.stateful.as_ref().map(|s| &s.globals), i)
    }

    fn state(&self, i: u16) -> String {
        let name = self.stateful.as_ref().and_then(|s| s.states.get(usize::from(i)));
        name.map_or_else(|| format!("?{i}"), String::clone)
    }

    fn row(&self, row: &Row) -> String {
        let conditions: Vec<String> = row.conditions.iter().map(|c| self.condition(c)).collect();
        let states: Vec<String> = row.states.iter().map(|&s| self.state(s)).collect();
        let mut text = match (states.is_empty(), conditions.is_empty()) {
            (true, true) => "always".to_owned(),
            (true, false) => "when ".to_owned(),
            (false, true) => format!("on {}", states.join(", ")),
            (false, false) => format!("on {} when ", states.join(", ")),
        };
        text.push_str(&conditions.join(" && "));
        if let NextState::To { state, idle_ns, hard_ns } = row.next {
            text.push_str(&format!(" -> {}{}", self.state(state), timers(idle_ns, hard_ns)));
        } else if !row.states.is_empty() {
            text.push_str(" stay");
        }
        let updates: Vec<String> = row
            .updates
            .iter()
            .map(|u| {
                let name = match u.destination {
                    Destination::Register(i) => self.register(i),
                    Destination::Global(i) => self.global(i),
                };
                format!("{name} = {}", self.new_value(&u.value))
            })
            .collect();
        format!("{text} {}", self.actions(&row.actions, &updates))
    }

    fn new_value(&self, value: &NewValue) -> String {
        match value {
            NewValue::Number { value, width } => {
                format!("{}{}", self.expr(value), if *width == Width::W64 { ":64" } else { "" })
            }
            NewValue::Wide(wide) => self.wide(*wide),
        }
    }

    fn wide(&self, wide: Wide) -> String {
        match wide {
            Wide::Constant(value) => format!("{value:#x}"),
            Wide::Field(field) => field.name().into_owned(),
            Wide::Register(i) => self.register(i),
            Wide::Global(i) => self.global(i),
            Wide::Old(Destination::Register(i)) => format!("old({})", self.register(i)),
            Wide::Old(Destination::Global(i)) => format!("old({})", self.global(i)),
            Wide::Metadata(i) => Self::named(Some(&self.function.metadata), i),
        }
    }

    fn actions(&self, actions: &Actions, updates: &[String]) -> String {
        let writes = actions.writes.iter().map(|write| {
            let target = match write.target {
                WriteTarget::Field(field) => field.name().into_owned(),
                WriteTarget::Metadata(i) => Self::named(Some(&self.function.metadata), i),
            };
            format!("{target} = {}", self.new_value(&write.value))
        });
        let terminal = match &actions.terminal {
            Terminal::Drop => "drop".to_owned(),
            Terminal::Flood => "flood".to_owned(),
            Terminal::Pass => "pass".to_owned(),
            Terminal::Punt => "punt".to_owned(),
            Terminal::Forward(port) => format!("forward({})", self.expr(port)),
            Terminal::Reply => "reply".to_owned(),
            Terminal::Goto(i) => {
                let element = self.function.elements.get(usize::from(*i));
                format!("goto {}", element.map_or("?", |e| &e.name))
            }
        };
        let all: Vec<String> = updates.iter().cloned().chain(writes).chain([terminal]).collect();
        format!("{{ {}; }}", all.join("; "))
    }

    fn condition(&self, condition: &Condition) -> String {
        let not = |negated: &bool| if *negated { "!" } else { "" };
        match condition {
            Condition::Compare { left, relation, right, width, signed } => format!(
                "{} {}{}{} {}",
                self.expr(left),
                relation_text(*relation),
                if *signed { "s" } else { "" },
                if *width == Width::W64 { ":64" } else { "" },
                self.expr(right)
            ),
            Condition::Serial { left, right, after, negated, serial_bits } => {
                let word = if *after { "after" } else { "before" };
                format!("{}({} {word}:{serial_bits} {})", not(negated), self.expr(left), self.expr(right))
            }
            Condition::Masked { operand, mask, value, negated } => {
                format!("{}({} & {mask:#x} == {value:#x})", not(negated), self.wide(*operand))
            }
            Condition::Range { field, low, high, negated } => {
                format!("{}({} in {low:#x}..{high:#x})", not(negated), field.name())
            }
            Condition::Same { left, right, negated } => {
                format!("{} {}= {}", self.wide(*left), if *negated { "!" } else { "=" }, self.wide(*right))
            }
            Condition::OneOf { operand, values, negated, .. } => {
                let values: Vec<String> = values.iter().map(|value| format!("{value:#x}")).collect();
                format!("{}({} in {{{}}})", not(negated), self.expr(operand), values.join(", "))
            }
            Condition::Within { operand, values, negated } => {
                let values: Vec<String> = values.iter().map(|(low, high)| format!("{low:#x}..{high:#x}")).collect();
                format!("{}({} in {{{}}})", not(negated), self.wide(*operand), values.join(", "))
            }
            Condition::Present { field, negated } => format!("{}present({})", not(negated), field.name()),
            Condition::Full { negated } => format!("{}full", not(negated)),
        }
    }

    fn expr(&self, expr: &Expr) -> String {
        match expr {
            Expr::Constant(c) if (*c as i64) < 0 => (*c as i64).to_string(),
            Expr::Constant(c) if *c < 1000 => c.to_string(),
            Expr::Constant(c) => format!("{c:#x}"),
            Expr::Register(i) => self.register(*i),
            Expr::Global(i) => self.global(*i),
            Expr::Old(Destination::Register(i)) => format!("old({})", self.register(*i)),
            Expr::Old(Destination::Global(i)) => format!("old({})", self.global(*i)),
            Expr::Metadata(i) => Self::named(Some(&self.function.metadata), *i),
            Expr::Field(field) => field.name().into_owned(),
            Expr::Now { unit_ns: 1 } => "now".to_owned(),
            Expr::Now { unit_ns } => format!("now/{unit_ns}"),
            Expr::State => "state".to_owned(),
            Expr::Not(inner) => format!("~{}", self.expr(inner)),
            Expr::Binary(op, left, right) => {
                let op = match op {
                    BinaryOp::Add => "+",
                    BinaryOp::Sub => "-",
                    BinaryOp::And => "&",
                    BinaryOp::Or => "|",
                    BinaryOp::Xor => "^",
                    BinaryOp::ShiftLeft => "<<",
                    BinaryOp::ShiftRight => ">>",
                };
                format!("({} {op} {})", self.expr(left), self.expr(right))
            }
            Expr::RotateRight { left, right, rotate_bits } => {
                format!("ror{rotate_bits}({}, {})", self.expr(left), self.expr(right))
            }
            Expr::MinMax { max, signed, left, right } => {
                let name = if *max { "max" } else { "min" };
                format!("{name}{}({}, {})", if *signed { "s" } else { "" }, self.expr(left), self.expr(right))
            }
            Expr::Word { of, index } => format!("{}[{index}]", self.wide(*of)),
            Expr::Hash(words) => {
                let words: Vec<String> = words.iter().map(|word| self.expr(word)).collect();
                format!("hash({})", words.join(", "))
            }
            Expr::Ewma { average, sample, shift } => {
                format!("ewma({}, {}, {shift})", self.expr(average), self.expr(sample))
            }
        }
    }
}
