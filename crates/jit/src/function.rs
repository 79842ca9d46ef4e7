// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Translation of a function of a program.
//!
//! ```text
//!   r0 .. r9          variables, which Cranelift turns into SSA values and machine registers
//!   r10               the end of a stack slot of 512 bytes, one for each call, or that of a record of a scout
//!   context           loads of fields of `State`
//!   other memory      addresses are those of the machine: no checks, as the proof has them
//!   helpers           calls of the runtime
//! ```
//!
//! Only instructions that the proof says are reached are translated, and only feasible edges of branches.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    Block, FuncRef, InstBuilder, MemFlagsData, SigRef, StackSlot, StackSlotData, StackSlotKind, TrapCode, Value, types,
};
use cranelift_frontend::{FunctionBuilder, Variable};
use flowloom_engine::Verdict;
use flowloom_isa::MapKind;
use flowloom_isa::helpers::{self, Implicit};
use flowloom_isa::insn::helper;
use flowloom_isa::limits::{MAX_MAY_GOTO, STACK_BYTES};
use flowloom_isa::op::{AluOp, AtomicOp, Cond, Op, Operand, Reg, Size, Width};
use flowloom_verifier::Memory;
use flowloom_vm::{CONTEXT_ADDRESS, map_address};

use crate::arithmetic::{self, Second, low, of_size, of_width, signed, wide};
use crate::compiled::Source;
use crate::frame::Frame;
use crate::if_conversion::Hammock;
use crate::runtime::Runtime;
use crate::scout::{InLoop, Store};
use crate::state::{
    AT, BASE, BUDGET, BY_HELPER, CPU, HINT, HINTED_LOOKUP, LOOKUP, NOW_NS, PORTS, PROBE, RAW, REDIRECT, ROUNDS, TABLE,
    VIEW_REDIRECT, WORD_LOOKUP, field,
};

/// Memory that may be unaligned and never traps.
pub(crate) const MEMORY: MemFlagsData = MemFlagsData::new().with_notrap();
/// Fields of the state.
pub(crate) const FIELD: MemFlagsData = MemFlagsData::trusted();
/// The number of arguments, which are in `r1` and the registers after it.
const ARGUMENTS: usize = 5;
/// The bits of `redirect_map`'s flags that are the verdict for an absent key.
const ACTION_MASK: u64 = 3;

/// The most instructions of a block that is unrolled, and the number of its copies.
const REPEATED_SLOTS: usize = 24;
const COPIES: usize = 4;

/// The callees of functions, as references in the function that is translated.
pub(crate) struct Callees {
    /// By [`runtime::FUNCTIONS`].
    pub(crate) runtime: Vec<FuncRef>,
    /// The functions of the program, by their first slot.
    pub(crate) functions: BTreeMap<usize, FuncRef>,
    /// The signature of all compiled functions.
    pub(crate) signature: SigRef,
    /// The signatures of lookups in a table: without and with a hint, and of keys in registers.
    pub(crate) lookup: SigRef,
    pub(crate) hinted_lookup: SigRef,
    pub(crate) word_lookup: SigRef,
    /// The signature of [`flowloom_flowtable::prefetch_ahead`].
    pub(crate) ahead: SigRef,
}

pub(crate) struct Translation<'f, 'a> {
    pub(crate) builder: FunctionBuilder<'f>,
    pub(crate) source: &'a Source<'a>,
    pub(crate) callees: &'a Callees,
    /// Whether the code only finds keys.
    pub(crate) is_scout: bool,
    /// Whether the function's stack is that of a record: of a scout, and of code that goes on after it.
    pub(crate) has_record: bool,
    pub(crate) state: Value,
    pub(crate) registers: [Variable; 11],
    pub(crate) blocks: BTreeMap<usize, Block>,
    /// True if scouts and code are one function.
    pub(crate) in_pipeline: bool,
    /// The lookups whose keys a scout announces besides the first one, if it goes on after that.
    pub(crate) seconds: Option<&'a BTreeSet<usize>>,
    /// In a loop over packets, the packet.
    pub(crate) packet: Option<InLoop>,
    /// The bytes of the stack that are variables.
    pub(crate) frame: Frame,
    /// The regions that become selects, by the branch before them, and the slots of those that have.
    pub(crate) hammocks: BTreeMap<usize, Hammock>,
    pub(crate) converted: BTreeSet<usize>,
    /// The copy of a key, once the function needs one.
    pub(crate) key_copy: Option<StackSlot>,
}

