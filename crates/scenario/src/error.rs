// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors in scenario files, with their location.

use std::fmt;
use std::sync::Arc;

use flowloom_efsm::model::{Source, Span};
use miette::{LabeledSpan, SourceCode};

/// An error in a scenario file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// What was found and what was expected.
    pub message: String,
    /// Its location.
    pub span: Span,
    /// Label of the location; may be empty.
    pub label: String,
    /// Suggested fix.
    pub help: Option<String>,
    /// The file.
    pub source: Arc<Source>,
}

impl ScenarioError {
    /// Line and column, from 1.
    pub fn position(&self) -> (u32, u32) {
        let (line, column, _) = self.source.locate(self.span.start);
        (line, column)
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ScenarioError {}

impl miette::Diagnostic for ScenarioError {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(self.source.as_ref())
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let text = Some(self.label.clone()).filter(|label| !label.is_empty());
        let length = self.span.end.saturating_sub(self.span.start);
        Some(Box::new(std::iter::once(LabeledSpan::new(text, self.span.start, length))))
    }
}

/// All errors in a scenario file, in source order; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioErrors {
    /// The file's name.
    pub name: String,
    /// The errors.
    pub list: Vec<ScenarioError>,
}

impl fmt::Display for ScenarioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.list.len() == 1 { "" } else { "s" };
        write!(f, "`{}` has {} error{plural}", self.name, self.list.len())
    }
}

impl std::error::Error for ScenarioErrors {}

impl miette::Diagnostic for ScenarioErrors {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn miette::Diagnostic> + 'a>> {
        Some(Box::new(self.list.iter().map(|error| error as &dyn miette::Diagnostic)))
    }
}

/// An error before it is bound to its source as a [`ScenarioError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingError {
    pub(super) span: Span,
    pub(super) message: String,
    pub(super) label: String,
    pub(super) help: Option<String>,
}

impl PendingError {
    pub(super) fn new(span: Span, message: impl Into<String>) -> PendingError {
        PendingError { span, message: message.into(), label: String::new(), help: None }
    }

    pub(super) fn label(mut self, label: impl Into<String>) -> PendingError {
        self.label = label.into();
        self
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> PendingError {
        self.help = Some(help.into());
        self
    }

    pub(super) fn of(self, source: &Arc<Source>) -> ScenarioError {
        let PendingError { span, message, label, help } = self;
        ScenarioError { message, span, label, help, source: Arc::clone(source) }
    }
}
