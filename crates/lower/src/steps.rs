// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The steps of a row.
//!
//! Goal: code for the changes of [`flowloom_wire::edit`]. All values are computed before the first step. A step after a
//! change of the frame parses the frame again, as far as it needs to, so that it sees what the reference machine sees.
//!
//! ```text
//!  push mpls(label = x);       search the link layer: where it ends, whether labels follow
//!                              grow by 4 bytes; EtherType and label
//!  pop mpls;                   shrink by 4 bytes; the EtherType of what follows the last label
//!  goto next;                  a new parse, then `next`
//! ```
//!
//! Holds before: the row's writes are done, the frame is unchanged since the parse. Holds after: if the frame has
//! changed, all header pointers are invalid.
//!
//! Limits: frames grow by at most [`super::frame::HEADROOM_BYTES`].

use std::collections::BTreeMap;

use flowloom_isa::op::{AluOp, Cond};
use flowloom_wire::edit::{self, TAG_BYTES};
use flowloom_wire::graph::{Header, Slice, bytes};
use flowloom_wire::stack::ChecksumSlot;
use flowloom_wire::{EtherType, Stack};

use super::asm::{Label, Operand, Reg, Size, access_size};
use super::frame::Before;
use super::log::Record;
use super::lowering::Lowering;
use super::parse::{MAX_DISTANCE, ParseResults};
use super::shape::Shape;
use super::value::{Env, Value};
use super::write::Source;
use flowloom_efsm::model::{Actions, Expr, Function, HeaderTemplate, Span, StepKind, Terminal, Width};
use flowloom_efsm::steps;

/// Number of tags that the parser follows.
const TAGS: i16 = 2;
/// Number of tags and labels that the parser follows.
const TAGS_AND_LABELS: i16 = 6;
const IP: [Header; 2] = [Header::Ipv4, Header::Ipv6];
const INNER_IP: [Header; 2] = [Header::InnerIpv4, Header::InnerIpv6];
/// Bytes that the payload length of IPv6 does not count: its header.
const IPV6_BYTES: i32 = 40;

/// A step whose values are computed.
pub(super) enum Prepared {
    /// The tag control information.
    PushVlan(Value),
    /// The label entry.
    PushMpls(Value),
    PopVlan,
    PopMpls,
    /// Headers, and the values for their slots.
    Encapsulate(Stack, Vec<(Slice, Source)>),
    Decapsulate,
    /// Port of the clone.
    Clone(Value),
    /// Port of the emitted packet, its headers, and the values for their slots.
    Emit(Value, Stack, Vec<(Slice, Source)>),
    Log(Record),
}

impl Prepared {
    pub(super) fn for_each_value(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        match self {
            Prepared::PushVlan(value) | Prepared::PushMpls(value) | Prepared::Clone(value) => visit(value),
            Prepared::Encapsulate(_, values) => values.iter_mut().for_each(|(_, source)| source.for_each_value(visit)),
            Prepared::Emit(port, _, values) => {
                visit(port);
                values.iter_mut().for_each(|(_, source)| source.for_each_value(visit));
            }
            Prepared::Log(record) => record.for_each_value(visit),
            Prepared::PopVlan | Prepared::PopMpls | Prepared::Decapsulate => {}
        }
    }
}

/// An IP header in the frame.
struct Ip {
    /// Distance from the packet's start to the EtherType or end of label before it.
    before: Reg,
    /// Whether labels precede it.
    labelled: Reg,
}

/// Largest growth of a frame in bytes over all paths through the elements, and the row on that path that adds most.
pub(super) fn max_growth(function: &Function) -> (u32, Span) {
    // For each element: largest growth from there on, and the largest contribution to it.
    let mut from: Vec<(u32, (u32, Span))> = vec![Default::default(); function.elements.len()];
    for (index, element) in function.elements.iter().enumerate().rev() {
        let rows = element.rows.iter().map(|row| (&row.actions, row.span));
        let growths = rows.chain([(&element.otherwise.actions, element.otherwise.span)]).map(|(actions, span)| {
            let (after, most) = match actions.terminal {
                Terminal::Goto(to) => from[usize::from(to)],
                _ => Default::default(),
            };
            let here = growth(function, actions);
            (here.saturating_add(after), if here >= most.0 { (here, span) } else { most })
        });
        from[index] = growths.max_by_key(|(all, _)| *all).unwrap_or_default();
    }
    from.first().map_or_else(Default::default, |&(all, (_, span))| (all, span))
}

