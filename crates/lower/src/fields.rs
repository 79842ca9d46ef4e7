// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields, metadata and time that elements read, and the headers that contain a field.

use std::collections::BTreeSet;

use flowloom_wire::field::FieldId;
use flowloom_wire::graph::Header;

use flowloom_efsm::model::{Element, Expr, KeyPart, Row, Wide};

/// The headers of which any one makes the field present; 0 if it is always present.
pub(super) fn mask_of(field: FieldId) -> u32 {
    field.headers().into_iter().map(Header::bit).fold(0, |a, b| a | b)
}

/// All fields that rows, keys or actions of these elements read or write.
pub(super) fn fields_used(elements: &[Element]) -> BTreeSet<FieldId> {
    let mut used = BTreeSet::new();
    for element in elements {
        used.extend(element.rows.iter().flat_map(Row::fields));
        if let Some(key) = element.stateful.as_ref().and_then(|s| s.key.as_ref()) {
            used.extend(key.fields());
        }
    }
    used
}

/// All metadata fields that these elements read.
pub(super) fn metadata_read(elements: &[Element]) -> BTreeSet<u16> {
    let keys = elements.iter().filter_map(|element| element.stateful.as_ref()?.key.as_ref());
    let of_key = |part: &KeyPart| match *part {
        KeyPart::Metadata(i) => Some(i),
        KeyPart::Field(_) => None,
    };
    let mut read: BTreeSet<u16> = keys.flat_map(|key| key.parts.iter().filter_map(of_key)).collect();
    for row in elements.iter().flat_map(|element| &element.rows) {
        for expr in row.exprs() {
            expr.walk(&mut |e| {
                if let Expr::Metadata(i) = e {
                    read.insert(*i);
                }
            });
        }
        read.extend(row.wides().into_iter().filter_map(|wide| match wide {
            Wide::Metadata(i) => Some(i),
            _ => None,
        }));
    }
    read
}

pub(super) fn reads_now(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |e| found |= matches!(e, Expr::Now { .. }));
    found
}
