// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Semantic analysis: lowers the syntax tree to the model, resolves names, chooses widths and checks everything.
//!
//! Checking continues after an error, so that one run reports all of them. A function that has reported an error
//! returns `None`; its callers report nothing more for the same cause.

mod actions;
mod address;
mod alternatives;
mod clauses;
mod condition;
mod constant;
mod declare;
mod element;
mod feasible;
mod flags;
mod hash;
mod header;
mod key;
mod lifetime;
mod lint;
mod log;
mod names;
mod numeric;
mod operand;
mod overlap;
mod row;
mod sets;
mod steps;

use std::collections::BTreeSet;
use std::sync::Arc;

use flowloom_wire::Graph;

use crate::diagnostic::{Code, Diagnostic, Diagnostics, Sink, list_names};
use crate::files::{Files, NoFiles};
use crate::model::{Function, Source, Span};
use crate::syntax::ast::{Name, Program};
use crate::syntax::parse;

pub(crate) use constant::render_time;
use header::DeclaredHeader;
use names::Names;
use sets::NamedSet;

/// Parses and checks a function. `text` is its source, `name` the name of the source in messages, `params` the values
/// of its parameters. The diagnostics returned with a function are warnings. No files can be read; see
/// [`compile_with`].
///
/// # Errors
/// All errors, in source order.
pub fn compile(
    name: &str,
    text: &str,
    params: &[(String, String)],
) -> Result<(Function, Vec<Diagnostic>), Diagnostics> {
    compile_with(name, text, params, &NoFiles)
}

/// As [`compile`], with access to the files that the source names.
///
/// # Errors
/// All errors, in source order.
pub fn compile_with(
    name: &str,
    text: &str,
    params: &[(String, String)],
    files: &dyn Files,
) -> Result<(Function, Vec<Diagnostic>), Diagnostics> {
    let source = Arc::new(Source { name: name.to_owned(), text: text.to_owned() });
    let mut sink = Sink::new(Arc::clone(&source));
    let program = parse(text, &mut sink);
    let mut checker = Checker {
        sink: &mut sink,
        source: Arc::clone(&source),
        names: Names::default(),
        sets: Vec::new(),
        elements: Vec::new(),
        graph: Arc::new(Graph::standard().clone()),
        declared_headers: Vec::new(),
        broken_headers: Vec::new(),
        sees_updates: false,
        logs: 0,
        is_expanded: false,
        expanded: BTreeSet::new(),
        has_syntax_errors: program.has_syntax_errors,
    };
    let function = checker.program(&program, params, files);
    let failed = sink.has_errors();
    debug_assert!(failed || is_complete(&program, &function), "a part of `{name}` was lost without an error");
    let mut list = sink.finish();
    if failed {
        list.retain(|d| !d.is_warning);
        return Err(Diagnostics { name: name.to_owned(), list });
    }
    Ok((function, list))
}

/// True if every row and statement of the source is in the function.
fn is_complete(program: &Program<'_>, function: &Function) -> bool {
    program.elements.len() == function.elements.len()
        && program.elements.iter().zip(&function.elements).all(|(tree, element)| {
            let forgets = |tree: &crate::syntax::ast::Row<'_>| {
                tree.block.statements.iter().any(|s| matches!(s, crate::syntax::ast::Statement::Forget { .. }))
            };
            let is_complete = |tree: &crate::syntax::ast::Row<'_>, row: &crate::model::Row| {
                // One of the statements is the terminal action.
                let effects = row.updates.len() + row.actions.writes.len() + row.actions.steps.len() + 1;
                (forgets(tree) || tree.block.statements.len() == effects)
                    && tree.conditions.len() <= row.conditions.len()
            };
            let mut rows = element.rows.chunk_by(|a, b| a.span == b.span);
            tree.rows.iter().all(|tree| {
                rows.next().is_some_and(|of| of.iter().all(|row| row.span == tree.head && is_complete(tree, row)))
            }) && rows.next().is_none()
        })
}

/// True if `name` occurs in `text` as a whole word.
fn names_word(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == name)
}

