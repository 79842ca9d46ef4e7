// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tokens to lines.

use crate::syntax::token::Kind;

use super::MAX_COLUMNS;
use super::line::Line;
use super::source::{Comment, Token};

/// Indentation for each open brace, in columns.
const INDENT: usize = 4;
/// Further indentation of continuation lines, in columns.
const CONTINUED: usize = 8;

/// Contents of a pair of braces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Braces {
    /// The clauses and rows of an element.
    Element,
    /// Statements, the fields of a header, the registers of a preloaded context.
    Block,
    /// Values after `in`, or of a named set.
    Set,
}

/// A pair of braces.
#[derive(Debug, Clone, Copy)]
struct Pair {
    braces: Braces,
    /// Index of the closing token.
    close: usize,
    is_on_one_line: bool,
}

/// Permission to break a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    Never,
    /// Between operands or list items.
    Inner,
    /// Between the parts of a row or statement.
    Outer,
}

/// A token of a line.
#[derive(Debug)]
struct Piece<'a> {
    text: &'a str,
    has_space_before: bool,
    /// Permission to break the line before it.
    breaks: Break,
    /// The source has a line break before it.
    is_broken: bool,
    comments: &'a [Comment],
}

/// Lays out the tokens of a source as lines.
pub(super) fn lines(words: &[Token<'_>]) -> Vec<Line> {
    let mut layout = Layout { words, pairs: pairs(words), lines: Vec::new(), wants_blank: false };
    layout.level(0, words.len() - 1, 0, None);
    layout.lines
}

fn pairs(words: &[Token<'_>]) -> Vec<Option<Pair>> {
    let mut pairs: Vec<Option<Pair>> = words.iter().map(|_| None).collect();
    let mut open: Vec<(usize, Braces)> = Vec::new();
    let mut first = 0;
    for (i, word) in words.iter().enumerate() {
        match word.kind {
            Kind::OpenBrace => {
                let braces = if i > 0 && opens_set(&words[i - 1]) {
                    Braces::Set
                } else if matches!(words[first].text, "stateful" | "stateless") && open.is_empty() {
                    Braces::Element
                } else {
                    Braces::Block
                };
                open.push((i, braces));
                if braces != Braces::Set {
                    first = i + 1;
                }
            }
            Kind::CloseBrace => {
                if let Some((at, braces)) = open.pop() {
                    let is_on_one_line =
                        words[at + 1..=i].iter().all(|word| !word.after_line && word.comments.is_empty());
                    let is_empty = at + 1 == i && word.comments.is_empty();
                    pairs[at] = Some(Pair { braces, close: i, is_on_one_line: is_on_one_line || is_empty });
                    if braces != Braces::Set {
                        first = i + 1;
                    }
                }
            }
            Kind::Semicolon => first = i + 1,
            _ => {}
        }
    }
    pairs
}

struct Layout<'a, 's> {
    words: &'a [Token<'s>],
    /// For each token, the pair that it opens.
    pairs: Vec<Option<Pair>>,
    lines: Vec<Line>,
    /// A blank line precedes the next line.
    wants_blank: bool,
}

impl<'a> Layout<'a, '_> {
    /// Lays out the tokens from `at` up to `end`, at one nesting level; `braces` is the kind of the enclosing pair, if
    /// any.
    fn level(&mut self, mut at: usize, end: usize, indent: usize, braces: Option<Braces>) {
        while at < end {
            self.leading(at, indent, false);
            let mut units = vec![self.unit(at, end)];
            at = units[0].1 + 1;
            // Statements of a block may share a line.
            let is_simple = |unit: &(usize, usize)| self.words[unit.1].kind == Kind::Semicolon;
            while braces == Some(Braces::Block)
                && at < end
                && is_simple(&units[units.len() - 1])
                && !self.words[at].after_line
                && self.words[at].comments.is_empty()
            {
                let next = self.unit(at, end);
                units.push(next);
                at = next.1 + 1;
            }
            self.units(&units, indent);
            at = self.braced_contents(units[units.len() - 1].1, at, indent);
        }
        self.leading(end, indent, true);
    }

    /// Lays out the contents of the braces opened by the token before `at`, if any. Returns the index of the next
    /// token.
    fn braced_contents(&mut self, last: usize, at: usize, indent: usize) -> usize {
        let Some(pair) = self.pairs[last] else {
            self.trailing(at);
            return at;
        };
        if let Some(line) = self.lines.last_mut() {
            line.opens = true;
        }
        self.trailing(at);
        self.level(at, pair.close, indent + INDENT, Some(pair.braces));
        self.close(indent);
        self.trailing(pair.close + 1);
        self.wants_blank = pair.braces == Braces::Element;
        pair.close + 1
    }

    fn close(&mut self, indent: usize) {
        self.wants_blank = false;
        self.lines.push(Line { indent, code: "}".to_owned(), ..Line::default() });
    }

    /// First and last token of the declaration, clause, row or statement at `at`. If it opens an element or a block of
    /// several lines, the last token is the opening brace.
    fn unit(&self, at: usize, end: usize) -> (usize, usize) {
        let mut i = at;
        while i < end {
            match (self.words[i].kind, self.pairs[i]) {
                (Kind::Semicolon, _) => return (at, i),
                (_, Some(Pair { braces: Braces::Set, close, .. })) => i = close,
                (_, Some(Pair { braces: Braces::Block, close, is_on_one_line: true })) => return (at, close),
                (_, Some(_)) => return (at, i),
                _ => {}
            }
            i += 1;
        }
        (at, end - 1)
    }

    /// Lays out statements on one line if they fit, else each on its own line.
    fn units(&mut self, units: &[(usize, usize)], indent: usize) {
        let all = self.pieces(units[0].0, units[units.len() - 1].1);
        let mut lines = fill(&all, indent, false);
        let is_one_line = lines.len() == 1;
        if fits(&lines) && (units.len() == 1 || is_one_line) {
            self.lines.append(&mut lines);
            return;
        }
        if units.len() > 1 {
            for unit in units {
                self.units(&[*unit], indent);
            }
            return;
        }
        let (first, last) = units[0];
        let open = (first..last).find(|i| self.pairs[*i].is_some_and(|pair| pair.close == last));
        let Some(open) = open.filter(|open| open + 1 < last) else {
            let mut lines = fill(&all, indent, true);
            self.lines.append(&mut lines);
            return;
        };
        // The block no longer fits on the line of its head.
        let mut head = fill(&self.pieces(first, open), indent, false);
        if !fits(&head) {
            head = fill(&self.pieces(first, open), indent, true);
        }
        self.lines.append(&mut head);
        if let Some(line) = self.lines.last_mut() {
            line.opens = true;
        }
        let mut at = open + 1;
        while at < last {
            let unit = self.unit(at, last);
            self.units(&[unit], indent + INDENT);
            at = unit.1 + 1;
        }
        self.close(indent);
    }

    /// Emits comments and blank lines before the token at `at`. `is_end` is true if it closes braces or the file.
    fn leading(&mut self, at: usize, indent: usize, is_end: bool) {
        let word = &self.words[at];
        for comment in word.comments.iter().filter(|comment| !comment.is_trailing) {
            self.blank(comment.after_blank);
            let goes_on = |line: &Line| {
                line.shares_column() && line.comment.as_ref().is_some_and(|before| before.column == comment.column)
            };
            if !comment.after_blank && self.lines.last().is_some_and(goes_on) {
                self.lines.push(Line { indent, comment: Some(comment.clone()), ..Line::default() });
            } else {
                self.lines.push(Line { indent, code: comment.text.clone(), is_comment: true, ..Line::default() });
            }
        }
        if !is_end {
            self.blank(word.after_blank);
        }
    }

    /// Emits a blank line if one is wanted and allowed.
    fn blank(&mut self, is_wanted: bool) {
        let can_be =
            self.lines.last().is_some_and(|line| !line.opens && (!line.code.is_empty() || line.comment.is_some()));
        if (is_wanted || self.wants_blank) && can_be {
            self.lines.push(Line::default());
        }
        self.wants_blank = false;
    }

    /// Attaches the trailing comment of the last line, which precedes the token at `at`.
    fn trailing(&mut self, at: usize) {
        let comment = self.words[at].comments.first().filter(|comment| comment.is_trailing);
        if let (Some(line), Some(comment)) = (self.lines.last_mut(), comment) {
            line.comment = Some(comment.clone());
        }
    }

    fn pieces(&self, first: usize, last: usize) -> Vec<Piece<'a>> {
        let words = self.words;
        let mut pieces: Vec<Piece<'a>> = Vec::new();
        // `in_set`: inside of the braces of a set. `depth`: open parentheses. `head`: first token of the statement.
        // `is_sign`: the previous token is a unary operator.
        let (mut in_set, mut depth, mut head, mut is_sign) = (false, 0_usize, words[first].text, false);
        // A named set has spaces inside of its braces.
        let mut is_named = false;
        for i in first..=last {
            let word = &words[i];
            let before = (i > first).then(|| &words[i - 1]);
            let is_stack = depth == 0 && matches!(head, "emit" | "encap");
            let has_space_before = before.is_some_and(|before| {
                let two_before = i.checked_sub(2).filter(|two| *two >= first).map(|two| &words[two]);
                let is_joined = is_sign || in_set && !is_named && joins_set(before.kind, word.kind);
                !is_joined && has_space_before(two_before, before, word, is_stack)
            });
            let breaks = match before {
                Some(before) if has_space_before => breaks(before, word, is_stack),
                _ => Break::Never,
            };
            let comments = if i > first { word.comments.as_slice() } else { &[] };
            let is_broken = word.after_line && breaks != Break::Never && i > first;
            pieces.push(Piece { text: word.text, has_space_before, breaks, is_broken, comments });
            is_sign = is_prefix(before, word);
            match word.kind {
                Kind::OpenParen => depth += 1,
                Kind::CloseParen => depth = depth.saturating_sub(1),
                Kind::OpenBrace if before.is_some_and(opens_set) => {
                    in_set = true;
                    is_named = before.is_some_and(|before| before.kind == Kind::Equal);
                }
                Kind::CloseBrace => in_set = false,
                _ => {}
            }
            if matches!(word.kind, Kind::Semicolon) || word.kind == Kind::OpenBrace && !in_set {
                head = words.get(i + 1).map_or("", |next| next.text);
            }
        }
        pieces
    }
}

