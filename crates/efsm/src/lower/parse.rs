//! The parse graph as code.
//!
//! Each node is emitted once for every combination of valid headers it can be reached with, so that each way out of the
//! parse knows as a constant which headers are valid. Nodes that lead to no header the function needs are left out.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_bpf::insn::{alu, jmp};
use flowloom_wire::field::{CHECKSUMS, FieldId, Source};
use flowloom_wire::graph::{Check, ETHERNET, Extent, Header, Length, NODES, Node, Slice};

use super::asm::{Label, Op, Operand, R1, Reg, Size};
use super::{Lowering, fields_used, fields_written};
use crate::model::{Expr, Function};

/// Offsets in the kernel's `struct xdp_md`.
mod xdp_md {
    pub(super) const DATA: i16 = 0;
    pub(super) const DATA_END: i16 = 4;
    pub(super) const INGRESS_IFINDEX: i16 = 12;
}

/// Above the distance of any header that a parse can reach: the longest is 14 + 2 * 4 + 40 + 4 * 2048 bytes away.
const MAX_DISTANCE: i32 = 0x3fff;

/// Whether a node's successors can be reached over many ways: those of tags and extension headers.
fn is_joined(node: &Node) -> bool {
    node.header.is_none() || (node.extent == Extent::Open && *node != NODES[ETHERNET])
}

/// Which part of the parse graph a function needs.
pub(super) struct Shape {
    /// Headers that are needed.
    pub(super) needed: u32,
    /// Every combination of valid headers with which a parse can end.
    pub(super) masks: BTreeSet<u32>,
    pub(super) needs_ip_proto: bool,
}

impl Shape {
    pub(super) fn of(function: &Function) -> Shape {
        let mut needed = 0;
        let mut needs_ip_proto = false;
        for field in fields_used(function) {
            needed |= mask_of(field);
            needs_ip_proto |= field.get().source == Source::IpProto;
        }
        // A header whose checksum covers a written field is needed to keep it right.
        let written: u32 = fields_written(function).iter().map(|&f| mask_of(f)).fold(0, |a, b| a | b);
        for checksum in &CHECKSUMS {
            let covers = checksum.header.bit()
                | if checksum.pseudo_header { Header::Ipv4.bit() | Header::Ipv6.bit() } else { 0 };
            if written & covers != 0 {
                needed |= checksum.header.bit();
            }
        }
        let mut masks = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut todo = vec![(ETHERNET, 0u32)];
        while let Some((index, mask)) = todo.pop() {
            if !seen.insert((index, mask)) {
                continue;
            }
            let node = &NODES[index];
            let after = mask | node.header.map_or(0, Header::bit);
            masks.extend([mask, after]);
            todo.extend(node.next.edges.iter().map(|&(_, next)| (next, after)));
        }
        Shape { needed, masks, needs_ip_proto }
    }
}

/// The headers of which any one makes the field present; 0 where it always is.
pub(super) fn mask_of(field: FieldId) -> u32 {
    field.headers().into_iter().map(Header::bit).fold(0, |a, b| a | b)
}

/// An access that covers a slice: the window's offset from the header and size, then shift and mask of its big-endian
/// value.
pub(super) struct Window {
    pub(super) offset: i16,
    pub(super) size: Size,
    pub(super) size_bits: u32,
    pub(super) shift: u32,
    pub(super) width_bits: u32,
}

impl Window {
    /// The smallest window inside the first `limit_bytes` of the header.
    pub(super) fn of(slice: Slice, limit_bytes: u32) -> Option<Window> {
        let (start, width) = (u32::from(slice.offset_bits), u32::from(slice.width_bits));
        [1u32, 2, 4, 8].into_iter().find_map(|bytes| {
            let first = (start + width).div_ceil(8).saturating_sub(bytes).min(start / 8);
            let fits = first + bytes <= limit_bytes && (first + bytes) * 8 >= start + width;
            fits.then(|| Window {
                offset: first as i16,
                size: Size::of(bytes).unwrap_or(Size::B8),
                size_bits: bytes * 8,
                shift: (first + bytes) * 8 - start - width,
                width_bits: width,
            })
        })
    }
}

/// Bytes of a header that are always there.
pub(super) fn min_bytes(header: Header) -> u32 {
    NODES.iter().find(|node| node.header == Some(header)).map_or(0, |node| node.min_bytes.into())
}

