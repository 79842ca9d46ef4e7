// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet offsets as linear sums, so that common terms cancel out.
//!
//! ```text
//!   l4 = ip + 4 * ihl        (l4 + 2) - (ip + 16) = 4 * ihl - 14: never 0, as 14 is no multiple of 4
//! ```
//!
//! Offsets are modulo 2^32; higher bits of a node do not matter. A narrower node is zero-extended.

use std::collections::BTreeMap;

use super::builder::Builder;
use crate::graph::{Binary, Compare, Id, Kind};

pub(super) const OFFSET_BITS: u16 = 32;
/// The range of an offset about which nothing is known.
const ANY: Span = Span { least: i32::MIN as i128, most: i32::MAX as i128 };
/// The depth to which nodes are followed.
const MAX_DEPTH: usize = 400;
/// The depth to which one comparison looks into nested selects.
const MAX_SELECT_DEPTH: usize = 6;
/// The most arms of a select that a comparison looks into.
const MAX_ARMS: usize = 16;
/// The budget of comparisons made for one comparison; past it, values are compared as numbers.
const MAX_COMPARISONS: usize = 256;

/// A constant, and nodes with their coefficients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Sum {
    pub(super) constant: i64,
    terms: BTreeMap<Id, i64>,
}

/// A range of values, both ends included. Sums of nodes times coefficients, each of 32 bits, never overflow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) least: i128,
    pub(super) most: i128,
}

impl Span {
    fn of(number: i64) -> Span {
        Span { least: number.into(), most: number.into() }
    }

    fn of_bits(bits: u16) -> Span {
        if bits >= OFFSET_BITS { ANY } else { Span { least: 0, most: (1 << bits) - 1 } }
    }

    fn is_in(self, other: Span) -> bool {
        other.least <= self.least && self.most <= other.most
    }

    fn plus(self, other: Span) -> Span {
        Span { least: self.least + other.least, most: self.most + other.most }
    }

    fn times(self, factor: i64) -> Span {
        let ends = [self.least, self.most].map(|end| end * i128::from(factor));
        Span { least: ends[0].min(ends[1]), most: ends[0].max(ends[1]) }
    }

