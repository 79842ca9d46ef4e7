// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The possible values of an offset, one-hot encoded.

use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::arith::cut;
use crate::graph::{Binary, Compare, Graph, Id, Kind, Node};

/// The most values of an offset.
pub(super) const MAX_PLACES: usize = 48;
/// The most offsets of a mux through which operations are pushed: beyond it they would be too many.
const MAX_PUSHED: usize = 24;
/// The most comparisons that are pushed through the muxes of one offset.
const MAX_COMPARISONS: u32 = 32;
/// The depth to which adders and selects are followed.
const MAX_DEPTH: usize = 200;

/// The possible values of a node, each with the bit that it has this value. At most one of the bits is 1, and none if
/// it has another value.
pub(super) type Bits = Rc<[(u64, Id)]>;

/// The value of a node for each possible value of one offset, with the bit that the offset has this value. The bits are
/// mutually exclusive; for other values of the offset the access is beyond the window and the node is unused. Values
/// picked at different offsets are never combined, even if some of the bits are equal.
#[derive(Debug, Clone)]
struct Cases {
    offset: Id,
    all: Rc<[(Id, Id)]>,
}

/// Memo tables over a growing graph.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The possible values of a node up to a bound, by node and bound.
    known: FxHashMap<(Id, u64), Option<Bits>>,
    /// The values picked from the packet.
    cases: FxHashMap<Id, Option<Cases>>,
    /// The comparisons pushed through the muxes of an offset.
    pushed: FxHashMap<Id, u32>,
    /// The nodes that are picked from the packet.
    muxes: FxHashSet<Id>,
    /// The maximum of each node.
    largest: Vec<u64>,
    depth: usize,
}

/// The OR of bits. Several bits are packed into one number that is compared with 0, so that the BDDs of path conditions
/// treat the result as one variable.
pub(super) fn any(graph: &mut Graph, mut bits: Vec<Id>) -> Id {
    let never = graph.number(0, 1);
    bits.sort();
    bits.dedup();
    bits.retain(|bit| *bit != never);
    match bits.as_slice() {
        [] => never,
        [one] => *one,
        [a, b] => graph.or(*a, *b),
        _ => {
            let parts = bits.chunks(64).map(<[Id]>::to_vec).collect::<Vec<_>>();
            let parts = parts.into_iter().map(|part| {
                let all = graph.concat(part);
                let zero = graph.number(0, graph.bits(all));
                let none = graph.compare(Compare::Equal, all, zero);
                graph.not(none)
            });
            let parts = parts.collect();
            any(graph, parts)
        }
    }
}

/// An offset without its constant addend.
fn without_constant(graph: &Graph, id: Id) -> Id {
    let node = graph.node(id);
    match (node.kind, node.args.as_slice()) {
        (Kind::Binary(Binary::Add), [a, b]) if graph.as_const(*b).is_some() => *a,
        (Kind::Binary(Binary::Add), [a, b]) if graph.as_const(*a).is_some() => *b,
        _ => id,
    }
}

impl Places {
    /// The possible values of a node up to `most`; larger values have no bit. `None` if there are too many.
    pub(super) fn within(&mut self, graph: &mut Graph, id: Id, most: u64) -> Option<Bits> {
        if let Some(known) = self.known.get(&(id, most)) {
            return known.clone();
        }
        self.depth += 1;
        let found = if self.depth < MAX_DEPTH { self.found(graph, id, most) } else { None };
        self.depth -= 1;
        let found = found.or_else(|| self.small(graph, id, most)).filter(|all| all.len() <= MAX_PLACES);
        let zero = graph.number(0, 1);
        let found = found.map(|all| all.into_iter().filter(|(_, bit)| *bit != zero).collect::<Bits>());
        self.known.insert((id, most), found.clone());
        found
    }