impl Lowering<'_> {
    /// Loads a slice of the header at `base` as a number.
    pub(super) fn load_slice(&mut self, dst: Reg, base: Reg, slice: Slice, limit_bytes: u32) {
        let Some(window) = Window::of(slice, limit_bytes) else { return };
        let b = &mut self.builder;
        b.load(window.size, dst, base, window.offset);
        if window.size_bits > 8 {
            b.push(Op::FromBe { dst, bits: window.size_bits as i32 });
        }
        if window.shift > 0 {
            b.alu64(alu::RSH, dst, Operand::Imm(window.shift as i32));
        }
        if window.shift + window.width_bits < window.size_bits {
            let mask = b.operand((1u64 << window.width_bits) - 1);
            b.alu64(alu::AND, dst, mask);
        }
    }

    pub(super) fn emit_parse(&mut self) {
        let function = self.function;
        if let Some(first) = function.elements.first() {
            self.builder.push(Op::Line(first.span));
        }
        let reads = |wanted: Source| fields_used(function).iter().any(|f| f.get().source == wanted);
        let b = &mut self.builder;
        b.load(Size::B4, self.data, R1, xdp_md::DATA);
        b.load(Size::B4, self.data_end, R1, xdp_md::DATA_END);
        if reads(Source::PacketPort) {
            b.load(Size::B4, self.port, R1, xdp_md::INGRESS_IFINDEX);
        }
        if reads(Source::PacketLen) {
            b.copy(self.packet_len, self.data_end);
            b.alu64(alu::SUB, self.packet_len, Operand::Reg(self.data));
        }
        b.set(self.now, 0);
        for (reg, variable) in self.metadata.iter().zip(&function.metadata) {
            b.set(*reg, variable.initial as u64);
        }
        if self.tracked == 0 && !self.needs_ip_proto {
            self.leave_parse(0);
            return;
        }

        let cursor = b.dup(self.data);
        let remaining = b.reg();
        let mut labels: BTreeMap<(usize, u32), Label> = BTreeMap::new();
        let mut todo = vec![(ETHERNET, 0u32)];
        labels.insert((ETHERNET, 0), self.builder.label());
        let mut exits: BTreeMap<u32, Label> = BTreeMap::new();
        let mut next = 0;
        while next < todo.len() {
            let (index, mask) = todo[next];
            next += 1;
            let node = &NODES[index];
            self.builder.place(labels[&(index, mask)]);
            let invalid = *exits.entry(mask).or_insert_with(|| self.builder.label());
            let len = self.emit_node(node, cursor, remaining, invalid);
            let after = mask | node.header.map_or(0, Header::bit) & self.tracked;
            let done = *exits.entry(after).or_insert_with(|| self.builder.label());
            let edges: Vec<_> = node.next.edges.iter().filter(|&&(_, to)| self.is_relevant(to)).collect();
            if let (Some(slice), true) = (node.next.selector, !edges.is_empty() || self.takes_ip_proto(node)) {
                self.emit_selection(node, slice, (cursor, len), done, &edges, after, &mut labels, &mut todo);
            }
            self.builder.goto(done);
        }
        for (mask, label) in exits {
            self.builder.place(label);
            self.leave_parse(mask);
        }
    }

    fn takes_ip_proto(&self, node: &Node) -> bool {
        self.needs_ip_proto && node.next.is_ip_proto
    }

    /// Whether the parse must go through the node: it, or what it leads to, is needed.
    fn is_relevant(&self, index: usize) -> bool {
        let node = &NODES[index];
        node.header.is_some_and(|h| h.bit() & self.tracked != 0)
            || self.takes_ip_proto(node)
            || node.next.edges.iter().any(|&(_, to)| self.is_relevant(to))
    }

    /// Whether a node after this one asks how many bytes the IP header left.
    fn leads_to_extent(&self, node: &Node) -> bool {
        node.next.edges.iter().any(|&(_, to)| self.is_relevant(to) && NODES[to].extent == Extent::Within)
    }

    /// Presence, checks, length and extent of the header at `cursor`; jumps to `invalid` where the header is not valid.
    /// Returns the header's length.
    fn emit_node(&mut self, node: &Node, cursor: Reg, remaining: Reg, invalid: Label) -> Operand {
        let min_bytes = u32::from(node.min_bytes);
        let data_end = self.data_end;
        let b = &mut self.builder;
        let end = b.dup(cursor);
        b.alu64(alu::ADD, end, Operand::Imm(min_bytes as i32));
        b.jump64(jmp::JGT, end, Operand::Reg(data_end), invalid);
        for check in node.checks {
            let value = self.builder.reg();
            let (slice, op, limit) = match *check {
                Check::Equal(slice, limit) => (slice, jmp::JNE, limit),
                Check::AtLeast(slice, limit) => (slice, jmp::JLT, limit),
            };
            self.load_slice(value, cursor, slice, min_bytes);
            self.builder.jump64(op, value, Operand::Imm(limit as i32), invalid);
        }
        let len = match node.length {
            Length::Fixed => Operand::Imm(min_bytes as i32),
            Length::Scaled { slice, add, times } => {
                let len = self.builder.reg();
                self.load_slice(len, cursor, slice, min_bytes);
                let b = &mut self.builder;
                if add > 0 {
                    b.alu64(alu::ADD, len, Operand::Imm(add.into()));
                }
                b.alu64(alu::LSH, len, Operand::Imm(times.trailing_zeros() as i32));
                if u32::from(add) * u32::from(times) < min_bytes {
                    b.jump64(jmp::JLT, len, Operand::Imm(min_bytes as i32), invalid);
                }
                let end = b.dup(cursor);
                b.alu64(alu::ADD, end, Operand::Reg(len));
                b.jump64(jmp::JGT, end, Operand::Reg(data_end), invalid);
                Operand::Reg(len)
            }
        };
        let needs_extent = self.leads_to_extent(node);
        match node.extent {
            Extent::Open => {}
            Extent::Total(slice) => {
                self.load_slice(remaining, cursor, slice, min_bytes);
                match len {
                    Operand::Reg(len) => {
                        self.builder.jump64(jmp::JLT, remaining, Operand::Reg(len), invalid);
                    }
                    Operand::Imm(len) => self.builder.jump64(jmp::JLT, remaining, Operand::Imm(len), invalid),
                }
                if needs_extent {
                    self.builder.alu64(alu::SUB, remaining, len);
                }
            }
            Extent::After(slice) => {
                if needs_extent {
                    self.load_slice(remaining, cursor, slice, min_bytes);
                }
            }
            Extent::Within => {
                match len {
                    Operand::Reg(len) => self.builder.jump64(jmp::JLT, remaining, Operand::Reg(len), invalid),
                    Operand::Imm(len) => self.builder.jump64(jmp::JLT, remaining, Operand::Imm(len), invalid),
                }
                self.builder.alu64(alu::SUB, remaining, len);
            }
        }
        if let Some(header) = node.header {
            self.builder.copy(self.pointers[&header], cursor);
            if header == Header::Tcp {
                self.builder.copy(self.payload_len, remaining);
            }
        }
        if self.takes_ip_proto(node)
            && let Some(slice) = node.next.selector
        {
            let ip_proto = self.ip_proto;
            self.load_slice(ip_proto, cursor, slice, min_bytes);
        }
        len
    }

    /// Follows the edge that the selector picks.
    #[allow(clippy::too_many_arguments)] // the state of the walk, used nowhere else
    fn emit_selection(
        &mut self,
        node: &Node,
        selector: Slice,
        (cursor, len): (Reg, Operand),
        done: Label,
        edges: &[&(u32, usize)],
        after: u32,
        labels: &mut BTreeMap<(usize, u32), Label>,
        todo: &mut Vec<(usize, u32)>,
    ) {
        if edges.is_empty() {
            return;
        }
        let min_bytes = u32::from(node.min_bytes);
        if let Some(slice) = node.next.only_if_zero {
            let later = self.builder.reg();
            self.load_slice(later, cursor, slice, min_bytes);
            self.builder.jump64(jmp::JNE, later, Operand::Imm(0), done);
        }
        // Compared as it stands in memory: swapping the constants costs nothing.
        let window = Window::of(selector, min_bytes);
        let value = if self.takes_ip_proto(node) { self.ip_proto } else { self.builder.reg() };
        let mut swapped = false;
        if !self.takes_ip_proto(node) {
            match window {
                Some(w) if w.shift == 0 && w.width_bits == 16 && w.size_bits == 16 => {
                    self.builder.load(w.size, value, cursor, w.offset);
                    swapped = true;
                }
                _ => self.load_slice(value, cursor, selector, min_bytes),
            }
        }
        self.builder.alu64(alu::ADD, cursor, len);
        if is_joined(node) {
            self.forget_way(cursor);
        }
        for &&(constant, to) in edges {
            let label = *labels.entry((to, after)).or_insert_with(|| {
                todo.push((to, after));
                self.builder.label()
            });
            let constant = if swapped { u32::from((constant as u16).swap_bytes()) } else { constant };
            self.builder.jump64(jmp::JEQ, value, Operand::Imm(constant as i32), label);
        }
    }

    /// Recomputes the cursor from its distance to the packet's start.
    ///
    /// The value stays what it is, but the kernel's verifier, which follows every way to a header by itself, no longer
    /// tells the ways apart: what it has proved for one serves for all.
    fn forget_way(&mut self, cursor: Reg) {
        let data = self.data;
        let b = &mut self.builder;
        let distance = b.dup(cursor);
        b.alu64(alu::SUB, distance, Operand::Reg(data));
        b.alu64(alu::AND, distance, Operand::Imm(MAX_DISTANCE));
        b.copy(cursor, data);
        b.alu64(alu::ADD, cursor, Operand::Reg(distance));
    }

    /// The parse is over with these headers valid: into the first element.
    fn leave_parse(&mut self, mask: u32) {
        self.builder.set(self.valid, mask.into());
        let target = if self.key_is_present(0, mask) { self.plans[0].entry } else { self.plans[0].no_key };
        self.builder.goto(target);
    }
}

/// Whether an expression reads the time.
pub(super) fn reads_now(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |e| found |= matches!(e, Expr::Now { .. }));
    found
}
