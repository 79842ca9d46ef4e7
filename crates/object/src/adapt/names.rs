// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of types, and their flavours.

use flowloom_isa::btf::{Name, Type};

pub(super) fn type_name(ty: &Type) -> Option<Name> {
    match ty {
        Type::Int { name, .. }
        | Type::Enum { name, .. }
        | Type::Enum64 { name, .. }
        | Type::Fwd { name, .. }
        | Type::Typedef { name, .. }
        | Type::Float { name, .. } => Some(*name),
        Type::Struct(composite) | Type::Union(composite) => Some(composite.name),
        _ => None,
    }
}

/// A name without its flavour: `task_struct___old` is another version of `task_struct`.
pub(super) fn essential(name: &[u8]) -> &[u8] {
    let flavour = name.windows(5).rposition(|w| &w[1..4] == b"___" && w[0] != b'_' && w[4] != b'_');
    flavour.map_or(name, |at| &name[..=at])
}
