// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parse of headers: answers of `fl_parse` as values, from the data of the parse graph.
//!
//! ```text
//!   reached(ipv4) = valid(ethernet) and type = 0800  or  valid(vlan) and type = 0800
//!   start(ipv4)   = select reached(vlan) 18  14
//!   valid(ipv4)   = reached, present, version = 4, length >= 20, its end not after that of the IP packet
//! ```
//!
//! Each node of the parse graph has its values once, however many paths lead to it: at most one of these was taken. The
//! values of a node that is not reached are meaningless. Only nodes that lead to an asked header are made.

use std::collections::BTreeSet;

use flowloom_isa::op::Cond;
use flowloom_wire::graph::{Check, ETHERNET, Extent, Header, HeaderOption, Length, Node, Slice};
use flowloom_wire::{Graph, Question};
use rustc_hash::FxHashMap;

use super::builder::Builder;
use super::offset::{OFFSET_BITS, Sum};
use super::state::{Place, Region, State};
use crate::bdd::Bdd;
use crate::graph::{Binary, Compare, Id, Input, Kind};
use crate::refusal::Reason;

/// The width of the length of a payload in bits.
const LENGTH_BITS: u16 = 16;
/// Length of the longest header with options, in bytes.
const LONGEST_HEADER: u8 = 60;
/// The kind of an option that ends all options.
const LAST_OPTION: u64 = 0;
/// The kind of an option of a single byte.
const NO_OPTION: u64 = 1;

/// The values of a node of the parse graph.
#[derive(Debug, Clone, Copy)]
struct Parsed {
    /// Whether a path leads to it: one bit.
    reached: Id,
    /// The offset of the header: 32 bits.
    start: Id,
    /// Whether its first bytes, which a parser inspects, are present: one bit.
    present: Id,
    /// Whether the header is valid: one bit.
    valid: Id,
    /// Its length: 32 bits.
    len: Id,
    /// The offset of the next header: 32 bits.
    end: Id,
    /// The offset at which the IP packet ends: 32 bits.
    limit: Id,
}

/// A header and its offset.
#[derive(Debug, Clone, Copy)]
struct Found {
    valid: Id,
    start: Id,
    /// The bytes of the IP packet after the header: 16 bits.
    left: Id,
}

/// The nodes parsed so far.
#[derive(Debug, Default)]
pub(super) struct Headers {
    nodes: FxHashMap<usize, Parsed>,
    headers: FxHashMap<Header, Found>,
    /// The sets of headers whose offsets were asked for, by the node that addresses are computed from.
    bases: FxHashMap<Id, u32>,
}

impl<'a> Builder<'a> {
    /// The answer of `fl_parse`: 64 bits.
    pub(super) fn parse_headers(&mut self, state: &State) -> Result<Id, Reason> {
        let number = self.number_argument(state, 2)?;
        let number = self.graph.as_const(number).ok_or(Reason::Question)?;
        let is_as_received = self.graph.as_const(state.head) == Some(0) && state.tail == self.received_length();
        if !is_as_received || state.kept.is_some() || !state.packet.is_empty() || !state.overlays.is_empty() {
            return Err(Reason::LateParse);
        }
        let answer = match Question::decode(number) {
            None => self.graph.number(0, 64),
            Some(Question::Valid(set)) => {
                let bits = Header::ALL.map(|header| match set & header.bit() {
                    0 => self.graph.number(0, 1),
                    _ => self.header(header).valid,
                });
                self.graph.concat(bits.to_vec())
            }
            Some(Question::Offset(set)) => {
                let offset = self.of_first(set, OFFSET_BITS, |found| found.start);
                let sum = self.sum_of(offset);
                if let Some(base) = self.base(&sum).filter(|_| sum.constant == 0) {
                    self.graph.align_bytes(base);
                    self.parsed_headers.bases.insert(base, set);
                }
                offset
            }
            Some(Question::Payload(set)) => self.of_first(set, LENGTH_BITS, |found| found.left),
            Some(Question::Protocol(scope)) => {
                let yields = |node: &Node| node.next.ip_proto.filter(|(of, _)| *of == scope);
                let mut parts = Vec::new();
                // The last one on a path counts.
                for (index, node) in self.headers().nodes().iter().enumerate().rev() {
                    if let Some((_, slice)) = yields(node) {
                        let own = self.parsed(index);
                        parts.extend([own.valid, self.field(own, slice)]);
                    }
                }
                parts.push(self.graph.number(0, 8));
                self.graph.select(parts)
            }
        };
        Ok(self.graph.fit(answer, 64))
    }

