// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Elements: names, clauses, rows and `otherwise`.

use std::collections::BTreeMap;

use flowloom_isa::MAX_ENTRIES;

use crate::diagnostic::Code;
use crate::model::{
    Actions, Element, NewValue, Otherwise, Policy, Span, Stateful, StepKind, Terminal, Variable, Wide, WriteTarget,
};
use crate::syntax::ast::{self, ClauseKind, Name, Program};

use super::Checker;
use super::names::{Symbol, check_name, check_register_name, exceeds_index_limit, warn_unused};

/// Maximum length of an element's name, in bytes. The element names a map, and the kernel keeps 15 bytes of a map's
/// name.
const MAX_NAME_BYTES: usize = 15;
const DEFAULT_SIZE: u32 = 65536;
const DEFAULT_SWEEP_NS: u64 = 1_000_000_000;

impl<'s> Checker<'s, '_> {
    /// Declares the names of all elements, and records which element has which register.
    pub(super) fn element_names(&mut self, program: &Program<'s>) {
        let mut first: BTreeMap<&str, Span> = BTreeMap::new();
        for element in &program.elements {
            let name = element.name;
            if exceeds_index_limit(self.elements.len(), "elements", name.span, self.sink) {
                break;
            }
            self.elements.push(name);
            if name.text.is_empty() {
                continue;
            }
            check_name(name, "element", self.sink);
            if crate::layout::is_instrument(name.text) {
                self.sink
                    .error(
                        Code::ReservedName,
                        name.span,
                        format!("`{}` cannot name an element: names `fl_...` are reserved", name.text),
                        "reserved",
                    )
                    .help("an element also names the table of its contexts; choose another name");
            }
            if name.text.len() > MAX_NAME_BYTES {
                self.sink
                    .error(
                        Code::BadName,
                        name.span,
                        format!(
                            "the name of the element has {} bytes, at most {MAX_NAME_BYTES} are allowed",
                            name.text.len()
                        ),
                        "too long",
                    )
                    .help("it also names the table of the contexts, and the kernel keeps 15 bytes of such a name");
            }
            if let Some(place) = first.insert(name.text, name.span) {
                self.sink
                    .error(Code::Duplicate, name.span, format!("duplicate element `{}`", name.text), "this one")
                    .secondary_label(place, "and this one")
                    .help("give one of them another name");
            }
            for clause in &element.clauses {
                if let ClauseKind::Register(v) | ClauseKind::Global(v) = &clause.kind {
                    self.names.registers_elsewhere.push((v.name.text, name.text));
                }
            }
        }
        if program.elements.is_empty() && !program.has_syntax_errors {
            let place = program.name.map_or_else(Span::default, |n| n.span);
            self.sink
                .error(Code::Missing, place, "the function has no element", "no element")
                .help("add `stateless name { always { pass; } }` or a `stateful` element");
        }
    }

    pub(super) fn element(&mut self, index: usize, tree: &ast::Element<'s>, has_syntax_errors: bool) -> Element {
        self.names.has_syntax_errors = has_syntax_errors || tree.has_syntax_errors;
        self.names.is_stateful = tree.is_stateful;
        self.names.has_key = false;
        let stateful = if tree.is_stateful {
            Some(self.stateful(tree))
        } else {
            self.reject_stateful_clauses(tree);
            None
        };
        let rows: Vec<_> = tree.rows.iter().flat_map(|row| self.row(row, index, tree)).collect();
        if rows.is_empty()
            && tree.rows.is_empty()
            && tree.otherwise.is_empty()
            && !tree.has_row_errors
            && !tree.has_syntax_errors
        {
            self.sink
                .error(
                    Code::Missing,
                    tree.name.span,
                    format!("element `{}` has no rows", tree.name.text),
                    "drops everything",
                )
                .help(if tree.is_stateful {
                    "add a row, as `on any { pass; }`"
                } else {
                    "add a row, as `always { pass; }`"
                });
        }
        let otherwise = self.otherwise(tree, index);
        let names = self.names.leave_element();
        if !tree.has_row_errors {
            warn_unused(&names, self.sink);
        }
        self.names.has_syntax_errors = has_syntax_errors;
        Element { name: tree.name.text.to_owned(), span: tree.name.span, stateful, rows, otherwise }
    }

    fn reject_stateful_clauses(&mut self, tree: &ast::Element<'s>) {
        for clause in &tree.clauses {
            if let ClauseKind::Register(v) | ClauseKind::Global(v) = &clause.kind {
                // Declared as broken and used, so that its uses are not reported again.
                self.names.declare_local(v.name, "register", Symbol::Broken, self.sink);
                self.names.look_up(v.name.text);
            }
            self.sink
                .error(
                    Code::WrongElement,
                    clause.word.span,
                    format!("`{}` in a stateless element", clause.word.text),
                    "only for stateful elements",
                )
                .secondary_label(tree.name.span, "declared `stateless`")
                .help("declare the element as `stateful`");
        }
    }

    fn stateful(&mut self, tree: &ast::Element<'s>) -> Stateful {
        let mut stateful = Stateful {
            key: None,
            size: DEFAULT_SIZE,
            sweep_ns: DEFAULT_SWEEP_NS,
            policy: Policy::Reject,
            policy_span: tree.name.span,
            states: Vec::new(),
            successors: Vec::new(),
            registers: Vec::new(),
            globals: Vec::new(),
            preloaded: Vec::new(),
        };
        let mut seen: BTreeMap<&str, Name<'s>> = BTreeMap::new();
        let (mut policy, mut expires, mut preloads) = (None, Vec::new(), Vec::new());
        for clause in &tree.clauses {
            let repeats = matches!(
                clause.kind,
                ClauseKind::Register(_) | ClauseKind::Global(_) | ClauseKind::Expire(_) | ClauseKind::Preload(_)
            );
            if !repeats && let Some(first) = seen.insert(clause.word.text, clause.word) {
                self.sink
                    .error(
                        Code::Duplicate,
                        clause.word.span,
                        format!("a second `{}`", clause.word.text),
                        "repeated here",
                    )
                    .secondary_label(first.span, "first here")
                    .help("write each clause once");
                continue;
            }
            match &clause.kind {
                ClauseKind::Key(key) => {
                    self.names.has_key = !key.fields.is_empty();
                    stateful.key = self.key(key);
                }
                ClauseKind::Size(size) => stateful.size = self.size(size).unwrap_or(DEFAULT_SIZE),
                ClauseKind::Sweep(sweep) => {
                    stateful.sweep_ns = self.time(sweep, "the sweep period").unwrap_or(DEFAULT_SWEEP_NS);
                }
                ClauseKind::Full(tree) => {
                    policy = Some(*tree);
                    stateful.policy_span = clause.word.span;
                }
                ClauseKind::Expire(tree) => expires.push(tree),
                ClauseKind::Preload(tree) => preloads.push(tree),
                ClauseKind::States(states) => self.states(states),
                ClauseKind::Register(v) => {
                    let symbol = Symbol::Register(stateful.registers.len() as u16);
                    self.register(v, "register", symbol, &mut stateful.registers);
                }
                ClauseKind::Global(v) => {
                    let symbol = Symbol::Global(stateful.globals.len() as u16);
                    self.register(v, "global register", symbol, &mut stateful.globals);
                }
            }
        }
        if !self.names.has_syntax_errors {
            self.require(
                tree,
                &seen,
                "key",
                "a key",
                "as `key 5-tuple;`, or `key none;` for one context for all packets",
            );
            self.require(
                tree,
                &seen,
                "states",
                "the states",
                "as `states idle_flow, busy;`; the first is the initial one",
            );
        }
        stateful.states = self.names.states.iter().map(|s| s.text.to_owned()).collect();
        stateful.policy = policy.and_then(|policy| self.policy(policy)).unwrap_or(Policy::Reject);
        stateful.successors = self.successors(&expires);
        stateful.preloaded = self.preloads(&preloads, stateful.key.as_ref(), &stateful);
        self.warn_without_key(tree, &seen);
        stateful
    }

    fn require(&mut self, tree: &ast::Element<'s>, seen: &BTreeMap<&str, Name<'s>>, word: &str, what: &str, how: &str) {
        if !seen.contains_key(word) {
            self.sink
                .error(
                    Code::Missing,
                    tree.name.span,
                    format!("stateful element `{}` does not declare {what}", tree.name.text),
                    format!("`{word}` is missing"),
                )
                .help(format!("add it {how}"));
        }
    }

    fn warn_without_key(&mut self, tree: &ast::Element<'s>, seen: &BTreeMap<&str, Name<'s>>) {
        if self.names.has_key || !seen.contains_key("key") {
            return;
        }
        for word in ["size", "full"].into_iter().filter_map(|word| seen.get(word)) {
            self.sink
                .warning(
                    Code::Unused,
                    word.span,
                    format!("`{}` of `{}`, which has one context", word.text, tree.name.text),
                    "has no effect",
                )
                .help(format!("an element with `key none` always has one context; remove `{}`", word.text));
        }
    }

    fn size(&mut self, tree: &ast::Expr<'s>) -> Option<u32> {
        let constant = self.constant(tree, "the size")?;
        let size = constant.number(1).and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=MAX_ENTRIES).contains(n));
        if size.is_none() {
            self.sink
                .error(
                    Code::OutOfRange,
                    tree.span,
                    format!("a table of {} contexts", constant.render()),
                    "out of range",
                )
                .help(format!("the size is the number of contexts, from 1 to {MAX_ENTRIES}, the limit of a map"));
        }
        size
    }

    fn states(&mut self, states: &[Name<'s>]) {
        for state in states {
            if let Some(first) = self.names.states.iter().find(|s| s.text == state.text) {
                self.sink
                    .error(Code::Duplicate, state.span, format!("duplicate state `{}`", state.text), "repeated here")
                    .secondary_label(first.span, "first here")
                    .help("give one of them another name");
                continue;
            }
            check_name(*state, "state", self.sink);
            if exceeds_index_limit(self.names.states.len(), "states", state.span, self.sink) {
                return;
            }
            self.names.states.push(*state);
        }
    }

    fn register(&mut self, tree: &ast::Variable<'s>, what: &'static str, symbol: Symbol, list: &mut Vec<Variable>) {
        if exceeds_index_limit(list.len(), "registers", tree.name.span, self.sink) {
            return;
        }
        let (variable, info) = self.variable(tree);
        if matches!(symbol, Symbol::Register(_)) {
            check_register_name(tree.name, self.sink);
        }
        if self.names.declare_local(tree.name, what, symbol, self.sink) {
            if matches!(symbol, Symbol::Register(_)) {
                self.names.initial.push((variable.ty, variable.initial));
            }
            list.push(variable);
            match symbol {
                Symbol::Global(_) => self.names.globals.push(info),
                _ => self.names.registers.push(info),
            }
        }
    }

    fn otherwise(&mut self, tree: &ast::Element<'s>, index: usize) -> Otherwise {
        let Some(first) = tree.otherwise.first() else {
            let actions = Actions { writes: Vec::new(), steps: Vec::new(), terminal: Terminal::Drop };
            return Otherwise { span: tree.name.span, actions };
        };
        for other in &tree.otherwise[1..] {
            self.sink
                .error(Code::Duplicate, other.word.span, "a second `otherwise`", "repeated here")
                .secondary_label(first.word.span, "first here")
                .help("an element has one `otherwise`, as its last part");
        }
        let effects = self.block(&first.block, index);
        for statement in &first.block.statements {
            if let ast::Statement::Forget { span } = statement {
                self.sink
                    .error(Code::BadOtherwise, *span, "`otherwise` cannot forget a context", "not possible here")
                    .help("`otherwise` changes no context; add a last row `on any { forget; ... }`");
            }
        }
        let help = "`otherwise` also handles packets without a key field, so it writes only constants to \
                    metadata; add a last row for the rest";
        for update in &effects.updates {
            self.sink
                .error(Code::BadOtherwise, update.span, "`otherwise` cannot write registers", "a register")
                .help(help);
        }
        for write in &effects.actions.writes {
            let found = match (&write.target, &write.value) {
                (WriteTarget::Field(_), _) => "`otherwise` cannot write packet fields",
                (_, NewValue::Number { value, .. }) if is_constant(value) => continue,
                (_, NewValue::Wide(Wide::Constant(_))) => continue,
                _ => "`otherwise` can write constants only",
            };
            self.sink.error(Code::BadOtherwise, write.span, found, "not possible here").help(help);
        }
        for step in &effects.actions.steps {
            self.sink
                .error(
                    Code::BadOtherwise,
                    step.span,
                    match step.kind {
                        StepKind::Log(_) => "`otherwise` cannot log",
                        _ => "`otherwise` cannot change the frame or send others",
                    },
                    "not possible here",
                )
                .help(help);
        }
        if let Terminal::Forward(port) = &effects.actions.terminal
            && !is_constant(port)
        {
            self.sink
                .error(
                    Code::BadOtherwise,
                    first.block.span,
                    "`otherwise` can forward to a constant port only",
                    "computed port",
                )
                .help(help);
        }
        Otherwise { span: first.word.span, actions: effects.actions }
    }
}

fn is_constant(expr: &crate::model::Expr) -> bool {
    matches!(expr, crate::model::Expr::Constant(_))
}
