// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wire form of a row's steps, shared by the front end, the reference machine and the lowering.

use flowloom_wire::field::Source;
use flowloom_wire::graph::Slice;
use flowloom_wire::{FieldId, Graph, Header, Stack, StackError};

use crate::model::{HeaderTemplate, StepKind};

/// The default time to live of an MPLS label.
pub const DEFAULT_LABEL_TTL: u8 = 64;

/// The stack of headers that a step adds; `None` for a step that adds none, or one tag or label only.
///
/// # Errors
/// The headers cannot follow each other like this.
pub fn stack(graph: &Graph, step: &StepKind) -> Result<Option<Stack>, StackError> {
    let headers = |templates: &[HeaderTemplate]| templates.iter().map(|t| t.header).collect::<Vec<Header>>();
    match step {
        StepKind::Encapsulate(templates) => Stack::tunnel(graph, &headers(templates)).map(Some),
        StepKind::Emit { headers: templates, .. } => Stack::packet(graph, &headers(templates)).map(Some),
        StepKind::Push(_) | StepKind::Pop(_) | StepKind::Decapsulate | StepKind::Clone(_) | StepKind::Log(_) => {
            Ok(None)
        }
    }
}

/// The position of a field in a pushed tag or label, from the control information or the label on.
pub fn pushed_slot(field: FieldId) -> Option<Slice> {
    match field.source() {
        Source::Header(_, slice) => Some(slice),
        _ => None,
    }
}
