// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decision tree over the rows of a state.
//!
//! A path through the tree tracks what it has tested and loaded ([`Facts`]); a test with a known result is not emitted
//! again. Paths that reach the same row with the same facts join.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use flowloom_isa::op::Cond;

use super::asm::{Label, Op, Operand};
use super::facts::{Facts, Item};
use super::fields::{mask_of, reads_now};
use super::lowering::Lowering;
use super::value::Env;
use flowloom_efsm::layout::Counter;
use flowloom_efsm::model::{Condition, Destination, Element, Expr, NextState, Relation, Row, Stateful, Wide};

/// Limit on nodes of a tree; beyond it a path drops the results of its tests, so that the size stays linear.
const MAX_NODES: usize = 300;

/// Position of a path among the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    /// Index of the list in the tree.
    pub(super) list: usize,
    /// Index in the list; one past the last row means the list's continuation.
    pub(super) index: usize,
}

impl At {
    fn next(self) -> At {
        At { index: self.index + 1, ..self }
    }
}

/// Rows that a path tests in order.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Indices of rows in the tree.
    pub(super) rows: Vec<usize>,
    /// Continuation if no row matches, and the facts before the search that made the list; `None` for the list of all
    /// rows.
    pub(super) then: Option<(At, Rc<Facts>)>,
    /// Numbers of the conditions that hold on all paths through it.
    pub(super) known: BTreeSet<usize>,
}

/// Decision tree of a state, of the absent context, or of a stateless element.
pub(super) struct Tree<'a> {
    pub(super) element: usize,
    pub(super) stateful: Option<&'a Stateful>,
    pub(super) rows: Vec<(usize, &'a Row)>,
    pub(super) env: Env,
    /// All rows first, then the lists made by searches.
    pub(super) lists: Vec<List>,
    nodes: BTreeMap<(At, Facts), Label>,
    bodies: BTreeMap<(usize, Facts), Label>,
    pub(super) todo: Vec<(Label, At, Facts)>,
    /// For each row, the numbers of its conditions, equal up to negation, and whether each one is not negated.
    pub(super) numbers: Vec<Vec<(usize, bool)>>,
    /// For each number, the last row with this condition.
    last_tests: Vec<usize>,
    /// For each item that rows load, the last row that may load it.
    last_uses: BTreeMap<Item, usize>,
    no_match: Label,
    /// As `no_match`, for a context that is tentatively stored.
    no_match_stored: Label,
}

impl<'a> Lowering<'a> {
    /// Falls through if a header of `any` is valid, otherwise jumps to the label that `absent` returns for the facts
    /// there. Returns whether the fall-through is reachable.
    pub(super) fn require(&mut self, any: u32, absent: impl FnOnce(&Facts) -> Label) -> bool {
        let (with, without): (Vec<u32>, Vec<u32>) = self.path.masks.iter().partition(|&&m| m & any != 0);
        if without.is_empty() || any == 0 {
            return true;
        }
        if with.is_empty() {
            return false;
        }
        let missing = absent(&Facts { masks: without, ..self.path.clone() });
        let present = self.builder.label();
        let valid = self.valid;
        self.builder.jump64(Cond::Set, valid, Operand::Imm(any as i32), present);
        self.builder.goto(missing);
        self.builder.place(present);
        self.path.masks = with;
        true
    }

    pub(super) fn emit_tree(&mut self, index: usize, stateful: Option<&'a Stateful>, state: u16, env: Env) {
        let element = &self.function.elements[index];
        let rows = element.rows.iter().enumerate();
        let rows: Vec<_> = rows.filter(|(_, row)| stateful.is_none() || row.states.contains(&state)).collect();
        if rows.iter().flat_map(|(_, row)| &row.conditions).flat_map(Condition::exprs).any(reads_now) {
            // The call comes before all loads, since it clobbers registers.
            self.ensure_now();
        }
        let mut tree = Tree::new(index, stateful, rows, env, [self.builder.label(), self.builder.label()]);
        let start = self.builder.label();
        tree.todo.push((start, At { list: 0, index: 0 }, self.path.clone()));
        let before = self.path.clone();
        while let Some((label, at, facts)) = tree.todo.pop() {
            self.builder.place(label);
            let (at, facts) = tree.leave_lists(at, facts);
            let facts = tree.relevant(at, facts);
            match tree.nodes.get(&(at, facts.clone())) {
                Some(&same) => self.builder.goto(same),
                None => {
                    tree.nodes.insert((at, facts.clone()), label);
                    self.path = facts;
                    self.emit_node_from(&mut tree, at);
                }
            }
        }
        self.emit_no_match(index, element, &tree, before);
    }

