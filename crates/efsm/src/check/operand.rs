// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arithmetic: lowers the syntax tree to operands with resolved names, and these to expressions of the model once width
//! and clock unit are known.

use flowloom_wire::field::FieldId;

use crate::diagnostic::{Code, did_you_mean, list_names};
use crate::model::{BinaryOp, Destination, Span, Wide};
use crate::syntax::ast::{Expr as Tree, ExprKind, Name};
use crate::syntax::words;

use super::constant::{Constant, ConstantOp, Mismatch, combine};
use super::names::Symbol;
use super::{Checker, flags};

/// An expression with resolved names.
#[derive(Debug, Clone)]
pub(super) struct Operand {
    pub(super) span: Span,
    pub(super) kind: OperandKind,
}

#[derive(Debug, Clone)]
pub(super) enum OperandKind {
    Constant(Constant),
    Leaf(Leaf),
    /// A value wider than 64 bits, which is not valid in arithmetic.
    Wide(Wide),
    Invert(Box<Operand>),
    Binary(BinaryOp, Box<Operand>, Box<Operand>),
    Rotate(Box<Operand>, Box<Operand>),
    MinMax {
        max: bool,
        left: Box<Operand>,
        right: Box<Operand>,
    },
    /// Split into words when the expression is built.
    Hash(Vec<Operand>),
    Ewma {
        average: Box<Operand>,
        sample: Box<Operand>,
        shift: u8,
    },
}

impl Operand {
    /// Appends the packet fields that the operand reads.
    pub(super) fn fields(&self, fields: &mut Vec<FieldId>) {
        match &self.kind {
            OperandKind::Leaf(Leaf::Field(field)) | OperandKind::Wide(Wide::Field(field)) => fields.push(*field),
            OperandKind::Constant(_) | OperandKind::Leaf(_) | OperandKind::Wide(_) => {}
            OperandKind::Invert(inner) => inner.fields(fields),
            OperandKind::Hash(parts) => parts.iter().for_each(|part| part.fields(fields)),
            OperandKind::Binary(_, left, right)
            | OperandKind::Rotate(left, right)
            | OperandKind::MinMax { left, right, .. }
            | OperandKind::Ewma { average: left, sample: right, .. } => {
                left.fields(fields);
                right.fields(fields);
            }
        }
    }
}

/// A value read from the packet or the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaf {
    Register(u16),
    Global(u16),
    /// Value of a register before the row's updates, in a packet action.
    Old(Destination),
    Metadata(u16),
    Field(FieldId),
    Now,
    State,
}

