// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Additional packets: clones of the current one, and emitted packets.
//!
//! Goal: one call of a Flowloom helper for each.
//!
//! ```text
//!  clone(port);                     call fl_clone(ctx, port)
//!  emit(port) eth(..) / ipv4(..);   the packet's bytes to the stack, with their lengths and checksums
//!                                   call fl_emit(ctx, port, bytes, length)
//! ```
//!
//! Holds before: all values are computed. Holds after: the frame is as it was.
//!
//! Limits: no kernel has these helpers ([`crate::unsupported_by_kernel`]); an emitted packet must fit the program's
//! stack frame.

use flowloom_isa::insn::helper;
use flowloom_isa::op::AluOp;
use flowloom_wire::Stack;
use flowloom_wire::graph::Slice;

use super::asm::{FP, Operand, R1, R2, R3, R4};
use super::lowering::Lowering;
use super::value::Value;
use super::write::Source;
use flowloom_efsm::model::{Function, StepKind};
use flowloom_efsm::steps;

/// True if some row clones or emits a packet.
pub(super) fn are_sent(function: &Function) -> bool {
    steps_of(function).any(|step| matches!(step, StepKind::Clone(_) | StepKind::Emit { .. }))
}

/// Length of the longest emitted packet, in bytes.
pub(super) fn longest_bytes(function: &Function) -> u32 {
    let made = steps_of(function).filter(|step| matches!(step, StepKind::Emit { .. }));
    let stacks = made.filter_map(|step| steps::stack(&function.graph, step).ok().flatten());
    stacks.map(|stack| stack.template().len() as u32).max().unwrap_or(0)
}

fn steps_of(function: &Function) -> impl Iterator<Item = &StepKind> {
    function.elements.iter().flat_map(|e| &e.rows).flat_map(|row| &row.actions.steps).map(|step| &step.kind)
}

impl Lowering<'_> {
    /// Sends a copy of the current frame to a port.
    pub(super) fn send_copy(&mut self, port: Value) {
        self.set_copy_arguments(port);
        self.builder.call(helper::FL_CLONE, 2);
    }

    pub(super) fn send_emitted(&mut self, port: Value, stack: &Stack, values: &[(Slice, Source)]) {
        let slot = self.output_slot;
        let bytes = self.builder.dup(FP);
        self.builder.alu64(AluOp::Add, bytes, Operand::Imm(slot.into()));
        self.render(bytes, 0, stack, values, Value::Const(0));
        self.set_copy_arguments(port);
        self.builder.copy(R3, bytes);
        self.builder.set(R4, stack.template().len() as u64);
        self.builder.call(helper::FL_EMIT, 4);
    }

    fn set_copy_arguments(&mut self, port: Value) {
        let Some(ctx) = self.ctx else { return };
        let b = &mut self.builder;
        match port {
            Value::Const(port) => b.set(R2, port),
            Value::Reg(port) => b.copy(R2, port),
        }
        b.copy(R1, ctx);
    }
}
