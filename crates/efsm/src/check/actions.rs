// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks: updates, writes, steps and the terminal action.

use flowloom_wire::field::{FieldId, Source};

use crate::diagnostic::{Code, did_you_mean, list_names};
use crate::model::{
    Actions, BinaryOp, Destination, Expr, NewValue, Span, Step, Terminal, Type, Update, Wide, Width, Write, WriteTarget,
};
use crate::syntax::ast::{self, Block, Expr as Tree, ExprKind, Name, Statement};

use super::Checker;
use super::constant::{Constant, type_name, type_range};
use super::names::Symbol;
use super::numeric::{ArithmeticMode, ExprTraits};
use super::operand::{Leaf, Operand, OperandKind};
use crate::layout::PORT_COUNT;

/// Effects of a block.
#[derive(Debug)]
pub(super) struct Effects {
    pub(super) updates: Vec<Update>,
    pub(super) actions: Actions,
}

impl Effects {
    fn push(&mut self, target: Target, value: NewValue, span: Span) {
        match target {
            Target::Update(destination) => self.updates.push(Update { destination, value, span }),
            Target::Write(target) => self.actions.writes.push(Write { target, value, span }),
        }
    }
}

/// Destination of an assignment.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    Update(Destination),
    Write(WriteTarget),
}

impl Target {
    /// The 128-bit value at the destination before the write.
    pub(super) fn wide(self) -> Wide {
        match self {
            Target::Update(Destination::Register(i)) => Wide::Register(i),
            Target::Update(Destination::Global(i)) => Wide::Global(i),
            Target::Write(WriteTarget::Metadata(i)) => Wide::Metadata(i),
            Target::Write(WriteTarget::Field(field)) => Wide::Field(field),
        }
    }
}

/// Type and name of a destination.
pub(super) struct Slot {
    pub(super) ty: Type,
    unit_ns: Option<u64>,
    leaf: Leaf,
    name: String,
}