/// Fills lines with the pieces. Keeps the line breaks of the source, and breaks lines that are too long if `may_wrap`.
fn fill(pieces: &[Piece<'_>], indent: usize, may_wrap: bool) -> Vec<Line> {
    let mut lines = vec![Line { indent, ..Line::default() }];
    let next = || Line { indent: indent + CONTINUED, ..Line::default() };
    // Width in columns from piece `i` up to the next possible break.
    let columns = |i: usize, least: Break| {
        let mut columns = pieces[i].text.chars().count();
        for piece in &pieces[i + 1..] {
            let may_end = piece.breaks == Break::Outer || piece.breaks == least || piece.is_broken;
            if may_end || !piece.comments.is_empty() {
                break;
            }
            columns += piece.text.chars().count() + usize::from(piece.has_space_before);
        }
        columns
    };
    for (i, piece) in pieces.iter().enumerate() {
        for comment in piece.comments {
            match lines.last_mut().filter(|_| comment.is_trailing) {
                Some(line) => line.comment = Some(comment.clone()),
                None => {
                    lines.push(Line { code: comment.text.clone(), is_comment: true, ..next() });
                }
            }
        }
        let Some(line) = lines.last() else { continue };
        let is_full = may_wrap
            && match piece.breaks {
                Break::Never => false,
                Break::Outer => line.width() + 1 + columns(i, Break::Outer) > MAX_COLUMNS,
                Break::Inner => line.width() + 1 + columns(i, Break::Inner) > MAX_COLUMNS,
            };
        if piece.is_broken || !piece.comments.is_empty() || is_full {
            lines.push(next());
        }
        if let Some(line) = lines.last_mut() {
            if piece.has_space_before && !line.code.is_empty() {
                line.code.push(' ');
            }
            line.code.push_str(piece.text);
        }
    }
    lines
}

fn fits(lines: &[Line]) -> bool {
    lines.iter().all(|line| line.is_comment || line.width() <= MAX_COLUMNS)
}

fn has_space_before(two_before: Option<&Token<'_>>, before: &Token<'_>, word: &Token<'_>, is_stack: bool) -> bool {
    match (before.kind, word.kind) {
        (_, Kind::Semicolon | Kind::Comma | Kind::CloseParen | Kind::Colon | Kind::DotDot) => false,
        (Kind::OpenParen | Kind::DotDot, _) => false,
        // `..=`
        (Kind::Equal, _) if two_before.is_some_and(|two| two.kind == Kind::DotDot) => false,
        (Kind::Slash, _) | (_, Kind::Slash) => is_stack,
        (Kind::Name, Kind::OpenParen) => {
            two_before.is_some_and(|two| two.kind == Kind::Arrow) || is_before_value(before.text)
        }
        (Kind::OpenBrace, Kind::CloseBrace) => false,
        _ => true,
    }
}

/// True if braces after this token hold a set.
fn opens_set(word: &Token<'_>) -> bool {
    word.kind == Kind::Equal || word.kind == Kind::Name && word.text == "in"
}

/// True if no space separates these tokens inside of the braces of a set.
fn joins_set(before: Kind, word: Kind) -> bool {
    before == Kind::OpenBrace || word == Kind::CloseBrace
}

/// Keywords that precede a value or a parenthesised list.
fn is_before_value(word: &str) -> bool {
    matches!(word, "when" | "in" | "before" | "after" | "key" | "preload" | "size" | "sweep" | "idle" | "hard")
}

/// True if the token is a unary operator.
fn is_prefix(before: Option<&Token<'_>>, word: &Token<'_>) -> bool {
    match word.kind {
        Kind::Bang | Kind::Tilde => true,
        Kind::Minus => before.is_none_or(|before| match before.kind {
            Kind::Name => is_before_value(before.text),
            Kind::Number | Kind::Dotted | Kind::Colons | Kind::CloseParen | Kind::FiveTuple => false,
            _ => true,
        }),
        _ => false,
    }
}

/// Permission to break a line between two tokens separated by a space.
fn breaks(before: &Token<'_>, word: &Token<'_>, is_stack: bool) -> Break {
    match (before.kind, word.kind) {
        (_, Kind::OpenBrace | Kind::CloseBrace) | (Kind::OpenBrace | Kind::Semicolon, _) => Break::Never,
        (_, Kind::AndAnd | Kind::OrOr | Kind::Arrow) => Break::Outer,
        (_, Kind::Slash) if is_stack => Break::Outer,
        (_, Kind::Name) if matches!(word.text, "when" | "stay") => Break::Outer,
        (Kind::Comma, _) => Break::Inner,
        (left, right) if is_operator(left) || is_operator(right) => Break::Inner,
        _ => Break::Never,
    }
}

fn is_operator(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::EqualEqual
            | Kind::NotEqual
            | Kind::LessEqual
            | Kind::GreaterEqual
            | Kind::Less
            | Kind::Greater
            | Kind::AndAnd
            | Kind::OrOr
            | Kind::Equal
            | Kind::AddEqual
            | Kind::SubEqual
            | Kind::AndEqual
            | Kind::OrEqual
            | Kind::XorEqual
            | Kind::ShiftLeftEqual
            | Kind::ShiftRightEqual
            | Kind::ShiftLeft
            | Kind::ShiftRight
            | Kind::Plus
            | Kind::Minus
            | Kind::Star
            | Kind::And
            | Kind::Or
            | Kind::Xor
            | Kind::Slash
    )
}
