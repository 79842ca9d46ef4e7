// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of a lowering, and the code that several parts emit: counters, calls on maps, and exits.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_engine::Verdict;
use flowloom_isa::MapDef;
use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, Cond};
use flowloom_wire::field::FieldId;
use flowloom_wire::graph::{Graph, Header, Scope};

use super::asm::{Builder, FP, Label, Op, Operand, R0, R1, R2, R3, R4, Reg, Size};
use super::facts::Facts;
use super::locking::{HeldLocks, Locking};
use super::maps::BPF_ANY;
use super::options::HeaderParser;
use flowloom_efsm::layout::{Counter, CounterTable, RecordLayout, Timers};
use flowloom_efsm::model::{Function, Terminal};

/// Flags of `redirect_map`: all ports except the ingress port.
const BROADCAST_EXCLUDE_INGRESS: u64 = 1 << 3 | 1 << 4;

/// Labels, maps and layout of one element.
#[derive(Debug, Clone)]
pub(super) struct ElementPlan {
    pub(super) entry: Label,
    /// Entry for packets whose frame has changed since it was parsed, if there are any.
    pub(super) reparse: Option<Label>,
    pub(super) no_key: Label,
    pub(super) map: Option<u32>,
    pub(super) layout: Option<RecordLayout>,
    /// Timers that contexts in each state can have.
    pub(super) timers: Vec<Timers>,
    /// Entries seen so far, with the facts that hold at each.
    pub(super) entries: Vec<(Facts, Label)>,
    /// Classes of valid header sets that build the key in the same way, and the label of each class.
    pub(super) key_classes: Vec<(Vec<u32>, Label)>,
    pub(super) key_slot: i16,
    pub(super) record_slot: i16,
    /// Offsets of the global registers in the data section.
    pub(super) globals: Vec<u32>,
    pub(super) seen: Option<u32>,
}

pub(super) struct Lowering<'a> {
    pub(super) function: &'a Function,
    pub(super) graph: &'a Graph,
    pub(super) builder: Builder,
    pub(super) maps: Vec<MapDef>,
    pub(super) plans: Vec<ElementPlan>,
    pub(super) counters: Option<(u32, CounterTable)>,
    pub(super) is_attached: bool,
    /// The program is large: the number of paths that the verifier follows matters more than the number of
    /// instructions. Paths to the same code carry no needless differences, and no code is duplicated per path.
    pub(super) for_verifier: bool,
    pub(super) parser: HeaderParser,
    pub(super) globals_map: Option<u32>,
    pub(super) ports_map: Option<u32>,
    /// The ring buffer of events; where lost events are counted, the next map holds their count.
    pub(super) events_map: Option<u32>,
    /// All sets of needed headers with which a parse can end.
    pub(super) masks: Vec<u32>,
    /// Headers that each element and those after it need.
    pub(super) needed_from: Vec<u32>,
    /// Metadata fields that each element and those after it read in expressions.
    pub(super) metadata_read_from: Vec<BTreeSet<u16>>,
    /// The XDP context, for steps that change the frame or send copies.
    pub(super) ctx: Option<Reg>,
    /// Stack slot for emitted packets and event records.
    pub(super) output_slot: i16,
    /// Exits for packets whose frame cannot be changed, by the locks held there.
    pub(super) headroom_exit: BTreeMap<HeldLocks, Label>,
    pub(super) data: Reg,
    pub(super) data_end: Reg,
    pub(super) valid: Reg,
    /// Start of each header; mutually exclusive headers share a register.
    pub(super) pointers: BTreeMap<Header, Reg>,
    pub(super) now: Reg,
    pub(super) port: Reg,
    pub(super) packet_len: Reg,
    /// IP protocol numbers that are needed.
    pub(super) ip_proto: BTreeMap<Scope, Reg>,
    /// Payload length of each TCP header, in bytes.
    pub(super) payload_len: BTreeMap<Header, Reg>,
    /// High and low half of each metadata field.
    pub(super) metadata: Vec<(Reg, Reg)>,
    pub(super) fields: BTreeMap<(usize, FieldId), (Reg, Reg)>,
    /// Field values in memory byte order.
    pub(super) raw_fields: BTreeMap<(usize, FieldId), (Reg, Reg)>,
    /// The packet's time in units of the given number of nanoseconds.
    pub(super) clocks: BTreeMap<(usize, u64), Reg>,
    pub(super) registers: BTreeMap<(usize, u16), (Reg, Reg)>,
    pub(super) globals: BTreeMap<(usize, u16), (Reg, Reg)>,
    /// Shared code of rows with steps.
    pub(super) tails: BTreeMap<TailKey, Tail>,
    pub(super) path: Facts,
    pub(super) locking: Locking,
}

/// Code for the effects of a row after its values are computed.
#[derive(Debug, Clone)]
pub(super) struct Tail {
    pub(super) label: Label,
    /// Input registers for the values that are not constants.
    pub(super) values: Vec<Reg>,
}

/// Element, row, and the constant values.
pub(super) type TailKey = (usize, usize, Vec<Option<u64>>);

