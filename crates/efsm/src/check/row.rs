// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows: states, conditions, next state and timers.

use crate::diagnostic::{Code, did_you_mean, list_names};
use crate::model::{Destination, Expr, NewValue, NextState, Row, Span, Update, Wide, Width};
use crate::syntax::ast::{self, Name, Next, Statement, States};

use super::Checker;
use super::actions::Effects;
use super::constant::render_time;

impl<'s> Checker<'s, '_> {
    /// Lowers a row of the element with this index to one row of the model for each alternative of its conditions.
    /// Empty if an error was reported.
    pub(super) fn row(&mut self, tree: &ast::Row<'s>, index: usize, element: &ast::Element<'s>) -> Vec<Row> {
        self.checked_row(tree, index, element).unwrap_or_default()
    }

    fn checked_row(&mut self, tree: &ast::Row<'s>, index: usize, element: &ast::Element<'s>) -> Option<Vec<Row>> {
        let states = self.row_states(tree, element);
        let alternatives = self.disjunctive_normal_form(tree);
        let next = self.next(&tree.next, element);
        let mut effects = self.block(&tree.block, index);
        let next = self.lower_forget(tree, next, element, &mut effects);
        let (alternatives, states, next) = (alternatives?, states?, next?);
        let row = |conditions| Row {
            span: tree.head,
            states: states.clone(),
            conditions,
            next,
            updates: effects.updates.clone(),
            actions: effects.actions.clone(),
        };
        Some(alternatives.into_iter().map(row).collect())
    }

    /// Next state of a row. `forget` leads to the initial state without timers, and adds updates that reset all
    /// registers to their initial values; other rows keep `next`.
    fn lower_forget(
        &mut self,
        tree: &ast::Row<'s>,
        next: Option<NextState>,
        element: &ast::Element<'s>,
        effects: &mut Effects,
    ) -> Option<NextState> {
        let mut places = tree.block.statements.iter().filter_map(|statement| match statement {
            Statement::Forget { span } => Some(*span),
            _ => None,
        });
        let Some(span) = places.next() else { return next };
        if let Some(second) = places.next() {
            self.sink
                .error(Code::Duplicate, second, "a second `forget`", "repeated here")
                .help("write it once per row");
            return None;
        }
        if !element.is_stateful {
            self.sink
                .error(Code::WrongElement, span, "`forget` in a stateless element", "no context in a stateless element")
                .secondary_label(element.name.span, "declared `stateless`")
                .help("remove it");
            return None;
        }
        let head = match &tree.next {
            Next::Absent => None,
            Next::Stay => Some(tree.head),
            Next::To { span, .. } => Some(*span),
        };
        if let Some(head) = head {
            self.sink
                .error(
                    Code::WrittenTwice,
                    span,
                    "`forget` in a row that names the next state",
                    "leads to the initial state",
                )
                .secondary_label(head, "sets the next state")
                .help("remove `stay` or `-> STATE`: `forget` removes the context, which is then in the initial state");
            return None;
        }
        let written = effects.updates.iter().find(|update| matches!(update.destination, Destination::Register(_)));
        if let Some(update) = written {
            self.sink
                .error(Code::WrittenTwice, update.span, "a register is written in a row with `forget`", "written here")
                .secondary_label(span, "sets all registers to their initial values")
                .help("remove one of the two; global registers may be written");
            return None;
        }
        for (i, initial) in self.names.initial.iter().enumerate() {
            let value = if initial.0.is_wide() {
                NewValue::Wide(Wide::Constant(initial.1))
            } else {
                let width = if initial.0.width_bits > 32 { Width::W64 } else { Width::W32 };
                NewValue::Number { value: Expr::Constant(initial.1 as u64), width }
            };
            effects.updates.push(Update { destination: Destination::Register(i as u16), value, span });
        }
        next.map(|_| NextState::To { state: 0, idle_ns: None, hard_ns: None })
    }

    fn row_states(&mut self, tree: &ast::Row<'s>, element: &ast::Element<'s>) -> Option<Vec<u16>> {
        let word = Span { start: tree.head.start, end: tree.head.start + 2 };
        match (&tree.states, element.is_stateful) {
            (States::Absent, false) => Some(Vec::new()),
            (States::Absent, true) => {
                let first = self.text(tree.head).split_whitespace().next().unwrap_or_default().to_owned();
                let word = Span { start: tree.head.start, end: tree.head.start + first.len() };
                let instead = if first == "always" { "on any" } else { "on any when" };
                let state = self.first_state();
                self.sink
                    .error(
                        Code::WrongElement,
                        word,
                        format!("a row with `{first}` in a stateful element"),
                        "does not name states",
                    )
                    .help(format!("write `{instead}`, or name states, as in `on {state}`"));
                None
            }
            (States::Any | States::Listed(_), false) => {
                self.sink
                    .error(
                        Code::WrongElement,
                        word,
                        "a row with `on` in a stateless element",
                        "no states in a stateless element",
                    )
                    .secondary_label(element.name.span, "declared `stateless`")
                    .help("write `when CONDITION { ... }` or `always { ... }`");
                None
            }
            (States::Any, true) => Some((0..self.names.states.len() as u16).collect()),
            (States::Listed(names), true) => {
                let mut states = Vec::new();
                let mut is_ok = true;
                for name in names {
                    match self.state(*name) {
                        Some(state) if states.contains(&state) => {
                            self.sink
                                .error(
                                    Code::Duplicate,
                                    name.span,
                                    format!("state `{}` is repeated in the row", name.text),
                                    "repeated here",
                                )
                                .help("name each state once");
                            is_ok = false;
                        }
                        Some(state) => states.push(state),
                        None => is_ok = false,
                    }
                }
                states.sort_unstable();
                is_ok.then_some(states)
            }
        }
    }

    fn first_state(&self) -> &'s str {
        self.names.states.first().map_or("STATE", |s| s.text)
    }

    pub(super) fn state(&mut self, name: Name<'s>) -> Option<u16> {
        let found = self.names.states.iter().position(|s| s.text == name.text);
        if let Some(found) = found {
            return u16::try_from(found).ok();
        }
        if self.names.has_syntax_errors || self.names.states.is_empty() {
            return None; // the missing list of states was reported
        }
        let names: Vec<&str> = self.names.states.iter().map(|s| s.text).collect();
        let help = match did_you_mean(name.text, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the element has the states {}", list_names(names, 16)),
        };
        self.sink
            .error(Code::UnknownState, name.span, format!("there is no state `{}`", name.text), "unknown state")
            .help(help);
        None
    }

    fn next(&mut self, tree: &Next<'s>, element: &ast::Element<'s>) -> Option<NextState> {
        let (state, span, timers) = match tree {
            Next::Absent | Next::Stay => return Some(NextState::Stay),
            Next::To { state, span, timers } => (state, span, timers),
        };
        if !element.is_stateful {
            self.sink
                .error(
                    Code::WrongElement,
                    *span,
                    "a transition in a stateless element",
                    "no states in a stateless element",
                )
                .secondary_label(element.name.span, "declared `stateless`")
                .help("remove it; to continue in another element end the block with `goto ELEMENT;`");
            return None;
        }
        let next = self.state(*state);
        let (idle_ns, hard_ns) = self.timers(timers)?;
        Some(NextState::To { state: next?, idle_ns, hard_ns })
    }

    /// Idle and hard timeout, in ns.
    pub(super) fn timers(&mut self, timers: &[ast::Timer<'s>]) -> Option<(Option<u64>, Option<u64>)> {
        let (mut idle_ns, mut hard_ns) = (None, None);
        for timer in timers {
            let slot = if timer.word.text == "idle" { &mut idle_ns } else { &mut hard_ns };
            if slot.is_some() {
                self.sink
                    .error(
                        Code::Duplicate,
                        timer.word.span,
                        format!("a second `{}` timer", timer.word.text),
                        "repeated here",
                    )
                    .help("a state has at most one `idle` and one `hard` timer");
                continue;
            }
            let time = self.time(&timer.value, "a timeout")?;
            *slot = Some(time);
            self.check_timeout_below_half_wrap(time, timer.value.span);
        }
        Some((idle_ns, hard_ns))
    }

    /// Reports a timeout of at least half of a clock's wrap-around period.
    fn check_timeout_below_half_wrap(&mut self, timeout_ns: u64, span: Span) {
        let variables = self.names.registers.iter().chain(&self.names.globals);
        let limit = variables
            .filter_map(|v| {
                let half = 1_u128 << (v.ty.width_bits - 1);
                v.unit_ns.map(|unit_ns| half * u128::from(unit_ns))
            })
            .min();
        if let Some(limit) = limit
            && u128::from(timeout_ns) >= limit
        {
            let limit = u64::try_from(limit).unwrap_or(u64::MAX);
            self.sink
                .error(
                    Code::BadTime,
                    span,
                    format!(
                        "the timeout of {} is not below half of the time after which a register's clock wraps",
                        render_time(timeout_ns)
                    ),
                    format!("must be below {}", render_time(limit)),
                )
                .help("declare the register with a wider type or a coarser `time(unit)`, or shorten the timeout");
        }
    }
}
