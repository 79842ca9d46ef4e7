// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proof obligations of rules in SMT-LIB 2, logic `QF_BV`.
//!
//! An obligation is proved by `unsat`: no assignment satisfies the rule's conditions and makes pattern and replacement
//! differ. Widths and positions are numbers in it, so a rule has one obligation for each assignment of these; constants
//! of the graph stay symbolic. A `select` with any number of pairs is checked with none, one and two of them: more
//! pairs are nested selects.

use super::Rule;
use super::instance::{Instance, built, instances};
use super::term::{Bound, Env, Maker, build};
use super::text::{Atom, Expr, Fact, Order, Sign, When};
use crate::arith;
use crate::graph::{Binary, Compare, Kind};
use crate::text::{BINARY, COMPARE};

/// A proof obligation; `unsat` proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The widths, positions and values of the instance.
    pub about: String,
    /// The obligation in SMT-LIB 2, self-contained.
    pub smt: String,
}

/// All obligations of a rule at these widths; if there are more than `limit`, those at the ends and in the middle.
///
/// # Errors
/// The replacement has another width than the pattern.
pub fn questions(rule: &Rule, widths: &[u16], limit: usize) -> Result<Vec<Question>, String> {
    instances(rule, widths, limit).iter().map(|instance| question(rule, instance)).collect()
}

fn question(rule: &Rule, instance: &Instance<'_>) -> Result<Question, String> {
    let about = instance.about();
    let [from, to] = [&rule.from, &rule.to].map(|term| built(&instance.variables, &instance.numbers, term));
    let mut smt = "(reset)\n(set-logic QF_BV)\n".to_owned();
    let mut env = Env { values: Vec::new(), numbers: instance.numbers.clone() };
    for one in &instance.variables {
        let parts = instance.premises.iter().find_map(|when| parts(when, one.name, one.bits, &env));
        let mut declared = |name: String| {
            match &parts {
                // A known fact is built into the formula: easier for the solver than an assumption.
                Some((bits, whole)) => {
                    if *bits > 0 {
                        smt.push_str(&format!("(declare-const {name}_ (_ BitVec {bits}))\n"));
                    }
                    let whole = whole.replace('?', &format!("{name}_"));
                    smt.push_str(&format!("(define-fun {name} () (_ BitVec {}) {whole})\n", one.bits));
                }
                None => smt.push_str(&format!("(declare-const {name} (_ BitVec {}))\n", one.bits)),
            }
            Formula { text: name, bits: one.bits }
        };
        let bound = match one.pairs {
            None => Bound::One(declared(one.name.to_owned())),
            Some(pairs) => Bound::Many((0..pairs).map(|at| declared(format!("{}{at}", one.name))).collect()),
        };
        env.values.push((one.name, bound));
    }
    for premise in &instance.premises {
        for formula in premises(premise, &env) {
            smt.push_str(&format!("(assert {formula})\n"));
        }
    }
    let is_by_definition = rule.when.iter().any(|when| matches!(when, When::Known(_, Fact::Division, _)));
    let mut formulas = Formulas { divisions: is_by_definition.then(Vec::new) };
    let mut formula = |term| build(&mut formulas, term, &env, None).ok().flatten();
    match (formula(&rule.from), formula(&rule.to)) {
        (Some(a), Some(b)) if from == to && a.bits == b.bits => {
            for (number, division) in formulas.divisions.unwrap_or_default().iter().enumerate() {
                smt.push_str(&definition(number, division));
            }
            smt.push_str(&format!("(assert (not (= {} {})))\n(check-sat)\n", a.text, b.text));
            Ok(Question { about, smt })
        }
        _ => Err(format!("rule `{}` at {about}: widths {from:?} and {to:?}", rule.name)),
    }
}

/// The formula of a value with a known fact: its free bits, and how it is composed of them. A known constant has no
/// free bits.
fn parts(when: &When, name: &str, bits: u16, env: &Env<'_, Formula>) -> Option<(u16, String)> {
    let When::Known(names, fact, of) = when else { return None };
    let found: Vec<u16> = names.iter().filter_map(|name| u16::try_from(env.number(name)?).ok()).collect();
    let first = of.first()?;
    let (count, is_one) = (*found.first()?, first.first == Atom::Name(name.to_owned()));
    let is_part = of.iter().any(|expr| expr.name() == Some(name)) && count > 0 && count < bits;
    match fact {
        Fact::Unsigned if is_part => Some((count, format!("((_ zero_extend {}) ?)", bits - count))),
        Fact::Signed if is_part => Some((count, format!("((_ sign_extend {}) ?)", bits - count))),
        Fact::Power | Fact::TwoBits | Fact::Run if is_one => {
            let value = match first.rest.as_slice() {
                [] => number_of(*fact, &found),
                [(Sign::Sub, Atom::Literal(less))] => number_of(*fact, &found).wrapping_add(*less),
                [(Sign::Add, Atom::Literal(more))] => number_of(*fact, &found).wrapping_sub(*more),
                _ => return None,
            };
            Some((0, format!("(_ bv{} {bits})", arith::cut(value, bits))))
        }
        _ => None,
    }
}

