// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mutations of a function.

use flowloom_efsm::model::{
    BinaryOp, Condition, Destination, Expr, Function, NewValue, NextState, Relation, Row, Stateful, Terminal, Variable,
    WriteTarget,
};

/// A fault in the function that an engine runs.
pub struct ModelFault {
    pub name: &'static str,
    /// Offers every site of the fault, and mutates the selected one.
    inject: fn(&mut Function, &mut Site),
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

    /// Removes the item of a list that is the selected site; `fits` tells which items are sites.
    fn remove<T>(&mut self, list: &mut Vec<T>, fits: impl Fn(&T) -> bool) {
        if let Some(at) = (0..list.len()).find(|&at| fits(&list[at]) && self.is_here()) {
            list.remove(at);
        }
    }
}

const fn fault(name: &'static str, inject: fn(&mut Function, &mut Site)) -> ModelFault {
    ModelFault { name, inject }
}

impl ModelFault {
    pub const ALL: [ModelFault; 28] = [
        // A timer expires 1 ns late, or early.
        fault("TimerLate", |function, site| timers(function, site, |ns| *ns += 1)),
        fault("TimerEarly", |function, site| timers(function, site, |ns| *ns -= 1)),
        // An idle timer is not re-armed.
        fault("IdleTakenForHard", |function, site| {
            transitions(function, |idle_ns, hard_ns| {
                if idle_ns.is_some() && hard_ns.is_none() && site.is_here() {
                    *hard_ns = idle_ns.take();
                }
            });
        }),
        // A hard timer is re-armed.
        fault("HardTakenForIdle", |function, site| {
            transitions(function, |idle_ns, hard_ns| {
                if hard_ns.is_some() && idle_ns.is_none() && site.is_here() {
                    *idle_ns = hard_ns.take();
                }
            });
        }),
        fault("TimerIgnored", |function, site| {
            transitions(function, |idle_ns, hard_ns| {
                if idle_ns.is_some() && site.is_here() {
                    *idle_ns = None;
                } else if hard_ns.is_some() && site.is_here() {
                    *hard_ns = None;
                }
            });
        }),
        // A transition keeps the old deadlines.
        fault("DeadlineKept", |function, site| {
            for row in rows(function) {
                if row.next != NextState::Stay && site.is_here() {
                    row.next = NextState::Stay;
                }
            }
        }),
        // Two adjacent rows have their priorities swapped.
        fault("RowsSwapped", |function, site| {
            for element in &mut function.elements {
                for i in 1..element.rows.len() {
                    if site.is_here() {
                        element.rows.swap(i - 1, i);
                    }
                }
            }
        }),
        fault("RowDropped", |function, site| {
            function.elements.iter_mut().for_each(|element| site.remove(&mut element.rows, |_| true));
        }),
        // A row is missing in one of its states.
        fault("StateForgotten", |function, site| {
            for row in rows(function) {
                if row.states.len() > 1 && site.is_here() {
                    row.states.pop();
                }
            }
        }),
        // A comparison is off by one: `<` for `<=`, for example.
        fault("RelationOffByOne", |function, site| {
            for condition in conditions(function) {
                let Condition::Compare { relation, .. } = condition else { continue };
                let off = match relation {
                    Relation::Less => Relation::LessEqual,
                    Relation::LessEqual => Relation::Less,
                    Relation::Greater => Relation::GreaterEqual,
                    Relation::GreaterEqual => Relation::Greater,
                    Relation::Equal | Relation::NotEqual => continue,
                };
                if site.is_here() {
                    *relation = off;
                }
            }
        }),
        // A signed comparison is unsigned, or vice versa.
        fault("SignMistaken", |function, site| {
            for condition in conditions(function) {
                if let Condition::Compare { relation, signed, .. } = condition
                    && !matches!(relation, Relation::Equal | Relation::NotEqual)
                    && site.is_here()
                {
                    *signed = !*signed;
                }
            }
        }),
        fault("ConditionDropped", |function, site| {
            rows(function).for_each(|row| site.remove(&mut row.conditions, |_| true));
        }),
        // A mask is one bit too wide.
        fault("MaskWidened", |function, site| {
            for condition in conditions(function) {
                if let Condition::Masked { mask, value, .. } = condition
                    && *mask != 0
                    && site.is_here()
                {
                    *mask &= *mask - 1;
                    *value &= *mask;
                }
            }
        }),
        // A range is too wide by one value.
        fault("RangeWidened", |function, site| {
            for condition in conditions(function) {
                let Condition::Range { low, high, .. } = condition else { continue };
                if site.is_here() {
                    *high = high.saturating_add(1);
                }
                if *low > 0 && site.is_here() {
                    *low -= 1;
                }
            }
        }),
        // An update reads the value that another update of the row has just written.
        fault("UpdateReadsNewValue", |function, site| rows(function).for_each(|row| read_new_value(row, site))),
        fault("UpdateDropped", |function, site| {
            rows(function).for_each(|row| site.remove(&mut row.updates, |_| true));
        }),
        fault("WrongOperator", |function, site| {
            expressions(function, &mut |expr| {
                if let Expr::Binary(op, ..) = expr
                    && site.is_here()
                {
                    *op = match op {
                        BinaryOp::Add | BinaryOp::And | BinaryOp::Xor => BinaryOp::Or,
                        BinaryOp::Sub => BinaryOp::Add,
                        BinaryOp::Or => BinaryOp::Xor,
                        BinaryOp::ShiftLeft => BinaryOp::ShiftRight,
                        BinaryOp::ShiftRight => BinaryOp::ShiftLeft,
                    };
                }
                true
            });
        }),
        // A constant is one too large.
        fault("WrongConstant", |function, site| {
            expressions(function, &mut |expr| {
                if let Expr::Constant(constant) = expr
                    && site.is_here()
                {
                    *constant = constant.wrapping_add(1);
                }
                true
            });
        }),
        fault("WrongNextState", |function, site| {
            for element in &mut function.elements {
                let states = element.stateful.as_ref().map_or(0, |stateful| stateful.states.len() as u16);
                for row in &mut element.rows {
                    if let NextState::To { state, .. } = &mut row.next
                        && states > 1
                        && site.is_here()
                    {
                        *state = (*state + 1) % states;
                    }
                }
            }
        }),
        // The last field of a key is missing.
        fault("KeyFieldDropped", |function, site| {
            for key in stateful(function).filter_map(|stateful| stateful.key.as_mut()) {
                if key.parts.len() > 1 && !key.biflow && site.is_here() {
                    key.parts.pop();
                }
            }
        }),
        // A `biflow` key distinguishes the directions.
        fault("BiflowIgnored", |function, site| {
            for key in stateful(function).filter_map(|stateful| stateful.key.as_mut()) {
                if key.biflow && site.is_here() {
                    key.biflow = false;
                }
            }
        }),
        fault("WrongInitialValue", |function, site| {
            let variables = stateful(function).flat_map(|s| s.registers.iter_mut().chain(&mut s.globals));
            for Variable { initial, .. } in variables {
                if site.is_here() {
                    *initial ^= 1;
                }
            }
        }),
        // A table has capacity for one more context, or for one less.
        fault("TableTooLarge", |function, site| {
            for stateful in stateful(function) {
                if stateful.key.is_some() && site.is_here() {
                    stateful.size += 1;
                }
            }
        }),
        fault("TableTooSmall", |function, site| {
            for stateful in stateful(function) {
                if stateful.key.is_some() && stateful.size > 1 && site.is_here() {
                    stateful.size -= 1;
                }
            }
        }),
        // A header write is missing, or a metadata write.
        fault("WriteDropped", |function, site| {
            let is_field = |target| matches!(target, WriteTarget::Field(_));
            rows(function).for_each(|row| site.remove(&mut row.actions.writes, |write| is_field(write.target)));
        }),
        fault("MetadataLost", |function, site| {
            let is_metadata = |target| matches!(target, WriteTarget::Metadata(_));
            rows(function).for_each(|row| site.remove(&mut row.actions.writes, |write| is_metadata(write.target)));
        }),
        // A row, or `otherwise`, has another terminal action.
        fault("WrongAction", |function, site| {
            rows(function).for_each(|row| change_terminal(&mut row.actions.terminal, site));
        }),
        fault("WrongOtherwise", |function, site| {
            let elements = function.elements.iter_mut();
            elements.for_each(|element| change_terminal(&mut element.otherwise.actions.terminal, site));
        }),
    ];