impl<'s> Checker<'s, '_> {
    /// Resolves an expression. `None` if an error was reported.
    pub(super) fn operand(&mut self, tree: &Tree<'s>) -> Option<Operand> {
        let span = tree.span;
        let kind = match &tree.kind {
            ExprKind::Literal(literal) => OperandKind::Constant((*literal).into()),
            ExprKind::Name(name) => self.name(Name { text: name, span })?,
            ExprKind::Invert(inner) => OperandKind::Invert(Box::new(self.narrow_operand(inner)?)),
            ExprKind::Negate(inner) => {
                let zero = Operand { span, kind: OperandKind::Constant(Constant::Number(0)) };
                let inner = self.narrow_operand(inner)?;
                self.binary(BinaryOp::Sub, zero, inner, span)?
            }
            ExprKind::Binary(op, left, right) => {
                let (left, right) = (self.narrow_operand(left), self.narrow_operand(right));
                self.binary(*op, left?, right?, span)?
            }
            ExprKind::Multiply(left, right) => {
                let (left, right) = (self.narrow_operand(left)?, self.narrow_operand(right)?);
                match (&left.kind, &right.kind) {
                    (OperandKind::Constant(a), OperandKind::Constant(b)) => {
                        self.fold(ConstantOp::Multiply, *a, *b, span)?
                    }
                    _ => {
                        self.sink
                            .error(Code::UnknownOperator, span, "`*` multiplies constants only", "not a constant")
                            .help("multiply by a power of two with `<< n`");
                        return None;
                    }
                }
            }
            ExprKind::Call(name, arguments) => self.call(*name, arguments, span)?,
            ExprKind::Compare(..)
            | ExprKind::Serial { .. }
            | ExprKind::InPrefix(..)
            | ExprKind::InRange(..)
            | ExprKind::InSet(..)
            | ExprKind::InNamed(..)
            | ExprKind::Not(_)
            | ExprKind::And(..)
            | ExprKind::Or(..) => {
                self.sink
                    .error(Code::WrongKind, span, "expected a value, found a condition", "true or false, not a number")
                    .help("conditions follow `when`; write a row for each case");
                return None;
            }
        };
        Some(Operand { span, kind })
    }

    /// As [`Checker::operand`], for arithmetic: refuses 128-bit addresses.
    pub(super) fn narrow_operand(&mut self, tree: &Tree<'s>) -> Option<Operand> {
        let operand = self.operand(tree)?;
        match operand.kind {
            OperandKind::Wide(wide) => {
                let info = self.wide(wide);
                let help = match info.v4 {
                    Some(v4) => format!("`{}` is a number of 32 bits that can be computed with", v4.name()),
                    None => {
                        "compare it with `==`, `!=` or `in address/length`, or copy it to another address".to_owned()
                    }
                };
                self.sink
                    .error(
                        Code::WidthMismatch,
                        operand.span,
                        format!("`{}` is 128 bits wide; arithmetic supports at most 64 bits", info.name),
                        "too wide for arithmetic",
                    )
                    .help(help);
                None
            }
            OperandKind::Constant(Constant::Ipv6(_)) => {
                self.sink
                    .error(Code::WidthMismatch, operand.span, "an IPv6 address is too wide for arithmetic", "128 bits")
                    .help("compare an address with `==`, `!=` or `in address/length`, or write it to an address field");
                None
            }
            _ => Some(operand),
        }
    }

    /// Resolves an expression that must be constant; `what` names its use in messages.
    pub(super) fn constant(&mut self, tree: &Tree<'s>, what: &str) -> Option<Constant> {
        let operand = self.operand(tree)?;
        if let OperandKind::Constant(constant) = operand.kind {
            return Some(constant);
        }
        if let Some(number) = evaluate(&operand) {
            return Some(Constant::Number(number));
        }
        self.sink
            .error(Code::WrongKind, tree.span, format!("{what} must be a constant"), "not a compile-time constant")
            .help("use a number, a `const` or a `param`");
        None
    }

    fn binary(&mut self, op: BinaryOp, left: Operand, right: Operand, span: Span) -> Option<OperandKind> {
        match (&left.kind, &right.kind) {
            (OperandKind::Constant(a), OperandKind::Constant(b)) => self.fold(ConstantOp::Binary(op), *a, *b, span),
            _ => Some(OperandKind::Binary(op, Box::new(left), Box::new(right))),
        }
    }

    fn fold(&mut self, op: ConstantOp, a: Constant, b: Constant, span: Span) -> Option<OperandKind> {
        let mismatch = match combine(op, a, b) {
            Ok(constant) => return Some(OperandKind::Constant(constant)),
            Err(mismatch) => mismatch,
        };
        let (code, message, help) = match mismatch {
            Mismatch::Kinds => (
                Code::WrongKind,
                format!("{} and {} cannot be combined like this", a.kind(), b.kind()),
                "times are added to times and multiplied by numbers",
            ),
            Mismatch::Overflow => (
                Code::OutOfRange,
                format!("the result of {} and {} does not fit", a.render(), b.render()),
                "constants lie between -2^63 and 2^64 - 1, times between 0 and 2^64 - 1 ns",
            ),
            Mismatch::NegativeShift => (
                Code::OutOfRange,
                "`>>` of or by a negative constant".to_owned(),
                "`>>` shifts in zeros, so its result would depend on a width that a constant does not have; write the result",
            ),
        };
        self.sink.error(code, span, message, "here").help(help);
        None
    }

    fn call(&mut self, name: Name<'s>, arguments: &[Tree<'s>], span: Span) -> Option<OperandKind> {
        if name.text == "present" {
            self.sink
                .error(Code::WrongKind, span, "expected a value, found a condition", "true or false, not a number")
                .help("`present(HEADER)` follows `when`; write a row for each case");
            return None;
        }
        if name.text == "hash" {
            return self.hash_call(arguments, span);
        }
        if name.text == "old" {
            return self.old(arguments, span);
        }
        let expected: &[&str] = match name.text {
            "min" | "max" => &["a", "b"],
            "ror" => &["value", "bits"],
            "ewma" => &["average", "sample", "shift"],
            _ => {
                let near = did_you_mean(name.text, ["min", "max", "ror", "ewma", "old", "hash"]);
                let help = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "there are `min(a, b)`, `max(a, b)`, `ror(value, bits)`, `ewma(average, sample, shift)`, \
                             `hash(a, ...)` and `old(register)`"
                        .to_owned(),
                };
                self.sink
                    .error(Code::UnknownName, name.span, format!("there is no function `{}`", name.text), "unknown")
                    .help(help);
                return None;
            }
        };
        if arguments.len() != expected.len() {
            self.sink
                .error(
                    Code::WrongKind,
                    span,
                    format!("`{}` takes {} arguments, found {}", name.text, expected.len(), arguments.len()),
                    "called here",
                )
                .help(format!("write `{}({})`", name.text, expected.join(", ")));
            return None;
        }
        let left = self.narrow_operand(&arguments[0]);
        let right = self.narrow_operand(&arguments[1]);
        let (left, right) = (left?, right?);
        let constants = match (&left.kind, &right.kind) {
            (OperandKind::Constant(a), OperandKind::Constant(b)) => Some((*a, *b)),
            _ => None,
        };
        Some(match (name.text, constants) {
            ("min", Some((a, b))) => self.fold(ConstantOp::Min, a, b, span)?,
            ("max", Some((a, b))) => self.fold(ConstantOp::Max, a, b, span)?,
            ("min" | "max", None) => {
                OperandKind::MinMax { max: name.text == "max", left: Box::new(left), right: Box::new(right) }
            }
            ("ror", _) => {
                self.check_rotate(&left)?;
                OperandKind::Rotate(Box::new(left), Box::new(right))
            }
            _ => {
                let shift = self.constant(&arguments[2], "the shift of `ewma`")?;
                let Some(shift) = shift.number(1).filter(|s| (0..64).contains(s)) else {
                    self.sink
                        .error(
                            Code::OutOfRange,
                            arguments[2].span,
                            format!("the shift of `ewma` is {}", shift.render()),
                            "expected 0 to 63",
                        )
                        .help("the new sample has weight 1/2^shift; 3 or 4 are usual");
                    return None;
                };
                OperandKind::Ewma { average: Box::new(left), sample: Box::new(right), shift: shift as u8 }
            }
        })
    }

    /// `old(register)`: in a packet action, the register before the row's updates. Elsewhere every read has this
    /// meaning.
    fn old(&mut self, arguments: &[Tree<'s>], span: Span) -> Option<OperandKind> {
        let found = match arguments {
            [Tree { kind: ExprKind::Name(name), span }] => match self.names.look_up(name) {
                Some((Symbol::Register(i), _)) => {
                    Some((Destination::Register(i), Leaf::Register(i), Wide::Register(i)))
                }
                Some((Symbol::Global(i), _)) => Some((Destination::Global(i), Leaf::Global(i), Wide::Global(i))),
                Some((Symbol::Broken, _)) => return None,
                None if !name.contains('.') && !matches!(*name, "now" | "state" | "full") => {
                    self.unknown_name(Name { text: name, span: *span });
                    return None;
                }
                _ => None,
            },
            _ => None,
        };
        let Some((destination, leaf, wide)) = found else {
            let place = arguments.first().map_or(span, |argument| argument.span);
            self.sink
                .error(Code::WrongKind, place, "`old` takes a register or global register", "no register")
                .help("write `old(REGISTER)`; fields and metadata are always read as they were before the row");
            return None;
        };
        if self.sees_updates {
            return Some(self.leaf_or_wide(Leaf::Old(destination), Wide::Old(destination)));
        }
        Some(self.leaf_or_wide(leaf, wide))
    }

    /// Reports an operand that `ror` cannot rotate.
    fn check_rotate(&mut self, operand: &Operand) -> Option<()> {
        let found = match operand.kind {
            OperandKind::Leaf(leaf) => {
                let info = self.leaf(leaf);
                match (info.signed, info.width_bits) {
                    (false, 8 | 16 | 32 | 64) => return Some(()),
                    (true, _) => "a signed value".to_owned(),
                    (false, bits) => format!("a field of {bits} bits"),
                }
            }
            _ => "an expression or a constant".to_owned(),
        };
        self.sink
            .error(Code::WidthMismatch, operand.span, format!("`ror` cannot rotate {found}"), "its width is ambiguous")
            .help("rotate an unsigned register, metadata field or packet field of 8, 16, 32 or 64 bits");
        None
    }

    fn name(&mut self, name: Name<'s>) -> Option<OperandKind> {
        match name.text {
            "now" => return Some(OperandKind::Leaf(Leaf::Now)),
            "state" => {
                if !self.names.is_stateful {
                    self.sink
                        .error(Code::WrongElement, name.span, "a stateless element has no `state`", "no state here")
                        .help("put the state into metadata in the stateful element before, with `mark = state;`");
                    return None;
                }
                return Some(OperandKind::Leaf(Leaf::State));
            }
            "full" => {
                self.sink
                    .error(
                        Code::WrongKind,
                        name.span,
                        "expected a value, found a condition",
                        "true or false, not a number",
                    )
                    .help("`full` and `!full` are conditions: `on STATE when full { ... }`");
                return None;
            }
            _ => {}
        }
        if flags::alternatives(name.text, false).is_some() {
            self.sink
                .error(Code::WrongKind, name.span, "expected a value, found a condition", "true or false, not a number")
                .help(format!("use it by itself, as in `when {}`; its value is the type, as `icmpx.type`", name.text));
            return None;
        }
        if name.text.contains('.') {
            let field = self.field(name)?;
            return Some(self.leaf_or_wide(Leaf::Field(field), Wide::Field(field)));
        }
        match self.names.look_up(name.text) {
            Some((symbol, _)) => match symbol {
                Symbol::Constant(constant) => Some(OperandKind::Constant(constant)),
                Symbol::Metadata(i) => Some(self.leaf_or_wide(Leaf::Metadata(i), Wide::Metadata(i))),
                Symbol::Register(i) => Some(self.leaf_or_wide(Leaf::Register(i), Wide::Register(i))),
                Symbol::Global(i) => Some(self.leaf_or_wide(Leaf::Global(i), Wide::Global(i))),
                Symbol::Broken => None,
                Symbol::Set(_) => {
                    self.sink
                        .error(Code::WrongKind, name.span, format!("`{}` is a set, not a value", name.text), "a set")
                        .help(format!("a set follows `in`, as in `when ip.src in {}`", name.text));
                    None
                }
                Symbol::UnsetPort => {
                    self.sink
                        .error(Code::UnsetParameter, name.span, format!("parameter `{}` has no value", name.text), "needed here")
                        .help(format!(
                            "set it when the function is used, as in `--param {0}=1`, or give it a default; only `forward` does without",
                            name.text
                        ));
                    None
                }
            },
            None => {
                self.unknown_name(name);
                None
            }
        }
    }

    fn leaf_or_wide(&self, leaf: Leaf, wide: Wide) -> OperandKind {
        if self.leaf(leaf).width_bits > 64 { OperandKind::Wide(wide) } else { OperandKind::Leaf(leaf) }
    }

    pub(super) fn field_name(&self, field: FieldId) -> String {
        self.graph.field_name(field).into_owned()
    }

    pub(super) fn unknown_name(&mut self, name: Name<'s>) {
        if self.names.has_syntax_errors {
            return;
        }
        let foreign = self
            .names
            .registers_elsewhere
            .iter()
            .find(|(register, _)| *register == name.text)
            .map(|(_, element)| *element);
        let field = self.graph.fields().map(|f| self.field_name(f)).find(|f| f.split('.').nth(1) == Some(name.text));
        let help = if let Some(element) = foreign {
            format!("element `{element}` has a register of this name; other elements see it through metadata only")
        } else if self.names.states.iter().any(|s| s.text == name.text) {
            "states are matched with `on STATE`; inside of expressions `state` is the number of the state".to_owned()
        } else if let Some(near) = did_you_mean(name.text, self.names.visible().chain(["now", "state"])) {
            format!("did you mean `{near}`?")
        } else if let Some(field) = field {
            format!("packet fields are written with their header, as `{field}`")
        } else {
            let visible: Vec<&str> = self.names.visible().collect();
            if visible.is_empty() {
                "nothing is declared; declare it with `param`, `const`, `meta`, `reg` or `global`".to_owned()
            } else {
                format!("declared are {}", list_names(visible, 12))
            }
        };
        self.sink
            .error(Code::UnknownName, name.span, format!("there is no `{}`", name.text), "not declared")
            .help(help);
    }

    pub(super) fn field(&mut self, name: Name<'s>) -> Option<FieldId> {
        let (header, rest) = name.text.split_once('.').unwrap_or((name.text, ""));
        self.use_header(header);
        if let Some(field) = self.graph.field(name.text) {
            return Some(field);
        }
        if self.broken_headers.contains(&header) {
            return None;
        }
        let names: Vec<String> = self.graph.fields().map(|field| self.field_name(field)).collect();
        let of_header: Vec<&str> =
            names.iter().map(String::as_str).filter(|known| known.split('.').next() == Some(header)).collect();
        let foreign = words::KNOWN_PROTOCOLS.iter().find(|(known, _)| *known == header);
        if of_header.is_empty() && self.has_syntax_errors {
            // The declaration of its header may be the part that could not be parsed.
            return None;
        }
        let flag = format!("{header}.is_{}", rest.to_ascii_lowercase());
        let help = if of_header.contains(&flag.as_str()) {
            format!("did you mean `{flag}`?")
        } else if let Some(inner) = name.text.strip_prefix("outer.").filter(|rest| self.graph.field(rest).is_some()) {
            format!("names without a prefix mean the outermost header: `{inner}`")
        } else if let (Some((_, example)), true) = (foreign, of_header.is_empty()) {
            format!("declare the header, as `{example}`")
        } else if let Some(near) = did_you_mean(name.text, names.iter().map(String::as_str)) {
            format!("did you mean `{near}`? `flowloom fields` lists all fields")
        } else if of_header.is_empty() {
            let mut headers: Vec<&str> = names.iter().filter_map(|known| known.split('.').next()).collect();
            headers.dedup();
            format!("fields exist for {}; `flowloom fields` lists all", list_names(headers, 20))
        } else {
            format!("`{header}` has {}", list_names(of_header, 24))
        };
        self.sink
            .error(Code::UnknownField, name.span, format!("there is no packet field `{}`", name.text), "unknown field")
            .help(help);
        None
    }
}

/// Exact value of an operand without leaves.
fn evaluate(operand: &Operand) -> Option<i128> {
    match &operand.kind {
        OperandKind::Constant(constant @ (Constant::Number(_) | Constant::Ipv4(_) | Constant::Mac(_))) => {
            constant.number(1)
        }
        OperandKind::Invert(inner) => Some(!evaluate(inner)?),
        OperandKind::Binary(op, left, right) => {
            let (left, right) = (Constant::Number(evaluate(left)?), Constant::Number(evaluate(right)?));
            combine(ConstantOp::Binary(*op), left, right).ok()?.number(1)
        }
        _ => None,
    }
}
