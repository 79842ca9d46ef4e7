// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Binary search over the constants of a field, for long runs of rows that all compare it.
//!
//! Goal: a table of n rows costs a packet about log2(n) comparisons.
//!
//! ```text
//!  before: 2,000 rows `when ip.src in PREFIX && .. { .. }`, at least one test each
//!  after:  a binary search over the ends of the prefixes; each interval leads to the rows whose prefix covers it, in
//!          their order, and from there to the row after the run
//! ```
//!
//! Steps: take the longest run of rows that compare the same field with constants (`==`, a prefix, a range or a set);
//! split the field's values at the bounds of all their intervals; make a [`List`] of rows for each distinct set that
//! covers a piece. A list may be searched again, by another field. 128-bit addresses are searched by their high half,
//! then by the low one.
//!
//! Holds after: a path tests rows in their order, and tests every row that can match.
//!
//! Limits: if the intervals overlap so much that the lists would have more than [`MAX_COPIES`] entries per row, beside
//! one per interval, the run is halved.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flowloom_isa::op::{AluOp, Cond};
use flowloom_wire::field::{FieldId, IPV4_MAPPED};

use super::asm::{Label, Op, Operand, Reg};
use super::facts::Facts;
use super::fields::mask_of;
use super::lowering::Lowering;
use super::tree::{At, List, Tree};
use super::value::Value;
use flowloom_efsm::intervals::{self, Interval};
use flowloom_efsm::model::{Condition, Relation, Wide};

/// Least number of rows for a search; fewer are tested linearly.
const MIN_ROWS: usize = 16;
/// Limit on list entries per row of a run, beside one for each of its intervals: a set has many.
const MAX_COPIES: usize = 4;
/// Limit on intervals that are tested linearly.
const MAX_IN_LINE: usize = 4;
/// Least width of a searched field, in bits; narrower ones have too few values.
const MIN_BITS: u8 = 8;

/// Rows that compare one field.
struct Run {
    field: FieldId,
    /// The row's index in the tree, the number of its condition, and the values that satisfy it.
    rows: Vec<(usize, usize, Vec<Interval>)>,
}

/// Values that lead to the same rows, which are positions in the run.
struct Piece {
    low: u128,
    high: u128,
    rows: Vec<usize>,
}

impl<'a> Lowering<'a> {
    /// Emits a search if a run of rows begins here; returns whether it does. The paths out of it are added to `todo`.
    pub(super) fn search_rows(&mut self, tree: &mut Tree<'a>, at: At) -> bool {
        let Some((run, pieces)) = tree.run(at) else { return false };
        let before = Rc::new(self.path.clone());
        let then = At { index: at.index + run.rows.len(), ..at };
        let none = self.builder.label();
        if !self.require(mask_of(run.field), |_| none) {
            self.builder.goto(none);
            tree.todo.push((none, then, self.path.clone()));
            return true;
        }
        let value = self.pair(Wide::Field(run.field), &tree.env);
        let (Value::Reg(low), high) = (value.low, value.high) else { return false };
        let mut leaves: BTreeMap<Vec<usize>, Label> = BTreeMap::new();
        let low = self.unlinked(low);
        match high {
            Value::Reg(high) => {
                let high = self.unlinked(high);
                let mut halves: Vec<(Label, Vec<Piece>)> = Vec::new();
                let by_high: Vec<(u64, u64, Label)> = pieces
                    .into_iter()
                    .map(|piece| {
                        let low_pieces = run.low_pieces(&piece);
                        let label = match &low_pieces[..] {
                            [Piece { low: 0, high, rows }] if *high == u128::from(u64::MAX) => {
                                *leaves.entry(rows.clone()).or_insert_with(|| self.builder.label())
                            }
                            _ => {
                                let label = self.builder.label();
                                halves.push((label, low_pieces));
                                label
                            }
                        };
                        (piece.low as u64, piece.high as u64, label)
                    })
                    .collect();
                self.search_intervals(high, true, &by_high, (0, u64::MAX), none);
                for (label, pieces) in halves {
                    self.builder.place(label);
                    self.search_low(low, pieces, none, &mut leaves);
                }
            }
            Value::Const(_) => self.search_pieces(low, intervals::largest(run.field) as u64, pieces, none, &mut leaves),
        }
        let facts = self.path.clone();
        for (positions, label) in leaves.into_iter().rev() {
            let list = tree.list(&run, &positions, at, then, &before);
            tree.todo.push((label, list, facts.clone()));
        }
        tree.todo.push((none, then, Facts { masks: before.masks.clone(), loaded: before.loaded.clone(), ..facts }));
        true
    }

    /// A copy of a value that the kernel's verifier does not link to it: outcomes of comparisons refine the copy, not
    /// the value. Otherwise the verifier follows each leaf of a search that reads the value later separately.
    pub(super) fn unlinked(&mut self, value: Reg) -> Reg {
        let copy = self.own(Value::Reg(value));
        self.builder.alu64(AluOp::Xor, copy, Operand::Imm(0));
        copy
    }