    fn found(&mut self, graph: &mut Graph, id: Id, most: u64) -> Option<BTreeMap<u64, Id>> {
        let node = graph.node(id).clone();
        let one = graph.number(1, 1);
        let as_is = |bits: Bits| bits.iter().copied().collect::<BTreeMap<u64, Id>>();
        match (node.kind, node.args.as_slice()) {
            (Kind::Const(value), _) => Some((value <= most).then_some((value, one)).into_iter().collect()),
            (Kind::Select, args) => self.selected(graph, args, most),
            (Kind::Binary(Binary::Add), [a, b]) => self.sum(graph, (*a, *b), node.bits, most),
            (Kind::Binary(Binary::Sub), [a, b]) => {
                let less = graph.as_const(*b)?;
                self.back(graph, *a, less, most)
            }
            (Kind::Binary(Binary::Mul), [a, b]) => {
                let factor = graph.as_const(*b).filter(|factor| *factor > 0)?;
                self.multiple(graph, *a, factor, node.bits, most)
            }
            (Kind::Binary(Binary::ShiftLeft), [a, b]) => {
                let by = graph.as_const(*b).filter(|by| *by < 32)?;
                self.multiple(graph, *a, 1 << by, node.bits, most)
            }
            (Kind::Binary(Binary::ShiftRight), [a, b]) => {
                let by = graph.as_const(*b).filter(|by| *by < u64::from(node.bits))? as u16;
                let rest = graph.slice(*a, by, node.bits - by);
                self.within(graph, rest, most).map(as_is)
            }
            (Kind::Binary(Binary::And), [a, b]) => {
                let (a, mask) =
                    graph.as_const(*b).map(|mask| (*a, mask)).or(graph.as_const(*a).map(|mask| (*b, mask)))?;
                // The mask is a contiguous run of ones.
                let (low, ones) = (mask.trailing_zeros() as u16, mask.count_ones() as u16);
                if mask == 0 || mask >> low != cut(u64::MAX, ones) {
                    return None;
                }
                let run = graph.slice(a, low, ones);
                let all = self.within(graph, run, most >> low)?;
                Some(all.iter().map(|(value, bit)| (value << low, *bit)).collect())
            }
            (Kind::SignExtend, [a]) => {
                let positive = cut(u64::MAX, graph.bits(*a).saturating_sub(1));
                self.within(graph, *a, most.min(positive)).map(as_is)
            }
            (Kind::Slice { low: 0 }, [a]) if self.largest(graph, *a) <= cut(u64::MAX, node.bits) => {
                self.within(graph, *a, most).map(as_is)
            }
            (Kind::Concat, parts) => {
                let (mut all, mut at) = (BTreeMap::from([(0, one)]), 0);
                for part in parts {
                    let left = most.checked_shr(at.into()).unwrap_or(0);
                    let own = self.within(graph, *part, left)?;
                    let pairs =
                        all.iter().flat_map(|(below, bit)| own.iter().map(move |(v, b)| (*below, *bit, *v, *b)));
                    let next = pairs.filter_map(|(below, bit, value, own)| {
                        let value = below | value.checked_shl(at.into()).unwrap_or(0);
                        (value <= most).then(|| (value, graph.and(bit, own)))
                    });
                    all = next.collect();
                    if all.len() > MAX_PLACES {
                        return None;
                    }
                    at += graph.bits(*part);
                }
                Some(all)
            }
            _ => None,
        }
    }

    /// A node about which nothing is known is compared with each number.
    fn small(&mut self, graph: &mut Graph, id: Id, most: u64) -> Option<BTreeMap<u64, Id>> {
        let bits = graph.bits(id);
        let most = most.min(self.largest(graph, id));
        if most >= MAX_PLACES as u64 {
            return None;
        }
        let numbers = (0..=most).map(|value| {
            let number = graph.number(value, bits);
            (value, self.equal(graph, id, number))
        });
        Some(numbers.collect())
    }

    fn equal(&mut self, graph: &mut Graph, id: Id, number: Id) -> Id {
        let cases = self.compared_cases(graph, Compare::Equal, &[id, number]);
        cases.unwrap_or_else(|| graph.compare(Compare::Equal, id, number))
    }

