// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Width, sign and clock unit of an expression, and its lowering to the model.

use crate::diagnostic::Code;
use crate::model::{Destination, Expr, Span, Width};

use super::Checker;
use super::constant::{Constant, render_time, type_range};
use super::operand::{Leaf, Operand, OperandKind};

#[derive(Debug, Clone, Copy)]
pub(super) struct LeafInfo {
    pub(super) width_bits: u8,
    pub(super) signed: bool,
    pub(super) unit_ns: Option<u64>,
}

/// Properties of the leaves of one or two expressions.
#[derive(Debug, Clone, Default)]
pub(super) struct ExprTraits {
    /// Width in bits of the widest leaf other than `now`; 0 if there is none.
    pub(super) width_bits: u8,
    /// Width in bits of the widest unsigned leaf other than `now`.
    pub(super) unsigned_bits: u8,
    pub(super) signed: Option<Span>,
    pub(super) unsigned_64: Option<Span>,
    pub(super) now: Option<Span>,
    /// Clock unit in ns of the variables that have one, and a place of such a variable.
    pub(super) unit: Option<(u64, Span)>,
    /// Width in bits of the narrowest variable with a clock unit, and its place.
    pub(super) clock: Option<(u8, Span)>,
    pub(super) constants: Vec<(Constant, Span)>,
}

/// Width, sign and clock unit of a computation.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArithmeticMode {
    pub(super) width: Width,
    pub(super) signed: bool,
    pub(super) unit_ns: u64,
}

impl ExprTraits {
    /// Width of `now` in bits: that of the narrowest clock variable, so that both wrap together.
    pub(super) fn now_bits(&self) -> u8 {
        match (self.now, self.clock) {
            (None, _) => 0,
            (Some(_), Some((bits, _))) => bits,
            (Some(_), None) => 64,
        }
    }
}

impl Checker<'_, '_> {
    pub(super) fn leaf(&self, leaf: Leaf) -> LeafInfo {
        let of = |variables: &[super::names::VariableInfo<'_>], i: u16| {
            let variable = variables[usize::from(i)];
            LeafInfo { width_bits: variable.ty.width_bits, signed: variable.ty.signed, unit_ns: variable.unit_ns }
        };
        match leaf {
            Leaf::Register(i) | Leaf::Old(Destination::Register(i)) => of(&self.names.registers, i),
            Leaf::Global(i) | Leaf::Old(Destination::Global(i)) => of(&self.names.globals, i),
            Leaf::Metadata(i) => of(&self.names.metadata, i),
            Leaf::Field(field) => LeafInfo { width_bits: field.width_bits(), signed: false, unit_ns: None },
            Leaf::State => LeafInfo { width_bits: 16, signed: false, unit_ns: None },
            Leaf::Now => LeafInfo { width_bits: 64, signed: false, unit_ns: None },
        }
    }

    /// Adds the leaves of `operand` to `facts`. `None` if clock units differ, which is reported.
    pub(super) fn gather(&mut self, operand: &Operand, facts: &mut ExprTraits) -> Option<()> {
        match &operand.kind {
            OperandKind::Constant(constant) => facts.constants.push((*constant, operand.span)),
            OperandKind::Leaf(Leaf::Now) => facts.now = Some(operand.span),
            OperandKind::Leaf(leaf) => {
                let info = self.leaf(*leaf);
                facts.width_bits = facts.width_bits.max(info.width_bits);
                if info.signed {
                    facts.signed = facts.signed.or(Some(operand.span));
                } else {
                    facts.unsigned_bits = facts.unsigned_bits.max(info.width_bits);
                    if info.width_bits > 32 {
                        facts.unsigned_64 = facts.unsigned_64.or(Some(operand.span));
                    }
                }
                if let Some(unit_ns) = info.unit_ns {
                    self.gather_unit(unit_ns, info.width_bits, operand.span, facts)?;
                }
            }
            OperandKind::Wide(_) => {}
            OperandKind::Hash(_) => {
                facts.width_bits = facts.width_bits.max(32);
                facts.unsigned_bits = facts.unsigned_bits.max(32);
            }
            OperandKind::Invert(inner) => self.gather(inner, facts)?,
            OperandKind::Binary(_, left, right)
            | OperandKind::Rotate(left, right)
            | OperandKind::MinMax { left, right, .. }
            | OperandKind::Ewma { average: left, sample: right, .. } => {
                self.gather(left, facts)?;
                self.gather(right, facts)?;
            }
        }
        Some(())
    }