/// State of the check of one program.
struct Checker<'s, 'k> {
    sink: &'k mut Sink,
    source: Arc<Source>,
    names: Names<'s>,
    /// Named sets, indexed by the number in `Symbol::Set`.
    sets: Vec<NamedSet<'s>>,
    /// Names of all elements, in source order.
    elements: Vec<Name<'s>>,
    /// Parse graph, including the headers that the function declares.
    graph: Arc<Graph>,
    /// Declarations and uses of the function's own headers.
    declared_headers: Vec<DeclaredHeader<'s>>,
    /// Headers with an invalid declaration, which was reported.
    broken_headers: Vec<&'s str>,
    /// Registers are read after the row's updates. Set in packet actions.
    sees_updates: bool,
    /// Number of `log` and `alert` statements so far.
    logs: u32,
    /// The alternatives of the current row differ from those written: `&&` was distributed over `||`, or a flag was
    /// expanded.
    is_expanded: bool,
    /// Rows with such alternatives, as offsets of their heads.
    expanded: BTreeSet<usize>,
    has_syntax_errors: bool,
}

impl<'s> Checker<'s, '_> {
    /// Adds a note to warnings about unmatched rows that depend on parameters with default values: another value may
    /// make the row match.
    fn note_defaults(&mut self, program: &Program<'s>, given: &[(String, String)]) {
        let is_default = |name: &str| given.iter().all(|(given, _)| given != name);
        let defaults: Vec<&str> = program
            .params
            .iter()
            .filter(|param| param.default.is_some() && is_default(param.name.text))
            .map(|param| param.name.text)
            .collect();
        if defaults.is_empty() {
            return;
        }
        for warning in self.sink.warnings_mut() {
            if !matches!(warning.code, Code::ShadowedRow | Code::Constant) {
                continue;
            }
            let texts: Vec<&str> =
                warning.labels.iter().filter_map(|l| warning.source.text.get(l.span.start..l.span.end)).collect();
            let used: Vec<&str> =
                defaults.iter().copied().filter(|name| texts.iter().any(|text| names_word(text, name))).collect();
            if !used.is_empty() {
                let verb = if used.len() == 1 { "has its default" } else { "have their defaults" };
                let note = format!("{} {verb} here", list_names(used, 8));
                warning.help = Some(warning.help.take().map_or(note.clone(), |help| format!("{help}; {note}")));
            }
        }
    }

    fn program(&mut self, program: &Program<'s>, params: &[(String, String)], files: &dyn Files) -> Function {
        self.names.has_syntax_errors = program.has_syntax_errors;
        self.name_of_function(program);
        self.check_given(&program.params, params);
        self.params_and_constants(program, params);
        self.named_sets(&program.sets, files);
        self.headers(&program.headers);
        let metadata = self.metadata(&program.metadata);
        self.element_names(program);
        let mut elements: Vec<_> = program
            .elements
            .iter()
            .enumerate()
            .map(|(i, tree)| self.element(i, tree, program.has_syntax_errors))
            .collect();
        if !self.sink.has_errors() {
            lint::prune(&mut elements, &self.expanded, &self.graph);
            lint::warn(&elements, &metadata, &self.graph, self.sink);
        }
        self.note_defaults(program, params);
        self.warn_unused_headers();
        names::warn_unused(&self.names.leave_function(), self.sink);
        let name = program.name.map_or_else(String::new, |n| n.text.to_owned());
        Function { name, source: Arc::clone(&self.source), graph: Arc::clone(&self.graph), metadata, elements }
    }

    fn name_of_function(&mut self, program: &Program<'s>) {
        match program.name {
            Some(name) => names::check_name(name, "function", self.sink),
            None if program.has_syntax_errors => {}
            None => {
                let start = Span { start: 0, end: 0 };
                self.sink
                    .error(Code::Missing, start, "the function has no name", "`function NAME;` is missing")
                    .help("start the file with `function my_function;`");
            }
        }
    }

    fn text(&self, span: Span) -> &str {
        self.source.text.get(span.start..span.end).unwrap_or_default()
    }
}