    fn with(self, other: Span) -> Span {
        Span { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    /// Whether the range contains a multiple of 2^32.
    fn has_zero(self) -> bool {
        let multiple = self.most.div_euclid(1 << OFFSET_BITS) << OFFSET_BITS;
        multiple >= self.least
    }
}

impl Sum {
    pub(super) fn of(constant: i64) -> Sum {
        Sum { constant, terms: BTreeMap::new() }
    }

    fn term(id: Id) -> Sum {
        Sum { constant: 0, terms: BTreeMap::from([(id, 1)]) }
    }

    pub(super) fn plus(mut self, other: &Sum, times: i64) -> Sum {
        self.constant = signed(self.constant.wrapping_add(other.constant.wrapping_mul(times)));
        for (id, count) in &other.terms {
            let all = self.terms.entry(*id).or_insert(0);
            *all = signed(all.wrapping_add(count.wrapping_mul(times)));
        }
        self.terms.retain(|_, count| *count != 0);
        self
    }
}

/// A number modulo 2^32, as a signed number.
fn signed(number: i64) -> i64 {
    i64::from(number as i32)
}

impl Builder<'_> {
    pub(super) fn sum_of(&mut self, id: Id) -> Sum {
        if let Some(known) = self.sums.get(&id) {
            return known.clone();
        }
        // Nothing is claimed about a node past the depth limit.
        self.depth += 1;
        let sum = if self.depth < MAX_DEPTH { self.sum(id) } else { None };
        self.depth -= 1;
        let sum = sum.unwrap_or_else(|| Sum::term(id));
        self.sums.insert(id, sum.clone());
        sum
    }

    fn sum(&mut self, id: Id) -> Option<Sum> {
        let node = self.graph.node(id).clone();
        let is_wide = node.bits >= OFFSET_BITS;
        let sum = match (node.kind, node.args.as_slice()) {
            (Kind::Const(value), _) => Sum::of(if is_wide { signed(value as i64) } else { value as i64 }),
            (Kind::Binary(Binary::Add), [a, b]) => self.sum_of(*a).plus(&self.sum_of(*b), 1),
            (Kind::Binary(Binary::Sub), [a, b]) => self.sum_of(*a).plus(&self.sum_of(*b), -1),
            (Kind::Binary(Binary::Mul), [a, b]) => {
                let (a, b) = if self.graph.as_const(*a).is_some() { (*b, *a) } else { (*a, *b) };
                let factor = self.graph.as_const(b)?;
                Sum::of(0).plus(&self.sum_of(a), signed(factor as i64))
            }
            (Kind::Binary(Binary::ShiftLeft), [a, by]) => {
                let by = self.graph.as_const(*by).filter(|by| *by < 31)?;
                Sum::of(0).plus(&self.sum_of(*a), 1 << by)
            }
            (Kind::Binary(Binary::And), [a, b]) => {
                let (a, b) = if self.graph.as_const(*a).is_some() { (*b, *a) } else { (*a, *b) };
                let mask = self.graph.as_const(b)?;
                let sum = self.sum_of(a);
                let ones = mask.trailing_ones().min(OFFSET_BITS.into());
                let is_low =
                    mask == (1 << ones) - 1 && self.span_of(&sum).is_in(Span { least: 0, most: (1 << ones) - 1 });
                (is_low || ones >= OFFSET_BITS.into()).then_some(sum)?
            }
            (Kind::Concat, parts) => {
                let (mut sum, mut at) = (Sum::of(0), 0);
                for part in parts {
                    if at < OFFSET_BITS {
                        sum = sum.plus(&self.sum_of(*part), 1 << at);
                    }
                    at += self.graph.bits(*part);
                }
                sum
            }
            (Kind::Slice { low: 0 }, [a]) => self.sum_of(*a),
            (Kind::SignExtend, [a]) => {
                let bits = self.graph.bits(*a);
                let sum = self.sum_of(*a);
                let is_positive = bits < OFFSET_BITS && self.span_of(&sum).is_in(Span::of_bits(bits - 1));
                (bits >= OFFSET_BITS || is_positive).then_some(sum)?
            }
            _ => return None,
        };
        // A node narrower than an offset must not have wrapped around.
        (is_wide || self.span_of(&sum).is_in(Span::of_bits(node.bits))).then_some(sum)
    }

    pub(super) fn span_of(&mut self, sum: &Sum) -> Span {
        let mut span = Span::of(sum.constant);
        for (id, count) in &sum.terms {
            span = span.plus(self.span(*id).times(*count));
        }
        span
    }

    /// Whether a sum is non-negative.
    pub(super) fn is_positive(&mut self, sum: &Sum) -> bool {
        self.span_of(sum).is_in(Span { least: 0, ..ANY })
    }

    fn span(&mut self, id: Id) -> Span {
        if let Some(known) = self.spans.get(&id) {
            return *known;
        }
        let node = self.graph.node(id).clone();
        let bits = Span::of_bits(node.bits);
        self.depth += 1;
        let found = match (node.kind, node.args.as_slice()) {
            _ if self.depth >= MAX_DEPTH => None,
            (Kind::Const(value), _) if node.bits >= OFFSET_BITS => Some(Span::of(signed(value as i64))),
            (Kind::Const(value), _) => Some(Span::of(value as i64)),
            (Kind::Select, [pairs @ .., last]) => {
                let mut all = self.span(*last);
                for pair in pairs.chunks_exact(2) {
                    all = all.with(self.span(pair[1]));
                }
                Some(all)
            }
            (Kind::Binary(Binary::And), args) => {
                let masks = args.iter().filter_map(|arg| self.graph.as_const(*arg));
                let masks = masks.map(i128::from).filter(|mask| *mask <= ANY.most);
                let masked = masks.min().map(|most| Span { least: 0, most });
                let own = self.sum(id);
                own.map(|sum| self.span_of(&sum)).or(masked)
            }
            (Kind::Binary(Binary::ShiftRight), [_, by]) => {
                // Of a distance only the low bits count.
                let by = (self.graph.as_const(*by).unwrap_or(0) % u64::from(node.bits)) as u16;
                Some(Span::of_bits(node.bits - by))
            }
            (Kind::Binary(Binary::Mod), [_, by]) => {
                let by = self.graph.as_const(*by).filter(|by| *by > 0 && *by <= ANY.most as u64);
                by.map(|by| Span { least: 0, most: i128::from(by) - 1 })
            }
            (Kind::SignExtend, [one]) => {
                let half = 1i128 << (self.graph.bits(*one).clamp(1, OFFSET_BITS) - 1);
                Some(Span { least: -half, most: half - 1 })
            }
            (Kind::Binary(_) | Kind::Concat | Kind::Slice { low: 0 }, _) => self.sum(id).map(|sum| self.span_of(&sum)),
            _ => None,
        };
        self.depth -= 1;
        let span = found.filter(|found| found.is_in(bits)).unwrap_or(bits);
        self.spans.insert(id, span);
        span
    }

    /// A sum without its constant as a node: 32 bits; `None` if the sum is constant.
    pub(super) fn base(&mut self, sum: &Sum) -> Option<Id> {
        let mut total = None;
        let (less, more): (Vec<_>, Vec<_>) = sum.terms.iter().partition(|(_, count)| **count < 0);
        for (id, count) in more {
            let part = self.times(*id, *count);
            total = Some(total.map_or(part, |total| self.graph.binary(Binary::Add, total, part)));
        }
        for (id, count) in less {
            let part = self.times(*id, -count);
            let before = total.unwrap_or_else(|| self.graph.number(0, OFFSET_BITS));
            total = Some(self.graph.binary(Binary::Sub, before, part));
        }
        total
    }

    fn times(&mut self, id: Id, count: i64) -> Id {
        let one = self.graph.fit(id, OFFSET_BITS);
        if count.count_ones() == 1 {
            let zeros = count.trailing_zeros() as u16;
            if zeros == 0 {
                return one;
            }
            let kept = self.graph.slice(one, 0, OFFSET_BITS - zeros);
            let zeros = self.graph.number(0, zeros);
            return self.graph.concat(vec![zeros, kept]);
        }
        let factor = self.graph.number(count as u64, OFFSET_BITS);
        self.graph.binary(Binary::Mul, one, factor)
    }

    /// A sum as a node: 32 bits.
    pub(super) fn offset(&mut self, sum: &Sum) -> Id {
        let constant = self.graph.number(sum.constant as u64, OFFSET_BITS);
        match self.base(sum) {
            Some(base) => self.graph.binary(Binary::Add, base, constant),
            None => constant,
        }
    }

    /// The bit that a sum is 0.
    pub(super) fn is_zero(&mut self, sum: &Sum) -> Id {
        self.comparisons_left = MAX_COMPARISONS;
        self.is_zero_inside(sum, 0)
    }

    fn is_zero_inside(&mut self, sum: &Sum, depth: usize) -> Id {
        if let Some(known) = self.zeros.get(sum) {
            return *known;
        }
        let bit = match self.may_be_zero(sum) {
            false => self.graph.number(0, 1),
            true => self.compared(sum, depth),
        };
        self.zeros.insert(sum.clone(), bit);
        bit
    }

    /// Whether a sum may be 0, by its range and its divisors.
    pub(super) fn may_be_zero(&mut self, sum: &Sum) -> bool {
        let zeros = sum.terms.values().map(|count| count.trailing_zeros()).min().unwrap_or(OFFSET_BITS.into());
        let is_multiple = sum.constant.trailing_zeros() >= zeros.min(OFFSET_BITS.into());
        is_multiple && self.span_of(sum).has_zero()
    }

    fn compared(&mut self, sum: &Sum, depth: usize) -> Id {
        // The latest select is expanded first.
        let select = sum.terms.keys().rev().copied().find(|id| {
            let node = self.graph.node(*id);
            node.kind == Kind::Select && node.args.len() < 2 * MAX_ARMS
        });
        if let Some(id) = select.filter(|_| depth < MAX_SELECT_DEPTH && self.comparisons_left > 0) {
            let count = sum.terms[&id];
            let without = sum.clone().plus(&Sum::term(id), -count);
            let parts = self.graph.node(id).args.clone();
            let last = parts.len() - 1;
            let parts = parts.iter().enumerate().map(|(place, part)| {
                if place != last && place % 2 == 0 {
                    return *part;
                }
                let own = self.sum_of(*part);
                self.comparisons_left = self.comparisons_left.saturating_sub(1);
                self.is_zero_inside(&without.clone().plus(&own, count), depth + 1)
            });
            let parts = parts.collect();
            return self.graph.select(parts);
        }
        let (terms, zero) = (sum.terms.clone(), sum.constant);
        // A single term: its coefficient is divided out of both sides.
        if let (Some((id, count)), 1, true) = (terms.first_key_value(), terms.len(), self.has_one_zero(sum)) {
            if zero % count != 0 {
                return self.graph.number(0, 1);
            }
            let bits = self.graph.bits(*id).min(OFFSET_BITS);
            let (low, value) = (self.graph.slice(*id, 0, bits), self.graph.number((-zero / count) as u64, bits));
            return self.graph.compare(Compare::Equal, low, value);
        }
        let less: BTreeMap<Id, i64> = terms.iter().filter(|(_, c)| **c < 0).map(|(id, c)| (*id, -c)).collect();
        let more: BTreeMap<Id, i64> = terms.into_iter().filter(|(_, count)| *count > 0).collect();
        let (more, less) = (Sum { constant: zero, terms: more }, Sum { constant: 0, terms: less });
        let (more, less) = (self.offset(&more), self.offset(&less));
        self.graph.compare(Compare::Equal, more, less)
    }

    /// Whether a sum that is 0 modulo 2^32 is 0.
    fn has_one_zero(&mut self, sum: &Sum) -> bool {
        let span = self.span_of(sum);
        span.is_in(Span { least: 1 - (1 << OFFSET_BITS), most: (1 << OFFSET_BITS) - 1 })
    }
}
