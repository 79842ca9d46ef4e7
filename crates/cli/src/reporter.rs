// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats the records of `log` and `alert` as lines.

use std::collections::BTreeMap;

use flowloom_efsm::events::{Reader, Report, Value};
use flowloom_efsm::model::Function;
use flowloom_engine::Event;
use serde_json::{Value as Json, json};

#[derive(Debug)]
pub(crate) struct Reporter {
    reader: Reader,
    as_json: bool,
    /// Number of reports so far.
    pub(crate) printed: u64,
    /// Number of reports dropped since standard output was too slow.
    pub(crate) dropped: u64,
}

impl Reporter {
    /// Returns the reporter of a function; `None` if the function has no `log` or `alert`.
    pub(crate) fn of(function: &Function, as_json: bool) -> Option<Reporter> {
        let reader = Reader::of(function);
        (!reader.is_empty()).then_some(Reporter { reader, as_json, printed: 0, dropped: 0 })
    }

    /// Formats an event as a line; empty if the event is not from `log` or `alert`.
    pub(crate) fn line(&mut self, event: &Event) -> String {
        let Some(report) = self.reader.read(event) else { return String::new() };
        self.printed += 1;
        if self.as_json { format!("{}\n", json_of(&report)) } else { format!("{report}\n") }
    }
}

fn json_of(report: &Report) -> Json {
    let values: BTreeMap<&str, Json> =
        report.values.iter().map(|(name, value)| (name.as_str(), value_json(value))).collect();
    json!({
        "event": "log",
        "time_ns": report.time_ns,
        "level": report.level.name(),
        "place": report.place,
        "text": report.text,
        "values": values,
    })
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::Unsigned(number) => json!(number),
        Value::Signed(number) => json!(number),
        Value::Address(_) | Value::Mac(_) => json!(value.to_string()),
    }
}