    /// Whether the bytes before an address are known to be present: a header that is valid on the path ends there or
    /// later.
    pub(super) fn is_parsed(&mut self, state: &State, place: &Place) -> bool {
        let set = place
            .moved
            .filter(|_| place.region == Region::Packet)
            .and_then(|base| self.parsed_headers.bases.get(&base));
        let Some(set) = set.copied().filter(|_| state.tail == self.received_length()) else { return false };
        let sure = self.first_valid(self.path, set);
        sure.and_then(|header| self.headers().min_bytes(header)).is_some_and(|bytes| place.offset <= bytes.into())
    }

    /// The first header of a set that is valid, where a path tells: this one is valid, those before it are not or
    /// cannot be beside it.
    fn first_valid(&mut self, path: Bdd, set: u32) -> Option<Header> {
        let mut before = 0;
        for header in Header::ALL.into_iter().filter(|header| set & header.bit() != 0) {
            let valid = self.header(header).valid;
            let valid = self.conditions.of(&self.graph, valid);
            if self.implies(path, valid) {
                return self.excludes(header, before).then_some(header);
            }
            let not = self.conditions.not(valid);
            if !self.implies(path, not) {
                before |= header.bit();
            }
        }
        None
    }

    /// Whether no packet has both a header and one of a set.
    fn excludes(&self, header: Header, set: u32) -> bool {
        let nodes = self.headers().nodes();
        // The headers with which each node can be reached together, by node and by what is before it.
        let (mut seen, mut work) = (BTreeSet::new(), vec![(ETHERNET, 0)]);
        let asked = set | header.bit();
        while let Some((index, before)) = work.pop() {
            if !seen.insert((index, before)) {
                continue;
            }
            for after in nodes[index].valid_after(before) {
                let after = after & asked;
                if after & header.bit() != 0 && after & set != 0 {
                    return false;
                }
                work.extend(nodes[index].next.successors().map(|to| (to, after)));
            }
        }
        true
    }

    /// The base of an access, and how far after it the place is. On a path with a valid header this is the offset of
    /// the header, whether it is valid or not, so that the access does not wait for the parser to know.
    pub(super) fn placed(&mut self, path: Bdd, moved: Option<Id>) -> (Option<Id>, i64) {
        let Some(set) = moved.and_then(|base| self.parsed_headers.bases.get(&base)).copied() else { return (moved, 0) };
        let headers: Vec<Header> = Header::ALL.into_iter().filter(|header| set & header.bit() != 0).collect();
        let start = match self.first_valid(path, set) {
            Some(header) => Some(self.header(header).start),
            None => {
                // Any of several at one offset.
                let all: Vec<Found> = headers.into_iter().map(|header| self.header(header)).collect();
                let mut any = Bdd::FALSE;
                for found in &all {
                    let valid = self.conditions.of(&self.graph, found.valid);
                    any = self.conditions.or(any, valid);
                }
                let start = all.first().map(|found| found.start);
                start.filter(|start| all.iter().all(|found| found.start == *start) && self.implies(path, any))
            }
        };
        let Some(start) = start else { return (moved, 0) };
        let sum = self.sum_of(start);
        let base = self.base(&sum);
        base.into_iter().for_each(|base| self.graph.align_bytes(base));
        (base, sum.constant)
    }

    fn implies(&mut self, path: Bdd, condition: Bdd) -> bool {
        let not = self.conditions.not(condition);
        self.conditions.and(path, not) == Bdd::FALSE
    }

