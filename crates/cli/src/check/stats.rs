// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes of a function, compared with those in a paper.

use flowloom_efsm::layout::{self, RecordLayout};
use flowloom_efsm::model::Function;
use serde::Serialize;
use serde_json::{Value, json};

use super::paper::{self, PaperRow, Size};
use crate::output::table;

#[derive(Default, Serialize)]
struct Sizes {
    name: String,
    is_stateful: bool,
    rows: u64,
    registers: u64,
    globals: u64,
    key_bytes: u64,
    record_bytes: u64,
    contexts: u64,
}

impl Sizes {
    /// The sizes that a paper counts.
    fn counted(&self) -> Size {
        [self.rows, self.registers, self.globals]
    }
}

fn sizes(function: &Function) -> Vec<Sizes> {
    let sizes = function.elements.iter().map(|element| {
        let stateless = Sizes { name: element.name.clone(), rows: element.rows.len() as u64, ..Sizes::default() };
        let Some(stateful) = &element.stateful else { return stateless };
        let key = layout::key_spec(function, stateful).map_or(layout::SINGLE_KEY_BYTES, |spec| spec.key_bytes());
        Sizes {
            is_stateful: true,
            registers: stateful.registers.len() as u64,
            globals: stateful.globals.len() as u64,
            key_bytes: key as u64,
            record_bytes: RecordLayout::of(element, stateful).len_bytes.into(),
            contexts: if stateful.key.is_some() { stateful.size.into() } else { 1 },
            ..stateless
        }
    });
    sizes.collect()
}

/// Sum over the stateful elements.
fn sum(sizes: &[Size]) -> Size {
    sizes.iter().fold([0; 3], |sum, size| [0, 1, 2].map(|i| sum[i] + size[i]))
}

/// Pairs our stateful elements with the paper's; `None` where one side has no such element.
fn beside<'a>(sizes: &'a [Sizes], row: &PaperRow) -> Vec<(Option<&'a Sizes>, Option<Size>)> {
    let stateful: Vec<&Sizes> = sizes.iter().filter(|sizes| sizes.is_stateful).collect();
    let count = stateful.len().max(row.elements.len());
    (0..count).map(|i| (stateful.get(i).copied(), row.elements.get(i).copied())).collect()
}

/// True if the element has at most the paper's entries and registers.
fn is_within(ours: Option<&Sizes>, theirs: Option<Size>) -> bool {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => ours.counted().iter().zip(theirs).all(|(ours, theirs)| *ours <= theirs),
        (None, _) => true,
        (Some(_), None) => false,
    }
}

/// The tables of `check --stats`.
pub(super) fn text(function: &Function) -> String {
    let sizes = sizes(function);
    let mut rows: Vec<Vec<String>> = sizes
        .iter()
        .map(|s| {
            let numbers = [s.rows, s.registers, s.globals, s.key_bytes, s.record_bytes, s.contexts];
            std::iter::once(s.name.clone()).chain(numbers.iter().map(u64::to_string)).collect()
        })
        .collect();
    if sizes.len() > 1 {
        let all = sum(&sizes.iter().map(Sizes::counted).collect::<Vec<_>>());
        rows.push(std::iter::once("sum".to_owned()).chain(all.iter().map(u64::to_string)).collect());
        rows.iter_mut().for_each(|row| row.resize(7, String::new()));
    }
    let header = ["element", "rows", "registers", "globals", "key bytes", "record bytes", "contexts"];
    let mut text = table(&header, &rows, &[1, 2, 3, 4, 5, 6]);
    let Some(row) = paper::row(&function.name) else {
        text.push_str("\nno paper states the size of this function\n");
        return text;
    };
    let pairs = beside(&sizes, row);
    let registers = |size: Size| format!("{}+{}", size[1], size[2]);
    let line = |name: String, ours: Option<Size>, theirs: Option<Size>, within: bool| {
        let dash = || "-".to_owned();
        vec![
            name,
            ours.map_or_else(dash, |size| size[0].to_string()),
            theirs.map_or_else(dash, |size| size[0].to_string()),
            ours.map_or_else(dash, registers),
            theirs.map_or_else(dash, registers),
            if within { "yes" } else { "NO" }.to_owned(),
        ]
    };
    let mut rows: Vec<Vec<String>> = pairs
        .iter()
        .map(|(ours, theirs)| {
            let name = ours.map_or_else(|| "-".to_owned(), |ours| ours.name.clone());
            line(name, ours.map(Sizes::counted), *theirs, is_within(*ours, *theirs))
        })
        .collect();
    if pairs.len() > 1 {
        let ours = sum(&pairs.iter().filter_map(|(ours, _)| Some(ours.as_ref()?.counted())).collect::<Vec<_>>());
        let theirs = sum(row.elements);
        let within = pairs.iter().all(|(ours, theirs)| is_within(*ours, *theirs));
        rows.push(line("sum".to_owned(), Some(ours), Some(theirs), within));
    }
    text.push_str(&format!("\nstateful elements compared with `{}`, {}\n", row.use_case, row.source));
    let header = ["element", "rows", "paper", "registers+globals", "paper", "at most the paper's"];
    text.push_str(&table(&header, &rows, &[1, 2, 3, 4]));
    text
}

/// JSON form of [`text`]: `elements`, `sum` and `paper`.
pub(super) fn json(function: &Function) -> [(&'static str, Value); 3] {
    let sizes = sizes(function);
    let counted = |size: Size| json!({"rows": size[0], "registers": size[1], "globals": size[2]});
    let all = sum(&sizes.iter().map(Sizes::counted).collect::<Vec<_>>());
    let paper = paper::row(&function.name).map(|row| {
        let pairs = beside(&sizes, row);
        let elements: Vec<Value> = pairs
            .iter()
            .map(|(ours, theirs)| {
                json!({"name": ours.map(|ours| &ours.name), "here": ours.map(|ours| counted(ours.counted())),
                       "paper": theirs.map(counted), "is_within": is_within(*ours, *theirs)})
            })
            .collect();
        json!({
            "source": row.source,
            "use_case": row.use_case,
            "elements": elements,
            "sum": counted(sum(row.elements)),
            "is_within": pairs.iter().all(|(ours, theirs)| is_within(*ours, *theirs)),
        })
    });
    [("elements", json!(sizes)), ("sum", counted(all)), ("paper", paper.into())]
}
