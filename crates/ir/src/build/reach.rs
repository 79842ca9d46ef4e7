// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses and comparisons at packet offsets known only at run time.
//!
//! A pipeline sees the first bytes of a packet, its window. Whether a packet needs more has to be known before any
//! effect happens, so the conditions recorded here depend on no effect: tests of results of effects are dropped from
//! them, which makes them hold for more packets, never for fewer. An offset may depend on an effect: then the farthest
//! one counts.

use rustc_hash::FxHashMap;

use super::builder::Builder;
use crate::bdd::Bdd;
use crate::dataflow::{Reach, Reaching};
use crate::graph::{Compare, Id, Input, Kind};

impl Builder<'_> {
    pub(super) fn note_access(&mut self, path: Bdd, base: Option<Id>, end: i64) {
        let Some(base) = base else { return };
        let (when, last) = self.reached.accesses.get(&base).copied().unwrap_or((Bdd::FALSE, end));
        let when = self.conditions.or(when, path);
        self.reached.accesses.insert(base, (when, last.max(end)));
    }

    /// Records a comparison of offsets, made by the program on some paths or, with [`Bdd::FALSE`], by the construction
    /// itself.
    pub(super) fn note_test(&mut self, path: Bdd, bit: Id) {
        let test = self.without_not(bit);
        if matches!(self.graph.node(test).kind, Kind::Compare(_)) {
            let when = self.reached.tests.get(&test).copied().unwrap_or(Bdd::FALSE);
            let when = self.conditions.or(when, path);
            self.reached.tests.insert(test, when);
        }
    }

    /// Records a comparison of other numbers.
    pub(super) fn note_other(&mut self, bit: Id) {
        let test = self.without_not(bit);
        self.reached.others.insert(test);
    }

    /// A comparison that the construction makes and that has to be right on every path.
    pub(super) fn compared_anywhere(&mut self, how: Compare, a: Id, b: Id) -> Id {
        let bit = self.graph.compare(how, a, b);
        self.note_other(bit);
        bit
    }

    /// A bit without its complement.
    fn without_not(&self, bit: Id) -> Id {
        let node = self.graph.node(bit);
        if node.kind == Kind::Not { node.args[0] } else { bit }
    }

    /// The accesses and comparisons, under conditions that depend on no effect.
    pub(super) fn reaches(&mut self) -> Vec<Reach> {
        let reached = std::mem::take(&mut self.reached);
        let accesses = reached.accesses.into_iter().map(|(base, (when, end))| (when, Reaching::Access { base, end }));
        let tests = reached.tests.into_iter().filter(|(test, _)| !reached.others.contains(test));
        let tests = tests.map(|(test, when)| (when, Reaching::Test(test)));
        let all: Vec<(Bdd, Reaching)> = accesses.chain(tests).collect();
        let mut uses = vec![false; self.graph.nodes().len()];
        for id in self.graph.ids() {
            let node = self.graph.node(id);
            let is_effect = matches!(node.kind, Kind::Effect(_) | Kind::Input(Input::Only(_)));
            uses[id.index()] = is_effect || node.args.iter().any(|arg| uses[arg.index()]);
        }
        let mut known = FxHashMap::default();
        let mut reaches = Vec::new();
        for (when, by) in all {
            if matches!(by, Reaching::Test(test) if uses[test.index()]) {
                continue;
            }
            let when = self.conditions.without(when, &|bit| uses[bit.index()], &mut known);
            let when = self.conditions.node(&mut self.graph, when);
            reaches.push(Reach { when, by });
        }
        reaches
    }
}
