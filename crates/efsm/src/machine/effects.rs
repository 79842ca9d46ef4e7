//! What a row does to the packet: all values are computed before anything is written.

use flowloom_engine::{Output, Port, Ports, Verdict};
use flowloom_wire::field::FieldId;
use flowloom_wire::{Layers, rewrite};

use super::eval::{Scope, stored};
use crate::model::{Actions, Expr, StepKind, Terminal, Variable, Width, WriteTarget};

/// A packet on its way through the elements.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) layers: Layers,
    pub(super) metadata: Vec<u128>,
    /// What has left besides it.
    pub(super) outputs: Vec<Output>,
}

/// Where the packet goes after an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Then {
    Element(usize),
    Leave(Verdict, Option<u32>),
    Flood,
}

/// The values of a row's actions.
pub(super) struct Effects {
    fields: Vec<(FieldId, u128)>,
    metadata: Vec<(usize, u128)>,
    steps: Vec<Change>,
    then: Then,
}

/// A step with its values.
enum Change {
    /// A copy leaves by this port.
    Clone(u32),
}

impl Effects {
    pub(super) fn of(actions: &Actions, scope: &Scope<'_>) -> Effects {
        let mut fields = Vec::new();
        let mut metadata = Vec::new();
        for write in &actions.writes {
            let value = scope.new_value(&write.value);
            match write.target {
                WriteTarget::Field(field) => fields.push((field, value)),
                WriteTarget::Metadata(i) => metadata.push((usize::from(i), value)),
            }
        }
        let steps = actions
            .steps
            .iter()
            .filter_map(|step| match &step.kind {
                StepKind::Clone(port) => Some(Change::Clone(eval_port(scope, port))),
                _ => None,
            })
            .collect();
        let then = match &actions.terminal {
            Terminal::Drop => Then::Leave(Verdict::Drop, None),
            Terminal::Pass | Terminal::Punt => Then::Leave(Verdict::Pass, None),
            Terminal::Reply => Then::Leave(Verdict::Tx, None),
            Terminal::Forward(port) => Then::Leave(Verdict::Redirect, Some(eval_port(scope, port))),
            Terminal::Flood => Then::Flood,
            Terminal::Goto(element) => Then::Element(usize::from(*element)),
        };
        Effects { fields, metadata, steps, then }
    }

    /// Writes the values, then takes the steps in order; a packet by a port that is not bound is lost.
    pub(super) fn apply(self, types: &[Variable], frame: &mut Frame, ports: &Ports) -> Then {
        for (i, value) in self.metadata {
            frame.metadata[i] = stored(value, types[i].ty);
        }
        if !self.fields.is_empty() {
            rewrite(&mut frame.bytes, &frame.layers, &self.fields);
        }
        for step in self.steps {
            match step {
                Change::Clone(port) => send(frame.bytes.clone(), Port(port), ports, &mut frame.outputs),
            }
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
