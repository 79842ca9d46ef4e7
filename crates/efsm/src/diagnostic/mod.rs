// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Diagnostics of the front end: stable codes, spans in the source, and actionable help.
//!
//! A library prints nothing: [`Diagnostics`] is a [`miette::Diagnostic`], and the caller renders
//! it (the crate `cli`: `render_diagnostic`).

mod suggest;

use std::fmt;
use std::sync::Arc;

use miette::{LabeledSpan, MietteError, MietteSpanContents, Severity, SourceCode, SourceSpan, SpanContents};

use crate::model::{Source, Span};

pub use code::Code;
pub(crate) use suggest::{did_you_mean, list_names};

mod code;

/// Maximum bytes of context around a span; longer lines are truncated.
const MAX_SHOWN_BYTES: usize = 2000;
/// Maximum bytes of a long line that are marked, and that are shown on each side of the mark.
const MAX_MARKED_BYTES: usize = 40;

impl Source {
    /// True if the lines of a span exceed the context limit.
    fn is_long_around(&self, span: Span) -> bool {
        let end = span.end.min(self.text.len());
        let start = span.start.min(end);
        let first = self.text[..start].rfind('\n').map_or(0, |i| i + 1);
        let last = self.text[end..].find('\n').map_or(self.text.len(), |i| end + i);
        last - first > MAX_SHOWN_BYTES
    }
}

/// A finding of the front end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Kind of finding; stable across versions.
    pub code: Code,
    /// True for a warning, false for an error.
    pub is_warning: bool,
    /// What was found and what was expected.
    pub message: String,
    /// Labelled spans, the primary one first; empty if the cause is outside of the source.
    pub labels: Vec<Label>,
    /// Suggested fix.
    pub help: Option<String>,
    /// The source that the labels refer to.
    pub source: Arc<Source>,
}

/// A labelled span of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The span.
    pub span: Span,
    /// The label.
    pub text: String,
}

impl Diagnostic {
    /// Line and column, from 1, of the primary span. `None` if the cause is outside of the source.
    pub fn position(&self) -> Option<(u32, u32)> {
        let (line, column, _) = self.source.locate(self.labels.first()?.span.start);
        Some((line, column))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

impl miette::Diagnostic for Diagnostic {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.code))
    }

    fn severity(&self) -> Option<Severity> {
        Some(if self.is_warning { Severity::Warning } else { Severity::Error })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        if self.labels.is_empty() { None } else { Some(self.source.as_ref()) }
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().enumerate().map(|(i, label)| {
            let mut length = label.span.end.saturating_sub(label.span.start);
            if self.source.is_long_around(label.span) {
                length = length.min(MAX_MARKED_BYTES);
            }
            let place = SourceSpan::new(label.span.start.into(), length);
            let text = Some(label.text.clone()).filter(|t| !t.is_empty());
            if i == 0 {
                LabeledSpan::new_primary_with_span(text, place)
            } else {
                LabeledSpan::new_with_span(text, place)
            }
        })))
    }
}

impl SourceCode for Source {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        context_lines_before: usize,
        context_lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let contents = self.text.as_str().read_span(span, context_lines_before, context_lines_after)?;
        if contents.data().len() > MAX_SHOWN_BYTES {
            // Shows part of a long line around the span. Two spans on it are shown separately.
            let (start, end) = (span.offset(), span.offset() + span.len());
            if span.len() > MAX_MARKED_BYTES {
                return Err(MietteError::OutOfBounds);
            }
            let first = self.text[..start].rfind('\n').map_or(0, |i| i + 1);
            let last = self.text[end..].find('\n').map_or(self.text.len(), |i| end + i);
            let boundary = |at: usize| (0..=at).rev().find(|&i| self.text.is_char_boundary(i)).unwrap_or(0);
            let from = boundary(start.saturating_sub(MAX_MARKED_BYTES)).max(first);
            let to = boundary((end + MAX_MARKED_BYTES).min(self.text.len())).clamp(end, last.max(end));
            let (line, ..) = self.locate(start);
            let shown = SourceSpan::new(from.into(), to - from);
            return Ok(Box::new(MietteSpanContents::new_named(
                self.name.clone(),
                &self.text.as_bytes()[from..to],
                shown,
                line as usize - 1,
                from - first,
                1,
            )));
        }
        Ok(Box::new(MietteSpanContents::new_named(
            self.name.clone(),
            contents.data(),
            *contents.span(),
            contents.line(),
            contents.column(),
            contents.line_count(),
        )))
    }
}

