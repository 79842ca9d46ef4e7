// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The effects of a row on the packet: all values are computed before anything is written.

use flowloom_engine::{Event, Output, Port, Ports, Verdict};
use flowloom_wire::field::FieldId;
use flowloom_wire::graph::{Graph, Slice};
use flowloom_wire::{Header, Layers, Stack, edit, rewrite};

use super::eval::{Scope, stored};
use crate::model::{Actions, Expr, Function, StepKind, Terminal, Width, WriteTarget};
use crate::steps;

/// A packet in progress.
#[derive(Debug, Clone, Default)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) layers: Layers,
    pub(super) metadata: Vec<u128>,
    /// The outputs so far besides it.
    pub(super) outputs: Vec<Output>,
    pub(super) events: Vec<Event>,
}

impl Frame {
    /// Begins a packet; keeps the memory.
    pub(super) fn begin(&mut self, function: &Function, packet: &[u8]) {
        let Frame { bytes, layers, metadata, outputs, events } = self;
        bytes.clear();
        bytes.extend_from_slice(packet);
        *layers = Layers::parse(&function.graph, packet);
        metadata.clear();
        metadata.extend(function.metadata.iter().map(|m| m.initial));
        outputs.clear();
        events.clear();
    }
}

/// Where the packet continues after an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    Element(usize),
    Leave(Verdict, Option<u32>),
    Flood,
}

/// The values of a row's actions.
pub(super) struct Effects {
    fields: Vec<(FieldId, u128)>,
    metadata: Vec<(usize, u128)>,
    steps: Vec<Change>,
    then: Next,
}

/// A step with its values.
enum Change {
    /// Pushes a tag with this control information.
    PushVlan(u16),
    /// Pushes a label entry.
    PushMpls(u32),
    PopVlan,
    PopMpls,
    /// The headers, and the values in their fields.
    Encapsulate(Stack, Vec<(Slice, u128)>),
    Decapsulate,
    /// Sends a copy through this port.
    Clone(u32),
    /// Sends these bytes through this port.
    Emit(u32, Vec<u8>),
    /// Writes this record.
    Log(Event),
}

impl Change {
    #[allow(clippy::expect_used, reason = "the front end has made the same stacks")]
    fn of(step: &StepKind, scope: &Scope<'_>, graph: &Graph) -> Change {
        match step {
            StepKind::Push(template) => {
                let mut entry = [0, 0, 0, steps::DEFAULT_LABEL_TTL];
                for (field, value) in &template.values {
                    if let Some(slot) = steps::pushed_slot(*field) {
                        slot.write(&mut entry, scope.new_value(value));
                    }
                }
                match template.header {
                    Header::Vlan => Change::PushVlan(u16::from_be_bytes([entry[0], entry[1]])),
                    _ => Change::PushMpls(u32::from_be_bytes(entry)),
                }
            }
            StepKind::Pop(Header::Vlan) => Change::PopVlan,
            StepKind::Pop(_) => Change::PopMpls,
            StepKind::Decapsulate => Change::Decapsulate,
            StepKind::Clone(port) => Change::Clone(eval_port(scope, port)),
            StepKind::Log(log) => Change::Log(log.encode(scope.now_ns, |logged| scope.new_value(&logged.value))),
            StepKind::Encapsulate(templates) | StepKind::Emit { headers: templates, .. } => {
                let stack = steps::stack(graph, step).expect("the front end checked the step").expect("it has headers");
                let mut values = Vec::new();
                for (i, template) in templates.iter().enumerate() {
                    for (field, value) in &template.values {
                        values.extend(stack.slot(i, *field).map(|slot| (slot, scope.new_value(value))));
                    }
                }
                match step {
                    StepKind::Emit { port, .. } => Change::Emit(eval_port(scope, port), stack.render(&values, 0)),
                    _ => Change::Encapsulate(stack, values),
                }
            }
        }
    }

    fn apply(self, frame: &mut Frame, graph: &Graph, ports: &Ports) {
        let Frame { bytes, layers, outputs, events, .. } = frame;
        let changed = match self {
            Change::PushVlan(tci) => edit::push_vlan(bytes, layers, tci),
            Change::PushMpls(entry) => edit::push_mpls(bytes, layers, entry),
            Change::PopVlan => edit::pop_vlan(bytes, layers),
            Change::PopMpls => edit::pop_mpls(bytes, layers),
            Change::Encapsulate(stack, values) => edit::encapsulate(bytes, layers, &stack, &values),
            Change::Decapsulate => edit::decapsulate(bytes, layers),
            Change::Clone(port) => {
                send(bytes.clone(), Port(port), ports, outputs);
                false
            }
            Change::Emit(port, packet) => {
                send(packet, Port(port), ports, outputs);
                false
            }
            Change::Log(event) => {
                events.push(event);
                false
            }
        };
        if changed {
            *layers = Layers::parse(graph, bytes);
        }
    }
}

impl Effects {
    pub(super) fn of(actions: &Actions, scope: &Scope<'_>, graph: &Graph) -> Effects {
        let mut fields = Vec::new();
        let mut metadata = Vec::new();
        for write in &actions.writes {
            let value = scope.new_value(&write.value);
            match write.target {
                WriteTarget::Field(field) => fields.push((field, value)),
                WriteTarget::Metadata(i) => metadata.push((usize::from(i), value)),
            }
        }
        let steps = actions.steps.iter().map(|step| Change::of(&step.kind, scope, graph)).collect();
        let then = match &actions.terminal {
            Terminal::Drop => Next::Leave(Verdict::Drop, None),
            Terminal::Pass | Terminal::Punt => Next::Leave(Verdict::Pass, None),
            Terminal::Reply => Next::Leave(Verdict::Tx, None),
            Terminal::Forward(port) => Next::Leave(Verdict::Redirect, Some(eval_port(scope, port))),
            Terminal::Flood => Next::Flood,
            Terminal::Goto(element) => Next::Element(usize::from(*element)),
        };
        Effects { fields, metadata, steps, then }
    }

    /// Writes the values, then executes the steps in order; a packet through an unbound port is lost.
    pub(super) fn apply(self, function: &Function, frame: &mut Frame, ports: &Ports) -> Next {
        for (i, value) in self.metadata {
            frame.metadata[i] = stored(value, function.metadata[i].ty);
        }
        if !self.fields.is_empty() {
            rewrite(&mut frame.bytes, &frame.layers, &self.fields);
        }
        for step in self.steps {
            step.apply(frame, &function.graph, ports);
        }
        self.then
    }
}

fn send(bytes: Vec<u8>, port: Port, ports: &Ports, outputs: &mut Vec<Output>) {
    if ports.is_bound(port) {
        outputs.push(Output { port, bytes });
    }
}

/// Ports are 32-bit numbers.
fn eval_port(scope: &Scope<'_>, port: &Expr) -> u32 {
    scope.eval(port, Width::W32) as u32
}
