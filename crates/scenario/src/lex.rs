// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lexer.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use flowloom_efsm::model::Span;

use super::error::PendingError;
use super::packet::mac_text;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Span,
    pub(super) starts_line: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name, possibly with inner dots and hyphens: `ip.ttl`, `echo-reply`.
    Word(String),
    Value(Value),
    /// A quoted string, or a hexadecimal byte string.
    Bytes(Vec<u8>),
    /// An operator or delimiter.
    Sign(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) bits: u128,
    pub(super) form: Form,
}

/// The value as an `.efsm` literal.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Number => write!(f, "{}", self.bits),
            Form::Time => write!(f, "{}ns", self.bits),
            Form::V4 => write!(f, "{}", Ipv4Addr::from_bits(self.bits as u32)),
            Form::V6 => write!(f, "{}", Ipv6Addr::from_bits(self.bits)),
            Form::Mac => f.write_str(&mac_text(self.bits)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Number,
    /// In nanoseconds.
    Time,
    V4,
    V6,
    Mac,
}

impl Form {
    pub(super) fn name(self) -> &'static str {
        match self {
            Form::Number => "a number",
            Form::Time => "a time",
            Form::V4 => "an IPv4 address",
            Form::V6 => "an IPv6 address",
            Form::Mac => "a MAC address",
        }
    }
}

const SIGNS: [&str; 17] = ["->", "..", ">", "/", ",", "=", ":", "+", "-", "*", "%", "{", "}", "[", "]", "(", ")"];
const UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Splits `text` into tokens; also returns the errors.
pub(super) fn tokens(text: &str) -> (Vec<Token>, Vec<PendingError>) {
    let mut lexer = Lexer { text, at: 0, starts_line: true };
    let (mut tokens, mut errors) = (Vec::new(), Vec::new());
    loop {
        lexer.skip();
        if lexer.rest().is_empty() {
            return (tokens, errors);
        }
        let (start, starts_line) = (lexer.at, lexer.starts_line);
        lexer.starts_line = false;
        match lexer.kind() {
            Ok(kind) => tokens.push(Token { kind, span: Span { start, end: lexer.at }, starts_line }),
            Err(error) => errors.push(error),
        }
    }
}