/// Bytes that the steps of a row add; bytes that they remove are not subtracted.
fn growth(function: &Function, actions: &Actions) -> u32 {
    let of = |step: &StepKind| match step {
        StepKind::Push(_) => TAG_BYTES as u32,
        StepKind::Encapsulate(_) => {
            let stack = steps::stack(&function.graph, step).ok().flatten();
            stack.map_or(0, |stack| stack.template().len() as u32)
        }
        _ => 0,
    };
    actions.steps.iter().map(|step| of(&step.kind)).sum()
}

/// True if packets can enter the element with a frame that has changed since it was parsed.
pub(super) fn is_entered_with_changed_frame(function: &Function, element: usize) -> bool {
    let rows = function.elements.iter().flat_map(|e| &e.rows).map(|row| &row.actions);
    rows.filter(|actions| actions.changes_frame())
        .any(|actions| matches!(actions.terminal, Terminal::Goto(to) if usize::from(to) == element))
}

/// Headers that these actions need in the packet, beside those of their fields.
pub(super) fn needed(actions: &Actions) -> u32 {
    let first = actions.steps.iter().find(|step| step.changes_frame());
    match first.map(|step| &step.kind) {
        Some(StepKind::Decapsulate) => mask(&IP),
        _ => 0,
    }
}

fn mask(headers: &[Header]) -> u32 {
    headers.iter().map(|header| header.bit()).fold(0, |a, b| a | b)
}

/// The value for a 2-byte store.
fn in_memory(ethertype: u16) -> u64 {
    ethertype.swap_bytes().into()
}

