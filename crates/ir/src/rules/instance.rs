// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instances of a rule up to some width: assignments of its names, and the facts about them.

use super::Rule;
use super::term::{Bound, Env, Maker, build, holds};
use super::text::{Expr, Fact, Item, Op, Term, When};
use crate::graph::Kind;

#[derive(Debug, Clone)]
pub(super) struct Instance<'r> {
    /// Widths and bit positions.
    pub(super) numbers: Vec<(&'r str, u64)>,
    pub(super) variables: Vec<Variable<'r>>,
    /// Conditions of the rule that do not follow from the numbers.
    pub(super) premises: Vec<&'r When>,
}

/// A value of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variable<'r> {
    pub(super) name: &'r str,
    pub(super) bits: u16,
    /// The number of pairs, for a value in a repeated pair.
    pub(super) pairs: Option<usize>,
}

impl Instance<'_> {
    pub(super) fn about(&self) -> String {
        let mut all: Vec<String> = self.numbers.iter().map(|(name, value)| format!("{name}={value}")).collect();
        all.extend(self.variables.iter().map(|one| match one.pairs {
            Some(pairs) => format!("{}:{}*{pairs}", one.name, one.bits),
            None => format!("{}:{}", one.name, one.bits),
        }));
        all.join(" ")
    }
}

/// An evaluator of widths alone.
pub(super) struct Widths;

impl Maker for Widths {
    type Value = u16;

    fn bits(&self, value: &u16) -> u16 {
        *value
    }

    fn number(&mut self, _: &Expr, _: &Env<'_, u16>, bits: u16) -> Option<u16> {
        Some(bits)
    }

    fn make(&mut self, _: Kind, _: Vec<u16>, bits: u16) -> u16 {
        bits
    }
}

/// The instances in which `w` is one of these widths and no width exceeds the greatest; if there are more than `limit`,
/// those at the ends and in the middle.
pub(super) fn instances<'r>(rule: &'r Rule, widths: &[u16], limit: usize) -> Vec<Instance<'r>> {
    let mut shape = Shape::default();
    shape.collect(&rule.from, None);
    let found = rule.when.iter().map(|when| match when {
        When::Known(names, ..) => names.len(),
        _ => 0,
    });
    let widths_besides = shape.widths.iter().filter(|name| **name != "w").count();
    shape.is_large = shape.places.len() + widths_besides + found.sum::<usize>() > FEW;
    let needs_width = infer(&shape, &rule.from, &Vec::new(), None).is_none();
    if needs_width && !shape.widths.contains(&"w") {
        shape.widths.insert(0, "w");
    }
    let mut all = Vec::new();
    let pairs: &[usize] = if shape.has_pairs { &[0, 1, 2] } else { &[0] };
    for pairs in pairs {
        shape.pairs = *pairs;
        numbered(rule, &shape, widths, &mut Vec::new(), &mut all);
    }
    if all.len() > limit {
        all.retain(|one| one.numbers.iter().all(|(_, number)| ENDS.contains(number)));
    }
    while all.len() > limit {
        let mut number = 0;
        all.retain(|_| {
            number += 1;
            number % 2 == 0
        });
    }
    all
}

/// Boundary values of widths and positions, and some in the middle.
const ENDS: [u64; 19] = [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 62, 63, 64];
/// With up to so many widths and positions, all combinations are enumerated.
const FEW: usize = 2;

/// The names in a pattern.
#[derive(Default)]
struct Shape<'r> {
    widths: Vec<&'r str>,
    places: Vec<&'r str>,
    values: Vec<(&'r str, Option<&'r Expr>, bool)>,
    named: Vec<(&'r str, &'r Term)>,
    has_pairs: bool,
    pairs: usize,
    /// Whether there are too many combinations of widths and positions to enumerate.
    is_large: bool,
}

impl<'r> Shape<'r> {
    fn collect(&mut self, term: &'r Term, in_pairs: Option<()>) {
        match term {
            Term::Any { width, .. } | Term::Number { width, .. } => {
                if let Some(name) = width.as_ref().and_then(Expr::name)
                    && !self.widths.contains(&name)
                {
                    self.widths.push(name);
                }
                if let Some(name) = term.name() {
                    match self.values.iter_mut().find(|(known, ..)| *known == name) {
                        Some((_, known, _)) => *known = known.or(width.as_ref()),
                        None => self.values.push((name, width.as_ref(), in_pairs.is_some())),
                    }
                }
            }
            Term::Apply { name, numbers, args, .. } => {
                if let Some(name) = name {
                    self.named.push((name, term));
                }
                for name in numbers.iter().filter_map(Expr::name) {
                    if !self.places.contains(&name) {
                        self.places.push(name);
                    }
                }
                for item in args {
                    match item {
                        Item::One(term) => self.collect(term, in_pairs),
                        Item::Pairs(condition, value) => {
                            self.has_pairs = true;
                            self.collect(condition, Some(()));
                            self.collect(value, Some(()));
                        }
                    }
                }
            }
        }
    }
}