/// Parses a time of several units in nanoseconds, such as `9m59s`; `None` if `digits` has another form.
fn compound(digits: &str) -> Option<Result<u128, &'static str>> {
    let mut parts: Vec<(&str, &str)> = Vec::new();
    let mut rest = digits;
    while !rest.is_empty() {
        let number = &rest[..rest.find(|c: char| !c.is_ascii_digit())?];
        let after = &rest[number.len()..];
        let unit = &after[..after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len())];
        if number.is_empty() {
            return None;
        }
        parts.push((number, unit));
        rest = &after[unit.len()..];
    }
    if parts.len() < 2 {
        return None;
    }
    let (mut total_ns, mut above_ns) = (0_u128, u64::MAX);
    for (number, unit) in parts {
        let unit_ns = UNITS.into_iter().find(|(name, _)| *name == unit).map(|(_, unit_ns)| unit_ns);
        let Some(unit_ns) = unit_ns.filter(|unit_ns| *unit_ns < above_ns) else {
            return Some(Err("order the units of a time from largest to smallest: `h`, `m`, `s`, `ms`, `us`, `ns`"));
        };
        above_ns = unit_ns;
        let part_ns = number.parse::<u128>().ok().and_then(|number| number.checked_mul(unit_ns.into()));
        match part_ns.and_then(|part_ns| total_ns.checked_add(part_ns)).filter(|sum| u64::try_from(*sum).is_ok()) {
            Some(sum_ns) => total_ns = sum_ns,
            None => return Some(Err("a time is a whole number of nanoseconds below 2^64")),
        }
    }
    Some(Ok(total_ns))
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    starts_line: bool,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip(&mut self) {
        while let Some(c) = self.rest().chars().next() {
            match c {
                '\n' => self.starts_line = true,
                '#' => {
                    self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                    continue;
                }
                c if c.is_whitespace() => {}
                _ => return,
            }
            self.at += c.len_utf8();
        }
    }

    /// The longest prefix of the rest whose characters satisfy `fits`.
    fn run(&self, fits: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        &rest[..rest.find(|c| !fits(c)).unwrap_or(rest.len())]
    }

    fn kind(&mut self) -> Result<Kind, PendingError> {
        let rest = self.rest();
        if rest.starts_with('"') {
            return self.quoted();
        }
        if let Some(value) = self.address() {
            return Ok(Kind::Value(value));
        }
        match rest.chars().next() {
            Some(c) if c.is_ascii_digit() => self.number(),
            Some(c) if c.is_alphabetic() || c == '_' => Ok(self.word()),
            c => {
                let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
                self.at += sign.map_or(c.map_or(1, char::len_utf8), str::len);
                sign.map(Kind::Sign).ok_or_else(|| {
                    let span = Span { start: self.at - c.map_or(1, char::len_utf8), end: self.at };
                    PendingError::new(span, format!("unexpected character `{}`", c.unwrap_or(' ')))
                })
            }
        }
    }

    /// An address. It is tried first, since it may start like a number or a word.
    fn address(&mut self) -> Option<Value> {
        let run = self.run(|c| c.is_ascii_hexdigit() || c == ':' || c == '.');
        if run.matches(':').count() >= 2 {
            let v6 = run.parse().map(|v6: Ipv6Addr| Value { bits: v6.to_bits(), form: Form::V6 }).ok();
            if let Some(value) = mac(run).or(v6) {
                self.at += run.len();
                return Some(value);
            }
        }
        let run = self.run(|c| c.is_ascii_digit() || c == '.');
        let v4: Ipv4Addr = run.parse().ok()?;
        self.at += run.len();
        Some(Value { bits: v4.to_bits().into(), form: Form::V4 })
    }

    fn number(&mut self) -> Result<Kind, PendingError> {
        let start = self.at;
        let run = self.run(|c| c.is_ascii_alphanumeric() || c == '_');
        let fraction = self.fraction(run);
        self.at += run.len() + fraction.map_or(0, |f| f.len() + 1);
        let span = Span { start, end: self.at };
        let wrong = |help: &str| {
            Err(PendingError::new(span, format!("`{}` is not a number", &self.text[start..self.at])).help(help))
        };
        let digits = run.replace('_', "");
        for (prefix, radix) in [("0x", 16), ("0b", 2)] {
            if let Some(digits) = digits.strip_prefix(prefix) {
                return match u128::from_str_radix(digits, radix) {
                    Ok(bits) if fraction.is_none() => Ok(Kind::Value(Value { bits, form: Form::Number })),
                    _ => hex(digits)
                        .filter(|_| radix == 16)
                        .map(Kind::Bytes)
                        .map_or_else(|| wrong("write it as `0x1f` or `31`"), Ok),
                };
            }
        }
        if fraction.is_none()
            && let Some(time) = compound(&digits)
        {
            return match time {
                Ok(bits) => Ok(Kind::Value(Value { bits, form: Form::Time })),
                Err(help) => wrong(help),
            };
        }
        let whole = digits.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = fraction.map_or(&digits[whole.len()..], |f| f.trim_start_matches(|c: char| c.is_ascii_digit()));
        if fraction.is_none() && whole.contains(|c: char| c.is_ascii_alphabetic()) && unit.is_empty() {
            return wrong("a time ends with its unit, `ns`, `us`, `ms`, `s`, `m` or `h`: `9m59s`");
        }
        let Ok(number) = whole.parse::<u128>() else { return wrong("the largest number has 128 bits") };
        if unit.is_empty() {
            return Ok(Kind::Value(Value { bits: number, form: Form::Number }));
        }
        let Some((_, unit_ns)) = UNITS.into_iter().find(|(name, _)| *name == unit) else {
            return wrong("a time is a number with `ns`, `us`, `ms`, `s`, `m` or `h`");
        };
        let part = fraction.map_or("", |f| f.trim_end_matches(|c: char| c.is_ascii_alphabetic()));
        let scale = 10_u128.checked_pow(part.len() as u32).unwrap_or(u128::MAX);
        let part_ns = part.parse::<u128>().unwrap_or(0).checked_mul(unit_ns.into());
        let time = part_ns.filter(|ns| ns % scale == 0).and_then(|ns| {
            let total = number.checked_mul(unit_ns.into())?.checked_add(ns / scale)?;
            u64::try_from(total).ok()
        });
        match time {
            Some(ns) => Ok(Kind::Value(Value { bits: ns.into(), form: Form::Time })),
            None => {
                let text = &self.text[start..self.at];
                Err(PendingError::new(span, format!("`{text}` is not a whole number of nanoseconds below 2^64"))
                    .help("the longest time is about 5,124,095 hours"))
            }
        }
    }

    /// The part after the point of `1.5s`; `None` for `1..5`.
    fn fraction(&self, run: &str) -> Option<&'t str> {
        let after = self.rest()[run.len()..].strip_prefix('.')?;
        let end = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
        let fraction = &after[..end];
        (fraction.starts_with(|c: char| c.is_ascii_digit()) && run.bytes().all(|b| b.is_ascii_digit()))
            .then_some(fraction)
    }

    /// A word. Dots and hyphens belong to it if a letter follows: `n-1` is a difference, `a.b` a name.
    fn word(&mut self) -> Kind {
        let rest = self.rest();
        let mut end = 0;
        let mut chars = rest.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let next = chars.peek().map(|&(_, c)| c);
            let joins = (c == '.' || c == '-') && next.is_some_and(|c| c.is_alphabetic() || c == '_');
            if !(c.is_alphanumeric() || c == '_' || joins) {
                break;
            }
            end = at + c.len_utf8();
        }
        self.at += end;
        Kind::Word(rest[..end].to_owned())
    }

    fn quoted(&mut self) -> Result<Kind, PendingError> {
        let start = self.at;
        let mut bytes = Vec::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + at + 1;
                    return Ok(Kind::Bytes(bytes));
                }
                '\n' => break,
                '\\' => {
                    let escaped = chars.next().map(|(_, c)| c);
                    match escaped.and_then(|c| {
                        [('n', 10), ('r', 13), ('t', 9), ('0', 0), ('"', 34), ('\\', 92)].into_iter().find(|e| e.0 == c)
                    }) {
                        Some((_, byte)) => bytes.push(byte),
                        None => {
                            self.at += self.run(|c| c != '\n').len();
                            let span = Span { start: start + at, end: start + at + 2 };
                            return Err(PendingError::new(span, "no such escape in a text")
                                .help("there are \\n \\r \\t \\0 \\\" \\\\; other bytes are written in hexadecimal: `data 0xff00`"));
                        }
                    }
                }
                c => bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.at += self.run(|c| c != '\n').len();
        Err(PendingError::new(Span { start, end: self.at }, "the text does not end on this line")
            .help("end it with `\"`"))
    }
}