    fn emit_no_match(&mut self, index: usize, element: &Element, tree: &Tree<'_>, before: Facts) {
        self.builder.place(tree.no_match_stored);
        self.path = before;
        self.delete_context(index);
        self.builder.place(tree.no_match);
        if let Some(context) = tree.env.context {
            self.rearm_idle(index, tree.env.state, context);
        }
        self.emit_otherwise(index, element, Counter::NoMatch);
    }

    fn emit_node_from(&mut self, tree: &mut Tree<'a>, mut at: At) {
        'rows: while let Some((index, row_index, row)) = tree.row(at) {
            self.builder.push(Op::Line(row.span));
            if self.search_rows(tree, at) {
                return;
            }
            for field in row.fields() {
                let mut missing = None;
                let label = self.builder.label();
                let can_match = self.require(mask_of(field), |facts| {
                    missing = Some(facts.clone());
                    label
                });
                if !can_match {
                    at = at.next();
                    continue 'rows;
                }
                if let Some(facts) = missing {
                    tree.todo.push((label, at.next(), facts));
                }
            }
            for field in row.conditions.iter().filter_map(Condition::absent) {
                let any = mask_of(field);
                let (with, without): (Vec<u32>, Vec<u32>) = self.path.masks.iter().partition(|&&m| m & any != 0);
                if without.is_empty() {
                    at = at.next();
                    continue 'rows;
                }
                if !with.is_empty() {
                    let present = self.builder.label();
                    let valid = self.valid;
                    self.builder.jump64(Cond::Set, valid, Operand::Imm(any as i32), present);
                    tree.todo.push((present, at.next(), Facts { masks: with, ..self.path.clone() }));
                    self.path.masks = without;
                }
            }
            for (condition, (number, polarity)) in row.conditions.iter().zip(tree.numbers[index].clone()) {
                if matches!(condition, Condition::Present { .. }) {
                    continue;
                }
                if tree.lists[at.list].known.contains(&number) {
                    if polarity {
                        continue;
                    }
                    at = at.next();
                    continue 'rows;
                }
                match self.path.tested.get(&number) {
                    Some(&truth) if truth == polarity => continue,
                    Some(_) => {
                        at = at.next();
                        continue 'rows;
                    }
                    None => {}
                }
                let fails = self.builder.label();
                match self.branch(condition, &tree.env, fails) {
                    Some(true) => {}
                    Some(false) => {
                        at = at.next();
                        continue 'rows;
                    }
                    None => {
                        let mut facts = self.path.clone();
                        facts.tested.insert(number, !polarity);
                        self.path.tested.insert(number, polarity);
                        if let Condition::Full { negated } = condition {
                            facts.full = Some(*negated);
                            self.path.full = Some(!*negated);
                        }
                        tree.todo.push((fails, at.next(), facts));
                    }
                }
            }
            self.path.tested.clear();
            let items = row_items(row);
            self.path.loaded.retain(|item| items.contains(item));
            if let Some(&same) = tree.bodies.get(&(row_index, self.path.clone())) {
                self.builder.goto(same);
            } else {
                let body = self.builder.label();
                self.builder.place(body);
                tree.bodies.insert((row_index, self.path.clone()), body);
                self.emit_body(tree, row_index, row);
            }
            return;
        }
        if tree.lists[at.list].then.is_some() {
            let label = self.builder.label();
            self.builder.goto(label);
            tree.todo.push((label, at, self.path.clone()));
            return;
        }
        let no_match = if self.path.full == Some(false) { tree.no_match_stored } else { tree.no_match };
        self.builder.goto(no_match);
    }

    /// Emits the effects of a matched row: counters, updates, context, packet actions.
    fn emit_body(&mut self, tree: &Tree<'a>, row_index: usize, row: &'a Row) {
        let index = tree.element;
        let mut env = tree.env.clone();
        self.count(index, Counter::Row { row: row_index, state: env.state });
        if let Some(stateful) = tree.stateful {
            // Read the time first: the call clobbers registers.
            let sets_timer =
                matches!(row.next, NextState::To { idle_ns, hard_ns, .. } if idle_ns.or(hard_ns).is_some());
            let is_touched = self.plans[index].layout.as_ref().is_some_and(|layout| layout.touched.is_some());
            if sets_timer || is_touched || row.reads_now() {
                self.ensure_now();
            }
            env.old = self.load_old(row, &env);
            let after = self.emit_updates(&row.updates, &env, stateful);
            match env.context {
                Some(context) => {
                    self.update_context(index, row, stateful, context, &env, &after);
                    self.store_globals(index, &after);
                    env.after = after;
                }
                None => env.after = self.create_context(index, row, stateful, &env, after),
            }
        } else if row.actions.reports() {
            self.ensure_now();
        }
        self.emit_actions(row_index, row, &env);
    }
}

