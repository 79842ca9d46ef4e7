// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headers found by a parser outside of the program, by calls of `fl_parse`, in place of code that walks the parse
//! graph.
//!
//! ```text
//!   r6 = fl_parse(ctx, valid {ipv4, udp})
//!   r7 = data + fl_parse(ctx, offset {ipv4})
//!   if r6 & ipv4 goto ..               one exit for each set of valid headers, as after a walk
//! ```

use std::collections::BTreeMap;

use flowloom_engine::Verdict;
use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, Cond};
use flowloom_wire::Question;
use flowloom_wire::field::Source;
use flowloom_wire::graph::Header;

use super::asm::{Label, Operand, R0, R1, R2, Reg};
use super::fields::fields_used;
use super::lowering::Lowering;
use super::parse::MAX_DISTANCE;
use super::shape::Shape;

impl Lowering<'_> {
    /// Asks for what the elements need, and enters the first one.
    pub(super) fn emit_parser_call(&mut self) {
        // The time travels with the packet.
        self.ensure_now();
        let elements = &self.function.elements;
        let shape = Shape::whole(elements, self.graph);
        if shape.needed == 0 && !shape.ip_proto.contains(&true) {
            self.enter(0, 0);
            return;
        }
        let valid = self.builder.reg();
        self.ask(Question::Valid(shape.needed), valid);
        let mut sets: BTreeMap<Reg, u32> = BTreeMap::new();
        for header in Header::ALL.into_iter().filter(|header| shape.needed & header.bit() != 0) {
            *sets.entry(self.pointers[&header]).or_default() |= header.bit();
        }
        for (pointer, set) in sets {
            let distance = self.builder.reg();
            self.ask(Question::Offset(set), distance);
            let (data, b) = (self.data, &mut self.builder);
            b.alu64(AluOp::And, distance, Operand::Imm(MAX_DISTANCE));
            b.copy(pointer, data);
            b.alu64(AluOp::Add, pointer, Operand::Reg(distance));
        }
        for (scope, reg) in self.ip_proto.clone() {
            self.ask(Question::Protocol(scope), reg);
        }
        let used = fields_used(elements);
        for (header, reg) in self.payload_len.clone() {
            if used.iter().any(|field| field.source() == Source::TcpPayloadLen(header)) {
                self.ask(Question::Payload(header.bit()), reg);
            }
        }
        let short = self.builder.label();
        let masks: Vec<u32> = shape.masks.iter().copied().collect();
        self.split_by_headers(valid, &masks, short);
        // No packet gets here: a valid header is present. The verifier does not know that.
        self.builder.place(short);
        self.exit(Verdict::Aborted);
    }

    fn ask(&mut self, question: Question, answer: Reg) {
        let Some(ctx) = self.ctx else { return };
        let b = &mut self.builder;
        b.copy(R1, ctx);
        b.set(R2, question.encode());
        b.call(helper::FL_PARSE, 2);
        b.copy(answer, R0);
    }

    /// Enters the first element once for each of these sets of valid headers, of which the register has one; jumps to
    /// `short` if a valid header is not present.
    fn split_by_headers(&mut self, valid: Reg, masks: &[u32], short: Label) {
        if let [mask] = *masks {
            for header in Header::ALL.into_iter().filter(|header| mask & header.bit() != 0) {
                let (min_bytes, pointer, data_end) = (self.min_bytes(header), self.pointers[&header], self.data_end);
                let end = self.builder.dup(pointer);
                self.builder.alu64(AluOp::Add, end, Operand::Imm(min_bytes as i32));
                self.builder.jump64(Cond::Gt, end, Operand::Reg(data_end), short);
            }
            self.enter(0, mask);
            return;
        }
        let split = |bit: u32| -> (Vec<u32>, Vec<u32>) { masks.iter().partition(|mask| **mask & bit != 0) };
        let bits = Header::ALL.into_iter().map(Header::bit);
        let mut splits = bits.map(|bit| (bit, split(bit)));
        let Some((bit, (with, without))) = splits.find(|(_, (with, without))| !with.is_empty() && !without.is_empty())
        else {
            return;
        };
        let there = self.builder.label();
        self.builder.jump64(Cond::Set, valid, Operand::Imm(bit as i32), there);
        self.split_by_headers(valid, &without, short);
        self.builder.place(there);
        self.split_by_headers(valid, &with, short);
    }
}
