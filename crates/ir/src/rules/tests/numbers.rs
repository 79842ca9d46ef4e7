// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every rule on numbers, by the semantics of the evaluator.

use flowloom_testkit::Rng;

use super::drawn;
use crate::arith;
use crate::graph::Kind;
use crate::rules::instance::{Instance, instances};
use crate::rules::term::{Bound, Env, Maker, build, holds};
use crate::rules::text::{Atom, Expr, Fact, Sign, When};
use crate::rules::{Rule, rules};

/// Numbers with their widths.
struct Numbers;

impl Maker for Numbers {
    type Value = (u64, u16);

    fn bits(&self, value: &(u64, u16)) -> u16 {
        value.1
    }

    fn number(&mut self, expr: &Expr, env: &Env<'_, (u64, u16)>, bits: u16) -> Option<(u64, u16)> {
        Some((arith::cut(env.eval(expr)?, bits), bits))
    }

    fn make(&mut self, kind: Kind, args: Vec<(u64, u16)>, bits: u16) -> (u64, u16) {
        let (values, widths): (Vec<u64>, Vec<u16>) = args.into_iter().unzip();
        (arith::apply(kind, &values, &widths, bits), bits)
    }
}

type Values<'r> = Env<'r, (u64, u16)>;

/// Values for an instance; constants are also numbers of the text.
fn given<'r>(instance: &Instance<'r>, mut draw: impl FnMut(u16) -> u64) -> Values<'r> {
    let mut env = Env { values: Vec::new(), numbers: instance.numbers.clone() };
    for one in &instance.variables {
        let bound = match one.pairs {
            None => Bound::One((draw(one.bits), one.bits)),
            Some(pairs) => Bound::Many((0..pairs).map(|_| (draw(one.bits), one.bits)).collect()),
        };
        env.values.push((one.name, bound));
    }
    with_numbers(env)
}

fn with_numbers(mut env: Values<'_>) -> Values<'_> {
    for (name, bound) in &env.values {
        if let (true, Bound::One((value, _))) = (name.starts_with(char::is_uppercase), bound) {
            env.numbers.retain(|(known, _)| known != name);
            env.numbers.push((name, *value));
        }
    }
    env
}

/// The bits from `low` on.
fn part(value: u64, low: u64, bits: u64) -> u64 {
    arith::cut(value.checked_shr(low as u32).unwrap_or(0), bits as u16)
}

fn is_so(when: &When, env: &Values<'_>) -> bool {
    let (names, fact, of) = match when {
        When::Let(name, value) => return env.eval(value) == env.number(name),
        When::Is(left, order, right) => return holds(env.eval(left).unwrap(), *order, env.eval(right).unwrap()),
        When::Known(names, fact, of) => (names, fact, of),
    };
    let all: Vec<(u64, u16)> = of.iter().filter_map(Expr::name).flat_map(|name| env.all(name)).collect();
    let found: Vec<u64> = names.iter().map(|name| env.number(name).unwrap()).collect();
    let value = of.first().and_then(|expr| env.eval(expr));
    match fact {
        Fact::Zeros => all.iter().all(|(value, _)| part(*value, found[0], found[1]) == 0),
        Fact::Ones => {
            all.iter().all(|(value, _)| part(*value, found[0], found[1]) == arith::cut(u64::MAX, found[1] as u16))
        }
        Fact::Same => {
            all.iter().all(|(value, _)| part(*value, found[0], found[1]) == part(all[0].0, found[0], found[1]))
        }
        Fact::Differ => all[0] != all[1],
        Fact::Unsigned => all.iter().all(|(value, _)| part(*value, 0, found[0]) == *value),
        Fact::Signed => all.iter().all(|(value, bits)| {
            let sign = arith::sign_extended(part(*value, 0, found[0]), found[0] as u16);
            arith::cut(sign, *bits) == *value
        }),
        Fact::Low => all.iter().all(|(value, _)| part(*value, 0, found[0]) == 0),
        Fact::Power => value == Some(1 << found[0]),
        Fact::TwoBits => value == Some(1 << found[0] | 1 << found[1]),
        Fact::Run => value == Some(1u64.checked_shl(found[1] as u32).unwrap_or(0).wrapping_sub(1 << found[0])),
        Fact::Once | Fact::Used | Fact::Unused | Fact::Division => true,
    }
}

/// Makes a condition hold, where that is easy.
fn make_so<'r>(when: &When, mut env: Values<'r>) -> Values<'r> {
    let (names, of, fact) = match when {
        When::Let(name, Expr { first: Atom::Name(of), rest }) => match rest.as_slice() {
            [(Sign::Mod, _)] => (std::slice::from_ref(name), vec![of.as_str()], Fact::Power),
            _ => return env,
        },
        When::Known(names, fact, of) => {
            let name = |expr: &Expr| match &expr.first {
                Atom::Name(name) => Some(name.clone()),
                Atom::Literal(_) => None,
            };
            let all: Vec<String> = of.iter().filter_map(name).collect();
            let shift = |number: u64| match of.first().map(|expr| expr.rest.as_slice()) {
                Some([(Sign::Sub, _)]) => number.wrapping_add(1),
                Some([(Sign::Add, _)]) => number.wrapping_sub(1),
                _ => number,
            };
            let found: Vec<u64> = names.iter().map(|name| env.number(name).unwrap()).collect();
            let run = |low: u64, bits: u64| arith::cut(u64::MAX, bits as u16) << low.min(63);
            let first = all.first().and_then(|name| env.all(name).first().copied()).map_or(0, |(value, _)| value);
            for (name, bound) in &mut env.values {
                if !all.iter().any(|known| known == name) {
                    continue;
                }
                let change = |(value, bits): &mut (u64, u16)| {
                    let new = match fact {
                        Fact::Zeros => *value & !run(found[0], found[1]),
                        Fact::Ones => *value | run(found[0], found[1]),
                        Fact::Same => *value & !run(found[0], found[1]) | first & run(found[0], found[1]),
                        Fact::Unsigned => part(*value, 0, found[0]),
                        Fact::Signed => arith::sign_extended(part(*value, 0, found[0]), found[0] as u16),
                        Fact::Low => *value & !run(0, found[0]),
                        Fact::Power => shift(1 << found[0]),
                        Fact::TwoBits => 1 << found[0] | 1 << found[1],
                        Fact::Run => 1u64.checked_shl(found[1] as u32).unwrap_or(0).wrapping_sub(1 << found[0]),
                        _ => *value,
                    };
                    *value = arith::cut(new, *bits);
                };
                match bound {
                    Bound::One(one) => change(one),
                    Bound::Many(many) => many.iter_mut().for_each(change),
                }
            }
            return with_numbers(env);
        }
        _ => return env,
    };
    // A distance modulo the width: the number itself.
    let value = env.number(&names[0]).unwrap();
    debug_assert_eq!(fact, Fact::Power);
    for (name, bound) in &mut env.values {
        if let (true, Bound::One((number, bits))) = (*name == of[0], bound) {
            *number = arith::cut(value, *bits);
        }
    }
    with_numbers(env)
}