    /// Adds a variable with a clock unit to `facts`.
    pub(super) fn gather_unit(
        &mut self,
        unit_ns: u64,
        width_bits: u8,
        span: Span,
        facts: &mut ExprTraits,
    ) -> Option<()> {
        if let Some((other, place)) = facts.unit
            && other != unit_ns
        {
            self.sink
                .error(
                    Code::TimeUnit,
                    span,
                    format!("clocks of {} and {} in one expression", render_time(other), render_time(unit_ns)),
                    format!("counts in units of {}", render_time(unit_ns)),
                )
                .secondary_label(place, format!("counts in units of {}", render_time(other)))
                .help("declare both with the same `time(unit)`");
            return None;
        }
        facts.unit = Some((unit_ns, span));
        facts.clock = Some(match facts.clock {
            Some((bits, place)) if bits <= width_bits => (bits, place),
            _ => (width_bits, span),
        });
        Some(())
    }

    /// Chooses width and sign. `at_least_bits` is the width of the destination, or 0 for a comparison.
    pub(super) fn arithmetic(
        &mut self,
        facts: &ExprTraits,
        at_least_bits: u8,
        is_comparison: bool,
    ) -> Option<ArithmeticMode> {
        let unit_ns = facts.unit.map_or(1, |(unit_ns, _)| unit_ns);
        let now_bits = facts.now_bits();
        let signed = facts.signed.is_some();
        let mut width = match facts.width_bits.max(now_bits).max(at_least_bits) {
            0..=32 => Width::W32,
            _ => Width::W64,
        };
        if signed && facts.unsigned_bits.max(now_bits) == 32 {
            width = Width::W64;
        }
        if is_comparison
            && let Some(signed_at) = facts.signed
            && let Some(unsigned_at) = facts.unsigned_64.or(facts.now.filter(|_| now_bits > 32))
        {
            self.report_signs(signed_at, unsigned_at);
            return None;
        }
        let mut is_ok = true;
        for &(constant, span) in &facts.constants {
            let Some(number) = self.number(constant, unit_ns, span) else {
                is_ok = false;
                continue;
            };
            let most = if signed { i128::from(i32::MAX) } else { i128::from(u32::MAX) };
            if number > most || number < i128::from(i32::MIN) {
                width = Width::W64;
            }
            if signed && is_comparison && number > i128::from(i64::MAX) {
                self.sink
                    .error(
                        Code::OutOfRange,
                        span,
                        format!("{number} does not fit in a signed comparison"),
                        "above 2^63 - 1",
                    )
                    .help("compare unsigned values, or take a smaller constant");
                is_ok = false;
            }
        }
        is_ok.then_some(ArithmeticMode { width, signed, unit_ns })
    }

    fn report_signs(&mut self, signed_at: Span, unsigned_at: Span) {
        self.sink
            .error(
                Code::SignMismatch,
                signed_at,
                "a signed value is compared with an unsigned one of 64 bits",
                "signed: may be below 0",
            )
            .secondary_label(unsigned_at, "unsigned, 64 bits: may be above 2^63 - 1")
            .help("make both signed or both unsigned, or the unsigned one at most 32 bits wide");
    }

