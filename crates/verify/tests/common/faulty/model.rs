// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mutations of a function.

use flowloom_efsm::model::{
    BinaryOp, Condition, Destination, Element, Expr, Function, NewValue, NextState, Relation, Row, Stateful, Terminal,
    WriteTarget,
};

/// A fault in the function that an engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModelFault {
    /// A timer expires 1 ns late.
    TimerLate,
    /// A timer expires 1 ns early.
    TimerEarly,
    /// An idle timer is not re-armed.
    IdleTakenForHard,
    /// A hard timer is re-armed.
    HardTakenForIdle,
    /// A timer is not set.
    TimerIgnored,
    /// A transition keeps the old deadlines.
    DeadlineKept,
    /// Two adjacent rows have their priorities swapped.
    RowsSwapped,
    /// A row is missing.
    RowDropped,
    /// A row is missing in one of its states.
    StateForgotten,
    /// A comparison is off by one: `<` for `<=`, for example.
    RelationOffByOne,
    /// A signed comparison is unsigned, or vice versa.
    SignMistaken,
    /// A condition is missing.
    ConditionDropped,
    /// A mask is one bit too wide.
    MaskWidened,
    /// A range is too wide by one value.
    RangeWidened,
    /// An update reads the value that another update of the row has just written.
    UpdateReadsNewValue,
    /// An update is missing.
    UpdateDropped,
    /// An operator is replaced by another one.
    WrongOperator,
    /// A constant is one too large.
    WrongConstant,
    /// A row leads to another state.
    WrongNextState,
    /// The last field of a key is missing.
    KeyFieldDropped,
    /// A `biflow` key distinguishes the directions.
    BiflowIgnored,
    /// A register has another initial value.
    WrongInitialValue,
    /// A table has capacity for one more context.
    TableTooLarge,
    /// A table has capacity for one context less.
    TableTooSmall,
    /// A header write is missing.
    WriteDropped,
    /// A metadata write is missing.
    MetadataLost,
    /// A row has another terminal action.
    WrongAction,
    /// `otherwise` has another terminal action.
    WrongOtherwise,
}

/// Enumerates the sites of a fault and selects one of them.
struct Site {
    wanted: usize,
    seen: usize,
}

impl Site {
    fn is_here(&mut self) -> bool {
        self.seen += 1;
        self.seen - 1 == self.wanted
    }
}

impl ModelFault {
    /// All faults.
    pub const ALL: [ModelFault; 28] = [
        ModelFault::TimerLate,
        ModelFault::TimerEarly,
        ModelFault::IdleTakenForHard,
        ModelFault::HardTakenForIdle,
        ModelFault::TimerIgnored,
        ModelFault::DeadlineKept,
        ModelFault::RowsSwapped,
        ModelFault::RowDropped,
        ModelFault::StateForgotten,
        ModelFault::RelationOffByOne,
        ModelFault::SignMistaken,
        ModelFault::ConditionDropped,
        ModelFault::MaskWidened,
        ModelFault::RangeWidened,
        ModelFault::UpdateReadsNewValue,
        ModelFault::UpdateDropped,
        ModelFault::WrongOperator,
        ModelFault::WrongConstant,
        ModelFault::WrongNextState,
        ModelFault::KeyFieldDropped,
        ModelFault::BiflowIgnored,
        ModelFault::WrongInitialValue,
        ModelFault::TableTooLarge,
        ModelFault::TableTooSmall,
        ModelFault::WriteDropped,
        ModelFault::MetadataLost,
        ModelFault::WrongAction,
        ModelFault::WrongOtherwise,
    ];

    /// Number of sites of the fault in `function`.
    pub fn sites(self, function: &Function) -> usize {
        let mut site = Site { wanted: usize::MAX, seen: 0 };
        self.inject(&mut function.clone(), &mut site);
        site.seen
    }

    /// `function` with the fault at site `site`; `None` where there is no such site.
    pub fn apply(self, function: &Function, site: usize) -> Option<Function> {
        let mut faulty = function.clone();
        let mut site = Site { wanted: site, seen: 0 };
        self.inject(&mut faulty, &mut site);
        (site.seen > site.wanted).then_some(faulty)
    }

    fn inject(self, function: &mut Function, site: &mut Site) {
        for element in &mut function.elements {
            match self {
                ModelFault::RowsSwapped => {
                    for i in 1..element.rows.len() {
                        if site.is_here() {
                            element.rows.swap(i - 1, i);
                        }
                    }
                }
                ModelFault::RowDropped => {
                    for i in 0..element.rows.len() {
                        if site.is_here() {
                            element.rows.remove(i);
                            break;
                        }
                    }
                }
                ModelFault::KeyFieldDropped
                | ModelFault::BiflowIgnored
                | ModelFault::WrongInitialValue
                | ModelFault::TableTooLarge
                | ModelFault::TableTooSmall => {
                    if let Some(stateful) = &mut element.stateful {
                        self.inject_stateful(stateful, site);
                    }
                }
                ModelFault::WrongOtherwise => {
                    if site.is_here() {
                        element.otherwise.actions.terminal = another(&element.otherwise.actions.terminal);
                    }
                }
                _ => {
                    let states = element.stateful.as_ref().map_or(0, |s| s.states.len() as u16);
                    let Element { rows, stateful, .. } = element;
                    for row in rows {
                        self.inject_row(row, states, stateful.as_ref(), site);
                    }
                }
            }
        }
    }