/// Assigns every width and position that a rule names, then checks its conditions.
fn numbered<'r>(
    rule: &'r Rule,
    shape: &Shape<'r>,
    widths: &[u16],
    numbers: &mut Vec<(&'r str, u64)>,
    all: &mut Vec<Instance<'r>>,
) {
    let places = shape.places.iter().filter(|place| !shape.widths.contains(place));
    let names: Vec<&str> = shape.widths.iter().copied().chain(places.copied()).collect();
    let Some(name) = names.get(numbers.len()) else {
        let Some(variables) =
            infer(shape, &rule.from, numbers, numbers.iter().find(|(n, _)| *n == "w").map(|(_, w)| *w as u16))
        else {
            return;
        };
        if variables.iter().any(|one| one.bits == 0 || one.bits > 64) {
            return;
        }
        let whole = built(&variables, numbers, &rule.from);
        if whole.is_some_and(|bits| bits <= 64) {
            let instance = Instance { numbers: numbers.clone(), variables, premises: Vec::new() };
            conditions(shape, &rule.when, instance, all);
        }
        return;
    };
    let most = widths.iter().copied().max().unwrap_or(0);
    let of_width: Vec<u64> = widths.iter().map(|width| u64::from(*width)).collect();
    let all_places = 0..=u64::from(most);
    let values = match *name == "w" {
        true => of_width,
        false => all_places.filter(|place| !shape.is_large || ENDS.contains(place)).collect(),
    };
    for value in values {
        numbers.push((name, value));
        numbered(rule, shape, widths, numbers, all);
        numbers.pop();
    }
}

/// The width of a term in bits.
pub(super) fn built(variables: &[Variable<'_>], numbers: &[(&str, u64)], term: &Term) -> Option<u16> {
    let values = variables.iter().map(|one| match one.pairs {
        Some(pairs) => (one.name, Bound::Many(vec![one.bits; pairs])),
        None => (one.name, Bound::One(one.bits)),
    });
    build(&mut Widths, term, &Env { values: values.collect(), numbers: numbers.to_vec() }, None).ok().flatten()
}

fn conditions<'r>(shape: &Shape<'r>, when: &'r [When], mut instance: Instance<'r>, all: &mut Vec<Instance<'r>>) {
    let Some((first, rest)) = when.split_first() else {
        all.push(instance);
        return;
    };
    let env: Env<'_, u16> = Env { values: Vec::new(), numbers: instance.numbers.clone() };
    let bits_of = |expr: &Expr| {
        let name = match &expr.first {
            super::text::Atom::Name(name) => name.as_str(),
            super::text::Atom::Literal(_) => "",
        };
        let own = instance.variables.iter().find(|one| one.name == name).map(|one| one.bits);
        let named = || shape.named.iter().find(|(known, _)| *known == name);
        own.or_else(|| built(&instance.variables, &instance.numbers, named()?.1)).unwrap_or(64).into()
    };
    match first {
        When::Is(left, order, right) => match (env.eval(left), env.eval(right)) {
            (Some(left), Some(right)) if !holds(left, *order, right) => return,
            (Some(_), Some(_)) => {}
            _ => instance.premises.push(first),
        },
        When::Let(name, value) => match env.eval(value) {
            Some(value) => instance.numbers.push((name, value)),
            None => {
                for value in 0..=64 {
                    let mut one = instance.clone();
                    one.numbers.push((name, value));
                    one.premises.push(first);
                    conditions(shape, rest, one, all);
                }
                return;
            }
        },
        When::Known(names, fact, of) => {
            let bits: u64 = of.first().map_or(64, bits_of);
            for found in domain(*fact, bits) {
                if shape.is_large && !found.iter().all(|number| ENDS.contains(number)) {
                    continue;
                }
                let mut one = instance.clone();
                one.numbers.extend(names.iter().map(String::as_str).zip(found));
                one.premises.push(first);
                conditions(shape, rest, one, all);
            }
            return;
        }
    }
    conditions(shape, rest, instance, all);
}