impl<'s> Checker<'s, '_> {
    /// Checks the block of a row in the element with index `element`.
    pub(super) fn block(&mut self, block: &Block<'s>, element: usize) -> Effects {
        let mut effects = Effects {
            updates: Vec::new(),
            actions: Actions { writes: Vec::new(), steps: Vec::new(), terminal: Terminal::Drop },
        };
        let mut terminal: Option<Span> = None;
        let mut is_reported = false;
        let mut targets: Vec<(Target, Span)> = Vec::new();
        for statement in &block.statements {
            let span = match statement {
                Statement::Assign { span, .. }
                | Statement::Step { span, .. }
                | Statement::Forget { span }
                | Statement::Terminal { span, .. } => *span,
            };
            if let Some(before) = terminal.filter(|_| !is_reported) {
                is_reported = true;
                self.sink
                    .error(Code::AfterTerminal, span, "an action after the terminal action", "never reached")
                    .secondary_label(before, "the packet leaves here")
                    .help("a block has one terminal action, as its last statement");
            }
            match statement {
                Statement::Assign { target, op, value, span } => {
                    let is_update =
                        matches!(self.names.look_up(target.text), Some((Symbol::Register(_) | Symbol::Global(_), _)));
                    self.sees_updates = !is_update;
                    self.assign(*target, *op, value, *span, &mut effects, &mut targets);
                }
                Statement::Step { span, kind } => {
                    self.sees_updates = true;
                    if let Some(kind) = self.step(kind, *span) {
                        effects.actions.steps.push(Step { kind, span: *span });
                    }
                }
                // `row` lowers it, together with the next state.
                Statement::Forget { .. } => {}
                Statement::Terminal { span, kind } => {
                    self.sees_updates = true;
                    if let Some(checked) = self.terminal(kind, element, *span) {
                        effects.actions.terminal = checked;
                    }
                    terminal = terminal.or(Some(*span));
                }
            }
        }
        self.sees_updates = false;
        self.check_pop_count(&effects.actions.steps);
        if terminal.is_none() && !block.has_syntax_errors {
            let end = block.span.end;
            let place = Span { start: end.saturating_sub(1), end };
            self.sink
                .error(Code::NoTerminal, place, "the block has no terminal action", "no terminal action before this")
                .help("end the block with `drop;`, `pass;`, `punt;`, `forward;`, `forward(port);`, `reply;`, `flood;` or `goto ELEMENT;`");
        }
        effects
    }

    fn assign(
        &mut self,
        name: Name<'s>,
        op: Option<BinaryOp>,
        tree: &Tree<'s>,
        span: Span,
        effects: &mut Effects,
        targets: &mut Vec<(Target, Span)>,
    ) -> Option<()> {
        let target = self.target(name);
        if target.is_none() {
            self.operand(tree); // reports its errors and marks its names as used
        }
        let target = target?;
        if let Some((_, first)) = targets.iter().find(|(other, _)| overlap(*other, target)) {
            self.sink
                .error(
                    Code::WrittenTwice,
                    span,
                    format!("`{}` is written twice in one row", name.text),
                    "written again",
                )
                .secondary_label(*first, "first written here")
                .help("the writes of a row are parallel, so a destination or a bit of a field is written once");
            return None;
        }
        targets.push((target, span));
        let slot = self.slot(target, name.text);
        if slot.ty.is_wide() {
            let (target, value) = self.wide_value(target, name.text, op, tree)?;
            effects.push(target, value, span);
            return Some(());
        }
        let value = self.narrow_for(tree, target, name.text)?;
        let value = match op {
            None => value,
            Some(op) => {
                let old = Operand { span: name.span, kind: OperandKind::Leaf(slot.leaf) };
                Operand { span, kind: OperandKind::Binary(op, Box::new(old), Box::new(value)) }
            }
        };
        let (value, width) = self.value(&value, &slot)?;
        effects.push(target, NewValue::Number { value, width }, span);
        Some(())
    }

    /// Resolves a value for a destination of at most 64 bits.
    pub(super) fn narrow_for(&mut self, tree: &Tree<'s>, target: Target, name: &str) -> Option<Operand> {
        let operand = self.operand(tree)?;
        let wide = match operand.kind {
            OperandKind::Wide(wide) => self.wide(wide),
            OperandKind::Constant(Constant::Ipv6(_)) => self.wide(Wide::Constant(0)),
            _ => return Some(operand),
        };
        let help = match (wide.v4, target) {
            (Some(v4), _) => format!("write `{}`, which has 32 bits, for IPv4 packets", v4.name()),
            (None, Target::Write(WriteTarget::Field(field))) if field.name().starts_with("ipv4.") => {
                format!("write to `{}`", field.name().replacen("ipv4.", "ip.", 1))
            }
            (None, Target::Write(WriteTarget::Field(_))) => {
                "a value of 128 bits can only be written to an address field or a variable of type `ip`".to_owned()
            }
            (None, _) => format!("declare `{name}` with the type `ip` or `ipv6`"),
        };
        self.sink
            .error(
                Code::WidthMismatch,
                operand.span,
                format!("{} has 128 bits and does not fit in `{name}`", wide.shown()),
                "128 bits",
            )
            .help(help);
        None
    }

    /// Resolves `name` as a destination. `None` if an error was reported.
    pub(super) fn target(&mut self, name: Name<'s>) -> Option<Target> {
        if name.text.contains('.') {
            let field = self.field(name)?;
            if !field.is_writable() {
                self.report_read_only(field, name.span);
                return None;
            }
            return Some(Target::Write(WriteTarget::Field(field)));
        }
        if matches!(name.text, "now" | "state") {
            let help = if name.text == "state" {
                "write the next state before the block: `-> STATE`"
            } else {
                "`now` is the arrival time of the packet"
            };
            self.sink
                .error(Code::NotWritable, name.span, format!("`{}` cannot be written", name.text), "read only")
                .help(help);
            return None;
        }
        match self.names.look_up(name.text) {
            Some((Symbol::Register(i), _)) => Some(Target::Update(Destination::Register(i))),
            Some((Symbol::Global(i), _)) => Some(Target::Update(Destination::Global(i))),
            Some((Symbol::Metadata(i), _)) => Some(Target::Write(WriteTarget::Metadata(i))),
            Some((Symbol::Constant(_) | Symbol::Set(_) | Symbol::UnsetPort, what)) => {
                self.sink
                    .error(
                        Code::NotWritable,
                        name.span,
                        format!("{what} `{}` cannot be written", name.text),
                        "constant",
                    )
                    .help("write to a register, a global register, metadata or a packet field");
                None
            }
            Some((Symbol::Broken, _)) => None,
            None => {
                self.unknown_name(name);
                None
            }
        }
    }

    fn report_read_only(&mut self, field: FieldId, span: Span) {
        let name = field.name();
        let last = name.split('.').nth(1).unwrap_or_default();
        let (reason, help) = match (field.source(), last) {
            (Source::PacketPort, _) => {
                ("it is the port the packet arrived on", "choose the output port with `forward(port);`")
            }
            (_, "checksum") => ("checksums are updated automatically", "remove the write"),
            (_, "len") => ("lengths follow from the bytes of the packet", "remove the write"),
            (Source::TcpPayloadLen(_), _) => ("it is computed from the lengths of the headers", "remove the write"),
            (_, "type" | "proto" | "next") => ("it selects the next header", "the kind of a header cannot be changed"),
            (_, "version" | "ihl" | "doff") => {
                ("it determines the layout of the header", "the kind of a header cannot be changed")
            }
            (_, "df" | "mf" | "frag") => ("it describes fragmentation", "remove the write"),
            _ => ("it is not in the writable bytes", "remove the write"),
        };
        self.sink
            .error(Code::ReadOnlyField, span, format!("`{name}` cannot be written: {reason}"), "read only")
            .help(format!("{help}; `flowloom fields` lists the writable fields"));
    }

    pub(super) fn slot(&self, target: Target, name: &str) -> Slot {
        let leaf = match target {
            Target::Update(Destination::Register(i)) => Leaf::Register(i),
            Target::Update(Destination::Global(i)) => Leaf::Global(i),
            Target::Write(WriteTarget::Metadata(i)) => Leaf::Metadata(i),
            Target::Write(WriteTarget::Field(field)) => Leaf::Field(field),
        };
        let info = self.leaf(leaf);
        let ty = Type { width_bits: info.width_bits, signed: info.signed };
        Slot { ty, unit_ns: info.unit_ns, leaf, name: name.to_owned() }
    }

    /// Lowers an expression for a destination, and chooses the width of its arithmetic.
    pub(super) fn value(&mut self, value: &Operand, slot: &Slot) -> Option<(Expr, Width)> {
        let mut facts = ExprTraits::default();
        self.gather(value, &mut facts)?;
        if let Some(unit_ns) = slot.unit_ns {
            self.gather_unit(unit_ns, slot.ty.width_bits, value.span, &mut facts)?;
        }
        let mode = self.arithmetic(&facts, slot.ty.width_bits, false)?;
        self.check_clock(&facts, slot.ty.width_bits.into(), value.span)?;
        if let OperandKind::Constant(constant) = value.kind {
            self.check_fits(constant, mode.unit_ns, slot.ty, &slot.name, value.span)?;
        }
        Some((self.build(value, mode)?, mode.width))
    }

    /// Checks that a constant is in the range of a type. Returns its bits.
    pub(super) fn check_fits(
        &mut self,
        constant: Constant,
        unit_ns: u64,
        ty: Type,
        name: &str,
        span: Span,
    ) -> Option<u64> {
        let number = self.number(constant, unit_ns, span)?;
        let (low, high) = type_range(ty.width_bits, ty.signed);
        if number < low || number > high {
            let what = if matches!(ty.width_bits, 8 | 16 | 32 | 64) {
                type_name(ty)
            } else {
                format!("{} bits", ty.width_bits)
            };
            self.sink
                .error(Code::OutOfRange, span, format!("{number} does not fit in `{name}`"), "out of range")
                .help(format!("`{name}` ({what}) holds {low} to {high}"));
            return None;
        }
        let bits = u32::from(ty.width_bits);
        Some(if bits >= 64 { number as u64 } else { number as u64 & ((1 << bits) - 1) })
    }

    fn terminal(&mut self, terminal: &ast::Terminal<'s>, element: usize, span: Span) -> Option<Terminal> {
        Some(match terminal {
            ast::Terminal::Drop => Terminal::Drop,
            ast::Terminal::Pass => Terminal::Pass,
            ast::Terminal::Punt => Terminal::Punt,
            ast::Terminal::Reply => Terminal::Reply,
            ast::Terminal::Flood => Terminal::Flood,
            ast::Terminal::Forward(None) => match self.names.look_up("out") {
                Some((Symbol::Constant(port), _)) => Terminal::Forward(Expr::Constant(self.check_port(port, span)?)),
                _ => Terminal::Pass,
            },
            ast::Terminal::Forward(Some(port)) => {
                if let ExprKind::Name(name) = port.kind
                    && let Some((Symbol::UnsetPort, _)) = self.names.look_up(name)
                {
                    return Some(Terminal::Pass);
                }
                let operand = self.narrow_operand(port)?;
                Terminal::Forward(self.port(&operand)?)
            }
            ast::Terminal::Goto(name) => Terminal::Goto(self.goto(*name, element)?),
        })
    }

    pub(super) fn check_port(&mut self, constant: Constant, span: Span) -> Option<u64> {
        let most = PORT_COUNT - 1;
        let port = match constant {
            Constant::Number(number) => number,
            _ => {
                self.sink
                    .error(
                        Code::WrongKind,
                        span,
                        format!("{} is not a port", constant.kind()),
                        "expected the number of a port",
                    )
                    .help(format!("ports have numbers from 0 to {most}"));
                return None;
            }
        };
        if port < 0 || port > i128::from(most) {
            self.sink
                .error(Code::OutOfRange, span, format!("there is no port {port}"), "out of range")
                .help(format!("ports have numbers from 0 to {most}"));
            return None;
        }
        Some(port as u64)
    }

    /// Lowers the port of `forward`, which is computed in 32 bits.
    pub(super) fn port(&mut self, operand: &Operand) -> Option<Expr> {
        if let OperandKind::Constant(constant) = operand.kind {
            return Some(Expr::Constant(self.check_port(constant, operand.span)?));
        }
        let mut facts = ExprTraits::default();
        self.gather(operand, &mut facts)?;
        let wide = facts.width_bits.max(facts.now_bits()) > 32;
        if wide && !is_modular(operand) {
            self.sink
                .error(
                    Code::WidthMismatch,
                    operand.span,
                    "a port is computed in 32 bits, but an operand has 64",
                    "64 bits",
                )
                .help("compute it into metadata in an element before this, or declare the operand as `u32`");
            return None;
        }
        let unit_ns = facts.unit.map_or(1, |(unit_ns, _)| unit_ns);
        self.build(operand, ArithmeticMode { width: Width::W32, signed: facts.signed.is_some(), unit_ns })
    }

    fn goto(&mut self, name: Name<'s>, element: usize) -> Option<u16> {
        let count = self.elements.len();
        if name.text == "next" {
            if element + 1 < count {
                return u16::try_from(element + 1).ok();
            }
            self.sink
                .error(Code::UnknownElement, name.span, "`goto next` in the last element", "nothing follows")
                .help("end the row with `pass;`, `drop;` or `forward;`");
            return None;
        }
        let Some(to) = self.elements.iter().position(|e| e.text == name.text) else {
            if self.names.has_syntax_errors {
                return None;
            }
            let later: Vec<&str> = self.elements.iter().skip(element + 1).map(|e| e.text).collect();
            let help = match did_you_mean(name.text, later.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if later.is_empty() => {
                    "this is the last element; end the row with `pass;`, `drop;` or `forward;`".to_owned()
                }
                None => format!("after this element there are {}", list_names(later, 12)),
            };
            self.sink
                .error(Code::UnknownElement, name.span, format!("there is no element `{}`", name.text), "unknown")
                .help(help);
            return None;
        };
        if to <= element {
            let target = self.elements[to].span;
            let place = if to == element { "itself" } else { "an earlier element" };
            self.sink
                .error(Code::BackwardGoto, name.span, format!("`goto` to {place}"), "must lead forward")
                .secondary_label(target, format!("`{}` is declared here", name.text))
                .help("packets traverse elements in order, which guarantees termination; move the element down");
            return None;
        }
        u16::try_from(to).ok()
    }
}

