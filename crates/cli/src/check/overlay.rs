// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a function uses of the FlowBlaze machine, beside what the sets of parameters have.

use flowloom_efsm::model::{Function, Span};
use flowloom_overlay::{Compilation, Parameters, Use, compile};
use serde_json::{Value, json};

use crate::output::table;

/// The uses of a function by resource, beside what each set of parameters has.
pub(super) fn text(function: &Function) -> String {
    let sets: Vec<Compilation> = Parameters::NAMED.into_iter().map(|set| compile(function, set)).collect();
    let header: Vec<String> = ["resource", "element", "needed"]
        .into_iter()
        .map(str::to_owned)
        .chain(sets.iter().map(|set| set.image.parameters.name.to_owned()))
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    // What is chosen for the largest machine: a smaller one may trade conditions for words in its table.
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
        text.push_str("\nit does not fit, since\n");
        for reason in reasons(function, largest) {
            text.push_str(&format!("  {reason}\n"));
        }
    }
    text
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

/// Why a function does not fit, with places in its source.
pub(crate) fn reasons(function: &Function, compilation: &Compilation) -> Vec<String> {
    let at = |span: &Span| format!("{}:{}: ", function.source.name, function.source.locate(span.start).0);
    let problems = compilation.problems.iter().map(|problem| {
        let help = problem.help.map(|help| format!(" ({help})")).unwrap_or_default();
        format!("{}element `{}` {}{help}", at(&problem.span), problem.element, problem.what)
    });
    let exceeded = compilation.uses.iter().filter(|used| used.exceeds());
    problems.chain(exceeded.map(|used| format!("{}{used}", used.span.as_ref().map(at).unwrap_or_default()))).collect()
}
