//! Rows.

use crate::diagnostic::{Code, did_you_mean, list_names};
use crate::model::{NextState, Row, Span};
use crate::syntax::ast::{self, Name, Next, States};

use super::Checker;
use super::constant::render_time;

impl<'s> Checker<'s, '_> {
    /// One row of element number `index`; `None` where its head is wrong, which was reported.
    pub(super) fn row(&mut self, tree: &ast::Row<'s>, index: usize, element: &ast::Element<'s>) -> Option<Row> {
        let states = self.row_states(tree, element);
        let mut conditions = Vec::new();
        let mut is_ok = true;
        for condition in &tree.conditions {
            is_ok &= self.condition(condition, false, &mut conditions).is_some();
        }
        let next = self.next(&tree.next, element);
        let effects = self.block(&tree.block, index);
        if !is_ok {
            return None;
        }
        Some(Row {
            span: tree.head,
            states: states?,
            conditions,
            next: next?,
            updates: effects.updates,
            actions: effects.actions,
        })
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
                        "there are no states here",
                    )
                    .also(element.name.span, "declared `stateless`")
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
                                    format!("state `{}` is twice in one row", name.text),
                                    "again",
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
        if self.names.is_damaged || self.names.states.is_empty() {
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
                .error(Code::WrongElement, *span, "a transition in a stateless element", "there are no states here")
                .also(element.name.span, "declared `stateless`")
                .help("remove it; to go on in another element end the block with `goto ELEMENT;`");
            return None;
        }
        let next = self.state(*state);
        let (idle_ns, hard_ns) = self.timers(timers)?;
        Some(NextState::To { state: next?, idle_ns, hard_ns })
    }

    /// The idle and the hard timeout.
    pub(super) fn timers(&mut self, timers: &[ast::Timer<'s>]) -> Option<(Option<u64>, Option<u64>)> {
        let (mut idle_ns, mut hard_ns) = (None, None);
        for timer in timers {
            let slot = if timer.word.text == "idle" { &mut idle_ns } else { &mut hard_ns };
            if slot.is_some() {
                self.sink
                    .error(Code::Duplicate, timer.word.span, format!("a second `{}` timer", timer.word.text), "again")
                    .help("a state has at most one `idle` and one `hard` timer");
                continue;
            }
            let time = self.time(&timer.value, "a timeout")?;
            *slot = Some(time);
            self.check_wrap(time, timer.value.span);
        }
        Some((idle_ns, hard_ns))
    }

    /// Reports a timeout at which a clock of the element could have wrapped half around.
    fn check_wrap(&mut self, timeout_ns: u64, span: Span) {
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
