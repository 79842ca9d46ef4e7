//! Features of a function that no kernel supports.

use super::Place;
use flowloom_efsm::model::{Function, Policy, Span, StepKind};

/// A feature that a function uses and no kernel supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lack {
    /// Place in the source: a step, or the policy of a table.
    pub span: Span,
    /// Name of the feature in the language.
    pub what: &'static str,
    /// Reason why the kernel lacks it.
    pub reason: &'static str,
}

impl Lack {
    /// Renders it as a sentence with its place in the source of `function`.
    pub fn render(&self, function: &Function) -> String {
        let Lack { span, what, reason } = self;
        format!("`{what}` at {}: {reason}", Place::of(&function.source, *span))
    }
}

/// All features of a function that no kernel supports, in source order. A function without any may still be too large.
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