impl<'a> Tree<'a> {
    fn new(
        element: usize,
        stateful: Option<&'a Stateful>,
        rows: Vec<(usize, &'a Row)>,
        env: Env,
        [no_match, no_match_stored]: [Label; 2],
    ) -> Tree<'a> {
        let mut known = HashMap::new();
        let mut last_tests = Vec::new();
        let mut last_uses = BTreeMap::new();
        let mut numbers = Vec::with_capacity(rows.len());
        for (i, (_, row)) in rows.iter().enumerate() {
            let number = |condition| {
                let (base, polarity) = positive(condition);
                let count = known.len();
                let number = *known.entry(base).or_insert(count);
                last_tests.resize(known.len(), i);
                last_tests[number] = i;
                (number, polarity)
            };
            numbers.push(row.conditions.iter().map(number).collect());
            last_uses.extend(row_items(row).into_iter().map(|item| (item, i)));
        }
        let all = List { rows: (0..rows.len()).collect(), ..List::default() };
        Tree {
            element,
            stateful,
            rows,
            env,
            lists: vec![all],
            nodes: BTreeMap::new(),
            bodies: BTreeMap::new(),
            todo: Vec::new(),
            numbers,
            last_tests,
            last_uses,
            no_match,
            no_match_stored,
        }
    }

    /// The row at a place: its index in the tree and in the element; `None` at the end of a list.
    fn row(&self, at: At) -> Option<(usize, usize, &'a Row)> {
        let index = *self.lists[at.list].rows.get(at.index)?;
        let (row_index, row) = self.rows[index];
        Some((index, row_index, row))
    }

    /// Continues after the lists that end here. Drops the results of a search, so that all paths join after it.
    fn leave_lists(&self, mut at: At, mut facts: Facts) -> (At, Facts) {
        while let List { rows, then: Some((then, before)), .. } = &self.lists[at.list]
            && at.index >= rows.len()
        {
            at = *then;
            facts = Facts {
                masks: before.masks.clone(),
                tested: before.tested.clone(),
                loaded: before.loaded.clone(),
                ..facts
            };
        }
        (at, facts)
    }

    /// Facts that rows from a place on can use.
    fn relevant(&self, at: At, mut facts: Facts) -> Facts {
        if self.nodes.len() > MAX_NODES {
            facts.tested.clear();
            facts.loaded.clear();
            return facts;
        }
        let index = self.row(at).map_or(self.rows.len(), |(index, ..)| index);
        facts.tested.retain(|&number, _| self.last_tests[number] >= index);
        facts.loaded.retain(|item| self.last_uses.get(item).is_some_and(|&last| last >= index));
        facts
    }
}

/// The condition without negation, and true if it had none.
fn positive(condition: &Condition) -> (Condition, bool) {
    let mut base = condition.clone();
    let polarity = match &mut base {
        Condition::Compare { relation, .. } => {
            let (positive, polarity) = match relation {
                Relation::NotEqual => (Relation::Equal, false),
                Relation::GreaterEqual => (Relation::Less, false),
                Relation::Greater => (Relation::LessEqual, false),
                _ => (*relation, true),
            };
            *relation = positive;
            polarity
        }
        Condition::Serial { negated, .. }
        | Condition::Masked { negated, .. }
        | Condition::Range { negated, .. }
        | Condition::OneOf { negated, .. }
        | Condition::Within { negated, .. }
        | Condition::Same { negated, .. }
        | Condition::Present { negated, .. }
        | Condition::Full { negated } => !std::mem::replace(negated, false),
    };
    (base, polarity)
}

/// All items that a row may load.
fn row_items(row: &Row) -> BTreeSet<Item> {
    let mut items = Lowering::loadable(row.fields());
    for expr in row.exprs() {
        expr.walk(&mut |e| match e {
            Expr::Register(i) | Expr::Old(Destination::Register(i)) => drop(items.insert(Item::Register(*i))),
            Expr::Global(i) | Expr::Old(Destination::Global(i)) => drop(items.insert(Item::Global(*i))),
            Expr::Now { unit_ns } => drop(items.insert(Item::Clock(*unit_ns))),
            _ => {}
        });
    }
    for wide in row.wides() {
        match wide {
            Wide::Register(i) | Wide::Old(Destination::Register(i)) => drop(items.insert(Item::Register(i))),
            Wide::Global(i) | Wide::Old(Destination::Global(i)) => drop(items.insert(Item::Global(i))),
            Wide::Constant(_) | Wide::Field(_) | Wide::Metadata(_) => {}
        }
    }
    items
}
