// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conditions on numbers. Conditions on addresses and prefixes are in [`super::address`].

use flowloom_wire::field::FieldId;

use crate::diagnostic::Code;
use crate::model::{BinaryOp, Condition, Expr, Relation, Span, Wide, Width};
use crate::syntax::ast::{Expr as Tree, ExprKind};

use super::Checker;
use super::constant::{Constant, type_range};
use super::numeric::{ArithmeticMode, ExprTraits};
use super::operand::{Leaf, Operand, OperandKind};

impl<'s> Checker<'s, '_> {
    /// Appends one condition of a row to `conditions`. `None` if an error was reported.
    pub(super) fn condition(&mut self, tree: &Tree<'s>, negated: bool, conditions: &mut Vec<Condition>) -> Option<()> {
        let condition = match &tree.kind {
            ExprKind::Not(inner) => return self.condition(inner, !negated, conditions),
            // `Checker::alternatives` splits these.
            ExprKind::And(..) | ExprKind::Or(..) => return None,
            ExprKind::InRange(left, low, high) => {
                return self.in_range(left, low, high, negated, tree.span, conditions);
            }
            ExprKind::InSet(left, values) => return self.in_set(left, values, negated, tree.span, conditions),
            ExprKind::InNamed(left, name) => return self.in_named(left, *name, negated, conditions),
            ExprKind::Call(name, arguments) if name.text == "present" => {
                self.presence(arguments, negated, tree.span)?
            }
            ExprKind::Compare(relation, left, right) => {
                let (left, right) = (self.operand(left), self.operand(right));
                let (left, right) = (left?, right?);
                if is_wide(&left) || is_wide(&right) {
                    self.compare_addresses(*relation, &left, &right, negated, tree.span)?
                } else {
                    let relation = if negated { relation.inverse() } else { *relation };
                    self.compare_numbers(relation, &left, &right, tree.span)?
                }
            }
            ExprKind::Serial { after, left, right } => {
                let (left, right) = (self.narrow_operand(left), self.narrow_operand(right));
                self.serial(*after, negated, &left?, &right?, tree.span)?
            }
            ExprKind::InPrefix(left, address, length) => self.in_prefix(left, address, length, negated, tree.span)?,
            ExprKind::Name("full") => self.full(tree.span, negated)?,
            _ => self.flag(tree, negated)?,
        };
        conditions.push(condition);
        Some(())
    }

    /// A one-bit field used as a condition.
    fn flag(&mut self, tree: &Tree<'s>, negated: bool) -> Option<Condition> {
        let operand = self.operand(tree)?;
        if let OperandKind::Leaf(Leaf::Field(field)) = operand.kind
            && field.width_bits() == 1
        {
            return Some(Condition::Masked { operand: Wide::Field(field), mask: 1, value: 1, negated });
        }
        let text = self.text(tree.span).to_owned();
        let help = match operand.kind {
            _ if text.contains(char::is_whitespace) => "compare it, as in `a + b > 3`".to_owned(),
            OperandKind::Wide(_) => format!("compare it, as in `{text} in 10.0.0.0/8`"),
            _ => format!("compare it, as in `{text} != 0`; only one-bit fields, such as `tcp.is_syn`, are conditions"),
        };
        self.sink
            .error(Code::BadCondition, tree.span, "expected a condition, found a value", "not a condition")
            .help(help);
        None
    }

    pub(super) fn compare_numbers(
        &mut self,
        relation: Relation,
        left: &Operand,
        right: &Operand,
        span: Span,
    ) -> Option<Condition> {
        if let (OperandKind::Constant(a), OperandKind::Constant(b)) = (&left.kind, &right.kind) {
            let holds = self.compare_constants(relation, *a, *b, span)?;
            let (left, right) = (Expr::Constant(holds.into()), Expr::Constant(1));
            return Some(Condition::Compare {
                left,
                relation: Relation::Equal,
                right,
                width: Width::W32,
                signed: false,
            });
        }
        if let Some(condition) = self.masked(relation, left, right) {
            return condition;
        }
        let mut facts = ExprTraits::default();
        self.gather(left, &mut facts)?;
        self.gather(right, &mut facts)?;
        let mode = self.arithmetic(&facts, 0, true)?;
        self.check_clock(&facts, mode.width.bits(), span)?;
        self.check_constant_in_range(relation, left, right, mode, span)?;
        self.check_constant_in_range(relation.swap_operands(), right, left, mode, span)?;
        if !matches!(relation, Relation::Equal | Relation::NotEqual) {
            self.warn_wrapping_clock(&facts, left, right, span);
        }
        let (left, right) = (self.build(left, mode)?, self.build(right, mode)?);
        Some(Condition::Compare { left, relation, right, width: mode.width, signed: mode.signed })
    }

    fn compare_constants(&mut self, relation: Relation, a: Constant, b: Constant, span: Span) -> Option<bool> {
        let is_time = |c| matches!(c, Constant::Time(_));
        let numbers = (a.number(1), b.number(1));
        let (Some(a), Some(b), true) = (numbers.0, numbers.1, is_time(a) == is_time(b)) else {
            self.sink
                .error(
                    Code::WrongKind,
                    span,
                    format!("{} is compared with {}", a.kind(), b.kind()),
                    "two constants of different kinds",
                )
                .help("compare a field, a register or metadata with a constant");
            return None;
        };
        Some(relation.holds(a.cmp(&b)))
    }

    /// Reports a constant on the right outside of the range of the left side; warns if the comparison has the same
    /// outcome for the whole range.
    fn check_constant_in_range(
        &mut self,
        relation: Relation,
        left: &Operand,
        right: &Operand,
        mode: ArithmeticMode,
        span: Span,
    ) -> Option<()> {
        let OperandKind::Constant(constant) = right.kind else { return Some(()) };
        let number = self.number(constant, mode.unit_ns, right.span)?;
        let (low, high) = self.range(left, mode);
        let outcomes = (relation.holds(low.cmp(&number)), relation.holds(high.cmp(&number)));
        let is_order = !matches!(relation, Relation::Equal | Relation::NotEqual);
        if number < low || number > high {
            let always = if outcomes.0 { "always" } else { "never" };
            let text = self.text(left.span).to_owned();
            self.sink
                .error(
                    Code::OutOfRange,
                    right.span,
                    format!(
                        "{} is outside the range of the other operand, so the condition {always} holds",
                        constant.render()
                    ),
                    "out of range",
                )
                .secondary_label(left.span, format!("from {low} to {high}"))
                .help(format!("compare `{text}` with a value from {low} to {high}, or remove the condition"));
            return None;
        }
        if is_order && outcomes.0 && outcomes.1 {
            self.warn_always(span, left, (low, high));
        } else if is_order && outcomes.0 == outcomes.1 {
            let always = if outcomes.0 { "always" } else { "never" };
            self.sink
                .warning(Code::Constant, span, format!("the condition {always} holds"), format!("{always} true"))
                .secondary_label(left.span, format!("from {low} to {high}"))
                .help("change the constant, or remove the condition");
        }
        Some(())
    }

    /// Warns of a condition on `operand` that always holds. If it reads a field that may be absent, the warning says
    /// that it still tests for presence.
    fn warn_always(&mut self, span: Span, operand: &Operand, (low, high): (i128, i128)) {
        let mut fields = Vec::new();
        operand.fields(&mut fields);
        let Some(field) = fields.into_iter().find(|field| !field.headers().is_empty()) else {
            self.sink
                .warning(Code::Constant, span, "the condition always holds", "always true")
                .secondary_label(operand.span, format!("from {low} to {high}"))
                .help("change the constant, or remove the condition");
            return;
        };
        let name = self.field_name(field);
        self.sink
            .warning(
                Code::Constant,
                span,
                format!("the condition holds for every packet that has `{name}`"),
                "true wherever the field is present",
            )
            .secondary_label(operand.span, format!("from {low} to {high}"))
            .help(format!(
                "change the constant, or write `present({name})`; without the condition the row also matches packets that \
                 lack `{name}`"
            ));
    }

    /// Reports arithmetic on `now` that is wider than the clock register beside it, and therefore wraps later.
    pub(super) fn check_clock(&mut self, facts: &ExprTraits, computed_bits: u32, span: Span) -> Option<()> {
        if let (Some(now), Some((bits, clock))) = (facts.now, facts.clock)
            && u32::from(bits) < computed_bits
        {
            self.sink
                .error(
                    Code::TimeUnit,
                    span,
                    format!(
                        "a {bits}-bit clock is combined with `now` in {computed_bits}-bit arithmetic, which wraps later"
                    ),
                    "",
                )
                .secondary_label(clock, format!("wraps after {bits} bits"))
                .secondary_label(now, format!("would wrap after {computed_bits} bits"))
                .help("compare times with `before` and `after`, or declare all of them with the same wider type");
            return None;
        }
        Some(())
    }

    fn warn_wrapping_clock(&mut self, facts: &ExprTraits, left: &Operand, right: &Operand, span: Span) {
        let is_now = |o: &Operand| matches!(o.kind, OperandKind::Leaf(Leaf::Now));
        if let Some((bits, clock)) = facts.clock
            && bits < 64
            && (is_now(left) || is_now(right))
        {
            self.sink
                .warning(
                    Code::TimeUnit,
                    span,
                    "clock values that wrap are compared as numbers",
                    "wrong around each wrap",
                )
                .secondary_label(clock, format!("wraps after {bits} bits"))
                .help("write `now after t` instead of `now > t`, and `now before t` instead of `now < t`");
        }
    }

    /// `field & mask == value`; the outer option is `None` for any other comparison.
    fn masked(&mut self, relation: Relation, left: &Operand, right: &Operand) -> Option<Option<Condition>> {
        let negated = match relation {
            Relation::Equal => false,
            Relation::NotEqual => true,
            _ => return None,
        };
        let (pattern, value) = match (&left.kind, &right.kind) {
            (_, OperandKind::Constant(value)) => (left, (*value, right.span)),
            (OperandKind::Constant(value), _) => (right, (*value, left.span)),
            _ => return None,
        };
        let OperandKind::Binary(BinaryOp::And, a, b) = &pattern.kind else { return None };
        let (field, mask) = match (&a.kind, &b.kind) {
            (OperandKind::Leaf(Leaf::Field(field)), OperandKind::Constant(mask)) => (*field, (*mask, b.span)),
            (OperandKind::Constant(mask), OperandKind::Leaf(Leaf::Field(field))) => (*field, (*mask, a.span)),
            _ => return None,
        };
        Some(self.masked_field(field, mask, value, negated))
    }

    fn masked_field(
        &mut self,
        field: FieldId,
        (mask, mask_at): (Constant, Span),
        (value, value_at): (Constant, Span),
        negated: bool,
    ) -> Option<Condition> {
        let mask = self.field_constant(field, mask, mask_at)?;
        let value = self.field_constant(field, value, value_at)?;
        if value & !mask != 0 {
            let outcome = if negated { "always" } else { "never" };
            self.sink
                .error(
                    Code::OutOfRange,
                    value_at,
                    format!("{value:#x} has bits that the mask {mask:#x} clears, so the condition {outcome} holds"),
                    "bits outside of the mask",
                )
                .secondary_label(mask_at, "the mask")
                .help("add the bits to the mask, or clear them in the value");
            return None;
        }
        Some(Condition::Masked { operand: Wide::Field(field), mask: mask.into(), value: value.into(), negated })
    }

    /// Checks that a constant fits in a field of at most 64 bits.
    pub(super) fn field_constant(&mut self, field: FieldId, constant: Constant, span: Span) -> Option<u64> {
        let number = self.number(constant, 1, span)?;
        let (low, high) = type_range(field.width_bits(), false);
        let name = self.field_name(field);
        if number < low || number > high {
            self.sink
                .error(
                    Code::OutOfRange,
                    span,
                    format!("{} does not fit in `{name}`", constant.render()),
                    "out of range",
                )
                .help(format!("`{name}` has {} bits: {low} to {high}", field.width_bits()));
            return None;
        }
        Some(number as u64)
    }

    fn serial(&mut self, after: bool, negated: bool, left: &Operand, right: &Operand, span: Span) -> Option<Condition> {
        let mut facts = ExprTraits::default();
        self.gather(left, &mut facts)?;
        self.gather(right, &mut facts)?;
        let widest = facts.width_bits.max(facts.now_bits());
        let serial_bits = match widest {
            0 => {
                self.sink
                    .error(Code::BadCondition, span, "serial order of two constants", "both operands are constant")
                    .help("`before` and `after` compare sequence numbers or times that wrap around");
                return None;
            }
            1..=8 => 8,
            9..=16 => 16,
            17..=32 => 32,
            _ => 64,
        };
        let unit_ns = facts.unit.map_or(1, |(unit_ns, _)| unit_ns);
        for &(constant, place) in &facts.constants {
            let number = self.number(constant, unit_ns, place)?;
            let (low, high) = (type_range(serial_bits, true).0, type_range(serial_bits, false).1);
            if number < low || number > high {
                self.sink
                    .error(
                        Code::OutOfRange,
                        place,
                        format!("{} does not fit in {serial_bits} bits", constant.render()),
                        "out of range",
                    )
                    .help(format!(
                        "serial order is computed here in {serial_bits} bits, the width of the widest operand"
                    ));
                return None;
            }
        }
        let width = if serial_bits == 64 { Width::W64 } else { Width::W32 };
        let mode = ArithmeticMode { width, signed: false, unit_ns };
        let (left, right) = (self.build(left, mode)?, self.build(right, mode)?);
        Some(Condition::Serial { left, right, after, negated, serial_bits })
    }

    fn in_range(
        &mut self,
        left: &Tree<'s>,
        low_tree: &Tree<'s>,
        high_tree: &Tree<'s>,
        negated: bool,
        span: Span,
        conditions: &mut Vec<Condition>,
    ) -> Option<()> {
        let operand = self.narrow_operand(left)?;
        let low = self.constant(low_tree, "the start of a range");
        let high = self.constant(high_tree, "the end of a range");
        let (low, high) = (low?, high?);
        if let (Some(a), Some(b)) = (low.number(1), high.number(1))
            && a > b
        {
            self.sink
                .error(Code::OutOfRange, span, format!("the range {}..{} is empty", low.render(), high.render()), "")
                .help("write the smaller value first; both ends are included");
            return None;
        }
        if let OperandKind::Leaf(Leaf::Field(field)) = operand.kind {
            let low = self.field_constant(field, low, low_tree.span)?;
            let high = self.field_constant(field, high, high_tree.span)?;
            let most = u64::MAX >> (64 - u32::from(field.width_bits().clamp(1, 64)));
            // The whole range tests for presence; its complement is empty.
            if negated && (low, high) == (0, most) {
                self.sink
                    .warning(Code::Constant, span, "the condition never holds", "never true")
                    .secondary_label(operand.span, format!("from 0 to {most}"))
                    .help("change the range, or remove the row");
            }
            conditions.push(Condition::Range { field, low, high, negated });
            return Some(());
        }
        self.number_range(&operand, (low, low_tree.span), (high, high_tree.span), negated, span, conditions)
    }

    /// Range test of a computed value, as one comparison: `x - low <= high - low`, where values below `low` wrap to
    /// above `high - low`.
    fn number_range(
        &mut self,
        operand: &Operand,
        (low, low_at): (Constant, Span),
        (high, high_at): (Constant, Span),
        negated: bool,
        span: Span,
        conditions: &mut Vec<Condition>,
    ) -> Option<()> {
        let mut facts = ExprTraits::default();
        self.gather(operand, &mut facts)?;
        facts.constants.extend([(low, low_at), (high, high_at)]);
        let mode = self.arithmetic(&facts, 0, true)?;
        self.check_clock(&facts, mode.width.bits(), span)?;
        let (least, most) = self.range(operand, mode);
        let mut numbers = [0; 2];
        for (number, (constant, place)) in numbers.iter_mut().zip([(low, low_at), (high, high_at)]) {
            *number = self.number(constant, mode.unit_ns, place)?;
            self.check_value(*number, constant, place, operand.span, (least, most))?;
        }
        let [low, high] = numbers;
        if (low, high) == (least, most) && !negated {
            self.warn_always(span, operand, (least, most));
        } else if (low, high) == (least, most) {
            self.sink
                .warning(Code::Constant, span, "the condition never holds", "never true")
                .secondary_label(operand.span, format!("from {least} to {most}"))
                .help("change the range, or remove the condition");
        }
        let left = self.build(operand, mode)?;
        let constant = |number: i128| Expr::Constant(number as u64);
        let (left, relation, right, signed) = if low == least {
            (left, Relation::LessEqual, constant(high), mode.signed)
        } else if high == most {
            (left, Relation::GreaterEqual, constant(low), mode.signed)
        } else {
            let distance = Expr::Binary(BinaryOp::Sub, Box::new(left), Box::new(constant(low)));
            (distance, Relation::LessEqual, constant(high - low), false)
        };
        let relation = if negated { relation.inverse() } else { relation };
        conditions.push(Condition::Compare { left, relation, right, width: mode.width, signed });
        Some(())
    }

    /// Reports a constant outside of the range of the value that it is compared with.
    fn check_value(
        &mut self,
        number: i128,
        constant: Constant,
        span: Span,
        of: Span,
        (low, high): (i128, i128),
    ) -> Option<()> {
        if number >= low && number <= high {
            return Some(());
        }
        let text = self.text(of).to_owned();
        self.sink
            .error(Code::OutOfRange, span, format!("`{text}` cannot equal {}", constant.render()), "out of range")
            .secondary_label(of, format!("from {low} to {high}"))
            .help(format!("compare `{text}` with values from {low} to {high}"));
        None
    }

    /// `value in {constant, constant}`.
    fn in_set(
        &mut self,
        left: &Tree<'s>,
        trees: &[Tree<'s>],
        negated: bool,
        span: Span,
        conditions: &mut Vec<Condition>,
    ) -> Option<()> {
        let operand = self.operand(left);
        let constants: Vec<_> =
            trees.iter().map(|tree| Some((self.constant(tree, "a value of a set")?, tree.span))).collect();
        let (operand, constants) = (operand?, constants.into_iter().collect::<Option<Vec<_>>>()?);
        match operand.kind {
            OperandKind::Wide(wide) => return self.address_set(wide, &constants, negated, span, conditions),
            OperandKind::Constant(_) => {
                self.sink
                    .error(
                        Code::BadCondition,
                        left.span,
                        "a constant in a set of constants",
                        "both operands are constant",
                    )
                    .help("compare a field, a register or metadata with the set");
                return None;
            }
            _ => {}
        }
        let mut facts = ExprTraits::default();
        self.gather(&operand, &mut facts)?;
        facts.constants.extend(&constants);
        let mode = self.arithmetic(&facts, 0, true)?;
        self.check_clock(&facts, mode.width.bits(), span)?;
        let (low, high) = self.range(&operand, mode);
        let mut values = Vec::new();
        let mut is_ok = true;
        for &(constant, place) in &constants {
            let number = self.number(constant, mode.unit_ns, place)?;
            is_ok &= self.check_value(number, constant, place, left.span, (low, high)).is_some();
            values.push((low_bits(number as u64, mode.width), place));
        }
        if !is_ok {
            return None;
        }
        let values = self.sorted_set(values);
        let operand = self.build(&operand, mode)?;
        conditions.push(Condition::OneOf { operand, values, width: mode.width, negated });
        Some(())
    }

    /// Sorts and deduplicates the values of a set; warns of duplicates.
    pub(super) fn sorted_set<T: Ord + Copy>(&mut self, values: Vec<(T, Span)>) -> Vec<T> {
        for (i, (value, place)) in values.iter().enumerate() {
            if let Some((_, first)) = values[..i].iter().find(|(other, _)| other == value) {
                self.sink
                    .warning(Code::Duplicate, *place, "duplicate value in the set", "repeated here")
                    .secondary_label(*first, "first here")
                    .help("name each value once");
            }
        }
        let mut values: Vec<T> = values.into_iter().map(|(value, _)| value).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// `full`, `!full`.
    fn full(&mut self, span: Span, negated: bool) -> Option<Condition> {
        if !self.names.is_stateful {
            self.sink.error(Code::WrongElement, span, "`full` in a stateless element", "no table here").help(
                "a stateless element has no contexts; test it in the stateful element, and store the result in metadata",
            );
            return None;
        }
        if !self.names.has_key && !self.names.has_syntax_errors {
            let always = if negated { "always" } else { "never" };
            self.sink
                .warning(Code::Constant, span, format!("the condition {always} holds"), format!("{always} true"))
                .help("an element with `key none` has exactly one context, which always fits");
        }
        Some(Condition::Full { negated })
    }
}

fn is_wide(operand: &Operand) -> bool {
    matches!(operand.kind, OperandKind::Wide(_) | OperandKind::Constant(Constant::Ipv6(_)))
}

fn low_bits(value: u64, width: Width) -> u64 {
    if width == Width::W32 { value & 0xffff_ffff } else { value }
}
