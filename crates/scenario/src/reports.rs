//! Expected reports of a packet: `-> alert "port scan" with ip.src = 10.0.0.1, n = 20`.

use std::net::IpAddr;

use flowloom_efsm::events::{Reader, Report, Value as Shown};
use flowloom_efsm::model::Level;
use flowloom_engine::Event;

use super::cursor::Cursor;
use super::error::Fault;
use super::lex::{Form, Kind, Value};

/// An expected report.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
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

impl Wanted {
    /// Parses the part after the level.
    pub(super) fn read(cursor: &mut Cursor<'_>, level: Level) -> Result<Wanted, Fault> {
        let text = text_of(cursor.text("the text of the report, in quotes")?);
        let mut values = Vec::new();
        if cursor.eat_word("with") {
            loop {
                // Names of more than one word are quoted: `"old(n)" = 3`.
                let name = match cursor.peek() {
                    Some(Kind::Bytes(_)) => text_of(cursor.text("the name of a value")?),
                    _ => cursor.word("the name of a value of the report")?.0.to_owned(),
                };
                cursor.sign("=")?;
                let is_negative = cursor.eat_sign("-");
                values.push((name, Number { is_negative, value: cursor.value("the value that it has")? }));
                if !cursor.eat_sign(",") {
                    break;
                }
            }
        }
        Ok(Wanted { level, text, values })
    }

    fn words(&self) -> String {
        format!("{} \"{}\"", self.level.name(), self.text)
    }

    /// Appends the differences from the report found in its place.
    fn judge(&self, report: &Report, details: &mut Vec<String>) {
        if (self.level, &self.text) != (report.level, &report.text) {
            details.push(format!("expected {}, found {}", self.words(), words(report)));
            return;
        }
        for (name, wanted) in &self.values {
            let found = report.values.iter().find(|(known, _)| known == name);
            let Some((_, found)) = found else {
                let known: Vec<&str> = report.values.iter().map(|(name, _)| name.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                details.push(format!("{} has no value `{name}`; its values: {known}", self.words()));
                continue;
            };
            if !is_same(*wanted, *found) {
                let wanted = wanted_text(*wanted);
                details.push(format!("{}: expected {name} = {wanted}, found {found}", self.words()));
            }
        }
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn words(report: &Report) -> String {
    let values: Vec<String> = report.values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let values = if values.is_empty() { String::new() } else { format!(" with {}", values.join(", ")) };
    format!("{} \"{}\"{values}", report.level.name(), report.text)
}

fn wanted_text(Number { is_negative, value }: Number) -> String {
    match value.form {
        Form::V4 => std::net::Ipv4Addr::from_bits(value.bits as u32).to_string(),
        Form::V6 => std::net::Ipv6Addr::from_bits(value.bits).to_string(),
        Form::Mac => {
            let [_, _, mac @ ..] = (value.bits as u64).to_be_bytes();
            Shown::Mac(mac).to_string()
        }
        Form::Number | Form::Time if is_negative => format!("-{}", value.bits),
        Form::Number | Form::Time => value.bits.to_string(),
    }
}

fn is_same(Number { is_negative, value: wanted }: Number, found: Shown) -> bool {
    let is_number = |number: i128| number.unsigned_abs() == wanted.bits && (number < 0) == (is_negative && number != 0);
    match (wanted.form, found) {
        (Form::Number | Form::Time, Shown::Unsigned(number)) => is_number(number.into()),
        (Form::Number | Form::Time, Shown::Signed(number)) => is_number(number.into()),
        (Form::V4, Shown::Address(IpAddr::V4(address))) => u128::from(address.to_bits()) == wanted.bits,
        (Form::V6, Shown::Address(IpAddr::V6(address))) => address.to_bits() == wanted.bits,
        (Form::Mac, Shown::Mac([a, b, c, d, e, f])) => {
            u128::from(u64::from_be_bytes([0, 0, a, b, c, d, e, f])) == wanted.bits
        }
        _ => false,
    }
}

/// Compares the reports of a packet with the expected ones, in order.
pub(super) fn judge(wanted: &[Wanted], found: &[Event], reader: &Reader, details: &mut Vec<String>) {
    let reports: Vec<Report> = found.iter().filter_map(|event| reader.read(event)).collect();
    for (wanted, report) in wanted.iter().zip(&reports) {
        wanted.judge(report, details);
    }
    details.extend(
        wanted.iter().skip(reports.len()).map(|wanted| format!("expected {}, found no report", wanted.words())),
    );
    let more = reports.iter().skip(wanted.len());
    details.extend(more.map(|report| format!("found {}, which is not expected", words(report))));
}
