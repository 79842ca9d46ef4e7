// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pattern matching.

use super::bits::{self, Bit, Bits};
use super::term::{Bound, Env, holds};
use super::text::{Expr, Fact, Item, Op, Term, When};
use super::{Rule, Uses};
use crate::arith;
use crate::graph::{Binary, Compare, Graph, Id, Kind};

/// The graph on which a rule is tried.
pub(super) struct Site<'a> {
    pub(super) graph: &'a Graph,
    pub(super) bits: &'a mut Bits,
    pub(super) uses: &'a Uses,
}

type Found<'r> = Env<'r, Id>;

impl Site<'_> {
    /// The bindings with which a rule applies to a node.
    pub(super) fn find<'r>(&mut self, rule: &'r Rule, id: Id) -> Option<Found<'r>> {
        if !self.may_match(&rule.from, id) {
            return None;
        }
        let all = self.matches(&rule.from, id, Env::new());
        all.into_iter().find_map(|found| self.checked(&rule.when, found))
    }

    /// Whether a term may match a node, by operations and plain constants alone: a quick filter.
    fn may_match(&self, term: &Term, id: Id) -> bool {
        let node = self.graph.node(id);
        let (op, args) = match (term, node.kind) {
            (Term::Any { .. }, _) => return true,
            (Term::Number { value, .. }, Kind::Const(own)) => {
                let plain = if value.rest.is_empty() { Env::<Id>::new().eval(value) } else { None };
                return plain.is_none_or(|plain| arith::cut(plain, node.bits) == own);
            }
            (Term::Number { .. }, _) => return false,
            (Term::Apply { op, args, .. }, _) => (op, args.as_slice()),
        };
        let is_so = match (op, node.kind) {
            (Op::Binary(op), Kind::Binary(own)) => *op == own,
            (Op::Compare(how), Kind::Compare(own)) => *how == own,
            (Op::Not, Kind::Not) | (Op::Select, Kind::Select) => true,
            (Op::Slice, Kind::Slice { .. }) | (Op::SignExtend, Kind::SignExtend) => true,
            _ => false,
        };
        let may = |(item, id): (&Item, &Id)| match item {
            Item::One(term) => self.may_match(term, *id),
            Item::Pairs(..) => true,
        };
        let is_one = |(item, _): &(&Item, &Id)| matches!(item, Item::One(_));
        let ids = node.args.as_slice();
        let ones = args.iter().filter(|item| matches!(item, Item::One(_))).count();
        is_so
            && match (args, ids) {
                ([first, second], [a, b]) if commutes(node.kind) => {
                    may((first, a)) && may((second, b)) || may((first, b)) && may((second, a))
                }
                _ if ones == args.len() => args.len() == ids.len() && args.iter().zip(ids).all(may),
                // Terms before the first pairs, and after the last.
                _ => {
                    ones <= ids.len()
                        && args.iter().zip(ids).take_while(is_one).all(may)
                        && args.iter().rev().zip(ids.iter().rev()).take_while(is_one).all(may)
                }
            }
    }

    /// All bindings with which a term matches a node.
    fn matches<'r>(&self, term: &'r Term, id: Id, mut env: Found<'r>) -> Vec<Found<'r>> {
        let node = self.graph.node(id);
        match term {
            Term::Any { name, width } => {
                if !width.as_ref().is_none_or(|width| bind_number(&mut env, width, node.bits.into())) {
                    return Vec::new();
                }
                if bind(&mut env, name, id) { vec![env] } else { Vec::new() }
            }
            Term::Number { value, width } => {
                let Kind::Const(own) = node.kind else { return Vec::new() };
                if !width.as_ref().is_none_or(|width| bind_number(&mut env, width, node.bits.into())) {
                    return Vec::new();
                }
                let is_it = match value.name() {
                    Some(name) => {
                        env.numbers.push((name, own));
                        bind(&mut env, name, id)
                    }
                    None => env.eval(value).is_some_and(|value| arith::cut(value, node.bits) == own),
                };
                if is_it { vec![env] } else { Vec::new() }
            }
            Term::Apply { name, op, numbers, args } => {
                let is_so = match (op, node.kind) {
                    (Op::Binary(op), Kind::Binary(own)) => *op == own,
                    (Op::Compare(how), Kind::Compare(own)) => *how == own,
                    (Op::Not, Kind::Not) | (Op::Select, Kind::Select) => true,
                    (Op::Slice, Kind::Slice { low }) => {
                        bind_number(&mut env, &numbers[0], low.into())
                            && bind_number(&mut env, &numbers[1], node.bits.into())
                    }
                    (Op::SignExtend, Kind::SignExtend) => bind_number(&mut env, &numbers[0], node.bits.into()),
                    _ => false,
                };
                if !is_so || !name.as_ref().is_none_or(|name| bind(&mut env, name, id)) {
                    return Vec::new();
                }
                let mut all = self.items(args, &node.args, env.clone());
                if let ([Item::One(first), Item::One(second)], [a, b], true) =
                    (args.as_slice(), node.args.as_slice(), commutes(node.kind))
                {
                    let swapped = self.matches(first, *b, env);
                    all.extend(swapped.into_iter().flat_map(|env| self.matches(second, *a, env)));
                }
                all
            }
        }
    }

    fn items<'r>(&self, items: &'r [Item], nodes: &[Id], env: Found<'r>) -> Vec<Found<'r>> {
        let Some((item, rest)) = items.split_first() else {
            return if nodes.is_empty() { vec![env] } else { Vec::new() };
        };
        match item {
            Item::One(term) => {
                let Some((node, others)) = nodes.split_first() else { return Vec::new() };
                let all = self.matches(term, *node, env);
                all.into_iter().flat_map(|env| self.items(rest, others, env)).collect()
            }
            Item::Pairs(condition, value) => {
                let mut all = Vec::new();
                for end in (0..=nodes.len()).step_by(2) {
                    let (pairs, others) = nodes.split_at(end);
                    let each = |at: usize| pairs.iter().skip(at).step_by(2).copied().collect::<Vec<Id>>();
                    let mut env = env.clone();
                    if self.bind_all(&mut env, condition, each(0)) && self.bind_all(&mut env, value, each(1)) {
                        all.extend(self.items(rest, others, env));
                    }
                }
                all
            }
        }
    }

    fn bind_all<'r>(&self, env: &mut Found<'r>, term: &'r Term, nodes: Vec<Id>) -> bool {
        let is_number = matches!(term, Term::Number { .. });
        if is_number && nodes.iter().any(|node| self.graph.as_const(*node).is_none()) {
            return false;
        }
        let Some(name) = term.name() else { return false };
        env.values.push((name, Bound::Many(nodes)));
        true
    }

    fn checked<'r>(&mut self, when: &'r [When], mut env: Found<'r>) -> Option<Found<'r>> {
        for when in when {
            match when {
                When::Let(name, value) => {
                    let value = env.eval(value)?;
                    env.numbers.push((name, value));
                }
                When::Is(left, order, right) => {
                    if !holds(env.eval(left)?, *order, env.eval(right)?) {
                        return None;
                    }
                }
                When::Known(names, fact, of) => {
                    let found = self.fact(*fact, of, &env)?;
                    env.numbers.extend(names.iter().map(String::as_str).zip(found));
                }
            }
        }
        Some(env)
    }

    fn fact(&mut self, fact: Fact, of: &[Expr], env: &Found<'_>) -> Option<Vec<u64>> {
        let ids: Vec<Id> = of.iter().filter_map(Expr::name).flat_map(|name| env.all(name)).collect();
        let graph = self.graph;
        let all: Vec<_> = match fact {
            Fact::Power | Fact::TwoBits | Fact::Run | Fact::Once | Fact::Used | Fact::Unused => Vec::new(),
            _ => ids.iter().map(|id| self.bits.of(graph, *id)).collect(),
        };
        let number = |at: usize| of.get(at).and_then(|expr| env.eval(expr));
        let pair = |(a, b): (u64, u64)| vec![a, b];
        match fact {
            Fact::Zeros => bits::run(all[0].len(), |at| all[0][at] == Bit::Known(false)).map(pair),
            Fact::Ones => bits::run(all[0].len(), |at| all[0][at] == Bit::Known(true)).map(pair),
            Fact::Same => bits::run(all[0].len(), |at| all.iter().all(|one| one[at] == all[0][at])).map(pair),
            Fact::Differ => {
                let opposite = |(a, b): (&Bit, &Bit)| matches!((a, b), (Bit::Known(a), Bit::Known(b)) if a != b);
                all[0].iter().zip(all[1].iter()).any(opposite).then(Vec::new)
            }
            Fact::Unsigned => all.iter().map(|one| bits::unsigned(one)).max().map(|m| vec![m]),
            Fact::Signed => all.iter().map(|one| bits::signed(one)).max().map(|m| vec![m]),
            Fact::Low => all.iter().map(|one| bits::low(one)).min().map(|n| vec![n]),
            Fact::Power => bits::power(number(0)?).map(|k| vec![k]),
            Fact::TwoBits => bits::two_bits(number(0)?).map(pair),
            Fact::Run => bits::run_of_ones(number(0)?).map(pair),
            Fact::Once => (self.uses.of(*ids.first()?)?.count == 1).then(Vec::new),
            Fact::Used => Some(vec![self.uses.of(*ids.first()?)?.top.into()]),
            Fact::Unused => Some(vec![self.uses.of(*ids.first()?)?.bottom.into()]),
            Fact::Division => Some(Vec::new()),
        }
    }
}

/// Binds a name to a node; a bound name has to be the same node.
fn bind<'r>(env: &mut Found<'r>, name: &'r str, id: Id) -> bool {
    match env.value(name) {
        Some(known) => *known == Bound::One(id),
        None => {
            env.values.push((name, Bound::One(id)));
            true
        }
    }
}

/// Binds a name to a number; any other expression has to equal the number.
fn bind_number<'r>(env: &mut Found<'r>, expr: &'r Expr, value: u64) -> bool {
    match (env.eval(expr), expr.name()) {
        (Some(known), _) => known == value,
        (None, Some(name)) => {
            env.numbers.push((name, value));
            true
        }
        _ => false,
    }
}

fn commutes(kind: Kind) -> bool {
    match kind {
        Kind::Binary(op) => {
            matches!(op, Binary::Add | Binary::Mul | Binary::And | Binary::Or | Binary::Xor)
        }
        Kind::Compare(how) => how == Compare::Equal,
        _ => false,
    }
}