    /// Converts a constant to a number, with times in units of `unit_ns`.
    pub(super) fn number(&mut self, constant: Constant, unit_ns: u64, span: Span) -> Option<i128> {
        if let Some(number) = constant.number(unit_ns) {
            return Some(number);
        }
        match constant {
            Constant::Time(ns) => {
                self.sink
                    .error(
                        Code::BadTime,
                        span,
                        format!("{} is not a multiple of {}", render_time(ns), render_time(unit_ns)),
                        format!("the clock here counts in units of {}", render_time(unit_ns)),
                    )
                    .help(format!(
                        "take a multiple of {}, or declare the register with a finer `time(unit)`",
                        render_time(unit_ns)
                    ));
            }
            _ => {
                self.sink
                    .error(Code::WrongKind, span, format!("{} is not a number here", constant.kind()), "128 bits")
                    .help("IPv6 addresses are compared with and written to 128-bit fields, such as `ip.src`");
            }
        }
        None
    }

    /// Lowers `operand` to the model. `None` if an error was reported.
    pub(super) fn build(&mut self, operand: &Operand, mode: ArithmeticMode) -> Option<Expr> {
        Some(match &operand.kind {
            OperandKind::Constant(constant) => {
                let number = self.number(*constant, mode.unit_ns, operand.span)?;
                Expr::Constant(number as u64)
            }
            OperandKind::Leaf(leaf) => match *leaf {
                Leaf::Register(i) => Expr::Register(i),
                Leaf::Global(i) => Expr::Global(i),
                Leaf::Old(destination) => Expr::Old(destination),
                Leaf::Metadata(i) => Expr::Metadata(i),
                Leaf::Field(field) => Expr::Field(field),
                Leaf::Now => Expr::Now { unit_ns: mode.unit_ns },
                Leaf::State => Expr::State,
            },
            OperandKind::Wide(wide) => {
                let name = self.wide(*wide).name;
                self.sink.error(Code::WidthMismatch, operand.span, format!("`{name}` is not a number"), "128 bits");
                return None;
            }
            OperandKind::Invert(inner) => Expr::Not(Box::new(self.build(inner, mode)?)),
            OperandKind::Binary(op, left, right) => {
                let (left, right) = (self.build(left, mode)?, self.build(right, mode)?);
                Expr::Binary(*op, Box::new(left), Box::new(right))
            }
            OperandKind::Rotate(left, right) => {
                let rotate_bits = match left.kind {
                    OperandKind::Leaf(leaf) => self.leaf(leaf).width_bits,
                    _ => mode.width.bits() as u8,
                };
                let (left, right) = (self.build(left, mode)?, self.build(right, mode)?);
                Expr::RotateRight { left: Box::new(left), right: Box::new(right), rotate_bits }
            }
            OperandKind::MinMax { max, left, right } => {
                let mut facts = ExprTraits::default();
                self.gather(left, &mut facts)?;
                self.gather(right, &mut facts)?;
                if let Some(signed_at) = facts.signed
                    && let Some(unsigned_at) = facts.unsigned_64
                {
                    self.report_signs(signed_at, unsigned_at);
                    return None;
                }
                let (left, right) = (self.build(left, mode)?, self.build(right, mode)?);
                let signed = facts.signed.is_some();
                Expr::MinMax { max: *max, signed, left: Box::new(left), right: Box::new(right) }
            }
            OperandKind::Hash(parts) => self.hash_words(parts)?,
            OperandKind::Ewma { average, sample, shift } => {
                let (average, sample) = (self.build(average, mode)?, self.build(sample, mode)?);
                Expr::Ewma { average: Box::new(average), sample: Box::new(sample), shift: *shift }
            }
        })
    }

    /// Range of an operand under the chosen arithmetic: minimum and maximum.
    pub(super) fn range(&self, operand: &Operand, mode: ArithmeticMode) -> (i128, i128) {
        match operand.kind {
            OperandKind::Leaf(Leaf::Now) => type_range(mode.width.bits() as u8, false),
            OperandKind::Hash(_) => (0, u32::MAX.into()),
            OperandKind::Leaf(Leaf::State) => (0, self.names.states.len().max(1) as i128 - 1),
            OperandKind::Leaf(leaf) => {
                let info = self.leaf(leaf);
                type_range(info.width_bits, info.signed)
            }
            _ => type_range(mode.width.bits() as u8, mode.signed),
        }
    }
}