    pub fn sites(&self, function: &Function) -> usize {
        let mut site = Site { wanted: usize::MAX, seen: 0 };
        (self.inject)(&mut function.clone(), &mut site);
        site.seen
    }

    /// `function` with the fault at site `site`; `None` where there is no such site.
    pub fn apply(&self, function: &Function, site: usize) -> Option<Function> {
        let mut faulty = function.clone();
        let mut site = Site { wanted: site, seen: 0 };
        (self.inject)(&mut faulty, &mut site);
        (site.seen > site.wanted).then_some(faulty)
    }
}

fn rows(function: &mut Function) -> impl Iterator<Item = &mut Row> {
    function.elements.iter_mut().flat_map(|element| &mut element.rows)
}

fn conditions(function: &mut Function) -> impl Iterator<Item = &mut Condition> {
    rows(function).flat_map(|row| &mut row.conditions)
}

fn stateful(function: &mut Function) -> impl Iterator<Item = &mut Stateful> {
    function.elements.iter_mut().filter_map(|element| element.stateful.as_mut())
}

/// Calls `change` with idle and hard timer of each row with a transition.
fn transitions(function: &mut Function, mut change: impl FnMut(&mut Option<u64>, &mut Option<u64>)) {
    for row in rows(function) {
        if let NextState::To { idle_ns, hard_ns, .. } = &mut row.next {
            change(idle_ns, hard_ns);
        }
    }
}