/// The number of registers that a helper reads, from `r1` on.
fn parameters(helper: i32) -> usize {
    let known = helpers::by_number(helper).filter(|known| known.implicit != Implicit::Registers);
    known.map_or(ARGUMENTS, |known| known.parameters.len())
}

/// The registers as variables.
pub(crate) fn declared(builder: &mut FunctionBuilder<'_>) -> [Variable; 11] {
    std::array::from_fn(|_| builder.declare_var(types::I64))
}

impl Translation<'_, '_> {
    /// Translates the function that begins at a slot.
    pub(crate) fn run(&mut self, entry: usize) {
        let params = self.begin();
        let rounds = (self.is_scout && self.has_record).then(|| self.begin_rounds(&params));
        self.begin_registers(&params);
        self.translate_from(entry);
        if let Some(rounds) = rounds {
            self.end_rounds(rounds);
        }
        self.builder.seal_all_blocks();
    }

    /// Translates what is reached from an instruction, where the registers have their first values.
    pub(crate) fn translate_from(&mut self, entry: usize) {
        let (slots, starts) = self.source.reached(&[entry]);
        self.zero_stack(&slots);
        self.choose_variables(&slots, &[]);
        self.choose_conversions(&slots, &[entry]);
        self.blocks = starts.iter().map(|start| (*start, self.builder.create_block())).collect();
        self.builder.ins().jump(self.blocks[&entry], &[]);
        self.body(slots);
    }

    /// Begins the function: its parameters, of which the first is the state.
    pub(crate) fn begin(&mut self) -> Vec<Value> {
        let begin = self.builder.create_block();
        self.builder.append_block_params_for_function_params(begin);
        self.builder.switch_to_block(begin);
        let params = self.builder.block_params(begin).to_vec();
        self.state = params[0];
        params
    }

