//! Which way was gone, told by no more than what tells the ways apart.
//!
//! ```text
//!   if kind goto v6       Where the two meet, `kind` says which was gone: the lengths were right on both, or they would not
//!   v4: if short goto out                      meet. Conditions of paths, which hold every test, forget that where they become
//!       goto both                              bits of their own.
//!   v6: if short goto out
//!   both:
//! ```
//!
//! **Steps.** From where paths meet back to the last block that all of them lead through: of each block on the way, the test at its end
//! matters where both of its ways lead there.

use std::collections::{BTreeMap, BTreeSet};

use super::Builder;
use crate::graph::Id;

/// So many blocks lie between.
const MOST_BLOCKS: usize = 600;

/// A bit, and what it had to be.
pub(super) type Test = Option<(Id, bool)>;
/// The tests by which blocks are left towards somewhere.
type Left = BTreeMap<usize, Vec<Test>>;

/// How a block was entered: out of which one, and by what test at that one's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) from: usize,
    pub(super) test: Test,
}

/// The blocks in the order in which they were walked.
#[derive(Debug, Default)]
pub(super) struct Ways {
    into: Vec<Vec<Way>>,
    /// The last block that all ways to a block lead through, and how many there are of such.
    before: Vec<(usize, usize)>,
}

impl Ways {
    /// A block that is entered so.
    pub(super) fn add(&mut self, into: Vec<Way>) -> usize {
        // Nothing leads to the first one.
        let into = if self.into.is_empty() { Vec::new() } else { into };
        let before = self.common(&into);
        let depth = self.before.get(before).map_or(0, |(_, depth)| depth + 1);
        self.into.push(into);
        self.before.push((before, depth));
        self.into.len() - 1
    }

    fn common(&self, into: &[Way]) -> usize {
        into.iter().map(|way| way.from).reduce(|one, other| self.common_of(one, other)).unwrap_or(0)
    }

    fn common_of(&self, mut one: usize, mut other: usize) -> usize {
        while one != other {
            let later = if self.before[one].1 >= self.before[other].1 { &mut one } else { &mut other };
            *later = self.before[*later].0;
        }
        one
    }

    /// The blocks between those that the ways come from and the one that all lead through, that one left out.
    fn between(&self, into: &[Way], before: usize) -> Option<Vec<usize>> {
        let mut found = BTreeSet::new();
        let mut work: Vec<usize> = into.iter().map(|way| way.from).collect();
        while let Some(block) = work.pop() {
            if block != before && found.insert(block) {
                work.extend(self.into[block].iter().map(|way| way.from));
                if found.len() > MOST_BLOCKS {
                    return None;
                }
            }
        }
        Some(found.into_iter().collect())
    }
}

impl Builder<'_> {
    /// For each of the ways to a block a bit that says that it was gone, given that one of them was.
    pub(super) fn gone(&mut self, into: &[Way]) -> Option<Vec<Id>> {
        let before = self.ways.common(into);
        let between = self.ways.between(into, before)?;
        // How each block is left towards where the ways lead.
        let mut left = Left::new();
        for way in between.iter().flat_map(|block| &self.ways.into[*block]).chain(into) {
            left.entry(way.from).or_default().push(way.test);
        }
        let is_told = |tests: &Vec<Test>| match tests.as_slice() {
            [_] => true,
            [Some((a, x)), Some((b, y))] => a == b && x != y,
            _ => false,
        };
        if !left.values().all(is_told) {
            return None;
        }
        let mut bits = BTreeMap::from([(before, self.graph.number(1, 1))]);
        for block in between {
            let into = self.ways.into[block].clone();
            let parts: Option<Vec<Id>> = into.iter().map(|way| self.gone_so(&left, &bits, way)).collect();
            let mut any = self.graph.number(0, 1);
            for part in parts? {
                any = self.graph.or(any, part);
            }
            bits.insert(block, any);
        }
        into.iter().map(|way| self.gone_so(&left, &bits, way)).collect()
    }

    fn gone_so(&mut self, left: &Left, bits: &BTreeMap<usize, Id>, way: &Way) -> Option<Id> {
        let from = *bits.get(&way.from)?;
        let tests = left.get(&way.from)?;
        Some(match way.test.filter(|_| tests.len() > 1) {
            Some((test, true)) => self.graph.and(from, test),
            Some((test, false)) => {
                let not = self.graph.not(test);
                self.graph.and(from, not)
            }
            None => from,
        })
    }
}
