//! What the steps of a row make, as the wire knows it: for the front end, the reference machine and the lowering alike.

use flowloom_wire::field::Source;
use flowloom_wire::graph::Slice;
use flowloom_wire::{FieldId, Graph, Header, Stack, StackError};

use crate::model::{HeaderTemplate, StepKind};

/// The time to live of an MPLS label, where not given.
pub const DEFAULT_LABEL_TTL: u8 = 64;

/// The stack of headers that a step makes; `None` for a step that makes none, or one tag or label only.
///
/// # Errors
/// The headers do not follow each other like this in a packet.
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

/// Where a field stands in a tag or label that is pushed, from the control information or the label on.
pub fn pushed_slot(field: FieldId) -> Option<Slice> {
    match field.source() {
        Source::Header(_, slice) => Some(slice),
        _ => None,
    }
}
