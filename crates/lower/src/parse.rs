// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Code for the parse graph.
//!
//! Each node is emitted once per set of valid headers with which it can be reached, so that each exit of the parser
//! knows the valid headers as a constant. Nodes that lead to no needed header are skipped.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_isa::op::{AluOp, Cond};
use flowloom_wire::field::Source;
use flowloom_wire::graph::{Check, ETHERNET, Extent, Graph, Header, HeaderOption, Length, Node, Scope, Slice};

use super::asm::{Builder, Label, Op, Operand, R1, Reg, Size};
use super::fields::fields_used;
use super::lowering::Lowering;
use super::options::HeaderParser;
use super::shape::Shape;
use super::window::{Window, windows};
use flowloom_efsm::model::Element;

/// Offsets in the kernel's `struct xdp_md`.
mod xdp_md {
    pub(super) const DATA: i16 = 0;
    pub(super) const DATA_END: i16 = 4;
    pub(super) const INGRESS_IFINDEX: i16 = 12;
}

/// Exceeds the offset of any header that the parser can reach. The longest path has IPv6 extension headers of 4 * 2048
/// bytes outside and inside of a tunnel, 4 * 1020 bytes of the tunnel's own, and about 400 other bytes; user-defined
/// headers, 8 * 254 bytes at most, never occur together with a tunnel.
pub(super) const MAX_DISTANCE: i32 = 0x7fff;
/// Length of the longest TCP header, in bytes.
const LONGEST_HEADER: u8 = 60;

/// True if a node's successors can be reached on many paths: tags, labels and extension headers.
fn has_many_paths(index: usize, node: &Node) -> bool {
    let is_extension = matches!(node.header, None | Some(Header::Ipv6Fragment | Header::InnerIpv6Fragment));
    is_extension || node.extent == Extent::Open && index != ETHERNET
}

fn is_tag(node: &Node) -> bool {
    matches!(node.header, Some(Header::Vlan | Header::Vlan2))
}

fn is_label(node: &Node) -> bool {
    matches!(node.header, Some(Header::Mpls | Header::Mpls2 | Header::Mpls3 | Header::Mpls4))
}

/// Registers in which a parse leaves its results.
#[derive(Debug, Clone)]
pub(super) struct ParseResults {
    /// Start of each header; mutually exclusive headers share a register.
    pub(super) pointers: BTreeMap<Header, Reg>,
    /// IP protocol numbers that are needed.
    pub(super) ip_proto: BTreeMap<Scope, Reg>,
    /// Payload length of each TCP header, in bytes.
    pub(super) payload_len: BTreeMap<Header, Reg>,
}

/// State of the walk over the graph while code is emitted.
struct Walk<'a> {
    shape: &'a Shape,
    parse_results: &'a ParseResults,
    /// Cursor for headers whose start is not needed; with `for_verifier` for all headers, since a register that is
    /// written on fewer paths differs on fewer paths.
    cursor_reg: Reg,
    for_verifier: bool,
    /// Number of bytes left in the IP packet.
    remaining: Reg,
    /// Labels of requested (node, needed headers before it).
    labels: BTreeMap<(usize, u32), Label>,
    /// Labels of the same code with [`Lowering::forget_path`] before it.
    joined_labels: BTreeMap<(usize, u32), Label>,
    todo: Vec<(usize, u32)>,
}

impl Walk<'_> {
    /// Label of the code of a node that is reached with these headers.
    fn label(&mut self, builder: &mut Builder, node: usize, mask: u32) -> Label {
        *self.labels.entry((node, mask)).or_insert_with(|| {
            self.todo.push((node, mask));
            builder.label()
        })
    }

    /// The same for one of many paths to it.
    fn joined_label(&mut self, builder: &mut Builder, node: usize, mask: u32) -> Label {
        self.label(builder, node, mask);
        *self.joined_labels.entry((node, mask)).or_insert_with(|| builder.label())
    }

    /// The register in which a node expects the address of its header: the pointer of this header, or of the next
    /// header that has one.
    fn cursor(&self, graph: &Graph, index: usize, mask: u32) -> Reg {
        if self.for_verifier {
            return self.cursor_reg;
        }
        let nodes = graph.nodes();
        let mut at = index;
        loop {
            let header = nodes[at].header.filter(|header| header.bit() & self.shape.needed != 0);
            if let Some(&pointer) = header.and_then(|header| self.parse_results.pointers.get(&header)) {
                let is_taken = |header: &Header| {
                    mask & header.bit() != 0 && self.parse_results.pointers.get(header) == Some(&pointer)
                };
                return if Header::ALL.iter().any(is_taken) { self.cursor_reg } else { pointer };
            }
            let mut next = nodes[at].next.successors().filter(|&to| self.shape.is_relevant(to, mask));
            match next.next() {
                Some(to) => at = to,
                None => return self.cursor_reg,
            }
        }
    }

    /// The register for the protocol number that the node yields, if it is needed.
    fn proto_register(&self, node: &Node) -> Option<(Reg, Slice)> {
        let (scope, slice) = node.next.ip_proto.filter(|(scope, _)| self.shape.ip_proto[*scope as usize])?;
        Some((*self.parse_results.ip_proto.get(&scope)?, slice))
    }
}