/// The number in a fact about numbers.
fn number_of(fact: Fact, found: &[u16]) -> u64 {
    let power = |at: usize| 1u64.checked_shl(found.get(at).copied().unwrap_or(0).into()).unwrap_or(0);
    match fact {
        Fact::TwoBits => power(0) | power(1),
        Fact::Run => power(1).wrapping_sub(power(0)),
        _ => power(0),
    }
}

/// The assumptions.
fn premises(when: &When, env: &Env<'_, Formula>) -> Vec<String> {
    match when {
        When::Let(name, value) => vec![format!("(= {} {})", number(env.number(name).unwrap_or(0)), wide(value, env))],
        When::Is(left, order, right) => {
            let (left, right) = (wide(left, env), wide(right, env));
            vec![match order {
                Order::Less => format!("(bvult {left} {right})"),
                Order::LessEqual => format!("(bvule {left} {right})"),
                Order::Greater => format!("(bvugt {left} {right})"),
                Order::GreaterEqual => format!("(bvuge {left} {right})"),
                Order::Equal => format!("(= {left} {right})"),
                Order::Different => format!("(distinct {left} {right})"),
            }]
        }
        When::Known(names, fact, of) => {
            let all: Vec<Formula> = of.iter().filter_map(Expr::name).flat_map(|name| env.all(name)).collect();
            let found: Vec<u64> = names.iter().filter_map(|name| env.number(name)).collect();
            let at = |place: usize| found.get(place).copied().unwrap_or(0) as u16;
            let part =
                |one: &Formula, low: u16, bits: u16| format!("((_ extract {} {low}) {})", low + bits - 1, one.text);
            let each = |formula: &dyn Fn(&Formula) -> Option<String>| all.iter().filter_map(formula).collect();
            let is = |value: u64, bits: u16| format!("(_ bv{} {bits})", arith::cut(value, bits));
            match fact {
                Fact::Zeros => each(&|one| Some(format!("(= {} {})", part(one, at(0), at(1)), is(0, at(1))))),
                Fact::Ones => each(&|one| Some(format!("(= {} {})", part(one, at(0), at(1)), is(u64::MAX, at(1))))),
                Fact::Same => {
                    let [first, others @ ..] = all.as_slice() else { return Vec::new() };
                    let same = |one| format!("(= {} {})", part(first, at(0), at(1)), part(one, at(0), at(1)));
                    others.iter().map(same).collect()
                }
                Fact::Differ => vec![format!("(distinct {} {})", all[0].text, all[1].text)],
                Fact::Unsigned => each(&|one| {
                    let rest = one.bits - at(0);
                    (rest > 0).then(|| format!("(= {} {})", part(one, at(0), rest), is(0, rest)))
                }),
                Fact::Signed => each(&|one| {
                    let rest = one.bits - at(0);
                    Some(format!("(= {} ((_ sign_extend {rest}) {}))", one.text, part(one, 0, at(0))))
                }),
                Fact::Low => each(&|one| (at(0) > 0).then(|| format!("(= {} {})", part(one, 0, at(0)), is(0, at(0))))),
                Fact::Power | Fact::TwoBits | Fact::Run => {
                    let found: Vec<u16> = found.iter().map(|number| *number as u16).collect();
                    vec![format!("(= {} {})", wide(&of[0], env), number(number_of(*fact, &found)))]
                }
                Fact::Once | Fact::Used | Fact::Unused | Fact::Division => Vec::new(),
            }
        }
    }
}

fn number(value: u64) -> String {
    format!("(_ bv{value} 64)")
}

