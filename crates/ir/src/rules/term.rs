// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instantiation of terms: as nodes, numbers, or SMT formulas.

use super::text::{Atom, Expr, Item, Op, Order, Sign, Term};
use crate::graph::Kind;

/// The bindings of names.
#[derive(Debug, Clone)]
pub(super) struct Env<'r, V> {
    pub(super) values: Vec<(&'r str, Bound<V>)>,
    pub(super) numbers: Vec<(&'r str, u64)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Bound<V> {
    One(V),
    /// One for each pair.
    Many(Vec<V>),
}

impl<'r, V: Clone> Env<'r, V> {
    pub(super) fn new() -> Env<'r, V> {
        Env { values: Vec::new(), numbers: Vec::new() }
    }

    pub(super) fn value(&self, name: &str) -> Option<&Bound<V>> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.numbers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// All values bound to a name.
    pub(super) fn all(&self, name: &str) -> Vec<V> {
        match self.value(name) {
            Some(Bound::One(one)) => vec![one.clone()],
            Some(Bound::Many(many)) => many.clone(),
            None => Vec::new(),
        }
    }

    /// The value of an expression, if its names are bound.
    pub(super) fn eval(&self, expr: &Expr) -> Option<u64> {
        let atom = |atom: &Atom| match atom {
            Atom::Literal(value) => Some(*value),
            Atom::Name(name) => self.number(name),
        };
        let mut value = atom(&expr.first)?;
        for (sign, other) in &expr.rest {
            let other = atom(other)?;
            let distance = u32::try_from(other).unwrap_or(64);
            value = match sign {
                Sign::Add => value.wrapping_add(other),
                Sign::Sub => value.wrapping_sub(other),
                Sign::Mul => value.wrapping_mul(other),
                Sign::Mod => value.checked_rem(other).unwrap_or(value),
                Sign::And => value & other,
                Sign::Or => value | other,
                Sign::Xor => value ^ other,
                Sign::Left => value.checked_shl(distance).unwrap_or(0),
                Sign::Right => value.checked_shr(distance).unwrap_or(0),
            };
        }
        Some(value)
    }

    /// A width or position.
    pub(super) fn bits(&self, expr: &Expr) -> Option<u16> {
        u16::try_from(self.eval(expr)?).ok()
    }
}

pub(super) fn holds(left: u64, order: Order, right: u64) -> bool {
    match order {
        Order::Less => left < right,
        Order::LessEqual => left <= right,
        Order::Greater => left > right,
        Order::GreaterEqual => left >= right,
        Order::Equal => left == right,
        Order::Different => left != right,
    }
}

