// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Expected reports of a packet: `-> alert "port scan" with ip.src = 10.0.0.1, n = 20`.

use std::net::IpAddr;

use flowloom_efsm::events::{Reader, Report, Value as LoggedValue};
use flowloom_efsm::model::Level;
use flowloom_engine::Event;

use super::cursor::Cursor;
use super::error::PendingError;
use super::lex::{Form, Kind, Value};

#[derive(Debug, Clone)]
pub(super) struct ExpectedReport {
    level: Level,
    text: String,
    /// Expected values; others are not compared.
    values: Vec<(String, Number)>,
}

/// A value with its sign.
#[derive(Debug, Clone, Copy)]
struct Number {
    is_negative: bool,
    value: Value,
}

impl ExpectedReport {
    /// Parses the part after the level.
    pub(super) fn read(cursor: &mut Cursor<'_>, level: Level) -> Result<ExpectedReport, PendingError> {
        let text = text_of(cursor.text("the text of the report, in quotes")?);
        let value = |cursor: &mut Cursor<'_>| {
            // Names of more than one word are quoted: `"old(n)" = 3`.
            let name = match cursor.peek() {
                Some(Kind::Bytes(_)) => text_of(cursor.text("the name of a value")?),
                _ => cursor.word("the name of a value of the report")?.0.to_owned(),
            };
            cursor.sign("=")?;
            let is_negative = cursor.eat_sign("-");
            Ok((name, Number { is_negative, value: cursor.value("its value")? }))
        };
        let values = if cursor.eat_word("with") { cursor.list(value)? } else { Vec::new() };
        Ok(ExpectedReport { level, text, values })
    }

    fn describe(&self) -> String {
        format!("{} \"{}\"", self.level.name(), self.text)
    }

    /// Appends the differences from the report found in its place.
    fn compare(&self, report: &Report, details: &mut Vec<String>) {
        if (self.level, &self.text) != (report.level, &report.text) {
            details.push(format!("expected {}, found {}", self.describe(), describe(report)));
            return;
        }
        for (name, expected) in &self.values {
            let found = report.values.iter().find(|(known, _)| known == name);
            let Some((_, found)) = found else {
                let known: Vec<&str> = report.values.iter().map(|(name, _)| name.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                details.push(format!("{} has no value `{name}`; its values: {known}", self.describe()));
                continue;
            };
            if !is_same(*expected, *found) {
                let expected = expected_text(*expected);
                details.push(format!("{}: expected {name} = {expected}, found {found}", self.describe()));
            }
        }
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn describe(report: &Report) -> String {
    let values: Vec<String> = report.values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let values = if values.is_empty() { String::new() } else { format!(" with {}", values.join(", ")) };
    format!("{} \"{}\"{values}", report.level.name(), report.text)
}

fn expected_text(Number { is_negative, value }: Number) -> String {
    match value.form {
        Form::Number | Form::Time if is_negative => format!("-{}", value.bits),
        Form::Number | Form::Time => value.bits.to_string(),
        Form::V4 | Form::V6 | Form::Mac => value.to_string(),
    }
}

fn is_same(Number { is_negative, value: expected }: Number, found: LoggedValue) -> bool {
    let is_number =
        |number: i128| number.unsigned_abs() == expected.bits && (number < 0) == (is_negative && number != 0);
    match (expected.form, found) {
        (Form::Number | Form::Time, LoggedValue::Unsigned(number)) => is_number(number.into()),
        (Form::Number | Form::Time, LoggedValue::Signed(number)) => is_number(number.into()),
        (Form::V4, LoggedValue::Address(IpAddr::V4(address))) => u128::from(address.to_bits()) == expected.bits,
        (Form::V6, LoggedValue::Address(IpAddr::V6(address))) => address.to_bits() == expected.bits,
        (Form::Mac, LoggedValue::Mac([a, b, c, d, e, f])) => {
            u128::from(u64::from_be_bytes([0, 0, a, b, c, d, e, f])) == expected.bits
        }
        _ => false,
    }
}

/// Compares the reports of a packet with the expected ones, in order.
pub(super) fn compare(expected: &[ExpectedReport], found: &[Event], reader: &Reader, details: &mut Vec<String>) {
    let reports: Vec<Report> = found.iter().filter_map(|event| reader.read(event)).collect();
    for (expected, report) in expected.iter().zip(&reports) {
        expected.compare(report, details);
    }
    details.extend(
        expected
            .iter()
            .skip(reports.len())
            .map(|expected| format!("expected {}, found no report", expected.describe())),
    );
    let more = reports.iter().skip(expected.len());
    details.extend(more.map(|report| format!("unexpected {}", describe(report))));
}
