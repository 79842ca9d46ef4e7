// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Event records for user space: `log` and `alert`.
//!
//! Goal: one helper call for each.
//!
//! ```text
//!  alert("SYN flood", ip.src, n);   time, statement, level and values to the stack
//!                                   call ringbuf_output(fl_events, record, length, 0)
//!                                   attached: fl_lost += 1 where there was no room
//! ```
//!
//! Holds before: all values are computed. Holds after: the frame is as it was.
//!
//! Limits: the record must fit the program's stack frame, where it shares the slots of key and context.

use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, Cond};
use flowloom_isa::{BPF_F_MMAPABLE, MapDef, MapKind};

use super::asm::{FP, Op, Operand, R0, R1, R2, R3, R4, Size};
use super::lowering::Lowering;
use super::value::{Env, Pair, Value};
use flowloom_efsm::events::{EVENTS_MAP, LOST_MAP, RING_BYTES};
use flowloom_efsm::model::{Function, Log, NewValue};

/// An event whose values are computed.
pub(super) struct Record {
    /// Number of the statement in the low half, its level in the high half.
    head: u64,
    time: Value,
    /// The values, each with a flag for 128 bits.
    values: Vec<(Pair, bool)>,
}

impl Record {
    pub(super) fn for_each_value(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        visit(&mut self.time);
        for (pair, _) in &mut self.values {
            visit(&mut pair.high);
            visit(&mut pair.low);
        }
    }
}

/// The maps that events need: the ring buffer and, for an attached function, the counter of lost events.
pub(super) fn maps(function: &Function, is_attached: bool) -> Vec<MapDef> {
    let mut maps = Vec::new();
    if flowloom_efsm::events::longest_bytes(function) > 0 {
        let ring = MapDef { name: EVENTS_MAP.to_owned(), kind: MapKind::RingBuf, ..MapDef::default() };
        maps.push(MapDef { max_entries: RING_BYTES, ..ring });
        if is_attached {
            maps.push(MapDef {
                name: LOST_MAP.to_owned(),
                kind: MapKind::Array,
                key_bytes: 4,
                value_bytes: 8,
                max_entries: 1,
                flags: BPF_F_MMAPABLE,
                initial: Some(vec![0; 8]),
                ..MapDef::default()
            });
        }
    }
    maps
}

impl Lowering<'_> {
    /// Computes the values of an event.
    pub(super) fn record(&mut self, log: &Log, env: &Env) -> Record {
        self.ensure_now();
        let values = log.values.iter().map(|logged| {
            let pair = match &logged.value {
                NewValue::Number { value, width } => Pair::narrow(self.eval(value, *width, env)),
                NewValue::Wide(wide) => self.pair(*wide, env),
            };
            (pair.map(|half| self.outside_metadata_register(half)), logged.value.wide().is_some())
        });
        let values = values.collect();
        let head = u64::from(log.level.number()) << 32 | u64::from(log.id);
        Record { head, time: Value::Reg(self.now), values }
    }

    /// Writes the record and passes it to the ring buffer.
    pub(super) fn report(&mut self, record: Record) {
        let Some(map) = self.events_map else { return };
        let slot = self.output_slot;
        let mut at = slot;
        let head = Value::Const(record.head);
        let halves = record.values.iter().flat_map(|(pair, is_wide)| {
            let high = is_wide.then_some(pair.high);
            std::iter::once(pair.low).chain(high)
        });
        for value in [record.time, head].into_iter().chain(halves) {
            let value = self.operand_of(value);
            self.builder.store(Size::Dw, FP, at, value);
            at += Size::Dw.bytes() as i16;
        }
        let b = &mut self.builder;
        b.push(Op::Map { dst: R1, map });
        b.copy(R2, FP);
        b.alu64(AluOp::Add, R2, Operand::Imm(slot.into()));
        b.set(R3, (at - slot) as u64);
        b.set(R4, 0);
        b.call(helper::RINGBUF_OUTPUT, 4);
        if !self.is_attached {
            return;
        }
        let b = &mut self.builder;
        let taken = b.label();
        b.jump64(Cond::Eq, R0, Operand::Imm(0), taken);
        let (address, one) = (b.reg(), b.reg());
        b.push(Op::MapValue { dst: address, map: map + 1, offset: 0 });
        b.set(one, 1);
        b.push(Op::AtomicAdd { size: Size::Dw, base: address, offset: 0, src: one });
        b.place(taken);
    }
}