impl Lowering<'_> {
    /// Computes the values of a step.
    #[allow(clippy::expect_used, reason = "the front end has made the same stacks")]
    pub(super) fn prepare(&mut self, step: &StepKind, env: &Env) -> Option<Prepared> {
        Some(match step {
            StepKind::Push(template) => {
                let entry = self.entry(template, env);
                match template.header {
                    Header::Vlan => Prepared::PushVlan(self.shifted(entry, 16)),
                    _ => Prepared::PushMpls(entry),
                }
            }
            StepKind::Pop(Header::Vlan) => Prepared::PopVlan,
            StepKind::Pop(_) => Prepared::PopMpls,
            StepKind::Encapsulate(templates) => {
                let stack = steps::stack(self.graph, step).expect("the front end checked the step")?;
                let values = self.stack_values(&stack, templates, env);
                Prepared::Encapsulate(stack, values)
            }
            StepKind::Decapsulate => Prepared::Decapsulate,
            StepKind::Clone(port) => Prepared::Clone(self.copy_port(port, env)),
            StepKind::Log(log) => Prepared::Log(self.record(log, env)),
            StepKind::Emit { port, headers } => {
                let stack = steps::stack(self.graph, step).expect("the front end checked the step")?;
                let port = self.copy_port(port, env);
                let values = self.stack_values(&stack, headers, env);
                Prepared::Emit(port, stack, values)
            }
        })
    }

    fn copy_port(&mut self, port: &Expr, env: &Env) -> Value {
        let port = self.eval(port, Width::W32, env);
        self.outside_metadata_register(port)
    }

    /// The given values of a stack, with their slots.
    pub(super) fn stack_values(
        &mut self,
        stack: &Stack,
        templates: &[HeaderTemplate],
        env: &Env,
    ) -> Vec<(Slice, Source)> {
        let mut values = Vec::new();
        for (i, template) in templates.iter().enumerate() {
            for (field, value) in &template.values {
                let Some(slot) = stack.slot(i, *field) else { continue };
                let mut source = self.source(value, env);
                source.for_each_value(&mut |value| *value = self.outside_metadata_register(*value));
                values.push((slot, source));
            }
        }
        values
    }

    /// The 32 bits of a label, or of a tag from its control information on.
    fn entry(&mut self, template: &HeaderTemplate, env: &Env) -> Value {
        let mut entry = Value::Const(steps::DEFAULT_LABEL_TTL.into());
        for (field, value) in &template.values {
            let Some(slot) = steps::pushed_slot(*field) else { continue };
            let value = self.new_value(value, slot.width_bits, env).low;
            let shift = 32 - u32::from(slot.offset_bits) - u32::from(slot.width_bits);
            let keep = !(((1_u64 << slot.width_bits) - 1) << shift) & u64::from(u32::MAX);
            entry = match (entry, value) {
                (Value::Const(entry), Value::Const(value)) => Value::Const(entry & keep | value << shift),
                (entry, value) => {
                    let (all, part) = (self.own(entry), self.own(value));
                    self.builder.alu32(AluOp::And, all, Operand::Imm(keep as u32 as i32));
                    self.builder.alu64(AluOp::Lsh, part, Operand::Imm(shift as i32));
                    self.builder.alu64(AluOp::Or, all, Operand::Reg(part));
                    Value::Reg(all)
                }
            };
        }
        entry
    }

    fn shifted(&mut self, value: Value, by: u32) -> Value {
        match value {
            Value::Const(value) => Value::Const(value >> by),
            Value::Reg(reg) => {
                let high = self.builder.dup(reg);
                self.builder.alu64(AluOp::Rsh, high, Operand::Imm(by as i32));
                Value::Reg(high)
            }
        }
    }

    pub(super) fn emit_steps(&mut self, steps: Vec<Prepared>) {
        // The first step that changes the frame uses the results of the parse.
        let mut is_parsed = true;
        for step in steps {
            let done = self.builder.label();
            match step {
                Prepared::PushVlan(control) => self.push_vlan(control),
                Prepared::PopVlan => self.pop_vlan(is_parsed, done),
                Prepared::PushMpls(entry) => self.push_mpls(entry, done),
                Prepared::PopMpls => self.pop_mpls(is_parsed, done),
                Prepared::Encapsulate(stack, values) => self.encapsulate(is_parsed, &stack, &values, done),
                Prepared::Decapsulate => self.decapsulate(is_parsed, done),
                Prepared::Clone(port) => {
                    self.send_copy(port);
                    continue;
                }
                Prepared::Emit(port, stack, values) => {
                    self.send_emitted(port, &stack, &values);
                    continue;
                }
                Prepared::Log(record) => {
                    self.report(record);
                    continue;
                }
            }
            self.builder.place(done);
            is_parsed = false;
        }
    }

    /// Parses the current frame for headers; `leave` is emitted for each set of them that can be valid.
    fn search(&mut self, headers: &[Header], mut leave: impl FnMut(&mut Self, u32, &ParseResults)) {
        let pointers = headers.iter().map(|&header| (header, self.builder.reg())).collect();
        let parse_results = ParseResults { pointers, ip_proto: BTreeMap::new(), payload_len: BTreeMap::new() };
        let shape = Shape::new(mask(headers), [false; 2], self.graph, None);
        self.emit_walk(&shape, &parse_results, &mut |this, found| leave(this, found, &parse_results));
    }

    /// Distance of the two bytes before a header.
    fn before(&mut self, header: Reg) -> Reg {
        let distance = self.distance(header, self.data);
        self.builder.alu64(AluOp::Sub, distance, Operand::Imm(2));
        distance
    }

    fn distance(&mut self, to: Reg, from: Reg) -> Reg {
        let distance = self.builder.dup(to);
        self.builder.alu64(AluOp::Sub, distance, Operand::Reg(from));
        distance
    }

    fn push_vlan(&mut self, control: Value) {
        self.grow(Before::Addresses, TAG_BYTES as i16);
        let (base, at) = self.ensure_after_addresses(TAG_BYTES as i16);
        self.builder.store(Size::H, base, at, Operand::Imm(in_memory(EtherType::VLAN.0) as i32));
        let control = self.swapped(control, 16);
        self.builder.store(Size::H, base, at + 2, control);
    }

    fn pop_vlan(&mut self, is_parsed: bool, done: Label) {
        if !is_parsed {
            let found = self.builder.label();
            self.search(&[Header::Vlan], |this, mask, _| this.builder.goto(if mask == 0 { done } else { found }));
            self.builder.place(found);
        }
        self.shrink(Before::Addresses, Operand::Imm(TAG_BYTES as i32));
    }

    fn push_mpls(&mut self, entry: Value, done: Label) {
        let (before, bottom) = (self.builder.reg(), self.builder.reg());
        let found = self.builder.label();
        self.search(&[Header::Ethernet, Header::Vlan, Header::Vlan2, Header::Mpls], |this, mask, _| {
            if mask & Header::Ethernet.bit() == 0 {
                return this.builder.goto(done);
            }
            let tags = [Header::Vlan, Header::Vlan2].iter().filter(|tag| mask & tag.bit() != 0).count();
            let is_only = mask & Header::Mpls.bit() == 0;
            this.builder.set(before, (12 + TAG_BYTES * tags) as u64);
            this.builder.set(bottom, if is_only { edit::BOTTOM_OF_STACK.swap_bytes().into() } else { 0 });
            this.builder.goto(found);
        });
        self.builder.place(found);
        self.grow(Before::Type(before, TAGS), TAG_BYTES as i16);
        let address = self.type_address(before, TAG_BYTES as i16);
        self.builder.store(Size::H, address, 0, Operand::Imm(in_memory(EtherType::MPLS.0) as i32));
        let entry = self.own(entry);
        self.builder.alu32(AluOp::And, entry, Operand::Imm(!edit::BOTTOM_OF_STACK as i32));
        let Operand::Reg(swapped) = self.swapped(Value::Reg(entry), 32) else { return };
        self.builder.alu64(AluOp::Or, swapped, Operand::Reg(bottom));
        self.builder.store(Size::W, address, 2, Operand::Reg(swapped));
    }

    fn pop_mpls(&mut self, is_parsed: bool, done: Label) {
        let before = if is_parsed {
            self.before(self.pointers[&Header::Mpls])
        } else {
            let (before, found) = (self.builder.reg(), self.builder.label());
            self.search(&[Header::Mpls], |this, mask, parse_results| {
                if mask == 0 {
                    return this.builder.goto(done);
                }
                let distance = this.before(parse_results.pointers[&Header::Mpls]);
                this.builder.copy(before, distance);
                this.builder.goto(found);
            });
            self.builder.place(found);
            before
        };
        let address = self.type_address(before, TAG_BYTES as i16);
        let shrink = self.builder.label();
        let flags = self.builder.reg();
        self.builder.load(Size::B, flags, address, 4);
        self.builder.alu64(AluOp::And, flags, Operand::Imm(1));
        self.builder.jump64(Cond::Eq, flags, Operand::Imm(0), shrink);
        self.type_by_version(address);
        self.builder.place(shrink);
        self.shrink(Before::Type(before, TAGS), Operand::Imm(TAG_BYTES as i32));
    }

    /// Writes the EtherType of the payload after the label at `address`, if there is any.
    fn type_by_version(&mut self, address: Reg) {
        let (store, data_end) = (self.builder.label(), self.data_end);
        let b = &mut self.builder;
        let (ethertype, end, version) = (b.reg(), b.dup(address), b.reg());
        b.set(ethertype, in_memory(EtherType::IPV4.0));
        let version_at = 2 + TAG_BYTES as i16;
        b.alu64(AluOp::Add, end, Operand::Imm(i32::from(version_at) + 1));
        b.jump64(Cond::Gt, end, Operand::Reg(data_end), store);
        b.load(Size::B, version, address, version_at);
        b.alu64(AluOp::Rsh, version, Operand::Imm(4));
        b.jump64(Cond::Ne, version, Operand::Imm(6), store);
        b.set(ethertype, in_memory(EtherType::IPV6.0));
        b.place(store);
        b.store(Size::H, address, 0, Operand::Reg(ethertype));
    }

    /// Sets `labelled` if labels precede the IP header of the parsed frame.
    fn find_labels(&mut self, labelled: Reg) {
        let known = self.builder.label();
        self.search(&[Header::Mpls], |this, mask, _| {
            this.builder.set(labelled, u64::from(mask != 0));
            this.builder.goto(known);
        });
        self.builder.place(known);
    }

    /// Finds the outermost IP header; `body` is emitted for each kind with its address.
    fn outermost_ip(&mut self, is_parsed: bool, done: Label, mut body: impl FnMut(&mut Self, Header, Reg)) -> Ip {
        let (before, labelled) = (self.builder.reg(), self.builder.reg());
        let mut at = |this: &mut Self, header: Header, pointer: Reg| {
            let distance = this.before(pointer);
            this.builder.copy(before, distance);
            body(this, header, pointer);
        };
        if is_parsed {
            self.find_labels(labelled);
            // Two distinct places, even if one pointer serves for both.
            let places = [(Header::Ipv4, bytes(0, 1)), (Header::Ipv6, bytes(0, 2))];
            self.for_each_place(&places, |this, header, _| at(this, header, this.pointers[&header]));
        } else {
            let found = self.builder.label();
            self.search(&[Header::Mpls, Header::Ipv4, Header::Ipv6], |this, mask, parse_results| {
                let Some(header) = IP.into_iter().find(|header| mask & header.bit() != 0) else {
                    return this.builder.goto(done);
                };
                this.builder.set(labelled, u64::from(mask & Header::Mpls.bit() != 0));
                at(this, header, parse_results.pointers[&header]);
                this.builder.goto(found);
            });
            self.builder.place(found);
        }
        Ip { before, labelled }
    }

    fn encapsulate(&mut self, is_parsed: bool, stack: &Stack, values: &[(Slice, Source)], done: Label) {
        let total = self.builder.reg();
        let ip = self.outermost_ip(is_parsed, done, |this, header, pointer| {
            let (length, header_bytes, uncounted) =
                if header == Header::Ipv4 { (bytes(2, 2), 20, 0) } else { (bytes(4, 2), 40, IPV6_BYTES) };
            this.load_slice(total, pointer, length, header_bytes);
            if uncounted > 0 {
                this.builder.alu64(AluOp::Add, total, Operand::Imm(uncounted));
            }
        });
        let len = stack.template().len() as i16;
        self.grow(Before::Type(ip.before, TAGS_AND_LABELS), len);
        let address = self.type_address(ip.before, len);
        let headers = self.builder.label();
        self.builder.jump64(Cond::Ne, ip.labelled, Operand::Imm(0), headers);
        let is_v6 = stack.template().first().is_some_and(|byte| byte >> 4 == 6);
        let ethertype = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        self.builder.store(Size::H, address, 0, Operand::Imm(in_memory(ethertype.0) as i32));
        self.builder.place(headers);
        self.render(address, 2, stack, values, Value::Reg(total));
    }

    fn decapsulate(&mut self, is_parsed: bool, done: Label) {
        let (outer, inner, ethertype) = (self.builder.reg(), self.builder.reg(), self.builder.reg());
        let at_inner = |this: &mut Self, header: Header, pointer: Reg| {
            let kind = if header == Header::InnerIpv6 { EtherType::IPV6 } else { EtherType::IPV4 };
            this.builder.copy(inner, pointer);
            this.builder.set(ethertype, in_memory(kind.0));
        };
        let labelled = self.builder.reg();
        if is_parsed {
            self.find_labels(labelled);
            let places = [(Header::Ipv4, bytes(0, 1)), (Header::Ipv6, bytes(0, 2))];
            self.for_each_place(&places, |this, header, _| this.builder.copy(outer, this.pointers[&header]));
            let places = [(Header::InnerIpv4, bytes(0, 1)), (Header::InnerIpv6, bytes(0, 2))];
            self.for_each_place(&places, |this, header, _| at_inner(this, header, this.pointers[&header]));
        } else {
            let found = self.builder.label();
            let headers = [&[Header::Mpls], &IP[..], &INNER_IP[..]].concat();
            self.search(&headers, |this, mask, parse_results| {
                let of = |headers: [Header; 2]| headers.into_iter().find(|header| mask & header.bit() != 0);
                let (Some(ip), Some(inner_ip)) = (of(IP), of(INNER_IP)) else { return this.builder.goto(done) };
                this.builder.copy(outer, parse_results.pointers[&ip]);
                at_inner(this, inner_ip, parse_results.pointers[&inner_ip]);
                this.builder.set(labelled, u64::from(mask & Header::Mpls.bit() != 0));
                this.builder.goto(found);
            });
            self.builder.place(found);
        }
        let before = self.before(outer);
        let len = self.distance(inner, outer);
        self.builder.alu64(AluOp::And, len, Operand::Imm(MAX_DISTANCE));
        let shrink = self.builder.label();
        self.builder.jump64(Cond::Ne, labelled, Operand::Imm(0), shrink);
        let address = self.type_address(before, 0);
        self.builder.store(Size::H, address, 0, Operand::Reg(ethertype));
        self.builder.place(shrink);
        self.shrink(Before::Type(before, TAGS_AND_LABELS), Operand::Reg(len));
    }

    /// Writes the headers of a stack at `base + at`, before a payload of `payload_bytes` bytes, as [`Stack::render`]
    /// does.
    pub(super) fn render(
        &mut self,
        base: Reg,
        at: i16,
        stack: &Stack,
        values: &[(Slice, Source)],
        payload_bytes: Value,
    ) {
        let in_frame = |offset_bytes: usize| at + offset_bytes as i16;
        let limit_bytes = at as u32 + stack.template().len() as u32;
        // Constants go into the template, unless an earlier run-time value overlaps them.
        let mut template = stack.template().to_vec();
        let mut late: Vec<(Slice, Source)> = Vec::new();
        for &(slot, source) in values {
            let overlaps = late.iter().any(|(other, _)| other.words() & slot.words() != 0);
            match source {
                Source::Number(Value::Const(value)) if !overlaps => drop(slot.write(&mut template, value.into())),
                Source::Wide(value) if !overlaps => drop(slot.write(&mut template, value)),
                _ => late.push((slot, source)),
            }
        }
        self.store_bytes(base, at, &template);
        for (slot, source) in late {
            let slot = Slice { offset_bits: slot.offset_bits + 8 * at as u16, ..slot };
            self.write_slice_at(base, slot, limit_bytes, source);
        }
        for length in stack.lengths() {
            let value = match payload_bytes {
                Value::Const(payload) => Value::Const((payload + length.add_bytes as u64) & 0xffff),
                Value::Reg(payload) => {
                    let value = self.builder.dup(payload);
                    self.builder.alu64(AluOp::Add, value, Operand::Imm(length.add_bytes as i32));
                    Value::Reg(value)
                }
            };
            let value = self.swapped(value, 16);
            self.builder.store(Size::H, base, in_frame(length.offset_bytes), value);
        }
        for checksum in stack.checksums() {
            self.render_checksum(base, at, checksum);
        }
    }

    /// Computes a checksum whose field is still 0.
    fn render_checksum(&mut self, base: Reg, at: i16, checksum: &ChecksumSlot) {
        let sum = self.builder.reg();
        let mut covered = vec![checksum.covers.clone()];
        let mut known = 0;
        if let Some(pseudo) = &checksum.pseudo {
            covered.push(pseudo.addresses.clone());
            known = (u64::from(pseudo.proto) + checksum.covers.len() as u64).swap_bytes() >> 48;
        }
        self.builder.set(sum, known);
        let mut largest = known;
        for range in covered {
            let mut next = range.start;
            while next < range.end {
                let size = match range.end - next {
                    4.. => Size::W,
                    2 | 3 => Size::H,
                    _ => Size::B,
                };
                let word = self.builder.reg();
                self.builder.load(size, word, base, at + next as i16);
                self.builder.alu64(AluOp::Add, sum, Operand::Reg(word));
                largest += if size == Size::W { u64::from(u32::MAX) } else { 0xffff };
                next += size.bytes();
            }
        }
        self.fold(sum, largest);
        self.builder.alu64(AluOp::Xor, sum, Operand::Imm(0xffff));
        if checksum.zero_is_none {
            let some = self.builder.label();
            self.builder.jump64(Cond::Ne, sum, Operand::Imm(0), some);
            self.builder.set(sum, 0xffff);
            self.builder.place(some);
        }
        self.builder.store(Size::H, base, at + checksum.offset_bytes as i16, Operand::Reg(sum));
    }

    /// Stores constant bytes, four at a time, or eight if they are all zero.
    fn store_bytes(&mut self, base: Reg, at: i16, bytes: &[u8]) {
        let mut rest = bytes;
        let mut next = at;
        while !rest.is_empty() {
            let len = match rest.len() {
                8.. if rest[..8] == [0; 8] => 8,
                4.. => 4,
                2 | 3 => 2,
                _ => 1,
            };
            let (piece, after) = rest.split_at(len);
            let mut value = [0; 8];
            value[..len].copy_from_slice(piece);
            self.builder.store(
                access_size(len as u32),
                base,
                next,
                Operand::Imm(u64::from_le_bytes(value) as u32 as i32),
            );
            (rest, next) = (after, next + len as i16);
        }
    }
}
