//! Effects of steps, predicted from the values before the row.

use flowloom_efsm::model::{HeaderTemplate, Step, StepKind, Width};
use flowloom_efsm::steps;
use flowloom_engine::{Output, Port};
use flowloom_wire::graph::{Graph, Slice};
use flowloom_wire::{Header, Layers, Stack, edit};

use super::Values;

/// A step with evaluated operands.
pub(super) enum Foreseen {
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

impl Foreseen {
    /// Applies the step; returns the packet that it sends, if any.
    pub(super) fn take(self, bytes: &mut Vec<u8>, layers: &Layers) -> Option<Output> {
        match self {
            Foreseen::Tag(tci) => drop(edit::push_vlan(bytes, layers, tci)),
            Foreseen::Label(entry) => drop(edit::push_mpls(bytes, layers, entry)),
            Foreseen::Untag => drop(edit::pop_vlan(bytes, layers)),
            Foreseen::Unlabel => drop(edit::pop_mpls(bytes, layers)),
            Foreseen::Tunnel(stack, values) => drop(edit::encapsulate(bytes, layers, &stack, &values)),
            Foreseen::Untunnel => drop(edit::decapsulate(bytes, layers)),
            Foreseen::Copy(port) => return Some(Output { port, bytes: bytes.clone() }),
            Foreseen::Made(port, bytes) => return Some(Output { port, bytes }),
            Foreseen::Reported => {}
        }
        None
    }
}

impl Values<'_> {
    /// Evaluates the operands of a step; `None` for one that no front end accepts.
    pub(super) fn foresee(&self, step: &Step, graph: &Graph) -> Option<Foreseen> {
        let port = step.port().map(|port| Port(self.eval(port, Width::W32) as u32));
        Some(match &step.kind {
            StepKind::Push(template) => self.pushed(template),
            StepKind::Pop(Header::Vlan) => Foreseen::Untag,
            StepKind::Pop(_) => Foreseen::Unlabel,
            StepKind::Encapsulate(headers) => {
                let stack = steps::stack(graph, &step.kind).ok()??;
                let values = self.placed(&stack, headers);
                Foreseen::Tunnel(stack, values)
            }
            StepKind::Decapsulate => Foreseen::Untunnel,
            StepKind::Clone(_) => Foreseen::Copy(port?),
            StepKind::Log(_) => Foreseen::Reported,
            StepKind::Emit { headers, .. } => {
                let stack = steps::stack(graph, &step.kind).ok()??;
                Foreseen::Made(port?, stack.render(&self.placed(&stack, headers), 0))
            }
        })
    }

    fn pushed(&self, template: &HeaderTemplate) -> Foreseen {
        let mut entry: u32 = steps::DEFAULT_LABEL_TTL.into();
        for (field, value) in &template.values {
            let Some(slot) = steps::pushed_slot(*field) else { continue };
            let shift = 32 - u32::from(slot.offset_bits) - u32::from(slot.width_bits);
            let mask = ((1_u64 << slot.width_bits) - 1) as u32;
            entry = entry & !(mask << shift) | (self.new_value(value) as u32 & mask) << shift;
        }
        match template.header {
            Header::Vlan => Foreseen::Tag((entry >> 16) as u16),
            _ => Foreseen::Label(entry),
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
