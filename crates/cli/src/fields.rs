// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom fields`: the field catalogue.

use flowloom_wire::field::FIELDS;
use serde_json::json;

use crate::args::FieldsArgs;
use crate::failure::Failure;
use crate::output::{print, print_json, table};

pub(crate) fn fields(args: &FieldsArgs) -> Result<(), Failure> {
    let prefix = args.prefix.as_deref().unwrap_or("");
    let fields: Vec<_> = FIELDS.iter().filter(|f| f.name.starts_with(prefix)).collect();
    if fields.is_empty() {
        let mut groups: Vec<&str> = FIELDS.iter().filter_map(|f| f.name.split('.').next()).collect();
        groups.dedup();
        return Err(Failure::Input(format!("no field begins with `{prefix}`, expected one of {}", groups.join(", "))));
    }
    if args.json {
        let list: Vec<_> = fields
            .iter()
            .map(|f| {
                json!({"name": f.name, "width_bits": f.width_bits, "writable": f.writable, "partner": f.partner, "meaning": f.meaning})
            })
            .collect();
        return print_json(&json!(list));
    }
    let rows: Vec<Vec<String>> = fields
        .iter()
        .map(|f| {
            let writable = if f.writable { "rw" } else { "r" };
            vec![f.name.to_owned(), f.width_bits.to_string(), writable.to_owned(), f.meaning.to_owned()]
        })
        .collect();
    print(&table(&["field", "bits", "use", "meaning"], &rows, &[1]))
}