    /// The first values of the registers: in a loop over packets the context, otherwise parameters of the function.
    pub(crate) fn begin_registers(&mut self, params: &[Value]) {
        let zero = self.builder.ins().iconst(types::I64, 0);
        self.registers.iter().for_each(|register| self.builder.def_var(*register, zero));
        if self.packet.is_some() {
            let context = self.number(CONTEXT_ADDRESS);
            self.builder.def_var(self.registers[1], context);
        } else {
            for (number, param) in (1..=ARGUMENTS).zip(&params[1..]) {
                self.builder.def_var(self.registers[number], *param);
            }
        }
        let end = if self.has_record {
            self.record()
        } else {
            let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, STACK_BYTES as u32, 4);
            let slot = self.builder.create_sized_stack_slot(slot);
            self.builder.ins().stack_addr(types::I64, slot, STACK_BYTES as i32)
        };
        self.builder.def_var(self.registers[10], end);
    }

    /// Translates these instructions, those that begin a block into theirs.
    pub(crate) fn body(&mut self, slots: BTreeSet<usize>) {
        let mut is_open = false;
        for at in slots {
            if self.converted.contains(&at) {
                continue;
            }
            if let Some(block) = self.blocks.get(&at).copied() {
                if is_open {
                    self.builder.ins().jump(block, &[]);
                }
                self.builder.switch_to_block(block);
                is_open = true;
            }
            let Some(op) = self.source.code[at].filter(|_| is_open) else { continue };
            self.spend(at);
            if let Some(start) = self.repeated(at, op) {
                self.unroll(start, at);
            }
            is_open = self.op(at, op);
        }
    }

    /// The end of the program with this result. An odd one is not that of an `exit` of the program itself.
    fn leave(&mut self, r0: Value, is_odd: bool) {
        match self.packet {
            Some(packet) => {
                let to = if is_odd { packet.odd } else { packet.next };
                self.builder.ins().jump(to, &[r0.into()]);
            }
            None => _ = self.builder.ins().return_(&[r0]),
        }
    }

    /// If a branch repeats the block that it ends, a short one without calls: the first instruction of the block.
    fn repeated(&self, at: usize, op: Op) -> Option<usize> {
        let Op::Branch { off, .. } = op else { return None };
        let start = usize::try_from(at as i64 + 1 + i64::from(off)).ok().filter(|start| *start < at)?;
        let is_plain = |op: &Option<Op>| {
            matches!(op, None | Some(Op::Alu { .. } | Op::MovSx { .. } | Op::Neg { .. } | Op::End { .. }))
                || matches!(op, Some(Op::Load { .. } | Op::Store { .. } | Op::LoadImm { .. }))
        };
        let is_block = self.blocks.range(start..=at).map(|(slot, _)| *slot).eq([start]);
        let repeats = is_block
            && at - start < REPEATED_SLOTS
            && self.source.code[start..at].iter().all(is_plain)
            && self.source.nexts(at, op).len() == 2
            && !self.is_scout;
        repeats.then_some(start)
    }

    /// Before the branch that repeats a block: more copies of the block, each of which leaves the loop by itself, so
    /// that most iterations take no jump.
    fn unroll(&mut self, start: usize, at: usize) {
        let Some(Op::Branch { width, cond, dst, src, .. }) = self.source.code[at] else { return };
        for _ in 1..COPIES {
            let copy = self.builder.create_block();
            let holds = self.holds(width, cond, dst, src);
            self.builder.ins().brif(holds, copy, &[], self.blocks[&(at + 1)], &[]);
            self.builder.switch_to_block(copy);
            for slot in start..at {
                if let Some(op) = self.source.code[slot] {
                    self.spend(slot);
                    self.op(slot, op);
                }
            }
        }
    }

    /// True if the condition of a branch holds.
    pub(crate) fn holds(&mut self, width: Width, cond: Cond, dst: Reg, src: Operand) -> Value {
        let a = self.get(dst);
        let a = low(&mut self.builder, of_width(width), a);
        let b = self.second(width, src).value;
        arithmetic::holds(&mut self.builder, cond, a, b)
    }

    /// At the header of a loop that is counted, takes an iteration from the budget; without any left, the function
    /// ends.
    fn spend(&mut self, at: usize) {
        let is_counted = self.is_scout || !self.source.uncounted.contains(&at);
        if !is_counted || !self.source.proof.loops.contains_key(&at) {
            return;
        }
        let left = self.builder.ins().load(types::I64, FIELD, self.state, BUDGET);
        let left = self.builder.ins().iadd_imm_s(left, -1);
        self.builder.ins().store(FIELD, left, self.state, BUDGET);
        let (spent, goes_on) = (self.builder.create_block(), self.builder.create_block());
        let is_spent = self.builder.ins().icmp_imm_s(IntCC::SignedLessThan, left, 0);
        self.builder.ins().brif(is_spent, spent, &[], goes_on, &[]);
        self.builder.switch_to_block(spent);
        if self.is_scout {
            self.stop();
        } else {
            let zero = self.runtime(Runtime::Exhausted, &[self.state]);
            self.leave(zero, true);
        }
        self.builder.switch_to_block(goes_on);
    }

    /// After a call in which the iterations may have been spent: ends the function, since the callee has not run to its
    /// end and nothing is proved of its result.
    fn end_if_spent(&mut self) {
        if !self.source.counts_iterations() {
            return;
        }
        let left = self.builder.ins().load(types::I64, FIELD, self.state, BUDGET);
        let (spent, goes_on) = (self.builder.create_block(), self.builder.create_block());
        let is_spent = self.builder.ins().icmp_imm_s(IntCC::SignedLessThan, left, 0);
        self.builder.ins().brif(is_spent, spent, &[], goes_on, &[]);
        self.builder.switch_to_block(spent);
        let zero = self.number(0);
        self.leave(zero, true);
        self.builder.switch_to_block(goes_on);
    }

    /// Zeros on the stack where the function may read what it has not written.
    fn zero_stack(&mut self, slots: &BTreeSet<usize>) {
        // A function that it calls may read its bytes as well.
        let is_read = slots.iter().any(|at| self.source.proof.insns[*at].reads_unwritten);
        if !is_read && !self.source.reads_unwritten_of_callers() {
            return;
        }
        let (zero, end) = (self.number(0), self.builder.use_var(self.registers[10]));
        for at in (8..=STACK_BYTES as i32).step_by(8) {
            self.builder.ins().store(MEMORY, zero, end, -at);
        }
    }

    fn get(&mut self, reg: Reg) -> Value {
        self.builder.use_var(self.registers[usize::from(reg.number())])
    }

    fn set(&mut self, reg: Reg, value: Value) {
        let value = wide(&mut self.builder, value);
        self.builder.def_var(self.registers[usize::from(reg.number())], value);
    }

    pub(crate) fn number(&mut self, value: u64) -> Value {
        self.builder.ins().iconst(types::I64, value as i64)
    }

    /// The second operand of an operation of some width.
    pub(crate) fn second(&mut self, width: Width, src: Operand) -> Second {
        match src {
            Operand::Reg(reg) => {
                let value = self.get(reg);
                Second { value: low(&mut self.builder, of_width(width), value), constant: None }
            }
            Operand::Imm(imm) => {
                let constant = i64::from(imm);
                let bits = if width == Width::W64 { constant } else { i64::from(imm as u32) };
                Second { value: self.builder.ins().iconst(of_width(width), bits), constant: Some(constant) }
            }
        }
    }

    /// Translates an instruction; whether control falls through to the next one.
    pub(crate) fn op(&mut self, at: usize, op: Op) -> bool {
        match op {
            Op::Alu { width, op, dst, src } => {
                let b = self.second(width, src);
                let value = if op == AluOp::Mov {
                    b.value
                } else {
                    let a = self.get(dst);
                    let a = low(&mut self.builder, of_width(width), a);
                    arithmetic::alu(&mut self.builder, op, a, b)
                };
                self.set(dst, value);
            }
            Op::MovSx { width, from, dst, src } => {
                let value = self.get(src);
                let value = low(&mut self.builder, of_size(from), value);
                let value = signed(&mut self.builder, value);
                let value = low(&mut self.builder, of_width(width), value);
                self.set(dst, value);
            }
            Op::Neg { width, dst } => {
                let value = self.get(dst);
                let value = low(&mut self.builder, of_width(width), value);
                let value = self.builder.ins().ineg(value);
                self.set(dst, value);
            }
            Op::End { op, size, dst } => {
                let value = self.get(dst);
                let value = arithmetic::byte_order(&mut self.builder, op, size, value);
                self.set(dst, value);
            }
            Op::Load { size, signed: is_signed, dst, base, off } => {
                let in_variables = self.load_variables(at, is_signed);
                let value = match self.context_field(at) {
                    _ if let Some(value) = in_variables => value,
                    Some((offset, bytes)) if let Some(value) = self.viewed(offset) => {
                        // Fields of 4 bytes are zero-extended in views.
                        if is_signed && bytes == 4 {
                            let value = low(&mut self.builder, types::I32, value);
                            signed(&mut self.builder, value)
                        } else {
                            value
                        }
                    }
                    Some((offset, bytes)) => {
                        let of = if bytes == 8 { types::I64 } else { types::I32 };
                        let value = self.builder.ins().load(of, FIELD, self.state, offset);
                        if is_signed { signed(&mut self.builder, value) } else { value }
                    }
                    None => {
                        let base = self.get(base);
                        arithmetic::load(&mut self.builder, size, is_signed, base, off.into())
                    }
                };
                self.set(dst, value);
            }
            Op::Store { .. } | Op::Atomic { .. } if self.is_scout && self.store_of_scout(at) == Store::Ends => {
                self.stop();
                return false;
            }
            Op::Store { .. } if self.is_scout && self.store_of_scout(at) == Store::Skipped => {}
            Op::Store { src, .. } => {
                let value = self.second(Width::W64, src).value;
                self.store(at, value);
            }
            Op::Atomic { op, size, base, off, src } => {
                let stores = !self.is_scout || self.store_of_scout(at) == Store::Runs;
                self.atomic(op, size, (base, off), src, stores);
            }
            Op::LoadImm { dst, value } => {
                let value = self.number(value);
                self.set(dst, value);
            }
            Op::LoadMap { dst, map } => {
                let value = self.number(map_address(map as usize));
                self.set(dst, value);
            }
            Op::LoadMapValue { dst, map, off } => {
                let base = self.map_field(map as usize, BASE);
                let value = self.builder.ins().iadd_imm_s(base, i64::from(off));
                self.set(dst, value);
            }
            Op::LoadFunc { dst, distance } => {
                let slot = (at as i64 + 1 + i64::from(distance)) as usize;
                let value = self.builder.ins().func_addr(types::I64, self.callees.functions[&slot]);
                self.set(dst, value);
            }
            Op::Jump { .. } | Op::JumpLong { .. } => {
                let target = self.source.nexts(at, op)[0];
                self.builder.ins().jump(self.blocks[&target], &[]);
                return false;
            }
            Op::Branch { width, cond, dst, src, off } => {
                match self.source.nexts(at, op).as_slice() {
                    [next] => _ = self.builder.ins().jump(self.blocks[next], &[]),
                    // The proof has that no path goes on from here.
                    [] => _ = self.builder.ins().trap(TrapCode::unwrap_user(1)),
                    _ if self.convert(at) => {}
                    _ => {
                        let holds = self.holds(width, cond, dst, src);
                        let target = (at as i64 + 1 + i64::from(off)) as usize;
                        self.builder.ins().brif(holds, self.blocks[&target], &[], self.blocks[&(at + 1)], &[]);
                    }
                }
                return false;
            }
            Op::MayGoto { off } => {
                let rounds = self.builder.ins().load(types::I32, FIELD, self.state, ROUNDS);
                let is_over = self.builder.ins().icmp_imm_s(IntCC::Equal, rounds, i64::from(MAX_MAY_GOTO));
                let more = self.builder.ins().iadd_imm_s(rounds, 1);
                let more = self.builder.ins().select(is_over, rounds, more);
                self.builder.ins().store(FIELD, more, self.state, ROUNDS);
                let target = (at as i64 + 1 + i64::from(off)) as usize;
                self.builder.ins().brif(is_over, self.blocks[&target], &[], self.blocks[&(at + 1)], &[]);
                return false;
            }
            Op::Call { helper } if self.is_scout => return self.call_of_scout(at, helper),
            Op::Call { helper } => self.call(at, helper),
            // The function has effects; in a module of its own, a scout has functions that are scouts as well. No lookup
            // after the call would be a point.
            Op::CallLocal { .. } if self.is_scout && self.in_pipeline => {
                self.stop();
                return false;
            }
            Op::CallLocal { distance } => {
                let slot = (at as i64 + 1 + i64::from(distance)) as usize;
                let arguments = self.arguments(ARGUMENTS);
                let call = self.builder.ins().call(self.callees.functions[&slot], &arguments);
                self.returned(call);
                if self.is_scout {
                    self.stop_if_stopped();
                } else {
                    self.end_if_spent();
                }
            }
            // The other packets of the group are left.
            Op::Exit if self.is_scout && self.packet.is_some() => {
                self.stop();
                return false;
            }
            Op::Exit => {
                let r0 = self.builder.use_var(self.registers[0]);
                self.leave(r0, false);
                return false;
            }
            // The verifier refuses these.
            Op::LoadPacket { .. }
            | Op::LoadVar { .. }
            | Op::LoadMapIdx { .. }
            | Op::LoadMapIdxValue { .. }
            | Op::CallKfunc { .. } => {}
        }
        true
    }

    /// Stores a value as the store at an instruction does.
    pub(crate) fn store(&mut self, at: usize, value: Value) {
        let Some(Op::Store { size, base, off, .. }) = self.source.code[at] else { return };
        if !self.store_variables(at, value) {
            let value = low(&mut self.builder, of_size(size), value);
            let base = self.get(base);
            self.builder.ins().store(MEMORY, value, base, i32::from(off));
        }
    }

    /// The field that a load of the context reads.
    fn context_field(&self, at: usize) -> Option<(i32, u8)> {
        field(self.source.proof.insns[at].memory.get(&Memory::Context)?.first)
    }

    /// An atomic operation. One core has the maps for itself, so a load and a store are enough.
    fn atomic(&mut self, op: AtomicOp, size: Size, (base, off): (Reg, i16), src: Reg, stores: bool) {
        let (of, off) = (of_size(size), i32::from(off));
        let base = self.get(base);
        let source = self.get(src);
        let source = low(&mut self.builder, of, source);
        let old = self.builder.ins().load(of, MEMORY, base, off);
        let new = match op {
            AtomicOp::Add { .. } => self.builder.ins().iadd(old, source),
            AtomicOp::Or { .. } => self.builder.ins().bor(old, source),
            AtomicOp::And { .. } => self.builder.ins().band(old, source),
            AtomicOp::Xor { .. } => self.builder.ins().bxor(old, source),
            AtomicOp::Xchg => source,
            AtomicOp::CmpXchg => {
                let compared = self.builder.use_var(self.registers[0]);
                let compared = low(&mut self.builder, of, compared);
                let is_same = self.builder.ins().icmp(IntCC::Equal, old, compared);
                self.builder.ins().select(is_same, source, old)
            }
        };
        if stores {
            self.builder.ins().store(MEMORY, new, base, off);
        }
        if let Some(fetched) = (Op::Atomic { op, size, base: Reg::R0, off: 0, src }).writes() {
            self.set(fetched, old);
        }
    }

    /// The state and `r1` to `r5`. Only the first `used` registers have their values: the others need not be kept for it.
    fn arguments(&mut self, used: usize) -> Vec<Value> {
        let registers = (1..=ARGUMENTS).map(|number| match number <= used {
            true => self.builder.use_var(self.registers[number]),
            false => self.number(0),
        });
        let registers: Vec<Value> = registers.collect();
        std::iter::once(self.state).chain(registers).collect()
    }

    fn returned(&mut self, call: cranelift_codegen::ir::Inst) {
        let r0 = self.builder.inst_results(call)[0];
        self.builder.def_var(self.registers[0], r0);
    }

    /// A field of a map's reference.
    pub(crate) fn map_field(&mut self, map: usize, offset: i32) -> Value {
        let reference = self.map_reference(map);
        self.builder.ins().load(types::I64, FIELD, reference, offset)
    }

    /// The address of a map's reference.
    pub(crate) fn map_reference(&mut self, map: usize) -> Value {
        self.number(&raw const self.source.refs[map] as u64)
    }

    /// Calls a function of the runtime.
    pub(crate) fn runtime(&mut self, function: Runtime, arguments: &[Value]) -> Value {
        let call = self.builder.ins().call(self.callees.runtime[function as usize], arguments);
        self.builder.inst_results(call)[0]
    }

    pub(crate) fn call(&mut self, at: usize, number: i32) {
        let mut arguments = self.arguments(parameters(number));
        let takes_words = number == helper::MAP_LOOKUP_ELEM
            && (self.source.table(at).is_some() || self.source.array_of_elements(at).is_some());
        if !takes_words {
            self.flush_for(at);
        }
        let result = match number {
            helper::TAIL_CALL => return self.tail_call(&arguments),
            helper::LOOP => {
                arguments[5] = self.number(self.source.inlined.binary_search(&at).is_ok().into());
                let begun = self.runtime(Runtime::Repeat, &arguments);
                self.end_if_spent();
                begun
            }
            helper::FOR_EACH_MAP_ELEM => {
                let begun = self.runtime(Runtime::ForEach, &arguments[..5]);
                self.end_if_spent();
                begun
            }
            helper::MAP_LOOKUP_ELEM if let Some(map) = self.source.table(at) => {
                let found = self.use_entry(at, map);
                self.mark(map, found);
                found
            }
            helper::MAP_DELETE_ELEM if let Some(map) = self.source.writable_table(at) => {
                let table = self.map_field(map, TABLE);
                self.runtime(Runtime::Delete, &[table, arguments[2]])
            }
            helper::REDIRECT_MAP if let Some(map) = self.source.map(at) => self.redirect_map(at, map, &arguments),
            _ => match self.inlined(at, number) {
                Some(result) => result,
                None => {
                    let function = match number {
                        helper::REDIRECT | helper::REDIRECT_MAP => Runtime::Redirect,
                        helper::MAP_UPDATE_ELEM if self.is_plain_table(at) => Runtime::Update,
                        _ => Runtime::Helper,
                    };
                    self.helper(at, number, function, &arguments)
                }
            },
        };
        self.reload_after(at);
        self.builder.def_var(self.registers[0], result);
    }

    /// Where the code keeps the target of the last redirect that needed no helper, if not in the state: an address, and
    /// an offset.
    fn redirect_in_view(&mut self) -> Option<(Value, i32)> {
        let InLoop { view, view_at, .. } = self.packet.filter(|_| !self.is_scout && self.source.redirects_in_view())?;
        Some((self.builder.use_var(view), view_at + VIEW_REDIRECT))
    }

    /// Calls a helper by a function of the runtime with its parameters.
    fn helper(&mut self, at: usize, number: i32, function: Runtime, arguments: &[Value]) -> Value {
        if function == Runtime::Redirect
            && let Some((view, offset)) = self.redirect_in_view()
        {
            // The helper's target replaces the one before.
            let before = self.builder.ins().load(types::I64, FIELD, view, offset);
            self.builder.ins().store(FIELD, before, self.state, REDIRECT);
            let none = self.number(BY_HELPER as u64);
            self.builder.ins().store(FIELD, none, view, offset);
        }
        self.note(at);
        self.show_packet();
        let helper = self.number((self.source.helpers)(number));
        let arguments: Vec<Value> = [&[arguments[0], helper], &arguments[1..]].concat();
        self.runtime(function, &arguments)
    }

    /// Whether the map of an update is a hash table that programs may write, without values for each CPU or evictions.
    fn is_plain_table(&self, at: usize) -> bool {
        self.source.writable_table(at).is_some_and(|map| self.source.maps[map].kind == MapKind::Hash)
    }

    /// `redirect_map` of a known map. A device map with its default contents leads to the port of the key's number;
    /// others are for the helper.
    fn redirect_map(&mut self, at: usize, map: usize, arguments: &[Value]) -> Value {
        let (key, flags) = (arguments[2], arguments[3]);
        let [short, long, done] = [(); 3].map(|()| self.builder.create_block());
        self.builder.set_cold_block(long);
        let result = self.builder.append_block_param(done, types::I64);
        let ports = self.map_field(map, PORTS);
        let port = low(&mut self.builder, types::I32, key);
        let port = wide(&mut self.builder, port);
        // With other contents, there are 0 ports here. Absent keys are for the helper too: they are rare.
        let is_there = self.builder.ins().icmp(IntCC::UnsignedLessThan, port, ports);
        let is_action = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThanOrEqual, flags, ACTION_MASK as i64);
        let is_short = match self.constant(flags) {
            Some(0..=ACTION_MASK) => is_there,
            _ => self.builder.ins().band(is_there, is_action),
        };
        self.builder.ins().brif(is_short, short, &[], long, &[]);

        self.builder.switch_to_block(long);
        let by_helper = self.helper(at, helper::REDIRECT_MAP, Runtime::Redirect, arguments);
        self.builder.ins().jump(done, &[by_helper.into()]);

        self.builder.switch_to_block(short);
        match self.redirect_in_view() {
            Some((view, at)) => self.builder.ins().store(FIELD, port, view, at),
            None => self.builder.ins().store(FIELD, port, self.state, REDIRECT),
        };
        let verdict = self.number(Verdict::Redirect.number().into());
        self.builder.ins().jump(done, &[verdict.into()]);

        self.builder.switch_to_block(done);
        result
    }

    /// Notes the instruction that calls a helper, for a fault.
    fn note(&mut self, at: usize) {
        let slot = self.builder.ins().iconst(types::I32, at as i64);
        self.builder.ins().store(FIELD, slot, self.state, AT);
    }

    /// The result of a helper that needs no call and has no effect.
    pub(crate) fn inlined(&mut self, at: usize, number: i32) -> Option<Value> {
        Some(match number {
            // All maps are those of one core.
            helper::SPIN_LOCK | helper::SPIN_UNLOCK => self.number(0),
            helper::KTIME_GET_NS
            | helper::KTIME_GET_BOOT_NS
            | helper::KTIME_GET_COARSE_NS
            | helper::KTIME_GET_TAI_NS => match self.viewed(NOW_NS) {
                Some(now) => now,
                None => self.builder.ins().load(types::I64, FIELD, self.state, NOW_NS),
            },
            helper::GET_SMP_PROCESSOR_ID => {
                let cpu = self.builder.ins().load(types::I32, FIELD, self.state, CPU);
                wide(&mut self.builder, cpu)
            }
            helper::MAP_LOOKUP_ELEM => self.element(at)?,
            _ => return None,
        })
    }

    /// The lookup of an array's element.
    fn element(&mut self, at: usize) -> Option<Value> {
        let map = self.source.array_of_elements(at)?;
        let (entries, stride) = (self.source.maps[map].max_entries, self.source.refs[map].stride);
        let key = self.key(at, map);
        let index = self.word(&key, 0, Size::W);
        let is_inside = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, index, i64::from(entries));
        let offset = self.builder.ins().imul_imm_s(index, stride as i64);
        let base = self.map_field(map, BASE);
        let address = self.builder.ins().iadd(base, offset);
        let null = self.number(0);
        Some(self.builder.ins().select(is_inside, address, null))
    }

    /// A lookup in a table that counts as no use.
    pub(crate) fn look_up(&mut self, at: usize, map: usize) -> Value {
        self.flush_for(at);
        let (function, table) = (self.map_field(map, LOOKUP), self.map_field(map, RAW));
        let key = self.builder.use_var(self.registers[2]);
        let call = self.builder.ins().call_indirect(self.callees.lookup, function, &[table, key]);
        self.builder.inst_results(call)[0]
    }

    /// A lookup in a table.
    pub(crate) fn use_entry(&mut self, at: usize, map: usize) -> Value {
        match self.search(at, map) {
            Some(value) => value,
            None => self.call_lookup(at, map),
        }
    }

    /// A lookup in a table by a call.
    pub(crate) fn call_lookup(&mut self, at: usize, map: usize) -> Value {
        let hint = match self.packet {
            Some(packet) if !self.is_scout && self.has_record => {
                let record = self.builder.use_var(packet.record);
                self.builder.ins().iadd_imm_s(record, i64::from(PROBE))
            }
            _ => self.builder.ins().load(types::I64, FIELD, self.state, HINT),
        };
        if let Some([first, last]) = self.key_words(at, map) {
            let (function, table) = (self.map_field(map, WORD_LOOKUP), self.map_field(map, TABLE));
            let arguments = [table, first, last, hint];
            let call = self.builder.ins().call_indirect(self.callees.word_lookup, function, &arguments);
            return self.builder.inst_results(call)[0];
        }
        let key = self.key_address(at, map);
        if self.source.maps[map].kind.is_lru() {
            let table = self.map_field(map, TABLE);
            return self.runtime(Runtime::Use, &[table, key]);
        }
        let (function, table) = (self.map_field(map, HINTED_LOOKUP), self.map_field(map, RAW));
        let call = self.builder.ins().call_indirect(self.callees.hinted_lookup, function, &[table, key, hint]);
        self.builder.inst_results(call)[0]
    }

    /// Another program takes the place of the function; where there is none, the function goes on.
    fn tail_call(&mut self, arguments: &[Value]) {
        self.show_packet();
        let target = self.runtime(Runtime::TailTarget, &arguments[..4]);
        let (taken, back) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(target, taken, &[], back, &[]);
        self.builder.switch_to_block(taken);
        let zero = self.number(0);
        let arguments = [self.state, arguments[1], zero, zero, zero, zero];
        let call = self.builder.ins().call_indirect(self.callees.signature, target, &arguments);
        let r0 = self.builder.inst_results(call)[0];
        self.leave(r0, true);
        self.builder.switch_to_block(back);
    }

    /// In a loop over packets: makes the packet that of the state. A program that changes bounds has done so at the
    /// beginning of the packet, and reads them from there.
    pub(crate) fn show_packet(&mut self) {
        if let Some(packet) = self.packet.filter(|_| !self.source.moves()) {
            self.show(packet);
        }
    }
}
