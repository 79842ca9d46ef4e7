// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Effects of steps, predicted from the values before the row.

use flowloom_efsm::model::{HeaderTemplate, Step, StepKind, Width};
use flowloom_efsm::steps;
use flowloom_engine::{Output, Port};
use flowloom_wire::graph::{Graph, Slice};
use flowloom_wire::{Header, Layers, Stack, edit};

use super::Values;

/// A step with evaluated operands.
pub(super) enum PredictedStep {
    Tag(u16),
    Label(u32),
    Untag,
    Unlabel,
    Tunnel(Stack, Vec<(Slice, u128)>),
    Untunnel,
    Copy(Port),
    Made(Port, Vec<u8>),
    /// A report to user space, with no effect on the packet.
    Reported,
}

impl PredictedStep {
    /// Applies the step; returns the packet that it sends, if any.
    pub(super) fn apply(self, bytes: &mut Vec<u8>, layers: &Layers) -> Option<Output> {
        match self {
            PredictedStep::Tag(tci) => drop(edit::push_vlan(bytes, layers, tci)),
            PredictedStep::Label(entry) => drop(edit::push_mpls(bytes, layers, entry)),
            PredictedStep::Untag => drop(edit::pop_vlan(bytes, layers)),
            PredictedStep::Unlabel => drop(edit::pop_mpls(bytes, layers)),
            PredictedStep::Tunnel(stack, values) => drop(edit::encapsulate(bytes, layers, &stack, &values)),
            PredictedStep::Untunnel => drop(edit::decapsulate(bytes, layers)),
            PredictedStep::Copy(port) => return Some(Output { port, bytes: bytes.clone() }),
            PredictedStep::Made(port, bytes) => return Some(Output { port, bytes }),
            PredictedStep::Reported => {}
        }
        None
    }
}

impl Values<'_> {
    /// Evaluates the operands of a step; `None` for one that no front end accepts.
    pub(super) fn predict_step(&self, step: &Step, graph: &Graph) -> Option<PredictedStep> {
        let port = step.port().map(|port| Port(self.eval(port, Width::W32) as u32));
        Some(match &step.kind {
            StepKind::Push(template) => self.pushed(template),
            StepKind::Pop(Header::Vlan) => PredictedStep::Untag,
            StepKind::Pop(_) => PredictedStep::Unlabel,
            StepKind::Encapsulate(headers) => {
                let stack = steps::stack(graph, &step.kind).ok()??;
                let values = self.placed(&stack, headers);
                PredictedStep::Tunnel(stack, values)
            }
            StepKind::Decapsulate => PredictedStep::Untunnel,
            StepKind::Clone(_) => PredictedStep::Copy(port?),
            StepKind::Log(_) => PredictedStep::Reported,
            StepKind::Emit { headers, .. } => {
                let stack = steps::stack(graph, &step.kind).ok()??;
                PredictedStep::Made(port?, stack.render(&self.placed(&stack, headers), 0))
            }
        })
    }

    fn pushed(&self, template: &HeaderTemplate) -> PredictedStep {
        let mut entry: u32 = steps::DEFAULT_LABEL_TTL.into();
        for (field, value) in &template.values {
            let Some(slot) = steps::pushed_slot(*field) else { continue };
            let shift = 32 - u32::from(slot.offset_bits) - u32::from(slot.width_bits);
            let mask = ((1_u64 << slot.width_bits) - 1) as u32;
            entry = entry & !(mask << shift) | (self.new_value(value) as u32 & mask) << shift;
        }
        match template.header {
            Header::Vlan => PredictedStep::Tag((entry >> 16) as u16),
            _ => PredictedStep::Label(entry),
        }
    }

    fn placed(&self, stack: &Stack, headers: &[HeaderTemplate]) -> Vec<(Slice, u128)> {
        let given = headers.iter().enumerate().flat_map(|(i, header)| header.values.iter().map(move |v| (i, v)));
        given.filter_map(|(i, (field, value))| Some((stack.slot(i, *field)?, self.new_value(value)))).collect()
    }
}

/// Source name of a step.
pub(super) fn step_name(step: &StepKind) -> &'static str {
    match step {
        StepKind::Push(_) => "push",
        StepKind::Pop(_) => "pop",
        StepKind::Encapsulate(_) => "encap",
        StepKind::Decapsulate => "decap",
        StepKind::Clone(_) => "clone",
        StepKind::Emit { .. } => "emit",
        StepKind::Log(_) => "log",
    }
}
