// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lexer of one line.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    /// A number, and whether it is hexadecimal.
    Number(u64, bool),
    Sign(&'static str),
    /// An unexpected character, or a number out of range.
    Unknown(String),
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(word) | Token::Unknown(word) => write!(f, "`{word}`"),
            Token::Number(n, true) => write!(f, "`0x{n:x}`"),
            Token::Number(n, false) => write!(f, "`{n}`"),
            Token::Sign(sign) => write!(f, "`{sign}`"),
        }
    }
}

/// Operators, the longest first.
const SIGNS: [&str; 41] = [
    "s>>=", "<<=", ">>=", "s>=", "s<=", "s/=", "s%=", "s>", "s<", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "==",
    "!=", ">=", "<=", ">", "<", "&", "=", "+", "-", "*", "(", ")", "[", "]", ",", ":", "#", "|", "^", "/", "%", "!",
    ".",
];

/// The tokens of a line with their columns, from 1; a comment begins with `;` or `//`.
pub(super) fn tokens(line: &str) -> Vec<(usize, Token)> {
    let mut out = Vec::new();
    let mut rest = line;
    let mut column = 1;
    while let Some(first) = rest.chars().next() {
        if first == ';' || rest.starts_with("//") {
            break;
        }
        let len = if first.is_whitespace() {
            first.len_utf8()
        } else if let Some(sign) = sign(rest) {
            out.push((column, Token::Sign(sign)));
            sign.len()
        } else {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.' || c == '$';
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let word = &rest[..end.max(first.len_utf8())];
            out.push((column, word_token(word)));
            word.len()
        };
        column += rest[..len].chars().count();
        rest = &rest[len..];
    }
    out
}

fn sign(rest: &str) -> Option<&'static str> {
    let sign = SIGNS.into_iter().find(|s| rest.starts_with(s))?;
    // `.rodata` is a word.
    (sign != "." || !rest[1..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')).then_some(sign)
}

fn word_token(word: &str) -> Token {
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        let plain = word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '.' || c == '$');
        return if plain { Token::Word(word.to_owned()) } else { Token::Unknown(word.to_owned()) };
    }
    let (number, hex) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => (u64::from_str_radix(digits, 16), true),
        None => (word.parse(), false),
    };
    number.map_or_else(|_| Token::Unknown(word.to_owned()), |n| Token::Number(n, hex))
}