fn timers(function: &mut Function, site: &mut Site, change: fn(&mut u64)) {
    transitions(function, |idle_ns, hard_ns| {
        [idle_ns, hard_ns].into_iter().flatten().filter(|_| site.is_here()).for_each(change);
    });
}

/// Visits the expressions of updates and comparisons, and their subexpressions; see [`walk`].
fn expressions(function: &mut Function, visit: &mut dyn FnMut(&mut Expr) -> bool) {
    for row in rows(function) {
        let updates = row.updates.iter_mut().filter_map(|update| match &mut update.value {
            NewValue::Number { value, .. } => Some(value),
            NewValue::Wide(_) => None,
        });
        let conditions = row.conditions.iter_mut().flat_map(|condition| match condition {
            Condition::Compare { left, right, .. } | Condition::Serial { left, right, .. } => vec![left, right],
            _ => Vec::new(),
        });
        updates.chain(conditions).for_each(|expr| walk(expr, visit));
    }
}

/// Visits an expression and, if `visit` returns true, its operands.
fn walk(expr: &mut Expr, visit: &mut dyn FnMut(&mut Expr) -> bool) {
    if !visit(expr) {
        return;
    }
    match expr {
        Expr::Not(inner) => walk(inner, visit),
        Expr::Binary(_, left, right)
        | Expr::RotateRight { left, right, .. }
        | Expr::MinMax { left, right, .. }
        | Expr::Ewma { average: left, sample: right, .. } => {
            walk(left, visit);
            walk(right, visit);
        }
        _ => {}
    }
}

/// Substitutes the new value of one register into another update that reads its old value.
fn read_new_value(row: &mut Row, site: &mut Site) {
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
                walk(value, &mut |expr| {
                    let is_old = *expr == old;
                    if is_old {
                        expr.clone_from(&new);
                    }
                    !is_old
                });
            }
        }
    }
}

/// Replaces a terminal action by one with another effect.
fn change_terminal(terminal: &mut Terminal, site: &mut Site) {
    if site.is_here() {
        *terminal = match terminal {
            Terminal::Forward(Expr::Constant(port)) => Terminal::Forward(Expr::Constant(*port ^ 1)),
            Terminal::Drop | Terminal::Reply | Terminal::Flood => Terminal::Pass,
            Terminal::Pass | Terminal::Punt | Terminal::Forward(_) | Terminal::Goto(_) => Terminal::Drop,
        };
    }
}
