// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses: 128-bit values, which can be copied and compared for equality, and prefixes of addresses of any width.

use flowloom_wire::field::{FieldId, IPV4_MAPPED, Source};

use crate::diagnostic::Code;
use crate::model::{BinaryOp, Condition, Destination, Expr, NewValue, Relation, Span, Type, Wide, Width, WriteTarget};
use crate::syntax::ast::Expr as Tree;

use super::Checker;
use super::actions::Target;
use super::constant::Constant;
use super::operand::{Leaf, Operand, OperandKind};

/// True if IPv4 constants denote mapped addresses in this field.
pub(super) fn is_either_family(field: FieldId) -> bool {
    matches!(field.source(), Source::Address { .. })
}

/// Properties of a 128-bit value.
#[derive(Debug, Clone)]
pub(super) struct WideInfo {
    /// Name in the source; empty for constants.
    pub(super) name: String,
    /// True if it holds addresses of either family, with IPv4 addresses mapped to IPv6.
    pub(super) is_either_family: bool,
    /// The 32-bit field of the IPv4 address, if the value is a field of either family.
    pub(super) v4: Option<FieldId>,
}

impl WideInfo {
    /// Name in messages.
    pub(super) fn shown(&self) -> String {
        if self.name.is_empty() { "an IPv6 address".to_owned() } else { format!("`{}`", self.name) }
    }

    /// Constants that it accepts, for messages.
    fn expected(&self) -> &'static str {
        if self.is_either_family { "an IPv4 or IPv6 address" } else { "an IPv6 address" }
    }
}

