// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tokens of the language.

use crate::diagnostic::{Code, Sink};
use crate::model::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

/// Kind of a token. Keywords are names: they are recognised only where the grammar expects them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text of a report or name of a file, in quotes; in any other place [`Kind::Invalid`].
    Text,
    /// Characters outside the language; the lexer reports them.
    Invalid,
    FiveTuple,
    /// Letters, digits and underscores after a letter or an underscore; more of them after dots.
    Name,
    /// A digit, then digits and letters: a number or a time.
    Number,
    /// Digits with dots: an IPv4 address, or a fraction, which is an error.
    Dotted,
    /// Digits with at least two colons: an IPv6 or a MAC address.
    Colons,
    Arrow,
    EqualEqual,
    NotEqual,
    LessEqual,
    GreaterEqual,
    Less,
    Greater,
    AndAnd,
    OrOr,
    Bang,
    Equal,
    AddEqual,
    SubEqual,
    AndEqual,
    OrEqual,
    XorEqual,
    ShiftLeftEqual,
    ShiftRightEqual,
    ShiftLeft,
    ShiftRight,
    Plus,
    Minus,
    Star,
    Percent,
    And,
    Or,
    Xor,
    Tilde,
    OpenParen,
    CloseParen,
    OpenBrace,
    CloseBrace,
    Comma,
    Semicolon,
    Colon,
    DotDot,
    Slash,
    /// End of the source; its span is empty.
    End,
}

/// Operators and punctuation; each one stands before its own prefixes.
const OPERATORS: [(&str, Kind); 37] = [
    ("<<=", Kind::ShiftLeftEqual),
    (">>=", Kind::ShiftRightEqual),
    ("->", Kind::Arrow),
    ("==", Kind::EqualEqual),
    ("!=", Kind::NotEqual),
    ("<=", Kind::LessEqual),
    (">=", Kind::GreaterEqual),
    ("&&", Kind::AndAnd),
    ("||", Kind::OrOr),
    ("+=", Kind::AddEqual),
    ("-=", Kind::SubEqual),
    ("&=", Kind::AndEqual),
    ("|=", Kind::OrEqual),
    ("^=", Kind::XorEqual),
    ("<<", Kind::ShiftLeft),
    (">>", Kind::ShiftRight),
    ("..", Kind::DotDot),
    ("<", Kind::Less),
    (">", Kind::Greater),
    ("!", Kind::Bang),
    ("=", Kind::Equal),
    ("+", Kind::Plus),
    ("-", Kind::Minus),
    ("*", Kind::Star),
    ("%", Kind::Percent),
    ("&", Kind::And),
    ("|", Kind::Or),
    ("^", Kind::Xor),
    ("~", Kind::Tilde),
    ("(", Kind::OpenParen),
    (")", Kind::CloseParen),
    ("{", Kind::OpenBrace),
    ("}", Kind::CloseBrace),
    (",", Kind::Comma),
    (";", Kind::Semicolon),
    (":", Kind::Colon),
    ("/", Kind::Slash),
];

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Splits `text` into tokens, the last of which is [`Kind::End`]. Characters outside the language are reported and
/// become [`Kind::Invalid`], adjacent ones as one token.
pub(crate) fn tokenize(text: &str, sink: &mut Sink) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    // Some editors start a file with a byte order mark.
    let start = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
    let mut at = start;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let skipped = ignored(rest);
        if skipped > 0 {
            at += skipped;
            continue;
        }
        let (kind, length) = first(rest);
        let span = Span { start: at, end: at + length };
        at = span.end;
        match kind {
            None => {
                sink.error(Code::UnknownOperator, span, "`//` does not start a comment", "skipped")
                    .help("comments start with `#` and end with the line");
            }
            Some(Kind::Text) => {
                let kind = if is_text(text, &tokens, span) { Kind::Text } else { Kind::Invalid };
                tokens.push(Token { kind, span });
            }
            Some(Kind::Invalid) => match tokens.last_mut() {
                Some(last) if last.kind == Kind::Invalid && last.span.end == span.start => last.span.end = span.end,
                _ => tokens.push(Token { kind: Kind::Invalid, span }),
            },
            Some(kind) => tokens.push(Token { kind, span }),
        }
    }
    for token in tokens.iter().filter(|t| t.kind == Kind::Invalid) {
        report_unknown(text, token.span, sink);
    }
    let end = Span { start: text.len(), end: text.len() };
    tokens.push(Token { kind: Kind::End, span: end });
    tokens
}

/// The length of the leading bytes of which all satisfy a condition.
fn run(text: &str, is_part: impl Fn(u8) -> bool) -> usize {
    text.bytes().position(|byte| !is_part(byte)).unwrap_or(text.len())
}

/// The length of the space or the comment at the start of a text.
fn ignored(text: &str) -> usize {
    match text.starts_with('#') {
        true => run(text, |byte| byte != b'\n'),
        false => run(text, |byte| b" \t\r\n\x0c".contains(&byte)),
    }
}