    /// Searches the low half of a 128-bit value; only 32 bits of it if all constants are IPv4 addresses.
    fn search_low(&mut self, low: Reg, pieces: Vec<Piece>, none: Label, leaves: &mut BTreeMap<Vec<usize>, Label>) {
        let mapped = IPV4_MAPPED..=IPV4_MAPPED | u128::from(u32::MAX);
        if !pieces.iter().all(|piece| mapped.contains(&piece.low) && mapped.contains(&piece.high)) {
            return self.search_pieces(low, u64::MAX, pieces, none, leaves);
        }
        let prefix = self.own(Value::Reg(low));
        self.builder.alu64(AluOp::Rsh, prefix, Operand::Imm(32));
        self.builder.jump64(Cond::Ne, prefix, Operand::Imm((IPV4_MAPPED >> 32) as i32), none);
        self.search_pieces(low, u64::from(u32::MAX), pieces, none, leaves);
    }

    /// Searches a value that is at most `most`; if that fits in 32 bits, only the low 32 bits of the register count.
    fn search_pieces(
        &mut self,
        value: Reg,
        most: u64,
        pieces: Vec<Piece>,
        none: Label,
        leaves: &mut BTreeMap<Vec<usize>, Label>,
    ) {
        let is_wide = most > u64::from(u32::MAX);
        let part = |end: u128| if is_wide { end as u64 } else { u64::from(end as u32) };
        let mut target = |rows| *leaves.entry(rows).or_insert_with(|| self.builder.label());
        let pieces: Vec<_> =
            pieces.into_iter().map(|piece| (part(piece.low), part(piece.high), target(piece.rows))).collect();
        self.search_intervals(value, is_wide, &pieces, (0, most), none);
    }

    /// Jumps to the label of the interval that contains the value, otherwise to `none`. The intervals ascend; the value
    /// is known to be in `known`. Branches that this makes unreachable are not emitted: the kernel would remove each
    /// one and move the rest of the program each time. If not `is_wide`, only the low 32 bits of the value count.
    pub(super) fn search_intervals(
        &mut self,
        value: Reg,
        is_wide: bool,
        pieces: &[(u64, u64, Label)],
        known: (u64, u64),
        none: Label,
    ) {
        let (mut least, most) = known;
        if pieces.len() > MAX_IN_LINE {
            let (below, above) = pieces.split_at(pieces.len() / 2);
            let upper = self.builder.label();
            let border = above[0].0;
            self.jump_to(value, is_wide, Cond::Ge, border, upper);
            self.search_intervals(value, is_wide, below, (least, border - 1), none);
            self.builder.place(upper);
            self.search_intervals(value, is_wide, above, (border, most), none);
            return;
        }
        for &(low, high, target) in pieces {
            if low == high && (least, most) != (low, high) {
                self.jump_to(value, is_wide, Cond::Eq, low, target);
                if least == low {
                    least += 1;
                }
                continue;
            }
            if least < low {
                self.jump_to(value, is_wide, Cond::Lt, low, none);
            }
            if high >= most {
                self.builder.goto(target);
                return;
            }
            self.jump_to(value, is_wide, Cond::Le, high, target);
            least = high + 1;
        }
        self.builder.goto(none);
    }

    fn jump_to(&mut self, value: Reg, is_wide: bool, op: Cond, constant: u64, target: Label) {
        let right = if is_wide { self.builder.operand(constant) } else { Operand::Imm(constant as u32 as i32) };
        self.builder.push(Op::Jump { wide: is_wide, op, left: value, right, target });
    }
}

impl Tree<'_> {
    /// The run of rows that begins at a place, and the pieces to search first; `None` if a search does not pay.
    fn run(&self, at: At) -> Option<(Run, Vec<Piece>)> {
        let list = &self.lists[at.list];
        let rows = &list.rows[at.index..];
        if rows.len() < MIN_ROWS {
            return None;
        }
        let test_of = |index: usize, field: Option<FieldId>| {
            let conditions = self.rows[index].1.conditions.iter().zip(&self.numbers[index]);
            conditions.filter(|(_, (number, _))| !list.known.contains(number)).find_map(
                move |(condition, (number, _))| {
                    let (of, intervals) = intervals(condition)?;
                    (field.is_none_or(|field| of == field)).then_some((of, *number, intervals))
                },
            )
        };
        let fields = self.rows[rows[0]].1.conditions.iter().filter_map(|c| intervals(c).map(|(field, _)| field));
        let fields: BTreeSet<FieldId> = fields.collect();
        let runs = fields.into_iter().map(|field| {
            let tests = rows.iter().map_while(|&index| {
                let (_, number, intervals) = test_of(index, Some(field))?;
                Some((index, number, intervals))
            });
            Run { field, rows: tests.collect() }
        });
        let mut run = runs.reduce(|most, other| if other.rows.len() > most.rows.len() { other } else { most })?;
        while run.rows.len() >= MIN_ROWS {
            if let Some(pieces) = run.pieces() {
                return Some((run, pieces));
            }
            run.rows.truncate(run.rows.len() / 2);
        }
        None
    }

    /// Adds a list of these rows of a run.
    fn list(&mut self, run: &Run, positions: &[usize], at: At, then: At, before: &Rc<Facts>) -> At {
        let rows: Vec<usize> = positions.iter().map(|&i| run.rows[i].0).collect();
        let outer = &self.lists[at.list].known;
        let numbers = rows.iter().flat_map(|&row| self.numbers[row].iter().map(|(number, _)| *number));
        let mut known: BTreeSet<usize> = numbers.filter(|number| outer.contains(number)).collect();
        known.extend(positions.iter().map(|&i| run.rows[i].1));
        self.lists.push(List { rows, then: Some((then, Rc::clone(before))), known });
        At { list: self.lists.len() - 1, index: 0 }
    }
}