    fn inject_stateful(self, stateful: &mut Stateful, site: &mut Site) {
        match self {
            ModelFault::KeyFieldDropped => {
                if let Some(key) = &mut stateful.key
                    && key.parts.len() > 1
                    && !key.biflow
                    && site.is_here()
                {
                    key.parts.pop();
                }
            }
            ModelFault::BiflowIgnored => {
                if let Some(key) = &mut stateful.key
                    && key.biflow
                    && site.is_here()
                {
                    key.biflow = false;
                }
            }
            ModelFault::WrongInitialValue => {
                for register in stateful.registers.iter_mut().chain(&mut stateful.globals) {
                    if site.is_here() {
                        register.initial ^= 1;
                    }
                }
            }
            ModelFault::TableTooLarge if stateful.key.is_some() && site.is_here() => stateful.size += 1,
            ModelFault::TableTooSmall if stateful.key.is_some() && stateful.size > 1 && site.is_here() => {
                stateful.size -= 1;
            }
            _ => {}
        }
    }

    fn inject_row(self, row: &mut Row, states: u16, stateful: Option<&Stateful>, site: &mut Site) {
        match self {
            ModelFault::TimerLate
            | ModelFault::TimerEarly
            | ModelFault::IdleTakenForHard
            | ModelFault::HardTakenForIdle
            | ModelFault::TimerIgnored
            | ModelFault::DeadlineKept
            | ModelFault::WrongNextState => self.inject_next(&mut row.next, states, site),
            ModelFault::StateForgotten if row.states.len() > 1 && site.is_here() => drop(row.states.pop()),
            ModelFault::ConditionDropped => {
                for i in 0..row.conditions.len() {
                    if site.is_here() {
                        row.conditions.remove(i);
                        break;
                    }
                }
            }
            ModelFault::RelationOffByOne
            | ModelFault::SignMistaken
            | ModelFault::MaskWidened
            | ModelFault::RangeWidened => {
                for condition in &mut row.conditions {
                    self.inject_condition(condition, site);
                }
            }
            ModelFault::UpdateReadsNewValue => inject_new_value(row, site),
            ModelFault::UpdateDropped => {
                for i in 0..row.updates.len() {
                    if site.is_here() {
                        row.updates.remove(i);
                        break;
                    }
                }
            }
            ModelFault::WrongOperator | ModelFault::WrongConstant => {
                let updates = row.updates.iter_mut().filter_map(|u| match &mut u.value {
                    NewValue::Number { value, .. } => Some(value),
                    NewValue::Wide(_) => None,
                });
                let conditions = row.conditions.iter_mut().flat_map(|c| match c {
                    Condition::Compare { left, right, .. } | Condition::Serial { left, right, .. } => vec![left, right],
                    _ => Vec::new(),
                });
                for expr in updates.chain(conditions) {
                    self.inject_expr(expr, site);
                }
            }
            ModelFault::WriteDropped | ModelFault::MetadataLost => {
                for i in 0..row.actions.writes.len() {
                    let is_metadata = matches!(row.actions.writes[i].target, WriteTarget::Metadata(_));
                    if is_metadata == (self == ModelFault::MetadataLost) && site.is_here() {
                        row.actions.writes.remove(i);
                        break;
                    }
                }
            }
            ModelFault::WrongAction if site.is_here() => row.actions.terminal = another(&row.actions.terminal),
            _ => {}
        }
        debug_assert!(stateful.is_some() || row.states.is_empty(), "a stateless row has no states");
    }

    fn inject_next(self, next: &mut NextState, states: u16, site: &mut Site) {
        let NextState::To { state, idle_ns, hard_ns } = next else { return };
        match self {
            ModelFault::TimerLate => {
                for timer in [idle_ns, hard_ns].into_iter().flatten() {
                    if site.is_here() {
                        *timer += 1;
                    }
                }
            }
            ModelFault::TimerEarly => {
                for timer in [idle_ns, hard_ns].into_iter().flatten() {
                    if site.is_here() {
                        *timer -= 1;
                    }
                }
            }
            ModelFault::IdleTakenForHard if idle_ns.is_some() && hard_ns.is_none() && site.is_here() => {
                *hard_ns = idle_ns.take();
            }
            ModelFault::HardTakenForIdle if hard_ns.is_some() && idle_ns.is_none() && site.is_here() => {
                *idle_ns = hard_ns.take();
            }
            ModelFault::TimerIgnored if idle_ns.is_some() && site.is_here() => *idle_ns = None,
            ModelFault::TimerIgnored if hard_ns.is_some() && site.is_here() => *hard_ns = None,
            ModelFault::DeadlineKept if site.is_here() => *next = NextState::Stay,
            ModelFault::WrongNextState if states > 1 && site.is_here() => *state = (*state + 1) % states,
            _ => {}
        }
    }

