// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents of a drawing: nodes, edges and lines of text, without coordinates.

use std::sync::Arc;

use crate::check::render_time;
use crate::diagnostic::Sink;
use crate::model::{Function, NextState, Span, Stateful, Successor};
use crate::syntax::ast::{self, ClauseKind, Statement};
use crate::syntax::parse;

use super::text::one_line;

/// From this number of states on, a row that they share is in the table, or is an edge from one group node.
const MANY_STATES: usize = 4;

/// Contents of one element.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) name: String,
    /// Key and registers, as declared.
    pub(super) facts: Vec<String>,
    /// `None` for a stateless element.
    pub(super) states: Option<Vec<String>>,
    /// Number of rows in the source.
    pub(super) rows: usize,
    /// The states, then the group nodes.
    pub(super) nodes: Vec<Node>,
    pub(super) arrows: Vec<Arrow>,
    /// Rows without an edge, and the default actions.
    pub(super) table: Vec<Entry>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) label: String,
    /// The node stands for several states.
    pub(super) is_group: bool,
    /// Rows that stay in the state (self-loops).
    pub(super) loops: Vec<Label>,
    /// Timers that lead back to the same state.
    pub(super) timers: Vec<String>,
}

/// An edge between two different nodes.
#[derive(Debug)]
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    /// A timer's edge, not one of rows.
    pub(super) is_timer: bool,
    pub(super) labels: Vec<Label>,
}

/// Conditions and actions of a row, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) conditions: Vec<String>,
    pub(super) actions: Vec<String>,
}

/// A line of the table.
#[derive(Debug)]
pub(super) struct Entry {
    /// States that it applies to; `when` or `always` in a stateless element.
    pub(super) subject: String,
    pub(super) label: Label,
    /// The actions if no row matches.
    pub(super) is_default: bool,
}

/// Contents of the elements of a function.
pub(super) fn of(function: &Function) -> Vec<Content> {
    let mut sink = Sink::new(Arc::clone(&function.source));
    let program = parse(&function.source.text, &mut sink);
    program.elements.iter().map(|tree| Reader { function, tree }.content()).collect()
}

struct Reader<'a> {
    function: &'a Function,
    tree: &'a ast::Element<'a>,
}

impl Reader<'_> {
    fn text(&self, span: Span) -> String {
        one_line(self.function.source.text.get(span.start..span.end).unwrap_or_default())
    }

    fn content(&self) -> Content {
        let mut content = Content {
            name: self.tree.name.text.to_owned(),
            facts: self.facts(),
            states: None,
            rows: self.tree.rows.len(),
            nodes: Vec::new(),
            arrows: Vec::new(),
            table: Vec::new(),
        };
        let element = self.function.elements.iter().find(|element| element.name == content.name);
        match element.and_then(|element| Some((element, element.stateful.as_ref()?))) {
            None => {
                for row in &self.tree.rows {
                    let subject = if row.conditions.is_empty() { "always" } else { "when" };
                    content.table.push(Entry {
                        subject: subject.to_owned(),
                        label: self.label(row, false),
                        is_default: false,
                    });
                }
            }
            Some((element, stateful)) => {
                content.states = Some(stateful.states.clone());
                content.nodes = stateful.states.iter().map(|state| Node::new(state.clone(), false)).collect();
                for tree in &self.tree.rows {
                    // Alternatives of a row differ only in their conditions.
                    let Some(i) = element.rows.iter().position(|row| row.span == tree.head) else { continue };
                    let row = &element.rows[i];
                    let is_else =
                        element.rows[..i].iter().any(|above| above.states.iter().any(|s| row.states.contains(s)));
                    content.add_row(stateful, &row.states, row.next, self.label(tree, is_else));
                }
                content.add_timers(stateful, element.rows.iter().map(|row| row.next));
            }
        }
        content.table.push(self.otherwise());
        content
    }

    /// `is_else` is true if an earlier row has one of its states.
    fn label(&self, row: &ast::Row<'_>, is_else: bool) -> Label {
        let mut conditions: Vec<String> = row.conditions.iter().map(|condition| self.text(condition.span)).collect();
        if conditions.is_empty() && is_else {
            conditions.push("else".to_owned());
        }
        Label { conditions, actions: self.actions(&row.block) }
    }

    fn actions(&self, block: &ast::Block<'_>) -> Vec<String> {
        let spans = block.statements.iter().map(|statement| match statement {
            Statement::Assign { span, .. }
            | Statement::Step { span, .. }
            | Statement::Terminal { span, .. }
            | Statement::Forget { span } => *span,
        });
        spans.map(|span| self.text(span)).collect()
    }

    fn otherwise(&self) -> Entry {
        let actions = match self.tree.otherwise.first() {
            Some(otherwise) => self.actions(&otherwise.block),
            None => vec!["drop".to_owned()],
        };
        Entry { subject: "otherwise".to_owned(), label: Label { conditions: Vec::new(), actions }, is_default: true }
    }

    /// Key and registers, as text.
    fn facts(&self) -> Vec<String> {
        let (mut key, mut registers, mut globals) = (None, Vec::new(), Vec::new());
        for clause in &self.tree.clauses {
            match &clause.kind {
                ClauseKind::Key(written) => key = Some(format!("key {}", self.text(written.span))),
                ClauseKind::Register(variable) => registers.push(variable.name.text),
                ClauseKind::Global(variable) => globals.push(variable.name.text),
                _ => {}
            }
        }
        let listed = |what: &str, names: Vec<&str>| (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")));
        key.into_iter().chain(listed("registers", registers)).chain(listed("globals", globals)).collect()
    }
}