impl Lowering<'_> {
    pub(super) fn count(&mut self, element: usize, counter: Counter) {
        let Some((map, table)) = &self.counters else { return };
        let (map, offset) = (*map, table.index(element, counter) * 8);
        let b = &mut self.builder;
        let address = b.reg();
        b.push(Op::MapValue { dst: address, map, offset });
        let value = b.reg();
        if self.is_attached {
            b.set(value, 1);
            b.push(Op::AtomicAdd { size: Size::Dw, base: address, offset: 0, src: value });
            return;
        }
        b.load(Size::Dw, value, address, 0);
        b.alu64(AluOp::Add, value, Operand::Imm(1));
        b.store(Size::Dw, address, 0, Operand::Reg(value));
    }

    /// Loads the map and the address of the key into the argument registers.
    pub(super) fn map_arguments(&mut self, map: u32, key_slot: i16) {
        let b = &mut self.builder;
        b.push(Op::Map { dst: R1, map });
        b.copy(R2, FP);
        b.alu64(AluOp::Add, R2, Operand::Imm(key_slot.into()));
    }

    pub(super) fn delete_context(&mut self, element: usize) {
        let plan = &self.plans[element];
        if let Some(map) = plan.map {
            let slot = plan.key_slot;
            self.map_arguments(map, slot);
            self.builder.call(helper::MAP_DELETE_ELEM, 2);
        }
    }

    /// Ensures that the packet's time is in its register on the rest of this path.
    pub(super) fn ensure_now(&mut self) {
        if self.path.now_is_known {
            return;
        }
        let b = &mut self.builder;
        let known = b.label();
        if self.path.now_may_be_known {
            b.jump64(Cond::Ne, self.now, Operand::Imm(0), known);
        }
        b.call(helper::KTIME_GET_NS, 0);
        b.copy(self.now, R0);
        b.place(known);
        self.path.now_is_known = true;
    }

    pub(super) fn exit(&mut self, verdict: Verdict) {
        self.release();
        self.builder.exit_with(verdict.number());
    }

    /// Emits the terminal action; `port` is its computed port, `reparse` means that the frame has changed since it was
    /// parsed.
    pub(super) fn emit_terminal(&mut self, terminal: &Terminal, port: Option<Operand>, reparse: bool) {
        match terminal {
            Terminal::Drop => self.exit(Verdict::Drop),
            Terminal::Pass | Terminal::Punt => self.exit(Verdict::Pass),
            Terminal::Reply => self.exit(Verdict::Tx),
            Terminal::Flood => self.redirect(None, BROADCAST_EXCLUDE_INGRESS),
            Terminal::Goto(element) => {
                self.hand_over(usize::from(*element));
                let index = usize::from(*element);
                let entry = match self.plans[index].reparse.filter(|_| reparse) {
                    Some(reparse) => {
                        self.materialize_facts();
                        reparse
                    }
                    None => self.element_entry(index),
                };
                self.builder.goto(entry);
            }
            Terminal::Forward(_) => self.redirect(port, 0),
        }
    }

    /// Redirects to a port, or to the ports that the flags select.
    pub(super) fn redirect(&mut self, port: Option<Operand>, flags: u64) {
        let Some(map) = self.ports_map else { return };
        self.release();
        let b = &mut self.builder;
        match port {
            Some(Operand::Reg(reg)) => b.copy(R2, reg),
            Some(Operand::Imm(imm)) => b.set(R2, u64::from(imm as u32)),
            None => b.set(R2, 0),
        }
        b.push(Op::Map { dst: R1, map });
        b.set(R3, flags);
        b.call(helper::REDIRECT_MAP, 3);
        b.push(Op::Exit);
    }

    /// All sets of valid headers with which a packet can reach the element, restricted to the headers needed from there
    /// on.
    pub(super) fn masks(&self, element: usize) -> Vec<u32> {
        let masks: BTreeSet<u32> = self.masks.iter().map(|mask| mask & self.needed_from[element]).collect();
        masks.into_iter().collect()
    }

    /// Updates the element's map with the record in its slot; the result is in r0.
    pub(super) fn insert_context(&mut self, element: usize, flags: i32) {
        let plan = self.plans[element].clone();
        let Some(map) = plan.map else { return };
        self.map_arguments(map, plan.key_slot);
        let b = &mut self.builder;
        b.copy(R3, FP);
        b.alu64(AluOp::Add, R3, Operand::Imm(plan.record_slot.into()));
        b.set(R4, flags as u64);
        b.call(helper::MAP_UPDATE_ELEM, 4);
    }

    /// Adds the key to the set of flows that were looked up. The value is ignored, so it is the key too.
    pub(super) fn mark_seen(&mut self, element: usize) {
        let plan = self.plans[element].clone();
        let Some(map) = plan.seen else { return };
        // Most flows have been seen before, and a lookup takes engines less time than an update.
        self.map_arguments(map, plan.key_slot);
        let b = &mut self.builder;
        b.call(helper::MAP_LOOKUP_ELEM, 2);
        let is_known = b.label();
        b.jump64(Cond::Ne, R0, Operand::Imm(0), is_known);
        self.map_arguments(map, plan.key_slot);
        let b = &mut self.builder;
        b.copy(R3, R2);
        b.set(R4, BPF_ANY as u64);
        b.call(helper::MAP_UPDATE_ELEM, 4);
        b.place(is_known);
    }
}