fn mac(run: &str) -> Option<Value> {
    let parts: Vec<&str> = run.split(':').collect();
    if parts.len() != 6 || parts.iter().any(|p| p.len() != 2) {
        return None;
    }
    let bits = parts.iter().try_fold(0, |bits, part| Some(bits << 8 | u128::from_str_radix(part, 16).ok()?))?;
    Some(Value { bits, form: Form::Mac })
}

/// Decodes pairs of hexadecimal digits.
pub(super) fn hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.len().is_multiple_of(2) && digits.is_ascii();
    let byte = |i: usize| u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok();
    if pairs { (0..digits.len() / 2).map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        let (tokens, errors) = tokens(text);
        assert_eq!(errors, []);
        tokens.into_iter().map(|t| t.kind).collect()
    }

    fn value(bits: u128, form: Form) -> Kind {
        Kind::Value(Value { bits, form })
    }

    #[test]
    fn values_are_lexed() {
        let cases = [
            ("10.0.0.1", 0x0a00_0001, Form::V4),
            ("2001:db8::1", 0x2001_0db8 << 96 | 1, Form::V6),
            ("::1", 1, Form::V6),
            ("02:00:00:00:00:0a", 0x0200_0000_000a, Form::Mac),
            ("0x1f", 31, Form::Number),
            ("65_536", 65536, Form::Number),
            ("1.5ms", 1_500_000, Form::Time),
            ("2s", 2_000_000_000, Form::Time),
            ("10ns", 10, Form::Time),
        ];
        for (text, bits, form) in cases {
            assert_eq!(kinds(text), [value(bits, form)], "{text}");
        }
    }

    #[test]
    fn operators_between_values_and_words_are_lexed() {
        let word = |w: &str| Kind::Word(w.to_owned());
        assert_eq!(kinds("a:1"), [word("a"), Kind::Sign(":"), value(1, Form::Number)]);
        assert_eq!(
            kinds("10.0.0.1:80 -> x"),
            [value(0x0a00_0001, Form::V4), Kind::Sign(":"), value(80, Form::Number), Kind::Sign("->"), word("x")]
        );
        assert_eq!(kinds("1..2"), [value(1, Form::Number), Kind::Sign(".."), value(2, Form::Number)]);
        assert_eq!(kinds("echo-reply n-1"), [word("echo-reply"), word("n"), Kind::Sign("-"), value(1, Form::Number)]);
        assert_eq!(kinds("ip.ttl # not this"), [word("ip.ttl")]);
        assert_eq!(kinds(r#""a\n""#), [Kind::Bytes(b"a\n".to_vec())]);
    }

    #[test]
    fn errors_have_a_position() {
        for (text, start) in [("a ; b", 2), ("5x", 0), ("a \"b", 2), ("99999999999999999999s", 0), ("\"\\q\"", 1)] {
            let (_, errors) = tokens(text);
            assert_eq!(errors.len(), 1, "{text}: {errors:?}");
            assert_eq!(errors[0].span.start, start, "{text}");
        }
    }

    #[test]
    fn times_of_several_units_are_sums() {
        let time = |text: &str| match &tokens(text) {
            (tokens, errors) if errors.is_empty() => match tokens[..] {
                [Token { kind: Kind::Value(Value { bits, form: Form::Time }), .. }] => Ok(bits),
                _ => Err(format!("{tokens:?}")),
            },
            (_, errors) => Err(format!("{errors:?}")),
        };
        assert_eq!(time("9m59s"), Ok(599_000_000_000));
        assert_eq!(time("1h1ms1ns"), Ok(3_600_001_000_001));
        assert!(time("9m59").is_err_and(|error| error.contains("ends with its unit")));
        assert!(time("20000000000s").is_err_and(|error| error.contains("whole number of nanoseconds")));
        assert!(time("9s59m").is_err_and(|error| error.contains("from largest to smallest")));
        assert!(time("1m1x").is_err_and(|error| error.contains("from largest to smallest")));
        assert!(time("5000000h59m").is_ok() && time("6000000h59m").is_err());
    }
}