impl Node {
    fn new(label: String, is_group: bool) -> Node {
        Node { label, is_group, loops: Vec::new(), timers: Vec::new() }
    }
}

impl Content {
    fn add_row(&mut self, stateful: &Stateful, states: &[u16], next: NextState, label: Label) {
        let all = stateful.states.len();
        let is_shared = states.len() >= MANY_STATES || states.len() == all && all > 1;
        let subject = || match states.len() == all {
            true => "any state".to_owned(),
            false => states
                .iter()
                .filter_map(|&s| stateful.states.get(usize::from(s)).cloned())
                .collect::<Vec<_>>()
                .join(", "),
        };
        match next {
            NextState::Stay if is_shared => self.table.push(Entry { subject: subject(), label, is_default: false }),
            NextState::Stay => {
                for &state in states {
                    self.nodes[usize::from(state)].loops.push(label.clone());
                }
            }
            NextState::To { state, .. } if is_shared => {
                let subject = subject();
                let group =
                    self.nodes.iter().position(|node| node.is_group && node.label == subject).unwrap_or_else(|| {
                        self.nodes.push(Node::new(subject, true));
                        self.nodes.len() - 1
                    });
                self.arrow(group, usize::from(state), false, label);
            }
            NextState::To { state, .. } => {
                for &from in states {
                    if from == state {
                        self.nodes[usize::from(state)].loops.push(label.clone());
                    } else {
                        self.arrow(usize::from(from), usize::from(state), false, label.clone());
                    }
                }
            }
        }
    }

    fn arrow(&mut self, from: usize, to: usize, is_timer: bool, label: Label) {
        let same = |arrow: &&mut Arrow| (arrow.from, arrow.to, arrow.is_timer) == (from, to, is_timer);
        match self.arrows.iter_mut().find(same) {
            Some(arrow) if arrow.labels.contains(&label) => {}
            Some(arrow) => arrow.labels.push(label),
            None => self.arrows.push(Arrow { from, to, is_timer, labels: vec![label] }),
        }
    }

    /// Adds the timers of each state that the rows and successors entering it set.
    fn add_timers(&mut self, stateful: &Stateful, rows: impl Iterator<Item = NextState>) {
        let by_rows = rows.filter_map(|next| match next {
            NextState::To { state, idle_ns, hard_ns } => Some((state, idle_ns, hard_ns)),
            NextState::Stay => None,
        });
        let by_successors = stateful.successors.iter().flatten();
        let by_successors = by_successors.map(|Successor { state, idle_ns, hard_ns }| (*state, *idle_ns, *hard_ns));
        let mut timers: Vec<(u16, String)> = Vec::new();
        for (state, idle_ns, hard_ns) in by_rows.chain(by_successors) {
            for (word, timeout) in [("idle", idle_ns), ("hard", hard_ns)] {
                let Some(timeout_ns) = timeout else { continue };
                let timer = (state, format!("{word} {}", render_time(timeout_ns)));
                if !timers.contains(&timer) {
                    timers.push(timer);
                }
            }
        }
        timers.sort_by_key(|(state, _)| *state);
        for (state, words) in timers {
            let target = stateful.successor(state).map_or(0, |successor| successor.state);
            if target == state {
                self.nodes[usize::from(state)].timers.push(words);
            } else {
                let label = Label { conditions: vec![words], actions: Vec::new() };
                self.arrow(state.into(), target.into(), true, label);
            }
        }
    }
}