/// The possible results of a fact about so many bits.
fn domain(fact: Fact, bits: u64) -> Vec<Vec<u64>> {
    let one = |from: u64, to: u64| (from..=to).map(|value| vec![value]).collect();
    let two = |is: &dyn Fn(u64, u64) -> bool| {
        let all = (0..=bits).flat_map(|a| (0..=bits).map(move |b| (a, b)));
        all.filter(|(a, b)| is(*a, *b)).map(|(a, b)| vec![a, b]).collect()
    };
    match fact {
        Fact::Zeros | Fact::Ones | Fact::Same => two(&|l, n| n > 0 && l + n <= bits),
        Fact::Differ | Fact::Once | Fact::Division => vec![Vec::new()],
        Fact::Unsigned | Fact::Signed | Fact::Used => one(1, bits),
        Fact::Low => one(0, bits),
        Fact::Power | Fact::Unused => one(0, bits - 1),
        Fact::TwoBits => two(&|i, j| i < j && j < bits),
        Fact::Run => two(&|i, j| i < j && j <= bits),
    }
}

/// The width of every value; none if the rule leaves it open.
fn infer<'r>(
    shape: &Shape<'r>,
    term: &Term,
    numbers: &[(&'r str, u64)],
    default: Option<u16>,
) -> Option<Vec<Variable<'r>>> {
    let env: Env<'_, u16> = Env { values: Vec::new(), numbers: numbers.to_vec() };
    let mut known: Vec<(&str, Option<u16>)> = Vec::new();
    for (name, width, _) in &shape.values {
        // A named width counts as given.
        let width = width.map(|width| env.bits(width).unwrap_or(1));
        known.push((name, width));
    }
    spread(term, None, &env, &mut known);
    spread(term, None, &env, &mut known);
    if let Some(default) = default {
        known.iter_mut().for_each(|(_, width)| *width = width.or(Some(default)));
    }
    let variable = |((name, _, in_pairs), (_, bits)): (&(&'r str, _, bool), &(&str, Option<u16>))| {
        Some(Variable { name, bits: (*bits)?, pairs: in_pairs.then_some(shape.pairs) })
    };
    shape.values.iter().zip(&known).map(variable).collect()
}

/// Propagates widths between the terms of an operation.
fn spread(term: &Term, hint: Option<u16>, env: &Env<'_, u16>, known: &mut Vec<(&str, Option<u16>)>) -> Option<u16> {
    match term {
        Term::Any { .. } | Term::Number { .. } => {
            let own = term.name().and_then(|name| known.iter_mut().find(|(other, _)| *other == name));
            match (own, term) {
                (Some((_, width)), _) => {
                    *width = width.or(hint);
                    *width
                }
                (None, Term::Number { width: Some(width), .. }) => env.bits(width),
                (None, _) => hint,
            }
        }
        Term::Apply { op, numbers, args, .. } => {
            let mut among = |args: &[&Term], mut hint: Option<u16>| {
                for term in args.iter().chain(args) {
                    hint = spread(term, hint, env, known).or(hint);
                }
                hint
            };
            let plain: Vec<&Term> = args
                .iter()
                .flat_map(|item| match item {
                    Item::One(term) => vec![term],
                    Item::Pairs(condition, value) => vec![condition, value],
                })
                .collect();
            match op {
                Op::Binary(_) | Op::Not => among(&plain, hint),
                Op::Compare(_) => {
                    among(&plain, None);
                    Some(1)
                }
                Op::Select => {
                    let conditions: Vec<&Term> = plain[..plain.len() - 1].iter().step_by(2).copied().collect();
                    among(&conditions, Some(1));
                    let mut values: Vec<&Term> = plain.iter().skip(1).step_by(2).copied().collect();
                    values.extend(plain.last());
                    among(&values, hint)
                }
                Op::Slice => {
                    plain.iter().for_each(|term| _ = spread(term, None, env, known));
                    env.bits(&numbers[1])
                }
                Op::SignExtend | Op::Extend => {
                    plain.iter().for_each(|term| _ = spread(term, None, env, known));
                    env.bits(&numbers[0])
                }
                Op::Concat => plain.iter().map(|term| spread(term, None, env, known)).sum(),
            }
        }
    }
}
