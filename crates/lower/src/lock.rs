// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks that serialize packets on several CPUs.
//!
//! Goal: in a program that runs on interfaces, the packets are serializable: their joint effect equals that of some
//! sequential order.
//!
//! ```text
//!   key on the stack
//!   cell = mix of the key ──► held already? ──yes──► wait, a bounded time ──► ABORTED
//!   lookup, rows, updates                ▲ no: ours                │
//!   goto ... key, cell, lookup ...       └──────────── free ◄──────┘
//!   the packet's end: all cells it holds are released, then the verdict
//! ```
//!
//! Steps: [`super::locking`] finds the elements whose tables are written, and the locks held on entry to each element;
//! [`Lowering::acquire`] takes the cell of the key before the lookup; [`Lowering::release`] precedes every exit of the
//! program, and the path ([`super::facts::Facts::held`]) tells which locks are held there.
//!
//! A packet keeps its locks to its end, also through `goto`: another packet must not see its effects in one element
//! before those in the next. Deadlock is impossible, because `goto` leads forward only and a packet takes one cell per
//! element, so all packets acquire cells in the same order.
//!
//! Holds before: the key is on the stack. Holds after: no exit of the program keeps a lock, and none releases a lock
//! that is not held.
//!
//! Limits: Linux 6.9 (`may_goto`); map updates from user space take no lock.

use flowloom_context::locks::{CELL_TIME, MIX};
use flowloom_engine::Verdict;
use flowloom_isa::op::{AluOp, Cond};

use super::asm::{FP, Label, Op, Operand, R0, Reg, Size};
use super::locking::{Contended, ElementLock, Hold};
use super::lowering::Lowering;
use flowloom_efsm::model::Row;

impl Lowering<'_> {
    /// Acquires the lock of the context whose key is on the stack, if the element has one.
    pub(super) fn acquire(&mut self, index: usize) {
        let Some(lock) = self.locking.elements.get(index).cloned().flatten() else { return };
        let address = lock.address;
        self.cell_address(index, &lock);
        let b = &mut self.builder;
        let (retry, contended, one) = (b.label(), b.label(), b.reg());
        b.place(retry);
        b.set(one, 1);
        b.set(R0, 0);
        b.push(Op::CompareExchange { base: address, offset: 0, src: one });
        b.jump64(Cond::Ne, R0, Operand::Imm(0), contended);
        let held = self.path.held.clone();
        self.locking.contended.push(Contended { label: contended, retry, address, held });
        self.path.held.push((index, Hold::Always));
        self.keep_time(index, address);
    }

    /// Computes the address of the key's cell in its register.
    fn cell_address(&mut self, index: usize, lock: &ElementLock) {
        let plan = &self.plans[index];
        let (slot, key_bytes) = (plan.key_slot, plan.map.map_or(0, |map| self.maps[map as usize].key_bytes));
        let b = &mut self.builder;
        let ElementLock { locks, address } = *lock;
        b.push(Op::MapValue { dst: address, map: self.locking.map, offset: locks.offset_bytes });
        if locks.cells == 1 {
            return;
        }
        let (mixed, factor) = (b.reg(), b.reg());
        b.push(Op::Imm64 { dst: factor, value: MIX });
        for at in (0..key_bytes).step_by(8) {
            let size = if key_bytes - at >= 8 { Size::Dw } else { Size::W };
            let at = slot + at as i16;
            if at == slot {
                b.load(size, mixed, FP, at);
            } else {
                let word = b.reg();
                b.load(size, word, FP, at);
                b.alu64(AluOp::Xor, mixed, Operand::Reg(word));
            }
            b.alu64(AluOp::Mul, mixed, Operand::Reg(factor));
        }
        let (shift, mask) = locks.shift_and_mask();
        b.alu64(AluOp::Rsh, mixed, Operand::Imm(shift as i32));
        b.alu64(AluOp::And, mixed, Operand::Imm(mask as i32));
        b.alu64(AluOp::Add, address, Operand::Reg(mixed));
    }

    /// A packet that read the time before it got the lock may have been overtaken by a packet with a later time; for
    /// this table it takes that later time. A time read under the lock cannot run backwards.
    fn keep_time(&mut self, index: usize, address: Reg) {
        let element = &self.function.elements[index];
        let has_timers = self.plans[index].timers.iter().any(|timers| timers.idle || timers.hard);
        let touches = self.plans[index].layout.as_ref().is_some_and(|layout| layout.touched.is_some());
        if !self.path.now_may_be_known || !(has_timers || touches || element.rows.iter().any(Row::reads_now)) {
            return;
        }
        self.ensure_now();
        let now = self.now;
        let b = &mut self.builder;
        let (latest, later, kept) = (b.reg(), b.label(), b.label());
        b.load(Size::Dw, latest, address, CELL_TIME as i16);
        b.jump64(Cond::Ge, now, Operand::Reg(latest), later);
        b.copy(now, latest);
        b.goto(kept);
        b.place(later);
        b.store(Size::Dw, address, CELL_TIME as i16, Operand::Reg(now));
        b.place(kept);
    }

    /// Releases the locks that the path holds; emitted before every exit of the program.
    pub(super) fn release(&mut self) {
        for (element, hold) in self.path.held.clone().into_iter().rev() {
            let Some(ElementLock { locks, address }) = self.locking.elements[element] else { continue };
            let map = self.locking.map;
            let b = &mut self.builder;
            let skip = b.label();
            let address = match hold {
                // Rematerializing the address is cheaper than keeping it.
                Hold::Always if locks.cells == 1 => {
                    let known = b.reg();
                    b.push(Op::MapValue { dst: known, map, offset: locks.offset_bytes });
                    known
                }
                Hold::Always => address,
                Hold::Maybe => {
                    b.jump64(Cond::Eq, address, Operand::Imm(0), skip);
                    address
                }
            };
            let free = b.reg();
            b.set(free, 0);
            b.push(Op::Exchange { base: address, offset: 0, src: free });
            b.place(skip);
        }
    }

    /// Before a jump to an element: zeroes the cell addresses of locks that it expects to be held on some paths only.
    pub(super) fn hand_over(&mut self, element: usize) {
        for (lock, hold) in self.locking.at_entry(element) {
            let is_held = self.path.held.iter().any(|&(held, _)| held == lock);
            if let (Hold::Maybe, false, Some(lock)) = (hold, is_held, &self.locking.elements[lock]) {
                self.builder.set(lock.address, 0);
            }
        }
    }

    /// Exit for packets whose frame cannot be changed.
    pub(super) fn headroom_exit(&mut self) -> Label {
        let builder = &mut self.builder;
        *self.headroom_exit.entry(self.path.held.clone()).or_insert_with(|| builder.label())
    }

    /// Spin loops for contended locks, out of line since contention is rare.
    pub(super) fn emit_contended(&mut self) {
        for Contended { label, retry, address, held } in std::mem::take(&mut self.locking.contended) {
            let b = &mut self.builder;
            let (given_up, state) = (b.label(), b.reg());
            b.place(label);
            b.push(Op::MayGoto(given_up));
            // Test and test-and-set: a load disturbs the holder less than a compare-and-exchange.
            b.load(Size::Dw, state, address, 0);
            b.jump64(Cond::Ne, state, Operand::Imm(0), label);
            b.goto(retry);
            b.place(given_up);
            self.path.held = held;
            self.exit(Verdict::Aborted);
        }
    }
}