    fn inject_condition(self, condition: &mut Condition, site: &mut Site) {
        match (self, condition) {
            (ModelFault::RelationOffByOne, Condition::Compare { relation, .. }) => {
                let off = match relation {
                    Relation::Less => Relation::LessEqual,
                    Relation::LessEqual => Relation::Less,
                    Relation::Greater => Relation::GreaterEqual,
                    Relation::GreaterEqual => Relation::Greater,
                    Relation::Equal | Relation::NotEqual => return,
                };
                if site.is_here() {
                    *relation = off;
                }
            }
            (ModelFault::SignMistaken, Condition::Compare { relation, signed, .. })
                if !matches!(relation, Relation::Equal | Relation::NotEqual) && site.is_here() =>
            {
                *signed = !*signed;
            }
            (ModelFault::MaskWidened, Condition::Masked { mask, value, .. }) if *mask != 0 && site.is_here() => {
                let lowest = *mask & mask.wrapping_neg();
                *mask ^= lowest;
                *value &= *mask;
            }
            (ModelFault::RangeWidened, Condition::Range { low, high, .. }) => {
                if site.is_here() {
                    *high = high.saturating_add(1);
                }
                if *low > 0 && site.is_here() {
                    *low -= 1;
                }
            }
            _ => {}
        }
    }

    fn inject_expr(self, expr: &mut Expr, site: &mut Site) {
        match expr {
            Expr::Constant(c) if self == ModelFault::WrongConstant && site.is_here() => {
                *c = c.wrapping_add(1);
            }
            Expr::Not(inner) => self.inject_expr(inner, site),
            Expr::Binary(op, left, right) => {
                if self == ModelFault::WrongOperator && site.is_here() {
                    *op = match op {
                        BinaryOp::Add => BinaryOp::Or,
                        BinaryOp::Sub => BinaryOp::Add,
                        BinaryOp::And => BinaryOp::Or,
                        BinaryOp::Or => BinaryOp::Xor,
                        BinaryOp::Xor => BinaryOp::Or,
                        BinaryOp::ShiftLeft => BinaryOp::ShiftRight,
                        BinaryOp::ShiftRight => BinaryOp::ShiftLeft,
                    };
                }
                self.inject_expr(left, site);
                self.inject_expr(right, site);
            }
            Expr::RotateRight { left, right, .. }
            | Expr::MinMax { left, right, .. }
            | Expr::Ewma { average: left, sample: right, .. } => {
                self.inject_expr(left, site);
                self.inject_expr(right, site);
            }
            _ => {}
        }
    }
}

/// Substitutes the new value of one register into another update that reads its old value.
fn inject_new_value(row: &mut Row, site: &mut Site) {
    for reader in 0..row.updates.len() {
        for writer in 0..row.updates.len() {
            let old = match row.updates[writer].destination {
                Destination::Register(i) => Expr::Register(i),
                Destination::Global(i) => Expr::Global(i),
            };
            let NewValue::Number { value: new, .. } = row.updates[writer].value.clone() else { continue };
            let mut reads = false;
            let NewValue::Number { value, .. } = &mut row.updates[reader].value else { continue };
            value.walk(&mut |e| reads |= *e == old);
            if reader != writer && reads && site.is_here() {
                replace(value, &old, &new);
            }
        }
    }
}

fn replace(expr: &mut Expr, old: &Expr, new: &Expr) {
    if expr == old {
        *expr = new.clone();
        return;
    }
    match expr {
        Expr::Not(inner) => replace(inner, old, new),
        Expr::Binary(_, left, right)
        | Expr::RotateRight { left, right, .. }
        | Expr::MinMax { left, right, .. }
        | Expr::Ewma { average: left, sample: right, .. } => {
            replace(left, old, new);
            replace(right, old, new);
        }
        _ => {}
    }
}

/// A terminal action with another effect.
fn another(terminal: &Terminal) -> Terminal {
    match terminal {
        Terminal::Drop => Terminal::Pass,
        Terminal::Forward(Expr::Constant(port)) => Terminal::Forward(Expr::Constant(port ^ 1)),
        Terminal::Pass | Terminal::Punt | Terminal::Forward(_) | Terminal::Goto(_) => Terminal::Drop,
        Terminal::Reply | Terminal::Flood => Terminal::Pass,
    }
}