/// A number of the rule's text in 64 bits, constants of the graph included.
fn wide(expr: &Expr, env: &Env<'_, Formula>) -> String {
    let atom = |atom: &Atom| match atom {
        Atom::Literal(value) => number(*value),
        Atom::Name(name) => match (env.number(name), env.value(name)) {
            (Some(value), _) => number(value),
            (None, Some(Bound::One(one))) => format!("((_ zero_extend {}) {})", 64 - one.bits, one.text),
            _ => name.clone(),
        },
    };
    let mut text = atom(&expr.first);
    for (sign, other) in &expr.rest {
        let sign = match sign {
            Sign::Add => "bvadd",
            Sign::Sub => "bvsub",
            Sign::Mul => "bvmul",
            Sign::Mod => "bvurem",
            Sign::And => "bvand",
            Sign::Or => "bvor",
            Sign::Xor => "bvxor",
            Sign::Left => "bvshl",
            Sign::Right => "bvlshr",
        };
        text = format!("({sign} {text} {})", atom(other));
    }
    text
}

#[derive(Debug, Clone)]
struct Formula {
    text: String,
    bits: u16,
}

/// If divisions are collected, quotient and remainder are characterised by [`definition`] instead of being computed,
/// which some solvers find easier.
#[derive(Default)]
struct Formulas {
    divisions: Option<Vec<Division>>,
}

/// Dividend, divisor, width.
type Division = (String, String, u16);

/// Quotient times divisor plus remainder is the dividend; for a constant divisor, without overflow and with a remainder
/// below it. This holds for every division, also by 0; stronger facts hold for variable divisors, which no rule needs.
fn definition(number: usize, (divided, by, bits): &Division) -> String {
    let (quotient, rest) = (format!("quotient{number}"), format!("rest{number}"));
    let mut smt = format!("(declare-const {quotient} (_ BitVec {bits}))\n(declare-const {rest} (_ BitVec {bits}))\n");
    smt.push_str(&format!("(assert (= {divided} (bvadd (bvmul {quotient} {by}) {rest})))\n"));
    if by.starts_with(char::is_uppercase) {
        let [a, b, q, r] = [divided, by, &quotient, &rest].map(|text| format!("((_ zero_extend {bits}) {text})"));
        smt.push_str(&format!("(assert (= {a} (bvadd (bvmul {q} {b}) {r})))\n"));
        smt.push_str(&format!("(assert (ite (= {by} (_ bv0 {bits})) (= {quotient} {by}) (bvult {rest} {by})))\n"));
    }
    smt
}

impl Maker for Formulas {
    type Value = Formula;

    fn bits(&self, value: &Formula) -> u16 {
        value.bits
    }

    fn number(&mut self, expr: &Expr, env: &Env<'_, Formula>, bits: u16) -> Option<Formula> {
        let text = match env.eval(expr) {
            Some(value) => format!("(_ bv{} {bits})", arith::cut(value, bits)),
            None => format!("((_ extract {} 0) {})", bits - 1, wide(expr, env)),
        };
        Some(Formula { text, bits })
    }

    fn make(&mut self, kind: Kind, args: Vec<Formula>, bits: u16) -> Formula {
        let texts: Vec<&str> = args.iter().map(|arg| arg.text.as_str()).collect();
        if let (Some(divisions), Kind::Binary(op @ (Binary::Div | Binary::Mod)), [a, b]) =
            (&mut self.divisions, kind, texts.as_slice())
        {
            let one = ((*a).to_owned(), (*b).to_owned(), bits);
            let number = divisions.iter().position(|known| *known == one).unwrap_or_else(|| {
                divisions.push(one);
                divisions.len() - 1
            });
            let name = if op == Binary::Div { "quotient" } else { "rest" };
            return Formula { text: format!("{name}{number}"), bits };
        }
        let text = match (kind, texts.as_slice()) {
            (Kind::Slice { low }, [one]) => format!("((_ extract {} {low}) {one})", low + bits - 1),
            (Kind::Concat, parts) => {
                let (first, others) = (parts[0].to_owned(), &parts[1..]);
                others.iter().fold(first, |below, above| format!("(concat {above} {below})"))
            }
            (Kind::SignExtend, [one]) => format!("((_ sign_extend {}) {one})", bits - args[0].bits),
            (Kind::Binary(op), [a, b]) => binary(op, a, b, bits),
            (Kind::Compare(how), [a, b]) => {
                let how = match how {
                    Compare::Equal => "=",
                    Compare::Below => "bvult",
                    Compare::SignedBelow => "bvslt",
                };
                format!("(ite ({how} {a} {b}) #b1 #b0)")
            }
            (Kind::Not, [one]) => format!("(bvnot {one})"),
            (Kind::Select, [pairs @ .., last]) => {
                let choose = |other: String, pair: &[&str]| format!("(ite (= {} #b1) {} {other})", pair[0], pair[1]);
                pairs.chunks_exact(2).rev().fold((*last).to_owned(), choose)
            }
            // No rule has other nodes; the solver reports the unknown word.
            _ => "unknown".to_owned(),
        };
        Formula { text, bits }
    }
}