impl<'s> Checker<'s, '_> {
    pub(super) fn wide(&self, wide: Wide) -> WideInfo {
        let variable = |info: &super::names::VariableInfo<'_>| WideInfo {
            name: info.name.to_owned(),
            is_either_family: info.is_either_family,
            v4: None,
        };
        match wide {
            Wide::Constant(_) => WideInfo { name: String::new(), is_either_family: false, v4: None },
            Wide::Field(field) => WideInfo {
                name: self.field_name(field),
                is_either_family: is_either_family(field),
                v4: field.alternatives().first().copied(),
            },
            Wide::Register(i) | Wide::Old(Destination::Register(i)) => variable(&self.names.registers[usize::from(i)]),
            Wide::Global(i) | Wide::Old(Destination::Global(i)) => variable(&self.names.globals[usize::from(i)]),
            Wide::Metadata(i) => variable(&self.names.metadata[usize::from(i)]),
        }
    }

    /// Lowers `==` and `!=` if one side is wider than 64 bits.
    pub(super) fn compare_addresses(
        &mut self,
        relation: Relation,
        left: &Operand,
        right: &Operand,
        negated: bool,
        span: Span,
    ) -> Option<Condition> {
        let negated = match relation {
            Relation::Equal => negated,
            Relation::NotEqual => !negated,
            _ => {
                self.sink
                    .error(Code::WidthMismatch, span, "addresses of 128 bits have no order", "compared by order")
                    .help("compare them with `==` or `!=`, or with a prefix: `ip.src in 10.0.0.0/8`");
                return None;
            }
        };
        let (wide, other) = match (&left.kind, &right.kind) {
            (OperandKind::Wide(wide), _) => (*wide, right),
            (_, OperandKind::Wide(wide)) => (*wide, left),
            _ => {
                let (constant, other) =
                    if matches!(left.kind, OperandKind::Constant(_)) { (left, right) } else { (right, left) };
                let text = self.text(other.span).to_owned();
                self.sink
                    .error(
                        Code::WidthMismatch,
                        constant.span,
                        "an IPv6 address is compared with a value of at most 64 bits",
                        "128 bits",
                    )
                    .secondary_label(other.span, "at most 64 bits")
                    .help(match text.strip_prefix("ipv4.") {
                        Some(rest) => format!("write `ip.{rest}` or `ipv6.{rest}`"),
                        None => "compare it with `ip.src`, `ip.dst`, `ipv6.src`, `ipv6.dst` or a variable of type `ip`"
                            .to_owned(),
                    });
                return None;
            }
        };
        match other.kind {
            OperandKind::Wide(other) if other == wide => {
                self.sink
                    .error(Code::Constant, span, "a value is compared with itself", "always the same")
                    .help("compare two different values");
                None
            }
            OperandKind::Wide(other) => Some(Condition::Same { left: wide, right: other, negated }),
            OperandKind::Constant(constant) => {
                let info = self.wide(wide);
                if !matches!(wide, Wide::Field(_)) {
                    self.warn_mapped_zero(&info, constant, other.span);
                }
                let value = self.address_constant(&info, constant, other.span)?;
                Some(Condition::Masked { operand: wide, mask: u128::MAX, value, negated })
            }
            _ => {
                let info = self.wide(wide);
                let text = self.text(other.span).to_owned();
                let help = match info.v4 {
                    Some(v4) => format!("`{}` can be compared with `{text}`", v4.name()),
                    None => {
                        "compare it with an address, with an address field or with a variable of type `ip`".to_owned()
                    }
                };
                self.sink
                    .error(
                        Code::WidthMismatch,
                        span,
                        format!("`{}` has 128 bits and is compared with a value of at most 64", info.name),
                        "widths differ",
                    )
                    .help(help);
                None
            }
        }
    }

    /// Converts a constant to the 128-bit value that it denotes for this operand.
    pub(super) fn address_constant(&mut self, info: &WideInfo, constant: Constant, span: Span) -> Option<u128> {
        match constant {
            Constant::Ipv6(address) => Some(address),
            Constant::Ipv4(address) if info.is_either_family => Some(IPV4_MAPPED | u128::from(address)),
            _ => {
                let (name, expected) = (&info.name, info.expected());
                let help = match (constant, name.strip_prefix("ipv6.")) {
                    (Constant::Ipv4(_), Some(rest)) => format!("IPv4 addresses are in `ipv4.{rest}` and `ip.{rest}`"),
                    (Constant::Ipv4(_), None) if !name.contains('.') => {
                        format!("declare `{name}` with the type `ip`, which holds addresses of either family")
                    }
                    _ => "addresses are written as `192.0.2.1` or `2001:db8::1`".to_owned(),
                };
                self.sink
                    .error(
                        Code::WrongKind,
                        span,
                        format!("`{name}` expects {expected}, found {}", constant.kind()),
                        format!("expected {expected}"),
                    )
                    .help(help);
                None
            }
        }
    }

    /// `value in {address, address}` for a 128-bit value.
    pub(super) fn address_set(
        &mut self,
        wide: Wide,
        constants: &[(Constant, Span)],
        negated: bool,
        span: Span,
        conditions: &mut Vec<Condition>,
    ) -> Option<()> {
        let info = self.wide(wide);
        let mut values = Vec::new();
        for &(constant, place) in constants {
            values.push((self.address_constant(&info, constant, place), place));
        }
        let values: Option<Vec<(u128, Span)>> = values.into_iter().map(|(v, place)| Some((v?, place))).collect();
        let values = self.sorted_set(values?);
        if negated || values.len() == 1 {
            let not = |value| Condition::Masked { operand: wide, mask: u128::MAX, value, negated };
            conditions.extend(values.into_iter().map(not));
            return Some(());
        }
        let all_v4 = values.iter().all(|value| value & !u128::from(u32::MAX) == IPV4_MAPPED);
        if let (Some(v4), true) = (info.v4, all_v4) {
            // No IPv6 address is in this set.
            let values = values.into_iter().map(|value| u64::from(value as u32)).collect();
            conditions.push(Condition::OneOf { operand: Expr::Field(v4), values, width: Width::W32, negated });
            return Some(());
        }
        self.sink
            .error(
                Code::BadCondition,
                span,
                format!("`{}` has 128 bits and is compared with several addresses at once", info.name),
                "only one at a time",
            )
            .help("write one row for each address; sets of IPv4 addresses can be compared with packet fields, as `ip.src`");
        None
    }

    /// `value in address/length`.
    pub(super) fn in_prefix(
        &mut self,
        left: &Tree<'s>,
        address_tree: &Tree<'s>,
        length_tree: &Tree<'s>,
        negated: bool,
        span: Span,
    ) -> Option<Condition> {
        let operand = self.operand(left);
        let address = self.constant(address_tree, "the address of a prefix");
        let length = self.constant(length_tree, "the length of a prefix");
        let (operand, address, length) = (operand?, address?, length?);
        let (width_bits, is_either_family) =
            match operand.kind {
                OperandKind::Wide(wide) => (128, self.wide(wide).is_either_family),
                OperandKind::Leaf(
                    leaf @ (Leaf::Field(_) | Leaf::Register(_) | Leaf::Global(_) | Leaf::Metadata(_)),
                ) if !self.leaf(leaf).signed => (self.leaf(leaf).width_bits, false),
                _ => {
                    self.sink
                        .error(
                            Code::BadCondition,
                            left.span,
                            "only fields and unsigned variables can be in a prefix",
                            "not a packet field or variable",
                        )
                        .help("compare it with a mask: `(a + b) & 0xff000000 == 10.0.0.0`");
                    return None;
                }
            };
        // Value to compare with, and width of the written address in bits.
        let (value, address_bits) = match address {
            Constant::Ipv4(address) if is_either_family => (IPV4_MAPPED | u128::from(address), 32),
            Constant::Ipv4(address) if width_bits == 32 => (address.into(), 32),
            Constant::Ipv6(address) if width_bits == 128 => (address, 128),
            Constant::Mac(address) if width_bits == 48 => (address.into(), 48),
            _ => {
                if let OperandKind::Wide(wide) = operand.kind {
                    self.address_constant(&self.wide(wide), address, address_tree.span)?;
                }
                let name = self.text(left.span).to_owned();
                self.sink
                    .error(
                        Code::WrongKind,
                        span,
                        format!("`{name}` has {width_bits} bits and cannot be in a prefix of {}", address.kind()),
                        "not an address of this kind",
                    )
                    .help("prefixes are for addresses, as `ip.src in 10.0.0.0/8`; other values take `low..high` or `& mask`");
                return None;
            }
        };
        let Some(length) = length.number(1).filter(|l| (0..=i128::from(address_bits)).contains(l)) else {
            self.sink
                .error(
                    Code::OutOfRange,
                    length_tree.span,
                    format!("a prefix of {} bits", length.render()),
                    "out of range",
                )
                .help(format!("{} has a prefix of 0 to {address_bits} bits", address.kind()));
            return None;
        };
        let host_bits = address_bits - length as u32;
        let host = low_mask(host_bits);
        let mask = low_mask(width_bits.into()) & !host;
        if value & host != 0 {
            let network = match address {
                Constant::Ipv4(a) => Constant::Ipv4(a & !(host as u32)),
                Constant::Ipv6(a) => Constant::Ipv6(a & !host),
                Constant::Mac(a) => Constant::Mac(a & !(host as u64)),
                other => other,
            };
            self.sink
                .error(
                    Code::OutOfRange,
                    address_tree.span,
                    format!("{} has host bits set outside the prefix of {length} bits", address.render()),
                    "host bits",
                )
                .help(format!("write `{}/{length}`", network.render()));
            return None;
        }
        let wide = match operand.kind {
            OperandKind::Wide(wide) => wide,
            OperandKind::Leaf(Leaf::Field(field)) => Wide::Field(field),
            _ => {
                // A 32-bit variable is compared as a number.
                let constant = |n: u128| Operand { span, kind: OperandKind::Constant(Constant::Number(n as i128)) };
                let kind = OperandKind::Binary(BinaryOp::And, Box::new(operand), Box::new(constant(mask)));
                let masked = Operand { span: left.span, kind };
                let relation = if negated { Relation::NotEqual } else { Relation::Equal };
                return self.compare_numbers(relation, &masked, &constant(value), span);
            }
        };
        Some(Condition::Masked { operand: wide, mask, value, negated })
    }

    /// Checks a value for a 128-bit field or variable. Returns it with its target: an IPv4 address goes to the IPv4
    /// field.
    pub(super) fn wide_value(
        &mut self,
        target: Target,
        name: &str,
        op: Option<BinaryOp>,
        tree: &Tree<'s>,
    ) -> Option<(Target, NewValue)> {
        let operand = self.operand(tree)?;
        let info = self.wide(target.wide());
        let alternatives = match target {
            Target::Write(WriteTarget::Field(field)) => field.alternatives(),
            _ => &[],
        };
        let to = |field: &FieldId| Target::Write(WriteTarget::Field(*field));
        if op.is_none() {
            match (&operand.kind, alternatives) {
                (&OperandKind::Constant(Constant::Ipv4(address)), [v4, _]) => {
                    return Some((
                        to(v4),
                        NewValue::Number { value: Expr::Constant(address.into()), width: Width::W32 },
                    ));
                }
                (&OperandKind::Constant(Constant::Ipv6(address)), [_, v6]) => {
                    return Some((to(v6), NewValue::Wide(Wide::Constant(address))));
                }
                (&OperandKind::Constant(constant @ (Constant::Ipv4(_) | Constant::Ipv6(_))), _) => {
                    self.warn_mapped_zero(&info, constant, operand.span);
                    let value = self.address_constant(&info, constant, operand.span)?;
                    return Some((target, NewValue::Wide(Wide::Constant(value))));
                }
                (&OperandKind::Wide(from), _) => return Some((target, NewValue::Wide(from))),
                _ => {}
            }
        }
        let help = match (&operand.kind, info.v4) {
            (OperandKind::Leaf(Leaf::Field(field)), _) if self.field_name(*field).starts_with("ipv4.") => {
                format!("write `{}`, which has 128 bits", self.field_name(*field).replacen("ipv4.", "ip.", 1))
            }
            (_, Some(v4)) => format!("numbers are written to `{}`, which has 32 bits", v4.name()),
            _ => "write an address, an address field such as `ip.src`, or a variable of type `ip`".to_owned(),
        };
        self.sink
            .error(
                Code::WidthMismatch,
                operand.span,
                format!("`{name}` has 128 bits and takes an address, not a number"),
                "expected an address of 128 bits",
            )
            .help(help);
        None
    }

    /// Warns of `0.0.0.0` for a variable of either family: variables start as `::`.
    fn warn_mapped_zero(&mut self, info: &WideInfo, constant: Constant, span: Span) {
        if info.is_either_family && constant == Constant::Ipv4(0) {
            self.sink
                .warning(
                    Code::Constant,
                    span,
                    format!("`0.0.0.0` is `::ffff:0.0.0.0` in {}, which starts as `::`", info.shown()),
                    "not the value that means no address",
                )
                .help("write `::`");
        }
    }

    pub(super) fn wide_initial(
        &mut self,
        name: &str,
        is_either_family: bool,
        value: Constant,
        span: Span,
    ) -> Option<u128> {
        let info = WideInfo { name: name.to_owned(), is_either_family, v4: None };
        self.address_constant(&info, value, span)
    }
}

pub(super) const ADDRESS: Type = Type { width_bits: 128, signed: false };

fn low_mask(bits: u32) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}
