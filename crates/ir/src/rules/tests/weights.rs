// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The weights of patterns and replacements.

use crate::graph::{Binary, Compare, Kind};
use crate::rules::instance::instances;
use crate::rules::rules;
use crate::rules::term::{Bound, Env, Maker, build};
use crate::rules::text::{Atom, Expr, Sign};

/// The weight of values, and whether the graph itself would have simplified them.
#[derive(Default)]
struct Weights {
    is_simpler: bool,
    /// Whether the constant made last is a power of two.
    is_power: bool,
}

/// Operations with their widths, then their widths squared, then wires.
pub(super) type Weight = [u64; 3];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Weighed {
    bits: u16,
    is_number: bool,
    weight: Weight,
}

pub(super) fn weight_of(kind: Kind, args: &[u16], bits: u16) -> Weight {
    let width = u64::from(args.iter().copied().chain([bits]).max().unwrap_or(0));
    let own = match kind {
        Kind::Binary(op) => match op {
            Binary::And | Binary::Or => 4 * width,
            Binary::Xor => 6 * width,
            Binary::Add => 12 * width,
            Binary::Sub => 13 * width,
            Binary::Mul => 24 * width * width,
            Binary::Div | Binary::Mod => 48 * width * width,
            Binary::SignedDiv | Binary::SignedMod => 49 * width * width,
            Binary::ShiftLeft | Binary::ShiftRight | Binary::SignedShiftRight => 24 * width,
        },
        Kind::Compare(Compare::Equal) => 6 * width,
        Kind::Compare(Compare::Below) => 12 * width,
        Kind::Compare(Compare::SignedBelow) => 13 * width,
        Kind::Not => 2 * width,
        Kind::Select => 8 * u64::from(bits) * (args.len() as u64 / 2),
        _ => 0,
    };
    match kind {
        Kind::SignExtend => [0, 0, 2 * u64::from(bits)],
        Kind::Slice { .. } | Kind::Concat => [0, 0, bits.into()],
        _ => [own, if own == 0 { 0 } else { width * width }, 0],
    }
}

fn sum(a: Weight, b: Weight) -> Weight {
    std::array::from_fn(|at| a[at] + b[at])
}

impl Maker for Weights {
    type Value = Weighed;

    fn bits(&self, value: &Weighed) -> u16 {
        value.bits
    }

    fn number(&mut self, expr: &Expr, _: &Env<'_, Weighed>, bits: u16) -> Option<Weighed> {
        self.is_power = expr.first == Atom::Literal(1) && matches!(expr.rest.as_slice(), [(Sign::Left, _)]);
        Some(Weighed { bits, is_number: true, weight: [0; 3] })
    }

    fn make(&mut self, kind: Kind, args: Vec<Weighed>, bits: u16) -> Weighed {
        let is_number = args.iter().all(|arg| arg.is_number);
        match kind {
            _ if is_number => return Weighed { bits, is_number, weight: [0; 3] },
            Kind::Slice { low: 0 } | Kind::SignExtend if args[0].bits == bits => {
                self.is_simpler = true;
                return args[0];
            }
            // Wires, by a rule.
            Kind::Binary(Binary::Mul) if self.is_power && args[1].is_number => {
                return Weighed { bits, is_number, weight: sum(args[0].weight, [0, 0, bits.into()]) };
            }
            // By the graph's own `not`.
            Kind::Select if bits == 1 && args.len() == 3 && args[1].is_number && args[2].is_number => {
                return Weighed { bits, is_number, weight: sum(args[0].weight, [2, 1, 0]) };
            }
            _ => {}
        }
        let widths: Vec<u16> = args.iter().map(|arg| arg.bits).collect();
        let below = args.iter().fold([0; 3], |all, arg| sum(all, arg.weight));
        Weighed { bits, is_number, weight: sum(below, weight_of(kind, &widths, bits)) }
    }
}

#[test]
fn replacements_weigh_less_than_patterns() {
    let mut wrong = Vec::new();
    for rule in rules().iter().filter(|rule| !rule.is_built_in) {
        for instance in instances(rule, &[1, 2, 3, 8, 64], 3000) {
            let value =
                |name: &str, bits| Weighed { bits, is_number: name.starts_with(char::is_uppercase), weight: [0; 3] };
            let values = instance.variables.iter().map(|one| match one.pairs {
                None => (one.name, Bound::One(value(one.name, one.bits))),
                Some(pairs) => (one.name, Bound::Many(vec![value(one.name, one.bits); pairs])),
            });
            let env = Env { values: values.collect(), numbers: instance.numbers.clone() };
            let mut weights = Weights::default();
            let from = build(&mut weights, &rule.from, &env, None).unwrap().unwrap();
            if from.is_number || weights.is_simpler {
                continue;
            }
            let to = build(&mut weights, &rule.to, &env, None).unwrap().unwrap();
            if to.weight >= from.weight {
                wrong.push(format!("{} where {}: {to:?}, {from:?}", rule.name, instance.about()));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