impl Run {
    /// The pieces to search first: of the value, or of its high half; `None` if the lists would be too long.
    fn pieces(&self) -> Option<Vec<Piece>> {
        let intervals: usize = self.rows.iter().map(|(_, _, intervals)| intervals.len()).sum();
        let most = self.rows.len() * MAX_COPIES + intervals;
        if self.field.width_bits() <= 64 {
            return pieces(self.rows.iter().map(|(_, _, intervals)| &intervals[..]).enumerate(), most);
        }
        let high: Vec<Vec<Interval>> = self
            .rows
            .iter()
            .map(|(_, _, intervals)| intervals.iter().map(|(low, high)| (low >> 64, high >> 64)).collect())
            .collect();
        let pieces = pieces(high.iter().map(|intervals| &intervals[..]).enumerate(), most)?;
        let entries = |piece: &Piece| self.low_pieces(piece).iter().map(|low| low.rows.len()).sum::<usize>();
        (pieces.iter().map(entries).sum::<usize>() <= most).then_some(pieces)
    }

    /// The pieces of the low half for a high half in `piece`.
    fn low_pieces(&self, piece: &Piece) -> Vec<Piece> {
        let all = u128::from(u64::MAX);
        let low: Vec<Vec<Interval>> = piece
            .rows
            .iter()
            .map(|&i| {
                // The intervals ascend and do not overlap.
                let all_of = &self.rows[i].2;
                let first = all_of.partition_point(|(_, high)| high >> 64 < piece.high);
                let of = all_of[first..].iter().take_while(|(low, _)| low >> 64 <= piece.low);
                // An interval that spans several high halves contains all low ones.
                of.map(|(low, high)| if low >> 64 == high >> 64 { (low & all, high & all) } else { (0, all) }).collect()
            })
            .collect();
        let positions = piece.rows.iter().copied().zip(low.iter().map(|intervals| &intervals[..]));
        pieces(positions, usize::MAX).unwrap_or_default()
    }
}

/// Splits the values at the bounds of all intervals and drops pieces that no row covers. `None` if the pieces have more
/// than `most` rows in total.
fn pieces<'i>(rows: impl Iterator<Item = (usize, &'i [Interval])> + Clone, most: usize) -> Option<Vec<Piece>> {
    let ends = rows.clone().flat_map(|(_, intervals)| intervals);
    let mut cuts: Vec<u128> = ends.flat_map(|&(low, high)| [Some(low), high.checked_add(1)]).flatten().collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut covers: Vec<Vec<usize>> = vec![Vec::new(); cuts.len()];
    let mut count = 0;
    for (row, intervals) in rows {
        for &(low, high) in intervals {
            let first = cuts.partition_point(|&cut| cut < low);
            for covers in &mut covers[first..cuts.partition_point(|&cut| cut <= high)] {
                if covers.last() != Some(&row) {
                    covers.push(row);
                    count += 1;
                }
            }
            if count > most {
                return None;
            }
        }
    }
    let mut pieces: Vec<Piece> = Vec::new();
    for (i, rows) in covers.into_iter().enumerate() {
        let high = cuts.get(i + 1).map_or(u128::MAX, |next| next - 1);
        match pieces.last_mut() {
            _ if rows.is_empty() => {}
            Some(last) if last.rows == rows && last.high + 1 == cuts[i] => last.high = high,
            _ => pieces.push(Piece { low: cuts[i], high, rows }),
        }
    }
    Some(pieces)
}

/// The field that a condition compares with constants, and the values that satisfy it, ascending. Orderings and
/// negations are excluded: they accept so many values that a search would not separate the rows.
fn intervals(condition: &Condition) -> Option<(FieldId, Vec<Interval>)> {
    let selects = match condition {
        Condition::Compare { relation, .. } => *relation == Relation::Equal,
        Condition::Masked { negated, .. }
        | Condition::Range { negated, .. }
        | Condition::OneOf { negated, .. }
        | Condition::Within { negated, .. } => !negated,
        _ => false,
    };
    let (field, intervals) = selects.then(|| intervals::of(condition)).flatten()?;
    let is_large = field.width_bits() >= MIN_BITS && !(65..128).contains(&field.width_bits());
    is_large.then_some((field, intervals))
}
