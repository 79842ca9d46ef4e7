//! What no kernel can do for a function.

use super::Place;
use crate::model::{Function, Policy, Span, StepKind};

/// Something that a function does and no kernel can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lack {
    /// Where it stands: a step, or the policy of a table.
    pub span: Span,
    /// What it is, in the words of the language.
    pub what: &'static str,
    /// Why the kernel cannot.
    pub reason: &'static str,
}

impl Lack {
    /// Says it in a sentence, with its place in the source of `function`.
    pub fn render(&self, function: &Function) -> String {
        let Lack { span, what, reason } = self;
        format!("`{what}` at {}: {reason}", Place::of(&function.source, *span))
    }
}

/// What of a function no kernel can do, by place; a function without any of it may still be too large for one.
pub fn kernel_lacks(function: &Function) -> Vec<Lack> {
    let mut lacks = Vec::new();
    for element in &function.elements {
        if let Some(stateful) = element.stateful.as_ref().filter(|stateful| stateful.policy != Policy::Reject) {
            let reason = "an XDP program cannot look for the entry of a hash map that is to go";
            lacks.push(Lack { span: stateful.policy_span, what: "full evict", reason });
        }
        for step in element.rows.iter().flat_map(|row| &row.actions.steps) {
            let (what, reason) = match step.kind {
                StepKind::Clone(_) => ("clone", "XDP sends each packet once, and has no helper that copies one"),
                StepKind::Emit { .. } => ("emit", "XDP has no helper that makes a packet"),
                StepKind::Push(_)
                | StepKind::Pop(_)
                | StepKind::Encapsulate(_)
                | StepKind::Decapsulate
                | StepKind::Log(_) => continue,
            };
            lacks.push(Lack { span: step.span, what, reason });
        }
    }
    lacks
}