    fn selected(&mut self, graph: &mut Graph, args: &[Id], most: u64) -> Option<BTreeMap<u64, Id>> {
        let last = args.len() - 1;
        let mut arms: Vec<(Option<Id>, Bits)> = Vec::new();
        for pair in args[..last].chunks_exact(2) {
            arms.push((Some(pair[0]), self.within(graph, pair[1], most)?));
        }
        arms.push((None, self.within(graph, args[last], most)?));
        let mut numbers: Vec<u64> = arms.iter().flat_map(|(_, all)| all.iter().map(|(value, _)| *value)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.len() > MAX_PLACES {
            return None;
        }
        let never = graph.number(0, 1);
        let all = numbers.into_iter().map(|number| {
            let bit = |all: &Bits| all.iter().find(|(value, _)| *value == number).map_or(never, |(_, bit)| *bit);
            let parts = arms.iter().flat_map(|(when, all)| when.iter().copied().chain([bit(all)]));
            let parts = parts.collect();
            (number, graph.select(parts))
        });
        Some(all.collect())
    }

    fn multiple(&mut self, graph: &mut Graph, id: Id, factor: u64, bits: u16, most: u64) -> Option<BTreeMap<u64, Id>> {
        let largest = u128::from(self.largest(graph, id)) * u128::from(factor);
        if largest > u128::from(cut(u64::MAX, bits)) {
            return None;
        }
        let all = self.within(graph, id, most / factor)?;
        Some(all.iter().map(|(value, bit)| (value * factor, *bit)).collect())
    }

    /// The values of a node minus a constant: smaller values wrap around and are out of range.
    fn back(&mut self, graph: &mut Graph, id: Id, less: u64, most: u64) -> Option<BTreeMap<u64, Id>> {
        if cut(u64::MAX, graph.bits(id)) - cut(less, graph.bits(id)) < most {
            return None;
        }
        let all = self.within(graph, id, most.checked_add(less)?)?;
        Some(all.iter().filter_map(|(value, bit)| Some((value.checked_sub(less)?, *bit))).collect())
    }

    fn sum(&mut self, graph: &mut Graph, (a, b): (Id, Id), bits: u16, most: u64) -> Option<BTreeMap<u64, Id>> {
        let whole = cut(u64::MAX, bits);
        for (one, other) in [(a, b), (b, a)] {
            if let Some(number) = graph.as_const(other).filter(|number| *number > whole / 2) {
                return self.back(graph, one, whole - number + 1, most);
            }
        }
        if u128::from(self.largest(graph, a)) + u128::from(self.largest(graph, b)) > u128::from(whole) {
            return None;
        }
        // The operand that is expanded first is a sum itself rather than a header length.
        let (first, second) = if self.is_plain(graph, a, 0) && !self.is_plain(graph, b, 0) { (b, a) } else { (a, b) };
        let places = self.within(graph, first, most)?;
        let followed = without_constant(graph, first);
        let cases = self.cases(graph, second).filter(|cases| cases.offset == followed);
        let mut sums: BTreeMap<u64, Vec<Id>> = BTreeMap::new();
        for (place, bit) in places.iter() {
            // A field is read at this offset; without a value here it is beyond the window.
            let own = match &cases {
                Some(cases) => cases.all.iter().find(|(when, _)| when == bit).map(|(_, value)| *value),
                None => Some(second),
            };
            let Some(second) = own else { continue };
            for (more, other) in self.within(graph, second, most - place)?.iter() {
                let both = graph.and(*bit, *other);
                sums.entry(place + more).or_default().push(both);
            }
            if sums.len() > MAX_PLACES {
                return None;
            }
        }
        Some(sums.into_iter().map(|(sum, bits)| (sum, any(graph, bits))).collect())
    }

    /// Whether a node consists of fields without adders and selects.
    fn is_plain(&mut self, graph: &mut Graph, id: Id, depth: usize) -> bool {
        if self.muxes.contains(&id) || matches!(self.cases.get(&id), Some(Some(_))) {
            return true;
        }
        let node = graph.node(id).clone();
        match node.kind {
            Kind::Const(_) | Kind::Input(_) | Kind::Bytes { .. } => true,
            Kind::Select | Kind::Binary(Binary::Add | Binary::Sub) | Kind::Effect(_) => false,
            _ => depth < 8 && node.args.iter().all(|arg| self.is_plain(graph, *arg, depth + 1)),
        }
    }

    /// An AND-OR mux: each part under its bit, 0 if no bit is set.
    pub(super) fn muxed(&mut self, graph: &mut Graph, offset: Id, parts: Vec<(Id, Id)>, bits: u16) -> Id {
        let mut all = Vec::new();
        for (when, value) in &parts {
            let mask = graph.sign_extend(*when, bits);
            all.push(graph.and(mask, *value));
        }
        while all.len() > 1 {
            all = all.chunks(2).map(|pair| if let [a, b] = pair { graph.or(*a, *b) } else { pair[0] }).collect();
        }
        let id = all.pop().unwrap_or_else(|| graph.number(0, bits));
        if graph.as_const(id).is_none() {
            let is_wide = parts.len() > MAX_PUSHED;
            self.muxes.insert(id);
            self.cases.entry(id).or_insert((!is_wide).then(|| Cases { offset, all: parts.into() }));
        }
        id
    }

    /// Pushes arithmetic through the mux of its arguments.
    pub(super) fn computed(&mut self, graph: &mut Graph, node: &Node) -> Option<Id> {
        let cases = self.cases_of(graph, node.kind, &node.args, node.bits)?;
        Some(self.muxed(graph, cases.offset, cases.all.to_vec(), node.bits))
    }

    /// The values that were picked for a node, by offset.
    fn cases(&mut self, graph: &mut Graph, id: Id) -> Option<Cases> {
        if let Some(known) = self.cases.get(&id) {
            return known.clone();
        }
        let node = graph.node(id).clone();
        let is_simple =
            matches!(node.kind, Kind::Slice { .. } | Kind::Concat | Kind::SignExtend | Kind::Not | Kind::Binary(_));
        let found = if is_simple { self.cases_of(graph, node.kind, &node.args, node.bits) } else { None };
        self.cases.insert(id, found.clone());
        found
    }

    /// The values of a node whose arguments were picked at one offset or are constants.
    fn cases_of(&mut self, graph: &mut Graph, kind: Kind, args: &[Id], bits: u16) -> Option<Cases> {
        let mut of: Vec<Option<Cases>> = Vec::new();
        for arg in args {
            match graph.as_const(*arg) {
                Some(_) => of.push(None),
                None => of.push(Some(self.cases(graph, *arg)?)),
            }
        }
        let first = of.iter().flatten().next()?.clone();
        if of.iter().flatten().any(|other| other.offset != first.offset) {
            return None;
        }
        // Offsets for which an argument has no value are beyond the window.
        let mut all = Vec::new();
        for (when, _) in first.all.iter() {
            let own = args.iter().zip(&of).map(|(arg, cases)| match cases {
                Some(cases) => cases.all.iter().find(|(other, _)| other == when).map(|(_, value)| *value),
                None => Some(*arg),
            });
            if let Some(own) = own.collect::<Option<Vec<Id>>>() {
                all.push((*when, graph.make(kind, own, bits)));
            }
        }
        (!all.is_empty()).then(|| Cases { offset: first.offset, all: all.into() })
    }

    /// Pushes a comparison through the mux of its arguments.
    pub(super) fn compared_cases(&mut self, graph: &mut Graph, how: Compare, args: &[Id]) -> Option<Id> {
        let cases = self.cases_of(graph, Kind::Compare(how), args, 1)?;
        let pushed = self.pushed.entry(cases.offset).or_default();
        if *pushed >= MAX_COMPARISONS {
            return None;
        }
        *pushed += 1;
        let bits = cases.all.iter().map(|(when, value)| graph.and(*when, *value));
        let bits = bits.collect();
        Some(any(graph, bits))
    }

    /// A comparison of an offset, followed up to `most`, with a node that is not tracked; and the bit that deciding it
    /// takes values past `most`, which is allowed if `may_miss`.
    pub(super) fn compared_places(
        &mut self,
        graph: &mut Graph,
        how: Compare,
        args: &[Id],
        (most, may_miss): (u64, bool),
    ) -> Option<(Id, Option<Id>)> {
        let bits = graph.bits(args[0]);
        let number = (0..2).find(|place| graph.as_const(args[*place]).is_some());
        let cursor = match number {
            Some(number) => 1 - number,
            None => (0..2).rev().find(|place| !self.is_plain(graph, args[*place], 0))?,
        };
        let (id, other) = (args[cursor], args[1 - cursor]);
        if self.is_plain(graph, id, 0) || self.is_followed(graph, other, most) {
            return None;
        }
        let is_exact = self.largest(graph, other) <= most;
        let is_signed = how == Compare::SignedBelow;
        if !(is_exact || may_miss) || is_signed && self.largest(graph, id) > cut(u64::MAX, bits - 1) {
            return None;
        }
        let all = self.within(graph, id, most)?;
        // Values out of range are not below anything, everything is below them, and nothing equals them.
        let is_below_it = how != Compare::Equal && cursor == 1;
        let parts = all.iter().map(|(place, bit)| {
            let place = graph.number(*place, bits);
            let pair = if cursor == 1 { [other, place] } else { [place, other] };
            let holds = self.compared_cases(graph, how, &pair).unwrap_or_else(|| graph.compare(how, pair[0], pair[1]));
            let holds = if is_below_it { graph.not(holds) } else { holds };
            graph.and(*bit, holds)
        });
        let parts = parts.collect();
        let any_holds = any(graph, parts);
        let bit = if is_below_it { graph.not(any_holds) } else { any_holds };
        let missed = (!is_exact).then(|| {
            let inside = any(graph, all.iter().map(|(_, bit)| *bit).collect());
            let most = graph.number(most, bits);
            let is_more = graph.compare(Compare::Below, most, other);
            let outside = graph.not(inside);
            graph.and(is_more, outside)
        });
        Some((bit, missed))
    }

    /// Whether a node is an offset that can be tracked as well.
    fn is_followed(&mut self, graph: &mut Graph, id: Id, most: u64) -> bool {
        graph.as_const(id).is_none() && !self.is_plain(graph, id, 0) && self.within(graph, id, most).is_some()
    }

    pub(super) fn largest(&mut self, graph: &Graph, id: Id) -> u64 {
        for next in self.largest.len()..=id.index() {
            let node = &graph.nodes()[next];
            let of = |place: usize| self.largest[node.args[place].index()];
            let number = |place: usize| graph.as_const(node.args[place]);
            let whole = cut(u64::MAX, node.bits);
            let most = match node.kind {
                Kind::Const(value) => value,
                Kind::Slice { low } => of(0) >> low,
                Kind::Concat => {
                    let (mut total, mut at) = (0, 0);
                    for (place, arg) in node.args.iter().enumerate() {
                        total |= of(place).checked_shl(at).unwrap_or(0);
                        at += u32::from(graph.bits(*arg));
                    }
                    total
                }
                Kind::Select => {
                    let last = node.args.len() - 1;
                    (0..=last).filter(|place| *place == last || place % 2 == 1).map(of).max().unwrap_or(whole)
                }
                Kind::Binary(Binary::Add) => of(0).saturating_add(of(1)),
                Kind::Binary(Binary::And) => of(0).min(of(1)),
                Kind::Binary(Binary::Or) => {
                    let power = (of(0) | of(1)).checked_next_power_of_two();
                    power.and_then(|power| power.checked_mul(2)).map_or(whole, |power| power - 1)
                }
                Kind::Binary(Binary::Mul) => of(0).saturating_mul(of(1)),
                Kind::Binary(Binary::ShiftLeft) => match number(1) {
                    Some(by) if by < 64 && of(0).leading_zeros() as u64 >= by => of(0) << by,
                    _ => whole,
                },
                Kind::Binary(Binary::ShiftRight) => number(1).map_or(of(0), |by| of(0) >> (by % u64::from(node.bits))),
                Kind::SignExtend if of(0) <= cut(u64::MAX, graph.bits(node.args[0]).saturating_sub(1)) => of(0),
                _ => whole,
            };
            self.largest.push(if most > whole { whole } else { most });
        }
        self.largest[id.index()]
    }
}