/// All findings about a program, in source order; at least one is an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` has {} error{}", self.error_count(), if self.error_count() == 1 { "" } else { "s" })]
pub struct Diagnostics {
    /// Name of the source.
    pub name: String,
    /// The findings.
    pub list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Number of errors.
    pub fn error_count(&self) -> usize {
        self.list.iter().filter(|d| !d.is_warning).count()
    }
}

impl miette::Diagnostic for Diagnostics {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn miette::Diagnostic> + 'a>> {
        Some(Box::new(self.list.iter().map(|d| d as &dyn miette::Diagnostic)))
    }
}

/// Collects findings during compilation.
#[derive(Debug)]
pub(crate) struct Sink {
    source: Arc<Source>,
    list: Vec<Diagnostic>,
}

impl Sink {
    pub(crate) fn new(source: Arc<Source>) -> Sink {
        Sink { source, list: Vec::new() }
    }

    /// Adds an error at `span`; `label` may be empty.
    pub(crate) fn error(
        &mut self,
        code: Code,
        span: Span,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Draft<'_> {
        self.push(code, false, message.into(), vec![Label { span: self.clamp(span), text: label.into() }])
    }

    pub(crate) fn warning(
        &mut self,
        code: Code,
        span: Span,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Draft<'_> {
        self.push(code, true, message.into(), vec![Label { span: self.clamp(span), text: label.into() }])
    }

    /// Adds an error whose cause is outside of the source.
    pub(crate) fn error_without_span(&mut self, code: Code, message: impl Into<String>) -> Draft<'_> {
        self.push(code, false, message.into(), Vec::new())
    }

    pub(crate) fn warnings_mut(&mut self) -> impl Iterator<Item = &mut Diagnostic> {
        self.list.iter_mut().filter(|diagnostic| diagnostic.is_warning)
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.list.iter().any(|d| !d.is_warning)
    }

    /// Returns the findings, sorted by position in the source.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        for diagnostic in &mut self.list {
            shorten(&mut diagnostic.message);
            diagnostic.labels.iter_mut().for_each(|label| shorten(&mut label.text));
            diagnostic.help.iter_mut().for_each(shorten);
        }
        self.list.sort_by_key(|d| d.labels.first().map_or(0, |l| l.span.start));
        self.list
    }

    /// Returns a draft that reports nothing, for an error that was already reported.
    pub(crate) fn silent(&mut self) -> Draft<'_> {
        Draft { sink: self, at: None }
    }

    fn push(&mut self, code: Code, is_warning: bool, message: String, labels: Vec<Label>) -> Draft<'_> {
        let source = Arc::clone(&self.source);
        self.list.push(Diagnostic { code, is_warning, message, labels, help: None, source });
        let at = Some(self.list.len() - 1);
        Draft { sink: self, at }
    }

    fn clamp(&self, span: Span) -> Span {
        let end = span.end.min(self.source.text.len());
        Span { start: span.start.min(end), end }
    }
}

/// Truncates the middle of a text that quotes a very long token of the source.
fn shorten(text: &mut String) {
    if text.len() <= MAX_SHOWN_BYTES {
        return;
    }
    let (start, end) = (text.floor_char_boundary(MAX_SHOWN_BYTES / 2), text.len() - MAX_MARKED_BYTES);
    text.replace_range(start..text.floor_char_boundary(end), " .. ");
}

/// A diagnostic that was just added, to be extended.
pub(crate) struct Draft<'a> {
    sink: &'a mut Sink,
    at: Option<usize>,
}

impl Draft<'_> {
    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        if let Some(at) = self.at {
            self.sink.list[at].help = Some(help.into());
        }
        self
    }

    pub(crate) fn secondary_label(self, span: Span, text: impl Into<String>) -> Self {
        let span = self.sink.clamp(span);
        if let Some(at) = self.at {
            self.sink.list[at].labels.push(Label { span, text: text.into() });
        }
        self
    }
}
