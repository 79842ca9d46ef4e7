//! Addresses: what is wider than 64 bits, and prefixes of any address.

use flowloom_wire::field::{FieldId, IPV4_MAPPED, Source};

use crate::diagnostic::Code;
use crate::model::{Condition, Relation, Span, Wide};
use crate::syntax::ast::Expr as Tree;

use super::Checker;
use super::constant::Constant;
use super::operand::{Leaf, Operand, OperandKind};

/// Whether IPv4 constants stand for mapped addresses in this field.
pub(super) fn is_either_family(field: FieldId) -> bool {
    matches!(field.source(), Source::Address { .. })
}

impl<'s> Checker<'s, '_> {
    /// `==` and `!=` where one side is wider than 64 bits.
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
        let (field, other) = match (&left.kind, &right.kind) {
            (OperandKind::Wide(field), _) => (*field, right),
            (_, OperandKind::Wide(field)) => (*field, left),
            _ => {
                let (constant, other) =
                    if matches!(left.kind, OperandKind::Constant(_)) { (left, right) } else { (right, left) };
                let text = self.text(other.span).to_owned();
                self.sink
                    .error(
                        Code::WidthMismatch,
                        constant.span,
                        "an IPv6 address meets a value of at most 64 bits",
                        "128 bits",
                    )
                    .also(other.span, "at most 64 bits")
                    .help(match text.strip_prefix("ipv4.") {
                        Some(rest) => format!("write `ip.{rest}` or `ipv6.{rest}`"),
                        None => "compare it with `ip.src`, `ip.dst`, `ipv6.src` or `ipv6.dst`".to_owned(),
                    });
                return None;
            }
        };
        match other.kind {
            OperandKind::Wide(other) if other == field => {
                self.sink
                    .error(Code::Constant, span, "a field is compared with itself", "always the same")
                    .help("compare two different fields");
                None
            }
            OperandKind::Wide(other) => {
                Some(Condition::Same { left: Wide::Field(field), right: Wide::Field(other), negated })
            }
            OperandKind::Constant(constant) => {
                let value = self.address_constant(field, constant, other.span)?;
                Some(Condition::Masked { operand: Wide::Field(field), mask: u128::MAX, value, negated })
            }
            _ => {
                let name = field.name();
                let text = self.text(other.span).to_owned();
                let mut help = "compare it with an address or with another address field".to_owned();
                if let Some(v4) = field.alternatives().first() {
                    help = format!("`{}` can be compared with `{text}`", v4.name());
                }
                self.sink
                    .error(
                        Code::WidthMismatch,
                        span,
                        format!("`{name}` has {} bits and is compared with a value of at most 64", field.width_bits()),
                        "widths differ",
                    )
                    .help(help);
                None
            }
        }
    }

    /// A constant that a field of 128 bits can have.
    fn address_constant(&mut self, field: FieldId, constant: Constant, span: Span) -> Option<u128> {
        match constant {
            Constant::Ipv6(address) => Some(address),
            Constant::Ipv4(address) if is_either_family(field) => Some(IPV4_MAPPED | u128::from(address)),
            _ => {
                let name = field.name();
                let expected = if is_either_family(field) { "an IPv4 or IPv6 address" } else { "an IPv6 address" };
                let help = match (constant, name.strip_prefix("ipv6.")) {
                    (Constant::Ipv4(_), Some(rest)) => format!("IPv4 addresses stand in `ipv4.{rest}` and `ip.{rest}`"),
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

    /// `field in address/length`.
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
        let field = match operand.kind {
            OperandKind::Wide(field) | OperandKind::Leaf(Leaf::Field(field)) => field,
            _ => {
                self.sink
                    .error(Code::BadCondition, left.span, "only packet fields can be in a prefix", "not a packet field")
                    .help("compare a register with a mask: `address & 0xff000000 == 10.0.0.0`");
                return None;
            }
        };
        let width_bits = field.width_bits();
        // Bits of the written address, and how many bits of the field stand above them.
        let (value, address_bits) = match address {
            Constant::Ipv4(address) if is_either_family(field) => (IPV4_MAPPED | u128::from(address), 32),
            Constant::Ipv4(address) if width_bits == 32 => (address.into(), 32),
            Constant::Ipv6(address) if width_bits == 128 => (address, 128),
            Constant::Mac(address) if width_bits == 48 => (address.into(), 48),
            _ if width_bits == 128 => {
                self.address_constant(field, address, address_tree.span)?;
                return None;
            }
            _ => {
                let name = field.name();
                self.sink
                    .error(
                        Code::WrongKind,
                        span,
                        format!("`{name}` has {width_bits} bits and cannot be in a prefix of {}", address.kind()),
                        "not an address of this kind",
                    )
                    .help("prefixes are for address fields, as `ip.src in 10.0.0.0/8`; other fields take `low..high` or `& mask`");
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
                    format!("{} has bits set behind the prefix of {length} bits", address.render()),
                    "bits behind the prefix",
                )
                .help(format!("write `{}/{length}`", network.render()));
            return None;
        }
        Some(Condition::Masked { operand: Wide::Field(field), mask, value, negated })
    }
}

/// The low `bits` bits.
fn low_mask(bits: u32) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}