/// The domain in which terms are instantiated.
pub(super) trait Maker {
    type Value: Clone;
    fn bits(&self, value: &Self::Value) -> u16;
    fn number(&mut self, expr: &Expr, env: &Env<'_, Self::Value>, bits: u16) -> Option<Self::Value>;
    fn make(&mut self, kind: Kind, args: Vec<Self::Value>, bits: u16) -> Self::Value;
}

/// Instantiates a term: `Ok(None)` for zero bits, `Err` if its widths are inconsistent.
pub(super) fn build<M: Maker>(
    maker: &mut M,
    term: &Term,
    env: &Env<'_, M::Value>,
    hint: Option<u16>,
) -> Result<Option<M::Value>, ()> {
    match term {
        Term::Any { name, .. } => match env.value(name) {
            Some(Bound::One(value)) => Ok(Some(value.clone())),
            _ => Err(()),
        },
        Term::Number { value, width } => {
            let own = width.as_ref().map(|width| env.bits(width).ok_or(())).transpose()?;
            if let (Some(name), None) = (value.name(), own)
                && let Some(Bound::One(known)) = env.value(name)
            {
                return Ok(Some(known.clone()));
            }
            match own.or(hint).ok_or(())? {
                0 => Ok(None),
                bits if bits > 64 => Err(()),
                bits => maker.number(value, env, bits).map(Some).ok_or(()),
            }
        }
        Term::Apply { op, numbers, args, .. } => {
            let numbers: Vec<u16> = numbers.iter().map(|one| env.bits(one).ok_or(())).collect::<Result<_, _>>()?;
            apply(maker, *op, &numbers, args, env, hint)
        }
    }
}

fn apply<M: Maker>(
    maker: &mut M,
    op: Op,
    numbers: &[u16],
    args: &[Item],
    env: &Env<'_, M::Value>,
    hint: Option<u16>,
) -> Result<Option<M::Value>, ()> {
    match (op, args) {
        (Op::Binary(_) | Op::Compare(_), [Item::One(a), Item::One(b)]) => {
            let outer = if matches!(op, Op::Binary(_)) { hint } else { None };
            // The operand of known width determines the other.
            let (a, b) = match build(maker, a, env, outer) {
                Ok(Some(first)) => {
                    let bits = maker.bits(&first);
                    (Some(first), build(maker, b, env, Some(bits))?)
                }
                Ok(None) => (None, build(maker, b, env, Some(0))?),
                Err(()) => {
                    let second = build(maker, b, env, outer)?;
                    let bits = second.as_ref().map_or(0, |second| maker.bits(second));
                    (build(maker, a, env, Some(bits))?, second)
                }
            };
            let (a, b) = match (a, b) {
                (None, None) => return Ok(None),
                (Some(a), Some(b)) if maker.bits(&a) == maker.bits(&b) => (a, b),
                _ => return Err(()),
            };
            let (kind, bits) = match op {
                Op::Binary(op) => (Kind::Binary(op), maker.bits(&a)),
                Op::Compare(how) => (Kind::Compare(how), 1),
                _ => return Err(()),
            };
            Ok(Some(maker.make(kind, vec![a, b], bits)))
        }
        (Op::Not, [Item::One(one)]) => Ok(build(maker, one, env, hint)?.map(|one| {
            let bits = maker.bits(&one);
            maker.make(Kind::Not, vec![one], bits)
        })),
        (Op::Slice, [Item::One(one)]) => {
            let (low, bits) = (numbers[0], numbers[1]);
            let one = match build(maker, one, env, None)? {
                _ if bits == 0 => return Ok(None),
                Some(one) if low.checked_add(bits).is_some_and(|end| end <= maker.bits(&one)) => one,
                _ => return Err(()),
            };
            Ok(Some(maker.make(Kind::Slice { low }, vec![one], bits)))
        }
        (Op::Concat, parts) => {
            let mut all = Vec::new();
            for part in parts {
                let Item::One(part) = part else { return Err(()) };
                all.extend(build(maker, part, env, None)?);
            }
            joined(maker, all)
        }
        (Op::SignExtend, [Item::One(one)]) => {
            let one = build(maker, one, env, None)?.ok_or(())?;
            if maker.bits(&one) > numbers[0] {
                return Err(());
            }
            Ok(Some(maker.make(Kind::SignExtend, vec![one], numbers[0])))
        }
        (Op::Extend, [Item::One(one)]) => {
            let one = build(maker, one, env, None)?;
            let rest = numbers[0].checked_sub(one.as_ref().map_or(0, |one| maker.bits(one))).ok_or(())?;
            let mut all: Vec<M::Value> = one.into_iter().collect();
            if rest > 0 {
                let zero = Expr { first: Atom::Literal(0), rest: Vec::new() };
                all.push(maker.number(&zero, env, rest).ok_or(())?);
            }
            joined(maker, all)
        }
        (Op::Select, items) => selected(maker, items, env, hint),
        _ => Err(()),
    }
}

fn joined<M: Maker>(maker: &mut M, mut all: Vec<M::Value>) -> Result<Option<M::Value>, ()> {
    if all.len() < 2 {
        return Ok(all.pop());
    }
    match all.iter().map(|one| maker.bits(one)).sum() {
        bits if bits > 64 => Err(()),
        bits => Ok(Some(maker.make(Kind::Concat, all, bits))),
    }
}

fn selected<M: Maker>(
    maker: &mut M,
    items: &[Item],
    env: &Env<'_, M::Value>,
    hint: Option<u16>,
) -> Result<Option<M::Value>, ()> {
    let Some((Item::One(last), items)) = items.split_last() else { return Err(()) };
    // A constant default is as wide as the values before it.
    let mut widths = hint;
    let mut all = Vec::new();
    let mut is_condition = true;
    for item in items {
        match item {
            Item::One(term) => {
                let hint = if is_condition { Some(1) } else { widths };
                let value = build(maker, term, env, hint)?;
                if !is_condition {
                    widths = Some(value.as_ref().map_or(0, |value| maker.bits(value)));
                }
                all.push(value);
                is_condition = !is_condition;
            }
            Item::Pairs(condition, value) => {
                for number in 0..count(env, condition).max(count(env, value)) {
                    let one = at(env, number);
                    all.push(build(maker, condition, &one, Some(1))?);
                    let value = build(maker, value, &one, widths)?;
                    widths = Some(value.as_ref().map_or(0, |value| maker.bits(value)));
                    all.push(value);
                }
            }
        }
    }
    let last = build(maker, last, env, widths)?;
    let bits = last.as_ref().map_or(0, |last| maker.bits(last));
    let Some(last) = last else { return Ok(None) };
    if all.is_empty() {
        return Ok(Some(last));
    }
    let mut args: Vec<M::Value> = all.into_iter().collect::<Option<_>>().ok_or(())?;
    let fits = |(at, arg): (usize, &M::Value)| maker.bits(arg) == if at % 2 == 0 { 1 } else { bits };
    if args.len() % 2 != 0 || !args.iter().enumerate().all(fits) {
        return Err(());
    }
    args.push(last);
    Ok(Some(maker.make(Kind::Select, args, bits)))
}

/// The number of pairs of a term.
fn count<V: Clone>(env: &Env<'_, V>, term: &Term) -> usize {
    match term {
        Term::Any { .. } | Term::Number { .. } => match term.name().and_then(|name| env.value(name)) {
            Some(Bound::Many(many)) => many.len(),
            _ => 0,
        },
        Term::Apply { args, .. } => {
            let counts = args.iter().map(|item| match item {
                Item::One(term) => count(env, term),
                Item::Pairs(..) => 0,
            });
            counts.max().unwrap_or(0)
        }
    }
}

/// The bindings within one of the pairs.
fn at<'r, V: Clone>(env: &Env<'r, V>, number: usize) -> Env<'r, V> {
    let mut env = env.clone();
    for (_, bound) in &mut env.values {
        if let Bound::Many(many) = bound
            && let Some(one) = many.get(number)
        {
            *bound = Bound::One(one.clone());
        }
    }
    env
}