fn binary(op: Binary, a: &str, b: &str, bits: u16) -> String {
    let is_zero = format!("(= {b} (_ bv0 {bits}))");
    // Distances count modulo the width.
    let distance = format!("(bvurem {b} (_ bv{} {bits}))", u64::from(bits));
    match op {
        Binary::Add => format!("(bvadd {a} {b})"),
        Binary::Sub => format!("(bvsub {a} {b})"),
        Binary::Mul => format!("(bvmul {a} {b})"),
        Binary::Div => format!("(ite {is_zero} (_ bv0 {bits}) (bvudiv {a} {b}))"),
        Binary::SignedDiv => format!("(ite {is_zero} (_ bv0 {bits}) (bvsdiv {a} {b}))"),
        Binary::Mod => format!("(ite {is_zero} {a} (bvurem {a} {b}))"),
        Binary::SignedMod => format!("(ite {is_zero} {a} (bvsrem {a} {b}))"),
        Binary::And => format!("(bvand {a} {b})"),
        Binary::Or => format!("(bvor {a} {b})"),
        Binary::Xor => format!("(bvxor {a} {b})"),
        Binary::ShiftLeft => format!("(bvshl {a} {distance})"),
        Binary::ShiftRight => format!("(bvlshr {a} {distance})"),
        Binary::SignedShiftRight => format!("(bvashr {a} {distance})"),
    }
}

/// Checks that the solver's operations agree with the evaluator's, on pairs of these numbers.
pub fn meaning_of_operations(numbers: &[u64], widths: &[u16]) -> Vec<Question> {
    let binaries = BINARY.map(|(op, _)| Kind::Binary(op));
    let kinds = binaries.into_iter().chain(COMPARE.map(|(how, _)| Kind::Compare(how)));
    let pairs: Vec<(u64, u64)> = numbers.iter().flat_map(|a| numbers.iter().map(|b| (*a, *b))).collect();
    let mut all = Vec::new();
    for kind in kinds.chain([Kind::Not, Kind::Slice { low: 1 }, Kind::Concat, Kind::SignExtend, Kind::Select]) {
        let mut differ = Vec::new();
        for bits in widths.iter().copied().filter(|bits| *bits < 32 || !matches!(kind, Kind::Concat)) {
            for (a, b) in &pairs {
                let one =
                    |value: u64, bits: u16| Formula { text: format!("(_ bv{} {bits})", arith::cut(value, bits)), bits };
                let (args, result) = match kind {
                    Kind::Binary(_) => (vec![one(*a, bits), one(*b, bits)], bits),
                    Kind::Compare(_) => (vec![one(*a, bits), one(*b, bits)], 1),
                    Kind::Concat => (vec![one(*a, bits), one(*b, bits), one(*a, 2)], 2 * bits + 2),
                    Kind::Slice { .. } if bits < 3 => continue,
                    Kind::Slice { .. } => (vec![one(*a, bits)], bits - 2),
                    Kind::SignExtend => (vec![one(*a, bits)], (bits + 5).min(64)),
                    Kind::Select => (vec![one(*a, 1), one(*a, bits), one(*b, 1), one(*b, bits), one(!*a, bits)], bits),
                    _ => (vec![one(*a, bits)], bits),
                };
                let widths: Vec<u16> = args.iter().map(|arg| arg.bits).collect();
                let values: Vec<u64> = match kind {
                    Kind::Concat => vec![*a, *b, *a],
                    Kind::Select => vec![*a, *a, *b, *b, !*a],
                    _ => vec![*a, *b],
                };
                let values: Vec<u64> =
                    values.iter().zip(&widths).map(|(value, bits)| arith::cut(*value, *bits)).collect();
                let expected = arith::apply(kind, &values, &widths, result);
                let formula = Formulas::default().make(kind, args, result);
                differ.push(format!("(not (= {} (_ bv{expected} {result})))", formula.text));
            }
        }
        let smt = format!("(reset)\n(set-logic QF_BV)\n(assert (or {}))\n(check-sat)\n", differ.join("\n"));
        all.push(Question { about: format!("{kind:?}"), smt });
    }
    all
}
