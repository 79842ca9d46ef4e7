// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Folds operations on selects between constants into selects between constants.
//!
//! ```text
//!   v3 = select v1 4 v2 8 0
//!   v4 = and v3 12            select v1 4 v2 8 0
//!   v5 = eq v4 8              select v1 0 v2 1 0
//! ```
//!
//! A program that stores a number to remember which branch it took gets the branch's condition back when it tests the
//! number.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::arith;
use crate::graph::{Graph, Id, Kind};

/// The most constants of a select that is folded.
const MAX_NUMBERS: usize = 64;

impl Graph {
    /// Folds a node of which one argument is a select between constants, the others being constants.
    pub(crate) fn of_selected(&mut self, kind: Kind, args: &[Id], bits: u16) -> Option<Id> {
        let is_made_of_numbers = matches!(
            kind,
            Kind::Slice { .. } | Kind::Concat | Kind::SignExtend | Kind::Binary(_) | Kind::Compare(_) | Kind::Not
        );
        if !is_made_of_numbers {
            return None;
        }
        let mut numbers = Vec::with_capacity(args.len());
        let mut select = None;
        for arg in args {
            match self.node(*arg).kind {
                Kind::Const(value) => numbers.push(value),
                Kind::Select if select.is_none_or(|known| known == *arg) => {
                    select = Some(*arg);
                    numbers.push(0);
                }
                _ => return None,
            }
        }
        let select = select?;
        if !self.selects_numbers(select) {
            return None;
        }
        let widths: Vec<u16> = args.iter().map(|arg| self.bits(*arg)).collect();
        let apply = |graph: &mut Graph, value: u64| {
            let of: Vec<u64> =
                args.iter().zip(&numbers).map(|(arg, number)| if *arg == select { value } else { *number }).collect();
            graph.number(arith::apply(kind, &of, &widths, bits), bits)
        };
        Some(self.each_number(select, &apply, &mut FxHashMap::default()))
    }

    /// Whether all values of a select, selects inside of it included, are among a few constants.
    pub(crate) fn selects_numbers(&self, select: Id) -> bool {
        let (mut seen, mut work) = (FxHashSet::default(), vec![select]);
        while let Some(id) = work.pop() {
            match self.node(id).kind {
                Kind::Const(_) => {}
                Kind::Select if seen.insert(id) => {
                    work.extend(values(&self.node(id).args));
                    if seen.len() + work.len() > MAX_NUMBERS {
                        return false;
                    }
                }
                Kind::Select => {}
                _ => return false,
            }
        }
        true
    }

    /// Applies `make` to each constant of a select.
    fn each_number(&mut self, id: Id, make: &dyn Fn(&mut Graph, u64) -> Id, known: &mut FxHashMap<Id, Id>) -> Id {
        if let Some(known) = known.get(&id) {
            return *known;
        }
        let made = match self.as_const(id) {
            Some(value) => make(self, value),
            None => {
                let mut parts = self.node(id).args.clone();
                let last = parts.len() - 1;
                for (_, part) in parts.iter_mut().enumerate().filter(|(place, _)| place % 2 == 1 || *place == last) {
                    *part = self.each_number(*part, make, known);
                }
                self.select(parts)
            }
        };
        known.insert(id, made);
        made
    }
}

/// The values of a select, without its conditions.
fn values(parts: &[Id]) -> impl Iterator<Item = Id> + '_ {
    let last = parts.len().saturating_sub(1);
    parts.iter().enumerate().filter(move |(place, _)| place % 2 == 1 || *place == last).map(|(_, part)| *part)
}