    fn headers(&self) -> &'a Graph {
        self.program.headers()
    }

    /// The length of the packet as received: 32 bits.
    fn received_length(&mut self) -> Id {
        let length = self.graph.make(Kind::Input(Input::Length), Vec::new(), 16);
        self.graph.fit(length, OFFSET_BITS)
    }

    /// A value of the first valid header of a set; 0 if there is none.
    fn of_first(&mut self, set: u32, bits: u16, value: fn(&Found) -> Id) -> Id {
        let mut parts = Vec::new();
        for header in Header::ALL.into_iter().filter(|header| set & header.bit() != 0) {
            let found = self.header(header);
            parts.extend([found.valid, value(&found)]);
        }
        parts.push(self.graph.number(0, bits));
        self.graph.select(parts)
    }

    /// A header in any node: the first of several nodes that set its validity counts.
    fn header(&mut self, header: Header) -> Found {
        if let Some(known) = self.parsed_headers.headers.get(&header) {
            return *known;
        }
        let mut all = Vec::new();
        for (index, node) in self.headers().nodes().iter().enumerate() {
            if node.header == Some(header) {
                let Parsed { valid, start, end, limit, .. } = self.parsed(index);
                let (from, to) = (self.sum_of(end), self.sum_of(limit));
                let left = self.offset(&to.plus(&from, -1));
                let is_within_ip = !matches!(node.extent, Extent::Open);
                let left = if is_within_ip {
                    self.graph.slice(left, 0, LENGTH_BITS)
                } else {
                    self.graph.number(0, LENGTH_BITS)
                };
                all.push(Found { valid, start, left });
            }
            if let Some(option) = node.option.filter(|option| option.header == header) {
                let own = self.parsed(index);
                all.push(self.option(own, option));
            }
        }
        let never =
            Found { valid: self.graph.number(0, 1), start: self.graph.number(0, 32), left: self.graph.number(0, 16) };
        let found = all.into_iter().rev().reduce(|later, first| Found {
            valid: self.graph.or(first.valid, later.valid),
            start: self.graph.select(vec![first.valid, first.start, later.start]),
            left: self.graph.select(vec![first.valid, first.left, later.left]),
        });
        let found = found.unwrap_or(never);
        // One variable of path conditions, in place of those of all headers before it.
        self.opaque(found.valid);
        self.parsed_headers.headers.insert(header, found);
        found
    }

    /// The values of a node.
    fn parsed(&mut self, index: usize) -> Parsed {
        if let Some(known) = self.parsed_headers.nodes.get(&index) {
            return *known;
        }
        let node = &self.headers().nodes()[index];
        let (reached, start, limit) = self.reached(index);
        let length = self.received_length();
        let min = i64::from(node.min_bytes);
        let present = self.is_within(start, Sum::of(min), length, reached);
        let mut own = Parsed { reached, start, present, valid: present, len: start, end: start, limit };
        for check in &node.checks {
            let holds = match *check {
                Check::Equal(slice, value) => self.field_equals(own, slice, value.into()),
                Check::AtLeast(slice, value) => {
                    let is_less = self.field_is_below(own, slice, value.into());
                    self.graph.not(is_less)
                }
            };
            own.valid = self.graph.and(own.valid, holds);
        }
        own.len = match node.length {
            Length::Fixed => self.graph.number(min as u64, OFFSET_BITS),
            Length::Peek => self.graph.number(0, OFFSET_BITS),
            Length::Scaled { slice, add, times } => {
                let least = u64::from(node.min_bytes).div_ceil(times.into()).saturating_sub(add.into());
                if least > 0 {
                    let is_short = self.field_is_below(own, slice, least);
                    let is_long = self.graph.not(is_short);
                    own.valid = self.graph.and(own.valid, is_long);
                }
                let units = self.field(own, slice);
                let units = self.graph.fit(units, LENGTH_BITS);
                let added = self.graph.number(add.into(), LENGTH_BITS);
                let units = self.graph.binary(Binary::Add, units, added);
                let zeros = self.graph.number(0, times.trailing_zeros() as u16);
                let len = if times > 1 { self.graph.concat(vec![zeros, units]) } else { units };
                let len = self.graph.fit(len, OFFSET_BITS);
                let by = self.sum_of(len);
                let is_whole = self.is_within(start, by, length, own.valid);
                own.valid = is_whole;
                len
            }
        };
        let (from, by) = (self.sum_of(start), self.sum_of(own.len));
        own.end = self.offset(&from.plus(&by, 1));
        self.extend(&mut own, node.extent);
        self.parsed_headers.nodes.insert(index, own);
        own
    }

    /// Whether a node is reached, at which offset, and where the IP packet ends.
    ///
    /// Reached nodes are a path, so a node is reached from the last of its predecessors that are. Nodes with the same
    /// predecessors share their offset.
    fn reached(&mut self, index: usize) -> (Id, Id, Id) {
        if index == ETHERNET {
            let zero = self.graph.number(0, OFFSET_BITS);
            return (self.graph.number(1, 1), zero, zero);
        }
        let (mut reached, mut starts, mut limits) = (self.graph.number(0, 1), Vec::new(), Vec::new());
        for (before, node) in self.headers().nodes()[..index].iter().enumerate().rev() {
            if node.next.successors().any(|to| to == index) {
                let own = self.parsed(before);
                let taken = self.edge(own, node, index);
                reached = self.graph.or(reached, taken);
                starts.extend([own.reached, own.end]);
                limits.extend([own.reached, own.limit]);
            }
        }
        let [start, limit] = [starts, limits].map(|mut parts| {
            // The condition of the first of them need not be tested.
            if parts.len() > 1 {
                parts.remove(parts.len() - 2);
            }
            self.graph.select(parts)
        });
        (reached, start, limit)
    }

    /// Whether the edge from a header to a node is taken.
    fn edge(&mut self, own: Parsed, node: &Node, to: usize) -> Id {
        let (mut taken, mut none) = (self.graph.number(0, 1), self.graph.number(1, 1));
        for (place, choice) in node.next.choices.iter().enumerate() {
            let is_last = place + 1 == node.next.choices.len() && node.next.otherwise != Some(to);
            let (mut here, mut any) = (self.graph.number(0, 1), self.graph.number(0, 1));
            for (value, edge) in &choice.edges {
                if is_last && *edge != to {
                    continue;
                }
                let is_equal = self.field_equals(own, choice.selector, *value);
                any = self.graph.or(any, is_equal);
                if *edge == to {
                    here = self.graph.or(here, is_equal);
                }
            }
            let first = self.graph.and(none, here);
            taken = self.graph.or(taken, first);
            let not = self.graph.not(any);
            none = self.graph.and(none, not);
        }
        if node.next.otherwise == Some(to) {
            taken = self.graph.or(taken, none);
        }
        if let Some(slice) = node.next.only_if_zero {
            let is_zero = self.field_equals(own, slice, 0);
            taken = self.graph.and(taken, is_zero);
        }
        self.graph.and(own.valid, taken)
    }

    /// Whether a header is within the IP packet, by the headers before it and its own; where the packet ends after it.
    fn extend(&mut self, own: &mut Parsed, extent: Extent) {
        let outer = own.limit;
        let (start, end) = (own.start, own.end);
        if let Extent::Within | Extent::TotalWithin(_) | Extent::AfterWithin(_) = extent {
            own.valid = self.is_not_after(end, outer, own.valid);
        }
        match extent {
            Extent::Open | Extent::Within => {}
            Extent::Total(slice) | Extent::TotalWithin(slice) => {
                own.limit = self.plus_field(*own, start, slice);
                own.valid = self.is_not_after(end, own.limit, own.valid);
            }
            Extent::After(slice) | Extent::AfterWithin(slice) => own.limit = self.plus_field(*own, end, slice),
        }
        if let Extent::TotalWithin(_) | Extent::AfterWithin(_) = extent {
            let is_less = self.compared_anywhere(Compare::Below, outer, own.limit);
            own.limit = self.graph.select(vec![is_less, outer, own.limit]);
        }
    }

    /// An offset plus a field of a header.
    fn plus_field(&mut self, own: Parsed, offset: Id, slice: Slice) -> Id {
        let field = self.field(own, slice);
        let field = self.graph.fit(field, OFFSET_BITS);
        let (from, by) = (self.sum_of(offset), self.sum_of(field));
        self.offset(&from.plus(&by, 1))
    }

    /// Whether `when` holds and an offset is not after another one.
    fn is_not_after(&mut self, offset: Id, last: Id, when: Id) -> Id {
        let is_after = self.holds(Cond::Sgt, offset, last);
        let path = self.opaque(when);
        self.note_test(path, is_after);
        let is_not_after = self.graph.not(is_after);
        self.graph.and(when, is_not_after)
    }

    /// Whether `when` holds and a number of bytes from an offset on are within the packet.
    fn is_within(&mut self, start: Id, len: Sum, length: Id, when: Id) -> Id {
        let end = self.sum_of(start).plus(&len, 1);
        let end = self.offset(&end);
        self.is_not_after(end, length, when)
    }

    /// The bytes of a slice of a header, the last one first.
    fn field_bytes(&mut self, own: Parsed, slice: Slice) -> Vec<Id> {
        let (first, last) =
            (i64::from(slice.offset_bits / 8), i64::from((slice.offset_bits + u16::from(slice.width_bits) - 1) / 8));
        self.header_bytes(own, first, last + 1)
    }

    /// Bytes of a header, the last one first.
    fn header_bytes(&mut self, own: Parsed, first: i64, end: i64) -> Vec<Id> {
        let sum = self.sum_of(own.start);
        let base = self.base(&sum);
        let path = self.opaque(own.present);
        self.note_access(path, base, sum.constant + end);
        (first..end).rev().map(|at| self.original(base, sum.constant + at)).collect()
    }

    /// A slice of a header as a number.
    fn field(&mut self, own: Parsed, slice: Slice) -> Id {
        let bytes = self.field_bytes(own, slice);
        let number = self.graph.concat(bytes);
        let after = (slice.offset_bits + u16::from(slice.width_bits)).wrapping_neg() % 8;
        self.graph.slice(number, after, slice.width_bits.into())
    }

    fn field_equals(&mut self, own: Parsed, slice: Slice, value: u64) -> Id {
        let field = self.field(own, slice);
        let value = self.graph.number(value, slice.width_bits.into());
        self.graph.compare(Compare::Equal, field, value)
    }

    fn field_is_below(&mut self, own: Parsed, slice: Slice, value: u64) -> Id {
        let field = self.field(own, slice);
        let value = self.graph.number(value, slice.width_bits.into());
        self.graph.compare(Compare::Below, field, value)
    }

    /// An option of a valid header, by a bit for each place where an option may begin.
    fn option(&mut self, own: Parsed, option: HeaderOption) -> Found {
        let first = usize::from(option.start_bytes);
        let end = usize::from(LONGEST_HEADER);
        let mut begins = vec![self.graph.number(0, 1); end + 1];
        begins[first] = own.valid;
        let (mut valid, mut starts) = (self.graph.number(0, 1), Vec::new());
        let own_start = self.sum_of(own.start);
        for at in first..=end - usize::from(option.len_bytes) {
            let here = begins[at];
            let bytes = self.header_bytes(own, at as i64, at as i64 + 2);
            let [len, kind] = bytes[..] else { continue };
            let is = |this: &mut Self, byte: Id, value: u64| {
                let value = this.graph.number(value, 8);
                this.graph.compare(Compare::Equal, byte, value)
            };
            let [last, single, wanted] =
                [LAST_OPTION, NO_OPTION, option.kind.into()].map(|value| is(self, kind, value));
            let next = self.graph.and(here, single);
            begins[at + 1] = self.graph.or(begins[at + 1], next);
            let others = [last, single, wanted].into_iter().reduce(|a, b| self.graph.or(a, b)).unwrap_or(last);
            let skipped = self.graph.not(others);
            let skipped = self.graph.and(here, skipped);
            for (to, begins) in begins.iter_mut().enumerate().skip(at + 2) {
                let is_next = is(self, len, (to - at) as u64);
                let next = self.graph.and(skipped, is_next);
                *begins = self.graph.or(*begins, next);
            }
            // An option that ends past the header is not in it.
            let (right, after) = (is(self, len, option.len_bytes.into()), at + usize::from(option.len_bytes));
            let after = self.graph.number(after as u64, OFFSET_BITS);
            let is_beyond = self.compared_anywhere(Compare::Below, own.len, after);
            let fits = self.graph.not(is_beyond);
            let mut found = self.graph.and(here, wanted);
            found = self.graph.and(found, right);
            found = self.graph.and(found, fits);
            valid = self.graph.or(valid, found);
            let start = self.offset(&own_start.clone().plus(&Sum::of(at as i64), 1));
            starts.extend([found, start]);
        }
        starts.push(own.start);
        Found { valid, start: self.graph.select(starts), left: self.graph.number(0, LENGTH_BITS) }
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;
    use crate::build::build;
    use flowloom_engine::{Choices, Datapath, Packet, Port, Verdict};
    use flowloom_isa::asm;
    use flowloom_verifier::{Options, verify};

    fn refusal(text: &str) -> Option<Reason> {
        let text = format!(".program asked\n.license \"GPL\"\nr6 = r1\n{text}r0 = 2\nexit\n");
        let program = asm::program("test", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let proof = verify(&program, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        build(&program, &proof).err().map(|refusal| refusal.reason)
    }

    #[test]
    fn a_question_is_constant_and_comes_first() {
        let ask = "r2 = 8\nr1 = r6\ncall fl_parse\n";
        assert_eq!(refusal(ask), None);
        assert_eq!(refusal("r2 = *(u32 *)(r6 + 12)\nr1 = r6\ncall fl_parse\n"), Some(Reason::Question));
        let shortened = format!("r2 = 4\nr1 = r6\ncall xdp_adjust_head\n{ask}");
        assert_eq!(refusal(&shortened), Some(Reason::LateParse));
    }

    /// Two headers that a packet can have together: the path tells that one is valid, not that it is the first.
    #[test]
    fn the_first_valid_header_counts() {
        const IPV4: u64 = 1 << 3;
        const UDP: u64 = 1 << 6;
        let text = format!(
            ".program asked\n.license \"GPL\"\nr6 = r1\nr2 = {UDP}\ncall fl_parse\nr9 = r0\nr1 = r6\nr2 = {:#x} ll\n\
             call fl_parse\nr0 &= 0x7fff\nr8 = *(u32 *)(r6 + 0)\nr7 = *(u32 *)(r6 + 4)\nr8 += r0\nr3 = r8\nr3 += 1\nr0 = 2\n\
             if r3 > r7 goto out\nif r9 & {UDP} goto load\ngoto out\nload: r0 = *(u8 *)(r8 + 0)\nr0 &= 1\nout: exit\n",
            1u64 << 32 | IPV4 | UDP
        );
        let program = asm::program("test", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let proof = verify(&program, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        let dataflow = build(&program, &proof).unwrap_or_else(|refusal| panic!("{refusal}"));
        let program = std::sync::Arc::new(program);
        let evaluator =
            crate::Evaluator::new(std::sync::Arc::clone(&program), dataflow).unwrap_or_else(|e| panic!("{e}"));
        let mut packet = [0; 60];
        packet[12..15].copy_from_slice(&[8, 0, 0x45]);
        (packet[17], packet[23], packet[39]) = (46, 17, 26);
        let interp = flowloom_vm::Interpreter::new(program).unwrap_or_else(|e| panic!("{e}"));
        let engines: [Box<dyn Datapath>; 2] = [Box::new(evaluator), Box::new(interp)];
        for mut engine in engines {
            let packet = Packet { bytes: &packet, port: Port(0) };
            let outcome = engine.process(&packet, &Choices::seeded(0, 1, 0)).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(outcome.verdict, Verdict::Drop, "{}: the first byte of IPv4 is odd", engine.name());
        }
    }
}