/// The kind and the length of the longest token at the start of a text; no kind for a comment of other languages.
fn first(text: &str) -> (Option<Kind>, usize) {
    let operator = || OPERATORS.iter().find(|(operator, _)| text.starts_with(operator));
    if text.starts_with("//") {
        return (None, run(text, |byte| byte != b'\n'));
    }
    if let Some(quoted) = text.strip_prefix('"') {
        let length = run(quoted, |byte| byte != b'"' && byte != b'\n');
        return (Some(Kind::Text), 1 + length + usize::from(quoted[length..].starts_with('"')));
    }
    if let Some(tuple) = ["5-tuple", "inner.5-tuple"].iter().find(|tuple| text.starts_with(**tuple)) {
        return (Some(Kind::FiveTuple), tuple.len());
    }
    let words = [(Kind::Colons, colons(text)), (Kind::Dotted, dotted(text)), (Kind::Name, name(text))];
    let number = match text.starts_with(|first: char| first.is_ascii_digit()) {
        true => run(text, is_word),
        false => 0,
    };
    match words.into_iter().chain([(Kind::Number, number)]).max_by_key(|(_, length)| *length) {
        Some((kind, length)) if length > 0 => (Some(kind), length),
        _ => match operator() {
            Some((operator, kind)) => (Some(*kind), operator.len()),
            None => (Some(Kind::Invalid), text.chars().next().map_or(0, char::len_utf8)),
        },
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The length of a name at the start of a text, or 0.
fn name(text: &str) -> usize {
    let is_first = |text: &str| text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let mut length = 0;
    loop {
        let part = &text[length + usize::from(length > 0)..];
        if !is_first(part) {
            return length;
        }
        length = text.len() - part.len() + run(part, is_word);
        if !text[length..].starts_with('.') {
            return length;
        }
    }
}

/// The length of the numbers with a dot before each of them.
fn fractions(text: &str) -> usize {
    let mut length = 0;
    while let Some(digits) = text[length..].strip_prefix('.').map(|rest| run(rest, |byte| byte.is_ascii_digit())) {
        if digits == 0 {
            break;
        }
        length += 1 + digits;
    }
    length
}

/// The length of digits with dots at the start of a text, or 0.
fn dotted(text: &str) -> usize {
    let digits = run(text, |byte| byte.is_ascii_digit());
    match fractions(&text[digits..]) {
        more if digits > 0 && more > 0 => {
            digits + more + run(&text[digits + more..], |byte| byte.is_ascii_alphabetic())
        }
        _ => 0,
    }
}

/// The length of an address with colons at the start of a text, or 0.
fn colons(text: &str) -> usize {
    let length = run(text, |byte| byte.is_ascii_hexdigit() || byte == b':');
    match text[..length].bytes().filter(|byte| *byte == b':').count() {
        ..=1 => 0,
        _ => length + fractions(&text[length..]),
    }
}

/// True for a closed text in a valid place: after `log(`, `alert(` and `file(`.
fn is_text(text: &str, before: &[Token], span: Span) -> bool {
    let written = |span: Span| text.get(span.start..span.end).unwrap_or_default();
    let is_closed = written(span).len() >= 2 && written(span).ends_with('"');
    let is_word = |token: &Token| token.kind == Kind::Name && matches!(written(token.span), "log" | "alert" | "file");
    is_closed && matches!(before, [.., word, open] if open.kind == Kind::OpenParen && is_word(word))
}

fn report_unknown(text: &str, span: Span, sink: &mut Sink) {
    let found = text.get(span.start..span.end).unwrap_or_default();
    let mut shown: String = found
        .chars()
        .take(20)
        .map(|c| if c.is_control() || c == BYTE_ORDER_MARK { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if found.chars().count() > 20 {
        shown.push('…');
    }
    let help = match found.chars().next() {
        Some('"' | '\'' | '`') => {
            "quoted text is allowed only in `log(\"...\")`, `alert(\"...\")` and `set NAME = file(\"...\")`, on one line; \
             write names, numbers and addresses bare"
        }
        Some('[' | ']') => "the language has no brackets; compare some bits of a field with `field & mask == value`",
        Some('.') => "a dot is allowed only in a field name such as `ip.src`; a range is `low..high`",
        Some('@' | '$' | '?' | '\\') => "remove it",
        Some(BYTE_ORDER_MARK) => "this is a byte order mark, which is invisible; remove it, it may only start a file",
        _ => "outside of comments only ASCII letters, digits and operators may be used",
    };
    sink.error(Code::UnknownCharacter, span, format!("`{shown}` is not part of the language"), "found here").help(help);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::Source;

    #[test]
    fn the_longest_token_counts() {
        let source = Arc::new(Source { name: String::new(), text: String::new() });
        let kinds = |text: &str| {
            let tokens = tokenize(text, &mut Sink::new(Arc::clone(&source)));
            tokens.iter().map(|token| (token.kind, token.span.end)).collect::<Vec<_>>()
        };
        for (text, expected) in [
            ("5-tuple", vec![(Kind::FiveTuple, 7)]),
            ("5-tup", vec![(Kind::Number, 1), (Kind::Minus, 2), (Kind::Name, 5)]),
            ("inner.5-tuple", vec![(Kind::FiveTuple, 13)]),
            ("ip.src.", vec![(Kind::Name, 6), (Kind::Invalid, 7)]),
            ("10.0.0.1", vec![(Kind::Dotted, 8)]),
            ("1.5us", vec![(Kind::Dotted, 5)]),
            ("1..5", vec![(Kind::Number, 1), (Kind::DotDot, 3), (Kind::Number, 4)]),
            ("ab:c", vec![(Kind::Name, 2), (Kind::Colon, 3), (Kind::Name, 4)]),
            ("fe80::x", vec![(Kind::Colons, 6), (Kind::Name, 7)]),
            ("::1.2.", vec![(Kind::Colons, 5), (Kind::Invalid, 6)]),
            ("<<=<", vec![(Kind::ShiftLeftEqual, 3), (Kind::Less, 4)]),
            ("é[", vec![(Kind::Invalid, 3)]),
            ("a # b\n\tc", vec![(Kind::Name, 1), (Kind::Name, 8)]),
            ("// a", vec![]),
        ] {
            assert_eq!(kinds(text), [expected, vec![(Kind::End, text.len())]].concat(), "{text}");
        }
    }
}
