//! What depends on offsets in the packet that only the run knows: accesses, and comparisons of such offsets.
//!
//! A pipeline sees the first bytes of a packet, its window. What looks further has to be told from what does not before anything
//! happens; so what is noted here uses no effect: of a condition that tests what an effect has given no more is kept than what does
//! not, and the packets that it holds for are more, never less.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::{Builder, Reach, Reaching};
use crate::bdd::Bdd;
use crate::graph::{Id, Input, Kind};

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Reached {
    /// By their base: on which paths bytes are touched, and where these end.
    accesses: BTreeMap<Id, (Bdd, i64)>,
    /// Comparisons of offsets, and the paths that ask for them.
    tests: BTreeMap<Id, Bdd>,
    /// Comparisons of numbers.
    others: BTreeSet<Id>,
}

impl Builder<'_> {
    /// Bytes of the packet are touched on some paths.
    pub(super) fn note_access(&mut self, path: Bdd, base: Option<Id>, end: i64) {
        let Some(base) = base else { return };
        let (when, last) = self.reached.accesses.get(&base).copied().unwrap_or((Bdd::FALSE, end));
        let when = self.conditions.or(when, path);
        self.reached.accesses.insert(base, (when, last.max(end)));
    }

    /// Offsets are compared, on some paths of the program or, by [`Bdd::FALSE`], by what makes its dataflow.
    pub(super) fn note_test(&mut self, path: Bdd, bit: Id) {
        let test = self.plain(bit);
        if matches!(self.graph.node(test).kind, Kind::Compare(_)) {
            let when = self.reached.tests.get(&test).copied().unwrap_or(Bdd::FALSE);
            let when = self.conditions.or(when, path);
            self.reached.tests.insert(test, when);
        }
    }

    /// Numbers are compared.
    pub(super) fn note_other(&mut self, bit: Id) {
        let test = self.plain(bit);
        self.reached.others.insert(test);
    }

    /// What a bit or its opposite is.
    fn plain(&self, bit: Id) -> Id {
        let node = self.graph.node(bit);
        if node.kind == Kind::Not { node.args[0] } else { bit }
    }

    /// All of it that uses no effect.
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
            if uses[by.subject().index()] {
                continue;
            }
            let when = self.conditions.without(when, &|bit| uses[bit.index()], &mut known);
            let when = self.conditions.node(&mut self.graph, when);
            reaches.push(Reach { when, by });
        }
        reaches
    }
}