/// True if the low bits of the result depend only on the low bits of the operands.
fn is_modular(operand: &Operand) -> bool {
    match &operand.kind {
        OperandKind::Constant(_) | OperandKind::Leaf(_) => true,
        OperandKind::Invert(inner) => is_modular(inner),
        OperandKind::Binary(BinaryOp::ShiftRight, ..) => false,
        OperandKind::Binary(BinaryOp::ShiftLeft, left, right) => {
            is_modular(left) && matches!(right.kind, OperandKind::Constant(Constant::Number(0..=31)))
        }
        OperandKind::Binary(_, left, right) => is_modular(left) && is_modular(right),
        _ => false,
    }
}

/// True if two destinations share bits.
fn overlap(a: Target, b: Target) -> bool {
    match (a, b) {
        (Target::Update(a), Target::Update(b)) => a == b,
        (Target::Write(WriteTarget::Metadata(a)), Target::Write(WriteTarget::Metadata(b))) => a == b,
        (Target::Write(WriteTarget::Field(a)), Target::Write(WriteTarget::Field(b))) => {
            let leaves = |field: FieldId| {
                if field.alternatives().is_empty() { vec![field] } else { field.alternatives().to_vec() }
            };
            leaves(a).iter().any(|a| leaves(b).iter().any(|b| share_bits(*a, *b)))
        }
        _ => false,
    }
}

pub(super) fn share_bits(a: FieldId, b: FieldId) -> bool {
    match (a.source(), b.source()) {
        (Source::Header(header, x), Source::Header(other, y)) => {
            let end = |s: flowloom_wire::graph::Slice| s.offset_bits + u16::from(s.width_bits);
            header == other && x.offset_bits < end(y) && y.offset_bits < end(x)
        }
        _ => a == b,
    }
}
