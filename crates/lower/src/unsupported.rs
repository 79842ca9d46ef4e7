// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Features of a function that no kernel supports.

use super::place::SourceLine;
use flowloom_efsm::model::{Function, Policy, Span, StepKind};

/// A feature that a function uses and no kernel supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsupportedFeature {
    /// Place in the source: a step, or the policy of a table.
    pub span: Span,
    /// Name of the feature in the language.
    pub what: &'static str,
    /// Reason why the kernel lacks it.
    pub reason: &'static str,
}

impl UnsupportedFeature {
    /// Renders it as a sentence with its place in the source of `function`.
    pub fn render(&self, function: &Function) -> String {
        let UnsupportedFeature { span, what, reason } = self;
        format!("`{what}` at {}: {reason}", SourceLine::of(&function.source, *span))
    }
}

/// All features of a function that no kernel supports, in source order. A function without any may still be too large.
pub fn unsupported_by_kernel(function: &Function) -> Vec<UnsupportedFeature> {
    let mut unsupported = Vec::new();
    for element in &function.elements {
        if let Some(stateful) = element.stateful.as_ref().filter(|stateful| stateful.policy != Policy::Reject) {
            let reason = "an XDP program cannot search a hash map for the entry to evict";
            unsupported.push(UnsupportedFeature { span: stateful.policy_span, what: "full evict", reason });
        }
        for step in element.rows.iter().flat_map(|row| &row.actions.steps) {
            let (what, reason) = match step.kind {
                StepKind::Clone(_) => ("clone", "XDP sends each packet once, and has no helper that copies one"),
                StepKind::Emit { .. } => ("emit", "XDP has no helper that creates a packet"),
                StepKind::Push(_)
                | StepKind::Pop(_)
                | StepKind::Encapsulate(_)
                | StepKind::Decapsulate
                | StepKind::Log(_) => continue,
            };
            unsupported.push(UnsupportedFeature { span: step.span, what, reason });
        }
    }
    unsupported
}
