// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tokens of the language.

use logos::Logos;

use crate::diagnostic::{Code, Sink};
use crate::model::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

/// Kind of a token. Keywords are names: they are recognised only where the grammar expects them.
#[derive(Logos, Debug, Clone, Copy, PartialEq, Eq)]
#[logos(skip r"[ \t\r\n\x0c]+")]
#[logos(skip(r"#[^\n]*", allow_greedy = true))]
pub(crate) enum Kind {
    #[regex(r"//[^\n]*", allow_greedy = true)]
    SlashComment,
    /// Text of a report or name of a file, in quotes; in any other place [`Kind::Invalid`].
    #[regex(r#""[^"\n]*"?"#)]
    Text,
    /// Characters outside the language; the lexer reports them.
    Invalid,
    #[token("5-tuple")]
    #[token("inner.5-tuple")]
    FiveTuple,
    #[regex(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")]
    Name,
    /// A digit, then digits and letters: a number or a time.
    #[regex(r"[0-9][0-9A-Za-z_]*")]
    Number,
    /// Digits with dots: an IPv4 address, or a fraction, which is an error.
    #[regex(r"[0-9]+(\.[0-9]+)+[A-Za-z]*")]
    Dotted,
    /// Digits with at least two colons: an IPv6 or a MAC address.
    #[regex(r"[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:]*(\.[0-9]+)*")]
    Colons,
    #[token("->")]
    Arrow,
    #[token("==")]
    EqualEqual,
    #[token("!=")]
    NotEqual,
    #[token("<=")]
    LessEqual,
    #[token(">=")]
    GreaterEqual,
    #[token("<")]
    Less,
    #[token(">")]
    Greater,
    #[token("&&")]
    AndAnd,
    #[token("||")]
    OrOr,
    #[token("!")]
    Bang,
    #[token("=")]
    Equal,
    #[token("+=")]
    AddEqual,
    #[token("-=")]
    SubEqual,
    #[token("&=")]
    AndEqual,
    #[token("|=")]
    OrEqual,
    #[token("^=")]
    XorEqual,
    #[token("<<=")]
    ShiftLeftEqual,
    #[token(">>=")]
    ShiftRightEqual,
    #[token("<<")]
    ShiftLeft,
    #[token(">>")]
    ShiftRight,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("*")]
    Star,
    #[token("%")]
    Percent,
    #[token("&")]
    And,
    #[token("|")]
    Or,
    #[token("^")]
    Xor,
    #[token("~")]
    Tilde,
    #[token("(")]
    OpenParen,
    #[token(")")]
    CloseParen,
    #[token("{")]
    OpenBrace,
    #[token("}")]
    CloseBrace,
    #[token(",")]
    Comma,
    #[token(";")]
    Semicolon,
    #[token(":")]
    Colon,
    #[token("..")]
    DotDot,
    #[token("/")]
    Slash,
    /// End of the source; its span is empty.
    End,
}

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Splits `text` into tokens, the last of which is [`Kind::End`]. Characters outside the language are reported and
/// become [`Kind::Invalid`], adjacent ones as one token.
pub(crate) fn tokenize(text: &str, sink: &mut Sink) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    // Some editors start a file with a byte order mark.
    let start = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
    for (result, range) in Kind::lexer(&text[start..]).spanned() {
        let span = Span { start: start + range.start, end: start + range.end };
        match result {
            Ok(Kind::SlashComment) => {
                sink.error(Code::UnknownOperator, span, "`//` does not start a comment", "skipped")
                    .help("comments start with `#` and end with the line");
            }
            Ok(Kind::Text) => {
                let kind = if is_text(text, &tokens, span) { Kind::Text } else { Kind::Invalid };
                tokens.push(Token { kind, span });
            }
            Ok(kind) => tokens.push(Token { kind, span }),
            Err(()) => match tokens.last_mut() {
                Some(last) if last.kind == Kind::Invalid && last.span.end == span.start => last.span.end = span.end,
                _ => tokens.push(Token { kind: Kind::Invalid, span }),
            },
        }
    }
    for token in tokens.iter().filter(|t| t.kind == Kind::Invalid) {
        report_unknown(text, token.span, sink);
    }
    let end = Span { start: text.len(), end: text.len() };
    tokens.push(Token { kind: Kind::End, span: end });
    tokens
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
