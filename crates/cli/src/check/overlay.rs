// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resource table of `check --target overlay`: the needs of a function, and the sizes of each named set of parameters.

use flowloom_efsm::model::Function;
use flowloom_overlay::{Compilation, Parameters, Refusal, Use, compile};
use serde_json::{Value, json};

use crate::output::table;

/// The resource table, and the reasons why the function does not fit.
pub(super) fn text(function: &Function) -> String {
    let sets: Vec<Compilation> = Parameters::NAMED.into_iter().map(|set| compile(function, set)).collect();
    let header: Vec<String> = ["resource", "element", "needed"]
        .into_iter()
        .map(str::to_owned)
        .chain(sets.iter().map(|set| set.image.parameters.name.to_owned()))
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    // The needs are those of the largest set: with a smaller one, the compiler may trade conditions for table words.
    let Some(largest) = sets.last() else { return String::new() };
    let rows: Vec<Vec<String>> = largest
        .uses
        .iter()
        .map(|used| {
            let of_set = |set: &Compilation| match set.uses.iter().find(|other| other.parameter == used.parameter) {
                Some(Use { needed, available, .. }) if needed > available => format!("{available} (needs {needed})"),
                Some(Use { available, .. }) => available.to_string(),
                None => "-".to_owned(),
            };
            let element = used.element.clone().unwrap_or_else(|| "-".to_owned());
            let mut row = vec![used.what.to_owned(), element, used.needed.to_string()];
            row.extend(sets.iter().map(of_set));
            row
        })
        .collect();
    let columns: Vec<usize> = (2..header.len()).collect();
    let mut text = table(&header, &rows, &columns);
    if !largest.fits() {
        text.push_str(&format!("\ndoes not fit the parameters `{}`:\n", largest.image.parameters.name));
        for reason in reasons(function, largest) {
            text.push_str(&format!("  {reason}\n"));
        }
    }
    text
}

/// The resource table of each named set of parameters as JSON, and the reasons why the function does not fit it.
pub(super) fn json(function: &Function) -> Value {
    let of_set = |set| {
        let compilation = compile(function, set);
        json!({"parameters": set.name, "uses": uses_json(&compilation), "reasons": reasons(function, &compilation)})
    };
    Parameters::NAMED.into_iter().map(of_set).collect()
}

/// The uses as JSON.
pub(crate) fn uses_json(compilation: &Compilation) -> Value {
    let uses = compilation.uses.iter().map(|used| {
        json!({
            "parameter": used.parameter, "what": used.what, "element": used.element,
            "needed": used.needed, "available": used.available,
        })
    });
    uses.collect()
}

/// The reasons why a function does not fit, with their places in the source.
pub(crate) fn reasons(function: &Function, compilation: &Compilation) -> Vec<String> {
    compilation.refusals(function).iter().map(Refusal::to_string).collect()
}