/// Compares both sides if all conditions hold; returns whether they do.
fn compare(rule: &Rule, instance: &Instance<'_>, env: &Values<'_>) -> bool {
    if !instance.premises.iter().all(|when| is_so(when, env)) {
        return false;
    }
    let [from, to] = [&rule.from, &rule.to].map(|term| build(&mut Numbers, term, env, None));
    assert_eq!(from, to, "{} where {}: {:?}", rule.name, instance.about(), env.values);
    true
}

#[test]
fn rules_hold_on_all_numbers_of_few_bits() {
    for rule in rules() {
        let mut compared = 0u64;
        // A pattern of two halves and a remainder needs more bits.
        let widths: &[u16] = if rule.name == "mod-minus" { &[3, 4] } else { &[1, 2, 3] };
        for instance in instances(rule, widths, 10_000) {
            let bits: u32 =
                instance.variables.iter().map(|one| u32::from(one.bits) * one.pairs.unwrap_or(1) as u32).sum();
            if bits > 12 {
                continue;
            }
            for all in 0..1u64 << bits {
                let mut rest = all;
                let env = given(&instance, |bits| {
                    let value = arith::cut(rest, bits);
                    rest >>= bits;
                    value
                });
                compared += u64::from(compare(rule, &instance, &env));
            }
        }
        assert!(compared > 0, "{}", rule.name);
    }
}

#[test]
fn rules_hold_on_random_numbers_of_any_width() {
    let mut rng = Rng::from_env(1);
    for rule in rules() {
        let mut compared = 0;
        let all = instances(rule, &[1, 4, 8, 17, 32, 64], 5_000);
        for _ in 0..3000 {
            let instance = rng.pick(&all).clone();
            let mut env = given(&instance, |bits| drawn(&mut rng, bits));
            for when in &instance.premises {
                env = make_so(when, env);
            }
            compared += u32::from(compare(rule, &instance, &env));
        }
        assert!(compared > 50, "{}: {compared}", rule.name);
    }
}