/// The byte that holds both a checked value and the length in units of `times` bytes, with its least and largest value:
/// the first byte of IPv4.
fn byte_of_check_and_length(node: &Node) -> Option<(i16, i32, i32)> {
    let Length::Scaled { slice, add: 0, times } = node.length else { return None };
    let Some(&Check::Equal(checked, value)) = node.checks.first() else { return None };
    let is_one_byte = checked.offset_bits.is_multiple_of(8)
        && checked.width_bits == 4
        && slice.offset_bits == checked.offset_bits + 4
        && slice.width_bits == 4;
    let least = u32::from(node.min_bytes).div_ceil(times.into());
    let bound = |low: u32| i32::try_from(value << 4 | low).ok();
    if !is_one_byte || least > 15 {
        return None;
    }
    Some(((checked.offset_bits / 8) as i16, bound(least)?, bound(15)?))
}

impl Lowering<'_> {
    /// Fixed length of a header, in bytes.
    pub(super) fn min_bytes(&self, header: Header) -> u32 {
        self.graph.min_bytes(header).map_or(0, u32::from)
    }

    /// Loads a slice of the header at `base` as a number.
    pub(super) fn load_slice(&mut self, dst: Reg, base: Reg, slice: Slice, limit_bytes: u32) {
        let mut windows = windows(slice, limit_bytes).into_iter();
        if let Some(first) = windows.next() {
            self.load_window(dst, base, &first);
        }
        for window in windows {
            let part = self.builder.reg();
            self.load_window(part, base, &window);
            self.builder.alu64(AluOp::Lsh, dst, Operand::Imm(window.width_bits as i32));
            self.builder.alu64(AluOp::Or, dst, Operand::Reg(part));
        }
    }

    fn load_window(&mut self, dst: Reg, base: Reg, window: &Window) {
        let b = &mut self.builder;
        b.load(window.size, dst, base, window.offset);
        if window.size_bits > 8 {
            b.push(Op::FromBe { dst, bits: window.size_bits as i32 });
        }
        if window.shift > 0 {
            b.alu64(AluOp::Rsh, dst, Operand::Imm(window.shift as i32));
        }
        if window.shift + window.width_bits < window.size_bits {
            let mask = b.operand((1u64 << window.width_bits) - 1);
            b.alu64(AluOp::And, dst, mask);
        }
    }

    pub(super) fn emit_parse(&mut self) {
        let function = self.function;
        if let Some(first) = function.elements.first() {
            self.builder.push(Op::Line(first.span));
        }
        let reads = |wanted: Source| fields_used(&function.elements).iter().any(|f| f.source() == wanted);
        let b = &mut self.builder;
        if let Some(ctx) = self.ctx {
            b.copy(ctx, R1);
        }
        self.load_ends(R1);
        let b = &mut self.builder;
        if reads(Source::PacketPort) {
            b.load(Size::W, self.port, R1, xdp_md::INGRESS_IFINDEX);
        }
        self.measure_packet(&function.elements);
        for (i, variable) in (0..).zip(&function.metadata) {
            self.set_metadata(i, variable.initial);
        }
        match self.parser {
            HeaderParser::Code => self.emit_parse_into(0),
            HeaderParser::Target => self.emit_parser_call(),
        }
    }

    /// Loads the packet's start and end from the XDP context.
    pub(super) fn load_ends(&mut self, ctx: Reg) {
        self.builder.load(Size::W, self.data, ctx, xdp_md::DATA);
        self.builder.load(Size::W, self.data_end, ctx, xdp_md::DATA_END);
    }

    /// Computes the packet's length, if these elements need it.
    fn measure_packet(&mut self, elements: &[Element]) {
        if fields_used(elements).iter().any(|field| field.source() == Source::PacketLen) {
            let b = &mut self.builder;
            b.copy(self.packet_len, self.data_end);
            b.alu64(AluOp::Sub, self.packet_len, Operand::Reg(self.data));
        }
    }

    /// As [`Lowering::emit_parse_into`], for a frame that has changed since it was parsed.
    pub(super) fn emit_reparse(&mut self, element: usize) {
        // Results of the old frame's parse are invalid.
        let ParseResults { pointers, ip_proto, payload_len } = self.parse_results();
        for reg in pointers.into_values().chain(ip_proto.into_values()).chain(payload_len.into_values()) {
            self.builder.push(Op::Forget { reg });
        }
        self.measure_packet(&self.function.elements[element..]);
        self.emit_parse_into(element);
    }

    /// Parses the packet as far as this element and those after it need, and enters the element.
    pub(super) fn emit_parse_into(&mut self, element: usize) {
        let metadata = (element == 0).then_some(&self.function.metadata[..]);
        let shape = Shape::of(&self.function.elements[element..], metadata, element, self.graph);
        let parse_results = self.parse_results();
        self.emit_walk(&shape, &parse_results, &mut |this, mask| this.enter(element, mask));
    }

    /// Parses the packet as far as `shape` says; `leave` is emitted for each set of valid headers with which the parse
    /// can end.
    pub(super) fn emit_walk(
        &mut self,
        shape: &Shape,
        parse_results: &ParseResults,
        leave: &mut dyn FnMut(&mut Self, u32),
    ) {
        if shape.needed == 0 && !shape.ip_proto.contains(&true) {
            leave(self, 0);
            return;
        }
        let graph = self.graph;
        let (cursor_reg, remaining) = (self.builder.reg(), self.builder.reg());
        let mut walk = Walk {
            shape,
            parse_results,
            cursor_reg,
            for_verifier: self.for_verifier,
            remaining,
            labels: BTreeMap::new(),
            joined_labels: BTreeMap::new(),
            todo: Vec::new(),
        };
        // The frame starts at the packet's start; a separate register is needed only if the Ethernet header is.
        let start = match parse_results
            .pointers
            .get(&Header::Ethernet)
            .filter(|_| shape.needed & Header::Ethernet.bit() != 0)
        {
            _ if self.for_verifier => {
                self.builder.copy(cursor_reg, self.data);
                cursor_reg
            }
            Some(&pointer) => {
                self.builder.copy(pointer, self.data);
                pointer
            }
            None => self.data,
        };
        walk.label(&mut self.builder, ETHERNET, 0);
        let mut exits: BTreeMap<u32, Label> = BTreeMap::new();
        let mut next = 0;
        while next < walk.todo.len() {
            let (index, mask) = walk.todo[next];
            next += 1;
            let node = &graph.nodes()[index];
            self.builder.place(walk.labels[&(index, mask)]);
            let invalid = *exits.entry(mask).or_insert_with(|| self.builder.label());
            let cursor = if index == ETHERNET { start } else { walk.cursor(graph, index, mask) };
            let end = self.emit_node(index, mask, cursor, &walk, invalid);
            let after = mask | node.header.map_or(0, Header::bit) & shape.needed;
            let option = node.option.filter(|option| option.header.bit() & shape.needed != 0);
            let found = option.map(|option| {
                let found = self.builder.label();
                self.emit_search(option, cursor, &walk, end, found);
                (found, after | option.header.bit())
            });
            for (found, after) in [(None, after)].into_iter().chain(found.map(|(found, after)| (Some(found), after))) {
                if let Some(found) = found {
                    self.builder.place(found);
                }
                let done = *exits.entry(after).or_insert_with(|| self.builder.label());
                if node.next.successors().any(|to| shape.is_relevant(to, after)) {
                    self.emit_selection(index, cursor, end, done, after, &mut walk);
                } else {
                    self.builder.goto(done);
                }
            }
        }
        for (&(index, mask), &label) in &walk.joined_labels {
            self.builder.place(label);
            self.forget_path(walk.cursor(graph, index, mask));
            self.builder.goto(walk.labels[&(index, mask)]);
        }
        for (mask, label) in exits {
            self.builder.place(label);
            leave(self, mask);
        }
    }

    /// Emits presence, checks, length and extent of a header; jumps to `invalid` if the header is not valid. Returns
    /// the register with the start of the next header.
    fn emit_node(&mut self, index: usize, mask: u32, cursor: Reg, walk: &Walk<'_>, invalid: Label) -> Reg {
        let graph = self.graph;
        let node = &graph.nodes()[index];
        let remaining = walk.remaining;
        let min_bytes = u32::from(node.min_bytes);
        let data_end = self.data_end;
        let b = &mut self.builder;
        let mut end = b.dup(cursor);
        b.alu64(AluOp::Add, end, Operand::Imm(min_bytes as i32));
        b.jump64(Cond::Gt, end, Operand::Reg(data_end), invalid);
        let fused = byte_of_check_and_length(node);
        for check in node.checks.iter().skip(usize::from(fused.is_some())) {
            let value = self.builder.reg();
            let (slice, op, limit) = match *check {
                Check::Equal(slice, limit) => (slice, Cond::Ne, limit),
                Check::AtLeast(slice, limit) => (slice, Cond::Lt, limit),
            };
            self.load_slice(value, cursor, slice, min_bytes);
            self.builder.jump64(op, value, Operand::Imm(limit as i32), invalid);
        }
        let len = match node.length {
            Length::Fixed => Operand::Imm(min_bytes as i32),
            Length::Peek => {
                end = cursor;
                Operand::Imm(0)
            }
            Length::Scaled { slice, add, times } => {
                let len = self.builder.reg();
                if let Some((offset, least, most)) = fused {
                    let b = &mut self.builder;
                    b.load(Size::B, len, cursor, offset);
                    b.jump64(Cond::Lt, len, Operand::Imm(least), invalid);
                    b.jump64(Cond::Gt, len, Operand::Imm(most), invalid);
                    b.alu64(AluOp::And, len, Operand::Imm(15));
                } else {
                    self.load_slice(len, cursor, slice, min_bytes);
                }
                let b = &mut self.builder;
                if add > 0 {
                    b.alu64(AluOp::Add, len, Operand::Imm(add.into()));
                }
                b.alu64(AluOp::Lsh, len, Operand::Imm(times.trailing_zeros() as i32));
                if fused.is_none() && u32::from(add) * u32::from(times) < min_bytes {
                    b.jump64(Cond::Lt, len, Operand::Imm(min_bytes as i32), invalid);
                }
                end = b.dup(cursor);
                b.alu64(AluOp::Add, end, Operand::Reg(len));
                b.jump64(Cond::Gt, end, Operand::Reg(data_end), invalid);
                Operand::Reg(len)
            }
        };
        let is_asked = walk.shape.needs_length[index];
        match node.extent {
            Extent::Open => {}
            Extent::Total(slice) => {
                self.load_slice(remaining, cursor, slice, min_bytes);
                self.builder.jump64(Cond::Lt, remaining, len, invalid);
                if is_asked {
                    self.builder.alu64(AluOp::Sub, remaining, len);
                }
            }
            Extent::After(slice) => {
                if is_asked {
                    self.load_slice(remaining, cursor, slice, min_bytes);
                }
            }
            Extent::Within => {
                self.builder.jump64(Cond::Lt, remaining, len, invalid);
                self.builder.alu64(AluOp::Sub, remaining, len);
            }
            Extent::TotalWithin(slice) | Extent::AfterWithin(slice) => {
                self.builder.jump64(Cond::Lt, remaining, len, invalid);
                let own = self.builder.reg();
                self.load_slice(own, cursor, slice, min_bytes);
                let is_total = matches!(node.extent, Extent::TotalWithin(_));
                if is_total {
                    self.builder.jump64(Cond::Lt, own, len, invalid);
                }
                if is_asked {
                    self.builder.alu64(AluOp::Sub, remaining, len);
                    if is_total {
                        self.builder.alu64(AluOp::Sub, own, len);
                    }
                    let fits = self.builder.label();
                    self.builder.jump64(Cond::Le, remaining, Operand::Reg(own), fits);
                    self.builder.copy(remaining, own);
                    self.builder.place(fits);
                }
            }
        }
        // The first of several headers of a kind counts.
        let header = node.header.filter(|header| header.bit() & walk.shape.needed & !mask != 0);
        if let Some(&pointer) =
            header.and_then(|header| walk.parse_results.pointers.get(&header)).filter(|&&p| p != cursor)
        {
            self.builder.copy(pointer, cursor);
        }
        if let Some(&payload_len) = header.and_then(|header| walk.parse_results.payload_len.get(&header)) {
            self.builder.copy(payload_len, remaining);
        }
        if let Some((proto, slice)) = walk.proto_register(node) {
            self.load_slice(proto, cursor, slice, min_bytes);
        }
        end
    }

    /// Searches the header at `cursor` for an option: jumps to `found` with the option's pointer set, or falls through.
    ///
    /// The loop is unrolled for the largest number of single-byte options before the option.
    fn emit_search(&mut self, option: HeaderOption, cursor: Reg, walk: &Walk<'_>, end: Reg, found: Label) {
        let (data, data_end) = (self.data, self.data_end);
        let pointer = walk.parse_results.pointers[&option.header];
        let most = u32::from(LONGEST_HEADER - option.start_bytes - option.len_bytes) + 1;
        let b = &mut self.builder;
        let absent = b.label();
        let end = b.dup(end);
        let at = b.dup(cursor);
        b.alu64(AluOp::Add, at, Operand::Imm(option.start_bytes.into()));
        for _ in 0..most {
            let (this, single, next) = (b.label(), b.label(), b.label());
            // The option no longer fits in the rest of the header.
            let after = b.dup(at);
            b.alu64(AluOp::Add, after, Operand::Imm(option.len_bytes.into()));
            for limit in [end, data_end] {
                b.jump64(Cond::Gt, after, Operand::Reg(limit), absent);
            }
            let (kind, step) = (b.reg(), b.reg());
            b.load(Size::B, kind, at, 0);
            b.jump64(Cond::Eq, kind, Operand::Imm(0), absent);
            b.jump64(Cond::Eq, kind, Operand::Imm(1), single);
            b.load(Size::B, step, at, 1);
            b.jump64(Cond::Eq, kind, Operand::Imm(option.kind.into()), this);
            b.jump64(Cond::Lt, step, Operand::Imm(2), absent);
            b.goto(next);
            b.place(this);
            b.jump64(Cond::Ne, step, Operand::Imm(option.len_bytes.into()), absent);
            b.copy(pointer, at);
            b.goto(found);
            b.place(single);
            b.set(step, 1);
            b.place(next);
            // As in `forget_path`: one proof covers all paths to the next option.
            let distance = b.dup(at);
            b.alu64(AluOp::Add, distance, Operand::Reg(step));
            b.alu64(AluOp::Sub, distance, Operand::Reg(data));
            b.alu64(AluOp::And, distance, Operand::Imm(MAX_DISTANCE));
            b.copy(at, data);
            b.alu64(AluOp::Add, at, Operand::Reg(distance));
        }
        b.place(absent);
    }

    /// Follows the edge that the selectors pick; at least one edge leads on.
    fn emit_selection(&mut self, index: usize, cursor: Reg, end: Reg, done: Label, after: u32, walk: &mut Walk<'_>) {
        let graph = self.graph;
        let node = &graph.nodes()[index];
        let (min_bytes, shape) = (u32::from(node.min_bytes), walk.shape);
        if let Some(slice) = node.next.only_if_zero {
            self.branch_unless_zero(cursor, slice, min_bytes, done);
        }
        let is_relevant = |to: &usize| shape.is_relevant(*to, after);
        let otherwise = node.next.otherwise.filter(is_relevant);
        // An edge that leads nowhere matters if a later choice would lead on.
        let mut later = otherwise.is_some();
        let mut choices = Vec::new();
        for choice in node.next.choices.iter().rev() {
            let edges: Vec<_> = choice.edges.iter().filter(|(_, to)| later || is_relevant(to)).copied().collect();
            later |= edges.iter().any(|(_, to)| is_relevant(to));
            if !edges.is_empty() {
                choices.push((choice.selector, edges));
            }
        }
        choices.reverse();
        let mut values = Vec::new();
        for &(selector, _) in &choices {
            let value = match walk.proto_register(node) {
                Some((proto, slice)) if slice == selector => (proto, false),
                _ => {
                    let value = self.builder.reg();
                    // Compared in memory order: swapping the constants is free.
                    match Window::of(selector, min_bytes) {
                        Some(w) if w.shift == 0 && w.width_bits == 16 && w.size_bits == 16 => {
                            self.builder.load(w.size, value, cursor, w.offset);
                            (value, true)
                        }
                        _ => {
                            self.load_slice(value, cursor, selector, min_bytes);
                            (value, false)
                        }
                    }
                }
            };
            values.push(value);
        }
        let nodes = graph.nodes();
        let on: BTreeSet<usize> = node.next.successors().filter(is_relevant).collect();
        let forgets_path = |to: usize| has_many_paths(index, node) && !has_many_paths(to, &nodes[to]);
        let forgets_later = is_label(node) && !self.for_verifier;
        let mut at = end;
        let forgets_at_once = self.for_verifier || !is_tag(node) && !is_label(node);
        if forgets_at_once && on.iter().any(|&to| forgets_path(to)) {
            at = self.builder.dup(at);
            self.forget_path(at);
            if shape.needs_length[index] {
                // The same for the remaining length.
                self.builder.alu64(AluOp::And, walk.remaining, Operand::Imm(0xffff));
            }
        }
        let mut cursors: Vec<Reg> = on.iter().map(|&to| walk.cursor(graph, to, after)).collect();
        cursors.sort_unstable();
        cursors.dedup();
        for cursor in cursors {
            if cursor != at {
                self.builder.copy(cursor, at);
            }
            at = cursor;
        }
        let mut target = |this: &mut Self, to: usize| match () {
            () if !shape.is_relevant(to, after) => done,
            () if forgets_path(to) && forgets_later => walk.joined_label(&mut this.builder, to, after),
            () => walk.label(&mut this.builder, to, after),
        };
        for ((_, edges), (value, is_swapped)) in choices.into_iter().zip(values) {
            for (constant, to) in edges {
                let label = target(self, to);
                let constant = if is_swapped { (constant as u16).swap_bytes().into() } else { constant };
                let constant = self.builder.operand(constant);
                self.builder.jump64(Cond::Eq, value, constant, label);
            }
        }
        let rest = otherwise.map_or(done, |to| target(self, to));
        self.builder.goto(rest);
    }

    fn branch_unless_zero(&mut self, base: Reg, slice: Slice, limit_bytes: u32, other: Label) {
        let value = self.builder.reg();
        match Window::of(slice, limit_bytes) {
            // In memory order.
            Some(w) if w.size_bits == 16 => {
                let mask = ((1u32 << w.width_bits) - 1) << w.shift;
                self.builder.load(w.size, value, base, w.offset);
                self.builder.alu64(AluOp::And, value, Operand::Imm((mask as u16).swap_bytes().into()));
            }
            _ => self.load_slice(value, base, slice, limit_bytes),
        }
        self.builder.jump64(Cond::Ne, value, Operand::Imm(0), other);
    }

    /// Recomputes the cursor from its distance to the packet's start.
    ///
    /// The value does not change, but the kernel's verifier, which follows every path to a header separately, no longer
    /// distinguishes the paths, and its proof for one covers all (state pruning).
    fn forget_path(&mut self, cursor: Reg) {
        let data = self.data;
        let b = &mut self.builder;
        let distance = b.dup(cursor);
        b.alu64(AluOp::Sub, distance, Operand::Reg(data));
        b.alu64(AluOp::And, distance, Operand::Imm(MAX_DISTANCE));
        b.copy(cursor, data);
        b.alu64(AluOp::Add, cursor, Operand::Reg(distance));
    }

    /// Exit of a parse with these valid headers: enters the element.
    pub(super) fn enter(&mut self, element: usize, mask: u32) {
        self.path.masks = vec![mask];
        let entry = self.element_entry(element);
        self.builder.goto(entry);
    }

    pub(super) fn parse_results(&self) -> ParseResults {
        ParseResults {
            pointers: self.pointers.clone(),
            ip_proto: self.ip_proto.clone(),
            payload_len: self.payload_len.clone(),
        }
    }
}
